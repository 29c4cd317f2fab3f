//! Recordings that go wrong half way: what was recorded is kept, opens, and says what happened.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tailsight_confine::priority::SessionGroup;
use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::process::is_running;
use tailsight_testbed::server::{MemcachedOpts, Server};

use crate::support::{Live, address, begun, check_run, recording_process, run, shown, stderr, tailsight, wait_for};

const PORT: u16 = 21300;

fn memcached(live: &Live) -> Server {
    Server::memcached(&live.pair.server, MemcachedOpts { port: PORT, ..Default::default() }).unwrap()
}

fn load() -> Workload {
    Workload::new(Proto::Memcached, address(false, PORT)).rate(4_000.0)
}

#[test]
fn killed_half_way_opens_as_partial() {
    let Some(live) = Live::new("killed_half_way_opens_as_partial") else { return };
    let server = memcached(&live);
    let out = live.path("run");
    let pid = server.pid().to_string();
    live.under_load(&[load()], || {
        let mut recorder = begun(&["record", "-d", "30s", "-o", &out, "-p", &pid], &out);
        // Longer than the buffers are kept: drained while recording.
        std::thread::sleep(Duration::from_millis(3500));
        kill(Pid::from_raw(recorder.id().cast_signed()), Signal::SIGKILL).unwrap();
        recorder.wait().unwrap();
    });
    let (messages, ..) = check_run(Path::new(&out));
    assert!(messages > 500, "{messages} messages before the kill");
    let output = run(&["diagnose", &out, "--leg", "receive", "--focus", "p90..p100"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(stderr(&output).contains("partial run: the recording was killed"), "{}", shown(&output));
}

/// Where the kernel divides cores among sessions first, the recorder took half a core from a server of another one.
#[test]
fn a_recorder_in_a_session_of_its_own_gives_way_and_does_not_outlive_who_was_started() {
    let Some(live) = Live::new("a_recorder_in_a_session_of_its_own_gives_way_and_does_not_outlive_who_was_started")
    else {
        return;
    };
    let group = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/autogroup")).unwrap_or_default();
    let own = group(std::process::id());
    if own.is_empty() || SessionGroup::own().is_none() {
        return tailsight_testing::skip("this kernel does not divide cores among sessions");
    }
    let server = memcached(&live);
    let out = live.path("run");
    let mut started = tailsight(&["record", "-d", "30s", "-o", &out, "-p", &server.pid().to_string()]).spawn().unwrap();
    let name = |pid: u32| group(pid).split(' ').next().unwrap_or_default().to_owned();
    let apart = |pid: &u32| !name(*pid).is_empty() && name(*pid) != name(std::process::id());
    let recording = wait_for(|| Some(recording_process(started.id())).filter(apart));
    let until = std::time::Instant::now() + Duration::from_secs(20);
    let gives_way = || group(recording).ends_with("nice 19\n");
    let before = idle_and_all_ticks();
    while !gives_way() {
        if std::time::Instant::now() > until {
            let after = idle_and_all_ticks();
            let idle = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
            assert!(idle < BUSY, "it never gave way, and the cores were idle for {idle} of the time");
            // There it hurries nearly always.
            tailsight_testing::not_judged(
                "a_recorder_in_a_session_of_its_own_gives_way_and_does_not_outlive_who_was_started",
                "the recorder did not give way in 20 s, in which the cores were never free",
            );
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_ne!(recording, started.id());
    assert_eq!(group(std::process::id()), own, "the session of who started it is as before");
    kill(Pid::from_raw(started.id().cast_signed()), Signal::SIGKILL).unwrap();
    started.wait().unwrap();
    wait_for(|| (!is_running(recording)).then_some(()));
}

/// Cores that are idle for less of the time than this are never free.
const BUSY: f64 = 0.1;

/// Of all cores since the machine started, ticks in which they were idle, and all.
fn idle_and_all_ticks() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let of_all: Vec<u64> =
        stat.lines().next().unwrap().split_ascii_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    // user, nice, system, idle, iowait
    (of_all[3] + of_all[4], of_all.iter().take(8).sum())
}

#[test]
fn interrupted_recordings_are_partial_and_have_all_until_then() {
    let Some(live) = Live::new("interrupted_recordings_are_partial_and_have_all_until_then") else { return };
    let server = memcached(&live);
    let out = live.path("run");
    let pid = server.pid().to_string();
    let (status, _) = live.under_load(&[load()], || {
        let mut recorder = begun(&["record", "-d", "30s", "-o", &out, "-p", &pid], &out);
        std::thread::sleep(Duration::from_secs(2));
        kill(Pid::from_raw(recorder.id().cast_signed()), Signal::SIGINT).unwrap();
        recorder.wait().unwrap()
    });
    assert_eq!(status.code(), Some(0));
    let run = tailsight_trace::Run::open(Path::new(&out)).unwrap();
    // It said "complete", and the page of the format "partial".
    assert_eq!(run.meta.state, tailsight_trace::meta::State::Partial);
    assert!(run.partial.len() == 1 && run.partial[0].starts_with("interrupted after"), "{:?}", run.partial);
    assert!(check_run(Path::new(&out)).0 > 100);
}

#[test]
fn a_target_that_exits_ends_the_recording_and_keeps_the_run() {
    let Some(live) = Live::new("a_target_that_exits_ends_the_recording_and_keeps_the_run") else { return };
    let mut server = live.pair.server.command("memcached");
    let mut server = server.args(["-u", "root", "-U", "0", "-p", &PORT.to_string()]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let pid = server.id();
    let out = live.path("run");
    let recorder = tailsight(&["record", "-d", "20s", "-o", &out, "-p", &pid.to_string()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(|| Path::new(&out).exists().then_some(()));
    std::thread::sleep(Duration::from_secs(1));
    server.kill().unwrap();
    server.wait().unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let run = tailsight_trace::Run::open(Path::new(&out)).unwrap();
    assert!(run.meta.warnings.iter().any(|w| w.contains("target exited")), "{:?}", run.meta.warnings);
    assert!(run.meta.end_ns - run.meta.start_ns < 15_000_000_000);
}

#[test]
fn no_traffic_is_said_and_is_no_verdict() {
    let Some(live) = Live::new("no_traffic_is_said_and_is_no_verdict") else { return };
    let server = memcached(&live);
    let out = live.path("run");
    let output = run(&["record", "-d", "200ms", "-o", &out, "-p", &server.pid().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(shown(&output).contains("is there a load?"), "{}", shown(&output));
    let output = run(&["diagnose", &out]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
}

#[test]
fn a_full_disk_ends_the_recording_and_keeps_what_was_written() {
    let Some(live) = Live::new("a_full_disk_ends_the_recording_and_keeps_what_was_written") else { return };
    let server = memcached(&live);
    let small = live.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    nix::mount::mount(Some("tailsight-test"), &small, Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=1500k"))
        .unwrap();
    let out = small.join("run");
    let (output, _) = live.under_load(&[load()], || {
        run(&["record", "-d", "10s", "-o", &out.display().to_string(), "-p", &server.pid().to_string()])
    });
    let opened = tailsight_trace::Run::open(&out).map(|run| run.partial);
    let diagnosed = run(&["diagnose", &out.display().to_string(), "--leg", "receive", "--focus", "p50..p100"]);
    nix::mount::umount(&small).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("disk is full"), "{}", shown(&output));
    assert!(!opened.unwrap().is_empty(), "the run must say that it is partial");
    assert_eq!(diagnosed.status.code(), Some(0), "{}", shown(&diagnosed));
}

#[test]
fn a_command_is_started_recorded_and_stopped() {
    let Some(live) = Live::new("a_command_is_started_recorded_and_stopped") else { return };
    let out = live.path("run");
    let port = PORT.to_string();
    let ip = ["ip", "netns", "exec", live.pair.server.name()];
    let mut args = vec!["record", "-d", "2s", "-o", &out, "--"];
    args.extend(ip);
    args.extend(["memcached", "-u", "root", "-U", "0", "-p", &port]);
    let recorder =
        tailsight(&args).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The server listens some time after the probes are in; the load tries until it does.
    let mut sent = Err("not tried".to_owned());
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(50));
        let stop = std::sync::atomic::AtomicBool::new(false);
        let once = || tailsight_testbed::load::run(&[load()], Duration::from_millis(800), false, &stop);
        sent = live.pair.client.run(once).unwrap().map_err(|e| e.to_string());
        if sent.is_ok() {
            break;
        }
    }
    let output = recorder.wait_with_output().unwrap();
    assert!(sent.is_ok(), "{sent:?} {}", shown(&output));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let run = tailsight_trace::Run::open(Path::new(&out)).unwrap();
    assert_eq!(run.meta.target.ports, [PORT], "{}", shown(&output));
    assert!(check_run(Path::new(&out)).0 > 100, "{}", shown(&output));
    assert!(run.meta.target.pids.iter().all(|&p| !tailsight_testbed::process::is_running(p)), "the command is stopped");
}
