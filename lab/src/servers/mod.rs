//! Test servers of our own, each a process: `lab serve KIND`. In: options. Out: replies; on stdout `ready` when it listens.
//!
//! - `rpc`: the null-RPC server of Tales of the Tail §3.1.1: a thread a connection, 128-byte requests and replies;
//! - `rpc-epoll`, `rpc-udp`: its event-driven twin on one thread, and its twin over UDP;
//! - `synthetic`: service times as in Lancet §6, given in the request or drawn here ([`crate::wire`]);
//! - `ideal`: one FIFO queue with exact service times, for clients that speak memcached, RESP or HTTP/1.1;
//! - `backend`: what other servers ask ([`backend`]): an answer at once, or at times late;
//! - `sink`: a UDP socket that nobody reads: what is sent to it costs its host receive processing and nothing else.
//!
//! They run until they are killed, at most for `--for`. The switches of `synthetic` beyond that are the inside half of
//! faults: what a request asks for by its flags, a mutex that another thread holds, a thread that disturbs.

mod backend;
mod effects;
mod inside;
mod null;
mod spiky;
mod synthetic;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::schedule::Schedule;
use crate::truth::TruthLog;
use crate::{Error, Result};
use tailsight_units::parse;

pub use tailsight_testbed::queue::{Service, TextProtocol};

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Null RPC, a thread a connection.
    Rpc,
    /// Null RPC, one thread and epoll.
    RpcEpoll,
    /// Null RPC over UDP.
    RpcUdp,
    /// Synthetic service times.
    Synthetic,
    /// A perfect FIFO queue (M/G/1 where arrivals are Poisson) that known clients can speak to.
    Ideal,
    /// Answers at once, or when the stall is over.
    Backend,
    /// A UDP socket that nobody reads.
    Sink,
    /// Slow when it is told to be (`lab watch`).
    Spiky,
}

impl Kind {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rpc => "rpc",
            Self::RpcEpoll => "rpc-epoll",
            Self::RpcUdp => "rpc-udp",
            Self::Synthetic => "synthetic",
            Self::Ideal => "ideal",
            Self::Backend => "backend",
            Self::Sink => "sink",
            Self::Spiky => "spiky",
        }
    }
}

/// How requests reach the synthetic server's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Queue {
    /// Each worker reads its own connections.
    Worker,
    /// One thread reads all connections into one queue; the workers take from it.
    Shared,
}

/// How the synthetic server spends a service time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// It uses the core.
    Spin,
    /// It sleeps.
    Sleep,
}

/// What a thread of the synthetic server does to the others, from another core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Disturb {
    /// Changes the protection of memory: TLB shoot-downs interrupt every core that runs this process.
    Tlb,
    /// `membarrier`: interrupts every core that runs this process.
    Membarrier,
}

/// `lab serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Which server.
    #[arg(value_enum)]
    pub kind: Kind,
    /// The port, on all addresses; 0 lets the kernel choose (it is printed behind `ready`).
    #[arg(long, default_value_t = 7000)]
    pub port: u16,
    /// Worker threads (synthetic, rpc-udp).
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// One queue a worker, or one for all (synthetic).
    #[arg(long, value_enum, default_value = "worker")]
    pub queue: Queue,
    /// Spin or sleep for the service time (synthetic).
    #[arg(long, value_enum, default_value = "spin")]
    pub work: Work,
    /// What is spoken (ideal).
    #[arg(long, value_enum, default_value = "memcached")]
    pub speak: TextProtocol,
    /// Service time of requests that bring none: fixed:10us, exponential:10us, bimodal:5us or lognormal:10us.
    #[arg(long, default_value = "fixed:1us")]
    pub service: Service,
    /// Read one request a receive call, as the null-RPC server does, instead of all that are there.
    #[arg(long)]
    pub read_one: bool,
    /// The accepting thread keeps each new connection this long before a worker gets it.
    #[arg(long, value_parser = parse::duration)]
    pub handoff: Option<Duration>,
    /// When another thread holds the mutex that requests with the LOCK flag take.
    #[arg(long)]
    pub hold: Option<Schedule>,
    /// The server behind, which requests with the ASK flag wait for.
    #[arg(long)]
    pub behind: Option<SocketAddr>,
    /// When answers are kept back (backend).
    #[arg(long)]
    pub stall: Option<Schedule>,
    /// What another thread does to the workers.
    #[arg(long, value_enum)]
    pub disturb: Option<Disturb>,
    /// When it does it.
    #[arg(long, default_value = "always")]
    pub disturb_schedule: Schedule,
    /// The core of the thread that holds or disturbs.
    #[arg(long)]
    pub inside_cpu: Option<usize>,
    /// Pages that a request with a paging flag touches.
    #[arg(long, default_value_t = 64)]
    pub pages: usize,
    /// Where requests with the FSYNC or RECLAIM flag have their file.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Ask the scheduler for slices of this length, so that a wake-up is not kept waiting by other programs' slices
    /// (kernels since 6.12; others take no notice).
    #[arg(long, value_parser = parse::duration)]
    pub slice: Option<Duration>,
    /// The Unix socket on which it is told what to do (spiky).
    #[arg(long, value_name = "FILE")]
    pub orders: Option<PathBuf>,
    /// The truth log to write what was done to.
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// End after this time, whatever happens.
    #[arg(long = "for", value_parser = parse::duration, default_value = "120s")]
    pub lifetime: Duration,
}

/// Serves until killed or until its time is over. Prints `ready PORT` when it listens.
///
/// # Errors
/// [`Error::Io`] when it cannot listen, or one of its switches cannot be had.
pub fn serve(args: &ServeArgs) -> Result<()> {
    let truth = args.truth.as_deref().map(TruthLog::open).transpose()?.map(Arc::new);
    set_name(&format!("lab-{}", args.kind.name()));
    if let Some(slice) = args.slice {
        ask_for_slice(slice);
    }
    let port = match args.kind {
        Kind::Rpc => null::threads(args.port)?,
        Kind::RpcEpoll => null::events(args.port)?,
        Kind::RpcUdp => null::datagrams(args.port, args.threads.max(1))?,
        Kind::Synthetic => synthetic::start(args, truth)?,
        Kind::Ideal => {
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
            tailsight_testbed::queue::start(address, args.service, args.speak)?.port()
        }
        Kind::Backend => backend::start(args.port, args.stall, truth)?,
        Kind::Sink => sink(args.port)?,
        Kind::Spiky => {
            let needed = || Error::Parse {
                what: "server",
                text: "spiky".into(),
                expected: "with --orders, where it is told what to do",
            };
            let orders = args.orders.as_deref().ok_or_else(needed)?;
            spiky::start(args.port, orders, args.inside_cpu)?
        }
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {port}").and_then(|()| out.flush()).map_err(|e| Error::io("write to stdout", e))?;
    drop(out);
    std::thread::sleep(args.lifetime);
    Ok(())
}

/// Asks for a slice for this thread and those that it starts. A kernel that has no such thing leaves them as they are.
fn ask_for_slice(slice: Duration) {
    /// `struct sched_attr` in its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let runtime = slice.as_nanos() as u64;
    let attributes = Attributes { size: size_of::<Attributes>() as u32, runtime, ..Attributes::default() };
    // SAFETY: `attributes` is as long as it says and lives over the call, which copies it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Binds a UDP socket that lives as long as the process and is never read.
fn sink(port: u16) -> Result<u16> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let io = |e| Error::io(format!("bind UDP {address}"), e);
    let socket = UdpSocket::bind(address).map_err(io)?;
    let port = socket.local_addr().map_err(io)?.port();
    // Kept open on purpose: the process ends by being killed.
    std::mem::forget(socket);
    Ok(port)
}

/// Names the calling thread (15 bytes at most, as the kernel keeps them).
pub(crate) fn set_name(name: &str) {
    let mut bytes = [0_u8; 16];
    let n = name.len().min(15);
    bytes[..n].copy_from_slice(&name.as_bytes()[..n]);
    // SAFETY: the kernel reads at most 16 bytes up to the NUL that is there. A thread keeps its old name on failure.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

/// Starts a thread with a name; a server without it would not serve, so failure is an error.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(|_| ())
        .map_err(|e| Error::io(format!("start the thread {name}"), e))
}
