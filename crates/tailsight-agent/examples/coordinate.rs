//! Runs one load over agents and prints its result, to measure agents themselves. Times in us.
//!
//! `coordinate TOKEN_FILE TARGET PROTOCOL RATE SECONDS SAMPLING AGENT…`, each agent as it printed itself.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::time::Duration;

use tailsight_agent::coordinator::{self, Credentials, Options};
use tailsight_agent::{AgentAddress, Token};
use tailsight_load::{Plan, Sample};
use tailsight_measure::Load;

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [token, target, protocol, rate, seconds, sampling, agents @ ..] = &args[..] else {
        return Err("coordinate TOKEN_FILE TARGET PROTOCOL RATE SECONDS SAMPLING AGENT…".into());
    };
    let agents: Vec<AgentAddress> = agents.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
    let mut plan = Plan::new(target.parse()?, protocol.parse()?);
    (plan.rate, plan.duration_ns) = (rate.parse()?, None);
    let credentials = Credentials { token: Token::from_file(token.as_ref())?, ca: None, identity: None };
    let mut load = coordinator::connect(&agents, &credentials, plan, Options::default())?;
    load.start()?;
    load.record(sampling.parse()?, usize::MAX)?;
    std::thread::sleep(Duration::from_secs_f64(seconds.parse()?));
    let mut pooled: Vec<Sample> = load.take()?.into_iter().flat_map(|r| r.samples).collect();
    let (endings, one_clock) = (load.stop()?, load.one_clock());
    pooled.extend(load.take()?.into_iter().flat_map(|r| r.samples));
    for (report, ending) in load.reports().iter().zip(&endings) {
        println!(
            "{} {:?} host {} clock offset {} ns ± {} ns, start skew {:.1} us, rate {}, seed {}, stamps {}, busy poll {}",
            report.agent,
            report.role,
            report.host,
            report.clock.offset_ns,
            report.clock.bound_ns,
            report.start_skew_ns as f64 / 1e3,
            report.rate,
            report.seed,
            report.kernel_stamps,
            report.busy_poll
        );
        let late = |q| ending.lateness.quantile(q).unwrap_or(0) as f64 / 1e3;
        println!("  {:?}", ending.counts);
        println!(
            "  cpu {:.2} us/request, late p50 {:.1} p99 {:.1}",
            ending.cpu_ns as f64 / 1e3 / ending.counts.sent.max(1) as f64,
            late(0.5),
            late(0.99)
        );
        ending.complaints.iter().for_each(|complaint| println!("  ! {complaint}"));
    }
    let mut ns: Vec<u64> = pooled.iter().filter_map(Sample::service_ns).collect();
    ns.sort_unstable();
    let at = |q: f64| ns.get((ns.len() as f64 * q) as usize).map_or(f64::NAN, |ns| *ns as f64 / 1e3);
    println!(
        "pooled service n {} one clock {one_clock}: p50 {:.1} p90 {:.1} p99 {:.1}",
        ns.len(),
        at(0.5),
        at(0.9),
        at(0.99)
    );
    Ok(())
}
