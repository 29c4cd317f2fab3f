//! What limits a diagnosis, and what to do next.
//!
//! In: a [`Diagnosis`] with its causes, [`Options`], [`RecordingFacts`]. Out: sentences.

use tailsight_lifetime::Leg;
use tailsight_units::format::{signed_duration as human, three_digits};

use super::data::ADVICE;
use super::fill;
use crate::cause::names::Titled;
use crate::cause::{Category, Subject};
use crate::cohorts::focus::percent;
use crate::estimate::counted::Cost;
use crate::estimate::{CostOfKind, Estimates};
use crate::model::{Cause, Diagnosis, NextStep};
use crate::{Options, RecordingFacts, glob};

/// The share of the deviation from which a row that is no cause has a note of its own.
const RARE_BUT_LARGE: f64 = 0.25;

/// What limits this diagnosis.
pub fn notes(diagnosis: &Diagnosis, options: &Options, facts: &RecordingFacts) -> Vec<String> {
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

/// From this part of the difference on a cause is worth a note on how it was estimated.
const NOTED: f64 = 0.01;

/// What was estimated, for the reader: of the causes that are worth a note. What an event costs is the slope of own time over their number,
/// and where heavier requests have more of them it is too much; nobody is to read it as what the kernel takes.
pub fn estimated(estimates: &Estimates, causes: &[Cause]) -> Vec<String> {
    let mut out = vec![];
    for CostOfKind { note, cost, subject } in &estimates.costs {
        let of = causes.iter().find(|c| c.subject.as_ref() == Some(subject) && c.share.abs() >= NOTED);
        out.extend(of.map(|cause| format!("{note} {}", made_of(cost, cause))));
    }
    let is_class = |c: &&Cause| matches!(c.subject, Some(Subject::Class { .. }));
    if let Some(what) = estimates.classes.filter(|_| causes.iter().find(is_class).is_some_and(|c| c.share >= NOTED)) {
        out.push(format!("requests are told apart by their {what}: those of one kind are compared with each other"));
    }
    out
}

/// What an event costs, and what the row is made of: a reader who multiplies comes to its time.
fn made_of(cost: &Cost, cause: &Cause) -> String {
    let ns = |ns: f64| human(ns.round() as i64);
    let [low, high] = cost.ci95_ns.map(ns);
    let number_ns = cost.slope_ns * cost.more;
    let mut out = format!(
        "{} of own time ({low} to {high}), with all else that grows with their number; {} more in a slow message: {}",
        ns(cost.slope_ns),
        three_digits(cost.more),
        ns(number_ns)
    );
    let row_ns = cause.deviation_ns as f64;
    let matters = |part_ns: f64| part_ns.abs() > UNSAID * row_ns.abs();
    if matters(number_ns - cost.by_number_ns) {
        out += &format!(", of which the messages' own time has room for {}", ns(cost.by_number_ns));
    }
    if matters(cost.beyond_ns) {
        out += &format!(", and {} by which slow messages with as many take longer", ns(cost.beyond_ns));
    }
    let measured_ns = row_ns - cost.by_number_ns - cost.beyond_ns;
    if matters(measured_ns) {
        out += &format!("; {} of the row was measured", ns(measured_ns));
    }
    out
}

/// What is left out of what a row is made of: at most this part of it.
const UNSAID: f64 = 0.01;

/// Nothing stands out where the p99 is less than so many medians …
const USUAL_TAIL: u64 = 3;
/// … and no cause adds so much to the slow messages, ns: as much as an interrupt, a wake-up or a neighbour takes on any host.
const USUAL_NS: i64 = 100_000;

/// Whether slow messages are what chance and any host make of usual ones. Of a comparison with another run, and of a part of the messages that
/// was asked for, nothing is said.
pub fn nothing_stands_out(diagnosis: &Diagnosis) -> bool {
    let of = |key: &str| diagnosis.latency_ns.get(key).copied();
    let is_tail = diagnosis.against.is_none() && diagnosis.focus.to == 1.0 && diagnosis.focus.from >= 0.9;
    let usual = of("p50").zip(of("p99")).is_some_and(|(p50, p99)| p99 < USUAL_TAIL * p50);
    let small = |cause: &Cause| cause.deviation_ns < USUAL_NS;
    is_tail && diagnosis.not_available.is_none() && usual && diagnosis.causes.iter().all(small)
}

/// What to do next, most useful first, at most three.
pub fn next(diagnosis: &Diagnosis, facts: &RecordingFacts) -> Vec<NextStep> {
    let run = fill::quote(&facts.run);
    let mut out = vec![];
    let segments = crate::multiplexed::counts_segments(diagnosis);
    if crate::multiplexed::knows_only_receiving(diagnosis) {
        out.push(NextStep::words(
            "measure requests at the client, or by traces of the application: here only the time until segments are received is known",
        ));
    }
    let top = diagnosis.causes.first().filter(|c| c.category.is_named() && c.deviation_ns > 0 && !segments);
    let top = top.filter(|_| !nothing_stands_out(diagnosis));
    if let Some((cause, fix)) = top.and_then(|c| Some((c, c.steps.first()?))) {
        let what = match cause.title() {
            title if cause.category.says(&title) => cause.category.words().to_owned(),
            title => format!("{title} ({})", cause.category.words()),
        };
        // What tailsight fix can make is not told as a line of shell.
        match cause.actions.iter().find(|a| a.shell.contains(&0)) {
            Some(action) => {
                out.push(NextStep::command(format!("try this against {what}: {}", action.title), &action.command));
            }
            None => out.push(NextStep {
                fix: Some(fix.clone()),
                ..NextStep::words(format!("try the first fix of {what}, then record again"))
            }),
        }
    }
    if facts.lost_events > 0 {
        out.push(NextStep::words("record again for a shorter time, or with larger buffers: events were lost"));
    }
    if diagnosis.causes.last().is_some_and(|u| u.share.abs() > 0.1) {
        out.push(NextStep::words(
            "run tailsight doctor: it lists what else this machine could record, to explain the rest",
        ));
    }
    if diagnosis.not_available.is_some() {
        out.push(NextStep::words(
            "record longer or under more load: without -d, record goes on until there are enough messages",
        ));
    }
    if let Some(slowest) = diagnosis.slowest.first() {
        out.push(NextStep::command(
            "see the slowest message, step by step",
            format!("tailsight show {run} {}", slowest.id),
        ));
    }
    out.push(NextStep::command("see it all on one page", format!("tailsight report {run}")));
    let total = NextStep::command(
        "include service and sending, not only receiving",
        format!("tailsight diagnose {run} --leg total"),
    );
    match diagnosis.leg == Leg::Receive {
        // How long requests take is what was asked for.
        true if segments && !crate::multiplexed::knows_only_receiving(diagnosis) => out.insert(0, total),
        true if !segments => out.push(total),
        _ => {}
    }
    out.truncate(3);
    out
}
