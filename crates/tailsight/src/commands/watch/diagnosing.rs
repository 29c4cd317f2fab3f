//! The diagnosis of a capture, in a process of its own after all others: it may need much memory, and must not hold up what watches.
//!
//! In: a capture's run. Out: diagnosis.json beside its events, and its causes in short.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use tailsight_advice::root_words;
use tailsight_confine::priority;
use tailsight_diagnose::model::{Cause, SlowMessage, TypicalRow};
use tailsight_diagnose::{Category, Diagnosis, Titled};
use tailsight_watch::Leg;

use super::lines::{Capture, CapturedCause};

/// How long a diagnosis may take.
const LONGEST: Duration = Duration::from_secs(300);
/// Causes that a line has.
const CAUSES: usize = 3;
/// Of these, with at least this part.
const LEAST_SHARE: f64 = 0.01;
/// Bytes of a diagnosis that are read at most.
const MOST_BYTES: u64 = 64 << 20;

/// A capture that is being diagnosed.
pub struct Diagnosing {
    capture: Capture,
    /// The client's port of the slow message.
    remote_port: u16,
    child: Child,
    into: PathBuf,
    since: Instant,
}

impl Diagnosing {
    /// Starts it.
    ///
    /// # Errors
    /// If no process can be started.
    pub fn start(capture: Capture, leg: Leg, remote_port: u16) -> anyhow::Result<Diagnosing> {
        let run = Path::new(&capture.run);
        let into = run.join("diagnosis.json");
        let itself = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(itself);
        command.arg("diagnose").arg(run).args(["--json", "--slower-than", &format!("{}ns", capture.limit_ns)]);
        // Where a leg alone was too long, that is explained.
        if leg != Leg::Total {
            command.args(["--leg", leg.name()]);
        }
        let out = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&into);
        let out = out.with_context(|| format!("cannot write {}", into.display()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
        let child = command.spawn().context("cannot start the diagnosis")?;
        priority::give_way(child.id());
        Ok(Diagnosing { capture, remote_port, child, into, since: Instant::now() })
    }

    /// Its end, when there is one. With `at_once` it is ended.
    pub fn ended(&mut self, at_once: bool) -> Option<Capture> {
        let ended = self.child.try_wait();
        if let Ok(None) = ended {
            if !at_once && self.since.elapsed() < LONGEST {
                return None;
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
            let why = if at_once { "it was ended" } else { "it took too long" };
            return Some(self.without_causes(format!("not diagnosed: {why}")));
        }
        let read = std::fs::read(&self.into).ok().filter(|bytes| bytes.len() as u64 <= MOST_BYTES);
        let Some(diagnosis) = read.and_then(|bytes| serde_json::from_slice::<Diagnosis>(&bytes).ok()) else {
            let mut said = String::new();
            if let Some(stderr) = self.child.stderr.take() {
                let _ = stderr.take(4096).read_to_string(&mut said);
            }
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no diagnosis came");
            return Some(self.without_causes(format!("not diagnosed: {}", last.trim_start_matches("tailsight: "))));
        };
        Some(self.with_causes(&diagnosis))
    }

    fn without_causes(&self, note: String) -> Capture {
        let _ = std::fs::remove_file(&self.into);
        Capture { note: Some(note), ..self.capture.clone() }
    }

    fn with_causes(&self, diagnosis: &Diagnosis) -> Capture {
        let of_message = self.message_alone(diagnosis);
        let causes = match of_message {
            Some(message) => {
                message.parts.iter().filter(|part| part.share >= LEAST_SHARE).map(of_part).take(CAUSES).collect()
            }
            None => {
                diagnosis.causes.iter().filter(|cause| cause.share >= LEAST_SHARE).map(of_cause).take(CAUSES).collect()
            }
        };
        Capture {
            messages: Some(diagnosis.messages.complete),
            explained: Some(of_message.map_or(diagnosis.focus.messages, |_| 1)),
            causes,
            of_message: of_message.map(|message| message.id),
            note: diagnosis.not_available.clone().or_else(|| self.capture.note.clone()),
            ..self.capture.clone()
        }
    }

    /// The slow message, where most of what the slowest took longer is too rare to tell from chance: no other message was like it, but of this one
    /// it is known where its time went.
    fn message_alone<'d>(&self, diagnosis: &'d Diagnosis) -> Option<&'d SlowMessage> {
        let by_chance: f64 = diagnosis
            .causes
            .iter()
            .filter(|cause| cause.category == Category::NotSignificant)
            .map(|cause| cause.share)
            .sum();
        let is_told = |message: &&SlowMessage| message.flow.ends_with(&format!(":{}", self.remote_port));
        // Of several on its connection the slowest stands first.
        diagnosis
            .slowest
            .iter()
            .find(is_told)
            .filter(|message| by_chance > 0.5 && message.latency_ns >= self.capture.limit_ns)
    }
}

fn of_cause(cause: &Cause) -> CapturedCause {
    CapturedCause {
        category: cause.category.as_str().to_owned(),
        words: cause.with_category(),
        function: cause.functions.first().map(|function| function.name.clone()),
        root: cause.root.first().map(root_words),
        share: cause.share,
    }
}

fn of_part(part: &TypicalRow) -> CapturedCause {
    CapturedCause {
        category: part.category.as_str().to_owned(),
        words: part.with_category(),
        function: None,
        root: None,
        share: part.share,
    }
}
