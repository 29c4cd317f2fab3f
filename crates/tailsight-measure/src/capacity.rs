//! How many requests a second a server can do, found by saturating it (Tales of the Tail §3.2). In: a plan, and the server's
//! CPU time where it can be read. Out: the peak with an interval, and from it the service time; or why it was never reached.
//!
//! Over streams: a closed loop with more and more requests outstanding, until twice as many gain no more than [`GAIN`]. Over
//! datagrams, which a server that has too many of them drops: an open loop with a higher and higher rate, until less than
//! [`ANSWERED`] of it is answered. Then [`WINDOWS`] windows there; over datagrams one more at a higher rate, which must not be
//! answered better. The client must have had time to spare, or the server must be
//! seen to have had none: else the peak is the client's.

mod open;

use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_load::{Arrivals, Interval, Outcome, Plan};

use crate::Error;

pub use self::open::{ANSWERED, halve};

/// Twice as many requests outstanding must gain more than this, or the peak is reached.
pub const GAIN: f64 = 0.03;
/// Windows at the peak.
pub const WINDOWS: usize = 7;
/// Student's t of one less, two-sided at 95 %.
const STUDENT: f64 = 2.447;
/// The most requests outstanding on a connection.
const MOST_OUTSTANDING: u32 = 1024;
/// A client thread busier than this may be what limits the rate.
const CLIENT_BUSY: f64 = 0.9;
/// Workers busier than this are saturated.
const SERVER_BUSY: f64 = 0.9;
/// An interval wider than this to either side is no answer.
const UNSURE: f64 = 0.1;

/// A peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Always 1.
    pub schema: u32,
    /// The server.
    pub target: String,
    /// What was spoken.
    pub protocol: String,
    /// Requests answered a second at the peak: the mean of the windows.
    pub peak_per_s: f64,
    /// Its 95 % interval, from the spread of the windows.
    pub ci95_per_s: [f64; 2],
    /// Each window's.
    pub windows_per_s: Vec<f64>,
    /// Over streams: requests outstanding on a connection and requests answered a second, on the way to the peak.
    pub steps: Vec<(u32, f64)>,
    /// Over datagrams: requests sent and requests answered a second, on the way to the peak; the last one is above it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<(f64, f64)>,
    /// Requests outstanding on a connection at the peak; over datagrams the most that may be.
    pub outstanding: u32,
    /// Connections.
    pub connections: u32,
    /// How many requests the server serves at once, as given.
    pub workers: usize,
    /// Workers over the peak: the time that a request keeps a worker busy on average, ns.
    pub service_ns: u64,
    /// Its 95 % interval, ns.
    pub service_ci95_ns: [u64; 2],
    /// CPU time over wall time of the busiest loading thread.
    pub client_cpu: f64,
    /// CPU time of the server over wall time and workers, where it could be read.
    pub server_cpu: Option<f64>,
}

/// What a calibration came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Peak {
    /// The peak.
    Found(Box<Calibration>),
    /// None, and why.
    Never(String),
}

/// What is asked in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asked {
    /// So many requests outstanding on each connection.
    Outstanding(u32),
    /// So many requests a second, whatever is answered.
    PerSecond(f64),
}

/// One window.
struct Window {
    /// Requests answered a second.
    per_s: f64,
    /// Requests sent a second.
    sent_per_s: f64,
    client_cpu: f64,
    server_cpu: Option<f64>,
}

/// On the way to a peak: each window, and where the peak is; or why there is none.
struct Way {
    steps: Vec<(u32, f64)>,
    rates: Vec<(f64, f64)>,
    at: Asked,
}

/// Finds the peak. `plan` says whom, what and over how many connections; `server_cpu_ns` reads the CPU time of the server's
/// workers so far. `step` is told each window as it ends: what was asked, and requests answered a second.
///
/// # Errors
/// [`Error::Load`] when a load cannot be started, [`Error::Interrupted`].
pub fn calibrate(
    plan: &Plan,
    workers: usize,
    window_ns: u64,
    mut server_cpu_ns: impl FnMut() -> Option<u64>,
    stop: &AtomicBool,
    mut step: impl FnMut(Asked, f64),
) -> Result<Peak, Error> {
    let mut plan = plan.clone();
    plan.duration_ns = Some(window_ns);
    let datagrams = plan.target.is_datagram();
    let mut window_at = |asked: Asked| -> Result<Result<Window, String>, Error> {
        ask(&mut plan, asked);
        let before = server_cpu_ns();
        let outcome = tailsight_load::run(plan.clone(), stop, |_| {}).map_err(Error::Load)?;
        plan.workload.preload = false;
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted("interrupted before the peak was found".into()));
        }
        let used = before.zip(server_cpu_ns()).map(|(before, after)| after.saturating_sub(before));
        let window = match asked {
            Asked::Outstanding(_) => closed_window(&outcome, used, workers),
            Asked::PerSecond(_) => open::window(&outcome, used, workers),
        };
        if let Ok(window) = &window {
            step(asked, window.per_s);
        }
        Ok(window)
    };
    let way = if datagrams { open::way(&mut window_at)? } else { closed_way(&mut window_at)? };
    let mut way = match way {
        Ok(way) => way,
        Err(why) => return Ok(Peak::Never(why)),
    };
    let mut windows = Vec::with_capacity(WINDOWS);
    for _ in 0..WINDOWS {
        match window_at(way.at)? {
            Ok(window) => windows.push(window),
            Err(why) => return Ok(Peak::Never(why)),
        }
    }
    // Whether what looked like the peak was another program that had the core meanwhile.
    if let Asked::PerSecond(per_s) = way.at {
        let above = per_s * open::ABOVE;
        match window_at(Asked::PerSecond(above))? {
            Ok(window) => way.rates.push((above, window.per_s)),
            Err(why) => return Ok(Peak::Never(why)),
        }
    }
    Ok(conclude(&plan, workers, way, &windows))
}

/// What a closed loop got.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saturated {
    /// Requests answered a second.
    pub per_s: f64,
    /// CPU time over wall time of the busiest loading thread.
    pub client_cpu: f64,
}

impl Saturated {
    /// Whether a loading thread was so busy that the rate may be the client's.
    #[must_use]
    pub fn may_be_the_clients(&self) -> bool {
        self.client_cpu > CLIENT_BUSY
    }
}

/// One window of a closed loop with as many requests outstanding as the plan allows on each connection: no search for the peak, for two settings
/// of one server that are compared. `Ok(Err)`: why it shows nothing.
///
/// # Errors
/// [`Error::Load`] when the load cannot be started, [`Error::Interrupted`].
pub fn saturate(plan: &Plan, window_ns: u64, stop: &AtomicBool) -> Result<Result<Saturated, String>, Error> {
    if plan.target.is_datagram() {
        return Ok(Err("over datagrams a closed loop does not saturate a server".into()));
    }
    let mut plan = Plan { duration_ns: Some(window_ns), ..plan.clone() };
    let outstanding = plan.outstanding.min(MOST_OUTSTANDING);
    ask(&mut plan, Asked::Outstanding(outstanding));
    let outcome = tailsight_load::run(plan, stop, |_| {}).map_err(Error::Load)?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted("interrupted in a window of the peak rate".into()));
    }
    let window = closed_window(&outcome, None, 1);
    Ok(window.map(|window| Saturated { per_s: window.per_s, client_cpu: window.client_cpu }))
}

/// Has a plan ask for this.
fn ask(plan: &mut Plan, asked: Asked) {
    match asked {
        Asked::Outstanding(n) => (plan.arrivals, plan.outstanding) = (Arrivals::Closed(n), n),
        Asked::PerSecond(per_s) => open::ask(plan, per_s),
    }
}

/// More and more requests outstanding, until they gain nothing.
fn closed_way(
    one: &mut impl FnMut(Asked) -> Result<Result<Window, String>, Error>,
) -> Result<Result<Way, String>, Error> {
    let mut steps: Vec<(u32, f64)> = Vec::new();
    let mut outstanding = 1;
    loop {
        let per_s = match one(Asked::Outstanding(outstanding))? {
            Ok(window) => window.per_s,
            Err(why) => return Ok(Err(why)),
        };
        steps.push((outstanding, per_s));
        if flat(&steps) {
            break;
        }
        if outstanding >= MOST_OUTSTANDING {
            return Ok(Err(format!(
                "never saturated: at {outstanding} requests outstanding on each connection the rate still rises; use \
                 more --connections"
            )));
        }
        outstanding *= 2;
    }
    let best = steps.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 0.0)).0;
    Ok(Ok(Way { steps, rates: vec![], at: Asked::Outstanding(best) }))
}

fn closed_window(outcome: &Outcome, server_ns: Option<u64>, workers: usize) -> Result<Window, String> {
    let (ns, counts) = (outcome.duration_ns().max(1) as f64, outcome.counts);
    let bad = counts.error + counts.wrong + counts.closed + counts.garbage + counts.lost;
    let answered = answered(counts.sent, outcome.plan.connections, outcome.plan.outstanding);
    if bad > counts.sent / 100 {
        return Err(format!("{bad} of {} requests had no good reply", counts.sent));
    }
    if answered == 0 {
        return Err(
            "never saturated: a window ended before the first round of requests was answered; use a longer --window"
                .into(),
        );
    }
    Ok(Window::of(outcome, server_ns, workers, answered as f64 / ns * 1e9))
}

impl Window {
    fn of(outcome: &Outcome, server_ns: Option<u64>, workers: usize, per_s: f64) -> Self {
        let ns = outcome.duration_ns().max(1) as f64;
        // Of the time that the thread ran, with the drain.
        let busy = |rows: &Vec<Interval>| {
            let (cpu_ns, ran_ns) =
                rows.iter().fold((0, 0), |(cpu, ran), row| (cpu + row.cpu_ns, ran + row.duration_ns));
            cpu_ns as f64 / ran_ns.max(1) as f64
        };
        let client_cpu = outcome.intervals.iter().map(busy).fold(0.0, f64::max);
        // Read around the window: connecting and the drain, both short beside it, are in it.
        let server_cpu = server_ns.map(|used| (used as f64 / ns / workers as f64).min(1.0));
        Self { per_s, sent_per_s: outcome.counts.sent as f64 / ns * 1e9, client_cpu, server_cpu }
    }
}

/// Replies that came while requests were sent. A closed loop then has all that it may have outstanding; the replies to those come
/// after it has stopped, and would make any server look faster the more are outstanding.
fn answered(sent: u64, connections: u32, outstanding: u32) -> u64 {
    sent.saturating_sub(u64::from(connections) * u64::from(outstanding))
}

/// Twice in a row, twice as many outstanding gained too little over the best before.
fn flat(steps: &[(u32, f64)]) -> bool {
    let [before @ .., last_but_one, last] = steps else { return false };
    let best = before.iter().map(|s| s.1).fold(0.0, f64::max);
    best > 0.0 && last_but_one.1 < best * (1.0 + GAIN) && last.1 < best * (1.0 + GAIN)
}

fn conclude(plan: &Plan, workers: usize, way: Way, windows: &[Window]) -> Peak {
    let n = windows.len() as f64;
    let mean = |of: &dyn Fn(&Window) -> f64| windows.iter().map(of).sum::<f64>() / n;
    let peak = mean(&|w| w.per_s);
    let variance = mean(&|w| (w.per_s - peak).powi(2)) * n / (n - 1.0);
    let half = STUDENT * (variance / n).sqrt();
    let client_cpu = mean(&|w| w.client_cpu);
    let server_cpu = windows.iter().map(|w| w.server_cpu).sum::<Option<f64>>().map(|sum| sum / n);
    match server_cpu {
        Some(busy) if busy < SERVER_BUSY => {
            let more = match way.at {
                Asked::Outstanding(_) => "more requests outstanding",
                Asked::PerSecond(_) => "a higher rate",
            };
            return Peak::Never(format!(
                "never saturated: at {peak:.0} requests/s, which {more} did not raise, the server's {workers} workers \
                 were busy for {:.0} % of the time; give the client more --threads and --connections, or cores of its \
                 own",
                busy * 100.0
            ));
        }
        None if client_cpu > CLIENT_BUSY => {
            return Peak::Never(format!(
                "not shown to be saturated: at {peak:.0} requests/s a loading thread was busy for {:.0} % of the \
                 time, so the \
                 peak may be the client's; give it more --threads, or name the server's process with --pid to see \
                 whether that \
                 is saturated",
                client_cpu * 100.0
            ));
        }
        _ => {}
    }
    if half > UNSURE * peak {
        return Peak::Never(format!(
            "not steady: {WINDOWS} windows at the peak differ so much that {peak:.0} requests/s is known to ± {:.0} % \
             only; use longer \
             windows (--window), or an idle machine",
            half / peak * 100.0
        ));
    }
    if let Asked::PerSecond(asked) = way.at
        && peak > asked * open::ALL
    {
        return Peak::Never(format!(
            "not steady: {asked:.0} requests/s were not answered in full while the peak was looked for, and were in the \
             windows after; use longer windows (--window), or an idle machine"
        ));
    }
    if let Some((asked, most)) = way.rates.iter().copied().max_by(|one, two| one.1.total_cmp(&two.1))
        && most > peak * open::CONTRADICTS
    {
        return Peak::Never(format!(
            "not steady: {most:.0} requests/s were answered when {asked:.0} were sent, so {peak:.0}, what the windows after answered, is not \
             the peak; use longer windows (--window), or an idle machine"
        ));
    }
    let service = |per_s: f64| (workers as f64 * 1e9 / per_s).round() as u64;
    Peak::Found(Box::new(Calibration {
        schema: 1,
        target: plan.target.to_string(),
        protocol: plan.protocol.to_string(),
        peak_per_s: peak,
        ci95_per_s: [peak - half, peak + half],
        windows_per_s: windows.iter().map(|w| w.per_s).collect(),
        steps: way.steps,
        rates: way.rates,
        outstanding: match way.at {
            Asked::Outstanding(n) => n,
            Asked::PerSecond(_) => plan.outstanding,
        },
        connections: plan.connections,
        workers,
        service_ns: service(peak),
        service_ci95_ns: [service(peak + half), service(peak - half)],
        client_cpu,
        server_cpu,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new("tcp://127.0.0.1:1".parse().expect("an address"), tailsight_load::Protocol::Echo)
    }

    fn windows(rates: [f64; WINDOWS], client_cpu: f64, server_cpu: Option<f64>) -> Vec<Window> {
        rates.map(|per_s| Window { per_s, sent_per_s: per_s, client_cpu, server_cpu }).into()
    }

    fn way(steps: &[(u32, f64)]) -> Way {
        Way { steps: steps.to_vec(), rates: vec![], at: Asked::Outstanding(1) }
    }

    const STEADY: [f64; WINDOWS] = [99e3, 100e3, 101e3, 100e3, 99e3, 101e3, 100e3];

    /// Replies of the drain were counted: with 1,024 outstanding on 16 connections the rate rose without end.
    #[test]
    fn replies_after_the_window_are_not_counted() {
        assert_eq!(answered(50_000, 16, 1024), 33_616);
        assert_eq!(answered(100, 16, 64), 0);
    }

    #[test]
    fn a_peak_is_where_twice_as_many_gain_nothing_twice() {
        assert!(!flat(&[(1, 10.0), (2, 20.0)]));
        assert!(!flat(&[(1, 10.0), (2, 10.1), (4, 14.0)]));
        assert!(flat(&[(1, 10.0), (2, 20.0), (4, 20.1), (8, 19.0)]));
    }

    #[test]
    fn the_service_time_is_the_peak_inverted_with_its_interval() {
        let Peak::Found(c) = conclude(&plan(), 2, way(&[(1, 1e5)]), &windows(STEADY, 0.5, None)) else { panic!() };
        assert_eq!((c.peak_per_s, c.service_ns), (100e3, 20_000));
        // Standard deviation 816, of the mean 309; times 2.447: 755.
        assert!((c.ci95_per_s[1] - 100_755.0).abs() < 1.0, "{:?}", c.ci95_per_s);
        assert!(c.service_ci95_ns[0] < 20_000 && c.service_ci95_ns[1] > 20_000);
    }

    #[test]
    fn a_peak_that_may_be_the_clients_is_none() {
        let why = |windows: &[Window]| match conclude(&plan(), 1, way(&[(1, 1e5)]), windows) {
            Peak::Never(why) => why,
            Peak::Found(peak) => panic!("{peak:?}"),
        };
        assert!(why(&windows(STEADY, 0.99, None)).contains("--pid"));
        assert!(why(&windows(STEADY, 0.5, Some(0.6))).contains("60 %"));
        let wild = [50e3, 150e3, 100e3, 60e3, 140e3, 100e3, 90e3];
        assert!(why(&windows(wild, 0.5, Some(1.0))).contains("not steady"));
        // A busy client does no harm where the server is seen to be saturated.
        assert!(matches!(conclude(&plan(), 1, way(&[]), &windows(STEADY, 0.99, Some(0.99))), Peak::Found(_)));
    }

    #[test]
    fn a_rate_that_was_refused_and_is_answered_later_is_no_peak() {
        let way = |per_s| Way { steps: vec![], rates: vec![], at: Asked::PerSecond(per_s) };
        let steady = windows(STEADY, 0.5, None);
        // Another program had the core while the rates were halved: 161 requests/s were answered, and 122 were given out as the peak.
        let busy = Way { rates: vec![(1e5, 99e3), (2e5, 131e3), (2e5, 80e3)], ..way(104e3) };
        let Peak::Never(why) = conclude(&plan(), 1, busy, &steady) else { panic!() };
        assert!(why.starts_with("not steady: 131000 requests/s were answered when 200000 were sent"), "{why}");
        let Peak::Never(why) = conclude(&plan(), 1, way(100.5e3), &steady) else { panic!() };
        assert!(why.contains("100500 requests/s were not answered in full"), "{why}");
        let Peak::Found(peak) = conclude(&plan(), 1, way(104e3), &steady) else { panic!() };
        assert_eq!((peak.peak_per_s, peak.outstanding), (100e3, plan().outstanding));
    }
}
