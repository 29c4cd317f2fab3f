//! A thread's policy, cores, disk priority and run state, as words.
//!
//! In: a thread id and a value. Out: system calls. `other 0`, `fifo 1`, with `reset-on-fork` behind it; `0,2-3`; `none`,
//! `realtime 4`; `running`, `stopped`.

use std::collections::BTreeSet;
use std::io;

use crate::{Attribute, cpus};

/// Policies by number; those that are missing cannot be set again by the same call.
const POLICIES: [(i32, &str); 6] = [(0, "other"), (1, "fifo"), (2, "rr"), (3, "batch"), (5, "idle"), (7, "ext")];
const RESET_ON_FORK: i32 = 0x4000_0000;
const DISK_CLASSES: [&str; 4] = ["none", "realtime", "best-effort", "idle"];
const DISK_CLASS_SHIFT: u32 = 13;
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

pub fn read(attribute: Attribute, pid: u32, thread: u32) -> io::Result<String> {
    match attribute {
        Attribute::Policy => policy(thread),
        Attribute::Cores => Ok(cpus::ranges(&cores(thread)?)),
        Attribute::DiskPriority => disk_priority(thread),
        Attribute::RunState => {
            let state = tailsight_host::Stat::of_thread(pid, thread).and_then(|stat| stat.state());
            let state = state.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
            Ok(if "Tt".contains(state) { "stopped" } else { "running" }.into())
        }
    }
}

pub fn write(attribute: Attribute, pid: u32, thread: u32, value: &str) -> io::Result<()> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{value:?} is no {}", attribute.name()));
    match attribute {
        Attribute::Policy => set_policy(thread, value).unwrap_or_else(|| Err(invalid())),
        Attribute::Cores => set_cores(thread, &cpus::list(value).ok_or_else(invalid)?),
        Attribute::DiskPriority => set_disk_priority(thread, value).unwrap_or_else(|| Err(invalid())),
        Attribute::RunState => {
            let signal = match value {
                "running" => libc::SIGCONT,
                "stopped" => libc::SIGSTOP,
                _ => return Err(invalid()),
            };
            // SAFETY: kill takes plain numbers.
            check(unsafe { libc::kill(pid as libc::pid_t, signal) })?;
            // The signal is sent at once, and the state follows.
            for _ in 0..100 {
                if read(attribute, pid, thread)? == value {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Ok(())
        }
    }
}

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

fn policy(thread: u32) -> io::Result<String> {
    // SAFETY: sched_getscheduler takes a plain number.
    let policy = check(unsafe { libc::sched_getscheduler(thread as libc::pid_t) })?;
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel fills the structure, which lives through the call.
    check(unsafe { libc::sched_getparam(thread as libc::pid_t, &raw mut param) })?;
    let reset = if policy & RESET_ON_FORK != 0 { " reset-on-fork" } else { "" };
    let number = policy & !RESET_ON_FORK;
    let name = POLICIES.iter().find(|(n, _)| *n == number).map(|(_, name)| *name);
    Ok(match name {
        Some(name) => format!("{name} {}{reset}", param.sched_priority),
        None if number == 6 => "deadline".into(),
        None => format!("policy-{number}"),
    })
}

fn set_policy(thread: u32, value: &str) -> Option<io::Result<()>> {
    let mut words = value.split_whitespace();
    let name = words.next()?;
    let (number, _) = POLICIES.iter().find(|(_, n)| *n == name)?;
    let param = libc::sched_param { sched_priority: words.next()?.parse().ok()? };
    let flags = match words.next() {
        None => 0,
        Some("reset-on-fork") => RESET_ON_FORK,
        Some(_) => return None,
    };
    // SAFETY: the structure lives through the call; the rest are plain numbers.
    Some(check(unsafe { libc::sched_setscheduler(thread as libc::pid_t, number | flags, &raw const param) }).map(drop))
}

/// As many cores as the kernel was ever built for, in words of 64.
const CORE_WORDS: usize = 128;

fn cores(thread: u32) -> io::Result<BTreeSet<u32>> {
    let mut words = [0u64; CORE_WORDS];
    // SAFETY: the kernel writes at most the given size into the array, which lives through the call.
    let rc = unsafe {
        libc::sched_getaffinity(
            thread as libc::pid_t,
            size_of_val(&words),
            words.as_mut_ptr().cast::<libc::cpu_set_t>(),
        )
    };
    check(rc)?;
    let cores = 0..(CORE_WORDS * 64) as u32;
    Ok(cores.filter(|c| words[(c / 64) as usize] >> (c % 64) & 1 == 1).collect())
}

fn set_cores(thread: u32, cores: &BTreeSet<u32>) -> io::Result<()> {
    let mut words = [0u64; CORE_WORDS];
    for &core in cores {
        let word = words.get_mut((core / 64) as usize).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (core % 64);
    }
    // SAFETY: the kernel reads at most the given size from the array, which lives through the call.
    let rc = unsafe {
        libc::sched_setaffinity(thread as libc::pid_t, size_of_val(&words), words.as_ptr().cast::<libc::cpu_set_t>())
    };
    check(rc).map(drop)
}

fn disk_priority(thread: u32) -> io::Result<String> {
    // SAFETY: ioprio_get takes plain numbers.
    let returned = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread) };
    let priority = u32::try_from(returned).map_err(|_| io::Error::last_os_error())?;
    let (class, level) = (priority >> DISK_CLASS_SHIFT, priority & ((1 << DISK_CLASS_SHIFT) - 1));
    Ok(match DISK_CLASSES.get(class as usize) {
        // Of these two the level means nothing, and the first may not be set with one.
        Some(name @ (&"none" | &"idle")) => (*name).to_owned(),
        Some(name) => format!("{name} {level}"),
        None => format!("class-{class} {level}"),
    })
}

fn set_disk_priority(thread: u32, value: &str) -> Option<io::Result<()>> {
    let mut words = value.split_whitespace();
    let name = words.next()?;
    let class = DISK_CLASSES.iter().position(|c| *c == name)? as u32;
    let level: u32 = words.next().map_or(Some(0), |w| w.parse().ok())?;
    let number = class << DISK_CLASS_SHIFT | level;
    // SAFETY: ioprio_set takes plain numbers.
    let rc = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, number) };
    Some(if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) })
}
