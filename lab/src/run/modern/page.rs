//! The table of modern servers. In: outcomes. Out: Markdown, a line a run, and the counts.

use std::fmt::Write;

use super::super::judge::Score;
use super::super::outcome::ScenarioResult;
use super::super::scenario::Scenario;
use super::Taken;

/// The table and the counts of the runs that count: of each scenario the last one.
pub fn page(outcomes: &[ScenarioResult], scenarios: &[Scenario]) -> String {
    let mut page = String::from(
        "| scenario | expected | named first | share, % | true share, % | taken | other work, % |\n|---|---|---|---|---|---|---|\n",
    );
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    for outcome in outcomes {
        let scenario = scenarios.iter().find(|scenario| scenario.name == outcome.scenario);
        let expected = scenario.map(Scenario::expected).unwrap_or_default();
        let first = outcome.causes.first();
        let root = |cause: &super::super::judge::Named| {
            cause.root.first().map(|(category, name)| format!(", behind {category} {name}")).unwrap_or_default()
        };
        let what = first.map_or_else(
            || outcome.reason.clone().unwrap_or_else(|| "nothing".to_owned()),
            |cause| format!("{} {}{}", cause.category, cause.name, root(cause)),
        );
        let taken = match (outcome.taken, outcome.verdict) {
            (Some(taken), _) => taken.word().to_lowercase(),
            (None, Score::NotRun) => "not run".to_owned(),
            (None, _) => "failed".to_owned(),
        };
        let other = outcome.disturbance.map_or("—".to_owned(), |other| percent(other.share));
        let _ = writeln!(
            page,
            "| {} | {expected} | {what} | {} | {} | {taken} | {other}{} |",
            outcome.scenario,
            first.map_or("—".to_owned(), |cause| percent(cause.share)),
            outcome.shares.first().map_or("—".to_owned(), |share| percent(share.truth)),
            if outcome.disturbed { ", disturbed" } else { "" },
        );
    }
    let last = |scenario: &Scenario| outcomes.iter().rev().find(|outcome| outcome.scenario == scenario.name);
    let judged: Vec<&ScenarioResult> =
        scenarios.iter().filter_map(last).filter(|outcome| outcome.taken.is_some()).collect();
    let count = |disturbed: bool, taken: Taken| {
        judged.iter().filter(|outcome| outcome.disturbed == disturbed && outcome.taken == Some(taken)).count()
    };
    page.push_str("\n| last run of each | right | partly | wrong | misleading |\n|---|---|---|---|---|\n");
    for (what, disturbed) in [("undisturbed", false), ("disturbed", true)] {
        let counts = [Taken::Right, Taken::Partly, Taken::Wrong, Taken::Misleading]
            .map(|taken| count(disturbed, taken).to_string());
        let _ = writeln!(page, "| {what} | {} |", counts.join(" | "));
    }
    page
}
