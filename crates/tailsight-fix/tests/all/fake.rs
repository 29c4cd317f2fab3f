//! A host in memory: processes with threads, files, one device; writes that fail or that the kernel alters, on demand.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use tailsight_fix::{Attribute, Error, Identity, Origin, Place, Setting, State, Store, System, Task};
use tailsight_host::cgroup::Groups;

/// The boot of every fake host unless a test says another.
pub const BOOT: &str = "0b7e2a52-one-boot";

/// A thread's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub started: u64,
    pub comm: String,
    pub bound: bool,
    pub values: BTreeMap<Attribute, String>,
}

impl Thread {
    pub fn new(comm: &str, started: u64, policy: &str, cores: &str) -> Thread {
        let values = [
            (Attribute::Policy, policy),
            (Attribute::Cores, cores),
            (Attribute::DiskPriority, "none"),
            (Attribute::RunState, "running"),
        ];
        let values = values.into_iter().map(|(a, v)| (a, v.to_owned())).collect();
        Thread { started, comm: comm.into(), bound: false, values }
    }
}

/// The host. `alive` is shared with the store: once it is false, nothing is written any more, as after a kill.
#[derive(Clone, Debug)]
pub struct Fake {
    pub boot: String,
    pub ticks: u64,
    pub threads: BTreeMap<(u32, u32), Thread>,
    pub files: BTreeMap<String, String>,
    pub cgroups: BTreeMap<u32, String>,
    pub device: BTreeMap<Setting, String>,
    /// Writes of a path that the kernel makes something else of.
    pub altered: BTreeMap<String, String>,
    /// This write, counted from 0, fails.
    pub fails_at: Option<usize>,
    /// Before this write the process is killed.
    pub killed_at: Option<usize>,
    pub writes: usize,
    pub alive: Rc<Cell<bool>>,
    pub denied: bool,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            boot: BOOT.into(),
            ticks: 10_000,
            threads: BTreeMap::new(),
            files: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            device: BTreeMap::new(),
            altered: BTreeMap::new(),
            fails_at: None,
            killed_at: None,
            writes: 0,
            alive: Rc::new(Cell::new(true)),
            denied: false,
        }
    }
}

impl Fake {
    /// memcached 41 with three threads, nginx 50 with two, a bound kernel thread, and files.
    pub fn host() -> Fake {
        let mut fake = Fake::default();
        let mut thread = |pid, tid, thread: Thread| fake.threads.insert((pid, tid), thread);
        thread(41, 41, Thread::new("memcached", 800, "other 0", "0-3"));
        thread(41, 42, Thread::new("mc-worker", 801, "batch 0", "0-3"));
        thread(41, 43, Thread::new("mc-worker", 801, "other 0", "1"));
        thread(50, 50, Thread::new("nginx", 900, "other 0", "0-3"));
        thread(50, 51, Thread::new("nginx", 901, "rr 7", "2,3"));
        thread(9, 9, Thread { bound: true, ..Thread::new("kworker/1:0", 3, "other 0", "1") });
        fake.cgroups.insert(41, "0::/system.slice/mc.service\n".into());
        for (path, value) in [
            ("/proc/sys/vm/swappiness", "60"),
            ("/proc/sys/net/ipv4/tcp_fastopen", "1"),
            ("/proc/sys/net/core/busy_poll", "0"),
            ("/proc/irq/38/smp_affinity_list", "0-3"),
            ("/sys/kernel/mm/transparent_hugepage/defrag", "madvise"),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
            ("/sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,0000000f"),
            ("/sys/class/net/eth0/queues/tx-0/xps_cpus", "1"),
            ("/sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0"),
            ("/sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0"),
            ("/sys/devices/system/cpu/cpu0/cpuidle/state2/latency", "133"),
            ("/sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "0"),
            ("/sys/devices/system/cpu/cpu1/cpuidle/state2/latency", "133"),
            ("/sys/devices/system/cpu/cpu1/cpuidle/state2/disable", "1"),
            ("/sys/devices/system/cpu/cpufreq/boost", "1"),
            ("/sys/fs/cgroup/system.slice/mc.service/cpu.max", "20000 100000"),
            ("/sys/fs/cgroup/system.slice/cpu.max", "max 100000"),
            ("/sys/fs/cgroup/system.slice/mc.service/memory.high", "1048576"),
            ("/sys/fs/cgroup/system.slice/mc.service/cgroup.freeze", "1"),
        ] {
            fake.files.insert(path.into(), value.into());
        }
        fake.device = BTreeMap::from([(Setting::RxUsecs, "50".into()), (Setting::AdaptiveRx, "on".into())]);
        fake
    }

    /// What a run of this host knows.
    pub fn known(&self) -> Origin {
        let leader = |(&(pid, tid), t): (&(u32, u32), &Thread)| {
            (pid == tid).then(|| Identity { pid, started: t.started, comm: t.comm.clone() })
        };
        Origin { boot_id: self.boot.clone(), processes: self.threads.iter().filter_map(leader).collect() }
    }

    /// Every value, to be compared.
    pub fn values(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        (self.threads.clone(), self.files.clone(), self.device.clone())
    }

    pub fn thread(&mut self, pid: u32, tid: u32) -> &mut Thread {
        self.threads.get_mut(&(pid, tid)).expect("a thread")
    }

    fn found(&self, place: &Place) -> Option<&String> {
        match place {
            Place::Thread { attribute, pid, thread, started, .. } => {
                let task = self.threads.get(&(*pid, *thread)).filter(|t| t.started == *started)?;
                task.values.get(attribute)
            }
            Place::File { path, .. } => self.files.get(path),
            Place::Device { setting, .. } => self.device.get(setting),
        }
    }
}

impl System for Fake {
    fn boot_id(&self) -> String {
        self.boot.clone()
    }
    fn ticks(&self) -> u64 {
        self.ticks
    }
    fn processes(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.threads.keys().map(|(pid, _)| *pid).collect();
        pids.dedup();
        pids
    }
    fn threads(&self, pid: u32) -> Vec<u32> {
        self.threads.keys().filter(|(p, _)| *p == pid).map(|(_, tid)| *tid).collect()
    }
    fn task(&self, pid: u32, thread: u32) -> Option<Task> {
        let t = self.threads.get(&(pid, thread))?;
        Some(Task { started: t.started, comm: t.comm.clone(), bound: t.bound })
    }
    fn cgroups(&self, pid: u32) -> Option<Groups> {
        self.cgroups.get(&pid).map(Groups::parse)
    }
    fn netns(&self, _: Option<u32>) -> Option<u64> {
        Some(4_026_531_840)
    }
    fn names(&self, folder: &str, _: Option<u64>) -> Vec<String> {
        let prefix = format!("{folder}/");
        let below = self.files.keys().filter_map(|path| path.strip_prefix(&prefix)?.split('/').next());
        let mut names: Vec<String> = below.map(str::to_owned).collect();
        names.dedup();
        names
    }
    fn read(&self, place: &Place) -> Result<Option<String>, Error> {
        Ok(self.found(place).cloned())
    }
    fn write(&mut self, place: &Place, value: &str) -> Result<(), Error> {
        let n = self.writes;
        self.writes += 1;
        if self.killed_at == Some(n) {
            self.alive.set(false);
        }
        let kind = if self.denied { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
        if !self.alive.get() || self.fails_at == Some(n) || self.denied {
            return Err(Error::Write { place: place.to_string(), value: value.into(), source: kind.into() });
        }
        let mut value = value.to_owned();
        match place {
            Place::Thread { attribute, pid, thread, .. } => {
                self.thread(*pid, *thread).values.insert(*attribute, value);
            }
            Place::File { path, .. } => {
                value = self.altered.get(path).cloned().unwrap_or(value);
                self.files.insert(path.clone(), value);
            }
            Place::Device { setting, .. } => {
                self.device.insert(*setting, value);
            }
        }
        Ok(())
    }
    fn may_write(&self, _: &Place) -> bool {
        !self.denied
    }
}

/// What survives a kill: the text that was saved last.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub text: String,
    pub alive: Option<Rc<Cell<bool>>>,
    /// This save, counted from 0, fails.
    pub fails_at: Option<usize>,
    pub saves: usize,
}

impl Store for Disk {
    fn save(&mut self, state: &State) -> Result<(), Error> {
        let n = self.saves;
        self.saves += 1;
        let dead = self.alive.as_ref().is_some_and(|a| !a.get());
        if dead || self.fails_at == Some(n) {
            return Err(Error::State { path: "disk".into(), what: "full".into() });
        }
        self.text = state.text().expect("text");
        Ok(())
    }
}
