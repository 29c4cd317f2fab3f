// What a page of measurements is given: tailsight-report's load/page.rs, and the reports of tailsight-measure. Times are ns, rates requests/s.

export interface Known { percentile: string; quantile: number; level: number; value_ns: number; lower_ns: number; upper_ns: number; how: { method: string; effective_n?: number }; n: number }
export interface Checked { id: string; test: string; subject: string | null; passed: boolean }
export type Verdict =
  | { verdict: "number"; percentiles: Known[] }
  | { verdict: "not-available"; failed: Checked; reason: string; hint: string; passed?: Known[]; bounds?: Known[]; missing?: { percentile: string }[]; no_bounds_because?: string };
export interface Estimate { value: number; lower: number; upper: number }
export interface Summary { n: number; max: number | null; percentiles: Record<string, Estimate | null> }
export interface Objective { quantile: number; limit_ns: number }
export interface Report {
  version: string; began_s: number; target: string; protocol: string; latency: "response" | "service"; verdict: Verdict;
  response_ns: Summary; service_ns: Summary; lateness_ns: { n: number; max: number | null; percentiles?: Record<string, number | null> } & Record<string, unknown>;
  rate: { asked: number | null; sent: number; answered: number }; counts: Record<string, number>;
  client: { threads: number; cpu_ns_per_request: number | null; busiest_thread: number; starved_thread: number; stamped: number; hardware: number; clock_error_ns: number; stamps: string | null; stamps_why: string | null; stamps_hint: string | null };
  checks: Checked[]; steps: { at_s: number; what: string }[]; restarts: string[]; complaints: { text: string }[];
  plan: { arrivals: unknown; connections: number } & Record<string, unknown>;
  against?: { file: string; percentile: string; value_ns: number; other_ns: number; lower_ns: number; upper_ns: number; worse: boolean };
  objective?: { objective: Objective; confidence: number | null; met: boolean };
}
export interface Instant { at: number; p50: number; p99: number | null; max: number; dropped: boolean }
export interface Slice { at: number; target: number; sent: number; answered: number; late: number }
export interface Result {
  name: string; report: Report; headline: string; evidence: string[]; has_samples: boolean; samples: number;
  response: [number, number][]; service: [number, number][]; over_time: Instant[]; load: Slice[];
}
export interface Sweep {
  target: string; protocol: string; points: { rate: number; fate: string; report: Report }[];
  objective?: { objective: Objective; rate: number | null; threshold: [number, number] | null; tries: { rate: number; confidence: number | null; value_ns: number | null; reason: string | null; confirms: boolean }[] };
}
export interface LoadData { results: Result[]; sweep: Sweep | null; headline: string | null }
