//! The latency of a model. In: a model, a discipline, how many requests. Out: percentiles with intervals, beside the closed
//! forms where there are any; in mean service times, and in ns when the mean service time is given.

use std::collections::BTreeMap;

use rand::RngExt;
use schemars::JsonSchema;
use serde::Serialize;
use tailsight_stats::quantile::name;

use crate::queue::formulas::{Md1, mg1_mean, mmc_mean, mmc_quantile};
use crate::queue::{
    ArrivalKind, ArrivalProcess, Discipline, Model, Percentile, QueueError, Request, ServiceTimes, Sorted, rng, scaled,
    simulate,
};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The queue.
    pub model: Model,
    /// Who is served next.
    pub discipline: Discipline,
    /// How many requests are simulated. A recorded series is served once, whatever this is.
    pub requests: usize,
    /// Of everything that is drawn.
    pub seed: u64,
    /// The mean service time, ns; without it all is in mean service times.
    pub service_ns: Option<f64>,
    /// Recorded arrivals, ns, for a model that wants them; scaled to the model's utilisation.
    pub recorded: Option<&'a [u64]>,
    /// Above 0 and below 1.
    pub percentiles: Vec<f64>,
}

/// The answer. Maps have the keys `mean`, `p50`, `p99.9`, …
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// Version of these fields.
    pub schema: u32,
    /// The model, in its notation.
    pub model: String,
    /// The discipline.
    pub discipline: String,
    /// Requests whose latency counts.
    pub requests: usize,
    /// The seed.
    pub seed: u64,
    /// The mean service time, ns, when it was given.
    pub service_ns: Option<f64>,
    /// Latencies, in mean service times.
    pub in_service_times: BTreeMap<String, f64>,
    /// 95 % intervals of these, from the spread of twenty parts of the series.
    pub ci95: BTreeMap<String, [f64; 2]>,
    /// What closed forms say, as far as there are any.
    pub exact: BTreeMap<String, f64>,
    /// Latencies, ns, when the mean service time was given.
    pub latency_ns: Option<BTreeMap<String, u64>>,
    /// Percentiles that so few requests do not carry, and why.
    pub not_available: BTreeMap<String, String>,
    /// Points (latency in mean service times, P(latency > that)), for log axes.
    pub ccdf: Vec<(f64, f64)>,
}

/// The mean service time where none is given: fine enough that whole nanoseconds do not show.
const UNIT_NS: f64 = 1e6;
/// The series is cut into so many parts for its intervals; Student's t of one less, two-sided at 95 %.
const PARTS: usize = 20;
const STUDENT: f64 = 2.093;
/// Points of the curve to a factor of ten.
const POINTS: usize = 40;

/// Simulates.
///
/// # Errors
/// [`QueueError::NeedsServiceTime`], [`QueueError::NeedsServiceTimes`] and [`QueueError::NeedsSeries`]; those of [`scaled`] and [`simulate`].
pub fn predict(question: &Question) -> Result<Prediction, QueueError> {
    let in_time = |what| match question.service_ns {
        Some(_) => Ok(()),
        None => Err(QueueError::NeedsServiceTime { what }),
    };
    if matches!(&question.model.service, ServiceTimes::Empirical(times) if times.is_empty()) {
        return Err(QueueError::NeedsServiceTimes);
    }
    if let ArrivalKind::Drawn(ArrivalProcess::Mmpp { .. }) = question.model.arrivals {
        in_time("the length of a burst")?;
    }
    if let Discipline::Sharing(_) = question.discipline {
        in_time("a quantum")?;
    }
    let unit = question.service_ns.unwrap_or(UNIT_NS);
    let ns = latencies(question, unit)?;
    let mut out = Prediction {
        schema: 1,
        model: question.model.to_string(),
        discipline: question.discipline.to_string(),
        requests: ns.len(),
        seed: question.seed,
        service_ns: question.service_ns,
        in_service_times: BTreeMap::new(),
        ci95: BTreeMap::new(),
        exact: exact(question),
        latency_ns: None,
        not_available: BTreeMap::new(),
        ccdf: Vec::new(),
    };
    let parts: Vec<Sorted> = match ns.len() / PARTS {
        0 => Vec::new(),
        length => ns.chunks_exact(length).take(PARTS).map(|part| Sorted::new(part.to_vec())).collect(),
    };
    let sorted = Sorted::new(ns);
    out.take("mean".into(), sorted.mean() / unit, parts.iter().map(|p| Some(p.mean() / unit)).collect());
    for q in &question.percentiles {
        let units = |sorted: &Sorted| sorted.percentile(*q).value().map(|ns| ns as f64 / unit);
        match sorted.percentile(*q) {
            Percentile::Value(ns) => out.take(name(*q), ns as f64 / unit, parts.iter().map(units).collect()),
            Percentile::TooFew { have, need } => {
                out.not_available.insert(name(*q), format!("needs {need} requests, there are {have}"));
            }
        }
    }
    out.latency_ns = question.service_ns.map(|_| {
        out.in_service_times.iter().map(|(key, units)| (key.clone(), (units * unit).round() as u64)).collect()
    });
    out.ccdf = sorted.ccdf(POINTS).0.into_iter().map(|(x, p)| (x as f64 / unit, p)).collect();
    Ok(out)
}

impl Prediction {
    /// `parts`: the same of each part of the series; an interval is there when all parts have one.
    fn take(&mut self, key: String, value: f64, parts: Vec<Option<f64>>) {
        let predicted: Vec<f64> = parts.into_iter().flatten().collect();
        if predicted.len() == PARTS {
            let mean = predicted.iter().sum::<f64>() / PARTS as f64;
            let variance = predicted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (PARTS - 1) as f64;
            let half = STUDENT * (variance / PARTS as f64).sqrt();
            self.ci95.insert(key.clone(), [value - half, value + half]);
        }
        self.in_service_times.insert(key, value);
    }
}

/// Of each request, ns; those of the first twentieth, which find an empty server, are left out.
fn latencies(question: &Question, unit: f64) -> Result<Vec<u64>, QueueError> {
    let (model, discipline, seed) = (&question.model, question.discipline, question.seed);
    let mut random = rng(seed, 4);
    if let Some(requests) = model.requests(unit, discipline, seed) {
        let cold = question.requests / 20;
        let served = simulate(requests.take(question.requests + cold), model.server(discipline), &mut random)?;
        return Ok(served.ns[cold..].to_vec());
    }
    let series = question.recorded.ok_or(QueueError::NeedsSeries)?;
    let arrivals = scaled(series, unit, model.workers, model.utilisation)?;
    let (draw, mut of_service, mut of_connection) = (model.service.with_mean(unit), rng(seed, 2), rng(seed, 3));
    let requests = arrivals.into_iter().map(|arrival_ns| Request {
        arrival_ns,
        service_ns: draw.draw(&mut of_service),
        connection: match discipline {
            Discipline::Connection(n) => of_connection.random_range(0..n),
            _ => 0,
        },
    });
    Ok(simulate(requests, model.server(discipline), &mut random)?.ns)
}

/// What is known without a simulation.
fn exact(question: &Question) -> BTreeMap<String, f64> {
    let (model, mut out) = (&question.model, BTreeMap::new());
    let poisson = model.arrivals == ArrivalKind::Drawn(ArrivalProcess::Exponential);
    if !poisson || question.discipline != Discipline::Fifo {
        return out;
    }
    let (c, utilisation) = (model.workers, model.utilisation);
    if model.service == ServiceTimes::Exponential {
        out.insert("mean".into(), mmc_mean(c, utilisation));
        out.extend(question.percentiles.iter().map(|q| (name(*q), mmc_quantile(c, utilisation, *q))));
    } else if c == 1 {
        out.insert("mean".into(), mg1_mean(utilisation, model.service.second_moment()));
        // Close to 1 the numbers in the system take long to sum, and there is little to gain from them.
        if model.service == ServiceTimes::Deterministic && utilisation <= 0.999 {
            let queue = Md1::new(utilisation);
            out.extend(question.percentiles.iter().map(|q| (name(*q), queue.quantile(*q))));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(model: &str, requests: usize) -> Question<'static> {
        Question {
            model: model.parse().unwrap(),
            discipline: Discipline::Fifo,
            requests,
            seed: 1,
            service_ns: None,
            recorded: None,
            percentiles: vec![0.5, 0.99, 0.9999],
        }
    }

    #[test]
    fn the_interval_holds_the_closed_form() {
        let answer = predict(&question("M/M/2 60%", 1_000_000)).unwrap();
        // M/M/2: the mean is 1 / (1 - ρ²).
        assert!((answer.exact["mean"] - 1.0 / (1.0 - 0.36)).abs() < 1e-9);
        for key in ["mean", "p50", "p99"] {
            let [low, high] = answer.ci95[key];
            let slack = (high - low) / 2.0;
            assert!(low - slack < answer.exact[key] && answer.exact[key] < high + slack, "{key}: {answer:?}");
            assert!(high - low < 0.1 * answer.exact[key], "{key}: {low} {high}");
        }
    }

    #[test]
    fn too_few_requests_are_not_available_with_the_reason() {
        let answer = predict(&question("M/D/1 80%", 10_000)).unwrap();
        assert_eq!(answer.not_available["p99.99"], "needs 36887 requests, there are 10000");
        assert!(!answer.in_service_times.contains_key("p99.99") && answer.in_service_times["p99"] > 1.0);
    }

    #[test]
    fn a_recorded_series_is_served_as_it_came() {
        // Pairs, a service time of work every two and a half: the second of each pair waits for the first.
        let series: Vec<u64> = (0..2000).flat_map(|i| [i * 1000, i * 1000]).collect();
        let asked = Question { recorded: Some(&series), ..question("recorded/D/1 80%", 0) };
        let answer = predict(&asked).unwrap();
        assert_eq!((answer.requests, answer.in_service_times["p99"]), (4000, 2.0));
        assert!((answer.in_service_times["mean"] - 1.5).abs() < 1e-6);
        assert_eq!(predict(&question("recorded/D/1 80%", 10)), Err(QueueError::NeedsSeries));
    }

    #[test]
    fn times_need_a_service_time() {
        let bursts = question("mmpp:8,0.1,10ms/D/1 50%", 1000);
        assert_eq!(predict(&bursts), Err(QueueError::NeedsServiceTime { what: "the length of a burst" }));
        let answer = predict(&Question { service_ns: Some(50_000.0), ..bursts }).unwrap();
        assert_eq!(answer.latency_ns.unwrap()["p50"], (answer.in_service_times["p50"] * 50_000.0).round() as u64);
        let shared = Question { discipline: Discipline::Sharing(1000), ..question("M/D/1 50%", 1000) };
        assert_eq!(predict(&shared), Err(QueueError::NeedsServiceTime { what: "a quantum" }));
    }
}
