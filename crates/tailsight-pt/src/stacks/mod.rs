//! From control flow to nested spans: which function was entered and left when, by thread.
//!
//! In: [`Step`]s of each core in order of time, and the context switches. Out: [`Event`]s. A thread keeps its stack while others have
//! the core, and takes it along to another. What is not known is a gap: spans that were open end where it begins, and none is
//! carried over it.

mod cores;
mod counts;
mod events;
mod functions;
#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;

pub use cores::Core;
pub use counts::{Counts, Granularity};
pub use events::{Entry, Event, Transfer, What};
pub use functions::Names;

use crate::decode::{Op, Step};
use crate::gap::Gap;
use crate::memory::{KERNEL_HALF, Memory};
use crate::sideband::Switch;

/// A call instruction is not longer than this: where its return goes is at most so far behind its beginning.
const LONGEST_CALL: u64 = 15;
/// So many frames are looked through for the one that a return belongs to.
const DEEPEST_SEARCH: usize = 64;
/// A stack this deep is taken for a lost return.
const DEEPEST: usize = 1024;
/// perf is told of a context switch a little before and a little behind the place where it takes place. Where the kernel's trace shows
/// that place, it is waited for as long as this, ns.
pub(crate) const LATEST_SWITCH: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
struct Frame {
    function: u32,
    entry: Entry,
    /// The call instruction, or the one that was interrupted; 0 when not known.
    from: u64,
}

/// The stacks of all threads.
#[derive(Debug)]
pub struct Stacks<'a> {
    memory: &'a Memory,
    /// By thread, which of the stacks is its.
    threads: FxHashMap<(u32, u32), usize>,
    stacks: Vec<Vec<Frame>>,
    /// The functions met.
    pub names: Names,
    /// What was counted.
    pub counts: Counts,
    /// Events since they were last taken.
    pub events: Vec<Event>,
    /// Calls and returns since they were last taken, where they are wanted.
    pub transfers: Option<Vec<Transfer>>,
    unnamed: Vec<bool>,
    kernel: Vec<bool>,
    /// Address spaces by number: process and version of what is mapped in it; of the kernel, [`KERNEL`] and its version.
    spaces: FxHashMap<(u32, usize), u32>,
    /// The function at an address of a space, and whether that is its beginning.
    found: FxHashMap<(u32, u64), (u32, bool)>,
}

impl<'a> Stacks<'a> {
    /// Nothing is open.
    pub fn new(memory: &'a Memory) -> Stacks<'a> {
        Stacks {
            memory,
            threads: FxHashMap::default(),
            stacks: Vec::new(),
            names: Names::default(),
            counts: Counts::default(),
            events: Vec::new(),
            transfers: None,
            unnamed: Vec::new(),
            kernel: Vec::new(),
            spaces: FxHashMap::default(),
            found: FxHashMap::default(),
        }
    }

    /// The stack of the thread that has a core. Threads share the idle task's number 0: there is one on each core.
    fn stack(&mut self, core: &mut Core<'_>) -> usize {
        if let Some(stack) = core.stack {
            return stack;
        }
        let key = (core.tid, if core.tid == 0 { core.number } else { 0 });
        let stacks = &mut self.stacks;
        let stack = *self.threads.entry(key).or_insert_with(|| {
            stacks.push(Vec::new());
            stacks.len() - 1
        });
        core.stack = Some(stack);
        stack
    }

    /// Calls and returns until now are those of the thread that has the core until now.
    fn count(&mut self, core: &mut Core<'_>) {
        let (calls, returns) = (std::mem::take(&mut core.calls), std::mem::take(&mut core.returns));
        if calls > 0 {
            *self.counts.calls.entry(core.tid).or_default() += calls;
        }
        if returns > 0 {
            *self.counts.returns.entry(core.tid).or_default() += returns;
        }
    }

    /// Context switches of a core up to a time.
    pub fn switch(&mut self, core: &mut Core<'_>, ns: u64) {
        while let Some(switch) = core.switches.peek().copied().filter(|s| core.latest(s) <= ns) {
            let at = core.latest(&switch).max(core.last_ns);
            self.comes(core, &switch, at);
        }
    }

    /// The core is where the kernel switches tasks: whoever comes next has it from here on.
    fn switches_here(&mut self, core: &mut Core<'_>, ns: u64) {
        let near = |s: &Switch| s.time_ns <= ns.saturating_add(LATEST_SWITCH);
        if let Some(switch) = core.switches.peek().copied().filter(near) {
            self.comes(core, &switch, ns);
        }
    }

    fn comes(&mut self, core: &mut Core<'_>, switch: &Switch, at: u64) {
        let first = core.switches.untouched();
        core.switches.next();
        if switch.tid == core.tid && !first {
            // Nothing new, but other cores may have gone on to this time: what ends on this one does not end before it.
            core.last_ns = core.last_ns.max(at);
            return;
        }
        self.count(core);
        (core.pid, core.tid) = (switch.pid, switch.tid);
        (core.stepped, core.stack, core.space) = (None, None, None);
        let what = What::Switch { pid: switch.pid, preempted: switch.preempted };
        self.emit(core, at, what);
    }

    /// One step of a core's control flow at a time, ns.
    pub fn step(&mut self, core: &mut Core<'_>, ns: u64, step: &Step) {
        self.switch(core, ns);
        let ns = ns.max(core.last_ns);
        // Also of a step that is no event: what is open on this core did not end before it.
        core.last_ns = ns;
        match step.op {
            Op::End { tracing } => core.goes_on = tracing,
            Op::Gap(why) => self.gap(core, ns, why),
            Op::Off { .. } => {
                core.goes_on = false;
                core.stepped = None;
                if core.on {
                    core.on = false;
                    self.emit(core, ns, What::Off);
                }
            }
            Op::On { ip } => {
                core.goes_on = false;
                self.known(core, ns);
                self.sync(core, ns, ip, Entry::Known);
            }
            Op::Start { ip } => {
                // How control flow got here was told by the piece before.
                let goes_on = std::mem::take(&mut core.goes_on) && core.gap.is_none();
                self.known(core, ns);
                if !goes_on {
                    self.sync(core, ns, ip, Entry::Known);
                }
            }
            op => {
                self.known(core, ns);
                self.flow(core, ns, op);
                if let Op::Jump { to } | Op::Call { to, .. } = op
                    && core.shows_switches
                    && Some(to) == self.memory.switch_ip
                {
                    self.switches_here(core, ns);
                }
            }
        }
    }

    /// Nothing is known from `ns` on: what was open ends.
    pub fn gap(&mut self, core: &mut Core<'_>, ns: u64, why: Gap) {
        let ns = ns.max(core.last_ns);
        if core.gap.is_some() {
            return;
        }
        self.unwind(core, ns, 0);
        core.gap = Some((ns, why));
        (core.on, core.goes_on, core.stepped) = (false, false, None);
        self.counts.gaps.entry(why).or_default().0 += 1;
        self.emit(core, ns, What::Gap(why));
    }

    /// The trace ends: every span of this core's thread does.
    pub fn finish(&mut self, core: &mut Core<'_>) {
        self.switch(core, u64::MAX);
        let ns = core.last_ns;
        if let Some((since, why)) = core.gap.take() {
            let gap_ns = &mut self.counts.gaps.entry(why).or_default().1;
            // A damaged time is any.
            *gap_ns = gap_ns.saturating_add(ns.saturating_sub(since));
        }
        self.unwind(core, ns, 0);
        self.count(core);
    }

    /// Control flow is known at `ns`.
    fn known(&mut self, core: &mut Core<'_>, ns: u64) {
        if let Some((since, why)) = core.gap.take() {
            let gap_ns = &mut self.counts.gaps.entry(why).or_default().1;
            // A damaged time is any.
            *gap_ns = gap_ns.saturating_add(ns.saturating_sub(since));
            self.emit(core, ns, What::Resumed);
        } else if !core.on {
            self.emit(core, ns, What::On);
        }
        core.on = true;
        if let Some(before) = core.stepped {
            self.counts.granularity.add(ns - before);
        }
        core.stepped = Some(ns);
    }

    fn flow(&mut self, core: &mut Core<'_>, ns: u64, op: Op) {
        match op {
            Op::Call { from, to } => {
                self.transfer(core, true, from, to);
                core.calls += 1;
                self.push(core, ns, to, Entry::Call, from);
            }
            Op::Return { from, to } => {
                self.transfer(core, false, from, to);
                core.returns += 1;
                self.pop(core, ns, to);
            }
            Op::Jump { to } => self.tail(core, ns, to),
            Op::Interrupt { from, to } => self.push(core, ns, to, Entry::Interrupt, from),
            Op::Enter { from, to } => self.push(core, ns, to, Entry::SystemCall, from),
            Op::Leave { to } => self.leave(core, ns, to),
            _ => {}
        }
    }

    fn transfer(&mut self, core: &Core<'_>, call: bool, from: u64, to: u64) {
        if let Some(transfers) = &mut self.transfers {
            transfers.push(Transfer { cpu: core.number, tid: core.tid, call, from, to });
        }
    }

    fn push(&mut self, core: &mut Core<'_>, ns: u64, ip: u64, entry: Entry, from: u64) {
        let (function, _) = self.function(core, ns, ip);
        let stack = self.stack(core);
        if self.stacks[stack].len() >= DEEPEST {
            self.unwind(core, ns, 0);
        }
        self.stacks[stack].push(Frame { function, entry, from });
        self.counts.spans += 1;
        self.counts.unnamed += u64::from(self.unnamed[function as usize]);
        self.emit(core, ns, What::Enter(function, entry));
    }

    /// A return to `to`.
    fn pop(&mut self, core: &mut Core<'_>, ns: u64, to: u64) {
        let number = self.stack(core);
        let stack = &self.stacks[number];
        let called = |f: &Frame| f.entry == Entry::Call && to > f.from && to - f.from <= LONGEST_CALL;
        // Nearly every time it is the innermost.
        if stack.last().is_some_and(called) {
            let keep = stack.len() - 1;
            return self.unwind(core, ns, keep);
        }
        let limit = stack.len().saturating_sub(DEEPEST_SEARCH);
        // An interrupted function's calls are not an interrupt handler's to return from.
        let border = stack.iter().rposition(|f| matches!(f.entry, Entry::Interrupt | Entry::SystemCall)).unwrap_or(0);
        if let Some(i) = stack[limit.max(border)..].iter().rposition(called) {
            let keep = limit.max(border) + i;
            return self.unwind(core, ns, keep);
        }
        let is_whole = stack.last().is_some_and(|f| f.entry == Entry::Known);
        if is_whole {
            let keep = stack.len() - 1;
            self.unwind(core, ns, keep);
            return self.sync(core, ns, to, Entry::Known);
        }
        self.counts.strays += u64::from(!stack.is_empty());
        // A return that is a jump: a thunk of the kernel, a switch of stacks.
        self.tail(core, ns, to);
    }

    /// Control flow is in another function without a call: that one is on the stack, or it takes the innermost one's place.
    fn tail(&mut self, core: &mut Core<'_>, ns: u64, ip: u64) {
        let (function, starts) = self.function(core, ns, ip);
        let number = self.stack(core);
        let stack = &self.stacks[number];
        let Some(top) = stack.last().copied() else {
            return self.sync(core, ns, ip, Entry::Known);
        };
        if top.function == function {
            return;
        }
        // Back into the middle of a function that was left: what is on top of it ended.
        if !starts && stack.iter().any(|f| f.function == function) {
            return self.sync(core, ns, ip, Entry::Known);
        }
        // A thunk calls itself to change where it returns to.
        let mut keep = stack.len() - 1;
        while keep > 0 && stack[keep].entry == Entry::Call && stack[keep - 1].function == top.function {
            keep -= 1;
        }
        let below = stack[keep];
        self.unwind(core, ns, keep);
        self.push(core, ns, ip, below.entry, below.from);
    }

    /// The return from the kernel or from an interrupt.
    fn leave(&mut self, core: &mut Core<'_>, ns: u64, to: u64) {
        let number = self.stack(core);
        let kernel = to >= KERNEL_HALF;
        let ended = |f: &Frame| match f.entry {
            Entry::Interrupt => kernel == (f.from >= KERNEL_HALF),
            Entry::SystemCall => !kernel,
            _ => false,
        };
        match self.stacks[number].iter().rposition(ended) {
            Some(keep) => self.unwind(core, ns, keep),
            None if !kernel => self.unwind(core, ns, 0),
            None => {}
        }
        self.sync(core, ns, to, Entry::Known);
    }

    /// The innermost function is the one at `ip`: what is on top of it on the stack ends; one that is not there is entered.
    fn sync(&mut self, core: &mut Core<'_>, ns: u64, ip: u64, entry: Entry) {
        let (function, _) = self.function(core, ns, ip);
        let number = self.stack(core);
        match self.stacks[number].iter().rposition(|f| f.function == function) {
            Some(i) => {
                let keep = i + 1;
                self.unwind(core, ns, keep);
            }
            None => self.push(core, ns, ip, entry, 0),
        }
    }

    fn unwind(&mut self, core: &mut Core<'_>, ns: u64, keep: usize) {
        let number = self.stack(core);
        while self.stacks[number].len() > keep {
            if let Some(frame) = self.stacks[number].pop() {
                self.emit(core, ns, What::Leave(frame.function));
            }
        }
    }

    fn emit(&mut self, core: &mut Core<'_>, ns: u64, what: What) {
        core.last_ns = core.last_ns.max(ns);
        let kernel = match what {
            What::Enter(f, _) | What::Leave(f) => self.kernel[f as usize],
            _ => false,
        };
        self.events.push(Event { ns, cpu: core.number, tid: core.tid, kernel, what });
    }
}
