//! Size distributions of keys and values. In: a text such as `gpareto:15,214.476,0.348238`. Out: sizes in bytes.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::rng::Rng;
use tailsight_stats::arrivals::generalised_pareto as gpareto;
use tailsight_units::parse;

/// Value sizes below 15 bytes of Facebook's ETC pool with their shares (Atikoglu et al. 2012, section 5, in the form that
/// mutilate and Lancet use); the rest is generalised Pareto.
const ETC_SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837, 0.08989,
    0.00092, 0.00326, 0.01980,
];

/// How large something is, bytes. Draws are rounded to whole bytes and cut at the limits of what is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Size {
    /// Always the same: `fixed:32` or just `32`.
    Fixed(u32),
    /// Every whole size from the first to the second alike: `uniform:10,100`.
    Uniform(u32, u32),
    /// Mean and standard deviation: `normal:100,10`.
    Normal(f64, f64),
    /// Mean: `exponential:100`.
    Exponential(f64),
    /// Minimum and shape: `pareto:10,1.5`.
    Pareto(f64, f64),
    /// Location, scale and shape: `gpareto:15,214.476,0.348238`.
    GeneralisedPareto(f64, f64, f64),
    /// Location, scale and shape: `gev:30.7984,8.20449,0.078688`.
    Gev(f64, f64, f64),
    /// The low one, or the high one with the share given last: `bimodal:1000,10000,0.1`.
    Bimodal(u32, u32, f64),
    /// Values of Facebook's ETC pool: `etc-value`. Fifteen small sizes with their own shares, a generalised Pareto above.
    EtcValue,
}

const FORMS: &str = "BYTES, fixed:BYTES, uniform:LOW,HIGH, normal:MEAN,SD, exponential:MEAN, pareto:MIN,SHAPE, \
                     gpareto:LOCATION,SCALE,SHAPE, gev:LOCATION,SCALE,SHAPE, bimodal:LOW,HIGH,SHARE or etc-value";

impl Size {
    /// Draws one, bytes, within `low..=high`.
    pub(crate) fn draw(&self, rng: &mut Rng, low: u32, high: u32) -> u32 {
        // In (0, 1]: its logarithm is finite.
        let unit = |rng: &mut Rng| 1.0 - rng.random::<f64>();
        let bytes = match *self {
            Self::Fixed(bytes) => f64::from(bytes),
            Self::Uniform(from, to) => f64::from(rng.random_range(from..=to)),
            Self::Normal(mean, sd) => {
                let z: f64 = StandardNormal.sample(rng);
                mean + sd * z
            }
            Self::Exponential(mean) => -mean * unit(rng).ln(),
            Self::Pareto(min, shape) => min * unit(rng).powf(-1.0 / shape),
            Self::GeneralisedPareto(location, scale, shape) => location + scale * gpareto(shape, unit(rng)),
            Self::Gev(location, scale, shape) => {
                // Inverse of exp(-(1 + k z)^(-1/k)); an open interval on both sides, or the end points are infinite.
                let u = unit(rng).clamp(1e-300, 1.0 - 1e-16);
                let w = -u.ln();
                location + scale * if shape == 0.0 { -w.ln() } else { (w.powf(-shape) - 1.0) / shape }
            }
            Self::Bimodal(low, high, share) => f64::from(if rng.random::<f64>() < share { high } else { low }),
            Self::EtcValue => {
                let mut left: f64 = rng.random();
                let small = ETC_SMALL.iter().position(|share| {
                    left -= share;
                    left < 0.0
                });
                small.map_or_else(|| 15.0 + 214.476 * gpareto(0.348_238, unit(rng)), |bytes| bytes as f64)
            }
        };
        // NaN cannot occur (parameters are checked); infinity becomes the limit.
        bytes.round().clamp(f64::from(low), f64::from(high)) as u32
    }

    /// Whether its parameters describe a distribution.
    fn valid(self) -> bool {
        match self {
            Self::Fixed(_) | Self::EtcValue => true,
            Self::Uniform(low, high) => low <= high,
            Self::Normal(mean, sd) => mean >= 0.0 && sd >= 0.0,
            Self::Exponential(mean) => mean > 0.0,
            Self::Bimodal(_, _, share) => (0.0..=1.0).contains(&share),
            Self::Pareto(min, shape) => min > 0.0 && shape > 0.0,
            Self::GeneralisedPareto(_, scale, _) | Self::Gev(_, scale, _) => scale > 0.0,
        }
    }
}

impl FromStr for Size {
    type Err = LoadError;

    fn from_str(input: &str) -> Result<Self, LoadError> {
        let bytes = |text: &str| parse::whole(text).and_then(|n| u32::try_from(n).ok());
        let (name, rest) = input.split_once(':').unwrap_or((input, ""));
        let size = match name {
            "fixed" => bytes(rest).map(Self::Fixed),
            "uniform" => rest.split_once(',').and_then(|(a, b)| Some(Self::Uniform(bytes(a)?, bytes(b)?))),
            "normal" => parse::list(rest).map(|[mean, sd]| Self::Normal(mean, sd)),
            "exponential" => parse::list(rest).map(|[mean]| Self::Exponential(mean)),
            "pareto" => parse::list(rest).map(|[min, shape]| Self::Pareto(min, shape)),
            "gpareto" => parse::list(rest).map(|[l, s, k]| Self::GeneralisedPareto(l, s, k)),
            "gev" => parse::list(rest).map(|[l, s, k]| Self::Gev(l, s, k)),
            "bimodal" => {
                let mut parts = rest.splitn(3, ',');
                let mut next = || parts.next();
                (|| Some(Self::Bimodal(bytes(next()?)?, bytes(next()?)?, parse::list::<1>(next()?)?[0])))()
            }
            "etc-value" if rest.is_empty() => Some(Self::EtcValue),
            _ => bytes(input).map(Self::Fixed),
        };
        size.filter(|size| size.valid()).ok_or_else(|| LoadError::parse("a size", input, FORMS))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "fixed:{bytes}"),
            Self::Uniform(low, high) => write!(f, "uniform:{low},{high}"),
            Self::Normal(mean, sd) => write!(f, "normal:{mean},{sd}"),
            Self::Exponential(mean) => write!(f, "exponential:{mean}"),
            Self::Pareto(min, shape) => write!(f, "pareto:{min},{shape}"),
            Self::GeneralisedPareto(l, s, k) => write!(f, "gpareto:{l},{s},{k}"),
            Self::Gev(l, s, k) => write!(f, "gev:{l},{s},{k}"),
            Self::Bimodal(low, high, share) => write!(f, "bimodal:{low},{high},{share}"),
            Self::EtcValue => f.write_str("etc-value"),
        }
    }
}

impl TryFrom<String> for Size {
    type Error = LoadError;
    fn try_from(text: String) -> Result<Self, LoadError> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, stream};

    fn mean(text: &str) -> f64 {
        let size: Size = text.parse().unwrap();
        assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
        let mut rng = stream(1, Purpose::ValueSize, 0);
        (0..200_000).map(|_| f64::from(size.draw(&mut rng, 0, 1 << 24))).sum::<f64>() / 200_000.0
    }

    #[test]
    fn means_are_those_of_the_formulas() {
        // Closed forms; the tolerance is four standard errors or more.
        for (text, expected, tolerance) in [
            ("32", 32.0, 0.0),
            ("fixed:1k", 1000.0, 0.0),
            ("uniform:10,100", 55.0, 0.3),
            ("normal:100,10", 100.0, 0.1),
            ("exponential:100", 100.0, 1.0),
            ("pareto:100,3", 150.0, 1.0),
            // location + scale / (1 - shape)
            ("gpareto:15,214.476,0.1", 15.0 + 214.476 / 0.9, 3.0),
            // location + scale (Gamma(1 - k) - 1) / k with Gamma(0.921312) = 1.0510
            ("gev:30.7984,8.20449,0.078688", 36.12, 0.15),
            ("bimodal:10,110,0.1", 20.0, 0.3),
            ("gev:10,2,0", 10.0 + 2.0 * 0.577_216, 0.1),
        ] {
            let mean = mean(text);
            assert!((mean - expected).abs() <= tolerance, "{text}: {mean}, expected {expected}");
        }
    }

    #[test]
    fn etc_values_have_the_published_shares() {
        let mut rng = stream(2, Purpose::ValueSize, 0);
        let draws: Vec<u32> = (0..200_000).map(|_| Size::EtcValue.draw(&mut rng, 0, 1 << 20)).collect();
        let share = |bytes: u32| draws.iter().filter(|d| **d == bytes).count() as f64 / draws.len() as f64;
        assert!((share(2) - 0.1782).abs() < 0.004, "{}", share(2));
        assert!((share(11) - 0.08989).abs() < 0.003, "{}", share(11));
        let above = draws.iter().filter(|d| **d >= 15).count() as f64 / draws.len() as f64;
        assert!((above - (1.0 - ETC_SMALL.iter().sum::<f64>())).abs() < 0.005, "{above}");
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in
            ["", "x", "fixed:", "fixed:-1", "uniform:9,1", "normal:1", "pareto:0,1", "gev:1,0,1", "etc-value:1", "1.5"]
        {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
