//! The synthetic service-time server of Lancet §6. In: requests of [`crate::wire`]. Out: replies with the server's stamps.
//!
//! One thread accepts. With a queue a worker each worker reads the connections it was given and serves them; with one
//! shared queue an I/O thread reads them all and the workers take requests from it in order.

use std::collections::{HashMap, VecDeque};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tailsight_protocol::wire::synthetic::Request;

use super::effects::Effects;
use super::{Queue, ServeArgs, Service, Work, inside, null, spawn};
use crate::clock::{now_ns, sleep_until, spin_for};
use crate::truth::{TruthLog, kind};
use crate::wire::{REPLY_HEAD, REQUEST_HEAD, ReplyHead, Stamps, flags};
use crate::{Error, Result};
use tailsight_testbed::queue::epoll::{self, Epoll};

/// A gap between two clock reads longer than this means that another task used the core, ns.
const GAP_NS: u64 = 400;

/// A request that was read.
struct Job {
    request: Request,
    received_ns: u64,
    /// Where the reply goes.
    stream: Arc<TcpStream>,
}

/// A queue that all workers take from.
type Shared = Arc<(Mutex<VecDeque<Job>>, Condvar)>;

/// What serves a request; one a worker.
struct Worker {
    work: Work,
    service: Service,
    rng: SmallRng,
    effects: Effects,
    reply: Vec<u8>,
}

/// Starts all threads and gives the port.
pub(super) fn start(args: &ServeArgs, truth: Option<Arc<TruthLog>>) -> Result<u16> {
    let (listener, port) = null::listen(args.port)?;
    let io = |e| Error::io("make an epoll instance", e);
    let lock = Arc::new(Mutex::new(0_u64));
    let threads = args.threads.max(1);
    let mut workers = Vec::new();
    for i in 0..threads {
        workers.push(Worker {
            work: args.work,
            service: args.service,
            rng: SmallRng::seed_from_u64(i as u64),
            effects: Effects::new(args, Arc::clone(&lock), truth.clone())?,
            reply: Vec::with_capacity(1 << 17),
        });
    }
    let mut doors = Vec::new();
    let limit = if args.read_one { REQUEST_HEAD } else { 1 << 14 };
    match args.queue {
        Queue::Worker => {
            for mut worker in workers {
                let epoll = Arc::new(Epoll::new().map_err(io)?);
                doors.push(Arc::clone(&epoll));
                spawn("lab-worker", move || read_all(&epoll, limit, |job| worker.serve(&job)))?;
            }
        }
        Queue::Shared => {
            let shared: Shared = Arc::default();
            for mut worker in workers {
                let shared = Arc::clone(&shared);
                spawn("lab-worker", move || {
                    loop {
                        let job = take(&shared);
                        worker.serve(&job);
                    }
                })?;
            }
            let epoll = Arc::new(Epoll::new().map_err(io)?);
            doors.push(Arc::clone(&epoll));
            spawn("lab-io", move || {
                read_all(&epoll, limit, |job| {
                    let (queue, filled) = &*shared;
                    queue.lock().unwrap_or_else(|p| p.into_inner()).push_back(job);
                    filled.notify_one();
                });
            })?;
        }
    }
    inside::start(args, &lock, truth.as_ref())?;
    let handoff = args.handoff;
    spawn("lab-accept", move || accept(&listener, &doors, handoff, truth.as_deref()))?;
    Ok(port)
}

/// Accepts connections without an end and gives them to the workers in turn.
fn accept(listener: &TcpListener, doors: &[Arc<Epoll>], handoff: Option<Duration>, truth: Option<&TruthLog>) {
    for (turn, stream) in listener.incoming().flatten().enumerate() {
        let begin = now_ns();
        let _ = stream.set_nodelay(true);
        if let Some(time) = handoff {
            sleep_until(begin + time.as_nanos() as u64);
        }
        // A connection that cannot be watched is closed by `give`.
        let _ = doors[turn % doors.len()].give(stream);
        if let (Some(truth), Some(_)) = (truth, handoff) {
            truth.add(kind::HANDOFF, begin, now_ns());
        }
    }
}

/// The next request of the shared queue.
fn take(shared: &Shared) -> Job {
    let (queue, filled) = &**shared;
    let mut jobs = queue.lock().unwrap_or_else(|p| p.into_inner());
    loop {
        match jobs.pop_front() {
            Some(job) => return job,
            None => jobs = filled.wait(jobs).unwrap_or_else(|p| p.into_inner()),
        }
    }
}

/// Reads all connections of an epoll instance, at most `limit` bytes a call, and hands out whole requests in order.
fn read_all(epoll: &Epoll, limit: usize, mut each: impl FnMut(Job)) {
    let mut connections: HashMap<RawFd, (Arc<TcpStream>, Vec<u8>)> = HashMap::new();
    let mut events = epoll::room();
    let mut buffer = vec![0; limit];
    loop {
        for fd in epoll.wait(&mut events) {
            let (stream, kept) = connections.entry(fd).or_insert_with(|| {
                // SAFETY: `give` handed the descriptor over, and this is the first time it is seen.
                (Arc::new(unsafe { TcpStream::from_raw_fd(fd) }), Vec::new())
            });
            let room = if limit == REQUEST_HEAD { REQUEST_HEAD - kept.len().min(REQUEST_HEAD - 1) } else { limit };
            let read = recv(fd, &mut buffer[..room], MsgFlags::MSG_DONTWAIT);
            let received_ns = now_ns();
            let open = match read {
                Ok(0) => false,
                Ok(n) => {
                    kept.extend_from_slice(&buffer[..n]);
                    let mut at = 0;
                    let mut good = true;
                    loop {
                        match Request::parse(&kept[at..]) {
                            Ok(Some((request, length))) if kept.len() - at >= length => {
                                each(Job { request, received_ns, stream: Arc::clone(stream) });
                                at += length;
                            }
                            Ok(_) => break,
                            // Not the lab's protocol: the connection is closed, which the client sees.
                            Err(_) => {
                                good = false;
                                break;
                            }
                        }
                    }
                    kept.drain(..at);
                    good
                }
                Err(Errno::EAGAIN | Errno::EINTR) => true,
                Err(_) => false,
            };
            if !open {
                epoll.forget(fd);
                connections.remove(&fd);
            }
        }
    }
}

impl Worker {
    /// Serves a request and sends its reply.
    fn serve(&mut self, job: &Job) {
        let began_ns = now_ns();
        let request = &job.request;
        let time = if request.service_ns > 0 { request.service_ns } else { self.service.draw(&mut self.rng) };
        self.effects.run(request.beside);
        match self.work {
            // The work itself: an interruption makes the request take longer, not do less.
            Work::Spin if !request.sleep => spin_for(u64::from(time), GAP_NS),
            Work::Spin | Work::Sleep => sleep_until(now_ns() + u64::from(time)),
        }
        self.reply.clear();
        let waited = began_ns.saturating_sub(job.received_ns);
        ReplyHead::new(request, u64::from(time), Some(waited)).write(&mut self.reply);
        if request.beside & flags::STAMPS != 0 {
            let stamps = Stamps { received_ns: job.received_ns, began_ns, ended_ns: now_ns() };
            stamps.write(&mut self.reply[REPLY_HEAD..]);
        }
        let mut rest = &self.reply[..];
        while !rest.is_empty() {
            match send(job.stream.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::EINTR) => {}
                // The client is gone; the reader will see it too.
                Err(_) => return,
            }
        }
    }
}
