//! Who is served next. In: a text such as `random-worker`. Out: a queueing discipline (Tales of the Tail §2.4).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tailsight_units::parse;

use crate::queue::QueueError;

/// The order in which workers take requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Discipline {
    /// One queue, the earliest request first: `fifo`. The best tail of all.
    Fifo,
    /// One queue, the latest request first: `lifo`.
    Lifo,
    /// One queue, each waiting request as likely as any other: `random-request`.
    RandomRequest,
    /// A FIFO queue for each worker, a worker drawn for each request: `random-worker`.
    RandomWorker,
    /// A FIFO queue for each worker, and each connection belongs to one worker, as in nginx: `connection:N` for so many
    /// connections. A request's connection says its worker: connection modulo workers.
    Connection(u32),
    /// One queue; a request is served for a quantum at most and then queues up again, as under a scheduler that shares
    /// time: `sharing:QUANTUM`, in ns.
    Sharing(u64),
}

const FORMS: &str =
    "fifo, lifo, random-request, random-worker, connection:CONNECTIONS or sharing:QUANTUM (such as sharing:1ms)";

impl Discipline {
    /// Whether no worker is idle while a request waits.
    #[must_use]
    pub fn conserves_work(self) -> bool {
        !matches!(self, Self::RandomWorker | Self::Connection(_))
    }
}

impl FromStr for Discipline {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self, QueueError> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let discipline = match (name, rest) {
            ("fifo", None) => Some(Self::Fifo),
            ("lifo", None) => Some(Self::Lifo),
            ("random-request", None) => Some(Self::RandomRequest),
            ("random-worker", None) => Some(Self::RandomWorker),
            ("connection", Some(n)) => {
                parse::whole(n).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).map(Self::Connection)
            }
            ("sharing", Some(quantum)) => parse::duration_ns(quantum).filter(|ns| *ns > 0).map(Self::Sharing),
            _ => None,
        };
        discipline.ok_or_else(|| QueueError::Parse {
            what: "a queueing discipline",
            text: text.into(),
            expected: FORMS,
        })
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo => f.write_str("fifo"),
            Self::Lifo => f.write_str("lifo"),
            Self::RandomRequest => f.write_str("random-request"),
            Self::RandomWorker => f.write_str("random-worker"),
            Self::Connection(connections) => write!(f, "connection:{connections}"),
            Self::Sharing(quantum) => write!(f, "sharing:{}", parse::write_duration(*quantum)),
        }
    }
}

impl TryFrom<String> for Discipline {
    type Error = QueueError;
    fn try_from(text: String) -> Result<Self, QueueError> {
        text.parse()
    }
}

impl From<Discipline> for String {
    fn from(discipline: Discipline) -> Self {
        discipline.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["fifo", "lifo", "random-request", "random-worker", "connection:100", "sharing:1ms"] {
            assert_eq!(text.parse::<Discipline>().unwrap().to_string(), text);
        }
        for bad in ["", "FIFO", "fifo:1", "connection", "connection:0", "sharing:0ns", "sharing:1", "random"] {
            let error = bad.parse::<Discipline>().unwrap_err().to_string();
            assert!(error.contains("random-worker"), "{error}");
        }
    }
}
