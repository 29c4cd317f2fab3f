//! Callers that have not shown the token yet. In: connections as they come, and which of them shows it. Out: room for the
//! next one.
//!
//! Unknown callers cost resources: a descriptor, a handshake, a line of the log. So there are never more than [`MOST_STRANGERS`] of
//! them, nor more than [`MOST_OF_ADDRESS`] from one address, and none for longer than [`GREETING`]. A newcomer always gets in,
//! because it may be the coordinator: the oldest connection of the address with the most connections is closed for it. A
//! caller that shakes hands and calls at once, as a coordinator does, is among the oldest only if new ones come faster than
//! that.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::session::Log;

/// Callers without the token at one time.
pub(crate) const MOST_STRANGERS: usize = 128;
/// Of those, from one address (of IPv6, one /64).
pub(crate) const MOST_OF_ADDRESS: usize = 32;
/// From the connection to the first call with the token.
pub(crate) const GREETING: Duration = Duration::from_secs(5);
/// Lines of the log about refusals, at once and then one a second.
const LINES: f64 = 20.0;

/// A caller that waits.
struct Stranger {
    number: u64,
    peer: SocketAddr,
    /// The same socket once more, to close it in whatever state its owner is.
    socket: OwnedFd,
}

struct Inner {
    /// Oldest first.
    strangers: VecDeque<Stranger>,
    next: u64,
    /// Lines that may be written, the time of that count, and how many were not written.
    lines: (f64, Instant, u64),
}

/// All of them.
pub(crate) struct Gate {
    inner: Mutex<Inner>,
    log: Log,
}

/// What counts as one address.
fn one(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

fn shut(stranger: &Stranger) {
    // SAFETY: the descriptor is open as long as `stranger` lives. The peer may have closed it, which is what is wanted.
    unsafe { libc::shutdown(stranger.socket.as_raw_fd(), libc::SHUT_RDWR) };
}

impl Gate {
    pub(crate) fn new(log: Log) -> Self {
        let inner = Inner { strangers: VecDeque::new(), next: 0, lines: (LINES, Instant::now(), 0) };
        Self { inner: Mutex::new(inner), log }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change under it is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one in, and closes another one where there is no room; returns its number.
    pub(crate) fn enter(&self, peer: SocketAddr, socket: &impl AsFd) -> std::io::Result<u64> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let mut inner = self.lock();
        let waiting_from =
            |inner: &Inner, ip: IpAddr| inner.strangers.iter().filter(|s| one(s.peer.ip()) == ip).count();
        let mut crowd = Some(one(peer.ip())).filter(|ip| waiting_from(&inner, *ip) >= MOST_OF_ADDRESS);
        if crowd.is_none() && inner.strangers.len() >= MOST_STRANGERS {
            let addresses = inner.strangers.iter().map(|s| one(s.peer.ip()));
            crowd = addresses.max_by_key(|ip| waiting_from(&inner, *ip));
        }
        if let Some(ip) = crowd
            && let Some(at) = inner.strangers.iter().position(|s| one(s.peer.ip()) == ip)
            && let Some(oldest) = inner.strangers.remove(at)
        {
            shut(&oldest);
        }
        let number = inner.next;
        inner.next += 1;
        inner.strangers.push_back(Stranger { number, peer, socket });
        Ok(number)
    }

    /// It has shown the token.
    pub(crate) fn known(&self, peer: SocketAddr) {
        self.lock().strangers.retain(|s| s.peer != peer);
    }

    /// Its connection is closed.
    pub(crate) fn leave(&self, number: u64) {
        self.lock().strangers.retain(|s| s.number != number);
    }

    /// Its time is over; returns whether it still was unknown.
    pub(crate) fn expire(&self, number: u64) -> bool {
        let mut inner = self.lock();
        let Some(at) = inner.strangers.iter().position(|s| s.number == number) else { return false };
        if let Some(stranger) = inner.strangers.remove(at) {
            shut(&stranger);
        }
        true
    }

    /// Writes about a refusal, unless there were many lately: strangers must not fill the log.
    pub(crate) fn refused(&self, text: &str) {
        let mut inner = self.lock();
        let (left, then, left_out) = inner.lines;
        let left = (left + then.elapsed().as_secs_f64()).min(LINES);
        if left < 1.0 {
            inner.lines = (left, Instant::now(), left_out + 1);
            return;
        }
        inner.lines = (left - 1.0, Instant::now(), 0);
        drop(inner);
        if left_out > 0 {
            (self.log)(&format!("{left_out} more refusals were not logged"));
        }
        (self.log)(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    fn gate() -> Gate {
        Gate::new(Arc::new(|_: &str| {}))
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn is_ended(client: &mut TcpStream) -> bool {
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_address_with_the_most_makes_room() {
        let gate = gate();
        let peer = |address: u8, port: u16| SocketAddr::from(([10, 0, 0, address], port));
        let mut callers = Vec::new();
        let mut enter = |address: u8, port: u16| {
            let (client, server) = pair();
            gate.enter(peer(address, port), &server).unwrap();
            callers.push((address, client, server));
        };
        enter(1, 1);
        for port in 0..MOST_OF_ADDRESS as u16 + 3 {
            enter(2, port);
        }
        for i in 0..MOST_STRANGERS as u16 {
            enter(100 + (i % 50) as u8, i);
        }
        enter(3, 1);
        assert_eq!(gate.lock().strangers.len(), MOST_STRANGERS);
        let ended: Vec<u8> = callers.iter_mut().filter_map(|(a, client, _)| is_ended(client).then_some(*a)).collect();
        assert_eq!(ended.len(), MOST_OF_ADDRESS + 3 + MOST_STRANGERS + 2 - MOST_STRANGERS);
        // A caller from an address of its own stays, however old.
        assert!(!ended.contains(&1) && !ended.contains(&3), "{ended:?}");
        assert!(ended.iter().filter(|a| **a == 2).count() >= 3);
    }

    #[test]
    fn who_is_known_or_gone_is_left_alone() {
        let gate = gate();
        let (mut client, server) = pair();
        let peer = SocketAddr::from(([10, 0, 0, 1], 7));
        let number = gate.enter(peer, &server).unwrap();
        gate.known(peer);
        assert!(!gate.expire(number) && !is_ended(&mut client));
        let number = gate.enter(peer, &server).unwrap();
        assert!(gate.expire(number) && is_ended(&mut client));
        assert!(!gate.expire(number));
    }

    #[test]
    fn a_log_is_not_filled_by_strangers() {
        let lines = Arc::new(Mutex::new(0));
        let count = lines.clone();
        let gate = Gate::new(Arc::new(move |_: &str| *count.lock().unwrap() += 1));
        (0..1000).for_each(|_| gate.refused("x"));
        assert!((20..25).contains(&*lines.lock().unwrap()), "{lines:?}");
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let ip = |text: &str| one(text.parse().unwrap());
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::2:1"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
        assert_eq!(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
    }
}
