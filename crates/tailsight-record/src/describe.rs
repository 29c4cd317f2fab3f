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
        payload: options.payload.as_ref().map(|p| meta::Payload {
            protocol: p.protocol.clone(),
            bytes: p.pieces() * 24,
            tls: None,
        }),
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
    meta.warnings.extend(steps_said(&judge(rows).steps, meta.start_ns));
}

/// Steps of the wall clock in a sentence; none where there were none. `steps`: CLOCK_MONOTONIC and size, ns. A host that sets its guest's clock
/// over and over makes dozens, which are one remark.
fn steps_said(steps: &[(u64, i64)], start_ns: u64) -> Option<String> {
    let &(first_ns, size_ns) = steps.first()?;
    let first_s = first_ns.saturating_sub(start_ns) as f64 / 1e9;
    let largest_ns = steps.iter().map(|&(_, size_ns)| size_ns.unsigned_abs()).max()?;
    let said = match steps.len() {
        1 => format!("by {:.3} ms, {first_s:.3} s into the recording", size_ns as f64 / 1e6),
        n => {
            format!("{n} times, by {:.3} ms at most, first {first_s:.3} s into the recording", largest_ns as f64 / 1e6)
        }
    };
    Some(format!("the wall clock was stepped {said}; lifetimes use CLOCK_MONOTONIC and are not affected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest whose clock its host set every 100 ms had 29 remarks, and what else there was to say was cut.
    #[test]
    fn steps_of_the_wall_clock_are_one_remark() {
        assert_eq!(steps_said(&[], 0), None);
        let said = |steps: &[(u64, i64)]| steps_said(steps, 1_000_000_000).unwrap();
        let rest = "; lifetimes use CLOCK_MONOTONIC and are not affected";
        let one = (1_226_000_000, -500_000);
        assert_eq!(said(&[one]), format!("the wall clock was stepped by -0.500 ms, 0.226 s into the recording{rest}"));
        let many = "3 times, by 1.000 ms at most, first 0.226 s into the recording";
        let steps = [one, (1_326_000_000, 1_000_000), (1_426_000_000, 500_000)];
        assert_eq!(said(&steps), format!("the wall clock was stepped {many}{rest}"));
    }
}
