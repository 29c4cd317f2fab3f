//! `tailsight tune`: diagnoses, tries the fixes one after the other, keeps those that are measured to help, and undoes the others.
//!
//! In: a server, its load or its own traffic, an objective. Out: a row each fix, what stays changed, and the command that undoes it; exit 0
//! done, 1 failed and undone, 2 wrong usage, 3 interrupted and undone, or no causes can be said.
//!
//! [`tailsight_tune`] decides; recording, diagnosis, fixes and measurements are those of the other commands.

mod recorder;
mod switch;
mod table;
mod windows;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tailsight_diagnose::{Diagnosis, Options, Titled};
use tailsight_fix::{About, Origin};
use tailsight_measure::{Error, Question, in_turn};
use tailsight_stats::quantile::name;
use tailsight_tune::{
    Decision, Level, Next, Offer, Prediction, Price, Session, Settings, Stopped, Trial, Why, candidates, in_order,
};

use self::switch::Switch;
use self::windows::{Windows, window_for};
use crate::cli_tune::{self, Tune};
use crate::commands::diagnose::not_available_or;
use crate::commands::live::Live;
use crate::commands::tune_json::{ByHand, Recording, Tuning};
use crate::commands::usage::or_usage;
use crate::commands::{fix, load};
use crate::stop::on_interrupt;
use crate::{Exit, pipeline, terminal};

/// The probability that a session keeps a fix without effect.
const ALPHA: f64 = 0.05;
/// What a recording until there is enough and its diagnosis take.
const DIAGNOSIS: Duration = Duration::from_secs(40);
/// While an answer is waited for, a signal is looked for so often, ms.
const LOOK_MS: u16 = 100;
/// Below this many times its ideal a percentile is at its ideal.
const AT_IDEAL: f64 = tailsight_ideal::AT_IDEAL;

/// Tunes, and says what was done.
pub fn run(args: &Tune) -> anyhow::Result<Exit> {
    if !args.target.command.is_empty() {
        let why = "tune needs a server that runs: each recording would start and end it; give -p, --comm, --port, --cgroup or --container";
        return or_usage(Err(Error::Contradiction(why.into())));
    }
    let question = or_usage(question(args))?;
    let plan_only = !args.yes && (args.json || !std::io::stdin().is_terminal());
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make the folder {}", args.out.display()))?;
    let stop = on_interrupt();
    let mut tuner = Tuner::new(args, question, Arc::clone(&stop));
    // Before anything is recorded: a second tune would undo this one's fixes.
    let switch = if plan_only { None } else { Some(Switch::open()?) };
    let earlier_fixes = switch.as_ref().map_or(0, Switch::earlier);
    let (stopped, failure) = tuner.drive(switch);
    let reason = failure.as_ref().map(|error| format!("{error:#}")).or_else(|| tuner.reason.clone());
    match failure {
        // Nothing was found out, and nothing applied.
        Some(error) if tuner.recordings.is_empty() => return not_available_or(error),
        Some(error) => say!("tailsight: {error:#}"),
        None => {}
    }
    let tuning = tuner.result(stopped, reason, earlier_fixes);
    if args.json {
        terminal::print_json(&tuning)?;
    } else {
        terminal::print(&table::text(&tuning))?;
    }
    Ok(match stopped {
        Stopped::Failed => Exit::Failed,
        Stopped::Interrupted => Exit::NotAvailable,
        _ if tuning.recordings.last().is_some_and(|recording| recording.not_available.is_some()) => Exit::NotAvailable,
        _ => Exit::Done,
    })
}

/// The question of a window, where there is a load.
fn question(args: &Tune) -> Result<Option<Question>, Error> {
    let Some((text, rate)) = args.load.as_deref().zip(args.rate) else { return Ok(None) };
    let words = cli_tune::load(text, rate).map_err(Error::Contradiction)?;
    load::question(&words, None).map(Some)
}

/// A session at work.
struct Tuner<'a> {
    args: &'a Tune,
    question: Option<Question>,
    server: Vec<OsString>,
    windows: Windows,
    session: Session,
    stop: Arc<AtomicBool>,
    begun: Instant,
    /// The recording that was diagnosed last: its diagnosis, and what it knows of its host.
    last: Option<(Diagnosis, Origin)>,
    recordings: Vec<Recording>,
    levels: Vec<Level>,
    /// Why it ended, where there is more to say.
    reason: Option<String>,
}

impl<'a> Tuner<'a> {
    fn new(args: &'a Tune, question: Option<Question>, stop: Arc<AtomicBool>) -> Tuner<'a> {
        let (server, quantile) = (recorder::words(&args.target), args.objective.quantile);
        let windows = match &question {
            Some(question) => {
                let window = args.window.unwrap_or_else(|| window_for(quantile, question.plan.rate.peak()));
                Windows::of_load(question, quantile, window)
            }
            None => Windows::of_traffic(server.clone(), args.out.join("window"), quantile, args.window),
        };
        let ns = |time: Duration| time.as_nanos() as u64;
        let settings = Settings {
            budget_ns: ns(args.budget),
            families: args.only.clone(),
            alpha: ALPHA,
            rounds: args.rounds,
            window_ns: ns(windows.window()),
            price_ns: if args.peak { 2 * Price::ROUNDS as u64 * (windows::PEAK_WINDOW_NS + 100_000_000) } else { 0 },
            diagnosis_ns: ns(DIAGNOSIS),
        };
        let session = Session::new(args.objective, settings);
        let begun = Instant::now();
        Tuner {
            args,
            question,
            server,
            windows,
            session,
            stop,
            begun,
            last: None,
            recordings: vec![],
            levels: vec![],
            reason: None,
        }
    }

    /// Does what the session says, to its end. Whatever happens, what is not kept is undone; of a session that was interrupted or failed,
    /// everything. Without a switch nothing is changed.
    fn drive(&mut self, switch: Option<Switch>) -> (Stopped, Option<anyhow::Error>) {
        let Some(mut switch) = switch else {
            return match self.only_look() {
                Ok(()) => (Stopped::PlanOnly, None),
                Err(_) if self.is_interrupted() => (Stopped::Interrupted, None),
                Err(error) => (Stopped::Failed, Some(error)),
            };
        };
        let ended = self.steps(&mut switch);
        if let Ok(stopped) = ended
            && !self.is_interrupted()
        {
            switch.release();
            return (stopped, None);
        }
        let undone = switch.undo_all();
        switch.release();
        match (ended, undone) {
            (_, Err(error)) => (Stopped::Failed, Some(error)),
            (Err(error), Ok(())) if !self.is_interrupted() => (Stopped::Failed, Some(error)),
            _ => (Stopped::Interrupted, None),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn elapsed_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// One diagnosis, and what would be tried.
    fn only_look(&mut self) -> anyhow::Result<()> {
        let offer = self.diagnose()?;
        self.session.diagnosed(offer);
        Ok(())
    }

    fn steps(&mut self, switch: &mut Switch) -> anyhow::Result<Stopped> {
        loop {
            if self.is_interrupted() {
                return Ok(Stopped::Interrupted);
            }
            match self.session.next(self.elapsed_ns()) {
                Next::Stop(stopped) => return Ok(stopped),
                Next::Diagnose => {
                    let offer = match self.diagnose() {
                        // What was proven does not depend on what comes after it.
                        Err(error) if !self.recordings.is_empty() && !self.is_interrupted() => {
                            self.reason = Some(format!("{error:#}"));
                            return Ok(Stopped::NotDiagnosed);
                        }
                        diagnosed => diagnosed?,
                    };
                    self.session.diagnosed(offer);
                    self.session.window(self.windows.window().as_nanos() as u64);
                }
                Next::MeasureLevel { windows } => {
                    let level = self.level(windows)?;
                    self.levels.push(level);
                    self.session.level(level);
                }
                Next::Try(trial) => self.attempt(&trial, switch)?,
            }
        }
    }

    fn diagnose(&mut self) -> anyhow::Result<Offer> {
        let run = self.args.out.join(format!("diagnosis-{}", self.recordings.len() + 1));
        say!("recording and diagnosing: {}", run.display());
        self.windows.record(&self.server, &run, &self.stop)?;
        let opened = pipeline::open(&run)?;
        let quantile = self.args.objective.quantile;
        let usual = Options::default();
        let focus = if quantile < usual.focus.0 { (quantile, 1.0) } else { usual.focus };
        let latencies = opened.latencies();
        let options = pipeline::chosen(Options { more: true, focus, ..usual }, None, &latencies, None);
        let (diagnosis, causes) = pipeline::diagnose(&opened, &options)?;
        let lower = [0.999, 0.99, 0.9, 0.5].into_iter().filter(|q| *q < quantile);
        let percentile =
            std::iter::once(quantile).chain(lower).map(name).find(|name| diagnosis.latency_ns.contains_key(name));
        let of = |table: &std::collections::BTreeMap<String, u64>| table.get(percentile.as_ref()?).copied();
        let recording = Recording {
            run: run.display().to_string(),
            messages: diagnosis.messages.complete,
            recorded_ns: of(&diagnosis.latency_ns),
            ideal_ns: diagnosis.ideal_ns.as_ref().and_then(of),
            percentile: percentile.clone(),
            not_available: diagnosis.not_available.clone(),
        };
        let seconds = opened.run.meta.end_ns.saturating_sub(opened.run.meta.start_ns) as f64 / 1e9;
        self.windows.fit(recording.messages as f64 / seconds.max(0.1));
        let is_busy = diagnosis.ideal.as_ref().is_some_and(|ideal| ideal.model.tells_service_time());
        let ratio = recording.recorded_ns.zip(recording.ideal_ns).map(|(ns, ideal)| ns as f64 / ideal.max(1) as f64);
        let at_ideal = is_busy && ratio.is_some_and(|ratio| ratio < AT_IDEAL);
        let mut candidates = candidates(&diagnosis, quantile);
        if diagnosis.ideal.is_some() {
            let sets: Vec<Vec<u32>> = candidates.iter().map(|candidate| candidate.ranks.clone()).collect();
            let without = tailsight_ideal::without_sets(&diagnosis, &opened.analysis, &causes, &sets)?;
            for (candidate, without_ns) in candidates.iter_mut().zip(without) {
                let together = without_ns.and_then(|without_ns| Prediction::of(&diagnosis, quantile, &without_ns));
                candidate.predicted = together.or(candidate.predicted.take());
            }
            in_order(&mut candidates);
        }
        let offer = Offer { candidates, at_ideal };
        self.recordings.push(recording);
        self.last = Some((diagnosis, fix::origin(&opened.run.meta)));
        Ok(offer)
    }

    fn level(&mut self, count: usize) -> anyhow::Result<Level> {
        let percentile = self.args.objective.percentile();
        say!(
            "measuring the {percentile} as the server is: {count} windows of {:.1} s",
            self.windows.window().as_secs_f64()
        );
        let mut live = Live::new(self.windows.window());
        let (mut shown, mut why) = (vec![], None);
        // A window that shows nothing is measured again.
        for _ in 0..2 * count {
            match self.windows.measure(&mut live, &self.stop)? {
                Ok(ns) => shown.push(ns),
                Err(reason) => why = Some(reason),
            }
            if shown.len() == count || self.is_interrupted() {
                break;
            }
        }
        live.end();
        Level::of(&shown).ok_or_else(|| {
            anyhow::anyhow!("too few windows show the {percentile}: {}", why.unwrap_or_else(|| "it was ended".into()))
        })
    }

    /// Applies a fix after a question, measures with and without it in turn, and keeps or undoes it.
    fn attempt(&mut self, trial: &Trial, switch: &mut Switch) -> anyhow::Result<()> {
        let candidate = &trial.candidate;
        let Some((diagnosis, origin)) = &self.last else { return Ok(()) };
        let begun = switch.begin(switch::Trial {
            changes: candidate.changes.clone(),
            origin: origin.clone(),
            about: About { title: candidate.title.clone(), run: diagnosis.run.clone(), when: fix::now() },
        });
        let plan = match begun {
            Ok(plan) => plan,
            Err(error) => {
                self.session.skipped(Why::NotApplicable, Some(format!("{error:#}")));
                return Ok(());
            }
        };
        let percentile = self.args.objective.percentile();
        let length = 2 * self.windows.window() * trial.rounds as u32;
        let said = table::plan_line(trial.step, candidate, &percentile) + &fix::table(&plan);
        say!("\n{}", said.trim_end());
        say!("   applied and undone in {} rounds, {} s", trial.rounds, length.as_secs());
        if !self.args.yes && !confirmed(&self.stop)? {
            self.session.skipped(Why::Declined, None);
            return Ok(());
        }
        let live = RefCell::new(Live::new(self.windows.window()));
        let names = ["with the fix", "without it"];
        let failure = RefCell::new(None);
        let (windows, stop) = (&mut self.windows, &self.stop);
        let rounds = in_turn::alternate(
            trial.rounds,
            trial.step as u64,
            names,
            stop,
            &mut |side| {
                let window = switch.set(side == 0).and_then(|()| windows.measure(&mut live.borrow_mut(), stop));
                window.map_err(|error| {
                    let text = format!("{error:#}");
                    failure.borrow_mut().get_or_insert(error);
                    Error::Interrupted(text)
                })
            },
            &mut |round, of, _| live.borrow_mut().prefix(format!("step {}, after round {round} of {of}: ", trial.step)),
        );
        live.borrow().end();
        if self.is_interrupted() {
            return Ok(());
        }
        if let Some(error) = failure.into_inner() {
            return Err(error.context(format!("step {}: {}", trial.step, table::clean(&candidate.title))));
        }
        let both: Vec<(f64, f64)> = rounds.iter().filter_map(|round| round.target_ns.zip(round.other_ns)).collect();
        let reason = rounds.iter().rev().find_map(|round| round.reason.clone());
        let decision = self.session.measured(&both, trial.step as u64, reason);
        if decision == Decision::Kept && self.args.peak {
            let price = self.price(trial, switch)?;
            self.session.priced(price);
            if self.is_interrupted() {
                return Ok(());
            }
        }
        switch.end(decision == Decision::Kept)?;
        if let Some(step) = self.session.steps().last() {
            say!("{}", table::step_line(step));
        }
        Ok(())
    }

    /// The peak rate with and without the fix, in turn.
    fn price(&mut self, trial: &Trial, switch: &mut Switch) -> anyhow::Result<Price> {
        say!("step {}: measuring its price in peak rate", trial.step);
        let (mut rounds_per_s, mut why) = (vec![], None);
        for round in 0..Price::ROUNDS {
            // With and without first in turn: what changes slowly meets both.
            let mut per_s = [None, None];
            for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                switch.set(side == 0)?;
                match self.windows.peak(&self.stop)? {
                    Ok(rate) => per_s[side] = Some(rate),
                    Err(reason) => why = Some(reason),
                }
                if self.is_interrupted() {
                    return Ok(Price::of(&[], 0, Some("interrupted".into())));
                }
            }
            rounds_per_s.extend(per_s[0].zip(per_s[1]));
        }
        Ok(Price::of(&rounds_per_s, trial.step as u64, why))
    }

    fn result(&self, stopped: Stopped, reason: Option<String>, earlier_fixes: usize) -> Tuning {
        let is_undone = matches!(stopped, Stopped::Interrupted | Stopped::Failed);
        let changed: Vec<String> = match is_undone {
            true => vec![],
            false => self.session.kept().map(|step| step.fix.title.clone()).collect(),
        };
        let by_hand = |(diagnosis, _): &(Diagnosis, Origin)| -> Vec<ByHand> {
            let lines = fix::by_hand(diagnosis).into_iter().filter(|(cause, _)| cause.share >= fix::FLOOR);
            lines
                .map(|(cause, fix)| ByHand {
                    against: cause.with_category(),
                    share: cause.share,
                    step: fix.to_string(),
                    fix: fix.clone(),
                })
                .collect()
        };
        Tuning {
            schema: 1,
            app: self.last.as_ref().map_or_else(|| "the server".into(), |(diagnosis, _)| diagnosis.app.clone()),
            objective: self.args.objective,
            plan: self.question.as_ref().map(|question| question.plan.clone().without_secrets()),
            window_ns: self.windows.window().as_nanos() as u64,
            alpha: ALPHA,
            recordings: self.recordings.clone(),
            levels: self.levels.clone(),
            steps: self.session.steps().to_vec(),
            left: self.session.left().cloned().collect(),
            by_hand: self.last.as_ref().map_or_else(Vec::new, by_hand),
            stopped,
            reason,
            undo: (!changed.is_empty()).then(|| "tailsight fix --undo".to_owned()),
            changed,
            earlier_fixes,
            elapsed_ns: self.elapsed_ns(),
        }
    }
}

/// Asks. A signal meanwhile is a no: it must not wait for a line.
fn confirmed(stop: &AtomicBool) -> anyhow::Result<bool> {
    terminal::say("Try it? [y/N] ");
    let stdin = std::io::stdin();
    let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    while poll(&mut ready, PollTimeout::from(LOOK_MS)).is_ok_and(|n| n == 0) {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(false);
    }
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fix against several causes is predicted without all of them: at least what the absence of each brings.
    #[test]
    fn the_absence_of_several_causes_brings_at_least_what_each_brings() {
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../tailsight-lifetime/tests/golden/memcached-requests");
        let opened = pipeline::open(run.as_ref()).unwrap();
        let options = pipeline::chosen(Options { more: true, ..Options::default() }, None, &opened.latencies(), None);
        let (diagnosis, causes) = pipeline::diagnose(&opened, &options).unwrap();
        let alone = &diagnosis.ideal.as_ref().expect("an ideal fits").what_if;
        assert!(!alone.is_empty() && diagnosis.causes.len() > alone.len(), "{alone:?}");
        let mut sets: Vec<Vec<u32>> = alone.iter().map(|what_if| vec![what_if.rank]).collect();
        sets.push(diagnosis.causes.iter().map(|cause| cause.rank).collect());
        sets.push(vec![u32::MAX]);
        let mut without = tailsight_ideal::without_sets(&diagnosis, &opened.analysis, &causes, &sets).unwrap();
        assert_eq!(without.pop(), Some(None), "no such cause");
        let together = without.pop().flatten().unwrap();
        for (what_if, latency_ns) in alone.iter().zip(without) {
            assert_eq!(Some(&what_if.latency_ns), latency_ns.as_ref());
            assert!(together["p90"] <= what_if.latency_ns["p90"], "{together:?} and {what_if:?}");
        }
    }
}
