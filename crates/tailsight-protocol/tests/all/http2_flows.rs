//! Recorded connections of HTTP/2: streams that interleave, are answered in any order, are cut, missed and joined in their middle.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tailsight_protocol::frame::{Direction, Frame, Pairing, ReplyFrame, RequestFrame, Why};
use tailsight_protocol::reply::{ErrorKind, Status};
use tailsight_protocol::{Protocol, ProtocolChoice};

use super::frames::{Recording, tiles};
use super::http2::{PREFACE, frame};
use super::samples::cut;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// A stream of a conversation.
#[derive(Debug, Clone)]
struct Exchange {
    method: &'static str,
    path: &'static str,
    /// Bodies in parts; of a request none: HEADERS ends it.
    asks: Vec<usize>,
    answers: Vec<usize>,
    status: &'static str,
    trailers: bool,
    /// How its frames look: padding, priority, CONTINUATION.
    form: u8,
}

/// What is known of a conversation beforehand.
#[derive(Debug, Default)]
struct Truth {
    /// By the place where it ends: stream, class, bytes of its body, its first byte.
    requests: BTreeMap<u64, (u32, String, u64, u64)>,
    /// By the place where it ends: stream, status, bytes of its body, its first byte.
    replies: BTreeMap<u64, (u32, Status, u64, u64)>,
}

/// One direction as it is written.
struct Writer {
    bytes: Vec<u8>,
    /// Places where frames begin, and end.
    edges: Vec<usize>,
    encoder: fluke_hpack::Encoder<'static>,
    begun: BTreeMap<u32, u64>,
}

impl Writer {
    fn new() -> Self {
        let encoder = fluke_hpack::Encoder::new();
        Self { bytes: Vec::new(), edges: vec![0], encoder, begun: BTreeMap::new() }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        if stream != 0 {
            self.begun.entry(stream).or_insert(self.bytes.len() as u64);
        }
        self.bytes.extend(frame(kind, flags, stream, payload));
        self.edges.push(self.bytes.len());
    }

    fn headers(&mut self, stream: u32, fields: &[(&str, &str)], flags: u8, form: u8) {
        let block = self.encoder.encode(fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        let padding = if form & 1 != 0 { form >> 4 } else { 0 };
        let mut first = Vec::new();
        let mut flags = flags;
        if form & 1 != 0 {
            flags |= PADDED;
            first.push(padding);
        }
        if form & 2 != 0 {
            flags |= PRIORITY;
            first.extend([0; 5]);
        }
        let split = if form & 4 != 0 { block.len() / 2 } else { block.len() };
        first.extend(&block[..split]);
        first.extend(vec![0; usize::from(padding)]);
        flags |= if split == block.len() { END_HEADERS } else { 0 };
        self.frame(HEADERS, flags, stream, &first);
        if split < block.len() {
            self.frame(CONTINUATION, 0, stream, &block[split..split]);
            self.frame(CONTINUATION, END_HEADERS, stream, &block[split..]);
        }
    }

    fn data(&mut self, stream: u32, bytes: usize, ends: bool, form: u8) {
        let padding = if form & 1 != 0 { form >> 4 } else { 0 };
        let mut payload = if form & 1 != 0 { vec![padding] } else { Vec::new() };
        payload.extend(vec![b'x'; bytes + usize::from(padding)]);
        let flags = if form & 1 != 0 { PADDED } else { 0 } | if ends { END_STREAM } else { 0 };
        self.frame(DATA, flags, stream, &payload);
    }

    fn control(&mut self, which: u8) {
        match which % 4 {
            0 => self.frame(PING, 0, 0, b"8 bytes."),
            1 => self.frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
            2 => self.frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
            _ => self.frame(SETTINGS, 1, 0, &[]),
        }
    }
}

/// What is left to be written of a message: HEADERS, then parts, then perhaps trailers.
fn parts(of: &[usize], trailers: bool) -> usize {
    1 + of.len() + usize::from(trailers)
}

/// A conversation, its streams interleaved as `order` says. Gives both directions and the truth.
fn conversation(exchanges: &[Exchange], order: &[(usize, bool, u8)]) -> (Writer, Writer, Truth) {
    let (mut client, mut server, mut truth) = (Writer::new(), Writer::new(), Truth::default());
    client.bytes.extend(PREFACE);
    client.edges.push(PREFACE.len());
    client.control(2);
    server.control(2);
    // Streams are opened in the order of their ids, else any may go on.
    let (mut opened, mut asked, mut answered) = (0, vec![0; exchanges.len()], vec![0; exchanges.len()]);
    let mut step = |which: usize, replies: bool, control: u8| {
        let side = if replies { &mut server } else { &mut client };
        if control.is_multiple_of(5) {
            side.control(control);
        }
        let (ready, done): (Vec<usize>, &mut Vec<usize>) = if replies {
            let full = |at: &usize| answered[*at] < parts(&exchanges[*at].answers, exchanges[*at].trailers);
            (
                (0..opened).filter(|at| asked[*at] == parts(&exchanges[*at].asks, false)).filter(full).collect(),
                &mut answered,
            )
        } else {
            let mut ready: Vec<usize> =
                (0..opened).filter(|at| asked[*at] < parts(&exchanges[*at].asks, false)).collect();
            ready.extend((opened < exchanges.len()).then_some(opened));
            (ready, &mut asked)
        };
        let Some(&at) = ready.get(which % ready.len().max(1)) else { return false };
        let exchange = &exchanges[at];
        let (stream, form) = (2 * at as u32 + 1, exchange.form);
        let part = done[at];
        done[at] += 1;
        let (bodies, trailers) = if replies { (&exchange.answers, exchange.trailers) } else { (&exchange.asks, false) };
        let ends = done[at] == parts(bodies, trailers);
        match part {
            0 if replies => {
                let flags = if ends { END_STREAM } else { 0 };
                side.headers(
                    stream,
                    &[(":status", exchange.status), ("server", "x"), ("content-type", "text/plain")],
                    flags,
                    form,
                );
            }
            0 => {
                opened += 1;
                let fields = [
                    (":method", exchange.method),
                    (":scheme", "http"),
                    (":path", exchange.path),
                    (":authority", "host"),
                    ("user-agent", "t"),
                ];
                side.headers(stream, &fields, if ends { END_STREAM } else { 0 }, form);
            }
            part if part <= bodies.len() => side.data(stream, bodies[part - 1], ends, form),
            _ => side.headers(stream, &[("grpc-status", "0")], END_STREAM, 0),
        }
        if ends {
            let (to, first) = (side.bytes.len() as u64, side.begun[&stream]);
            let bytes: usize = bodies.iter().sum();
            if replies {
                let status = if exchange.status == "404" { Status::Miss } else { Status::Ok };
                truth.replies.insert(to, (stream, status, bytes as u64, first));
            } else {
                let class = format!("{} {}", exchange.method, exchange.path);
                truth.requests.insert(to, (stream, class, bytes as u64, first));
            }
        }
        true
    };
    for &(which, replies, control) in order {
        step(which, replies, control);
    }
    // The rest: all that is asked, then all that is answered.
    for replies in [false, true] {
        while step(0, replies, 1) {}
    }
    (client, server, truth)
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let bodies = || proptest::collection::vec(prop_oneof![0_usize..50, 0_usize..6_000], 0..4);
    (0_usize..3, 0_usize..4, bodies(), bodies(), 0_usize..2, any::<bool>(), any::<u8>()).prop_map(
        |(method, path, asks, answers, status, trailers, form)| Exchange {
            method: ["GET", "POST", "PATCH"][method],
            path: ["/", "/index.html", "/pkg.Service/Method", "/words/of/a/route"][path],
            asks,
            answers,
            status: ["200", "404"][status],
            trailers,
            form,
        },
    )
}

fn conversations() -> impl Strategy<Value = (Vec<Exchange>, Vec<(usize, bool, u8)>)> {
    let order = proptest::collection::vec((0_usize..50, any::<bool>(), any::<u8>()), 0..120);
    (proptest::collection::vec(exchange(), 1..25), order)
}

fn name(request: &RequestFrame) -> String {
    format!("{} {}", request.class.command, request.class.path.as_str())
}

/// That what was framed is true: requests by their ends, classes where they are known, pairs by streams. Gives how many there are of each.
fn holds(recording: &Recording, truth: &Truth) -> Result<(usize, usize), TestCaseError> {
    let mut streams = BTreeMap::new();
    let mut paired = 0;
    for frame in &recording.frames {
        if let Frame::Request(request) = frame {
            let said = truth.requests.get(&request.to);
            prop_assert!(said.is_some(), "no request ends at {}", request.to);
            let (stream, class, ..) = said.unwrap();
            let name = name(request);
            let (command, path) = class.split_once(' ').unwrap();
            let is_true = ["(unknown)", command].contains(&request.class.command.as_str())
                && ["(unknown path)", path].contains(&request.class.path.as_str());
            prop_assert!(is_true, "{name} is {class}");
            streams.insert(request.seq, *stream);
        }
    }
    for frame in &recording.frames {
        if let Frame::Reply(reply) = frame {
            let said = truth.replies.get(&reply.to);
            prop_assert!(said.is_some(), "no reply ends at {}", reply.to);
            if let Some(seq) = reply.request {
                prop_assert_eq!(reply.pairing, Pairing::Id);
                prop_assert_eq!(streams[&seq], said.unwrap().0);
                paired += 1;
            }
        }
    }
    Ok((streams.len(), paired))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// All captured: every stream is one request and its own reply, whatever the cuts, and all bytes are accounted for.
    #[test]
    fn every_stream_is_a_request_and_its_reply((exchanges, order) in conversations(), cuts in proptest::collection::vec(any::<usize>(), 0..40), start in 0_u64..1 << 40) {
        let (client, server, truth) = conversation(&exchanges, &order);
        let run = |cuts: &[usize], start| {
            let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, start);
            cut(&client.bytes, cuts).iter().for_each(|part| recording.request(part));
            cut(&server.bytes, cuts).iter().for_each(|part| recording.reply(part));
            recording.finish();
            recording
        };
        let recording = run(&cuts, start);
        prop_assert!(tiles(&recording.frames, Direction::Requests, start, start + client.bytes.len() as u64), "{:?}", recording.frames);
        prop_assert!(tiles(&recording.frames, Direction::Replies, start, start + server.bytes.len() as u64), "{:?}", recording.frames);
        let recording = run(&cuts, 0);
        prop_assert_eq!(&recording.frames, &run(&[], 0).frames);
        prop_assert_eq!(holds(&recording, &truth)?, (exchanges.len(), exchanges.len()));
        for frame in &recording.frames {
            match frame {
                Frame::Request(RequestFrame { to, first, class, inferred: false, .. }) => {
                    let (_, name, bytes, begun) = &truth.requests[to];
                    prop_assert_eq!((format!("{} {}", class.command, class.path.as_str()), class.value_bytes, *first), (name.clone(), *bytes, *begun));
                }
                Frame::Reply(ReplyFrame { to, first, status, value_bytes, inferred: false, .. }) => {
                    let (_, true_status, bytes, begun) = truth.replies[to];
                    prop_assert_eq!((*status, *value_bytes, *first), (true_status, bytes, begun));
                }
                Frame::Control { .. } => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    /// A frame a segment, of which enough is kept for a head and its fields: bodies need not be seen.
    #[test]
    fn lengths_reach_over_bodies_that_were_not_kept((exchanges, order) in conversations()) {
        let (client, server, truth) = conversation(&exchanges, &order);
        let mut recording = Recording::new(Protocol::Http2, true, 160, 0);
        client.edges.windows(2).for_each(|edge| recording.request(&client.bytes[edge[0]..edge[1]]));
        server.edges.windows(2).for_each(|edge| recording.reply(&server.bytes[edge[0]..edge[1]]));
        recording.finish();
        prop_assert_eq!(recording.lost(), []);
        prop_assert_eq!(holds(&recording, &truth)?, (exchanges.len(), exchanges.len()));
    }

    /// The preface tells, and in the middle of a connection any frame of the client's.
    #[test]
    fn a_flow_that_tells_http2_is_framed_as_if_it_had_been_named((exchanges, order) in conversations(), skipped in 0_usize..60) {
        let (client, server, _) = conversation(&exchanges, &order);
        let skipped = skipped.min(client.edges.len() - 2);
        let framed = |choice: ProtocolChoice| {
            let mut recording = Recording::new(choice, skipped == 0, usize::MAX, 0);
            client.edges[skipped..].windows(2).for_each(|edge| recording.request(&client.bytes[edge[0]..edge[1]]));
            server.edges.windows(2).for_each(|edge| recording.reply(&server.bytes[edge[0]..edge[1]]));
            recording.finish();
            recording
        };
        let (auto, named) = (framed(ProtocolChoice::Auto), framed(Protocol::Http2.into()));
        // A continuation does not tell: the segment behind it does.
        if auto.lost().is_empty() {
            prop_assert_eq!(auto.flow.protocol(), Some(Protocol::Http2));
            prop_assert_eq!(auto.frames, named.frames);
        } else {
            prop_assert!(skipped > 0);
        }
    }

    /// Joined at any frame, with segments that are cut and missing: what is said is true, and the ranges tile.
    #[test]
    fn what_is_left_of_a_damaged_recording_is_true(
        (exchanges, order) in conversations(), keep in 0_usize..300, skipped in (0_usize..60, 0_usize..60),
        drops in proptest::collection::vec(0_u8..8, 400), from_start: bool,
        choice in proptest::sample::select(&[ProtocolChoice::Auto, ProtocolChoice::Named(Protocol::Http2)][..]),
    ) {
        let (client, server, truth) = conversation(&exchanges, &order);
        let mut recording = Recording::new(choice, from_start, keep, 0);
        let mut drops = drops.into_iter().cycle();
        let mut ranges = [None, None];
        for (index, (side, skipped)) in [(&client, skipped.0), (&server, skipped.1)].into_iter().enumerate() {
            let skipped = if from_start { 0 } else { skipped.min(side.edges.len() - 2) };
            recording.gap(index, side.edges[skipped]);
            for edge in side.edges[skipped..].windows(2) {
                let part = &side.bytes[edge[0]..edge[1]];
                if drops.next() == Some(0) && (ranges[index].is_some() || !from_start) {
                    recording.gap(index, part.len());
                    continue;
                }
                let from = ranges[index].map_or(edge[0], |(from, _)| from);
                ranges[index] = Some((from, edge[1]));
                if index == 0 { recording.request(part) } else { recording.reply(part) }
            }
        }
        recording.finish();
        holds(&recording, &truth)?;
        for (range, direction) in ranges.into_iter().zip([Direction::Requests, Direction::Replies]) {
            if let Some((from, to)) = range {
                prop_assert!(tiles(&recording.frames, direction, from as u64, to as u64), "{:?}", recording.frames);
            }
        }
    }
}

/// A hundred streams, answered last first, and joined in the middle: no order is assumed.
#[test]
fn replies_overtake_each_other() {
    let get = |path| Exchange {
        method: "GET",
        path,
        asks: vec![],
        answers: vec![10],
        status: "200",
        trailers: false,
        form: 0,
    };
    let exchanges: Vec<Exchange> = (0..100).map(|at| get(["/", "/index.html"][at % 2])).collect();
    let asked: Vec<_> = (0..100).map(|_| (usize::MAX, false, 1)).collect();
    let answered = (0..100).rev().flat_map(|at| [(at, true, 1), (at, true, 1)]);
    let order: Vec<_> = asked.into_iter().chain(answered).collect();
    let (client, server, truth) = conversation(&exchanges, &order);
    let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, 0);
    recording.request(&client.bytes);
    recording.reply(&server.bytes);
    recording.finish();
    assert_eq!(holds(&recording, &truth).unwrap(), (100, 100));
    let seqs: Vec<_> = recording.pairs().iter().map(|(request, _)| request.unwrap()).collect();
    assert!(seqs.is_sorted_by(|a, b| a > b), "{seqs:?}");
}

/// Settings, pings and windows are no messages, however the connection ends.
#[test]
fn frames_of_the_connection_are_no_messages() {
    let mut client = Writer::new();
    client.bytes.extend(PREFACE);
    (0..8).for_each(|which| client.control(which));
    client.frame(2, 0, 3, &[0; 5]);
    client.frame(GOAWAY, 0, 0, &[0; 8]);
    client.frame(77, 3, 5, b"of no kind");
    let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, 0);
    recording.request(&client.bytes);
    recording.reply(&client.bytes[PREFACE.len()..]);
    recording.finish();
    assert!(recording.frames.iter().all(|frame| matches!(frame, Frame::Control { .. })), "{:?}", recording.frames);
    assert!(tiles(&recording.frames, Direction::Requests, 0, client.bytes.len() as u64));
}

/// A request on this stream: HEADERS that end it.
fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &[0x82, 0x84, 0x86])
}

#[test]
fn a_reset_answers_once() {
    let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, 0);
    recording.request(&[PREFACE, &get(1), &get(3), &get(5)].concat());
    let reset = |stream| frame(RST_STREAM, 0, stream, &[0, 0, 0, 7]);
    // 1: refused. 3: answered, then reset without an error. 5: reset in its middle.
    let answered = frame(HEADERS, END_STREAM | END_HEADERS, 3, &[0x88]);
    let begun = frame(HEADERS, END_HEADERS, 5, &[0x88]);
    recording.reply(&[reset(1), answered, reset(3), begun, reset(5)].concat());
    recording.finish();
    let said: Vec<_> = recording
        .frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Reply(reply) => Some((reply.request, reply.status)),
            Frame::Unsolicited { .. } => Some((None, Status::Ok)),
            _ => None,
        })
        .collect();
    let error = Status::Error(ErrorKind::Server);
    assert_eq!(said, [(Some(0), error), (Some(1), Status::Ok), (None, Status::Ok), (Some(2), error)]);
}

/// A client that gives up a request that it has not ended asks for nothing, and pushes answer nothing; both leave the tables right.
#[test]
fn what_was_given_up_and_what_was_pushed_are_no_requests() {
    let mut client = fluke_hpack::Encoder::new();
    let mut block = |path: &str| client.encode([(&b":method"[..], &b"POST"[..]), (b":path", path.as_bytes())]);
    let (given_up, kept) = (block("/given/up"), block("/kept"));
    let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, 0);
    recording.request(
        &[
            frame(HEADERS, END_HEADERS, 1, &given_up),
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, &kept),
        ]
        .concat(),
    );
    let mut server = fluke_hpack::Encoder::new();
    let promise = server.encode([(&b":path"[..], &b"/pushed"[..])]);
    let pushed = server.encode([(&b":status"[..], &b"404"[..]), (b"x", b"y")]);
    let reply = server.encode([(&b":status"[..], &b"503"[..]), (b"x", b"y")]);
    recording.reply(
        &[
            frame(PUSH_PROMISE, END_HEADERS, 3, &[&[0, 0, 0, 2], &promise[..]].concat()),
            frame(HEADERS, END_HEADERS | END_STREAM, 2, &pushed),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, &reply),
        ]
        .concat(),
    );
    recording.finish();
    let names: Vec<String> = recording.requests().iter().map(name).collect();
    assert_eq!(names, ["POST /kept"]);
    assert_eq!(recording.pairs(), [(Some(0), Pairing::Id)]);
    assert!(recording.frames.iter().any(|frame| matches!(frame, Frame::Unsolicited { .. })));
    let busy = |frame: &Frame| matches!(frame, Frame::Reply(reply) if reply.status == Status::Error(ErrorKind::Busy));
    assert!(recording.frames.iter().any(busy));
}

/// Header bytes beyond what was kept: the request is framed by its length, its class is not known, nor are those that refer to it; a block
/// of static indices is.
#[test]
fn fields_that_were_not_kept_make_the_class_unknown() {
    // GET, or POST; then a path that is added to the table, or an index into it; then a cookie that is not added.
    let added = |path: &str| [&[0x44, path.len() as u8], path.as_bytes()].concat();
    let cookie = |bytes: u8| [&[0x0f, 0x11, bytes][..], &vec![b'c'; usize::from(bytes)]].concat();
    let (get, post, newest, root) = ([0x82], [0x83], [0xbe], [0x84]);
    let mut recording = Recording::new(Protocol::Http2, true, 60, 0);
    recording.request(PREFACE);
    for (at, block) in [
        [&get[..], &added("/first"), &cookie(1)].concat(),
        [&get[..], &newest, &cookie(100)].concat(),
        [&get[..], &newest].concat(),
        [&post[..], &root].concat(),
        [&get[..], &added("/later")].concat(),
        [&get[..], &newest, &[0xbf]].concat(),
    ]
    .iter()
    .enumerate()
    {
        recording.request(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * at as u32 + 1, block));
    }
    recording.finish();
    let names: Vec<String> = recording.requests().iter().map(name).collect();
    assert_eq!(names, ["GET /first", "GET /first", "GET (unknown path)", "POST /", "GET /later", "GET /later"]);
    assert_eq!(recording.lost(), []);
}

/// Not the protocol: another's request line, lengths that no kind has, streams that a client cannot open, CONTINUATION of nothing.
#[test]
fn what_is_not_http2_is_lost() {
    for (what, bytes) in [
        ("HTTP/1", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("half of the preface", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec()),
        ("a ping of 7 bytes", frame(PING, 0, 0, b"7 bytes")),
        ("a large ping", frame(PING, 0, 0, &[0; 1_000])),
        ("a stream of the server", get(2)),
        ("HEADERS of the connection", get(0)),
        ("settings of a stream", frame(SETTINGS, 0, 1, b"")),
        ("a push", frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])),
        ("CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1, &[0x82])),
        ("another frame in a block", [frame(HEADERS, 0, 1, &[0x82]), frame(PING, 0, 0, b"8 bytes.")].concat()),
        ("padding beyond its frame", frame(HEADERS, END_HEADERS | PADDED, 1, &[9, 0x82])),
    ] {
        let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, 0);
        recording.request(&bytes);
        // It is found again where frames follow each other.
        recording.request(&[get(101), get(103)].concat());
        recording.finish();
        let lost: Vec<_> = recording.lost().iter().map(|lost| lost.3).collect();
        assert_eq!(lost, [Why::Garbage], "{what}");
        assert_eq!(recording.requests().len(), 2, "{what}");
    }
}

/// A DATA frame that claims sixteen megabytes hides what follows, and costs nothing.
#[test]
fn a_lying_length_hides_only_its_bytes() {
    let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, 0);
    let lie = [0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1];
    recording.request(&[frame(HEADERS, END_HEADERS, 1, &[0x83, 0x84, 0x86]), lie.to_vec()].concat());
    (0..10).for_each(|at| recording.request(&get(2 * at + 3)));
    recording.gap(0, 0xff_ffff - 10 * get(3).len());
    recording.request(&get(101));
    recording.finish();
    let names: Vec<String> = recording.requests().iter().map(name).collect();
    assert_eq!(names, ["GET /"]);
}

/// Blocks without end, and streams without end: what is kept of them is bounded (`hpack` and `http2_frames` count it), and framing goes on.
#[test]
fn floods_are_framed_to_their_end() {
    let mut recording = Recording::new(Protocol::Http2, true, usize::MAX, 0);
    recording.request(&frame(HEADERS, END_STREAM, 1, &[0x82, 0x84]));
    (0..2_000).for_each(|_| recording.request(&frame(CONTINUATION, 0, 1, &[0x86; 1_000])));
    recording.request(&frame(CONTINUATION, END_HEADERS, 1, &[0x86]));
    // Ten thousand streams that never end, then one that does.
    (1..10_000).for_each(|at| recording.request(&frame(HEADERS, END_HEADERS, 2 * at + 1, &[0x83, 0x84])));
    recording.request(&get(20_001));
    recording.finish();
    let names: Vec<String> = recording.requests().iter().map(name).collect();
    assert_eq!(names, ["GET /", "GET /"]);
}
