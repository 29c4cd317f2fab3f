//! The load of a modern server: the product's load generator with what its clients speak. In: a [`Stream`], an address. Out: a
//! [`Sample`] a reply, times in CLOCK_MONOTONIC ns.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use tailsight_lab::probe::Sample;
use tailsight_load::{
    Arrivals, Complaint, Driver, Endpoint, LEAD_NS, Plan, Prepared, Rate, Receive, Status, Trust, Wait, now_ns,
};
use tailsight_protocol::Kind;

use super::super::scenario::Stream;

impl Stream {
    /// HTTP/1.1 on 32 kept connections, one request at a time on each, at random times.
    pub const fn http(rate_per_s: f64) -> Self {
        Self { protocol: Kind::Http1, tls: false, rate_per_s, connections: 32, outstanding: 1, even: false, sets: 0.0 }
    }

    /// Redis' protocol on 16 connections, at random times.
    pub const fn redis(rate_per_s: f64, sets: f64) -> Self {
        Self { protocol: Kind::Resp, connections: 16, outstanding: 64, sets, ..Self::http(rate_per_s) }
    }

    /// The same, evenly spaced: where nothing is wrong no request waits for another one.
    pub const fn evenly(self) -> Self {
        Self { even: true, ..self }
    }

    /// The plan of the load generator: it sleeps between requests, as beside every scenario, and asks for no time stamps.
    pub fn plan(self, address: SocketAddr, seed: u64) -> Plan {
        let host = address.to_string();
        let target = if self.tls { Endpoint::Tls(host) } else { Endpoint::Tcp(host) };
        let mut plan = Plan::new(target, self.protocol);
        plan.arrivals = if self.even { Arrivals::FIXED } else { Arrivals::EXPONENTIAL };
        plan.rate = Rate::Constant(self.rate_per_s);
        plan.connections = self.connections;
        plan.outstanding = self.outstanding;
        plan.workload.sets = self.sets;
        plan.workload.keys = 20_000;
        plan.workload.value_size = tailsight_load::Size::Fixed(64);
        (plan.seed, plan.max_sends) = (seed, 1);
        (plan.wait, plan.receive, plan.stamps, plan.pin) = (Wait::Sleep, Receive::Eager, false, false);
        // The certificate is the server's own.
        (plan.trust, plan.server_name) = (Trust::Anyone, Some("localhost".to_owned()));
        plan.task = "lab-load".to_owned();
        plan
    }
}

/// Runs these loads until `stop`, at most so long. The threads have the caller's namespace and core.
pub fn load(mut plans: Vec<Plan>, longest: Duration, stop: &AtomicBool) -> anyhow::Result<Vec<Sample>> {
    for plan in &mut plans {
        plan.duration_ns = Some(longest.as_nanos() as u64);
    }
    let prepared: Vec<Prepared> = plans.into_iter().map(Driver::prepare).collect::<Result<_, _>>()?;
    let start = now_ns() + LEAD_NS;
    let drivers: Vec<Driver> = prepared.into_iter().map(|one| one.go(start)).collect();
    let deadline = Instant::now() + longest;
    while !stop.load(Ordering::Relaxed) && Instant::now() < deadline && !drivers.iter().any(|one| one.progress().ended)
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    drivers.iter().for_each(Driver::end);
    let mut samples = Vec::new();
    for outcome in drivers.into_iter().map(Driver::wait) {
        let gone = |complaint: &Complaint| match complaint {
            Complaint::ServerGone { reason, .. } | Complaint::ClientFailed { reason } => Some(reason.clone()),
            _ => None,
        };
        if let Some(reason) = outcome.complaints.iter().find_map(gone) {
            bail!("the load ended: {reason}");
        }
        samples.extend(outcome.samples.iter().filter(|sample| sample.status() == Status::Ok).map(|sample| Sample {
            due_ns: sample.intended_ns,
            sent_ns: sample.called_ns,
            answered_ns: sample.received_ns,
            connection: sample.connection,
            ..Sample::default()
        }));
    }
    samples.sort_unstable_by_key(|sample| sample.sent_ns);
    Ok(samples)
}
