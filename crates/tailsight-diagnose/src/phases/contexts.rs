//! Phase 1 (NSight §5.2): program contexts that a minority of the messages has: other tasks, kernel threads, and interrupts. They
//! are not looked into, because the fix does not depend on what they did.

use tailsight_lifetime::{Frame, Interrupt, Owner};
use tailsight_trace::event::NET_RX;

use crate::cause::How;
use crate::rows::attribution::Occurrence;

/// Whether the time was spent in a handler that followed an interrupt, and not on a packet of the application itself.
pub fn is_interrupt(owner: &Owner) -> bool {
    let handler = |f: &Frame| f.is_interrupt(Interrupt::OtherCore);
    let softirq = |f: &Frame| matches!(f, Frame::Softirq { vec, inline: false } if *vec != NET_RX);
    owner.frames.iter().any(|f| handler(f) || softirq(f))
        && !owner.frames.iter().any(|f| matches!(f, Frame::Packet { own: true, .. }))
}

/// A minority of the ordinary messages has it: unexpected; else it is there more often, or longer each time.
pub fn how(met: &Occurrence) -> How {
    if met.usual < 0.5 { How::Unexpected } else { super::functions::how(met) }
}
