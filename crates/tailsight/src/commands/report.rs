//! `tailsight report`: a run's report as one HTML file.

use tailsight_diagnose::Options;

use super::diagnose::not_available_or;
use crate::cli::Report;
use crate::page::Diagnosed;
use crate::{Exit, pipeline, terminal};

/// Writes the page and prints its path.
pub fn run(args: &Report) -> anyhow::Result<Exit> {
    let options = match pipeline::options(&args.question) {
        // The page has room for everything.
        Ok(options) => Options { more: true, ..options },
        Err(error) => return not_available_or(error),
    };
    let opened = pipeline::open(&args.run)?;
    let against = args.against.as_deref().map(pipeline::open).transpose()?;
    let options = pipeline::chosen(options, Some(&args.question), &opened, against.as_ref());
    let (diagnosis, causes) = match pipeline::diagnose_against(&opened, &options, against.as_ref()) {
        Ok(found) => found,
        Err(error) => return not_available_or(error),
    };
    let out = args.out.clone().unwrap_or_else(|| args.run.join("report.html"));
    let page = Diagnosed {
        opened: &opened,
        options: &options,
        diagnosis: &diagnosis,
        causes: &causes,
        against: against.as_ref(),
    };
    pipeline::write_whole(&out, &page.file())?;
    terminal::print(&format!("{}\n", out.display()))?;
    Ok(pipeline::verdict(&diagnosis))
}
