//! Any bytes: never a panic, never an endless loop, no memory beyond the limits.

use proptest::prelude::*;
use tailsight_protocol::frame::{Direction, Flow, Segment};
use tailsight_protocol::reply::{Datagrams, Expect, Op, Parser, Transport};
use tailsight_protocol::{Kind, Protocol, ProtocolChoice, Value, wire};

use super::frames::tiles;
use super::samples::{cut, feed, plan, sample};

/// Bytes that keep meeting the grammars' own words.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&[u8]; 34] = [
        b"\r\n",
        b"VALUE k 0 5\r\n",
        b"END\r\n",
        b"VA 3 O1\r\n",
        b"HD\r\n",
        b"get a b\r\n",
        b"set k 0 0 4\r\n",
        b"ms k 2 q\r\n",
        b"\x80\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x03",
        b"\x81\x10\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01",
        b"*2\r\n",
        b"$3\r\n",
        b"$-1\r\n",
        b"%1\r\n",
        b">1\r\n",
        b"|1\r\n",
        b"*?\r\n",
        b".\r\n",
        b"$?\r\n",
        b";0\r\n",
        b"_\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"Content-Length: 7\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"5\r\n",
        b"0\r\n\r\n",
        b"GET / HTTP/1.1\r\n",
        b"TSrp",
        b"TSrq",
        b"\x00\x00\x04\x08\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88",
        b"\x00\x00\x02\x00\x09\x00\x00\x00\x01\x00x",
        b"\xcc\x08\x10\xc0\x00\x01\x00\x01",
    ];
    let word = prop_oneof![
        4 => proptest::sample::select(&WORDS[..]).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..30),
    ];
    proptest::collection::vec(word, 0..30).prop_map(|words| words.concat())
}

fn expects(parser: &mut Parser) {
    for id in 1..4 {
        parser.expect(Expect::new(id, Op::Get).value(Value::Pattern { len: 5, seed: id }));
        parser.expect(Expect::new(id + 10, Op::Head));
        parser.expect(Expect::new(id + 20, Op::Other).quiet());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// The same replies and the same error, however the bytes are cut.
    #[test]
    fn any_bytes_are_taken_the_same_however_cut(
        kind in proptest::sample::select(&Kind::ALL[..]), bytes in bytes(), cuts in proptest::collection::vec(any::<usize>(), 0..9),
    ) {
        let run = |parts: &[&[u8]]| {
            let mut parser = Parser::new(kind, 4);
            if let Some(http2) = parser.http2() {
                let get = wire::http2::Request { method: "GET", scheme: "http", authority: "a", path: "/", fields: &[], body: None };
                http2.request(&get).unwrap();
            }
            expects(&mut parser);
            let (replies, result) = feed(&mut parser, parts);
            let failed = result.is_err();
            let output = parser.output().map(|output| output.clone());
            (replies, failed, if failed { None } else { output }, parser.close(|_| ()).is_err())
        };
        prop_assert_eq!(run(&[&bytes]), run(&cut(&bytes, &cuts)));
    }

    /// Frames of anything tile.
    #[test]
    fn any_recording_tiles(
        protocol in proptest::option::weighted(0.8, proptest::sample::select(&Protocol::ALL[..])),
        segments in proptest::collection::vec((any::<bool>(), bytes(), 0u64..3000, 0i64..40), 0..12), from_start: bool,
    ) {
        let mut flow = Flow::new(protocol.map_or(ProtocolChoice::Auto, ProtocolChoice::Named), from_start);
        let (mut frames, mut ends) = (Vec::new(), [1000_u64; 2]);
        let mut starts = [None; 2];
        for (reply, captured, unseen, shift) in &segments {
            let side = usize::from(*reply);
            let offset = ends[side].saturating_add_signed(if shift % 3 == 0 { shift - 20 } else { 0 });
            let segment = Segment { offset, len: captured.len() as u64 + unseen, captured };
            if segment.len == 0 { continue; }
            starts[side].get_or_insert(offset);
            if starts[side].is_some_and(|start| offset + segment.len <= start) { continue; }
            ends[side] = ends[side].max(offset + segment.len);
            if starts[side] == Some(offset) && ends[side] == 1000 { ends[side] = offset + segment.len; }
            if *reply { flow.reply(segment, |frame| frames.push(frame)) } else { flow.request(segment, |frame| frames.push(frame)) }
        }
        flow.finish(|frame| frames.push(frame));
        for (side, direction) in [Direction::Requests, Direction::Replies].into_iter().enumerate() {
            if let Some(start) = starts[side] {
                prop_assert!(tiles(&frames, direction, start, ends[side].max(start)), "{frames:?}");
            }
        }
    }

    /// Good streams with a few bytes changed.
    #[test]
    fn damaged_streams_do_not_break_parsers(
        kind in proptest::sample::select(&Kind::ALL[..]), plan in plan(), flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..5),
    ) {
        let kind = if kind == Kind::Http2 { Kind::Resp } else { kind };
        let mut sample = sample(kind, &plan);
        for (at, bits) in flips {
            let len = sample.replies.len();
            sample.replies[at % len] ^= bits;
        }
        let mut parser = Parser::new(kind, 4);
        sample.expects.iter().for_each(|expect| parser.expect(*expect));
        let (replies, _) = feed(&mut parser, &[&sample.replies]);
        prop_assert!(replies.len() <= sample.replies.len());
        let _ = parser.close(|_| ());
    }

    #[test]
    fn any_datagrams_are_taken(
        datagrams in proptest::collection::vec(bytes(), 0..10), kind in proptest::sample::select(&Kind::ALL[..]),
        transport in proptest::sample::select(&[Transport::Plain, Transport::MemcachedUdp, Transport::R2p2][..]),
    ) {
        let mut socket = Datagrams::new(transport, kind, 4);
        for id in 0..4 { socket.expect(Expect::new(id, Op::Get)); }
        for datagram in &datagrams { socket.feed(datagram); }
        let _ = wire::synthetic::Request::parse(&datagrams.concat());
    }
}

/// The harness of the fuzz target `http2_frames`.
#[path = "../../../../fuzz/http2.rs"]
mod harness;

/// Frames that a fuzzer would find after a while: kinds and flags that mean something, streams that are open.
fn http2_frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        2 => Just(vec![0x88]),
        1 => Just(vec![0, 0, 0, 0]),
        1 => Just(vec![0, 4, 0x7f, 0xff, 0xff, 0xff]),
        1 => Just(vec![0, 3, 0, 0, 0, 0]),
        1 => Just(b"8 bytes.".to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let frame = (0_u8..11, proptest::sample::select(vec![0_u8, 1, 4, 5, 8, 9, 0x2d]), 0_u8..10, payload);
    let frames = proptest::collection::vec((frame, 1_usize..30), 0..40);
    (any::<u8>(), any::<u8>(), frames).prop_map(|(requests, cut, frames)| {
        let mut data = vec![requests, cut];
        for ((kind, flags, stream, payload), times) in frames {
            let frame = [&[kind, flags, stream, payload.len() as u8], &payload[..]].concat();
            data.extend(frame.repeat(times));
        }
        data
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn http2_frames_of_any_kind_are_read_or_refused(data in http2_frames()) {
        harness::read(&data);
    }
}

/// Inputs that the fuzzer found, each named by what was wrong.
#[test]
fn what_the_fuzzer_found_in_http2_stays_fixed() {
    let empty_status = [0x61, 0xfd, 1, 4, 1, 0x40, 8, 0x80, 4, 0x82, 0, 0x59, 0xff, 0xcf];
    harness::read(&empty_status);
}
