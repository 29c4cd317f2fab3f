//! Changes that are undone to whatever was there before.
//!
//! In: what a fix changes, from `data/advice.toml`. Out: the change as data for `tailsight fix` ([`model::Change`]), and as
//! shell: a command and its undo, with placeholders ([`crate::placeholders`]). The command saves what it finds in /run; the undo writes that
//! back and removes it. Either may be run twice: the first saved value is restored. POSIX shell; values are read from /proc where
//! possible, not from the output of other programs.

use serde::Deserialize;
use tailsight_diagnose::model::{self, Limit, Who};

use crate::placeholders::{Fill, quote};

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// Kernel parameters, `key=value` with blanks between.
    Sysctl(String),
    /// What a file holds: path, value.
    File(String, String),
    /// What a file of each queue of the network device holds: `rx` or `tx`, the file, value.
    Queues(String, String, String),
    /// The cores that take the network device's interrupts.
    Interrupts(String),
    /// The cores of every thread of the process that the cause is, or, when that is not known, that is called so.
    PinNamed(String),
    /// The cores of the target's threads.
    PinTarget(String),
    /// The scheduling policy of the target's threads becomes real-time, at the lowest priority.
    RealTime,
    /// The target's threads go before others at the disk.
    DiskFirst,
    /// Idle states that take longer than so many microseconds to leave are off.
    IdleStates(u64),
    /// The network device does not hold receive interrupts back.
    Coalescing,
    /// The target's control groups and those above have no such limit.
    NoLimit(Limit),
    /// The target's control group is thawed.
    Thaw,
    /// The target goes on when it is stopped.
    Continue,
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
    /// Whether it gives the target's threads a real-time priority.
    pub fn is_real_time(&self) -> bool {
        matches!(self, Change::RealTime)
    }

    /// The command and its undo.
    pub fn commands(&self) -> (String, String) {
        match self {
            Change::Sysctl(all) => sysctl(all),
            Change::File(path, value) => files(path, value),
            Change::Queues(direction, file, value) => {
                files(&format!("/sys/class/net/{{dev}}/queues/{direction}-*/{file}"), value)
            }
            Change::Interrupts(cpus) => (
                format!(
                    "for i in {{irqs}}; do f=/proc/irq/$i/smp_affinity_list; s=/run/tailsight.irq.$i; \
                     [ -s $s ] || cat $f > $s && echo {cpus} > $f; done"
                ),
                "for i in {irqs}; do s=/run/tailsight.irq.$i; cat $s > /proc/irq/$i/smp_affinity_list && rm $s; done"
                    .into(),
            ),
            Change::PinNamed(cpus) => pin_named(cpus),
            Change::PinTarget(cpus) => pin_target(cpus),
            Change::RealTime => real_time(),
            Change::DiskFirst => disk_first(),
            Change::IdleStates(us) => idle_states(*us),
            Change::Coalescing => coalescing(),
            Change::NoLimit(limit) => no_limit(*limit),
            Change::Thaw => thaw(),
            Change::Continue => ("kill -CONT {pid}".into(), "kill -STOP {pid}".into()),
        }
    }

    /// The change as data; nothing when the run does not know a value that it needs. `netns`: a process in the network
    /// namespace that is meant.
    pub fn structured(&self, fill: &Fill<'_>) -> Option<Vec<model::Change>> {
        use model::Change as To;
        let pids = || Some(fill.pids.to_vec()).filter(|pids| !pids.is_empty());
        let raw = |template: &str| fill.raw(template);
        let device = || fill.device.map(str::to_owned);
        let netns = fill.inside;
        Some(match self {
            Change::Sysctl(all) => {
                let one = |p: &str| {
                    let (key, value) = p.split_once('=')?;
                    Some(To::Sysctl { key: raw(key)?, value: raw(value)?, netns })
                };
                return all.split_whitespace().map(one).collect();
            }
            Change::File(path, value) => vec![To::File { path: raw(path)?, value: raw(value)? }],
            Change::Queues(direction, file, value) => {
                let (direction, file) = (direction.clone(), file.clone());
                vec![To::Queues { device: device()?, direction, file, value: raw(value)?, netns }]
            }
            Change::Interrupts(cpus) => {
                let irqs = Some(fill.irqs.to_vec()).filter(|irqs| !irqs.is_empty());
                vec![To::Interrupts { irqs: irqs?, cpus: raw(cpus)? }]
            }
            Change::PinNamed(cpus) => {
                // Of more processes than are listed, the name says which.
                let listed = |who: &&Who| who.pids.len() == who.processes as usize;
                let seen = fill.who.filter(listed).map_or_else(Vec::new, |who| who.pids.clone());
                vec![To::PinNamed { comm: raw("{comm}")?, seen, cpus: raw(cpus)? }]
            }
            Change::PinTarget(cpus) => vec![To::Pin { pids: pids()?, cpus: raw(cpus)? }],
            Change::RealTime => vec![To::RealTime { pids: pids()? }],
            Change::DiskFirst => vec![To::DiskFirst { pids: pids()? }],
            Change::IdleStates(us) => vec![To::IdleStates { slower_than_us: *us }],
            Change::Coalescing => vec![To::Coalescing { device: device()?, netns }],
            Change::NoLimit(limit) => vec![To::NoLimit { pids: pids()?, limit: *limit }],
            Change::Thaw => vec![To::Thaw { pids: pids()? }],
            Change::Continue => vec![To::Continue { pids: pids()? }],
        })
    }
}

/// Kernel parameters, each kept on its own.
fn sysctl(all: &str) -> (String, String) {
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

/// The cores of every thread of the processes that are called so.
fn pin_named(cpus: &str) -> (String, String) {
    let kept = "/run/tailsight.{key}.cpus";
    (
        format!("for t in $({{threads}}); do {CORES} >> {kept}; taskset -cp {cpus} $t; done"),
        format!("tac {kept} | while read t c; do taskset -cp $c $t; done; rm {kept}"),
    )
}

/// The cores of the target's threads.
fn pin_target(cpus: &str) -> (String, String) {
    let kept = "/run/tailsight.{pid}.cpus";
    (
        format!("for t in $(ls /proc/{{pid}}/task); do {CORES} >> {kept}; done; taskset -acp {cpus} {{pid}}"),
        format!(
            "taskset -acp $(sed -n 's/^{{pid}} //p' {kept} | head -n 1) {{pid}}; \
             tac {kept} | while read t c; do taskset -cp $c $t; done; rm {kept}"
        ),
    )
}

/// The scheduling policy: fields 40 and 41 of /proc/PID/stat are priority and policy.
fn real_time() -> (String, String) {
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

/// The priority at the disk.
fn disk_first() -> (String, String) {
    let kept = "/run/tailsight.{pid}.ionice";
    let each = "for t in $(ls /proc/{pid}/task); do";
    (
        format!("{each} echo $t $(LC_ALL=C ionice -p $t | sed 's/: prio//') >> {kept}; ionice -c 1 -n 4 -p $t; done"),
        // The class `none` takes no priority, `idle` has none.
        format!(
            "{each} ionice -c 0 -p $t; done; tac {kept} | while read t c n; do case $c in \
             none|idle) ionice -c $c -p $t;; *) ionice -c $c -n $n -p $t;; esac; done; rm {kept}"
        ),
    )
}

/// Idle states that take longer than so many microseconds to leave.
fn idle_states(us: u64) -> (String, String) {
    (
        format!(
            "for d in /sys/devices/system/cpu/cpu[0-9]*/cpuidle/state*; do [ $(cat $d/latency) -gt {us} ] && \
             grep -qx 0 $d/disable && echo 1 > $d/disable && echo $d >> /run/tailsight.cpuidle; done"
        ),
        "while read d; do echo 0 > $d/disable; done < /run/tailsight.cpuidle; rm /run/tailsight.cpuidle".into(),
    )
}

/// Interrupts that the device holds back. One that does not adapt it refuses the first of the two.
fn coalescing() -> (String, String) {
    (
        "s=/run/tailsight.coalesce{tag}.{dev}; [ -s $s ] || ethtool -c {dev} > $s && ethtool -C {dev} adaptive-rx off; \
         ethtool -C {dev} rx-usecs 0"
            .into(),
        "s=/run/tailsight.coalesce{tag}.{dev}; ethtool -C {dev} rx-usecs $(sed -n \"s/^rx-usecs:[^0-9]*//p\" $s); \
         ethtool -C {dev} adaptive-rx $(sed -n \"s/^Adaptive RX: *\\([a-z]*\\).*/\\1/p\" $s); rm $s"
            .into(),
    )
}

/// The freezer of either version of control groups.
fn thaw() -> (String, String) {
    let set = |new: &str, old: &str| {
        format!(
            "f=\"/sys/fs/cgroup$(sed -n s/^0:://p /proc/{{pid}}/cgroup)/cgroup.freeze\"; if [ -e \"$f\" ]; then \
             echo {new} > \"$f\"; else echo {old} > \"/sys/fs/cgroup/freezer$(sed -n \
             \"s/^[0-9]*:\\(.*,\\)*freezer\\(,.*\\)*://p\" /proc/{{pid}}/cgroup)/freezer.state\"; fi"
        )
    };
    (set("0", "THAWED"), set("1", "FROZEN"))
}

/// What each file that a pattern finds holds. Of `always [madvise] never` the word in brackets is what holds.
fn files(path: &str, value: &str) -> (String, String) {
    let each = format!("for f in {path}; do s=/run/tailsight{{tag}}$(echo $f | tr / .); ");
    (
        format!("{each}[ -s $s ] || sed \"s/.*\\[\\(.*\\)\\].*/\\1/\" $f > $s && echo {value} > $f; done"),
        format!("{each}cat $s > $f && rm $s; done"),
    )
}

/// Each control group on the way up that has the limit; of version 1 too, where it is the processor's.
fn no_limit(limit: Limit) -> (String, String) {
    let group = "\"/sys/fs/cgroup$(sed -n s/^0:://p /proc/{pid}/cgroup)\"";
    let below = "while case $d in /sys/fs/cgroup/?*) true;; *) false;; esac; do";
    let (kept, command) = match limit {
        Limit::MemoryHigh => {
            let kept = "/run/tailsight.{pid}.memory.high";
            let command = format!(
                "d={group}; {below} f=\"$d/memory.high\"; if [ -e \"$f\" ] && ! grep -qx max \"$f\"; then \
                 echo \"$f\" >> {kept}; cat \"$f\" >> {kept}; echo max > \"$f\"; fi; d=$(dirname \"$d\"); done"
            );
            (kept, command)
        }
        Limit::CpuQuota => {
            let kept = "/run/tailsight.{pid}.cpu.max";
            let old = "\"/sys/fs/cgroup/cpu$(sed -n \"s/^[0-9]*:\\(.*,\\)*cpu\\(,.*\\)*://p\" /proc/{pid}/cgroup)\"";
            let command = format!(
                "for d in {group} {old}; do {below} for f in \"$d/cpu.max\" \"$d/cpu.cfs_quota_us\"; do \
                 case $f in *.max) m=max;; *) m=-1;; esac; if [ -e \"$f\" ] && ! grep -q -e \"^$m\" \"$f\"; then \
                 echo \"$f\" >> {kept}; cat \"$f\" >> {kept}; echo $m > \"$f\"; fi; done; d=$(dirname \"$d\"); done; done"
            );
            (kept, command)
        }
    };
    (command, format!("while read -r f && read -r v; do echo $v > \"$f\"; done < {kept}; rm {kept}"))
}

/// A command in the network namespace of a process. The mounted /sys goes on showing the devices of the namespace that it was
/// mounted in; a new one over it, in a mount namespace that ends with the command, shows those of this.
pub fn inside(command: &str, pid: u32) -> String {
    if command.contains("/sys/class/net") {
        let command = quote(&format!("mount -t sysfs sysfs /sys && {command}"));
        format!("nsenter -t {pid} -n unshare -m sh -c {command}")
    } else {
        format!("nsenter -t {pid} -n sh -c {}", quote(command))
    }
}
