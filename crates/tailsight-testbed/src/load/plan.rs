//! A workload as a plan of the load generator. In: a [`Workload`], a duration. Out: a [`Plan`]; errors as sentences about the workload.

use std::time::Duration;

use tailsight_load::{Endpoint, LoadError, Plan, Protocol, Rate, Receive, Size, Wait};
use tailsight_protocol::wire;

use super::{Arrivals, Proto, Workload};
use crate::Error;

/// Keys of a workload. One digit tells them apart: the length of a request is then the same for all, and known.
const KEYS: u64 = 10;
/// Most requests in flight on all TCP connections together, shared evenly; a connection takes at least [`LEAST_OF_CONNECTION`], and all
/// of a burst. Far more than ever are while a server keeps up, so that the loop stays open when it does not for a moment.
const IN_FLIGHT: usize = 64 << 10;
const LEAST_OF_CONNECTION: usize = 256;
/// Most on one connection, and on one UDP socket.
const MOST_OF_CONNECTION: usize = 4096;
const MOST_UDP: usize = 1024;
/// How long replies are waited for after the last request was sent, ns.
const DRAIN_NS: u64 = 1_000_000_000;
/// Room for samples, so many at most. A run in which more requests are due keeps a random part of them.
const SAMPLES: f64 = (2 << 20) as f64;
/// How fast a closed loop is expected to be at most, requests/s: it has no rate that says so.
const CLOSED_PER_S: f64 = 500_000.0;

/// The plan of a workload; its threads are called `task`.
pub(super) fn of(workload: &Workload, duration: Duration, spin: bool, task: &str) -> Plan {
    let target = match workload.proto {
        Proto::MemcachedUdp => Endpoint::Udp(workload.addr.to_string()),
        _ => Endpoint::Tcp(workload.addr.to_string()),
    };
    let mut plan = Plan::new(target, protocol(workload.proto));
    let size = u32::try_from(workload.value_size).unwrap_or(u32::MAX);
    plan.workload = tailsight_load::Workload {
        keys: KEYS,
        key_size: Size::Fixed(key(workload).len() as u32),
        key_prefix: prefix(workload),
        value_size: Size::Fixed(size),
        max_value: size,
        path: workload.path.clone(),
        ..tailsight_load::Workload::default()
    };
    plan.arrivals = match workload.arrivals {
        Arrivals::Poisson => tailsight_load::Arrivals::EXPONENTIAL,
        Arrivals::Fixed => tailsight_load::Arrivals::FIXED,
        // A closed loop refills bursts only whole.
        Arrivals::Closed(n) if workload.pipeline_burst > 1 => {
            tailsight_load::Arrivals::Batch(n.max(workload.pipeline_burst) as u32)
        }
        Arrivals::Closed(n) => tailsight_load::Arrivals::Closed(n as u32),
    };
    plan.outstanding = match workload.arrivals {
        Arrivals::Closed(n) => n.max(workload.pipeline_burst) as u32,
        _ => {
            let most = if workload.proto == Proto::MemcachedUdp { MOST_UDP } else { MOST_OF_CONNECTION };
            (IN_FLIGHT / workload.connections).clamp(LEAST_OF_CONNECTION, most).max(workload.pipeline_burst) as u32
        }
    };
    let closed = matches!(workload.arrivals, Arrivals::Closed(_));
    plan.burst = if closed { 1 } else { workload.pipeline_burst as u32 };
    let per_s = if closed { CLOSED_PER_S } else { workload.rate_per_s };
    // With Poisson arrivals more than 10 % and 1000 above the mean practically never happens.
    let expected = per_s * duration.as_secs_f64() * 1.1 + 1000.0 * f64::from(plan.burst);
    plan.rate = Rate::Constant(per_s);
    plan.sampling = if closed { 1.0 } else { (SAMPLES / expected).min(1.0) };
    plan.max_samples = expected.min(SAMPLES) as usize;
    // Arrivals are known from the seed; nobody here tests them.
    plan.max_sends = 1;
    plan.duration_ns = Some((duration.as_nanos() as u64).max(1_000_000));
    plan.connections = workload.connections as u32;
    plan.seed = workload.seed;
    plan.wait = if spin { Wait::Spin } else { Wait::Sleep };
    plan.receive = Receive::Eager;
    plan.stamps = false;
    plan.drain_ns = DRAIN_NS;
    // Where the caller is, there its load is.
    plan.pin = false;
    plan.task = task.to_owned();
    plan
}

fn protocol(proto: Proto) -> Protocol {
    match proto {
        Proto::Memcached | Proto::MemcachedUdp => Protocol::MemcachedText,
        Proto::Resp => Protocol::Resp,
        Proto::Http1 => Protocol::Http1,
    }
}

/// What the calling thread is called, cut to what leaves room for a number.
pub(super) fn task() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    let plain: String = name.trim_end().chars().filter(char::is_ascii_graphic).take(12).collect();
    if plain.is_empty() { "lab-load".into() } else { plain }
}

/// What the keys of a workload begin with.
fn prefix(workload: &Workload) -> String {
    format!("tailsight:{}:", workload.name)
}

/// A key of a workload; all are as long.
fn key(workload: &Workload) -> String {
    prefix(workload) + "0"
}

/// Bytes of one request of a TCP workload.
pub(super) fn request_bytes(workload: &Workload) -> u64 {
    let (mut bytes, key) = (Vec::new(), key(workload));
    match workload.proto {
        Proto::Memcached | Proto::MemcachedUdp => wire::memcached::get(&mut bytes, key.as_bytes()),
        Proto::Resp => wire::resp::get(&mut bytes, key.as_bytes()),
        Proto::Http1 => wire::http1::get(&mut bytes, &workload.addr.to_string(), &workload.path),
    }
    bytes.len() as u64
}

/// Bytes that store the values of a TCP workload.
pub(super) fn preload_bytes(workload: &Workload) -> u64 {
    let (mut bytes, key) = (Vec::new(), key(workload));
    let value = vec![0; workload.value_size];
    match workload.proto {
        Proto::Memcached | Proto::MemcachedUdp => wire::memcached::set(&mut bytes, key.as_bytes(), 0, 0, &value),
        Proto::Resp => wire::resp::set(&mut bytes, key.as_bytes(), &value),
        Proto::Http1 => {}
    }
    KEYS * bytes.len() as u64
}

/// Why a workload did not start, as an error of this crate.
pub(super) fn refused(workload: &Workload, error: LoadError) -> Error {
    let setup =
        |action, reason: String| Error::Setup { workload: workload.name.clone(), action, addr: workload.addr, reason };
    match error {
        LoadError::Connect { source, .. } => setup("connect", format!("{source}; is the server running?")),
        LoadError::Setup { step: "storing the keys", reason, .. } => setup("set a value", reason),
        LoadError::Setup { reason, .. } => setup("get a first reply", reason),
        LoadError::Plan(reason) => Error::InvalidWorkload { workload: workload.name.clone(), reason },
        LoadError::Io { what, source } => Error::io(what, source),
        other => setup("begin", tailsight_units::chain(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(workload: &Workload) -> Plan {
        of(workload, Duration::from_secs(2), false, "lab")
    }

    #[test]
    fn whatever_a_workload_allows_can_be_run() {
        let addr = "[fd77::1]:80".parse().unwrap();
        for proto in [Proto::Memcached, Proto::MemcachedUdp, Proto::Resp, Proto::Http1] {
            let base = Workload { name: "n".repeat(64), ..Workload::new(proto, addr) };
            let udp = proto == Proto::MemcachedUdp;
            for workload in [
                Workload { pipeline_burst: 1024, ..base.clone() },
                Workload { connections: 50_000, ..base.clone() },
                Workload { value_size: 0, ..base.clone() },
                Workload { value_size: if udp { 32 << 10 } else { 512 << 20 }, ..base.clone() },
                Workload { arrivals: Arrivals::Fixed, ..base.clone() }.rate(1e7),
                Workload { arrivals: Arrivals::Closed(65_536), ..base.clone() },
                Workload { arrivals: Arrivals::Closed(4), pipeline_burst: 16, ..base.clone() },
            ] {
                if udp && matches!(workload.arrivals, Arrivals::Closed(_)) {
                    continue;
                }
                workload.validate().unwrap();
                plan(&workload).validate().unwrap_or_else(|e| panic!("{workload:?}: {e}"));
            }
        }
    }

    #[test]
    fn long_runs_keep_a_part_of_their_samples() {
        let base = Workload::new(Proto::Resp, "127.0.0.1:1".parse().unwrap());
        assert_eq!(plan(&base).sampling, 1.0);
        let many = plan(&base.rate(5e6));
        assert!(many.sampling < 0.2 && many.max_samples as f64 <= SAMPLES, "{many:?}");
    }

    #[test]
    fn threads_are_called_as_their_maker() {
        let name = std::thread::Builder::new().name("lab-client-and-more".into());
        assert_eq!(name.spawn(task).unwrap().join().unwrap(), "lab-client-a");
    }
}
