//! A CCDF on log axes: measured latencies of each set-up, and the ideal of the first. In: rounds. Out: an SVG.

use std::path::Path;

use plotters::prelude::*;

use super::{Measured, Round, page};

/// The share of messages at which curves end.
const LEAST: f64 = 1e-4;
const SIZE: (u32, u32) = (860, 500);

/// Draws the curve of the round whose p99.9 is the median.
pub fn ccdf(path: &Path, title: &str, measured: &[&Measured]) -> anyhow::Result<()> {
    let curves: Vec<(&str, &Round)> = measured.iter().filter_map(|one| Some((one.setup.name, typical(one)?))).collect();
    let all = curves.iter().flat_map(|(_, round)| round.ccdf.iter().chain(&round.ideal_ccdf));
    let us: Vec<f64> = all.filter(|p| p.1 >= LEAST && p.0 > 0).map(|p| p.0 as f64 / 1e3).collect();
    let least = us.iter().copied().fold(f64::INFINITY, f64::min).min(1e6);
    let most = us.iter().copied().fold(least * 2.0, f64::max);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((least..most * 1.1).log_scale(), (LEAST..1.0).log_scale())?;
    chart.configure_mesh().x_desc("latency, us").y_desc("share of the requests above it").draw()?;
    let ideal = curves.first().map(|(_, round)| ("ideal", &round.ideal_ccdf, BLACK.mix(0.7)));
    let lines = curves.iter().enumerate().map(|(i, (name, round))| (*name, &round.ccdf, Palette99::pick(i).mix(1.0)));
    for (name, points, colour) in lines.chain(ideal) {
        let seen = points.iter().filter(|p| p.1 >= LEAST && p.0 > 0).map(|p| (p.0 as f64 / 1e3, p.1));
        chart
            .draw_series(LineSeries::new(seen, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3)).draw()?;
    area.present()?;
    Ok(())
}

/// The round that counts whose p99.9 is the median.
fn typical(of: &Measured) -> Option<&Round> {
    let counting = || of.rounds.iter().filter(|round| round.counts());
    let p999 = |round: &Round| round.measured_ns.get("p99.9").copied();
    let (_, middle, _) = page::median(counting().filter_map(p999))?;
    counting().find(|round| p999(round) == Some(middle))
}
