//! What an interrupt costs around its handler, which no event tells: on a virtual machine an exit to the hypervisor, many times the
//! handler. A server without the interrupts is without that cost too.
//!
//! In: lifetimes, and which owners are handlers of which cause. Out: for each such cause the ns that one interrupt adds to the
//! application's own work, where the messages tell it: the robust slope of own work over the number of handlers that ran in it, with an
//! interval above 0.

use std::collections::BTreeMap;

use tailsight_lifetime::{Context, Interrupt, Leg, Lifetimes, OwnerId};

use tailsight_diagnose::estimate::counted;

/// Ns around one handler, by cause.
pub(super) type Around = BTreeMap<u16, u64>;

/// So many messages with handlers, and so many without, tell what one costs.
const FEWEST_MESSAGES: usize = 10;
/// Messages of each kind in the regression.
const SAMPLE: usize = 500;

/// Whether an owner is the handler of a hardware interrupt.
pub(super) fn is_handler(lifetimes: &Lifetimes, owner: OwnerId) -> bool {
    let last = lifetimes.owners[owner as usize].frames.last();
    last.is_some_and(|f| f.is_interrupt(Interrupt::Device))
}

/// Of the service legs. `cause`: whose an owner's time is.
pub(super) fn around(lifetimes: &Lifetimes, seed: u64, mut cause: impl FnMut(OwnerId) -> Option<u16>) -> Around {
    // What the application itself works is interrupted; a wait takes as long as it takes.
    let own_handler = |o: OwnerId| is_handler(lifetimes, o) && lifetimes.owners[o as usize].context == Context::Own;
    let causes: Vec<Option<u16>> =
        (0..lifetimes.owners.len() as u32).map(|o| cause(o).filter(|_| own_handler(o))).collect();
    let mut counts: BTreeMap<u16, Vec<u32>> =
        causes.iter().flatten().map(|c| (*c, vec![0; lifetimes.messages.len()])).collect();
    if counts.is_empty() {
        return Around::new();
    }
    let mut own = vec![0_u64; lifetimes.messages.len()];
    for id in 0..lifetimes.messages.len() {
        for part in lifetimes.part_slice(id as u32, Leg::Service) {
            let owner = &lifetimes.owners[part.owner as usize];
            match causes[part.owner as usize] {
                Some(cause) => {
                    if let Some(counts) = counts.get_mut(&cause) {
                        counts[id] += u32::from(part.count);
                    }
                }
                None if owner.context == Context::Own && owner.frames.is_empty() => own[id] += part.ns,
                None => {}
            }
        }
    }
    let ids: Vec<u32> = lifetimes.messages.iter().filter(|m| m.latency(Leg::Total).is_some()).map(|m| m.id).collect();
    let slope = |counts: &Vec<u32>| {
        let (with, without): (Vec<u32>, Vec<u32>) = ids.iter().partition(|id| counts[**id as usize] > 0);
        if with.len().min(without.len()) < FEWEST_MESSAGES {
            return None;
        }
        let some = |ids: &[u32]| ids.iter().copied().step_by(ids.len().div_ceil(SAMPLE)).collect::<Vec<u32>>();
        let points: Vec<(f64, f64)> = [some(&with), some(&without)]
            .concat()
            .into_iter()
            .map(|id| (f64::from(counts[id as usize]), own[id as usize] as f64))
            .collect();
        counted::slope(&points, seed).map(|(slope, _)| slope as u64)
    };
    counts.iter().filter_map(|(cause, counts)| Some((*cause, slope(counts)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_lifetime::{Context, Frame, Message, Owner, Part, Role};

    /// Each handler of 2 us comes with 30 us of own work that messages without handlers do not have.
    #[test]
    fn what_comes_with_a_handler_is_found_and_nothing_where_nothing_comes() {
        let cost_of = |each: u64| {
            let owner = |frames: Vec<Frame>| Owner { context: Context::Own, frames };
            let owners = vec![owner(vec![]), owner(vec![Frame::Vector { which: 0 }])];
            let parts = |i: u32| {
                let handlers = if i.is_multiple_of(5) { i / 5 % 3 } else { 0 };
                let own = 10_000 + u64::from(i % 7) * 100 + u64::from(handlers) * each;
                let mut service = vec![Part { role: Role::A, owner: 0, count: 1, ns: own }];
                if handlers > 0 {
                    let ns = 2_000 * u64::from(handlers);
                    service.push(Part { role: Role::A, owner: 1, count: handlers as u16, ns });
                }
                [vec![], service, vec![]]
            };
            let n = 600;
            let parts_by_leg: Vec<[Vec<Part>; 3]> = (0..n).map(parts).collect();
            let message = |i: u32| {
                let (begun, ns) =
                    (1_000_000 * (u64::from(i) + 1), parts_by_leg[i as usize][1].iter().map(|p| p.ns).sum::<u64>());
                Message {
                    id: i,
                    driver_ns: begun,
                    recv_ns: begun,
                    send_ns: begun + ns,
                    xmit_ns: begun + ns,
                    ..Message::default()
                }
            };
            let messages: Vec<Message> = (0..n).map(message).collect();
            let lifetimes = Lifetimes::from_parts("app", messages, vec![], owners, parts_by_leg.clone());
            around(&lifetimes, 1, |owner| (owner == 1).then_some(4)).get(&4).copied()
        };
        let each = cost_of(30_000).expect("a cost");
        assert!((29_000..31_000).contains(&each), "{each}");
        assert!(cost_of(0).is_none_or(|each| each < 300), "{:?}", cost_of(0));
    }
}
