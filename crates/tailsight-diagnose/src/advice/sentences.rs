//! One sentence for each cause, with its numbers.
//!
//! In: a [`Cause`], the paths of its owners. Out: text.

use std::collections::BTreeMap;

use tailsight_kernel::syscalls::named_waits_for_work;
use tailsight_lifetime::{NamedFrame, Role};
use tailsight_units::format::signed_duration as human;

use super::data::{ADVICE, Pathology};
use super::{Advisor, fill};
use crate::cause::names::{Titled, base, did, waited};
use crate::cause::{Category, Subject};
use crate::functions::without_arguments;
use crate::glob;
use crate::model::{Cause, Clauses, Root, TypicalRow};

/// Of a cause's time, this part is before the receive call when the sentence says that it was there.
const BEFORE: f64 = 0.8;
/// From here on all of it is.
const ALL_BEFORE: f64 = 0.98;
/// Whether a cause of whose time the part `before` is before the receive call was after it.
pub(crate) fn is_received(before: f64) -> bool {
    before <= 1.0 - BEFORE
}

/// What one owner has of a cause.
#[derive(Clone, Debug)]
pub struct OwnerPath {
    /// Context and frames, as the JSON names them.
    pub name: String,
    /// The frames, outermost first.
    pub frames: Vec<NamedFrame>,
    /// Its part of the deviation, ns.
    pub deviation_ns: i64,
}

/// The clause of a part of a cause that rests on a guess.
fn guessed(share: f64) -> String {
    let part = if share > 0.995 { String::new() } else { format!(" ({:.0} % of it)", share * 100.0) };
    format!(
        "guessed{part}: its thread had several requests open, and the order of calls alone says which of them asked"
    )
}

impl Advisor<'_> {
    /// One plain sentence with the cause's numbers, without its functions. `before`: the part of it that is before the receive call, 0 to 1.
    pub(crate) fn clauses(&self, cause: &Cause, paths: &[OwnerPath], before: f64) -> Clauses {
        let mut out = self.what(cause, before) + &self.how_much(cause);
        if cause.deviation_ns > 0 {
            let slow = self.messages();
            out += &format!(", in {} of {} {slow} messages", cause.messages, self.focus_messages);
        }
        // The sentence is of most of the time, and the number of messages of all.
        if (BEFORE..ALL_BEFORE).contains(&before) && cause.role == Role::A && cause.deviation_ns > 0 {
            out += &format!("; {:.0} % of it before they were received", before * 100.0);
        }
        if cause.inferred {
            out += "; estimated from how the application's own time grows with their number";
        }
        let [focus, reference] = self.ahead;
        // As many as usual, to the digits that are shown, say nothing.
        let [shown, usual] = [focus, reference].map(|n| format!("{n:.1}"));
        // The number has the messages that the thread took since, without the one in service then. Where it is less than one for each message
        // that the cause hit, that one is what they waited behind, and the number is of something else.
        let are_counted = focus * self.focus_messages as f64 >= cause.messages as f64;
        if cause.category == Category::HolBlocking && focus > reference && shown != usual && are_counted {
            out += &format!(" ({shown} messages ahead on average, usually {usual})");
        }
        if matches!(cause.subject, Some(Subject::Holder { .. })) && cause.deviation_ns > 0 {
            out += &holder(paths);
        }
        let received = cause.role == Role::A && is_received(before);
        let guessed = cause.guessed.map_or_else(String::new, guessed);
        Clauses { happened: out, held: held(&cause.root), functions: vec![], guessed, received }
    }

    /// What the messages under study are called.
    fn messages(&self) -> &'static str {
        if self.tail { "slow" } else { "focus" }
    }

    /// What happened.
    fn what(&self, cause: &Cause, before: f64) -> String {
        if let Some(subject) = &cause.subject {
            if *subject == Subject::LaterArrivals {
                return format!("{} served later messages first", self.app);
            }
            // It may have worked for this message, or for one before it.
            if matches!(subject, Subject::OtherThread { .. }) && cause.category == Category::AppProcessing {
                return format!("another thread of {} was waited for, or had its core ({})", self.app, cause.title());
            }
            if let Subject::Holder { name } = subject
                && cause.category == Category::LockWait
            {
                return format!(
                    "{} waited for a lock, or for what {name} was to hand over ({})",
                    self.app,
                    cause.title()
                );
            }
            if let Subject::OtherThreads { .. } = subject {
                return format!(
                    "{} had other messages in its other workers, for which it waited ({})",
                    self.app,
                    cause.title()
                );
            }
            if let Subject::WaitIn { call: Some(call), .. } = subject
                && cause.category == Category::AppProcessing
                && named_waits_for_work(call)
            {
                return format!("{} waited for what the kernel does not show, its thread in {call}", self.app);
            }
            // Where its task waited says what for.
            if let Subject::Runtime { .. } = subject {
                match cause.category {
                    Category::BackendWait => {
                        return format!("{} waited for another server ({})", self.app, cause.title());
                    }
                    Category::AppProcessing => return format!("{} itself waited ({})", self.app, cause.title()),
                    _ => {}
                }
            }
            if matches!(subject, Subject::Named { name } if name == "parked") {
                return format!("a task of {} waited ({})", self.app, cause.title());
            }
            let waited = waited(cause.category, subject, &cause.frames);
            if let Some(place) = waited.filter(|_| cause.category == Category::AppProcessing) {
                return format!("{} waited {place} before it went on", self.app);
            }
        }
        let says = ADVICE.categories.get(&cause.category).map_or("{name}", |a| {
            match (cause.role, &a.says_r, &a.says_before, &a.says_received) {
                (Role::R, Some(r), ..) => r,
                (Role::A, _, Some(earlier), _) if before >= BEFORE => earlier,
                (Role::A, .., Some(later)) if is_received(before) => later,
                _ => &a.says,
            }
        });
        let core = match cause.role {
            Role::A => format!("the core that {} was waiting for", self.app),
            Role::R => "the core where the packet was waiting".to_owned(),
        };
        let filled = fill::replace(says, |key| match key {
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

/// What is known of a row of the median messages beside the row.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowFacts<'a> {
    /// How long their replies wait to be sent, ns.
    pub queued_ns: u64,
    /// It is a wait for a server that most of them ask beside others.
    pub in_parallel: bool,
    /// Where in the program the row's time was, as a clause.
    pub place: Option<&'a str>,
}

/// What is known to make a row of the median messages so large.
pub fn pathology(row: &TypicalRow, app: &str, facts: RowFacts<'_>) -> Vec<String> {
    let RowFacts { queued_ns, in_parallel, place } = facts;
    let fits = |p: &&Pathology| {
        let timer = p.queued_us.is_empty()
            || p.queued_us.iter().any(|[from, to]| (from * 1_000..=to * 1_000).contains(&queued_ns));
        let named = p.only.is_empty() || glob::any(&p.only, &row.name);
        let beside = in_parallel || !p.in_parallel;
        p.category == row.category && named && timer && beside && row.mean_ns >= p.least_us * 1_000
    };
    let app = if app.is_empty() { "the target" } else { app };
    let says = |p: &Pathology| {
        fill::replace(place.and(p.placed.as_ref()).unwrap_or(&p.says), |key| match key {
            "app" => Some(app.to_owned()),
            "place" => place.map(str::to_owned),
            "name" => Some(row.title()),
            "time" => Some(human(row.mean_ns as i64)),
            _ => None,
        })
    };
    // The first that fits: they are ordered from the special to the general.
    ADVICE.typical.iter().find(fits).and_then(says).into_iter().collect()
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
    let container = who.container.as_ref().map(|id| format!("container {}", id.get(..12).unwrap_or(id)));
    let place = container.or_else(|| who.unit.clone());
    let parts: Vec<String> = [Some(processes), threads, place].into_iter().flatten().collect();
    format!(" ({})", parts.join(", "))
}

/// What held the messages ahead, in words, without its functions; nothing when that is not known.
pub(crate) fn held(root: &[Root]) -> String {
    let Some(first) = root.first() else { return String::new() };
    let what = root_words(&Root { functions: vec![], ..first.clone() });
    let more = format!("{} more than usual in", human(first.mean_ns));
    let messages = match first.messages {
        1 => format!("{more} 1 message"),
        messages => format!("on average {more} each of {messages} messages"),
    };
    let of_wait =
        first.of_wait.map_or_else(String::new, |part| format!(" ({:.0} % of the wait)", part.min(1.0) * 100.0));
    format!("what held those: {what}, {messages}{of_wait}")
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
fn holder(paths: &[OwnerPath]) -> String {
    let mut did_what: BTreeMap<String, i64> = BTreeMap::new();
    for path in paths.iter().filter(|path| path.deviation_ns > 0) {
        *did_what.entry(did(&path.frames)).or_default() += path.deviation_ns;
    }
    let all: i64 = did_what.values().sum();
    let mut did: Vec<(String, i64)> = did_what.into_iter().filter(|(_, ns)| ns * 20 >= all).collect();
    did.sort_by_key(|(what, ns)| (std::cmp::Reverse(*ns), what.clone()));
    if did.is_empty() {
        return String::new();
    }
    let each: Vec<String> =
        did.iter().take(3).map(|(what, ns)| format!("{what} {:.0} %", *ns as f64 / all as f64 * 100.0)).collect();
    format!("; the holder meanwhile: {}", each.join(", "))
}

/// The row that stands for the rows which are no causes.
pub fn not_significant(rows: &[Cause], ci95_ns: [i64; 2]) -> Cause {
    let names: Vec<String> = rows.iter().map(Titled::title).take(5).collect();
    let more = if rows.len() > names.len() { format!(" and {} more", rows.len() - names.len()) } else { String::new() };
    let sum = |of: fn(&Cause) -> i64| rows.iter().map(of).sum::<i64>();
    let subject = Subject::named("not significant");
    Cause {
        share: rows.iter().map(|r| r.share).sum(),
        deviation_ns: sum(|r| r.deviation_ns),
        ci95_ns,
        mean_ns: [sum(|r| r.mean_ns[0]), sum(|r| r.mean_ns[1])],
        explanation: not_told_from_chance(rows, &format!("{}{more}", names.join("; ")), ci95_ns),
        ..Cause::new(Category::NotSignificant, base(&subject), subject, vec![], Role::A)
    }
}

/// Why these rows are no causes. What each of them cannot be told from may still be no chance for their sum.
fn not_told_from_chance(rows: &[Cause], names: &str, [low, high]: [i64; 2]) -> String {
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
    out + &format!(" ({names})")
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
            not_significant(&rows, [63_800, 476_000]).explanation,
            "2 differences, none of which can be told from chance: the 95 % interval of each includes 0. That of \
             their sum, \
             63.8 us to 476 us, does not: part of it is real, but this run is too short to say which part (cron; \
             dbus-daemon)"
        );
        assert_eq!(
            not_significant(&rows, [-63_800, 476_000]).explanation,
            "2 differences, none of which can be told from chance: the 95 % interval of each includes 0 (cron; \
             dbus-daemon)"
        );
        assert_eq!(
            not_significant(&rows[..1], [-1_000, 300_000]).explanation,
            "a difference that cannot be told from chance: its 95 % interval includes 0 (cron)"
        );
    }
}
