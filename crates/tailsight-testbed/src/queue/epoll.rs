//! Level-triggered epoll for servers: a descriptor is its own token. In: sockets. Out: those that can be read.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor; the thread that gets it from [`Epoll::wait`] first owns it from then on.
    pub fn give(&self, fd: impl IntoRawFd) -> io::Result<()> {
        let fd = fd.into_raw_fd();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
        // SAFETY: both descriptors are open and `event` is valid for the call, which copies it.
        if unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } < 0 {
            let error = io::Error::last_os_error();
            // SAFETY: it was given to us and to nobody else.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            return Err(error);
        }
        Ok(())
    }

    /// Removes a descriptor: while one of its requests is being served it stays open, and must not be taken for a new one.
    pub fn forget(&self, fd: RawFd) {
        // SAFETY: deleting takes no event; a descriptor that is not there is an error that changes nothing.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Waits without an end and gives the descriptors that can be read.
    pub fn wait<'a>(&self, events: &'a mut [libc::epoll_event]) -> Ready<'a> {
        self.ready(events, -1)
    }

    /// Gives the descriptors that can be read now, without waiting.
    pub fn poll<'a>(&self, events: &'a mut [libc::epoll_event]) -> Ready<'a> {
        self.ready(events, 0)
    }

    fn ready<'a>(&self, events: &'a mut [libc::epoll_event], ms: i32) -> Ready<'a> {
        // SAFETY: `events` has room for as many events as are asked for and lives over the call.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, ms) };
        // An interrupted wait is a wait without events.
        Ready(events[..usize::try_from(n).unwrap_or(0)].iter())
    }
}

/// The descriptors that can be read.
pub struct Ready<'a>(std::slice::Iter<'a, libc::epoll_event>);

impl Iterator for Ready<'_> {
    type Item = RawFd;

    fn next(&mut self) -> Option<RawFd> {
        self.0.next().map(|event| event.u64 as RawFd)
    }
}

/// Room for events.
pub fn room() -> Vec<libc::epoll_event> {
    vec![libc::epoll_event { events: 0, u64: 0 }; 128]
}
