//! Finding messages: from packets to receive calls, and from receive calls to replies.
//!
//! TCP is matched exactly by flow and sequence range ([`tcp`]), UDP by a FIFO per socket ([`udp`]), replies by order on the flow
//! ([`replies`], [`continued`], [`udp_replies`], [`udp_queued`], [`udp_order`]). If the run has payload, [`requests`] parses it. Further facts about messages: NIC time stamps
//! ([`nic`]), the transmit side ([`outgoing`]), page faults ([`fault_counts`]), calls to other servers ([`backend_calls`],
//! [`call_owner`]), the order of service ([`overtaken`]), the turns of event loops ([`turns`]), goroutines ([`routines`], [`handlers`]), connections that requests share
//! ([`multiplexed`]), and what follows from the thread timelines ([`stages`]). [`by_thread`] is the order in which each thread received them.

pub mod backend_calls;
pub mod by_thread;
pub mod call_owner;
pub mod continued;
pub mod fault_counts;
pub mod handed_jobs;
pub mod handlers;
pub mod multiplexed;
pub mod nic;
pub mod outgoing;
pub mod overtaken;
mod receive_order;
pub mod relayed;
pub mod reorder;
pub mod replies;
pub mod requests;
pub mod routines;
pub mod slots;
pub mod stages;
pub mod task_runs;
pub mod tcp;
pub mod turns;
pub mod udp;
pub mod udp_order;
pub mod udp_queued;
pub mod udp_replies;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::messages::requests::Framing;
use crate::messages::requests::classes::Classes;
use crate::model::{Incomplete, Message, SentKind};

/// What the walk needs beyond the [`Message`] itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// The core that ran protocol processing.
    pub stack_cpu: u16,
    /// The core of the hand-over to the driver.
    pub xmit_cpu: u16,
    /// The thread that sent the reply.
    pub send_tid: u32,
    /// When the send call had taken the data.
    pub sent_ns: u64,
    /// When the reply's last byte came to a queueing discipline; 0 when that was not recorded.
    pub queued_ns: u64,
    /// In a batch: when the reply before this one was sent; until then its thread worked for others.
    pub own_from_ns: u64,
    /// TCP: the sequence number after the last byte of its reply, when `sent_ns` is known.
    pub reply_end: u32,
    /// Its place in the [`UncommonList`], counted from 1; 0: it is not there.
    pub uncommon: u32,
}

const _: () = assert!(size_of::<Extra>() == 40);

/// What few messages have. Kept apart, so that it takes no memory of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncommon {
    /// While the reply waited in its socket, the connection was repairing a loss.
    pub repairing: bool,
    /// When a packet of the flow was dropped on its way out, between the send call and the hand-over; else 0.
    pub dropped_ns: u64,
    /// Why: the kernel's number of the reason.
    pub drop_reason: u32,
    /// Until when bytes before its own were missing (with `flags::HELD`).
    pub held_until_ns: u64,
    /// A request over several segments: when the last of them was first seen; 0 for others.
    pub arrived_ns: u64,
    /// A request over several receive calls: when the first of them was entered, if it returned nothing else; else 0.
    pub began_ns: u64,
    /// Its reply answers later segments of its connection, too: when the last of them was received; else 0.
    pub last_part_ns: u64,
}

impl Uncommon {
    /// Nothing uncommon.
    pub const NONE: Uncommon = Uncommon {
        repairing: false,
        dropped_ns: 0,
        drop_reason: 0,
        held_until_ns: 0,
        arrived_ns: 0,
        began_ns: 0,
        last_part_ns: 0,
    };
}

/// What few messages have, for those that have it.
#[derive(Clone, Debug, Default)]
pub struct UncommonList(Vec<Uncommon>);

impl UncommonList {
    /// Of a message.
    pub fn of(&self, extra: &Extra) -> &Uncommon {
        (extra.uncommon as usize).checked_sub(1).and_then(|place| self.0.get(place)).unwrap_or(&Uncommon::NONE)
    }

    /// To be filled in for a message.
    pub fn entry(&mut self, extra: &mut Extra) -> &mut Uncommon {
        if extra.uncommon == 0 {
            self.0.push(Uncommon::NONE);
            extra.uncommon = self.0.len() as u32;
        }
        &mut self.0[extra.uncommon as usize - 1]
    }
}

/// Messages found so far, and what was sent beside their replies, in the order of their receive calls.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// The messages; `id` is not final before they are sorted by arrival.
    pub messages: Vec<Message>,
    /// Beside each message.
    pub extras: Vec<Extra>,
    /// What few of the messages have.
    pub uncommon: UncommonList,
    /// Messages that were not followed to a receive call, by reason.
    pub incomplete: BTreeMap<Incomplete, u64>,
    /// Classes of requests.
    pub classes: Classes,
    /// How far requests were framed.
    pub framing: Framing,
    /// What the application sent unasked, or asked of others, each as a message that has a transmit leg only.
    pub sent: Vec<(SentKind, Message, Extra)>,
    /// Connections whose SYN came again.
    pub repeated_connects: RepeatedConnects,
    /// By flow: the times between two send calls of one reply in which its thread went on with it, in order and without overlap.
    pub between_sends: FxHashMap<u32, Vec<(u64, u64)>>,
}

/// Connections of clients whose SYN came again because it was dropped (the queue of connections to be accepted was full), or its answer.
/// Their clients waited meanwhile, which is in no message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatedConnects {
    /// How many.
    pub connections: u64,
    /// From the first SYN of one to its last, the longest, ns.
    pub longest_ns: u64,
}

/// Set in indices of [`Traffic::sent`], to tell them from those of messages.
pub const SENT: u32 = 1 << 31;

impl Traffic {
    /// None yet, with room for so many: what is not used is never touched, and a large table that grows may be moved.
    pub fn with_room(messages: usize) -> Traffic {
        let (messages, extras) = (Vec::with_capacity(messages), Vec::with_capacity(messages));
        Traffic { messages, extras, ..Traffic::default() }
    }

    /// Adds what the application sent by itself and returns its index.
    pub fn send(&mut self, kind: SentKind, message: Message) -> u32 {
        self.sent.push((kind, message, Extra::default()));
        (self.sent.len() as u32 - 1) | SENT
    }

    /// What stands at an index of either list.
    pub fn at(&mut self, index: u32) -> (&mut Message, &mut Extra) {
        if index & SENT == 0 {
            (&mut self.messages[index as usize], &mut self.extras[index as usize])
        } else {
            let (_, message, extra) = &mut self.sent[(index & !SENT) as usize];
            (message, extra)
        }
    }

    /// Adds a message and returns its index.
    pub fn add(&mut self, message: Message, extra: Extra) -> u32 {
        self.messages.push(message);
        self.extras.push(extra);
        self.messages.len() as u32 - 1
    }

    /// Counts a message that could not be followed.
    pub fn lose(&mut self, reason: Incomplete, n: u64) {
        if n > 0 {
            *self.incomplete.entry(reason).or_default() += n;
        }
    }
}

/// A receive call.
#[derive(Clone, Copy, Debug)]
pub struct RecvCall {
    /// When it had its data.
    pub ts: u64,
    /// When it was entered.
    pub entered: u64,
    /// Its core.
    pub cpu: u16,
    /// Its thread.
    pub tid: u32,
}

/// `a - b` for sequence numbers: negative when `a` comes first (RFC 9293 §3.4, modulo 2^32).
pub fn sequence_diff(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}
