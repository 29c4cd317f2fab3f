//! Why there is no ideal.

use tailsight_units::Untrusted;

use crate::queue::QueueError;

/// What can go wrong.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The run has nothing that the ideal of a server could be computed from: N/A, not a failure.
    #[error("N/A: no ideal for {}: {why}", Untrusted(app))]
    NoIdeal {
        /// The application.
        app: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// A cause was to be taken out that the diagnosis does not have, or that cannot be: N/A, not a failure.
    #[error("N/A: the diagnosis has no cause {name} that can be subtracted; it has {}", if .can.is_empty() { "none" } else { .can })]
    NoSuchCause {
        /// As given.
        name: String,
        /// Those that can.
        can: String,
    },
    /// The queue cannot be simulated.
    #[error(transparent)]
    Queue(#[from] QueueError),
}
