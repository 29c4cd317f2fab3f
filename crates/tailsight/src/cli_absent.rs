//! The command line of a command whose feature this build lacks (Cargo.toml): whatever follows its name.

use std::ffi::OsString;

/// The line of such a command in `--help`.
pub const ABOUT: &str =
    "Not in this program: it was built without it, as for `make demo` (`make build` builds everything)";

/// Any words.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Absent {
    /// Not read.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}
