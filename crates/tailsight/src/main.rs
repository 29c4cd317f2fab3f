//! The command line: parses arguments, calls the crates, prints, and sets the exit code.

// What only absent commands use.
#![cfg_attr(not(all(feature = "export", feature = "intel-pt", feature = "load")), allow(dead_code))]

#[macro_use]
mod terminal;

mod cli;
#[cfg(not(all(feature = "export", feature = "intel-pt", feature = "load")))]
mod cli_absent;
#[cfg(feature = "load")]
mod cli_agent;
mod cli_common;
mod cli_fix;
mod cli_ideal;
#[cfg(feature = "intel-pt")]
mod cli_import;
#[cfg(feature = "load")]
mod cli_load;
mod cli_serve;
mod cli_symbolise;
#[cfg(feature = "load")]
mod cli_tune;
mod cli_view;
mod cli_watch;
mod commands;
mod memory;
mod page;
mod page_server;
mod pipeline;
mod reference;
mod schemas;
mod session;
mod stop;

use std::process::ExitCode;

use clap::FromArgMatches;
use cli::{Cli, Command};

/// The results of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit 0.
    Done,
    /// Exit 1; everything was said already.
    Failed,
    /// Exit 2: wrong usage that only the run shows; what was wrong was said already.
    Usage,
    /// Exit 3: measured, but the evidence is not enough.
    NotAvailable,
    /// Exit 4: measured, and a gate is not met.
    GateNotMet,
}

fn main() -> ExitCode {
    tailsight_symbolise::reader::start_readers_if_asked();
    // The same definition that the man pages and the completions are made of.
    let cli = match Cli::from_arg_matches(&reference::command().get_matches()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    terminal::only_ascii(cli.ascii);
    if let Some(name) = load_name(&cli.command) {
        // Best effort: a name is for who looks at processes.
        let _ = nix::sys::prctl::set_name(name);
    }
    let result = match cli.command {
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Demo(args) => commands::demo::run(&args),
        Command::Record(args) => commands::record::run(&args),
        Command::Watch(args) => commands::watch::run(&args),
        Command::Diagnose(args) => commands::diagnose::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::View(args) => commands::view::run(&args),
        Command::Show(args) => commands::show::run(&args),
        Command::Fix(args) => commands::fix::run(&args),
        Command::Tune(args) => commands::tune::run(&args),
        Command::Export(args) => commands::export::run(&args),
        Command::Import(args) => commands::import::run(&args),
        Command::Symbolise(args) => commands::symbolise::run(&args),
        Command::Ideal(args) => commands::ideal::run(&args),
        Command::Load(args) => commands::load::run(&args),
        Command::Sweep(args) => commands::sweep::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Agent(args) => commands::agent::run(&args),
        Command::Man(args) => commands::man::run(&args),
        Command::Schema(args) => commands::schema::run(&args),
        Command::Completions(args) => commands::completions::run(&args),
        Command::DemoLoad => commands::demo::load(),
    };
    match result {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::from(1),
        Ok(Exit::Usage) => ExitCode::from(2),
        Ok(Exit::NotAvailable) => ExitCode::from(3),
        Ok(Exit::GateNotMet) => ExitCode::from(4),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say!("tailsight: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// The process's name of a command that generates load, or serves one. In a recording of the server it is another program, and as `tailsight` it
/// would be taken for the recorder. At most 15 bytes; threads inherit it.
fn load_name(command: &Command) -> Option<&'static std::ffi::CStr> {
    match command {
        Command::Load(_) => Some(c"tailsight-load"),
        Command::Sweep(_) => Some(c"tailsight-sweep"),
        Command::Tune(_) => Some(c"tailsight-tune"),
        Command::Agent(_) => Some(c"tailsight-agent"),
        Command::Serve(_) => Some(c"tailsight-serve"),
        Command::Ideal(args) if args.calibrate.is_some() => Some(c"tailsight-ideal"),
        _ => None,
    }
}

/// The reader of our output went away (`| head`): not our failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>()).any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
