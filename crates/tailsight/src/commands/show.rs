//! `tailsight show`: one message, step by step.

use tailsight_diagnose::Error;
use tailsight_diagnose::cohorts::chosen_class::InClass;
use tailsight_diagnose::show::{ShowInput, no_such, show};
use tailsight_lifetime::Leg;
use tailsight_report::terminal::rules::of_message;
use tailsight_report::terminal::{message_of, rules};

use super::diagnose::not_available_or;
use crate::cli::Show;
use crate::{Exit, pipeline, terminal};

/// Shows the message.
pub fn run(args: &Show) -> anyhow::Result<Exit> {
    let options = pipeline::options(&args.question)?;
    let opened = pipeline::open(&args.run)?;
    let mut options = match pipeline::asked(options, &args.question, &opened, None) {
        Ok((options, _)) => options,
        Err(error) => return not_available_or(error.into()),
    };
    let lifetimes = &opened.analysis.lifetimes;
    let in_class = InClass::new(options.class.as_ref(), &lifetimes.classes);
    // A message that was not answered has its receive leg at least; only a leg that was asked for is insisted on.
    let message = lifetimes.messages.get(args.id as usize);
    if args.question.leg.is_none() && message.is_some_and(|m| m.latency(options.leg).is_none()) {
        options.leg = Leg::Receive;
    }
    if message.is_none_or(|m| !in_class.has(m)) {
        say!("tailsight: {}", no_such(lifetimes, (options.leg, &in_class), args.id));
        return Ok(Exit::Usage);
    }
    if message.is_none_or(|m| m.latency(options.leg).is_none()) {
        return Err(no_such(lifetimes, (options.leg, &in_class), args.id).into());
    }
    let (diagnosis, causes) = match pipeline::diagnose(&opened, &options) {
        Ok(diagnosed) => diagnosed,
        Err(error) => return not_available_or(error),
    };
    let path = opened.analysis.path(args.id, options.leg);
    let inputs = ShowInput { path: &path, diagnosis: &diagnosis, causes: &causes, samples: Some(&opened.run.samples) };
    let mut shown = show(lifetimes, &options, args.id, &inputs).map_err(|error: Error| anyhow::Error::from(error))?;
    if options.leg == Leg::Total {
        let ideal = tailsight_ideal::of_run(&opened.analysis, &opened.analysis.work());
        shown.ideal_ns = ideal.and_then(|ideal| ideal.by_id().get(args.id as usize).copied().flatten());
    }
    shown.settings = pipeline::settings(&opened.run.meta);
    if args.json {
        terminal::print_json(&shown)?;
    } else {
        let style = terminal::style();
        terminal::print(&message_of(&shown, &diagnosis, &style))?;
        if args.why {
            terminal::print(&rules(&of_message(&shown.spans), &style))?;
        }
    }
    Ok(Exit::Done)
}
