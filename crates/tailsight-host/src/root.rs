//! Where facts are read from: a path prefix (`/` for the live host, a folder for a fixture or a copied tree).
//!
//! In: absolute paths of the kernel's file systems. Out: trimmed text, bytes, names, or a [`HostError`]; and
//! [`Fact`], a value or the reason why it is unknown.

use crate::HostError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest text file of `/proc` or `/sys` that this crate reads; a larger one is cut there.
const TEXT_LIMIT: u64 = 4 << 20;

/// A value, or why it is not known. In JSON: the value itself, or `{"unknown": "reason"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Fact<T> {
    /// Not known, with the reason.
    Unknown {
        /// Why, in one sentence.
        unknown: String,
    },
    /// Known.
    Known(T),
}

impl<T> Fact<T> {
    /// The value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(v) => Some(v),
            Fact::Unknown { .. } => None,
        }
    }

    /// The reason, if the value is not known.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Fact::Known(_) => None,
            Fact::Unknown { unknown } => Some(unknown),
        }
    }

    /// An unknown fact with this reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Fact::Unknown { unknown: reason.into() }
    }
}

impl<T> From<Result<T, HostError>> for Fact<T> {
    fn from(r: Result<T, HostError>) -> Self {
        match r {
            Ok(v) => Fact::Known(v),
            Err(e) => Fact::unknown(tailsight_units::chain(&e)),
        }
    }
}

/// The tree that facts are read from.
#[derive(Debug, Clone)]
pub struct Root {
    prefix: PathBuf,
}

impl Default for Root {
    fn default() -> Self {
        Root::host()
    }
}

impl Root {
    /// The live host: `/`, and system calls are allowed.
    pub fn host() -> Self {
        Root { prefix: PathBuf::from("/") }
    }

    /// A copied or made tree under `prefix`. No system call is made for it.
    pub fn at(prefix: impl Into<PathBuf>) -> Self {
        Root { prefix: prefix.into() }
    }

    /// True for the running host, where asking by system call makes sense.
    pub fn is_live(&self) -> bool {
        self.prefix == Path::new("/")
    }

    /// The real path of an absolute `path` of the described host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.prefix.join(path.trim_start_matches('/'))
    }

    /// True if `path` is there (its content may still be unreadable).
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The content of a text file without surrounding white space. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// [`HostError::Missing`] or [`HostError::Read`].
    pub fn text(&self, path: &str) -> Result<String, HostError> {
        let mut bytes = Vec::new();
        fs::File::open(self.path(path))
            .and_then(|f| f.take(TEXT_LIMIT).read_to_end(&mut bytes))
            .map_err(|e| Self::failed(path, e))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The content of a file as bytes.
    ///
    /// # Errors
    /// [`HostError::Missing`] or [`HostError::Read`].
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, HostError> {
        fs::read(self.path(path)).map_err(|e| Self::failed(path, e))
    }

    /// A file that holds one number.
    ///
    /// # Errors
    /// [`HostError::Missing`], [`HostError::Read`], or [`HostError::Parse`].
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Result<T, HostError> {
        let text = self.text(path)?;
        text.parse().map_err(|_| Self::unparsed(path, "a number", &text))
    }

    /// The sorted names in a folder (in natural order: `cpu2` before `cpu10`); empty if it cannot be listed.
    pub fn names(&self, dir: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(dir)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort_by_cached_key(|n| {
            let digits = n.len() - n.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            let (head, tail) = n.split_at(n.len() - digits);
            (head.to_owned(), tail.parse::<u64>().unwrap_or(0), n.clone())
        });
        names
    }

    /// The last component of the target of a symbolic link, such as a driver's name.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// An error for a file whose content is not what the kernel documents.
    pub(crate) fn unparsed(path: &str, expected: &'static str, found: &str) -> HostError {
        HostError::Parse { path: path.into(), expected, found: found.chars().take(60).collect() }
    }

    fn failed(path: &str, source: io::Error) -> HostError {
        match source.kind() {
            io::ErrorKind::NotFound => HostError::Missing { path: path.into() },
            _ => HostError::Read { path: path.into(), source },
        }
    }
}

/// A kernel CPU list such as `0-3,8` as numbers. Malformed parts are ignored: such a list is only shown, never set.
pub fn cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>())
            && to.checked_sub(from).is_some_and(|n| n < 65_536)
        {
            cpus.extend(from..=to);
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// CPU numbers as the kernel writes them: `0-3,8`.
pub(crate) fn cpu_ranges(cpus: &[u32]) -> String {
    let mut out = Vec::new();
    let mut rest = cpus;
    while let Some((&first, _)) = rest.split_first() {
        let n = rest.iter().zip(first..).take_while(|(a, b)| **a == *b).count();
        let last = rest[n - 1];
        out.push(if n == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[n..];
    }
    out.join(",")
}

/// A kernel CPU mask such as `00000000,0000000f` as numbers.
pub(crate) fn cpu_mask(text: &str) -> Vec<u32> {
    let digits: Vec<u32> = text.chars().rev().filter_map(|c| c.to_digit(16)).collect();
    let mut cpus = Vec::new();
    for (i, d) in (0u32..).zip(digits) {
        cpus.extend((0..4).filter(|b| d >> b & 1 == 1).map(|b| i * 4 + b));
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cpu_lists_and_masks() {
        assert_eq!(cpu_list("0-2,8,10-10"), [0, 1, 2, 8, 10]);
        assert_eq!(cpu_list(""), Vec::<u32>::new());
        assert_eq!(cpu_list("7-3,x,0-4294967295"), Vec::<u32>::new());
        assert_eq!(cpu_ranges(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
        assert_eq!(cpu_mask("00000001,0000000f"), [0, 1, 2, 3, 32]);
    }

    proptest! {
        #[test]
        fn ranges_are_the_inverse_of_lists(cpus in proptest::collection::btree_set(0u32..500, 0..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(cpu_list(&cpu_ranges(&cpus)), cpus);
        }

        #[test]
        fn any_text_is_survived(text in ".{0,40}") {
            cpu_list(&text);
            cpu_mask(&text);
        }
    }

    #[test]
    fn facts_serialise_as_the_value_or_the_reason() {
        let number: Fact<u32> = Fact::Known(3);
        assert_eq!(serde_json::to_string(&number).unwrap(), "3");
        let missing: Fact<u32> = Root::at("/nonexistent").number("/proc/x").into();
        let json = serde_json::to_string(&missing).unwrap();
        assert!(json.starts_with(r#"{"unknown":"/proc/x does not exist"#), "{json}");
        assert_eq!(serde_json::from_str::<Fact<u32>>(&json).unwrap(), missing);
    }
}
