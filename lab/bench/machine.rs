//! The machine of the figures. In: /proc, /etc, the peers' own output. Out: a Markdown table and JSON.

use std::process::Command;

use serde_json::{Value, json};
use tailsight_host::Root;
use tailsight_host::machine::Machine;

use crate::Bench;
use crate::table::table;

/// The machine, the versions and the day.
#[derive(Debug)]
pub struct MachineFacts {
    pairs: Vec<(&'static str, String)>,
}

impl MachineFacts {
    /// Looks at the machine.
    pub fn collect(bench: &Bench) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = tailsight_host::proc::memory(&Root::host(), "MemTotal").unwrap_or(0);
        let clock = read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let mut pairs = vec![("date", said("date", &["-u", "+%F"]))];
        pairs.extend(host());
        pairs.push(("memory", format!("{:.1} GiB", memory as f64 / f64::from(1 << 30))));
        pairs.push(("clock source", clock.trim().to_owned()));
        let load = pairs.iter().find(|(what, _)| *what == LOAD).map(|(_, load)| load.as_str());
        if let Some(busy) = load.filter(|load| load.parse::<f64>().is_ok_and(|load| load > 0.5)) {
            eprintln!("bench: the load average is {busy}: something else runs here, and the figures will show it");
        }
        pairs.push(("tailsight", said(&bench.tailsight.to_string_lossy(), &["--version"])));
        pairs.extend(["memcached", "perf", "bpftrace"].map(|program| (program, said(program, &["--version"]))));
        Self { pairs }
    }

    /// As a Markdown table.
    pub fn markdown(&self) -> String {
        table(&["machine", ""], self.pairs.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]))
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        self.pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

const LOAD: &str = "load average before";

/// The processor, the system, and other load on it.
pub fn host() -> [(&'static str, String); 4] {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let machine = Machine::collect(&Root::host());
    let model = machine.cpu_model.known().map_or("", String::as_str);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let guest = if machine.virtual_machine { ", a virtual machine" } else { "" };
    [
        ("processor", format!("{model}, {cores} cores{guest}")),
        ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("userland", pretty_name(&read("/etc/os-release"))),
        (LOAD, read("/proc/loadavg").split(' ').next().unwrap_or("?").to_owned()),
    ]
}

fn pretty_name(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or_default().trim().trim_matches('"').to_owned()
}

/// The first line of a program's output (nginx prints its version on stderr).
pub fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    let text = output.map(|o| String::from_utf8_lossy(&[o.stdout, o.stderr].concat()).into_owned());
    text.and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_else(|| "not there".to_owned())
}
