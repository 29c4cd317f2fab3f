//! Changes that are taken back to what was there before, whatever that was.
//!
//! In: what a fix changes, as `data/advice.toml` says it. Out: a command and its undo, with placeholders ([`super::fill`]). The
//! command keeps what it finds in /run, the undo writes that and removes it. Either may be run twice: what was kept first is
//! what comes back. Shell of POSIX; where /proc says it, no other program's wording is relied on.

use serde::Deserialize;

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// Kernel parameters, `key=value` with blanks between.
    Sysctl(String),
    /// What a file (or each that a pattern finds) holds: path, value.
    File(String, String),
    /// The cores of every thread of the process that the cause is, or, when that is not known, that is called so.
    PinNamed(String),
    /// The cores of the target's threads.
    PinTarget(String),
    /// The scheduling policy of the target's threads becomes real-time, at the lowest priority.
    RealTime,
    /// The target's threads go before others at the disk.
    DiskFirst,
}

/// In which network namespace a command is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inside {
    /// The target's.
    Target,
    /// The device's.
    Device,
}

/// Lets each thread of a list have its line, and its cores; a thread that came later has those of the first one.
const CORES: &str = "echo $t $(sed -n s/^Cpus_allowed_list:.//p /proc/$t/status)";

impl Change {
    /// The command and its undo.
    pub fn commands(&self) -> (String, String) {
        match self {
            Change::Sysctl(all) => {
                let each = |one: fn(&str, &str) -> String| {
                    let pairs = all.split_whitespace().filter_map(|p| p.split_once('='));
                    pairs.map(|(key, value)| one(key, value)).collect::<Vec<_>>().join("; ")
                };
                (
                    each(|key, value| {
                        let kept = format!("/run/tailsight{{tag}}.{key}");
                        format!("[ -s {kept} ] || sysctl -n {key} > {kept} && sysctl -w {key}={value}")
                    }),
                    each(|key, _| {
                        let kept = format!("/run/tailsight{{tag}}.{key}");
                        format!("sysctl -w {key}=$(cat {kept}) && rm {kept}")
                    }),
                )
            }
            // Of `always [madvise] never` the word in brackets is what holds.
            Change::File(path, value) => {
                let each = format!("for f in {path}; do s=/run/tailsight{{tag}}$(echo $f | tr / .); ");
                (
                    format!("{each}[ -s $s ] || sed \"s/.*\\[\\(.*\\)\\].*/\\1/\" $f > $s && echo {value} > $f; done"),
                    format!("{each}cat $s > $f && rm $s; done"),
                )
            }
            Change::PinNamed(cpus) => {
                let kept = "/run/tailsight.{key}.cpus";
                (
                    format!("for t in $({{threads}}); do {CORES} >> {kept}; taskset -cp {cpus} $t; done"),
                    format!("tac {kept} | while read t c; do taskset -cp $c $t; done; rm {kept}"),
                )
            }
            Change::PinTarget(cpus) => {
                let kept = "/run/tailsight.{pid}.cpus";
                (
                    format!(
                        "for t in $(ls /proc/{{pid}}/task); do {CORES} >> {kept}; done; taskset -acp {cpus} {{pid}}"
                    ),
                    format!(
                        "taskset -acp $(sed -n 's/^{{pid}} //p' {kept} | head -n 1) {{pid}}; \
                         tac {kept} | while read t c; do taskset -cp $c $t; done; rm {kept}"
                    ),
                )
            }
            // Fields 40 and 41 of /proc/PID/stat: priority and policy.
            Change::RealTime => {
                let kept = "/run/tailsight.{pid}.policy";
                let policy = "echo $t $(sed 's/.*) //' /proc/$t/stat | cut -d' ' -f38,39)";
                let flag = "case $p in 1) o=-f;; 2) o=-r;; 3) o=-b;; 5) o=-i;; *) o=-o;; esac";
                (
                    format!("for t in $(ls /proc/{{pid}}/task); do {policy} >> {kept}; done; chrt -a -f -p 1 {{pid}}"),
                    format!(
                        "chrt -a -o -p 0 {{pid}}; \
                         tac {kept} | while read t n p; do {flag}; chrt $o -p $n $t; done; rm {kept}"
                    ),
                )
            }
            Change::DiskFirst => {
                let kept = "/run/tailsight.{pid}.ionice";
                let each = "for t in $(ls /proc/{pid}/task); do";
                (
                    format!(
                        "{each} echo $t $(LC_ALL=C ionice -p $t | sed 's/: prio//') >> {kept}; ionice -c 1 -n 4 -p $t; done"
                    ),
                    // The class `none` takes no priority, `idle` has none.
                    format!(
                        "{each} ionice -c 0 -p $t; done; tac {kept} | while read t c n; do case $c in \
                         none|idle) ionice -c $c -p $t;; *) ionice -c $c -n $n -p $t;; esac; done; rm {kept}"
                    ),
                )
            }
        }
    }
}

/// A command in the network namespace of a process. The mounted /sys goes on showing the devices of the namespace that it was
/// mounted in; a new one over it, in a mount namespace that ends with the command, shows those of this.
pub fn inside(command: &str, pid: u32) -> String {
    if command.contains("/sys/class/net") {
        let command = super::fill::quote(&format!("mount -t sysfs sysfs /sys && {command}"));
        format!("nsenter -t {pid} -n unshare -m sh -c {command}")
    } else {
        format!("nsenter -t {pid} -n sh -c {}", super::fill::quote(command))
    }
}
