//! Cores and tasks: interrupts, context switches, wake-ups, migrations.

use std::collections::{HashMap, HashSet, VecDeque};

use tailsight_trace::Event;
use tailsight_trace::event::Kind;

use super::network::{Flow, Packet};
use super::server::{Call, Reply};
use super::truth::{Change, Place, Truth, Wake};
use super::{FOREIGN, KSOFTIRQD, Script, Step, TARGET};

/// What interrupted a core's task, innermost last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Softirq(u64),
    Irq(u64),
    Vector(u16),
    Csd,
}

pub const NET_TX: u64 = 2;
pub const NET_RX: u64 = 3;
const TIMER: u64 = 1;

#[derive(Debug, Default)]
pub struct Core {
    pub task: u32,
    pub levels: Vec<Level>,
    pub packets: VecDeque<Packet>,
    /// A datagram that is on the socket's queue while the hand-off is still to be announced.
    pub announce: Option<usize>,
    idle_state: bool,
}

#[derive(Debug)]
pub struct Task {
    pub tid: u32,
    pub place: Place,
    pub last_cpu: u16,
    pub call: Call,
    pub entered: u64,
    /// It has put itself to sleep but still runs.
    pub falling: bool,
    /// Woken while it was falling asleep.
    pub woken: Option<(u64, Wake)>,
}

/// What a core can do next.
#[derive(Clone, Copy, Debug)]
enum Action {
    Interrupt,
    Softirq(u64),
    End,
    Csd,
    Wake,
    Poll,
    Receive,
    Announce,
    Transmit,
    IdleState,
    Switch { sleeps: bool },
    Steal,
    Inject,
    Program,
}

pub struct Machine {
    pub now: u64,
    pub cores: Vec<Core>,
    pub tasks: Vec<Task>,
    pub flows: Vec<Flow>,
    /// Datagrams on the UDP socket's queue.
    pub datagrams: VecDeque<usize>,
    /// Send calls that are due, by task.
    pub due: VecDeque<(usize, Reply)>,
    /// Messages that wait for the rest of their request, by (flow, task).
    pub waiting: HashMap<(usize, usize), Vec<usize>>,
    /// UDP flows on which it is not clear which reply is whose.
    pub tainted: HashSet<usize>,
    pub early_hooks: bool,
    pub bridge: bool,
    scale: u64,
    pub events: Vec<Vec<Event>>,
    pub truth: Truth,
    pub threads: usize,
}

impl Machine {
    pub fn new(script: &Script) -> Machine {
        let cores = usize::from(script.cores);
        let mut machine = Machine {
            now: 1000,
            cores: (0..cores).map(|_| Core::default()).collect(),
            tasks: Vec::new(),
            flows: script.flows.iter().enumerate().map(|(i, p)| Flow::new(i, p, script)).collect(),
            datagrams: VecDeque::new(),
            due: VecDeque::new(),
            waiting: HashMap::new(),
            tainted: HashSet::new(),
            early_hooks: script.early_hooks,
            bridge: script.bridge,
            scale: script.scale,
            events: vec![Vec::new(); cores],
            truth: Truth::default(),
            threads: script.threads as usize,
        };
        machine.truth.tasks = vec![vec![(0, 0)]; cores];
        machine.truth.interrupted = vec![vec![(0, false)]; cores];
        for c in 0..cores {
            machine.emit(c, Kind::CpuIdle, 0, [u64::from(u32::MAX), 0, 0]);
        }
        let targets = (0..script.threads).map(|i| TARGET + i);
        let others = (0..script.others).map(|i| FOREIGN + i);
        let daemons = (0..u32::from(script.cores)).map(|i| KSOFTIRQD + i);
        for (i, tid) in targets.chain(others).chain(daemons).enumerate() {
            let cpu = if tid < TARGET { (tid - KSOFTIRQD) as u16 } else { (i % cores) as u16 };
            let at = machine.emit(usize::from(cpu), Kind::TaskFork, 0, [u64::from(tid) | u64::from(tid) << 32, 0, 0]);
            machine.tasks.push(Task {
                tid,
                place: Place::Ready(cpu),
                last_cpu: cpu,
                call: Call::User,
                entered: 0,
                falling: false,
                woken: None,
            });
            machine.truth.places.insert(tid, vec![Change { at, place: Place::Ready(cpu), wake: None }]);
        }
        machine
    }

    /// Writes an event of a core; every event of the machine has a time of its own.
    pub fn emit(&mut self, c: usize, kind: Kind, aux: u16, [a, b, c_word]: [u64; 3]) -> u64 {
        self.now += 1;
        let ts = self.now;
        let tid = self.cores[c].task;
        self.events[c].push(Event { ts, kind: kind as u8, generation: 0, aux, tid, a, b, c: c_word });
        self.truth.times.push(ts);
        ts
    }

    pub fn index(&self, tid: u32) -> Option<usize> {
        self.tasks.iter().position(|t| t.tid == tid)
    }

    fn moves(&mut self, task: usize, at: u64, place: Place, wake: Option<Wake>) {
        self.tasks[task].place = place;
        if let Place::Running(cpu) | Place::Ready(cpu) = place {
            self.tasks[task].last_cpu = cpu;
        }
        if let Some(list) = self.truth.places.get_mut(&self.tasks[task].tid) {
            list.push(Change { at, place, wake });
        }
    }

    fn ready(&self, c: usize) -> Vec<usize> {
        (0..self.tasks.len()).filter(|&t| self.tasks[t].place == Place::Ready(c as u16)).collect()
    }

    /// One step of the machine.
    pub fn step(&mut self, step: Step) {
        self.now += u64::from(step.dt) * self.scale;
        let c = usize::from(step.core) % self.cores.len();
        let actions = self.actions(c);
        let action = actions[usize::from(step.choice) % actions.len()];
        self.act(c, action, usize::from(step.arg));
    }

    fn actions(&self, c: usize) -> Vec<Action> {
        use Action::*;
        let core = &self.cores[c];
        let mut out = Vec::new();
        match core.levels.last() {
            Some(Level::Softirq(_)) if core.announce.is_some() => return vec![Announce, Interrupt],
            Some(Level::Softirq(NET_RX)) => {
                out.extend([Poll, End, End, Interrupt]);
                if !core.packets.is_empty() {
                    out.extend([Receive; 4]);
                }
            }
            Some(Level::Softirq(_)) => out.extend([Wake, Transmit, End, End, Interrupt]),
            Some(Level::Irq(_)) => out.extend([Wake, End, End]),
            Some(Level::Vector(_)) => out.extend([Wake, Csd, End, End, End]),
            Some(Level::Csd) => out.extend([Wake, End, End]),
            None => {
                out.extend([Interrupt, Softirq(NET_RX), Softirq(NET_RX), Softirq(TIMER), Softirq(NET_TX), Steal]);
                let ready = !self.ready(c).is_empty();
                let task = self.index(core.task).map(|i| &self.tasks[i]);
                match task {
                    None if ready => out.extend([Switch { sleeps: false }; 8]),
                    None => out.push(IdleState),
                    Some(t) if t.tid >= FOREIGN => {
                        out.extend([Switch { sleeps: true }, Switch { sleeps: true }, Wake, Inject, Inject])
                    }
                    Some(t) if t.tid >= TARGET => out.extend([Program; 24]),
                    Some(_) => out.extend([Softirq(NET_RX), Softirq(NET_RX), Switch { sleeps: true }]),
                }
                // A thread that has put itself to sleep leaves its core by its own program.
                if ready && task.is_some_and(|t| !t.falling) {
                    out.push(Switch { sleeps: false });
                }
            }
        }
        out
    }

    fn act(&mut self, c: usize, action: Action, arg: usize) {
        match action {
            Action::Interrupt if arg.is_multiple_of(2) => {
                let irq = 20 + (arg / 2 % 3) as u64;
                self.push(c, Level::Irq(irq), Kind::IrqEntry, 0, irq);
            }
            Action::Interrupt => {
                let which = (arg / 2 % 4) as u16;
                self.push(c, Level::Vector(which), Kind::VectorEntry, which, 0);
            }
            Action::Softirq(vec) => self.push(c, Level::Softirq(vec), Kind::SoftirqEntry, 0, vec),
            Action::Csd => self.push(c, Level::Csd, Kind::CsdEntry, 0, 0),
            Action::End => self.pop(c),
            Action::Wake => {
                let asleep = |t: &Task| t.place == Place::Asleep || t.falling;
                let list: Vec<usize> = (0..self.tasks.len()).filter(|&t| asleep(&self.tasks[t])).collect();
                if let Some(&t) = list.get(arg % list.len().max(1)) {
                    self.wake(c, t, arg / 8);
                }
            }
            Action::Poll => self.poll(c, arg, true),
            Action::Inject => self.poll(c, arg, false),
            Action::Receive => self.receive(c, arg),
            Action::Announce => self.announce(c, arg),
            Action::Transmit => self.transmit_deferred(c, arg),
            Action::IdleState => {
                let leaves = self.cores[c].idle_state;
                let state = if leaves { u64::from(u32::MAX) } else { (arg % 3) as u64 };
                self.cores[c].idle_state = !leaves;
                self.emit(c, Kind::CpuIdle, 0, [state, 0, 0]);
            }
            Action::Switch { sleeps } => self.switch(c, sleeps, arg),
            Action::Steal => {
                let others: Vec<usize> = (0..self.tasks.len())
                    .filter(|&t| matches!(self.tasks[t].place, Place::Ready(q) if usize::from(q) != c))
                    .filter(|&t| self.tasks[t].tid >= TARGET)
                    .collect();
                if let Some(&t) = others.get(arg % others.len().max(1)) {
                    self.migrate(c, t, c as u16);
                }
            }
            Action::Program => self.program(c, arg),
        }
    }

    fn push(&mut self, c: usize, level: Level, kind: Kind, aux: u16, a: u64) {
        let at = self.emit(c, kind, aux, [a, 0, 0]);
        if self.cores[c].levels.is_empty() {
            self.truth.interrupted[c].push((at, true));
        }
        self.cores[c].levels.push(level);
    }

    fn pop(&mut self, c: usize) {
        let at = match self.cores[c].levels.pop() {
            Some(Level::Softirq(vec)) => self.emit(c, Kind::SoftirqExit, 0, [vec, 0, 0]),
            Some(Level::Irq(irq)) => self.emit(c, Kind::IrqExit, 0, [irq, 0, 0]),
            Some(Level::Vector(which)) => self.emit(c, Kind::VectorExit, which, [0, 0, 0]),
            Some(Level::Csd) => self.emit(c, Kind::CsdExit, 0, [0, 0, 0]),
            None => return,
        };
        if self.cores[c].levels.is_empty() {
            self.truth.interrupted[c].push((at, false));
        }
    }

    fn migrate(&mut self, c: usize, t: usize, to: u16) {
        let from = self.tasks[t].last_cpu;
        let tid = u64::from(self.tasks[t].tid);
        let at = self.emit(c, Kind::SchedMigrate, 0, [tid, u64::from(from) | u64::from(to) << 32, 0]);
        self.moves(t, at, Place::Ready(to), None);
    }

    /// Core `c` wakes a task, from its interrupt or from its task.
    pub fn wake(&mut self, c: usize, t: usize, arg: usize) {
        let core = &self.cores[c];
        let wake = Wake { tid: core.task, cpu: c as u16, interrupt: core.task == 0 || !core.levels.is_empty() };
        let (tid, last) = (self.tasks[t].tid, self.tasks[t].last_cpu);
        let can = self.tasks[t].place == Place::Asleep || (self.tasks[t].falling && self.tasks[t].woken.is_none());
        if !can {
            return;
        }
        let at = self.emit(c, Kind::SchedWaking, 0, [u64::from(tid) | u64::from(last) << 32, u64::from(tid), 0]);
        if self.tasks[t].falling {
            self.tasks[t].woken = Some((at, wake));
            return;
        }
        self.moves(t, at, Place::Ready(last), Some(wake));
        let to = (arg / 4 % self.cores.len()) as u16;
        if arg % 4 == 1 && to != last && tid >= TARGET {
            self.migrate(c, t, to);
        }
        let target = u64::from(self.tasks[t].last_cpu);
        if (TARGET..FOREIGN).contains(&tid) {
            self.emit(c, Kind::SchedWakeup, 0, [u64::from(tid) | target << 32, 0, 0]);
        }
    }

    /// The core's task leaves it: asleep, or still ready to run.
    pub fn switch(&mut self, c: usize, sleeps: bool, arg: usize) {
        let ready = self.ready(c);
        let next = ready.get(arg % ready.len().max(1)).copied();
        let (prev, next_tid) = (self.cores[c].task, next.map_or(0, |n| self.tasks[n].tid));
        if prev == 0 && next.is_none() {
            return;
        }
        let state = match (sleeps, arg / 16 % 4) {
            (false, _) => 0,
            (true, 0) => 2,
            (true, _) => 1,
        };
        let preempted = u16::from(!sleeps && prev != 0);
        let words = [u64::from(prev) | u64::from(next_tid) << 32, state | 120 << 32, 0];
        let at = self.emit(c, Kind::SchedSwitch, preempted, words);
        if let Some(p) = self.index(prev) {
            self.moves(p, at, if sleeps { Place::Asleep } else { Place::Ready(c as u16) }, None);
            if sleeps && let Some((_, wake)) = self.tasks[p].woken.take() {
                self.moves(p, at, Place::Ready(c as u16), Some(wake));
            }
            self.tasks[p].falling = false;
        }
        if let Some(n) = next {
            self.moves(n, at, Place::Running(c as u16), None);
        }
        self.cores[c].idle_state = false;
        self.cores[c].task = next_tid;
        self.truth.tasks[c].push((at, next_tid));
    }
}
