//! A measurement and a sweep on the terminal: what a person reads in ten seconds.
//!
//! In: a [`Report`] or a [`Sweep`]. Out: text that ends in a newline. First the number and its interval or N/A and why, then
//! response and service time and the client's lateness, then what was checked.

use tailsight_load::Complaint;
use tailsight_measure::assumption::AssumptionId;
use tailsight_measure::in_turn::{Comparison, ComparisonVerdict};
use tailsight_measure::objective::Decision;
use tailsight_measure::report::{
    Checked, Estimate, KnownPercentile, ObjectiveResult, Remark, Report, State, Summary, Verdict,
};
use tailsight_measure::slo::Highest;
use tailsight_measure::sweep::{Fate, Point, Sweep};
use tailsight_measure::{Latency, report::Against};
use tailsight_stats::method::{CheckId, IntervalMethod};
use tailsight_units::Untrusted;

use crate::terminal::Style;
use crate::units::{count, counted, duration, percent};

const BOLD: &str = "1";
const DIM: &str = "2";
const WARN: &str = "33";
const BOLD_WARN: &str = "1;33";
const BAD: &str = "31";

/// A measurement.
pub fn measurement(report: &Report, style: &Style) -> String {
    let mut out = Text { out: String::new(), style: *style };
    out.line(&headline(report), DIM);
    out.line("", "");
    if let Some(decided) = &report.objective {
        out.wrapped(&decision(decided), decision_colour(decided.decision));
        out.line("", "");
    }
    verdict(&mut out, report);
    if let Some(against) = &report.against {
        out.wrapped(&against_words(against), if against.worse { BAD } else { "" });
    }
    out.line("", "");
    table(&mut out, report);
    out.line("", "");
    assumptions(&mut out, report);
    if !report.restarts.is_empty() {
        let times = counted(report.restarts.len() as u64, "time");
        let why = unique(report.restarts.iter().cloned());
        out.wrapped(&format!("restarted {times}, earlier samples discarded: {why}"), WARN);
    }
    out.wrapped(&client(report), DIM);
    out.wrapped(&requests(report), DIM);
    agents(&mut out, report);
    // The verdict says it already, and the table has the client's lateness.
    let said = |remark: &Remark| {
        matches!(remark.complaint, Complaint::Late { .. })
            || matches!(&report.verdict, Verdict::NotAvailable { reason, .. } if remark.text.starts_with(reason.as_str()))
    };
    for remark in report.complaints.iter().filter(|r| !said(r)) {
        out.wrapped(&format!("note: {}", remark.text), WARN);
    }
    out.out
}

/// An objective and on which side of it the percentile is, in a sentence.
fn decision(decided: &ObjectiveResult) -> String {
    let ObjectiveResult { objective, n, above, .. } = decided;
    let allowed = percent(1.0 - objective.quantile);
    let (n, above, objective) = (count(*n as u64), count(*above as u64), &objective.words());
    let evidence = format!("{above} of {n} requests took longer or failed, {allowed} may");
    let sure = |confidence: f64| format!("confidence {}", percent_down(confidence));
    match (decided.decision, decided.confidence) {
        (Decision::Met, Some(below)) => format!("{objective}: met ({}): {evidence}", sure(below)),
        (Decision::Missed, Some(below)) if decided.reason.is_none() => {
            format!("{objective}: MISSED ({}): {evidence}", sure(1.0 - below))
        }
        (Decision::Missed, _) => format!("{objective}: MISSED: {}", decided.reason.as_deref().unwrap_or(&evidence)),
        (_, below) => {
            let why = decided.reason.as_deref().unwrap_or("the samples do not tell");
            let below =
                below.map_or(String::new(), |below| format!("; confidence that it is met {}", percent_down(below)));
            format!("{objective}: open, neither met nor missed with 95 % confidence: {why} ({evidence}{below})")
        }
    }
}

fn decision_colour(decision: Decision) -> &'static str {
    match decision {
        Decision::Met => BOLD,
        Decision::Missed => BAD,
        Decision::Open => BOLD_WARN,
    }
}

/// Assumptions that held; those that did not, with their figures; those that were not checked.
fn assumptions(out: &mut Text, report: &Report) {
    let ids = |state: State| report.assumptions.iter().filter(move |a| a.state == state);
    let held = unique(ids(State::Held).map(|a| held_words(&a.id)));
    if !held.is_empty() {
        out.wrapped(&format!("checks passed: {held}"), DIM);
    }
    // The one that the verdict names is printed already; dependent samples are mentioned in the interval's label.
    let named = |c: &Checked| {
        let blamed = |failed: &Checked| failed == c || is_beside(c, failed);
        matches!(&report.verdict, Verdict::NotAvailable { failed, .. } if blamed(failed))
    };
    for check in
        report.checks.iter().filter(|c| !c.passed && !named(c) && c.id != AssumptionId::Method(CheckId::Independence))
    {
        let name =
            if check.id == AssumptionId::Method(CheckId::AgentsDiffer) { "note: agents-differ" } else { "not held" };
        out.wrapped(&format!("{name}: {}", evidence(check)), WARN);
    }
    let mut whys: Vec<&str> = Vec::new();
    for why in ids(State::NotChecked).filter_map(|a| a.because.as_deref()) {
        if !whys.contains(&why) {
            whys.push(why);
        }
    }
    for why in whys {
        let unchecked = ids(State::NotChecked).filter(|a| a.because.as_deref() == Some(why));
        let names: Vec<String> = unchecked.map(|a| a.id.name().replace('-', " ")).collect();
        out.wrapped(&format!("not checked, because {why}: {}", names.join(", ")), DIM);
    }
}

/// What each of several agents saw.
fn agents(out: &mut Text, report: &Report) {
    for agent in &report.by_agent {
        let words = |(name, estimate): (&String, &Option<Estimate>)| match estimate {
            Some(e) => format!("{name} {} ({} to {})", ns(e.value), ns(e.lower), ns(e.upper)),
            None => format!("{name} N/A (its samples alone do not tell)"),
        };
        let percentiles: Vec<String> = agent.percentiles.iter().map(words).collect();
        let n = counted(agent.n as u64, "sample");
        out.wrapped(&format!("agent {}: {}, {n}", agent.agent, percentiles.join(", ")), DIM);
    }
}

fn headline(r: &Report) -> String {
    let sent = count(r.rate.sent.round() as u64);
    let rate = match r.rate.asked {
        Some(asked) => format!("{} requests/s asked, {sent} sent", count(asked.round() as u64)),
        None if r.plan.arrivals.is_closed() => format!(
            "closed loop ({}), {sent} requests/s: without what requests wait that come while the server is busy",
            r.plan.arrivals
        ),
        None => format!("{sent} requests/s"),
    };
    let arrivals = if r.plan.arrivals.is_closed() { String::new() } else { format!(", {} arrivals", r.plan.arrivals) };
    format!(
        "{} at {}: {rate}{arrivals}, {}",
        r.protocol,
        r.target,
        counted(u64::from(r.plan.connections), "connection")
    )
}

fn latency_name(latency: Latency) -> &'static str {
    match latency {
        Latency::Response => "response time",
        Latency::Service => "service time",
    }
}

fn verdict(out: &mut Text, r: &Report) {
    match &r.verdict {
        Verdict::Number { percentiles } => {
            for p in percentiles {
                out.line(&number(p, latency_name(r.latency)), BOLD);
                if let Some(how) = how(p) {
                    out.wrapped(&format!("  {how}"), "");
                }
            }
        }
        Verdict::NotAvailable { failed, reason, hint, .. } => {
            out.wrapped(&format!("N/A: {reason}"), &format!("{BOLD};{WARN}"));
            known(out, r, "  ");
            let others = r.checks.iter().filter(|c| is_beside(c, failed)).map(beside);
            let others: Vec<String> = others.collect();
            let others =
                if others.is_empty() { String::new() } else { format!("; the same test: {}", others.join(", ")) };
            out.wrapped(&format!("  test: {}{others}", evidence(failed)), "");
            out.wrapped(&format!("  try: {hint}"), "");
            let kept = &r.kept;
            if kept.n > 0 && r.response_ns.n == 0 {
                let at = |name: &str, v: Option<f64>| v.map_or(String::new(), |v| format!(", {name} {}", ns(v)));
                let values = [at("p50", kept.p50), at("p99", kept.p99), at("slowest", kept.max)].concat();
                out.wrapped(&format!("  kept, but not a result: {}{values}", counted(kept.n as u64, "sample")), DIM);
            }
        }
    }
}

/// The results for each percentile where the whole is N/A, or why there are none.
fn known(out: &mut Text, r: &Report, indent: &str) {
    let Verdict::NotAvailable { failed, passed, bounds, missing, no_bounds_because, .. } = &r.verdict else { return };
    let latency = latency_name(r.latency);
    // Wrong arrivals stay wrong however wide an interval is asked for.
    let by_width = matches!(failed.id, AssumptionId::Method(CheckId::IntervalWidth | CheckId::ClientLateness));
    for p in passed {
        out.wrapped(&format!("{indent}what passed: {}", number(p, latency)), BOLD);
        if let Some(how) = how(p) {
            out.wrapped(&format!("{indent}  {how}"), "");
        }
    }
    for p in bounds {
        out.wrapped(&format!("{indent}known: {}", bound(p, latency, by_width)), BOLD);
        if let Some(how) = how(p) {
            out.wrapped(&format!("{indent}  {how}"), "");
        }
    }
    if bounds.iter().any(is_wandering) {
        let text = "the level moved, or the run is short for such long correlation: the intervals include that";
        out.wrapped(&format!("{indent}  {text}"), "");
    }
    if let Some(why) = no_bounds_because {
        let names: Vec<&str> = missing.iter().map(|m| m.percentile.as_str()).collect();
        out.wrapped(&format!("{indent}no bounds for {}: {why}", names.join(", ")), "");
    }
}

fn number(p: &KnownPercentile, latency: &str) -> String {
    let level = percent_down(p.level);
    let from = counted(p.n as u64, "sample");
    format!(
        "{} {latency}: {}   ({} to {} at {level}, {from})",
        p.percentile,
        ns(p.value_ns),
        ns(p.lower_ns),
        ns(p.upper_ns)
    )
}

/// An interval wider than asked for; `by_width`: nothing else was wrong.
fn bound(p: &KnownPercentile, latency: &str, by_width: bool) -> String {
    let width = (100.0 * (p.upper_ns - p.lower_ns) / p.value_ns.max(1.0)).ceil();
    let wider = format!("; `--ci {}:{width}%` would have been met", p.percentile);
    let (lower, upper, level) = (ns(p.lower_ns), ns(p.upper_ns), percent_down(p.level));
    // Wider than the value itself is no useful request.
    let wider = if by_width && width <= 100.0 { wider.as_str() } else { "" };
    format!("{} {latency} between {lower} and {upper} at {level}{wider}", p.percentile)
}

fn is_wandering(p: &KnownPercentile) -> bool {
    matches!(p.how, IntervalMethod::SelfNormalised { .. })
}

/// How an interval was made, where it is not the plain one, and it is not said of all of them.
fn how(p: &KnownPercentile) -> Option<String> {
    match p.how {
        IntervalMethod::OrderStatistic => None,
        IntervalMethod::EffectiveSampleSize { effective_n, .. } => Some(format!(
            "neighbouring samples are correlated: the interval is that of {} independent samples (effective sample \
             size)",
            count(effective_n as u64)
        )),
        IntervalMethod::SelfNormalised { .. } => None,
        _ => Some("not from order statistics".into()),
    }
}

fn table(out: &mut Text, r: &Report) {
    let mut names: Vec<&String> = r.response_ns.percentiles.keys().collect();
    names.sort_by(|a, b| depth(a).total_cmp(&depth(b)));
    let mut head = format!("{:17}", "");
    names.iter().for_each(|name| head += &format!("{name:>11}"));
    out.line(&format!("{head}{:>11}", "slowest"), DIM);
    let mut row = |name: &str, cells: Vec<Option<f64>>| {
        let mut line = format!("{name:17}");
        cells.into_iter().for_each(|c| line += &format!("{:>11}", c.map_or("N/A".to_owned(), ns)));
        out.line(&line, "");
    };
    let values_of = |s: &Summary| -> Vec<Option<f64>> {
        let value = |name: &&String| s.percentiles.get(*name).copied().flatten().map(|e: Estimate| e.value);
        names.iter().map(value).chain([s.max]).collect()
    };
    let rows = [("response time", &r.response_ns), ("service time", &r.service_ns)];
    for (name, summary) in rows {
        row(name, values_of(summary));
    }
    let late = &r.lateness_ns;
    // Files of older versions have these three.
    let cell = |name: &&String| match name.as_str() {
        name if late.percentiles.contains_key(name) => late.percentiles[name],
        "p50" => late.p50,
        "p99" => late.p99,
        "p99.9" => late.p99_9,
        _ => None,
    };
    let mut line = format!("{:17}", "client lateness");
    for name in &names {
        line += &format!("{:>11}", cell(name).map_or("N/A".to_owned(), |v| ns(v as f64)));
    }
    out.line(&(line + &format!("{:>11}", late.max.map_or("N/A".into(), |v| ns(v as f64)))), "");
    for (name, summary) in rows {
        why_missing(out, name, summary);
    }
    if late.n == 0 {
        let closed = r.plan.arrivals.is_closed();
        let why = if closed { "a closed loop has no times at which requests are due" } else { "no request was sent" };
        out.wrapped(&format!("client lateness N/A: {why}"), DIM);
    }
}

/// Why cells of a row are N/A, a line for each reason.
fn why_missing(out: &mut Text, row: &str, summary: &Summary) {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut missing: Vec<(&String, &String)> = summary.because.iter().collect();
    missing.sort_by(|a, b| depth(a.0).total_cmp(&depth(b.0)));
    for (name, why) in missing {
        match lines.iter_mut().find(|(listed, _)| listed == why) {
            Some((_, names)) => names.push(name),
            None => lines.push((why, vec![name])),
        }
    }
    for (why, names) in lines {
        out.wrapped(&format!("{row} N/A for {}: {why}", names.join(", ")), DIM);
    }
}

/// Whether a check is the one that the verdict names, of another series, and failed, too: it is printed with that.
fn is_beside(check: &Checked, failed: &Checked) -> bool {
    !check.passed && check != failed && (&check.id, &check.test) == (&failed.id, &failed.test)
}

/// What such a check found: `p99 0.31`.
fn beside(check: &Checked) -> String {
    let value = check.p_value.filter(|_| check.threshold_is_p).map(|p| format!("p {}", figure(p)));
    let value = value.or(check.statistic.map(figure)).unwrap_or_else(|| "N/A".into());
    format!("{} {value}", check.subject.as_deref().unwrap_or("all samples"))
}

/// 99.9 of `p99.9`.
fn depth(name: &str) -> f64 {
    name.trim_start_matches('p').parse().unwrap_or(100.0)
}

/// A figure without a unit, to four digits behind the point.
fn figure(v: f64) -> String {
    if v != 0.0 && v.abs() < 0.001 { format!("{v:.1e}") } else { format!("{}", (v * 1e4).round() / 1e4) }
}

/// A check with its numbers: `relative error …: 0.21, threshold 0.02, n 1,234`.
pub fn evidence(c: &Checked) -> String {
    let (test, is_time) = c.test.strip_suffix(", ns").map_or((c.test.as_str(), false), |test| (test, true));
    let figure = |v: f64| if is_time { ns(v) } else { figure(v) };
    let about = c.subject.as_deref().map_or(String::new(), |s| format!(" ({s})"));
    let statistic = c.statistic.map_or(String::new(), |v| format!(": {}", figure(v)));
    let p = c.p_value.map_or(String::new(), |p| format!(", p {}", figure(p)));
    let bound = if c.threshold_is_p { "p threshold" } else { "threshold" };
    let threshold = c.threshold.map_or(String::new(), |t| format!(", {bound} {}", figure(t)));
    format!("{test}{about}{statistic}{p}{threshold}, n {}", count(c.n))
}

fn held_words(id: &AssumptionId) -> String {
    let AssumptionId::Method(check) = id else { return id.name().replace('-', " ") };
    match check {
        CheckId::Load => "load kept",
        CheckId::Errors => "error rate low enough",
        CheckId::ClientLateness => "client lateness below the width asked for",
        CheckId::Arrivals => "arrivals as specified",
        CheckId::ArrivalsSuperposed => "arrivals of all agents combined as specified",
        CheckId::ArrivalIndependence => "gaps independent",
        CheckId::WarmUp => "warm-up over",
        CheckId::UnitRoot => "no random walk",
        CheckId::Drift => "no drift of the median",
        CheckId::TailDrift => "no drift of the tail",
        CheckId::RunLength => "long enough",
        CheckId::AgentsDiffer => "agents agree",
        CheckId::Independence => "samples independent",
        CheckId::IntervalWidth => "interval narrow enough",
        _ => return id.name().replace('-', " "),
    }
    .into()
}

fn unique(words: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    words.for_each(|w| {
        if !distinct.contains(&w) {
            distinct.push(w)
        }
    });
    distinct.join(", ")
}

fn client(r: &Report) -> String {
    let c = &r.client;
    let price = c.cpu_ns_per_request.map_or("N/A".into(), ns);
    let late = match (r.lateness_ns.p99, r.lateness_ns.overslept_p99) {
        (Some(p99), Some(woke)) => {
            let (p99, woke) = (ns(p99 as f64), ns(woke as f64));
            format!("; late by {p99} at p99: {woke} from waking too late, the rest from being busy with other requests")
        }
        _ => String::new(),
    };
    let mut text = format!(
        "client: {price} of CPU per request{late}; the busiest of {} used {} of its core and waited {} for it; {} of \
         receive time stamps are the kernel's",
        counted(c.threads as u64, "thread"),
        percent(c.busiest_thread),
        percent(c.starved_thread),
        percent(c.stamped)
    );
    text += match (c.real_time, r.plan.real_time) {
        (true, _) => "; its threads ran at real-time priority",
        (false, true) => "; real-time priority was refused (it needs root, CAP_SYS_NICE or a limit for it: ulimit -r)",
        (false, false) => "",
    };
    if c.hardware > 0.0 {
        let source = c.stamps.as_deref().unwrap_or("hardware");
        text += &format!(" or the NIC's; of {}, both times are by {source}", percent(c.hardware));
    }
    if c.shared_samples > 0 {
        let has_bounds = match &r.verdict {
            Verdict::Number { .. } => true,
            Verdict::NotAvailable { passed, bounds, .. } => !passed.is_empty() || !bounds.is_empty(),
        };
        text += &format!(
            "; {} ({}) have the time stamp of a later reply that was read in the same call, and {}",
            counted(c.shared_samples, "sample"),
            percent(c.shared),
            if has_bounds { "the intervals include when they may have arrived" } else { "may have arrived earlier" }
        );
    }
    // Where nothing would help, nothing is printed.
    if let (Some(why), Some(hint)) = (&c.stamps_why, &c.stamps_hint) {
        text += &format!("; {why}: {hint}");
    }
    text
}

fn requests(r: &Report) -> String {
    let c = &r.counts;
    let mut text = format!("requests: {} sent, {} answered", count(c.sent), count(c.answered()));
    for (n, what) in [
        (c.miss, "misses"),
        (c.error, "errors"),
        (c.wrong, "wrong"),
        (c.closed, "cut off"),
        (c.garbage, "garbage"),
        (c.lost, "lost"),
        (c.unanswered, "unanswered"),
        (c.unsent, "never sent"),
        (c.blocked, "delayed by full connections"),
        (c.reconnects, "reconnects"),
        (c.redirects, "redirects (not followed)"),
    ] {
        if n > 0 {
            text += &format!(", {} {what}", count(n));
        }
    }
    text
}

fn against_words(a: &Against) -> String {
    let verdict = match (a.worse, a.better) {
        (true, _) => "WORSE than",
        (_, true) => "better than",
        _ => "not shown to be worse than",
    };
    format!(
        "{verdict} {}: {} {} against {} (difference {} to {} at 95 %, p of \"not slower\" {:.4}, blocks of {})",
        a.file,
        a.percentile,
        ns(a.value_ns),
        ns(a.other_ns),
        signed(a.lower_ns),
        signed(a.upper_ns),
        a.p_slower,
        a.block
    )
}

/// Two servers that were measured in turn: a line a round, then which is slower.
pub fn comparison(c: &Comparison, style: &Style) -> String {
    let mut out = Text { out: String::new(), style: *style };
    out.line(&format!("{} of {} beside {}, measured in turn", c.percentile, c.target, c.other), DIM);
    out.line("", "");
    out.line(&format!("{:>5} {:>11} {:>11} {:>9}", "round", "this", "the other", "ratio"), DIM);
    for (i, round) in c.rounds.iter().enumerate() {
        let time = |value: Option<f64>| value.map_or("N/A".into(), ns);
        let ratio = round.target_ns.zip(round.other_ns).map_or(String::new(), |(a, b)| format!("{:.3}", a / b));
        let why = round.reason.as_deref().map_or(String::new(), |why| format!("   {why}"));
        let line = format!("{:>5} {:>11} {:>11} {ratio:>9}{why}", i + 1, time(round.target_ns), time(round.other_ns));
        out.wrapped(&line, DIM);
    }
    out.line("", "");
    let times = match (c.ratio, c.ratio_ci95) {
        (Some(ratio), Some([lower, upper])) => {
            let n = c.rounds.iter().filter(|r| r.target_ns.is_some() && r.other_ns.is_some()).count();
            format!("{ratio:.3} times the other's, {lower:.3} to {upper:.3} at 95 %, {}", counted(n as u64, "round"))
        }
        _ => String::new(),
    };
    let p = |p: Option<f64>| p.map_or(String::new(), |p| format!("; p = {}", figure(p)));
    let allowed = if c.allowed > 0.0 { format!("; {} more are allowed", percent(c.allowed)) } else { String::new() };
    let (words, colour) = match c.verdict {
        ComparisonVerdict::Worse => (format!("WORSE: {} {times}{}{allowed}", c.percentile, p(c.p_slower)), BAD),
        ComparisonVerdict::Better => (format!("better: {} {times}{}", c.percentile, p(c.p_faster)), BOLD),
        ComparisonVerdict::Alike => {
            (format!("not shown to differ: {} {times}{}{allowed}", c.percentile, p(c.p_slower)), BOLD)
        }
        ComparisonVerdict::NotAvailable => {
            (format!("N/A: {}", c.reason.as_deref().unwrap_or("too few rounds")), BOLD_WARN)
        }
    };
    out.wrapped(&words, colour);
    out.out
}

/// A sweep: a line a rate, then saturation, then the objective.
pub fn sweep(sweep: &Sweep, style: &Style) -> String {
    let mut out = Text { out: String::new(), style: *style };
    out.line(&format!("{} at {}", sweep.protocol, sweep.target), DIM);
    out.line("", "");
    match &sweep.objective {
        None => rates(&mut out, sweep),
        Some(highest) => objective(&mut out, highest),
    }
    out.out
}

/// A line a rate, then saturation.
fn rates(out: &mut Text, sweep: &Sweep) {
    out.line(
        &format!(
            "{:>10} {:>10} {:>11} {:>11} {:>23} {:>11}",
            "asked/s", "sent/s", "p50", "asked for", "interval", "CPU/request"
        ),
        DIM,
    );
    for p in &sweep.points {
        match &p.report.verdict {
            Verdict::Number { percentiles } => {
                out.line(&point(p), "");
                // The row has the first; the others have lines of their own.
                for other in percentiles.iter().skip(1) {
                    out.wrapped(&format!("{:>22} {}", "", number(other, latency_name(p.report.latency))), "");
                }
            }
            Verdict::NotAvailable { .. } => {
                out.wrapped(&point(p), WARN);
                known(out, &p.report, &" ".repeat(24));
            }
        }
    }
    out.line("", "");
    out.wrapped(&saturation(sweep), BOLD);
}

/// From where on the load was not kept, in a sentence.
fn saturation(sweep: &Sweep) -> String {
    let rate = |r: f64| format!("{} requests/s", count(r.round() as u64));
    let whose = match sweep.limited_by {
        Some(Fate::Client) => " (the client's limit, not the server's)",
        _ => "",
    };
    match (sweep.highest_kept, sweep.lowest_missed) {
        (None, Some(missed)) => format!("no rate gave a latency; the lowest tried: {}{whose}", rate(missed)),
        (None, None) => "no rate gave a latency".into(),
        (Some(kept), Some(missed)) => {
            let [kept, missed] = [rate(kept), rate(missed)];
            format!("highest rate with a latency: {kept}; lowest rate above it without one: {missed}{whose}")
        }
        (Some(kept), None) => format!("highest rate with a latency: {}; saturation was not reached", rate(kept)),
    }
}

/// What a sweep found, in a sentence.
pub(super) fn outcome(sweep: &Sweep) -> String {
    match &sweep.objective {
        None => saturation(sweep),
        Some(highest) => answer(highest),
    }
}

/// The tries for an objective, then what holds it.
fn objective(out: &mut Text, highest: &Highest) {
    for t in &highest.tries {
        let confidence = t.confidence.map_or("N/A".into(), percent_down);
        let value = t.value_ns.map_or("N/A".into(), ns);
        let note =
            t.reason.as_deref().unwrap_or(if t.confirms { "a separate run that confirms the answer" } else { "" });
        let rate = count(t.rate.round() as u64);
        out.wrapped(&format!("{rate:>10}/s  {value:>10}  confidence {confidence:>7}  {note}"), DIM);
    }
    out.line("", "");
    let is_answered = highest.rate.is_some() && highest.confidence.is_some();
    out.wrapped(&answer(highest), if is_answered { BOLD } else { BOLD_WARN });
}

/// What holds an objective, in a sentence.
fn answer(highest: &Highest) -> String {
    let (Some(rate), Some(confidence)) = (highest.rate, highest.confidence) else {
        let reason = highest.reason.as_deref().unwrap_or("");
        let name = if highest.verdict == "not-met" { "NOT met" } else { "open" };
        return format!("{}: {name}: {reason}", highest.objective.words());
    };
    let range = highest.threshold.map_or(String::new(), |(a, b)| {
        let (a, b) = (count(a.round() as u64), count(b.round() as u64));
        format!("; the threshold is probably between {a} and {b}")
    });
    let bound = match highest.bound.as_str() {
        "client" => "; above it the client, not the server, is the limit",
        "limit" => "; --to allowed no higher rate",
        _ => "",
    };
    let (rate, confidence) = (count(rate.round() as u64), percent_down(confidence));
    let objective = highest.objective.words();
    format!("{objective} holds up to {rate} requests/s (confidence {confidence}{range}{bound})")
}

fn point(p: &Point) -> String {
    let r = &p.report;
    let asked = count(p.rate.round() as u64);
    let sent = count(r.rate.sent.round() as u64);
    match &r.verdict {
        Verdict::Number { percentiles } => {
            let summary = if r.latency == Latency::Response { &r.response_ns } else { &r.service_ns };
            let p50 = summary.percentiles.get("p50").copied().flatten().map_or("N/A".into(), |e| ns(e.value));
            let first = percentiles.first();
            let (value, interval) = first.map_or_else(Default::default, |k| {
                (format!("{} {}", k.percentile, ns(k.value_ns)), format!("{} to {}", ns(k.lower_ns), ns(k.upper_ns)))
            });
            let cpu = r.client.cpu_ns_per_request.map_or("N/A".into(), ns);
            format!("{asked:>10} {sent:>10} {p50:>11} {value:>11} {interval:>23} {cpu:>11}")
        }
        Verdict::NotAvailable { reason, .. } => format!("{asked:>10} {sent:>10}   N/A: {reason}"),
    }
}

fn ns(value: f64) -> String {
    duration(value.max(0.0).round() as u64)
}

fn signed(value: f64) -> String {
    let text = ns(value.abs());
    if value < 0.0 { format!("-{text}") } else { format!("+{text}") }
}

/// A confidence, never rounded up: nothing is 100 % sure.
fn percent_down(share: f64) -> String {
    if share > 0.999 {
        return "above 99.9 %".into();
    }
    let value = (share * 1000.0 + 1e-9).floor() / 10.0;
    format!("{} %", if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") })
}

/// Lines of a terminal.
struct Text {
    out: String,
    style: Style,
}

impl Text {
    fn line(&mut self, text: &str, code: &str) {
        // Names of hosts and agents, and texts of servers, are untrusted.
        let clean = Untrusted(text).to_string();
        let clean = clean.trim_end();
        if self.style.color && !code.is_empty() && !clean.is_empty() {
            self.out += &format!("\x1b[{code}m{clean}\x1b[0m");
        } else {
            self.out += clean;
        }
        self.out.push('\n');
    }

    /// Broken at spaces; later lines are indented by two more than the first.
    fn wrapped(&mut self, text: &str, code: &str) {
        let columns = self.style.width.clamp(60, 140);
        if text.chars().count() <= columns {
            return self.line(text, code);
        }
        let indent = text.len() - text.trim_start().len();
        let mut line = " ".repeat(indent);
        for word in text.split_whitespace() {
            let longer = line.chars().count() + 1 + word.chars().count() > columns;
            if longer && !line.trim().is_empty() {
                self.line(&line, code);
                line = " ".repeat(indent + 2);
            } else if !line.trim().is_empty() {
                line.push(' ');
            }
            line += word;
        }
        self.line(&line, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_and_foreign_text_cannot_move_the_cursor() {
        let mut out = Text { out: String::new(), style: Style { color: false, width: 60 } };
        out.wrapped(&format!("  {}", "word ".repeat(30)), "");
        assert!(out.out.lines().all(|l| l.chars().count() <= 60) && out.out.lines().count() > 2, "{}", out.out);
        assert!(out.out.starts_with("  word") && out.out.contains("\n    word"), "{}", out.out);
        out.line("a\x1b[2Jb", "");
        assert!(out.out.ends_with("a?[2Jb\n"));
    }

    #[test]
    fn a_confidence_is_not_rounded_up() {
        assert_eq!(
            (percent_down(0.95), percent_down(0.99999), percent_down(1.0)),
            ("95 %".into(), "above 99.9 %".into(), "above 99.9 %".into())
        );
    }
}
