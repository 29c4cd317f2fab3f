//! From an execution to Intel PT packets, by virtual CPU.
//!
//! In: an [`Execution`]. Out: [`Encoded`]: the trace of each virtual CPU, the context switches, and what a decoder must find. User space
//! only: a system call or an interrupt ends tracing, the next instruction of user space begins it.
//!
//! Packets as in the SDM, volume 3, "Intel Processor Trace", section on packet generation. Time: [`TICKS`] ticks an instruction.

use std::collections::BTreeMap;

use super::flow::{Code, Kind};
use super::step::{CPUS, Ended, Execution, QUANTUM};
use crate::Result;

/// Ticks of the time-stamp counter that each instruction is given.
pub const TICKS: u64 = 3;
/// The counter at the beginning.
const FIRST_TICK: u64 = 1 << 32;
/// Ticks from the end of a slice to the switch, and from that to the next slice.
const TICKS_BETWEEN_SLICES: u64 = 1000;
/// Time-stamp counter ticks of one of the core crystal clock (CPUID 15h: EBX / EAX).
pub const CRYSTAL: u64 = 84;
/// The core-to-bus ratio in the CBR packets, and the base frequency's: the same, so a cycle is a tick.
pub const RATIO: u8 = 20;
/// Most return addresses that the processor keeps in order to compress returns.
const RETURNS: usize = 64;

/// How the trace is made.
#[derive(Clone, Debug)]
pub struct Style {
    /// Cycle counts (CYC), with MTC and TMA: time at every packet. Else TSC packets now and then.
    pub cycles: bool,
    /// Without cycle counts: a TSC packet before each packet that comes so many ticks after the last one; else at every fourth TIP.
    pub tsc_ticks: Option<u64>,
    /// MTC packets: each `2^mtc` ticks of the crystal clock.
    pub mtc: u8,
    /// Whether returns are compressed: one bit for a return to behind its call.
    pub compress_returns: bool,
    /// Bytes between two PSB packets at least.
    pub psb_bytes: usize,
    /// How often the execution is encoded, one copy after the other.
    pub passes: usize,
    /// Instructions after which a thread is interrupted.
    pub quantum: usize,
    /// An overflow (OVF) in the first slice from this one on that has more than 160 instructions: those from the 50th to the 150th are lost.
    pub overflow_in: Option<usize>,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            cycles: false,
            tsc_ticks: None,
            mtc: 3,
            compress_returns: false,
            psb_bytes: 1024,
            passes: 1,
            quantum: QUANTUM,
            overflow_in: None,
        }
    }
}

/// A call or a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// A call, else a return.
    pub call: bool,
    /// The instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
}

/// What a decoder must find of a thread.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Calls and returns in order.
    pub transfers: Vec<Transfer>,
    /// Instructions.
    pub instructions: u64,
}

/// A context switch.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// When, ticks.
    pub tick: u64,
    /// The virtual CPU.
    pub cpu: usize,
    /// The thread that leaves, 0: idle.
    pub from: u32,
    /// The thread that comes.
    pub to: u32,
    /// Whether the one that leaves was preempted: it was still runnable.
    pub preempted: bool,
}

/// The trace of a virtual CPU.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// Packets.
    pub trace: Vec<u8>,
    /// Where in it the time-stamp counter is told: the first byte of seven.
    pub tscs: Vec<usize>,
}

/// Everything that goes into the file.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    /// By virtual CPU.
    pub cpus: Vec<Cpu>,
    /// In order of time.
    pub switches: Vec<Switch>,
    /// By thread.
    pub truth: BTreeMap<u32, Truth>,
    /// First and last tick.
    pub ticks: (u64, u64),
    /// Of each thread, from one system call to the next: thread, first and last tick. A worker's are its rounds.
    pub rounds: Vec<(u32, u64, u64)>,
}

/// One virtual CPU's packet generator.
pub(super) struct Generator<'a> {
    style: &'a Style,
    out: Vec<u8>,
    bits: Vec<bool>,
    last_ip: u64,
    returns: Vec<u64>,
    psb_at: Option<usize>,
    /// The tick of the last cycle count, and of the last MTC packet.
    cycle_tick: u64,
    mtc_told: u64,
    tips: usize,
    tscs: Vec<usize>,
}

/// Encodes an execution.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) when an address that ran is not in the program's code.
pub fn encode(execution: &Execution, code: &Code, style: &Style) -> Result<Encoded> {
    let mut encoder = Encoder::new(code, style);
    for _ in 0..style.passes {
        encoder.pass(execution)?;
    }
    Ok(encoder.finish())
}

/// Encodes executions, one behind the other.
pub struct Encoder<'a> {
    look_up: Box<dyn FnMut(u64) -> Result<(Kind, u64)> + 'a>,
    cpus: Vec<Generator<'a>>,
    style: &'a Style,
    tick: u64,
    begun: BTreeMap<u32, u64>,
    slices: usize,
    /// Whether an overflow was made.
    overflowed: bool,
    out: Encoded,
}

impl<'a> Encoder<'a> {
    /// Nothing is encoded yet.
    pub fn new(code: &'a Code, style: &'a Style) -> Encoder<'a> {
        Encoder {
            look_up: Box::new(code.look_up()),
            cpus: (0..CPUS).map(|_| Generator::new(style)).collect(),
            style,
            tick: FIRST_TICK + TICKS_BETWEEN_SLICES,
            begun: BTreeMap::new(),
            slices: 0,
            overflowed: false,
            out: Encoded { ticks: (FIRST_TICK, FIRST_TICK), ..Encoded::default() },
        }
    }

    /// What was encoded since it was last taken; each core's trace goes on behind it with a synchronisation point.
    pub fn take(&mut self) -> Encoded {
        let mut out = std::mem::replace(&mut self.out, Encoded { ticks: (self.tick, self.tick), ..Encoded::default() });
        out.ticks.1 = self.tick;
        out.cpus = self.cpus.iter_mut().map(Generator::take).collect();
        out
    }

    /// What was encoded since it was last taken.
    pub fn finish(mut self) -> Encoded {
        self.take()
    }

    /// Encodes an execution behind those before.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when it ran what is not the program's code.
    pub fn pass(&mut self, execution: &Execution) -> Result<()> {
        let Encoder { look_up, cpus, tick, begun, out, .. } = self;
        for slice in &execution.slices {
            let n = self.slices;
            self.slices += 1;
            out.switches.push(Switch { tick: *tick, cpu: slice.cpu, from: 0, to: slice.tid, preempted: false });
            *tick += TICKS_BETWEEN_SLICES;
            begun.entry(slice.tid).or_insert(*tick);
            let cpu = &mut cpus[slice.cpu];
            let truth = out.truth.entry(slice.tid).or_default();
            cpu.enable(slice.ips[0], *tick);
            let overflows =
                !self.overflowed && self.style.overflow_in.is_some_and(|from| n >= from) && slice.ips.len() > 160;
            self.overflowed |= overflows;
            let lost = if overflows { 50..150 } else { 0..0 };
            for (i, &ip) in slice.ips.iter().enumerate() {
                *tick += TICKS;
                let (kind, len) = look_up(ip)?;
                if lost.contains(&i) {
                    continue;
                }
                if i == lost.end && i > 0 && !lost.is_empty() {
                    cpu.overflow(ip, *tick);
                }
                truth.instructions += 1;
                let Some(next) = slice.ips.get(i + 1).copied().or(slice.next) else { continue };
                // The last instruction before the interrupt went somewhere, too; that is not told but by where it was interrupted.
                if kind.calls() || kind == Kind::Return {
                    truth.transfers.push(Transfer { call: kind.calls(), from: ip, to: next });
                }
                cpu.instruction(kind, ip + len, next, *tick);
                if i + 1 < slice.ips.len() && !lost.contains(&(i + 1)) {
                    cpu.psb_if_due(next, *tick);
                }
            }
            *tick += TICKS;
            if let (Ended::SystemCall, Some(from)) = (slice.ended, begun.get(&slice.tid)) {
                out.rounds.push((slice.tid, *from, *tick));
                begun.remove(&slice.tid);
            }
            match (slice.ended, slice.next) {
                (Ended::Interrupted, Some(next)) => cpu.interrupt(next, *tick),
                _ => cpu.disable(*tick),
            }
            *tick += TICKS_BETWEEN_SLICES;
            let preempted = slice.ended == Ended::Interrupted;
            out.switches.push(Switch { tick: *tick, cpu: slice.cpu, from: slice.tid, to: 0, preempted });
        }
        Ok(())
    }
}

impl<'a> Generator<'a> {
    pub(super) fn new(style: &'a Style) -> Generator<'a> {
        Generator {
            style,
            out: Vec::new(),
            bits: Vec::new(),
            last_ip: 0,
            returns: Vec::new(),
            psb_at: None,
            cycle_tick: 0,
            mtc_told: 0,
            tips: 0,
            tscs: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Cpu {
        self.take()
    }

    /// The trace until now. What follows begins with a synchronisation point.
    fn take(&mut self) -> Cpu {
        self.flush();
        self.psb_at = None;
        Cpu { trace: std::mem::take(&mut self.out), tscs: std::mem::take(&mut self.tscs) }
    }

    pub(super) fn instruction(&mut self, kind: Kind, behind: u64, next: u64, tick: u64) {
        match kind {
            // What leaves user space ends tracing where only that is traced.
            Kind::Plain | Kind::SystemCall | Kind::FarReturn => {}
            Kind::Conditional => self.bit(next != behind, tick),
            // A call of what is behind it asks for its own address: none that is returned from.
            Kind::Call if next == behind => {}
            Kind::Call => self.remember(behind),
            Kind::IndirectCall => {
                self.remember(behind);
                self.tip(next, tick);
            }
            Kind::IndirectJump => self.tip(next, tick),
            Kind::Return => {
                if self.style.compress_returns && self.returns.pop() == Some(next) {
                    self.bit(true, tick);
                } else {
                    // Decoders do not agree on what is remembered behind a return that goes elsewhere: perf forgets one, libipt none.
                    self.returns.clear();
                    self.tip(next, tick);
                }
            }
        }
    }

    fn remember(&mut self, behind: u64) {
        if self.returns.len() == RETURNS {
            self.returns.remove(0);
        }
        self.returns.push(behind);
    }

    /// Taken or not (TNT): up to six in a packet.
    fn bit(&mut self, taken: bool, tick: u64) {
        if self.bits.is_empty() {
            self.time(tick);
        }
        self.bits.push(taken);
        if self.bits.len() == 6 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.bits.is_empty() {
            let value = self.bits.drain(..).fold(1u8, |v, bit| v << 1 | u8::from(bit));
            self.out.push(value << 1);
        }
    }

    pub(super) fn tip(&mut self, ip: u64, tick: u64) {
        self.flush();
        if !self.style.cycles && self.style.tsc_ticks.is_none() && self.tips.is_multiple_of(4) {
            self.tsc(tick);
        }
        self.tips += 1;
        self.time(tick);
        self.address(0x0d, ip);
    }

    /// An IP packet: the low bytes that differ from the last one.
    fn address(&mut self, opcode: u8, ip: u64) {
        let bytes = ip.to_le_bytes();
        let (form, n) = match ip {
            _ if ip >> 16 == self.last_ip >> 16 => (1, 2),
            _ if ip >> 32 == self.last_ip >> 32 => (2, 4),
            _ => (3, 6),
        };
        self.out.push(opcode | form << 5);
        self.out.extend(&bytes[..n]);
        self.last_ip = ip;
    }

    fn tsc(&mut self, tick: u64) {
        self.flush();
        if self.style.cycles {
            self.cycles(tick);
        }
        self.now(tick);
    }

    /// TSC, and with cycles TMA: the crystal clock, and the ticks since that moved. Cycles count from here.
    fn now(&mut self, tick: u64) {
        self.out.push(0x19);
        self.tscs.push(self.out.len());
        self.out.extend(&tick.to_le_bytes()[..7]);
        self.cycle_tick = tick;
        if self.style.cycles {
            let (crystal, fast) = (tick / CRYSTAL, tick % CRYSTAL);
            self.out.extend([0x02, 0x73, crystal as u8, (crystal >> 8) as u8, 0, fast as u8, (fast >> 8) as u8]);
            self.mtc_told = crystal >> self.style.mtc;
        }
    }

    /// A processor that slept tells the time as it wakes up (TSC); no clock ran in between.
    pub(super) fn after_idle(&mut self, tick: u64, least: u64) {
        if tick.saturating_sub(self.cycle_tick) > least {
            self.flush();
            self.now(tick);
        }
    }

    /// Packets that give the time of the next packet.
    fn time(&mut self, tick: u64) {
        if !self.style.cycles {
            if self.style.tsc_ticks.is_some_and(|n| tick.saturating_sub(self.cycle_tick) >= n) {
                self.now(tick);
            }
            return;
        }
        let period = CRYSTAL << self.style.mtc;
        while (self.mtc_told + 1) * period <= tick {
            self.mtc_told += 1;
            self.cycles(self.mtc_told * period);
            self.out.extend([0x59, self.mtc_told as u8]);
        }
        self.cycles(tick);
    }

    /// CYC: cycles since the last one.
    fn cycles(&mut self, tick: u64) {
        let mut n = tick.saturating_sub(self.cycle_tick);
        self.cycle_tick = self.cycle_tick.max(tick);
        let more = n >> 5 != 0;
        self.out.push(0x03 | u8::from(more) << 2 | (n as u8 & 0x1f) << 3);
        n >>= 5;
        while n != 0 {
            self.out.push((n as u8 & 0x7f) << 1 | u8::from(n >> 7 != 0));
            n >>= 7;
        }
    }

    pub(super) fn psb_if_due(&mut self, ip: u64, tick: u64) {
        if self.psb_at.is_some_and(|at| self.out.len() - at >= self.style.psb_bytes) {
            self.psb(Some(ip), tick);
        }
    }

    /// A synchronisation point with what a decoder must know there.
    fn psb(&mut self, ip: Option<u64>, tick: u64) {
        self.flush();
        self.psb_at = Some(self.out.len());
        self.out.extend([0x02, 0x82].repeat(8));
        self.last_ip = 0;
        self.returns.clear();
        self.now(tick);
        self.out.extend([0x02, 0x03, RATIO, 0x00]);
        // MODE.Exec: 64 bits.
        self.out.extend([0x99, 0x01]);
        if let Some(ip) = ip {
            self.address(0x1d, ip);
        }
        self.out.extend([0x02, 0x23]);
    }

    /// Tracing begins (TIP.PGE).
    pub(super) fn enable(&mut self, ip: u64, tick: u64) {
        if self.psb_at.is_none() {
            self.psb(None, tick);
        }
        self.returns.clear();
        self.flush();
        self.now(tick);
        self.out.extend([0x02, 0x03, RATIO, 0x00]);
        self.out.extend([0x99, 0x01]);
        self.time(tick);
        self.address(0x11, ip);
    }

    /// Tracing ends with the system call (TIP.PGD without an address).
    fn disable(&mut self, tick: u64) {
        self.flush();
        self.time(tick);
        self.out.push(0x01);
    }

    /// An interrupt before `ip` ends tracing: FUP with where it was, TIP.PGD.
    pub(super) fn interrupt(&mut self, ip: u64, tick: u64) {
        self.flush();
        self.time(tick);
        self.address(0x1d, ip);
        self.out.push(0x01);
    }

    /// An interrupt or an exception before `ip`, whose handler is traced, too: FUP with where it was, TIP with the handler.
    pub(super) fn handler(&mut self, ip: u64, handler: u64, tick: u64) {
        self.flush();
        self.time(tick);
        self.address(0x1d, ip);
        self.address(0x0d, handler);
    }

    /// Packets were lost; it goes on at `ip` (OVF, FUP).
    fn overflow(&mut self, ip: u64, tick: u64) {
        self.bits.clear();
        self.returns.clear();
        self.out.extend([0x02, 0xf3]);
        self.last_ip = 0;
        self.tsc(tick);
        self.address(0x1d, ip);
    }
}
