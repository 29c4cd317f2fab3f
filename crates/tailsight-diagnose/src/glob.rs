//! Wildcards over short names: `*` is any run of characters, `?` any one.

use wildmatch::WildMatch;

/// Whether the whole text matches the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    match pattern.contains(['*', '?']) {
        true => WildMatch::new(pattern).matches(text),
        false => pattern == text,
    }
}

/// Whether any of the patterns matches.
pub fn any(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|p| matches(p, text))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn wildcards() {
        for (pattern, text, expected) in [
            ("nginx", "nginx", true),
            ("nginx", "nginx2", false),
            ("ksoftirqd/*", "ksoftirqd/11", true),
            ("ksoftirqd/*", "ksoftirqd", false),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyyb", false),
            ("packet:own:*", "packet:8088", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
