//! What the pass knows of a TCP connection of the target.

use std::ops::Range;

use crate::messages::multiplexed::Segments;
use crate::messages::replies::{Replies, SendCall};
use crate::messages::requests::flow::Framed;
use crate::messages::tcp::Receiver;
use crate::messages::{RecvCall, SENT, Traffic};
use crate::model::{Incomplete, Threshold};

#[derive(Default)]
pub(super) struct TcpFlow {
    pub(super) index: Option<u32>,
    /// The sequence number of the last SYN, and when it came first.
    pub(super) opened: Option<(u32, u64)>,
    /// It came again.
    repeated: bool,
    /// Opened, and nothing received yet.
    pub(super) new: bool,
    pub(super) receiver: Receiver,
    /// What its segments begin like.
    pub(super) segments: Segments,
    pub(super) replies: Replies,
    /// With a protocol, instead of `replies`.
    pub(super) framed: Option<Box<Framed>>,
    /// The device that its last packet went out by.
    pub(super) ifindex: u32,
    /// The end of the last send call.
    pub(super) sent_ns: u64,
    /// At that, the send buffer was full: more of the same is to come.
    pub(super) full: bool,
    /// That call answered nobody.
    pub(super) pushing: bool,
    /// What was sent unasked when a part of a message had been received.
    early: Option<EarlyReply>,
    /// A message with what was sent before its end was received: its reply if no other one follows.
    replied_early: Option<(u32, EarlyReply)>,
}

/// What may be the reply to a message of which only a part was received. Some servers read the end of a request after their reply: php-fpm
/// the last record of FastCGI.
#[derive(Clone, Copy)]
struct EarlyReply {
    /// The last receive call before it.
    received: RecvCall,
    first: SendCall,
    last: SendCall,
    /// The indices in [`Traffic::sent`] of the first send call and of the last one.
    sent: (u32, u32),
}

impl TcpFlow {
    /// A SYN: the same ports carry a new connection with sequence numbers of its own, unless it is the same SYN again.
    pub(super) fn opened(&mut self, seq: u32, ts: u64, traffic: &mut Traffic) {
        if let Some((_, first_ns)) = self.opened.filter(|&(last, _)| last == seq) {
            // At once it is the same packet, at another place of the stack.
            let waited_ns = ts.saturating_sub(first_ns);
            if waited_ns >= Threshold::SynRepeated.ns() {
                let repeated = &mut traffic.repeated_connects;
                repeated.connections += u64::from(!std::mem::replace(&mut self.repeated, true));
                repeated.longest_ns = repeated.longest_ns.max(waited_ns);
            }
        } else {
            self.opened = Some((seq, ts));
            self.repeated = false;
            self.end(Incomplete::ConnectionEnded, ts, traffic);
            self.framed = None;
            self.receiver = Receiver::default();
            self.replies = Replies::default();
            (self.sent_ns, self.full, self.pushing) = (0, false, false);
            self.new = true;
        }
    }

    /// A send call answers nothing; `index`: what it sends, in [`Traffic::sent`].
    pub(super) fn unasked(&mut self, call: SendCall, index: u32, traffic: &mut Traffic) {
        self.replies.unasked(call, index, traffic);
        if let Some(received) = self.receiver.part() {
            let (first, from) = self.early.map_or((call, index), |early| (early.first, early.sent.0));
            self.early = Some(EarlyReply { received, first, last: call, sent: (from, index) });
        }
    }

    /// A receive call returned these messages, of which there is at least one.
    pub(super) fn received(&mut self, messages: Range<u32>, traffic: &mut Traffic) {
        self.replied_early = None;
        // Looked at first: these are large, and nearly always there is none.
        if self.early.is_some() {
            self.replied_early = self.early.take().filter(|_| messages.len() == 1).map(|early| (messages.start, early));
        }
        self.replies.received(messages, traffic);
    }

    /// No other reply can follow to what was received until now.
    pub(super) fn settle(&mut self, traffic: &mut Traffic) {
        let Some((message, early)) = self.replied_early.take() else { return };
        if self.replies.unanswered() == Some(message) {
            self.replies.owes_none();
            let (_, sent, last) = &traffic.sent[(early.sent.1 & !SENT) as usize];
            let (xmit_ns, xmit_cpu) = (sent.xmit_ns, last.xmit_cpu);
            let (message, extra) = traffic.at(message);
            let flow = message.flow;
            let RecvCall { ts, entered, cpu, tid } = early.received;
            (message.recv_ns, message.recv_enter_ns, message.recv_cpu, message.tid) = (ts, entered, cpu, tid);
            (message.send_ns, message.xmit_ns) = (early.first.entered.max(ts), xmit_ns);
            (extra.send_tid, extra.sent_ns) = (early.last.tid, early.last.ts);
            (extra.reply_end, extra.xmit_cpu) = (early.last.end, xmit_cpu);
            for index in early.sent.0..=early.sent.1 {
                let (_, sent, extra) = &mut traffic.sent[(index & !SENT) as usize];
                if sent.flow == flow && extra.send_tid == early.last.tid {
                    sent.send_ns = 0; // No push.
                }
            }
        }
    }

    pub(super) fn end(&mut self, why: Incomplete, ended_ns: u64, traffic: &mut Traffic) {
        if let Some(framed) = &mut self.framed {
            framed.end(traffic);
            if let Some(bytes) = framed.alert_bytes() {
                self.receiver.forget(bytes);
            }
        }
        self.settle(traffic);
        self.receiver.end(why, ended_ns, traffic);
        self.replies.end(traffic);
    }
}
