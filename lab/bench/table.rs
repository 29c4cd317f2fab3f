//! Numbers of several rounds, and the rows and tables made of them. In: measurements. Out: Markdown and JSON.

use serde_json::{Value, json};

/// The median of several rounds, with the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median (the mean of the middle two when the number is even).
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
        Some(Self { median, min, max })
    }

    /// `1.02 [1.00..1.05]`, or only the value when there is one.
    pub fn text(&self, decimals: usize) -> String {
        if self.min == self.max {
            return format!("{:.decimals$}", self.median);
        }
        format!("{:.decimals$} [{:.decimals$}..{:.decimals$}]", self.median, self.min, self.max)
    }
}

/// Whether a goal is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoalResult {
    /// Met.
    Ok,
    /// Not met.
    Miss,
    /// Measured, but other programs used the machine: no verdict.
    NotQuiet,
    /// There is no goal.
    None,
}

impl GoalResult {
    /// From a comparison.
    pub fn when(met: bool) -> Self {
        if met { Self::Ok } else { Self::Miss }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Miss => "**miss**",
            Self::NotQuiet => "N/A: not quiet",
            Self::None => "",
        }
    }
}

/// One figure.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// The goal, or empty.
    pub goal: String,
    /// What was measured.
    pub measured: String,
    /// The same of the peers.
    pub peers: String,
    /// Whether the goal is met.
    pub verdict: GoalResult,
}

impl Row {
    /// A row without a goal.
    pub fn fact(name: impl Into<String>, measured: impl Into<String>, peers: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            goal: String::new(),
            measured: measured.into(),
            peers: peers.into(),
            verdict: GoalResult::None,
        }
    }

    /// A row with a goal.
    pub fn goal(
        name: impl Into<String>,
        goal: impl Into<String>,
        measured: impl Into<String>,
        peers: impl Into<String>,
        met: bool,
    ) -> Self {
        Self { goal: goal.into(), verdict: GoalResult::when(met), ..Self::fact(name, measured, peers) }
    }
}

/// Figures that belong together.
#[derive(Debug, Default)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// Markdown behind the table: how it was measured, further tables.
    pub notes: String,
    /// Every number behind the rows.
    pub raw: Value,
}

impl Section {
    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title);
        if !self.rows.is_empty() {
            let rows = self.rows.iter().map(|row| {
                vec![
                    row.name.clone(),
                    row.goal.clone(),
                    row.measured.clone(),
                    row.peers.clone(),
                    row.verdict.text().to_owned(),
                ]
            });
            text += &table(&["figure", "goal", "measured", "peers", "verdict"], rows);
            text.push('\n');
        }
        text += self.notes.trim_end();
        text.truncate(text.trim_end().len());
        text + "\n\n"
    }

    /// As JSON, with the raw numbers.
    pub fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({"name": row.name, "goal": row.goal, "measured": row.measured, "peers": row.peers,
                       "verdict": match row.verdict { GoalResult::Ok => "ok", GoalResult::Miss => "miss", GoalResult::NotQuiet => "not quiet", GoalResult::None => "none" }})
            })
            .collect();
        json!({"title": self.title, "rows": rows, "raw": self.raw})
    }
}

/// A Markdown table.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(head.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}

/// `1234567` as `1,234,567`.
pub use tailsight_units::format::count as thousands;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        let even = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((even.median, even.min, even.max), (2.5, 1.0, 4.0));
        assert_eq!(even.text(1), "2.5 [1.0..4.0]");
        assert_eq!(Spread::of(&[1.0]).unwrap().text(2), "1.00");
    }

    #[test]
    fn markdown_keeps_its_columns() {
        let text = table(&["a", "b"], [vec!["x|y".to_owned(), String::new()]]);
        assert_eq!(text, "| a | b |\n| --- | --- |\n| x\\|y |  |\n");
    }

    #[test]
    fn thousands_are_grouped() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(n), text);
        }
    }
}
