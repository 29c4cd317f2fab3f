//! `tailsight symbolise`: names the functions of a run's samples by debug files, later and on any machine.

use std::fmt::Write;
use std::path::Path;

use anyhow::bail;
use tailsight_symbolise::debug_files::{self, Resolution};
use tailsight_symbolise::reader::Reader;
use tailsight_trace::{Run, RunWriter};

use crate::cli_symbolise::Symbolise;
use crate::{Exit, terminal};

/// Looks for the files, replaces the run's tables of samples where something was found, and says what was.
pub fn run(args: &Symbolise) -> anyhow::Result<Exit> {
    if let Some(dir) = args.debug_dir.iter().find(|dir| !dir.is_dir() && *dir != Path::new(USUAL)) {
        bail!("{} is not a directory\n  give one that holds debug files, or programs with symbols", dir.display());
    }
    let run = Run::open(&args.run)?;
    if let Some(why) = run.partial.first() {
        bail!("{} is not whole ({why}): it is left as it is", args.run.display());
    }
    if run.samples.frames.is_empty() {
        bail!("{} has no samples\n  record without --sample off", args.run.display());
    }
    let resolution = debug_files::resolve(&run.samples, &args.debug_dir, Reader::start());
    if resolution.samples != run.samples {
        let mut meta = run.meta.clone();
        if let Some(sampling) = &mut meta.sampling {
            let user =
                resolution.samples.stacks.iter().flatten().filter_map(|&f| resolution.samples.frames.get(f as usize));
            sampling.unnamed = user
                .filter(|f| !f.kernel)
                .fold([0, 0], |[none, functions], f| [none + u64::from(f.function.is_empty()), functions + 1]);
        }
        let writer = RunWriter::reopen(&args.run, &meta)?;
        writer.samples(&resolution.samples)?;
        writer.finish(&mut meta)?;
    }
    terminal::print(&text(&resolution))?;
    Ok(Exit::Done)
}

/// Where distributions put debug files.
const USUAL: &str = "/usr/lib/debug";

fn text(resolution: &Resolution) -> String {
    let mut out = format!(
        "Named:    {} functions that had no name; {} have none\nLines:    {} places have a source line now\n",
        resolution.named, resolution.unnamed, resolution.lines
    );
    let (with, without): (Vec<_>, Vec<_>) = resolution.modules.iter().partition(|m| m.file.is_some());
    for module in with {
        if let Some(file) = &module.file {
            let _ = writeln!(out, "Found:    {} ({}) in {}", module.name, module.build_id, file.display());
        }
    }
    for module in without {
        let _ = writeln!(out, "Missing:  {} ({})", module.name, module.build_id);
    }
    for note in &resolution.notes {
        let _ = writeln!(out, "Unread:   {note}");
    }
    out
}
