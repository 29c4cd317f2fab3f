//! System calls: their names, and what a thread that sleeps in one waits for.
//!
//! In: numbers of this build's architecture. Out: names, [`Wait`]s.

use std::sync::LazyLock;

use syscalls::Sysno;

/// The number of a sleep in no system call: in an exception, such as a page fault.
pub const NO_SYSCALL: u32 = u32::MAX - 1;

/// What a thread that sleeps in a system call waits for, as far as the call's name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The next work of any of many descriptors: an event loop.
    Work,
    /// Data of one socket or of a few. A server with a thread a connection waits for its next work so, any server for the
    /// answer of another one.
    Data,
    /// Data of a descriptor of any kind: a socket, a pipe, a disk. The kernel stack tells.
    Descriptor,
    /// Room in a pipe, in a socket's buffer or on a disk: for whoever takes what was written before. The kernel stack tells.
    Room,
    /// A lock of a file, or (fcntl) something else that is short.
    FileLock,
    /// Another thread, or a point in time.
    Futex,
    /// A point in time.
    Time,
    /// The end of a process.
    Child,
    /// A signal.
    Signal,
}

impl Wait {
    /// Each by its name in a rule of the category table.
    pub const NAMES: [(&'static str, Self); 9] = [
        ("work", Self::Work),
        ("data", Self::Data),
        ("descriptor", Self::Descriptor),
        ("room", Self::Room),
        ("file-lock", Self::FileLock),
        ("futex", Self::Futex),
        ("time", Self::Time),
        ("child", Self::Child),
        ("signal", Self::Signal),
    ];
}

/// Every system call that is known to say what it waits for.
const WAITS: [(&str, Wait); 32] = [
    ("epoll_wait", Wait::Work),
    ("epoll_pwait", Wait::Work),
    ("epoll_pwait2", Wait::Work),
    ("io_uring_enter", Wait::Work),
    ("recvfrom", Wait::Data),
    ("recvmsg", Wait::Data),
    ("recvmmsg", Wait::Data),
    ("accept", Wait::Data),
    ("accept4", Wait::Data),
    ("poll", Wait::Data),
    ("ppoll", Wait::Data),
    ("select", Wait::Data),
    ("pselect6", Wait::Data),
    ("read", Wait::Descriptor),
    ("readv", Wait::Descriptor),
    ("write", Wait::Room),
    ("writev", Wait::Room),
    ("sendto", Wait::Room),
    ("sendmsg", Wait::Room),
    ("sendmmsg", Wait::Room),
    ("sendfile", Wait::Room),
    ("splice", Wait::Room),
    ("vmsplice", Wait::Room),
    ("tee", Wait::Room),
    ("flock", Wait::FileLock),
    ("fcntl", Wait::FileLock),
    ("futex", Wait::Futex),
    ("nanosleep", Wait::Time),
    ("clock_nanosleep", Wait::Time),
    ("wait4", Wait::Child),
    ("rt_sigtimedwait", Wait::Signal),
    ("pause", Wait::Signal),
];

/// The name of a system call of this build's architecture, or its number.
pub fn name(nr: u32) -> String {
    match nr {
        u32::MAX => return "?".into(),
        NO_SYSCALL => return "exception".into(),
        _ => {}
    }
    Sysno::new(nr as usize).map_or_else(|| nr.to_string(), |s| s.name().to_owned())
}

/// What a sleep in this system call waits for; `None`: the name does not tell.
pub fn wait(nr: u32) -> Option<Wait> {
    static BY_NUMBER: LazyLock<Vec<Option<Wait>>> = LazyLock::new(|| {
        let mut by_number = Vec::new();
        for (nr, wait) in numbered() {
            let nr = nr as usize;
            by_number.resize(by_number.len().max(nr + 1), None);
            by_number[nr] = Some(wait);
        }
        by_number
    });
    BY_NUMBER.get(nr as usize).copied().flatten()
}

/// The calls of the table that this architecture has.
fn numbered() -> impl Iterator<Item = (u32, Wait)> {
    WAITS.into_iter().filter_map(|(name, wait)| Some((name.parse::<Sysno>().ok()?.id().cast_unsigned(), wait)))
}

/// Whether a thread that sleeps in this call waits for its next work.
pub fn waits_for_work(nr: u32) -> bool {
    wait(nr) == Some(Wait::Work)
}

/// As [`waits_for_work`], by the call's name.
pub fn named_waits_for_work(name: &str) -> bool {
    WAITS.contains(&(name, Wait::Work))
}

/// As [`waits_for_data`], by the call's name.
pub fn named_waits_for_data(name: &str) -> bool {
    WAITS.iter().any(|&(call, wait)| call == name && matches!(wait, Wait::Data | Wait::Descriptor))
}

/// Whether a sleep in this call waits for whatever comes next: nobody holds a lock in it.
pub fn polls(nr: u32) -> bool {
    matches!(wait(nr), Some(Wait::Work | Wait::Data))
}

/// Whether a sleep in this call waits for data of somebody.
pub fn waits_for_data(nr: u32) -> bool {
    matches!(wait(nr), Some(Wait::Data | Wait::Descriptor))
}

/// Whether a sleep in this call may wait for any of several descriptors: an event loop's for its next work, or a client's for one answer.
pub fn may_wait_for_any_of_several(nr: u32) -> bool {
    waits_for_work(nr) || matches!(name(nr).as_str(), "poll" | "ppoll" | "select" | "pselect6")
}

/// Whether a thread that sleeps in this call still writes.
pub fn waits_for_room(nr: u32) -> bool {
    wait(nr) == Some(Wait::Room)
}

/// Whether a sleep in this call waits for the lock of a file.
pub fn locks_a_file(nr: u32) -> bool {
    wait(nr) == Some(Wait::FileLock)
}

/// Whether a sleep in this call may be one for a lock that another thread holds.
pub fn may_wait_for_a_lock(nr: u32) -> bool {
    matches!(wait(nr), Some(Wait::Futex | Wait::FileLock))
}

/// The calls whose name alone says what a sleep in them waits for: a kernel stack would add nothing.
pub fn told_by_name() -> impl Iterator<Item = u32> {
    numbered().filter(|(_, wait)| !matches!(wait, Wait::Descriptor | Wait::Room | Wait::FileLock)).map(|(nr, _)| nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nr(name: &str) -> u32 {
        name.parse::<Sysno>().expect("a system call").id().cast_unsigned()
    }

    #[test]
    fn a_call_is_known_by_its_number() {
        assert_eq!(wait(nr("epoll_pwait")), Some(Wait::Work));
        assert!(waits_for_work(nr("io_uring_enter")) && !waits_for_work(nr("recvfrom")));
        assert!(named_waits_for_work("epoll_pwait2") && !named_waits_for_work("recvfrom") && !named_waits_for_work(""));
        assert!(polls(nr("ppoll")) && waits_for_data(nr("ppoll")));
        assert!(!polls(nr("read")) && waits_for_data(nr("read")));
        let of_several =
            ["epoll_wait", "poll", "select", "recvfrom", "read"].map(|call| may_wait_for_any_of_several(nr(call)));
        assert_eq!(of_several, [true, true, true, false, false]);
        assert!(locks_a_file(nr("flock")) && !polls(nr("futex")));
        assert!(may_wait_for_a_lock(nr("futex")) && may_wait_for_a_lock(nr("flock")));
        assert!(!may_wait_for_a_lock(nr("recvfrom")) && !may_wait_for_a_lock(NO_SYSCALL));
        assert!(waits_for_room(nr("write")) && waits_for_room(nr("sendmsg")) && !polls(nr("write")));
        assert_eq!((wait(nr("fsync")), wait(NO_SYSCALL), wait(u32::MAX)), (None, None, None));
    }

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!(name(nr("sendmsg")), "sendmsg");
        assert_eq!((name(u32::MAX), name(NO_SYSCALL), name(99_999)), ("?".into(), "exception".into(), "99999".into()));
    }

    /// A stack tells a read of a socket from one of a disk, so it is taken there.
    #[test]
    fn a_stack_is_taken_where_the_name_does_not_tell() {
        let told: Vec<u32> = told_by_name().collect();
        assert!(told.contains(&nr("futex")) && told.contains(&nr("ppoll")));
        assert!(!told.contains(&nr("read")) && !told.contains(&nr("flock")) && !told.contains(&nr("fsync")));
    }

    /// A misspelt name would be left out without a word. What other architectures lack has a newer form there.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_call_of_the_table_exists() {
        assert_eq!(numbered().count(), WAITS.len());
    }
}
