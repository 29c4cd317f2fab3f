//! Functions in sentences: where a cause's time was, what was done meanwhile, and why no function is named.
//!
//! In: a [`Cause`] with its functions. Out: clauses of its sentence, and a note.

use tailsight_diagnose::cause::{Category, Subject};
use tailsight_diagnose::functions::without_arguments;
use tailsight_diagnose::model::{CallerPart, Cause, Diagnosis, FunctionHow, FunctionPart, MeanwhilePart, RuntimePart};
use tailsight_lifetime::Doing;

/// Points of a hundred in the parts of a function's callees from which on they are said.
const APART: f64 = 10.0;

/// What is known of a cause's first function, of what was done meanwhile, and of the first function of what held the messages ahead.
pub fn clauses(cause: &Cause) -> Vec<String> {
    let own = cause.functions.first();
    let root = cause.root.first();
    // What the thread did for the messages ahead is mostly what held those.
    let held = root.and_then(|root| root.functions.first()).filter(|held| own.is_none_or(|own| own.name != held.name));
    let meanwhile = own.filter(|_| !cause.meanwhile.is_empty()).map(|_| meanwhile(&cause.meanwhile));
    let of_reference = root.and_then(|root| root.samples).map_or(0, |[_, reference]| reference);
    let held = held.map(|held| clause(&Of { what: "what held those", of_reference, ..Of::IT }, held));
    own.map(|own| of_cause(cause, own)).into_iter().chain(meanwhile).chain(held).collect()
}

/// Who it was whose time a cause is, where that is not the message's own thread.
fn other(cause: &Cause) -> Option<&'static str> {
    match cause.subject.as_ref()? {
        Subject::Holder { .. } => Some("the holder"),
        Subject::OtherThread { .. } => Some("the other thread"),
        Subject::OtherThreads { .. } => Some("the other worker"),
        Subject::PutAside { .. } => Some("its thread"),
        // Whose place was waited for is known.
        Subject::Named { .. } if cause.category == Category::PoolWait => Some("the one before it"),
        _ => None,
    }
}

fn of_cause(cause: &Cause, first: &FunctionPart) -> String {
    // While others held the messages ahead the application ran nothing: no sample is of that part of the wait.
    let by_others = cause.root.first().is_some_and(|root| is_of_others(root.category));
    let what = if by_others { "what the application ran meanwhile" } else { "it" };
    let of_reference = cause.samples.map_or(0, |[_, reference]| reference);
    // What the cause is called is not said again of its place.
    let is_named = |r: &RuntimePart| cause.name.starts_with(&format!("{} {}", r.of, r.does));
    let first = FunctionPart { runtime: first.runtime.clone().filter(|r| !is_named(r)), ..first.clone() };
    clause(&Of { what, waited: other(cause).unwrap_or("it"), of_reference }, &first)
}

/// What a clause on a function is of.
pub struct Of<'a> {
    /// What the function has a part of.
    what: &'a str,
    /// Who waited there.
    waited: &'a str,
    /// The samples that the reference has of it; 0: none, or that is not said.
    of_reference: u64,
}

impl Of<'_> {
    /// What the sentence was about.
    pub const IT: Of<'static> = Of { what: "it", waited: "it", of_reference: 0 };
}

/// Whether it is time in which others had the core, so that the target's thread ran no function.
fn is_of_others(category: Category) -> bool {
    matches!(category, Category::Interference | Category::Steal)
}

/// What is known of the first function of `of`.
pub fn clause(of: &Of<'_>, first: &FunctionPart) -> String {
    let points = |share: f64| (share * 100.0).round().clamp(0.0, 100.0);
    let (share, alone) = (points(first.inclusive()), points(first.share));
    // As much as it is, a few points of it make no other picture.
    let rest = if share - alone >= APART {
        format!(" ({:.0} % in functions that it called and that are listed, too)", share - alone)
    } else {
        String::new()
    };
    let (name, place, by, how) = (without_arguments(&first.name), inside(first), called_by(first), how(of, first));
    format!("{share:.0} % of {} in {name}{place}{by}{rest}: {how}{}{}", of.what, unknown(first), runtime(first))
}

/// Who called a function, each with its part where it was not one alone.
fn called_by(function: &FunctionPart) -> String {
    let part = |caller: &CallerPart| format!("{} ({})", without_arguments(&caller.name), percent(caller.share));
    match (function.callers.as_slice(), &function.caller) {
        ([], None) => String::new(),
        ([], Some(caller)) => format!(", called by {}", without_arguments(caller)),
        (callers, _) => format!(", called by {}", callers.iter().map(part).collect::<Vec<_>>().join(" and ")),
    }
}

/// The functions beside a function without a name, and the library's that it called.
fn inside(function: &FunctionPart) -> String {
    let between = function.between.as_ref();
    let between = between.map(|[before, after]| format!("without a name, between {before} and {after}"));
    let inside = function.inside.as_ref().map(|inside| format!("in {}", without_arguments(inside)));
    let parts: Vec<String> = between.into_iter().chain(inside).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) }
}

/// What is known of it against the reference, or that it is a wait.
fn how(of: &Of<'_>, function: &FunctionPart) -> String {
    /// With fewer samples of the reference, chance is not told by a number.
    const FEW: u64 = 20;
    match function.how {
        _ if function.waits && function.waits_for_any => {
            "where its thread waits for whatever comes, for any task".to_owned()
        }
        _ if function.waits => format!("where {} waited", of.waited),
        FunctionHow::Unexpected if (1..FEW).contains(&of.of_reference) => {
            format!("in none of the {} samples that the reference has of it", of.of_reference)
        }
        FunctionHow::Unexpected => format!("in no sample of the reference{}", by_chance(function.chance)),
        FunctionHow::More => "more time than in the reference".to_owned(),
    }
}

/// That an interpreter ran it does not say what it ran.
fn unknown(function: &FunctionPart) -> String {
    let tells = function.interpreter_tells_when.as_ref().map_or_else(String::new, |how| format!("; {how}"));
    let says = |_| format!("; which function of the program it ran is not recorded{tells}");
    function.interpreter.as_ref().map_or_else(String::new, says)
}

/// What a runtime does there.
fn runtime(function: &FunctionPart) -> String {
    function.runtime.as_ref().map_or_else(String::new, |r| format!("; there {} is {}", r.of, r.does))
}

/// How likely it is that no sample met a function, in words.
fn by_chance(chance: Option<f64>) -> String {
    match chance {
        None => String::new(),
        Some(p) if p < 0.001 => ", which chance alone does in less than 0.1 % of runs".to_owned(),
        Some(p) => format!(", which chance alone does in {:.1} % of runs", p * 100.0),
    }
}

/// What was done meanwhile by the task that ended the wait.
fn meanwhile(parts: &[MeanwhilePart]) -> String {
    let all = |doing| parts.iter().all(|part| part.doing == doing);
    if all(Doing::TimeCame) {
        let share = percent(parts.iter().map(|part| part.share).sum());
        return format!("no task ended the wait: the time had come until which it was to last ({share})");
    }
    // Of goroutines only the end of a wait is told.
    if all(Doing::NotKnown) {
        let ended = |part: &MeanwhilePart| format!("{} ({})", part.function, percent(part.share));
        let places: Vec<String> = parts.iter().filter(|part| !part.function.is_empty()).map(ended).collect();
        return format!("the task that was waited for ended the wait in {}", places.join(", "));
    }
    format!("the task that ended the wait meanwhile {}", parts.iter().map(did).collect::<Vec<_>>().join(", "))
}

/// What a task did, where, and for which part of the wait.
fn did(part: &MeanwhilePart) -> String {
    let did = match (&part.server, &part.runtime, part.doing) {
        (Some(server), ..) => format!("waited for {server}"),
        (None, Some(runtime), _) => format!("waited ({runtime})"),
        (.., Doing::Runs) => "ran".to_owned(),
        (.., Doing::HasNoCore) => "was stopped in the middle of its work, because its thread had no core,".to_owned(),
        (.., Doing::SleepsInCall) => "slept in a system call".to_owned(),
        (.., Doing::IsReady) => "was ready to run, and no thread ran it".to_owned(),
        (.., Doing::Sleeps) => "slept until a time".to_owned(),
        (.., Doing::Waits) => "waited".to_owned(),
        (.., Doing::WaitsOutside) => {
            "waited for what came from outside (a socket, or a thread that runs no tasks)".to_owned()
        }
        (.., Doing::TimeCame) => "was not there, and the wait lasted until a time".to_owned(),
        (.., Doing::NotKnown) => "did something that was not recorded".to_owned(),
    };
    let place = match (part.function.as_str(), part.doing) {
        ("", _) => String::new(),
        (function, Doing::NotKnown) => format!(" before it ended the wait in {function}"),
        (function, _) => format!(" in {function}"),
    };
    format!("{did}{place} ({})", percent(part.share))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Why the first cause has no function and no place in the program, in a run with samples.
pub fn missing(diagnosis: &Diagnosis) -> Option<String> {
    if diagnosis.circumstances.has_samples[0] != Some(true) {
        return None;
    }
    let first = diagnosis.causes.iter().find(|c| c.category.is_named() && c.share > 0.0)?;
    let told = !first.functions.is_empty() || first.root.iter().any(|root| !root.functions.is_empty());
    if told || !is_in_target(first) {
        return None;
    }
    let rank = first.rank;
    let Some([n, _]) = first.samples else {
        return Some(format!("no place in the program stands out in cause {rank}: its threads slept at many places"));
    };
    let longer = "record longer, or at a higher rate (record --sample 8000)";
    Some(match n {
        0 if is_sleep(first) => format!(
            "cause {rank} has no place in the program: its thread slept where an event loop waits for whatever comes (epoll_wait and such), or \
             its stack was not read, which is done while it has a request in hand and where the code of the process is known"
        ),
        0 => format!("no function for cause {rank}: the clock met none of its time; {longer}"),
        1 => format!("no function stands out in the only sample of cause {rank}; {longer}"),
        n => format!("no function stands out in the {n} samples of cause {rank}; {longer}"),
    })
}

/// Whether a cause is time in which the target's threads ran or slept in the program: of others, and of time after the program had given
/// its reply away, no function of it is the cause.
fn is_in_target(cause: &Cause) -> bool {
    use Category as C;
    matches!(
        cause.category,
        C::AppProcessing
            | C::HolBlocking
            | C::Runtime
            | C::LockWait
            | C::PoolWait
            | C::SchedulerWait
            | C::BackendWait
            | C::DiskWait
            | C::Paging
    )
}

fn is_sleep(cause: &Cause) -> bool {
    use Category as C;
    let waits = matches!(cause.category, C::LockWait | C::PoolWait | C::BackendWait | C::DiskWait);
    waits || cause.subject.as_ref().is_some_and(Subject::is_own_wait)
}

/// That one of two compared runs has no samples, so that causes are not divided by functions.
pub fn only_one_sampled(diagnosis: &Diagnosis) -> Option<String> {
    let which = match diagnosis.circumstances.has_samples {
        [Some(true), Some(false)] => "the run that it is compared with",
        [Some(false), Some(true)] => "this run",
        _ => return None,
    };
    Some(format!("no functions: {which} has no samples; record both without --sample off"))
}

#[cfg(test)]
mod tests {
    use tailsight_lifetime::Role;

    use super::*;

    /// "which the reference never ran" was said of a function that every request runs, and no sample had met.
    #[test]
    fn what_no_sample_met_is_not_said_never_to_run() {
        let part = FunctionPart {
            name: "render".into(),
            share: 0.5,
            how: FunctionHow::Unexpected,
            chance: Some(0.042),
            ..FunctionPart::default()
        };
        let says = |part: &FunctionPart| clause(&Of::IT, part);
        assert_eq!(
            says(&part),
            "50 % of it in render: in no sample of the reference, which chance alone does in 4.2 % of runs"
        );
        assert!(says(&FunctionPart { chance: Some(1e-9), ..part.clone() }).ends_with("in less than 0.1 % of runs"));
        let waits = FunctionPart { waits: true, chance: None, ..part };
        assert!(says(&waits).ends_with("render: where it waited"), "{}", says(&waits));
    }

    /// A median query ran `mysql_execute_command`, too: the reference had 7 samples of its waits behind others, and none was there.
    #[test]
    fn of_few_samples_the_number_is_said_and_no_chance() {
        let part = FunctionPart {
            name: "run".into(),
            share: 1.0,
            how: FunctionHow::Unexpected,
            chance: Some(1e-9),
            ..FunctionPart::default()
        };
        let says = |of_reference| clause(&Of { of_reference, ..Of::IT }, &part);
        assert_eq!(says(7), "100 % of it in run: in none of the 7 samples that the reference has of it");
        assert!(
            says(700)
                .ends_with("run: in no sample of the reference, which chance alone does in less than 0.1 % of runs")
        );
    }

    /// "Where it waited" was said of the holder of a lock as of those that waited for it.
    #[test]
    fn who_waited_in_a_function_is_said() {
        let part = FunctionPart { name: "nap".into(), share: 1.0, waits: true, ..FunctionPart::default() };
        let says_of = |category, subject| {
            let cause = Cause::new(category, "w".into(), subject, vec![], Role::A);
            of_cause(&Cause { functions: vec![part.clone()], ..cause }, &part)
        };
        let says = |subject| says_of(Category::LockWait, subject);
        let of_pool = says_of(Category::PoolWait, Subject::Named { name: "w".into() });
        assert_eq!(of_pool, "100 % of it in nap: where the one before it waited");
        assert_eq!(says(Subject::Holder { name: "w".into() }), "100 % of it in nap: where the holder waited");
        assert_eq!(says(Subject::Task { name: "w".into() }), "100 % of it in nap: where it waited");
    }

    /// SQLite's busy handler was "called by sqlite3PagerSharedLock (42 % in functions that it called)": two functions called it.
    #[test]
    fn several_callers_have_a_part_each() {
        let caller = |name: &str, share| CallerPart { name: name.into(), share };
        let part = FunctionPart {
            name: "busy".into(),
            caller: Some("read".into()),
            callers: vec![caller("read", 0.58), caller("write", 0.42)],
            share: 1.0,
            waits: true,
            ..FunctionPart::default()
        };
        let text = clause(&Of::IT, &part);
        assert_eq!(text, "100 % of it in busy, called by read (58 %) and write (42 %): where it waited");
    }

    /// nginx without symbols: 96 % was in `deflate`, which only the JSON had.
    #[test]
    fn a_function_without_a_name_is_said_with_the_library_s_that_it_called() {
        let part = FunctionPart {
            name: "nginx+0x96890".into(),
            inside: Some("deflate".into()),
            between: Some(["before".into(), "after".into()]),
            share: 1.0,
            ..FunctionPart::default()
        };
        let text = clause(&Of::IT, &part);
        assert!(
            text.starts_with("100 % of it in nginx+0x96890 (without a name, between before and after; in deflate): "),
            "{text}"
        );
    }

    #[test]
    fn a_function_that_an_interpreter_ran_is_said_to_be_unknown() {
        let part = FunctionPart {
            name: "CPython's interpreter".into(),
            inside: Some("_PyEval_EvalFrameDefault".into()),
            interpreter: Some("CPython".into()),
            interpreter_tells_when: Some("CPython 3.12 or newer tells it when it is started with -X perf".into()),
            share: 1.0,
            ..FunctionPart::default()
        };
        assert_eq!(
            clause(&Of::IT, &part),
            "100 % of it in CPython's interpreter (in _PyEval_EvalFrameDefault): more time than in the reference; which function of the \
             program it ran is not recorded; CPython 3.12 or newer tells it when it is started with -X perf"
        );
    }

    #[test]
    fn what_was_done_meanwhile_is_said_with_its_place_and_for_how_much() {
        let part = |doing, function: &str, share| MeanwhilePart {
            doing,
            function: function.into(),
            runtime: None,
            server: None,
            share,
        };
        let parts = [part(Doing::Sleeps, "shop::compact", 0.79), part(Doing::Runs, "", 0.2)];
        assert_eq!(
            meanwhile(&parts),
            "the task that ended the wait meanwhile slept until a time in shop::compact (79 %), ran (20 %)"
        );
        let ended = [part(Doing::NotKnown, "main.refresh", 0.97), part(Doing::NotKnown, "", 0.03)];
        assert_eq!(meanwhile(&ended), "the task that was waited for ended the wait in main.refresh (97 %)");
        let until = "no task ended the wait: the time had come until which it was to last (98 %)";
        assert_eq!(meanwhile(&[part(Doing::TimeCame, "", 0.98)]), until);
        let server = Some("ledger (10.0.0.7:9000)".to_owned());
        let asked = [MeanwhilePart { server, ..part(Doing::WaitsOutside, "shop::charge", 0.9) }];
        assert_eq!(
            meanwhile(&asked),
            "the task that ended the wait meanwhile waited for ledger (10.0.0.7:9000) in shop::charge (90 %)"
        );
    }
}
