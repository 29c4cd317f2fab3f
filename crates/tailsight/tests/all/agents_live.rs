//! `load` and `sweep` through `agent` processes on loopback: one load, pooled; and what happens when an agent dies or refuses.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use crate::load_live::{Server, adds_up, server, together};
use crate::support::{run, shown, stderr, tailsight};

const TOKEN: &str = "a-token-of-no-value-at-all";

/// An agent of the built program, and how `--agent` names it.
pub struct Agent {
    pub process: Server,
    pub name: String,
}

impl Agent {
    pub fn start(token: &str, more: &[&str]) -> Self {
        let mut command = tailsight(&[&["agent", "--listen", "127.0.0.1:0", "--token-file", token], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let name = line.trim().to_owned();
        assert!(name.contains('#'), "{name:?}");
        Self { process: Server(child), name }
    }

    fn authority(&self) -> &str {
        self.name.split('#').next().unwrap()
    }
}

/// A folder with a token of the right mode.
pub fn token() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let text = path.display().to_string();
    (dir, text)
}

fn memcached() -> Option<(Server, String)> {
    let port = tailsight_testing::free_port();
    let text = port.to_string();
    let server = server("memcached", port, &["-u", "nobody", "-l", "127.0.0.1", "-p", &text, "-U", "0", "-t", "1"])?;
    Some((server, format!("memcached://127.0.0.1:{port}")))
}

#[test]
fn two_agents_are_one_measurement() {
    let _cores = together();
    let Some((_server, target)) = memcached() else { return };
    let (dir, token) = token();
    let (a, b) = (Agent::start(&token, &[]), Agent::start(&token, &[]));
    let file = dir.path().join("x.parquet").display().to_string();
    let output = run(&[
        "load",
        &target,
        "--json",
        "--rate",
        "1k",
        "--ci",
        "p50:30%",
        "--max-time",
        "4s",
        "--keys",
        "500",
        "-o",
        &file,
        "--agent",
        &a.name,
        "--agent",
        &b.name,
        "--agent-token-file",
        &token,
    ]);
    let report = adds_up(&output);
    let names: Vec<&str> = [&a, &b].iter().map(|agent| agent.authority()).collect();
    assert_eq!(report["client"]["agents"], serde_json::json!(names), "{}", shown(&output));
    let facts = report["agents"].as_array().unwrap();
    assert!(facts.iter().all(|f| f["role"] == "symmetric" && f["rate"] == "500" && f["gone"].is_null()), "{facts:?}");
    assert_ne!(facts[0]["seed"], facts[1]["seed"]);
    assert_eq!(report["counts"]["miss"], 0, "the keys were stored once, for both: {}", report["counts"]);
    // The kernel's clock is one: streams of processes of one host are laid beside each other without error.
    assert!(facts.iter().all(|f| f["clock_bound_ns"] == 0), "{facts:?}");
    let stored = tailsight_measure::samples::read(file.as_ref()).unwrap();
    for agent in 0..2 {
        let n = stored.rows.iter().filter(|row| row.agent == agent).count();
        assert!(n * 4 > stored.rows.len(), "agent {agent} has {n} of {} samples", stored.rows.len());
    }
}

/// Regression: the samples of the batch under way went with the agent.
#[test]
fn an_agent_that_dies_is_na_and_its_samples_stay() {
    let _cores = together();
    let Some((_server, target)) = memcached() else { return };
    let (dir, token) = token();
    let (a, mut b) = (Agent::start(&token, &[]), Agent::start(&token, &[]));
    let file = dir.path().join("x.parquet").display().to_string();
    // One batch of all the time: nothing is pooled before the death.
    let mut command = tailsight(&[
        "load",
        &target,
        "--json",
        "--rate",
        "1k",
        "--ci",
        "p99:1ns",
        "--max-time",
        "60s",
        "-o",
        &file,
        "--agent",
        &a.name,
        "--agent",
        &b.name,
        "--agent-token-file",
        &token,
    ]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(4_000));
    b.process.0.kill().unwrap();
    b.process.0.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    let report = adds_up(&output);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let verdict = &report["verdict"];
    assert_eq!(verdict["failed"]["id"], "agent", "{verdict}");
    assert!(verdict["reason"].as_str().unwrap().contains(b.authority()), "it names the agent: {verdict}");
    assert!(report["agents"][1]["gone"].is_string() && report["agents"][0]["gone"].is_null(), "{}", report["agents"]);
    let stored = tailsight_measure::samples::read(file.as_ref()).unwrap();
    for agent in 0..2 {
        let n = stored.rows.iter().filter(|row| row.agent == agent).count();
        assert!(n > 50, "agent {agent} left {n} samples");
    }
}

#[test]
fn a_sweep_runs_through_agents() {
    let _cores = together();
    let Some((_server, target)) = memcached() else { return };
    let (_dir, token) = token();
    let a = Agent::start(&token, &[]);
    let output = run(&[
        "sweep",
        &target,
        "--json",
        "--rates",
        "500,1k",
        "--ci",
        "p50:30%",
        "--max-time",
        "2500ms",
        "--keys",
        "100",
        "--agent",
        &a.name,
        "--agent-token-file",
        &token,
    ]);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", shown(&output));
    let sweep = crate::support::json(&output);
    let points = sweep["points"].as_array().unwrap();
    assert_eq!(points.len(), 2, "{}", shown(&output));
    assert!(points.iter().all(|p| p["report"]["counts"]["sent"].as_u64() > Some(500)), "{}", shown(&output));
}

#[test]
fn what_an_agent_refuses_is_said_before_any_load() {
    let _cores = together();
    let Some((_server, target)) = memcached() else { return };
    let (dir, token) = token();
    let agent = Agent::start(&token, &["--max-rate", "2k"]);
    let with = |more: &[&str], code: i32, words: &[&str]| {
        let output = run(&[&["load", &target, "--rate", "1k", "--max-time", "3s"], more].concat());
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", shown(&output));
        words.iter().for_each(|w| assert!(stderr(&output).contains(w), "{more:?} must say {w:?}: {}", shown(&output)));
        assert!(output.stdout.is_empty(), "{}", shown(&output));
    };
    let other = dir.path().join("other").display().to_string();
    std::fs::write(&other, "another-token-of-no-value\n").unwrap();
    with(&["--agent", &agent.name, "--agent-token-file", &other], 1, &["chmod 600"]);
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    with(&["--agent", &agent.name, "--agent-token-file", &other], 1, &[agent.authority(), "token"]);
    with(&["--agent", &agent.name, "--agent-token-file", "/nonexistent"], 1, &["/nonexistent"]);
    with(&["--agent", &agent.name], 1, &["--agent-token-file", "TAILSIGHT_AGENT_TOKEN"]);
    let bare = agent.authority().to_owned();
    with(&["--agent", &bare, "--agent-token-file", &token], 1, &["fingerprint"]);
    let wrong = format!("{bare}#{}", "0".repeat(64));
    with(&["--agent", &wrong, "--agent-token-file", &token], 1, &["fingerprint"]);
    let nobody = format!("127.0.0.1:{}#{}", tailsight_testing::free_port(), "0".repeat(64));
    with(&["--agent", &nobody, "--agent-token-file", &token], 1, &["is the agent running"]);
    let roles = ["--agent", &agent.name, "--agent-token-file", &token, "--agent-role", "latency"];
    with(&roles, 2, &["all agents are latency agents"]);
    let fast = ["--agent", &agent.name, "--agent-token-file", &token];
    let output = run(&[&["load", &target, "--rate", "5k", "--max-time", "3s"], &fast[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("--max-rate"), "{}", shown(&output));
}
