//! The kernel's own conversion of the time-stamp counter to its clocks, as it lies in the `[vvar]` page of every process.
//!
//! In: this process's memory map, and the kernel's type information (BTF) for where the fields are: they moved between
//! versions. Out: [`Parameters`], read consistently (the page has a sequence count), and [`Poller`], which collects every
//! change that it sees. The kernel changes them once a tick and whenever the clock is steered. x86-64 only. Units: ns
//! shifted left by `shift`, and ticks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;

use crate::btf::{self, Layout};
use crate::{HostError, Root};

/// Where in the page older kernels have the data (`DECLARE_VVAR(128, …)` of arch/x86/include/asm/vvar.h).
const OLD_PLACE: usize = 128;
/// The vDSO's number for the time-stamp counter (`VDSO_CLOCKMODE_TSC`).
const TSC_MODE: u32 = 1;
/// Clocks of the `basetime` array, by their numbers in time.h.
const REALTIME: usize = 0;
const MONOTONIC: usize = 1;
const TAI: usize = 11;
/// If the time computed from a page differs from the kernel's by more than this, the page was misread.
const MOST_APART_NS: u64 = 1_000_000;

/// The kernel's conversion at a time: `base + ((tsc - cycle_last) * mult + shifted) >> shift` for each clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The page's sequence count: 2 more with each change.
    pub seq: u32,
    /// The counter when they were made.
    pub cycle_last: u64,
    /// ns of a tick, times `2^shift`.
    pub mult: u32,
    /// The shift, bits.
    pub shift: u32,
    /// CLOCK_REALTIME then: whole seconds, and ns shifted.
    pub realtime: (u64, u64),
    /// CLOCK_MONOTONIC then.
    pub monotonic: (u64, u64),
    /// CLOCK_TAI then.
    pub tai: (u64, u64),
}

/// Where the fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    seq: usize,
    mode: usize,
    cycle_last: usize,
    mult: usize,
    shift: usize,
    base: usize,
}

impl Places {
    /// From the kernel's types: `vdso_time_data` with a `vdso_clock` (6.15 and newer), else `vdso_data`.
    fn of(btf: &[u8]) -> Result<Places, HostError> {
        let missing =
            |what: &str| HostError::Unsupported { what: format!("the kernel's clock page: its types have no {what}") };
        let field = |of: &Layout, name: &str| of.offset(name).ok_or_else(|| missing(name));
        let (start, clock) = match btf::layout(btf, "vdso_clock")? {
            Some(clock) => {
                let data = btf::layout(btf, "vdso_time_data")?.ok_or_else(|| missing("vdso_time_data"))?;
                (field(&data, "clock_data")?, clock)
            }
            None => (OLD_PLACE, btf::layout(btf, "vdso_data")?.ok_or_else(|| missing("vdso_data"))?),
        };
        let at = |name: &str| field(&clock, name).map(|offset| start + offset);
        Ok(Places {
            seq: at("seq")?,
            mode: at("clock_mode")?,
            cycle_last: at("cycle_last")?,
            mult: at("mult")?,
            shift: at("shift")?,
            base: at("basetime")?,
        })
    }
}

/// The mapped page.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    start: usize,
    places: Places,
}

impl Page {
    /// Finds the page of this process and where its fields are, and checks it against the kernel's own answer.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] on another architecture, when the clock source is not the TSC, or when the page says another time than
    /// the kernel; [`HostError::Read`], [`HostError::Btf`].
    pub fn open() -> Result<Page, HostError> {
        let unsupported = |what: &str| HostError::Unsupported { what: format!("the kernel's clock page: {what}") };
        if !cfg!(target_arch = "x86_64") {
            return Err(unsupported("only on x86-64"));
        }
        let root = Root::host();
        let places = Places::of(&root.bytes(btf::VMLINUX)?)?;
        let maps = root.text("/proc/self/maps")?;
        let line = maps
            .lines()
            .find(|line| line.ends_with("[vvar]"))
            .ok_or_else(|| unsupported("no [vvar] in /proc/self/maps"))?;
        let start = line.split('-').next().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let page = Page { start: start.ok_or_else(|| unsupported("/proc/self/maps cannot be read"))?, places };
        if page.half(page.places.mode) != TSC_MODE {
            return Err(unsupported("the clock source is not the TSC (or the vDSO does not use it)"));
        }
        let (before, ours, after) = (now_ns(), page.read().monotonic_ns(tsc()), now_ns());
        if ours.is_none_or(|ns| ns + MOST_APART_NS < before || ns > after + MOST_APART_NS) {
            return Err(unsupported("its time differs from the kernel's"));
        }
        Ok(page)
    }

    fn half(&self, offset: usize) -> u32 {
        // SAFETY: the page is mapped for the life of the process, read-only, and `offset` is that of an aligned u32 field in it; the
        // kernel writes it at any time, hence volatile.
        unsafe { std::ptr::read_volatile((self.start + offset) as *const u32) }
    }

    fn word(&self, offset: usize) -> u64 {
        // SAFETY: as in `half`, of an aligned u64.
        unsafe { std::ptr::read_volatile((self.start + offset) as *const u64) }
    }

    fn seq(&self) -> u32 {
        // SAFETY: as in `half`; an atomic read of a u32 that others write.
        unsafe { &*((self.start + self.places.seq) as *const AtomicU32) }.load(Ordering::Acquire)
    }

    /// Reads the parameters, all of the same change.
    pub fn read(&self) -> Parameters {
        loop {
            let seq = self.seq();
            if seq & 1 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let base = |clock: usize| {
                let at = self.places.base + 16 * clock;
                (self.word(at), self.word(at + 8))
            };
            let read = Parameters {
                seq,
                cycle_last: self.word(self.places.cycle_last),
                mult: self.half(self.places.mult),
                shift: self.half(self.places.shift),
                realtime: base(REALTIME),
                monotonic: base(MONOTONIC),
                tai: base(TAI),
            };
            fence(Ordering::Acquire);
            if self.seq() == seq {
                return read;
            }
        }
    }

    /// Whether they changed since.
    pub fn changed_since(&self, last: &Parameters) -> bool {
        self.seq() != last.seq
    }
}

impl Parameters {
    /// CLOCK_MONOTONIC at a counter, ns; `None` when the numbers are those of no clock.
    pub fn monotonic_ns(&self, tsc: u64) -> Option<u64> {
        let shifted =
            u128::from(tsc.saturating_sub(self.cycle_last)) * u128::from(self.mult) + u128::from(self.monotonic.1);
        let ns = u64::try_from(shifted.checked_shr(self.shift)?).ok()?;
        self.monotonic.0.checked_mul(1_000_000_000)?.checked_add(ns)
    }
}

/// The counter now, after all earlier instructions.
#[cfg(target_arch = "x86_64")]
pub fn tsc() -> u64 {
    let mut core = 0;
    // SAFETY: RDTSCP and LFENCE are on every processor whose TSC the kernel takes for a clock source; the core's number goes into a local.
    unsafe {
        let now = std::arch::x86_64::__rdtscp(&raw mut core);
        std::arch::x86_64::_mm_lfence();
        now
    }
}

/// This architecture has none.
#[cfg(not(target_arch = "x86_64"))]
pub fn tsc() -> u64 {
    0
}

fn now_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// A thread that reads the page twice a tick of the kernel, at most each millisecond, and keeps every change that it sees.
#[derive(Debug)]
pub struct Poller {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Polled>,
}

/// What a [`Poller`] saw.
#[derive(Clone, Debug, Default)]
pub struct Polled {
    /// The parameters after each change, in order; the first are those at the start.
    pub changes: Vec<Parameters>,
    /// Readings of the page.
    pub looks: u64,
    /// CPU time that it took, ns.
    pub cpu_ns: u64,
    /// How long it ran, ns.
    pub lasted_ns: u64,
}

impl Poller {
    /// The shortest time between two readings, and the one at first.
    pub const EACH: Duration = Duration::from_millis(1);
    /// The longest time between two readings. Otherwise twice a tick of the kernel, as the changes show it.
    pub const SELDOM: Duration = Duration::from_millis(5);

    /// Starts the thread.
    ///
    /// # Errors
    /// Those of [`Page::open`]; [`HostError::Syscall`] when no thread can be made.
    pub fn start() -> Result<Poller, HostError> {
        let page = Page::open()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let thread = std::thread::Builder::new().name("clock-log".into()).spawn(move || poll(page, &stops));
        let thread = thread.map_err(|source| HostError::Syscall { call: "clone".into(), source })?;
        Ok(Poller { stop, thread })
    }

    /// Stops it and returns what it saw, with the parameters as they are now.
    pub fn stop(self) -> Polled {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn poll(page: Page, stop: &AtomicBool) -> Polled {
    let cpu = || {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
        time.map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
    };
    let (begin, cpu_begin) = (now_ns(), cpu());
    let mut last = page.read();
    let mut pause = Poller::EACH;
    let mut shortest = u64::MAX;
    let mut out = Polled { changes: vec![last], ..Polled::default() };
    loop {
        // Once more after the end was requested: the last moments need the changes since.
        let over = stop.load(Ordering::Relaxed);
        out.looks += 1;
        if page.changed_since(&last) {
            let now = page.read();
            // How long a tick is: the shortest time between two changes with none between them.
            if now.seq.wrapping_sub(last.seq) == 2 && out.changes.len() > 8 {
                let ticks = u128::from(now.cycle_last.saturating_sub(last.cycle_last)) * u128::from(now.mult);
                shortest = shortest.min((ticks >> now.shift.min(63)) as u64);
                pause = Duration::from_nanos(shortest / 2).clamp(Poller::EACH, Poller::SELDOM);
            }
            last = now;
            out.changes.push(last);
        }
        if over {
            break;
        }
        std::thread::sleep(pause);
    }
    (out.cpu_ns, out.lasted_ns) = (cpu() - cpu_begin, now_ns() - begin);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_the_kernel_s_time() {
        let page = match Page::open() {
            Ok(page) => page,
            Err(why) => return tailsight_testing::skip(why),
        };
        for _ in 0..1000 {
            let before = now_ns();
            let ours = page.read().monotonic_ns(tsc()).unwrap();
            let after = now_ns();
            assert!(before <= ours && ours <= after, "{before} {ours} {after}");
        }
    }

    #[test]
    fn a_poller_sees_changes_and_takes_little() {
        let poller = match Poller::start() {
            Ok(poller) => poller,
            Err(why) => return tailsight_testing::skip(why),
        };
        std::thread::sleep(Duration::from_millis(300));
        let polled = poller.stop();
        assert!(polled.changes.len() > 10, "{} changes in 300 ms", polled.changes.len());
        assert!(
            polled
                .changes
                .windows(2)
                .all(|w| w[0].cycle_last < w[1].cycle_last && w[1].seq.wrapping_sub(w[0].seq) % 2 == 0)
        );
        assert!(polled.cpu_ns * 10 < polled.lasted_ns, "{} of {} ns", polled.cpu_ns, polled.lasted_ns);
    }

    #[test]
    fn a_kernel_without_these_types_is_said() {
        let why = Places::of(&[0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
            .unwrap_err();
        assert!(why.to_string().contains("vdso_data"), "{why}");
    }
}
