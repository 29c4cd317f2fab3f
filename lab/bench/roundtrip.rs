//! What a recorder costs the server: memcached's round trip with it on against off, tailsight and its peers in the same
//! rounds. In: a rate, rounds, a window. Out: a section.
//!
//! In every round each variant runs once, in an order that turns; a variant's number is its own ratio to `off` of the
//! same round, and the figure is the median over the rounds. The recorder is attached before the warm-up and stays until
//! after the window; nobody is pinned but the server and the client.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use tailsight_testbed::load::LoadSummary;

use super::{Bench, peers};
use crate::recorder::{self, Job, Recorded, Tool};
use crate::rig::{Others, Rig, now_ns};
use crate::table::{GoalResult, Row, Section, Spread, table, thousands};

/// Load before each window that is not measured: connections, caches.
const WARM_UP: Duration = Duration::from_millis(300);
/// tailsight's `--duration`: longer than pause, warm-up and window with the replies that are waited for after each, and
/// not so long that it would write while it records (which it does beyond 4 s; the default is 2 s).
const RECORDING: Duration = Duration::from_secs(4);

/// A round in which other programs use more than this of a core during a window is repeated. (Requests that meet another
/// program wait for ms: 1 % of the time is all of p99.)
pub(super) const QUIET: f64 = 0.01;

/// How long all rounds together wait until other programs are idle.
const PATIENCE: Duration = Duration::from_secs(300);

/// The measurement of one variant, a value a round.
#[derive(Debug, Default)]
struct Series {
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    served: Vec<f64>,
    late_us: Vec<f64>,
    unanswered: u64,
    events: Option<u64>,
    lost: u64,
    loss_known: bool,
}

/// A recorder that could not be run, and why.
type NotRun = BTreeMap<&'static str, String>;

/// Measures both rates.
pub fn measure(bench: &Bench) -> anyhow::Result<Vec<Section>> {
    let rig = Rig::new(bench, false)?;
    eprintln!("bench: looking for the peak of one core");
    let peak = rig.peak()?;
    let hooks = recorder::hooks_on(bench, &rig.memcached)?;
    let mut section = Section { title: "The round trip with a recorder on".into(), ..Section::default() };
    let mut raw = Vec::new();
    section.rows.push(Row::fact(
        "peak of one core (closed loop)",
        format!("{} requests/s", thousands(peak.per_s as u64)),
        format!("{} connections, server's core {:.0} % busy", peak.connections, 100.0 * peak.busy),
    ));
    let sixty = 0.6 * peak.per_s;
    let mut patience = if bench.quick { PATIENCE / 5 } else { PATIENCE };
    for (name, rate) in
        [("20,000/s".to_owned(), 20_000.0), (format!("60 % of the peak ({}/s)", thousands(sixty as u64)), sixty)]
    {
        let measured = rounds(bench, &rig, &hooks, rate, &name, &mut patience)?;
        for (which, limit) in [("p50", 1.03), ("p99", 1.05)] {
            section.rows.push(row(&name, which, limit, &measured)?);
        }
        section.notes += &format!("\nAt {name}, times from when a request was due:\n\n{}", details(&measured)?);
        if measured.again > 0 {
            section.notes +=
                &format!("\nOther programs disturbed {} rounds, which were measured again.\n", measured.again);
        }
        if measured.noisy > 0 {
            section.notes += &format!(
                "\n**The machine was not quiet: in {} of {} rounds other programs took more than {:.0} % of a core.**\n",
                measured.noisy,
                bench.rounds,
                100.0 * QUIET
            );
        }
        let json = |s: &Series| {
            json!({"p50_us": s.p50_us, "p99_us": s.p99_us, "served_per_s": s.served, "late_p99_us": s.late_us,
                   "unanswered": s.unanswered, "events": s.events, "lost": s.lost})
        };
        let variants: BTreeMap<_, _> = measured.on.iter().map(|(tool, series)| (tool.name(), json(series))).collect();
        raw.push(json!({"rate": rate, "off": json(&measured.off), "on": variants, "not_run": measured.not_run,
                        "measured_again": measured.again, "noisy": measured.noisy}));
    }
    section.notes += &commands(bench, &rig, &hooks);
    section.raw = json!({"peak_per_s": peak.per_s, "peak_busy": peak.busy, "rates": raw});
    Ok(vec![section])
}

/// The result of all rounds at one rate.
struct Measured {
    off: Series,
    on: Vec<(Tool, Series)>,
    not_run: NotRun,
    /// Rounds that were repeated because other programs used the machine, and rounds that count although they did.
    again: u32,
    noisy: u32,
}

/// All rounds at one rate.
fn rounds(
    bench: &Bench,
    rig: &Rig<'_>,
    hooks: &[String],
    rate: f64,
    name: &str,
    patience: &mut Duration,
) -> anyhow::Result<Measured> {
    let on = bench.variants.iter().map(|tool| (*tool, Series::default())).collect();
    let mut measured = Measured { off: Series::default(), on, not_run: NotRun::new(), again: 0, noisy: 0 };
    let mut round = 0;
    while round < bench.rounds {
        wait_for_quiet(bench, patience, &[rig.memcached.pid()])?;
        eprintln!("bench: round trip at {name}, round {} of {}", round + 1, bench.rounds);
        let mut trial = Round { rig, hooks, rate, number: round + measured.again, others: 0.0, dump: round == 0 };
        let shots = trial.run(&bench.variants, &mut measured.not_run)?;
        if trial.others > QUIET {
            eprintln!("bench: other programs took {:.0} % of a core meanwhile", 100.0 * trial.others);
            if measured.again < 2 * bench.rounds {
                measured.again += 1;
                continue;
            }
            measured.noisy += 1;
        }
        for (variant, shot) in shots {
            match variant.checked_sub(1) {
                None => measured.off.add(&shot),
                Some(i) => measured.on[i].1.add(&shot),
            }
        }
        round += 1;
    }
    let not_run = &measured.not_run;
    measured.on.retain(|(tool, _)| !not_run.contains_key(tool.name()));
    Ok(measured)
}

/// Waits until other programs leave the machine idle for half a second, as long as `patience` lasts.
pub(super) fn wait_for_quiet(bench: &Bench, patience: &mut Duration, ours: &[u32]) -> anyhow::Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    let mut said = false;
    while !patience.is_zero() {
        bench.check()?;
        let before = Others::now(ours)?;
        std::thread::sleep(LOOK);
        let others = Others::now(ours)?.since(&before)?;
        if others <= QUIET {
            break;
        }
        if !said {
            eprintln!("bench: other programs take {:.0} % of a core, waiting for them", 100.0 * others);
            said = true;
        }
        *patience = patience.saturating_sub(LOOK);
    }
    Ok(())
}

/// One variant in one round.
struct Shot {
    outcome: LoadSummary,
    recorded: Recorded,
}

/// One round.
struct Round<'a> {
    rig: &'a Rig<'a>,
    hooks: &'a [String],
    rate: f64,
    number: u32,
    /// The most of a core that other programs used during a window.
    others: f64,
    dump: bool,
}

impl Round<'_> {
    /// Every variant once; 0 is `off`, i is `variants[i - 1]`.
    fn run(&mut self, variants: &[Tool], not_run: &mut NotRun) -> anyhow::Result<Vec<(usize, Shot)>> {
        let mut shots = Vec::new();
        for position in 0..=variants.len() {
            let variant = (position + self.number as usize) % (variants.len() + 1);
            let tool = variant.checked_sub(1).map_or(Tool::Control, |i| variants[i]);
            if variant > 0 && not_run.contains_key(tool.name()) {
                continue;
            }
            match self.shot(tool) {
                Ok(shot) => shots.push((variant, shot)),
                Err(error) if tool.is_peer() => {
                    self.rig.bench.check()?;
                    eprintln!("bench: {} is left out: {error:#}", tool.name());
                    not_run.insert(tool.name(), format!("{error:#}").replace('\n', " "));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(shots)
    }

    /// One variant: attached before the pause and the warm-up, finished after the window.
    fn shot(&mut self, tool: Tool) -> anyhow::Result<Shot> {
        let rig = self.rig;
        let without_hook = &rig.bench.without_hook;
        let (server, hooks, dump) = (&rig.memcached, self.hooks, self.dump);
        let job = Job { bench: rig.bench, server, time: RECORDING, hooks, dump, without_hook };
        let Some(mut running) = recorder::start(tool, &job, tool.name())? else {
            return Ok(Shot { outcome: self.window(None)?, recorded: Recorded::default() });
        };
        let folder = running.folder().to_owned();
        let begun_ns = now_ns()?;
        let outcome = self.window(Some(running.pid()))?;
        let ended_ns = now_ns()?;
        if !running.is_recording()? {
            bail!("{} ended before the measured window did", tool.name());
        }
        let recorded = running.finish(true)?;
        if recorded.span_ns.is_some_and(|(from, to)| from > begun_ns || to < ended_ns) {
            bail!("{} did not record the whole window", tool.name());
        }
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        Ok(Shot { outcome, recorded })
    }

    /// A pause, the warm-up and the measured window.
    fn window(&mut self, recorder: Option<u32>) -> anyhow::Result<LoadSummary> {
        // Work that the variant before left behind (its files are deleted, its programs are freed by RCU) is not this one's.
        std::thread::sleep(Duration::from_millis(300));
        // The same arrivals for every variant of a round, others in the next.
        let gets = [self.rig.gets(self.rate, 100 + u64::from(self.number))];
        self.rig.load(&gets, WARM_UP)?;
        let ours: Vec<u32> = recorder.into_iter().chain([self.rig.memcached.pid()]).collect();
        let before = Others::now(&ours)?;
        let outcome = self.rig.load(&gets, self.rig.bench.window)?.remove(0);
        self.others = self.others.max(Others::now(&ours)?.since(&before)?);
        Ok(outcome)
    }
}

impl Series {
    fn add(&mut self, shot: &Shot) {
        let Shot { outcome, recorded } = shot;
        let us = |ns: Option<u64>| ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e3);
        self.p50_us.push(us(outcome.percentile(50.0)));
        self.p99_us.push(us(outcome.percentile(99.0)));
        self.served.push(outcome.received_per_s());
        self.late_us.push(us(outcome.late_p99_ns));
        self.unanswered += outcome.unanswered + outcome.errors;
        self.events = recorded.events.or(self.events);
        self.loss_known |= recorded.lost.is_some();
        self.lost += recorded.lost.unwrap_or(0);
    }

    /// Round by round, this variant over `off`.
    fn ratio(&self, off: &Self, which: &str) -> anyhow::Result<Spread> {
        let percentile_us = |series: &Self| if which == "p50" { series.p50_us.clone() } else { series.p99_us.clone() };
        let ratios: Vec<f64> = percentile_us(self).iter().zip(percentile_us(off)).map(|(on, off)| on / off).collect();
        Spread::of(&ratios).context("no round was measured")
    }
}

/// One figure: tailsight beside the peers.
fn row(name: &str, which: &str, limit: f64, all: &Measured) -> anyhow::Result<Row> {
    let Measured { off, on, not_run, .. } = all;
    let mut peers = Vec::new();
    let (mut ours, mut equal) = (None, None);
    for (tool, series) in on {
        let ratio = series.ratio(off, which)?;
        if *tool == Tool::Control {
            equal = Some(ratio.median);
        }
        if *tool == Tool::Tailsight {
            ours = Some(ratio);
        } else {
            peers.push(format!("{} {}", tool.name(), ratio.text(2)));
        }
    }
    peers.extend(not_run.keys().map(|tool| format!("{tool} not run")));
    let (title, peers) = (format!("round trip {which}, on / off, at {name}"), peers.join("; "));
    let row = match ours {
        Some(ours) => {
            Row::goal(title, format!("≤ {limit} ×"), format!("{} ×", ours.text(3)), peers, ours.median <= limit)
        }
        None => return Ok(Row::fact(title, "not measured", peers)),
    };
    // With as many noisy rounds as quiet ones, the median is not that of a quiet one.
    let quiet = 2 * (all.noisy as usize) < off.p50_us.len() && can_tell(equal, limit);
    Ok(if quiet { row } else { Row { verdict: GoalResult::NotQuiet, ..row } })
}

/// Whether a ratio can be compared with a limit: two equal variants differ by less than it allows, both ways.
fn can_tell(equal: Option<f64>, limit: f64) -> bool {
    equal.is_none_or(|ratio| ratio <= limit && 1.0 / ratio <= limit)
}

/// The variants with their absolute numbers.
fn details(all: &Measured) -> anyhow::Result<String> {
    let Measured { off, on, not_run, .. } = all;
    let mut rows = Vec::new();
    for (name, series) in std::iter::once(("off", off)).chain(on.iter().map(|(tool, s)| (tool.name(), s))) {
        let text = |values: &[f64]| Spread::of(values).context("no round was measured").map(|s| s.text(1));
        let count = |n: Option<u64>| n.map_or("".to_owned(), thousands);
        rows.push(vec![
            name.to_owned(),
            text(&series.p50_us)?,
            text(&series.p99_us)?,
            thousands(Spread::of(&series.served).map_or(0.0, |s| s.median) as u64),
            text(&series.late_us)?,
            series.unanswered.to_string(),
            count(series.events),
            count(series.loss_known.then_some(series.lost)),
        ]);
    }
    rows.extend(not_run.iter().map(|(tool, why)| {
        let mut row = vec![(*tool).to_owned(), format!("not run: {why}")];
        row.resize(8, String::new());
        row
    }));
    Ok(table(&["", "p50 us", "p99 us", "served/s", "client late p99 us", "errors", "events of a window", "lost"], rows))
}

/// The commands, to repeat them by hand.
fn commands(bench: &Bench, rig: &Rig<'_>, hooks: &[String]) -> String {
    let threads = ["TID1".to_owned(), "TID2".to_owned()];
    let port = rig.memcached.port();
    let perf: Vec<String> = peers::perf_arguments(hooks, &threads, port).iter().map(|a| peers::quoted(a)).collect();
    let left_out: String = bench.without_hook.iter().map(|hook| format!(" --without-hook {hook}")).collect();
    format!(
        "\n`off again` is a second run without a recorder: how far two equal things differ here. {} of tailsight's {} hooks exist\nfor the peers. The command lines (`PID`, `TID1`, `TID2` … are the server and all of its threads):\n\n\
         ```sh\ntailsight record --pid PID --out run --duration {}ms{left_out}\n```\n\n```sh\nperf {}\n```\n\n\
         ```sh\nBPFTRACE_MAP_KEYS_MAX=6000000 bpftrace -B line record.bt\n```\n\nwith `record.bt`:\n\n```\n{}```\n",
        peers::count(hooks),
        hooks.len(),
        RECORDING.as_millis(),
        perf.join(" "),
        peers::bpftrace_program(hooks, "PID", port, false),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The p99 of a round trip was "ok" where a second run without a recorder was 2.4 times the first.
    #[test]
    fn what_two_equal_things_differ_by_cannot_be_told() {
        assert!(can_tell(None, 1.03) && can_tell(Some(1.02), 1.03) && can_tell(Some(0.98), 1.03));
        assert!(!can_tell(Some(2.37), 1.05) && !can_tell(Some(0.07), 1.05) && !can_tell(Some(1.04), 1.03));
    }
}
