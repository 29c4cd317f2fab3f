//! Rights that a recording no longer needs, given up: capabilities, and with a seccomp filter system calls.
//!
//! In: where the recording stands ([`Stage`]). Out: what was given up, for run.json. Neither can be taken back, so that only a
//! program which records and then ends does it ([`crate::Options::confine`]).
//!
//! Landlock is not used: a process that it restricts may no longer look at other processes (`ptrace_may_access`), and their
//! descriptors, maps and files are what a recorder reads until its end.

mod capabilities;
mod filter;

use tailsight_trace::meta::Confinement;

/// How far the recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Every program is attached.
    Recording,
    /// The programs are detached and their cost is measured; next, files of the target are read, which are untrusted.
    Reading,
}

/// What the recording needs besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// It started a command, which it will end, whatever user it has become.
    pub command: bool,
    /// It takes time stamps of a NIC, and will take the flag off the target's sockets.
    pub stamps: bool,
    /// The run's folder is another user's.
    pub shared: bool,
    /// A JVM will be asked for the map of what it compiled: a signal, a file in its /tmp, its socket.
    pub jvm: bool,
}

/// Gives up, for the calling thread, everything but setting priorities.
///
/// # Errors
/// The kernel's.
pub fn keep_priority_only() -> std::io::Result<()> {
    capabilities::keep_only(&[capabilities::SYS_NICE]).map(|_| ())
}

/// Gives up what is not needed from this stage on. What the kernel refuses is said; the recording goes on.
pub fn confine(stage: Stage, needs: Needs, said: &mut Confinement) {
    match capabilities::keep_only(&capabilities::needed(stage, needs)) {
        Ok(kept) => said.capabilities = kept,
        Err(e) => said.notes.push(format!("capabilities were not given up: {e}")),
    }
    if stage == Stage::Recording {
        match filter::install(needs.jvm) {
            Ok(()) => said.seccomp = true,
            Err(why) => said.notes.push(format!("no seccomp filter: {why}")),
        }
    }
}
