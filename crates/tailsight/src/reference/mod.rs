//! The command line's one definition, and what is made of it: the parser, `--help`, the man pages, the completions and
//! `docs/commands.md`.
//!
//! Options, their values, defaults and help texts are declared in `cli*.rs` (clap's derive). What a command has besides, its
//! examples, exit codes, files and variables of the environment, is in [`pages`]. [`command`] joins the two; every output is
//! made from its result, so that none can say something else than another.

mod man;
#[cfg(test)]
mod markdown;
pub mod pages;

use clap::{Command, CommandFactory};

pub use man::{man_page, man_pages};

use crate::cli::Cli;
use pages::Page;

/// No line of `--help` is wider, in columns.
pub const HELP_WIDTH: usize = 80;

/// The whole command line: clap's definition with the texts of [`pages`].
pub fn command() -> Command {
    let mut program = Cli::command().max_term_width(HELP_WIDTH);
    for page in pages::PAGES {
        program = if page.name == "tailsight" {
            dressed(program, page, "tailsight")
        } else {
            program.mut_subcommand(page.name, |command| dressed(command, page, &format!("tailsight {}", page.name)))
        };
    }
    program
}

fn dressed(command: Command, page: &Page, called: &str) -> Command {
    #[cfg(not(all(feature = "export", feature = "intel-pt", feature = "load")))]
    if command.is_disable_help_flag_set() {
        return command.about(crate::cli_absent::ABOUT);
    }
    let command = command.after_help(after_help(page));
    if page.usage.is_empty() {
        return command;
    }
    // Below `Usage: `, each form under the one before.
    let forms: Vec<String> = page.usage.iter().map(|form| format!("{called} {form}")).collect();
    command.override_usage(forms.join("\n       "))
}

/// What stands below the options in `--help`.
fn after_help(page: &Page) -> String {
    let mut parts: Vec<String> = page.notes.iter().map(|note| (*note).to_owned()).collect();
    if !page.examples.is_empty() {
        let mut text = "Examples:".to_owned();
        for (what, line) in page.examples {
            if !what.is_empty() {
                text += &format!("\n  # {what}");
            }
            text += &format!("\n  {}", line.replace('\n', "\n  "));
        }
        parts.push(text);
    }
    if !page.exits.is_empty() {
        let codes: Vec<String> = page.exits.iter().map(|(code, means)| format!("{code} {means}")).collect();
        parts.push(format!("Exit codes: {}.", codes.join("; ")));
    }
    let table = |title: &str, rows: &[(&str, &str)]| {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let rows: Vec<String> = rows.iter().map(|(name, what)| format!("  {name:width$}  {what}")).collect();
        format!("{title}:\n{}", rows.join("\n"))
    };
    if !page.environment.is_empty() {
        parts.push(table("Environment", page.environment));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests;
