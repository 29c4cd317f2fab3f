//! The changes that a diagnosis leads to. In: the causes of a round and the [`Config`] that it was recorded with. Out: the
//! next configuration with its reasons, and the causes for which nothing was changed with theirs. Nothing is run here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A cause of less than this part of the deviation is not worth a change.
pub const LEAST_SHARE: f64 = 0.03;
/// A round changes something for the largest causes until these make up so much of the deviation together.
pub const ENOUGH: f64 = 0.5;

/// A cause, as `tailsight diagnose --json` names it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    pub category: String,
    pub name: String,
    /// `A`: the application's core, `R`: the receive core.
    pub role: String,
    /// Its part of the focus's deviation.
    pub share: f64,
    pub deviation_ns: i64,
    /// Focus messages that it hit.
    pub messages: u64,
    /// The fix that the diagnosis names.
    pub fix: Vec<String>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({}) {:.0} %", self.category, self.name, self.role, self.share * 100.0)
    }
}

/// How memcached and nginx are set up. The default is theirs: nothing pinned, ordinary priority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Config {
    /// memcached on a core of its own, nginx on the others.
    pub apart: bool,
    /// memcached's threads in real time (`SCHED_FIFO`, priority 1).
    pub real_time: bool,
    /// Packets are processed on the client's core (RPS of both ends of the link).
    pub steered: bool,
    /// memcached's worker threads beyond one.
    pub more_threads: usize,
    /// memcached takes at most this many requests an event (`-R`; its own default is 20).
    pub per_event: Option<u32>,
}

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    Apart,
    RealTime,
    Steered,
    MoreThreads,
    PerEvent,
}

impl Change {
    /// What was changed, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Apart => "memcached pinned to a core of its own, nginx to the others (taskset)",
            Self::RealTime => "memcached in real time (chrt -f 1)",
            Self::Steered => "packets processed on the client's core (RPS)",
            Self::MoreThreads => "one more memcached thread (-t)",
            Self::PerEvent => "one request an event in memcached (-R 1)",
        }
    }
}

impl Config {
    /// This configuration with one more change.
    pub fn with(&self, change: Change) -> Self {
        let mut next = self.clone();
        match change {
            Change::Apart => {
                next.apart = true;
                // As in NSight §7.2: no more threads than cores.
                next.more_threads = 0;
            }
            Change::RealTime => next.real_time = true,
            Change::Steered => next.steered = true,
            Change::MoreThreads => next.more_threads += 1,
            Change::PerEvent => next.per_event = Some(1),
        }
        next
    }
}

/// A change and the causes that asked for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Made {
    pub change: Change,
    /// [`Change::words`].
    pub words: &'static str,
    /// Because of these, the largest first.
    pub why: Vec<Cause>,
}

/// What a round changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    pub changes: Vec<Made>,
    /// The configuration with these changes.
    pub config: Config,
}

/// A cause for which nothing was changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Passed {
    pub cause: Cause,
    pub reason: &'static str,
}

/// Changes for the largest causes for which something can be changed that is not changed yet, until they make up
/// [`ENOUGH`]; `None` when there is nothing to change. `cores`: of the machine.
pub fn decide(config: &Config, causes: &[Cause], cores: usize) -> (Option<Step>, Vec<Passed>) {
    let mut passed = Vec::new();
    let mut step = Step { changes: Vec::new(), config: config.clone() };
    let mut covered = 0.0;
    for cause in causes.iter().filter(|cause| cause.share >= LEAST_SHARE) {
        // The same change may help against several causes.
        let already = remedy(config, cause, cores).ok();
        if let Some(made) = step.changes.iter_mut().find(|made| Some(made.change) == already) {
            made.why.push(cause.clone());
        } else {
            match remedy(&step.config, cause, cores) {
                Ok(change) => {
                    step.config = step.config.with(change);
                    step.changes.push(Made { change, words: change.words(), why: vec![cause.clone()] });
                }
                Err(reason) => {
                    passed.push(Passed { cause: cause.clone(), reason });
                    continue;
                }
            }
        }
        covered += cause.share;
        if covered >= ENOUGH {
            break;
        }
    }
    ((!step.changes.is_empty()).then_some(step), passed)
}

/// Why nothing is changed for a task that real time did not help against.
const OUTRANKED: &str = "memcached runs in real time already, and the task is not ours to move";

/// What to change for a cause, or why nothing can be.
fn remedy(config: &Config, cause: &Cause, cores: usize) -> Result<Change, &'static str> {
    let begins_with = |names: &[&str]| names.iter().any(|name| cause.name.starts_with(name));
    let on_app = cause.role != "R";
    let real_time = || if config.real_time { Err(OUTRANKED) } else { Ok(Change::RealTime) };
    match cause.category.as_str() {
        // nginx and the client can be kept away; with real time, no task delays memcached.
        "interference" if begins_with(&["nginx", "lab"]) && !config.apart => Ok(Change::Apart),
        "interference" | "os-threads" if on_app => real_time(),
        "interference" | "os-threads" => {
            Err("it is on the receive core, which is the client's: there is no third core")
        }
        "wakeup-delay" if begins_with(&["migrat", "load-balance"]) && !config.apart => Ok(Change::Apart),
        "wakeup-delay" if begins_with(&["wake-pending", "idle"]) => {
            Err("idle states belong to the host of this virtual machine (or to cpupower); not changed")
        }
        "wakeup-delay" => real_time(),
        "receive-processing" if on_app && !config.steered => Ok(Change::Steered),
        "receive-processing" => Err("packets are processed on the client's core already"),
        "hol-blocking" => {
            // Threads that share one core wait for each other.
            if !config.apart && config.more_threads + 1 < cores {
                Ok(Change::MoreThreads)
            } else if config.per_event.is_none() {
                Ok(Change::PerEvent)
            } else {
                Err("memcached has one core and takes one request an event already")
            }
        }
        "interrupts" => Err("the link is virtual: it has no interrupt that could be moved"),
        "nic-delay" => Err("the link is virtual: it has no NIC that stamps"),
        "softirq-delay" => Err("a virtual link: the sender's core raises the softirq"),
        "steal" => Err("the host took the core; only the host can change that"),
        "profiler" => Err("the recorder itself; it is not there when latency is measured"),
        "app-processing" => Err("memcached's own work"),
        _ => Err("its fix changes the whole machine or the program; not done here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(category: &str, name: &str, role: &str, share: f64) -> Cause {
        Cause {
            category: category.into(),
            name: name.into(),
            role: role.into(),
            share,
            deviation_ns: 1000,
            messages: 10,
            fix: vec![],
        }
    }

    fn chosen(config: &Config, causes: &[Cause]) -> Option<Change> {
        decide(config, causes, 2).0.map(|step| step.changes[0].change)
    }

    #[test]
    fn interference_is_kept_away_and_then_outranked() {
        let nginx = [cause("interference", "nginx", "A", 0.8)];
        let apart = Config::default().with(Change::Apart);
        assert_eq!(chosen(&Config::default(), &nginx), Some(Change::Apart));
        assert_eq!(chosen(&apart, &nginx), Some(Change::RealTime));
        let (step, passed) = decide(&apart.with(Change::RealTime), &nginx, 2);
        assert!(step.is_none());
        assert_eq!(passed[0].reason, OUTRANKED);
        // A task that the study did not start is never moved.
        assert_eq!(chosen(&Config::default(), &[cause("interference", "cron", "A", 0.8)]), Some(Change::RealTime));
    }

    #[test]
    fn what_cannot_be_changed_is_passed_with_its_reason_and_the_next_cause_is_taken() {
        let causes = [
            cause("wakeup-delay", "idle", "A", 0.5),
            cause("steal", "", "A", 0.2),
            cause("hol-blocking", "memcached", "A", 0.1),
            cause("interference", "nginx", "A", 0.01),
        ];
        let (step, passed) = decide(&Config::default().with(Change::Apart), &causes, 2);
        assert_eq!(passed.len(), 2);
        let step = step.unwrap();
        assert_eq!(step.changes.len(), 1);
        assert_eq!(
            (step.changes[0].change, step.changes[0].why[0].category.as_str()),
            (Change::PerEvent, "hol-blocking")
        );
        // The last one is too small to be worth a change.
        assert_eq!(chosen(&Config::default(), &causes[3..]), None);
        assert_eq!(chosen(&Config::default(), &[]), None);
    }

    #[test]
    fn a_round_changes_things_until_half_of_the_deviation_is_met() {
        let causes = [
            cause("os-threads", "kworker", "A", 0.3),
            cause("steal", "", "A", 0.2),
            cause("interference", "cron", "A", 0.1),
            cause("interference", "nginx", "A", 0.11),
            cause("receive-processing", "packet:nginx", "A", 0.09),
        ];
        let (step, passed) = decide(&Config::default(), &causes, 2);
        let step = step.unwrap();
        // The last one comes after half of it; stolen time counts for nothing.
        let changes: Vec<_> = step.changes.iter().map(|made| (made.change, made.why.len())).collect();
        assert_eq!(changes, [(Change::RealTime, 2), (Change::Apart, 1)]);
        assert_eq!(passed.len(), 1);
        assert_eq!(step.config, Config { apart: true, real_time: true, ..Config::default() });
    }

    #[test]
    fn on_a_core_of_its_own_memcached_has_one_thread_again() {
        let config = Config::default().with(Change::MoreThreads).with(Change::Apart);
        assert_eq!(config.more_threads, 0);
        // Decided in one round too: no thread is added on the one core.
        let causes = [cause("interference", "nginx", "A", 0.3), cause("hol-blocking", "memcached", "A", 0.3)];
        let changes: Vec<_> =
            decide(&Config::default(), &causes, 2).0.unwrap().changes.iter().map(|m| m.change).collect();
        assert_eq!(changes, [Change::Apart, Change::PerEvent]);
    }

    #[test]
    fn threads_are_added_only_where_they_can_run_at_once() {
        let hol = [cause("hol-blocking", "memcached", "A", 0.5)];
        let mut config = Config::default();
        assert_eq!(chosen(&config, &hol), Some(Change::MoreThreads));
        config = config.with(Change::MoreThreads);
        assert_eq!((config.more_threads, chosen(&config, &hol)), (1, Some(Change::PerEvent)));
        assert_eq!(chosen(&config.with(Change::PerEvent), &hol), None);
    }

    #[test]
    fn receive_processing_moves_once_and_only_from_the_application_core() {
        let app = [cause("receive-processing", "packet:nginx", "A", 0.5)];
        assert_eq!(chosen(&Config::default(), &app), Some(Change::Steered));
        assert_eq!(chosen(&Config::default().with(Change::Steered), &app), None);
        assert_eq!(chosen(&Config::default(), &[cause("receive-processing", "x", "R", 0.5)]), None);
    }
}
