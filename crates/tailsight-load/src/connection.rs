//! One connection of a thread. In: requests that are due. Out: bytes on the wire; replies matched to their requests, with
//! the kernel's time stamps where it gives them.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use tailsight_protocol::reply::{Expect, Op};

use crate::clock::now_ns;
use crate::codec::{Ask, Encoder, Replies};
use crate::http::GoodStatuses;
use crate::pending::{Arrival, BUSY, INTERNAL, Pending, SAMPLED, STAMP_DUE, apply_send_stamp, end, slot_finder};
use crate::sample::{Sample, Status};
use crate::stamps;
use crate::thread_log::{Stamp, ThreadLog, bump};
use crate::tls::Tls;

/// How long one connection is read at a time, ns; then the other connections, the schedule and requests to end the load get
/// their turn.
const READING_NS: u64 = 1_000_000;

/// Why a connection cannot go on.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The server closed or reset it, or nobody listens.
    Closed(String),
    /// It sent bytes that are not the protocol's.
    Garbage(String),
}

impl Broken {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Closed(_) => Status::Closed,
            Self::Garbage(_) => Status::Garbage,
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Closed(reason) | Self::Garbage(reason) => reason,
        }
    }
}

/// Whether requests can be given to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The kernel is still connecting.
    Connecting,
    /// It stands.
    Open,
    /// Not connected; try again at this time, ns (`u64::MAX`: never).
    Down { again_ns: u64 },
}

/// A connection and its requests in flight.
pub(crate) struct Connection {
    /// Its number over all threads.
    pub(crate) index: u32,
    pub(crate) state: State,
    /// Whether a good reply came since it was connected.
    pub(crate) proven: bool,
    /// Whether it has something to write that was not tried yet.
    pub(crate) dirty: bool,
    /// Whether the kernel took no more bytes and must report when it does.
    pub(crate) wants_write: bool,
    /// Whether it is in its thread's list of connections with requests in flight.
    pub(crate) listed: bool,
    /// Whether the last reading of it stopped before it was empty: edge-triggered epoll does not report that again.
    pub(crate) unfinished: bool,
    /// Whether it is in its thread's list of those.
    pub(crate) read_on: bool,
    /// Bytes that came.
    pub(crate) came: u64,
    fd: OwnedFd,
    tls: Option<Box<Tls>>,
    datagram: bool,
    /// Whether the kernel stamps on this socket.
    stamps: bool,
    /// The clock of the NIC that stamps its packets, where one does.
    nic: Option<usize>,
    is_http2: bool,
    /// Of HTTP, the status codes that are hoped for.
    good: Option<Arc<GoodStatuses>>,
    /// Number of the request that had HTTP/2 stream 1 of this connection.
    first_stream: u64,
    replies: Replies,
    out: Vec<u8>,
    /// Bytes of `out` that are given to the kernel.
    at: usize,
    /// Ends of the datagrams in `out`, as offsets of the stream of requests.
    cuts: std::collections::VecDeque<u64>,
    /// Bytes of all requests before `out`.
    before_out: u64,
    /// What the next kernel stamp counts: bytes on the socket (streams), stamped sends (datagrams).
    stamp_count: u32,
    slots: Box<[Pending]>,
    /// Numbers of requests: the next, the first not completely sent, the first that may be in flight.
    next: u64,
    unsent: u64,
    oldest: u64,
    in_flight: u32,
    sampled: u32,
    /// The last time before which nothing was left to read, ns; 0 where that is not known.
    emptied_ns: u64,
}

impl Connection {
    /// Takes over a socket.
    pub(crate) fn new(
        index: u32,
        socket: Socket,
        mut replies: Replies,
        outstanding: u32,
        datagram: bool,
        good: Option<Arc<GoodStatuses>>,
    ) -> Self {
        // Room for late replies: replies may come out of order, and a slot is free only when its own reply has come.
        let slots = (outstanding as usize * 2).next_power_of_two().clamp(if datagram { 1024 } else { 2 }, 65_536);
        Self {
            index,
            state: State::Connecting,
            proven: false,
            dirty: false,
            wants_write: false,
            listed: false,
            unfinished: false,
            read_on: false,
            came: 0,
            fd: socket.fd,
            tls: socket.tls,
            datagram,
            stamps: false,
            nic: None,
            is_http2: replies.http2().is_some(),
            good,
            first_stream: 0,
            replies,
            out: Vec::with_capacity(16 << 10),
            at: 0,
            cuts: std::collections::VecDeque::with_capacity(if datagram { 2 * slots } else { 0 }),
            before_out: 0,
            stamp_count: 0,
            slots: vec![Pending::default(); slots].into_boxed_slice(),
            next: 0,
            unsent: 0,
            oldest: 0,
            in_flight: 0,
            sampled: 0,
            emptied_ns: 0,
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes of requests that wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.out.len() - self.at
    }

    /// When its oldest request in flight was sent, ns; 0 when it was not sent whole yet.
    #[inline]
    pub(crate) fn asked_ns(&self) -> u64 {
        self.slot(self.oldest).called_ns
    }

    /// Whether one more request fits.
    #[inline]
    pub(crate) fn has_room(&mut self, outstanding: u32) -> bool {
        self.state == State::Open
            && self.in_flight < outstanding
            && self.slot(self.next).flags & BUSY == 0
            && (!self.is_http2 || self.replies.http2().is_none_or(|http2| http2.ready().is_ok()))
    }

    #[inline]
    fn slot(&self, number: u64) -> &Pending {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    /// Adds a request; [`Connection::flush`] sends it. There must be room.
    #[inline]
    pub(crate) fn offer(&mut self, encoder: &mut Encoder, ask: Ask, intended_ns: u64, flags: u32, sampled: bool) {
        let number = self.next;
        self.next += 1;
        // Wire ids are 16 bits wide at least, and there are at most 2^16 slots, so the low bits find the slot.
        let id = if self.datagram { number & 0xffff } else { number };
        if let Some(http2) = self.replies.http2() {
            match encoder.write_http2(http2, ask) {
                Ok(expect) => self.replies.expect(expect),
                // Cannot happen, since there was room; if it did, the request would be counted as not answered.
                Err(_) => debug_assert!(false, "an HTTP/2 connection with room took no request"),
            }
            self.replies.owed(&mut self.out);
        } else {
            let (before, cuts, datagram) = (self.before_out, &mut self.cuts, self.datagram);
            let mut cut = |end: usize| {
                if datagram {
                    cuts.push_back(before + end as u64);
                }
            };
            let expect = encoder.write(&mut self.out, &mut cut, id, ask);
            self.replies.expect(expect);
        }
        let end = self.before_out + self.out.len() as u64;
        let flags = flags | BUSY | if sampled { SAMPLED } else { 0 } | if ask.set { Sample::IS_SET } else { 0 };
        let mask = self.slots.len() - 1;
        self.slots[number as usize & mask] =
            Pending { intended_ns, called_ns: 0, stamp: Stamp::default(), end, stamp_id: 0, flags };
        self.in_flight += 1;
        self.sampled += u32::from(sampled);
    }

    /// Writes what is due until all is written or the kernel takes no more.
    pub(crate) fn flush(&mut self, log: &mut ThreadLog) -> Result<(), Broken> {
        self.dirty = false;
        if self.state != State::Open {
            return Ok(());
        }
        if self.tls.is_some() {
            return self.flush_tls(log);
        }
        while self.at < self.out.len() {
            let end = if self.datagram {
                self.cuts.front().map_or(self.out.len(), |cut| (cut - self.before_out) as usize)
            } else {
                self.out.len()
            };
            let stamp = self.stamps && self.sampled > 0 && self.due_for_stamp(self.before_out + end as u64);
            let now = now_ns();
            let sent = match stamps::send(self.fd(), &self.out[self.at..end], ask(stamp, self.nic)) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wants_write = true;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Broken::Closed(error.to_string())),
            };
            self.at += sent;
            if self.datagram {
                self.cuts.pop_front();
                self.stamp_count = self.stamp_count.wrapping_add(u32::from(stamp));
            } else {
                self.stamp_count = self.stamp_count.wrapping_add(sent as u32);
            }
            self.mark_sent(self.before_out + self.at as u64, now, stamp, log);
        }
        self.before_out += self.out.len() as u64;
        self.out.clear();
        self.at = 0;
        self.all_left();
        Ok(())
    }

    /// All bytes to send were given to the kernel.
    #[inline]
    fn all_left(&mut self) {
        if self.is_http2
            && let Some(http2) = self.replies.http2()
        {
            http2.sent();
        }
    }

    /// Whether a request of the sample ends at or before `end` and is not sent yet.
    #[inline]
    fn due_for_stamp(&self, end: u64) -> bool {
        (self.unsent..self.next).map(|n| self.slot(n)).take_while(|p| p.end <= end).any(|p| p.flags & SAMPLED != 0)
    }

    /// All bytes up to `written` were given to the kernel by the call that began at `now`.
    #[inline]
    fn mark_sent(&mut self, written: u64, now: u64, stamp: bool, log: &mut ThreadLog) {
        let mask = self.slots.len() - 1;
        let first = self.unsent;
        while self.unsent < self.next && self.slot(self.unsent).end <= written {
            let pending = &mut self.slots[self.unsent as usize & mask];
            pending.called_ns = now;
            if stamp && pending.flags & SAMPLED != 0 {
                pending.flags |= STAMP_DUE;
                pending.stamp_id = self.stamp_count.wrapping_sub(1);
            }
            if self.unsent > first {
                pending.flags |= Sample::SENT_TOGETHER;
            }
            log.sent(pending.intended_ns, now, pending.flags & Sample::BLOCKED != 0);
            self.unsent += 1;
        }
        if self.unsent > first + 1 {
            self.slots[first as usize & mask].flags |= Sample::SENT_TOGETHER;
        }
    }

    fn flush_tls(&mut self, log: &mut ThreadLog) -> Result<(), Broken> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        if !tls.is_handshaking() && self.at < self.out.len() {
            tls.write(&self.out[self.at..]).map_err(|e| Broken::Closed(e.to_string()))?;
            self.at = self.out.len();
        }
        let stamp = self.stamps && self.sampled > 0;
        let now = now_ns();
        let (fd, ask) = (self.fd.as_raw_fd(), ask(stamp, self.nic));
        while tls.wants_write() {
            match tls.send(fd, ask) {
                Ok(sent) => self.stamp_count = self.stamp_count.wrapping_add(sent as u32),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wants_write = true;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::Closed(error.to_string())),
            }
        }
        self.mark_sent(self.before_out + self.at as u64, now, stamp, log);
        if self.at == self.out.len() {
            self.before_out += self.out.len() as u64;
            self.out.clear();
            self.at = 0;
            self.all_left();
        }
        Ok(())
    }

    /// Reads received bytes for a limited time and records the replies in them; returns how many there were, and whether
    /// anything came.
    pub(crate) fn receive(&mut self, log: &mut ThreadLog) -> Result<(u32, bool), Broken> {
        if self.state != State::Open {
            return Ok((0, false));
        }
        let (mut count, mut any) = (0, false);
        self.unfinished = false;
        let enough_ns = now_ns() + READING_NS;
        loop {
            let want = self.stamps && self.sampled > 0;
            let room = log.buffer.len();
            let asked_ns = now_ns();
            if any && asked_ns >= enough_ns {
                self.unfinished = true;
                return Ok((count, any));
            }
            let (got, raw) = match stamps::receive(self.fd(), &mut log.buffer, want) {
                Ok((0, _)) if !self.datagram => return Err(self.end_of_stream(log)),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.emptied_ns = asked_ns;
                    return Ok((count, any));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Broken::Closed(error.to_string())),
            };
            any = true;
            self.came += got as u64;
            let now = now_ns();
            let stamp = log.placed(self.nic, raw);
            if let Some(tls) = &mut self.tls {
                let plain = tls.receive(&log.buffer[..got]).map_err(Broken::Garbage)?;
                let plain = std::mem::take(plain);
                let fed = self.feed(&plain, log, now, stamp);
                if let Some(tls) = &mut self.tls {
                    tls.give_back(plain);
                }
                count += fed?;
                // A handshake continues, or data that waited for its end can be sent.
                self.flush_tls(log)?;
            } else {
                let buffer = std::mem::take(&mut log.buffer);
                let fed = self.feed(&buffer[..got], log, now, stamp);
                log.buffer = buffer;
                count += fed?;
            }
            if got < room && !self.datagram {
                // The socket is empty; new bytes are a new edge.
                self.emptied_ns = asked_ns;
                return Ok((count, any));
            }
        }
    }

    /// The server closed the connection: replies that end with it, and why the others are missing.
    fn end_of_stream(&mut self, log: &mut ThreadLog) -> Broken {
        let now = now_ns();
        let (slots, good_statuses, mut ended) = (&mut self.slots, self.good.as_deref(), 0);
        let mask = slots.len() - 1;
        let find = slot_finder(self.is_http2.then_some(self.first_stream), mask);
        let result = self.replies.close(|reply| {
            if let Some(pending) = reply.id.map(|id| &mut slots[find(id)]).filter(|p| p.flags & BUSY != 0) {
                let status = log.replied(&reply, good_statuses);
                end(pending, log, status, Arrival { now, ..Arrival::default() }, self.index);
                ended += 1;
            }
        });
        self.in_flight -= ended;
        self.finish_batch(log);
        Broken::Closed(result.err().map_or_else(|| "the server closed the connection".into(), |e| e.to_string()))
    }

    /// Records the replies in these bytes.
    fn feed(&mut self, bytes: &[u8], log: &mut ThreadLog, now: u64, stamp: Stamp) -> Result<u32, Broken> {
        let (slots, index, good_statuses) = (&mut self.slots, self.index, self.good.as_deref());
        let mask = slots.len() - 1;
        let find = slot_finder(self.is_http2.then_some(self.first_stream), mask);
        let (emptied_ns, datagram) = (self.emptied_ns, self.datagram);
        // An incomplete TLS record gives no bytes, but the stamp may be its.
        let more = self.tls.as_ref().is_some_and(|tls| tls.ended_within_record());
        let in_order = self.replies.in_order();
        let (mut count, mut good, mut early, mut unasked) = (0_u32, false, false, false);
        let result = self.replies.feed(bytes, |reply| {
            let pending = reply.id.map(|id| &mut slots[find(id)]).filter(|p| p.flags & BUSY != 0);
            let Some(pending) = pending else {
                bump(&log.published.unasked);
                unasked = true;
                return;
            };
            if pending.called_ns == 0 {
                // Answered before it was completely sent: replies no longer match requests, and the connection is closed
                // below.
                early = true;
                return;
            }
            let status = log.replied(&reply, good_statuses);
            good |= matches!(status, Status::Ok | Status::Miss);
            // A datagram is read alone.
            let shared_since = (!datagram && (more || reply.end < bytes.len())).then_some(emptied_ns);
            end(pending, log, status, Arrival { now, stamp, shared_since }, index);
            count += 1;
        });
        self.in_flight -= count;
        self.proven |= good;
        while self.oldest < self.next && self.slot(self.oldest).flags & BUSY == 0 {
            self.oldest += 1;
        }
        self.finish_batch(log);
        if early {
            return Err(Broken::Garbage("a reply to a request that was not completely sent".into()));
        }
        if unasked && in_order {
            // Otherwise the reply to earlier bytes would be taken for the next request's.
            return Err(Broken::Garbage("a reply without a request".into()));
        }
        result.map_err(|e| Broken::Garbage(e.to_string()))?;
        if self.is_http2 && self.replies.owed(&mut self.out) {
            self.flush(log)?;
        }
        Ok(count)
    }

    /// Completes the samples of one read: their send stamps.
    #[inline]
    fn finish_batch(&mut self, log: &mut ThreadLog) {
        if log.batch.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut log.batch);
        self.sampled -= batch.len() as u32;
        if batch.iter().any(|(_, due)| due.is_some()) {
            self.take_send_stamps(&mut batch, log);
        }
        for (sample, _) in batch.drain(..) {
            log.keep(sample);
        }
        log.batch = batch;
    }

    /// Matches the stamps in the error queue with their requests. Missing stamps are not waited for.
    fn take_send_stamps(&mut self, batch: &mut [(Sample, Option<u32>)], log: &mut ThreadLog) {
        // There are at most two stamps for each send with a stamp; the bound guards against a kernel that never reports an
        // empty queue.
        for _ in 0..65_536 {
            let Some(stamp) = stamps::take_send_stamp(self.fd.as_raw_fd()) else { break };
            let (id, stamp) = (stamp.id, log.placed(self.nic, stamp.stamps));
            // The kernel's and the NIC's come one by one, and the NIC's may come too late.
            let last = self.nic.is_none() || stamp.nic_ns > 0;
            let mut missing = false;
            for (sample, due) in batch.iter_mut() {
                if *due == Some(id) {
                    apply_send_stamp(sample, stamp, log);
                    *due = due.filter(|_| !last);
                }
                missing |= due.is_some();
            }
            let mask = self.slots.len() - 1;
            for number in self.oldest..self.unsent {
                let pending = &mut self.slots[number as usize & mask];
                if pending.flags & (BUSY | STAMP_DUE) == BUSY | STAMP_DUE && pending.stamp_id == id {
                    pending.stamp = pending.stamp.or(stamp);
                    pending.flags &= if last { !STAMP_DUE } else { !0 };
                }
            }
            if !missing {
                break;
            }
        }
    }

    /// Ends everything in flight with a status; what was not sent stays unsent; the connection is then empty.
    pub(crate) fn fail_all(&mut self, log: &mut ThreadLog, status: Status) {
        let mask = self.slots.len() - 1;
        for number in self.oldest..self.next {
            let pending = &mut self.slots[number as usize & mask];
            if pending.flags & BUSY == 0 {
                continue;
            }
            if pending.called_ns == 0 {
                // It was due and assigned to this connection, which closed before it was sent.
                log.unsent(1);
                let flags = std::mem::take(&mut pending.flags);
                if flags & SAMPLED != 0 {
                    let (intended_ns, connection) = (pending.intended_ns, self.index);
                    let flags = flags & !INTERNAL | status as u32;
                    let sample = Sample { intended_ns, connection, flags, ..Sample::default() };
                    log.batch.push((sample, None));
                }
                continue;
            }
            end(pending, log, status, Arrival::default(), self.index);
        }
        self.oldest = self.next;
        self.unsent = self.next;
        self.in_flight = 0;
        self.finish_batch(log);
        self.sampled = 0;
        self.before_out += self.out.len() as u64;
        self.out.clear();
        self.cuts.clear();
        self.at = 0;
    }

    /// Gives up requests that were sent before `before_ns`; returns how many.
    pub(crate) fn give_up(&mut self, log: &mut ThreadLog, before_ns: u64) -> u32 {
        let (mut count, mask) = (0, self.slots.len() - 1);
        for number in self.oldest..self.unsent {
            let pending = &mut self.slots[number as usize & mask];
            if pending.flags & BUSY == 0 {
                continue;
            }
            if pending.called_ns >= before_ns {
                break;
            }
            end(pending, log, Status::Lost, Arrival::default(), self.index);
            self.replies.forget(if self.datagram { number & 0xffff } else { number });
            count += 1;
        }
        self.in_flight -= count;
        while self.oldest < self.next && self.slot(self.oldest).flags & BUSY == 0 {
            self.oldest += 1;
        }
        self.finish_batch(log);
        count
    }

    /// Whether TLS, if any, has shaken hands.
    pub(crate) fn is_ready(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }

    /// Adds bytes that are not a request of the workload, such as a greeting, and the reply that they must get.
    pub(crate) fn offer_raw(&mut self, bytes: &[u8]) {
        let number = self.next;
        self.next += 1;
        self.out.extend_from_slice(bytes);
        self.replies.expect(Expect::new(number, Op::Other));
        let end = self.before_out + self.out.len() as u64;
        let mask = self.slots.len() - 1;
        self.slots[number as usize & mask] = Pending { end, flags: BUSY, ..Pending::default() };
        self.in_flight += 1;
    }

    /// Starts again on another socket; everything in flight must have been ended.
    pub(crate) fn replace(&mut self, socket: Socket, replies: Replies) {
        (self.fd, self.tls, self.replies) = (socket.fd, socket.tls, replies);
        self.first_stream = self.next;
        self.state = State::Connecting;
        (self.proven, self.wants_write, self.dirty, self.stamp_count) = (false, false, false, 0);
        self.emptied_ns = 0;
        self.unfinished = false;
        // Numbers continue: a wire id of the old connection is not valid on the new one.
        debug_assert_eq!(self.in_flight, 0);
    }

    /// The kernel has connected, or reports why not. Stamps are turned on now, while no byte was sent.
    pub(crate) fn connected(&mut self, log: &mut ThreadLog) -> io::Result<()> {
        if let Some(error) = nix::sys::socket::getsockopt(&self.fd, nix::sys::socket::sockopt::SocketError)
            .map(|e| (e != 0).then(|| io::Error::from_raw_os_error(e)))?
        {
            return Err(error);
        }
        (self.stamps, self.nic) = (false, None);
        if log.stamps {
            let nic = log.nics.of(self.fd.as_fd(), !log.recording);
            let enabled = stamps::enable(self.fd(), !self.datagram, nic.is_some());
            (self.stamps, self.nic) = (enabled.kernel, nic.filter(|_| enabled.nic));
            if let Some(place) = nic.filter(|_| !enabled.nic) {
                log.nics.refuse(place);
            }
        }
        self.state = State::Open;
        self.dirty = true;
        Ok(())
    }
}

/// Which time stamps of a send are requested.
#[inline]
fn ask(stamp: bool, nic: Option<usize>) -> stamps::Ask {
    match (stamp, nic) {
        (false, _) => stamps::Ask::Nobody,
        (true, None) => stamps::Ask::Kernel,
        (true, Some(_)) => stamps::Ask::Both,
    }
}

/// A fresh socket and its TLS, if any.
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Option<Box<Tls>>,
}
