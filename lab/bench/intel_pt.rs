//! Speed and memory of decoding Intel PT: calls and returns of one perf.data by `tailsight-pt` and by `perf script --itrace=cr`, and a few
//! messages of it instead of all.
//!
//! In: a program that the lab steps here, encoded as an Intel PT recording: real control flow, assigned time, user space only. Out: a
//! section. Ours is measured as a process of its own: this program as `bench decode-pt`, which decodes, nests and names, and prints what it
//! counted.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use tailsight_lab::generated::GeneratedSection;
use tailsight_lab::pt::{self, Long, Made, Scale, encode::Style};
use tailsight_pt::{By, Places, Recording, What, Window};

use crate::Bench;
use crate::analysis::{Usage, usage};
use crate::peak;
use crate::table::{Row, Section, Spread, thousands};

/// Bytes between two synchronisation points; what perf asks the processor for by default is 16 KiB, the least is 2 KiB.
const PSB_BYTES: usize = 4096;
/// One of this many messages is decoded.
const ONE_OF: usize = 100;
/// Bytes of the long recording, unless others are asked for. It is compared with one of a sixteenth.
pub const LONG: u64 = 2 << 30;
/// Instructions after which a thread is interrupted; it comes to a system call before.
const QUANTUM: usize = 100_000;
/// In the recording with many context switches, whose records take more room than its trace.
const SHORT_QUANTUM: usize = 700;

/// The page of these figures.
pub const DOCS: &str = "docs/results/intel-pt.md";
/// The part of it that is written here.
pub const GENERATED: GeneratedSection = GeneratedSection {
    begin: "<!-- intel-pt:begin (written by `bench --only intel-pt --write`; do not edit between the markers) -->",
    end: "<!-- intel-pt:end -->",
};

/// `decode-pt`.
#[derive(Debug, Args)]
pub struct DecodeArgs {
    /// The recording.
    recording: PathBuf,
    /// Where its program is.
    root: PathBuf,
    /// Only these intervals, ns: `FROM-TO`.
    #[arg(long, value_delimiter = ',', value_parser = window)]
    windows: Vec<Window>,
    /// By libipt's block decoder alone.
    #[arg(long)]
    by_libipt: bool,
    /// Packets by libipt's event decoder.
    #[arg(long)]
    packets_by_libipt: bool,
}

fn window(text: &str) -> Result<Window, String> {
    let ends = text.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let (from_ns, to_ns) = ends.ok_or_else(|| format!("'{text}' is not FROM-TO"))?;
    Ok(Window { from_ns, to_ns })
}

/// Decodes and prints what was counted.
pub fn decode(args: &DecodeArgs) -> anyhow::Result<ExitCode> {
    let places = Places { roots: vec![args.root.clone()], ..Places::default() };
    let mut recording = Recording::open(&args.recording, &places)?;
    recording.by = match (args.by_libipt, args.packets_by_libipt) {
        (true, _) => By::Libipt,
        (false, true) => By::LibiptPackets,
        (false, false) => By::Ours,
    };
    let windows = (!args.windows.is_empty()).then_some(&args.windows[..]);
    let (mut entered, mut left) = (0u64, 0u64);
    let summary = recording.decode(windows, |event| match event.what {
        What::Enter(..) => entered += 1,
        What::Leave(_) => left += 1,
        _ => {}
    })?;
    let counted = json!({
        "calls": summary.counts.calls.values().sum::<u64>(), "returns": summary.counts.returns.values().sum::<u64>(),
        "entered": entered, "left": left,
        "instructions": summary.instructions.values().sum::<u64>(), "decoded_bytes": summary.decoded_bytes,
        "packets_left_to_libipt": summary.packets_left_to_libipt, "left_to_libipt": summary.left_to_libipt,
        "functions": summary.functions.len(), "errors": summary.errors.values().sum::<u64>(),
    });
    println!("{counted}");
    Ok(ExitCode::SUCCESS)
}

/// Measures.
pub fn measure(bench: &Bench) -> anyhow::Result<Vec<Section>> {
    let folder = bench.scratch.path().join("intel-pt");
    std::fs::create_dir_all(&folder)?;
    eprintln!("bench: stepping a program and encoding what it did as Intel PT");
    pt::compile(&folder, Scale { rounds: 20, requests: 30 })?;
    // Stepping as much as is encoded would take an hour.
    let passes = if bench.quick { 10 } else { 120 };
    let quantum = QUANTUM;
    let style =
        Style { cycles: true, compress_returns: true, psb_bytes: PSB_BYTES, passes, quantum, ..Style::default() };
    let made = pt::make(&folder, &style)?;
    let few: Vec<String> = few(&made.rounds).iter().map(|(from, to)| format!("{from}-{to}")).collect();
    let counted = counted(&ours(&made, &[])?)?;
    as_logged(&counted, made.transfers, made.instructions)?;
    let repeats = if bench.quick { 2 } else { 5 };
    let (mut whole, mut windows, mut import, mut perf, mut lean) = (vec![], vec![], vec![], vec![], vec![]);
    eprintln!("bench: decoding {} instructions, beside perf script", thousands(made.instructions));
    for i in 0..repeats {
        whole.push(usage(bench, ours(&made, &[])?, None, Stdio::null())?);
        windows.push(usage(bench, ours(&made, &few)?, None, Stdio::null())?);
        import.push(usage(bench, imported(bench, &made, &folder.join(format!("run-{i}"))), None, Stdio::null())?);
        perf.push(usage(bench, theirs(&made, &[]), None, Stdio::null())?);
        lean.push(usage(bench, theirs(&made, &["-F", "tid,time,ip,addr"]), None, Stdio::null())?);
    }
    let (mut switching, mut perf_switching) = (vec![], vec![]);
    let style = Style { quantum: SHORT_QUANTUM, passes: passes / 5, ..style };
    let many = pt::make(&folder, &style)?;
    as_logged(&self::counted(&ours(&many, &[])?)?, many.transfers, many.instructions)?;
    for _ in 0..repeats {
        switching.push(usage(bench, ours(&many, &[])?, None, Stdio::null())?);
        perf_switching.push(usage(bench, theirs(&many, &[]), None, Stdio::null())?);
    }
    let import_once = imported(bench, &made, &folder.join("run-memory"));
    let memory = [
        peak::of(&ours(&made, &[])?)?,
        peak::of(&ours(&made, &few)?)?,
        peak::of(&import_once)?,
        peak::of(&theirs(&made, &[]))?,
    ];
    let long = Decoded { memory, ..long(bench)? };
    let measured = [whole, windows, import, perf, lean, switching, perf_switching];
    section(&made, &counted, few.len(), passes, &measured, &long)
}

/// Fails where something else was decoded than ran.
fn as_logged(counted: &serde_json::Value, transfers: u64, instructions: u64) -> anyhow::Result<()> {
    let count_of = |name: &str| counted[name].as_u64().unwrap_or(0);
    if (count_of("calls") + count_of("returns"), count_of("instructions")) != (transfers, instructions) {
        bail!(
            "we decoded {counted}, and the program made {transfers} calls and returns in {instructions} instructions"
        );
    }
    Ok(())
}

/// What was decoded for its memory.
struct Decoded {
    /// Of the recording that is compared with perf: the whole, one message of a hundred, `import`, perf script; bytes.
    memory: [u64; 4],
    /// A long recording.
    long: Long,
    /// Of a sixteenth of it and of the whole; bytes.
    peaks: [u64; 2],
    /// How long the whole took.
    wall_s: f64,
}

/// Decodes a sixteenth of a long recording, and the whole.
fn long(bench: &Bench) -> anyhow::Result<Decoded> {
    let folder = bench.scratch.path().join("intel-pt-long");
    std::fs::create_dir_all(&folder)?;
    pt::compile(&folder, Scale { rounds: 4, requests: 400 })?;
    let style = Style { cycles: true, psb_bytes: PSB_BYTES, quantum: QUANTUM, ..Style::default() };
    let made = |bytes: u64| pt::make_long(&folder, &style, if bench.quick { bytes / 16 } else { bytes });
    let command = |long: &Long| -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg("decode-pt").arg(&long.perf_data).arg(&folder);
        Ok(command)
    };
    let peak = |long: &Long| {
        eprintln!("bench: decoding {} bytes of Intel PT", thousands(long.bytes));
        peak::of(&command(long)?)
    };
    let short = made(bench.long_file / 16)?;
    as_logged(&counted(&command(&short)?)?, short.transfers, short.instructions)?;
    let short = peak(&short)?;
    let long = made(bench.long_file)?;
    let begun = std::time::Instant::now();
    let peaks = [short, peak(&long)?];
    let wall_s = begun.elapsed().as_secs_f64();
    std::fs::remove_file(&long.perf_data)?;
    Ok(Decoded { memory: [0; 4], long, peaks, wall_s })
}

fn section(
    made: &Made,
    counted: &serde_json::Value,
    few: usize,
    passes: usize,
    all: &[Vec<Usage>; 7],
    decoded: &Decoded,
) -> anyhow::Result<Vec<Section>> {
    let spread_of = |values: &[Usage], f: &dyn Fn(&Usage) -> f64| {
        Spread::of(&values.iter().map(f).collect::<Vec<_>>()).context("nothing was measured")
    };
    let wall = |i: usize| spread_of(&all[i], &|u| 1e3 * u.wall_s);
    let cpu = |i: usize| spread_of(&all[i], &|u| 1e3 * u.cpu_s);
    let Decoded { memory, long, peaks: [short_peak, long_peak], wall_s } = decoded;
    let times = |a: usize, b: usize| {
        let ratios: Vec<f64> = all[a].iter().zip(&all[b]).map(|(a, b)| a.wall_s / b.wall_s).collect();
        Spread::of(&ratios).context("nothing was measured")
    };
    let (faster, faster_lean, fewer, imported) = (times(3, 0)?, times(4, 0)?, times(0, 1)?, times(3, 2)?);
    let spans = counted["entered"].as_u64().unwrap_or(0);
    let speed = spread_of(&all[0], &|u| spans as f64 / u.wall_s / 1e6)?;
    let mib = |n: u64| n as f64 / 1_048_576.0;
    let rows = vec![
        Row::fact(
            "the recording",
            format!("{} instructions, {} calls and returns", thousands(made.instructions), thousands(made.transfers)),
            format!(
                "{:.1} MiB of trace, 2 cores, {} messages",
                mib(made.trace_bytes as u64),
                thousands(made.rounds.len() as u64)
            ),
        ),
        Row::goal(
            "calls and returns of it, nested and named: how much faster than `perf script --itrace=cr`",
            "≥ 20 ×",
            format!("{} × ({} ms; CPU {} ms)", faster.text(1), wall(0)?.text(0), cpu(0)?.text(0)),
            format!(
                "perf script: {} ms; with the fewest fields {} ms: {} ×",
                wall(3)?.text(0),
                wall(4)?.text(0),
                faster_lean.text(1)
            ),
            faster.median >= 20.0,
        ),
        Row::fact(
            format!("the same, a fifth as long, interrupted each {SHORT_QUANTUM} instructions"),
            format!("{} × ({} ms; CPU {} ms)", times(6, 5)?.text(1), wall(5)?.text(0), cpu(5)?.text(0)),
            format!("perf script: {} ms", wall(6)?.text(0)),
        ),
        Row::fact("spans a second", format!("{} million", speed.text(2)), format!("{} spans", thousands(spans))),
        Row::goal(
            format!("1 % of the messages ({few}) instead of the whole"),
            "≥ 10 × faster",
            format!("{} × ({} ms)", fewer.text(1), wall(1)?.text(1)),
            "",
            fewer.median >= 10.0,
        ),
        Row::fact(
            "`tailsight import` of it: a run is written, too",
            format!("{} ms", wall(2)?.text(0)),
            format!("{} × faster than perf script", imported.text(1)),
        ),
        Row::fact(
            "peak memory: decoding the whole; 1 % of the messages; `tailsight import`",
            format!("{:.0}; {:.0}; {:.0} MiB", mib(memory[0]), mib(memory[1]), mib(memory[2])),
            format!("perf script: {:.0} MiB", mib(memory[3])),
        ),
        Row::goal(
            format!("peak memory on a file of {:.2} GiB, beside one of a sixteenth of it", mib(long.bytes) / 1024.0),
            "≤ 1.25 ×",
            format!(
                "{:.0} MiB, {:.0} MiB: {:.2} ×",
                mib(*long_peak),
                mib(*short_peak),
                *long_peak as f64 / *short_peak as f64
            ),
            format!(
                "{} instructions, {} calls and returns, in {:.1} s",
                thousands(long.instructions),
                thousands(long.transfers),
                wall_s
            ),
            long_peak * 4 <= short_peak * 5,
        ),
    ];
    let raw = |values: &Vec<Usage>| -> Vec<_> {
        values.iter().map(|u| json!({"wall_s": u.wall_s, "cpu_s": u.cpu_s})).collect()
    };
    let [whole, windows, import, perf, lean, switching, perf_switching] = all;
    let raw = json!({
        "counted": counted, "trace_bytes": made.trace_bytes, "decode": raw(whole), "windows": raw(windows),
        "memory_bytes": memory, "long_memory_bytes": [short_peak, long_peak], "switching": raw(switching), "perf_script_switching": raw(perf_switching), "long": {"bytes": long.bytes, "times": long.times, "instructions": long.instructions},
        "import": raw(import), "perf_script": raw(perf), "perf_script_fewest_fields": raw(lean),
    });
    let notes = format!(
        "A program of three threads that the lab steps here; what it did is encoded {passes} times, one behind the other, with cycle counts and compressed returns, a synchronisation point each \
         {PSB_BYTES} bytes: real control flow, **assigned time**, user space only, all of its code in one file of a few KiB. Ours counts the \
         same calls, returns and instructions as the execution's log. Both write to /dev/null, as whole processes, in turn: perf a line for each call and return, ours what it counted.\n\n\
         The long file is the same program, interrupted each {QUANTUM} instructions and without compressed returns; these packets are in it {} \
         times, each time with later time-stamp counters and all context switches.\n",
        long.times
    );
    Ok(vec![Section { title: "Intel PT".into(), rows, notes, raw }])
}

/// Every hundredth message, from the middle of the first hundred on.
fn few(rounds: &[(u64, u64)]) -> Vec<(u64, u64)> {
    rounds.iter().skip(ONE_OF.min(rounds.len()) / 2).step_by(ONE_OF).copied().collect()
}

fn ours(made: &Made, windows: &[String]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("decode-pt").arg(&made.perf_data).arg(&made.root);
    if !windows.is_empty() {
        command.arg("--windows").arg(windows.join(","));
    }
    Ok(command)
}

fn imported(bench: &Bench, made: &Made, to: &Path) -> Command {
    let mut command = Command::new(&bench.tailsight);
    command.arg("import").arg(&made.perf_data).arg("--root").arg(&made.root).arg("--out").arg(to);
    command
}

fn theirs(made: &Made, more: &[&str]) -> Command {
    let mut command = Command::new("perf");
    command.args(["script", "--itrace=cr", "-i"]).arg(&made.perf_data).arg("--symfs").arg(&made.root).args(more);
    command
}

fn counted(command: &Command) -> anyhow::Result<serde_json::Value> {
    let mut again = Command::new(command.get_program());
    let output = again.args(command.get_args()).output().context("cannot start this program again")?;
    if !output.status.success() {
        bail!("decoding failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("decoding printed something else than it should")
}
