//! What programs can attach to on the running kernel and its loaded modules. In: an [`Attach`]. Out: nothing, or why it cannot
//! be.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use libbpf_rs::libbpf_sys;
use tailsight_host::btf::{self, Place};
use tailsight_host::{HostError, Root, cgroup, fentry};

use crate::error::Error;
use crate::probes::{self, Attach};

const KALLSYMS: &str = "/proc/kallsyms";
const NO_TRACEPOINT: &str = "neither this kernel nor a module that it has loaded has the tracepoint";
const NO_FUNCTION: &str = "this kernel has no type information for function";

/// What the running kernel lets programs attach to.
pub struct Attachable {
    tracepoints: HashMap<&'static str, Place>,
    functions: HashMap<&'static str, Place>,
    /// Why no program can attach to functions.
    fentry: Result<(), String>,
    /// Why no program can attach to what a module has.
    modules: Result<(), String>,
    cgroup: Result<(), String>,
}

impl Attachable {
    /// Looks at the running kernel.
    ///
    /// # Errors
    /// [`Error::NoTypes`] when it has no BTF.
    pub fn survey() -> Result<Attachable, Error> {
        let places = || probes::programs().map(|p| p.attach);
        let tracepoints: Vec<&'static str> = places()
            .filter_map(|attach| match attach {
                Attach::TpBtf(tracepoint) => Some(tracepoint),
                _ => None,
            })
            .collect();
        let functions: Vec<&'static str> = places()
            .filter_map(|attach| match attach {
                Attach::Fentry(function) | Attach::Fexit(function) => Some(function),
                _ => None,
            })
            .collect();
        let no_types = |source| Error::NoTypes { source };
        Ok(Attachable {
            tracepoints: by_name(&tracepoints, btf::tracepoints(&tracepoints).map_err(no_types)?),
            functions: by_name(&functions, btf::functions(&functions).map_err(no_types)?),
            fentry: fentry::allowed(),
            modules: try_modules(),
            cgroup: cgroup_root().map(|_| ()).map_err(|e| tailsight_units::chain(&e)),
        })
    }

    /// Whether a program can attach there, as far as that can be told before it is tried.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, attach: Attach) -> Result<(), String> {
        let place = match attach {
            Attach::TpBtf(name) => self.tracepoints.get(name).ok_or(NO_TRACEPOINT)?,
            Attach::Fentry(function) | Attach::Fexit(function) => {
                self.fentry.clone()?;
                self.functions.get(function).ok_or_else(|| format!("{NO_FUNCTION} {function}"))?
            }
            Attach::CgroupSend => return self.cgroup.clone(),
        };
        match place {
            Place::Kernel => Ok(()),
            Place::Module(module) => self.modules.clone().map_err(|why| format!("it is in the module {module}: {why}")),
        }
    }
}

/// The functions of the running kernel that a pattern stands for and that programs can attach to. `asked`: the option that names it.
///
/// # Errors
/// [`Error::Function`] when there is none, [`Error::Read`], [`Error::NoTypes`].
pub fn kernel_functions(asked: &str, pattern: &str) -> Result<Vec<String>, Error> {
    let none = |why: String| Error::Function { asked: asked.into(), why };
    fentry::allowed().map_err(none)?;
    let text = std::fs::read_to_string(KALLSYMS).map_err(|source| Error::Read { path: KALLSYMS.into(), source })?;
    let names = matching(&text, pattern);
    let functions: Vec<&str> = names.iter().map(String::as_str).collect();
    let places = btf::functions(&functions).map_err(|source| Error::NoTypes { source })?;
    let there: Vec<String> = names.iter().zip(places).filter(|(_, at)| at.is_some()).map(|(n, _)| n.clone()).collect();
    if there.is_empty() {
        return Err(none(format!("this kernel has no function {pattern:?} that programs can attach to")));
    }
    Ok(there)
}

/// The functions in the lines of /proc/kallsyms whose names match, each once.
fn matching(kallsyms: &str, pattern: &str) -> Vec<String> {
    let glob = wildmatch::WildMatch::new(pattern);
    let function = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (kind, name) = (words.next()?, words.next()?);
        (matches!(kind, "t" | "T" | "w" | "W") && !name.contains('.') && glob.matches(name)).then(|| name.to_owned())
    };
    let mut names: Vec<String> = kallsyms.lines().filter_map(function).collect();
    names.sort();
    names.dedup();
    names
}

fn by_name(names: &[&'static str], places: Vec<Option<Place>>) -> HashMap<&'static str, Place> {
    names.iter().zip(places).filter_map(|(name, place)| Some((*name, place?))).collect()
}

/// Whether the types of modules can be read: libbpf asks the kernel for them by id.
fn try_modules() -> Result<(), String> {
    let mut id = 0;
    // SAFETY: a number to write to.
    match unsafe { libbpf_sys::bpf_btf_get_next_id(0, &raw mut id) } {
        0 => Ok(()),
        e => {
            let error = std::io::Error::from_raw_os_error(e.abs());
            Err(format!("cannot list the types of kernel modules ({error}); CAP_SYS_ADMIN is needed"))
        }
    }
}

/// Whether a reason of [`Attachable::check`] says that the kernel has no such place, and not that it does not let programs there.
pub fn is_absence(reason: &str) -> bool {
    reason == NO_TRACEPOINT || reason.starts_with(NO_FUNCTION)
}

/// The root of cgroup v2, opened.
///
/// # Errors
/// [`HostError::Read`]; [`HostError::Unsupported`] when there is none.
pub fn cgroup_root() -> Result<File, HostError> {
    let mounts = Root::host().bytes("/proc/self/mountinfo")?;
    let not_mounted = || HostError::Unsupported { what: "cgroup v2 is not mounted".into() };
    let path = cgroup2_mount(&mounts).ok_or_else(not_mounted)?;
    File::open(&path).map_err(|source| HostError::Read { path, source })
}

/// Where the root of cgroup v2 is mounted.
fn cgroup2_mount(mountinfo: &[u8]) -> Option<PathBuf> {
    cgroup::mounts(mountinfo, "").into_iter().find(|mount| mount.shows == Path::new("/")).map(|mount| mount.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_has_can_be_attached_by_whoever_may_list_modules() {
        let ext4 = || Place::Module("ext4".into());
        let mut kernel = Attachable {
            tracepoints: HashMap::from([("sched_switch", Place::Kernel), ("ext4_sync_file_enter", ext4())]),
            functions: HashMap::from([
                ("vfs_fsync_range", Place::Kernel),
                ("udpv6_sendmsg", Place::Module("ipv6".into())),
            ]),
            fentry: Ok(()),
            modules: Ok(()),
            cgroup: Ok(()),
        };
        let fsync = Attach::TpBtf("ext4_sync_file_enter");
        assert_eq!((kernel.check(fsync), kernel.check(Attach::Fentry("udpv6_sendmsg"))), (Ok(()), Ok(())));
        let missing = kernel.check(Attach::TpBtf("f2fs_sync_file_enter")).unwrap_err();
        assert!(missing.contains("nor a module that it has loaded") && is_absence(&missing), "{missing}");
        let inlined = kernel.check(Attach::Fexit("tcp_sendmsg_locked")).unwrap_err();
        assert!(inlined.contains("tcp_sendmsg_locked") && is_absence(&inlined), "{inlined}");

        kernel.modules = Err("not listed".into());
        assert_eq!(kernel.check(fsync).unwrap_err(), "it is in the module ext4: not listed");
        assert_eq!(kernel.check(Attach::Fentry("udpv6_sendmsg")).unwrap_err(), "it is in the module ipv6: not listed");
        assert_eq!(kernel.check(Attach::TpBtf("sched_switch")), Ok(()));

        kernel.fentry = Err("off".into());
        let off = kernel.check(Attach::Fentry("vfs_fsync_range")).unwrap_err();
        assert!(off == "off" && !is_absence(&off));
    }

    #[test]
    fn functions_of_the_kernel_are_found_by_pattern() {
        let text = "0000000000000000 T tcp_sendmsg\n0 t tcp_send_ack.part.0\n0 d tcp_send_data\n0 T tcp_sendmsg\n0 t \
         tcp_send_fin\t[mod]\n";
        assert_eq!(matching(text, "tcp_send*"), ["tcp_send_fin", "tcp_sendmsg"]);
        assert_eq!(matching(text, "tcp_sendmsg"), ["tcp_sendmsg"]);
        assert!(matching(text, "udp*").is_empty());
    }

    #[test]
    fn the_root_of_cgroup_v2_is_found_beside_version_1() {
        let text = "31 25 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
                    33 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    40 31 0:35 /sub /mnt/part rw - cgroup2 cgroup2 rw\n\
                    32 31 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2_mount(text.as_bytes()), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(cgroup2_mount(b"31 25 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"), None);
    }
}
