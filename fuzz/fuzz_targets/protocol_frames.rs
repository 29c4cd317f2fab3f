//! Fuzzes the framing of recorded flows: whatever the segments, the frames of each direction tile it.
//! Run with `scripts/fuzz.sh 60 protocol_frames`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tailsight_protocol::frame::{Direction, Flow, Frame, ReplyFrame, RequestFrame, Segment};
use tailsight_protocol::{Protocol, ProtocolChoice};

fuzz_target!(|data: &[u8]| {
    let [setting, rest @ ..] = data else { return };
    let protocol = [Protocol::Memcached, Protocol::Resp, Protocol::Http1, Protocol::Http2][usize::from(setting & 3)];
    let choice = if setting & 8 != 0 { ProtocolChoice::Auto } else { protocol.into() };
    let mut flow = Flow::new(choice, setting & 4 != 0);
    let (mut frames, mut ends) = (Vec::new(), [0_u64; 2]);
    let mut rest = rest;
    // A segment: direction and gap, captured bytes, unseen bytes.
    while let [shape, captured, unseen, bytes @ ..] = rest {
        let (captured, tail) = bytes.split_at(usize::from(*captured).min(bytes.len()));
        rest = tail;
        let reply = shape & 1 == 1;
        let end = &mut ends[usize::from(reply)];
        let offset = *end + if shape & 6 == 6 && *end > 0 { u64::from(shape >> 3) } else { 0 };
        let segment = Segment { offset, len: captured.len() as u64 + u64::from(*unseen), captured };
        if segment.len == 0 {
            continue;
        }
        *end = offset + segment.len;
        if reply {
            flow.reply(segment, |frame| frames.push(frame));
        } else {
            flow.request(segment, |frame| frames.push(frame));
        }
    }
    flow.finish(|frame| frames.push(frame));
    let mut at = [0_u64; 2];
    for frame in frames {
        let (direction, from, to) = match frame {
            Frame::Request(RequestFrame { from, to, .. }) => (Direction::Requests, from, to),
            Frame::Reply(ReplyFrame { from, to, .. }) | Frame::Unsolicited { from, to } => (Direction::Replies, from, to),
            Frame::Control { direction, from, to } | Frame::Lost { direction, from, to, .. } => (direction, from, to),
        };
        let at = &mut at[usize::from(direction == Direction::Replies)];
        assert!(from == *at && to > from, "{direction:?} {from}..{to} after {at}");
        *at = to;
    }
    assert_eq!(at, ends);
});
