//! What serving cost: one stream by hand, and what must hold for every recorded run.

use std::path::Path;

use tailsight_lifetime::input::Names;
use tailsight_lifetime::{Analysis, RunContext};
use tailsight_trace::event::{Kind, function_flags};
use tailsight_trace::meta::{Traced, TracedFunction};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::TaskRow;
use tailsight_trace::{Event, Run};

const THREAD: u32 = 100;
const PORTS: u64 = 11211 << 16 | 4000;

fn event(ts: u64, kind: Kind, tid: u32, [a, b, c]: [u64; 3]) -> Event {
    Event { ts, kind: kind as u8, generation: 0, aux: 0, tid, a, b, c }
}

fn switch(ts: u64, from: u32, to: u32) -> Event {
    event(ts, Kind::SchedSwitch, from, [u64::from(from) | u64::from(to) << 32, 1 | 120 << 32, 282])
}

#[test]
fn a_threads_time_is_divided_and_what_interrupts_it_is_none_of_its_own() {
    let events = vec![
        switch(490, THREAD, 0),
        // Its packet arrives while the core is idle: 10 ns of the softirq itself, 15 of the packet.
        event(500, Kind::SoftirqEntry, 0, [3, 0, 0]),
        event(510, Kind::RxStack, 0, [1, PORTS | 100 << 32, 50 | 2 << 32]),
        event(515, Kind::Handoff, 0, [1, PORTS | 150 << 32, 9]),
        event(525, Kind::SoftirqExit, 0, [3, 0, 0]),
        switch(1000, 0, THREAD),
        event(1010, Kind::SyscallEnter, THREAD, [45, 0, 0]),
        event(1020, Kind::Recv, THREAD, [1, PORTS | 150 << 32, 50 | 9 << 32]),
        event(1030, Kind::SyscallExit, THREAD, [45, 0, 0]),
        event(1050, Kind::SyscallEnter, THREAD, [44, 0, 0]),
        event(1060, Kind::Send, THREAD, [1, PORTS | 550 << 32, 50 | 9 << 32]),
        event(1070, Kind::SyscallExit, THREAD, [44, 0, 0]),
        // A timer.
        event(1080, Kind::VectorEntry, THREAD, [0, 0, 0]),
        event(1090, Kind::VectorExit, THREAD, [0, 0, 0]),
        switch(1100, THREAD, 0),
        switch(1200, 0, 0),
    ];
    let row = TaskRow { tid: THREAD, tgid: THREAD, comm: "server".into(), target: true, ..TaskRow::default() };
    let facts = RunContext { names: Names::new(&[row]), cpus: 1, ..RunContext::default() };
    let work = Analysis::build(&facts, &[CpuEvents { cpu: 0, events }]).work();
    assert_eq!(work.span_ns, (490, 1200));
    let [thread] = &work.threads[..] else { panic!("{work:?}") };
    assert_eq!((thread.tid, thread.messages), (THREAD, 1));
    // User: 1000 to 1010, 1030 to 1050, 1070 to 1080, 1090 to 1100. Kernel: the two calls.
    assert_eq!((thread.user_ns, thread.kernel_ns), (50, 40), "{work:?}");
    assert_eq!(thread.cpus.get(&0), Some(&90));
    assert_eq!(work.receive.get(&0), Some(&25), "{work:?}");
}

#[test]
fn recorded_work_fits_into_the_recording() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for run in ["memcached-requests", "memcached-tcp", "memcached-udp", "nginx-2-workers", "redis-requests"] {
        let analysis = Analysis::of(&mut Run::open(&golden.join(run)).unwrap()).unwrap();
        let work = analysis.work();
        let received = analysis.lifetimes.messages.iter().filter(|m| m.recv_ns != 0).count() as u64;
        assert_eq!(work.threads.iter().map(|t| t.messages).sum::<u64>(), received, "{run}");
        let span = work.span_ns.1 - work.span_ns.0;
        for thread in &work.threads {
            let on_core = thread.user_ns + thread.kernel_ns;
            assert_eq!(thread.cpus.values().sum::<u64>(), on_core, "{run}");
            assert!(on_core > 0 && on_core < span, "{run}: {thread:?} in {span}");
        }
        assert!(work.receive.values().sum::<u64>() > 0, "{run}: {work:?}");
        // The paths that are walked together are those that are walked one by one.
        let mut together = 0;
        analysis.paths(tailsight_lifetime::Leg::Total, |m, path| {
            assert_eq!(path, analysis.path(m.id, tailsight_lifetime::Leg::Total), "{run} {}", m.id);
            together += 1;
        });
        assert!(together > 0, "{run}");
    }
}

/// Functions of the kernel, as Intel PT tells them: those of an interrupt lie in the interrupt and end with it, those of the thread go on
/// behind it, and deep ones keep their names.
#[test]
fn functions_of_an_interrupt_lie_in_it_and_those_of_the_thread_go_on_behind_it() {
    let names = ["do_syscall_64", "tcp_recvmsg", "net_rx_action", "ip_rcv"];
    let function = |ts, begin: bool, i: u64| {
        let kind = if begin { Kind::FunctionBegin } else { Kind::FunctionEnd };
        Event { aux: function_flags::KERNEL, ..event(ts, kind, THREAD, [i, 0, 0]) }
    };
    let events = vec![
        switch(1000, 0, THREAD),
        function(1010, true, 0),
        function(1020, true, 1),
        event(1030, Kind::SoftirqEntry, THREAD, [3, 0, 0]),
        function(1040, true, 2),
        function(1050, true, 3),
        // Of the function that was interrupted: it does not end in here.
        function(1055, false, 1),
        function(1060, false, 3),
        function(1070, false, 2),
        event(1080, Kind::SoftirqExit, THREAD, [3, 0, 0]),
        function(1090, false, 1),
        function(1100, false, 0),
        switch(1200, THREAD, 0),
    ];
    let traced = Traced {
        functions: names.iter().map(|n| TracedFunction { name: (*n).into(), ..TracedFunction::default() }).collect(),
        ..Traced::default()
    };
    let row = TaskRow { tid: THREAD, tgid: THREAD, comm: "server".into(), target: true, ..TaskRow::default() };
    let (mut names, mut symbols) = (Names::new(&[row]), Vec::new());
    names.add_functions(Some(&traced), &mut symbols);
    let context = RunContext { names, cpus: 1, symbols, ..RunContext::default() };
    let analysis = Analysis::build(&context, &[CpuEvents { cpu: 0, events }]);
    let symbols = &analysis.lifetimes.symbols;
    let mut spans = Vec::new();
    analysis.on_cores(&[THREAD], |_, span, owner| spans.push((span.from_ns, owner.path(symbols))));
    let spans: Vec<(u64, &str)> = spans.iter().map(|(ns, path)| (*ns, path.as_str())).collect();
    let call = "own/function:do_syscall_64";
    let (receive, softirq) = (format!("{call}/function:tcp_recvmsg"), "softirq:net_rx");
    let in_softirq = format!("{receive}/{softirq}");
    let poll = format!("{in_softirq}/function:net_rx_action");
    let packet = format!("{poll}/function:ip_rcv");
    let expected: [(u64, &str); 11] = [
        (1000, "own"),
        (1010, call),
        (1020, &receive),
        (1030, &in_softirq),
        (1040, &poll),
        (1050, &packet),
        (1060, &poll),
        (1070, &in_softirq),
        (1080, &receive),
        (1090, call),
        (1100, "own"),
    ];
    assert_eq!(spans, expected);
}

/// A softirq that polls packets, each seen in a function that ends before the next is seen: however many there are, and however deep the
/// calls, all of it stays in the softirq, and each packet has the same functions.
#[test]
fn functions_around_and_in_the_packets_of_a_softirq_end_where_they_end() {
    let mut names: Vec<String> = ["net_rx_action", "__netif_receive_skb_one_core", "ip_rcv"].map(str::to_owned).into();
    names.extend((0..60).map(|i| format!("callee_{i}")));
    let function = |ts, begin: bool, i: u64| {
        let kind = if begin { Kind::FunctionBegin } else { Kind::FunctionEnd };
        Event { aux: function_flags::KERNEL, ..event(ts, kind, THREAD, [i, 0, 0]) }
    };
    let mut events =
        vec![switch(1000, 0, THREAD), event(1010, Kind::SoftirqEntry, THREAD, [3, 0, 0]), function(1020, true, 0)];
    for packet in 0..50 {
        let at = 2000 + 1000 * packet;
        events.extend([function(at, true, 1), function(at + 5, true, 62)]);
        events.push(event(at + 10, Kind::RxStack, THREAD, [1, PORTS | 100 << 32, 50 | 2 << 32]));
        // The hook's own function.
        events.extend([function(at + 15, false, 62), function(at + 20, true, 2)]);
        events.extend((0..60).map(|i| function(at + 100 + i, true, 3 + i)));
        events.extend((0..60).rev().map(|i| function(at + 300 - i, false, 3 + i)));
        events.extend([function(at + 400, false, 2), function(at + 410, false, 1)]);
    }
    events.extend([function(90_000, false, 0), event(90_010, Kind::SoftirqExit, THREAD, [3, 0, 0])]);
    events.push(switch(91_000, THREAD, 0));
    let traced = Traced {
        functions: names.iter().map(|n| TracedFunction { name: n.clone(), ..TracedFunction::default() }).collect(),
        ..Traced::default()
    };
    let row = TaskRow { tid: THREAD, tgid: THREAD, comm: "server".into(), target: true, ..TaskRow::default() };
    let (mut names, mut symbols) = (Names::new(&[row]), Vec::new());
    names.add_functions(Some(&traced), &mut symbols);
    let context = RunContext { names, cpus: 1, symbols, ..RunContext::default() };
    let analysis = Analysis::build(&context, &[CpuEvents { cpu: 0, events }]);
    let symbols = &analysis.lifetimes.symbols;
    let mut spans = std::collections::BTreeMap::new();
    analysis.on_cores(&[THREAD], |_, span, owner| {
        spans.insert(span.from_ns, owner.path(symbols));
    });
    let at = |ns: u64| spans.range(..=ns).next_back().unwrap().1.as_str();
    let poll = at(1020).to_owned();
    assert!(poll.ends_with("softirq:net_rx/function:net_rx_action"), "{poll}");
    let (first, between) = (at(2025).to_owned(), at(2500).to_owned());
    assert!(first.starts_with(&poll) && first.ends_with("function:ip_rcv"), "{first}");
    assert!(between.starts_with(&poll) && !between.contains("receive_skb"), "{between}");
    for packet in 0..50 {
        let from = 2000 + 1000 * packet;
        assert_eq!(at(from + 25), first, "{packet}");
        assert!(at(from + 200).starts_with(&first) && at(from + 200).contains("callee_14"), "{}", at(from + 200));
        assert_eq!(at(from + 500), between, "{packet}");
    }
    assert!(!at(90_020).contains("softirq"), "{}", at(90_020));
}
