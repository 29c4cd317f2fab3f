//! What NSight §7.4 shows beside the causes: the most pervasive ones at every percentile (Figure 18), what was queued ahead of the
//! messages by function (Figure 19), and what ran on each core meanwhile (Figure 20).
//!
//! In: lifetimes, cohorts, rows. Out: [`More`]. All times in ns.

use std::collections::BTreeMap;

use tailsight_lifetime::{Context, Leg, Lifetimes, Owner, PathPart};

use crate::categories::shown;
use crate::cohorts::Cohort;
use crate::model::{CoreContexts, More, Pervasive};
use crate::queued::{Walks, queue};
use crate::rows::Rows;
use crate::rows::attribution::Occurrence;
use crate::rows::profile::Profile;
use crate::{Options, PathOf};

/// The slices that pervasiveness is looked at.
const SLICES: [f64; 13] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 0.999, 1.0];
/// Most messages whose paths are walked for the cores, of each cohort.
const WALKED: usize = 400;
/// Most contexts of a core.
const CONTEXTS: usize = 8;
/// Most causes of a slice.
const CAUSES: usize = 5;

/// What [`more`] looks at.
pub struct MoreInput<'a> {
    /// All messages.
    pub lifetimes: &'a Lifetimes,
    /// What was found.
    pub options: &'a Options,
    /// Sums.
    pub profile: &'a Profile,
    /// Rows.
    pub rows: &'a Rows,
    /// How often and how long each row was met.
    pub occurrences: &'a [Occurrence],
    /// The cause that each row counts to.
    pub cause_of_row: &'a [usize],
    /// Focus and reference.
    pub cohorts: (&'a Cohort, &'a Cohort),
    /// All complete messages by (latency, id).
    pub ranked: &'a [(u64, u32)],
    /// The path of a message of this run.
    pub path: Option<PathOf<'a>>,
    /// The paths of the messages of both cohorts.
    pub walks: Option<Walks<'a>>,
    /// Whether the reference is of this run too.
    pub same_run: bool,
}

/// All three; the settings of the host are in the run's description, which is not read here.
pub fn more(input: &MoreInput<'_>) -> More {
    let (focus, reference) = input.cohorts;
    let cores =
        |cohort: &Cohort| input.path.map_or(vec![], |path| cores(input.lifetimes, cohort, (path, input.options.leg)));
    More {
        pervasive: SLICES.windows(2).filter_map(|w| pervasive(input, (w[0], w[1]))).collect(),
        queue: queue(input.lifetimes, input.options, input.cohorts, input.walks.as_ref()),
        cores: [cores(focus), if input.same_run { cores(reference) } else { vec![] }],
        settings: vec![],
    }
}

fn pervasive(input: &MoreInput<'_>, slice: (f64, f64)) -> Option<Pervasive> {
    let ids = &input.ranked[crate::cohorts::focus::ranks(input.ranked.len(), slice)];
    if ids.len() < crate::MIN_MESSAGES {
        return None;
    }
    let causes = input.cause_of_row.iter().max().map_or(0, |m| m + 1);
    let mut usual = vec![0.0; causes];
    for (row, &cause) in input.cause_of_row.iter().enumerate() {
        usual[cause] += input.occurrences[row].mean_ns[1];
    }
    let (mut hit, mut sum, mut ns) = (vec![0u64; causes], vec![0.0; causes], vec![0.0; causes]);
    for &(_, id) in ids {
        ns.fill(0.0);
        input.profile.each(input.lifetimes, id, |slot, part| {
            if let Some(row) = input.rows.find_row(slot) {
                ns[input.cause_of_row[row]] += part as f64;
            }
        });
        for cause in 0..causes {
            sum[cause] += ns[cause];
            hit[cause] += u64::from(ns[cause] > usual[cause] + input.options.granularity_ns as f64);
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
        mean_ns: crate::cohorts::focus::mean(total, ids.len() as u64),
        causes: list,
    })
}

/// A context as it may be shown, and what it is called.
fn context_of(owner: Option<&Owner>) -> (String, Context) {
    let Some(owner) = owner else { return ("unknown".into(), Context::Unknown) };
    let context = match &owner.context {
        Context::Sibling { comm } => Context::Sibling { comm: shown(comm) },
        Context::Foreign { comm, kernel } => Context::Foreign { comm: shown(comm), kernel: *kernel },
        other => other.clone(),
    };
    (shown(&owner.context_name()), context)
}

/// What ran on each core during the paths of the cohort's messages: of many, evenly spread ones.
fn cores(lifetimes: &Lifetimes, cohort: &Cohort, (path, leg): (PathOf<'_>, Leg)) -> Vec<CoreContexts> {
    let contexts: Vec<(String, Context)> = lifetimes.owners.iter().map(|owner| context_of(Some(owner))).collect();
    let unknown = context_of(None);
    let mut by_core: BTreeMap<Option<u16>, BTreeMap<&(String, Context), u64>> = BTreeMap::new();
    let mut total_ns = 0u64;
    for &id in cohort.ids.iter().step_by(cohort.len().div_ceil(WALKED).max(1)) {
        for span in path(id, leg, PathPart::Whole) {
            let ns = span.to_ns - span.from_ns;
            let context = contexts.get(span.owner as usize).unwrap_or(&unknown);
            *by_core.entry(span.cpu).or_default().entry(context).or_default() += ns;
            total_ns += ns;
        }
    }
    let core = |(cpu, contexts): (Option<u16>, BTreeMap<&(String, Context), u64>)| {
        let sum: u64 = contexts.values().sum();
        let part = |ns: u64| ns as f64 / sum.max(1) as f64;
        let mut shares: Vec<(&(String, Context), f64)> =
            contexts.into_iter().map(|(context, ns)| (context, part(ns))).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let rest: f64 = shares.iter().skip(CONTEXTS).map(|c| c.1).sum();
        shares.truncate(CONTEXTS);
        let mut contexts: Vec<(String, f64)> = shares.iter().map(|((name, _), part)| (name.clone(), *part)).collect();
        let mut kinds: Vec<Option<Context>> = shares.iter().map(|((_, kind), _)| Some(kind.clone())).collect();
        if rest > 0.0 {
            contexts.push(("others".into(), rest));
            kinds.push(None);
        }
        CoreContexts { cpu, share: sum as f64 / total_ns.max(1) as f64, contexts, kinds }
    };
    by_core.into_iter().map(core).collect()
}
