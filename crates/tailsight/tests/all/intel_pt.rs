//! From trace to cause: the recording of a whole emulated machine, with the run that `tailsight record` made in it meanwhile.
//!
//! `vm-queue` of tailsight-pt's fixtures is made by `scripts/pt-vm.sh --fault queue`: eight packets of another program wait before every
//! tenth request in the queue of the server's core. Control flow is real, time is assigned and not measured.

use std::path::Path;

use serde_json::Value;

use crate::support::{json, run, shown};
use unpack::unpack;

#[path = "../../../tailsight-pt/tests/fixtures/unpack.rs"]
mod unpack;

/// The causes whose name begins so, and what they take together, ns.
fn causes<'a>(diagnosis: &'a Value, category: &str, name: &str) -> (Vec<&'a Value>, i64) {
    let is_named_so = |c: &&Value| c["category"] == category && c["name"].as_str().is_some_and(|n| n.starts_with(name));
    let causes: Vec<&Value> = diagnosis["causes"].as_array().unwrap().iter().filter(is_named_so).collect();
    let sum = causes.iter().map(|c| c["deviation_ns"].as_i64().unwrap()).sum();
    (causes, sum)
}

/// Figure 9 of NSight: packets of another program are processed before the request's own, in calls of `ip_rcv` that other requests do not
/// have.
#[test]
fn packets_ahead_of_a_request_are_named_with_the_functions_that_they_take() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailsight-pt/tests/fixtures/vm-queue");
    unpack(&fixture, dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (recording, root, messages, joined) = (path("recording"), path("root"), path("run"), path("both"));
    let args = ["import", &recording, "--root", &root, "--with", &messages, "--all", "-o", &joined, "--json"];
    let imported = run(&args);
    assert!(imported.status.success(), "{}", shown(&imported));
    let imported = json(&imported);
    // 704,718 calls and returns ran, of which perf finds all (scripts/pt-vm.sh).
    assert_eq!(imported["calls"].as_u64().unwrap() + imported["returns"].as_u64().unwrap(), 704_718, "{imported:.400}");
    assert!(imported["events_outside"].as_u64().unwrap() < 1000, "{imported:.400}");

    let diagnosed = run(&["diagnose", &joined, "--focus", "p90..p100", "--reference", "p0..p50", "--json"]);
    assert!(diagnosed.status.success(), "{}", shown(&diagnosed));
    let diagnosis = json(&diagnosed);
    assert_eq!(diagnosis["messages"]["complete"], 210, "{}", diagnosis["messages"]);
    let (of_others, took) = causes(&diagnosis, "receive-processing", "packet:9999");
    let more = diagnosis["focus"]["mean_ns"].as_i64().unwrap() - diagnosis["reference"]["mean_ns"].as_i64().unwrap();
    assert!(took * 10 > more * 7, "{took} of {more} ns: {}", diagnosis["causes"]);
    assert_eq!(diagnosis["causes"][0]["name"], of_others[0]["name"], "the first cause");
    let calls = of_others.iter().find(|c| c["name"].as_str().unwrap().contains("/function:ip_rcv/"));
    let calls = calls.expect("a cause in ip_rcv");
    assert_eq!(calls["how"], "unexpected", "{calls}");
    let (focus, reference) = (calls["times"][0].as_f64().unwrap(), calls["times"][1].as_f64().unwrap());
    // Eight packets before each of 20 of the 21.
    assert!((7.0..=8.0).contains(&focus) && reference == 0.0, "{calls}");

    // The functions of a request itself, kernel and program.
    let message = run(&["show", &joined, "100", "--json"]);
    assert!(message.status.success(), "{}", shown(&message));
    let text = String::from_utf8_lossy(&message.stdout).into_owned();
    for function in ["tcp_sendmsg_locked", "__schedule", "ip_rcv", "event_base_loop"] {
        assert!(text.contains(function), "{function}: {text:.2000}");
    }
}
