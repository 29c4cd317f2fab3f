//! The diagnosis from end to end: the steps of the crate's page in order.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Incomplete, Leg, Lifetimes, Message, OwnerId, PathSpan, Role};

use crate::against::join;
use crate::attribution::Attribution;
use crate::bootstrap::Draws;
use crate::causes::Rows;
use crate::focus::{enough, mean, percentiles};
use crate::infer::infer;
use crate::model::{self, Cause, Cluster, Diagnosis, Loss, MessageCounts, Overhead, Slice};
use crate::more::{Asked, more};
use crate::phases::{self, overlaps::Ahead};
use crate::profile::{Cohort, Profile, Stands};
use crate::rules::shown;
use crate::typical::{slowest, typical};
use crate::words::{self, Situation};
use crate::{Error, Facts, Options, legs, order, root, who};

/// Most owner paths of a cause.
const PATHS: usize = 8;

/// Finds what the focus messages went through that the reference messages did not (NSight §5.2).
///
/// # Errors
/// [`Error::Focus`] and [`Error::Option`] for options out of range, [`Error::NoMessages`] when no message has the leg
/// complete, [`Error::NotEnough`] (N/A) when focus or reference hold fewer than [`crate::MIN_MESSAGES`].
pub fn diagnose(lifetimes: &Lifetimes, options: &Options, facts: &Facts) -> Result<Diagnosis, Error> {
    diagnose_with(lifetimes, options, facts, &Beside::default()).map(|(diagnosis, _)| diagnosis)
}

/// Which cause (index into [`Diagnosis::causes`]) the time of an owner in a leg and role counts to. Owners that neither
/// cohort met are absent.
pub type CauseOf = BTreeMap<(Leg, Role, OwnerId), usize>;

/// What a diagnosis may look at beside the parts of the messages.
#[derive(Clone, Copy, Default)]
pub struct Beside<'a> {
    /// The path of a message over the leg, in order: for what came before a gap, and for the cores.
    pub path: Option<&'a dyn Fn(u32) -> Vec<PathSpan>>,
    /// Another run, by name: the same slice of its messages is the reference.
    pub against: Option<(&'a str, &'a Lifetimes)>,
}

/// As [`diagnose`], with what else is known, and the cause of every owner that the cohorts met, for drawing messages.
///
/// # Errors
/// As [`diagnose`].
pub fn diagnose_with(
    lifetimes: &Lifetimes,
    options: &Options,
    facts: &Facts,
    beside: &Beside<'_>,
) -> Result<(Diagnosis, CauseOf), Error> {
    options.check()?;
    let joined = beside.against.map(|(_, other)| join(lifetimes, other));
    let first = lifetimes.messages.len() as u32;
    let both = joined.as_ref().unwrap_or(lifetimes);
    found(both, first, options, facts, beside)
}

fn found(
    lifetimes: &Lifetimes,
    first: u32,
    options: &Options,
    facts: &Facts,
    beside: &Beside<'_>,
) -> Result<(Diagnosis, CauseOf), Error> {
    let leg = options.leg;
    let (mine, others) = lifetimes.messages.split_at(first as usize);
    let ranked = |messages: &[Message]| -> Vec<(u64, u32)> {
        let mut ranked: Vec<_> = messages.iter().filter_map(|m| m.latency(leg).map(|ns| (ns, m.id))).collect();
        ranked.sort_unstable();
        ranked
    };
    let (ranked, others) = (ranked(mine), ranked(others));
    let messages = counts(lifetimes, mine, leg, ranked.len() as u64);
    if ranked.is_empty() {
        return Err(nothing(lifetimes, leg, &messages, facts));
    }
    let focus = Cohort::of(&ranked[enough(ranked.len(), options.focus, "focus")?]);
    let (reference, reference_slice) = match beside.against {
        None => (Cohort::of(&ranked[enough(ranked.len(), options.reference, "reference")?]), options.reference),
        Some(_) => (Cohort::of(&others[enough(others.len(), options.focus, "against")?]), options.focus),
    };
    let sorted: Vec<u64> = ranked.iter().map(|&(ns, _)| ns).collect();

    let mut profile = Profile::new(lifetimes, leg, &focus, &reference);
    let cohorts = (&focus, &reference);
    let inferred = infer(lifetimes, options, &mut profile, cohorts, &ranked, beside.against.is_none());
    order::apply(lifetimes, options, &mut profile, cohorts);
    let rows = Rows::new(lifetimes, &profile, &focus, &reference, options);
    let by_message = Attribution::new(lifetimes, leg, &profile, &rows, cohorts, options.granularity_ns);
    let blocks = (&by_message.focus, &by_message.reference);
    let (rounds, seed) = (options.bootstrap_rounds, options.seed);
    let draws = Draws::of(blocks.0, blocks.1, rounds, seed);
    let intervals = draws.as_ref().map(Draws::intervals);

    let slice =
        |cohort: &Cohort, (from, to)| Slice { from, to, messages: cohort.len() as u64, mean_ns: cohort.mean_ns() };
    let (focus_slice, reference_slice) = (slice(&focus, options.focus), slice(&reference, reference_slice));
    let total_ns = focus_slice.mean_ns as i64 - reference_slice.mean_ns as i64;
    let situation = Situation::new(lifetimes, options, facts, &focus, &reference, total_ns);

    let last = rows.rows.len() - 1;
    let is_cause = |i: usize| i == last || intervals.as_ref().is_none_or(|all| !(all[i][0] <= 0 && 0 <= all[i][1]));
    let is_reported = |i: usize| i != last && is_cause(i);
    let coverage = by_message.coverage(lifetimes, leg, &profile, &rows, &focus, &is_reported);
    let ahead = Ahead::new(mine);
    // Of the whole focus, so the same for every row of head-of-line blocking.
    let roots = LazyCell::new(|| root::roots(lifetimes, options, mine, &ahead, &focus.ids, &reference));
    let (mut causes, mut not_significant) = (Vec::with_capacity(rows.rows.len()), vec![]);
    for (i, deviation_ns) in rows.rounded(total_ns).into_iter().enumerate() {
        let (row, met) = (&rows.rows[i], &by_message.met[i]);
        let finding = phases::finding(lifetimes, &profile, &row.slots, rows.cohorts, met);
        let mut cause = Cause {
            rank: 0,
            category: row.category.into(),
            name: row.name.clone(),
            role: row.role,
            share: rows.share(i),
            deviation_ns,
            ci95_ns: intervals.as_ref().map_or([deviation_ns; 2], |all| all[i]),
            messages: by_message.hits[i],
            evidence: by_message.evidence[i].clone(),
            paths: paths(lifetimes, &profile, &rows, i),
            times: met.times,
            phase: finding.phase.name().into(),
            how: finding.how.into(),
            mean_ns: met.mean_ns.map(|ns| ns.round() as i64),
            inferred: row.inferred,
            who: who_did(row.category).then(|| who::of(lifetimes, &profile, &row.slots, rows.cohorts)).flatten(),
            before: None,
            ahead: None,
            root: vec![],
            what_if: None,
            fix: vec![],
            actions: vec![],
            explanation: String::new(),
        };
        if row.category == "hol-blocking" {
            let [of_focus, of_reference] = situation.ahead();
            let others = elsewhere(lifetimes, &profile, &row.slots);
            let before = |id: u32| match (&mine[id as usize], others) {
                (m, true) => ahead.elsewhere(mine, m),
                (m, false) => ahead.of(m),
            };
            let ids = cause.evidence.iter().map(|&id| (id, before(id))).collect();
            cause.ahead = Some(model::Ahead { focus: of_focus, reference: of_reference, ids });
            if deviation_ns > 0 && !others {
                cause.root = roots.clone();
            }
        }
        cause.explanation = situation.explanation(&cause);
        if is_cause(i) {
            if let Some(path) = beside.path.filter(|_| finding.how == "gap" && deviation_ns > 0) {
                let in_row = |span: &PathSpan| leg_slots(&profile, row, span.role, span.owner);
                cause.before = phases::gaps::before(lifetimes, &cause.evidence, &in_row, path);
            }
            (cause.fix, cause.actions) = situation.fixes(&cause);
            causes.push(cause);
        } else {
            not_significant.push(cause);
        }
    }
    // The causes in their order, then what is no cause as one row, then what has no owner.
    let mut cause_of_row = vec![0; rows.rows.len()];
    if !not_significant.is_empty() {
        let ci = draws.as_ref().map_or([0; 2], |draws| draws.interval_of_sum(|i| !is_cause(i)));
        causes.insert(causes.len() - 1, words::not_significant(&not_significant, ci));
    }
    let (merged, end) = (causes.len().saturating_sub(2), causes.len() - 1);
    let mut next = 0;
    for (i, of) in cause_of_row.iter_mut().enumerate() {
        *of = match (i == last, is_cause(i)) {
            (true, _) => end,
            (false, false) => merged,
            (false, true) => {
                next += 1;
                next - 1
            }
        };
    }
    causes.iter_mut().zip(1..).for_each(|(cause, rank)| cause.rank = rank);
    words::number(&mut causes, &facts.run, &words::question(options, beside.against.map(|(name, _)| name)));
    not_significant.iter_mut().for_each(|cause| cause.rank = merged as u32 + 1);

    let more = options.more.then(|| {
        more(&Asked {
            lifetimes,
            options,
            profile: &profile,
            rows: &rows,
            met: &by_message.met,
            cause_of_row: &cause_of_row,
            cohorts,
            ranked: &ranked,
            path: beside.path,
            same_run: beside.against.is_none(),
        })
    });
    let mut diagnosis = Diagnosis {
        schema: 1,
        run: facts.run.clone(),
        app: lifetimes.app.clone(),
        leg,
        messages,
        latency_ns: percentiles(&sorted),
        legs: legs::latencies(mine, leg, &sorted),
        not_available: None,
        typical: typical(lifetimes, options, &ranked),
        slowest: slowest(lifetimes, options, &ranked),
        focus: focus_slice,
        reference: reference_slice,
        clusters: clusters(&causes, &by_message.dominant, &focus, &cause_of_row),
        causes,
        not_significant,
        against: beside.against.map(|(name, _)| name.to_owned()),
        coverage,
        owned: by_message.owned.clone(),
        send_entry: crate::sent::entry(lifetimes),
        sent: crate::sent::summary(lifetimes),
        more,
        ideal_ns: None,
        ideal: None,
        loss: Loss { events: facts.lost_events, clock_error_ns: facts.clock_error_ns },
        overhead: Overhead { ns_per_event: facts.ns_per_event, events: facts.events },
        notes: vec![],
        next: vec![],
    };
    diagnosis.notes = words::notes(&diagnosis, options, facts);
    diagnosis.notes.extend(words::inferred(&inferred));
    diagnosis.notes.extend(crate::sent::notes(lifetimes, &diagnosis));
    diagnosis.next = words::next(&diagnosis, facts);
    Ok((diagnosis, cause_of(&profile, &rows, &cause_of_row)))
}

/// What can be said where causes cannot ([`Error::NotEnough`]): percentiles, where a median message spends its time, the
/// slowest messages one by one; no focus and no causes.
///
/// # Errors
/// [`Error::NoMessages`] when no message has the leg complete.
pub fn overview(lifetimes: &Lifetimes, options: &Options, facts: &Facts, why: &Error) -> Result<Diagnosis, Error> {
    let leg = options.leg;
    let messages = &lifetimes.messages;
    let mut ranked: Vec<_> = messages.iter().filter_map(|m| m.latency(leg).map(|ns| (ns, m.id))).collect();
    ranked.sort_unstable();
    let counts = counts(lifetimes, messages, leg, ranked.len() as u64);
    if ranked.is_empty() {
        return Err(nothing(lifetimes, leg, &counts, facts));
    }
    let sorted: Vec<u64> = ranked.iter().map(|&(ns, _)| ns).collect();
    let empty = |(from, to): (f64, f64)| Slice { from, to, ..Slice::default() };
    let mut diagnosis = Diagnosis {
        schema: 1,
        run: facts.run.clone(),
        app: lifetimes.app.clone(),
        leg,
        messages: counts,
        latency_ns: percentiles(&sorted),
        legs: legs::latencies(messages, leg, &sorted),
        not_available: Some(why.to_string()),
        typical: typical(lifetimes, options, &ranked),
        slowest: slowest(lifetimes, options, &ranked),
        focus: empty(options.focus),
        reference: empty(options.reference),
        clusters: vec![],
        causes: vec![],
        not_significant: vec![],
        against: None,
        coverage: model::Coverage::default(),
        owned: model::Coverage::default(),
        send_entry: crate::sent::entry(lifetimes),
        sent: crate::sent::summary(lifetimes),
        more: None,
        ideal_ns: None,
        ideal: None,
        loss: Loss { events: facts.lost_events, clock_error_ns: facts.clock_error_ns },
        overhead: Overhead { ns_per_event: facts.ns_per_event, events: facts.events },
        notes: vec![],
        next: vec![],
    };
    diagnosis.notes = words::notes(&diagnosis, options, facts);
    diagnosis.notes.extend(crate::sent::notes(lifetimes, &diagnosis));
    diagnosis.next = words::next(&diagnosis, facts);
    Ok(diagnosis)
}

/// Whether causes of the category are tasks; time in others may lie in a task's context without being its doing.
fn who_did(category: &str) -> bool {
    ["interference", "os-threads", "profiler", "app-processing", "lock-wait", "connection-setup"].contains(&category)
}

/// Whether a row is time of other threads that served other messages.
fn elsewhere(lifetimes: &Lifetimes, profile: &Profile, slots: &[usize]) -> bool {
    let sibling = |&slot: &usize| {
        let owner = profile.owner_of(slot).map(|o| &lifetimes.owners[o].context);
        matches!(owner, Some(tailsight_lifetime::Context::Sibling { .. }))
    };
    slots.iter().any(sibling)
}

/// Whether an owner's time counts to the row in any leg.
fn leg_slots(profile: &Profile, row: &crate::causes::Row, role: Role, owner: OwnerId) -> bool {
    let is = |slot: &usize| matches!(profile.stands_for(*slot), Stands::Owner(_, r, o) if r == role && o as OwnerId == owner);
    row.slots.iter().any(is)
}

/// The focus messages by dominant cause, the largest cluster first.
fn clusters(causes: &[Cause], dominant: &[(usize, u64)], focus: &Cohort, cause_of_row: &[usize]) -> Vec<Cluster> {
    let mut by_cause: BTreeMap<usize, (u64, u128, (u64, u32))> = BTreeMap::new();
    for (&(row, latency), &id) in dominant.iter().zip(&focus.ids) {
        let (n, sum, slowest) = by_cause.entry(cause_of_row[row]).or_default();
        *n += 1;
        *sum += u128::from(latency);
        if *n == 1 || latency > slowest.0 {
            *slowest = (latency, id);
        }
    }
    let cluster = |(cause, (messages, sum, slowest)): (usize, (u64, u128, (u64, u32)))| {
        let Cause { rank, category, name, role, .. } = &causes[cause];
        Cluster {
            rank: *rank,
            category: category.clone(),
            name: name.clone(),
            role: *role,
            messages,
            mean_ns: mean(sum, messages),
            example: slowest.1,
        }
    };
    let mut out: Vec<Cluster> = by_cause.into_iter().map(cluster).collect();
    out.sort_by_key(|c| (std::cmp::Reverse(c.messages), c.rank));
    out
}

fn cause_of(profile: &Profile, rows: &Rows, cause_of_row: &[usize]) -> CauseOf {
    let of = |slot| match profile.stands_for(slot) {
        Stands::Owner(leg, role, owner) => Some(((leg, role, owner as OwnerId), cause_of_row[rows.row_of(slot)])),
        Stands::Derived(_) => None,
    };
    profile.met().filter_map(of).collect()
}

/// The largest owner paths of a row with their deviations, ns.
fn paths(lifetimes: &Lifetimes, profile: &Profile, rows: &Rows, row: usize) -> Vec<(String, i64)> {
    let (nf, nr) = rows.cohorts;
    // The same owner in several legs is one path.
    let mut by_path: BTreeMap<String, f64> = BTreeMap::new();
    for &slot in &rows.rows[row].slots {
        let ns = |of: &[crate::profile::Sum], n: f64| of[slot].ns as f64 / n;
        let path = match profile.stands_for(slot) {
            Stands::Owner(_, _, owner) => lifetimes.owners[owner].path(&lifetimes.symbols),
            Stands::Derived(derived) => derived.path.clone(),
        };
        *by_path.entry(shown(&path)).or_default() += ns(&profile.focus, nf) - ns(&profile.reference, nr);
    }
    let mut out: Vec<(String, i64)> = by_path.into_iter().map(|(path, ns)| (path, ns.round() as i64)).collect();
    out.sort_by(|a, b| b.1.abs().cmp(&a.1.abs()).then_with(|| a.0.cmp(&b.0)));
    out.truncate(PATHS);
    out
}

/// Messages by whether their leg is complete. Those that were not followed to the receive call are in
/// [`Lifetimes::incomplete`], whether or not they are also in the list.
fn counts(lifetimes: &Lifetimes, mine: &[Message], leg: Leg, complete: u64) -> MessageCounts {
    let mut incomplete: BTreeMap<String, u64> =
        lifetimes.incomplete.iter().map(|(reason, n)| (reason.text().to_owned(), *n)).collect();
    let named: u64 = incomplete.values().sum();
    let unreceived = mine.iter().filter(|m| m.latency(Leg::Receive).is_none()).count() as u64;
    let mut add = |reason: Incomplete, n: u64| {
        if n > 0 {
            *incomplete.entry(reason.text().to_owned()).or_default() += n;
        }
    };
    add(Incomplete::ReceiveNotSeen, unreceived.saturating_sub(named));
    if leg != Leg::Receive {
        let received = |m: &&tailsight_lifetime::Message| m.latency(Leg::Receive).is_some() && m.latency(leg).is_none();
        let unsent = mine.iter().filter(received).filter(|m| m.send_ns == 0).count() as u64;
        let unfinished = mine.iter().filter(received).count() as u64 - unsent;
        let dropped = |m: &&Message| m.flags & tailsight_lifetime::model::flags::REPLY_DROPPED != 0;
        let dropped = mine.iter().filter(received).filter(dropped).count() as u64;
        add(Incomplete::SendNotSeen, unsent);
        add(Incomplete::ReplyDropped, dropped);
        add(Incomplete::TransmitNotSeen, unfinished - dropped);
    }
    let total = complete + incomplete.values().sum::<u64>();
    let out_of_order = mine.iter().filter(|m| m.flags & flags::OVERTAKEN != 0).count() as u64;
    MessageCounts { total, complete, incomplete, out_of_order }
}

/// The error for a run without a complete message.
fn nothing(lifetimes: &Lifetimes, leg: Leg, counts: &MessageCounts, facts: &Facts) -> Error {
    let reasons = if counts.incomplete.is_empty() {
        "no message was seen at all".to_owned()
    } else {
        counts.incomplete.iter().map(|(reason, n)| format!("{n}: {reason}")).collect::<Vec<_>>().join("; ")
    };
    let advice = if counts.incomplete.is_empty() && !facts.partial.is_empty() {
        "the recording is partial and holds too little: record again"
    } else if counts.incomplete.is_empty() && facts.lost_events > 0 {
        "events were lost: record again for a shorter time, or with larger buffers"
    } else if counts.incomplete.is_empty() {
        "send it requests while recording, and check the target's process and port"
    } else if leg != Leg::Receive {
        "try --leg receive"
    } else {
        "tailsight doctor shows which hooks this machine lacks"
    };
    let app = if lifetimes.app.is_empty() { "the target".into() } else { lifetimes.app.clone() };
    Error::NoMessages { app, leg, reasons, advice: advice.into() }
}
