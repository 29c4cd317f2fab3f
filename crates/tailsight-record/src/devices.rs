//! The network devices that the target's packets came in on, for run.json.
//!
//! In: packets by interface index, as the receive hook saw them, and a process of the target. Out: [`Device`] rows. An
//! index counts within its network namespace and the hook does not say which: it is looked up in the target's first, then
//! in ours. What cannot be read is left out; a recording never fails for it.

use std::collections::HashMap;

use tailsight_host::{Root, device};
use tailsight_trace::meta::Device;

/// Most devices that are written down.
const MOST_DEVICES: usize = 8;

/// Devices with packets of the target: those with interrupts first, then by packets.
pub fn of_target(pid: Option<u32>, packets: &HashMap<u32, u64>) -> Vec<Device> {
    if packets.is_empty() {
        return Vec::new();
    }
    let root = Root::host();
    let theirs = pid.filter(|&p| device::is_elsewhere(p)).and_then(|p| device::of_process(&root, p).ok());
    located(packets, &theirs.unwrap_or_default(), &device::here(&root), pid.unwrap_or_default())
}

fn located(
    packets: &HashMap<u32, u64>,
    theirs: &[device::Device],
    ours: &[device::Device],
    target: u32,
) -> Vec<Device> {
    let row = |(&ifindex, &packets): (&u32, &u64)| {
        let device_in = |devices: &[device::Device]| devices.iter().find(|d| d.ifindex == ifindex).cloned();
        let (device, here) = device_in(theirs).map(|d| (d, false)).or_else(|| Some((device_in(ours)?, true)))?;
        let device::Device { name, ifindex, driver, rx_queues, tx_queues, irqs } = device;
        let pid = if here { 0 } else { target };
        Some(Device { name, ifindex, here, pid, driver, rx_queues, tx_queues, irqs, packets })
    };
    let mut rows: Vec<Device> = packets.iter().filter_map(row).collect();
    rows.sort_by_key(|d| (d.irqs.is_empty(), std::cmp::Reverse(d.packets), d.ifindex));
    rows.truncate(MOST_DEVICES);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_looked_up_where_the_target_is_first() {
        let device = |name: &str, ifindex, irqs: &[u32]| device::Device {
            name: name.into(),
            ifindex,
            irqs: irqs.to_vec(),
            ..device::Device::default()
        };
        let (theirs, ours) =
            ([device("lo", 1, &[]), device("veth0", 9, &[])], [device("lo", 1, &[]), device("eth0", 2, &[38, 39])]);
        let packets = HashMap::from([(9, 500), (2, 400), (1, 700), (77, 1)]);
        let devices = located(&packets, &theirs, &ours, 41);
        let rows: Vec<_> = devices.iter().map(|d| (d.name.as_str(), d.here, d.pid, d.packets, d.irqs.len())).collect();
        assert_eq!(rows, [("eth0", true, 0, 400, 2), ("lo", false, 41, 700, 0), ("veth0", false, 41, 500, 0)]);
        assert!(of_target(None, &HashMap::new()).is_empty());
    }
}
