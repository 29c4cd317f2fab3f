//! When the recorder's sampling clock interrupted a core, and what that cost.
//!
//! In: the samples of a run, ticks that took none among them, and the measured cost of one. Out: for each core the times of these
//! ticks, which the scan meets in order. Times are CLOCK_MONOTONIC ns.

use tailsight_trace::meta::Sampling;
use tailsight_trace::samples::{SampleRow, kind};

/// The samples of the clock, by core.
#[derive(Clone, Debug, Default)]
pub struct SampleClock {
    /// In the order of time.
    cores: Vec<Vec<u64>>,
    /// Mean time that one took, ns.
    pub ns_per_sample: u16,
}

impl SampleClock {
    /// Of a run's samples on cores below `cpus`; a sample of a sleep is no interrupt's.
    pub fn new(rows: &[SampleRow], sampling: Option<&Sampling>, cpus: u16) -> SampleClock {
        let mut cores = vec![Vec::new(); usize::from(cpus)];
        for row in rows.iter().filter(|row| row.kind != kind::SLEEP) {
            if let Some(core) = cores.get_mut(usize::from(row.cpu)) {
                core.push(row.ts_ns);
            }
        }
        cores.iter_mut().for_each(|core| core.sort_unstable());
        let ns = sampling.and_then(|s| s.ns_per_sample).unwrap_or(0.0);
        SampleClock { cores, ns_per_sample: ns.round().clamp(0.0, f64::from(u16::MAX)) as u16 }
    }

    /// The samples of a core that are still to be met.
    pub fn of_core(&self, cpu: usize) -> Pending<'_> {
        Pending(self.cores.get(cpu).map_or(&[], Vec::as_slice))
    }
}

/// Samples of a core that the scan has not come to yet.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a>(&'a [u64]);

impl Pending<'_> {
    /// The next one, when it was before `ts` or at it.
    pub fn until(&mut self, ts: u64) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        (first <= ts).then(|| {
            self.0 = rest;
            first
        })
    }
}
