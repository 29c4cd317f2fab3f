//! `tailsight completions`: the script by which a shell completes commands, options and their values.
//!
//! In: the command line's definition ([`reference::command`]). Out: the script. Hidden commands and options are left out, and fish gets
//! the values of positional arguments, which clap's generator for fish does not write.

use std::fmt::Write;

use clap::{Arg, Command};
use clap_complete::Shell;

use crate::cli::Completions;
use crate::{Exit, reference, terminal};

/// The name of the program, in the scripts too.
const PROGRAM: &str = "tailsight";

/// Prints the script of a shell.
pub fn run(args: &Completions) -> anyhow::Result<Exit> {
    terminal::print(&script(args.shell)?)?;
    Ok(Exit::Done)
}

fn script(shell: Shell) -> anyhow::Result<String> {
    let mut command = shown(&reference::command(), PROGRAM);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, PROGRAM, &mut text);
    let mut text = String::from_utf8(text)?;
    if shell == Shell::Fish {
        text += &positionals_in_fish(&command);
    }
    Ok(text)
}

/// A command without what it hides.
fn shown(command: &Command, name: &'static str) -> Command {
    let is_shown = |id: &clap::Id| command.get_arguments().any(|arg| arg.get_id() == id && !arg.is_hide_set());
    let mut shown = Command::new(name).args(command.get_arguments().filter(|arg| !arg.is_hide_set()));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if name == PROGRAM {
        shown = shown.version(env!("CARGO_PKG_VERSION"));
    }
    // A group of a hidden option could not be built without it.
    shown = shown.groups(command.get_groups().filter(|group| group.get_args().all(is_shown)));
    for name in reference::pages::names().into_iter().filter(|name| *name != PROGRAM) {
        if let Some(subcommand) = command.find_subcommand(name).filter(|subcommand| !subcommand.is_hide_set()) {
            shown = shown.subcommand(self::shown(subcommand, name));
        }
    }
    shown
}

/// The lines that offer the values of positional arguments.
fn positionals_in_fish(command: &Command) -> String {
    let mut text = String::new();
    for subcommand in command.get_subcommands() {
        let values: Vec<String> =
            subcommand.get_positionals().flat_map(Arg::get_possible_values).map(|v| v.get_name().to_owned()).collect();
        if !values.is_empty() {
            let (name, values) = (subcommand.get_name(), values.join(" "));
            let _ = writeln!(
                text,
                "complete -c {PROGRAM} -n \"__fish_{PROGRAM}_using_subcommand {name}\" -f -a \"{values}\""
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `demo-load` and `--empty-hooks`, which `--help` does not show, were offered.
    #[test]
    fn no_script_offers_what_help_hides() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = script(shell).unwrap();
            assert!(text.contains("record") && text.contains("nic-tx-stamps"), "{shell}");
            assert!(!text.contains("demo-load") && !text.contains("empty-hooks"), "{shell}");
        }
    }

    #[test]
    fn fish_is_told_the_values_of_positional_arguments() {
        let text = script(Shell::Fish).unwrap();
        assert!(text.contains("using_subcommand completions\" -f -a \"bash "), "{text}");
        assert!(text.contains("using_subcommand schema\" -f -a \"doctor record watch diagnose"), "{text}");
    }
}
