//! Frames: what was nested on a core, or what a thread waited for, and their names in the output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_kernel::syscalls::name as syscall_name;
use tailsight_kernel::{MIGRATE_REASONS, RECLAIM_KINDS};
use tailsight_trace::event::{SOFTIRQS, VECTORS};

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
    /// A timer ended the sleep: its call had a time limit.
    Timer,
    /// Another thread of the application was serving other messages.
    Serving,
    /// The thread had used the CPU quota of its cgroup up.
    Throttled,
    /// The hypervisor ran somebody else on the core. The amount is exact; the place is the end of the interval without
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
    /// The thread was in a function that was traced (`record --uprobe`, `--usdt`, `--function`).
    Function {
        /// Its name: index into the run's symbols.
        symbol: u32,
        /// Whether it is one of the kernel.
        kernel: bool,
    },
    /// Where in the program a thread slept. It says nothing of why: names and rows are as without it.
    Place {
        /// A call stack of the run's samples, by number.
        stack: u32,
    },
}

impl Frame {
    /// Whether it only says where in the program that was: a function of the user's that is traced, or the place of a sleep. What
    /// the time counts to does not depend on it.
    pub fn is_of_program(&self) -> bool {
        matches!(self, Frame::Function { kernel: false, .. } | Frame::Place { .. })
    }
}

/// What kind a [`Frame`] is of. Its name begins the frame's name in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
    Timer,
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
    Function,
    Place,
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
            FrameKind::Timer => ("timer", ""),
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
            FrameKind::Function => ("function", "?"),
            FrameKind::Place => ("place", ""),
        }
    }

    /// Its name, as it begins the names of frames.
    pub fn name(self) -> &'static str {
        self.text().0
    }
}

/// A frame with its numbers and symbols looked up: it means the same outside of its run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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
            Frame::Timer => (FrameKind::Timer, None),
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
            Frame::Function { symbol: s, .. } => (FrameKind::Function, symbol(s)),
            Frame::Place { .. } => (FrameKind::Place, None),
            Frame::Migrate { why } => (FrameKind::Migrate, known(&MIGRATE_REASONS, usize::from(why))),
        };
        NamedFrame { kind, of }
    }
}
