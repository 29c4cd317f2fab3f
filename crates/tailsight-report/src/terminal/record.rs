//! What `tailsight record` says when it is done.
//!
//! In: the run's description. Out: three to six entries, each one line where the width allows: what was recorded, what was
//! lost, what it cost, warnings, which hooks were off and why.

use tailsight_trace::RunMeta;
use tailsight_trace::meta::State;

use super::Style;
use super::text::{clean, paint, wrap};
use crate::units;

/// The summary of a recording. One entry each for events, loss and cost; then at most three for warnings and, if `verbose`, hooks that were
/// off: a diagnosis notes those that limit its answer.
pub fn record_summary(run: &RunMeta, style: &Style, verbose: bool) -> String {
    let mut lines = vec![recorded(run), lost(run), cost(run)];
    let mut rest: Vec<String> = Vec::new();
    if run.state != State::Complete {
        let why = run.partial.as_deref().unwrap_or("the recorder did not finish");
        rest.push(format!("Partial:  {why}"));
    }
    lines.extend(traced(run));
    lines.extend(tls(run));
    rest.extend(run.warnings.iter().map(|w| format!("Warning:  {w}")));
    if verbose {
        rest.extend(hooks_off(run));
    }
    if rest.len() > 3 {
        let more = rest.len() - 2;
        rest.truncate(2);
        rest.push(format!("          … and {} in run.json", units::counted(more as u64, "more remark")));
    }
    lines.append(&mut rest);
    let mut out = String::new();
    for entry in &lines {
        let (label, text) = entry.split_at(LABEL.min(entry.len()));
        let code = if label.starts_with("Warning") || label.starts_with("Partial") { "1;33" } else { "1" };
        for (i, row) in wrap(text, style.columns() - LABEL, INDENT).into_iter().enumerate() {
            out += &if i == 0 { paint(style, code, label) + &row } else { row };
            out.push('\n');
        }
    }
    out
}

/// Columns of a label, and as many spaces.
const LABEL: usize = 10;
const INDENT: &str = "          ";

fn recorded(run: &RunMeta) -> String {
    let ns = run.end_ns.saturating_sub(run.start_ns);
    let app = if run.target.app.is_empty() { "the target" } else { &run.target.app };
    let mut target = Vec::new();
    match run.target.pids.as_slice() {
        [] => {}
        [pid] => target.push(format!("pid {pid}")),
        many => {
            // A process that one of them started may be another program.
            let mut others: Vec<String> =
                run.target.processes.iter().map(|process| clean(&process.comm)).filter(|comm| comm != app).collect();
            others.sort_unstable();
            others.dedup();
            let others = if others.is_empty() { String::new() } else { format!(", also {}", others.join(", ")) };
            target.push(format!("{} processes{others}", many.len()));
        }
    }
    match run.target.ports.as_slice() {
        [] => {}
        [port] => target.push(format!("port {port}")),
        many => target.push(format!("{} ports", many.len())),
    }
    let target = if target.is_empty() { String::new() } else { format!(" ({})", target.join(", ")) };
    format!(
        "Recorded: {app}{target} for {}, {} on {}",
        units::duration(ns),
        units::counted(run.events(), "event"),
        units::counted(run.cpus.len() as u64, "core"),
    )
}

fn lost(run: &RunMeta) -> String {
    let lost = run.lost();
    if lost == 0 {
        return "Lost:     no events".into();
    }
    let events = run.events() + lost;
    let mut cores: Vec<_> =
        run.cpus.iter().filter(|c| c.lost > 0).map(|c| format!("core {}: {}", c.cpu, units::count(c.lost))).collect();
    // The kernel does not run a hook nested in itself on one core.
    let mut busy: Vec<_> =
        run.hooks.iter().filter(|h| h.missed > 0).map(|h| format!("{}: {}", h.name, units::count(h.missed))).collect();
    let list = |items: &mut Vec<String>, what: &str| {
        let more = items.len().saturating_sub(4);
        items.truncate(4);
        if more > 0 { format!("{} and {more} more {what}", items.join(", ")) } else { items.join(", ") }
    };
    let mut out = format!(
        "Lost:     {} ({} of {})",
        units::counted(lost, "event"),
        units::percent(lost as f64 / events as f64),
        units::count(events)
    );
    if !cores.is_empty() {
        out += &format!(" in full buffers; {}", list(&mut cores, "cores"));
    }
    if !busy.is_empty() {
        out += &format!(
            "{} in a hook that was already running; {}",
            if out.contains(';') { "," } else { "" },
            list(&mut busy, "hooks")
        );
    }
    out
}

fn cost(run: &RunMeta) -> String {
    let o = &run.overhead;
    let hurried = hurried(run);
    if o.ns_per_event <= 0.0 {
        let recorder = units::duration(o.recorder_cpu_ns);
        return format!("Cost:     hooks not measured; {recorder} of CPU in the recorder{hurried}");
    }
    let wall = run.end_ns.saturating_sub(run.start_ns) as f64 * f64::from(run.host.cpus.max(1));
    let share = if wall > 0.0 {
        format!(
            " ({} of {})",
            units::percent(o.hooks_cpu_ns as f64 / wall),
            units::counted(u64::from(run.host.cpus.max(1)), "core")
        )
    } else {
        String::new()
    };
    format!(
        "Cost:     {:.0} ns per event, {} of CPU in the hooks{share}, {} in the recorder{hurried}",
        o.ns_per_event,
        units::duration(o.hooks_cpu_ns),
        units::duration(o.recorder_cpu_ns),
    )
}

/// How often the recorder's work did not give way to others.
fn hurried(run: &RunMeta) -> String {
    let placement = run.recorder.as_ref().and_then(|recorder| recorder.placement.as_ref());
    let times = placement.map_or(0, |p| p.hurried + p.nearly_full);
    if times == 0 {
        return String::new();
    }
    format!(
        ", whose work could not wait any longer for an idle core {}",
        if times == 1 { "once".into() } else { units::counted(times, "time") }
    )
}

/// What traced functions cost.
fn traced(run: &RunMeta) -> Option<String> {
    let traced = run.traced.as_ref().filter(|t| !t.functions.is_empty())?;
    let mut functions: Vec<_> = traced.functions.iter().collect();
    functions.sort_by_key(|f| std::cmp::Reverse(f.calls));
    let more = functions.len().saturating_sub(4);
    let function =
        |f: &&tailsight_trace::meta::TracedFunction| format!("{} {}", f.name, units::counted(f.calls, "call"));
    let mut out = format!("Traced:   {}", functions.iter().take(4).map(function).collect::<Vec<_>>().join(", "));
    if more > 0 {
        out += &format!(" and {} more", units::count(more as u64));
    }
    let taken: f64 = functions.iter().filter_map(|f| Some(f.hit_ns?.iter().sum::<f64>() * f.calls as f64)).sum();
    let calls: u64 = functions.iter().filter(|f| f.hit_ns.is_some()).map(|f| f.calls).sum();
    if calls == 0 {
        return Some(out + "; cost per call not measured");
    }
    let per_call = units::duration((taken / calls as f64) as u64);
    let program = traced.program_ns.map_or(String::new(), |ns| format!(", {:.0} ns of it in the program", 2.0 * ns));
    Some(out + &format!("; {per_call} per call{program}, {} of CPU in total", units::duration(taken as u64)))
}

/// What it cost to read the plain text of TLS.
fn tls(run: &RunMeta) -> Option<String> {
    // A program that has such functions need not serve with them.
    let tls = run.payload.as_ref()?.tls.as_ref().filter(|tls| tls.calls > 0)?;
    let calls = units::counted(tls.calls, "call");
    let cost = tls.call_ns.map_or("cost per call not measured".to_owned(), |call_ns| {
        let taken_ns = call_ns * tls.calls as f64;
        format!("{} per call, {} of CPU in total", units::duration(call_ns as u64), units::duration(taken_ns as u64))
    });
    Some(format!("TLS:      plain text read in {}, {calls}; {cost}", clean(&tls.files.join(", "))))
}

/// One line a reason, so that ten hooks that a kernel lacks do not take ten lines.
fn hooks_off(run: &RunMeta) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for hook in run.hooks.iter().filter(|h| !h.on && !h.optional) {
        let reason = hook.reason.as_deref().unwrap_or("no reason recorded");
        match by_reason.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, names)) => names.push(&hook.name),
            None => by_reason.push((reason, vec![&hook.name])),
        }
    }
    by_reason
        .into_iter()
        .map(|(reason, names)| {
            let shown = names.len().min(6);
            let more = if names.len() > shown { format!(" and {} more", names.len() - shown) } else { String::new() };
            format!("Off:      {}{more}: {reason}", names[..shown].join(", "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::meta::{self, Cpu, Hook};

    #[test]
    fn the_cost_of_plain_text_is_said() {
        let mut run = RunMeta::default();
        assert_eq!(tls(&run), None);
        let read = meta::Tls { files: vec!["libssl.so.3".into()], calls: 8_407, ..meta::Tls::default() };
        let payload = |tls| Some(meta::Payload { tls: Some(tls), ..meta::Payload::default() });
        run.payload = payload(read.clone());
        assert_eq!(
            tls(&run).unwrap(),
            "TLS:      plain text read in libssl.so.3, 8,407 calls; cost per call not measured"
        );
        run.payload = payload(meta::Tls { calls: 0, ..read.clone() });
        assert_eq!(tls(&run), None, "each Go program that can serve has these functions");
        run.payload = payload(meta::Tls { call_ns: Some(2_000.0), ..read });
        assert!(
            tls(&run).unwrap().ends_with("8,407 calls; 2.00 us per call, 16.8 ms of CPU in total"),
            "{:?}",
            tls(&run)
        );
    }

    /// Regression: three events that a nested hook did not write were reported as lost "in full buffers; " of no core.
    #[test]
    fn events_are_lost_where_they_were_lost() {
        let cpu = |cpu, lost| Cpu { cpu, events: 500, lost };
        let hook = |name: &str, missed| Hook { name: name.into(), missed, ..Hook::default() };
        let mut run = RunMeta { cpus: vec![cpu(0, 0), cpu(1, 0)], ..RunMeta::default() };
        run.hooks = vec![hook("sched_switch", 0), hook("contention_begin", 3)];
        let said = lost(&run);
        assert!(said.starts_with("Lost:     3 events (0.3 % of 1,003) in a hook that was already running"), "{said}");
        assert!(said.ends_with("; contention_begin: 3") && !said.contains("buffers"), "{said}");
        run.cpus[1].lost = 7;
        let said = lost(&run);
        assert!(
            said.contains("in full buffers; core 1: 7, in a hook that was already running; contention_begin: 3"),
            "{said}"
        );
        run.hooks.clear();
        assert!(lost(&run).ends_with("in full buffers; core 1: 7"), "{}", lost(&run));
    }
}
