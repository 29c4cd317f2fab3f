//! The command line of `view`.

use std::path::PathBuf;

use clap::Args;

use crate::cli_common::Question;

/// `view`.
#[derive(Debug, Args)]
pub struct View {
    /// The run directory
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The port, on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Messages that the page holds besides those in focus; of a larger run it fetches those of the part that is shown
    #[arg(long, value_name = "N", default_value_t = 250_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(100..))]
    pub points: usize,
    /// What is asked.
    #[command(flatten)]
    pub question: Question,
    /// Compare with the same slice of this other run
    #[arg(long, value_name = "RUN2", conflicts_with = "reference")]
    pub against: Option<PathBuf>,
}
