//! Two runs as one set of lifetimes, so that the same slice of another run can be the reference (NSight §7.4).
//!
//! In: the lifetimes of both. Out: the first run's messages with their ids, then the second's. Owners that are the same in both are
//! merged, whatever their numbers (pids, interrupts) were. Times of the two runs are never compared, only durations.

use rustc_hash::FxHashMap;
use tailsight_lifetime::{Flow, Frame, LEGS, Lifetimes, Message, Owner, OwnerId, Part, Who};

/// Two runs together.
pub struct Joined {
    /// The lifetimes of both; ids from `first` on are the second run's.
    pub lifetimes: Lifetimes,
    /// Messages and owners of the first run.
    pub first: (usize, usize),
    /// The second run's owners by their numbers, as they are in both.
    pub owner_of: Vec<OwnerId>,
}

/// Both runs together. `stacks`: call stacks of the first run's samples; those of the second are numbered behind them.
pub fn join(first: &Lifetimes, second: &Lifetimes, stacks: u32) -> Joined {
    let (symbols, symbol_of) = symbols(first, second);
    let (owners, who, owner_of) = owners(first, second, &symbol_of, stacks);

    let (n, flows_before) = (first.messages.len() as u32, first.flows.len() as u32);
    let classes_before = first.classes.len() as u16;
    let moved =
        |m: &Message| Message { id: m.id + n, flow: m.flow + flows_before, class: m.class + classes_before, ..*m };
    let messages: Vec<Message> = first.messages.iter().copied().chain(second.messages.iter().map(moved)).collect();
    let flows: Vec<Flow> = first.flows.iter().chain(&second.flows).cloned().collect();
    let part = |p: &Part| Part { owner: owner_of[p.owner as usize], ..*p };
    let of_first = (0..n).map(|id| LEGS.map(|leg| first.part_slice(id, leg).to_vec()));
    let of_second = (0..second.messages.len() as u32)
        .map(|id| LEGS.map(|leg| second.part_slice(id, leg).iter().map(part).collect()));
    let parts: Vec<[Vec<Part>; 3]> = of_first.chain(of_second).collect();

    let mut out = Lifetimes::from_parts(&first.app, messages, flows, owners, parts);
    out.symbols = symbols;
    out.who = who;
    (out.cgroups, out.containers) = (first.cgroups.clone(), first.containers.clone());
    out.incomplete = first.incomplete.clone();
    (out.sent, out.outgoing) = (first.sent.clone(), first.outgoing.clone());
    out.repeated_connects = first.repeated_connects;
    (out.numa_moves, out.send_entry) = (first.numa_moves, first.send_entry.clone());
    out.classes = first.classes.iter().chain(&second.classes).cloned().collect();
    out.faults = by_message(first, second, |l| &l.faults);
    out.overtaken = by_message(first, second, |l| &l.overtaken);
    Joined { lifetimes: out, first: (first.messages.len(), first.owners.len()), owner_of }
}

/// The symbols of both runs, and which of them each of the second's is.
fn symbols(first: &Lifetimes, second: &Lifetimes) -> (Vec<String>, Vec<u32>) {
    let mut symbols = first.symbols.clone();
    let mut numbers: FxHashMap<String, u32> = symbols.iter().cloned().zip(0..).collect();
    let number = |name: &String| {
        *numbers.entry(name.clone()).or_insert_with(|| {
            symbols.push(name.clone());
            symbols.len() as u32 - 1
        })
    };
    let symbol_of = second.symbols.iter().map(number).collect();
    (symbols, symbol_of)
}

/// The owners of both runs and who they were, and which of them each of the second's is.
fn owners(
    first: &Lifetimes,
    second: &Lifetimes,
    symbol_of: &[u32],
    stacks: u32,
) -> (Vec<Owner>, Vec<Who>, Vec<OwnerId>) {
    let mut owners: Vec<Owner> = first.owners.clone();
    let mut who: Vec<Who> = (0..owners.len()).map(|i| first.who(i).clone()).collect();
    // A task is the same in both runs by its names; its numbers are another run's.
    let key = |owner: &Owner, who: &Who| (owner.clone(), who.process.clone(), who.recorder);
    let mut ids: FxHashMap<(Owner, String, bool), OwnerId> =
        owners.iter().zip(&who).map(|(o, w)| key(o, w)).zip(0..).collect();
    let owner_id = |(i, o): (usize, &Owner)| {
        let frames = o.frames.iter().map(|f| frame(f, symbol_of, stacks)).collect();
        let owner = Owner { context: o.context.clone(), frames };
        let task = Who { pid: 0, tid: 0, ..second.who(i).clone() };
        *ids.entry(key(&owner, &task)).or_insert_with(|| {
            owners.push(owner);
            who.push(task);
            owners.len() as OwnerId - 1
        })
    };
    let owner_of = second.owners.iter().enumerate().map(owner_id).collect();
    (owners, who, owner_of)
}

/// A frame of the second run with the symbols and stacks of both.
fn frame(original: &Frame, symbol_of: &[u32], stacks: u32) -> Frame {
    let symbol = |s: u32| symbol_of.get(s as usize).copied().unwrap_or(s);
    match *original {
        Frame::Work { symbol: s } => Frame::Work { symbol: symbol(s) },
        Frame::Stack { symbol: s } => Frame::Stack { symbol: symbol(s) },
        Frame::WokenBy { symbol: s } => Frame::WokenBy { symbol: symbol(s) },
        Frame::TxDropped { symbol: s } => Frame::TxDropped { symbol: symbol(s) },
        Frame::Peer { symbol: s, guessed } => Frame::Peer { symbol: symbol(s), guessed },
        Frame::Turn { symbol: s, guessed } => Frame::Turn { symbol: symbol(s), guessed },
        Frame::Function { symbol: s, kernel } => Frame::Function { symbol: symbol(s), kernel },
        Frame::Place { stack } => Frame::Place { stack: stack.saturating_add(stacks) },
        Frame::MadeReady { stack } => Frame::MadeReady { stack: stack.saturating_add(stacks) },
        // 0: not known.
        Frame::Meanwhile { doing, stack, server } => Frame::Meanwhile {
            doing,
            stack: if stack == 0 { 0 } else { stack.saturating_add(stacks) },
            server: if server == 0 { 0 } else { symbol(server) },
        },
        Frame::Packet { own, port, app } if app != 0 => Frame::Packet { own, port, app: symbol(app) },
        other => other,
    }
}

/// A figure of each message of both runs; 0 for those of a run that has none, and nothing when neither has.
fn by_message<T: Clone + Default>(
    first: &Lifetimes,
    second: &Lifetimes,
    values_of: fn(&Lifetimes) -> &Vec<T>,
) -> Vec<T> {
    if values_of(first).is_empty() && values_of(second).is_empty() {
        return vec![];
    }
    let whole = |l: &Lifetimes| {
        let mut values = values_of(l).clone();
        values.resize(l.messages.len(), T::default());
        values
    };
    [whole(first), whole(second)].concat()
}
