//! Errors that are wrong usage.

use tailsight_load::LoadError;
use tailsight_measure::Error;

/// What contradicts itself is wrong usage: exit 2, as clap's own.
pub fn or_usage<T>(result: Result<T, Error>) -> anyhow::Result<T> {
    match result {
        Err(
            error @ (Error::Contradiction(_)
            | Error::Question(_)
            | Error::Load(LoadError::Plan(_) | LoadError::Parse { .. })),
        ) => {
            // With the usage of the command that was given, not of the whole program.
            let mut cli = crate::reference::command();
            cli.build();
            let given = std::env::args().nth(1).unwrap_or_default();
            let kind = clap::error::ErrorKind::ValueValidation;
            match cli.find_subcommand_mut(&given) {
                Some(command) => command.error(kind, error).exit(),
                None => cli.error(kind, error).exit(),
            }
        }
        other => Ok(other?),
    }
}
