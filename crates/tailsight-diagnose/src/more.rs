//! What NSight §7.4 looks at beside the causes: which are most pervasive at every percentile (Figure 18), what was queued
//! ahead of the messages by function (Figure 19), and what ran on each core meanwhile (Figure 20).
//!
//! In: lifetimes, cohorts, rows. Out: [`More`]. All times in ns.

use std::collections::BTreeMap;

use tailsight_lifetime::{Context, Frame, Lifetimes, PathSpan, Role};

use crate::Options;
use crate::causes::Rows;
use crate::model::{CoreContexts, More, Pervasive, Queue};
use crate::phases::Met;
use crate::profile::{Cohort, Profile, each_part};
use crate::rules::shown;

/// The slices that pervasiveness is looked at.
const SLICES: [f64; 13] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 0.999, 1.0];
/// Most messages whose paths are walked for the cores, of each cohort.
const WALKED: usize = 400;
/// Most contexts of a core.
const CONTEXTS: usize = 8;
/// Most causes of a slice.
const CAUSES: usize = 5;

/// The question that [`more`] answers.
pub struct Asked<'a> {
    /// All messages.
    pub lifetimes: &'a Lifetimes,
    /// What was asked.
    pub options: &'a Options,
    /// Sums.
    pub profile: &'a Profile,
    /// Rows.
    pub rows: &'a Rows,
    /// What the cohorts met of each row.
    pub met: &'a [Met],
    /// The cause that each row counts to.
    pub cause_of_row: &'a [usize],
    /// Focus and reference.
    pub cohorts: (&'a Cohort, &'a Cohort),
    /// All complete messages by (latency, id).
    pub ranked: &'a [(u64, u32)],
    /// The path of a message of this run.
    pub path: Option<&'a dyn Fn(u32) -> Vec<PathSpan>>,
    /// Whether the reference is of this run too.
    pub same_run: bool,
}

/// All three.
pub fn more(asked: &Asked<'_>) -> More {
    let (focus, reference) = asked.cohorts;
    let cores = |cohort: &Cohort| asked.path.map_or(vec![], |path| cores(asked.lifetimes, cohort, path));
    More {
        pervasive: SLICES.windows(2).filter_map(|w| pervasive(asked, (w[0], w[1]))).collect(),
        queue: queue(asked),
        cores: [cores(focus), if asked.same_run { cores(reference) } else { vec![] }],
    }
}

fn pervasive(asked: &Asked<'_>, slice: (f64, f64)) -> Option<Pervasive> {
    let ids = &asked.ranked[crate::focus::ranks(asked.ranked.len(), slice)];
    if ids.len() < crate::MIN_MESSAGES {
        return None;
    }
    let causes = asked.cause_of_row.iter().max().map_or(0, |m| m + 1);
    let mut usual = vec![0.0; causes];
    for (row, &cause) in asked.cause_of_row.iter().enumerate() {
        usual[cause] += asked.met[row].mean_ns[1];
    }
    let (mut hit, mut sum, mut ns) = (vec![0u64; causes], vec![0.0; causes], vec![0.0; causes]);
    for &(_, id) in ids {
        ns.fill(0.0);
        asked.profile.each(asked.lifetimes, id, |slot, part| {
            if let Some(row) = asked.rows.find_row(slot) {
                ns[asked.cause_of_row[row]] += part as f64;
            }
        });
        for cause in 0..causes {
            sum[cause] += ns[cause];
            hit[cause] += u64::from(ns[cause] > usual[cause] + asked.options.granularity_ns as f64);
        }
    }
    let n = ids.len() as f64;
    let mut list: Vec<(u32, f64, i64)> = (0..causes)
        .filter(|&c| hit[c] > 0)
        .map(|c| (c as u32 + 1, hit[c] as f64 / n, (sum[c] / n - usual[c]).round() as i64))
        .collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.2.cmp(&a.2)));
    list.truncate(CAUSES);
    let total: u128 = ids.iter().map(|&(ns, _)| u128::from(ns)).sum();
    Some(Pervasive {
        from: slice.0,
        to: slice.1,
        messages: ids.len() as u64,
        mean_ns: crate::focus::mean(total, ids.len() as u64),
        causes: list,
    })
}

/// The function that time ahead of a message was spent in, as Figure 19 groups them.
fn function(lifetimes: &Lifetimes, owner: usize) -> Option<&'static str> {
    let owner = &lifetimes.owners[owner];
    let softirq = |which: u8| owner.frames.iter().any(|f| matches!(f, Frame::Softirq { vec, .. } if *vec == which));
    if softirq(3) {
        return Some("kernel receive");
    }
    if softirq(2) {
        return Some("kernel send");
    }
    if owner.context != Context::Ahead {
        return None;
    }
    let call = owner.frames.iter().find(|f| matches!(f, Frame::Syscall { .. })).map(|f| f.name(&[]));
    Some(match call.as_deref() {
        Some(c) if c.starts_with("sys:send") || c.starts_with("sys:write") => "app send",
        Some(c) if ["sys:recv", "sys:read", "sys:epoll", "sys:accept"].iter().any(|p| c.starts_with(p)) => {
            "app receive"
        }
        _ => "app processing",
    })
}

fn queue(asked: &Asked<'_>) -> Vec<Queue> {
    const FUNCTIONS: [&str; 5] = ["app send", "app receive", "app processing", "kernel receive", "kernel send"];
    let lifetimes = asked.lifetimes;
    let place: Vec<Option<usize>> = (0..lifetimes.owners.len())
        .map(|o| function(lifetimes, o).and_then(|f| FUNCTIONS.iter().position(|g| *g == f)))
        .collect();
    // The messages ahead, then each function on both sides.
    let kinds = 1 + FUNCTIONS.len() * 2;
    let of = |cohort: &Cohort| -> Vec<Vec<(f64, f64)>> {
        let mut out = vec![Vec::with_capacity(cohort.len()); kinds];
        for &id in &cohort.ids {
            let mut one = vec![(0.0, 0.0); kinds];
            one[0].0 = f64::from(lifetimes.messages[id as usize].ahead);
            each_part(lifetimes, id, asked.options.leg, |_, part| {
                if let Some(f) = place[part.owner as usize] {
                    let at = &mut one[1 + f * 2 + usize::from(part.role == Role::A)];
                    at.0 += f64::from(part.count);
                    at.1 += part.ns as f64;
                }
                if lifetimes.owners[part.owner as usize].context == Context::Ahead {
                    one[0].1 += part.ns as f64;
                }
            });
            out.iter_mut().zip(one).for_each(|(all, one)| all.push(one));
        }
        out
    };
    let (focus, reference) = (of(asked.cohorts.0), of(asked.cohorts.1));
    let mean = |all: &[(f64, f64)], f: fn(&(f64, f64)) -> f64| all.iter().map(f).sum::<f64>() / all.len().max(1) as f64;
    let mut out = vec![];
    for kind in 0..kinds {
        let (f, r) = (&focus[kind], &reference[kind]);
        let depth = [mean(f, |x| x.0), mean(r, |x| x.0)];
        let mean_ns = [mean(f, |x| x.1).round() as i64, mean(r, |x| x.1).round() as i64];
        if depth == [0.0; 2] && mean_ns == [0; 2] {
            continue;
        }
        let mut relative: Vec<f64> = f.iter().map(|x| x.0 - depth[1]).collect();
        relative.sort_unstable_by(f64::total_cmp);
        let at = |p: usize| relative[(relative.len() * p).div_ceil(100).max(1) - 1];
        let (function, role) = match kind.checked_sub(1) {
            None => ("messages", Role::A),
            Some(k) => (FUNCTIONS[k / 2], if k % 2 == 1 { Role::A } else { Role::R }),
        };
        out.push(Queue {
            function: function.into(),
            role,
            depth,
            relative: [at(10), at(50), at(90)],
            mean_ns,
            messages: relative.iter().filter(|d| **d > 0.0).count() as u64,
        });
    }
    out
}

/// What ran on each core during the paths of the cohort's messages: of many, evenly spread ones.
fn cores(lifetimes: &Lifetimes, cohort: &Cohort, path: &dyn Fn(u32) -> Vec<PathSpan>) -> Vec<CoreContexts> {
    let mut by_core: BTreeMap<Option<u16>, BTreeMap<String, u64>> = BTreeMap::new();
    let mut all = 0u64;
    for &id in cohort.ids.iter().step_by(cohort.len().div_ceil(WALKED).max(1)) {
        for span in path(id) {
            let ns = span.to_ns - span.from_ns;
            let context = lifetimes.owners.get(span.owner as usize).map_or("unknown".into(), |o| o.context_name());
            *by_core.entry(span.cpu).or_default().entry(shown(&context)).or_default() += ns;
            all += ns;
        }
    }
    let core = |(cpu, contexts): (Option<u16>, BTreeMap<String, u64>)| {
        let sum: u64 = contexts.values().sum();
        let mut contexts: Vec<(String, f64)> =
            contexts.into_iter().map(|(name, ns)| (name, ns as f64 / sum.max(1) as f64)).collect();
        contexts.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let rest: f64 = contexts.iter().skip(CONTEXTS).map(|c| c.1).sum();
        contexts.truncate(CONTEXTS);
        if rest > 0.0 {
            contexts.push(("others".into(), rest));
        }
        CoreContexts { cpu, share: sum as f64 / all.max(1) as f64, contexts }
    };
    by_core.into_iter().map(core).collect()
}
