//! How the kernel schedules a task, or a session: after all else, or as usual.
//!
//! In: a thread or a process, 0 for the calling thread. Out: whether the kernel does it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lets a task run only where nothing else wants the core.
pub fn give_way(task: u32) -> bool {
    set_policy(task, libc::SCHED_IDLE)
}

/// Whether this process may give a task its usual turn back: root has that right. Without it a task would give way for ever.
pub fn may_be_raised() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::geteuid() == 0 }
}

/// Gives a task its usual turn back.
pub fn as_usual(task: u32) -> bool {
    set_policy(task, libc::SCHED_OTHER)
}

fn set_policy(task: u32, policy: libc::c_int) -> bool {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the structure.
    i32::try_from(task).is_ok_and(|task| unsafe { libc::sched_setscheduler(task, policy, &raw const parameter) } == 0)
}

/// The scheduling group of a session (autogroup in sched(7)). Where the kernel makes such groups it divides a core among them first, and what
/// a task's own policy says counts within its group only: a SCHED_IDLE task that is alone in its session has as much of a core as a server in another.
#[derive(Debug)]
pub struct SessionGroup {
    file: File,
    gives_way: AtomicBool,
    opened: Instant,
    /// Until then it does not give way, ms since it was opened. An atomic: the thread that sets it may make hardly any system call.
    hurries_until_ms: AtomicU64,
}

impl SessionGroup {
    /// The group of the calling process's session, where the kernel makes such groups. All processes of the session are in it.
    pub fn own() -> Option<SessionGroup> {
        let enabled = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok()?;
        let file = OpenOptions::new().write(true).open("/proc/self/autogroup").ok()?;
        (enabled.trim() == "1").then(|| SessionGroup::new(file, false))
    }

    /// The group of a child's session, which this process may raise although it is in another one.
    pub fn of(pid: u32) -> std::io::Result<SessionGroup> {
        let file = OpenOptions::new().write(true).open(format!("/proc/{pid}/autogroup"))?;
        // It may give way now, which only that process knows.
        Ok(SessionGroup::new(file, true))
    }

    fn new(file: File, gives_way: bool) -> SessionGroup {
        let gives_way = AtomicBool::new(gives_way);
        SessionGroup { file, gives_way, opened: Instant::now(), hurries_until_ms: AtomicU64::new(0) }
    }

    /// Gives it the least weight beside other groups, unless it hurries.
    pub fn give_way(&self) {
        if self.opened.elapsed() >= Duration::from_millis(self.hurries_until_ms.load(Ordering::Relaxed)) {
            self.set(true);
        }
    }

    /// Gives it the usual weight, and keeps it so for this long. Who raises the weight is in the group as well, and on cores that are never
    /// free it gets its turn late: a group that gave way again at once would wait longer for that than it works.
    pub fn hurry(&self, period: Duration) {
        let until = self.opened.elapsed() + period;
        self.hurries_until_ms.store(until.as_millis() as u64, Ordering::Relaxed);
        self.set(false);
    }

    /// Gives it the usual weight.
    pub fn as_usual(&self) {
        self.set(false);
    }

    /// Whether it has the least weight.
    pub fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed)
    }

    /// Without CAP_SYS_ADMIN the kernel takes one change in a tenth of a second. One that it refuses is made the next time that it is asked for.
    fn set(&self, gives_way: bool) {
        let nice: &[u8] = if gives_way { b"19" } else { b"0" };
        if self.gives_way() != gives_way && (&self.file).write_all(nice).is_ok() {
            self.gives_way.store(gives_way, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_hurries_does_not_give_way_again_at_once() {
        // Not the kernel's file: the session of the tests keeps its weight.
        let file = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let group = SessionGroup::new(file, false);
        group.give_way();
        assert!(group.gives_way());
        group.as_usual();
        group.give_way();
        assert!(group.gives_way(), "it was not in a hurry");
        group.hurry(Duration::from_secs(3600));
        assert!(!group.gives_way());
        group.give_way();
        assert!(!group.gives_way());
        group.hurry(Duration::ZERO);
        group.give_way();
        assert!(group.gives_way());
    }
}
