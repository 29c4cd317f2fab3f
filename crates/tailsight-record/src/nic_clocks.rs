//! The clocks of NICs that stamp, compared with CLOCK_MONOTONIC all through a recording.
//!
//! In: a process of the target. Out: rows for nic_clocks.arrow, and the facts on stamps in run.json. Which devices messages
//! arrive on is known only when their events are read, so the clocks of all devices with time stamps switched on are
//! compared, in the target's network namespace and in the recorder's. Without such a device nothing is done or reported.

use tailsight_host::device;
use tailsight_host::phc::stamping::{self, StampingDevice};
use tailsight_host::phc::{self, Phc};
use tailsight_trace::meta::{self, RunMeta};
use tailsight_trace::tables::NicClockRow;

use crate::probes::nic_tx::TxStamps;

/// Readings of a clock at once: at the ends, and in between.
const TRIES: [u32; 2] = [25, 5];

/// The clocks, and what they showed.
#[derive(Debug, Default)]
pub struct NicClocks {
    devices: Vec<meta::StampingDevice>,
    clocks: Vec<(u32, Phc)>,
    /// Comparisons so far, in order of time.
    pub rows: Vec<NicClockRow>,
    problems: Vec<String>,
}

impl NicClocks {
    /// Finds devices that are set to stamp and compares their clocks for the first time.
    pub fn find(target: Option<u32>) -> NicClocks {
        let elsewhere = target.filter(|&pid| device::is_elsewhere(pid));
        let theirs = elsewhere.and_then(|pid| stamping::of_process(pid).ok()).unwrap_or_default();
        NicClocks::of(&theirs, &stamping::here(), |phc| Phc::open(phc).map_err(|e| e.to_string()))
    }

    fn of(theirs: &[StampingDevice], ours: &[StampingDevice], open: impl Fn(u32) -> Result<Phc, String>) -> NicClocks {
        let mut clocks = NicClocks::default();
        for (device, here) in theirs.iter().map(|d| (d, false)).chain(ours.iter().map(|d| (d, true))) {
            if !clocks.clocks.iter().any(|(phc, _)| *phc == device.phc) {
                match open(device.phc) {
                    Ok(clock) => clocks.clocks.push((device.phc, clock)),
                    Err(e) => {
                        let path = phc::path(device.phc);
                        clocks.problems.push(format!(
                            "{} has time stamps on, but its clock {path} cannot be read: {e}",
                            device.name
                        ));
                        continue;
                    }
                }
            }
            let StampingDevice { name, ifindex, phc, rx_filter, tx } = device.clone();
            clocks.devices.push(meta::StampingDevice { name, ifindex, phc, here, rx_filter, tx });
        }
        clocks.compare_all(TRIES[0]);
        clocks
    }

    /// Compares once more.
    pub fn compare(&mut self) {
        self.compare_all(TRIES[1]);
    }

    fn compare_all(&mut self, tries: u32) {
        for (number, clock) in &self.clocks {
            if let Some(r) = clock.read(tries) {
                let row = NicClockRow { phc: *number, monotonic_ns: r.mono_ns, phc_ns: r.nic_ns, error_ns: r.error_ns };
                self.rows.push(row);
            }
        }
    }

    /// Whether a device stamps what it receives.
    pub fn stamps_in(&self) -> bool {
        self.devices.iter().any(|d| d.rx_filter != "none")
    }

    /// Whether a device stamps what is sent.
    fn stamps_out(&self) -> bool {
        self.devices.iter().any(|d| d.tx)
    }

    /// The last comparison, and what run.json says. `received`, `sent`: stamps that were recorded; `tx`: whether those of sent
    /// packets were asked for, and why they could not be had.
    pub fn conclude(&mut self, meta: &mut RunMeta, (received, sent): (u64, u64), tx: (TxStamps, Option<String>)) {
        self.compare_all(TRIES[0]);
        meta.clock_error_ns = self.rows.iter().map(|r| r.error_ns).max().unwrap_or(0);
        let why = (received == 0).then(|| self.why_none());
        let tx_why = match tx {
            (TxStamps::Off, _) => None,
            (_, Some(why)) => Some(why),
            (TxStamps::Nic, None) if !self.stamps_out() => Some(
                "no network device of this host or of the target has transmit time stamps on (turn on: hwtstamp_ctl \
                 -i DEVICE -t 1)"
                    .into(),
            ),
            _ if sent == 0 => Some("no TCP reply was stamped; the kernel has no callback for UDP".into()),
            _ => None,
        };
        if let Some(why) = &tx_why {
            meta.warnings.push(format!("no transmit time stamps of NICs: {why}"));
        }
        meta.warnings.append(&mut self.problems);
        meta.nic = meta::NicStamps { devices: std::mem::take(&mut self.devices), received, sent, why, tx_why };
    }

    fn why_none(&self) -> String {
        let filter = |d: &meta::StampingDevice| format!("{} ({})", d.name, d.rx_filter);
        let stamping: Vec<String> = self.devices.iter().filter(|d| d.rx_filter != "none").map(filter).collect();
        if stamping.is_empty() {
            "no network device of this host or of the target has receive time stamps on".into()
        } else {
            format!(
                "no packet of the target had a time stamp; devices with receive time stamps on: {}",
                stamping.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, ifindex: u32, phc: u32, tx: bool) -> StampingDevice {
        StampingDevice { name: name.into(), ifindex, phc, rx_filter: if tx { "none" } else { "all" }.into(), tx }
    }

    /// CLOCK_REALTIME in the place of a NIC's clock.
    fn system(_: u32) -> Result<Phc, String> {
        Ok(Phc::of_the_system(libc::CLOCK_REALTIME))
    }

    #[test]
    fn each_clock_is_compared_once_a_time_and_lies_beside_the_timeline() {
        let (theirs, ours) =
            ([device("eth0", 3, 0, false)], [device("eth1", 3, 1, false), device("eth1.5", 9, 1, false)]);
        let mut clocks = NicClocks::of(&theirs, &ours, system);
        clocks.compare();
        let mut meta = RunMeta::default();
        clocks.conclude(&mut meta, (7, 0), (TxStamps::Off, None));
        assert_eq!(clocks.rows.iter().map(|r| r.phc).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        assert!(clocks.rows.windows(2).all(|w| w[0].monotonic_ns < w[1].monotonic_ns));
        let offset = |r: &NicClockRow| r.phc_ns as i128 - i128::from(r.monotonic_ns);
        let apart = (offset(&clocks.rows[0]) - offset(&clocks.rows[5])).unsigned_abs();
        assert!(apart <= u128::from(clocks.rows[0].error_ns + clocks.rows[5].error_ns + 1_000_000), "{apart}");
        assert!(meta.clock_error_ns > 0);
        let listed: Vec<_> = meta.nic.devices.iter().map(|d| (d.name.as_str(), d.phc, d.here)).collect();
        assert_eq!(listed, [("eth0", 0, false), ("eth1", 1, true), ("eth1.5", 1, true)]);
        assert_eq!((meta.nic.received, meta.nic.why, meta.nic.tx_why), (7, None, None));
    }

    /// The recorder reported a clock error in every run, although no lifetime used those clocks.
    #[test]
    fn without_a_nic_that_stamps_there_is_no_clock_error_and_a_reason() {
        let mut clocks = NicClocks::of(&[], &[], system);
        let mut meta = RunMeta::default();
        clocks.conclude(&mut meta, (0, 0), (TxStamps::Nic, None));
        assert_eq!((clocks.rows.len(), meta.clock_error_ns), (0, 0));
        assert!(meta.nic.why.unwrap().contains("no network device"));
        assert!(meta.nic.tx_why.unwrap().contains("hwtstamp_ctl"));
        assert_eq!(meta.warnings.len(), 1, "asked for and not there: {:?}", meta.warnings);
        let mut meta = RunMeta::default();
        NicClocks::of(&[], &[], system).conclude(&mut meta, (0, 0), (TxStamps::Off, None));
        assert!(meta.warnings.is_empty(), "not asked for");
    }

    #[test]
    fn a_clock_that_cannot_be_opened_and_stamps_that_do_not_come_are_said() {
        let mut clocks = NicClocks::of(&[], &[device("eth2", 4, 8, false)], |_| Err("no such device".into()));
        let mut meta = RunMeta::default();
        clocks.conclude(&mut meta, (0, 0), (TxStamps::Off, None));
        assert!(meta.warnings[0].contains("/dev/ptp8") && meta.nic.devices.is_empty(), "{:?}", meta.warnings);
        let mut clocks = NicClocks::of(&[], &[device("eth2", 4, 8, false)], system);
        clocks.conclude(&mut meta, (0, 0), (TxStamps::Off, None));
        assert!(meta.nic.why.unwrap().contains("eth2 (all)"));
    }
}
