//! `tailsight import`: an Intel PT recording of perf, or what `perf script` printed of one, becomes a run.

use std::fmt::Write;
use std::path::Path;

use tailsight_confine::{capabilities, filter};
use tailsight_diagnose::Options;
use tailsight_diagnose::cohorts::focus::ranks;
use tailsight_pt::import::{self, FunctionTime, Imported, Output};
use tailsight_pt::{Gap, Places, Recording, Script};
use tailsight_symbolise::reader::Reader;
use tailsight_trace::Run;

use crate::cli_import::Import;
use crate::commands::import_json;
use crate::{Exit, pipeline, terminal};

/// Around a message so much is decoded, too, ns: a stack is known from the first return on.
const MARGIN_NS: u64 = 20_000;

/// Imports and says what was found.
pub fn run(args: &Import) -> anyhow::Result<Exit> {
    if args.file.join("run.json").is_file() {
        anyhow::bail!("{} is a Tailsight run; import takes a perf.data", args.file.display());
    }
    let output = Output { dir: &args.out, shared: args.into_shared, version: env!("CARGO_PKG_VERSION") };
    // Before this process may start nothing any more.
    let reader = Reader::start();
    give_up_rights();
    if args.file.is_file() && Script::is_one(&args.file) {
        if args.with.is_some() {
            anyhow::bail!(
                "{} is text: nothing in it says how its times relate to a run's\n  import the perf.data file itself with --with, \
                 or the text without",
                args.file.display()
            );
        }
        return told(&import::alone(&Script::open(&args.file)?, output)?, args);
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".debug"));
    let places =
        Places { roots: args.root.clone(), kernel: args.kernel.clone(), kallsyms: args.kallsyms.clone(), cache: home };
    let recording = Recording::open_with(&args.file, &places, reader)?;
    let imported = match &args.with {
        None => import::alone(&recording, output)?,
        Some(dir) => {
            let windows = if args.all { None } else { windows(dir)? };
            let mut run = Run::open(dir)?;
            import::with(&recording, &mut run, windows.as_deref(), output)?
        }
    };
    told(&imported, args)
}

/// What is read next was written by strangers: the recording, and the programs that ran. This process keeps the right to read and write
/// files; it may start no program, use no network and look into no process. What the kernel refuses of that is said.
fn give_up_rights() {
    if let Err(e) = capabilities::keep_only(&[capabilities::DAC_READ_SEARCH, capabilities::DAC_OVERRIDE]) {
        say!("note: capabilities were not given up: {e}");
    }
    if let Err(why) = filter::install(false) {
        say!("note: no seccomp filter: {why}");
    }
}

fn told(imported: &Imported, args: &Import) -> anyhow::Result<Exit> {
    if args.json {
        terminal::print_sorted(&as_json(imported))?;
    } else {
        terminal::print(&as_text(imported, args))?;
    }
    Ok(Exit::Done)
}

/// The messages that a diagnosis compares: from the first to the last that is known of each. `None`: too few to choose from.
fn windows(dir: &Path) -> anyhow::Result<Option<Vec<(u64, u64)>>> {
    let opened = pipeline::open(dir)?;
    let options = pipeline::chosen(Options::default(), None, &opened.latencies(), None);
    let messages = &opened.analysis.lifetimes.messages;
    let mut by_latency: Vec<(u64, u32)> =
        messages.iter().filter_map(|m| Some((m.latency(options.leg)?, m.id))).collect();
    by_latency.sort_unstable();
    let n = by_latency.len();
    if n < 2 * tailsight_diagnose::MIN_MESSAGES {
        return Ok(None);
    }
    let mut chosen: Vec<(u64, u64)> = Vec::new();
    for slice in [options.focus, options.reference] {
        for &(_, id) in &by_latency[ranks(n, slice)] {
            let path = opened.analysis.path(id, options.leg);
            if let (Some(first), Some(last)) = (path.first(), path.last()) {
                chosen.push((first.from_ns.saturating_sub(MARGIN_NS), last.to_ns + MARGIN_NS));
            }
        }
    }
    chosen.sort_unstable();
    Ok(Some(chosen))
}

fn as_json(imported: &Imported) -> import_json::Import {
    let counts = &imported.summary.counts;
    let sum = |by: &mut dyn Iterator<Item = &u64>| by.sum::<u64>();
    let gaps = Gap::ALL.iter().filter_map(|gap| Some((gap, counts.gaps.get(gap)?)));
    import_json::Import {
        schema: 1,
        events: imported.events,
        events_outside: imported.outside,
        clock_error_ns: imported.clock_error_ns,
        calls: sum(&mut counts.calls.values()),
        returns: sum(&mut counts.returns.values()),
        instructions: sum(&mut imported.summary.instructions.values()),
        spans: counts.spans,
        spans_unnamed: counts.unnamed,
        trace_bytes: imported.summary.trace_bytes,
        decoded_bytes: imported.summary.decoded_bytes,
        lost_records: imported.lost_records,
        granularity_ns: import_json::Granularity {
            p50: counts.granularity.quantile(0.5),
            p99: counts.granularity.quantile(0.99),
        },
        gaps: gaps.map(|(gap, &(count, ns))| import_json::Lack { why: gap.text(), count, ns }).collect(),
        missing: imported
            .missing
            .iter()
            .map(|(file, why)| import_json::MissingFile { file: file.clone(), why: why.clone() })
            .collect(),
        functions: imported.functions.iter().map(function).collect(),
    }
}

fn function(time: &FunctionTime) -> import_json::Function {
    import_json::Function {
        function: time.function.clone(),
        module: time.module.clone(),
        kernel: time.kernel,
        calls: time.calls,
        total_ns: time.total_ns,
        own_ns: time.own_ns,
    }
}

fn as_text(imported: &Imported, args: &Import) -> String {
    let counts = &imported.summary.counts;
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let mut out = format!(
        "Imported: {} spans of {} functions, {} of {} bytes of trace\n",
        counts.spans,
        imported.functions.len(),
        imported.summary.decoded_bytes,
        imported.summary.trace_bytes
    );
    if let (Some(half), Some(most)) = (counts.granularity.quantile(0.5), counts.granularity.quantile(0.99)) {
        let _ =
            writeln!(out, "Time:     in steps of {half} ns (median) to {most} ns (p99); ignore shorter differences");
    }
    if args.with.is_some() {
        let _ = writeln!(out, "Clocks:   aligned to {} ns or better", imported.clock_error_ns);
    }
    for (gap, (n, ns)) in Gap::ALL.iter().filter_map(|gap| Some((gap, counts.gaps.get(gap)?))) {
        let _ = writeln!(out, "Gaps:     {n}, {} us: {}", us(*ns), gap.text());
    }
    if imported.lost_records > 0 {
        let _ = writeln!(out, "Lost:     {} records of context switches and mappings, by perf", imported.lost_records);
    }
    for (file, why) in &imported.missing {
        let _ = writeln!(out, "Missing:  {file}: {why}");
    }
    let _ = writeln!(out, "\n{:>10} {:>12} {:>12}  function", "calls", "own us", "total us");
    for f in imported.functions.iter().take(args.top) {
        let module = f.module.rsplit('/').next().unwrap_or_default();
        let _ = writeln!(out, "{:>10} {:>12} {:>12}  {} ({module})", f.calls, us(f.own_ns), us(f.total_ns), f.function);
    }
    if args.with.is_some() {
        let _ = writeln!(out, "\nNext: tailsight diagnose {}", args.out.display());
    }
    out
}
