//! The crates of the workspace depend on each other in one direction, dev-dependencies included, and nothing of the product
//! builds the lab or the benchmarks. In: what `cargo metadata` says of the manifests. Out: the offending chain.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The crates of the workspace by name, each with those of them that it needs, for whatever reason.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The workspace's graph, from the manifests alone: nothing is resolved and nothing downloaded.
fn workspace() -> Graph {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let needs = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap().iter().map(name);
        all.filter(|needed| members.contains(needed)).collect()
    };
    packages.iter().map(|package| (name(package), needs(package))).collect()
}

/// The way from `from` to `to`, with both ends; `None`: there is none.
fn way(graph: &Graph, from: &str, to: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        let last = &way[way.len() - 1];
        for next in graph.get(last).into_iter().flatten() {
            let further = [way.as_slice(), std::slice::from_ref(next)].concat();
            if next == to {
                return Some(further);
            }
            if seen.insert(next.clone()) {
                ways.push(further);
            }
        }
    }
    None
}

#[test]
fn no_crates_form_a_circle() {
    let graph = workspace();
    assert!(graph.len() > 10 && graph["tailsight-lab"].contains("tailsight-testbed"), "{graph:?}");
    let circles: Vec<_> = graph.keys().filter_map(|name| way(&graph, name, name)).collect();
    assert!(circles.is_empty(), "{circles:?}");
}

/// The binary needed the lab for its demo, and tailsight-lifetime's tests needed a crate that uses tailsight-lifetime.
#[test]
fn nothing_of_the_product_needs_the_lab_or_the_benchmarks() {
    let graph = workspace();
    let lab = "tailsight-lab";
    assert!(graph.contains_key(lab), "{lab} is no member of the workspace");
    let product = graph.keys().filter(|name| *name != lab);
    let ways: Vec<_> = product.filter_map(|name| way(&graph, name, lab)).collect();
    assert!(ways.is_empty(), "{ways:?}");
}

/// Facts first, words last: what computes needs nothing of what words it, nor of what changes a host.
#[test]
fn the_diagnosis_needs_neither_words_nor_fixes() {
    let graph = workspace();
    for above in ["tailsight-advice", "tailsight-fix", "tailsight-report"] {
        assert!(graph.contains_key(above), "{above} is no member of the workspace");
        assert_eq!(way(&graph, "tailsight-diagnose", above), None);
    }
}

/// What the binary builds with these features, by name, whatever builds it in turn.
fn built(features: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--package", "tailsight", "--edges", "normal,build", "--prefix", "none"]);
    let output = cargo.args(features).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// gRPC, TLS, Parquet and the bindings of libipt were half of the time from a clone to the demo's result.
#[test]
fn the_demo_builds_nothing_that_it_does_not_show() {
    let heavy = ["tonic", "tokio", "rustls", "rcgen", "parquet", "prost", "libipt", "bindgen"];
    let (all, demo) = (built(&[]), built(&["--no-default-features"]));
    assert!(heavy.iter().all(|name| all.contains(*name)), "this test looks for what nothing builds: {all:?}");
    let found: Vec<_> = heavy.iter().filter(|name| demo.contains(**name)).collect();
    assert!(found.is_empty() && demo.contains("tailsight-record"), "{found:?}");
}

#[test]
fn a_circle_is_found_with_its_way() {
    let edges = [("a", vec!["b"]), ("b", vec!["c", "d"]), ("c", vec![]), ("d", vec!["a"])];
    let named = |(from, to): (&str, Vec<&str>)| (from.to_owned(), to.into_iter().map(str::to_owned).collect());
    let graph: Graph = edges.into_iter().map(named).collect();
    assert_eq!(way(&graph, "a", "a").unwrap(), ["a", "b", "d", "a"]);
    assert_eq!(way(&graph, "c", "a"), None);
}

/// `doctor` and every error message of `record` have to work where BPF does not.
#[test]
fn only_the_recorder_links_libbpf() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifests = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("Cargo.toml"));
    let link = manifests.filter(|manifest| {
        let text = std::fs::read_to_string(manifest).unwrap_or_default();
        text.lines().any(|line| line.starts_with("libbpf-"))
    });
    let names: Vec<String> =
        link.map(|m| m.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["tailsight-record"]);
}

/// What computes can be tested without a machine, and cannot surprise one: it gets what it needs and returns what it found. Runs are
/// opened and tables written by tailsight-trace.
#[test]
fn what_computes_reads_and_writes_nothing() {
    fn look(folder: &std::path::Path, offences: &mut Vec<String>) {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                look(&path, offences);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap_or_default();
            let code = source.split("#[cfg(test)]\nmod tests").next().unwrap();
            for line in code.lines().map(|line| line.split("//").next().unwrap()) {
                let used = ["std::fs", "fs::", "File::", "std::net", "std::process", "std::env", "println!"];
                let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                if used.iter().any(|name| line.match_indices(name).any(|(at, _)| begins(at))) {
                    offences.push(format!("{}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    let mut offences = Vec::new();
    for name in ["kernel", "lifetime", "diagnose", "advice", "report", "ideal", "stats", "tune", "protocol", "units"] {
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tailsight-{name}/src"));
        assert!(sources.is_dir(), "{}", sources.display());
        look(&sources, &mut offences);
    }
    assert!(offences.is_empty(), "{offences:#?}");
}
