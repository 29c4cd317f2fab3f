//! Golden runs: small recordings of real servers (`scripts/record-golden.sh`). Any change in matching, in the partition
//! or in the names of owners shows as a difference to `expected.json`. `UPDATE_GOLDEN=1` writes what is found.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tailsight_lifetime::input::merge::in_memory;
use tailsight_lifetime::partition::Legs;
use tailsight_lifetime::path::Owners;
use tailsight_lifetime::{Analysis, Incomplete, LEGS, Leg, Owner, Part, Role, RunContext, Who, scan};
use tailsight_testbed::process::pin_thread;
use tailsight_trace::read::CpuEvents;
use tailsight_trace::{Run, fields};

use crate::properties::check_partition;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// What is expected to stay: how many messages, how complete, how long, whose time.
fn summary(analysis: &Analysis) -> Value {
    let lifetimes = &analysis.lifetimes;
    let mut legs = serde_json::Map::new();
    for leg in Leg::ALL {
        let mut sorted: Vec<u64> = lifetimes.messages.iter().filter_map(|m| m.latency(leg)).collect();
        sorted.sort_unstable();
        let at = |q: f64| sorted.get(((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1)));
        let ns = json!({"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": sorted.last()});
        legs.insert(leg.name().into(), json!({"messages": sorted.len(), "ns": ns}));
    }
    let mut owners: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for message in &lifetimes.messages {
        for leg in LEGS {
            for part in lifetimes.part_slice(message.id, leg) {
                let role = if part.role == Role::R { "R" } else { "A" };
                let path = lifetimes.owners[part.owner as usize].path(&lifetimes.symbols);
                let sum = owners.entry(format!("{} {role} {path}", leg.name())).or_default();
                *sum = (sum.0 + part.ns, sum.1 + u64::from(part.count));
            }
        }
    }
    let owners: BTreeMap<_, _> = owners.iter().map(|(k, v)| (k, format!("{} ns, {} times", v.0, v.1))).collect();
    let flows: Vec<_> = lifetimes.flows.iter().map(|f| format!("{}: {}", f.name, f.messages)).collect();
    let sum = |f: fn(&tailsight_lifetime::Message) -> u64| lifetimes.messages.iter().map(f).sum::<u64>();
    let mut answer = json!({
        "app": lifetimes.app,
        "messages": lifetimes.messages.len(),
        "incomplete": lifetimes.incomplete,
        "bytes": sum(|m| u64::from(m.bytes)),
        "in a batch": sum(|m| u64::from(m.batch > 1)),
        "behind others": sum(|m| u64::from(m.ahead > 0)),
        "woken": sum(|m| u64::from(m.wake_ns != 0)),
        "flags": sum(|m| u64::from(m.flags)),
        "flows": flows,
        "legs": legs,
        "owners": owners,
    });
    if let Some(framing) = &lifetimes.framing {
        let mut classes: BTreeMap<String, u64> = BTreeMap::new();
        for m in &lifetimes.messages {
            let class = lifetimes.class(m).map_or("none", |c| &c.name);
            *classes.entry(format!("{class}, paired: {}", m.pairing().unwrap_or("not"))).or_default() += 1;
        }
        answer["framing"] = json!(framing);
        answer["classes"] = json!(classes);
        answer["reply bytes"] = json!(sum(|m| u64::from(m.reply_bytes)));
    }
    answer
}

/// Every part of every leg with its owner, when so many messages are worked on at a time.
fn parts_in_chunks(run: &Run, events: &[CpuEvents], chunk: usize) -> Vec<(Part, Owner, Who)> {
    let scan = scan::scan(&RunContext::of(run), in_memory(events).iter_mut()).expect("events in memory");
    let mut owners = Owners::default();
    let legs = Legs::in_chunks(&scan, None, &mut owners, chunk);
    let (list, who) = owners.into_lists();
    for (parts, offsets) in legs.parts.iter().zip(&legs.offsets) {
        assert_eq!((offsets.len(), offsets[scan.messages.len()] as usize), (scan.messages.len() + 1, parts.len()));
    }
    let named =
        |part: Part| (Part { owner: 0, ..part }, list[part.owner as usize].clone(), who[part.owner as usize].clone());
    legs.parts.into_iter().flatten().map(named).collect()
}

fn check(name: &str) {
    let dir = folder().join(name);
    let mut run = Run::open(&dir).expect("a golden run");
    let events = run.events().expect("its events");
    assert_eq!(run.partial, Vec::<String>::new());
    let analysis = Analysis::build(&RunContext::of(&run), &events);
    check_partition(&analysis).unwrap_or_else(|e| panic!("{name}: {e}"));
    // Working on a few messages at a time, on any core, gives the same parts.
    assert_eq!(parts_in_chunks(&run, &events, 37), parts_in_chunks(&run, &events, 100_000), "{name}");
    // Reading the events as they are needed finds the same.
    let streamed = Analysis::of(&mut run).expect("its events");
    assert_eq!(streamed.lifetimes.messages, analysis.lifetimes.messages, "{name}");
    assert_eq!(summary(&streamed), summary(&analysis), "{name}");
    // So it does where there is one processor, and no thread reads ahead.
    let alone = std::thread::spawn(move || {
        assert!((0..1024).any(|cpu| pin_thread(cpu).is_ok()), "a processor to run on");
        assert_eq!(std::thread::available_parallelism().expect("the processors").get(), 1);
        Analysis::of(&mut Run::open(&dir).expect("a golden run")).expect("its events")
    });
    let alone = alone.join().expect("an analysis");
    assert_eq!(alone.lifetimes.messages, analysis.lifetimes.messages, "{name}");
    assert_eq!(summary(&alone), summary(&analysis), "{name}");
    let lifetimes = &analysis.lifetimes;
    // Recorded from a lossless stream: what was not matched was cut off by the recording's end.
    let lost: u64 =
        lifetimes.incomplete.iter().filter(|(why, _)| **why != Incomplete::RecordingEnded).map(|x| x.1).sum();
    assert_eq!(lost, 0, "{name}: {:?}", lifetimes.incomplete);
    assert!(lifetimes.messages.len() >= 50, "{name} has only {} messages", lifetimes.messages.len());
    let answered = lifetimes.messages.iter().filter(|m| m.latency(Leg::Total).is_some()).count();
    assert!(answered * 100 >= lifetimes.messages.len() * 95, "{name}: {answered} of {}", lifetimes.messages.len());

    let text = serde_json::to_string_pretty(&summary(&analysis)).expect("text") + "\n";
    let path = folder().join(name).join("expected.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).expect("expected.json can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let differences: Vec<_> = expected
        .lines()
        .filter(|l| !text.lines().any(|f| f == *l))
        .map(|l| format!("- {l}"))
        .chain(text.lines().filter(|l| !expected.lines().any(|e| e == *l)).map(|l| format!("+ {l}")))
        .collect();
    assert!(text == expected, "{name} differs from {}:\n{}", path.display(), differences.join("\n"));
}

#[test]
fn memcached_tcp() {
    check("memcached-tcp");
}

#[test]
fn memcached_udp() {
    check("memcached-udp");
}

#[test]
fn redis_ipv6() {
    check("redis-ipv6");
    let text = fs::read_to_string(folder().join("redis-ipv6/expected.json")).expect("what is expected");
    assert!(text.contains("tcp [fd77::1]:6379 <- [fd77::2]:"), "IPv6 flows have their addresses");
}

#[test]
fn nginx_with_two_workers() {
    check("nginx-2-workers");
}

/// Requests in bursts of three, each a message of its own.
fn requests(name: &str, class: &str) {
    check(name);
    let mut run = Run::open(&folder().join(name)).expect("a golden run");
    let analysis = Analysis::of(&mut run).expect("its events");
    let lifetimes = &analysis.lifetimes;
    let framing = lifetimes.framing.as_ref().expect("recorded with a protocol");
    assert_eq!((framing.lost, framing.framed), (0, lifetimes.messages.len() as u64), "{framing:?}");
    assert!(lifetimes.messages.iter().all(|m| lifetimes.class(m).is_some_and(|c| c.name == class)));
    let sizes: std::collections::BTreeSet<u32> = lifetimes.messages.iter().map(|m| m.bytes).collect();
    assert_eq!(sizes.len(), 1, "requests are all alike: {sizes:?}");
    let together = lifetimes.messages.iter().filter(|m| m.batch > 1).count();
    assert!(together * 2 > lifetimes.messages.len(), "{together} came in bursts");
    // Many replies in one packet go beyond the bytes kept: those requests have the send call by order.
    let framed = lifetimes.messages.iter().filter(|m| m.reply_bytes > 32).count();
    assert!(framed * 100 >= lifetimes.messages.len() * 95, "{framed} of {} replies", lifetimes.messages.len());
}

/// The run that was recorded with a protocol, read as one whose connections tell it.
fn auto_tells(name: &str, protocol: &str) {
    let read = |choice: &str| {
        let mut run = Run::open(&folder().join(name)).expect("a golden run");
        run.meta.payload.as_mut().expect("recorded with a protocol").protocol = choice.to_owned();
        Analysis::of(&mut run).expect("its events").lifetimes
    };
    let (auto, named) = (read("auto"), read(protocol));
    assert!(named.messages.len() > 100 && auto.classes == named.classes);
    assert_eq!(auto.messages, named.messages);
    let framing = auto.framing.expect("recorded with a protocol");
    let connections = named.flows.iter().filter(|flow| flow.messages > 0).count() as u64;
    assert_eq!(framing.connections, [(protocol.to_owned(), connections)].into());
    assert_eq!((framing.protocol.as_str(), framing.untold_connections), ("auto", 0));
}

#[test]
fn memcached_is_told() {
    auto_tells("memcached-requests", "memcached");
}

#[test]
fn redis_is_told() {
    auto_tells("redis-requests", "resp");
}

#[test]
fn memcached_requests() {
    requests("memcached-requests", "get k16..32");
}

#[test]
fn redis_requests() {
    requests("redis-requests", "get k8..16");
}

/// The recorder replaces the names of the machine's other tasks; nothing but the lab's and the kernel's may be there.
#[test]
fn golden_runs_name_nobody_else() {
    let own = [
        "memcached",
        "mc-",
        "nginx",
        "redis-server",
        "bio_",
        "io_thd_",
        "jemalloc_bg_thd",
        "lab",
        "tailsight",
        "golden",
        "task-",
    ];
    let kernel = [
        "swapper",
        "ksoftirqd/",
        "kworker/",
        "rcu",
        "migration/",
        "kthreadd",
        "cpuhp/",
        "idle_inject/",
        "kcompactd",
        "khugepaged",
        "kswapd",
        "ktimers/",
        "kauditd",
        "khungtaskd",
        "oom_reaper",
    ];
    for entry in fs::read_dir(folder()).expect("golden runs").flatten() {
        let mut run = Run::open(&entry.path()).expect("a golden run");
        let named = run.events().expect("events").into_iter().flat_map(|c| c.events);
        let renamed = named.filter(|e| matches!(e.kind, 5 | 6 | 8)).map(|e| fields::Task::of(&e).comm.to_string());
        let names = run.tasks.iter().map(|t| t.comm.clone());
        for name in names.chain(run.sockets.iter().map(|s| s.comm.clone())).chain(renamed) {
            let is_own = name.is_empty() || own.iter().chain(&kernel).any(|n| name.starts_with(n));
            assert!(is_own, "{} names {name:?}", entry.path().display());
        }
        for socket in &run.sockets {
            let lab = ["10.77.0.", "fd77::", "0.0.0.0", "::", "127.0.0.1"];
            assert!(lab.iter().any(|a| socket.local_addr.starts_with(a)), "{socket:?}");
        }
    }
}
