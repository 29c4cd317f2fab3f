//! Which processes and ports are recorded: resolves what the user chose to process ids and server ports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tailsight_units::{Untrusted, name};

use crate::error::Error;
use crate::procfs::{self, Process, Socket};

/// How the user chose the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `-p PID`: that process, its threads and its descendants.
    Pid(u32),
    /// `--comm NAME`: every process of that command name, and descendants. The name is as [`tailsight_units::name`] writes it, or
    /// the bytes themselves where they are text.
    Comm(String),
    /// `--cgroup PATH`: every process in that cgroup and those below it.
    Cgroup(PathBuf),
    /// `--port PORT`: whoever listens on that port, in any network namespace.
    Port(u16),
    /// `-- CMD…`: a program that we start.
    Command(Vec<String>),
}

/// How long a server chosen by name, control group or port may be absent, since it may be restarting.
const RESTART: Duration = Duration::from_secs(3);

impl Selector {
    /// How long the recording waits while nothing matches; then it ends.
    pub fn may_be_away(&self) -> Duration {
        match self {
            Selector::Pid(_) | Selector::Command(_) => Duration::ZERO,
            Selector::Comm(_) | Selector::Cgroup(_) | Selector::Port(_) => RESTART,
        }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Selector::Pid(pid) => write!(f, "-p {pid}"),
            Selector::Comm(name) => write!(f, "--comm {name}"),
            Selector::Cgroup(path) => write!(f, "--cgroup {}", path.display()),
            Selector::Port(port) => write!(f, "--port {port}"),
            Selector::Command(words) => write!(f, "-- {}", words.join(" ")),
        }
    }
}

/// What a selector resolved to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The application's name.
    pub app: String,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Its server ports.
    pub ports: Vec<u16>,
}

/// Finds the processes. For a command that was started, give its pid as [`Selector::Pid`].
///
/// # Errors
/// [`Error::NoSuchPid`], [`Error::NoTarget`].
pub fn processes(selector: &Selector) -> Result<(String, Vec<u32>), Error> {
    let every_process = procfs::processes();
    let me = std::process::id();
    let roots: Vec<u32> = match selector {
        Selector::Pid(pid) => {
            let process = every_process.iter().find(|p| p.pid == *pid).cloned().or_else(|| thread_group(*pid));
            let process = process.ok_or(Error::NoSuchPid { pid: *pid })?;
            if process.kernel {
                return Err(Error::NoTarget {
                    tried: selector.to_string(),
                    why: format!("{} is a kernel thread", Untrusted(&process.comm)),
                    next: "give the pid of a server process".into(),
                });
            }
            vec![process.pid]
        }
        Selector::Comm(name) => {
            let called_so: Vec<u32> = every_process
                .iter()
                .filter(|p| is_called(p, name) && p.pid != me && !p.kernel)
                .map(|p| p.pid)
                .collect();
            if called_so.is_empty() {
                return Err(no_such_comm(selector, name, &every_process));
            }
            called_so
        }
        Selector::Cgroup(path) => cgroup_members(selector, path)?,
        Selector::Port(port) => listeners(selector, *port, &every_process)?,
        Selector::Command(_) => Vec::new(),
    };
    // Under --comm and -p, children of the match count as the application; --port names its holders exactly, but their
    // children (workers of a pre-forking server) hold the same socket anyway.
    let pids: Vec<u32> = procfs::with_descendants(&roots, &every_process).into_iter().filter(|&p| p != me).collect();
    let app = roots
        .first()
        .and_then(|r| every_process.iter().find(|p| p.pid == *r))
        .map(|p| p.comm.clone())
        .unwrap_or_default();
    Ok((app, pids))
}

/// A thread id given as a pid: the process it belongs to.
fn thread_group(tid: u32) -> Option<Process> {
    // The first line is a name, of any bytes.
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let tgid = tailsight_host::proc::field(&status, "Tgid")?.parse().ok()?;
    procfs::process(tgid)
}

/// Whether a process has that name: its bytes are the ones given, or the ones that the given text stands for.
fn is_called(process: &Process, name: &str) -> bool {
    process.comm == name || process.comm == name::from_bytes(name.as_bytes())
}

fn no_such_comm(selector: &Selector, name: &str, processes: &[Process]) -> Error {
    let lower = name.to_lowercase();
    let near: BTreeSet<&str> = processes
        .iter()
        .filter(|p| !p.kernel && (p.comm.to_lowercase().contains(&lower) || (name.len() > 15 && is_cut(name, &p.comm))))
        .map(|p| p.comm.as_str())
        .collect();
    let next = if near.is_empty() {
        "command names are at most 15 bytes; `ps -e -o comm` lists them, --port PORT chooses by port".to_owned()
    } else {
        let near: Vec<String> = near.into_iter().map(shell_word).collect();
        format!("did you mean --comm {}?", near.join(" or --comm "))
    };
    Error::NoTarget { tried: selector.to_string(), why: "no process has that command name".into(), next }
}

/// A name for a shell: in quotes where it holds more than letters and the like.
fn shell_word(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "._-/:,+@=".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", Untrusted(text.replace('\'', r"'\''"))) }
}

/// Whether a name is the given one as the kernel cuts it: at 15 bytes, also inside a character.
fn is_cut(given: &str, comm: &str) -> bool {
    given.as_bytes().starts_with(&name::to_bytes(comm))
}

fn cgroup_members(selector: &Selector, path: &Path) -> Result<Vec<u32>, Error> {
    let none = |why: String| Error::NoTarget {
        tried: selector.to_string(),
        why,
        next: "give a directory below /sys/fs/cgroup, e.g. /sys/fs/cgroup/system.slice/nginx.service".into(),
    };
    let relative = path.strip_prefix("/").unwrap_or(path);
    let candidates = [
        path.to_path_buf(),
        Path::new("/sys/fs/cgroup").join(relative),
        Path::new("/sys/fs/cgroup/unified").join(relative),
    ];
    let dir = candidates
        .iter()
        .find(|d| d.join("cgroup.procs").is_file())
        .ok_or_else(|| none("not a cgroup directory".into()))?;
    let mut pids = Vec::new();
    let mut queue = vec![dir.clone()];
    while let Some(dir) = queue.pop() {
        let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|l| l.parse::<u32>().ok()).filter(|&p| p != 0));
        let below = fs::read_dir(&dir).into_iter().flatten().flatten();
        queue.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
    }
    if pids.is_empty() {
        return Err(none("the cgroup has no processes".into()));
    }
    Ok(pids)
}

fn listeners(selector: &Selector, port: u16, processes: &[Process]) -> Result<Vec<u32>, Error> {
    let sockets = procfs::sockets(processes);
    let inodes: BTreeSet<u64> =
        sockets.iter().filter(|(s, _)| s.listening && s.local.1 == port).map(|(s, _)| s.inode).collect();
    let holders: Vec<u32> = processes
        .iter()
        .filter(|p| !p.kernel)
        .filter(|p| !inodes.is_empty() && procfs::socket_inodes(p.pid).iter().any(|i| inodes.contains(i)))
        .map(|p| p.pid)
        .collect();
    if !holders.is_empty() {
        return Ok(holders);
    }
    // A process whose sockets cannot be read may listen there. (Some cannot be read even by root: they have capabilities
    // that it lacks.)
    let hidden = processes.iter().filter(|p| !p.kernel && procfs::may_read_sockets(p.pid).is_err()).count();
    if hidden > 0 && lacks_sight() {
        return Err(Error::NoTarget {
            tried: selector.to_string(),
            why: format!(
                "no process whose sockets can be read listens on that port, and the sockets of {hidden} cannot be read"
            ),
            next: "it needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: run as root, or see docs/privileges.md for the \
                capabilities to give"
                .into(),
        });
    }
    let others: BTreeSet<u16> =
        sockets.iter().filter(|(s, h)| s.listening && !s.udp && *h != 0).map(|(s, _)| s.local.1).collect();
    let listed: Vec<String> = others.iter().take(12).map(u16::to_string).collect();
    Err(Error::NoTarget {
        tried: selector.to_string(),
        why: "no process listens on that port in any network namespace".into(),
        next: if listed.is_empty() {
            "start the server first".into()
        } else {
            format!("ports with listeners: {}", listed.join(", "))
        },
    })
}

/// Whether this process may not look at other users' processes.
fn lacks_sight() -> bool {
    let root = tailsight_host::Root::host();
    let rights = tailsight_host::rights::Rights::collect(&root, &tailsight_host::kernel::Kernel::collect(&root));
    rights.missing.iter().any(|m| ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"].contains(&m.capability.as_str()))
}

/// The server ports of processes: where they listen (TCP) or hold an unconnected socket (UDP). A UDP socket on all addresses and
/// a port that the kernel gives (`ip_local_port_range`) is one that a client sends from, unless there is no other port. A
/// process without any (its listener was closed after a fork) gets the local ports of its connections.
pub fn server_ports(pids: &[u32]) -> Vec<u16> {
    let ports: BTreeSet<u16> = server_doors(pids).into_iter().map(|door| door.port).collect();
    ports.into_iter().collect()
}

/// Where a target serves: a port of a network namespace, at one address or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Door {
    /// The namespace's number, as `/proc/PID/ns/net` shows it.
    pub netns: u32,
    /// The port.
    pub port: u16,
    /// The address; `None`: all of the namespace's.
    pub address: Option<IpAddr>,
}

/// Where processes serve, by [`server_ports`]'s rule.
pub fn server_doors(pids: &[u32]) -> Vec<Door> {
    let mut ports = BTreeSet::new();
    let (mut given, mut connected) = (BTreeSet::new(), BTreeSet::new());
    let range = given_ports(&std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default());
    // One reading a namespace: with many workers and connections the table is long.
    let mut namespaces: BTreeMap<u32, (u32, BTreeSet<u64>)> = BTreeMap::new();
    for &pid in pids {
        let inodes = procfs::socket_inodes(pid);
        if !inodes.is_empty() {
            let entry = namespaces.entry(procfs::netns(pid)).or_insert_with(|| (pid, BTreeSet::new()));
            entry.1.extend(inodes);
        }
    }
    for (&netns, (pid, inodes)) in &namespaces {
        for socket in procfs::sockets_of_namespace(*pid).iter().filter(|s| inodes.contains(&s.inode)) {
            let sends_from =
                socket.udp && socket.local.0.is_unspecified() && range.contains(&local_port(socket).into());
            let set = match socket.listening {
                true if sends_from => &mut given,
                true => &mut ports,
                false => &mut connected,
            };
            // The connections of a server tell its port, not at which addresses it listens.
            let address = Some(socket.local.0.to_canonical()).filter(|ip| socket.listening && !ip.is_unspecified());
            set.insert(Door { netns, port: local_port(socket), address });
        }
    }
    let mut first = [ports, given, connected].into_iter().map(|mut set| {
        set.retain(|door| door.port != 0);
        set
    });
    first.find(|set| !set.is_empty()).unwrap_or_default().into_iter().collect()
}

/// Where holders of a listener of that port serve it. A process may hold a socket of another namespace than its own.
pub fn doors_of_port(port: u16, pids: &[u32]) -> Vec<Door> {
    let inodes: BTreeSet<u64> = pids.iter().flat_map(|&pid| procfs::socket_inodes(pid)).collect();
    let mut doors = BTreeSet::new();
    for (netns, pid) in procfs::namespaces(&procfs::processes()) {
        for socket in procfs::sockets_of_namespace(pid) {
            if socket.listening && local_port(&socket) == port && inodes.contains(&socket.inode) {
                let address = Some(socket.local.0.to_canonical()).filter(|ip| !ip.is_unspecified());
                doors.insert(Door { netns, port, address });
            }
        }
    }
    doors.into_iter().collect()
}

/// The ports that the kernel gives to sockets which ask for none; none when it does not say.
fn given_ports(text: &str) -> std::ops::Range<u32> {
    let mut ports = text.split_whitespace().map_while(|n| n.parse::<u32>().ok());
    match (ports.next(), ports.next()) {
        (Some(first), Some(last)) => first..last + 1,
        _ => 0..0,
    }
}

fn local_port(socket: &Socket) -> u16 {
    socket.local.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn own_ports_are_found() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        let ports = server_ports(&[std::process::id()]);
        assert!(ports.contains(&tcp.local_addr().unwrap().port()));
        assert!(ports.contains(&udp.local_addr().unwrap().port()));
    }

    /// A server that asks another one by datagrams, on a socket that is not connected: its port counted as one that it serves, and
    /// the answers as its messages.
    #[test]
    fn a_udp_socket_that_was_never_bound_is_no_server_s() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let asks = UdpSocket::bind("0.0.0.0:0").unwrap();
        asks.send_to(b"question", tcp.local_addr().unwrap()).unwrap();
        let range = given_ports(&std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap());
        assert!(range.contains(&asks.local_addr().unwrap().port().into()), "{range:?}");
        assert!(!server_ports(&[std::process::id()]).contains(&asks.local_addr().unwrap().port()));
        assert_eq!(given_ports("32768\t60999\n"), 32768..61_000);
        assert!(given_ports("").is_empty());
    }

    /// `--comm` found none of these, and `-p` refused them.
    #[test]
    fn a_process_whose_name_is_no_text_is_found_by_its_bytes_its_text_and_its_id() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        // Fifteen bytes of a longer name, the last ones the begin of a character.
        let whole = "l遅延テスト";
        let file = dir.path().join(std::ffi::OsStr::from_bytes(whole.as_bytes()));
        tailsight_testing::copy_program("/bin/sleep", &file);
        let mut child = std::process::Command::new(&file).arg("60").spawn().unwrap();
        let pid = child.id();
        let begun = std::time::Instant::now();
        while procfs::process(pid).is_none_or(|p| !p.comm.starts_with("l遅")) && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let comm = procfs::process(pid).map(|p| p.comm);
        let by_selector: Vec<_> =
            [Selector::Pid(pid), Selector::Comm(comm.clone().unwrap_or_default())].iter().map(processes).collect();
        let suggested = processes(&Selector::Comm(whole.into()));
        let (killed, waited) = (child.kill(), child.wait());
        assert!(killed.is_ok() && waited.is_ok());
        assert_eq!(comm.as_deref(), Some(r"l遅延テス\xe3\x83"));
        for target in by_selector {
            assert_eq!(target.unwrap(), (r"l遅延テス\xe3\x83".to_owned(), vec![pid]));
        }
        let error = suggested.unwrap_err().to_string();
        assert!(error.contains("did you mean --comm 'l遅延テス\\xe3\\x83'?"), "{error}");
    }

    #[test]
    fn a_missing_pid_says_which() {
        let e = processes(&Selector::Pid(4_194_303)).unwrap_err();
        assert!(e.to_string().contains("4194303"), "{e}");
    }

    #[test]
    fn a_port_without_listener_lists_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let e = processes(&Selector::Port(1)).unwrap_err().to_string();
        assert!(e.contains("no process listens"), "{e}");
        drop(listener);
    }

    #[test]
    fn a_missing_cgroup_says_so() {
        let e = processes(&Selector::Cgroup("/no/such/cgroup".into())).unwrap_err().to_string();
        assert!(e.contains("not a cgroup directory"), "{e}");
    }
}
