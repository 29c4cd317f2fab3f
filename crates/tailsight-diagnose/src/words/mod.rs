//! Causes in words: explanations, fixes, notes and next steps.
//!
//! In: a [`Cause`] with its numbers, and what is known about the run. Out: plain sentences and commands, filled in. The texts
//! are in `data/advice.toml`; commands quote whatever a recorded task may be named.

mod change;
mod fill;
mod name;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use tailsight_lifetime::{Lifetimes, Role};

use crate::focus::percent;
use crate::infer::Inferred;
use crate::model::{Action, Cause, Diagnosis};
use crate::profile::Cohort;
use crate::rules::{NOT_SIGNIFICANT, UNEXPLAINED};
use crate::{Facts, Options, glob};
pub use name::readable;
use tailsight_units::format::signed_duration as human;

/// `data/advice.toml`.
#[derive(Debug, Deserialize)]
struct Advice {
    limit: Vec<Limit>,
    typical: Vec<Pathology>,
    #[serde(flatten)]
    categories: BTreeMap<String, CategoryAdvice>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CategoryAdvice {
    says: String,
    says_r: Option<String>,
    #[serde(default)]
    fix: Vec<Fix>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fix {
    role: Option<Role>,
    #[serde(default)]
    only: Vec<String>,
    /// Only for devices with interrupts (`true`), or only for those without: loopback, veth, bridges.
    hardware: Option<bool>,
    /// In which network namespace the command is to be run, when that is another one than the recorder's.
    inside: Option<change::Inside>,
    /// A command and its undo by what they change, instead of `do` and `undo`.
    change: Option<change::Change>,
    r#do: Option<String>,
    undo: Option<String>,
    why: Option<String>,
    step: Option<String>,
}

impl Fix {
    /// The command and its undo.
    fn commands(&self) -> Option<(String, String)> {
        let written = || Some((self.r#do.clone()?, self.undo.clone()?));
        self.change.as_ref().map_or_else(written, |change| Some(change.commands()))
    }
}

/// What is known to make a row large in every message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pathology {
    category: String,
    #[serde(default)]
    only: Vec<String>,
    /// The row's mean is at least so long.
    #[serde(default)]
    least_us: u64,
    /// The median wait of a reply in the socket or the queueing discipline is between two of these.
    #[serde(default)]
    queued_us: Vec<[u64; 2]>,
    says: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    hook: String,
    hides: String,
    /// Only said when a row so large is so called.
    matters: Option<Matters>,
    /// What to do about it.
    cure: Option<String>,
}

/// The rows that a hook would tell more of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Matters {
    category: String,
    name: Vec<String>,
    share: f64,
}

impl Matters {
    fn in_answer(&self, d: &Diagnosis) -> bool {
        let is = |category: &str, name: &str, share: f64| {
            category == self.category && share >= self.share && glob::any(&self.name, name::base(name))
        };
        let typical = d.typical.iter().flat_map(|t| &t.rows);
        d.causes.iter().any(|c| is(&c.category, &c.name, c.share.abs()))
            || typical.into_iter().any(|r| is(&r.category, &r.name, r.share))
    }
}

static ADVICE: LazyLock<Advice> = LazyLock::new(|| {
    toml::from_str(include_str!("../../data/advice.toml"))
        .expect("the built-in advice is checked by this crate's tests")
});

/// What the sentences need to know beside the cause.
pub struct Situation<'a> {
    app: &'a str,
    facts: &'a Facts,
    /// Cores of the focus messages: receive core, application core.
    cores: [Vec<u32>; 2],
    /// Messages of the same application served ahead, on average: focus, reference.
    ahead: [f64; 2],
    focus_messages: u64,
    /// Whether the focus is a tail: then its messages are slow.
    tail: bool,
    total_ns: i64,
}

impl<'a> Situation<'a> {
    /// From the cohorts; `total_ns` is the total deviation.
    pub fn new(
        lifetimes: &'a Lifetimes,
        options: &Options,
        facts: &'a Facts,
        focus: &Cohort,
        reference: &Cohort,
        total_ns: i64,
    ) -> Situation<'a> {
        let of = |id: &u32| &lifetimes.messages[*id as usize];
        let cores = |core: fn(&tailsight_lifetime::Message) -> u16| {
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            focus.ids.iter().for_each(|id| *counts.entry(u32::from(core(of(id)))).or_default() += 1);
            // A core that few of the messages met is not worth moving anything away from.
            counts.into_iter().filter(|&(_, n)| n * 20 >= focus.len()).map(|(core, _)| core).collect()
        };
        let ahead = |c: &Cohort| c.ids.iter().map(|id| f64::from(of(id).ahead)).sum::<f64>() / c.len() as f64;
        Situation {
            app: if lifetimes.app.is_empty() { "the target" } else { &lifetimes.app },
            facts,
            cores: [cores(|m| m.driver_cpu), cores(|m| m.recv_cpu)],
            ahead: [ahead(focus), ahead(reference)],
            focus_messages: focus.len() as u64,
            tail: options.focus.1 == 1.0 && options.focus.0 >= 0.5,
            total_ns,
        }
    }

    /// One plain sentence with the cause's numbers.
    pub fn explanation(&self, cause: &Cause) -> String {
        let says = ADVICE.categories.get(&cause.category).map_or("{name}", |a| match (&a.says_r, cause.role) {
            (Some(r), Role::R) => r,
            _ => &a.says,
        });
        let core = match cause.role {
            Role::A => format!("the core that {} was waiting for", self.app),
            Role::R => "the core where the packet was waiting".to_owned(),
        };
        let mut out = fill::replace(says, |key| match key {
            "name" => Some(readable(&cause.category, &cause.name) + &whose(cause)),
            "app" => Some(self.app.to_owned()),
            "core" => Some(core.clone()),
            _ => None,
        })
        .unwrap_or_else(|| cause.name.clone());
        let name = readable(&cause.category, &cause.name);
        if let Some(where_) = name.strip_prefix("waits ").filter(|_| cause.category == "app-processing") {
            out = format!("{} waited {where_} before it went on", self.app);
        }
        if cause.category == "hol-blocking" && cause.name == crate::order::LATER {
            out = format!("{} served messages first that had arrived later", self.app);
        }
        let (dev, total) = (cause.deviation_ns, self.total_ns);
        let slow = if self.tail { "slow" } else { "focus" };
        out += &match (dev, total) {
            (0, _) => ": no more and no less than in the reference messages".to_owned(),
            (..0, 0..) => format!(": {} less than in the reference messages", human(-dev)),
            (..0, _) => {
                format!(": {} less, of the {} that the {slow} messages were faster", human(-dev), human(-total))
            }
            (_, ..0) => format!(": {} more than in the reference messages", human(dev)),
            _ if dev > total => format!(": {} more ({slow} messages took {} longer in all)", human(dev), human(total)),
            _ => format!(": {} of the {}", human(dev), human(total)),
        };
        if dev > 0 {
            out += &format!(", in {} of {} {slow} messages", cause.messages, self.focus_messages);
        }
        if cause.inferred {
            out += "; inferred from how the application's own time grows with their number";
        }
        let [focus, reference] = self.ahead;
        // As many as usual, to the digits that are shown, say nothing.
        let [shown, usual] = [focus, reference].map(|n| format!("{n:.1}"));
        if cause.category == "hol-blocking" && focus > reference && shown != usual {
            out += &format!(" ({shown} messages ahead on average, usually {usual})");
        }
        if cause.category == "lock-wait" && dev > 0 {
            out += &holder(cause);
        }
        out += &held(&cause.root);
        out
    }

    /// Messages ahead on average: focus, reference.
    pub fn ahead(&self) -> [f64; 2] {
        self.ahead
    }

    /// Commands with their undo, and steps; none for a row that is no larger than usual. Beside them, those that `tailsight fix`
    /// can make; [`number`] gives them their numbers.
    pub fn fixes(&self, cause: &Cause) -> (Vec<String>, Vec<Action>) {
        let (mut lines, mut actions) = (vec![], vec![]);
        let Some(advice) = ADVICE.categories.get(&cause.category).filter(|_| cause.deviation_ns > 0) else {
            return (lines, actions);
        };
        let is = |only: &[String]| glob::any(only, &cause.name) || glob::any(only, name::base(&cause.name));
        let fits = |f: &&Fix| f.role.is_none_or(|r| r == cause.role) && (f.only.is_empty() || is(&f.only));
        for fix in advice.fix.iter().filter(fits) {
            let (shown, action) = self.fix(fix, cause);
            let shell = lines.len()..lines.len() + shown.len();
            lines.extend(shown);
            actions
                .extend(action.filter(|_| !shell.is_empty()).map(|action| Action { shell: shell.collect(), ..action }));
        }
        (lines, actions)
    }

    fn fix(&self, fix: &Fix, cause: &Cause) -> (Vec<String>, Option<Action>) {
        let device = self.facts.devices.first().map(String::as_str);
        // A run that knows the device knows its interrupts: without any it is one of software, whatever its name (in a
        // container, a veth is called eth0). Of an unknown device nothing is known, and the fix says what to fill in.
        let software = |d: &str| fill::is_virtual(d) || self.facts.irqs.is_empty();
        if let (Some(hardware), Some(device)) = (fix.hardware, device)
            && hardware == software(device)
        {
            return (vec![], None);
        }
        let facts = self.facts;
        let fill = fill::Fill {
            name: &cause.name,
            app: self.app,
            pids: &facts.pids,
            device,
            cores: &self.cores[usize::from(cause.role == Role::A)],
            cpus: facts.cpus,
            cgroup: facts.cgroup.as_deref(),
            irqs: &facts.irqs,
            netns: facts.netns,
            device_netns: facts.device_netns,
            who: cause.who.as_ref(),
            inside: match fix.inside {
                Some(change::Inside::Target) => facts.netns,
                Some(change::Inside::Device) => facts.device_netns,
                None => None,
            },
        };
        (fill_fix(fix, &fill), action(fix, &fill))
    }
}

/// What is known to make a row of the median messages so large. `queued_ns`: how long their replies wait to be sent.
pub fn pathology(row: &crate::model::TypicalRow, queued_ns: u64, app: &str) -> Vec<String> {
    let fits = |p: &&Pathology| {
        let timer = p.queued_us.is_empty()
            || p.queued_us.iter().any(|[from, to]| (from * 1_000..=to * 1_000).contains(&queued_ns));
        let named = p.only.is_empty() || glob::any(&p.only, &row.name);
        p.category == row.category && named && timer && row.mean_ns >= p.least_us * 1_000
    };
    let app = if app.is_empty() { "the target" } else { app };
    let says = |p: &Pathology| {
        fill::replace(&p.says, |key| match key {
            "app" => Some(app.to_owned()),
            "name" => Some(readable(&row.category, &row.name)),
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
    if !["interference", "profiler"].contains(&cause.category.as_str()) {
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

/// What held the messages ahead, in words; nothing when that is not known.
fn held(root: &[crate::model::Root]) -> String {
    let Some(first) = root.first() else { return String::new() };
    let what = root_words(first);
    let messages = if first.messages == 1 { "1 message".to_owned() } else { format!("{} messages", first.messages) };
    format!("; what held those: {what}, {} more than usual in {messages}", human(first.mean_ns))
}

/// A root in words: what it is, then whose or where.
pub fn root_words(root: &crate::model::Root) -> String {
    match readable(&root.category, &root.name) {
        name if name == root.category => name,
        name => format!("{} ({name})", root.category),
    }
}

/// What the holder of a lock did meanwhile, from the paths: where it slept, the calls it was in, or that it ran.
fn holder(cause: &Cause) -> String {
    if !name::base(&cause.name).ends_with(" holds it") {
        return String::new();
    }
    let mut did: BTreeMap<String, i64> = BTreeMap::new();
    for (path, ns) in cause.paths.iter().filter(|(_, ns)| *ns > 0) {
        *did.entry(name::last(path)).or_default() += ns;
    }
    let all: i64 = did.values().sum();
    let mut did: Vec<(String, i64)> = did.into_iter().filter(|(_, ns)| ns * 20 >= all).collect();
    did.sort_by_key(|(what, ns)| (std::cmp::Reverse(*ns), what.clone()));
    if did.is_empty() {
        return String::new();
    }
    let each: Vec<String> =
        did.iter().take(3).map(|(what, ns)| format!("{what} {:.0} %", *ns as f64 / all as f64 * 100.0)).collect();
    format!("; the holder meanwhile: {}", each.join(", "))
}

/// A fix as data, when every value that it needs is known.
fn action(fix: &Fix, fill: &fill::Fill<'_>) -> Option<Action> {
    let changes = fix.change.as_ref()?.structured(fill)?;
    Some(Action {
        n: 0,
        title: fill.raw(fix.why.as_ref()?)?,
        command: String::new(),
        says: changes.iter().map(tailsight_fix::Change::says).collect(),
        undo: changes.iter().map(|c| c.undo_says().to_owned()).collect(),
        changes,
        shell: vec![],
    })
}

/// Numbers what `tailsight fix` can make, in the order of the causes; the same changes have the same number. `question`: the
/// options of this diagnosis, with which `tailsight fix` finds the same numbers.
pub fn number(causes: &mut [Cause], run: &str, question: &str) {
    let mut known: Vec<Vec<tailsight_fix::Change>> = vec![];
    for action in causes.iter_mut().flat_map(|c| &mut c.actions) {
        let at = known.iter().position(|changes| *changes == action.changes).unwrap_or_else(|| {
            known.push(action.changes.clone());
            known.len() - 1
        });
        action.n = at as u32 + 1;
        action.command = format!("tailsight fix {} {}{question}", fill::quote(run), action.n);
    }
}

/// The question of a diagnosis as options of the command line, each with a blank before it.
pub fn question(options: &Options, against: Option<&str>) -> String {
    let default = Options::default();
    let slice = |(from, to)| format!("{}..{}", percent(from), percent(to));
    let mut out = format!(" --leg {}", options.leg.name());
    if options.focus != default.focus {
        out += &format!(" --focus {}", slice(options.focus));
    }
    match against {
        Some(run) => out += &format!(" --against {}", fill::quote(run)),
        None if options.reference != default.reference => out += &format!(" --reference {}", slice(options.reference)),
        None => {}
    }
    if options.nesting != default.nesting {
        out += &format!(" --nest {}", options.nesting);
    }
    if options.granularity_ns != default.granularity_ns {
        out += &format!(" --granularity {}ns", options.granularity_ns);
    }
    out
}

/// Before a command that misses values.
pub const TO_FILL_IN: &str = "fill in: ";

/// A fix with its values: nothing when it cannot work in this run.
fn fill_fix(fix: &Fix, fill: &fill::Fill<'_>) -> Vec<String> {
    if let Some(step) = &fix.step {
        let filled = fill.one(step, fill.pids.first().copied());
        return filled.map(|f| format!("{}{}", f.text, found(" (", &f.find, ")"))).into_iter().collect();
    }
    let (Some((run, undo)), Some(why)) = (fix.commands(), &fix.why) else { return vec![] };
    // One command a process where the command names one, else one.
    let pids: Vec<Option<u32>> = if run.contains("{pid}") && !fill.pids.is_empty() {
        fill.pids.iter().copied().map(Some).collect()
    } else {
        vec![None]
    };
    let all = pids.len();
    let mut out = vec![];
    for pid in pids.into_iter().take(3) {
        let (Some(run), Some(undo), Some(why)) = (fill.one(&run, pid), fill.one(&undo, pid), fill.one(why, pid)) else {
            continue;
        };
        let enter = |text: String| fill.inside.map_or_else(|| text.clone(), |pid| change::inside(&text, pid));
        let mut find = run.find;
        for word in undo.find.into_iter().chain(why.find) {
            if !find.contains(&word) {
                find.push(word);
            }
        }
        // Not behind the undo, which is to be copied.
        let more =
            if out.len() == 2 && all > 3 { format!("; so for {} more processes", all - 3) } else { String::new() };
        // A command that misses a value is text to be completed, and says so first: it must not be pasted as it is.
        let mark = if find.is_empty() { "" } else { TO_FILL_IN };
        let (run, undo) = (enter(run.text), enter(undo.text));
        out.push(format!("{mark}{run}  # {}{more}{}; undo: {undo}", why.text, found("; ", &find, "")));
    }
    out
}

/// The words that stand for unknown values, and how to find those; nothing without any.
fn found(before: &str, find: &[(&str, &str)], after: &str) -> String {
    if find.is_empty() {
        return String::new();
    }
    let each: Vec<String> = find.iter().map(|(word, how)| format!("{word}: {how}")).collect();
    format!("{before}{}{after}", each.join("; "))
}

/// What limits this diagnosis.
pub fn notes(diagnosis: &Diagnosis, options: &Options, facts: &Facts) -> Vec<String> {
    let mut out: Vec<String> = facts.partial.iter().map(|why| format!("the run is partial: {why}")).collect();
    out.extend(options.remarks.iter().cloned());
    if facts.lost_events > 0 {
        let of = if facts.events > 0 {
            let all = facts.events + facts.lost_events;
            format!(" ({:.2} % of all)", 100.0 * facts.lost_events as f64 / all as f64)
        } else {
            String::new()
        };
        out.push(format!("{} events were lost{of}: near them, time may have the wrong owner", facts.lost_events));
    }
    for limit in &ADVICE.limit {
        let off: Vec<&str> =
            facts.hooks_off.iter().map(String::as_str).filter(|hook| glob::matches(&limit.hook, hook)).collect();
        // Said where it limits the answer, not in every run.
        let asked = limit.matters.as_ref().is_none_or(|m| m.in_answer(diagnosis));
        if !off.is_empty() && asked {
            let cure = limit.cure.as_ref().map_or(String::new(), |cure| format!("; {cure}"));
            out.push(format!("without {}, {}{cure}", off.join(" and "), limit.hides));
        }
    }
    let counts = &diagnosis.messages;
    if counts.complete * 100 < counts.total * 99 {
        let missing = counts.total - counts.complete;
        let worst = counts.incomplete.iter().max_by_key(|(_, n)| **n).map_or("", |(reason, _)| reason);
        out.push(format!("{missing} of {} messages are not complete, most because: {worst}", counts.total));
    }
    if diagnosis.focus.messages < 100 && diagnosis.not_available.is_none() {
        out.push(format!("the focus holds only {} messages: the intervals are wide", diagnosis.focus.messages));
    }
    for row in diagnosis.not_significant.iter().filter(|row| row.share >= RARE_BUT_LARGE) {
        out.push(format!(
            "{} has {:.0} % of the deviation, in {} of {} messages{}: too uneven to tell it from chance in this run (its interval \
             holds 0), so it is not among the causes; record longer",
            readable(&row.category, &row.name),
            100.0 * row.share,
            row.messages,
            diagnosis.focus.messages,
            row.evidence.first().map_or(String::new(), |id| format!(", most in message {id}")),
        ));
    }
    if facts.clock_error_ns > options.granularity_ns {
        out.push(format!("clock error up to {}: smaller differences mean nothing", human(facts.clock_error_ns as i64)));
    }
    let profiler = |c: &Cause| c.category == "profiler" && !c.inferred;
    if facts.recorder_by_name && diagnosis.causes.iter().chain(&diagnosis.not_significant).any(profiler) {
        out.push(
            "this older run does not say which process recorded it: whoever is called tailsight was taken for it"
                .into(),
        );
    }
    out.extend_from_slice(&facts.stamps);
    let (f, r) = (options.focus, options.reference);
    if diagnosis.not_available.is_none() && diagnosis.against.is_none() && f.0 < r.1 && r.0 < f.1 {
        let slice = |s: (f64, f64)| format!("{}..{}", percent(s.0), percent(s.1));
        out.push(format!("focus {} and reference {} share messages: differences look smaller", slice(f), slice(r)));
    }
    let total = diagnosis.focus.mean_ns as i64 - diagnosis.reference.mean_ns as i64;
    if diagnosis.not_available.is_some() {
        // There is no focus to say anything of.
    } else if total == 0 {
        out.push("focus and reference have the same mean: there is no deviation to explain".into());
    } else if total < 0 {
        out.push(format!("the focus is {} faster than the reference: shares are of what is missing", human(-total)));
    }
    if options.bootstrap_rounds == 0 {
        out.push("no intervals were asked for (0 bootstrap rounds): ci95_ns repeats the deviation".into());
    }
    out
}

/// The share of the deviation from which a row that is no cause has a note of its own.
const RARE_BUT_LARGE: f64 = 0.25;

/// The row that stands for the rows which are no causes.
pub fn not_significant(rows: &[Cause], ci95_ns: [i64; 2]) -> Cause {
    let names: Vec<String> = rows.iter().map(|r| readable(&r.category, &r.name)).take(5).collect();
    let more = if rows.len() > names.len() { format!(" and {} more", rows.len() - names.len()) } else { String::new() };
    let sum = |of: fn(&Cause) -> i64| rows.iter().map(of).sum::<i64>();
    Cause {
        rank: 0,
        category: NOT_SIGNIFICANT.into(),
        name: "not significant".into(),
        role: Role::A,
        share: rows.iter().map(|r| r.share).sum(),
        deviation_ns: sum(|r| r.deviation_ns),
        ci95_ns,
        messages: 0,
        evidence: vec![],
        paths: vec![],
        times: [0.0; 2],
        phase: String::new(),
        how: String::new(),
        mean_ns: [sum(|r| r.mean_ns[0]), sum(|r| r.mean_ns[1])],
        inferred: false,
        who: None,
        before: None,
        ahead: None,
        root: vec![],
        what_if: None,
        fix: vec![],
        actions: vec![],
        explanation: not_told_from_chance(rows, &format!("{}{more}", names.join("; ")), ci95_ns),
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
            ". That of their sum, {} to {}, does not: something of it is real, but this run is too short to say which",
            human(low),
            human(high)
        );
    }
    out + &format!(" ({names})")
}

/// What was inferred, for the reader.
pub fn inferred(inferred: &Inferred) -> Vec<String> {
    let mut out = vec![];
    for (note, cost) in &inferred.costs {
        let [low, high] = cost.ci95_ns;
        let ns = |ns: f64| human(ns.round() as i64);
        out.push(format!("{note} {} of own time ({} to {})", ns(cost.slope_ns), ns(low), ns(high)));
    }
    if let Some(what) = inferred.classes {
        out.push(format!("the usual own time depends on the {what}: each message is compared with its like"));
    }
    out
}

/// What to do next, most useful first, at most three.
pub fn next(diagnosis: &Diagnosis, facts: &Facts) -> Vec<String> {
    let run = fill::quote(&facts.run);
    let mut out = vec![];
    let top = diagnosis
        .causes
        .first()
        .filter(|c| ![UNEXPLAINED, NOT_SIGNIFICANT].contains(&c.category.as_str()) && c.deviation_ns > 0);
    if let Some((cause, fix)) = top.and_then(|c| Some((c, c.fix.first()?))) {
        let what = match readable(&cause.category, &cause.name) {
            name if name == cause.name => format!("{name} ({})", cause.category),
            name => format!("{} ({name})", cause.category),
        };
        // What tailsight fix can make is not told as a line of shell.
        match cause.actions.iter().find(|a| a.shell.contains(&0)) {
            Some(action) => out.push(format!("try this against {what}: {}: {}", action.title, action.command)),
            None => out.push(format!("try the first fix of {what}, then record again: {fix}")),
        }
    }
    if facts.lost_events > 0 {
        out.push("record again for a shorter time, or with larger buffers: events were lost".into());
    }
    if diagnosis.causes.last().is_some_and(|u| u.share.abs() > 0.1) {
        out.push("run tailsight doctor: it names what this machine could record beside, to explain the rest".into());
    }
    if diagnosis.not_available.is_some() {
        out.push("record longer or under more load: without -d, record goes on until there are enough messages".into());
    }
    if let Some(slowest) = diagnosis.slowest.first() {
        out.push(format!("see the slowest message, step by step: tailsight show {run} {}", slowest.id));
    }
    out.push(format!("see it all on one page: tailsight report {run}"));
    if diagnosis.leg == tailsight_lifetime::Leg::Receive {
        out.push(format!("look past the receive call, at service and sending: tailsight diagnose {run} --leg total"));
    }
    out.truncate(3);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CATEGORIES;

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
            "2 differences, none of which can be told from chance: the 95 % interval of each includes 0. That of their sum, \
             63.8 us to 476 us, does not: something of it is real, but this run is too short to say which (cron; dbus-daemon)"
        );
        assert_eq!(
            not_significant(&rows, [-63_800, 476_000]).explanation,
            "2 differences, none of which can be told from chance: the 95 % interval of each includes 0 (cron; dbus-daemon)"
        );
        assert_eq!(
            not_significant(&rows[..1], [-1_000, 300_000]).explanation,
            "a difference that cannot be told from chance: its 95 % interval includes 0 (cron)"
        );
    }

    /// Every category has its words; every fix is a command with its undo and reason, or a step; nothing else is in the file.
    #[test]
    fn advice_is_complete() {
        let named: Vec<&str> = ADVICE.categories.keys().map(String::as_str).collect();
        let mut ids = CATEGORIES.to_vec();
        ids.sort_unstable();
        assert_eq!(named, ids);
        for (category, advice) in &ADVICE.categories {
            assert!(!advice.fix.is_empty(), "{category} has no fix");
            for fix in &advice.fix {
                let written = fix.r#do.is_some() && fix.undo.is_some() && fix.change.is_none();
                let changed = fix.r#do.is_none() && fix.undo.is_none() && fix.change.is_some();
                let command = (written || changed) && fix.why.is_some() && fix.step.is_none();
                let step = fix.step.is_some() && fix.commands().is_none() && fix.why.is_none();
                assert!(command != step, "{category}: {fix:?}");
            }
        }
    }

    /// The fixes of receive processing on the application core: the device, its interrupts, a process in its namespace.
    fn receive_fixes(devices: &[&str], irqs: &[u32], netns: Option<u32>) -> Vec<String> {
        let facts = Facts {
            devices: devices.iter().map(|d| (*d).to_owned()).collect(),
            irqs: irqs.to_vec(),
            cpus: Some(4),
            netns,
            device_netns: netns,
            ..Facts::default()
        };
        let situation = Situation {
            app: "memcached",
            facts: &facts,
            cores: [vec![0], vec![1]],
            ahead: [0.0; 2],
            focus_messages: 50,
            tail: true,
            total_ns: 1000,
        };
        let cause = serde_json::from_value(serde_json::json!({
            "rank": 1, "category": "receive-processing", "name": "net_rx", "role": "A", "share": 1.0, "deviation_ns": 1000,
            "ci95_ns": [900, 1100], "messages": 50, "evidence": [], "paths": [], "fix": [], "explanation": "",
        }));
        situation.fixes(&cause.expect("a cause")).0
    }

    /// A device with interrupts has them moved, by number; one without has only RPS, even when it is called eth0.
    #[test]
    fn fixes_name_the_device_and_its_interrupts() {
        let rps = "for f in /sys/class/net/eth0/queues/rx-*/rps_cpus; do s=/run/tailsight$(echo $f | tr / .); [ -s $s ] || \
                   sed \"s/.*\\[\\(.*\\)\\].*/\\1/\" $f > $s && echo d > $f; done  # process packets on other cores than 1; \
                   undo: for f in /sys/class/net/eth0/queues/rx-*/rps_cpus; do s=/run/tailsight$(echo $f | tr / .); \
                   cat $s > $f && rm $s; done";
        let affinity = "for i in 38 39; do f=/proc/irq/$i/smp_affinity_list; s=/run/tailsight.irq.$i; [ -s $s ] || \
                        cat $f > $s && echo 0,2-3 > $f; done  # take the interrupts of eth0 on other cores than 1; stop \
                        irqbalance first, it moves them back; undo: for i in 38 39; do s=/run/tailsight.irq.$i; \
                        cat $s > /proc/irq/$i/smp_affinity_list && rm $s; done";
        assert_eq!(receive_fixes(&["eth0"], &[38, 39], None), [rps, affinity]);
        assert_eq!(receive_fixes(&["eth0"], &[], None), [rps]);
        assert_eq!(receive_fixes(&["veth3"], &[], None).len(), 1);
        let unknown = receive_fixes(&[], &[], None);
        assert!(unknown.iter().all(|f| f.starts_with(TO_FILL_IN) && f.contains("DEV: ")), "{unknown:?}");
        assert!(unknown[1].contains("IRQS: "), "{unknown:?}");
    }

    /// Commands for a device in another network namespace said DEV. They enter the namespace, and see its /sys: the one
    /// that is mounted shows the devices of the host. Interrupts are the machine's, wherever the device is.
    #[test]
    fn a_device_of_another_network_namespace_is_named_and_entered() {
        let fixes = receive_fixes(&["eth0"], &[38], Some(77));
        let enter = "nsenter -t 77 -n unshare -m sh -c 'mount -t sysfs sysfs /sys && for f in /sys/class/net/eth0/";
        let (run, undo) = fixes[0].split_once("; undo: ").expect("an undo");
        assert!(run.starts_with(enter) && undo.starts_with(enter), "{fixes:?}");
        assert!(run.contains("s=/run/tailsight.77$(echo $f | tr / .)"), "apart from the host's eth0: {run}");
        assert!(fixes[1].starts_with("for i in 38;"), "{fixes:?}");
        assert_eq!(receive_fixes(&["veth3"], &[], Some(77)).len(), 1, "no interrupts, no coalescing");
    }

    /// Every fix of every category can be shown, with everything about a run known and with nothing: no `{…}` is left, what
    /// is not known is a word with how to find it, and a command that changes something says how to take it back.
    #[test]
    fn every_fix_fills() {
        let known = fill::Fill {
            name: "irq:24",
            app: "memcached",
            pids: &[41],
            device: Some("eth0"),
            cores: &[1],
            cpus: Some(4),
            cgroup: Some("/a"),
            irqs: &[24],
            netns: Some(41),
            device_netns: Some(41),
            who: None,
            inside: None,
        };
        let nothing = fill::Fill { name: "x", app: "the target", ..fill::Fill::default() };
        let words =
            ["CGROUP", "IRQS", "PID", "PIDS", "CPU", "OTHER_CPUS", "OTHER_MASK", "ALL_CPUS", "ALL_MASK", "IRQ", "DEV"];
        let split = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned).collect()
        };
        for (category, advice) in &ADVICE.categories {
            for fix in &advice.fix {
                // As data, when everything is known; with nothing known, what is about the host alone.
                let by_data = fix.change.is_some();
                assert_eq!(action(fix, &known).is_some(), by_data, "{category}: {fix:?}");
                if let Some(action) = action(fix, &known) {
                    assert!(action.changes.len() == action.says.len() && !action.changes.is_empty(), "{action:?}");
                    let text = format!("{} {}", action.title, action.says.join(" "));
                    assert!(!text.contains(['{', '}']), "{category}: {text}");
                }
                for fill in [&known, &nothing] {
                    let shown = fill_fix(fix, fill);
                    assert_eq!(shown.len(), 1, "{category}: {fix:?}");
                    assert!(!shown[0].contains(['{', '}']), "{category}: {}", shown[0]);
                    let missing = words.iter().any(|w| shown[0].contains(&format!("{w}: ")));
                    let command = fix.commands().is_some();
                    assert_eq!(shown[0].starts_with(TO_FILL_IN), command && missing, "{category}: {}", shown[0]);
                    assert_eq!(shown[0].contains("; undo: "), command, "{category}: {}", shown[0]);
                    for word in split(&shown[0]).iter().filter(|w| words.contains(&w.as_str())) {
                        let explained = shown[0].contains(&format!("{word}: "));
                        // A step may name a word of its own, like the N of /proc/irq/N.
                        let own = fix.step.iter().chain(&fix.r#do).any(|t| split(t).contains(word));
                        assert!(explained || own, "{category}: {word} in {}", shown[0]);
                    }
                }
            }
            // Whatever the cause is called, wherever it is met and however the packets came, something can be done.
            for role in [Role::A, Role::R] {
                let any = advice
                    .fix
                    .iter()
                    .any(|f| f.only.is_empty() && f.hardware.is_none() && f.role.is_none_or(|r| r == role));
                assert!(any, "{category} {role:?} has no fix for a name that no fix is limited to");
            }
        }
    }
}
