//! From control flow to nested spans: which function was entered and left when, by thread.
//!
//! In: [`Step`]s of each core in order of time, and the context switches. Out: [`Event`]s. A thread keeps its stack while others have
//! the core, and takes it along to another. What is not known is a gap: spans that were open end where it begins, and none is
//! carried over it.

use rustc_hash::FxHashMap;

use crate::decode::{Gap, Op, Step};
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

/// Why a function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A call was seen.
    Call,
    /// It was running when this began to be known.
    Known,
    /// An interrupt or an exception.
    Interrupt,
    /// A system call.
    SystemCall,
}

/// What happened on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A function was entered: its number in [`Names`].
    Enter(u32, Entry),
    /// The innermost function that is open ended: its number.
    Leave(u32),
    /// Another task runs; `preempted`: the one before would have run on.
    Switch {
        /// Process.
        pid: u32,
        /// Whether the task before was preempted.
        preempted: bool,
    },
    /// Nothing is known from here on.
    Gap(Gap),
    /// Something is known again.
    Resumed,
    /// What runs is not traced (the kernel, when user space only is).
    Off,
    /// It is again.
    On,
}

/// An event of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// perf's time, ns.
    pub ns: u64,
    /// The core; `u32::MAX`: not known.
    pub cpu: u32,
    /// The thread that has it.
    pub tid: u32,
    /// Of a function that is entered or left: whether it is the kernel's.
    pub kernel: bool,
    /// What happened.
    pub what: What,
}

/// A near call or return, as the processor made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The core.
    pub cpu: u32,
    /// The thread.
    pub tid: u32,
    /// A call, else a return.
    pub call: bool,
    /// The instruction.
    pub from: u64,
    /// Where it went.
    pub to: u64,
}

/// Functions by number.
#[derive(Debug, Default)]
pub struct Names {
    numbers: FxHashMap<(u32, u64), u32>,
    /// Module ([`u32::MAX`]: none) and place of each.
    pub places: Vec<(u32, u64)>,
}

impl Names {
    fn number(&mut self, module: u32, place: u64) -> u32 {
        let places = &mut self.places;
        *self.numbers.entry((module, place)).or_insert_with(|| {
            places.push((module, place));
            places.len() as u32 - 1
        })
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Near calls by thread.
    pub calls: FxHashMap<u32, u64>,
    /// Near returns by thread.
    pub returns: FxHashMap<u32, u64>,
    /// Spans: functions entered.
    pub spans: u64,
    /// Of them in code without a symbol.
    pub unnamed: u64,
    /// Returns that no open call belongs to.
    pub strays: u64,
    /// Gaps by reason: how many, and ns in all.
    pub gaps: FxHashMap<Gap, (u64, u64)>,
    /// Steps of time while tracing: [`Granularity`].
    pub granularity: Granularity,
}

/// How finely time is known: the steps that it took between two steps of control flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// By length: up to 1,023 ns each its own, then by powers of two.
    counts: Vec<u64>,
    /// Steps of control flow that share their time with the one before.
    pub same: u64,
}

impl Default for Granularity {
    fn default() -> Granularity {
        Granularity { counts: vec![0; 1024 + 64], same: 0 }
    }
}

impl Granularity {
    fn add(&mut self, ns: u64) {
        match ns {
            0 => self.same += 1,
            1..1024 => self.counts[ns as usize] += 1,
            _ => self.counts[1024 + ns.ilog2() as usize] += 1,
        }
    }

    /// A quantile of the steps that are not 0, ns; beyond 1,023 ns the power of two above it. `None` without steps.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let all: u64 = self.counts.iter().sum();
        let rank = ((all as f64 * q).ceil() as u64).clamp(1, all.max(1));
        let mut before = 0;
        let at = self.counts.iter().position(|n| {
            before += n;
            before >= rank && all > 0
        })?;
        Some(if at < 1024 { at as u64 } else { 1 << (at - 1024 + 1).min(63) })
    }
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    function: u32,
    entry: Entry,
    /// The call instruction, or the one that was interrupted; 0 when not known.
    from: u64,
}

/// A core.
#[derive(Debug, Default)]
pub struct Core {
    number: u32,
    pid: u32,
    tid: u32,
    next_switch: usize,
    /// The last piece ended, and control flow goes on in the next one.
    goes_on: bool,
    /// Since when nothing is known, and why.
    gap: Option<(u64, Gap)>,
    on: bool,
    last_ns: u64,
    /// The time of the last step of control flow, while it goes on.
    stepped: Option<u64>,
    /// The trace shows where a context switch takes place.
    shows_switches: bool,
    /// The stack of the thread that has it, once it is looked up.
    stack: Option<usize>,
    /// What is mapped in the process that has it, by a number of its own, and until when it is that.
    space: Option<(u32, u64)>,
    /// Near calls and returns of the thread that has it, not counted yet.
    calls: u64,
    returns: u64,
}

impl Core {
    /// A core of which nothing is known; of a thread's trace, that thread.
    pub fn new(cpu: Option<u32>, only: Option<(u32, u32)>) -> Core {
        let (pid, tid) = only.unwrap_or((0, 0));
        Core { number: cpu.unwrap_or(u32::MAX), pid, tid, ..Core::default() }
    }

    /// The same, of a trace that shows where context switches take place, or does not.
    pub fn shows_switches(self, shows_switches: bool) -> Core {
        Core { shows_switches, ..self }
    }

    /// When a switch takes place at the latest.
    fn latest(&self, switch: &Switch) -> u64 {
        let waits = self.shows_switches && self.on && self.gap.is_none();
        switch.time_ns.saturating_add(if waits { LATEST_SWITCH } else { 0 })
    }

    /// A time as this core takes it: it does not go back.
    pub fn not_before(&self, ns: u64) -> u64 {
        ns.max(self.last_ns)
    }

    /// Other cores have gone on to this time already: what is still to come on this one does not come before it.
    pub fn hold(&mut self, ns: u64) {
        self.last_ns = self.last_ns.max(ns);
    }

    /// When the next context switch is; where the trace shows it, at the latest.
    pub fn next_switch(&self, switches: &[Switch]) -> Option<u64> {
        switches.get(self.next_switch).map(|s| self.latest(s))
    }
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

/// Stands for the kernel where a process is told by its number.
const KERNEL: u32 = u32::MAX;

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
    fn stack(&mut self, core: &mut Core) -> usize {
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
    fn count(&mut self, core: &mut Core) {
        let (calls, returns) = (std::mem::take(&mut core.calls), std::mem::take(&mut core.returns));
        if calls > 0 {
            *self.counts.calls.entry(core.tid).or_default() += calls;
        }
        if returns > 0 {
            *self.counts.returns.entry(core.tid).or_default() += returns;
        }
    }

    /// Context switches of a core up to a time.
    pub fn switch(&mut self, core: &mut Core, switches: &[Switch], ns: u64) {
        while let Some(switch) = switches.get(core.next_switch).filter(|s| core.latest(s) <= ns) {
            let at = core.latest(switch).max(core.last_ns);
            self.comes(core, switch, at);
        }
    }

    /// The core is where the kernel switches tasks: whoever comes next has it from here on.
    fn switches_here(&mut self, core: &mut Core, switches: &[Switch], ns: u64) {
        let near = |s: &&Switch| s.time_ns <= ns.saturating_add(LATEST_SWITCH);
        if let Some(switch) = switches.get(core.next_switch).filter(near) {
            self.comes(core, switch, ns);
        }
    }

    fn comes(&mut self, core: &mut Core, switch: &Switch, at: u64) {
        core.next_switch += 1;
        if switch.tid == core.tid && core.next_switch > 1 {
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
    pub fn step(&mut self, core: &mut Core, switches: &[Switch], ns: u64, step: &Step) {
        self.switch(core, switches, ns);
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
                let told = std::mem::take(&mut core.goes_on) && core.gap.is_none();
                self.known(core, ns);
                if !told {
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
                    self.switches_here(core, switches, ns);
                }
            }
        }
    }

    /// Nothing is known from `ns` on: what was open ends.
    pub fn gap(&mut self, core: &mut Core, ns: u64, why: Gap) {
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
    pub fn finish(&mut self, core: &mut Core, switches: &[Switch]) {
        self.switch(core, switches, u64::MAX);
        let ns = core.last_ns;
        if let Some((since, why)) = core.gap.take() {
            self.counts.gaps.entry(why).or_default().1 += ns.saturating_sub(since);
        }
        self.unwind(core, ns, 0);
        self.count(core);
    }

    /// Control flow is known at `ns`.
    fn known(&mut self, core: &mut Core, ns: u64) {
        if let Some((since, why)) = core.gap.take() {
            self.counts.gaps.entry(why).or_default().1 += ns.saturating_sub(since);
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

    fn flow(&mut self, core: &mut Core, ns: u64, op: Op) {
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

    fn transfer(&mut self, core: &Core, call: bool, from: u64, to: u64) {
        if let Some(transfers) = &mut self.transfers {
            transfers.push(Transfer { cpu: core.number, tid: core.tid, call, from, to });
        }
    }

    fn push(&mut self, core: &mut Core, ns: u64, ip: u64, entry: Entry, from: u64) {
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
    fn pop(&mut self, core: &mut Core, ns: u64, to: u64) {
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
        let known = stack.last().is_some_and(|f| f.entry == Entry::Known);
        if known {
            let keep = stack.len() - 1;
            self.unwind(core, ns, keep);
            return self.sync(core, ns, to, Entry::Known);
        }
        self.counts.strays += u64::from(!stack.is_empty());
        // A return that is a jump: a thunk of the kernel, a switch of stacks.
        self.tail(core, ns, to);
    }

    /// Control flow is in another function without a call: that one is on the stack, or it takes the innermost one's place.
    fn tail(&mut self, core: &mut Core, ns: u64, ip: u64) {
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
    fn leave(&mut self, core: &mut Core, ns: u64, to: u64) {
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
    fn sync(&mut self, core: &mut Core, ns: u64, ip: u64, entry: Entry) {
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

    fn unwind(&mut self, core: &mut Core, ns: u64, keep: usize) {
        let number = self.stack(core);
        while self.stacks[number].len() > keep {
            if let Some(frame) = self.stacks[number].pop() {
                self.emit(core, ns, What::Leave(frame.function));
            }
        }
    }

    fn emit(&mut self, core: &mut Core, ns: u64, what: What) {
        core.last_ns = core.last_ns.max(ns);
        let kernel = match what {
            What::Enter(f, _) | What::Leave(f) => self.kernel[f as usize],
            _ => false,
        };
        self.events.push(Event { ns, cpu: core.number, tid: core.tid, kernel, what });
    }

    /// The number of what is mapped for an address.
    fn space(&mut self, core: &mut Core, ns: u64, ip: u64) -> u32 {
        let key = if ip >= KERNEL_HALF {
            (KERNEL, self.memory.kernel_version(ns))
        } else {
            if let Some((space, until)) = core.space
                && ns < until
            {
                return space;
            }
            let (version, until) = self.memory.version_until(core.pid, ns);
            core.space = Some((0, until));
            (core.pid, version)
        };
        let next = self.spaces.len() as u32;
        let space = *self.spaces.entry(key).or_insert(next);
        if let (false, Some((of, _))) = (ip >= KERNEL_HALF, &mut core.space) {
            *of = space;
        }
        space
    }

    /// The number of the function at an address, and whether that is its beginning.
    fn function(&mut self, core: &mut Core, ns: u64, ip: u64) -> (u32, bool) {
        let space = self.space(core, ns, ip);
        if let Some(&found) = self.found.get(&(space, ip)) {
            return found;
        }
        let region = self.memory.find(core.pid, ip, ns);
        let (module, place, at, named) = match region {
            None => (u32::MAX, ip, ip, false),
            Some(region) => {
                let at = region.place(ip);
                let known = self.memory.modules[region.module as usize].symbols.at(at);
                (region.module, known.map_or(at, |f| f.range.start), at, known.is_some())
            }
        };
        let function = self.names.number(module, place);
        if function as usize == self.unnamed.len() {
            self.unnamed.push(!named);
            self.kernel.push(ip >= KERNEL_HALF);
        }
        self.found.insert((space, ip), (function, at == place));
        (function, at == place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Op;

    /// Runs steps of one core; addresses are of no file, so each is a function of its own.
    fn run(ops: &[(u64, Op)]) -> (Vec<(u64, String)>, Counts) {
        let memory = Memory::default();
        let mut stacks = Stacks::new(&memory);
        let switches = [Switch { time_ns: 0, pid: 7, tid: 7, preempted: false }];
        let mut core = Core::new(Some(0), None);
        for (ns, op) in ops {
            stacks.step(&mut core, &switches, *ns, &Step { ns: *ns, op: *op });
        }
        stacks.finish(&mut core, &switches);
        let name = |f: u32| format!("{:x}", stacks.names.places[f as usize].1);
        let text = stacks.events.iter().filter_map(|e| match e.what {
            What::Enter(f, _) => Some((e.ns, format!("+{}", name(f)))),
            What::Leave(f) => Some((e.ns, format!("-{}", name(f)))),
            What::Gap(_) => Some((e.ns, "?".into())),
            _ => None,
        });
        (text.collect(), stacks.counts.clone())
    }

    fn texts(of: &[(u64, &str)]) -> Vec<(u64, String)> {
        of.iter().map(|(ns, text)| (*ns, (*text).to_owned())).collect()
    }

    #[test]
    fn calls_and_returns_nest_and_the_function_that_ran_first_is_known() {
        let (events, counts) = run(&[
            (10, Op::On { ip: 0x100 }),
            (20, Op::Call { from: 0x105, to: 0x200 }),
            (30, Op::Call { from: 0x210, to: 0x300 }),
            (40, Op::Return { from: 0x310, to: 0x215 }),
            // A tail call: 400 returns to where 200 was called.
            (50, Op::Jump { to: 0x400 }),
            (60, Op::Return { from: 0x410, to: 0x10a }),
        ]);
        assert_eq!(
            events,
            texts(&[
                (10, "+100"),
                (20, "+200"),
                (30, "+300"),
                (40, "-300"),
                (50, "-200"),
                (50, "+400"),
                (60, "-400"),
                (60, "-100"),
            ])
        );
        assert_eq!((counts.spans, counts.strays, counts.calls[&7], counts.returns[&7]), (4, 0, 2, 2));
    }

    #[test]
    fn nothing_is_carried_over_a_gap() {
        let (events, counts) = run(&[
            (10, Op::On { ip: 0x100 }),
            (20, Op::Call { from: 0x105, to: 0x200 }),
            (30, Op::Gap(Gap::Overflow)),
            (90, Op::On { ip: 0x200 }),
            (95, Op::Off { from: 0x204 }),
        ]);
        let expected = [(10, "+100"), (20, "+200"), (30, "-200"), (30, "-100"), (30, "?"), (90, "+200"), (95, "-200")];
        assert_eq!(events, texts(&expected));
        assert_eq!(counts.gaps[&Gap::Overflow], (1, 60));
    }

    #[test]
    fn an_interrupt_lies_on_what_it_interrupts_and_its_calls_do_not_return_into_that() {
        let handler = 0xffff_ffff_8100_0000;
        let (events, _) = run(&[
            (10, Op::On { ip: 0x100 }),
            (20, Op::Call { from: 0x105, to: 0x200 }),
            (30, Op::Interrupt { from: 0x200, to: handler }),
            (40, Op::Leave { to: 0x200 }),
            (50, Op::Return { from: 0x205, to: 0x10a }),
        ]);
        let name = format!("{handler:x}");
        let (enter, leave) = (format!("+{name}"), format!("-{name}"));
        assert_eq!(
            events,
            texts(&[(10, "+100"), (20, "+200"), (30, &enter), (40, &leave), (50, "-200"), (50, "-100")])
        );
    }

    #[test]
    fn a_return_beyond_what_is_known_is_into_the_caller() {
        let (events, counts) = run(&[(10, Op::On { ip: 0x100 }), (20, Op::Return { from: 0x108, to: 0x500 })]);
        assert_eq!(events, texts(&[(10, "+100"), (20, "-100"), (20, "+500"), (20, "-500")]));
        assert_eq!(counts.strays, 0);
    }

    #[test]
    fn a_piece_goes_on_where_the_one_before_ended() {
        let (events, _) = run(&[
            (10, Op::On { ip: 0x100 }),
            (20, Op::Call { from: 0x105, to: 0x200 }),
            (20, Op::End { tracing: true }),
            (21, Op::Start { ip: 0x208 }),
            (30, Op::Return { from: 0x210, to: 0x10a }),
        ]);
        assert_eq!(events, texts(&[(10, "+100"), (20, "+200"), (30, "-200"), (30, "-100")]));
    }

    #[test]
    fn the_granularity_is_that_of_time_and_not_of_steps() {
        let mut g = Granularity::default();
        [0, 0, 0, 10, 10, 300, 5000].into_iter().for_each(|ns| g.add(ns));
        assert_eq!((g.same, g.quantile(0.5), g.quantile(0.75), g.quantile(1.0)), (3, Some(10), Some(300), Some(8192)));
        assert_eq!(Granularity::default().quantile(0.5), None);
    }
}
