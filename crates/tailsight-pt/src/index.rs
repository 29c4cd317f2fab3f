//! Where decoding can begin: the synchronisation points (PSB packets) of a core's trace.
//!
//! In: the trace, read once in blocks. Out: [`Psb`]s with the time-stamp counter that stands behind each, and [`Piece`]s: stretches
//! between two of them, each decoded by itself.

use std::fs::File;

use crate::container::Queue;

/// The packet.
const PSB: [u8; 16] = [0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82];
/// Read at once.
const BLOCK: usize = 4 << 20;
/// The packets behind a PSB up to its end are shorter than this.
const HEADER: usize = 256;
/// What is decoded at once, and how much of the trace is in memory for it.
pub const PIECE: u64 = 1 << 20;

/// A synchronisation point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Psb {
    /// Where in the queue's trace, bytes.
    pub at: u64,
    /// The time-stamp counter behind it; `None`: there is none.
    pub tsc: Option<u64>,
}

/// A stretch of trace that begins with a PSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub from: u64,
    /// Behind the last byte: the next piece's PSB.
    pub to: u64,
    /// The counter at its beginning, or of the last PSB before that had one.
    pub tsc: u64,
}

/// Finds the synchronisation points of a queue.
///
/// # Errors
/// Those of reading.
pub fn find(queue: &Queue, file: &File) -> std::io::Result<Vec<Psb>> {
    let mut out: Vec<Psb> = Vec::new();
    let mut from = 0;
    let finder = memchr::memmem::Finder::new(&PSB);
    while from < queue.len() {
        let bytes = queue.read(file, from, BLOCK + HEADER)?;
        let mut at = 0;
        while let Some(found) = finder.find(&bytes[at..]) {
            at += found;
            // What begins behind the block is the next one's.
            if at >= BLOCK {
                break;
            }
            out.push(Psb { at: from + at as u64, tsc: tsc_behind(&bytes[at + PSB.len()..]) });
            at += PSB.len();
        }
        from += BLOCK as u64;
    }
    // Longer runs of the pattern than one packet are one place.
    out.dedup_by(|b, a| b.at < a.at + PSB.len() as u64);
    Ok(out)
}

/// Cuts a trace of `len` bytes into pieces of about `size` bytes.
pub fn pieces(psbs: &[Psb], len: u64, size: u64) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    let mut tsc = psbs.iter().find_map(|p| p.tsc).unwrap_or(0);
    for psb in psbs {
        tsc = psb.tsc.unwrap_or(tsc);
        match out.last_mut() {
            Some(last) if psb.at - last.from < size => {}
            last => {
                if let Some(last) = last {
                    last.to = psb.at;
                }
                out.push(Piece { from: psb.at, to: len, tsc });
            }
        }
    }
    out
}

/// The counter in the packets between a PSB and its end.
fn tsc_behind(bytes: &[u8]) -> Option<u64> {
    let mut at = 0;
    while at < bytes.len().min(HEADER) {
        let len = match bytes[at] {
            0x19 => {
                let tsc = bytes.get(at + 1..at + 8)?;
                return Some(tsc.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)));
            }
            0x00 => 1,
            0x99 | 0x59 => 2,
            0x02 => match bytes.get(at + 1)? {
                0x03 => 4,
                0x43 => 8,
                0x73 | 0xc8 => 7,
                0xc3 => 11,
                _ => return None,
            },
            fup if fup & 0x1f == 0x1d => match fup >> 5 {
                0 => 1,
                1 => 3,
                2 => 5,
                3 | 4 => 7,
                6 => 9,
                _ => return None,
            },
            // CYC: each byte says whether another follows.
            cyc if cyc & 3 == 3 => {
                let mut len = 1;
                let mut more = cyc & 4 != 0;
                while more {
                    more = bytes.get(at + len)? & 1 != 0;
                    len += 1;
                }
                len
            }
            _ => return None,
        };
        at += len;
    }
    None
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
        let queue = Queue { cpu: Some(0), tid: None, chunks: vec![Chunk { aux_offset: 0, at: 0, len }] };
        let found = find(&queue, file.as_file()).unwrap();
        let third = len - 30;
        let base = 1u64 << 48;
        assert_eq!(found, [
            Psb { at: 7, tsc: Some(base + 9) },
            Psb { at: BLOCK as u64 - 5, tsc: None },
            Psb { at: third, tsc: Some(base + 11) },
        ]);
        let cut = pieces(&found, len, 1000);
        assert_eq!(cut, [
            Piece { from: 7, to: BLOCK as u64 - 5, tsc: base + 9 },
            Piece { from: BLOCK as u64 - 5, to: len, tsc: base + 9 },
        ]);
        assert_eq!(pieces(&found, len, 1).len(), 3);
    }
}
