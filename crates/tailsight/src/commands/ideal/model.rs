//! `ideal --model`: a queue in Kendall's notation.

use tailsight_queue::Model;
use tailsight_queue::predict::{Question, predict};
use tailsight_report::terminal::ideal;

use super::{or_usage, verdict};
use crate::cli_ideal::Ideal;
use crate::{Verdict, terminal};

/// Simulates and prints.
pub fn run(args: &Ideal, model: &Model) -> anyhow::Result<Verdict> {
    let recorded = match &args.arrivals {
        Some(path) => Some(tailsight_load::read_times(path)?),
        None => None,
    };
    let prediction = or_usage(predict(&Question {
        model: model.clone(),
        discipline: args.discipline,
        requests: args.requests,
        seed: args.seed,
        service_ns: args.service.map(|ns| ns as f64),
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
