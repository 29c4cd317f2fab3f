//! What holds for every series of requests.

use proptest::prelude::*;
use tailsight_ideal::queue::{Discipline, Latencies, QueueError, Request, Server, rng, scaled, simulate, utilisation};

const ALL: [Discipline; 6] = [
    Discipline::Fifo,
    Discipline::Lifo,
    Discipline::RandomRequest,
    Discipline::RandomWorker,
    Discipline::Connection(7),
    Discipline::Sharing(13),
];

fn requests() -> impl Strategy<Value = Vec<Request>> {
    proptest::collection::vec((0..60_u64, 0..100_u64, 0..7_u32), 1..200).prop_map(|drawn| {
        let mut arrival_ns = 0;
        let request = |(gap, service_ns, connection)| {
            arrival_ns += gap;
            Request { arrival_ns, service_ns, connection }
        };
        drawn.into_iter().map(request).collect()
    })
}

fn serve(requests: &[Request], workers: usize, discipline: Discipline) -> Latencies {
    simulate(requests.iter().copied(), Server { workers, discipline }, &mut rng(9, 4)).unwrap()
}

/// FIFO as its definition has it, with no recursion: each request in its order, on the worker that is free first.
fn fifo_by_definition(requests: &[Request], workers: usize) -> Vec<u64> {
    let mut free = vec![0_u64; workers];
    let serve = |request: &Request| {
        let first = (0..workers).min_by_key(|w| free[*w]).unwrap();
        free[first] = free[first].max(request.arrival_ns) + request.service_ns;
        free[first] - request.arrival_ns
    };
    requests.iter().map(serve).collect()
}

proptest! {
    #[test]
    fn every_request_is_served_once_and_for_its_whole_time(requests in requests(), workers in 1..20_usize) {
        let work: u64 = requests.iter().map(|r| r.service_ns).sum();
        for discipline in ALL {
            let served = serve(&requests, workers, discipline);
            prop_assert_eq!(served.ns.len(), requests.len());
            prop_assert_eq!(served.busy_ns, work, "{}", discipline);
            for (request, ns) in requests.iter().zip(&served.ns) {
                prop_assert!(*ns >= request.service_ns, "{}", discipline);
            }
            let last = requests.iter().zip(&served.ns).map(|(r, ns)| r.arrival_ns + ns).max();
            prop_assert_eq!(Some(served.end_ns), last);
        }
    }

    #[test]
    fn fifo_is_what_its_definition_says(requests in requests(), workers in 1..40_usize) {
        prop_assert_eq!(serve(&requests, workers, Discipline::Fifo).ns, fifo_by_definition(&requests, workers));
    }

    /// Requests begin in the order in which they arrived.
    #[test]
    fn fifo_keeps_the_order(requests in requests(), workers in 1..40_usize) {
        let served = serve(&requests, workers, Discipline::Fifo);
        let starts = requests.iter().zip(&served.ns).map(|(r, ns)| r.arrival_ns + ns - r.service_ns);
        prop_assert!(starts.collect::<Vec<_>>().is_sorted());
    }

    /// No worker is idle while a request waits: with one worker, the work that is done at any time is the same in any order.
    #[test]
    fn one_queue_conserves_work(requests in requests()) {
        let fifo = serve(&requests, 1, Discipline::Fifo);
        for discipline in ALL {
            // All are work-conserving with one worker.
            prop_assert_eq!(serve(&requests, 1, discipline).end_ns, fifo.end_ns, "{}", discipline);
        }
        // With equal service times the completions are the same set of times in any order, for any number of workers.
        let equal: Vec<Request> = requests.iter().map(|r| Request { service_ns: 50, ..*r }).collect();
        for workers in [2, 5] {
            let mut ends: Vec<Vec<u64>> = Vec::new();
            for discipline in ALL.into_iter().filter(|d| d.conserves_work() && !matches!(d, Discipline::Sharing(_))) {
                let served = serve(&equal, workers, discipline);
                let mut times: Vec<u64> = equal.iter().zip(&served.ns).map(|(r, ns)| r.arrival_ns + ns).collect();
                times.sort_unstable();
                ends.push(times);
            }
            prop_assert!(ends.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }

    /// With equal service times FIFO has the least maximum of all orders in which a request is served without a break.
    #[test]
    fn fifo_has_the_best_worst_case(requests in requests(), workers in 1..6_usize) {
        let equal: Vec<Request> = requests.iter().map(|r| Request { service_ns: 40, ..*r }).collect();
        let worst = |discipline| serve(&equal, workers, discipline).ns.into_iter().max();
        for discipline in ALL.into_iter().filter(|d| !matches!(d, Discipline::Sharing(_))) {
            prop_assert!(worst(Discipline::Fifo) <= worst(discipline), "{}", discipline);
        }
    }

    #[test]
    fn a_seed_gives_the_same_latencies(requests in requests(), workers in 1..6_usize) {
        for discipline in ALL {
            prop_assert_eq!(serve(&requests, workers, discipline), serve(&requests, workers, discipline));
        }
    }

    #[test]
    fn a_scaled_series_has_the_utilisation(gaps in proptest::collection::vec(1..100_000_u64, 50..100), target in 0.05..0.95_f64) {
        let series: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
        let scaled_to = utilisation(&scaled(&series, 1e6, 3, target).unwrap(), 1e6, 3).unwrap();
        prop_assert!((scaled_to / target - 1.0).abs() < 1e-4, "{scaled_to} {target}");
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    let request = |arrival_ns| Request { arrival_ns, service_ns: 1, connection: 0 };
    for discipline in ALL {
        let serve = |requests: &[Request], workers| {
            simulate(requests.iter().copied(), Server { workers, discipline }, &mut rng(1, 4))
        };
        assert_eq!(serve(&[], 1), Err(QueueError::Empty));
        assert_eq!(serve(&[request(0)], 0), Err(QueueError::NoWorkers));
        let unsorted = [request(5), request(9), request(7), request(20)];
        assert_eq!(serve(&unsorted, 2), Err(QueueError::Unsorted { index: 2, back_ns: 2 }));
    }
}
