//! The fixes of a real run, run as they are printed: a value is changed, and what was there before comes back.
//!
//! The server is in a network namespace of its own, where its packets come in on a veth. A category table that calls everything
//! by one name asks for the fixes of that name.

use std::process::Command;

use tailsight_lab::load::{Proto, Workload};
use tailsight_lab::server::{MemcachedOpts, Server};

use crate::support::{Live, address, json, run, shown};

const PORT: u16 = 21311;

/// Runs a command line as a user pastes it, and gives what it printed.
fn shell(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
    assert!(output.status.success(), "{line}\n{}", shown(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The command and the undo of the first fix of a cause called so that has a command with this word in it.
fn fix(live: &Live, out: &str, category: &str, name: &str, with: &str) -> (String, String) {
    let table = live.path("categories.toml");
    std::fs::write(&table, format!("[[rule]]\ncategory = \"{category}\"\nname = \"{name}\"\nnest = false\n")).unwrap();
    let output = run(&["diagnose", out, "--json", "--leg", "receive", "--focus", "p90..p100", "--categories", &table]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    let fixes = d["causes"].as_array().unwrap().iter().flat_map(|c| c["fix"].as_array().unwrap());
    let all: Vec<&str> = fixes.filter_map(|f| f.as_str()).collect();
    let found = all.iter().find(|f| f.contains(with) && f.contains("; undo: "));
    let (run, comment) = found.unwrap_or_else(|| panic!("no {with} in {all:?}")).split_once("  # ").unwrap();
    (run.to_owned(), comment.split_once("; undo: ").unwrap().1.to_owned())
}

/// Runs the command twice, then its undo, and checks what `value` says in between.
fn changes_and_comes_back((run, undo): &(String, String), value: impl Fn() -> String, changed: &str) {
    let before = value();
    assert_ne!(before, changed, "nothing to change");
    for _ in 0..2 {
        shell(run);
        assert_eq!(value(), changed, "{run}");
    }
    shell(undo);
    assert_eq!(value(), before, "{undo}");
}

#[test]
fn fixes_change_what_they_say_in_another_network_namespace_and_give_it_back() {
    let name = "fixes_change_what_they_say_in_another_network_namespace_and_give_it_back";
    let Some(live) = Live::new(name) else { return };
    let opts = MemcachedOpts { port: PORT, cpu: Some(0), ..Default::default() };
    let server = Server::memcached(&live.pair.server, opts).unwrap();
    let (pid, out) = (server.pid(), live.path("run"));
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(5_000.0);
    let selector = pid.to_string();
    let record = || run(&["record", "-d", "500ms", "-o", &out, "-p", &selector]);
    let (output, _) = live.under_load(&[load], record);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let devices = tailsight_trace::Run::open(out.as_ref()).unwrap().meta.devices;
    let device = &devices.first().expect("the device that the packets came in on").name;
    assert!(devices.iter().all(|d| !d.here && d.pid == pid), "{devices:?}");

    // Receive packet steering of the veth, which /sys of this namespace does not show.
    let rps = fix(&live, &out, "receive-processing", "net_rx", "rps_cpus");
    assert!(rps.0.contains(device), "{rps:?}");
    assert!(!std::path::Path::new(&format!("/sys/class/net/{device}")).exists(), "{device} is here as well");
    let inside =
        |what: &str| shell(&format!("nsenter -t {pid} -n unshare -m sh -c 'mount -t sysfs sysfs /sys && {what}'"));
    let queue = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
    // Not the kernel's default: an undo that writes that is none.
    inside(&format!("echo 1 > {queue}"));
    let mask = || inside(&format!("cat {queue}")).replace([',', '0'], "");
    changes_and_comes_back(&rps, mask, "2");

    // A parameter that each network namespace has for itself; the host's stays.
    let fastopen = fix(&live, &out, "connection-setup", "lab-accept", "tcp_fastopen");
    let host = shell("sysctl -n net.ipv4.tcp_fastopen");
    inside("sysctl -q -w net.ipv4.tcp_fastopen=2");
    changes_and_comes_back(&fastopen, || inside("sysctl -n net.ipv4.tcp_fastopen"), "3");
    assert_eq!(shell("sysctl -n net.ipv4.tcp_fastopen"), host);

    // Threads of which one differs from the others: each has its own cores and policy again.
    shell(&format!("taskset -acp 0 {pid}; t=$(ls /proc/{pid}/task | tail -n 1); taskset -cp 1 $t; chrt -b -p 0 $t"));
    let each = |what: &str| shell(&format!("for t in $(ls /proc/{pid}/task); do {what}; done"));
    let cores = || each("sed -n s/^Cpus_allowed_list:.//p /proc/$t/status");
    let count = cores().lines().count();
    assert!(count > 1 && cores().contains('1'), "{}", cores());
    let all = |value: &str| vec![value; count].join("\n");
    let pin = fix(&live, &out, "wakeup-delay", "migrated", "taskset -acp");
    changes_and_comes_back(&pin, cores, &all("0"));
    let policy = || each("sed \"s/.*) //\" /proc/$t/stat | cut -d\" \" -f38,39");
    let first = fix(&live, &out, "wakeup-delay", "runnable", "chrt -a -f");
    changes_and_comes_back(&first, policy, &all("1 1"));
    // A neighbour by its name, and one that no other program of this machine has.
    let comm = format!("ts-fix-{pid}");
    let program = live.path(&comm);
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut neighbour = Command::new(&program).arg("60").spawn().unwrap();
    let id = neighbour.id();
    let away = fix(&live, &out, "interference", &comm, "comm");
    let result = std::panic::catch_unwind(|| {
        shell(&format!("taskset -cp 0 {id}"));
        changes_and_comes_back(&away, || shell(&format!("sed -n s/^Cpus_allowed_list:.//p /proc/{id}/status")), "1");
    });
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
    result.unwrap();
    let left = shell(&format!("ls /run | grep '^tailsight.*{pid}' || true"));
    assert_eq!(left, "", "an undo leaves nothing behind");
}
