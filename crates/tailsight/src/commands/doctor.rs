//! `tailsight doctor`: what this host can record, and what on it hurts tail latency.

use tailsight_host::{HostReport, Root};
use tailsight_record::probes::Need;
use tailsight_record::{HookChoice, HookState, loader};

use crate::cli::Doctor;
use crate::{Verdict, terminal};

/// Looks and prints. Failing checks are results, not failures.
pub fn run(args: &Doctor) -> anyhow::Result<Verdict> {
    let host = HostReport::collect(&Root::host(), args.pid);
    let hooks = loader::survey(&HookChoice::default());
    if args.json {
        let mut value = serde_json::to_value(&host)?;
        value["hooks"] = match &hooks {
            Ok(hooks) => hooks.iter().map(hook_json).collect(),
            Err(e) => serde_json::json!({ "unknown": e.to_string() }),
        };
        terminal::print(&(serde_json::to_string_pretty(&value)? + "\n"))?;
    } else {
        let style = terminal::style();
        let mut text = host.table(style.color, style.width);
        text += &hook_table(&hooks, style.color);
        terminal::print(&text)?;
    }
    Ok(Verdict::Done)
}

fn hook_json(hook: &HookState) -> serde_json::Value {
    serde_json::json!({
        "name": hook.name,
        "probe": hook.probe,
        "available": hook.program.is_some() || hook.need == Need::Optional,
        "on": hook.program.is_some(),
        "required": hook.need == Need::Required,
        "reason": hook.reason,
        "tells": hook.tells,
    })
}

/// One line a probe with its hooks; what is off is listed with the reason below.
fn hook_table(hooks: &Result<Vec<HookState>, tailsight_record::Error>, color: bool) -> String {
    let bold = |s: &str| if color { format!("\x1b[1m{s}\x1b[0m") } else { s.to_owned() };
    let mark = |on: bool| match (on, color) {
        (true, true) => "\x1b[32m✔\x1b[0m",
        (false, true) => "\x1b[31m✘\x1b[0m",
        (true, false) => "✔",
        (false, false) => "✘",
    };
    let mut out = format!("\n{}\n", bold("Hooks"));
    let hooks = match hooks {
        Ok(hooks) => hooks,
        Err(e) => return out + &format!("  {} {e}\n", mark(false)),
    };
    for probe in tailsight_record::probes::PROBES {
        let mine: Vec<&HookState> = hooks.iter().filter(|h| h.probe == probe.name).collect();
        let on = mine.iter().filter(|h| h.program.is_some()).count();
        let whole = mine.iter().all(|h| h.program.is_some() || h.need != Need::Required);
        out += &format!("  {} {:<11} {on} of {} hooks on\n", mark(whole && on > 0), probe.name, mine.len());
        for hook in mine.iter().filter(|h| h.program.is_none()) {
            let reason = hook.reason.as_deref().unwrap_or_default();
            out += &format!("      – {}: {reason}\n", hook.name);
        }
    }
    out
}
