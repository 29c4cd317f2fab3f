//! The distribution functions that the tests need. In: a statistic. Out: a probability, or a quantile for a probability.

use statrs::function::{
    erf,
    gamma::{gamma_lr, ln_gamma},
};

/// Φ(x): the standard normal distribution function.
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * erf::erfc(-x / std::f64::consts::SQRT_2)
}

/// The x with Φ(x) = p, for p inside 0..1.
pub fn normal_quantile(p: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erf::erfc_inv(2.0 * p)
}

/// P(|T| > |t|) of Student's t with `df` degrees of freedom.
pub fn student_two_sided(t: f64, df: f64) -> f64 {
    if !t.is_finite() {
        return 0.0;
    }
    beta_reg(df / 2.0, 0.5, df / (df + t * t))
}

/// P(T ≤ t) of Student's t.
pub fn student_cdf(t: f64, df: f64) -> f64 {
    let tail = 0.5 * student_two_sided(t, df);
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The t with P(T ≤ t) = p, by bisection (to 1e-12).
pub fn student_quantile(p: f64, df: f64) -> f64 {
    if p < 0.5 {
        return -student_quantile(1.0 - p, df);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while student_cdf(high, df) < p && high < 1e15 {
        high *= 2.0;
    }
    while high - low > 1e-12 * (1.0 + high) {
        let mid = 0.5 * (low + high);
        if student_cdf(mid, df) < p { low = mid } else { high = mid }
    }
    0.5 * (low + high)
}

/// P(X ≤ k) of a binomial with n trials; k < 0 is 0.
pub fn binomial_cdf(k: i64, n: usize, p: f64) -> f64 {
    if k < 0 {
        0.0
    } else if k as u64 >= n as u64 {
        1.0
    } else {
        beta_reg((n as i64 - k) as f64, (k + 1) as f64, 1.0 - p)
    }
}

/// The smallest k with P(X ≤ k) ≥ `level`.
pub fn binomial_quantile(level: f64, n: usize, p: f64) -> i64 {
    let (mut low, mut high) = (-1i64, n as i64);
    while high - low > 1 {
        let mid = low + (high - low) / 2;
        if binomial_cdf(mid, n, p) >= level { high = mid } else { low = mid }
    }
    high
}

/// P(X ≥ k) of a Poisson variable.
pub fn poisson_tail(k: u64, mean: f64) -> f64 {
    if k == 0 {
        1.0
    } else if mean <= 0.0 {
        0.0
    } else {
        gamma_lr(k as f64, mean)
    }
}

/// P(X > x) of χ² with `df` degrees of freedom.
pub fn chi_square_tail(x: f64, df: f64) -> f64 {
    if x <= 0.0 { 1.0 } else { 1.0 - gamma_lr(df / 2.0, x / 2.0) }
}

/// P(∫B² > x) for a Brownian bridge B: the limit of the Cramér-von Mises and of the level KPSS statistic (Anderson and
/// Darling 1952, equation 4.35). Absolute error below 1e-9.
pub fn cramer_von_mises_tail(x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let mut sum = 0.0;
    // |binom(-1/2, j)| goes down from 1 by (2j + 1) / (2j + 2).
    let mut weight = 1.0;
    for j in 0..60 {
        let order = 4.0 * f64::from(j) + 1.0;
        let argument = order * order / (16.0 * x);
        let term = weight * order.sqrt() * scaled_bessel_k_quarter(argument) * (-2.0 * argument).exp();
        sum += term;
        if term < 1e-16 {
            break;
        }
        weight *= (2.0 * f64::from(j) + 1.0) / (2.0 * f64::from(j) + 2.0);
    }
    (1.0 - sum / (std::f64::consts::PI * x.sqrt())).clamp(0.0, 1.0)
}

/// exp(z) K_{1/4}(z), by the trapezoid rule on its integral, which converges geometrically.
fn scaled_bessel_k_quarter(z: f64) -> f64 {
    const STEP: f64 = 0.05;
    let mut sum = 0.5;
    for i in 1..400 {
        let t = STEP * f64::from(i);
        let term = (-z * (t.cosh() - 1.0)).exp() * (0.25 * t).cosh();
        sum += term;
        if term < 1e-17 {
            break;
        }
    }
    sum * STEP
}

/// The regularised incomplete beta function I_x(a, b), by Lentz's continued fraction. It takes about √max(a, b) terms, which
/// fixed limits elsewhere cut off at the sample sizes met here.
pub fn beta_reg(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_reg(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    const TINY: f64 = 1e-300;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for i in 1..100_000 {
        let m = f64::from(i);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    (front * fraction).clamp(0.0, 1.0)
}
