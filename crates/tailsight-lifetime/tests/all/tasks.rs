//! What is said of the messages of a runtime that parks tasks, against a simulated one that knows what each task did: nanosecond by nanosecond.
//!
//! In: plans of [`runtime`]. Out: tests of what holds today, and a table of what does not: the threads' sleeps are not the waits of the tasks.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tailsight_lifetime::{Analysis, Leg};

use crate::properties::{Piece, check_partition, pieces};
use crate::simulator::kernel::{name, tid};
use crate::simulator::runtime::{self, Doing, Op, Plan, TaskDoing, Truth};

/// What an owner says of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// What it was.
    Right,
    /// A sleep in epoll or a futex, and not what for.
    Unnamed,
    /// Work, or a wait, that was not the message's.
    Wrong,
}

/// What a piece of a leg is said to be, beside what it was.
#[derive(Debug)]
struct Answer {
    request: usize,
    leg: Leg,
    ns: u64,
    /// What the message's task did; if it waited for other tasks, what those did.
    truth: &'static str,
    owner: String,
    said: Said,
}

/// Every piece of every leg of a plan.
fn answers(plan: &Plan) -> Result<Vec<Answer>, TestCaseError> {
    let (facts, cpus, truth) = runtime::run(plan);
    let analysis = Analysis::build(&facts, &cpus);
    check_partition(&analysis)?;
    let lifetimes = &analysis.lifetimes;
    prop_assert_eq!(lifetimes.messages.len(), plan.requests.len());
    let times_ns = truth.times_ns();
    let mut answers = Vec::new();
    for message in &lifetimes.messages {
        let is_it = |&(_, &(_, at_ns)): &(&usize, &(usize, u64))| at_ns == message.recv_ns;
        let (&request, &(worker, _)) = truth.received.iter().find(is_it).expect("each message was received");
        prop_assert_eq!(message.tid, tid(worker));
        for Piece { leg, from_ns, to_ns, owner } in pieces(&analysis, message.id, &times_ns) {
            let (did, said) = judge(&truth, request, from_ns, &owner);
            answers.push(Answer { request, leg, ns: to_ns - from_ns, truth: did, owner, said });
        }
    }
    Ok(answers)
}

/// What the task of a request did at a time, and what this owner says of it.
fn judge(truth: &Truth, request: usize, at_ns: u64, owner: &str) -> (&'static str, Said) {
    let judged = |did, right| (did, if right { Said::Right } else { not_right(owner) });
    match truth.task(request, at_ns) {
        TaskDoing::Rests => judged("rests", !owner.contains("sleep:")),
        TaskDoing::Works(worker) => match truth.worker(worker, at_ns) {
            Doing::Ready => judged("has no core", runs_for_others(truth, at_ns, owner)),
            _ => judged("works", is_own(owner) || names_work(worker, owner)),
        },
        TaskDoing::Unseen | TaskDoing::Ready => {
            let comes = |worker: usize| matches!(truth.worker(worker, at_ns), Doing::Ready | Doing::Looks);
            let did = if (0..truth.workers.len()).any(comes) { "is ready, a worker comes" } else { NO_WORKER };
            judged(did, runs_for_others(truth, at_ns, owner))
        }
        TaskDoing::ForAnswer => {
            let its = owner.starts_with("blocked") && owner.contains("peer:backend");
            judged(FOR_ANSWER, its && !owner.contains(", perhaps for others"))
        }
        TaskDoing::ForTimer => judged("waits for a timer", owner.contains("timer") && owner.contains("sleep:")),
        TaskDoing::ForLock(_) => for_tasks(truth, request, at_ns, owner, &FOR_LOCK),
        TaskDoing::ForPermit => for_tasks(truth, request, at_ns, owner, &FOR_PERMIT),
        TaskDoing::ForRoom => for_tasks(truth, request, at_ns, owner, &FOR_ROOM),
        TaskDoing::ForJob if truth.job_of(request, at_ns).is_none() => {
            for_tasks(truth, request, at_ns, owner, &FOR_JOB_OF_OTHERS)
        }
        // What is done for it is its own work, too.
        TaskDoing::ForJob if works_now(truth, request, at_ns) && is_own(owner) => (FOR_ITS_JOB[0], Said::Right),
        TaskDoing::ForJob => for_tasks(truth, request, at_ns, owner, &FOR_ITS_JOB),
    }
}

/// Whether the owner is work for the message.
fn is_own(owner: &str) -> bool {
    owner.starts_with("own") && !owner.contains("sleep:")
}

/// Whether there is work for a request: by its task, or by one that does its job.
fn works_now(truth: &Truth, request: usize, at_ns: u64) -> bool {
    let runs = |task: usize| match truth.task(task, at_ns) {
        TaskDoing::Works(worker) => truth.worker(worker, at_ns) != Doing::Ready,
        _ => false,
    };
    runs(request) || truth.job_of(request, at_ns).is_some_and(runs)
}

const FOR_ANSWER: &str = "waits for an answer";
const NO_WORKER: &str = "is ready, no worker is free";
/// Who is waited for works, is ready, waits for an answer, for a timer.
const FOR_LOCK: [&str; 4] = [
    "waits for a lock, whose holder works",
    "waits for a lock, whose holder is ready",
    "waits for a lock, whose holder waits for an answer",
    "waits for a lock, whose holder waits for a timer",
];
const FOR_PERMIT: [&str; 4] = [
    "waits for a permit, one holder works",
    "waits for a permit, one holder is ready",
    "waits for a permit, the holders wait for an answer",
    "waits for a permit, the holders wait for a timer",
];
const FOR_ROOM: [&str; 4] = ["waits for room, a job works", "waits for room, the jobs are ready", "", ""];
const FOR_ITS_JOB: [&str; 4] = ["waits for its job, which works", "waits for its job, which is ready", "", ""];
const FOR_JOB_OF_OTHERS: [&str; 4] =
    ["waits for its job, one of others works", "waits for its job, those of others are ready", "", ""];

/// An owner that is not what it was: it says nothing, or something else.
fn not_right(owner: &str) -> Said {
    let sleeps = owner.ends_with("sleep:epoll_pwait") || owner.ends_with("sleep:futex");
    let names = owner.starts_with("sibling:");
    if sleeps && !names { Said::Unnamed } else { Said::Wrong }
}

/// Whether the owner is work of this worker, because of which another one may have slept.
fn names_work(worker: usize, owner: &str) -> bool {
    let rest = owner.strip_prefix(&format!("sibling:{}", name(worker)));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && owner.matches("sleep:").count() <= 1
}

/// Whether the owner is what a core does for others: work of a worker that runs, an interrupt, a core that is about to take the thread.
fn runs_for_others(truth: &Truth, at_ns: u64, owner: &str) -> bool {
    let runs = |&worker: &usize| !matches!(truth.worker(worker, at_ns), Doing::InPoller | Doing::InFutex);
    let of_worker = || (0..truth.workers.len()).filter(runs).any(|worker| names_work(worker, owner));
    let is_wait = owner.starts_with("blocked") || owner.contains("sleep:");
    let others = !owner.starts_with("own") && !owner.starts_with("sibling:") && !is_wait;
    others || of_worker()
}

/// A wait for other tasks: what these do, in the end, and whether the owner says so of one of them.
fn for_tasks(truth: &Truth, request: usize, at_ns: u64, owner: &str, did: &[&'static str; 4]) -> (&'static str, Said) {
    let mut tasks = truth.waits_for(request, at_ns);
    // No task waits in a circle; those that wait for others are replaced by these.
    let mut ends = vec![];
    while let Some(task) = tasks.pop() {
        let next = truth.waits_for(task, at_ns);
        if next.is_empty() { ends.push(task) } else { tasks.extend(next) }
    }
    let judgement = |task: usize| match truth.task(task, at_ns) {
        TaskDoing::Works(worker) if truth.worker(worker, at_ns) != Doing::Ready => {
            (0, names_work(worker, owner) || owner.starts_with("ahead") && !owner.contains("sleep:"))
        }
        TaskDoing::ForAnswer => (2, owner.contains("peer:backend")),
        TaskDoing::ForTimer => (3, owner.contains("timer") && owner.contains("sleep:")),
        _ => (1, runs_for_others(truth, at_ns, owner)),
    };
    let judged: Vec<(usize, bool)> = ends.into_iter().map(judgement).collect();
    // It is passed on.
    let first = judged.iter().map(|end| end.0).min().unwrap_or(1);
    let right = judged.iter().any(|end| end.1) || judged.is_empty() && !owner.contains("sleep:");
    (did[first], if right { Said::Right } else { not_right(owner) })
}

/// How long there was work for a request, ns.
fn worked_ns(truth: &Truth, times_ns: &[u64], request: usize) -> u64 {
    let works = |pair: &&[u64]| works_now(truth, request, pair[0]);
    times_ns.windows(2).filter(works).map(|pair| pair[1] - pair[0]).sum()
}

/// What the steps of a runtime between two tasks take for a message, ns.
const EDGES_NS: u64 = 3_000;

/// So many plans, the same each time.
fn some_plans(plans: usize) -> impl Iterator<Item = Plan> {
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(move || runtime::plans(30).new_tree(&mut runner).expect("a plan").current()).take(plans)
}

fn not_right_ns<'a>(answers: impl Iterator<Item = &'a Answer>) -> u64 {
    answers.filter(|answer| answer.said != Said::Right).map(|answer| answer.ns).sum()
}

/// What is not right of the receive leg, thousandths (7 in 2,000 plans).
const MISSED_BEFORE_RECEIVE: u64 = 10;

/// Whatever tasks wait for: who received a message, and when, is right (see [`answers`]), and so is how it was sent, and nearly what it waited for
/// before it was received.
#[test]
fn until_it_is_received_a_message_waits_for_workers() {
    let (mut whole_ns, mut missed_ns) = (0, 0);
    for plan in some_plans(400) {
        let answers = answers(&plan).expect("a partition that is exact");
        let answers_of = |leg| answers.iter().filter(move |answer| answer.leg == leg);
        whole_ns += answers_of(Leg::Receive).map(|answer| answer.ns).sum::<u64>();
        missed_ns += not_right_ns(answers_of(Leg::Receive));
        assert_eq!(not_right_ns(answers_of(Leg::Transmit)), 0, "{plan:?}");
    }
    assert!(whole_ns > 0 && missed_ns * 1_000 <= whole_ns * MISSED_BEFORE_RECEIVE, "{missed_ns} of {whole_ns} ns");
}

/// Tasks that only compute are to a kernel what a pool of threads is.
#[test]
fn the_work_of_tasks_that_never_park_is_their_own() {
    for mut plan in some_plans(400) {
        plan.requests.iter_mut().for_each(|request| request.ops.retain(|op| matches!(op, Op::Compute(_))));
        let answers = answers(&plan).expect("a partition that is exact");
        let truth = runtime::run(&plan).2;
        let times_ns = truth.times_ns();
        for request in 0..plan.requests.len() {
            let its = || answers.iter().filter(move |answer| answer.request == request);
            let wrong_ns = not_right_ns(its());
            assert!(wrong_ns <= EDGES_NS, "{wrong_ns} ns of request {request} of {plan:?}");
            let own_ns: u64 = its().filter(|answer| is_own(&answer.owner)).map(|answer| answer.ns).sum();
            let worked_ns = worked_ns(&truth, &times_ns, request);
            assert!(own_ns <= worked_ns + EDGES_NS, "{own_ns} ns own, {worked_ns} ns worked: {request} of {plan:?}");
        }
    }
}

/// Of a server that is asked for one thing alone, a wait for another server is said to be one, whichever worker polls.
#[test]
fn a_request_alone_that_waits_for_an_answer_is_said_to() {
    let mut waits = 0;
    for mut plan in some_plans(2_000) {
        plan.requests.truncate(1);
        let answers = answers(&plan).expect("a partition that is exact");
        let of_answers = || answers.iter().filter(|answer| answer.truth == FOR_ANSWER);
        let wrong_ns = not_right_ns(of_answers());
        assert!(wrong_ns <= EDGES_NS, "{wrong_ns} ns: {:?} of {plan:?}", of_answers().collect::<Vec<_>>());
        waits += of_answers().count();
    }
    assert!(waits > 0, "nobody waited");
}

/// The figures of the journal: of 2,000 plans, what is said of the messages of a runtime.
///
///     cargo test -p tailsight-lifetime --test all what_is_said_of_the_waits_of_tasks -- --ignored --nocapture
#[test]
#[ignore = "prints a table"]
#[allow(clippy::print_stdout, reason = "it prints a table")]
fn what_is_said_of_the_waits_of_tasks() {
    println!("a request alone");
    print_shares(some_plans(2_000).map(|mut plan| {
        plan.requests.truncate(1);
        plan
    }));
    println!("up to 29 requests");
    print_shares(some_plans(2_000));
}

#[allow(clippy::print_stdout, reason = "it prints a table")]
fn print_shares(plans: impl Iterator<Item = Plan>) {
    let mut shares: BTreeMap<(&str, &str), [u64; 3]> = BTreeMap::new();
    let mut not_right: BTreeMap<(&str, &str, String), u64> = BTreeMap::new();
    // Of the messages' own work.
    let (mut said_ns, mut was_ns, mut too_much_ns, mut too_little_ns) = (0, 0, 0, 0);
    let (mut messages, mut with_too_much) = (0, 0);
    for plan in plans {
        let truth = runtime::run(&plan).2;
        let times_ns = truth.times_ns();
        let mut own_ns = vec![0; plan.requests.len()];
        for answer in answers(&plan).expect("a partition that is exact") {
            for row in [answer.truth, "all of it"] {
                shares.entry((answer.leg.name(), row)).or_default()[answer.said as usize] += answer.ns;
            }
            own_ns[answer.request] += if is_own(&answer.owner) { answer.ns } else { 0 };
            if answer.said != Said::Right {
                *not_right.entry((answer.leg.name(), answer.truth, answer.owner)).or_default() += answer.ns;
            }
        }
        for (request, own_ns) in own_ns.into_iter().enumerate() {
            let worked_ns = worked_ns(&truth, &times_ns, request);
            said_ns += own_ns;
            was_ns += worked_ns;
            too_much_ns += own_ns.saturating_sub(worked_ns);
            too_little_ns += worked_ns.saturating_sub(own_ns);
            with_too_much += u64::from(own_ns > worked_ns + EDGES_NS);
            messages += 1;
        }
    }
    println!("{:<9} {:<50} {:>10} {:>7} {:>8} {:>7}", "leg", "what its task did", "ms", "right", "unnamed", "wrong");
    for ((leg, truth), ns) in &shares {
        let whole: u64 = ns.iter().sum();
        let [right, unnamed, wrong] = ns.map(|ns| ns as f64 / whole as f64 * 100.0);
        println!("{leg:<9} {truth:<50} {:10.1} {right:5.1} % {unnamed:6.1} % {wrong:5.1} %", whole as f64 / 1e6);
    }
    let mut not_right: Vec<_> = not_right.into_iter().collect();
    not_right.sort_by_key(|row| std::cmp::Reverse(row.1));
    for ((leg, truth, owner), ns) in not_right.into_iter().take(20) {
        println!("not right: {leg:<9} {truth:<50} {:10.1} ms {owner}", ns as f64 / 1e6);
    }
    let [said, was, too_much, too_little] =
        [said_ns, was_ns, too_much_ns, too_little_ns].map(|ns: u64| format!("{:.1} ms", ns as f64 / 1e6));
    println!("own work of {messages} messages: {said} are said, {was} were.");
    println!("{with_too_much} messages have more than they had: {too_much} too much, {too_little} too little.");
}
