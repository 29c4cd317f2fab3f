//! Network namespaces of our own, joined by a veth pair. In: a tag. Out: two namespaces with IPv4 and IPv6 between them.
//!
//! The server side is `10.77.0.1` and `fd77::1`, the client side `10.77.0.2` and `fd77::2`. The names carry our pid
//! (`tailsight-<pid>-<n>-<tag>-s` and `-c`), so that what a killed run left behind can be found and removed, and nothing
//! else is ever touched.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, setns};

use crate::{Error, Result};

const NAME_PREFIX: &str = "tailsight-";
const NAMESPACE_DIR: &str = "/run/netns";

/// The server's IPv4 address.
pub const SERVER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
/// The client's IPv4 address.
pub const CLIENT_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
/// The server's IPv6 address.
pub const SERVER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));
/// The client's IPv6 address.
pub const CLIENT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2));

/// Whether this process may make network namespaces (`CAP_SYS_ADMIN` and `CAP_NET_ADMIN` are effective).
#[must_use]
pub fn permitted() -> bool {
    const CAP_NET_ADMIN: u64 = 1 << 12;
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    tailsight_host::proc::field(&status, "CapEff")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .is_some_and(|mask| mask & (CAP_NET_ADMIN | CAP_SYS_ADMIN) == (CAP_NET_ADMIN | CAP_SYS_ADMIN))
}

/// Whether the kernel has IPv6 and it is not switched off.
#[must_use]
pub fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
        && std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6").is_ok_and(|value| value.trim() == "0")
}

/// One network namespace of ours. Deleted on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: Arc<File>,
}

impl Namespace {
    /// Makes a namespace with its loopback up.
    fn create(name: String) -> Result<Self> {
        ip(&["netns", "add", &name])?;
        let path = format!("{NAMESPACE_DIR}/{name}");
        let file = match File::open(&path) {
            Ok(file) => Arc::new(file),
            Err(error) => {
                let _ = ip(&["netns", "del", &name]);
                return Err(Error::io(format!("open {path}"), error));
            }
        };
        let namespace = Self { name, file };
        ip(&["-n", &namespace.name, "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into this namespace, for good: sockets that it opens from now on belong here.
    ///
    /// # Errors
    /// [`Error::Io`] without `CAP_SYS_ADMIN`.
    pub fn enter_thread(&self) -> Result<()> {
        setns(&*self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|e| Error::io(format!("enter the network namespace {}", self.name), e))
    }

    /// Runs `f` on a thread of its own inside this namespace and gives what it returned.
    ///
    /// # Errors
    /// As [`Namespace::enter_thread`]. A panic of `f` goes on in the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            scope
                .spawn(|| self.enter_thread().map(|()| f()))
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Writes to a file of sysfs (`file`: its path below `/sys`) as this namespace has it.
    ///
    /// # Errors
    /// [`Error::Command`] with what the kernel said, [`Error::Io`].
    pub fn write_sysfs(&self, file: &str, text: &str) -> Result<()> {
        self.sysfs(&format!("printf %s '{text}' > '/sys/{file}'"), &format!("echo {text} > /sys/{file}")).map(drop)
    }

    /// Reads such a file.
    ///
    /// # Errors
    /// As [`Netns::write_sysfs`].
    pub fn read_sysfs(&self, file: &str) -> Result<String> {
        let read = format!("cat '/sys/{file}'");
        self.sysfs(&read, &read)
    }

    /// Runs a line of shell in a sysfs of this namespace: its own devices are seen only in one that was mounted inside it, which
    /// is done for this line alone, out of everybody's sight.
    fn sysfs(&self, line: &str, says: &str) -> Result<String> {
        let script = format!("mount -t sysfs none /sys && {line}");
        let mut command = self.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let output = command.output().map_err(|e| Error::io("run unshare", e))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Err(Error::Command {
            command: says.to_owned(),
            status: output.status.to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// A command that will run inside this namespace.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let file = Arc::clone(&self.file);
        let mut command = Command::new(program);
        // SAFETY: between fork and exec the closure makes one system call, on a descriptor opened before the fork.
        unsafe {
            command.pre_exec(move || setns(&*file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from));
        }
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Nothing is left to tell the caller in a drop; a leftover is found by `cleanup_stale` of a later run.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

/// A server and a client namespace with a veth pair between them. Both are deleted on drop.
#[derive(Debug)]
pub struct Pair {
    /// Where servers run.
    pub server: Namespace,
    /// Where load comes from.
    pub client: Namespace,
    ipv6: bool,
}

impl Pair {
    /// Makes the two namespaces and joins them, after removing what dead runs left ([`cleanup_stale`]).
    ///
    /// `tag` (letters and digits, at most 16) tells several pairs apart in `ip netns list`.
    ///
    /// # Errors
    /// [`Error::NeedsRoot`], [`Error::MissingProgram`] without iproute2, [`Error::Command`] when the kernel refuses.
    pub fn create(tag: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if tag.is_empty() || tag.len() > 16 || !tag.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Error::Parse {
                what: "namespace tag",
                text: tag.into(),
                expected: "1 to 16 letters and digits",
            });
        }
        if !permitted() {
            return Err(Error::NeedsRoot);
        }
        cleanup_stale()?;
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let stem = format!("{NAME_PREFIX}{}-{n}-{tag}", std::process::id());
        let server = Namespace::create(format!("{stem}-s"))?;
        let client = Namespace::create(format!("{stem}-c"))?;
        let (s, c) = (server.name(), client.name());
        ip(&["link", "add", "veth-s", "netns", s, "type", "veth", "peer", "name", "veth-c", "netns", c])?;
        let ipv6 = has_ipv6();
        for (ns, link, v4, v6) in
            [(s, "veth-s", "10.77.0.1/24", "fd77::1/64"), (c, "veth-c", "10.77.0.2/24", "fd77::2/64")]
        {
            ip(&["-n", ns, "addr", "add", v4, "dev", link])?;
            if ipv6 {
                // Without duplicate detection the address can be used at once.
                ip(&["-n", ns, "addr", "add", v6, "dev", link, "nodad"])?;
            }
            ip(&["-n", ns, "link", "set", link, "up"])?;
        }
        Ok(Self { server, client, ipv6 })
    }

    /// Whether the two sides have IPv6 addresses (not where the kernel has IPv6 switched off).
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.ipv6
    }
}

/// Deletes the namespaces that dead runs left: those named like ours whose pid is no longer there. Gives their names.
///
/// # Errors
/// [`Error::MissingProgram`] without iproute2. A namespace that another run removes at the same time is no error.
pub fn cleanup_stale() -> Result<Vec<String>> {
    let Ok(entries) = std::fs::read_dir(NAMESPACE_DIR) else {
        // The folder appears with the first named namespace.
        return Ok(Vec::new());
    };
    let mut removed = Vec::new();
    for name in entries.flatten().filter_map(|e| e.file_name().into_string().ok()) {
        if owner_pid(&name).is_some_and(|pid| !crate::process::is_running(pid)) {
            match ip(&["netns", "del", &name]) {
                Ok(()) => removed.push(name),
                Err(error @ Error::MissingProgram { .. }) => return Err(error),
                Err(_) => {}
            }
        }
    }
    Ok(removed)
}

/// The pid in a namespace name of ours; `None` for every other name.
fn owner_pid(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(NAME_PREFIX)?;
    let parts: Vec<&str> = rest.split('-').collect();
    match parts[..] {
        [pid, n, tag, "s" | "c"] if n.parse::<u32>().is_ok() && !tag.is_empty() => pid.parse().ok(),
        _ => None,
    }
}

/// Runs `ip` with the arguments.
fn ip(args: &[&str]) -> Result<()> {
    let program = crate::server::find_program("ip", "iproute2")?;
    let output =
        Command::new(program).args(args).output().map_err(|e| Error::io(format!("run `ip {}`", args.join(" ")), e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Command {
        command: format!("ip {}", args.join(" ")),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_have_an_owner() {
        assert_eq!(owner_pid("tailsight-123-0-demo-s"), Some(123));
        assert_eq!(owner_pid("tailsight-123-7-live-c"), Some(123));
        for other in [
            "tailsight",
            "tailsight-",
            "tailsight-x-0-demo-s",
            "tailsight-123",
            "tailsight-123-0-s",
            "tailsight-123-0-demo-x",
            "my-tailsight-123-0-demo-s",
            "tailsight-123-0-a-b-s",
        ] {
            assert_eq!(owner_pid(other), None, "{other}");
        }
    }

    #[test]
    fn bad_tags_are_refused_before_anything_is_made() {
        for tag in ["", "a-b", "a/b", "..", "abcdefghijklmnopq"] {
            assert!(matches!(Pair::create(tag), Err(Error::Parse { .. })), "{tag:?}");
        }
    }
}
