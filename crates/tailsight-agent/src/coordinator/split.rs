//! One load over several agents. In: a plan and each agent's role. Out: a plan for each, which together are the load.
//!
//! Independent Poisson streams add up to one. Other arrival processes do not: each agent then has the process at its share of
//! the rate, and the method tests each agent's stream.

use serde::{Deserialize, Serialize};
use tailsight_load::{Arrivals, Plan, Rate, Receive, Wait};

use crate::AgentError;
use crate::proto;

/// What an agent does (Lancet §4.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends its share of the load and measures all of it.
    #[default]
    Symmetric,
    /// Sends its share of the load; its latencies are not used.
    Throughput,
    /// Sends little, busy-polls, and measures.
    Latency,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Symmetric => "symmetric",
            Self::Throughput => "throughput",
            Self::Latency => "latency",
        })
    }
}

impl From<Role> for proto::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Symmetric => Self::Symmetric,
            Role::Throughput => Self::Throughput,
            Role::Latency => Self::Latency,
        }
    }
}

/// An agent, as far as the split needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) role: Role,
    /// Whether it may set SO_BUSY_POLL.
    pub(crate) busy_poll: bool,
    /// The most samples it has room for.
    pub(crate) samples: usize,
}

/// SO_BUSY_POLL of latency agents, us (the kernel documentation's proposal).
const BUSY_POLL_US: u32 = 50;
/// Share of the load that a latency agent sends unless told; Lancet leaves it to the user.
const LATENCY_SHARE: f64 = 0.01;
/// A latency agent opens several connections, so that it meets every core of the server (Lancet §4.2).
const LATENCY_CONNECTIONS: u32 = 16;

/// The plans, in the order of the agents.
pub(crate) fn split(plan: &Plan, parts: &[Part], latency_rate: Option<f64>) -> Result<Vec<Plan>, AgentError> {
    let refuse = |reason: &str| Err(AgentError::Split(reason.to_owned()));
    let latency = parts.iter().filter(|p| p.role == Role::Latency).count();
    let loading = parts.len() - latency;
    if loading == 0 {
        return refuse("all agents are latency agents; add symmetric or throughput agents");
    }
    if !parts.iter().any(|p| p.role != Role::Throughput) {
        return refuse("all agents are throughput agents, which measure nothing; add latency or symmetric agents");
    }
    if matches!(plan.arrivals, Arrivals::Replay(_)) && loading > 1 {
        return refuse("a replay is one stream of requests: use one agent for it (and latency agents if needed)");
    }
    let has_rate = !plan.arrivals.is_closed() && !matches!(plan.arrivals, Arrivals::Replay(_));
    if latency > 0 && !has_rate && latency_rate.is_none() {
        return refuse("latency agents in a closed loop or a replay need a rate of their own");
    }
    // Of the rate as it changes over time, a fixed share.
    let of_rate = match latency_rate {
        Some(rate) if has_rate => rate / plan.rate.peak(),
        _ => LATENCY_SHARE,
    };
    let left = 1.0 - of_rate * latency as f64;
    if has_rate && left <= 0.0 {
        return refuse("the latency agents would send the whole load; lower their rate");
    }
    let (mut nth, mut plans) = (0, Vec::new());
    for (i, part) in parts.iter().enumerate() {
        let mut own = Plan { seed: seed(plan.seed, i), ..plan.clone() };
        own.max_samples = plan.max_samples.min(part.samples).max(1);
        own.max_sends = plan.max_sends.min(part.samples).max(1);
        if part.role == Role::Latency {
            own.arrivals = Arrivals::EXPONENTIAL;
            own.rate = match latency_rate {
                Some(rate) if !has_rate => Rate::Constant(rate),
                _ => scaled(&plan.rate, of_rate),
            };
            own.threads = 1;
            own.connections = plan.connections.min(LATENCY_CONNECTIONS);
            own.wait = Wait::Spin;
            own.receive = Receive::Eager;
            own.busy_poll_us = if part.busy_poll { BUSY_POLL_US } else { 0 };
            own.cpus.truncate(1);
        } else {
            if has_rate {
                own.rate = scaled(&plan.rate, left / loading as f64);
            }
            let (n, k) = (loading as u32, nth as u32);
            own.connections = (plan.connections / n + u32::from(k < plan.connections % n)).max(plan.threads);
            nth += 1;
        }
        own.validate()?;
        plans.push(own);
    }
    Ok(plans)
}

/// A rate, scaled at all times.
fn scaled(rate: &Rate, by: f64) -> Rate {
    match rate {
        Rate::Constant(rate) => Rate::Constant(rate * by),
        Rate::Steps(steps) => Rate::Steps(steps.iter().map(|(ns, rate)| (*ns, rate * by)).collect()),
        Rate::Ramp { from, to, over_ns } => Rate::Ramp { from: from * by, to: to * by, over_ns: *over_ns },
        Rate::Diurnal { low, high, period_ns } => {
            Rate::Diurnal { low: low * by, high: high * by, period_ns: *period_ns }
        }
    }
}

/// A seed for each agent: the first has the plan's, so that one agent does what this host would do (SplitMix64).
fn seed(plan: u64, agent: usize) -> u64 {
    if agent == 0 {
        return plan;
    }
    let mut z = plan.wrapping_add((agent as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailsight_load::Protocol;

    fn part(role: Role) -> Part {
        Part { role, busy_poll: true, samples: 1 << 20 }
    }

    fn plan(rate: &str) -> Plan {
        let mut plan = Plan::new("localhost:1".parse().unwrap(), Protocol::MemcachedText);
        plan.rate = rate.parse().unwrap();
        plan
    }

    proptest! {
        #[test]
        fn shares_add_up_at_all_times(loading in 1..8_usize, latency in 0..4_usize, which in 0..4_usize, ns in 0..20_000_000_000_u64, connections in 8..100_u32) {
            let mut plan = plan(["10k", "ramp:1k..50k/10s", "steps:10k/5s,20k/5s", "diurnal:5k..50k/6s"][which]);
            plan.connections = connections;
            let parts: Vec<Part> =
                (0..loading + latency).map(|i| part(if i < latency { Role::Latency } else { Role::Symmetric })).collect();
            let plans = split(&plan, &parts, None).unwrap();
            let sum: f64 = plans.iter().map(|p| p.rate.at(ns)).sum();
            prop_assert!((sum / plan.rate.at(ns) - 1.0).abs() < 1e-9);
            let own: u32 = plans[latency..].iter().map(|p| p.connections).sum();
            prop_assert_eq!(own, connections);
            let mut seeds: Vec<u64> = plans.iter().map(|p| p.seed).collect();
            seeds.sort_unstable();
            seeds.dedup();
            prop_assert_eq!(seeds.len(), plans.len(), "every agent has a seed of its own");
        }
    }

    #[test]
    fn latency_agents_poll_and_send_little() {
        let parts = [part(Role::Throughput), part(Role::Latency)];
        let plans = split(&plan("20k"), &parts, Some(500.0)).unwrap();
        assert_eq!((plans[0].rate.clone(), plans[1].rate.clone()), (Rate::Constant(19_500.0), Rate::Constant(500.0)));
        assert_eq!((plans[1].busy_poll_us, plans[1].wait, plans[1].receive), (50, Wait::Spin, Receive::Eager));
        let without = Part { busy_poll: false, ..part(Role::Latency) };
        assert_eq!(split(&plan("20k"), &[parts[0], without], None).unwrap()[1].busy_poll_us, 0);
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let mut replay = plan("1k");
        replay.arrivals = Arrivals::Replay("x".into());
        let two = [part(Role::Symmetric), part(Role::Symmetric)];
        assert!(split(&replay, &two, None).unwrap_err().to_string().contains("replay"));
        assert!(split(&replay, &two[..1], None).is_ok());
        for (roles, rate) in [
            (vec![Role::Latency], None),
            (vec![Role::Throughput], None),
            (vec![Role::Symmetric, Role::Latency], Some(2e3)),
        ] {
            let parts: Vec<Part> = roles.into_iter().map(part).collect();
            assert!(split(&plan("1k"), &parts, rate).is_err(), "{parts:?}");
        }
    }
}
