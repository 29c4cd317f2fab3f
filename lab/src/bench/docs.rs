//! The page: all tables as Markdown. In: facts and sections. Out: text, `bench.json`, the marked part of the docs page.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::json;

use super::Bench;
use super::machine::Facts;
use super::table::Section;

const BEGIN: &str = "<!-- bench:begin (written by `make bench`; do not edit between the markers) -->";
const END: &str = "<!-- bench:end -->";

/// All tables.
pub fn page(bench: &Bench, facts: &Facts, sections: &[Section]) -> String {
    let command: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.contains('/')).collect();
    let mut text = facts.markdown();
    text += &format!(
        "\nCommand: `lab {}`. Rounds of the round trip: {}, windows of {:.1} s. Values are medians `[smallest..largest]`.{}\n\n",
        command.join(" "),
        bench.rounds,
        bench.window.as_secs_f64(),
        if bench.quick { " **A `--quick` run: it shows that everything works, not how fast.**" } else { "" },
    );
    for section in sections {
        text += &section.markdown();
    }
    text
}

/// Writes `bench.json` and `benchmarks.md` into the output folder.
pub fn save(out: &Path, page: &str, facts: &Facts, sections: &[Section]) -> anyhow::Result<()> {
    let all: Vec<_> = sections.iter().map(Section::json).collect();
    let raw = serde_json::to_string_pretty(&json!({"machine": facts.json(), "sections": all}))? + "\n";
    for (name, text) in [("bench.json", raw.as_str()), ("benchmarks.md", page)] {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Fails before anything is measured when the page could not be written after it.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    replace(&text, "").map(|_| ()).with_context(|| format!("{} cannot be written", path.display()))
}

/// Puts the tables between the markers of a page.
pub fn write(path: &Path, page: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    std::fs::write(path, replace(&text, page)?).with_context(|| format!("cannot write {}", path.display()))
}

/// The text with its marked part replaced.
fn replace(text: &str, page: &str) -> anyhow::Result<String> {
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        bail!("the markers `{BEGIN}` and `{END}` are not both in it");
    };
    let begin = begin + BEGIN.len();
    if end < begin {
        bail!("its end marker stands before its begin marker");
    }
    Ok(format!("{}\n\n{}\n\n{}", &text[..begin], page.trim(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_marked_part_changes_and_can_change_again() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = replace(&text, "new\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(replace(&once, "new").unwrap(), once);
        assert!(replace("nothing", "x").is_err());
        assert!(replace(&format!("{END}{BEGIN}"), "x").is_err());
    }
}
