//! One message: its stages, what happened on its way, and what it has more of than the median messages.
//!
//! In: the lifetimes, a message's id, its path, and the diagnosis of the same run and leg. Out: a [`Shown`], the JSON of
//! `tailsight show`. All times are integer ns; `at_ns` counts from the first sight of the message.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{FrameKind, LEGS, Leg, Lifetimes, Message, NamedFrame, Owner, PathSpan, Role};
use tailsight_trace::samples::Samples;

use crate::categories::{refining, shown};
use crate::cause::names::titled;
use crate::cause::{Category, Subject};
use crate::cohorts::chosen_class::InClass;
use crate::cohorts::ranked_in;
use crate::model::Diagnosis;
use crate::phases::overlaps::Ahead;
use crate::rows::classification::Classification;
use crate::typical::{self, Key, Times, row_of};
use crate::{CauseOf, Error, Options};

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Always 1.
    pub schema: u32,
    /// The run's directory as the user gave it.
    pub run: String,
    /// The application.
    pub app: String,
    /// The leg that is shown.
    pub leg: Leg,
    /// The message's id.
    pub id: u32,
    /// Its flow.
    pub flow: String,
    /// The class of the request, where a protocol was read: `GET /report`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Payload bytes.
    pub bytes: u32,
    /// The thread that received it.
    pub tid: u32,
    /// CLOCK_MONOTONIC ns of the path's beginning.
    pub from_ns: u64,
    /// The leg's length.
    pub latency_ns: u64,
    /// Of all legs: what an ideal server would have taken for it, on the same arrivals. Absent for one leg, and where no queue fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ideal_ns: Option<u64>,
    /// The part of the run's complete messages that are faster.
    pub faster: f64,
    /// Complete messages of the run.
    pub messages: u64,
    /// Mean latency of the messages that it is compared with.
    pub reference_ns: u64,
    /// Ids of the messages that its thread took first, or still served when it came, the last before it first; at most 16.
    pub ahead: Vec<u32>,
    /// How many of these came to this host after it, and were served first.
    #[serde(default)]
    pub came_later: u32,
    /// The stages that it passed, by time.
    pub marks: Vec<Mark>,
    /// The path, in order, without a gap.
    pub spans: Vec<Span>,
    /// The rows of the message beside the reference's, by how much more it has. They sum to `latency_ns` and, but for rounding,
    /// to the difference.
    pub rows: Vec<Row>,
    /// Settings of the host that can lengthen the tail, as they were before the recording; absent of older runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<tailsight_trace::meta::Setting>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// `driver`, `stack`, `handoff`, `wake`, `on_cpu`, `recv_enter`, `recv`, `send`, `xmit`.
    pub stage: String,
    /// When, from the beginning.
    pub at_ns: u64,
}

/// A piece of the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Span {
    /// When, from the beginning.
    pub at_ns: u64,
    /// How long.
    pub ns: u64,
    /// The core; null when it was bound to none.
    pub cpu: Option<u16>,
    /// Whose side.
    pub role: Role,
    /// The leg.
    pub leg: Leg,
    /// Who had the time, with what was nested.
    pub owner: String,
    /// The category of that.
    pub category: Category,
    /// Its name.
    pub name: String,
    /// Who or what that is, as data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// Of other requests: what their thread slept in, and for whom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<NamedFrame>,
    /// The order of calls alone says that it is this message's wait for another server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guessed: bool,
    /// Of a sleep, and of what is followed because of one: the rule that says what it was for (docs/rules.md).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What a message has of one row, and what the reference has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Its category.
    pub category: Category,
    /// The task, function or flow.
    pub name: String,
    /// Who or what that is, as data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// Whose side.
    pub role: Role,
    /// The leg.
    pub leg: Leg,
    /// In this message.
    pub ns: u64,
    /// In a reference message, on average.
    pub reference_ns: u64,
    /// The difference.
    pub more_ns: i64,
    /// The rank of the diagnosis's cause that most of it counts to; null when it counts to none.
    pub cause: Option<u32>,
}

titled! {
    Row: |_| &[];
    Span: |span| &span.frames;
}

/// What the messages that one is compared with have on average.
pub struct Usual {
    /// Their mean latency, ns.
    pub mean_ns: u64,
    /// ns of a message by row, rounded, with who or what that is.
    pub rows: Times,
}

impl Usual {
    /// Of a diagnosis's reference, or of the middle messages where it has none.
    pub fn new(lifetimes: &Lifetimes, classification: &Classification<'_>, diagnosis: &Diagnosis) -> Usual {
        let ranked = ranked_in(&lifetimes.messages, diagnosis.leg, &InClass::of(diagnosis, lifetimes));
        Usual::of(lifetimes, classification, diagnosis.leg, reference(&ranked, diagnosis))
    }

    fn of(lifetimes: &Lifetimes, classification: &Classification<'_>, leg: Leg, cohort: &[(u64, u32)]) -> Usual {
        let sum: u128 = cohort.iter().map(|&(ns, _)| u128::from(ns)).sum();
        let n = cohort.len().max(1) as u64;
        let mut rows = typical::sums(lifetimes, classification, leg, cohort, sum);
        rows.values_mut().for_each(|(ns, _)| *ns = (*ns + n / 2) / n);
        Usual { mean_ns: crate::cohorts::focus::mean(sum, n), rows }
    }
}

/// What goes in beside the message.
pub struct ShowInput<'a> {
    /// The path of the leg.
    pub path: &'a [PathSpan],
    /// The diagnosis of the same run and leg.
    pub diagnosis: &'a Diagnosis,
    /// Its causes by owner.
    pub causes: &'a CauseOf,
    /// The run's samples.
    pub samples: Option<&'a Samples>,
}

/// Shows a message.
///
/// # Errors
/// [`Error::NoSuchMessage`] for an id that the run does not have, or whose leg is not complete.
pub fn show(lifetimes: &Lifetimes, options: &Options, id: u32, input: &ShowInput<'_>) -> Result<Shown, Error> {
    let leg = options.leg;
    let options = &options.of_run(&lifetimes.owners, input.samples, None);
    let in_class = InClass::new(options.class.as_ref(), &lifetimes.classes);
    let ranked = ranked_in(&lifetimes.messages, leg, &in_class);
    let place = ranked.iter().position(|&(_, other)| other == id);
    let place = place.ok_or_else(|| no_such(lifetimes, (leg, &in_class), id))?;
    let message = &lifetimes.messages[id as usize];
    let (from_ns, to_ns) = message.ends(leg).expect("its leg is complete");
    let classification = Classification::new(lifetimes, &options.categories);
    let spans = input.path.iter().map(|span| span_of(lifetimes, &classification, message, (leg, from_ns), span));
    let spans: Vec<Span> = spans.collect();
    let usual = Usual::of(lifetimes, &classification, leg, reference(&ranked, input.diagnosis));
    let ahead = behind(&lifetimes.messages, message);
    Ok(Shown {
        schema: 1,
        run: input.diagnosis.run.clone(),
        app: lifetimes.app.clone(),
        leg,
        id,
        flow: lifetimes.flows.get(message.flow as usize).map_or_else(String::new, |f| f.name.clone()),
        class: lifetimes.class(message).map(|class| shown(&class.name)),
        bytes: message.bytes,
        tid: message.tid,
        from_ns,
        latency_ns: to_ns - from_ns,
        ideal_ns: None,
        faster: place as f64 / ranked.len() as f64,
        messages: ranked.len() as u64,
        reference_ns: usual.mean_ns,
        came_later: came_later(&lifetimes.messages, message, &ahead),
        ahead,
        marks: marks(message, from_ns, to_ns),
        rows: rows(lifetimes, &classification, (leg, id), usual, &causes_by_row(input, &spans)),
        spans,
        settings: vec![],
    })
}

/// The messages of its thread that a message waited behind, the last before it first, at most 16.
fn behind(messages: &[Message], message: &Message) -> Vec<u32> {
    const MOST_AHEAD: usize = 16;
    let ahead = Ahead::new(messages);
    ahead.waited_behind(messages, message).iter().rev().map(|&(_, id)| id).take(MOST_AHEAD).collect()
}

/// How many of the messages that it waited behind came to this host after it.
fn came_later(messages: &[Message], message: &Message, ahead: &[u32]) -> u32 {
    ahead.iter().filter(|&&id| messages[id as usize].driver_ns > message.driver_ns).count() as u32
}

/// A piece of a path that begins at (leg, ns).
fn span_of(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    message: &Message,
    (leg, from_ns): (Leg, u64),
    span: &PathSpan,
) -> Span {
    let leg = leg_of(message, leg, span.from_ns);
    let segment = LEGS.iter().position(|l| *l == leg).unwrap_or(0);
    let ((_, category, name, _), subject) = row_of(classification, segment, span.role, span.owner);
    let owner = lifetimes.owners.get(span.owner as usize);
    let nested_from = classification.at(segment, span.role, span.owner).nested_from;
    let slept_in = owner.map_or_else(Vec::new, |owner| sleep_of(owner, nested_from, &lifetimes.symbols));
    Span {
        at_ns: span.from_ns - from_ns,
        ns: span.to_ns - span.from_ns,
        cpu: span.cpu,
        role: span.role,
        leg,
        owner: owner.map_or_else(String::new, |o| o.path(&lifetimes.symbols)),
        category,
        name,
        subject: Some(subject),
        frames: if category == Category::HolBlocking { slept_in } else { Vec::new() },
        guessed: owner.is_some_and(Owner::is_guessed),
        rule: span.rule.map(|rule| rule.id().to_owned()),
    }
}

/// What a thread of other requests slept in, and for whom, where that is known.
fn sleep_of(owner: &Owner, nested_from: usize, symbols: &[String]) -> Vec<NamedFrame> {
    let is_said = |frame: &NamedFrame| match frame.kind {
        FrameKind::Sleep | FrameKind::DiskSleep | FrameKind::IoSleep | FrameKind::Peer => frame.of.is_some(),
        _ => false,
    };
    refining(owner, nested_from).into_iter().map(|frame| frame.named(symbols)).filter(is_said).collect()
}

/// The rank of the cause that most of each row's time counts to.
fn causes_by_row(input: &ShowInput<'_>, spans: &[Span]) -> BTreeMap<Key, u32> {
    let mut ns: BTreeMap<Key, BTreeMap<usize, u64>> = BTreeMap::new();
    for (span, on_path) in spans.iter().zip(input.path) {
        if let Some(&cause) = input.causes.get(&(span.leg, span.role, on_path.owner)) {
            let role = if span.category == Category::Unexplained { Role::A } else { span.role };
            let key = (span.leg, span.category, span.name.clone(), role);
            *ns.entry(key).or_default().entry(cause).or_default() += span.ns;
        }
    }
    let most = |causes: BTreeMap<usize, u64>| causes.into_iter().max_by_key(|&(cause, ns)| (ns, Reverse(cause)));
    let rank = |cause: usize| input.diagnosis.causes[cause].rank;
    ns.into_iter().filter_map(|(key, causes)| Some((key, rank(most(causes)?.0)))).collect()
}

/// The rows of a message beside those of the reference, by how much more it has.
fn rows(
    lifetimes: &Lifetimes,
    classification: &Classification<'_>,
    (leg, id): (Leg, u32),
    usual: Usual,
    causes: &BTreeMap<Key, u32>,
) -> Vec<Row> {
    // What the message has, and what the reference has on average.
    let mut times: BTreeMap<Key, ([u64; 2], Subject)> =
        usual.rows.into_iter().map(|(key, (ns, subject))| (key, ([0, ns], subject))).collect();
    for (key, (ns, subject)) in typical::message(lifetimes, classification, leg, id) {
        times.entry(key).or_insert(([0; 2], subject)).0[0] += ns;
    }
    let row = |(key, ([ns, reference_ns], subject)): (Key, ([u64; 2], Subject))| {
        let cause = causes.get(&key).copied();
        let (leg, category, name, role) = key;
        let more_ns = ns as i64 - reference_ns as i64;
        Row { category, name, subject: Some(subject), role, leg, ns, reference_ns, more_ns, cause }
    };
    let mut rows: Vec<Row> = times.into_iter().map(row).filter(|r| r.ns > 0 || r.reference_ns > 0).collect();
    rows.sort_by(|a, b| b.more_ns.cmp(&a.more_ns).then_with(|| (a.category, &a.name).cmp(&(b.category, &b.name))));
    rows
}

/// The messages that it is compared with: the diagnosis's reference, or the middle ones where it has none.
fn reference<'a>(ranked: &'a [(u64, u32)], diagnosis: &Diagnosis) -> &'a [(u64, u32)] {
    let slice = (diagnosis.reference.from, diagnosis.reference.to);
    let range = match diagnosis.reference.messages {
        0 => typical::median_ranks(ranked.len()),
        _ => crate::cohorts::focus::ranks(ranked.len(), slice),
    };
    &ranked[range]
}

/// The leg that a time of the total lies in.
fn leg_of(message: &Message, leg: Leg, at_ns: u64) -> Leg {
    match leg {
        Leg::Total if at_ns < message.recv_ns => Leg::Receive,
        Leg::Total if at_ns < message.send_ns => Leg::Service,
        Leg::Total => Leg::Transmit,
        leg => leg,
    }
}

/// The stages that a message passed between two times, in order, from the first of these.
pub fn marks(m: &Message, from_ns: u64, to_ns: u64) -> Vec<Mark> {
    let mut marks = vec![
        ("nic", if m.flags & flags::FROM_NIC != 0 { m.nic_ns } else { 0 }),
        ("driver", m.driver_ns),
        ("stack", m.stack_ns),
        ("handoff", m.handoff_ns),
        ("wake", m.wake_ns),
        ("on_cpu", m.on_cpu_ns),
        ("recv_enter", m.recv_enter_ns),
        ("recv", m.recv_ns),
        ("send", m.send_ns),
        ("xmit", m.xmit_ns),
        ("nic_tx", if m.flags & flags::TO_NIC != 0 { m.nic_tx_ns } else { 0 }),
    ];
    marks.retain(|&(_, ns)| ns != 0 && (from_ns..=to_ns).contains(&ns));
    marks.sort_by_key(|&(_, ns)| ns);
    marks.into_iter().map(|(stage, ns)| Mark { stage: stage.into(), at_ns: ns - from_ns }).collect()
}

/// The error for an id: what ids there are, and the slowest ones of the chosen classes.
pub fn no_such(lifetimes: &Lifetimes, (leg, in_class): (Leg, &InClass), id: u32) -> Error {
    let why = match lifetimes.messages.get(id as usize) {
        Some(message) if !in_class.has(message) => {
            let class = lifetimes.class(message).map_or_else(String::new, |class| shown(&class.name));
            format!("message {id} is of another class, {class}")
        }
        Some(_) => format!("message {id} was not followed through its {} leg", leg.name()),
        None => format!("there is no message {id}"),
    };
    let range = match lifetimes.messages.len() {
        0 => "the run has no messages".to_owned(),
        n => format!("ids go from 0 to {}", n - 1),
    };
    let slowest: Vec<String> =
        ranked_in(&lifetimes.messages, leg, in_class).iter().rev().take(5).map(|(_, id)| id.to_string()).collect();
    let slowest = match slowest.is_empty() {
        true => format!("no message has a complete {} leg: try another --leg", leg.name()),
        false => format!("the slowest are {}", slowest.join(", ")),
    };
    Error::NoSuchMessage { why, range, slowest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_lifetime::{Context, Flow, Owner, Part};
    use tailsight_trace::FlowKey;

    /// 400 messages of 1,000 ns in the application; number 7 has 5,000 ns of nginx before.
    fn run() -> Lifetimes {
        let foreign = Context::Foreign { comm: "nginx".into(), kernel: false };
        let owners = vec![Owner { context: Context::Own, frames: vec![] }, Owner { context: foreign, frames: vec![] }];
        let slow = |i: u32| i == 7;
        let part = |owner, ns| Part { role: Role::A, owner, count: 1, ns };
        let parts = (0..400).map(|i| match slow(i) {
            true => [vec![part(1, 5_000), part(0, 1_000)], vec![], vec![]],
            false => [vec![part(0, 1_000)], vec![], vec![]],
        });
        let message = |i: u32| {
            let driver_ns = 1_000 + 100_000 * u64::from(i);
            let recv_ns = driver_ns + if slow(i) { 6_000 } else { 1_000 };
            Message { id: i, tid: 9, driver_ns, handoff_ns: driver_ns + 10, recv_ns, ..Message::default() }
        };
        let flow = Flow { key: FlowKey { addrs: 1, ports: 1, proto: 0 }, name: "a <- b".into(), messages: 400 };
        Lifetimes::from_parts("memcached", (0..400).map(message).collect(), vec![flow], owners, parts.collect())
    }

    fn shown(id: u32) -> Result<Shown, Error> {
        let lifetimes = run();
        let options = Options { leg: Leg::Receive, focus: (0.9, 1.0), bootstrap_rounds: 0, ..Options::default() };
        let (diagnosis, causes) =
            crate::diagnose_with(&lifetimes, &options, &crate::RecordingFacts::default(), &crate::Inputs::default())
                .expect("enough");
        let span = |from_ns, to_ns, owner| PathSpan {
            from_ns,
            to_ns,
            cpu: Some(1),
            role: Role::A,
            owner,
            begins: true,
            rule: None,
        };
        let from = 1_000 + 700_000;
        let path = [span(from, from + 5_000, 1), span(from + 5_000, from + 6_000, 0)];
        show(
            &lifetimes,
            &options,
            id,
            &ShowInput { path: &path, diagnosis: &diagnosis, causes: &causes, samples: None },
        )
    }

    #[test]
    fn what_is_more_than_the_reference_has_its_cause() {
        let shown = shown(7).expect("a message");
        assert_eq!((shown.latency_ns, shown.reference_ns, shown.messages), (6_000, 1_000, 400));
        assert!((shown.faster - 0.9975).abs() < 1e-9, "{}", shown.faster);
        let first = &shown.rows[0];
        assert_eq!((first.category.as_str(), first.name.as_str()), ("interference", "nginx"));
        assert_eq!((first.ns, first.reference_ns, first.more_ns, first.cause), (5_000, 0, 5_000, Some(1)));
        assert_eq!(shown.rows.iter().map(|r| r.ns).sum::<u64>(), 6_000);
        assert_eq!(shown.rows.iter().map(|r| r.more_ns).sum::<i64>(), 5_000);
        assert_eq!(shown.spans.iter().map(|s| s.ns).sum::<u64>(), 6_000);
        assert_eq!((shown.spans[0].owner.as_str(), shown.spans[1].at_ns), ("nginx", 5_000));
        let marks: Vec<(&str, u64)> = shown.marks.iter().map(|m| (m.stage.as_str(), m.at_ns)).collect();
        assert_eq!(marks, [("driver", 0), ("handoff", 10), ("recv", 6_000)]);
    }

    #[test]
    fn the_stamps_of_a_nic_are_marks_of_a_message_that_begins_and_ends_there() {
        let stamped = Message { nic_ns: 90, driver_ns: 100, xmit_ns: 300, nic_tx_ns: 320, ..Message::default() };
        let stages = |m: &Message| marks(m, 90, 320).into_iter().map(|m| (m.stage, m.at_ns)).collect::<Vec<_>>();
        let is = |expected: &[(&str, u64)]| expected.iter().map(|&(s, ns)| (s.to_owned(), ns)).collect::<Vec<_>>();
        assert_eq!(stages(&stamped), is(&[("driver", 10), ("xmit", 210)]));
        let used = Message { flags: flags::FROM_NIC | flags::TO_NIC, ..stamped };
        assert_eq!(stages(&used), is(&[("nic", 0), ("driver", 10), ("xmit", 210), ("nic_tx", 230)]));
    }

    #[test]
    fn an_id_that_is_none_says_which_there_are() {
        let text = shown(400).expect_err("no such message").to_string();
        assert!(
            text.contains("no message 400") && text.contains("0 to 399") && text.contains("the slowest are 7,"),
            "{text}"
        );
    }
}
