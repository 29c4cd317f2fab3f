//! One sentence for each cause, with its numbers.
//!
//! In: a [`Cause`]. Out: text.

use std::collections::BTreeMap;

use tailsight_diagnose::cause::names::{Titled, did, waited};
use tailsight_diagnose::cause::{Category, Subject};
use tailsight_diagnose::functions::without_arguments;
use tailsight_diagnose::model::{Cause, Root};
use tailsight_kernel::syscalls::named_waits_for_work;
use tailsight_lifetime::Role;
use tailsight_units::format::{duration, signed_duration as human};

use crate::data::ADVICE;
use crate::{Advisor, functions, placeholders};

/// From this part of a cause's time before the receive call on, all of it is.
const ALL_BEFORE: f64 = 0.98;
/// Names of rows that are no causes.
const MOST_NAMES: usize = 5;

/// A sentence of clauses.
fn joined(clauses: impl IntoIterator<Item = String>) -> String {
    clauses.into_iter().collect::<Vec<_>>().join("; ")
}

impl Advisor<'_> {
    /// The sentence of a cause, and that a part of its time is counted more than once.
    pub fn explanation(&self, cause: &Cause) -> String {
        let ran_ns = self.ran_only_ns.filter(|_| is_own_work(cause));
        let only =
            |ns| format!("a part of it is work for other requests: the threads ran only {} for each", duration(ns));
        joined([self.sentence(cause)].into_iter().chain(ran_ns.map(only)))
    }

    /// One plain sentence with the numbers of a cause, or of a row that is none.
    pub fn sentence(&self, cause: &Cause) -> String {
        let how = self.before(cause).into_iter().chain(estimated(cause));
        let happened = joined([self.happened(cause)].into_iter().chain(how)) + &self.ahead(cause);
        let rest = holder(cause).into_iter().chain(held(&cause.root)).chain(functions::clauses(cause));
        joined([happened].into_iter().chain(rest).chain(guessed(cause)))
    }

    /// What happened, for how long and how often.
    fn happened(&self, cause: &Cause) -> String {
        let hit = if cause.deviation_ns > 0 {
            format!(", in {} of {} {} messages", cause.messages, self.focus_messages, self.messages())
        } else {
            String::new()
        };
        let what = self.of_subject(cause).unwrap_or_else(|| self.of_category(cause));
        what + &self.how_much(cause) + &hit
    }

    /// What the messages under study are called.
    fn messages(&self) -> &'static str {
        if self.tail { "slow" } else { "focus" }
    }

    /// How much of it was before the receive call: the sentence is of most of the time, and the number of messages of all.
    fn before(&self, cause: &Cause) -> Option<String> {
        let before = cause.before_receive.filter(|before| cause.is_before_receive() && *before < ALL_BEFORE)?;
        (cause.role == Role::A && cause.deviation_ns > 0)
            .then(|| format!("{:.0} % of it before they were received", before * 100.0))
    }

    /// How many messages were ahead, where that is more than usual to the digits that are shown.
    fn ahead(&self, cause: &Cause) -> String {
        let Some(ahead) = cause.ahead.as_ref().filter(|_| cause.category == Category::HolBlocking) else {
            return String::new();
        };
        let [shown, usual] = [ahead.focus, ahead.reference].map(|n| format!("{n:.1}"));
        // The number has the messages that the thread took since, without the one in service then. Where it is less than one for each message
        // that the cause hit, that one is what they waited behind, and the number is of something else.
        let are_counted = ahead.focus * self.focus_messages as f64 >= cause.messages as f64;
        if ahead.focus > ahead.reference && shown != usual && are_counted {
            format!(" ({shown} messages ahead on average, usually {usual})")
        } else {
            String::new()
        }
    }

    /// What happened, where who or what it was says more than the category.
    fn of_subject(&self, cause: &Cause) -> Option<String> {
        use Category::{AppProcessing, BackendWait, LockWait};
        let (app, title, subject) = (self.app, cause.title(), cause.subject.as_ref()?);
        Some(match (subject, cause.category) {
            (Subject::LaterArrivals, _) => format!("{app} served later messages first"),
            // It may have worked for this message, or for one before it.
            (Subject::OtherThread { .. }, AppProcessing) => {
                format!("another thread of {app} was waited for, or had its core ({title})")
            }
            (Subject::Holder { name }, LockWait) => {
                format!("{app} waited for a lock, or for what {name} was to hand over ({title})")
            }
            (Subject::OtherThreads { .. }, _) => {
                format!("{app} had other messages in its other workers, for which it waited ({title})")
            }
            (Subject::WaitIn { until_timer: true, .. }, AppProcessing) => {
                format!("{app} waited until a timer of its own went off")
            }
            (Subject::PutAside { .. }, _) => {
                format!(
                    "{app} put the request aside while its thread waited for other clients, and the kernel does not show for what"
                )
            }
            (Subject::WaitIn { call: Some(call), .. }, AppProcessing) if named_waits_for_work(call) => {
                format!("{app} waited for what the kernel does not show, its thread in {call}")
            }
            (Subject::Turn { .. }, _) => format!("{app} waited for {title}"),
            // Where its task waited says what for.
            (Subject::Runtime { .. }, BackendWait) => format!("{app} waited for another server ({title})"),
            (Subject::Runtime { .. }, AppProcessing) => format!("{app} itself waited ({title})"),
            (Subject::Named { name }, _) if name == "parked" => format!("a task of {app} waited ({title})"),
            (_, AppProcessing) => {
                format!("{app} waited {} before it went on", waited(cause.category, subject, &cause.frames)?)
            }
            _ => return None,
        })
    }

    /// What happened, by the category.
    fn of_category(&self, cause: &Cause) -> String {
        let says = ADVICE.categories.get(&cause.category).map_or("{name}", |a| {
            match (cause.role, &a.says_r, &a.says_before, &a.says_received) {
                (Role::R, Some(r), ..) => r,
                (Role::A, _, Some(earlier), _) if cause.is_before_receive() => earlier,
                (Role::A, .., Some(later)) if cause.is_received() => later,
                _ => &a.says,
            }
        });
        let core = match cause.role {
            Role::A => format!("the core that {} was waiting for", self.app),
            Role::R => "the core where the packet was waiting".to_owned(),
        };
        let filled = placeholders::replace(says, |key| match key {
            "name" => Some(cause.title() + &whose(cause)),
            "app" => Some(self.app.to_owned()),
            "core" => Some(core.clone()),
            _ => None,
        });
        filled.unwrap_or_else(|| cause.name.clone())
    }

    /// How much of the deviation it is.
    fn how_much(&self, cause: &Cause) -> String {
        let (dev, total, slow) = (cause.deviation_ns, self.total_ns, self.messages());
        match (dev, total) {
            (0, _) => ": no more and no less than in the reference messages".to_owned(),
            (..0, 0..) => format!(": {} less than in the reference messages", human(-dev)),
            (..0, _) => {
                format!(": {} less, of the {} that the {slow} messages were faster", human(-dev), human(-total))
            }
            (_, ..0) => format!(": {} more than in the reference messages", human(dev)),
            _ if dev > total => format!(": {} more ({slow} messages took {} longer in all)", human(dev), human(total)),
            _ => format!(": {} of the {}", human(dev), human(total)),
        }
    }
}

/// That it was inferred from numbers.
fn estimated(cause: &Cause) -> Option<String> {
    cause.inferred.then(|| "estimated from how the application's own time grows with their number".to_owned())
}

/// That a part of a cause rests on a guess, and on which.
fn guessed(cause: &Cause) -> Option<String> {
    let share = cause.guessed?;
    let part = if share > 0.995 { String::new() } else { format!(" ({:.0} % of it)", share * 100.0) };
    let why = match cause.subject {
        Some(Subject::WaitIn { until_timer: true, .. }) => {
            "the timer ended the wait, but its thread did other things meanwhile, for which the request may have waited first"
        }
        _ => "its thread had several requests open, and the order of calls alone says which of them asked",
    };
    Some(format!("guessed{part}: {why}"))
}

/// Whether it is a wait of which the kernel does not show what it was for.
fn is_not_shown(cause: &Cause) -> bool {
    let is_wait = |subject: &Subject| match subject {
        Subject::WaitIn { call: Some(call), until_timer: false, .. } => named_waits_for_work(call),
        Subject::PutAside { .. } => true,
        _ => false,
    };
    cause.category == Category::AppProcessing && cause.subject.as_ref().is_some_and(is_wait)
}

/// Beside a first cause that is such a wait, the largest one that the kernel does show. Of those below this part of the difference none.
pub fn shown_beside(causes: &[Cause]) -> Option<String> {
    const LEAST: f64 = 0.05;
    let (first, others) = causes.split_first().filter(|(first, _)| is_not_shown(first))?;
    let is_shown = |cause: &&Cause| cause.share >= LEAST && cause.category.is_named() && !is_not_shown(cause);
    let largest = others.iter().find(is_shown).filter(|_| first.deviation_ns > 0)?;
    let share = 100.0 * largest.share;
    Some(format!("the largest cause that the kernel does show is {}, {share:.0} %", largest.with_category()))
}

/// Whether a cause is work of the message itself. A runtime's own work is not: a collector runs on other threads.
fn is_own_work(cause: &Cause) -> bool {
    let is_others = |subject: &Subject| matches!(subject, Subject::OtherThread { .. }) || subject.is_own_wait();
    let others = cause.subject.as_ref().is_some_and(is_others);
    cause.category == Category::AppProcessing && !others
}

/// Which process it was, and where it belongs: for the first mention of a task in a sentence. Nothing when the name says all.
fn whose(cause: &Cause) -> String {
    let Some(who) = &cause.who else { return String::new() };
    // A thread of the application, and a kernel thread, is named as a thread.
    if !cause.category.is_processes() {
        return String::new();
    }
    let some = |n: u32, what: &str| (n > 1).then(|| format!("{n} {what}"));
    let processes = some(who.processes, "processes").unwrap_or_else(|| format!("process {}", who.pid));
    let threads = some(who.threads, "threads").filter(|_| who.threads != who.processes);
    let container = who.container_title().map(|title| format!("container {title}"));
    let place = container.or_else(|| who.unit.clone());
    let parts: Vec<String> = [Some(processes), threads, place].into_iter().flatten().collect();
    format!(" ({})", parts.join(", "))
}

/// What held the messages ahead, without its functions; nothing when that is not known.
fn held(root: &[Root]) -> Option<String> {
    let first = root.first()?;
    let what = root_words(&Root { functions: vec![], ..first.clone() });
    let more = format!("{} more than usual", human(first.mean_ns));
    let messages = match first.messages {
        1 => format!("{more} in 1 message"),
        messages => format!("in {messages} messages, {more} on average"),
    };
    let waiters = first.waiters.map_or_else(String::new, |waiters| format!(", behind which {waiters} waited"));
    // What those were served that came meanwhile is not in it, so it is the least.
    let of_wait = first.of_wait.map_or_else(String::new, |part| match (part.min(1.0) * 100.0).round() {
        100.0 => " (100 % of the wait)".to_owned(),
        percent => format!(" (at least {percent} % of the wait)"),
    });
    Some(format!("what held those: {what}, {messages}{waiters}{of_wait}"))
}

/// A root in words: what it is, then whose or where, and its first function.
pub fn root_words(root: &Root) -> String {
    let function = root.functions.first().map_or(String::new(), |f| format!(" ▸ {}", without_arguments(&f.name)));
    match root.title() {
        title if root.category.says(&title) => root.category.words().to_owned() + &function,
        title => format!("{} ({title}{function})", root.category.words()),
    }
}

/// What the holder of a lock did meanwhile, from the paths: where it slept, the calls it was in, or that it ran.
fn holder(cause: &Cause) -> Option<String> {
    if !matches!(cause.subject, Some(Subject::Holder { .. })) || cause.deviation_ns <= 0 {
        return None;
    }
    let mut did_what: BTreeMap<String, i64> = BTreeMap::new();
    let paths = cause.paths.iter().zip(&cause.path_frames).map(|((_, deviation_ns), frames)| (frames, *deviation_ns));
    for (frames, deviation_ns) in paths.filter(|(_, deviation_ns)| *deviation_ns > 0) {
        *did_what.entry(did(frames)).or_default() += deviation_ns;
    }
    let all: i64 = did_what.values().sum();
    let mut did: Vec<(String, i64)> = did_what.into_iter().filter(|(_, ns)| ns * 20 >= all).collect();
    did.sort_by_key(|(what, ns)| (std::cmp::Reverse(*ns), what.clone()));
    let each: Vec<String> =
        did.iter().take(3).map(|(what, ns)| format!("{what} {:.0} %", *ns as f64 / all as f64 * 100.0)).collect();
    (!each.is_empty()).then(|| format!("the holder meanwhile: {}", each.join(", ")))
}

/// Why these rows are no causes. `low` to `high`: the interval of their sum, ns, which may still be no chance.
pub fn not_told_from_chance(rows: &[Cause], [low, high]: [i64; 2]) -> String {
    let one = rows.len() == 1;
    let mut out = if one {
        "a difference that cannot be told from chance: its 95 % interval includes 0".to_owned()
    } else {
        format!(
            "{} differences, none of which can be told from chance: the 95 % interval of each includes 0",
            rows.len()
        )
    };
    if !one && (low > 0 || high < 0) {
        out += &format!(
            ". That of their sum, {} to {}, does not: part of it is real, but this run is too short to say which part",
            human(low),
            human(high)
        );
    }
    let names: Vec<String> = rows.iter().map(Titled::title).take(MOST_NAMES).collect();
    let more = if rows.len() > names.len() { format!(" and {} more", rows.len() - names.len()) } else { String::new() };
    out + &format!(" ({}{more})", names.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "their 95 % intervals hold 0" stood beside 63.8 us … 476 us, the interval of the sum.
    #[test]
    fn a_sum_that_is_not_chance_is_not_said_to_be() {
        let row = |name: &str| {
            serde_json::from_value(serde_json::json!({
                "rank": 1, "category": "interference", "name": name, "role": "A", "share": 0.1, "deviation_ns": 130_000,
                "ci95_ns": [-1_000, 300_000], "messages": 5, "evidence": [], "paths": [], "fix": [], "explanation": "",
            }))
            .expect("a cause")
        };
        let rows = [row("cron"), row("dbus-daemon")];
        assert_eq!(
            not_told_from_chance(&rows, [63_800, 476_000]),
            "2 differences, none of which can be told from chance: the 95 % interval of each includes 0. That of \
             their sum, \
             63.8 us to 476 us, does not: part of it is real, but this run is too short to say which part (cron; \
             dbus-daemon)"
        );
        assert_eq!(
            not_told_from_chance(&rows, [-63_800, 476_000]),
            "2 differences, none of which can be told from chance: the 95 % interval of each includes 0 (cron; \
             dbus-daemon)"
        );
        assert_eq!(
            not_told_from_chance(&rows[..1], [-1_000, 300_000]),
            "a difference that cannot be told from chance: its 95 % interval includes 0 (cron)"
        );
    }
}
