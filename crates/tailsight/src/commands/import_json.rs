//! What `tailsight import --json` prints. Also in builds without `import`, for `tailsight schema`.

use schemars::JsonSchema;
use serde::Serialize;

/// What an Intel PT recording held.
#[derive(Serialize, JsonSchema)]
pub struct Import {
    /// Always 1.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// Events that were written for functions.
    pub events: u64,
    /// Of them left out: before or behind the run that --with names.
    pub events_outside: u64,
    /// The largest error of a time, ns.
    pub clock_error_ns: u64,
    /// Calls that were decoded.
    pub calls: u64,
    /// Returns that were decoded.
    pub returns: u64,
    /// Instructions that were decoded.
    pub instructions: u64,
    /// Calls with begin and end.
    pub spans: u64,
    /// Of these, without a name.
    pub spans_unnamed: u64,
    /// Bytes of the trace.
    pub trace_bytes: u64,
    /// Of these, decoded.
    pub decoded_bytes: u64,
    /// Records beside the trace that perf lost: of context switches, mappings.
    pub lost_records: u64,
    /// Between time stamps of the trace.
    pub granularity_ns: Granularity,
    /// Where the trace has nothing.
    pub gaps: Vec<Lack>,
    /// Files that were not found.
    pub missing: Vec<MissingFile>,
    /// Functions, those with most time of their own first.
    pub functions: Vec<Function>,
}

/// Time between stamps, ns; null without stamps.
#[derive(Serialize, JsonSchema)]
pub struct Granularity {
    /// Median.
    pub p50: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
}

/// Gaps of one kind.
#[derive(Serialize, JsonSchema)]
pub struct Lack {
    /// Why there is nothing.
    pub why: &'static str,
    /// How many.
    pub count: u64,
    /// How long they are together.
    pub ns: u64,
}

/// A file that was not found.
#[derive(Serialize, JsonSchema)]
pub struct MissingFile {
    /// Its path.
    pub file: String,
    /// Why it was not read.
    pub why: String,
}

/// A function's calls.
#[derive(Serialize, JsonSchema)]
pub struct Function {
    /// Its name.
    pub function: String,
    /// Its program or library.
    pub module: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// Its calls.
    pub calls: u64,
    /// On a core, with what it called, ns.
    pub total_ns: u64,
    /// On a core, alone, ns.
    pub own_ns: u64,
}
