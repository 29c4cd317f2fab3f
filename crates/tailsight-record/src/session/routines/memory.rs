//! Memory of another process, read from outside.
//!
//! In: places. Out: their bytes, each whole or not at all. The process is neither stopped nor changed: what is read may be half old and half
//! new, and who reads checks that it is what it should be.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use tailsight_tasks::Memory;

/// Most places that the kernel takes in one call (`UIO_MAXIOV`).
const MOST_PLACES: usize = 1024;

/// The memory of a process, by its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfProcess(pub u32);

impl Memory for OfProcess {
    fn read_each(&self, places: &[(u64, usize)]) -> Vec<Option<Vec<u8>>> {
        let mut out = Vec::with_capacity(places.len());
        while out.len() < places.len() {
            let rest = &places[out.len()..];
            let part = &rest[..rest.len().min(MOST_PLACES)];
            let mut buffer = vec![0; part.iter().map(|&(_, bytes)| bytes).sum()];
            let place = |&(address, len): &(u64, usize)| RemoteIoVec { base: address as usize, len };
            let from: Vec<RemoteIoVec> = part.iter().map(place).collect();
            let to = &mut [IoSliceMut::new(&mut buffer)];
            let read = process_vm_readv(Pid::from_raw(self.0.cast_signed()), to, &from).unwrap_or(0);
            let mut at = 0;
            for &(_, bytes) in part {
                if at + bytes > read {
                    // The kernel stopped here; what comes after it is read in another call.
                    out.push(None);
                    break;
                }
                out.push(Some(buffer[at..at + bytes].to_vec()));
                at += bytes;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_a_whole_or_not_at_all() {
        let own = OfProcess(std::process::id());
        let bytes = *b"sixteen bytes ..";
        let at = bytes.as_ptr() as u64;
        assert_eq!(own.read(at, bytes.len()).as_deref(), Some(&bytes[..]));
        assert_eq!(own.read(8, 8), None);
        assert_eq!(own.word(at), Some(u64::from_le_bytes(*b"sixteen ")));
    }

    #[test]
    fn a_place_that_cannot_be_read_takes_no_other_with_it() {
        let bytes = [7u8; 16];
        let at = bytes.as_ptr() as u64;
        let mut places = vec![(at, 3); 2 * MOST_PLACES + 5];
        places[1] = (8, 8);
        places[MOST_PLACES + 9] = (16, 1);
        let read = OfProcess(std::process::id()).read_each(&places);
        assert_eq!(read.len(), places.len());
        let missing: Vec<usize> = (0..read.len()).filter(|&i| read[i].is_none()).collect();
        assert_eq!(missing, [1, MOST_PLACES + 9]);
        assert!(read.iter().flatten().all(|bytes| bytes == &[7, 7, 7]));
    }
}
