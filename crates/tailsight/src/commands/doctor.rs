//! `tailsight doctor`: what this host can record, and what on it hurts tail latency.

use schemars::JsonSchema;
use serde::Serialize;
use tailsight_host::{Fact, HostReport, Root};
use tailsight_record::probes::Need;
use tailsight_record::{HookChoice, HookState, loader};
use tailsight_units::chain;

use crate::cli::Doctor;
use crate::{Exit, terminal};

/// Looks and prints. Settings that hurt are results; that this host cannot record is a failure (exit 1), also with JSON.
pub fn run(args: &Doctor) -> anyhow::Result<Exit> {
    let mut host = HostReport::collect(&Root::host(), args.pid);
    let hooks = loader::survey(&HookChoice::default());
    host.blockers.extend(lacking(hooks.as_deref().ok()));
    let able = can_record(&host.blockers, hooks.as_deref().ok());
    if args.json {
        let hooks = match &hooks {
            Ok(hooks) => Fact::Known(hooks.iter().map(Hook::of).collect()),
            Err(e) => Fact::unknown(chain(e)),
        };
        terminal::print_sorted(&Report { host, can_record: able, hooks })?;
    } else {
        let style = terminal::style();
        let mut text = host.table(style.color, style.width);
        text += &hook_table(&hooks, style.color, style.width);
        terminal::print(&text)?;
    }
    Ok(if able { Exit::Done } else { Exit::Failed })
}

/// Nothing forbids recording, and every hook that messages need is there.
fn can_record(blockers: &[String], hooks: Option<&[HookState]>) -> bool {
    let lacks = |h: &HookState| h.need == Need::Required && h.program.is_none();
    blockers.is_empty() && hooks.is_some_and(|hooks| !hooks.iter().any(lacks))
}

/// That hooks are lacking without which there are no messages.
fn lacking(hooks: Option<&[HookState]>) -> Option<String> {
    let lacks = |h: &&HookState| h.need == Need::Required && h.program.is_none();
    let why = |h: &HookState| format!("{} ({})", h.name, h.reason.as_deref().unwrap_or("off"));
    let off: Vec<String> = hooks?.iter().filter(lacks).map(why).collect();
    (!off.is_empty()).then(|| {
        format!(
            "hooks that messages need are off: {}; a recording needs kernel 6.3 or newer, or 6.1 with fentry (Debian 12 \
             and 13, Ubuntu 24.04)",
            off.join(", ")
        )
    })
}

/// What `doctor --json` prints: facts about a host.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "HostReport")]
pub struct Report {
    #[serde(flatten)]
    host: HostReport,
    /// Whether this host can record.
    can_record: bool,
    /// The hooks of this kernel.
    hooks: Fact<Vec<Hook>>,
}

/// A hook of this kernel.
#[derive(Serialize, JsonSchema)]
pub struct Hook {
    /// Its name.
    name: &'static str,
    /// The probe that it belongs to.
    probe: &'static str,
    /// Whether the kernel has it.
    available: bool,
    /// Whether a recording uses it.
    on: bool,
    /// Whether messages cannot be followed without it.
    required: bool,
    /// Why it is off.
    reason: Option<String>,
    /// What the results lack without it.
    tells: &'static str,
}

impl Hook {
    fn of(hook: &HookState) -> Hook {
        Hook {
            name: hook.name,
            probe: hook.probe,
            available: hook.there,
            on: hook.program.is_some(),
            required: hook.need == Need::Required,
            reason: hook.reason.clone(),
            tells: hook.tells,
        }
    }
}

/// A line a probe: the hooks that are on; below it those that are off, with the reason.
fn hook_table(hooks: &Result<Vec<HookState>, tailsight_record::Error>, color: bool, width: usize) -> String {
    let paint = |code: &str, s: &str| if color { format!("\x1b[{code}m{s}\x1b[0m") } else { s.to_owned() };
    let mut out = format!("\n{}\n", paint("1", "Hooks"));
    let hooks = match hooks {
        Ok(hooks) => hooks,
        Err(e) => return out + &format!("  {} {}\n", paint("31", "✘"), chain(e)),
    };
    for probe in tailsight_record::probes::PROBES.iter().filter(|probe| !probe.hooks.is_empty()) {
        let mine: Vec<&HookState> = hooks.iter().filter(|h| h.probe == probe.name).collect();
        let on: Vec<&str> = mine.iter().filter(|h| h.program.is_some()).map(|h| h.name).collect();
        // Off by choice is no fault: only a hook that messages need and that is not there is one.
        let lacks = mine.iter().any(|h| h.program.is_none() && h.need == Need::Required);
        let mark = match (lacks, on.is_empty()) {
            (true, _) => paint("31", "✘"),
            (false, true) => paint("2", "–"),
            (false, false) => paint("32", "✔"),
        };
        let row = |mark: &str, label: &str, words: &[&str]| {
            let line = format!("  {mark} {label:<w$}  {}", wrapped(words, INDENT, width), w = INDENT - 6);
            line.trim_end().to_owned() + "\n"
        };
        out += &row(&mark, probe.name, &on);
        for (absent, label) in [(true, "not in this kernel"), (false, "cannot be attached")] {
            let missing: Vec<&str> = mine.iter().filter(|h| !h.there && h.absent == absent).map(|h| h.name).collect();
            if !missing.is_empty() {
                out += &row(" ", label, &missing);
            }
        }
        let optional: Vec<&str> = mine
            .iter()
            .filter(|h| h.there && h.program.is_none() && h.need == Need::Optional)
            .map(|h| h.name)
            .collect();
        if !optional.is_empty() {
            out += &row(" ", "off by default", &[&optional[..], &["(--with-hook turns them on)"]].concat());
        }
    }
    let reasons: std::collections::BTreeSet<&str> =
        hooks.iter().filter(|h| !h.there && !h.absent).filter_map(|h| h.reason.as_deref()).collect();
    for reason in reasons {
        let words: Vec<&str> = "cannot be attached:".split(' ').chain(reason.split_whitespace()).collect();
        out += &format!("  {}\n", wrapped(&words, 2, width));
    }
    out
}

/// The column of the hooks' names: after the longest label and two spaces.
const INDENT: usize = 24;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(probe: &'static str, name: &'static str, need: Need, on: bool) -> HookState {
        let there = on || need == Need::Optional;
        HookState {
            probe,
            name,
            need,
            there,
            absent: !there,
            program: on.then_some(name),
            instead: vec![],
            with: vec![],
            reason: None,
            tells: "",
        }
    }

    fn line<'a>(text: &'a str, start: &str) -> &'a str {
        text.lines().find(|l| l.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{start} in {text}"))
    }

    /// It said ✘ for hooks that nobody had asked for, and "not in this kernelname".
    #[test]
    fn off_by_choice_is_no_fault_and_labels_end_before_names() {
        let hooks = vec![
            hook("syscalls", "sys_enter", Need::Optional, false),
            hook("syscalls", "sys_exit", Need::Optional, false),
            hook("sched", "sched_switch", Need::Required, true),
            hook("memory", "mm_a", Need::Default, false),
            hook("socket", "sock_recv_length", Need::Required, false),
        ];
        let text = hook_table(&Ok(hooks), false, 80);
        assert_eq!(line(&text, "– syscalls").trim(), "– syscalls");
        assert_eq!(
            line(&text, "off by default").trim(),
            "off by default      sys_enter sys_exit (--with-hook turns them on)"
        );
        assert!(line(&text, "✔ sched").ends_with("  sched_switch"), "{text}");
        for lacking in ["mm_a", "sock_recv_length"] {
            let label = format!("not in this kernel  {lacking}");
            assert!(text.lines().any(|l| l.trim() == label), "{text}");
        }
        assert!(text.contains("– memory") && text.contains("✘ socket"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }

    /// On 6.1 it said that --with-hook turns on what came with 6.4.
    #[test]
    fn what_the_kernel_does_not_have_is_not_offered() {
        let lacking =
            HookState { there: false, absent: true, ..hook("ipi", "csd_function_entry", Need::Optional, false) };
        let text = hook_table(&Ok(vec![lacking.clone()]), false, 80);
        assert_eq!(line(&text, "not in this kernel").trim(), "not in this kernel  csd_function_entry");
        assert!(!text.contains("--with-hook"), "{text}");
        assert!(!Hook::of(&lacking).available);
    }

    /// It said "not in this kernel" of what the kernel has and refused, and the recorder said that it refused.
    #[test]
    fn what_the_kernel_refuses_is_not_said_to_be_missing() {
        let refused = HookState {
            there: false,
            absent: false,
            reason: Some("the kernel refuses fentry programs: Operation not permitted".into()),
            ..hook("disk", "do_fsync_enter", Need::Default, false)
        };
        let text = hook_table(&Ok(vec![refused]), false, 80);
        assert!(line(&text, "cannot be attached").ends_with("  do_fsync_enter"), "{text}");
        assert!(!text.contains("not in this kernel"), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = "cannot be attached: the kernel refuses fentry programs: Operation not permitted";
        assert!(words.ends_with(reason), "{text}");
    }

    /// The first line said that the host can record, and the exit code that it cannot.
    #[test]
    fn hooks_that_messages_need_are_among_what_forbids_recording() {
        let lacks = [hook("socket", "sock_recv_length", Need::Required, false)];
        let why = lacking(Some(&lacks)).unwrap();
        assert!(why.contains("off: sock_recv_length (off);") && why.contains("6.1 with fentry"), "{why}");
        assert_eq!(lacking(Some(&[hook("sched", "sched_switch", Need::Required, true)])), None);
        assert!(!can_record(&[why], Some(&lacks)));
    }

    #[test]
    fn a_host_that_cannot_record_is_a_failure() {
        let hooks =
            [hook("sched", "sched_switch", Need::Required, true), hook("idle", "cpu_idle", Need::Optional, false)];
        assert!(can_record(&[], Some(&hooks)));
        assert!(!can_record(&["no rights".to_owned()], Some(&hooks)));
        assert!(!can_record(&[], None), "hooks could not be looked for");
        assert!(!can_record(&[], Some(&[hook("sched", "sched_switch", Need::Required, false)])));
    }
}
