//! The terminal: what a person reads in ten seconds.
//!
//! In: a [`Diagnosis`] or a [`RunMeta`], and a [`Style`]. Out: text that ends in a newline, no line wider than the
//! style's width except commands, which are never broken so that they can be copied. Control characters in names are
//! replaced: a task's name cannot move the cursor.

mod causes;
mod classes;
mod distribution;
mod hot_path;
pub mod ideal;
mod legs;
mod message;
mod more;
mod protocols;
mod record;
pub mod rules;
mod steps;
mod text;
mod typical;

use tailsight_advice::root_words;
use tailsight_diagnose::model::{Cause, Fix, NextStep};
use tailsight_diagnose::multiplexed::{counts_segments, knows_only_receiving};
use tailsight_diagnose::nothing_stands_out;
use tailsight_diagnose::{Category, Diagnosis, Titled};
use tailsight_lifetime::{Leg, UNKNOWN_ADDRESS};
use tailsight_trace::RunMeta;

use crate::units;
pub(crate) use causes::role_name;
pub use distribution::distribution;
pub use message::message_of;
pub use more::more;
pub use protocols::protocols;
pub use record::record_summary;
pub use rules::rules;
pub use text::wrap;
use text::{clean, paint};

/// The appearance of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether ANSI colours are wanted (a terminal, and `NO_COLOR` not set).
    pub color: bool,
    /// Columns; used between 60 and 140.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Style {
        Style { color: false, width: 80 }
    }
}

impl Style {
    fn columns(&self) -> usize {
        self.width.clamp(60, 140)
    }
}

/// The percentiles that are always listed; one that the sample cannot support reads `N/A`.
pub(crate) const PERCENTILES: [&str; 4] = ["p50", "p90", "p99", "p99.9"];

/// The diagnosis of a run without its description: the first line then says no duration.
pub fn diagnosis(diagnosis: &Diagnosis, style: &Style) -> String {
    diagnosis_of(diagnosis, None, style)
}

/// A leg's name: the transmit leg's says where it begins when that is not the send call.
fn leg_name(d: &Diagnosis, leg: Leg) -> &'static str {
    if leg == Leg::Transmit { tailsight_diagnose::sent::transmit_name(&d.send_entry) } else { leg.name() }
}

/// The diagnosis of a run: verdict, percentiles, causes, what was lost, what it cost, the next steps.
pub fn diagnosis_of(diagnosis: &Diagnosis, run: Option<&RunMeta>, style: &Style) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out += text.trim_end();
        out.push('\n');
    };
    line(headline(diagnosis, run, style));
    let latencies =
        if diagnosis.legs.is_empty() { percentiles(diagnosis, style) } else { legs::table(diagnosis, style) };
    for row in latencies {
        line(row);
    }
    line(String::new());
    for row in wrap(&verdict(diagnosis), style.columns(), "") {
        line(paint(style, "1", &row));
    }
    if diagnosis.not_available.is_some() {
        line(String::new());
        for row in typical::slowest(diagnosis, style) {
            line(row);
        }
    }
    if !diagnosis.causes.is_empty() {
        line(String::new());
        for row in causes::table(diagnosis, style) {
            line(row);
        }
        if let Some(text) = causes::cancelling(diagnosis) {
            wrap(&text, style.columns(), "").into_iter().for_each(&mut line);
        }
    }
    // Where most has no known owner, that is the answer.
    let unknown = diagnosis.causes.last().filter(|c| !causes::is_named(c) && c.share > MOST_OF_IT);
    let first = unknown.or_else(|| first_cause(diagnosis));
    if let Some(text) = first.map(|c| c.explanation.trim()).filter(|t| !t.is_empty()) {
        line(String::new());
        for row in wrap(text, style.columns(), "") {
            line(row);
        }
    }
    let typical = typical::table(diagnosis, style);
    if !typical.is_empty() {
        line(String::new());
        for row in typical {
            line(row);
        }
    }
    let classes = classes::table(diagnosis, style);
    if !classes.is_empty() {
        line(String::new());
        for row in classes {
            line(row);
        }
    }
    line(String::new());
    for row in labelled(diagnosis, run, style) {
        line(row);
    }
    let hot_path = hot_path::lines(diagnosis, style);
    let steps = next_steps(diagnosis);
    if !steps.is_empty() {
        line(String::new());
        line(paint(style, "1", "Next:"));
        for (n, step) in steps.iter().enumerate() {
            for (i, row) in steps::lines(step, style.columns() - 5).into_iter().enumerate() {
                line(if i == 0 { format!("  {}. {row}", n + 1) } else { format!("     {row}") });
            }
        }
    }
    if !hot_path.is_empty() {
        line(String::new());
        for row in hot_path {
            line(row);
        }
    }
    out
}

fn headline(d: &Diagnosis, run: Option<&RunMeta>, style: &Style) -> String {
    let leg = match d.leg {
        Leg::Total => String::new(),
        leg => format!(", {} only", leg_name(d, leg)),
    };
    let class = match &d.class {
        None => String::new(),
        Some(class) if class.classes.len() == 1 => format!(", class {}", clean(&class.name)),
        Some(class) => format!(", {} classes {}", class.classes.len(), clean(&class.name)),
    };
    let mut text = format!(
        "{}{leg}{class}: {} of {}",
        paint(style, "1", &clean(&d.app)),
        units::count(d.messages.complete),
        units::counted(d.messages.total, if counts_segments(d) { "segment" } else { "message" }),
    );
    if let Some(run) = run.filter(|r| r.end_ns > r.start_ns) {
        text += &format!(" in {}", units::duration(run.end_ns - run.start_ns));
    }
    text
}

fn percentiles(d: &Diagnosis, style: &Style) -> Vec<String> {
    let mut cells = Vec::new();
    for key in PERCENTILES {
        cells.push(match d.latency_ns.get(key) {
            Some(&ns) => format!("{key} {}", paint(style, "1", &units::duration(ns))),
            None => format!("{key} N/A"),
        });
    }
    for (key, &ns) in deeper_percentiles(d) {
        cells.push(format!("{key} {}", paint(style, "1", &units::duration(ns))));
    }
    if let Some(&ns) = d.latency_ns.get("max") {
        cells.push(format!("max {}", paint(style, "1", &units::duration(ns))));
    }
    let mut rows = vec![String::new()];
    for cell in cells {
        let last = rows.last_mut().expect("never empty");
        if last.is_empty() {
            *last = cell;
        } else if text::width(last) + 3 + text::width(&cell) <= style.columns() {
            *last += &format!("   {cell}");
        } else {
            rows.push(cell);
        }
    }
    rows
}

/// Percentiles beyond the standard ones, ascending (the map itself sorts by text).
pub(crate) fn deeper_percentiles(d: &Diagnosis) -> Vec<(&str, &u64)> {
    let mut deeper: Vec<(f64, &str, &u64)> = d
        .latency_ns
        .iter()
        .filter(|(k, _)| !PERCENTILES.contains(&k.as_str()))
        .filter_map(|(k, v)| Some((k.strip_prefix('p')?.parse().ok()?, k.as_str(), v)))
        .collect();
    deeper.sort_by(|a, b| a.0.total_cmp(&b.0));
    deeper.into_iter().map(|(_, k, v)| (k, v)).collect()
}

/// What held the messages ahead is the first sentence's answer when it was at least this part of the wait, and else their number, when
/// they were so many times as many as usual.
const PART_OF_A_WAIT: f64 = 0.25;
const MANY: f64 = 2.0;
/// With more than this part of the difference unexplained, the text under the table says why that is.
const MOST_OF_IT: f64 = 0.5;

/// The diagnosis in one sentence; also the page's headline.
pub(crate) fn verdict(d: &Diagnosis) -> String {
    if let Some(why) = &d.not_available {
        return clean(why);
    }
    let of_class = d.class.as_ref().map_or_else(String::new, |class| format!(" of {}", clean(&class.name)));
    let focus = units::slice_subject(&d.focus) + &of_class;
    let reference = match &d.against {
        None => units::slice_object(&d.reference),
        Some(run) => format!("the same slice of {}", clean(run)),
    };
    let mean = units::duration(d.focus.mean_ns);
    let (a, b) = (d.focus.mean_ns, d.reference.mean_ns);
    if a == b {
        return format!("{focus} take {mean}, no more than {reference}: there is no delay to explain.");
    }
    let (apart, word) = (units::duration(a.abs_diff(b)), if a > b { "more" } else { "less" });
    let because = match waited_behind(d) {
        _ if d.causes.is_empty() => "; no cause could be named.".to_owned(),
        Some((share, behind)) => {
            format!("; for {} of that they waited behind {behind}. Because:", units::percent(share))
        }
        None => ". Because:".to_owned(),
    };
    let usual = match nothing_stands_out(d) {
        true => "Nothing stands out: p99 is less than 3 times the median, and no cause adds 100 us. ",
        false => "",
    };
    let said = format!("{usual}{focus} take {mean}, {apart} {word} than {reference}{because}");
    if knows_only_receiving(d) {
        return format!("Only receiving is known here, not how long requests take: many share a connection. {said}");
    }
    said
}

/// Of a first cause that is a queue: its part of the difference, and which messages were ahead. Those that something held, or many.
fn waited_behind(d: &Diagnosis) -> Option<(f64, String)> {
    // A queue that is little of it is no headline.
    let queue = |c: &&Cause| {
        c.category == Category::HolBlocking && c.share >= PART_OF_A_WAIT && d.focus.mean_ns > d.reference.mean_ns
    };
    let cause = first_cause(d).filter(queue)?;
    let held = cause.root.first().filter(|root| root.of_wait.is_none_or(|part| part >= PART_OF_A_WAIT));
    if let Some(root) = held {
        let held = root.of_wait.map_or(1.0, |part| part.clamp(0.0, 1.0));
        let behind = format!("messages that were held by {}", clean(&root_words(root)));
        return Some((held * cause.share.min(1.0), behind));
    }
    let ahead = cause.ahead.as_ref().filter(|ahead| ahead.focus >= MANY * ahead.reference.max(1.0))?;
    let behind = format!("more messages than usual ({:.1}, usually {:.1})", ahead.focus, ahead.reference);
    Some((cause.share.min(1.0), behind))
}

/// The largest cause that has a name.
pub(crate) fn first_cause(d: &Diagnosis) -> Option<&tailsight_diagnose::model::Cause> {
    d.causes.iter().find(|c| causes::is_named(c) && c.share > 0.0)
}

/// The first cause's first fix, unless tailsight fix makes it: then the diagnosis proposes that command.
fn first_fix(d: &Diagnosis) -> Option<&Fix> {
    let cause = first_cause(d)?;
    cause.steps.first().filter(|_| !cause.actions.iter().any(|a| a.shell.contains(&0)))
}

fn labelled(d: &Diagnosis, run: Option<&RunMeta>, style: &Style) -> Vec<String> {
    let mut rows = Vec::new();
    let mut item = |label: &str, code: &str, text: String| {
        for (i, row) in wrap(&text, style.columns() - 11, "           ").into_iter().enumerate() {
            rows.push(if i == 0 { format!("{}{row}", paint(style, code, &format!("{label:<11}"))) } else { row });
        }
    };
    if !d.causes.is_empty() {
        item("Explained:", "1", explained(d));
        if d.owned.overall < 0.9995 || d.owned.min < 0.9995 {
            item("Owner:", "1", format!("known of {}", parts(&d.owned)));
        }
    }
    if d.clusters.len() > 1 {
        for (i, group) in groups(d).into_iter().enumerate() {
            item(if i == 0 { "Groups:" } else { "" }, "1", group);
        }
    }
    if let Some(sent) = &d.sent {
        item("Sent:", "1", sent_by_itself(sent));
    }
    item("Lost:", if d.loss.events > 0 { "1;33" } else { "1" }, lost(d));
    item("Cost:", "1", cost(d, run));
    for note in &d.notes {
        item("Note:", "1;33", note.clone());
    }
    rows
}

/// How much of the deviation reported causes explain; also the page's words.
pub(crate) fn explained(d: &Diagnosis) -> String {
    format!("by the causes above, {}", parts(&d.coverage))
}

/// A part of the deviation over all, and by message.
pub(crate) fn parts(coverage: &tailsight_diagnose::model::Coverage) -> String {
    let overall = units::percent(coverage.overall);
    if coverage.min >= 0.9995 {
        return format!("{overall} of the difference (in every message)");
    }
    let (half, least) = (units::percent(coverage.p50), units::percent(coverage.min));
    let which = coverage.least.first().map_or(String::new(), |(id, _)| format!(", message {id}"));
    format!("{overall} of the difference (median message {half}, lowest {least}{which})")
}

/// The messages in focus by their largest cause, a line each.
fn groups(d: &Diagnosis) -> Vec<String> {
    const MOST_CLUSTERS: usize = 3;
    let cluster = |c: &tailsight_diagnose::model::Cluster| {
        let name = match c.category {
            Category::NotSignificant => match causes::by_chance(d) {
                largest if largest.is_empty() => "differences too rare to tell from chance".to_owned(),
                largest => format!("differences too rare to tell from chance (the largest: {largest})"),
            },
            category if category.says(&c.title()) => category.words().to_owned(),
            category => format!("{} ({})", clean(&c.title()), category.words()),
        };
        // As in its row.
        let name =
            name + causes::guessed(d.causes.iter().find(|cause| cause.rank == c.rank).and_then(|cause| cause.guessed));
        let (n, mean) = (units::count(c.messages), units::duration(c.mean_ns));
        format!("{n} mostly {name}, mean {mean}, e.g. message {} (tailsight show)", c.example)
    };
    let mut lines: Vec<String> = d.clusters.iter().take(MOST_CLUSTERS).map(cluster).collect();
    if d.clusters.len() > MOST_CLUSTERS {
        let rest: u64 = d.clusters[MOST_CLUSTERS..].iter().map(|c| c.messages).sum();
        let others = units::counted((d.clusters.len() - MOST_CLUSTERS) as u64, "other cause");
        lines.push(format!("{} with {others}", units::count(rest)));
    }
    lines
}

/// What the application sent without a request, in one sentence.
fn sent_by_itself(sent: &tailsight_diagnose::model::Sent) -> String {
    let in_words = |what: &str, which: &str, calls: &Option<tailsight_diagnose::model::SentCalls>| {
        let calls = calls.as_ref()?;
        let mut text = units::counted(calls.calls, what) + which;
        for (what, percentiles_ns) in [("transmit", &calls.transmit_ns), ("wait for the answer", &calls.wait_ns)] {
            let ns = |key: &str| Some(format!("{key} {}", units::duration(*percentiles_ns.get(key)?)));
            let percentiles: Vec<String> = ["p50", "p99", "max"].iter().filter_map(|key| ns(key)).collect();
            if percentiles.is_empty() && calls.answered > 0 && what.starts_with("wait") {
                text += ", wait for the answer N/A: of requests on shared connections it is not known";
            } else if !percentiles.is_empty() {
                text += &format!(", {what} {}", percentiles.join(", "));
            }
        }
        // Whoever is listed first of those that got as many has not got the most.
        match &calls.peers[..] {
            [(peer, n), ..] if *n == calls.calls => text += &format!(", all to {}", clean(peer)),
            [(_, n), (_, other), ..] if n == other => {
                let alike = calls.peers.iter().filter(|(_, calls)| calls == n).count();
                text += &format!(", to {} servers {} each", units::count(alike as u64), units::count(*n));
            }
            [(peer, n), ..] => text += &format!(", most to {} ({})", clean(peer), units::count(*n)),
            [] => {}
        }
        if let Some((peer, n)) = calls.peers.iter().skip(1).find(|(peer, _)| peer == UNKNOWN_ADDRESS) {
            text += &format!(", {} to {peer}", units::count(*n));
        }
        Some(text)
    };
    let kinds = [
        in_words("send", " beside the replies (unasked, or further parts of them)", &sent.pushes),
        in_words("own request", "", &sent.requests),
    ];
    kinds.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What was lost, in one sentence.
pub(crate) fn lost(d: &Diagnosis) -> String {
    let mut text = match d.loss.events {
        0 => "no events".to_owned(),
        n => units::counted(n, "event"),
    };
    let unfollowed = d.messages.total.saturating_sub(d.messages.complete);
    if unfollowed > 0 {
        text += &format!("; {} not followed to the end", units::counted(unfollowed, "message"));
        let mut reasons: Vec<_> = d.messages.incomplete.iter().filter(|(_, n)| **n > 0).collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        if !reasons.is_empty() {
            let list: Vec<_> = reasons.iter().map(|(r, n)| format!("{}: {}", r.text(), units::count(**n))).collect();
            text += &format!(" ({})", list.join(", "));
        }
    }
    if d.loss.clock_error_ns > 0 {
        text += &format!("; clock error up to {}", units::duration(d.loss.clock_error_ns));
    }
    text
}

/// What the recording cost, in one sentence.
pub(crate) fn cost(d: &Diagnosis, run: Option<&RunMeta>) -> String {
    let mut text = units::counted(d.overhead.events, "event");
    if d.overhead.ns_per_event > 0.0 {
        text += &format!(" at {:.0} ns each", d.overhead.ns_per_event);
    } else {
        text += ", ns per event not measured";
    }
    if let Some(run) = run {
        let wall = run.end_ns.saturating_sub(run.start_ns) as f64 * f64::from(run.host.cpus);
        if wall > 0.0 && run.overhead.hooks_cpu_ns > 0 {
            text += &format!(
                ": {} of the time of {}",
                units::percent(run.overhead.hooks_cpu_ns as f64 / wall),
                units::counted(u64::from(run.host.cpus), "core")
            );
        }
    }
    let rows = d.causes.iter().chain(&d.not_significant);
    let of_difference: f64 = rows.filter(|c| c.category == Category::Profiler).map(|c| c.share).sum();
    if of_difference >= causes::SMALL {
        text += &format!("; the recording itself is {} of the difference", units::percent(of_difference));
    }
    text
}

/// Two or three steps: the first cause's fix, unless a proposed step is about it already, then what the diagnosis proposes.
fn next_steps(d: &Diagnosis) -> Vec<NextStep> {
    let worth = |_: &&Fix| !nothing_stands_out(d);
    let fix = first_fix(d).filter(worth).filter(|fix| !d.next_steps.iter().any(|step| step.fix.as_ref() == Some(fix)));
    let alone = fix.map(|fix| NextStep { fix: Some(fix.clone()), ..NextStep::default() });
    alone.into_iter().chain(d.next_steps.iter().cloned()).take(3).collect()
}
