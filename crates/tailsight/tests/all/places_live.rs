//! Live recordings of where in a program time was spent: stock PostgreSQL, whose backends are forked while it is recorded, and a program
//! that computes in a library.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tailsight_testbed::process::spawn_tied;
use tailsight_testbed::server::{PostgresOpts, Server, postgres_installed};

use crate::functions_live::{PORT, changed, first_function, recorded};
use crate::support::{Live, begun, check_run, json, run, shown};

/// Holds the row for 30 ms, and waits for the other sessions that want it.
const HOLDS: &str = "BEGIN;\nUPDATE t SET v = v + 1 WHERE id = 1;\nSELECT pg_sleep(0.03);\nCOMMIT;\n";
/// First a sleep of 1 ms, so that each session sleeps there before it waits for the row.
const WAITS: &str = "SELECT pg_sleep(0.001);\nUPDATE t SET v = v + 1 WHERE id = 1;\n";

/// Debian has it beside the server, outside of PATH.
fn pgbench() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin/pgbench")).find(|program| program.is_file())
}

/// Sessions that begin while PostgreSQL is recorded sleep at two places, of which the lock of a row takes tens of times as long: of 166 slow
/// messages 115 waited for a row, and `pg_sleep` was named for 99.7 %.
#[test]
fn a_row_lock_in_a_new_session_is_not_the_sleep_before_it() {
    let test = "a_row_lock_in_a_new_session_is_not_the_sleep_before_it";
    if let Err(missing) = postgres_installed() {
        return tailsight_testing::skip_as(test, tailsight_units::chain(&missing));
    }
    let Some(pgbench) = pgbench() else {
        return tailsight_testing::skip_as(test, "pgbench is not installed beside PostgreSQL".to_owned());
    };
    let Some(live) = Live::new(test) else { return };
    let setup = "CREATE TABLE t (id int PRIMARY KEY, v int);\nINSERT INTO t VALUES (1, 0);\n";
    let opts = PostgresOpts { port: PORT, settings: &["fsync=off"], setup, ..PostgresOpts::default() };
    let server = Server::postgres(&live.pair.server, opts).expect("PostgreSQL starts");
    let sessions = |script: &str, text: &str, clients: &str, ends: [&str; 2]| {
        let file = live.path(script);
        std::fs::write(&file, text).expect("a script");
        let mut command = live.pair.client.command(&pgbench);
        command.args(["-n", "-h", "10.77.0.1", "-p", &PORT.to_string(), "-U", "postgres", "-c", clients, "-f", &file]);
        command.args(ends).arg("postgres").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        spawn_tied(command, None, Signal::SIGKILL).expect("pgbench starts")
    };
    let (out, pid) = (live.path("run"), server.pid().to_string());
    // As many messages as the verdict needs, on a machine that other programs keep busy too: there they take longer.
    let mut recorder = begun(&["record", "-d", "60s", "-p", &pid, "-o", &out], &out);
    let mut waits = sessions("waits.sql", WAITS, "8", ["-t", "60"]);
    let mut holds = sessions("holds.sql", HOLDS, "2", ["-T", "60"]);
    waits.wait().expect("pgbench ends");
    kill(Pid::from_raw(recorder.id().cast_signed()), Signal::SIGINT).expect("the recorder gets a signal");
    let status = recorder.wait().expect("the recorder ends");
    kill(Pid::from_raw(holds.id().cast_signed()), Signal::SIGKILL).expect("pgbench gets a signal");
    holds.wait().expect("pgbench ends");
    assert_eq!(status.code(), Some(0));
    check_run(Path::new(&out));
    let output = run(&["diagnose", &out, "--leg", "service", "--focus", "p90..p100", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    // Whatever else ran on the machine: of the time asleep most is the row's.
    let slept = |c: &&serde_json::Value| {
        c["functions"].as_array().is_some_and(|functions| functions.iter().any(|f| f["waits"] == true))
    };
    let first = d["causes"].as_array().unwrap().iter().find(slept).unwrap_or_else(|| panic!("no sleep: {d:#}"));
    assert_eq!(first["category"], "lock-wait", "{first:#}");
    let does = "waiting for a row or another heavyweight lock";
    assert!(first["name"].as_str().unwrap().contains(does), "{first:#}");
    let of_sleep = |f: &&serde_json::Value| f["name"] == "pg_sleep";
    assert!(!first["functions"].as_array().unwrap().iter().any(|f| of_sleep(&f)), "{first:#}");
    assert!(d["coverage"]["overall"].as_f64().unwrap() > 0.9, "the new sessions are followed: {:#}", d["coverage"]);
}

/// One of 33 requests computes in a library that is not the C library: the program's function is named, with the library's beside it.
#[test]
fn the_program_s_own_function_is_named_and_not_the_library_s() {
    let test = "the_program_s_own_function_is_named_and_not_the_library_s";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let (source, library) = (live.path("digest.c"), live.path("libdigest.so"));
    let text = "static unsigned long round_of(unsigned long x) { for (int i = 0; i < 400000; i++) { x = x * 6364136223846793005UL + i;\n\
                __asm__ volatile(\"\" : \"+r\"(x)); } return x; }\nunsigned long library_digest(unsigned long x) { return round_of(x) + 1; }\n";
    std::fs::write(&source, text).unwrap();
    let built =
        Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o", &library, &source]).status().expect("cc starts");
    assert!(built.success());
    let lines = [
        ("#include <poll.h>", "#include <poll.h>\nunsigned long library_digest(unsigned long);"),
        ("rebuild_index(void) { spin(400000); }", "rebuild_index(void) { sink = library_digest(sink); sink++; }"),
    ];
    let folder = live.dir.path().to_string_lossy().into_owned();
    let (find, run_path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let program =
        changed(&live, &lines, &["-O2", &find, &run_path, "-Wl,--no-as-needed", "-ldigest"]).expect("it compiles");
    let Some((_, d, text)) = recorded(&live, test, &[&program], 1_500.0, &["--sample", "1997"]) else { return };
    let first = first_function(&d);
    assert_eq!((&first["name"], &first["inside"]), (&"rebuild_index".into(), &"library_digest".into()), "{d:#}");
    let hot = text.split("Hot path").nth(1).unwrap_or_else(|| panic!("{text}"));
    assert!(hot.contains("rebuild_index"), "{text}");
    assert!(!text.contains("never ran"), "{text}");
}
