//! From a change in words to each value that it means on this host now.
//!
//! In: [`Change`]s, the host, and what the run knows of its processes ([`Origin`]). Out: a [`Plan`], or why the fix is not to be
//! had here and now. Reads only. An id is a process of the run while its start and its name are those of the recording.

use std::path::Component;

use tailsight_host::cgroup::Groups;

use crate::{Attribute, Change, Error, Limit, Place, Setting, System};

/// A process as the run knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub pid: u32,
    /// When it started, clock ticks after the boot.
    pub started: u64,
    /// Its name.
    pub comm: String,
}

/// What the run knows of where it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The kernel's id of the boot; empty in runs of older versions.
    pub boot_id: String,
    /// The target's processes.
    pub processes: Vec<Identity>,
}

/// One value, now and to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub place: Place,
    /// The value now.
    pub was: String,
    /// The value to be. The same as now for a thread that needs no change: it is kept so that it is not taken for one that
    /// began while the fix was on.
    pub new: String,
}

impl Step {
    /// Whether there is nothing to do.
    pub fn is_so(&self) -> bool {
        self.place.same(&self.was, &self.new)
    }
}

/// What a fix will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The values, in the order in which they are written.
    pub steps: Vec<Step>,
    /// What is left out, and why.
    pub notes: Vec<String>,
    /// That processes which the run did not see have the name of those that it saw and that have ended; none where that is not so.
    pub others_of_name: Option<String>,
}

impl Plan {
    /// The values that will be written.
    pub fn writes(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|s| !s.is_so())
    }
}

/// Looks at the host.
///
/// # Errors
/// The run is of elsewhere ([`Error::UnknownHost`], [`Error::OtherBoot`]), its processes have ended or their ids are others'
/// ([`Error::Ended`], [`Error::Reused`]), the host has no such setting ([`Error::Unsupported`]), a value cannot be read, or
/// everything is so already.
pub fn plan(system: &dyn System, changes: &[Change], origin: &Origin) -> Result<Plan, Error> {
    let plan = look(system, changes, origin)?;
    if plan.writes().next().is_none() { Err(Error::AlreadySo) } else { Ok(plan) }
}

/// As [`plan()`], also when nothing is to be changed.
pub(crate) fn look(system: &dyn System, changes: &[Change], origin: &Origin) -> Result<Plan, Error> {
    if origin.boot_id.is_empty() {
        return Err(Error::UnknownHost);
    }
    if origin.boot_id != system.boot_id() {
        return Err(Error::OtherBoot);
    }
    let mut look = Look { system, origin, plan: Plan::default() };
    for change in changes {
        look.change(change)?;
    }
    Ok(look.plan)
}

struct Look<'a> {
    system: &'a dyn System,
    origin: &'a Origin,
    plan: Plan,
}

impl Look<'_> {
    fn change(&mut self, change: &Change) -> Result<(), Error> {
        match change {
            Change::Sysctl { key, value, netns } => {
                let path = format!("/proc/sys/{}", key.replace('.', "/"));
                let netns = self.namespace(*netns, key.starts_with("net."))?;
                self.file(path, netns, value)
            }
            Change::File { path, value } => self.file(path.clone(), None, value),
            Change::Queues { device, direction, file, value, netns } => {
                let netns = self.namespace(*netns, true)?;
                let folder = format!("/sys/class/net/{device}/queues");
                let queues = self.system.names(&folder, netns);
                let queues: Vec<String> = queues.into_iter().filter(|q| q.starts_with(direction.as_str())).collect();
                if queues.is_empty() {
                    return Err(Error::Unsupported { what: format!("{device} has no {direction} queues here") });
                }
                queues.iter().try_for_each(|q| self.file(format!("{folder}/{q}/{file}"), netns, value))
            }
            Change::Interrupts { irqs, cpus } => {
                irqs.iter().try_for_each(|n| self.file(format!("/proc/irq/{n}/smp_affinity_list"), None, cpus))
            }
            Change::Pin { pids, cpus } => self.threads(pids, Attribute::Cores, cpus),
            Change::PinNamed { comm, seen, cpus } => self.named(comm, seen, cpus),
            Change::RealTime { pids } => self.threads(pids, Attribute::Policy, "fifo 1"),
            Change::DiskFirst { pids } => self.threads(pids, Attribute::DiskPriority, "realtime 4"),
            Change::IdleStates { slower_than_us } => self.idle_states(*slower_than_us),
            Change::Coalescing { device, netns } => {
                let netns = self.namespace(*netns, true)?;
                for (setting, value) in [(Setting::AdaptiveRx, "off"), (Setting::RxUsecs, "0")] {
                    self.value(Place::Device { device: device.clone(), setting, netns }, value)?;
                }
                Ok(())
            }
            Change::NoLimit { pids, limit } => self.groups(pids, |look, group| look.no_limit(group, *limit)),
            Change::Thaw { pids } => self.groups(pids, Look::thaw),
            Change::Continue { pids } => {
                for identity in self.running(pids)? {
                    let place = self.thread(&identity, identity.pid, Attribute::RunState);
                    place.map_or(Ok(()), |(place, _)| self.value(place, "running"))?;
                }
                Ok(())
            }
        }
    }

    /// Those of the processes that still run as the run knows them.
    fn running(&mut self, pids: &[u32]) -> Result<Vec<Identity>, Error> {
        let (mut running, mut ended) = (vec![], vec![]);
        for &pid in pids {
            // A process that had ended before the recording's end has no identity in it.
            let Some(identity) = self.origin.processes.iter().find(|p| p.pid == pid) else {
                ended.push(format!("process {pid}"));
                continue;
            };
            match self.system.task(pid, pid) {
                Some(task) if task.started == identity.started && task.comm == identity.comm => {
                    running.push(identity.clone());
                }
                Some(task) => {
                    return Err(Error::Reused { pid, was: identity.comm.clone(), is: task.comm });
                }
                None => ended.push(format!("process {pid} ({})", identity.comm)),
            }
        }
        if running.is_empty() {
            return Err(Error::Ended { what: ended.join(", "), one: ended.len() == 1 });
        }
        for what in ended {
            self.note(format!("{what} has ended"));
        }
        Ok(running)
    }

    fn note(&mut self, note: String) {
        if !self.plan.notes.contains(&note) {
            self.plan.notes.push(note);
        }
    }

    /// The inode of a namespace: of the process that stands for it, or of this one's where that makes a difference.
    fn namespace(&mut self, pid: Option<u32>, matters: bool) -> Result<Option<u64>, Error> {
        let Some(pid) = pid else { return Ok(if matters { self.system.netns(None) } else { None }) };
        self.running(&[pid])?;
        match self.system.netns(Some(pid)) {
            Some(inode) => Ok(Some(inode)),
            None => Err(Error::Unsupported {
                what: format!("cannot enter the network namespace of process {pid}; run it as root"),
            }),
        }
    }

    fn thread(&self, process: &Identity, thread: u32, attribute: Attribute) -> Option<(Place, bool)> {
        let task = self.system.task(process.pid, thread)?;
        let place = Place::Thread {
            attribute,
            pid: process.pid,
            process_started: process.started,
            thread,
            started: task.started,
            comm: task.comm,
        };
        Some((place, task.bound))
    }

    fn threads(&mut self, pids: &[u32], attribute: Attribute, value: &str) -> Result<(), Error> {
        for process in self.running(pids)? {
            for thread in self.system.threads(process.pid) {
                // One that ended while it was looked at.
                let Some((place, bound)) = self.thread(&process, thread, attribute) else { continue };
                self.thread_value(place, bound, value)?;
            }
        }
        Ok(())
    }

    fn thread_value(&mut self, place: Place, bound: bool, value: &str) -> Result<(), Error> {
        let Place::Thread { attribute, .. } = &place else { return Ok(()) };
        let attribute = *attribute;
        if bound && attribute == Attribute::Cores {
            self.note(format!("{place}: the kernel binds this thread to its core"));
            return Ok(());
        }
        let Some(was) = self.system.read(&place)? else { return Ok(()) };
        let urgent = ["fifo ", "rr ", "deadline"].iter().any(|p| was.starts_with(p));
        if attribute == Attribute::Policy && urgent && was != value {
            self.note(format!("{place}: stays {was}"));
            return Ok(());
        }
        self.step(place, was, value);
        Ok(())
    }

    /// A place is written once: with the value of the last change that names it.
    fn step(&mut self, place: Place, was: String, value: &str) {
        match self.plan.steps.iter_mut().find(|s| s.place == place) {
            Some(step) => value.clone_into(&mut step.new),
            None => self.plan.steps.push(Step { place, was, new: value.to_owned() }),
        }
    }

    fn named(&mut self, comm: &str, seen: &[u32], cpus: &str) -> Result<(), Error> {
        let system = self.system;
        let mut processes: Vec<(Identity, Vec<u32>)> = vec![];
        // The first process starts the others, which would have its cores from then on.
        for pid in system.processes().into_iter().filter(|pid| *pid != 1) {
            let Some(leader) = system.task(pid, pid) else { continue };
            let process = Identity { pid, started: leader.started, comm: leader.comm };
            // All of a process of that name, and threads that are called so in others.
            let is = |thread: &u32| system.task(pid, *thread).is_some_and(|t| process.comm == comm || t.comm == comm);
            let threads: Vec<u32> = system.threads(pid).into_iter().filter(is).collect();
            if !threads.is_empty() {
                processes.push((process, threads));
            }
        }
        let are_there = processes.iter().any(|(process, _)| seen.contains(&process.pid));
        if !are_there && !seen.is_empty() && runs_anything(comm) {
            return Err(Error::NoSuchThread { comm: format!("{comm} that the run saw") });
        }
        if !are_there && !seen.is_empty() && !processes.is_empty() {
            let pids: Vec<String> = processes.iter().map(|(process, _)| process.pid.to_string()).collect();
            let who = match &pids[..] {
                [pid] => format!("process {pid} has"),
                pids => format!("processes {} have", pids.join(", ")),
            };
            self.plan.others_of_name = Some(format!("{who} the name {comm} now; that of the run has ended"));
        }
        if are_there {
            let of_this_name = processes.len();
            processes.retain(|(process, _)| seen.contains(&process.pid));
            match of_this_name - processes.len() {
                0 => {}
                1 => self.plan.notes.push(format!("another process called {comm}, which the run did not see")),
                n => self.plan.notes.push(format!("{n} other processes called {comm}, which the run did not see")),
            }
        }
        let before = self.plan.steps.len() + self.plan.notes.len();
        for (process, threads) in processes {
            for thread in threads {
                let Some((place, bound)) = self.thread(&process, thread, Attribute::Cores) else { continue };
                self.thread_value(place, bound, cpus)?;
            }
        }
        if before == self.plan.steps.len() + self.plan.notes.len() {
            return Err(Error::NoSuchThread { comm: comm.to_owned() });
        }
        Ok(())
    }

    /// A value that must be there.
    fn value(&mut self, place: Place, value: &str) -> Result<(), Error> {
        match self.system.read(&place)? {
            None => Err(Error::Unsupported { what: format!("{place} does not exist: this host has no such setting") }),
            Some(was) => {
                self.step(place, was, value);
                Ok(())
            }
        }
    }

    fn file(&mut self, path: String, netns: Option<u64>, value: &str) -> Result<(), Error> {
        self.value(Place::File { path, netns }, value)
    }

    fn idle_states(&mut self, slower_than_us: u64) -> Result<(), Error> {
        const CPUS: &str = "/sys/devices/system/cpu";
        let system = self.system;
        let (mut states, mut numbered) = (0, system.names(CPUS, None));
        numbered.retain(|n| n.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok()));
        for cpu in numbered {
            let folder = format!("{CPUS}/{cpu}/cpuidle");
            for state in system.names(&folder, None).iter().filter(|s| s.starts_with("state")) {
                states += 1;
                let latency = Place::File { path: format!("{folder}/{state}/latency"), netns: None };
                let us = system.read(&latency)?.and_then(|t| t.trim().parse::<u64>().ok());
                if us.is_some_and(|us| us > slower_than_us) {
                    self.file(format!("{folder}/{state}/disable"), None, "1")?;
                }
            }
        }
        if states == 0 {
            let what = format!(
                "this kernel does not control idle states (no {CPUS}/cpu0/cpuidle); in a virtual machine the \
                 host does"
            );
            return Err(Error::Unsupported { what });
        }
        Ok(())
    }

    /// Calls with the control groups of each process.
    fn groups(
        &mut self,
        pids: &[u32],
        mut each: impl FnMut(&mut Self, &Groups) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for process in self.running(pids)? {
            let Some(groups) = self.system.cgroups(process.pid) else { continue };
            if let Some(path) = groups.paths().find(|path| path.components().any(|part| part == Component::ParentDir)) {
                let path = path.display();
                let what = format!("the control group {path} is not visible to this process; run it on the host");
                return Err(Error::Unsupported { what });
            }
            each(self, &groups)?;
        }
        Ok(())
    }

    fn no_limit(&mut self, groups: &Groups, limit: Limit) -> Result<(), Error> {
        let file = match limit {
            Limit::MemoryHigh => "memory.high",
            Limit::CpuQuota => "cpu.max",
        };
        for root in UNIFIED {
            for folder in above(path(groups, ""), root) {
                self.no_quota(format!("{folder}/{file}"))?;
            }
        }
        let old = path(groups, "cpu").filter(|_| limit == Limit::CpuQuota);
        for folder in above(old, "/sys/fs/cgroup/cpu") {
            self.no_quota(format!("{folder}/cpu.cfs_quota_us"))?;
        }
        Ok(())
    }

    /// A group that has no such file has no such limit.
    fn no_quota(&mut self, path: String) -> Result<(), Error> {
        let place = Place::File { path: path.clone(), netns: None };
        let Some(was) = self.system.read(&place)? else { return Ok(()) };
        let new = match was.split_once(char::is_whitespace) {
            // The quota and its period.
            Some((_, period)) => format!("max {}", period.trim()),
            None if path.ends_with("_us") => "-1".into(),
            None => "max".into(),
        };
        self.file(path, None, &new)
    }

    fn thaw(&mut self, groups: &Groups) -> Result<(), Error> {
        let unified = path(groups, "").filter(|path| *path != "/");
        let new = unified.map(|path| UNIFIED.map(|root| (format!("{root}{path}/cgroup.freeze"), "0")));
        let old = path(groups, "freezer").map(|path| (format!("/sys/fs/cgroup/freezer{path}/freezer.state"), "THAWED"));
        for (path, value) in new.into_iter().flatten().chain(old) {
            if self.system.read(&Place::File { path: path.clone(), netns: None })?.is_some() {
                self.file(path, None, value)?;
            }
        }
        Ok(())
    }
}

/// Where version 2 of control groups is mounted: alone, and beside version 1.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The group of a controller (empty: of version 2), where its path is text: a file that is changed is named by text.
fn path<'a>(groups: &'a Groups, controller: &str) -> Option<&'a str> {
    groups.path(controller)?.to_str()
}

/// The folder of a group and those above it, without the root.
fn above(path: Option<&str>, root: &str) -> Vec<String> {
    let mut folders = vec![];
    let mut path = path.unwrap_or("").trim_end_matches('/');
    while !path.is_empty() {
        folders.push(format!("{root}{path}"));
        path = path.rfind('/').map_or("", |at| &path[..at]);
    }
    folders
}

/// The place without what a thread calls itself: the same value is the same place, also after a change of its name.
pub(crate) fn key(place: &Place) -> Place {
    match place.clone() {
        Place::Thread { attribute, pid, process_started, thread, started, .. } => {
            Place::Thread { attribute, pid, process_started, thread, started, comm: String::new() }
        }
        other => other,
    }
}

/// Whether a program runs others' scripts: processes of its name have nothing in common, so that one that comes later may be anybody's.
#[must_use]
pub fn runs_anything(comm: &str) -> bool {
    const INTERPRETERS: [&str; 14] = [
        "python", "node", "java", "ruby", "perl", "php", "bash", "sh", "dash", "zsh", "beam.smp", "dotnet", "lua",
        "Rscript",
    ];
    let name = comm.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.iter().any(|is| name == *is || comm == *is)
}
