//! A profile of Firefox's: each sample is on its thread with its stack, each message a marker of the thread that served it.

use serde_json::Value;
use tailsight_report::export::firefox;
use tailsight_report::html::Input;
use tailsight_trace::samples::{FrameRow, SampleRow, Samples};

use super::synthetic::{self, HOSTILE};

#[test]
fn a_profile_of_firefox_has_every_sample_and_the_messages() {
    let run = synthetic::run(2_000);
    let (id, path) = &run.paths[0];
    let frame = |function: &str, kernel| FrameRow { function: function.into(), kernel, ..FrameRow::default() };
    let row = |ts_ns, stack| SampleRow { ts_ns, cpu: 1, tid: 4243, tgid: 4242, stack, ..SampleRow::default() };
    let samples = Samples {
        rows: vec![row(path[0].from_ns + 20, 1), row(path[0].from_ns + 10, 0), row(path[0].from_ns + 30, 0)],
        stacks: vec![vec![1, 0], vec![2, 1, 0]],
        frames: vec![frame("main", false), frame(HOSTILE, false), frame("tcp_sendmsg", true)],
    };
    let json = run.with_input(|input| firefox::profile(&Input { samples: Some(&samples), ..*input }));
    let profile: Value = serde_json::from_slice(&json).expect("JSON");
    let threads = profile["threads"].as_array().expect("threads");
    assert_eq!(threads.len(), 1);
    let thread = &threads[0];
    assert_eq!((&thread["samples"]["length"], &thread["markers"]["length"]), (&3.into(), &run.paths.len().into()));
    let text = String::from_utf8(json).expect("UTF-8");
    for name in ["main", "tcp_sendmsg", HOSTILE] {
        let quoted = serde_json::to_string(name).expect("text");
        assert!(text.contains(&quoted), "{name}");
    }
    let latency = run.lifetimes.messages[*id as usize].latency(run.diagnosis.leg).expect("complete");
    let marked: Vec<f64> =
        thread["markers"]["data"].as_array().expect("markers").iter().filter_map(|m| m["latency"].as_f64()).collect();
    assert!(marked.contains(&(latency as f64)), "{marked:?}");
    assert!(text.contains(&format!("message {id}, ")), "the slowest message is named");
}
