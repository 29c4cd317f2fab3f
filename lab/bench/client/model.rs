//! The idealised server: what an M/G/1 queue makes of Poisson arrivals and known service times. In: a distribution, a rate.
//! Out: percentiles and mean of the sojourn time (waiting and service), us; how much a window of a given length varies.
//!
//! Closed forms: M/M/1 (the sojourn time is exponential) and M/D/1 (Erlang 1909). Other distributions by Pollaczek and
//! Khinchine: the waiting time is a geometric number of residual service times, summed on a grid.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tailsight_lab::servers::Service;

/// A FIFO queue with one server and Poisson arrivals.
#[derive(Debug)]
pub struct Model {
    service: Service,
    /// Arrivals a us.
    rate: f64,
    load: f64,
    /// Bimodal: the distribution of the waiting time on a grid, and the grid's step, us.
    waiting: Option<(Vec<f64>, f64)>,
}

/// Steps of the grid in the short service time of `bimodal`.
const STEPS: usize = 50;
/// At loads above this no latency is meaningful: the queue outgrows every window.
const MOST_LOAD: f64 = 0.97;
/// The grid ends where all but this much of the waiting times is below.
const REST: f64 = 1e-6;

impl Model {
    /// `None` where the server is saturated, or the distribution has no formula here (lognormal).
    pub fn new(service: Service, per_s: f64) -> Option<Self> {
        let rate = per_s / 1e6;
        let load = rate * service.mean_ns() / 1e3;
        if !(load > 0.0 && load <= MOST_LOAD) {
            return None;
        }
        let waiting = match service {
            Service::Fixed(_) | Service::Exponential(_) => None,
            Service::Bimodal(ns) => {
                let short = ns / 1e3;
                let mean = service.mean_ns() / 1e3;
                // P(S > x): all before the short time is over, a tenth of them until the long one is.
                let beyond = |x: f64| {
                    if x < short {
                        1.0
                    } else if x < 10.0 * short {
                        0.1
                    } else {
                        0.0
                    }
                };
                Some((waiting_times(load, mean, short / STEPS as f64, 10.0 * short, beyond), short / STEPS as f64))
            }
            Service::Lognormal(_) => return None,
        };
        Some(Self { service, rate, load, waiting })
    }

    /// Mean sojourn time, us (Pollaczek-Khinchine).
    pub fn mean_us(&self) -> f64 {
        let mean = self.service.mean_ns() / 1e3;
        let second = match self.service {
            Service::Fixed(_) => mean * mean,
            Service::Exponential(_) => 2.0 * mean * mean,
            Service::Bimodal(ns) => (0.9 + 0.1 * 100.0) * (ns / 1e3).powi(2),
            Service::Lognormal(_) => std::f64::consts::E * mean * mean,
        };
        mean + self.rate * second / (2.0 * (1.0 - self.load))
    }

    /// A percentile (0 to 1) of the sojourn time, us.
    pub fn quantile_us(&self, q: f64) -> f64 {
        if let Service::Exponential(ns) = self.service {
            return -(1.0 - q).ln() * ns / 1e3 / (1.0 - self.load);
        }
        // Bisection of the distribution function, which rises.
        let (mut low, mut high) = (0.0, self.service.mean_ns() / 1e3);
        while self.below(high) < q && high < 1e9 {
            high *= 2.0;
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.below(middle) < q { low = middle } else { high = middle }
        }
        high
    }

    /// The distribution function of the sojourn time.
    fn below(&self, t: f64) -> f64 {
        match (self.service, &self.waiting) {
            (Service::Fixed(ns), _) => erlang(self.rate, ns / 1e3, t - ns / 1e3),
            (Service::Bimodal(ns), Some((grid, step))) => {
                let waits = |t: f64| {
                    // Half a step: a grid point stands for its surroundings.
                    let at = t / step + 0.5;
                    if at < 0.5 { 0.0 } else { grid[(at as usize).min(grid.len() - 1)] }
                };
                0.9 * waits(t - ns / 1e3) + 0.1 * waits(t - 10.0 * ns / 1e3)
            }
            _ => 1.0 - (-t * (1.0 - self.load) * 1e3 / self.service.mean_ns()).exp(),
        }
    }

    /// Standard deviation, us, of each percentile from one window of `seconds` to the next: the same for every client.
    /// Simulated (Lindley's recursion) with `windows` windows.
    pub fn spread_us(&self, quantiles: &[f64], seconds: f64, windows: usize) -> Vec<f64> {
        let mut random = StdRng::seed_from_u64(7);
        let mean_gap_ns = 1e3 / self.rate;
        let n = (seconds * 1e9 / mean_gap_ns) as usize;
        let mut window_percentiles: Vec<Vec<f64>> = vec![Vec::with_capacity(windows); quantiles.len()];
        let mut waiting = 0.0;
        let mut sojourns = Vec::with_capacity(n);
        // The first window brings the queue into its steady state.
        for window in 0..=windows {
            sojourns.clear();
            for _ in 0..n.max(1) {
                let service = f64::from(self.service.draw(&mut random));
                sojourns.push(waiting + service);
                let gap = -mean_gap_ns * (1.0 - random.random::<f64>()).ln();
                waiting = f64::max(0.0, waiting + service - gap);
            }
            if window > 0 {
                sojourns.sort_unstable_by(f64::total_cmp);
                for (values, q) in window_percentiles.iter_mut().zip(quantiles) {
                    values.push(sojourns[((q * sojourns.len() as f64).ceil() as usize).max(1) - 1] / 1e3);
                }
            }
        }
        let deviation = |values: &Vec<f64>| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0).max(1.0)).sqrt()
        };
        window_percentiles.iter().map(deviation).collect()
    }
}

/// P(W <= t) of M/D/1: (1-ρ) Σ_k e^{-λ(kD-t)} (λ(kD-t))^k / k!, k = 0 .. ⌊t/D⌋.
fn erlang(rate: f64, service: f64, t: f64) -> f64 {
    if t < 0.0 {
        return 0.0;
    }
    let mut sum = 0.0;
    for k in 0..=(t / service) as usize {
        let x = rate * (k as f64 * service - t);
        // The k-th term, factor by factor: powers and factorials alone would overflow.
        let term = (1..=k).fold((-x).exp(), |term, j| term * x / j as f64);
        sum += term;
    }
    ((1.0 - rate * service) * sum).clamp(0.0, 1.0)
}

/// The distribution function of the waiting time at the points of a grid (Pollaczek-Khinchine, Panjer's recursion).
///
/// `beyond(x)` is P(S > x), zero from `longest` on; the residual service time has the density P(S > x) / E[S].
fn waiting_times(load: f64, mean: f64, step: f64, longest: f64, beyond: impl Fn(f64) -> f64) -> Vec<f64> {
    let points = (longest / step).ceil() as usize + 1;
    // The mass around each point, from the middle of the cell before it to the middle of the one behind.
    let mass = |from: f64, to: f64| {
        const CUTS: usize = 8;
        let width = (to - from) / CUTS as f64;
        (0..CUTS).map(|i| beyond(from + (i as f64 + 0.5) * width)).sum::<f64>() * width / mean
    };
    let mut residual: Vec<f64> =
        (0..points).map(|k| mass(((k as f64 - 0.5) * step).max(0.0), (k as f64 + 0.5) * step)).collect();
    let whole: f64 = residual.iter().sum();
    residual.iter_mut().for_each(|r| *r /= whole);
    let scale = 1.0 / (1.0 - load * residual[0]);
    let mut density = vec![(1.0 - load) * scale];
    let mut below = vec![density[0]];
    while 1.0 - below[below.len() - 1] > REST && density.len() < 4_000_000 {
        let n = density.len();
        let sum: f64 = (1..=n.min(points - 1)).map(|k| residual[k] * density[n - k]).sum();
        density.push(load * scale * sum);
        below.push(below[n - 1] + density[n]);
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mm1_in_closed_form() {
        // S = 50 us, load 0.8: the sojourn time is exponential with mean 250 us.
        let model = Model::new(Service::Exponential(50_000.0), 16_000.0).unwrap();
        assert!((model.load - 0.8).abs() < 1e-12);
        assert!((model.mean_us() - 250.0).abs() < 1e-9);
        assert!((model.quantile_us(0.99) - 250.0 * 100.0_f64.ln()).abs() < 1e-6);
        assert!((model.below(model.quantile_us(0.9)) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn md1_agrees_with_the_table_and_with_simulation() {
        // The probability of not waiting is 1 - load, and P(W <= D) = (1-ρ) e^ρ.. of Erlang's series, by hand at t = D/2.
        assert!((erlang(0.01, 50.0, 0.0) - 0.5).abs() < 1e-12);
        assert!((erlang(0.01, 50.0, 25.0) - 0.5 * 0.25_f64.exp()).abs() < 1e-12);
        let by_hand = 0.5 * (0.75_f64.exp() - 0.25 * 0.25_f64.exp());
        assert!((erlang(0.01, 50.0, 75.0) - by_hand).abs() < 1e-12);
        // The proof of the method (docs/results/method.md) has 24.3, 43.4 and 113.6 us for 10 us at 20, 50 and 80 %.
        for (per_s, p99) in [(20_000.0, 24.3), (50_000.0, 43.4), (80_000.0, 113.6)] {
            let modelled_us = Model::new(Service::Fixed(10_000.0), per_s).unwrap().quantile_us(0.99);
            assert!((modelled_us / p99 - 1.0).abs() < 0.01, "{per_s}: {modelled_us} against {p99}");
        }
    }

    #[test]
    fn bimodal_agrees_with_simulation() {
        // The same page: a mean of 10 us, 77.2, 133.6 and 346.0 us.
        let service = Service::Bimodal(10_000.0 / 1.9);
        for (per_s, p99) in [(20_000.0, 77.2), (50_000.0, 133.6), (80_000.0, 346.0)] {
            let modelled_us = Model::new(service, per_s).unwrap().quantile_us(0.99);
            assert!((modelled_us / p99 - 1.0).abs() < 0.01, "{per_s}: {modelled_us} against {p99}");
        }
    }

    #[test]
    fn the_grid_agrees_with_closed_forms() {
        // Fixed service: its residual is uniform, and the grid must give Erlang's waiting times.
        let (mean, load, step) = (50.0, 0.8, 0.25);
        let grid = waiting_times(load, mean, step, mean, |x| if x < mean { 1.0 } else { 0.0 });
        for t in [10.0, 60.0, 200.0, 500.0] {
            let exact = erlang(load / mean, mean, t);
            assert!((grid[(t / step) as usize] - exact).abs() < 2e-3, "{t}: {} {exact}", grid[(t / step) as usize]);
        }
        // Exponential service: P(W <= t) = 1 - ρ e^{-t(1-ρ)/S}.
        let grid = waiting_times(load, mean, step, 1500.0, |x| (-x / mean).exp());
        for t in [0.0, 50.0, 500.0, 1000.0] {
            let exact = 1.0 - load * (-t * (1.0 - load) / mean).exp();
            assert!((grid[(t / step) as usize] - exact).abs() < 2e-3, "{t}");
        }
    }

    #[test]
    fn a_saturated_server_has_no_latency() {
        assert!(Model::new(Service::Fixed(50_000.0), 20_000.0).is_none());
        assert!(Model::new(Service::Fixed(50_000.0), 0.0).is_none());
        assert!(Model::new(Service::Lognormal(50_000.0), 2_000.0).is_none());
    }

    #[test]
    fn windows_vary_less_when_they_are_longer_and_about_the_model() {
        let model = Model::new(Service::Exponential(50_000.0), 10_000.0).unwrap();
        let (short, long) = (model.spread_us(&[0.5, 0.99], 0.2, 40), model.spread_us(&[0.5, 0.99], 1.8, 40));
        assert!(long[0] < short[0] && long[1] < short[1] && short[0] < short[1], "{short:?} {long:?}");
    }
}
