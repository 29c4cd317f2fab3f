//! perf's records of which task has a core, made into context switches.
//!
//! In: `PERF_RECORD_ITRACE_START`, `_SWITCH` and `_SWITCH_CPU_WIDE`, as they lie in the file. Out: [`Moves`] of each core. These records may take
//! more room than the trace: they are read where they lie, and not kept. perf writes those of a core in order of time, or nearly; where a file
//! does not ([`Records::are_in_order`]), or where their end is not laid out as for all events alike, the parser of all other records reads and
//! sorts them.

use std::collections::{BTreeMap, VecDeque};

use crate::switches::{Switch, Switches};

/// `PERF_RECORD_ITRACE_START`: which thread runs when the trace begins.
pub const ITRACE_START: u32 = 12;
/// `PERF_RECORD_SWITCH`: a task comes or leaves.
const SWITCH: u32 = 14;
/// `PERF_RECORD_SWITCH_CPU_WIDE`: the same, with the task before or behind it.
const SWITCH_CPU_WIDE: u32 = 15;
const KINDS: [u32; 3] = [ITRACE_START, SWITCH, SWITCH_CPU_WIDE];
/// In the header of a switch: the task leaves.
const OUT: u16 = 1 << 13;
/// The task that leaves would have run on.
const PREEMPTED: u16 = 1 << 14;
/// Bytes of a record's header.
const HEADER: usize = 8;
/// Cores with higher numbers are left to the parser.
const MOST_CORES: usize = 1 << 13;
/// So many records of a core wait for one that is earlier.
const MOST_WAITING: usize = 16;

/// A process and a thread of it.
type Task = (u32, u32);

/// What the records tell of a core: each switch twice, a task leaves, and the next one comes. The second record is used, or the first where
/// the second was lost.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    switches: Switches,
    /// The last two records: whether a task came (else it left), when, and which task has the core from then on.
    last: [Option<(bool, Switch)>; 2],
    /// The thread of the last switch.
    tid: Option<u32>,
}

impl Moves {
    /// A thread runs when the trace begins.
    pub fn runs(&mut self, time_ns: u64, (pid, tid): Task) {
        // Where perf did not know it, the number is all ones.
        if tid != u32::MAX && self.is_empty() {
            self.push(true, Switch { time_ns, pid, tid, preempted: false });
        }
    }

    /// A task came.
    pub fn came(&mut self, time_ns: u64, (pid, tid): Task) {
        self.push(true, Switch { time_ns, pid, tid, preempted: false });
    }

    /// A task left, and another one comes.
    pub fn left(&mut self, time_ns: u64, own: Task, (pid, tid): Task, preempted: bool) {
        if self.is_empty() {
            self.push(true, Switch { time_ns: 0, pid: own.0, tid: own.1, preempted: false });
        }
        self.push(false, Switch { time_ns, pid, tid, preempted });
    }

    /// As [`Moves::came`] and [`Moves::left`], of which it is one.
    pub fn push(&mut self, came: bool, switch: Switch) {
        self.decide(Some((came, switch)));
        self.last = [self.last[1], Some((came, switch))];
    }

    /// Whether nothing is known of the core.
    fn is_empty(&self) -> bool {
        self.last[1].is_none()
    }

    /// Whether the last record is a switch of its own, once it is known which follows it.
    fn decide(&mut self, next: Option<(bool, Switch)>) {
        let [before, Some((came, switch))] = self.last else { return };
        let told_again = !came && next.is_some_and(|(came, next)| came && next.tid == switch.tid);
        if told_again || self.tid == Some(switch.tid) {
            return;
        }
        let preempted = switch.preempted || came && before.is_some_and(|(came, before)| !came && before.preempted);
        self.tid = Some(switch.tid);
        self.switches.push(Switch { preempted, ..switch });
    }

    /// The last record that was pushed: whether a task came, and which task has the core.
    pub fn last(&self) -> Option<(bool, Switch)> {
        self.last[1]
    }

    /// The switches, once there are no more records.
    pub fn finish(mut self) -> Switches {
        self.decide(None);
        self.switches
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
enum MoveRecord {
    Runs(Task),
    Came(Task),
    Left { own: Task, next: Task, preempted: bool },
}

/// The records of a core, put in order of time.
#[derive(Clone, Debug, Default)]
struct InOrder {
    waiting: VecDeque<(u64, MoveRecord)>,
    moves: Moves,
    /// The time of the last one that was put to the moves, and whether an earlier one came after it.
    reached_ns: u64,
    late: bool,
    /// Whether there was any.
    any: bool,
}

impl InOrder {
    fn put(&mut self, time_ns: u64, told: MoveRecord) {
        // Of the same time, the first stays the first.
        let place = self.waiting.iter().rposition(|(at, _)| *at <= time_ns).map_or(0, |before| before + 1);
        self.late |= time_ns < self.reached_ns;
        self.any = true;
        self.waiting.insert(place, (time_ns, told));
        if self.waiting.len() > MOST_WAITING {
            self.take_first();
        }
    }

    fn take_first(&mut self) {
        let Some((time_ns, record)) = self.waiting.pop_front() else { return };
        self.reached_ns = time_ns;
        match record {
            MoveRecord::Runs(task) => self.moves.runs(time_ns, task),
            MoveRecord::Came(task) => self.moves.came(time_ns, task),
            MoveRecord::Left { own, next, preempted } => self.moves.left(time_ns, own, next, preempted),
        }
    }

    fn finish(mut self) -> Moves {
        while !self.waiting.is_empty() {
            self.take_first();
        }
        self.moves
    }
}

/// What stands at the end of each record: of which task, when, on which core. Places in bytes from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trailer {
    task: usize,
    time: usize,
    cpu: usize,
}

impl Trailer {
    /// Of an event's attribute; `None`: its records do not say one of these.
    fn of(attribute: &[u8]) -> Option<Trailer> {
        // `PERF_SAMPLE_TID`, `_TIME`, `_ID`, `_STREAM_ID`, `_CPU`, `_IDENTIFIER`: in the order in which the kernel writes them.
        const PARTS: [u64; 6] = [TASK, TIME, 1 << 6, 1 << 9, CPU, 1 << 16];
        const TASK: u64 = 1 << 1;
        const TIME: u64 = 1 << 2;
        const CPU: u64 = 1 << 7;
        const SAMPLE_ID_ALL: u64 = 1 << 18;
        let (sample, flags) = (word(attribute, 24)?, word(attribute, 40)?);
        let place = |part: u64| {
            let behind = PARTS.into_iter().skip_while(|other| *other != part);
            (sample & part != 0).then(|| 8 * behind.filter(|other| sample & other != 0).count())
        };
        let trailer = Trailer { task: place(TASK)?, time: place(TIME)?, cpu: place(CPU)? };
        (flags & SAMPLE_ID_ALL != 0).then_some(trailer)
    }
}

/// The records of a file, as they come.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// By core.
    cores: Vec<InOrder>,
    /// How many, by [`KINDS`].
    counts: [u64; 3],
    /// `None`: no event is known yet; of `None`: it is not the same for all.
    trailer: Option<Option<Trailer>>,
}

impl Records {
    /// An event of the file has this attribute (`perf_event_attr`).
    pub fn attribute(&mut self, attribute: &[u8]) {
        let trailer = Trailer::of(attribute);
        let same = self.trailer.is_none_or(|known| known == trailer);
        self.trailer = Some(trailer.filter(|_| same));
    }

    /// Whether those of each core came in order of time, or nearly.
    pub fn are_in_order(&self) -> bool {
        self.cores.iter().all(|core| !core.late)
    }

    /// What they tell, by core.
    pub fn finish(self) -> BTreeMap<u32, Moves> {
        let traced = (0..).zip(self.cores).filter(|(_, core)| core.any);
        traced.map(|(cpu, core)| (cpu, core.finish())).collect()
    }

    /// How many there were, by perf's number of the type.
    pub fn counts(&self) -> BTreeMap<u32, u64> {
        KINDS.into_iter().zip(self.counts).filter(|(_, n)| *n > 0).collect()
    }

    /// Takes the record at the beginning of these bytes, if it is one of these and all of it is there. Returns its bytes.
    pub fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let header = word(bytes, 0)?;
        let (kind, misc, size) = (header as u32, (header >> 32) as u16, usize::from((header >> 48) as u16));
        let trailer = self.trailer.flatten()?;
        let body = match kind {
            SWITCH => HEADER,
            ITRACE_START | SWITCH_CPU_WIDE => HEADER + 8,
            _ => return None,
        };
        let record = bytes.get(..size).filter(|_| size >= body + trailer.task)?;
        let place = |from_end: usize| word(record, size - from_end);
        let (own, time_ns, cpu) = (task(place(trailer.task)?), place(trailer.time)?, place(trailer.cpu)? as u32);
        // Of a short one there is none: no task.
        let other = if body == HEADER { (0, 0) } else { word(record, HEADER).map_or((0, 0), task) };
        let cpu = usize::try_from(cpu).ok().filter(|cpu| *cpu < MOST_CORES)?;
        if cpu >= self.cores.len() {
            self.cores.resize_with(cpu + 1, InOrder::default);
        }
        KINDS.iter().zip(&mut self.counts).filter(|(of, _)| **of == kind).for_each(|(_, n)| *n += 1);
        let record = match kind {
            ITRACE_START => MoveRecord::Runs(other),
            _ if misc & OUT == 0 => MoveRecord::Came(known(own)),
            _ => MoveRecord::Left { own: known(own), next: known(other), preempted: misc & PREEMPTED != 0 },
        };
        self.cores[cpu].put(time_ns, record);
        Some(size)
    }
}

fn task(word: u64) -> Task {
    (word as u32, (word >> 32) as u32)
}

/// Numbers of tasks are signed: a negative one is none.
fn known((pid, tid): Task) -> Task {
    let id = |n: u32| if n.cast_signed() < 0 { 0 } else { n };
    (id(pid), id(tid))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Container;
    use crate::sideband::Sideband;

    #[test]
    fn a_switch_that_is_told_twice_counts_once_and_a_lost_half_does_not_lose_it() {
        let at = |time_ns, tid, preempted| Switch { time_ns, pid: tid, tid, preempted };
        let mut moves = Moves::default();
        for (came, switch) in [
            (true, at(0, 1, false)),
            (false, at(10, 2, true)),
            (true, at(12, 2, false)),
            (false, at(20, 3, false)),
            // The second record of the switch to 3 was lost, and the first of the switch away from it.
            (true, at(31, 1, false)),
        ] {
            moves.push(came, switch);
        }
        let out: Vec<Switch> = moves.finish().iter().collect();
        assert_eq!(out, [at(0, 1, false), at(12, 2, true), at(20, 3, false), at(31, 1, false)]);
    }

    fn fixture(name: &str) -> Vec<u8> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        std::fs::read(path).unwrap()
    }

    fn by_core(container: &Container) -> BTreeMap<u32, Vec<Switch>> {
        let (sideband, _) = Sideband::records(container).unwrap();
        sideband.switches.iter().map(|(cpu, of)| (*cpu, of.iter().collect())).collect()
    }

    #[test]
    fn records_read_where_they_lie_say_what_the_parser_says() {
        for name in ["tsc/perf.data", "cycles/perf.data", "overflow/perf.data"] {
            let file = fixture(name);
            let (ours, parsed) = (Container::of_bytes(&file).unwrap(), Container::of_bytes_by_parser(&file).unwrap());
            assert!(ours.moves.counts()[&SWITCH_CPU_WIDE] > 4 && parsed.moves.counts().is_empty(), "{name}");
            assert_eq!(by_core(&ours), by_core(&parsed), "{name}");
            let records = |of: &Container| Sideband::records(of).unwrap().0.records;
            assert_eq!(records(&ours), records(&parsed), "{name}");
        }
    }

    #[test]
    fn records_that_are_not_in_order_are_sorted() {
        let mut file = fixture("tsc/perf.data");
        let expected = by_core(&Container::of_bytes(&file).unwrap());
        let header = SWITCH_CPU_WIDE.to_le_bytes();
        let at = file.windows(4).position(|w| *w == header).unwrap();
        let len = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
        // The first behind a hundred others.
        let many = 100 * len;
        assert!(file[at..at + many].chunks(len).all(|record| record[..4] == header));
        file[at..at + many].rotate_left(len);
        let container = Container::of_bytes(&file).unwrap();
        assert!(container.moves.counts().is_empty(), "left to the parser");
        assert_eq!(by_core(&container), expected);
    }
}
