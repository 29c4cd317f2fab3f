//! The running kernel: release, BTF, build options, lockdown, the sysctls that gate tracing.
//!
//! In: `/proc/sys/kernel`, `/sys/kernel`, `/proc/config.gz` or `/boot/config-RELEASE`. Out: [`Kernel`].

use crate::{Fact, HostError, Root, btf};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;

/// The oldest kernel with the hand-off tracepoints (`sk_data_ready`, `sock_recv_length`). On older ones fentry programs at the same
/// functions replace them, where the kernel takes such programs; whether a host can record, its hooks say.
pub const HAND_OFF_TRACEPOINTS: (u32, u32) = (6, 3);

/// The build options that matter for recording and for the tail.
const OPTIONS: [&str; 20] = [
    "BPF_SYSCALL",
    "BPF_EVENTS",
    "BPF_JIT",
    "DEBUG_INFO_BTF",
    "FTRACE",
    "FUNCTION_TRACER",
    "DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
    "KPROBES",
    "PERF_EVENTS",
    "HIGH_RES_TIMERS",
    "HZ",
    "NO_HZ_IDLE",
    "NO_HZ_FULL",
    "PREEMPT_DYNAMIC",
    "PREEMPT_NONE",
    "PREEMPT_VOLUNTARY",
    "PREEMPT",
    "PREEMPT_LAZY",
    "PREEMPT_RT",
    "SECURITY_LOCKDOWN_LSM",
];

/// What lockdown forbids even to root (`man 7 kernel_lockdown`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lockdown {
    /// Nothing.
    None,
    /// Changing the kernel; reading it by BPF stays allowed.
    Integrity,
    /// Also reading the kernel's memory, which recording does.
    Confidentiality,
}

/// Facts about the running kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: Fact<String>,
    /// Major and minor version.
    pub version: Fact<(u32, u32)>,
    /// As `uname -m` prints it.
    pub arch: String,
    /// The size of the kernel's type information in bytes.
    pub btf_bytes: Fact<u64>,
    /// The build options that matter here: `y`, `m`, a number, or `n`.
    pub options: Fact<BTreeMap<String, String>>,
    /// The lockdown mode.
    pub lockdown: Fact<Lockdown>,
    /// 0: any user may call `bpf()`; 1 and 2: only with `CAP_BPF`.
    pub unprivileged_bpf_disabled: Fact<u8>,
    /// Who may use perf events: −1 all … 2 own processes, user space only; 3 and 4 (Debian, Ubuntu) nobody but root.
    pub perf_event_paranoid: Fact<i32>,
}

impl Kernel {
    /// Reads the facts. `HZ` and the preemption model are among the options.
    pub fn collect(root: &Root) -> Self {
        let release = root.text("/proc/sys/kernel/osrelease");
        let version = match &release {
            Ok(r) => parse_version(r)
                .ok_or_else(|| Root::unparsed("/proc/sys/kernel/osrelease", "a kernel release", r))
                .into(),
            Err(e) => Fact::unknown(tailsight_units::chain(e)),
        };
        let options = options(root, release.as_deref().unwrap_or_default()).into();
        Kernel {
            release: release.into(),
            version,
            arch: root.text("/proc/sys/kernel/arch").unwrap_or_else(|_| std::env::consts::ARCH.to_owned()),
            btf_bytes: btf_bytes(root).into(),
            options,
            lockdown: lockdown(root).into(),
            unprivileged_bpf_disabled: root.number("/proc/sys/kernel/unprivileged_bpf_disabled").into(),
            perf_event_paranoid: root.number("/proc/sys/kernel/perf_event_paranoid").into(),
        }
    }

    /// True if build option `name` (without `CONFIG_`) is `y` or `m`; `None` if the options are not known.
    pub fn option(&self, name: &str) -> Option<bool> {
        let value = self.options.known()?.get(name)?;
        Some(value == "y" || value == "m")
    }
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn btf_bytes(root: &Root) -> Result<u64, HostError> {
    match std::fs::metadata(root.path(btf::VMLINUX)) {
        Ok(m) => Ok(m.len()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(HostError::Missing { path: btf::VMLINUX.into() }),
        Err(source) => Err(HostError::Read { path: btf::VMLINUX.into(), source }),
    }
}

/// `none [integrity] confidentiality`. Without the file the kernel has no lockdown, unless securityfs is not mounted.
fn lockdown(root: &Root) -> Result<Lockdown, HostError> {
    const PATH: &str = "/sys/kernel/security/lockdown";
    match root.text(PATH) {
        Ok(text) => match bracketed(&text) {
            "none" => Ok(Lockdown::None),
            "integrity" => Ok(Lockdown::Integrity),
            "confidentiality" => Ok(Lockdown::Confidentiality),
            _ => Err(Root::unparsed(PATH, "a lockdown mode", &text)),
        },
        Err(HostError::Missing { .. }) => Ok(Lockdown::None),
        Err(e) => Err(e),
    }
}

/// The chosen word of a list such as `always [madvise] never`; the whole text if none is bracketed.
pub(crate) fn bracketed(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text.trim(), |(word, _)| word.trim())
}

fn options(root: &Root, release: &str) -> Result<BTreeMap<String, String>, HostError> {
    const GZ: &str = "/proc/config.gz";
    let text = match root.bytes(GZ) {
        Ok(bytes) => {
            let mut text = String::new();
            let gz = flate2::read::GzDecoder::new(bytes.as_slice());
            gz.take(4 << 20).read_to_string(&mut text).map_err(|source| HostError::Read { path: GZ.into(), source })?;
            text
        }
        Err(_) => {
            let boot = format!("/boot/config-{release}");
            let elsewhere = |e| root.text(&format!("/lib/modules/{release}/config")).map_err(|_| e);
            root.text(&boot).or_else(elsewhere)?
        }
    };
    Ok(parse_options(&text))
}

fn parse_options(text: &str) -> BTreeMap<String, String> {
    let set: BTreeMap<&str, &str> =
        text.lines().filter_map(|l| l.trim().strip_prefix("CONFIG_")?.split_once('=')).collect();
    OPTIONS.iter().map(|o| ((*o).to_owned(), set.get(o).unwrap_or(&"n").trim_matches('"').to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;
    use std::io::Write;

    fn gzip(text: &str) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text.as_bytes()).unwrap();
        gz.finish().unwrap()
    }

    #[test]
    fn reads_release_options_and_lockdown() {
        let tree = Tree::new(&[
            ("/proc/sys/kernel/osrelease", "6.12.38+deb13-amd64"),
            ("/proc/sys/kernel/arch", "x86_64"),
            ("/sys/kernel/security/lockdown", "none integrity [confidentiality]"),
            ("/proc/sys/kernel/unprivileged_bpf_disabled", "2"),
            ("/proc/sys/kernel/perf_event_paranoid", "-1"),
            ("/sys/kernel/btf/vmlinux", "abc"),
        ]);
        tree.put("/proc/config.gz", gzip("CONFIG_BPF_SYSCALL=y\n# CONFIG_KPROBES is not set\nCONFIG_HZ=250\n"));
        let k = Kernel::collect(&tree.root());
        assert_eq!(k.version, Fact::Known((6, 12)));
        assert_eq!(k.lockdown, Fact::Known(Lockdown::Confidentiality));
        assert_eq!((k.option("BPF_SYSCALL"), k.option("KPROBES")), (Some(true), Some(false)));
        assert_eq!(k.options.known().unwrap()["HZ"], "250");
        assert_eq!(k.btf_bytes, Fact::Known(4));
        assert_eq!(k.perf_event_paranoid, Fact::Known(-1));
        assert_eq!(k.unprivileged_bpf_disabled, Fact::Known(2));
    }

    #[test]
    fn options_come_from_boot_when_proc_has_none() {
        let tree =
            Tree::new(&[("/proc/sys/kernel/osrelease", "6.1.0-37"), ("/boot/config-6.1.0-37", "CONFIG_HZ=1000")]);
        assert_eq!(Kernel::collect(&tree.root()).options.known().unwrap()["HZ"], "1000");
    }

    #[test]
    fn an_empty_tree_gives_reasons_and_damaged_gzip_too() {
        let tree = Tree::new(&[("/proc/config.gz", "not gzip"), ("/proc/sys/kernel/osrelease", "odd")]);
        let k = Kernel::collect(&tree.root());
        assert!(k.options.reason().unwrap().contains("/proc/config.gz"));
        assert!(k.version.reason().unwrap().contains("\"odd\""));
        assert!(k.btf_bytes.reason().unwrap().contains("vmlinux does not exist"));
        assert_eq!(k.lockdown, Fact::Known(Lockdown::None));
        assert_eq!(k.option("BPF_SYSCALL"), None);
    }

    #[test]
    fn brackets() {
        assert_eq!(bracketed("always [madvise] never"), "madvise");
        assert_eq!(bracketed("never"), "never");
    }
}
