//! A request in flight, from its send to its sample. In: what was sent, what the reply says. Out: counts and samples.

use tailsight_protocol::reply::{Reply, Status as ReplyStatus};

use crate::http::GoodStatuses;
use crate::sample::{Sample, Status};
use crate::thread_log::{Stamp, ThreadLog};

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
    /// Its stamp, as far as it has come.
    pub(crate) stamp: Stamp,
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

/// What a reply says. `good`: of HTTP, the status codes that are hoped for.
pub(crate) fn status(reply: &Reply, good: Option<&GoodStatuses>) -> Status {
    if let Some(good) = good
        && !matches!(reply.status, ReplyStatus::Wrong(_))
    {
        return if good.contains(reply.code) { Status::Ok } else { Status::Error };
    }
    match reply.status {
        ReplyStatus::Ok => Status::Ok,
        ReplyStatus::Miss => Status::Miss,
        ReplyStatus::Error(_) => Status::Error,
        ReplyStatus::Wrong(_) => Status::Wrong,
    }
}

/// What is known of the arrival time of a reply.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrival {
    /// The clock after the call that read them; 0: there is no reply.
    pub(crate) now: u64,
    /// The stamp of the last byte of that read.
    pub(crate) stamp: Stamp,
    /// Whether later bytes came in that read, and the time before which none of it had come.
    pub(crate) shared_since: Option<u64>,
}

/// Ends a request: counts it and, if it is in the sample, puts it into the batch.
#[inline]
pub(crate) fn end(pending: &mut Pending, log: &mut ThreadLog, status: Status, arrival: Arrival, connection: u32) {
    let (now, received) = (arrival.now, arrival.stamp);
    log.ended(status);
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
        shared_ns: 0,
    };
    if pending.stamp != Stamp::default() {
        apply_send_stamp(&mut sample, pending.stamp, log);
    }
    if received != Stamp::default() {
        let possible = log.stamp_between(received, sample.called_ns, now);
        if let Some((at, nic)) = possible {
            sample.received_ns = at;
            sample.flags |= Sample::RECEIVED_STAMPED | if nic { Sample::RECEIVED_HARDWARE } else { 0 };
        }
        sample.flags |= refused(received, possible);
    }
    if let Some(since) = arrival.shared_since {
        // Nor did it come before it was requested.
        let earliest = since.max(sample.called_ns);
        sample.shared_ns = u32::try_from(sample.received_ns.saturating_sub(earliest)).unwrap_or(u32::MAX);
        sample.flags |= Sample::SHARED_STAMP;
    }
    let due = (flags & STAMP_DUE != 0).then_some(pending.stamp_id);
    log.batch.push((sample, due));
}

/// Replaces the clock's time by a stamp, if it is possible: not before the call, not after the reply. The NIC's and the
/// kernel's may come one after the other, in any order.
pub(crate) fn apply_send_stamp(sample: &mut Sample, stamp: Stamp, log: &ThreadLog) {
    let latest = if sample.received_ns > 0 { sample.received_ns } else { u64::MAX };
    let possible = log.stamp_between(stamp, sample.called_ns, latest);
    if let Some((at, nic)) = possible.filter(|(_, nic)| *nic || sample.flags & Sample::SENT_HARDWARE == 0) {
        sample.sent_ns = at;
        sample.flags |= Sample::SENT_STAMPED | if nic { Sample::SENT_HARDWARE } else { 0 };
    }
    sample.flags |= refused(stamp, possible);
}

/// Sets the flag if there was an impossible stamp, the NIC's even if the kernel's was used instead.
fn refused(stamp: Stamp, used: Option<(u64, bool)>) -> u32 {
    let nic_used = matches!(used, Some((_, true)));
    if used.is_none() || stamp.nic_ns > 0 && !nic_used { Sample::STAMP_REFUSED } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;
    use crate::nic::Nics;
    use crate::stamps::Raw;
    use crate::thread_log::{Control, Published};
    use crate::{Plan, Protocol};
    use std::sync::Arc;

    /// A log with a NIC whose clock is CLOCK_REALTIME.
    fn log() -> ThreadLog {
        let plan = Plan::new("127.0.0.1:1".parse().unwrap(), Protocol::Echo);
        let mut log = ThreadLog::new(&plan, Arc::new(Control::default()), Arc::new(Published::new(&plan)));
        log.nics = Nics::simulated();
        log
    }

    /// Times are ns after the call; a stamp of `None` is not there.
    fn raw(log: &ThreadLog, called: u64, wall: Option<i64>, nic: Option<i64>) -> Raw {
        let real =
            |ns: Option<i64>| ns.map_or(0, |ns| called.wrapping_add_signed(ns).wrapping_add(log.wall.offset.offset_ns));
        Raw { wall_ns: real(wall), nic_ns: real(nic) }
    }

    const SENT: u32 = Sample::SENT_STAMPED;
    const HARD: u32 = Sample::SENT_STAMPED | Sample::SENT_HARDWARE;
    const REFUSED: u32 = Sample::STAMP_REFUSED;

    #[test]
    fn the_nics_stamp_is_taken_where_it_is_possible_else_the_kernels_else_the_clock() {
        let mut log = log();
        let called_ns = now_ns();
        let received_ns = called_ns + 10_000_000;
        let second = 1_000_000_000;
        let [wall, nic] = [Some(1_000_000), Some(2_000_000)];
        // (stamps in the order in which they come, ns after the call that is taken, flags)
        type Case<'a> = (&'a [(Option<i64>, Option<i64>)], u64, u32);
        let cases: [Case<'_>; 9] = [
            (&[(wall, None)], 1_000_000, SENT),
            (&[(None, nic)], 2_000_000, HARD),
            (&[(wall, nic)], 2_000_000, HARD),
            (&[(wall, None), (None, nic)], 2_000_000, HARD),
            (&[(None, nic), (wall, None)], 2_000_000, HARD),
            // Before the call, or after the reply: by another clock, or set.
            (&[(wall, None), (None, Some(-second))], 1_000_000, SENT | REFUSED),
            (&[(wall, Some(20_000_000))], 1_000_000, SENT | REFUSED),
            (&[(None, Some(20_000_000))], 0, REFUSED),
            // Too far off to be converted at all.
            (&[(wall, Some(100 * second))], 1_000_000, SENT),
        ];
        for (stamps, expected_ns, flags) in cases {
            let mut sample =
                Sample { intended_ns: called_ns, called_ns, sent_ns: called_ns, received_ns, ..Sample::default() };
            for (wall, nic) in stamps {
                let raw = raw(&log, called_ns, *wall, *nic);
                let stamp = log.placed(Some(0), raw);
                apply_send_stamp(&mut sample, stamp, &log);
            }
            let off = sample.sent_ns.abs_diff(called_ns + expected_ns);
            assert_eq!(sample.flags, flags, "{stamps:?}");
            assert!(off <= log.nics.error_ns() + 2 * log.wall.offset.error_ns + 2, "{stamps:?}: {off}");
            // Both at once, as a request that was answered later has them, comes to the same.
            let at_once = stamps.iter().fold(Stamp::default(), |sum, (wall, nic)| {
                let raw = raw(&log, called_ns, *wall, *nic);
                sum.or(log.placed(Some(0), raw))
            });
            let mut again = Sample { sent_ns: called_ns, flags: 0, ..sample };
            apply_send_stamp(&mut again, at_once, &log);
            assert_eq!(again.flags, sample.flags, "{stamps:?}");
        }
    }

    #[test]
    fn a_reply_gets_the_nics_stamp_and_a_lane_without_a_nic_ignores_it() {
        let mut log = log();
        let called_ns = now_ns();
        let raw = raw(&log, called_ns, Some(3_000_000), Some(2_000_000));
        for (nic, at_ns, flags) in [
            (Some(0), 2_000_000, Sample::RECEIVED_STAMPED | Sample::RECEIVED_HARDWARE),
            (None, 3_000_000, Sample::RECEIVED_STAMPED),
        ] {
            let mut pending = Pending { called_ns, flags: BUSY | SAMPLED, ..Pending::default() };
            let received = log.placed(nic, raw);
            let arrival = Arrival { now: called_ns + 10_000_000, stamp: received, shared_since: None };
            end(&mut pending, &mut log, Status::Ok, arrival, 0);
            let (sample, due) = log.batch.pop().unwrap();
            assert_eq!((sample.flags, sample.status(), due), (flags, Status::Ok, None));
            let off = sample.received_ns.abs_diff(called_ns + at_ns);
            assert!(off <= log.nics.error_ns() + 2 * log.wall.offset.error_ns + 2, "{off}");
        }
    }

    /// A reply that was read with later bytes has their stamp: it came between the last time at which nothing was there to read, or
    /// its own request, and that.
    #[test]
    fn a_shared_stamp_is_bounded_by_when_there_was_nothing_to_read() {
        let mut log = log();
        let called_ns = now_ns();
        for (since, shared_ns, flags) in [
            (None, 0, 0),
            (Some(called_ns + 4_000), 6_000, Sample::SHARED_STAMP),
            (Some(called_ns - 5_000), 10_000, Sample::SHARED_STAMP),
        ] {
            let mut pending = Pending { called_ns, flags: BUSY | SAMPLED, ..Pending::default() };
            let arrival = Arrival { now: called_ns + 10_000, shared_since: since, ..Arrival::default() };
            end(&mut pending, &mut log, Status::Ok, arrival, 0);
            let (sample, _) = log.batch.pop().unwrap();
            assert_eq!((sample.shared_ns, sample.flags), (shared_ns, flags), "{since:?}");
        }
    }
}
