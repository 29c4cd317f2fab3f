//! Numbers as people write them. In: `20k`, `1.5M`, `500ms`, `256K`. Out: rates in 1/s, counts, nanoseconds, bytes.

/// A number with an optional `k`, `M` or `G` (powers of 1000); finite and not negative.
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1e3),
        b'm' | b'M' => (&text[..text.len() - 1], 1e6),
        b'g' | b'G' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    signed(digits).map(|n| n * factor).filter(|n| *n >= 0.0)
}

/// A plain number, negative ones too; words such as `inf` are not numbers here.
pub(crate) fn signed(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    plain.then(|| text.parse::<f64>().ok()).flatten().filter(|n| n.is_finite())
}

/// A whole number with an optional `k`, `M` or `G`.
pub(crate) fn count(text: &str) -> Option<u64> {
    number(text).filter(|n| n.fract() == 0.0 && *n <= 9e15).map(|n| n as u64)
}

/// A duration with its unit (`250us`, `500ms`, `2s`, `1.5m`, `1h`), nanoseconds.
pub(crate) fn duration_ns(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    signed(digits).map(|n| n * factor).filter(|n| (0.0..9e18).contains(n)).map(|n| n.round() as u64)
}

/// Numbers separated by commas, exactly `N` of them.
pub(crate) fn list<const N: usize>(text: &str) -> Option<[f64; N]> {
    let mut parts = text.split(',');
    let mut values = [0.0; N];
    for value in &mut values {
        *value = signed(parts.next()?)?;
    }
    parts.next().is_none().then_some(values)
}

/// A duration in nanoseconds in the largest unit that writes it exactly.
pub(crate) fn write_duration(ns: u64) -> String {
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")] {
        if ns >= unit && ns.is_multiple_of(unit) {
            return format!("{}{name}", ns / unit);
        }
    }
    format!("{ns}ns")
}

/// Text forms in serde: what `FromStr` reads is what is stored.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<T: std::fmt::Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(number("20k"), Some(20_000.0));
        assert_eq!(number("1.5M"), Some(1_500_000.0));
        assert_eq!(count("1.5k"), Some(1500));
        assert_eq!(duration_ns("500ms"), Some(500_000_000));
        assert_eq!(duration_ns("1.5us"), Some(1500));
        assert_eq!(write_duration(1_500_000), "1500us");
        for bad in ["", "k", "-1", "inf", "nan", "1x", "0x10"] {
            assert_eq!(number(bad), None, "{bad}");
        }
        for bad in ["5", "s", "-1s", "1 parsec", "infs"] {
            assert_eq!(duration_ns(bad), None, "{bad}");
        }
        assert_eq!(list::<2>("1,2"), Some([1.0, 2.0]));
        assert_eq!(list::<2>("1,2,3"), None);
    }
}
