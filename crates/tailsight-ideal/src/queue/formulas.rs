//! What is known without a simulation. In: utilisation, workers, a time in mean service times. Out: means and percentiles of
//! the sojourn time (waiting and service), in mean service times.
//!
//! M/M/c by Erlang's C formula (1917), M/D/1 by Crommelin (1932) in the form of Franx (2001), whose terms are all positive,
//! and the mean of M/G/1 by Pollaczek and Khinchine. Arrivals are Poisson, the discipline is FIFO; the utilisation is above 0
//! and below 1.

/// The probability that an arrival waits in M/M/c (Erlang C).
#[must_use]
pub fn erlang_c(workers: usize, utilisation: f64) -> f64 {
    let load = utilisation * workers as f64;
    // Erlang B by its recursion, which neither powers nor factorials enter.
    let blocked = (1..=workers).fold(1.0, |b, n| load * b / (n as f64 + load * b));
    blocked / (1.0 - utilisation * (1.0 - blocked))
}

/// Mean sojourn time of M/M/c.
#[must_use]
pub fn mmc_mean(workers: usize, utilisation: f64) -> f64 {
    1.0 + erlang_c(workers, utilisation) / (workers as f64 * (1.0 - utilisation))
}

/// P(sojourn time > t) in M/M/c.
#[must_use]
pub fn mmc_beyond(workers: usize, utilisation: f64, t: f64) -> f64 {
    let (c, waits) = (workers as f64, erlang_c(workers, utilisation));
    // Those that wait are served at this rate, and leave the queue at that one.
    let drain = c * (1.0 - utilisation);
    let queued = if (drain - 1.0).abs() < 1e-9 {
        (1.0 + t) * (-t).exp()
    } else {
        (drain * (-t).exp() - (-drain * t).exp()) / (drain - 1.0)
    };
    (1.0 - waits) * (-t).exp() + waits * queued
}

/// A percentile, 0 to 1, of the sojourn time of M/M/c.
#[must_use]
pub fn mmc_quantile(workers: usize, utilisation: f64, q: f64) -> f64 {
    inverse(q, |t| 1.0 - mmc_beyond(workers, utilisation, t))
}

/// Mean sojourn time of M/G/1, from the second moment of the service time over its squared mean (Pollaczek-Khinchine).
#[must_use]
pub fn mg1_mean(utilisation: f64, second_moment: f64) -> f64 {
    1.0 + utilisation * second_moment / (2.0 * (1.0 - utilisation))
}

/// M/D/1: how many are in the system, and from it the waiting time.
#[derive(Debug, Clone)]
pub struct Md1 {
    utilisation: f64,
    /// P(at most n + 1 in the system): at most n of them wait.
    waiting: Vec<f64>,
}

impl Md1 {
    /// A queue with this utilisation.
    #[must_use]
    pub fn new(utilisation: f64) -> Self {
        // P(at least k arrivals in a service time), summed from the small terms up.
        let mut arrivals = vec![(-utilisation).exp()];
        while arrivals[arrivals.len() - 1] > 1e-300 {
            arrivals.push(arrivals[arrivals.len() - 1] * utilisation / arrivals.len() as f64);
        }
        let mut at_least = vec![0.0; arrivals.len() + 1];
        for k in (0..arrivals.len()).rev() {
            at_least[k] = at_least[k + 1] + arrivals[k];
        }
        // As many go up across the line between n - 1 and n as come down across it.
        let mut system = vec![1.0 - utilisation];
        let mut sum = system[0];
        let mut waiting = Vec::new();
        while 1.0 - sum > 1e-13 && system.len() < 200_000 {
            let n = system.len();
            let up = |from: usize, k: usize| at_least.get(k).map_or(0.0, |p| system[from] * p);
            let nearest = n.saturating_sub(at_least.len()).max(1);
            let flow = up(0, n) + (nearest..n).map(|j| up(j, n - j + 1)).sum::<f64>();
            system.push(flow / arrivals[0]);
            sum += system[n];
            waiting.push(sum.min(1.0));
        }
        Self { utilisation, waiting }
    }

    /// P(sojourn time ≤ t).
    #[must_use]
    pub fn below(&self, t: f64) -> f64 {
        let wait = t - 1.0;
        if wait < 0.0 {
            return 0.0;
        }
        let k = wait.floor() as usize + 1;
        let x = self.utilisation * (k as f64 - wait);
        let mut term = (-x).exp();
        let mut sum = 0.0;
        for j in 0..k {
            sum += self.waiting.get(k - 1 - j).copied().unwrap_or(1.0) * term;
            term *= x / (j + 1) as f64;
            if term < 1e-18 {
                break;
            }
        }
        sum.min(1.0)
    }

    /// A percentile, 0 to 1, of the sojourn time.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        inverse(q, |t| self.below(t)).max(1.0)
    }
}

/// Where a rising distribution function reaches `q`, by halving.
fn inverse(q: f64, below: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while below(high) < q && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if below(middle) < q { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found}, expected {expected}");
    }

    #[test]
    fn erlang_c_agrees_with_printed_tables() {
        // One worker: the utilisation itself. Two: 2 ρ² / (1 + ρ). Ten workers at 8 erlangs: 0.4092 (Gross and Harris).
        near(erlang_c(1, 0.7), 0.7, 1e-12);
        near(erlang_c(2, 0.8), 2.0 * 0.64 / 1.8, 1e-12);
        near(erlang_c(10, 0.8), 0.4092, 5e-5);
        near(mmc_mean(1, 0.8), 5.0, 1e-12);
        near(mmc_quantile(1, 0.8, 0.99), 5.0 * 100.0_f64.ln(), 1e-9);
        // The special case of the two exponentials with one rate, and its surroundings.
        near(mmc_beyond(4, 0.75, 2.0), mmc_beyond(4, 0.750_001, 2.0), 1e-5);
    }

    #[test]
    fn md1_agrees_with_erlangs_series() {
        // P(W <= t) = (1-ρ) Σ e^{-ρ(k-t)} (ρ(k-t))^k / k!, by hand for t below 2 (Erlang 1909).
        let queue = Md1::new(0.5);
        near(queue.below(1.0), 0.5, 1e-12);
        near(queue.below(1.5), 0.5 * 0.25_f64.exp(), 1e-12);
        near(queue.below(2.5), 0.5 * (0.75_f64.exp() - 0.25 * 0.25_f64.exp()), 1e-12);
    }

    #[test]
    fn md1_has_the_mean_of_pollaczek_and_khinchine_and_its_own_far_tail() {
        for utilisation in [0.1, 0.5, 0.8, 0.95, 0.99] {
            let queue = Md1::new(utilisation);
            // The mean is the area above the distribution function: 1 up to a service time, then by the midpoint rule.
            let (mut mean, mut t, step) = (1.0, 1.0, 0.01);
            while queue.below(t) < 1.0 - 1e-10 {
                mean += (1.0 - queue.below(t + step / 2.0)) * step;
                t += step;
            }
            near(mean, mg1_mean(utilisation, 1.0), 2e-4 * mean);
            if utilisation < 0.5 {
                // Its tail is over before it has its final slope.
                continue;
            }
            // Beyond the first few service times the tail falls by e^-δ each, where δ = ρ (e^δ - 1).
            let far = queue.quantile(1.0 - 1e-7);
            let fall = (1.0 - queue.below(far + 1.0)) / (1.0 - queue.below(far));
            let delta = -fall.ln();
            near(utilisation * (delta.exp() - 1.0), delta, 0.01 * delta);
        }
    }
}
