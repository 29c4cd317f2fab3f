//! Tests of the settings on two made hosts, a bad one and a good one. The commands are run by a real shell on the
//! made tree: `change` must cure what it says, and `undo` must restore every file.

use super::*;
use crate::fixture::Tree;
use crate::kernel::bracketed;
use crate::nic::Coalescing;
use crate::{Fact, HostReport};
use std::process::Command;

const CPU: &str = "/sys/devices/system/cpu";
pub(crate) const PID: u32 = 500;

fn thread_files(tree: &Tree, tid: u32, cpus: &str, policy: u32, rt: u32, nice: i32) {
    let dir = format!("/proc/{PID}/task/{tid}");
    tree.put(&format!("{dir}/status"), format!("Name:\tserver\nCpus_allowed_list:\t{cpus}\n"));
    // Fields 3 to 41 of proc_pid_stat(5), behind a name with a bracket and a space.
    let mut fields = vec!["0".to_owned(); 39];
    fields[0] = "S".into();
    (fields[19 - 3], fields[40 - 3], fields[41 - 3]) = (nice.to_string(), rt.to_string(), policy.to_string());
    tree.put(&format!("{dir}/stat"), format!("{tid} (ser) ver) {}\n", fields.join(" ")));
}

/// A host with every setting that the papers found to hurt.
pub(crate) fn bad() -> Tree {
    let tree = Tree::new(&[
        ("/proc/cpuinfo", "model name\t: Some CPU\nflags\t: fpu"),
        ("/sys/devices/system/cpu/online", "0-3"),
        ("/sys/devices/system/node/node0/cpulist", "0-1"),
        ("/sys/devices/system/node/node1/cpulist", "2-3"),
        ("/sys/devices/system/cpu/cpuidle/current_driver", "intel_idle"),
        ("/sys/devices/system/cpu/cpuidle/current_governor", "menu"),
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
        ("/sys/devices/system/cpu/smt/active", "1"),
        ("/sys/devices/system/cpu/smt/control", "on"),
        ("/sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI"),
        ("/proc/sys/kernel/numa_balancing", "1"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
        ("/sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never"),
        ("/sys/kernel/mm/ksm/run", "1"),
        ("/proc/swaps", "Filename Type Size Used Priority\n/dev/x partition 1 0 -2"),
        ("/proc/sys/vm/swappiness", "60"),
        ("/proc/sys/vm/zone_reclaim_mode", "1"),
        ("/proc/sys/kernel/nmi_watchdog", "1"),
        ("/sys/kernel/debug/sched/preempt", "none (voluntary) full"),
        ("/proc/77/comm", "irqbalance"),
        ("/sys/class/net/eth0/mtu", "1500"),
        ("/sys/class/net/eth0/flags", "0x1003"),
        ("/sys/class/net/eth0/gro_flush_timeout", "20000"),
        ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
        ("/proc/interrupts", "  CPU0 CPU1\n 40: 5 6 PCI-MSI 1-edge eth0-rx-0\n 41: 0 0 PCI-MSI 2-edge eth1-rx-0"),
        ("/proc/irq/40/smp_affinity_list", "0-3"),
        ("/proc/irq/40/effective_affinity_list", "2"),
        ("/proc/500/comm", "server"),
        ("/proc/500/status", "VmSwap:\t    12 kB"),
        ("/proc/500/cgroup", "0::/app/inner"),
        ("/proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"),
        ("/sys/fs/cgroup/app/cpu.max", "150000 100000"),
        ("/sys/fs/cgroup/app/cpu.stat", "usage_usec 1\nnr_throttled 7"),
        ("/sys/fs/cgroup/app/inner/cpu.max", "max 100000"),
        ("/sys/fs/cgroup/app/inner/memory.max", "1048576"),
        ("/sys/fs/cgroup/app/inner/memory.current", "1000000"),
    ]);
    for cpu in 0..4 {
        for (state, name, exit_us) in [(0, "POLL", 0), (1, "C1", 2), (2, "C6", 133)] {
            let dir = format!("{CPU}/cpu{cpu}/cpuidle/state{state}");
            tree.put(&format!("{dir}/name"), format!("{name}\n"));
            tree.put(&format!("{dir}/latency"), format!("{exit_us}\n"));
            tree.put(&format!("{dir}/disable"), if cpu == 3 && state == 2 { "1\n" } else { "0\n" });
        }
        let governor = ["powersave", "schedutil", "powersave", "performance"][cpu];
        tree.put(&format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor"), format!("{governor}\n"));
    }
    tree.link("/sys/class/net/eth0/device", "../../../0000:01:00.0");
    thread_files(&tree, 500, "0-3", 0, 0, 0);
    thread_files(&tree, 501, "0-3", 3, 0, 5);
    thread_files(&tree, 502, "0-3", 3, 0, 5);
    tree
}

fn settings(tree: &Tree) -> Vec<Setting> {
    HostReport::collect(&tree.root(), Some(PID)).settings
}

fn find<'a>(all: &'a [Setting], id: &str) -> &'a Setting {
    all.iter().find(|s| s.id == id).unwrap_or_else(|| panic!("no setting {id}"))
}

/// Runs commands on the tree in a real shell; those that act on processes and services do nothing.
fn shell(tree: &Tree, commands: &[String]) {
    let root = tree.root().path("/").display().to_string();
    let root = root.trim_end_matches('/');
    let mut script = format!(
        "set -e\nsysctl() {{ key=${{2%%=*}}; echo \"${{2#*=}}\" > {root}/proc/sys/$(echo $key | tr . /); }}\n\
         taskset() {{ :; }}; chrt() {{ :; }}; systemctl() {{ :; }}; service() {{ :; }}; ethtool() {{ :; }}\n"
    );
    for c in commands {
        script += &c.replace("/sys/", &format!("{root}/sys/")).replace("/proc/irq/", &format!("{root}/proc/irq/"));
        script.push('\n');
    }
    let out = Command::new("sh").arg("-c").arg(&script).output().unwrap();
    assert!(out.status.success(), "{script}\n{}", String::from_utf8_lossy(&out.stderr));
}

/// Every file of the tree with its value; of a list of choices the chosen one.
fn snapshot(tree: &Tree) -> Vec<(String, String)> {
    fn walk(dir: &std::path::Path, out: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, out);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let text = text.replace('(', "[").replace(')', "]");
                out.push((path.display().to_string(), bracketed(&text).to_owned()));
            }
        }
    }
    let mut out = Vec::new();
    walk(&tree.root().path("/"), &mut out);
    out.sort();
    out
}

#[test]
fn a_bad_host_is_seen_as_bad() {
    let found_settings = settings(&bad());
    let hurting: Vec<&str> =
        found_settings.iter().filter(|s| s.verdict == Rating::Hurts).map(|s| s.id.as_str()).collect();
    assert_eq!(
        hurting,
        [
            "target_pinning",
            "target_priority",
            "target_numa",
            "target_cpu_quota",
            "target_memory_limit",
            "target_swapped",
            "idle_states",
            "frequency_governor",
            "irqbalance",
            "gro_flush_timeout:eth0",
            "receive_cores:eth0",
            "numa_balancing",
            "thp_enabled",
            "thp_defrag",
            "ksm",
            "swap",
            "zone_reclaim",
            "preemption",
            "smt",
            "nmi_watchdog",
        ]
    );
    assert_eq!(
        find(&found_settings, "idle_states").value,
        "intel_idle driver, menu governor; deepest enabled C6, 133 µs to leave"
    );
    assert_eq!(find(&found_settings, "frequency_governor").value, "powersave and schedutil on 3 of 4 CPUs");
    assert_eq!(find(&found_settings, "target_cpu_quota").value, "1.50 CPUs, throttled 7 times since it was made");
    assert_eq!(find(&found_settings, "target_memory_limit").value, "1 MiB, 95 % used");
    assert_eq!(find(&found_settings, "target_priority").value, "SCHED_BATCH nice 5, SCHED_OTHER nice 0");
    assert_eq!(find(&found_settings, "receive_cores:eth0").value, "1 interrupt on CPUs 2, which the target uses too");
    assert_eq!(find(&found_settings, "interrupt_coalescing:eth0").verdict, Rating::Unknown);
    assert_eq!(find(&found_settings, "steal").verdict, Rating::NotPresent);
}

#[test]
fn change_cures_and_undo_restores_every_file() {
    let tree = bad();
    let before = snapshot(&tree);
    let found_settings = settings(&tree);
    let hurting: Vec<&Setting> = found_settings.iter().filter(|s| s.verdict == Rating::Hurts).collect();
    shell(&tree, &hurting.iter().flat_map(|s| s.change.clone()).collect::<Vec<_>>());
    // The effect of commands on processes, services or hardware does not show in a made tree.
    let outside = [
        "target_pinning",
        "target_priority",
        "target_numa",
        "target_swapped",
        "irqbalance",
        "receive_cores:eth0",
        "smt",
    ];
    let after = settings(&tree);
    let left: Vec<&str> = after
        .iter()
        .filter(|s| s.verdict == Rating::Hurts && !outside.contains(&s.id.as_str()))
        .map(|s| s.id.as_str())
        .collect();
    assert_eq!(left, Vec::<&str>::new());
    assert_ne!(snapshot(&tree), before);
    shell(&tree, &hurting.iter().flat_map(|s| s.undo.clone()).collect::<Vec<_>>());
    assert_eq!(snapshot(&tree), before);
}

#[test]
fn undo_names_the_values_read_now() {
    let found_settings = settings(&bad());
    assert_eq!(find(&found_settings, "swap").undo, ["sysctl -w vm.swappiness=60"]);
    assert_eq!(find(&found_settings, "target_pinning").change, ["taskset -a -c -p 1 500"]);
    assert_eq!(find(&found_settings, "target_pinning").undo, ["taskset -a -c -p 0-3 500"]);
    let priority = find(&found_settings, "target_priority");
    assert_eq!(priority.change, ["chrt -a -f -p 10 500"]);
    assert_eq!(priority.undo, ["chrt -o -p 0 500", "for t in 501 502; do chrt -b -p 0 $t; done"]);
    assert_eq!(
        find(&found_settings, "idle_states").change,
        [format!("for n in 0 1 2; do echo 1 > {CPU}/cpu$n/cpuidle/state2/disable; done")]
    );
    assert_eq!(find(&found_settings, "target_cpu_quota").undo, ["echo '150000 100000' > /sys/fs/cgroup/app/cpu.max"]);
    assert_eq!(find(&found_settings, "receive_cores:eth0").undo, ["echo 0-3 > /proc/irq/40/smp_affinity_list"]);
}

#[test]
fn a_tuned_host_has_nothing_to_change() {
    let tree = bad();
    let found_settings = settings(&tree);
    shell(
        &tree,
        &found_settings
            .iter()
            .filter(|s| s.verdict == Rating::Hurts)
            .flat_map(|s| s.change.clone())
            .collect::<Vec<_>>(),
    );
    std::fs::remove_dir_all(tree.root().path("/proc/77")).unwrap();
    std::fs::remove_file(tree.root().path("/proc/irq/40/effective_affinity_list")).unwrap();
    tree.put("/sys/devices/system/cpu/smt/active", "0\n");
    tree.put("/proc/500/status", "VmSwap:\t0 kB\n");
    for tid in 500..503 {
        thread_files(&tree, tid, "1", 1, 10, 0);
    }
    let found_settings = settings(&tree);
    let hurting: Vec<&Setting> = found_settings.iter().filter(|s| s.verdict == Rating::Hurts).collect();
    assert!(hurting.is_empty(), "{hurting:#?}");
    assert_eq!(find(&found_settings, "target_priority").value, "SCHED_FIFO 10");
    // Receive work steered onto the pinned core is a fault that a check of pinning alone would miss.
    tree.put("/sys/class/net/eth0/queues/rx-0/rps_cpus", "2\n");
    assert_eq!(find(&settings(&tree), "packet_steering").verdict, Rating::Hurts);
}

#[test]
fn a_latency_limit_on_idle_states_counts() {
    let tree = bad();
    tree.put("/dev/cpu_dma_latency", 0i32.to_ne_bytes());
    assert_eq!(find(&settings(&tree), "idle_states").verdict, Rating::Good);
    tree.put("/dev/cpu_dma_latency", 2_000_000_000i32.to_ne_bytes());
    assert_eq!(find(&settings(&tree), "idle_states").verdict, Rating::Hurts);
}

#[test]
fn a_virtual_machine_is_judged_as_one() {
    let tree = bad();
    tree.put("/proc/cpuinfo", "flags\t: fpu hypervisor\n");
    tree.put("/proc/stat", "cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1 1 1 1\n");
    std::fs::remove_dir_all(tree.root().path(CPU).join("cpuidle")).unwrap();
    for cpu in 0..4 {
        std::fs::remove_dir_all(tree.root().path(&format!("{CPU}/cpu{cpu}/cpuidle"))).unwrap();
    }
    let found_settings = settings(&tree);
    assert_eq!(find(&found_settings, "idle_states").verdict, Rating::Unknown);
    let steal = find(&found_settings, "steal");
    assert_eq!((steal.verdict, steal.value.as_str()), (Rating::Hurts, "10.00 % since boot"));
}

#[test]
fn cgroup_v1_limits_are_found_behind_a_container_mount() {
    let tree = bad();
    tree.put("/proc/500/cgroup", "4:memory:/pod/c1\n3:cpu,cpuacct:/pod/c1\n");
    tree.put(
        "/proc/self/mountinfo",
        "31 20 0:27 /pod /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
         32 20 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    );
    tree.put("/sys/fs/cgroup/cpu/c1/cpu.cfs_quota_us", "50000\n");
    tree.put("/sys/fs/cgroup/cpu/c1/cpu.cfs_period_us", "100000\n");
    tree.put("/sys/fs/cgroup/memory/pod/c1/memory.limit_in_bytes", "9223372036854771712\n");
    tree.put("/sys/fs/cgroup/memory/pod/c1/memory.usage_in_bytes", "1\n");
    let found_settings = settings(&tree);
    let quota = find(&found_settings, "target_cpu_quota");
    assert_eq!(
        (quota.value.as_str(), quota.change[0].as_str()),
        ("0.50 CPUs", "echo -1 > /sys/fs/cgroup/cpu/c1/cpu.cfs_quota_us")
    );
    assert_eq!(find(&found_settings, "target_memory_limit").value, "none");
}

#[test]
fn coalescing_is_judged_and_restored() {
    let mut nic = Nic { coalescing: Fact::unknown(crate::nic::UNSUPPORTED), ..bad_nic() };
    let judge = |nic: &Nic| {
        let root = Root::at("/nonexistent");
        let kernel = Kernel::collect(&root);
        let machine = Machine::collect(&root);
        let nics = [nic.clone()];
        let cx = Context { root: &root, machine: &machine, kernel: &kernel, nics: &nics, target: None };
        find(&network::check(&cx), "interrupt_coalescing:eth0").clone()
    };
    assert_eq!(judge(&nic).verdict, Rating::NotPresent);
    let mut c = Coalescing { rx_usecs: 8, rx_frames: 128, tx_usecs: 8, adaptive_rx: true, adaptive_tx: true };
    nic.coalescing = Fact::Known(c.clone());
    let s = judge(&nic);
    assert_eq!((s.verdict, s.value.as_str()), (Rating::Hurts, "adaptive, rx-usecs 8"));
    assert_eq!(s.change, ["ethtool -C eth0 adaptive-rx off rx-usecs 0"]);
    assert_eq!(s.undo, ["ethtool -C eth0 adaptive-rx on rx-usecs 8"]);
    c.adaptive_rx = false;
    nic.coalescing = Fact::Known(c.clone());
    assert_eq!(judge(&nic).verdict, Rating::Good);
    c.rx_usecs = 50;
    nic.coalescing = Fact::Known(c);
    assert_eq!(judge(&nic).undo, ["ethtool -C eth0 rx-usecs 50"]);
}

fn bad_nic() -> Nic {
    HostReport::collect(&bad().root(), None).nics.remove(0)
}

#[test]
fn a_missing_process_and_an_empty_tree_are_unknown_not_an_error() {
    let report = HostReport::collect(&Tree::new(&[]).root(), Some(9));
    let target = find(&report.settings, "target");
    assert_eq!(target.verdict, Rating::Unknown);
    assert!(target.why.contains("no process 9"));
    assert!(report.settings.iter().all(|s| s.verdict != Rating::Hurts), "nothing is accused without evidence");
}
