//! Where the plain text of a TLS connection is on the wire. In: what receive and send calls moved, and what the functions of the library gave and
//! took. Out: for each place in the plain text the place in the connection's bytes.
//!
//! A record has some bytes more on the wire than its plain text, and a library that reads ahead receives several at once. What one call gives is
//! taken for one record: where only one fits in what was received and not given yet, it is that exactly, and tells how many bytes more there are.

use std::collections::VecDeque;
use std::ops::Range;

use tailsight_protocol::frame::{Frame, ReplyFrame, RequestFrame};

/// What a record has besides its plain text, bytes, until a connection has told: head, type and tag of TLS 1.3.
const OVERHEAD: u64 = 22;
/// The least and the most of all cipher suites.
const OVERHEADS: Range<u64> = 21..65;
/// The most plain text of a record.
const RECORD_BYTES: u64 = 1 << 14;
/// The types of records: change of cipher, alert, handshake, data.
const TYPES: std::ops::RangeInclusive<u8> = 20..=23;

/// Whether bytes begin like a record: type, version 3.0 to 3.4, at most 2^14 bytes and what encryption adds.
pub fn is_record(bytes: &[u8]) -> bool {
    matches!(bytes, [kind, 3, 0..=4, high, _, ..] if TYPES.contains(kind) && *high <= 65)
}

/// A part of the plain text, and the bytes on the wire that it was made of or became.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    plain: Range<u64>,
    wire: Range<u64>,
}

impl Part {
    /// The place on the wire of one inside of the part.
    fn within(&self, plain: u64) -> u64 {
        let (into, bytes) = (plain - self.plain.start, self.plain.end - self.plain.start);
        let wire = u128::from(self.wire.end - self.wire.start);
        self.wire.start + (u128::from(into) * wire / u128::from(bytes.max(1))) as u64
    }
}

/// The plain text of one direction.
#[derive(Debug, Default)]
pub struct PlainStream {
    parts: VecDeque<Part>,
    /// Its bytes up to here.
    bytes: u64,
}

impl PlainStream {
    /// More of it. Returns the place of its first byte in the plain text.
    fn push(&mut self, bytes: u64, wire: Range<u64>) -> u64 {
        let from = self.bytes;
        self.bytes += bytes;
        self.parts.push_back(Part { plain: from..self.bytes, wire });
        from
    }

    /// What is before this place in the plain text is not asked for any more.
    fn forget(&mut self, before: u64) {
        while self.parts.len() > 1 && self.parts.front().is_some_and(|part| part.plain.end <= before) {
            self.parts.pop_front();
        }
    }

    /// Where the byte at this place in the plain text is on the wire.
    pub fn begin(&self, plain: u64) -> u64 {
        let at = self.parts.partition_point(|part| part.plain.end <= plain);
        self.parts
            .get(at)
            .or(self.parts.back())
            .map_or(0, |part| part.within(plain.clamp(part.plain.start, part.plain.end)))
    }

    /// Where the byte before this place ends.
    fn end(&self, plain: u64) -> u64 {
        let at = self.parts.partition_point(|part| part.plain.end < plain);
        self.parts
            .get(at)
            .or(self.parts.back())
            .map_or(0, |part| part.within(plain.clamp(part.plain.start, part.plain.end)))
    }

    /// A frame of the plain text at its place on the wire. The bytes of one that lies in one piece are those that it has there.
    fn on_wire(&self, frame: Frame) -> Frame {
        let place = |from, to| (self.begin(from), self.end(to));
        match frame {
            Frame::Request(request) => {
                let ((from, to), first) = (place(request.from, request.to), self.begin(request.first));
                let bytes = if request.is_alone() { to - first } else { request.bytes };
                Frame::Request(RequestFrame { from, to, first, bytes, ..request })
            }
            Frame::Reply(reply) => {
                let ((from, to), first) = (place(reply.from, reply.to), self.begin(reply.first));
                let bytes = if reply.is_alone() { to - first } else { reply.bytes };
                Frame::Reply(ReplyFrame { from, to, first, bytes, ..reply })
            }
            Frame::Unsolicited { from, to } => {
                let (from, to) = place(from, to);
                Frame::Unsolicited { from, to }
            }
            Frame::Control { direction, from, to } => {
                let (from, to) = place(from, to);
                Frame::Control { direction, from, to }
            }
            Frame::Lost { direction, from, to, why } => {
                let (from, to) = place(from, to);
                Frame::Lost { direction, from, to, why }
            }
        }
    }

    /// Frames of the plain text at their places on the wire; `open_from`: where in the plain text the oldest began that has not ended.
    pub fn frames_on_wire(&mut self, frames: &mut [Frame], open_from: Option<u64>) {
        let framed_to = frames.iter().map(|frame| frame.range().end).max();
        frames.iter_mut().for_each(|frame| *frame = self.on_wire(*frame));
        if let Some(framed_to) = framed_to {
            self.forget(open_from.map_or(framed_to, |open| open.min(framed_to)));
        }
    }
}

/// What the library gives of what was received.
#[derive(Debug)]
pub struct Incoming {
    /// The plain text.
    pub stream: PlainStream,
    /// Receive calls since the last text: when, and up to which place.
    calls: VecDeque<(u64, u64)>,
    /// Bytes up to here were received.
    received: u64,
    /// … and up to here given as plain text.
    given: u64,
    /// When the library had nothing to give, so much had been received: before it lies nothing, or the beginning of a record. `None`: no call was
    /// seen yet, and before the first text is the handshake.
    exhausted: Option<u64>,
    overhead: u64,
}

impl Default for Incoming {
    fn default() -> Self {
        Incoming {
            stream: PlainStream::default(),
            calls: VecDeque::new(),
            received: 0,
            given: 0,
            exhausted: None,
            overhead: OVERHEAD,
        }
    }
}

impl Incoming {
    /// Bytes of an alert on the wire: its level and what it says, and what every record has.
    pub fn alert_bytes(&self) -> u32 {
        2 + self.overhead as u32
    }

    /// A receive call returned bytes up to this place.
    pub fn received(&mut self, ts_ns: u64, upto: u64) {
        self.calls.push_back((ts_ns, upto));
        self.received = upto;
    }

    /// The library had nothing to give.
    pub fn gave_nothing(&mut self) {
        self.exhausted = Some(self.received);
        self.calls.clear();
    }

    /// A call that began at this time, ns, gave so many bytes. Returns the place of the first in the plain text.
    pub fn gave(&mut self, bytes: u64, begin_ns: u64) -> u64 {
        let wire = self.record(bytes, begin_ns);
        self.given = wire.end;
        self.calls.clear();
        self.stream.push(bytes, wire)
    }

    fn record(&mut self, bytes: u64, begin_ns: u64) -> Range<u64> {
        let received = self.received;
        let is_nested = self.calls.back().is_some_and(|&(ts, _)| ts >= begin_ns);
        // What the call itself received comes after what was exhausted before.
        let call_before = self.calls.iter().rev().find(|(ts, _)| *ts < begin_ns).map(|&(_, upto)| upto);
        let before = call_before.or((self.given > 0).then_some(self.given));
        let exhausted = if is_nested { self.exhausted.max(before) } else { self.exhausted };
        let start = self.given.max(exhausted.unwrap_or(0));
        // Too little is left for another record behind it.
        let overhead = received.saturating_sub(start + bytes);
        if exhausted.is_some() && OVERHEADS.contains(&overhead) && overhead <= self.overhead + OVERHEADS.start {
            self.overhead = overhead;
            return start..received;
        }
        let latest = received.saturating_sub(bytes + self.overhead);
        let from = if exhausted.is_some() { start.min(latest) } else { latest }.max(self.given);
        let to = (from + bytes + self.overhead).min(received);
        // The rest of a record of which others were given before.
        if from < to { from..to } else { received.saturating_sub(1)..received }
    }
}

/// What the library took, and what was sent of it.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// The plain text.
    pub stream: PlainStream,
    /// Where the oldest reply began in the plain text that has not ended, if others ended since.
    pub open_from: Option<u64>,
    /// Send calls since the last text: when, and their bytes.
    calls: VecDeque<(u64, Range<u64>)>,
    /// When the call began that has not taken its bytes yet.
    begun_ns: Option<u64>,
    /// The library itself sends what it takes: what it sent last ends here.
    sent_to: Option<u64>,
    /// Taken and not sent: how many bytes, and those that were kept.
    pub pending: Vec<(u64, Vec<u8>)>,
    /// What was sent of these so far.
    flushed: Option<Range<u64>>,
}

/// Send calls that are remembered until the library says what they were of.
const KEPT_CALLS: usize = 4096;

impl Outgoing {
    /// A send call of these bytes.
    pub fn sent(&mut self, ts_ns: u64, wire: Range<u64>) {
        if self.calls.len() == KEPT_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back((ts_ns, wire));
    }

    /// The library did not take anything yet, in a call that began at this time, ns: it will be called with the same bytes.
    pub fn took_nothing(&mut self, begin_ns: u64) {
        self.begun_ns.get_or_insert(begin_ns);
    }

    /// What was sent in the call that began at this time, ns, and those before it with the same bytes: of which the library took what it took.
    /// `None`: it sends later. Of a library that sends itself the event is lost where there is none: then nothing is known to be sent.
    pub fn sent_in(&mut self, begin_ns: u64) -> Option<Range<u64>> {
        let begin_ns = self.begun_ns.take().unwrap_or(begin_ns);
        let nested = self.calls.iter().find(|(ts, _)| *ts >= begin_ns).map(|(_, wire)| wire.start);
        let wire = nested.zip(self.calls.back()).map(|(from, (_, last))| from..last.end);
        self.calls.clear();
        self.sent_to = wire.as_ref().map(|wire| wire.end).or(self.sent_to);
        wire.or(self.sent_to.map(|end| end..end))
    }

    /// The library took so many bytes, which became these on the wire. Returns the place of the first in the plain text.
    pub fn took(&mut self, bytes: u64, wire: Range<u64>) -> u64 {
        self.stream.push(bytes, wire)
    }

    /// A send call of these bytes while texts are pending. Returns them, each with its part of what was sent, when that is as much as they take.
    pub fn flush(&mut self, wire: Range<u64>) -> Vec<(u64, Vec<u8>, Range<u64>)> {
        let flushed = self.flushed.take().map_or(wire.start, |before| before.start)..wire.end;
        let whole: u64 = self.pending.iter().map(|(bytes, _)| bytes).sum();
        let records: u64 = self.pending.iter().map(|(bytes, _)| bytes.div_ceil(RECORD_BYTES)).sum();
        if flushed.end - flushed.start < whole + records * OVERHEADS.start {
            self.flushed = Some(flushed);
            return vec![];
        }
        let sent = Part { plain: 0..whole, wire: flushed };
        let mut at = 0;
        let shares = std::mem::take(&mut self.pending).into_iter().map(|(bytes, captured)| {
            let (from, to) = (at, at + bytes);
            at = to;
            (bytes, captured, sent.within(from)..sent.within(to))
        });
        shares.collect()
    }
}

/// Both directions of a TLS connection.
#[derive(Debug, Default)]
pub struct Tls {
    /// To the server.
    pub incoming: Incoming,
    /// To the client.
    pub outgoing: Outgoing,
    /// Some of its plain text was read.
    pub is_read: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts by how many bytes they have; each is a record of 22 bytes more.
    fn records(texts: &[u64]) -> Vec<Range<u64>> {
        let mut at = 0;
        let mut record = |bytes: &u64| {
            let from = at;
            at += bytes + 22;
            from..at
        };
        texts.iter().map(&mut record).collect()
    }

    #[test]
    fn a_record_is_told_from_other_bytes() {
        assert!(is_record(&[22, 3, 1, 2, 0, 1]) && is_record(&[23, 3, 3, 0, 40]));
        assert!(!is_record(b"GET / HTTP/1.1") && !is_record(&[23, 3, 3, 66, 0]) && !is_record(&[22, 3, 1]));
        assert!(!is_record(&[0, 0, 4, 8, 0, 0]), "a frame of HTTP/2");
    }

    /// A call that receives a record and gives it: with a handshake before, which nobody gave. Of TLS 1.2 records are longer.
    #[test]
    fn what_a_call_receives_itself_is_its_record() {
        let mut incoming = Incoming::default();
        incoming.received(10, 600);
        incoming.received(110, 729);
        assert_eq!(incoming.gave(100, 90), 0);
        assert_eq!(incoming.stream.begin(0)..incoming.stream.end(100), 600..729);
        let mut incoming = Incoming::default();
        incoming.received(10, 600);
        incoming.received(100, 605);
        incoming.received(110, 722);
        assert_eq!(incoming.gave(100, 90), 0);
        assert_eq!(incoming.stream.begin(0)..incoming.stream.end(100), 600..722);
        incoming.received(200, 727);
        incoming.received(210, 844);
        assert_eq!(incoming.gave(100, 190), 100);
        assert_eq!(incoming.stream.begin(100)..incoming.stream.end(200), 722..844);
    }

    /// Buffers in memory: what was received is given afterwards, several records at a time, and nothing is left.
    #[test]
    fn records_that_were_received_together_lie_one_behind_the_other() {
        let texts = [10, 300, 16_384, 1];
        let wire = records(&texts);
        let mut incoming = Incoming::default();
        incoming.gave_nothing();
        incoming.received(10, wire[3].end);
        let mut plain = 0;
        for (bytes, wire) in texts.iter().zip(&wire) {
            assert_eq!(incoming.gave(*bytes, 20), plain);
            assert_eq!(incoming.stream.begin(plain)..incoming.stream.end(plain + bytes), *wire);
            plain += bytes;
        }
        incoming.gave_nothing();
        // Control records that nobody gave, and half of a record: it began where nothing was left.
        incoming.received(30, wire[3].end + 40);
        incoming.gave_nothing();
        incoming.received(40, wire[3].end + 40 + 1_000);
        incoming.gave_nothing();
        incoming.received(50, wire[3].end + 40 + 5_022);
        incoming.gave(5_000, 55);
        assert_eq!(
            incoming.stream.begin(plain)..incoming.stream.end(plain + 5_000),
            wire[3].end + 40..wire[3].end + 5_062
        );
    }

    #[test]
    fn a_connection_that_is_older_than_the_recording_has_its_last_record() {
        for begin_ns in [5, 20] {
            let mut incoming = Incoming::default();
            incoming.received(10, 10_000);
            incoming.gave(500, begin_ns);
            assert_eq!(incoming.stream.begin(0)..incoming.stream.end(500), 10_000 - 522..10_000);
            // Then it tells how many bytes more there are: 29 of TLS 1.2.
            incoming.received(30, 10_129);
            incoming.gave(100, 25);
            assert_eq!(incoming.stream.begin(500)..incoming.stream.end(600), 10_000..10_129);
        }
    }

    /// A buffer that is smaller than a record: its rest comes with calls that receive nothing.
    #[test]
    fn the_parts_of_a_record_are_inside_of_it() {
        let mut incoming = Incoming::default();
        incoming.gave_nothing();
        incoming.received(10, 1_022);
        let parts = [400, 400, 200].map(|bytes| {
            let from = incoming.gave(bytes, 20);
            incoming.stream.begin(from)..incoming.stream.end(from + bytes)
        });
        assert_eq!(parts[0].start, 0);
        assert!(parts.iter().all(|part| part.start < part.end && part.end <= 1_022), "{parts:?}");
        assert!(parts.is_sorted_by_key(|part| part.end), "{parts:?}");
    }

    #[test]
    fn what_was_sent_in_a_call_is_what_it_took() {
        let mut outgoing = Outgoing::default();
        outgoing.sent(5, 0..300); // the handshake
        outgoing.sent(20, 300..450);
        outgoing.sent(30, 450..500);
        assert_eq!(outgoing.sent_in(15), Some(300..500));
        // No room for all of it at first.
        outgoing.sent(50, 500..900);
        outgoing.took_nothing(45);
        outgoing.sent(90, 900..1_000);
        assert_eq!(outgoing.sent_in(85), Some(500..1_000));
        assert_eq!(outgoing.sent_in(95), Some(1_000..1_000), "the event of its send call is lost");
        assert_eq!(Outgoing::default().sent_in(95), None, "it has a buffer in memory");
    }

    #[test]
    fn texts_that_were_sent_together_share_the_bytes() {
        let pending = vec![(100, vec![1]), (300, vec![2])];
        let mut outgoing = Outgoing { pending, ..Outgoing::default() };
        let shares = outgoing.flush(1_000..1_444);
        assert_eq!(shares, [(100, vec![1], 1_000..1_111), (300, vec![2], 1_111..1_444)]);
        assert!(outgoing.pending.is_empty());
        // One that takes several calls: a piece of 82,536 bytes was taken for all of it.
        outgoing.pending = vec![(100_100, vec![])];
        assert_eq!(outgoing.flush(1_444..83_980), []);
        assert_eq!(outgoing.flush(83_980..101_698), [(100_100, vec![], 1_444..101_698)]);
    }
}
