//! Control data of a received message. In: the bytes that the kernel wrote. Out: stamps, and to which send they belong.
//!
//! Read by offsets within the slice, so that control data that was cut off or is malformed ends the reading, whatever it says of
//! its own length. Layout: `struct cmsghdr` (length with header, level, type), data, padding to a word.

use std::mem::size_of;

/// Bytes before the data of a control message, and what the next one is aligned to.
const HEADER: usize = size_of::<libc::cmsghdr>();
const WORD: usize = size_of::<usize>();
/// Bytes of a `struct timespec`. `SO_TIMESTAMPING` gives three: software, unused, hardware.
const TIME: usize = size_of::<libc::timespec>();
const _: () = assert!(WORD == 8 && TIME == 16 && HEADER == 16, "the layouts below are those of 64-bit Linux");

/// The stamps of a message as the kernel gives them, ns; 0 where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Raw {
    /// The kernel's, CLOCK_REALTIME.
    pub(crate) wall_ns: u64,
    /// The NIC's, by its own clock.
    pub(crate) nic_ns: u64,
}

/// What control data says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Its stamps.
    pub(crate) stamps: Raw,
    /// On an error queue: which send was stamped.
    pub(crate) id: Option<u32>,
}

/// Reads control data.
pub(crate) fn read(mut rest: &[u8]) -> Said {
    let mut said = Said::default();
    while let Some(length) = word(rest, 0) {
        let Some((level, kind)) = int(rest, 8).zip(int(rest, 12)) else { break };
        let Some(data) = usize::try_from(length).ok().and_then(|end| rest.get(HEADER..end)) else { break };
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                let had = said.stamps;
                said.stamps.wall_ns = if had.wall_ns > 0 { had.wall_ns } else { time(data, 0) };
                said.stamps.nic_ns = if had.nic_ns > 0 { had.nic_ns } else { time(data, 2 * TIME) };
            }
            // struct sock_extended_err: errno u32, origin u8, type u8, code u8, pad u8, info u32, data u32.
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
                if data.get(4) == Some(&libc::SO_EE_ORIGIN_TIMESTAMPING) =>
            {
                said.id = int(data, 12).map(i32::cast_unsigned);
            }
            _ => {}
        }
        let next = (HEADER + data.len()).next_multiple_of(WORD);
        rest = rest.get(next..).unwrap_or_default();
    }
    said
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A `struct timespec`, ns; 0 where there is none or it is no time.
fn time(bytes: &[u8], at: usize) -> u64 {
    let parts = word(bytes, at).zip(word(bytes, at + 8));
    parts
        .filter(|(_, ns)| *ns < 1_000_000_000)
        .and_then(|(s, ns)| s.checked_mul(1_000_000_000)?.checked_add(ns))
        .filter(|ns| i64::try_from(*ns).is_ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + data.len()) as u64).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes
    }

    fn stamping(software: (i64, i64), hardware: (i64, i64)) -> Vec<u8> {
        let times = [software, (0, 0), hardware];
        let data: Vec<u8> = times.iter().flat_map(|(s, ns)| [s.to_ne_bytes(), ns.to_ne_bytes()].concat()).collect();
        message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &data)
    }

    fn error(level: i32, kind: i32, origin: u8, id: u32) -> Vec<u8> {
        let mut data = libc::ENOMSG.to_ne_bytes().to_vec();
        data.extend([origin, 0, 0, 0, 0, 0, 0, 0]);
        data.extend(id.to_ne_bytes());
        // The address of the offender.
        data.extend([0; 28]);
        message(level, kind, &data)
    }

    fn stamps(bytes: &[u8]) -> (u64, u64) {
        let stamps = read(bytes).stamps;
        (stamps.wall_ns, stamps.nic_ns)
    }

    #[test]
    fn software_hardware_both_or_neither() {
        assert_eq!(stamps(&stamping((5, 6), (0, 0))), (5_000_000_006, 0));
        assert_eq!(stamps(&stamping((0, 0), (7, 8))), (0, 7_000_000_008));
        assert_eq!(stamps(&stamping((5, 6), (7, 8))), (5_000_000_006, 7_000_000_008));
        assert_eq!(stamps(&stamping((0, 0), (0, 0))), (0, 0));
        // A NIC whose clock was never set counts from 0.
        assert_eq!(stamps(&stamping((0, 0), (0, 9))), (0, 9));
        assert_eq!(read(&[]), Said::default());
    }

    #[test]
    fn a_send_is_known_by_its_number_over_both_protocols() {
        let origin = libc::SO_EE_ORIGIN_TIMESTAMPING;
        for (level, kind) in [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)] {
            let bytes = [stamping((0, 0), (7, 8)), error(level, kind, origin, 0xffff_fffe)].concat();
            let stamps = Raw { wall_ns: 0, nic_ns: 7_000_000_008 };
            assert_eq!(read(&bytes), Said { stamps, id: Some(0xffff_fffe) });
            // Other messages between them are skipped, as is an error without a stamp.
            let bytes = [message(libc::SOL_SOCKET, 99, &[1, 2, 3]), bytes].concat();
            assert_eq!(read(&bytes).id, Some(0xffff_fffe));
            assert_eq!(read(&error(level, kind, 1, 5)).id, None);
        }
    }

    #[test]
    fn what_is_no_time_is_no_stamp() {
        assert_eq!(stamps(&stamping((-1, 0), (1, 1_000_000_000))), (0, 0));
        assert_eq!(stamps(&stamping((i64::MAX, 0), (1, -1))), (0, 0));
    }

    #[test]
    fn control_data_that_was_cut_off_is_read_as_far_as_it_goes() {
        let origin = libc::SO_EE_ORIGIN_TIMESTAMPING;
        let whole = [stamping((5, 6), (7, 8)), error(libc::SOL_IP, libc::IP_RECVERR, origin, 3)].concat();
        for length in 0..whole.len() {
            let said = read(&whole[..length]);
            assert_eq!(said.stamps != Raw::default(), length >= HEADER + 3 * TIME, "{length}");
            // All but the padding of the last message.
            assert_eq!(said.id, (length >= whole.len() - 4).then_some(3), "{length}");
        }
        // As the kernel cuts: the length in the header is what was left of it.
        let mut cut = stamping((5, 6), (7, 8))[..HEADER + TIME].to_vec();
        cut[..8].copy_from_slice(&((HEADER + TIME) as u64).to_ne_bytes());
        assert_eq!(stamps(&cut), (5_000_000_006, 0));
        for length in [0, 1, 15, u64::MAX, u64::MAX - 7, 1 << 40] {
            cut[..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(read(&cut), Said::default());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_them(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 0_u64..80) {
            read(&bytes);
            // The same with a length beyond the data.
            let mut bytes = bytes;
            if let Some(first) = bytes.get_mut(..8) {
                first.copy_from_slice(&length.to_ne_bytes());
            }
            read(&bytes);
        }
    }
}
