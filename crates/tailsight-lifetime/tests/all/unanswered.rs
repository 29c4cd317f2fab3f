//! Messages that no reply answers, replies that others overtook, requests whose end is read after the reply, and sleeps that did not wait
//! for the message. Most are defects that a trial on servers not used before found (unbound, php-fpm, Apache with CGI and a piped log).

use tailsight_lifetime::input::Names;
use tailsight_lifetime::{Analysis, Leg, Rule, RunContext, SentKind};
use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::tables::TaskRow;

use crate::by_hand::{analysed, decides, event, path, recv, request, switch};

const SERVER: u32 = 100;
const LOGGER: u32 = 200;
const A: u64 = 11211 << 16 | 4000;
const B: u64 = 11211 << 16 | 4001;
const BEHIND: u64 = 5000 << 16 | 53;
const POLL: u64 = 7;
const EPOLL_WAIT: u64 = 232;
const PSELECT6: u64 = 270;
const WRITE: u64 = 1;
const NANOSLEEP: u64 = 230;

fn analyse(cpus: Vec<Vec<Event>>) -> Analysis {
    let row = |tid, comm: &str| TaskRow { tid, tgid: tid, comm: comm.into(), target: true, ..TaskRow::default() };
    let names = Names::new(&[row(SERVER, "server"), row(LOGGER, "logger")]);
    analysed(RunContext { names, ..RunContext::default() }, cpus)
}

/// Fifty bytes from sequence number `seq` arrive on a connection at `ts`.
fn arrives(ts: u64, ports: u64, seq: u64) -> [Event; 2] {
    [
        event(ts, Kind::RxStack, 0, 0, [1, ports | seq << 32, 50 | 2 << 32]),
        event(ts + 1, Kind::Handoff, 0, 0, [1, ports | (seq + 50) << 32, 9]),
    ]
}
/// A receive call that returns all before `upto`.
fn reads(ts: u64, ports: u64, upto: u64, bytes: u64) -> Event {
    event(ts, Kind::Recv, 0, SERVER, [1, ports | upto << 32, bytes | 9 << 32])
}
fn replies(ts: u64, ports: u64, upto: u64) -> Event {
    event(ts, Kind::Send, 0, SERVER, [1, ports | upto << 32, 50 | 9 << 32])
}
fn wakes(ts: u64, tid: u32) -> Event {
    event(ts, Kind::SchedWaking, 0, 0, [u64::from(tid), u64::from(tid), 0])
}
/// (received, replied) of each message, in the order of the receive calls.
fn replied(analysis: &Analysis) -> Vec<(u64, u64)> {
    let mut times: Vec<_> = analysis.lifetimes.messages.iter().map(|m| (m.recv_ns, m.send_ns)).collect();
    times.sort_unstable();
    times
}

/// A client's pause between two commands, of which the first has no reply. `call`: what the server waits in; `between`: what else it
/// did before.
fn pause(call: u64, between: Option<Event>) -> Vec<(u64, u64)> {
    let mut serving = vec![switch(5, 0, SERVER, 0), reads(20, A, 150, 50)];
    serving.extend(between);
    serving.extend([
        switch(60, SERVER, 0, call),
        switch(40_000_020, 0, SERVER, 0),
        reads(40_000_040, A, 200, 50),
        replies(40_000_090, A, 550),
    ]);
    let arriving =
        [arrives(10, A, 100).to_vec(), arrives(40_000_000, A, 150).to_vec(), vec![wakes(40_000_002, SERVER)]];
    replied(&analyse(vec![serving, arriving.concat()]))
}

/// MySQL's protocol ends a prepared statement without a reply. The reply to the client's next command would be that of the one before, and
/// the client's pause between them the server's time.
#[test]
fn a_message_without_a_reply_is_not_answered_by_the_next_ones() {
    assert_eq!(pause(POLL, None), [(20, 0), (40_000_040, 40_000_090)]);
}

/// An event loop waits for the answers of other servers in the same call, and a thread that has asked one waits for that.
#[test]
fn who_may_wait_for_something_else_still_owes_the_reply() {
    let answered = [(20, 40_000_090), (40_000_040, 40_000_090)];
    assert_eq!(pause(EPOLL_WAIT, None), answered);
    let asks = event(40, Kind::Send, flow_flags::CLIENT, SERVER, [1, BEHIND | 550 << 32, 50 | 9 << 32]);
    assert_eq!(pause(POLL, Some(asks)), answered);
    // A loop with poll: it serves another connection, too.
    let other = event(30, Kind::Recv, 0, SERVER, [1, B | 150 << 32, 50 | 9 << 32]);
    assert_eq!(pause(POLL, Some(other)), answered);
}

/// php-fpm reads the last record of a request, eight bytes, after its reply: not one of 1,940 requests had a reply, and the wait for the
/// script was said to be one behind other messages.
#[test]
fn a_request_whose_end_is_read_after_the_reply_is_answered_by_it() {
    let syn = event(8, Kind::RxStack, flow_flags::SYN, 0, [1, A | 99 << 32, 2 << 32]);
    let [a1, a2] = arrives(10, A, 100);
    let serving = vec![
        switch(5, 0, SERVER, 0),
        reads(20, A, 108, 8),
        reads(30, A, 142, 34),
        replies(900, A, 550),
        reads(950, A, 150, 8),
        switch(960, SERVER, 0, EPOLL_WAIT),
    ];
    let analysis = analyse(vec![serving, vec![syn, a1, a2]]);
    assert_eq!(replied(&analysis), [(30, 900)]);
    assert_eq!(analysis.lifetimes.sent.len(), 0, "it is no push");
    assert_eq!(path(&analysis, 30, Leg::Service), [(30, 900, "own".to_owned())]);
}

/// TLS: the end of the handshake and a request come in one segment, and the server sends session tickets between them.
#[test]
fn a_send_before_the_rest_of_a_segment_is_read_is_not_the_reply_if_another_one_follows() {
    let [a1, a2] = arrives(10, A, 100);
    let [b1, b2] = arrives(5_000, A, 150);
    let serving = vec![
        switch(5, 0, SERVER, 0),
        reads(20, A, 120, 20),
        replies(50, A, 550),
        reads(70, A, 150, 30),
        replies(900, A, 600),
        reads(5_020, A, 200, 50),
        replies(5_900, A, 650),
    ];
    assert_eq!(replied(&analyse(vec![serving, vec![a1, a2, b1, b2]])), [(70, 900), (5_020, 5_900)]);
}

/// A resolver has several requests outstanding on one socket. One of them was asked of another server and answered last: paired by order
/// it had the reply of the next one, and its own made the transmit leg of another one 5 ms long.
#[test]
fn a_datagrams_reply_that_others_overtook_is_told_by_the_call_it_waited_for() {
    let udp = |mut e: Event| {
        e.aux |= flow_flags::UDP;
        e
    };
    let arrive = |ts| request(ts, A).map(udp);
    let take = |ts| udp(event(ts, Kind::Recv, 0, SERVER, [1, A, 50 | 9 << 32]));
    // The packet that the send call gives to the driver says to whom it goes.
    let reply = |ts| {
        let sent = [Kind::SendBegin, Kind::TxDriver, Kind::Send];
        let sent = sent.map(|kind| udp(event(ts, kind, 0, SERVER, [1, A, 50 | 9 << 32])));
        [sent[0], Event { ts: ts + 1, ..sent[1] }, Event { ts: ts + 2, ..sent[2] }]
    };
    let behind = |ts, kind, aux| udp(event(ts, kind, aux, SERVER, [1, BEHIND, 50 | 9 << 32]));
    let wake = |ts| switch(ts, 0, SERVER, 0);
    let sleep = |ts| switch(ts, SERVER, 0, EPOLL_WAIT);
    let asks = behind(25, Kind::Send, flow_flags::CLIENT);
    let mut serving = vec![wake(5), take(20), asks, sleep(30), wake(2_005), take(2_010), take(2_012)];
    serving.extend(reply(2_020));
    serving.extend(reply(2_030));
    serving.extend([sleep(2_040), wake(4_005), take(4_010)]);
    serving.extend(reply(4_020));
    serving.extend([sleep(4_030), wake(9_005), behind(9_010, Kind::PeerRecv, flow_flags::CLIENT)]);
    serving.extend(reply(9_020));
    serving.push(sleep(9_030));
    let ready =
        vec![wakes(2_002, SERVER), wakes(4_002, SERVER), behind(9_000, Kind::PeerReady, 0), wakes(9_002, SERVER)];
    let mut arriving = [arrive(10), arrive(1_990), arrive(1_995), arrive(4_000)].concat();
    arriving.extend(ready);
    arriving.sort_by_key(|e| e.ts);
    let analysis = analyse(vec![serving, arriving]);
    assert_eq!(replied(&analysis), [(20, 9_020), (2_010, 2_020), (2_012, 2_030), (4_010, 4_020)]);
    assert!(analysis.lifetimes.messages.iter().all(|m| m.xmit_ns == m.send_ns + 1 && m.flags == 0));
    assert_eq!(analysis.lifetimes.sent.iter().filter(|s| s.kind == SentKind::Push).count(), 0);
    let waited = path(&analysis, 20, Leg::Service);
    assert!(waited.iter().any(|(_, to, owner)| *to == 9_000 && owner.starts_with("blocked/peer:")), "{waited:?}");
}

/// Apache rested in select, to look from time to time whether a CGI program had ended. A request came meanwhile, and the 45 ms until the
/// timeout were called a wake-up that did not come, with a real-time priority as the fix.
#[test]
fn a_sleep_that_a_timer_ends_did_not_wait_for_the_message() {
    let timer = |at| {
        [
            event(at, Kind::VectorEntry, 0, 0, [0; 3]),
            wakes(at + 1, SERVER),
            event(at + 2, Kind::VectorExit, 0, 0, [0; 3]),
        ]
    };
    let [a1, a2] = request(1_000, A);
    let resting = vec![switch(5, 0, SERVER, 0), switch(10, SERVER, 0, PSELECT6)];
    let woken = vec![switch(45_000_010, 0, SERVER, 0), recv(45_000_020, A, SERVER)];
    let with_timer = analyse(vec![[&resting[..], &timer(45_000_000), &woken].concat(), vec![a1, a2]]);
    let waited = path(&with_timer, 45_000_020, Leg::Receive);
    assert!(waited.contains(&(1_001, 45_000_001, "blocked/sleep:pselect6/timer".into())), "{waited:?}");
    // A packet of another connection ends it: what the thread waited for, no event tells.
    let by_packet = vec![event(45_000_000, Kind::SoftirqEntry, 0, 0, [3, 0, 0]), wakes(45_000_001, SERVER)];
    let other = analyse(vec![[resting, by_packet, woken].concat(), vec![a1, a2]]);
    let waited = path(&other, 45_000_020, Leg::Receive);
    assert!(waited.contains(&(1_001, 45_000_001, "blocked/sleep:pselect6".into())), "{waited:?}");
}

/// Apache writes its log to a pipe whose reader, its own child, slept: 24 of 25 ms were `clock_nanosleep`, without a word of the pipe or
/// of who slept.
#[test]
fn who_sleeps_in_a_write_waits_for_the_reader() {
    let [a1, a2] = request(1_000, A);
    let server = vec![
        switch(5, 0, SERVER, 0),
        switch(100, SERVER, 0, WRITE),
        switch(30_000_020, 0, SERVER, 0),
        recv(30_000_040, A, SERVER),
    ];
    let read = event(30_000_010, Kind::SchedWaking, 0, LOGGER, [u64::from(SERVER), u64::from(SERVER), 0]);
    let logger = vec![
        switch(50, 0, LOGGER, 0),
        switch(60, LOGGER, 0, NANOSLEEP),
        a1,
        a2,
        wakes(30_000_000, LOGGER),
        switch(30_000_002, 0, LOGGER, 0),
        read,
    ];
    let analysis = analyse(vec![server, logger]);
    decides(&analysis, Rule::WaitedFor);
    let waited = path(&analysis, 30_000_040, Leg::Receive);
    let asleep = (1_001, 30_000_000, "sibling:logger/sleep:write/sleep:clock_nanosleep".to_owned());
    assert!(waited.contains(&asleep), "{waited:?}");
}
