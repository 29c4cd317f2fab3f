//! Limits of the target's control groups, from its own up to the root: CPU quota and memory limit.
//!
//! In: `/proc/PID/cgroup`, `/proc/self/mountinfo`, `cpu.max` and `memory.*` (v2), `cpu.cfs_quota_us` and
//! `memory.limit_in_bytes` (v1). Out: settings.

use crate::Root;
use crate::cgroup::Groups;
use crate::settings::{Commands, Setting};

/// Above this part of a memory limit, reclaim is near; in percent.
const NEAR_LIMIT_PERCENT: u64 = 90;

/// v1 writes "no limit" as a number near 2^63.
const V1_UNLIMITED: u64 = 1 << 60;

/// The folders of the target's group and of its parents, innermost first: `controller` is the v1 controller's name,
/// or empty for v2.
fn folders(root: &Root, pid: u32, controller: &str) -> Vec<String> {
    let groups = root.bytes(&format!("/proc/{pid}/cgroup")).map(Groups::parse).unwrap_or_default();
    let mounts = root.bytes("/proc/self/mountinfo").unwrap_or_default();
    let Some((mount, folder)) = groups.folder(mounts, controller) else { return Vec::new() };
    let below = folder.ancestors().take_while(|folder| folder.starts_with(&mount));
    below.filter_map(|folder| Some(folder.to_str()?.to_owned())).collect()
}

/// A field of a `key value` file such as `cpu.stat`.
fn stat(root: &Root, path: &str, key: &str) -> Option<u64> {
    let text = root.text(path).ok()?;
    text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

pub(super) fn cpu_quota(root: &Root, pid: u32) -> Setting {
    const ID: &str = "target_cpu_quota";
    const TITLE: &str = "Target CPU quota";
    // (file, value that lifts the limit, value now, CPUs granted, folder)
    let v2 = folders(root, pid, "").into_iter().filter_map(|folder| {
        let file = format!("{folder}/cpu.max");
        let now = root.text(&file).ok()?;
        let (quota, period) = now.split_once(' ')?;
        let cpus = quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
        Some((file, "max", now.clone(), cpus, folder))
    });
    let v1 = folders(root, pid, "cpu").into_iter().filter_map(|folder| {
        let file = format!("{folder}/cpu.cfs_quota_us");
        let now = root.text(&file).ok()?;
        let quota = now.parse::<i64>().ok().filter(|q| *q > 0)?;
        let period: f64 = root.number(&format!("{folder}/cpu.cfs_period_us")).ok()?;
        #[allow(clippy::cast_precision_loss)] // microseconds of a quota
        Some((file, "-1", now, quota as f64 / period, folder))
    });
    let limits: Vec<_> = v2.chain(v1).collect();
    let Some((_, _, _, cpus, _)) = limits.iter().min_by(|a, b| a.3.total_cmp(&b.3)) else {
        return Setting::good(ID, TITLE, "none", "no control group limits its CPU time");
    };
    let throttled = limits.iter().filter_map(|l| stat(root, &format!("{}/cpu.stat", l.4), "nr_throttled")).max();
    let mut value = format!("{cpus:.2} CPUs");
    if let Some(n) = throttled {
        value += &format!(", throttled {n} times since it was made");
    }
    let s = Setting::hurts(
        ID,
        TITLE,
        value,
        "when its group has used up the quota all its threads stop until the next period, tens of milliseconds, \
         even on an idle machine",
    );
    limits.iter().fold(s, |s, (file, lifted, now, ..)| s.with(Commands::file(file, lifted, now)))
}

pub(super) fn memory_limit(root: &Root, pid: u32) -> Setting {
    const ID: &str = "target_memory_limit";
    const TITLE: &str = "Target memory limit";
    let mut limits: Vec<(String, &str, u64, u64)> = Vec::new();
    for folder in folders(root, pid, "") {
        for file in ["memory.high", "memory.max"] {
            let path = format!("{folder}/{file}");
            let used = root.number(&format!("{folder}/memory.current"));
            if let (Ok(limit), Ok(used)) = (root.number::<u64>(&path), used) {
                limits.push((path, "max", limit, used));
            }
        }
    }
    for folder in folders(root, pid, "memory") {
        let path = format!("{folder}/memory.limit_in_bytes");
        let used = root.number(&format!("{folder}/memory.usage_in_bytes"));
        if let (Ok(limit), Ok(used)) = (root.number::<u64>(&path), used)
            && limit < V1_UNLIMITED
        {
            limits.push((path, "-1", limit, used));
        }
    }
    let part = |limit: u64, used: u64| used.saturating_mul(100) / limit.max(1);
    let Some((path, lifted, limit, used)) = limits.into_iter().max_by_key(|(_, _, l, u)| part(*l, *u)) else {
        return Setting::good(ID, TITLE, "none", "no control group limits its memory");
    };
    let percent = part(limit, used);
    let value = format!("{} MiB, {percent} % used", limit >> 20);
    if percent < NEAR_LIMIT_PERCENT {
        return Setting::good(ID, TITLE, value, "it is far from the limit, so its allocations need not reclaim");
    }
    Setting::hurts(
        ID,
        TITLE,
        value,
        "near the limit every allocation of the server stops to reclaim memory, and above memory.high it is made to \
         sleep",
    )
    .with(Commands::file(&path, lifted, &limit.to_string()))
}
