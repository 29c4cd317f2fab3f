//! What a measurement needs of a load, wherever it is made. In: a sampling rate. Out: records and, at the end, accounts.
//!
//! [`Local`](crate::Local) is the load of this process; agents on other machines are another implementation. The calls are
//! Lancet's (§4.1, Table 2): `start` is start_load, `record` start_measure, `progress` get_throughput, `take` get_latency.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use tailsight_load::{
    Complaint, Counts, Histogram, Interval, LoadError, Progress, Sample, Send as Sent, StampSource, Treatment,
};

use crate::Error;
use crate::report::AgentFacts;

/// What one agent recorded since it was last asked. Times are ns of one clock for each agent; where agents are on several
/// machines, the implementation converts them to the coordinator's.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// The agent's name, the same every time.
    pub agent: String,
    /// Requests of the sample that have ended, in any order, each given once. Those of status unanswered too.
    pub samples: Vec<Sample>,
    /// Consecutive sends (all requests, not only the sample) in the order due, each given once; from times with a sampling
    /// rate above 0 only. Whole: a send may only be missing after the last one given.
    pub sends: Vec<Sent>,
    /// What the agent's threads did together, in consecutive rows of 100 ms or more ([`sum_rows`](crate::sum_rows)). Rows come
    /// all the time, recorded or not.
    pub intervals: Vec<Interval>,
}

/// What one agent's load came to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ending {
    /// Its name.
    pub agent: String,
    /// When its schedule began, ns.
    pub start_ns: u64,
    /// When its last thread stopped sending, ns.
    pub end_ns: u64,
    /// Requests, counted.
    pub counts: Counts,
    /// The client's own lateness over all requests, ns.
    pub lateness: Histogram,
    /// Of it, what its threads were idle for and woke too late; the rest they were busy with other requests, ns.
    #[serde(default)]
    pub overslept: Histogram,
    /// CPU time of the loading threads from the first request to the end of the drain, ns.
    pub cpu_ns: u64,
    /// How each thread was treated by the scheduler.
    pub threads: Vec<Treatment>,
    /// Where its time stamps come from; absent from older agents.
    #[serde(default)]
    pub stamps: Option<StampSource>,
    /// How exactly clocks were compared (wall and NIC with monotonic, and the agent's with the coordinator's), at worst, ns.
    pub clock_error_ns: u64,
    /// What was wrong.
    pub complaints: Vec<Complaint>,
}

/// A source of load.
///
/// Call order: `start`, then any of `record`, `progress`, `take`, then `stop`; after `stop` it may `start` again, at the rate
/// last set. Dropping it ends its load. No call blocks for longer than a round trip but `start` (connecting, storing keys) and
/// `stop` (the drain).
pub trait Load: Send {
    /// Sets the rate of the next start, requests/s over all agents: what a sweep changes. The arrival process stays.
    ///
    /// # Errors
    /// When there is no such thing as a rate (a closed loop, a replay).
    fn set_rate(&mut self, rate: f64) -> Result<(), Error>;

    /// Connects, stores the keys (only the first time), and starts to send. Nothing is recorded yet.
    ///
    /// # Errors
    /// What is wrong with the plan, the target, the server or an agent. Nothing is sent on after an error.
    fn start(&mut self) -> Result<(), Error>;

    /// The same, but no longer than until a time on the clock of the records, ns, or until `stop` becomes true.
    ///
    /// # Errors
    /// As [`Load::start`], and when it is not ready by then.
    fn start_within(&mut self, until_ns: u64, stop: &AtomicBool) -> Result<(), Error> {
        let _ = (until_ns, stop);
        self.start()
    }

    /// Nothing is measured any more: stops sending, and waits for no more than what is needed to end soon. Does not block.
    fn wind_up(&mut self) {}

    /// From now on records each request with this probability; 0: none. `samples` is how many are wanted, all agents together:
    /// a hint.
    ///
    /// # Errors
    /// When an agent is gone.
    fn record(&mut self, sampling_rate: f64, samples: usize) -> Result<(), Error>;

    /// The progress of all agents together. `ended` if any of them has stopped sending: the duration or the replay is over, the
    /// server is gone, a thread failed.
    ///
    /// # Errors
    /// When an agent is gone.
    fn progress(&mut self) -> Result<Progress, Error>;

    /// What was recorded since the last call, one element per agent, always in the same order.
    ///
    /// # Errors
    /// When an agent is gone.
    fn take(&mut self) -> Result<Vec<Records>, Error>;

    /// Ends the load: waits for the last replies, and says what each agent's load came to. Records that were not taken are
    /// dropped: [`measure()`](crate::measure()) stops recording, waits for the stragglers and takes before it stops.
    ///
    /// # Errors
    /// When an agent is gone; the others are stopped all the same.
    fn stop(&mut self) -> Result<Vec<Ending>, Error>;

    /// Whether the client sleeps where polling would be more punctual.
    fn sleeps_when_idle(&self) -> bool {
        false
    }

    /// The client's lateness mattered: from now on it polls to be on time, if it can. Returns whether that changes anything.
    fn be_punctual(&mut self) -> bool {
        false
    }

    /// Whether all agents use one clock, so that their streams can be superposed.
    fn one_clock(&self) -> bool;

    /// What is known of the agents on other machines; none where the load is made here.
    fn agents(&self) -> Vec<AgentFacts> {
        Vec::new()
    }

    /// The current time on the clock of the records, ns.
    fn now_ns(&self) -> u64 {
        tailsight_load::now_ns()
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}
