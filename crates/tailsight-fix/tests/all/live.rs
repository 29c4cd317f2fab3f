//! The running host, by processes, a control group and a namespace that these tests make: what is read and set is what other
//! programs and /proc say. What needs rights that are not here is skipped by name.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use tailsight_fix::{About, Change, FileStore, Identity, Limit, Live, Origin, System, apply, plan, undo};
use tailsight_testing::{skip, skip_part};

/// A process of the test's own, ended with it.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(Command::new("sleep").arg("60").spawn().expect("sleep"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn known(&self) -> Origin {
        // The name is the program's after the exec.
        for _ in 0..500 {
            if let Some(task) = Live.task(self.pid(), self.pid()).filter(|t| t.comm == "sleep") {
                let processes = vec![Identity { pid: self.pid(), started: task.started, comm: task.comm }];
                return Origin { boot_id: Live.boot_id(), processes };
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("sleep did not begin");
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn out(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env("LC_ALL", "C").output().expect(program);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Applies, compares with what `value` says, undoes from the file, compares again.
fn there_and_back(known: &Origin, change: Change, value: impl Fn() -> String, changed: &str) {
    let folder = tempfile::tempdir().unwrap();
    let before = value();
    assert_ne!(before, changed, "nothing to change");
    let changes = [change];
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut journal = FileStore::open(folder.path()).unwrap();
        let plan = plan(&Live, &changes, known).unwrap();
        let about = About { title: "live".into(), run: "run".into(), when: "now".into() };
        apply(&mut Live, &mut journal, &plan, (&changes, known), about).unwrap();
        assert_eq!(value(), changed);
        assert!(journal.state.changed() > 0);
    }));
    // By another one, from the file; also when an assertion failed.
    let mut journal = FileStore::open(folder.path()).unwrap();
    let puts = undo(&mut Live, &mut journal, false).unwrap();
    result.unwrap();
    assert_eq!(value(), before, "{puts:?}");
    assert!(journal.state.fixes.is_empty());
}

#[test]
fn cores_of_a_process() {
    let cores = out("nproc", &["--all"]);
    if cores == "1" {
        skip("needs two cores");
        return;
    }
    let sleeper = Sleeper::new();
    let (recorded, pid) = (sleeper.known(), sleeper.pid());
    let value = || out("taskset", &["-cp", &pid.to_string()]).rsplit(": ").next().unwrap().to_owned();
    let last = value().rsplit([',', '-']).next().unwrap().to_owned();
    there_and_back(&recorded, Change::Pin { pids: vec![pid], cpus: last.clone() }, value, &last);
}

#[test]
fn policy_and_disk_priority_of_a_process() {
    if !is_root() {
        skip("needs root to make a process real-time");
        return;
    }
    let sleeper = Sleeper::new();
    let (recorded, pid) = (sleeper.known(), sleeper.pid());
    let id = pid.to_string();
    assert!(Command::new("chrt").args(["-b", "-p", "0", &id]).status().unwrap().success());
    let policy = || out("chrt", &["-p", &id]).replace(&format!("pid {id}'s current scheduling "), "");
    let first = "policy: SCHED_FIFO\npriority: 1";
    there_and_back(&recorded, Change::RealTime { pids: vec![pid] }, policy, first);
    assert_eq!(policy(), "policy: SCHED_BATCH\npriority: 0");
    let disk = || out("ionice", &["-p", &id]);
    there_and_back(&recorded, Change::DiskFirst { pids: vec![pid] }, disk, "realtime: prio 4");
    // A process that had one of its own.
    assert!(Command::new("ionice").args(["-c", "2", "-n", "6", "-p", &id]).status().unwrap().success());
    there_and_back(&recorded, Change::DiskFirst { pids: vec![pid] }, disk, "realtime: prio 4");
    assert_eq!(disk(), "best-effort: prio 6");
}

#[test]
fn a_stopped_process_goes_on_and_is_stopped_again() {
    let sleeper = Sleeper::new();
    let (recorded, pid) = (sleeper.known(), sleeper.pid());
    // SAFETY: the process is a child of this one.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGSTOP) }, 0);
    let state = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let letter = status.lines().find_map(|l| l.strip_prefix("State:\t")).unwrap()[..1].to_owned();
        // Between two sleeps it runs.
        if letter == "T" { "stopped".to_owned() } else { "running".to_owned() }
    };
    while state() != "stopped" {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    there_and_back(&recorded, Change::Continue { pids: vec![pid] }, state, "running");
}

/// A process that ended is no error of an undo, and its id's next owner is not touched.
#[test]
fn an_undo_after_the_process_ended_leaves_an_empty_file() {
    let sleeper = Sleeper::new();
    let (recorded, pid) = (sleeper.known(), sleeper.pid());
    let cores = out("nproc", &["--all"]);
    if cores == "1" {
        skip("needs two cores");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut journal = FileStore::open(folder.path()).unwrap();
    let changes = [Change::Pin { pids: vec![pid], cpus: "0".into() }];
    let made = plan(&Live, &changes, &recorded).unwrap();
    apply(&mut Live, &mut journal, &made, (&changes, &recorded), About::default()).unwrap();
    drop(sleeper);
    let puts = undo(&mut Live, &mut journal, false).unwrap();
    assert!(matches!(puts[0].outcome, tailsight_fix::UndoResult::Gone), "{puts:?}");
    assert!(FileStore::look(folder.path()).unwrap().fixes.is_empty());
    assert!(plan(&Live, &changes, &recorded).is_err(), "it does not run any more");
}

/// Of a network namespace of the test's own: its kernel parameters and its devices' files, whose undo finds the namespace
/// also when the process that stood for it has ended.
#[test]
fn settings_of_another_network_namespace() {
    let script = "ip link add tsfix0 type veth peer name tsfix1 && exec sleep 60";
    if let Some(reason) = tailsight_testing::lacks_networks() {
        skip(reason);
        return;
    }
    let child = Command::new("unshare").args(["-n", "sh", "-c", script]).spawn().expect("unshare");
    let sleeper = Sleeper(child);
    let (recorded, pid) = (sleeper.known(), sleeper.pid());
    let inside = |what: &str| {
        let script = format!("mount -t sysfs sysfs /sys && {what}");
        out("nsenter", &["-t", &pid.to_string(), "-n", "unshare", "-m", "sh", "-c", &script])
    };
    let here = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap();
    inside("sysctl -q -w net.ipv4.tcp_fastopen=2");
    let change = Change::Sysctl { key: "net.ipv4.tcp_fastopen".into(), value: "3".into(), netns: Some(pid) };
    there_and_back(&recorded, change, || inside("sysctl -n net.ipv4.tcp_fastopen"), "3");
    assert_eq!(std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap(), here, "this namespace's stays");

    let queue = "/sys/class/net/tsfix0/queues/rx-0/rps_cpus";
    assert!(!std::path::Path::new(queue).exists(), "the device is here as well");
    let mask = || inside(&format!("cat {queue}")).replace([',', '0'], "");
    let rps = Change::Queues {
        device: "tsfix0".into(),
        direction: "rx".into(),
        file: "rps_cpus".into(),
        value: "1".into(),
        netns: Some(pid),
    };
    there_and_back(&recorded, rps, mask, "1");
    // A veth holds no interrupts back: that is said, not guessed.
    let coalescing = [Change::Coalescing { device: "tsfix0".into(), netns: Some(pid) }];
    let error = plan(&Live, &coalescing, &recorded).unwrap_err().to_string();
    assert_eq!(error, "adaptive-rx of tsfix0: the driver does not have this setting");

    // Another process in the namespace, and the first one ends.
    let second = Command::new("nsenter").args(["-t", &pid.to_string(), "-n", "sleep", "60"]).spawn().expect("nsenter");
    let second = Sleeper(second);
    second.known();
    let folder = tempfile::tempdir().unwrap();
    let mut journal = FileStore::open(folder.path()).unwrap();
    let changes = [Change::Sysctl { key: "net.ipv4.tcp_fastopen".into(), value: "3".into(), netns: Some(pid) }];
    let made = plan(&Live, &changes, &recorded).unwrap();
    apply(&mut Live, &mut journal, &made, (&changes, &recorded), About::default()).unwrap();
    drop(sleeper);
    let read = || out("nsenter", &["-t", &second.pid().to_string(), "-n", "sysctl", "-n", "net.ipv4.tcp_fastopen"]);
    assert_eq!(read(), "3");
    undo(&mut Live, &mut journal, false).unwrap();
    assert_eq!(read(), "2");
}

/// Limits and the freezer of control groups of the test's own, in whichever version of them this host has.
#[test]
fn limits_of_a_control_group() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        skip(reason);
        return;
    }
    let sleeper = Sleeper::new();
    let (recorded, pid) = (sleeper.known(), sleeper.pid());
    let pids = vec![pid];
    let quota = || Change::NoLimit { pids: vec![pid], limit: Limit::CpuQuota };
    let high = || Change::NoLimit { pids: vec![pid], limit: Limit::MemoryHigh };
    // Version 2, then the hierarchies of version 1: folder, file, its value, the change, its value then.
    for (folder, file, value, change, free) in [
        ("", "cpu.max", "50000 100000", quota(), "max 100000"),
        ("", "memory.high", "104857600", high(), "max"),
        ("", "cgroup.freeze", "1", Change::Thaw { pids: pids.clone() }, "0"),
        ("cpu", "cpu.cfs_quota_us", "50000", quota(), "-1"),
        ("freezer", "freezer.state", "FROZEN", Change::Thaw { pids: pids.clone() }, "THAWED"),
    ] {
        let root = Path::new("/sys/fs/cgroup").join(folder);
        let has = if folder.is_empty() { "cgroup.controllers" } else { "cgroup.procs" };
        if !root.join(has).exists() {
            skip_part(file, format!("no control groups at {}", root.display()));
            continue;
        }
        let group = Group::new(&root, pid);
        if !group.0.join(file).exists() {
            skip_part(file, format!("the control groups at {} have none", root.display()));
            continue;
        }
        let read = || std::fs::read_to_string(group.0.join(file)).expect(file).trim().to_owned();
        std::fs::write(group.0.join(file), value).expect(file);
        there_and_back(&recorded, change, read, free);
        assert_eq!(read(), value);
    }
}

/// A control group of the test's own with a process in it; the process goes back to the root and the group is removed.
struct Group(PathBuf, u32);

impl Group {
    fn new(root: &Path, pid: u32) -> Group {
        let folder = root.join(format!("tailsight-fix-{pid}"));
        std::fs::create_dir(&folder).expect("a control group");
        let group = Group(folder, pid);
        std::fs::write(group.0.join("cgroup.procs"), pid.to_string()).expect("moved");
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (file, value) in [("cgroup.freeze", "0"), ("freezer.state", "THAWED")] {
            if self.0.join(file).exists() {
                let _ = std::fs::write(self.0.join(file), value);
            }
        }
        if let Some(above) = self.0.parent() {
            let _ = std::fs::write(above.join("cgroup.procs"), self.1.to_string());
        }
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
