//! What docs/results/case-study.md shows. In: [`Findings`]. Out: Markdown, and the same between the markers of a
//! file. Tasks that are neither the lab's nor memcached nor nginx are `task-1`, `task-2`, … there.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use tailsight_lab::generated::GeneratedSection;

use super::decide::Cause;
use super::figures::{self, NAMES};
use super::{Findings, Round};
use crate::machine::{host, said};

/// The part of docs/results/case-study.md that is written here.
pub const GENERATED: GeneratedSection =
    GeneratedSection { begin: "<!-- case-study:begin -->", end: "<!-- case-study:end -->" };
/// Programs whose names may be published.
const KNOWN: &[&str] = &["lab", "nginx", "memcached", "tailsight"];
/// Causes shown of each round.
const SHOWN: usize = 5;

/// What was measured on: (what, value).
pub fn machine(tailsight: &Path) -> BTreeMap<&'static str, String> {
    let programs = [
        ("tailsight", said(&tailsight.to_string_lossy(), &["--version"])),
        ("memcached", said("memcached", &["--version"])),
        ("nginx", said("/usr/sbin/nginx", &["-v"])),
    ];
    host().into_iter().chain(programs).collect()
}

/// Replaces names that are not to be published, always by the same word.
#[derive(Default)]
pub struct Names {
    published: bool,
    known: BTreeMap<String, usize>,
}

impl Names {
    /// For a file that others read.
    pub fn published() -> Self {
        Self { published: true, ..Self::default() }
    }

    /// A cause, as `category name (role) share`.
    fn cause(&mut self, cause: &Cause) -> String {
        let name = self.name(&cause.category, &cause.name);
        format!("{} {name} ({}) {:.0} %", cause.category, cause.role, cause.share * 100.0)
    }

    /// The name of a cause. Kernel threads, system calls, interrupts and functions are not private; tasks are.
    fn name(&mut self, category: &str, name: &str) -> String {
        let task = name.strip_prefix("packet:").or_else(|| name.strip_prefix("waits for "));
        let task = task.or_else(|| name.strip_suffix(" holds it")).unwrap_or(name);
        let is_task = task.len() < name.len() || matches!(category, "interference" | "profiler");
        if !self.published || !is_task || task.is_empty() || KNOWN.iter().any(|known| task.starts_with(known)) {
            return name.to_owned();
        }
        let next = self.known.len() + 1;
        let n = *self.known.entry(task.to_owned()).or_insert(next);
        name.replace(task, &format!("task-{n}"))
    }
}

/// What a round found and changed, for the terminal.
pub fn round(number: usize, round: &Round, names: &mut Names) -> String {
    let mut text = format!("round {number}: {} messages, {}\n", round.messages, latency(round));
    for cause in round.causes.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}", names.cause(cause));
    }
    for passed in &round.passed_over {
        let _ = writeln!(text, "  not changed for {}: {}", names.cause(&passed.cause), passed.reason);
    }
    match &round.step {
        Some(step) => {
            for made in &step.changes {
                let why: Vec<String> = made.why.iter().map(|cause| names.cause(cause)).collect();
                let _ = writeln!(text, "  → {}, because of {}", made.words, why.join(", "));
            }
        }
        None if round.looked => text.push_str("  → nothing that can be changed here\n"),
        None => text.push_str("  this is what is left\n"),
    }
    text
}

/// The receive latency of a recording.
fn latency(round: &Round) -> String {
    let us = |key: &str| us(round.latency_ns.get(key).copied());
    format!("receive latency p50 {} us, p99 {} us, max {} us while recorded", us("p50"), us("p99"), us("max"))
}

/// The lines of a cell.
fn join(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("<br>")
}

/// us with one decimal, or `N/A`.
fn us(ns: Option<u64>) -> String {
    ns.map_or_else(|| "N/A".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3))
}

/// The whole page.
pub fn page(findings: &Findings, names: &mut Names) -> String {
    let mut page = format!("Command: `{}`\n\n| machine | |\n|---|---|\n", findings.command);
    for (what, value) in &findings.machine {
        let _ = writeln!(page, "| {what} | {value} |");
    }
    page.push_str("\n### What was found and changed\n\n| round | causes, largest first | coverage | changed | because of |\n|---|---|---|---|---|\n");
    for (i, round) in findings.rounds.iter().enumerate() {
        let causes: Vec<String> = round.causes.iter().take(SHOWN).map(|cause| names.cause(cause)).collect();
        let causes = if causes.is_empty() { round.said.clone() } else { causes.join("<br>") };
        let coverage = round.coverage.map_or_else(|| "N/A".to_owned(), |part| format!("{:.1} %", part * 100.0));
        let (changed, why) = match &round.step {
            Some(step) => {
                let whys = step
                    .changes
                    .iter()
                    .map(|made| made.why.iter().map(|cause| names.cause(cause)).collect::<Vec<_>>().join(", "));
                (join(step.changes.iter().map(|made| made.words.to_owned())), join(whys))
            }
            None if !round.looked => ("— (what is left)".to_owned(), "—".to_owned()),
            None => ("nothing that can be changed here".to_owned(), "—".to_owned()),
        };
        let _ = writeln!(page, "| {} | {causes} | {coverage} | {changed} | {why} |", i + 1);
    }
    if findings.rounds.iter().any(|round| !round.passed_over.is_empty()) {
        page.push_str("\nNothing was changed for:\n\n");
    }
    for (i, round) in findings.rounds.iter().enumerate() {
        for passed in &round.passed_over {
            let _ = writeln!(page, "- round {}, {}: {}", i + 1, names.cause(&passed.cause), passed.reason);
        }
    }
    page.push_str(&table(findings));
    page
}

/// The latency of each configuration.
fn table(findings: &Findings) -> String {
    let repeats = findings.configurations.first().map_or(0, |c| c.repeats.len());
    let mut text = format!(
        "\n### Latency without a recorder\n\nmemcached from the time a request was due, us: medians of {repeats} interleaved \
         repeats, [smallest..largest].\n\n| configuration | {} | nginx p50 | nginx p99 |\n|---|{}\n",
        NAMES.join(" | "),
        "---:|".repeat(NAMES.len() + 2),
    );
    for configuration in &findings.configurations {
        let _ = write!(text, "| {} |", configuration.name);
        for (i, median) in configuration.median_ns.iter().enumerate() {
            let repeats_ns = || configuration.repeats.iter().filter_map(|repeat| repeat.memcached_ns[i]);
            let _ = match (median, repeats_ns().min(), repeats_ns().max()) {
                (Some(_), Some(min), Some(max)) if repeats > 1 => {
                    write!(text, " {} [{}..{}] |", us(*median), us(Some(min)), us(Some(max)))
                }
                _ => write!(text, " {} |", us(*median)),
            };
        }
        for i in 0..2 {
            let _ = write!(text, " {} |", us(figures::median(configuration.repeats.iter().map(|r| r.nginx_ns[i]))));
        }
        text.push('\n');
    }
    text.push_str("| **first / last** |");
    for ratio in &findings.ratios {
        let _ = write!(text, " {} |", ratio.map_or_else(|| "N/A".to_owned(), |ratio| format!("**{ratio:.1} ×**")));
    }
    text.push_str(" | |\n\n");
    for configuration in &findings.configurations {
        let missing: u64 = configuration.repeats.iter().map(|repeat| repeat.missing).sum();
        let requests: u64 = configuration.repeats.iter().map(|repeat| repeat.requests).sum();
        let late = figures::median(configuration.repeats.iter().map(|repeat| repeat.late_p99_ns));
        let _ = writeln!(
            text,
            "- {}: {requests} requests, {missing} without a reply; the client sent within {} us of the due time (p99). \
             Made by: {}",
            configuration.name,
            us(late),
            configuration.commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", "),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;
    use super::super::decide::{self, Config};
    use super::super::figures::Repeat;
    use super::*;

    #[test]
    fn tasks_that_are_not_ours_get_a_number_in_a_published_page() {
        let mut names = Names::published();
        assert_eq!(names.name("interference", "nginx/user"), "nginx/user");
        assert_eq!(names.name("interference", "somebody"), "task-1");
        assert_eq!(names.name("receive-processing", "packet:other"), "packet:task-2");
        assert_eq!(names.name("lock-wait", "somebody holds it"), "task-1 holds it");
        assert_eq!(names.name("os-threads", "ksoftirqd"), "ksoftirqd");
        assert_eq!(Names::default().name("interference", "somebody"), "somebody");
    }

    /// Two configurations, one round with a change and one without.
    fn findings() -> Findings {
        let cause = |name: &str, share| Cause {
            category: "interference".into(),
            name: name.into(),
            role: "A".into(),
            share,
            deviation_ns: 1,
            messages: 1,
            fix: vec![],
        };
        let round = |looked, causes: Vec<Cause>| {
            let (step, passed_over) = match looked {
                true => decide::decide(&Config::default(), &causes, 2),
                false => (None, Vec::new()),
            };
            Round {
                config: Config::default(),
                messages: 100,
                lost_events: 0,
                latency_ns: [("p50".to_owned(), 1500)].into(),
                causes,
                coverage: Some(0.995),
                looked,
                step,
                passed_over,
                said: String::new(),
            }
        };
        let configuration = |name: &str, ns: [Option<u64>; 5]| Configuration {
            name: name.into(),
            config: Config::default(),
            commands: vec!["chrt MEMCACHED".into()],
            repeats: vec![Repeat { requests: 9, missing: 1, memcached_ns: ns, late_p99_ns: None, nginx_ns: [None; 2] }],
            median_ns: ns,
        };
        let (first, last) = ([Some(4000), Some(9000), None, None, None], [Some(1000), Some(9000), None, None, None]);
        Findings {
            schema: 1,
            command: "bench case-study".into(),
            machine: [("kernel", "6".to_owned())].into(),
            rounds: vec![round(true, vec![cause("nginx", 0.4), cause("somebody", 0.3)]), round(false, vec![])],
            configurations: vec![configuration("default", first), configuration("+ step 1", last)],
            ratios: figures::ratios(&first, &last),
        }
    }

    #[test]
    fn the_page_says_what_was_changed_why_and_what_it_gave() {
        let page = page(&findings(), &mut Names::published());
        assert!(page.contains("| interference nginx (A) 40 %<br>interference task-1 (A) 30 % |"), "{page}");
        assert!(page.contains("99.5 %") && !page.contains("somebody"), "{page}");
        assert!(page.contains("(taskset)<br>memcached in real time"), "{page}");
        assert!(page.contains("| — (what is left) |"), "{page}");
        assert!(page.contains("| default | 4.0 | 9.0 | N/A | N/A | N/A | N/A | N/A |"), "{page}");
        assert!(page.contains("| **first / last** | **4.0 ×** | **1.0 ×** | N/A | N/A | N/A |"), "{page}");
        // Every table has as many cells in each of its lines.
        for rows in page.split("\n\n").filter(|part| part.starts_with('|')) {
            let cells: Vec<usize> = rows.trim().lines().map(|row| row.matches('|').count()).collect();
            assert!(cells.iter().all(|n| *n == cells[0]), "{cells:?} in {rows}");
        }
    }
}
