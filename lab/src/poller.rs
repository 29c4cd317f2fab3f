//! Edge-triggered epoll with nanosecond timeouts. In: descriptors with a token. Out: the tokens of those that are ready.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// An epoll instance.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    /// An empty one.
    pub(crate) fn new() -> io::Result<Self> {
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

    /// Reports `fd` by `token` each time it becomes readable or writable; closing it ends that.
    pub(crate) fn add(&self, fd: impl AsFd, token: usize) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32,
            u64: token as u64,
        };
        let (epoll, fd) = (self.epoll.as_raw_fd(), fd.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open and `event` is valid for the call, which copies it.
        if unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Waits at most `timeout_ns` (0: looks only) and gives how many tokens [`Poller::token`] has.
    pub(crate) fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        let room = self.events.len() as libc::c_int;
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

    /// The token of the i-th ready descriptor of the last wait.
    pub(crate) fn token(&self, i: usize) -> usize {
        self.events[i].u64 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn waits_below_a_millisecond_and_reports_tokens() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(&b, 42).unwrap();
        // Writable at once, then (edge-triggered) silent until something happens.
        assert_eq!(poller.wait(0).unwrap(), 1);
        let before = Instant::now();
        assert_eq!(poller.wait(300_000).unwrap(), 0);
        assert!(before.elapsed() >= Duration::from_micros(300));
        a.write_all(b"x").unwrap();
        assert_eq!(poller.wait(1_000_000_000).unwrap(), 1);
        assert_eq!(poller.token(0), 42);
    }
}
