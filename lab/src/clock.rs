//! CLOCK_MONOTONIC, the clock of recordings. In: times in ns. Out: times in ns, and waits until them.

/// Now, CLOCK_MONOTONIC ns.
#[must_use]
pub fn now_ns() -> u64 {
    tailsight_testbed::load::now_ns()
}

/// Sleeps until `at_ns` (CLOCK_MONOTONIC ns); a signal does not end the sleep.
pub fn sleep_until(at_ns: u64) {
    let at = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    loop {
        // SAFETY: `at` lives over the call; with TIMER_ABSTIME the remaining time is not written, so null is allowed.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const at, std::ptr::null_mut())
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Runs until this thread has used the core for `work_ns`; gaps of more than `gap_ns` between clock reads do not count.
pub fn spin_for(work_ns: u64, gap_ns: u64) {
    let (mut done, mut last) = (0, now_ns());
    while done < work_ns {
        let now = now_ns();
        if now - last <= gap_ns {
            done += now - last;
        }
        last = now;
    }
}

/// Runs without a pause until `at_ns` (CLOCK_MONOTONIC ns).
pub fn spin_until(at_ns: u64) {
    while now_ns() < at_ns {
        std::hint::spin_loop();
    }
}

/// Runs until `at_ns` and calls `ran` with each [begin, end] in which this thread really used the core.
///
/// Two clock reads of a running thread are tens of ns apart; more than `gap_ns` between them and something else ran.
pub fn spin_slices(at_ns: u64, gap_ns: u64, mut ran: impl FnMut(u64, u64)) {
    let (mut begin, mut last) = (now_ns(), now_ns());
    while last < at_ns {
        let now = now_ns();
        if now - last > gap_ns {
            ran(begin, last);
            begin = now;
        }
        last = now;
    }
    ran(begin, last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_at_or_after_their_time() {
        let at = now_ns() + 2_000_000;
        sleep_until(at);
        assert!(now_ns() >= at);
        let at = now_ns() + 200_000;
        spin_until(at);
        assert!(now_ns() >= at);
    }

    #[test]
    fn slices_are_in_order_and_inside_the_time_asked_for() {
        let from = now_ns();
        let at = from + 3_000_000;
        let mut slices = Vec::new();
        spin_slices(at, 3_000, |a, b| slices.push((a, b)));
        let to = now_ns();
        assert!(!slices.is_empty());
        let mut last = from;
        for (a, b) in slices {
            assert!(last <= a && a <= b && b <= to);
            last = b;
        }
        assert!(last >= at);
    }
}
