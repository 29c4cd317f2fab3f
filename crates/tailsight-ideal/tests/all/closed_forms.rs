//! Ten million requests of each model within 1 % of its closed form, or of a printed table.

use tailsight_ideal::queue::formulas::{Md1, mg1_mean, mmc_mean, mmc_quantile};
use tailsight_ideal::queue::{Discipline, Model, ServiceTimes, Sorted, rng, simulate};

/// One mean service time.
const UNIT: f64 = 1_000_000.0;
const REQUESTS: usize = 10_000_000;

fn served(model: &str, seed: u64) -> Sorted {
    served_by(&model.parse().unwrap(), seed)
}

fn served_by(model: &Model, seed: u64) -> Sorted {
    let requests = model.requests(UNIT, Discipline::Fifo, seed).unwrap().take(REQUESTS);
    Sorted::new(simulate(requests, model.server(Discipline::Fifo), &mut rng(seed, 4)).unwrap().ns)
}

#[track_caller]
fn within_one_percent(found_ns: f64, expected_units: f64, what: &str) {
    let simulated_units = found_ns / UNIT;
    assert!(
        (simulated_units / expected_units - 1.0).abs() < 0.01,
        "{what}: {simulated_units}, expected {expected_units}"
    );
}

const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

#[test]
fn one_worker_with_equal_service_times() {
    let (sorted, exact) = (served("M/D/1 70%", 1), Md1::new(0.7));
    within_one_percent(sorted.mean(), mg1_mean(0.7, 1.0), "M/D/1 mean");
    for q in QUANTILES {
        within_one_percent(sorted.percentile(q).value().unwrap() as f64, exact.quantile(q), &format!("M/D/1 {q}"));
    }
}

#[test]
fn one_worker_with_exponential_service_times() {
    let sorted = served("M/M/1 70%", 1);
    within_one_percent(sorted.mean(), 1.0 / 0.3, "M/M/1 mean");
    for q in QUANTILES {
        // The sojourn time is exponential.
        let exact = -(1.0 - q).ln() / 0.3;
        within_one_percent(sorted.percentile(q).value().unwrap() as f64, exact, &format!("M/M/1 {q}"));
    }
}

#[test]
fn many_workers_with_exponential_service_times() {
    for workers in [4, 24] {
        let sorted = served(&format!("M/M/{workers} 80%"), 1);
        within_one_percent(sorted.mean(), mmc_mean(workers, 0.8), &format!("M/M/{workers} mean"));
        for q in QUANTILES {
            let exact = mmc_quantile(workers, 0.8, q);
            within_one_percent(sorted.percentile(q).value().unwrap() as f64, exact, &format!("M/M/{workers} {q}"));
        }
    }
}

#[test]
fn one_worker_with_other_service_times() {
    // Second moments over the squared mean: 10.9 / 1.9² for nine in ten of 1 and one in ten of 10; e^σ².
    for (service, second) in [("bimodal:10,0.1", 10.9 / 3.61), ("lognormal:1", std::f64::consts::E)] {
        let sorted = served(&format!("M/{service}/1 60%"), 1);
        within_one_percent(sorted.mean(), 1.0 + 0.6 * second / (2.0 * 0.4), service);
    }
}

#[test]
fn one_worker_with_measured_service_times() {
    let measured: [u64; 8] = [900, 1_000, 1_100, 1_300, 2_000, 2_000, 4_500, 20_000];
    let mut model: Model = "M/empirical/1 60%".parse().unwrap();
    model.service = ServiceTimes::empirical(&measured).unwrap();
    let mean = |power: i32| measured.iter().map(|ns| (*ns as f64).powi(power)).sum::<f64>() / measured.len() as f64;
    let exact = mg1_mean(0.6, mean(2) / mean(1).powi(2));
    within_one_percent(served_by(&model, 1).mean(), exact, "M/empirical/1 mean");
}

#[test]
fn many_workers_with_equal_service_times() {
    for workers in [2, 4] {
        let (sorted, exact) = (served(&format!("M/D/{workers} 80%"), 1), Crommelin::new(workers, 0.8));
        within_one_percent(sorted.mean(), 1.0 + exact.mean_wait(), &format!("M/D/{workers} mean"));
        for q in [0.6, 0.9, 0.99, 0.999] {
            let simulated_units = sorted.percentile(q).value().unwrap() as f64 / UNIT;
            // What is below it by the formula, a little to either side.
            let below = [simulated_units * 0.99, simulated_units * 1.01].map(|t| exact.below(t - 1.0));
            assert!(below[0] < q && q < below[1], "M/D/{workers} {q}: {simulated_units} {below:?}");
        }
    }
}

/// M/D/c: the numbers in the system a service time apart form a Markov chain (Crommelin 1932), whose stationary distribution
/// is found by iteration; it shares nothing with the simulation.
struct Crommelin {
    workers: usize,
    load: f64,
    system: Vec<f64>,
}

impl Crommelin {
    fn new(workers: usize, utilisation: f64) -> Self {
        const MOST_REQUESTS: usize = 400;
        let load = utilisation * workers as f64;
        let mut arrivals = vec![(-load).exp()];
        for k in 1..60 {
            arrivals.push(arrivals[k - 1] * load / k as f64);
        }
        let mut system = vec![0.0; MOST_REQUESTS];
        system[0] = 1.0;
        for _ in 0..2000 {
            let mut next = vec![0.0; MOST_REQUESTS];
            for (n, p) in system.iter().enumerate() {
                for (k, a) in arrivals.iter().enumerate() {
                    next[(n.saturating_sub(workers) + k).min(MOST_REQUESTS - 1)] += p * a;
                }
            }
            system = next;
        }
        Self { workers, load, system }
    }

    /// By Little's law, in service times.
    fn mean_wait(&self) -> f64 {
        let waiting = self.system.iter().enumerate().map(|(n, p)| n.saturating_sub(self.workers) as f64 * p);
        waiting.sum::<f64>() / self.load
    }

    /// P(wait ≤ t) (Franx 2001).
    fn below(&self, t: f64) -> f64 {
        let k = t.floor() as usize + 1;
        let x = self.load * (k as f64 - t);
        let mut term = (-x).exp();
        let mut sum = 0.0;
        for j in 0..k * self.workers {
            let most = (k + 1) * self.workers - 1 - j;
            sum += term * self.system[..=most.min(399)].iter().sum::<f64>();
            term *= x / (j + 1) as f64;
        }
        sum
    }
}
