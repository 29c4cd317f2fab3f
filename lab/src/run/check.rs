//! The independent check: is a named cause there in the raw events? In: a run, its `messages.parquet`, named causes. Out: the
//! causes that are not.
//!
//! Nothing of tailsight-lifetime or tailsight-diagnose is used but the stages that `tailsight export` writes for each
//! message, and those are looked up in the raw events too. A cause is there when a message of its evidence has an event
//! of it on a core of the message, between the ends of the leg: for a task, that it had the core.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;

use anyhow::{Context, bail};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use tailsight_trace::event::VECTORS;
use tailsight_trace::read::CpuEvents;
use tailsight_trace::{Event, Kind, Run};

use super::judge::Named;
use super::stage::SERVER_CPU;

/// The number of NET_RX among the softirqs.
const NET_RX: u64 = 3;
/// Stamps of messages and of events are of the same clock and the same events; a switch may be this much beside, ns.
const SLACK_NS: u64 = 2_000;

/// What the check says.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Causes that were looked for.
    pub checked: usize,
    /// When programs that are neither the lab's nor its servers had the application's core.
    pub others: Vec<(u64, u64)>,
    /// Switches to a task that are followed by a switch from another one on the same core: something was not recorded.
    pub breaks: usize,
    /// Those that are not there in any message, as `category name (role): messages without it of all of the evidence`.
    pub absent: Vec<String>,
    /// Those that are not there in a part of the evidence.
    pub partly: Vec<String>,
}

/// A message of the evidence: where and when.
#[derive(Debug, Clone, Copy, Default)]
struct Message {
    driver_ns: u64,
    recv_ns: Option<u64>,
    from_ns: u64,
    to_ns: u64,
    cores: [u32; 3],
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

/// What a task did on a core: [from, to).
type Turns = HashMap<(u32, u32), Vec<(u64, u64)>>;

/// Looks for every named cause that makes messages slower.
pub fn check(run: &mut Run, causes: &[Named], leg: &str) -> anyhow::Result<Found> {
    let wanted: HashSet<u32> = causes.iter().flat_map(|cause| cause.evidence.iter().copied()).collect();
    let messages = messages(run, leg, &wanted)?;
    let cores = run.events()?;
    let turns = turns(&cores);
    let names = names(run, &cores);
    let mut found = Found { breaks: breaks(&cores), others: others(run, &names, &turns), ..Found::default() };
    for (id, message) in &messages {
        if !message.is_in_events(&cores) {
            found.absent.push(format!("message {id}: no packet and no receive call at its times"));
        }
    }
    for cause in causes.iter().filter(|cause| cause.deviation_ns > 0) {
        let Some(look) = look(&names, cause) else { continue };
        let seen = |id: &&u32| {
            let message = messages.get(id)?;
            Some(message.cores.iter().any(|core| look.is_in(*core, message, &cores, &turns)))
        };
        let missing: Vec<u32> = cause.evidence.iter().filter(|id| seen(id) == Some(false)).copied().collect();
        found.checked += 1;
        if !missing.is_empty() {
            let (category, name, role) = (&cause.category, &cause.name, &cause.role);
            let of = cause.evidence.len();
            let list = if missing.len() == of { &mut found.absent } else { &mut found.partly };
            list.push(format!("{category} {name} ({role}): not in {} of {of} messages", missing.len()));
        }
    }
    Ok(found)
}

/// What is looked for.
enum Look {
    /// That one of these threads had the core.
    Tasks(HashSet<u32>),
    /// That the core was idle.
    Idle,
    /// An event that is one of the cause's.
    Event(Box<dyn Fn(&Event) -> bool>),
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
            Self::Event(is) => {
                let Some(core) = cores.iter().find(|cpu| cpu.cpu == core) else { return false };
                let first = core.events.partition_point(|event| event.ts < from);
                core.events[first..].iter().take_while(|event| event.ts <= to).any(is)
            }
        }
    }
}

/// How a cause shows in the raw events; `None` when no event of today's recorder could show it.
fn look(names: &Names, cause: &Named) -> Option<Look> {
    // `lab-hog/user` is the task lab-hog with what it did; a kernel thread's name goes on with its core (`kworker/0:1`).
    // What is inferred says so in brackets (`migration (cold caches)`).
    let stem = cause.name.split(" in ").next().unwrap_or(&cause.name);
    let stem = stem.strip_suffix(" (cold caches)").unwrap_or(stem);
    let kernel = cause.category == "os-threads";
    Some(match cause.category.as_str() {
        "interference" | "os-threads" | "profiler" => {
            let fits =
                |comm: &str| comm == stem || stem.starts_with(&format!("{comm}/")) || kernel && comm.starts_with(stem);
            let mut tids: HashSet<u32> = names.iter().filter(|(_, comm)| fits(comm)).map(|(tid, _)| *tid).collect();
            // A task whose name the recording missed is named by its number.
            tids.extend(stem.strip_prefix("tid ").and_then(|tid| tid.parse::<u32>().ok()));
            tids.remove(&0);
            Look::Tasks(tids)
        }
        "wakeup-delay" if stem.contains("idle") => Look::Idle,
        "interrupts" => {
            let name = stem.to_owned();
            // The longest: `call_function` is also the beginning of `call_function_single`.
            let vector = (0..VECTORS.len()).filter(|i| name.contains(VECTORS[*i])).max_by_key(|i| VECTORS[*i].len());
            Look::Event(Box::new(move |event| match event.kind() {
                Some(Kind::VectorEntry) => vector.is_none_or(|vector| usize::from(event.aux) == vector),
                Some(Kind::IrqEntry) => vector.is_none(),
                Some(Kind::SoftirqEntry) => vector.is_none() && event.a != NET_RX,
                _ => false,
            }))
        }
        "receive-processing" => Look::Event(Box::new(|event| match event.kind() {
            Some(Kind::SoftirqEntry) => event.a == NET_RX,
            Some(Kind::RxNapi | Kind::RxBacklog | Kind::RxStack | Kind::Handoff) => true,
            _ => false,
        })),
        "hol-blocking" => Look::Event(Box::new(|event| matches!(event.kind(), Some(Kind::Recv | Kind::Send)))),
        "paging" => Look::Event(Box::new(|event| matches!(event.kind(), Some(Kind::FaultUser | Kind::FaultKernel)))),
        _ => return None,
    })
}

/// Every name that a thread had: of tasks.arrow, and of forks, execs and renames.
type Names = HashSet<(u32, String)>;

fn names(run: &Run, cores: &[CpuEvents]) -> Names {
    let mut names: Names = run.tasks.iter().map(|task| (task.tid, task.comm.clone())).collect();
    for event in cores.iter().flat_map(|core| &core.events) {
        if let Some(Kind::TaskFork | Kind::TaskExec | Kind::TaskRename) = event.kind() {
            names.insert((event.a_lo(), event.text()));
        }
    }
    names
}

/// When the application's core was had by tasks that are not the kernel's, the lab's or its servers'.
fn others(run: &Run, names: &Names, turns: &Turns) -> Vec<(u64, u64)> {
    let known = |comm: &str| {
        ["lab", "tailsight", "nginx", "memcached", "redis-server"].iter().any(|known| comm.starts_with(known))
    };
    let ours: HashSet<u32> = run
        .tasks
        .iter()
        .filter(|task| task.target || task.kernel)
        .map(|task| task.tid)
        .chain(names.iter().filter(|(_, comm)| known(comm)).map(|(tid, _)| *tid))
        .chain([0])
        .collect();
    let others = turns.iter().filter(|((core, tid), _)| *core as usize == SERVER_CPU && !ours.contains(tid));
    others.flat_map(|(_, turns)| turns.iter().copied()).collect()
}

/// How often a core's next switch is not from the task that the one before was to.
fn breaks(cores: &[CpuEvents]) -> usize {
    let broken = |core: &CpuEvents| {
        let switches = core.events.iter().filter(|event| event.kind() == Some(Kind::SchedSwitch));
        switches.clone().zip(switches.skip(1)).filter(|(one, next)| one.a_hi() != next.a_lo()).count()
    };
    cores.iter().map(broken).sum()
}

/// When each thread had which core, from the switches alone.
fn turns(cores: &[CpuEvents]) -> Turns {
    let mut turns = Turns::new();
    for core in cores {
        let mut since: Option<(u32, u64)> = None;
        for event in core.events.iter().filter(|event| event.kind() == Some(Kind::SchedSwitch)) {
            let (previous, next) = (event.a_lo(), event.a_hi());
            // Before the first switch, whoever it switches from had the core. Where a switch was not recorded, both tasks
            // had it between the two that were: one at first, the other at last.
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
    let (id, driver, recv) = (column("id")?, column("driver_ns")?, column("recv_ns")?);
    let ends = [column("receive_ns")?, column("service_ns")?, column("transmit_ns")?];
    let cpus = [column("driver_cpu")?, column("handoff_cpu")?, column("recv_cpu")?];
    let mut found = BTreeMap::new();
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
            from_ns: begin + from,
            to_ns: begin + to,
            cores: [core(0), core(1), core(2)],
        };
        found.insert(id, message);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
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
}
