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
        text += &hook_table(&hooks, style.color, style.width);
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

/// A line a probe: the hooks that are on; below it those that are off, with the reason.
fn hook_table(hooks: &Result<Vec<HookState>, tailsight_record::Error>, color: bool, width: usize) -> String {
    let paint = |code: &str, s: &str| if color { format!("\x1b[{code}m{s}\x1b[0m") } else { s.to_owned() };
    let mut out = format!("\n{}\n", paint("1", "Hooks"));
    let hooks = match hooks {
        Ok(hooks) => hooks,
        Err(e) => return out + &format!("  {} {e}\n", paint("31", "✘")),
    };
    for probe in tailsight_record::probes::PROBES {
        let mine: Vec<&HookState> = hooks.iter().filter(|h| h.probe == probe.name).collect();
        let on: Vec<&str> = mine.iter().filter(|h| h.program.is_some()).map(|h| h.name).collect();
        let whole = !on.is_empty() && mine.iter().all(|h| h.program.is_some() || h.need != Need::Required);
        let mark = if whole { paint("32", "✔") } else { paint("31", "✘") };
        out += &format!("  {mark} {:<18}{}\n", probe.name, wrapped(&on, 22, width));
        let missing: Vec<&str> =
            mine.iter().filter(|h| h.program.is_none() && h.need != Need::Optional).map(|h| h.name).collect();
        if !missing.is_empty() {
            out += &format!("    {:<18}{}\n", "not in this kernel", wrapped(&missing, 22, width));
        }
        for hook in mine.iter().filter(|h| h.program.is_none() && h.need == Need::Optional) {
            out += &format!(
                "    {:<18}{}\n",
                "off by default",
                wrapped(&[hook.name, "(--with-hook turns it on)"], 22, width)
            );
        }
    }
    out
}

/// Words in lines no wider than the terminal, the following lines indented.
fn wrapped(words: &[&str], indent: usize, width: usize) -> String {
    let mut out = String::new();
    let mut column = indent;
    for word in words {
        if column > indent && column + 1 + word.len() > width.max(60) {
            out += &format!("\n{}", " ".repeat(indent));
            column = indent;
        }
        if column > indent {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += word.len();
    }
    out
}
