//! The numbers: rows add up, planted causes come out first, order does not matter, errors are what they should be.

use proptest::prelude::*;
use syscalls::Sysno;
use tailsight_diagnose::{Diagnosis, Error, Options, RecordingFacts, diagnose};
use tailsight_lifetime::{Context, Frame, Incomplete, Leg, Lifetimes, Message, Owner, Part, Role};

use crate::common::{a, foreign, kthread, lifetimes, net_rx, options, owner, r, receive, sys};

/// Owners of every sort; the numbers are used below.
fn owners() -> Vec<Owner> {
    vec![
        owner(Context::Own, &[]),
        owner(Context::Own, &[sys(Sysno::recvmsg)]),
        owner(Context::Ahead, &[]),
        owner(Context::Ahead, &[sys(Sysno::sendmsg)]),
        owner(Context::Ahead, &[sys(Sysno::sendmsg), net_rx(true), Frame::Packet { own: false, port: 40000, app: 0 }]),
        owner(foreign("nginx"), &[]),
        owner(foreign("nginx"), &[net_rx(true)]),
        owner(kthread("kworker/0:1"), &[]),
        owner(Context::Idle, &[Frame::IdleState { state: 1 }]),
        owner(Context::Idle, &[Frame::WakePending]),
        owner(Context::Idle, &[net_rx(false), Frame::Packet { own: true, port: 11211, app: 0 }]),
        owner(Context::Blocked, &[Frame::SleepIn { nr: u32::MAX, uninterruptible: false, io: false }]),
        owner(Context::Unknown, &[]),
    ]
}

const NGINX: u32 = 5;

fn part() -> impl Strategy<Value = Part> {
    let ns = prop_oneof![8 => 0..2_000u64, 1 => 0..3_000_000u64];
    (any::<bool>(), 0..13u32, 0..4u32, ns).prop_map(|(at_a, owner, count, ns)| Part {
        role: if at_a { Role::A } else { Role::R },
        owner,
        count: u16::try_from(count).unwrap_or(u16::MAX),
        ns,
    })
}

fn legs() -> impl Strategy<Value = [Vec<Part>; 3]> {
    let leg = || prop::collection::vec(part(), 1..5);
    [leg(), leg(), leg()]
}

fn adds_up(d: &Diagnosis) {
    let total = d.focus.mean_ns as i64 - d.reference.mean_ns as i64;
    assert_eq!(d.causes.iter().map(|c| c.deviation_ns).sum::<i64>(), total);
    let shares: f64 = d.causes.iter().map(|c| c.share).sum();
    let none = d.causes.iter().all(|c| c.share == 0.0);
    assert!((shares - 1.0).abs() < 1e-9 || none, "shares sum to {shares}");
    let last = d.causes.last().expect("there is always a last row");
    assert_eq!((last.category.as_str(), last.name.as_str()), ("unexplained", "unexplained"));
    assert_eq!(d.causes.iter().filter(|c| c.category.as_str() == "unexplained").count(), 1);
    for (i, c) in d.causes.iter().enumerate() {
        assert_eq!(c.rank as usize, i + 1);
        assert!(c.ci95_ns[0] <= c.ci95_ns[1]);
        assert!(c.messages <= d.focus.messages && c.evidence.len() <= 5 && c.paths.len() <= 8);
        assert_eq!(c.evidence.is_empty(), c.messages == 0);
    }
    // What is no cause comes after the causes, as one row.
    let named =
        d.causes.iter().take_while(|c| !["not-significant", "unexplained"].contains(&c.category.as_str())).count();
    assert_eq!(named + 1 + usize::from(!d.not_significant.is_empty()), d.causes.len());
    for share in d.causes[..named].windows(2).map(|w| w[0].share - w[1].share) {
        assert!(share >= 0.0, "rows are in order of their share");
    }
    for c in [&d.coverage, &d.owned] {
        assert!([c.overall, c.p50, c.min, c.mean].iter().all(|v| (0.0..=1.0).contains(v)), "{c:?}");
        assert!(c.min <= c.p50 && c.min <= c.mean, "{c:?}");
        assert_eq!(c.least.first().map_or(1.0, |l| l.1), c.min);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever the messages, slices and leg: integer rows sum to the integer deviation, shares to 1.
    #[test]
    fn rows_add_up(
        parts in prop::collection::vec(legs(), 200..400),
        leg in prop::sample::select(Leg::ALL.to_vec()),
        focus in prop::sample::select(vec![(0.9, 1.0), (0.0, 0.1), (0.2, 0.35), (0.0, 1.0), (0.45, 0.55)]),
    ) {
        let lifetimes = lifetimes(owners(), parts);
        let options = Options { leg, focus, reference: (0.45, 0.55), ..options() };
        adds_up(&diagnose(&lifetimes, &options, &RecordingFacts::default()).unwrap());
    }

    /// The order in which messages arrived changes ids, not causes.
    #[test]
    fn order_does_not_matter(mut parts in prop::collection::vec(legs(), 250), seed in any::<u64>()) {
        // Latencies that differ, so that ties at a slice's edge cannot fall differently.
        for (i, p) in parts.iter_mut().enumerate() {
            let sum: u64 = p[0].iter().map(|p| p.ns).sum();
            p[0].push(a(0, 1000 - sum % 1000 + i as u64));
        }
        let mut shuffled = parts.clone();
        let mut rng = tailsight_diagnose::rows::bootstrap::SplitMix(seed);
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, rng.below(i + 1));
        }
        // Intervals depend on the order, since slow messages come in bursts.
        let options = Options { focus: (0.9, 1.0), bootstrap_rounds: 0, ..options() };
        let causes = |parts| {
            let d = diagnose(&receive(owners(), parts), &options, &RecordingFacts::default()).unwrap();
            let key = |c: &tailsight_diagnose::model::Cause| {
                let frames = c.path_frames.clone();
                (c.category, c.name.clone(), c.role, c.deviation_ns, c.messages, c.paths.clone(), frames, c.before_receive)
            };
            (d.causes.iter().map(key).collect::<Vec<_>>(), d.latency_ns)
        };
        let only_receive = |p: Vec<[Vec<Part>; 3]>| p.into_iter().map(|[r, _, _]| r).collect::<Vec<_>>();
        prop_assert_eq!(causes(only_receive(parts)), causes(only_receive(shuffled)));
    }

    /// One owner's time added to the slowest 2 % is the first cause, with all of the deviation.
    #[test]
    fn planted_cause_is_first(
        noise in prop::collection::vec((0..400u64, 0..400u64), 2000),
        planted in prop::sample::select(vec![2u32, NGINX, 7, 9]),
        x in 20_000..5_000_000u64,
        spread in 0..2_000u64,
    ) {
        let parts: Vec<Vec<Part>> = noise.iter().enumerate().map(|(i, &(n, m))| {
            let mut parts = vec![r(10, 2_000 + n), a(1, 3_000 + m)];
            if i % 50 == 0 {
                // x on average: as often less as more.
                let off = spread * (i as u64 / 50 % 2);
                parts.push(a(planted, x - spread / 2 + off));
            }
            parts
        }).collect();
        let options = Options { focus: (0.98, 1.0), ..options() };
        let d = diagnose(&receive(owners(), parts), &options, &RecordingFacts::default()).unwrap();
        adds_up(&d);
        let first = &d.causes[0];
        let expected = match planted {
            2 => ("hol-blocking", "memcached"),
            NGINX => ("interference", "nginx"),
            7 => ("os-threads", "kworker"),
            _ => ("wakeup-delay", "wake-pending"),
        };
        prop_assert_eq!((first.category.as_str(), first.name.as_str(), first.role), (expected.0, expected.1, Role::A));
        // The rest is noise of at most 800 ns.
        prop_assert!((first.share - 1.0).abs() <= 800.0 / x as f64, "{}", first.share);
        // The mean of the planted times, whose halves round down.
        let mean = (x - spread / 2) as f64 + spread as f64 / 2.0;
        prop_assert!((first.deviation_ns as f64 - mean).abs() <= 1.0);
        prop_assert!(first.ci95_ns[0] as f64 <= mean + 1.0 && mean - 1.0 <= first.ci95_ns[1] as f64, "{:?}", first.ci95_ns);
        prop_assert!(first.ci95_ns[0] as f64 >= mean - spread as f64 - 1.0, "no draw lies outside what was planted");
        prop_assert_eq!((first.messages, d.focus.messages), (40, 40));
        prop_assert!(first.evidence.iter().all(|id| id % 50 == 0));
        prop_assert_eq!(d.owned.min, 1.0);
        // Of each message's deviation, the noise of at most 800 ns is nobody's.
        prop_assert!(d.coverage.min >= 1.0 - 800.0 / (x - spread / 2 - 800) as f64, "{:?}", d.coverage);
    }
}

/// 2000 messages of 5 us; every 50th has the extra parts.
fn slow(extra: &[Part]) -> Lifetimes {
    let parts = (0..2000u64).map(|i| {
        let mut parts = vec![r(10, 2_000 + i % 10), a(1, 3_000)];
        if i % 50 == 0 {
            parts.extend_from_slice(extra);
        }
        parts
    });
    receive(owners(), parts.collect())
}

fn causes_of(lifetimes: &Lifetimes) -> Vec<(String, String, i64)> {
    let options = Options { focus: (0.98, 1.0), ..options() };
    let d = diagnose(lifetimes, &options, &RecordingFacts::default()).unwrap();
    adds_up(&d);
    d.causes.into_iter().map(|c| (c.category.to_string(), c.name, c.deviation_ns)).collect()
}

/// NSight §5.2: nested anomalies that together explain 80 % replace their parent, whose own time stays a row; less do not, and
/// a foreign context is never looked into.
#[test]
fn nesting_rule() {
    let rows = |extra: &[Part]| -> Vec<(String, i64)> {
        causes_of(&slow(extra)).into_iter().filter(|c| c.2 >= 1_000).map(|c| (c.1, c.2)).collect()
    };
    let named = |rows: &[(&str, i64)]| rows.iter().map(|(n, ns)| ((*n).to_owned(), *ns)).collect::<Vec<_>>();
    let (send, soft) = ("memcached/sys:sendmsg", "memcached/sys:sendmsg/softirq:net_rx/packet:40000");
    assert_eq!(rows(&[a(2, 10_000), a(3, 90_000)]), named(&[(send, 90_000), ("memcached", 10_000)]));
    assert_eq!(rows(&[a(2, 30_000), a(3, 70_000)]), named(&[("memcached", 100_000)]));
    // Level by level: the softirq explains 56 % of the call that it is in, so the call stays.
    assert_eq!(rows(&[a(2, 10_000), a(3, 40_000), a(4, 50_000)]), named(&[(send, 90_000), ("memcached", 10_000)]));
    assert_eq!(rows(&[a(3, 10_000), a(4, 90_000)]), named(&[(soft, 90_000), (send, 10_000)]));
    assert_eq!(rows(&[a(6, 100_000)]), named(&[("nginx", 100_000)]));
    let strict = Options { nesting: 0.95, focus: (0.98, 1.0), ..options() };
    let d = diagnose(&slow(&[a(2, 10_000), a(3, 90_000)]), &strict, &RecordingFacts::default()).unwrap();
    assert_eq!(d.causes[0].name, "memcached");
    let paths: Vec<(&str, i64)> = d.causes[0].paths.iter().map(|(p, ns)| (p.as_str(), *ns)).collect();
    assert_eq!(paths, [("ahead/sys:sendmsg", 90_000), ("ahead", 10_000)]);
}

/// Two calls of 45 % each: neither named the row, for only one child was looked at. Together they explain it.
#[test]
fn several_children_replace_their_parent_together() {
    let mut owners = owners();
    owners.push(owner(Context::Ahead, &[sys(Sysno::read)]));
    let read = owners.len() as u32 - 1;
    let base = slow(&[a(2, 10_000), a(3, 45_000), a(read, 45_000)]);
    let parts = (0..2000).map(|i| base.parts(i, Leg::Receive)).collect();
    let causes = causes_of(&receive(owners, parts));
    let rows: Vec<(&str, i64)> = causes.iter().filter(|c| c.0 == "hol-blocking").map(|c| (c.1.as_str(), c.2)).collect();
    assert_eq!(rows, [("memcached/sys:read", 45_000), ("memcached/sys:sendmsg", 45_000), ("memcached", 10_000)]);
}

/// A row below 1 % and below the granularity joins the largest of its category and role; without one it stays.
#[test]
fn small_rows_fold_and_never_vanish() {
    let mut owners = owners();
    owners.push(owner(foreign("cron"), &[]));
    let base = slow(&[a(NGINX, 100_000), a(13, 200), a(7, 200)]);
    let parts = (0..2000).map(|i| base.parts(i, Leg::Receive)).collect();
    let causes = causes_of(&receive(owners, parts));
    let row = |name: &str| causes.iter().find(|c| c.1 == name).map(|c| c.2);
    assert_eq!(row("nginx"), Some(100_200));
    assert_eq!(row("cron"), None);
    assert_eq!(row("kworker"), Some(200));
}

/// Time that no owner is known for is the last row, however large; so is what the parts leave out of the latency.
#[test]
fn unexplained_is_last_and_counts_against_coverage() {
    let options = Options { focus: (0.98, 1.0), ..options() };
    let d = diagnose(&slow(&[a(NGINX, 20_000), a(12, 30_000)]), &options, &RecordingFacts::default()).unwrap();
    adds_up(&d);
    assert_eq!(d.causes.last().map(|c| c.deviation_ns), Some(30_000));
    // 49,999.5 or so of deviation: 30,000 of it unexplained.
    for c in [&d.coverage, &d.owned] {
        assert!((c.overall - 0.4).abs() < 0.001 && (c.p50 - 0.4).abs() < 0.001, "{c:?}");
    }

    let whole = slow(&[a(NGINX, 20_000)]);
    let mut messages = whole.messages.clone();
    messages.iter_mut().filter(|m| m.id % 50 == 0).for_each(|m| m.recv_ns += 5_000);
    let parts = (0..2000).map(|i| [whole.parts(i, Leg::Receive), vec![], vec![]]).collect();
    let gaps = Lifetimes::from_parts("memcached", messages, whole.flows.clone(), owners(), parts);
    let d = diagnose(&gaps, &options, &RecordingFacts::default()).unwrap();
    adds_up(&d);
    assert_eq!(d.causes.last().map(|c| c.deviation_ns), Some(5_000));
}

/// Time whose row may be chance has an owner and is nobody's cause: it counted as explained. Of 40 slow messages, each has
/// 100 us of nginx and 10 us of idle more; one of them 2 ms of a sibling, which every resample may leave out.
#[test]
fn coverage_is_of_causes_and_owned_is_of_owners() {
    let mut owners = owners();
    owners.push(owner(Context::Sibling { comm: "gc".into() }, &[]));
    let gc = owners.len() as u32 - 1;
    let parts = (0..2000u64).map(|i| {
        let mut parts = vec![r(10, 2_000), a(1, 3_000 + i % 3)];
        if i % 50 == 0 {
            parts.extend([a(NGINX, 100_000), a(9, 10_000)]);
        }
        if i == 1_000 {
            parts.push(a(gc, 2_000_000));
        }
        parts
    });
    let options = Options { focus: (0.98, 1.0), bootstrap_rounds: 500, ..options() };
    let d = diagnose(&receive(owners, parts.collect()), &options, &RecordingFacts::default()).unwrap();
    adds_up(&d);
    let chance: Vec<&str> = d.not_significant.iter().map(|c| c.name.as_str()).filter(|n| n.contains("gc")).collect();
    assert_eq!(chance, ["gc (other thread)"]);
    assert_eq!((d.owned.overall, d.owned.min), (1.0, 1.0));
    // 110 us of 160 us on average, 110 of 2,110 in that message, everything in the others.
    assert!((d.coverage.overall - 110.0 / 160.0).abs() < 0.001, "{:?}", d.coverage);
    assert!((d.coverage.min - 110.0 / 2110.0).abs() < 0.001, "{:?}", d.coverage);
    assert_eq!(d.coverage.least[0].0, 1_000);
    assert!(d.coverage.p50 > 0.9999, "{:?}", d.coverage);
    assert!((d.coverage.mean - (39.0 + 110.0 / 2110.0) / 40.0).abs() < 0.001, "{:?}", d.coverage);
}

/// Less than usual is a row too, with its sign.
#[test]
fn negative_rows_are_kept() {
    let parts = (0..2000u64).map(|i| match i % 50 {
        0 => vec![r(10, 2_000 + i % 7), a(NGINX, 100_000)],
        _ => vec![r(10, 2_000 + i % 7), a(9, 5_000)],
    });
    let causes = causes_of(&receive(owners(), parts.collect()));
    assert_eq!((causes[0].1.as_str(), causes[0].2), ("nginx", 100_000));
    assert!(causes.iter().any(|c| c.1 == "wake-pending" && c.2 == -5_000));
}

/// A focus below its reference: what is missing most comes first.
#[test]
fn fast_focus() {
    let parts = (0..2000u64).map(|i| vec![r(10, 2_000 + i % 7), a(9, if i < 200 { 500 } else { 5_000 })]);
    let options = Options { focus: (0.0, 0.1), ..options() };
    let d = diagnose(&receive(owners(), parts.collect()), &options, &RecordingFacts::default()).unwrap();
    adds_up(&d);
    assert_eq!((d.causes[0].name.as_str(), d.causes[0].deviation_ns), ("wake-pending", -4_500));
}

#[test]
fn too_few_messages_is_not_a_verdict() {
    let few = receive(owners(), (0..1500u64).map(|i| vec![a(0, 1000 + i)]).collect());
    match diagnose(&few, &options(), &RecordingFacts::default()) {
        Err(Error::NotEnough { slice: "focus", have: 15, complete: 1500, needed: 20, .. }) => {}
        other => panic!("{other:?}"),
    }
    let narrow = Options { focus: (0.9, 1.0), reference: (0.5, 0.51), ..options() };
    assert!(matches!(
        diagnose(&few, &narrow, &RecordingFacts::default()),
        Err(Error::NotEnough { slice: "reference", .. })
    ));
    let reversed = Options { focus: (1.0, 0.9), ..options() };
    assert!(matches!(diagnose(&few, &reversed, &RecordingFacts::default()), Err(Error::Focus { .. })));
    for nesting in [0.0, -0.5, 1.1, f64::NAN] {
        let outside = Options { nesting, ..options() };
        let refused = diagnose(&few, &outside, &RecordingFacts::default());
        assert!(matches!(refused, Err(Error::Option { option: "nesting", .. })), "{nesting}");
    }
}

#[test]
fn no_message_says_why() {
    let mut none = receive(owners(), vec![]);
    let message = diagnose(&none, &options(), &RecordingFacts::default()).unwrap_err().to_string();
    assert!(message.contains("no message was seen") && message.contains("send it requests"), "{message}");
    none.incomplete.insert(Incomplete::RecordingEnded, 7);
    let message = diagnose(&none, &options(), &RecordingFacts::default()).unwrap_err().to_string();
    assert!(
        message.contains("7: not received before the recording ended") && message.contains("memcached"),
        "{message}"
    );
}

/// Messages without a reply count for the receive leg, and are named for the others.
#[test]
fn incomplete_messages_are_counted_once() {
    let whole = lifetimes(owners(), vec![[vec![a(0, 500)], vec![a(0, 100)], vec![a(0, 50)]]; 1000]);
    let mut messages: Vec<Message> = whole.messages.clone();
    messages[..100].iter_mut().for_each(|m| (m.send_ns, m.xmit_ns) = (0, 0));
    messages[100..130].iter_mut().for_each(|m| m.xmit_ns = 0);
    messages[130..135].iter_mut().for_each(|m| (m.recv_ns, m.send_ns, m.xmit_ns) = (0, 0, 0));
    let parts = (0..1000).map(|i| [Leg::Receive, Leg::Service, Leg::Transmit].map(|leg| whole.parts(i, leg)));
    let mut l = Lifetimes::from_parts("memcached", messages, whole.flows.clone(), owners(), parts.collect());
    l.incomplete.insert(Incomplete::RecordingEnded, 5);
    let counts = |leg| {
        let options = Options { leg, focus: (0.9, 1.0), ..options() };
        diagnose(&l, &options, &RecordingFacts::default()).unwrap().messages
    };
    let c = counts(Leg::Receive);
    assert_eq!((c.total, c.complete, c.incomplete.values().sum()), (1000, 995, 5));
    let c = counts(Leg::Total);
    assert_eq!((c.total, c.complete), (1000, 865));
    assert_eq!(c.incomplete[&Incomplete::SendNotSeen], 100);
    assert_eq!(c.incomplete[&Incomplete::TransmitNotSeen], 30);
}

/// A TLS alert, or the last words of a client, has no reply: nothing was missed.
#[test]
fn what_nothing_was_sent_after_is_not_answered() {
    let whole = lifetimes(owners(), vec![[vec![a(0, 500)], vec![a(0, 100)], vec![a(0, 50)]]; 1000]);
    let mut messages: Vec<Message> = whole.messages.clone();
    messages[990..].iter_mut().for_each(|m| (m.send_ns, m.xmit_ns) = (0, 0));
    messages[500..507].iter_mut().for_each(|m| (m.send_ns, m.xmit_ns) = (0, 0));
    let parts = (0..1000).map(|i| [Leg::Receive, Leg::Service, Leg::Transmit].map(|leg| whole.parts(i, leg)));
    let l = Lifetimes::from_parts("nginx", messages, whole.flows.clone(), owners(), parts.collect());
    let options = Options { leg: Leg::Total, focus: (0.9, 1.0), ..options() };
    let counts = diagnose(&l, &options, &RecordingFacts::default()).unwrap().messages;
    assert_eq!((counts.total, counts.complete), (1000, 983));
    assert_eq!(counts.incomplete, [(Incomplete::SendNotSeen, 7), (Incomplete::Unanswered, 10)].into());
}

/// The same owner counts to another category in another leg, and the three legs make the total.
#[test]
fn total_keeps_the_legs_apart() {
    let mut owners = owners();
    owners.push(owner(Context::Own, &[sys(Sysno::sendmsg)]));
    let legs = |i: u64| match i % 50 {
        0 => [vec![a(NGINX, 10_000)], vec![a(13, 20_000)], vec![a(13, 40_000)]],
        _ => [vec![a(NGINX, 1_000 + i % 7)], vec![a(13, 500)], vec![a(13, 500)]],
    };
    let l = lifetimes(owners, (0..2000).map(legs).collect());
    let rows = |leg| {
        let options = Options { leg, focus: (0.98, 1.0), ..options() };
        let d = diagnose(&l, &options, &RecordingFacts::default()).unwrap();
        adds_up(&d);
        let causes = d.causes.into_iter().filter(|c| c.deviation_ns > 0);
        causes.map(|c| (c.category.to_string(), c.name, c.deviation_ns)).collect::<Vec<_>>()
    };
    let service = vec![("app-processing".to_owned(), "sendmsg".to_owned(), 19_500)];
    let transmit = vec![("transmit-processing".to_owned(), "sendmsg".to_owned(), 39_500)];
    assert_eq!(rows(Leg::Service), service);
    assert_eq!(rows(Leg::Transmit), transmit);
    let total = rows(Leg::Total);
    assert_eq!(total[..2], [transmit, service].concat());
    assert_eq!(total[2].1, "nginx");
}
