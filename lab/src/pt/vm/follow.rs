//! From the emulator's log to packets: each virtual processor is followed from instruction to instruction.
//!
//! In: a [`Log`], and what is known of the guest. Out: [`Whole`]: packets, context switches, and what a decoder must find. Every step must
//! be one that the instruction before it can make, or an interrupt whose frame lies on the stack and says where it interrupted: anything
//! else is an error. Time is the guest's time-stamp counter where a processor read it; in between, a tick for each instruction of any of
//! them, which is how the emulator makes that counter (`-icount shift=0`).

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::super::encode::{Cpu, Generator, Style, Switch, Transfer, Truth};
use super::super::flow::Kind;
use super::image::Guest;
use super::log::{Instruction, Line, Log, Task};
use super::wrong;
use crate::Result;

/// The kernel writes perf's two records of a switch before and after the switch itself; these are the distances, ticks.
const TOLD: u64 = 100;
/// A processor that was idle for so many ticks writes the time again.
const IDLE: u64 = 20_000;

/// A thread, as the log names it: an idle one by its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread {
    /// Its number, 0: idle.
    pub tid: u32,
    /// The processor, where it is idle.
    pub cpu: usize,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tid {
            0 => write!(f, "0/{}", self.cpu),
            tid => write!(f, "{tid}"),
        }
    }
}

/// Everything that goes into the recording.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    /// Packets by virtual processor.
    pub cpus: Vec<Cpu>,
    /// In order of time.
    pub switches: Vec<Switch>,
    /// Who ran as the trace begins, by processor.
    pub first: Vec<Task>,
    /// By thread.
    pub truth: BTreeMap<Thread, Truth>,
    /// Processes, by thread.
    pub processes: BTreeMap<u32, u32>,
    /// First and last tick.
    pub ticks: (u64, u64),
    /// Pages of user space that ran: process and address.
    pub ran: BTreeSet<(u32, u64)>,
    /// Interrupts and exceptions.
    pub interrupts: u64,
    /// System calls.
    pub system_calls: u64,
}

/// A virtual processor.
struct Processor<'a> {
    number: usize,
    packets: Generator<'a>,
    /// The instruction that began last: the next one shows whether it ended.
    last: Option<Instruction>,
    task: Task,
    /// Where the interrupt came whose frame lies on the stack.
    frame: Option<u64>,
    switch: (Option<(Task, bool)>, Option<Task>),
}

/// Follows every processor.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io): a step that cannot be.
pub fn follow(log: &Log, guest: &Guest, style: &Style) -> Result<Whole> {
    let cpus = log.lines.iter().map(|(cpu, _)| cpu + 1).max().unwrap_or(0);
    let begin = log
        .lines
        .iter()
        .find_map(|(_, line)| if let Line::Tsc { tsc } = line { Some(*tsc) } else { None })
        .unwrap_or(0);
    let mut out = Whole { ticks: (begin, begin), first: firsts(log, cpus), ..Whole::default() };
    let processor = |number: usize| Processor {
        number,
        packets: Generator::new(style),
        last: None,
        task: out.first[number],
        frame: None,
        switch: (None, None),
    };
    let mut processors: Vec<Processor<'_>> = (0..cpus).map(processor).collect();
    let mut decoded: HashMap<(u32, u64), Vec<Instruction>> = HashMap::new();
    out.ticks.1 += TOLD * 2;
    for (cpu, line) in &log.lines {
        let processor = &mut processors[*cpu];
        match *line {
            Line::Frame { ip } => processor.frame = Some(ip),
            Line::Leaves { task, preempted } => processor.switch.0 = Some((task, preempted)),
            Line::Comes { task } => processor.switch.1 = Some(task),
            Line::Begin { .. } | Line::End => {}
            Line::Tsc { tsc } => out.ticks.1 = out.ticks.1.max(tsc),
            Line::Block { ip, block, last } => {
                if let Entry::Vacant(new) = decoded.entry((block, ip)) {
                    new.insert(instructions(log, block, ip)?);
                }
                let instructions = &decoded[&(block, ip)];
                let ran = instructions
                    .get(..=usize::from(last))
                    .ok_or_else(|| wrong(format!("block {block} is shorter than {last}")))?;
                for instruction in ran {
                    processor.arrive(instruction, guest, &mut out)?;
                }
            }
        }
    }
    for processor in &mut processors {
        // It is not known whether the last instruction ended: tracing ends before it.
        if let Some(last) = processor.last.take() {
            processor.packets.interrupt(last.ip, out.ticks.1);
        }
    }
    out.cpus = processors.into_iter().map(|p| p.packets.finish()).collect();
    out.ticks.1 += TOLD;
    Ok(out)
}

/// The thread that runs on each processor when the trace begins: the one that leaves it first, or that made the mark there.
fn firsts(log: &Log, cpus: usize) -> Vec<Task> {
    let first_task = |cpu: usize| {
        let mut lines = log.lines.iter().filter(|(of, _)| *of == cpu).map(|(_, line)| line);
        lines.find_map(|line| match line {
            Line::Begin { task } | Line::Leaves { task, .. } => Some(*task),
            _ => None,
        })
    };
    (0..cpus).map(|cpu| first_task(cpu).unwrap_or_default()).collect()
}

/// The instructions of a block that ran at an address.
fn instructions(log: &Log, block: u32, ip: u64) -> Result<Vec<Instruction>> {
    let instructions = log.blocks.get(&block).ok_or_else(|| wrong(format!("block {block} is not known")))?;
    let first = instructions.first().map_or(ip, |(at, ..)| *at);
    // The same page may be mapped at several addresses.
    if first & 0xfff != ip & 0xfff {
        return Err(wrong(format!("block {block}, made at {first:#x}, ran at {ip:#x}")));
    }
    instructions
        .iter()
        .map(|(at, len, code)| Instruction::of(at.wrapping_sub(first).wrapping_add(ip), *code, *len))
        .collect()
}

impl Processor<'_> {
    /// An instruction begins.
    fn arrive(&mut self, at: &Instruction, guest: &Guest, out: &mut Whole) -> Result<()> {
        let frame = self.frame.take();
        match self.last {
            None => self.packets.enable(at.ip, out.ticks.1),
            // The next part of it, which the emulator counts as an instruction.
            Some(last) if last.ip == at.ip && last.repeats => {
                out.ticks.1 += 1;
                return Ok(());
            }
            Some(last) if !last.leads_to(at.ip) || guest.is_handler(at.ip) => {
                let from = frame.ok_or_else(|| {
                    wrong(format!(
                        "{:#x} ({:?}) is followed by {:#x}, and no interrupt says why",
                        last.ip, last.kind, at.ip
                    ))
                })?;
                if from != last.ip {
                    if !last.leads_to(from) {
                        return Err(wrong(format!(
                            "{:#x} was interrupted at {from:#x}, where it does not lead",
                            last.ip
                        )));
                    }
                    self.ended(&last, from, out);
                }
                out.interrupts += 1;
                self.packets.handler(from, at.ip, out.ticks.1);
            }
            Some(last) => {
                self.ended(&last, at.ip, out);
                // Not between a branch and the switch that it leads to: decoders find the switch by that branch.
                if self.switch.0.is_none() {
                    self.packets.psb_if_due(at.ip, out.ticks.1);
                }
            }
        }
        guest.check(self.task.pid, at)?;
        if at.ip >> 63 == 0 {
            out.ran.insert((self.task.pid, at.ip & !0xfff));
            out.ran.insert((self.task.pid, (at.behind() - 1) & !0xfff));
        }
        if let (Some((from, preempted)), Some(to)) = std::mem::take(&mut self.switch) {
            self.switches(from, to, preempted, out)?;
        }
        self.last = Some(*at);
        Ok(())
    }

    /// An instruction ended, and control flow goes on.
    fn ended(&mut self, of: &Instruction, next: u64, out: &mut Whole) {
        out.ticks.1 += 1;
        let tick = out.ticks.1;
        self.packets.after_idle(tick, IDLE);
        let thread = Thread { tid: self.task.tid, cpu: if self.task.tid == 0 { self.number } else { 0 } };
        out.processes.insert(self.task.tid, self.task.pid);
        let truth = out.truth.entry(thread).or_default();
        truth.instructions += 1;
        if of.kind.calls() || of.kind == Kind::Return {
            truth.transfers.push(Transfer { call: of.kind.calls(), from: of.ip, to: next });
        }
        match of.kind {
            // Both sides of a system call are traced.
            Kind::SystemCall | Kind::FarReturn => self.packets.tip(next, tick),
            kind => self.packets.instruction(kind, of.behind(), next, tick),
        }
        out.system_calls += u64::from(of.kind == Kind::SystemCall);
    }

    fn switches(&mut self, from: Task, to: Task, preempted: bool, out: &mut Whole) -> Result<()> {
        if from != self.task {
            return Err(wrong(format!("{from:?} leaves processor {}, but {:?} had it", self.number, self.task)));
        }
        out.switches.push(Switch { tick: out.ticks.1, cpu: self.number, from: from.tid, to: to.tid, preempted });
        out.processes.insert(to.tid, to.pid);
        self.task = to;
        Ok(())
    }
}

impl Whole {
    /// When perf is told that a task leaves, and that the next one comes, ticks.
    pub fn told(switch: &Switch) -> (u64, u64) {
        (switch.tick - TOLD, switch.tick + TOLD)
    }
}
