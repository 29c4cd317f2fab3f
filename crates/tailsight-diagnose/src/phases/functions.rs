//! Phase 3 (NSight §5.2): what runs for the message itself is slower, more frequent, or unexpected. Functions here are the
//! frames of the recording: system calls, softirqs, reclaim, kernel locks, user code.

use tailsight_lifetime::Threshold;

use crate::cause::How;
use crate::rows::attribution::Occurrence;

/// How the focus has more of it. The deviation is n_f t_f - n_r t_r for n beginnings of mean length t; the part of it that
/// more beginnings of the usual length make is (n_f - n_r) t_r.
pub fn how(met: &Occurrence) -> How {
    let [n_f, n_r] = met.times;
    let [focus, reference] = met.mean_ns;
    if met.usual < Threshold::RareNested.share() || n_r <= 0.0 {
        return How::Unexpected;
    }
    let more = (n_f - n_r) * reference / n_r;
    if more * 2.0 >= focus - reference { How::MoreFrequent } else { How::Slower }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_often_is_told_from_slower() {
        let met = |times, mean_ns, usual| Occurrence { times, mean_ns, usual };
        assert_eq!(how(&met([4.0, 1.0], [4_000.0, 1_000.0], 1.0)), How::MoreFrequent);
        assert_eq!(how(&met([1.0, 1.0], [4_000.0, 1_000.0], 1.0)), How::Slower);
        // Twice as often and three times as long: 6 t - t = 5 t, of which more often makes t.
        assert_eq!(how(&met([2.0, 1.0], [6_000.0, 1_000.0], 1.0)), How::Slower);
        assert_eq!(how(&met([1.0, 0.01], [4_000.0, 10.0], 0.01)), How::Unexpected);
    }
}
