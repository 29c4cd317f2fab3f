//! Sets of cores as the kernel writes them: lists (`0,2-3`) and hexadecimal masks (`1,0000000f`).
//!
//! In: text. Out: core numbers, and back. Malformed text is `None`: these are values to be set.

use std::collections::BTreeSet;

/// Cores beyond this are no cores of any machine.
const MOST_CORES: u32 = 1 << 16;

/// `0,2-3`; the empty text is the empty set.
pub fn list(text: &str) -> Option<BTreeSet<u32>> {
    let mut out = BTreeSet::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to || to >= MOST_CORES {
            return None;
        }
        out.extend(from..=to);
    }
    Some(out)
}

/// As a list.
pub fn ranges(cpus: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = vec![];
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let range = |&(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(range).collect::<Vec<_>>().join(",")
}

/// A hexadecimal mask without its commas and leading zeros: equal masks are equal texts.
pub fn mask(text: &str) -> Option<String> {
    let digits: String = text.trim().chars().filter(|c| *c != ',').collect();
    let hex = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    hex.then(|| digits.trim_start_matches('0').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks() {
        assert_eq!(list("0,2-4\n"), Some(BTreeSet::from([0, 2, 3, 4])));
        assert_eq!(ranges(&BTreeSet::from([0, 2, 3, 4, 9])), "0,2-4,9");
        assert_eq!((list(""), ranges(&BTreeSet::new())), (Some(BTreeSet::new()), String::new()));
        assert_eq!((list("3-1"), list("x"), list("0-4294967295")), (None, None, None));
        assert_eq!(mask("00000000,00000002"), mask("2"));
        assert_eq!((mask("0"), mask("g"), mask("")), (Some(String::new()), None, None));
    }
}
