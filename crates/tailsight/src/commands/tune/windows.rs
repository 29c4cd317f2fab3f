//! How a session measures: a window is a load that is sent and whose latency is taken as `tailsight load` takes it, or a recording of the traffic
//! that the server has. In: what is asked. Out: a percentile in ns, or why a window shows none.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tailsight_lifetime::Leg;
use tailsight_measure::capacity;
use tailsight_measure::in_turn::{self, Shown};
use tailsight_measure::{Load as _, Local, Question, measure};
use tailsight_stats::method::{PercentileGoal, Width};
use tailsight_stats::quantile::{name, needed, quantile, sorted};

use super::recorder;
use crate::cli_tune::SHORTEST_WINDOW;
use crate::commands::live::Live;
use crate::pipeline;

/// A window that is not steady shows nothing: so much of it is connecting and checking the load.
const BEFORE_SAMPLES: f64 = 1.5;
/// A window has so many times the samples that the percentile needs.
const SPARE: f64 = 2.0;
/// A recording is no longer than this.
const LONGEST_RECORDED: Duration = Duration::from_secs(30);
/// What a recording takes besides its length: loading the hooks, writing, reading.
const RECORDING_OVERHEAD: Duration = Duration::from_secs(4);

/// A window of the peak rate, ns.
pub const PEAK_WINDOW_NS: u64 = 1_500_000_000;

/// Where latencies come from.
pub enum Windows {
    /// A load of this process.
    Load {
        /// What is measured in a window.
        part: Box<Question>,
        /// What sends.
        load: Box<Local>,
    },
    /// Recordings of the traffic that is there.
    Observe {
        /// The words that choose the server.
        server: Vec<OsString>,
        /// Where a window's run goes.
        run: PathBuf,
        /// How long it is.
        length: Duration,
        /// The quantile.
        quantile: f64,
    },
}

/// How long a window must be for the percentile to be known from messages that come at this rate, messages/s.
pub fn window_for(quantile: f64, rate: f64) -> Duration {
    let seconds = BEFORE_SAMPLES + SPARE * needed(quantile) as f64 / rate.max(0.1);
    Duration::from_secs_f64(seconds.clamp(SHORTEST_WINDOW.as_secs_f64(), 600.0))
}

impl Windows {
    /// Windows of a load.
    pub fn of_load(question: &Question, quantile: f64, window: Duration) -> Windows {
        let part = Question {
            targets: vec![PercentileGoal::new(quantile, Width::Any)],
            percentiles: vec![],
            max_time: window,
            ..question.clone()
        };
        let load = Box::new(Local::new(part.prepared_plan()));
        Windows::Load { part: Box::new(part), load }
    }

    /// Windows of recordings; how long they are is known when messages were seen.
    pub fn of_traffic(server: Vec<OsString>, run: PathBuf, quantile: f64, window: Option<Duration>) -> Windows {
        Windows::Observe { server, run, length: window.unwrap_or(SHORTEST_WINDOW), quantile }
    }

    /// What a window takes.
    pub fn window(&self) -> Duration {
        match self {
            Windows::Load { part, .. } => part.max_time,
            Windows::Observe { length, .. } => *length + RECORDING_OVERHEAD,
        }
    }

    /// Makes windows of recordings long enough for messages that come at this rate.
    pub fn fit(&mut self, rate: f64) {
        if let Windows::Observe { length, quantile, .. } = self {
            *length = window_for(*quantile, rate).min(LONGEST_RECORDED).max(*length);
        }
    }

    /// Measures one.
    ///
    /// # Errors
    /// No load can be started, or nothing recorded.
    pub fn measure(&mut self, live: &mut Live, stop: &AtomicBool) -> anyhow::Result<Shown> {
        match self {
            Windows::Load { part, load } => {
                let measured = measure(load.as_mut(), part, stop, &mut |event| live.show(event))?;
                Ok(in_turn::percentile(&measured, part.targets[0].quantile))
            }
            Windows::Observe { server, run, length, quantile } => {
                recorder::record(server, run, Some(*length), stop)?;
                recorded(run, *quantile)
            }
        }
    }

    /// Requests answered a second by a closed loop; or why a window does not show the server's peak.
    ///
    /// # Errors
    /// No load can be started.
    pub fn peak(&mut self, stop: &AtomicBool) -> anyhow::Result<Result<f64, String>> {
        let Windows::Load { part, .. } = self else {
            return Ok(Err("the traffic that is there does not saturate the server".into()));
        };
        let saturated = match capacity::saturate(&part.plan, PEAK_WINDOW_NS, stop) {
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(Err("interrupted".into())),
            other => other?,
        };
        // The keys are there since the first window.
        part.plan.workload.preload = false;
        Ok(saturated.and_then(|saturated| match saturated.may_be_the_clients() {
            true => Err(format!(
                "at {:.0} requests/s a loading thread was busy for {:.0} % of the time: the peak may be the client's; give it more \
                 --threads, or cores of its own",
                saturated.per_s,
                100.0 * saturated.client_cpu
            )),
            false => Ok(saturated.per_s),
        }))
    }

    /// Records until there is enough to diagnose, under the load where there is one.
    ///
    /// # Errors
    /// The load's and the recorder's.
    pub fn record(&mut self, server: &[OsString], run: &Path, stop: &AtomicBool) -> anyhow::Result<()> {
        let Windows::Load { load, .. } = self else { return recorder::record(server, run, None, stop) };
        load.start_within(load.now_ns().saturating_add(60_000_000_000), stop)?;
        let recorded = recorder::record(server, run, None, stop);
        load.wind_up();
        load.stop()?;
        if stop.load(Ordering::Relaxed) {
            anyhow::bail!("interrupted");
        }
        recorded
    }
}

/// The percentile of the total latency of a recording's messages.
fn recorded(run: &Path, q: f64) -> anyhow::Result<Shown> {
    let opened = pipeline::open(run)?;
    let latencies = opened.latencies();
    let ordered = sorted(latencies.of_leg(Leg::Total).iter().map(|ns| *ns as f64).collect());
    if ordered.len() < needed(q) {
        return Ok(Err(format!("{} messages with a reply are too few for {}", ordered.len(), name(q))));
    }
    Ok(quantile(&ordered, q).ok_or_else(|| "no messages".into()))
}
