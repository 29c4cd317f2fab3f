//! The independent check: is a named cause there in the raw events? In: a run, its `messages.parquet`, named causes. Out: the
//! causes that are not.
//!
//! Nothing of tailsight-lifetime or tailsight-diagnose is used but the stages that `tailsight export` writes for each
//! message, and those are looked up in the raw events too. A cause is there when a message of its evidence has an event
//! of it on a core of the message, between the ends of the leg: for a task, that it had the core; for receive processing
//! and a queue, a packet or a call of *another* message ([`Own`] says which are the message's own).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;

use anyhow::{Context, bail};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use tailsight_trace::event::{NET_RX, SOFTIRQS, VECTORS};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::{Event, FlowKey, Kind, Run, fields};

use super::judge::Named;

/// The vectors that interrupts of other cores come by.
const OF_OTHER_CORES: [&str; 3] = ["reschedule", "call_function", "call_function_single"];
/// Stamps of messages and of events come from the same clock and the same events; a switch may differ by this much, ns.
const SLACK_NS: u64 = 2_000;

/// The result of the check.
#[derive(Debug, Default, PartialEq)]
pub struct CheckReport {
    /// Causes that were checked.
    pub checked: usize,
    /// When programs that are neither the lab's nor its servers used the application's core.
    pub others: Vec<(u64, u64)>,
    /// Switches to a task that are followed by a switch from another one on the same core: something was not recorded.
    pub breaks: usize,
    /// Those that do not occur in any message, as `category name (role): messages without it of all of the evidence`.
    pub absent: Vec<String>,
    /// Those that do not occur in a part of the evidence.
    pub partly: Vec<String>,
}

/// A message of the evidence: where and when.
#[derive(Debug, Clone, Copy, Default)]
struct Message {
    driver_ns: u64,
    recv_ns: Option<u64>,
    /// Every stage that it has, `driver_ns` and `recv_ns` among them; 0: not seen.
    stages: [u64; STAGES.len()],
    bytes: u32,
    from_ns: u64,
    to_ns: u64,
    cores: [u32; 3],
}

/// The columns of a message's stages. Each is the time of an event of its own.
const STAGES: [&str; 6] = ["driver_ns", "stack_ns", "handoff_ns", "recv_ns", "send_ns", "xmit_ns"];

/// Of these, when it was received.
const RECV: usize = 3;

/// Which events are a message's own.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    stages: [u64; STAGES.len()],
    /// Of the packet that it came in: address key, ports, whether it is a datagram, first byte and one past the last.
    packet: Option<(u64, u32, bool, u32, u32)>,
}

impl Own {
    fn of(message: &Message, cores: &[CpuEvents]) -> Self {
        let first = cores.iter().find(|core| core.cpu == message.cores[0]).and_then(|core| {
            let at = core.events.partition_point(|event| event.ts < message.driver_ns);
            let same = core.events[at..].iter().take_while(|event| event.ts == message.driver_ns);
            same.clone().find(|event| event.kind().is_some_and(is_packet))
        });
        let packet = first.map(|event| {
            let fields::Packet { sequence: from, bytes, .. } = fields::Packet::of(event);
            let key = FlowKey::of(event);
            (key.addrs, key.ports, key.is_udp(), from, from.wrapping_add(bytes.max(message.bytes)))
        });
        Self { stages: message.stages, packet }
    }

    /// Whether a packet, a hand-off, a receive or a send call is the message's: it has the time of one of its stages, or is of
    /// its bytes (the packet on another device, a call that read only a part of it).
    fn has(&self, event: &Event) -> bool {
        if self.stages.contains(&event.ts) {
            return true;
        }
        let Some((key, ports, datagram, from, to)) = self.packet else { return false };
        // What is sent on its connection once it was received may be its reply.
        let received = self.stages[RECV];
        let event_key = FlowKey::of(event);
        let is_same = (event_key.addrs, event_key.ports) == (key, ports);
        if event.kind() == Some(Kind::Send) && is_same {
            return received > 0 && event.ts >= received;
        }
        let inside = |at: u32| at.wrapping_sub(from) <= to.wrapping_sub(from);
        // Positions behind the last byte that came, that was read.
        let behind = |at: u32| at != from && inside(at);
        if datagram || !is_same {
            return false;
        }
        match event.kind() {
            Some(Kind::RxNapi | Kind::RxBacklog | Kind::RxStack) => {
                let sequence = fields::Packet::of(event).sequence;
                sequence != to && inside(sequence)
            }
            Some(Kind::Handoff) => behind(fields::Handoff::of(event).rcv_nxt),
            Some(Kind::Recv) => behind(fields::Recv::of(event).copied_seq),
            _ => false,
        }
    }
}

/// A packet on its way up.
fn is_packet(kind: Kind) -> bool {
    matches!(kind, Kind::RxNapi | Kind::RxBacklog | Kind::RxStack)
}

impl Message {
    /// Whether its packet and its receive call are among the raw events.
    fn is_in_events(&self, cores: &[CpuEvents]) -> bool {
        let has = |core: u32, at: u64, kinds: &[Kind]| {
            let Some(core) = cores.iter().find(|cpu| cpu.cpu == core) else { return false };
            let first = core.events.partition_point(|event| event.ts < at);
            core.events[first..]
                .iter()
                .take_while(|event| event.ts == at)
                .any(|event| event.kind().is_some_and(|kind| kinds.contains(&kind)))
        };
        has(self.cores[0], self.driver_ns, &[Kind::RxNapi, Kind::RxBacklog, Kind::RxStack])
            && self.recv_ns.is_none_or(|at| has(self.cores[2], at, &[Kind::Recv]))
    }
}

/// A task's use of a core: [from, to).
type Turns = HashMap<(u32, u32), Vec<(u64, u64)>>;

/// Looks for every named cause that makes messages slower.
pub fn check(run: &Run, cores: &[CpuEvents], causes: &[Named], leg: &str) -> anyhow::Result<CheckReport> {
    let wanted: HashSet<u32> = causes.iter().flat_map(|cause| cause.evidence.iter().copied()).collect();
    let messages = messages(run, leg, &wanted)?;
    let turns = turns(cores);
    let names = names(run, cores);
    let threads = threads(run, cores);
    let mut report = CheckReport { breaks: breaks(cores), ..CheckReport::default() };
    for (id, message) in &messages {
        if !message.is_in_events(cores) {
            report.absent.push(format!("message {id}: no packet and no receive call at its times"));
        }
    }
    for cause in causes.iter().filter(|cause| cause.deviation_ns > 0) {
        let Some(look) = look(&names, &threads, cause) else { continue };
        let is_in_events = |id: &&u32| {
            let message = messages.get(id)?;
            Some(message.cores.iter().any(|core| look.is_in(*core, message, cores, &turns)))
        };
        let missing: Vec<u32> = cause.evidence.iter().filter(|id| is_in_events(id) == Some(false)).copied().collect();
        report.checked += 1;
        if !missing.is_empty() {
            let (category, name, role) = (&cause.category, &cause.name, &cause.role);
            let evidence = cause.evidence.len();
            let list = if missing.len() == evidence { &mut report.absent } else { &mut report.partly };
            list.push(format!("{category} {name} ({role}): not in {} of {evidence} messages", missing.len()));
        }
    }
    Ok(report)
}

/// What is searched for.
enum Look {
    /// One of these threads used the core.
    Tasks(HashSet<u32>),
    /// That the core was idle.
    Idle,
    /// An event that is one of the cause's.
    Event(Box<dyn Fn(&Event) -> bool>),
    /// A packet, a hand-off, or a pass of NET_RX, that is not of this message.
    Packets,
    /// A receive or send call that is not of this message.
    Calls,
}

impl Look {
    /// Whether it is on the core within the message.
    fn is_in(&self, core: u32, message: &Message, cores: &[CpuEvents], turns: &Turns) -> bool {
        let (from, to) = (message.from_ns.saturating_sub(SLACK_NS), message.to_ns + SLACK_NS);
        let ran = |tid: u32| {
            let turns = turns.get(&(core, tid)).map(Vec::as_slice).unwrap_or_default();
            let next = turns.partition_point(|(_, end)| *end <= from);
            turns.get(next).is_some_and(|(begin, _)| *begin < to)
        };
        match self {
            Self::Tasks(tids) => tids.iter().any(|tid| ran(*tid)),
            Self::Idle => ran(0),
            Self::Event(is) => within(cores, core, from, to).iter().any(is),
            Self::Packets => {
                let own = Own::of(message, cores);
                let another = |event: &&Event| {
                    let is_packet_event = event.kind().is_some_and(|kind| is_packet(kind) || kind == Kind::Handoff);
                    is_packet_event && !own.has(event)
                };
                within(cores, core, from, to).iter().any(|event| another(&event))
                    || passes(cores, core, from, to).iter().any(|(begin, end)| {
                        let inside = within(cores, core, *begin, *end);
                        !inside.iter().any(|event| is_of_a_message(event) && own.has(event))
                    })
            }
            Self::Calls => {
                let own = Own::of(message, cores);
                let calls = |event: &&Event| matches!(event.kind(), Some(Kind::Recv | Kind::Send));
                within(cores, core, from, to).iter().filter(calls).any(|event| !own.has(event))
            }
        }
    }
}

/// The events of a core at these times, both ends included.
fn within(cores: &[CpuEvents], core: u32, from: u64, to: u64) -> &[Event] {
    let Some(core) = cores.iter().find(|cpu| cpu.cpu == core) else { return &[] };
    let first = core.events.partition_point(|event| event.ts < from);
    let behind = core.events.partition_point(|event| event.ts <= to);
    &core.events[first..behind.max(first)]
}

/// Whether it is an event that belongs to one message.
fn is_of_a_message(event: &Event) -> bool {
    event.kind().is_some_and(|kind| is_packet(kind) || matches!(kind, Kind::Handoff | Kind::Recv | Kind::Send))
}

/// The passes of NET_RX that begin on a core at these times: each to its end.
fn passes(cores: &[CpuEvents], core: u32, from: u64, to: u64) -> Vec<(u64, u64)> {
    let net_rx = |event: &Event, kind| event.kind() == Some(kind) && fields::Softirq::of(event).vector == NET_RX;
    let begins = within(cores, core, from, to).iter().filter(|event| net_rx(event, Kind::SoftirqEntry));
    let end = |begin: &Event| {
        let rest = within(cores, core, begin.ts, u64::MAX);
        rest.iter().find(|event| net_rx(event, Kind::SoftirqExit)).map_or(begin.ts, |exit| exit.ts)
    };
    begins.map(|begin| (begin.ts, end(begin))).collect()
}

/// How a cause appears in the raw events; `None` if no event of the present recorder could show it.
fn look(names: &Names, threads: &Threads, cause: &Named) -> Option<Look> {
    let (kind, name) = (cause.subject.kind.as_str(), cause.subject.name.as_str());
    let kernel = cause.category == "os-threads";
    Some(match cause.category.as_str() {
        // Hooks leave no event of their own: any event, also one of the message, would show them.
        "profiler" if kind != "task" => return None,
        "interference" | "os-threads" | "profiler" => {
            let name = if kind == "after-migration" { "migration" } else { name };
            // A kernel thread's name goes on with its core (`kworker/0:1`).
            let fits = |comm: &str| comm == name || kernel && !name.is_empty() && comm.starts_with(name);
            let mut tids: HashSet<u32> = names.iter().filter(|(_, comm)| fits(comm)).map(|(tid, _)| *tid).collect();
            // A cause that is a process has the name of its first thread, or its number: any of its threads counts.
            let leads = |tgid: &u32| cause.pids.contains(tgid) || tids.contains(tgid);
            let more: Vec<u32> = threads.iter().filter(|(_, tgid)| leads(tgid)).map(|(tid, _)| *tid).collect();
            tids.extend(more);
            // A task whose name the recording missed is named by its number.
            tids.extend(name.strip_prefix("tid ").and_then(|tid| tid.parse::<u32>().ok()));
            tids.remove(&0);
            Look::Tasks(tids)
        }
        "wakeup-delay" if name == "idle" || cause.frames.iter().any(|kind| kind == "idle-state") => Look::Idle,
        "interrupts" => {
            let frame = &cause.subject.frame;
            let number = |of: &[&str]| of.iter().position(|name| *name == frame.of);
            match (kind, frame.kind.as_str()) {
                // Interrupts of other cores: one of the vectors that bring them.
                ("around-interrupts", _) => Look::Event(Box::new(|event| {
                    let which = |event| VECTORS.get(usize::from(fields::Vector::of(event).vector));
                    event.kind() == Some(Kind::VectorEntry)
                        && which(event).is_some_and(|which| OF_OTHER_CORES.contains(which))
                })),
                (_, "vector") => {
                    let vector = number(VECTORS)?;
                    let is = move |event: &Event| usize::from(fields::Vector::of(event).vector) == vector;
                    Look::Event(Box::new(move |event| event.kind() == Some(Kind::VectorEntry) && is(event)))
                }
                (_, "softirq") => {
                    let softirq = number(SOFTIRQS)?;
                    let is = move |event: &Event| usize::from(fields::Softirq::of(event).vector) == softirq;
                    Look::Event(Box::new(move |event| event.kind() == Some(Kind::SoftirqEntry) && is(event)))
                }
                (_, "irq") => {
                    let irq = frame.of.parse::<u32>().ok()?;
                    let is = move |event: &Event| fields::Handler::of(event).irq == irq;
                    Look::Event(Box::new(move |event| event.kind() == Some(Kind::IrqEntry) && is(event)))
                }
                _ => return None,
            }
        }
        // On the receive core that is the message's own way through the stack (docs/categories.md): no other message's event
        // would show it, and its own events prove nothing.
        "receive-processing" if cause.role == "R" && name == "net_rx" => return None,
        "receive-processing" => Look::Packets,
        "hol-blocking" => Look::Calls,
        "paging" => Look::Event(Box::new(|event| {
            matches!(event.kind(), Some(Kind::FaultUser | Kind::FaultKernel | Kind::MigrateBegin))
        })),
        _ => return None,
    })
}

/// Every name that a thread had, of tasks.arrow, and of forks, execs and renames; and those of its process, as which causes
/// are called.
type Names = HashSet<(u32, String)>;

fn names(run: &Run, cores: &[CpuEvents]) -> Names {
    let mut names: Names = run.tasks.iter().map(|task| (task.tid, task.comm.clone())).collect();
    let mut processes: HashSet<(u32, u32)> = run.tasks.iter().map(|task| (task.tid, task.tgid)).collect();
    for event in cores.iter().flat_map(|core| &core.events) {
        if let Some(Kind::TaskFork | Kind::TaskExec | Kind::TaskRename) = event.kind() {
            let task = fields::Task::of(event);
            names.insert((task.task_tid, task.comm.to_string()));
            processes.insert((task.task_tid, task.task_tgid));
        }
    }
    let mut leaders: HashMap<u32, Vec<String>> = HashMap::new();
    for (tid, comm) in &names {
        leaders.entry(*tid).or_default().push(comm.clone());
    }
    let of_process = |(tid, tgid): &(u32, u32)| {
        let comm_of_leader = leaders.get(tgid).cloned().unwrap_or_default();
        comm_of_leader.into_iter().map(|comm| (*tid, comm)).collect::<Vec<_>>()
    };
    names.extend(processes.iter().filter(|(tid, tgid)| tid != tgid).flat_map(of_process));
    names
}

/// The process of each thread.
type Threads = HashMap<u32, u32>;

fn threads(run: &Run, cores: &[CpuEvents]) -> Threads {
    let mut threads: Threads = run.tasks.iter().map(|task| (task.tid, task.tgid)).collect();
    for event in cores.iter().flat_map(|core| &core.events) {
        if event.kind() == Some(Kind::TaskFork) {
            let task = fields::Task::of(event);
            threads.entry(task.task_tid).or_insert(task.task_tgid);
        }
    }
    threads
}

/// How often a core's next switch is not from the task that the one before was to.
fn breaks(cores: &[CpuEvents]) -> usize {
    let broken = |core: &CpuEvents| {
        let switches =
            core.events.iter().filter(|event| event.kind() == Some(Kind::SchedSwitch)).map(fields::Switch::of);
        switches.clone().zip(switches.skip(1)).filter(|(one, next)| one.next_tid != next.previous_tid).count()
    };
    cores.iter().map(broken).sum()
}

/// When each thread used which core, from the switches alone.
fn turns(cores: &[CpuEvents]) -> Turns {
    let mut turns = Turns::new();
    for core in cores {
        let mut since: Option<(u32, u64)> = None;
        for event in core.events.iter().filter(|event| event.kind() == Some(Kind::SchedSwitch)) {
            let fields::Switch { previous_tid: previous, next_tid: next, .. } = fields::Switch::of(event);
            // Before the first switch, the task that it switches from used the core. Where a switch was not recorded, both
            // tasks used it between the two recorded ones: one at first, the other at last.
            let begin = since.map_or(0, |(_, at)| at);
            turns.entry((core.cpu, previous)).or_default().push((begin, event.ts));
            if let Some((tid, at)) = since.filter(|(tid, _)| *tid != previous) {
                turns.entry((core.cpu, tid)).or_default().push((at, event.ts));
            }
            since = Some((next, event.ts));
        }
        if let Some((tid, at)) = since {
            turns.entry((core.cpu, tid)).or_default().push((at, u64::MAX));
        }
    }
    turns
}

/// The wanted messages of `messages.parquet`.
fn messages(run: &Run, leg: &str, wanted: &HashSet<u32>) -> anyhow::Result<BTreeMap<u32, Message>> {
    let path = run.dir.join("messages.parquet");
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let reader = SerializedFileReader::new(file).with_context(|| format!("cannot read {}", path.display()))?;
    let schema = reader.metadata().file_metadata().schema_descr();
    let names: HashMap<String, usize> =
        (0..schema.num_columns()).map(|i| (schema.column(i).name().to_owned(), i)).collect();
    let column = |name: &str| names.get(name).copied().with_context(|| format!("messages.parquet has no {name}"));
    let (id, driver, recv, bytes) = (column("id")?, column("driver_ns")?, column("recv_ns")?, column("bytes")?);
    let stages: Vec<usize> = STAGES.iter().map(|name| column(name)).collect::<anyhow::Result<_>>()?;
    let ends = [column("receive_ns")?, column("service_ns")?, column("transmit_ns")?];
    let cpus = [column("driver_cpu")?, column("handoff_cpu")?, column("recv_cpu")?];
    let mut messages = BTreeMap::new();
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let id = row.get_uint(id)?;
        if !wanted.contains(&id) {
            continue;
        }
        let begin = row.get_ulong(driver)?;
        let length = |i: usize| row.get_ulong(ends[i]).unwrap_or(0);
        let (from, to) = match leg {
            "receive" => (0, length(0)),
            "service" => (length(0), length(0) + length(1)),
            "transmit" => (length(0) + length(1), length(0) + length(1) + length(2)),
            "total" => (0, length(0) + length(1) + length(2)),
            other => bail!("there is no leg {other}"),
        };
        let core = |i: usize| row.get_ushort(cpus[i]).map_or(u32::MAX, u32::from);
        let message = Message {
            driver_ns: begin,
            recv_ns: row.get_ulong(recv).ok(),
            stages: std::array::from_fn(|i| row.get_ulong(stages[i]).unwrap_or(0)),
            bytes: row.get_uint(bytes)?,
            from_ns: begin + from,
            to_ns: begin + to,
            cores: [core(0), core(1), core(2)],
        };
        messages.insert(id, message);
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::super::judge::{Frame, Subject};
    use super::*;

    fn switch(ts: u64, previous: u32, next: u32) -> Event {
        let a = u64::from(previous) | u64::from(next) << 32;
        Event { ts, kind: Kind::SchedSwitch as u8, a, ..Event::default() }
    }

    #[test]
    fn turns_are_between_the_switches() {
        let events = vec![switch(100, 1, 2), switch(150, 2, 0), switch(400, 0, 2)];
        let turns = turns(&[CpuEvents { cpu: 3, events }]);
        assert_eq!(turns[&(3, 1)], [(0, 100)]);
        assert_eq!(turns[&(3, 2)], [(100, 150), (400, u64::MAX)]);
        assert_eq!(turns[&(3, 0)], [(150, 400)]);
        let whole = CpuEvents { cpu: 0, events: vec![switch(1, 1, 2), switch(2, 2, 3), switch(3, 3, 1)] };
        let broken = CpuEvents { cpu: 1, events: vec![switch(1, 1, 2), switch(2, 4, 3)] };
        assert_eq!(breaks(&[whole, broken.clone()]), 1);
        let turns = super::turns(&[broken]);
        assert_eq!((&turns[&(1, 2)][..], &turns[&(1, 4)][..]), (&[(1, 2)][..], &[(1, 2)][..]));
    }

    #[test]
    fn a_task_is_found_only_where_and_when_it_ran() {
        let events = vec![switch(100_000, 1, 2), switch(150_000, 2, 0)];
        let cores = [CpuEvents { cpu: 3, events }];
        let turns = turns(&cores);
        let look = Look::Tasks(HashSet::from([2]));
        let at = |from_ns, to_ns, core| {
            let message = Message { from_ns, to_ns, cores: [core; 3], ..Message::default() };
            look.is_in(core, &message, &cores, &turns)
        };
        assert!(at(140_000, 160_000, 3));
        assert!(!at(140_000, 160_000, 0), "another core");
        assert!(!at(10_000, 90_000, 3), "before it ran");
        assert!(!at(160_000, 190_000, 3), "after it ran");
    }

    /// A message of 100 bytes from byte 1,000 on, that came at 1,000 us and was received at 1,040 us on core 3.
    const FLOW: (u64, u64) = (77, 7);

    fn at(us: u64, kind: Kind, seq: u32) -> Event {
        let bytes = if is_packet(kind) { 100 } else { 0 };
        Event {
            ts: us * 1000,
            kind: kind as u8,
            a: FLOW.0,
            b: FLOW.1 | u64::from(seq) << 32,
            c: bytes,
            ..Event::default()
        }
    }

    fn pass(us: u64, kind: Kind) -> Event {
        Event { ts: us * 1000, kind: kind as u8, a: NET_RX.into(), ..Event::default() }
    }

    fn own_events() -> Vec<Event> {
        vec![
            pass(999, Kind::SoftirqEntry),
            at(1000, Kind::RxBacklog, 1000),
            at(1001, Kind::RxStack, 1000),
            at(1002, Kind::Handoff, 1100),
            pass(1003, Kind::SoftirqExit),
            // A part of it, then the rest.
            at(1030, Kind::Recv, 1060),
            at(1040, Kind::Recv, 1100),
        ]
    }

    /// A task, a packet (`packet:APPLICATION:PORT`), or what the category table has a name for.
    fn named(category: &str, name: &str) -> Named {
        let packet = name.strip_prefix("packet:").map(|of| Frame { kind: "packet".into(), of: of.into() });
        let kind = match (&packet, category) {
            (Some(_), _) => "frame",
            (None, "interference") => "task",
            (None, _) => "named",
        };
        let subject = Subject { kind: kind.into(), name: name.into(), frame: packet.unwrap_or_default() };
        Named {
            category: category.into(),
            subject,
            role: "A".into(),
            share: 0.5,
            deviation_ns: 1,
            evidence: vec![0],
            ..Named::default()
        }
    }

    fn is_found(category: &str, name: &str, more: &[Event]) -> bool {
        let mut events = own_events();
        events.extend_from_slice(more);
        events.sort_by_key(|event| event.ts);
        let cores = [CpuEvents { cpu: 3, events }];
        let us = 1000;
        let message = Message {
            driver_ns: 1000 * us,
            recv_ns: Some(1040 * us),
            stages: [1000 * us, 1001 * us, 1002 * us, 1040 * us, 0, 0],
            bytes: 100,
            from_ns: 1000 * us,
            to_ns: 1040 * us,
            cores: [3; 3],
        };
        assert!(message.is_in_events(&cores));
        let look = look(&Names::new(), &Threads::new(), &named(category, name)).unwrap();
        look.is_in(3, &message, &cores, &turns(&cores))
    }

    /// Within the receive leg a message's own packet, hand-off and receive call used to prove receive processing and a queue.
    #[test]
    fn what_is_the_messages_own_shows_no_other_message() {
        assert!(!is_found("hol-blocking", "server", &[]));
        assert!(!is_found("receive-processing", "net_rx", &[]));
        assert!(!is_found("receive-processing", "packet:other:80", &[]));
        // Its own packet on a second device, and again as a retransmission.
        let again = [at(1010, Kind::RxStack, 1000), at(1020, Kind::RxStack, 1050)];
        assert!(!is_found("receive-processing", "net_rx", &again));
        // Another one's, but before it came or after it was received.
        assert!(!is_found("hol-blocking", "server", &[at(900, Kind::Recv, 900), at(1100, Kind::Recv, 1200)]));
    }

    #[test]
    fn another_message_is_one_of_another_flow_or_of_other_bytes() {
        let other = |us, kind, seq| Event { a: 78, ..at(us, kind, seq) };
        assert!(is_found("hol-blocking", "server", &[other(1010, Kind::Recv, 1050)]));
        assert!(
            is_found("hol-blocking", "server", &[at(1010, Kind::Recv, 1000)]),
            "the one before it on its connection"
        );
        assert!(is_found("hol-blocking", "server", &[at(1010, Kind::Send, 1050)]), "a reply before its own");
        assert!(is_found("hol-blocking", "server", &[other(1020, Kind::Send, 1050)]), "a reply to another connection");
        assert!(!is_found("hol-blocking", "server", &[at(1041, Kind::Send, 1050)]), "its own reply");
        assert!(is_found("receive-processing", "net_rx", &[other(1010, Kind::RxStack, 1000)]));
        assert!(is_found("receive-processing", "net_rx", &[at(1010, Kind::RxStack, 1100)]), "the one behind it");
        assert!(is_found("receive-processing", "net_rx", &[other(1010, Kind::Handoff, 1050)]));
        // A pass in which nothing of the message was done, whosever packets it had.
        let pass = [pass(1010, Kind::SoftirqEntry), pass(1025, Kind::SoftirqExit)];
        assert!(is_found("receive-processing", "packet:other:80", &pass));
    }

    #[test]
    fn the_messages_own_way_through_the_stack_is_not_looked_for() {
        let cause = |role: &str, name: &str| Named { role: role.into(), ..named("receive-processing", name) };
        assert!(look(&Names::new(), &Threads::new(), &cause("R", "net_rx")).is_none());
        assert!(look(&Names::new(), &Threads::new(), &cause("R", "packet:other:80")).is_some());
        assert!(look(&Names::new(), &Threads::new(), &cause("A", "net_rx")).is_some());
    }

    /// Causes became processes: `rustc` whose threads are called otherwise was in no raw event.
    #[test]
    fn a_process_ran_when_any_of_its_threads_did() {
        let names = Names::from([(30, "rustc".into()), (31, "lto cgu.01".into()), (40, "other".into())]);
        let threads = Threads::from([(30, 30), (31, 30), (40, 40), (51, 50)]);
        let tids = |name: &str, pids: Vec<u32>| {
            let cause = Named { pids, ..named("interference", name) };
            let Some(Look::Tasks(tids)) = look(&names, &threads, &cause) else { panic!("tasks are looked for") };
            tids.into_iter().collect::<std::collections::BTreeSet<u32>>().into_iter().collect::<Vec<u32>>()
        };
        assert_eq!(tids("rustc", vec![]), [30, 31]);
        assert_eq!(tids("container:abc", vec![50]), [51]);
        assert_eq!(tids("lto cgu.01", vec![]), [31], "a thread's name is that thread's");
    }

    /// `call_function` is also the beginning of `call_function_single`, and a name was searched for both.
    #[test]
    fn what_is_looked_for_is_told_by_the_structure() {
        let vector = |of: &str| Frame { kind: "vector".into(), of: of.into() };
        let subject = |frame| Subject { kind: "frame".into(), frame, ..Subject::default() };
        let named_frame = |frame| Named { category: "interrupts".into(), subject: subject(frame), ..Named::default() };
        let entry = |which: &str| {
            let aux = VECTORS.iter().position(|vector| *vector == which).unwrap() as u16;
            Event { kind: Kind::VectorEntry as u8, aux, ..Event::default() }
        };
        let Some(Look::Event(is)) = look(&Names::new(), &Threads::new(), &named_frame(vector("call_function"))) else {
            panic!("an event is looked for")
        };
        assert!(is(&entry("call_function")) && !is(&entry("call_function_single")));
        // A softirq was shown by any interrupt, what is around interrupts of other cores too, and the hooks by any event.
        let softirq = |of: &str| Frame { kind: "softirq".into(), of: of.into() };
        let entered = |which: &str| {
            let a = SOFTIRQS.iter().position(|softirq| *softirq == which).unwrap() as u64;
            Event { kind: Kind::SoftirqEntry as u8, a, ..Event::default() }
        };
        let Some(Look::Event(is)) = look(&Names::new(), &Threads::new(), &named_frame(softirq("sched"))) else {
            panic!("an event is looked for")
        };
        assert!(is(&entered("sched")) && !is(&entered("timer")) && !is(&entry("local_timer")));
        // A device's interrupt was shown by that of any device.
        let irq = named_frame(Frame { kind: "irq".into(), of: "26".into() });
        let Some(Look::Event(is)) = look(&Names::new(), &Threads::new(), &irq) else {
            panic!("an event is looked for")
        };
        let device = |a| Event { kind: Kind::IrqEntry as u8, a, ..Event::default() };
        assert!(is(&device(26)) && !is(&device(27)) && !is(&Event { a: 26, ..Event::default() }));
        let around = Subject { kind: "around-interrupts".into(), ..Subject::default() };
        let around = Named { category: "interrupts".into(), subject: around, ..Named::default() };
        let Some(Look::Event(is)) = look(&Names::new(), &Threads::new(), &around) else {
            panic!("an event is looked for")
        };
        assert!(is(&entry("reschedule")) && !is(&entry("local_timer")) && !is(&entered("sched")));
        assert!(look(&Names::new(), &Threads::new(), &named("profiler", "the hooks")).is_none());
        let wakeup = |name: &str, frames: &[&str]| Named {
            category: "wakeup-delay".into(),
            subject: Subject { kind: "named".into(), name: name.into(), ..Subject::default() },
            frames: frames.iter().map(|&kind| kind.to_owned()).collect(),
            ..Named::default()
        };
        let look = |cause: &Named| look(&Names::new(), &Threads::new(), cause);
        assert!(matches!(look(&wakeup("idle", &[])), Some(Look::Idle)));
        assert!(matches!(look(&wakeup("wake-pending", &["idle-state"])), Some(Look::Idle)));
        assert!(look(&wakeup("runnable", &[])).is_none());
    }
}
