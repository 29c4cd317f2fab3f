// What a fuzzer's bytes mean to an HTTP/2 client, shared by the fuzz target and by the ordinary tests of tailsight-protocol (which
// include this file, so that it also runs where no fuzzer is).
//
// In: bytes: how many requests are outstanding, where the stream is cut, and frames (kind, flags, stream, length: a byte each, then the
// payload; a kind above 15 is a raw piece of so many bytes). Out: nothing; what is owed to the server is bounded, no request is answered
// twice, and the same replies come whatever the cut.

use tailsight_protocol::Kind;
use tailsight_protocol::reply::{Expect, Op, Parser, Reply};
use tailsight_protocol::wire::http2::Request;

/// What a client may owe for so many bytes: an acknowledgement a frame up to the cap, updates of windows, and its own requests.
const MOST_OWED: usize = 64 << 10;

/// The bytes of the server's stream.
pub fn stream(mut data: &[u8]) -> Vec<u8> {
    // SETTINGS first, or nothing is looked at.
    let mut out = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    while let [kind, flags, stream, length, rest @ ..] = data {
        let length = usize::from(*length).min(rest.len());
        if *kind < 16 {
            out.extend(&(length as u32).to_be_bytes()[1..]);
            out.extend([*kind, *flags]);
            out.extend(u32::from(*stream).to_be_bytes());
        }
        out.extend(&rest[..length]);
        data = &rest[length..];
    }
    out
}

fn replies(requests: u8, parts: [&[u8]; 2]) -> (Vec<Reply>, bool) {
    let mut parser = Parser::new(Kind::Http2, 8);
    for n in 0..requests {
        let body = vec![b'x'; usize::from(n) * 20_000];
        let request = Request {
            method: if n % 3 == 2 { "HEAD" } else { "POST" },
            scheme: "http",
            authority: "a",
            path: "/",
            fields: &[],
            body: (n % 2 == 1).then_some(&body[..]),
        };
        let id = parser.http2().and_then(|http2| http2.request(&request).ok());
        if let Some(id) = id {
            parser.expect(Expect::new(u64::from(id), Op::Other));
        }
    }
    let asked = parser.output().map_or(0, |output| output.len());
    let (mut replies, mut at) = (Vec::new(), 0);
    for part in parts {
        let fed = parser.feed(part, |reply| replies.push(Reply { end: at + reply.end, ..reply }));
        let owed = parser.output().map_or(0, |output| output.len());
        // The bodies that waited for windows leave too.
        assert!(owed <= asked + MOST_OWED + 8 * 140_000, "{owed} bytes are owed");
        if fed.is_err() {
            return (replies, true);
        }
        at += part.len();
    }
    (replies, parser.close(|_| ()).is_err())
}

/// Reads the stream that the bytes stand for.
pub fn read(data: &[u8]) {
    let [requests, cut, frames @ ..] = data else { return };
    let stream = stream(frames);
    let cut = usize::from(*cut) * stream.len() / 255;
    let whole = replies(requests % 8, [&stream, &[]]);
    assert_eq!(whole, replies(requests % 8, [&stream[..cut], &stream[cut..]]));
    let mut ids: Vec<u64> = whole.0.iter().filter_map(|reply| reply.id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "a request was answered twice");
}
