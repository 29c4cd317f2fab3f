//! Faults and scenarios, live: a fault does what its truth log says, and a scenario that is killed half-way leaves nothing
//! that the next start does not undo. Needs root; skipped by name without.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tailsight_lab::clock::now_ns;
use tailsight_lab::truth::{TruthLog, kind};
use tailsight_testbed::process::is_running;

use super::programs::{LAB, Program, lab};

#[test]
fn a_hog_uses_its_core_in_its_bursts_and_only_then() {
    let test = "a_hog_uses_its_core_in_its_bursts_and_only_then";
    let Some(pair) = super::pair(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("truth");
    let log = TruthLog::create(&path).unwrap();
    let from = now_ns();
    let hog = Program::start(
        &pair.server,
        &format!("fault intruder --schedule 5ms/50ms --truth {} --for 20s", path.display()),
    );
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", hog.pid())).unwrap();
    assert_eq!(comm.trim(), "lab-intruder");
    std::thread::sleep(Duration::from_millis(400));
    drop(hog);
    let to = now_ns();
    let ran = log.intervals().unwrap();
    assert!(ran.iter().all(|entry| entry.kind == kind::RAN && from <= entry.begin_ns && entry.end_ns <= to));
    let on_grid = |at: u64| at % 50_000_000 < 6_000_000;
    assert!(ran.iter().all(|entry| on_grid(entry.begin_ns) && on_grid(entry.end_ns)), "{ran:?}");
    let sum: u64 = ran.iter().map(|entry| entry.end_ns - entry.begin_ns).sum();
    // Some 8 bursts of 5 ms in 400 ms.
    assert!((15_000_000..50_000_000).contains(&sum), "{sum} ns");
}

#[test]
fn a_stopped_process_is_continued() {
    let test = "a_stopped_process_is_continued";
    let Some(pair) = super::pair(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("truth");
    let log = TruthLog::create(&path).unwrap();
    let server = Program::start(&pair.server, "serve rpc --port 7000");
    let stopper = Program::start(
        &pair.server,
        &format!("fault stopper --schedule 20ms/60ms --pid {} --truth {}", server.pid(), path.display()),
    );
    let state = || tailsight_host::Stat::of_process(server.pid()).unwrap().state().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut states = BTreeSet::new();
    while states.len() < 2 && Instant::now() < deadline {
        states.insert(state() == 'T');
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(stopper);
    assert_eq!(states.len(), 2, "it was to be stopped now and then");
    assert!(log.intervals().unwrap().iter().all(|entry| entry.kind == kind::STOPPED));
}

#[test]
fn timers_expire_on_the_core_asked_for() {
    let test = "timers_expire_on_the_core_asked_for";
    let Some(pair) = super::pair(test) else { return };
    let ticks = || {
        let text = std::fs::read_to_string("/proc/interrupts").unwrap();
        let line = text.lines().find(|line| line.trim_start().starts_with("LOC:")).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
    };
    // Not an x86 machine: its timer interrupts have another name.
    let Some(before) = ticks() else { return };
    let timers = Program::start(&pair.server, "fault timers --strength 100 --cpu 0");
    std::thread::sleep(Duration::from_millis(200));
    drop(timers);
    let expired = ticks().unwrap() - before;
    // 100 a millisecond for 200 ms.
    assert!(expired > 5_000, "{expired} timer interrupts");
}

/// The processes that run the lab's binary, but for this test's own children of other tests.
fn labs(parent: u32) -> Vec<u32> {
    tailsight_testbed::process::children_of(parent)
}

/// Control groups of a lab process, in every hierarchy that is mounted.
fn groups(pid: u32) -> Vec<std::path::PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts
        .lines()
        .filter(|line| line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup")))
        .filter_map(|line| std::fs::read_dir(line.split(' ').nth(1)?).ok())
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name == format!("tailsight-lab-{pid}") || name.starts_with(&format!("tailsight-lab-{pid}-"))
        })
        .map(|entry| entry.path())
        .collect()
}

#[test]
fn a_killed_scenario_is_undone_by_the_next_start() {
    let test = "a_killed_scenario_is_undone_by_the_next_start";
    if super::pair(test).is_none() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let tailsight = out.path().join("tailsight");
    // A recorder that never ends: the scenario is certainly half-way when it is killed.
    tailsight_testing::write_script(&tailsight, "exec sleep 60");
    let folder = out.path().to_str().unwrap();
    let binary = tailsight.to_str().unwrap();
    let run = ["run", "throttled", "--out", folder, "--tailsight", binary];
    let mut victim = lab(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = victim.id();
    let recorder = |children: &[u32]| {
        children.iter().any(|child| {
            std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|comm| comm.trim() == "sleep")
        })
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    let children = loop {
        let children = labs(pid);
        if recorder(&children) {
            break children;
        }
        assert!(Instant::now() < deadline && is_running(pid), "the scenario did not get to its recording");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(children.len() >= 2, "a server and a recorder: {children:?}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let state = || {
        let entries = std::fs::read_dir("/run/tailsight-lab").unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&format!("{pid}-"))).collect::<Vec<_>>()
    };
    // Beside it may be the next one, which it was killed before it could rename.
    assert_eq!(state().iter().filter(|name| name.ends_with(".json")).count(), 1, "the killed run left its state file");
    let left = std::fs::read_dir(out.path()).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 1, "the killed run left its folder");

    // The next start: a run that is refused would not do; one whose recorder fails at once does.
    tailsight_testing::write_script(&tailsight, "exit 1");
    let other = tempfile::tempdir().unwrap();
    let run = ["run", "clean-rpc", "--json", "--out", other.path().to_str().unwrap(), "--tailsight", binary];
    let output = lab(&run).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("an earlier run was killed"), "{words}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["verdict"], "failed", "{json}");

    assert!(state().is_empty(), "{:?}", state());
    assert!(groups(pid).is_empty(), "{:?}", groups(pid));
    assert!(children.iter().all(|child| !is_running(*child)), "{children:?}");
    let left: Vec<_> = std::fs::read_dir(out.path()).unwrap().flatten().filter(|entry| entry.path().is_dir()).collect();
    assert!(left.is_empty(), "{left:?}");
    let mine = format!("tailsight-{pid}-");
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(!listed.lines().any(|name| name.starts_with(&mine)), "{listed}");
    assert!(std::path::Path::new(LAB).exists());
}
