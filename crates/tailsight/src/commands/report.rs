//! `tailsight report`: a run's report as one HTML file, or measurements of `load` overlaid on one page.

use anyhow::Context;
use tailsight_diagnose::Options;
use tailsight_measure::Error;

use super::diagnose::not_available_or;
use super::usage::or_usage;
use crate::cli::Report;
use crate::page::Diagnosed;
use crate::{Exit, pipeline, terminal};

/// Writes the page and prints its path.
pub fn run(args: &Report) -> anyhow::Result<Exit> {
    let (run, others) = args.runs.split_first().context("clap demands a run")?;
    if run.is_file() {
        return measurements(args);
    }
    if !run.exists() && run.extension().is_some_and(|ending| ending == "parquet") {
        anyhow::bail!("{} does not exist; give a run, or a file of `load -o`", run.display());
    }
    if !others.is_empty() {
        let n = args.runs.len();
        return or_usage(Err(Error::Contradiction(format!(
            "{n} run directories; a report is of one run, and --against RUN2 compares it with another. Several files of \
             `tailsight load -o FILE.parquet` are drawn on one page"
        ))));
    }
    let options = match pipeline::options(&args.question) {
        // The page has room for everything.
        Ok(options) => Options { more: true, ..options },
        Err(error) => return not_available_or(error),
    };
    let opened = pipeline::open(run)?;
    let against = args.against.as_deref().map(pipeline::open).transpose()?;
    let options = match pipeline::asked(options, &args.question, &opened, against.as_ref()) {
        Ok((options, _)) => options,
        Err(error) => return not_available_or(error.into()),
    };
    let (diagnosis, causes) = match pipeline::diagnose_against(&opened, &options, against.as_ref()) {
        Ok(diagnosed) => diagnosed,
        Err(error) => return not_available_or(error),
    };
    let out = args.out.clone().unwrap_or_else(|| run.join("report.html"));
    let page = Diagnosed {
        opened: &opened,
        options: &options,
        diagnosis: &diagnosis,
        causes: &causes,
        against: against.as_ref(),
    };
    pipeline::write_whole(&out, page.file())?;
    terminal::print(&format!("{}\n", out.display()))?;
    Ok(pipeline::verdict(&diagnosis))
}

/// The page of sample files, overlaid.
#[cfg(feature = "load")]
fn measurements(args: &Report) -> anyhow::Result<Exit> {
    use tailsight_report::load::{self as measured, Drawn};
    let draw = |path: &std::path::PathBuf| -> anyhow::Result<Drawn> {
        let stored = tailsight_measure::samples::read(path)?;
        Ok(Drawn::of_samples(&path.display().to_string(), &stored.report, &stored.rows))
    };
    let drawn = args.runs.iter().map(draw).collect::<anyhow::Result<Vec<Drawn>>>()?;
    let out = args.out.clone().unwrap_or_else(|| args.runs[0].with_extension("html"));
    pipeline::write_whole(&out, measured::page(&drawn))?;
    terminal::print(&format!("{}\n", out.display()))?;
    Ok(Exit::Done)
}

/// Without `load` there is nothing that reads its files.
#[cfg(not(feature = "load"))]
fn measurements(args: &Report) -> anyhow::Result<Exit> {
    anyhow::bail!(
        "{} is a file, and this program was built without `load`, as `make demo` builds it; `make build` builds everything",
        args.runs[0].display()
    )
}
