//! What programs can attach to on the running kernel. In: an [`Attach`]. Out: nothing, or why it cannot be.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use crate::error::Error;
use crate::probes::{self, Attach};

/// What the running kernel lets programs attach to.
pub struct Attachable {
    tracepoints: HashSet<&'static str>,
    /// Why no program can attach to functions.
    fentry: Result<(), String>,
    cgroup: Result<(), String>,
}

impl Attachable {
    /// Looks at the running kernel.
    ///
    /// # Errors
    /// [`Error::NotAllowed`] when it has no BTF.
    pub fn survey() -> Result<Attachable, Error> {
        let names: Vec<&'static str> = probes::hooks()
            .flat_map(|(_, h)| h.programs)
            .filter_map(|p| match p.attach {
                Attach::TpBtf(t) => Some(t),
                _ => None,
            })
            .collect();
        let present = tailsight_host::btf::tracepoints_present(&names)
            .map_err(|e| Error::NotAllowed { why: format!("the kernel's type information (BTF) is needed: {e}") })?;
        let tracepoints = names.into_iter().zip(present).filter(|(_, p)| *p).map(|(n, _)| n).collect();
        Ok(Attachable { tracepoints, fentry: try_fentry("vfs_fsync_range"), cgroup: cgroup_root().map(|_| ()) })
    }

    /// Whether a program can attach there, as far as that can be told before it is tried.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, attach: Attach) -> Result<(), String> {
        match attach {
            Attach::TpBtf(name) if self.tracepoints.contains(name) => Ok(()),
            Attach::TpBtf(_) => Err("this kernel does not have the tracepoint".into()),
            Attach::Fentry(_) | Attach::Fexit(_) => self.fentry.clone(),
            Attach::CgroupSend => self.cgroup.clone(),
        }
    }
}

/// Loads an empty program for the begin of a function, and drops it.
fn try_fentry(function: &str) -> Result<(), String> {
    let refused = |e: i32| {
        format!("the kernel refuses programs at functions (fentry): {}", std::io::Error::from_raw_os_error(e.abs()))
    };
    let name = CString::new(function).map_err(|e| e.to_string())?;
    // SAFETY: a string that ends with 0; libbpf copies what it needs.
    let id = unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(name.as_ptr(), libbpf_sys::BPF_TRACE_FENTRY) };
    let id = u32::try_from(id).map_err(|_| refused(id))?;
    // r0 = 0; exit
    let instructions = [0xb7_u64.to_ne_bytes(), 0x95_u64.to_ne_bytes()];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: libbpf_sys::BPF_TRACE_FENTRY,
        attach_btf_id: id,
        ..Default::default()
    };
    // SAFETY: two whole instructions of 8 bytes, strings that end with 0, and options of the size they say.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            c"ts_try".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    if fd < 0 {
        return Err(refused(fd));
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// The root of cgroup v2, opened.
///
/// # Errors
/// Why there is none.
pub fn cgroup_root() -> Result<File, String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    let path = cgroup2_mount(&mounts).ok_or("cgroup v2 is not mounted")?;
    File::open(path).map_err(|e| format!("{path}: {e}"))
}

/// Where the root of cgroup v2 is mounted (proc(5): the fourth field is the root of the mount, the fifth where it is; the
/// file system's type is the first field behind ` - `).
fn cgroup2_mount(mountinfo: &str) -> Option<&str> {
    mountinfo.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        (root == "/" && file_system.split(' ').next() == Some("cgroup2")).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_cgroup_v2_is_found_beside_version_1() {
        let text = "31 25 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
                    33 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    40 31 0:35 /sub /mnt/part rw - cgroup2 cgroup2 rw\n\
                    32 31 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2_mount(text), Some("/sys/fs/cgroup/unified"));
        assert_eq!(cgroup2_mount("31 25 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"), None);
    }
}
