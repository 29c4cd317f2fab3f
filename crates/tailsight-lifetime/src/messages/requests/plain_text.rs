//! Plain text that TLS libraries gave and took. In: the events of the functions, and the pieces behind them; receive and send calls of threads.
//! Out: each text with the connection that carried it.
//!
//! The pieces of a text follow its event, of the same thread; other threads' events may lie between, for the library runs in user space.
//! An event names the library's own object. Which connection that is, is known where a call of the function itself received from one or sent on
//! one; a library that works on buffers in memory gives right after the thread received what that carried.

use rustc_hash::FxHashMap;
use tailsight_trace::{Event, FlowKey, fields};

/// Bytes of one piece.
const PIECE: u32 = 24;

/// What went through a function of a TLS library in one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainText {
    /// The thread that called it.
    pub tid: u32,
    /// When the call returned, ns.
    pub ts: u64,
    /// When it began, ns.
    pub begin_ns: u64,
    /// The library's object, as a number.
    pub object: u64,
    /// Whether it was taken, else it was given.
    pub out: bool,
    /// Bytes; 0: nothing was given or taken.
    pub bytes: u32,
    /// The first of them.
    pub captured: Vec<u8>,
}

/// A thread's last receive or send call on a connection with TLS.
#[derive(Clone, Copy, Debug)]
struct Call {
    ts: u64,
    key: FlowKey,
}

/// What carries an object's text.
#[derive(Clone, Copy, Debug)]
struct Carried {
    key: FlowKey,
    /// A call of the library itself received or sent there.
    is_certain: bool,
}

/// The texts of a run.
#[derive(Debug)]
pub struct PlainTexts {
    /// Pieces of a text at most.
    pieces: u32,
    /// By thread: the text whose pieces are coming.
    open: FxHashMap<u32, PlainText>,
    /// By thread: the last call of each direction, to the server and to the client.
    calls: FxHashMap<u32, [Option<Call>; 2]>,
    /// By object.
    carried: FxHashMap<u64, Carried>,
    /// By connection: its object.
    objects: FxHashMap<FlowKey, u64>,
}

impl PlainTexts {
    /// Of a run that kept so many bytes of each.
    pub fn new(bytes: u32) -> PlainTexts {
        PlainTexts {
            pieces: bytes.div_ceil(PIECE),
            open: FxHashMap::default(),
            calls: FxHashMap::default(),
            carried: FxHashMap::default(),
            objects: FxHashMap::default(),
        }
    }

    /// A call of a function returned. Returns its text where no piece follows. The thread's text before was taken by [`PlainTexts::close`].
    pub fn begin(&mut self, event: &Event) -> Option<PlainText> {
        let fields::PlainText { outgoing, connection, bytes, begin_ns } = fields::PlainText::of(event);
        let text = PlainText {
            tid: event.tid,
            ts: event.ts,
            begin_ns: event.ts.saturating_sub(u64::from((event.ts as u32).wrapping_sub(begin_ns))),
            object: connection,
            out: outgoing == 1,
            bytes,
            captured: Vec::new(),
        };
        if bytes == 0 {
            return Some(text);
        }
        self.open.insert(event.tid, text);
        None
    }

    /// A piece. Returns the text when this was its last.
    pub fn piece(&mut self, event: &Event) -> Option<PlainText> {
        let fields::Piece { number, outgoing, low_sequence, payload } = fields::Piece::of(event);
        let text = self.open.get_mut(&event.tid)?;
        let number = u32::from(number);
        let follows = (number * PIECE) as usize == text.captured.len()
            && (outgoing == 1) == text.out
            && low_sequence == text.object as u8
            && number * PIECE < text.bytes;
        if follows {
            let kept = (text.bytes - number * PIECE).min(PIECE) as usize;
            let bytes = payload.iter().flat_map(|word| word.to_ne_bytes());
            text.captured.extend(bytes.take(kept));
        }
        let is_whole = !follows || number + 1 >= self.pieces || (number + 1) * PIECE >= text.bytes;
        if is_whole { self.open.remove(&event.tid) } else { None }
    }

    /// The thread does something else: no further piece can come. Returns the text that waited for some.
    pub fn close(&mut self, tid: u32) -> Option<PlainText> {
        if self.open.is_empty() { None } else { self.open.remove(&tid) }
    }

    /// The recording ended: the texts that wait for pieces, in their order.
    pub fn close_rest(&mut self) -> Vec<PlainText> {
        let mut rest: Vec<PlainText> = self.open.drain().map(|(_, text)| text).collect();
        rest.sort_unstable_by_key(|text| (text.ts, text.tid));
        rest
    }

    /// A thread received on a connection with TLS, or sent.
    pub fn called(&mut self, tid: u32, out: bool, ts: u64, key: FlowKey) {
        self.calls.entry(tid).or_default()[usize::from(out)] = Some(Call { ts, key });
    }

    /// No text of this connection was read yet: what was known of one with the same addresses is so no more.
    pub fn is_unread(&mut self, key: FlowKey) {
        self.objects.remove(&key);
    }

    /// The connection that carried a text.
    pub fn carrier(&mut self, text: &PlainText) -> Option<FlowKey> {
        // A goroutine may have gone on in another thread behind its call, where others' calls were last. A connection has one object.
        let is_anothers = |call: &Call| self.objects.get(&call.key).is_some_and(|&object| object != text.object);
        let call = self.calls.get(&text.tid).and_then(|calls| calls[usize::from(text.out)]);
        let call = call.filter(|call| !is_anothers(call));
        let is_certain = call.is_some_and(|call| call.ts >= text.begin_ns);
        let carried = self.carried.get(&text.object);
        let call = call.filter(|call| {
            is_certain
                || !text.out
                    && match carried {
                        // The memory of an object may be another's after it.
                        Some(Carried { is_certain: true, .. }) => !self.objects.contains_key(&call.key),
                        Some(Carried { is_certain: false, .. }) | None => true,
                    }
        });
        let Some(Call { key, .. }) = call else { return carried.map(|carried| carried.key) };
        self.carried.insert(text.object, Carried { key, is_certain });
        self.objects.insert(key, text.object);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_trace::event::Kind;

    fn flow(remote: u64) -> FlowKey {
        FlowKey::of(&Event { kind: Kind::Recv as u8, a: 1, b: 443 << 16 | remote, ..Event::default() })
    }

    fn text(tid: u32, object: u64, out: bool, begin_ns: u64) -> PlainText {
        PlainText { tid, object, out, begin_ns, ts: begin_ns + 10, bytes: 5, captured: vec![] }
    }

    fn returned(tid: u32, object: u64, bytes: u32) -> Event {
        let fields = fields::PlainText { outgoing: 0, connection: object, bytes, begin_ns: 990 };
        fields.event(Kind::PlainText, 1_000, tid)
    }

    fn piece(tid: u32, number: u8, object: u64, fill: u8) -> Event {
        let payload = [u64::from_ne_bytes([fill; 8]); 3];
        let fields = fields::Piece { number, outgoing: 0, low_sequence: object as u8, payload };
        fields.event(Kind::PlainPiece, 1_001, tid)
    }

    #[test]
    fn pieces_of_two_threads_are_put_together_and_cut_to_the_text() {
        let mut texts = PlainTexts::new(48);
        assert_eq!(texts.begin(&returned(1, 0x107, 30)), None);
        assert_eq!(texts.begin(&returned(2, 0x208, 1_000)), None);
        assert_eq!(texts.piece(&piece(1, 0, 0x107, 1)), None);
        assert_eq!(texts.piece(&piece(2, 0, 0x208, 8)), None);
        let whole = texts.piece(&piece(1, 1, 0x107, 2)).unwrap();
        assert_eq!(
            (whole.object, whole.begin_ns, whole.captured.as_slice()),
            (0x107, 990, [[1; 24].as_slice(), &[2; 6]].concat().as_slice())
        );
        assert_eq!(texts.piece(&piece(2, 1, 0x208, 9)).map(|whole| whole.captured.len()), Some(48), "no more are kept");
        assert_eq!(texts.begin(&returned(1, 0x107, 0)).map(|nothing| nothing.bytes), Some(0));
        // A piece is missing: what follows it cannot be read.
        texts.begin(&returned(1, 0x107, 100));
        assert_eq!(texts.piece(&piece(1, 1, 0x107, 1)).map(|cut| cut.captured.len()), Some(0));
        texts.begin(&returned(1, 0x107, 100));
        assert!(texts.close(1).is_some() && texts.close(1).is_none());
    }

    #[test]
    fn an_object_is_carried_by_what_its_own_calls_receive_and_send_on() {
        let mut texts = PlainTexts::new(48);
        texts.called(1, false, 105, flow(1));
        assert_eq!(texts.carrier(&text(1, 7, false, 100)), Some(flow(1)), "in the call");
        texts.called(1, false, 205, flow(2));
        assert_eq!(texts.carrier(&text(1, 8, false, 200)), Some(flow(2)));
        // Given from what was received before; another connection was received from since.
        assert_eq!(texts.carrier(&text(1, 7, false, 300)), Some(flow(1)));
        texts.called(1, true, 405, flow(1));
        assert_eq!(texts.carrier(&text(1, 7, true, 400)), Some(flow(1)));
        assert_eq!(texts.carrier(&text(2, 9, false, 500)), None, "nobody knows");
        // The object was freed, and its memory is that of a connection whose handshake had received its first request.
        texts.called(1, false, 600, flow(3));
        assert_eq!(texts.carrier(&text(1, 7, false, 610)), Some(flow(3)));
    }

    /// Regression: a reply of Go was taken for one of another connection, whose goroutine had sent on the thread on which this one went on.
    #[test]
    fn what_another_connection_carries_is_none_of_an_object_s() {
        let mut texts = PlainTexts::new(48);
        for (object, remote) in [(7, 1), (8, 2)] {
            texts.called(1, false, 100 + object, flow(remote));
            assert_eq!(texts.carrier(&text(1, object, false, 100 + object)), Some(flow(remote)));
        }
        texts.called(2, true, 205, flow(2));
        assert_eq!(texts.carrier(&text(2, 7, true, 200)), Some(flow(1)));
        assert_eq!(texts.carrier(&text(2, 9, true, 200)), None, "that of a connection that nobody knows");
        // Another connection from the same port.
        texts.is_unread(flow(2));
        texts.called(2, false, 305, flow(2));
        assert_eq!(texts.carrier(&text(2, 9, false, 300)), Some(flow(2)));
    }

    #[test]
    fn an_object_in_memory_gives_what_its_thread_received_last() {
        let mut texts = PlainTexts::new(48);
        for (at, remote, object) in [(100, 1, 7), (200, 2, 8), (300, 1, 7), (400, 4, 8)] {
            texts.called(1, false, at, flow(remote));
            assert_eq!(texts.carrier(&text(1, object, false, at + 5)), Some(flow(remote)));
        }
        assert_eq!(texts.carrier(&text(1, 7, true, 500)), Some(flow(1)), "its replies go where its requests came from");
    }
}
