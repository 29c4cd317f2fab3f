//! How a recording is asked to end from outside: by a person, who waits for the names of functions, or by a supervisor, who does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What asks a recording to end. Its flags are atomics so that a signal handler can set them.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    urgent: Arc<AtomicBool>,
}

impl Stop {
    /// `asked`: ends the recording; `urgent`: within a second, with the names that functions have by then.
    pub fn of(asked: Arc<AtomicBool>, urgent: Arc<AtomicBool>) -> Stop {
        Stop { asked, urgent }
    }

    /// Whether the recording is to end.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether it is to end within a second.
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
    }

    /// The flag of [`Stop::is_asked`].
    pub fn asked(&self) -> &Arc<AtomicBool> {
        &self.asked
    }

    /// The flag of [`Stop::is_urgent`].
    pub fn urgent(&self) -> &Arc<AtomicBool> {
        &self.urgent
    }
}
