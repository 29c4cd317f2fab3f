//! `tailsight diagnose`: names the causes of a run's slow messages.

use tailsight_diagnose::{Error, Options};
use tailsight_report::terminal::{diagnosis_of, distribution, ideal, more};

use crate::cli::Diagnose;
use crate::{Exit, pipeline, terminal};

/// Diagnoses and prints.
pub fn run(args: &Diagnose) -> anyhow::Result<Exit> {
    // A wrong question is found before the run is read.
    let options = match pipeline::options(&args.question) {
        Ok(options) => Options { more: args.more, ..options },
        Err(error) => return not_available_or(error),
    };
    let opened = pipeline::open(&args.run)?;
    let against = args.against.as_deref().map(pipeline::open).transpose()?;
    let options = pipeline::chosen(options, Some(&args.question), &opened, against.as_ref());
    let found = match args.without.as_slice() {
        [] => pipeline::diagnose_against(&opened, &options, against.as_ref()).map(|(diagnosis, _)| diagnosis),
        names => pipeline::diagnose_without(&opened, &options, names),
    };
    let diagnosis = match found {
        Ok(diagnosis) => diagnosis,
        Err(error) => {
            for warning in &opened.run.meta.warnings {
                say!("note: {warning}");
            }
            return not_available_or(error);
        }
    };
    if args.json {
        terminal::print_json(&diagnosis)?;
    } else {
        let style = terminal::style();
        terminal::print(&ideal::without(&diagnosis, &style))?;
        terminal::print(&diagnosis_of(&diagnosis, Some(&opened.run.meta), &style))?;
        // ASCII has no blocks; causes that were taken out changed the latencies.
        if !terminal::is_ascii() && args.without.is_empty() {
            terminal::print(&distribution(&opened.analysis.lifetimes.messages, &diagnosis, &style))?;
        }
        terminal::print(&ideal::of_diagnosis(&diagnosis, &style))?;
        terminal::print(&more(&diagnosis, &style))?;
    }
    Ok(pipeline::verdict(&diagnosis))
}

/// Not enough evidence for the question is N/A (exit 3); everything else is a failure.
pub fn not_available_or(error: anyhow::Error) -> anyhow::Result<Exit> {
    let lost = error.downcast_ref::<pipeline::TooMuchLost>().is_some();
    match error.downcast_ref::<Error>() {
        _ if lost => {
            say!("tailsight: {error}");
            Ok(Exit::NotAvailable)
        }
        Some(
            Error::NotEnough { .. } | Error::NoMessages { .. } | Error::NoSuchCause { .. } | Error::NoIdeal { .. },
        ) => {
            say!("tailsight: {error}");
            Ok(Exit::NotAvailable)
        }
        _ => Err(error),
    }
}
