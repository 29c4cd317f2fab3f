//! `tune` on a real server that shares its core with a busy loop: what helps is kept and can be undone, what does nothing is undone, and neither a
//! signal nor a kill leaves anything behind that `fix --undo` does not undo.
//!
//! Server, load and busy loop are in a network namespace of their own, and `--only cpu` touches no other program: it offers the fix that lets
//! the server run before ordinary tasks.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::RwLockWriteGuard;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tailsight_testbed::process::spawn_tied;
use tailsight_testbed::server::{MemcachedOpts, Server};

use crate::load_live::alone;
use crate::schemas::holds;
use crate::support::{Live, Quiet, json, shown, tailsight, wait_for};

const PORT: u16 = 20_310;
/// The fix against another program on the server's core that touches the server alone.
const FIX: &str = "before ordinary tasks";
/// Rounds of a step: the fewest.
const ROUNDS: usize = 8;

/// A server on core 0, and a state file for its fixes.
struct Bench {
    live: Live,
    server: Server,
    noise: Option<Child>,
    /// No load of another test is beside the busy loop and a client that runs before all others.
    _cores: RwLockWriteGuard<'static, ()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.end_noise();
    }
}

impl Bench {
    fn new(test: &str) -> Option<Bench> {
        let live = Live::new(test)?;
        let cores = alone();
        let opts = MemcachedOpts { port: PORT, cpu: Some(0), ..Default::default() };
        let server = Server::memcached(&live.pair.server, opts).unwrap();
        let mut busy = live.pair.server.command("sh");
        // Bounded, should this test be killed in a way that leaves it behind.
        busy.args(["-c", "end=$(($(date +%s) + 600)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; done"]);
        busy.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let noise = Some(spawn_tied(busy, Some(0), Signal::SIGKILL).unwrap());
        Some(Bench { live, server, noise, _cores: cores })
    }

    fn end_noise(&mut self) {
        if let Some(mut noise) = self.noise.take() {
            let _ = noise.kill();
            let _ = noise.wait();
        }
    }

    /// `tune` in the server's namespace; what it says is in a file.
    fn tune(&self, more: &[&str]) -> Child {
        let (pid, out) = (self.server.pid().to_string(), self.live.path("tune"));
        // A client that other programs of the machine make late measures them, and not the server.
        let load = format!("memcached://127.0.0.1:{PORT} --connections 4 --keys 100 --cpus 1 --realtime");
        let rounds = ROUNDS.to_string();
        let mut command = self.live.pair.server.command(env!("CARGO_BIN_EXE_tailsight"));
        command.args(["tune", "-p", &pid, "--load", &load, "--rate", "2k", "--rounds", &rounds, "-o", &out]);
        command.args(["--only", "cpu", "--json"]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(self.live.path("said")).unwrap());
        self.with_state(&mut command).spawn().unwrap()
    }

    fn with_state<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("TAILSIGHT_STATE", self.live.path("state")).env("NO_COLOR", "1")
    }

    fn fix(&self, args: &[&str]) -> Output {
        let mut command = tailsight(&[&["fix"], args].concat());
        self.with_state(&mut command).output().unwrap()
    }

    /// The scheduling policy of each thread of the server.
    fn policies(&self) -> Vec<String> {
        let tasks = format!("/proc/{}/task", self.server.pid());
        let mut policies: Vec<(u32, String)> = std::fs::read_dir(tasks)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let stat = std::fs::read_to_string(path.join("stat")).unwrap();
                let thread = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
                // Field 41 of all, which is the 39th behind the name.
                let policy = stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned();
                (thread, policy)
            })
            .collect();
        policies.sort();
        policies.into_iter().map(|(_, policy)| policy).collect()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.live.path("said")).unwrap_or_default()
    }

    fn is_fifo(&self) -> bool {
        self.policies().iter().any(|policy| policy == "1")
    }

    fn nothing_is_changed(&self) -> bool {
        let status = json(&self.fix(&["--status", "--json"]));
        status["fixes"].as_array().unwrap().is_empty()
    }
}

fn ended(child: Child) -> (Output, Value) {
    let output = child.wait_with_output().unwrap();
    let tuning = json(&output);
    holds("tune", &tuning);
    (output, tuning)
}

fn step<'a>(tuning: &'a Value, title: &str) -> Option<&'a Value> {
    let steps = tuning["steps"].as_array().unwrap();
    steps.iter().find(|step| step["fix"]["title"].as_str().unwrap().contains(title))
}

/// One session shows all of it: the plan, which changes nothing; the fix that is kept with its interval below 1; its undo.
#[test]
fn a_fix_that_helps_is_kept_with_its_interval_and_undone_by_one_command() {
    let test = "a_fix_that_helps_is_kept_with_its_interval_and_undone_by_one_command";
    let Some(bench) = Bench::new(test) else { return };
    let before = bench.policies();
    let (output, plan) = ended(bench.tune(&[]));
    assert_eq!((output.status.code(), plan["stopped"].as_str()), (Some(0), Some("plan-only")), "{}", bench.said());
    assert_eq!(bench.policies(), before, "a plan changes nothing");
    assert!(!Path::new(&bench.live.path("state")).exists(), "nor does it begin a state file");

    let (output, tuning) = ended(bench.tune(&["--yes", "--budget", "3m"]));
    let run = bench.live.path("tune/diagnosis-1");
    let ours = [bench.noise.as_ref().unwrap().id(), bench.server.pid()];
    let others = Quiet::of(test, &run, "total", 0.01).had(&ours);
    if others >= 0.3 {
        tailsight_testing::not_judged(test, format!("other programs had {:.0} % of the slow messages", 100.0 * others));
        bench.fix(&["--undo"]);
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}\n{}", shown(&output), bench.said());
    let kept = step(&tuning, FIX).unwrap_or_else(|| panic!("no such fix: {tuning}"));
    assert_eq!((kept["decision"].as_str(), kept["why"].as_str()), (Some("kept"), Some("proven")), "{kept}");
    let measured = &kept["measured"];
    let [lower, upper] = [0, 1].map(|end| measured["interval"][end].as_f64().unwrap());
    assert!(lower < measured["ratio"].as_f64().unwrap() && upper < 1.0, "{measured}");
    assert!(measured["p"].as_f64().unwrap() < measured["alpha"].as_f64().unwrap(), "{measured}");
    let changed = tuning["changed"].as_array().unwrap();
    assert!(changed.contains(&kept["fix"]["title"]) && tuning["undo"] == "tailsight fix --undo", "{tuning}");
    assert!(bench.is_fifo(), "{:?}", bench.policies());
    let undone = bench.fix(&["--undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", shown(&undone));
    assert_eq!(bench.policies(), before);
}

/// The busy loop ends between the diagnosis and the trial: the fix does nothing any more.
#[test]
fn a_fix_that_does_nothing_is_undone() {
    let Some(mut bench) = Bench::new("a_fix_that_does_nothing_is_undone") else { return };
    let before = bench.policies();
    let child = bench.tune(&["--yes", "--budget", "100s"]);
    wait_for(|| bench.said().contains("applied and undone in").then_some(()));
    bench.end_noise();
    let (output, tuning) = ended(child);
    assert_eq!(output.status.code(), Some(0), "{}\n{}", shown(&output), bench.said());
    let steps = tuning["steps"].as_array().unwrap();
    assert!(!steps.is_empty(), "{tuning}");
    // A busy machine can make any fix help: what is listed is what is there.
    let kept: Vec<&Value> =
        steps.iter().filter(|step| step["decision"] == "kept").map(|step| &step["fix"]["title"]).collect();
    assert!(tuning["changed"].as_array().unwrap().iter().eq(kept.iter().copied()), "{tuning}");
    if kept.is_empty() {
        assert_eq!(bench.policies(), before);
        assert!(bench.nothing_is_changed());
    } else {
        tailsight_testing::not_judged("a_fix_that_does_nothing_is_undone", "other programs took the busy loop's place");
        bench.fix(&["--undo"]);
    }
}

#[test]
fn a_signal_undoes_everything_and_a_kill_leaves_it_to_fix_undo() {
    let Some(bench) = Bench::new("a_signal_undoes_everything_and_a_kill_leaves_it_to_fix_undo") else { return };
    let before = bench.policies();
    let send = |child: &Child, signal| kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
    let child = bench.tune(&["--yes"]);
    wait_for(|| bench.is_fifo().then_some(()));
    send(&child, Signal::SIGINT);
    let (output, tuning) = ended(child);
    assert_eq!((output.status.code(), tuning["stopped"].as_str()), (Some(3), Some("interrupted")), "{}", bench.said());
    assert!(tuning["changed"].as_array().unwrap().is_empty() && tuning["undo"].is_null(), "{tuning}");
    assert_eq!(bench.policies(), before);
    assert!(bench.nothing_is_changed());

    let mut child = bench.tune(&["--yes"]);
    wait_for(|| bench.is_fifo().then_some(()));
    // While it is at work nobody else changes anything.
    let refused = bench.fix(&["--undo"]);
    assert_eq!(refused.status.code(), Some(1), "{}", shown(&refused));
    // Between two windows the fix may be off for a moment: the state file has it as long as it is on.
    send(&child, Signal::SIGKILL);
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let undone = bench.fix(&["--undo"]);
    assert!(matches!(undone.status.code(), Some(0 | 3)), "{}", shown(&undone));
    assert_eq!(bench.policies(), before);
    assert!(bench.nothing_is_changed());
}
