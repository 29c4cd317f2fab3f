//! Time stamps that NICs make of what the target sends. The C is beside this file, in `nic_tx.bpf.c`.
//!
//! In: the loaded probes, the target's processes. Out: [`NicTx`], which holds the program on the target's control group and the
//! flag on its sockets until it is dropped, or why there are no such stamps. A recording goes on without.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::path::PathBuf;

use libbpf_rs::{Link, libbpf_sys};
use tailsight_host::cgroup::Groups;
use tailsight_host::device;

use super::{Extras, OnDemand, Probe};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::Opened;

/// Transmit stamps of NICs. No hooks: these programs are attached by [`NicTx`], to the target's control group, when asked for.
pub const PROBE: Probe = Probe { name: "nic_tx", on_demand: Some(OnDemand { loads, prepare }), hooks: &[] };

fn loads(extras: &Extras, program: &str) -> bool {
    extras.tx_stamps != TxStamps::Off && ["nic_tx", "set_nic_tx"].contains(&program)
}

fn prepare(open: &mut Opened, extras: &Extras) -> Result<(), Error> {
    if let Some(op) = extras.tx_stamps.op() {
        open.constants().nic_tx_op = op;
    }
    Ok(())
}

/// Whose transmit stamps are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxStamps {
    /// Nobody's.
    #[default]
    Off,
    /// The NIC's.
    Nic,
    /// The driver's, in the place of a NIC's: for tests of everything but the NIC.
    Driver,
}

/// `BPF_SOCK_OPS_TSTAMP_SND_SW_CB`.
const OP_STAMP_SOFTWARE: u32 = 17;

impl TxStamps {
    /// Of the two callbacks the one whose stamps are events; `None`: the program's own default, the NIC's.
    pub fn op(self) -> Option<u32> {
        (self == TxStamps::Driver).then_some(OP_STAMP_SOFTWARE)
    }
}

/// Why this kernel has no such callbacks, when it has none.
pub fn missing() -> Option<String> {
    let function = ["bpf_sock_ops_enable_tx_tstamp"];
    match tailsight_host::btf::functions(&function) {
        Ok(place) if place[0].is_some() => None,
        Ok(_) => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
            Some(format!("kernel {} has no BPF time stamp callbacks; 6.15 or newer is needed", release.trim()))
        }
        Err(e) => Some(format!("the kernel's type information cannot be read: {}", tailsight_units::chain(&e))),
    }
}

/// Transmit stamps, while they are on.
pub struct NicTx {
    links: Vec<Link>,
    iter: Option<Link>,
    pid: u32,
}

impl NicTx {
    /// Attaches to the control group of a process of the target, and sets the flag on the sockets of its network namespace that
    /// have one of the target's ports.
    ///
    /// # Errors
    /// What could not be done, as a sentence for the reader of the run.
    pub fn start(loaded: &mut Loaded, pid: u32) -> Result<NicTx, String> {
        let group = control_group(pid)?;
        let folder = File::open(&group).map_err(|e| format!("cannot open {}: {e}", group.display()))?;
        let mut started = NicTx { links: Vec::new(), iter: None, pid };
        for program in loaded.probes.object().progs_mut() {
            let failed = |e| format!("attaching {} failed: {e:#}", program.name().to_string_lossy());
            match program.name().to_str() {
                Some("nic_tx") => {
                    started.links.push(program.attach_cgroup(folder.as_fd().as_raw_fd()).map_err(failed)?);
                }
                Some("set_nic_tx") => started.iter = Some(program.attach().map_err(failed)?),
                _ => {}
            }
        }
        started.set(loaded, 1)?;
        Ok(started)
    }

    /// Sets or clears the flag on the sockets that are there.
    fn set(&self, loaded: &mut Loaded, flags: u32) -> Result<(), String> {
        loaded.set_nic_tx_flags(flags);
        let Some(link) = self.iter.as_ref().map(|l| l.as_fd().as_raw_fd()) else { return Ok(()) };
        let go = move || {
            // SAFETY: the descriptor is the link's, which lives over the call.
            let fd = unsafe { libbpf_sys::bpf_iter_create(link) };
            if fd < 0 {
                return Err(std::io::Error::from_raw_os_error(-fd));
            }
            // SAFETY: the kernel just gave us this descriptor.
            let mut iter = unsafe { File::from_raw_fd(fd) };
            // The program writes nothing; reading runs it for each socket.
            iter.read_to_end(&mut Vec::new()).map(|_| ())
        };
        device::inside(self.pid, go).map_err(|e| format!("the flag of the target's sockets cannot be set: {e}"))
    }

    /// Takes the flag off the sockets again. (Without the program, a flag that stays has no effect.)
    pub fn stop(mut self, loaded: &mut Loaded) -> Result<(), String> {
        self.links.clear();
        // The namespace is gone, and its sockets with it.
        if crate::procfs::alive(self.pid) { self.set(loaded, 0) } else { Ok(()) }
    }
}

/// The folder of the control group (version 2) that a process is in, where a program can be attached.
fn control_group(pid: u32) -> Result<PathBuf, String> {
    let groups = std::fs::read(format!("/proc/{pid}/cgroup")).map_err(|e| format!("process {pid}: {e}"))?;
    let groups = Groups::parse(groups);
    groups.path("").ok_or("the target is not in a cgroup v2")?;
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let (_, folder) = groups.folder(mounts, "").ok_or("cgroup v2 is not mounted here")?;
    if folder.is_dir() { Ok(folder) } else { Err(format!("{} is not there", folder.display())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_has_a_reason_when_it_cannot_be_set() {
        assert!(control_group(u32::MAX).unwrap_err().contains("4294967295"));
        assert_eq!((TxStamps::Driver.op(), TxStamps::Nic.op(), TxStamps::Off.op()), (Some(17), None, None));
    }
}
