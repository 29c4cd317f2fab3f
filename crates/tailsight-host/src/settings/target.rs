//! The process under study: pinning, scheduling class, NUMA spread, CPU quota, memory limit, swapped pages.
//!
//! In: `/proc/PID`, its cgroups (v1 and v2). Out: [`Target`] and settings.
//! Papers: Tales of the Tail §4.1 (priority), §4.4 (cores), §4.5 (NUMA); NSight §7.2 (pinning).

use super::{Commands, Context, Setting, cpu};
use crate::Root;
use crate::machine::numa_nodes;
use crate::proc::{comm, field};
use crate::root::{cpu_list, cpu_ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod cgroup;

/// One thread of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// The CPUs it may run on.
    pub cpus_allowed: Vec<u32>,
    /// The kernel's `SCHED_*` number: 0 other, 1 FIFO, 2 RR, 3 batch, 5 idle, 6 deadline, 7 ext.
    pub policy: u32,
    /// Real-time priority, 0 without one.
    pub rt_priority: u32,
    /// Nice value.
    pub nice: i32,
}

/// The process under study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Its process id.
    pub pid: u32,
    /// Its name (`comm`).
    pub comm: String,
    /// Its threads; empty if it does not exist.
    pub threads: Vec<Thread>,
    /// Its pages that are swapped out, in KiB.
    pub swapped_kib: Option<u64>,
}

impl Target {
    /// Reads the process; without threads if there is none with this id.
    pub fn read(root: &Root, pid: u32) -> Self {
        let status = root.text(&format!("/proc/{pid}/status")).unwrap_or_default();
        let tids = root.names(&format!("/proc/{pid}/task"));
        Target {
            pid,
            comm: root.bytes(&format!("/proc/{pid}/comm")).map(|b| comm(&b)).unwrap_or_default(),
            threads: tids.iter().filter_map(|t| thread(root, pid, t.parse().ok()?)).collect(),
            swapped_kib: field(&status, "VmSwap").and_then(|v| v.split_whitespace().next()?.parse().ok()),
        }
    }

    /// The CPUs that any of its threads may run on.
    pub(super) fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.threads.iter().flat_map(|t| t.cpus_allowed.clone()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// True if every thread is kept to some of the CPUs.
    pub(super) fn is_pinned(&self, cx: &Context<'_>) -> bool {
        self.threads.iter().all(|t| cx.online().iter().any(|c| !t.cpus_allowed.contains(c)))
    }
}

fn thread(root: &Root, pid: u32, tid: u32) -> Option<Thread> {
    let dir = format!("/proc/{pid}/task/{tid}");
    let status = root.text(&format!("{dir}/status")).ok()?;
    let stat = crate::Stat::parse(root.bytes(&format!("{dir}/stat")).ok()?)?;
    Some(Thread {
        tid,
        cpus_allowed: cpu_list(field(&status, "Cpus_allowed_list")?),
        nice: stat.field(19)?,
        rt_priority: stat.field(40)?,
        policy: stat.field(41)?,
    })
}

pub(super) fn check(cx: &Context<'_>) -> Vec<Setting> {
    let Some(target) = cx.target else {
        return Vec::new();
    };
    if target.threads.is_empty() {
        let why = format!("no process {} can be read: give the pid of a running server", target.pid);
        return vec![Setting::unknown("target", "Target", format!("pid {}", target.pid), why)];
    }
    let mut settings = vec![pinning(cx, target), scheduling(target), numa_spread(cx, target)];
    settings.push(cgroup::cpu_quota(cx.root, target.pid));
    settings.push(cgroup::memory_limit(cx.root, target.pid));
    settings.push(swapped(target));
    settings
}

fn pinning(cx: &Context<'_>, target: &Target) -> Setting {
    const ID: &str = "target_pinning";
    const TITLE: &str = "Target pinning";
    let online = cx.online();
    let free = target.threads.iter().filter(|t| online.iter().all(|c| t.cpus_allowed.contains(c))).count();
    let threads = target.threads.len();
    if online.len() < 2 {
        return Setting::good(ID, TITLE, "1 CPU", "there is only one CPU");
    }
    if free == 0 {
        let value = format!("CPUs {}", cpu_ranges(&target.cpus()));
        return Setting::good(ID, TITLE, value, "its threads stay on chosen CPUs");
    }
    let value = match free == threads {
        true => format!("not pinned, {threads} thread{}", if threads == 1 { "" } else { "s" }),
        false => format!("{free} of {threads} threads not pinned"),
    };
    let to = cpu_ranges(&cpus_for_target(cx));
    let pid = target.pid;
    Setting::hurts(
        ID,
        TITLE,
        value,
        "its threads share cores with interrupts and other tasks, and migrate: pinning them away from both removed \
         the two largest causes in NSight §7.2 (a dedicated core in Tales of the Tail §4.1)",
    )
    .with(Commands {
        change: vec![format!("taskset -a -c -p {to} {pid}")],
        undo: restore(
            target,
            |t| format!("taskset -c -p {}", cpu_ranges(&t.cpus_allowed)),
            |c| c.replace("taskset", "taskset -a"),
        ),
    })
}

/// The isolated CPUs if there are any; else the CPUs of the first NUMA node without its first CPU, which is left to
/// interrupts and everyone else.
fn cpus_for_target(cx: &Context<'_>) -> Vec<u32> {
    let isolated = cpu::isolated(cx);
    if !isolated.is_empty() {
        return isolated;
    }
    let online = cx.online();
    let node = numa_nodes(cx.root).into_iter().map(|(_, cpus)| cpus).find(|cpus| cpus.len() > 1);
    let local: Vec<u32> = node.unwrap_or_default().into_iter().filter(|c| online.contains(c)).collect();
    let from = if local.len() > 1 { local.as_slice() } else { online };
    from[1..].to_vec()
}

/// Commands that apply `command` to each thread: one for the process if all are alike, else one for each group of like
/// threads. The pid or tid goes at the end.
fn restore(target: &Target, command: impl Fn(&Thread) -> String, whole: impl Fn(&str) -> String) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for t in &target.threads {
        let c = command(t);
        match groups.iter_mut().find(|(g, _)| *g == c) {
            Some((_, tids)) => tids.push(t.tid.to_string()),
            None => groups.push((c, vec![t.tid.to_string()])),
        }
    }
    if let [(c, _)] = groups.as_slice() {
        return vec![format!("{} {}", whole(c), target.pid)];
    }
    groups
        .iter()
        .map(|(c, tids)| match tids.as_slice() {
            [tid] => format!("{c} {tid}"),
            _ => format!("for t in {}; do {c} $t; done", tids.join(" ")),
        })
        .collect()
}

fn policy_name(policy: u32) -> &'static str {
    match policy {
        0 => "SCHED_OTHER",
        1 => "SCHED_FIFO",
        2 => "SCHED_RR",
        3 => "SCHED_BATCH",
        5 => "SCHED_IDLE",
        6 => "SCHED_DEADLINE",
        7 => "SCHED_EXT",
        _ => "an unknown policy",
    }
}

/// The `chrt` flags that restore a thread's class. Nice values survive a time in a real-time class.
fn chrt(t: &Thread) -> String {
    match t.policy {
        1 => format!("chrt -f -p {}", t.rt_priority),
        2 => format!("chrt -r -p {}", t.rt_priority),
        3 => "chrt -b -p 0".into(),
        5 => "chrt -i -p 0".into(),
        7 => "chrt -e -p 0".into(),
        _ => "chrt -o -p 0".into(),
    }
}

fn scheduling(target: &Target) -> Setting {
    const ID: &str = "target_priority";
    const TITLE: &str = "Target priority";
    let mut kinds: Vec<String> = target
        .threads
        .iter()
        .map(|t| match t.policy {
            1 | 2 => format!("{} {}", policy_name(t.policy), t.rt_priority),
            6 => policy_name(6).to_owned(),
            p => format!("{} nice {}", policy_name(p), t.nice),
        })
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let value = kinds.join(", ");
    if target.threads.iter().all(|t| matches!(t.policy, 1 | 2 | 6)) {
        return Setting::good(ID, TITLE, value, "it runs as soon as it wakes, before every normal task");
    }
    let pid = target.pid;
    let mut s = Setting::hurts(
        ID,
        TITLE,
        value,
        "a request waits for the task that runs on the core. Real-time priority nearly removed that in Tales of the \
         Tail \
         §4.1, nice −20 did not. Not for servers that spin: they would starve the core",
    );
    // A deadline thread's runtime cannot be restored by a plain command, so none is offered.
    if target.threads.iter().all(|t| t.policy != 6) {
        s = s.with(Commands {
            change: vec![format!("chrt -a -f -p 10 {pid}")],
            undo: restore(target, chrt, |c| c.replace("chrt", "chrt -a")),
        });
    }
    s
}

fn numa_spread(cx: &Context<'_>, target: &Target) -> Setting {
    const ID: &str = "target_numa";
    const TITLE: &str = "Target NUMA spread";
    let nodes = numa_nodes(cx.root);
    if nodes.len() < 2 {
        return Setting::absent(ID, TITLE, "the machine has one NUMA node");
    }
    let cpus = target.cpus();
    let used: Vec<u32> =
        nodes.iter().filter(|(_, node)| node.iter().any(|c| cpus.contains(c))).map(|(n, _)| *n).collect();
    let value = format!("may run on nodes {}", cpu_ranges(&used));
    if used.len() < 2 {
        return Setting::good(ID, TITLE, value, "its threads stay beside one node's memory");
    }
    let mut s = Setting::hurts(
        ID,
        TITLE,
        value,
        "half of its memory accesses may cross nodes: 8 threads over two nodes had a worse tail than one core in \
         Tales of the Tail §4.5. Run one instance a node",
    );
    s.change.push("# start one instance a node: numactl --cpunodebind=0 --membind=0 COMMAND".into());
    s
}

fn swapped(target: &Target) -> Setting {
    const ID: &str = "target_swapped";
    const TITLE: &str = "Target swapped out";
    match target.swapped_kib {
        None => Setting::unknown(ID, TITLE, "unreadable", "its status names no VmSwap"),
        Some(0) => Setting::good(ID, TITLE, "nothing", "no request waits for the disk to bring a page back"),
        Some(kib) => {
            let why = "the request that touches a swapped page waits for the disk; restart the server, or swapoff -a \
                       when there is memory to hold it all";
            Setting::hurts(ID, TITLE, format!("{kib} KiB"), why)
        }
    }
}
