//! What a session may never do, whatever is measured, and how often it decides rightly on a server whose fixes are known.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tailsight_tune::{Decision, Family, Objective, Settings, Stopped, Why, share_of_error};

use crate::simulated::{Course, Server, run};

const SECOND_NS: u64 = 1_000_000_000;

fn settings() -> Settings {
    Settings {
        budget_ns: 3_600 * SECOND_NS,
        families: vec![],
        alpha: 0.05,
        rounds: 16,
        window_ns: 3 * SECOND_NS,
        price_ns: 0,
        diagnosis_ns: 20 * SECOND_NS,
    }
}

fn lowest() -> Objective {
    Objective { quantile: 0.99, limit_ns: None }
}

fn kept(course: &Course) -> BTreeSet<usize> {
    course.session.kept().map(|step| step.fix.n as usize - 1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever the fixes do and however the machine wanders: no fix is kept whose interval reaches 1; what is applied at the end is what is
    /// listed as kept; no step begins that the budget has no room for, so that it is exceeded by less than one step.
    #[test]
    fn what_is_not_proven_is_undone_and_the_budget_holds(
        effects in prop::collection::vec(-1.0f64..0.5, 0..8),
        noise in 0.0f64..0.6,
        wander in 0.0f64..0.3,
        budget_s in 0u64..1_200,
        limit_ns in prop::option::of(1_000_000u64..10_000_000),
        slow in 1.0f64..3.0,
        seed in 0u64..1_000_000,
    ) {
        let mut server = Server::new(&effects, (noise, wander), seed);
        let settings = Settings { budget_ns: budget_s * SECOND_NS, ..settings() };
        let course = run(&mut server, Objective { quantile: 0.99, limit_ns }, settings.clone(), slow);
        for step in course.session.steps() {
            let measured = step.measured.expect("every round shows both");
            let upper = measured.interval[1];
            prop_assert!(step.decision != Decision::Kept || upper < 1.0 && measured.p < measured.alpha, "{step:?}");
            prop_assert!(step.decision == Decision::Kept || step.why != Why::Proven, "{step:?}");
        }
        prop_assert_eq!(&server.applied, &kept(&course));
        prop_assert!(course.elapsed_ns < settings.budget_ns + course.longest_ns.max(1), "{} s", course.elapsed_ns / SECOND_NS);
        // Nothing is tried twice.
        let titles: BTreeSet<&str> = course.session.steps().iter().map(|step| step.fix.title.as_str()).collect();
        prop_assert_eq!(titles.len(), course.session.steps().len());
        if course.stopped == Stopped::NothingLeft {
            prop_assert_eq!(titles.len(), effects.len());
        }
    }
}

/// The parts of the error sum to no more than all of it.
#[test]
fn the_error_is_shared_over_the_steps() {
    let sum: f64 = (1..=10_000).map(|k| share_of_error(0.05, k)).sum();
    assert!(sum < 0.05 && sum > 0.0499, "{sum}");
    assert!((share_of_error(0.05, 1) - 0.025).abs() < 1e-12);
}

/// Six fixes that do nothing, on a machine that wanders, a thousand times: the share of sessions that keep any of them is the error of the
/// session. Without sharing, six decisions at 2.5 % each would keep one in 14 % of the sessions.
#[test]
fn fixes_that_do_nothing_are_seldom_kept() {
    let sessions = 1_000;
    let wrong = (0..sessions).filter(|seed| {
        let mut server = Server::new(&[0.0; 6], (0.15, 0.1), *seed);
        let course = run(&mut server, lowest(), settings(), 1.0);
        assert_eq!((course.stopped, course.session.steps().len()), (Stopped::NothingLeft, 6));
        course.session.kept().next().is_some()
    });
    let wrong = wrong.count();
    // 5 % of a thousand, and three standard deviations of that.
    assert!(wrong <= 70, "{wrong} of {sessions} sessions");
}

/// Among fixes that do nothing or hurt, at a noise of 15 % a window, those that lower the percentile by a third and more are found nearly
/// always, one that lowers it by a fifth (a logarithm of -0.25) mostly: for that the rounds are too few.
#[test]
fn fixes_that_help_are_kept_and_those_that_hurt_are_not() {
    let effects = [-0.9, 0.0, -0.4, 0.2, -0.25, 0.0];
    let sessions = 300;
    let mut times_kept = [0_u64; 6];
    for seed in 0..sessions {
        let mut server = Server::new(&effects, (0.15, 0.1), 10_000 + seed);
        let course = run(&mut server, lowest(), settings(), 1.0);
        kept(&course).into_iter().for_each(|fix| times_kept[fix] += 1);
    }
    let [large, idle, third, harmful, fifth, idle_too] = times_kept;
    assert!(large * 100 >= 99 * sessions && third * 100 >= 97 * sessions, "{times_kept:?} of {sessions}");
    assert!(fifth * 100 >= 60 * sessions, "{times_kept:?} of {sessions}");
    assert_eq!(harmful, 0, "a fix that makes it a fifth slower");
    assert!((idle + idle_too) * 100 <= 5 * sessions, "{times_kept:?} of {sessions}");
}

/// A session for a limit ends when it is met, with nothing tried where it was met before.
#[test]
fn an_objective_that_is_met_ends_the_session() {
    let met = Objective { quantile: 0.99, limit_ns: Some(20_000_000) };
    let course = run(&mut Server::new(&[-0.9], (0.1, 0.0), 1), met, settings(), 1.0);
    assert_eq!((course.stopped, course.session.steps().len()), (Stopped::ObjectiveMet, 0));
    let by_a_fix = Objective { quantile: 0.99, limit_ns: Some(4_000_000) };
    let course = run(&mut Server::new(&[-0.9, -0.5, 0.0], (0.1, 0.0), 1), by_a_fix, settings(), 1.0);
    assert_eq!(course.stopped, Stopped::ObjectiveMet);
    assert!(course.session.kept().count() >= 1 && course.session.steps().len() < 3);
    let never = Objective { quantile: 0.99, limit_ns: Some(1_000) };
    let course = run(&mut Server::new(&[0.0], (0.1, 0.0), 1), never, settings(), 1.0);
    assert_eq!(course.stopped, Stopped::NothingLeft);
}

#[test]
fn only_the_families_that_are_asked_for_are_tried() {
    let settings = Settings { families: vec![Family::Irq, Family::Net], ..settings() };
    let course = run(&mut Server::new(&[-0.9], (0.1, 0.0), 1), lowest(), settings, 1.0);
    assert_eq!((course.stopped, course.session.steps().len()), (Stopped::NothingLeft, 0));
}
