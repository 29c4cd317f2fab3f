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
use tailsight_diagnose::{Diagnosis, Titled};
use tailsight_watch::Leg;

use super::lines::{Capture, CapturedCause};

/// How long a diagnosis may take.
const LONGEST: Duration = Duration::from_secs(300);
/// Causes that a line has.
const CAUSES: usize = 3;
/// Bytes of a diagnosis that are read at most.
const MOST_BYTES: u64 = 64 << 20;

/// A capture that is being diagnosed.
pub struct Diagnosing {
    capture: Capture,
    child: Child,
    into: PathBuf,
    since: Instant,
}

impl Diagnosing {
    /// Starts it.
    ///
    /// # Errors
    /// If no process can be started.
    pub fn start(capture: Capture, leg: Leg) -> anyhow::Result<Diagnosing> {
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
        Ok(Diagnosing { capture, child, into, since: Instant::now() })
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
        let cause = |cause: &tailsight_diagnose::model::Cause| CapturedCause {
            category: cause.category.as_str().to_owned(),
            words: cause.with_category(),
            function: cause.functions.first().map(|function| function.name.clone()),
            root: cause.root.first().map(root_words),
            share: cause.share,
        };
        let largest = diagnosis.causes.iter().filter(|cause| cause.share > 0.0).take(CAUSES).map(cause).collect();
        Capture {
            messages: Some(diagnosis.messages.complete),
            explained: Some(diagnosis.focus.messages),
            causes: largest,
            note: diagnosis.not_available.clone(),
            ..self.capture.clone()
        }
    }
}
