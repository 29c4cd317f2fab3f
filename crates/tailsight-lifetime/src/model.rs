//! Messages, their stages, and the exact partition of their time.
//!
//! A *lifetime* is a message plus the ordered path of (core, from, to) it took, with everything that ran there. Each
//! nanosecond of a leg has one [`Owner`]; the [`Part`]s of a leg sum to the leg exactly.

use serde::{Deserialize, Serialize};
pub use tailsight_kernel::syscalls::{NO_SYSCALL, name as syscall_name};
use tailsight_kernel::{MIGRATE_REASONS, RECLAIM_KINDS};
use tailsight_trace::FlowKey;
use tailsight_trace::event::{SOFTIRQS, VECTORS};

/// A part of a message's way through the host (docs/lifetimes.md; Tales of the Tail, stages T1 to T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leg {
    /// From the first sight in the stack (from the NIC's stamp, where the run has those) to the return of the receive call.
    Receive,
    /// From the return of the receive call to the entry of the send call.
    Service,
    /// From the entry of the send call to the hand-over of the last byte to the driver (to the NIC's stamp, where the run has
    /// those).
    Transmit,
    /// The three together.
    Total,
}

/// The three legs that are measured; the total is their sum.
pub const LEGS: [Leg; 3] = [Leg::Receive, Leg::Service, Leg::Transmit];

impl Leg {
    /// Every leg.
    pub const ALL: [Leg; 4] = [Leg::Receive, Leg::Service, Leg::Transmit, Leg::Total];
    /// Its name, as in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Leg::Receive => "receive",
            Leg::Service => "service",
            Leg::Transmit => "transmit",
            Leg::Total => "total",
        }
    }
}

impl std::str::FromStr for Leg {
    type Err = String;
    fn from_str(s: &str) -> Result<Leg, String> {
        Leg::ALL
            .into_iter()
            .find(|l| l.name() == s)
            .ok_or_else(|| format!("no leg named {s:?}: use receive, service, transmit or total"))
    }
}

/// Why a message could not be followed to its end. The texts are in the JSON of a diagnosis and stay what they are; the
/// variants are in the order of their texts, which is that of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Incomplete {
    /// The kernel dropped it: no room in the socket, or its checksum was wrong.
    #[serde(rename = "dropped")]
    Dropped,
    /// Its hand-over to the driver is missing among the events.
    #[serde(rename = "its hand-over to the driver was not seen")]
    TransmitNotSeen,
    /// A receive call returned it, but its packets are missing among the events.
    #[serde(rename = "its packets were not seen")]
    PacketsNotSeen,
    /// Its receive call is missing among the events.
    #[serde(rename = "its receive call was not seen")]
    ReceiveNotSeen,
    /// This host dropped its reply on its way out.
    #[serde(rename = "its reply was dropped by this host")]
    ReplyDropped,
    /// Its send call is missing among the events.
    #[serde(rename = "its send call was not seen")]
    SendNotSeen,
    /// It was pending when its connection ended.
    #[serde(rename = "not read before the connection ended")]
    ConnectionEnded,
    /// It was pending when the recording ended.
    #[serde(rename = "not received before the recording ended")]
    RecordingEnded,
    /// No thread of the target ever read from its flow: another process has it.
    #[serde(rename = "on a flow that the target never read")]
    NeverRead,
    /// It was on its way in a stretch in which events were lost.
    #[serde(rename = "on its way while events were lost")]
    EventsLost,
    /// Nearly all messages have the NIC's stamp, at which legs begin or end, and it has none.
    #[serde(rename = "without the NIC's time stamp that the others have")]
    NotStamped,
}

impl Incomplete {
    /// Every reason.
    pub const ALL: [Incomplete; 11] = [
        Incomplete::Dropped,
        Incomplete::TransmitNotSeen,
        Incomplete::PacketsNotSeen,
        Incomplete::ReceiveNotSeen,
        Incomplete::ReplyDropped,
        Incomplete::SendNotSeen,
        Incomplete::ConnectionEnded,
        Incomplete::RecordingEnded,
        Incomplete::NeverRead,
        Incomplete::EventsLost,
        Incomplete::NotStamped,
    ];

    /// Its text, as in the output.
    pub fn text(self) -> &'static str {
        match self {
            Incomplete::Dropped => "dropped",
            Incomplete::ReceiveNotSeen => "its receive call was not seen",
            Incomplete::SendNotSeen => "its send call was not seen",
            Incomplete::TransmitNotSeen => "its hand-over to the driver was not seen",
            Incomplete::ReplyDropped => "its reply was dropped by this host",
            Incomplete::PacketsNotSeen => "its packets were not seen",
            Incomplete::RecordingEnded => "not received before the recording ended",
            Incomplete::ConnectionEnded => "not read before the connection ended",
            Incomplete::NeverRead => "on a flow that the target never read",
            Incomplete::EventsLost => "on its way while events were lost",
            Incomplete::NotStamped => "without the NIC's time stamp that the others have",
        }
    }
}

/// On whose side of the hand-off a nanosecond was spent (NSight §3: R and A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// On the receive core, before the hand-off.
    R,
    /// On the application core, after it.
    A,
}

/// The execution context that owned a core (or the reason why none did), as seen from one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Context {
    /// The thread that served this message, working for it.
    Own,
    /// The same thread, still working for messages that came before it: head-of-line blocking.
    Ahead,
    /// Another thread of the same application.
    Sibling {
        /// Its command name.
        comm: String,
    },
    /// A task of another application or of the system.
    Foreign {
        /// Its command name.
        comm: String,
        /// Whether it is a kernel thread.
        kernel: bool,
    },
    /// The recorder's own hooks, wherever they ran.
    Profiler,
    /// Nothing ran on the core.
    Idle,
    /// The thread slept and no core was being waited for; the frames say in what.
    Blocked,
    /// The recording cannot tell.
    Unknown,
}

/// One level of nesting on a core, outermost first in [`Owner::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Frame {
    /// A system call of a thread of the target.
    Syscall {
        /// Its number.
        nr: u32,
    },
    /// A softirq handler.
    Softirq {
        /// Its vector.
        vec: u8,
        /// Whether the current task caused it itself (it started in process context: a send over loopback or veth, a
        /// lock released); else it followed an interrupt.
        inline: bool,
    },
    /// A device interrupt handler.
    Irq {
        /// Its number.
        irq: u32,
    },
    /// A system vector: timer, reschedule, call-function.
    Vector {
        /// Which, see [`VECTORS`].
        which: u16,
    },
    /// A function that another core asked this one to run.
    Csd,
    /// A work item of a workqueue.
    Work {
        /// Index into the run's symbols.
        symbol: u32,
    },
    /// A packet in a NET_RX softirq, until the next one or the end of the handler.
    Packet {
        /// Whether it belongs to the message's own application.
        own: bool,
        /// The service's port: the local port when own, else the lower of the packet's ports.
        port: u16,
        /// The application that listens on that port: index into the run's symbols, 0 when not known.
        app: u32,
    },
    /// Idle in a state of the idle driver.
    IdleState {
        /// The state's index.
        state: u8,
    },
    /// The thread was runnable and its core was idle: the wake-up had not taken effect (IPI, exit from idle).
    WakePending,
    /// Runnable with no core known.
    Runnable,
    /// Asleep in a system call. In another thread's context: the message's thread slept so, and that thread ended it.
    SleepIn {
        /// Its number, `u32::MAX` when not known.
        nr: u32,
        /// Uninterruptible (disk, page, some locks).
        uninterruptible: bool,
        /// Waiting for block I/O.
        io: bool,
    },
    /// The kernel stack of a sleep: function names, innermost first, separated by `;`.
    Stack {
        /// Index into the run's symbols.
        symbol: u32,
    },
    /// Who ended a sleep: a task outside the application.
    WokenBy {
        /// Its name: index into the run's symbols.
        symbol: u32,
    },
    /// The answer of another server was waited for: a packet of its connection ended the wait.
    Peer {
        /// Who: index into the symbols.
        symbol: u32,
    },
    /// Another thread of the application was serving other messages.
    Serving,
    /// The thread had used the CPU quota of its cgroup up.
    Throttled,
    /// The hypervisor ran somebody else on the core. The amount is exact; the place is the end of the stretch without
    /// events that holds it.
    Stolen,
    /// The thread reclaimed memory itself.
    Reclaim {
        /// 0 of the host, 1 of its memory cgroup, 2 compaction.
        which: u8,
    },
    /// The thread wrote a file to its disk and waited for it (fsync).
    FileSync,
    /// The thread waited for a lock of the kernel.
    KernelLock,
    /// The bytes were there, but bytes before them were missing: TCP waited for a retransmission, or for packets that
    /// others had overtaken.
    TcpHole,
    /// The first bytes of the request were there, the last were still on their way to this host.
    RequestArriving,
    /// A context switch was not seen: which task this was is not known.
    Unseen,
    /// The connection was new: another thread of the application accepted it and handed it on.
    ConnectionSetup,
    /// Stopped by a signal or a tracer.
    Stopped,
    /// The reply waited in the socket or the queueing discipline, after the send call had returned.
    TxQueued,
    /// Between the NIC's receive stamp and the driver.
    NicToDriver,
    /// Between the hand-over to the driver and the NIC's transmit stamp.
    DriverToNic,
    /// The reply waited in its socket: for room in the window of the connection or of the peer, for an acknowledgement
    /// (Nagle), for its turn (pacing). Where the hook of queueing disciplines was on.
    TxSocket,
    /// The reply waited in the queueing discipline.
    TxQdisc,
    /// The reply waited in its socket while the connection repaired a loss of what the application had sent before.
    TxRecovery,
    /// The reply was dropped on its way out, and waited until it was sent again.
    TxDropped {
        /// The kernel's reason: index into the run's symbols, 0 when its name is not known.
        symbol: u32,
    },
    /// The thread migrated pages to other memory.
    Migrate {
        /// The kernel's `enum migrate_reason`.
        why: u8,
    },
}

/// Why the application sent something that no received message asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SentKind {
    /// Unasked, to a client.
    Push,
    /// To another server, on a connection that the application opened.
    Request,
}

impl SentKind {
    /// Its name, as in tables.
    pub fn name(self) -> &'static str {
        match self {
            SentKind::Push => "push",
            SentKind::Request => "request",
        }
    }
}

/// One send call that answers no received message. Times are CLOCK_MONOTONIC ns, 0 when not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Unasked, or asked of another server.
    pub kind: SentKind,
    /// Index into [`crate::Lifetimes::flows`].
    pub flow: u32,
    /// Bytes that the call took.
    pub bytes: u32,
    /// The thread.
    pub tid: u32,
    /// The send call entered (T5).
    pub send_ns: u64,
    /// The send call had taken the data.
    pub sent_ns: u64,
    /// Its last byte was given to the driver (T6).
    pub xmit_ns: u64,
}

impl Sent {
    /// From the send call to the hand-over, ns, when both were seen.
    pub fn transmit_ns(&self) -> Option<u64> {
        (self.send_ns != 0 && self.xmit_ns >= self.send_ns).then(|| self.xmit_ns - self.send_ns)
    }
}

/// The owner of some nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Owner {
    /// The context.
    pub context: Context,
    /// What was nested in it, outermost first.
    pub frames: Vec<Frame>,
}

/// Which task a [`Context::Foreign`] or [`Context::Sibling`] was; all 0 and empty for other contexts and when not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Who {
    /// Its process (thread group); 0 when not known, and of a task of another run.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name of its process.
    pub process: String,
    /// Whether it was the recorder itself.
    pub recorder: bool,
}

/// Index into [`crate::Lifetimes::owners`].
pub type OwnerId = u32;

/// The time of one owner in one leg of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whose side.
    pub role: Role,
    /// The owner.
    pub owner: OwnerId,
    /// How often it began (or was met running at the start of the leg); stays at 65,535 when it was more.
    pub count: u16,
    /// Nanoseconds.
    pub ns: u64,
}

const _: () = assert!(size_of::<Part>() == 16);

/// One step of a message's path, in order: contiguous, without gap or overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSpan {
    /// Start, CLOCK_MONOTONIC ns.
    pub from_ns: u64,
    /// End, CLOCK_MONOTONIC ns.
    pub to_ns: u64,
    /// The core, when the message was bound to one.
    pub cpu: Option<u16>,
    /// Whose side.
    pub role: Role,
    /// The owner.
    pub owner: OwnerId,
    /// Whether the owner's innermost span began here (else it went on after an interruption).
    pub begins: bool,
}

/// One message. Times are CLOCK_MONOTONIC ns, 0 when the stage was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Position in the order of arrival, from 0.
    pub id: u32,
    /// Index into [`crate::Lifetimes::flows`].
    pub flow: u32,
    /// Payload bytes.
    pub bytes: u32,
    /// The thread that received it.
    pub tid: u32,
    /// Stamped by the NIC as it came in, on CLOCK_MONOTONIC; at most `driver_ns`.
    pub nic_ns: u64,
    /// The most that `nic_ns` can be wrong, ns.
    pub nic_error_ns: u32,
    /// First seen in the stack (Tales T1).
    pub driver_ns: u64,
    /// Entered protocol processing.
    pub stack_ns: u64,
    /// Socket made readable (T2).
    pub handoff_ns: u64,
    /// The receiving thread was woken for it; 0 when it was not asleep.
    pub wake_ns: u64,
    /// The receiving thread was on a core (T3).
    pub on_cpu_ns: u64,
    /// The receive call entered.
    pub recv_enter_ns: u64,
    /// The receive call had its data (T4).
    pub recv_ns: u64,
    /// The send call entered (T5).
    pub send_ns: u64,
    /// The last byte was given to the driver (T6).
    pub xmit_ns: u64,
    /// The last byte was stamped by the NIC as it went out, on CLOCK_MONOTONIC; at least `xmit_ns`.
    pub nic_tx_ns: u64,
    /// The most that `nic_tx_ns` can be wrong, ns.
    pub nic_tx_error_ns: u32,
    /// Receive core.
    pub driver_cpu: u16,
    /// Core of the hand-off.
    pub handoff_cpu: u16,
    /// Core of the receive call.
    pub recv_cpu: u16,
    /// Messages of the same application that its thread took between this one's hand-off and its receive call.
    pub ahead: u32,
    /// How many messages the same receive call returned (1: this one alone).
    pub batch: u16,
    /// [`flags`].
    pub flags: u16,
    /// With a protocol: index into [`crate::Lifetimes::classes`]; else 0.
    pub class: u16,
    /// With a protocol: bytes of its reply, 0 when that is not known.
    pub reply_bytes: u32,
}

/// Flags of a message.
pub mod flags {
    /// The range was seen more than once on the wire (retransmission).
    pub const RETRANSMITTED: u16 = 1;
    /// No hand-off event covers it (SO_RCVLOWAT, or the recording began in between); its protocol entry stands in.
    pub const NO_HANDOFF: u16 = 2;
    /// Its reply was shared with other messages (one send for several requests).
    pub const SHARED_REPLY: u16 = 4;
    /// The first message of a connection that was opened while recording.
    pub const FIRST: u16 = 8;
    /// It waited for bytes before its own (loss or reordering).
    pub const HELD: u16 = 16;
    /// Recorded with a protocol, but no request is known in its bytes: it is a segment, paired as without a protocol.
    pub const UNFRAMED: u16 = 32;
    /// Paired with its reply by an id on the wire, or by the key that the reply names.
    pub const PAIRED_BY_ID: u16 = 64;
    /// Paired with its reply by order, both directions framed without a hole since the connection's beginning.
    pub const PAIRED_BY_ORDER: u16 = 128;
    /// Paired with its reply by order since a hole, or since the middle of the connection.
    pub const PAIRING_ASSUMED: u16 = 256;
    /// A request without a reply: it asked for none, or it is answered only when there is something to say.
    pub const NO_REPLY: u16 = 512;
    /// Its end was concluded from announced lengths or later bytes, not read.
    pub const INFERRED: u16 = 1024;
    /// Its receive leg begins at the NIC's stamp: so it is for all messages of a run, or for none.
    pub const FROM_NIC: u16 = 2048;
    /// Its transmit leg ends at the NIC's stamp: so it is for all messages of a run, or for none.
    pub const TO_NIC: u16 = 4096;
    /// Its reply was dropped on its way out, by this host, and never reached the driver.
    pub const REPLY_DROPPED: u16 = 8192;
    /// Served out of order: a message of the same application that arrived later was received before it.
    pub const OVERTAKEN: u16 = 16384;
}

impl Message {
    /// The leg's ends, when both were seen.
    #[inline]
    pub fn ends(&self, leg: Leg) -> Option<(u64, u64)> {
        let begin = if self.flags & flags::FROM_NIC != 0 { self.nic_ns } else { self.driver_ns };
        let end = if self.flags & flags::TO_NIC != 0 { self.nic_tx_ns } else { self.xmit_ns };
        let (from, to) = match leg {
            Leg::Receive => (begin, self.recv_ns),
            Leg::Service => (self.recv_ns, self.send_ns),
            Leg::Transmit => (self.send_ns, end),
            Leg::Total => (begin, end),
        };
        (from != 0 && to >= from).then_some((from, to))
    }
    /// What pairs the message with its reply, when it was recorded with a protocol and has one: `id`, `order`, `assumed`;
    /// `flow` where no request is known.
    pub fn pairing(&self) -> Option<&'static str> {
        let names = [
            (flags::PAIRED_BY_ID, "id"),
            (flags::PAIRED_BY_ORDER, "order"),
            (flags::PAIRING_ASSUMED, "assumed"),
            (flags::UNFRAMED, "flow"),
        ];
        let named = names.into_iter().find(|(flag, _)| self.flags & flag != 0);
        named.filter(|_| self.send_ns != 0).map(|(_, name)| name)
    }
    /// The leg's length, ns, when both ends were seen.
    #[inline]
    pub fn latency(&self, leg: Leg) -> Option<u64> {
        self.ends(leg).map(|(from, to)| to - from)
    }
}

/// A flow that carried messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its key.
    pub key: FlowKey,
    /// Its ends as text, local first.
    pub name: String,
    /// Messages it carried.
    pub messages: u32,
}

/// What kind a [`Frame`] is of. Its name begins the frame's name in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // As the variants of `Frame`.
pub enum FrameKind {
    Syscall,
    Softirq,
    Irq,
    Vector,
    Csd,
    Work,
    /// A packet of the message's own application.
    OwnPacket,
    /// A packet of another one.
    Packet,
    IdleState,
    WakePending,
    Runnable,
    /// Asleep, interruptible.
    Sleep,
    /// Asleep, uninterruptible.
    DiskSleep,
    /// Asleep until block I/O is done.
    IoSleep,
    Stack,
    WokenBy,
    Peer,
    Serving,
    Throttled,
    Stolen,
    Reclaim,
    FileSync,
    KernelLock,
    TcpHole,
    RequestArriving,
    Unseen,
    ConnectionSetup,
    Stopped,
    TxQueued,
    NicToDriver,
    DriverToNic,
    TxSocket,
    TxQdisc,
    TxRecovery,
    TxDropped,
    Migrate,
}

impl FrameKind {
    /// Its name, and what stands behind a colon after it where that is not known (nothing: then neither does the colon).
    fn text(self) -> (&'static str, &'static str) {
        match self {
            FrameKind::Syscall => ("sys", "?"),
            FrameKind::Softirq => ("softirq", "?"),
            FrameKind::Irq => ("irq", "?"),
            FrameKind::Vector => ("vector", "?"),
            FrameKind::Csd => ("csd", ""),
            FrameKind::Work => ("work", ""),
            FrameKind::OwnPacket => ("packet:own", "?"),
            FrameKind::Packet => ("packet", "?"),
            FrameKind::IdleState => ("idle-state", "?"),
            FrameKind::WakePending => ("wake-pending", ""),
            FrameKind::Runnable => ("runnable", ""),
            FrameKind::Sleep => ("sleep", "?"),
            FrameKind::DiskSleep => ("disk-sleep", "?"),
            FrameKind::IoSleep => ("io-sleep", "?"),
            FrameKind::Stack => ("in", "?"),
            FrameKind::WokenBy => ("woken-by", "?"),
            FrameKind::Peer => ("peer", "?"),
            FrameKind::Serving => ("serving", ""),
            FrameKind::Throttled => ("throttled", ""),
            FrameKind::Stolen => ("stolen", ""),
            FrameKind::Reclaim => ("reclaim", "?"),
            FrameKind::FileSync => ("file-sync", ""),
            FrameKind::KernelLock => ("kernel-lock", ""),
            FrameKind::TcpHole => ("tcp-hole", ""),
            FrameKind::RequestArriving => ("request-arriving", ""),
            FrameKind::Unseen => ("unseen", ""),
            FrameKind::ConnectionSetup => ("connection-setup", ""),
            FrameKind::Stopped => ("stopped", ""),
            FrameKind::TxQueued => ("tx-queued", ""),
            FrameKind::NicToDriver => ("nic-to-driver", ""),
            FrameKind::DriverToNic => ("driver-to-nic", ""),
            FrameKind::TxSocket => ("tx-socket", ""),
            FrameKind::TxQdisc => ("tx-qdisc", ""),
            FrameKind::TxRecovery => ("tx-recovery", ""),
            FrameKind::TxDropped => ("tx-dropped", "?"),
            FrameKind::Migrate => ("migrate", "?"),
        }
    }

    /// Its name, as it begins the names of frames.
    pub fn name(self) -> &'static str {
        self.text().0
    }
}

/// A frame with its numbers and symbols looked up: it means the same outside of its run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NamedFrame {
    /// What it is.
    pub kind: FrameKind,
    /// Which: the system call, softirq, function, task, server, port …; none where the kind says all or it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

impl std::fmt::Display for NamedFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, unknown) = self.kind.text();
        match self.of.as_deref().unwrap_or(unknown) {
            "" => f.write_str(kind),
            of => write!(f, "{kind}:{of}"),
        }
    }
}

impl Frame {
    /// The frame as the output names it, e.g. `softirq:net_rx`, `sys:sendmsg`.
    pub fn name(&self, symbols: &[String]) -> String {
        self.named(symbols).to_string()
    }

    /// What it is, and which.
    pub fn named(&self, symbols: &[String]) -> NamedFrame {
        let text = |symbol: u32| symbols.get(symbol as usize).map(String::as_str).filter(|s| !s.is_empty());
        let symbol = |symbol: u32| text(symbol).map(str::to_owned);
        let known = |names: &[&str], at: usize| Some(names.get(at).copied().unwrap_or("unknown").to_owned());
        let call = |nr: u32| (nr != u32::MAX).then(|| syscall_name(nr));
        let (kind, of) = match *self {
            Frame::Syscall { nr } => (FrameKind::Syscall, call(nr)),
            Frame::Softirq { vec, .. } => (FrameKind::Softirq, known(SOFTIRQS, usize::from(vec))),
            Frame::Irq { irq } => (FrameKind::Irq, Some(irq.to_string())),
            Frame::Vector { which } => (FrameKind::Vector, known(VECTORS, usize::from(which))),
            Frame::Csd => (FrameKind::Csd, None),
            Frame::Work { symbol: s } => (FrameKind::Work, symbol(s)),
            Frame::Packet { own: true, port, .. } => (FrameKind::OwnPacket, Some(port.to_string())),
            Frame::Packet { own: false, port, app } => match text(app).filter(|_| app != 0) {
                Some(app) => (FrameKind::Packet, Some(format!("{app}:{port}"))),
                None => (FrameKind::Packet, Some(port.to_string())),
            },
            Frame::IdleState { state } => (FrameKind::IdleState, Some(state.to_string())),
            Frame::WakePending => (FrameKind::WakePending, None),
            Frame::Runnable => (FrameKind::Runnable, None),
            Frame::SleepIn { nr, io: true, .. } => (FrameKind::IoSleep, call(nr)),
            Frame::SleepIn { nr, uninterruptible: true, .. } => (FrameKind::DiskSleep, call(nr)),
            Frame::SleepIn { nr, .. } => (FrameKind::Sleep, call(nr)),
            Frame::Stack { symbol: s } => {
                let innermost = text(s).and_then(|stack| stack.split(';').next()).filter(|f| !f.is_empty());
                (FrameKind::Stack, innermost.map(str::to_owned))
            }
            Frame::WokenBy { symbol: s } => (FrameKind::WokenBy, symbol(s)),
            Frame::Peer { symbol: s } => (FrameKind::Peer, symbol(s)),
            Frame::Serving => (FrameKind::Serving, None),
            Frame::Throttled => (FrameKind::Throttled, None),
            Frame::Stolen => (FrameKind::Stolen, None),
            Frame::Reclaim { which } => (FrameKind::Reclaim, known(&RECLAIM_KINDS, usize::from(which))),
            Frame::KernelLock => (FrameKind::KernelLock, None),
            Frame::FileSync => (FrameKind::FileSync, None),
            Frame::TcpHole => (FrameKind::TcpHole, None),
            Frame::Unseen => (FrameKind::Unseen, None),
            Frame::RequestArriving => (FrameKind::RequestArriving, None),
            Frame::ConnectionSetup => (FrameKind::ConnectionSetup, None),
            Frame::Stopped => (FrameKind::Stopped, None),
            Frame::TxQueued => (FrameKind::TxQueued, None),
            Frame::NicToDriver => (FrameKind::NicToDriver, None),
            Frame::DriverToNic => (FrameKind::DriverToNic, None),
            Frame::TxSocket => (FrameKind::TxSocket, None),
            Frame::TxQdisc => (FrameKind::TxQdisc, None),
            Frame::TxRecovery => (FrameKind::TxRecovery, None),
            Frame::TxDropped { symbol: s } => (FrameKind::TxDropped, symbol(s)),
            Frame::Migrate { why } => (FrameKind::Migrate, known(&MIGRATE_REASONS, usize::from(why))),
        };
        NamedFrame { kind, of }
    }
}

impl Owner {
    /// The context as the output names it.
    pub fn context_name(&self) -> String {
        match &self.context {
            Context::Own => "own".into(),
            Context::Ahead => "ahead".into(),
            Context::Sibling { comm } => format!("sibling:{comm}"),
            Context::Foreign { comm, .. } => comm.clone(),
            Context::Profiler => "profiler".into(),
            Context::Idle => "idle".into(),
            Context::Blocked => "blocked".into(),
            Context::Unknown => "unknown".into(),
        }
    }

    /// The whole path, e.g. `nginx/softirq:net_rx/packet:8088`.
    pub fn path(&self, symbols: &[String]) -> String {
        let mut out = self.context_name();
        for frame in &self.frames {
            out.push('/');
            out += &frame.name(symbols);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Incomplete;

    /// A refusal hung on a sentence of another crate: the text of the output is the serialised reason, for each of them.
    #[test]
    fn reasons_are_written_as_they_read() {
        let texts: Vec<String> = Incomplete::ALL.iter().map(|r| serde_json::to_string(r).expect("text")).collect();
        let said: Vec<String> = Incomplete::ALL.iter().map(|r| format!("{:?}", r.text())).collect();
        assert_eq!(texts, said);
        assert!(texts.is_sorted() && Incomplete::ALL.is_sorted(), "the JSON has them by text, whoever sorts them");
        assert_eq!(Incomplete::EventsLost.text(), "on its way while events were lost");
        assert_eq!(Incomplete::Dropped.text(), "dropped");
    }
}
