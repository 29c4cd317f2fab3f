//! The host settings that the papers found to hurt tails: the value now, why it matters, how to change it and back.
//!
//! In: a [`crate::Root`] and the facts read before on the machine, the kernel and the interfaces; optionally the process
//! under study. Out: a list of [`Setting`]s. Nothing is changed here: `change` and `undo` are shell commands for root, and
//! `undo` restores the value that was read.
//!
//! Papers: Tales of the Tail (SoCC'14) §4.1-4.6, NSight (NSDI'22) §7.1-7.3.

mod cpu;
mod memory;
mod network;
mod power;
mod target;
#[cfg(test)]
pub(crate) mod tests;

use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::nic::Nic;
use crate::{HostError, Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use target::Target;

/// What a setting does to the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rating {
    /// Its value is right for a server with a short tail, or it does no harm.
    Good,
    /// It is known to lengthen the tail.
    Hurts,
    /// It could not be read, or its effect cannot be determined from here.
    Unknown,
    /// This host does not have it.
    NotPresent,
}

impl Rating {
    /// As in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rating::Good => "good",
            Rating::Hurts => "hurts",
            Rating::Unknown => "unknown",
            Rating::NotPresent => "not_present",
        }
    }
}

/// One setting of the host or of the process under study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// A stable name, snake_case; per-interface settings end with `:` and the interface.
    pub id: String,
    /// Its name for a reader.
    pub title: String,
    /// The value now.
    pub value: String,
    /// What it does to the tail.
    pub verdict: Rating,
    /// Why, in a sentence or two, with the paper's section where one found it.
    pub why: String,
    /// Shell commands that change it, for root; a line that starts with `#` is an instruction, not a command.
    pub change: Vec<String>,
    /// Shell commands that restore the value above.
    pub undo: Vec<String>,
}

impl Setting {
    fn new(id: &str, title: &str, verdict: Rating, value: impl Into<String>, why: impl Into<String>) -> Self {
        Setting {
            id: id.into(),
            title: title.into(),
            value: value.into(),
            verdict,
            why: why.into(),
            change: Vec::new(),
            undo: Vec::new(),
        }
    }

    fn good(id: &str, title: &str, value: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(id, title, Rating::Good, value, why)
    }

    fn hurts(id: &str, title: &str, value: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(id, title, Rating::Hurts, value, why)
    }

    fn absent(id: &str, title: &str, why: impl Into<String>) -> Self {
        Self::new(id, title, Rating::NotPresent, "none", why)
    }

    fn unknown(id: &str, title: &str, value: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(id, title, Rating::Unknown, value, why)
    }

    /// For a file that could not be read: absent if it is not there, else unknown with the reason.
    fn unread(id: &str, title: &str, error: &HostError) -> Self {
        match error {
            HostError::Missing { .. } => Self::absent(id, title, error.to_string()),
            _ => Self::unknown(id, title, "unreadable", tailsight_units::chain(error)),
        }
    }

    fn with(mut self, commands: Commands) -> Self {
        self.change.extend(commands.change);
        self.undo.extend(commands.undo);
        self
    }
}

/// How to change something, and how to restore it.
#[derive(Debug, Default)]
struct Commands {
    change: Vec<String>,
    undo: Vec<String>,
}

impl Commands {
    fn one(change: impl Into<String>, undo: impl Into<String>) -> Self {
        Commands { change: vec![change.into()], undo: vec![undo.into()] }
    }

    fn sysctl(key: &str, new: &str, old: &str) -> Self {
        Self::one(format!("sysctl -w {key}={new}"), format!("sysctl -w {key}={old}"))
    }

    fn file(path: &str, new: &str, old: &str) -> Self {
        Self::one(format!("echo {} > {path}", quote(new)), format!("echo {} > {path}", quote(old)))
    }

    /// The same file of several CPUs, queues or interrupts. `path` holds `{}` where the number goes; `old` has the
    /// value of each. Only what differs from `new` is changed, and exactly that is restored. `exist` is how many such
    /// files the host has: a pattern that covers them all is used only when all of them change.
    fn numbered(path: &str, old: &[(u32, String)], exist: usize, new: &str) -> Self {
        let mut groups: Vec<(&str, Vec<u32>)> = Vec::new();
        for (n, value) in old.iter().filter(|(_, v)| v != new) {
            match groups.iter_mut().find(|(v, _)| v == value) {
                Some((_, numbers)) => numbers.push(*n),
                None => groups.push((value, vec![*n])),
            }
        }
        let mut changed: Vec<u32> = groups.iter().flat_map(|(_, n)| n.clone()).collect();
        changed.sort_unstable();
        if changed.is_empty() {
            return Commands::default();
        }
        let every_one_changes = changed.len() == exist;
        Commands {
            change: vec![Self::write(path, &changed, every_one_changes, new)],
            undo: groups.iter().map(|(v, n)| Self::write(path, n, every_one_changes && groups.len() == 1, v)).collect(),
        }
    }

    fn write(path: &str, numbers: &[u32], all: bool, value: &str) -> String {
        let value = quote(value);
        match numbers {
            [n] => format!("echo {value} > {}", path.replace("{}", &n.to_string())),
            _ if all && path.starts_with("/sys/devices/system/cpu/") => {
                format!("for f in {}; do echo {value} > $f; done", path.replace("{}", "[0-9]*"))
            }
            _ => {
                let list: Vec<String> = numbers.iter().map(u32::to_string).collect();
                format!("for n in {}; do echo {value} > {}; done", list.join(" "), path.replace("{}", "$n"))
            }
        }
    }

    fn and(mut self, other: Commands) -> Self {
        self.change.extend(other.change);
        self.undo.extend(other.undo);
        self
    }
}

fn quote(value: &str) -> String {
    if value.contains(' ') { format!("'{value}'") } else { value.to_owned() }
}

/// What the checks read from.
pub(crate) struct Context<'a> {
    pub(crate) root: &'a Root,
    pub(crate) machine: &'a Machine,
    pub(crate) kernel: &'a Kernel,
    pub(crate) nics: &'a [Nic],
    pub(crate) target: Option<&'a Target>,
}

impl Context<'_> {
    fn online(&self) -> &[u32] {
        self.machine.cpus_online.known().map_or(&[], Vec::as_slice)
    }

    /// Interfaces that carry a server's traffic: a device is behind them and they are up.
    fn live_nics(&self) -> impl Iterator<Item = &Nic> {
        self.nics.iter().filter(|n| n.physical && n.up)
    }

    /// The value of a per-CPU file (with `{}` for the number) of each online CPU that has it.
    fn per_cpu(&self, path: &str) -> Vec<(u32, String)> {
        let value = |n: &u32| Some((*n, self.root.text(&path.replace("{}", &n.to_string())).ok()?));
        self.online().iter().filter_map(value).collect()
    }
}

/// Reads every setting of a host, and of a process: of several the first, which starts the others. On the live host it takes about a quarter of a second, in which stolen
/// time is measured.
pub fn read(root: &Root, pid: Option<u32>) -> Vec<Setting> {
    let (machine, kernel, nics) = (Machine::collect(root), Kernel::collect(root), crate::nic::collect(root));
    let target = pid.map(|pid| Target::read(root, pid));
    collect(&Context { root, machine: &machine, kernel: &kernel, nics: &nics, target: target.as_ref() })
}

/// Checks every setting: the target's first, then those that matter most in the papers.
pub(crate) fn collect(cx: &Context<'_>) -> Vec<Setting> {
    let mut settings = target::check(cx);
    settings.extend(power::check(cx));
    settings.extend(network::check(cx));
    settings.extend(memory::check(cx));
    settings.extend(cpu::check(cx));
    settings
}

/// `4 of 8 CPUs`, or `8 CPUs` when it is all of them.
fn of_cpus(n: usize, all: usize) -> String {
    match (n, all) {
        (1, 1) => "the only CPU".into(),
        (n, all) if n == all => format!("all {all} CPUs"),
        _ => format!("{n} of {all} CPUs"),
    }
}
