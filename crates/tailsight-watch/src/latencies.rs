//! Messages by leg and class of latency: eight classes for each power of two, so that a percentile is known to an eighth.

/// A part of a message's time that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// From the driver until the server begins to send the reply.
    Total,
    /// From the driver until the server has received it.
    Receive,
    /// From there until the server begins to send the reply.
    Service,
}

impl Leg {
    /// In the order in which the recorder's programs have them.
    pub const ALL: [Leg; 3] = [Leg::Total, Leg::Receive, Leg::Service];

    /// As commands and outputs have it.
    pub fn name(self) -> &'static str {
        match self {
            Leg::Total => "total",
            Leg::Receive => "receive",
            Leg::Service => "service",
        }
    }
}

/// For each leg, in the order of [`Leg::ALL`]: a message that takes longer than so many ns is slow. None: whatever it takes.
pub type Limits = [Option<u64>; Leg::ALL.len()];

/// Classes of latency; those beyond eight minutes are in the last.
pub const LATENCY_CLASSES: usize = 320;

/// Messages by leg and class of latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyCounts {
    legs: [Vec<u64>; Leg::ALL.len()],
}

impl Default for LatencyCounts {
    fn default() -> LatencyCounts {
        LatencyCounts { legs: std::array::from_fn(|_| vec![0; LATENCY_CLASSES]) }
    }
}

impl LatencyCounts {
    /// Counts a message.
    pub fn add(&mut self, leg: Leg, ns: u64) {
        self.add_to_class(leg, class_of(ns), 1);
    }

    /// Adds messages of a class, which is below [`LATENCY_CLASSES`].
    pub fn add_to_class(&mut self, leg: Leg, class: usize, messages: u64) {
        if let Some(count) = self.legs[leg as usize].get_mut(class) {
            *count += messages;
        }
    }

    /// Those that came since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &LatencyCounts) -> LatencyCounts {
        let of_leg = |leg: usize| {
            let pairs = self.legs[leg].iter().zip(&earlier.legs[leg]);
            pairs.map(|(now, before)| now.saturating_sub(*before)).collect()
        };
        LatencyCounts { legs: std::array::from_fn(of_leg) }
    }

    /// Adds those of another time.
    pub fn add_all(&mut self, other: &LatencyCounts) {
        for (own, others) in self.legs.iter_mut().zip(&other.legs) {
            own.iter_mut().zip(others).for_each(|(count, other)| *count += other);
        }
    }

    /// Messages.
    pub fn messages(&self) -> u64 {
        self.legs[Leg::Total as usize].iter().sum()
    }

    /// The quantile (0 to 1) of a leg, ns, as if the messages of a class lay evenly in it. None without messages.
    pub fn quantile(&self, leg: Leg, quantile: f64) -> Option<u64> {
        let classes = &self.legs[leg as usize];
        let messages: u64 = classes.iter().sum();
        // The small term keeps 0.999 * 1000 from becoming rank 1000 through the last bit of the product.
        let rank = ((quantile * messages as f64 - 1e-6).ceil().max(1.0)) as u64;
        let mut below = 0;
        let (class, count) = classes.iter().copied().enumerate().find(|(_, count)| {
            below += count;
            below >= rank && messages > 0
        })?;
        let (lower, upper) = (class.checked_sub(1).map_or(0, upper_ns), upper_ns(class));
        let part = (rank + count - below) as f64 / count as f64;
        Some(lower + (part * (upper - lower) as f64) as u64)
    }

    /// Of each class of a leg that has messages: its upper end, ns, and how many.
    pub fn classes(&self, leg: Leg) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.legs[leg as usize].iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(class, count)| (upper_ns(class), count))
    }
}

/// The class of a latency.
fn class_of(ns: u64) -> usize {
    if ns < 8 {
        return ns as usize;
    }
    let power = ns.ilog2() as usize;
    ((power - 2) * 8 + ((ns >> (power - 3)) & 7) as usize).min(LATENCY_CLASSES - 1)
}

/// The largest latency of a class, ns.
fn upper_ns(class: usize) -> u64 {
    if class < 8 {
        return class as u64;
    }
    let shift = class / 8 - 1;
    ((8 + class as u64 % 8 + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_is_in_the_class_that_ends_at_or_above_it() {
        for ns in (0..5_000).chain((3..47).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let class = class_of(ns);
            if class + 1 < LATENCY_CLASSES {
                let upper = upper_ns(class);
                assert!(upper >= ns && upper <= ns + ns / 8, "{ns}: class {class} ends at {upper}");
                assert!(class == 0 || upper_ns(class - 1) < ns, "{ns}: class {class}");
            }
        }
    }

    #[test]
    fn a_quantile_is_of_the_time_that_is_asked_for_and_lies_in_its_class() {
        let mut before = LatencyCounts::default();
        (0..500).for_each(|_| before.add(Leg::Total, 40_000_000));
        let mut now = before.clone();
        (1..=1_000).for_each(|us| now.add(Leg::Total, us * 1_000));
        let since = now.since(&before);
        assert_eq!(since.messages(), 1_000);
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            let (exact, counted) = ((quantile * 1_000_000.0) as u64, since.quantile(Leg::Total, quantile).unwrap());
            assert!(counted.abs_diff(exact) <= exact / 16, "{quantile}: {counted}");
        }
        assert_eq!(LatencyCounts::default().quantile(Leg::Total, 0.5), None);
        assert_eq!(now.quantile(Leg::Receive, 0.5), None);
        // The slowest of one class: a limit at its upper end would have none beyond it.
        assert!(before.quantile(Leg::Total, 0.5).is_some_and(|ns| ns < 40_000_000));
        let mut sum = before.clone();
        sum.add_all(&since);
        assert_eq!(sum, now);
    }
}
