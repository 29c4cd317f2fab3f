//! Distributions for workloads and arrivals, as pure functions of a uniform number.
//!
//! In: a uniform on the open interval (0, 1). Out: a value in the distribution's own unit. Sizes of Facebook's pools use the
//! generalised Pareto and GEV (Atikoglu et al. 2012); no crate in use has the former by inversion.

use crate::special::{normal_cdf, normal_quantile};

/// A distribution that can be inverted.
pub trait Inverse {
    /// The value at or below which a share `u` (inside 0..1) lies.
    fn inverse(&self, u: f64) -> f64;
    /// The share at or below `x`.
    fn cdf(&self, x: f64) -> f64;
    /// The mean; infinite or NaN where there is none.
    fn mean(&self) -> f64;
}

/// Exponential.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exponential {
    /// Its mean.
    pub mean: f64,
}

impl Inverse for Exponential {
    fn inverse(&self, u: f64) -> f64 {
        -self.mean * (-u).ln_1p()
    }
    fn cdf(&self, x: f64) -> f64 {
        if x <= 0.0 { 0.0 } else { -(-x / self.mean).exp_m1() }
    }
    fn mean(&self) -> f64 {
        self.mean
    }
}

/// Lognormal: the logarithm is normal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lognormal {
    /// Mean of the logarithm.
    pub mu: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

impl Lognormal {
    /// The one with this mean and this σ of the logarithm.
    pub fn with_mean(mean: f64, sigma: f64) -> Self {
        Self { mu: mean.ln() - sigma * sigma / 2.0, sigma }
    }
}

impl Inverse for Lognormal {
    fn inverse(&self, u: f64) -> f64 {
        (self.mu + self.sigma * normal_quantile(u)).exp()
    }
    fn cdf(&self, x: f64) -> f64 {
        if x <= 0.0 { 0.0 } else { normal_cdf((x.ln() - self.mu) / self.sigma) }
    }
    fn mean(&self) -> f64 {
        (self.mu + self.sigma * self.sigma / 2.0).exp()
    }
}

/// Pareto (type I): no value is below `scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pareto {
    /// The smallest value.
    pub scale: f64,
    /// The tail's exponent; the mean is infinite up to 1, the variance up to 2.
    pub shape: f64,
}

impl Pareto {
    /// The one with this mean; `shape` must be above 1.
    pub fn with_mean(mean: f64, shape: f64) -> Self {
        Self { scale: mean * (shape - 1.0) / shape, shape }
    }
}

impl Inverse for Pareto {
    fn inverse(&self, u: f64) -> f64 {
        self.scale * (-(-u).ln_1p() / self.shape).exp()
    }
    fn cdf(&self, x: f64) -> f64 {
        if x <= self.scale { 0.0 } else { 1.0 - (self.scale / x).powf(self.shape) }
    }
    fn mean(&self) -> f64 {
        if self.shape > 1.0 { self.shape * self.scale / (self.shape - 1.0) } else { f64::INFINITY }
    }
}

/// Generalised Pareto: location μ, scale σ, shape ξ (ξ = 0 is the exponential, ξ < 0 has an upper end).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneralisedPareto {
    /// μ, the smallest value.
    pub location: f64,
    /// σ > 0.
    pub scale: f64,
    /// ξ.
    pub shape: f64,
}

impl Inverse for GeneralisedPareto {
    fn inverse(&self, u: f64) -> f64 {
        let e = -(-u).ln_1p();
        self.location + self.scale * expm1_over(self.shape, e)
    }
    fn cdf(&self, x: f64) -> f64 {
        let z = (x - self.location) / self.scale;
        if z <= 0.0 {
            0.0
        } else if self.shape.abs() < 1e-12 {
            -(-z).exp_m1()
        } else if 1.0 + self.shape * z <= 0.0 {
            1.0
        } else {
            -(-(self.shape * z).ln_1p() / self.shape).exp_m1()
        }
    }
    fn mean(&self) -> f64 {
        if self.shape < 1.0 { self.location + self.scale / (1.0 - self.shape) } else { f64::INFINITY }
    }
}

/// Generalised extreme value: location μ, scale σ, shape ξ in the sign of Coles and of Atikoglu et al.: ξ > 0 has the heavy
/// upper tail (scipy's `c` is −ξ).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gev {
    /// μ.
    pub location: f64,
    /// σ > 0.
    pub scale: f64,
    /// ξ.
    pub shape: f64,
}

impl Inverse for Gev {
    fn inverse(&self, u: f64) -> f64 {
        self.location + self.scale * expm1_over(self.shape, -(-u.ln()).ln())
    }
    fn cdf(&self, x: f64) -> f64 {
        let z = (x - self.location) / self.scale;
        if self.shape.abs() < 1e-12 {
            return (-(-z).exp()).exp();
        }
        if 1.0 + self.shape * z <= 0.0 {
            return if self.shape > 0.0 { 0.0 } else { 1.0 };
        }
        (-(-(self.shape * z).ln_1p() / self.shape).exp()).exp()
    }
    fn mean(&self) -> f64 {
        const EULER: f64 = 0.577_215_664_901_532_9;
        if self.shape.abs() < 1e-12 {
            self.location + self.scale * EULER
        } else if self.shape < 1.0 {
            self.location + self.scale * (statrs::function::gamma::gamma(1.0 - self.shape) - 1.0) / self.shape
        } else {
            f64::INFINITY
        }
    }
}

/// (exp(shape × e) − 1) / shape, which is e where the shape vanishes.
fn expm1_over(shape: f64, e: f64) -> f64 {
    if shape.abs() < 1e-12 { e } else { (shape * e).exp_m1() / shape }
}
