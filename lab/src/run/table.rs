//! The confusion table. In: outcomes. Out: Markdown with counts, and the same between the markers of a file.
//!
//! What a shared machine ran is not published: in the table, tasks that are neither the lab's nor the kernel's nor of the
//! servers under test are `task-1`, `task-2`, …

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::marked::Marked;

use super::Outcome;
use super::judge::{Named, Verdict};
use super::scenario::Scenario;

/// The part of docs/accuracy.md that is written here.
pub const MARKED: Marked = Marked { begin: "<!-- accuracy:begin -->", end: "<!-- accuracy:end -->" };
/// Names of programs that may be published: ours, and the servers of the scenarios.
const KNOWN: &[&str] = &["lab", "nginx", "memcached", "redis-server", "tailsight"];

/// The line of a run for the terminal.
pub fn line(outcome: &Outcome) -> String {
    let mut line = format!("{:<18} {:>2} {:<12}", outcome.scenario, outcome.repeat, word(outcome.verdict));
    for cause in outcome.causes.iter().take(2) {
        let _ = write!(line, " {} {} ({}) {:.0} %;", cause.category, cause.name, cause.role, cause.share * 100.0);
    }
    for share in &outcome.shares {
        let _ = write!(line, " true {:.0} % named {:.0} %;", share.truth * 100.0, share.named * 100.0);
    }
    if let Some(coverage) = outcome.coverage {
        let _ = write!(line, " coverage {:.3} min {:.3}", coverage.p50, coverage.min);
    }
    for cause in &outcome.false_causes {
        let _ = write!(line, "; not found: {cause}");
    }
    if let Some(reason) = &outcome.reason {
        let _ = write!(line, " {reason}");
    }
    line
}

/// A verdict in words.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Right => "right",
        Verdict::Wrong => "WRONG",
        Verdict::NoDiagnosis => "no diagnosis",
        Verdict::Disturbed => "disturbed",
        Verdict::NotRun => "not run",
        Verdict::Failed => "FAILED",
    }
}

/// Replaces names that are not to be published, always by the same word.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn publish(&mut self, cause: &Named) -> String {
        let (category, name) = (&cause.category, &cause.name);
        let task = name.strip_prefix("packet:").unwrap_or(name);
        let known = KNOWN.iter().any(|known| task.starts_with(known));
        if name.is_empty() || known || !matches!(category.as_str(), "interference" | "profiler" | "receive-processing")
        {
            return format!("{category} {name}").trim().to_owned();
        }
        if category == "receive-processing" && !name.starts_with("packet:") {
            return format!("{category} {name}");
        }
        let next = self.0.len() + 1;
        let n = *self.0.entry(name.clone()).or_insert(next);
        format!("{category} task-{n}")
    }
}

/// The tables and the sums.
pub fn page(outcomes: &[Outcome], scenarios: &[Scenario], repeat: u32) -> String {
    let mut names = Names::default();
    let mut page = String::from(
        "| scenario | expected | right | named first (runs) | share named/true, % | worst share error | coverage p50 (min) | not in the raw events |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for scenario in scenarios {
        let runs: Vec<&Outcome> = outcomes.iter().filter(|o| o.scenario == scenario.name).collect();
        let counted: Vec<&&Outcome> = runs.iter().filter(|o| o.counts()).collect();
        let right = counted.iter().filter(|o| o.verdict == Verdict::Right).count();
        let expect: Vec<String> =
            scenario.expect.iter().map(|c| format!("{} {}", c.category, c.name).trim().to_owned()).collect();
        let expect = if expect.is_empty() { "nothing".to_owned() } else { expect.join(" or ") };
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        for run in &runs {
            let what = match (run.verdict, run.causes.first()) {
                (Verdict::Right | Verdict::Wrong, Some(cause)) => names.publish(cause),
                (Verdict::Right | Verdict::Wrong, None) => "nothing".to_owned(),
                (Verdict::Disturbed, _) => "disturbed by other work".to_owned(),
                (Verdict::NotRun, _) => format!("not run: {}", run.reason.as_deref().unwrap_or("")),
                (verdict, _) => word(verdict).to_lowercase(),
            };
            *first.entry(what).or_default() += 1;
        }
        let mut first: Vec<(String, usize)> = first.into_iter().collect();
        first.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let first: Vec<String> = first.into_iter().map(|(what, n)| format!("{what} ({n})")).collect();
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        let mut shares: Vec<String> = Vec::new();
        let parts = runs.iter().map(|run| run.shares.len()).max().unwrap_or(0);
        for i in 0..parts {
            let mut each: Vec<_> = runs.iter().filter_map(|run| run.shares.get(i)).collect();
            each.sort_by(|a, b| a.truth.total_cmp(&b.truth));
            let middle = each[each.len() / 2];
            shares.push(format!("{}/{}", percent(middle.named), percent(middle.truth)));
        }
        let worst = runs.iter().flat_map(|run| &run.shares).map(|s| (s.named - s.truth).abs()).reduce(f64::max);
        let mut medians: Vec<f64> = runs.iter().filter_map(|run| run.coverage.map(|c| c.p50)).collect();
        medians.sort_by(f64::total_cmp);
        let least = runs.iter().filter_map(|run| run.coverage.map(|c| c.min)).reduce(f64::min);
        let coverage = medians.get(medians.len() / 2).zip(least);
        let absent: usize = runs.iter().map(|run| run.false_causes.len()).sum();
        let checked: usize = runs.iter().map(|run| run.checked_causes).sum();
        let _ = writeln!(
            page,
            "| {} | {expect} | {right}/{} | {} | {} | {} | {} | {absent}/{checked} |",
            scenario.name,
            counted.len(),
            first.join(", "),
            if shares.is_empty() { "—".to_owned() } else { shares.join(", ") },
            worst.map_or("—".to_owned(), percent),
            coverage.map_or("—".to_owned(), |(p50, min)| format!("{:.1} % ({:.1} %)", p50 * 100.0, min * 100.0)),
        );
    }
    page.push('\n');
    page.push_str(&sums(outcomes, repeat));
    page
}

/// The figures over all runs.
fn sums(outcomes: &[Outcome], repeat: u32) -> String {
    let count = |is: &dyn Fn(&&Outcome) -> bool| outcomes.iter().filter(is).count();
    let disturbed = count(&|o| o.verdict == Verdict::Disturbed);
    let faulty = count(&|o| o.counts() && !o.expected.is_empty());
    let faulty_right = count(&|o| o.verdict == Verdict::Right && !o.expected.is_empty());
    let not_run = count(&|o| o.verdict == Verdict::NotRun);
    let shares: Vec<_> = outcomes.iter().flat_map(|o| &o.shares).collect();
    let within = shares.iter().filter(|share| share.is_right()).count();
    let absent: usize = outcomes.iter().map(|o| o.false_causes.len()).sum();
    let checked: usize = outcomes.iter().map(|o| o.checked_causes).sum();
    let medians = outcomes.iter().filter_map(|o| o.coverage).filter(|c| c.p50 >= 0.99).count();
    let least = outcomes.iter().filter_map(|o| o.coverage).filter(|c| c.min >= 0.9).count();
    let covered = outcomes.iter().filter(|o| o.coverage.is_some()).count();
    let breaks: usize = outcomes.iter().map(|o| o.breaks).sum();
    let lost: u64 = outcomes.iter().map(|o| o.lost_events).sum();
    let part = |n: usize, of: usize| {
        if of == 0 { "N/A".to_owned() } else { format!("{n} of {of} ({:.0} %)", n as f64 * 100.0 / of as f64) }
    };
    format!(
        "{repeat} runs a scenario; {not_run} runs not possible here, {disturbed} disturbed by other work on the machine.\n\n\
         - right first cause, scenarios with a fault: {}\n\
         - share within ± 15 points of the truth: {}\n\
         - named causes that the raw events do not show: {}\n\
         - runs with coverage of at least 99 % at the median: {}; of at least 90 % for every message: {}\n\
         - events lost by the recorder's own count: {lost}; switches of tasks missing in the raw events: {breaks}\n",
        part(faulty_right, faulty),
        part(within, shares.len()),
        part(absent, checked),
        part(medians, covered),
        part(least, covered),
    )
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::super::judge::Share;
    use super::*;

    fn outcome(name: &str, verdict: Verdict, causes: Vec<Named>) -> Outcome {
        let scenario = catalogue::all().into_iter().find(|scenario| scenario.name == name).unwrap();
        Outcome { causes, ..Outcome::without(&scenario, 1, verdict, "because".into()) }
    }

    fn named(category: &str, name: &str) -> Named {
        Named {
            category: category.into(),
            name: name.into(),
            role: "A".into(),
            share: 0.8,
            deviation_ns: 1,
            evidence: vec![],
        }
    }

    #[test]
    fn the_table_counts_and_hides_what_else_ran() {
        let hog: Vec<Scenario> = catalogue::all().into_iter().filter(|s| s.name == "cpu-hog").collect();
        let mut right = outcome("cpu-hog", Verdict::Right, vec![named("interference", "lab-hog/user")]);
        right.shares = vec![Share { cause: String::new(), named: 0.8, truth: 0.9 }];
        let wrong = outcome("cpu-hog", Verdict::Wrong, vec![named("interference", "somebody")]);
        let not_run = outcome("cpu-hog", Verdict::NotRun, vec![]);
        let page = page(&[right, wrong, not_run], &hog, 3);
        assert!(page.contains("| 1/2 |"), "{page}");
        assert!(page.contains("interference lab-hog/user (1)") && page.contains("interference task-1 (1)"), "{page}");
        assert!(!page.contains("somebody"), "{page}");
        assert!(page.contains("not run: because (1)") && page.contains("80/90"), "{page}");
        assert!(page.contains("right first cause, scenarios with a fault: 1 of 2 (50 %)"), "{page}");
        assert!(page.contains("1 runs not possible"), "{page}");
    }
}
