//! Outputs that nobody reads, or that are full; and text from outside on its way to them.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{run, shown, tailsight};

/// A command line of the shell, with the program as `$T`.
fn shell(script: &str) -> Output {
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).env("T", env!("CARGO_BIN_EXE_tailsight")).env("NO_COLOR", "1");
    shell.output().expect("bash starts")
}

fn golden() -> String {
    format!("{}/../tailsight-lifetime/tests/golden/memcached-requests", env!("CARGO_MANIFEST_DIR"))
}

/// docs/reading-the-output.md explained an answer that the program no longer gave: another first cause, and other notes.
#[test]
fn the_page_that_explains_the_output_shows_what_is_printed() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(top.join("docs/reading-the-output.md")).expect("the page");
    let explained = page.split("\n## ").next().expect("the part before the first heading");
    let blocks: Vec<&str> =
        explained.split("```text\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert_eq!(blocks.len(), 7, "{blocks:?}");
    // As the page has it: the next steps name the run as it was named.
    let mut command = tailsight(&["diagnose", "crates/tailsight-lifetime/tests/golden/memcached-requests"]);
    let output = command.current_dir(top).env("COLUMNS", "84").output().expect("the program was built");
    let printed = String::from_utf8_lossy(&output.stdout);
    for block in blocks {
        assert!(printed.contains(block), "not in the output:\n{block}\n{}", shown(&output));
    }
}

/// It panicked (exit 101), whatever the command: `failed printing to stderr`.
#[test]
fn a_standard_error_that_is_closed_or_full_is_no_panic() {
    let run_of = golden();
    for (words, code) in [
        ("diagnose /no/such/run", 1),
        (&format!("diagnose {run_of} --focus p99..p100"), 3),
        ("record -p 4194303", 1),
        ("load nonsense://host --rate 1k", 2),
    ] {
        for to in ["2>/dev/full", "2>&-"] {
            let output = shell(&format!("$T {words} {to} >/dev/null"));
            assert_eq!(output.status.code(), Some(code), "{words} {to}: {}", shown(&output));
        }
    }
}

#[test]
fn a_standard_output_that_is_full_is_a_failure_that_is_said() {
    let output = shell(&format!("$T diagnose {} >/dev/full", golden()));
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("cannot write to standard output") && said.contains("No space left"), "{said}");
}

/// `2>&1 | head -1` ended the recording with a panic, and the run stayed `recording`.
#[test]
fn a_recording_whose_outputs_are_closed_or_full_is_finished() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, to, code) in [
        ("head", "2>&1 | head -1; exit ${PIPESTATUS[0]}", 0),
        ("full-stderr", "2>/dev/full >/dev/null", 0),
        ("closed", "2>&- >&-", 0),
        ("full-stdout", ">/dev/full", 1),
    ] {
        let out = dir.path().join(name).display().to_string();
        let output = shell(&format!("$T record -d 300ms -o {out} -- sleep 30 {to}"));
        assert_eq!(output.status.code(), Some(code), "{name}: {}", shown(&output));
        let opened = tailsight_trace::Run::open(Path::new(&out)).expect("a run");
        assert_eq!(opened.meta.state, tailsight_trace::meta::State::Complete, "{name}");
        assert!(opened.partial.is_empty(), "{name}: {:?}", opened.partial);
    }
}

/// Characters that a terminal acts on.
fn hostile(output: &Output) -> Vec<char> {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    text.chars().filter(|c| tailsight_units::untrusted::hostile(*c) && *c != '\n').collect()
}

/// `target: …` of `record`, `no message of …` and `note: …` printed names and warnings as they came.
#[test]
fn no_text_of_a_run_reaches_the_terminal_with_an_escape() {
    let nasty = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}y";
    let dir = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(golden()).arg(dir.path().join("run")).status().unwrap();
    assert!(copied.success());
    let file = dir.path().join("run/run.json");
    let mut meta: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    // Every text that is not one of the format's own words.
    meta["target"]["app"] = nasty.into();
    meta["target"]["selector"] = nasty.into();
    meta["warnings"] = serde_json::json!([nasty]);
    meta["state"] = "partial".into();
    meta["partial"] = nasty.into();
    meta["devices"] = serde_json::json!([{ "name": nasty, "ifindex": 2, "here": true, "packets": 9 }]);
    meta["host"]["kernel"] = nasty.into();
    for field in ["symbols", "stacks", "drop_reasons"] {
        if let Some(texts) = meta.get_mut(field).and_then(|texts| texts.as_array_mut()) {
            texts.iter_mut().for_each(|text| *text = nasty.into());
        }
    }
    std::fs::write(&file, meta.to_string()).unwrap();
    let run_of = dir.path().join("run").display().to_string();
    let page = dir.path().join("page.html").display().to_string();
    let tables = dir.path().join(format!("t{nasty}")).display().to_string();
    for words in [
        &["diagnose", &run_of][..],
        &["diagnose", &run_of, "--more"],
        &["diagnose", &run_of, "--json"],
        &["diagnose", &run_of, "--focus", "p99..p100"],
        &["show", &run_of, "1"],
        &["show", &run_of, "1", "--json"],
        &["fix", &run_of],
        &["ideal", &run_of],
        &["report", &run_of, "-o", &page],
        &["export", &run_of, "-o", &tables],
        &["diagnose", &format!("/no/such/{nasty}")],
    ] {
        let output = run(words);
        assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{words:?}");
        assert_eq!(hostile(&output), [] as [char; 0], "{words:?}: {:?}", shown(&output));
    }
    std::fs::remove_dir_all(dir.path().join("run/events")).unwrap();
    std::fs::create_dir(dir.path().join("run/events")).unwrap();
    let output = run(&["diagnose", &run_of]);
    assert!(shown(&output).contains("no message of x?[2J"), "{}", shown(&output));
    assert_eq!(hostile(&output), [] as [char; 0]);
}

/// The name of a process that is being recorded.
#[test]
fn a_target_named_by_a_stranger_is_recorded_and_its_name_is_clean() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let name = std::os::unix::ffi::OsStrExt::from_bytes(b"a\x1b[2J\xe3\x82\n\xff");
    let program = dir.path().join::<&std::ffi::OsStr>(name);
    tailsight_testing::copy_program("/bin/sleep", &program);
    let mut child = Command::new(&program).arg("30").spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let out = dir.path().join("run").display().to_string();
    let by_id = run(&["record", "-d", "200ms", "-o", &out, "-p", &child.id().to_string()]);
    let by_name = run(&["record", "-d", "200ms", "-o", &out, "--comm", r"a\x1b[2J\xe3\x82\x0a\xff"]);
    let (killed, waited) = (child.kill(), child.wait());
    assert!(killed.is_ok() && waited.is_ok());
    for output in [by_id, by_name] {
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        assert!(shown(&output).contains(r"target: a\x1b[2J\xe3\x82\x0a\xff (pid"), "{}", shown(&output));
        assert_eq!(hostile(&output), [] as [char; 0]);
    }
}

/// Blocks where the terminal has Unicode, none with `--ascii`, and no line of it is wider than 60 columns.
#[test]
fn the_distribution_is_drawn_in_unicode_only_and_fits() {
    for columns in ["60", "100", "140"] {
        let said = shell(&format!("COLUMNS={columns} $T diagnose {}", golden()));
        let text = String::from_utf8(said.stdout).expect("UTF-8");
        let (_, after) = text.split_once("Distribution of the latencies, log axes:\n").expect("a distribution");
        let rows: Vec<&str> = after.lines().take(5).collect();
        for (row, leg) in rows.iter().zip(["receive", "service", "transmit", "total"]) {
            assert!(row.trim_start().starts_with(leg) && row.contains('█'), "{row}");
        }
        assert!(rows[4].ends_with("ms"), "the axis ends at the slowest: {rows:?}");
        let most: usize = columns.parse().expect("a number");
        assert!(rows.iter().all(|row| row.chars().count() <= most), "{columns}: {rows:?}");
    }
    let said = shell(&format!("$T --ascii diagnose {}", golden()));
    assert!(said.stdout.is_ascii() && !said.stdout.is_empty());
    assert!(!String::from_utf8_lossy(&said.stdout).contains("Distribution of the latencies"));
}

/// Every command that writes a file into a folder of the user's choice, with the file's name there.
fn writers(run_of: &str, into: &str) -> Vec<(Vec<String>, &'static str)> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    let export = |format: &str| words(format!("export {run_of} --format {format} -o {into} --focus p90..p100"));
    vec![
        (export("csv"), "causes.csv"),
        (export("otlp"), "traces.jsonl"),
        (export("perfetto"), "trace.pftrace"),
        (export("parquet"), "messages.parquet"),
        (words(format!("report {run_of} -o {into}/page.html --focus p90..p100")), "page.html"),
        (words(format!("man -o {into}")), "tailsight-load.1"),
        (words(format!("ideal {run_of} --percentile p50 --plot {into}/drawing.svg")), "drawing.svg"),
    ]
}

/// `export` as root overwrote what another user's link in the folder led to.
#[test]
fn no_output_file_is_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (precious, into) = (dir.path().join("precious"), dir.path().join("into"));
    std::fs::create_dir(&into).unwrap();
    std::fs::write(&precious, "mine").unwrap();
    for (words, file) in writers(&golden(), &into.display().to_string()) {
        let place = into.join(file);
        std::os::unix::fs::symlink(&precious, &place).unwrap();
        let output = run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", shown(&output));
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine", "{words:?}");
        assert!(std::fs::symlink_metadata(&place).unwrap().is_file(), "{words:?}");
    }
    let left: Vec<_> = std::fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

/// A disk that filled up left half a file in the place of the whole one of before.
#[test]
fn a_full_disk_leaves_the_output_file_of_before() {
    let lacking = ["unshare", "mount"].into_iter().find_map(tailsight_testing::lacks_program);
    if let Some(reason) = tailsight_testing::lacks_root().or(lacking) {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().display().to_string();
    for (words, file) in writers(&golden(), &into) {
        // The mount is seen, and lives, only in there; it has room for the file of before and for little more.
        let script = format!(
            "mount -t tmpfs -o size=8k tmpfs {into} && echo before > {into}/{file} && \
             head -c 4000 /dev/zero > {into}/filled; \"$T\" {}; code=$?; ls -A {into} >&2; cat {into}/{file} && exit $code",
            words.join(" ")
        );
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let output = shell.env("T", env!("CARGO_BIN_EXE_tailsight")).env("NO_COLOR", "1").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", shown(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("No space left") && !said.contains(".tmp\n"), "{words:?}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "before\n", "{words:?}");
    }
}
