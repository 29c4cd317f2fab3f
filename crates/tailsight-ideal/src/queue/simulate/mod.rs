//! Serves requests. In: requests in the order of their arrival, a server. Out: the latency of each, ns, in the same order.
//!
//! Where an arrival and a completion fall on one nanosecond, the completion comes first.

mod one_queue;
mod sharing;
mod split;

use crate::queue::{Discipline, QueueError, Rng};

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it arrives, ns; not before the request before it.
    pub arrival_ns: u64,
    /// How long it keeps a worker busy, ns.
    pub service_ns: u64,
    /// Which connection it came on; only [`Discipline::Connection`] looks at it.
    pub connection: u32,
}

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// How many requests are served at once.
    pub workers: usize,
    /// In which order.
    pub discipline: Discipline,
}

/// What a server made of the requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// From arrival to completion, ns, a request each, in the order of arrival.
    pub ns: Vec<u64>,
    /// Time that all workers together were busy, ns.
    pub busy_ns: u64,
    /// When the last request was done, ns.
    pub end_ns: u64,
}

/// Serves the requests, all of them. `rng` is drawn from by the two random disciplines alone.
///
/// # Errors
/// [`QueueError::NoWorkers`], [`QueueError::Empty`], [`QueueError::Unsorted`].
pub fn simulate<I>(requests: I, server: Server, rng: &mut Rng) -> Result<Latencies, QueueError>
where
    I: IntoIterator<Item = Request>,
{
    if server.workers == 0 {
        return Err(QueueError::NoWorkers);
    }
    let requests = requests.into_iter();
    let mut out = Latencies { ns: Vec::with_capacity(requests.size_hint().0), busy_ns: 0, end_ns: 0 };
    let mut unsorted = None;
    let mut last = 0;
    let sorted = requests.enumerate().map_while(|(index, request)| {
        if request.arrival_ns < last {
            unsorted = Some(QueueError::Unsorted { index, back_ns: last - request.arrival_ns });
            return None;
        }
        last = request.arrival_ns;
        Some(request)
    });
    match (server.discipline, server.workers) {
        (Discipline::Fifo, 1) => split::one_worker(sorted, &mut out),
        (Discipline::Fifo, workers) => one_queue::fifo(sorted, workers, &mut out),
        (Discipline::Lifo, workers) => one_queue::lifo(sorted, workers, &mut out),
        (Discipline::RandomRequest, workers) => one_queue::random(sorted, workers, rng, &mut out),
        (Discipline::RandomWorker, workers) => split::random(sorted, workers, rng, &mut out),
        (Discipline::Connection(_), workers) => split::by_connection(sorted, workers, &mut out),
        (Discipline::Sharing(quantum), workers) => sharing::share(sorted, workers, quantum, &mut out),
    }
    match unsorted {
        Some(error) => Err(error),
        None if out.ns.is_empty() => Err(QueueError::Empty),
        None => Ok(out),
    }
}

impl Latencies {
    /// Takes down a request that was served without a break until `end`.
    #[inline]
    fn push(&mut self, request: &Request, end: u64) {
        self.ns.push(end - request.arrival_ns);
        self.busy_ns += request.service_ns;
        self.end_ns = self.end_ns.max(end);
    }

    /// Takes down, at its place, a request that is done out of order.
    #[inline]
    fn set(&mut self, place: usize, request: &Request, end: u64) {
        self.ns[place] = end - request.arrival_ns;
        self.busy_ns += request.service_ns;
        self.end_ns = self.end_ns.max(end);
    }
}
