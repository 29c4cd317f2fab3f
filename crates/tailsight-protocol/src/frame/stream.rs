//! One direction of a flow. In: its segments. Out: messages and lost ranges, which tile it.

use super::{Segment, Why};
use crate::ProtocolError;
use crate::grammar::{Asked, Grammar, Unseen};

/// A part of the stream.
pub(super) enum Piece<T> {
    /// A message, and whether its end was concluded.
    Message { from: u64, to: u64, out: T, inferred: bool },
    /// Of the connection itself, between messages.
    Control { from: u64, to: u64 },
    /// No message is known here.
    Lost { from: u64, to: u64, why: Why },
}

/// Who takes the parts.
pub(super) trait Sink<T>: Asked {
    fn piece(&mut self, piece: Piece<T>);

    /// Messages are being lost from here on (said at each segment without one; the range itself comes when it ends).
    fn losing(&mut self);

    /// The connection is no longer this protocol's.
    fn switched(&self) -> bool;
}

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Stream<G> {
    grammar: G,
    /// Whether the first segment is the connection's first.
    from_start: bool,
    /// The place behind the last segment.
    next: Option<u64>,
    /// Where the present message began.
    start: u64,
    /// A part of the present message was concluded.
    inferred: bool,
    /// Where messages were lost, and why.
    lost: Option<(u64, Why)>,
}

impl<G: Grammar + Default> Stream<G> {
    pub(super) fn new(from_start: bool) -> Self {
        let mut grammar = G::default();
        if !from_start {
            grammar.reset();
        }
        Self { grammar, from_start, next: None, start: 0, inferred: false, lost: None }
    }

    /// Where the oldest message began that has not ended, if others may have ended since.
    pub(super) fn open_from(&self) -> Option<u64> {
        let (next, bytes) = (self.next?, self.grammar.open_bytes());
        (bytes > 0 && self.lost.is_none()).then(|| next.saturating_sub(bytes))
    }

    /// Before its first segment: bytes up to here passed that are in no message, and the next one begins where a segment begins like one.
    pub(super) fn lost_until(&mut self, passed: Option<u64>) {
        if let Some(passed) = passed {
            self.from_start = false;
            self.grammar.reset();
            (self.start, self.next, self.lost) = (passed, Some(passed), Some((passed, Why::NotABeginning)));
        }
    }

    fn lose(&mut self, why: Why, sink: &mut impl Sink<G::Out>) {
        self.lost.get_or_insert((self.start, why));
        self.grammar.reset();
        self.inferred = false;
        sink.losing();
    }

    /// A message ended at `to`.
    fn message(&mut self, to: u64, out: G::Out, sink: &mut impl Sink<G::Out>) {
        sink.piece(Piece::Message { from: self.start, to, out, inferred: self.inferred });
        (self.start, self.inferred) = (to, false);
    }

    /// Nothing of a message was taken since the last one, up to `at`.
    fn between(&mut self, at: u64, sink: &mut impl Sink<G::Out>) {
        if self.start < at && self.grammar.is_between() {
            sink.piece(Piece::Control { from: self.start, to: at });
            self.start = at;
        }
    }

    /// The next segment, in stream order.
    pub(super) fn segment(&mut self, segment: &Segment<'_>, sink: &mut impl Sink<G::Out>) {
        let kept = usize::try_from(segment.len).unwrap_or(usize::MAX).min(segment.captured.len());
        let mut captured = &segment.captured[..kept];
        let mut at = segment.offset;
        let end = at.saturating_add(segment.len);
        if end == at {
            return;
        }
        let next = *self.next.get_or_insert_with(|| {
            self.start = at;
            if !self.from_start && !G::begins(captured) {
                self.lost = Some((at, Why::NotABeginning));
            }
            at
        });
        if end <= next {
            return;
        }
        if at > next {
            if self.lost.is_none() {
                self.unseen(next, Unseen { bytes: at - next, to_segment_end: false }, Why::Gap, sink);
            }
        } else {
            let again = usize::try_from(next - at).unwrap_or(usize::MAX);
            captured = captured.get(again..).unwrap_or_default();
            at = next;
        }
        self.next = Some(end);
        if self.lost.is_none() && sink.switched() {
            return self.lose(Why::Switched, sink);
        }
        if let Some((from, why)) = self.lost {
            if why == Why::Switched || !G::begins(captured) {
                return sink.losing();
            }
            // Empty where a flow was decided: what passed before has its ranges.
            if from < at {
                sink.piece(Piece::Lost { from, to: at, why });
            }
            self.lost = None;
            self.start = at;
        }
        while !captured.is_empty() {
            match self.grammar.step(captured, sink) {
                Ok(step) => {
                    captured = &captured[step.used..];
                    at += step.used as u64;
                    if let Some(out) = step.out {
                        self.message(at, out, sink);
                        if sink.switched() {
                            return self.lose(Why::Switched, sink);
                        }
                    }
                    self.between(at, sink);
                }
                Err(error) => {
                    let large = matches!(error, ProtocolError::TooLarge { .. });
                    return self.lose(if large { Why::TooLarge } else { Why::Garbage }, sink);
                }
            }
        }
        self.unseen(at, Unseen { bytes: end - at, to_segment_end: true }, Why::HeadNotCaptured, sink);
    }

    /// Bytes from `at` on were not seen.
    fn unseen(&mut self, mut at: u64, mut unseen: Unseen, why: Why, sink: &mut impl Sink<G::Out>) {
        while unseen.bytes > 0 {
            match self.grammar.skip(unseen, sink) {
                Some(skip) if skip.used > 0 => {
                    at += skip.used;
                    unseen.bytes -= skip.used;
                    self.inferred |= skip.inferred;
                    if let Some(out) = skip.out {
                        self.message(at, out, sink);
                    }
                    self.between(at, sink);
                }
                _ => return self.lose(why, sink),
            }
        }
    }

    /// The recording ended: what is open is a message that this ends, or lost.
    pub(super) fn finish(&mut self, sink: &mut impl Sink<G::Out>) {
        let Some(next) = self.next else { return };
        if let Some((from, why)) = self.lost.take() {
            if from < next {
                sink.piece(Piece::Lost { from, to: next, why });
            }
        } else if let Ok(Some(out)) = self.grammar.close(sink) {
            self.message(next, out, sink);
        } else if self.start < next {
            sink.piece(Piece::Lost { from: self.start, to: next, why: Why::Unfinished });
        }
        self.grammar.reset();
        self.start = next;
    }
}
