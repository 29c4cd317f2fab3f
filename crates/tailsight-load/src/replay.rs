//! Timed replay. In: a file with one time a line. Out: offsets from its first time, ns, that only rise.
//!
//! A time is a decimal number of seconds with any number of digits; since an epoch or since a start makes no difference.
//! It is read digit by digit, because a float holds an epoch time only to about 200 ns. Empty lines and lines that
//! begin with `#` are skipped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::LoadError;

/// Reads a replay file whole.
///
/// # Errors
/// [`LoadError::Replay`] with the line that is not a number, or earlier than the one before it.
pub fn read(path: &Path) -> Result<Vec<u64>, LoadError> {
    let mut times = Vec::new();
    let (mut first, mut last) = (None, i128::MIN);
    each(path, |text| {
        let wrong = || format!("`{}` is not a time; expected seconds such as 12.000345, one a line", shown(text));
        let ns = seconds_to_ns(text).ok_or_else(wrong)?;
        if ns < last {
            let back = (last - ns) as f64 / 1e9;
            return Err(format!("{back} s earlier than the time before it; sort the file (sort -n)"));
        }
        last = ns;
        let offset = u64::try_from(ns - *first.get_or_insert(ns)).ok().filter(|ns| *ns < 1 << 62);
        times.push(offset.ok_or("more than a century after the first")?);
        Ok(())
    })?;
    Ok(times)
}

/// Reads a file of durations in any order, ns.
///
/// # Errors
/// [`LoadError::Replay`] with the line that is not a number of seconds, or is below 0.
pub fn read_lengths(path: &Path) -> Result<Vec<u64>, LoadError> {
    let mut lengths = Vec::new();
    each(path, |text| {
        let ns = seconds_to_ns(text).and_then(|ns| u64::try_from(ns).ok()).filter(|ns| *ns < 1 << 50);
        let wrong = || format!("`{}` is not a duration; expected seconds such as 0.000050, one a line", shown(text));
        lengths.push(ns.ok_or_else(wrong)?);
        Ok(())
    })?;
    Ok(lengths)
}

/// Gives `take` every line that is neither empty nor a comment; there must be one. What it returns is what is wrong with the line.
fn each(path: &Path, mut take: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), LoadError> {
    let fail = |line, reason: String, source| LoadError::Replay { path: path.to_owned(), line, reason, source };
    let file = File::open(path).map_err(|e| fail(0, "cannot be opened".into(), Some(e)))?;
    let mut taken = false;
    for (i, line) in BufReader::new(file).split(b'\n').enumerate() {
        let line = line.map_err(|e| fail(i + 1, "cannot be read".into(), Some(e)))?;
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        take(text).map_err(|reason| fail(i + 1, reason, None))?;
        taken = true;
    }
    if taken { Ok(()) } else { Err(fail(0, "holds no times; expected seconds, one a line".into(), None)) }
}

/// The begin of a line, for an error.
fn shown(text: &[u8]) -> String {
    text[..text.len().min(40)].escape_ascii().to_string()
}

/// A decimal number of seconds in nanoseconds, digits below cut.
fn seconds_to_ns(text: &[u8]) -> Option<i128> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let dot = text.iter().position(|b| *b == b'.').unwrap_or(text.len());
    let (whole, fraction) = (&text[..dot], text.get(dot + 1..).unwrap_or_default());
    if whole.len() + fraction.len() == 0 || whole.len() > 18 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let digits = whole.iter().chain(fraction.iter().chain(std::iter::repeat(&b'0')).take(9));
    let ns = digits.fold(0_i128, |ns, digit| ns * 10 + i128::from(digit - b'0'));
    Some(if negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn epoch_times_are_exact_to_the_nanosecond() {
        let file = file("# captured\n1763784000.000000001\n1763784000.000000002\n\n1763784001\n1763784001\n");
        assert_eq!(read(file.path()).unwrap(), [0, 1, 999_999_999, 999_999_999]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, word) in [
            ("1\n2\n1.5\n", 3, "sort"),
            ("1\nabc\n", 2, "not a time"),
            ("1\n1e3\n", 2, "not a time"),
            ("\u{ff}\n", 1, "not a time"),
            ("", 0, "no times"),
        ] {
            let file = file(text);
            let error = read(file.path()).unwrap_err();
            assert!(matches!(error, LoadError::Replay { line: l, .. } if l == line), "{text:?}: {error}");
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(read(Path::new("/nonexistent/file")).unwrap_err().to_string().contains("cannot be opened"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(0u8..=255, 0..60)) {
            let _ = seconds_to_ns(&bytes);
        }
    }
}
