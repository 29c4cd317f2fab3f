//! The one session of an agent: its coordinator, the load that runs, and the lease that ends it.
//!
//! In: calls, already authenticated. Out: records. A watchdog thread ends the load when the coordinator's lease runs out, so
//! that no failure of the network or of the control plane can keep a load going. The watchdog never blocks: it sets a flag
//! that a load checks while it is prepared, while it runs and while it ends, and others wait for its threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tailsight_load::{Cursor, Driver, Interval, Prepared, Progress, Send};
use tempfile::NamedTempFile;

use crate::wire::{Records, Summary, not_given};

/// Without a call for this long the load ends. Keep-alives come every second. A quarter of a second less than is promised,
/// because the watchdog and the loading threads check only now and then.
pub(crate) const LEASE: Duration = Duration::from_millis(2_250);
/// How often the watchdog checks.
const LOOK: Duration = Duration::from_millis(25);
/// How often a call checks whether the load that ends has ended.
const ENDING: Duration = Duration::from_millis(10);

/// Where an agent writes what it does.
pub type Log = Arc<dyn Fn(&str) + Sync + std::marker::Send>;

/// A ready load, and its state once it runs.
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

/// A load with its state.
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

    /// Ends the load; returns the summary and the records that were not fetched yet.
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

/// The state of a session.
enum Phase {
    Idle,
    /// A call is starting a load and owns it.
    Busy,
    /// A load waits for its last replies; its state before.
    Ending(Progress),
    Ready(Box<Ready>),
    Loading(Box<Running>),
    Ended(Box<Ended>),
}

struct Session {
    id: u64,
    who: String,
    seen: Instant,
    /// Ends every load of the session at once, whichever thread owns it.
    over: Arc<AtomicBool>,
    phase: Phase,
}

/// The state that calls and the watchdog share.
pub(crate) struct Sessions {
    current: Mutex<Option<Session>>,
    closing: AtomicBool,
    log: Log,
}

/// Why a call cannot be served now; the text goes to the coordinator.
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
                // Without a watchdog nothing would end a load, so none is allowed.
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
        // A call that panicked leaves a valid session: each change of it is one assignment.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session unless another one is open.
    pub(crate) fn open(&self, id: u64, who: String) -> Result<(), Denied> {
        let mut current = self.lock();
        if self.closing.load(Ordering::Relaxed) {
            return Err("the agent ends".into());
        }
        if let Some(other) = current.as_ref() {
            return Err(format!("the agent is in use by {}; wait until it is done", other.who));
        }
        self.log(&format!("session opened by {who}"));
        let (seen, over) = (Instant::now(), Arc::default());
        *current = Some(Session { id, who, seen, over, phase: Phase::Idle });
        Ok(())
    }

    /// Renews the lease; returns whether a load runs.
    pub(crate) fn keep_alive(&self, id: u64) -> Result<bool, Denied> {
        self.with(id, |session| Ok(!matches!(session.phase, Phase::Idle | Phase::Ended(_))))
    }

    /// Takes the right to start a load; returns the flag that ends it with the session.
    pub(crate) fn begin_start(&self, id: u64) -> Result<Arc<AtomicBool>, Denied> {
        self.with(id, |session| match session.phase {
            // A load that never began is dropped.
            Phase::Idle | Phase::Ended(_) | Phase::Ready(_) => {
                session.phase = Phase::Busy;
                Ok(session.over.clone())
            }
            Phase::Busy | Phase::Ending(_) => Err("another call is still starting or stopping a load".into()),
            Phase::Loading(_) => Err("a load is already running; stop it first".into()),
        })
    }

    /// Stores the prepared load, or that there is none. If the session has ended meanwhile, the load is dropped.
    pub(crate) fn end_start(&self, id: u64, ready: Option<Ready>) -> Result<(), Denied> {
        self.change(id, |session| {
            session.phase = ready.map_or(Phase::Idle, |ready| Phase::Ready(Box::new(ready)));
            Ok(())
        })
    }

    /// Begins the prepared load; returns when its schedule begins.
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

    /// The state of the load, and whether the samples asked for are there.
    pub(crate) fn progress(&self, id: u64) -> Result<(Progress, bool), Denied> {
        self.with(id, |session| match &session.phase {
            Phase::Loading(running) => {
                let progress = running.driver.progress();
                let enough = running.wanted > 0 && progress.samples - running.window_from >= running.wanted;
                Ok((progress, enough))
            }
            Phase::Ending(progress) => Ok((*progress, false)),
            Phase::Ended(ended) => Ok((ended.progress, false)),
            phase => Err(idle(phase)),
        })
    }

    /// Records that were not returned before.
    pub(crate) fn records(&self, id: u64) -> Result<Records, Denied> {
        self.with(id, |session| match &mut session.phase {
            Phase::Loading(running) => Ok(running.records()),
            // They are returned at the end.
            Phase::Ending(_) => Ok(Records::default()),
            Phase::Ended(ended) => Ok(std::mem::take(&mut ended.records)),
            phase => Err(idle(phase)),
        })
    }

    /// Ends the load. Blocks until its last replies have come or were given up.
    pub(crate) fn stop(&self, id: u64) -> Result<Summary, Denied> {
        let running = loop {
            let taken = self.with(id, |session| match std::mem::replace(&mut session.phase, Phase::Busy) {
                Phase::Loading(running) => {
                    session.phase = Phase::Ending(running.driver.progress());
                    Ok(Some(Ok(running)))
                }
                Phase::Ended(ended) => {
                    let over = ended.reason.clone().map_or_else(|| Ok(ended.summary.clone()), Err);
                    session.phase = Phase::Ended(ended);
                    Ok(Some(Err(over)))
                }
                // The watchdog found it too fast, or another call stops it.
                Phase::Ending(progress) => {
                    session.phase = Phase::Ending(progress);
                    Ok(None)
                }
                // It never began: connections and threads are dropped.
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
            match taken {
                Some(taken) => break taken,
                None => std::thread::sleep(ENDING),
            }
        };
        match running {
            Ok(running) => Ok(self.finish(id, running, None, "load stopped by its coordinator")),
            Err(over) => over,
        }
    }

    /// Waits for the end of a load that another thread owns, and takes it back.
    fn finish(&self, id: u64, running: Box<Running>, reason: Option<String>, what: &str) -> Summary {
        let mut ended = running.finish();
        ended.reason = reason;
        let summary = ended.summary.clone();
        self.log(&said(what, &ended.progress));
        // When the session has ended meanwhile, nothing needs the records.
        let _ = self.change(id, |session| {
            session.phase = Phase::Ended(Box::new(ended));
            Ok(())
        });
        summary
    }

    /// Ends the session and its load.
    pub(crate) fn exit(&self, id: u64) -> Result<(), Denied> {
        self.with(id, |_| Ok(()))?;
        join(self.end("session closed by its coordinator"));
        Ok(())
    }

    /// Ends everything, for good.
    pub(crate) fn close(&self, why: &str) {
        self.closing.store(true, Ordering::Relaxed);
        join(self.end(why));
    }

    /// Ends the session and its work; returns the thread that waits for the end of its load, if one runs.
    fn end(&self, why: &str) -> Option<JoinHandle<()>> {
        let session = self.lock().take()?;
        // Whichever thread owns the load, and whatever its server does: from here on it ends by itself.
        session.over.store(true, Ordering::Relaxed);
        let Phase::Loading(running) = session.phase else {
            self.log(&format!("{why} ({})", session.who));
            return None;
        };
        running.driver.abandon();
        let progress = running.driver.progress();
        self.log(&said(&format!("{why} ({}): load ended", session.who), &progress));
        // Dropping a driver waits for its threads. If no thread can be started for that, it is done here.
        std::thread::Builder::new().name("load-end".into()).spawn(move || drop(running)).ok()
    }

    /// Acts for a call, which renews the lease.
    fn with<T>(&self, id: u64, act: impl FnOnce(&mut Session) -> Result<T, Denied>) -> Result<T, Denied> {
        self.change(id, |session| {
            session.seen = Instant::now();
            act(session)
        })
    }

    /// Acts without renewing the lease: work that a call began has ended.
    fn change<T>(&self, id: u64, act: impl FnOnce(&mut Session) -> Result<T, Denied>) -> Result<T, Denied> {
        let mut current = self.lock();
        match current.as_mut().filter(|session| session.id == id) {
            Some(session) => act(session),
            None => Err("this session has ended: its lease expired, or the agent was restarted".into()),
        }
    }

    /// One check of the watchdog.
    fn watch(self: &Arc<Self>) {
        let mut current = self.lock();
        let Some(session) = current.as_mut() else { return };
        if session.seen.elapsed() > LEASE {
            drop(current);
            // Nothing waits for its end here: the next coordinator has a watchdog too.
            drop(self.end("no message from the coordinator for 2.25 s"));
            return;
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
        let reason = format!("the closed loop reached {rate:.0} requests/s, {ceiling:.0} allowed (--max-rate)");
        running.driver.end();
        let progress = running.driver.progress();
        if let Phase::Loading(running) = std::mem::replace(&mut session.phase, Phase::Ending(progress)) {
            let (sessions, id) = (Arc::clone(self), session.id);
            std::thread::spawn(move || sessions.finish(id, running, Some(reason.clone()), &reason));
        }
    }
}

fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread {
        // It only drops; a panic of the load was caught by its driver.
        let _ = thread.join();
    }
}

fn idle(phase: &Phase) -> Denied {
    match phase {
        Phase::Busy | Phase::Ending(_) => "a load is being started or stopped".into(),
        Phase::Ended(ended) => ended.reason.clone().unwrap_or_else(|| "the load is over".into()),
        Phase::Idle | Phase::Ready(_) | Phase::Loading(_) => "no load runs".into(),
    }
}

/// A line of the log.
fn said(what: &str, progress: &Progress) -> String {
    let Progress { sent, answered, failed, elapsed_ns, .. } = progress;
    format!("{what}; {sent} requests sent in {:.1} s, {answered} answered, {failed} failed", *elapsed_ns as f64 / 1e9)
}
