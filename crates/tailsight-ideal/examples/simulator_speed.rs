//! How many requests a second the simulator serves on one core, and its latencies beside those of another simulator.
//!
//! In: nothing, or a folder. Out: requests/s for each server, the median of seven runs with its range. With a folder, the first
//! 200,000 requests of the series for 1 and for 8 FIFO workers are written to `1.txt` and `8.txt` there, `ARRIVAL SERVICE` in ns a
//! line, and the mean and p99 of their latencies are printed, for `scripts/queue-peers.py` to run a simulator from PyPI on the same.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::io::Write as _;
use std::time::Instant;

use tailsight_ideal::queue::{Discipline, Model, Request, Server, Sorted, rng, simulate};

const REQUESTS: usize = 5_000_000;
const REPEATS: usize = 7;

fn main() -> std::io::Result<()> {
    println!("{:<28} {:>16}   {:>29}", "server", "requests/s", "range of 7 runs");
    for (model, discipline) in [
        ("M/M/1 80%", Discipline::Fifo),
        ("M/M/8 80%", Discipline::Fifo),
        ("M/M/64 80%", Discipline::Fifo),
        ("M/M/8 80%", Discipline::Lifo),
        ("M/M/8 80%", Discipline::RandomRequest),
        ("M/M/8 80%", Discipline::RandomWorker),
        ("M/M/8 80%", Discipline::Sharing(25_000)),
    ] {
        let model: Model = model.parse().unwrap_or_else(|e| panic!("{e}"));
        let requests: Vec<Request> = drawn(&model, discipline).take(REQUESTS).collect();
        let mut rates: Vec<f64> = (0..REPEATS).map(|_| rate(&requests, model.server(discipline))).collect();
        rates.sort_unstable_by(f64::total_cmp);
        let millions = |rate: f64| format!("{:.1} M", rate / 1e6);
        println!(
            "{:<28} {:>16}   {:>13} to {:>12}",
            format!("{}/c={} {discipline}", "M/M", model.workers),
            millions(rates[REPEATS / 2]),
            millions(rates[0]),
            millions(rates[REPEATS - 1])
        );
    }
    if let Some(folder) = std::env::args_os().nth(1) {
        std::fs::create_dir_all(&folder)?;
        [1, 8].into_iter().try_for_each(|workers| write_series(folder.as_ref(), workers))?;
    }
    Ok(())
}

fn drawn(model: &Model, discipline: Discipline) -> impl Iterator<Item = Request> {
    model.requests(50_000.0, discipline, 1).into_iter().flatten()
}

/// Requests/s of one run. The series is in memory; the latencies are kept.
fn rate(requests: &[Request], server: Server) -> f64 {
    let start = Instant::now();
    let served = simulate(requests.iter().copied(), server, &mut rng(1, 4)).unwrap_or_else(|e| panic!("{e}"));
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(std::hint::black_box(served).ns.len(), requests.len());
    requests.len() as f64 / seconds
}

/// The series of a server with so many workers, into a file of that name.
fn write_series(folder: &std::path::Path, workers: usize) -> std::io::Result<()> {
    let model: Model = format!("M/M/{workers} 80%").parse().unwrap_or_else(|e| panic!("{e}"));
    let requests: Vec<Request> = drawn(&model, Discipline::Fifo).take(200_000).collect();
    let path = folder.join(format!("{workers}.txt"));
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for request in &requests {
        writeln!(file, "{} {}", request.arrival_ns, request.service_ns)?;
    }
    file.flush()?;
    let server = Server { workers, discipline: Discipline::Fifo };
    let start = Instant::now();
    let served = simulate(requests.iter().copied(), server, &mut rng(1, 4)).unwrap_or_else(|e| panic!("{e}"));
    let seconds = start.elapsed().as_secs_f64();
    let sorted = Sorted::new(served.ns);
    println!(
        "series, {workers} workers: mean {:.0} ns, p99 {} ns, {:.0} requests/s",
        sorted.mean(),
        sorted.percentile(0.99).value().unwrap_or_default(),
        requests.len() as f64 / seconds
    );
    Ok(())
}
