//! A diagnosis of one class of requests: its slow messages against its own median ones.

use tailsight_diagnose::cohorts::chosen_class::{choose, choose_in_both};
use tailsight_diagnose::cohorts::ranked;
use tailsight_diagnose::model::ChosenClass;
use tailsight_diagnose::{Diagnosis, Error, Inputs, Options, RecordingFacts, Selection, diagnose, diagnose_with};
use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Context, Leg, Lifetimes, Owner, RequestClass};

use crate::common::{a, foreign, lifetimes, options, owner};

fn owners() -> Vec<Owner> {
    vec![owner(Context::Own, &[]), owner(foreign("nginx"), &[])]
}

/// 4,000 requests: every fourth is a POST that works for 100 us, the others GETs of 10 us; nginx has the core for 30 us of every
/// hundredth GET. So all slow ones of the run are POSTs, which nothing delays. `names`: of the classes of both.
fn shop(names: [&str; 3]) -> Lifetimes {
    let legs = |i: u64| match i {
        i if i.is_multiple_of(4) => [vec![], vec![a(0, 100_000 + i % 97)], vec![]],
        i if i % 100 == 1 => [vec![], vec![a(0, 10_000), a(1, 30_000)], vec![]],
        i => [vec![], vec![a(0, 10_000 + i % 97)], vec![]],
    };
    let mut lifetimes = lifetimes(owners(), (0..4_000).map(legs).collect());
    let class = |name: &str| RequestClass { name: name.into(), ..RequestClass::default() };
    lifetimes.classes = names.map(class).to_vec();
    let place = |name: &str| names.iter().position(|other| *other == name).expect("it is one of them") as u16;
    for message in &mut lifetimes.messages {
        message.class = place(if message.id.is_multiple_of(4) { "POST /order" } else { "GET /item" });
        message.flags |= flags::PAIRED_BY_ORDER;
    }
    lifetimes
}

const NAMES: [&str; 3] = ["unframed", "GET /item", "POST /order"];

fn asked(class: Option<ChosenClass>) -> Options {
    Options { leg: Leg::Service, class, ..options() }
}

fn named(lifetimes: &Lifetimes, text: &str) -> ChosenClass {
    choose(text, &lifetimes.messages, &lifetimes.classes).expect("a class")
}

fn first_cause(d: &Diagnosis) -> (&str, &str) {
    (d.causes[0].category.as_str(), &d.causes[0].name)
}

#[test]
fn the_slow_ones_of_a_class_are_compared_with_its_own_median_ones() {
    let shop = shop(NAMES);
    let class = named(&shop, "get");
    let whole = diagnose(&shop, &asked(None), &RecordingFacts::default()).unwrap();
    assert_eq!((whole.class.as_ref(), whole.focus.messages), (None, 40));
    assert_eq!(whole.classes[0].focus, 40, "all slow ones are POSTs: {:?}", whole.classes);
    let of_class = diagnose(&shop, &asked(Some(class)), &RecordingFacts::default()).unwrap();
    assert_eq!(first_cause(&of_class), ("interference", "nginx"));
    assert_eq!((of_class.messages.total, of_class.messages.complete), (3_000, 3_000));
    assert_eq!((of_class.focus.messages, of_class.reference.mean_ns / 1_000), (30, 10));
    assert_eq!((of_class.latency_ns["max"], of_class.legs["service"].messages), (40_000, 3_000));
    // Thirty of forty whose core nginx had.
    assert_eq!(of_class.focus.mean_ns, 40_000);
    assert!(of_class.slowest.iter().all(|m| !m.id.is_multiple_of(4)), "{:?}", of_class.slowest);
    assert_eq!(
        of_class.causes.iter().map(|c| c.deviation_ns).sum::<i64>(),
        (of_class.focus.mean_ns - of_class.reference.mean_ns) as i64
    );
    // All classes are listed, each with its own latency.
    let listed: Vec<(&str, u64, u64)> =
        of_class.classes.iter().map(|c| (c.name.as_str(), c.messages, c.focus)).collect();
    assert_eq!(listed, [("GET /item", 3_000, 30), ("POST /order", 1_000, 0)]);
    assert_eq!(of_class.class.map(|class| class.name).as_deref(), Some("GET /item"));
    assert!(of_class.work.is_none(), "what the threads ran is of all classes");
}

/// A run is opened for a diagnosis with the messages that it looks into, which are of the class.
#[test]
fn a_selection_is_of_the_class() {
    let shop = shop(NAMES);
    let options = Options { focus: (0.95, 1.0), ..asked(Some(named(&shop, "POST /order"))) };
    let in_class = tailsight_diagnose::cohorts::chosen_class::InClass::new(options.class.as_ref(), &shop.classes);
    let latencies = tailsight_diagnose::cohorts::legs::Latencies::in_class(&shop.messages, &in_class);
    assert_eq!(latencies.of_leg(Leg::Service).len(), 1_000);
    let selection = Selection::with(&shop.messages, latencies, &options, &in_class);
    let read = selection.read(&shop.messages, &options);
    let is_post = |id: usize| id.is_multiple_of(4);
    let slowest: Vec<usize> =
        ranked(&shop.messages, Leg::Service).iter().rev().take(10).map(|&(_, id)| id as usize).collect();
    assert!(slowest.iter().all(|&id| is_post(id) && read[id]), "the slowest are looked into");
    assert!(
        (0..read.len()).filter(|&id| read[id]).all(is_post),
        "and none of another class: nothing waited behind one"
    );
    let inputs = Inputs { selection: Some(&selection), ..Inputs::default() };
    let (selected, _) = diagnose_with(&shop, &options, &RecordingFacts::default(), &inputs).unwrap();
    let whole = diagnose(&shop, &options, &RecordingFacts::default()).unwrap();
    assert_eq!(serde_json::to_value(&selected).unwrap(), serde_json::to_value(&whole).unwrap());
}

/// The classes of another run have other places.
#[test]
fn another_run_is_compared_by_the_same_class() {
    let (now, before) = (shop(NAMES), shop(["unframed", "POST /order", "GET /item"]));
    let class = choose_in_both("GET /item", &now, &before).unwrap();
    let inputs = Inputs { against: Some(("before", &before)), ..Inputs::default() };
    let (d, _) = diagnose_with(&now, &asked(Some(class)), &RecordingFacts::default(), &inputs).unwrap();
    assert_eq!((d.focus.mean_ns, d.reference.mean_ns), (40_000, 40_000), "both are the GETs that nginx delayed");
    assert_eq!((d.focus.messages, d.reference.messages), (30, 30));
}

#[test]
fn a_class_that_is_too_small_is_not_available() {
    let mut shop = shop(NAMES);
    shop.messages.iter_mut().skip(50).for_each(|m| m.class = 2);
    let options = asked(Some(named(&shop, "GET /item")));
    let error = diagnose(&shop, &options, &RecordingFacts::default()).unwrap_err();
    assert!(matches!(error, Error::NotEnough { complete: 37, .. }), "{error}");
    let overview = tailsight_diagnose::overview(&shop, &options, &RecordingFacts::default(), &error).unwrap();
    assert_eq!((overview.messages.complete, overview.latency_ns["max"]), (37, 40_000));
}
