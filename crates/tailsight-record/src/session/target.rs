//! The processes and ports that a recording follows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapFlags};
use tailsight_symbolise::maps::Maps;
use tailsight_symbolise::resolve::jvm::is_jvm;
use tailsight_trace::tables::TaskRow;

use super::options::Options;
use crate::command::{self, Command};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::procfs;
use crate::target::{self, Door, Selector};

/// The target, as far as it is known.
pub(super) struct Target {
    /// The application's name; empty while unknown.
    pub(super) app: String,
    pub(super) pids: Vec<u32>,
    pub(super) ports: Vec<u16>,
    /// Where it serves the ports.
    doors: BTreeSet<Door>,
    /// The network namespaces that it is in, each with a process by which to enter it.
    namespaces: BTreeMap<u32, u32>,
    /// Addresses of those.
    addresses: BTreeSet<IpAddr>,
    /// The command, when the recording started it.
    pub(super) child: Option<Command>,
}

impl Target {
    /// Finds the processes that are there and their ports. A command is not started yet.
    pub(super) fn resolve(selector: &Selector) -> Result<Target, Error> {
        if let Selector::Command(words) = selector {
            command::check(words)?;
        }
        let (mut app, pids) = target::processes(selector)?;
        for &pid in &pids {
            procfs::may_read_sockets(pid).map_err(|e| Error::SocketsHidden { pid, source: e })?;
        }
        if let Selector::Command(words) = selector {
            app = words.first().map(|w| w.rsplit('/').next().unwrap_or(w).to_owned()).unwrap_or_default();
        }
        let ports = match selector {
            Selector::Port(port) => vec![*port],
            _ => Vec::new(),
        };
        let (doors, namespaces, addresses) = Default::default();
        let mut target = Target { app, pids, ports, doors, namespaces, addresses, child: None };
        target.find_doors(selector);
        if let Selector::Pid(root) = *selector
            && let Some(server) = target.only_server_below(root)
        {
            target.app = server;
        }
        Ok(target)
    }

    /// The name of the processes that serve, where the one that was named only started them (`timeout 60 haproxy`, a shell).
    fn only_server_below(&self, root: u32) -> Option<String> {
        /// Who starts more processes than these is no wrapper, and the sockets of each take time to read.
        const MOST: usize = 16;
        if !(2..=MOST).contains(&self.pids.len()) || !target::server_doors(&[root]).is_empty() {
            return None;
        }
        let servers = self.pids.iter().filter(|&&pid| !target::server_doors(&[pid]).is_empty());
        let names: BTreeSet<String> = servers.filter_map(|&pid| Some(procfs::process(pid)?.comm)).collect();
        names.first().filter(|_| names.len() == 1).cloned()
    }

    /// Adds the places where the target serves now, and the namespaces that it is in.
    fn find_doors(&mut self, selector: &Selector) {
        match selector {
            Selector::Port(port) => self.doors.extend(target::doors_of_port(*port, &self.pids)),
            _ => {
                self.doors.extend(target::server_doors(&self.pids));
                self.ports = self.doors.iter().map(|door| door.port).collect();
                self.ports.sort_unstable();
                self.ports.dedup();
            }
        }
    }

    /// The namespaces that the target is in now: a command may enter another one after its start. A target that is being
    /// restarted keeps its earlier ones.
    fn find_namespaces(&mut self) {
        let alive = self.pids.iter().filter(|&&pid| procfs::alive(pid));
        let now: BTreeMap<u32, u32> = alive.map(|&pid| (procfs::netns(pid), pid)).collect();
        if now.is_empty() || now.keys().eq(self.namespaces.keys()) {
            return;
        }
        self.addresses = now.values().flat_map(|&pid| procfs::addresses(pid)).collect();
        self.namespaces = now;
    }

    /// Starts the command, if the target is one.
    pub(super) fn start(&mut self, selector: &Selector) -> Result<(), Error> {
        if let Selector::Command(words) = selector {
            let child = Command::start(words)?;
            self.pids = vec![child.pid()];
            self.child = Some(child);
        }
        Ok(())
    }

    /// Whether one of its processes runs a JVM, or will.
    pub(super) fn runs_jvm(&self, selector: &Selector) -> bool {
        let java = |words: &[String]| words.first().is_some_and(|w| w.rsplit('/').next() == Some("java"));
        matches!(selector, Selector::Command(words) if java(words))
            || self.pids.iter().any(|&pid| Maps::of(pid).is_ok_and(|maps| is_jvm(&maps)))
    }

    /// Writes the target into the probes' filters.
    pub(super) fn tell(&mut self, loaded: &mut Loaded) {
        self.find_namespaces();
        self.tell_places(loaded);
        let bss = loaded.probes.variables_mut();
        bss.follow_children = 1;
        for nr in tailsight_kernel::syscalls::told_by_name() {
            bss.plain_sleeps[(nr >> 6) as usize & 15] |= 1 << (nr & 63);
        }
        for &pid in &self.pids {
            // The probes set bits of children at the same time, atomically, so this must be atomic too.
            let word = &raw mut bss.target_tgids[(pid >> 6) as usize & 0xffff];
            // SAFETY: an aligned word of the shared mapping.
            unsafe { AtomicU64::from_ptr(word) }.fetch_or(1 << (pid & 63), Ordering::Relaxed);
        }
        for &port in &self.ports {
            bss.target_ports[usize::from(port >> 6)] |= 1 << (port & 63);
        }
    }

    /// Adds processes and ports that belong to the target by now. The probes follow children by themselves; this finds
    /// processes that were started otherwise. `away`: none of the known processes lives any more.
    pub(super) fn look_again(&mut self, options: &Options, away: bool) {
        let before = self.pids.len();
        self.find_processes(options, away);
        if self.ports.is_empty() || self.child.is_some() || self.pids.len() > before {
            self.find_doors(&options.selector);
        }
    }

    /// Takes in the processes that the programs follow by now, children too, and has them forget those that have ended, which are given: their
    /// numbers may go to others.
    pub(super) fn follow_the_living(&mut self, loaded: &mut Loaded) -> Vec<u32> {
        let (mut living, mut ended) = (vec![], vec![]);
        let words = &mut loaded.probes.variables_mut().target_tgids;
        for (at, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let mut mask = 0u64;
            for bit in (0..64).filter(|bit| *word >> bit & 1 == 1) {
                let pid = at as u32 * 64 + bit;
                if procfs::alive(pid) {
                    living.push(pid);
                } else {
                    ended.push(pid);
                    mask |= 1 << bit;
                }
            }
            // The probes set bits of children at the same time, atomically, so this must be atomic too.
            // SAFETY: an aligned word of the shared mapping.
            unsafe { AtomicU64::from_ptr(word) }.fetch_and(!mask, Ordering::Relaxed);
        }
        self.pids = living;
        ended
    }

    /// Adds processes that known ones started before the probes followed children: between the first look and the probes.
    pub(super) fn add_born(&mut self, loaded: &mut Loaded) {
        let me = std::process::id();
        for child in procfs::with_descendants(&self.pids, &procfs::processes()) {
            if child != me && !self.pids.contains(&child) {
                self.pids.push(child);
            }
        }
        self.tell(loaded);
    }

    /// Writes namespaces, addresses and served ports. What does not fit into a table is not recorded.
    fn tell_places(&self, loaded: &mut Loaded) {
        let maps = &loaded.probes.maps;
        let netns: BTreeSet<u32> =
            self.namespaces.keys().copied().chain(self.doors.iter().map(|door| door.netns)).collect();
        let written: Vec<Vec<u8>> = maps.target_netns.keys().collect();
        let gone = |key: &&Vec<u8>| !netns.iter().any(|number| number.to_ne_bytes()[..] == key[..]);
        let lost_one = written.iter().any(|key| gone(&key));
        for key in written.iter().filter(gone) {
            let _ = maps.target_netns.delete(key);
        }
        for number in &netns {
            let _ = maps.target_netns.update(&number.to_ne_bytes(), &[1], MapFlags::ANY);
        }
        let addresses: BTreeSet<Vec<u8>> = self.addresses.iter().map(|ip| address_key(Some(*ip))).collect();
        let written: Vec<Vec<u8>> = maps.target_addresses.keys().collect();
        for key in written.iter().filter(|key| !addresses.contains(*key)) {
            let _ = maps.target_addresses.delete(key);
        }
        for key in &addresses {
            let _ = maps.target_addresses.update(key, &[1], MapFlags::ANY);
        }
        for door in &self.doors {
            for netns in [door.netns, 0] {
                let mut key = [netns.to_ne_bytes(), u32::from(door.port).to_ne_bytes()].concat();
                key.extend(address_key(door.address));
                let _ = maps.doors.update(&key, &[1], MapFlags::ANY);
            }
        }
        let bss = loaded.probes.variables_mut();
        if lost_one {
            bss.first_place = Default::default();
        }
        bss.first_netns = netns.first().copied().unwrap_or(0);
        for door in self.doors.iter().filter(|door| door.address.is_some()) {
            bss.bound_ports[usize::from(door.port >> 6)] |= 1 << (door.port & 63);
        }
    }

    fn find_processes(&mut self, options: &Options, away: bool) {
        let selector = match (&self.child, &options.selector) {
            (Some(child), _) => Selector::Pid(child.pid()),
            (None, s @ (Selector::Comm(_) | Selector::Cgroup(_))) => s.clone(),
            // Reads every process' descriptors, so it is done only when necessary.
            (None, s @ Selector::Port(_)) if away => s.clone(),
            _ => return,
        };
        if let Ok((_, now)) = target::processes(&selector) {
            for pid in now {
                if !self.pids.contains(&pid) {
                    self.pids.push(pid);
                }
            }
        }
    }

    /// Every process that was followed at any time: those that were set here, and the children that the probes followed.
    pub(super) fn followed(&self, loaded: &Loaded, born: &[TaskRow]) -> Vec<u32> {
        let bss = loaded.probes.variables();
        let is_set = |tgid: &u32| bss.target_tgids[(tgid >> 6) as usize & 0xffff] >> (tgid & 63) & 1 == 1;
        let mut pids: Vec<u32> = self.pids.clone();
        pids.extend(born.iter().map(|t| t.tgid).filter(is_set));
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// An address in the probes' form: IPv4 in host order and a 4, IPv6 in network order; zeros stand for any.
fn address_key(address: Option<IpAddr>) -> Vec<u8> {
    match address.map(|ip| ip.to_canonical()) {
        None => vec![0; 16],
        Some(IpAddr::V4(ip)) => [u64::from(u32::from(ip)).to_ne_bytes(), 4u64.to_ne_bytes()].concat(),
        Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
    }
}
