//! What the packets tell, in the order in which it happened.
//!
//! Two readers of packets give the same: [`Packets`](super::packets::Packets) is ours, and [`LibiptEvents`](super::libipt_events::LibiptEvents)
//! is Intel's event decoder, whose rules ours follows. Tests compare the two.

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub what: What,
    /// The time-stamp counter when it was told, as far as it is known: 0 before the first packet with one.
    pub tsc: u64,
    /// Whether a packet had one.
    pub has_tsc: bool,
    /// It says again what is known: part of a synchronisation point.
    pub status: bool,
}

/// What is told. An address is `None` where the packet has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Of the next so many conditional branches and compressed returns, whether each is taken: the first is the highest bit.
    Taken {
        /// Bits.
        bits: u64,
        /// How many.
        count: u8,
    },
    /// Where the next indirect branch goes.
    Target(Option<u64>),
    /// Tracing begins there.
    Enabled(Option<u64>),
    /// Tracing ends with the next branch that would need a packet, which goes there.
    Disabled(Option<u64>),
    /// Tracing ends before this instruction.
    DisabledAt(u64),
    /// An interrupt.
    Branch {
        /// Before this instruction.
        from: u64,
        /// Its handler.
        to: Option<u64>,
    },
    /// The next instruction that writes CR3 does so.
    Paging,
    /// CR3 is written at an interrupt.
    PagingAt(Option<u64>),
    /// Packets were lost.
    Overflow(Option<u64>),
    /// Instructions are of this mode: whether it is the one of 64 bits.
    Mode(bool, Option<u64>),
    /// A transaction begins, ends or is aborted: whether it is that.
    Transaction(bool, Option<u64>),
    /// The virtual machine is another.
    MachineAt(Option<u64>),
    /// A filter ended tracing.
    Stop,
    /// The core's frequency.
    Frequency,
    /// What is not told apart here.
    Other,
    /// There is no event.
    None,
}

/// Why there is no further event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The trace ends.
    End,
    /// This reader cannot go on.
    NotHere,
}

/// A reader of packets.
pub trait Events {
    /// Goes on at the next synchronisation point.
    fn synchronise(&mut self) -> Result<(), Over>;
    /// The next event, in place of this one.
    fn next(&mut self, event: &mut Event) -> Result<(), Over>;
    /// Where in the trace the packet is that is used next.
    fn offset(&self) -> Option<u64>;
}

impl Event {
    /// None.
    pub const NONE: Event = Event { what: What::None, tsc: 0, has_tsc: false, status: false };

    /// Where it is to be told: of those that are told at an instruction.
    pub fn place(&self) -> Option<u64> {
        match self.what {
            What::DisabledAt(at) => Some(at),
            What::Branch { from, .. } => Some(from),
            What::Mode(_, ip) | What::Transaction(_, ip) | What::PagingAt(ip) | What::MachineAt(ip) => ip,
            _ => None,
        }
    }
}
