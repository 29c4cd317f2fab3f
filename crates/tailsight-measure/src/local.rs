//! The load of this process, as a measurement sees it: one agent, whatever its threads.
//!
//! The threads share one schedule, of which each takes every n-th request, so only their streams together have the arrival
//! process asked for: they are one agent, and what they record is merged.

use std::sync::atomic::AtomicBool;

use tailsight_load::{Cancel, Cursor, Driver, Interval, Outcome, Plan, Progress, Rate, Wait};

use crate::Error;
use crate::load::{Ending, Load, Records};
use crate::question::MOST_REQUESTS;

/// The name of the only agent.
const NAME: &str = "this host";
/// When the time is over, late requests are sent and then replies waited for so long each, ns.
const LAST_NS: u64 = 300_000_000;

/// A load of threads of this process.
#[derive(Debug)]
pub struct Local {
    plan: Plan,
    driver: Option<Driver>,
    cursor: Cursor,
    rows: Vec<Vec<Interval>>,
}

impl Local {
    /// A load by this plan, whose sampling is ignored and whose duration, where there is one, ends it.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, driver: None, cursor: Cursor::default(), rows: Vec::new() }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl Local {
    fn start_on(&mut self, cancel: &Cancel<'_>) -> Result<(), Error> {
        let plan = Plan { sampling: 0.0, ..self.plan.clone() };
        *self = Self::new(self.plan.clone());
        self.driver = Some(Driver::prepare_within(plan, cancel)?.go(0));
        // The keys are there now.
        self.plan.workload.preload = false;
        Ok(())
    }
}

impl Load for Local {
    fn set_rate(&mut self, rate: f64) -> Result<(), Error> {
        if self.plan.arrivals.is_closed() || matches!(self.plan.arrivals, tailsight_load::Arrivals::Replay(_)) {
            let reason =
                format!("arrivals `{}` have a fixed rate; use arrivals whose rate can be set", self.plan.arrivals);
            return Err(Error::Contradiction(reason));
        }
        // A faster load needs more room, for the same time.
        let growth = (rate / self.plan.rate.peak().max(1.0)).max(1.0);
        let grown = |room: usize| (room as f64 * growth).min(MOST_REQUESTS) as usize;
        (self.plan.max_samples, self.plan.max_sends) = (grown(self.plan.max_samples), grown(self.plan.max_sends));
        self.plan.rate = Rate::Constant(rate);
        Ok(())
    }

    fn start(&mut self) -> Result<(), Error> {
        self.start_on(&Cancel::default())
    }

    fn start_within(&mut self, until_ns: u64, stop: &AtomicBool) -> Result<(), Error> {
        self.start_on(&Cancel { until_ns, stop, ..Cancel::default() })
    }

    fn wind_up(&mut self) {
        if let Some(driver) = &self.driver {
            driver.end_within(LAST_NS);
        }
    }

    fn record(&mut self, sampling_rate: f64, _samples: usize) -> Result<(), Error> {
        if let Some(driver) = &self.driver {
            driver.measure(sampling_rate);
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<Progress, Error> {
        Ok(self.driver.as_ref().map_or(Progress { ended: true, ..Progress::default() }, Driver::progress))
    }

    fn take(&mut self) -> Result<Vec<Records>, Error> {
        let Some(driver) = &self.driver else { return Ok(Vec::new()) };
        let samples = driver.samples_since(&mut self.cursor);
        let sends = driver.sends_since(&mut self.cursor);
        let rows = driver.intervals_since(&mut self.cursor);
        self.rows.resize(rows.len(), Vec::new());
        self.rows.iter_mut().zip(rows).for_each(|(have, new)| have.extend(new));
        Ok(vec![Records { agent: NAME.into(), samples, sends, intervals: sum_rows(&mut self.rows) }])
    }

    fn stop(&mut self) -> Result<Vec<Ending>, Error> {
        Ok(self.driver.take().map(|driver| ending(&driver.stop())).into_iter().collect())
    }

    fn sleeps_when_idle(&self) -> bool {
        Driver::could_be_punctual(&self.plan)
    }

    fn be_punctual(&mut self) -> bool {
        let changed = self.driver.as_ref().is_some_and(Driver::be_punctual);
        if changed {
            // The next load of a sweep need not be late first.
            self.plan.wait = Wait::Spin;
        }
        changed
    }

    fn one_clock(&self) -> bool {
        true
    }
}

fn ending(outcome: &Outcome) -> Ending {
    Ending {
        agent: NAME.into(),
        start_ns: outcome.start_ns,
        end_ns: outcome.end_ns,
        counts: outcome.counts,
        lateness: outcome.lateness.clone(),
        overslept: outcome.overslept.clone(),
        cpu_ns: outcome.threads.iter().map(|t| t.treatment.cpu_ns).sum(),
        threads: outcome.threads.iter().map(|t| t.treatment).collect(),
        stamps: outcome.stamps(),
        clock_error_ns: outcome.threads.iter().map(|t| t.clock_error_ns).max().unwrap_or(0),
        complaints: outcome.complaints.clone(),
    }
}

/// Adds up the rows of an agent's threads, the first of each with each other and so on, as far as every thread has come; what
/// is left stays for the next call. Threads write a row every 100 ms, so rows of one number are of nearly the same time.
pub fn sum_rows(threads: &mut [Vec<Interval>]) -> Vec<Interval> {
    let ready = threads.iter().map(Vec::len).min().unwrap_or(0);
    let mut parts: Vec<_> = threads.iter_mut().map(|rows| rows.drain(..ready)).collect();
    (0..ready)
        .map(|_| {
            let rows: Vec<Interval> = parts.iter_mut().filter_map(Iterator::next).collect();
            let start_ns = rows.iter().map(|r| r.start_ns).min().unwrap_or(0);
            let ends = rows.iter().map(|r| r.start_ns + r.duration_ns);
            Interval {
                start_ns,
                duration_ns: ends.max().unwrap_or(0) - start_ns,
                target: rows.iter().map(|r| r.target).sum(),
                sent: rows.iter().map(|r| r.sent).sum(),
                answered: rows.iter().map(|r| r.answered).sum(),
                failed: rows.iter().map(|r| r.failed).sum(),
                late_max_ns: rows.iter().map(|r| r.late_max_ns).max().unwrap_or(0),
                cpu_ns: rows.iter().map(|r| r.cpu_ns).sum(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_threads_add_up_and_wait_for_the_slowest_thread() {
        let row = |start_ns, sent| Interval { start_ns, duration_ns: 100, sent, target: 5.0, ..Interval::default() };
        let mut threads = vec![vec![row(0, 4), row(100, 6)], vec![row(3, 5)]];
        let sums = sum_rows(&mut threads);
        assert_eq!(sums.len(), 1);
        assert_eq!((sums[0].start_ns, sums[0].duration_ns, sums[0].sent, sums[0].target), (0, 103, 9, 10.0));
        assert_eq!((threads[0].len(), threads[1].len()), (1, 0));
        threads[1].push(row(104, 1));
        assert_eq!(sum_rows(&mut threads)[0].sent, 7);
    }
}
