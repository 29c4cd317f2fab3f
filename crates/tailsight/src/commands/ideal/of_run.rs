//! `ideal RUN`: a recorded server beside the ideal on its own arrivals.

use std::path::Path;

use tailsight_ideal::queue::QueueError;
use tailsight_ideal::{Error, GivenParameters, Ideal as Comparison, capacity, ideal};
use tailsight_measure::capacity::Calibration;
use tailsight_report::terminal::ideal as shown;

use super::{or_usage, plot, verdict};
use crate::cli_ideal::Ideal;
use crate::{Exit, pipeline, terminal};

/// Compares and prints.
pub fn run(args: &Ideal, run: &Path, calibration: Option<&Calibration>) -> anyhow::Result<Exit> {
    let opened = pipeline::open(run)?;
    let given = GivenParameters {
        service_ns: args.service.or(calibration.map(|c| c.service_ns)),
        calibrated: args.service.is_none() && calibration.is_some(),
        workers: args.workers,
    };
    let name = run.display().to_string();
    let work = opened.analysis.work();
    let comparison = match ideal(&name, &opened.analysis.lifetimes, &work, &given, &args.percentiles()) {
        Ok(comparison) => comparison,
        // With a service time that was given the question is wrong, with the run's own the run is too short or too busy.
        Err(Error::Queue(error @ QueueError::Unstable { .. })) if given.service_ns.is_some() => {
            or_usage::<Comparison, _>(Err(error))
        }
        Err(error @ (Error::NoIdeal { .. } | Error::Queue(_))) => {
            say!("tailsight: {error}");
            return Ok(Exit::NotAvailable);
        }
        Err(error) => return Err(error.into()),
    };
    let mut comparison = comparison;
    if let Some(objective) = args.slo {
        comparison.capacity = match capacity(&opened.analysis, &work, &comparison.model, objective) {
            Ok(capacity) => Some(capacity),
            Err(error @ (Error::NoIdeal { .. } | Error::Queue(_))) => {
                say!("tailsight: {error}");
                return Ok(Exit::NotAvailable);
            }
            Err(error) => return Err(error.into()),
        };
    }
    if let Some(file) = &args.plot {
        plot::write(file, &comparison)?;
        say!("wrote {}", file.display());
    }
    if args.json {
        terminal::print_json(&comparison)?;
    } else {
        terminal::print(&shown::of_run(&comparison, &terminal::style()))?;
    }
    Ok(verdict(args, &comparison.not_available))
}
