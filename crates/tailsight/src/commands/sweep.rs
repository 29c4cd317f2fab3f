//! `sweep`: latency against load until saturation, or the highest rate that meets an objective.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use tailsight_load::Rate;
use tailsight_measure::slo::{self, Highest, Search};
use tailsight_measure::sweep::{self, Rates};
use tailsight_measure::{Error, Measurement, samples};
use tailsight_report::load::{self as shown, Drawn};

use crate::cli_load::Sweep as Args;
use crate::commands::live::Live;
use crate::commands::load::{asked, plan};
use crate::commands::source::Source;
use crate::commands::usage::or_usage;
use crate::stop::on_interrupt;
use crate::{Exit, pipeline, terminal};

/// Sweeps and prints.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let first = args.rates.first().copied().unwrap_or(args.from);
    let question = or_usage(plan(&args.traffic).and_then(|mut plan| {
        plan.rate = Rate::Constant(first);
        let question = asked(&args.traffic, plan, args.max_time);
        if let Some(to) = args.to.filter(|to| *to < args.from) {
            return Err(Error::Contradiction(format!("--to {to} is below --from {}", args.from)));
        }
        question.plan.validate()?;
        question.config()?;
        Ok(question)
    }))?;
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir).map_err(|e| anyhow::anyhow!("cannot make the folder {}: {e}", dir.display()))?;
    }
    if let Some(path) = &args.html {
        pipeline::writable(path)?;
    }
    let stop = on_interrupt();
    let live = RefCell::new(Live::new(args.max_time));
    let mut source = Source::open(&args.traffic.agents, question.prepared_plan(), &stop)?;
    let mut files = Files { dir: args.out.clone(), n: 0, failed: None, drawn: args.html.as_ref().map(|_| Vec::new()) };
    let mut show = |event: &_| live.borrow_mut().show(event);
    let mut result = if let Some(objective) = args.slo {
        let (tolerance, tries) = (args.tolerance, usize::from(args.tries));
        let search = Search { objective, from: args.from, to: args.to, tolerance, tries };
        let searched = slo::highest(source.load(), &question, &search, &stop, &mut show, &mut |attempt, m| {
            files.write(attempt.rate, m);
            live.borrow_mut().prefix(format!("after {:.0}/s: ", attempt.rate));
        });
        searched.map(|highest| sweep::Sweep::of(Vec::new(), Some(highest)))
    } else {
        let rates = match args.rates.is_empty() {
            true => Rates::Rising { from: args.from, factor: args.factor, to: args.to },
            false => Rates::List(args.rates.clone()),
        };
        sweep::sweep(source.load(), &question, &rates, &stop, &mut show, &mut |rate, m| {
            files.write(rate, m);
            live.borrow_mut().prefix(format!("after {rate:.0}/s: "));
        })
    };
    live.borrow().end();
    if let Ok(sweep) = &mut result {
        sweep.target = question.plan.target.to_string();
        sweep.protocol = question.plan.protocol.to_string();
    }
    let sweep = or_usage(result)?;
    if let Some(error) = files.failed {
        return Err(error.into());
    }
    if let Some(path) = &args.html {
        pipeline::write_whole(path, shown::sweep_page(&sweep, files.drawn.as_deref().unwrap_or_default()))?;
        say!("page: {}", path.display());
    }
    if args.traffic.json {
        terminal::print_json(&sweep)?;
    } else {
        terminal::print(&shown::terminal::sweep(&sweep, &terminal::style()))?;
    }
    Ok(match &sweep.objective {
        Some(highest) => of_objective(highest),
        None if sweep.highest_kept.is_none() => Exit::NotAvailable,
        None => Exit::Done,
    })
}

fn of_objective(highest: &Highest) -> Exit {
    match highest.verdict.as_str() {
        "met" => Exit::Done,
        "not-met" => Exit::GateNotMet,
        _ => Exit::NotAvailable,
    }
}

/// A file a measurement, by number and rate, and its curves for the page.
struct Files {
    dir: Option<PathBuf>,
    n: usize,
    failed: Option<Error>,
    drawn: Option<Vec<Drawn>>,
}

impl Files {
    fn write(&mut self, rate: f64, measurement: &Measurement) {
        self.n += 1;
        if let Some(drawn) = &mut self.drawn {
            drawn.push(Drawn::of(&format!("{rate:.0}/s"), measurement));
        }
        let Some(dir) = &self.dir else { return };
        let rate = measurement.report.rate.asked.unwrap_or(0.0);
        let path = Path::new(dir).join(format!("{:02}-{rate:.0}.parquet", self.n));
        if let Err(error) = samples::write(measurement, &path) {
            self.failed.get_or_insert(error);
        }
    }
}
