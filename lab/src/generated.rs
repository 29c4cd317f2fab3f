//! The section of a docs page that a program writes (the lab's tables, the benchmarks'): the text between two marker lines.
//! In: a file, a text. Out: the file with that section replaced and nothing else.

use std::path::Path;

use crate::{Error, Result};

/// The lines around the part.
#[derive(Debug, Clone, Copy)]
pub struct GeneratedSection {
    /// Before it.
    pub begin: &'static str,
    /// Behind it.
    pub end: &'static str,
}

impl GeneratedSection {
    /// Fails if the file cannot be written, so that this is known before hours of measuring.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read, [`Error::NoMarks`].
    pub fn check(self, file: &Path) -> Result<()> {
        self.replaced(file, "").map(|_| ())
    }

    /// Puts a page between the marks.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NoMarks`]; the file is as before then.
    pub fn write(self, file: &Path, page: &str) -> Result<()> {
        let text = self.replaced(file, page)?;
        std::fs::write(file, text).map_err(|e| Error::io(format!("write {}", file.display()), e))
    }

    fn replaced(self, file: &Path, page: &str) -> Result<String> {
        let text = std::fs::read_to_string(file).map_err(|e| {
            let what = format!("read {} (run this from the top of the repository, or name the file)", file.display());
            Error::io(what, e)
        })?;
        let Self { begin, end } = self;
        self.replace(&text, page).ok_or_else(|| Error::NoMarks { file: file.to_owned(), begin, end })
    }

    /// The text with its marked part replaced; `None`: it has none.
    fn replace(self, text: &str, page: &str) -> Option<String> {
        let Self { begin, end } = self;
        let (before, rest) = text.split_once(begin)?;
        let (_, after) = rest.split_once(end)?;
        Some(format!("{before}{begin}\n\n{}\n\n{end}{after}", page.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_part_changes_and_can_change_again() {
        let marked = GeneratedSection { begin: "<!-- x:begin -->", end: "<!-- x:end -->" };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.md");
        std::fs::write(&file, "before\n<!-- x:begin -->\nold\n<!-- x:end -->\nafter\n").unwrap();
        marked.check(&file).unwrap();
        for page in ["new\n", "newer"] {
            marked.write(&file, page).unwrap();
            let expected = format!("before\n<!-- x:begin -->\n\n{}\n\n<!-- x:end -->\nafter\n", page.trim());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
        }
        for bad in ["nothing", "<!-- x:end --><!-- x:begin -->"] {
            std::fs::write(&file, bad).unwrap();
            assert!(marked.check(&file).is_err() && marked.write(&file, "x").is_err());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), bad);
        }
        assert!(marked.check(&folder.path().join("absent")).is_err());
    }
}
