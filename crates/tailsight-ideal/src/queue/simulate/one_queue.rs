//! One queue that all workers take from, a request at a time until it is done: FIFO, LIFO, random.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::RngExt;

use super::{Latencies, Request};
use crate::queue::Rng;

/// Up to so many workers, a sorted list of when each is free is faster than a heap.
const FEW: usize = 16;

/// The earliest request first: Kiefer and Wolfowitz's recursion.
pub(super) fn fifo(requests: impl Iterator<Item = Request>, workers: usize, out: &mut Latencies) {
    if workers <= FEW {
        let mut free = [u64::MAX; FEW];
        free[..workers].fill(0);
        return few(requests, &mut free[..workers], out);
    }
    let mut free: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
    for request in requests {
        // There is always one: as many are put back as are taken.
        let Some(mut next) = free.peek_mut() else { return };
        let end = request.arrival_ns.max(next.0) + request.service_ns;
        *next = Reverse(end);
        drop(next);
        out.push(&request, end);
    }
}

/// `free` is when each worker is free, rising.
fn few(requests: impl Iterator<Item = Request>, free: &mut [u64], out: &mut Latencies) {
    for request in requests {
        let end = request.arrival_ns.max(free[0]) + request.service_ns;
        let mut place = 0;
        while let Some(next) = free.get(place + 1).copied().filter(|next| *next < end) {
            free[place] = next;
            place += 1;
        }
        free[place] = end;
        out.push(&request, end);
    }
}

/// The latest request first.
pub(super) fn lifo(requests: impl Iterator<Item = Request>, workers: usize, out: &mut Latencies) {
    picked(requests, workers, Vec::pop, out);
}

/// Each waiting request as likely as any other.
pub(super) fn random(requests: impl Iterator<Item = Request>, workers: usize, rng: &mut Rng, out: &mut Latencies) {
    let pick = |waiting: &mut Vec<(usize, Request)>| {
        (!waiting.is_empty()).then(|| waiting.swap_remove(rng.random_range(0..waiting.len())))
    };
    picked(requests, workers, pick, out);
}

/// `pick` takes one of those that wait, and `None` only when none does.
fn picked(
    requests: impl Iterator<Item = Request>,
    workers: usize,
    mut pick: impl FnMut(&mut Vec<(usize, Request)>) -> Option<(usize, Request)>,
    out: &mut Latencies,
) {
    let mut free: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
    let mut waiting: Vec<(usize, Request)> = Vec::new();
    // Serves those that wait until `now`. Where one waits, all workers are busy: the next starts when one is free.
    let mut serve_until = |now: u64, arriving: Option<(usize, Request)>, out: &mut Latencies| {
        while let Some(mut next) = free.peek_mut().filter(|next| next.0 <= now) {
            let Some((place, request)) = pick(&mut waiting) else { break };
            let end = next.0 + request.service_ns;
            *next = Reverse(end);
            drop(next);
            out.set(place, &request, end);
        }
        let Some((place, request)) = arriving else { return };
        match free.peek_mut().filter(|next| next.0 <= now) {
            Some(mut next) => {
                let end = now + request.service_ns;
                *next = Reverse(end);
                drop(next);
                out.set(place, &request, end);
            }
            None => waiting.push((place, request)),
        }
    };
    for (place, request) in requests.enumerate() {
        out.ns.push(0);
        serve_until(request.arrival_ns, Some((place, request)), out);
    }
    serve_until(u64::MAX, None, out);
}
