//! Snapshots of the terminal at 80 and 120 columns, and what must hold at every width.

use serde_json::json;
use tailsight_diagnose::cause::Subject;
use tailsight_diagnose::model::{ChosenClass, ClassLatency, Fix, NextStep, Slice};
use tailsight_diagnose::{Category, Diagnosis};
use tailsight_lifetime::{FrameKind, NamedFrame};
use tailsight_report::terminal::{Style, diagnosis, diagnosis_of, more, record_summary};
use tailsight_trace::meta::State;

use super::synthetic;

/// A fix as the diagnosis has it: a command, why, and how to take it back.
fn fix() -> serde_json::Value {
    json!({"command": COMMAND, "why": "keep nginx off core 1", "undo": UNDO})
}

const COMMAND: &str = "for p in $(pgrep -x 'nginx'); do taskset -acp 0 $p; done";
const UNDO: &str = "for p in $(pgrep -x 'nginx'); do taskset -acp 0-1 $p; done";

/// A diagnosis with every kind of row: large, small, negative, unexplained; losses, notes and next steps.
fn example() -> Diagnosis {
    let cause = |rank: u32, category: &str, name: &str, role: &str, share: f64, ns: i64, messages: u64| {
        json!({"rank": rank, "category": category, "name": name, "role": role, "share": share, "deviation_ns": ns,
            "ci95_ns": [ns, ns], "messages": messages, "evidence": [], "paths": [], "fix": [], "explanation": ""})
    };
    let mut first = cause(1, "interference", "nginx", "A", 0.886, 1_809_000, 48);
    first["steps"] = json!([fix(), {"why": "lower its priority"}]);
    first["explanation"] = json!(
        "nginx ran on the core that memcached was to run on: 1.81 ms in the mean slow message, 0 ns in the median ones."
    );
    serde_json::from_value(json!({
        "schema": 1, "run": "tailsight-demo/run", "app": "memcached", "leg": "receive",
        "messages": {"total": 4802, "complete": 4790, "incomplete": {"its receive call was not seen": 8, "not \
         received before the recording ended": 4}},
        "latency_ns": {"mean": 61_000, "p50": 17_234, "p90": 31_020, "p99": 1_021_000, "p99.9": 2_061_000, "max": 2_412_000},
        "focus": {"from": 0.99, "to": 1.0, "messages": 48, "mean_ns": 2_061_000},
        "reference": {"from": 0.45, "to": 0.55, "messages": 479, "mean_ns": 19_200},
        "causes": [
            first,
            cause(2, "receive-processing", "packet:8088", "R", 0.071, 145_000, 31),
            cause(3, "hol-blocking", "memcached", "A", 0.042, 85_700, 40),
            cause(4, "wakeup-delay", "idle-state:2", "A", -0.021, -42_900, 0),
            cause(5, "interrupts", "vector:local_timer", "A", 0.006, 12_300, 9),
            cause(6, "os-threads", "kworker/u8:2-events_unbound", "A", 0.004, 8_200, 2),
            cause(7, "unexplained", "unexplained", "A", 0.012, 24_500, 12),
        ],
        "coverage": {"overall": 0.902, "p50": 0.951, "min": 0.72, "least": [[4711, 0.72], [12, 0.8]]},
        "owned": {"overall": 0.988, "p50": 0.994, "min": 0.81},
        "loss": {"events": 0, "clock_error_ns": 85}, "overhead": {"ns_per_event": 61.4, "events": 812_344},
        "notes": ["48 messages in focus: record longer for narrower intervals"],
        "next_steps": [
            {"says": "try the first fix of nginx (interference), then record again", "fix": fix()},
            {"says": "see the slowest message on its timeline", "command": "tailsight report tailsight-demo/run"},
            {"says": "include service and sending, not only receiving",
                "command": "tailsight diagnose tailsight-demo/run --leg total"},
            {"says": "a fourth step"},
        ],
    }))
    .expect("the diagnosis contract")
}

fn plain(width: usize) -> Style {
    Style { color: false, width }
}

#[test]
fn at_80_columns() {
    insta::assert_snapshot!(diagnosis_of(&example(), Some(&synthetic::meta(1_000_000_000)), &plain(80)));
}

#[test]
fn at_120_columns() {
    insta::assert_snapshot!(diagnosis(&example(), &plain(120)));
}

fn unwrapped(d: &tailsight_diagnose::Diagnosis) -> String {
    diagnosis(d, &plain(140)).replace('\n', " ")
}

/// The recorder had a server's core for 3.8 ms, and `Cost:` was silent.
#[test]
fn the_cost_says_what_the_recording_has_of_the_difference() {
    let mut d = example();
    assert!(!unwrapped(&d).contains("the recording itself"));
    (d.causes[1].category, d.causes[1].share) = (tailsight_diagnose::Category::Profiler, 0.07);
    let text = unwrapped(&d);
    assert!(text.contains("the recording itself is 7.0 % of the difference"), "{text}");
}

/// A queue in front: the first sentence says what held the messages at its head, not only that there was one.
#[test]
fn the_first_sentence_follows_a_queue_to_its_root() {
    let mut d = example();
    let mut queue = d.causes.remove(2);
    queue.root = serde_json::from_value(json!([
        {"category": "paging", "name": "page fault", "role": "A", "mean_ns": 1_000_000, "share": 0.9, "messages": 3},
    ]))
    .expect("the contract");
    queue.share = 0.6;
    d.causes.insert(0, queue);
    let text = unwrapped(&d);
    assert!(
        text.contains("; for 60.0 % of that they waited behind messages that were held by memory pages (page fault)."),
        "{text}"
    );
    // A sixth of the wait is not what held them: there were many.
    d.causes[0].root[0].of_wait = Some(0.17);
    assert!(!diagnosis(&d, &plain(140)).contains("waited behind"));
    d.causes[0].ahead =
        serde_json::from_value(json!({"focus": 75.2, "reference": 8.7, "ids": []})).expect("the contract");
    let text = unwrapped(&d);
    assert!(
        text.contains("; for 60.0 % of that they waited behind more messages than usual (75.2, usually 8.7). Because:"),
        "{text}"
    );
    // 2.6 of 888 ms: "held by memory pages", where nearly all had no known owner.
    d.causes[0].share = 0.003;
    assert!(!diagnosis(&d, &plain(140)).contains("waited behind"));
    let last = d.causes.len() - 1;
    (d.causes[last].share, d.causes[last].explanation) = (0.99, "the owner of this time is unknown: 953 ms".into());
    assert!(diagnosis(&d, &plain(140)).contains("\nthe owner of this time is unknown: 953 ms\n"));
    (d.causes[0].share, d.causes[last].share) = (0.6, 0.01);
    d.causes[0].root[0].of_wait = Some(1.2);
    assert!(unwrapped(&d).contains("that were held by memory pages (page fault)"));
    // Not a queue first: no such sentence.
    d.causes.swap(0, 1);
    assert!(!diagnosis(&d, &plain(140)).contains("waited behind"));
}

/// Ranks went from 4 to 10: the folded rows stood below one that is negative.
#[test]
fn folded_rows_stand_at_their_rank() {
    let mut d = example();
    let less = d.causes.remove(3);
    d.causes.insert(5, less);
    d.causes.iter_mut().zip(1..).for_each(|(cause, rank)| cause.rank = rank);
    let table = table_of(&diagnosis(&d, &plain(100)));
    let ranks: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(ranks[..6], ["#", "1", "2", "3", "…", "6"], "{table}");
}

/// Of two runs a row of +72 ms was the last of 27 that cancel, and hidden among "26 smaller causes".
#[test]
fn a_large_row_is_shown_wherever_it_stands() {
    let mut d = example();
    let row = |i: u32, share: f64| {
        let mut cause = d.causes[0].clone();
        (cause.rank, cause.name, cause.share) = (i, format!("task-{i}"), share);
        cause
    };
    let mut rows: Vec<_> = (1..=14).map(|i| row(i, 0.05)).collect();
    rows.push(row(15, -0.9));
    rows.extend(d.causes.pop());
    d.causes = rows;
    let table = table_of(&diagnosis(&d, &plain(100)));
    assert!(table.contains("task-15") && table.contains("5 smaller causes"), "{table}");
}

#[test]
fn no_line_is_wider_than_the_terminal_except_commands() {
    for width in 60..=140 {
        let text = diagnosis(&example(), &plain(width));
        for line in text.lines().filter(|l| !l.contains("taskset") && !l.contains(" tailsight ")) {
            assert!(line.chars().count() <= width, "{width} columns: {line:?}");
        }
    }
}

/// The heading of the host's settings was wider than 60 columns.
#[test]
fn the_headings_of_more_fit_into_60_columns() {
    let mut d = example();
    let queue = json!({"function": "app send", "role": "A", "depth": [2.0, 1.0], "relative": [0.0, 1.0, 2.0], "mean_ns": [9_000, 4_000], "messages": 12});
    let setting = json!({"id": "cpu.governor", "title": "CPU governor", "value": "powersave", "verdict": "hurts", "why": "cores begin slowly"});
    let core = json!({"cpu": 0, "share": 1.0, "contexts": [["nginx", 0.7], ["memcached", 0.3]]});
    let tables = json!({"pervasive": [], "queue": [queue], "cores": [[core.clone()], [core]], "settings": [setting]});
    d.more = Some(serde_json::from_value(tables).expect("the contract"));
    let text = more(&d, &plain(60));
    assert!(text.contains("lengthen tails") && text.contains("app send") && text.contains("governor"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 60, "{line:?}");
    }
}

/// A long name gives way to what the replay says; with few messages there is no p99 and no row.
#[test]
fn what_the_absence_of_a_cause_would_buy() {
    let mut d = example();
    let tables = json!({"pervasive": [], "queue": [], "cores": [[], []], "settings": []});
    d.more = Some(serde_json::from_value(tables).expect("the contract"));
    assert!(!more(&d, &plain(80)).contains("by a replay"));
    let time_of_focus = json!({"mean_ns": 3_000_000, "inherent_ns": 40_000, "excess_ns": 2_960_000});
    let without = |rank: u32, name: &str, p99: u64| {
        let ends = [p99 * 7 / 10, p99 * 14 / 10];
        json!({"rank": rank, "category": "interference", "name": name, "of_excess": 0.5, "latency_ns": {"p99": p99}, "ci95_ns": {"p99": ends}})
    };
    let few = json!({"rank": 3, "category": "steal", "name": "hypervisor", "of_excess": 0.1, "latency_ns": {"p50": 1}, "ci95_ns": {}});
    d.ideal = Some(
        serde_json::from_value(json!({
            "model": {"service_ns": 20_000, "service_from": "run", "user_ns": 15_000, "kernel_ns": 5_000, "receive_ns": 0,
                "apart_ns": 0, "workers": 1, "queues": "one", "utilisation": 0.2, "threads": 1, "cores": 1},
            "focus": time_of_focus.clone(), "all": time_of_focus, "replayed_ns": {},
            "what_if": [without(1, "nginx", 110_000), without(2, "a-program-with-a-rather-long-name-of-its-own", 900_000), few],
        }))
        .expect("the contract"),
    );
    let text = more(&d, &plain(60));
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.contains("by a replay")).skip(1).collect();
    assert_eq!(
        rows,
        [
            "   1  nginx   50.0 %  p99 1.02 ms → 110 us [77.0 us, 154 us]",
            "   2  a-pr…   50.0 %  p99 1.02 ms → 900 us [630 us, 1.26 ms]"
        ],
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(more(&d, &plain(120)).contains("a-program-with-a-rather-long-name-of-its-own   50.0 %  p99"));
}

/// At 60 columns causes shrank to `wai…` while the bars stayed.
#[test]
fn names_are_whole_at_every_width_and_bars_give_way() {
    let names =
        ["another program", "nginx", "receiving packets", "packet:8088", "other requests", "waking up", "memcached"];
    let mut long = example();
    long.causes[1].category = Category::AppProcessing;
    long.causes[1].name = "waits in epoll_pwait for python3".into();
    for width in 60..=140 {
        let text = diagnosis(&example(), &plain(width));
        let rows: String = table_of(&text);
        assert!(
            names.iter().all(|n| rows.contains(n)) && !rows.contains('…') || rows.matches('…').count() == 1,
            "{width}:\n{text}"
        );
        let rows = table_of(&diagnosis(&long, &plain(width)));
        let words: Vec<&str> = rows.split_whitespace().collect();
        for word in ["waits", "epoll_pwait", "python3", "itself"] {
            assert!(words.contains(&word), "{width}: {word}\n{rows}");
        }
    }
    assert!(table_of(&diagnosis(&example(), &plain(100))).contains('█'), "where there is room, bars are drawn");
}

/// The lines of the causes.
fn table_of(text: &str) -> String {
    text.lines().skip_while(|l| !l.contains("share")).take_while(|l| !l.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Every leg has its line, the explained one a mark; a percentile that there is not is N/A.
#[test]
fn every_leg_is_listed() {
    let mut d = example();
    let leg = |messages: u64, p50: u64, max: u64| json!({"messages": messages, "p50": p50, "max": max});
    d.legs = serde_json::from_value(json!({
        "receive": leg(4790, 17_234, 2_412_000), "service": leg(4700, 812_000, 61_000_000),
        "transmit": leg(4700, 8_100, 41_000_000), "total": leg(4700, 840_000, 99_000_000),
    }))
    .expect("legs");
    for width in [64, 80, 120] {
        let text = diagnosis(&d, &plain(width));
        let line = |leg: &str| text.lines().find(|l| l.trim_start_matches("▸ ").trim_start().starts_with(leg)).unwrap();
        assert!(line("receive").starts_with("▸ receive") && line("receive").contains("17.2 us"), "{text}");
        assert!(line("service").contains("812 us") && line("service").contains("61.0 ms"), "{text}");
        assert!(line("total").contains("N/A"), "no p99 was given: {text}");
        assert!(line("total").ends_with("4,700"), "the legs differ in how many: {text}");
        assert!(text.lines().take(6).all(|l| l.chars().count() <= width), "{text}");
    }
}

/// What every message waits for, with its cure; small rows as one.
#[test]
fn where_a_median_message_spends_its_time() {
    let mut d = example();
    let row = |category: &str, name: &str, leg: &str, ns: u64, share: f64, advice: &[&str]| json!({"category": category, "name": name, "role": "A", "leg": leg, "mean_ns": ns, "share": share, "advice": advice});
    d.typical = serde_json::from_value(json!({
    "from": 0.45, "to": 0.55, "messages": 195, "mean_ns": 41_900_000, "rows": [
        row("transmit-processing", "queued", "transmit", 41_200_000, 0.983, &["set TCP_NODELAY"]),
        row("app-processing", "user", "service", 600_000, 0.0143, &[]),
        row("receive-processing", "net_rx", "receive", 60_000, 0.0014, &[]),
        row("wakeup-delay", "idle", "receive", 40_000, 0.0010, &[]),
    ]}))
    .expect("a profile");
    let text = diagnosis(&d, &plain(80));
    assert!(text.contains("Where a median message spends its time (41.9 ms, mean of 195 messages):"), "{text}");
    assert!(text.contains(" 98.3 %  41.2 ms  transmit  sending: queued\n          set TCP_NODELAY\n"), "{text}");
    assert!(text.contains("  0.2 %   100 us  2 smaller rows"), "{text}");
}

/// At 60 columns names ended in `…`.
#[test]
fn the_names_of_a_median_message_s_rows_are_whole_at_every_width() {
    let mut d = example();
    let row = |name: &str| json!({"category": "lock-wait", "name": name, "role": "A", "leg": "transmit", "mean_ns": 1_000, "share": 0.3});
    let long = "events_unbound_power_efficient_cond";
    d.typical = serde_json::from_value(json!({"from": 0.45, "to": 0.55, "messages": 195, "mean_ns": 4_000, "rows": [
        row("held by a-thread-of-a-server which slept in futex"), row(long), row("user"),
    ]}))
    .expect("a profile");
    for width in 60..=140 {
        let text = diagnosis(&d, &plain(width));
        let block: Vec<&str> =
            text.lines().skip_while(|l| !l.contains("Where a median")).take_while(|l| !l.is_empty()).collect();
        assert!(block.iter().all(|l| l.chars().count() <= width && !l.contains('…')), "{width}: {block:#?}");
        let words: Vec<&str> = block.iter().flat_map(|l| l.split_whitespace()).collect();
        for word in ["a-thread-of-a-server", "slept", "futex", long, "user"] {
            assert!(words.contains(&word), "{width}: {word} {block:#?}");
        }
    }
}

/// 19 of 1,952: nothing was said. Now all but the causes is.
#[test]
fn without_enough_messages_all_but_the_causes_is_said() {
    let mut d = example();
    (d.causes, d.clusters) = (vec![], vec![]);
    d.not_available = Some("N/A: the focus p99..p100 holds 1 of 60 complete messages".into());
    // The legs of a name are one: "23.3 us another program: golden, 22.0 us another program: golden".
    let part = |leg: &str, name: &str, ns: u64| json!({"category": "interference", "name": name, "role": "A", "leg": leg, "mean_ns": ns, "share": 0.5});
    let parts = [part("receive", "cron", 500), part("receive", "nginx", 400), part("service", "nginx", 300)];
    d.slowest = serde_json::from_value(json!([
        {"id": 17, "latency_ns": 1200, "ahead": 0, "flow": "a <- b", "parts": parts}]))
    .expect("messages");
    let text = diagnosis(&d, &plain(80));
    assert!(text.contains("N/A: the focus p99..p100 holds 1 of 60") && text.contains("p50 17.2 us"), "{text}");
    assert!(text.contains("message 17  1.20 us  700 ns another program: nginx, 500 ns another program:\n"), "{text}");
    assert!(!text.contains("Explained:") && !text.contains("share") && !text.contains("Because"), "{text}");
}

/// etcd asks itself by gRPC: of 1,628 requests of HTTP/1 the total was known, and "only receiving is known" stood above it.
#[test]
fn only_receiving_is_known_where_that_is_so() {
    let says = "Only receiving is known here";
    let mut d = example();
    let legs = |total: u64| json!({"receive": {"messages": 4_790, "p50": 1}, "total": {"messages": total, "p50": 1}});
    d.multiplexed = serde_json::from_value(json!({"http2": 3_000, "tls_shared": 0, "tls_in_turn": 0})).unwrap();
    d.legs = serde_json::from_value(legs(0)).unwrap();
    assert!(diagnosis(&d, &plain(100)).contains(says));
    d.legs = serde_json::from_value(legs(1_700)).unwrap();
    assert!(!diagnosis(&d, &plain(100)).contains(says));
    d.legs = serde_json::from_value(legs(20)).unwrap();
    assert!(diagnosis(&d, &plain(100)).contains(says), "health checks");
    d.leg = tailsight_lifetime::Leg::Total;
    assert!(!diagnosis(&d, &plain(100)).contains(says), "which are explained here");
}

/// "most to 127.0.0.1:22002 (2,480)", and as many to two others.
#[test]
fn most_requests_go_where_more_go_than_elsewhere() {
    let mut d = example();
    let mut said = |peers: serde_json::Value| {
        let calls = json!({"calls": 60, "complete": 0, "bytes": 1, "transmit_ns": {}, "peers": peers});
        d.sent = serde_json::from_value(json!({"requests": calls})).unwrap();
        diagnosis(&d, &plain(100)).lines().find(|l| l.starts_with("Sent:")).expect("a line").to_owned()
    };
    assert!(said(json!([["a:1", 60]])).ends_with("60 own requests, all to a:1"));
    assert!(said(json!([["a:1", 40], ["b:1", 20]])).ends_with("most to a:1 (40)"));
    assert!(said(json!([["a:1", 20], ["b:1", 20], ["c:1", 20]])).ends_with("to 3 servers 20 each"));
    let nobody = tailsight_lifetime::UNKNOWN_ADDRESS;
    let with_unknown = said(json!([["a:1", 25], ["b:1", 25], [nobody, 10]]));
    assert!(
        with_unknown.ends_with("to 2 servers 25 each, 10 to a server whose address is not known"),
        "{with_unknown}"
    );
}

/// A name server at a p99 of 263 us, 2.8 times its median, was to be profiled with perf.
#[test]
fn where_nothing_stands_out_that_is_said_and_nothing_advised() {
    let mut d = example();
    let says = "Nothing stands out: p99 is less than 3 times the median";
    assert!(!diagnosis(&d, &plain(100)).contains(says));
    d.causes.iter_mut().for_each(|cause| cause.deviation_ns /= 20);
    assert!(!diagnosis(&d, &plain(100)).contains(says), "p99 is 59 times the median");
    d.latency_ns.insert("p99".into(), 51_000);
    let text = diagnosis(&d, &plain(100));
    assert!(text.contains(says), "{text}");
    d.causes[0].deviation_ns = 100_000;
    assert!(!diagnosis(&d, &plain(100)).contains(says));
}

#[test]
fn commands_are_never_broken() {
    let text = diagnosis(&example(), &plain(60));
    assert!(text.lines().any(|l| l.trim() == COMMAND), "{text}");
    assert!(text.lines().any(|l| l.trim() == format!("# undo: {UNDO}")), "{text}");
    assert!(text.lines().any(|l| l.contains("tailsight diagnose tailsight-demo/run --leg total")), "{text}");
    assert!(!text.contains("a fourth step"));
}

#[test]
fn colours_change_nothing_but_colours() {
    let coloured = diagnosis(&example(), &Style { color: true, width: 80 });
    assert!(coloured.contains("\x1b["));
    let mut bare = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare += before;
        rest = after.split_once('m').expect("a whole sequence").1;
    }
    bare += rest;
    let trimmed: String = bare.lines().map(|l| l.trim_end().to_owned() + "\n").collect();
    assert_eq!(trimmed, diagnosis(&example(), &plain(80)));
}

#[test]
fn shares_on_the_screen_add_up() {
    let text = diagnosis(&example(), &plain(100));
    let shares: f64 = text
        .lines()
        .skip_while(|l| !l.contains("share"))
        .skip(1)
        .take_while(|l| !l.is_empty())
        .map(|l| {
            let before = l.split_once(" %").expect("a share").0;
            before.split_whitespace().last().expect("a number").parse::<f64>().expect("a number")
        })
        .sum();
    assert!((shares - 100.0).abs() < 0.3, "{shares}\n{text}");
}

#[test]
fn unexplained_is_never_folded_however_small() {
    let mut d = example();
    d.causes.last_mut().expect("causes").share = 0.0;
    assert!(diagnosis(&d, &plain(80)).contains("unexplained"));
}

/// What may be chance is one row that is never folded, what was inferred says so, and messages are told apart by cause.
#[test]
fn rows_that_are_no_causes_and_groups() {
    let mut d = example();
    let mut chance = d.causes[1].clone();
    (chance.category, chance.name, chance.share) = (Category::NotSignificant, "not significant".into(), 0.002);
    let last = d.causes.len() - 1;
    d.causes.insert(last, chance);
    d.causes[1].inferred = true;
    let cluster = |rank: u32, name: &str, messages| tailsight_diagnose::model::Cluster {
        rank,
        category: Category::Interference,
        name: name.into(),
        subject: None,
        frames: vec![],
        role: tailsight_lifetime::Role::A,
        messages,
        mean_ns: 2_000_000,
        example: 17,
    };
    d.clusters = vec![cluster(1, "nginx", 40), cluster(2, "cron", 5), cluster(3, "a", 2), cluster(4, "b", 1)];
    let text = diagnosis(&d, &plain(140));
    let row = text.lines().find(|l| l.contains("not significant")).expect("a row");
    assert!(row.contains("0.2 %") && !row.contains('/'), "{row}");
    assert!(text.lines().any(|l| l.contains("packet:8088 (estimated)")), "{text}");
    for (guessed, words) in [(0.5, "packet:8088 (guessed)"), (0.1, "packet:8088 (partly guessed)")] {
        (d.causes[1].inferred, d.causes[1].guessed) = (false, Some(guessed));
        let text = diagnosis(&d, &plain(140));
        assert!(text.contains(words), "{text}");
    }
    assert!(
        text.contains("40 mostly nginx (another program), mean 2.00 ms, e.g. message 17 (tailsight show)"),
        "{text}"
    );
    assert!(text.contains("1 with 1 other cause"), "{text}");
    d.against = Some("before".into());
    assert!(diagnosis(&d, &plain(140)).contains("more than the same slice of before"));
}

/// "27.6 % not significant" and "7 mostly differences that may be chance" named none of them.
#[test]
fn the_largest_differences_that_may_be_chance_are_named() {
    let mut d = example();
    let last = d.causes.len() - 1;
    let chance = |name: &str, share: f64| {
        let mut cause = d.causes[1].clone();
        (cause.category, cause.name, cause.share) = (Category::Interference, name.to_owned(), share);
        cause
    };
    let rows = vec![
        chance("cron", 0.01),
        chance("sshd", -0.05),
        chance("nginx", 0.2),
        chance("rustc", 0.09),
        chance("x", 0.0),
    ];
    let mut row = chance("not significant", 0.276);
    row.category = Category::NotSignificant;
    d.clusters = ["not significant", "nginx"]
        .map(|name| tailsight_diagnose::model::Cluster {
            rank: 7,
            category: if name == "nginx" { Category::Interference } else { Category::NotSignificant },
            name: name.into(),
            subject: None,
            frames: vec![],
            role: tailsight_lifetime::Role::A,
            messages: 7,
            mean_ns: 2_170_000,
            example: 17,
        })
        .into();
    d.not_significant = rows;
    d.causes.insert(last, row);
    let largest =
        "the largest: another program: nginx 20.0 %, another program: rustc 9.0 %, another program: sshd -5.0 %";
    let text = diagnosis(&d, &plain(140));
    let below = text.lines().skip_while(|l| !l.contains("27.6 %")).nth(1).unwrap();
    assert_eq!(below.trim(), largest);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(&format!("7 mostly differences too rare to tell from chance ({largest}), mean 2.17 ms")),
        "{text}"
    );
    for width in 60..=140 {
        let text = diagnosis(&d, &plain(width));
        let wide = table_of(&text).lines().find(|l| l.chars().count() > width).map(str::to_owned);
        assert_eq!(wide, None, "{width}");
    }
}

/// "Hot path of cause 5" stood below a table that had folded cause 5 away.
#[test]
fn the_hot_path_is_of_a_cause_that_is_shown() {
    let mut d = example();
    let path = json!([{"name": "event_handler", "module": "memcached", "source": "", "share": 1.0}]);
    d.causes[4].hot_path = serde_json::from_value(path).expect("the contract");
    assert!(d.causes[4].share < 0.01 && d.causes[4].rank == 5);
    assert!(!diagnosis(&d, &plain(80)).contains("Hot path"));
    d.causes[2].hot_path = d.causes[4].hot_path.clone();
    assert!(diagnosis(&d, &plain(80)).contains("Hot path of cause 3"));
}

/// rustc was four rows, by the names of its threads: a process is one, with its threads counted.
#[test]
fn a_process_is_said_with_its_threads() {
    let mut d = example();
    d.causes[0].name = "rustc".into();
    d.causes[0].who = serde_json::from_value(json!({
        "pid": 812, "comm": "rustc", "processes": 4, "threads": 12, "pids": [812, 813, 814, 815],
        "by_thread": [{"name": "lto cgu.01", "threads": 4, "deviation_ns": 900_000}],
        "cgroup": null, "unit": null, "container": null,
    }))
    .expect("the contract");
    let text = diagnosis(&d, &plain(140));
    assert!(text.contains("another program    rustc (4 processes, 12 threads)"), "{text}");
    let who = d.causes[0].who.as_mut().expect("known");
    (who.processes, who.threads) = (1, 1);
    assert!(!diagnosis(&d, &plain(140)).contains("rustc ("));
    // In a container it is said with that one: by its names, else by the beginning of its id.
    d.causes[0].who.as_mut().expect("known").container = Some("0123456789abcdef".into());
    assert!(diagnosis(&d, &plain(140)).contains("rustc (container 0123456789ab)"));
    let who = d.causes[0].who.as_mut().expect("known");
    (who.namespace, who.pod, who.container_name) = (Some("shop".into()), None, Some("cart\x1b[H".into()));
    let text = diagnosis(&d, &plain(140));
    assert!(text.contains("rustc (container shop/cart") && !text.contains('\x1b'), "{text}");
}

/// What the JSON names with frames is said in words, and has a second line where it does not fit.
#[test]
fn a_chain_of_frames_is_said_in_words() {
    let mut d = example();
    d.causes[1].category = Category::LockWait;
    d.causes[1].name = "lab-holder holds it/sleep:clock_nanosleep".into();
    d.causes[1].subject = Some(Subject::Holder { name: "lab-holder".into() });
    d.causes[1].frames = vec![NamedFrame { kind: FrameKind::Sleep, of: Some("clock_nanosleep".into()) }];
    let text = diagnosis(&d, &plain(140));
    assert!(text.contains("a lock           perhaps held by lab-holder, which slept in clock_nanosleep"), "{text}");
    let text = diagnosis(&d, &plain(88));
    let mut rows = text.lines().skip_while(|l| !l.contains("perhaps held by"));
    assert!(rows.next().is_some() && rows.next().is_some_and(|l| l.trim().starts_with("lab-holder,")), "{text}");
    assert!(!text.contains("holds it"), "{text}");
}

/// With a protocol: whose the slow messages are. A class comes from the wire, and may be anything.
#[test]
fn classes_say_whose_the_slow_messages_are() {
    let class = |name: &str, messages, focus, ns: &[(&str, u64)]| ClassLatency {
        name: name.into(),
        messages,
        focus,
        latency_ns: ns.iter().map(|&(key, ns)| (key.into(), ns)).collect(),
    };
    let order = class("POST /order", 1_200, 38, &[("p50", 1_400_000), ("p99", 28_000_000)]);
    let odd = class("GET \u{1b}[31m", 9, 2, &[("p50", 600_000)]);
    let of = |classes: &[ClassLatency], to: f64| {
        let example = example();
        let focus = Slice { to, ..example.focus };
        diagnosis(&Diagnosis { classes: classes.to_vec(), focus, ..example }, &plain(120))
    };
    let said = of(&[order.clone(), odd], 1.0);
    let rows: Vec<&str> = said.lines().skip_while(|line| *line != "Requests by class:").skip(1).take(2).collect();
    assert_eq!(rows[0], "  POST /order  1,200  p50 1.40 ms  p99 28.0 ms  38 of the 40 slow ones");
    assert!(rows[1].ends_with("      9  p50  600 us  p99     N/A  2 of the 40 slow ones"), "{}", rows[1]);
    assert!(!said.contains('\u{1b}'));
    let many: Vec<ClassLatency> = (0..9).map(|_| order.clone()).collect();
    assert!(of(&many, 1.0).contains("\n  3 further: 3,600 messages\n"));
    assert!(of(&many, 0.5).contains("38 of the 342 under study"));
    // One class says nothing that the percentiles do not.
    assert!(!of(&[order], 1.0).contains("by class"));
}

#[test]
fn a_diagnosis_of_a_class_says_so() {
    let of = |name: &str, classes: &[&str]| {
        let classes = classes.iter().map(|class| (*class).to_owned()).collect();
        let class = Some(ChosenClass { name: name.into(), classes });
        diagnosis(&Diagnosis { class, ..example() }, &plain(120))
    };
    let one = of("GET /item", &["GET /item"]);
    assert!(one.starts_with("memcached, receive only, class GET /item: 4,790 of 4,802 messages\n"), "{one}");
    assert!(one.contains("\nThe slowest 1 % of GET /item take 2.06 ms, 2.04 ms more than the median ones"), "{one}");
    let several = of("GET /\u{1b}[31m*", &["GET /a", "GET /b"]);
    assert!(
        several.starts_with("memcached, receive only, 2 classes GET /") && !several.contains('\u{1b}'),
        "{several}"
    );
}

#[test]
fn a_task_name_cannot_write_to_the_terminal() {
    let mut d = example();
    d.app = "mem\x1b[31mcached".into();
    d.causes[0].name = "ngi\x1b]0;owned\x07nx\n".into();
    d.causes[0].explanation = "said\x1b[2J".into();
    d.notes.push("note\rover".into());
    d.next_steps.insert(0, NextStep::words("step\x1b[H"));
    let fix = Fix { command: Some("run\x1b[H".into()), undo: Some("back\r".into()), ..Fix::step("why\x07") };
    d.next_steps.insert(1, NextStep { fix: Some(fix), ..NextStep::default() });
    let text = diagnosis(&d, &plain(80));
    assert!(!text.contains(['\x1b', '\x07', '\r']), "{text:?}");
}

#[test]
fn without_deviation_it_says_so() {
    let mut d = example();
    d.focus.mean_ns = d.reference.mean_ns;
    d.causes.clear();
    d.latency_ns.remove("p99.9");
    let text = diagnosis(&d, &plain(100));
    assert!(text.contains("no more than the median ones: there is no delay to explain."), "{text}");
    assert!(text.contains("p99.9 N/A"));
    assert!(!text.contains("share") && !text.contains("Because"));
}

/// "The named causes explain" was said of all time with an owner. Coverage is of causes, the owner's part is said apart, and
/// only where it leaves something.
#[test]
fn what_causes_explain_and_what_has_an_owner_are_two_lines() {
    let mut d = example();
    let text = diagnosis(&d, &plain(140));
    let line = "Explained: by the causes above, 90.2 % of the difference (median message 95.1 %, lowest \
     72.0 %, message 4711)";
    assert!(text.contains(line), "{text}");
    let line = "Owner:     known of 98.8 % of the difference (median message 99.4 %, lowest 81.0 %)";
    assert!(text.contains(line), "{text}");
    (d.owned.overall, d.owned.p50, d.owned.min) = (1.0, 1.0, 1.0);
    assert!(!diagnosis(&d, &plain(140)).contains("Owner:"));
}

#[test]
fn summary_of_a_recording() {
    insta::assert_snapshot!(record_summary(&synthetic::meta(2_000_000_000), &plain(100), true));
}

#[test]
fn summary_of_a_recording_that_went_wrong() {
    let mut meta = synthetic::meta(2_000_000_000);
    meta.state = State::Partial;
    meta.partial = Some("no space left on device".into());
    meta.cpus[1].lost = 12_040;
    meta.overhead.ns_per_event = 0.0;
    meta.warnings = vec!["the clock was stepped".into(), "pid 4242 ended".into()];
    let text = record_summary(&meta, &plain(100), true);
    assert!(text.lines().count() <= 6, "{text}");
    insta::assert_snapshot!(text);
}

/// Loops of 300 characters stood in the terminal; what tailsight fix makes is its command.
#[test]
fn a_fix_that_tailsight_makes_is_one_command() {
    let mut d = serde_json::to_value(example()).expect("JSON");
    d["causes"][0]["actions"] = json!([{"n": 1, "title": "keep nginx off core 1", "command": "tailsight fix \
     tailsight-demo/run 1",
        "changes": [{"kind": "pin-named", "comm": "nginx", "cpus": "0"}], "says": ["every thread of nginx on cores 0"],
        "undo": ["the earlier cores of each thread"], "shell": [0]}]);
    d["next_steps"][0] = json!({"says": "try this against nginx (interference): keep nginx off core 1",
        "command": "tailsight fix tailsight-demo/run 1"});
    let d: Diagnosis = serde_json::from_value(d).expect("the diagnosis contract");
    for width in [60, 120] {
        let text = diagnosis(&d, &plain(width));
        assert!(!text.contains("taskset"), "{text}");
        assert!(text.lines().any(|l| l.trim().ends_with("tailsight fix tailsight-demo/run 1")), "{text}");
    }
}

/// `--against` printed causes of 254.7 % beside "7 smaller causes −389.8 %": what is left of rows that cancel has no shares to read.
#[test]
fn rows_that_cancel_say_so() {
    assert!(!diagnosis(&example(), &plain(100)).contains("cancel"));
    let mut d = example();
    for (cause, deviation_ns) in d.causes.iter_mut().zip([900_000, -700_000, 0, 0, 0, 0, 0]) {
        (cause.deviation_ns, cause.share) = (deviation_ns, deviation_ns as f64 / 200_000.0);
    }
    let text = diagnosis(&d, &plain(120));
    assert!(
        text.contains("These rows cancel: 900 us more in some, 700 us less in others; the shares are of the 200 us"),
        "{text}"
    );
}

/// `application core` stood in every row while names were cut at 24 characters.
#[test]
fn the_column_of_cores_is_there_where_rows_differ() {
    let mut d = example();
    assert!(diagnosis(&d, &plain(120)).contains("receive core"));
    d.causes.remove(1);
    let text = diagnosis(&d, &plain(120));
    assert!(!text.contains("application core") && !text.contains("  core"), "{text}");
}
