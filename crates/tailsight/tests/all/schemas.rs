//! What `--json` prints is as `tailsight schema` says.
//!
//! The schemas allow fields that they do not name, since outputs may grow; here they do not, so that a field that is added to an output
//! without its schema is told.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::support::{element, json, run, shown};

/// The schema with every object closed: no field but those that it names.
fn closed(schema: &Value) -> Value {
    match schema {
        Value::Object(object) => {
            let mut out: Map<String, Value> = object.iter().map(|(key, value)| (key.clone(), closed(value))).collect();
            let open =
                !object.contains_key("additionalProperties") && object.get("properties").is_some_and(Value::is_object);
            if object.get("type") == Some(&Value::from("object")) && open {
                let word = if object.contains_key("allOf") { "unevaluatedProperties" } else { "additionalProperties" };
                out.insert(word.to_owned(), Value::Bool(false));
            }
            Value::Object(out)
        }
        Value::Array(items) => Value::Array(items.iter().map(closed).collect()),
        other => other.clone(),
    }
}

/// What is wrong with what a command printed.
fn wrong(command: &str, printed: &Value) -> Vec<String> {
    let schema = json(&run(&["schema", command]));
    let validator = jsonschema::draft202012::new(&closed(&schema)).expect("a schema");
    let text = |error: jsonschema::ValidationError| {
        let (place, what) = (error.instance_path.to_string(), error.to_string());
        format!("{place}: {what:.300}")
    };
    validator.iter_errors(printed).map(text).collect()
}

/// Holds what a command printed against its schema.
pub fn holds(command: &str, printed: &Value) {
    let violations = wrong(command, printed);
    assert!(violations.is_empty(), "{command} --json is not as its schema says: {violations:#?}");
}

fn golden(name: &str) -> String {
    format!("{}/../tailsight-lifetime/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

const GOLDEN: [&str; 6] =
    ["memcached-requests", "memcached-tcp", "memcached-udp", "nginx-2-workers", "redis-ipv6", "redis-requests"];

#[test]
fn the_json_of_golden_runs_is_as_the_schemas_say() {
    for name in GOLDEN {
        let run_dir = golden(name);
        for more in [&[][..], &["--more"], &["--leg", "receive"], &["--focus", "p50..p100"]] {
            holds("diagnose", &json(&run(&[&["diagnose", &run_dir, "--json"], more].concat())));
        }
        let diagnosis = json(&run(&["diagnose", &run_dir, "--json"]));
        for id in [0, diagnosis["slowest"][0]["id"].as_u64().expect("an id")] {
            holds("show", &json(&run(&["show", &run_dir, &id.to_string(), "--json"])));
        }
        holds("ideal", &json(&run(&["ideal", &run_dir, "--json"])));
        let fixes = run(&["fix", &run_dir, "--json"]);
        if !fixes.stdout.is_empty() {
            holds("fix", &json(&fixes));
        }
        // An older run lacks what came later, and has nothing else.
        let meta = std::fs::read(format!("{run_dir}/run.json")).expect("a run");
        let meta: Value = serde_json::from_slice(&meta).expect("JSON");
        let mut violations = wrong("record", &meta);
        violations.retain(|text| !text.ends_with("is a required property"));
        assert!(violations.is_empty(), "{name}: {violations:#?}");
    }
    let against = run(&["diagnose", &golden("memcached-requests"), "--against", &golden("memcached-tcp"), "--json"]);
    holds("diagnose", &json(&against));
    holds("ideal", &json(&run(&["ideal", "--model", "M/M/1 70%", "--json"])));
    holds("ideal", &json(&run(&["ideal", &golden("memcached-requests"), "--slo", "p50<50ms", "--json"])));
    holds("doctor", &json(&run(&["doctor", "--json"])));
    holds("fix", &json(&run(&["fix", "--status", "--json"])));
}

/// A schema that allows everything would hold everything.
#[test]
fn an_output_with_another_field_or_another_type_is_not_as_its_schema_says() {
    let good = json(&run(&["diagnose", &golden("memcached-requests"), "--json"]));
    assert!(wrong("diagnose", &good).is_empty());
    for (pointer, value) in [
        ("/causes/0/share", Value::from("much")),
        ("/causes/0/category", Value::from("bad-luck")),
        ("/leg", Value::from("arm")),
        ("/loss", Value::Null),
        ("/focus/messages", Value::from(-1)),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
        assert!(!wrong("diagnose", &bad).is_empty(), "{pointer}");
    }
    for at in ["", "/causes/0", "/overhead"] {
        let mut bad = good.clone();
        let object = bad.pointer_mut(at).and_then(Value::as_object_mut).expect("an object");
        object.insert("unheard_of".to_owned(), Value::from(1));
        assert!(!wrong("diagnose", &bad).is_empty(), "{at:?} with a field of its own");
    }
    let mut bad = good.clone();
    bad.as_object_mut().expect("an object").remove("coverage");
    assert!(!wrong("diagnose", &bad).is_empty());
}

/// Answers every request with an empty page, at once.
fn http_server() -> String {
    http_server_that_takes(Duration::ZERO)
}

fn http_server_that_takes(time: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a handle");
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if !line.is_empty() {
                        continue;
                    }
                    std::thread::sleep(time);
                    if writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}/")
}

#[test]
fn the_json_of_a_recording_is_as_the_schema_says() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("run").display().to_string();
    let output = run(&["record", "-d", "300ms", "--json", "-o", &out, "--", "sleep", "30"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let meta = json(&output);
    holds("record", &meta);
    // The settings are those that doctor reads.
    let ids = |meta: &Value| -> Vec<String> {
        let settings = meta["settings"].as_array().expect("settings");
        let ids = settings.iter().filter_map(|s| s["id"].as_str().map(str::to_owned));
        ids.filter(|id| !id.starts_with("target_")).collect()
    };
    let doctor = ids(&json(&run(&["doctor", "--json"])));
    assert!(!doctor.is_empty() && ids(&meta) == doctor, "{:?} are not {doctor:?}", ids(&meta));
}

/// Settings that a recording kept are shown: those that lengthen tails to a reader, all of them as JSON and in the page's data.
#[test]
fn settings_of_the_host_are_shown() {
    let dir = tempfile::tempdir().expect("a folder");
    let run_path = dir.path().join("run");
    let copied = std::process::Command::new("cp").arg("-r").arg(golden("memcached-requests")).arg(&run_path).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let file = run_path.join("run.json");
    let mut meta: Value = serde_json::from_slice(&std::fs::read(&file).expect("a run")).expect("JSON");
    let setting = |id: &str, verdict: &str| serde_json::json!({"id": id, "title": format!("The {id}"), "value": "on", "verdict": verdict, "why": "because"});
    meta["settings"] = serde_json::json!([setting("swap", "hurts"), setting("governor", "good")]);
    std::fs::write(&file, meta.to_string()).expect("a file");
    let run_dir = run_path.display().to_string();
    let (diagnosis, message) =
        (json(&run(&["diagnose", &run_dir, "--more", "--json"])), json(&run(&["show", &run_dir, "1", "--json"])));
    holds("diagnose", &diagnosis);
    holds("show", &message);
    assert_eq!((&diagnosis["more"]["settings"], &message["settings"]), (&meta["settings"], &meta["settings"]));
    for words in [&["show", &run_dir, "1"][..], &["diagnose", &run_dir, "--more"]] {
        let text = String::from_utf8_lossy(&run(words).stdout).into_owned();
        assert!(text.contains("The swap (on)") && !text.contains("The governor"), "{text}");
    }
    let page = dir.path().join("page.html").display().to_string();
    assert!(run(&["report", &run_dir, "-o", &page]).status.success());
    assert_eq!(element(&page, "page")["meta"]["settings"], meta["settings"]);
}

/// A server that takes 4 ms longer is worse whatever else the machine does, and the other way round it is better.
#[test]
fn of_two_servers_in_turn_the_slower_one_is_named() {
    let (slow, fast) = (http_server_that_takes(Duration::from_millis(4)), http_server());
    let words = ["load", &slow, "--rate", "200", "--against", &fast, "--max-time", "40s", "--ci", "p50", "--json"];
    let output = run(&words);
    let comparison = json(&output);
    holds("load", &comparison);
    assert_eq!(comparison["verdict"], "worse", "{comparison:#}");
    assert_eq!(output.status.code(), Some(4), "{}", shown(&output));
    assert!(comparison["ratio"].as_f64().expect("a ratio") > 2.0, "{comparison:#}");
    // One that the machine disturbed is repeated, and listed with the reason.
    let rounds = comparison["rounds"].as_array().expect("rounds");
    let compared = rounds.iter().filter(|round| round["target_ns"].is_f64() && round["other_ns"].is_f64()).count();
    assert_eq!(compared, 8, "{comparison:#}");
    let first = rounds.iter().filter(|round| round["target_first"] == true).count();
    assert!((1..rounds.len()).contains(&first), "the order is drawn for each round: {comparison:#}");
}

/// N/A or a number: both have a schema, and a measurement this short is the one or the other.
#[test]
fn the_json_of_a_load_and_of_a_sweep_is_as_the_schemas_say() {
    let target = http_server();
    let output = run(&["load", &target, "--rate", "500", "--max-time", "4s", "--ci", "p50:5ms", "--json"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", shown(&output));
    holds("load", &json(&output));
    let dir = tempfile::tempdir().expect("a folder");
    let page = dir.path().join("sweep.html").display().to_string();
    let words =
        ["sweep", &target, "--rates", "300,600", "--max-time", "3s", "--ci", "p50:5ms", "--html", &page, "--json"];
    let output = run(&words);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", shown(&output));
    holds("sweep", &json(&output));
    // The page has the sweep, and the measurement at each rate.
    let drawn = element(&page, "load");
    assert_eq!(drawn["sweep"], json(&output));
    let names: Vec<&str> =
        drawn["results"].as_array().expect("results").iter().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(names, ["300/s", "600/s"]);
}
