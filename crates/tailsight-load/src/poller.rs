//! Edge-triggered epoll with nanosecond timeouts. In: descriptors with a token. Out: the tokens of those that are ready.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An epoll instance.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// What a descriptor is ready for.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    /// That of the descriptor.
    pub token: usize,
    flags: u32,
}

impl Ready {
    /// Bytes, or the end of the stream, or that it broke.
    #[must_use]
    pub fn readable(self) -> bool {
        self.flags & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP) as u32 != 0
    }

    /// The stream has ended, or it broke.
    #[must_use]
    pub fn closed(self) -> bool {
        self.flags & (libc::EPOLLRDHUP | libc::EPOLLHUP) as u32 != 0
    }

    /// Something is in its error queue, or it broke.
    #[must_use]
    pub fn error(self) -> bool {
        self.flags & libc::EPOLLERR as u32 != 0
    }

    /// The kernel takes bytes again, or has connected, or failed to.
    #[must_use]
    pub fn writable(self) -> bool {
        self.flags & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }
}

impl Poller {
    /// An empty one.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: the kernel has just given us this descriptor; nothing else owns it.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            events: vec![libc::epoll_event { events: 0, u64: 0 }; 256],
        })
    }

    /// Reports `fd` by `token` each time it becomes readable, with `writable` also when it becomes writable; closing it
    /// ends that. Writability is asked for only while something waits: a Unix socket would report it at every read of the
    /// server.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn add(&self, fd: RawFd, token: usize, writable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, writable)
    }

    /// Changes whether writability is reported; reports again what is the case now.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn change(&self, fd: RawFd, token: usize, writable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, writable)
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, token: usize, writable: bool) -> io::Result<()> {
        let out = if writable { libc::EPOLLOUT } else { 0 };
        let events = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET | out) as u32;
        let mut event = libc::epoll_event { events, u64: token as u64 };
        // SAFETY: both descriptors are open and `event` is valid for the call, which copies it.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Waits at most `timeout_ns` (0: looks only) and gives how many [`Poller::ready`] has.
    ///
    /// # Errors
    /// What the kernel said; being interrupted is none.
    pub fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        self.wait_for_some(timeout_ns, self.events.len())
    }

    /// The same, but at most `room` (at least 1) of them; the others stay for the next time.
    ///
    /// # Errors
    /// As [`Poller::wait`].
    pub fn wait_for_some(&mut self, timeout_ns: u64, room: usize) -> io::Result<usize> {
        let room = room.clamp(1, self.events.len()) as libc::c_int;
        let (epoll, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        let count = if timeout_ns == 0 {
            // SAFETY: `events` has room for `room` events and lives over the call.
            unsafe { libc::c_long::from(libc::epoll_wait(epoll, events, room, 0)) }
        } else {
            let timeout = libc::timespec {
                tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
            };
            let no_mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: as above; `timeout` lives over the call and a null mask leaves signals as they are. The raw call
            // because the C library's wrapper is younger than the kernel's.
            unsafe { libc::syscall(libc::SYS_epoll_pwait2, epoll, events, room, &raw const timeout, no_mask, 0) }
        };
        if count >= 0 {
            return Ok(count as usize);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        }
    }

    /// The i-th ready descriptor of the last wait.
    ///
    /// # Panics
    /// When `i` is not below [`Poller`]'s room of 256.
    #[must_use]
    pub fn ready(&self, i: usize) -> Ready {
        let event = self.events[i];
        Ready { token: event.u64 as usize, flags: event.events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn waits_below_a_millisecond_and_reports_tokens() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(b.as_raw_fd(), 42, false).unwrap();
        let before = Instant::now();
        assert_eq!(poller.wait(300_000).unwrap(), 0);
        assert!(before.elapsed() >= Duration::from_micros(300));
        a.write_all(b"x").unwrap();
        assert_eq!(poller.wait(1_000_000_000).unwrap(), 1);
        assert!(poller.ready(0).token == 42 && poller.ready(0).readable() && !poller.ready(0).error());
        b.read_exact(&mut [0]).unwrap();
        assert_eq!(poller.wait(0).unwrap(), 0);
        poller.change(b.as_raw_fd(), 42, true).unwrap();
        assert_eq!(poller.wait(0).unwrap(), 1);
        assert!(poller.ready(0).writable());
    }

    #[test]
    fn what_there_was_no_room_for_is_reported_the_next_time() {
        let pairs: Vec<_> = (0..5).map(|_| UnixStream::pair().unwrap()).collect();
        let mut poller = Poller::new().unwrap();
        for (token, (a, b)) in pairs.iter().enumerate() {
            poller.add(b.as_raw_fd(), token, false).unwrap();
            (&mut &*a).write_all(b"x").unwrap();
        }
        let mut ready_counts = Vec::new();
        for room in [2, 0, 100] {
            let ready = poller.wait_for_some(0, room).unwrap();
            ready_counts.push(ready);
            (0..ready).for_each(|at| assert!(poller.ready(at).readable()));
        }
        // Room for none would never end: it counts as one.
        assert_eq!(ready_counts, [2, 1, 2]);
    }
}
