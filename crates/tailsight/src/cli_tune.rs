//! The command line of `tune` as data. In: words. Out: what is asked; the load is read as the words of `load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};
use tailsight_tune::{Family, Objective};
use tailsight_units::parse;

use crate::cli_common::Target;
use crate::cli_load::Load;

/// `tune`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("target").required(true),
    group = clap::ArgGroup::new("traffic").required(true).args(["load", "observe"]),
    about = "Try the fixes of a diagnosis one after the other, and keep those that are measured to help"
)]
pub struct Tune {
    /// Who is tuned.
    #[command(flatten)]
    pub target: Target,
    /// Send this load and measure its latency: the target and options of `tailsight load`, in one argument, such as
    /// 'memcached://localhost --connections 32'
    #[arg(long, value_name = "TARGET", requires = "rate")]
    pub load: Option<String>,
    /// The load's rate, requests/s, such as 20k
    #[arg(long, value_name = "RATE", value_parser = parse::rate, requires = "load")]
    pub rate: Option<f64>,
    /// Send nothing: record the traffic that the server has, and measure the latency inside this host
    #[arg(long)]
    pub observe: bool,
    /// 'p99.9 min': as low as the fixes make it; 'p99 < 5ms': end when it is below
    #[arg(long, value_name = "OBJECTIVE", value_parser = |t: &str| t.parse::<Objective>(), default_value = "p99 min")]
    pub objective: Objective,
    /// Measure also what each kept fix costs in peak rate: saturate the server with and without it for 25 s
    #[arg(long, requires = "load")]
    pub peak: bool,
    /// Begin no step that would end later than this
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "30m")]
    pub budget: Duration,
    /// Only fixes of these families: cpu (the server's threads), neighbours (cores of other programs), irq, memory, net, disk, idle,
    /// kernel [default: each]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = |t: &str| t.parse::<Family>())]
    pub only: Vec<Family>,
    /// Apply, measure and keep fixes without asking
    #[arg(short, long)]
    pub yes: bool,
    /// How long each of the two measurements of a round takes [default: 2.5s, longer where the rate is too low for the percentile]
    #[arg(long, value_name = "TIME", value_parser = window)]
    pub window: Option<Duration>,
    /// Rounds of a step, each with and without the fix; later steps have more where their part of the error needs them
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(8..=200))]
    pub rounds: usize,
    /// The folder of the recordings; earlier ones in it are replaced
    #[arg(short, long, value_name = "DIR", default_value = "tailsight-tune")]
    pub out: PathBuf,
    /// Print JSON; without --yes, what would be tried, and change nothing
    #[arg(long)]
    pub json: bool,
}

/// The shortest window: connecting, a second of load, a second of samples.
pub const SHORTEST_WINDOW: Duration = Duration::from_millis(2_500);

fn window(text: &str) -> Result<Duration, String> {
    let window = parse::duration(text).map_err(|wrong| wrong.to_string())?;
    match window >= SHORTEST_WINDOW {
        true => Ok(window),
        false => Err("a window must be at least 2500ms: a second of it is spent before the load is steady".into()),
    }
}

/// The words of `load`.
#[derive(Debug, Parser)]
#[command(name = "tailsight tune --load", no_binary_name = true, disable_help_flag = true)]
struct LoadWords {
    #[command(flatten)]
    load: Load,
}

/// The load that `--load` and `--rate` describe.
///
/// # Errors
/// What is wrong with the words, and options that have no meaning here.
pub fn load(text: &str, rate: f64) -> Result<Load, String> {
    let mut words = words(text)?;
    if let Some(target) = words.first().filter(|first| first.starts_with('-')) {
        return Err(format!("--load begins with the target, such as memcached://localhost, not with {target}"));
    }
    words.extend(["--rate".into(), rate.to_string()]);
    let load = LoadWords::try_parse_from(words).map_err(|error| first_line(&error.to_string()))?.load;
    let refused = [
        (load.out.is_some(), "--out"),
        (load.html.is_some(), "--html"),
        (load.against.is_some(), "--against"),
        (load.slo.is_some(), "--slo"),
        (!load.traffic.ci.is_empty(), "--ci"),
        (load.traffic.json, "--json"),
        (!load.traffic.agents.agent.is_empty(), "--agent"),
    ];
    match refused.into_iter().find(|(given, _)| *given) {
        Some((_, option)) => Err(format!("{option} has no meaning in --load of tune; leave it out")),
        None => Ok(load),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Words separated by spaces; what stands in single quotes is one word.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = vec![];
    let (mut word, mut quoted) = (None::<String>, false);
    for c in text.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quoted { Err("a single quote in --load is not closed".into()) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_the_words_of_load() {
        let load = load("http://localhost:8080/ --connections 4 -H 'Accept: text/html'", 500.0).unwrap();
        assert_eq!((load.rate, load.traffic.connections), (Some(500.0), 4));
        assert_eq!(load.traffic.headers, [("Accept".to_owned(), "text/html".to_owned())]);
    }

    #[test]
    fn other_words_are_refused_with_the_reason() {
        for (text, why) in [
            ("--connections 4", "begins with the target"),
            ("redis://h --conections 4", "--conections"),
            ("redis://h --out x", "--out has no meaning"),
            ("redis://h --closed 1", "--closed"),
            ("redis://h -H 'a", "not closed"),
        ] {
            assert!(load(text, 1.0).unwrap_err().contains(why), "{text}: {:?}", load(text, 1.0));
        }
    }
}
