//! Rights that a recording no longer needs, given up: capabilities, and with a seccomp filter system calls.
//!
//! In: where the recording stands ([`Stage`]). Out: what was given up, for run.json. Neither can be taken back, so that only a
//! program which records and then ends does it ([`crate::Options::confine`]).
//!
//! Landlock is not used: a process that it restricts may no longer look at other processes (`ptrace_may_access`), and their
//! descriptors, maps and files are what a recorder reads until its end.

use tailsight_confine::capabilities::{
    self, BPF, CHECKPOINT_RESTORE, Capability, DAC_OVERRIDE, DAC_READ_SEARCH, KILL, NET_ADMIN, PERFMON, SYS_ADMIN,
    SYS_NICE, SYS_PTRACE, SYSLOG,
};
use tailsight_confine::filter;
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
    capabilities::keep_only(&[SYS_NICE]).map(|_| ())
}

/// Gives up what is not needed from this stage on. What the kernel refuses is said; the recording goes on.
pub fn confine(stage: Stage, needs: Needs, said: &mut Confinement) {
    match capabilities::keep_only(&needed(stage, needs)) {
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

/// The capabilities that a recording still needs from a stage on, if it has them.
fn needed(stage: Stage, needs: Needs) -> Vec<Capability> {
    // Descriptors, maps and files of the target; files that were deleted; its priority while it writes; kernel symbols.
    let mut list = vec![SYS_PTRACE, DAC_READ_SEARCH, CHECKPOINT_RESTORE, SYS_NICE, SYSLOG];
    if stage == Stage::Recording {
        // The cost of the hooks is measured at the end, with one more program; the target's namespace is entered for its devices.
        list.extend([BPF, PERFMON, SYS_ADMIN]);
        if needs.stamps {
            list.push(NET_ADMIN);
        }
    }
    if needs.command || needs.jvm {
        list.push(KILL);
    }
    // For a JVM: only its own user may connect to its socket.
    if needs.shared || needs.jvm {
        list.push(DAC_OVERRIDE);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_recording_needs_no_administrator() {
        for needs in [Needs::default(), Needs { command: true, stamps: true, shared: true, jvm: true }] {
            let names: Vec<&str> = needed(Stage::Reading, needs).iter().map(|(name, _)| *name).collect();
            for never in ["CAP_SYS_ADMIN", "CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"] {
                assert!(!names.contains(&never), "{names:?}");
            }
        }
        assert!(!needed(Stage::Recording, Needs::default()).contains(&DAC_OVERRIDE));
    }
}
