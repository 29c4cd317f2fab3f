//! Loads on the testbed's servers, by the load generator of the product. In: [`Workload`]s, a duration. Out: an [`LoadSummary`] a workload,
//! times in ns.
//!
//! What sends and reads is [`tailsight_load`]; here is only the testbed's vocabulary for it: a server, a rate, how many at once,
//! several of them at the same time. Requests are due at times drawn beforehand, whether or not earlier ones were answered,
//! and latency counts from the time a request was *due*: a slow server cannot slow the load that measures it. The kernel's
//! time stamps are left out, for each of them is one more packet's worth of work on hosts whose packets are recorded; a
//! reply is timed when it is read. Replies that are late still count, for up to 1 s after the last request was sent; what
//! is missing then is in [`LoadSummary::unanswered`].

mod outcome;
mod plan;
mod workload;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Now, CLOCK_MONOTONIC ns: the clock of samples and of recordings.
pub use tailsight_load::now_ns;
use tailsight_load::{Complaint, Driver, Prepared};

pub use outcome::{Latency, LoadSummary, Summary};
pub use workload::{Arrivals, Proto, Workload};

use crate::{Error, Result};

/// How often a run looks whether it is to stop, or a server is gone.
const LOOK: Duration = Duration::from_millis(5);

/// Connects, sets the values, sends one request on each connection, then runs all workloads for `duration`.
///
/// The threads that send are started by the calling one and have its network namespace, its cores and its priority; they are
/// called as it is, with a number behind. With `spin` one thread polls for all workloads without a pause, which is exact and
/// takes a whole core; without, each workload has a thread that sleeps between events and wakes to the nanosecond timers of
/// the kernel. When `stop` becomes true, no more requests are sent and what was measured until then is returned, some tens
/// of milliseconds and the last replies later. The soft limit of open files is raised to the hard limit when the connections
/// need it.
///
/// # Errors
/// [`Error::InvalidWorkload`], [`Error::Setup`], [`Error::Malformed`], [`Error::ServerGone`], [`Error::Io`].
pub fn run(workloads: &[Workload], duration: Duration, spin: bool, stop: &AtomicBool) -> Result<Vec<LoadSummary>> {
    run_telling(workloads, duration, spin, stop, || ())
}

/// As [`run`]; `prepared` is called when connections and first values are made, just before the first requests.
///
/// # Errors
/// As [`run`].
pub fn run_telling(
    workloads: &[Workload],
    duration: Duration,
    spin: bool,
    stop: &AtomicBool,
    prepared: impl FnOnce(),
) -> Result<Vec<LoadSummary>> {
    workloads.iter().try_for_each(Workload::validate)?;
    let drivers = start(workloads, duration, spin)?;
    prepared();
    let mut left = duration.saturating_add(Duration::from_nanos(tailsight_load::LEAD_NS));
    while !left.is_zero() && !stop.load(Ordering::Relaxed) {
        // A load that is over before its time has lost its server; the others are then of no use.
        if drivers.iter().any(|driver| driver.progress().ended) {
            break;
        }
        let before = now_ns();
        std::thread::sleep(LOOK.min(left));
        left = left.saturating_sub(Duration::from_nanos(now_ns() - before));
    }
    // Those that are through stay so; the others end now, all at once, before anybody waits for replies.
    if !left.is_zero() {
        drivers.iter().for_each(Driver::end);
    }
    let measured: Vec<tailsight_load::Outcome> = drivers.into_iter().map(Driver::wait).collect();
    for (workload, outcome) in workloads.iter().zip(&measured) {
        outcome.complaints.iter().try_for_each(|complaint| fatal(workload, complaint))?;
    }
    Ok(workloads.iter().zip(&measured).map(|(workload, outcome)| LoadSummary::new(workload, outcome)).collect())
}

/// Prepares all workloads, then starts them at one instant.
fn start(workloads: &[Workload], duration: Duration, spin: bool) -> Result<Vec<Driver>> {
    let task = plan::task();
    let plan = |workload: &Workload| plan::of(workload, duration, spin, &task);
    let prepared: Vec<Prepared> = if spin && workloads.len() > 1 {
        let plans = workloads.iter().map(plan).collect();
        Driver::prepare_together(plans).map_err(|(which, error)| plan::refused(&workloads[which], error))?
    } else {
        let driver = |w: &Workload| Driver::prepare(plan(w)).map_err(|error| plan::refused(w, error));
        workloads.iter().map(driver).collect::<Result<_>>()?
    };
    let start_ns = now_ns() + tailsight_load::LEAD_NS;
    Ok(prepared.into_iter().map(|prepared| prepared.go(start_ns)).collect())
}

/// What ends a run without a result.
fn fatal(workload: &Workload, complaint: &Complaint) -> Result<()> {
    let (name, addr) = (workload.name.clone(), workload.addr);
    match complaint {
        Complaint::ServerGone { reason, garbage: true } => {
            Err(Error::Malformed { workload: name, addr, reason: reason.clone() })
        }
        Complaint::ServerGone { reason, .. } => {
            let (connections, reason) = (workload.connections, reason.clone());
            Err(Error::ServerGone { workload: name, addr, connections, reason })
        }
        Complaint::ClientFailed { reason } => {
            Err(Error::io(format!("go on with workload {name}"), std::io::Error::other(reason.clone())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_listening_is_a_setup_error() {
        // The port is free: it was bound here and is released before the run.
        let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let stop = AtomicBool::new(false);
        let workload = Workload::new(Proto::Memcached, addr);
        let error = run(&[workload], Duration::from_millis(10), false, &stop).unwrap_err();
        assert!(matches!(error, Error::Setup { action: "connect", .. }), "{error}");
    }

    /// A server of three replies a connection, which it then closes, as HTTP servers do. Its threads end with the test.
    fn closing() -> std::net::SocketAddr {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut socket = socket;
                    let mut buffer = [0; 4096];
                    for _ in 0..3 {
                        if !matches!(socket.read(&mut buffer), Ok(1..)) {
                            return;
                        }
                        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
                        if socket.write_all(reply).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        addr
    }

    #[test]
    fn a_server_that_closes_connections_is_connected_again() {
        let mut workload = Workload::new(Proto::Http1, closing()).rate(400.0).connections(2);
        workload.arrivals = Arrivals::Fixed;
        let stop = AtomicBool::new(false);
        // Two that spin share a thread, one that sleeps has its own.
        let two = [workload.clone(), Workload { name: "other".into(), ..workload.clone() }];
        for (workloads, spin) in [(&two[..1], false), (&two[..], true)] {
            let outcomes = run(workloads, Duration::from_millis(500), spin, &stop).unwrap();
            assert_eq!(outcomes.len(), workloads.len());
            for outcome in outcomes {
                let summary = outcome.summary();
                assert_eq!(summary.intended, 200, "{summary:?}");
                assert_eq!(summary.received + summary.errors + summary.unanswered, 200, "{summary:?}");
                // Two connections without another attempt would give at most 4 after their first exchange.
                assert!(summary.received > 20, "{summary:?}");
            }
        }
    }
}
