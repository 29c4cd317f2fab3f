//! The output of each load generator, as numbers. In: its output. Out: [`Figures`], times in us.
//!
//! A percentile is a range: tools that keep histograms say only between which bounds it lies.

use anyhow::{Context, bail};
use serde_json::Value;

/// The percentiles that are compared.
pub const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// Their names.
pub const NAMES: [&str; 4] = ["p50", "p90", "p99", "p99.9"];

/// A percentile, us: as exact as the tool tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl Range {
    /// A number.
    pub fn exact(us: f64) -> Self {
        Self { low: us, high: us }
    }
}

/// The result of a run by the tool's output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Requests that were answered, in all.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests a second while it measured.
    pub per_s: f64,
    /// Mean latency, us.
    pub mean_us: Option<f64>,
    /// [`QUANTILES`] of the latency.
    pub quantiles: [Option<Range>; 4],
    /// How late the client itself was by its own account, us: p50.
    pub late_p50_us: Option<f64>,
    /// The same, p99.
    pub late_p99_us: Option<f64>,
    /// tailsight: its verdict on p99 with the interval, us; `None` is N/A, with the check that failed.
    pub verdict: Option<Result<(f64, f64), String>>,
    /// tailsight: CPU time of the loading threads a request, us.
    pub threads_us: Option<f64>,
}

/// Exact percentiles (nearest rank) and the mean of a sample, us.
pub fn of_sample(mut us: Vec<f64>) -> ([Option<Range>; 4], Option<f64>) {
    us.sort_unstable_by(f64::total_cmp);
    let n = us.len();
    let at = |q: f64| us.get(((q * n as f64).ceil() as usize).max(1) - 1).map(|us| Range::exact(*us));
    (QUANTILES.map(at), (n > 0).then(|| us.iter().sum::<f64>() / n as f64))
}

/// `tailsight load --json`. Percentiles come from the samples it kept, not from here.
pub fn tailsight(text: &str) -> anyhow::Result<Figures> {
    let json: Value = serde_json::from_str(text).context("`tailsight load --json` did not print JSON")?;
    let number = |path: &str| json.pointer(path).and_then(Value::as_f64);
    let count = |name: &str| number(&format!("/counts/{name}")).unwrap_or(0.0) as u64;
    let verdict = match json.pointer("/verdict/verdict").and_then(Value::as_str) {
        Some("number") => {
            let end = |name: &str| number(&format!("/verdict/percentiles/0/{name}"));
            Ok((end("lower_ns").context("no interval")? / 1e3, end("upper_ns").context("no interval")? / 1e3))
        }
        Some(_) => Err(json.pointer("/verdict/failed/id").and_then(Value::as_str).unwrap_or("?").to_owned()),
        None => bail!("`tailsight load --json` printed no verdict"),
    };
    let good = count("ok");
    Ok(Figures {
        requests: good,
        errors: count("intended").saturating_sub(good),
        per_s: number("/rate/answered").context("no rate")?,
        late_p50_us: number("/lateness_ns/p50").map(|ns| ns / 1e3),
        late_p99_us: number("/lateness_ns/p99").map(|ns| ns / 1e3),
        verdict: Some(verdict),
        threads_us: number("/client/cpu_ns_per_request").map(|ns| ns / 1e3),
        ..Figures::default()
    })
}

/// memcaslap (which calls itself memaslap) with `-S`: its histogram has a bin a power of two. The requests that fill its
/// window count as requests, not as latencies.
pub fn memcaslap(text: &str) -> anyhow::Result<Figures> {
    let value = |name: &str| -> anyhow::Result<f64> {
        let line =
            text.lines().find_map(|line| line.trim().strip_prefix(name)).with_context(|| format!("no {name}"))?;
        let word = line.split_whitespace().next().with_context(|| format!("nothing behind {name}"))?;
        word.trim_end_matches('s').parse().with_context(|| format!("{name} {word}"))
    };
    let (gets, sets, misses) = (value("cmd_get:")?, value("cmd_set:")?, value("get_misses:")?);
    let seconds = value("Run time:")?;
    let statistics = text.split("Total Statistics (").nth(1).context("no statistics; -S is missing")?;
    let mean_us =
        statistics.lines().find_map(|line| line.trim().strip_prefix("Avg:")).and_then(|us| us.trim().parse().ok());
    // A line is `first bin: four counts`; bin k holds 2^(k-1) to 2^k us.
    let mut bins: Vec<(u32, u64)> = Vec::new();
    for line in statistics.lines().skip_while(|line| !line.contains("Log2 Dist:")).skip(1) {
        let Some((first, counts)) = line.trim().split_once(':') else { break };
        let Ok(first) = first.parse::<u32>() else { break };
        let counts = counts.split_whitespace().filter_map(|n| n.parse().ok());
        bins.extend((first..).zip(counts));
    }
    let sum: u64 = bins.iter().map(|(_, n)| n).sum();
    let quantile = |q: f64| {
        let rank = (q * sum as f64).ceil() as u64;
        let mut cumulative = 0;
        let (bin, _) = bins.iter().find(|(_, n)| {
            cumulative += n;
            cumulative >= rank.max(1)
        })?;
        let high = 2_f64.powi(bin.cast_signed());
        Some(Range { low: high / 2.0, high })
    };
    Ok(Figures {
        requests: (gets + sets) as u64,
        errors: misses as u64,
        per_s: gets / seconds,
        mean_us,
        quantiles: QUANTILES.map(quantile),
        ..Figures::default()
    })
}

/// redis-benchmark without `--csv`, with `--precision 3`: some percentiles exactly, bounds of the others.
pub fn redis_benchmark(text: &str) -> anyhow::Result<Figures> {
    let lines = || text.split(['\r', '\n']).map(str::trim);
    let requests = lines()
        .find_map(|line| line.split_once(" requests completed in "))
        .and_then(|(n, _)| n.parse().ok())
        .context("no `requests completed`")?;
    let per_s = lines()
        .find_map(|line| line.strip_prefix("throughput summary: "))
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .context("no throughput summary")?;
    // avg min p50 p95 p99 max, ms.
    let summary: Vec<f64> = lines()
        .skip_while(|line| !line.starts_with("latency summary"))
        .nth(2)
        .map(|line| line.split_whitespace().filter_map(|ms| ms.parse().ok()).collect())
        .unwrap_or_default();
    let [mean, _, p50, _, p99, max] = summary[..] else { bail!("no latency summary") };
    let steps: Vec<(f64, f64)> = lines()
        .filter_map(|line| {
            let (percent, rest) = line.split_once("% <= ")?;
            Some((percent.parse::<f64>().ok()? / 100.0, rest.split(' ').next()?.parse::<f64>().ok()? * 1e3))
        })
        .collect();
    let between = |q: f64| {
        let low = steps.iter().filter(|(share, _)| *share < q).map(|(_, us)| *us).fold(0.0, f64::max);
        let high = steps.iter().filter(|(share, _)| *share >= q).map(|(_, us)| *us).fold(max * 1e3, f64::min);
        Some(Range { low: low.min(high), high })
    };
    let exact = |ms: f64| Some(Range::exact(ms * 1e3));
    let quantiles = [exact(p50), between(0.9), exact(p99), between(0.999)];
    Ok(Figures { requests, per_s, mean_us: Some(mean * 1e3), quantiles, ..Figures::default() })
}

/// wrk with the script of [`super::tools`], which prints a line of JSON (times in us).
pub fn wrk(text: &str) -> anyhow::Result<Figures> {
    let line = text.lines().find_map(|line| line.strip_prefix("tailsight ")).context("its script printed nothing")?;
    let json: Value = serde_json::from_str(line).context("its script printed no JSON")?;
    let number = |name: &str| json[name].as_f64().with_context(|| format!("no {name}"));
    let (requests, seconds) = (number("requests")?, number("duration_us")? / 1e6);
    Ok(Figures {
        requests: requests as u64,
        errors: number("errors")? as u64,
        per_s: requests / seconds,
        mean_us: Some(number("mean_us")?),
        quantiles: NAMES.map(|name| json[name].as_f64().map(Range::exact)),
        ..Figures::default()
    })
}

/// h2load; its percentiles come from its log, see [`h2load_log`].
pub fn h2load(text: &str) -> anyhow::Result<Figures> {
    let finished = text.lines().find(|line| line.starts_with("finished in ")).context("it did not finish")?;
    let per_s = finished.split(", ").find_map(|part| part.strip_suffix(" req/s")?.parse().ok()).context("no req/s")?;
    let requests = text.lines().find_map(|line| line.strip_prefix("requests: ")).context("no requests")?;
    let count = |name: &str| {
        requests.split(", ").find_map(|part| part.strip_suffix(name)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    Ok(Figures {
        requests: count("succeeded"),
        errors: count("failed") + count("errored") + count("timeout"),
        per_s,
        ..Figures::default()
    })
}

/// h2load's `--log-file`: start (us since 1970), status, us until the end of the response. Gives the latencies.
pub fn h2load_log(text: &str) -> Vec<f64> {
    text.lines()
        .filter_map(|line| {
            let mut columns = line.split('\t');
            (columns.nth(1)? == "200").then_some(())?;
            columns.next()?.parse().ok()
        })
        .collect()
}

/// `vegeta report -type json` (times in ns). It has no p99.9; that comes from [`vegeta_csv`].
pub fn vegeta(text: &str) -> anyhow::Result<Figures> {
    let json: Value = serde_json::from_str(text).context("its report is no JSON")?;
    let requests = json["requests"].as_f64().context("no requests")?;
    let good = json["status_codes"]["200"].as_f64().unwrap_or(0.0);
    let us = |name: &str| json["latencies"][name].as_f64().map(|ns| ns / 1e3);
    let exact = |name: &str| us(name).map(Range::exact);
    Ok(Figures {
        requests: good as u64,
        errors: (requests - good) as u64,
        per_s: json["throughput"].as_f64().context("no throughput")?,
        mean_us: us("mean"),
        quantiles: [exact("50th"), exact("90th"), exact("99th"), None],
        ..Figures::default()
    })
}

/// `vegeta encode -to csv`: time, status, latency in ns, and more. Gives the latencies of what was answered, us.
pub fn vegeta_csv(text: &str) -> Vec<f64> {
    text.lines()
        .filter_map(|line| {
            let mut columns = line.split(',');
            (columns.nth(1)? == "200").then_some(())?;
            Some(columns.next()?.parse::<f64>().ok()? / 1e3)
        })
        .collect()
}

/// `oha --output-format json` (times in s). What the deadline cut off is in its books as an error, and is none.
pub fn oha(text: &str) -> anyhow::Result<Figures> {
    let json: Value = serde_json::from_str(text).context("its output is no JSON")?;
    let good = json["statusCodeDistribution"]["200"].as_f64().context("no status 200")?;
    let counts = |name: &str| json[name].as_object().into_iter().flatten();
    let other = counts("statusCodeDistribution").filter(|(code, _)| *code != "200");
    let failed = counts("errorDistribution").filter(|(why, _)| *why != "aborted due to deadline");
    let seconds = json["summary"]["total"].as_f64().context("no total")?;
    let us = |value: &Value| value.as_f64().map(|s| s * 1e6);
    Ok(Figures {
        requests: good as u64,
        errors: other.chain(failed).filter_map(|(_, n)| n.as_u64()).sum(),
        per_s: good / seconds,
        mean_us: us(&json["summary"]["average"]),
        quantiles: NAMES.map(|name| us(&json["latencyPercentiles"][name]).map(Range::exact)),
        ..Figures::default()
    })
}

/// k6's `--summary-export` (times in ms). What it dropped because all of its users were busy counts as failed.
pub fn k6(text: &str) -> anyhow::Result<Figures> {
    let json: Value = serde_json::from_str(text).context("its summary is no JSON")?;
    let metric = |name: &str, field: &str| json["metrics"][name][field].as_f64();
    let requests = metric("http_reqs", "count").context("no http_reqs")?;
    let share_failed = metric("http_req_failed", "value").unwrap_or(0.0);
    let ms = |field: &str| metric("http_req_duration", field);
    Ok(Figures {
        requests: requests as u64,
        errors: (share_failed * requests + metric("dropped_iterations", "count").unwrap_or(0.0)) as u64,
        per_s: metric("http_reqs", "rate").context("no rate")?,
        mean_us: ms("avg").map(|ms| ms * 1e3),
        quantiles: ["p(50)", "p(90)", "p(99)", "p(99.9)"].map(|name| ms(name).map(|ms| Range::exact(ms * 1e3))),
        ..Figures::default()
    })
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
