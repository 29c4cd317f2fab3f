//! Words: explanations, fixes, notes, next steps, and the JSON contract.

use syscalls::Sysno;
use tailsight_diagnose::{Category, Diagnosis, Options, RecordingFacts};
use tailsight_lifetime::{Context, Frame, Lifetimes, Part};
use tailsight_units::format::signed_duration as human;

use crate::common::{a, foreign, lifetimes, net_rx, options, owner, r, receive, sys};
use crate::worded;

/// 5,000 messages of 12 us; of the slowest 50, 48 waited 2 ms for nginx, and all for 10 messages before them.
fn demo() -> Lifetimes {
    let owners = vec![
        owner(Context::Own, &[sys(Sysno::recvmsg)]),
        owner(foreign("nginx"), &[]),
        owner(Context::Ahead, &[sys(Sysno::sendmsg)]),
        owner(Context::Idle, &[net_rx(false)]),
    ];
    let parts = (0..5000u64).map(|i| {
        let mut parts: Vec<Part> = vec![r(3, 2_000 + i % 100), a(0, 10_000)];
        if i % 100 == 0 {
            parts.push(a(2, 100_000));
            if i >= 200 {
                parts.push(a(1, 2_000_000));
            }
        }
        parts
    });
    let mut out = receive(owners, parts.collect());
    out.messages.iter_mut().filter(|m| m.id % 100 == 0).for_each(|m| m.ahead = 10);
    out
}

fn facts() -> RecordingFacts {
    RecordingFacts {
        run: "run 1".into(),
        pids: vec![41, 42],
        cpus: Some(4),
        events: 1000,
        ns_per_event: 60.0,
        ..RecordingFacts::default()
    }
}

fn diagnosis(options: &Options, facts: &RecordingFacts) -> Diagnosis {
    worded(&demo(), options, facts)
}

/// A client's segments are lost on their way here, and counted by the client: the advice was to look at what this host had sent again.
#[test]
fn advice_about_lost_segments_goes_by_their_direction() {
    let advice = |wait: Frame| {
        let owners = vec![owner(Context::Own, &[]), owner(Context::Blocked, &[wait])];
        let parts = (0..5000).map(|i| {
            let mut parts = vec![a(0, 10_000)];
            parts.extend((i % 100 == 0).then(|| a(1, 5_000_000)));
            parts
        });
        let d = worded(&receive(owners, parts.collect()), &options(), &facts());
        assert_eq!(d.causes[0].category.as_str(), "tcp-recovery");
        d.causes[0].fix.join("\n")
    };
    let (lost_on_the_way_in, sent_again) = (advice(Frame::TcpHole), advice(Frame::TxRecovery));
    for (here, there) in [("TcpExtTCPOFOQueue", "TcpExtTCPLostRetransmit"), ("netdev_max_backlog", "tc -s qdisc")] {
        assert!(lost_on_the_way_in.contains(here) && !lost_on_the_way_in.contains(there), "{lost_on_the_way_in}");
        assert!(sent_again.contains(there) && !sent_again.contains(here), "{sent_again}");
    }
}

#[test]
fn explanations_are_plain_sentences_with_numbers() {
    let d = diagnosis(&options(), &facts());
    assert_eq!(
        d.causes[0].explanation,
        "nginx ran on the core that memcached was waiting for: 1.92 ms of the 2.02 ms, in 48 of 50 slow messages"
    );
    assert_eq!(
        d.causes[1].explanation,
        "memcached was still busy with earlier messages (memcached, in sendmsg): 100 us of the 2.02 ms, \
         in 50 of 50 slow messages (10.0 messages ahead on average, usually 0.0)"
    );
    let receive = d.causes.iter().find(|c| c.category.as_str() == "receive-processing").unwrap();
    assert_eq!(
        receive.explanation,
        format!(
            "the kernel processed arriving packets (net_rx) on the core where the packet was waiting: \
             {} less than in the reference messages",
            human(-receive.deviation_ns)
        )
    );
    assert_eq!(
        d.causes.last().unwrap().explanation,
        "the owner of this time is unknown: no more and no less than in the reference messages"
    );
    assert_eq!(d.causes[0].times, [0.96, 0.0]);
}

/// "node itself took longer" stood beside a wait in the receive leg: a timer of it compressed a log before the messages were read.
#[test]
fn own_work_before_the_receive_call_is_said_to_be_there() {
    let own = vec![owner(Context::Own, &[])];
    let slow = |i: u64| if i.is_multiple_of(100) { 500_000 } else { 0 };
    let before = receive(own.clone(), (0..5000).map(|i| vec![a(0, 10_000 + i % 100 + slow(i))]).collect());
    let text = worded(&before, &options(), &facts()).causes[0].explanation.clone();
    assert!(
        text.starts_with(
            "memcached did not receive the message yet, for its thread was at something else (running): 500 us"
        ),
        "{text}"
    );
    let parts = (0..5000).map(|i| [vec![a(0, 10_000)], vec![a(0, 10_000 + i % 100 + slow(i))], vec![]]);
    let waiting = lifetimes(own, parts.collect());
    let service = Options { leg: tailsight_lifetime::Leg::Service, ..options() };
    let text = worded(&waiting, &service, &facts()).causes[0].explanation.clone();
    assert!(text.starts_with("memcached itself took longer (running): 500 us"), "{text}");
}

/// "beam.smp was still busy with earlier messages": a scheduler ran a sweep of its own while messages that came before any other waited for it.
#[test]
fn what_runs_once_the_message_is_received_need_be_no_earlier_message() {
    let owners = vec![owner(Context::Own, &[]), owner(Context::Ahead, &[])];
    let slow = |i: u64| i.is_multiple_of(100).then(|| a(1, 500_000));
    let diagnosed = |received: bool| {
        let parts = (0..5000).map(|i| {
            let [mut receive, mut service] = [vec![a(0, 10_000)], vec![a(0, 10_000 + i % 100)]];
            if received { &mut service } else { &mut receive }.extend(slow(i));
            [receive, service, vec![]]
        });
        let mut waiting = lifetimes(owners.clone(), parts.collect());
        waiting.app = "beam.smp".into();
        let total = Options { leg: tailsight_lifetime::Leg::Total, ..options() };
        worded(&waiting, &total, &facts()).causes.swap_remove(0)
    };
    let (before, after) = (diagnosed(false), diagnosed(true));
    assert_eq!([before.category, after.category], [Category::HolBlocking; 2]);
    assert!(before.explanation.contains(" was still busy with earlier messages ("), "{}", before.explanation);
    assert!(!after.explanation.contains("earlier messages"), "{}", after.explanation);
    assert!(after.explanation.contains("at something else meanwhile: other messages, or work of its own"));
    let find = "find what its threads run meanwhile";
    assert!(after.fix[0].starts_with(find), "{:?}", after.fix);
    assert!(!before.fix.iter().any(|fix| fix.starts_with(find)), "{:?}", before.fix);
}

#[test]
fn fixes_are_filled_in_with_their_undo() {
    let pin = |cpus: &str| {
        format!(
            "for t in $(grep -lsFx -e nginx /proc/[0-9]*/task/[0-9]*/comm | cut -d/ -f5); do \
             echo $t $(sed -n s/^Cpus_allowed_list:.//p /proc/$t/status) >> /run/tailsight.nginx.cpus; \
             taskset -cp {cpus} $t; done  # keep nginx off core 1"
        )
    };
    let unpin = "; undo: tac /run/tailsight.nginx.cpus | while read t c; do taskset -cp $c $t; done; \
                 rm /run/tailsight.nginx.cpus";
    let first = |pid: &str| {
        format!(
            "for t in $(ls /proc/{pid}/task); do echo $t $(sed 's/.*) //' /proc/$t/stat | cut -d' ' -f38,39) >> \
             /run/tailsight.{pid}.policy; done; chrt -a -f -p 1 {pid}  # let memcached run before ordinary tasks; a \
             thread of it that spins then starves every other task on its core"
        )
    };
    let unfirst = |pid: &str| {
        format!(
            "; undo: chrt -a -o -p 0 {pid}; tac /run/tailsight.{pid}.policy | while read t n p; do case $p in 1) \
             o=-f;; \
             2) o=-r;; 3) o=-b;; 5) o=-i;; *) o=-o;; esac; chrt $o -p $n $t; done; rm /run/tailsight.{pid}.policy"
        )
    };
    let d = diagnosis(&options(), &facts());
    let step = "look at the priority of nginx's process (chrt -ap PID): take a real-time one away; if it has the usual one and cannot be kept \
                off the core, a lower one (nice 19, or chrt -i) lets memcached have the core sooner";
    assert_eq!(
        d.causes[0].fix,
        [pin("0,2-3") + unpin, step.to_owned(), first("41") + &unfirst("41"), first("42") + &unfirst("42")]
    );
    // Nothing is made up: without the number of cores and without processes, words stand for them.
    let pid = "; PID: the target's process id, see pgrep -a or ss -ltnp";
    assert_eq!(
        diagnosis(&options(), &RecordingFacts::default()).causes[0].fix[..3],
        [
            format!(
                "fill in: {}; OTHER_CPUS: the cores to use instead, as 0,2-3, see lscpu -e{unpin}",
                pin("OTHER_CPUS")
            ),
            step.to_owned(),
            format!("fill in: {}{pid}{}", first("PID"), unfirst("PID")),
        ]
    );
    assert_eq!(
        d.next[0],
        "try this against nginx (another program): keep nginx off core 1: tailsight fix 'run 1' 1 --leg receive"
    );
    assert!(d.next.iter().any(|n| n.ends_with("tailsight report 'run 1'")), "{:?}", d.next);
    assert!(d.next.len() <= 3);
}

/// What a fix changes as data, numbered over the causes: one fix for all processes where the shell has a line each, and nothing
/// for what this run does not know.
#[test]
fn fixes_are_data_that_tailsight_fix_can_make() {
    let d = diagnosis(&options(), &facts());
    let shown: Vec<_> = d.causes[0].actions.iter().map(|a| (a.n, a.title.as_str(), a.shell.clone())).collect();
    assert_eq!(
        shown,
        [
            (1, "keep nginx off core 1", vec![0]),
            (
                2,
                "let memcached run before ordinary tasks; a thread of it that spins then starves every other task on its core",
                vec![2, 3]
            ),
        ]
    );
    let json = serde_json::to_value(&d.causes[0].actions).unwrap();
    assert_eq!(json[0]["changes"], serde_json::json!([{"kind": "pin-named", "comm": "nginx", "cpus": "0,2-3"}]));
    assert_eq!(json[0]["says"], serde_json::json!(["every thread of nginx on cores 0,2-3"]));
    assert_eq!(json[1]["changes"], serde_json::json!([{"kind": "real-time", "pids": [41, 42]}]));
    assert_eq!(json[1]["undo"], serde_json::json!(["the earlier policy and priority of each thread"]));
    assert_eq!(json[1]["command"], "tailsight fix 'run 1' 2 --leg receive");
    // The same change for another cause has the same number; others go on counting.
    let mut numbers: Vec<u32> = d.causes.iter().flat_map(|c| &c.actions).map(|a| a.n).collect();
    numbers.dedup();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
    assert!(diagnosis(&options(), &RecordingFacts::default()).causes[0].actions.is_empty(), "no cores, no processes");
    // Diagnoses of before have none.
    let mut old = serde_json::to_value(&d).unwrap();
    old["causes"][0].as_object_mut().unwrap().remove("actions");
    assert!(serde_json::from_value::<tailsight_diagnose::Diagnosis>(old).unwrap().causes[0].actions.is_empty());
}

#[test]
fn notes_say_what_limits_the_diagnosis() {
    assert_eq!(diagnosis(&options(), &facts()).notes, ["only 50 slow messages are compared: the intervals are wide"]);
    let bad = RecordingFacts {
        lost_events: 10,
        clock_error_ns: 2_000,
        hooks_off: ["sched_waking", "some_hook", "softirq_entry", "softirq_exit", "page_fault_user"]
            .map(Into::into)
            .into(),
        partial: vec!["killed while recording".into()],
        ..facts()
    };
    let wide = Options { focus: (0.5, 1.0), bootstrap_rounds: 0, ..options() };
    let d = diagnosis(&wide, &bad);
    assert_eq!(
        d.notes,
        [
            "the run is partial: killed while recording",
            "10 events were lost (0.99 % of all): near them, time may have the wrong owner",
            "without sched_waking, waiting for a wake-up and waiting for a core cannot be told apart",
            "without softirq_entry and softirq_exit, softirq time counts to what it interrupted",
            "without page_fault_user, page faults count to the code that took them",
            "clock error up to 2.00 us: ignore smaller differences",
            "p50..p100 and p45..p55, which are compared, share messages: differences look smaller",
            "no intervals were asked for (0 bootstrap rounds): ci95_ns repeats the time",
        ]
    );
    let damaged = RecordingFacts { damaged: true, unseen_syncs: vec!["xfs".into()], ..bad.clone() };
    let notes = diagnosis(&wide, &damaged).notes;
    assert_eq!(notes[0], "the run is damaged: killed while recording");
    assert!(
        notes.iter().any(|note| note.starts_with("fsync on xfs is not seen (no fentry, no tracepoints)")),
        "{notes:?}"
    );
    assert!(d.causes.iter().all(|c| c.ci95_ns == [c.deviation_ns; 2]));
    assert!(d.next.iter().any(|n| n.contains("larger buffers")));
}

/// `diagnose --json`, schema 1: the keys that scripts rely on, and integers where times are.
#[test]
fn json_contract() {
    let json = serde_json::to_value(diagnosis(&options(), &facts())).unwrap();
    for key in [
        "schema",
        "run",
        "app",
        "leg",
        "messages",
        "latency_ns",
        "focus",
        "reference",
        "causes",
        "coverage",
        "owned",
        "ideal_ns",
        "loss",
        "overhead",
    ] {
        assert!(json.get(key).is_some(), "{key}");
    }
    assert_eq!((&json["schema"], &json["app"], &json["leg"]), (&1.into(), &"memcached".into(), &"receive".into()));
    assert_eq!(json["messages"]["total"], 5000);
    let keys: Vec<&str> = json["latency_ns"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["max", "mean", "p50", "p90", "p99", "p99.9"]);
    assert!(json["latency_ns"].as_object().unwrap().values().all(serde_json::Value::is_u64));
    assert_eq!((&json["focus"]["from"], &json["focus"]["messages"]), (&0.99.into(), &50.into()));
    let cause = &json["causes"][0];
    for key in [
        "rank",
        "category",
        "name",
        "role",
        "share",
        "deviation_ns",
        "ci95_ns",
        "messages",
        "what_if",
        "evidence",
        "fix",
    ] {
        assert!(cause.get(key).is_some(), "{key}");
    }
    assert!(cause["deviation_ns"].is_i64() && cause["ci95_ns"][1].is_i64() && cause["what_if"].is_null());
    let back: Diagnosis = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(back).unwrap(), json);
}

/// The same seed gives the same output, to the letter.
#[test]
fn repeatable() {
    let text = || serde_json::to_string(&diagnosis(&options(), &facts())).unwrap();
    assert_eq!(text(), text());
}
