//! Which messages waited for their turn at a server to which only so many requests go at a time, whichever thread sends them (`maxconn` of a
//! proxy, a semaphore in front of a client).
//!
//! In: requests to other servers, each with since when its message could have asked. Out: of each that waited so: from when, and the request
//! whose answer let it go. All times in ns.
//!
//! No event tells a limit. So many *slots* a server has as requests were ever under way to it at once. A request is *late* if its event
//! loop waited for work before it sent it. It *waited for a slot* if meanwhile the slots were taken most of the time, what was sent to the
//! server had been late, too, and it went itself in the first turn of its loop after an answer had left a slot. A server has a limit if half
//! of the late requests waited so; else what looks like it is chance.

use rustc_hash::FxHashMap;

use crate::model::Threshold;

/// A request to another server that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The server.
    pub server: u32,
    /// The thread that sent it, and when.
    pub sent: (u32, u64),
    /// When the application had all of the answer.
    pub answered_ns: u64,
    /// When its message was received by that thread, or had the answer to its request before this one; `None`: not known.
    pub since_ns: Option<u64>,
}

/// A request's wait for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// When the loop of its message waited for work first.
    pub from_ns: u64,
    /// The request whose answer left a slot to it.
    pub freed_by: usize,
}

/// A request before which its loop waited for work.
#[derive(Clone, Copy, Debug)]
struct Late {
    request: usize,
    sent_ns: u64,
    /// When the loop waited first.
    from_ns: u64,
    /// When it waited before the last time: an answer after that was followed by no turn but the one that sent the request.
    one_turn_from_ns: u64,
}

/// The waits for a slot, by request. `sleeps`: when a thread began to wait for work, in order; empty: it is no event loop.
pub fn waits(requests: &[Request], sleeps: impl Fn(u32) -> Vec<u64>) -> Vec<Option<Wait>> {
    let mut sleeps_of: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    let mut by_server: FxHashMap<u32, (Vec<usize>, Vec<Late>)> = FxHashMap::default();
    for (request, at) in requests.iter().zip(0..) {
        let (of_server, late) = by_server.entry(request.server).or_default();
        of_server.push(at);
        let (tid, sent_ns) = request.sent;
        let sleeps = sleeps_of.entry(tid).or_insert_with(|| sleeps(tid));
        let first = request.since_ns.map_or(sleeps.len(), |since_ns| sleeps.partition_point(|&ns| ns <= since_ns));
        if let Some(&from_ns) = sleeps.get(first).filter(|&&ns| ns < sent_ns) {
            let upto = sleeps.partition_point(|&ns| ns < sent_ns);
            let one_turn_from_ns = upto.checked_sub(2).map_or(0, |last_but_one| sleeps[last_but_one]);
            late.push(Late { request: at, sent_ns, from_ns, one_turn_from_ns });
        }
    }
    let mut waits = vec![None; requests.len()];
    for (of_server, late) in by_server.into_values() {
        let waited = for_a_slot(requests, &of_server, &late);
        if waited.len() >= Threshold::SlotsWaited.count()
            && waited.len() as f64 >= Threshold::SlotsWaitedPart.share() * late.len() as f64
        {
            waited.into_iter().for_each(|(request, wait)| waits[request] = Some(wait));
        }
    }
    waits
}

/// The late requests to a server that waited for a slot, if it has a limit.
fn for_a_slot(requests: &[Request], of_server: &[usize], late: &[Late]) -> Vec<(usize, Wait)> {
    let sorted = |mut times: Vec<u64>| {
        times.sort_unstable();
        times
    };
    let taken = Taken::new(requests, of_server);
    let of_known = of_server.iter().map(|&at| &requests[at]).filter(|request| request.since_ns.is_some());
    let sent = sorted(of_known.map(|request| request.sent.1).collect());
    let sent_late = sorted(late.iter().map(|late| late.sent_ns).collect());
    let mut answered: Vec<usize> = of_server.to_vec();
    answered.sort_unstable_by_key(|&at| requests[at].answered_ns);
    let wait = |late: &Late| {
        let before = answered.partition_point(|&at| requests[at].answered_ns <= late.sent_ns);
        let freed_by = *answered.get(before.checked_sub(1)?)?;
        let wait_ns = (late.from_ns, requests[freed_by].answered_ns);
        let in_one_turn = wait_ns.1 > late.one_turn_from_ns.max(late.from_ns);
        let is_taken =
            || taken.within(wait_ns) as f64 >= Threshold::SlotsTaken.share() * (wait_ns.1 - wait_ns.0) as f64;
        let in_line =
            || between(&sent_late, wait_ns) as f64 >= Threshold::SlotsInLine.share() * between(&sent, wait_ns) as f64;
        (in_one_turn && is_taken() && in_line()).then_some((late.request, Wait { from_ns: late.from_ns, freed_by }))
    };
    late.iter().filter_map(wait).collect()
}

/// How many times are in an interval.
fn between(times: &[u64], (from, to): (u64, u64)) -> usize {
    times.partition_point(|&ns| ns <= to) - times.partition_point(|&ns| ns <= from)
}

/// When all slots of a server were taken.
struct Taken {
    /// Begins and ends, in order.
    spells: Vec<(u64, u64)>,
    /// How long those before each were in all.
    before_ns: Vec<u64>,
}

impl Taken {
    fn new(requests: &[Request], of_server: &[usize]) -> Taken {
        let mut changes: Vec<(u64, i32)> = Vec::with_capacity(2 * of_server.len());
        for &at in of_server {
            changes.push((requests[at].sent.1, 1));
            changes.push((requests[at].answered_ns, -1));
        }
        // Of two at the same time the answer first.
        changes.sort_unstable();
        let counts = changes.iter().scan(0, |under_way, &(ns, change)| {
            *under_way += change;
            Some((ns, *under_way))
        });
        let counts: Vec<(u64, i32)> = counts.collect();
        let slots = counts.iter().map(|&(_, under_way)| under_way).max().unwrap_or(0);
        let (mut spells, mut before_ns, mut sum_ns) = (Vec::new(), Vec::new(), 0);
        for pair in counts.windows(2).filter(|pair| pair[0].1 == slots) {
            spells.push((pair[0].0, pair[1].0));
            before_ns.push(sum_ns);
            sum_ns += pair[1].0 - pair[0].0;
        }
        Taken { spells, before_ns }
    }

    /// For how long of a time they were.
    fn within(&self, (from, to): (u64, u64)) -> u64 {
        self.until(to) - self.until(from)
    }

    fn until(&self, ns: u64) -> u64 {
        let upto = self.spells.partition_point(|&(begin, _)| begin < ns);
        let Some(last) = upto.checked_sub(1) else { return 0 };
        let (begin, end) = self.spells[last];
        self.before_ns[last] + end.min(ns) - begin
    }
}
