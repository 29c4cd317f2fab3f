//! A load made by several agents, as a measurement sees it. In: addresses, a token, a plan. Out: records on one clock.
//!
//! The coordinator of Lancet's Figure 2: it splits the load, gives each agent its own seed, compares the clocks, starts all
//! of them, holds their leases, and pools what they measured; it never sees a percentile of an agent.

mod clocks;
mod load;
mod remote;
mod split;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tailsight_load::{Arrivals, Cancel, Plan, Rate, Schedule, Trust, now_ns};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

pub use clocks::Offset;
use remote::Remote;
pub use split::Role;

use crate::proto;
use crate::wire::Summary;
use crate::{AgentAddress, AgentError, Identity, Token};

/// The coordinator's credentials, and which certificates it trusts.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The agents' token.
    pub token: Token,
    /// The authority that signed the agents' certificates, for agents named without a fingerprint: a PEM file.
    pub ca: Option<PathBuf>,
    /// The coordinator's own certificate, for agents that require one.
    pub identity: Option<Identity>,
}

/// How the agents are used.
#[derive(Debug, Clone)]
pub struct Options {
    /// The role of each agent, in their order; empty: all are symmetric.
    pub roles: Vec<Role>,
    /// Requests/s of each latency agent; `None`: 1 % of the load.
    pub latency_rate: Option<f64>,
    /// The largest uncertainty of an agent's clock offset, ns. Beyond it the streams cannot be merged.
    pub max_clock_error_ns: u64,
    /// The coordinator's name, for the agents' logs.
    pub who: String,
    /// Connecting ends when this becomes true; `None`: only by its own time-outs.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Options {
    /// All symmetric; clocks compared to 2 ms: a measurement leaves out 5 ms at each edge of a window.
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            latency_rate: None,
            max_clock_error_ns: 2_000_000,
            who: crate::host::hostname(),
            stop: None,
        }
    }
}

/// The facts on an agent, for the report.
#[derive(Debug, Clone, Serialize)]
pub struct AgentReport {
    /// HOST:PORT.
    pub agent: String,
    /// Its role.
    pub role: Role,
    /// Its host's name.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// Its cores.
    pub cores: u32,
    /// Whether its kernel stamps packets.
    pub kernel_stamps: bool,
    /// Whether it may busy-poll.
    pub busy_poll: bool,
    /// Its clock minus the coordinator's, and the largest error of that.
    pub clock: Offset,
    /// The address of its target; empty before the start, and for a Unix socket.
    pub target: String,
    /// Its share of the load.
    pub rate: String,
    /// Its seed.
    pub seed: u64,
    /// How much later than the first agent it started, ns.
    pub start_skew_ns: u64,
    /// Why it is gone.
    pub gone: Option<String>,
}

/// A load over agents. Dropping it ends the sessions, and their loads with them.
pub struct RemoteLoad {
    runtime: Option<Runtime>,
    agents: Vec<Arc<Remote>>,
    plan: Plan,
    options: Options,
    plans: Vec<Plan>,
    targets: Vec<String>,
    starts: Vec<u64>,
    replay_gaps_ns: Vec<u64>,
    trust_pem: Vec<u8>,
    prepared: bool,
    running: bool,
    /// Whether the tasks that fetch records continue.
    fetching: Arc<AtomicBool>,
}

/// How often leases are renewed.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// How far ahead the agents are told to begin, ns.
const GO_NS: u64 = 100_000_000;
/// How often records are fetched while a load runs.
const FETCH: Duration = Duration::from_millis(500);

/// Opens a session with every agent and splits the plan among them. No load runs yet.
///
/// # Errors
/// An agent that is not there, is not the one expected, refuses the token, is in use, or whose clock cannot be compared; a plan
/// that these agents cannot share.
pub fn connect(
    addresses: &[AgentAddress],
    credentials: &Credentials,
    plan: Plan,
    options: Options,
) -> Result<RemoteLoad, AgentError> {
    if addresses.is_empty() {
        return Err(AgentError::Split("no agent given; give one with --agent".into()));
    }
    if !options.roles.is_empty() && options.roles.len() != addresses.len() {
        let (roles, agents) = (options.roles.len(), addresses.len());
        return Err(AgentError::Split(format!("{roles} roles for {agents} agents; give one role per agent")));
    }
    plan.validate()?;
    let replay_gaps_ns = replay_gaps(&plan)?;
    let trust_pem = match &plan.trust {
        Trust::File(path) => std::fs::read(path).map_err(AgentError::io(format!("read {}", path.display())))?,
        Trust::System | Trust::Anyone => Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(AgentError::io("start the coordinator"))?;
    let mut load = RemoteLoad {
        runtime: None,
        agents: Vec::new(),
        plan,
        plans: Vec::new(),
        targets: vec![String::new(); addresses.len()],
        starts: Vec::new(),
        replay_gaps_ns,
        trust_pem,
        prepared: false,
        running: false,
        fetching: Arc::default(),
        options,
    };
    for (i, address) in addresses.iter().enumerate() {
        let role = load.options.roles.get(i).copied().unwrap_or_default();
        let stop = load.options.stop.clone().unwrap_or_default();
        let cancel = Cancel { stop: &stop, ..Cancel::default() };
        let connecting = Remote::connect(address, role, credentials, &load.options.who);
        let connected =
            runtime.block_on(held(&cancel, "connecting to the agents", connecting)).and_then(|connected| connected);
        match connected {
            Ok(agent) => {
                // Sessions of agents that were reached before another one failed must be kept alive, or closed.
                hold(&runtime, &agent);
                load.agents.push(agent);
            }
            Err(error) => {
                load.runtime = Some(runtime);
                return Err(error);
            }
        }
    }
    load.runtime = Some(runtime);
    load.check_clocks()?;
    load.split()?;
    Ok(load)
}

/// How often a wait checks whether it must end.
const LOOK: Duration = Duration::from_millis(20);

/// The result, unless `cancel` ends it before.
async fn held<T>(cancel: &Cancel<'_>, what: &str, work: impl Future<Output = T>) -> Result<T, AgentError> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            out = &mut work => return Ok(out),
            () = tokio::time::sleep(LOOK) => {
                if let Some(why) = cancel.ended() {
                    return Err(AgentError::Interrupted(format!("{why} while {what}")));
                }
            }
        }
    }
}

/// Renews an agent's lease until the agent is gone or the runtime ends.
fn hold(runtime: &Runtime, agent: &Arc<Remote>) {
    let agent = agent.clone();
    runtime.spawn(async move {
        while agent.gone().is_none() {
            agent.keep_alive().await;
            tokio::time::sleep(KEEP_ALIVE).await;
        }
    });
}

/// The times of a replay as gaps; none for other arrivals.
fn replay_gaps(plan: &Plan) -> Result<Vec<u64>, AgentError> {
    if !matches!(plan.arrivals, Arrivals::Replay(_)) {
        return Ok(Vec::new());
    }
    let mut last = 0;
    let schedule = Schedule::new(&plan.arrivals, &plan.rate, plan.seed)?;
    let times = schedule.into_iter().flatten();
    Ok(times.map(|time| time - std::mem::replace(&mut last, time)).collect())
}

impl RemoteLoad {
    fn runtime(&self) -> &Runtime {
        // Set by `connect` before the value is used, and taken only by `drop`.
        self.runtime.as_ref().expect("the runtime lives as long as the load")
    }

    fn split(&mut self) -> Result<(), AgentError> {
        let parts = self.agents.iter().map(|agent| split::Part {
            role: agent.role,
            busy_poll: agent.hello.busy_poll,
            samples: agent.hello.limits.as_ref().map_or(usize::MAX, |l| l.samples as usize),
        });
        self.plans = split::split(&self.plan, &parts.collect::<Vec<_>>(), self.options.latency_rate)?;
        Ok(())
    }

    fn check_clocks(&self) -> Result<(), AgentError> {
        let limit = self.options.max_clock_error_ns;
        for agent in &self.agents {
            let offset = agent.offset();
            if offset.bound_ns > limit {
                let reason = format!(
                    "the offset is known to {:.3} ms only (half the shortest of 40 round trips), {:.3} ms are \
                     allowed; run the \
                     coordinator closer to the agents, or allow a larger offset",
                    offset.bound_ns as f64 / 1e6,
                    limit as f64 / 1e6
                );
                return Err(AgentError::Clock { agent: agent.name.clone(), reason });
            }
        }
        Ok(())
    }

    /// Runs a call on all agents at once; results in their order.
    fn all<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl Fn(usize, Arc<Remote>) -> F,
    ) -> Vec<T> {
        self.runtime().block_on(self.on_all(call))
    }

    async fn on_all<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        call: impl Fn(usize, Arc<Remote>) -> F,
    ) -> Vec<T> {
        let mut set = JoinSet::new();
        for (i, agent) in self.agents.iter().enumerate() {
            let call = call(i, agent.clone());
            set.spawn(async move { (i, call.await) });
        }
        let mut results = set.join_all().await;
        results.sort_by_key(|(i, _)| *i);
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn request(&self, i: usize, preload: bool) -> proto::LoadRequest {
        let mut plan = self.plans[i].clone();
        plan.workload.preload = preload;
        let replays = matches!(plan.arrivals, Arrivals::Replay(_));
        proto::LoadRequest {
            session: self.agents[i].hello.session,
            role: proto::Role::from(self.agents[i].role).into(),
            // A plan is made of numbers and strings; nothing in it can fail to be written.
            plan: serde_json::to_string(&plan).unwrap_or_default(),
            replay_gaps_ns: if replays { self.replay_gaps_ns.clone() } else { Vec::new() },
            trust_pem: self.trust_pem.clone(),
        }
    }

    /// Prepares the load of the agents: stores the keys through the first one (once), compares the clocks again, prepares
    /// all, and starts them at one instant.
    pub(crate) fn begin(&mut self, cancel: &Cancel<'_>) -> Result<(), AgentError> {
        for agent in &self.agents {
            if let Some(reason) = agent.gone() {
                return Err(AgentError::Connect { agent: agent.name.clone(), reason });
            }
        }
        if self.plan.workload.preload && !self.prepared {
            let request = self.request(0, true);
            let storing = self.agents[0].prepare(request);
            self.runtime().block_on(held(cancel, "the first agent stores the keys", storing))??;
            self.prepared = true;
        }
        for offset in self.all(|_, agent| async move {
            let offset = agent.compare_clocks().await;
            offset.map(|offset| agent.set_offset(offset))
        }) {
            offset?;
        }
        self.check_clocks()?;
        let requests: Vec<_> = (0..self.agents.len()).map(|i| self.request(i, false)).collect();
        let starting = self.on_all(|i, agent| {
            let request = requests[i].clone();
            async move { agent.start(request).await }
        });
        let started = self.runtime().block_on(held(cancel, "the agents get ready", starting))?;
        self.targets = started.into_iter().collect::<Result<_, _>>()?;
        // All are ready: they begin at one instant, far enough ahead for the slowest to be told.
        self.running = true;
        let start_ns = now_ns() + GO_NS;
        let begun: Result<Vec<u64>, AgentError> =
            self.all(move |_, agent| async move { agent.go(start_ns).await }).into_iter().collect();
        self.starts = match begun {
            Ok(starts) => starts,
            Err(error) => {
                self.end();
                return Err(error);
            }
        };
        self.fetching = Arc::new(AtomicBool::new(true));
        for agent in &self.agents {
            let (agent, go_on) = (agent.clone(), self.fetching.clone());
            self.runtime().spawn(async move {
                while go_on.load(Ordering::Relaxed) && agent.gone().is_none() {
                    agent.fetch().await;
                    tokio::time::sleep(FETCH).await;
                }
            });
        }
        Ok(())
    }

    /// Stops all loads; each agent's summary, or why there is none.
    pub(crate) fn end(&mut self) -> Vec<Result<Summary, AgentError>> {
        self.fetching.store(false, Ordering::Relaxed);
        if !std::mem::take(&mut self.running) {
            return Vec::new();
        }
        let drain = Duration::from_nanos(self.plan.drain_ns);
        self.all(|_, agent| async move {
            if let Some(reason) = agent.gone() {
                return Err(AgentError::Connect { agent: agent.name.clone(), reason });
            }
            let summary = agent.stop(drain).await;
            agent.fetch().await;
            if let Ok(offset) = agent.compare_clocks().await
                && let Some(reason) = agent.offset().contradicts(&offset)
            {
                return Err(AgentError::Clock { agent: agent.name.clone(), reason });
            }
            summary
        })
    }

    /// When the last agent had started, on this host's clock, ns.
    pub(crate) fn all_started_ns(&self) -> u64 {
        self.starts.iter().copied().max().unwrap_or(0)
    }

    /// The facts on the agents.
    #[must_use]
    pub fn reports(&self) -> Vec<AgentReport> {
        let first = self.starts.iter().copied().min().unwrap_or(0);
        let report = |(i, agent): (usize, &Arc<Remote>)| AgentReport {
            agent: agent.name.clone(),
            role: agent.role,
            host: agent.hello.hostname.clone(),
            kernel: agent.hello.kernel.clone(),
            cores: agent.hello.cores,
            kernel_stamps: agent.hello.kernel_stamps,
            busy_poll: agent.hello.busy_poll,
            clock: agent.offset(),
            target: self.targets.get(i).cloned().unwrap_or_default(),
            rate: self.plans[i].rate.to_string(),
            seed: self.plans[i].seed,
            start_skew_ns: self.starts.get(i).map_or(0, |start| start.saturating_sub(first)),
            gone: agent.gone(),
        };
        self.agents.iter().enumerate().map(report).collect()
    }

    /// Sets the rate of the next start, requests/s over all agents.
    ///
    /// # Errors
    /// When the arrivals have no rate.
    pub(crate) fn change_rate(&mut self, rate: f64) -> Result<(), AgentError> {
        if self.plan.arrivals.is_closed() || matches!(self.plan.arrivals, Arrivals::Replay(_)) {
            let reason =
                format!("arrivals `{}` have a fixed rate; use arrivals whose rate can be set", self.plan.arrivals);
            return Err(AgentError::Split(reason));
        }
        self.plan.rate = Rate::Constant(rate);
        self.split()
    }
}

impl Drop for RemoteLoad {
    fn drop(&mut self) {
        self.fetching.store(false, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.take() {
            let agents = std::mem::take(&mut self.agents);
            runtime.block_on(async {
                let mut set = JoinSet::new();
                for agent in agents {
                    set.spawn(async move { agent.exit().await });
                }
                set.join_all().await;
            });
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
    }
}
