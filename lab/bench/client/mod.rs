//! `bench --only client`: the proof of the load generator against the real thing, beside its peers. In: root, two
//! cores, the peers that are installed. Out: the last three sections of docs/results/client.md.
//!
//! - [`bias`]: the measured distribution beside the idealised server's, with known service times;
//! - [`price`]: CPU time a request, against memcached, nginx and Redis;
//! - [`lateness`]: how late the requests of each client arrive, seen from the servers' interface.
//!
//! Every load generator, ours too, is run as a whole process on core 1 of its own namespace; servers are on core 0 of
//! another. A run in which other programs took more than 1 % of a core is made again.

mod base;
mod bias;
mod capture;
mod cells;
mod lateness;
mod line;
mod model;
mod parse;
mod price;
mod run;
mod servers;
mod tools;

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::Bench;
use crate::machine::MachineFacts;
use crate::roundtrip::QUIET;
use crate::table::{Section, table};
use run::Shot;
use tailsight_lab::generated::GeneratedSection;
use tools::{Job, OURS, Shape, Tool};

/// The part of the page that is written here.
pub const GENERATED: GeneratedSection = GeneratedSection {
    begin: "<!-- client:begin (written by `bench --only client --write`; do not edit between the markers) -->",
    end: "<!-- client:end -->",
};
/// The page of these figures.
pub const DOCS: &str = "docs/results/client.md";
/// How long all runs together wait until other programs are idle.
const PATIENCE: Duration = Duration::from_secs(600);

/// A part of these figures, to be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Bias, fixed service times.
    BiasFixed,
    /// Bias, exponential service times.
    BiasExponential,
    /// Bias, bimodal service times.
    BiasBimodal,
    /// CPU time a request.
    Price,
    /// Lateness from the wire.
    Lateness,
}

/// Measures these parts, all when none is named.
pub fn measure(bench: &Bench, parts: &[Part]) -> anyhow::Result<Vec<Section>> {
    let mut patience = if bench.quick { PATIENCE / 20 } else { PATIENCE };
    let wanted = |part: &Part| parts.is_empty() || parts.contains(part);
    let services = [Part::BiasFixed, Part::BiasExponential, Part::BiasBimodal];
    let services: Vec<usize> = (0..services.len()).filter(|i| wanted(&services[*i])).collect();
    let mut sections = Vec::new();
    if !services.is_empty() {
        sections.push(bias::measure(bench, &services, &mut patience)?);
    }
    if wanted(&Part::Price) {
        sections.push(price::measure(bench, &mut patience)?);
    }
    if wanted(&Part::Lateness) {
        sections.push(lateness::measure(bench, &mut patience)?);
    }
    if let Some(first) = sections.first_mut() {
        first.notes += &commands(bench)?;
    }
    Ok(sections)
}

/// Runs that count although other programs used the machine.
fn noisy(shots: &[Shot]) -> usize {
    shots.iter().filter(|shot| shot.others > QUIET).count()
}

/// A run as raw data.
fn shot_json(shot: &Shot) -> Value {
    let f = &shot.figures;
    let quantiles: Vec<_> = f.quantiles.iter().map(|q| q.map(|range| [range.low, range.high])).collect();
    let verdict = match &f.verdict {
        None => Value::Null,
        Some(Ok((low, high))) => json!({"lower_us": low, "upper_us": high}),
        Some(Err(id)) => json!({"failed": id}),
    };
    json!({"requests": f.requests, "errors": f.errors, "per_s": f.per_s, "mean_us": f.mean_us, "percentiles_us": quantiles,
           "late_p99_us": f.late_p99_us, "verdict": verdict, "threads_us": f.threads_us, "cpu_s": shot.cpu_s,
           "us_a_request": shot.us_a_request(), "others": shot.others})
}

/// Versions and command lines, to repeat it by hand.
fn commands(bench: &Bench) -> anyhow::Result<String> {
    let folder = run::folder(bench)?;
    let tools = [OURS].into_iter().chain(Tool::PEERS);
    let rows = tools.map(|tool| {
        let closed = tool.ours_like().is_none();
        let addr = std::net::SocketAddr::new(tailsight_testbed::netns::SERVER_V4, 7000);
        let shape = if closed { Shape::Closed(1, 1) } else { Shape::Rate(10_000.0) };
        let job = Job::new(Path::new("tailsight"), &folder, addr, shape);
        let job = Job { seconds: if bench.quick { 2 } else { 4 }, guess_per_s: 16_000.0, samples: true, ..job };
        let line = tool.command(&job).map_or_else(|e| e.to_string(), |words| words.join(" "));
        let line = line.replace(&format!("{}/", folder.display()), "");
        vec![tool.name(), run::version(tool, &bench.tailsight), format!("`{line}`")]
    });
    Ok(format!("\nThe clients and one command line of each:\n\n{}", table(&["client", "version", "command"], rows)))
}

/// All tables.
pub fn page(bench: &Bench, facts: &MachineFacts, sections: &[Section]) -> String {
    let mut text = facts.markdown();
    text += &format!(
        "\nCommand: `bench --only client`{}. Rounds: {}. Values are medians over the rounds `[smallest..largest]`.{}\n\n",
        if bench.quick { " with `--quick`" } else { "" },
        bench.rounds,
        if bench.quick { " **A `--quick` run: it shows that everything works, not how well.**" } else { "" },
    );
    for section in sections {
        text += &section.markdown();
    }
    text
}
