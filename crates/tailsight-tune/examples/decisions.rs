//! How often a session decides rightly on a simulated server, as a table: `cargo run -p tailsight-tune --example decisions`, five minutes. The figures of
//! docs/journal/0064.

#![allow(clippy::print_stdout, reason = "an example prints")]
#![allow(dead_code, reason = "the tests use more of the simulated server")]

#[path = "../tests/all/simulated.rs"]
mod simulated;

use simulated::{Server, run};
use tailsight_tune::{Objective, Settings};

const SECOND_NS: u64 = 1_000_000_000;
const SESSIONS: u64 = 1_000;

fn main() {
    println!("{SESSIONS} sessions each; a level that wanders by 10 % from window to window\n");
    println!("rounds  noise  effects of the fixes, %           kept of {SESSIONS}                 with a wrong fix");
    for rounds in [8, 16, 32] {
        for noise in [0.05, 0.15, 0.4] {
            for effects in [&[0.0; 6][..], &[-0.9, 0.0, -0.4, 0.2, -0.25, 0.0]] {
                let mut kept = vec![0; effects.len()];
                let mut wrong = 0;
                for seed in 0..SESSIONS {
                    let settings = Settings {
                        budget_ns: 24 * 3_600 * SECOND_NS,
                        families: vec![],
                        alpha: 0.05,
                        rounds,
                        window_ns: 3 * SECOND_NS,
                        price_ns: 0,
                        diagnosis_ns: 20 * SECOND_NS,
                    };
                    let objective = Objective { quantile: 0.99, limit_ns: None };
                    let course = run(&mut Server::new(effects, (noise, 0.1), 50_000 + seed), objective, settings, 1.0);
                    let fixes: Vec<usize> = course.session.kept().map(|step| step.fix.n as usize - 1).collect();
                    fixes.iter().for_each(|fix| kept[*fix] += 1);
                    wrong += usize::from(fixes.iter().any(|fix| effects[*fix] >= 0.0));
                }
                let percent = |effect: &f64| format!("{:+.0}", 100.0 * (effect.exp() - 1.0));
                let effects: Vec<String> = effects.iter().map(percent).collect();
                let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
                println!(
                    "{rounds:>6}  {:>4.0} %  {:<32}  {:<28}  {wrong}",
                    100.0 * noise,
                    effects.join(" "),
                    kept.join(" ")
                );
            }
        }
    }
}
