//! Joins payload pieces. In: packet events and the Payload events after them, for each core in order. Out: the first bytes of each packet,
//! by a number that the packet's range keeps until it is parsed.
//!
//! The pieces of a packet come directly after its event on its core, with nothing but interrupts between them. Each has its position,
//! its direction and the low byte of the sequence number. A piece that does not match (events were lost) ends the capture, because the
//! parser cannot use what comes after a gap.

use std::collections::VecDeque;

use tailsight_trace::event::Kind;
use tailsight_trace::{Event, FlowKey, fields};

/// Bytes of one piece.
const PIECE: u32 = 24;
/// Bytes of captures that are remembered; a request that waits longer than this for its receive call is not framed.
const MOST_BYTES: usize = 256 << 20;
/// What a capture costs beyond its bytes.
const OVERHEAD: usize = 48;

/// A packet whose pieces are coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Its capture.
    pub id: u32,
    /// Its flow.
    pub key: FlowKey,
    /// Its first byte.
    pub seq: u32,
    /// Its payload bytes.
    pub len: u32,
    /// When it was seen, ns.
    pub ts: u64,
    /// Whether it goes out.
    pub out: bool,
    next: u32,
}

impl Open {
    /// The packet of an event.
    pub fn of(event: &Event, id: u32, out: bool) -> Open {
        let fields::Packet { sequence, bytes, .. } = fields::Packet::of(event);
        Open { id, key: FlowKey::of(event), seq: sequence, len: bytes, ts: event.ts, out, next: 0 }
    }
}

#[derive(Clone, Debug)]
struct Kept {
    seq: u32,
    bytes: Vec<u8>,
}

/// The captures of a run.
#[derive(Clone, Debug)]
pub struct Captures {
    /// Pieces of a packet at most.
    pieces: u32,
    open: Vec<Option<Open>>,
    kept: VecDeque<Kept>,
    /// The number of the first of `kept`.
    first: u32,
    bytes: usize,
}

impl Captures {
    /// For a run that kept this many bytes of each segment.
    pub fn new(cores: usize, bytes: u32) -> Captures {
        Captures { pieces: bytes.div_ceil(PIECE), open: vec![None; cores], kept: VecDeque::new(), first: 1, bytes: 0 }
    }

    /// A packet: pieces of it may follow. Returns the number of its capture, never 0.
    pub fn begin(&mut self, cpu: u16, event: &Event, out: bool) -> u32 {
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.bytes.len() + OVERHEAD;
            self.first += 1;
        }
        let id = self.first + self.kept.len() as u32;
        self.kept.push_back(Kept { seq: fields::Packet::of(event).sequence, bytes: Vec::new() });
        self.bytes += OVERHEAD;
        if let Some(place) = self.open.get_mut(usize::from(cpu)) {
            *place = Some(Open::of(event, id, out));
        }
        id
    }

    /// A piece. Returns the packet when this was its last.
    pub fn piece(&mut self, cpu: u16, event: &Event) -> Option<Open> {
        let place = self.open.get_mut(usize::from(cpu))?;
        let open = place.as_mut()?;
        let fields::Piece { number, outgoing, low_sequence, payload } = fields::Piece::of(event);
        let number = u32::from(number);
        let follows = number == open.next && (outgoing == 1) == open.out && low_sequence == open.seq as u8;
        if !follows || number * PIECE >= open.len {
            return place.take();
        }
        let kept = &mut self.kept[(open.id - self.first) as usize].bytes;
        let mut piece = [0u8; PIECE as usize];
        for (to, word) in piece.chunks_exact_mut(8).zip(payload) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        let n = (open.len - number * PIECE).min(PIECE) as usize;
        kept.extend_from_slice(&piece[..n]);
        self.bytes += n;
        open.next += 1;
        if open.next >= self.pieces || open.next * PIECE >= open.len { place.take() } else { None }
    }

    /// No further piece can come on this core; returns the packet that waited for some.
    pub fn close(&mut self, cpu: u16) -> Option<Open> {
        self.open.get_mut(usize::from(cpu))?.take()
    }

    /// Closes the oldest packet of the same flow and direction on another core that is older; returns it and its core.
    /// (Without any piece, nothing else says that it has all of its own.)
    pub fn close_older(&mut self, than: &Open) -> Option<(Open, u16)> {
        let older = |o: &Open| o.key == than.key && o.out == than.out && o.ts < than.ts;
        let open = self.open.iter().enumerate().filter_map(|(cpu, o)| o.filter(older).map(|o| (o.ts, cpu)));
        let (_, cpu) = open.min()?;
        Some((self.open[cpu].take()?, cpu as u16))
    }

    /// The bytes of a capture from a sequence number on.
    pub fn from(&self, id: u32, seq: u32) -> &[u8] {
        let kept = id.checked_sub(self.first).and_then(|at| self.kept.get(at as usize));
        kept.and_then(|k| k.bytes.get(seq.wrapping_sub(k.seq) as usize..)).unwrap_or_default()
    }
}

/// Whether pieces of the packet before may still come behind an event of this kind. At the hooks softirqs are off, so that
/// only hard interrupts come in between.
pub fn may_interrupt(kind: Kind) -> bool {
    use Kind::*;
    matches!(
        kind,
        Payload
            // Between a packet and its payload.
            | RxHardware
            | IrqEntry
            | IrqExit
            | VectorEntry
            | VectorExit
            | SchedWaking
            | SchedWakeup
            | IpiSend
            | CsdQueue
            | CsdEntry
            | CsdExit
            | Lost
            | Steal
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(seq: u32, len: u32) -> Event {
        Event { b: u64::from(seq) << 32, c: u64::from(len), ..Event::default() }
    }
    fn piece(number: u16, out: bool, seq: u32, fill: u8) -> Event {
        let word = u64::from_ne_bytes([fill; 8]);
        let aux = number | u16::from(out) << 7 | (seq as u16) << 8;
        Event { aux, a: word, b: word, c: word, ..Event::default() }
    }

    #[test]
    fn pieces_of_two_cores_are_put_together_and_cut_to_the_packet() {
        let mut c = Captures::new(2, 192);
        let first = c.begin(0, &packet(1000, 50), false);
        assert_eq!(c.piece(0, &piece(0, false, 1000, 1)), None);
        let second = c.begin(1, &packet(5, 20), true);
        assert_eq!(c.piece(1, &piece(0, true, 5, 9)).map(|o| (o.id, o.out)), Some((second, true)));
        assert_eq!(c.piece(0, &piece(1, false, 1000, 2)), None);
        assert_eq!(c.piece(0, &piece(2, false, 1000, 3)).map(|o| o.id), Some(first));
        assert_eq!(c.from(first, 1000), [[1u8; 24].as_slice(), &[2; 24], &[3; 2]].concat());
        assert_eq!(c.from(first, 1047), [2, 3, 3]);
        assert_eq!(c.from(second, 5), [9; 20]);
        assert!(c.from(first, 999).is_empty() && c.from(first, 1051).is_empty() && c.from(0, 0).is_empty());
        assert!(c.from(77, 0).is_empty());
    }

    #[test]
    fn pieces_that_do_not_fit_end_the_capture() {
        let wrong = [piece(1, false, 7, 1), piece(0, true, 7, 1), piece(0, false, 8, 1)];
        for event in wrong {
            let mut c = Captures::new(1, 192);
            let id = c.begin(0, &packet(7, 100), false);
            assert_eq!(c.piece(0, &event).map(|o| o.id), Some(id));
            assert_eq!(c.piece(0, &piece(0, false, 7, 1)), None, "nothing is open any more");
            assert!(c.from(id, 7).is_empty());
        }
    }

    #[test]
    fn a_capture_ends_with_the_pieces_that_were_asked_for() {
        let mut c = Captures::new(1, 48);
        let id = c.begin(0, &packet(0, 1000), false);
        assert_eq!(c.piece(0, &piece(0, false, 0, 1)), None);
        assert_eq!(c.piece(0, &piece(1, false, 0, 1)).map(|o| o.id), Some(id));
        c.begin(0, &packet(0, 1000), true);
        assert!(c.close(0).is_some_and(|o| o.out) && c.close(0).is_none());
    }
}
