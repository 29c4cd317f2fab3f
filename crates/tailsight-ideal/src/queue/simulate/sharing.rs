//! Time sharing: one queue, and a request that is not done after a quantum queues up again behind all that wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{Latencies, Request};

/// A request that has been served for a while, and what is left of its service, ns.
#[derive(Debug, Clone, Copy)]
struct Job {
    place: usize,
    request: Request,
    left: u64,
}

/// What the workers are doing.
struct Workers {
    quantum: u64,
    idle: usize,
    /// When a quantum ends, in which order it was begun, and which of `jobs` it is of.
    running: BinaryHeap<Reverse<(u64, u64, usize)>>,
    begun: u64,
    /// Slots of the requests that are in the server, and those of them that are empty.
    jobs: Vec<Job>,
    empty: Vec<usize>,
    ready: VecDeque<usize>,
}

/// Serves for a quantum, ns, at a time.
pub(super) fn share(requests: impl Iterator<Item = Request>, workers: usize, quantum: u64, out: &mut Latencies) {
    let mut state = Workers {
        quantum: quantum.max(1),
        idle: workers,
        running: BinaryHeap::with_capacity(workers),
        begun: 0,
        jobs: Vec::new(),
        empty: Vec::new(),
        ready: VecDeque::new(),
    };
    for (place, request) in requests.enumerate() {
        out.ns.push(0);
        state.run_until(request.arrival_ns, out);
        state.arrive(Job { place, request, left: request.service_ns });
    }
    state.run_until(u64::MAX, out);
}

impl Workers {
    fn arrive(&mut self, job: Job) {
        let now = job.request.arrival_ns;
        let slot = self.empty.pop().unwrap_or(self.jobs.len());
        if slot == self.jobs.len() {
            self.jobs.push(job);
        } else {
            self.jobs[slot] = job;
        }
        // No worker is idle while one waits: it may start at once.
        if self.idle > 0 {
            self.idle -= 1;
            self.begin(slot, now);
        } else {
            self.ready.push_back(slot);
        }
    }

    fn begin(&mut self, slot: usize, now: u64) {
        let slice = self.jobs[slot].left.min(self.quantum);
        self.jobs[slot].left -= slice;
        self.begun += 1;
        self.running.push(Reverse((now + slice, self.begun, slot)));
    }

    /// Ends every quantum that ends until `until`.
    fn run_until(&mut self, until: u64, out: &mut Latencies) {
        while let Some(&Reverse((now, _, slot))) = self.running.peek().filter(|next| next.0.0 <= until) {
            self.running.pop();
            let job = self.jobs[slot];
            if job.left > 0 {
                self.ready.push_back(slot);
            } else {
                out.set(job.place, &job.request, now);
                self.empty.push(slot);
            }
            match self.ready.pop_front() {
                Some(next) => self.begin(next, now),
                None => self.idle += 1,
            }
        }
    }
}
