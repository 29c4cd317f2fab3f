//! `lab clock-check`: NSight's benchmark of time reconciliation (NSDI'22 §6.1).
//!
//! One thread reads CLOCK_REALTIME and the time-stamp counter in turn, millions of times, while another collects the kernel's own
//! conversion parameters ([`Poller`]): a look each millisecond, no core burned. Afterwards each counter is converted by the log alone.
//! In the order they were taken, times that were read and times that were converted must never go back. With `--slew` the
//! clock's frequency is changed by up to 100 ppm meanwhile (adjtimex, as root) and put back, also after an error or Ctrl-C; the clock is
//! never set. Out: a table. Exit 0: nothing out of order, and the poller took at most 1 % of
//! a core; 4: something was, or it took more; 1: it could not be done.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use nix::time::{ClockId, clock_gettime};
use tailsight_host::vvar::{Page, Parameters, Poller, tsc};
use tailsight_trace::clock_log::{Clock, ClockChangeRow, ClockLog};

/// `clock-check`.
#[derive(Debug, Args)]
pub struct ClockCheckArgs {
    /// Conversions at least.
    #[arg(long, default_value_t = 10_000_000)]
    conversions: usize,
    /// Changes of the clock at least.
    #[arg(long, default_value_t = 4_000)]
    changes: usize,
    /// No longer than so many seconds.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Change the clock's frequency by so many ppm (at most 100) up and down meanwhile; root.
    #[arg(long, value_name = "PPM", value_parser = clap::value_parser!(u32).range(1..=100))]
    slew: Option<u32>,
}

/// The poller may take so much of a core, %.
const MOST_CPU: f64 = 1.0;
/// How often the frequency is changed.
const EACH_SLEW: Duration = Duration::from_millis(100);

/// Pairs in one batch, and the sleep between batches, so that ten million pairs last as long as some thousand changes.
const PAIRS: usize = 200;
const PAUSE_BETWEEN_BATCHES: Duration = Duration::from_micros(200);

/// A clock read, and a counter read after it.
type Pair = (u64, u64);

/// Checks.
pub fn run(args: &ClockCheckArgs) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    let stops = stop.clone();
    ctrlc::set_handler(move || stops.store(true, Ordering::Relaxed))?;
    let page = Page::open()?;
    let poller = Poller::start()?;
    let mut slew = args.slew.map(Slew::begin).transpose()?;
    let mut pairs: Vec<Pair> = Vec::with_capacity(args.conversions);
    let first = page.read();
    let begin = Instant::now();
    let (mut changes, mut last) = (0, first);
    while !stop.load(Ordering::Relaxed) && begin.elapsed().as_secs() < args.seconds {
        if pairs.len() >= args.conversions && changes >= args.changes {
            break;
        }
        for _ in 0..PAIRS {
            pairs.push((realtime_ns(), tsc()));
        }
        std::thread::sleep(PAUSE_BETWEEN_BATCHES);
        let now = page.read();
        changes += (now.seq.wrapping_sub(last.seq) / 2) as usize;
        last = now;
        if let Some(slew) = &mut slew {
            slew.go_on()?;
        }
    }
    drop(slew);
    // The last pairs are between two changes only when the next change is in the log.
    std::thread::sleep(Duration::from_millis(20));
    let polled = poller.stop();
    if stop.load(Ordering::Relaxed) {
        anyhow::bail!("interrupted");
    }
    let log = ClockLog::new(polled.changes.iter().map(row));
    let verdict = log.judge();
    let mut out_of_order = 0u64;
    let (mut worst, mut before, mut bound) = (0u64, 0u64, 0u64);
    for (read, counter) in &pairs {
        let converted = log.convert(Clock::Realtime, *counter).unwrap_or_else(|| unreachable!("the log has rows"));
        bound = bound.max(converted.error_ns);
        for ns in [*read, converted.ns] {
            if ns < before {
                out_of_order += 1;
                worst = worst.max(before - ns);
            }
            before = ns;
        }
    }
    let enough = pairs.len() >= args.conversions && verdict.changes + verdict.missed >= args.changes as u64;
    let cpu = 100.0 * polled.cpu_ns as f64 / polled.lasted_ns.max(1) as f64;
    println!("conversions                {:>12}", pairs.len());
    println!("clock changes              {:>12}", verdict.changes + verdict.missed);
    println!("  of them not seen         {:>12}", verdict.missed);
    println!(
        "frequency                  {:>12}",
        args.slew.map_or("as it was".to_owned(), |ppm| format!("+-{ppm} ppm"))
    );
    println!("out of order               {out_of_order:>12}");
    println!("  by at most               {worst:>12} ns");
    println!("bound of the error         {bound:>12} ns");
    println!("CPU of the poller          {cpu:>12.2} % of a core (goal: at most {MOST_CPU} %; NSight burns 100 %)");
    println!("time                       {:>12.1} s", begin.elapsed().as_secs_f64());
    if !enough {
        anyhow::bail!("not enough conversions or clock changes in {} s: nothing is said", args.seconds);
    }
    Ok(if out_of_order == 0 && cpu <= MOST_CPU { ExitCode::SUCCESS } else { ExitCode::from(4) })
}

fn realtime_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

fn row(of: &Parameters) -> ClockChangeRow {
    ClockChangeRow::new(of.seq, of.cycle_last, (of.mult, of.shift), [of.monotonic, of.realtime, of.tai])
}

/// A clock whose frequency is changed; put back when this is dropped.
struct Slew {
    /// Its earlier value, in 1/65536 ppm.
    before: i64,
    ppm: i64,
    up: bool,
    last: Instant,
}

impl Slew {
    fn begin(ppm: u32) -> anyhow::Result<Slew> {
        let mut state = zeroed();
        adjust(&mut state)?;
        let mut slew = Slew { before: state.freq, ppm: i64::from(ppm), up: false, last: Instant::now() };
        slew.turn()?;
        Ok(slew)
    }

    fn go_on(&mut self) -> anyhow::Result<()> {
        if self.last.elapsed() >= EACH_SLEW { self.turn() } else { Ok(()) }
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        self.up = !self.up;
        self.last = Instant::now();
        let by = if self.up { self.ppm } else { -self.ppm };
        set_frequency(self.before + (by << 16))
    }
}

impl Drop for Slew {
    fn drop(&mut self) {
        if let Err(e) = set_frequency(self.before) {
            eprintln!("lab: the clock's frequency could not be put back to {} / 65536 ppm: {e}", self.before);
        }
    }
}

fn zeroed() -> libc::timex {
    // SAFETY: all zeroes is a valid value of this structure of numbers: nothing is set.
    unsafe { std::mem::zeroed() }
}

fn set_frequency(freq: i64) -> anyhow::Result<()> {
    adjust(&mut libc::timex { modes: libc::ADJ_FREQUENCY, freq, ..zeroed() })
}

fn adjust(state: &mut libc::timex) -> anyhow::Result<()> {
    // SAFETY: the kernel reads and writes one such structure, which lives over the call.
    match unsafe { libc::adjtimex(state) } {
        -1 => Err(anyhow::anyhow!("adjtimex: {}", std::io::Error::last_os_error())),
        _ => Ok(()),
    }
}
