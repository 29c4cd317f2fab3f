//! HTTP/2: what the client writes is read by an independent HPACK decoder; replies by frames; windows; refusals.

use proptest::prelude::*;
use tailsight_protocol::reply::{BlockedBy, ErrorKind, Expect, Op, Parser, Reply, Status, WrongKind};
use tailsight_protocol::wire::http2::Request;
use tailsight_protocol::{Kind, ProtocolError, Value};

use super::samples::{cut, feed};

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    [&out, payload].concat()
}

/// Frames of a byte stream: type, flags, stream, payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let len = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        frames.push((bytes[3], bytes[4], stream, bytes[9..9 + len].to_vec()));
        bytes = &bytes[9 + len..];
    }
    frames
}

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const GET: Request<'_> =
    Request { method: "GET", scheme: "http", authority: "host:80", path: "/a?b", fields: &[("x-a", "b")], body: None };

/// A connection with these requests outstanding, its preface taken away.
fn connection(requests: &[Request<'_>], value: Value) -> Parser {
    let mut parser = Parser::new(Kind::Http2, 16);
    for request in requests {
        let id = parser.http2().unwrap().request(request).unwrap();
        parser.expect(Expect::new(u64::from(id), Op::Other).value(value));
    }
    parser
}

proptest! {
    /// Header blocks of any request are what an independent decoder reads.
    #[test]
    fn requests_are_read_by_another_decoder(
        method in "GET|POST|PUT|HEAD", scheme in "http|https", authority in "[a-z0-9:.]{1,300}", path in "/[ -~]{0,300}",
        name in "[a-z-]{1,200}", value in "[ -~]{0,20000}",
    ) {
        let fields = [(&name[..], &value[..])];
        let mut parser = connection(&[Request { method: &method, scheme: &scheme, authority: &authority, path: &path, fields: &fields, body: None }], Value::Any);
        let output = parser.output().unwrap();
        prop_assert!(output.starts_with(PREFACE));
        let written = frames(&output[PREFACE.len()..]);
        prop_assert_eq!((written[0].0, written[1].0), (4, 8));
        // HEADERS, then CONTINUATION while the block is longer than a frame; END_STREAM on the first, END_HEADERS on the last.
        let block: Vec<u8> = written[2..].iter().flat_map(|frame| frame.3.clone()).collect();
        prop_assert!(written[2..].iter().all(|frame| frame.2 == 1 && frame.3.len() <= 16384));
        prop_assert_eq!((written[2].0, written[2].1 & 1), (1, 1));
        prop_assert_eq!(written[2..].iter().map(|frame| frame.1 & 4).sum::<u8>(), 4);
        prop_assert_eq!(written.last().unwrap().1 & 4, 4);
        let read = fluke_hpack::Decoder::new().decode(&block).unwrap();
        let expected = [(":method", &method), (":scheme", &scheme), (":authority", &authority), (":path", &path), (&name, &value)];
        let expected: Vec<_> = expected.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).to_vec();
        prop_assert_eq!(read, expected);
    }

    /// Statuses of blocks by an independent encoder; several replies interleaved, however cut.
    #[test]
    fn replies_are_found_whatever_the_cuts(
        codes in proptest::collection::vec(200u16..600, 1..6), len in 0usize..5000, padding in 0u8..20, trailers: bool,
        cuts in proptest::collection::vec(any::<usize>(), 0..30),
    ) {
        let mut body = Vec::new();
        Value::write(&mut body, len, 3);
        let mut stream = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
        stream.extend(frame(6, 0, 0, b"8 bytes."));
        let mut encoder = fluke_hpack::Encoder::new();
        encoder.set_max_table_size(0);
        let ids: Vec<u32> = (0..codes.len() as u32).map(|index| 2 * index + 1).collect();
        for (id, code) in ids.iter().zip(&codes) {
            stream.extend(frame(1, 4, *id, &encoder.encode([(&b":status"[..], &b"103"[..]), (b"link", b"x")])));
            let code = code.to_string();
            let block = encoder.encode([(&b":status"[..], code.as_bytes()), (b"server", b"nginx")]);
            // Padded, with a priority, in two frames.
            let first = [&[padding][..], &[0; 5], &block[..1], &vec![0; usize::from(padding)]].concat();
            stream.extend(frame(1, 8 | 32, *id, &first));
            stream.extend(frame(9, 4, *id, &block[1..]));
        }
        for part in [&body[..len / 2], &body[len / 2..]] {
            for id in &ids {
                stream.extend(frame(0, 8, *id, &[&[padding][..], part, &vec![0; usize::from(padding)]].concat()));
            }
        }
        for id in &ids {
            stream.extend(if trailers { frame(1, 5, *id, &encoder.encode([(&b"grpc-status"[..], &b"0"[..])])) } else { frame(0, 1, *id, b"") });
        }
        let mut parser = connection(&vec![GET; codes.len()], Value::Pattern { len: len as u64, seed: 3 });
        parser.output().unwrap().clear();
        let (replies, result) = feed(&mut parser, &cut(&stream, &cuts));
        prop_assert_eq!(result, Ok(()));
        let said: Vec<_> = replies.iter().map(|reply| (reply.id.unwrap() as u32, reply.code, reply.value_bytes)).collect();
        let expected: Vec<_> = ids.iter().zip(&codes).map(|(id, code)| (*id, *code, len as u64)).collect();
        prop_assert_eq!(said, expected);
        prop_assert!(replies.iter().all(|reply| !matches!(reply.status, Status::Wrong(_))));
        // The server's settings and ping were acknowledged.
        let written = frames(parser.output().unwrap());
        prop_assert_eq!(written, vec![(4, 1, 0, vec![]), (6, 1, 0, b"8 bytes.".to_vec())]);
        prop_assert_eq!(parser.close(|_| ()), Ok(()));
    }

    /// A body goes out as the windows allow, all of it, in order, within them.
    #[test]
    fn bodies_wait_for_the_windows(len in 1usize..200_000, steps in proptest::collection::vec(1u32..60_000, 40)) {
        let mut body = Vec::new();
        Value::write(&mut body, len, 1);
        let mut parser = connection(&[Request { method: "POST", body: Some(&body), ..GET }], Value::Any);
        parser.feed(&frame(4, 0, 0, &[]), |_| ()).unwrap();
        let (mut sent, mut allowed, mut ended) = (Vec::new(), 65_535_u64, false);
        let mut steps = steps.into_iter();
        for _ in 0..60 {
            let output = std::mem::take(parser.output().unwrap());
            let written = frames(output.strip_prefix(PREFACE).unwrap_or(&output));
            for (kind, flags, stream, payload) in written {
                if kind == 0 {
                    prop_assert!(!ended && stream == 1 && payload.len() <= 16384);
                    sent.extend(payload);
                    ended = flags & 1 == 1;
                }
            }
            prop_assert!(sent.len() as u64 <= allowed);
            let blocked = parser.http2().unwrap().ready();
            prop_assert_eq!(blocked, if ended { Ok(()) } else { Err(BlockedBy::Window) });
            let step = steps.next().unwrap_or(60_000);
            allowed += u64::from(step);
            for stream in [0, 1] {
                parser.feed(&frame(8, 0, stream, &step.to_be_bytes()), |_| ()).unwrap();
            }
        }
        prop_assert!(ended);
        prop_assert_eq!(sent, body);
    }
}

/// Feeds frames after the server's settings.
fn answers(parser: &mut Parser, frames: &[Vec<u8>]) -> Result<Vec<Reply>, ProtocolError> {
    let mut replies = Vec::new();
    let bytes = [frame(4, 0, 0, &[]), frames.concat()].concat();
    parser.feed(&bytes, |reply| replies.push(reply)).map(|()| replies)
}

#[test]
fn refusals_are_told_apart() {
    let mut parser = connection(&[GET, GET, GET, GET], Value::Any);
    let replies = answers(
        &mut parser,
        &[
            frame(3, 0, 1, &7_u32.to_be_bytes()),
            frame(3, 0, 3, &2_u32.to_be_bytes()),
            // No error: streams behind 5 are not served, 5 is.
            frame(7, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0]),
        ],
    );
    let said: Vec<_> = replies.unwrap().iter().map(|reply| (reply.id, reply.status)).collect();
    let expected = [(1, ErrorKind::Busy), (3, ErrorKind::Server), (7, ErrorKind::Busy)];
    assert_eq!(said, expected.map(|(id, kind)| (Some(id), Status::Error(kind))));
    assert_eq!(parser.http2().unwrap().ready(), Err(BlockedBy::Connection));
    assert_eq!(parser.outstanding(), 1);
    let error = answers(&mut connection(&[GET], Value::Any), &[frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2])]).unwrap_err();
    assert_eq!(error, ProtocolError::GoAway { kind: Kind::Http2, code: 2, last: 0 });
}

#[test]
fn the_servers_limit_of_streams_is_kept() {
    let mut parser = connection(&[GET], Value::Any);
    parser.feed(&frame(4, 0, 0, &[0, 3, 0, 0, 0, 1]), |_| ()).unwrap();
    assert_eq!(parser.http2().unwrap().request(&GET), Err(BlockedBy::Streams));
    let mut said = Vec::new();
    parser.feed(&frame(1, 5, 1, &[0x8d]), |reply| said.push(reply.status)).unwrap();
    assert_eq!(said, [Status::Miss]);
    assert_eq!(parser.http2().unwrap().request(&GET), Ok(3));
    parser.expect(Expect::new(3, Op::Get).value(Value::Len(2)));
    parser.feed(&[frame(1, 4, 3, &[0x88]), frame(0, 1, 3, b"abc")].concat(), |reply| said.push(reply.status)).unwrap();
    assert_eq!(said[1], Status::Wrong(WrongKind::Length));
}

#[test]
fn what_breaks_the_protocol_is_refused() {
    for (what, bytes) in [
        ("DATA before HEADERS", frame(0, 0, 1, b"x")),
        ("a dynamic table that was not allowed", frame(1, 5, 1, &[0xbe])),
        ("a block without a status", frame(1, 5, 1, &[0x82])),
        ("a push", frame(5, 4, 1, &[0; 8])),
        ("CONTINUATION of nothing", frame(9, 4, 1, &[0x88])),
        ("a frame between HEADERS and CONTINUATION", [frame(1, 0, 1, &[0x88]), frame(6, 0, 0, &[0; 8])].concat()),
        ("padding beyond its frame", frame(1, 8 | 4, 1, &[9, 0x88])),
        ("DATA on stream 0", frame(0, 0, 0, b"")),
        ("a window of the wrong length", frame(8, 0, 0, b"123")),
        ("a frame that is too large", frame(0, 0, 1, &[0; 16385])),
    ] {
        let error = answers(&mut connection(&[GET], Value::Any), &[bytes]);
        assert!(error.is_err(), "{what}");
    }
}

/// Feeds `head`, then `unit` again and again; how many it took until the connection was given up, and why.
fn until_given_up(head: &[u8], unit: &[u8]) -> (usize, ProtocolError) {
    let mut parser = connection(&[GET], Value::Any);
    parser.feed(&[&frame(4, 0, 0, b"")[..], head].concat(), |_| ()).unwrap();
    for n in 1..100_000 {
        if let Err(error) = parser.feed(unit, |_| ()) {
            return (n, error);
        }
        assert!(parser.output().unwrap().len() < 64 << 10, "what the server is owed is bounded");
    }
    panic!("a flood of {unit:?} is taken for ever");
}

/// Regression: PING and SETTINGS floods took gigabytes, and header blocks without end a core for ever.
#[test]
fn floods_are_given_up() {
    let headers = frame(1, 0, 1, b"\x88");
    let begun = frame(1, 4, 1, b"\x88");
    for (what, head, unit, most) in [
        ("PING", vec![], frame(6, 0, 0, b"8 bytes."), 1_000),
        ("SETTINGS", vec![], frame(4, 0, 0, b""), 1_000),
        ("CONTINUATION", headers.clone(), frame(9, 0, 1, b"x"), 9),
        ("large CONTINUATION", headers.clone(), frame(9, 0, 1, &[0; 16_384]), 4),
        ("empty CONTINUATION", headers, frame(9, 0, 1, b""), 9),
        ("empty DATA", begun.clone(), frame(0, 0, 1, b""), 101),
        ("RST_STREAM of nobody's stream", vec![], frame(3, 0, 99, &[0; 4]), 10_001),
        ("PRIORITY", vec![], frame(2, 0, 3, &[0; 5]), 10_001),
        ("WINDOW_UPDATE", vec![], frame(8, 0, 99, &[0, 0, 0, 1]), 10_001),
        ("GOAWAY", vec![], frame(7, 0, 0, &[0, 0, 0, 99, 0, 0, 0, 0]), 10_001),
        ("frames of no kind", vec![], frame(77, 0, 0, b""), 10_001),
        ("DATA of nobody's stream", vec![], frame(0, 0, 99, b"x"), 10_001),
    ] {
        let (n, error) = until_given_up(&head, &unit);
        assert!(n <= most && n + 2 >= most.min(10_000), "{what}: {n}");
        assert!(matches!(error, ProtocolError::TooLarge { .. }), "{what}: {error}");
    }
}

/// A client whose acknowledgements leave, and a long answer in small frames, are no flood.
#[test]
fn what_an_honest_server_does_for_long_is_no_flood() {
    let mut parser = connection(&[GET], Value::Any);
    parser.feed(&frame(4, 0, 0, b""), |_| ()).unwrap();
    parser.feed(&frame(1, 4, 1, b"\x88"), |_| ()).unwrap();
    for _ in 0..20_000 {
        parser.feed(&frame(6, 0, 0, b"8 bytes."), |_| ()).unwrap();
        parser.output().unwrap().clear();
        parser.http2().unwrap().sent();
        parser.feed(&frame(0, 0, 1, b"x"), |_| ()).unwrap();
    }
    let mut replies = Vec::new();
    parser.feed(&frame(0, 1, 1, b""), |reply| replies.push(reply)).unwrap();
    assert_eq!((replies.len(), replies[0].value_bytes), (1, 20_000));
}

#[test]
fn windows_stay_within_their_bounds() {
    for (update, good) in [([0, 0, 0, 1], true), ([0, 0, 0, 0], false), ([0x7f, 0xff, 0xff, 0xff], false)] {
        let mut parser = connection(&[GET], Value::Any);
        parser.feed(&frame(4, 0, 0, b""), |_| ()).unwrap();
        assert_eq!(parser.feed(&frame(8, 0, 0, &update), |_| ()).is_ok(), good, "{update:?}");
    }
}
