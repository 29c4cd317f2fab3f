//! Clocks: the clocksource, the CPU's flags for the TSC, how NTP or PTP steers the system clock, and the hardware clocks.
//!
//! In: `/sys/devices/system/clocksource`, `/proc/cpuinfo`, `/sys/class/ptp`, and on the live host `adjtimex` with no
//! mode set. Out: [`Clocks`].

use crate::machine::cpu_flags;
use crate::{Fact, HostError, Root, syscall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const BASE: &str = "/sys/devices/system/clocksource/clocksource0";

/// How the system clock is being steered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Discipline {
    /// True if a daemon keeps it synchronised (`STA_UNSYNC` clear).
    pub synchronised: bool,
    /// The names of the `STA_*` bits that are set.
    pub status: Vec<String>,
    /// Frequency correction in parts per million.
    pub frequency_ppm: f64,
    /// Offset still to be slewed, in nanoseconds.
    pub offset_ns: i64,
    /// The kernel's bound on the error in microseconds; 16 s when nothing steers the clock.
    pub max_error_us: i64,
}

/// A hardware clock of a NIC or a hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PtpClock {
    /// Its device, such as `ptp0`.
    pub name: String,
    /// The name its driver gives.
    pub clock_name: String,
}

/// The host's clocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clocks {
    /// The clocksource in use.
    pub current: Fact<String>,
    /// The clocksources that could be used, best first.
    pub available: Fact<Vec<String>>,
    /// Of `constant_tsc`, `nonstop_tsc` and `tsc_known_freq`, those that the CPU has.
    pub tsc_flags: Fact<Vec<String>>,
    /// How the clock is steered.
    pub discipline: Fact<Discipline>,
    /// PTP hardware clocks.
    pub ptp: Vec<PtpClock>,
}

impl Clocks {
    /// Reads the clocks.
    pub fn collect(root: &Root) -> Self {
        let words = |t: String| t.split_whitespace().map(str::to_owned).collect();
        let tsc = |t: String| {
            let named_flags = ["constant_tsc", "nonstop_tsc", "tsc_known_freq"];
            cpu_flags(&t).filter(|f| named_flags.contains(f)).map(str::to_owned).collect()
        };
        Clocks {
            current: root.text(&format!("{BASE}/current_clocksource")).into(),
            available: root.text(&format!("{BASE}/available_clocksource")).map(words).into(),
            tsc_flags: root.text("/proc/cpuinfo").map(tsc).into(),
            discipline: discipline(root).into(),
            ptp: root
                .names("/sys/class/ptp")
                .into_iter()
                .map(|name| PtpClock {
                    clock_name: root.text(&format!("/sys/class/ptp/{name}/clock_name")).unwrap_or_default(),
                    name,
                })
                .collect(),
        }
    }
}

fn discipline(root: &Root) -> Result<Discipline, HostError> {
    if !root.is_live() {
        return Err(HostError::NotLive { call: "adjtimex" });
    }
    let t = syscall::adjtimex().map_err(|source| HostError::Syscall { call: "adjtimex".into(), source })?;
    Ok(decode(&t))
}

fn decode(t: &syscall::ClockState) -> Discipline {
    const TIME_ERROR: i32 = 5;
    const BITS: [(i32, &str); 8] = [
        (0x0001, "STA_PLL"),
        (0x0002, "STA_PPSFREQ"),
        (0x0004, "STA_PPSTIME"),
        (0x0008, "STA_FLL"),
        (0x0010, "STA_INS"),
        (0x0020, "STA_DEL"),
        (0x0040, "STA_UNSYNC"),
        (0x2000, "STA_NANO"),
    ];
    let nano = t.status & 0x2000 != 0;
    Discipline {
        synchronised: t.status & 0x0040 == 0 && t.state != TIME_ERROR,
        status: BITS.iter().filter(|(bit, _)| t.status & bit != 0).map(|(_, name)| (*name).to_owned()).collect(),
        #[allow(clippy::cast_precision_loss)] // at most 500 ppm, 2^25
        frequency_ppm: t.freq as f64 / 65_536.0,
        offset_ns: if nano { t.offset } else { t.offset.saturating_mul(1000) },
        max_error_us: t.max_error_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn reads_clocksource_and_hardware_clocks() {
        let tree = Tree::new(&[
            ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock"),
            ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "kvm-clock tsc"),
            ("/proc/cpuinfo", "flags\t\t: fpu constant_tsc avx"),
            ("/sys/class/ptp/ptp0/clock_name", "KVM virtual PTP"),
        ]);
        let c = Clocks::collect(&tree.root());
        assert_eq!(c.current, Fact::Known("kvm-clock".into()));
        assert_eq!(c.tsc_flags, Fact::Known(vec!["constant_tsc".into()]));
        assert_eq!(c.ptp[0].clock_name, "KVM virtual PTP");
        assert!(c.discipline.reason().is_some());
    }

    #[test]
    fn decodes_units_and_synchronisation() {
        let state = |status, state| syscall::ClockState {
            state,
            status,
            freq: 65_536 * 12 / 10,
            offset: -7,
            max_error_us: 900,
        };
        let d = decode(&state(0x2001, 0));
        assert!(d.synchronised);
        assert_eq!((d.offset_ns, d.status), (-7, vec!["STA_PLL".to_owned(), "STA_NANO".to_owned()]));
        assert!((d.frequency_ppm - 1.2).abs() < 1e-4);
        let d = decode(&state(0x0040, 5));
        assert_eq!((d.synchronised, d.offset_ns), (false, -7000));
    }
}
