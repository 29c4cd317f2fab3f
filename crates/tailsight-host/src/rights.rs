//! What this process may do: user, capabilities, and whether the `bpf()` system call is really allowed.
//!
//! In: `/proc/self/status`, `/proc/self/uid_map`, and on the live host three `bpf()` calls that leave nothing behind.
//! Out: [`Rights`], with a sentence for each refusal that says what forbids it and what to do.

use crate::kernel::{Kernel, Lockdown};
use crate::{Fact, HostError, Root, syscall};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;

/// The capabilities that matter for recording, with their bit in `CapEff`, and what a recording lacks without each. Found by trial,
/// capability by capability: docs/privileges.md.
const CAPABILITIES: [(&str, u32, &str); 9] = [
    ("CAP_BPF", 39, "no recording: the kernel refuses BPF programs"),
    ("CAP_PERFMON", 38, "no recording: the kernel refuses tracing programs, and sampling clocks"),
    (
        "CAP_NET_ADMIN",
        12,
        "cannot record on kernels without fentry, where a cgroup program must see the sends; no --nic-tx-stamps",
    ),
    (
        "CAP_SYS_ADMIN",
        21,
        "the cost of the hooks is not measured; no devices and addresses of a container; no --nic-tx-stamps",
    ),
    ("CAP_SYS_RESOURCE", 24, ""),
    ("CAP_SYS_PTRACE", 19, "only servers of your own user: the sockets and functions of others cannot be read"),
    ("CAP_DAC_READ_SEARCH", 2, "only servers of your own user: the folders of others in /proc cannot be read"),
    ("CAP_SYSLOG", 34, "kernel functions are shown without names"),
    (
        "CAP_CHECKPOINT_RESTORE",
        40,
        "no names of functions from files that were deleted or replaced since the server started",
    ),
];

/// One attempt at a privileged call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// True if the kernel did it.
    pub allowed: bool,
    /// The errno's name, such as `EPERM`, if it did not.
    pub errno: Option<String>,
    /// What that means and what to do, in a sentence.
    pub meaning: String,
}

impl Attempt {
    pub(crate) fn of(result: io::Result<()>, explain: impl FnOnce(i32) -> String) -> Self {
        match result {
            Ok(()) => Attempt { allowed: true, errno: None, meaning: "allowed".into() },
            Err(e) => Attempt {
                allowed: false,
                errno: Some(syscall::errno_name(&e)),
                meaning: e.raw_os_error().map_or_else(|| e.to_string(), explain),
            },
        }
    }
}

/// A capability that this process does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// Its name, such as `CAP_SYSLOG`.
    pub capability: String,
    /// What a recording lacks without it.
    pub without: String,
}

/// What this process may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rights {
    /// The effective user id.
    pub uid: Fact<u32>,
    /// The effective capabilities among those that recording may need.
    pub capabilities: Fact<Vec<String>>,
    /// Those that it does not have, and what a recording lacks without each; empty when none is missing, or when this is
    /// unknown.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// True inside a user namespace, whose root is not the host's.
    pub user_namespace: Fact<bool>,
    /// True if a seccomp filter is on this process, as container runtimes install.
    pub seccomp_filter: Fact<bool>,
    /// `bpf(BPF_MAP_CREATE)` of a one-entry array.
    pub bpf_map: Fact<Attempt>,
    /// `bpf(BPF_PROG_LOAD)` of an empty tracing program.
    pub bpf_program: Fact<Attempt>,
    /// The same of a program that reads the kernel's memory, which lockdown can forbid.
    pub bpf_kernel_read: Fact<Attempt>,
}

impl Rights {
    /// Reads the rights, and on the live host tries the calls.
    pub fn collect(root: &Root, kernel: &Kernel) -> Self {
        let status = root.text("/proc/self/status");
        let mut rights = Rights {
            uid: field(&status, "Uid", |v| v.split_whitespace().nth(1)?.parse().ok()),
            capabilities: field(&status, "CapEff", |v| u64::from_str_radix(v, 16).ok().map(capability_names)),
            missing: Vec::new(),
            user_namespace: root.text("/proc/self/uid_map").map(|t| !whole_id_range(&t)).into(),
            seccomp_filter: field(&status, "Seccomp", |v| Some(v != "0")),
            bpf_map: Fact::unknown(""),
            bpf_program: Fact::unknown(""),
            bpf_kernel_read: Fact::unknown(""),
        };
        rights.missing = rights.lacking();
        let attempt = |call: &'static str, f: fn() -> io::Result<()>, needs: &str| {
            if !root.is_live() {
                return Err(HostError::NotLive { call }).into();
            }
            Fact::Known(Attempt::of(f(), |errno| rights.explain_bpf(kernel, errno, needs)))
        };
        let map = attempt("bpf(BPF_MAP_CREATE)", syscall::bpf_map_create, "CAP_BPF");
        let program = attempt("bpf(BPF_PROG_LOAD)", || syscall::bpf_prog_load(false), "CAP_BPF and CAP_PERFMON");
        let read = attempt("bpf(BPF_PROG_LOAD)", || syscall::bpf_prog_load(true), "CAP_BPF and CAP_PERFMON");
        (rights.bpf_map, rights.bpf_program, rights.bpf_kernel_read) = (map, program, read);
        rights
    }

    /// True if the capability (such as `CAP_BPF`) is effective; false when unknown.
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.known().is_some_and(|c| c.iter().any(|c| c == capability))
    }

    /// As in the kernel, CAP_SYS_ADMIN includes CAP_BPF, CAP_PERFMON, CAP_SYSLOG and CAP_CHECKPOINT_RESTORE, except for
    /// kernel symbols.
    fn lacking(&self) -> Vec<Missing> {
        let Some(held) = self.capabilities.known() else { return Vec::new() };
        let included = ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN", "CAP_CHECKPOINT_RESTORE"];
        let has = |name: &str| {
            held.iter().any(|h| h == name) || (included.contains(&name) && held.iter().any(|h| h == "CAP_SYS_ADMIN"))
        };
        let lacking = CAPABILITIES.iter().filter(|(name, _, without)| !without.is_empty() && !has(name));
        lacking.map(|(name, _, without)| Missing { capability: (*name).into(), without: (*without).into() }).collect()
    }

    /// What a refused `bpf()` call means on this host and what to do. `needs` names the capabilities for it.
    pub fn explain_bpf(&self, kernel: &Kernel, errno: i32, needs: &str) -> String {
        let lockdown = kernel.lockdown.known() == Some(&Lockdown::Confidentiality);
        let capable = self.has("CAP_SYS_ADMIN") || (self.has("CAP_BPF") && self.has("CAP_PERFMON"));
        match errno {
            libc::ENOSYS if kernel.option("BPF_SYSCALL") == Some(true) || self.filtered() => {
                "something hides bpf() from this process, likely a container's seccomp filter: \
                 run on the host, or allow bpf in the seccomp profile"
                    .into()
            }
            libc::ENOSYS => "this kernel is built without CONFIG_BPF_SYSCALL: use a distribution's own kernel".into(),
            libc::EPERM | libc::EACCES if !capable => {
                format!("it needs {needs}: run as root, or give it the capabilities of docs/privileges.md")
            }
            libc::EPERM | libc::EACCES | libc::EINVAL if lockdown => {
                "kernel lockdown (confidentiality) forbids reading the kernel: boot with lockdown=integrity, \
                 or without Secure Boot"
                    .into()
            }
            libc::EPERM | libc::EACCES if self.user_namespace.known() == Some(&true) => {
                "root of a user namespace is not root of the host: run on the host, or in a privileged container".into()
            }
            libc::EPERM | libc::EACCES if self.filtered() => {
                "a seccomp filter forbids it: run on the host, or allow bpf in the container's seccomp profile".into()
            }
            libc::EPERM | libc::EACCES => {
                "a security module forbids it (SELinux, AppArmor or BPF LSM): see dmesg and the audit log".into()
            }
            libc::EINVAL => "this kernel does not know the request: it is too old or built without BPF tracing".into(),
            libc::ENOMEM => "no memory, or the memory cgroup or RLIMIT_MEMLOCK is exhausted: raise ulimit -l".into(),
            _ => format!("{}; please report it with the kernel release", io::Error::from_raw_os_error(errno)),
        }
    }

    fn filtered(&self) -> bool {
        self.seccomp_filter.known() == Some(&true)
    }
}

fn field<T>(status: &Result<String, HostError>, key: &str, parse: impl Fn(&str) -> Option<T>) -> Fact<T> {
    let status = match status {
        Ok(s) => s,
        Err(e) => return Fact::unknown(tailsight_units::chain(e)),
    };
    match crate::proc::field(status, key).and_then(parse) {
        Some(v) => Fact::Known(v),
        None => Fact::unknown(format!("/proc/self/status has no readable field {key}")),
    }
}

fn capability_names(bits: u64) -> Vec<String> {
    CAPABILITIES.iter().filter(|(_, bit, _)| bits >> bit & 1 == 1).map(|(name, ..)| (*name).to_owned()).collect()
}

/// The initial user namespace maps the whole range onto itself.
fn whole_id_range(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    fn rights(caps: &str, seccomp: &str, uid_map: &str, lockdown: &str) -> (Rights, Kernel) {
        let status = format!("Name:\tx\nUid:\t1000\t0\t0\t0\nCapEff:\t{caps}\nSeccomp:\t{seccomp}");
        let tree = Tree::new(&[
            ("/proc/self/status", &status),
            ("/proc/self/uid_map", uid_map),
            ("/sys/kernel/security/lockdown", lockdown),
        ]);
        let kernel = Kernel::collect(&tree.root());
        (Rights::collect(&tree.root(), &kernel), kernel)
    }

    const ALL: &str = "000001ffffffffff";
    const INITIAL: &str = "         0          0 4294967295";

    #[test]
    fn reads_user_and_capabilities() {
        let (r, _) = rights("000000c000001000", "0", INITIAL, "[none] integrity");
        assert_eq!(r.uid, Fact::Known(0));
        assert_eq!(r.capabilities, Fact::Known(vec!["CAP_BPF".into(), "CAP_PERFMON".into(), "CAP_NET_ADMIN".into()]));
        assert_eq!((r.user_namespace.clone(), r.seccomp_filter.clone()), (Fact::Known(false), Fact::Known(false)));
        assert!(r.bpf_map.reason().unwrap().contains("not tried"));
    }

    /// A recorder with CAP_BPF and CAP_PERFMON claimed that its target had no server port.
    #[test]
    fn what_each_missing_capability_takes_away_is_said() {
        let missing = |caps: &str| -> Vec<String> {
            let (rights, _) = rights(caps, "0", INITIAL, "[none] integrity");
            assert!(rights.missing.iter().all(|m| m.without.len() > 20), "{:?}", rights.missing);
            rights.missing.into_iter().map(|m| m.capability).collect()
        };
        assert_eq!(missing(ALL), [""; 0]);
        assert_eq!(
            missing("000000c000000000"),
            [
                "CAP_NET_ADMIN",
                "CAP_SYS_ADMIN",
                "CAP_SYS_PTRACE",
                "CAP_DAC_READ_SEARCH",
                "CAP_SYSLOG",
                "CAP_CHECKPOINT_RESTORE"
            ]
        );
        // The kernel takes CAP_SYS_ADMIN for these, too.
        assert_eq!(missing("0000000000200000"), ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYSLOG"]);
    }

    #[test]
    fn a_refusal_names_what_forbids_it() {
        let says = |(r, k): (Rights, Kernel), errno| r.explain_bpf(&k, errno, "CAP_BPF");
        let none = "[none] integrity";
        assert!(says(rights("0", "0", INITIAL, none), libc::EPERM).contains("needs CAP_BPF: run as root"));
        assert!(says(rights(ALL, "2", INITIAL, none), libc::EPERM).contains("seccomp"));
        assert!(says(rights(ALL, "2", INITIAL, none), libc::ENOSYS).contains("seccomp"));
        assert!(says(rights(ALL, "0", INITIAL, none), libc::ENOSYS).contains("CONFIG_BPF_SYSCALL"));
        assert!(says(rights(ALL, "0", "0 1000 1", none), libc::EPERM).contains("user namespace"));
        assert!(says(rights(ALL, "0", INITIAL, "none [confidentiality]"), libc::EINVAL).contains("lockdown"));
        assert!(says(rights(ALL, "0", INITIAL, none), libc::EPERM).contains("security module"));
    }
}
