//! Turns and waits of threads as rows: one stream that is written by hand, with what each sleep in it was for.

use tailsight_lifetime::path::judged::Purpose;
use tailsight_lifetime::service_rows::{Edge, TurnEnd};
use tailsight_lifetime::{Analysis, Rule};

use crate::by_hand::{recv, send, switch};
use crate::waits::{A, EPOLL, FUTEX, ONE, TWO, analyse, merged, request, waking};

/// A thread serves a request, sleeps in a lock meanwhile that another one gives back, and waits for more work.
fn served() -> Analysis {
    let first = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(30, ONE, 0, FUTEX),
        switch(200_020, 0, ONE, 0),
        send(200_030, A, ONE),
        switch(200_100, ONE, 0, EPOLL),
    ];
    let two = merged(
        [request(10, A), vec![switch(12, 0, TWO, 0), waking(200_000, TWO, ONE), switch(300_000, TWO, 0, 0)]].concat(),
    );
    analyse(vec![first, two])
}

#[test]
fn a_wait_says_who_ended_it_and_what_it_was_for() {
    let mut rows = vec![];
    served().waits(|row| rows.push(*row));
    let edge_of = |row: &tailsight_lifetime::service_rows::WaitRow| {
        let edge = row.ended_by.map(|(waker, edge)| (waker.tid, edge));
        (row.tid, (row.from_ns, row.to_ns, row.is_whole), row.call_waits_for(), edge)
    };
    assert_eq!(
        rows.iter().map(edge_of).collect::<Vec<_>>(),
        [
            (ONE, (30, 200_000, true), Some("futex"), Some((TWO, Edge::Thread))),
            (ONE, (200_100, 300_000, false), Some("work"), None),
        ]
    );
    let was_for: Vec<_> = rows.iter().map(|row| (row.message, row.purpose, row.rule)).collect();
    assert_eq!(was_for, [(Some(0), Purpose::Thread, Some(Rule::Held)), (None, Purpose::Work, Some(Rule::Outside))]);
}

#[test]
fn a_turn_says_what_was_taken_and_answered_in_it_and_what_ended_it() {
    let turns = served().turns();
    let [turn] = &turns[..] else { panic!("{turns:?}") };
    assert_eq!((turn.tid, turn.from_ns, turn.to_ns), (ONE, 20, 200_100));
    assert_eq!((&turn.took[..], &turn.answered[..]), (&[0][..], &[0][..]));
    assert_eq!((turn.asked, turn.pushed, turn.ended_by), (0, 0, Some(TurnEnd::Sleep)));
}
