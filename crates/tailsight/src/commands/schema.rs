//! `tailsight schema`: the JSON schema of what a command prints with `--json`, or the views of events for SQL.
//!
//! In: a command's name, or `events`. Out: JSON Schema, draft 2020-12, or SQL. The schemas are files in `schema/` of this crate; a test reads real outputs with
//! them and fails where an output has a field that its schema does not name, so that neither changes without the other. For readers a
//! schema allows fields that it does not name: outputs may grow.

use crate::cli::Schema;
use crate::schemas::{EVENTS, SCHEMAS};
use crate::{Exit, terminal};

/// Prints one.
pub fn run(args: &Schema) -> anyhow::Result<Exit> {
    if args.command == EVENTS {
        terminal::print(&tailsight_trace::duckdb::views())?;
        return Ok(Exit::Done);
    }
    let found = SCHEMAS.iter().find(|(name, _)| *name == args.command);
    terminal::print(found.map_or("", |(_, text)| text))?;
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
        let mut schemas = SCHEMAS.map(|(name, _)| name);
        commands.sort_unstable();
        schemas.sort_unstable();
        assert_eq!(commands, schemas);
    }
}
