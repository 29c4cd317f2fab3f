// The data that the page is given: what tailsight-report's html/mod.rs writes. Times are ns.

export type Percentiles = Record<string, number>;
export type Role = "A" | "R";

export interface Cause {
  rank: number; category: string; name: string; role: Role; share: number; deviation_ns: number; ci95_ns: [number, number];
  messages: number; evidence: number[]; paths: [string, number][]; times: [number, number]; mean_ns: [number, number];
  phase?: string; how?: string; inferred?: boolean; before?: string; explanation: string; fix: string[];
  samples?: [number, number]; functions?: FunctionPart[]; hot_path?: { name: string; module: string; source: string; share: number }[];
  ahead?: { focus: number; reference: number; ids: [number, number[]][] };
  root?: { category: string; name: string; role: Role; mean_ns: number; share: number; of_wait?: number; messages: number }[];
  who?: { pid: number; comm: string; processes: number; threads: number; pids: number[]; by_thread: { name: string; threads: number; deviation_ns: number }[]; cgroup?: string | null; unit?: string | null; container?: string | null };
  actions?: { n: number; title: string; command: string; says: string[]; undo: string[]; shell: number[] }[];
}
export interface FunctionPart {
  name: string; inside?: string; caller?: string; module: string; source: string; kernel: boolean; share: number; share_with_callees?: number; deviation_ns: number;
  ci95_ns: [number, number]; samples: [number, number]; messages: number; how: string; path: string[];
  waits?: boolean; spread_ns?: [number, number, number, number, number, number];
  runtime?: { of: string; does: string; fix: string; documented: string };
}
export interface Slice { from: number; to: number; messages: number; mean_ns: number }
export interface Part { overall: number; p50: number; min: number }
export interface Row { category: string; name: string; role: Role; leg: string; mean_ns: number; share: number; advice?: string[] }
export interface WhatIf { rank: number; category: string; name: string; of_excess: number | null; latency_ns: Percentiles; ci95_ns: Record<string, [number, number]> }
export interface Inherent { mean_ns: number; inherent_ns: number; excess_ns: number; inherent_share?: number }
export interface CoreContexts { cpu: number | null; share: number; contexts: [string, number][] }
export interface Queue { function: string; role: Role; depth: [number, number]; relative: [number, number, number]; mean_ns: [number, number]; messages: number }
export interface Diagnosis {
  run: string; app: string; leg: string; messages: { total: number; complete: number; incomplete: Record<string, number>; out_of_order: number };
  latency_ns: Percentiles; legs: Record<string, Percentiles & { messages: number }>; not_available?: string;
  typical: (Slice & { rows: Row[] }) | null; slowest: { id: number; latency_ns: number; ahead: number; flow: string; parts: Row[] }[];
  focus: Slice; reference: Slice; causes: Cause[]; not_significant: Cause[];
  stages?: { name: string; from: string; to: string; focus_ns: Percentiles; reference_ns: Percentiles }[];
  clusters: { rank: number; category: string; name: string; role: Role; messages: number; mean_ns: number; example: number }[];
  against?: string | null; coverage: Part; owned: Part; multiplexed?: { http2: number; tls_shared: number; tls_in_turn: number }; send_entry?: Record<string, string>;
  sent?: { pushes?: SentCalls; requests?: SentCalls };
  more?: { pervasive: (Slice & { causes: [number, number, number][] })[]; queue: Queue[]; cores: [CoreContexts[], CoreContexts[]] };
  ideal_ns: Percentiles | null; ideal?: { focus: Record<string, number>; all: Record<string, number>; replayed_ns: Percentiles; what_if: WhatIf[] };
  loss: { events: number; clock_error_ns: number }; overhead: { ns_per_event: number; events: number }; notes: string[]; next: string[];
}
export interface SentCalls { calls: number; complete: number; bytes: number; transmit_ns: Percentiles; answered?: number; wait_ns?: Percentiles; peers: [string, number][] }
export interface Hook { name: string; probe: string; on: boolean; optional?: boolean; reason?: string | null; ns_per_run: number | null; measured_runs: number }
export interface Meta {
  tailsight: string; state: string; partial?: string | null; start_ns: number; end_ns: number; started_unix_ns: number; source: string;
  host: { kernel: string; arch: string; cpus: number; cpu_model: string };
  target: { selector: string; app: string; pids: number[]; ports: number[] };
  cpus: { cpu: number; events: number; lost: number }[]; hooks: Hook[]; warnings: string[];
  overhead: { recorder_cpu_ns: number };
  settings?: Setting[];
  devices: { name: string; driver: string; rx_queues: number; tx_queues: number; irqs: number[]; here: boolean; packets: number }[];
  sampling?: { period_ns: number; samples: number; lost: number; notes: string[] } | null;
}
export interface Setting { id: string; title: string; value: string; verdict: "good" | "hurts" | "unknown" | "not_present"; why: string }
export interface Columns {
  /** Messages of the run; complete ones; whether only some of them have rows. */
  count: number; complete: number; sampled: boolean; latency_type: "u32" | "f64"; arrival_type: "u32" | "f64"; flow_type: "u16" | "u32"; thread_type: "u16" | "u32";
  flow_names: Record<string, string>; threads: number[]; classes: string[]; causes: number; reference_ns: number[] | null; against_reference: boolean;
}
/** Of a leg also the 95 % intervals of its percentiles. */
export interface Curve { name: string; kind: "leg" | "stage"; messages: number; points: [number, number][]; intervals?: Record<string, [number, number]> }
export interface RowKey { leg: string; category: string; name: string; title: string; role: Role; reference_ns: number }
export interface Page {
  verdict: string; lost: string; cost: string; percentiles: string[]; titles: string[]; chance_titles: string[]; typical_titles: string[];
  slowest_titles: string[][]; contexts: Record<string, string>; categories: Record<string, string>; roles: Record<Role, string>;
  requests: { protocol: string; pairing: string; classes: { name: string; messages: number; p50_ns: number; p99_ns: number | null; focus: number }[] } | null;
  meta: Meta; diagnosis: Diagnosis; messages: Columns; curves: Curve[];
  against: { run: string; legs: Record<string, Percentiles & { messages: number }>; curves: Curve[] } | null;
  functions: { frames: string[]; stacks: [number[], number, number][]; left_out: number } | null;
  reference: RowKey[]; reference_ns: number; timelines: { ids: number[][]; focus: number; of: number }; served: boolean;
}
export interface Slot { owner: number; leg: number; role: Role; key: number; cause: number | null }
export interface Timeline {
  id: number; flow: string; bytes: number; tid: number; ahead: number; ahead_ids: number[]; length: number; class: string | null;
  pairing: string | null; reply_bytes: number; marks: [string, number][]; spans: number[]; samples: [number, number][];
}
export interface Bundle { owners: { names: string[]; gap: boolean }[]; slots: Slot[]; keys: RowKey[]; frames: string[]; stacks: number[][]; messages: Timeline[]; beside?: Beside | null }
/** Of a message that was asked for: its neighbours by latency, and how many are no slower. */
export interface Beside { slower: number | null; faster: number | null; place: number }
