//! Why a recording cannot be decoded.

use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a perf.data file of a little-endian machine.
    #[error("{path} is not a perf.data file of an x86 machine: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file ends early, or its parts contradict each other.
    #[error("{path} is damaged at byte {at}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The file holds no Intel PT trace.
    #[error("{path} has no Intel PT trace: {why}; record with `perf record -e intel_pt//`")]
    NoTrace {
        /// The file.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// The time-stamp counter cannot be converted to perf's time.
    #[error(
        "{path} does not say how its time-stamp counter relates to time (cap_user_time_zero is 0): the recorded machine's clock \
         source was not the TSC; choose it there (`tsc` in /sys/devices/system/clocksource) and record again"
    )]
    NoClock {
        /// The file.
        path: PathBuf,
    },
    /// A text is not the output of `perf script`, or lacks fields that are needed.
    #[error(
        "{path} has no calls that can be read: {why}; print them with `perf script --itrace=be --ns -F \
         comm,pid,tid,cpu,time,event,flags,ip,sym,symoff,addr,dso`"
    )]
    Text {
        /// The file.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The decoder library returned an error.
    #[error("the Intel PT decoder cannot be set up: {why}")]
    Decoder {
        /// Its message.
        why: String,
    },
    /// The run that the functions are to be put into cannot be used.
    #[error("{run} cannot take the recording's functions: {why}")]
    With {
        /// The run.
        run: PathBuf,
        /// Why.
        why: String,
    },
    /// A run cannot be read or written.
    #[error(transparent)]
    Run(#[from] tailsight_trace::Error),
}
