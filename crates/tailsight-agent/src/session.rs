//! The one session of an agent: who drives it, the load that runs, and the lease that ends it.
//!
//! In: calls, already authenticated. Out: records. A watchdog thread of its own ends the load when the coordinator's lease
//! runs out, so that nothing that happens to the network or to the control plane can keep a load going.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tailsight_load::{Cursor, Driver, Interval, Prepared, Progress, Send};
use tempfile::NamedTempFile;

use crate::wire::{Records, Summary, not_given};

/// Without a sign of life for this long the load ends. Keep-alives come every second.
pub(crate) const LEASE: Duration = Duration::from_millis(2_500);
/// How often the watchdog looks.
const LOOK: Duration = Duration::from_millis(50);

/// Where an agent writes what it does.
pub type Log = Arc<dyn Fn(&str) + Sync + std::marker::Send>;

/// A load that is ready, and what it keeps beside it once it runs.
pub(crate) struct Ready {
    prepared: Prepared,
    files: Vec<NamedTempFile>,
    max_rate: f64,
}

impl Ready {
    pub(crate) fn new(prepared: Prepared, files: Vec<NamedTempFile>, max_rate: f64) -> Self {
        Self { prepared, files, max_rate }
    }

    pub(crate) fn plan(&self) -> &tailsight_load::Plan {
        self.prepared.plan()
    }

    fn go(self, start_ns: u64) -> Running {
        Running::new(self.prepared.go(start_ns), self.files, self.max_rate)
    }
}

/// A load with what is kept beside it.
pub(crate) struct Running {
    pub(crate) driver: Driver,
    cursor: Cursor,
    given: Vec<(u64, u32)>,
    given_sends: usize,
    given_intervals: Vec<usize>,
    wanted: u64,
    window_from: u64,
    /// Requests/s beyond which a closed loop is stopped; open ones were checked before.
    ceiling: Option<f64>,
    seen: (Instant, u64),
    _files: Vec<NamedTempFile>,
}

impl Running {
    fn new(driver: Driver, files: Vec<NamedTempFile>, max_rate: f64) -> Self {
        let closed = driver.plan().arrivals.is_closed();
        Self {
            given_intervals: vec![0; driver.plan().threads as usize],
            driver,
            cursor: Cursor::default(),
            given: Vec::new(),
            given_sends: 0,
            wanted: 0,
            window_from: 0,
            ceiling: closed.then_some(max_rate),
            seen: (Instant::now(), 0),
            _files: files,
        }
    }

    pub(crate) fn measure(&mut self, samples: u64, sampling: f64) -> u16 {
        self.wanted = samples;
        self.window_from = self.driver.progress().samples;
        self.driver.measure(sampling)
    }

    fn records(&mut self) -> Records {
        let samples = self.driver.samples_since(&mut self.cursor);
        self.given.extend(samples.iter().map(|s| (s.intended_ns, s.connection)));
        let sends = self.driver.sends_since(&mut self.cursor);
        self.given_sends += sends.len();
        let lists = self.driver.intervals_since(&mut self.cursor);
        for (given, list) in self.given_intervals.iter_mut().zip(&lists) {
            *given += list.len();
        }
        Records { samples, sends, intervals: with_threads(lists) }
    }

    /// Ends the load; gives the summary and the records that nobody has had yet.
    fn finish(self) -> Ended {
        let outcome = self.driver.stop();
        let summary = Summary::from(&outcome);
        let lists = outcome.intervals.iter().zip(&self.given_intervals);
        let intervals = with_threads(lists.map(|(list, given)| list[*given..].to_vec()).collect());
        let sends: Vec<Send> = outcome.sends.get(self.given_sends..).unwrap_or_default().to_vec();
        let progress = Progress {
            elapsed_ns: outcome.duration_ns(),
            sent: outcome.counts.sent,
            answered: outcome.counts.answered(),
            failed: outcome.counts.failed(),
            blocked: outcome.counts.blocked,
            samples: outcome.samples.len() as u64,
            ended: true,
        };
        let records = Records { samples: not_given(outcome.samples, self.given), sends, intervals };
        Ended { summary, records, progress, reason: None }
    }
}

fn with_threads(lists: Vec<Vec<Interval>>) -> Vec<(u32, Interval)> {
    let rows = (0_u32..).zip(lists).flat_map(|(thread, list)| list.into_iter().map(move |row| (thread, row)));
    rows.collect()
}

/// A load that is over, until its records are fetched.
pub(crate) struct Ended {
    pub(crate) summary: Summary,
    records: Records,
    progress: Progress,
    /// Why the agent itself ended it.
    pub(crate) reason: Option<String>,
}

/// What a session does.
enum Phase {
    Idle,
    /// A load is being started or stopped by the call with this number; it is not in our hands.
    Busy,
    Ready(Box<Ready>),
    Loading(Box<Running>),
    Ended(Box<Ended>),
}

struct Session {
    id: u64,
    who: String,
    seen: Instant,
    phase: Phase,
}

/// The state that calls and the watchdog share.
pub(crate) struct Sessions {
    current: Mutex<Option<Session>>,
    closing: AtomicBool,
    log: Log,
}

/// Why a call cannot be served now; the words go to the coordinator.
pub(crate) type Denied = String;

impl Sessions {
    /// With its watchdog, which ends with [`Sessions::close`].
    pub(crate) fn new(log: Log) -> Arc<Self> {
        let sessions = Arc::new(Self { current: Mutex::new(None), closing: AtomicBool::new(false), log });
        let watched = Arc::downgrade(&sessions);
        std::thread::spawn(move || {
            while let Some(sessions) = watched.upgrade() {
                if sessions.closing.load(Ordering::Relaxed) {
                    return;
                }
                // Without a watchdog nothing would end a load: then there is none.
                if catch_unwind(AssertUnwindSafe(|| sessions.watch())).is_err() {
                    return sessions.close("the watchdog failed; please report it");
                }
                drop(sessions);
                std::thread::sleep(LOOK);
            }
        });
        sessions
    }

    pub(crate) fn log(&self, text: &str) {
        (self.log)(text);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Session>> {
        // A call that panicked leaves a session that is still whole: each change of it is one assignment.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session unless another one lives.
    pub(crate) fn open(&self, id: u64, who: String) -> Result<(), Denied> {
        let mut current = self.lock();
        if self.closing.load(Ordering::Relaxed) {
            return Err("the agent ends".into());
        }
        if let Some(other) = current.as_ref() {
            return Err(format!("the agent is in use by {}; wait until it is done", other.who));
        }
        self.log(&format!("session opened by {who}"));
        *current = Some(Session { id, who, seen: Instant::now(), phase: Phase::Idle });
        Ok(())
    }

    /// Renews the lease; whether a load runs.
    pub(crate) fn keep_alive(&self, id: u64) -> Result<bool, Denied> {
        self.with(id, |session| Ok(matches!(session.phase, Phase::Loading(_) | Phase::Ready(_) | Phase::Busy)))
    }

    /// Takes the right to start a load.
    pub(crate) fn begin_start(&self, id: u64) -> Result<(), Denied> {
        self.with(id, |session| match session.phase {
            Phase::Idle | Phase::Ended(_) => {
                session.phase = Phase::Busy;
                Ok(())
            }
            Phase::Busy => Err("another call is still starting or stopping a load".into()),
            // One that was never begun is let go.
            Phase::Ready(_) => {
                session.phase = Phase::Busy;
                Ok(())
            }
            Phase::Loading(_) => Err("a load runs already; stop it first".into()),
        })
    }

    /// Hands over what is ready, or that nothing is. When the session has gone meanwhile it is let go at once.
    pub(crate) fn end_start(&self, id: u64, ready: Option<Ready>) -> Result<(), Denied> {
        self.with(id, |session| {
            session.phase = ready.map_or(Phase::Idle, |ready| Phase::Ready(Box::new(ready)));
            Ok(())
        })
    }

    /// Begins the load that is ready; says when its schedule begins.
    pub(crate) fn go(&self, id: u64, start_ns: u64) -> Result<u64, Denied> {
        self.with(id, |session| match std::mem::replace(&mut session.phase, Phase::Idle) {
            Phase::Ready(ready) => {
                let running = ready.go(start_ns);
                let begins_ns = running.driver.start_ns();
                session.phase = Phase::Loading(Box::new(running));
                Ok(begins_ns)
            }
            phase => {
                session.phase = phase;
                Err("no load is ready; call start_load first".into())
            }
        })
    }

    pub(crate) fn measure(&self, id: u64, samples: u64, sampling: f64) -> Result<u16, Denied> {
        self.with(id, |session| match &mut session.phase {
            Phase::Loading(running) => Ok(running.measure(samples, sampling)),
            phase => Err(idle(phase)),
        })
    }

    /// How the load stands, and whether the samples asked for are there.
    pub(crate) fn progress(&self, id: u64) -> Result<(Progress, bool), Denied> {
        self.with(id, |session| match &session.phase {
            Phase::Loading(running) => {
                let progress = running.driver.progress();
                let enough = running.wanted > 0 && progress.samples - running.window_from >= running.wanted;
                Ok((progress, enough))
            }
            Phase::Ended(ended) => Ok((ended.progress, false)),
            phase => Err(idle(phase)),
        })
    }

    /// Records that were not given before.
    pub(crate) fn records(&self, id: u64) -> Result<Records, Denied> {
        self.with(id, |session| match &mut session.phase {
            Phase::Loading(running) => Ok(running.records()),
            Phase::Ended(ended) => Ok(std::mem::take(&mut ended.records)),
            phase => Err(idle(phase)),
        })
    }

    /// Ends the load. Blocks until its last replies have come or were given up.
    pub(crate) fn stop(&self, id: u64) -> Result<Summary, Denied> {
        let running = self.with(id, |session| match std::mem::replace(&mut session.phase, Phase::Busy) {
            Phase::Loading(running) => Ok(Ok(running)),
            Phase::Ended(ended) => {
                let summary = ended.summary.clone();
                let reason = ended.reason.clone();
                session.phase = Phase::Ended(ended);
                Ok(Err(reason.map_or(Ok(summary), Err)))
            }
            // It was never begun: connections and threads are let go.
            Phase::Ready(_) => {
                session.phase = Phase::Idle;
                Err("no load runs".into())
            }
            phase => {
                let denied = idle(&phase);
                session.phase = phase;
                Err(denied)
            }
        })?;
        let running = match running {
            Ok(running) => running,
            Err(over) => return over,
        };
        let ended = running.finish();
        let summary = ended.summary.clone();
        self.log(&said("load stopped by its coordinator", &ended.progress));
        // When the session has gone meanwhile, nobody waits for the records.
        let _ = self.with(id, |session| {
            session.phase = Phase::Ended(Box::new(ended));
            Ok(())
        });
        Ok(summary)
    }

    /// Ends the session and its load.
    pub(crate) fn exit(&self, id: u64) -> Result<(), Denied> {
        self.with(id, |_| Ok(()))?;
        self.end("session closed by its coordinator");
        Ok(())
    }

    /// Ends everything, for good.
    pub(crate) fn close(&self, why: &str) {
        self.closing.store(true, Ordering::Relaxed);
        self.end(why);
    }

    fn end(&self, why: &str) {
        let Some(session) = self.lock().take() else { return };
        match session.phase {
            Phase::Loading(running) => {
                let progress = running.driver.progress();
                // Dropping a driver ends its threads without waiting for replies.
                drop(running);
                self.log(&said(&format!("{why} ({}): load ended", session.who), &progress));
            }
            _ => self.log(&format!("{why} ({})", session.who)),
        }
    }

    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Session) -> Result<T, Denied>) -> Result<T, Denied> {
        let mut current = self.lock();
        match current.as_mut().filter(|session| session.id == id) {
            Some(session) => {
                session.seen = Instant::now();
                act(session)
            }
            None => Err("this session is over: its lease ran out, or the agent was restarted".into()),
        }
    }

    /// One look of the watchdog.
    fn watch(&self) {
        let mut current = self.lock();
        let Some(session) = current.as_mut() else { return };
        if session.seen.elapsed() > LEASE {
            drop(current);
            return self.end("no sign of life from the coordinator for 2.5 s");
        }
        let Phase::Loading(running) = &mut session.phase else { return };
        let (Some(ceiling), (then, before)) = (running.ceiling, running.seen) else { return };
        let elapsed = then.elapsed().as_secs_f64();
        if elapsed < 0.25 {
            return;
        }
        let sent = running.driver.progress().sent;
        running.seen = (Instant::now(), sent);
        let rate = (sent - before) as f64 / elapsed;
        if rate <= ceiling {
            return;
        }
        let reason = format!("the closed loop reached {rate:.0} requests/s, {ceiling:.0} are allowed (--max-rate)");
        if let Phase::Loading(running) = std::mem::replace(&mut session.phase, Phase::Busy) {
            let mut ended = running.finish();
            self.log(&said(&reason, &ended.progress));
            ended.reason = Some(reason);
            session.phase = Phase::Ended(Box::new(ended));
        }
    }
}

fn idle(phase: &Phase) -> Denied {
    match phase {
        Phase::Busy => "a load is being started or stopped".into(),
        Phase::Ended(ended) => ended.reason.clone().unwrap_or_else(|| "the load is over".into()),
        Phase::Idle | Phase::Ready(_) | Phase::Loading(_) => "no load runs".into(),
    }
}

/// A line of the log.
fn said(what: &str, progress: &Progress) -> String {
    let Progress { sent, answered, failed, elapsed_ns, .. } = progress;
    format!("{what}; {sent} requests sent in {:.1} s, {answered} answered, {failed} failed", *elapsed_ns as f64 / 1e9)
}
