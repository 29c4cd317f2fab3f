//! A recorded series of arrivals. In: times, ns, rising. Out: the same series at another utilisation.

use crate::queue::QueueError;

/// The work that arrives over the work that the workers could do in the same time: the time runs from the first arrival to
/// the last, so the last request's own work is not part of it.
///
/// # Errors
/// [`QueueError::Empty`], [`QueueError::NoLength`], [`QueueError::NoWorkers`].
pub fn utilisation(arrivals: &[u64], mean_service_ns: f64, workers: usize) -> Result<f64, QueueError> {
    if workers == 0 {
        return Err(QueueError::NoWorkers);
    }
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else { return Err(QueueError::Empty) };
    if last <= first {
        return Err(QueueError::NoLength { arrivals: arrivals.len() });
    }
    let work = mean_service_ns * (arrivals.len() - 1) as f64;
    Ok(work / ((last - first) as f64 * workers as f64))
}

/// The series, from 0, stretched so that it keeps `workers` busy for `target` of the time (Tales §2.1).
///
/// # Errors
/// [`QueueError::Unsorted`], [`QueueError::Unstable`] for a target of 1 or more, and as [`utilisation`].
pub fn scaled(arrivals: &[u64], mean_service_ns: f64, workers: usize, target: f64) -> Result<Vec<u64>, QueueError> {
    if let Some(i) = arrivals.windows(2).position(|pair| pair[1] < pair[0]) {
        return Err(QueueError::Unsorted { index: i + 1, back_ns: arrivals[i] - arrivals[i + 1] });
    }
    let scale = utilisation(arrivals, mean_service_ns, workers)? / stable(target)?;
    Ok(arrivals.iter().map(|t| ((t - arrivals[0]) as f64 * scale).round() as u64).collect())
}

/// A utilisation above 0 and below 1.
pub(crate) fn stable(utilisation: f64) -> Result<f64, QueueError> {
    if utilisation >= 1.0 {
        return Err(QueueError::Unstable { utilisation });
    }
    if utilisation > 0.0 {
        return Ok(utilisation);
    }
    let text = format!("{} %", utilisation * 100.0);
    Err(QueueError::Parse { what: "a utilisation", text, expected: "more than 0 % and less than 100 %" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_stretched_to_a_utilisation() {
        // Four gaps of 250 ns on average, service 100 ns, two workers: 20 %.
        let series = [1000, 1100, 1500, 1600, 2000];
        assert!((utilisation(&series, 100.0, 2).unwrap() - 0.2).abs() < 1e-12);
        assert_eq!(scaled(&series, 100.0, 2, 0.4).unwrap(), [0, 50, 250, 300, 500]);
    }

    #[test]
    fn what_cannot_be_stretched_is_refused() {
        assert_eq!(scaled(&[], 100.0, 1, 0.5), Err(QueueError::Empty));
        assert_eq!(scaled(&[3, 9, 5], 100.0, 1, 0.5), Err(QueueError::Unsorted { index: 2, back_ns: 4 }));
        assert_eq!(scaled(&[7, 7], 100.0, 1, 0.5), Err(QueueError::NoLength { arrivals: 2 }));
        assert_eq!(scaled(&[1, 2], 100.0, 0, 0.5), Err(QueueError::NoWorkers));
        assert_eq!(scaled(&[1, 2], 100.0, 1, 1.0), Err(QueueError::Unstable { utilisation: 1.0 }));
        assert!(scaled(&[1, 2], 100.0, 1, 0.0).is_err());
    }
}
