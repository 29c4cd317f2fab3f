//! Runs one load and prints its result, to measure the client itself.
//!
//! `drive TARGET PROTOCOL RATE SECONDS [NAME=VALUE…]`, names: arrivals, workload (`|` for `;`), connections, outstanding,
//! burst, over (connections), threads, sampling, stamps, wait, receive, pin, seed, cpus, trust (anyone). Times in µs.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::sync::atomic::AtomicBool;

use tailsight_load::{BurstOver, Plan, Receive, Sample, Trust, run};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn plan(args: &[String]) -> Anything<Plan> {
    let [target, protocol, rate, seconds, rest @ ..] = args else {
        return Err("drive TARGET PROTOCOL RATE SECONDS [NAME=VALUE…]".into());
    };
    let mut plan = Plan::new(target.parse()?, protocol.parse()?);
    plan.rate = rate.parse()?;
    plan.duration_ns = Some((seconds.parse::<f64>()? * 1e9) as u64);
    for pair in rest {
        let (name, value) = pair.split_once('=').ok_or("NAME=VALUE expected")?;
        match name {
            "arrivals" => plan.arrivals = value.parse()?,
            "workload" => plan.workload = value.replace('|', ";").parse()?,
            "connections" => plan.connections = value.parse()?,
            "outstanding" => plan.outstanding = value.parse()?,
            "threads" => plan.threads = value.parse()?,
            "burst" => plan.burst = value.parse()?,
            "over" if value == "connections" => plan.burst_over = BurstOver::Connections,
            "sampling" => plan.sampling = value.parse()?,
            "stamps" => plan.stamps = value.parse()?,
            "wait" => plan.wait = value.parse()?,
            "receive" => {
                plan.receive = match value {
                    "eager" => Receive::Eager,
                    "lazy" => Receive::Lazy,
                    _ => Receive::Auto,
                }
            }
            "pin" => plan.pin = value.parse()?,
            "seed" => plan.seed = value.parse()?,
            "cpus" => plan.cpus = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "trust" if value == "anyone" => plan.trust = Trust::Anyone,
            _ => return Err(format!("unknown {pair}").into()),
        }
    }
    Ok(plan)
}

fn percentiles(name: &str, mut values: Vec<u64>) {
    values.sort_unstable();
    if values.is_empty() {
        return println!("{name:10} none");
    }
    let at = |q: f64| values[((values.len() as f64 * q) as usize).min(values.len() - 1)] as f64 / 1e3;
    let (p50, p90, p99, p999, max) = (at(0.5), at(0.9), at(0.99), at(0.999), at(1.0));
    println!(
        "{name:10} n {:8}  p50 {p50:8.1}  p90 {p90:8.1}  p99 {p99:8.1}  p99.9 {p999:8.1}  max {max:9.1}",
        values.len()
    );
}

fn main() -> Anything<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = run(plan(&args)?, &AtomicBool::new(false), |_| {})?;
    let late = |q| outcome.lateness.quantile(q).unwrap_or(0) as f64 / 1e3;
    println!("{:?}", outcome.counts);
    println!(
        "sent {:.0}/s  cpu {:.2} us/request  late p50 {:.1} p99 {:.1} p99.9 {:.1} max {:.1}",
        outcome.sent_per_s(),
        outcome.cpu_per_request_ns().unwrap_or(0.0) / 1e3,
        late(0.5),
        late(0.99),
        late(0.999),
        outcome.lateness.max() as f64 / 1e3,
    );
    let samples = &outcome.samples;
    percentiles("response", samples.iter().filter_map(Sample::response_ns).collect());
    percentiles("service", samples.iter().filter_map(Sample::service_ns).collect());
    let share = |flag: u32| samples.iter().filter(|s| s.flags & flag != 0).count() as f64 / samples.len().max(1) as f64;
    println!(
        "stamped sent {:.4} received {:.4}  shared {:.4}  refused {:.4}  together {:.4}",
        share(Sample::SENT_STAMPED),
        share(Sample::RECEIVED_STAMPED),
        share(Sample::SHARED_STAMP),
        share(Sample::STAMP_REFUSED),
        share(Sample::SENT_TOGETHER)
    );
    for thread in &outcome.threads {
        println!(
            "thread {} cpu {:?} lazy {} margin {} ns {:?}",
            thread.thread, thread.cpu, thread.lazy, thread.margin_ns, thread.treatment
        );
    }
    outcome.complaints.iter().for_each(|complaint| println!("! {complaint}"));
    Ok(())
}
