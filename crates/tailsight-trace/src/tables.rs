//! The tables beside the events: tasks, sockets, clocks. Each is an Arrow IPC stream with the columns of its row type.

use serde::{Deserialize, Serialize};

/// A name that a thread had from some time on (tasks.arrow).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// From when, CLOCK_MONOTONIC ns; 0: before the recording began.
    pub from_ns: u64,
    /// Thread id.
    pub tid: u32,
    /// Process (thread group) id.
    pub tgid: u32,
    /// Command name.
    pub comm: String,
    /// Whether it belongs to the target.
    pub target: bool,
    /// Whether it is a kernel thread.
    pub kernel: bool,
    /// The control group of its process, as in /proc/PID/cgroup (version 2, else that of the `cpu` or a named hierarchy);
    /// empty when not known, and in older runs.
    pub cgroup: String,
}

/// A socket seen when the recording began, or met in it (sockets.arrow).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRow {
    /// `tcp` or `udp`.
    pub proto: String,
    /// Local address.
    pub local_addr: String,
    /// Local port.
    pub local_port: u16,
    /// Remote address; empty when not connected.
    pub remote_addr: String,
    /// Remote port; 0 when not connected.
    pub remote_port: u16,
    /// Whether it listens (TCP) or is unconnected (UDP): a server's door.
    pub listening: bool,
    /// A process that holds it, 0 when not known.
    pub tgid: u32,
    /// Command name of that process.
    pub comm: String,
    /// Address key of the flow, as in the events.
    pub addrs: u64,
}

/// One comparison of a NIC's clock with CLOCK_MONOTONIC (nic_clocks.arrow).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicClockRow {
    /// The number of the clock: /dev/ptpN.
    pub phc: u32,
    /// When, CLOCK_MONOTONIC ns.
    pub monotonic_ns: u64,
    /// What the NIC's clock showed, ns.
    pub phc_ns: u64,
    /// The most that `monotonic_ns` can be wrong, ns.
    pub error_ns: u64,
}

/// One comparison of clocks (clocks.arrow): all read within `bracket_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRow {
    /// CLOCK_MONOTONIC, ns: the middle of the bracket.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns.
    pub realtime_ns: u64,
    /// CLOCK_BOOTTIME, ns.
    pub boottime_ns: u64,
    /// Time-stamp counter, 0 where there is none.
    pub tsc: u64,
    /// Time between the two CLOCK_MONOTONIC reads around the others: twice the error bound.
    pub bracket_ns: u64,
}
