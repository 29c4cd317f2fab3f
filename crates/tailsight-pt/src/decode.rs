//! From a piece of trace to control flow: calls, returns, interrupts, and where nothing is known.
//!
//! In: the bytes of a [`Piece`](crate::index::Piece), the memory that ran, the context switches of the core. Out: [`Op`]s. Packets and
//! instructions are the work of [`blocks`](crate::blocks); which process's memory they look into is decided here.

use std::ops::Range;

use libipt::block::BlockDecoder;
use libipt::enc_dec_builder::{Cpu, EncoderDecoderBuilder, Frequency};
use libipt::error::{PtError, PtErrorCode};
use libipt::insn::Class;
use rustc_hash::FxHashMap;
use tailsight_output::input::{Links, open_regular};

use crate::Error;
use crate::blocks::{Block, Blocks, Cached, Clocks, Happening, Libipt, LibiptEvents, Lost, Packets, TimedHappening};
use crate::gap::Gap;
use crate::index::Piece;
use crate::memory::{KERNEL_HALF, Memory};
use crate::sideband::{TraceInfo, TscClock, Upcoming};
pub use crate::spaces::Spaces;
use crate::stacks::LATEST_SWITCH;

/// No packet is longer, bytes.
const LONGEST_PACKET: u64 = 16;

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
    /// Which decoders could decode it.
    pub by: By,
}

/// Which decoders follow the control flow ([`crate::blocks`]): ours leave to libipt's what occurs rarely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Packets and blocks by ours.
    #[default]
    Ours,
    /// Blocks by ours, packets by libipt's event decoder.
    LibiptPackets,
    /// All by libipt's block decoder: slower.
    Libipt,
}

/// What does not change from piece to piece.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// How the trace was made.
    pub info: &'a TraceInfo,
    /// perf's clock.
    pub clock: TscClock,
    /// A later counter than this is no time: the packet is damaged.
    pub latest_tsc: u64,
    /// What ran.
    pub memory: &'a Memory,
    /// Context switches of the core, from the first on.
    pub switches: Upcoming<'a>,
    /// The thread, where perf recorded by thread: process and thread.
    pub only: Option<(u32, u32)>,
    /// The first decoders to try.
    pub by: By,
}

/// Decodes a piece, of which `bytes` are the trace. From the last packet on, the decoder goes on as far as it needs no more trace, which is
/// further than where control flow is at its border: an interrupt of the tracing is put there for it, as the processor would write it. Where
/// it is cut, an error is none. `spaces` are those of this memory: what one piece found out of the code is known to the next.
/// `steps`: empty, and filled: what it takes of memory is used again.
///
/// # Errors
/// [`Error::Decoder`].
pub fn piece(
    setting: Setting<'_>,
    spaces: &mut Spaces<'_>,
    bytes: &mut Vec<u8>,
    piece: &Piece,
    mut steps: Vec<Step>,
) -> Result<Decoded, Error> {
    let limit = bytes.len() as u64;
    if let Some(ip) = piece.border {
        // FUP with the whole address, TIP.PGD without one.
        bytes.push(0xdd);
        bytes.extend(ip.to_le_bytes());
        bytes.push(0x01);
    }
    let info = setting.info;
    if setting.by == By::Ours
        && let Some(clocks) = Clocks::new(info.mtc_period(), info.tsc_ctc, info.nominal_ratio)
    {
        let blocks = Cached::new(Packets::new(bytes, clocks), setting.latest_tsc);
        match Flow::new(blocks, setting, limit, piece, steps).decode(spaces) {
            (decoded, true) => return Ok(decoded),
            (decoded, false) => steps = emptied(decoded.steps),
        }
    }
    let failed = |e: PtError| Error::Decoder { why: e.msg().to_owned() };
    let (family, model, stepping) = info.cpu;
    let (ctc, tsc) = info.tsc_ctc;
    let builder = EncoderDecoderBuilder::<BlockDecoder<'_>>::new().freq(Frequency::new(
        info.mtc_period(),
        info.nominal_ratio,
        ctc,
        tsc,
    ));
    let builder = if family == 0 { builder } else { builder.cpu(Cpu::intel(family, model, stepping)) };
    // SAFETY: `bytes` is not touched again, and lives until the decoders are dropped, which are declared after it.
    let builder = unsafe { builder.buffer_from_raw(bytes.as_mut_ptr(), bytes.len()) };
    if setting.by != By::Libipt {
        let blocks = Cached::new(LibiptEvents::new(&builder).map_err(failed)?, setting.latest_tsc);
        match Flow::new(blocks, setting, limit, piece, steps).decode(spaces) {
            (decoded, true) => return Ok(Decoded { by: By::LibiptPackets, ..decoded }),
            (decoded, false) => steps = emptied(decoded.steps),
        }
    }
    let blocks = Libipt::new(builder).map_err(failed)?;
    let (decoded, _) = Flow::new(blocks, setting, limit, piece, steps).decode(spaces);
    Ok(Decoded { by: By::Libipt, ..decoded })
}

fn emptied(mut steps: Vec<Step>) -> Vec<Step> {
    steps.clear();
    steps
}

struct Flow<'a, B> {
    blocks: B,
    limit: u64,
    cut: bool,
    until_ns: u64,
    setting: Setting<'a>,
    out: Decoded,
    /// The last block's class and last instruction, while control flow goes on from there.
    last: Option<(Class, u64)>,
    /// The function that runs.
    function: Range<u64>,
    /// The one that control flow came to last.
    coming: Range<u64>,
    /// The piece has told where it begins.
    started: bool,
    /// Control flow is known.
    tracing: bool,
    /// Time was known at some step: the switches are those from there on.
    timed: bool,
    switches: Upcoming<'a>,
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

impl<'a, B: Blocks> Flow<'a, B> {
    fn new(blocks: B, setting: Setting<'a>, limit: u64, piece: &Piece, steps: Vec<Step>) -> Flow<'a, B> {
        Flow {
            blocks,
            limit,
            cut: piece.cut,
            until_ns: piece.until_ns.unwrap_or(u64::MAX),
            setting,
            out: Decoded { steps, ..Decoded::default() },
            last: None,
            function: 0..0,
            coming: 0..0,
            started: false,
            tracing: false,
            timed: false,
            switches: setting.switches,
            task: setting.only.unwrap_or((0, 0)),
            space: None,
            kernel: 0,
            instructions: 0,
            tsc: 0,
            ns: setting.clock.ns(0),
        }
    }

    /// The piece, and whether it is whole; else this decoder cannot ([`Lost::NotHere`]).
    fn decode(mut self, spaces: &mut Spaces<'_>) -> (Decoded, bool) {
        let whole = self.run(spaces).is_some();
        self.count();
        (self.out, whole)
    }

    fn run(&mut self, spaces: &mut Spaces<'_>) -> Option<()> {
        let mut has_event = match self.blocks.synchronise() {
            Ok(told) => told,
            Err(Lost::NotHere) => return None,
            Err(Lost::Because(_)) => return Some(()),
        };
        self.turn(spaces, 0);
        loop {
            match self.follow(spaces, has_event) {
                Ok(()) => break,
                Err(Lost::NotHere) => return None,
                Err(Lost::Because(error)) if error.code() == PtErrorCode::Eos => break,
                Err(_) if self.cut && self.blocks.offset().is_some_and(|at| at + LONGEST_PACKET >= self.limit) => break,
                Err(Lost::Because(error)) => {
                    self.lost(error);
                    has_event = match self.blocks.synchronise() {
                        Ok(has_event) => has_event,
                        Err(Lost::NotHere) => return None,
                        Err(Lost::Because(_)) => return Some(()),
                    };
                }
            }
        }
        let tracing = self.tracing;
        self.step(Op::End { tracing });
        Some(())
    }

    /// Follows the control flow to the border, to the time up to which it is wanted, or to an error.
    fn follow(&mut self, spaces: &mut Spaces<'_>, mut told: bool) -> Result<(), Lost> {
        loop {
            while told {
                let (event, next) = self.blocks.told(spaces)?;
                self.now(event.tsc);
                if let Happening::DisabledAt { ip } = event.what
                    && self.blocks.offset().is_some_and(|at| at > self.limit)
                {
                    self.arrive(ip, spaces);
                    return Ok(());
                }
                self.told(&event, spaces);
                told = next;
            }
            if let Some(ip) = self.blocks.ip()
                && !self.function.contains(&ip)
                && !self.coming.contains(&ip)
            {
                self.coming = self.function_at(ip, spaces);
            }
            let within = match self.blocks.ip() {
                Some(ip) if !self.function.contains(&ip) => &self.coming,
                _ => &self.function,
            };
            let (block, next) = self.blocks.block(spaces, within)?;
            if block.instructions > 0 {
                self.block(&block, spaces);
                if self.ns > self.until_ns {
                    return Ok(());
                }
            }
            told = next;
        }
    }

    fn now(&mut self, tsc: Option<u64>) {
        let tsc = tsc.or_else(|| self.blocks.time()).unwrap_or(0);
        // The decoder corrects its guess at some packets: time goes on all the same.
        if tsc > self.tsc && tsc <= self.setting.latest_tsc {
            self.tsc = tsc;
            self.ns = self.setting.clock.ns(tsc);
        }
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

    fn function_at(&mut self, ip: u64, spaces: &mut Spaces<'_>) -> Range<u64> {
        if self.coming.contains(&ip) {
            return self.coming.clone();
        }
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
        let Block { ip, end, .. } = *block;
        self.arrive(ip, spaces);
        // The block runs on into the next function, or jumped on the way. Each function between is told, wherever the decoder that follows
        // control flow ends its blocks.
        let mut at = ip;
        while at != end && !self.function.contains(&end) {
            let border = self.function.end;
            at = if (ip..=end).contains(&border) { self.begins_behind(at, border, spaces).min(end) } else { end };
            self.function = self.function_at(at, spaces);
            self.step(Op::Jump { to: at });
        }
        self.instructions += block.instructions;
        let class = match block.class {
            Some(class) => class,
            None => self.indirect(end, spaces),
        };
        self.last = Some((class, end));
        self.now(None);
    }

    /// Where the first instruction behind a function's end begins, in code that runs on from `from`: damaged trace may have come into the
    /// middle of one, and the next is not at the next function's beginning.
    fn begins_behind(&self, from: u64, border: u64, spaces: &mut Spaces<'_>) -> u64 {
        let Some(space) = self.space else { return border };
        let (code, layout) = spaces.code(space);
        code.begins_behind(layout, from, border).unwrap_or(border)
    }

    /// What an instruction is that libipt only calls indirect: a near jump, or one of those between user space and kernel.
    fn indirect(&self, ip: u64, spaces: &mut Spaces<'_>) -> Class {
        let Some(space) = self.space else { return Class::Jump };
        if let Some(class) = spaces.classes(space).get(&ip) {
            return *class;
        }
        let bytes = self.setting.memory.find(self.task.0, ip, self.ns).and_then(|region| {
            let path = self.setting.memory.modules[region.module as usize].path.as_deref()?;
            let mut bytes = [0; 4];
            // However large: a few bytes of it are read.
            let (file, _) = open_regular(path, Links::Follow, u64::MAX).ok()?;
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
        spaces.classes(space).insert(ip, class);
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
        if let Some(switch) = self.switches.next_if(|s| s.time_ns <= now.saturating_add(LATEST_SWITCH)) {
            self.count();
            self.task = (switch.pid, switch.tid);
            self.look_into(spaces, now);
        }
    }

    fn told(&mut self, event: &TimedHappening, spaces: &mut Spaces<'_>) {
        if event.status {
            // The first thing that has a time behind a synchronisation point.
            if !self.tracing {
                self.turn(spaces, 0);
            }
            return;
        }
        match event.what {
            Happening::Enabled { ip } => {
                self.turn(spaces, 0);
                (self.last, self.tracing, self.started) = (None, true, true);
                self.function = self.function_at(ip, spaces);
                self.step(Op::On { ip });
            }
            Happening::Disabled => self.off(),
            Happening::DisabledAt { ip } => {
                self.arrive(ip, spaces);
                self.off();
            }
            Happening::Interrupted { from, to } => {
                self.arrive(from, spaces);
                self.last = None;
                self.function = self.function_at(to, spaces);
                self.step(Op::Interrupt { from, to });
            }
            Happening::Overflow => {
                self.step(Op::Gap(Gap::Overflow));
                (self.last, self.tracing, self.started) = (None, false, true);
            }
            Happening::Other => {}
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
        let time = self.blocks.time().filter(|tsc| *tsc <= self.setting.latest_tsc);
        let tsc = self.tsc.max(time.unwrap_or(0));
        let now = self.setting.clock.ns(tsc);
        if !self.timed && tsc > 0 {
            // Those of before are many, where this piece is far behind the beginning.
            self.switches.skip_to(now);
            self.timed = true;
        }
        while let Some(switch) = self.switches.next_if(|s| s.time_ns.saturating_add(ago) <= now) {
            if self.task.1 != switch.tid {
                self.count();
            }
            self.task = (switch.pid, switch.tid);
        }
        self.look_into(spaces, now);
    }

    /// The task's memory is looked into.
    fn look_into(&mut self, spaces: &mut Spaces<'_>, now: u64) {
        let kernel = self.setting.memory.kernel_version(now);
        if kernel != self.kernel {
            (self.kernel, self.coming) = (kernel, 0..0);
        }
        let space = spaces.of(self.task.0, now);
        if self.space.replace(space) != Some(space) {
            self.coming = 0..0;
            self.blocks.look_into(spaces, space);
        }
    }
}
