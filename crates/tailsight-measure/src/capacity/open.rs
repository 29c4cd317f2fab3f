//! The peak of a server of datagrams, by open loops. In: windows at rates. Out: the rate above which it answers less than it is
//! asked.
//!
//! A closed loop would wait for datagrams that were dropped, and measure how long it waits. Far above the peak the server takes in
//! packets that it does not answer and serves less than it can, so the rate is approached from below and then halved.

use tailsight_load::{Arrivals, Outcome, Plan, Rate};

use super::{Asked, Error, MOST_OUTSTANDING, Way, Window};

/// A rate of which less is answered is above the peak.
pub const ANSWERED: f64 = 0.95;
/// A rate of which more is answered is answered in full.
pub(super) const ALL: f64 = 0.99;
/// The first rate, requests/s.
const FIRST: f64 = 100.0;
/// The highest.
const HIGHEST: f64 = 1e8;
/// The rates around the peak are no farther apart than this.
const NEAR: f64 = 1.02;
/// A client that sends less of the rate is what limits it.
const SENT: f64 = 0.98;
/// Of the peak, what is asked for last, to see that it is one. Not far above it: there a server answers less.
pub(super) const ABOVE: f64 = 1.25;
/// A window that answered more of the peak than this contradicts it.
pub(super) const CONTRADICTS: f64 = 1.1;
/// When a datagram is given up, so that what is lost does not keep a connection from sending.
const LOST_AFTER_NS: u64 = 100_000_000;

/// Halves the ratio of two rates until it is at most `near`: the higher is not `answered`, the lower is (or was never asked). A rate
/// must fail twice: something else may have had the core. `answered` says `None` when there is no time left.
///
/// # Errors
/// Those of `answered`.
pub fn halve<E>(
    mut between: [f64; 2],
    near: f64,
    mut answered: impl FnMut(f64) -> Result<Option<bool>, E>,
) -> Result<[f64; 2], E> {
    while between[1] > between[0] * near {
        let rate = (between[0] * between[1]).sqrt();
        let answer = match answered(rate)? {
            Some(false) => answered(rate)?,
            answer => answer,
        };
        match answer {
            Some(true) => between[0] = rate,
            Some(false) => between[1] = rate,
            None => break,
        }
    }
    Ok(between)
}

/// Has a plan send so much, whatever is answered.
pub(super) fn ask(plan: &mut Plan, per_s: f64) {
    (plan.arrivals, plan.rate) = (Arrivals::FIXED, Rate::Constant(per_s));
    (plan.outstanding, plan.lost_after_ns) = (MOST_OUTSTANDING, LOST_AFTER_NS);
}

/// Why a peak is none: an error of the load, or the reason in words.
enum Not {
    Failed(Error),
    Peak(String),
}

/// Twice the rate until it is not answered, then between.
pub(super) fn way(
    one: &mut impl FnMut(Asked) -> Result<Result<Window, String>, Error>,
) -> Result<Result<Way, String>, Error> {
    let mut rates = Vec::new();
    let mut answered = |rate: f64| -> Result<Option<bool>, Not> {
        let window = one(Asked::PerSecond(rate)).map_err(Not::Failed)?.map_err(Not::Peak)?;
        rates.push((rate, window.per_s));
        if window.per_s >= rate * ANSWERED {
            return Ok(Some(true));
        }
        if window.sent_per_s < rate * SENT {
            let sent = window.sent_per_s;
            return Err(Not::Peak(format!(
                "never saturated: of {rate:.0} requests/s the client could send {sent:.0} only; give it more --threads, \
                 or cores of its own"
            )));
        }
        Ok(Some(false))
    };
    match around(&mut answered) {
        Ok(between) => Ok(Ok(Way { steps: vec![], rates, at: Asked::PerSecond(between[1]) })),
        Err(Not::Peak(why)) => Ok(Err(why)),
        Err(Not::Failed(error)) => Err(error),
    }
}

/// The rates around the peak.
fn around(answered: &mut impl FnMut(f64) -> Result<Option<bool>, Not>) -> Result<[f64; 2], Not> {
    let mut high = FIRST;
    while answered(high)? == Some(true) || answered(high)? == Some(true) {
        high *= 2.0;
        if high > HIGHEST {
            return Err(Not::Peak(format!("never saturated: {HIGHEST:.0} requests/s are answered")));
        }
    }
    if high <= FIRST {
        return Err(Not::Peak(format!(
            "not even {FIRST:.0} requests/s are answered within the time that they are sent: is this the server, and its \
             protocol? A longer --window helps a server that needs more than a tenth of it for a request"
        )));
    }
    halve([high / 2.0, high], NEAR, answered)
}

/// What was answered while requests were sent. What the server's socket still holds then is answered later, and was not kept up
/// with.
pub(super) fn window(outcome: &Outcome, server_ns: Option<u64>, workers: usize) -> Result<Window, String> {
    let counts = outcome.counts;
    let bad = counts.error + counts.wrong + counts.closed + counts.garbage;
    if bad > counts.sent / 100 {
        return Err(format!("{bad} of {} requests had no good reply", counts.sent));
    }
    let rows = outcome.intervals.iter().flatten().filter(|row| row.start_ns + row.duration_ns <= outcome.end_ns);
    let (answered, ns) = rows.fold((0, 0), |(n, ns), row| (n + row.answered, ns + row.duration_ns));
    if ns == 0 {
        return Err("a window is too short to see what is answered in it; use a longer --window".into());
    }
    // All threads send at the same time.
    let per_s = answered as f64 / ns as f64 * 1e9 * outcome.intervals.len() as f64;
    Ok(Window::of(outcome, server_ns, workers, per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of a peak, of which nothing else takes anything, except for every `bad`th time.
    fn between(peak: f64, bad: usize) -> [f64; 2] {
        let mut asked = 0;
        let answered = |rate: f64| {
            asked += 1;
            Ok::<_, ()>(Some(rate <= peak && asked % bad != 0))
        };
        halve([100.0, 200_000.0], NEAR, answered).unwrap()
    }

    #[test]
    fn rates_around_a_peak_are_halved_until_they_are_near() {
        for peak in [101.0, 5_000.0, 47_123.0, 199_999.0] {
            // A rate that fails once, while something else had the core, is asked again.
            for bad in [usize::MAX, 3, 4] {
                let [low, high] = between(peak, bad);
                assert!(low <= peak && peak < high && high <= low * NEAR, "{peak}: {low} to {high}");
            }
        }
    }

    #[test]
    fn without_time_the_rates_so_far_are_the_answer() {
        let mut left = 2;
        let [low, high] = halve([100.0, 10_000.0], NEAR, |_| {
            left -= 1;
            Ok::<_, ()>((left >= 0).then_some(true))
        })
        .unwrap();
        assert!((low - 3_162.3).abs() < 0.1 && high == 10_000.0, "{low} to {high}");
    }

    #[test]
    fn a_server_that_answers_nothing_and_one_that_answers_all_have_no_peak() {
        let why = |answer: bool| match around(&mut |_| Ok(Some(answer))) {
            Err(Not::Peak(why)) => why,
            _ => panic!(),
        };
        assert!(why(false).contains("not even 100 requests/s"));
        assert!(why(true).contains("never saturated"));
    }
}
