//! Bad input: each says what was tried and what to do, with the right exit code. None needs rights.

use std::os::unix::process::CommandExt;

use crate::support::{json, run, shown, stderr, tailsight};

/// Exit code, and words that the error must hold.
fn fails(args: &[&str], code: i32, words: &[&str]) {
    let output = run(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", shown(&output));
    let text = stderr(&output);
    for word in words {
        assert!(text.contains(word), "{args:?} must say {word:?}: {text}");
    }
    assert!(output.stdout.is_empty(), "errors go to standard error: {}", shown(&output));
}

#[test]
fn wrong_usage_is_exit_2() {
    fails(&[], 2, &["Usage"]);
    fails(&["record"], 2, &["--port"]);
    fails(&["record", "-p", "x"], 2, &["invalid value"]);
    fails(&["record", "--port", "0"], 2, &["0"]);
    fails(&["record", "-p", "1", "-d", "0s"], 2, &["0s"]);
    fails(&["diagnose", "run", "--leg", "sideways"], 2, &["receive, service, transmit or total"]);
    fails(&["record", "-p", "1", "--buffer", "12"], 2, &["at least 1M"]);
}

#[test]
fn what_is_no_run_is_said_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    fails(&["diagnose", &path("missing")], 1, &["no such directory", "tailsight record -o"]);
    std::fs::write(dir.path().join("file"), "x").unwrap();
    fails(&["diagnose", &path("file")], 1, &["it is a file"]);
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    fails(&["diagnose", &path("empty")], 1, &["no run.json"]);
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(dir.path().join(name).join("events")).unwrap();
        std::fs::write(dir.path().join(name).join("run.json"), text).unwrap();
    };
    write("garbage", "{");
    fails(&["diagnose", &path("garbage")], 1, &["not JSON"]);
    write("newer", r#"{"format":"tailsight-run","version":99}"#);
    fails(&["report", &path("newer")], 1, &["version 99", "newer tailsight"]);
    write("other", r#"{"format":"something"}"#);
    fails(&["export", &path("other")], 1, &["not a run"]);
    write("nothing", r#"{"format":"tailsight-run","version":1,"state":"complete"}"#);
    fails(&["diagnose", &path("nothing")], 3, &["no message"]);
}

#[test]
fn a_focus_that_is_none_is_not_available() {
    for bad in ["p101", "x", "", "NaN..p99", "abc"] {
        fails(&["diagnose", "nowhere", &format!("--focus={bad}")], 2, &["is not a slice", "p99..p100"]);
    }
    for bad in ["p99..p101", "p100..p99", "-1..50", "p50..p50"] {
        let output = run(&["diagnose", "nowhere", &format!("--focus={bad}")]);
        assert_eq!(output.status.code(), Some(3), "{bad:?}: {}", shown(&output));
    }
}

#[test]
fn without_root_recording_says_what_it_needs() {
    // Dropped to nobody when we are root, as we are when we are not.
    let mut command = tailsight(&["record", "-p", &std::process::id().to_string(), "-d", "100ms"]);
    let dir = tempfile::tempdir().unwrap();
    command.current_dir(dir.path());
    if nix::unistd::geteuid().is_root() {
        // The build folder may be closed to others: run a copy.
        let copy = dir.path().join("tailsight");
        std::fs::copy(env!("CARGO_BIN_EXE_tailsight"), &copy).unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        command = std::process::Command::new(copy);
        command.args(["record", "-p", &std::process::id().to_string(), "-d", "100ms", "-o", "/tmp/tailsight-no-root"]);
        command.uid(65534).gid(65534).current_dir("/");
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("run as root"), "{}", shown(&output));
}

#[test]
fn missing_targets_are_named() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(format!("{reason} to get past the check of rights"));
    }
    fails(&["record", "-p", "4194303"], 1, &["no process has pid 4194303", "pgrep"]);
    fails(&["record", "-p", "2"], 1, &["kernel thread"]);
    fails(&["record", "--comm", "no-such-server"], 1, &["--comm no-such-server", "command name"]);
    fails(&["record", "--port", "1"], 1, &["--port 1", "nobody listens"]);
    fails(&["record", "--cgroup", "/no/such"], 1, &["not a cgroup directory"]);
    fails(&["record", "--port", "1", "--with-hook", "nonsense"], 2, &["no hook named \"nonsense\""]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), "x").unwrap();
    let out = dir.path().display().to_string();
    let me = std::process::id().to_string();
    fails(&["record", "-p", &me, "-o", &out], 1, &["not a previous run", "another -o"]);
    assert!(dir.path().join("precious").exists());
    fails(
        &["record", "-d", "100ms", "-o", &dir.path().join("r").display().to_string(), "--", "/no/such/program"],
        1,
        &["cannot start"],
    );
}

#[test]
fn a_category_table_that_is_wrong_names_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("mine.toml");
    std::fs::write(&table, "[[rule]]\ncategory = \"no-such-category\"\nname = \"x\"\n").unwrap();
    fails(
        &["diagnose", "nowhere", "--categories", &table.display().to_string()],
        1,
        &["mine.toml", "rule 1", "category"],
    );
    fails(&["diagnose", "nowhere", "--categories", "/no/such/table.toml"], 1, &["/no/such/table.toml"]);
}

#[test]
fn doctor_works_for_everybody() {
    let output = run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for section in ["Kernel", "Rights", "Clocks", "Settings that hurt tails", "Hooks"] {
        assert!(text.contains(section), "{section} is missing: {text}");
    }
    let report = json(&run(&["doctor", "--json", "-p", &std::process::id().to_string()]));
    assert_eq!(report["schema"], 1);
    assert!(
        report["hooks"].as_array().is_some_and(|h| h.iter().any(|h| h["name"] == "sched_switch")),
        "{}",
        report["hooks"]
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    let script = format!("{} doctor | head -1", env!("CARGO_BIN_EXE_tailsight"));
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(stderr(&output), "");
}
