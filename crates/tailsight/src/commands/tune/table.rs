//! A session as a table: a row each step, then what stays changed, what is left, and how to undo it.

use std::fmt::Write as _;

use tailsight_tune::{Candidate, Decision, Measured, Prediction, Price, Step, Stopped};
use tailsight_units::{Untrusted, format};

use crate::commands::tune_json::{Recording, Tuning};

/// By-hand lines that are shown.
const BY_HAND: usize = 4;

/// A ratio as a change: `-42 %`.
fn change(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    match percent {
        p if p.abs() < 9.95 => format!("{p:+.1} %"),
        p if p < 1000.0 => format!("{p:+.0} %"),
        _ => format!("{ratio:.1} times"),
    }
}

fn predicted(prediction: Option<&Prediction>, percentile: &str) -> String {
    match prediction {
        None => "not known".into(),
        Some(p) if p.percentile == percentile => change(p.ratio),
        Some(p) => format!("{} ({})", change(p.ratio), p.percentile),
    }
}

fn measured(m: &Measured) -> String {
    format!("{} ({} to {})", change(m.ratio), change(m.interval[0]), change(m.interval[1]))
}

fn decision(step: &Step) -> String {
    let word = match step.decision {
        Decision::Kept => "kept",
        Decision::Undone => "undone",
        Decision::Skipped => "skipped",
    };
    format!("{word}: {}", step.why.words())
}

fn priced(price: &Price) -> String {
    match (price.ratio, price.ci95, price.without_per_s, price.with_per_s) {
        (Some(ratio), Some([lower, upper]), Some(without), Some(with)) => {
            let count = |per_s: f64| format::count(per_s.round() as u64);
            format!(
                "{} ({} to {}), from {} to {} requests/s",
                change(ratio),
                change(lower),
                change(upper),
                count(without),
                count(with)
            )
        }
        _ => format!("not known: {}", clean(price.not_available.as_deref().unwrap_or("too few rounds"))),
    }
}

/// What is next tried, in a line.
pub fn plan_line(n: usize, candidate: &Candidate, percentile: &str) -> String {
    let families: Vec<&str> = candidate.families.iter().map(|family| family.name()).collect();
    format!(
        "{n:>2}  {}\n    against    {}{}, {:.1} % of the deviation\n    predicted  {} {}\n    family     {}\n",
        clean(&candidate.title),
        clean(&candidate.against),
        match candidate.ranks.len() {
            0 | 1 => String::new(),
            2 => " and another cause".into(),
            n => format!(" and {} other causes", n - 1),
        },
        100.0 * candidate.share,
        percentile,
        predicted(candidate.predicted.as_ref(), percentile),
        families.join(", ")
    )
}

/// A step in a line, for the progress.
pub fn step_line(step: &Step) -> String {
    let measured = step.measured.as_ref().map_or_else(String::new, |m| format!(" {}", measured(m)));
    format!("step {}: {}:{measured} {}", step.step, clean(&step.fix.title), decision(step))
}

/// The whole of it.
pub fn text(tuning: &Tuning) -> String {
    let mut out = String::new();
    let percentile = tuning.objective.percentile();
    let load = match &tuning.plan {
        Some(plan) => format!("{} requests/s to {}", format::count(plan.rate.peak().round() as u64), plan.target),
        None => "the traffic that it has".into(),
    };
    let _ = writeln!(out, "{}: {}, under {load}", clean(&tuning.app), tuning.objective.words());
    for recording in &tuning.recordings {
        let _ = writeln!(out, "  {}", recorded(recording));
    }
    if !tuning.steps.is_empty() {
        let _ = writeln!(out, "\n  #  predicted        measured (interval)           result");
        for step in &tuning.steps {
            let predicted = predicted(step.fix.predicted.as_ref(), &percentile);
            let shown = step.measured.as_ref().map_or_else(|| "-".into(), measured);
            let _ = writeln!(out, " {:>2}  {predicted:<15}  {shown:<28}  {}", step.step, decision(step));
            let _ = writeln!(out, "     {}", clean(&step.fix.title));
            if let Some(price) = &step.price {
                let _ = writeln!(out, "     peak rate: {}", priced(price));
            }
            if let Some(reason) = &step.reason {
                let _ = writeln!(out, "     {}", clean(reason));
            }
        }
        if tuning.steps.iter().any(|step| step.measured.is_some()) {
            let _ = writeln!(out, "\n{}", about_intervals(tuning, &percentile));
        }
    }
    let _ = writeln!(out, "\n{}", ended(tuning));
    if !tuning.left.is_empty() {
        let _ = writeln!(out, "\nNot tried:");
        for (n, candidate) in tuning.left.iter().enumerate() {
            out += &plan_line(n + 1, candidate, &percentile);
        }
    }
    if !tuning.by_hand.is_empty() {
        let _ = writeln!(out, "\nBy hand (nothing that tailsight can apply and undo):");
        for line in tuning.by_hand.iter().take(BY_HAND) {
            let _ = writeln!(out, "  - {}: {}", clean(&line.against), clean(&line.step));
        }
        let more = tuning.by_hand.len().saturating_sub(BY_HAND);
        if more > 0 {
            let _ = writeln!(out, "  and {more} more; --json lists each");
        }
    }
    out += &changed(tuning);
    out
}

fn recorded(recording: &Recording) -> String {
    let at = match (&recording.percentile, recording.recorded_ns) {
        (Some(percentile), Some(ns)) => {
            let ideal = recording
                .ideal_ns
                .map_or_else(String::new, |ns| format!(" (an ideal server: {})", format::duration(ns)));
            format!("{percentile} {} inside this host{ideal}", format::duration(ns))
        }
        _ => "too few messages for a percentile".into(),
    };
    let why = recording.not_available.as_ref().map_or_else(String::new, |why| format!("; {}", clean(why)));
    format!("{}: {} messages, {at}{why}", recording.run, format::count(recording.messages))
}

fn about_intervals(tuning: &Tuning, percentile: &str) -> String {
    let levels: Vec<String> = tuning
        .steps
        .iter()
        .filter_map(|step| step.measured.as_ref().map(|m| (step.step, m)))
        .map(|(n, m)| format!("{n}: {:.2} %, {} rounds", 100.0 * m.level, m.rounds))
        .collect();
    let of = if tuning.plan.is_some() { "as the client sees it" } else { "inside this host" };
    format!(
        "Measured: the change of the {percentile} {of}, with and without the fix in turn.\nLevels of the intervals, by step: {}. They \
         rise so that the\nwhole session keeps a fix without effect with a probability of at most {:.0} %.",
        levels.join("; "),
        100.0 * tuning.alpha
    )
}

fn ended(tuning: &Tuning) -> String {
    let percentile = tuning.objective.percentile();
    let mut text = match tuning.stopped {
        Stopped::ObjectiveMet => match tuning.levels.last() {
            Some(level) => format!(
                "Ended: the objective is met: {percentile} {} ({} to {}).",
                format::duration(level.mean_ns as u64),
                format::duration(level.ci95_ns[0] as u64),
                format::duration(level.ci95_ns[1] as u64)
            ),
            None => "Ended: the objective is met.".into(),
        },
        Stopped::AtIdeal => format!("Ended: the {percentile} is at that of an ideal server: no fix can lower it."),
        Stopped::NothingLeft if tuning.steps.is_empty() => "Ended: the diagnosis has no fix that can be tried.".into(),
        Stopped::NothingLeft => "Ended: no fix is left to try.".into(),
        Stopped::Budget => "Ended: the next step would exceed the budget.".into(),
        Stopped::NotDiagnosed => "Ended: the server could not be diagnosed again.".into(),
        Stopped::PlanOnly => {
            "Nothing is changed. To try these, each after a question: run it on a terminal;\nwithout questions: \
                              give --yes."
                .into()
        }
        Stopped::Interrupted => "Interrupted: everything is undone.".into(),
        Stopped::Failed => "Failed: everything is undone.".into(),
    };
    // Of a failure it stands on standard error.
    if let Some(reason) = tuning.reason.as_ref().filter(|_| tuning.stopped != Stopped::Failed) {
        text += &format!("\n{}", clean(reason));
    }
    text
}

fn changed(tuning: &Tuning) -> String {
    if tuning.stopped == Stopped::PlanOnly {
        return String::new();
    }
    let mut out = String::new();
    if tuning.changed.is_empty() {
        out += "\nNothing stays changed.\n";
    } else {
        out += "\nChanged, until the next boot or its undo:\n";
        for title in &tuning.changed {
            let _ = writeln!(out, "  - {}", clean(title));
        }
    }
    if let Some(undo) = &tuning.undo {
        let _ = writeln!(out, "To undo all of it: sudo {undo}");
        match tuning.earlier_fixes {
            0 => {}
            1 => out += "(that also undoes one fix that was in effect before)\n",
            n => {
                let _ = writeln!(out, "(that also undoes {n} fixes that were in effect before)");
            }
        }
    }
    out
}

/// Without what could move the cursor: a task may be called anything.
pub fn clean(text: &str) -> String {
    Untrusted(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_diagnose::Category;
    use tailsight_tune::{Family, Objective, Why};

    fn kept() -> Step {
        let candidate = Candidate {
            title: "keep nginx off core 0".into(),
            n: 1,
            category: Category::Interference,
            against: "another program: nginx".into(),
            ranks: vec![1, 3],
            share: 0.7,
            families: vec![Family::Neighbours],
            changes: vec![],
            predicted: Some(Prediction {
                percentile: "p99".into(),
                recorded_ns: 1_000_000,
                without_ns: 400_000,
                ratio: 0.4,
            }),
        };
        let measured = Measured {
            rounds: 16,
            ratio: 0.5,
            interval: [0.4, 0.955],
            level: 0.95,
            p: 0.001,
            alpha: 0.025,
            without_ns: 2e6,
            with_ns: 1e6,
        };
        Step {
            step: 1,
            fix: candidate,
            measured: Some(measured),
            rounds_ns: vec![],
            price: None,
            decision: Decision::Kept,
            why: Why::Proven,
            reason: None,
        }
    }

    fn tuning(stopped: Stopped, steps: Vec<Step>) -> Tuning {
        let changed: Vec<String> = steps.iter().map(|step| step.fix.title.clone()).collect();
        Tuning {
            schema: 1,
            app: "memcached".into(),
            objective: Objective { quantile: 0.999, limit_ns: None },
            plan: None,
            window_ns: 2_500_000_000,
            alpha: 0.05,
            recordings: vec![],
            levels: vec![],
            steps,
            left: vec![],
            by_hand: vec![],
            stopped,
            reason: None,
            undo: (!changed.is_empty()).then(|| "tailsight fix --undo".into()),
            changed,
            earlier_fixes: 1,
            elapsed_ns: 0,
        }
    }

    #[test]
    fn a_session_is_a_row_each_step_what_is_changed_and_its_undo() {
        let text = text(&tuning(Stopped::NothingLeft, vec![kept()]));
        for line in [
            "memcached: p99.9 as low as possible, under the traffic that it has",
            "  1  -60 % (p99)      -50 % (-60 % to -4.5 %)       kept: proven",
            "     keep nginx off core 0",
            "Measured: the change of the p99.9 inside this host, with and without the fix in turn.",
            "Ended: no fix is left to try.",
            "  - keep nginx off core 0",
            "To undo all of it: sudo tailsight fix --undo",
            "(that also undoes one fix that was in effect before)",
        ] {
            assert!(text.lines().any(|shown| shown == line), "no line {line:?} in\n{text}");
        }
    }

    #[test]
    fn what_was_not_measured_has_no_line_about_intervals_and_a_plan_none_about_changes() {
        let skipped = Step { measured: None, decision: Decision::Skipped, why: Why::Declined, ..kept() };
        let shown = text(&Tuning { changed: vec![], undo: None, ..tuning(Stopped::NothingLeft, vec![skipped]) });
        assert!(!shown.contains("Measured:") && shown.contains("skipped: declined"), "{shown}");
        assert!(shown.contains("Nothing stays changed."), "{shown}");
        let plan = text(&tuning(Stopped::PlanOnly, vec![]));
        assert!(plan.contains("Nothing is changed.") && !plan.contains("stays changed"), "{plan}");
    }

    #[test]
    fn changes_are_percent_until_they_are_many_times() {
        assert_eq!([0.5, 1.02, 3.0, 25.0].map(change), ["-50 %", "+2.0 %", "+200 %", "25.0 times"]);
    }
}
