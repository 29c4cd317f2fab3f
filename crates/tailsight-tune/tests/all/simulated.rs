//! A simulated server with fixes whose true effects are known: some help, some hurt, some do nothing. In: effects, noise, a seed. Out: how a
//! session on it went, and what is applied at its end.

use std::collections::BTreeSet;

use tailsight_diagnose::Category;
use tailsight_diagnose::model::Change;
use tailsight_stats::random::Random;
use tailsight_tune::{
    Candidate, Decision, Family, Level, Next, Objective, Offer, Prediction, Session, Settings, Stopped,
};

/// The simulated server.
pub struct Server {
    /// The logarithm of what each fix multiplies the percentile with.
    pub effects: Vec<f64>,
    /// The standard deviation of a window's logarithm.
    pub noise: f64,
    /// That of the steps of the level between windows, which both sides meet.
    pub wander: f64,
    /// The percentile without any fix, ns.
    pub base_ns: f64,
    /// Fixes that are applied.
    pub applied: BTreeSet<usize>,
    /// How far the level has wandered.
    level: f64,
    random: Random,
}

impl Server {
    /// One with these effects.
    pub fn new(effects: &[f64], (noise, wander): (f64, f64), seed: u64) -> Server {
        let effects = effects.to_vec();
        let (applied, random) = (BTreeSet::new(), Random::new(seed));
        Server { effects, noise, wander, base_ns: 5e6, applied, level: 0.0, random }
    }

    /// The percentile of a window, ns.
    fn window(&mut self) -> f64 {
        self.level += self.wander * self.random.normal();
        let effect: f64 = self.applied.iter().map(|fix| self.effects[*fix]).sum();
        self.base_ns * (effect + self.level + self.noise * self.random.normal()).exp()
    }

    /// The fixes, each with a prediction that is off by as much as it likes.
    fn offer(&mut self) -> Offer {
        let mut candidates: Vec<Candidate> = (0..self.effects.len())
            .filter(|fix| !self.applied.contains(fix))
            .map(|fix| {
                let ratio = (self.effects[fix] + 0.3 * self.random.normal()).exp().min(1.0);
                Candidate {
                    title: format!("fix {fix}"),
                    n: fix as u32 + 1,
                    category: Category::Interference,
                    against: "another program".into(),
                    ranks: vec![fix as u32 + 1],
                    share: 0.1,
                    families: vec![Family::Cpu],
                    changes: vec![Change::Pin { pids: vec![fix as u32], cpus: "0".into() }],
                    predicted: Some(Prediction {
                        percentile: "p99".into(),
                        recorded_ns: 5_000_000,
                        without_ns: (5e6 * ratio) as u64,
                        ratio,
                    }),
                }
            })
            .collect();
        candidates.sort_by(|a, b| {
            let ratio = |c: &Candidate| c.predicted.as_ref().map_or(1.0, |p| p.ratio);
            ratio(a).total_cmp(&ratio(b))
        });
        Offer { candidates, at_ideal: false }
    }
}

/// How a session went.
pub struct Course {
    /// The session at its end.
    pub session: Session,
    /// Why it ended.
    pub stopped: Stopped,
    /// What it took, ns.
    pub elapsed_ns: u64,
    /// The longest step, ns.
    pub longest_ns: u64,
}

/// Runs a session to its end. Each thing takes what the settings say, times up to `slow`.
pub fn run(server: &mut Server, objective: Objective, settings: Settings, slow: f64) -> Course {
    let mut session = Session::new(objective, settings.clone());
    let (mut elapsed_ns, mut longest_ns) = (0, 0);
    loop {
        let before = elapsed_ns;
        let mut spend = |server: &mut Server, ns: u64| {
            elapsed_ns += (ns as f64 * (1.0 + (slow - 1.0) * server.random.uniform())) as u64;
        };
        match session.next(before) {
            Next::Stop(stopped) => return Course { session, stopped, elapsed_ns, longest_ns },
            Next::Diagnose => {
                spend(server, settings.diagnosis_ns);
                session.diagnosed(server.offer());
            }
            Next::MeasureLevel { windows } => {
                let shown: Vec<f64> = (0..windows)
                    .map(|_| {
                        spend(server, settings.window_ns);
                        server.window()
                    })
                    .collect();
                session.level(Level::of(&shown).expect("windows"));
            }
            Next::Try(trial) => {
                let fix = trial.candidate.n as usize - 1;
                let mut rounds = vec![];
                for _ in 0..trial.rounds {
                    let mut side = |server: &mut Server, on: bool| {
                        if on {
                            server.applied.insert(fix)
                        } else {
                            server.applied.remove(&fix)
                        };
                        spend(server, settings.window_ns);
                        server.window()
                    };
                    let first = server.random.uniform() < 0.5;
                    let one = side(server, first);
                    let other = side(server, !first);
                    rounds.push(if first { (one, other) } else { (other, one) });
                }
                server.applied.remove(&fix);
                if session.measured(&rounds, trial.step as u64, None) == Decision::Kept {
                    server.applied.insert(fix);
                }
            }
        }
        longest_ns = longest_ns.max(elapsed_ns - before);
    }
}
