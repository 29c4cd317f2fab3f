//! The part of a page of the docs that the lab writes: what stands between two lines that mark it. In: a file, a text.
//! Out: the file with that part replaced and nothing else.

use std::path::Path;

use anyhow::{Context, bail};

/// The lines around the part.
#[derive(Debug, Clone, Copy)]
pub struct Marked {
    /// Before it.
    pub begin: &'static str,
    /// Behind it.
    pub end: &'static str,
}

impl Marked {
    /// Fails when the file could not be written, which is better known before hours of measuring than after.
    pub fn check(self, file: &Path) -> anyhow::Result<()> {
        self.replaced(file, "").map(|_| ())
    }

    /// Puts a page between the marks.
    pub fn write(self, file: &Path, page: &str) -> anyhow::Result<()> {
        let text = self.replaced(file, page)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn replaced(self, file: &Path, page: &str) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(file).with_context(|| {
            format!("cannot read {}; run this from the top of the repository, or name the file", file.display())
        })?;
        self.replace(&text, page).with_context(|| format!("{} cannot be written", file.display()))
    }

    /// The text with its marked part replaced.
    fn replace(self, text: &str, page: &str) -> anyhow::Result<String> {
        let Self { begin, end } = self;
        let parts = text.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
        let Some((before, after)) = parts else {
            bail!("it needs a line `{begin}` and below it a line `{end}`");
        };
        Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", page.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_part_changes_and_can_change_again() {
        let marked = Marked { begin: "<!-- x:begin -->", end: "<!-- x:end -->" };
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

    #[test]
    fn every_page_has_its_marks() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for (marked, page) in [
            (crate::bench::docs::MARKED, "benchmarks.md"),
            (crate::bench::client::MARKED, "measurement.md"),
            (crate::run::table::MARKED, "accuracy.md"),
            (crate::case_study::page::MARKED, "case-study.md"),
        ] {
            marked.check(&docs.join(page)).unwrap();
        }
    }
}
