//! Live tests on the running host. They change only a process of their own; where the host lacks what a test needs
//! it says SKIPPED with its name and the reason.

use std::process::{Child, Command, Stdio};
use tailsight_host::{HostReport, Rating, Root, Setting};

/// A child of ours that sleeps, ended when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        // The parent may continue a moment before the kernel gives the child its new name.
        let comm = format!("/proc/{}/comm", child.id());
        for _ in 0..200 {
            if std::fs::read_to_string(&comm).is_ok_and(|c| c.trim() == "sleep") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Sleeper(child)
    }

    fn report(&self) -> HostReport {
        HostReport::collect(&Root::host(), Some(self.0.id()))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn setting(report: &HostReport, id: &str) -> Setting {
    report.settings.iter().find(|s| s.id == id).unwrap().clone()
}

/// Runs the commands; false if one of them is refused or its program is not there.
fn run(commands: &[String]) -> bool {
    commands.iter().all(|c| {
        Command::new("sh").args(["-c", c]).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    })
}

#[test]
fn the_running_host_is_described() {
    let report = HostReport::collect(&Root::host(), None);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report.kernel.release.known().unwrap(), release.trim());
    let cpus = report.machine.cpus_online.known().unwrap().len();
    assert!(cpus >= std::thread::available_parallelism().unwrap().get());
    assert!(report.clocks.discipline.known().is_some(), "adjtimex needs no rights");
    assert!(report.pmus.names.iter().any(|n| n == "software"));
    // The kernel refuses and allows consistently: without tracing programs there are no reads either.
    let (program, read) = (report.rights.bpf_program.known().unwrap(), report.rights.bpf_kernel_read.known().unwrap());
    assert!(program.allowed || !read.allowed);
    assert_eq!(program.allowed, program.errno.is_none());
    for line in report.table(false, 110).lines().filter(|l| !l.starts_with("              ")) {
        assert!(line.chars().count() <= 110 || line.contains("change") || line.contains("undo"), "{line}");
    }
}

#[test]
fn the_loopback_interface_stamps_in_software_only() {
    let report = HostReport::collect(&Root::host(), None);
    let Some(lo) = report.nics.iter().find(|n| n.name == "lo") else {
        return tailsight_testing::skip("no lo in this network namespace");
    };
    let stamps = lo.timestamping.known().expect("every Linux device answers ETHTOOL_GET_TS_INFO");
    assert!(stamps.rx_software && !stamps.rx_hardware && !stamps.stamps_all_rx());
    assert!(!lo.physical);
}

#[test]
fn pinning_and_priority_of_a_process_change_and_come_back() {
    let sleeper = Sleeper::start();
    let before = sleeper.report();
    assert_eq!(before.target.as_ref().unwrap().comm, "sleep");
    for id in ["target_pinning", "target_priority"] {
        let s = setting(&before, id);
        if s.verdict != Rating::Hurts || !run(&s.change) {
            tailsight_testing::skip_part(id, format!("{} or no right", s.value));
            continue;
        }
        assert_eq!(setting(&sleeper.report(), id).verdict, Rating::Good, "{id} after {:?}", s.change);
        assert!(run(&s.undo), "{:?}", s.undo);
        assert_eq!(sleeper.report().target, before.target, "{id} after {:?}", s.undo);
    }
}
