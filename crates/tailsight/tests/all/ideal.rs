//! `ideal`: models, runs beside their ideal, calibrations. None needs rights; live recordings are in `live`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{json, run, shown, stderr};

/// A golden run by its name.
fn golden(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tailsight-lifetime/tests/golden").join(name);
    folder.display().to_string()
}

#[track_caller]
fn fails(args: &[&str], code: i32, words: &[&str]) {
    let output = run(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", shown(&output));
    for word in words {
        assert!(stderr(&output).contains(word), "{args:?} must say {word:?}: {}", shown(&output));
    }
}

#[test]
fn a_model_gives_percentiles_beside_its_closed_form() {
    let output = run(&["ideal", "--model", "M/M/1 50%", "--requests", "1M", "--service", "50us", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let said = json(&output);
    // The sojourn time is exponential with mean 100 us.
    for (key, us) in [("mean", 100.0), ("p50", 69.3), ("p99", 460.5)] {
        let simulated_us = said["latency_ns"][key].as_f64().unwrap() / 1e3;
        assert!((simulated_us / us - 1.0).abs() < 0.03, "{key}: {simulated_us}");
        assert!((said["exact"][key].as_f64().unwrap() * 50.0 / us - 1.0).abs() < 0.001, "{key}");
    }
    let again = run(&["ideal", "--model", "M/M/1 50%", "--requests", "1M", "--service", "50us", "--json"]);
    assert_eq!(output.stdout, again.stdout, "a seed gives the same numbers");
    let text = run(&["ideal", "--model", "M/D/2 50%", "--requests", "100k"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("M/D/2 50%, fifo: 100,000 requests") && text.contains("p99.99"), "{text}");
}

#[test]
fn what_is_no_queue_is_wrong_usage() {
    fails(&["ideal"], 2, &["Usage: tailsight ideal", "RUN"]);
    fails(&["ideal", "--model", "M/D/4"], 2, &["ARRIVALS/SERVICE/WORKERS UTILISATION"]);
    fails(&["ideal", "--model", "M/D/4 100%"], 2, &["unstable"]);
    fails(&["ideal", "--model", "M/D/4 130%"], 2, &["unstable"]);
    fails(&["ideal", "--model", "mmpp:8,0.1,10ms/D/1 50%"], 2, &["--service"]);
    fails(&["ideal", "--model", "recorded/D/1 50%"], 2, &["--arrivals"]);
    fails(&["ideal", "run", "--model", "M/D/1 50%"], 2, &["cannot be used with"]);
    fails(&["ideal", "run", "--discipline", "lifo"], 2, &["--model"]);
    fails(&["load", "redis://localhost", "--utilisation", "100%", "--calibration", "f"], 2, &["unstable"]);
}

#[test]
fn a_series_that_is_empty_or_unsorted_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let model = ["ideal", "--model", "recorded/D/1 50%", "--arrivals"];
    fails(&[&model[..], &[&file("empty", "")]].concat(), 2, &["no times"]);
    fails(&[&model[..], &[&file("unsorted", "1\n2\n1.5\n")]].concat(), 2, &["sort"]);
    fails(&[&model[..], &[&file("instant", "1\n1\n")]].concat(), 2, &["the same time"]);
    let times: String = (0..1000).map(|i| format!("{}\n", f64::from(i / 2) * 0.001)).collect();
    let output = run(&[&model[..], &[&file("pairs", &times), "--json", "--percentile", "p90"]].concat());
    assert_eq!(json(&output)["in_service_times"]["p90"], 2.0, "{}", shown(&output));
}

/// The arrivals of a run in a queue of one's own choice.
#[test]
fn a_run_is_a_series_of_arrivals() {
    let answer_of = |model: &str| {
        let run_dir = golden("memcached-requests");
        json(&run(&[
            "ideal",
            "--model",
            model,
            "--arrivals",
            &run_dir,
            "--service",
            "1us",
            "--json",
            "--percentile",
            "p50",
        ]))
    };
    let [one_worker, two_workers] =
        ["recorded/D/1 80%", "recorded/D/2 80%"].map(|model| answer_of(model)["in_service_times"]["p50"].clone());
    assert!(
        one_worker.as_f64() > two_workers.as_f64() && two_workers.as_f64() >= Some(1.0),
        "{one_worker} {two_workers}"
    );
}

#[test]
fn fewer_requests_than_a_percentile_needs_are_not_available() {
    let output = run(&["ideal", "--model", "M/D/1 50%", "--requests", "1000", "--percentile", "p50,p99.9"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("p99.9: N/A, it needs 3688 requests"),
        "{}",
        shown(&output)
    );
}

#[test]
fn a_run_is_compared_with_the_ideal_of_its_arrivals() {
    let output = run(&["ideal", &golden("memcached-requests"), "--json", "--percentile", "p50,p90"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let said = json(&output);
    assert_eq!((said["schema"].as_u64(), said["app"].as_str()), (Some(1), Some("memcached")));
    let model = &said["model"];
    assert_eq!(model["service_from"], "run");
    let parts: u64 = ["user_ns", "kernel_ns", "receive_ns"].iter().map(|k| model[k].as_u64().unwrap()).sum();
    let (service, apart) = (model["service_ns"].as_u64().unwrap(), model["apart_ns"].as_u64().unwrap());
    assert_eq!(parts, service + apart, "{model}");
    assert!((500..1_000_000).contains(&service), "{model}");
    let (ideal, measured) = (&said["ideal_ns"]["p50"], &said["measured_ns"]["p50"]);
    assert!(ideal.as_u64() >= Some(service) && measured.as_u64() > ideal.as_u64(), "{said}");
    assert!(said["ccdf"]["measured"].as_array().is_some_and(|c| c.len() > 10), "{said}");
    // The same in the diagnosis.
    let d = json(&run(&["diagnose", &golden("memcached-requests"), "--json", "--more"]));
    assert_eq!(d["ideal_ns"]["p50"], said["ideal_ns"]["p50"], "{}", d["ideal_ns"]);
    let focus = &d["ideal"]["focus"];
    let sum = focus["inherent_ns"].as_u64().unwrap() + focus["excess_ns"].as_u64().unwrap();
    assert_eq!((Some(sum), &focus["mean_ns"]), (focus["mean_ns"].as_u64(), &d["focus"]["mean_ns"]));
    // Served again with nothing taken out, the median is that which was measured. Without --more nothing is served again.
    let short = json(&run(&["diagnose", &golden("memcached-requests"), "--json"]));
    let [replayed, measured] =
        [&d["ideal"]["replayed_ns"]["p50"], &d["latency_ns"]["p50"]].map(|v| v.as_f64().unwrap());
    assert!((replayed / measured - 1.0).abs() < 0.1, "{replayed} for {measured}");
    assert_eq!(short["ideal"]["focus"], d["ideal"]["focus"]);
    assert_eq!(short["ideal"]["what_if"].as_array().map(Vec::len), Some(0));
    let first = d["ideal"]["what_if"][0].as_object().expect("a cause that can be taken out");
    let cause = d["causes"].as_array().unwrap().iter().find(|c| c["rank"] == first["rank"]).unwrap();
    assert!(cause["what_if"] == first["latency_ns"] && cause["name"] == first["name"], "{cause}");
    assert!(short["causes"].as_array().unwrap().iter().all(|c| c["what_if"].is_null()), "nothing is served again");
    // Every cause has its part of the excess, whether it is served again without it or not.
    for cause in short["causes"].as_array().unwrap() {
        let part = cause["deviation_ns"].as_f64().unwrap() / focus["excess_ns"].as_f64().unwrap();
        assert!((cause["of_excess"].as_f64().unwrap() - part).abs() < 1e-9, "{cause}");
    }
    let stages: Vec<&str> = d["stages"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(stages, ["stack", "wake-up", "copy", "application", "transmit"]);
    let text = run(&["diagnose", &golden("memcached-requests"), "--more"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("T2-T3 wake-up"), "{}", shown(&text));
    // 240 messages carry no p99.
    fails(&["ideal", &golden("memcached-requests"), "--percentile", "p99"], 3, &[]);
    // With a service time that cannot be.
    fails(&["ideal", &golden("memcached-requests"), "--service", "1s"], 2, &["unstable"]);
}

#[test]
fn a_cause_is_peeled_off_by_name() {
    let run_dir = golden("memcached-requests");
    let whole = json(&run(&["diagnose", &run_dir, "--json", "--more"]));
    let first = &whole["ideal"]["what_if"][0];
    assert!(first.is_object(), "a cause that can be taken out: {}", whole["ideal"]);
    let name = format!("{}:{}", first["category"].as_str().unwrap(), first["name"].as_str().unwrap());
    let output = run(&["diagnose", &run_dir, "--json", "--without", &name]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let peeled = json(&output);
    let without = &peeled["without"];
    assert_eq!(without["causes"][0]["name"], first["name"], "{without}");
    assert_eq!(without["measured_ns"], whole["latency_ns"]);
    assert_eq!(without["latency_ns"]["p50"], first["latency_ns"]["p50"]);
    assert_eq!(peeled["latency_ns"]["p50"], without["latency_ns"]["p50"], "what is ranked is what is predicted");
    let sum: f64 = peeled["causes"].as_array().unwrap().iter().map(|c| c["share"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    let share = |d: &serde_json::Value| {
        let causes = d["causes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| c["category"] == first["category"] && c["name"] == first["name"]);
        causes.map(|c| c["deviation_ns"].as_i64().unwrap()).sum::<i64>()
    };
    assert!(share(&peeled).abs() < share(&whole), "{} of {}", share(&peeled), share(&whole));
    let text = run(&["diagnose", &run_dir, "--without", &name]);
    assert!(String::from_utf8_lossy(&text.stdout).starts_with("Without "), "{}", shown(&text));
    fails(
        &["diagnose", &run_dir, "--without", "interference:nobody-of-that-name"],
        3,
        &["no cause interference:nobody"],
    );
    fails(&["diagnose", &run_dir, "--without", "hol-blocking"], 3, &["can be subtracted"]);
    fails(&["diagnose", &run_dir, "--without", "nonsense"], 2, &["nonsense", "interference"]);
    fails(&["diagnose", &run_dir, "--without", "steal", "--against", &run_dir], 2, &["cannot be used with"]);
}

#[test]
fn an_objective_gives_loads_and_cores() {
    let run_dir = golden("memcached-requests");
    let said = json(&run(&["ideal", &run_dir, "--json", "--slo", "p50:1s", "--percentile", "p50"]));
    let c = &said["capacity"];
    let value_of = |key: &str| c[key].as_f64().unwrap_or_else(|| panic!("{key}: {c}"));
    assert_eq!(c["objective"]["at_most_ns"], 1_000_000_000);
    // A second is kept up to the worker's saturation.
    assert!((value_of("ideal_per_s") / value_of("saturated_per_s") - 0.999).abs() < 0.01, "{c}");
    assert!(value_of("packet_ns") > 100.0 && value_of("request_ns") > 100.0 && value_of("request_cores") < 1.0, "{c}");
    assert_eq!(c["measured_ns"], said["measured_ns"]["p50"]);
    let none = json(&run(&["ideal", &run_dir, "--json", "--slo", "p50:10ns", "--percentile", "p50"]));
    assert!(none["capacity"]["ideal_per_s"].is_null() && none["capacity"]["replayed_per_s"].is_null(), "{none}");
    let text = run(&["ideal", &run_dir, "--slo", "p90:1ms", "--percentile", "p90"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("Capacity: an ideal server keeps p90 within 1.00 ms up to") && text.contains("Cores: "),
        "{text}"
    );
    // 240 messages carry no p99.9.
    fails(&["ideal", &run_dir, "--slo", "p99.9:1ms"], 3, &["p99.9 needs 3688 messages"]);
    fails(&["ideal", &run_dir, "--slo", "fast"], 2, &["\"fast\" is not a latency objective", "p99<1ms"]);
    fails(&["ideal", "--model", "M/D/1 50%", "--slo", "p99:1ms"], 2, &["cannot be used with"]);
    fails(&["ideal", "--slo", "p99:1ms"], 2, &["RUN"]);
}

#[test]
fn a_message_says_what_an_ideal_server_would_have_taken() {
    let run_dir = golden("memcached-requests");
    let service_ns = json(&run(&["ideal", &run_dir, "--json", "--percentile", "p50"]))["model"]["service_ns"].as_u64();
    let message = json(&run(&["show", &run_dir, "120", "--json"]));
    let ideal_ns = message["ideal_ns"].as_u64();
    assert!(ideal_ns.is_some() && ideal_ns >= service_ns, "{message}");
    let text = run(&["show", &run_dir, "120"]);
    assert!(
        String::from_utf8_lossy(&text.stdout).contains("an ideal server would also have taken "),
        "{}",
        shown(&text)
    );
    // It is of the whole time in the server.
    let received = json(&run(&["show", &run_dir, "120", "--json", "--leg", "receive"]));
    assert!(received["latency_ns"].is_u64() && received["ideal_ns"].is_null(), "{received}");
}

#[test]
fn a_diagnosis_has_the_capacity_that_ideal_has() {
    let run_dir = golden("memcached-requests");
    let slo = ["--slo", "p90:1ms"];
    let said = json(&run(&[&["diagnose", &run_dir, "--focus", "p70..p100", "--json"], &slo[..]].concat()));
    let ideal = json(&run(&[&["ideal", &run_dir, "--json", "--percentile", "p90"], &slo[..]].concat()));
    assert!(ideal["capacity"].is_object() && said["ideal"]["capacity"] == ideal["capacity"], "{said}");
    let text = run(&[&["diagnose", &run_dir, "--focus", "p70..p100"], &slo[..]].concat());
    let text = String::from_utf8_lossy(&text.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("Capacity: an ideal server keeps p90 within 1.00 ms up to") && text.contains("Cores: "),
        "{text}"
    );
    let diagnose = |more: &[&'static str]| [&["diagnose", run_dir.as_str(), "--focus", "p70..p100"], more].concat();
    fails(&diagnose(&["--slo", "p99.9:1ms"]), 3, &["p99.9 needs 3688 messages"]);
    // Beside a gate, too: it was not said there, and the exit code was that of success.
    fails(&diagnose(&["--slo", "p99.9:1ms", "--fail-above", "1s"]), 3, &["p99.9 needs 3688 messages"]);
    fails(&diagnose(&["--slo", "p99.9:1ms", "--fail-above", "1ns"]), 4, &["p99.9 needs 3688 messages"]);
    fails(&diagnose(&["--slo", "p90:1ms", "--leg", "receive"]), 2, &["total leg", "Usage: tailsight diagnose"]);
    fails(&diagnose(&["--slo", "fast"]), 2, &["\"fast\" is not a latency objective"]);
}

#[test]
fn measured_against_ideal_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ideal.svg").display().to_string();
    let output = run(&["ideal", &golden("memcached-requests"), "--percentile", "p50", "--plot", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg") && svg.matches("<polyline").count() >= 2, "{}", &svg[..200]);
    assert!(svg.contains("measured") && svg.contains("share of the messages above it"));
    fails(
        &["ideal", &golden("memcached-requests"), "--percentile", "p50", "--plot", "/nowhere/x.svg"],
        1,
        &["cannot write"],
    );
}

#[test]
fn service_times_come_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let model = ["ideal", "--model", "M/empirical/1 50%", "--requests", "2M", "--service-times"];
    // Unsorted, and as likely as they are often: one in ten takes ten times as long.
    let times = file(
        "costs",
        "0.000010\n0.000100\n# x\n0.000010\n0.000010\n0.000010\n0.000010\n0.000010\n0.000010\n0.000010\n0.000010\n",
    );
    let said = json(&run(&[&model[..], &[&times, "--json"]].concat()));
    assert_eq!((said["model"].as_str(), said["service_ns"].as_f64()), (Some("M/empirical/1 50%"), Some(19_000.0)));
    let mean = |key: &str| said[key]["mean"].as_f64().unwrap();
    // Pollaczek and Khinchine: 1 + 0.5 / 0.5 x second moment / 2 = 1 + 10.9 / 3.61 / 2.
    assert!((mean("exact") - (1.0 + 10.9 / 3.61 / 2.0)).abs() < 1e-6, "{said}");
    assert!((mean("in_service_times") / mean("exact") - 1.0).abs() < 0.03, "{said}");
    fails(&[&model[..], &[&file("none", "")]].concat(), 2, &["no times"]);
    fails(&[&model[..], &[&file("below", "0.1\n-0.1\n")]].concat(), 2, &["is not a duration"]);
    fails(&[&model[..], &[&file("zero", "0\n0\n")]].concat(), 2, &["no service times"]);
    fails(&model[..5], 2, &["--service-times"]);
    fails(&["ideal", "--model", "M/D/1 50%", "--service-times", &times], 2, &["M/empirical/4"]);
}

#[test]
fn a_calibration_is_read_or_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peak.json").display().to_string();
    fails(
        &["ideal", &golden("memcached-tcp"), "--calibration", &path],
        1,
        &["cannot read the calibration", "peak.json"],
    );
    std::fs::write(&path, "{}").unwrap();
    fails(
        &["ideal", &golden("memcached-tcp"), "--calibration", &path],
        1,
        &["is not a calibration", "--calibrate TARGET"],
    );
}

/// An HTTP server of a thread a connection that sleeps 2 ms for each request, all of them one after the other if it is `one`.
fn sleeper(is_serial: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let turn = Arc::new(Mutex::new(()));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(mut stream), turn) = (stream, turn.clone()) else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    // Several requests may have come together.
                    let requests = buffer[..n].windows(4).filter(|w| w == b"\r\n\r\n").count();
                    for _ in 0..requests {
                        let held = is_serial.then(|| turn.lock());
                        std::thread::sleep(Duration::from_millis(2));
                        drop(held);
                        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    url
}

/// A calibration, tried three times; `None`, said, on a machine that is too busy.
fn calibrated(args: &[&str]) -> Option<serde_json::Value> {
    for _ in 0..3 {
        let output = run(args);
        if output.status.code() != Some(3) {
            assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
            return Some(json(&output));
        }
        println!("{}", stderr(&output));
    }
    tailsight_testing::skip("the machine is too busy: three calibrations were not steady");
    None
}

#[test]
fn a_calibration_finds_the_peak_of_a_server_that_serves_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peak.json").display().to_string();
    let url = sleeper(true);
    let args = ["ideal", "--calibrate", &url, "--window", "300ms", "-o", &path, "--json"];
    let Some(said) = calibrated(&args) else { return };
    // 2 ms and what the timer and the wake-up add.
    let service = said["service_ns"].as_u64().unwrap();
    assert!((2_000_000..4_000_000).contains(&service), "{said}");
    assert!(
        said["service_ci95_ns"][0].as_u64() <= Some(service) && said["service_ci95_ns"][1].as_u64() >= Some(service)
    );
    // The rate of a load at half of it; the verdict does not matter here.
    let load =
        ["load", &url, "--utilisation", "50%", "--calibration", &path, "--max-time", "2s", "--json", "--no-preload"];
    let report = json(&run(&load));
    let asked = report["rate"]["asked"].as_f64().unwrap();
    assert!((asked / (0.5 * said["peak_per_s"].as_f64().unwrap()) - 1.0).abs() < 1e-6, "{}", report["rate"]);
    // Of another protocol: refused.
    let other = ["load", "redis://127.0.0.1:1", "--utilisation", "50%", "--calibration", &path];
    fails(&other, 2, &["the calibration is of http"]);
}

/// Datagrams, of which one is answered at a time, each after 2 ms; its socket takes those that it has no time for, until it is full.
fn sleeper_of_datagrams(takes: Duration) -> String {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut datagram = [0; 65_536];
        while let Ok((n, from)) = socket.recv_from(&mut datagram) {
            std::thread::sleep(takes);
            let _ = socket.send_to(&datagram[..n], from);
        }
    });
    url
}

#[test]
fn a_calibration_finds_the_peak_of_a_server_of_datagrams() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peak.json").display().to_string();
    let url = sleeper_of_datagrams(Duration::from_millis(2));
    let args = ["ideal", "--calibrate", &url, "--protocol", "echo", "--window", "500ms", "-o", &path, "--json"];
    let Some(said) = calibrated(&args) else { return };
    let service = said["service_ns"].as_u64().unwrap();
    assert!((2_000_000..4_000_000).contains(&service), "{said}");
    let rates: Vec<[f64; 2]> = serde_json::from_value(said["rates"].clone()).unwrap();
    assert!(rates.len() > 4 && rates[0][0] == 100.0 && said["steps"].as_array().unwrap().is_empty(), "{said}");
    // It is between a rate that was answered and one that was not.
    let peak = said["peak_per_s"].as_f64().unwrap();
    assert!(rates.iter().any(|[asked, is]| *asked > peak && is < asked), "{said}");
    // What the last rate left in its socket is answered first: some hundred datagrams, 2 ms each.
    std::thread::sleep(Duration::from_secs(2));
    let text = run(&[
        "load",
        &url,
        "--protocol",
        "echo",
        "--utilisation",
        "50%",
        "--calibration",
        &path,
        "--max-time",
        "2s",
        "--json",
    ]);
    let asked = json(&text)["rate"]["asked"].as_f64().unwrap();
    assert!((asked / (0.5 * peak) - 1.0).abs() < 1e-6, "{}", shown(&text));
    // Nobody is there.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = format!("udp://{}", nobody.local_addr().unwrap());
    let output = run(&["ideal", "--calibrate", &silent, "--protocol", "echo", "--window", "100ms"]);
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", shown(&output));
    // Slower than the first rate.
    let slow = sleeper_of_datagrams(Duration::from_millis(50));
    let args = ["ideal", "--calibrate", &slow, "--protocol", "echo", "--window", "300ms"];
    fails(&args, 3, &["not even 100 requests/s are answered"]);
}

/// What the process of the next test runs: a server whose threads sleep. It ends by itself after two minutes.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn sleeping_server() {
    let Ok(said) = std::env::var("TAILSIGHT_TEST_SAID") else { return };
    std::fs::write(said, format!("{}\n", sleeper(false))).unwrap();
    std::thread::sleep(Duration::from_mins(2));
}

#[test]
fn a_server_that_idles_at_its_peak_was_never_saturated() {
    // Its connections limit the rate, not its workers. In a process of its own: the other tests of this one are not idle.
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("url");
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "ideal::sleeping_server", "--ignored", "--nocapture"]).env("TAILSIGHT_TEST_SAID", &said);
    let mut server = again.stdout(std::process::Stdio::null()).spawn().unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(30);
    let url = loop {
        match std::fs::read_to_string(&said) {
            Ok(text) if text.ends_with('\n') => break text.trim_end().to_owned(),
            _ if std::time::Instant::now() > until => panic!("the server does not start"),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let pid = server.id().to_string();
    let output = run(&["ideal", "--calibrate", &url, "--window", "200ms", "--pid", &pid]);
    server.kill().unwrap();
    server.wait().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    assert!(text.contains("never saturated") && text.contains("busy for"), "{text}");
    fails(&["ideal", "--calibrate", &url, "--pid", "4194303"], 1, &["no process has pid 4194303"]);
    fails(&["ideal", "--calibrate", "nonsense://host"], 2, &["nonsense", "Usage: tailsight ideal"]);
}
