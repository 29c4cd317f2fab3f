//! Where decoding can begin: the synchronisation points (PSB packets) of a core's trace.
//!
//! In: the trace, read once in blocks. Out: [`Psb`]s with the time-stamp counter that stands behind each, and from them [`Piece`]s:
//! sections between two of them, each decoded by itself. Synchronisation points are many where the file is large: they are not kept.

use std::fs::File;

use crate::container::Queue;
use crate::gap::Gap;

/// The packet.
const PSB: [u8; 16] = [0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82];
/// Read at once: so little that it stays in the processor's cache.
const BLOCK: usize = 1 << 18;
/// The packets behind a PSB up to its end are shorter than this.
const HEADER: usize = 256;
/// What is decoded at once, and how much of the trace is in memory for it.
pub const PIECE: u64 = 1 << 18;

/// A synchronisation point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Psb {
    /// Where in the queue's trace, bytes.
    pub at: u64,
    /// The time-stamp counter behind it; `None`: there is none.
    pub tsc: Option<u64>,
    /// Where control flow was; `None`: tracing was off.
    pub ip: Option<u64>,
}

/// A section of trace that begins with a PSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub from: u64,
    /// Behind the last byte: the next piece's PSB.
    pub to: u64,
    /// The counter at its beginning, or of the last PSB before that had one.
    pub tsc: u64,
    /// Where control flow is at its end; `None`: tracing is off there, or it is not known to go on.
    pub border: Option<u64>,
    /// Why trace was lost right before it.
    pub lost: Option<Gap>,
    /// Trace was lost right behind it: it may end in the middle of a packet.
    pub cut: bool,
    /// It is to be decoded.
    pub wanted: bool,
    /// It is to be decoded up to this time only, ns.
    pub until_ns: Option<u64>,
}

/// Gives the synchronisation points of a queue to `each`, in order.
///
/// # Errors
/// Those of reading.
pub fn find(queue: &Queue, file: &File, mut each: impl FnMut(Psb)) -> std::io::Result<()> {
    let (mut from, mut last, mut bytes) = (0, None, Vec::new());
    let finder = memchr::memmem::Finder::new(&PSB);
    while from < queue.len() {
        queue.read(file, from, BLOCK + HEADER, &mut bytes)?;
        let mut at = 0;
        while let Some(distance) = finder.find(&bytes[at..]) {
            at += distance;
            // What begins behind the block is the next one's.
            if at >= BLOCK {
                break;
            }
            let (tsc, ip) = behind(&bytes[at + PSB.len()..]);
            let psb = Psb { at: from + at as u64, tsc, ip };
            // Longer runs of the pattern than one packet are one place.
            if last.is_none_or(|last| psb.at >= last + PSB.len() as u64) {
                last = Some(psb.at);
                each(psb);
            }
            at += PSB.len();
        }
        from += BLOCK as u64;
    }
    Ok(())
}

/// Cuts a trace into pieces, as its synchronisation points come.
#[derive(Debug)]
pub struct Cutter<'a> {
    len: u64,
    size: u64,
    /// Places, in order, at which trace was lost, and why.
    losses: &'a [(u64, Gap)],
    tsc: Option<u64>,
    out: Vec<Piece>,
}

impl<'a> Cutter<'a> {
    /// Of a trace of `len` bytes, into pieces of about `size` bytes. `losses`: places, in order, at which trace was lost, and why: no piece
    /// goes over one.
    pub fn new(len: u64, size: u64, losses: &'a [(u64, Gap)]) -> Cutter<'a> {
        Cutter { len, size, losses, tsc: None, out: Vec::new() }
    }

    /// The next synchronisation point.
    pub fn add(&mut self, psb: Psb) {
        if let (None, Some(tsc)) = (self.tsc, psb.tsc) {
            self.out.iter_mut().for_each(|piece| piece.tsc = tsc);
        }
        self.tsc = psb.tsc.or(self.tsc);
        let mut lost = None;
        while let Some((&(at, why), rest)) = self.losses.split_first().filter(|((at, _), _)| *at <= psb.at) {
            cut(&mut self.out, at);
            (lost, self.losses) = (Some(why), rest);
        }
        match self.out.last_mut() {
            Some(last) if lost.is_none() && psb.at - last.from < self.size => {}
            last => {
                if let Some(last) = last.filter(|_| lost.is_none()) {
                    (last.to, last.border) = (psb.at, psb.ip);
                }
                let tsc = self.tsc.unwrap_or(0);
                let (from, to) = (psb.at, self.len);
                self.out.push(Piece { from, to, tsc, border: None, lost, cut: false, wanted: true, until_ns: None });
            }
        }
    }

    /// The pieces that are complete: all since they were last taken, but for the last one and that before it, of which more may be said.
    pub fn complete(&mut self) -> std::vec::Drain<'_, Piece> {
        let n = if self.tsc.is_some() { self.out.len().saturating_sub(2) } else { 0 };
        self.out.drain(..n)
    }

    /// All that were not taken. Where nothing follows a loss, the last is one of no bytes.
    pub fn finish(mut self) -> Vec<Piece> {
        let (tsc, len) = (self.tsc.unwrap_or(0), self.len);
        for (at, why) in self.losses {
            cut(&mut self.out, *at);
            let (from, to, lost) = (len, len, Some(*why));
            self.out.push(Piece { from, to, tsc, border: None, lost, cut: false, wanted: true, until_ns: None });
        }
        self.out
    }
}

/// The last piece ends there, at the latest.
fn cut(out: &mut [Piece], at: u64) {
    if let Some(last) = out.last_mut() {
        last.to = last.to.min(at).max(last.from);
        (last.border, last.cut) = (None, true);
    }
}

/// Puts a piece behind others: joined to the last where both are wanted, to about `size` bytes, or neither is.
pub fn join(out: &mut Vec<Piece>, piece: Piece, size: u64) {
    match out.last_mut() {
        Some(last)
            if last.to == piece.from
                && piece.lost.is_none()
                && last.wanted == piece.wanted
                && (!piece.wanted || piece.to - last.from <= size) =>
        {
            (last.to, last.border, last.cut, last.until_ns) = (piece.to, piece.border, piece.cut, piece.until_ns);
        }
        _ => out.push(piece),
    }
}

/// The counter and the address in the packets between a PSB and its end.
fn behind(bytes: &[u8]) -> (Option<u64>, Option<u64>) {
    let (mut tsc, mut ip, mut at) = (None, None, 0);
    while let Some((len, packet)) = bytes.get(at..).and_then(packet) {
        let payload = bytes.get(at + 1..at + len).unwrap_or_default();
        let value = payload.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        match packet {
            Header::Tsc => tsc = Some(value),
            // Six bytes: the sign goes on.
            Header::Fup(3) => ip = Some((((value << 16).cast_signed()) >> 16).cast_unsigned()),
            Header::Fup(_) => ip = Some(value),
            Header::End => break,
            Header::Other => {}
        }
        at += len;
    }
    (tsc, ip)
}

enum Header {
    Tsc,
    /// How its address is written.
    Fup(u8),
    End,
    Other,
}

/// The length and the kind of a packet that may stand between a PSB and its end.
fn packet(bytes: &[u8]) -> Option<(usize, Header)> {
    Some(match *bytes.first()? {
        0x19 => (8, Header::Tsc),
        0x00 => (1, Header::Other),
        0x99 | 0x59 => (2, Header::Other),
        0x02 => match bytes.get(1)? {
            0x03 => (4, Header::Other),
            0x43 => (8, Header::Other),
            0x73 | 0xc8 => (7, Header::Other),
            0xc3 => (11, Header::Other),
            0x23 => (2, Header::End),
            _ => return None,
        },
        fup if fup & 0x1f == 0x1d => match fup >> 5 {
            0 => (1, Header::Other),
            1 => (3, Header::Fup(1)),
            2 => (5, Header::Fup(2)),
            form @ (3 | 4) => (7, Header::Fup(form)),
            6 => (9, Header::Fup(6)),
            _ => return None,
        },
        // CYC: each byte says whether another follows.
        cyc if cyc & 3 == 3 => {
            let mut len = 1;
            let mut more = cyc & 4 != 0;
            while more {
                more = bytes.get(len)? & 1 != 0;
                len += 1;
            }
            (len, Header::Other)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Chunk;

    fn psb(out: &mut Vec<u8>, tsc: Option<u8>) {
        out.extend(PSB);
        // CBR, then TSC, then the end.
        out.extend([2, 3, 20, 0]);
        if let Some(tsc) = tsc {
            // MODE, then FUP with six bytes of an address of the kernel, then TSC.
            out.extend([0x99, 1, 0x7d, 0, 0, 0, 0x81, 0xff, 0xff]);
            out.extend([0x19, tsc, 0, 0, 0, 0, 0, 1]);
        }
        out.extend([2, 0x23]);
    }

    #[test]
    fn points_are_found_also_across_blocks_and_have_their_time() {
        let mut trace = vec![0u8; 7];
        psb(&mut trace, Some(9));
        // The second one lies across the border of two blocks.
        trace.resize(BLOCK - 5, 0);
        psb(&mut trace, None);
        trace.resize(trace.len() + 100, 0);
        psb(&mut trace, Some(11));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &trace).unwrap();
        let len = trace.len() as u64;
        let queue = Queue { cpu: Some(0), tid: None, chunks: vec![Chunk { aux_offset: 0, before: 0, at: 0, len }] };
        let mut psbs = Vec::new();
        find(&queue, file.as_file(), |psb| psbs.push(psb)).unwrap();
        let pieces = |size, losses: &[(u64, Gap)]| {
            let (mut cutter, mut out) = (Cutter::new(len, size, losses), Vec::new());
            for psb in &psbs {
                cutter.add(*psb);
                out.extend(cutter.complete());
            }
            out.extend(cutter.finish());
            out
        };
        let join = |pieces: &[Piece], size| {
            let mut out = Vec::new();
            pieces.iter().for_each(|piece| join(&mut out, *piece, size));
            out
        };
        let third = len - 39;
        let (base, ip) = (1u64 << 48, Some(0xffff_ffff_8100_0000));
        assert_eq!(
            psbs,
            [
                Psb { at: 7, tsc: Some(base + 9), ip },
                Psb { at: BLOCK as u64 - 5, tsc: None, ip: None },
                Psb { at: third, tsc: Some(base + 11), ip },
            ]
        );
        let piece =
            |from, to, tsc| Piece { from, to, tsc, border: None, lost: None, cut: false, wanted: true, until_ns: None };
        let second = BLOCK as u64 - 5;
        let whole = pieces(1000, &[]);
        assert_eq!(whole, [piece(7, second, base + 9), piece(second, len, base + 9)]);
        let fine = pieces(1, &[]);
        assert_eq!(fine[1].border, ip);
        assert_eq!(join(&fine, 1000), [whole[0], whole[1]]);
        assert_eq!(join(&fine, u64::MAX), [piece(7, len, base + 9)]);
        // Trace was lost within the first piece, at the beginning of the third, and at the end.
        let losses = [(1000, Gap::Truncated), (third, Gap::Partial), (len, Gap::Truncated)];
        let cut = |piece: Piece| Piece { cut: true, ..piece };
        let lost = |lost, piece: Piece| Piece { lost: Some(lost), ..piece };
        assert_eq!(
            pieces(u64::MAX, &losses),
            [
                cut(piece(7, 1000, base + 9)),
                cut(lost(Gap::Truncated, piece(second, third, base + 9))),
                cut(lost(Gap::Partial, piece(third, len, base + 11))),
                lost(Gap::Truncated, piece(len, len, base + 11)),
            ]
        );
    }
}
