//! Measured against ideal as a drawing. In: an [`Ideal`]. Out: SVG text: the share of the messages above each latency (CCDF), both axes
//! logarithmic, down to p99.99.

use plotters::prelude::*;
use tailsight_diagnose::ideal::Ideal;

/// The drawing could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw measured against ideal: {0}")]
pub struct PlotError(String);

/// Where the curves end: p99.99.
const LEAST: f64 = 1e-4;
const SIZE: (u32, u32) = (860, 520);

/// Draws.
///
/// # Errors
/// [`PlotError`] when there are no points, or the drawing library refuses.
pub fn ideal(of: &Ideal) -> Result<String, PlotError> {
    let mut svg = String::new();
    draw(of, &mut svg).map_err(|e| PlotError(e.to_string()))?;
    Ok(svg)
}

fn draw(of: &Ideal, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let lines =
        [("measured", &of.ccdf.measured, RGBColor(200, 60, 40)), ("ideal", &of.ccdf.ideal, RGBColor(40, 90, 180))];
    let seen = |points: &[(u64, f64)]| -> Vec<(f64, f64)> {
        // A share of 0 cannot be drawn on a logarithmic axis.
        points.iter().map(|(ns, above)| (*ns as f64 / 1e3, above.max(LEAST))).collect()
    };
    let us: Vec<f64> =
        lines.iter().flat_map(|(_, points, _)| seen(points)).map(|(us, _)| us).filter(|us| *us > 0.0).collect();
    let (Some(least), Some(most)) = (us.iter().copied().reduce(f64::min), us.iter().copied().reduce(f64::max)) else {
        return Err("there are no points".into());
    };
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{}: measured against ideal, {:.1} % utilised", clean(&of.app), of.model.utilisation * 100.0);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((least * 0.9..most * 1.1).log_scale(), (LEAST..1.0).log_scale())?;
    chart.configure_mesh().x_desc("total latency, us").y_desc("share of the messages above it").draw()?;
    for (name, points, colour) in lines {
        chart
            .draw_series(LineSeries::new(seen(points), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3)).draw()?;
    area.present()?;
    Ok(())
}

/// The application chose its name; the library escapes markup.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
