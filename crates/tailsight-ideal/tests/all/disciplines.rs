//! The order of service and the tail: Figure 4 of Tales of the Tail, and service that shares time.

use tailsight_ideal::queue::{Discipline, Model, Request, Server, Sorted, rng, simulate};

const UNIT: f64 = 50_000.0;

fn served(model: &str, discipline: &str) -> Sorted {
    let (model, discipline): (Model, Discipline) = (model.parse().unwrap(), discipline.parse().unwrap());
    let requests = model.requests(UNIT, discipline, 1).unwrap().take(2_000_000);
    Sorted::new(simulate(requests, model.server(discipline), &mut rng(1, 4)).unwrap().ns)
}

#[test]
fn the_order_of_the_papers_figure_4() {
    // Four workers at 80 %, 50 us each: "LIFO has worse tail latency than FIFO, but better median (50 vs. 64 us)". The 64 us
    // do not follow from M/D/4 at 80 %: P(wait ≤ 6.8 us) is 0.5 by Crommelin's chain (`closed_forms`), so 56.8 us.
    let [fifo, lifo, random_request, random_worker] =
        ["fifo", "lifo", "random-request", "random-worker"].map(|discipline| served("M/D/4 80%", discipline));
    let at = |sorted: &Sorted, q| sorted.percentile(q).value().unwrap() as f64 / 1e3;
    assert!((at(&fifo, 0.5) - 56.8).abs() < 0.3, "{}", at(&fifo, 0.5));
    assert!(at(&lifo, 0.5) < 0.95 * at(&fifo, 0.5), "{}", at(&lifo, 0.5));
    assert!(at(&random_request, 0.5) < at(&fifo, 0.5));
    for q in [0.99, 0.999] {
        for other in [&lifo, &random_request, &random_worker] {
            assert!(at(&fifo, q) < at(other, q), "{q}");
        }
    }
    assert!(at(&random_request, 0.999) < at(&lifo, 0.999));
    // One queue for all conserves work: the mean is the same in any order.
    for other in [&lifo, &random_request] {
        assert!((other.mean() / fifo.mean() - 1.0).abs() < 0.001, "{} {}", other.mean(), fifo.mean());
    }
    // A queue a worker is as bad as one worker alone (§2.3).
    let alone = served("M/D/1 80%", "fifo");
    for q in [0.5, 0.99] {
        assert!((at(&random_worker, q) / at(&alone, q) - 1.0).abs() < 0.03, "{q}");
    }
}

#[test]
fn connections_in_proportion_to_workers_are_workers_drawn_at_random() {
    let (drawn, connections) = (served("M/D/4 70%", "random-worker"), served("M/D/4 70%", "connection:400"));
    for q in [0.5, 0.9, 0.99] {
        let [a, b] = [&drawn, &connections].map(|s| s.percentile(q).value().unwrap() as f64);
        assert!((a / b - 1.0).abs() < 0.03, "{q}: {a} {b}");
    }
    // Five connections on four workers: one worker has two fifths of the load, 112 % of what it can do.
    assert!(connections.mean() * 10.0 < served("M/D/4 70%", "connection:5").mean());
}

#[test]
fn sharing_by_short_quanta_gives_the_mean_of_processor_sharing() {
    // M/G/1 with processor sharing: the mean sojourn time is 1 / (1 - ρ) whatever the service times are.
    for service in ["M", "bimodal:10,0.1"] {
        let shared = served(&format!("M/{service}/1 70%"), "sharing:1us");
        let expected = UNIT / 0.3;
        assert!((shared.mean() / expected - 1.0).abs() < 0.03, "{service}: {} {expected}", shared.mean());
    }
    // A quantum longer than any service time is FIFO.
    let (long, fifo) = (served("M/D/4 80%", "sharing:1s"), served("M/D/4 80%", "fifo"));
    assert_eq!(long.ns(), fifo.ns());
}

/// Arrivals and service times in ns, all on one connection or each on its own.
fn by_hand(requests: &[(u64, u64)], workers: usize, discipline: &str) -> Vec<u64> {
    let requests = requests.iter().zip(0..).map(|((arrival_ns, service_ns), connection)| Request {
        arrival_ns: *arrival_ns,
        service_ns: *service_ns,
        connection,
    });
    let server = Server { workers, discipline: discipline.parse().unwrap() };
    simulate(requests, server, &mut rng(1, 4)).unwrap().ns
}

#[test]
fn a_few_requests_by_hand() {
    let three = [(0, 10), (1, 10), (2, 10)];
    assert_eq!(by_hand(&three, 1, "fifo"), [10, 19, 28]);
    assert_eq!(by_hand(&three, 1, "lifo"), [10, 29, 18]);
    assert_eq!(by_hand(&three, 2, "fifo"), [10, 10, 18]);
    // Connections 0 and 2 on the first worker.
    assert_eq!(by_hand(&three, 2, "connection:3"), [10, 10, 18]);
    assert_eq!(by_hand(&[(0, 10), (1, 1), (2, 10)], 2, "connection:3"), [10, 1, 18]);
    // 0..4 a, 4..8 b, 8..12 c, 12..16 a, 16..20 b, 20..24 c, 24..26 a, 26..28 b, 28..30 c.
    assert_eq!(by_hand(&three, 1, "sharing:4ns"), [26, 27, 28]);
    // A completion comes before an arrival of the same nanosecond: the third waits for nobody.
    assert_eq!(by_hand(&[(0, 10), (10, 5), (15, 5)], 1, "lifo"), [10, 5, 5]);
}
