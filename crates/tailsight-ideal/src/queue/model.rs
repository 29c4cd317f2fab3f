//! Kendall's notation. In: `M/D/4 80%`. Out: a model, and the requests that it describes.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use tailsight_units::parse;

use crate::queue::series::stable;
use crate::queue::{
    ArrivalProcess, Discipline, Gaps, QueueError, Request, Rng, Server, ServiceDraw, ServiceTimes, rng,
};

/// Where arrivals come from.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrivalKind {
    /// Drawn.
    Drawn(ArrivalProcess),
    /// Recorded ones, which are given with the model: `recorded`.
    Recorded,
}

/// `A/S/c` at a utilisation.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// When requests arrive.
    pub arrivals: ArrivalKind,
    /// How long they are served.
    pub service: ServiceTimes,
    /// How many are served at once.
    pub workers: usize,
    /// The share of the time that a worker is busy, above 0 and below 1.
    pub utilisation: f64,
}

const FORMS: &str = "ARRIVALS/SERVICE/WORKERS UTILISATION, such as 'M/D/4 80%'";
const ARRIVALS: &str = "M (Poisson), D (equal gaps), lognormal:SIGMA, pareto:SHAPE (above 1), gpareto:SHAPE (below 1), \
                        mmpp:RATIO,SHARE,BURST (such as mmpp:8,0.1,10ms) or recorded";
/// More workers than any host has cores.
const MOST_WORKERS: u64 = 100_000;

impl FromStr for Model {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self, QueueError> {
        let wrong = |what, text: &str, expected| QueueError::Parse { what, text: text.into(), expected };
        let parts = text.trim().rsplit_once(char::is_whitespace);
        let (notation, load) = parts.ok_or_else(|| wrong("a queueing model", text, FORMS))?;
        let [arrivals, service, workers] = notation.trim().split('/').collect::<Vec<_>>()[..] else {
            return Err(wrong("a queueing model", text, FORMS));
        };
        let arrivals = match arrivals {
            "recorded" => ArrivalKind::Recorded,
            "M" => ArrivalKind::Drawn(ArrivalProcess::Exponential),
            "D" => ArrivalKind::Drawn(ArrivalProcess::Fixed),
            other => {
                ArrivalKind::Drawn(other.parse().map_err(|_| wrong("an arrival process of a model", other, ARRIVALS))?)
            }
        };
        let count = workers.parse().ok().filter(|n| (1..=MOST_WORKERS).contains(n));
        let count = count.ok_or_else(|| wrong("a number of workers", workers, "a whole number from 1 to 100000"))?;
        Ok(Self {
            arrivals,
            service: service.parse()?,
            workers: count as usize,
            utilisation: read_utilisation(load).and_then(stable)?,
        })
    }
}

/// `80%` or `0.8`, as a share; it may be 1 or more.
fn read_utilisation(text: &str) -> Result<f64, QueueError> {
    let share = match text.strip_suffix('%') {
        Some(percent) => parse::signed(percent).map(|p| p / 100.0),
        // 80 without its sign would be 8000 %: more likely forgotten than meant.
        None => parse::signed(text).filter(|share| *share <= 1.0),
    };
    share.filter(|share| *share > 0.0).ok_or_else(|| QueueError::Parse {
        what: "a utilisation",
        text: text.into(),
        expected: "a percentage such as 80%, or a share below 1 such as 0.8",
    })
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.arrivals {
            ArrivalKind::Recorded => f.write_str("recorded")?,
            ArrivalKind::Drawn(ArrivalProcess::Exponential) => f.write_str("M")?,
            ArrivalKind::Drawn(ArrivalProcess::Fixed) => f.write_str("D")?,
            ArrivalKind::Drawn(process) => process.fmt(f)?,
        }
        let percent = (self.utilisation * 1e6).round() / 1e4;
        write!(f, "/{}/{} {percent}%", self.service, self.workers)
    }
}

impl Model {
    /// The requests of a model whose arrivals are drawn, without an end; `None` when they are recorded.
    #[must_use]
    pub fn requests(&self, mean_service_ns: f64, discipline: Discipline, seed: u64) -> Option<Synthetic> {
        let ArrivalKind::Drawn(process) = &self.arrivals else { return None };
        let mean_gap_ns = mean_service_ns / (self.utilisation * self.workers as f64);
        Some(Synthetic {
            gaps: Gaps::new(process, 1e9 / mean_gap_ns, rng(seed, 1)),
            mean_gap_ns,
            service: self.service.with_mean(mean_service_ns),
            service_rng: rng(seed, 2),
            connection_rng: rng(seed, 3),
            connections: match discipline {
                Discipline::Connection(n) => Some(n),
                _ => None,
            },
            at: 0.0,
        })
    }

    /// The server of the model.
    #[must_use]
    pub fn server(&self, discipline: Discipline) -> Server {
        Server { workers: self.workers, discipline }
    }
}

/// Requests that are drawn.
#[derive(Debug, Clone)]
pub struct Synthetic {
    gaps: Gaps,
    mean_gap_ns: f64,
    service: ServiceDraw,
    service_rng: Rng,
    connection_rng: Rng,
    connections: Option<u32>,
    at: f64,
}

impl Iterator for Synthetic {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        self.at += self.gaps.next_gap() * self.mean_gap_ns;
        Some(Request {
            arrival_ns: self.at as u64,
            service_ns: self.service.draw(&mut self.service_rng),
            connection: self.connections.map_or(0, |n| self.connection_rng.random_range(0..n)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_is_read_and_written() {
        for text in ["M/D/4 80%", "D/M/1 50%", "lognormal:1.5/bimodal:10,0.1/8 99.5%", "recorded/D/2 70%"] {
            assert_eq!(text.parse::<Model>().unwrap().to_string(), text);
        }
        let model: Model = " exponential/fixed/2   0.7 ".parse().unwrap();
        assert_eq!(model.to_string(), "M/D/2 70%");
    }

    #[test]
    fn errors_say_which_part_is_wrong_and_what_is_allowed() {
        for (text, word) in [
            ("", "ARRIVALS/SERVICE/WORKERS"),
            ("M/D/4", "ARRIVALS/SERVICE/WORKERS"),
            ("M/D 80%", "ARRIVALS/SERVICE/WORKERS"),
            ("G/D/4 80%", "Poisson"),
            ("M/G/4 80%", "bimodal"),
            ("M/D/0 80%", "number of workers"),
            ("M/D/x 80%", "number of workers"),
            ("M/D/4 80", "percentage"),
            ("M/D/4 0%", "percentage"),
            ("M/D/4 -5%", "percentage"),
            ("M/D/4 nan%", "percentage"),
            ("M/D/4 100%", "unstable"),
            ("M/D/4 120%", "unstable"),
            ("M/D/4 1.0", "unstable"),
        ] {
            let error = text.parse::<Model>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn requests_keep_the_utilisation() {
        let model: Model = "M/M/4 80%".parse().unwrap();
        let requests: Vec<Request> = model.requests(50_000.0, Discipline::Fifo, 1).unwrap().take(400_000).collect();
        let work: u64 = requests.iter().map(|r| r.service_ns).sum();
        let utilisation = work as f64 / requests[requests.len() - 1].arrival_ns as f64 / 4.0;
        assert!((utilisation / 0.8 - 1.0).abs() < 0.01, "{utilisation}");
    }
}
