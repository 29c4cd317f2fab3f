//! Network interfaces: what they are, what time stamps they can make, how they coalesce interrupts.
//!
//! In: `/sys/class/net` and, on the live host, ethtool requests in this network namespace. Out: [`Nic`] records.

use crate::ethtool::{self, CoalesceInfo, TsInfo};
use crate::{Fact, HostError, Root, syscall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;

/// Why a fact of a device is not known: its driver has no such function (`EOPNOTSUPP`).
pub(crate) const UNSUPPORTED: &str = "the driver does not support it";

/// Time stamping abilities (`ETHTOOL_GET_TS_INFO`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeStamping {
    /// The NIC stamps received packets.
    pub rx_hardware: bool,
    /// The NIC stamps sent packets.
    pub tx_hardware: bool,
    /// Raw hardware stamps can be read (`SOF_TIMESTAMPING_RAW_HARDWARE`).
    pub raw_hardware: bool,
    /// The kernel stamps received packets.
    pub rx_software: bool,
    /// The driver stamps sent packets when it hands them to the hardware.
    pub tx_software: bool,
    /// The index of its PTP hardware clock, `/dev/ptpN`.
    pub phc_index: Option<u32>,
    /// What received packets the hardware can stamp: `none`, `all`, `ptp_v2_event` …
    pub rx_filters: Vec<String>,
}

impl TimeStamping {
    /// True if the NIC can stamp every received packet, which the `nic` stage needs.
    pub fn stamps_all_rx(&self) -> bool {
        self.rx_hardware && self.raw_hardware && self.rx_filters.iter().any(|f| f == "all")
    }
}

/// Interrupt coalescing (`ETHTOOL_GCOALESCE`): how long the NIC waits before it interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coalescing {
    /// Microseconds that a received packet may wait.
    pub rx_usecs: u32,
    /// Received packets that end the wait.
    pub rx_frames: u32,
    /// Microseconds that a completed transmission may wait.
    pub tx_usecs: u32,
    /// The driver changes the receive values with the load.
    pub adaptive_rx: bool,
    /// The driver changes the transmit values with the load.
    pub adaptive_tx: bool,
}

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: Fact<String>,
    /// True if a device is behind it (PCI, virtio …), false for `lo`, veth, bridges.
    pub physical: bool,
    /// `up`, `down`, `unknown` (loopback) …
    pub operstate: Fact<String>,
    /// True if it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Largest packet in bytes.
    pub mtu: Fact<u32>,
    /// Time stamping abilities.
    pub timestamping: Fact<TimeStamping>,
    /// Interrupt coalescing, where the driver has it.
    pub coalescing: Fact<Coalescing>,
    /// Nanoseconds for which NAPI keeps packets and interrupts back (`gro_flush_timeout`); 0 is off.
    pub gro_flush_timeout_ns: Fact<u64>,
}

/// Every interface of this network namespace, physical ones first.
pub fn collect(root: &Root) -> Vec<Nic> {
    let mut nics: Vec<Nic> = root
        .names("/sys/class/net")
        .into_iter()
        .filter(|n| root.exists(&format!("/sys/class/net/{n}/mtu")))
        .map(|n| one(root, n))
        .collect();
    nics.sort_by_key(|n| !n.physical);
    nics
}

fn one(root: &Root, name: String) -> Nic {
    let at = |file: &str| format!("/sys/class/net/{name}/{file}");
    let flags = root.text(&at("flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
    let driver = match root.link_name(&at("device/driver")) {
        Some(d) => Fact::Known(d),
        None => ask(root, &name, "ETHTOOL_GDRVINFO", ethtool::driver),
    };
    Nic {
        driver,
        physical: std::fs::symlink_metadata(root.path(&at("device"))).is_ok(),
        operstate: root.text(&at("operstate")).into(),
        up: flags & 1 == 1,
        mtu: root.number(&at("mtu")).into(),
        timestamping: ask(root, &name, "ETHTOOL_GET_TS_INFO", |n| ethtool::ts_info(n).map(decode_ts)),
        coalescing: ask(root, &name, "ETHTOOL_GCOALESCE", |n| ethtool::coalesce(n).map(Coalescing::from)),
        gro_flush_timeout_ns: root.number(&at("gro_flush_timeout")).into(),
        name,
    }
}

fn ask<T>(root: &Root, name: &str, call: &'static str, f: impl Fn(&str) -> io::Result<T>) -> Fact<T> {
    if !root.is_live() {
        return Err(HostError::NotLive { call }).into();
    }
    match f(name) {
        Ok(v) => Fact::Known(v),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Fact::unknown(UNSUPPORTED),
        Err(e) => Fact::unknown(format!("ioctl({call}) on {name} failed with {}: {e}", syscall::errno_name(&e))),
    }
}

/// `HWTSTAMP_FILTER_*`, by number.
const FILTERS: [&str; 16] = [
    "none",
    "all",
    "some",
    "ptp_v1_l4_event",
    "ptp_v1_l4_sync",
    "ptp_v1_l4_delay_req",
    "ptp_v2_l4_event",
    "ptp_v2_l4_sync",
    "ptp_v2_l4_delay_req",
    "ptp_v2_l2_event",
    "ptp_v2_l2_sync",
    "ptp_v2_l2_delay_req",
    "ptp_v2_event",
    "ptp_v2_sync",
    "ptp_v2_delay_req",
    "ntp_all",
];

/// The name of a receive filter.
pub(crate) fn filter_name(filter: u32) -> String {
    FILTERS.get(filter as usize).map_or_else(|| format!("filter {filter}"), |name| (*name).to_owned())
}

fn decode_ts(t: TsInfo) -> TimeStamping {
    // SOF_TIMESTAMPING_*: TX_HARDWARE 1, TX_SOFTWARE 2, RX_HARDWARE 4, RX_SOFTWARE 8, RAW_HARDWARE 64
    let can = |bit: u32| t.so_timestamping & bit != 0;
    TimeStamping {
        tx_hardware: can(1) && t.tx_types & !1 != 0, // tx_types bit 0 is HWTSTAMP_TX_OFF
        tx_software: can(2),
        rx_hardware: can(4),
        rx_software: can(8),
        raw_hardware: can(64),
        phc_index: u32::try_from(t.phc_index).ok(),
        rx_filters: (0..).zip(FILTERS).filter(|(i, _)| t.rx_filters >> i & 1 == 1).map(|(_, f)| f.to_owned()).collect(),
    }
}

impl From<CoalesceInfo> for Coalescing {
    fn from(c: CoalesceInfo) -> Self {
        Coalescing {
            rx_usecs: c.rx_usecs,
            rx_frames: c.rx_frames,
            tx_usecs: c.tx_usecs,
            adaptive_rx: c.adaptive_rx,
            adaptive_tx: c.adaptive_tx,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn lists_physical_first_and_reads_sysfs() {
        let tree = Tree::new(&[
            ("/sys/class/net/br0/mtu", "1500"),
            ("/sys/class/net/br0/flags", "0x1002"),
            ("/sys/class/net/eth0/mtu", "9000"),
            ("/sys/class/net/eth0/flags", "0x1003"),
            ("/sys/class/net/eth0/operstate", "up"),
            ("/sys/class/net/eth0/gro_flush_timeout", "20000"),
            ("/sys/class/net/bonding_masters", "bond0"),
        ]);
        tree.link("/sys/class/net/eth0/device/driver", "../../../bus/pci/drivers/mlx5_core");
        let nics = collect(&tree.root());
        assert_eq!(nics.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["eth0", "br0"]);
        assert_eq!(nics[0].driver, Fact::Known("mlx5_core".into()));
        assert_eq!((nics[0].physical, nics[0].up, nics[1].physical, nics[1].up), (true, true, false, false));
        assert_eq!(
            (nics[0].mtu.clone(), nics[0].gro_flush_timeout_ns.clone()),
            (Fact::Known(9000), Fact::Known(20_000))
        );
        assert!(nics[0].timestamping.reason().unwrap().contains("not tried"));
    }

    #[test]
    fn decodes_time_stamping() {
        let full = decode_ts(TsInfo { so_timestamping: 0x5f, phc_index: 0, tx_types: 3, rx_filters: 3 });
        assert!(full.stamps_all_rx() && full.tx_hardware && full.tx_software);
        assert_eq!((full.phc_index, full.rx_filters.len()), (Some(0), 2));
        let ptp_only = decode_ts(TsInfo { so_timestamping: 0x45, phc_index: 1, tx_types: 1, rx_filters: 1 | 1 << 12 });
        assert!(!ptp_only.stamps_all_rx() && !ptp_only.tx_hardware);
        assert_eq!(ptp_only.rx_filters, ["none", "ptp_v2_event"]);
        let soft = decode_ts(TsInfo { so_timestamping: 0x18, phc_index: -1, tx_types: 0, rx_filters: 0 });
        assert_eq!((soft.phc_index, soft.rx_hardware, soft.rx_software), (None, false, true));
    }
}
