//! Wildcards over short names: `*` is any run of characters, `?` any one.

use wildmatch::WildMatch;

/// Whether the whole text matches the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some(wild) = pattern.find(['*', '?']) else { return pattern == text };
    // Few texts begin like a pattern: only for these it is worth to compile it.
    text.starts_with(&pattern[..wild]) && (&pattern[wild..] == "*" || WildMatch::new(pattern).matches(text))
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
            ("a*", "a", true),
            ("a?*", "a", false),
            ("*a", "ba", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
