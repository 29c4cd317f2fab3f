//! `ideal RUN`: a recorded server beside the ideal on its own arrivals.

use std::path::Path;

use tailsight_ideal::queue::QueueError;
use tailsight_ideal::{Error, GivenParameters, Ideal as Found, capacity, ideal};
use tailsight_measure::capacity::Calibration;
use tailsight_report::terminal::ideal as shown;

use super::{or_usage, plot, verdict};
use crate::cli_ideal::Ideal;
use crate::{Exit, pipeline, terminal};

/// Compares and prints.
pub fn run(args: &Ideal, run: &Path, calibration: Option<&Calibration>) -> anyhow::Result<Exit> {
    let opened = pipeline::open(run)?;
    let known = GivenParameters {
        service_ns: args.service.or(calibration.map(|c| c.service_ns)),
        calibrated: args.service.is_none() && calibration.is_some(),
        workers: args.workers,
    };
    let name = run.display().to_string();
    let work = opened.analysis.work();
    let found = match ideal(&name, &opened.analysis.lifetimes, &work, &known, &args.percentiles()) {
        Ok(found) => found,
        // With a service time that was given the question is wrong, with the run's own the run is too short or too busy.
        Err(Error::Queue(error @ QueueError::Unstable { .. })) if known.service_ns.is_some() => {
            or_usage::<Found, _>(Err(error))
        }
        Err(error @ (Error::NoIdeal { .. } | Error::Queue(_))) => {
            say!("tailsight: {error}");
            return Ok(Exit::NotAvailable);
        }
        Err(error) => return Err(error.into()),
    };
    let mut found = found;
    if let Some(objective) = args.slo {
        found.capacity = match capacity(&opened.analysis, &work, &found.model, objective) {
            Ok(capacity) => Some(capacity),
            Err(error @ (Error::NoIdeal { .. } | Error::Queue(_))) => {
                say!("tailsight: {error}");
                return Ok(Exit::NotAvailable);
            }
            Err(error) => return Err(error.into()),
        };
    }
    if let Some(file) = &args.plot {
        plot::write(file, &found)?;
        say!("wrote {}", file.display());
    }
    if args.json {
        terminal::print_json(&found)?;
    } else {
        terminal::print(&shown::of_run(&found, &terminal::style()))?;
    }
    Ok(verdict(args, &found.not_available))
}
