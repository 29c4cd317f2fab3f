//! The page of an experiment: what the paper found, what was measured here, the ideal beside it. In: rounds. Out: Markdown and
//! its pictures. Medians over the rounds that count, with their range; times in us.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use super::figure::{App, Figure};
use super::{Measured, Round, plot};
use crate::table::{table, thousands};

/// A core that is less busy than this at the peak is not what limits it: the client may be.
const BUSY: f64 = 0.95;

/// A time in us.
pub fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 100.0 { format!("{us:.1}") } else { thousands(us.round() as u64) }
}

/// Writes the page into a folder and its pictures into another.
pub fn write(
    pages: &Path,
    pictures: &Path,
    figure: &Figure,
    measured: &[Measured],
    measured_by: &str,
) -> anyhow::Result<()> {
    for app in apps(measured) {
        let path = pictures.join(picture(figure, app));
        plot::draw(&path, &format!("{}: {}", app.words(), figure.title), &of(measured, app))
            .with_context(|| format!("cannot draw {}", path.display()))?;
    }
    let beside = if pages == pictures { "" } else { "../images/" };
    let path = pages.join(format!("tales-{}.md", figure.file()));
    let text = page(figure, measured, measured_by, beside);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The page; `measured_by`: its last line; `beside`: the way from it to its pictures.
pub fn page(figure: &Figure, measured: &[Measured], measured_by: &str, beside: &str) -> String {
    let mut text = format!(
        "# Tales of the Tail, {}: {}\n\nThe paper: {}\n\nHere: {}\n\n",
        figure.name(),
        figure.title,
        figure.paper,
        figure.here
    );
    let rounds = measured.iter().flat_map(|one| &one.rounds);
    let (count, disturbed) = (rounds.clone().count(), rounds.filter(|round| !round.counts()).count());
    let _ = writeln!(
        text,
        "Latency inside the server's host, us, at {:.0} % of the peak{}: medians over the rounds, with the least and the greatest. \
         `ideal` is a FIFO server with the same arrivals and one service time, what a request costs at the peak of the same \
         set-up without a background process (where the server's core was not busy then, its busy part is given: the peak may be the \
         client's, and the ideal is too slow); `×` is the p99.9 over the ideal's, and says nothing where the ideal is slower than the \
         measurement: then its service time is too long for these arrivals, or its queues are not the server's. The server was recorded \
         at the peak, too. \
         {disturbed} of {count} rounds do not count: other programs or the hypervisor had more than 1 % of a core in them, also when \
         they were measured again.\n",
        figure.utilisation * 100.0,
        if figure.own_peak { " of each set-up" } else { " of the first set-up" },
    );
    for app in apps(measured) {
        let _ = writeln!(text, "## {}\n", app.words());
        let rows = of(measured, app).into_iter().map(|one| row(one, figure.order));
        let mut head = vec![
            "set-up",
            "rounds",
            "peak /s",
            "load /s",
            "p50",
            "p99",
            "p99.9",
            "ideal p50",
            "ideal p99",
            "ideal p99.9",
            "×",
        ];
        if figure.order {
            head.push("served out of order");
        }
        text += &table(&head, rows);
        if figure.in_turn() {
            text += "\nWhat `tailsight fix` did:\n\n";
        }
        for setup_result in of(measured, app).into_iter().filter(|one| one.setup.fix.is_some()) {
            let _ = writeln!(text, "- {}: {}", setup_result.setup.name, made(&setup_result.made));
        }
        let _ = writeln!(text, "\n![{}]({beside}{})\n", app.words(), picture(figure, app));
    }
    let _ = writeln!(text, "{measured_by}");
    text
}

/// What `tailsight fix` did, each with its rounds.
fn made(all: &[String]) -> String {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for fix in all {
        *times.entry(fix).or_default() += 1;
    }
    let said: Vec<String> = times.iter().map(|(what, n)| format!("{what} ({n} of {} rounds)", all.len())).collect();
    said.join("; ")
}

fn row(one: &Measured, order: bool) -> Vec<String> {
    let rounds: Vec<&Round> = one.rounds.iter().filter(|round| round.counts()).collect();
    let median_of = |key: &str, ideal: bool| {
        let values_ns = rounds.iter().filter_map(|r| if ideal { r.ideal_ns.get(key) } else { r.measured_ns.get(key) });
        median(values_ns.copied())
    };
    let shown = |key, ideal| {
        median_of(key, ideal).map_or("N/A".to_owned(), |(low, mid, high)| match ideal {
            true => us(mid),
            false => format!("{} [{}..{}]", us(mid), us(low), us(high)),
        })
    };
    let times = median_of("p99.9", false).zip(median_of("p99.9", true)).filter(|(_, ideal)| ideal.1 > 0);
    let peak = match one.peak_busy < BUSY {
        true => format!("{} ({:.0} % busy)", thousands(one.peak_per_s as u64), one.peak_busy * 100.0),
        false => thousands(one.peak_per_s as u64),
    };
    let peak = if one.peak_disturbed { format!("{peak}, disturbed") } else { peak };
    let mut cells = vec![one.setup.name.to_owned(), rounds.len().to_string(), peak, thousands(one.rate_per_s as u64)];
    cells.extend(["p50", "p99", "p99.9"].map(|key| shown(key, false)));
    cells.extend(["p50", "p99", "p99.9"].map(|key| shown(key, true)));
    cells
        .push(times.map_or("N/A".to_owned(), |(measured, ideal)| format!("{:.1}", measured.1 as f64 / ideal.1 as f64)));
    if order {
        let (served, messages) =
            rounds.iter().fold((0, 0), |(a, b), r| (a + r.out_of_order.unwrap_or(0), b + r.messages));
        cells.push(format!("{} of {}", thousands(served), thousands(messages)));
    }
    cells
}

/// The least, the median and the greatest.
pub fn median(all: impl Iterator<Item = u64>) -> Option<(u64, u64, u64)> {
    let mut sorted: Vec<u64> = all.collect();
    sorted.sort_unstable();
    Some((*sorted.first()?, sorted[sorted.len() / 2], *sorted.last()?))
}

fn apps(measured: &[Measured]) -> Vec<App> {
    let mut apps: Vec<App> = measured.iter().map(|one| one.app).collect();
    apps.dedup();
    apps
}

fn of(measured: &[Measured], app: App) -> Vec<&Measured> {
    measured.iter().filter(|one| one.app == app).collect()
}

fn picture(figure: &Figure, app: App) -> String {
    let name = match app {
        App::NullRpc => "null-rpc",
        App::Memcached => "memcached",
        App::Nginx => "nginx",
    };
    format!("tales-{}-{name}.svg", figure.file())
}

#[cfg(test)]
mod tests {
    use super::super::Results;
    use super::super::figure::Experiment;
    use super::*;

    fn round(p999: u64, others: f64) -> Round {
        let same_ns = |ns: u64| ["p50", "p99", "p99.9"].map(|key| (key.to_owned(), ns)).into();
        Round {
            served_per_s: 10.0,
            others,
            messages: 100,
            measured_ns: same_ns(p999),
            ideal_ns: same_ns(2_000),
            out_of_order: Some(3),
            ccdf: vec![(1_000, 0.5), (p999, 0.001)],
            ideal_ccdf: vec![(2_000, 0.5)],
        }
    }

    #[test]
    fn rounds_that_others_spoiled_do_not_count() {
        let figure = Experiment::Order.figure();
        let setup = figure.setups[0];
        let rounds = vec![round(10_000, 0.0), round(30_000, 0.0), round(20_000, 0.01), round(9_999_000, 0.2)];
        let measured = Measured {
            app: App::NullRpc,
            setup,
            peak_per_s: 50_000.0,
            peak_busy: 1.0,
            peak_disturbed: false,
            rate_per_s: 40_000.0,
            made: vec![],
            rounds,
        };
        let text = page(&figure, std::slice::from_ref(&measured), "bench tales order", "");
        assert!(text.contains("| default | 3 | 50,000 |"), "{text}");
        assert!(text.contains("| 20.0 [10.0..30.0] |") && text.contains("| 10.0 | 9 of 300 |"), "{text}");
        assert!(text.contains("1 of 4 rounds do not count"), "{text}");
        let disturbed = Measured { rounds: vec![round(10_000, 0.5)], peak_disturbed: true, ..measured };
        let text = page(&figure, &[disturbed], "", "");
        assert!(text.contains("| N/A | N/A |") && text.contains("| 0 | 50,000, disturbed |"), "{text}");
    }

    #[test]
    fn what_was_made_is_counted() {
        let fixes = ["pin, against interference", "pin, against interference", "chrt, against wakeup-delay"];
        let text = made(&fixes.map(str::to_owned));
        assert_eq!(text, "chrt, against wakeup-delay (1 of 3 rounds); pin, against interference (2 of 3 rounds)");
    }

    #[test]
    fn the_page_has_its_pictures() {
        let figure = Experiment::Order.figure();
        let rounds = vec![round(10_000, 0.0)];
        let setup_result = Measured {
            app: App::NullRpc,
            setup: figure.setups[0],
            peak_per_s: 5.0,
            peak_busy: 0.5,
            peak_disturbed: false,
            rate_per_s: 4.0,
            made: vec![],
            rounds,
        };
        let dir = tempfile::tempdir().unwrap();
        let results = Results { measured_by: "Measured by bench.".into(), measured: vec![setup_result] };
        write(dir.path(), dir.path(), &figure, &results.measured, &results.measured_by).unwrap();
        let text = std::fs::read_to_string(dir.path().join("tales-figure-6.md")).unwrap();
        let picture = std::fs::read_to_string(dir.path().join("tales-figure-6-null-rpc.svg")).unwrap();
        assert!(text.contains("(tales-figure-6-null-rpc.svg)") && picture.contains("<polyline"), "{picture}");
        // What is kept draws the same again.
        let kept = dir.path().join("kept.json");
        std::fs::write(&kept, serde_json::to_string(&results).unwrap()).unwrap();
        let read = Results::read(&figure, &kept).unwrap();
        std::fs::remove_file(dir.path().join("tales-figure-6-null-rpc.svg")).unwrap();
        write(dir.path(), dir.path(), &figure, &read.measured, &read.measured_by).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("tales-figure-6-null-rpc.svg")).unwrap(), picture);
        assert_eq!(std::fs::read_to_string(dir.path().join("tales-figure-6.md")).unwrap(), text);
        let other = Results::read(&Experiment::Workers.figure(), &kept).unwrap_err().to_string();
        assert!(other.contains("measure it again"), "{other}");
    }
}
