//! What the pass knows of a TCP connection of the target.

use crate::messages::Found;
use crate::messages::replies::Replies;
use crate::messages::requests::flow::Framed;
use crate::messages::tcp::Receiver;
use crate::model::Incomplete;

#[derive(Default)]
pub(super) struct TcpFlow {
    pub(super) index: Option<u32>,
    /// The sequence number of the last SYN.
    pub(super) opened: Option<u32>,
    /// Opened, and nothing received yet.
    pub(super) new: bool,
    pub(super) receiver: Receiver,
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
}

impl TcpFlow {
    /// A SYN: the same ports carry a new connection with sequence numbers of its own, unless it is the same SYN again.
    pub(super) fn opened(&mut self, seq: u32, found: &mut Found) {
        if self.opened.replace(seq) != Some(seq) {
            self.end(Incomplete::ConnectionEnded, found);
            self.framed = None;
            self.receiver = Receiver::default();
            self.replies = Replies::default();
            (self.sent_ns, self.full, self.pushing) = (0, false, false);
            self.new = true;
        }
    }

    pub(super) fn end(&mut self, why: Incomplete, found: &mut Found) {
        if let Some(framed) = &mut self.framed {
            framed.end(found);
        }
        self.receiver.end(why, found);
        self.replies.end(found);
    }
}
