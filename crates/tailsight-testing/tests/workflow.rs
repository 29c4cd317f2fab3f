//! The hosted workflow `.github/workflows/ci.yml`: what it runs is in this repository, and is what `.ci/run` runs, with root and without.
//! In: the file, the Makefile. Out: what GitHub would refuse, or run from elsewhere.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn workflow() -> Value {
    let text = std::fs::read_to_string(repository().join(".github/workflows/ci.yml")).unwrap();
    serde_norway::from_str(&text).expect("ci.yml is YAML")
}

/// The steps of the jobs, each with its job's name.
fn steps(workflow: &Value) -> Vec<(&str, &Value)> {
    let jobs = workflow["jobs"].as_object().expect("jobs");
    jobs.iter()
        .flat_map(|(job, body)| body["steps"].as_array().expect("steps").iter().map(move |s| (job.as_str(), s)))
        .collect()
}

/// The commands of the steps, each with its job's name.
fn commands(workflow: &Value) -> Vec<(&str, &str)> {
    let runs = steps(workflow).into_iter().filter_map(|(job, step)| Some((job, step["run"].as_str()?)));
    runs.flat_map(|(job, run)| run.lines().map(move |line| (job, line.trim())))
        .filter(|(_, line)| !line.is_empty())
        .collect()
}

/// Why a command is none of this repository's; `None` when it is.
fn foreign(command: &str, makefile: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.strip_prefix(&["sudo"]).unwrap_or(&words) {
        ["make", target] => {
            let is_target = makefile.lines().any(|line| line.starts_with(&format!("{target}: ## ")));
            (!is_target).then(|| format!("`{command}`: the Makefile has no target {target}"))
        }
        [script] => {
            let is_program = std::fs::metadata(repository().join(script))
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
            (!is_program).then(|| format!("`{command}`: {script} is no program of this repository"))
        }
        _ => Some(format!("`{command}`: neither `make TARGET` nor a program")),
    }
}

#[test]
fn each_command_of_the_workflow_is_a_target_or_a_program_of_this_repository() {
    let workflow = workflow();
    let makefile = std::fs::read_to_string(repository().join("Makefile")).unwrap();
    let wrong: Vec<String> =
        commands(&workflow).iter().filter_map(|(_, command)| foreign(command, &makefile)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (command, is_foreign) in
        [("make test", false), ("sudo .ci/run", false), ("make tests", true), (".ci/runs", true), ("curl x | sh", true)]
    {
        assert_eq!(foreign(command, &makefile).is_some(), is_foreign, "{command}");
    }
}

#[test]
fn what_ci_runs_is_run_with_root_and_without() {
    let workflow = workflow();
    let commands = commands(&workflow);
    for wanted in [".ci/run", "sudo .ci/run"] {
        assert!(commands.iter().any(|(_, command)| *command == wanted), "no job runs `{wanted}`: {commands:?}");
    }
    // Without root the tests that need it are skipped, and the packages that they would need are not asked for.
    let of_job = |job: &str| commands.iter().filter(|(of, _)| *of == job).map(|(_, c)| *c).collect::<Vec<_>>();
    assert_eq!(of_job("test"), ["sudo make setup", ".ci/run"]);
}

/// An action runs with the job's token: which code that is may not change when somebody moves a tag, and the token may read only.
#[test]
fn actions_are_pinned_by_commit_and_may_only_read() {
    let workflow = workflow();
    assert_eq!(workflow["permissions"], serde_json::json!({ "contents": "read" }));
    for (job, body) in workflow["jobs"].as_object().unwrap() {
        assert!(body["runs-on"].is_string() && body["permissions"].is_null(), "{job}");
        assert!(body["timeout-minutes"].as_u64().is_some_and(|minutes| (10..=240).contains(&minutes)), "{job}");
    }
    let actions: Vec<&str> = steps(&workflow).into_iter().filter_map(|(_, step)| step["uses"].as_str()).collect();
    assert!(!actions.is_empty());
    for action in actions {
        let commit = action.split_once('@').map_or("", |(_, commit)| commit);
        let is_commit = commit.len() == 40 && commit.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        assert!(is_commit, "{action}: name the commit, and the version in a comment");
    }
    // A step does one thing, by keys that GitHub has.
    for (job, step) in steps(&workflow) {
        let keys: Vec<&String> = step.as_object().expect("a step").keys().collect();
        assert!(
            keys.iter().all(|key| ["name", "uses", "with", "run", "env"].contains(&key.as_str())),
            "{job}: {keys:?}"
        );
        assert!(step["uses"].is_string() != step["run"].is_string(), "{job}: {step}");
    }
}
