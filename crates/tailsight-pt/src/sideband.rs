//! The sideband: the records that perf wrote beside the trace. They tell which thread ran the traced instructions, and when.
//!
//! In: the records of a [`Container`]. Out: [`Sideband`]: how the trace was made, the clock, names of tasks, context switches by
//! core, and what was mapped where and when. Times are perf's, ns; 0 is "before the recording".

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use linux_perf_data::linux_perf_event_reader::{
    CommonData, ContextSwitchRecord, CpuMode, EventRecord, PerfEventType, RawEventRecord, RecordType, TaskWasPreempted,
};
use linux_perf_data::{PerfFile, PerfFileRecord, UserRecordType};

use crate::Error;
use crate::container::{Container, Queue};
use crate::gap::Gap;
use crate::moves::{self, Moves};
pub use crate::switches::{Switch, Switches, Upcoming};

/// What `AUXTRACE_INFO` calls Intel PT.
const INTEL_PT: u32 = 1;

/// How the trace was made (`AUXTRACE_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceInfo {
    /// perf's number for `intel_pt`.
    pub pmu: u32,
    /// How the counter relates to perf's time; `None`: perf did not know.
    pub clock: Option<TscClock>,
    /// Whether it is a snapshot: perf kept the last trace before each request for one (`perf record --snapshot`).
    pub snapshot: bool,
    /// The bits of the event's `config` that hold the MTC period.
    pub mtc_bits: u64,
    /// The bit of `config` that asks for MTC packets.
    pub mtc_bit: u64,
    /// The ratio of the time-stamp counter to the core crystal clock: CPUID 15h, EBX and EAX.
    pub tsc_ctc: (u32, u32),
    /// The bit of `config` that asks for cycle counts.
    pub cyc_bit: u64,
    /// The bit of `config` that switches return compression off.
    pub noretcomp_bit: u64,
    /// The processor's base frequency, in units of its bus clock.
    pub nominal_ratio: u8,
    /// The event's `config`.
    pub config: u64,
    /// Whether the kernel was traced.
    pub kernel: bool,
    /// The processor: family, model, stepping; zeros when it is not known.
    pub cpu: (u16, u8, u8),
}

impl TraceInfo {
    /// The MTC period's exponent; 0 without MTC.
    pub fn mtc_period(&self) -> u8 {
        let shift = self.mtc_bits.trailing_zeros();
        if self.mtc_bits == 0 { 0 } else { ((self.config & self.mtc_bits) >> shift) as u8 }
    }

    /// Whether cycles were counted.
    pub fn cycle_accurate(&self) -> bool {
        self.cyc_bit != 0 && self.config & self.cyc_bit != 0
    }

    /// Whether returns may be compressed to one bit.
    pub fn return_compression(&self) -> bool {
        self.noretcomp_bit == 0 || self.config & self.noretcomp_bit == 0
    }
}

/// The kernel's conversion of the time-stamp counter to perf's time: `zero + (tsc * mult >> shift)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscClock {
    /// Bits.
    pub shift: u16,
    /// ns of a tick, times `2^shift`.
    pub mult: u32,
    /// perf's time, ns, at counter 0; wraps.
    pub zero: u64,
}

impl TscClock {
    /// perf's time, ns.
    pub fn ns(&self, tsc: u64) -> u64 {
        let scaled = (u128::from(tsc) * u128::from(self.mult)) >> self.shift;
        self.zero.wrapping_add(scaled as u64)
    }

    /// The counter at a time: the first tick that is not before it.
    pub fn tsc(&self, ns: u64) -> u64 {
        let since = u128::from(ns.wrapping_sub(self.zero)) << self.shift;
        u64::try_from(since.div_ceil(u128::from(self.mult.max(1)))).unwrap_or(u64::MAX)
    }
}

/// A task's name from some time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// From when.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Command name.
    pub comm: String,
}

/// Something that happened to an address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file's code was mapped.
    Map(Mapping),
    /// A process was copied from another.
    Fork {
        /// The new one.
        pid: u32,
        /// The other.
        parent: u32,
    },
    /// A process executed another program: its earlier mappings are gone.
    Exec {
        /// Process.
        pid: u32,
    },
}

/// A mapping with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Process; `None`: the kernel, which is in every address space.
    pub pid: Option<u32>,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file.
    pub path: String,
    /// The file's build id in hexadecimal; empty when not known.
    pub build_id: String,
}

/// What kind of code the kernel generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generated {
    /// A BPF program, or a trampoline or dispatcher for some.
    Bpf,
    /// Code for a traced function out of its place: trampolines of ftrace, slots of kprobes.
    OutOfLine,
    /// Of a kind that perf did not know either.
    Unknown,
}

impl Generated {
    /// The name that is used in place of a file's.
    pub fn module(self) -> &'static str {
        match self {
            Generated::Bpf => "[bpf]",
            Generated::OutOfLine => "[out of line]",
            Generated::Unknown => "[generated]",
        }
    }
}

/// The kernel generated code or gave it up (`PERF_RECORD_KSYMBOL`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol {
    /// When; 0: it was there before the recording.
    pub time_ns: u64,
    /// Its first address.
    pub start: u64,
    /// Bytes.
    pub len: u32,
    /// Of what kind.
    pub kind: Generated,
    /// Whether the kernel gave it up at this time.
    pub unregistered: bool,
    /// Its name.
    pub name: String,
}

/// A section of trace that the kernel wrote (`PERF_RECORD_AUX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuxSection {
    /// When.
    pub time_ns: u64,
    /// The core, when it is known.
    pub cpu: Option<u32>,
    /// Where it begins, bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// `PERF_AUX_FLAG_*`: [`AuxSection::TRUNCATED`] and so on; 2: of a snapshot.
    pub flags: u64,
}

impl AuxSection {
    /// The kernel's buffer was full: trace after this section was lost.
    pub const TRUNCATED: u64 = 1;
    /// Trace is missing somewhere in it.
    pub const PARTIAL: u64 = 4;
    /// Another user of the tracing unit collided with this one: trace is missing.
    pub const COLLISION: u64 = 8;

    /// Why trace is missing in it or after it; `None`: none is.
    pub fn lost(&self) -> Option<Gap> {
        match self.flags {
            flags if flags & AuxSection::TRUNCATED != 0 => Some(Gap::Truncated),
            flags if flags & (AuxSection::PARTIAL | AuxSection::COLLISION) != 0 => Some(Gap::Partial),
            _ => None,
        }
    }
}

/// Everything beside the trace.
#[derive(Clone, Debug, Default)]
pub struct Sideband {
    /// How the trace was made.
    pub info: TraceInfo,
    /// Names, in order of time.
    pub names: Vec<Name>,
    /// Context switches by core, in order of time.
    pub switches: BTreeMap<u32, Switches>,
    /// Changes of address spaces, in order of time.
    pub changes: Vec<(u64, Change)>,
    /// Code that the kernel generated, in order of time.
    pub kernel_symbols: Vec<KernelSymbol>,
    /// The latest time of a record, ns of perf's clock; 0: none has a time.
    pub latest_ns: u64,
    /// Sections of trace at which some was lost.
    pub aux: Vec<AuxSection>,
    /// Records that perf lost.
    pub lost: u64,
    /// Records of each type, by perf's number of the type.
    pub records: BTreeMap<u32, u64>,
    /// The recorded kernel's release; empty when not known.
    pub kernel_release: String,
    /// The processor's name; empty when not known.
    pub cpu_model: String,
}

impl Sideband {
    /// Reads the records of a container.
    ///
    /// # Errors
    /// [`Error::NoTrace`] without `AUXTRACE_INFO` of Intel PT, [`Error::Damaged`].
    pub fn of(container: &Container) -> Result<Sideband, Error> {
        Sideband::of_traced(container, container.moves.clone())
    }

    /// The same, in whose place the container has no records any more: they take no memory from here on.
    ///
    /// # Errors
    /// As of [`Sideband::of`].
    pub(crate) fn take(container: &mut Container) -> Result<Sideband, Error> {
        let moves = std::mem::take(&mut container.moves);
        let out = Sideband::of_traced(container, moves)?;
        container.forget_records();
        Ok(out)
    }

    fn of_traced(container: &Container, moves: moves::Records) -> Result<Sideband, Error> {
        let no = |why| Error::NoTrace { path: container.path.clone(), why };
        let (out, traced) = Sideband::parsed(container, moves)?;
        if !traced {
            return Err(no("it has no AUXTRACE_INFO of Intel PT"));
        }
        if container.queues.iter().all(crate::container::Queue::is_empty) {
            return Err(no("it has AUXTRACE_INFO, but no AUXTRACE with trace behind it"));
        }
        Ok(out)
    }

    /// What the records say, whether they are of a trace or not; and whether they are (`AUXTRACE_INFO` of Intel PT).
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn records(container: &Container) -> Result<(Sideband, bool), Error> {
        Sideband::parsed(container, container.moves.clone())
    }

    fn parsed(container: &Container, moves: moves::Records) -> Result<(Sideband, bool), Error> {
        let damaged =
            || Error::Damaged { path: container.path.clone(), at: 0, why: "a record cannot be parsed".into() };
        // Some of the parser's checks are assertions: damaged input makes it panic.
        let read = || read(container, moves);
        catch_unwind(AssertUnwindSafe(read)).map_err(|_| damaged())?
    }

    /// Where trace of a queue was lost, and why, in order: after a section that was truncated, and at both ends of one that is incomplete.
    /// Only of queues of cores: for queues of threads the kernel does not say which one a record is about.
    pub fn losses(&self, queue: &Queue) -> Vec<(u64, Gap)> {
        let Some(cpu) = queue.cpu else { return Vec::new() };
        let mut out = Vec::new();
        for section in self.aux.iter().filter(|aux| aux.cpu == Some(cpu)) {
            let Some(why) = section.lost() else { continue };
            let begin = section.offset;
            let end = begin.saturating_add(section.len);
            if why == Gap::Partial {
                out.extend(queue.place(begin).map(|at| (at, why)));
            }
            out.extend(queue.place(end).map(|at| (at, why)));
        }
        out.sort_by_key(|(at, _)| *at);
        out
    }

    /// perf's clock.
    ///
    /// # Errors
    /// [`Error::NoClock`] when perf did not know it.
    pub fn clock(&self, container: &Container) -> Result<TscClock, Error> {
        self.info.clock.ok_or_else(|| Error::NoClock { path: container.path.clone() })
    }
}

/// Collects records.
#[derive(Default)]
struct Reader {
    out: Sideband,
    info: Option<Vec<u64>>,
    /// By core.
    moves: BTreeMap<u32, Moves>,
    time_conv: Option<TscClock>,
}

fn read(container: &Container, moves: moves::Records) -> Result<(Sideband, bool), Error> {
    let mut reader = Reader::default();
    reader.out.records = moves.counts();
    reader.moves = moves.finish();
    let file = container.records(|record| reader.take(record))?;
    let words = reader.info.take();
    let mut out = reader.out;
    out.info = trace_info(words.as_deref().unwrap_or_default());
    out.info.clock = out.info.clock.or(reader.time_conv);
    of_header(&mut out, &file);
    for (cpu, moves) in reader.moves {
        out.switches.insert(cpu, moves.finish());
    }
    Ok((out, words.is_some()))
}

fn trace_info(words: &[u64]) -> TraceInfo {
    let word = |i: usize| words.get(i).copied().unwrap_or(0);
    let clock = TscClock { shift: word(1).min(63) as u16, mult: word(2) as u32, zero: word(3) };
    TraceInfo {
        pmu: word(0) as u32,
        clock: (word(4) != 0 && clock.mult != 0).then_some(clock),
        noretcomp_bit: word(6),
        snapshot: word(8) != 0,
        mtc_bit: word(10),
        mtc_bits: word(11),
        tsc_ctc: (word(12) as u32, word(13) as u32),
        cyc_bit: word(14),
        nominal_ratio: word(15) as u8,
        ..TraceInfo::default()
    }
}

/// What the file's header says.
fn of_header(out: &mut Sideband, file: &PerfFile) {
    let attributes = file.event_attributes();
    let traced = |t: &PerfEventType| matches!(t, PerfEventType::DynamicPmu(pmu, ..) if *pmu == out.info.pmu);
    if let Some(attribute) = attributes.iter().find(|a| traced(&a.attr.type_)) {
        if let PerfEventType::DynamicPmu(_, config, ..) = attribute.attr.type_ {
            out.info.config = config;
        }
        out.info.kernel =
            !attribute.attr.flags.contains(linux_perf_data::linux_perf_event_reader::AttrFlags::EXCLUDE_KERNEL);
    }
    let text = |found: Result<Option<&str>, _>| found.ok().flatten().unwrap_or_default().to_owned();
    out.kernel_release = text(file.os_release());
    out.cpu_model = text(file.cpu_desc());
    let id = text(file.cpu_id());
    let mut words = id.split(',').skip(1).map(|n| n.trim().parse::<u16>().unwrap_or(0));
    let mut next = || words.next().unwrap_or(0);
    out.info.cpu = if id.starts_with("GenuineIntel") { (next(), next() as u8, next() as u8) } else { (0, 0, 0) };
    // Build ids, for mappings whose records have none.
    let ids = file.build_ids().unwrap_or_default();
    for (_, change) in &mut out.changes {
        if let Change::Map(mapping) = change
            && mapping.build_id.is_empty()
            && let Some(dso) = ids.values().find(|dso| dso.path == mapping.path.as_bytes())
        {
            mapping.build_id = hex(&dso.build_id);
        }
    }
}

impl Reader {
    fn take(&mut self, record: &PerfFileRecord<'_>) {
        match record {
            PerfFileRecord::EventRecord { record, .. } => {
                *self.out.records.entry(record.record_type.0).or_default() += 1;
                self.event(record);
            }
            PerfFileRecord::UserRecord(record) => {
                *self.out.records.entry(record.record_type.record_type().0).or_default() += 1;
                let data = record.data.as_slice();
                let words: Vec<u64> = data.chunks_exact(8).map(word).collect();
                match record.record_type {
                    UserRecordType::PERF_AUXTRACE_INFO if words.first().is_some_and(|w| *w as u32 == INTEL_PT) => {
                        self.info = Some(words[1..].to_vec());
                    }
                    UserRecordType::PERF_TIME_CONV => {
                        if let [shift, mult, zero, ..] = words[..]
                            && mult != 0
                        {
                            self.time_conv = Some(TscClock { shift: shift.min(63) as u16, mult: mult as u32, zero });
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn event(&mut self, record: &RawEventRecord<'_>) {
        let common = record.common_data().unwrap_or_default();
        let time_ns = common.timestamp.unwrap_or(0);
        self.out.latest_ns = self.out.latest_ns.max(time_ns);
        match record.record_type {
            RecordType::MMAP2 => self.out.changes.extend(mmap2(record).map(|m| (time_ns, Change::Map(m)))),
            RecordType::AUX => {
                let data = record.data.as_slice();
                let mut words = data.chunks_exact(8).map(word);
                if let (Some(offset), Some(len), Some(flags)) = (words.next(), words.next(), words.next()) {
                    let section = AuxSection { time_ns, cpu: common.cpu, offset, len, flags };
                    self.out.aux.extend(section.lost().map(|_| section));
                }
            }
            RecordType::KSYMBOL => self.out.kernel_symbols.extend(kernel_symbol(&record.data.as_slice(), time_ns)),
            RecordType(moves::ITRACE_START) => {
                let data = record.data.as_slice();
                if let (Some(cpu), Some(w)) = (common.cpu, data.first_chunk::<8>()) {
                    let pid_and_tid = u64::from_le_bytes(*w);
                    self.moves.entry(cpu).or_default().runs(time_ns, (pid_and_tid as u32, (pid_and_tid >> 32) as u32));
                }
            }
            _ => self.parsed(record, &common, time_ns),
        }
    }

    fn parsed(&mut self, record: &RawEventRecord<'_>, common: &CommonData, time_ns: u64) {
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        match record.parse() {
            Ok(EventRecord::Comm(comm)) => {
                let (pid, tid) = (number(comm.pid), number(comm.tid));
                if comm.is_execve {
                    self.out.changes.push((time_ns, Change::Exec { pid }));
                }
                let comm = tailsight_units::name::from_bytes(&comm.name.as_slice());
                self.out.names.push(Name { time_ns, pid, tid, comm });
            }
            Ok(EventRecord::Fork(fork)) if fork.pid != fork.ppid => {
                self.out.changes.push((time_ns, Change::Fork { pid: number(fork.pid), parent: number(fork.ppid) }));
            }
            Ok(EventRecord::Mmap(m)) if m.is_executable => {
                let mapping = Mapping {
                    pid: (m.pid >= 0 && m.cpu_mode != CpuMode::Kernel).then_some(number(m.pid)),
                    start: m.address,
                    len: m.length,
                    offset: m.page_offset,
                    path: String::from_utf8_lossy(&m.path.as_slice()).into_owned(),
                    build_id: String::new(),
                };
                self.out.changes.push((time_ns, Change::Map(mapping)));
            }
            Ok(EventRecord::Lost(lost)) => self.out.lost += lost.count,
            Ok(EventRecord::ContextSwitch(switch)) => self.switch(switch, common, time_ns),
            _ => {}
        }
    }

    /// Of a file whose switches are not read apart.
    fn switch(&mut self, switch: ContextSwitchRecord, common: &CommonData, time_ns: u64) {
        let Some(cpu) = common.cpu else { return };
        let number = |n: Option<i32>| u32::try_from(n.unwrap_or(0)).unwrap_or(0);
        let own = (number(common.pid), number(common.tid));
        let moves = self.moves.entry(cpu).or_default();
        match switch {
            ContextSwitchRecord::In { .. } => moves.came(time_ns, own),
            ContextSwitchRecord::Out { next_pid, next_tid, preempted } => {
                moves.left(time_ns, own, (number(next_pid), number(next_tid)), preempted == TaskWasPreempted::Yes);
            }
        }
    }
}

/// `PERF_RECORD_MMAP2` of code.
fn mmap2(record: &RawEventRecord<'_>) -> Option<Mapping> {
    const BUILD_ID: u16 = 1 << 14;
    const EXECUTABLE: u32 = 4;
    let data = record.data.as_slice();
    let half = |at: usize| Some(u32::from_le_bytes(*data.get(at..)?.first_chunk::<4>()?));
    let long = |at: usize| Some(word(data.get(at..at + 8)?));
    let (pid, start, len, offset) = (half(0)?, long(8)?, long(16)?, long(24)?);
    let (protection, name) = (half(56)?, data.get(64..)?);
    let path = &name[..name.iter().position(|&b| b == 0)?];
    let build_id = match record.misc & BUILD_ID {
        0 => String::new(),
        _ => hex(data.get(36..36 + usize::from(data[32]).min(20))?),
    };
    let kernel = CpuMode::from_misc(record.misc) == CpuMode::Kernel || pid == u32::MAX;
    (protection & EXECUTABLE != 0 || kernel).then(|| Mapping {
        pid: (!kernel).then_some(pid),
        start,
        len,
        offset,
        path: String::from_utf8_lossy(path).into_owned(),
        build_id,
    })
}

/// `PERF_RECORD_KSYMBOL`: address, length, kind, flags, name.
fn kernel_symbol(data: &[u8], time_ns: u64) -> Option<KernelSymbol> {
    const UNREGISTER: u16 = 1;
    let (start, more) = (word(data.get(..8)?), data.get(8..16)?);
    let len = u32::from_le_bytes(*more.first_chunk::<4>()?);
    let (kind, flags) = (u16::from_le_bytes([more[4], more[5]]), u16::from_le_bytes([more[6], more[7]]));
    let name = data.get(16..)?;
    let kind = match kind {
        1 => Generated::Bpf,
        2 => Generated::OutOfLine,
        _ => Generated::Unknown,
    };
    let name = tailsight_units::name::from_bytes(&name[..name.iter().position(|&b| b == 0)?]);
    Some(KernelSymbol { time_ns, start, len, kind, unregistered: flags & UNREGISTER != 0, name })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_there_and_back() {
        // Of a Core m7-6Y75.
        let clock = TscClock { shift: 31, mult: 1_430_224_409, zero: 0u64.wrapping_sub(77_000_000_000) };
        for tsc in [0, 1, 1_000_003, 3_000_000_000_000, 1 << 50] {
            let ns = clock.ns(tsc);
            assert!(clock.tsc(ns) <= tsc && tsc - clock.tsc(ns) <= 2, "{tsc}");
            assert_eq!(clock.ns(clock.tsc(ns)), ns);
        }
    }
}
