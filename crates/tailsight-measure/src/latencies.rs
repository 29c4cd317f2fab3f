//! The latencies that a verdict is about. In: samples. Out: the latency of each, ns, in time order.

use crate::measure::Row;
use crate::question::Latency;

/// The latencies that a verdict is about, in time order, ns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latencies {
    /// By the stamps of the replies.
    pub latest_ns: Vec<f64>,
    /// By the earliest times at which the replies can have come; `None` where no reply shared its stamp.
    pub earliest_ns: Option<Vec<f64>>,
}

impl Latencies {
    /// Whether every reply has a stamp of its own.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.earliest_ns.is_none()
    }

    /// By the earliest times.
    #[must_use]
    pub fn earliest(&self) -> &[f64] {
        self.earliest_ns.as_deref().unwrap_or(&self.latest_ns)
    }
}

/// The latencies that a verdict is about.
#[must_use]
pub fn latencies(rows: &[Row], latency: Latency) -> Latencies {
    let good = || {
        let in_result = rows.iter().filter(|r| r.in_result);
        in_result.filter_map(|r| Some((crate::batch::latency_ns(&r.sample, latency)? as f64, r.sample.shared_ns)))
    };
    let latest_ns = good().map(|(ns, _)| ns).collect();
    let any_shared = good().any(|(_, shared_ns)| shared_ns > 0);
    let earliest = || good().map(|(ns, shared_ns)| (ns - f64::from(shared_ns)).max(0.0)).collect();
    Latencies { latest_ns, earliest_ns: any_shared.then(earliest) }
}
