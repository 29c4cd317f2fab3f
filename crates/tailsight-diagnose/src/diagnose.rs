//! The diagnosis from end to end: the steps of the crate's page in order.

use std::collections::BTreeMap;

use tailsight_lifetime::{Leg, Lifetimes, OwnerId, Role};

use crate::attribution::Attribution;
use crate::bootstrap::intervals;
use crate::causes::Rows;
use crate::focus::{enough, percentiles};
use crate::model::{Cause, Diagnosis, Loss, MessageCounts, Overhead, Slice};
use crate::profile::{Cohort, Profile};
use crate::rules::shown;
use crate::words::{self, Situation};
use crate::{Error, Facts, Options};

/// Most owner paths of a cause.
const PATHS: usize = 8;

/// Finds what the focus messages went through that the reference messages did not (NSight §5.2).
///
/// # Errors
/// [`Error::Focus`] and [`Error::Option`] for options out of range, [`Error::NoMessages`] when no message has the leg
/// complete, [`Error::NotEnough`] (N/A) when focus or reference hold fewer than [`crate::MIN_MESSAGES`].
pub fn diagnose(lifetimes: &Lifetimes, options: &Options, facts: &Facts) -> Result<Diagnosis, Error> {
    diagnose_with_owners(lifetimes, options, facts).map(|(diagnosis, _)| diagnosis)
}

/// Which cause (index into [`Diagnosis::causes`]) the time of an owner counts to. Owners that neither cohort met are
/// absent. In the total leg an owner may count to different causes by leg; the one with most of its focus time is here.
pub type CauseOf = BTreeMap<(Role, OwnerId), usize>;

/// As [`diagnose`], and the cause of every owner that the cohorts met, for drawing single messages.
///
/// # Errors
/// As [`diagnose`].
pub fn diagnose_with_owners(
    lifetimes: &Lifetimes,
    options: &Options,
    facts: &Facts,
) -> Result<(Diagnosis, CauseOf), Error> {
    options.check()?;
    let leg = options.leg;
    let mut ranked: Vec<(u64, u32)> =
        lifetimes.messages.iter().filter_map(|m| m.latency(leg).map(|ns| (ns, m.id))).collect();
    let messages = counts(lifetimes, leg, ranked.len() as u64);
    if ranked.is_empty() {
        return Err(nothing(lifetimes, leg, &messages));
    }
    ranked.sort_unstable();
    let focus = Cohort::of(&ranked[enough(ranked.len(), options.focus, "focus")?]);
    let reference = Cohort::of(&ranked[enough(ranked.len(), options.reference, "reference")?]);
    let sorted: Vec<u64> = ranked.iter().map(|&(ns, _)| ns).collect();

    let profile = Profile::new(lifetimes, leg, &focus, &reference);
    let rows = Rows::new(lifetimes, &profile, &focus, &reference, options);
    let by_message = Attribution::new(lifetimes, leg, &profile, &rows, (&focus, &reference), options.granularity_ns);
    let intervals = intervals(&by_message.focus, &by_message.reference, options.bootstrap_rounds, options.seed);

    let slice =
        |cohort: &Cohort, (from, to)| Slice { from, to, messages: cohort.len() as u64, mean_ns: cohort.mean_ns() };
    let (focus_slice, reference_slice) = (slice(&focus, options.focus), slice(&reference, options.reference));
    let total_ns = focus_slice.mean_ns as i64 - reference_slice.mean_ns as i64;
    let situation = Situation::new(lifetimes, options, facts, &focus, &reference, total_ns);

    let mut causes = Vec::with_capacity(rows.rows.len());
    for (i, deviation_ns) in rows.rounded(total_ns).into_iter().enumerate() {
        let row = &rows.rows[i];
        let mut cause = Cause {
            rank: i as u32 + 1,
            category: row.category.into(),
            name: row.name.clone(),
            role: row.role,
            share: rows.share(i),
            deviation_ns,
            ci95_ns: intervals.as_ref().map_or([deviation_ns; 2], |all| all[i]),
            messages: by_message.hits[i],
            evidence: by_message.evidence[i].clone(),
            paths: paths(lifetimes, &profile, &rows, i),
            times: by_message.times[i],
            what_if: None,
            fix: vec![],
            explanation: String::new(),
        };
        cause.explanation = situation.explanation(&cause);
        cause.fix = situation.fixes(&cause);
        causes.push(cause);
    }
    let mut diagnosis = Diagnosis {
        schema: 1,
        run: facts.run.clone(),
        app: lifetimes.app.clone(),
        leg,
        messages,
        latency_ns: percentiles(&sorted),
        focus: focus_slice,
        reference: reference_slice,
        causes,
        coverage: by_message.coverage,
        ideal_ns: None,
        loss: Loss { events: facts.lost_events, clock_error_ns: facts.clock_error_ns },
        overhead: Overhead { ns_per_event: facts.ns_per_event, events: facts.events },
        notes: vec![],
        next: vec![],
    };
    diagnosis.notes = words::notes(&diagnosis, options, facts);
    diagnosis.next = words::next(&diagnosis, facts);
    Ok((diagnosis, cause_of(&profile, &rows)))
}

fn cause_of(profile: &Profile, rows: &Rows) -> CauseOf {
    let mut most: BTreeMap<(Role, OwnerId), (u64, usize)> = BTreeMap::new();
    for slot in profile.met() {
        let (_, role, owner) = profile.parts_of(slot);
        let here = (profile.focus[slot].ns, rows.row_of(slot));
        let best = most.entry((role, owner as OwnerId)).or_insert(here);
        if here.0 > best.0 {
            *best = here;
        }
    }
    most.into_iter().map(|(key, (_, row))| (key, row)).collect()
}

/// The largest owner paths of a row with their deviations, ns.
fn paths(lifetimes: &Lifetimes, profile: &Profile, rows: &Rows, row: usize) -> Vec<(String, i64)> {
    let (nf, nr) = rows.cohorts;
    // The same owner in several legs is one path.
    let mut by_owner: BTreeMap<usize, f64> = BTreeMap::new();
    for &slot in &rows.rows[row].slots {
        let ns = |of: &[crate::profile::Sum], n: f64| of[slot].ns as f64 / n;
        *by_owner.entry(profile.parts_of(slot).2).or_default() += ns(&profile.focus, nf) - ns(&profile.reference, nr);
    }
    let mut out: Vec<(String, i64)> = by_owner
        .into_iter()
        .map(|(o, ns)| (shown(&lifetimes.owners[o].path(&lifetimes.symbols)), ns.round() as i64))
        .collect();
    out.sort_by(|a, b| b.1.abs().cmp(&a.1.abs()).then_with(|| a.0.cmp(&b.0)));
    out.truncate(PATHS);
    out
}

/// Messages by whether their leg is complete. Those that were not followed to the receive call are in
/// [`Lifetimes::incomplete`], whether or not they are also in the list.
fn counts(lifetimes: &Lifetimes, leg: Leg, complete: u64) -> MessageCounts {
    let mut incomplete = lifetimes.incomplete.clone();
    let named: u64 = incomplete.values().sum();
    let unreceived = lifetimes.messages.iter().filter(|m| m.latency(Leg::Receive).is_none()).count() as u64;
    let mut add = |reason: &str, n: u64| {
        if n > 0 {
            *incomplete.entry(reason.to_owned()).or_default() += n;
        }
    };
    add("its receive call was not seen", unreceived.saturating_sub(named));
    if leg != Leg::Receive {
        let received = |m: &&tailsight_lifetime::Message| m.latency(Leg::Receive).is_some() && m.latency(leg).is_none();
        let unsent = lifetimes.messages.iter().filter(received).filter(|m| m.send_ns == 0).count() as u64;
        let unfinished = lifetimes.messages.iter().filter(received).count() as u64 - unsent;
        add("its send call was not seen", unsent);
        add("its hand-over to the driver was not seen", unfinished);
    }
    let total = complete + incomplete.values().sum::<u64>();
    MessageCounts { total, complete, incomplete }
}

/// The error for a run without a complete message.
fn nothing(lifetimes: &Lifetimes, leg: Leg, counts: &MessageCounts) -> Error {
    let reasons = if counts.incomplete.is_empty() {
        "no message was seen at all".to_owned()
    } else {
        counts.incomplete.iter().map(|(reason, n)| format!("{n}: {reason}")).collect::<Vec<_>>().join("; ")
    };
    let advice = if counts.incomplete.is_empty() {
        "send it requests while recording, and check the target's process and port"
    } else if leg != Leg::Receive {
        "try --leg receive"
    } else {
        "tailsight doctor shows which hooks this machine lacks"
    };
    let app = if lifetimes.app.is_empty() { "the target".into() } else { lifetimes.app.clone() };
    Error::NoMessages { app, leg, reasons, advice: advice.into() }
}
