//! Samples of what the target's threads run: the clocks, and what comes from their ring. The C is beside this file, in
//! `samples.bpf.c`.
//!
//! In: the loaded probes, the cores that the target may use, a rate. Out: [`Clocks`], a software clock on each of those cores that
//! runs the program until it is dropped, and [`Ring`], which hands out the samples. Without them nothing of this is loaded.

pub mod tick_cost;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::rc::Rc;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use tailsight_symbolise::Raw;
use tailsight_symbolise::maps::{Mapping, Maps};
use tailsight_symbolise::unwind::Registers;
use tailsight_trace::samples::{SampleRow, kind};

use super::python::{self, Called};
use super::{Extras, OnDemand, Probe};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::Opened;

/// The clock. No hooks: the program is attached by [`Clocks`], to a software event of each core.
pub const PROBE: Probe = Probe { name: "samples", on_demand: Some(OnDemand { loads, prepare }), hooks: &[] };

/// The program of the clock.
pub const PROGRAM: &str = "sample_clock";

fn loads(extras: &Extras, program: &str) -> bool {
    extras.samples.is_some() && program == PROGRAM
}

fn prepare(open: &mut Opened, extras: &Extras) -> Result<(), Error> {
    let constants = open.constants();
    constants.sleep_places = u32::from(extras.samples.is_some());
    constants.sample_one_in = extras.samples.map_or(0, u32::from);
    if extras.samples.is_some() {
        let cores = libbpf_rs::num_possible_cpus().unwrap_or(1);
        let sized = open.map("samples").set_max_entries(ring_bytes(cores));
        sized.map_err(|e| Error::bpf("sizing the ring of samples", e))?;
    }
    Ok(())
}

/// The ring for the samples of a tenth of a second, and more than that where the cores are few. No larger: the kernel makes and maps it in system
/// calls that a core without preemption cannot leave, 16 MB in 6 ms.
fn ring_bytes(cores: usize) -> u32 {
    const OF_CORE: usize = 2 << 20;
    (cores.saturating_mul(OF_CORE)).clamp(4 << 20, 16 << 20).next_power_of_two() as u32
}

/// As in the C.
const KERNEL_FRAMES: usize = 48;
const STACK_BYTES: usize = 8192;
/// Bytes of a sample before the kernel's addresses.
const HEAD: usize = 80;
/// Where the functions of Python begin.
const PYTHON: usize = HEAD + 8 * KERNEL_FRAMES;
/// Bytes of a sample.
const WHOLE: usize = PYTHON + python::FRAME_BYTES * python::FRAMES + STACK_BYTES;

/// Software clocks that run.
pub struct Clocks {
    links: Vec<Link>,
}

impl Clocks {
    /// Starts one on each of these cores that is online, with so many ns between two samples.
    ///
    /// # Errors
    /// What the kernel refused, when it refused all of them.
    pub fn start(loaded: &Loaded, cpus: &[u32], period_ns: u64) -> Result<Clocks, String> {
        let mut started = Clocks { links: Vec::new() };
        let mut refused = None;
        for &cpu in cpus {
            match started.add(loaded, cpu, period_ns) {
                Ok(()) => {}
                // It may be offline.
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            Some(why) if started.links.is_empty() => Err(why),
            _ => Ok(started),
        }
    }

    fn add(&mut self, loaded: &Loaded, cpu: u32, period_ns: u64) -> Result<(), String> {
        let event = open(On::Core(cpu), period_ns).map_err(|e| format!("perf_event_open: {e}"))?;
        let program = loaded.probes.object().progs_mut().find(|p| p.name() == PROGRAM);
        let program = program.ok_or("the program is not loaded")?;
        let link = program.attach_perf_event(event.as_raw_fd()).map_err(|e| format!("attaching the clock: {e:#}"))?;
        // The link closes it.
        let _ = event.into_raw_fd();
        self.links.push(link);
        Ok(())
    }

    /// On how many cores.
    pub fn cores(&self) -> usize {
        self.links.len()
    }
}

/// Where a software clock ticks.
enum On {
    /// On a core, whatever runs there but its idle task.
    Core(u32),
    /// On whichever core this thread runs.
    OwnThread,
}

/// A software clock. Its ticks do nothing until a program is attached.
fn open(on: On, period_ns: u64) -> std::io::Result<OwnedFd> {
    const SOFTWARE: u32 = 1;
    const CPU_CLOCK: u64 = 0;
    const CLOSE_ON_EXEC: u64 = 8;
    /// Nothing while the idle task runs.
    const EXCLUDE_IDLE: u64 = 1 << 7;
    let mut attributes = [0u64; 16];
    attributes[0] = u64::from(SOFTWARE) | (size_of_val(&attributes) as u64) << 32;
    attributes[1] = CPU_CLOCK;
    attributes[2] = period_ns;
    attributes[5] = EXCLUDE_IDLE;
    let (thread, cpu) = match on {
        On::Core(cpu) => (-1, i64::from(cpu)),
        On::OwnThread => (0, -1),
    };
    // SAFETY: the kernel reads the attributes, whose size they say; they are words of a `perf_event_attr` (type and size, config,
    // sample_period, sample_type, read_format, flags; the rest 0).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), thread, cpu, -1, CLOSE_ON_EXEC) };
    match i32::try_from(fd) {
        // SAFETY: the kernel just gave us this descriptor.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Tells the programs which system calls are waits for work.
pub fn tell_waits(loaded: &mut Loaded) {
    let bss = loaded.probes.variables_mut();
    for nr in (0..1024).filter(|&nr| tailsight_kernel::syscalls::waits_for_work(nr)) {
        bss.work_waits[(nr >> 6) as usize] |= 1 << (nr & 63);
    }
}

/// Where processes have code, as the programs were told.
#[derive(Default)]
pub struct Code {
    /// Processes whose code the programs know.
    informed: BTreeSet<u32>,
    /// A process of each program at its addresses.
    first_of: BTreeMap<Vec<(u64, u64, u64, String)>, u32>,
    /// Programs that processes of the target had become by then.
    execs: u32,
}

impl Code {
    /// Tells the programs where these processes have code that their stacks return to: their own, what was compiled at run time and the
    /// largest libraries, without those that nearly every stack ends in.
    pub fn tell(&mut self, loaded: &Loaded, pids: &[u32]) {
        let execs = loaded.probes.variables().execs;
        if execs != self.execs {
            // Nobody says which ones.
            (self.informed, self.execs) = (BTreeSet::new(), execs);
        }
        for &pid in pids {
            if self.informed.insert(pid) {
                self.tell_of(loaded, pid);
            }
        }
    }

    fn tell_of(&mut self, loaded: &Loaded, pid: u32) {
        let Ok(maps) = Maps::of(pid) else { return };
        let identity = maps.all().iter().map(|m| (m.start, m.end, m.inode, m.path.clone())).collect();
        let like = *self.first_of.entry(identity).or_insert(pid);
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let code = ranges(&maps, &program.to_string_lossy());
        let bytes_of = |f: &dyn Fn(&(u64, u64)) -> u64| {
            (0..RANGES).flat_map(|i| code.get(i).map_or(0, f).to_ne_bytes()).collect::<Vec<u8>>()
        };
        let like = u64::from(like).to_ne_bytes().to_vec();
        let value = [bytes_of(&|range| range.0), bytes_of(&|range| range.1 - range.0), like].concat();
        let _ = loaded.probes.maps.code_of.update(&pid.to_ne_bytes(), &value, MapFlags::ANY);
    }
}

/// As in the C.
const RANGES: usize = 4;

/// Libraries of one program lie side by side, with their data between their code: no further apart than this, bytes.
const SIDE_BY_SIDE: u64 = 256 << 10;

/// What code says of where a program is, most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tells {
    /// The program's own file.
    Program,
    /// Libraries that came with it, and what was compiled at run time.
    ItsOwn,
    /// Libraries of the system: many, large, and seldom on the way to a sleep.
    System,
}

impl Tells {
    fn of(mapping: &Mapping, program: &str) -> Tells {
        const FOLDERS: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];
        let folder = mapping.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_of_system = |system_folder: &str| {
            let below = folder.strip_prefix(system_folder);
            below.is_some_and(|rest| rest.is_empty() || (rest.ends_with("-linux-gnu") && rest.rfind('/') == Some(0)))
        };
        match mapping.path.as_str() {
            path if path == program => Tells::Program,
            _ if FOLDERS.iter().any(|system_folder| is_of_system(system_folder)) => Tells::System,
            _ => Tells::ItsOwn,
        }
    }
}

/// The addresses of a program's code by which its stacks are told apart: its own first, then the largest. What was compiled at run time lies in
/// mappings of no file, side by side. `program`: the path of its file.
fn ranges(maps: &Maps, program: &str) -> Vec<(u64, u64)> {
    let usual = |m: &Mapping| {
        ["libc.", "libc-", "ld-", "libpthread", "libm.", "[vdso]", "[vsyscall]", "[uprobes]"]
            .iter()
            .any(|l| m.name().starts_with(l))
    };
    let mut code: Vec<(Tells, u64, u64)> = vec![];
    for m in maps.all().iter().filter(|m| !usual(m)) {
        let tells = Tells::of(m, program);
        let apart = if tells == Tells::ItsOwn { SIDE_BY_SIDE } else { 0 };
        match code.last_mut() {
            Some((last, _, end)) if *last == tells && m.start - *end <= apart => *end = m.end,
            _ => code.push((tells, m.start, m.end)),
        }
    }
    code.sort_by_key(|&(tells, start, end)| (tells, std::cmp::Reverse(end - start)));
    code.truncate(RANGES);
    code.into_iter().map(|(_, start, end)| (start, end)).collect()
}

/// The ring that the programs write to.
pub struct Ring {
    ring: RingBuffer<'static>,
    taken: Rc<RefCell<Vec<u8>>>,
    _map: Box<MapHandle>,
}

impl Ring {
    /// Of the loaded probes.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn of(loaded: &Loaded) -> Result<Ring, Error> {
        let failed = |e: libbpf_rs::Error| Error::bpf("opening the ring of samples", e);
        let map = Box::new(MapHandle::try_from(&loaded.probes.maps.samples).map_err(failed)?);
        let taken = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&taken);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            into.borrow_mut().extend_from_slice(trimmed(bytes));
            0
        };
        // SAFETY: the map lives on the heap as long as the ring does, which is dropped before it.
        let lasting: &'static MapHandle = unsafe { &*std::ptr::from_ref(&*map) };
        builder.add(lasting, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Ring { ring, taken, _map: map })
    }

    /// Moves what is in the ring to memory; how many bytes wait there.
    pub fn take(&self) -> usize {
        // A negative value would be the callback's, which never fails.
        let _ = self.ring.consume_raw();
        self.taken.borrow().len()
    }

    /// Passes on each sample that waits in memory and removes it, with the functions of Python that its thread was in, innermost first; a
    /// sample of a sleep comes with the number of its place.
    pub fn each(&self, mut each: impl FnMut(Raw, u32, &[Called])) {
        let bytes = std::mem::take(&mut *self.taken.borrow_mut());
        let mut rest = bytes.as_slice();
        while let Some(n) = taken_of(rest) {
            let (sample, after) = rest.split_at(n);
            each(parse(sample), u32::from_ne_bytes(word(sample, 64)), &called(sample));
            rest = after;
        }
    }

    /// Moves what is in the ring out of it, each sample as it came.
    pub fn records(&self) -> Vec<Record> {
        self.take();
        let bytes = std::mem::take(&mut *self.taken.borrow_mut());
        let mut rest = bytes.as_slice();
        let mut records = vec![];
        while let Some(n) = taken_of(rest) {
            let (sample, after) = rest.split_at(n);
            records.push(Record(sample.into()));
            rest = after;
        }
        records
    }

    /// The samples that wait in memory, without their stacks.
    pub fn waiting(&self) -> Vec<SampleRow> {
        let bytes = self.taken.borrow();
        let mut rest = bytes.as_slice();
        let mut out = vec![];
        while let Some(n) = taken_of(rest) {
            let (sample, after) = rest.split_at(n);
            out.push(row(sample));
            rest = after;
        }
        out
    }
}

/// A sample as it came from the ring.
#[derive(Clone, Debug)]
pub struct Record(Box<[u8]>);

impl Record {
    /// When, on which core, whose.
    pub fn row(&self) -> SampleRow {
        row(&self.0)
    }

    /// How much memory it takes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Of a sleep the number of its place.
    pub fn place(&self) -> u32 {
        u32::from_ne_bytes(word(&self.0, 64))
    }

    /// The functions of Python that its thread was in, innermost first.
    pub fn called(&self) -> Vec<Called> {
        called(&self.0)
    }

    /// With its registers and its stack.
    pub fn raw(&self) -> Raw {
        parse(&self.0)
    }
}

/// The number at a place of a sample. Every place is inside of its head.
fn word<const N: usize>(sample: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(bytes) = sample.get(at..at + N) {
        out.copy_from_slice(bytes);
    }
    out
}

fn kernel_bytes(sample: &[u8]) -> usize {
    (u32::from_ne_bytes(word(sample, 24)) as usize).min(8 * KERNEL_FRAMES) / 8 * 8
}

fn stack_bytes(sample: &[u8]) -> usize {
    (u32::from_ne_bytes(word(sample, 28)) as usize).min(STACK_BYTES)
}

/// What a record of the ring has: of a skipped tick its head.
fn length(record: &[u8]) -> usize {
    if record.get(20) == Some(&kind::SKIPPED) { HEAD } else { WHOLE - STACK_BYTES + stack_bytes(record) }
}

/// A sample in the ring without the part of the stack that was not copied.
fn trimmed(sample: &[u8]) -> &[u8] {
    sample.get(..length(sample)).unwrap_or_default()
}

/// The length of the first trimmed sample; none when there is none.
fn taken_of(bytes: &[u8]) -> Option<usize> {
    let n = length(bytes);
    (bytes.len() >= n).then_some(n)
}

fn row(sample: &[u8]) -> SampleRow {
    let int = |at| u32::from_ne_bytes(word(sample, at));
    SampleRow {
        ts_ns: u64::from_ne_bytes(word(sample, 0)),
        tid: int(8),
        tgid: int(12),
        cpu: int(16) as u16,
        kind: sample[20],
        weight: u16::from_ne_bytes(word(sample, 22)),
        stack: 0,
    }
}

/// The functions of Python.
fn called(sample: &[u8]) -> Vec<Called> {
    let met = if sample.len() < WHOLE - STACK_BYTES { 0 } else { u32::from_ne_bytes(word(sample, 72)) as usize };
    let frame = |at: usize| Called::of([word(sample, at), word(sample, at + 8)].map(u64::from_ne_bytes));
    (0..met.min(python::FRAMES)).map(|i| frame(PYTHON + python::FRAME_BYTES * i)).collect()
}

fn parse(sample: &[u8]) -> Raw {
    let long = |at| u64::from_ne_bytes(word(sample, at));
    let addresses = sample.get(HEAD..HEAD + kernel_bytes(sample)).unwrap_or_default().chunks_exact(8);
    Raw {
        row: row(sample),
        like: u32::from_ne_bytes(word(sample, 68)),
        kernel: addresses.map(|a| u64::from_ne_bytes(word(a, 0))).collect(),
        registers: Registers { ip: long(32), sp: long(40), fp: long(48), lr: long(56) },
        bytes: sample.get(WHOLE - STACK_BYTES..).unwrap_or_default().to_vec(),
        interpreted: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_has_room_for_a_tenth_of_a_second_of_samples() {
        let sizes = [1, 2, 3, 8, 64, 1024].map(|cores| ring_bytes(cores) >> 20);
        assert_eq!(sizes, [4, 4, 8, 16, 16, 16]);
        // At most 1,997 a second on a core, and 16,000 on all.
        for cores in 1..=1024 {
            let samples = (1_997 * cores).min(16_000) / 10;
            assert!(ring_bytes(cores) as usize >= samples * WHOLE, "{cores}");
        }
    }

    /// Methods that a JVM compiled were no code: two of them that sleep by one function of it were one place.
    #[test]
    fn code_compiled_at_run_time_tells_places_apart() {
        let maps = Maps::parse(
            "1000-2000 r-xp 0 0:0 1 /usr/bin/java\n100000-200000 rwxp 0 0:0 0 \n200000-280000 rwxp 0 0:0 0 \n\
             700000-900000 r-xp 0 0:0 2 /lib/libjvm.so\na00000-f00000 r-xp 0 0:0 3 /lib/libc.so.6\n",
        );
        assert_eq!(ranges(&maps, "/usr/bin/java"), [(0x1000, 0x2000), (0x10_0000, 0x28_0000), (0x70_0000, 0x90_0000)]);
    }

    /// A wait of 1 s in Postfix had the place of another: by its four largest libraries, the system's, all polls were one place.
    #[test]
    fn a_program_s_own_code_tells_places_apart_before_the_system_s() {
        let maps = Maps::parse(
            "1000-2000 r-xp 0 0:0 1 /usr/lib/postfix/sbin/smtpd\n100000-900000 r-xp 0 0:0 2 /usr/lib/x86_64-linux-gnu/libcrypto.so.3\n\
             a00000-a80000 r-xp 0 0:0 3 /lib/x86_64-linux-gnu/libdb.so\nb00000-c00000 r-xp 0 0:0 4 /usr/lib64/libicu.so\n\
             d00000-e00000 r-xp 0 0:0 5 /usr/lib/libkrb5.so\nf00000-f01000 r-xp 0 0:0 6 /usr/lib/postfix/libpostfix-util.so\n\
             f10000-f12000 r-xp 0 0:0 7 /usr/lib/postfix/libpostfix-global.so\n1000000-1001000 r-xp 0 0:0 8 /usr/lib/postfix/libpostfix-master.so\n",
        );
        let own = [(0x1000, 0x2000), (0xf0_0000, 0xf1_2000), (0x100_0000, 0x100_1000), (0x10_0000, 0x90_0000)];
        assert_eq!(ranges(&maps, "/usr/lib/postfix/sbin/smtpd"), own);
    }

    /// The layout is written down twice: here and in the C.
    #[test]
    fn a_sample_is_read_as_the_program_writes_it() {
        let c = include_str!("samples.bpf.c");
        assert!(c.contains(&format!("#define KERNEL_FRAMES {KERNEL_FRAMES}\n")));
        assert!(c.contains(&format!("_Static_assert(sizeof(struct sample) == {WHOLE},")));
        let mut bytes = vec![0u8; WHOLE];
        let mut set = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        set(0, &7u64.to_ne_bytes());
        set(8, &11u32.to_ne_bytes());
        set(12, &10u32.to_ne_bytes());
        set(16, &3u32.to_ne_bytes());
        set(20, &1u16.to_ne_bytes());
        set(22, &2u16.to_ne_bytes());
        set(24, &16u32.to_ne_bytes());
        set(28, &5u32.to_ne_bytes());
        set(68, &12u32.to_ne_bytes());
        set(32, &0x40u64.to_ne_bytes());
        set(40, &0x50u64.to_ne_bytes());
        set(HEAD, &0x100u64.to_ne_bytes());
        set(HEAD + 8, &0x200u64.to_ne_bytes());
        set(72, &2u32.to_ne_bytes());
        set(PYTHON, &0x700u64.to_ne_bytes());
        set(PYTHON + 8, &0x710u64.to_ne_bytes());
        set(PYTHON + 16, &(1u64 << 63).to_ne_bytes());
        set(WHOLE - STACK_BYTES, b"stack and more");
        let short = trimmed(&bytes);
        assert_eq!(taken_of(short), Some(short.len()));
        let raw = parse(short);
        let row = SampleRow { ts_ns: 7, tid: 11, tgid: 10, cpu: 3, kind: 1, weight: 2, stack: 0 };
        assert_eq!((raw.row, raw.kernel, raw.bytes), (row, vec![0x100, 0x200], b"stack".to_vec()));
        assert_eq!((raw.registers.ip, raw.registers.sp, raw.like), (0x40, 0x50, 12));
        let inner = Called { code: 0x700, instruction: 0x710, entered: false };
        assert_eq!(called(short), [inner, Called { code: 0, instruction: 0, entered: true }]);
        assert_eq!(called(&short[..HEAD]), []);
        assert_eq!(trimmed(&bytes[..100]), &[] as &[u8]);
        assert_eq!(taken_of(&short[..50]), None);
        // A tick that was skipped has nothing behind its head, and another record may follow.
        let mut skipped = bytes[..HEAD].to_vec();
        skipped[20..24].copy_from_slice(&[kind::SKIPPED, 0, 0, 0]);
        skipped[24..32].fill(0);
        assert_eq!(trimmed(&skipped), skipped);
        let two_samples = [&skipped[..], short].concat();
        assert_eq!(taken_of(&two_samples), Some(HEAD));
        let raw = parse(&two_samples[..HEAD]);
        assert_eq!((raw.row.kind, raw.row.weight, raw.kernel.len(), raw.bytes.len()), (kind::SKIPPED, 0, 0, 0));
    }
}
