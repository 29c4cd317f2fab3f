//! Requests as messages, against a connection that knows the truth: random requests, cut into random segments that come
//! out of order and again, read in random pieces, answered one by one, several at once, or in parts.

use proptest::prelude::*;
use tailsight_lifetime::input::Names;
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Leg, RunContext};
use tailsight_protocol::{Protocol, ProtocolChoice, wire};
use tailsight_trace::Event;
use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::TaskRow;

use crate::properties::check_partition;

const TID: u32 = 100;
const PORTS: u64 = 11211 << 16 | 4000;
const NETWORK: usize = 0;
const APPLICATION: usize = 1;

/// A request and what became of it; times are 0 until they happen.
#[derive(Clone, Debug, Default)]
struct Request {
    from: usize,
    to: usize,
    class: String,
    noreply: bool,
    /// Bytes of the reply stream.
    reply: (usize, usize),
    handoff: u64,
    recv: (u64, u64),
    send: u64,
    sent: u64,
    xmit: u64,
}

/// One connection on two cores.
struct Connection {
    now: u64,
    events: Vec<Vec<Event>>,
    keep: u32,
    /// Sequence numbers of the first bytes.
    isn: [u32; 2],
    asked: Vec<u8>,
    answered: Vec<u8>,
    requests: Vec<Request>,
    /// When each byte of the requests first came.
    came: Vec<u64>,
    /// Segments on the wire.
    wire: Vec<(usize, usize)>,
    next: usize,
    copied: usize,
    /// Reply bytes written, and given to the driver.
    written: usize,
    transmitted: usize,
    interrupts: bool,
}

impl Connection {
    fn new(keep: u32, isn: [u32; 2], opened: bool, interrupts: bool) -> Connection {
        let mut c = Connection {
            now: 1000,
            events: vec![Vec::new(); 2],
            keep,
            isn,
            asked: Vec::new(),
            answered: Vec::new(),
            requests: Vec::new(),
            came: Vec::new(),
            wire: Vec::new(),
            next: 0,
            copied: 0,
            written: 0,
            transmitted: 0,
            interrupts,
        };
        c.emit(APPLICATION, Kind::SchedSwitch, 0, [u64::from(TID) << 32, 0, 0]);
        if opened {
            let seq = u64::from(isn[0].wrapping_sub(1)) << 32;
            c.emit(NETWORK, Kind::RxStack, flow_flags::SYN, [7, PORTS | seq, 1 << 32]);
        }
        c
    }

    fn emit(&mut self, core: usize, kind: Kind, aux: u16, [a, b, c]: [u64; 3]) -> u64 {
        self.now += 3;
        let tid = if core == APPLICATION { TID } else { 0 };
        self.events[core].push(Event { ts: self.now, kind: kind as u8, generation: 0, aux, tid, a, b, c });
        self.now
    }

    fn place(&self, direction: usize, at: usize) -> u64 {
        PORTS | u64::from(self.isn[direction].wrapping_add(at as u32)) << 32
    }

    /// A packet and what is kept of it, with interrupts in between.
    fn packet(&mut self, core: usize, kind: Kind, direction: usize, from: usize, to: usize) -> u64 {
        let at = self.emit(core, kind, 0, [7, self.place(direction, from), (to - from) as u64 | 1 << 32]);
        let stream = if direction == 0 { &self.asked } else { &self.answered };
        let kept = stream[from..to.min(from + self.keep as usize)].to_vec();
        let low = self.isn[direction].wrapping_add(from as u32) as u8;
        for (number, bytes) in kept.chunks(24).enumerate() {
            if self.interrupts && (number + from) % 3 == 1 {
                self.emit(core, Kind::VectorEntry, 0, [0, 0, 0]);
                self.emit(core, Kind::SchedWaking, 0, [900, 0, 0]);
                self.emit(core, Kind::VectorExit, 0, [0, 0, 0]);
            }
            let mut piece = [0u8; 24];
            piece[..bytes.len()].copy_from_slice(bytes);
            let word = |i: usize| u64::from_ne_bytes(piece[i..i + 8].try_into().expect("8 bytes"));
            let aux = number as u16 | (direction as u16) << 7 | u16::from(low) << 8;
            self.emit(core, Kind::Payload, aux, [word(0), word(8), word(16)]);
        }
        at
    }

    /// The client asks, in segments of its own choice.
    fn ask(&mut self, arg: usize) {
        let before = self.asked.len();
        for k in 0..1 + arg % 4 {
            let n = arg / 5 + k * 7;
            let key: Vec<u8> = (0..1 + n % 40).map(|i| b'a' + (i % 26) as u8).collect();
            let value: Vec<u8> = (0..1 + n % 300).map(|i| b"get x\r\nVALUE"[i % 12]).collect();
            let (from, reply) = (self.asked.len(), self.answered.len());
            let range = |name: &str, n: usize| match n {
                1 => format!("{name}1"),
                _ => format!("{name}{}..{}", n.next_power_of_two() / 2, n.next_power_of_two()),
            };
            let (class, noreply) = match n % 5 {
                0 => {
                    wire::memcached::set(&mut self.asked, &key, 0, 0, &value);
                    self.answered.extend_from_slice(b"STORED\r\n");
                    (format!("set {}", range("v", value.len())), false)
                }
                1 => {
                    wire::memcached::set_noreply(&mut self.asked, &key, 0, 0, &value);
                    (format!("set {}", range("v", value.len())), true)
                }
                _ => {
                    wire::memcached::get(&mut self.asked, &key);
                    if n % 5 > 2 {
                        let head = format!("VALUE {} 0 {}\r\n", String::from_utf8_lossy(&key), value.len());
                        self.answered.extend_from_slice(head.as_bytes());
                        self.answered.extend_from_slice(&value);
                        self.answered.extend_from_slice(b"\r\n");
                    }
                    self.answered.extend_from_slice(b"END\r\n");
                    (format!("get {}", range("k", key.len())), false)
                }
            };
            let (to, reply) = (self.asked.len(), (reply, self.answered.len()));
            self.requests.push(Request { from, to, class, noreply, reply, ..Request::default() });
        }
        self.came.resize(self.asked.len(), 0);
        let mut from = before;
        while from < self.asked.len() {
            let to = (from + [9, 40, 150, 700][(arg + from) / 3 % 4]).min(self.asked.len());
            self.wire.push((from, to));
            from = to;
        }
    }

    /// A segment comes: the next, one that overtook it, or bytes that came before with other borders.
    fn deliver(&mut self, arg: usize) {
        let (from, to) = if arg % 7 == 6 && self.next > 0 {
            let from = arg / 7 % self.next;
            (from, (from + 1 + arg % 90).min(self.next))
        } else if self.wire.is_empty() {
            return;
        } else {
            let at = if arg % 5 == 4 { 1.min(self.wire.len() - 1) } else { 0 };
            self.wire.remove(at)
        };
        let at = self.packet(NETWORK, Kind::RxStack, 0, from, to);
        self.came[from..to].iter_mut().filter(|c| **c == 0).for_each(|c| *c = at);
        let before = self.next;
        while self.came.get(self.next).is_some_and(|c| *c != 0) {
            self.next += 1;
        }
        if self.next > before {
            let at = self.emit(NETWORK, Kind::Handoff, 0, [7, self.place(0, self.next), 5]);
            let next = self.next;
            self.requests.iter_mut().filter(|r| r.to <= next && r.handoff == 0).for_each(|r| r.handoff = at);
        }
    }

    /// The server reads some of what there is.
    fn recv(&mut self, arg: usize) {
        let there = self.next - self.copied;
        if there == 0 {
            return;
        }
        let bytes = if arg.is_multiple_of(3) { 1 + arg % there } else { there };
        let entered = self.emit(APPLICATION, Kind::SyscallEnter, 0, [45, 0, 0]);
        self.copied += bytes;
        let at = self.emit(APPLICATION, Kind::Recv, 0, [7, self.place(0, self.copied), bytes as u64 | 5 << 32]);
        self.emit(APPLICATION, Kind::SyscallExit, 0, [0, 0, 0]);
        let copied = self.copied;
        self.requests.iter_mut().filter(|r| r.to <= copied && r.recv.1 == 0).for_each(|r| r.recv = (entered, at));
    }

    /// The server sends replies, or a part of one, to the driver at once or not.
    fn send(&mut self, arg: usize) {
        let due = self.requests.iter().take_while(|r| r.recv.1 != 0).map(|r| r.reply.1).max().unwrap_or(0);
        if due <= self.written {
            return;
        }
        let ends = self.requests.iter().map(|r| r.reply.1).filter(|&e| e > self.written);
        let to = match arg % 4 {
            0 => due,
            1 => self.written + 1 + arg / 4 % (due - self.written),
            _ => ends.min().unwrap_or(due),
        };
        let from = self.written;
        let entered = self.emit(APPLICATION, Kind::SyscallEnter, 0, [46, 0, 0]);
        for r in self.requests.iter_mut().filter(|r| !r.noreply && r.reply.0 >= from && r.reply.0 < to) {
            r.send = entered;
        }
        self.written = to;
        if !(arg / 16).is_multiple_of(3) {
            self.transmit(APPLICATION);
        }
        let sent = self.emit(APPLICATION, Kind::Send, 0, [7, self.place(1, to), (to - from) as u64 | 5 << 32]);
        self.emit(APPLICATION, Kind::SyscallExit, 0, [0, 0, 0]);
        for r in self.requests.iter_mut().filter(|r| !r.noreply && r.reply.1 > from && r.reply.1 <= to) {
            r.sent = sent;
        }
    }

    /// What was written goes to the driver; or a byte of it once more.
    fn transmit(&mut self, core: usize) {
        if self.transmitted == self.written {
            if self.written > 0 {
                self.packet(core, Kind::TxDriver, 1, self.written - 1, self.written);
            }
            return;
        }
        while self.transmitted < self.written {
            let (from, to) = (self.transmitted, self.written.min(self.transmitted + 600));
            let at = self.packet(core, Kind::TxDriver, 1, from, to);
            self.transmitted = to;
            let done = |r: &&mut Request| !r.noreply && r.xmit == 0 && r.send != 0 && r.reply.1 <= to;
            self.requests.iter_mut().filter(done).for_each(|r| r.xmit = at);
        }
    }

    fn step(&mut self, choice: u8, arg: u16) {
        let arg = usize::from(arg);
        match choice % 8 {
            0 => self.ask(arg),
            1 | 2 => self.deliver(arg),
            3 | 4 => self.recv(arg),
            5 | 6 => self.send(arg),
            _ => self.transmit(NETWORK),
        }
    }

    fn analysis(&self, protocol: bool) -> Analysis {
        self.read_as(protocol.then_some(Protocol::Memcached.into()))
    }

    fn read_as(&self, choice: Option<ProtocolChoice>) -> Analysis {
        let comm = "server".to_owned();
        let task = TaskRow { tid: TID, tgid: TID, comm, target: true, kernel: false, ..TaskRow::default() };
        let facts = RunContext {
            names: Names::new(&[task]),
            cpus: 2,
            protocol: choice.map(|choice| (choice, self.keep)),
            ..RunContext::default()
        };
        let cpus: Vec<CpuEvents> =
            (0..).zip(&self.events).map(|(cpu, events)| CpuEvents { cpu, events: events.clone() }).collect();
        Analysis::build(&facts, &cpus)
    }
}

fn steps() -> impl Strategy<Value = Vec<(u8, u16)>> {
    prop::collection::vec((any::<u8>(), any::<u16>()), 1..250)
}

fn connection(keep: u32, isn: [u32; 2], opened: bool, steps: &[(u8, u16)]) -> Connection {
    let mut c = Connection::new(keep, isn, opened, steps.len().is_multiple_of(2));
    steps.iter().for_each(|&(choice, arg)| c.step(choice, arg));
    c
}

fn isn() -> impl Strategy<Value = [u32; 2]> {
    let initial_number = || prop_oneof![Just(u32::MAX - 300), Just(0x7fff_ff80), any::<u32>()];
    [initial_number(), initial_number()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// All bytes kept: each request is one message, with its own class, stages and reply.
    #[test]
    fn each_request_is_a_message_with_its_own_reply(steps in steps(), isn in isn(), opened in any::<bool>()) {
        let c = connection(24 * 64, isn, opened, &steps);
        let analysis = c.analysis(true);
        check_partition(&analysis)?;
        let lifetimes = &analysis.lifetimes;
        let mut got = lifetimes.messages.clone();
        got.sort_by_key(|m| (m.recv_ns, m.id));
        let mut truth: Vec<&Request> = c.requests.iter().filter(|r| r.recv.1 != 0).collect();
        prop_assert_eq!(got.len(), truth.len(), "{:?}", lifetimes.framing);
        // Messages that arrived at different times may be in one receive call in another order.
        truth.sort_by_key(|r| (r.recv.1, c.came[r.from]));
        let framing = lifetimes.framing.as_ref().expect("a protocol");
        prop_assert_eq!((framing.framed, framing.lost), (truth.len() as u64, 0), "{:?}", framing);
        for (m, r) in got.iter().zip(&truth) {
            prop_assert_eq!(m.bytes as usize, r.to - r.from, "{:?} is {:?}", m, r);
            prop_assert_eq!(&lifetimes.class(m).expect("a class").name, &r.class);
            prop_assert_eq!((m.driver_ns, m.handoff_ns), (c.came[r.from], r.handoff), "{:?} is {:?}", m, r);
            prop_assert_eq!((m.recv_enter_ns, m.recv_ns), r.recv);
            prop_assert_eq!(m.flags & flags::NO_REPLY != 0, r.noreply);
            prop_assert_eq!(m.flags & flags::UNFRAMED, 0);
            // Framed when the driver has it, and answered when the send call has ended: as of then its times are known.
            // In the middle of a connection, a first packet that is not a reply's beginning tells nothing.
            if r.xmit != 0 && r.sent != 0 && (opened || framing.why.is_empty()) {
                prop_assert_eq!((m.send_ns, m.xmit_ns), (r.send, r.xmit), "{:?} is {:?}", m, r);
                prop_assert_eq!(m.reply_bytes as usize, r.reply.1 - r.reply.0);
                let expected: &[&str] = if opened { &["order", "id"] } else { &["order", "id", "assumed"] };
                prop_assert!(m.pairing().is_some_and(|p| expected.contains(&p)), "{:?}", m);
            }
            if r.noreply {
                prop_assert_eq!((m.send_ns, m.latency(Leg::Service)), (0, None));
            }
        }
        let batches = truth.chunk_by(|a, b| a.recv == b.recv).flat_map(|b| vec![b.len(); b.len()]);
        prop_assert!(got.iter().zip(batches).all(|(m, n)| usize::from(m.batch) == n));
    }

    /// The first bytes tell the protocol: once they have, everything is as if it had been named.
    #[test]
    fn what_tells_its_protocol_is_as_if_it_had_been_named(steps in steps(), isn in isn(), opened in any::<bool>(), keep in 1u32..64) {
        let c = connection(keep * 24, isn, opened, &steps);
        let (auto, named) = (c.read_as(Some(ProtocolChoice::Auto)), c.analysis(true));
        check_partition(&auto)?;
        let bytes: usize = auto.lifetimes.messages.iter().map(|m| m.bytes as usize).sum();
        prop_assert!(bytes <= c.copied, "{} of {}", bytes, c.copied);
        let framing = auto.lifetimes.framing.as_ref().expect("a protocol");
        prop_assert_eq!(framing.protocol.as_str(), "auto");
        let told = framing.connections.get("memcached").copied().unwrap_or(0);
        prop_assert_eq!(framing.connections.values().sum::<u64>(), told, "no other one: {:?}", framing);
        // Half a message is none, but bytes were read all the same.
        let is_read = c.requests.iter().any(|r| r.recv.1 != 0) || !auto.lifetimes.messages.is_empty();
        prop_assert!(!is_read || told + framing.untold_connections == 1, "{:?}", framing);
        // Where the very first segment told it; a first segment may be a byte.
        if told == 1 && framing.lost == 0 && named.lifetimes.framing.as_ref().is_some_and(|named| named.lost == 0) {
            let read = |analysis: &Analysis| {
                let lifetimes = &analysis.lifetimes;
                lifetimes.messages.iter().map(|m| (*m, lifetimes.class(m).cloned())).collect::<Vec<_>>()
            };
            prop_assert_eq!(read(&auto), read(&named));
        }
    }

    /// Little or nothing kept: every byte received is in one message, and the parts add up.
    #[test]
    fn what_is_not_framed_is_segments(steps in steps(), isn in isn(), keep in 0u32..4, opened in any::<bool>()) {
        let c = connection(keep * 24, isn, opened, &steps);
        let analysis = c.analysis(true);
        check_partition(&analysis)?;
        let bytes: usize = analysis.lifetimes.messages.iter().map(|m| m.bytes as usize).sum();
        prop_assert!(bytes <= c.copied, "{} of {}", bytes, c.copied);
        // What is open at the end is a segment or a request that was not wholly received.
        let open = c.requests.iter().find(|r| r.to > c.copied).map_or(0, |r| c.copied.saturating_sub(r.from));
        prop_assert!(bytes + open.max(700) >= c.copied, "{} of {}", bytes, c.copied);
        if keep == 0 {
            // As without a protocol, but for what that says of itself. Where a reply came before the end of a segment was read, only
            // without a protocol it is taken for that segment's, and those that follow are paired from there on.
            let plain = c.analysis(false);
            let pairs = || analysis.lifetimes.messages.iter().zip(&plain.lifetimes.messages);
            let early = pairs().any(|(with, without)| without.recv_ns < with.recv_ns);
            let like = |m: &tailsight_lifetime::Message| {
                let m = tailsight_lifetime::Message { class: 0, flags: m.flags & !flags::UNFRAMED, ..*m };
                let arrival = (m.flow, m.bytes, m.driver_ns, m.stack_ns, m.handoff_ns);
                (arrival, (!early).then_some(m))
            };
            let messages_of = |analysis: &tailsight_lifetime::Analysis| analysis.lifetimes.messages.iter().map(like).collect::<Vec<_>>();
            prop_assert_eq!(messages_of(&analysis), messages_of(&plain));
            prop_assert!(plain.lifetimes.framing.is_none() && plain.lifetimes.classes.is_empty());
        }
    }

    /// Events that went missing: nothing panics, nothing is counted twice, the parts add up.
    #[test]
    fn losses_do_no_harm(
        steps in steps(), isn in isn(), keep in 0u32..30, losses in prop::collection::vec((any::<u16>(), 1usize..20), 1..6),
    ) {
        let mut c = connection(keep * 24, isn, true, &steps);
        for (at, n) in losses {
            let list = &mut c.events[usize::from(at) % 2];
            let from = usize::from(at) % (list.len() + 1);
            list.drain(from..list.len().min(from + n));
        }
        let analysis = c.analysis(true);
        check_partition(&analysis)?;
        let bytes: usize = analysis.lifetimes.messages.iter().map(|m| m.bytes as usize).sum();
        prop_assert!(bytes <= c.asked.len());
    }
}

/// Requests of one receive call wait for those before them, until these are answered; in one send call it cannot be told.
#[test]
fn pipelined_requests_wait_for_their_turn() {
    let mut c = Connection::new(1536, [100, 200], true, false);
    c.ask(67);
    assert_eq!(c.requests.iter().map(|r| r.noreply).collect::<Vec<_>>(), [false; 4]);
    while !c.wire.is_empty() {
        c.deliver(0);
    }
    c.recv(1);
    for _ in 0..4 {
        c.send(18);
    }
    let ahead = |analysis: &Analysis, id: u32| {
        let parts = analysis.lifetimes.part_slice(id, Leg::Service);
        let ahead = |p: &&tailsight_lifetime::Part| {
            analysis.lifetimes.owners[p.owner as usize].context == tailsight_lifetime::Context::Ahead
        };
        parts.iter().filter(ahead).map(|p| p.ns).sum::<u64>()
    };
    let analysis = c.analysis(true);
    let messages = &analysis.lifetimes.messages;
    assert_eq!(messages.len(), 4);
    assert_eq!(ahead(&analysis, 0), 0);
    for (before, m) in c.requests.iter().zip(&messages[1..]) {
        assert_eq!((ahead(&analysis, m.id), m.flags & flags::SHARED_REPLY), (before.sent - m.recv_ns, 0));
    }

    // The same, answered with one send call.
    let mut c = Connection::new(1536, [100, 200], true, false);
    c.ask(67);
    while !c.wire.is_empty() {
        c.deliver(0);
    }
    c.recv(1);
    c.send(16);
    let analysis = c.analysis(true);
    let messages = &analysis.lifetimes.messages;
    assert_eq!(
        messages.iter().map(|m| m.flags & flags::SHARED_REPLY != 0).collect::<Vec<_>>(),
        [false, true, true, true]
    );
    assert!(messages.iter().all(|m| ahead(&analysis, m.id) == 0 && m.send_ns == messages[0].send_ns));
}
