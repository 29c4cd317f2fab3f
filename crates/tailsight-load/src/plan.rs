//! The complete description of a load. In: choices. Out: a [`Plan`] that was checked, or the first contradiction in it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_protocol::Kind;

use crate::as_text;
use crate::http::HttpRequest;
use crate::{Arrivals, Endpoint, LoadError, Rate, Workload};
use tailsight_units::parse::{duration_ns, write_duration};

/// How a thread waits for the next request to be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Wait {
    /// Sleeps, and wakes early by the recent lateness of this host's timers, as far as the lateness goal requires it
    /// ([`Limits::lateness_p99_ns`]); polls the rest: `auto`. Little CPU time where timers are good, exact where they are
    /// not.
    Auto,
    /// Sleeps to the due time and is late by the timers' lateness: `sleep`.
    Sleep,
    /// Sleeps until this many ns before the due time and polls the rest: `poll:20us`.
    Poll(u64),
    /// Polls all the time, which takes a whole core: `spin`.
    Spin,
    /// Sleeps at least this many ns between two turns, and sends together what came due meanwhile: `batch:1ms`. The least
    /// CPU time, for load that is not measured; the server sees bursts.
    Batch(u64),
}

impl FromStr for Wait {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        let timed = |name: &str| input.strip_prefix(name).and_then(duration_ns);
        match input {
            "auto" => Ok(Self::Auto),
            "sleep" => Ok(Self::Sleep),
            "spin" => Ok(Self::Spin),
            _ => timed("poll:")
                .map(Self::Poll)
                // Beyond 10 ms the periodic checks would be late.
                .or(timed("batch:").filter(|ns| (1..=10_000_000).contains(ns)).map(Self::Batch))
                .ok_or_else(|| {
                    LoadError::parse("a way to wait", input, "auto, sleep, poll:TIME, spin or batch:TIME (up to 10ms)")
                }),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Sleep => f.write_str("sleep"),
            Self::Poll(ns) => write!(f, "poll:{}", write_duration(*ns)),
            Self::Spin => f.write_str("spin"),
            Self::Batch(ns) => write!(f, "batch:{}", write_duration(*ns)),
        }
    }
}

impl TryFrom<String> for Wait {
    type Error = LoadError;
    fn try_from(text: String) -> Result<Self, LoadError> {
        text.parse()
    }
}

impl From<Wait> for String {
    fn from(wait: Wait) -> Self {
        wait.to_string()
    }
}

/// When replies are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Receive {
    /// `Lazy` where the kernel stamps what arrives, else `Eager`.
    Auto,
    /// A reply wakes the thread at once.
    Eager,
    /// The kernel stamps the arrival of a reply; the thread reads it when it wakes to send anyway, at most a millisecond
    /// later. Saves a wake-up for each request, and on loopback the server the work of waking the client.
    Lazy,
}

/// Where the requests of a [burst](Plan::burst) go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BurstOver {
    /// To one connection, in one call: pipelined.
    #[default]
    Connection,
    /// One to each of several connections: clients that act at the same time.
    Connections,
}

/// Which certificates TLS trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// The host's certificate authorities (`/etc/ssl/certs/ca-certificates.crt`, or where `SSL_CERT_FILE` says).
    System,
    /// The certificates in this PEM file.
    File(PathBuf),
    /// Any certificate. For test servers: the load is then encrypted, not authenticated.
    Anyone,
}

/// Beyond this the client was not good enough and the run is flagged. Other accounts have fixed limits
/// ([`Complaint`](crate::Complaint) names them); older files contain them, and they are read but not used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// 99th percentile of the client's own lateness (clock at the send call minus intended), ns: also the goal of its
    /// waiting.
    pub lateness_p99_ns: u64,
}

impl Default for Limits {
    /// 100 µs.
    fn default() -> Self {
        Self { lateness_p99_ns: 100_000 }
    }
}

/// A load. Make one with [`Plan::new`], change fields, [`Plan::validate`] it; [`Driver::start`](crate::Driver::start) does
/// so as well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The server.
    pub target: Endpoint,
    /// The protocol.
    #[serde(with = "as_text")]
    #[schemars(with = "String")]
    pub protocol: Kind,
    /// The requests.
    pub workload: Workload,
    /// The arrivals.
    pub arrivals: Arrivals,
    /// How often, over all threads. Not used by replays and closed loops.
    pub rate: Rate,
    /// How long requests are sent, ns; `None`: until stopped.
    pub duration_ns: Option<u64>,
    /// Threads, each pinned to a core of its own where there are enough.
    pub threads: u32,
    /// Connections over all threads (datagrams: sockets).
    pub connections: u32,
    /// Requests that may be outstanding on a connection. A request that is due while every connection has this many waits,
    /// counted as blocked: the loop is then not open.
    pub outstanding: u32,
    /// Requests that are due at once at each arrival. Arrivals are rarer by this factor: the rate stays the same.
    #[serde(default = "one")]
    pub burst: u32,
    /// How a burst is distributed over connections.
    #[serde(default)]
    pub burst_over: BurstOver,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Share of the requests whose times are kept, chosen at random.
    pub sampling: f64,
    /// Room for samples, over all threads; allocated before the start. Samples beyond it are counted.
    pub max_samples: usize,
    /// Room for [sends](crate::Send), over all threads. All requests of measured windows are recorded there, sampled or not; what
    /// has no room is left out, and the arrivals are then known up to there.
    #[serde(default = "usual_room")]
    pub max_sends: usize,
    /// Whether the kernel is asked for time stamps.
    pub stamps: bool,
    /// How to wait.
    pub wait: Wait,
    /// When to read.
    pub receive: Receive,
    /// Microseconds of SO_BUSY_POLL on every socket; 0: none.
    pub busy_poll_us: u32,
    /// What threads are called, before `-` and their number; at most 12 bytes.
    #[serde(default = "usual_task")]
    pub task: String,
    /// The cores to pin to, one a thread; empty: chosen.
    pub cpus: Vec<usize>,
    /// Whether threads are pinned at all.
    pub pin: bool,
    /// Whether threads run before all of ordinary priority, where that is permitted.
    #[serde(default)]
    pub real_time: bool,
    /// How long the server may take to accept, and to answer before the load, ns.
    pub patience_ns: u64,
    /// How long replies are waited for after the last request, ns.
    pub drain_ns: u64,
    /// After this long without a reply a datagram request is lost, ns.
    pub lost_after_ns: u64,
    /// Whom TLS trusts.
    pub trust: Trust,
    /// The name that TLS asks for and checks; `None`: the target's host.
    pub server_name: Option<String>,
    /// When the client is not good enough.
    pub limits: Limits,
}

fn one() -> u32 {
    1
}

fn usual_task() -> String {
    "load".into()
}

fn usual_room() -> usize {
    1 << 20
}

impl Plan {
    /// Exponential arrivals at 1,000 requests/s for 10 s on one thread over 16 connections, all sampled.
    #[must_use]
    pub fn new(target: Endpoint, protocol: Kind) -> Self {
        // HTTP/1.1 pipelining is not what clients do.
        let outstanding = if protocol == Kind::Http1 { 1 } else { 64 };
        Self {
            target,
            protocol,
            workload: Workload::default(),
            arrivals: Arrivals::EXPONENTIAL,
            rate: Rate::Constant(1000.0),
            duration_ns: Some(10_000_000_000),
            threads: 1,
            connections: 16,
            outstanding,
            burst: 1,
            burst_over: BurstOver::Connection,
            seed: 1,
            sampling: 1.0,
            max_samples: usual_room(),
            max_sends: usual_room(),
            stamps: true,
            wait: Wait::Auto,
            receive: Receive::Auto,
            busy_poll_us: 0,
            task: usual_task(),
            cpus: Vec::new(),
            pin: true,
            real_time: false,
            patience_ns: 2_000_000_000,
            drain_ns: 1_000_000_000,
            lost_after_ns: 500_000_000,
            trust: Trust::System,
            server_name: None,
            limits: Limits::default(),
        }
    }

    /// The plan as a report keeps it: without what authorises requests, and without their bodies.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        self.workload.requests = self.workload.requests.into_iter().map(HttpRequest::without_secrets).collect();
        self
    }

    /// Refuses what is impossible or contradicts itself.
    ///
    /// # Errors
    /// [`LoadError::Plan`] says which choice, and what to choose.
    pub fn validate(&self) -> Result<(), LoadError> {
        let refuse = |reason: String| Err(LoadError::Plan(reason));
        self.workload.validate()?;
        if !self.workload.requests.is_empty() && !self.protocol.is_http() {
            return refuse(format!("methods, header fields and bodies are HTTP's, and {} is asked for", self.protocol));
        }
        if !(1..=1024).contains(&self.threads) {
            return refuse(format!("threads must be 1 to 1024, got {}", self.threads));
        }
        if !(self.threads..=60_000).contains(&self.connections) {
            let (c, t) = (self.connections, self.threads);
            return refuse(format!("connections must be {t} (one per thread) to 60000, got {c}"));
        }
        if !(1..=65_536).contains(&self.outstanding) {
            return refuse(format!("--outstanding must be 1 to 65536, got {}", self.outstanding));
        }
        if self.target.is_datagram() && self.outstanding > 4096 {
            return refuse("--outstanding must be at most 4096 for datagrams (their ids have 16 bits)".into());
        }
        let (limit, whose) = match self.burst_over {
            BurstOver::Connection => (self.outstanding, "a connection"),
            BurstOver::Connections => {
                (self.outstanding.saturating_mul(self.connections / self.threads), "the connections of a thread")
            }
        };
        if !(1..=limit).contains(&self.burst) {
            let burst = self.burst;
            return refuse(format!(
                "--burst {burst} exceeds the {limit} requests that may be outstanding on {whose}; raise \
                 --outstanding, or lower --burst"
            ));
        }
        if self.burst > 1 && self.arrivals.is_closed() {
            return refuse("--burst cannot be used with --closed; use --arrivals batch:N".into());
        }
        if !(1..=12).contains(&self.task.len()) || !self.task.bytes().all(|b| b.is_ascii_graphic()) {
            return refuse(format!("the threads' name must have 1 to 12 printable characters, got `{}`", self.task));
        }
        if !(0.0..=1.0).contains(&self.sampling) {
            return refuse(format!("the sampling rate must be 0 to 1, got {}", self.sampling));
        }
        for (what, room) in [("samples", self.max_samples), ("sends", self.max_sends)] {
            if !(1..=1 << 28).contains(&room) {
                return refuse(format!("room for {what} must be 1 to 268435456, got {room}"));
            }
        }
        if self.duration_ns.is_some_and(|ns| !(1_000_000..=1 << 60).contains(&ns)) {
            return refuse("the load must last at least a millisecond (and less than 36 years)".into());
        }
        if !self.cpus.is_empty() && (!self.pin || self.cpus.len() != self.threads as usize) {
            return refuse(format!(
                "--cpus lists {} cores for {} threads; list one per thread",
                self.cpus.len(),
                self.threads
            ));
        }
        if self.real_time && self.wait == Wait::Spin {
            return refuse(
                "threads of real-time priority that poll (--wait spin) leave their cores to nobody; leave out one of \
                 both"
                    .into(),
            );
        }
        if let Some(outstanding) = self.arrivals.outstanding() {
            if self.target.is_datagram() {
                return refuse(
                    "a closed loop cannot use datagrams (a lost datagram would stop it); use an open \
                 loop"
                        .into(),
                );
            }
            if outstanding > self.outstanding {
                let limit = self.outstanding;
                return refuse(format!(
                    "a closed loop with {outstanding} outstanding, but at most {limit} are allowed"
                ));
            }
            if self.receive == Receive::Lazy {
                return refuse(
                    "a closed loop cannot use --receive lazy (each reply triggers the next request); use \
                 eager"
                        .into(),
                );
            }
        }
        if self.receive == Receive::Lazy && !self.stamps {
            return refuse("--receive lazy needs kernel time stamps; remove --no-stamps or use eager".into());
        }
        if self.receive == Receive::Lazy && matches!(self.target, Endpoint::Unix(_)) {
            return refuse(
                "--receive lazy cannot be used with a Unix stream socket (it has no kernel time stamps); use \
             eager"
                    .into(),
            );
        }
        self.transport_carries_protocol()
    }

    /// Refuses protocols over transports that have no such thing.
    fn transport_carries_protocol(&self) -> Result<(), LoadError> {
        let refuse = |reason: String| Err(LoadError::Plan(reason));
        let (target, protocol) = (&self.target, self.protocol);
        match target {
            // Plain datagrams need an id inside the request, or a lost one would shift all later matches.
            Endpoint::Udp(_) if matches!(protocol, Kind::Resp | Kind::Http1 | Kind::Http2) => refuse(format!(
                "{protocol} cannot be used over {target}: datagrams need request ids; memcached, \
                 synthetic and echo have them"
            )),
            Endpoint::R2p2(_) if matches!(protocol, Kind::Http1 | Kind::Http2) => {
                refuse(format!("{protocol} cannot be used over {target}: HTTP needs TCP or a Unix stream socket"))
            }
            _ => Ok(()),
        }?;
        if target.is_datagram() {
            let largest = match self.workload.value_size {
                crate::Size::Fixed(bytes) => bytes,
                _ => self.workload.max_value,
            };
            // R2P2 sends the later packets of a request when the server asks for them; here a request is one packet.
            let limit = if matches!(target, Endpoint::R2p2(_)) { 1200 } else { 60_000 };
            if largest > limit {
                return refuse(format!("values of up to {largest} bytes over {target}; set max-value={limit} or less"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new("localhost:1".parse().unwrap(), Kind::Resp)
    }

    #[test]
    fn a_plan_survives_json() {
        let plan = Plan { wait: Wait::Poll(20_000), trust: Trust::File("x.pem".into()), ..plan() };
        plan.validate().unwrap();
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan, "{json}");
    }

    #[test]
    fn contradictions_are_refused() {
        let udp: Endpoint = "udp://localhost:1".parse().unwrap();
        for bad in [
            Plan { threads: 0, ..plan() },
            Plan { threads: 20, ..plan() },
            Plan { outstanding: 0, ..plan() },
            Plan { burst: 0, ..plan() },
            Plan { burst: 65, ..plan() },
            Plan { burst: 2, arrivals: Arrivals::Closed(2), ..plan() },
            Plan { task: "a\0b".into(), ..plan() },
            Plan { sampling: f64::NAN, ..plan() },
            Plan { max_sends: 0, ..plan() },
            Plan { duration_ns: Some(0), ..plan() },
            Plan { cpus: vec![0, 1], ..plan() },
            Plan { receive: Receive::Lazy, stamps: false, ..plan() },
            Plan { receive: Receive::Lazy, arrivals: Arrivals::Closed(1), ..plan() },
            Plan { receive: Receive::Lazy, target: "unix:/x".parse().unwrap(), ..plan() },
            Plan { arrivals: Arrivals::Closed(100), ..plan() },
            Plan { target: udp.clone(), ..plan() },
            Plan { target: udp.clone(), protocol: Kind::Http1, ..plan() },
            Plan { target: udp.clone(), protocol: Kind::Echo, arrivals: Arrivals::Closed(1), ..plan() },
            Plan {
                target: udp.clone(),
                protocol: Kind::Echo,
                workload: Workload { value_size: crate::Size::Exponential(100.0), ..Workload::default() },
                ..plan()
            },
            Plan { target: "r2p2://h:1".parse().unwrap(), protocol: Kind::Http1, ..plan() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
