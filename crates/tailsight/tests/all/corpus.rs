//! The corpus: short intervals of recordings of the lab's scenarios (`lab trim`), each diagnosed on each leg. An answer that is another than
//! before shows here, with what it was. `UPDATE_CORPUS=1` writes what is found: look at each difference, and say in the commit why it is right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tailsight_lifetime::Rule;

use crate::support::run;

/// Rules that decide in none of these recordings: no scenario has a client that sends in parts, or a lock of a file. Their examples are the
/// tests that their files name.
const NOWHERE: [Rule; 2] = [Rule::RequestArriving, Rule::FileLockLine];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// What is expected to stay of an answer.
fn summary(answer: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let cause = |cause: &Value| {
        let function = cause["functions"][0]["name"].as_str().map_or_else(String::new, |name| format!(" ▸ {name}"));
        let share = cause["share"].as_f64().unwrap_or_default() * 100.0;
        format!("{share:.1} % {} {}{function}", text(&cause["category"]), text(&cause["name"]))
    };
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    json!({
        "ns": {"p50": answer["latency_ns"]["p50"], "focus": answer["focus"]["mean_ns"]},
        "causes": list("causes").iter().take(4).map(cause).collect::<Vec<_>>(),
        "rules": list("rules").iter().map(|rule| format!("{} {}", text(&rule["rule"]), rule["mean_ns"])).collect::<Vec<_>>(),
    })
}

#[test]
fn kept_recordings_have_the_answers_that_they_had() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("run/run.json").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut summaries: BTreeMap<String, BTreeMap<&str, Value>> = BTreeMap::new();
    let mut rules: BTreeSet<String> = BTreeSet::new();
    for name in &names {
        let path = folder().join(name).join("run").display().to_string();
        for leg in ["total", "receive", "service", "transmit"] {
            let output = run(&["diagnose", "--json", "--why", "--leg", leg, &path]);
            // A refusal is an answer, too.
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
            rules.extend(
                answer["rules"].as_array().into_iter().flatten().filter_map(|r| Some(r["rule"].as_str()?.to_owned())),
            );
            summaries.entry(name.clone()).or_default().insert(leg, summary(&answer));
        }
    }
    let file = folder().join("expected.json");
    let summaries = json!(summaries);
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        std::fs::write(&file, serde_json::to_string_pretty(&summaries).unwrap() + "\n").unwrap();
    }
    let expected: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for name in &names {
        assert_eq!(summaries[name], expected[name], "{name}: if that is right, UPDATE_CORPUS=1");
    }
    let silent = |rule: &&Rule| !rules.contains(rule.id());
    let silent: Vec<Rule> = Rule::ALL.iter().filter(silent).copied().collect();
    assert_eq!(silent, NOWHERE, "rules that decide in no recording");
}
