//! The agents as a source of load for a measurement. In: its calls. Out: what the agents recorded, and their accounts.
//!
//! An agent that is gone is told by `progress` and `record`; `take` goes on giving what it had measured until then, and
//! `stop` gives an account for it that spoils the run.

use std::sync::atomic::AtomicBool;

use tailsight_load::{Cancel, Complaint, Counts, Interval, Progress};
use tailsight_measure::report::AgentFacts;
use tailsight_measure::{Ending, Error, Load, Records, sum_rows};

use super::remote::{Fetched, Remote};
use super::{AgentReport, RemoteLoad, Role};
use crate::AgentError;
use crate::wire::Summary;

impl From<AgentError> for Error {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Connect { agent, reason } | AgentError::Clock { agent, reason } => {
                Self::Agent { agent, reason }
            }
            AgentError::Call { agent, call, reason } => Self::Agent { agent, reason: format!("{call}: {reason}") },
            AgentError::Load(error) => Self::Load(error),
            AgentError::Interrupted(reason) => Self::Interrupted(reason),
            other => Self::Contradiction(tailsight_units::chain(&other)),
        }
    }
}

/// Streams can be laid over each other when their clocks are known to a small part of the gaps that are tested.
const PART_OF_A_GAP: f64 = 0.1;

/// A throughput agent records one request in a billion, which turns the record of its sends on: its arrivals are tested too.
const SENDS_ONLY: f64 = 1e-9;

impl RemoteLoad {
    fn any_gone(&self) -> Result<(), Error> {
        let gone = self.agents.iter().find_map(|agent| agent.gone().map(|reason| (agent.name.clone(), reason)));
        gone.map_or(Ok(()), |(agent, reason)| Err(Error::Agent { agent, reason }))
    }

    fn records(&self, agent: &Remote) -> Records {
        let from_ns = self.all_started_ns();
        agent.taken(|fetched: &mut Fetched| {
            let mut intervals: Vec<Interval> = sum_rows(&mut fetched.rows);
            // Before the last agent had started, the load was not the one asked for.
            intervals.retain(|row| row.start_ns >= from_ns);
            let (samples, sends) = (std::mem::take(&mut fetched.samples), std::mem::take(&mut fetched.sends));
            Records { agent: agent.name.clone(), samples, sends, intervals }
        })
    }

    fn ending(&self, agent: &Remote, result: Result<Summary, AgentError>) -> Ending {
        let here = |ns: u64| ns.wrapping_add_signed(-agent.offset().offset_ns);
        match result {
            Ok(summary) => Ending {
                agent: agent.name.clone(),
                start_ns: here(summary.start_ns),
                end_ns: here(summary.end_ns),
                counts: summary.counts,
                lateness: summary.lateness,
                overslept: summary.overslept,
                cpu_ns: summary.threads.iter().map(|t| t.cpu_ns).sum(),
                threads: summary.threads,
                stamps: summary.stamps,
                clock_error_ns: summary.clock_error_ns + agent.offset().bound_ns,
                complaints: summary.complaints,
            },
            // What it sent until then is not known to be all, so nothing is counted.
            Err(error) => Ending {
                agent: agent.name.clone(),
                counts: Counts::default(),
                complaints: vec![Complaint::ClientFailed { reason: tailsight_units::chain(&error) }],
                ..Ending::default()
            },
        }
    }
}

impl Load for RemoteLoad {
    fn set_rate(&mut self, rate: f64) -> Result<(), Error> {
        Ok(self.change_rate(rate)?)
    }

    fn start(&mut self) -> Result<(), Error> {
        Ok(self.begin(&Cancel::default())?)
    }

    fn start_within(&mut self, until_ns: u64, stop: &AtomicBool) -> Result<(), Error> {
        Ok(self.begin(&Cancel { until_ns, stop, ..Cancel::default() })?)
    }

    fn record(&mut self, sampling_rate: f64, samples: usize) -> Result<(), Error> {
        self.any_gone()?;
        let measuring = self.agents.iter().filter(|agent| agent.role != Role::Throughput).count().max(1);
        let each = samples.div_ceil(measuring) as u64;
        for result in self.all(|_, agent| async move {
            match agent.role {
                Role::Throughput if sampling_rate > 0.0 => agent.measure(0, SENDS_ONLY).await,
                _ => agent.measure(each, sampling_rate).await,
            }
        }) {
            result?;
        }
        Ok(())
    }

    fn progress(&mut self) -> Result<Progress, Error> {
        if !self.running {
            return Ok(Progress { ended: true, ..Progress::default() });
        }
        let mut sum = Progress::default();
        for progress in self.all(|_, agent| async move { agent.progress().await }) {
            sum.elapsed_ns = sum.elapsed_ns.max(progress.elapsed_ns);
            sum.sent += progress.sent;
            sum.answered += progress.answered;
            sum.failed += progress.failed;
            sum.blocked += progress.blocked;
            sum.samples += progress.samples;
            sum.ended |= progress.ended;
        }
        self.any_gone()?;
        Ok(sum)
    }

    fn take(&mut self) -> Result<Vec<Records>, Error> {
        self.all(|_, agent| async move { agent.fetch().await });
        Ok(self.agents.iter().map(|agent| self.records(agent)).collect())
    }

    fn stop(&mut self) -> Result<Vec<Ending>, Error> {
        let results = self.end();
        Ok(self.agents.iter().zip(results).map(|(agent, result)| self.ending(agent, result)).collect())
    }

    fn agents(&self) -> Vec<AgentFacts> {
        let fact = |report: AgentReport| AgentFacts {
            agent: report.agent,
            role: report.role.to_string(),
            host: report.host,
            kernel: report.kernel,
            cores: report.cores,
            kernel_stamps: report.kernel_stamps,
            clock_offset_ns: report.clock.offset_ns,
            clock_bound_ns: report.clock.bound_ns,
            target: report.target,
            rate: report.rate,
            seed: report.seed,
            start_skew_ns: report.start_skew_ns,
            gone: report.gone,
        };
        self.reports().into_iter().map(fact).collect()
    }

    fn one_clock(&self) -> bool {
        let bounds: Vec<u64> = self.agents.iter().map(|agent| agent.offset().bound_ns).collect();
        if bounds.len() < 2 {
            return true;
        }
        let worst = bounds.into_iter().max().unwrap_or(0) as f64 * 2.0;
        worst <= PART_OF_A_GAP * 1e9 / self.plan.rate.peak().max(1.0)
    }
}
