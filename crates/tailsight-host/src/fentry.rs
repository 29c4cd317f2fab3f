//! Whether the running kernel takes programs at the begin and end of its functions (fentry, fexit). `doctor` and the recorder ask
//! here, so that they agree.
//!
//! In: the kernel's BTF, `/proc/sys/kernel/ftrace_enabled`, and one `bpf()` call that loads a program of two instructions and closes
//! it; nothing is attached. Out: an [`Attempt`], or that it was not tried.

use crate::rights::Attempt;
use crate::{Fact, HostError, Root, btf, syscall};

/// A function that every kernel has and that is never inlined away: it is reached by a system call of its own.
const FUNCTION: &str = "vfs_fsync_range";
const TRACER: &str = "/proc/sys/kernel/ftrace_enabled";

/// Tries it, on the live host only.
pub fn attempt(root: &Root) -> Fact<Attempt> {
    if !root.is_live() {
        return Err(HostError::NotLive { call: "bpf(BPF_PROG_LOAD) of a fentry program" }).into();
    }
    Fact::Known(tried(root))
}

/// Whether the recorder may use such programs.
///
/// # Errors
/// Why not, as a part of a sentence.
pub fn allowed() -> Result<(), String> {
    let tried = tried(&Root::host());
    if tried.allowed { Ok(()) } else { Err(tried.meaning) }
}

fn tried(root: &Root) -> Attempt {
    let no = |errno, meaning| Attempt { allowed: false, errno, meaning };
    // While the function tracer is off, the kernel accepts programs at functions but never calls them.
    if root.text(TRACER).is_ok_and(|text| text.trim() == "0") {
        let why = "the function tracer is off (kernel.ftrace_enabled = 0), so fentry programs would not run";
        return no(None, why.into());
    }
    let number = root.bytes(btf::VMLINUX).and_then(|image| btf::function_number(&image, FUNCTION));
    match number {
        Ok(Some(number)) => match syscall::bpf_fentry_load(number) {
            Ok(()) => Attempt { allowed: true, errno: None, meaning: "allowed".into() },
            Err(e) => no(Some(syscall::errno_name(&e)), format!("the kernel refuses fentry programs: {e}")),
        },
        Ok(None) => no(None, format!("this kernel has no type information for function {FUNCTION}")),
        Err(e) => no(None, format!("the kernel's type information cannot be read: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn a_function_tracer_that_is_off_is_the_reason() {
        let off = tried(&Tree::new(&[(TRACER, "0\n")]).root());
        assert!(!off.allowed && off.meaning.contains("kernel.ftrace_enabled = 0"), "{off:?}");
        let no_types = tried(&Tree::new(&[(TRACER, "1\n")]).root());
        assert!(!no_types.allowed && no_types.meaning.contains("vmlinux"), "{no_types:?}");
    }

    #[test]
    fn nothing_is_tried_for_another_host() {
        assert!(attempt(&Tree::new(&[]).root()).reason().unwrap().contains("not tried"));
    }
}
