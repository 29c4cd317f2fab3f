//! How late a client is, seen from outside: when its requests arrived against when its schedule says that they were due.
//! In: segments as they came by the server's interface, the client's schedule. Out: lateness, ns.
//!
//! A schedule at a fixed rate is a line: request k is due at c + k × gap. The rate is known, c is not: it is chosen so that
//! the most punctual request is on time, c = min over k of (arrival k − k × gap). The time that every request takes to the
//! interface cancels. So a client whose best request is late too looks better than it is, and none looks worse. Schedules
//! that are drawn have known times instead of a line, and c is found in the same way.

use std::collections::HashMap;

/// A TCP segment with data.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// When it arrived, ns.
    pub at_ns: u64,
    /// The client's port: which connection.
    pub port: u16,
    /// The sequence number of its first byte.
    pub seq: u32,
    /// Bytes of data.
    pub len: u32,
    /// Where in the data requests begin, bytes, rising.
    pub starts: Vec<u32>,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// When it arrived, ns.
    pub at_ns: u64,
    /// Its place among all: when it, or what was sent behind it on its connection, arrived. They differ where a segment was lost.
    pub place_ns: u64,
    /// Which connection.
    pub port: u16,
}

/// The requests of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrivals {
    /// In the order in which they were sent, as far as it shows.
    pub all: Vec<Arrival>,
    /// Segments that were seen before: sent again although they had arrived.
    pub repeated: u64,
    /// Segments that came behind later ones: lost at first, or overtaken.
    pub out_of_order: u64,
    /// Bytes that never came by.
    pub missing: u64,
}

/// A part of a stream that was passed over: its bytes, and when that showed.
struct Hole {
    from: u32,
    to: u32,
    seen_ns: u64,
}

/// What is known of a connection.
struct Stream {
    next: u32,
    holes: Vec<Hole>,
}

/// The requests in segments that stand in the order of their arrival. A request counts when its first byte arrives, once.
pub fn arrivals(segments: &[Segment]) -> Arrivals {
    let mut requests = Arrivals::default();
    let mut streams: HashMap<u16, Stream> = HashMap::new();
    for segment in segments {
        let stream = streams.entry(segment.port).or_insert_with(|| Stream { next: segment.seq, holes: Vec::new() });
        let end = segment.seq.wrapping_add(segment.len);
        // Sequence numbers wrap: what counts is how far they are apart.
        let ahead = segment.seq.wrapping_sub(stream.next).cast_signed();
        let beyond = end.wrapping_sub(stream.next).cast_signed();
        let starts = || segment.starts.iter().map(|start| segment.seq.wrapping_add(*start));
        let mut push = |place_ns| requests.all.push(Arrival { at_ns: segment.at_ns, place_ns, port: segment.port });
        if ahead > 0 {
            stream.holes.push(Hole { from: stream.next, to: segment.seq, seen_ns: segment.at_ns });
        }
        let mut new = beyond > 0;
        for start in starts() {
            if start.wrapping_sub(stream.next).cast_signed() >= 0 {
                push(segment.at_ns);
            } else if let Some(hole) = stream.holes.iter().find(|hole| within(start, hole)) {
                push(hole.seen_ns);
            }
        }
        if ahead < 0 {
            let before: u32 = stream.holes.iter().map(Hole::len).sum();
            stream.holes = stream.holes.drain(..).flat_map(|hole| hole.without(segment.seq, end)).collect();
            let filled = stream.holes.iter().map(Hole::len).sum::<u32>() < before;
            requests.out_of_order += u64::from(filled);
            new |= filled;
        }
        requests.repeated += u64::from(!new);
        if beyond > 0 {
            stream.next = end;
        }
    }
    requests.missing = streams.values().flat_map(|stream| &stream.holes).map(|hole| u64::from(hole.len())).sum();
    // Stable: requests of one segment keep their order.
    requests.all.sort_by_key(|arrival| arrival.place_ns);
    requests
}

fn within(byte: u32, hole: &Hole) -> bool {
    byte.wrapping_sub(hole.from) < hole.len()
}

impl Hole {
    fn len(&self) -> u32 {
        self.to.wrapping_sub(self.from)
    }

    /// What is left of it when the bytes from `from` to `to` have come.
    fn without(self, from: u32, to: u32) -> Vec<Self> {
        let place = |seq: u32| i64::from(seq.wrapping_sub(self.from).cast_signed()).clamp(0, i64::from(self.len()));
        let (cut, end) = (place(from) as u32, place(to) as u32);
        let part = |from: u32, to: u32| Self {
            from: self.from.wrapping_add(from),
            to: self.from.wrapping_add(to),
            seen_ns: self.seen_ns,
        };
        if cut >= end {
            return vec![self];
        }
        [part(0, cut), part(end, self.len())].into_iter().filter(|hole| hole.len() > 0).collect()
    }
}

/// When requests are due.
#[derive(Debug, Clone)]
pub enum Line {
    /// One every so many ns, over all connections.
    All(f64),
    /// One every so many ns on each connection, from a start of its own.
    Each(f64),
    /// At these times, ns, from a start that is not known; some requests may come before the first.
    Times(Vec<u64>),
}

/// How late the requests of a run were.
#[derive(Debug, Clone, PartialEq)]
pub struct Lateness {
    /// Of each request, ns, ascending.
    late_ns: Vec<f64>,
    /// By how much the client's clock or rate runs slower than the schedule: what the most punctual requests of the last
    /// fifth are later than those of the first, over the time between. 1e-6 is a microsecond a second.
    pub drift: f64,
}

/// Requests that may come before the first of a drawn schedule (connections are tried out).
const BEFORE_SCHEDULE: usize = 64;
/// Fewer requests than this have no line.
const FEWEST_REQUESTS: usize = 100;

impl Lateness {
    /// `arrivals` in the order in which they were sent. The first `skip_ns` are left out: programs start slowly. `None` when there
    /// are too few.
    pub fn of(arrivals: &[Arrival], line: &Line, skip_ns: u64) -> Option<Self> {
        let from = arrivals.first()?.place_ns + skip_ns;
        // Times less their schedule, with the time: the line's start is not taken away yet.
        let groups: Vec<Vec<(u64, f64)>> = match line {
            Line::All(gap) => vec![against(arrivals.iter().filter(|a| a.place_ns >= from), *gap)],
            Line::Each(gap) => {
                let mut ports: HashMap<u16, Vec<&Arrival>> = HashMap::new();
                for arrival in arrivals.iter().filter(|a| a.place_ns >= from) {
                    ports.entry(arrival.port).or_default().push(arrival);
                }
                ports.into_values().map(|own| against(own.into_iter(), *gap)).collect()
            }
            Line::Times(due) => {
                let mut group = aligned(arrivals, due)?;
                group.retain(|(at, _)| *at >= from);
                vec![group]
            }
        };
        let count: usize = groups.iter().map(Vec::len).sum();
        if count < FEWEST_REQUESTS {
            return None;
        }
        let (mut late_ns, mut drifts) = (Vec::with_capacity(count), Vec::new());
        for group in &groups {
            let start = least(group)?;
            late_ns.extend(group.iter().map(|(_, off)| off - start));
            drifts.extend(drift(group));
        }
        late_ns.sort_unstable_by(f64::total_cmp);
        drifts.sort_unstable_by(f64::total_cmp);
        Some(Self { late_ns, drift: drifts.get(drifts.len() / 2).copied().unwrap_or(0.0) })
    }

    /// A percentile (0 to 1), us.
    pub fn us(&self, q: f64) -> f64 {
        let n = self.late_ns.len();
        self.late_ns[((q * n as f64).ceil() as usize).clamp(1, n) - 1] / 1e3
    }
}

/// Arrivals less k × gap; relative to the first, since nanoseconds since 1970 are too many for a float.
fn against<'a>(arrivals: impl Iterator<Item = &'a Arrival>, gap: f64) -> Vec<(u64, f64)> {
    let mut zero = None;
    let off = |(k, arrival): (usize, &Arrival)| {
        let zero = *zero.get_or_insert(arrival.at_ns);
        (arrival.place_ns, (i128::from(arrival.at_ns) - i128::from(zero)) as f64 - k as f64 * gap)
    };
    arrivals.enumerate().map(off).collect()
}

/// Arrivals less their due times. How many requests came before the schedule is found: with the right number, the differences
/// vary least (between their quartiles).
fn aligned(arrivals: &[Arrival], due: &[u64]) -> Option<Vec<(u64, f64)>> {
    let zero = arrivals.first()?.at_ns;
    let with = |before: usize| -> Vec<(u64, f64)> {
        let pairs = arrivals.iter().skip(before).zip(due);
        pairs.map(|(a, due)| (a.place_ns, (i128::from(a.at_ns) - i128::from(zero) - i128::from(*due)) as f64)).collect()
    };
    let spread = |group: &[(u64, f64)]| {
        let mut offs: Vec<f64> = group.iter().map(|(_, off)| *off).collect();
        offs.sort_unstable_by(f64::total_cmp);
        offs[offs.len() * 3 / 4] - offs[offs.len() / 4]
    };
    let most = BEFORE_SCHEDULE.min(arrivals.len().saturating_sub(FEWEST_REQUESTS));
    (0..=most)
        .map(with)
        .filter(|group| !group.is_empty())
        .map(|group| (spread(&group), group))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, group)| group)
}

fn least(group: &[(u64, f64)]) -> Option<f64> {
    group.iter().map(|(_, off)| *off).min_by(f64::total_cmp)
}

/// See [`Lateness::drift`]. `None` for groups that are too small.
fn drift(group: &[(u64, f64)]) -> Option<f64> {
    let fifth = group.len() / 5;
    let (first, last) = (group.get(..fifth)?, group.get(group.len() - fifth..)?);
    let earliest = |part: &[(u64, f64)]| part.iter().min_by(|a, b| a.1.total_cmp(&b.1)).copied();
    let ((from, a), (to, b)) = (earliest(first)?, earliest(last)?);
    (to > from).then(|| (b - a) / (to - from) as f64)
}

/// How far apart requests arrive: the median gap and its 99.9th percentile, us.
pub fn gaps_us(arrivals: &[Arrival], skip_ns: u64) -> Option<(f64, f64)> {
    let from = arrivals.first()?.at_ns + skip_ns;
    let mut times: Vec<u64> = arrivals.iter().map(|a| a.at_ns).filter(|at| *at >= from).collect();
    times.sort_unstable();
    let mut gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let at = |q: f64| gaps.get(((q * gaps.len() as f64).ceil() as usize).max(1) - 1).map(|ns| *ns as f64 / 1e3);
    Some((at(0.5)?, at(0.999)?))
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
