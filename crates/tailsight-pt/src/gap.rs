//! Why parts of a trace have no control flow. In: nothing. Out: [`Gap`], with its words.

/// Why an interval of time has no control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gap {
    /// The processor could not write its trace in time (OVF).
    Overflow,
    /// The code that ran is in no file that was found.
    NoCode,
    /// Trace and code contradict each other, or the trace is damaged.
    Damaged,
    /// The kernel's buffer was full: trace was lost.
    Truncated,
    /// The kernel marked a stretch of trace as incomplete.
    Partial,
    /// It was not asked for.
    NotDecoded,
}

impl Gap {
    /// All of them.
    pub const ALL: [Gap; 6] = [Gap::Overflow, Gap::NoCode, Gap::Damaged, Gap::Truncated, Gap::Partial, Gap::NotDecoded];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Gap::Overflow => "the processor's trace buffer overflowed",
            Gap::NoCode => "the code that ran is in no file that was found",
            Gap::Damaged => "trace and code contradict each other",
            Gap::Truncated => "the kernel's trace buffer was full",
            Gap::Partial => "the kernel marked the trace as incomplete there",
            Gap::NotDecoded => "not asked for",
        }
    }
}
