//! What limits a diagnosis.
//!
//! In: a [`Diagnosis`] with its causes, [`Options`], [`RecordingFacts`]. Out: sentences.

use tailsight_diagnose::cause::Category;
use tailsight_diagnose::cause::names::Titled;
use tailsight_diagnose::cohorts::focus::percent;
use tailsight_diagnose::model::{Cause, Diagnosis};
use tailsight_diagnose::{Options, RecordingFacts, glob};
use tailsight_units::format::{duration, signed_duration as human};

use crate::data::ADVICE;
use crate::{connections, estimates, functions, sending};

/// The share of the deviation from which a row that is no cause has a note of its own.
const RARE_BUT_LARGE: f64 = 0.25;

/// All notes, in their order.
pub fn notes(diagnosis: &Diagnosis, options: &Options, facts: &RecordingFacts) -> Vec<String> {
    let mut out = connections::notes(diagnosis);
    out.extend(limits(diagnosis, options, facts));
    out.extend(estimates::notes(diagnosis));
    out.extend(sending::notes(diagnosis));
    out.extend(functions::missing(diagnosis));
    out.extend(functions::only_one_sampled(diagnosis));
    out.extend(counted_twice(diagnosis));
    out
}

/// What limits the comparison.
fn limits(diagnosis: &Diagnosis, options: &Options, facts: &RecordingFacts) -> Vec<String> {
    let state = if facts.damaged { "damaged" } else { "partial" };
    let mut out: Vec<String> = facts.partial.iter().map(|why| format!("the run is {state}: {why}")).collect();
    out.extend(options.remarks.iter().cloned());
    out.extend(lost(facts));
    out.extend(hidden(diagnosis, facts, options.verbose));
    out.extend(unseen(facts));
    out.extend(incomplete(diagnosis));
    if diagnosis.focus.messages < 100 && diagnosis.not_available.is_none() {
        out.push(format!("only {} slow messages are compared: the intervals are wide", diagnosis.focus.messages));
    }
    out.extend(
        diagnosis.not_significant.iter().filter(|row| row.share >= RARE_BUT_LARGE).map(|row| uneven(row, diagnosis)),
    );
    if facts.clock_error_ns > options.granularity_ns {
        out.push(format!("clock error up to {}: ignore smaller differences", human(facts.clock_error_ns as i64)));
    }
    let profiler = |c: &Cause| c.category == Category::Profiler && !c.inferred;
    if facts.recorder_by_name && diagnosis.causes.iter().chain(&diagnosis.not_significant).any(profiler) {
        out.push(
            "this older run does not name the recording process: every process named tailsight was taken for it".into(),
        );
    }
    out.extend_from_slice(&facts.stamps);
    if diagnosis.not_available.is_none() {
        out.extend(compared(diagnosis, options));
    }
    if options.bootstrap_rounds == 0 {
        out.push("no intervals were asked for (0 bootstrap rounds): ci95_ns repeats the time".into());
    }
    out
}

/// Events that were lost.
fn lost(facts: &RecordingFacts) -> Option<String> {
    let of = if facts.events > 0 {
        let all = facts.events + facts.lost_events;
        format!(" ({:.2} % of all)", 100.0 * facts.lost_events as f64 / all as f64)
    } else {
        String::new()
    };
    let says = || match facts.lost_events {
        1 => format!("1 event was lost{of}: near it, time may have the wrong owner"),
        n => format!("{n} events were lost{of}: near them, time may have the wrong owner"),
    };
    (facts.lost_events > 0).then(says)
}

/// What hooks that were off would have told, where that limits the answer. `verbose`: also of those that are off in every run.
fn hidden(diagnosis: &Diagnosis, facts: &RecordingFacts, verbose: bool) -> Vec<String> {
    let mut out = vec![];
    for limit in ADVICE.limit.iter().filter(|limit| verbose || !limit.usual) {
        let off: Vec<&str> =
            facts.hooks_off.iter().map(String::as_str).filter(|hook| glob::any(&limit.hooks, hook)).collect();
        let matters = limit.matters.as_ref().is_none_or(|m| m.in_answer(diagnosis));
        if !off.is_empty() && matters {
            let cure = limit.cure.as_ref().map_or(String::new(), |cure| format!("; {cure}"));
            let off = match off[..] {
                [.., _, _, _] => format!("{} and {} more hooks", off[0], off.len() - 1),
                _ => off.join(" and "),
            };
            out.push(format!("without {off}, {}{cure}", limit.hides));
        }
    }
    out
}

/// Names of hooks, with wildcards, without which a diagnosis may know less: of each, what then is not known is in the data.
pub fn limiting_hooks() -> impl Iterator<Item = &'static str> {
    ADVICE.limit.iter().flat_map(|limit| &limit.hooks).map(String::as_str)
}

/// File systems whose fsync is not seen, where the target wrote.
fn unseen(facts: &RecordingFacts) -> Option<String> {
    let says = || {
        format!(
            "fsync on {} is not seen (no fentry, no tracepoints): of a wait for such a disk only the sleeps are known, and its \
             work counts to the program",
            facts.unseen_syncs.join(" and ")
        )
    };
    (!facts.unseen_syncs.is_empty()).then(says)
}

/// Messages that are not complete, when they are more than one in a hundred.
fn incomplete(diagnosis: &Diagnosis) -> Option<String> {
    let counts = &diagnosis.messages;
    let missing = counts.total.saturating_sub(counts.complete);
    let worst = counts.incomplete.iter().max_by_key(|(_, n)| **n).map_or("", |(reason, _)| reason.text());
    let says = || format!("{missing} of {} messages are not complete, most because: {worst}", counts.total);
    (counts.complete * 100 < counts.total * 99).then(says)
}

/// A large row that is no cause.
fn uneven(row: &Cause, diagnosis: &Diagnosis) -> String {
    format!(
        "{} has {:.0} % of the difference, in {} of {} messages{}: which varies too much to be told from chance (its \
         95 % interval \
         contains 0), so it is not listed as a cause; record longer",
        row.title(),
        100.0 * row.share,
        row.messages,
        diagnosis.focus.messages,
        row.evidence.first().map_or(String::new(), |id| format!(", most in message {id}")),
    )
}

/// What is to be known of the two cohorts.
fn compared(diagnosis: &Diagnosis, options: &Options) -> Vec<String> {
    let mut out = vec![];
    let (f, r) = (options.focus, options.reference);
    if diagnosis.against.is_none() && f.0 < r.1 && r.0 < f.1 {
        let slice = |s: (f64, f64)| format!("{}..{}", percent(s.0), percent(s.1));
        out.push(format!(
            "{} and {}, which are compared, share messages: differences look smaller",
            slice(f),
            slice(r)
        ));
    }
    let total = diagnosis.focus.mean_ns as i64 - diagnosis.reference.mean_ns as i64;
    if total == 0 {
        out.push("both slices of messages have the same mean: there is no difference to explain".into());
    } else if total < 0 {
        out.push(format!(
            "these messages are {} faster than those that they are compared with: shares are parts of that difference",
            human(-total)
        ));
    }
    out
}

/// That messages are said to have worked more than the threads ran.
fn counted_twice(diagnosis: &Diagnosis) -> Option<String> {
    let work = diagnosis.work.filter(|work| work.is_contradiction())?;
    let [own, ran] = [work.own_ns, work.ran_ns].map(duration);
    Some(format!(
        "own work is counted more than once: messages are said to have worked {own} themselves, and all threads together ran {ran} for each. \
         Several requests share a thread, and no event tells for which of them it worked; rows of the application's own work are upper bounds"
    ))
}
