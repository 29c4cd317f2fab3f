//! From what agents recorded to what the method reads. In: [`Records`] and the window in which they were made. Out: [`Batch`].
//!
//! A window is the time between two calls of [`record`](crate::Load::record). At its edges some threads record already (or
//! still) while others do not, so sends within [`EDGE_NS`] of an edge are left out; rows count when they lie inside.

use tailsight_load::{Interval, Sample, Send as Sent, Status};
use tailsight_stats::method::{self, AgentBatch, Batch, Slice};

use crate::load::Records;
use crate::question::Latency;

/// What is left out of the sends at both ends of a window, ns.
const EDGE_NS: u64 = 5_000_000;

/// A time in which requests were recorded, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Window {
    fn holds(&self, row: &Interval) -> bool {
        row.start_ns >= self.from_ns && row.start_ns + row.duration_ns <= self.to_ns
    }

    fn meets(&self, row: &Interval) -> bool {
        row.start_ns < self.to_ns && row.start_ns + row.duration_ns > self.from_ns
    }
}

/// Whether a sample has a latency of the server: it was answered, as hoped or with "there is none".
pub(crate) fn is_good(sample: &Sample) -> bool {
    matches!(sample.status(), Status::Ok | Status::Miss) && sample.received_ns > 0
}

/// The latency under study, ns.
pub(crate) fn latency_ns(sample: &Sample, latency: Latency) -> Option<u64> {
    if !is_good(sample) {
        return None;
    }
    match latency {
        Latency::Response => sample.response_ns(),
        Latency::Service => sample.service_ns(),
    }
}

/// The rows of a window as the method's slices.
pub(crate) fn slices(rows: &[Interval], window: Window) -> Vec<Slice> {
    let slice = |row: &Interval| Slice {
        duration_ns: row.duration_ns,
        target: row.target.round() as u64,
        sent: row.sent,
        answered: row.answered,
    };
    rows.iter().filter(|row| window.holds(row)).map(slice).collect()
}

/// What all agents recorded in a window.
pub(crate) fn batch(
    records: &[Records],
    window: Window,
    latency: Latency,
    sampling_rate: f64,
    one_clock: bool,
) -> Batch {
    let agents = records.iter().map(|r| agent(r, window, latency)).collect();
    Batch { agents, sampling_rate, one_clock }
}

fn agent(records: &Records, window: Window, latency: Latency) -> AgentBatch {
    let inner = window.from_ns + EDGE_NS..window.to_ns.saturating_sub(EDGE_NS);
    let send = |s: &Sent| method::Send { intended_ns: s.intended_ns as i64, sent_ns: s.called_ns as i64 };
    let sends: Vec<method::Send> = records.sends.iter().filter(|s| inner.contains(&s.intended_ns)).map(send).collect();
    let sample = |s: &Sample| {
        latency_ns(s, latency).map(|ns| method::Sample {
            intended_ns: s.intended_ns as i64,
            // Not the kernel's stamp: the way through the kernel takes as long for a client that is on time.
            sent_ns: s.called_ns as i64,
            latency_ns: ns as f64,
            shared_ns: s.shared_ns,
            agent: 0,
        })
    };
    let met = || records.intervals.iter().filter(|row| window.meets(row));
    AgentBatch {
        agent: records.agent.clone(),
        windows: if sends.is_empty() { Vec::new() } else { vec![sends] },
        samples: records.samples.iter().filter_map(sample).collect(),
        slices: slices(&records.intervals, window),
        requests: met().map(|row| row.sent).sum(),
        failed: met().map(|row| row.failed).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(intended_ns: u64, status: Status) -> Sample {
        Sample {
            intended_ns,
            called_ns: intended_ns + 2,
            sent_ns: intended_ns + 3,
            received_ns: intended_ns + 50,
            connection: 0,
            flags: status as u32,
            shared_ns: 30,
        }
    }

    #[test]
    fn a_batch_holds_what_lies_in_its_window() {
        let ms = 1_000_000;
        let row = |start: u64| Interval {
            start_ns: start * ms,
            duration_ns: 100 * ms,
            target: 10.4,
            sent: 10,
            answered: 9,
            failed: 1,
            ..Interval::default()
        };
        let records = Records {
            agent: "a".into(),
            samples: vec![sample(5, Status::Ok), sample(6, Status::Error), sample(7, Status::Miss)],
            sends: (0..40).map(|i| Sent { intended_ns: i * 10 * ms, called_ns: i * 10 * ms + 7 }).collect(),
            intervals: vec![row(0), row(100), row(200), row(300)],
        };
        let window = Window { from_ns: 50 * ms, to_ns: 310 * ms };
        let batch = batch(&[records], window, Latency::Service, 0.2, true);
        let agent = &batch.agents[0];
        assert_eq!(agent.slices.len(), 2, "only whole rows are slices");
        assert_eq!((agent.requests, agent.failed), (40, 4), "requests of cut rows count");
        assert_eq!(agent.slices[0].target, 10);
        assert_eq!(agent.windows.len(), 1);
        let sends = &agent.windows[0];
        assert_eq!((sends[0].intended_ns, sends[sends.len() - 1].intended_ns), (60 * ms as i64, 300 * ms as i64));
        assert_eq!(agent.samples.len(), 2, "an error is no latency");
        assert_eq!((agent.samples[0].latency_ns, agent.samples[0].shared_ns), (47.0, 30));
        let late = agent.samples[0].sent_ns - agent.samples[0].intended_ns;
        assert_eq!(late, 2, "what the kernel took to send is not the client's lateness");
    }
}
