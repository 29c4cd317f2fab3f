//! `ideal`: the latency that nothing but the queue would give. In: words. Out: percentiles, an exit code.

mod model;

use clap::CommandFactory;
use tailsight_queue::QueueError;

use crate::Verdict;
use crate::cli_ideal::Ideal;

/// Simulates and prints.
pub fn run(args: &Ideal) -> anyhow::Result<Verdict> {
    match &args.model {
        Some(queue) => model::run(args, queue),
        None => Err(anyhow::anyhow!("no model was given")),
    }
}

/// What is asked of a queue and cannot be is wrong usage: exit 2, with the usage of this command.
fn or_usage<T>(result: Result<T, QueueError>) -> T {
    result.unwrap_or_else(|error| {
        let mut cli = crate::cli::Cli::command();
        cli.build();
        let kind = clap::error::ErrorKind::ValueValidation;
        match cli.find_subcommand_mut("ideal") {
            Some(command) => command.error(kind, error).exit(),
            None => cli.error(kind, error).exit(),
        }
    })
}
