//! A session of trials, one after the other. In: offers and measurements. Out: what is next, and what becomes of each fix.
//!
//! A session makes several decisions, and each may keep a fix that does nothing. So the error of the session, `alpha`, is shared: the k-th
//! measurement may make an error of alpha / (k (k + 1)), and these parts sum to alpha, however many there are. The probability that a session
//! keeps any fix without effect is at most alpha. The price is that later fixes have to show more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tailsight_diagnose::model::Change;
use tailsight_stats::rounds;

use crate::{Candidate, Decision, Family, Level, Measured, Objective, Price, Step, Why};

/// Windows of a measured level.
const LEVEL_WINDOWS: usize = 8;

/// What a session may do.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The time that no step begins to exceed, ns.
    pub budget_ns: u64,
    /// The families that may be tried; empty: every one.
    pub families: Vec<Family>,
    /// The probability that the session keeps a fix without effect, inside 0..1.
    pub alpha: f64,
    /// Rounds of a trial at least; later ones need more, by their part of `alpha`.
    pub rounds: usize,
    /// What a window takes, ns: a round has two.
    pub window_ns: u64,
    /// What measuring the price of a kept fix takes, ns; 0 where it is not asked for.
    pub price_ns: u64,
    /// What a diagnosis takes, ns.
    pub diagnosis_ns: u64,
}

/// What a diagnosis offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// The fixes, in the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// Whether the percentile is at what an ideal server would have.
    pub at_ideal: bool,
}

/// A fix to be applied and measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// From 1.
    pub step: usize,
    /// The fix.
    pub candidate: Candidate,
    /// Rounds, each with and without it.
    pub rounds: usize,
    /// The error that its decision may make.
    pub alpha: f64,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Measure the percentile of so many windows as the server is now: [`Session::level`].
    MeasureLevel {
        /// How many.
        windows: usize,
    },
    /// Record and diagnose: [`Session::diagnosed`].
    Diagnose,
    /// Try a fix: [`Session::measured`] or [`Session::skipped`].
    Try(Box<Trial>),
    /// Nothing more.
    Stop(Stopped),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// The objective's limit is met.
    ObjectiveMet,
    /// The percentile is at what an ideal server would have.
    AtIdeal,
    /// No fix is left that was not tried.
    NothingLeft,
    /// The next step would exceed the budget.
    Budget,
    /// The server could not be recorded or diagnosed again; what was kept stays.
    NotDiagnosed,
    /// Nothing may be changed: it was only shown what would be tried.
    PlanOnly,
    /// It was interrupted, and everything was undone.
    Interrupted,
    /// It failed, and everything was undone.
    Failed,
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    objective: Objective,
    settings: Settings,
    offer: Option<Offer>,
    level: Option<Level>,
    trial: Option<Trial>,
    tried: Vec<Vec<Change>>,
    steps: Vec<Step>,
}

/// The part of the session's error that the `k`-th measurement (from 1) may make.
#[must_use]
pub fn share_of_error(alpha: f64, k: usize) -> f64 {
    alpha / (k as f64 * (k as f64 + 1.0))
}

impl Session {
    /// One that has not begun.
    #[must_use]
    pub fn new(objective: Objective, settings: Settings) -> Session {
        Session { objective, settings, offer: None, level: None, trial: None, tried: vec![], steps: vec![] }
    }

    /// What to do after this time, ns. A trial that was given is given again until it is reported.
    pub fn next(&mut self, elapsed_ns: u64) -> Next {
        if let Some(trial) = &self.trial {
            return Next::Try(Box::new(trial.clone()));
        }
        let fits = |ns: u64| elapsed_ns.saturating_add(ns) <= self.settings.budget_ns;
        if self.objective.limit_ns.is_some() {
            match &self.level {
                Some(level) if self.objective.is_met(level) => return Next::Stop(Stopped::ObjectiveMet),
                Some(_) => {}
                None if fits(LEVEL_WINDOWS as u64 * self.settings.window_ns) => {
                    return Next::MeasureLevel { windows: LEVEL_WINDOWS };
                }
                None => return Next::Stop(Stopped::Budget),
            }
        }
        let Some(offer) = &self.offer else {
            return if fits(self.settings.diagnosis_ns) { Next::Diagnose } else { Next::Stop(Stopped::Budget) };
        };
        if offer.at_ideal {
            return Next::Stop(Stopped::AtIdeal);
        }
        let Some(candidate) = offer.candidates.iter().find(|candidate| self.may_try(candidate)) else {
            return Next::Stop(Stopped::NothingLeft);
        };
        let measured = self.steps.iter().filter(|step| step.decision != Decision::Skipped).count();
        let alpha = share_of_error(self.settings.alpha, measured + 1);
        let rounds = self.settings.rounds.max(rounds::needed(alpha));
        if !fits(2 * rounds as u64 * self.settings.window_ns + self.settings.price_ns) {
            return Next::Stop(Stopped::Budget);
        }
        let trial = Trial { step: self.steps.len() + 1, candidate: candidate.clone(), rounds, alpha };
        self.tried.push(candidate.key());
        self.trial = Some(trial.clone());
        Next::Try(Box::new(trial))
    }

    fn may_try(&self, candidate: &Candidate) -> bool {
        let families = &self.settings.families;
        let is_meant = families.is_empty() || candidate.families.iter().all(|family| families.contains(family));
        is_meant && !self.tried.contains(&candidate.key())
    }

    /// What the offer has that may be tried and was not, in order.
    pub fn left(&self) -> impl Iterator<Item = &Candidate> {
        self.offer.iter().flat_map(|offer| &offer.candidates).filter(|candidate| self.may_try(candidate))
    }

    /// The result of a diagnosis.
    pub fn diagnosed(&mut self, offer: Offer) {
        self.offer = Some(offer);
    }

    /// The result of windows as the server is now.
    pub fn level(&mut self, level: Level) {
        self.level = Some(level);
    }

    /// Windows take this long from now on, ns: how long they must be may be known after a recording only.
    pub fn window(&mut self, window_ns: u64) {
        self.settings.window_ns = window_ns;
    }

    /// The trial was not applied.
    pub fn skipped(&mut self, why: Why, reason: Option<String>) {
        self.end((None, &[]), Decision::Skipped, why, reason);
    }

    /// The result of the trial's rounds: (with the fix, without it), ns, of each that shows both. Says whether the fix is to be kept; if not,
    /// the caller undoes it. `reason`: why there are too few.
    pub fn measured(&mut self, rounds_ns: &[(f64, f64)], seed: u64, reason: Option<String>) -> Decision {
        let Some(alpha) = self.trial.as_ref().map(|trial| trial.alpha) else { return Decision::Undone };
        let level = 1.0 - 2.0 * alpha;
        let log = |ns: f64| ns.max(1.0).ln();
        let logs: Vec<f64> = rounds_ns.iter().map(|(with, without)| log(*with) - log(*without)).collect();
        let Some(tested) = rounds::test(&logs, level, seed) else {
            self.end((None, rounds_ns), Decision::Undone, Why::NotMeasured, reason);
            return Decision::Undone;
        };
        let n = logs.len() as f64;
        let measured = Measured {
            rounds: logs.len(),
            ratio: tested.ratio,
            interval: tested.interval,
            level,
            p: tested.p_smaller,
            alpha,
            without_ns: (rounds_ns.iter().map(|(_, without)| log(*without)).sum::<f64>() / n).exp(),
            with_ns: (rounds_ns.iter().map(|(with, _)| log(*with)).sum::<f64>() / n).exp(),
        };
        let (decision, why) = match tested.interval {
            [_, upper] if upper < 1.0 && tested.p_smaller < alpha => (Decision::Kept, Why::Proven),
            [lower, _] if lower > 1.0 && tested.p_larger < alpha => (Decision::Undone, Why::Worse),
            _ => (Decision::Undone, Why::NotProven),
        };
        self.end((Some(measured), rounds_ns), decision, why, None);
        decision
    }

    fn end(
        &mut self,
        (measured, rounds_ns): (Option<Measured>, &[(f64, f64)]),
        decision: Decision,
        why: Why,
        reason: Option<String>,
    ) {
        let Some(Trial { step, candidate, .. }) = self.trial.take() else { return };
        let rounds_ns = rounds_ns.iter().map(|(with, without)| [*with, *without]).collect();
        self.steps.push(Step { step, fix: candidate, measured, rounds_ns, price: None, decision, why, reason });
        if decision == Decision::Kept {
            // The server is another one now: its causes and its level are to be looked at again.
            (self.offer, self.level) = (None, None);
        }
    }

    /// The price of the fix that was kept last.
    pub fn priced(&mut self, price: Price) {
        if let Some(step) = self.steps.last_mut().filter(|step| step.decision == Decision::Kept) {
            step.price = Some(price);
        }
    }

    /// What was tried, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The fixes that are kept, in the order in which they were applied.
    pub fn kept(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.decision == Decision::Kept)
    }
}
