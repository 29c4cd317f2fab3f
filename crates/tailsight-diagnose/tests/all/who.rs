//! Who a cause was: processes with their threads, the recorder, and entries of a user's table for handlers and threads.

use tailsight_diagnose::model::Cause;
use tailsight_diagnose::{CategoryTable, Diagnosis, Options, RecordingFacts, diagnose};
use tailsight_lifetime::{Context, Frame, Lifetimes, Owner, Part, Who};

use crate::common::{a, foreign, kthread, options, owner, r, receive};

/// 2,000 messages; each of the slowest 40 had these owners for so long more, by task (process, thread, process's name).
fn slow(tasks: &[(Owner, Who, u64)]) -> Lifetimes {
    let mut owners = vec![owner(Context::Own, &[])];
    owners.extend(tasks.iter().map(|(owner, _, _)| owner.clone()));
    let parts = (0..2000u64).map(|i| {
        let mut parts: Vec<Part> = vec![r(0, 2_000 + i % 10)];
        if i % 50 == 0 {
            parts.extend(tasks.iter().zip(1..).map(|((_, _, ns), id)| a(id, *ns)));
        }
        parts
    });
    let mut lifetimes = receive(owners, parts.collect());
    lifetimes.who = std::iter::once(Who::default()).chain(tasks.iter().map(|(_, who, _)| who.clone())).collect();
    lifetimes
}

fn task(comm: &str, pid: u32, tid: u32, process: &str) -> (Owner, Who, u64) {
    (owner(foreign(comm), &[]), Who { pid, tid, process: process.into(), recorder: false }, 10_000)
}

fn diagnosed(lifetimes: &Lifetimes, categories: CategoryTable) -> Diagnosis {
    let options = Options { focus: (0.98, 1.0), categories, ..options() };
    diagnose(lifetimes, &options, &RecordingFacts::default()).unwrap()
}

fn tasks(d: &Diagnosis) -> Vec<(&str, &str, i64)> {
    let named = |c: &&Cause| {
        c.category.as_str() != "unexplained" && c.category.as_str() != "not-significant" && c.deviation_ns > 100
    };
    d.causes.iter().filter(named).map(|c| (c.category.as_str(), c.name.as_str(), c.deviation_ns)).collect()
}

/// rustc was four rows, `lto cgu.01`, `.13` and so on: it is one, with its processes, threads and their names.
#[test]
fn a_compiler_is_one_cause() {
    let mut lifetimes = slow(&[
        task("rustc", 100, 100, "rustc"),
        task("lto cgu.01", 100, 101, "rustc"),
        task("lto cgu.13", 100, 102, "rustc"),
        task("lto cgu.01", 200, 201, "rustc"),
    ]);
    let d = diagnosed(&lifetimes, CategoryTable::default());
    assert_eq!(tasks(&d), [("interference", "rustc", 40_000)]);
    let who = d.causes[0].who.as_ref().expect("known");
    assert_eq!((who.pid, who.processes, who.threads, &who.pids[..]), (100, 2, 4, &[100, 200][..]));
    let threads: Vec<_> = who.by_thread.iter().map(|t| (t.name.as_str(), t.threads, t.deviation_ns)).collect();
    assert_eq!(threads, [("lto cgu.01", 2, 20_000), ("lto cgu.13", 1, 10_000), ("rustc", 1, 10_000)]);
    assert_eq!((&who.cgroup, &who.unit, &who.container), (&None, &None, &None));

    // A group that both are in is theirs; one that one of them is in is not.
    lifetimes.cgroups.insert(100, "/system.slice/ci.service".into());
    assert_eq!(diagnosed(&lifetimes, CategoryTable::default()).causes[0].who.as_ref().unwrap().cgroup, None);
    lifetimes.cgroups.insert(200, "/system.slice/ci.service".into());
    let d = diagnosed(&lifetimes, CategoryTable::default());
    assert_eq!(d.causes[0].who.as_ref().unwrap().unit.as_deref(), Some("ci.service"));
}

#[test]
fn one_process_is_known_by_its_number() {
    let d = diagnosed(&slow(&[task("nginx", 812, 812, "nginx")]), CategoryTable::default());
    assert!(serde_json::to_value(&d).unwrap()["causes"][0]["who"]["pid"] == 812);
}

/// The pool of a Java server came as `pool-1-thread-1`, `-2`; a thread without its like keeps its name.
#[test]
fn threads_of_a_pool_are_one_cause() {
    let sibling = |comm: &str, tid| {
        let context = Context::Sibling { comm: comm.into() };
        (owner(context, &[]), Who { pid: 50, tid, process: "java".into(), recorder: false }, 10_000)
    };
    let lifetimes = slow(&[sibling("pool-1-thread-1", 51), sibling("pool-1-thread-2", 52), sibling("G1 Main", 53)]);
    let d = diagnosed(&lifetimes, CategoryTable::default());
    let expected = [
        ("app-processing", "pool-1-thread-* (other thread)", 20_000),
        ("app-processing", "G1 Main (other thread)", 10_000),
    ];
    assert_eq!(tasks(&d), expected);
    let who = d.causes[0].who.as_ref().expect("known");
    assert_eq!((who.pid, who.threads, who.by_thread.len()), (50, 2, 2));
}

/// "The recording itself (tailsight): 112 of 135 ms" was another process of that name; through a symlink of another name
/// the recorder was not known.
#[test]
fn the_recorder_is_no_name() {
    let mut recorder = task("ts-link", 9, 9, "ts-link");
    recorder.1.recorder = true;
    let d = diagnosed(&slow(&[task("tailsight", 7, 7, "tailsight"), recorder]), CategoryTable::default());
    let mut names = tasks(&d);
    names.sort_unstable();
    assert_eq!(names, [("interference", "tailsight", 10_000), ("profiler", "ts-link", 10_000)]);
}

/// `[[softirqs]]`, `[[vectors]]` and `[[threads]]` of a user's table go before the rules.
#[test]
fn a_users_handlers_and_threads_count() {
    let table = "[[softirqs]]\ncategory = 'disk-wait'\nsub = 'my-array'\nnames = ['block']\n\
                 [[vectors]]\ncategory = 'wakeup-delay'\nsub = 'ticks'\nnames = ['local_timer']\n\
                 [[threads]]\ncategory = 'paging'\nsub = 'my-swapper'\nnames = ['kworker']\n";
    let vector = tailsight_trace::event::VECTORS.iter().position(|v| *v == "local_timer").expect("a vector") as u16;
    let block = tailsight_trace::event::SOFTIRQS.iter().position(|s| *s == "block").expect("a softirq") as u8;
    let nobody = Who::default;
    let owners = [
        (owner(foreign("nginx"), &[Frame::Softirq { vec: block, inline: false }]), nobody(), 40_000),
        (owner(Context::Own, &[Frame::Vector { which: vector }]), nobody(), 30_000),
        (owner(kthread("kworker/1:2"), &[]), nobody(), 20_000),
        // A handler that interrupts the thread is not its doing.
        (owner(kthread("kworker/1:2"), &[Frame::Irq { irq: 24 }]), nobody(), 10_000),
    ];
    let by_rules = diagnosed(&slow(&owners), CategoryTable::default());
    let categories: Vec<&str> = tasks(&by_rules).iter().map(|c| c.0).collect();
    assert_eq!(categories, ["interrupts", "interrupts", "os-threads", "interrupts"]);
    let d = diagnosed(&slow(&owners), CategoryTable::parse(table, "mine.toml").unwrap());
    let expected = [
        ("disk-wait", "softirq:block (my-array)", 40_000),
        ("wakeup-delay", "vector:local_timer (ticks)", 30_000),
        ("paging", "kworker (my-swapper)", 20_000),
        ("interrupts", "irq:24", 10_000),
    ];
    assert_eq!(tasks(&d), expected);
}
