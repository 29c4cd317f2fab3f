//! The report: one self-contained HTML file.
//!
//! In: [`Input`]. Out: the page as text. The page itself is built from web/ and committed as assets/page.html (docs/report.md);
//! this module inserts its data. The page loads nothing, and its content-security policy forbids it to. Data is base64 of gzip in script
//! elements that no browser runs ([`elements`]), and the page's scripts insert text only as text: a task named `</script>` does no harm.
//!
//! Every message is in the page and is drawn. The timelines are those of [`Input::paths`]; the page says which ones it lacks. [`served`] is
//! the same page for `tailsight view`, which has all timelines; of a large run that page asks for the messages of the part that is
//! shown ([`Points`]).

mod classes;
pub(crate) mod curves;
pub(crate) mod elements;
mod messages;
mod points;
mod timeline;

use std::collections::BTreeMap;

use serde::Serialize;
use tailsight_diagnose::cohorts::chosen_class::InClass;
use tailsight_diagnose::model::LegLatency;
use tailsight_diagnose::{Category, CategoryTable, Diagnosis, Titled};
use tailsight_lifetime::{Leg, Lifetimes, OwnerId, PathSpan, Role};
use tailsight_stats::quantile;
use tailsight_trace::RunMeta;
use tailsight_trace::samples::Samples;

use crate::{terminal, words};
use elements::Element;
#[cfg(feature = "export")]
pub(crate) use elements::gzip;
pub use points::{Beside, Only, Part, Points};
pub use timeline::{Bundle, Timelines};

/// What a report is made of.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The run's description.
    pub meta: &'a RunMeta,
    /// Its messages.
    pub lifetimes: &'a Lifetimes,
    /// The diagnosis of one leg of them.
    pub diagnosis: &'a Diagnosis,
    /// Paths of the messages whose timelines are put into the page, the most important first.
    pub paths: &'a [(u32, Vec<PathSpan>)],
    /// The cause (index into [`Diagnosis::causes`]) to which the time of an owner in a leg (never [`Leg::Total`]) belongs: in another leg
    /// the same owner may belong to another cause.
    pub cause_of: &'a (dyn Fn(Leg, Role, OwnerId) -> Option<usize> + Sync),
    /// The category table of the diagnosis.
    pub categories: &'a CategoryTable,
    /// The run's samples.
    pub samples: Option<&'a Samples>,
    /// Call stacks, outermost function first, with ns in a mean message of the focus and of the reference.
    pub stacks: &'a [(Vec<String>, [f64; 2])],
    /// The run that this one is compared with, and its name.
    pub against: Option<(&'a str, &'a Lifetimes)>,
}

/// Timelines in one element: few, so that the page unpacks it in some milliseconds.
const A_BUNDLE: usize = 48;

/// What each category is called.
fn categories() -> BTreeMap<&'static str, &'static str> {
    Category::ALL
        .into_iter()
        .chain([Category::NotSignificant])
        .map(|category| (category.as_str(), category.words()))
        .collect()
}

/// Most call stacks in the page; the smallest are left out.
const MOST_STACKS: usize = 20_000;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Page<'a> {
    verdict: String,
    lost: String,
    cost: String,
    percentiles: Vec<&'a str>,
    /// How many messages each percentile needs.
    needed: BTreeMap<&'a str, usize>,
    /// The causes' names in words, by index.
    titles: Vec<String>,
    /// The names of the rows that may be chance.
    chance_titles: Vec<String>,
    /// The names of the rows of a median message.
    typical_titles: Vec<String>,
    /// The names of the parts of each of the slowest messages.
    slowest_titles: Vec<Vec<String>>,
    /// What the contexts of `more` are in words.
    contexts: BTreeMap<&'a str, String>,
    /// What the categories are called, by their ids.
    categories: BTreeMap<&'static str, &'static str>,
    /// Names of the roles.
    roles: BTreeMap<&'static str, &'static str>,
    requests: Option<classes::Requests>,
    meta: &'a RunMeta,
    diagnosis: &'a Diagnosis,
    messages: messages::Columns,
    curves: Vec<curves::Curve>,
    against: Option<Against<'a>>,
    functions: Option<Functions<'a>>,
    /// Means over the reference messages: the other half of each message's table.
    reference: Vec<timeline::RowKey>,
    reference_ns: u64,
    timelines: Embedded,
    /// Whether the page is served by `tailsight view`, which has every timeline.
    served: bool,
}

/// The run that this one is compared with.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Against<'a> {
    run: &'a str,
    legs: BTreeMap<String, LegLatency>,
    curves: Vec<curves::Curve>,
}

/// The call stacks of the focus beside those of the reference.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Functions<'a> {
    frames: Vec<&'a str>,
    /// Indices in `frames`, outermost first; ns in a mean message of the focus, and of the reference.
    stacks: Vec<(Vec<usize>, f64, f64)>,
    /// How many stacks were left out.
    left_out: usize,
}

/// Which timelines are in the page: the ids of each element `timelines-0`, `timelines-1` and so on.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Embedded {
    ids: Vec<Vec<u32>>,
    /// How many of them are in focus.
    focus: usize,
    /// How many complete messages there are.
    of: usize,
}

/// The page as it was built from web/.
const PAGE: &str = include_str!("../../assets/page.html");
/// Where the data goes.
const MARK: &str = "<!--tailsight:data-->";
/// The policy of a file, which loads nothing.
const FILE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// The report as one HTML document.
pub fn report(input: &Input) -> String {
    page(input, false, None)
}

/// The page as `tailsight view` serves it: it may ask its own server, and no other, for what it lacks. Of a run of more than `most`
/// messages it holds those in focus and about `most` others.
pub fn served(input: &Input, most: usize) -> String {
    page(input, true, Some(most)).replacen(FILE_POLICY, &format!("{FILE_POLICY}; connect-src 'self'"), 1)
}

fn page(input: &Input, served: bool, most: Option<usize>) -> String {
    let d = input.diagnosis;
    let mut percentiles = terminal::PERCENTILES.to_vec();
    percentiles.extend(terminal::deeper_percentiles(d).into_iter().map(|(key, _)| key));
    let in_class = InClass::of(d, input.lifetimes);
    let curves = curves::curves(&in_class.only(&input.lifetimes.messages), &percentiles);
    let needed =
        percentiles.iter().filter_map(|key| Some((*key, quantile::needed(curves::quantile_of(key)?)))).collect();
    percentiles.push("max");
    let timelines = Timelines::new(input);
    let (columns, mut parts) = messages::columns(input, most);
    let bundles: Vec<&[(u32, Vec<PathSpan>)]> = input.paths.chunks(A_BUNDLE).collect();
    let in_focus: std::collections::HashSet<u32> = messages::focus(input).into_iter().collect();
    let page = Page {
        verdict: terminal::verdict(d).trim_end_matches(" Because:").to_owned(),
        lost: terminal::lost(d),
        cost: terminal::cost(d, Some(input.meta)),
        percentiles,
        needed,
        titles: d.causes.iter().map(Titled::title).collect(),
        chance_titles: d.not_significant.iter().map(Titled::title).collect(),
        typical_titles: d.typical.iter().flat_map(|t| &t.rows).map(Titled::title).collect(),
        slowest_titles: d.slowest.iter().map(|m| m.parts.iter().map(Titled::title).collect()).collect(),
        contexts: contexts(d),
        categories: categories(),
        roles: timeline::roles(),
        requests: classes::requests(input),
        meta: input.meta,
        diagnosis: d,
        messages: columns,
        curves,
        against: input.against.map(|(run, other)| {
            let messages = InClass::of(d, other).only(&other.messages);
            Against {
                run,
                legs: tailsight_diagnose::cohorts::legs::Latencies::of(&messages).percentiles(),
                curves: curves::curves(&messages, &[]),
            }
        }),
        functions: functions(input.stacks),
        reference: timelines.reference(),
        reference_ns: timelines.reference_ns(),
        timelines: Embedded {
            ids: bundles.iter().map(|b| b.iter().map(|(id, _)| *id).collect()).collect(),
            focus: input.paths.iter().filter(|(id, _)| in_focus.contains(id)).count(),
            of: d.messages.complete as usize,
        },
        served,
    };
    parts.insert(0, Element::json("page", &page));
    for (i, bundle) in bundles.iter().enumerate() {
        parts.push(Element::json(format!("timelines-{i}"), &timelines.bundle(bundle)));
    }
    document(&parts)
}

/// The page with its data.
pub(crate) fn document(parts: &[Element]) -> String {
    fill(&elements::html(parts))
}

/// The template with the data in its place.
fn fill(data: &str) -> String {
    let (before, after) = PAGE.rsplit_once(MARK).expect("the built page has the place for its data");
    [before, data, after].concat()
}

/// Each context that `more` names, in words.
fn contexts(d: &Diagnosis) -> BTreeMap<&str, String> {
    let cores = d.more.iter().flat_map(|m| m.cores.iter().flatten());
    cores.flat_map(|core| words::contexts(d, core)).map(|(name, words, _)| (name, words)).collect()
}

/// The call stacks with each function's name once.
fn functions(stacks: &[(Vec<String>, [f64; 2])]) -> Option<Functions<'_>> {
    let mut largest: Vec<&(Vec<String>, [f64; 2])> = stacks.iter().collect();
    largest.sort_by(|a, b| (b.1[0] + b.1[1]).total_cmp(&(a.1[0] + a.1[1])).then_with(|| a.0.cmp(&b.0)));
    let left_out = largest.len().saturating_sub(MOST_STACKS);
    largest.truncate(MOST_STACKS);
    let mut frames: Vec<&str> = largest.iter().flat_map(|(names, _)| names).map(String::as_str).collect();
    frames.sort_unstable();
    frames.dedup();
    let place = |name: &String| frames.binary_search(&name.as_str()).unwrap_or(0);
    let by_place = |(names, [focus, reference]): &&(Vec<String>, [f64; 2])| {
        (names.iter().map(place).collect(), *focus, *reference)
    };
    let stacks = largest.iter().map(by_place).collect();
    (!largest.is_empty()).then_some(Functions { frames, stacks, left_out })
}
