//! `ideal`: the latency that nothing but the queue would give. In: words. Out: percentiles, an exit code.

pub mod calibrate;
mod model;
mod of_run;
mod plot;

use std::collections::BTreeMap;

use tailsight_report::terminal::ideal as shown;

use crate::cli_ideal::Ideal;
use crate::{Exit, terminal};

/// Simulates and prints.
pub fn run(args: &Ideal) -> anyhow::Result<Exit> {
    if let Some(queue) = &args.model {
        return model::run(args, queue);
    }
    let calibration = match (&args.calibrate, &args.calibration) {
        (Some(target), _) => match calibrate::run(args, target)? {
            Some(peak) => Some(peak),
            None => return Ok(Exit::NotAvailable),
        },
        (None, Some(path)) => Some(calibrate::read(path)?),
        (None, None) => None,
    };
    if let Some(dir) = &args.run {
        return of_run::run(args, dir, calibration.as_ref());
    }
    if let Some(peak) = &calibration {
        if args.json {
            terminal::print_json(peak)?;
        } else {
            terminal::print(&shown::calibration(peak, &terminal::style()))?;
        }
    }
    Ok(Exit::Done)
}

/// Percentiles that were asked for must be there; of the usual ones p99 must.
fn verdict(args: &Ideal, missing: &BTreeMap<String, String>) -> Exit {
    let lacks = if args.percentile.is_empty() { missing.contains_key("p99") } else { !missing.is_empty() };
    if lacks { Exit::NotAvailable } else { Exit::Done }
}

/// What is asked of a queue and cannot be, a file of times that holds none among it, is wrong usage: exit 2, with the usage of this
/// command.
fn or_usage<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| {
        let mut cli = crate::reference::command();
        cli.build();
        let kind = clap::error::ErrorKind::ValueValidation;
        match cli.find_subcommand_mut("ideal") {
            Some(command) => command.error(kind, error).exit(),
            None => cli.error(kind, error).exit(),
        }
    })
}
