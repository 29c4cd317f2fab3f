//! Serves the recorded messages again, as they would have been served without some causes.
//!
//! In: when each message arrived, was received and answered, on which worker; when each worker was kept from working, by which
//! cause; what causes had of each message besides. Out: each message's latency, ns.
//!
//! Each worker serves in order of arrival, whatever the recorded order was: a server that was held up takes the accumulated messages in
//! an order that it would not have had to choose otherwise. A message needs its worker for the recorded time from its turn (it was
//! ready and the previous reply was sent) to its answer, minus the time in which the worker was kept from working. What kept the
//! worker (other tasks, interrupts, the hypervisor) stays at its place in time and delays whatever message is there then. What a
//! message waited for itself (a lock, a disk) stays with the message. A message that finds its worker idle in the replay, but did not
//! in the recording, gets the time from readiness to the receive call of one that did, including the wake-up.

use std::cmp::Reverse;

/// One message as it was recorded. Times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its id.
    pub id: u32,
    /// The queue that it was in.
    pub queue: u32,
    /// Who served it, of the queue's workers.
    pub worker: u32,
    /// When it arrived; above 0.
    pub arrival: u64,
    /// When it was ready for its worker.
    pub ready: u64,
    /// When it was received.
    pub received: u64,
    /// When it was answered.
    pub answered: u64,
    /// When its reply was gone.
    pub end: u64,
    /// What of its time from the receive call to its answer was waiting that left its worker free for others.
    pub away: u64,
    /// Where there is any: what its thread worked for it from the receive call to its answer.
    pub own: u64,
}

/// A worker could not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Whose queue.
    pub queue: u32,
    /// Which of its workers.
    pub worker: u32,
    /// Start, ns.
    pub from: u64,
    /// End, ns.
    pub to: u64,
    /// Why; `None`: no cause of the diagnosis.
    pub cause: Option<u16>,
}

/// What a cause had of a message apart from stalls, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Before it was ready.
    pub before: u64,
    /// From then to its receive call, whether its worker had turned to it or not.
    pub taking: u64,
    /// From there to its answer, on its worker.
    pub serving: u64,
    /// The same, while the worker served others.
    pub away: u64,
    /// After its answer.
    pub after: u64,
}

impl Held {
    fn parts(&mut self) -> [&mut u64; 5] {
        [&mut self.before, &mut self.taking, &mut self.serving, &mut self.away, &mut self.after]
    }

    /// Leaves `usual` ns of it where it is, from the service on.
    fn keep(&mut self, mut usual: u64) {
        let [before, taking, serving, away, after] = self.parts();
        for part in [serving, taking, before, away, after] {
            let kept = usual.min(*part);
            (*part, usual) = (*part - kept, usual - kept);
        }
    }
}

/// What a message needs of its worker, and the rest of its time, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    id: u32,
    queue: u32,
    worker: u32,
    arrival: u64,
    before: u64,
    taking: u64,
    serving: u64,
    away: u64,
    after: u64,
    /// Nothing was before it.
    idle: bool,
    /// What of its time from readiness to its receive call was its turn, 0 to 1.
    turn: f32,
    /// The same for all that were served one after the other.
    period: u32,
}

/// The messages of a run, ready to be served again.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// By queue, then readiness.
    messages: Vec<Needs>,
    /// Disjoint, by queue, worker, time.
    stalls: Vec<Stall>,
    /// Positions in `messages` of those that found their worker idle, and of those that did not.
    found: [Vec<u32>; 2],
    /// By message id: its position in `messages`.
    place: Vec<u32>,
    /// By cause, then by message in any order.
    held: Vec<Vec<(u32, Held)>>,
}

/// Most messages of a replay at another load, unless the run has more.
const MOST_MESSAGES: usize = 1_000_000;
/// Messages that are no part of a replay.
const NONE: u32 = u32::MAX;
/// So many messages that were not first must be known before their time from readiness is anybody else's.
const DONORS: usize = 20;

impl Replay {
    /// Of these messages, stalls and so many causes.
    #[must_use]
    pub fn new(mut recorded: Vec<Recorded>, stalls: Vec<Stall>, causes: usize) -> Self {
        let stalls = disjoint(stalls);
        recorded.sort_by_key(|m| (m.queue, m.worker, m.answered, m.id));
        let mut messages = Vec::with_capacity(recorded.len());
        let mut period = 0;
        for of_worker in recorded.chunk_by(|a, b| (a.queue, a.worker) == (b.queue, b.worker)) {
            let (queue, worker) = (of_worker[0].queue, of_worker[0].worker);
            let mut stalled = Stalled::of(&stalls, queue, worker);
            let mut before = 0;
            for m in of_worker {
                let needs = needs(m, before, &mut stalled);
                period += u32::from(needs.idle);
                messages.push(Needs { period, ..needs });
                before = m.answered;
            }
        }
        messages.sort_by_key(|m: &Needs| (m.queue, m.arrival + m.before, m.id));
        let places = messages.iter().map(|m| m.id as usize + 1).max().unwrap_or(0);
        let mut out = Self { place: vec![NONE; places], held: vec![Vec::new(); causes], stalls, ..Self::default() };
        for (at, m) in (0_u32..).zip(&messages) {
            out.place[m.id as usize] = at;
            out.found[usize::from(!m.idle)].push(at);
        }
        out.messages = messages;
        out
    }

    /// A cause had this of a message, apart from stalls.
    pub fn held(&mut self, cause: usize, id: u32, held: Held) {
        let is_replayed = self.place.get(id as usize).is_some_and(|at| *at != NONE);
        if let Some(of_cause) = self.held.get_mut(cause).filter(|_| is_replayed && held != Held::default()) {
            of_cause.push((id, held));
        }
    }

    /// In which busy period a message was recorded: a number by message id; 0 of messages that are not in it.
    #[must_use]
    pub fn periods(&self) -> Vec<u32> {
        let mut out = vec![0; self.place.len()];
        self.messages.iter().for_each(|m| out[m.id as usize] = m.period);
        out
    }

    /// How many messages it holds.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Latencies by message id, ns, without some causes, each brought down to so many ns of a message; 0 of messages that are
    /// not in it.
    #[must_use]
    pub fn latencies(&self, without: &[(usize, u64)]) -> Vec<u64> {
        let mut messages = self.messages.clone();
        let mut moved = false;
        for (cause, usual) in without {
            for (id, held) in self.held.get(*cause).into_iter().flatten() {
                let mut held = *held;
                held.keep(*usual);
                let m = &mut messages[self.place[*id as usize] as usize];
                m.before = m.before.saturating_sub(held.before);
                m.taking = m.taking.saturating_sub((held.taking as f64 * f64::from(m.turn)) as u64);
                m.serving = m.serving.saturating_sub(held.serving);
                m.away = m.away.saturating_sub(held.away);
                m.after = m.after.saturating_sub(held.after);
                moved |= held.before > 0;
            }
        }
        let is_out = |stall: &Stall| stall.cause.is_some_and(|c| without.iter().any(|(w, _)| *w == usize::from(c)));
        let stalls: Vec<Stall> = self.stalls.iter().filter(|stall| !is_out(stall)).copied().collect();
        self.served(&messages, &stalls, moved)
    }

    /// Latencies, ns, had the messages come so many times as fast; what kept workers from working is where it was in time, and both go on
    /// as they were until the other is over, up to [`MOST_MESSAGES`] messages.
    #[must_use]
    pub fn at_load(&self, factor: f64) -> Vec<u64> {
        let (n, places) = (self.messages.len(), self.place.len() as u32);
        let first = self.messages.iter().map(|m| m.arrival).min().unwrap_or(0);
        let last = self.messages.iter().map(|m| m.arrival).max().unwrap_or(0);
        let span = (last - first).max(1);
        let copies = (factor.ceil() as usize).clamp(1, (MOST_MESSAGES / n.max(1)).max(1)) as u32;
        let copy = |again: u32| {
            let at = move |ns: u64| first + (((ns - first) + u64::from(again) * span) as f64 / factor).round() as u64;
            self.messages.iter().map(move |m| Needs { id: m.id + again * places, arrival: at(m.arrival), ..*m })
        };
        let messages: Vec<Needs> = (0..copies).flat_map(copy).collect();
        let mut stalls = Vec::new();
        for again in 0..=(1.0 / factor).ceil() as u64 {
            let later = |s: &Stall| Stall { from: s.from + again * span, to: s.to + again * span, ..*s };
            stalls.extend(self.stalls.iter().filter(|s| again == 0 || s.from >= first && s.to <= last).map(later));
        }
        let mut latencies = self.served(&messages, &disjoint(stalls), true);
        latencies.retain(|ns| *ns > 0);
        latencies
    }

    fn served(&self, messages: &[Needs], stalls: &[Stall], moved: bool) -> Vec<u64> {
        let mut order: Vec<u32> = (0..messages.len() as u32).collect();
        // They are in order as recorded.
        if moved {
            let key = |at: &u32| {
                let m = &messages[*at as usize];
                (m.queue, m.arrival + m.before, m.id)
            };
            order.sort_by_key(key);
        }
        let mut out = vec![0; messages.iter().map(|m| m.id as usize + 1).max().unwrap_or(0)];
        for of_queue in order.chunk_by(|a, b| messages[*a as usize].queue == messages[*b as usize].queue) {
            self.serve(messages, of_queue, stalls, &mut out);
        }
        out
    }

    /// Serves the messages of a queue.
    fn serve(&self, messages: &[Needs], order: &[u32], stalls: &[Stall], out: &mut [u64]) {
        let mut workers: Vec<Worker<'_>> = Vec::new();
        for at in order {
            let m = &messages[*at as usize];
            if workers.iter().all(|w| w.id != m.worker) {
                let stalls = of_worker(stalls, m.queue, m.worker);
                workers.push(Worker { id: m.worker, free: 0, stalls, next: 0 });
            }
        }
        for at in order {
            let m = &messages[*at as usize];
            let ready = m.arrival + m.before;
            // Its own worker when that is idle, else the one that is free first.
            let chosen = workers.iter_mut().min_by_key(|w| (w.free.max(ready), Reverse(w.id == m.worker)));
            let Some(worker) = chosen else { continue };
            let idle = worker.free <= ready;
            let taking = if idle == m.idle { m.taking } else { self.taking_of_another(messages, m, idle) };
            let done = worker.work(ready, taking + m.serving);
            out[m.id as usize] = done + m.away + m.after - m.arrival;
        }
    }

    /// From readiness to the receive call, of a message that found its worker so; always the same one for a message.
    fn taking_of_another(&self, messages: &[Needs], m: &Needs, idle: bool) -> u64 {
        let donors = &self.found[usize::from(!idle)];
        if donors.len() < DONORS {
            return m.taking;
        }
        let drawn = tailsight_stats::random::mix(u64::from(m.id), 6) % donors.len() as u64;
        messages[donors[drawn as usize] as usize].taking
    }
}

/// What a message needs, `before` it having been answered the one before.
fn needs(m: &Recorded, before: u64, stalled: &mut Stalled<'_>) -> Needs {
    let turn = m.ready.max(before).min(m.answered);
    let received = m.received.clamp(turn, m.answered);
    let taking = (received - turn).saturating_sub(stalled.within(turn, received));
    let serving = (m.answered - received).saturating_sub(stalled.within(received, m.answered));
    Needs {
        id: m.id,
        queue: m.queue,
        worker: m.worker,
        arrival: m.arrival,
        before: m.ready.saturating_sub(m.arrival),
        taking,
        serving: if m.away > 0 { serving.min(m.own) } else { serving },
        away: m.away,
        after: m.end.saturating_sub(m.answered),
        idle: before <= m.ready,
        turn: (received - turn) as f32 / received.saturating_sub(m.ready).max(1) as f32,
        period: 0,
    }
}

/// In order, each beginning where the one before it ended at the earliest.
fn disjoint(mut stalls: Vec<Stall>) -> Vec<Stall> {
    stalls.sort_by_key(|s| (s.queue, s.worker, s.from, s.to));
    let mut out: Vec<Stall> = Vec::with_capacity(stalls.len());
    for mut stall in stalls {
        if let Some(last) = out.last_mut().filter(|l| (l.queue, l.worker) == (stall.queue, stall.worker)) {
            stall.from = stall.from.max(last.to);
            if stall.from == last.to && stall.cause == last.cause {
                last.to = last.to.max(stall.to);
                continue;
            }
        }
        if stall.from < stall.to {
            out.push(stall);
        }
    }
    out
}

fn of_worker(stalls: &[Stall], queue: u32, worker: u32) -> &[Stall] {
    let from = stalls.partition_point(|s| (s.queue, s.worker) < (queue, worker));
    let to = stalls.partition_point(|s| (s.queue, s.worker) <= (queue, worker));
    &stalls[from..to]
}

/// The stalls of a worker, asked in rising order of time.
struct Stalled<'a> {
    stalls: &'a [Stall],
}

impl<'a> Stalled<'a> {
    fn of(stalls: &'a [Stall], queue: u32, worker: u32) -> Self {
        Self { stalls: of_worker(stalls, queue, worker) }
    }

    /// How long the worker was kept from working, ns. `from` may not be smaller than in the call before.
    fn within(&mut self, from: u64, to: u64) -> u64 {
        let over = self.stalls.iter().take_while(|s| s.to <= from).count();
        self.stalls = &self.stalls[over..];
        let inside = self.stalls.iter().take_while(|s| s.from < to);
        inside.map(|s| s.to.min(to) - s.from.max(from)).sum()
    }
}

/// A worker in the replay.
struct Worker<'a> {
    id: u32,
    /// When it has done what it had to do.
    free: u64,
    stalls: &'a [Stall],
    /// The first stall that is not over.
    next: usize,
}

impl Worker<'_> {
    /// Works for `need` ns, from `ready` on as soon as it is free and not kept from it; when it is done.
    fn work(&mut self, ready: u64, mut need: u64) -> u64 {
        let mut at = ready.max(self.free);
        while let Some(stall) = self.stalls.get(self.next) {
            if stall.to > at {
                let room = stall.from.saturating_sub(at);
                // Nothing is left to be done when it begins.
                if need <= room && (need > 0 || stall.from > at) {
                    break;
                }
                need -= room.min(need);
                at = stall.to;
            }
            self.next += 1;
        }
        self.free = at + need;
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(id: u32, arrival: u64, answered: u64) -> Recorded {
        Recorded { id, arrival, ready: arrival, received: answered, answered, end: answered, ..Recorded::default() }
    }

    fn stall(from: u64, to: u64, cause: u16) -> Stall {
        Stall { queue: 0, worker: 0, from, to, cause: Some(cause) }
    }

    /// Three messages of 10 ns of work each; the worker is kept from them from 1000 to 1100.
    fn held_up() -> Replay {
        let messages = vec![recorded(0, 1000, 1110), recorded(1, 1050, 1120), recorded(2, 1060, 1130)];
        Replay::new(messages, vec![stall(1000, 1100, 0)], 2)
    }

    #[test]
    fn in_the_order_of_arrival_nothing_taken_out_gives_back_what_was_measured() {
        assert_eq!(held_up().latencies(&[]), [110, 70, 70]);
        assert_eq!(held_up().latencies(&[(1, 0)]), [110, 70, 70]);
    }

    #[test]
    fn what_a_cause_did_to_those_behind_goes_with_it() {
        // The first ends at 1010; the second is alone at 1050, the third comes as it ends.
        assert_eq!(held_up().latencies(&[(0, 0)]), [10, 10, 10]);
    }

    /// A server that takes later arrivals first after a hold-up: the recorded order would have the first wait for a message that
    /// was not there yet.
    #[test]
    fn the_order_of_service_follows_from_the_arrivals() {
        let messages = vec![recorded(0, 1000, 1130), recorded(1, 1050, 1120), recorded(2, 1060, 1110)];
        let replay = Replay::new(messages, vec![stall(1000, 1100, 0)], 1);
        assert_eq!(replay.latencies(&[]), [110, 70, 70], "in the order of arrival");
        assert_eq!(replay.latencies(&[(0, 0)]), [10, 10, 10]);
    }

    #[test]
    fn another_cause_stays_where_it_was_in_time() {
        // Kept from 1000 to 1100 by one cause and from 1100 to 1200 by another.
        let messages = vec![recorded(0, 1000, 1210), recorded(1, 1150, 1220)];
        let replay = Replay::new(messages, vec![stall(1000, 1100, 0), stall(1100, 1200, 1)], 2);
        assert_eq!(replay.latencies(&[]), [210, 70]);
        // The first is done before the other cause begins.
        assert_eq!(replay.latencies(&[(0, 0)]), [10, 60]);
        assert_eq!(replay.latencies(&[(1, 0)]), [110, 10]);
        assert_eq!(replay.latencies(&[(0, 0), (1, 0)]), [10, 10]);
    }

    #[test]
    fn workers_of_one_queue_share_its_messages_and_those_of_others_do_not() {
        // The first worker is kept from 1000 to 1100; its second message could have gone to the other.
        let on = |worker, queue, m: Recorded| Recorded { worker, queue, ..m };
        let messages =
            |queue| vec![recorded(0, 1000, 1110), recorded(1, 1050, 1120), on(1, queue, recorded(2, 1020, 1030))];
        let one_worker = Replay::new(messages(0), vec![stall(1000, 1100, 0)], 1);
        assert_eq!(one_worker.latencies(&[]), [110, 10, 10]);
        let two = Replay::new(messages(1), vec![stall(1000, 1100, 0)], 1);
        assert_eq!(two.latencies(&[]), [110, 70, 10]);
        assert_eq!(two.messages(), 3);
    }

    #[test]
    fn a_reply_that_leaves_late_and_a_wait_away_from_the_worker_hold_nobody_up() {
        // Answered at 1010, gone at 9000; the other came at 1005 and waited for somebody else until 2000, the next did not.
        let first = Recorded { answered: 1010, received: 1005, ..recorded(0, 1000, 9000) };
        let away = Recorded { received: 1015, away: 980, own: 5, ..recorded(1, 1015, 2000) };
        let mut replay = Replay::new(vec![first, recorded(2, 1100, 1110), away], vec![], 2);
        replay.held(0, 0, Held { after: 7990, ..Held::default() });
        replay.held(1, 1, Held { away: 980, ..Held::default() });
        replay.held(1, 99, Held { away: 1, ..Held::default() });
        assert_eq!(replay.latencies(&[]), [8000, 985, 10]);
        assert_eq!(replay.latencies(&[(0, 0)]), [10, 985, 10]);
        assert_eq!(replay.latencies(&[(1, 0)]), [8000, 5, 10]);
    }

    #[test]
    fn at_another_load_messages_come_closer_and_stalls_stay() {
        let replay = held_up();
        assert_eq!(replay.at_load(1.0), replay.latencies(&[]));
        // They come at 1000, 1025 and 1030, and again at 1030, 1055 and 1060, all before the end of the stall.
        assert_eq!(replay.at_load(2.0), [110, 95, 100, 110, 95, 100]);
        // They come at 1000, 1500 and 1600; a stall as long as all messages took to come is not repeated.
        assert_eq!(replay.at_load(0.1), [110, 10, 10]);
    }

    #[test]
    fn what_is_usual_of_a_cause_is_left() {
        let mut replay = Replay::new(vec![recorded(0, 1000, 1110), recorded(1, 1020, 1120)], vec![], 1);
        replay.held(0, 0, Held { taking: 100, ..Held::default() });
        assert_eq!(replay.latencies(&[(0, 0)]), [10, 10]);
        assert_eq!(replay.latencies(&[(0, 30)]), [40, 30]);
        assert_eq!(replay.latencies(&[(0, 500)]), [110, 100]);
    }

    proptest::proptest! {
        /// Served in the order of arrival, whatever is recorded is given back; and less time never makes the sum longer.
        #[test]
        fn one_worker_in_order_is_given_back(
            drawn in proptest::collection::vec((1..50_u64, 1..40_u64, 0..30_u64, 0..2_u16), 1..60),
        ) {
            let (mut at, mut free) = (1, 0);
            let (mut messages, mut stalls) = (Vec::new(), Vec::new());
            for (i, (gap, need, stalled, cause)) in drawn.iter().enumerate() {
                at += gap;
                // Kept from its work first, then works.
                let turn = at.max(free);
                let answered = turn + stalled + need;
                stalls.push(stall(turn, turn + stalled, *cause));
                messages.push(recorded(i as u32, at, answered));
                free = answered;
            }
            let measured: Vec<u64> = messages.iter().map(|m| m.end - m.arrival).collect();
            let replay = Replay::new(messages, stalls, 2);
            proptest::prop_assert_eq!(&replay.latencies(&[]), &measured);
            if drawn.len() < DONORS {
                for cause in 0..2 {
                    for (less, with) in replay.latencies(&[(cause, 0)]).iter().zip(&measured) {
                        proptest::prop_assert!(less <= with);
                    }
                }
            }
        }
    }
}
