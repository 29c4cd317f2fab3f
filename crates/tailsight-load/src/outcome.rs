//! The result of a load. In: what the threads recorded. Out: samples, counts that add up, and what was wrong with the
//! client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::counts::Counts;
use crate::engine::Ended;
use crate::thread_log::Published;
use crate::{Arrivals, Complaint, Histogram, Interval, Plan, Rate, Sample, Send, StampSource, Status, Treatment, Wait};

/// CPU time over wall time of a thread, unless it spins: above this the client was the bottleneck.
const CPU_SHARE: f64 = 0.95;
/// Time that a thread was ready to run and did not, over wall time.
const STARVED_SHARE: f64 = 0.01;
/// Share of the due requests that were delayed because every connection had its limit outstanding.
const BLOCKED_SHARE: f64 = 0.001;
/// When so many requests waited for a connection, it is named as the reason for what they took.
const HELD_SHARE: f64 = 0.01;
/// How far the sent rate may be from the rate asked for.
const RATE_ERROR: f64 = 0.02;

/// The account of a thread.
#[derive(Debug, Clone, Default)]
pub struct ThreadReport {
    /// Its number.
    pub thread: u32,
    /// The core that it was pinned to.
    pub cpu: Option<usize>,
    /// What it cost and how it was scheduled, from the first request to the end of the drain.
    pub treatment: Treatment,
    /// Its lateness over all requests but those that were blocked, ns.
    pub lateness: Histogram,
    /// The part of its lateness in which it was idle and woke too late; in the rest it was busy with other requests, ns.
    pub overslept: Histogram,
    /// The longest that a request waited for a connection with room, ns.
    pub blocked_max_ns: u64,
    /// How long before due times it stopped sleeping at the end of the load, ns.
    pub margin_ns: u64,
    /// Whether it read replies when it woke to send.
    pub lazy: bool,
    /// When it stopped sending, ns.
    pub end_ns: u64,
    /// How often somebody set the wall clock meanwhile.
    pub clock_steps: u32,
    /// The largest such step, ns.
    pub clock_step_max_ns: u64,
    /// The error of the comparison of the clocks, including the NIC's where its stamps were used, ns.
    pub clock_error_ns: u64,
    /// How often somebody set the clock of a NIC whose stamps are used meanwhile.
    pub nic_clock_steps: u32,
    /// The largest such step, ns.
    pub nic_clock_step_max_ns: u64,
    /// Where its time stamps come from.
    pub stamps: StampSource,
    /// How often a connection was closed because its bytes were not the protocol's, or not requested.
    pub given_up: u64,
    /// The first few reasons for which connections broke.
    pub troubles: Vec<String>,
    pub(crate) ended: Ended,
}

impl ThreadReport {
    pub(crate) fn panicked() -> Self {
        Self { ended: Ended::Failed("a loading thread panicked; please report it".into()), ..Self::default() }
    }
}

impl Default for Ended {
    fn default() -> Self {
        Self::Failed("never started".into())
    }
}

/// The result of a load.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was run.
    pub plan: Arc<Plan>,
    /// When the schedule began, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// When the last thread stopped sending, ns.
    pub end_ns: u64,
    /// Requests, counted.
    pub counts: Counts,
    /// The requests of the sample in the order in which they were due.
    pub samples: Vec<Sample>,
    /// Consecutive sends of all threads in the order in which they were due, from the measured windows; of a
    /// [burst](Plan::burst) the first.
    pub sends: Vec<Send>,
    /// What each thread did, row by row.
    pub intervals: Vec<Vec<Interval>>,
    /// The client's own lateness over all requests but those that were blocked, ns.
    pub lateness: Histogram,
    /// The part of it in which the threads were idle and woke too late; in the rest they were busy with other requests, ns.
    pub overslept: Histogram,
    /// The threads.
    pub threads: Vec<ThreadReport>,
    /// CPU time of the whole process, user and system, from the first request to the end of the drain, ns.
    pub cpu_ns: u64,
    /// What was wrong.
    pub complaints: Vec<Complaint>,
}

impl Outcome {
    pub(crate) fn new(
        plan: Arc<Plan>,
        start_ns: u64,
        cpu_ns: u64,
        threads: Vec<ThreadReport>,
        published: &[Arc<Published>],
    ) -> Self {
        let mut counts = Counts::default();
        let (mut samples, mut lateness, mut overslept) = (Vec::new(), Histogram::default(), Histogram::default());
        for log in published {
            let load = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
            counts.sent += load(&log.sent);
            counts.unsent += load(&log.unsent);
            counts.blocked += load(&log.blocked);
            counts.held += load(&log.held);
            counts.unasked += load(&log.unasked);
            counts.reconnects += load(&log.reconnects);
            counts.ok += log.count(Status::Ok);
            counts.miss += log.count(Status::Miss);
            counts.error += log.count(Status::Error);
            counts.wrong += log.count(Status::Wrong);
            counts.closed += log.count(Status::Closed);
            counts.garbage += log.count(Status::Garbage);
            counts.lost += log.count(Status::Lost);
            counts.unanswered += log.count(Status::Unanswered);
            counts.redirects += (300..400).filter(|code| *code != 304).map(|code| log.code(code)).sum::<u64>();
            samples.extend_from_slice(log.samples.since(0));
        }
        counts.intended = counts.sent + counts.unsent;
        samples.sort_by_key(|sample| sample.intended_ns);
        threads.iter().for_each(|thread| lateness.merge(&thread.lateness));
        threads.iter().for_each(|thread| overslept.merge(&thread.overslept));
        let parts: Vec<&[Send]> = published.iter().map(|log| log.sends.since(0)).collect();
        let mut sends = merge(&parts, true).0;
        firsts_of_bursts(&mut sends, plan.burst);
        let mut outcome = Self {
            end_ns: threads.iter().map(|t| t.end_ns).max().unwrap_or(start_ns).max(start_ns),
            plan,
            start_ns,
            counts,
            samples,
            sends,
            intervals: published.iter().map(|log| log.intervals.since(0).to_vec()).collect(),
            lateness,
            overslept,
            threads,
            cpu_ns,
            complaints: Vec::new(),
        };
        let code = |code: u16| published.iter().map(|log| log.code(code)).sum::<u64>();
        let mut bad: Vec<(u64, u16)> = (100..600).map(|number| (code(number), number)).collect();
        bad.retain(|(replies, number)| *replies > 0 && !outcome.plan.workload.good_statuses.contains(*number));
        bad.sort_by(|a, b| b.cmp(a));
        outcome.complain(published.iter().map(|log| log.samples.refused()).sum(), &bad);
        outcome
    }

    /// Where time stamps come from, over all threads; `None` when none has started.
    #[must_use]
    pub fn stamps(&self) -> Option<StampSource> {
        StampSource::merged(self.threads.iter().map(|t| &t.stamps))
    }

    /// How long requests were sent, ns.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// Requests sent a second.
    #[must_use]
    pub fn sent_per_s(&self) -> f64 {
        self.counts.sent as f64 / (self.duration_ns().max(1) as f64 / 1e9)
    }

    /// CPU time of the process over the requests sent, ns; `None` when none was.
    #[must_use]
    pub fn cpu_per_request_ns(&self) -> Option<f64> {
        (self.counts.sent > 0).then(|| self.cpu_ns as f64 / self.counts.sent as f64)
    }

    /// Whether no complaint says that the latencies are due to the client rather than the server.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !self.complaints.iter().any(Complaint::spoils)
    }

    /// Judges the client by the plan's limits.
    fn complain(&mut self, samples_lost: u64, bad_codes: &[(u64, u16)]) {
        let limits = self.plan.limits;
        let duration = self.duration_ns().max(1) as f64;
        let counts = self.counts;
        let mut complaints = Vec::new();
        for thread in &self.threads {
            match &thread.ended {
                Ended::Planned => {}
                Ended::Gone { reason, garbage } => {
                    complaints.push(Complaint::ServerGone { reason: reason.clone(), garbage: *garbage });
                }
                Ended::Failed(reason) => complaints.push(Complaint::ClientFailed { reason: reason.clone() }),
            }
        }
        // The state before the load.
        let mut reasons: Vec<String> = self.threads.iter().flat_map(|t| t.troubles.iter().cloned()).collect();
        reasons.sort();
        reasons.dedup();
        let times = self.threads.iter().map(|t| t.given_up).sum();
        if times > 0 {
            let (requests, unasked) = (counts.sent, counts.unasked);
            complaints.push(Complaint::GivenUp { times, requests, unasked, reasons: reasons.clone() });
        }
        let requests = self.lateness.count();
        if let Some(p99_ns) = self.lateness.quantile(0.99).filter(|p99| *p99 > limits.lateness_p99_ns) {
            let (limit_ns, max_ns) = (limits.lateness_p99_ns, self.lateness.max());
            complaints.push(Complaint::Late { p99_ns, limit_ns, max_ns, requests });
        }
        for thread in &self.threads {
            let share = thread.treatment.cpu_ns as f64 / duration;
            if share > CPU_SHARE && self.plan.wait != Wait::Spin {
                complaints.push(Complaint::OutOfCpu { thread: thread.thread, share, limit: CPU_SHARE });
            }
            let Treatment { waited_ns, preempted, .. } = thread.treatment;
            let share = waited_ns as f64 / duration;
            if share > STARVED_SHARE {
                let (thread, limit) = (thread.thread, STARVED_SHARE);
                complaints.push(Complaint::Starved { thread, waited_ns, share, limit, preempted });
            }
        }
        let share = counts.blocked as f64 / counts.intended.max(1) as f64;
        let held_share = counts.held as f64 / counts.intended.max(1) as f64;
        if share > BLOCKED_SHARE || held_share > HELD_SHARE {
            let longest_ns = self.threads.iter().map(|t| t.blocked_max_ns).max().unwrap_or(0);
            complaints.push(Complaint::Blocked {
                requests: counts.blocked,
                share,
                limit: BLOCKED_SHARE,
                longest_ns,
                held: counts.held,
                held_share,
                held_limit: HELD_SHARE,
            });
        }
        if let Some(asked) = self.asked() {
            let sent = counts.sent as f64;
            // Random arrivals miss their mean by chance: five standard deviations of a Poisson count are allowed, and what
            // the schedule drew is allowed too.
            let chance = 5.0 * asked.sqrt() + counts.intended as f64 - asked;
            let missing = counts.unsent as f64;
            if missing > RATE_ERROR * asked || (sent - asked).abs() > RATE_ERROR * asked + chance.abs() {
                let seconds = duration / 1e9;
                let (asked_per_s, sent_per_s) = (asked / seconds, sent / seconds);
                complaints.push(Complaint::RateMissed { asked_per_s, sent_per_s, limit: RATE_ERROR });
            }
        }
        if counts.failed() > 0 {
            let words = |(replies, code): &(u64, u16)| format!("HTTP status {code}: {replies}");
            reasons.splice(0..0, bad_codes.iter().take(3).map(words));
            complaints.push(Complaint::Failed { counts, reasons });
        }
        let most = |of: fn(&ThreadReport) -> u64| self.threads.iter().map(of).max().unwrap_or(0);
        let refused_stamps = || self.samples.iter().filter(|s| s.flags & Sample::STAMP_REFUSED != 0).count() as u64;
        let steps = most(|t| t.clock_steps.into()) as u32;
        if steps > 0 {
            let largest_ns = most(|t| t.clock_step_max_ns);
            complaints.push(Complaint::ClockStepped { steps, largest_ns, refused_stamps: refused_stamps() });
        }
        let steps = most(|t| t.nic_clock_steps.into()) as u32;
        if steps > 0 {
            let largest_ns = most(|t| t.nic_clock_step_max_ns);
            complaints.push(Complaint::NicClockStepped { steps, largest_ns, refused_stamps: refused_stamps() });
        }
        if samples_lost > 0 {
            complaints.push(Complaint::SamplesLost { lost: samples_lost, kept: self.samples.len() as u64 });
        }
        self.complaints = complaints;
    }

    /// Requests that the rate asks for on average while requests were sent; `None` where no rate is asked for.
    fn asked(&self) -> Option<f64> {
        match (&self.plan.arrivals, &self.plan.rate) {
            (Arrivals::Closed(_) | Arrivals::Batch(_) | Arrivals::Replay(_), _) => None,
            (_, Rate::Constant(rate)) => Some(rate * self.duration_ns() as f64 / 1e9),
            (_, rate) => Some(rate.expected(self.duration_ns())),
        }
    }
}

/// Bursts are one arrival each: of the sends that were due at once, the first stays.
pub(crate) fn firsts_of_bursts(sends: &mut Vec<Send>, burst: u32) {
    if burst > 1 {
        sends.dedup_by_key(|send| send.intended_ns);
    }
}

/// Sends of all threads in the order due, up to where every thread has come (or all, when they have `ended`); and how many
/// of each were taken.
pub(crate) fn merge(parts: &[&[Send]], ended: bool) -> (Vec<Send>, Vec<usize>) {
    // Requests of one turn leave connection by connection, so a part rises only about.
    let last = |part: &&[Send]| part.iter().map(|send| send.intended_ns).max().unwrap_or(0);
    let until = if ended { u64::MAX } else { parts.iter().map(last).min().unwrap_or(0) };
    let up_to = |part: &&[Send]| part.iter().position(|send| send.intended_ns > until).unwrap_or(part.len());
    let taken: Vec<usize> = parts.iter().map(up_to).collect();
    let mut sends: Vec<Send> = parts.iter().zip(&taken).flat_map(|(part, n)| part[..*n].iter().copied()).collect();
    sends.sort_by_key(|send| send.intended_ns);
    (sends, taken)
}
