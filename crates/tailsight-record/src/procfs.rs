//! What /proc says about processes and sockets. Reads only; a process that ends in between is simply not there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use procfs_core::net::{TcpNetEntries, TcpState, UdpNetEntries};
use procfs_core::{ExplicitSystemInfo, FromBufReadSI};
use tailsight_host::cgroup::Groups;
use tailsight_host::{Stat, proc};
use tailsight_trace::FlowKey;
use tailsight_trace::tables::{SocketRow, TaskRow};
use tailsight_units::name;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub parent: u32,
    /// Command name, as [`tailsight_units::name`] writes its bytes.
    pub comm: String,
    /// A kernel thread (kthreadd or its child).
    pub kernel: bool,
}

fn of_stat(stat: &Stat) -> Option<Process> {
    let (pid, parent) = (stat.pid()?, stat.parent()?);
    Some(Process { pid, parent, comm: stat.comm().to_owned(), kernel: pid == 2 || parent == 2 })
}

/// Every process.
pub fn processes() -> Vec<Process> {
    numeric_entries("/proc").filter_map(process).collect()
}

/// One process, when it exists.
pub fn process(pid: u32) -> Option<Process> {
    of_stat(&Stat::of_process(pid)?)
}

/// The processes that exist, each with what tells it from another one of the same id.
pub fn identities(pids: &[u32]) -> Vec<tailsight_trace::meta::Process> {
    let identity = |&pid: &u32| {
        let stat = Stat::of_process(pid)?;
        Some(tailsight_trace::meta::Process { pid, started: stat.started()?, comm: stat.comm().to_owned() })
    };
    pids.iter().filter_map(identity).collect()
}

/// Whether a process still runs: it is there, and not only as a zombie that its parent has not waited for. (A main thread
/// that ended before others looks like a zombie, too.)
pub fn alive(pid: u32) -> bool {
    let Some(stat) = Stat::of_process(pid) else {
        return false;
    };
    !stat.is_zombie() || numeric_entries(&format!("/proc/{pid}/task")).count() > 1
}

fn numeric_entries(dir: &str) -> impl Iterator<Item = u32> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// The given processes and all their descendants.
pub fn with_descendants(roots: &[u32], processes: &[Process]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for p in processes {
        children.entry(p.parent).or_default().push(p.pid);
    }
    let mut out: Vec<u32> = Vec::new();
    let mut reached: HashSet<u32> = HashSet::new();
    let mut queue: Vec<u32> = roots.to_vec();
    while let Some(pid) = queue.pop() {
        if reached.insert(pid) {
            out.push(pid);
            queue.extend(children.get(&pid).into_iter().flatten());
        }
    }
    out.sort_unstable();
    out
}

/// The threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    numeric_entries(&format!("/proc/{pid}/task")).collect()
}

/// The control group of a process; empty when that cannot be read.
pub fn cgroup(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/cgroup")).ok().and_then(parse_cgroup).unwrap_or_default()
}

/// Of /proc/PID/cgroup the group of version 2 where it says more than the root, else that of the hierarchy of
/// version 1 with the CPU controller, else the named one of systemd. As [`name`] writes its bytes.
pub fn parse_cgroup(text: impl AsRef<[u8]>) -> Option<String> {
    let groups = Groups::parse(text);
    let below_root = |what: &&str| groups.path(what).filter(|path| *path != Path::new("/"));
    let path_of_group = ["", "cpu", "name=systemd"].iter().find_map(below_root).or_else(|| groups.paths().next());
    path_of_group.map(|path| name::from_bytes(path.as_os_str().as_bytes()))
}

/// Every thread of the host with its name.
pub fn tasks(is_target: impl Fn(u32) -> bool) -> Vec<TaskRow> {
    let mut rows = Vec::new();
    for process in processes() {
        let group = if process.kernel { String::new() } else { cgroup(process.pid) };
        for tid in numeric_entries(&format!("/proc/{}/task", process.pid)) {
            let comm = if tid == process.pid {
                process.comm.clone()
            } else {
                match fs::read(format!("/proc/{}/task/{tid}/comm", process.pid)) {
                    Ok(bytes) => proc::comm(&bytes),
                    Err(_) => continue,
                }
            };
            rows.push(TaskRow {
                from_ns: 0,
                tid,
                tgid: process.pid,
                comm,
                target: is_target(process.pid),
                kernel: process.kernel,
                cgroup: group.clone(),
            });
        }
    }
    rows
}

/// A socket as /proc/net shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Local end.
    pub local: (IpAddr, u16),
    /// Remote end; port 0 when not connected.
    pub remote: (IpAddr, u16),
    /// UDP, else TCP.
    pub udp: bool,
    /// A TCP listener or an unconnected UDP socket.
    pub listening: bool,
    /// Inode: the link to the descriptor that holds it.
    pub inode: u64,
}

/// Parses one of /proc/net/{tcp,tcp6,udp,udp6}.
pub fn parse_sockets(text: &str, udp: bool) -> Vec<Socket> {
    text.lines().skip(1).filter_map(|line| parse_socket(line, udp)).collect()
}

/// A line alone: the parsers refuse all lines for an odd one. They take addresses for words as the machine stores them, and skip a heading.
fn parse_socket(line: &str, udp: bool) -> Option<Socket> {
    let is_little_endian = cfg!(target_endian = "little");
    let machine = ExplicitSystemInfo { boot_time_secs: 0, ticks_per_second: 0, page_size: 0, is_little_endian };
    let table = format!("\n{line}");
    let (local, remote, inode, listening) = if udp {
        let entry = UdpNetEntries::from_buf_read(table.as_bytes(), &machine).ok()?.0.pop()?;
        (entry.local_address, entry.remote_address, entry.inode, entry.remote_address.port() == 0)
    } else {
        let entry = TcpNetEntries::from_buf_read(table.as_bytes(), &machine).ok()?.0.pop()?;
        (entry.local_address, entry.remote_address, entry.inode, entry.state == TcpState::Listen)
    };
    let [local, remote] = [local, remote].map(|end| (end.ip(), end.port()));
    Some(Socket { local, remote, udp, listening, inode })
}

/// Sockets of the network namespace that `pid` is in.
pub fn sockets_of_namespace(pid: u32) -> Vec<Socket> {
    ["tcp", "tcp6", "udp", "udp6"]
        .iter()
        .flat_map(|name| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
            parse_sockets(&text, name.starts_with("udp"))
        })
        .collect()
}

/// The network namespace of a process, as the kernel names it.
pub fn namespace_of(pid: u32) -> Option<String> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok().map(|p| p.to_string_lossy().into_owned())
}

/// The number of a process' network namespace; 1 where the kernel has no others or does not tell.
pub fn netns(pid: u32) -> u32 {
    let name = namespace_of(pid);
    let number = name.as_deref().and_then(|n| n.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok());
    number.unwrap_or(1)
}

/// The network namespaces that processes are in, each with one of them.
pub fn namespaces(processes: &[Process]) -> BTreeMap<u32, u32> {
    let mut namespaces = BTreeMap::new();
    for process in processes.iter().filter(|p| !p.kernel) {
        namespaces.entry(netns(process.pid)).or_insert(process.pid);
    }
    namespaces
}

/// The addresses of the network namespace that a process is in, by which packets are told on their way there: those that mean
/// something outside of it.
pub fn addresses(pid: u32) -> Vec<IpAddr> {
    let list = || {
        let interfaces = nix::ifaddrs::getifaddrs().map_err(std::io::Error::from)?;
        Ok(interfaces.filter_map(|interface| address(interface.address?)).collect::<Vec<IpAddr>>())
    };
    let addresses = tailsight_host::device::inside(pid, list).unwrap_or_default();
    let outside = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    addresses.into_iter().filter(outside).collect()
}

fn address(socket_address: nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = socket_address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| socket_address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// Whether the descriptors of a process can be read; a process that ended meanwhile is no error.
///
/// # Errors
/// The kernel refuses it.
pub fn may_read_sockets(pid: u32) -> std::io::Result<()> {
    let refused = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Err(e),
        _ => Ok(()),
    };
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(e) => refused(e),
        Ok(mut entries) => match entries.next() {
            Some(Ok(entry)) => fs::read_link(entry.path()).map_or_else(refused, |_| Ok(())),
            _ => Ok(()),
        },
    }
}

/// Inodes of the sockets that a process holds.
pub fn socket_inodes(pid: u32) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| {
            let link = fs::read_link(e.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

/// Every socket of the host's network namespaces (one reading each), with the process that holds it.
pub fn sockets(processes: &[Process]) -> Vec<(Socket, u32)> {
    let mut holders: HashMap<u64, u32> = HashMap::new();
    let mut namespaces: BTreeMap<String, u32> = BTreeMap::new();
    for process in processes.iter().filter(|p| !p.kernel) {
        if let Some(ns) = namespace_of(process.pid) {
            namespaces.entry(ns).or_insert(process.pid);
        }
        for inode in socket_inodes(process.pid) {
            holders.entry(inode).or_insert(process.pid);
        }
    }
    let mut inodes = HashSet::new();
    namespaces
        .values()
        .flat_map(|&pid| sockets_of_namespace(pid))
        .filter(|s| s.inode != 0 && inodes.insert(s.inode))
        .map(|s| {
            let holder = holders.get(&s.inode).copied().unwrap_or(0);
            (s, holder)
        })
        .collect()
}

/// A socket as a row of sockets.arrow.
pub fn socket_row(socket: &Socket, holder: u32, comm: &str) -> SocketRow {
    let connected = socket.remote.1 != 0;
    SocketRow {
        proto: if socket.udp { "udp" } else { "tcp" }.into(),
        local_addr: socket.local.0.to_canonical().to_string(),
        local_port: socket.local.1,
        remote_addr: if connected { socket.remote.0.to_canonical().to_string() } else { String::new() },
        remote_port: socket.remote.1,
        listening: socket.listening,
        tgid: holder,
        comm: comm.into(),
        addrs: FlowKey::between(socket.local, socket.remote, socket.udp).addrs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_are_told_and_hostile_names_read() {
        let process_of = |text: &str| of_stat(&Stat::parse(text).unwrap());
        let p = process_of("42 (a) b (c)) S 7 42 42 0 -1").unwrap();
        assert_eq!(p, Process { pid: 42, parent: 7, comm: "a) b (c)".into(), kernel: false });
        assert!(process_of("9 (kworker/0:1) I 2 0").unwrap().kernel && process_of("x (a) S 1").is_none());
    }

    /// The start, by which a process is told from a later one of its id: after this test program was built, before now.
    #[test]
    fn a_process_is_known_by_its_start() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let processes = identities(&[std::process::id(), child.id(), u32::MAX]);
        let (killed, waited) = (child.kill(), child.wait());
        assert!(killed.is_ok() && waited.is_ok());
        assert_eq!(processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [std::process::id(), child.id()]);
        assert!(processes[0].started <= processes[1].started && processes[0].started > 0, "{processes:?}");
    }

    /// A thread whose name the kernel had cut inside a character was none of the host's: as a cause it was `tid N`.
    #[test]
    fn a_thread_whose_name_is_no_text_is_there_with_its_bytes() {
        let bytes = b"wrk-\xe3\x82\xb5\xe3\x83\xbc\xe3\x83\n\xff";
        let (send, tid) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut name = bytes.to_vec();
            name.push(0);
            // SAFETY: a name that ends with a zero byte, for the calling thread.
            let rc = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            // SAFETY: no arguments.
            send.send((rc, unsafe { libc::gettid() })).unwrap();
            let _ = wait.recv();
        });
        let (rc, tid) = tid.recv().unwrap();
        let me = std::process::id();
        let task = tasks(|pid| pid == me).into_iter().find(|t| t.tid == tid.cast_unsigned());
        drop(end);
        thread.join().unwrap();
        assert_eq!(rc, 0);
        let task = task.expect("the thread is listed");
        assert_eq!(task.comm, r"wrk-サー\xe3\x83\x0a\xff");
        assert_eq!(name::to_bytes(&task.comm), bytes);
    }

    #[test]
    fn cgroups_of_both_versions() {
        assert_eq!(parse_cgroup("0::/system.slice/nginx.service\n").as_deref(), Some("/system.slice/nginx.service"));
        // Both versions at once, as systemd's hybrid has them: version 2 says nothing but the root.
        let hybrid = "12:cpu,cpuacct:/docker/0123\n1:name=systemd:/docker/0123\n0::/\n";
        assert_eq!(parse_cgroup(hybrid).as_deref(), Some("/docker/0123"));
        assert_eq!(
            parse_cgroup("1:name=systemd:/user.slice/session-2.scope\n").as_deref(),
            Some("/user.slice/session-2.scope")
        );
        // A path may hold colons.
        assert_eq!(
            parse_cgroup("0::/kubepods.slice/cri-containerd:ab\n").as_deref(),
            Some("/kubepods.slice/cri-containerd:ab")
        );
        assert_eq!(parse_cgroup("0::/\n").as_deref(), Some("/"));
        assert_eq!(parse_cgroup("nonsense"), None);
        assert_eq!(parse_cgroup(b"0::/a\xff\n").as_deref(), Some("/a\\xff"));
    }

    #[test]
    fn sockets_of_both_families() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100 0 0 10 0\n   \
            1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 12346 1 0 100 0 0 10 0\n";
        let s = parse_sockets(tcp, false);
        assert_eq!(s.len(), 2);
        assert_eq!(s[0].local, ("127.0.0.1".parse().unwrap(), 8080));
        assert!(s[0].listening && !s[1].listening);
        assert_eq!((s[1].remote.1, s[1].inode), (50000, 12346));
        let v6 = "h\n 0: 00000000000000000000000001000000:2BCB 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 99 1\n";
        let s = parse_sockets(v6, false);
        assert_eq!(s[0].local, ("::1".parse().unwrap(), 11211));
        assert!(parse_sockets("h\n half a line", false).is_empty() && parse_sockets("", true).is_empty());
        // A state that nobody knows, half a line, and a UDP socket as the kernel writes it.
        let odd = tcp.replace(" 0A ", " 7F ") + "   2: 0100007F";
        assert_eq!(parse_sockets(&odd, false), parse_sockets(tcp, false).split_off(1));
        let udp =
            "h\n  5: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 777 2 0 0\n";
        let sockets = parse_sockets(udp, true);
        assert_eq!((sockets[0].local, sockets[0].inode), (("127.0.0.53".parse().unwrap(), 53), 777));
        assert!(sockets[0].udp && sockets[0].listening);
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let p = |pid, parent| Process { pid, parent, comm: String::new(), kernel: false };
        let processes = [p(1, 0), p(10, 1), p(11, 10), p(12, 11), p(20, 1)];
        assert_eq!(with_descendants(&[10], &processes), vec![10, 11, 12]);
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let begun = std::time::Instant::now();
        while alive(child.id()) && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!alive(child.id()) && process(child.id()).is_some());
        child.wait().unwrap();
        assert!(!alive(child.id()) && alive(std::process::id()));
    }

    #[test]
    fn this_process_sees_itself() {
        let me = std::process::id();
        assert!(process(me).is_some());
        assert!(tasks(|pid| pid == me).iter().any(|t| t.tgid == me && t.target));
    }
}
