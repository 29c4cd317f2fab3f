//! What can go wrong when a statistic is asked for. A test that cannot run on its data says how much it would need.

/// An error of this crate.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Too few values for the test.
    #[error("{what} needs at least {needed} values and got {got}: collect more samples")]
    TooFew {
        /// The test or estimator.
        what: &'static str,
        /// Fewest values it can work with.
        needed: usize,
        /// Values given.
        got: usize,
    },
    /// The values do not vary, or vary in a way that leaves the statistic undefined.
    #[error("{what} is undefined: {why}")]
    Undefined {
        /// The test or estimator.
        what: &'static str,
        /// Why there is no answer.
        why: &'static str,
    },
    /// A value is not a number or outside of the distribution's support.
    #[error("{what} got the value {value}: {why}")]
    BadValue {
        /// The test or estimator.
        what: &'static str,
        /// The value as given.
        value: f64,
        /// What it should be.
        why: &'static str,
    },
    /// A target such as `p99:10us@95` that cannot be read.
    #[error("cannot read the target `{text}`: {why}; write it as p99, p99:10us, p99.9:5% or p99:10us@95")]
    BadTarget {
        /// The text as given.
        text: String,
        /// The part that is wrong.
        why: &'static str,
    },
    /// A text that is no process of arrivals.
    #[error("`{text}` is not an arrival process; expected {expected}")]
    NoProcess {
        /// What was given.
        text: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// A setting of the method that contradicts itself.
    #[error("the setting {name} is {value}: {why}")]
    BadSetting {
        /// Name of the field.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it should be.
        why: &'static str,
    },
}
