//! Messages, their stages, and the exact partition of their time.
//!
//! A *lifetime* is a message plus the ordered path of (core, from, to) it took, with everything that ran there. Each
//! nanosecond of a leg has one [`Owner`]; the [`Part`]s of a leg sum to the leg exactly.

mod frame;
mod owner;
mod rule;
mod threshold;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use tailsight_kernel::syscalls::{NO_SYSCALL, name as syscall_name};
use tailsight_trace::FlowKey;

pub use frame::{Doing, Frame, FrameKind, Interrupt, NamedFrame};
pub use owner::{Context, Owner, OwnerId, Part, PathSpan, Role, Who};
pub use rule::{Rule, Without};
pub use threshold::{Threshold, ThresholdUnit};

/// A part of a message's way through the host (docs/lifetimes.md; Tales of the Tail, stages T1 to T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
    /// HTTP/2 that was read: frames of its reply are beyond the bytes that were kept of a segment, or in a gap.
    #[serde(rename = "its reply is not in the bytes that were kept")]
    ReplyNotKept,
    /// This host dropped its reply on its way out.
    #[serde(rename = "its reply was dropped by this host")]
    ReplyDropped,
    /// Its send call is missing among the events.
    #[serde(rename = "its send call was not seen")]
    SendNotSeen,
    /// It was received, and the application sent nothing more on its connection: a TLS alert, a client that closed, a reply still to come.
    #[serde(rename = "no reply before its connection or the recording ended")]
    Unanswered,
    /// It was pending when its connection ended.
    #[serde(rename = "not read before the connection ended")]
    ConnectionEnded,
    /// It was pending when the recording ended.
    #[serde(rename = "not received before the recording ended")]
    RecordingEnded,
    /// Many requests share its connection, and no event tells which reply is whose.
    #[serde(rename = "on a connection that many requests share")]
    Multiplexed,
    /// No thread of the target ever read from its flow: another process has it.
    #[serde(rename = "on a flow that the target never read")]
    NeverRead,
    /// It was on its way in an interval in which events were lost.
    #[serde(rename = "on its way while events were lost")]
    EventsLost,
    /// Nearly all messages have the NIC's stamp, at which legs begin or end, and it has none.
    #[serde(rename = "without the NIC's time stamp that the others have")]
    NotStamped,
}

impl Incomplete {
    /// Every reason.
    pub const ALL: [Incomplete; 14] = [
        Incomplete::Dropped,
        Incomplete::TransmitNotSeen,
        Incomplete::PacketsNotSeen,
        Incomplete::ReceiveNotSeen,
        Incomplete::ReplyNotKept,
        Incomplete::ReplyDropped,
        Incomplete::SendNotSeen,
        Incomplete::Unanswered,
        Incomplete::ConnectionEnded,
        Incomplete::RecordingEnded,
        Incomplete::Multiplexed,
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
            Incomplete::ReplyNotKept => "its reply is not in the bytes that were kept",
            Incomplete::Unanswered => "no reply before its connection or the recording ended",
            Incomplete::Multiplexed => "on a connection that many requests share",
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
    /// Of a request: the last part of its answer could be read. 0 also where another request followed on the connection before that.
    pub answered_ns: u64,
}

impl Sent {
    /// From the end of the send call until the answer could be read, ns; 0 when that was before the call had returned.
    pub fn wait_ns(&self) -> Option<u64> {
        (self.answered_ns != 0).then(|| self.answered_ns.saturating_sub(self.sent_ns))
    }

    /// From the send call to the hand-over, ns, when both were seen.
    pub fn transmit_ns(&self) -> Option<u64> {
        (self.send_ns != 0 && self.xmit_ns >= self.send_ns).then(|| self.xmit_ns - self.send_ns)
    }
}

/// One message. Times are CLOCK_MONOTONIC ns, 0 when the stage was not seen.
///
/// What is asked of every message stands at the beginning, in one cache line: a run has hundreds of thousands of messages, and the analysis
/// goes over them a dozen times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Message {
    /// First seen in the stack (Tales T1).
    pub driver_ns: u64,
    /// Socket made readable (T2).
    pub handoff_ns: u64,
    /// The receive call entered.
    pub recv_enter_ns: u64,
    /// The receive call had its data (T4).
    pub recv_ns: u64,
    /// The send call entered (T5).
    pub send_ns: u64,
    /// The last byte was given to the driver (T6).
    pub xmit_ns: u64,
    /// Position in the order of arrival, from 0.
    pub id: u32,
    /// Index into [`crate::Lifetimes::flows`].
    pub flow: u32,
    /// The thread that received it.
    pub tid: u32,
    /// [`flags`].
    pub flags: u16,
    /// With a protocol: index into [`crate::Lifetimes::classes`]; else 0.
    pub class: u16,
    /// Stamped by the NIC as it came in, on CLOCK_MONOTONIC; at most `driver_ns`.
    pub nic_ns: u64,
    /// Entered protocol processing.
    pub stack_ns: u64,
    /// The receiving thread was woken for it; 0 when it was not asleep.
    pub wake_ns: u64,
    /// The receiving thread was on a core (T3).
    pub on_cpu_ns: u64,
    /// The last byte was stamped by the NIC as it went out, on CLOCK_MONOTONIC; at least `xmit_ns`.
    pub nic_tx_ns: u64,
    /// The most that `nic_ns` can be wrong, ns.
    pub nic_error_ns: u32,
    /// The most that `nic_tx_ns` can be wrong, ns.
    pub nic_tx_error_ns: u32,
    /// Payload bytes.
    pub bytes: u32,
    /// With a protocol: bytes of its reply, 0 when that is not known.
    pub reply_bytes: u32,
    /// Messages of the same application that its thread took between this one's hand-off and its receive call.
    pub ahead: u32,
    /// How many messages the same receive call returned (1: this one alone).
    pub batch: u16,
    /// Receive core.
    pub driver_cpu: u16,
    /// Core of the hand-off.
    pub handoff_cpu: u16,
    /// Core of the receive call.
    pub recv_cpu: u16,
}

const _: () = assert!(std::mem::offset_of!(Message, nic_ns) == 64 && size_of::<Message>() == 136);

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
    /// Its reply went on after its thread had turned to other work: it is sent from when its last such part is.
    pub const CONTINUED: u16 = 32768;
}

/// The stages between the stamps T1 to T6 of Tales of the Tail §3.3.1, by the names of [`Message::stages`].
pub const STAGES: [&str; 5] = ["stack", "wake-up", "copy", "application", "transmit"];

impl Message {
    /// How long each of [`STAGES`] took, ns; they sum to the total latency. `None` without one. The wake-up goes to where the
    /// thread was on a core and had entered the receive call, so waiting for its turn is part of it. A stamp that was not seen,
    /// or lies outside its neighbours, is that of the one before.
    pub fn stages(&self) -> Option<[u64; 5]> {
        let (t1, t6) = self.ends(Leg::Total)?;
        let t4 = self.recv_ns.clamp(t1, t6);
        let t5 = self.send_ns.clamp(t4, t6);
        let t2 = self.handoff_ns.clamp(t1, t4);
        let t3 = self.on_cpu_ns.max(self.recv_enter_ns).clamp(t2, t4);
        Some([t2 - t1, t3 - t2, t4 - t3, t5 - t4, t6 - t5])
    }

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

impl Flow {
    /// The remote end of its name, `tcp LOCAL <- REMOTE`.
    pub fn remote(&self) -> &str {
        self.name.split_once(" <- ").map_or(&self.name, |(_, remote)| remote)
    }
}

#[cfg(test)]
mod tests {
    use super::{Incomplete, Leg, Message};

    #[test]
    fn stages_sum_to_the_total_whatever_was_seen() {
        let m = Message {
            driver_ns: 1000,
            handoff_ns: 1010,
            on_cpu_ns: 1040,
            recv_enter_ns: 1045,
            recv_ns: 1050,
            send_ns: 1080,
            xmit_ns: 1100,
            ..Message::default()
        };
        assert_eq!(m.stages(), Some([10, 35, 5, 30, 20]));
        // Already in the receive call when it was woken.
        assert_eq!(Message { recv_enter_ns: 900, ..m }.stages(), Some([10, 30, 10, 30, 20]));
        // Neither the hand-off nor the thread's core was seen.
        let blind = Message { handoff_ns: 0, on_cpu_ns: 0, recv_enter_ns: 0, ..m };
        assert_eq!((blind.stages(), blind.latency(Leg::Total)), (Some([0, 0, 50, 30, 20]), Some(100)));
        assert_eq!(Message { xmit_ns: 0, ..m }.stages(), None);
    }

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
