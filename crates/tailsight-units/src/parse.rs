//! Reads quantities. In: `500ms`, `20k`, `1.5M`, `64M`. Out: nanoseconds, [`Duration`]s, numbers, bytes.
//!
//! What a command line takes ([`duration`], [`rate`], [`count`], [`size`]) has an error that says what was given and what is
//! allowed; parts of a longer text ([`duration_ns`], [`number`], [`whole`]) are `None` when they are none, for the whole has the
//! error.

use std::fmt;
use std::time::Duration;

/// A text that is no such quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    what: &'static str,
    text: String,
    allowed: &'static str,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a {}: write {}", self.text, self.what, self.allowed)
    }
}

impl std::error::Error for Wrong {}

/// The longest duration that a command line takes.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A duration above 0 and at most a day, with its unit: `250us`, `500ms`, `2s`, `1.5m`, `1h`.
///
/// # Errors
/// For every other text, and for a number without a unit.
pub fn duration(text: &str) -> Result<Duration, Wrong> {
    let read = duration_ns(text).map(Duration::from_nanos).filter(|d| !d.is_zero() && *d <= LONGEST);
    let allowed = "a number with its unit (ns, us, ms, s, m, h), above 0 and at most a day, as 500ms or 2s";
    read.ok_or_else(|| Wrong { what: "duration", text: text.into(), allowed })
}

/// A rate above 0, in 1/s: `500`, `20k`, `1.5M`.
///
/// # Errors
/// For every other text.
pub fn rate(text: &str) -> Result<f64, Wrong> {
    let allowed = "a number a second above 0, as 500, 20k or 1.5M";
    number(text).filter(|rate| *rate > 0.0).ok_or_else(|| Wrong { what: "rate", text: text.into(), allowed })
}

/// A whole number from 0: `500`, `20k`, `1M` (thousands and millions).
///
/// # Errors
/// For every other text.
pub fn count(text: &str) -> Result<u64, Wrong> {
    whole(text).ok_or_else(|| Wrong {
        what: "number",
        text: text.into(),
        allowed: "a whole number, as 10000, 100k or 1M",
    })
}

/// A size in bytes: `100`, `64k`, `1M`, `2GiB` (powers of 1024, with `B` or `iB` or without).
///
/// # Errors
/// For every other text, and for more than 2^63 bytes.
pub fn size(text: &str) -> Result<u64, Wrong> {
    let plain = text.trim().trim_end_matches(['B', 'b']).trim_end_matches('i');
    let (digits, shift) = match plain.bytes().last() {
        Some(b'k' | b'K') => (&plain[..plain.len() - 1], 10),
        Some(b'm' | b'M') => (&plain[..plain.len() - 1], 20),
        Some(b'g' | b'G') => (&plain[..plain.len() - 1], 30),
        _ => (plain, 0),
    };
    let bytes = signed(digits).map(|n| n * f64::from(1_u32 << shift)).filter(|n| (0.0..9e18).contains(n));
    let allowed = "a number of bytes, as 100, 64k, 1M or 1G";
    bytes.map(|n| n as u64).ok_or_else(|| Wrong { what: "size", text: text.into(), allowed })
}

/// A number from 0 with an optional `k`, `M` or `G` (powers of 1000); finite.
#[must_use]
pub fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1e3),
        b'm' | b'M' => (&text[..text.len() - 1], 1e6),
        b'g' | b'G' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    // A space between the number and its factor belongs to neither.
    let joined = !digits.ends_with(char::is_whitespace);
    signed(digits).filter(|_| joined).map(|n| n * factor).filter(|n| *n >= 0.0)
}

/// A plain number, negative ones too; words such as `inf` are not numbers here.
#[must_use]
pub fn signed(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    plain.then(|| text.parse::<f64>().ok()).flatten().filter(|n| n.is_finite())
}

/// A whole number from 0 with an optional `k`, `M` or `G`.
#[must_use]
pub fn whole(text: &str) -> Option<u64> {
    number(text).filter(|n| n.fract() == 0.0 && *n <= 9e15).map(|n| n as u64)
}

/// A duration from 0 with its unit (`250us`, `500ms`, `2s`, `1.5m`, `1h`), nanoseconds.
#[must_use]
pub fn duration_ns(text: &str) -> Option<u64> {
    fractional_ns(text).map(|ns| ns.round() as u64)
}

/// The same with parts of a nanosecond, for statistics.
#[must_use]
pub fn fractional_ns(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_end_matches(char::is_alphabetic);
    let factor = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    signed(digits).map(|n| n * factor).filter(|n| (0.0..9e18).contains(n))
}

/// An objective, `p99<1ms` or as it was written first `p99:1ms`: the quantile, inside 0..1, and its limit in ns, above 0.
///
/// # Errors
/// For every other text.
pub fn objective(text: &str) -> Result<(f64, u64), Wrong> {
    let read = || {
        let (percentile, limit) = text.split_once(['<', ':'])?;
        let percent = signed(percentile.trim().strip_prefix(['p', 'P'])?).filter(|p| *p > 0.0 && *p < 100.0)?;
        let limit_ns = duration_ns(limit).filter(|ns| *ns > 0)?;
        // The digits of a percent are exact in decimals, not in hundredths of them.
        Some(((percent * 1e10).round() / 1e12, limit_ns))
    };
    read().ok_or_else(|| Wrong {
        what: "latency objective",
        text: text.into(),
        allowed: "a percentile below a time, as p99<1ms",
    })
}

/// Numbers separated by commas, exactly `N` of them.
#[must_use]
pub fn list<const N: usize>(text: &str) -> Option<[f64; N]> {
    let mut parts = text.split(',');
    let mut values = [0.0; N];
    for value in &mut values {
        *value = signed(parts.next()?)?;
    }
    parts.next().is_none().then_some(values)
}

/// A duration in nanoseconds as [`duration_ns`] reads it, in the largest unit that writes it exactly.
#[must_use]
pub fn write_duration(ns: u64) -> String {
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")] {
        if ns >= unit && ns.is_multiple_of(unit) {
            return format!("{}{name}", ns / unit);
        }
    }
    format!("{ns}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_numbers() {
        assert_eq!(rate("20k").unwrap(), 20_000.0);
        assert_eq!(rate("1.5M").unwrap(), 1_500_000.0);
        assert_eq!(rate("7").unwrap(), 7.0);
        for bad in ["", "k", "0", "-3", "20 k", "20kk", "1.2.3"] {
            assert!(rate(bad).is_err(), "{bad:?}");
        }
        assert_eq!(whole("1.5k"), Some(1500));
        assert_eq!(count("1M").unwrap(), 1_000_000);
        for bad in ["", "k", "-1", "inf", "nan", "1x", "0x10"] {
            assert_eq!(number(bad), None, "{bad}");
        }
        assert_eq!(list::<2>("1,2"), Some([1.0, 2.0]));
        assert_eq!(list::<2>("1,2,3"), None);
    }

    #[test]
    fn durations() {
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("2s").unwrap(), Duration::from_secs(2));
        assert_eq!(duration("1m").unwrap(), Duration::from_secs(60));
        for bad in ["", "2", "s", "0s", "-1s", "99999999s", "1e9s", "1 parsec", "infs"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
        assert_eq!(duration_ns("1.5us"), Some(1500));
        assert_eq!(
            duration("5").unwrap_err().to_string(),
            "\"5\" is not a duration: write a number with its unit (ns, us, ms, s, m, h), above 0 and at most a day, as 500ms or 2s"
        );
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(write_duration(1_500_000), "1500us");
        for ns in [1, 999, 1_000, 1_500_000, 60_000_000_000, 86_400_000_000_000] {
            assert_eq!(duration_ns(&write_duration(ns)), Some(ns));
        }
    }

    #[test]
    fn an_objective_is_written_in_two_ways() {
        for text in ["p99<1ms", "p99:1ms", " P99 < 1000us ", "p99<1000µs"] {
            assert_eq!(objective(text).unwrap(), (0.99, 1_000_000), "{text}");
        }
        assert_eq!(objective("p99.9<500us").unwrap(), (0.999, 500_000));
        for bad in ["", "p99", "99:1ms", "p100<1ms", "p0<1ms", "p99<0s", "p99<fast", "p99<5%", "p99<1ms@95"] {
            assert!(objective(bad).unwrap_err().to_string().contains("p99<1ms"), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("64k", 65_536), ("1M", 1 << 20), ("0", 0), ("64MiB", 64 << 20), ("1G", 1 << 30), ("100b", 100)]
        {
            assert_eq!(size(text).unwrap(), bytes, "{text}");
        }
        for bad in ["", "x", "-1", "9999999999G", "1T"] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }
}
