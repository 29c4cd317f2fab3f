//! Bad input: each says what was tried and what to do, with the right exit code. None needs rights.

use std::os::unix::process::CommandExt;

use crate::support::{json, page_data, run, shown, stderr, tailsight};

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
    fails(&["record", "-p", "abc"], 2, &["`abc` is not a process id: write a number; `pgrep -a NAME` finds it"]);
    fails(&["show", "run", "abc"], 2, &["`abc` is not a message id; `diagnose` prints them"]);
    fails(&["load", "redis://h"], 2, &["--rate", "--utilisation", "--rate-profile", "--closed", "--replay"]);
    fails(&["diagnose", "run", "--nest", "3"], 2, &["`3` is not a share; write a number above 0 and at most 1"]);
    fails(&["sweep", "redis://h", "--factor", "1"], 2, &["`1` is not a factor; write a number from 1.05 to 100"]);
    fails(&["ideal", "run", "--workers", "0"], 2, &["`0` is not a number of workers; write 1 to 100000"]);
    fails(&["record", "-p", "1", "--sample", "0"], 2, &["`0` is not a sample rate; write 1 to", "or off"]);
    fails(&["report", "nosuch.parquet"], 1, &["nosuch.parquet does not exist; give a run, or a file of `load -o`"]);
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
fn a_focus_that_is_none_is_wrong_usage() {
    for bad in ["p101", "x", "", "NaN..p99", "abc", "p99..p101", "p100..p99", "p50..p40", "-1..50", "p50..p50"] {
        fails(&["diagnose", "nowhere", &format!("--focus={bad}")], 2, &["is not a slice", "p99..p100"]);
        fails(&["report", "nowhere", &format!("--reference={bad}")], 2, &["is not a slice"]);
    }
}

/// It printed the usage of `tailsight` itself.
/// Of a run with one class, and of one without a protocol.
#[test]
fn a_class_that_a_run_does_not_have_is_wrong_usage_and_the_others_are_listed() {
    let (with, without) = (golden("memcached-requests"), golden("memcached-tcp"));
    for command in [&["diagnose"][..], &["diagnose", "--more"], &["report"], &["export", "--format", "csv"], &["fix"]] {
        let args = |run, class| [command, &[run, "--class", class]].concat();
        fails(&args(&with, "DELETE"), 2, &["\"DELETE\"", "its classes are get k16..32 (240)"]);
        fails(&args(&without, "get"), 2, &["without --protocol", "--protocol auto"]);
    }
    fails(&["show", &with, "3", "--class", "DELETE"], 2, &["its classes are get k16..32 (240)"]);
    fails(
        &["diagnose", &with, "--against", &without, "--class", "get"],
        2,
        &["the run that is compared with has no messages of get k16..32"],
    );
    fails(&["diagnose", &with, "--class", "get", "--slo", "p99<1ms"], 2, &["--slo", "--class"]);
}

/// All requests of the run are of the class: the answer is the one without it, but for what is of all classes.
#[test]
fn a_class_is_explained_by_any_name_that_means_it() {
    let run_dir = golden("memcached-requests");
    let answer = |class: &[&str]| json(&run(&[&["diagnose", &run_dir, "--json"][..], class].concat()));
    let whole = answer(&[]);
    for name in ["get k16..32", "GET", "get*"] {
        let of_class = answer(&["--class", name]);
        crate::schemas::holds("diagnose", &of_class);
        assert_eq!(of_class["class"], serde_json::json!({"name": "get k16..32", "classes": ["get k16..32"]}));
        // The message that was not received has no class.
        let counted = |of: &serde_json::Value| [of["messages"]["total"].clone(), of["messages"]["complete"].clone()];
        assert_eq!((counted(&of_class), counted(&whole)), ([240.into(), 240.into()], [241.into(), 240.into()]));
        for key in ["latency_ns", "focus", "reference", "classes", "typical"] {
            assert_eq!(of_class[key], whole[key], "{name}: {key}");
        }
        let causes = |of: &serde_json::Value| {
            let says = |cause: &serde_json::Value| {
                ["category", "name", "deviation_ns", "ci95_ns", "messages", "evidence"].map(|key| cause[key].clone())
            };
            of["causes"].as_array().unwrap().iter().map(says).collect::<Vec<_>>()
        };
        assert_eq!(causes(&of_class), causes(&whole), "{name}");
        assert!(of_class["ideal_ns"].is_null() && of_class["work"].is_null());
        let next = of_class["next"].to_string();
        assert!(next.contains("tailsight show") && next.contains("158 --class 'get k16..32'"), "{next}");
    }
    let said = String::from_utf8(run(&["diagnose", &run_dir, "--class", "get"]).stdout).unwrap();
    assert!(said.starts_with("memcached, class get k16..32: 240 of 240 messages in 150 ms\n"), "{said}");
    let shown = json(&run(&["show", &run_dir, "158", "--class", "get", "--json"]));
    assert_eq!(shown["class"], "get k16..32");
}

#[test]
fn a_bad_url_prints_the_usage_of_the_command_it_was_given_to() {
    fails(&["load", "nonsense://host", "--rate", "1k"], 2, &["nonsense", "Usage: tailsight load"]);
    for (words, said) in [
        (&["-X", "PUT"][..], "are HTTP's, and resp is asked for"),
        (&["-H", "X: y"], "are HTTP's"),
        (&["--good-statuses", "2xx"], "is for HTTP"),
        (&["--against", "http://h"], "speaks resp"),
        (&["--against", "redis://g", "--max-time", "10s"], "--max-time 40s or more"),
        (&["--against", "redis://g", "-o", "x"], "--out cannot be used with two servers in turn"),
    ] {
        fails(&[&["load", "redis://h", "--rate", "1k"], words].concat(), 2, &[said]);
    }
    for (words, said) in [
        (&["-H", "Accept"][..], "NAME: VALUE"),
        (&["-H", "Content-Length: 3"], "frames the message"),
        (&["-X", "GET /"], "is no HTTP method"),
        (&["--good-statuses", "9xx"], "codes and ranges"),
        (&["-d", "@/no/such/file"], "/no/such/file"),
        (&["--requests", "/no/such/file"], "/no/such/file"),
    ] {
        fails(&[&["load", "http://h", "--rate", "1k"], words].concat(), 2, &[said]);
    }
    fails(&["sweep", "nonsense://host"], 2, &["nonsense", "Usage: tailsight sweep"]);
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
        tailsight_testing::copy_program(env!("CARGO_BIN_EXE_tailsight"), &copy);
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
    fails(&["record", "--port", "1"], 1, &["--port 1", "no process listens on that port"]);
    fails(&["record", "--cgroup", "/no/such"], 1, &["not a cgroup directory"]);
    fails(&["record", "--port", "1", "--with-hook", "nonsense"], 2, &["no hook named \"nonsense\""]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("precious"), "x").unwrap();
    let out = dir.path().display().to_string();
    let me = std::process::id().to_string();
    fails(&["record", "-p", &me, "-o", &out], 1, &["is not a run of tailsight", "another -o"]);
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
    // 1 where this host (or this user) cannot record, as the JSON says.
    let output = run(&["doctor"]);
    let said = run(&["doctor", "--json"]);
    let expected = if json(&said)["can_record"] == true { 0 } else { 1 };
    assert_eq!((output.status.code(), said.status.code()), (Some(expected), Some(expected)), "{}", shown(&output));
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

/// A golden run by its name.
fn golden(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailsight-lifetime/tests/golden").join(name);
    folder.display().to_string()
}

/// The default blamed the receive leg whatever the total's tail was: every leg is listed, and the total is explained.
#[test]
fn without_a_leg_the_total_is_explained_beside_all_legs() {
    let output = run(&["diagnose", &golden("memcached-requests"), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    assert_eq!(d["leg"], "total");
    for leg in ["receive", "service", "transmit", "total"] {
        assert!(d["legs"][leg]["messages"].as_u64().is_some_and(|n| n >= 200), "{leg}: {}", d["legs"]);
        assert!(d["legs"][leg]["p50"].as_u64().is_some() && d["legs"][leg]["max"].as_u64().is_some(), "{leg}");
    }
    assert_eq!(d["legs"]["total"]["p50"], d["latency_ns"]["p50"]);
    let sum: u64 = d["typical"]["rows"].as_array().unwrap().iter().map(|r| r["mean_ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), d["typical"]["mean_ns"].as_u64(), "the rows of a median message sum to it");
    let narrowed = json(&run(&["diagnose", &golden("memcached-requests"), "--json", "--leg", "receive"]));
    assert_eq!((narrowed["leg"].as_str(), &narrowed["legs"]), (Some("receive"), &d["legs"]));
    let text = String::from_utf8_lossy(&run(&["diagnose", &golden("memcached-requests")]).stdout).into_owned();
    assert!(text.contains("▸ total") && text.contains("Where a median message spends its time"), "{text}");
}

/// A run of 240 messages: p99..p100 holds 3. It is widened, and that is said; a focus that was asked for is not.
#[test]
fn few_messages_widen_the_default_focus_and_only_that() {
    let run_of = golden("memcached-requests");
    let output = run(&["diagnose", &run_of, "--json"]);
    let d = json(&output);
    let n = d["messages"]["complete"].as_u64().unwrap();
    assert!((100..2_000).contains(&n), "{n} messages");
    assert!(
        d["focus"]["messages"].as_u64().unwrap() >= 20 && d["focus"]["from"].as_f64().unwrap() < 0.99,
        "{}",
        d["focus"]
    );
    let notes = d["notes"].to_string();
    assert!(notes.contains(&format!("of {n} complete messages")) && notes.contains("is explained instead"), "{notes}");

    // Asked for: N/A, exit 3, with all that can be said, on the terminal, as JSON and on the page.
    let output = run(&["diagnose", &run_of, "--focus", "p99..p100"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(
        stderr(&output).contains("N/A: the focus p99..p100 holds") && stderr(&output).contains("--focus p"),
        "{}",
        shown(&output)
    );
    assert!(text.contains("p50") && text.contains("The slowest messages") && text.contains("median message"), "{text}");
    let output = run(&["diagnose", &run_of, "--focus", "p99..p100", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let na = json(&output);
    assert_eq!((na["causes"].as_array().map(Vec::len), na["slowest"].as_array().map(Vec::len)), (Some(0), Some(10)));
    assert!(na["not_available"].as_str().is_some_and(|w| w.starts_with("N/A")) && d["not_available"].is_null(), "{na}");
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html").display().to_string();
    let output = run(&["report", &run_of, "--focus", "p99..p100", "-o", &page]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert_eq!(page_data(&page)["diagnosis"]["not_available"], na["not_available"]);
}

/// One message: its time from end to end, what of it is more than usual, and which ids there are.
#[test]
fn one_message_is_shown() {
    let run_of = golden("memcached-tcp");
    let d = json(&run(&["diagnose", &run_of, "--json"]));
    let id = d["slowest"][0]["id"].as_u64().unwrap().to_string();
    let output = run(&["show", &run_of, &id, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let m = json(&output);
    let latency = m["latency_ns"].as_u64().unwrap();
    assert_eq!((m["leg"].as_str(), Some(latency)), (Some("total"), d["latency_ns"]["max"].as_u64()));
    let sum =
        |rows: &serde_json::Value| rows.as_array().unwrap().iter().map(|r| r["ns"].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum(&m["spans"]), sum(&m["rows"])), (latency, latency));
    let marks: Vec<&str> = m["marks"].as_array().unwrap().iter().map(|m| m["stage"].as_str().unwrap()).collect();
    assert!(["driver", "handoff", "recv", "xmit"].iter().all(|s| marks.contains(s)), "{marks:?}");
    let text = String::from_utf8_lossy(&run(&["show", &run_of, &id]).stdout).into_owned();
    for word in
        [&format!("message {id}"), "Path:", "received", "reply handed to the driver", "longer than usual", "core"]
    {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    fails(
        &["show", &run_of, "999999"],
        2,
        &["no message 999999", "ids go from 0 to", &format!("the slowest are {id}")],
    );
    fails(&["show", &run_of, "x"], 2, &["`x` is not a message id"]);
    fails(&["show", "/no/such/run", "1"], 1, &["no such directory"]);
}

/// One flipped byte read as "the recording is partial and too short: record again".
#[test]
fn a_flipped_byte_is_damage_and_no_short_recording() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    // As this version writes runs, with checksums.
    let mut recorded = tailsight_trace::Run::open(std::path::Path::new(&golden("memcached-requests"))).unwrap();
    let cores = recorded.events().unwrap();
    let mut meta = recorded.meta.clone();
    meta.version = tailsight_trace::FORMAT_VERSION;
    let mut writer = tailsight_trace::RunWriter::create(&path, &meta).unwrap();
    writer.tasks(&recorded.tasks).unwrap();
    writer.sockets(&recorded.sockets).unwrap();
    writer.clocks(&recorded.clocks).unwrap();
    for core in &cores {
        writer.events(core.cpu, &core.events).unwrap();
    }
    writer.finish(&mut meta).unwrap();
    let whole = run(&["diagnose", &path.display().to_string()]);
    assert!(whole.status.code() == Some(0) && !stderr(&whole).contains("damaged"), "{}", shown(&whole));
    // Early in each core's file, so that nothing of it is left.
    for file in std::fs::read_dir(path.join("events")).unwrap().map(|entry| entry.unwrap().path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        let at = bytes.len() / 20;
        bytes[at] ^= 0x55;
        std::fs::write(&file, bytes).unwrap();
    }
    let output = run(&["diagnose", &path.display().to_string()]);
    let said = stderr(&output);
    assert!(said.contains("note: damaged run: events of core"), "{}", shown(&output));
    assert!(!said.contains("too short"), "{}", shown(&output));
    assert!(
        output.status.code() == Some(3)
            && said.contains("the run is damaged: its files were changed or cut after the recording"),
        "{}",
        shown(&output)
    );
}

/// 3 was the exit code, which means that the evidence is not enough.
#[test]
fn a_number_that_no_fix_has_is_wrong_usage() {
    fails(&["fix", &golden("memcached-requests"), "99"], 2, &["no fix has number 99", "this run has"]);
}

/// Fixes were offered against causes of 0.0 % of the deviation, and lines by hand against rows below 1 %.
#[test]
fn fixes_are_listed_against_causes_that_matter_and_the_others_counted() {
    let mut left_out = 0;
    for name in ["memcached-requests", "memcached-tcp", "memcached-udp", "nginx-2-workers", "redis-ipv6"] {
        let wide = ["--focus", "p70..p100", "--reference", "p10..p70"];
        let answer = json(&run(&[&["fix", &golden(name), "--json"][..], &wide].concat()));
        let small = |kind: &str| {
            let small = |row: &&serde_json::Value| row["cause"]["share"].as_f64().unwrap() < 0.01;
            (answer[kind].as_array().unwrap().len(), answer[kind].as_array().unwrap().iter().filter(small).count())
        };
        let ((fixes, small_fixes), (by_hand, small_by_hand)) = (small("fixes"), small("by_hand"));
        let output = run(&[&["fix", &golden(name)][..], &wide].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(lines("    against  "), fixes - small_fixes, "{name}: {text}");
        assert_eq!(lines("  - "), by_hand - small_by_hand, "{name}: {text}");
        let counted = text.lines().any(|line| line.starts_with("Left out: ") && line.contains("less than 1 %"));
        assert_eq!(counted, small_fixes + small_by_hand > 0, "{name}: {text}");
        left_out += small_fixes + small_by_hand;
    }
    assert!(left_out > 0, "these runs show nothing of it");
}

/// It was printed for every run, without its cure.
#[test]
fn missing_system_call_hooks_are_a_note_only_with_their_cure() {
    for name in ["memcached-tcp", "memcached-udp", "nginx-2-workers", "redis-ipv6"] {
        let d = json(&run(&["diagnose", &golden(name), "--json", "--leg", "transmit"]));
        let notes = d["notes"].to_string();
        assert!(!notes.contains("sys_enter"), "{name}: no own work in the transmit leg: {notes}");
        let d = json(&run(&["diagnose", &golden(name), "--json"]));
        for note in d["notes"].as_array().unwrap().iter().filter_map(|n| n.as_str()).filter(|n| n.contains("sys_enter"))
        {
            assert!(note.contains("--with-hook sys_enter,sys_exit"), "{name}: {note}");
        }
    }
}

/// The gate of a build: exit 4 with the row that is above the limit, 0 where none is, 3 where there is no answer.
#[test]
fn fail_above_exits_4_and_names_the_row() {
    let run_of = golden("memcached-requests");
    let output = run(&["diagnose", &run_of, "--json"]);
    let first = json(&output)["causes"][0].clone();
    let low = first["ci95_ns"][0].as_i64().unwrap();
    assert!(low > 100_000, "{first}");
    let gate = |limit: i64, more: &[&str]| {
        let limit = format!("{limit}ns");
        run(&[&["diagnose", &run_of, "--fail-above", &limit], more].concat())
    };

    let failed = gate(low - 1, &[]);
    assert_eq!(failed.status.code(), Some(4), "{}", shown(&failed));
    let named = format!("tailsight: {} ", first["category"].as_str().unwrap());
    assert!(
        stderr(&failed).contains(&named) && stderr(&failed).contains("is above --fail-above"),
        "{}",
        shown(&failed)
    );
    assert!(String::from_utf8_lossy(&failed.stdout).contains("Because:"), "the diagnosis is printed all the same");
    let json_too = gate(low - 1, &["--json"]);
    assert_eq!(json_too.status.code(), Some(4));
    assert_eq!(json(&json_too)["causes"][0], first, "nothing else is on standard output");

    for (met, output) in
        [("a limit above all", gate(60_000_000_000, &[])), ("no difference", gate(1_000, &["--against", &run_of]))]
    {
        assert_eq!(output.status.code(), Some(0), "{met}: {}", shown(&output));
        assert!(!stderr(&output).contains("--fail-above"), "{met}: {}", shown(&output));
    }
    let no_answer = gate(0, &["--focus", "p99..p100"]);
    assert_eq!(no_answer.status.code(), Some(3), "{}", shown(&no_answer));
    for wrong in ["5%", "-1ms", "soon"] {
        let output = run(&["diagnose", &run_of, &format!("--fail-above={wrong}")]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", shown(&output));
        assert!(stderr(&output).contains("is not a time"), "{wrong}: {}", shown(&output));
    }
}
