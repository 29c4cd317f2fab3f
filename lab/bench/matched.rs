//! Figures of the recording itself: matched messages, lost events, parts that sum to the latency, ns an event.
//!
//! In: memcached under 20,000 and 100,000 requests/s. Out: a section. Two kinds of recordings: some begin before the
//! load and end after it, so that every byte the client sent must be in the run; one lies inside the load for 2 s
//! with the default buffers and measures what a hook costs while it is loaded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tailsight_lifetime::{Analysis, Incomplete, LEGS, Leg, RunContext};
use tailsight_testbed::load::LoadSummary;
use tailsight_trace::{Run, RunMeta};

use crate::Bench;
use crate::recorder::{self, Job, Tool};
use crate::rig::{CONNECTIONS, Rig, now_ns};
use crate::table::{Row, Section, Spread, table, thousands};

/// Requests a second.
const RATES: [f64; 2] = [20_000.0, 100_000.0];
/// How long the load lasts, and how long the recording inside a load: the goal names it.
const TIME: Duration = Duration::from_secs(2);
/// One recording, checked.
struct Checked {
    meta: RunMeta,
    /// Messages found, and of them those followed to their receive call.
    total: u64,
    complete: u64,
    incomplete: BTreeMap<Incomplete, u64>,
    /// Bytes of the complete ones.
    bytes: u64,
    /// Legs checked, and legs whose parts do not sum to their latency.
    legs: u64,
    wrong: u64,
}

/// Records and checks.
pub fn measure(bench: &Bench) -> anyhow::Result<Vec<Section>> {
    let mut rows = Vec::new();
    let mut raw = Vec::new();
    let mut costs = String::new();
    let (mut legs, mut wrong, mut messages) = (0, 0, 0);
    for rate in RATES {
        let name = format!("{} requests/s", thousands(rate as u64));
        let (mut ratios, mut messages_seen, mut lost, mut achieved, mut events) =
            (vec![], vec![], vec![], vec![], vec![]);
        for round in 0..if bench.quick { 1 } else { 3 } {
            eprintln!("bench: recording memcached at {name}, round {}", round + 1);
            let (outcome, expected, checked) = around(bench, rate, 10 + round)?;
            ratios.push(checked.matched());
            messages_seen.push(100.0 * checked.bytes as f64 / expected as f64);
            lost.push(checked.meta.lost() as f64);
            achieved.push(outcome.received_per_s());
            events.push(checked.meta.events() as f64);
            legs += checked.legs;
            wrong += checked.wrong;
            messages += checked.complete;
            raw.push(json!({"rate": rate, "sent": outcome.sent, "sent_bytes": expected, "answered_per_s": outcome.received_per_s(), "run": checked.json()}));
        }
        eprintln!("bench: recording memcached at {name}, inside a load");
        let inside = inside(bench, rate)?;
        legs += inside.legs;
        wrong += inside.wrong;
        messages += inside.complete;
        lost.push(inside.meta.lost() as f64);
        ratios.push(inside.matched());
        raw.push(json!({"rate": rate, "inside_load": true, "run": inside.json()}));
        let (ratios, lost, messages_seen) = (spread(&ratios)?, spread(&lost)?, spread(&messages_seen)?);
        rows.push(Row::goal(
            format!("matched messages at {name}"),
            "≥ 99.9 %",
            format!("{} %", ratios.text(3)),
            format!(
                "served: {} requests/s; under way at the end of a recording inside a load: {}",
                thousands(spread(&achieved)?.median as u64),
                thousands(inside.under_way())
            ),
            ratios.min >= 99.9,
        ));
        rows.push(Row::goal(
            format!("bytes the client sent (its own count) that are in complete messages, {name}"),
            "≥ 99.9 %",
            format!("{} %", messages_seen.text(3)),
            "",
            // Bytes, because TCP may put two requests into one segment, which is then one message. More than was sent
            // would be wrong too.
            messages_seen.min >= 99.9 && messages_seen.max <= 100.0,
        ));
        rows.push(Row::goal(
            format!("lost events at {name}, 2 s, default buffers"),
            "0",
            thousands(lost.max as u64),
            format!("{} events", thousands(spread(&events)?.median as u64)),
            lost.max == 0.0,
        ));
        rows.push(Row::fact(
            format!("cost of an event in the kernel at {name}"),
            format!("{:.0} ns", inside.meta.overhead.ns_per_event),
            format!(
                "hooks {:.1} % of a core, recorder {:.1} %",
                100.0 * inside.meta.overhead.hooks_cpu_ns as f64 / inside.span_ns(),
                100.0 * inside.meta.overhead.recorder_cpu_ns as f64 / inside.span_ns()
            ),
        ));
        costs += &format!(
            "\nWhat a hook costs at {name} (`run.json`, 50 ms at the end of a recording; runs that the filters\nturn away count too):\n\n{}",
            hook_table(&inside.meta)
        );
    }
    rows.push(Row::goal(
        "lifetimes whose parts do not sum to the latency to the ns",
        "0",
        format!("{} of {} legs", thousands(wrong), thousands(legs)),
        format!("{} messages, every one checked", thousands(messages)),
        wrong == 0 && legs > 0,
    ));
    let notes = format!(
        "memcached (1 worker thread) on core 0, an open-loop client with {CONNECTIONS} connections and Poisson arrivals that spins on core 1.\n{costs}"
    );
    Ok(vec![Section { title: "Recording".into(), rows, notes, raw: raw.into() }])
}

fn spread(values: &[f64]) -> anyhow::Result<Spread> {
    Spread::of(values).context("no round was measured")
}

fn job<'a>(rig: &'a Rig<'a>, time: Duration) -> Job<'a> {
    Job { bench: rig.bench, server: &rig.memcached, time, hooks: &[], dump: false, without_hook: &[] }
}

/// A load of 2 s that lies inside a recording; with the bytes that the client sent, by its own count.
fn around(bench: &Bench, rate: f64, seed: u64) -> anyhow::Result<(LoadSummary, u64, Checked)> {
    for _ in 0..3 {
        let rig = Rig::new(bench, false)?;
        let running = recorder::start(Tool::Tailsight, &job(&rig, TIME * 2), "matched")?.context("no recorder")?;
        let folder = running.folder().join("run");
        let gets = rig.gets(rate, seed);
        let outcome = rig.load(std::slice::from_ref(&gets), TIME)?.remove(0);
        let ended_ns = now_ns()?;
        let recorded = running.finish(false)?;
        if recorded.span_ns.is_some_and(|(_, end)| end >= ended_ns) {
            let expected = gets.bytes_sent(outcome.sent);
            return Ok((outcome, expected, check(&folder)?));
        }
        eprintln!("bench: the recording ended before the load did (is the machine busy?), once more");
    }
    bail!("three recordings of {:?} ended before a load of {TIME:?} did: the machine is too busy", TIME * 2)
}

/// A recording of 2 s that lies inside a load, so that the hooks are loaded while their cost is measured.
fn inside(bench: &Bench, rate: f64) -> anyhow::Result<Checked> {
    let rig = Rig::new(bench, false)?;
    let enough = AtomicBool::new(false);
    let folder = std::thread::scope(|scope| {
        let load = scope.spawn(|| rig.load_until(&[rig.gets(rate, 20)], Duration::from_secs(15), &enough));
        let recorded = (|| {
            std::thread::sleep(Duration::from_millis(300));
            let running =
                recorder::start(Tool::Tailsight, &job(&rig, TIME), "inside")?.context("tailsight is a recorder")?;
            let folder = running.folder().join("run");
            running.finish(false)?;
            anyhow::Ok(folder)
        })();
        enough.store(true, Ordering::Relaxed);
        let loaded = load.join().map_err(|_| anyhow::anyhow!("the load stopped unexpectedly"))?;
        let folder = recorded?;
        loaded?;
        anyhow::Ok(folder)
    })?;
    check(&folder)
}

/// Builds the lifetimes of a run and checks every one.
fn check(folder: &Path) -> anyhow::Result<Checked> {
    let mut run = Run::open(folder)?;
    let events = run.events()?;
    if !run.partial.is_empty() {
        bail!("the run is partial: {}", run.partial.join("; "));
    }
    let analysis = Analysis::build(&RunContext::of(&run), &events);
    let lifetimes = &analysis.lifetimes;
    let (mut legs, mut wrong) = (0, 0);
    for message in &lifetimes.messages {
        let mut whole = Some(0);
        for leg in LEGS {
            legs += 1;
            let sum: u64 = lifetimes.part_slice(message.id, leg).iter().map(|part| part.ns).sum();
            wrong += u64::from(sum != message.latency(leg).unwrap_or(0));
            whole = whole.zip(message.latency(leg)).map(|(a, b)| a + b);
        }
        wrong += u64::from(whole.is_some() && whole != message.latency(Leg::Total));
        // Paths are built on demand, which takes longer: those of one message in 1,000, span by span.
        if message.id % 1000 == 0 {
            for leg in LEGS {
                wrong += u64::from(!is_contiguous(&analysis, message.id, leg, message.ends(leg)));
            }
        }
    }
    let complete = lifetimes.messages.len() as u64;
    let incomplete = lifetimes.incomplete.clone();
    let total = complete + incomplete.values().sum::<u64>();
    let bytes = lifetimes.messages.iter().map(|message| u64::from(message.bytes)).sum();
    Ok(Checked { meta: run.meta, total, complete, incomplete, bytes, legs, wrong })
}

/// Whether a path goes from the first to the last ns of its leg without gap and overlap.
fn is_contiguous(analysis: &Analysis, message: u32, leg: Leg, ends: Option<(u64, u64)>) -> bool {
    let path = analysis.path(message, leg);
    let Some((from, to)) = ends else { return path.is_empty() };
    let mut at = from;
    for span in &path {
        if span.from_ns != at || span.to_ns < at {
            return false;
        }
        at = span.to_ns;
    }
    at == to
}

impl Checked {
    /// Messages that were still on their way when the recording ended: their end was not recorded, so they cannot be
    /// matched.
    fn under_way(&self) -> u64 {
        self.incomplete.get(&Incomplete::RecordingEnded).copied().unwrap_or(0)
    }

    /// Messages followed to their receive call, % of those that could be.
    fn matched(&self) -> f64 {
        100.0 * self.complete as f64 / (self.total - self.under_way()).max(1) as f64
    }

    fn span_ns(&self) -> f64 {
        self.meta.end_ns.saturating_sub(self.meta.start_ns).max(1) as f64
    }

    fn json(&self) -> Value {
        json!({"total": self.total, "complete": self.complete, "bytes": self.bytes, "incomplete": self.incomplete, "events": self.meta.events(),
               "lost": self.meta.lost(), "legs": self.legs, "wrong": self.wrong, "overhead": self.meta.overhead,
               "hooks": self.meta.hooks.iter().filter(|h| h.on).collect::<Vec<_>>()})
    }
}

/// The hooks that ran, the costliest first.
fn hook_table(meta: &RunMeta) -> String {
    let mut hooks: Vec<(&str, u64, f64)> = meta
        .hooks
        .iter()
        .filter(|hook| hook.measured_runs > 0)
        .map(|hook| (hook.name.as_str(), hook.measured_runs, hook.ns_per_run.unwrap_or(0.0)))
        .collect();
    let total: f64 = hooks.iter().map(|(_, runs, ns)| *runs as f64 * ns).sum();
    hooks.sort_by(|a, b| (b.1 as f64 * b.2).total_cmp(&(a.1 as f64 * a.2)));
    let rows = hooks.into_iter().map(|(name, runs, ns)| {
        let share = 100.0 * runs as f64 * ns / total.max(1.0);
        vec![format!("`{name}`"), thousands(runs), format!("{ns:.0}"), format!("{share:.1} %")]
    });
    table(&["hook", "runs", "ns a run", "share"], rows)
}
