//! `tailsight completions`: what a shell needs to complete the commands and options.

use crate::cli::Completions;
use crate::{Exit, reference, terminal};

/// Prints the script of a shell.
pub fn run(args: &Completions) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut reference::command(), "tailsight", &mut text);
    terminal::print(&String::from_utf8(text)?)?;
    Ok(Exit::Done)
}
