//! The one error type of this crate. Each message says what was tried, on what, and what to do next.

use std::io;

/// Why a fix cannot be planned, made or taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run does not say where it was recorded.
    #[error(
        "the run does not say on which boot of which host it was recorded (it is of an older version); record again"
    )]
    UnknownHost,
    /// The run is of another host, or of another boot of this one.
    #[error(
        "the run was recorded on another host or before the last boot: its process ids are not valid here; record again"
    )]
    OtherBoot,
    /// The processes that a change names have ended.
    #[error("the recorded {what} no longer run{s}; record again", s = if *one { "s" } else { "" })]
    Ended {
        /// As `process 41 (memcached)`.
        what: String,
        /// One or several.
        one: bool,
    },
    /// The id is another process's.
    #[error("process {pid} is no longer the {was} that was recorded, but {is}; record again")]
    Reused {
        /// The id.
        pid: u32,
        /// The recorded name.
        was: String,
        /// The name of who has the id.
        is: String,
    },
    /// No thread has the name.
    #[error("no thread named {comm} exists now")]
    NoSuchThread {
        /// The name.
        comm: String,
    },
    /// Everything is already as the fix would make it.
    #[error("nothing to change: the value is already set")]
    AlreadySo,
    /// This host has no such setting.
    #[error("{what}")]
    Unsupported {
        /// What is not there.
        what: String,
    },
    /// The value is no longer what was shown.
    #[error("{place} changed from {shown} to {now} since the fix was shown: show the fix again")]
    Moved {
        /// Where.
        place: String,
        /// What was shown.
        shown: String,
        /// What is there.
        now: String,
    },
    /// A value could not be read.
    #[error("cannot read {place}")]
    Read {
        /// Where.
        place: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A value could not be written.
    #[error("cannot set {place} to {value}{}", advice(source))]
    Write {
        /// Where.
        place: String,
        /// The value.
        value: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The kernel took the value and made another one of it.
    #[error("{place} was set to {value}, but reads back as {found}")]
    NotTaken {
        /// Where.
        place: String,
        /// The value.
        value: String,
        /// What it read afterwards.
        found: String,
    },
    /// A place outside of what this program changes.
    #[error("{path} is not a file that fixes change (/proc/sys, /proc/irq, /sys)")]
    Outside {
        /// The path.
        path: String,
    },
    /// A fix failed half-way; what was done was taken back, or not all of it.
    #[error("{}\n  {}", tailsight_units::chain(cause.as_ref()), back(*left))]
    RolledBack {
        /// What failed.
        cause: Box<Error>,
        /// Changes that could not be taken back.
        left: usize,
    },
    /// The state file cannot be read, written or understood.
    #[error("the state file {path}: {what}")]
    State {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// Another one is at work.
    #[error("another tailsight fix is running (it holds {path}); wait until it ends")]
    Locked {
        /// The lock.
        path: String,
    },
}

impl Error {
    /// Whether the kernel refused for lack of rights.
    pub fn is_denied(&self) -> bool {
        match self {
            Error::Write { source, .. } | Error::Read { source, .. } => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            Error::RolledBack { cause, .. } => cause.is_denied(),
            _ => false,
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => " (run it as root)",
        _ => "",
    }
}

fn back(left: usize) -> String {
    match left {
        0 => "nothing is changed: all steps were undone".into(),
        n => format!("{n} changes could not be undone: tailsight fix --undo tries again"),
    }
}
