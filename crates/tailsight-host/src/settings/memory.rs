//! Memory: NUMA balancing, transparent huge pages, KSM, swapping, zone reclaim.
//!
//! In: `/proc/sys`, `/sys/kernel/mm`, `/proc/swaps`. Out: settings.

use super::{Commands, Context, Setting};
use crate::kernel::bracketed;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

pub(super) fn check(cx: &Context<'_>) -> Vec<Setting> {
    vec![numa_balancing(cx), thp_enabled(cx), thp_defrag(cx), ksm(cx), swapping(cx), zone_reclaim(cx)]
}

fn numa_balancing(cx: &Context<'_>) -> Setting {
    const ID: &str = "numa_balancing";
    const TITLE: &str = "NUMA balancing";
    let value = match cx.root.text("/proc/sys/kernel/numa_balancing") {
        Ok(v) => v,
        Err(e) => return Setting::unread(ID, TITLE, &e),
    };
    let state = if value == "0" { "off" } else { "on" };
    match (cx.machine.numa_nodes, value.as_str()) {
        (_, "0") => Setting::good(ID, TITLE, state, "the kernel does not unmap pages to see which thread uses them"),
        (1, _) => {
            Setting::good(ID, TITLE, format!("{state}, 1 node"), "with one node the kernel has nothing to balance")
        }
        (nodes, _) => Setting::hurts(
            ID,
            TITLE,
            format!("{state}, {nodes} nodes"),
            "the kernel unmaps pages to see which thread uses them, and the server takes the faults: change_prot_numa \
             took \
             up to 400 µs in NSight §7.2. Pin threads and memory to a node instead",
        )
        .with(Commands::sysctl("kernel.numa_balancing", "0", &value)),
    }
}

fn thp_enabled(cx: &Context<'_>) -> Setting {
    const ID: &str = "thp_enabled";
    const TITLE: &str = "Transparent huge pages";
    let path = format!("{THP}/enabled");
    let text = match cx.root.text(&path) {
        Ok(t) => t,
        Err(e) => return Setting::unread(ID, TITLE, &e),
    };
    match bracketed(&text) {
        "always" => Setting::hurts(
            ID,
            TITLE,
            "always",
            "a page fault may clear 2 MB while the request waits, and khugepaged locks the server's memory to \
             merge pages. madvise leaves the choice to the server",
        )
        .with(Commands::file(&path, "madvise", "always")),
        other => Setting::good(ID, TITLE, other, "only memory that asks for huge pages gets them"),
    }
}

fn thp_defrag(cx: &Context<'_>) -> Setting {
    const ID: &str = "thp_defrag";
    const TITLE: &str = "Huge page compaction";
    let path = format!("{THP}/defrag");
    let text = match cx.root.text(&path) {
        Ok(t) => t,
        Err(e) => return Setting::unread(ID, TITLE, &e),
    };
    match bracketed(&text) {
        "always" => Setting::hurts(
            ID,
            TITLE,
            "always",
            "a page fault stops to reclaim and compact memory until a huge page is free: milliseconds in the \
             server's own thread",
        )
        .with(Commands::file(&path, "defer+madvise", "always")),
        other => Setting::good(ID, TITLE, other, "page faults do not stop to compact memory unless they asked to"),
    }
}

fn ksm(cx: &Context<'_>) -> Setting {
    const ID: &str = "ksm";
    const TITLE: &str = "Same-page merging (KSM)";
    const PATH: &str = "/sys/kernel/mm/ksm/run";
    match cx.root.text(PATH) {
        Ok(v) if v == "1" => Setting::hurts(
            ID,
            TITLE,
            "running",
            "ksmd takes a core to compare pages, and a write to a merged page pays a copy",
        )
        .with(Commands::file(PATH, "0", "1")),
        Ok(_) => Setting::good(ID, TITLE, "off", "no thread scans memory for equal pages"),
        Err(e) => Setting::unread(ID, TITLE, &e),
    }
}

fn swapping(cx: &Context<'_>) -> Setting {
    const ID: &str = "swap";
    const TITLE: &str = "Swap";
    const LOW_SWAPPINESS: u32 = 10;
    let areas = match cx.root.text("/proc/swaps") {
        Ok(t) => t.lines().skip(1).filter(|l| !l.trim().is_empty()).count(),
        Err(e) => return Setting::unread(ID, TITLE, &e),
    };
    let swappiness: u32 = match cx.root.number("/proc/sys/vm/swappiness") {
        Ok(n) => n,
        Err(e) => return Setting::unread(ID, TITLE, &e),
    };
    if areas == 0 {
        return Setting::good(ID, TITLE, "off", "no page of the server can be swapped out");
    }
    let value = format!("{areas} area{}, swappiness {swappiness}", if areas == 1 { "" } else { "s" });
    if swappiness <= LOW_SWAPPINESS {
        return Setting::good(ID, TITLE, value, "pages are swapped out only when memory is nearly exhausted");
    }
    Setting::hurts(
        ID,
        TITLE,
        value,
        "rarely used pages of the server are written out, and the request that needs one waits for the disk",
    )
    .with(Commands::sysctl("vm.swappiness", "1", &swappiness.to_string()))
}

fn zone_reclaim(cx: &Context<'_>) -> Setting {
    const ID: &str = "zone_reclaim";
    const TITLE: &str = "Zone reclaim";
    match cx.root.text("/proc/sys/vm/zone_reclaim_mode") {
        Ok(v) if v == "0" => Setting::good(ID, TITLE, "off", "allocations go to another node before they reclaim"),
        Ok(v) => Setting::hurts(
            ID,
            TITLE,
            format!("mode {v}"),
            "an allocation stops to reclaim the local node's memory although another node has free memory",
        )
        .with(Commands::sysctl("vm.zone_reclaim_mode", "0", &v)),
        Err(e) => Setting::unread(ID, TITLE, &e),
    }
}
