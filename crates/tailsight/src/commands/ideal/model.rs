//! `ideal --model`: a queue in Kendall's notation.

use std::path::Path;

use tailsight_ideal::arrivals;
use tailsight_ideal::queue::predict::{Question, predict};
use tailsight_ideal::queue::{Model, QueueError, ServiceTimes};
use tailsight_report::terminal::ideal;

use super::{or_usage, verdict};
use crate::cli_ideal::Ideal;
use crate::{Exit, pipeline, terminal};

/// Simulates and prints.
pub fn run(args: &Ideal, model: &Model) -> anyhow::Result<Exit> {
    let recorded = args.arrivals.as_deref().map(times).transpose()?;
    let model = Model { service: or_usage(service(args, model)), ..model.clone() };
    // Measured times tell their mean.
    let mean = match &model.service {
        ServiceTimes::Empirical(times) => Some(times.iter().map(|ns| *ns as f64).sum::<f64>() / times.len() as f64),
        _ => None,
    };
    let prediction = or_usage(predict(&Question {
        model,
        discipline: args.discipline,
        requests: args.requests,
        seed: args.seed,
        service_ns: args.service.map(|ns| ns as f64).or(mean),
        recorded: recorded.as_deref(),
        percentiles: args.percentiles(),
    }));
    if args.json {
        terminal::print_json(&prediction)?;
    } else {
        terminal::print(&ideal::model(&prediction, &terminal::style()))?;
    }
    Ok(verdict(args, &prediction.not_available))
}

/// The times of a file, or when the messages of a run arrived.
fn times(path: &Path) -> anyhow::Result<Vec<u64>> {
    if path.is_dir() {
        return Ok(arrivals(&pipeline::open(path)?.analysis.lifetimes.messages));
    }
    Ok(or_usage(tailsight_load::read_times(path)))
}

/// The service times of the model, from the file where it wants those of one.
fn service(args: &Ideal, model: &Model) -> Result<ServiceTimes, QueueError> {
    let wants = matches!(&model.service, ServiceTimes::Empirical(times) if times.is_empty());
    match (&args.service_times, wants) {
        (None, true) => Err(QueueError::NeedsServiceTimes),
        (None, false) => Ok(model.service.clone()),
        (Some(_), false) => Err(QueueError::Parse {
            what: "a model with --service-times",
            text: model.to_string(),
            expected: "empirical service times, such as 'M/empirical/4 80%'",
        }),
        (Some(path), true) => ServiceTimes::empirical(&or_usage(tailsight_load::read_lengths(path))),
    }
}
