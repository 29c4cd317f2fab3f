//! `tailsight watch`: stays beside a server; when a message is slow, what the event buffers hold becomes a run, which is diagnosed at once.
//!
//! In: a target, a condition. Out: a folder of captures, a line for each, metrics. Between captures nothing is written, and this process wakes some
//! times a second.

mod diagnosing;
mod folder;
pub mod lines;
mod metrics_server;
mod status;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tailsight_host::Root;
use tailsight_record::{HookChoice, Options, Progress, SlowMessage, Stop, Traces, TxStamps};
use tailsight_units::{Untrusted, format};
use tailsight_watch::metrics::Metrics;
use tailsight_watch::{Budget, Condition, Leg, Limits, Recent, Refused};

use self::diagnosing::Diagnosing;
use self::folder::Folder;
use self::lines::{Capture, Ended, Event, LegPercentiles, Started};
use self::metrics_server::MetricsServer;
use crate::cli_watch::Watch;
use crate::{Exit, session, stop, terminal};

/// Between two looks for a slow message. A capture is made this much later at most.
const TURN: Duration = Duration::from_millis(50);
/// Between two readings of the latencies.
const READ: Duration = Duration::from_secs(1);
/// The buffers, unless --buffer says another size.
const MOST_BUFFER_BYTES: u64 = 128 << 20;
/// How long the end waits for a diagnosis.
const LAST_DIAGNOSIS: Duration = Duration::from_secs(20);

/// Watches until it is told to end.
pub fn run(args: &Watch) -> anyhow::Result<Exit> {
    if args.status {
        return status::print(&args.out, args.json);
    }
    let own_session = if args.target.command.is_empty() { session::of_its_own()? } else { false };
    let stop = stop::of_recording();
    let folder = Folder::open(&args.out, args.disk)?;
    let metrics_server = args.listen.map(MetricsServer::open).transpose()?;
    let options = options(args, own_session)?;
    let watch = tailsight_record::Watch::start(&options, args.keep, args.after, &stop, &mut |progress| {
        if let Progress::Loading { app, .. } = progress {
            say!("loading probes for {}", Untrusted(&app));
        }
    })?;
    Watching::new(args, watch, folder, metrics_server)?.until_the_end(&stop)
}

fn options(args: &Watch, own_session: bool) -> anyhow::Result<Options> {
    let memory = tailsight_host::proc::memory(&Root::host(), "MemTotal").unwrap_or(4 << 30);
    Ok(Options {
        selector: args.target.selector()?,
        duration: None,
        until: None,
        out: args.out.clone(),
        shared: args.into_shared,
        buffer_bytes: Some(args.buffer.unwrap_or((memory / 32).min(MOST_BUFFER_BYTES))),
        hooks: HookChoice::default(),
        payload: None,
        tx_stamps: TxStamps::Off,
        samples: args.sample,
        tasks: !args.no_tasks,
        confine: false,
        own_session,
        traces: Traces::default(),
        watches: true,
        version: env!("CARGO_PKG_VERSION").into(),
    })
}

/// A slow message of which a capture is to be made.
struct Due {
    slow: SlowMessage,
    leg: Leg,
    limit_ns: u64,
    at: Instant,
}

/// What is watched, and what came of it.
struct Watching<'a> {
    args: &'a Watch,
    watch: tailsight_record::Watch<'a>,
    folder: Folder,
    metrics_server: Option<MetricsServer>,
    limits: Limits,
    recent: Recent,
    budget: Budget,
    due: Option<Due>,
    diagnosing: Vec<Diagnosing>,
    counts: Counts,
    started: Instant,
    /// CPU time of this process by then, ns: loading the probes is not part of what watching costs.
    cpu_before_ns: u64,
    last_read: Instant,
    said_broad: bool,
    said_small: bool,
    said_away: bool,
}

/// What was counted.
#[derive(Default)]
struct Counts {
    slow: u64,
    captures: u64,
    failed: u64,
    refused: BTreeMap<&'static str, u64>,
    causes: BTreeMap<String, u64>,
}

impl<'a> Watching<'a> {
    fn new(
        args: &'a Watch,
        mut watch: tailsight_record::Watch<'a>,
        folder: Folder,
        metrics_server: Option<MetricsServer>,
    ) -> anyhow::Result<Watching<'a>> {
        let now = Instant::now();
        let recent = Recent::new(now, watch.latencies()?);
        let limits = args.when.limits(&recent.counts());
        watch.set_limits(limits);
        let (app, pids, ports) = watch.target();
        let started = Started {
            event: Event::Started,
            schema: 1,
            app: app.to_owned(),
            pids: pids.to_vec(),
            ports: ports.to_vec(),
            when: args.when.to_string(),
            buffer_bytes: watch.buffer_bytes(),
        };
        if args.json {
            terminal::print_json_line(&started)?;
        } else {
            let listed =
                |numbers: Vec<String>| if numbers.is_empty() { "none yet".to_owned() } else { numbers.join(", ") };
            let follows = if args.when.follows_latencies() { ", from the last five minutes" } else { "" };
            terminal::print(&format!(
                "watching {} (port {}; {} {}): slow is {}{follows}\n{} MiB of buffers hold the last events; captures go to {}; Ctrl-C ends\n",
                Untrusted(&started.app),
                listed(started.ports.iter().map(u16::to_string).collect()),
                started.pids.len(),
                if started.pids.len() == 1 { "process" } else { "processes" },
                started.when,
                started.buffer_bytes >> 20,
                args.out.display(),
            ))?;
            if let Some(server) = &metrics_server {
                terminal::print(&format!("metrics at http://{}/metrics\n", server.address()))?;
            }
        }
        let budget = Budget::new(args.every, args.per_hour);
        Ok(Watching {
            args,
            watch,
            folder,
            metrics_server,
            limits,
            recent,
            budget,
            due: None,
            diagnosing: vec![],
            counts: Counts::default(),
            started: now,
            cpu_before_ns: own_cpu_ns(),
            last_read: now,
            said_broad: false,
            said_small: false,
            said_away: false,
        })
    }

    fn until_the_end(mut self, stop: &Stop) -> anyhow::Result<Exit> {
        let why = loop {
            if stop.is_asked() {
                break "it was interrupted".to_owned();
            }
            if self.args.length.is_some_and(|length| self.started.elapsed() >= length) {
                break "its time is over".to_owned();
            }
            if self.args.captures.is_some_and(|most| self.counts.captures >= most) && self.diagnosing.is_empty() {
                break "there are as many captures as were asked for".to_owned();
            }
            self.watch.rest(TURN);
            if let Some(gone) = self.watch.look() {
                break gone;
            }
            let now = Instant::now();
            self.look_for_slow(now);
            if self.due.as_ref().is_some_and(|due| now >= due.at) {
                self.capture(now)?;
            }
            if now - self.last_read >= READ {
                self.last_read = now;
                self.read_latencies(now)?;
            }
            self.finish_diagnoses(false)?;
            self.serve_metrics();
            self.say_whether_it_is_there();
        };
        self.end(why, stop)
    }

    /// Takes what the recorder tells of a slow message.
    fn look_for_slow(&mut self, now: Instant) {
        if self.due.is_some() {
            return;
        }
        let Some(slow) = self.watch.slow_message() else { return };
        self.counts.slow += 1;
        // A limit that follows the latencies may have changed since.
        let Some((leg, limit_ns)) = Condition::exceeded(&self.limits, &slow.legs_ns) else {
            return self.watch.take_next();
        };
        let enough = self.args.captures.is_some_and(|most| self.counts.captures >= most);
        match self.budget.may_capture(now) {
            Ok(()) if !enough => self.due = Some(Due { slow, leg, limit_ns, at: now + self.args.after }),
            refused => {
                let why = match refused {
                    Err(Refused::TooSoon) => "too_soon",
                    Err(Refused::ThisHour) => "this_hour",
                    Ok(()) => "enough",
                };
                *self.counts.refused.entry(why).or_default() += 1;
                self.watch.take_next();
            }
        }
    }

    fn capture(&mut self, now: Instant) -> anyhow::Result<()> {
        let Some(Due { slow, leg, limit_ns, .. }) = self.due.take() else { return Ok(()) };
        let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let run = self.folder.next_run(unix_ns / 1_000_000_000);
        self.budget.made(now);
        let captured = self.watch.capture(&slow, &run);
        self.watch.take_next();
        let taken = self.args.after + now.elapsed();
        let captured = match captured {
            Ok(captured) => captured,
            // The server is watched all the same: the next one may have room.
            Err(error) => {
                self.counts.failed += 1;
                let _ = std::fs::remove_dir_all(&run);
                say!(
                    "tailsight: no capture of a message that took {}: {}",
                    format::duration(slow.ns(Leg::Total)),
                    tailsight_units::chain(&error)
                );
                return Ok(());
            }
        };
        self.counts.captures += 1;
        let meta = &captured.meta;
        let capture = Capture {
            event: Event::Capture,
            schema: 1,
            unix_ns: meta.started_unix_ns + slow.at_ns.saturating_sub(meta.start_ns),
            run: run.display().to_string(),
            app: meta.target.app.clone(),
            leg: leg.name().to_owned(),
            limit_ns,
            total_ns: slow.ns(Leg::Total),
            receive_ns: slow.ns(Leg::Receive),
            service_ns: slow.ns(Leg::Service),
            held_ns: meta.end_ns.saturating_sub(meta.start_ns),
            began_before: meta.capture.as_ref().is_some_and(|capture| capture.began_before),
            blind_ns: captured.blind.as_nanos() as u64,
            taken_ns: taken.as_nanos() as u64,
            messages: None,
            explained: None,
            causes: vec![],
            of_message: None,
            note: captured.error.as_ref().map(|error| tailsight_units::chain(error)),
        };
        match Diagnosing::start(capture.clone(), leg, slow.ports[1]) {
            Ok(diagnosing) => self.diagnosing.push(diagnosing),
            Err(error) => {
                self.say_capture(Capture { note: Some(format!("not diagnosed: {error:#}")), ..capture })?;
            }
        }
        Ok(())
    }

    fn finish_diagnoses(&mut self, at_once: bool) -> anyhow::Result<()> {
        let mut ended = vec![];
        self.diagnosing.retain_mut(|diagnosing| match diagnosing.ended(at_once) {
            Some(diagnosed) => {
                ended.push(diagnosed);
                false
            }
            None => true,
        });
        ended.into_iter().try_for_each(|diagnosed| self.say_capture(diagnosed))
    }

    fn say_capture(&mut self, capture: Capture) -> anyhow::Result<()> {
        if let Some(first) = capture.causes.first() {
            *self.counts.causes.entry(first.category.clone()).or_default() += 1;
        }
        if let Err(error) = self.folder.add(&capture).and_then(|()| self.folder.make_room()) {
            say!("tailsight: the folder {}: {error}", self.args.out.display());
        }
        if self.args.json {
            return terminal::print_json_line(&capture);
        }
        terminal::print(&status::capture_in_words(&capture, terminal::style().width))
    }

    fn read_latencies(&mut self, now: Instant) -> anyhow::Result<()> {
        self.recent.take(now, self.watch.latencies()?);
        let limits = self.args.when.limits(&self.recent.counts());
        if limits != self.limits {
            self.limits = limits;
            self.watch.set_limits(limits);
        }
        self.warn_of_a_broad_condition();
        self.warn_of_small_buffers();
        Ok(())
    }

    /// A server that is started again is watched again.
    fn say_whether_it_is_there(&mut self) {
        if self.said_away == self.watch.is_away() {
            return;
        }
        self.said_away = !self.said_away;
        let (app, pids, _) = self.watch.target();
        match self.said_away {
            true => say!("note: {} has ended; it is watched again when it comes back", Untrusted(app)),
            false => say!("note: {} is back, process {}", Untrusted(app), pids.first().copied().unwrap_or_default()),
        }
    }

    /// The buffers should reach as far back as a capture is to.
    fn warn_of_small_buffers(&mut self) {
        if self.said_small {
            return;
        }
        if let Some(reach) = self.watch.reach().filter(|reach| *reach < self.args.keep) {
            self.said_small = true;
            let (reach, mib) = (reach.as_secs_f64(), self.watch.buffer_bytes() >> 20);
            say!(
                "note: {mib} MiB of buffers hold {reach:.1} s of events here, less than --keep: --buffer gives them more"
            );
        }
    }

    /// A condition that most messages meet is not what was meant.
    fn warn_of_a_broad_condition(&mut self) {
        const ENOUGH: u64 = 200;
        let messages = self.recent.all().messages();
        if self.said_broad || messages < ENOUGH {
            return;
        }
        let slow = self.slow();
        if slow * 2 > messages {
            self.said_broad = true;
            let percentiles = LegPercentiles::of(self.recent.all());
            let usual = percentiles.iter().map(|leg| format!("{} {}", leg.leg, format::duration(leg.p99_ns)));
            say!(
                "note: {slow} of {messages} messages are slow by --when {}: the 99th percentiles are {}",
                self.args.when,
                usual.collect::<Vec<_>>().join(", ")
            );
        }
    }

    /// Slow messages so far.
    fn slow(&self) -> u64 {
        self.counts.slow + self.watch.further_slow()
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            target: self.watch.target().0.to_owned(),
            latencies: self.recent.all().clone(),
            slow: self.slow(),
            captures: self.counts.captures,
            causes: self.counts.causes.clone(),
            refused: self.counts.refused.clone(),
            failed: self.counts.failed,
            events: self.watch.events(),
            cpu_ns: own_cpu_ns().saturating_sub(self.cpu_before_ns),
        }
    }

    fn serve_metrics(&self) {
        if let Some(server) = &self.metrics_server {
            server.answer(|| self.metrics().text());
        }
    }

    fn end(mut self, why: String, stop: &Stop) -> anyhow::Result<Exit> {
        // A slow message that was told just before is not lost.
        if self.due.is_some() && !stop.is_urgent() {
            self.capture(Instant::now())?;
        }
        let until = Instant::now() + LAST_DIAGNOSIS;
        while !self.diagnosing.is_empty() {
            std::thread::sleep(TURN);
            let at_once = Instant::now() >= until || stop.is_urgent();
            self.finish_diagnoses(at_once)?;
        }
        self.recent.take(Instant::now(), self.watch.latencies()?);
        let ended = Ended {
            event: Event::Ended,
            why,
            watched_ns: self.started.elapsed().as_nanos() as u64,
            messages: self.recent.all().messages(),
            legs: LegPercentiles::of(self.recent.all()),
            slow: self.slow(),
            captures: self.counts.captures,
            cpu_ns: own_cpu_ns().saturating_sub(self.cpu_before_ns),
        };
        if self.args.json {
            terminal::print_json_line(&ended)?;
        } else {
            terminal::print(&status::end_in_words(&ended, &self.counts.refused, &self.args.out))?;
        }
        Ok(Exit::Done)
    }
}

/// CPU time of this process, ns; the diagnoses' are not in it.
fn own_cpu_ns() -> u64 {
    nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        let ns = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1_000;
        ns(usage.user_time()) + ns(usage.system_time())
    })
}

/// The folder as the messages name it.
fn shown(path: &Path) -> String {
    Untrusted(&path.display().to_string()).to_string()
}
