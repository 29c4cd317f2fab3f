//! The report: one self-contained HTML file.
//!
//! In: [`Input`]. Out: the page as text. It holds its data, its style and its scripts; it loads nothing, and its
//! content-security policy forbids it to. Data is JSON in a script element of its own, with every `<` escaped, and the
//! scripts insert text only as text: a task named `</script>` is a name and no more.
//!
//! Every message is in the page and every message is drawn. Latencies are 32-bit ns when they fit (else 64-bit
//! floats), flows 16-bit when they fit: 200,000 messages take less than 3 MB.

mod classes;
mod messages;
mod timeline;

use std::collections::BTreeMap;

use serde::Serialize;
use tailsight_diagnose::{Diagnosis, Titled};
use tailsight_lifetime::{Leg, Lifetimes, OwnerId, PathSpan, Role};
use tailsight_trace::RunMeta;

use crate::{terminal, words};

/// What a report is made of.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The run's description.
    pub meta: &'a RunMeta,
    /// The messages.
    pub lifetimes: &'a Lifetimes,
    /// The diagnosis of one leg of them.
    pub diagnosis: &'a Diagnosis,
    /// Paths to draw, in the order of drawing: the slowest message's, then a median one's for comparison.
    pub paths: &'a [(u32, Vec<PathSpan>)],
    /// Which of the diagnosis's causes (index into [`Diagnosis::causes`]) an owner's time in a leg (never
    /// [`Leg::Total`]) counts to: the same owner may count to another cause in another leg.
    pub cause_of: &'a dyn Fn(Leg, Role, OwnerId) -> Option<usize>,
}

#[derive(Serialize)]
struct Page<'a> {
    verdict: String,
    lost: String,
    cost: String,
    percentiles: Vec<&'a str>,
    /// The causes' names in words, by index.
    titles: Vec<String>,
    /// Those of the rows that may be chance.
    chance_titles: Vec<String>,
    /// Those of the rows of a median message.
    typical_titles: Vec<String>,
    /// Those of the parts of each of the slowest messages.
    slowest_titles: Vec<Vec<String>>,
    /// What the contexts of `more` are in words.
    contexts: BTreeMap<&'a str, String>,
    requests: Option<classes::Requests>,
    meta: &'a RunMeta,
    diagnosis: &'a Diagnosis,
    messages: messages::Columns,
    timelines: Vec<timeline::Timeline>,
}

const PAGE: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
const SCRIPTS: [&str; 8] = [
    include_str!("chart.js"),
    include_str!("tables.js"),
    include_str!("legs.js"),
    include_str!("more.js"),
    include_str!("distribution.js"),
    include_str!("balloon.js"),
    include_str!("timeline.js"),
    include_str!("page.js"),
];

/// The report as one HTML document.
pub fn report(input: &Input) -> String {
    let d = input.diagnosis;
    let mut percentiles = terminal::PERCENTILES.to_vec();
    percentiles.extend(terminal::deeper_percentiles(d).into_iter().map(|(key, _)| key));
    percentiles.push("max");
    let page = Page {
        verdict: terminal::verdict(d).trim_end_matches(" Because:").to_owned(),
        lost: terminal::lost(d),
        cost: terminal::cost(d, Some(input.meta)),
        percentiles,
        titles: d.causes.iter().map(Titled::title).collect(),
        chance_titles: d.not_significant.iter().map(Titled::title).collect(),
        typical_titles: d.typical.iter().flat_map(|t| &t.rows).map(Titled::title).collect(),
        slowest_titles: d.slowest.iter().map(|m| m.parts.iter().map(Titled::title).collect()).collect(),
        contexts: contexts(d),
        requests: classes::requests(input),
        meta: input.meta,
        diagnosis: d,
        messages: messages::columns(input),
        timelines: input.paths.iter().filter_map(|(id, path)| timeline::timeline(input, *id, path)).collect(),
    };
    fill(&json(&page))
}

/// Each context that `more` names, in words.
fn contexts(d: &Diagnosis) -> BTreeMap<&str, String> {
    let cores = d.more.iter().flat_map(|m| m.cores.iter().flatten());
    cores.flat_map(|core| words::contexts(d, core)).map(|(name, words, _)| (name, words)).collect()
}

/// The template with each placeholder filled once, in one pass: what is filled in is not searched again.
fn fill(data: &str) -> String {
    let mut out = String::with_capacity(PAGE.len() + CSS.len() + data.len() + 65_536);
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        out += before;
        let (name, after) = after.split_once("}}").expect("a placeholder of page.html is closed");
        match name {
            "css" => out += CSS,
            "data" => out += data,
            "js" => SCRIPTS.iter().for_each(|s| out += s),
            other => unreachable!("page.html names an unknown placeholder {other}"),
        }
        rest = after;
    }
    out + rest
}

/// JSON that is safe inside a script element: no `<` is left in it, so neither `</script` nor `<!--` can be.
fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data with text keys always serialises").replace('<', "\\u003c")
}
