//! The method beyond single rows: phases, what is no cause, page faults, classes, clusters, another run as the reference.

use proptest::prelude::*;
use syscalls::Sysno;
use tailsight_diagnose::model::Cause;
use tailsight_diagnose::rows::bootstrap::SplitMix;
use tailsight_diagnose::{Category, Diagnosis, Inputs, Options, RecordingFacts, diagnose, diagnose_with};
use tailsight_lifetime::{Context, Frame, Leg, Lifetimes, Owner, Part};

use crate::common::{a, foreign, lifetimes, net_rx, options, owner, r, receive, sys};

fn owners() -> Vec<Owner> {
    vec![
        owner(Context::Own, &[]),
        owner(Context::Own, &[sys(Sysno::read)]),
        owner(foreign("nginx"), &[]),
        owner(Context::Ahead, &[sys(Sysno::sendmsg)]),
        owner(Context::Blocked, &[Frame::SleepIn { nr: Sysno::fsync as u32, uninterruptible: true, io: false }]),
        owner(Context::Idle, &[net_rx(false), Frame::Packet { own: true, port: 11211, app: 0 }]),
    ]
}

fn adds_up(d: &Diagnosis) {
    let total = d.focus.mean_ns as i64 - d.reference.mean_ns as i64;
    assert_eq!(d.causes.iter().map(|c| c.deviation_ns).sum::<i64>(), total);
    let shares: f64 = d.causes.iter().map(|c| c.share).sum();
    assert!((shares - 1.0).abs() < 1e-9 || d.causes.iter().all(|c| c.share == 0.0), "{shares}");
    assert_eq!(d.causes.last().map(|c| c.category.as_str()), Some("unexplained"));
    assert_eq!(d.clusters.iter().map(|c| c.messages).sum::<u64>(), d.focus.messages);
}

fn cause<'a>(d: &'a Diagnosis, category: &str) -> Option<&'a Cause> {
    d.causes.iter().find(|c| c.category.as_str() == category)
}

fn service(l: &Lifetimes, more: bool) -> Diagnosis {
    let options = Options { leg: Leg::Service, focus: (0.98, 1.0), more, ..options() };
    let d = diagnose(l, &options, &RecordingFacts::default()).unwrap();
    adds_up(&d);
    d
}

/// 4,000 messages with a service leg of 10 to 12 us; every 50th has what `extra` says.
fn busy(extra: impl Fn(u64) -> Vec<Part>) -> Lifetimes {
    let mut rng = SplitMix(5);
    let legs = |i: u64| {
        let mut parts = vec![a(0, 8_000 + rng.below(2_000) as u64), a(1, 2_000)];
        if i.is_multiple_of(50) {
            parts.extend(extra(i));
        }
        [vec![], parts, vec![]]
    };
    lifetimes(owners(), (0..4_000).map(legs).collect())
}

/// NSight §5.2: which phase finds what, and how.
#[test]
fn phases_say_how_a_cause_was_found() {
    let how = |extra: Vec<Part>| {
        let d = service(&busy(|_| extra.clone()), false);
        let first = &d.causes[0];
        (serde_json::to_value(first.phase).expect("text"), serde_json::to_value(first.how).expect("text"))
    };
    let is = |phase: &str, how: &str| (serde_json::Value::from(phase), serde_json::Value::from(how));
    assert_eq!(how(vec![a(2, 500_000)]), is("contexts", "unexpected"));
    assert_eq!(how(vec![a(4, 500_000)]), is("gaps", "gap"));
    assert_eq!(how(vec![a(3, 500_000)]), is("overlaps", "overlap"));
    // The usual system call, longer; and as long as usual, but a hundred times.
    assert_eq!(how(vec![a(1, 500_000)]), is("functions", "slower"));
    assert_eq!(how(vec![Part { count: 250, ..a(1, 500_000) }]), is("functions", "more-frequent"));
}

/// A difference whose interval holds 0 is no cause; it stays in the sum, as part of one row.
#[test]
fn what_may_be_chance_is_no_cause() {
    // In 2 of the 80 slow messages only, and as much less of it in the ordinary ones: nobody can tell.
    let d =
        service(&busy(|i| if i % 2000 == 0 { vec![a(2, 500_000), a(4, 9_000)] } else { vec![a(2, 500_000)] }), false);
    assert_eq!((d.causes[0].category.as_str(), d.causes[0].messages), ("interference", 80));
    assert!(cause(&d, "disk-wait").is_none(), "{:?}", d.causes);
    let row = cause(&d, "not-significant").unwrap();
    assert_eq!(row.rank as usize, d.causes.len() - 1);
    assert!(row.ci95_ns[0] <= row.deviation_ns && row.deviation_ns <= row.ci95_ns[1], "{row:?}");
    let disk = d.not_significant.iter().find(|c| c.category.as_str() == "disk-wait").unwrap();
    assert_eq!((disk.deviation_ns, disk.ci95_ns[0]), (225, 0));
    assert_eq!(row.deviation_ns, d.not_significant.iter().map(|c| c.deviation_ns).sum::<i64>());
    for c in d.causes.iter().filter(|c| !["not-significant", "unexplained"].contains(&c.category.as_str())) {
        assert!(c.ci95_ns[0] > 0 || c.ci95_ns[1] < 0, "{c:?}");
    }
    // Without intervals nothing can be told apart.
    let options = Options { leg: Leg::Service, focus: (0.98, 1.0), bootstrap_rounds: 0, ..options() };
    let d = diagnose(&busy(|_| vec![a(2, 500_000)]), &options, &RecordingFacts::default()).unwrap();
    assert!(d.not_significant.is_empty() && cause(&d, "not-significant").is_none());
}

/// A retransmission of 200 ms in one message of the focus was most of the deviation and stood nowhere but in a sum.
#[test]
fn what_is_rare_but_large_is_a_row_that_is_no_cause() {
    let d =
        service(&busy(|i| if i == 2000 { vec![a(2, 500_000), a(4, 30_000_000)] } else { vec![a(2, 500_000)] }), false);
    assert!(cause(&d, "disk-wait").is_none(), "{:?}", d.causes);
    let disk = d.not_significant.iter().find(|c| c.category.as_str() == "disk-wait").unwrap();
    assert_eq!((disk.messages, (100.0 * disk.share).round(), disk.evidence.first()), (1, 43.0, Some(&2000)));
}

/// Messages with 0 to 29 faults of `each` ns; every 50th has 200 more.
fn faulting(each: u64) -> Lifetimes {
    let mut rng = SplitMix(11);
    let counts: Vec<u32> = (0..4_000).map(|i| rng.below(30) as u32 + if i % 50 == 0 { 200 } else { 0 }).collect();
    let mut l = busy(|_| vec![a(0, 60_000)]);
    let parts = (0..4_000u32).map(|id| {
        let mut parts = l.parts(id, Leg::Service);
        parts[0].ns += each * u64::from(counts[id as usize]);
        [vec![], parts, vec![]]
    });
    l = lifetimes(owners(), parts.collect());
    l.faults = counts;
    l
}

/// The cost of events without a duration is taken from the application's own time, by the slope over this run.
#[test]
fn page_faults_are_inferred() {
    let d = service(&faulting(700), false);
    let faults = cause(&d, "paging").unwrap_or_else(|| panic!("{:?}", d.causes));
    assert_eq!((faults.name.as_str(), faults.inferred, faults.paths.len()), ("page faults", true, 1));
    // 200 faults more of 700 ns; the slope is within a tenth, for the 60 us of others' making lie on the same line.
    assert!((faults.deviation_ns - 140_000).abs() < 20_000, "{faults:?}");
    assert_eq!(d.circumstances.costs.len(), 1);
    let own: i64 = d.causes.iter().filter(|c| c.category.as_str() == "app-processing").map(|c| c.deviation_ns).sum();
    assert!(own >= 0, "never more than the deviation of the own time");
    assert!(faults.times[0] > 200.0 && faults.times[1] < 30.0, "{:?}", faults.times);
    // Without a slope there is nothing to infer.
    let mut none = busy(|_| vec![a(0, 60_000)]);
    let mut rng = SplitMix(3);
    none.faults = (0..4_000).map(|_| rng.below(30) as u32).collect();
    assert!(cause(&service(&none, false), "paging").is_none());
}

/// 4,000 messages with one part of own time and interrupts of other cores; `of`: own time in ns, faults, interrupts of a message.
fn counted(mut message_of: impl FnMut(u32) -> (u64, u32, u16)) -> Lifetimes {
    let owners = vec![owner(Context::Own, &[]), owner(Context::Own, &[Frame::Vector { which: 1 }])];
    let messages: Vec<(u64, u32, u16)> = (0..4_000).map(&mut message_of).collect();
    let legs = |&(own_ns, _, interrupts): &(u64, u32, u16)| {
        let mut parts = vec![a(0, own_ns)];
        if interrupts > 0 {
            parts.push(Part { count: interrupts, ..a(1, 800 * u64::from(interrupts)) });
        }
        [vec![], parts, vec![]]
    };
    let mut l = lifetimes(owners, messages.iter().map(legs).collect());
    l.faults = messages.iter().map(|m| m.1).collect();
    l
}

/// What the inferred row is made of, ns: the cost of one times how many more, what own time has room for of it, what comes on top.
fn made_of(d: &Diagnosis) -> Option<[f64; 3]> {
    let row = d.causes.iter().find(|c| c.inferred && c.share.abs() >= 0.01)?;
    let cost = d.circumstances.costs.iter().find(|cost| row.subject.as_ref() == Some(&cost.subject))?;
    Some([cost.slope_ns * cost.more, cost.by_number_ns, cost.beyond_ns])
}

/// Redis, which forked for 19 ms in 8 of its slow messages: 622 us of a slow message were said to be page faults, of which it had 9 more
/// at 4.51 us each. The others pay for copies on write; the fork itself has some faults, and is no fault.
#[test]
fn a_fork_in_messages_with_some_faults_is_own_work() {
    let mut rng = SplitMix(21);
    let l = counted(|i| {
        let faults = if i.is_multiple_of(50) { 8 + rng.below(6) as u32 } else { rng.below(3) as u32 };
        let fork_ns = if i.is_multiple_of(500) { 17_000_000 + rng.below(4_000_000) as u64 } else { 0 };
        (20_000 + rng.below(9_000) as u64 + 4_500 * u64::from(faults) + fork_ns, faults, 0)
    });
    let d = service(&l, false);
    let (own, faults) = (cause(&d, "app-processing").expect("a row"), cause(&d, "paging"));
    assert!(own.share > 0.95, "{:?}", d.causes);
    let most = 1.5 * 4_600.0 * 10.0;
    assert!(faults.is_none_or(|row| (row.deviation_ns as f64) < most), "{faults:?}");
}

/// PostgreSQL, which compiled queries for 60 to 120 ms: 7.57 ms of it were said to be interrupts of other cores, of which such a query met
/// 9. A long computation meets them as often as a short one.
#[test]
fn a_long_computation_that_meets_interrupts_is_own_work() {
    for seed in 1..=20 {
        let mut rng = SplitMix(seed);
        let l = counted(|i| {
            let own_ns =
                if i.is_multiple_of(50) { 60_000_000 + rng.below(60_000_000) } else { 150_000 + rng.below(99_000) };
            // One in 10 ms; and beside the short ones, which wake others, one in 6 ms.
            let each_us = if own_ns > 1_000_000 { 10_000 } else { 6_000 };
            let met = (0..own_ns / 1_000).filter(|_| rng.below(each_us) == 0).count();
            (own_ns as u64, 0, met as u16)
        });
        let d = service(&l, false);
        assert!(!d.causes.iter().any(|c| c.inferred), "{seed}: {:?}", d.causes);
        let own = cause(&d, "app-processing").expect("a row");
        assert!(own.share > 0.99, "{seed}: {own:?}");
    }
}

/// What the storm costs is not lost for it: such messages meet interrupts more often, also in their own time.
#[test]
fn interrupts_that_cost_time_are_their_cause() {
    let mut rng = SplitMix(4);
    let l = counted(|i| {
        let met = if i.is_multiple_of(50) { 20 + rng.below(30) } else { usize::from(rng.below(10) == 0) };
        (250_000 + rng.below(1_500) as u64 + 8_000 * met as u64, 0, met as u16)
    });
    let d = service(&l, false);
    let row = cause(&d, "interrupts").unwrap_or_else(|| panic!("{:?}", d.causes));
    let inferred = d.causes.iter().find(|c| c.inferred).unwrap_or_else(|| panic!("{:?}", d.causes));
    assert!(row.share > 0.8 && (250_000..320_000).contains(&inferred.deviation_ns), "{inferred:?}");
    let [product, room, beyond] = made_of(&d).expect("a cost");
    assert!(((room + beyond) / inferred.deviation_ns as f64 - 1.0).abs() < 0.02, "{product} {room} {beyond}");
}

/// Whichever messages are drawn: a quarter of them is enough for the slope.
#[test]
fn a_sample_of_the_messages_gives_the_estimate_of_all() {
    let l = faulting(700);
    for seed in 1..=20 {
        let options = Options { leg: Leg::Service, estimated: 1_000, seed, ..options() };
        let d = diagnose(&l, &options, &RecordingFacts::default()).expect("enough messages");
        let faults = cause(&d, "paging").unwrap_or_else(|| panic!("{seed}: {:?}", d.causes));
        assert!((faults.deviation_ns - 140_000).abs() < 20_000, "{seed}: {faults:?}");
    }
}

/// Of a reference that is larger an even part is compared: the causes and their sizes are those of all of it.
#[test]
fn a_part_of_the_reference_gives_the_comparison_of_all() {
    let l = faulting(700);
    let whole = diagnose(&l, &Options { leg: Leg::Service, ..options() }, &RecordingFacts::default()).expect("causes");
    let options = Options { leg: Leg::Service, compared: 100, ..options() };
    let some = diagnose(&l, &options, &RecordingFacts::default()).expect("causes");
    assert_eq!((whole.reference.messages, some.reference.messages), (400, 100));
    assert_eq!((whole.focus.messages, whole.focus.mean_ns), (some.focus.messages, some.focus.mean_ns));
    let typical = |d: &Diagnosis| d.typical.as_ref().map(|t| (t.messages, t.from, t.to)).expect("a median message");
    assert_eq!((typical(&whole), typical(&some)), ((400, 0.45, 0.55), (100, 0.45, 0.55)));
    adds_up(&some);
    let first = |d: &Diagnosis| (d.causes[0].category, d.causes[0].name.clone());
    assert_eq!(first(&whole), first(&some));
    let [more, less] = [&whole, &some].map(|d| d.causes[0].deviation_ns as f64);
    assert!((less / more - 1.0).abs() < 0.01, "{less} of {more} ns");
}

/// A heavy class of requests is no anomaly of its messages: that there are more of them in the focus is the cause.
#[test]
fn classes_are_compared_with_their_like() {
    let mut l = busy(|_| vec![a(0, 400_000)]);
    l.messages.iter_mut().for_each(|m| m.bytes = if m.id % 50 == 0 { 9_000 } else { 100 });
    let d = service(&l, false);
    let first = &d.causes[0];
    assert_eq!((first.category.as_str(), first.name.as_str()), ("app-processing", "class of 8193 to 16384 bytes"));
    assert!((0.97..=1.0).contains(&first.share), "{first:?}");
    // Interference that happens to hit one class stays what it is.
    let mut l = busy(|_| vec![a(2, 400_000)]);
    l.messages.iter_mut().for_each(|m| m.bytes = if m.id % 50 == 0 { 9_000 } else { 100 });
    let d = service(&l, false);
    assert_eq!(d.causes[0].category, Category::Interference);
    assert!(!d.causes.iter().any(|c| c.name.starts_with("class")), "{:?}", d.causes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Whatever the faults, sizes and times: the rows sum to the deviation to the nanosecond.
    #[test]
    fn moved_time_adds_up(
        messages in prop::collection::vec((0..40u32, 0..3u32, 0..90_000u64, 0..5_000u64), 400),
        leg in prop::sample::select(vec![Leg::Service, Leg::Total]),
        compared in 20..60_usize,
    ) {
        let parts = messages.iter().map(|&(faults, size, own, other)| {
            let own = own / 50 + u64::from(faults) * 600 + u64::from(size) * 9_000;
            [vec![r(5, 900)], vec![a(0, own), a(1, own / 3), a(2, other)], vec![]]
        });
        let mut l = lifetimes(owners(), parts.collect());
        l.faults = messages.iter().map(|m| m.0).collect();
        l.messages.iter_mut().zip(&messages).for_each(|(m, from)| m.bytes = 64 << (2 * from.1));
        let options = Options { leg, focus: (0.9, 1.0), compared, ..options() };
        let d = diagnose(&l, &options, &RecordingFacts::default()).unwrap();
        adds_up(&d);
        let own: i64 = d.causes.iter().filter(|c| ["app-processing", "paging"].contains(&c.category.as_str())).map(|c| c.deviation_ns).sum();
        prop_assert!(own <= d.focus.mean_ns as i64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// java and redis, whose rows were 3.6 and 15 times what number and cost beside them make. Whatever a fault costs, and whatever else
    /// slow messages do: what is known of it adds up to the row, and what comes on top is at most half.
    #[test]
    fn what_a_row_is_made_of_adds_up(
        seed in any::<u64>(),
        fault_ns in 300..6_000_u64,
        (few, many) in (1..4_usize, 4..400_usize),
        (scatter_ns, slow_ns) in (1..60_000_usize, prop::sample::select(vec![1, 20_000, 900_000, 20_000_000_usize])),
        slow in prop::sample::select(vec![50_u32, 100, 500]),
    ) {
        let mut rng = SplitMix(seed);
        let l = counted(|i| {
            let faults = rng.below(few) + if i.is_multiple_of(50) { many } else { 0 };
            let other_ns = rng.below(scatter_ns) + if i.is_multiple_of(slow) { rng.below(slow_ns) } else { 0 };
            (5_000 + other_ns as u64 + fault_ns * faults as u64, faults as u32, 0)
        });
        let d = service(&l, false);
        let row = d.causes.iter().find(|c| c.inferred);
        let (Some(row), Some([product, room, beyond])) = (row, made_of(&d)) else {
            prop_assert!(row.is_none_or(|row| row.share.abs() < 0.01), "{:?}", d.circumstances);
            return Ok(());
        };
        let ns = row.deviation_ns as f64;
        prop_assert!(((room + beyond) / ns - 1.0).abs() < 0.02, "{} {:?}", ns, d.circumstances);
        prop_assert!(room <= 1.01 * product && beyond <= 0.51 * room, "{:?}", d.circumstances);
    }
}

/// Slow for two reasons: each message counts to the one that most of its delay is.
#[test]
fn clusters_tell_the_reasons_apart() {
    let d = service(&busy(|i| vec![if i % 200 == 0 { a(4, 900_000) } else { a(2, 500_000) }]), false);
    let is: Vec<(&str, u64)> = d.clusters.iter().map(|c| (c.name.as_str(), c.messages)).collect();
    assert_eq!(is, [("nginx", 60), ("fsync", 20)]);
    assert!(d.clusters[1].mean_ns > 900_000 && d.clusters[1].example.is_multiple_of(200));
    assert_eq!(d.causes[d.clusters[0].rank as usize - 1].name, "nginx");
}

/// The same slice of another run: owners are the same whatever their numbers are.
#[test]
fn against_another_run() {
    let after =
        receive(owners(), (0..1_000u64).map(|i| vec![r(5, 2_000 + i % 10), a(2, 30_000), a(0, 1_000)]).collect());
    let reversed: Vec<Owner> = owners().into_iter().rev().collect();
    let before = receive(reversed, (0..1_500u64).map(|i| vec![r(0, 2_000 + i % 10), a(5, 1_000)]).collect());
    let options = Options { focus: (0.2, 0.3), ..options() };
    let beside = Inputs { against: Some(("before", &before)), ..Inputs::default() };
    let (d, causes) = diagnose_with(&after, &options, &RecordingFacts::default(), &beside).unwrap();
    adds_up(&d);
    assert_eq!(d.against.as_deref(), Some("before"));
    assert_eq!((d.reference.from, d.reference.to, d.reference.messages), (0.2, 0.3, 150));
    assert_eq!((d.messages.total, d.focus.messages), (1_000, 100));
    assert_eq!((d.causes[0].name.as_str(), d.causes[0].deviation_ns), ("nginx", 30_000));
    assert!(d.causes[1..].iter().all(|c| c.deviation_ns.abs() <= 10), "{:?}", d.causes);
    assert!(d.causes.iter().flat_map(|c| &c.evidence).all(|&id| id < 1_000));
    assert_eq!(causes[&(Leg::Receive, tailsight_lifetime::Role::A, 2)], 0);
    // A run of too few messages is no evidence, and says which.
    let few = receive(owners(), vec![vec![a(0, 1_000)]; 50]);
    let beside = Inputs { against: Some(("few", &few)), ..Inputs::default() };
    let error = diagnose_with(&after, &options, &RecordingFacts::default(), &beside).unwrap_err().to_string();
    assert!(error.contains("N/A") && error.contains("against"), "{error}");
}

/// Figures 18 to 20 as data.
#[test]
fn more_than_the_causes() {
    let mut l = busy(|_| vec![a(2, 500_000), Part { count: 7, ..a(3, 70_000) }]);
    l.messages.iter_mut().filter(|m| m.id % 50 == 0).for_each(|m| m.ahead = 7);
    let more = service(&l, true).more.unwrap();
    let tail = more.pervasive.last().unwrap();
    assert_eq!((tail.from, tail.to), (0.99, 0.999));
    assert!(tail.causes.iter().filter(|c| c.1 == 1.0).count() >= 2, "{tail:?}");
    let send = more.queue.iter().find(|q| q.function == "app send").unwrap();
    assert_eq!((send.depth, send.relative[1], send.mean_ns, send.messages), ([7.0, 0.0], 7.0, [70_000, 0], 80));
    assert_eq!(more.queue[0].depth, [7.0, 0.0]);
    assert!(service(&l, false).more.is_none());
}
