//! Durations and counts as a person reads them: the one place, so that a table and a sentence say one number in one way.
//!
//! In: integer ns, counts. Out: short text with three significant digits (`17.2 us`, `2.06 ms`), thousands separators
//! (`20,012`).

/// A duration given in ns, with three significant digits: `840 ns`, `17.2 us`, `2.06 ms`, `1.20 s`.
pub fn duration(ns: u64) -> String {
    if ns < 1_000 {
        return format!("{ns} ns");
    }
    for (unit, scale) in [("us", 1e3), ("ms", 1e6), ("s", 1e9)] {
        let value = ns as f64 / scale;
        // 999.5 would print as 1000: the next unit has it as 1.00.
        if value < 999.5 {
            return format!("{} {unit}", three_digits(value));
        }
    }
    format!("{} s", count((ns as f64 / 1e9).round() as u64))
}

/// A signed duration given in ns: like [`duration`], with a minus sign where it is negative.
pub fn signed_duration(ns: i64) -> String {
    let text = duration(ns.unsigned_abs());
    if ns < 0 { format!("-{text}") } else { text }
}

/// A number with thousands separators: `1,624,400`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, ch) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(ch);
    }
    out
}

/// A number that is not negative with three significant digits: `1.39`, `12.3`, `451`.
pub fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Seconds since 1970 as a date (the civil calendar, days counted from the first of March of year 0): `2025-12-31 23:59:59 UTC`.
pub fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month_of_year) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month_of_year <= 2);
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month_of_year:02}-{date:02} {h:02}:{m:02}:{s:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34:56 UTC");
        assert_eq!(utc(1_767_225_599), "2025-12-31 23:59:59 UTC");
    }

    #[test]
    fn durations_have_three_digits_in_the_right_unit() {
        // The page has a formatter of its own, which is held to the same rows (web/test/units.mjs).
        let rows = include_str!("durations.txt").lines().filter(|row| !row.starts_with('#'));
        let rows: Vec<(&str, &str)> = rows.map(|row| row.split_once('\t').expect("two columns")).collect();
        assert!(rows.len() >= 30);
        for (ns, text) in rows {
            assert_eq!(signed_duration(ns.parse().expect("a number")), text, "{ns} ns");
        }
        assert_eq!(duration(u64::MAX), "18,446,744,074 s");
    }

    #[test]
    fn signed_durations_keep_their_sign_at_the_ends() {
        assert_eq!(signed_duration(-1_500), "-1.50 us");
        assert_eq!(signed_duration(0), "0 ns");
        assert_eq!(signed_duration(i64::MIN), "-9,223,372,037 s");
    }
}
