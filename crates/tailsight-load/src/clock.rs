//! The clocks. In: CLOCK_MONOTONIC, CLOCK_REALTIME. Out: one timeline, CLOCK_MONOTONIC ns.
//!
//! The kernel's software stamps are CLOCK_REALTIME. Both clocks run at the same (disciplined) speed, so their difference
//! changes only when somebody sets the wall clock; it is measured before the load and watched during it.

pub(crate) use tailsight_host::phc::WallOffset;

/// Reads a clock that every Linux has, ns.
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; the clocks used here exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC, ns: the clock of recordings, so that load and recording can be compared.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME, ns.
#[cfg(test)]
pub(crate) fn wall_ns() -> u64 {
    read(libc::CLOCK_REALTIME)
}

/// CPU time of this thread, user and system, ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process, user and system, ns.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Watches the difference of the clocks for steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallWatch {
    /// The difference now in use.
    pub(crate) offset: WallOffset,
    /// How often the wall clock was set.
    pub(crate) steps: u32,
    /// The largest step, ns.
    pub(crate) largest_step_ns: u64,
}

impl WallWatch {
    /// A step is at least this and more than both measurements can be wrong, ns.
    const STEP_NS: u64 = 1000;

    pub(crate) fn new() -> Self {
        Self { offset: WallOffset::measure(50), steps: 0, largest_step_ns: 0 }
    }

    /// Measures again; takes the new difference when the clock was stepped.
    pub(crate) fn check(&mut self) {
        self.note(WallOffset::measure(3));
    }

    fn note(&mut self, new: WallOffset) {
        let moved = (new.offset_ns.wrapping_sub(self.offset.offset_ns) as i64).unsigned_abs();
        if moved > Self::STEP_NS + new.error_ns + self.offset.error_ns {
            self.offset = new;
            self.steps += 1;
            self.largest_step_ns = self.largest_step_ns.max(moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_time_lands_between_two_readings() {
        let offset = WallOffset::measure(50);
        let before = now_ns();
        let wall = offset.to_monotonic(read(libc::CLOCK_REALTIME));
        let after = now_ns();
        assert!(wall + offset.error_ns >= before && wall <= after + offset.error_ns, "{before} {wall} {after}");
    }

    #[test]
    fn steps_are_seen_and_noise_is_not() {
        let mut watch =
            WallWatch { offset: WallOffset { offset_ns: 1 << 60, error_ns: 30 }, steps: 0, largest_step_ns: 0 };
        watch.note(WallOffset { offset_ns: (1 << 60) + 200, error_ns: 20 });
        assert_eq!((watch.steps, watch.offset.error_ns), (0, 30));
        // A wide bracket is no evidence of a step.
        watch.note(WallOffset { offset_ns: (1 << 60) + 5000, error_ns: 5000 });
        assert_eq!(watch.steps, 0);
        watch.note(WallOffset { offset_ns: (1 << 60) - 1_000_000, error_ns: 30 });
        assert_eq!((watch.steps, watch.largest_step_ns, watch.offset.offset_ns), (1, 1_000_000, (1 << 60) - 1_000_000));
    }
}
