//! `tailsight schema`: the JSON schema of what a command prints with `--json`, or the views of events for SQL.
//!
//! In: a command's name, or `events`. Out: JSON Schema, draft 2020-12, made from the types that the command prints, or SQL. A test reads real
//! outputs with the schemas and fails where an output has a field that its schema does not name. For readers a schema allows fields that
//! it does not name: outputs may grow.

use anyhow::Context;

use crate::cli::{EVENTS, Schema};
use crate::schemas::SCHEMAS;
use crate::{Exit, terminal};

/// Prints one.
pub fn run(args: &Schema) -> anyhow::Result<Exit> {
    if args.command == EVENTS {
        terminal::print(&tailsight_trace::duckdb::views())?;
        return Ok(Exit::Done);
    }
    let printed = SCHEMAS.iter().find(|printed| printed.command == args.command).context("no such command")?;
    terminal::print_json(&printed.schema())?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// A command that prints JSON has a schema, and no other has.
    #[test]
    fn every_command_with_json_has_a_schema() {
        let cli = crate::cli::Cli::command();
        let with_json = cli.get_subcommands().filter(|c| c.get_arguments().any(|a| a.get_long() == Some("json")));
        let mut commands: Vec<&str> = with_json.map(clap::Command::get_name).collect();
        let mut schemas = SCHEMAS.map(|printed| printed.command);
        commands.sort_unstable();
        schemas.sort_unstable();
        assert_eq!(commands, schemas);
    }
}
