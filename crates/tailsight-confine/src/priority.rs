//! How the kernel schedules a task: after all else, or as usual.
//!
//! In: a thread or a process, 0 for the calling thread. Out: whether the kernel does it.

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
