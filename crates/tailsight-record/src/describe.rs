//! What run.json says of a recording. In: the options, hooks, costs and clock rows of a session. Out: [`RunMeta`]'s fields.

use tailsight_trace::meta::{self, RunMeta};
use tailsight_trace::{Event, FORMAT_VERSION};

use crate::clocks::judge;
use crate::cost::ProgramCost;
use crate::error::Error;
use crate::loader::HookState;
use crate::probes::Need;
use crate::session::options::Options;

/// What is known before the recording.
pub fn first(options: &Options, app: &str, cpus: u32, slots: u64) -> RunMeta {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let machine = tailsight_host::machine::Machine::collect(&tailsight_host::Root::host());
    RunMeta {
        format: "tailsight-run".into(),
        version: FORMAT_VERSION,
        tailsight: options.version.clone(),
        source: "ebpf".into(),
        host: meta::Host {
            kernel: release.trim().into(),
            arch: std::env::consts::ARCH.into(),
            cpus,
            cpu_model: machine.cpu_model.known().cloned().unwrap_or_default(),
            boot_id: boot_id.trim().into(),
        },
        target: meta::Target { selector: options.selector.to_string(), app: app.into(), ..meta::Target::default() },
        buffer: meta::Buffer {
            slots_per_cpu: slots,
            bytes: slots * u64::from(cpus) * size_of::<Event>() as u64,
            drains: 0,
        },
        payload: options
            .payload
            .as_ref()
            .map(|p| meta::Payload { protocol: p.protocol.clone(), bytes: p.pieces() * 24 }),
        ..RunMeta::default()
    }
}

/// The settings of the host, and of the first of some processes, that can lengthen the tail.
pub fn settings(pids: &[u32]) -> Vec<meta::Setting> {
    let pid = pids.first().copied();
    let of_first = match pids {
        [first, _, ..] => format!(" (process {first}, the first of {})", pids.len()),
        _ => String::new(),
    };
    let as_meta = |s: tailsight_host::Setting| meta::Setting {
        value: if s.id.starts_with("target") { s.value + &of_first } else { s.value },
        id: s.id,
        title: s.title,
        verdict: s.verdict.name().into(),
        why: s.why,
    };
    tailsight_host::settings::read(&tailsight_host::Root::host(), pid).into_iter().map(as_meta).collect()
}

/// The kernel's names of the reasons for dropping packets, without their common prefix; empty where the kernel does not
/// provide them.
pub fn drop_reasons() -> Vec<String> {
    let mut names = tailsight_host::btf::enum_present("skb_drop_reason", 1024).unwrap_or_default();
    for name in &mut names {
        if let Some(short) = name.strip_prefix("SKB_DROP_REASON_") {
            *name = short.to_owned();
        }
    }
    names
}

/// What the hooks cost. `window_events`: events written while the cost was measured. The time of runs that the filters turned away counts
/// too: it is part of what an event costs.
pub fn cost(meta: &mut RunMeta, hooks: &[HookState], costs: Result<Vec<ProgramCost>, Error>, window_events: u64) {
    let costs = costs.unwrap_or_else(|e| {
        meta.warnings.push(format!("the cost of the hooks was not measured: {}", tailsight_units::chain(&e)));
        Vec::new()
    });
    let mut ns = 0.0;
    meta.hooks = hooks
        .iter()
        .map(|h| {
            let cost = h.program.and_then(|p| costs.iter().find(|c| c.name == p));
            if let Some(c) = cost {
                ns += c.runs as f64 * c.ns_per_run.unwrap_or(0.0);
            }
            meta::Hook {
                name: h.name.into(),
                probe: h.probe.into(),
                on: h.program.is_some(),
                program: h.program.unwrap_or_default().into(),
                reason: h.reason.clone(),
                optional: h.need == Need::Optional,
                ns_per_run: cost.and_then(|c| c.ns_per_run),
                measured_runs: cost.map_or(0, |c| c.runs),
                missed: 0,
            }
        })
        .collect();
    meta.send_entry = meta.send_entry_of_hooks();
    let events = meta.events();
    meta.overhead.events = events;
    meta.overhead.ns_per_event = if window_events > 0 { ns / window_events as f64 } else { 0.0 };
    meta.overhead.hooks_cpu_ns = (meta.overhead.ns_per_event * events as f64) as u64;
}

/// The steps of the wall clock. Lifetimes use CLOCK_MONOTONIC alone, so the error of this comparison does not affect them.
pub fn clocks(meta: &mut RunMeta, rows: &[tailsight_trace::tables::ClockRow]) {
    let verdict = judge(rows);
    for (at, size) in verdict.steps {
        meta.warnings.push(format!(
            "the wall clock was stepped by {:.3} ms, {:.3} s into the recording; lifetimes use CLOCK_MONOTONIC and are not affected",
            size as f64 / 1e6,
            at.saturating_sub(meta.start_ns) as f64 / 1e9
        ));
    }
}
