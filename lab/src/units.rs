//! Reads the units of the command line. In: `20k`, `500ms`, `256M`. Out: requests a second, [`Duration`]s, bytes.

use std::time::Duration;

use crate::{Error, Result};

/// Splits a number from the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

/// Reads a rate in requests a second: `500`, `20k`, `1.5M`.
///
/// # Errors
/// [`Error::Parse`] for other text and for zero.
pub fn parse_rate(text: &str) -> Result<f64> {
    split(text)
        .and_then(|(number, unit)| match unit {
            "" => Some(number),
            "k" | "K" => Some(number * 1e3),
            "m" | "M" => Some(number * 1e6),
            _ => None,
        })
        .filter(|rate| *rate > 0.0)
        .ok_or_else(|| Error::Parse {
            what: "rate",
            text: text.into(),
            expected: "a number of requests a second above 0, such as 500, 20k or 1.5M",
        })
}

/// Reads a duration: `250us`, `500ms`, `2s`, `1m`.
///
/// # Errors
/// [`Error::Parse`] for other text, for a number without a unit, for zero and for more than a day.
pub fn parse_duration(text: &str) -> Result<Duration> {
    split(text)
        .and_then(|(number, unit)| match unit {
            "ns" => Some(number * 1e-9),
            "us" => Some(number * 1e-6),
            "ms" => Some(number * 1e-3),
            "s" => Some(number),
            "m" | "min" => Some(number * 60.0),
            _ => None,
        })
        .filter(|seconds| *seconds > 0.0 && *seconds <= 86_400.0)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| Error::Parse {
            what: "duration",
            text: text.into(),
            expected: "a number with its unit, above 0 and at most a day, such as 500ms or 2s",
        })
}

/// Reads a size in bytes: `100`, `64k`, `1M` (1024 and 1024² bytes).
///
/// # Errors
/// [`Error::Parse`] for other text and for more than 1 GiB.
pub fn parse_size(text: &str) -> Result<usize> {
    split(text)
        .and_then(|(number, unit)| match unit {
            "" => Some(number),
            "k" | "K" => Some(number * 1024.0),
            "m" | "M" => Some(number * 1024.0 * 1024.0),
            _ => None,
        })
        .filter(|size| *size <= 1024.0 * 1024.0 * 1024.0)
        .map(|size| size as usize)
        .ok_or_else(|| Error::Parse {
            what: "size",
            text: text.into(),
            expected: "a number of bytes up to 1024M, such as 100, 64k or 1M",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(parse_rate("20k").unwrap(), 20_000.0);
        assert_eq!(parse_rate("1.5M").unwrap(), 1_500_000.0);
        assert_eq!(parse_rate("7").unwrap(), 7.0);
        for bad in ["", "k", "0", "-3", "20 k", "20kk", "1.2.3"] {
            assert!(parse_rate(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("2s").unwrap(), Duration::from_secs(2));
        assert_eq!(parse_duration("1m").unwrap(), Duration::from_secs(60));
        for bad in ["", "2", "s", "0s", "-1s", "99999999s", "1e9s"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64k").unwrap(), 65_536);
        assert_eq!(parse_size("1M").unwrap(), 1 << 20);
        assert_eq!(parse_size("0").unwrap(), 0);
        for bad in ["", "2G", "2048M", "x"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }
}
