//! Whose a question of an event loop is, held against simulated loops that know it. In: a loop with clients, connections to a
//! server behind, and a way to take its work. Out: how many questions are told rightly, wrongly, or not.

use std::collections::{BTreeMap, VecDeque};

use tailsight_lifetime::messages::Extra;
use tailsight_lifetime::messages::call_owner::{Question, Whose, tell};
use tailsight_lifetime::model::Message;
use tailsight_trace::FlowKey;

const LOOP: u32 = 7;

/// Which connection a request's question goes out on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Connections {
    /// One for each client.
    Own,
    /// Any that is free, the one used last first.
    Pool,
    /// The same of so many; who finds none waits in line for one.
    Limited(u32),
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    connections: Connections,
    /// What was received is worked on in the next round (asyncio), not at once (a callback).
    deferred: bool,
    /// Requests of a client a second.
    rate: f64,
    /// The part of requests that are answered without a question; that ask a second time; that ask only when a timer has expired.
    hits: f64,
    twice: f64,
    timers: f64,
    /// The part of requests that ask two at once.
    two_at_once: f64,
    /// A request that asks again keeps its connection until then (a transaction; a pool that resets what is given back).
    held: bool,
}

const PLAIN: Setup = Setup {
    connections: Connections::Own,
    deferred: true,
    rate: 50.0,
    hits: 0.0,
    twice: 0.0,
    timers: 0.0,
    two_at_once: 0.0,
    held: false,
};

/// Random numbers of a seed.
pub struct Chance(pub u64);

impl Chance {
    /// In (0, 1], by xorshift64* (Vigna 2016).
    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
    /// With that mean.
    pub fn exponential(&mut self, mean: f64) -> u64 {
        (-mean * self.next().ln()) as u64 + 1
    }
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Request(u32),
    Answer(usize),
    /// A timer of a message that goes on to ask.
    Timer(u32),
}

/// What is known of a simulated loop.
#[derive(Default)]
struct Simulated {
    questions: Vec<Question>,
    truth: Vec<u32>,
    messages: Vec<Message>,
    extras: Vec<Extra>,
    sleeps: Vec<u64>,
}

/// 16 clients, 2 s; the server behind answers after 2 ms, at times 20 ms. An input costs the loop 50 us, an output 150 us.
fn simulate(setup: Setup, seed: u64) -> Simulated {
    const CLIENTS: u32 = 16;
    let mut chance = Chance(seed * 0x9e37_79b9 + 1);
    let mut out = Simulated::default();
    let mut inputs: Vec<(u64, Input)> = Vec::new();
    let think = 1e9 / setup.rate;
    (0..CLIENTS).for_each(|client| inputs.push((chance.exponential(think), Input::Request(client))));
    let mut free: Vec<u32> = vec![];
    let mut made = 0;
    let mut on: Vec<u32> = vec![];
    // Of each message that keeps its connection: that one.
    let mut kept: BTreeMap<u32, u32> = BTreeMap::new();
    // Of each message: the questions that it still asks.
    let mut asks: Vec<u32> = vec![];
    // Of each message: the answers that are to come before it goes on.
    let mut waits: Vec<u32> = vec![];
    let mut ready: VecDeque<u32> = VecDeque::new();
    // Messages that wait for a connection.
    let mut line: VecDeque<u32> = VecDeque::new();
    let mut now = 0;
    while now < 2_000_000_000 {
        inputs.sort_by_key(|i| i.0);
        let mut work: VecDeque<u32> = std::mem::take(&mut ready);
        if work.is_empty() && inputs[0].0 > now {
            now += 1_000;
            out.sleeps.push(now);
            now = inputs[0].0.max(now);
        }
        // In a round: what was left, then what has come.
        let come = inputs.partition_point(|i| i.0 <= now);
        let come: Vec<Input> = inputs.drain(..come).map(|i| i.1).collect();
        let mut rounds: Vec<Option<Input>> = work.iter().map(|_| None).collect();
        rounds.extend(come.into_iter().map(Some));
        for input in rounds {
            let message = match input {
                None => work.pop_front().unwrap(),
                Some(Input::Timer(m)) => m,
                Some(Input::Request(client)) => {
                    now += 50_000;
                    let m = Message { recv_ns: now, tid: LOOP, flow: client, ..Message::default() };
                    out.messages.push(m);
                    out.extras.push(Extra::default());
                    let questions =
                        if chance.next() < setup.hits { 0 } else { 1 + u32::from(chance.next() < setup.twice) };
                    asks.push(questions);
                    waits.push(0);
                    let m = out.messages.len() as u32 - 1;
                    if questions > 0 && chance.next() < setup.timers {
                        inputs.push((now + 3_000_000, Input::Timer(m)));
                        continue;
                    }
                    m
                }
                Some(Input::Answer(c)) => {
                    now += 50_000;
                    let question: &mut Question = &mut out.questions[c];
                    (question.received, question.last) = ((LOOP, now), now);
                    let message = out.truth[c];
                    if setup.held && asks[message as usize] > 0 {
                        kept.insert(message, on[c]);
                    } else if setup.connections != Connections::Own {
                        free.push(on[c]);
                    }
                    message
                }
            };
            if setup.deferred && input.is_some() {
                ready.push_back(message);
                continue;
            }
            now += 150_000;
            let (i, client) = (message as usize, out.messages[message as usize].flow);
            if waits[i] > 0 {
                waits[i] -= 1;
            }
            if waits[i] > 0 {
                continue;
            }
            let together = if asks[i] > 0 && chance.next() < setup.two_at_once { 2 } else { 1 };
            let questions = if asks[i] > 0 { together } else { 0 };
            asks[i] = asks[i].saturating_sub(1);
            waits[i] = questions;
            if questions == 0 {
                out.messages[i].send_ns = now - 5_000;
                out.extras[i] = Extra { send_tid: LOOP, sent_ns: now, ..Extra::default() };
                inputs.push((now + chance.exponential(think), Input::Request(client)));
            }
            let mut its_own = kept.remove(&message);
            if its_own.is_none() {
                line.extend((0..questions).map(|_| message));
            }
            loop {
                let full = matches!(setup.connections, Connections::Limited(most) if free.is_empty() && made == most);
                let next = || line.front().copied().filter(|_| !full);
                let Some(message) = its_own.map(|_| message).or_else(next) else { break };
                now += 20_000;
                let connection = match (its_own.take(), setup.connections) {
                    (Some(kept), _) => kept,
                    (None, connections) => {
                        line.pop_front();
                        match connections {
                            Connections::Own => client,
                            Connections::Pool | Connections::Limited(_) => free.pop().unwrap_or_else(|| {
                                made += 1;
                                made
                            }),
                        }
                    }
                };
                let key = FlowKey { addrs: 1, ports: connection << 16 | 9101, proto: 0 };
                let (sent, received) = ((LOOP, now), (LOOP, 0));
                out.questions.push(Question { key, sent, received, last: 0, pieces: false });
                out.truth.push(message);
                on.push(connection);
                let takes = if chance.next() < 0.1 { 20e6 } else { 2e6 };
                inputs.push((now + takes as u64 + chance.exponential(100_000.0), Input::Answer(on.len() - 1)));
            }
        }
    }
    let answered: Vec<bool> = out.questions.iter().map(|q| q.received.1 != 0).collect();
    let mut keep = answered.iter();
    out.questions.retain(|_| *keep.next().unwrap());
    let mut keep = answered.iter();
    out.truth.retain(|_| *keep.next().unwrap());
    out
}

/// The parts of questions that are told rightly and wrongly, over several loops of a kind; the rest is not told.
fn told(setup: Setup) -> (f64, f64) {
    let (mut right, mut wrong, mut questions) = (0, 0, 0);
    for seed in 1..=10 {
        let s = simulate(setup, seed);
        assert!(s.questions.len() > 100, "{setup:?}");
        let answers = tell(&s.questions, &s.messages, &s.extras, |_| s.sleeps.clone());
        for (answer, truth) in answers.whose.into_iter().zip(&s.truth) {
            right += u32::from(answer == Whose::Of(*truth));
            wrong += u32::from(matches!(answer, Whose::Of(m) if m != *truth));
            questions += 1;
        }
    }
    let part = |n: u32| f64::from(n) / f64::from(questions);
    (part(right), part(wrong))
}

/// What the message received last would have had.
fn last_received(setup: Setup) -> f64 {
    let (mut right, mut questions) = (0, 0);
    for seed in 1..=10 {
        let s = simulate(setup, seed);
        for (q, truth) in s.questions.iter().zip(&s.truth) {
            let last = s.messages.iter().rposition(|m| m.recv_ns <= q.sent.1).unwrap() as u32;
            right += u32::from(last == *truth);
            questions += 1;
        }
    }
    f64::from(right) / f64::from(questions)
}

#[test]
fn a_loop_s_questions_are_told_whose_they_are() {
    for connections in [Connections::Own, Connections::Pool] {
        for deferred in [true, false] {
            for rate in [20.0, 100.0, 1_000.0] {
                for (hits, twice, two_at_once) in
                    [(0.0, 0.0, 0.0), (0.3, 0.0, 0.0), (0.3, 0.3, 0.0), (0.0, 0.0, 0.3), (0.3, 0.3, 0.3)]
                {
                    let setup = Setup { connections, deferred, rate, hits, twice, two_at_once, ..PLAIN };
                    let (right, wrong) = told(setup);
                    assert!(wrong < 0.01, "{setup:?}: wrong {wrong}");
                    // A loop that is never done has one endless turn; with a pool then nothing may tell, and that is said.
                    let endless = connections == Connections::Pool && deferred && rate > 500.0;
                    assert!(endless || right > 0.85, "{setup:?}: right {right}");
                }
            }
        }
    }
}

/// A pool of four connections, most of the time in use: a question is sent when another message's is answered.
#[test]
fn a_full_pool_s_questions_are_told_whose_they_are() {
    for deferred in [true, false] {
        for rate in [50.0, 100.0, 200.0] {
            for hits in [0.0, 0.3] {
                let setup = Setup { connections: Connections::Limited(4), deferred, rate, hits, ..PLAIN };
                let (right, wrong) = told(setup);
                assert!(wrong < 0.01 && right > 0.98, "{setup:?}: right {right}, wrong {wrong}");
            }
        }
    }
}

/// The same, and requests ask again: in line once more, or on the connection that they keep for it. (A pool that is always full tells
/// less: at 100 requests of a client a second about half.)
#[test]
fn a_full_pool_s_questions_are_told_where_requests_ask_again() {
    for held in [true, false] {
        for deferred in [true, false] {
            for (rate, twice, least) in
                [(20.0, 0.3, 0.97), (20.0, 1.0, if held { 0.93 } else { 0.88 }), (50.0, 0.3, 0.84)]
            {
                let setup = Setup { connections: Connections::Limited(4), deferred, rate, twice, held, ..PLAIN };
                let (right, wrong) = told(setup);
                assert!(wrong < 0.02 && right > least, "{setup:?}: right {right}, wrong {wrong}");
            }
        }
    }
}

/// A question that is asked when a timer expires is of none that is at hand, and of one that happens to be when there is one: what the loop
/// replies to after the answer tells.
#[test]
fn questions_after_a_timer_are_seldom_told_wrongly() {
    for connections in [Connections::Own, Connections::Pool, Connections::Limited(4)] {
        for (rate, least, most_wrong) in [(20.0, 0.99, 0.001), (100.0, 0.98, 0.005)] {
            let setup = Setup { connections, timers: 0.3, rate, ..PLAIN };
            let (right, wrong) = told(setup);
            assert!(wrong < most_wrong && right > least, "{setup:?}: right {right}, wrong {wrong}");
        }
    }
}

/// Only of a pool that has no more connections is it said that a message waited for one.
#[test]
fn a_pool_that_grows_makes_hardly_anybody_wait_for_a_connection() {
    let part_in_line = |connections| {
        let s = simulate(Setup { connections, timers: 0.3, rate: 100.0, ..PLAIN }, 1);
        let answers = tell(&s.questions, &s.messages, &s.extras, |_| s.sleeps.clone());
        answers.in_line.iter().filter(|is| **is).count() as f64 / answers.in_line.len() as f64
    };
    let (limited, grows) = (part_in_line(Connections::Limited(4)), part_in_line(Connections::Pool));
    assert!(limited > 0.5 && grows < 0.01, "{limited} {grows}");
}

/// The simulated loops are such that the simple rule fails: else the tests above would show nothing.
#[test]
fn the_message_received_last_is_often_not_the_one_that_asks() {
    let busy = Setup { rate: 1_000.0, ..PLAIN };
    assert!(last_received(busy) < 0.8, "{}", last_received(busy));
}
