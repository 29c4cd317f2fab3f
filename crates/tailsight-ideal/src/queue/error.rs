//! What can be wrong with a queue that is asked for.

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A text that is no such thing.
    #[error("`{text}` is not {what}; expected {expected}")]
    Parse {
        /// What was to be read.
        what: &'static str,
        /// What was given.
        text: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// More work arrives than the workers can do.
    #[error(
        "unstable: at a utilisation of {} % the queue grows without end, so that no percentile exists; \
         ask for less than 100 %, or for more workers",
        short(utilisation * 100.0)
    )]
    Unstable {
        /// Work that arrives over work that can be done.
        utilisation: f64,
    },
    /// No arrivals.
    #[error("the series holds no arrivals, so there is nothing to serve")]
    Empty,
    /// An arrival earlier than the one before it.
    #[error("arrival {index} of the series is {back_ns} ns earlier than the one before it; sort the series by time")]
    Unsorted {
        /// Its place, 0 for the first.
        index: usize,
        /// How much earlier, ns.
        back_ns: u64,
    },
    /// All arrivals at one instant: no factor gives them a rate.
    #[error("all {arrivals} arrivals of the series have the same time, so they have no rate that could be scaled")]
    NoLength {
        /// How many there are.
        arrivals: usize,
    },
    /// Service times that are missing.
    #[error("no service times to draw from")]
    NoService,
    /// A time that means nothing as long as the service time is not known.
    #[error("{what} is a time, so the mean service time must be given too, such as --service 50us")]
    NeedsServiceTime {
        /// What is a time.
        what: &'static str,
    },
    /// Recorded arrivals that were not given.
    #[error("the model has recorded arrivals, and none were given: name a file of times with --arrivals")]
    NeedsSeries,
    /// Measured service times that were not given.
    #[error("the model has measured service times, and none were given: name a file of them with --service-times")]
    NeedsServiceTimes,
    /// No worker.
    #[error("a server needs at least one worker")]
    NoWorkers,
}

/// At most four decimals, and no zeros at the end: 180, 100.0001.
fn short(percent: f64) -> String {
    format!("{percent:.4}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It said `180.0000 %`.
    #[test]
    fn a_utilisation_has_no_more_digits_than_it_needs() {
        let text = |utilisation| QueueError::Unstable { utilisation }.to_string();
        assert!(text(1.8).contains("utilisation of 180 %"), "{}", text(1.8));
        assert!(text(1.000_001).contains("utilisation of 100.0001 %"), "{}", text(1.000_001));
    }
}
