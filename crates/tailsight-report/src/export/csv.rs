//! The causes as CSV (RFC 4180): a row a cause, in the order of the diagnosis. Times are ns.
//!
//! Spreadsheets take a text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return for a formula, and names of
//! tasks are untrusted: such a text gets a `'` before it.

use tailsight_diagnose::{Diagnosis, Titled};
use tailsight_lifetime::Role;

/// The names of the columns.
const COLUMNS: [&str; 18] = [
    "rank",
    "category",
    "name",
    "title",
    "core",
    "leg",
    "share",
    "deviation_ns",
    "ci95_low_ns",
    "ci95_high_ns",
    "focus_mean_ns",
    "reference_mean_ns",
    "messages",
    "focus_messages",
    "example",
    "fix",
    "explanation",
    "run",
];

/// The causes of a diagnosis.
#[must_use]
pub fn causes(d: &Diagnosis) -> String {
    let mut out = COLUMNS.join(",") + "\r\n";
    for c in &d.causes {
        let core = if c.role == Role::A { "application" } else { "receive" };
        let numbers = [c.ci95_ns[0], c.ci95_ns[1], c.mean_ns[0], c.mean_ns[1]].map(|ns| ns.to_string());
        let cells = [
            c.rank.to_string(),
            text(c.category.as_str()),
            text(&c.name),
            text(&c.title()),
            core.to_owned(),
            d.leg.name().to_owned(),
            format!("{:.6}", c.share),
            c.deviation_ns.to_string(),
            numbers.join(","),
            c.messages.to_string(),
            d.focus.messages.to_string(),
            c.evidence.first().map_or_else(String::new, u32::to_string),
            text(c.fix.first().map_or("", String::as_str)),
            text(&c.explanation),
            text(&d.run),
        ];
        out += &cells.join(",");
        out += "\r\n";
    }
    out
}

/// A text as a cell.
fn text(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = if formula { format!("'{field}") } else { field.to_owned() };
    match field.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_one_cell_and_no_formula() {
        assert_eq!(text("nginx"), "nginx");
        assert_eq!(text("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(text("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(text("-1,2"), "\"'-1,2\"");
    }
}
