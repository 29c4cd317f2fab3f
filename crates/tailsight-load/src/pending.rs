//! A request in flight, from its send to its sample. In: what was sent, what the reply says. Out: counts and samples.

use tailsight_protocol::reply::{Reply, Status as ReplyStatus};

use crate::lane::Lane;
use crate::sample::{Sample, Status};

/// Internal flags of a request in flight, in the bits of a sample's flags that are not the status.
pub(crate) const BUSY: u32 = 1 << 3;
pub(crate) const SAMPLED: u32 = 1 << 4;
pub(crate) const STAMP_DUE: u32 = 1 << 5;
pub(crate) const INTERNAL: u32 = 0xff;

/// A request in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pending {
    pub(crate) intended_ns: u64,
    /// The clock before the call that sent its last byte; 0 while that has not happened.
    pub(crate) called_ns: u64,
    /// Its kernel stamp, CLOCK_REALTIME; 0 without one.
    pub(crate) stamp_wall_ns: u64,
    /// Offset of its end in the stream of requests, bytes.
    pub(crate) end: u64,
    /// What its kernel stamp will be numbered.
    pub(crate) stamp_id: u32,
    pub(crate) flags: u32,
}

/// Where the request of a wire id is: HTTP/2 streams are 1, 3, 5, … on each connection, all others are the numbers
/// themselves, cut to 16 bits or more.
#[inline]
pub(crate) fn slot_finder(first_stream: Option<u64>, mask: usize) -> impl Fn(u64) -> usize {
    move |id| first_stream.map_or(id, |first| first.wrapping_add(id >> 1)) as usize & mask
}

pub(crate) fn status(reply: &Reply) -> Status {
    match reply.status {
        ReplyStatus::Ok => Status::Ok,
        ReplyStatus::Miss => Status::Miss,
        ReplyStatus::Error(_) => Status::Error,
        ReplyStatus::Wrong(_) => Status::Wrong,
    }
}

/// Ends a request: counts it and, if it is in the sample, puts it into the batch. `now` 0: there is no reply.
#[inline]
pub(crate) fn end(
    pending: &mut Pending,
    lane: &mut Lane,
    status: Status,
    now: u64,
    wall: Option<u64>,
    connection: u32,
) {
    lane.ended(status);
    let flags = pending.flags;
    pending.flags = 0;
    if flags & SAMPLED == 0 {
        return;
    }
    let mut sample = Sample {
        intended_ns: pending.intended_ns,
        called_ns: pending.called_ns,
        sent_ns: pending.called_ns,
        received_ns: now,
        connection,
        flags: flags & !INTERNAL | status as u32,
    };
    if pending.stamp_wall_ns != 0 {
        apply_send_stamp(&mut sample, pending.stamp_wall_ns, lane);
    }
    if let Some(wall) = wall {
        match lane.stamp_between(wall, sample.called_ns, now) {
            Some(stamp) => {
                sample.received_ns = stamp;
                sample.flags |= Sample::RECEIVED_STAMPED;
            }
            None => sample.flags |= Sample::STAMP_REFUSED,
        }
        // The one before shares this read's stamp with this one.
        if let Some((before, _)) = lane.batch.last_mut() {
            before.flags |= Sample::SHARED_STAMP;
        }
    }
    let due = (flags & STAMP_DUE != 0).then_some(pending.stamp_id);
    lane.batch.push((sample, due));
}

/// Puts a kernel stamp in the place of the clock, if it is possible: not before the call, not after the reply.
pub(crate) fn apply_send_stamp(sample: &mut Sample, wall_ns: u64, lane: &Lane) {
    let latest = if sample.received_ns > 0 { sample.received_ns } else { u64::MAX };
    match lane.stamp_between(wall_ns, sample.called_ns, latest) {
        Some(stamp) => {
            sample.sent_ns = stamp;
            sample.flags |= Sample::SENT_STAMPED;
        }
        None => sample.flags |= Sample::STAMP_REFUSED,
    }
}
