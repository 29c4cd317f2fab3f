//! What tests on streams that are written by hand share. In: the events of each core. Out: lifetimes, and paths as text.

use std::collections::BTreeSet;

use tailsight_lifetime::{Analysis, LEGS, Leg, Rule, RunContext};
use tailsight_trace::Event;
use tailsight_trace::event::Kind;
use tailsight_trace::read::CpuEvents;

/// An event as the schema describes it.
pub fn event(ts: u64, kind: Kind, aux: u16, tid: u32, [a, b, c]: [u64; 3]) -> Event {
    Event { ts, kind: kind as u8, generation: 0, aux, tid, a, b, c }
}

/// A request of 50 bytes arrives at socket 9 and is announced 1 ns later.
pub fn request(ts: u64, ports: u64) -> [Event; 2] {
    [
        event(ts, Kind::RxStack, 0, 0, [1, ports | 100 << 32, 50 | 2 << 32]),
        event(ts + 1, Kind::Handoff, 0, 0, [1, ports | 150 << 32, 9]),
    ]
}

/// It is received.
pub fn recv(ts: u64, ports: u64, tid: u32) -> Event {
    event(ts, Kind::Recv, 0, tid, [1, ports | 150 << 32, 50 | 9 << 32])
}

/// It is answered.
pub fn send(ts: u64, ports: u64, tid: u32) -> Event {
    event(ts, Kind::Send, 0, tid, [1, ports | 550 << 32, 50 | 9 << 32])
}

/// `call`: what the thread that leaves sleeps in; 0: it is preempted.
pub fn switch(ts: u64, from: u32, to: u32, call: u64) -> Event {
    let (state, how) = if call == 0 { (0, 0) } else { (1, call + 1) };
    event(ts, Kind::SchedSwitch, 0, from, [u64::from(from) | u64::from(to) << 32, state | 120 << 32, how])
}

/// The lifetimes of these events, of which every partition is exact.
pub fn analysed(facts: RunContext, cpus: Vec<Vec<Event>>) -> Analysis {
    let facts = RunContext { cpus: cpus.len() as u16, ..facts };
    let cpus: Vec<CpuEvents> = (0..).zip(cpus).map(|(cpu, events)| CpuEvents { cpu, events }).collect();
    let analysis = Analysis::build(&facts, &cpus);
    crate::properties::check_partition(&analysis).expect("an exact partition");
    analysis
}

/// That a rule for sleeps decided something in this run: else a test of what the rule says is one of something else.
#[track_caller]
pub fn decides(analysis: &Analysis, rule: Rule) {
    let mut decided = BTreeSet::new();
    for leg in LEGS {
        analysis.paths(leg, |_, spans| decided.extend(spans.iter().filter_map(|span| span.rule)));
    }
    assert!(decided.contains(&rule), "{} decided nothing; these did: {decided:?}", rule.id());
}

/// The path of the message that was received at `recv_ns`: from, to, context and frames; neighbours of the same owner joined.
pub fn path(analysis: &Analysis, recv_ns: u64, leg: Leg) -> Vec<(u64, u64, String)> {
    let lifetimes = &analysis.lifetimes;
    let id = lifetimes.messages.iter().find(|m| m.recv_ns == recv_ns).expect("the message").id;
    let mut out: Vec<(u64, u64, String)> = Vec::new();
    for span in analysis.path(id, leg) {
        let owner = lifetimes.owners[span.owner as usize].path(&lifetimes.symbols);
        match out.last_mut() {
            Some(last) if last.2 == owner => last.1 = span.to_ns,
            _ => out.push((span.from_ns, span.to_ns, owner)),
        }
    }
    out
}

/// A path as a test expects it.
pub fn is(expected: &[(u64, u64, &str)]) -> Vec<(u64, u64, String)> {
    expected.iter().map(|&(from, to, owner)| (from, to, owner.to_owned())).collect()
}
