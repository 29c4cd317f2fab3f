//! What to do next.
//!
//! In: a [`Diagnosis`] with its fixes, and [`RecordingFacts`]. Out: [`NextStep`]s.

use tailsight_diagnose::cause::names::Titled;
use tailsight_diagnose::model::{Diagnosis, NextStep};
use tailsight_diagnose::multiplexed::{counts_segments, knows_only_receiving};
use tailsight_diagnose::{RecordingFacts, nothing_stands_out};
use tailsight_lifetime::Leg;

use crate::placeholders;

/// Steps that are said.
const MOST: usize = 3;
/// From this part of the difference without an owner on, what this machine could record is worth a look.
const UNEXPLAINED: f64 = 0.1;

/// What to do next, most useful first.
pub fn next(diagnosis: &Diagnosis, facts: &RecordingFacts) -> Vec<NextStep> {
    let run = placeholders::quote(&facts.run);
    let class = diagnosis.class.as_ref().map(|class| format!(" --class {}", placeholders::quote(&class.name)));
    let class = class.unwrap_or_default();
    let (segments, only_receiving) = (counts_segments(diagnosis), knows_only_receiving(diagnosis));
    let is_receive = diagnosis.leg == Leg::Receive;
    let words = |is: bool, says: &str| is.then(|| NextStep::words(says));
    let total = || {
        let command = format!("tailsight diagnose {run} --leg total{class}");
        NextStep::command("include service and sending, not only receiving", command)
    };
    let slowest = diagnosis.slowest.first().map(|slowest| {
        NextStep::command(
            "see the slowest message, step by step",
            format!("tailsight show {run} {}{class}", slowest.id),
        )
    });
    let steps = [
        // How long requests take is what was asked for.
        (is_receive && segments && !only_receiving).then(total),
        words(
            only_receiving,
            "measure requests at the client, or by traces of the application: here only the time until segments are received is known",
        ),
        first_fix(diagnosis).filter(|_| !segments),
        words(facts.lost_events > 0, "record again for a shorter time, or with larger buffers: events were lost"),
        words(
            diagnosis.causes.last().is_some_and(|last| last.share.abs() > UNEXPLAINED),
            "run tailsight doctor: it lists what else this machine could record, to explain the rest",
        ),
        words(
            diagnosis.not_available.is_some(),
            "record longer or under more load: without -d, record goes on until there are enough messages",
        ),
        slowest,
        Some(NextStep::command("see it all on one page", format!("tailsight report {run}{class}"))),
        (is_receive && !segments).then(total),
    ];
    steps.into_iter().flatten().take(MOST).collect()
}

/// The first fix of the first cause, where anything stands out.
fn first_fix(diagnosis: &Diagnosis) -> Option<NextStep> {
    let cause = diagnosis.causes.first().filter(|cause| cause.category.is_named() && cause.deviation_ns > 0)?;
    let fix = cause.steps.first().filter(|_| !nothing_stands_out(diagnosis))?;
    let what = match cause.title() {
        title if cause.category.says(&title) => cause.category.words().to_owned(),
        title => format!("{title} ({})", cause.category.words()),
    };
    // What tailsight fix can make is not told as a line of shell.
    Some(match cause.actions.iter().find(|action| action.shell.contains(&0)) {
        Some(action) => NextStep::command(format!("try this against {what}: {}", action.title), &action.command),
        None => NextStep {
            fix: Some(fix.clone()),
            ..NextStep::words(format!("try the first fix of {what}, then record again"))
        },
    })
}
