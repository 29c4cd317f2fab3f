//! The probes while they are in the kernel: their switches, their buffers, their end. In: what the loader attached
//! ([`crate::loader`]). Out: variables and maps that the programs read, and file descriptors.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, MapCore, ProgramInput, libbpf_sys};

use crate::error::Error;
use crate::object::Probes;

/// The probes in the kernel.
pub struct Loaded {
    /// Maps, variables, programs.
    pub probes: Probes,
    /// They are attached as long as these live.
    pub(crate) links: Vec<Link>,
}

impl Loaded {
    /// Attached programs.
    pub(crate) fn new(probes: Probes, links: Vec<Link>) -> Loaded {
        Loaded { probes, links }
    }

    /// Attaches the empty program that the cost measurement subtracts.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn attach_baseline(&mut self) -> Result<(), Error> {
        for program in self.probes.object().progs_mut() {
            if program.name() == "baseline" {
                let link = program.attach().map_err(|e| Error::bpf("attaching the empty program", e))?;
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// Starts to write down births and names of tasks, before the rest is recorded.
    pub fn set_naming(&mut self) {
        let bss = self.probes.variables_mut();
        // SAFETY: as in `set_recording`.
        unsafe { std::ptr::write_volatile(&mut bss.naming, 1) };
    }

    /// What `set_nic_tx` sets on a socket.
    pub fn set_nic_tx_flags(&mut self, flags: u32) {
        let bss = self.probes.variables_mut();
        // SAFETY: as in `set_recording`.
        unsafe { std::ptr::write_volatile(&mut bss.nic_tx_flags, flags) };
    }

    /// Switches the search for NIC time stamps on or off.
    pub fn set_nic_stamps(&mut self, on: bool) {
        let bss = self.probes.variables_mut();
        // SAFETY: the pointer comes from a live exclusive reference into the map's shared mapping.
        unsafe { std::ptr::write_volatile(&mut bss.nic_stamps, u32::from(on)) };
    }

    /// How often a traced function may be called in a second.
    pub fn set_function_limit(&mut self, per_second: u32) {
        let bss = self.probes.variables_mut();
        // SAFETY: as in `set_recording`.
        unsafe { std::ptr::write_volatile(&mut bss.function_limit, (per_second / 10).max(1)) };
    }

    /// Starts or stops recording.
    pub fn set_recording(&mut self, on: bool) {
        let bss = self.probes.variables_mut();
        // The kernel side reads this word on every event: a volatile store keeps it one store.
        // SAFETY: the pointer comes from a live exclusive reference into the map's shared mapping.
        unsafe { std::ptr::write_volatile(&mut bss.recording, u32::from(on)) };
    }

    /// Makes every core record which task runs on it, to which the events before the core's first switch belong. On kernels
    /// before 5.10 and on offline cores this does nothing; there the first event tells it, later.
    pub fn tell_current(&self, cpus: u32) {
        let Some(program) = self.probes.object().progs_mut().find(|p| p.name() == "current_task") else { return };
        for cpu in 0..cpus {
            let input = ProgramInput { cpu, flags: libbpf_sys::BPF_F_TEST_RUN_ON_CPU, ..ProgramInput::default() };
            let _ = program.test_run(input);
        }
    }

    /// Detaches every program.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// File descriptors of every loaded program, by name.
    pub fn programs(&self) -> Vec<(String, i32)> {
        self.probes
            .object()
            .progs_mut()
            .filter(|p| p.autoload())
            .map(|p| (p.name().to_string_lossy().into_owned(), p.as_fd().as_raw_fd()))
            .collect()
    }

    /// Gives the probes their buffers: one map a chunk, in the order of cores.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn set_chunks(&self, fds: &[i32]) -> Result<(), Error> {
        let bytes = |numbers: &mut dyn Iterator<Item = u32>| numbers.flat_map(u32::to_ne_bytes).collect::<Vec<u8>>();
        let count = fds.len() as u32;
        let keys = bytes(&mut (0..count));
        let values = bytes(&mut fds.iter().map(|fd| fd.cast_unsigned()));
        // In one call: each single update of a map of maps waits for every running program to end.
        self.probes
            .maps
            .chunks
            .update_batch(&keys, &values, count, libbpf_rs::MapFlags::ANY, libbpf_rs::MapFlags::ANY)
            .map_err(|e| Error::bpf("connecting the buffers", e))
    }
}
