//! The loop that sends what is due and reads what has come. In: workloads. Out: outcomes.
//!
//! One thread, one edge-triggered epoll over all connections of all workloads. Each turn sends at most one arrival a
//! workload, then reads every connection that is ready, so neither a burst of arrivals nor one of replies holds up the other.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::prctl::{get_timerslack, set_timerslack};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::arrivals::ArrivalClock;
use super::datagram::Datagram;
use super::outcome::{Outcome, Tally};
use super::poller::Poller;
use super::stream::{Broken, Stream};
use super::{Arrivals, Proto, Workload, now_ns, setup};
use crate::{Error, Result};

/// How long replies are waited for after the last request was sent, ns.
const DRAIN_NS: u64 = 1_000_000_000;
/// The longest sleep, so that `stop` is seen, ns.
const LONGEST_SLEEP_NS: u64 = 20_000_000;

/// A connection of either kind.
enum Transport {
    Stream(Stream),
    Datagram(Datagram),
}

impl Transport {
    fn offer(&mut self, due_ns: u64, count: usize) {
        match self {
            Self::Stream(stream) => stream.offer(due_ns, count),
            Self::Datagram(datagram) => datagram.offer(due_ns, count),
        }
    }

    fn flush(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        match self {
            Self::Stream(stream) => stream.flush(tally),
            Self::Datagram(datagram) => datagram.flush(tally),
        }
    }

    fn receive(&mut self, tally: &mut Tally) -> Result<(), Broken> {
        match self {
            Self::Stream(stream) => stream.receive(tally),
            Self::Datagram(datagram) => datagram.receive(tally),
        }
    }
}

/// A connection and the workload it belongs to.
struct Connection {
    transport: Transport,
    lane: usize,
    alive: bool,
}

/// A workload that is being run.
struct Lane<'a> {
    workload: &'a Workload,
    tally: Tally,
    /// Its part of the connections.
    connections: Range<usize>,
    /// The connection whose turn it is.
    turn: usize,
    alive: usize,
    clock: Option<ArrivalClock>,
}

/// All workloads, connected.
pub(super) struct Engine<'a> {
    lanes: Vec<Lane<'a>>,
    connections: Vec<Connection>,
    poller: Poller,
}

impl<'a> Engine<'a> {
    /// Connects and prepares all workloads.
    pub(super) fn new(workloads: &'a [Workload], duration: Duration) -> Result<Self> {
        raise_file_limit(workloads.iter().map(|w| w.connections as u64).sum());
        let poller = Poller::new().map_err(|e| Error::io("create an epoll instance", e))?;
        let (mut lanes, mut connections) = (Vec::new(), Vec::new());
        for (lane, workload) in workloads.iter().enumerate() {
            let first = connections.len();
            for i in 0..workload.connections {
                let token = connections.len();
                let transport = open(workload, i, &poller, token)?;
                connections.push(Connection { transport, lane, alive: true });
            }
            lanes.push(Lane {
                workload,
                tally: Tally::with_room(expected_requests(workload, duration)),
                connections: first..connections.len(),
                turn: first,
                alive: workload.connections,
                clock: None,
            });
        }
        Ok(Self { lanes, connections, poller })
    }

    /// Sends for `duration`, waits for the last replies, and counts.
    pub(super) fn run(mut self, duration: Duration, spin: bool, stop: &AtomicBool) -> Result<Vec<Outcome>> {
        let _slack = (!spin).then(TimerSlack::finest);
        let start = now_ns();
        let end = start + duration.as_nanos() as u64;
        for lane in &mut self.lanes {
            lane.clock = ArrivalClock::new(lane.workload, start);
        }
        for connection in 0..self.connections.len() {
            self.refill(connection, end)?;
        }
        // Set when the last request is out: when that was, and until when replies are waited for.
        let mut drain: Option<(u64, u64)> = None;
        loop {
            let now = now_ns();
            let wake = match drain {
                None => {
                    let wake = self.send_due(now, end)?;
                    // A late loop still sends all that was due before the end; only then is it over.
                    if stop.load(Ordering::Relaxed) || wake.is_none() && now >= end {
                        drain = Some((now.min(end), now + DRAIN_NS));
                        continue;
                    }
                    wake.unwrap_or(end)
                }
                Some((_, until)) => {
                    if now >= until || self.lanes.iter().all(|lane| lane.tally.pending() == 0) {
                        break;
                    }
                    until
                }
            };
            let timeout = if spin { 0 } else { wake.saturating_sub(now_ns()).min(LONGEST_SLEEP_NS) };
            let ready = self.poller.wait(timeout).map_err(|e| Error::io("wait for replies", e))?;
            for i in 0..ready {
                let connection = self.poller.token(i);
                self.serve(connection)?;
                if drain.is_none() {
                    self.refill(connection, end)?;
                }
            }
        }
        let sent_for = drain.map_or(0, |(at, _)| at - start);
        Ok(self.lanes.into_iter().map(|lane| Outcome::new(lane.workload, lane.tally, sent_for)).collect())
    }

    /// Sends at most one arrival a workload; gives when the next is due, `None` when none is left before `end`.
    fn send_due(&mut self, now: u64, end: u64) -> Result<Option<u64>> {
        let mut wake = None;
        for i in 0..self.lanes.len() {
            let lane = &mut self.lanes[i];
            let Some(clock) = &mut lane.clock else {
                continue;
            };
            let due = clock.due_ns();
            if due >= end {
                continue;
            }
            let mut next = due;
            if due <= now {
                clock.advance();
                next = clock.due_ns();
                let connection = self.next_connection(i);
                self.offer(connection, due)?;
            }
            if next < end {
                wake = Some(wake.map_or(next, |w: u64| w.min(next)));
            }
        }
        Ok(wake)
    }

    /// The next connection in turn that is alive; a lane without one has already ended the run with an error.
    fn next_connection(&mut self, lane: usize) -> usize {
        let lane = &mut self.lanes[lane];
        loop {
            let connection = lane.turn;
            lane.turn += 1;
            if lane.turn == lane.connections.end {
                lane.turn = lane.connections.start;
            }
            if self.connections[connection].alive {
                return connection;
            }
        }
    }

    /// Adds a burst that is due at `due` to a connection and sends what it can.
    fn offer(&mut self, connection: usize, due: u64) -> Result<()> {
        let this = &mut self.connections[connection];
        let lane = &mut self.lanes[this.lane];
        let burst = lane.workload.pipeline_burst;
        lane.tally.intended += burst as u64;
        this.transport.offer(due, burst);
        match this.transport.flush(&mut lane.tally) {
            Ok(()) => Ok(()),
            Err(broken) => self.mend(connection, broken),
        }
    }

    /// Closed loop: fills a connection up to its outstanding requests, when the time is before `end`.
    fn refill(&mut self, connection: usize, end: u64) -> Result<()> {
        loop {
            let this = &self.connections[connection];
            let workload = self.lanes[this.lane].workload;
            let (Arrivals::Closed(outstanding), Transport::Stream(stream)) = (workload.arrivals, &this.transport)
            else {
                return Ok(());
            };
            let room = stream.in_flight() + workload.pipeline_burst <= outstanding.max(workload.pipeline_burst);
            let now = now_ns();
            if !this.alive || !room || now >= end {
                return Ok(());
            }
            self.offer(connection, now)?;
        }
    }

    /// Sends what is left and reads what has come on a connection that is ready.
    fn serve(&mut self, connection: usize) -> Result<()> {
        let this = &mut self.connections[connection];
        if !this.alive {
            return Ok(());
        }
        let tally = &mut self.lanes[this.lane].tally;
        let served = this.transport.flush(tally).and_then(|()| this.transport.receive(tally));
        match served {
            Ok(()) => Ok(()),
            Err(broken) => self.mend(connection, broken),
        }
    }

    /// Connects a broken connection anew; an error when the workload has none left.
    fn mend(&mut self, connection: usize, broken: Broken) -> Result<()> {
        let this = &mut self.connections[connection];
        let lane = &mut self.lanes[this.lane];
        let workload = lane.workload;
        let gone = |reason: String| Error::ServerGone {
            workload: workload.name.clone(),
            addr: workload.addr,
            connections: workload.connections,
            reason,
        };
        let reason = match broken {
            Broken::Malformed(reason) => {
                return Err(Error::Malformed { workload: workload.name.clone(), addr: workload.addr, reason });
            }
            Broken::Closed(reason) => reason,
        };
        // A UDP socket breaks only when nobody listens any more.
        let Transport::Stream(stream) = &mut this.transport else {
            return Err(gone(reason));
        };
        let again = stream
            .reconnect(&mut lane.tally)
            .and_then(|again| {
                if again {
                    self.poller.add(stream.socket(), connection)?;
                }
                Ok(again)
            })
            .unwrap_or(false);
        if !again {
            this.alive = false;
            lane.alive -= 1;
            if lane.alive == 0 {
                return Err(gone(reason));
            }
        }
        Ok(())
    }
}

/// Opens one connection of a workload, ready to be run, and registers it.
fn open(workload: &Workload, i: usize, poller: &Poller, token: usize) -> Result<Transport> {
    let io = |e| Error::io(format!("prepare a connection to {}", workload.addr), e);
    if workload.proto == Proto::MemcachedUdp {
        let socket = setup::datagram(workload, i)?;
        let datagram = Datagram::new(workload, i, socket).map_err(io)?;
        poller.add(datagram.socket(), token).map_err(io)?;
        return Ok(Transport::Datagram(datagram));
    }
    let socket = setup::stream(workload, i)?;
    let stream = Stream::new(workload, i, socket).map_err(io)?;
    poller.add(stream.socket(), token).map_err(io)?;
    Ok(Transport::Stream(stream))
}

/// Room for samples: with Poisson arrivals more than 10 % and 1000 above the mean practically never happens.
fn expected_requests(workload: &Workload, duration: Duration) -> usize {
    let rate = match workload.arrivals {
        // How fast a closed loop will be is not known; beyond this the samples grow while it runs.
        Arrivals::Closed(_) => 200_000.0,
        _ => workload.rate_per_s,
    };
    // At most 256 MiB of room at first.
    ((rate * duration.as_secs_f64() * 1.1) as usize + 1000).min(16 << 20)
}

/// Raises the soft limit of open files to the hard limit when `connections` need it. When that is not enough, opening
/// the connections says so.
fn raise_file_limit(connections: u64) {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && connections + 64 > soft
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Timers of this thread to the nanosecond (Linux may otherwise be 50 us late on purpose); put back on drop.
struct TimerSlack(Option<u64>);

impl TimerSlack {
    fn finest() -> Self {
        let before = get_timerslack().ok().and_then(|ns| u64::try_from(ns).ok());
        // Where it is refused, sends are later; `late_p99_ns` shows it.
        let _ = set_timerslack(1);
        Self(before)
    }
}

impl Drop for TimerSlack {
    fn drop(&mut self) {
        if let Some(ns) = self.0 {
            let _ = set_timerslack(ns);
        }
    }
}
