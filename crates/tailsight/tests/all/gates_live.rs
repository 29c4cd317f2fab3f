//! The gates: `--against` an earlier run, `--slo`. Servers whose service times lie far apart, so that a busy machine changes
//! nothing about which one is slower.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::load_live::{adds_up, alone};
use crate::support::{run, shown};

/// An HTTP server that sleeps about this long before each answer, ms: evenly from half to one and a half times as long, so that
/// what a busy machine adds is small against what the server itself does. The sleep can be changed.
fn sleeper(ms: u64) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let pause = Arc::new(AtomicU64::new(ms));
    let shared = pause.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), pause) = (stream, shared.clone()) else { return };
            std::thread::spawn(move || {
                let (mut buffer, mut random) = ([0; 4096], u64::from(stream.peer_addr().map_or(1, |a| a.port())));
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                    // Knuth's generator (MMIX); its high bits are good enough here.
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let share = 0.5 + (random >> 40) as f64 / (1_u64 << 24) as f64;
                    std::thread::sleep(Duration::from_millis(pause.load(Ordering::Relaxed)).mul_f64(share));
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, pause)
}

/// A number where the machine allows one within three tries; each N/A says why.
fn number(args: &[&str]) -> Option<std::process::Output> {
    for _ in 0..3 {
        let output = run(args);
        if output.status.code() != Some(3) {
            return Some(output);
        }
        let report = adds_up(&output);
        println!("N/A: {}", report["verdict"]["reason"]);
    }
    tailsight_testing::skip("the machine is too busy for a number: three tries were N/A");
    None
}

/// The load: a half of what the slower server could do at most, many connections, and a client whose own lateness does not matter
/// beside 20 ms.
const LOAD: [&str; 14] = [
    "--rate",
    "400",
    "--connections",
    "64",
    "--json",
    "--ci",
    "p50:60%",
    "--max-time",
    "12s",
    "--latency",
    "service",
    "--arrivals",
    "exponential",
    "--no-preload",
];

#[test]
fn a_slower_server_is_worse_and_the_same_is_not() {
    let _cores = alone();
    let (url, pause) = sleeper(20);
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base.parquet").display().to_string();
    let load = ["load", &url];
    let Some(first) = number(&[&load[..], &LOAD, &["-o", &base]].concat()) else { return };
    assert_eq!(first.status.code(), Some(0), "{}", shown(&first));

    // The same server again: up to half as slow again is the machine's doing here, twice is not.
    let against = ["--against", &base, "--worse-by", "50%"];
    let Some(same) = number(&[&load[..], &LOAD, &against].concat()) else { return };
    assert_eq!(same.status.code(), Some(0), "{}", shown(&same));
    assert_eq!(adds_up(&same)["against"]["worse"], false, "{}", shown(&same));

    pause.store(80, Ordering::Relaxed);
    let Some(slower) = number(&[&load[..], &LOAD, &against].concat()) else { return };
    assert_eq!(slower.status.code(), Some(4), "{}", shown(&slower));
    let report = crate::support::json(&slower);
    assert_eq!(report["against"]["worse"], true, "{}", report["against"]);
    assert_eq!(report["verdict"]["verdict"], "number", "worse is a number, not N/A");
}

#[test]
fn an_objective_is_met_or_not() {
    let _cores = alone();
    let (url, _pause) = sleeper(20);
    let load = ["load", &url];
    let Some(met) = number(&[&load[..], &LOAD, &["--slo", "p50<500ms"]].concat()) else { return };
    assert_eq!(met.status.code(), Some(0), "{}", shown(&met));
    let Some(unmet) = number(&[&load[..], &LOAD, &["--slo", "p50<5ms"]].concat()) else { return };
    assert_eq!(unmet.status.code(), Some(4), "{}", shown(&unmet));
}
