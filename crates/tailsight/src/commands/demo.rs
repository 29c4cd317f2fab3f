//! `tailsight demo`: the whole product on this machine in a few seconds.
//!
//! Two network namespaces of our own, joined by a veth pair. In one, memcached and nginx share a core; from the other,
//! on another core, an open-loop load runs on both. Records memcached, diagnoses, writes the report. Everything but
//! the run and the report is removed at the end, also on Ctrl-C.

use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tailsight_diagnose::model::Cause;
use tailsight_diagnose::{Category, Options};
use tailsight_record::Selector;
use tailsight_report::terminal::{diagnosis_of, record_summary};
use tailsight_testbed::load::{self, Proto, Workload};
use tailsight_testbed::netns::Pair;
use tailsight_testbed::process::pin_thread;
use tailsight_testbed::server::{MemcachedOpts, NginxOpts, Server};

use super::diagnose::not_available_or;
use crate::cli::Demo;
use crate::page::Diagnosed;
use crate::{Exit, pipeline, stop, terminal};

/// The core that both servers share.
const SERVER_CPU: usize = 0;
/// The core that the load runs on.
const LOAD_CPU: usize = 1;
const MEMCACHED_PORT: u16 = 11211;
const NGINX_PORT: u16 = 8088;
/// The neighbour that the demo puts on memcached's core, and that is to be named.
const NEIGHBOUR: &str = "nginx";
/// Most recordings, until the neighbour is first in one.
const RECORDINGS: u32 = 3;
/// Requests to nginx at each arrival.
const NGINX_BURST: usize = 256;
/// The load stops by itself after this long.
const LONGEST_LOAD: Duration = Duration::from_secs(120);

/// Runs the demo.
pub fn run(args: &Demo) -> anyhow::Result<Exit> {
    if !nix::unistd::geteuid().is_root() {
        anyhow::bail!("the demo needs root (it loads BPF programs and makes network namespaces): sudo tailsight demo");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        anyhow::bail!("the demo needs two cores, one for the servers and one for the load; this machine has {cores}");
    }
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let stop = stop::of_recording();

    say!("starting memcached and nginx on core {SERVER_CPU}, a load on both from core {LOAD_CPU}");
    let pair = Pair::create("demo")?;
    let memcached = Server::memcached(
        &pair.server,
        MemcachedOpts { port: MEMCACHED_PORT, cpu: Some(SERVER_CPU), ..Default::default() },
    )?;
    let _nginx =
        Server::nginx(&pair.server, NginxOpts { port: NGINX_PORT, cpu: Some(SERVER_CPU), ..Default::default() })?;
    let run = args.out.join("run");
    let options = tailsight_record::Options {
        selector: Selector::Pid(memcached.pid()),
        duration: Some(args.duration),
        until: None,
        out: run.clone(),
        // Under sudo the folder of an earlier demo was handed to the user; what is written there follows no link.
        shared: true,
        buffer_bytes: None,
        hooks: Default::default(),
        payload: None,
        tx_stamps: tailsight_record::TxStamps::Off,
        traces: tailsight_record::Traces::default(),
        watches: false,
        samples: tailsight_record::SampleRate::Usual,
        // This process goes on after the recording.
        tasks: true,
        confine: false,
        own_session: false,
        version: env!("CARGO_PKG_VERSION").into(),
    };

    let mut load = Load::start(&pair)?;
    // The first replies are the warm-up's: connections, caches.
    std::thread::sleep(Duration::from_millis(500));
    let mut recording = 1;
    let (outcome, opened, question, diagnosis, causes) = loop {
        let mut progress = terminal::Recording::new(Some(args.duration), None);
        let outcome = tailsight_record::record(&options, &stop, &mut |p| progress.show(p))?;
        if let Some(error) = &outcome.error {
            say!("tailsight: {error}");
            return Ok(Exit::Failed);
        }
        if stop.is_asked() {
            say!("interrupted: servers, namespaces and load are removed; {} holds what was recorded", run.display());
            return Ok(Exit::Failed);
        }
        let opened = pipeline::open(&run)?;
        // The page has room for everything.
        let options = Options { more: true, ..Options::default() };
        let question = pipeline::chosen(options, None, &opened.latencies(), None);
        let (diagnosis, causes) = match pipeline::diagnose(&opened, &question) {
            Ok(diagnosed) => diagnosed,
            Err(error) => return not_available_or(error),
        };
        match again(recording, &diagnosis.causes) {
            Some(why) => say!("{why}; recording again ({} of {RECORDINGS})", recording + 1),
            None => break (outcome, opened, question, diagnosis, causes),
        }
        recording += 1;
    };
    for line in load.finish()?.lines() {
        say!("load: {line}");
    }
    let style = terminal::style();
    terminal::print(&record_summary(&outcome.meta, &style, false))?;
    terminal::print("\n")?;
    if let Some(what) = not_the_neighbour(&diagnosis.causes) {
        let why = if is_busy(&diagnosis.causes) { "This machine is busy" } else { "The neighbour is not first" };
        terminal::print(&format!("{why}: {what}, in each of {recording} recordings.\n\n"))?;
    }
    terminal::print(&diagnosis_of(&diagnosis, Some(&opened.run.meta), &style))?;
    let page = args.out.join("report.html");
    let diagnosed =
        Diagnosed { opened: &opened, options: &question, diagnosis: &diagnosis, causes: &causes, against: None };
    pipeline::write_whole(&page, diagnosed.file())?;
    terminal::print(&format!("\nReport: {}\n", page.display()))?;
    Ok(Exit::Done)
}

/// Whether to record once more, and why: when something else than the neighbour is first, at most [`RECORDINGS`] in all.
fn again(recording: u32, causes: &[Cause]) -> Option<String> {
    not_the_neighbour(causes).filter(|_| recording < RECORDINGS)
}

/// What had more of the delay than the demo's neighbour, when something had: another program, the hypervisor.
fn not_the_neighbour(causes: &[Cause]) -> Option<String> {
    let first = causes.iter().find(|c| c.category.is_named())?;
    let what = match first.category {
        Category::Interference if first.name == NEIGHBOUR => return None,
        Category::Interference => {
            format!("{} ran on memcached's core for longer than the neighbour, {NEIGHBOUR}", first.name)
        }
        Category::Steal => format!("the hypervisor took more of memcached's core than the neighbour, {NEIGHBOUR}"),
        category => format!("{} ({category}) had more of the delay than the neighbour, {NEIGHBOUR}", first.name),
    };
    Some(what)
}

/// Whether it was another program or the hypervisor, and not memcached itself.
fn is_busy(causes: &[Cause]) -> bool {
    let first = causes.iter().find(|c| c.category.is_named());
    first.is_some_and(|c| matches!(c.category, Category::Interference | Category::Steal))
}

/// The load: this program again, inside the client's namespace. It ends when its standard input closes, so it cannot
/// outlive us.
struct Load {
    child: Child,
}

impl Load {
    fn start(pair: &Pair) -> anyhow::Result<Load> {
        let me = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = pair.client.command(me);
        command.arg("demo-load").stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C on the terminal is for us; the load ends when we are done.
        command.process_group(0);
        Ok(Load { child: command.spawn().context("cannot start the load")? })
    }

    /// Ends the load and gives what it measured, a line a workload.
    fn finish(&mut self) -> anyhow::Result<String> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            out.read_to_string(&mut text)?;
        }
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the load failed ({status})");
        Ok(text)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The load's own process: light queries to memcached, and enough to nginx that it often has the core when memcached
/// wants it. Prints a line a workload at the end.
pub fn load() -> anyhow::Result<Exit> {
    pin_thread(LOAD_CPU)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Relaxed);
    });
    // An open load is told by its name in the recording, not as tailsight's own work.
    let _ = nix::sys::prctl::set_name(c"demo-load");
    let to = |port| SocketAddr::from(([10, 77, 0, 1], port));
    let workloads = [
        Workload { name: "memcached".into(), ..Workload::new(Proto::Memcached, to(MEMCACHED_PORT)) }
            .rate(5_000.0)
            .connections(8),
        // Bursts, as from clients that fetch a page with all its parts: nginx then keeps the core for a while.
        Workload { name: "nginx".into(), pipeline_burst: NGINX_BURST, ..Workload::new(Proto::Http1, to(NGINX_PORT)) }
            .rate(60_000.0)
            .connections(32),
    ];
    for w in load::run(&workloads, LONGEST_LOAD, true, &stop)? {
        let time = |p| w.percentile(p).map_or("N/A".into(), tailsight_units::format::duration);
        let line = format!(
            "{} {:.0} requests/s, response time p50 {}, p99 {}\n",
            w.name,
            w.received_per_s(),
            time(50.0),
            time(99.0)
        );
        terminal::print(&line)?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(category: &str, name: &str) -> Cause {
        serde_json::from_value(serde_json::json!({
            "rank": 1, "category": category, "name": name, "role": "A", "share": 0.6, "deviation_ns": 1000,
            "ci95_ns": [900, 1100], "messages": 50, "evidence": [], "paths": [], "fix": [], "explanation": "",
        }))
        .expect("a cause")
    }

    #[test]
    fn a_busy_machine_is_said_and_recorded_at_most_twice_more() {
        let nginx = [cause("interference", "nginx"), cause("steal", "hypervisor")];
        assert_eq!(again(1, &nginx), None, "the neighbour is first");
        for (category, name, says) in [
            ("steal", "hypervisor", "the hypervisor took more"),
            ("interference", "rustc", "rustc ran on memcached's core"),
            ("hol-blocking", "memcached", "memcached (hol-blocking)"),
        ] {
            let causes = [cause(category, name), cause("interference", "nginx")];
            let why = again(1, &causes).expect("a reason");
            assert!(why.contains(says) && why.contains("nginx"), "{why}");
            assert!(again(2, &causes).is_some() && again(3, &causes).is_none(), "{category}");
            assert!(not_the_neighbour(&causes).is_some(), "said in the end");
            assert_eq!(is_busy(&causes), ["interference", "steal"].contains(&category), "{category}");
        }
        assert_eq!(
            again(1, &[cause("unexplained", "unexplained")]),
            None,
            "nothing is named: once more would not help"
        );
    }
}
