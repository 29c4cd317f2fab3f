//! Diagnoses a run as `tailsight diagnose --more` and `tailsight report` do, at a given width and without colours: `cargo
//! run -p tailsight-report --example run -- RUN [FROM TO] [WIDTH] [FILE.html] [AGAINST]`. FROM and TO are quantiles of the
//! focus. To see the output of small runs that the command line would refuse.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use tailsight_diagnose::{Inputs, Options, RecordingFacts, diagnose_with};
use tailsight_lifetime::{Analysis, Leg, PathPart};
use tailsight_report::{html, terminal};
use tailsight_trace::Run;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize| args.get(i).map(String::as_str);
    let dir = arg(0).ok_or("which run?")?;
    let quantile = |i, usual| arg(i).map_or(Ok(usual), str::parse::<f64>);
    let focus = (quantile(1, 0.99)?, quantile(2, 1.0)?);
    let width = arg(3).map_or(Ok(80), str::parse::<usize>)?;
    let mut run = Run::open(dir.as_ref())?;
    let analysis = Analysis::of(&mut run)?;
    let reference = if focus.0 < 0.99 { (0.2, 0.6) } else { (0.45, 0.55) };
    let options = Options { focus, reference, leg: Leg::Total, more: true, ..Options::default() };
    let meta = &run.meta;
    let device = meta.devices.first();
    let facts = RecordingFacts {
        run: dir.into(),
        lost_events: meta.lost(),
        clock_error_ns: analysis.lifetimes.nic.error_ns(),
        stamps: analysis.lifetimes.nic.notes(),
        ns_per_event: meta.overhead.ns_per_event,
        events: meta.events(),
        pids: meta.target.pids.clone(),
        ports: meta.target.ports.clone(),
        cpus: Some(meta.host.cpus),
        devices: device.iter().map(|d| d.name.clone()).collect(),
        irqs: device.map_or_else(Vec::new, |d| d.irqs.clone()),
        device_netns: device.filter(|d| !d.here).map(|d| d.pid),
        ..RecordingFacts::default()
    };
    let other = arg(5)
        .map(|dir| -> Result<_, Box<dyn std::error::Error>> {
            Ok((dir, Analysis::of(&mut Run::open(dir.as_ref())?)?.lifetimes))
        })
        .transpose()?;
    let path = |id, leg, _: PathPart<'_>| analysis.path(id, leg);
    let beside =
        Inputs { path: Some(&path), against: other.as_ref().map(|(name, run)| (*name, run)), ..Inputs::default() };
    let lifetimes = &analysis.lifetimes;
    let (mut diagnosis, causes) = diagnose_with(lifetimes, &options, &facts, &beside)?;
    tailsight_advice::fill(&mut diagnosis, &options, &facts);
    let style = terminal::Style { color: false, width };
    print!("{}", terminal::diagnosis_of(&diagnosis, Some(meta), &style));
    print!("{}", terminal::more(&diagnosis, &style));
    if let Some(file) = arg(4) {
        let mut ranked: Vec<(u64, u32)> =
            lifetimes.messages.iter().filter_map(|m| Some((m.latency(options.leg)?, m.id))).collect();
        ranked.sort_unstable();
        let ids = [ranked.last(), ranked.get(ranked.len() / 2)].into_iter().flatten();
        let paths: Vec<_> = ids.map(|&(_, id)| (id, path(id, options.leg, PathPart::Whole))).collect();
        let cause_of = |leg, role, owner| causes.get(&(leg, role, owner)).copied();
        let input = html::Input {
            meta,
            lifetimes,
            diagnosis: &diagnosis,
            paths: &paths,
            cause_of: &cause_of,
            categories: &options.categories,
            samples: Some(&run.samples),
            stacks: &[],
            against: other.as_ref().map(|(name, run)| (*name, run)),
        };
        std::fs::write(file, html::report(&input))?;
    }
    Ok(())
}
