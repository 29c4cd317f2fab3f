//! Whose a request of a proxy is, and how long it waited for its turn, held against simulated proxies that know it. In: event loops on several
//! threads that pass the requests of their clients on to one server, to which only so many go at a time. Out: what is told rightly.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tailsight_lifetime::messages::Extra;
use tailsight_lifetime::messages::call_owner::{Question, Whose, tell};
use tailsight_lifetime::messages::slots::{Request, waits};
use tailsight_lifetime::model::Message;
use tailsight_trace::FlowKey;

use crate::loops::Chance;

#[derive(Clone, Copy, Debug)]
struct Setup {
    loops: u32,
    /// Requests that go to the server at a time, of all loops.
    slots: Option<usize>,
    /// Requests a second.
    rate: f64,
    /// A request waits so long before it asks, ns.
    delay_ns: u64,
    /// How many of 1,000 answers take 60 ms.
    slow: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request(u32),
    /// A message goes on to ask: it waited for a time, or was the first in line when a slot was free.
    Ask(usize),
    Answer(usize),
}

/// What is known of a simulated proxy.
#[derive(Default)]
struct Simulated {
    questions: Vec<Question>,
    /// Of each question: its message, and how long that waited in line, ns.
    truth: Vec<(u32, u64)>,
    messages: Vec<Message>,
    extras: Vec<Extra>,
    sleeps: Vec<Vec<u64>>,
}

const SECONDS: u64 = 5;
const FIRST_LOOP: u32 = 100;

/// 40 clients, each of one loop; the server answers after 3 ms. Each step costs its loop 15 us, and another loop is told in 20 to 300 us that a
/// slot is free.
fn simulate(setup: Setup, seed: u64) -> Simulated {
    const STEP_NS: u64 = 15_000;
    let mut chance = Chance(seed * 0x9e37_79b9 + 1);
    let mut out = Simulated { sleeps: vec![vec![]; setup.loops as usize], ..Simulated::default() };
    let mut events = BinaryHeap::new();
    let mut at_ns = 0;
    while at_ns < SECONDS * 1_000_000_000 {
        at_ns += chance.exponential(1e9 / setup.rate);
        events.push(Reverse((at_ns, Event::Request((chance.next() * 40.0) as u32 % 40))));
    }
    let mut busy_until = vec![0; setup.loops as usize];
    // Messages in line, each with since when; messages that may ask.
    let (mut line, mut under_way) = (VecDeque::new(), 0);
    let mut connections: Vec<Vec<u32>> = vec![vec![]; setup.loops as usize];
    let mut made = 0;
    let mut waited_ns: Vec<u64> = Vec::new();
    while let Some(Reverse((due_ns, event))) = events.pop() {
        let client = match event {
            Event::Request(client) => client,
            Event::Ask(message) => out.messages[message].flow,
            Event::Answer(question) => out.messages[out.truth[question].0 as usize].flow,
        };
        let of_loop = (client % setup.loops) as usize;
        if busy_until[of_loop] > due_ns {
            events.push(Reverse((busy_until[of_loop], event)));
            continue;
        }
        if busy_until[of_loop] < due_ns {
            out.sleeps[of_loop].push(busy_until[of_loop] + 1);
        }
        let tid = FIRST_LOOP + of_loop as u32;
        let mut now_ns = due_ns + STEP_NS;
        let asks = match event {
            Event::Request(client) => {
                let message = out.messages.len();
                out.messages.push(Message { recv_ns: now_ns, tid, flow: client, ..Message::default() });
                out.extras.push(Extra::default());
                waited_ns.push(0);
                if setup.delay_ns > 0 {
                    events.push(Reverse((now_ns + setup.delay_ns, Event::Ask(message))));
                    None
                } else if setup.slots.is_some_and(|slots| under_way == slots || !line.is_empty()) {
                    line.push_back((message, now_ns));
                    None
                } else {
                    under_way += 1;
                    Some(message)
                }
            }
            Event::Ask(message) => {
                under_way += usize::from(setup.delay_ns > 0);
                Some(message)
            }
            Event::Answer(question) => {
                let message = out.truth[question].0 as usize;
                (out.questions[question].received, out.questions[question].last) = ((tid, now_ns), now_ns);
                connections[of_loop].push(u32::from(out.questions[question].key.local_port()));
                under_way -= 1;
                if let Some((next, since_ns)) = line.pop_front() {
                    // The slot is its own from now on.
                    under_way += 1;
                    waited_ns[next] = now_ns - since_ns;
                    events
                        .push(Reverse((now_ns + 20_000 + chance.exponential(80_000.0).min(280_000), Event::Ask(next))));
                }
                now_ns += STEP_NS;
                out.messages[message].send_ns = now_ns;
                out.extras[message] = Extra { send_tid: tid, sent_ns: now_ns, ..Extra::default() };
                None
            }
        };
        if let Some(message) = asks {
            now_ns += STEP_NS;
            let connection = connections[of_loop].pop().unwrap_or_else(|| {
                made += 1;
                made
            });
            let key = FlowKey { addrs: 1, ports: connection << 16 | 9101, proto: 0 };
            out.questions.push(Question { key, sent: (tid, now_ns), received: (tid, 0), last: 0, pieces: false });
            out.truth.push((message as u32, waited_ns[message]));
            let takes_ns = if chance.next() * 1_000.0 < f64::from(setup.slow) { 60e6 } else { 3e6 };
            let takes_ns = takes_ns as u64 + chance.exponential(100_000.0);
            events.push(Reverse((now_ns + takes_ns, Event::Answer(out.questions.len() - 1))));
        }
        busy_until[of_loop] = now_ns;
    }
    out
}

/// How many questions there are, how many are told rightly, how many wrongly; the waits in line, ns: as they were, as they are told, and of
/// these what is more than it was.
fn told(setup: Setup) -> ([usize; 3], [u64; 3]) {
    let (mut counts, mut waits_ns) = ([0; 3], [0; 3]);
    for seed in 1..=5 {
        let proxy = simulate(setup, seed);
        let sleeps = |tid: u32| proxy.sleeps[(tid - FIRST_LOOP) as usize].clone();
        let answers = tell(&proxy.questions, &proxy.messages, &proxy.extras, sleeps);
        let request = |(question, whose): (&Question, &Whose)| {
            let since_ns = match whose {
                Whose::Of(m) => Some(proxy.messages[*m as usize].recv_ns),
                _ => None,
            };
            Request { server: 1, sent: question.sent, answered_ns: question.last, since_ns }
        };
        let requests: Vec<Request> = proxy.questions.iter().zip(&answers.whose).map(request).collect();
        for ((wait, whose), &(message, truth_ns)) in
            waits(&requests, sleeps).iter().zip(&answers.whose).zip(&proxy.truth)
        {
            counts[0] += 1;
            counts[1] += usize::from(*whose == Whose::Of(message));
            counts[2] += usize::from(matches!(whose, Whose::Of(m) if *m != message));
            let wait_ns = wait.map_or(0, |wait| requests[wait.freed_by].answered_ns - wait.from_ns);
            waits_ns[0] += truth_ns;
            waits_ns[1] += wait_ns;
            waits_ns[2] += wait_ns.saturating_sub(truth_ns);
        }
    }
    (counts, waits_ns)
}

#[test]
fn whose_a_proxy_s_requests_are_and_how_long_they_waited_in_line_is_told() {
    for loops in [1, 2, 4] {
        for (slots, rate) in [(2, 250.0), (4, 500.0), (8, 1_000.0)] {
            let setup = Setup { loops, slots: Some(slots), rate, delay_ns: 0, slow: 20 };
            let ([questions, right, wrong], [truth_ns, told_ns, more_ns]) = told(setup);
            println!("{setup:?}: {right} of {questions}, {wrong} wrong; {truth_ns} {told_ns} {more_ns}");
            assert!(
                wrong * 200 < questions && right * 100 > questions * 97,
                "{setup:?}: {right} of {questions}, {wrong} wrong"
            );
            let part = told_ns as f64 / truth_ns as f64;
            assert!((0.8..1.03).contains(&part), "{setup:?}: {told_ns} ns of {truth_ns} ns");
            assert!(more_ns as f64 <= 0.03 * truth_ns as f64, "{setup:?}: {more_ns} ns of {truth_ns} ns");
        }
    }
}

#[test]
fn no_request_waits_in_line_where_there_is_no_limit() {
    for loops in [1, 2, 4] {
        for delay_ns in [0, 1_000_000, 5_000_000] {
            for rate in [20.0, 250.0, 1_000.0] {
                let setup = Setup { loops, slots: None, rate, delay_ns, slow: 20 };
                let (counts, [truth_ns, told_ns, _]) = told(setup);
                println!("{setup:?}: {counts:?} {told_ns}");
                assert_eq!((truth_ns, told_ns), (0, 0), "{setup:?}: {counts:?}");
            }
        }
    }
}
