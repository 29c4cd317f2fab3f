//! Builds lifetimes with samples for the tests: sleeps at a place in the program, a queue behind messages that sort, and messages that work
//! longer than others.

use syscalls::Sysno;
use tailsight_diagnose::model::Cause;
use tailsight_diagnose::{Diagnosis, Inputs, Options, RecordingFacts, diagnose_with};
use tailsight_lifetime::{Context, Frame, LEGS, Leg, Lifetimes, Part, PathPart, PathSpan, Role};
use tailsight_trace::samples::{FrameRow, SampleRow, Samples, kind};

use crate::common::{a, lifetimes, options, owner};

/// The core that the application runs on.
const CORE: u16 = 1;

/// A message's parts one after the other.
pub fn path(lifetimes: &Lifetimes, id: u32) -> Vec<PathSpan> {
    let mut at = lifetimes.messages[id as usize].driver_ns;
    let parts = LEGS.into_iter().flat_map(|leg| lifetimes.part_slice(id, leg));
    let span = |part: &Part| {
        at += part.ns;
        let asleep = lifetimes.owners[part.owner as usize].context == Context::Blocked;
        let cpu = (!asleep).then_some(CORE);
        PathSpan { from_ns: at - part.ns, to_ns: at, cpu, role: Role::A, owner: part.owner, begins: true, rule: None }
    };
    parts.map(span).collect()
}

/// A function's frame.
pub fn frame(function: &str, module: &str, build_id: &str) -> FrameRow {
    FrameRow { function: function.into(), module: module.into(), build_id: build_id.into(), ..FrameRow::default() }
}

/// A sample on the application's core.
pub fn sample(ts_ns: u64, stack: u32) -> SampleRow {
    SampleRow { ts_ns, cpu: CORE, stack, ..SampleRow::default() }
}

/// A diagnosis by functions.
pub fn diagnosed(lifetimes: &Lifetimes, samples: &Samples, options: &Options) -> Diagnosis {
    let path = |id, _: Leg, _: PathPart<'_>| path(lifetimes, id);
    let inputs = Inputs { path: Some(&path), samples: Some(samples), ..Inputs::default() };
    diagnose_with(lifetimes, options, &RecordingFacts::default(), &inputs).unwrap().0
}

/// A sleep in epoll_wait, at the first place.
pub fn asleep_in_epoll() -> tailsight_lifetime::Owner {
    let epoll = Frame::SleepIn { nr: Sysno::epoll_wait as u32, uninterruptible: false, io: false };
    owner(Context::Blocked, &[epoll, Frame::Place { stack: 0 }])
}

/// 5,000 messages of 10 us, of which each hundredth sleeps in epoll_wait for 4 ms.
pub fn each_hundredth_sleeps() -> Lifetimes {
    let parts = (0..5_000u64).map(|i| {
        let mut service = vec![a(0, 10_000 + i % 100)];
        service.extend((i % 100 == 0).then(|| a(1, 4_000_000)));
        [vec![a(0, 1_000)], service, vec![a(0, 1_000)]]
    });
    lifetimes(vec![owner(Context::Own, &[]), asleep_in_epoll()], parts.collect())
}

/// The place of a sleep: these frames, innermost first.
pub fn place(frames: Vec<FrameRow>) -> Samples {
    let rows = vec![SampleRow { kind: kind::SLEEP, ..sample(5, 0) }];
    Samples { rows, stacks: vec![(0..frames.len() as u32).collect()], frames }
}

/// 5,000 messages, each of which sleeps in epoll_wait for 2 ms.
pub fn each_sleeps() -> Lifetimes {
    let parts = (0..5_000u64).map(|i| [vec![], vec![a(0, 10_000 + i % 100), a(1, 2_000_000)], vec![a(0, 1_000)]]);
    lifetimes(vec![owner(Context::Own, &[]), asleep_in_epoll()], parts.collect())
}

/// Options for the total leg.
pub fn total() -> Options {
    Options { leg: Leg::Total, ..options() }
}

/// Bursts of 100 messages to one thread; the first of each tenth burst sorts for 1 ms, and those after it wait.
pub fn bursts() -> Lifetimes {
    let place = |i: u64| ((i / 100).is_multiple_of(10), i % 100);
    let parts = (0..5_000u64).map(|i| {
        let (held, place) = place(i);
        let waits = if held && (1..=30).contains(&place) { 1_000_000 - place * 10_000 } else { 0 };
        let mut receive = vec![a(0, 1_000)];
        receive.extend((waits > 0).then(|| a(1, waits)));
        let sorts = if held && place == 0 { 1_000_000 } else { 0 };
        [receive, vec![a(0, 10_000 + sorts)], vec![a(0, 1_000)]]
    });
    let mut out = lifetimes(vec![owner(Context::Own, &[]), owner(Context::Ahead, &[])], parts.collect());
    for (i, m) in (0..).zip(&mut out.messages) {
        let (receive, service) = (m.recv_ns - m.driver_ns, m.send_ns - m.recv_ns);
        m.tid = 7;
        m.driver_ns = (i / 100 + 1) * 100_000_000 + place(i).1 * 20_000;
        m.handoff_ns = m.driver_ns;
        m.recv_ns = m.driver_ns + receive;
        m.send_ns = m.recv_ns + service;
        m.xmit_ns = m.send_ns + 1_000;
        m.ahead = u32::from(receive > 1_000);
    }
    out
}

/// Samples of [`bursts`]. Every message serves; those that sort are met sorting, ten times so far apart, and none of another at the same time.
pub fn met_sorting(queued: &Lifetimes, frames: [FrameRow; 2], apart_ns: u64) -> Samples {
    let mut rows = vec![];
    for m in &queued.messages {
        rows.extend((m.id / 100 % 10 != 0).then(|| sample(m.recv_ns + 1, 1)));
        let sorts = m.send_ns - m.recv_ns > 1_000_000;
        rows.extend((1..=10).filter(|_| sorts).map(|n| sample(m.recv_ns + n * apart_ns, 0)));
    }
    Samples { rows, stacks: vec![vec![0, 1], vec![1]], frames: frames.into() }
}

/// [`bursts`] where another program has the core for 900 us of each millisecond.
pub fn bursts_behind_another() -> Lifetimes {
    let other = Context::Foreign { comm: "backup".into(), kernel: false };
    let queued = bursts();
    let owners = vec![owner(Context::Own, &[]), owner(Context::Ahead, &[]), owner(other, &[])];
    let parts = queued.messages.iter().map(|m| {
        let service = match m.send_ns - m.recv_ns {
            1_010_000 => vec![a(0, 110_000), a(2, 900_000)],
            short => vec![a(0, short)],
        };
        [queued.parts(m.id, Leg::Receive), service, queued.parts(m.id, Leg::Transmit)]
    });
    let mut out = lifetimes(owners, parts.collect());
    out.messages = queued.messages;
    out
}

/// A diagnosis where each hundredth message works for 40 us more: messages come each 50 us. Of the ten samples in each of those the stacks
/// are `of_slow` in turn; the others have one each, `of_usual` in turn.
pub fn works(slow: &Lifetimes, frames: &[FrameRow], of_slow: &[Vec<u32>], of_usual: &[Vec<u32>]) -> Diagnosis {
    let mut rows: Vec<SampleRow> = vec![];
    for message in &slow.messages {
        if message.send_ns - message.recv_ns > 20_000 {
            let at = |n: usize| message.recv_ns + 4_000 * (n as u64 + 1);
            rows.extend((0..10).map(|n| sample(at(n), (n % of_slow.len()) as u32)));
        } else {
            let stack = of_slow.len() + message.id as usize % of_usual.len();
            rows.push(sample(message.recv_ns + 2_500, stack as u32));
        }
    }
    let samples = Samples { rows, stacks: [of_slow, of_usual].concat(), frames: frames.to_vec() };
    diagnosed(slow, &samples, &total())
}

/// The first cause of that.
pub fn first_cause(slow: &Lifetimes, frames: &[FrameRow], of_slow: &[Vec<u32>], of_usual: &[Vec<u32>]) -> Cause {
    works(slow, frames, of_slow, of_usual).causes.swap_remove(0)
}

/// 5,000 messages of 5 us, of which each hundredth works for 40 us more.
pub fn each_hundredth_works_longer() -> Lifetimes {
    let work = |i: u64| a(0, if i.is_multiple_of(100) { 45_000 } else { 5_000 + i % 100 });
    let parts = (0..5_000u64).map(|i| [vec![a(0, 1_000)], vec![work(i)], vec![a(0, 1_000)]]);
    lifetimes(vec![owner(Context::Own, &[])], parts.collect())
}

/// The diagnosis of a collection by CPython that was begun by these functions, innermost first.
pub fn collection(begun_by: &[&str]) -> Diagnosis {
    let names = ["deduce_unreachable", "gc_collect_main", "gc_collect_with_callback"];
    let callers = ["_PyEval_EvalFrameDefault", "main"];
    let all = names.iter().chain(begun_by).chain(&callers);
    let frames: Vec<FrameRow> = all.map(|name| frame(name, "python3.11", "3")).collect();
    let last = frames.len() as u32 - 1;
    works(&each_hundredth_works_longer(), &frames, &[(0..=last).collect()], &[vec![last]])
}

/// The diagnosis of queries that PostgreSQL compiles.
pub fn compiled_queries() -> Diagnosis {
    let frames = [
        frame("llvm::FPPassManager::runOnFunction", "libLLVM-14.so.1", "1"),
        frame("llvm_get_function", "llvmjit.so", "2"),
        FrameRow { offset: 0x30f0f0, own: true, ..frame("", "postgres", "3") },
        FrameRow { own: true, ..frame("standard_ExecutorRun", "postgres", "3") },
    ];
    works(&each_hundredth_works_longer(), &frames, &[vec![0, 1, 2, 3]], &[vec![3]])
}
