//! Records of a load as messages and back. In: samples, sends, interval rows. Out: columns in chunks below gRPC's limit.

use serde::{Deserialize, Serialize};
use tailsight_load::{Complaint, Counts, Histogram, Interval, Outcome, Sample, Send, StampSource, Treatment};

use crate::proto;

/// The protocol's number: raised when an older side would misunderstand a newer one.
pub(crate) const PROTOCOL: u32 = 2;
/// Rows a chunk: 44 bytes each stay far below the 4 MiB of a gRPC message.
const ROWS: usize = 16_384;
/// Largest message that is accepted: a replay of some million requests.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;

/// Records, in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    /// Requests of the sample.
    pub samples: Vec<Sample>,
    /// Consecutive sends in the order due.
    pub sends: Vec<Send>,
    /// (thread, what it did in an interval).
    pub intervals: Vec<(u32, Interval)>,
}

/// The result of a load of one agent. Times are CLOCK_MONOTONIC ns of the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// When the schedule began.
    pub start_ns: u64,
    /// When the last thread stopped sending.
    pub end_ns: u64,
    /// Requests, counted.
    pub counts: Counts,
    /// The client's own lateness, ns.
    pub lateness: Histogram,
    /// The part of it in which the threads were idle and woke too late, ns.
    #[serde(default)]
    pub overslept: Histogram,
    /// How the scheduler treated each loading thread.
    pub threads: Vec<Treatment>,
    /// Where its time stamps come from; absent from older agents.
    #[serde(default)]
    pub stamps: Option<StampSource>,
    /// The largest error of the comparison of the agent's own clocks, ns.
    pub clock_error_ns: u64,
    /// What was wrong.
    pub complaints: Vec<Complaint>,
}

impl From<&Outcome> for Summary {
    fn from(outcome: &Outcome) -> Self {
        Self {
            start_ns: outcome.start_ns,
            end_ns: outcome.end_ns,
            counts: outcome.counts,
            lateness: outcome.lateness.clone(),
            overslept: outcome.overslept.clone(),
            threads: outcome.threads.iter().map(|t| t.treatment).collect(),
            stamps: outcome.stamps(),
            clock_error_ns: outcome.threads.iter().map(|t| t.clock_error_ns).max().unwrap_or(0),
            complaints: outcome.complaints.clone(),
        }
    }
}

fn samples(rows: &[Sample]) -> proto::Samples {
    proto::Samples {
        intended_ns: rows.iter().map(|s| s.intended_ns).collect(),
        called_ns: rows.iter().map(|s| s.called_ns).collect(),
        sent_ns: rows.iter().map(|s| s.sent_ns).collect(),
        received_ns: rows.iter().map(|s| s.received_ns).collect(),
        connection: rows.iter().map(|s| s.connection).collect(),
        flags: rows.iter().map(|s| s.flags).collect(),
        shared_ns: rows.iter().map(|s| s.shared_ns).collect(),
    }
}

fn sends(rows: &[Send]) -> proto::Sends {
    proto::Sends {
        intended_ns: rows.iter().map(|s| s.intended_ns).collect(),
        called_ns: rows.iter().map(|s| s.called_ns).collect(),
    }
}

fn interval((thread, row): &(u32, Interval)) -> proto::Interval {
    proto::Interval {
        thread: *thread,
        start_ns: row.start_ns,
        duration_ns: row.duration_ns,
        target: row.target,
        sent: row.sent,
        answered: row.answered,
        failed: row.failed,
        late_max_ns: row.late_max_ns,
        cpu_ns: row.cpu_ns,
    }
}

/// Messages that together hold the records, in order; none for none.
pub(crate) fn chunks(records: &Records) -> Vec<proto::Records> {
    let mut chunks = Vec::new();
    for rows in records.samples.chunks(ROWS) {
        chunks.push(proto::Records { samples: Some(samples(rows)), ..proto::Records::default() });
    }
    for rows in records.sends.chunks(ROWS) {
        chunks.push(proto::Records { sends: Some(sends(rows)), ..proto::Records::default() });
    }
    for rows in records.intervals.chunks(ROWS) {
        chunks.push(proto::Records { intervals: rows.iter().map(interval).collect(), ..proto::Records::default() });
    }
    chunks
}

impl Records {
    /// Appends a message; false when its columns are not of equal length.
    pub(crate) fn take(&mut self, message: proto::Records) -> bool {
        let s = message.samples.unwrap_or_default();
        let rows = s.intended_ns.len();
        let lengths = [s.called_ns.len(), s.sent_ns.len(), s.received_ns.len(), s.connection.len(), s.flags.len()];
        let t = message.sends.unwrap_or_default();
        let shared = s.shared_ns.len();
        if lengths.iter().any(|n| *n != rows)
            || shared != 0 && shared != rows
            || t.intended_ns.len() != t.called_ns.len()
        {
            return false;
        }
        self.samples.extend((0..rows).map(|i| Sample {
            intended_ns: s.intended_ns[i],
            called_ns: s.called_ns[i],
            sent_ns: s.sent_ns[i],
            received_ns: s.received_ns[i],
            connection: s.connection[i],
            flags: s.flags[i],
            // An older agent reports only that a stamp was shared: nothing came before the request.
            shared_ns: match s.shared_ns.get(i) {
                Some(ns) => *ns,
                None if s.flags[i] & Sample::SHARED_STAMP == 0 => 0,
                None => u32::try_from(s.received_ns[i].saturating_sub(s.called_ns[i])).unwrap_or(u32::MAX),
            },
        }));
        let pairs = t.intended_ns.into_iter().zip(t.called_ns);
        self.sends.extend(pairs.map(|(intended_ns, called_ns)| Send { intended_ns, called_ns }));
        self.intervals.extend(message.intervals.into_iter().map(|row| {
            let interval = Interval {
                start_ns: row.start_ns,
                duration_ns: row.duration_ns,
                target: row.target,
                sent: row.sent,
                answered: row.answered,
                failed: row.failed,
                late_max_ns: row.late_max_ns,
                cpu_ns: row.cpu_ns,
            };
            (row.thread, interval)
        }));
        true
    }

    /// Moves all times by this, ns: from the agent's clock to the coordinator's. 0 (never sent, no reply) stays 0.
    pub(crate) fn shift(&mut self, by_ns: i64) {
        let shift = |ns: &mut u64| {
            if *ns > 0 {
                *ns = ns.wrapping_add_signed(by_ns);
            }
        };
        for sample in &mut self.samples {
            [&mut sample.intended_ns, &mut sample.called_ns, &mut sample.sent_ns, &mut sample.received_ns]
                .into_iter()
                .for_each(shift);
        }
        for send in &mut self.sends {
            shift(&mut send.intended_ns);
            shift(&mut send.called_ns);
        }
        self.intervals.iter_mut().for_each(|(_, row)| shift(&mut row.start_ns));
    }
}

/// The items of `all` (in any order) that are not in `given`, each as many times as it occurs more often.
pub(crate) fn not_given(mut all: Vec<Sample>, mut given: Vec<(u64, u32)>) -> Vec<Sample> {
    all.sort_unstable_by_key(|s| (s.intended_ns, s.connection));
    given.sort_unstable();
    let mut given = given.into_iter().peekable();
    all.retain(|s| {
        let is_given = given.peek() == Some(&(s.intended_ns, s.connection));
        if is_given {
            given.next();
        }
        !is_given
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;

    fn sample(intended_ns: u64, connection: u32) -> Sample {
        Sample {
            intended_ns,
            called_ns: intended_ns + 1,
            sent_ns: 7,
            received_ns: 0,
            connection,
            flags: 3 << 8,
            shared_ns: connection * 7,
        }
    }

    proptest! {
        #[test]
        fn records_survive_the_wire(n in 0..40_000_usize, sends in 0..40_000_u64, rows in 0..100_u32) {
            let records = Records {
                samples: (0..n).map(|i| sample(i as u64 * 3, i as u32 % 16)).collect(),
                sends: (0..sends).map(|i| Send { intended_ns: i, called_ns: i + 5 }).collect(),
                intervals: (0..rows).map(|i| (i % 3, Interval { start_ns: u64::from(i), target: 0.5, ..Interval::default() })).collect(),
            };
            let mut read = Records::default();
            for chunk in chunks(&records) {
                let bytes = chunk.encode_to_vec();
                prop_assert!(bytes.len() < 4 << 20);
                prop_assert!(read.take(proto::Records::decode(&bytes[..]).unwrap()));
            }
            prop_assert_eq!(read, records);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            if let Ok(message) = proto::Records::decode(&bytes[..]) {
                let _ = Records::default().take(message);
            }
        }

        #[test]
        fn what_is_left_and_what_was_given_is_all(times in proptest::collection::vec((0..50_u64, 0..3_u32), 0..200), split in 0..200_usize) {
            let samples: Vec<Sample> = times.iter().map(|(t, c)| sample(*t, *c)).collect();
            let given: Vec<(u64, u32)> = times.iter().take(split).copied().collect();
            let left = not_given(samples.clone(), given.clone());
            let mut sum: Vec<(u64, u32)> = left.iter().map(|s| (s.intended_ns, s.connection)).chain(given).collect();
            sum.sort_unstable();
            let mut times = times;
            times.sort_unstable();
            prop_assert_eq!(sum, times);
        }
    }

    #[test]
    fn columns_of_unequal_length_are_refused() {
        let uneven = proto::Samples { intended_ns: vec![1], ..proto::Samples::default() };
        assert!(!Records::default().take(proto::Records { samples: Some(uneven), ..proto::Records::default() }));
    }

    #[test]
    fn times_move_and_absent_ones_stay_absent() {
        let mut records = Records { samples: vec![sample(100, 0)], ..Records::default() };
        records.shift(-40);
        let moved = records.samples[0];
        assert_eq!((moved.intended_ns, moved.called_ns, moved.received_ns), (60, 61, 0));
    }

    /// An older agent reports that a stamp is shared, but not by how much it may be late: then it is the whole service time.
    #[test]
    fn a_shared_stamp_of_an_older_agent_is_bounded_by_its_request() {
        let shared =
            Sample { called_ns: 100, received_ns: 900, flags: Sample::SHARED_STAMP, shared_ns: 5, ..sample(90, 0) };
        let alone = Sample { flags: 0, shared_ns: 0, ..shared };
        let mut message = chunks(&Records { samples: vec![shared, alone], ..Records::default() }).remove(0);
        message.samples.as_mut().unwrap().shared_ns.clear();
        let mut read = Records::default();
        assert!(read.take(message));
        assert_eq!(read.samples.iter().map(|s| s.shared_ns).collect::<Vec<_>>(), [800, 0]);
    }
}
