//! The confusion table. In: outcomes. Out: Markdown with a row a scenario and the sums, of which the sums go between the markers of a file.
//!
//! Programs of a shared machine are not published: in the table, tasks that are neither the lab's nor the kernel's nor of
//! the servers under test are `task-1`, `task-2`, …

use std::collections::BTreeMap;
use std::fmt::Write;

use tailsight_lab::generated::GeneratedSection;

use super::judge::Coverage;
use super::judge::{Named, Score};
use super::outcome::ScenarioResult;
use super::peel::Peeled;
use super::scenario::Scenario;

/// The part of docs/results/accuracy.md that is written here.
pub const GENERATED: GeneratedSection =
    GeneratedSection { begin: "<!-- accuracy:begin -->", end: "<!-- accuracy:end -->" };
/// Names of programs that may be published: ours, and the servers of the scenarios.
const KNOWN: &[&str] = &["lab", "nginx", "memcached", "redis-server", "tailsight"];

/// The line of a run for the terminal.
pub fn line(outcome: &ScenarioResult) -> String {
    let verdict = outcome.taken.map_or_else(|| word(outcome.verdict), super::modern::Taken::word);
    let mut line = format!("{:<18} {:>2} {verdict:<12}", outcome.scenario, outcome.repeat);
    for cause in outcome.causes.iter().take(2) {
        let _ = write!(line, " {} {} ({}) {:.0} %;", cause.category, cause.name, cause.role, cause.share * 100.0);
    }
    for share in &outcome.shares {
        let _ = write!(line, " true {:.0} % named {:.0} %;", share.truth * 100.0, share.named * 100.0);
    }
    for (word, figure) in [("coverage", outcome.coverage), ("owned", outcome.owned)] {
        if let Some(figure) = figure {
            let _ = write!(line, " {word} {:.3} min {:.3};", figure.p50, figure.min);
        }
    }
    if let Some(other) = outcome.disturbance {
        let _ = write!(
            line,
            " other work {:.0} %{}",
            other.share * 100.0,
            if outcome.disturbed { ": disturbed" } else { "" }
        );
    }
    for cause in &outcome.forbidden {
        let _ = write!(line, "; not permitted: {cause}");
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
fn word(verdict: Score) -> &'static str {
    match verdict {
        Score::Right => "right",
        Score::Wrong => "WRONG",
        Score::NoDiagnosis => "no diagnosis",
        Score::NotRun => "not run",
        Score::Failed => "FAILED",
    }
}

/// Replaces names that must not be published, each always by the same word.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn publish(&mut self, cause: &Named) -> String {
        let (category, name) = (&cause.category, &cause.name);
        let task = name.strip_prefix("packet:").unwrap_or(name);
        let is_published = KNOWN.iter().any(|known| task.starts_with(known));
        if name.is_empty()
            || is_published
            || !matches!(category.as_str(), "interference" | "profiler" | "receive-processing")
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
pub fn page(outcomes: &[ScenarioResult], scenarios: &[Scenario], repeat: u32) -> String {
    let mut names = Names::default();
    let mut page = String::from(
        "| scenario | expected | right, undisturbed | right, disturbed | named first (runs) | share named/true, % | \
         worst share error | coverage p50 (min) | owned p50 (min) | not in the raw events |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for scenario in scenarios {
        let runs: Vec<&ScenarioResult> = outcomes.iter().filter(|o| o.scenario == scenario.name).collect();
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        for run in &runs {
            let what = match (run.verdict, run.causes.first()) {
                (Score::Right | Score::Wrong, Some(cause)) => names.publish(cause),
                (Score::Right | Score::Wrong, None) => "nothing".to_owned(),
                (Score::NotRun, _) => format!("not run: {}", run.reason.as_deref().unwrap_or("")),
                (verdict, _) => word(verdict).to_lowercase(),
            };
            let what = if run.disturbed { format!("{what}, disturbed") } else { what };
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
        let figure = |of: fn(&ScenarioResult) -> Option<Coverage>| {
            let figures: Vec<Coverage> = runs.iter().filter_map(|run| of(run)).collect();
            middle_and_least(&figures)
                .map_or("—".to_owned(), |(p50, min)| format!("{:.1} % ({:.1} %)", p50 * 100.0, min * 100.0))
        };
        let absent: usize = runs.iter().map(|run| run.false_causes.len()).sum();
        let checked: usize = runs.iter().map(|run| run.checked_causes).sum();
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {absent}/{checked} |",
            scenario.name,
            scenario.expected(),
            right(runs.iter().filter(|run| !run.disturbed)),
            right(runs.iter().filter(|run| run.disturbed)),
            first.join(", "),
            if shares.is_empty() { "—".to_owned() } else { shares.join(", ") },
            worst.map_or("—".to_owned(), percent),
            figure(|run| run.coverage),
            figure(|run| run.owned),
        );
    }
    page.push('\n');
    page.push_str(&sums(outcomes, repeat));
    page
}

/// How many of the runs that count are right, of how many.
fn right<'a>(runs: impl Iterator<Item = &'a &'a ScenarioResult>) -> String {
    let counted: Vec<&&ScenarioResult> = runs.filter(|run| run.counts()).collect();
    let right = counted.iter().filter(|run| run.verdict == Score::Right).count();
    if counted.is_empty() { "—".to_owned() } else { format!("{right}/{}", counted.len()) }
}

/// The median run's median, and the least of all messages of all runs.
fn middle_and_least(all: &[Coverage]) -> Option<(f64, f64)> {
    let mut medians: Vec<f64> = all.iter().map(|figure| figure.p50).collect();
    medians.sort_by(f64::total_cmp);
    medians.get(medians.len() / 2).copied().zip(all.iter().map(|figure| figure.min).reduce(f64::min))
}

/// Whether a first cause is right.
type Right = fn(&Peeled) -> bool;

/// The figures over all runs: those with a fault, or without one but with an expected first cause, and the clean ones.
pub fn sums(outcomes: &[ScenarioResult], repeat: u32) -> String {
    let not_run = outcomes.iter().filter(|o| o.verdict == Score::NotRun).count();
    let disturbed = outcomes.iter().filter(|o| o.disturbed).count();
    let part = |n: usize, of: usize| {
        if of == 0 { "none".to_owned() } else { format!("{n} of {of} ({:.1} %)", n as f64 * 100.0 / of as f64) }
    };
    let share_right = |among: &dyn Fn(&ScenarioResult) -> bool, right: fn(&ScenarioResult) -> bool| {
        let runs: Vec<&ScenarioResult> = outcomes.iter().filter(|o| o.counts() && among(o)).collect();
        part(runs.iter().filter(|o| right(o)).count(), runs.len())
    };
    let mut text = format!(
        "{repeat} runs a scenario; {not_run} runs not possible here; {disturbed} disturbed by other work on the machine, \
         by the raw events alone ([rule](../lab.md#how-a-run-is-judged)).\n\n\
         | | undisturbed | disturbed | all |\n|---|---|---|---|\n"
    );
    let fault: fn(&ScenarioResult) -> bool = |o| o.may.is_none();
    let clean: fn(&ScenarioResult) -> bool = |o| o.may.is_some();
    let whole: fn(&ScenarioResult) -> bool = |o| o.verdict == Score::Right;
    for (what, which, right) in [
        ("right first cause, scenarios with a fault", fault, whole),
        ("right first cause, scenarios in which nothing is wrong", clean, ScenarioResult::first_is_right),
        ("right first cause, all", |_| true, ScenarioResult::first_is_right),
        ("nothing of 5 % or more that may not be named, where nothing is wrong", clean, whole),
    ] {
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} |",
            share_right(&|o| which(o) && !o.disturbed, right),
            share_right(&|o| which(o) && o.disturbed, right),
            share_right(&which, right),
        );
    }
    let peeled = |is: &dyn Fn(&ScenarioResult) -> bool, right: Right| {
        let of_total_leg: Vec<&Peeled> = outcomes.iter().filter(|o| is(o)).filter_map(|o| o.peeled.as_ref()).collect();
        part(of_total_leg.iter().filter(|peeled| right(peeled)).count(), of_total_leg.len())
    };
    let rows: [(&str, Right); 3] = [
        ("right first cause of the total leg, scenarios with a fault", |of| of.recorded),
        ("the same, or first is the queue and what held the messages ahead is the expected cause", |of| of.root),
        ("the first without stolen time and programs that are not the lab's (`diagnose --without`)", |of| of.without),
    ];
    for (what, right) in rows {
        let [quiet, disturbed, overall] =
            [peeled(&|o| !o.disturbed, right), peeled(&|o| o.disturbed, right), peeled(&|_| true, right)];
        let _ = writeln!(text, "| {what} | {quiet} | {disturbed} | {overall} |");
    }
    let share = |is: &dyn Fn(&ScenarioResult) -> bool| {
        let shares: Vec<_> = outcomes.iter().filter(|o| is(o)).flat_map(|o| &o.shares).collect();
        part(shares.iter().filter(|share| share.is_right()).count(), shares.len())
    };
    let _ = writeln!(
        text,
        "| share within ± 15 points of the truth | {} | {} | {} |\n",
        share(&|o| !o.disturbed),
        share(&|o| o.disturbed),
        share(&|_| true),
    );
    let figures =
        |of: fn(&ScenarioResult) -> Option<Coverage>| outcomes.iter().filter_map(of).collect::<Vec<Coverage>>();
    let percent = |figure: Option<(f64, f64)>| {
        figure.map_or("not known".to_owned(), |(p50, min)| {
            format!("{:.1} % at the median, {:.1} % at the least", p50 * 100.0, min * 100.0)
        })
    };
    let absent: usize = outcomes.iter().map(|o| o.false_causes.len()).sum();
    let checked: usize = outcomes.iter().map(|o| o.checked_causes).sum();
    let breaks: usize = outcomes.iter().map(|o| o.breaks).sum();
    let lost: u64 = outcomes.iter().map(|o| o.lost_events).sum();
    let _ = write!(
        text,
        "- coverage as in the paper, the part of a message's deviation that reported causes have: {} (NSight: 96 % and 69 %)\n\
         - owned, the part that has an owner, reported or not: {}\n\
         - named causes that the raw events do not show: {}\n\
         - events lost by the recorder's own count: {lost}; switches of tasks missing in the raw events: {breaks}\n",
        percent(middle_and_least(&figures(|o| o.coverage))),
        percent(middle_and_least(&figures(|o| o.owned))),
        part(absent, checked),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::super::judge::Share;
    use super::*;

    fn outcome(name: &str, verdict: Score, causes: Vec<Named>) -> ScenarioResult {
        let scenario = catalogue::all().into_iter().find(|scenario| scenario.name == name).unwrap();
        ScenarioResult { causes, ..ScenarioResult::without(&scenario, 1, verdict, "because".into()) }
    }

    fn named(category: &str, name: &str) -> Named {
        Named {
            category: category.into(),
            name: name.into(),
            role: "A".into(),
            share: 0.8,
            deviation_ns: 1,
            evidence: vec![],
            ..Named::default()
        }
    }

    #[test]
    fn the_table_counts_and_hides_what_else_ran() {
        let hog: Vec<Scenario> = catalogue::all().into_iter().filter(|s| s.name == "cpu-hog").collect();
        let mut right = outcome("cpu-hog", Score::Right, vec![named("interference", "lab-hog/user")]);
        right.shares = vec![Share { cause: String::new(), named: 0.8, truth: 0.9 }];
        let figure = |p50, min| Some(Coverage { overall: 0.5, p50, min });
        (right.coverage, right.owned) = (figure(0.97, 0.71), figure(1.0, 0.99));
        let wrong = outcome("cpu-hog", Score::Wrong, vec![named("interference", "somebody")]);
        let not_run = outcome("cpu-hog", Score::NotRun, vec![]);
        let page = page(&[right, wrong, not_run], &hog, 3);
        assert!(page.contains("| 1/2 | — |"), "{page}");
        assert!(page.contains("interference lab-hog/user (1)") && page.contains("interference task-1 (1)"), "{page}");
        assert!(!page.contains("somebody"), "{page}");
        assert!(page.contains("not run: because (1)") && page.contains("80/90"), "{page}");
        assert!(page.contains("| 97.0 % (71.0 %) | 100.0 % (99.0 %) |"), "{page}");
        assert!(
            page.contains("| right first cause, scenarios with a fault | 1 of 2 (50.0 %) | none | 1 of 2 (50.0 %) |"),
            "{page}"
        );
        assert!(page.contains("1 runs not possible"), "{page}");
    }

    /// A run used to be called disturbed only when its answer was wrong, so that "108 of 108" was 108 of 110.
    #[test]
    fn disturbed_runs_are_counted_apart_whether_right_or_wrong() {
        let hog: Vec<Scenario> = catalogue::all().into_iter().filter(|s| s.name == "cpu-hog").collect();
        let run = |verdict, disturbed| {
            let first = if verdict == Score::Right { "lab-hog" } else { "lab-other" };
            ScenarioResult { disturbed, ..outcome("cpu-hog", verdict, vec![named("interference", first)]) }
        };
        let outcomes = [
            run(Score::Right, false),
            run(Score::Right, false),
            run(Score::Right, true),
            run(Score::Wrong, true),
            run(Score::Wrong, true),
            run(Score::Failed, false),
        ];
        let page = page(&outcomes, &hog, 6);
        assert!(page.contains("| cpu-hog | interference lab-hog | 2/3 | 1/3 |"), "{page}");
        assert!(page.contains("interference lab-hog, disturbed (1)"), "{page}");
        let sum = "| right first cause, scenarios with a fault | 2 of 3 (66.7 %) | 1 of 3 (33.3 %) | 3 of 6 (50.0 %) |";
        assert!(page.contains(sum), "{page}");
        assert!(page.contains("3 disturbed by other work"), "{page}");
    }

    #[test]
    fn without_other_work_runs_are_counted_beside_as_recorded() {
        let hog: Vec<Scenario> = catalogue::all().into_iter().filter(|s| s.name == "cpu-hog").collect();
        let run = |recorded, without, disturbed| ScenarioResult {
            peeled: Some(Peeled { recorded, without, root: without }),
            disturbed,
            ..outcome("cpu-hog", Score::Right, vec![named("interference", "lab-hog")])
        };
        let outcomes = [run(true, true, false), run(false, true, true), run(false, false, true)];
        let page = page(&outcomes, &hog, 3);
        let recorded =
            "of the total leg, scenarios with a fault | 1 of 1 (100.0 %) | 0 of 2 (0.0 %) | 1 of 3 (33.3 %) |";
        let without = "(`diagnose --without`) | 1 of 1 (100.0 %) | 1 of 2 (50.0 %) | 2 of 3 (66.7 %) |";
        assert!(page.contains(recorded) && page.contains(without), "{page}");
        let root = "is the expected cause | 1 of 1 (100.0 %) | 1 of 2 (50.0 %) | 2 of 3 (66.7 %) |";
        assert!(page.contains(root), "{page}");
    }

    #[test]
    fn the_page_has_its_marks() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/accuracy.md");
        GENERATED.check(&page).unwrap();
    }

    #[test]
    fn clean_runs_have_figures_of_their_own() {
        let clean: Vec<Scenario> = catalogue::all().into_iter().filter(|s| s.name == "clean-low").collect();
        let runs = [outcome("clean-low", Score::Right, vec![]), outcome("clean-low", Score::Wrong, vec![])];
        let page = page(&runs, &clean, 2);
        assert!(page.contains("| right first cause, scenarios with a fault | none | none | none |"), "{page}");
        let sum = "may not be named, where nothing is wrong | 1 of 2 (50.0 %) | none | 1 of 2 (50.0 %) |";
        assert!(page.contains(sum), "{page}");
    }

    /// A clean run can be wrong by its second cause: its first one is judged by itself.
    #[test]
    fn the_first_cause_of_a_clean_run_is_one_that_may_be_named() {
        let first =
            |scenario, verdict, category| outcome(scenario, verdict, vec![named(category, "x")]).first_is_right();
        assert!(first("clean-low", Score::Wrong, "wakeup-delay"));
        assert!(!first("clean-low", Score::Wrong, "hol-blocking"));
        assert!(!first("clean-low", Score::Failed, "wakeup-delay"));
        assert!(outcome("clean-low", Score::Right, vec![]).first_is_right());
        // Where the queue is the tail, it must be first.
        assert!(first("clean-high", Score::Right, "hol-blocking"));
        assert!(!first("clean-high", Score::Wrong, "wakeup-delay"));
        assert!(!outcome("clean-high", Score::Wrong, vec![]).first_is_right());
    }
}
