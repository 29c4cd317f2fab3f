//! Samples: what threads of the target ran, or slept in, at moments of the recording.
//!
//! Three tables, of runs that were recorded with samples: `samples.arrow`, a row a sample; `sample_stacks.arrow`, the call stacks
//! that samples refer to, a row a frame; `sample_frames.arrow`, the functions that those refer to. No addresses of the kernel, and
//! of the user's programs those inside their files only.

use serde::{Deserialize, Serialize};

/// The module of what a runtime compiled.
pub const JIT: &str = "[jit]";

/// One sample (samples.arrow).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRow {
    /// When, CLOCK_MONOTONIC ns.
    pub ts_ns: u64,
    /// The core.
    pub cpu: u16,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// How it came about: one of [`kind`].
    pub kind: u8,
    /// Ticks of the clock that it stands for: 1, and more where not every tick took a sample. Shares of weights are unbiased, whatever
    /// was sampled more often.
    pub weight: u16,
    /// Its call stack, by number.
    pub stack: u32,
}

impl Default for SampleRow {
    fn default() -> SampleRow {
        SampleRow { ts_ns: 0, cpu: 0, tid: 0, tgid: 0, kind: kind::CLOCK, weight: 1, stack: 0 }
    }
}

/// How a sample came about.
pub mod kind {
    /// The clock found the thread running.
    pub const CLOCK: u8 = 0;
    /// The thread went to sleep: of each distinct place in the program the first time; context switches refer to it by
    /// `sampling.sleep_places` of run.json.
    pub const SLEEP: u8 = 1;
    /// The clock found the thread running and took no stack: another sample stands for this tick, too.
    pub const SKIPPED: u8 = 2;
}

/// One function of a call stack (sample_frames.arrow).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrameRow {
    /// Its name, demangled; empty when its file does not tell.
    pub function: String,
    /// The program or library without its folders, `[kernel]` or a kernel module in brackets, `[jit]` for what a runtime compiled;
    /// empty when not known.
    pub module: String,
    /// The build id of the program or library; empty without one.
    pub build_id: String,
    /// Where in the address space of its file, of a function without a name where that begins; in the kernel, and in what a runtime compiled, where in the function.
    pub offset: u64,
    /// Source file and line (`slabs.c:120`), where debug information tells; else empty.
    pub source: String,
    /// Of a function without a name: the function that its file exports last before it, and the next one after it. A compiler
    /// puts the functions of one source file side by side. Empty without.
    pub exported_before: String,
    /// See `exported_before`.
    pub exported_after: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
    /// Whether the compiler put it into its caller.
    pub inlined: bool,
    /// Whether it is of the program itself and not of a library: of the executable, of Go the main module's packages, of compiled Python and
    /// JavaScript the program's own files. Never so in older runs.
    pub own: bool,
}

/// All samples of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// In the order of time.
    pub rows: Vec<SampleRow>,
    /// Call stacks by number: frames by number, innermost first.
    pub stacks: Vec<Vec<u32>>,
    /// Frames by number.
    pub frames: Vec<FrameRow>,
}

impl Samples {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The frames of a stack, innermost first; none for a number that is not known.
    pub fn stack(&self, number: u32) -> impl DoubleEndedIterator<Item = &FrameRow> {
        let frames = self.stacks.get(number as usize).map_or(&[][..], Vec::as_slice);
        frames.iter().filter_map(|&frame| self.frames.get(frame as usize))
    }
}

impl FrameRow {
    /// The function as a reader knows it: its name, else its place in its file.
    pub fn name(&self) -> String {
        match (self.function.as_str(), self.module.as_str()) {
            ("", "") => "unknown code".into(),
            // Where it is means nothing outside of the process.
            ("", JIT) => "code compiled at run time".into(),
            ("", module) => format!("{module}+0x{:x}", self.offset),
            (function, _) => function.to_owned(),
        }
    }
}
