//! Control flow block by block: from packets and code to the next instructions that ran.
//!
//! Three ways to the same, the fastest first. [`Cached`] follows the code between packets by blocks that it disassembles once ([`code`]), and
//! reads packets by [`Packets`], or by Intel's event decoder ([`LibiptEvents`]). [`Libipt`] is Intel's block decoder, which decodes
//! instructions anew at each taken branch and each call. Ours know what occurs all the time; whatever else is in a piece of trace, they leave
//! the whole piece to the next one ([`Lost::NotHere`]). Tests compare them, step by step.

mod cached;
mod clock;
pub mod code;
mod events;
pub mod images;
mod libipt_blocks;
mod libipt_events;
mod packets;
#[cfg(test)]
mod tests;

use std::ops::Range;

use libipt::error::PtError;
use libipt::insn::Class;

pub use cached::Cached;
pub use clock::Clocks;
pub use libipt_blocks::Libipt;
pub use libipt_events::LibiptEvents;
pub use packets::Packets;

use crate::spaces::Spaces;

/// Instructions that ran one behind the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// The first.
    pub ip: u64,
    /// The last.
    pub end: u64,
    /// How many.
    pub instructions: u64,
    /// What the last one is; `None`: an indirect jump of any kind.
    pub class: Option<Class>,
}

/// What the packets tell beside branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Tracing begins there.
    Enabled {
        /// Where.
        ip: u64,
    },
    /// Tracing ends with the last instruction.
    Disabled,
    /// Tracing ends before an instruction.
    DisabledAt {
        /// Which.
        ip: u64,
    },
    /// An interrupt.
    Interrupted {
        /// Before this instruction.
        from: u64,
        /// Its handler.
        to: u64,
    },
    /// Packets were lost.
    Overflow,
    /// What changes nothing here.
    Other,
}

/// A [`Happening`] with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedHappening {
    /// The time-stamp counter, where it is known.
    pub tsc: Option<u64>,
    /// It says again what is known: part of a synchronisation point.
    pub status: bool,
    /// What.
    pub what: Happening,
}

/// Why it does not go on.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// Intel's decoder says why.
    Because(PtError),
    /// This decoder does not know what is there: another one has to decode this piece.
    NotHere,
}

impl From<PtError> for Lost {
    fn from(error: PtError) -> Lost {
        Lost::Because(error)
    }
}

/// A decoder of blocks. Whatever returns a truth value says whether [`Blocks::told`] is to be called next.
pub trait Blocks {
    /// Goes on at the next synchronisation point.
    fn synchronise(&mut self) -> Result<bool, Lost>;
    /// What is told here.
    fn told(&mut self, spaces: &mut Spaces<'_>) -> Result<(TimedHappening, bool), Lost>;
    /// The next block; of no instructions, where something is told first. May be several at once as long as jumps lead from one to the
    /// next, and all are `within` a function.
    fn block(&mut self, spaces: &mut Spaces<'_>, within: &Range<u64>) -> Result<(Block, bool), Lost>;
    /// Where the next block begins, if it is known and of use.
    fn ip(&self) -> Option<u64>;
    /// The latest time-stamp counter of the packets that were used; `None`: none had one yet.
    fn time(&mut self) -> Option<u64>;
    /// Where in the trace it reads.
    fn offset(&self) -> Option<u64>;
    /// The code is that of this address space from now on.
    fn look_into(&mut self, spaces: &mut Spaces<'_>, space: usize);
}
