//! Fuzzes the reply parsers: any bytes, cut in two anywhere, give the same replies as uncut; no panic, no hang.
//! Run with `scripts/fuzz.sh 60 protocol_replies`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tailsight_protocol::Kind;
use tailsight_protocol::reply::{Datagrams, Expect, Op, Parser, Reply, Transport};

const OPS: [Op; 6] = [Op::Get, Op::Set, Op::Delete, Op::Ping, Op::Head, Op::Other];

/// The replies of `parts`, with their ends in the whole, and whether they ended with an error.
fn run(kind: Kind, parts: [&[u8]; 2]) -> (Vec<Reply>, bool) {
    let mut parser = Parser::new(kind, 4);
    for (id, op) in OPS.into_iter().enumerate() {
        parser.expect(Expect::new(id as u64, op));
    }
    let (mut replies, mut at) = (Vec::new(), 0);
    for part in parts {
        let fed = parser.feed(part, |reply| replies.push(Reply { end: at + reply.end, ..reply }));
        if fed.is_err() {
            return (replies, true);
        }
        at += part.len();
    }
    let closed = parser.close(|reply| replies.push(reply)).is_err();
    (replies, closed)
}

fuzz_target!(|data: &[u8]| {
    let [kind, cut, bytes @ ..] = data else { return };
    let kind = Kind::ALL[usize::from(*kind) % Kind::ALL.len()];
    let cut = usize::from(*cut) * bytes.len() / 255;
    let whole = run(kind, [bytes, &[]]);
    assert_eq!(whole, run(kind, [&bytes[..cut], &bytes[cut..]]));
    for transport in [Transport::Plain, Transport::MemcachedUdp, Transport::R2p2] {
        let mut datagrams = Datagrams::new(transport, kind, 4);
        (0..4).for_each(|id| datagrams.expect(Expect::new(id, Op::Get)));
        bytes.chunks(usize::from(bytes.first().copied().unwrap_or(0)) + 1).for_each(|datagram| {
            datagrams.feed(datagram);
        });
    }
});
