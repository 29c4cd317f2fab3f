//! Steps of one core, written by hand.

use super::*;
use crate::decode::Op;
use crate::sideband::Switches;

/// Runs steps of one core; addresses are of no file, so each is a function of its own.
fn run(ops: &[(u64, Op)]) -> (Vec<(u64, String)>, Counts) {
    let memory = Memory::default();
    let mut stacks = Stacks::new(&memory);
    let switches = Switches::from_iter([Switch { time_ns: 0, pid: 7, tid: 7, preempted: false }]);
    let mut core = Core::new(Some(0), None, switches.iter());
    for (ns, op) in ops {
        stacks.step(&mut core, *ns, &Step { ns: *ns, op: *op });
    }
    stacks.finish(&mut core);
    let name = |f: u32| format!("{:x}", stacks.names.places[f as usize].1);
    let text = stacks.events.iter().filter_map(|e| match e.what {
        What::Enter(f, _) => Some((e.ns, format!("+{}", name(f)))),
        What::Leave(f) => Some((e.ns, format!("-{}", name(f)))),
        What::Gap(_) => Some((e.ns, "?".into())),
        _ => None,
    });
    (text.collect(), stacks.counts.clone())
}

fn texts(of: &[(u64, &str)]) -> Vec<(u64, String)> {
    of.iter().map(|(ns, text)| (*ns, (*text).to_owned())).collect()
}

#[test]
fn calls_and_returns_nest_and_the_function_that_ran_first_is_known() {
    let (events, counts) = run(&[
        (10, Op::On { ip: 0x100 }),
        (20, Op::Call { from: 0x105, to: 0x200 }),
        (30, Op::Call { from: 0x210, to: 0x300 }),
        (40, Op::Return { from: 0x310, to: 0x215 }),
        // A tail call: 400 returns to where 200 was called.
        (50, Op::Jump { to: 0x400 }),
        (60, Op::Return { from: 0x410, to: 0x10a }),
    ]);
    assert_eq!(
        events,
        texts(&[
            (10, "+100"),
            (20, "+200"),
            (30, "+300"),
            (40, "-300"),
            (50, "-200"),
            (50, "+400"),
            (60, "-400"),
            (60, "-100"),
        ])
    );
    assert_eq!((counts.spans, counts.strays, counts.calls[&7], counts.returns[&7]), (4, 0, 2, 2));
}

#[test]
fn nothing_is_carried_over_a_gap() {
    let (events, counts) = run(&[
        (10, Op::On { ip: 0x100 }),
        (20, Op::Call { from: 0x105, to: 0x200 }),
        (30, Op::Gap(Gap::Overflow)),
        (90, Op::On { ip: 0x200 }),
        (95, Op::Off { from: 0x204 }),
    ]);
    let expected = [(10, "+100"), (20, "+200"), (30, "-200"), (30, "-100"), (30, "?"), (90, "+200"), (95, "-200")];
    assert_eq!(events, texts(&expected));
    assert_eq!(counts.gaps[&Gap::Overflow], (1, 60));
}

#[test]
fn an_interrupt_lies_on_what_it_interrupts_and_its_calls_do_not_return_into_that() {
    let handler = 0xffff_ffff_8100_0000;
    let (events, _) = run(&[
        (10, Op::On { ip: 0x100 }),
        (20, Op::Call { from: 0x105, to: 0x200 }),
        (30, Op::Interrupt { from: 0x200, to: handler }),
        (40, Op::Leave { to: 0x200 }),
        (50, Op::Return { from: 0x205, to: 0x10a }),
    ]);
    let name = format!("{handler:x}");
    let (enter, leave) = (format!("+{name}"), format!("-{name}"));
    assert_eq!(events, texts(&[(10, "+100"), (20, "+200"), (30, &enter), (40, &leave), (50, "-200"), (50, "-100")]));
}

#[test]
fn a_return_beyond_what_is_known_is_into_the_caller() {
    let (events, counts) = run(&[(10, Op::On { ip: 0x100 }), (20, Op::Return { from: 0x108, to: 0x500 })]);
    assert_eq!(events, texts(&[(10, "+100"), (20, "-100"), (20, "+500"), (20, "-500")]));
    assert_eq!(counts.strays, 0);
}

#[test]
fn a_piece_goes_on_where_the_one_before_ended() {
    let (events, _) = run(&[
        (10, Op::On { ip: 0x100 }),
        (20, Op::Call { from: 0x105, to: 0x200 }),
        (20, Op::End { tracing: true }),
        (21, Op::Start { ip: 0x208 }),
        (30, Op::Return { from: 0x210, to: 0x10a }),
    ]);
    assert_eq!(events, texts(&[(10, "+100"), (20, "+200"), (30, "-200"), (30, "-100")]));
}

#[test]
fn the_granularity_is_that_of_time_and_not_of_steps() {
    let mut g = Granularity::default();
    [0, 0, 0, 10, 10, 300, 5000].into_iter().for_each(|ns| g.add(ns));
    assert_eq!((g.same, g.quantile(0.5), g.quantile(0.75), g.quantile(1.0)), (3, Some(10), Some(300), Some(8192)));
    assert_eq!(Granularity::default().quantile(0.5), None);
}
