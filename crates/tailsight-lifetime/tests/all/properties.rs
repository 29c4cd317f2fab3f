//! Properties of the lifetimes over streams from the simulated machine, whole and damaged, and over arbitrary streams.

use proptest::prelude::*;
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{
    AROUND_NS, Analysis, Context, Frame, LEGS, Leg, Message, OwnerId, PathPart, PathSpan, RunContext,
};
use tailsight_trace::Event;
use tailsight_trace::read::CpuEvents;

use crate::simulator::{self, Script, truth};

/// A part of a leg in which neither its owner nor the truth changes.
pub struct Piece {
    pub leg: Leg,
    pub from_ns: u64,
    pub to_ns: u64,
    /// Its owner's name.
    pub owner: String,
}

/// The pieces of all legs of a message. `times_ns`: when the truth changes, in order.
pub fn pieces(analysis: &Analysis, message: u32, times_ns: &[u64]) -> Vec<Piece> {
    let lifetimes = &analysis.lifetimes;
    let mut pieces = Vec::new();
    for leg in LEGS {
        for span in analysis.path(message, leg) {
            let owner = lifetimes.owners[span.owner as usize].path(&lifetimes.symbols);
            let mut from_ns = span.from_ns;
            while from_ns < span.to_ns {
                let next = times_ns.get(times_ns.partition_point(|&time_ns| time_ns <= from_ns));
                let to_ns = next.map_or(span.to_ns, |&next_ns| next_ns.min(span.to_ns));
                pieces.push(Piece { leg, from_ns, to_ns, owner: owner.clone() });
                from_ns = to_ns;
            }
        }
    }
    pieces
}

/// Parts sum to the latency, and the path runs from the leg's start to its end without gap, overlap or empty span.
pub fn check_partition(analysis: &Analysis) -> Result<(), TestCaseError> {
    let lifetimes = &analysis.lifetimes;
    for (i, message) in lifetimes.messages.iter().enumerate() {
        prop_assert_eq!(message.id as usize, i);
        for leg in LEGS {
            let path = analysis.path(message.id, leg);
            let parts = lifetimes.part_slice(message.id, leg);
            let Some((from, to)) = message.ends(leg) else {
                prop_assert!(path.is_empty() && parts.is_empty(), "a leg that was not seen has no path");
                continue;
            };
            prop_assert_eq!(parts.iter().map(|p| p.ns).sum::<u64>(), to - from, "{} of {:?}", leg.name(), message);
            let mut at = from;
            for span in &path {
                prop_assert_eq!(span.from_ns, at, "gap or overlap in {} of {:?}: {:?}", leg.name(), message, path);
                prop_assert!(span.to_ns > span.from_ns, "empty span in {} of {:?}", leg.name(), message);
                at = span.to_ns;
            }
            prop_assert_eq!(at, to, "{} of {:?} ends early", leg.name(), message);
            check_around(analysis, message.id, leg, &path)?;
            // Parts are the path summed up.
            for part in parts {
                let spans = || path.iter().filter(|s| s.owner == part.owner && s.role == part.role);
                prop_assert_eq!(spans().map(|s| s.to_ns - s.from_ns).sum::<u64>(), part.ns);
                prop_assert_eq!(spans().filter(|s| s.begins).count(), part.count as usize);
            }
        }
        let total: u64 = lifetimes.parts(message.id, Leg::Total).iter().map(|p| p.ns).sum();
        if let Some(latency) = message.latency(Leg::Total)
            && LEGS.iter().all(|l| message.latency(*l).is_some())
        {
            prop_assert_eq!(total, latency);
        }
    }
    Ok(())
}

/// Around some times a path is what it is as a whole: at them, and all through the time before them.
fn check_around(analysis: &Analysis, id: u32, leg: Leg, whole: &[PathSpan]) -> Result<(), TestCaseError> {
    // In the middle of every fifth span.
    let times: Vec<u64> = whole.iter().step_by(5).map(|span| span.from_ns.midpoint(span.to_ns)).collect();
    let around = analysis.to_paths().part(id, leg, PathPart::Around(&times));
    let owner_at = |path: &[PathSpan], time: u64| {
        let span = path.get(path.partition_point(|span| span.to_ns <= time)).filter(|span| span.from_ns <= time);
        span.map(|span| (span.owner, span.role, span.cpu))
    };
    prop_assert!(around.iter().zip(around.iter().skip(1)).all(|(a, b)| a.to_ns <= b.from_ns), "overlap: {:?}", around);
    let begin = whole.first().map_or(0, |span| span.from_ns);
    let before = |time: u64| time.saturating_sub(AROUND_NS).max(begin);
    let spans = |time: u64| whole.iter().map(|s| s.from_ns).filter(move |&at| before(time) <= at && at <= time);
    for time in times.iter().flat_map(|&time| [time, before(time)].into_iter().chain(spans(time))) {
        prop_assert_eq!(owner_at(&around, time), owner_at(whole, time), "{} of {} at {}", leg.name(), id, time);
    }
    Ok(())
}

/// Every message that the machine delivered, in the order of (receive call, flow, place in the flow).
fn delivered(truth: &truth::Truth) -> Vec<&truth::Message> {
    let mut list: Vec<_> = truth.messages.iter().filter(|m| m.recv.is_some()).collect();
    list.sort_by_key(|m| (m.recv.map(|r| r.at), m.end));
    list
}

/// In the order of (receive call, first sight). What one packet brought in several pieces stays in the order of the
/// stream, on both sides.
fn by_receive(messages: &[Message]) -> Vec<Message> {
    let mut list = messages.to_vec();
    list.sort_by_key(|m| (m.recv_ns, m.driver_ns));
    list
}

fn check_matching(script: &Script, analysis: &Analysis, truth: &truth::Truth) -> Result<(), TestCaseError> {
    let mut expected = delivered(truth);
    expected.sort_by_key(|m| (m.recv.map(|r| r.at), m.driver.0));
    let got = by_receive(&analysis.lifetimes.messages);
    prop_assert_eq!(got.len(), expected.len(), "messages that the machine delivered: {:#?}", expected);
    for (m, t) in got.iter().zip(expected) {
        let recv = t.recv.expect("delivered");
        let handoff = t.handoff.filter(|h| h.0 <= recv.at).unwrap_or(t.stack);
        prop_assert_eq!(u64::from(m.bytes), t.bytes, "{:?} is {:?}", m, t);
        prop_assert_eq!((m.driver_ns, m.driver_cpu), t.driver, "{:?} is {:?}", m, t);
        prop_assert_eq!((m.handoff_ns, m.handoff_cpu), handoff, "{:?} is {:?}", m, t);
        prop_assert_eq!((m.recv_enter_ns, m.recv_ns), (recv.entered, recv.at), "{:?} is {:?}", m, t);
        prop_assert_eq!((m.recv_cpu, m.tid), (recv.cpu, recv.tid), "{:?} is {:?}", m, t);
        prop_assert_eq!(m.flags & flags::RETRANSMITTED != 0, t.again, "{:?} is {:?}", m, t);
        let key = analysis.lifetimes.flows[m.flow as usize].key;
        prop_assert_eq!((key.is_udp(), key.is_v6()), (script.flows[t.flow].udp, script.flows[t.flow].v6));
        if truth.answered(t) {
            prop_assert_eq!(m.send_ns, t.send.map_or(0, |s| s.0), "{:?} is {:?}", m, t);
            prop_assert_eq!(m.xmit_ns, t.xmit.unwrap_or(0), "{:?} is {:?}", m, t);
        }
    }
    // What was not delivered has a reason.
    let incomplete: u64 = analysis.lifetimes.incomplete.values().sum();
    let undelivered = truth.messages.iter().filter(|m| m.recv.is_none()).count() as u64;
    prop_assert!(incomplete >= undelivered, "{} undelivered, {:?}", undelivered, analysis.lifetimes.incomplete);
    Ok(())
}

fn context_name(analysis: &Analysis, owner: OwnerId) -> String {
    let owner = &analysis.lifetimes.owners[owner as usize];
    match &owner.context {
        // Followed from a sleep of the message's thread: the machine's books count the work that was waited for as own,
        // and sleeps of the one who was waited for as blocked.
        Context::Sibling { .. }
            if matches!(owner.frames.first(), Some(Frame::SleepIn { .. } | Frame::ConnectionSetup)) =>
        {
            let done = owner.frames[1..].iter().find(|f| **f != Frame::Serving);
            let asleep = matches!(done, Some(Frame::SleepIn { .. } | Frame::Stopped));
            if asleep { "blocked".into() } else { "own".into() }
        }
        Context::Own => "own".into(),
        // Asleep for an answer that messages before need; the books know sleeps and not what for.
        Context::Ahead if matches!(owner.frames.first(), Some(Frame::SleepIn { .. })) => "blocked".into(),
        Context::Ahead => "ahead".into(),
        Context::Profiler => "profiler".into(),
        Context::Idle => "idle".into(),
        Context::Blocked => "blocked".into(),
        Context::Unknown => "unknown".into(),
        Context::Sibling { comm } => format!("sibling:{comm}"),
        Context::Foreign { comm, .. } => comm.clone(),
    }
}

/// The walk's owners against the machine's own account of each nanosecond of the receive leg.
fn check_account(analysis: &Analysis, truth: &truth::Truth) -> Result<(), TestCaseError> {
    let mut truths = delivered(truth);
    // Since when a thread works at what another one received for it is known by its replies, and which reply is whose is
    // not always: then only who had the time is compared, not for whom it worked.
    let pool = truth.messages.iter().any(|m| m.recv.zip(m.send).is_some_and(|(recv, send)| recv.tid != send.1));
    // Neither is what a thread with several requests open does after it waited for work: tests/all/turns.rs looks at that.
    let messages = &analysis.lifetimes.messages;
    let together =
        |a: &Message, b: &Message| a.tid == b.tid && a.flow != b.flow && a.recv_ns < b.recv_ns && b.recv_ns < a.send_ns;
    let several = messages.iter().any(|a| messages.iter().any(|b| together(a, b)));
    let join = |list: Vec<(u64, u64, String)>, plain: bool| {
        let plain = |context: String| if plain && context == "ahead" { "own".to_owned() } else { context };
        let mut joined: Vec<(u64, u64, String)> = Vec::new();
        for (from, to, context) in list {
            let context = plain(context);
            match joined.last_mut() {
                Some(last) if last.2 == context => last.1 = to,
                _ => joined.push((from, to, context)),
            }
        }
        joined
    };
    for message in messages {
        let same = truths.iter().position(|t| {
            let recv = t.recv.map_or(0, |r| r.at);
            let handoff = t.handoff.filter(|h| h.0 <= recv).unwrap_or(t.stack).0;
            (recv, t.driver.0, t.bytes, handoff)
                == (message.recv_ns, message.driver_ns, u64::from(message.bytes), message.handoff_ns)
        });
        let Some(same) = same else { continue };
        let true_message = truths.remove(same);
        if truth.came_again(true_message) {
            continue;
        }
        let plain = pool || several;
        let expected = join(truth.receive_account(true_message), plain);
        let path = analysis.path(message.id, Leg::Receive);
        let got = join(path.iter().map(|s| (s.from_ns, s.to_ns, context_name(analysis, s.owner))).collect(), plain);
        prop_assert_eq!(got, expected, "receive leg of {:?}", message);
    }
    Ok(())
}

/// Moves events to earlier places in their stream, as an interrupt does that comes between taking a slot and reading
/// the clock: the nested events are written later and carry earlier times.
fn disorder(cpus: &mut [CpuEvents], places: &[(u16, u8)]) {
    for &(place, by) in places {
        let cpu = &mut cpus[usize::from(place) % cpus.len()].events;
        if cpu.len() > 1 {
            let from = 1 + usize::from(place) % (cpu.len() - 1);
            let event = cpu.remove(from);
            cpu.insert(from.saturating_sub(1 + usize::from(by % 3)), event);
        }
    }
}

proptest! {
    // Failures are shrunk and printed; nothing is written into the source tree.
    #![proptest_config(ProptestConfig {
        cases: 384,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_lossless_stream_matches_every_message_and_accounts_for_every_nanosecond(
        script in simulator::script(2000),
        places in prop::collection::vec((any::<u16>(), any::<u8>()), 0..12),
    ) {
        let (facts, mut events, truth) = simulator::run(&script);
        disorder(&mut events, &places);
        let analysis = Analysis::build(&facts, &events);
        check_partition(&analysis)?;
        check_matching(&script, &analysis, &truth)?;
        check_account(&analysis, &truth)?;
    }

    #[test]
    fn damaged_streams_still_add_up(
        script in simulator::script(500),
        skip in 0u16..200,
        losses in prop::collection::vec((any::<u16>(), 1u16..40), 0..8),
        places in prop::collection::vec((any::<u16>(), any::<u8>()), 0..12),
    ) {
        let (facts, mut events, _) = simulator::run(&script);
        for cpu in &mut events {
            cpu.events.drain(..cpu.events.len().min(usize::from(skip)));
        }
        for &(at, n) in &losses {
            let cpu = usize::from(at) % events.len();
            let list = &mut events[cpu].events;
            if !list.is_empty() {
                let at = usize::from(at) % list.len();
                list.drain(at..list.len().min(at + usize::from(n)));
            }
        }
        disorder(&mut events, &places);
        check_partition(&Analysis::build(&facts, &events))?;
    }

    #[test]
    fn arbitrary_streams_never_panic_and_still_add_up(
        script in simulator::script(2),
        cpus in prop::collection::vec((0u32..5, prop::collection::vec(arbitrary_event(), 0..120)), 0..5),
    ) {
        let cpus: Vec<CpuEvents> = cpus.into_iter().map(|(cpu, events)| CpuEvents { cpu, events }).collect();
        check_partition(&Analysis::build(&simulator::facts(&script), &cpus))?;
        check_partition(&Analysis::build(&RunContext::default(), &cpus))?;
    }
}

/// Events of any kind whose fields are mostly small numbers, so that they meet each other.
fn arbitrary_event() -> impl Strategy<Value = Event> {
    let word = || {
        let half = || {
            prop_oneof![
                4 => 0u64..4,
                2 => simulator::TARGET as u64..simulator::TARGET as u64 + 4,
                1 => Just(u64::from(simulator::network::PORT) << 16 | 4000),
                1 => Just(u64::from(u32::MAX)),
                1 => 0u64..0xffff_ffff,
            ]
        };
        (half(), half()).prop_map(|(low, high)| low | high << 32)
    };
    let tid = prop_oneof![Just(0u32), simulator::TARGET..simulator::TARGET + 4, any::<u32>()];
    let ts = prop_oneof![6 => 0u64..2000, 1 => any::<u64>()];
    let aux = prop_oneof![Just(0u16), Just(2u16), 0u16..64, any::<u16>()];
    (ts, prop_oneof![8 => 0u8..64, 1 => 80u8..83], aux, tid, word(), word(), word())
        .prop_map(|(ts, kind, aux, tid, a, b, c)| Event { ts, kind, generation: 0, aux, tid, a, b, c })
}

/// The properties would say nothing over streams in which nothing happens: what the machine must have shown, over many
/// scripts.
#[test]
fn the_machine_shows_every_situation() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut situations: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    let mut count = |what: &str, n: u64| *situations.entry(what.to_owned()).or_default() += n;
    for _ in 0..60 {
        let script = simulator::script(1500).new_tree(&mut runner).expect("a script").current();
        let (facts, events, truth) = simulator::run(&script);
        let analysis = Analysis::build(&facts, &events);
        let lifetimes = &analysis.lifetimes;
        for m in &lifetimes.messages {
            let key = lifetimes.flows[m.flow as usize].key;
            count(if key.is_udp() { "udp" } else { "tcp" }, 1);
            count("v6", u64::from(key.is_v6()));
            count("several messages in one read", u64::from(m.batch > 1));
            count("waited behind others", u64::from(m.ahead > 0));
            count("read before announced", u64::from(m.flags & flags::NO_HANDOFF != 0));
            count("retransmitted", u64::from(m.flags & flags::RETRANSMITTED != 0));
            count("shared reply", u64::from(m.flags & flags::SHARED_REPLY != 0));
            count("transmitted", u64::from(m.xmit_ns != 0));
            count("long wait", u64::from(m.latency(Leg::Receive).is_some_and(|ns| ns > 400_000)));
            count("other core", u64::from(m.recv_cpu != m.handoff_cpu));
        }
        for message in delivered(&truth) {
            let backlog = message.handoff.zip(message.recv).is_some_and(|(h, r)| h.0 > r.entered && h.0 < r.at);
            count("handed off inside the receive call", u64::from(backlog));
            for (_, _, context) in truth.receive_account(message) {
                count(context.trim_end_matches(|c: char| c.is_ascii_digit()), 1);
            }
        }
        count("not delivered", truth.messages.iter().filter(|m| m.recv.is_none()).count() as u64);
    }
    let wanted = [
        "udp",
        "tcp",
        "v6",
        "several messages in one read",
        "waited behind others",
        "read before announced",
        "retransmitted",
        "shared reply",
        "transmitted",
        "other core",
        "handed off inside the receive call",
        "own",
        "long wait",
        "ahead",
        "idle",
        "blocked",
        "other-",
        "ksoftirqd/",
        "sibling:server-",
        "not delivered",
    ];
    let rare: Vec<_> = wanted.iter().filter(|w| situations.get(**w).copied().unwrap_or(0) < 5).collect();
    assert!(rare.is_empty(), "the machine hardly shows {rare:?}: {situations:#?}");
    println!("{situations:#?}");
}
