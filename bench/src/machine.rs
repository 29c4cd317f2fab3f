//! What the figures were measured on. In: /proc, /etc, the peers' own words. Out: a Markdown table and JSON.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::Bench;
use crate::table::table;

/// The machine, the versions and the day.
#[derive(Debug)]
pub struct Facts {
    pairs: Vec<(&'static str, String)>,
}

impl Facts {
    /// Looks at the machine.
    pub fn collect(bench: &Bench) -> anyhow::Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str, split: char| {
            text.lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| line.split_once(split))
                .map_or(String::new(), |(_, value)| value.trim().trim_matches('"').to_owned())
        };
        let cpuinfo = read("/proc/cpuinfo");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let guest = if cpuinfo.contains(" hypervisor") { ", a virtual machine" } else { "" };
        let memory_kib: u64 =
            field(&read("/proc/meminfo"), "MemTotal", ':').trim_end_matches(" kB").parse().unwrap_or(0);
        let load = read("/proc/loadavg");
        let busy = load.split(' ').next().unwrap_or("?").to_owned();
        if busy.parse::<f64>().is_ok_and(|load| load > 0.5) {
            eprintln!("bench: the load average is {busy}: something else runs here, and the figures will show it");
        }
        let pairs = vec![
            ("date", date(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())),
            ("processor", format!("{}, {cores} cores{guest}", field(&cpuinfo, "model name", ':'))),
            ("memory", format!("{:.1} GiB", memory_kib as f64 / 1024.0 / 1024.0)),
            ("kernel", read("/proc/sys/kernel/osrelease").trim().to_owned()),
            ("userland", field(&read("/etc/os-release"), "PRETTY_NAME", '=')),
            (
                "clock source",
                read("/sys/devices/system/clocksource/clocksource0/current_clocksource").trim().to_owned(),
            ),
            ("load average before", busy),
            ("tailsight", version(&bench.tailsight.to_string_lossy(), "--version")),
            ("memcached", version("memcached", "--version")),
            ("perf", version("perf", "--version")),
            ("bpftrace", version("bpftrace", "--version")),
        ];
        Ok(Self { pairs })
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

/// The first line of what a program says about itself.
fn version(program: &str, argument: &str) -> String {
    Command::new(program)
        .arg(argument)
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned))
        .unwrap_or_else(|| "not there".to_owned())
}

/// The day (UTC) of a time in seconds since 1970, as `2026-01-31` (days to civil date, H. Hinnant's algorithm).
fn date(unix_s: u64) -> String {
    let days = (unix_s / 86_400) as i64 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_772_323_199), "2026-02-28");
        assert_eq!(date(1_772_323_200), "2026-03-01");
    }
}
