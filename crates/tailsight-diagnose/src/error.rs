//! What can go wrong in a diagnosis; each error says what was tried, on what, and what to do next.

use tailsight_lifetime::Leg;
use tailsight_units::Untrusted;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text was given that does not read as a slice: wrong usage.
    #[error("{text:?} is not a slice of the latencies: {why}; write for example p99..p100 or p99.9..p100")]
    NotASlice {
        /// As given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A slice was given that holds no messages: outside 0 to 100, or reversed.
    #[error("{text:?} is not a slice of the latencies: {why}; write for example p99..p100 or p99.9..p100")]
    Focus {
        /// As given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A slice holds too few messages for a verdict: N/A, not a failure.
    #[error(
        "N/A: the {slice} {from}..{to} holds {have} of {complete} complete messages, and {needed} are needed for a \
         verdict: {advice}"
    )]
    NotEnough {
        /// `focus`, `reference`, or `against` (the other run's focus).
        slice: &'static str,
        /// Its lower end, e.g. `p99`.
        from: String,
        /// Its upper end.
        to: String,
        /// Messages in it.
        have: u64,
        /// Messages whose leg is complete.
        complete: u64,
        /// Messages that it must hold.
        needed: u64,
        /// What to do.
        advice: String,
    },
    /// No message has the leg complete: there is nothing to diagnose.
    #[error("no message of {} has its {} leg complete ({reasons}): {advice}", Untrusted(app), .leg.name())]
    NoMessages {
        /// The application.
        app: String,
        /// The leg.
        leg: Leg,
        /// Why the messages are not complete, with counts.
        reasons: String,
        /// What to do.
        advice: String,
    },
    /// The run was recorded with a protocol that its bytes are not of.
    #[error(
        "{}: none of {segments} segments is a request of {protocol}{seems}: the wrong protocol, so what was recorded are no requests; record \
         again {advice}",
        Untrusted(app)
    )]
    WrongProtocol {
        /// The application.
        app: String,
        /// The protocols whose requests were looked for.
        protocol: String,
        /// Segments that were looked at.
        segments: u64,
        /// What they are instead, as far as is known.
        seems: &'static str,
        /// How.
        advice: &'static str,
    },
    /// No class of requests is meant by a text, or several are: wrong usage.
    #[error("no class is chosen by {text:?}: {why}")]
    NoSuchClass {
        /// As given.
        text: String,
        /// What is wrong with it, with the classes that there are.
        why: String,
    },
    /// An id that no complete message has.
    #[error("{why}: {range}, and {slowest}")]
    NoSuchMessage {
        /// What is wrong with it.
        why: String,
        /// The ids that there are.
        range: String,
        /// The slowest messages.
        slowest: String,
    },
    /// A category table is not TOML.
    #[error("the category table {file} cannot be read as TOML: {why}")]
    Toml {
        /// Its name, as given.
        file: String,
        /// The parser's message, with the line.
        why: String,
    },
    /// A rule of a category table is wrong.
    #[error("the category table {file}, rule {rule}, field `{field}`: {why}")]
    Rule {
        /// Its name, as given.
        file: String,
        /// The rule's number, from 1.
        rule: usize,
        /// The field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// An option is out of its range.
    #[error("the option {option} is {value}: {why}")]
    Option {
        /// Its name.
        option: &'static str,
        /// As given.
        value: String,
        /// Its range.
        why: &'static str,
    },
}
