//! Where and how the recorder runs, so that the server does not wait for it: on cores that the target does not use, where there are any, and
//! its work as SCHED_IDLE, which gives way to whatever else wants the core the moment that it wakes.
//!
//! In: the target's processes, the work. Out: the recorder's cores and how often its work had to hurry. Times: as named.
//!
//! It gives way within its scheduling group only. Where the kernel divides a core among sessions first (sched_autogroup_enabled), a recorder in
//! a session of its own gives that the least weight; where it divides a core among control groups, the recorder's has as large a part as the
//! server's.
//!
//! A task that is SCHED_IDLE gets next to nothing of a core that is never free. So work has a limit: what is not done by then goes on with
//! the usual priority, and is counted. A thread of its own sees to that, for the one that waits for a core cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tailsight_trace::meta;

use tailsight_confine::priority::{self, SessionGroup};

use crate::confine;
use crate::procfs;
use crate::stop::Stop;

/// How often the watching thread looks whether work is past its limit.
const WATCH: Duration = Duration::from_millis(50);
/// How long the session keeps the usual weight once its work had to hurry: the cores are not free now, and hardly will be in the next moment.
const HURRY_SESSION: Duration = Duration::from_secs(10);
/// Threads of a process that are asked where they ran.
const MOST_THREADS: usize = 256;

/// What both threads know.
#[derive(Default)]
struct Shared {
    /// When the work that runs now is to hurry, ns after some start; 0: nothing runs as SCHED_IDLE.
    due_ns: AtomicU64,
    /// How often work hurried.
    hurried: AtomicU64,
    ended: AtomicBool,
    stop: Stop,
    /// The thread that works.
    worker: AtomicI32,
    /// The scheduling group of the recorder's session, where it has one of its own.
    group: Option<Arc<SessionGroup>>,
}

/// The recorder's place among the host's tasks, for the calling thread; what it changed comes back when it is dropped.
pub struct Background {
    shared: Arc<Shared>,
    /// Absent where the priority could not be raised again: it is then left alone.
    watch: Option<std::thread::JoinHandle<()>>,
    /// The cores that this thread might use at first.
    own: Vec<u32>,
    /// Those that it uses now.
    used: Vec<u32>,
    watch_tid: Arc<AtomicI32>,
}

impl Background {
    /// Nothing changes yet. Work gives way to nothing when `stop` is set: it is waited for.
    /// `group`: that of a session of the recorder's own.
    pub fn begin(stop: &Stop, group: Option<Arc<SessionGroup>>) -> Background {
        let shared = Arc::new(Shared { stop: stop.clone(), group, ..Shared::default() });
        shared.worker.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
        let (watched, watch_tid) = (Arc::clone(&shared), Arc::new(AtomicI32::new(0)));
        let tid = Arc::clone(&watch_tid);
        let start = move || {
            tid.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
            watch(&watched);
        };
        let named = std::thread::Builder::new().name("tailsight-watch".into());
        let watch = priority::may_be_raised().then(|| named.spawn(start).ok()).flatten();
        let own = affinity();
        Background { shared, watch, used: own.clone(), own, watch_tid }
    }

    /// Leaves the cores that these processes use, as far as that leaves any.
    pub fn avoid(&mut self, pids: &[u32], usable: &[u32]) {
        let apart = cores_apart(&self.own, usable, &ran_on(pids));
        if apart != self.used && set_affinity(0, &apart) {
            let watch = self.watch_tid.load(Ordering::Relaxed);
            if watch > 0 {
                set_affinity(watch, &apart);
            }
            self.used = apart;
        }
    }

    /// Until this is dropped, what the calling thread does gives way to all else; after `limit` it no longer does.
    pub fn work(&self, limit: Duration) -> Work {
        let work = self.work_in_calls(limit);
        if let (Some(_), Some(group)) = (&work.shared, &self.shared.group) {
            group.give_way();
        }
        work
    }

    /// The same for work that is one long system call after the other, as loading and attaching programs: it gives way within its session
    /// only. A kernel that does not preempt such a call lets it run to its end, whatever its weight, and has a session of the least weight pay
    /// for a quarter of a second with ten without a core.
    pub fn work_in_calls(&self, limit: Duration) -> Work {
        if self.watch.is_none() || self.shared.stop.is_asked() {
            return Work { shared: None };
        }
        // First: from the next call on this thread may not get a core for long.
        self.shared.due_ns.store(now_ns() + limit.as_nanos() as u64, Ordering::Release);
        let work = Work { shared: Some(Arc::clone(&self.shared)) };
        priority::give_way(0);
        work
    }

    /// What cannot wait comes: until the next work begins, the session has its usual part of a core.
    pub fn as_usual(&self) {
        if let Some(group) = &self.shared.group {
            group.as_usual();
        }
    }

    /// For run.json.
    pub fn said(&self) -> meta::Placement {
        meta::Placement {
            cores: self.used.clone(),
            apart: self.used.len() < self.own.len(),
            idle: self.watch.is_some(),
            own_session: self.watch.is_some() && self.shared.group.is_some(),
            hurried: self.shared.hurried.load(Ordering::Relaxed),
            ..meta::Placement::default()
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(watch) = self.watch.take() {
            let _ = watch.join();
        }
        if self.used != self.own {
            set_affinity(0, &self.own);
        }
    }
}

/// Work that gives way to all else.
pub struct Work {
    shared: Option<Arc<Shared>>,
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.due_ns.store(0, Ordering::Release);
            priority::as_usual(0);
        }
    }
}

/// Starts a thread with the usual priority: it would have that of the work which starts it, for ever, as only the work's own is raised.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        priority::as_usual(0);
        work()
    })
}

/// Raises the priority of work that is past its limit.
fn watch(shared: &Shared) {
    // It is there for one system call.
    let _ = confine::keep_priority_only();
    let mut raised_ns = 0;
    while !shared.ended.load(Ordering::Relaxed) {
        std::thread::sleep(WATCH);
        let due_ns = shared.due_ns.load(Ordering::Acquire);
        if due_ns == 0 || (now_ns() < due_ns && !shared.stop.is_asked()) {
            continue;
        }
        // Again and again until the work is done: it may give way only after its limit.
        priority::as_usual(shared.worker.load(Ordering::Relaxed).cast_unsigned());
        if let Some(group) = &shared.group {
            group.hurry(HURRY_SESSION);
        }
        shared.hurried.fetch_add(u64::from(due_ns != raised_ns), Ordering::Relaxed);
        raised_ns = due_ns;
    }
}

/// Of the recorder's own cores those that the target may not use; if it may use all of them, those where none of its threads ran last; if
/// there are none either, all. Pure.
fn cores_apart(own: &[u32], usable: &[u32], ran: &[u32]) -> Vec<u32> {
    let without = |used: &[u32]| own.iter().copied().filter(|core| !used.contains(core)).collect::<Vec<u32>>();
    [usable, ran].into_iter().map(without).find(|left| !left.is_empty()).unwrap_or_else(|| own.to_vec())
}

/// The cores on which threads of these processes ran last.
fn ran_on(pids: &[u32]) -> Vec<u32> {
    let threads =
        pids.iter().flat_map(|&pid| procfs::threads(pid).into_iter().take(MOST_THREADS).map(move |t| (pid, t)));
    let stat = |(pid, tid)| std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok();
    let mut cores: Vec<u32> = threads.filter_map(stat).filter_map(|text| last_core(&text)).collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

/// Field 39 of `/proc/PID/stat`, counted behind the name, which may hold spaces and parentheses.
fn last_core(stat: &[u8]) -> Option<u32> {
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    std::str::from_utf8(&stat[behind..]).ok()?.split_ascii_whitespace().nth(36)?.parse().ok()
}

fn affinity() -> Vec<u32> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).map(|core| core as u32).collect()
}

fn set_affinity(tid: i32, cores: &[u32]) -> bool {
    let mut set = CpuSet::new();
    let named = cores.iter().all(|&core| set.set(core as usize).is_ok());
    named && !cores.is_empty() && sched_setaffinity(Pid::from_raw(tid), &set).is_ok()
}

fn now_ns() -> u64 {
    crate::clocks::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: no pointers; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn cores_that_the_target_may_not_use_come_first() {
        assert_eq!(cores_apart(&[0, 1, 2, 3], &[0, 1], &[0]), [2, 3]);
        assert_eq!(cores_apart(&[0, 1, 2, 3], &[0, 1, 2, 3], &[1, 2]), [0, 3], "it may use all, and used two");
        assert_eq!(cores_apart(&[0, 1], &[0, 1], &[0, 1]), [0, 1], "nowhere else to go");
        assert_eq!(cores_apart(&[1], &[0], &[0]), [1], "it is apart already");
        assert_eq!(cores_apart(&[1], &[1], &[1]), [1]);
    }

    #[test]
    fn the_core_is_read_behind_any_name() {
        let stat = |name: &str| {
            let fields: Vec<String> = (3..=52).map(|n| if n == 39 { "17".into() } else { "0".into() }).collect();
            format!("123 ({name}) {}", fields.join(" "))
        };
        assert_eq!(last_core(stat("x").as_bytes()), Some(17));
        assert_eq!(last_core(stat("a) b (c").as_bytes()), Some(17));
        assert_eq!(last_core(b"123 (x) S 1"), None);
        assert!(ran_on(&[std::process::id()]).iter().all(|core| affinity().contains(core)));
    }

    #[test]
    fn work_gives_way_until_its_end_or_its_limit() {
        let background = Background::begin(&Stop::default(), None);
        let work = background.work(Duration::from_secs(60));
        assert_eq!(policy(), if priority::may_be_raised() { libc::SCHED_IDLE } else { libc::SCHED_OTHER });
        drop(work);
        assert_eq!((policy(), background.said().hurried), (libc::SCHED_OTHER, 0));
        if !priority::may_be_raised() {
            return tailsight_testing::skip_as(
                "work_gives_way_until_its_end_or_its_limit",
                "needs root to raise a priority again",
            );
        }
        let work = background.work(Duration::from_millis(1));
        let begun = std::time::Instant::now();
        // It is counted when the priority is as usual.
        while background.said().hurried == 0 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((policy(), background.said().hurried), (libc::SCHED_OTHER, 1), "it was to hurry");
        drop(work);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn the_cores_come_back() {
        let before = affinity();
        let mut background = Background::begin(&Stop::default(), None);
        background.avoid(&[], &before[..1]);
        assert_eq!(affinity(), if before.len() > 1 { &before[1..] } else { &before[..] });
        assert_eq!(background.said().apart, before.len() > 1);
        drop(background);
        assert_eq!(affinity(), before);
    }
}
