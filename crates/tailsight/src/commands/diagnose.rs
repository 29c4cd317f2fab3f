//! `tailsight diagnose`: names the causes of a run's slow messages.

use tailsight_diagnose::{Diagnosis, Error, Options, Titled};
use tailsight_ideal::{Error as NoIdeal, Objective, capacity};
use tailsight_lifetime::{Leg, Rule, Without};
use tailsight_report::terminal::{diagnosis_of, distribution, ideal, more, rules};
use tailsight_units::format::duration;

use crate::cli::Diagnose;
use crate::commands::usage::or_usage;
use crate::{Exit, pipeline, terminal};

/// Diagnoses and prints.
pub fn run(args: &Diagnose) -> anyhow::Result<Exit> {
    args.threshold.iter().for_each(|(threshold, value)| threshold.replace(*value));
    // A wrong question is found before the run is read.
    if args.slo.is_some() && args.question.leg.is_some_and(|leg| leg != Leg::Total) {
        let why = "--slo is about the total leg; leave out --leg";
        return or_usage(Err(tailsight_measure::Error::Contradiction(why.into())));
    }
    let options = match pipeline::options(&args.question) {
        Ok(options) => Options { more: args.more, why: args.why, verbose: args.verbose, ..options },
        Err(error) => return not_available_or(error),
    };
    let (opened, latencies, diagnosed) = if args.more || args.against.is_some() || !args.without.is_empty() {
        let opened = pipeline::open(&args.run)?;
        let against = args.against.as_deref().map(pipeline::open).transpose()?;
        let (options, latencies) = match pipeline::asked(options, &args.question, &opened, against.as_ref()) {
            Ok(asked) => asked,
            Err(error) => return not_available_or(error.into()),
        };
        let diagnosed = match args.without.as_slice() {
            [] => pipeline::diagnose_against(&opened, &options, against.as_ref()).map(|(diagnosis, _)| diagnosis),
            names => pipeline::diagnose_without(&opened, &options, names),
        };
        (opened, latencies, diagnosed)
    } else {
        let opened = pipeline::open_for(&args.run, &args.question, without(&args.without_rule), options);
        let (opened, options, selection) = match opened {
            Ok(opened) => opened,
            Err(error) => return not_available_or(error),
        };
        let diagnosed = pipeline::diagnose_selected(&opened, &options, None, Some(&selection));
        (opened, selection.latencies, diagnosed.map(|(diagnosis, _)| diagnosis))
    };
    let mut diagnosis = match diagnosed {
        Ok(diagnosis) => diagnosis,
        Err(error) => {
            for warning in &opened.run.meta.warnings {
                say!("note: {warning}");
            }
            return not_available_or(error);
        }
    };
    let allowed = args.slo.map_or(Ok(()), |objective| allow(&mut diagnosis, &opened, objective));
    if args.json {
        terminal::print_json(&diagnosis)?;
    } else {
        let style = terminal::style();
        terminal::print(&ideal::without(&diagnosis, &style))?;
        terminal::print(&diagnosis_of(&diagnosis, Some(&opened.run.meta), &style))?;
        // ASCII has no blocks; causes that were taken out changed the latencies.
        if !terminal::is_ascii() && args.without.is_empty() {
            terminal::print(&distribution(&latencies, &diagnosis, &style))?;
        }
        terminal::print(&ideal::of_diagnosis(&diagnosis, &style))?;
        terminal::print(&more(&diagnosis, &style))?;
        terminal::print(&rules(&diagnosis.rules, &style))?;
    }
    // To give a run's tables back piece by piece before the process ends takes longer than to end it.
    std::mem::forget((opened, latencies));
    // Said when everything else is, whatever the verdict; a worse one stands.
    let allowed = allowed.map_or_else(|why| not_available_or(why.into()), |()| Ok(Exit::Done))?;
    Ok(match pipeline::verdict(&diagnosis) {
        Exit::Done => match args.fail_above.map(|limit| gate(&diagnosis, limit)) {
            Some(Exit::Done) | None => allowed,
            Some(failed) => failed,
        },
        exit => exit,
    })
}

fn without(rules: &[Rule]) -> Without {
    rules.iter().fold(Without::default(), |without, &rule| without.and(rule))
}

/// Adds the load that an objective allows.
fn allow(diagnosis: &mut Diagnosis, opened: &pipeline::Opened, objective: Objective) -> Result<(), NoIdeal> {
    let analysis = &opened.analysis;
    let Some(ideal) = &mut diagnosis.ideal else {
        let (app, why) = (
            analysis.lifetimes.app.clone(),
            "no queue fits this server, or it is not the total leg that is explained".to_owned(),
        );
        return Err(NoIdeal::NoIdeal { app, why });
    };
    ideal.capacity = Some(capacity(analysis, &analysis.work(), &ideal.model, objective)?);
    Ok(())
}

/// The gate of `--fail-above`: not met when a row's whole interval is above `limit` ns. Unexplained time counts as a cause does: a
/// run that became slower for an unknown reason must not pass.
fn gate(diagnosis: &Diagnosis, limit: u64) -> Exit {
    let mut exit = Exit::Done;
    for cause in diagnosis.causes.iter().filter(|cause| is_above(cause.ci95_ns, limit)) {
        let [low, high] = cause.ci95_ns.map(|ns| duration(ns.unsigned_abs()));
        say!(
            "tailsight: {} {}: {}, 95 % interval {low} to {high}, is above --fail-above {}",
            cause.category.as_str(),
            cause.title(),
            duration(cause.deviation_ns.unsigned_abs()),
            duration(limit),
        );
        exit = Exit::GateNotMet;
    }
    exit
}

/// Whether an interval in ns lies above a limit as a whole.
fn is_above(ci95_ns: [i64; 2], limit: u64) -> bool {
    u64::try_from(ci95_ns[0]).is_ok_and(|low| low > limit)
}

/// Not enough evidence for the question is N/A (exit 3), a class that the run does not have is wrong usage (exit 2); everything else is a failure.
pub fn not_available_or(error: anyhow::Error) -> anyhow::Result<Exit> {
    if matches!(error.downcast_ref(), Some(Error::NoSuchClass { .. })) {
        say!("tailsight: {error}");
        return Ok(Exit::Usage);
    }
    let lost = error.downcast_ref::<pipeline::TooMuchLost>().is_some();
    let few = matches!(error.downcast_ref(), Some(Error::NotEnough { .. } | Error::NoMessages { .. }));
    let no_ideal = matches!(error.downcast_ref(), Some(NoIdeal::NoSuchCause { .. } | NoIdeal::NoIdeal { .. }));
    if lost || few || no_ideal {
        say!("tailsight: {error}");
        return Ok(Exit::NotAvailable);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::is_above;

    #[test]
    fn only_an_interval_that_is_above_the_limit_as_a_whole_fails_the_gate() {
        assert!(is_above([1_001, 5_000], 1_000));
        assert!(!is_above([1_000, 5_000], 1_000), "it contains the limit");
        assert!(!is_above([-50, 5_000], 0), "it contains 0");
        assert!(!is_above([-5_000, -50], 0), "less of it than in the reference");
    }
}
