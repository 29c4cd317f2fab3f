//! A FIFO queue for each worker: Lindley's recursion, once a worker.

use rand::RngExt;

use super::{Latencies, Request};
use crate::queue::Rng;

/// One worker.
pub(super) fn one_worker(requests: impl Iterator<Item = Request>, out: &mut Latencies) {
    let mut free = 0;
    for request in requests {
        free = request.arrival_ns.max(free) + request.service_ns;
        out.push(&request, free);
    }
}

/// A worker drawn for each request.
pub(super) fn random(requests: impl Iterator<Item = Request>, workers: usize, rng: &mut Rng, out: &mut Latencies) {
    each(requests, workers, |_| rng.random_range(0..workers), out);
}

/// The worker that the request's connection belongs to.
pub(super) fn by_connection(requests: impl Iterator<Item = Request>, workers: usize, out: &mut Latencies) {
    each(requests, workers, |request| request.connection as usize % workers, out);
}

fn each(
    requests: impl Iterator<Item = Request>,
    workers: usize,
    mut worker_of: impl FnMut(&Request) -> usize,
    out: &mut Latencies,
) {
    let mut free = vec![0; workers];
    for request in requests {
        let free = &mut free[worker_of(&request)];
        *free = request.arrival_ns.max(*free) + request.service_ns;
        out.push(&request, *free);
    }
}
