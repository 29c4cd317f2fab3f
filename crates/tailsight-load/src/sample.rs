//! The records of a load. Times are CLOCK_MONOTONIC ns.

use serde::{Deserialize, Serialize};

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Status {
    /// Answered as expected.
    Ok = 0,
    /// A valid answer without the requested item: no such key, HTTP 404.
    Miss = 1,
    /// The server reported an error.
    Error = 2,
    /// An answer to something else, or a value that is not the one stored.
    Wrong = 3,
    /// The connection ended before the answer did.
    Closed = 4,
    /// The bytes received were not the protocol's; the connection was closed.
    Garbage = 5,
    /// A datagram that was not answered in time.
    Lost = 6,
    /// Not answered by the end of the drain.
    Unanswered = 7,
}

impl Status {
    /// All of them, by number.
    pub const ALL: [Self; 8] =
        [Self::Ok, Self::Miss, Self::Error, Self::Wrong, Self::Closed, Self::Garbage, Self::Lost, Self::Unanswered];

    /// Whether a reply came, of whatever kind.
    #[must_use]
    pub fn is_answered(self) -> bool {
        (self as u8) < Self::Closed as u8
    }
}

/// The times of one request that was chosen for the sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was due.
    pub intended_ns: u64,
    /// The clock just before the call that sent its last byte; 0 when it was never sent whole.
    pub called_ns: u64,
    /// When its last byte left: the NIC's stamp; else, when it went to the device, the kernel's stamp; else
    /// [`Sample::called_ns`].
    pub sent_ns: u64,
    /// When the bytes that completed its reply came: the NIC's stamp; else, when they came from the device, the kernel's
    /// stamp; else the clock after the call that read them; 0 without a reply.
    pub received_ns: u64,
    /// Its connection, counted over all threads.
    pub connection: u32,
    /// Status and [flags](Sample::SENT_STAMPED).
    pub flags: u32,
    /// By how much [`Sample::received_ns`] may be too late, ns, where [`Sample::SHARED_STAMP`] is set; else 0.
    pub shared_ns: u32,
}

impl Sample {
    /// `sent_ns` is the NIC's stamp ([`Sample::SENT_STAMPED`] is set too).
    pub const SENT_HARDWARE: u32 = 1 << 6;
    /// `received_ns` is the NIC's stamp ([`Sample::RECEIVED_STAMPED`] is set too).
    pub const RECEIVED_HARDWARE: u32 = 1 << 7;
    /// `sent_ns` is a stamp, the kernel's unless [`Sample::SENT_HARDWARE`] is set.
    pub const SENT_STAMPED: u32 = 1 << 8;
    /// `received_ns` is a stamp, the kernel's unless [`Sample::RECEIVED_HARDWARE`] is set.
    pub const RECEIVED_STAMPED: u32 = 1 << 9;
    /// Later bytes were read with the reply's last byte. The kernel gives one stamp for all bytes of a read, that of the last, so
    /// `received_ns` may be late, by [`Sample::shared_ns`] at most: back to the last time at which there was nothing to read on
    /// the connection, or to when the request was sent.
    pub const SHARED_STAMP: u32 = 1 << 10;
    /// A stamp was impossible (a clock was set, or a device makes wrong stamps) and was not used.
    pub const STAMP_REFUSED: u32 = 1 << 11;
    /// The request left with others in one call.
    pub const SENT_TOGETHER: u32 = 1 << 12;
    /// It stored a value.
    pub const IS_SET: u32 = 1 << 13;
    /// It waited because every connection had its limit outstanding.
    pub const BLOCKED: u32 = 1 << 14;
    /// Flags above this bit are the measurement window's number, modulo 65536.
    pub const WINDOW_SHIFT: u32 = 16;

    /// Its result.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::ALL[(self.flags & 7) as usize]
    }

    /// From due to answered, ns: the latency in an open system. `None` without a reply.
    #[must_use]
    pub fn response_ns(&self) -> Option<u64> {
        (self.received_ns > 0).then(|| self.received_ns.saturating_sub(self.intended_ns))
    }

    /// From sent to answered, ns, without the client's own lateness. `None` without a reply.
    #[must_use]
    pub fn service_ns(&self) -> Option<u64> {
        (self.received_ns > 0).then(|| self.received_ns.saturating_sub(self.sent_ns))
    }

    /// The client's own lateness by its clock at the send call, ns. `None` when it was never sent.
    #[must_use]
    pub fn lateness_ns(&self) -> Option<u64> {
        (self.called_ns > 0).then(|| self.called_ns.saturating_sub(self.intended_ns))
    }

    /// The client's and its kernel's lateness by the stamp, ns. `None` without a stamp.
    #[must_use]
    pub fn stamped_lateness_ns(&self) -> Option<u64> {
        (self.flags & Self::SENT_STAMPED != 0).then(|| self.sent_ns.saturating_sub(self.intended_ns))
    }

    /// The measurement window in which it was chosen, modulo 65536.
    #[must_use]
    pub fn window(&self) -> u16 {
        (self.flags >> Self::WINDOW_SHIFT) as u16
    }
}

/// A request that was sent, whether in the sample or not: consecutive ones show how the arrivals came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// When it was due.
    pub intended_ns: u64,
    /// The clock just before the call that sent it.
    pub called_ns: u64,
}

/// What a thread did in an interval of the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began.
    pub start_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// Requests that the rate asks of this thread in it, on average (not what the schedule drew); 0 in a closed loop.
    pub target: f64,
    /// Requests sent.
    pub sent: u64,
    /// Replies that came, of whatever kind.
    pub answered: u64,
    /// Requests that ended without a good reply: errors, wrong replies, closed connections, lost datagrams.
    pub failed: u64,
    /// The largest lateness of a send, ns.
    pub late_max_ns: u64,
    /// CPU time of the thread, ns.
    pub cpu_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_their_numbers() {
        for (i, status) in Status::ALL.into_iter().enumerate() {
            let sample = Sample {
                intended_ns: 10,
                called_ns: 12,
                sent_ns: 13,
                received_ns: 20,
                connection: 0,
                flags: i as u32 | Sample::SENT_STAMPED | 7 << Sample::WINDOW_SHIFT,
                shared_ns: 0,
            };
            assert_eq!((status as usize, sample.status(), sample.window()), (i, status, 7));
            assert_eq!((sample.response_ns(), sample.service_ns()), (Some(10), Some(7)));
            assert_eq!((sample.lateness_ns(), sample.stamped_lateness_ns()), (Some(2), Some(3)));
        }
    }
}
