//! Functions in words: in the sentences of causes, in their fixes, and where median messages wait.

use syscalls::Sysno;
use tailsight_diagnose::model::{Cause, TypicalRow};
use tailsight_diagnose::{Diagnosis, Inputs, Options, RecordingFacts, diagnose_with};
use tailsight_lifetime::{Context, Frame, Leg, PathPart};
use tailsight_trace::samples::Samples;

use crate::common::{a, lifetimes, options, owner, receive};
use crate::sampled::{
    bursts, bursts_behind_another, collection, compiled_queries, diagnosed, each_hundredth_sleeps, each_sleeps, frame,
    met_sorting, path, place, total,
};
use crate::with_words;

/// The first cause in words.
fn first(diagnosis: Diagnosis, options: &Options) -> Cause {
    with_words(diagnosis, options, &RecordingFacts::default()).causes.swap_remove(0)
}

/// PostgreSQL waits for a row in the call in which it waits for its client. Vert.x: the row named the collector, and its sentence a lock.
#[test]
fn what_a_runtime_waits_for_is_said_in_the_place_of_the_row() {
    let frames = ["epoll_wait", "WaitLatch", "ProcSleep", "heap_update", "main"]
        .map(|name| frame(name, if name == "epoll_wait" { "libc.so.6" } else { "postgres" }, "1"));
    let cause = first(diagnosed(&each_hundredth_sleeps(), &place(frames.into()), &total()), &total());
    let text = &cause.explanation;
    let waits = "memcached waited for a lock (PostgreSQL waiting for a row or another heavyweight lock): 4.00 ms of the 4.00 ms";
    assert!(text.starts_with(waits) && text.contains("; 100 % of it in ProcSleep"), "{text}");
    assert!(cause.fix.iter().all(|fix| fix.starts_with("PostgreSQL: ")) && cause.fix.len() == 1, "{:?}", cause.fix);
}

/// tokio: "read what mio::sys::unix::selector::Selector::select waits for", which is whatever comes for any task.
#[test]
fn the_idle_loop_of_a_runtime_is_not_advised_to_be_read() {
    let cause_in = |function: &str| {
        let frames =
            vec![frame("epoll_wait", "libc.so.6", "1"), frame(function, "shop", "2"), frame("main", "shop", "2")];
        first(diagnosed(&each_hundredth_sleeps(), &place(frames), &total()), &total())
    };
    let idle = cause_in("mio::sys::unix::selector::Selector::select");
    assert!(idle.fix[0].contains("a task waited and its thread did not"), "{:?}", idle.fix);
    assert!(idle.explanation.ends_with(": where its thread waits for whatever comes, for any task"), "{idle:?}");
    // A function of the program that waits by itself does tell.
    let own = cause_in("shop::wait_for_stock");
    assert!(own.fix[0].starts_with("read what shop::wait_for_stock "), "{:?}", own.fix);
    assert!(own.explanation.ends_with(": where it waited"), "{own:?}");
}

/// Each message waits in the program: the advice was to look with strace, though the place of the wait is in the recording.
#[test]
fn what_median_messages_wait_for_is_said_by_its_place() {
    let row_in = |samples: Samples| -> TypicalRow {
        let d = with_words(diagnosed(&each_sleeps(), &samples, &total()), &total(), &RecordingFacts::default());
        d.typical.expect("median messages").rows.swap_remove(0)
    };
    let at = |function: &str| {
        let names = [("epoll_wait", "libc.so.6"), (function, "postgres"), ("main", "postgres")];
        place(names.map(|(name, module)| frame(name, module, "")).into())
    };
    let row = row_in(at("pg_sleep"));
    assert!(
        row.advice[0].contains("100 % of it in pg_sleep (in epoll_wait), called by main: where it waited"),
        "{row:?}"
    );
    let row = row_in(at("LockAcquireExtended"));
    let lock = "every message waits for a lock (100 % of it in LockAcquireExtended, called by main: where it waited; there PostgreSQL is";
    assert!(row.advice[0].starts_with(lock), "{row:?}");
    let row = row_in(Samples::default());
    assert!(row.advice[0].contains("strace"), "{row:?}");
}

/// What the thread did for those ahead is what held them: it is said once. Ruby: the sentence had said `user`, and named the function twice.
#[test]
fn what_held_a_queue_is_said_with_its_function() {
    let queued = bursts();
    let text = |functions: [(&str, &str); 2]| {
        let frames = functions.map(|(name, module)| frame(name, module, ""));
        first(diagnosed(&queued, &met_sorting(&queued, frames, 100_000), &options()), &options()).explanation
    };
    let sorts = text([("sortTable", "node"), ("serve", "node")]);
    assert!(
        sorts.contains("; 100 % of it in sortTable, called by serve: ") && sorts.matches("sortTable").count() == 1,
        "{sorts}"
    );
    let collects = text([("gc_start", "libruby.so"), ("serve", "ruby")]);
    assert!(
        collects.contains("; what held those: its runtime (Ruby collecting garbage), in 5 messages, "),
        "{collects}"
    );
}

/// nginx: "what held those: another program (tailsight) …; 100 % of it in nginx+0x96890": a function of nginx cannot have another's time.
#[test]
fn a_queue_that_another_program_held_is_not_said_to_be_of_the_target_s_function() {
    let queued = bursts_behind_another();
    let samples = met_sorting(&queued, [frame("sortTable", "server", ""), frame("serve", "server", "")], 10_000);
    let text = first(diagnosed(&queued, &samples, &options()), &options()).explanation;
    assert!(!text.contains("% of it in sortTable"), "{text}");
    assert!(text.contains("% of what the application ran meanwhile in sortTable"), "{text}");
}

#[test]
fn that_one_of_two_runs_has_no_samples_is_said() {
    let run = receive(vec![owner(Context::Own, &[])], (0..1_000).map(|i| vec![a(0, 10_000 + i % 10)]).collect());
    let path = |id, _: Leg, _: PathPart<'_>| path(&run, id);
    let (samples, none) = (place(vec![frame("main", "server", "")]), Samples::default());
    let note_of = |own, other| {
        let inputs = Inputs {
            path: Some(&path),
            samples: Some(own),
            against: Some(("before", &run)),
            against_samples: Some((other, &path)),
            ..Inputs::default()
        };
        let options = Options { focus: (0.2, 0.3), ..options() };
        let facts = RecordingFacts::default();
        let d = with_words(diagnose_with(&run, &options, &facts, &inputs).unwrap().0, &options, &facts);
        d.notes.into_iter().find(|note| note.starts_with("no functions: "))
    };
    assert!(note_of(&samples, &none).expect("a note").contains("the run that it is compared with has no samples"));
    assert!(note_of(&none, &samples).expect("a note").contains("this run has no samples"));
    assert_eq!((note_of(&samples, &samples), note_of(&none, &none)), (None, None));
}

/// Where a cause had functions its fixes were made anew and had no number: `tailsight fix RUN 0`.
#[test]
fn the_fixes_of_a_cause_with_functions_have_their_numbers() {
    let fsync = Frame::SleepIn { nr: Sysno::fsync as u32, uninterruptible: true, io: true };
    let owners = vec![owner(Context::Own, &[]), owner(Context::Blocked, &[fsync, Frame::Place { stack: 0 }])];
    let parts = (0..5_000u64).map(|i| {
        let mut service = vec![a(0, 5_000 + i % 100)];
        service.extend(i.is_multiple_of(100).then(|| a(1, 40_000)));
        [vec![a(0, 1_000)], service, vec![a(0, 1_000)]]
    });
    let slow = lifetimes(owners, parts.collect());
    let samples = place(["fsync", "write_journal", "main"].map(|name| frame(name, "server", "1")).into());
    let path = |id, _: Leg, _: PathPart<'_>| path(&slow, id);
    let inputs = Inputs { path: Some(&path), samples: Some(&samples), ..Inputs::default() };
    let facts = RecordingFacts { pids: vec![41], run: "run".into(), ..RecordingFacts::default() };
    let diagnosis = diagnose_with(&slow, &total(), &facts, &inputs).unwrap().0;
    let cause = with_words(diagnosis, &total(), &facts).causes.swap_remove(0);
    assert!(!cause.functions.is_empty() && !cause.actions.is_empty(), "{cause:#?}");
    for action in &cause.actions {
        assert!(action.n > 0 && action.command.starts_with("tailsight fix run "), "{action:#?}");
    }
}

/// "the runtime did work of its own", with thresholds as the fix, where the program had called gc.collect().
#[test]
fn a_collection_that_the_program_asked_for_is_said_to_be_its_own_call() {
    let asked = first(collection(&["gc_collect_impl", "gc_collect"]), &total());
    let text = &asked.explanation;
    assert!(text.ends_with("CPython is collecting garbage because its program asked for it: gc.collect()"), "{text}");
    assert!(asked.fix[0].contains("remove the call of gc.collect()"), "{:?}", asked.fix);
    assert!(asked.fix.iter().all(|fix| !fix.contains("set_threshold")), "{:?}", asked.fix);
    let automatic = first(collection(&["gc_collect_generations", "_PyObject_GC_Link"]), &total());
    assert!(automatic.fix[0].contains("gc.set_threshold"), "{:?}", automatic.fix);
}

/// PostgreSQL: the sentence named a place without a name in postgres, and nothing said that a query was compiled.
#[test]
fn a_query_that_is_compiled_is_said_to_be() {
    let cause = first(compiled_queries(), &total());
    assert!(cause.explanation.contains("(PostgreSQL compiling a query (JIT))"), "{}", cause.explanation);
    assert!(cause.fix[0].contains("jit_above_cost"), "{:?}", cause.fix);
}
