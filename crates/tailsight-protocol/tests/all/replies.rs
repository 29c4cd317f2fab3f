//! Replies parsed: whatever the cuts, the same replies with the same ends; errors and wrong answers told apart.

use proptest::prelude::*;
use tailsight_protocol::reply::{
    Datagram, Datagrams, ErrorKind, Expect, Op, Parser, Reply, Status, Transport, WrongKind,
};
use tailsight_protocol::{Kind, ProtocolError, Value, wire};

use super::samples::{cut, feed, plan, sample};

const KINDS: [Kind; 6] =
    [Kind::MemcachedText, Kind::MemcachedBinary, Kind::Resp, Kind::Http1, Kind::Echo, Kind::Synthetic];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Every reply is found with its status, id, sizes and end, however the stream is cut; the lengths add up.
    #[test]
    fn replies_do_not_depend_on_the_cuts(
        kind in proptest::sample::select(&KINDS[..]), plan in plan(), cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let sample = sample(kind, &plan);
        let mut parser = Parser::new(kind, 4);
        sample.expects.iter().for_each(|expect| parser.expect(*expect));
        let (replies, result) = feed(&mut parser, &cut(&sample.replies, &cuts));
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(replies.len(), sample.says.len());
        for ((reply, says), expect) in replies.iter().zip(&sample.says).zip(&sample.expects) {
            prop_assert_eq!((reply.status, reply.value_bytes), (says.0, says.2), "{:?}", reply);
            prop_assert_eq!(reply.id, Some(expect.id));
            if kind != Kind::Resp { prop_assert_eq!(reply.values, says.1); }
        }
        // What answers nobody lies between; all else is a reply's.
        if sample.unsolicited == 0 {
            let ends: Vec<usize> = sample.says.iter().scan(0, |end, says| { *end += says.3 as usize; Some(*end) }).collect();
            prop_assert_eq!(replies.iter().map(|reply| reply.end).collect::<Vec<_>>(), ends);
            prop_assert_eq!(replies.iter().map(|reply| reply.bytes).sum::<u64>(), sample.replies.len() as u64);
        }
        prop_assert_eq!(parser.unsolicited(), sample.unsolicited);
        prop_assert_eq!(parser.close(|_| ()), Ok(()));
        // One byte at a time gives the very same.
        let mut slow = Parser::new(kind, 4);
        sample.expects.iter().for_each(|expect| slow.expect(*expect));
        let bytes: Vec<&[u8]> = sample.replies.chunks(1).collect();
        prop_assert_eq!(feed(&mut slow, &bytes).0, replies);
    }

    /// A connection that ends early says so, and never gives a reply that did not come whole.
    #[test]
    fn half_answers_are_errors(kind in proptest::sample::select(&KINDS[..]), plan in plan(), keep: usize) {
        let sample = sample(kind, &plan);
        let keep = keep % sample.replies.len().max(1);
        let mut parser = Parser::new(kind, 4);
        sample.expects.iter().for_each(|expect| parser.expect(*expect));
        let (replies, result) = feed(&mut parser, &[&sample.replies[..keep]]);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(replies.len() < sample.expects.len());
        let outstanding = sample.expects.len() - replies.len();
        match parser.close(|_| ()).unwrap_err() {
            ProtocolError::HalfReply { outstanding: open, .. } | ProtocolError::Unanswered { outstanding: open, .. } => {
                prop_assert_eq!(open, outstanding);
            }
            other => prop_assert!(false, "{other}"),
        }
        prop_assert!(parser.feed(b"x", |_| ()).is_err(), "a closed parser stays closed");
    }

    /// Replies over datagrams: in any order, doubled or not, they are put together.
    #[test]
    fn datagrams_are_put_in_order(
        r2p2: bool, len in 0usize..9000, order in Just(()).prop_perturb(|(), mut rng| rng.random::<u64>()), double: bool,
    ) {
        let mut value = Vec::new();
        Value::write(&mut value, len, 9);
        let reply = [format!("VALUE key 0 {len}\r\n").as_bytes(), &value, b"\r\nEND\r\n"].concat();
        let (transport, mut packets): (_, Vec<Vec<u8>>) = if r2p2 {
            use wire::r2p2::{Policy, Type, packet, packets};
            let packet_of = |index| {
                let mut out = Vec::new();
                packet(&mut out, Type::Reply, Policy::Fixed, 7, &reply, index).unwrap();
                out
            };
            (Transport::R2p2, (0..packets(Type::Reply, reply.len())).map(packet_of).collect())
        } else {
            let parts: Vec<&[u8]> = reply.chunks(1400).collect();
            let datagram = |(index, part): (usize, &&[u8])| {
                [&[0, 7, 0, index as u8, 0, parts.len() as u8, 0, 0], *part].concat()
            };
            (Transport::MemcachedUdp, parts.iter().enumerate().map(datagram).collect())
        };
        let total: usize = packets.iter().map(Vec::len).sum();
        let turn = order as usize % packets.len();
        packets.rotate_left(turn);
        if order & 64 != 0 { packets.reverse(); }
        let mut datagrams = Datagrams::new(transport, Kind::MemcachedText, 2);
        datagrams.expect(Expect::new(6, Op::Get));
        datagrams.expect(Expect::new(7, Op::Get).value(Value::Pattern { len: len as u64, seed: 9 }));
        let last = packets.len() - 1;
        for (index, packet) in packets.iter().enumerate() {
            match datagrams.feed(packet) {
                Datagram::Reply(reply) => {
                    prop_assert_eq!(index, last);
                    prop_assert_eq!((reply.status, reply.id, reply.value_bytes), (Status::Ok, Some(7), len as u64));
                    prop_assert_eq!(reply.bytes, total as u64);
                }
                other => {
                    prop_assert_eq!(other, Datagram::Part);
                    prop_assert!(index < last);
                    if double { prop_assert_eq!(datagrams.feed(packet), Datagram::Stray); }
                }
            }
        }
        prop_assert_eq!(datagrams.outstanding(), 1);
        prop_assert_eq!(datagrams.feed(&packets[0]), Datagram::Stray);
        prop_assert!(datagrams.forget(6) && !datagrams.forget(6));
    }

    /// R2P2's packets carry the message, all of it and nothing else.
    #[test]
    fn r2p2_packets_add_up(len in 0usize..100_000, request: bool) {
        use wire::r2p2::{HEAD, Head, Policy, Type, packet, packets};
        let kind = if request { Type::Request } else { Type::Reply };
        let message: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let (mut come, count) = (Vec::new(), packets(kind, len));
        for index in 0..count {
            let mut out = Vec::new();
            packet(&mut out, kind, Policy::LoadBalance, 3, &message, index).unwrap();
            let (head, payload) = Head::parse(&out).unwrap();
            prop_assert!(out.len() <= 1472 && out.len() - HEAD == payload.len());
            prop_assert_eq!((head.first, head.last, head.id), (index == 0, index + 1 == count, 3));
            prop_assert_eq!(usize::from(head.order), if index == 0 { count } else { index });
            prop_assert_eq!(&head.bytes()[..], &out[..HEAD]);
            come.extend_from_slice(payload);
        }
        prop_assert_eq!(come, message);
        prop_assert_eq!(packet(&mut Vec::new(), kind, Policy::Fixed, 3, &[], 1), None);
    }

    /// A synthetic request of any size is read back.
    #[test]
    fn synthetic_requests_are_read_back(id: u32, service_ns: u32, reply_bytes: u16, sleep: bool, beside: u8, size in 0usize..4000) {
        use wire::synthetic::Request;
        let request = Request { id, service_ns, reply_bytes, sleep, beside };
        let mut bytes = Vec::new();
        match request.write(&mut bytes, size) {
            Ok(()) => {
                prop_assert_eq!(bytes.len(), size);
                prop_assert_eq!(Request::parse(&bytes), Ok(Some((request, size))));
                prop_assert_eq!(Request::parse(&bytes[..15]), Ok(None));
            }
            Err(error) => prop_assert!(size != 16 && size < 20, "{error}"),
        }
    }
}

/// One request, one reply.
fn one(kind: Kind, expect: Expect, bytes: &[u8]) -> Result<Vec<Reply>, ProtocolError> {
    let mut parser = Parser::new(kind, 1);
    parser.expect(expect);
    let mut replies = Vec::new();
    parser.feed(bytes, |reply| replies.push(reply)).map(|()| replies)
}

#[test]
fn wrong_replies_are_told_apart() {
    let wrong = |kind, expect, bytes: &[u8]| match one(kind, expect, bytes).unwrap()[0].status {
        Status::Wrong(wrong) => wrong,
        other => panic!("{other:?}"),
    };
    let get = Expect::new(5, Op::Get).value(Value::Pattern { len: 3, seed: 1 });
    assert_eq!(wrong(Kind::MemcachedText, get, b"VALUE k 0 2\r\nab\r\nEND\r\n"), WrongKind::Length);
    assert_eq!(wrong(Kind::MemcachedText, get, b"VALUE k 0 3\r\nabc\r\nEND\r\n"), WrongKind::Content);
    let twice = b"VALUE k 0 3\r\n\x01\0\0\r\nVALUE k 0 3\r\n\x01\0\0\r\nEND\r\n";
    assert_eq!(wrong(Kind::MemcachedText, get, twice), WrongKind::Values);
    assert_eq!(wrong(Kind::MemcachedText, get, b"MN\r\n"), WrongKind::Kind);
    assert_eq!(wrong(Kind::Resp, get, b"+OK\r\n"), WrongKind::Kind);
    assert_eq!(wrong(Kind::Resp, get, b"$3\r\nabc\r\n"), WrongKind::Content);
    assert_eq!(wrong(Kind::Http1, get, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), WrongKind::Length);
    let mut parser = Parser::new(Kind::Resp, 1);
    let mut replies = Vec::new();
    parser.feed(b"+OK\r\n", |reply| replies.push(reply)).unwrap();
    assert_eq!((replies[0].status, replies[0].id), (Status::Wrong(WrongKind::Unasked), None));
}

#[test]
fn garbage_is_refused_at_its_first_byte_with_what_came() {
    for (kind, bytes) in [
        (Kind::MemcachedText, &b"HTTP/1.1 400 Bad Request\r\n"[..]),
        (Kind::MemcachedBinary, b"E"),
        (Kind::Resp, b"HTTP/1.1"),
        (Kind::Http1, b"E"),
        (Kind::Synthetic, b"H"),
        (Kind::Http2, b"HTTP/1.1 400"),
    ] {
        let error = one(kind, Expect::new(1, Op::Get), bytes).unwrap_err();
        assert!(matches!(error, ProtocolError::Garbage { .. }), "{kind}: {error}");
        assert!(error.to_string().contains(&bytes[..1].escape_ascii().to_string()), "{error}");
    }
    // A value of another length than its head says.
    let error = one(Kind::MemcachedText, Expect::new(1, Op::Get), b"VALUE k 0 1\r\nabc\r\nEND\r\n").unwrap_err();
    assert!(error.to_string().contains("CRLF"), "{error}");
}

#[test]
fn memory_is_bounded() {
    let endless = vec![b'A'; 1 << 20];
    let large = |kind, start: &[u8]| {
        let error = one(kind, Expect::new(1, Op::Get), &[start, &endless].concat()).unwrap_err();
        assert!(matches!(error, ProtocolError::TooLarge { .. }), "{kind}: {error}");
    };
    large(Kind::MemcachedText, b"VALUE ");
    large(Kind::Resp, b"+");
    large(Kind::Http1, b"HTTP/1.1 200 OK\r\nX: ");
    large(Kind::Http1, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;");
    let deep = b"*1\r\n".repeat(100);
    assert!(matches!(one(Kind::Resp, Expect::new(1, Op::Get), &deep), Err(ProtocolError::TooLarge { .. })));
}

#[test]
fn an_http_body_without_a_length_ends_with_the_connection() {
    let mut parser = Parser::new(Kind::Http1, 1);
    parser.expect(Expect::new(1, Op::Get).value(Value::Len(5)));
    parser.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab", |_| panic!("too early")).unwrap();
    parser.feed(b"cde", |_| panic!("too early")).unwrap();
    let mut replies = Vec::new();
    parser.close(|reply| replies.push(reply)).unwrap();
    assert_eq!((replies.len(), replies[0].status, replies[0].value_bytes), (1, Status::Ok, 5));
}

#[test]
fn quiet_requests_are_resolved_by_the_next_answer() {
    let mut parser = Parser::new(Kind::MemcachedText, 4);
    for id in [1, 2, 3] {
        parser.expect(Expect::new(id, Op::Get).quiet());
    }
    parser.expect(Expect::new(4, Op::Set).quiet());
    parser.expect(Expect::new(5, Op::Ping));
    let mut said = Vec::new();
    parser.feed(b"VA 1 O2\r\nx\r\nMN\r\n", |reply| said.push((reply.id, reply.status))).unwrap();
    let expected = [(1, Status::Miss), (2, Status::Ok), (3, Status::Miss), (4, Status::Ok), (5, Status::Ok)];
    assert_eq!(said, expected.map(|(id, status)| (Some(id), status)));
    parser.close(|_| ()).unwrap();
}

#[test]
fn plain_datagrams_and_refusals() {
    let mut echo = Datagrams::new(Transport::Plain, Kind::Echo, 4);
    let mut bytes = [Vec::new(), Vec::new()];
    for (id, bytes) in bytes.iter_mut().enumerate() {
        wire::echo::request(bytes, 64, id as u64);
        echo.expect(Expect::new(id as u64, Op::Other).value(Value::Pattern { len: 64, seed: id as u64 }));
    }
    // The second comes first: its bytes say whose it is.
    for id in [1, 0] {
        match echo.feed(&bytes[id]) {
            Datagram::Reply(reply) => assert_eq!((reply.id, reply.status), (Some(id as u64), Status::Ok)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(echo.feed(&bytes[0]), Datagram::Stray);

    use wire::r2p2::{Policy, Type, packet};
    let mut r2p2 = Datagrams::new(Transport::R2p2, Kind::Resp, 4);
    r2p2.expect(Expect::new(9, Op::Get));
    let mut datagram = Vec::new();
    packet(&mut datagram, Type::Ack, Policy::Fixed, 9, b"ACK", 0).unwrap();
    assert_eq!(r2p2.feed(&datagram), Datagram::Ack { id: 9 });
    datagram.clear();
    packet(&mut datagram, Type::Drop, Policy::Fixed, 9, b"DROP", 0).unwrap();
    match r2p2.feed(&datagram) {
        Datagram::Reply(reply) => assert_eq!((reply.id, reply.status), (Some(9), Status::Error(ErrorKind::Busy))),
        other => panic!("{other:?}"),
    }
    assert_eq!(r2p2.feed(b"\xcc"), Datagram::Stray);
}

/// Names are what the command line takes.
#[test]
fn names_are_read_back() {
    for kind in Kind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    let error = "redis".parse::<tailsight_protocol::Protocol>().unwrap_err();
    assert_eq!(error.to_string(), "`redis` is not a protocol; choose one of memcached, resp, http1, http2");
}

/// Regression: a server that pushed, or sent 1xx, for ever kept its client for ever.
#[test]
fn messages_that_answer_nobody_are_taken_for_a_while_only() {
    for (kind, unit, answer) in [
        (Kind::Resp, &b">2\r\n+a\r\n+b\r\n"[..], &b"$-1\r\n"[..]),
        (Kind::Http1, b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let mut parser = Parser::new(kind, 4);
        for round in 0..3 {
            parser.expect(Expect::new(round, Op::Get));
            (0..1000).for_each(|_| parser.feed(unit, |_| ()).unwrap());
            parser.feed(answer, |_| ()).unwrap();
        }
        parser.expect(Expect::new(9, Op::Get));
        (0..1000).for_each(|_| parser.feed(unit, |_| ()).unwrap());
        let error = parser.feed(unit, |_| ()).unwrap_err();
        assert!(error.to_string().contains("answer nobody"), "{error}");
    }
}
