//! Slices of the latency distribution: parsing `p99..p100`, ranks, percentiles.
//!
//! In: quantiles and sorted latencies (ns). Out: ranges of ranks, and percentiles by nearest rank.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use tailsight_stats::quantile::needed;

use crate::{Error, MIN_COMPLETE, MIN_MESSAGES};

/// The percentiles of the contract, in thousandths.
const PERCENTILES: [(&str, u64); 4] = [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999)];

/// Messages that each of them needs.
static NEEDED: LazyLock<[usize; 4]> = LazyLock::new(|| PERCENTILES.map(|(_, p)| needed(p as f64 / 1000.0)));

/// Reads a slice such as `p99..p100`, `p99.9..p100` or `99..100`; gives quantiles from 0 to 1.
///
/// # Errors
/// [`Error::NotASlice`] for anything else; [`Error::Focus`] for ends outside 0 to 100, and for a reversed or empty slice.
pub fn parse_focus(text: &str) -> Result<(f64, f64), Error> {
    let wrong = |why: &str| Error::NotASlice { text: text.into(), why: why.into() };
    let outside = |why: String| Error::Focus { text: text.into(), why };
    let (from, to) =
        text.trim().split_once("..").ok_or_else(|| wrong("two percentiles with .. between them are needed"))?;
    let end = |s: &str| -> Result<f64, Error> {
        let s = s.trim();
        let digits = s.strip_prefix(['p', 'P']).unwrap_or(s);
        let number = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_digit() || c == '.');
        if digits.strip_prefix('-').is_some_and(number) {
            return Err(outside(format!("{s} is outside 0 to 100")));
        }
        let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
        // Shifting the decimal in the text gives the closest quantile: 99.9 / 100.0 is not 0.999.
        let quantile = plain.then(|| format!("{digits}e-2").parse::<f64>().ok()).flatten();
        let quantile = quantile.ok_or_else(|| wrong(&format!("{s:?} is not a percentile")))?;
        if quantile > 1.0 {
            return Err(outside(format!("{s} is outside 0 to 100")));
        }
        Ok(quantile)
    };
    let slice = (end(from)?, end(to)?);
    check_slice(slice).map_err(|e| match e {
        Error::Focus { why, .. } => outside(why),
        other => other,
    })?;
    Ok(slice)
}

/// Whether the quantiles are a slice: within 0 to 1 and in order.
pub(crate) fn check_slice((from, to): (f64, f64)) -> Result<(), Error> {
    let why = if !(0.0..=1.0).contains(&from) || !(0.0..=1.0).contains(&to) {
        "its ends must lie between 0 and 100"
    } else if from >= to {
        "its first end must lie below its second"
    } else {
        return Ok(());
    };
    Err(Error::Focus { text: format!("{}..{}", percent(from), percent(to)), why: why.into() })
}

/// A quantile as a percentile, e.g. `p99.9`.
pub fn percent(quantile: f64) -> String {
    format!("p{}", (quantile * 1e8).round() / 1e6)
}

/// The ranks (from 0) of a slice among `n` sorted latencies: adjoining slices share no rank and leave none out.
pub fn ranks(n: usize, (from, to): (f64, f64)) -> Range<usize> {
    // The small term keeps 0.999 * 1000 from becoming rank 1000 through the last bit of the product.
    let rank = |q: f64| ((q * n as f64 - 1e-6).ceil().max(0.0) as usize).min(n);
    rank(from)..rank(to)
}

/// A slice that holds enough of `n` messages where the given one does not, as wide as it must be and no wider (in thousandths):
/// a tail grows down, any other slice around its middle. `None` where it need not or cannot be: fewer than [`MIN_COMPLETE`]
/// messages have no tail.
pub fn widened(n: usize, slice: (f64, f64)) -> Option<(f64, f64)> {
    if n < MIN_COMPLETE || ranks(n, slice).len() >= MIN_MESSAGES {
        return None;
    }
    let width = ((MIN_MESSAGES as f64 / n as f64) * 1000.0 - 1e-6).ceil() / 1000.0;
    let round = |q: f64| (q * 1000.0).round() / 1000.0;
    // Half a thousandth at each end can cost a message: one step more makes up for it.
    let with = |width: f64| {
        if slice.1 >= 1.0 {
            (round(1.0 - width), 1.0)
        } else {
            let from = ((slice.0 + slice.1 - width) / 2.0).clamp(0.0, 1.0 - width);
            (round(from), round(from + width))
        }
    };
    [width, width + 0.001, width + 0.002].into_iter().map(with).find(|&wide| ranks(n, wide).len() >= MIN_MESSAGES)
}

/// The ranks of a slice, when it holds enough messages for a verdict.
///
/// # Errors
/// [`Error::NotEnough`] below [`MIN_MESSAGES`], with what would help.
pub fn enough(n: usize, slice: (f64, f64), name: &'static str) -> Result<Range<usize>, Error> {
    let range = ranks(n, slice);
    if range.len() >= MIN_MESSAGES {
        return Ok(range);
    }
    // 1 - 0.9999 is a little less than a ten thousandth, which must not ask for a message more.
    let needed = (MIN_MESSAGES as f64 / (slice.1 - slice.0) - 1e-6).ceil();
    let mut advice = format!("record longer, or under more load (about {needed} messages)");
    // A slice of all the messages wide enough to hold the minimum, in steps of a thousandth.
    let width = ((MIN_MESSAGES as f64 / n.max(1) as f64) * 1000.0).ceil() / 1000.0;
    if width < 0.5 {
        let (from, to) = if slice.1 >= width { (slice.1 - width, slice.1) } else { (0.0, width) };
        // The slice of another run is that of the focus.
        let option = if name == "against" { "focus" } else { name };
        advice += &format!(", or widen it: --{option} {}..{}", percent((from * 1000.0).round() / 1000.0), percent(to));
    }
    Err(Error::NotEnough {
        slice: name,
        from: percent(slice.0),
        to: percent(slice.1),
        have: range.len() as u64,
        complete: n as u64,
        needed: MIN_MESSAGES as u64,
        advice,
    })
}

/// Mean, percentiles by nearest rank, and maximum of latencies, which are put in another order; a percentile is absent below
/// [`needed`] samples.
pub fn percentiles(latencies: &mut [u64]) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    let n = latencies.len() as u64;
    let Some(&max) = latencies.iter().max() else { return out };
    let sum: u128 = latencies.iter().map(|&v| u128::from(v)).sum();
    out.insert("mean".into(), mean(sum, n));
    // Ranks are selected, each among what the one before left above it: a fraction of the work of sorting.
    let mut below = 0;
    for (at, (name, p)) in PERCENTILES.into_iter().enumerate() {
        if n as usize >= NEEDED[at] {
            let rank = (n * p).div_ceil(1000).max(1) as usize - 1;
            let (_, &mut value, _) = latencies[below..].select_nth_unstable(rank - below);
            out.insert(name.into(), value);
            below = rank;
        }
    }
    out.insert("max".into(), max);
    out
}

/// A mean, rounded to the nearest integer.
pub(crate) fn mean(sum: u128, n: u64) -> u64 {
    let n = u128::from(n.max(1));
    ((2 * sum + n) / (2 * n)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_read() {
        assert_eq!(parse_focus("p99..p100").unwrap(), (0.99, 1.0));
        assert_eq!(parse_focus("p99.9..p100").unwrap(), (0.999, 1.0));
        assert_eq!(parse_focus("99..100").unwrap(), (0.99, 1.0));
        assert_eq!(parse_focus(" p0 .. p50 ").unwrap(), (0.0, 0.5));
    }

    #[test]
    fn bad_slices_say_why() {
        for (text, why) in [
            ("p99", "two percentiles"),
            ("p99..p101", "outside 0 to 100"),
            ("p100..p99", "below its second"),
            ("p50..p50", "below its second"),
            ("-1..50", "outside 0 to 100"),
            ("p..p100", "is not a percentile"),
            ("nan..inf", "is not a percentile"),
            ("1e1..p100", "is not a percentile"),
            ("1.2.3..p100", "is not a percentile"),
        ] {
            let message = parse_focus(text).expect_err(text).to_string();
            assert!(
                message.contains(why) && message.contains(text) && message.contains("p99..p100"),
                "{text}: {message}"
            );
        }
        assert!(check_slice((f64::NAN, 1.0)).is_err());
    }

    #[test]
    fn adjoining_slices_partition() {
        for n in [1, 7, 999, 1000, 1001, 200_000] {
            let cuts = [0.0, 0.1, 0.45, 0.55, 0.9, 0.99, 0.999, 1.0];
            let total: usize = cuts.windows(2).map(|w| ranks(n, (w[0], w[1])).len()).sum();
            assert_eq!(total, n);
        }
        assert_eq!(ranks(1000, (0.999, 1.0)), 999..1000);
        assert_eq!(ranks(1000, (0.99, 1.0)), 990..1000);
    }

    #[test]
    fn percentiles_are_nearest_rank_and_absent_when_unsupported() {
        // In an order that is none.
        let mixed = |n: u64| (1..=n).map(|i| 1 + i * 37 % n).collect::<Vec<u64>>();
        let p = percentiles(&mut mixed(400));
        assert_eq!((p["p50"], p["p90"], p["p99"], p["max"], p["mean"]), (200, 360, 396, 400, 201));
        assert!(!p.contains_key("p99.9"));
        // The numbers that `ideal` and `load` refuse by (tailsight-stats has a test of them).
        for (name, needed) in [("p50", 6), ("p99", 368), ("p99.9", 3_688)] {
            assert!(percentiles(&mut mixed(needed)).contains_key(name), "{name}");
            assert!(!percentiles(&mut mixed(needed)[1..]).contains_key(name), "{name}");
        }
        let p = percentiles(&mut mixed(4000));
        assert_eq!((p["p50"], p["p90"], p["p99"], p["p99.9"], p["max"]), (2000, 3600, 3960, 3996, 4000));
        assert!(percentiles(&mut []).is_empty());
    }

    /// 500 requests/s over 4 s: the focus held 19 of 1,952, and nothing was said.
    #[test]
    fn a_tail_that_is_too_thin_is_widened_by_no_more_than_it_must_be() {
        assert_eq!(widened(1_952, (0.99, 1.0)), Some((0.989, 1.0)));
        assert_eq!(widened(100, (0.99, 1.0)), Some((0.8, 1.0)));
        assert_eq!(widened(100, (0.45, 0.55)), Some((0.4, 0.6)));
        assert_eq!(widened(2_000, (0.99, 1.0)), None, "20 are enough");
        assert_eq!(widened(99, (0.99, 1.0)), None, "no tail in 99 messages");
        for n in 100..2_500 {
            for slice in [(0.99, 1.0), (0.999, 1.0), (0.45, 0.55), (0.0, 0.001)] {
                let Some(wide) = widened(n, slice) else {
                    assert!(ranks(n, slice).len() >= MIN_MESSAGES, "{n} {slice:?}");
                    continue;
                };
                let held = ranks(n, wide).len();
                assert!(held >= MIN_MESSAGES && held <= MIN_MESSAGES + 2 + n / 250, "{n} {slice:?} {wide:?}: {held}");
            }
        }
    }

    #[test]
    fn too_few_says_what_to_do() {
        let message = enough(1200, (0.99, 1.0), "focus").unwrap_err().to_string();
        assert!(message.contains("holds 12 of 1200"), "{message}");
        assert!(message.contains("20 are needed") && message.contains("about 2000 messages"), "{message}");
        let thin = enough(153_184, (0.9999, 1.0), "focus").unwrap_err().to_string();
        assert!(thin.contains("about 200000 messages"), "{thin}");
        assert!(message.contains("--focus p98.3..p100"), "{message}");
        assert_eq!(ranks(1200, (0.983, 1.0)).len(), 20);
        let message = enough(10, (0.99, 1.0), "focus").unwrap_err().to_string();
        assert!(!message.contains("--focus"), "no slice of 10 messages holds 20: {message}");
    }
}
