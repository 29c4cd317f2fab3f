//! Frames: what was nested on a core, or what a thread waited for, and their names in the output.
//!
//! In: the table `frames!`, in which each frame stands once. Out: [`Frame`], the [`FrameKind`]s with their names, and the properties by
//! which the rest of the program asks about frames.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_kernel::syscalls::name as syscall_name;
use tailsight_kernel::{MIGRATE_REASONS, RECLAIM_KINDS};
use tailsight_trace::event::{SOFTIRQS, VECTORS};

/// How far from the device what interrupts a thread is; the order is the one in which it gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interrupt {
    /// The handler of a device or of a system vector.
    Device,
    /// A function for another core.
    OtherCore,
    /// A softirq that followed an interrupt.
    Softirq,
    /// A softirq that the thread caused itself.
    InlineSoftirq,
    /// A packet in a softirq.
    Packet,
}

/// The first of several kinds whose condition holds; the last one has none.
macro_rules! kind_of {
    ([$kind:ident]) => {
        FrameKind::$kind
    };
    ([$kind:ident if $condition:expr] $($rest:tt)+) => {
        if $condition { FrameKind::$kind } else { kind_of!($($rest)+) }
    };
}

/// A property of a frame where the table has it, else what most frames have.
macro_rules! value_or {
    ($default:expr;) => {
        $default
    };
    ($default:expr; $value:expr) => {
        $value
    };
}

/// A line is a frame and its fields, then in brackets its kind, the kind's name in the output and what stands behind a colon after that
/// where it is not known which (nothing: then neither does the colon), then which it is. `interrupt`: where it stands among what interrupts
/// a thread. `sleeps`: the thread can sleep in it, and what it does explains the sleep.
macro_rules! frames {
    ($names:ident; $(
        $(#[$doc:meta])*
        $frame:ident $({ $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })?
        => $([$(#[$kind_doc:meta])* $kind:ident $name:literal $unknown:literal $(if $condition:expr)?])+,
        $of:expr $(, interrupt = $interrupt:expr)? $(, sleeps = $sleeps:literal)?;
    )*) => {
        /// One level of nesting on a core, outermost first in [`Owner::frames`](super::Owner::frames).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum Frame {
            $($(#[$doc])* $frame $({ $($(#[$field_doc])* $field: $type,)* })?,)*
        }

        /// What kind a [`Frame`] is of. Its name begins the frame's name in the output.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs)] // As the variants of `Frame`.
        pub enum FrameKind {
            $($($(#[$kind_doc])* $kind,)+)*
        }

        impl FrameKind {
            /// Every kind.
            pub const ALL: &[FrameKind] = &[$($(FrameKind::$kind,)+)*];

            /// Its name, and what stands behind a colon after it where that is not known.
            fn text(self) -> (&'static str, &'static str) {
                match self {
                    $($(FrameKind::$kind => ($name, $unknown),)+)*
                }
            }
        }

        #[allow(unused_variables)] // A property needs few of a frame's fields.
        impl Frame {
            /// What kind it is of.
            pub fn kind(&self) -> FrameKind {
                match *self {
                    $(Frame::$frame { $($($field,)*)? } => kind_of!($([$kind $(if $condition)?])+),)*
                }
            }

            /// Which of its kind it is.
            fn which(&self, $names: &Names<'_>) -> Option<String> {
                match *self {
                    $(Frame::$frame { $($($field,)*)? } => $of,)*
                }
            }

            /// Where it stands among what interrupts a thread; `None`: it is what threads do themselves, or a wait.
            pub fn interrupt(&self) -> Option<Interrupt> {
                match *self {
                    $(Frame::$frame { $($($field,)*)? } => value_or!(None; $(Some($interrupt))?),)*
                }
            }

            /// Whether the thread can sleep in it, so that it is what the thread slept for.
            pub fn may_sleep(&self) -> bool {
                match *self {
                    $(Frame::$frame { .. } => value_or!(false; $($sleeps)?),)*
                }
            }
        }
    };
}

frames! {
    names;
    /// A system call of a thread of the target.
    Syscall {
        /// Its number.
        nr: u32,
    } => [Syscall "sys" "?"], names.call(nr);
    /// A softirq handler.
    Softirq {
        /// Its vector.
        vec: u8,
        /// Whether the current task caused it itself (it started in process context: a send over loopback or veth, a
        /// lock released); else it followed an interrupt.
        inline: bool,
    } => [Softirq "softirq" "?"], names.of(SOFTIRQS, vec.into()), interrupt = if inline { Interrupt::InlineSoftirq } else { Interrupt::Softirq };
    /// A device interrupt handler.
    Irq {
        /// Its number.
        irq: u32,
    } => [Irq "irq" "?"], Some(irq.to_string()), interrupt = Interrupt::Device;
    /// A system vector: timer, reschedule, call-function.
    Vector {
        /// Which, see [`VECTORS`].
        which: u16,
    } => [Vector "vector" "?"], names.of(VECTORS, which.into()), interrupt = Interrupt::Device;
    /// A function that another core asked this one to run.
    Csd => [Csd "csd" ""], None, interrupt = Interrupt::OtherCore;
    /// A work item of a workqueue.
    Work {
        /// Index into the run's symbols.
        symbol: u32,
    } => [Work "work" ""], names.symbol(symbol);
    /// A packet in a NET_RX softirq, until the next one or the end of the handler.
    Packet {
        /// Whether it belongs to the message's own application.
        own: bool,
        /// The service's port: the local port when own, else the lower of the packet's ports.
        port: u16,
        /// The application that listens on that port: index into the run's symbols, 0 when not known.
        app: u32,
    } => [/** A packet of the message's own application. */ OwnPacket "packet:own" "?" if own]
        [/** A packet of another one. */ Packet "packet" "?"], names.port(port, if own { 0 } else { app }), interrupt = Interrupt::Packet;
    /// Idle in a state of the idle driver.
    IdleState {
        /// The state's index.
        state: u8,
    } => [IdleState "idle-state" "?"], Some(state.to_string());
    /// The thread was runnable and its core was idle: the wake-up had not taken effect (IPI, exit from idle).
    WakePending => [WakePending "wake-pending" ""], None;
    /// Runnable with no core known.
    Runnable => [Runnable "runnable" ""], None;
    /// Asleep in a system call. In another thread's context: the message's thread slept so, and that thread ended it.
    SleepIn {
        /// Its number, `u32::MAX` when not known.
        nr: u32,
        /// Uninterruptible (disk, page, some locks).
        uninterruptible: bool,
        /// Waiting for block I/O.
        io: bool,
    } => [/** Asleep, interruptible. */ Sleep "sleep" "?" if !io && !uninterruptible]
        [/** Asleep, uninterruptible. */ DiskSleep "disk-sleep" "?" if !io]
        [/** Asleep until block I/O is done. */ IoSleep "io-sleep" "?"], names.call(nr);
    /// The kernel stack of a sleep: function names, innermost first, separated by `;`.
    Stack {
        /// Index into the run's symbols.
        symbol: u32,
    } => [Stack "in" "?"], names.innermost(symbol);
    /// Who ended a sleep: a task outside the application.
    WokenBy {
        /// Its name: index into the run's symbols.
        symbol: u32,
    } => [WokenBy "woken-by" "?"], names.symbol(symbol);
    /// The answer of another server was waited for: a packet of its connection ended the wait.
    Peer {
        /// Who: index into the symbols.
        symbol: u32,
        /// That the message asked rests on the order of calls, or is not known. Names and rows are as without it.
        guessed: bool,
    } => [Peer "peer" "?"], names.symbol(symbol);
    /// The turn to ask another server was waited for: as many requests as may go there were under way.
    Turn {
        /// The server: index into the symbols.
        symbol: u32,
        /// As of [`Frame::Peer`].
        guessed: bool,
    } => [Turn "turn" "?"], names.symbol(symbol);
    /// A timer ended the sleep: its call had a time limit.
    Timer {
        /// That the message waited for it all the while is inferred: the thread did other things meanwhile.
        guessed: bool,
    } => [Timer "timer" ""], None;
    /// The thread waited for other clients meanwhile, and nobody is known to have had the message.
    PutAside => [PutAside "put-aside" ""], None;
    /// The task of the message waited until another one or its runtime made it go on, while threads did other things.
    Parked => [Parked "parked" ""], None;
    /// The task of the message was ready to run, and its runtime ran others.
    TaskReady => [TaskReady "task-ready" ""], None;
    /// A job of the message's task was in the queue of the runtime's threads that may block, and these had others.
    JobQueued => [JobQueued "job-queued" ""], None;
    /// Another thread of the application was serving other messages.
    Serving => [Serving "serving" ""], None;
    /// The thread was at its work between two send calls of its reply.
    BetweenSends => [BetweenSends "between-sends" ""], None;
    /// The thread had used the CPU quota of its cgroup up.
    Throttled => [Throttled "throttled" ""], None;
    /// The hypervisor ran somebody else on the core. The amount is exact; the place is the end of the interval without
    /// events that holds it.
    Stolen => [Stolen "stolen" ""], None;
    /// The thread reclaimed memory itself.
    Reclaim {
        /// 0 of the host, 1 of its memory cgroup, 2 compaction.
        which: u8,
    } => [Reclaim "reclaim" "?"], names.of(&RECLAIM_KINDS, which.into()), sleeps = true;
    /// The thread wrote a file to its disk and waited for it (fsync).
    FileSync => [FileSync "file-sync" ""], None, sleeps = true;
    /// The thread waited for a lock of the kernel.
    KernelLock => [KernelLock "kernel-lock" ""], None, sleeps = true;
    /// The bytes were there, but bytes before them were missing: TCP waited for a retransmission, or for packets that
    /// others had overtaken.
    TcpHole => [TcpHole "tcp-hole" ""], None;
    /// The first bytes of the request were there, the last were still on their way to this host.
    RequestArriving => [RequestArriving "request-arriving" ""], None;
    /// A context switch was not seen: which task this was is not known.
    Unseen => [Unseen "unseen" ""], None;
    /// The connection was new: another thread of the application accepted it and handed it on.
    ConnectionSetup => [ConnectionSetup "connection-setup" ""], None;
    /// Stopped by a signal or a tracer.
    Stopped => [Stopped "stopped" ""], None;
    /// The reply waited in the socket or the queueing discipline, after the send call had returned.
    TxQueued => [TxQueued "tx-queued" ""], None;
    /// Between the NIC's receive stamp and the driver.
    NicToDriver => [NicToDriver "nic-to-driver" ""], None;
    /// Between the hand-over to the driver and the NIC's transmit stamp.
    DriverToNic => [DriverToNic "driver-to-nic" ""], None;
    /// The reply waited in its socket: for room in the window of the connection or of the peer, for an acknowledgement
    /// (Nagle), for its turn (pacing). Where the hook of queueing disciplines was on.
    TxSocket => [TxSocket "tx-socket" ""], None;
    /// The reply waited in the queueing discipline.
    TxQdisc => [TxQdisc "tx-qdisc" ""], None;
    /// The reply waited in its socket while the connection repaired a loss of what the application had sent before.
    TxRecovery => [TxRecovery "tx-recovery" ""], None;
    /// The reply was dropped on its way out, and waited until it was sent again.
    TxDropped {
        /// The kernel's reason: index into the run's symbols, 0 when its name is not known.
        symbol: u32,
    } => [TxDropped "tx-dropped" "?"], names.symbol(symbol);
    /// The thread migrated pages to other memory.
    Migrate {
        /// The kernel's `enum migrate_reason`.
        why: u8,
    } => [Migrate "migrate" "?"], names.of(&MIGRATE_REASONS, why.into()), sleeps = true;
    /// The thread was in a function that was traced (`record --uprobe`, `--usdt`, `--function`).
    Function {
        /// Its name: index into the run's symbols.
        symbol: u32,
        /// Whether it is one of the kernel.
        kernel: bool,
    } => [Function "function" "?"], names.symbol(symbol);
    /// What another task of the runtime did that the task of the message waited for. Names and rows are as without it.
    Meanwhile {
        /// What.
        doing: Doing,
        /// Where in the program: a call stack of the run's samples, by number, plus 1; 0: not known.
        stack: u32,
        /// The server whose answer it waited for: index into the run's symbols; 0: none, or not known which.
        server: u32,
    } => [Meanwhile "meanwhile" "?"], Some(doing.name().to_owned());
    /// Where in the program another task ended the wait. Names and rows are as without it.
    MadeReady {
        /// A call stack of the run's samples, by number.
        stack: u32,
    } => [MadeReady "made-ready" ""], None;
    /// Where in the program a thread slept. It says nothing of why: names and rows are as without it.
    Place {
        /// A call stack of the run's samples, by number.
        stack: u32,
    } => [Place "place" ""], None;
}

/// What a task does while another one waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// A thread runs it.
    Runs,
    /// A thread is in the middle of running it, and has no core.
    HasNoCore,
    /// A thread is in the middle of running it, and sleeps in a system call.
    SleepsInCall,
    /// It could run, and no thread runs it yet.
    IsReady,
    /// It sleeps until a time.
    Sleeps,
    /// It waits for another task.
    Waits,
    /// It waits for what comes by a socket, or for a thread that runs no tasks.
    WaitsOutside,
    /// There is no such task: the wait ended because a time had come.
    TimeCame,
    /// Nothing was told of it at that time.
    NotKnown,
}

impl Doing {
    /// As results have it.
    pub fn name(self) -> &'static str {
        match self {
            Doing::Runs => "runs",
            Doing::HasNoCore => "has-no-core",
            Doing::SleepsInCall => "sleeps-in-call",
            Doing::IsReady => "is-ready",
            Doing::Sleeps => "sleeps",
            Doing::Waits => "waits",
            Doing::WaitsOutside => "waits-outside",
            Doing::TimeCame => "time-came",
            Doing::NotKnown => "not-known",
        }
    }
}

impl Frame {
    /// Whether it interrupts the current thread, and stands no further from the device than `up_to`: with [`Interrupt::Device`] handlers
    /// alone, with [`Interrupt::Packet`] everything.
    pub fn is_interrupt(&self, up_to: Interrupt) -> bool {
        self.interrupt().is_some_and(|interrupt| interrupt <= up_to)
    }

    /// Whether it only says where in the program that was: a function of the user's that is traced, or the place of a sleep. What
    /// the time counts to does not depend on it.
    pub fn is_of_program(&self) -> bool {
        matches!(self, Frame::Function { kernel: false, .. }) || self.is_place()
    }

    /// Whether it is no part of what the time counts to, nor of its name: where a thread or task was, and what another task did.
    pub fn is_place(&self) -> bool {
        matches!(self, Frame::Meanwhile { .. } | Frame::MadeReady { .. } | Frame::Place { .. })
    }

    /// The frame as the output names it, e.g. `softirq:net_rx`, `sys:sendmsg`.
    pub fn name(&self, symbols: &[String]) -> String {
        self.named(symbols).to_string()
    }

    /// What it is, and which.
    pub fn named(&self, symbols: &[String]) -> NamedFrame {
        NamedFrame { kind: self.kind(), of: self.which(&Names { symbols }) }
    }
}

impl FrameKind {
    /// Its name, as it begins the names of frames.
    pub fn name(self) -> &'static str {
        self.text().0
    }
}

/// Where the names of what frames are of come from.
struct Names<'a> {
    symbols: &'a [String],
}

impl Names<'_> {
    fn text(&self, symbol: u32) -> Option<&str> {
        self.symbols.get(symbol as usize).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn symbol(&self, symbol: u32) -> Option<String> {
        self.text(symbol).map(str::to_owned)
    }

    /// The innermost function of a stack.
    fn innermost(&self, symbol: u32) -> Option<String> {
        self.text(symbol)?.split(';').next().filter(|function| !function.is_empty()).map(str::to_owned)
    }

    fn call(&self, nr: u32) -> Option<String> {
        (nr != u32::MAX).then(|| syscall_name(nr))
    }

    /// One of a list of the kernel's.
    fn of(&self, list: &[&str], at: usize) -> Option<String> {
        Some(list.get(at).copied().unwrap_or("unknown").to_owned())
    }

    /// A port, and who listens there where that is known.
    fn port(&self, port: u16, app: u32) -> Option<String> {
        match self.text(app).filter(|_| app != 0) {
            Some(app) => Some(format!("{app}:{port}")),
            None => Some(port.to_string()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_called_by_their_kind_and_by_which_they_are() {
        let symbols = ["", "nginx", "do_fsync;vfs_fsync", ""].map(String::from);
        let name = |frame: Frame| frame.name(&symbols);
        let sleep = |io, uninterruptible| Frame::SleepIn { nr: 0, uninterruptible, io };
        assert_eq!(
            [sleep(false, false), sleep(false, true), sleep(true, true)].map(name),
            ["sleep:read", "disk-sleep:read", "io-sleep:read"]
        );
        assert_eq!(name(Frame::SleepIn { nr: u32::MAX, uninterruptible: false, io: true }), "io-sleep:?");
        let packet = |own, app| Frame::Packet { own, port: 80, app };
        assert_eq!(
            [packet(true, 1), packet(false, 1), packet(false, 0)].map(name),
            ["packet:own:80", "packet:nginx:80", "packet:80"]
        );
        assert_eq!([Frame::Stack { symbol: 2 }, Frame::Stack { symbol: 3 }].map(name), ["in:do_fsync", "in:?"]);
        assert_eq!(
            [Frame::Work { symbol: 0 }, Frame::WokenBy { symbol: 0 }, Frame::Csd].map(name),
            ["work", "woken-by:?", "csd"]
        );
        assert_eq!(
            [Frame::Softirq { vec: 3, inline: true }, Frame::Softirq { vec: 99, inline: true }].map(name),
            ["softirq:net_rx", "softirq:unknown"]
        );
    }

    #[test]
    fn what_interrupts_a_thread_stands_in_the_order_of_its_way_from_the_device() {
        let packet = Frame::Packet { own: true, port: 80, app: 0 };
        let softirq = |inline| Frame::Softirq { vec: 3, inline };
        let frames = [Frame::Irq { irq: 1 }, Frame::Csd, softirq(false), softirq(true), packet, Frame::Stolen];
        let up_to = |limit| frames.map(|frame| frame.is_interrupt(limit));
        assert_eq!(up_to(Interrupt::Device), [true, false, false, false, false, false]);
        assert_eq!(up_to(Interrupt::OtherCore), [true, true, false, false, false, false]);
        assert_eq!(up_to(Interrupt::Softirq), [true, true, true, false, false, false]);
        assert_eq!(up_to(Interrupt::Packet), [true, true, true, true, true, false]);
        assert!(Frame::KernelLock.may_sleep() && !Frame::Serving.may_sleep());
    }
}
