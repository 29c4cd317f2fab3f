//! A NIC's own clock (PTP hardware clock, /dev/ptpN). In: its number. Out: readings of it beside CLOCK_MONOTONIC.
//!
//! Its registers are behind a bus, so a reading takes about a microsecond, and its time is known to half of that. The driver
//! brackets the reading of the register alone (`PTP_SYS_OFFSET_EXTENDED`, Linux 5.0, by CLOCK_MONOTONIC since 6.12); where
//! it does not, the whole system call is bracketed. `PTP_SYS_OFFSET_PRECISE` is not used: it is exact where it exists, but
//! gives no error bound.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

mod map;
pub mod stamping;
mod wall;

pub use map::{Map, Reading};
pub use wall::WallOffset;

use wall::read_any;

/// How a clock is read, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// The driver brackets it with CLOCK_MONOTONIC.
    DriverMonotonic,
    /// The driver brackets it with CLOCK_REALTIME.
    DriverWall,
    /// This program brackets the call.
    Ourselves,
}

/// A clock that can be read.
#[derive(Debug)]
pub struct Phc {
    /// Kept open because the clock's number refers to it.
    file: Option<File>,
    clock: libc::clockid_t,
    how: How,
}

impl Phc {
    /// Opens /dev/ptpN for reading; what it is called in errors is the caller's.
    ///
    /// # Errors
    /// The kernel's: there is no such clock, or it may not be read.
    pub fn open(number: u32) -> io::Result<Self> {
        let file = File::open(path(number))?;
        // FD_TO_CLOCKID of the kernel: a descriptor as a clock's number.
        let clock = (!file.as_raw_fd() << 3) | 3;
        let mut phc = Self { file: Some(file), clock, how: How::DriverMonotonic };
        for how in [How::DriverMonotonic, How::DriverWall, How::Ourselves] {
            phc.how = how;
            if phc.read(1).is_some() {
                return Ok(phc);
            }
        }
        Err(io::Error::other("it cannot be read"))
    }

    /// A clock of the system in place of a NIC's, for tests.
    pub fn of_the_system(clock: libc::clockid_t) -> Self {
        Self { file: None, clock, how: How::Ourselves }
    }

    /// The tightest of `tries` readings (at most 25).
    pub fn read(&self, tries: u32) -> Option<Reading> {
        match (self.how, &self.file) {
            (How::Ourselves, _) | (_, None) => self.read_ourselves(tries),
            (How::DriverMonotonic, Some(file)) => {
                tightest(&ask(file, tries, libc::CLOCK_MONOTONIC)?, WallOffset { offset_ns: 0, error_ns: 0 })
            }
            (How::DriverWall, Some(file)) => {
                let offset = WallOffset::measure(tries);
                tightest(&ask(file, tries, libc::CLOCK_REALTIME)?, offset)
            }
        }
    }

    fn read_ourselves(&self, tries: u32) -> Option<Reading> {
        let mut best: Option<Reading> = None;
        for _ in 0..tries {
            let before = read_any(libc::CLOCK_MONOTONIC)?;
            let nic_ns = read_any(self.clock)?;
            let after = read_any(libc::CLOCK_MONOTONIC)?;
            best = better(best, reading(before, nic_ns, after));
        }
        best
    }
}

/// The file of a clock.
pub fn path(number: u32) -> String {
    format!("/dev/ptp{number}")
}

/// Has the driver read the clock `tries` times, each between two readings of `clock`.
fn ask(file: &File, tries: u32, clock: libc::clockid_t) -> Option<libc::ptp_sys_offset_extended> {
    // SAFETY: all zeroes is a valid value of this structure of numbers.
    let mut answer: libc::ptp_sys_offset_extended = unsafe { std::mem::zeroed() };
    answer.n_samples = tries.min(libc::PTP_MAX_SAMPLES);
    // In older kernels this field is reserved, and they refuse anything but 0, which is CLOCK_REALTIME.
    answer.clockid = clock;
    // SAFETY: the request reads and writes one such structure, which lives over the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::PTP_SYS_OFFSET_EXTENDED, &raw mut answer) };
    (result == 0).then_some(answer)
}

/// The tightest bracket of a driver's answer, by a clock that is `offset` ahead of CLOCK_MONOTONIC.
fn tightest(answer: &libc::ptp_sys_offset_extended, offset: WallOffset) -> Option<Reading> {
    let ns = |time: &libc::ptp_clock_time| {
        u64::try_from(time.sec).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::from(time.nsec))
    };
    let mut best = None;
    for [before, nic, after] in answer.ts.iter().take(answer.n_samples as usize) {
        // Values that the driver did not fill in are 0.
        if let (Some(before @ 1..), Some(nic), Some(after)) = (ns(before), ns(nic), ns(after)) {
            best = better(best, reading(before, nic, after));
        }
    }
    best.map(|r| Reading { mono_ns: offset.to_monotonic(r.mono_ns), error_ns: r.error_ns + offset.error_ns, ..r })
}

/// A reading in a bracket; `None` when the bracket's clock went back meanwhile.
fn reading(before: u64, nic_ns: u64, after: u64) -> Option<Reading> {
    let width = after.checked_sub(before)?;
    Some(Reading { mono_ns: u64::midpoint(before, after), nic_ns, error_ns: width.div_ceil(2) + 1 })
}

fn better(best: Option<Reading>, new: Option<Reading>) -> Option<Reading> {
    match (best, new) {
        (Some(best), Some(new)) if new.error_ns < best.error_ns => Some(new),
        (None, new) => new,
        (best, _) => best,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_beside_the_timeline() {
        let (phc, offset) = (Phc::of_the_system(libc::CLOCK_REALTIME), WallOffset::measure(50));
        let reading = phc.read(10).unwrap();
        let off = offset.to_monotonic(reading.nic_ns).abs_diff(reading.mono_ns);
        assert!(off <= reading.error_ns + offset.error_ns, "{off} {reading:?} {offset:?}");
        assert_eq!(phc.read(0), None);
    }

    #[test]
    fn a_clock_that_is_not_there_is_no_reading() {
        // A descriptor that is none.
        assert_eq!(Phc::of_the_system((!1_000_000 << 3) | 3).read(3), None);
        assert!(Phc::open(987_654).is_err());
    }

    #[test]
    fn of_a_drivers_answer_the_tightest_bracket_counts() {
        // SAFETY: all zeroes is a valid value of this structure of numbers.
        let mut answer: libc::ptp_sys_offset_extended = unsafe { std::mem::zeroed() };
        let time = |sec, nsec| libc::ptp_clock_time { sec, nsec, reserved: 0 };
        assert_eq!(tightest(&answer, WallOffset { offset_ns: 0, error_ns: 0 }), None);
        answer.n_samples = 3;
        answer.ts[0] = [time(100, 0), time(7, 0), time(100, 5_000)];
        answer.ts[1] = [time(100, 10_000), time(7, 10_500), time(100, 11_000)];
        // The wall clock was set back between the two readings.
        answer.ts[2] = [time(100, 20_000), time(7, 21_000), time(99, 0)];
        let offset = WallOffset { offset_ns: 60_000_000_000, error_ns: 20 };
        let expected = Reading { mono_ns: 40_000_010_500, nic_ns: 7_000_010_500, error_ns: 521 };
        assert_eq!(tightest(&answer, offset), Some(expected));
        answer.n_samples = 1;
        assert_eq!(tightest(&answer, offset).unwrap().error_ns, 2521);
        // A driver that reports more readings than there is room for.
        answer.n_samples = 1000;
        assert_eq!(tightest(&answer, offset), Some(expected));
        answer.ts[0][0].sec = -5;
        assert_eq!(tightest(&answer, offset), Some(expected));
    }
}
