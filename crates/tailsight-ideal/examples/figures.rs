//! Figures 1 to 4 of Tales of the Tail (Li et al. 2014, §2), computed again: an SVG each, and the numbers that the paper's text
//! gives beside ours.
//!
//! In: a folder. Out: `figure-1.svg` to `figure-4.svg` there, CCDFs with the latency in us and the share of the requests above it
//! on a log axis; the comparison on standard output. Service takes 50 us in all of them, as in the paper.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use tailsight_ideal::queue::predict::{Prediction, Question, predict};

type Anyhow<T> = Result<T, Box<dyn Error>>;

const SERVICE_NS: f64 = 50_000.0;
const REQUESTS: usize = 10_000_000;
/// The share of requests at which the curves end.
const LEAST_SHARE: f64 = 1e-4;

/// A line: its name, its model, its discipline.
type Line = (&'static str, String, &'static str);

fn main() -> Anyhow<()> {
    let Some(dir) = std::env::args_os().nth(1) else {
        return Err(
            "name the folder that the figures go to: cargo run --release -p tailsight-ideal --example figures -- DIR"
                .into(),
        );
    };
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    println!("| Figure | What | Paper | Here |\n|---|---|---|---|");
    one(dir)?;
    two(dir)?;
    three(dir)?;
    four(dir)
}

fn one(dir: &Path) -> Anyhow<()> {
    let line = |name, arrivals: &str| (name, format!("{arrivals}/D/1 70%"), "fifo");
    let lines = [
        line("uniform", "D"),
        line("Poisson", "M"),
        line("lognormal, σ = 1.5", "lognormal:1.5"),
        line("Pareto, shape 2.2", "pareto:2.2"),
        line("bursts (MMPP)", "mmpp:4,0.2,10ms"),
    ];
    let curves = figure(dir, 1, "Arrivals: one worker at 70 %, FIFO", &lines, 1200.0)?;
    row("1", "p99.9 with uniform arrivals", "50 us (no queue)", &us(&curves[0], "p99.9"));
    row("1", "p99 with Poisson arrivals", "a tail without variable service", &us(&curves[1], "p99"));
    Ok(())
}

fn two(dir: &Path) -> Anyhow<()> {
    let loads = ["50", "60", "70", "80", "90", "95"];
    let names = ["50 %", "60 %", "70 %", "80 %", "90 %", "95 %"];
    let lines: Vec<Line> =
        names.iter().zip(loads).map(|(name, load)| (*name, format!("M/D/1 {load}%"), "fifo")).collect();
    let curves = figure(dir, 2, "Utilisation: one worker, Poisson arrivals, FIFO", &lines, 4000.0)?;
    let factor = ns(&curves[5], "p99") / ns(&curves[0], "p99");
    row("2", "p99 at 95 % over p99 at 50 %", "10x", &format!("{factor:.1}x"));
    Ok(())
}

fn three(dir: &Path) -> Anyhow<()> {
    let lines: Vec<Line> = [("1 worker", 1), ("2 workers", 2), ("4 workers", 4), ("8 workers", 8)]
        .map(|(name, workers)| (name, format!("M/D/{workers} 70%"), "fifo"))
        .into();
    let curves = figure(dir, 3, "Workers: one queue at 70 %, Poisson arrivals, FIFO", &lines, 800.0)?;
    let factor = ns(&curves[0], "p99") / ns(&curves[3], "p99");
    row("3", "p99 with 1 worker over p99 with 8", "4x", &format!("{factor:.1}x"));
    Ok(())
}

fn four(dir: &Path) -> Anyhow<()> {
    let lines: Vec<Line> = [
        ("FIFO", "fifo"),
        ("LIFO", "lifo"),
        ("random worker", "random-worker"),
        ("random request", "random-request"),
        ("queue a connection (40)", "connection:40"),
        ("time sharing, 10 us", "sharing:10us"),
    ]
    .map(|(name, discipline)| (name, "M/D/4 80%".to_owned(), discipline))
    .into();
    let curves = figure(dir, 4, "Order of service: four workers at 80 %, Poisson arrivals", &lines, 2000.0)?;
    row("4", "median with FIFO", "64 us", &us(&curves[0], "p50"));
    row("4", "median with LIFO", "50 us", &us(&curves[1], "p50"));
    let order: Vec<String> =
        curves.iter().zip(&lines).take(4).map(|(c, line)| format!("{} {}", line.0, us(c, "p99.9"))).collect();
    row("4", "p99.9", "FIFO best", &order.join(", "));
    Ok(())
}

fn row(figure: &str, what: &str, paper: &str, here: &str) {
    println!("| {figure} | {what} | {paper} | {here} |");
}

fn ns(p: &Prediction, key: &str) -> f64 {
    p.in_service_times.get(key).map_or(f64::NAN, |units| units * SERVICE_NS)
}

fn us(p: &Prediction, key: &str) -> String {
    format!("{:.1} us", ns(p, key) / 1e3)
}

/// Draws the lines and gives their predictions.
fn figure(dir: &Path, number: u32, title: &str, lines: &[Line], most_us: f64) -> Anyhow<Vec<Prediction>> {
    let path = dir.join(format!("figure-{number}.svg"));
    let area = SVGBackend::new(&path, (860, 520)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("Figure {number}. {title}"), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most_us, (LEAST_SHARE..1.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("latency, us (50 us of it service)")
        .y_desc("share of the requests above it")
        .draw()?;
    let mut predictions = Vec::new();
    for (i, (name, model, discipline)) in lines.iter().enumerate() {
        let prediction = predict(&Question {
            model: model.parse()?,
            discipline: discipline.parse()?,
            requests: REQUESTS,
            seed: 1,
            service_ns: Some(SERVICE_NS),
            recorded: None,
            percentiles: vec![0.5, 0.99, 0.999],
        })?;
        let colour = Palette99::pick(i).mix(1.0);
        let points = prediction.ccdf.iter().map(|(units, above)| (units * SERVICE_NS / 1e3, *above));
        let drawn = points.filter(|(us, above)| *us <= most_us && *above >= LEAST_SHARE);
        chart
            .draw_series(LineSeries::new(drawn, colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        predictions.push(prediction);
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3)).draw()?;
    area.present()?;
    Ok(predictions)
}
