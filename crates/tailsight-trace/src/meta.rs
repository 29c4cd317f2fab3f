//! `run.json`: what was recorded, on what, with which hooks, what was lost and what it cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The description of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunMeta {
    /// Always `tailsight-run`.
    pub format: String,
    /// The run format's version.
    pub version: u32,
    /// The version of the tailsight that recorded.
    pub tailsight: String,
    /// Where the recording stands.
    pub state: State,
    /// Why a run is partial.
    pub partial: Option<String>,
    /// The source of events: `ebpf`.
    pub source: String,
    /// The host.
    pub host: Host,
    /// What was recorded.
    pub target: Target,
    /// Who recorded; absent in older runs, and before the recording has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<Recorder>,
    /// Network devices that packets for the target came in on, those with interrupts first, then by packets; empty in
    /// older runs and where nothing could be read.
    pub devices: Vec<Device>,
    /// Settings of the host and of the target's first process that can lengthen the tail, as they were before the recording; empty in
    /// older runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
    /// The containers that tasks of the run were in, as the state files of their engines name them; empty where there were none, and in older
    /// runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
    /// Wall-clock time at `start_ns`, ns since the epoch. In older runs earlier, by what preparing the recording then took.
    pub started_unix_ns: u64,
    /// First nanosecond of the recording, CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Last nanosecond of the recording, CLOCK_MONOTONIC.
    pub end_ns: u64,
    /// Each hook: whether it was on, and what it cost.
    pub hooks: Vec<Hook>,
    /// Each core: what it recorded and lost.
    pub cpus: Vec<Cpu>,
    /// The buffers.
    pub buffer: Buffer,
    /// Payload that was kept (`--protocol`); absent: none.
    pub payload: Option<Payload>,
    /// What the recording cost.
    pub overhead: Overhead,
    /// Where the transmit leg begins; [`RunMeta::sends_from`] knows it of older runs, too.
    pub send_entry: SendEntry,
    /// Names of the drop reasons of the recorded kernel (`SKB_DROP_REASON_QDISC_DROP` is `QDISC_DROP`), by number; empty in
    /// older runs and without its type information.
    pub drop_reasons: Vec<String>,
    /// Time stamps of NICs.
    pub nic: NicStamps,
    /// Samples of what the target's threads ran; absent in older runs and when none were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Looks at goroutines that had a message; absent in older runs, without samples, and where the target is no Go program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routines: Option<Routines>,
    /// Of a run that `watch` made of what its buffers held: the message for which it did; absent in others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// Functions that were traced from their begin to their end (`--uprobe`, `--usdt`, `--function`); absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traced: Option<Traced>,
    /// Largest error of a comparison of a NIC's clock, ns; 0 when no NIC stamps, for lifetimes use no other clock than
    /// CLOCK_MONOTONIC. (Older versions wrote how exactly the clocks of clocks.arrow were compared.)
    pub clock_error_ns: u64,
    /// Names that events refer to by index; entry 0 is empty.
    pub symbols: Vec<String>,
    /// Kernel stacks that threads of the target slept with: function names, innermost first, separated by `;`, from the
    /// call of the scheduler on. Entry 0 is empty.
    pub stacks: Vec<String>,
    /// File systems on which the target had files open for writing and whose fsync this recording does not see: neither by fentry
    /// programs nor by tracepoints. Empty in older runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen_syncs: Vec<String>,
    /// What a reader of the results should know.
    pub warnings: Vec<String>,
    /// The files of the run as they were written; empty while it is recorded, and in runs of version 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RunFile>,
    /// SHA-256 of this file as it is without these 64 digits; empty in runs of version 1.
    pub digest: String,
}

/// A setting that can lengthen the tail, as `tailsight doctor` reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Setting {
    /// A stable name, snake_case; of an interface's setting it ends with `:` and the interface.
    pub id: String,
    /// What a person calls it.
    pub title: String,
    /// Its value.
    pub value: String,
    /// `good`, `hurts`, `unknown` (not readable, or its effect cannot be seen) or `not_present`.
    #[schemars(extend("enum" = ["good", "hurts", "unknown", "not_present"]))]
    pub verdict: String,
    /// Why, in a sentence or two.
    pub why: String,
}

impl Setting {
    /// Whether it is known to lengthen the tail.
    #[must_use]
    pub fn hurts(&self) -> bool {
        self.verdict == "hurts"
    }

    /// `Swap (1 area)`.
    #[must_use]
    pub fn in_words(&self) -> String {
        format!("{} ({})", self.title, self.value)
    }
}

/// A file of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunFile {
    /// Its name, from the run's folder on: `events/cpu-0.arrow`.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Their SHA-256, 64 hexadecimal digits.
    pub sha256: String,
}

/// The message for which `watch` made a run of what its buffers held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Capture {
    /// When its reply began, CLOCK_MONOTONIC ns.
    pub at_ns: u64,
    /// From the driver until its reply began, ns.
    pub total_ns: u64,
    /// From the driver until the server had received it, ns.
    pub receive_ns: u64,
    /// From there until its reply began, ns.
    pub service_ns: u64,
    /// The server's port.
    pub local_port: u16,
    /// The client's port.
    pub remote_port: u16,
    /// The thread that replied.
    pub tid: u32,
    /// It came before the run begins: the buffers did not reach that far back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub began_before: bool,
}

/// Functions that were traced from their begin to their end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Traced {
    /// By number, as events refer to them.
    pub functions: Vec<TracedFunction>,
    /// Calls of one function in a second from which on it is switched off.
    pub most_per_second: u64,
    /// What the traps of one hit (a begin or an end) take from the thread, ns, measured before the recording on a function of the
    /// recorder's own: at an instruction that the kernel does itself, and at others. Absent when it could not be measured.
    pub trap_ns: Option<[f64; 2]>,
    /// What the program takes besides, ns, of the hits while the cost of the hooks was measured; absent when there was none.
    pub program_ns: Option<f64>,
    /// What could not be traced, and why.
    pub notes: Vec<String>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TracedFunction {
    /// Its name, demangled; of USDT probes `provider:probe`.
    pub name: String,
    /// The option that named it, as it was given.
    pub asked: String,
    /// `user`, `usdt` or `kernel`.
    pub kind: String,
    /// The program or library without its folders; of the kernel `[kernel]`.
    pub module: String,
    /// Its build id; empty without one.
    pub build_id: String,
    /// How its end is known: `instructions` (each at which it can end), `uretprobe`, `probe`, `fexit`.
    pub ends_by: String,
    /// What a hit takes from the thread, ns: at its begin, at its end. Absent when it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ns: Option<[f64; 2]>,
    /// Calls by the target in the recording.
    pub calls: u64,
    /// When it was switched off because it was called too often, CLOCK_MONOTONIC ns; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_ns: Option<u64>,
}

/// Samples of what the target's threads ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Sampling {
    /// Time on a core between two ticks of the clock, ns.
    pub period_ns: u64,
    /// In a message that is slower than usual each tick takes a sample; of the other ticks, one in so many. 0 in older runs, where
    /// each tick took one.
    pub others_one_in: u16,
    /// What one tick takes from what it interrupts, ns, measured before the recording; absent when the rate was asked for, and in
    /// older runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_ns: Option<u64>,
    /// Cores with such a clock.
    pub cpus: u32,
    /// Samples on disk.
    pub samples: u64,
    /// Those of them that are of sleeps.
    pub sleeps: u64,
    /// Those of them that were taken inside of a message which by then had lasted longer than about eight of nine do, as counted while
    /// recording; absent in older runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<u64>,
    /// Ticks that found a thread of the target running and took none.
    pub skipped: u64,
    /// Of each place that threads of the target slept at, as context switches refer to it: its call stack's number + 1, 0: not known.
    /// Empty in older runs, and where none were taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sleep_places: Vec<u32>,
    /// Samples that found no room.
    pub lost: u64,
    /// Mean cost of one tick of the clock that found a thread of the target, ns, measured after the recording with the kernel's BPF statistics; absent when there
    /// was none meanwhile.
    pub ns_per_sample: Option<f64>,
    /// Time that it took to find the call stacks and the names, after the recording, ns.
    pub symbolise_ns: u64,
    /// User frames without a name, of all user frames of the stacks.
    pub unnamed: [u64; 2],
    /// Why there are no samples, or no names: each once, for the reader.
    pub notes: Vec<String>,
}

/// Looks at goroutines and tasks of asyncio, from outside of the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Routines {
    /// The runtimes of the target's programs: `go1.26.8`, `CPython 3.11.2`.
    pub versions: Vec<String>,
    /// Looks on disk.
    pub looks: u64,
    /// How often they were looked at.
    pub turns: u64,
    /// Time that it took, ns.
    pub cpu_ns: u64,
    /// Goroutines and tasks that were not looked at because there were too many.
    pub left_out: u64,
    /// Looks that were dropped because the goroutine or task went on meanwhile.
    pub torn: u64,
    /// Looks at memory that could not be read, or was no task's.
    pub unreadable: u64,
    /// Why tasks are not read, each once.
    pub notes: Vec<String>,
    /// Breakpoints where tasks of tokio run and wake; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breakpoints: Option<TaskBreakpoints>,
}

/// Breakpoints at which a runtime begins to run a task, and makes one ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskBreakpoints {
    /// Places of the program that have one.
    pub places: u64,
    /// Those among them at which a hit takes two traps: an instruction that the kernel does not emulate.
    pub stepped_places: u64,
    /// How often they were hit.
    pub hits: u64,
    /// Hits a second above which they are taken away.
    pub most_per_second: u64,
    /// What a hit takes with the recorder's program, ns: with one trap, with two; absent where that could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ns: Option<[f64; 2]>,
    /// When they were taken away because they were hit too often, CLOCK_MONOTONIC ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_ns: Option<u64>,
}

/// A container, and what it is called. Names are absent where no state file tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Container {
    /// Its id, 64 hexadecimal digits.
    pub id: String,
    /// Its name; in a pod that is unique in the pod only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The pod that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The namespace of that pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The process that recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recorder {
    /// Its process id.
    pub pid: u32,
    /// Its threads, while it recorded.
    pub threads: Vec<u32>,
    /// Rights that it gave up; absent where it kept all (and in runs of older recorders).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// Where it ran and how its work gave way to others; absent in runs of older recorders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// Where a recorder ran, so that the server did not wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Placement {
    /// The cores that it might use when the recording ended.
    pub cores: Vec<u32>,
    /// Whether these are fewer than it might use at first: those that the target used are left out.
    pub apart: bool,
    /// Whether its work gave way to every other task (SCHED_IDLE).
    pub idle: bool,
    /// Whether the kernel divides cores among sessions first, and the recorder's own had the least weight.
    pub own_session: bool,
    /// How often work waited so long for a core that it went on with the usual priority.
    pub hurried: u64,
    /// How often events were moved with the usual priority because a buffer was nearly full.
    pub nearly_full: u64,
}

/// What a recorder was still allowed to do when it read the files of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Confinement {
    /// The capabilities that it kept.
    pub capabilities: Vec<String>,
    /// A seccomp filter refused it what a recording does not need.
    pub seccomp: bool,
    /// What could not be given up, and why.
    pub notes: Vec<String>,
}

/// Where a recording stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being recorded, or killed while it was.
    #[default]
    Recording,
    /// Whole.
    Complete,
    /// Ended early (interrupted, out of disk); `partial` says why.
    Partial,
}

/// The recorded host.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// Machine architecture.
    pub arch: String,
    /// Online cores.
    pub cpus: u32,
    /// Processor model.
    pub cpu_model: String,
    /// The kernel's random id of this boot (`/proc/sys/kernel/random/boot_id`): process ids and settings mean something on
    /// this host and until it is booted again. Empty in older runs.
    pub boot_id: String,
}

/// What was recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Target {
    /// The option that chose it, as the user gave it.
    pub selector: String,
    /// The application's name: the command name of its first process.
    pub app: String,
    /// Its processes (thread group ids).
    pub pids: Vec<u32>,
    /// Those of them that still ran when this was written, so that an id that was given to another process since is not
    /// taken for one of them. Empty in older runs.
    pub processes: Vec<Process>,
    /// Its server ports.
    pub ports: Vec<u16>,
}

/// A process, told from others that had its id before or have it later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// When it started, clock ticks after the boot (field 22 of `/proc/PID/stat`).
    pub started: u64,
    /// Its command name.
    pub comm: String,
}

/// A network device as it was when the recording ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index in its network namespace.
    pub ifindex: u32,
    /// Whether it is in the network namespace that was recorded from; else it is in the target's, and `/sys/class/net` of
    /// the host does not show it.
    pub here: bool,
    /// When it is not here: a process of the target in its network namespace, to enter that by; else 0.
    pub pid: u32,
    /// Its driver (`virtio_net`, `veth`); empty when not known.
    pub driver: String,
    /// Receive queues, 0 when not known.
    pub rx_queues: u32,
    /// Transmit queues, 0 when not known.
    pub tx_queues: u32,
    /// Its interrupts; none for devices of software.
    pub irqs: Vec<u32>,
    /// Packets with data for the target that it received.
    pub packets: u64,
}

/// One hook.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hook {
    /// The tracepoint's name.
    pub name: String,
    /// The probe (folder) it belongs to.
    pub probe: String,
    /// Whether it was attached.
    pub on: bool,
    /// The program that served it, of those that can; empty when it was off, and in older runs.
    pub program: String,
    /// Why it was not.
    pub reason: Option<String>,
    /// Off unless asked for: other hooks tell the same.
    pub optional: bool,
    /// Mean cost of one run, ns, measured after the recording with the kernel's BPF statistics, less the cost of an
    /// empty program; absent when it did not run while that was measured.
    pub ns_per_run: Option<f64>,
    /// How often it ran while that was measured.
    pub measured_runs: u64,
    /// Events that it could not record: an interrupt came while it was running on that core.
    pub missed: u64,
}

/// One core's stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cpu {
    /// The core.
    pub cpu: u32,
    /// Events on disk.
    pub events: u64,
    /// Events lost because the buffer was full.
    pub lost: u64,
}

/// Time stamps of NICs in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NicStamps {
    /// Devices that were set to stamp when the recording began, and whose clocks were compared all through it.
    pub devices: Vec<StampingDevice>,
    /// Stamps of received packets that were recorded.
    pub received: u64,
    /// Stamps of sent packets that were recorded.
    pub sent: u64,
    /// Why there are no stamps of received packets.
    pub why: Option<String>,
    /// Why there are none of sent ones, when they were asked for.
    pub tx_why: Option<String>,
}

/// A device that stamps packets by a clock of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StampingDevice {
    /// Its name.
    pub name: String,
    /// Its index in its network namespace.
    pub ifindex: u32,
    /// The number of its clock: /dev/ptpN.
    pub phc: u32,
    /// Whether it is in the network namespace that was recorded from; else in the target's.
    pub here: bool,
    /// Which received packets it stamps, as ethtool names the filter: `all`, `ptp_v2_event`, `none`.
    pub rx_filter: String,
    /// Whether it stamps sent packets that ask for it.
    pub tx: bool,
}

/// What first saw a reply of each protocol on its way out: the start of the transmit leg (Tales of the Tail, T5). One of
/// [`send_entry::ALL`]; empty in older runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SendEntry {
    /// Of TCP.
    pub tcp: String,
    /// Of UDP.
    pub udp: String,
}

/// The sources of the send entry, best first.
pub mod send_entry {
    /// The kernel's tracepoint at the start of its send function (TCP, 6.16 and newer).
    pub const TRACEPOINT: &str = "tcp_sendmsg_locked";
    /// The begin of the kernel's send function itself (fentry).
    pub const FENTRY: &str = "fentry";
    /// The hook that the kernel asks whether a datagram may be sent (UDP on sockets that are not connected).
    pub const CGROUP: &str = "cgroup";
    /// The system call's entry.
    pub const SYSTEM_CALL: &str = "sys_enter";
    /// The hand-over to the queueing discipline.
    pub const QUEUE: &str = "net_dev_queue";
    /// The hand-over to the driver.
    pub const DRIVER: &str = "driver";
    /// All of them.
    pub const ALL: [&str; 6] = [TRACEPOINT, FENTRY, CGROUP, SYSTEM_CALL, QUEUE, DRIVER];
}

/// The per-core buffers.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Buffer {
    /// Events a core's buffer holds.
    pub slots_per_cpu: u64,
    /// Bytes of all buffers.
    pub bytes: u64,
    /// How often the buffers were emptied while recording.
    pub drains: u64,
}

/// First bytes of the target's segments, kept because `--protocol` asked for them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Payload {
    /// The application's protocol: `memcached`, `resp`, `http1` or `http2`; `auto`: each connection as what it begins like.
    pub protocol: String,
    /// Bytes of each segment that were kept at most.
    pub bytes: u32,
    /// Breakpoints at which the plain text of TLS was read; absent where none of the target's files has a function for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// Breakpoints at the functions through which plain text goes into TLS and comes out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tls {
    /// Files that have them, by name.
    pub files: Vec<String>,
    /// Places of these files that have one.
    pub places: u64,
    /// Calls of these functions.
    pub calls: u64,
    /// Calls a second above which they are taken away.
    pub most_per_second: u64,
    /// What a call takes with the recorder's program, ns; absent where that could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ns: Option<f64>,
    /// When they were taken away because there were too many calls, CLOCK_MONOTONIC ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_ns: Option<u64>,
}

/// What the recording cost.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Overhead {
    /// Mean ns of one event (hook runs weighted by how often they ran).
    pub ns_per_event: f64,
    /// Events recorded.
    pub events: u64,
    /// CPU time that the hooks took in all: events times ns per event.
    pub hooks_cpu_ns: u64,
    /// CPU time of Tailsight's own threads while recording (user + system).
    pub recorder_cpu_ns: u64,
}

impl RunMeta {
    /// Events lost: those that found a full buffer on their core, and those that interrupted their own hook.
    pub fn lost(&self) -> u64 {
        self.cpus.iter().map(|c| c.lost).sum::<u64>() + self.hooks.iter().map(|h| h.missed).sum::<u64>()
    }
    /// Events on disk over all cores.
    pub fn events(&self) -> u64 {
        self.cpus.iter().map(|c| c.events).sum()
    }
    /// What the hooks that were on make the start of the transmit leg. Runs of older recorders had no other sources than
    /// the tracepoint, the system calls and the driver.
    pub fn send_entry_of_hooks(&self) -> SendEntry {
        let on = |name: &str| self.hook(name).is_some_and(|h| h.on);
        let by = |name: &str| self.hook(name).filter(|h| h.on).map(|h| h.program.as_str());
        let later = || {
            let entries = [("sys_enter", send_entry::SYSTEM_CALL), ("net_dev_queue", send_entry::QUEUE)];
            entries.into_iter().find(|(name, _)| on(name)).map_or(send_entry::DRIVER, |(_, source)| source)
        };
        let tcp = match by("tcp_sendmsg_locked") {
            Some(program) if program.starts_with("fentry") => send_entry::FENTRY,
            Some(_) => send_entry::TRACEPOINT,
            None => later(),
        };
        let udp = match by("udp_sendmsg") {
            Some(program) if program.starts_with("cgroup") => send_entry::CGROUP,
            Some(_) => send_entry::FENTRY,
            None => later(),
        };
        SendEntry { tcp: tcp.into(), udp: udp.into() }
    }
    /// Where the transmit leg begins: as the run says, else as its hooks do.
    pub fn sends_from(&self) -> SendEntry {
        if self.send_entry.tcp.is_empty() { self.send_entry_of_hooks() } else { self.send_entry.clone() }
    }
    /// The hook of that name, if the run knows it.
    pub fn hook(&self, name: &str) -> Option<&Hook> {
        self.hooks.iter().find(|h| h.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(name: &str, program: &str, on: bool) -> Hook {
        Hook { name: name.into(), program: program.into(), on, ..Hook::default() }
    }

    #[test]
    fn where_the_transmit_leg_begins_is_the_best_hook_that_was_on() {
        let entry_of = |hooks: Vec<Hook>| {
            let entry = RunMeta { hooks, ..RunMeta::default() }.sends_from();
            (entry.tcp, entry.udp)
        };
        let is = |tcp: &str, udp: &str| (tcp.to_owned(), udp.to_owned());
        // A run of the recorder before this field.
        assert_eq!(entry_of(vec![hook("tcp_sendmsg_locked", "", true)]), is("tcp_sendmsg_locked", "driver"));
        assert_eq!(entry_of(vec![hook("tcp_sendmsg_locked", "", false)]), is("driver", "driver"));
        let fentry = hook("tcp_sendmsg_locked", "fentry_tcp_sendmsg_locked", true);
        let cgroup = hook("udp_sendmsg", "cgroup_sendmsg4", true);
        assert_eq!(entry_of(vec![fentry, cgroup]), is("fentry", "cgroup"));
        let calls = vec![hook("sys_enter", "sys_enter", true), hook("net_dev_queue", "net_dev_queue", true)];
        assert_eq!(entry_of(calls), is("sys_enter", "sys_enter"));
        assert_eq!(entry_of(vec![hook("net_dev_queue", "net_dev_queue", true)]), is("net_dev_queue", "net_dev_queue"));
    }
}
