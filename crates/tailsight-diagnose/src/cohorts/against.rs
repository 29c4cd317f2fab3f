//! Two runs as one set of lifetimes, so that the same slice of another run can be the reference (NSight §7.4).
//!
//! In: the lifetimes of both. Out: the first run's messages with their ids, then the second's; owners that are the same in
//! both are one, whatever their numbers were. Times of the two runs are never compared, only durations.

use rustc_hash::FxHashMap;
use tailsight_lifetime::{Flow, Frame, LEGS, Lifetimes, Message, Owner, OwnerId, Part, Who};

/// The lifetimes of both runs; ids from `first.messages.len()` on are the second's.
pub fn join(first: &Lifetimes, second: &Lifetimes) -> Lifetimes {
    let mut symbols = first.symbols.clone();
    let mut known: FxHashMap<String, u32> = symbols.iter().cloned().zip(0..).collect();
    let translated: Vec<u32> = second
        .symbols
        .iter()
        .map(|name| {
            *known.entry(name.clone()).or_insert_with(|| {
                symbols.push(name.clone());
                symbols.len() as u32 - 1
            })
        })
        .collect();
    let symbol = |s: u32| translated.get(s as usize).copied().unwrap_or(s);
    let frame = |f: &Frame| match *f {
        Frame::Work { symbol: s } => Frame::Work { symbol: symbol(s) },
        Frame::Stack { symbol: s } => Frame::Stack { symbol: symbol(s) },
        Frame::WokenBy { symbol: s } => Frame::WokenBy { symbol: symbol(s) },
        Frame::TxDropped { symbol: s } => Frame::TxDropped { symbol: symbol(s) },
        Frame::Peer { symbol: s } => Frame::Peer { symbol: symbol(s) },
        // 0: not known.
        Frame::Packet { own, port, app } if app != 0 => Frame::Packet { own, port, app: symbol(app) },
        other => other,
    };
    let mut owners: Vec<Owner> = first.owners.clone();
    let mut who: Vec<Who> = (0..owners.len()).map(|i| first.who(i).clone()).collect();
    // A task is the same in both runs by its names; its numbers are another run's.
    let key = |owner: &Owner, who: &Who| (owner.clone(), who.process.clone(), who.recorder);
    let mut ids: FxHashMap<(Owner, String, bool), OwnerId> =
        owners.iter().zip(&who).map(|(o, w)| key(o, w)).zip(0..).collect();
    let owner_of: Vec<OwnerId> = second
        .owners
        .iter()
        .enumerate()
        .map(|(i, o)| {
            let owner = Owner { context: o.context.clone(), frames: o.frames.iter().map(frame).collect() };
            let task = Who { pid: 0, tid: 0, ..second.who(i).clone() };
            *ids.entry(key(&owner, &task)).or_insert_with(|| {
                owners.push(owner);
                who.push(task);
                owners.len() as OwnerId - 1
            })
        })
        .collect();

    let (n, flows_before) = (first.messages.len() as u32, first.flows.len() as u32);
    let classes_before = first.classes.len() as u16;
    let moved =
        |m: &Message| Message { id: m.id + n, flow: m.flow + flows_before, class: m.class + classes_before, ..*m };
    let messages: Vec<Message> = first.messages.iter().copied().chain(second.messages.iter().map(moved)).collect();
    let flows: Vec<Flow> = first.flows.iter().chain(&second.flows).cloned().collect();
    let mut parts: Vec<[Vec<Part>; 3]> = Vec::with_capacity(messages.len());
    for id in 0..first.messages.len() as u32 {
        parts.push(LEGS.map(|leg| first.part_slice(id, leg).to_vec()));
    }
    for id in 0..second.messages.len() as u32 {
        let part = |p: &Part| Part { owner: owner_of[p.owner as usize], ..*p };
        parts.push(LEGS.map(|leg| second.part_slice(id, leg).iter().map(part).collect()));
    }
    let mut out = Lifetimes::from_parts(&first.app, messages, flows, owners, parts);
    out.symbols = symbols;
    out.who = who;
    out.cgroups = first.cgroups.clone();
    out.incomplete = first.incomplete.clone();
    (out.sent, out.outgoing) = (first.sent.clone(), first.outgoing.clone());
    (out.numa_moves, out.send_entry) = (first.numa_moves, first.send_entry.clone());
    out.classes = first.classes.iter().chain(&second.classes).cloned().collect();
    if !first.faults.is_empty() || !second.faults.is_empty() {
        let counts = |l: &Lifetimes| {
            let mut counts = l.faults.clone();
            counts.resize(l.messages.len(), 0);
            counts
        };
        out.faults = [counts(first), counts(second)].concat();
    }
    if !first.overtaken.is_empty() || !second.overtaken.is_empty() {
        let behind = |l: &Lifetimes| {
            let mut ns = l.overtaken.clone();
            ns.resize(l.messages.len(), 0);
            ns
        };
        out.overtaken = [behind(first), behind(second)].concat();
    }
    out
}
