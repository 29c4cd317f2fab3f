//! How a user would take an answer about a modern server. In: what a scenario's [`Reading`] says beforehand, a diagnosis. Out: [`Taken`].
//!
//! The rule was written before any answer was seen. In this order:
//!
//! 1. A clean scenario is *right* if nothing of the application has 5 % or more, else *partly* if the first cause is a permitted one.
//! 2. Where no service leg can be known, one that is given for more than a tenth of the messages is a false number: *misleading*. Without one
//!    it is *right* if a note says why, else *partly*.
//! 3. Without a diagnosis, or where the half is unexplained, the answer is that it is not known: *right* where the reading allows that, else
//!    *wrong*.
//! 4. Where calls of a backend cannot be told apart, its longest wait must not be given as less than half of what the backend's own log has: that
//!    would be a false number, and *misleading* whatever a note says. (This was a part of the task, and was forgotten in the first rule.)
//! 5. A first cause that the raw events show in none of its evidence is a false statement: *misleading*.
//! 6. A first cause among those of `right`, with its root and its function where these are given: *right*. Without that function: *partly*.
//! 7. Among those of `partly`, or a queue whose first root is one of `right`: *partly*; *right* where a note says that waits for the backend
//!    are not known and the reading allows that.
//! 8. Any other is *misleading* with half of the deviation or more, since it is then said with confidence; else *wrong*.

use serde::Serialize;
use serde_json::Value;

use super::super::judge::{self, Named, Score};
use super::super::scenario::{Answer, Cause, Function, Reading, Scenario, Unknown, named};

/// What a note says where requests share a connection.
const SHARED: &str = "service, transmit and total are N/A";
/// What a note says where calls of the backend cannot be told apart.
const CALLS: &str = "the wait for another server's answer is not known";
/// From this share of the deviation on a cause is said with confidence.
const CONFIDENT: f64 = 0.5;

/// A cause of that category.
pub const fn of(category: &'static str) -> Answer {
    Answer { category, names: &[], roots: &[], function: None }
}

impl Answer {
    /// Of these names.
    pub const fn called(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }

    /// Of a queue: behind one of these categories.
    pub const fn behind(self, roots: &'static [&'static str]) -> Self {
        Self { roots, ..self }
    }

    /// With this function first.
    pub const fn in_function(self, names: &'static [&'static str]) -> Self {
        Self { function: Some(Function { names }), ..self }
    }

    /// In words.
    fn words(&self) -> String {
        let listed = |what: &str, names: &[&str]| {
            if names.is_empty() { String::new() } else { format!(" {what}{}", names.join(" or ")) }
        };
        let function = self.function.map_or(String::new(), |f| format!(" ▸ {}", f.names.join(" or ")));
        format!("{}{}{}{function}", self.category, listed("", self.names), listed("behind ", self.roots))
    }

    /// Its category, and how its name may read.
    pub fn cause(&self) -> Cause {
        named(self.category, self.names.first().copied().unwrap_or_default())
    }

    fn names(&self, category: &str, name: &str) -> bool {
        self.category == category && (self.names.is_empty() || self.names.iter().any(|part| name.contains(part)))
    }

    fn is(&self, first: &Named) -> bool {
        let behind = || first.root.first().is_some_and(|(root, _)| self.roots.contains(&root.as_str()));
        self.names(&first.category, &first.name) && (self.roots.is_empty() || behind())
    }

    fn has_function(&self, first: &Named) -> bool {
        self.function.is_none_or(|function| first.functions.first().is_some_and(|part| function.is(&part.name)))
    }
}

/// How a user would take an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// It leads to the cause.
    Right,
    /// It leads near it.
    Partly,
    /// It leads nowhere.
    Wrong,
    /// It leads elsewhere: a false number or a confident wrong cause.
    Misleading,
}

impl Taken {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Partly => "partly",
            Self::Wrong => "WRONG",
            Self::Misleading => "MISLEADING",
        }
    }

    /// As the other scenarios count.
    pub fn score(self) -> Score {
        if self == Self::Right { Score::Right } else { Score::Wrong }
    }
}

impl Reading {
    /// What is right, in words.
    pub fn expected(&self) -> String {
        let words = |answers: &[Answer]| answers.iter().map(Answer::words).collect::<Vec<_>>().join(", or ");
        match self.unknown {
            Unknown::Service => "no service leg, and a note that says why".to_owned(),
            _ if self.right.is_empty() => "nothing of the application".to_owned(),
            Unknown::Calls => format!("{}, or a note that it is not known", words(&self.right)),
            Unknown::No => words(&self.right),
        }
    }

    /// Of a run without a diagnosis.
    pub fn of_no_answer(&self) -> Taken {
        if self.unknown == Unknown::No { Taken::Wrong } else { Taken::Right }
    }

    /// Of a diagnosis; `absent` are the causes that the raw events do not show, `longest_ns` is the longest interval of the program's log in
    /// the recording.
    pub fn of(
        &self,
        scenario: &Scenario,
        diagnosis: &Value,
        causes: &[Named],
        absent: &[String],
        longest_ns: Option<u64>,
    ) -> Taken {
        let notes = |text: &str| {
            let notes_of = diagnosis["notes"].as_array().into_iter().flatten();
            notes_of.filter_map(Value::as_str).any(|note| note.contains(text))
        };
        let first = causes.first();
        if let Some(may) = &scenario.may {
            let too_much = judge::forbidden(scenario, causes).iter().any(|cause| cause.share >= judge::TOO_MUCH);
            let permitted = |first: &Named| may.iter().any(|cause| cause.is(&first.category, &first.name));
            return match first {
                _ if !too_much => Taken::Right,
                Some(first) if permitted(first) => Taken::Partly,
                Some(first) if first.share >= CONFIDENT => Taken::Misleading,
                _ => Taken::Wrong,
            };
        }
        if self.unknown == Unknown::Service {
            let served = diagnosis["legs"]["service"]["messages"].as_u64().unwrap_or(0);
            let messages = diagnosis["messages"]["total"].as_u64().unwrap_or(0);
            return match notes(SHARED) {
                _ if served * 10 > messages => Taken::Misleading,
                true => Taken::Right,
                false => Taken::Partly,
            };
        }
        let unexplained = diagnosis["causes"].as_array().into_iter().flatten();
        let unexplained = unexplained.filter(|cause| cause["category"] == "unexplained");
        let unexplained: f64 = unexplained.filter_map(|cause| cause["share"].as_f64()).sum();
        let Some(first) = first.filter(|_| unexplained < CONFIDENT) else { return self.of_no_answer() };
        let waited = diagnosis["sent"]["requests"]["wait_ns"]["max"].as_u64();
        if self.unknown == Unknown::Calls && waited.zip(longest_ns).is_some_and(|(said, true_ns)| said * 2 < true_ns) {
            return Taken::Misleading;
        }
        let label = format!("{} {} ({})", first.category, first.name, first.role);
        if absent.iter().any(|cause| cause.starts_with(&label)) {
            return Taken::Misleading;
        }
        if let Some(answer) = self.right.iter().find(|answer| answer.is(first)) {
            return if answer.has_function(first) { Taken::Right } else { Taken::Partly };
        }
        let is_root = |answer: &Answer| first.root.first().is_some_and(|(category, name)| answer.names(category, name));
        let behind = first.category == "hol-blocking" && self.right.iter().any(is_root);
        if behind || self.partly.iter().any(|answer| answer.is(first)) {
            let said = self.unknown == Unknown::Calls && notes(CALLS);
            return if said { Taken::Right } else { Taken::Partly };
        }
        if first.share >= CONFIDENT { Taken::Misleading } else { Taken::Wrong }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::all;
    use super::*;

    fn taken(name: &str, diagnosis: &Value) -> Taken {
        let scenario = all().into_iter().find(|scenario| scenario.name == name).expect("a scenario");
        let causes = judge::causes(diagnosis);
        scenario.reading.as_ref().expect("a reading").of(&scenario, diagnosis, &causes, &[], Some(12_000_000))
    }

    fn cause(category: &str, name: &str, share: f64) -> Value {
        json!({"category": category, "name": name, "role": "A", "share": share, "deviation_ns": 5, "evidence": [3]})
    }

    fn first(category: &str, name: &str, share: f64) -> Value {
        json!({"causes": [cause(category, name, share)]})
    }

    #[test]
    fn a_neighbour_is_partly_right_and_a_confident_stranger_misleads() {
        assert_eq!(taken("go-mutex", &first("lock-wait", "futex", 0.9)), Taken::Right);
        assert_eq!(taken("go-mutex", &first("app-processing", "waits in epoll_wait", 0.9)), Taken::Partly);
        assert_eq!(taken("go-mutex", &first("paging", "page faults", 0.5)), Taken::Misleading);
        assert_eq!(taken("go-mutex", &first("paging", "page faults", 0.4)), Taken::Wrong);
        let unknown = json!({"causes": [cause("paging", "page faults", 0.3), cause("unexplained", "", 0.6)]});
        assert_eq!(taken("go-mutex", &unknown), Taken::Wrong);
        let mut queue = cause("hol-blocking", "node", 0.8);
        queue["root"] = json!([{"category": "app-processing", "name": "user", "share": 0.9}]);
        assert_eq!(taken("node-sync", &json!({"causes": [queue]})), Taken::Partly);
    }

    #[test]
    fn a_function_that_is_expected_and_not_named_is_partly_right() {
        let mut collects = cause("app-processing", "user", 0.8);
        assert_eq!(taken("go-gc", &json!({"causes": [collects.clone()]})), Taken::Partly);
        collects["functions"] =
            json!([{"name": "scanobject", "share": 0.9, "runtime": {"of": "Go", "does": "collecting garbage"}}]);
        assert_eq!(taken("go-gc", &json!({"causes": [collects]})), Taken::Right);
    }

    #[test]
    fn a_service_leg_of_shared_connections_is_a_false_number() {
        let answer_with = |served: u64, notes: &[&str]| json!({"causes": [], "notes": notes, "legs": {"service": {"messages": served}}, "messages": {"total": 100}});
        assert_eq!(
            taken("go-h2c", &answer_with(0, &["10 messages …: service, transmit and total are N/A, for …"])),
            Taken::Right
        );
        assert_eq!(taken("go-h2c", &answer_with(0, &[])), Taken::Partly);
        assert_eq!(taken("go-h2c", &answer_with(50, &[])), Taken::Misleading);
    }

    #[test]
    fn a_wait_for_a_backend_that_leaves_the_long_ones_out_is_a_false_number() {
        let verdict_at = |max: u64| {
            let mut answer = first("app-processing", "waits in epoll_wait", 0.7);
            answer["notes"] = json!([format!("{CALLS} for 17 requests to it")]);
            answer["sent"] = json!({"requests": {"wait_ns": {"max": max}}});
            taken("haproxy-tcp", &answer)
        };
        assert_eq!((verdict_at(386_000), verdict_at(12_500_000)), (Taken::Misleading, Taken::Right));
    }

    #[test]
    fn a_clean_server_may_name_the_machine() {
        assert_eq!(taken("clean-go", &first("interference", "somebody", 0.9)), Taken::Right);
        assert_eq!(taken("clean-go", &first("app-processing", "user", 0.04)), Taken::Right);
        assert_eq!(taken("clean-go", &first("app-processing", "user", 0.4)), Taken::Wrong);
        assert_eq!(taken("clean-go", &first("hol-blocking", "go", 0.7)), Taken::Misleading);
    }
}
