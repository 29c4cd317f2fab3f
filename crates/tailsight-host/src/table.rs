//! The report as text for a person: a line for what is good, and reason and commands for what hurts.
//!
//! In: a [`HostReport`], whether to colour, the width in columns. Out: lines of at most that width, commands excepted:
//! they are never broken, so that they can be copied.

use crate::{Fact, HostReport, Setting};
use std::fmt::Write as _;
use tailsight_units::Untrusted;

mod sections;

/// Width of the label column.
const LABEL: usize = 18;
/// Narrower than this the text cannot be wrapped sensibly.
const NARROWEST: usize = 60;

/// Yes, no, absent but not needed, unknown, or just a fact.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    Yes,
    No,
    Absent,
    Unknown,
    Fact,
}

struct Table {
    out: String,
    color: bool,
    width: usize,
}

pub(crate) fn render(report: &HostReport, color: bool, width: usize) -> String {
    let mut t = Table { out: String::new(), color, width: width.max(NARROWEST) };
    t.headline(report);
    t.kernel(report);
    t.rights(report);
    t.clocks(report);
    t.pmus(report);
    t.nics(report);
    t.settings(report);
    t.out
}

impl Table {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn mark(&self, mark: Mark) -> String {
        match mark {
            Mark::Yes => self.paint("32", "✔"),
            Mark::No => self.paint("31", "✘"),
            Mark::Absent => self.paint("2", "–"),
            Mark::Unknown => self.paint("33", "?"),
            Mark::Fact => " ".into(),
        }
    }

    fn section(&mut self, title: &str) {
        let title = self.paint("1", title);
        let _ = writeln!(self.out, "\n{title}");
    }

    /// `  ✔ label   text`, the text wrapped under itself.
    fn row(&mut self, mark: Mark, label: &str, text: &str) {
        let indent = 4 + LABEL.max(label.chars().count() + 2);
        let lines = wrap(text, self.width - indent);
        let (mark, label) = (self.mark(mark), Untrusted(label));
        for (i, line) in lines.iter().enumerate() {
            let _ = match i {
                0 => writeln!(self.out, "  {mark} {label:<w$}{line}", w = indent - 4),
                _ => writeln!(self.out, "{:indent$}{line}", ""),
            };
        }
    }

    /// A row for a fact that is good, bad or unknown.
    fn fact<T>(&mut self, label: &str, fact: &Fact<T>, say: impl FnOnce(&T) -> (Mark, String)) {
        match fact {
            Fact::Known(v) => {
                let (mark, text) = say(v);
                self.row(mark, label, &text);
            }
            Fact::Unknown { unknown } => self.row(Mark::Unknown, label, unknown),
        }
    }

    /// A setting in full: value, why, and the commands.
    fn advice(&mut self, mark: Mark, s: &Setting) {
        let mark = self.mark(mark);
        let title = self.paint("1", &Untrusted(&s.title).to_string());
        let value = wrap(&s.value, self.width.saturating_sub(6 + s.title.chars().count()).max(20));
        let _ = writeln!(self.out, "  {mark} {title}  {}", value.join(&format!("\n{:8}", "")));
        for line in wrap(&s.why, self.width - 6) {
            let _ = writeln!(self.out, "      {line}");
        }
        for (label, code, commands) in [("change", "36", &s.change), ("undo", "2", &s.undo)] {
            for (i, command) in commands.iter().enumerate() {
                let label = if i == 0 { label } else { "" };
                let command = self.paint(code, &Untrusted(command).to_string());
                let _ = writeln!(self.out, "      {label:<8}{command}");
            }
        }
    }

    /// Short items after each other, broken only between items.
    fn list(&mut self, mark: Mark, label: &str, items: &[String]) {
        const GLUE: char = '\u{a0}';
        let text: Vec<String> = items.iter().map(|i| i.replace(' ', &GLUE.to_string())).collect();
        let start = self.out.len();
        self.row(mark, label, &text.join(" · ").replace(" · ", &format!("{GLUE}· ")));
        let tail = self.out.split_off(start).replace(GLUE, " ");
        self.out.push_str(&tail);
    }
}

/// Breaks text at spaces into lines of at most `width` characters; a word longer than that is cut.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    // Not split_whitespace: a no-break space keeps an item together.
    for word in text.split([' ', '\n', '\t']).filter(|w| !w.is_empty()).flat_map(|w| cut(w, width)) {
        // Names of devices and processes are untrusted.
        let word = Untrusted(word).to_string();
        let word = word.as_str();
        let last = lines.last_mut().expect("there is always a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn cut(word: &str, width: usize) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    chars.chunks(width.max(1)).map(|c| c.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn wrapping_keeps_every_word_and_the_width(words in proptest::collection::vec("[a-zµ]{1,12}", 0..30), width in 12usize..60) {
            let lines = wrap(&words.join(" "), width);
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width));
            prop_assert_eq!(lines.join(" "), words.join(" "));
        }
    }
}
