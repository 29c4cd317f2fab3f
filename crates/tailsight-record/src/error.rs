//! What can go wrong with a recording. Each message says what was tried, on what, and what to do next.

use std::path::PathBuf;

/// What an error comes from: of the system, of libbpf, or a sentence.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error of recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refuses BPF tracing to this process.
    #[error("cannot load the probes: {why}\n  `tailsight doctor` shows what this host allows")]
    NotAllowed {
        /// What forbids it and what to do.
        why: String,
        /// What libbpf said, where it was asked.
        source: Option<libbpf_rs::Error>,
    },
    /// The kernel does not tell its types, by which programs are attached.
    #[error(
        "cannot load the probes: the kernel's type information (BTF) is needed; `tailsight doctor` shows what this host \
         allows"
    )]
    NoTypes {
        /// The cause.
        source: tailsight_host::HostError,
    },
    /// The kernel lacks hooks that no recording can do without.
    #[error(
        "kernel {release} lacks {missing}: recording needs kernel 6.3 or newer with BTF, or 6.1 with fentry\n  stock \
         kernels that have them: Debian 12 and 13, Ubuntu 24.04; `tailsight doctor` lists every hook"
    )]
    KernelTooOld {
        /// The running kernel.
        release: String,
        /// The missing tracepoints.
        missing: String,
    },
    /// No process with that id.
    #[error(
        "no process has pid {pid}\n  `pgrep -a NAME` finds it; --comm NAME and --port PORT choose by name and by port"
    )]
    NoSuchPid {
        /// The pid as given.
        pid: u32,
    },
    /// The sockets of the target are hidden from this process: its ports cannot be known.
    #[error(
        "cannot read the sockets of process {pid}, without which its ports are unknown and no message can be followed; it \
         needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: run as root, or see docs/privileges.md for the capabilities to give"
    )]
    SocketsHidden {
        /// The process.
        pid: u32,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Nothing matches the selector.
    #[error("{tried}: {why}\n  {next}")]
    NoTarget {
        /// What was looked for.
        tried: String,
        /// What was found instead.
        why: String,
        /// What to do.
        next: String,
    },
    /// The command could not be started.
    #[error("cannot start {command:?}")]
    Command {
        /// The program.
        command: String,
        /// The cause.
        source: Cause,
    },
    /// libbpf failed in a way that the checks before did not foresee.
    #[error(
        "{step} failed; `tailsight doctor` shows what this host allows; please report this with the kernel release"
    )]
    Bpf {
        /// What was being done.
        step: String,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
    /// The kernel's BPF statistics could not be had.
    #[error(
        "the kernel's BPF statistics cannot be switched on (they need CAP_SYS_ADMIN; everything else works without them)"
    )]
    NoCost {
        /// The cause.
        source: std::io::Error,
    },
    /// Hooks that find no room return early: what they cost then is not what they cost in the recording.
    #[error("{lost} events found no room meanwhile; use a larger --buffer")]
    NoCostOfFull {
        /// Events that were lost while it was measured.
        lost: u64,
    },
    /// A function that was named for tracing cannot be traced.
    #[error("{asked}: {why}")]
    Function {
        /// The option as given.
        asked: String,
        /// What is there instead, and what to do.
        why: String,
    },
    /// It was asked to end while it prepared.
    #[error("ended before the recording began: nothing was recorded")]
    Stopped,
    /// An unknown hook was named.
    #[error("no hook named {name:?}; `tailsight doctor` lists them")]
    NoSuchHook {
        /// The name as given.
        name: String,
    },
    /// A hook that no recording can do without was to be left out.
    #[error("{name} cannot be turned off: no message can be followed without it; remove --without-hook {name}")]
    HookNeeded {
        /// The name as given.
        name: String,
    },
    /// Not enough memory for the buffers.
    #[error("cannot make buffers of {bytes} bytes; give less with --buffer, e.g. --buffer 64M")]
    Buffers {
        /// All buffers together.
        bytes: u64,
        /// The cause.
        source: Cause,
    },
    /// A file below /proc that must exist could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The run directory.
    #[error(transparent)]
    Run(#[from] tailsight_trace::Error),
}

impl Error {
    pub(crate) fn bpf(step: &str, source: libbpf_rs::Error) -> Self {
        Error::Bpf { step: step.into(), source }
    }
}
