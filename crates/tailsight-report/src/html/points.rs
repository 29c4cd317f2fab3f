//! The messages of a part of the balloon plot, for `tailsight view`: the page of a large run holds those in focus and a sample of the
//! others, and asks for those of the part that is shown.
//!
//! In: a part, as ids, latencies and one flow, thread or class; how many messages at most. Out: their columns as bytes, little-endian: the
//! number of messages (u32), how many the part has (u32), then latency and arrival (f64, ns; arrival since the run's start), id, flow,
//! thread and class (u32). Threads are numbered as in the page. Messages whose leg is not complete are in no part.

use tailsight_diagnose::cohorts::chosen_class::InClass;
use tailsight_lifetime::{Leg, Message};

use super::{Input, messages};

/// Which messages a part keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// All.
    All,
    /// Those of a flow.
    Flow(u32),
    /// Those of a thread, by its number in the page.
    Thread(u32),
    /// Those of a class of requests.
    Class(u32),
}

/// A part of the plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First and last id.
    pub ids: (u32, u32),
    /// Least and largest latency, ns.
    pub latency_ns: (u64, u64),
    /// Which of these.
    pub only: Only,
}

impl Part {
    /// All messages.
    pub const WHOLE: Part = Part { ids: (0, u32::MAX), latency_ns: (0, u64::MAX), only: Only::All };

    /// A part as the page writes it: `FROM/TO/LOW/HIGH/all|flow|thread|class/VALUE`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Part> {
        let fields: Vec<&str> = text.split('/').collect();
        let &[from, to, low, high, by, value] = fields.as_slice() else { return None };
        let value = value.parse().ok()?;
        let only = match by {
            "all" => Only::All,
            "flow" => Only::Flow(value),
            "thread" => Only::Thread(value),
            "class" => Only::Class(value),
            _ => return None,
        };
        Some(Part {
            ids: (from.parse().ok()?, to.parse().ok()?),
            latency_ns: (low.parse().ok()?, high.parse().ok()?),
            only,
        })
    }
}

/// The messages of a diagnosis's leg, by part.
pub struct Points<'a> {
    messages: &'a [Message],
    leg: Leg,
    start_ns: u64,
    threads: Vec<u32>,
    /// (latency, id) of the complete messages, ascending.
    ranked: Vec<(u64, u32)>,
    in_class: InClass,
}

impl<'a> Points<'a> {
    /// From the parts of a report.
    #[must_use]
    pub fn new(input: &Input<'a>) -> Points<'a> {
        let (messages, leg) = (&input.lifetimes.messages[..], input.diagnosis.leg);
        let in_class = InClass::of(input.diagnosis, input.lifetimes);
        let ranked = tailsight_diagnose::cohorts::ranked_in(messages, leg, &in_class);
        Points { messages, leg, start_ns: input.meta.start_ns, threads: messages::threads(messages), ranked, in_class }
    }

    /// Complete messages.
    #[must_use]
    pub fn complete(&self) -> usize {
        self.ranked.len()
    }

    /// The ids of a part, ascending, at most about `most` of them, and how many the part has. If it has more, these are kept: the slowest and
    /// the fastest message of each interval, and a regular sample of the others.
    #[must_use]
    pub fn chosen(&self, part: &Part, most: usize) -> (Vec<u32>, usize) {
        let (first, last) = (part.ids.0 as usize, (part.ids.1 as usize).saturating_add(1).min(self.messages.len()));
        let in_part = |(id, message): (usize, &Message)| {
            let ns = message.latency(self.leg)?;
            let fits = part.latency_ns.0 <= ns && ns <= part.latency_ns.1;
            (fits && self.in_class.has(message) && self.is_only(message, part.only)).then_some((ns, id as u32))
        };
        let in_sight: Vec<(u64, u32)> =
            self.messages.iter().enumerate().take(last).skip(first).filter_map(in_part).collect();
        let sight = in_sight.len();
        if sight <= most {
            return (in_sight.into_iter().map(|(_, id)| id).collect(), sight);
        }
        // A quarter of the points are the slowest of an interval, a quarter the fastest.
        let interval = sight.div_ceil((most / 4).max(1));
        let step = sight.div_ceil((most / 2).max(1));
        let mut ids: Vec<u32> = in_sight.iter().step_by(step).map(|(_, id)| *id).collect();
        for part in in_sight.chunks(interval) {
            ids.extend(part.iter().max().into_iter().chain(part.iter().min()).map(|(_, id)| *id));
        }
        ids.sort_unstable();
        ids.dedup();
        (ids, sight)
    }

    fn is_only(&self, message: &Message, only: Only) -> bool {
        match only {
            Only::All => true,
            Only::Flow(flow) => message.flow == flow,
            Only::Thread(number) => self.threads.get(number as usize) == Some(&message.tid),
            Only::Class(class) => u32::from(message.class) == class,
        }
    }

    /// The messages of a part as bytes.
    #[must_use]
    pub fn bytes(&self, part: &Part, most: usize) -> Vec<u8> {
        let (ids, sight) = self.chosen(part, most);
        let message_of = |id: &u32| &self.messages[*id as usize];
        let mut out = Vec::with_capacity(8 + 32 * ids.len());
        out.extend((ids.len() as u32).to_le_bytes());
        out.extend((sight as u32).to_le_bytes());
        let latency = |id: &u32| message_of(id).latency(self.leg).map_or(f64::NAN, |ns| ns as f64).to_le_bytes();
        out.extend(ids.iter().flat_map(latency));
        out.extend(
            ids.iter().flat_map(|id| (message_of(id).driver_ns.saturating_sub(self.start_ns) as f64).to_le_bytes()),
        );
        out.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        out.extend(ids.iter().flat_map(|id| message_of(id).flow.to_le_bytes()));
        let thread = |id: &u32| (self.threads.binary_search(&message_of(id).tid).unwrap_or(0) as u32).to_le_bytes();
        out.extend(ids.iter().flat_map(thread));
        out.extend(ids.iter().flat_map(|id| u32::from(message_of(id).class).to_le_bytes()));
        out
    }

    /// A message's neighbours by latency, slower and faster, and how many messages are faster; none where its leg is not complete.
    #[must_use]
    pub fn beside(&self, id: u32) -> Option<Beside> {
        let ns = self.messages.get(id as usize)?.latency(self.leg)?;
        let at = self.ranked.binary_search(&(ns, id)).ok()?;
        let id_at = |i: usize| self.ranked.get(i).map(|(_, id)| *id);
        Some(Beside {
            slower: id_at(at + 1),
            faster: at.checked_sub(1).and_then(id_at),
            place: self.ranked.partition_point(|(other, _)| *other < ns),
        })
    }
}

/// A message's neighbours by latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Beside {
    /// The next slower one.
    pub slower: Option<u32>,
    /// The next faster one.
    pub faster: Option<u32>,
    /// Messages that are faster.
    pub place: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(messages: &[Message]) -> Points<'_> {
        let ranked = tailsight_diagnose::cohorts::ranked(messages, Leg::Total);
        Points {
            messages,
            leg: Leg::Total,
            start_ns: 100,
            threads: messages::threads(messages),
            ranked,
            in_class: InClass::ANY,
        }
    }

    /// Latency 1,000 + 7 i mod 1,000, every hundredth ten times that; two threads; one message is not complete.
    fn made(n: u32) -> Vec<Message> {
        let message = |id: u32| {
            let driver_ns = 100 + 50 * u64::from(id);
            let ns = (1_000 + u64::from(id * 7 % 1_000)) * if id % 100 == 3 { 10 } else { 1 };
            let end = if id == 5 { 0 } else { driver_ns + ns };
            Message {
                id,
                driver_ns,
                handoff_ns: driver_ns + 10,
                recv_ns: driver_ns + 20,
                send_ns: driver_ns + 30,
                xmit_ns: end,
                tid: 40 + id % 2,
                flow: id % 3,
                ..Message::default()
            }
        };
        (0..n).map(message).collect()
    }

    #[test]
    fn a_part_is_written_as_the_page_asks_for_it() {
        let part = Part { ids: (3, 900), latency_ns: (0, 9_007_199_254_740_991), only: Only::Thread(1) };
        assert_eq!(Part::parse("3/900/0/9007199254740991/thread/1"), Some(part));
        for wrong in
            ["", "3/900/0/5/thread", "3/900/0/5/all/0/1", "-3/900/0/5/all/0", "3/900/0/5/core/0", "a/b/c/d/all/0"]
        {
            assert_eq!(Part::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_part_has_all_its_messages_where_they_are_few() {
        let messages = made(2_000);
        let points = points(&messages);
        assert_eq!(points.complete(), 1_999);
        let (ids, sight) = points.chosen(&Part { ids: (0, 9), ..Part::WHOLE }, 100);
        assert_eq!((ids, sight), (vec![0, 1, 2, 3, 4, 6, 7, 8, 9], 9));
        let (ids, _) = points.chosen(&Part { ids: (0, 9), only: Only::Thread(1), ..Part::WHOLE }, 100);
        assert_eq!(ids, [1, 3, 7, 9]);
        let (ids, _) =
            points.chosen(&Part { ids: (0, 1_000), latency_ns: (9_000, u64::MAX), only: Only::Flow(1) }, 100);
        assert_eq!(ids, [103, 403, 703]);
        assert_eq!(points.chosen(&Part { ids: (5_000, 9_000), ..Part::WHOLE }, 100), (vec![], 0));
        assert_eq!(points.chosen(&Part { ids: (9, 3), ..Part::WHOLE }, 100), (vec![], 0));
    }

    #[test]
    fn of_many_messages_the_slowest_of_each_stretch_stay() {
        let messages = made(10_000);
        let points = points(&messages);
        let (ids, sight) = points.chosen(&Part::WHOLE, 800);
        assert_eq!(sight, 9_999);
        assert!(ids.len() <= 802 && ids.len() >= 500, "{}", ids.len());
        assert!(ids.windows(2).all(|w| w[0] < w[1]));
        let slowest = points.ranked[points.ranked.len() - 1].1;
        assert!(ids.contains(&slowest));
        // Each of the hundred outliers is the slowest of its interval of fifty messages.
        assert!((0..100).all(|k| ids.contains(&(100 * k + 3))));
    }

    #[test]
    fn bytes_are_columns() {
        let messages = made(20);
        let bytes = points(&messages).bytes(&Part { ids: (2, 4), ..Part::WHOLE }, 100);
        assert_eq!(bytes.len(), 8 + 3 * 32);
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let f64_at = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!((u32_at(0), u32_at(4)), (3, 3));
        assert_eq!([f64_at(8), f64_at(16), f64_at(24)], [1_014.0, 10_210.0, 1_028.0]);
        assert_eq!([f64_at(32), f64_at(40), f64_at(48)], [100.0, 150.0, 200.0]);
        assert_eq!((56..104).step_by(4).map(u32_at).collect::<Vec<_>>(), [2, 3, 4, 2, 0, 1, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn neighbours_are_by_latency_then_id() {
        let messages = made(300);
        let points = points(&messages);
        assert_eq!(points.beside(5), None, "not complete");
        let (fastest, slowest) = (points.ranked[0].1, points.ranked[298].1);
        assert_eq!(points.beside(fastest), Some(Beside { slower: Some(points.ranked[1].1), faster: None, place: 0 }));
        assert_eq!(points.beside(slowest).map(|b| (b.slower, b.place)), Some((None, 298)));
    }
}
