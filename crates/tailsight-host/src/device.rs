//! Network devices as a fix needs them: name, index, driver, queues, interrupts.
//!
//! In: `/sys/class/net` under a [`Root`], or, of another network namespace, the interface list and ethtool requests made by
//! a short-lived thread inside it. Out: [`Device`] records. A virtual device has no interrupts.

use crate::{HostError, Root, ethtool};
use nix::sched::{CloneFlags, setns};
use std::fs::{self, File};
use std::io;

/// One network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index in its network namespace.
    pub ifindex: u32,
    /// Its driver; empty when not known.
    pub driver: String,
    /// Receive queues, 0 when not known.
    pub rx_queues: u32,
    /// Transmit queues, 0 when not known.
    pub tx_queues: u32,
    /// Its interrupts, ascending; none for a virtual device.
    pub irqs: Vec<u32>,
}

/// The devices that `/sys/class/net` shows: on a live host, those of the network namespace that `/sys` was mounted in.
pub fn here(root: &Root) -> Vec<Device> {
    let interrupts = root.text("/proc/interrupts").unwrap_or_default();
    let names = root.names("/sys/class/net").into_iter();
    names.filter_map(|name| one(root, name, &interrupts)).collect()
}

fn one(root: &Root, name: String, interrupts: &str) -> Option<Device> {
    let at = |file: &str| format!("/sys/class/net/{name}/{file}");
    let ifindex = root.number(&at("ifindex")).ok()?;
    let queues = root.names(&at("queues"));
    let count = |prefix: &str| queues.iter().filter(|q| q.starts_with(prefix)).count() as u32;
    let behind = root.link_name(&at("device"));
    let driver = root.link_name(&at("device/driver")).unwrap_or_else(|| asked(root, &name));
    // A virtio device sits on a PCI device that has the interrupts.
    let listed =
        [at("device/msi_irqs"), at("device/../msi_irqs")].iter().map(|dir| root.names(dir)).find(|n| !n.is_empty());
    let mut irqs = numbers(&listed.unwrap_or_default());
    if irqs.is_empty() {
        irqs.extend(root.number::<u32>(&at("device/irq")).ok().filter(|&irq| irq > 0));
    }
    let irqs = match &behind {
        Some(behind) => used(irqs, interrupts, &[&name, behind]),
        None => vec![],
    };
    Some(Device { ifindex, driver, rx_queues: count("rx-"), tx_queues: count("tx-"), irqs, name })
}

/// The devices of the network namespace that a process is in, asked from inside it.
///
/// # Errors
/// [`HostError::Syscall`] when the process is gone or this one may not enter its namespace.
pub fn of_process(root: &Root, pid: u32) -> Result<Vec<Device>, HostError> {
    if !root.is_live() {
        return Err(HostError::NotLive { call: "setns" });
    }
    inside(pid, || {
        let interrupts = root.text("/proc/interrupts").unwrap_or_default();
        let names = nix::net::if_::if_nameindex()?;
        Ok(names.iter().map(|i| by_request(root, &i.name().to_string_lossy(), i.index(), &interrupts)).collect())
    })
}

/// Runs a query in the network namespace of a process.
///
/// # Errors
/// [`HostError::Syscall`] when the process is gone, this one may not enter its namespace, or the question fails.
pub fn inside<T: Send>(pid: u32, question: impl FnOnce() -> io::Result<T> + Send) -> Result<T, HostError> {
    let path = format!("/proc/{pid}/ns/net");
    let failed = |call: String| move |source: io::Error| HostError::Syscall { call, source };
    let place = File::open(&path).map_err(failed(format!("open({path})")))?;
    // A thread of its own, so that nothing else of this process changes its namespace.
    let inside = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> io::Result<T> {
            setns(&place, CloneFlags::CLONE_NEWNET)?;
            question()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    inside.map_err(failed(format!("setns({path})")))
}

/// Whether a process is in another network namespace than this one; `false` when that cannot be told.
pub fn is_elsewhere(pid: u32) -> bool {
    let namespace_of = |who: &str| fs::read_link(format!("/proc/{who}/ns/net"));
    matches!((namespace_of(&pid.to_string()), namespace_of("self")), (Ok(theirs), Ok(ours)) if theirs != ours)
}

fn by_request(root: &Root, name: &str, ifindex: u32, interrupts: &str) -> Device {
    let (driver, bus) = ethtool::driver_and_bus(name).unwrap_or_default();
    let (rx_queues, tx_queues) = ethtool::channels(name).unwrap_or((0, 0));
    // The bus shows every device, whatever namespace its interface is in.
    let plain = !bus.is_empty() && !bus.contains('/') && bus != "..";
    let listed = if plain { root.names(&format!("/sys/bus/pci/devices/{bus}/msi_irqs")) } else { vec![] };
    let virtio = if plain { root.names(&format!("/sys/bus/pci/devices/{bus}")) } else { vec![] };
    let mut names = vec![name];
    names.extend(virtio.iter().map(String::as_str).filter(|n| n.starts_with("virtio")));
    let irqs = used(numbers(&listed), interrupts, &names);
    Device { name: name.into(), ifindex, driver, rx_queues, tx_queues, irqs }
}

fn asked(root: &Root, name: &str) -> String {
    if root.is_live() {
        ethtool::driver_and_bus(name).map(|(driver, _)| driver).unwrap_or_default()
    } else {
        String::new()
    }
}

fn numbers(names: &[String]) -> Vec<u32> {
    names.iter().filter_map(|n| n.parse().ok()).collect()
}

/// Of a device's interrupts, those that `/proc/interrupts` shows as the interface's queues, by one of its names; all of them
/// when none has such a name (several interfaces may share a PCI device). Interrupts for configuration carry no packets.
fn used(mut irqs: Vec<u32>, interrupts: &str, names: &[&str]) -> Vec<u32> {
    irqs.sort_unstable();
    irqs.dedup();
    let action = |irq: u32| {
        let line = |l: &&str| l.split_once(':').is_some_and(|(n, _)| n.trim().parse() == Ok(irq));
        interrupts.lines().find(line).map(|l| l.split_whitespace().last().unwrap_or("").to_owned())
    };
    let is_named = |action: &str| {
        let word = |name: &&str| action.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == *name);
        // An interface's name may contain the characters that separate words.
        names.iter().any(|n| word(n) || action.starts_with(&format!("{n}-")))
    };
    let shown: Vec<(u32, String)> = irqs.iter().filter_map(|&i| Some((i, action(i)?))).collect();
    let carries = |a: &str| !a.ends_with("-config");
    let named: Vec<u32> = shown.iter().filter(|(_, a)| is_named(a) && carries(a)).map(|(i, _)| *i).collect();
    if named.is_empty() { shown.into_iter().filter(|(_, a)| carries(a)).map(|(i, _)| i).collect() } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    const INTERRUPTS: &str = "           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0      11096 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:       8085          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
 60:          3          0 PCI-MSIX-0000:05:00.0   0-edge      enp5s0f0-TxRx-0
 61:          3          0 PCI-MSIX-0000:05:00.0   1-edge      enp5s0f1-TxRx-0
NMI:          0          0   Non-maskable interrupts";

    #[test]
    fn queues_and_interrupts_of_virtio_pci_and_veth() {
        let tree = Tree::new(&[
            ("/proc/interrupts", INTERRUPTS),
            ("/sys/devices/pci/03.0/msi_irqs/37", "msix"),
            ("/sys/devices/pci/03.0/msi_irqs/38", "msix"),
            ("/sys/devices/pci/03.0/msi_irqs/39", "msix"),
            ("/sys/devices/pci/03.0/virtio2/vendor", "0x1af4"),
            ("/sys/class/net/eth0/ifindex", "2"),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
            ("/sys/class/net/eth0/queues/tx-0/xps_cpus", "0"),
            ("/sys/class/net/eth0/queues/tx-1/xps_cpus", "0"),
            ("/sys/devices/pci/05.0/msi_irqs/60", "msix"),
            ("/sys/devices/pci/05.0/msi_irqs/61", "msix"),
            ("/sys/class/net/enp5s0f1/ifindex", "3"),
            ("/sys/class/net/veth1/ifindex", "7"),
            ("/sys/class/net/veth1/queues/rx-0/rps_cpus", "0"),
            ("/sys/class/net/bonding_masters", "bond0"),
        ]);
        tree.link("/sys/class/net/eth0/device", "../../../devices/pci/03.0/virtio2");
        tree.link("/sys/devices/pci/03.0/virtio2/driver", "../../../../bus/virtio/drivers/virtio_net");
        tree.link("/sys/class/net/enp5s0f1/device", "../../../devices/pci/05.0");
        let device = |name: &str, ifindex, driver: &str, rx_queues, tx_queues, irqs: &[u32]| Device {
            name: name.into(),
            ifindex,
            driver: driver.into(),
            rx_queues,
            tx_queues,
            irqs: irqs.to_vec(),
        };
        let mut devices = here(&tree.root());
        devices.sort_by_key(|d| d.ifindex);
        assert_eq!(
            devices,
            [
                device("eth0", 2, "virtio_net", 1, 2, &[38, 39]),
                device("enp5s0f1", 3, "", 0, 0, &[61]),
                device("veth1", 7, "", 1, 0, &[]),
            ]
        );
    }

    #[test]
    fn interrupts_without_a_name_of_the_device_are_all_its_own() {
        assert_eq!(used(vec![39, 38, 37, 99], INTERRUPTS, &["eth0"]), [38, 39]);
        assert_eq!(used(vec![38], "", &["eth0"]), Vec::<u32>::new());
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        // Above the largest process id of any kernel.
        let error = of_process(&Root::host(), u32::MAX).unwrap_err().to_string();
        assert!(error.contains("/proc/4294967295/ns/net"), "{error}");
        assert!(!is_elsewhere(u32::MAX) && !is_elsewhere(std::process::id()));
    }
}
