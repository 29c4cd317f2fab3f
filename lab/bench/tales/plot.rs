//! A CCDF on log axes: measured latencies of each set-up, and the ideal of the first. In: rounds. Out: an SVG.

use std::path::Path;

use plotters::style::{Palette, Palette99};
use tailsight_report::plot::{Curve, ccdf};

use super::{Measured, Round, page};

/// Draws the curve of the round whose p99.9 is the median.
pub fn draw(path: &Path, title: &str, measured: &[&Measured]) -> anyhow::Result<()> {
    let rounds: Vec<(&str, &Round)> = measured.iter().filter_map(|one| Some((one.setup.name, typical(one)?))).collect();
    let lines = rounds.iter().enumerate().map(|(i, (name, round))| Curve {
        name,
        points: &round.ccdf,
        colour: Palette99::COLORS[i % Palette99::COLORS.len()],
    });
    let name = rounds.first().map_or(String::new(), |(name, _)| format!("ideal: {name}"));
    let ideal = rounds.first().map(|(_, round)| Curve { name: &name, points: &round.ideal_ccdf, colour: (77, 77, 77) });
    let curves: Vec<Curve<'_>> = lines.chain(ideal).collect();
    std::fs::write(path, ccdf(title, "latency, us", "share of the requests above it", &curves)?)?;
    Ok(())
}

/// The round that counts whose p99.9 is the median.
fn typical(of: &Measured) -> Option<&Round> {
    let counting = || of.rounds.iter().filter(|round| round.counts());
    let p999 = |round: &Round| round.measured_ns.get("p99.9").copied();
    let (_, middle, _) = page::median(counting().filter_map(p999))?;
    counting().find(|round| p999(round) == Some(middle))
}
