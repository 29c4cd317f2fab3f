//! What was estimated and not measured, for the reader.
//!
//! In: a [`Diagnosis`] with what events cost. Out: sentences, of the causes that are worth one.

use tailsight_diagnose::cause::Subject;
use tailsight_diagnose::model::{Cause, Diagnosis, EstimatedCost};
use tailsight_units::format::{signed_duration as human, three_digits};

/// From this part of the difference on a cause is worth a note on how it was estimated.
const NOTED: f64 = 0.01;

/// What an event costs is the slope of own time over their number, and where heavier requests have more of them it is too much; nobody is to
/// read it as what the kernel takes.
pub fn notes(diagnosis: &Diagnosis) -> Vec<String> {
    let (causes, circumstances) = (&diagnosis.causes, &diagnosis.circumstances);
    let of_cost = |cost: &EstimatedCost| {
        let cause = causes.iter().find(|c| c.subject.as_ref() == Some(&cost.subject) && c.share.abs() >= NOTED)?;
        Some(format!("{} {}", one_costs(&cost.subject)?, made_of(cost, cause)))
    };
    let is_class = |c: &&Cause| matches!(c.subject, Some(Subject::Class { .. }));
    let class = causes.iter().find(is_class).filter(|c| c.share >= NOTED).and(circumstances.classes);
    let of_classes =
        |what| format!("requests are told apart by their {what}: those of one kind are compared with each other");
    circumstances.costs.iter().filter_map(of_cost).chain(class.map(of_classes)).collect()
}

/// The beginning of a sentence about what one event costs.
fn one_costs(subject: &Subject) -> Option<&'static str> {
    Some(match subject {
        Subject::PageFaults => "the time of page faults is estimated, not measured; a fault takes",
        Subject::AfterMigration => {
            "the cost of migrations to the thread afterwards is estimated, not measured; one costs"
        }
        Subject::AroundInterrupts => {
            "the cost of other cores' interrupts outside their handlers is estimated, not measured; one costs"
        }
        _ => return None,
    })
}

/// What an event costs, and what the row is made of: a reader who multiplies comes to its time.
fn made_of(cost: &EstimatedCost, cause: &Cause) -> String {
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
