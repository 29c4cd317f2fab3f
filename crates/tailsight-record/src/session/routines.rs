//! Goroutines that have a message, looked at from outside of the target while the recording runs.
//!
//! In: the goroutines that received and did not answer yet, as the probes know them. Out: [`Look`]s: what each was at, and its stack. The
//! target is neither stopped nor changed: its memory is read (`process_vm_readv`), the goroutine's state before and after its stack, and
//! a look at one that went on meanwhile is dropped and counted. Where the fields of a goroutine are depends on the version of Go
//! ([`LAYOUTS`]); of another version nothing is read.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use tailsight_symbolise::unwind::Registers;
use tailsight_symbolise::{Raw, Stacks};
use tailsight_trace::meta;
use tailsight_trace::routines::{RoutineRow, State};
use tailsight_trace::samples::SampleRow;

use crate::clocks;
use crate::loaded::Loaded;
use crate::probes::routines::{self, Open};

/// The time between two looks at the least.
const EVERY: Duration = Duration::from_millis(2);
/// A look may take this part of the recorder's core: one that took 20 us comes again after 2 ms.
const SHARE_OF_CORE: u32 = 100;
/// The time between two looks at most.
const MOST_APART: Duration = Duration::from_millis(100);
/// Goroutines that are looked at in one turn, the oldest messages first.
const MOST_AT_ONCE: usize = 64;
/// A goroutine whose message is younger is let be.
const YOUNGEST_NS: u64 = 1_000_000;
/// One that has not answered for so long is none that answers: its messages go to others.
const OLDEST_NS: u64 = 10_000_000_000;
/// Looks that are kept: those of a minute in which one goroutine after the other waits.
const MOST_LOOKS: usize = 2_000_000;
/// Bytes of a goroutine's stack that are read: those of some twenty functions.
const STACK_BYTES: usize = 8192;
/// Bytes of all stacks that are kept until they are unwound.
const MOST_STACK_BYTES: usize = 64 << 20;
/// Bytes of a goroutine that are read.
const ROUTINE_BYTES: usize = 192;

/// Where the fields of `runtime.g` are, bytes from its start. Its stack's bounds, and the saved stack pointer, program counter and the
/// goroutine itself are at the same places in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Versions 1.`first` to 1.`last`.
    first: u32,
    last: u32,
    /// The saved frame pointer (`sched.bp`).
    frame_pointer: usize,
    /// `atomicstatus`.
    status: usize,
}

const STACK_LOW: usize = 0;
const STACK_HIGH: usize = 8;
const STACK_POINTER: usize = 56;
const PROGRAM_COUNTER: usize = 64;
const ITSELF: usize = 72;

/// By version, from the debug information of programs that each of them built (amd64 and arm64 have the same). 1.17 is the first that keeps
/// the goroutine in a register, and the program does not say its version where 1.18 and later do.
const LAYOUTS: &[Layout] = &[
    Layout { first: 18, last: 22, frame_pointer: 104, status: 144 },
    Layout { first: 23, last: 24, frame_pointer: 104, status: 152 },
    // Without `gobuf.ret`.
    Layout { first: 25, last: 26, frame_pointer: 96, status: 144 },
];

/// The layout of a version as Go writes it: `go1.22.5`, `go1.23rc1`, `go1.26.8 X:nocoverageredesign`.
fn layout(version: &str) -> Option<&'static Layout> {
    let digits = version.strip_prefix("go1.")?;
    let minor = digits.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()?;
    LAYOUTS.iter().find(|layout| (layout.first..=layout.last).contains(&minor))
}

/// What a goroutine was at when it was looked at.
#[derive(Clone, Copy, Debug)]
struct Look {
    row: RoutineRow,
    /// Of one that waited, which of all stacks is its own.
    stack: Option<usize>,
}

/// A goroutine's saved registers and its stack's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Saved {
    status: u32,
    registers: Registers,
    stack_high: u64,
}

/// Looks at the goroutines of a target.
#[derive(Default)]
pub(super) struct Routines {
    /// Processes that were asked for, with the layout of those whose goroutines can be read.
    processes: BTreeMap<u32, Option<&'static Layout>>,
    looks: Vec<Look>,
    /// The numbers of the stacks that were unwound.
    unwound: Vec<u32>,
    /// Those that come after them and are to be unwound.
    waiting: Vec<Raw>,
    waiting_bytes: usize,
    /// Of each goroutine its message when it was last looked at, and where it waited.
    last_of: FxHashMap<(u32, u64), (u64, Registers, usize)>,
    said: meta::Routines,
    next: Option<Instant>,
}

impl Routines {
    /// Takes in processes of the target that were not known yet.
    pub(super) fn meet(&mut self, loaded: &mut Loaded, pids: &[u32], stacks: &mut Stacks) {
        for &pid in pids {
            if self.processes.contains_key(&pid) {
                continue;
            }
            let version = stacks.go_version(pid);
            let layout = version.as_deref().and_then(layout);
            self.processes.insert(pid, layout);
            let Some(version) = version else { continue };
            let version = if version.is_empty() { "before go1.18".to_owned() } else { version };
            if layout.is_none() {
                self.note(format!(
                    "goroutines are not read: where {version} keeps them is not known here (1.18 to 1.26 are)"
                ));
            } else if let Err(error) = routines::tell(loaded, pid) {
                self.note(format!("goroutines are not read: {}", tailsight_units::chain(&error)));
            }
            if !self.said.versions.contains(&version) {
                self.said.versions.push(version);
            }
        }
    }

    fn note(&mut self, text: String) {
        if !self.said.notes.contains(&text) {
            self.said.notes.push(text);
        }
    }

    /// How long until the next look; none where there is nothing to look at.
    pub(super) fn due(&self) -> Option<Duration> {
        let is_read = self.processes.values().any(Option::is_some);
        is_read.then(|| self.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now())))
    }

    /// Looks at the goroutines that have a message, those first that have had it for longest.
    pub(super) fn look(&mut self, loaded: &Loaded) {
        let began = own_cpu();
        let now_ns = clocks::monotonic_ns();
        let age = |open: &Open| now_ns.saturating_sub(open.since_ns);
        let mut open: Vec<Open> =
            routines::open(loaded).filter(|open| (YOUNGEST_NS..OLDEST_NS).contains(&age(open))).collect();
        open.sort_unstable_by_key(|open| open.since_ns);
        self.said.left_out += open.len().saturating_sub(MOST_AT_ONCE) as u64;
        open.truncate(MOST_AT_ONCE);
        for open in &open {
            self.look_at(open);
        }
        let took = own_cpu().saturating_sub(began);
        self.said.cpu_ns += took.as_nanos() as u64;
        self.said.turns += 1;
        self.next = Some(Instant::now() + (took * SHARE_OF_CORE).clamp(EVERY, MOST_APART));
    }

    fn look_at(&mut self, open: &Open) {
        let Some(layout) = self.processes.get(&open.pid).copied().flatten() else { return };
        if self.looks.len() >= MOST_LOOKS {
            self.said.left_out += 1;
            return;
        }
        let Some(before) = saved(open, layout) else {
            self.said.unreadable += 1;
            return;
        };
        let Some(state) = state_of(before.status) else { return };
        let row = |state| RoutineRow {
            ts_ns: clocks::monotonic_ns(),
            pid: open.pid,
            routine: open.routine,
            since_ns: open.since_ns,
            state,
            stack: 0,
        };
        if state != State::Waiting {
            self.looks.push(Look { row: row(state), stack: None });
            return;
        }
        let key = (open.pid, open.routine);
        if let Some(&(since_ns, registers, stack)) = self.last_of.get(&key)
            && (since_ns, registers) == (open.since_ns, before.registers)
        {
            self.looks.push(Look { row: row(state), stack: Some(stack) });
            return;
        }
        let bytes = (before.stack_high - before.registers.sp).min(STACK_BYTES as u64) as usize;
        if self.waiting_bytes + bytes > MOST_STACK_BYTES {
            self.said.left_out += 1;
            return;
        }
        let stack = read(open.pid, before.registers.sp, bytes);
        // It went on meanwhile: the bytes may be of another call.
        let Some(stack) = stack.filter(|_| saved(open, layout) == Some(before)) else {
            self.said.torn += 1;
            return;
        };
        self.waiting_bytes += bytes;
        self.waiting.push(Raw {
            row: SampleRow { tgid: open.pid, ..SampleRow::default() },
            like: 0,
            kernel: vec![],
            registers: before.registers,
            bytes: stack,
        });
        let stack = self.unwound.len() + self.waiting.len() - 1;
        self.last_of.insert(key, (open.since_ns, before.registers, stack));
        self.looks.push(Look { row: row(state), stack: Some(stack) });
    }

    /// Unwinds the stacks that wait for it, where they are many.
    pub(super) fn unwind(&mut self, stacks: &mut Stacks) {
        if self.waiting_bytes > MOST_STACK_BYTES / 4 {
            self.unwind_all(stacks);
        }
    }

    fn unwind_all(&mut self, stacks: &mut Stacks) {
        self.unwound.extend(stacks.stacks_of(std::mem::take(&mut self.waiting)));
        self.waiting_bytes = 0;
    }

    /// The looks between two times, with the numbers of their stacks, and what run.json says of them; none without a Go program.
    pub(super) fn finish(
        mut self,
        stacks: &mut Stacks,
        (start_ns, end_ns): (u64, u64),
    ) -> Option<(meta::Routines, Vec<RoutineRow>)> {
        if self.said.versions.is_empty() {
            return None;
        }
        self.unwind_all(stacks);
        let row = |look: &Look| {
            let stack = look.stack.and_then(|at| self.unwound.get(at)).map_or(0, |number| number + 1);
            RoutineRow { stack, ..look.row }
        };
        let within = |look: &&Look| (start_ns..=end_ns).contains(&look.row.ts_ns);
        let rows: Vec<RoutineRow> = self.looks.iter().filter(within).map(row).collect();
        self.said.looks = rows.len() as u64;
        Some((self.said, rows))
    }
}

/// CPU time of this thread: while others have the core, a look takes nothing.
fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// What a goroutine's status says (`runtime2.go`); none of one that is dead or about to be made.
fn state_of(status: u32) -> Option<State> {
    // While a collector scans its stack.
    const SCANNED: u32 = 0x1000;
    match status & !SCANNED {
        1 => Some(State::Runnable),
        2 => Some(State::Running),
        3 => Some(State::InSyscall),
        4 => Some(State::Waiting),
        // It was preempted and waits to go on.
        9 => Some(State::Runnable),
        _ => None,
    }
}

/// What a goroutine has saved; none where this is no goroutine any more, or never was.
fn saved(open: &Open, layout: &Layout) -> Option<Saved> {
    parse(&read(open.pid, open.address, ROUTINE_BYTES)?, open.address, layout)
}

/// A goroutine's bytes. It names itself, and its saved stack pointer lies in its stack: other memory does not look so.
fn parse(bytes: &[u8], address: u64, layout: &Layout) -> Option<Saved> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (low, high, sp) = (word(STACK_LOW)?, word(STACK_HIGH)?, word(STACK_POINTER)?);
    let status = word(layout.status)? as u32;
    let is_one = word(ITSELF)? == address && low < high && (low..=high).contains(&sp);
    let registers = Registers { ip: word(PROGRAM_COUNTER)?, sp, fp: word(layout.frame_pointer)?, lr: 0 };
    is_one.then_some(Saved { status, registers, stack_high: high })
}

/// Bytes of a process; none where not all of them can be read.
fn read(pid: u32, address: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let from = RemoteIoVec { base: usize::try_from(address).ok()?, len: bytes };
    let read = process_vm_readv(Pid::from_raw(pid.cast_signed()), &mut [IoSliceMut::new(&mut buffer)], &[from]).ok()?;
    (read == bytes).then_some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the debug information of programs that these versions built.
    #[test]
    fn each_version_has_its_layout() {
        let of = |version: &str| layout(version).map(|layout| (layout.frame_pointer, layout.status));
        for version in ["go1.18.10", "go1.20.14", "go1.21.13", "go1.22.12"] {
            assert_eq!(of(version), Some((104, 144)), "{version}");
        }
        for version in ["go1.23.12", "go1.24.13", "go1.24rc1"] {
            assert_eq!(of(version), Some((104, 152)), "{version}");
        }
        for version in ["go1.25.0", "go1.26.8", "go1.26.8 X:boringcrypto"] {
            assert_eq!(of(version), Some((96, 144)), "{version}");
        }
        for version in ["go1.17.13", "go1.27.0", "go2.1", "devel go1.27-abc", "", "go1."] {
            assert_eq!(of(version), None, "{version}");
        }
    }

    #[test]
    fn what_is_no_goroutine_is_not_taken_for_one() {
        let layout = layout("go1.26.8").unwrap();
        let mut bytes = vec![0u8; ROUTINE_BYTES];
        let mut set = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        set(STACK_LOW, 0x1000);
        set(STACK_HIGH, 0x3000);
        set(STACK_POINTER, 0x2f00);
        set(PROGRAM_COUNTER, 0x40_0000);
        set(ITSELF, 0xc000_0040);
        set(96, 0x2f40);
        set(144, 4);
        let found = parse(&bytes, 0xc000_0040, layout).unwrap();
        assert_eq!(found.registers, Registers { ip: 0x40_0000, sp: 0x2f00, fp: 0x2f40, lr: 0 });
        assert_eq!((state_of(found.status), found.stack_high), (Some(State::Waiting), 0x3000));
        assert_eq!(parse(&bytes, 0xc000_0080, layout), None, "it names another");
        assert_eq!(parse(&bytes[..100], 0xc000_0040, layout), None, "it is cut");
        bytes[STACK_POINTER..STACK_POINTER + 8].copy_from_slice(&0x4000u64.to_le_bytes());
        assert_eq!(parse(&bytes, 0xc000_0040, layout), None, "its stack pointer is not in its stack");
        assert_eq!([state_of(0x1004), state_of(6), state_of(9)], [Some(State::Waiting), None, Some(State::Runnable)]);
    }

    #[test]
    fn memory_is_read_as_a_whole_or_not_at_all() {
        let own = std::process::id();
        let bytes = *b"sixteen bytes ..";
        assert_eq!(read(own, bytes.as_ptr() as u64, bytes.len()).as_deref(), Some(&bytes[..]));
        assert_eq!(read(own, 8, 8), None);
    }
}
