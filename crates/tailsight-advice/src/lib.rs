//! Causes in words: explanations, fixes, notes and next steps.
//!
//! In: a [`Diagnosis`] whose causes are known, the question that it answers ([`Options`]), and facts about the recording. Out: the same
//! diagnosis with its words: plain sentences, and commands, filled in. The texts are in `data/advice.toml`; commands quote
//! whatever a recorded task may be named. Nothing is computed of messages here, and no sentence is read or changed once it is written.
//!
//! Start reading at [`fill()`].

mod actions;
mod change;
mod connections;
mod data;
mod estimates;
mod fixes;
mod functions;
mod median;
mod next;
mod notes;
mod placeholders;
mod sending;
mod sentences;

use tailsight_diagnose::cause::Category;
use tailsight_diagnose::model::{Diagnosis, Fix, NextStep};
use tailsight_diagnose::{Options, RecordingFacts};

pub use notes::limiting_hooks;
pub use sentences::root_words;

/// Fills in the words of a diagnosis, in the place of those that it has. `options`: what it was asked for.
pub fn fill(diagnosis: &mut Diagnosis, options: &Options, facts: &RecordingFacts) {
    let mut causes = std::mem::take(&mut diagnosis.causes);
    let mut not_significant = std::mem::take(&mut diagnosis.not_significant);
    let advisor = Advisor::new(diagnosis, facts);
    for cause in &mut causes {
        cause.explanation = match cause.category {
            Category::NotSignificant => sentences::not_told_from_chance(&not_significant, cause.ci95_ns),
            _ => advisor.explanation(cause),
        };
        (cause.steps, cause.actions) = advisor.fixes(cause);
        cause.fix = cause.steps.iter().map(Fix::to_string).collect();
    }
    if let (Some(shown), Some(first)) = (sentences::shown_beside(&causes), causes.first_mut()) {
        first.explanation += &format!("; {shown}");
    }
    not_significant.iter_mut().for_each(|row| row.explanation = advisor.sentence(row));
    actions::number(&mut causes, &facts.run, &actions::question(options, diagnosis.against.as_deref()));
    (diagnosis.causes, diagnosis.not_significant) = (causes, not_significant);
    if let Some(typical) = &mut diagnosis.typical {
        median::fill(typical, named(&diagnosis.app));
    }
    diagnosis.notes = notes::notes(diagnosis, options, facts);
    diagnosis.next_steps = next::next(diagnosis, facts);
    diagnosis.next = diagnosis.next_steps.iter().map(NextStep::to_string).collect();
}

/// What an application is called.
fn named(app: &str) -> &str {
    if app.is_empty() { "the target" } else { app }
}

/// What sentences and fixes need to know beside the cause.
struct Advisor<'a> {
    app: &'a str,
    facts: &'a RecordingFacts,
    /// Cores of the focus messages: receive core, application core.
    cores: &'a [Vec<u32>; 2],
    focus_messages: u64,
    /// Whether the focus is a tail: then its messages are slow.
    tail: bool,
    /// Whether a protocol could tell what the requests ask for.
    is_readable: bool,
    total_ns: i64,
    /// What the threads ran for each message, ns, where messages are said to have worked more than that.
    ran_only_ns: Option<u64>,
}

impl<'a> Advisor<'a> {
    fn new(diagnosis: &'a Diagnosis, facts: &'a RecordingFacts) -> Advisor<'a> {
        let (focus, reference) = (diagnosis.focus, diagnosis.reference);
        Advisor {
            app: named(&diagnosis.app),
            facts,
            cores: &diagnosis.circumstances.focus_cores,
            focus_messages: focus.messages,
            tail: focus.to == 1.0 && focus.from >= 0.5,
            is_readable: diagnosis.circumstances.is_readable,
            total_ns: focus.mean_ns as i64 - reference.mean_ns as i64,
            ran_only_ns: diagnosis.work.filter(|work| work.is_contradiction()).map(|work| work.ran_ns),
        }
    }
}
