//! Timers that expire on a core without a task of the lab there: software counters of CPU time, sampled. In: a core,
//! expiries a millisecond, a schedule. Out: timer interrupts on that core; truth log entries, one a burst.
//!
//! A `PERF_COUNT_SW_CPU_CLOCK` counter with a sample period is an hrtimer on its core; each expiry is a local timer
//! interrupt. The kernel limits one counter to a period of 10 us, so several are opened.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{FaultArgs, ready};
use crate::clock::{now_ns, sleep_until};
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};

/// The shortest period that the kernel accepts, ns.
const PERIOD_NS: u64 = 10_000;
const PERF_TYPE_SOFTWARE: u32 = 1;
/// `_IO('$', 0)` and `_IO('$', 1)` (`include/uapi/linux/perf_event.h`).
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;
/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: libc::c_ulong = 8;
/// The bit `disabled` of the attributes' flags.
const DISABLED: u64 = 1;

/// The first fields of `struct perf_event_attr`, 64 bytes as in its first version (PERF_ATTR_SIZE_VER0).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

pub(super) fn run(args: &FaultArgs, truth: &TruthLog) -> Result<()> {
    let cpu = args.cpu.first().copied().unwrap_or(0);
    let count = (args.strength * PERIOD_NS as f64 / 1e6).ceil().clamp(1.0, 64.0);
    let period = (count * 1e6 / args.strength.max(1.0)) as u64;
    let counters: Vec<OwnedFd> = (0..count as u64).map(|_| open(cpu, period.max(PERIOD_NS))).collect::<Result<_>>()?;
    let switch = |request| {
        counters.iter().try_for_each(|counter| {
            // SAFETY: the request takes no pointer, and the descriptor is a counter of ours.
            if unsafe { libc::ioctl(counter.as_raw_fd(), request, 0) } < 0 {
                return Err(Error::io("switch a counter", std::io::Error::last_os_error()));
            }
            Ok(())
        })
    };
    ready()?;
    loop {
        let (_, end) = args.schedule.wait();
        let entry = truth.begin(kind::STORM, now_ns());
        switch(PERF_EVENT_IOC_ENABLE)?;
        sleep_until(end);
        switch(PERF_EVENT_IOC_DISABLE)?;
        truth.end(entry, now_ns());
    }
}

/// A counter of a core's time that samples every `period` ns, off.
fn open(cpu: usize, period: u64) -> Result<OwnedFd> {
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        sample_period: period,
        flags: DISABLED,
        ..Attributes::default()
    };
    // SAFETY: `attributes` is as long as it says and lives over the call, which copies it.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu as libc::c_int, -1, FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(Error::io(format!("open a software counter on CPU {cpu}"), std::io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just given us this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
