// Generated from the types of tailsight-report (src/page_types.rs): `UPDATE_TYPES=1 cargo test -p tailsight-report`. Do not edit.

/** What ends a measurement besides the method's own checks. */
export type Account = "stalled" | "agent" | "interrupted" | "server-gone" | "client-cpu" | "client-starved" | "open-loop" | "out-of-step" | "client";

/** Rates while measuring. */
export type Achieved = {
  /** Answered. */
  answered: number;
  /** Asked for on average; absent in a closed loop. */
  asked: number | null;
  /** Sent. */
  sent: number;
};

/** A comparison with an earlier run. */
export type Against = {
  /** By how much the other value may be exceeded, as a share of it. */
  allowed: number;
  /** Significantly faster. */
  better: boolean;
  /** Samples a block. */
  block: number;
  /** This one less the other, ns. */
  difference_ns: number;
  /** The other run's file. */
  file: string;
  /** Lower end of its interval at 95 %. */
  lower_ns: number;
  /** Of the other one, ns. */
  other_ns: number;
  /** p-value of "both are alike", two-sided. */
  p_different: number;
  /** p-value of "this run is not slower", by permutation of blocks. */
  p_slower: number;
  /** `p99`. */
  percentile: string;
  /** Upper end. */
  upper_ns: number;
  /** Of this run, ns. */
  value_ns: number;
  /** Significantly slower, and by more than allowed. */
  worse: boolean;
};

/** An agent on another machine (or in another process), as its coordinator knows it. */
export type AgentFacts = {
  /** HOST:PORT; the name that samples and accounts carry. */
  agent: string;
  /** The most that this can be wrong. */
  clock_bound_ns: number;
  /** Its clock minus the coordinator's. */
  clock_offset_ns: number;
  /** Cores on which it may run. */
  cores: number;
  /** Why it is no longer there. */
  gone: string | null;
  /** Its host's name. */
  host: string;
  /** Its kernel. */
  kernel: string;
  /** Whether its kernel stamps packets. */
  kernel_stamps: boolean;
  /** Its share of the rate. */
  rate: string;
  /** `symmetric`, `throughput` or `latency`. */
  role: string;
  /** Its seed. */
  seed: number;
  /** How much later than the first agent its schedule began, at most. */
  start_skew_ns: number;
  /** Where its load went. */
  target: string;
};

/** When requests are due. */
export type Arrivals = string;

/** An assumption that the number stands on. */
export type Assumption = {
  /** Why it was not checked, where it was not. */
  because?: string | null;
  /** Checks made of it. */
  checks: number;
  /** As in [`Checked::id`]. */
  id: AssumptionId;
  /** Of these, passed. */
  passed: number;
  /** Whether it held. */
  state: State;
};

/** Which assumption a check is of, or which account of the client and the server ended the measurement. */
export type AssumptionId = CheckId | Account;

/** Bytes, as base64 in JSON. */
export type Body = string;

/** Where the requests of a [burst](Plan::burst) go. */
export type BurstOver = "connection" | "connections";

/** What one of several agents saw. */
export type ByAgent = {
  /** Its name. */
  agent: string;
  /** Its samples in the result. */
  n: number;
  /** The percentiles asked for, by name, with intervals at 95 %; `null`: its samples cannot support it. */
  percentiles: Record<string, Estimate | null>;
};

/** Which assumption was checked. */
export type CheckId = "load" | "errors" | "client-lateness" | "arrivals" | "arrivals-superposed" | "arrival-independence" | "warm-up" | "unit-root" | "drift" | "tail-drift" | "run-length" | "independence" | "interval-width" | "agents-differ";

/** A check with its evidence. */
export type Checked = {
  /** Which assumption. */
  id: AssumptionId;
  /** Values behind it. */
  n: number;
  /** The p-value. */
  p_value: number | null;
  /** Did it hold? */
  passed: boolean;
  /** The statistic. */
  statistic: number | null;
  /** The agent or percentile it is about. */
  subject: string | null;
  /** The test. */
  test: string;
  /** Its bound, or that of the p-value. */
  threshold: number | null;
  /** Whether the threshold bounds the p-value from below rather than the statistic from above. */
  threshold_is_p: boolean;
};

/** The client. */
export type Client = {
  /** Agents. */
  agents: string[];
  /** Share of its time that the busiest thread ran. */
  busiest_thread: number;
  /** How exactly clocks were compared, at worst. */
  clock_error_ns: number;
  /** CPU time of the loading threads, user and system. */
  cpu_ns: number;
  /** The same over the requests sent: the client's price. */
  cpu_ns_per_request: number | null;
  /** Share of the samples of which both times are the NIC's. */
  hardware: number;
  /** Whether every loading thread ran before all threads of ordinary priority. */
  real_time: boolean;
  /** Share of the samples whose reply was read together with later bytes and shares their stamp: by how much each may have arrived earlier is in the intervals. */
  shared: number;
  /** How many samples that are. */
  shared_samples: number;
  /** Share of the samples whose receive time is a stamp, the kernel's or a NIC's. */
  stamped: number;
  /** Where time stamps come from: `software` (the kernel), `hardware of eth0 (/dev/ptp0)`, `none` (the client's clock), or several, of several agents. */
  stamps: string | null;
  /** What would make it, where something would. */
  stamps_hint: string | null;
  /** Why a NIC does not stamp, where it does not. */
  stamps_why: string | null;
  /** Largest share of its time that a thread was ready to run and did not. */
  starved_thread: number;
  /** Loading threads, all together. */
  threads: number;
};

/** A reason why a run is not a valid measurement of the server, with its evidence. */
export type Complaint = {
  kind: "late";
  /** The plan's limit, ns. */
  limit_ns: number;
  /** The largest, ns. */
  max_ns: number;
  /** 99th percentile of its lateness, ns. */
  p99_ns: number;
  /** Over this many requests. */
  requests: number;
} | {
  kind: "out_of_cpu";
  /** The limit. */
  limit: number;
  /** CPU time over wall time. */
  share: number;
  /** Which one. */
  thread: number;
} | {
  kind: "starved";
  /** The limit. */
  limit: number;
  /** Times that it was taken off the core. */
  preempted: number;
  /** The same over wall time. */
  share: number;
  /** Which one. */
  thread: number;
  /** Time ready to run without running, ns. */
  waited_ns: number;
} | {
  /** Requests that waited until a connection had room. */
  held: number;
  /** From this share on they are named as the reason. */
  held_limit: number;
  /** Their share of all. */
  held_share: number;
  kind: "blocked";
  /** The limit. */
  limit: number;
  /** The longest such wait, ns. */
  longest_ns: number;
  /** How many. */
  requests: number;
  /** The same over all that were due. */
  share: number;
} | {
  /** Requests/s asked for, on average. */
  asked_per_s: number;
  kind: "rate_missed";
  /** The limit, relative: 0.02. */
  limit: number;
  /** Requests/s sent. */
  sent_per_s: number;
} | {
  /** All counts. */
  counts: Counts;
  kind: "failed";
  /** The first few reasons for which connections broke. */
  reasons: string[];
} | {
  kind: "given_up";
  /** The first few reasons for which connections broke. */
  reasons: string[];
  /** Requests that were sent. */
  requests: number;
  /** How often. */
  times: number;
  /** Replies without a request: the replies before them may belong to other requests too. */
  unasked: number;
} | {
  /** Whether that was invalid data rather than a closed connection. */
  garbage: boolean;
  kind: "server_gone";
  /** The last thing that went wrong. */
  reason: string;
} | {
  kind: "client_failed";
  /** What failed. */
  reason: string;
} | {
  kind: "clock_stepped";
  /** By how much at most, ns. */
  largest_ns: number;
  /** Samples whose stamps were impossible. */
  refused_stamps: number;
  /** How often. */
  steps: number;
} | {
  kind: "nic_clock_stepped";
  /** By how much at most, ns. */
  largest_ns: number;
  /** Samples with a stamp that was impossible. */
  refused_stamps: number;
  /** How often. */
  steps: number;
} | {
  /** How many had room. */
  kept: number;
  kind: "samples_lost";
  /** How many. */
  lost: number;
};

/** Requests, counted. `intended = sent + unsent`, and `sent` is the sum of all the statuses. */
export type Counts = {
  /** How often a request was due and found every connection full: those that were due until one had room waited with it. */
  blocked: number;
  /** Not answered before the connection ended. */
  closed: number;
  /** Answered with an error. */
  error: number;
  /** Not answered before the connection sent bytes that are not the protocol's. */
  garbage: number;
  /** Requests that waited until a connection had room: the ones counted as blocked, and those that were due behind them. */
  held: number;
  /** Requests that were due. */
  intended: number;
  /** Datagrams not answered in time. */
  lost: number;
  /** Answered without the thing asked for. */
  miss: number;
  /** Answered as expected. */
  ok: number;
  /** Connections made again. */
  reconnects: number;
  /** Of the replies, redirects (HTTP 3xx but 304): they are not followed. */
  redirects: number;
  /** Of these, completely given to the kernel. */
  sent: number;
  /** Not answered by the end of the drain. */
  unanswered: number;
  /** Replies without a request, or to a request that was given up. */
  unasked: number;
  /** Of these, never completely sent: every connection was full or broken until the end. */
  unsent: number;
  /** Answered with something else. */
  wrong: number;
};

/** On which side of its limit an objective is. */
export type Decision = "met" | "missed" | "open";

/** A percentile with its interval. */
export type Estimate = {
  /** Lower end. */
  lower: number;
  /** Upper end. */
  upper: number;
  /** The percentile. */
  value: number;
};

/** What a measurement says of the load that was asked for. */
export type Fate = "number" | "server" | "client" | "unclear";

/** What was found. */
export type Highest = {
  /** What bounds the rate: `server`, `client` (it could not send more), `limit` (the highest rate allowed). */
  bound: string;
  /** How surely, by a run on its own. */
  confidence: number | null;
  /** The objective. */
  objective: Objective;
  /** The highest rate that meets it. */
  rate: number | null;
  /** One sentence where there is no rate. */
  reason: string | null;
  /** Where the threshold is believed to be: 90 % interval. */
  threshold: [number, number] | null;
  /** Every try, in order. */
  tries: Try[];
  /** `met`, `not-met` (at no rate that was tried) or `not-available`. */
  verdict: string;
};

/** A request that is sent again and again. */
export type HttpRequest = {
  /** The body, in base64. */
  body?: Body | null;
  /** Header fields besides `Host` and `Content-Length`; a `Host` among them stands in for the target's. */
  fields?: [string, string][];
  /** `GET`, `POST`, … */
  method: string;
  /** Path and query. */
  path: string;
  /** How often it is sent, beside the weights of the others. */
  weight: number;
};

/** Latency in a slice of time; ns, time in s since the start of the load. */
export type Instant = {
  at: number;
  dropped: boolean;
  max: number;
  p50: number;
  p99: number | null;
};

/** How an interval was made. */
export type IntervalMethod = {
  method: "order-statistic";
} | {
  /** Batches behind the variance. */
  batches: number;
  /** As many independent samples would know as much. */
  effective_n: number;
  method: "effective-sample-size";
} | {
  /** As many independent samples would know as much. */
  effective_n: number;
  method: "self-normalised";
};

/** The samples that are in the file, whatever the verdict. */
export type Kept = {
  /** The slowest. */
  max: number | null;
  /** How many. */
  n: number;
  /** Median of the latency that was asked about. */
  p50: number | null;
  /** 99th percentile. */
  p99: number | null;
};

/** A percentile that is known. */
export type Known = {
  /** What was asked: `p99:10us@95`. */
  asked: string;
  /** How the interval was made; print it unless it is `order-statistic`. */
  how: IntervalMethod;
  /** Confidence level, 0.95. */
  level: number;
  /** Lower end of the interval, ns. */
  lower_ns: number;
  /** Samples behind it. */
  n: number;
  /** `p99`. */
  percentile: string;
  /** 0.99. */
  quantile: number;
  /** Upper end, ns. */
  upper_ns: number;
  /** The percentile, ns. */
  value_ns: number;
};

/** Which latency the percentiles are of. */
export type Latency = "response" | "service";

/** The client's lateness. */
export type Lateness = {
  /** The largest. */
  max: number | null;
  /** Requests behind it. */
  n: number;
  /** 99th percentile of the part of the lateness for which the client was idle and woke too late. The rest it was busy sending and reading other requests. */
  overslept_p99: number | null;
  /** Median; at most 1.6 % too high, as are the others. */
  p50: number | null;
  /** 99th percentile. */
  p99: number | null;
  /** 99.9th percentile. */
  "p99.9": number | null;
  /** By name (`p90`), those of the percentiles reported; empty in older files. */
  percentiles?: Record<string, number | null>;
};

/** Beyond this the client was not good enough and the run is flagged. Other accounts have fixed limits ([`Complaint`](crate::Complaint) names them); older files contain them, and they are read but not used. */
export type Limits = {
  /** 99th percentile of the client's own lateness (clock at the send call minus intended), ns: also the goal of its waiting. */
  lateness_p99_ns: number;
};

/** The load in a slice of time: requests/s, the client's largest lateness in ns. */
export type Load = {
  answered: number;
  at: number;
  late: number;
  sent: number;
  target: number;
};

/** What the page is given. */
export type LoadData = {
  /** The answer of a sweep, or none. */
  headline: string | null;
  results: Result[];
  sweep: Sweep | null;
};

/** Where the client ran. */
export type Machine = {
  /** Share of all cores' time that anybody ran while measuring. */
  busy: number | null;
  /** Cores on which the client may run; of agents, those of the smallest host. */
  cores: number;
  /** Of that share, what was not this process: the server, where it is here, and all other programs. */
  others: number | null;
  /** Share of the time that some task waited for a core, over the last ten seconds (/proc/pressure/cpu). */
  pressure: number | null;
  /** Whether the server has an address of this host, or a socket in its file system; absent where it was not looked at (agents). */
  server_is_here: boolean | null;
  /** Share of all cores' time that a hypervisor gave to others. */
  stolen: number | null;
};

/** Whether an objective is met. */
export type Met = {
  /** Of these, how many took as long as the limit, or longer, or failed. */
  above: number;
  /** Confidence that the percentile of what was measured is below the limit; absent if the samples cannot tell. */
  confidence: number | null;
  /** On which side of the limit it is, with 95 % confidence; `open` in older files, whose `met` says more. */
  decision: Decision;
  /** The decision is `met`. */
  met: boolean;
  /** Samples behind the decision. */
  n: number;
  /** The objective. */
  objective: Objective;
  /** Why it is open; or why it is missed, where no share of slow requests says so. */
  reason?: string | null;
};

/** A percentile and its limit. */
export type Objective = string;

/** A load. Make one with [`Plan::new`], change fields, [`Plan::validate`] it; [`Driver::start`](crate::Driver::start) does so as well. */
export type Plan = {
  /** The arrivals. */
  arrivals: Arrivals;
  /** Requests that are due at once at each arrival. Arrivals are rarer by this factor: the rate stays the same. */
  burst: number;
  /** How a burst is distributed over connections. */
  burst_over: BurstOver;
  /** Microseconds of SO_BUSY_POLL on every socket; 0: none. */
  busy_poll_us: number;
  /** Connections over all threads (datagrams: sockets). */
  connections: number;
  /** The cores to pin to, one a thread; empty: chosen. */
  cpus: number[];
  /** How long replies are waited for after the last request, ns. */
  drain_ns: number;
  /** How long requests are sent, ns; `None`: until stopped. */
  duration_ns: number | null;
  /** When the client is not good enough. */
  limits: Limits;
  /** After this long without a reply a datagram request is lost, ns. */
  lost_after_ns: number;
  /** Room for samples, over all threads; allocated before the start. Samples beyond it are counted. */
  max_samples: number;
  /** Room for [sends](crate::Send), over all threads. All requests of measured windows are recorded there, sampled or not; what has no room is left out, and the arrivals are then known up to there. */
  max_sends: number;
  /** Requests that may be outstanding on a connection. A request that is due while every connection has this many waits, counted as blocked: the loop is then not open. */
  outstanding: number;
  /** How long the server may take to accept, and to answer before the load, ns. */
  patience_ns: number;
  /** Whether threads are pinned at all. */
  pin: boolean;
  /** The protocol. */
  protocol: string;
  /** How often, over all threads. Not used by replays and closed loops. */
  rate: Rate;
  /** Whether threads run before all of ordinary priority, where that is permitted. */
  real_time: boolean;
  /** When to read. */
  receive: Receive;
  /** Share of the requests whose times are kept, chosen at random. */
  sampling: number;
  /** Seed of everything that is drawn. */
  seed: number;
  /** The name that TLS asks for and checks; `None`: the target's host. */
  server_name: string | null;
  /** Whether the kernel is asked for time stamps. */
  stamps: boolean;
  /** The server. */
  target: Target;
  /** What threads are called, before `-` and their number; at most 12 bytes. */
  task: string;
  /** Threads, each pinned to a core of its own where there are enough. */
  threads: number;
  /** Whom TLS trusts. */
  trust: Trust;
  /** How to wait. */
  wait: Wait;
  /** The requests. */
  workload: Workload;
};

/** A measurement at a rate. */
export type Point = {
  /** What it says of the load. */
  fate: Fate;
  /** The rate asked for, requests/s. */
  rate: number;
  /** The measurement. */
  report: Report;
};

/** The popularity of keys. */
export type Popularity = string;

/** Requests per second over time, for the whole load. */
export type Rate = string;

/** When replies are read. */
export type Receive = "auto" | "eager" | "lazy";

/** Something that was wrong. */
export type Remark = {
  /** As data. */
  complaint: Complaint;
  /** In words. */
  text: string;
};

/** A measurement. */
export type Report = {
  /** The comparison with another run, where one was asked for. */
  against?: Against | null;
  /** The agents on other machines, where there were any. */
  agents?: AgentFacts[];
  /** What is assumed, and whether it held: each assumption once, from the checks and the verdict together. Empty in older files. */
  assumptions?: Assumption[];
  /** Unix time at which the load began, s. */
  began_s: number;
  /** The percentiles asked for, agent by agent, where several have samples. */
  by_agent?: ByAgent[];
  /** All checks of the last look at the data. */
  checks: Checked[];
  /** What the client was and cost. */
  client: Client;
  /** What was wrong with the client or the server besides, in words and as data. */
  complaints: Remark[];
  /** All requests, by what became of them. */
  counts: Counts;
  /** Values of the samples kept where the verdict is N/A: what there is, not a result. */
  kept: Kept;
  /** `measurement`. */
  kind: string;
  /** Which latency the verdict is of. */
  latency: Latency;
  /** The client's own lateness over all requests: sent less due. */
  lateness_ns: Lateness;
  /** What the latencies leave out, in a sentence; absent in an open loop. */
  leaves_out?: string | null;
  /** The client's machine; absent in older files. */
  machine: Machine;
  /** Whether an objective is met at this rate, where one was asked about. */
  objective?: Met | null;
  /** The load, whole: enough to repeat it. */
  plan: Plan;
  /** What was spoken to it. */
  protocol: string;
  /** What was asked and what came of it while measuring. */
  rate: Achieved;
  /** From due to answered; absent values where the run does not bear them. */
  response_ns: Summary;
  /** Why the measurement started again, each time that it did. */
  restarts: string[];
  /** [`SCHEMA`]. */
  schema: number;
  /** From sent to answered. */
  service_ns: Summary;
  /** What the method did, in order. */
  steps: StepTaken[];
  /** The server. */
  target: string;
  /** What is known, or why nothing is. */
  verdict: Verdict;
  /** The program's version. */
  version: string;
  /** Where the warm-up ended, since the start of the load, ns; absent where none was seen. */
  warm_up_ns: number | null;
};

/** A measurement as the page draws it. */
export type Result = {
  evidence: string[];
  /** Whether the curves show the samples of the verdict; otherwise all kept samples. */
  has_samples: boolean;
  headline: string;
  /** Empty if the measurement was read back: a sample file does not contain it. */
  load: Load[];
  /** What distinguishes it from the others: its file, or its rate in a sweep. */
  name: string;
  over_time: Instant[];
  report: Report;
  /** (ns, share of the samples as slow or slower). */
  response: [number, number][];
  samples: number;
  service: [number, number][];
};

/** How large something is, bytes. Draws are rounded to whole bytes and cut at the limits of what is drawn. */
export type Size = string;

/** Whether an assumption held. */
export type State = "held" | "not-held" | "allowed-for" | "not-checked";

/** A step of the method. */
export type StepTaken = {
  /** When it ended, since the start of the load, s. */
  at_s: number;
  /** What was done and what came of it. */
  what: string;
};

/** A latency over the samples that bear the result. */
export type Summary = {
  /** Of each percentile that is `null`, why. Empty in older files. */
  because?: Record<string, string>;
  /** The slowest. */
  max: number | null;
  /** Their mean. */
  mean: number | null;
  /** Samples behind it; 0 if there are too few for it. */
  n: number;
  /** By name (`p99`), with intervals at 95 %; `null`: the samples cannot support it. */
  percentiles: Record<string, Estimate | null>;
};

/** Latency against load. */
export type Sweep = {
  /** The highest rate with a number, requests/s. */
  highest_kept: number | null;
  /** `sweep`. */
  kind: string;
  /** Whose limit that is. */
  limited_by: Fate | null;
  /** The lowest rate above it that was not kept. */
  lowest_missed: number | null;
  /** The search for an objective, where there was one. */
  objective?: Highest | null;
  /** By rising rate. */
  points: Point[];
  /** What was spoken to it. */
  protocol: string;
  /** [`SCHEMA`]. */
  schema: number;
  /** The server. */
  target: string;
};

/** A server, by the transport that reaches it. */
export type Target = string;

/** Which certificates TLS trusts. */
export type Trust = "system" | {
  file: string;
} | "anyone";

/** A measurement at a rate. */
export type Try = {
  /** Confidence that it meets the objective; absent where nothing can be known. */
  confidence: number | null;
  /** Whether it is a separate run that confirms the answer. */
  confirms: boolean;
  /** Whether it is met at this rate; `open` in older files, whose confidence says more. */
  decision: Decision;
  /** Whose fault that is. */
  fate: Fate;
  /** The rate. */
  rate: number;
  /** Why it is open. */
  reason: string | null;
  /** The percentile, ns; absent where it is N/A. */
  value_ns: number | null;
};

/** A percentile of which nothing is known. */
export type Unknown = {
  /** What was asked: `p99:10us@95`. */
  asked: string;
  /** Why there is not even an interval. */
  because: string;
  /** `p99`. */
  percentile: string;
};

/** A number with its interval, or N/A. */
export type Verdict = {
  /** One for each that was asked, in that order. */
  percentiles: Known[];
  verdict: "number";
} | {
  /** Those that are known less narrowly, with the interval that there is. */
  bounds?: Known[];
  /** The check that failed. */
  failed: Checked;
  /** One sentence: what would help. */
  hint: string;
  /** Those of which nothing is known. */
  missing?: Unknown[];
  /** Why nothing is known of these, in a sentence; absent where there are none. */
  no_bounds_because?: string | null;
  /** The percentiles asked for that are known all the same, as narrowly as asked. Each of them is here, in `bounds` or in `missing`; in older files, perhaps in none. */
  passed?: Known[];
  /** One sentence: what happened. */
  reason: string;
  verdict: "not-available";
};

/** How a thread waits for the next request to be due. */
export type Wait = string;

/** Requests by their content. As text: an optional preset (`etc`, `usr`), then `name=value` pairs, separated by `;`: `usr;keys=1M;popularity=zipf:0.99`, `key=fixed:20;value=uniform:10,100;sets=0.1;preload=no`. */
export type Workload = {
  /** Which HTTP status codes are good. */
  good_statuses: string;
  /** What key names begin with (`prefix`). */
  key_prefix: string;
  /** Seed of the sizes of keys and values (`key-seed`): it must be the same on all agents, because replies are checked by it. */
  key_seed: number;
  /** Sizes of key names, bytes (`key`), at least the prefix and the digits of the highest number. */
  key_size: Size;
  /** How many keys there are (`keys`). */
  keys: number;
  /** Sizes of values are cut here, bytes (`max-value`). */
  max_value: number;
  /** memcached text: meta commands with opaque ids (`meta=yes`). */
  meta: boolean;
  /** What HTTP requests ask for (`path`), where [`Workload::requests`] has none. */
  path: string;
  /** The popularity of keys (`popularity`). */
  popularity: Popularity;
  /** Whether every key is stored before the load (`preload=yes|no`). Without it, reads may miss. */
  preload: boolean;
  /** The HTTP requests that are sent, by weight; empty: `GET` of the path, and `POST` of a value for what stores. */
  requests?: HttpRequest[];
  /** Redis: RESP3 (`resp3=yes`). */
  resp3: boolean;
  /** Service times asked of the synthetic server, in ns and any of the forms of a size (`service=exponential:10000`). */
  service: Size;
  /** Share of requests that store, 0 to 1 (`sets`, or `get:set=30:1`). */
  sets: number;
  /** Sizes of values, bytes (`value`); of the message for protocols without keys (echo). */
  value_size: Size;
};
