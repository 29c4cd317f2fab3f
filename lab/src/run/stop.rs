//! Why a run of a scenario has no result: it cannot run here, or it failed. In: what happened. Out: [`Stop`].

use std::path::PathBuf;

/// Why there is no result.
#[derive(Debug)]
pub enum Stop {
    /// It cannot run here; not counted.
    NotRun(String),
    /// It should have run and failed.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Not run without a program of Debian's.
pub(super) fn installed(program: &str) -> Result<(), Stop> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut folders_of_path =
        std::env::split_paths(&folders).chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    if folders_of_path.any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(Stop::NotRun(format!("{program} is not installed")))
}
