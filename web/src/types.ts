// Generated from the types of tailsight-report (src/page_types.rs): `UPDATE_TYPES=1 cargo test -p tailsight-report`. Do not edit.

/** A fix that `tailsight fix` makes when it is told to, and takes back. */
export type Action = {
  /** What it changes. */
  changes: Change[];
  /** The command that shows it and asks. */
  command: string;
  /** Its number, from 1, in the order of the causes; fixes of several causes that change the same have the same. */
  n: number;
  /** Each change in words. */
  says: string[];
  /** The lines of `fix` that do the same in a shell, by their place. */
  shell: number[];
  /** What it is for, in a line. */
  title: string;
  /** What taking each change back does, in words. */
  undo: string[];
};

/** The run that this one is compared with. */
export type Against = {
  curves: Curve[];
  legs: Record<string, LegLatency>;
  run: string;
};

/** Messages of the same application that were served first. */
export type Ahead = {
  /** How many were ahead of a focus message, on average. */
  focus: number;
  /** Which ones were ahead of each message of the evidence, the last before it first; at most 16. */
  ids: [number, number[]][];
  /** Of a reference message. */
  reference: number;
};

/** A message's neighbours by latency. */
export type Beside = {
  /** The next faster one. */
  faster: number | null;
  /** Messages that are faster. */
  place: number;
  /** The next slower one. */
  slower: number | null;
};

/** The per-core buffers. */
export type Buffer = {
  /** Bytes of all buffers. */
  bytes: number;
  /** How often the buffers were emptied while recording. */
  drains: number;
  /** Events a core's buffer holds. */
  slots_per_cpu: number;
};

/** Messages, and what they refer to. */
export type Bundle = {
  /** Functions of the call stacks. */
  frames: string[];
  keys: RowKey[];
  messages: Timeline[];
  owners: OwnerOut[];
  slots: Slot[];
  /** Call stacks, outermost function first, as indices in `frames`. */
  stacks: number[][];
};

/** Threads of one name. */
export type ByThread = {
  /** Their part of the cause's deviation, ns. */
  deviation_ns: number;
  /** The name. */
  name: string;
  /** How many. */
  threads: number;
};

/** Who called a function. */
export type CallerPart = {
  /** Its name. */
  name: string;
  /** The part of the cause's deviation that is in the function called from there. */
  share: number;
};

/** What the objective allows, and what the load needs. */
export type Capacity = {
  /** Messages a second at which the ideal server passes the objective; null when it does at the lowest load looked at. */
  ideal_per_s: number | null;
  /** See `per_s`. */
  measured_ns: number;
  /** The objective. */
  objective: Objective;
  /** Cores that these keep busy at the run's load. */
  packet_cores: number;
  /** What a packet and what a message cost, ns: receiving it; and serving it, in user space and in the kernel. */
  packet_ns: number;
  /** Messages a second in the run, and the percentile then, ns. */
  per_s: number;
  /** The recorded server, by its messages served again; likewise. */
  replayed_per_s: number | null;
  /** See `packet_cores`. */
  request_cores: number;
  /** See `packet_ns`. */
  request_ns: number;
  /** Messages a second at which the workers have no time left. */
  saturated_per_s: number;
};

/** The message for which `watch` made a run of what its buffers held. */
export type Capture = {
  /** When its reply began, CLOCK_MONOTONIC ns. */
  at_ns: number;
  /** It came before the run begins: the buffers did not reach that far back. */
  began_before?: boolean;
  /** The server's port. */
  local_port: number;
  /** From the driver until the server had received it, ns. */
  receive_ns: number;
  /** The client's port. */
  remote_port: number;
  /** From there until its reply began, ns. */
  service_ns: number;
  /** The thread that replied. */
  tid: number;
  /** From the driver until its reply began, ns. */
  total_ns: number;
};

/** A category of causes (docs/categories.md). Its id is a contract: tables, JSON and scripts use it. */
export type Category = "interference" | "os-threads" | "receive-processing" | "transmit-processing" | "interrupts" | "hol-blocking" | "app-processing" | "runtime" | "backend-wait" | "wakeup-delay" | "nic-delay" | "softirq-delay" | "paging" | "lock-wait" | "pool-wait" | "scheduler-wait" | "disk-wait" | "throttled" | "stopped" | "tcp-recovery" | "connection-setup" | "client-wait" | "steal" | "profiler" | "unexplained" | "not-significant";

/** One named cause. */
export type Cause = {
  /** Those of them that `tailsight fix` can make and take back. */
  actions?: Action[];
  /** Of head-of-line blocking: the messages ahead. */
  ahead?: Ahead | null;
  /** Of a gap: what ran last before it in the evidence, with how often. */
  before?: string | null;
  /** Its category. */
  category: Category;
  /** 95 % bootstrap interval of the deviation; the deviation twice when no interval was asked for (a note says so). */
  ci95_ns: [number, number];
  /** Focus mean less reference mean. */
  deviation_ns: number;
  /** Ids of the focus messages that suffered most from it. */
  evidence: number[];
  /** One sentence in words for the terminal and the page. */
  explanation: string;
  /** Commands or steps that remove it, filled in with this run's pids: each of `steps` in a line. */
  fix: string[];
  /** The frames that the nesting rule added to it, outermost first: what of it. */
  frames?: NamedFrame[];
  /** The functions that it was in, largest first; what they leave of it no function could be named for. Empty below the evidence. */
  functions?: FunctionPart[];
  /** The part of its time in the focus of which the order of calls alone says that it is this message's: its thread had several requests, and nothing tells which of them asked the other server. Absent below 5 %. */
  guessed?: number | null;
  /** The one call path through the first of them that most of its time was on, outermost function first. */
  hot_path?: HotFrame[];
  /** How. */
  how: How | "";
  /** Inferred from counts, not measured. */
  inferred: boolean;
  /** Mean ns of a message: focus, reference. */
  mean_ns: [number, number];
  /** Of a wait that another task ended: what that one did meanwhile, largest first. Empty where that is not known. */
  meanwhile?: MeanwhilePart[];
  /** Focus messages that it hit (more of it than the reference mean). */
  messages: number;
  /** The task, function or flow that did it, with frames behind slashes. */
  name: string;
  /** Its deviation over what the messages in focus had beyond what an ideal server would also have given them, of the total leg (Tales of the Tail §3.2). Absent where no ideal fits, and where it gives them all that they had. */
  of_excess?: number | null;
  /** The owner paths in it with their deviations, largest first (at most 8). */
  paths: [string, number][];
  /** The phase of NSight §5.2 that found it; none of the row that sums up what is no cause. */
  phase: Phase | "";
  /** 1 for the largest. */
  rank: number;
  /** Application core or receive core. */
  role: Role;
  /** Of head-of-line blocking: what held the messages ahead, largest first. Empty when they were ordinary ones, and where the messages had been received and it explains little of what their thread did then. */
  root?: Root[];
  /** Samples in its time: focus, reference. Absent where the run has none. */
  samples?: [number, number] | null;
  /** Its part of the total deviation of the focus; may be negative. */
  share: number;
  /** Those as data. */
  steps?: Fix[];
  /** Who or what that is, as data. Absent in diagnoses of older versions. */
  subject?: Subject | null;
  /** How often it began (or was met running) in a message, on average: focus, reference. Tells more often from slower. */
  times: [number, number];
  /** The percentiles of all complete messages had this cause been absent, keyed as `latency_ns`, as a replay predicts them: with `--more`, for the causes of the total leg that have 1 % of the deviation and can be taken out. [`Diagnosis::ideal`] has their intervals (docs/ideal.md). */
  what_if: Record<string, number> | null;
  /** The process that did it, where the cause is a task. */
  who?: Who | null;
};

/** What is to become what. `netns`: a process in the network namespace that is meant, when that is another one than the caller's. */
export type Change = {
  /** As `net.ipv4.tcp_fastopen`. */
  key: string;
  kind: "sysctl";
  /** The network namespace. */
  netns?: number | null;
  /** Its value to be. */
  value: string;
} | {
  kind: "file";
  /** Its path. */
  path: string;
  /** What it is to hold. */
  value: string;
} | {
  /** The device. */
  device: string;
  /** `rx` or `tx`. */
  direction: string;
  /** As `rps_cpus`. */
  file: string;
  kind: "queues";
  /** The network namespace. */
  netns?: number | null;
  /** What it is to hold. */
  value: string;
} | {
  /** The cores, as `0,2-3`. */
  cpus: string;
  /** Their numbers. */
  irqs: number[];
  kind: "interrupts";
} | {
  /** The cores, as `0,2-3`. */
  cpus: string;
  kind: "pin";
  /** The processes. */
  pids: number[];
} | {
  /** The name. */
  comm: string;
  /** The cores, as `0,2-3`. */
  cpus: string;
  kind: "pin-named";
  /** The processes of that name that the run saw. While one of them is there and still has the name, only they are meant; else every process of the name, for what comes and goes has a new id each time. */
  seen?: number[];
} | {
  kind: "real-time";
  /** The processes. */
  pids: number[];
} | {
  kind: "disk-first";
  /** The processes. */
  pids: number[];
} | {
  kind: "idle-states";
  /** Microseconds. */
  slower_than_us: number;
} | {
  /** The network device. */
  device: string;
  kind: "coalescing";
  /** The network namespace. */
  netns?: number | null;
} | {
  kind: "no-limit";
  /** The limit. */
  limit: Limit;
  /** The processes. */
  pids: number[];
} | {
  kind: "thaw";
  /** The processes. */
  pids: number[];
} | {
  kind: "continue";
  /** The processes. */
  pids: number[];
};

/** The classes of requests that a diagnosis is limited to. */
export type ChosenClass = {
  /** The classes by name. */
  classes: string[];
  /** The class's name; of several the beginning that was asked for, with `*`. */
  name: string;
};

/** One class. */
export type Class = {
  focus: number;
  messages: number;
  name: string;
  p50_ns: number;
  /** Absent where the class is too small for it. */
  p99_ns: number | null;
};

/** The latency of a class of requests: a command with sizes, a method with the shape of its path. */
export type ClassLatency = {
  /** How many of them are in focus. */
  focus: number;
  /** How many messages have the leg complete. */
  messages: number;
  /** Its name, as `GET /report` or `get k16..32`; `unframed`: bytes in which no request is known. */
  name: string;
} & Record<string, number>;

/** Focus messages with the same dominant cause. */
export type Cluster = {
  /** Its category. */
  category: Category;
  /** The slowest of them. */
  example: number;
  /** The frames that the nesting rule added to it, outermost first: what of it. */
  frames?: NamedFrame[];
  /** Their mean latency. */
  mean_ns: number;
  /** How many messages. */
  messages: number;
  /** Its name. */
  name: string;
  /** The cause's rank in `causes`. */
  rank: number;
  /** Its role. */
  role: Role;
  /** Who or what that is, as data. Absent in diagnoses of older versions. */
  subject?: Subject | null;
};

/** What the columns are. `ids` `u32`, only where not every message has a row; `latency` `u32` or `f64`; `arrival` `u32` (since the message before) or `f64` (since the run's start); `flow`, `thread` and `class` `u16` or `u32`; `cause` bytes; `focus` `u32` ids; `times` `u32`, a row of `causes` for each of the focus. */
export type Columns = {
  /** Whether dominance is measured against the reference mean. */
  against_reference: boolean;
  arrival_type: "u32" | "f64";
  /** Causes of a row of `times`. */
  causes: number;
  /** Names of classes, by the numbers of the column; empty without a protocol, and then there is no column. */
  classes: string[];
  /** Of these, complete in the leg. */
  complete: number;
  /** Messages of the run. */
  count: number;
  flow_names: Record<string, string>;
  flow_type: "u16" | "u32";
  latency_type: "u32" | "f64";
  /** The mean of each cause over the reference, ns; absent where that is not in this run. */
  reference_ns: number[] | null;
  /** Whether only some of them are in the columns. */
  sampled: boolean;
  thread_type: "u16" | "u32";
  /** Threads that received messages, by the numbers of the column. */
  threads: number[];
};

/** What a recorder was still allowed to do when it read the files of the target. */
export type Confinement = {
  /** The capabilities that it kept. */
  capabilities: string[];
  /** What could not be given up, and why. */
  notes: string[];
  /** A seccomp filter refused it what a recording does not need. */
  seccomp: boolean;
};

/** A container, and what it is called. Names are absent where no state file tells them. */
export type Container = {
  /** Its id, 64 hexadecimal digits. */
  id: string;
  /** Its image. */
  image?: string | null;
  /** Its name; in a pod that is unique in the pod only. */
  name?: string | null;
  /** The namespace of that pod. */
  namespace?: string | null;
  /** The pod that it is in. */
  pod?: string | null;
};

/** The execution context that owned a core (or the reason why none did), as seen from one message. */
export type Context = {
  kind: "own";
} | {
  kind: "ahead";
} | {
  /** Its command name. */
  comm: string;
  kind: "sibling";
} | {
  /** Its command name. */
  comm: string;
  /** Whether it is a kernel thread. */
  kernel: boolean;
  kind: "foreign";
} | {
  kind: "profiler";
} | {
  kind: "idle";
} | {
  kind: "blocked";
} | {
  kind: "unknown";
};

/** What ran on a core while messages were in it. */
export type CoreContexts = {
  /** Contexts and their part of the core's time, largest first; what is not listed together as `others`. */
  contexts: [string, number][];
  /** The core; null for time that is bound to none (sleeps). */
  cpu: number | null;
  /** The same contexts as data; null for `others`. Absent in diagnoses of older versions. */
  kinds?: (Context | null)[];
  /** Its part of all of the messages' time. */
  share: number;
};

/** A part of the deviation (NSight §6.3), from 0 to 1: of reported causes in `coverage`, of time with an owner in `owned`. */
export type Coverage = {
  /** The focus messages with the smallest parts, least first: id and part. At most 16, none that has all of it. */
  least: [number, number][];
  /** Mean over the focus messages. */
  mean: number;
  /** Smallest over the focus messages. */
  min: number;
  /** Of the focus's total deviation. */
  overall: number;
  /** Median over the focus messages. */
  p50: number;
};

/** One core's stream. */
export type Cpu = {
  /** The core. */
  cpu: number;
  /** Events on disk. */
  events: number;
  /** Events lost because the buffer was full. */
  lost: number;
};

/** One distribution. */
export type Curve = {
  /** By percentile of a leg: 95 % interval, ns; without percentiles that need more messages. */
  intervals: Record<string, [number, number]>;
  /** `leg` or `stage`. */
  kind: "leg" | "stage";
  messages: number;
  /** A leg or a stage. */
  name: string;
  points: [number, number][];
};

/** A network device as it was when the recording ended. */
export type Device = {
  /** Its driver (`virtio_net`, `veth`); empty when not known. */
  driver: string;
  /** Whether it is in the network namespace that was recorded from; else it is in the target's, and `/sys/class/net` of the host does not show it. */
  here: boolean;
  /** Its index in its network namespace. */
  ifindex: number;
  /** Its interrupts; none for devices of software. */
  irqs: number[];
  /** Its name. */
  name: string;
  /** Packets with data for the target that it received. */
  packets: number;
  /** When it is not here: a process of the target in its network namespace, to enter that by; else 0. */
  pid: number;
  /** Receive queues, 0 when not known. */
  rx_queues: number;
  /** Transmit queues, 0 when not known. */
  tx_queues: number;
};

/** What was found out about a run. */
export type Diagnosis = {
  /** The run whose messages are the reference, when it is another one. */
  against: string | null;
  /** The application's name. */
  app: string;
  /** Causes, largest deviation first; the row `unexplained` comes last. Shares sum to 1. */
  causes: Cause[];
  /** The classes of requests that it is limited to: of their messages are all counts, percentiles and causes, but for `classes`. Absent where none were chosen (`--class`). */
  class?: ChosenClass | null;
  /** The latency of the leg under study by class of requests, most of the focus first, at most 32. Absent where no protocol was read. */
  classes?: ClassLatency[];
  /** The focus messages by the cause that most of their deviation is. */
  clusters: Cluster[];
  /** How much of the deviation the reported causes explain: rows whose interval does not hold 0 (NSight's coverage). */
  coverage: Coverage;
  /** The messages under study. */
  focus: Slice;
  /** What the ideal server would have given the focus too, and what each cause's absence would buy. Absent where `ideal_ns` is null. */
  ideal?: OfDiagnosis | null;
  /** The ideal server's percentiles on the same arrivals, keyed as `latency_ns`. Null where no queue fits, and for other legs than the total. */
  ideal_ns: Record<string, number> | null;
  /** Latency percentiles of the leg over all complete messages, keyed `mean`, `p50`, `p90`, `p99`, `p99.9`, `max`; a percentile that the messages are too few for is absent: 6 for p50, 36 for p90, 368 for p99, 3,688 for p99.9. */
  latency_ns: Record<string, number>;
  /** The leg under study. */
  leg: Leg;
  /** The latency of every leg by its name, whichever is under study. Absent in diagnoses of older versions. */
  legs: Record<string, LegLatency>;
  /** What was lost. */
  loss: Loss;
  /** Messages of the run. */
  messages: MessageCounts;
  /** What NSight §7.4 looks at beside the causes, when it was asked for. */
  more?: More | null;
  /** Messages on connections that requests may share; absent when there were none. */
  multiplexed?: Multiplexed | null;
  /** What to do next, most useful first: each of `next_steps` in a line. */
  next: string[];
  /** Those as data. */
  next_steps?: NextStep[];
  /** Why no causes can be said, when they cannot (N/A): then there are none, and the focus is empty. */
  not_available?: string | null;
  /** Rows whose 95 % interval holds 0: no causes. Together they are the row `not significant` of `causes`. */
  not_significant: Cause[];
  /** Notes for the reader: what limits this diagnosis. */
  notes: string[];
  /** What the recording cost. */
  overhead: Overhead2;
  /** How much of the deviation has a known owner, whether or not its row is a cause: all but `unexplained`. */
  owned: Coverage;
  /** What connections were taken to speak, of a run recorded with `--protocol auto`; absent for others. */
  protocols?: Protocols | null;
  /** The cohort they are compared with. */
  reference: Slice;
  /** The rules that decided what the sleeps of the focus were for, by their time, when they were asked for. */
  rules?: RuleShare[];
  /** The run's directory as the user gave it. */
  run: string;
  /** Always 1. */
  schema: number;
  /** Where the transmit leg begins, by the protocols of the messages (`tcp`, `udp`): as run.json's `send_entry`. */
  send_entry?: Record<string, string>;
  /** What the application sent that no message asked for; absent when there was none. */
  sent?: Sent | null;
  /** The slowest messages one by one, at most 10. */
  slowest: SlowMessage[];
  /** The stages of the messages, T1 to T6 of Tales of the Tail, focus beside reference. Empty where no message has all of them. */
  stages?: Stage[];
  /** The thresholds of what was inferred, by name (docs/thresholds.md), when rules were asked for. */
  thresholds?: Record<string, number>;
  /** Where a median message spends its time. */
  typical: Typical | null;
  /** The causes that were taken out before (`diagnose --without`): latencies, focus and causes are what the replay predicts. Absent when none were. */
  without?: Without | null;
  /** What messages are said to have worked themselves, beside what the application's threads ran. Absent for other legs than the total, and where messages are compared with another run's. */
  work?: WorkBalance | null;
};

/** What a task does while another one waits for it. */
export type Doing = "runs" | "has-no-core" | "sleeps-in-call" | "is-ready" | "sleeps" | "waits" | "waits-outside" | "time-came" | "not-known";

/** Which timelines are in the page: the ids of each element `timelines-0`, `timelines-1` and so on. */
export type Embedded = {
  /** How many of them are in focus. */
  focus: number;
  ids: number[][];
  /** How many complete messages there are. */
  of: number;
};

/** The queue. */
export type Fit = {
  /** Receive processing has cores of its own: it is no part of the service time, and every message has this much, ns, more. */
  apart_ns: number;
  /** See `threads`. */
  cores: number;
  /** See `user_ns`. */
  kernel_ns: number;
  /** What the application's threads that received no message ran, over the messages, ns: no part of the service time, for what of it is work for requests no event tells. */
  others_ns: number;
  /** How they queue. */
  queues: Queues;
  /** See `user_ns`. */
  receive_ns: number;
  /** Where it comes from: `run`, `given` or `calibrated`. */
  service_from: string;
  /** The service time of every message, ns. */
  service_ns: number;
  /** Threads that received messages, the busiest first, and on how many cores they ran. */
  threads: number;
  /** What a message costs in this run, ns: in user space, in the kernel, and for receiving its packets. */
  user_ns: number;
  /** Work that arrives over work that the workers can do. */
  utilisation: number;
  /** How many messages are served at once. */
  workers: number;
};

/** What removes a cause: a command with what it is for and its undo, or a step for a person. */
export type Fix = {
  /** The command, for a shell. Absent of a step. */
  command?: string | null;
  /** The command and its undo miss values: words in capitals stand for them, and `why` says how to find each. */
  fill_in?: boolean;
  /** The command that takes it back. Absent of a step. */
  undo?: string | null;
  /** What the command is for, or the step. */
  why: string;
};

/** What kind a [`Frame`] is of. Its name begins the frame's name in the output. */
export type FrameKind = "syscall" | "softirq" | "irq" | "vector" | "csd" | "work" | "idle-state" | "wake-pending" | "runnable" | "stack" | "woken-by" | "peer" | "turn" | "timer" | "put-aside" | "parked" | "task-ready" | "job-queued" | "serving" | "between-sends" | "throttled" | "stolen" | "reclaim" | "file-sync" | "kernel-lock" | "tcp-hole" | "request-arriving" | "unseen" | "connection-setup" | "stopped" | "tx-queued" | "nic-to-driver" | "driver-to-nic" | "tx-socket" | "tx-qdisc" | "tx-recovery" | "tx-dropped" | "migrate" | "function" | "meanwhile" | "made-ready" | "place" | "own-packet" | "packet" | "sleep" | "disk-sleep" | "io-sleep";

/** NSight's third phase on functions. Whether a call took longer or was made more often samples do not tell. */
export type FunctionHow = "more" | "unexpected";

/** A function's part of a cause. */
export type FunctionPart = {
  /** Of a function without a name, which `name` calls by its place: the functions that its file exports before and after it. */
  between?: [string, string] | null;
  /** Its build id; empty without one. */
  build_id: string;
  /** Who called `name`. */
  caller?: string | null;
  /** Those that called it, each with its part of the cause, where several did: the largest first. */
  callers?: CallerPart[];
  /** Where the reference has no sample of it: how likely that is by chance, if it had as much of it as the focus. Absent in diagnoses of older versions. */
  chance?: number | null;
  /** 95 % bootstrap interval of that, over messages. */
  ci95_ns: [number, number];
  /** Its samples' share of the cause's time, focus less reference, ns. */
  deviation_ns: number;
  /** What is known of it against the reference. */
  how: FunctionHow;
  /** The library's function that the time was in, when `name` is its caller. None where a runtime waited there for any of its tasks. */
  inside?: string | null;
  /** The interpreter that ran some function of the program there, which was not recorded. */
  interpreter?: string | null;
  /** Whether it is the kernel's. */
  kernel: boolean;
  /** Focus messages with a sample in it. */
  messages: number;
  /** The program or library. */
  module: string;
  /** The function: the innermost one of the program itself, where it called a library's. */
  name: string;
  /** The call path to it, outermost function first. */
  path: string[];
  /** What a runtime does there, where that is known. */
  runtime?: RuntimePart | null;
  /** Samples in it, or sleeps: focus, reference. */
  samples: [number, number];
  /** Its part of the cause's deviation. Functions that it called and that are parts of their own are not in it. */
  share: number;
  /** Its part with all that it called. Absent in diagnoses of older versions. */
  share_with_callees?: number | null;
  /** Source file and line, where debug information tells; else empty. */
  source: string;
  /** Time of each focus message in it above the mean reference message's, ns: 5th, 25th, 50th, 75th and 95th percentile, and the most. From samples it is an estimate: the message's time in the cause, divided as its samples there are, or as those of all where it has none. Absent in diagnoses of older versions. */
  spread_ns?: [number, number, number, number, number, number] | null;
  /** Whether it is where the thread slept; then the time is known to the ns, not from samples. */
  waits?: boolean;
};

/** The call stacks of the focus beside those of the reference. */
export type Functions = {
  frames: string[];
  /** How many stacks were left out. */
  left_out: number;
  /** Indices in `frames`, outermost first; ns in a mean message of the focus, and of the reference. */
  stacks: [number[], number, number][];
};

/** One hook. */
export type Hook = {
  /** How often it ran while that was measured. */
  measured_runs: number;
  /** Events that it could not record: an interrupt came while it was running on that core. */
  missed: number;
  /** The tracepoint's name. */
  name: string;
  /** Mean cost of one run, ns, measured after the recording with the kernel's BPF statistics, less the cost of an empty program; absent when it did not run while that was measured. */
  ns_per_run: number | null;
  /** Whether it was attached. */
  on: boolean;
  /** Off unless asked for: other hooks tell the same. */
  optional: boolean;
  /** The probe (folder) it belongs to. */
  probe: string;
  /** The program that served it, of those that can; empty when it was off, and in older runs. */
  program: string;
  /** Why it was not. */
  reason: string | null;
};

/** The recorded host. */
export type Host = {
  /** Machine architecture. */
  arch: string;
  /** The kernel's random id of this boot (`/proc/sys/kernel/random/boot_id`): process ids and settings mean something on this host and until it is booted again. Empty in older runs. */
  boot_id: string;
  /** Processor model. */
  cpu_model: string;
  /** Online cores. */
  cpus: number;
  /** Kernel release. */
  kernel: string;
};

/** A function of a hot path. */
export type HotFrame = {
  /** The program or library; `[kernel]`. */
  module: string;
  /** The function. */
  name: string;
  /** Whether it is of the program itself and not of a library. */
  own?: boolean;
  /** Part of the cause's samples in the focus that were in it or in what it called. */
  share: number;
  /** Source file and line, where known; else empty. */
  source: string;
};

/** How the focus differs. */
export type How = "unexpected" | "slower" | "more-frequent" | "gap" | "overlap" | "less";

/** The part of the latency of some messages that the ideal server would have given them too. */
export type Inherent = {
  /** The rest, ns. */
  excess_ns: number;
  /** Of it, what the ideal server would also have given each message at its moment, ns: never more than its latency. */
  inherent_ns: number;
  /** Mean latency, ns. */
  mean_ns: number;
};

/** A part of a message's way through the host (docs/lifetimes.md; Tales of the Tail, stages T1 to T6). */
export type Leg = "receive" | "service" | "transmit" | "total";

/** The latency of one leg over the messages that have it complete. */
export type LegLatency = {
  /** How many messages have it complete. */
  messages: number;
} & Record<string, number>;

/** A limit of a control group. */
export type Limit = "memory-high" | "cpu-quota";

/** What was lost. */
export type Loss = {
  /** Largest clock error, ns. */
  clock_error_ns: number;
  /** Events lost. */
  events: number;
};

/** What was done while messages waited for it. */
export type MeanwhilePart = {
  /** What the other task did. */
  doing: Doing;
  /** In which function of the program; empty where that is not known. */
  function: string;
  /** What its runtime did for it there, where it waited: `Go sleeping until a time`. */
  runtime?: string | null;
  /** The server whose answer it waited for, where it waited for one and it is known which. */
  server?: string | null;
  /** Its part of the cause in the focus. */
  share: number;
};

/** Counts of messages. */
export type MessageCounts = {
  /** Messages whose leg is complete. */
  complete: number;
  /** The others, by reason. */
  incomplete: Record<string, number>;
  /** Messages served out of order: one of the same application that arrived later was received before them. */
  out_of_order: number;
  /** Messages seen. */
  total: number;
};

/** NSight §7.4: beyond the causes of one slice. */
export type More = {
  /** What ran on each core while messages were in it (Figure 20): of the focus, then of the reference. */
  cores: [CoreContexts[], CoreContexts[]];
  /** By slice of the latencies, the causes by how many messages they hit (Figure 18 at every percentile). */
  pervasive: Pervasive[];
  /** What was queued ahead of the messages, by function (Figure 19). */
  queue: Queue[];
  /** Settings of the host that can lengthen the tail, as they were before the recording; absent of older runs. */
  settings?: Setting[];
};

/** Messages on connections that requests may share. Of those that do, a message is a segment and has no reply: only its receive leg is known. */
export type Multiplexed = {
  /** On connections of HTTP/2 in the clear: without a reply. */
  http2: number;
  /** On connections of TLS to ports on which requests and replies alternate: paired by order. */
  tls_in_turn: number;
  /** On connections of TLS to ports on which requests do not wait for each other: without a reply. */
  tls_shared: number;
  /** On connections of which it is not known what carries them, to ports on which requests do not wait for each other: paired by order, which is wrong for HTTP/2. */
  unknown_shared: number;
};

/** A frame with its numbers and symbols looked up: it means the same outside of its run. */
export type NamedFrame = {
  /** What it is. */
  kind: FrameKind;
  /** Which: the system call, softirq, function, task, server, port …; none where the kind says all or it is not known. */
  of?: string | null;
};

/** What to do next: words, and behind them a fix or a command of Tailsight. */
export type NextStep = {
  /** The command that does it. */
  command?: string | null;
  /** The fix that it is about. */
  fix?: Fix | null;
  /** What to do; empty where the fix says it all. */
  says: string;
};

/** Time stamps of NICs in a recording. */
export type NicStamps = {
  /** Devices that were set to stamp when the recording began, and whose clocks were compared all through it. */
  devices: StampingDevice[];
  /** Stamps of received packets that were recorded. */
  received: number;
  /** Stamps of sent packets that were recorded. */
  sent: number;
  /** Why there are none of sent ones, when they were asked for. */
  tx_why: string | null;
  /** Why there are no stamps of received packets. */
  why: string | null;
};

/** A percentile and what it may be at most. */
export type Objective = {
  /** Ns. */
  at_most_ns: number;
  /** Above 0 and below 1. */
  quantile: number;
};

/** The ideal beside a diagnosis. */
export type OfDiagnosis = {
  /** Of the mean latency of all complete messages. */
  all: Inherent;
  /** With an objective: the load that it allows. */
  capacity?: Capacity | null;
  /** Of the focus's mean latency: inherent and excess. */
  focus: Inherent;
  /** The queue that fits the server. */
  model: Fit;
  /** Percentiles as replayed with nothing taken out: how well the replay fits. */
  replayed_ns: Record<string, number>;
  /** What the absence of each cause would buy, by rank. */
  what_if: WhatIf[];
};

/** What the recording cost. */
export type Overhead = {
  /** Events recorded. */
  events: number;
  /** CPU time that the hooks took in all: events times ns per event. */
  hooks_cpu_ns: number;
  /** Mean ns of one event (hook runs weighted by how often they ran). */
  ns_per_event: number;
  /** CPU time of Tailsight's own threads while recording (user + system). */
  recorder_cpu_ns: number;
};

/** What the recording cost. */
export type Overhead2 = {
  /** Events. */
  events: number;
  /** Mean ns of one event. */
  ns_per_event: number;
};

/** An owner of time. */
export type OwnerOut = {
  /** Nothing ran: all frames are idle, asleep or not known. */
  gap: boolean;
  /** Context and frames, outermost first. */
  names: string[];
};

export type Page = {
  against: Against | null;
  /** What the categories are called, by their ids. */
  categories: Record<string, string>;
  /** The names of the rows that may be chance. */
  chance_titles: string[];
  /** What the contexts of `more` are in words. */
  contexts: Record<string, string>;
  cost: string;
  curves: Curve[];
  diagnosis: Diagnosis;
  functions: Functions | null;
  lost: string;
  messages: Columns;
  meta: RunMeta;
  /** How many messages each percentile needs. */
  needed: Record<string, number>;
  percentiles: string[];
  /** Means over the reference messages: the other half of each message's table. */
  reference: RowKey[];
  reference_ns: number;
  requests: Requests | null;
  /** Names of the roles. */
  roles: Record<string, string>;
  /** Whether the page is served by `tailsight view`, which has every timeline. */
  served: boolean;
  /** The names of the parts of each of the slowest messages. */
  slowest_titles: string[][];
  timelines: Embedded;
  /** The causes' names in words, by index. */
  titles: string[];
  /** The names of the rows of a median message. */
  typical_titles: string[];
  verdict: string;
};

/** First bytes of the target's segments, kept because `--protocol` asked for them. */
export type Payload = {
  /** Bytes of each segment that were kept at most. */
  bytes: number;
  /** The application's protocol: `memcached`, `resp`, `http1` or `http2`; `auto`: each connection as what it begins like. */
  protocol: string;
  /** Breakpoints at which the plain text of TLS was read; absent where none of the target's files has a function for it. */
  tls?: Tls | null;
};

/** The causes of one slice by how many messages they hit. */
export type Pervasive = {
  /** Rank of the cause, the part of the messages with more of it than the reference mean, its mean deviation; the most pervasive first. */
  causes: [number, number, number][];
  /** From this quantile. */
  from: number;
  /** Their mean latency. */
  mean_ns: number;
  /** Messages in it. */
  messages: number;
  /** To this one. */
  to: number;
};

/** Which phase found a row. */
export type Phase = "contexts" | "gaps" | "functions" | "overlaps";

/** Where a recorder ran, so that the server did not wait for it. */
export type Placement = {
  /** Whether these are fewer than it might use at first: those that the target used are left out. */
  apart: boolean;
  /** The cores that it might use when the recording ended. */
  cores: number[];
  /** How often work waited so long for a core that it went on with the usual priority. */
  hurried: number;
  /** Whether its work gave way to every other task (SCHED_IDLE). */
  idle: boolean;
  /** How often events were moved with the usual priority because a buffer was nearly full. */
  nearly_full: number;
  /** Whether the kernel divides cores among sessions first, and the recorder's own had the least weight. */
  own_session: boolean;
};

/** A process, told from others that had its id before or have it later. */
export type Process = {
  /** Its command name. */
  comm: string;
  /** Process id. */
  pid: number;
  /** When it started, clock ticks after the boot (field 22 of `/proc/PID/stat`). */
  started: number;
};

/** What each TCP connection's first bytes told that it speaks (`record --protocol auto`). */
export type Protocols = {
  /** Connections by their protocol: `memcached`, `resp`, `http1`, `http2`. */
  connections: Record<string, number>;
  /** Messages that are one request each. */
  requests: number;
  /** Messages in which no request is known: segments, and datagrams. */
  segments: number;
  /** Connections that begin like none of them; their messages are segments. */
  untold_connections: number;
};

/** What was queued ahead of the messages in one function. */
export type Queue = {
  /** Mean depth: focus, reference. */
  depth: [number, number];
  /** The function: `messages`, `app send`, `app receive`, `app processing`, `kernel receive`, `kernel send`. */
  function: string;
  /** Mean ns of a message: focus, reference. */
  mean_ns: [number, number];
  /** Focus messages with more of it than the reference's mean. */
  messages: number;
  /** The focus's depth less the reference's mean: 10th, 50th and 90th percentile. */
  relative: [number, number, number];
  /** Whose side. */
  role: Role;
};

/** How requests queue for workers. */
export type Queues = "one" | "one-a-worker";

/** The process that recorded. */
export type Recorder = {
  /** Rights that it gave up; absent where it kept all (and in runs of older recorders). */
  confinement?: Confinement | null;
  /** Its process id. */
  pid: number;
  /** Where it ran and how its work gave way to others; absent in runs of older recorders. */
  placement?: Placement | null;
  /** Its threads, while it recorded. */
  threads: number[];
};

/** The classes of a run. */
export type Requests = {
  classes: Class[];
  pairing: string;
  protocol: string;
};

/** On whose side of the hand-off a nanosecond was spent (NSight §3: R and A). */
export type Role = "R" | "A";

/** What held the messages that others waited behind: beyond what ordinary messages have of it. */
export type Root = {
  /** Its category. */
  category: Category;
  /** The functions that it was in, as those of a cause; shares are of what the messages had more of it than the reference. */
  functions?: FunctionPart[];
  /** The call path through the first of them, as that of a cause. */
  hot_path?: HotFrame[];
  /** How much longer it held one of the messages that it held, on average, ns. */
  mean_ns: number;
  /** How many messages it held. */
  messages: number;
  /** The task, function or flow that did it. */
  name: string;
  /** Its part of what the focus waited behind others. In older versions more than 1 where messages arrived while it lasted; absent in diagnoses of those before. */
  of_wait?: number | null;
  /** Whose side. */
  role: Role;
  /** Samples in its time: of those messages, of the reference. Absent where the run has none. */
  samples?: [number, number] | null;
  /** Its part of all that held the messages ahead, 0 to 1. */
  share: number;
  /** Who or what that is, as data. Absent in diagnoses of older versions. */
  subject?: Subject | null;
  /** How many messages of the focus waited behind these. Absent in diagnoses of older versions. */
  waiters?: number | null;
};

/** Looks at goroutines and tasks of asyncio, from outside of the target. */
export type Routines = {
  /** Breakpoints where tasks of tokio run and wake; absent without any. */
  breakpoints?: TaskBreakpoints | null;
  /** Time that it took, ns. */
  cpu_ns: number;
  /** Goroutines and tasks that were not looked at because there were too many. */
  left_out: number;
  /** Looks on disk. */
  looks: number;
  /** Why tasks are not read, each once. */
  notes: string[];
  /** Looks that were dropped because the goroutine or task went on meanwhile. */
  torn: number;
  /** How often they were looked at. */
  turns: number;
  /** Looks at memory that could not be read, or was no task's. */
  unreadable: number;
  /** The runtimes of the target's programs: `go1.26.8`, `CPython 3.11.2`. */
  versions: string[];
};

/** A row in the table of a message. */
export type RowKey = {
  category: Category;
  leg: Leg;
  name: string;
  /** Its mean over the reference messages. */
  reference_ns: number;
  role: Role;
  /** The name in words. */
  title: string;
};

/** What a rule for sleeps decided of the focus (docs/rules.md). */
export type RuleShare = {
  /** The time that it decided, and what was followed because of it: mean of a focus message, ns. */
  mean_ns: number;
  /** Focus messages of which it decided any. */
  messages: number;
  /** Its id. */
  rule: string;
};

/** A file of a run. */
export type RunFile = {
  /** Its bytes. */
  bytes: number;
  /** Its name, from the run's folder on: `events/cpu-0.arrow`. */
  name: string;
  /** Their SHA-256, 64 hexadecimal digits. */
  sha256: string;
};

/** The description of a run. */
export type RunMeta = {
  /** The buffers. */
  buffer: Buffer;
  /** Of a run that `watch` made of what its buffers held: the message for which it did; absent in others. */
  capture?: Capture | null;
  /** Largest error of a comparison of a NIC's clock, ns; 0 when no NIC stamps, for lifetimes use no other clock than CLOCK_MONOTONIC. (Older versions wrote how exactly the clocks of clocks.arrow were compared.) */
  clock_error_ns: number;
  /** The containers that tasks of the run were in, as the state files of their engines name them; empty where there were none, and in older runs. */
  containers?: Container[];
  /** Each core: what it recorded and lost. */
  cpus: Cpu[];
  /** Network devices that packets for the target came in on, those with interrupts first, then by packets; empty in older runs and where nothing could be read. */
  devices: Device[];
  /** SHA-256 of this file as it is without these 64 digits; empty in runs of version 1. */
  digest: string;
  /** Names of the drop reasons of the recorded kernel (`SKB_DROP_REASON_QDISC_DROP` is `QDISC_DROP`), by number; empty in older runs and without its type information. */
  drop_reasons: string[];
  /** Last nanosecond of the recording, CLOCK_MONOTONIC. */
  end_ns: number;
  /** The files of the run as they were written; empty while it is recorded, and in runs of version 1. */
  files?: RunFile[];
  /** Always `tailsight-run`. */
  format: string;
  /** Each hook: whether it was on, and what it cost. */
  hooks: Hook[];
  /** The host. */
  host: Host;
  /** Time stamps of NICs. */
  nic: NicStamps;
  /** What the recording cost. */
  overhead: Overhead;
  /** Why a run is partial. */
  partial: string | null;
  /** Payload that was kept (`--protocol`); absent: none. */
  payload: Payload | null;
  /** Who recorded; absent in older runs, and before the recording has begun. */
  recorder?: Recorder | null;
  /** Looks at goroutines that had a message; absent in older runs, without samples, and where the target is no Go program. */
  routines?: Routines | null;
  /** Samples of what the target's threads ran; absent in older runs and when none were asked for. */
  sampling?: Sampling | null;
  /** Where the transmit leg begins; [`RunMeta::sends_from`] knows it of older runs, too. */
  send_entry: SendEntry;
  /** Settings of the host and of the target's first process that can lengthen the tail, as they were before the recording; empty in older runs. */
  settings?: Setting[];
  /** The source of events: `ebpf`. */
  source: string;
  /** Kernel stacks that threads of the target slept with: function names, innermost first, separated by `;`, from the call of the scheduler on. Entry 0 is empty. */
  stacks: string[];
  /** First nanosecond of the recording, CLOCK_MONOTONIC. */
  start_ns: number;
  /** Wall-clock time at `start_ns`, ns since the epoch. In older runs earlier, by what preparing the recording then took. */
  started_unix_ns: number;
  /** Where the recording stands. */
  state: State;
  /** Names that events refer to by index; entry 0 is empty. */
  symbols: string[];
  /** The version of the tailsight that recorded. */
  tailsight: string;
  /** What was recorded. */
  target: Target;
  /** Functions that were traced from their begin to their end (`--uprobe`, `--usdt`, `--function`); absent without any. */
  traced?: Traced | null;
  /** File systems on which the target had files open for writing and whose fsync this recording does not see: neither by fentry programs nor by tracepoints. Empty in older runs. */
  unseen_syncs?: string[];
  /** The run format's version. */
  version: number;
  /** What a reader of the results should know. */
  warnings: string[];
};

/** What a runtime does in a function. */
export type RuntimePart = {
  /** Always `runtime`. */
  category: string;
  /** Where that is written. */
  documented: string;
  /** What it does. */
  does: string;
  /** What its documentation says to do about it. */
  fix: string;
  /** Of which runtime or server. */
  of: string;
  /** Nobody asked for it, as for a collection of garbage. */
  on_its_own_account: boolean;
};

/** Samples of what the target's threads ran. */
export type Sampling = {
  /** Cores with such a clock. */
  cpus: number;
  /** Samples that found no room. */
  lost: number;
  /** Why there are no samples, or no names: each once, for the reader. */
  notes: string[];
  /** Mean cost of one tick of the clock that found a thread of the target, ns, measured after the recording with the kernel's BPF statistics; absent when there was none meanwhile. */
  ns_per_sample: number | null;
  /** In a message that is slower than usual each tick takes a sample; of the other ticks, one in so many. 0 in older runs, where each tick took one. */
  others_one_in: number;
  /** Time on a core between two ticks of the clock, ns. */
  period_ns: number;
  /** Samples on disk. */
  samples: number;
  /** Ticks that found a thread of the target running and took none. */
  skipped: number;
  /** Of each place that threads of the target slept at, as context switches refer to it: its call stack's number + 1, 0: not known. Empty in older runs, and where none were taken. */
  sleep_places?: number[];
  /** Those of them that are of sleeps. */
  sleeps: number;
  /** Those of them that were taken inside of a message which by then had lasted longer than about eight of nine do, as counted while recording; absent in older runs. */
  slow?: number | null;
  /** Time that it took to find the call stacks and the names, after the recording, ns. */
  symbolise_ns: number;
  /** What one tick takes from what it interrupts, ns, measured before the recording; absent when the rate was asked for, and in older runs. */
  tick_ns?: number | null;
  /** User frames without a name, of all user frames of the stacks. */
  unnamed: [number, number];
};

/** What first saw a reply of each protocol on its way out: the start of the transmit leg (Tales of the Tail, T5). One of [`send_entry::ALL`]; empty in older runs. */
export type SendEntry = {
  /** Of TCP. */
  tcp: string;
  /** Of UDP. */
  udp: string;
};

/** Send calls that answer no received message; they are no messages of the run. */
export type Sent = {
  /** Unasked, to clients. */
  pushes?: SentCalls | null;
  /** To other servers, on connections that the application opened. */
  requests?: SentCalls | null;
};

/** Send calls of one kind. */
export type SentCalls = {
  /** Requests whose answer was seen. */
  answered: number;
  /** Their bytes. */
  bytes: number;
  /** How many. */
  calls: number;
  /** Those whose transmit leg was seen whole. */
  complete: number;
  /** To whom: address and port with the number of calls, the most called first; at most 8. */
  peers: [string, number][];
  /** Percentiles of their transmit leg, keyed as `latency_ns`. */
  transmit_ns: Record<string, number>;
  /** Percentiles of their wait, from the end of the send call until the last part of the answer could be read, keyed as `latency_ns`. */
  wait_ns?: Record<string, number>;
};

/** A setting that can lengthen the tail, as `tailsight doctor` reads it. */
export type Setting = {
  /** A stable name, snake_case; of an interface's setting it ends with `:` and the interface. */
  id: string;
  /** What a person calls it. */
  title: string;
  /** Its value. */
  value: string;
  /** `good`, `hurts`, `unknown` (not readable, or its effect cannot be seen) or `not_present`. */
  verdict: "good" | "hurts" | "unknown" | "not_present";
  /** Why, in a sentence or two. */
  why: string;
};

/** A slice of the latency distribution. */
export type Slice = {
  /** From this quantile, 0 to 1. */
  from: number;
  /** Their mean latency. */
  mean_ns: number;
  /** Messages in it that were looked into: of the run's own reference at most 5,000, evenly by latency; else all. */
  messages: number;
  /** To this quantile. */
  to: number;
};

/** An owner in a leg and a role. */
export type Slot = {
  /** Index of the cause in the diagnosis. */
  cause: number | null;
  /** Index in `keys`. */
  key: number;
  /** The leg: 0 receive, 1 service, 2 transmit. */
  leg: number;
  owner: number;
  role: Role;
};

/** One of the slowest messages. */
export type SlowMessage = {
  /** Messages of the application that were served ahead of it. */
  ahead: number;
  /** Its flow. */
  flow: string;
  /** Its id. */
  id: number;
  /** The leg's length. */
  latency_ns: number;
  /** Where its time went, largest first; they sum to the latency. */
  parts: TypicalRow[];
};

/** A stage of messages (Tales of the Tail §3.3.1): how long it took. */
export type Stage = {
  /** Percentiles over the focus messages, keyed as [`Diagnosis::latency_ns`]. */
  focus_ns: Record<string, number>;
  /** Its ends, `T1` to `T6`. */
  from: string;
  /** `stack`, `wake-up`, `copy`, `application` or `transmit`. */
  name: string;
  /** Over the reference messages. */
  reference_ns: Record<string, number>;
  /** See `from`. */
  to: string;
};

/** A device that stamps packets by a clock of its own. */
export type StampingDevice = {
  /** Whether it is in the network namespace that was recorded from; else in the target's. */
  here: boolean;
  /** Its index in its network namespace. */
  ifindex: number;
  /** Its name. */
  name: string;
  /** The number of its clock: /dev/ptpN. */
  phc: number;
  /** Which received packets it stamps, as ethtool names the filter: `all`, `ptp_v2_event`, `none`. */
  rx_filter: string;
  /** Whether it stamps sent packets that ask for it. */
  tx: boolean;
};

/** Where a recording stands. */
export type State = "recording" | "complete" | "partial";

/** Who or what had the time. */
export type Subject = {
  kind: "task";
  /** What it is called. */
  name: string;
} | {
  kind: "holder";
  /** What it is called. */
  name: string;
} | {
  kind: "other-thread";
  /** What it is called. */
  name: string;
} | {
  kind: "application";
  /** What it is called. */
  name: string;
} | {
  /** What the application is called. */
  application: string;
  kind: "other-threads";
} | {
  /** The frame. */
  frame: NamedFrame;
  kind: "frame";
} | {
  /** Its name, when it is known. */
  call?: string | null;
  kind: "system-call";
} | {
  /** Its name, when it is known. */
  call?: string | null;
  kind: "wait-in";
  /** A timer of the application's own ended it. */
  until_timer?: boolean;
  /** The task that ended it, where that is part of the name. */
  waker?: string | null;
} | {
  /** In which system call, when it is known. */
  call?: string | null;
  kind: "put-aside";
} | {
  kind: "wait-for";
  /** The task that ended it. */
  waker: string;
} | {
  /** What it does, as it reads after its name: `collecting garbage`. */
  does: string;
  kind: "runtime";
  /** Which. */
  of: string;
} | {
  kind: "peer";
  /** Its address and port. */
  name: string;
} | {
  kind: "turn";
  /** Its address and port. */
  server: string;
} | {
  kind: "class";
  /** The class. */
  name: string;
} | {
  kind: "later-arrivals";
} | {
  kind: "page-faults";
} | {
  kind: "after-migration";
} | {
  kind: "around-interrupts";
} | {
  kind: "named";
  /** In the table's words. */
  name: string;
};

/** A cause that was taken out. */
export type TakenOut = {
  /** Its category. */
  category: Category;
  /** Its name. */
  name: string;
  /** Whose side. */
  role: Role;
  /** Its share of the deviation of the total's focus, before. */
  share: number;
};

/** What was recorded. */
export type Target = {
  /** The application's name: the command name of its first process. */
  app: string;
  /** Its processes (thread group ids). */
  pids: number[];
  /** Its server ports. */
  ports: number[];
  /** Those of them that still ran when this was written, so that an id that was given to another process since is not taken for one of them. Empty in older runs. */
  processes: Process[];
  /** The option that chose it, as the user gave it. */
  selector: string;
};

/** Breakpoints at which a runtime begins to run a task, and makes one ready. */
export type TaskBreakpoints = {
  /** What a hit takes with the recorder's program, ns: with one trap, with two; absent where that could not be measured. */
  hit_ns?: [number, number] | null;
  /** How often they were hit. */
  hits: number;
  /** Hits a second above which they are taken away. */
  most_per_second: number;
  /** When they were taken away because they were hit too often, CLOCK_MONOTONIC ns. */
  off_ns?: number | null;
  /** Places of the program that have one. */
  places: number;
  /** Those among them at which a hit takes two traps: an instruction that the kernel does not emulate. */
  stepped_places: number;
};

/** A message's timeline. */
export type Timeline = {
  ahead: number;
  /** Ids of the messages that its thread received before it, the latest first. */
  ahead_ids: number[];
  bytes: number;
  class: string | null;
  flow: string;
  id: number;
  length: number;
  /** Each stage, and when it was reached. */
  marks: [string, number][];
  pairing: string | null;
  /** Bytes of its reply, where a protocol is known. */
  reply_bytes: number;
  /** Samples of the clock: (when, index in `stacks`). */
  samples: [number, number][];
  /** (ns, core or -1, index in `slots`, whether it begins), one after the other in one list. */
  spans: number[];
  tid: number;
};

/** Breakpoints at the functions through which plain text goes into TLS and comes out. */
export type Tls = {
  /** What a call takes with the recorder's program, ns; absent where that could not be measured. */
  call_ns?: number | null;
  /** Calls of these functions. */
  calls: number;
  /** Files that have them, by name. */
  files: string[];
  /** Calls a second above which they are taken away. */
  most_per_second: number;
  /** When they were taken away because there were too many calls, CLOCK_MONOTONIC ns. */
  off_ns?: number | null;
  /** Places of these files that have one. */
  places: number;
};

/** Functions that were traced from their begin to their end. */
export type Traced = {
  /** By number, as events refer to them. */
  functions: TracedFunction[];
  /** Calls of one function in a second from which on it is switched off. */
  most_per_second: number;
  /** What could not be traced, and why. */
  notes: string[];
  /** What the program takes besides, ns, of the hits while the cost of the hooks was measured; absent when there was none. */
  program_ns: number | null;
  /** What the traps of one hit (a begin or an end) take from the thread, ns, measured before the recording on a function of the recorder's own: at an instruction that the kernel does itself, and at others. Absent when it could not be measured. */
  trap_ns: [number, number] | null;
};

/** One of them. */
export type TracedFunction = {
  /** The option that named it, as it was given. */
  asked: string;
  /** Its build id; empty without one. */
  build_id: string;
  /** Calls by the target in the recording. */
  calls: number;
  /** How its end is known: `instructions` (each at which it can end), `uretprobe`, `probe`, `fexit`. */
  ends_by: string;
  /** What a hit takes from the thread, ns: at its begin, at its end. Absent when it could not be measured. */
  hit_ns?: [number, number] | null;
  /** `user`, `usdt` or `kernel`. */
  kind: string;
  /** The program or library without its folders; of the kernel `[kernel]`. */
  module: string;
  /** Its name, demangled; of USDT probes `provider:probe`. */
  name: string;
  /** When it was switched off because it was called too often, CLOCK_MONOTONIC ns; absent: never. */
  off_ns?: number | null;
};

/** Where a median message of the run spends its time: compared with nothing, so also what every message waits for. */
export type Typical = {
  /** From this quantile of the leg's latency, 0 to 1. */
  from: number;
  /** Their mean latency. */
  mean_ns: number;
  /** Messages in it that were looked into: at most 5,000, evenly by latency. */
  messages: number;
  /** Where it went, largest first; the rows sum to `mean_ns`. */
  rows: TypicalRow[];
  /** To this one. */
  to: number;
};

/** One row of a profile. */
export type TypicalRow = {
  /** What is known to cause such a row, and what to do. */
  advice?: string[];
  /** Its category. */
  category: Category;
  /** Where in the program it waited, largest first; empty where the recording does not say it. */
  functions?: FunctionPart[];
  /** As of a cause ([`Cause::guessed`]). */
  guessed?: number | null;
  /** The leg that it was in. */
  leg: Leg;
  /** Mean ns of a message. */
  mean_ns: number;
  /** The task, function or flow. */
  name: string;
  /** Application core or receive core. */
  role: Role;
  /** Its part of the whole. */
  share: number;
  /** Who or what that is, as data. Absent in diagnoses of older versions. */
  subject?: Subject | null;
};

/** The latencies had a cause been absent. */
export type WhatIf = {
  /** Of the cause. */
  category: Category;
  /** An interval at 95 % of each: what another recording would have measured without the cause. */
  ci95_ns: Record<string, [number, number]>;
  /** Percentiles of all complete messages without the cause; the server's own work and wake-ups, without which none is, are brought down to what the reference has of them. */
  latency_ns: Record<string, number>;
  /** Of the cause. */
  name: string;
  /** The cause's deviation over the focus's excess. */
  of_excess: number | null;
  /** Of the cause. */
  rank: number;
};

/** A process, or several of one name, with the threads that focus messages met. */
export type Who = {
  /** Their threads by name, largest deviation first; at most 8. */
  by_thread: ByThread[];
  /** The control group that all of them are in, when it is known. */
  cgroup: string | null;
  /** Its name. */
  comm: string;
  /** The id of the container that it is. */
  container: string | null;
  /** That container's name, where the state files of its engine tell it; in a pod it is unique in the pod only. */
  container_name?: string | null;
  /** Its image. */
  image?: string | null;
  /** The namespace of that pod. */
  namespace?: string | null;
  /** The process; of several, the one with most of the deviation. */
  pid: number;
  /** The processes, most of the deviation first; at most 8. */
  pids: number[];
  /** The pod that it is in. */
  pod?: string | null;
  /** How many processes. */
  processes: number;
  /** How many threads of them. */
  threads: number;
  /** The unit of systemd that this is. */
  unit: string | null;
};

/** Causes that were taken out of the messages before they were compared. */
export type Without = {
  /** What was taken out, the largest first. */
  causes: TakenOut[];
  /** An interval at 95 % of each: what another recording would have measured without the causes. */
  ci95_ns: Record<string, [number, number]>;
  /** As the replay predicts them without these causes. */
  latency_ns: Record<string, number>;
  /** Percentiles of the total latency as measured, keyed as [`Diagnosis::latency_ns`]. */
  measured_ns: Record<string, number>;
};

/** Own work of messages beside the time that there was for it; both are means of a message. */
export type WorkBalance = {
  /** What a message is said to have worked itself from its receive call to its reply, ns: of a sample of all messages. */
  own_ns: number;
  /** What all threads of the application ran, over the messages that they received, ns; 0 where that is not known. Own work above it counts work for several messages for each of them. */
  ran_ns: number;
};
