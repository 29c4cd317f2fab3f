//! The share of messages above each latency (CCDF) as a drawing, both axes logarithmic, down to p99.99. In: curves, or an [`Ideal`] with
//! its two. Out: SVG text.

use plotters::prelude::*;
use tailsight_ideal::Ideal;

/// The drawing could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw measured against ideal: {0}")]
pub struct PlotError(String);

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    /// In the legend.
    pub name: &'a str,
    /// Latency in ns, and the share of messages above it.
    pub points: &'a [(u64, f64)],
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
}

/// Where the curves end: p99.99.
const LEAST_SHARE: f64 = 1e-4;
const SIZE: (u32, u32) = (860, 520);
/// Width of a letter of the legend, and of the sample of the curve's line before it.
const LETTER: u32 = 8;
const SAMPLE: i32 = 18;
const LINE: i32 = 20;

/// Draws what was measured of an ideal, and the ideal.
///
/// # Errors
/// Those of [`ccdf`].
pub fn ideal(ideal: &Ideal) -> Result<String, PlotError> {
    let title =
        format!("{}: measured against ideal, {:.1} % utilised", clean(&ideal.app), ideal.model.utilisation * 100.0);
    let measured = Curve { name: "measured", points: &ideal.ccdf.measured, colour: (200, 60, 40) };
    let ideal = Curve { name: "ideal", points: &ideal.ccdf.ideal, colour: (40, 90, 180) };
    ccdf(&title, "total latency, us", "share of the messages above it", &[measured, ideal])
}

/// Draws curves. The legend is beside the chart, where it covers none of them.
///
/// # Errors
/// [`PlotError`] when there are no points, or the drawing library refuses.
pub fn ccdf(title: &str, x: &str, y: &str, curves: &[Curve<'_>]) -> Result<String, PlotError> {
    let mut svg = String::new();
    draw(title, (x, y), curves, &mut svg).map_err(|e| PlotError(e.to_string()))?;
    Ok(svg)
}

fn draw(
    title: &str,
    (x, y): (&str, &str),
    curves: &[Curve<'_>],
    svg: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    // A latency or a share of 0 cannot be drawn on a logarithmic axis. A curve ends where it comes to the least share.
    let drawn_points = |points: &[(u64, f64)]| -> Vec<(f64, f64)> {
        let end = points.iter().position(|(_, above)| *above <= LEAST_SHARE).map_or(points.len(), |last| last + 1);
        let drawn = points[..end].iter().filter(|(ns, _)| *ns > 0);
        drawn.map(|(ns, above)| (*ns as f64 / 1e3, above.max(LEAST_SHARE))).collect()
    };
    let us: Vec<f64> = curves.iter().flat_map(|curve| drawn_points(curve.points)).map(|(us, _)| us).collect();
    let (Some(least), Some(most)) = (us.iter().copied().reduce(f64::min), us.iter().copied().reduce(f64::max)) else {
        return Err("there are no points".into());
    };
    let longest = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0) as u32;
    let legend = longest * LETTER + 2 * SAMPLE as u32;
    let area = SVGBackend::with_string(svg, (SIZE.0 + legend, SIZE.1)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0);
    let mut chart = ChartBuilder::on(&left)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((least * 0.9..most * 1.1).log_scale(), (LEAST_SHARE..1.0).log_scale())?;
    chart.configure_mesh().x_desc(x).y_desc(y).draw()?;
    for (number, Curve { name, points, colour }) in (0..).zip(curves) {
        let style = RGBColor(colour.0, colour.1, colour.2).stroke_width(2);
        chart.draw_series(LineSeries::new(drawn_points(points), style))?;
        let at = 70 + number * LINE;
        right.draw(&PathElement::new([(0, at), (SAMPLE, at)], style))?;
        right.draw(&Text::new(clean(name), (SAMPLE + 6, at - 7), ("sans-serif", 14)))?;
    }
    area.present()?;
    Ok(())
}

/// Applications chose their names; the library escapes markup.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
