//! `tailsight completions`: what a shell needs to complete the commands and options.

use crate::cli::Completions;
use crate::{Verdict, reference, terminal};

/// Prints the script of a shell.
pub fn run(args: &Completions) -> anyhow::Result<Verdict> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut reference::command(), "tailsight", &mut text);
    terminal::print(&String::from_utf8(text)?)?;
    Ok(Verdict::Done)
}
