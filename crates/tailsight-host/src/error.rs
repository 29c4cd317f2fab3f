//! The one error type of this crate. Each message says what was tried, on what, and what to do next; what the kernel answered is
//! its source (`tailsight_units::chain` prints both).

use std::io;
use std::path::PathBuf;

/// Why a fact about the host could not be established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A file is not there, so the kernel lacks the feature or the file system is not mounted.
    #[error("{} does not exist: this kernel lacks the feature, or the file system is not mounted here", path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// A file exists but could not be read.
    #[error("cannot read {}{}", path.display(), advice(source))]
    Read {
        /// The file that was read.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A file was read but does not have the form that the kernel documents.
    #[error("{} holds {found:?}, which is not {expected}; please report it with the kernel release", path.display())]
    Parse {
        /// The file that was read.
        path: PathBuf,
        /// What was expected there.
        expected: &'static str,
        /// The beginning of what was found.
        found: String,
    },
    /// The BTF type information is damaged or of a kind this reader does not know.
    #[error(
        "the kernel's BTF is not readable at byte {offset}: {what}; `bpftool btf dump file /sys/kernel/btf/vmlinux` \
         checks it"
    )]
    Btf {
        /// Byte offset in the BTF image.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// A system call failed.
    #[error("{call} failed{}", advice(source))]
    Syscall {
        /// The call with its operation, such as `ioctl(ETHTOOL_GCOALESCE) on eth0`.
        call: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// This host does not provide the fact.
    #[error("not available on this host: {what}")]
    Unsupported {
        /// What was wanted, and why it is not there.
        what: String,
    },
    /// The question needs a system call, and the report is about a file tree, not about the running host.
    #[error("{call} was not tried: the data come from a copied file tree, not from the running host")]
    NotLive {
        /// The call that would have been made.
        call: &'static str,
    },
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => " (run as root)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was printed twice: once in the error's own text, once as its source.
    #[test]
    fn what_the_kernel_answered_is_said_once() {
        let error = HostError::Read { path: "/proc/1/mem".into(), source: io::Error::from_raw_os_error(libc::EACCES) };
        let text = "cannot read /proc/1/mem (run as root): Permission denied (os error 13)";
        assert_eq!(tailsight_units::chain(&error), text);
    }
}
