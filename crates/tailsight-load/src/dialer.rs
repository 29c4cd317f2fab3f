//! Sockets to the target. In: a plan. Out: sockets that connect or are connected, without Nagle's delay, not blocking.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, bind};
use nix::sys::socket::{getsockopt, setsockopt, socket, sockopt};

use crate::clock::now_ns;
use crate::connection::Socket;
use crate::tls::{Tls, TlsSetup};
use crate::{Cancel, Endpoint, LoadError, Plan};

/// How often a waiting thread checks whether to go on, ms.
const LOOK_MS: u64 = 20;

/// Opens sockets of one target.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    target: Endpoint,
    address: Address,
    tls: Option<TlsSetup>,
    busy_poll_us: u32,
    patience_ns: u64,
}

#[derive(Debug, Clone)]
enum Address {
    Inet(SocketAddr),
    Unix(UnixAddr),
}

impl Dialer {
    /// Resolves the target and finds the first of its addresses that accepts.
    pub(crate) fn new(plan: &Plan, cancel: &Cancel<'_>) -> Result<Self, LoadError> {
        let tls = if matches!(plan.target, Endpoint::Tls(_)) { Some(TlsSetup::new(plan)?) } else { None };
        let mut dialer = Self {
            target: plan.target.clone(),
            address: Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)),
            tls,
            busy_poll_us: plan.busy_poll_us,
            patience_ns: plan.patience_ns,
        };
        let candidates = match &plan.target {
            Endpoint::Unix(path) => {
                let address = UnixAddr::new(path.as_path()).map_err(|e| dialer.refused(e.into()))?;
                vec![Address::Unix(address)]
            }
            _ => plan.target.resolve()?.into_iter().map(Address::Inet).collect(),
        };
        let mut last = None;
        for candidate in candidates {
            dialer.address = candidate;
            match dialer.connected(cancel) {
                Ok(_) => return Ok(dialer),
                Err(error @ LoadError::Ended { .. }) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| dialer.refused(io::Error::other("no address"))))
    }

    fn refused(&self, source: io::Error) -> LoadError {
        LoadError::Connect { target: self.target.to_string(), source }
    }

    /// A socket that is connected; waits for it as long as the plan and `cancel` let it.
    pub(crate) fn connected(&self, cancel: &Cancel<'_>) -> Result<Socket, LoadError> {
        let socket = self.start().map_err(|e| self.refused(e))?;
        let deadline = now_ns().saturating_add(self.patience_ns);
        loop {
            if let Some(over) = cancel.over() {
                return Err(over.during(&self.target, "connecting", 0));
            }
            let mut fds = [PollFd::new(std::os::fd::AsFd::as_fd(&socket.fd), PollFlags::POLLOUT)];
            let ready = match poll(&mut fds, look(deadline)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(self.refused(error.into())),
            };
            let error = getsockopt(&socket.fd, sockopt::SocketError).map_err(|e| self.refused(e.into()))?;
            match (ready, error) {
                (0, _) if now_ns() >= deadline => return Err(self.refused(io::ErrorKind::TimedOut.into())),
                (0, _) => {}
                (_, 0) => return Ok(socket),
                (_, error) => return Err(self.refused(io::Error::from_raw_os_error(error))),
            }
        }
    }

    /// A socket that begins to connect; does not wait.
    pub(crate) fn start(&self) -> io::Result<Socket> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let datagram = self.target.is_datagram();
        let kind = if datagram { SockType::Datagram } else { SockType::Stream };
        let fd: OwnedFd = match self.address {
            Address::Unix(address) => {
                let fd = socket(AddressFamily::Unix, kind, flags, None)?;
                start_connect(&fd, &address)?;
                fd
            }
            Address::Inet(address) => {
                let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
                let fd = socket(family, kind, flags, None)?;
                if datagram {
                    // Room for bursts of replies; where the limit is lower, the kernel takes the limit.
                    setsockopt(&fd, sockopt::RcvBuf, &(4 << 20))?;
                    let any = match address {
                        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                    };
                    bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(any, 0)))?;
                } else {
                    setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
                }
                if self.busy_poll_us > 0 {
                    set_busy_poll(&fd, self.busy_poll_us)?;
                }
                start_connect(&fd, &SockaddrStorage::from(address))?;
                fd
            }
        };
        let tls = match &self.tls {
            Some(setup) => Some(Box::new(Tls::new(setup).map_err(io::Error::other)?)),
            None => None,
        };
        Ok(Socket { fd, tls })
    }
}

/// How long to poll before looking up, when it must end by this time, ns.
pub(crate) fn look(deadline_ns: u64) -> PollTimeout {
    let left = deadline_ns.saturating_sub(now_ns()).div_ceil(1_000_000);
    PollTimeout::try_from(left.min(LOOK_MS) as i32).unwrap_or(PollTimeout::ZERO)
}

fn start_connect(fd: &OwnedFd, address: &dyn SockaddrLike) -> io::Result<()> {
    // SAFETY: a live address of this length, for the call.
    let result = unsafe { libc::connect(fd.as_raw_fd(), address.as_ptr(), address.len()) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::EINPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn set_busy_poll(fd: &OwnedFd, us: u32) -> io::Result<()> {
    let value = us.min(i32::MAX as u32) as libc::c_int;
    // SAFETY: the value lives over the call and its size is given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("SO_BUSY_POLL of {us} us: {error}")));
    }
    Ok(())
}
