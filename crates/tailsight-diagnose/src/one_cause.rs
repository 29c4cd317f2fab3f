//! Rows that a reader takes for one cause: the same work, of which the kernel shows a part on one thread and a part on another.
//!
//! In: causes with their functions. Out: pairs of causes, the first of which is to be added to the second. Threads of a runtime (goroutines,
//! tokio, libuv) run requests on whichever of them is free, so the time of one function is partly in the row of the thread that received the
//! message and partly in rows of other threads. That they are one is decided by the function, which samples tell; nothing else is joined.

use tailsight_lifetime::Threshold;

use crate::cause::names::Titled as _;
use crate::cause::{Category, Subject};
use crate::model::Cause;

/// The pairs, by index: no cause is in two of them as the first, and none is both.
pub(crate) fn pairs(causes: &[Cause]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for from in 0..causes.len() {
        let larger = |to: &usize| {
            causes[*to].deviation_ns > causes[from].deviation_ns
                || (causes[*to].deviation_ns == causes[from].deviation_ns && *to < from)
        };
        let fits = |to: &usize| *to != from && is_part_of(&causes[from], &causes[*to], larger(to));
        // The largest; and not one that is itself added to another.
        let to = (0..causes.len())
            .filter(fits)
            .filter(|to| pairs.iter().all(|(from, _)| from != to))
            .max_by_key(|to| causes[*to].deviation_ns);
        if let Some(to) = to.filter(|_| pairs.iter().all(|(_, to)| *to != from)) {
            pairs.push((from, to));
        }
    }
    pairs
}

/// Whether a cause is the same work as another, in whose row it belongs. `larger`: whether that one has more time.
fn is_part_of(from: &Cause, to: &Cause, larger: bool) -> bool {
    if from.role != to.role || from.deviation_ns <= 0 || to.deviation_ns <= 0 {
        return false;
    }
    let same_runtime =
        from.category == Category::Runtime && to.category == Category::Runtime && from.title() == to.title();
    let waits = |cause: &Cause| main(cause).is_some_and(|(_, waits)| waits);
    if same_runtime && waits(from) == waits(to) {
        return larger;
    }
    let same_function = main(from).zip(main(to)).is_some_and(|(from, to)| from == to && !from.1);
    if to.category == Category::SchedulerWait {
        // Who has the processor keeps it from tasks that are ready, and from requests that no task could read yet.
        let unread = from.category == Category::AppProcessing && from.is_before_receive();
        return same_function && (unread || from.category == Category::HolBlocking);
    }
    let from_other =
        matches!(from.subject, Some(Subject::OtherThread { .. })) && from.category == Category::AppProcessing;
    let to_fits = match &to.subject {
        Some(Subject::OtherThread { .. }) => to.category == Category::AppProcessing && larger,
        // Whose messages they were is known of these.
        Some(Subject::OtherThreads { .. }) => to.category == Category::HolBlocking,
        Some(Subject::Class { .. } | Subject::SystemCall { .. }) => false,
        Some(subject) if subject.is_own_wait() => false,
        _ => to.category == Category::AppProcessing,
    };
    same_function && from_other && to_fits
}

/// The function that has most of a cause, and whether it is where the thread slept.
fn main(cause: &Cause) -> Option<(&str, bool)> {
    cause
        .functions
        .first()
        .filter(|first| first.share >= Threshold::MainFunction.share())
        .map(|first| (first.name.as_str(), first.waits))
}

#[cfg(test)]
mod tests {
    use tailsight_lifetime::Role;

    use super::*;
    use crate::model::FunctionPart;

    fn cause(category: Category, subject: Subject, deviation_ns: i64, function: &str, waits: bool) -> Cause {
        let name = crate::cause::names::base(&subject);
        let first = FunctionPart { name: function.to_owned(), share: 0.8, waits, ..FunctionPart::default() };
        Cause { deviation_ns, functions: vec![first], ..Cause::new(category, name, subject, vec![], Role::A) }
    }

    fn other_thread() -> Subject {
        Subject::OtherThread { name: "worker".into() }
    }

    fn own(ns: i64, function: &str) -> Cause {
        cause(Category::AppProcessing, Subject::named("user"), ns, function, false)
    }

    #[test]
    fn one_function_on_the_message_s_thread_and_on_another_is_one_cause() {
        let other = |ns, function, waits| cause(Category::AppProcessing, other_thread(), ns, function, waits);
        // Whichever is larger, the row of the message's own thread has it.
        assert_eq!(pairs(&[own(5, "compact"), other(3, "compact", false)]), [(1, 0)]);
        assert_eq!(pairs(&[other(5, "compact", false), own(3, "compact")]), [(0, 1)]);
        assert_eq!(pairs(&[own(5, "compact"), other(3, "flush", false)]), []);
        assert_eq!(pairs(&[own(5, "compact"), other(3, "compact", true)]), [], "it slept there");
        assert_eq!(pairs(&[own(5, "compact"), other(-3, "compact", false)]), []);
    }

    #[test]
    fn threads_that_serve_nobody_join_those_that_serve_others_with_the_same_function() {
        let serving =
            cause(Category::HolBlocking, Subject::OtherThreads { application: "app".into() }, 2, "handle", false);
        let idle = |ns| cause(Category::AppProcessing, other_thread(), ns, "handle", false);
        assert_eq!(pairs(&[idle(9), serving.clone()]), [(0, 1)]);
        // What another thread did for others is no work of the message itself.
        assert_eq!(pairs(&[own(9, "handle"), serving]), []);
        // Three threads: the two smaller ones are added to the largest.
        assert_eq!(pairs(&[idle(9), idle(5), idle(7)]), [(1, 0), (2, 0)]);
    }

    /// Go: a job had the only processor; what waited for it was "itself took longer", "other requests" and "its scheduler".
    #[test]
    fn who_keeps_the_processor_from_tasks_and_from_requests_is_one_cause() {
        let ready = |ns, function| cause(Category::SchedulerWait, Subject::named("other tasks"), ns, function, false);
        let unread = |ns| Cause { before_receive: Some(0.9), ..own(ns, "rebuild") };
        let others =
            |ns| cause(Category::HolBlocking, Subject::Application { name: "app".into() }, ns, "rebuild", false);
        assert_eq!(pairs(&[unread(9), others(7), ready(5, "rebuild")]), [(0, 2), (1, 2)]);
        assert_eq!(pairs(&[unread(9), others(7), ready(5, "compact")]), []);
        assert_eq!(pairs(&[own(9, "rebuild"), ready(5, "rebuild")]), [], "a request's own work");
    }

    #[test]
    fn two_rows_of_a_runtime_s_same_work_are_one() {
        let of_runtime = |ns, does: &str| {
            cause(Category::Runtime, Subject::Runtime { of: "Java".into(), does: does.into() }, ns, "collect", false)
        };
        assert_eq!(
            pairs(&[
                of_runtime(5, "collecting garbage"),
                of_runtime(3, "collecting garbage"),
                of_runtime(2, "compiling")
            ]),
            [(1, 0)]
        );
        // Go: its monitor was waited for as the holder of a lock, and as what the request slept in.
        let waits = |ns| {
            let subject = Subject::Runtime { of: "Go".into(), does: "waiting".into() };
            cause(Category::Runtime, subject, ns, "runtime.sysmon", true)
        };
        let works = Cause { functions: vec![], ..waits(1) };
        assert_eq!(pairs(&[waits(5), waits(3), works]), [(1, 0)], "work and waits are two");
    }
}
