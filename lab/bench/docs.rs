//! The page: all tables as Markdown. In: facts and sections. Out: text, `bench.json`, the marked part of the docs page.

use std::path::Path;

use anyhow::Context;
use serde_json::json;

use crate::Bench;
use crate::machine::MachineFacts;
use crate::table::Section;
use tailsight_lab::generated::GeneratedSection;

/// The part of docs/results/benchmarks.md that is written here.
pub const GENERATED: GeneratedSection = GeneratedSection {
    begin: "<!-- bench:begin (written by `make bench`; do not edit between the markers) -->",
    end: "<!-- bench:end -->",
};

/// All tables.
pub fn page(bench: &Bench, facts: &MachineFacts, sections: &[Section]) -> String {
    let command: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.contains('/')).collect();
    let mut text = facts.markdown();
    text += &format!(
        "\nCommand: `bench {}`. Rounds of the round trip: {}, windows of {:.1} s. Values are medians `[smallest..largest]`.{}\n\n",
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
pub fn save(out: &Path, page: &str, facts: &MachineFacts, sections: &[Section]) -> anyhow::Result<()> {
    let section_values: Vec<_> = sections.iter().map(Section::json).collect();
    let raw = serde_json::to_string_pretty(&json!({"machine": facts.json(), "sections": section_values}))? + "\n";
    for (name, text) in [("bench.json", raw.as_str()), ("benchmarks.md", page)] {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
