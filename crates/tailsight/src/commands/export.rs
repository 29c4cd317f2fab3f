//! `tailsight export`: a run's messages and lifetimes as Parquet.

use anyhow::Context;

use crate::cli::Export;
use crate::{Verdict, pipeline, terminal};

/// Writes the tables and prints their paths.
pub fn run(args: &Export) -> anyhow::Result<Verdict> {
    let opened = pipeline::open(&args.run)?;
    let dir = args.out.clone().unwrap_or_else(|| args.run.clone());
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    tailsight_lifetime::tables::write(&dir, &opened.analysis.lifetimes)?;
    for name in ["messages.parquet", "lifetimes.parquet"] {
        terminal::print(&format!("{}\n", dir.join(name).display()))?;
    }
    Ok(Verdict::Done)
}
