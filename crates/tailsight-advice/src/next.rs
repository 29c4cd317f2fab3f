//! What to do next.
//!
//! In: a [`Diagnosis`] with its fixes, and [`RecordingFacts`]. Out: [`NextStep`]s.

use tailsight_diagnose::cause::names::Titled;
use tailsight_diagnose::model::{Diagnosis, NextStep};
use tailsight_diagnose::multiplexed::{counts_segments, knows_only_receiving};
use tailsight_diagnose::{RecordingFacts, nothing_stands_out};
use tailsight_lifetime::Leg;

use crate::placeholders;

/// What to do next, most useful first, at most three.
pub fn next(diagnosis: &Diagnosis, facts: &RecordingFacts) -> Vec<NextStep> {
    let run = placeholders::quote(&facts.run);
    let mut out = vec![];
    let segments = counts_segments(diagnosis);
    if knows_only_receiving(diagnosis) {
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
        true if segments && !knows_only_receiving(diagnosis) => out.insert(0, total),
        true if !segments => out.push(total),
        _ => {}
    }
    out.truncate(3);
    out
}
