//! Wildcards over short names, byte by byte as the kernel sees them: `*` is any run, `?` any one.

/// Whether the whole text matches the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (p, t) = (pattern.as_bytes(), text.as_bytes());
    let (mut i, mut j) = (0, 0);
    // The last star and where its match would have to be extended.
    let mut retry: Option<(usize, usize)> = None;
    while j < t.len() {
        match p.get(i) {
            Some(b'*') => {
                retry = Some((i, j));
                i += 1;
            }
            Some(&c) if c == b'?' || c == t[j] => {
                i += 1;
                j += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    i = star + 1;
                    j = from + 1;
                }
                None => return false,
            },
        }
    }
    p[i..].iter().all(|&c| c == b'*')
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
