//! What a fix would buy: the latencies had a cause been absent, by serving the recorded messages again without its time.
//!
//! In: when each message arrived, was answered by its thread and left, and when in between which cause held it. Out: percentiles of the
//! latencies without one cause, ns, with bootstrap intervals.
//!
//! Each thread serves its messages in the order in which it answered them. A message's own time begins when it has arrived and
//! its thread has answered the message before it; what a cause had of it before that, it had through that message, and goes with
//! it. After its answer a message holds nobody up. So Lindley's recursion gives back the measured latencies when nothing is taken
//! out, and what a cause did to those queued behind goes too when it is. What does not go: cold caches that it left, retries, and
//! work that it moved to other threads.

use std::collections::BTreeMap;

use rand::RngExt;
use tailsight_queue::predict::name;
use tailsight_queue::{Rng, Sorted, needed, rng};

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Served {
    id: u32,
    arrival: u64,
    /// Its own time until its answer, and from there to its end, ns.
    own: u64,
    after: u64,
}

/// The messages of a run, ready to be served again.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// By thread, in the order of service.
    threads: Vec<Vec<Served>>,
    /// By message: when its own time began, and when it was answered; 0 of those that are not in it.
    times: Vec<(u64, u64)>,
    /// By cause: message, and its parts of the message's own time and of that after its answer, ns, in any order.
    parts: Vec<Vec<(u32, u64, u64)>>,
    messages: usize,
}

/// One message as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its id.
    pub id: u32,
    /// What it queued for: a thread, or a core where several threads share one.
    pub chain: u32,
    /// When it arrived, ns; above 0.
    pub arrival: u64,
    /// When its thread answered it, ns.
    pub answered: u64,
    /// When its reply was gone, ns.
    pub end: u64,
}

/// Latencies without a cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Percentiles, ns.
    pub latency_ns: BTreeMap<String, u64>,
    /// Their 95 % bootstrap intervals over blocks of consecutive messages, ns.
    pub ci95_ns: BTreeMap<String, [u64; 2]>,
}

/// Resamples of a bootstrap, and blocks of messages in each.
const ROUNDS: usize = 200;
const BLOCKS: usize = 256;

impl Replay {
    /// Of these messages and so many causes.
    #[must_use]
    pub fn new(mut messages: Vec<Recorded>, causes: usize) -> Self {
        messages.sort_by_key(|m| (m.chain, m.answered, m.id));
        let places = messages.iter().map(|m| m.id as usize + 1).max().unwrap_or(0);
        let mut out = Self {
            times: vec![(0, 0); places],
            parts: vec![Vec::new(); causes],
            messages: messages.len(),
            ..Self::default()
        };
        for of_thread in messages.chunk_by(|a, b| a.chain == b.chain) {
            let mut before = 0;
            let mut served = Vec::with_capacity(of_thread.len());
            for m in of_thread {
                let begin = m.arrival.max(before).min(m.answered);
                out.times[m.id as usize] = (begin, m.answered);
                let (own, after) = (m.answered - begin, m.end.saturating_sub(m.answered));
                served.push(Served { id: m.id, arrival: m.arrival, own, after });
                before = m.answered;
            }
            out.threads.push(served);
        }
        out
    }

    /// A cause held a message in this stretch, ns; stretches of one message do not overlap.
    pub fn held(&mut self, cause: usize, id: u32, (from, to): (u64, u64)) {
        let times = self.times.get(id as usize).copied();
        let Some((begin, answered)) = times.filter(|(begin, _)| *begin > 0) else { return };
        let own = to.min(answered).saturating_sub(from.max(begin));
        let after = to.saturating_sub(from.max(answered));
        if let Some(parts) = self.parts.get_mut(cause).filter(|_| own + after > 0) {
            match parts.last_mut() {
                Some((last, sum, rest)) if *last == id => (*sum, *rest) = (*sum + own, *rest + after),
                _ => parts.push((id, own, after)),
            }
        }
    }

    /// Latencies by message id, ns, with a cause brought down to `usual_ns` a message; as recorded for `None`. 0 of messages
    /// that are not in it.
    #[must_use]
    pub fn latencies(&self, without: Option<(usize, u64)>) -> Vec<u64> {
        let mut less = vec![(0, 0); self.times.len()];
        if let Some((cause, usual_ns)) = without {
            for (id, own, after) in self.parts.get(cause).into_iter().flatten() {
                let (sum, rest) = &mut less[*id as usize];
                (*sum, *rest) = (*sum + own, *rest + after);
            }
            for (own, after) in &mut less {
                // What is usual is left, in the message's own time as far as there is any.
                let kept = usual_ns.min(*own);
                *own -= kept;
                *after = after.saturating_sub(usual_ns - kept);
            }
        }
        let mut out = vec![0; self.times.len()];
        for thread in &self.threads {
            let mut before = 0;
            for m in thread {
                let (own, after) = less[m.id as usize];
                let answered = m.arrival.max(before) + m.own.saturating_sub(own);
                out[m.id as usize] = answered + m.after.saturating_sub(after) - m.arrival;
                before = answered;
            }
        }
        out
    }

    /// Percentiles with a cause brought down to `usual_ns` a message; those that the messages do not carry are absent.
    #[must_use]
    pub fn without(&self, cause: usize, usual_ns: u64, percentiles: &[f64], seed: u64) -> Without {
        let latencies: Vec<u64> = (self.latencies(Some((cause, usual_ns))).into_iter().zip(&self.times))
            .filter(|(_, (begin, _))| *begin > 0)
            .map(|(ns, _)| ns)
            .collect();
        let carried: Vec<f64> = percentiles.iter().copied().filter(|q| latencies.len() >= needed(*q)).collect();
        let mut random = rng(seed, 5);
        let mut drawn = vec![Vec::with_capacity(ROUNDS); carried.len()];
        if !carried.is_empty() {
            for _ in 0..ROUNDS {
                let sorted = resample(&latencies, &mut random);
                for (values, q) in drawn.iter_mut().zip(&carried) {
                    values.extend(sorted.percentile(*q).value());
                }
            }
        }
        let sorted = Sorted::new(latencies);
        let mut out = Without::default();
        for (q, mut values) in carried.iter().zip(drawn) {
            values.sort_unstable();
            out.latency_ns.extend(sorted.percentile(*q).value().map(|ns| (name(*q), ns)));
            let (low, high) = (values.len() / 40, values.len() - 1 - values.len() / 40);
            out.ci95_ns.insert(name(*q), [values[low], values[high]]);
        }
        out
    }

    /// How many messages it holds.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages
    }
}

/// As many as there are, in whole blocks of neighbours: slow messages come in bursts.
fn resample(latencies: &[u64], random: &mut Rng) -> Sorted {
    let blocks = BLOCKS.min(latencies.len());
    let edge = |block: usize| block * latencies.len() / blocks;
    let mut out = Vec::with_capacity(latencies.len() + latencies.len() / blocks + 1);
    for _ in 0..blocks {
        let block = random.random_range(0..blocks);
        out.extend_from_slice(&latencies[edge(block)..edge(block + 1)]);
    }
    Sorted::new(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(id: u32, tid: u32, arrival: u64, end: u64) -> Recorded {
        Recorded { id, chain: tid, arrival, answered: end, end }
    }

    /// Three messages of 10 ns of work each; the first is held for 100 by a cause, the others queue up behind it.
    fn held_up() -> Replay {
        let mut replay =
            Replay::new(vec![recorded(0, 7, 1000, 1110), recorded(1, 7, 1050, 1120), recorded(2, 7, 1060, 1130)], 2);
        // All three saw it while they waited; the second and third saw it through the first.
        for (id, from) in [(0, 1000), (1, 1050), (2, 1060)] {
            replay.held(0, id, (from, 1100));
        }
        replay
    }

    #[test]
    fn nothing_taken_out_gives_back_what_was_measured() {
        assert_eq!(held_up().latencies(None), [110, 70, 70]);
        assert_eq!(held_up().latencies(Some((1, 0))), [110, 70, 70]);
    }

    #[test]
    fn what_a_cause_did_to_those_behind_goes_with_it() {
        // The first ends at 1010; the second is alone at 1050, the third comes as it ends.
        assert_eq!(held_up().latencies(Some((0, 0))), [10, 10, 10]);
        // With 20 of it left: the first ends at 1030.
        assert_eq!(held_up().latencies(Some((0, 20))), [30, 10, 10]);
    }

    #[test]
    fn threads_do_not_wait_for_each_other() {
        let mut replay = Replay::new(vec![recorded(0, 7, 1000, 1110), recorded(1, 8, 1050, 1060)], 1);
        replay.held(0, 0, (1000, 1100));
        assert_eq!(replay.latencies(None), [110, 10]);
        assert_eq!(replay.latencies(Some((0, 0))), [10, 10]);
        assert_eq!(replay.messages(), 2);
    }

    #[test]
    fn a_reply_that_leaves_late_holds_nobody_up() {
        // Answered at 1010, gone at 9000 because a cause held it; the next was answered at 1020.
        let first = Recorded { answered: 1010, ..recorded(0, 7, 1000, 9000) };
        let mut replay = Replay::new(vec![first, recorded(1, 7, 1005, 1020)], 1);
        replay.held(0, 0, (1008, 9000));
        assert_eq!(replay.latencies(None), [8000, 15]);
        assert_eq!(replay.latencies(Some((0, 0))), [8, 13]);
    }

    proptest::proptest! {
        /// Whatever is recorded is given back, and less time never makes a message slower.
        #[test]
        fn the_recursion_holds(
            drawn in proptest::collection::vec((1..50_u64, 1..80_u64, 0..3_u32, 0..100_u64, 0..2_usize), 1..60),
        ) {
            let mut at = 1;
            let mut messages = Vec::new();
            for (i, (gap, length, tid, ..)) in drawn.iter().enumerate() {
                at += gap;
                messages.push(Recorded { id: i as u32, chain: *tid, arrival: at, answered: at + length / 2, end: at + length });
            }
            let mut replay = Replay::new(messages.clone(), 2);
            for (m, (_, _, _, part, cause)) in messages.iter().zip(&drawn) {
                replay.held(*cause, m.id, (m.arrival, m.end.min(m.arrival + part)));
            }
            let measured: Vec<u64> = messages.iter().map(|m| m.end - m.arrival).collect();
            proptest::prop_assert_eq!(&replay.latencies(None), &measured);
            for cause in 0..2 {
                for (less, all) in replay.latencies(Some((cause, 0))).iter().zip(&measured) {
                    proptest::prop_assert!(less <= all);
                }
            }
        }
    }
}
