//! Human units: nanoseconds, counts, shares and slices as a person reads them.
//!
//! In: the integers and fractions of the data. Out: short text with three significant digits ("17.2 us", "2.06 ms"),
//! thousands separators ("20,012") and a space before "%".

use tailsight_diagnose::model::Slice;

pub use tailsight_units::format::{count, duration, signed_duration, three_digits};

/// A number with its noun, in the plural where it is not one: `1 message`, `20,012 messages`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A fraction as per cent with one decimal: `93.1 %`, `100 %`; 0 when it is not a number.
pub fn percent(fraction: f64) -> String {
    let value = if fraction.is_finite() { fraction * 100.0 } else { 0.0 };
    let text = format!("{value:.1}");
    // Minus nothing is nothing.
    let text = if text == "-0.0" { "0.0" } else { &text };
    let text = if value.abs() >= 99.95 { text.trim_end_matches(".0") } else { text };
    format!("{text} %")
}

/// A quantile from 0 to 1 as `p50`, `p99.9`, `p100`.
pub fn quantile(q: f64) -> String {
    format!("p{}", trimmed(q * 100.0))
}

/// A slice of the distribution as the subject of a sentence: `The slowest 1 %`, `The messages at p20..p30`; one that was not asked for in per
/// cent by its number, `The slowest 108 messages`.
pub fn slice_subject(slice: &Slice) -> String {
    let part = (1.0 - slice.from) * 100.0;
    let is_plain = ((part * 1e4).round() / 1e4 - part).abs() < 1e-9;
    if slice.to >= 1.0 && slice.from > 0.0 && !is_plain {
        format!("The slowest {}", counted(slice.messages, "message"))
    } else if slice.to >= 1.0 && slice.from > 0.0 {
        format!("The slowest {} %", trimmed(part))
    } else {
        format!("The messages at {}..{}", quantile(slice.from), quantile(slice.to))
    }
}

/// A reference slice as what others are compared with: `the median ones` when the median is its middle.
pub fn slice_object(slice: &Slice) -> String {
    if ((slice.from + slice.to) / 2.0 - 0.5).abs() < 1e-9 && slice.to - slice.from <= 0.2 + 1e-9 {
        "the median ones".into()
    } else {
        format!("those at {}..{}", quantile(slice.from), quantile(slice.to))
    }
}

/// At most four decimals and no zeros at the end; 1 - 0.99 is 1, not 1.0000000000000009.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_separated_by_thousands() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_624_400), "1,624,400");
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(2, "event"), "2 events");
    }

    #[test]
    fn a_slice_is_named_as_it_was_asked_for() {
        let subject = |from, messages| slice_subject(&Slice { from, to: 1.0, messages, ..Slice::default() });
        assert_eq!((subject(0.99, 20), subject(0.989, 22)), ("The slowest 1 %".into(), "The slowest 1.1 %".into()));
        assert_eq!(subject(0.9999, 20), "The slowest 0.01 %");
        assert_eq!(subject(13_410.0 / 13_518.0, 108), "The slowest 108 messages", "those beyond a limit");
    }

    #[test]
    fn shares_and_quantiles() {
        assert_eq!(percent(0.931), "93.1 %");
        assert_eq!(percent(-0.021), "-2.1 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.9994), "99.9 %");
        assert_eq!(percent(1.3), "130 %");
        assert_eq!(percent(-0.0001), "0.0 %");
        assert_eq!(percent(f64::NAN), "0.0 %");
        assert_eq!(quantile(0.999), "p99.9");
        assert_eq!(quantile(0.5), "p50");
        assert_eq!(quantile(1.0), "p100");
    }

    #[test]
    fn slices_are_named_as_people_name_them() {
        let slice = |from, to| Slice { from, to, messages: 10, mean_ns: 1 };
        assert_eq!(slice_subject(&slice(0.99, 1.0)), "The slowest 1 %");
        assert_eq!(slice_subject(&slice(0.999, 1.0)), "The slowest 0.1 %");
        assert_eq!(slice_subject(&slice(0.2, 0.3)), "The messages at p20..p30");
        assert_eq!(slice_object(&slice(0.45, 0.55)), "the median ones");
        assert_eq!(slice_object(&slice(0.2, 0.3)), "those at p20..p30");
    }
}
