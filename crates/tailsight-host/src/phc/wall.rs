//! CLOCK_REALTIME beside CLOCK_MONOTONIC. In: the clocks. Out: their difference, ns, and how wrong it can be.

/// Reads a clock that may not exist, ns; `None` when it does not, or when it is before 1970.
pub(crate) fn read_any(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| result == 0)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(time.tv_nsec as u64)
}

/// Reads a clock that every Linux has, ns.
fn read(clock: libc::clockid_t) -> u64 {
    read_any(clock).unwrap_or(0)
}

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallOffset {
    /// ns.
    pub offset_ns: u64,
    /// Half the bracket in which it was measured: the largest error, ns.
    pub error_ns: u64,
}

impl WallOffset {
    /// Measures it: the tightest of `tries` brackets.
    pub fn measure(tries: u32) -> Self {
        let mut best = Self { offset_ns: 0, error_ns: u64::MAX };
        for _ in 0..tries {
            let before = read(libc::CLOCK_MONOTONIC);
            let wall = read(libc::CLOCK_REALTIME);
            let after = read(libc::CLOCK_MONOTONIC);
            let error_ns = (after - before).div_ceil(2);
            if error_ns < best.error_ns {
                best = Self { offset_ns: wall.wrapping_sub(u64::midpoint(before, after)), error_ns };
            }
        }
        best
    }

    /// A CLOCK_REALTIME stamp on the timeline, ns.
    #[inline]
    pub fn to_monotonic(self, wall_ns: u64) -> u64 {
        wall_ns.wrapping_sub(self.offset_ns)
    }
}
