//! From a piece of trace to control flow: calls, returns, interrupts, and where nothing is known.
//!
//! In: the bytes of a [`Piece`](crate::index::Piece), the memory that ran, the context switches of the core. Out: [`Op`]s. Packets and
//! instructions are libipt's work (Intel's own decoder, block by block); which process's memory it looks into is decided here.

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use libipt::block::{Block, BlockDecoder};
use libipt::enc_dec_builder::{Cpu, EncoderDecoderBuilder, Frequency, PtEncoderDecoder};
use libipt::error::{PtError, PtErrorCode};
use libipt::event::{Event, EventType};
use libipt::image::{Image, SectionCache};
use libipt::insn::Class;
use libipt::status::Status;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::memory::{KERNEL_HALF, Memory, Region};
use crate::sideband::{Switch, TraceInfo, TscClock};
use crate::stacks::LATEST_SWITCH;

/// No packet is longer, bytes.
const LONGEST_PACKET: u64 = 16;

/// Why an interval of time has no control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gap {
    /// The processor could not write its trace in time (OVF).
    Overflow,
    /// The code that ran is in no file that was found.
    NoCode,
    /// Trace and code contradict each other, or the trace is damaged.
    Damaged,
    /// The kernel's buffer was full: trace was lost.
    Truncated,
    /// The kernel marked a stretch of trace as incomplete.
    Partial,
    /// It was not asked for.
    NotDecoded,
}

impl Gap {
    /// All of them.
    pub const ALL: [Gap; 6] = [Gap::Overflow, Gap::NoCode, Gap::Damaged, Gap::Truncated, Gap::Partial, Gap::NotDecoded];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Gap::Overflow => "the processor's trace buffer overflowed",
            Gap::NoCode => "the code that ran is in no file that was found",
            Gap::Damaged => "trace and code contradict each other",
            Gap::Truncated => "the kernel's trace buffer was full",
            Gap::Partial => "the kernel marked the trace as incomplete there",
            Gap::NotDecoded => "not asked for",
        }
    }
}

/// A step of control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A near call.
    Call {
        /// The call instruction.
        from: u64,
        /// Its target.
        to: u64,
    },
    /// A near return.
    Return {
        /// The return instruction.
        from: u64,
        /// Where it went.
        to: u64,
    },
    /// A jump into another function: a tail call.
    Jump {
        /// Where it went.
        to: u64,
    },
    /// An interrupt or an exception.
    Interrupt {
        /// The instruction that did not run any more.
        from: u64,
        /// The handler.
        to: u64,
    },
    /// A system call, as seen where the kernel is traced.
    Enter {
        /// The instruction.
        from: u64,
        /// The kernel's entry.
        to: u64,
    },
    /// The return from a system call, an interrupt or an exception.
    Leave {
        /// Where it went.
        to: u64,
    },
    /// Tracing begins.
    On {
        /// Where.
        ip: u64,
    },
    /// Tracing ends: with user space only, a system call or an interrupt.
    Off {
        /// The last instruction, 0 when not known.
        from: u64,
    },
    /// The piece begins in the middle of the control flow.
    Start {
        /// Where.
        ip: u64,
    },
    /// The piece ends.
    End {
        /// Control flow goes on in the next one.
        tracing: bool,
    },
    /// Nothing is known from here to the next step.
    Gap(Gap),
}

/// A step with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// perf's time, ns.
    pub ns: u64,
    /// What happened.
    pub op: Op,
}

/// A decoded piece.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// Steps in the order they happened.
    pub steps: Vec<Step>,
    /// Instructions by thread.
    pub instructions: FxHashMap<u32, u64>,
    /// Places where the decoder lost its way: what it said, and how often.
    pub errors: FxHashMap<&'static str, u64>,
}

/// What does not change from piece to piece.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// How the trace was made.
    pub info: &'a TraceInfo,
    /// perf's clock.
    pub clock: TscClock,
    /// What ran.
    pub memory: &'a Memory,
    /// Context switches of the core.
    pub switches: &'a [Switch],
    /// The thread, where perf recorded by thread: process and thread.
    pub only: Option<(u32, u32)>,
}

/// Decodes a piece. `border`: where control flow is when the next piece begins. From the last packet on, the decoder goes on as far as it
/// needs no more trace, which is further than that: an interrupt of the tracing is put there for it, as the processor would write it.
/// `cut`: the piece ends where trace was lost, maybe in the middle of a packet: an error there is none. `spaces` are those of this memory: what one piece found out of the code is known to the next.
///
/// # Errors
/// [`Error::Decoder`].
pub fn piece(
    setting: Setting<'_>,
    spaces: &mut Spaces<'_>,
    mut bytes: Vec<u8>,
    border: Option<u64>,
    cut: bool,
) -> Result<Decoded, Error> {
    let limit = bytes.len() as u64;
    if let Some(ip) = border {
        // FUP with the whole address, TIP.PGD without one.
        bytes.push(0xdd);
        bytes.extend(ip.to_le_bytes());
        bytes.push(0x01);
    }
    let failed = |e: PtError| Error::Decoder { why: e.msg().to_owned() };
    let info = setting.info;
    let (family, model, stepping) = info.cpu;
    let (ctc, tsc) = info.tsc_ctc;
    let builder = EncoderDecoderBuilder::<BlockDecoder<'_>>::new()
        .freq(Frequency::new(info.mtc_period(), info.nominal_ratio, ctc, tsc))
        .set_end_on_call(true)
        // A tail call is a jump: without this, the functions that several of them go through in one block are not told.
        .set_end_on_jump(true);
    let builder = if family == 0 { builder } else { builder.cpu(Cpu::intel(family, model, stepping)) };
    // SAFETY: `bytes` is not touched again, and lives until the decoder is dropped, which is declared after it.
    let builder = unsafe { builder.buffer_from_raw(bytes.as_mut_ptr(), bytes.len()) };
    let decoder = BlockDecoder::new_from_builder(&builder).map_err(failed)?;
    let mut flow = Flow {
        decoder,
        limit,
        cut,
        setting,
        out: Decoded::default(),
        last: None,
        function: 0..0,
        started: false,
        tracing: false,
        next_switch: 0,
        task: setting.only.unwrap_or((0, 0)),
        space: None,
        kernel: 0,
        instructions: 0,
        tsc: 0,
        ns: setting.clock.ns(0),
    };
    flow.run(spaces);
    flow.count();
    Ok(flow.out)
}

/// The code of address spaces, as libipt reads it, and what was found out of it.
///
/// Of one thread at a time; reading a file and finding where the branches in it are is done once, not once a piece.
pub struct Spaces<'a> {
    memory: &'a Memory,
    /// Files stay mapped in it, and with them libipt's cache of their branches, when control flow goes to another file.
    sections: Option<Rc<SectionCache>>,
    numbers: FxHashMap<(u32, usize), usize>,
    all: Vec<Space>,
    /// Functions of the kernel, by its version ([`Memory::kernel_version`]) and address.
    kernel: FxHashMap<(usize, u64), Range<u64>>,
}

/// Virtual memory for files with code, and four times of it for the cache of their branches: only what is used of it is in memory.
const MOST_MAPPED: u64 = 1 << 44;

/// What is mapped in a process from one change of that to the next.
struct Space {
    pid: u32,
    /// A time when it was.
    ns: u64,
    image: NonNull<Image>,
    functions: FxHashMap<u64, Range<u64>>,
    /// Classes of indirect jumps by address.
    classes: FxHashMap<u64, Class>,
}

impl<'a> Spaces<'a> {
    /// Of this memory; nothing is read yet.
    pub fn new(memory: &'a Memory) -> Spaces<'a> {
        let sections = SectionCache::new(None).ok().map(|mut cache| {
            // A refusal costs time only.
            let _ = cache.set_limit(MOST_MAPPED);
            Rc::new(cache)
        });
        Spaces { memory, sections, numbers: FxHashMap::default(), all: Vec::new(), kernel: FxHashMap::default() }
    }

    /// The number of what was mapped in a process at a time.
    fn of(&mut self, pid: u32, ns: u64) -> Result<usize, PtError> {
        let key = (pid, self.memory.version(pid, ns));
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        let mut image = Image::new(None)?;
        for region in self.memory.regions(pid, ns) {
            let module = &self.memory.modules[region.module as usize];
            let Some(path) = module.path.as_deref().and_then(std::path::Path::to_str) else { continue };
            // What the file does not have is missing there, and said when it ran.
            let _ = self.add(&mut image, path, region);
        }
        let image = NonNull::from(Box::leak(Box::new(image)));
        let (functions, classes) = (FxHashMap::default(), FxHashMap::default());
        self.all.push(Space { pid, ns, image, functions, classes });
        self.numbers.insert(key, self.all.len() - 1);
        Ok(self.all.len() - 1)
    }

    fn add(&self, image: &mut Image, path: &str, region: &Region) -> Result<(), PtError> {
        let (at, len, start) = (region.at, region.end - region.start, region.start);
        if let Some(sections) = &self.sections {
            // SAFETY: `Rc::get_mut` would refuse, as images hold the cache: they only keep it alive, and touch it while the decoder
            // runs, which it does not here. `add_file` of it locks what it changes.
            let cache = unsafe { &mut *Rc::as_ptr(sections).cast_mut() };
            if let Ok(number) = cache.add_file(path, at, len, start) {
                return image.add_cached(Rc::clone(sections), number, None);
            }
        }
        image.add_file(path, at, len, None, start)
    }

    /// Where the function at an address of a space begins and ends; where no function is known, what lies between two that are.
    /// `kernel`: the kernel's version, and a time when it was.
    fn function(&mut self, space: Option<usize>, kernel: (usize, u64), ip: u64) -> Range<u64> {
        let known = match space {
            _ if ip >= KERNEL_HALF => self.kernel.get(&(kernel.0, ip)),
            Some(space) => self.all[space].functions.get(&ip),
            None => None,
        };
        if let Some(known) = known {
            return known.clone();
        }
        let (pid, ns) = space.map_or((0, kernel.1), |space| (self.all[space].pid, self.all[space].ns));
        let found = self.memory.function(pid, ip, if ip >= KERNEL_HALF { kernel.1 } else { ns });
        match space {
            _ if ip >= KERNEL_HALF => drop(self.kernel.insert((kernel.0, ip), found.clone())),
            Some(space) => drop(self.all[space].functions.insert(ip, found.clone())),
            None => {}
        }
        found
    }
}

impl Drop for Spaces<'_> {
    fn drop(&mut self) {
        for space in &self.all {
            // SAFETY: each came from a Box that was leaked in `of`, is here once, and no decoder has it: a decoder lives as long as
            // `piece` runs, which borrows these.
            drop(unsafe { Box::from_raw(space.image.as_ptr()) });
        }
    }
}

struct Flow<'a> {
    decoder: BlockDecoder<'a>,
    limit: u64,
    cut: bool,
    setting: Setting<'a>,
    out: Decoded,
    /// The last block's class and last instruction, while control flow goes on from there.
    last: Option<(Class, u64)>,
    /// The function that runs.
    function: Range<u64>,
    /// The piece has told where it begins.
    started: bool,
    /// Control flow is known.
    tracing: bool,
    next_switch: usize,
    task: (u32, u32),
    /// What is mapped: a number of [`Spaces`], and the kernel's version.
    space: Option<usize>,
    kernel: usize,
    /// Of this task, not yet in `out`.
    instructions: u64,
    tsc: u64,
    /// perf's time of `tsc`.
    ns: u64,
}

/// The class of a block's last instruction; `None`: an indirect jump of any kind, which libipt 2.1 tells and the class of its crate
/// does not know (it panics).
fn class_of(block: &Block) -> Option<Class> {
    // SAFETY: `Block` is a transparent wrapper of this structure of plain numbers.
    let raw: &libipt_sys::pt_block = unsafe { &*std::ptr::from_ref(block).cast() };
    #[allow(clippy::unnecessary_cast, reason = "the type of C enumerations differs between platforms")]
    Class::try_from(raw.iclass as u32).ok()
}

impl Flow<'_> {
    fn run(&mut self, spaces: &mut Spaces<'_>) {
        let mut status = match self.decoder.sync_forward() {
            Ok(status) => status,
            Err(_) => return,
        };
        self.turn(spaces, 0);
        loop {
            match self.follow(spaces, status) {
                Ok(()) => break,
                Err(error) if error.code() == PtErrorCode::Eos => break,
                Err(_) if self.cut && self.decoder.offset().is_ok_and(|at| at + LONGEST_PACKET >= self.limit) => break,
                Err(error) => {
                    self.lost(error);
                    match self.decoder.sync_forward() {
                        Ok(next) => status = next,
                        _ => return,
                    }
                }
            }
        }
        let tracing = self.tracing;
        self.step(Op::End { tracing });
    }

    /// Follows the control flow to the border or to an error.
    fn follow(&mut self, spaces: &mut Spaces<'_>, mut status: Status) -> Result<(), PtError> {
        loop {
            while status.event_pending() {
                let (event, next) = self.decoder.event()?;
                self.now(event.tsc());
                if let EventType::AsnycDisabled(e) = event.event_type()
                    && self.decoder.offset().is_ok_and(|at| at > self.limit)
                {
                    self.arrive(e.at(), spaces);
                    return Ok(());
                }
                self.event(&event, spaces);
                status = next;
            }
            let (block, next) = self.decoder.decode_next()?;
            if block.ninsn() > 0 {
                self.block(&block, spaces);
            }
            status = next;
        }
    }

    fn now(&mut self, tsc: Option<u64>) {
        let tsc = tsc.or_else(|| self.time()).unwrap_or(0);
        // The decoder corrects its guess at some packets: time goes on all the same.
        if tsc > self.tsc {
            self.tsc = tsc;
            self.ns = self.setting.clock.ns(tsc);
        }
    }

    /// The decoder's time; `None` before the first TSC packet, which libipt 2.1 says by a counter of all ones.
    fn time(&mut self) -> Option<u64> {
        self.decoder.time().ok().map(|(tsc, ..)| tsc).filter(|tsc| *tsc != u64::MAX)
    }

    fn step(&mut self, op: Op) {
        self.out.steps.push(Step { ns: self.ns, op });
    }

    /// The instructions until now are those of the task until now.
    fn count(&mut self) {
        let n = std::mem::take(&mut self.instructions);
        if n > 0 {
            *self.out.instructions.entry(self.task.1).or_default() += n;
        }
    }

    fn function_at(&self, ip: u64, spaces: &mut Spaces<'_>) -> Range<u64> {
        spaces.function(self.space, (self.kernel, self.ns), ip)
    }

    fn lost(&mut self, error: PtError) {
        let gap = if error.code() == PtErrorCode::Nomap { Gap::NoCode } else { Gap::Damaged };
        *self.out.errors.entry(error.msg()).or_default() += 1;
        self.now(None);
        self.step(Op::Gap(gap));
        (self.last, self.tracing) = (None, false);
    }

    fn block(&mut self, block: &Block, spaces: &mut Spaces<'_>) {
        let (ip, end) = (block.ip(), block.end_ip());
        self.arrive(ip, spaces);
        if !self.function.contains(&end) {
            // It jumped on the way.
            self.function = self.function_at(end, spaces);
            self.step(Op::Jump { to: end });
        }
        self.instructions += u64::from(block.ninsn());
        let class = match class_of(block) {
            Some(class) => class,
            None => self.indirect(end, spaces),
        };
        self.last = Some((class, end));
        self.now(None);
    }

    /// What an instruction is that libipt only calls indirect: a near jump, or one of those between user space and kernel.
    fn indirect(&self, ip: u64, spaces: &mut Spaces<'_>) -> Class {
        let Some(space) = self.space else { return Class::Jump };
        if let Some(class) = spaces.all[space].classes.get(&ip) {
            return *class;
        }
        let bytes = self.setting.memory.find(self.task.0, ip, self.ns).and_then(|region| {
            let path = self.setting.memory.modules[region.module as usize].path.as_deref()?;
            let mut bytes = [0; 4];
            let file = std::fs::File::open(path).ok()?;
            std::os::unix::fs::FileExt::read_at(&file, &mut bytes, region.at + (ip - region.start)).ok()?;
            Some(bytes)
        });
        let class = match bytes.unwrap_or_default() {
            [0x0f, 0x05 | 0x34, ..] => Class::FarCall,
            // SYSRET, SYSEXIT, IRET, and ERETU of FRED.
            [0x0f, 0x07 | 0x35, ..] | [0x48, 0x0f, 0x07 | 0x35, _] | [0xcf, ..] | [0x48, 0xcf, ..] => Class::FarReturn,
            [0xf2 | 0xf3, 0x0f, 0x01, 0xca] => Class::FarReturn,
            [0xcc | 0xcd, ..] => Class::FarCall,
            _ => Class::Jump,
        };
        spaces.all[space].classes.insert(ip, class);
        class
    }

    /// Control flow goes on at `ip`.
    fn arrive(&mut self, ip: u64, spaces: &mut Spaces<'_>) {
        if !self.tracing {
            self.tracing = true;
            let op = if self.started { Op::On { ip } } else { Op::Start { ip } };
            self.started = true;
            self.function = self.function_at(ip, spaces);
            return self.step(op);
        }
        let Some((class, from)) = self.last.take() else {
            if !self.function.contains(&ip) {
                self.function = self.function_at(ip, spaces);
                self.step(Op::Jump { to: ip });
            }
            return;
        };
        let op = match class {
            Class::Call => Op::Call { from, to: ip },
            Class::Return => Op::Return { from, to: ip },
            Class::FarCall => Op::Enter { from, to: ip },
            Class::FarReturn => Op::Leave { to: ip },
            _ if self.function.contains(&ip) => return,
            _ => Op::Jump { to: ip },
        };
        if from >= KERNEL_HALF && ip < KERNEL_HALF {
            // Where the trace shows its switches, those are not guessed from time, which may be late behind an idle core.
            self.turn(spaces, if self.shows_switches() { LATEST_SWITCH } else { 0 });
        }
        self.function = self.function_at(ip, spaces);
        self.step(op);
        if self.shows_switches() && Some(ip) == self.setting.memory.switch_ip {
            self.switches_here(spaces);
        }
    }

    fn shows_switches(&self) -> bool {
        self.setting.info.kernel && self.setting.memory.switch_ip.is_some()
    }

    /// The kernel switches tasks here: what runs from here on is the next one's. Its memory is looked into from here on: where the kernel
    /// returns to user space, the decoder needs it before it says that it is there.
    fn switches_here(&mut self, spaces: &mut Spaces<'_>) {
        let now = self.setting.clock.ns(self.tsc);
        let near = |s: &&Switch| s.time_ns <= now.saturating_add(LATEST_SWITCH);
        if let Some(switch) = self.setting.switches.get(self.next_switch).filter(near) {
            self.next_switch += 1;
            self.count();
            self.task = (switch.pid, switch.tid);
            self.look_into(spaces, now);
        }
    }

    fn event(&mut self, event: &Event, spaces: &mut Spaces<'_>) {
        if event.status_update() {
            // The first thing that has a time behind a synchronisation point.
            if !self.tracing {
                self.turn(spaces, 0);
            }
            return;
        }
        match event.event_type() {
            EventType::Enabled(e) => {
                self.turn(spaces, 0);
                (self.last, self.tracing, self.started) = (None, true, true);
                self.function = self.function_at(e.ip(), spaces);
                self.step(Op::On { ip: e.ip() });
            }
            EventType::Disabled(_) => self.off(),
            EventType::AsnycDisabled(e) => {
                self.arrive(e.at(), spaces);
                self.off();
            }
            EventType::AsyncBranch(e) => {
                self.arrive(e.from(), spaces);
                self.last = None;
                self.function = self.function_at(e.to(), spaces);
                self.step(Op::Interrupt { from: e.from(), to: e.to() });
            }
            EventType::Overflow(_) => {
                self.step(Op::Gap(Gap::Overflow));
                (self.last, self.tracing, self.started) = (None, false, true);
            }
            _ => {}
        }
    }

    fn off(&mut self) {
        let from = self.last.take().map_or(0, |(_, from)| from);
        self.tracing = false;
        self.started = true;
        self.step(Op::Off { from });
    }

    /// Whoever has the core by now, of the switches that were at least so many ns ago: its memory is looked into.
    fn turn(&mut self, spaces: &mut Spaces<'_>, ago: u64) {
        let tsc = self.tsc.max(self.time().unwrap_or(0));
        let now = self.setting.clock.ns(tsc);
        let switches = self.setting.switches;
        // The first time: those of before are many, where this piece is far behind the beginning.
        let first =
            if self.space.is_none() { switches.partition_point(|s| s.time_ns <= now).saturating_sub(1) } else { 0 };
        self.next_switch = self.next_switch.max(first);
        while let Some(switch) = switches.get(self.next_switch).filter(|s| s.time_ns.saturating_add(ago) <= now) {
            self.next_switch += 1;
            if self.task.1 != switch.tid {
                self.count();
            }
            self.task = (switch.pid, switch.tid);
        }
        self.look_into(spaces, now);
    }

    /// The task's memory is looked into.
    fn look_into(&mut self, spaces: &mut Spaces<'_>, now: u64) {
        self.kernel = self.setting.memory.kernel_version(now);
        let Ok(space) = spaces.of(self.task.0, now) else { return };
        if self.space.replace(space) != Some(space) {
            // SAFETY: the image lives as long as `spaces`, which outlives the decoder; the decoder has no other reference to it
            // that it uses: the one before is replaced.
            let _ = self.decoder.set_image(Some(unsafe { &mut *spaces.all[space].image.as_ptr() }));
        }
    }
}
