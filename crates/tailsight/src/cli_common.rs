//! What several commands share on the command line: the question of a diagnosis, and values that more than one of them takes. In: words.
//! Out: data, or why a word is none.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use tailsight_host::Root;
use tailsight_host::container::{self, Unmeant};
use tailsight_lifetime::Leg;
use tailsight_load::Protocol;
use tailsight_record::Selector;
use tailsight_stats::method::PercentileGoal;
use tailsight_units::{Untrusted, parse};

/// Who is recorded or watched; a command has an argument group `target` of which one is required.
#[derive(Debug, Args)]
pub struct Target {
    /// The process, its threads and its descendants
    #[arg(short, long, value_name = "PID", group = "target", value_parser = process)]
    pub pid: Option<u32>,
    /// Every process with this command name; write bytes that are not text as they are, or as \xNN
    #[arg(long, value_name = "NAME", group = "target")]
    pub comm: Option<std::ffi::OsString>,
    /// Every process of this cgroup and of the cgroups below it
    #[arg(long, value_name = "PATH", group = "target")]
    pub cgroup: Option<PathBuf>,
    /// The process that listens on this port, in any network namespace; records the messages of this port only
    #[arg(long, value_name = "PORT", group = "target", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// The first process of this container and its descendants: the container's id, its name, or NAMESPACE/POD/NAME
    #[arg(long, value_name = "NAME", group = "target")]
    pub container: Option<String>,
    /// A program to start for the recording, and to stop after it
    #[arg(last = true, value_name = "CMD", group = "target")]
    pub command: Vec<String>,
}

impl Target {
    /// As the recorder has it.
    ///
    /// # Errors
    /// No container is called so, or several are.
    pub fn selector(&self) -> anyhow::Result<Selector> {
        Ok(if let Some(pid) = self.pid {
            Selector::Pid(pid)
        } else if let Some(name) = &self.container {
            Selector::Pid(first_process(name)?)
        } else if let Some(comm) = &self.comm {
            Selector::Comm(match comm.to_str() {
                Some(text) => text.to_owned(),
                None => tailsight_units::name::from_bytes(comm.as_bytes()),
            })
        } else if let Some(path) = &self.cgroup {
            Selector::Cgroup(path.clone())
        } else if let Some(port) = self.port {
            Selector::Port(port)
        } else {
            Selector::Command(self.command.clone())
        })
    }
}

/// The first process of a container that runs here.
fn first_process(name: &str) -> anyhow::Result<u32> {
    /// As many others as an error lists.
    const LISTED: usize = 12;
    let listed = |titles: Vec<String>| {
        let titles: Vec<String> = titles.iter().take(LISTED).map(|title| Untrusted(title).to_string()).collect();
        titles.join(", ")
    };
    let name_shown = Untrusted(name);
    match container::named(&container::running(&Root::host()), name) {
        Ok(container) => Ok(container.pid),
        Err(Unmeant::None(titles)) if titles.is_empty() => {
            bail!(
                "--container {name_shown}: no process here is in a container; --cgroup PATH or -p PID chooses otherwise"
            )
        }
        Err(Unmeant::None(titles)) => {
            bail!("--container {name_shown}: no container here is called so; these run: {}", listed(titles))
        }
        Err(Unmeant::Several(titles)) => {
            bail!("--container {name_shown}: several are called so: {}; give the id of one", listed(titles))
        }
    }
}

/// What `diagnose` and `report` share.
#[derive(Clone, Debug, Args)]
pub struct Question {
    /// The messages under study, by percentile of latency [default: p99..p100, wider where that holds too few]
    #[arg(long, value_name = "SLICE", value_parser = slice, allow_hyphen_values = true)]
    pub focus: Option<String>,
    /// The messages to compare them with [default: p45..p55, wider where that holds too few]
    #[arg(long, value_name = "SLICE", value_parser = slice, allow_hyphen_values = true)]
    pub reference: Option<String>,
    /// receive, service, transmit or total [default: total; where most messages have no reply, the longest leg they have]
    #[arg(long, value_name = "LEG")]
    pub leg: Option<Leg>,
    /// Instead of --focus: every message that took longer than this, e.g. 20ms; the slowest ones where these are too few
    #[arg(long, value_name = "TIME", value_parser = nanoseconds, conflicts_with = "focus", help_heading = "Analysis")]
    pub slower_than: Option<u64>,
    /// Only requests of this class, as the table of classes names it: the slow ones are compared with its own median ones. Also its only
    /// beginning; NAME* means all classes that begin so (of a run with --protocol)
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help_heading = "Analysis")]
    pub class: Option<String>,
    /// Replace a frame by its nested frames when they explain at least this part of its deviation (above 0, at most 1)
    #[arg(long, value_name = "PART", default_value_t = 0.8, value_parser = part, help_heading = "Analysis")]
    pub nest: f64,
    /// Ignore differences of a message up to this, e.g. 300ns or 1us
    #[arg(long, value_name = "TIME", default_value = "300ns", value_parser = nanoseconds, help_heading = "Analysis")]
    pub granularity: u64,
    /// A category table of your own (docs/categories.md)
    #[arg(long, value_name = "FILE", help_heading = "Analysis")]
    pub categories: Option<PathBuf>,
    /// A table of runtime functions of your own, used before the built-in one (docs/functions.md)
    #[arg(long, value_name = "FILE", help_heading = "Analysis")]
    pub runtimes: Option<PathBuf>,
}

/// A text that is a slice. One that holds too few messages is found with the messages: it is N/A, not wrong usage.
fn slice(text: &str) -> Result<String, String> {
    tailsight_diagnose::parse_focus(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A process id.
pub fn process(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a process id: write a number; `pgrep -a NAME` finds it"))
}

fn part(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|p| *p > 0.0 && *p <= 1.0)
        .ok_or_else(|| format!("`{text}` is not a share; write a number above 0 and at most 1, such as 0.8"))
}

pub fn nanoseconds(text: &str) -> Result<u64, String> {
    parse::duration_ns(text).ok_or_else(|| format!("{text:?} is not a time: write for example 300ns or 1us"))
}

/// An application protocol by its name.
pub fn protocol(text: &str) -> Result<Protocol, String> {
    let names = || Protocol::ALL.map(Protocol::name).join(", ");
    text.parse().map_err(|_| format!("`{text}` is not a protocol; allowed: {}", names()))
}

/// A percentile such as p99.9, as a quantile.
pub fn percentile(text: &str) -> Result<f64, String> {
    let target: PercentileGoal =
        text.trim().parse().map_err(|_| format!("`{text}` is not a percentile such as p99.9"))?;
    Ok(target.quantile)
}
