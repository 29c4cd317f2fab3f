//! `lab replay`: the recordings of a folder, diagnosed again, beside the time before. No rights are needed.
//!
//! In: a folder with runs of `tailsight record`, where there is one with the key of what is right (`key.json` beside the run); the tailsight
//! binary beside this one. Out: a line for each run and leg, with the first causes, and each value that differs from the time before; the
//! answers, in `replay/` of that folder. Exit 0 equal, 1 failed, 4 something differs.
//!
//! Equality is the test of a change that is to change no answer; of one that is to change some, what it prints is what it is worth.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tailsight_lifetime::{Threshold, ThresholdUnit};

use crate::run::{Named, causes, first_is_right, scenario_of};

/// `lab replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A folder with recordings, at most four folders deep.
    dir: PathBuf,
    /// Which legs.
    #[arg(long, value_delimiter = ',', default_value = "total,receive,service,transmit")]
    legs: Vec<String>,
    /// What is said now is what the next time is held against, also where it differs.
    #[arg(long)]
    accept: bool,
    /// Do not ask this rule what sleeps were for (docs/rules.md): what differs is what it is worth. Nothing is kept.
    #[arg(long, value_name = "RULE", conflicts_with = "accept")]
    without_rule: Vec<String>,
    /// Another value of a threshold of what is inferred (docs/thresholds.md): what differs is what it is worth. Nothing is kept.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "accept")]
    threshold: Vec<String>,
    /// Each threshold times and through this, one after the other: how many first causes change, and how many are right. Nothing is kept.
    #[arg(long, value_name = "FACTOR", conflicts_with_all = ["accept", "without_rule", "threshold"])]
    vary: Option<f64>,
    /// The most differing values that are printed of a run and a leg.
    #[arg(long, default_value_t = 5)]
    most: usize,
    /// The binary of tailsight [default: beside this one].
    #[arg(long, value_name = "FILE")]
    tailsight: Option<PathBuf>,
}

/// What is right for a recording: a scenario of the lab's, or causes, one of which is to come first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Key {
    /// A scenario, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// What was wrong, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The leg that is judged; the total one, if none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<String>,
    /// The causes, one of which is to come first on that leg.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub right: Vec<RightCause>,
}

/// A cause that is right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RightCause {
    /// Its category.
    pub category: String,
    /// How its name begins.
    pub name: String,
    /// A part of its first function's name, or of that of what held the queue.
    pub function: String,
}

impl Key {
    /// The file of a run's key.
    pub fn beside(run: &Path) -> PathBuf {
        run.parent().unwrap_or(run).join("key.json")
    }

    /// The leg that is judged.
    pub fn leg(&self) -> &str {
        self.leg.as_deref().filter(|leg| *leg != "default").unwrap_or("total")
    }

    /// The key of a run; an empty one where there is none.
    ///
    /// # Errors
    /// If its file cannot be read, or is no key.
    pub fn of(run: &Path) -> anyhow::Result<Key> {
        let file = [Key::beside(run), run.with_extension("key.json")].into_iter().find(|file| file.is_file());
        let Some(file) = file else { return Ok(Key::default()) };
        let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no key", file.display()))
    }

    /// Whether the first cause is right; `None` where nobody knows, or nothing is wrong.
    pub fn judge(&self, causes: &[Named]) -> Option<bool> {
        if let Some(scenario) = self.scenario.as_deref().and_then(scenario_of) {
            return first_is_right(&scenario, causes);
        }
        let first = causes.first();
        let is = |right: &RightCause| first.is_some_and(|first| right.is(first));
        (!self.right.is_empty()).then(|| self.right.iter().any(is))
    }
}

impl RightCause {
    fn is(&self, named: &Named) -> bool {
        let of_queue = named.roots.first().and_then(|root| root.functions.first());
        let functions = named.functions.first().into_iter().chain(of_queue);
        named.category == self.category
            && named.name.starts_with(&self.name)
            && (self.function.is_empty()
                || functions.into_iter().any(|function| function.name.contains(&self.function)))
    }
}

/// A run's answer on a leg.
struct Answer {
    run: String,
    leg: String,
    /// Whether the first cause is right.
    right: Option<bool>,
    /// The first causes in words.
    says: String,
    /// The rules for sleeps that decided any of the focus's time.
    rules: Vec<String>,
    /// Values that differ from the time before; `None` where there is none.
    differs: Option<Vec<String>>,
}

/// `lab replay`.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let tailsight = program(args.tailsight.as_deref())?;
    let runs = runs_in(&args.dir)?;
    if let Some(factor) = args.vary {
        return vary(args, &tailsight, &runs, factor);
    }
    let answers = on_every_core(args, &runs, |run, leg| again(args, &tailsight, run, leg))?;
    let mut counts = Counts::default();
    for answer in answers.values() {
        print(answer, args.most);
        counts.add(answer);
    }
    counts.print(runs.len());
    print_rules(answers.values());
    Ok(if counts.different > 0 && !args.accept { ExitCode::from(4) } else { ExitCode::SUCCESS })
}

/// Asks for each run and leg, on all cores; in the order of the runs and legs.
fn on_every_core<T: Send>(
    args: &ReplayArgs,
    runs: &[PathBuf],
    ask: impl Fn(&Path, &str) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<BTreeMap<(usize, usize), T>> {
    let legs = args.legs.len();
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let worker = || -> anyhow::Result<()> {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            let (of_run, of_leg) = (task / legs.max(1), task % legs.max(1));
            let Some((run, leg)) = runs.get(of_run).zip(args.legs.get(of_leg)) else { return Ok(()) };
            let answer = ask(run, leg)?;
            if let Ok(mut answers) = answers.lock() {
                answers.insert((of_run, of_leg), answer);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a thread of lab replay failed")))
    })?;
    Ok(answers.into_inner().unwrap_or_default())
}

/// A threshold's value times and through a factor; of a part of one, what remains to one through the factor.
fn varied(threshold: Threshold, factor: f64) -> [f64; 2] {
    let value = threshold.value();
    match threshold.unit() {
        ThresholdUnit::Share => [1.0 - (1.0 - value) / factor, value / factor],
        ThresholdUnit::Times => [value * factor, value / factor],
        ThresholdUnit::Ns | ThresholdUnit::Count => [(value * factor).round(), (value / factor).round().max(1.0)],
    }
}

/// `lab replay --vary`: what each threshold is worth.
fn vary(args: &ReplayArgs, tailsight: &Path, runs: &[PathBuf], factor: f64) -> anyhow::Result<ExitCode> {
    if factor.is_nan() || factor <= 1.0 {
        bail!("--vary is a factor above 1");
    }
    let keys = runs.iter().map(|run| Key::of(run)).collect::<anyhow::Result<Vec<Key>>>()?;
    let answers_with = |ablation: &Ablation| {
        on_every_core(args, runs, |run, leg| Ok(causes(&answer_of(tailsight, run, leg, ablation)?)))
    };
    let judged = |answers: &BTreeMap<(usize, usize), Vec<Named>>| {
        let of_key = answers.iter().filter(|((run, leg), _)| args.legs[*leg] == keys[*run].leg());
        of_key.filter(|((run, _), causes)| keys[*run].judge(causes) == Some(true)).count()
    };
    let called = |causes: &Vec<Named>| causes.first().map(|first| (first.category.clone(), first.name.clone()));
    let usual = answers_with(&Ablation::default())?;
    println!("as they are: {} of {} answers judged right", judged(&usual), usual.len());
    println!("| threshold | value | first causes that change | right | value | first causes that change | right |");
    println!("|---|---|---|---|---|---|---|");
    for &threshold in Threshold::ALL {
        let mut line = format!("| `{}` ({})", threshold.id(), threshold.value());
        for value in varied(threshold, factor) {
            let ablation = Ablation { thresholds: vec![format!("{}={value}", threshold.id())], ..Ablation::default() };
            let answers = answers_with(&ablation)?;
            let changed = answers.iter().filter(|(at, causes)| called(causes) != called(&usual[at])).count();
            line += &format!(" | {value} | {changed} | {}", judged(&answers));
        }
        println!("{line} |");
    }
    Ok(ExitCode::SUCCESS)
}

/// What a diagnosis does otherwise than by default, to see what that is worth.
#[derive(Clone, Debug, Default)]
pub struct Ablation {
    /// Rules that are not asked.
    pub without_rules: Vec<String>,
    /// Values of thresholds, each as NAME=VALUE.
    pub thresholds: Vec<String>,
}

/// The program that diagnoses.
///
/// # Errors
/// If it is not there.
pub fn program(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let itself = std::env::current_exe().context("cannot find this program")?;
    let tailsight = named.map_or_else(|| itself.with_file_name("tailsight"), Path::to_owned);
    if !tailsight.is_file() {
        bail!("{} is not there; cargo build -p tailsight, or name it with --tailsight", tailsight.display());
    }
    Ok(tailsight)
}

/// The runs below a folder, in order.
///
/// # Errors
/// If there are none, or it cannot be read.
pub fn runs_in(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut runs = Vec::new();
    find_runs(dir, 4, &mut runs)?;
    if runs.is_empty() {
        bail!("{} holds no run of `tailsight record` (a folder with run.json)", dir.display());
    }
    runs.sort();
    Ok(runs)
}

#[derive(Default)]
struct Counts {
    answers: usize,
    equal: usize,
    different: usize,
    first: usize,
    right: usize,
    judged: usize,
}

impl Counts {
    fn add(&mut self, answer: &Answer) {
        self.answers += 1;
        match &answer.differs {
            None => self.first += 1,
            Some(values) if values.is_empty() => self.equal += 1,
            Some(_) => self.different += 1,
        }
        if let Some(right) = answer.right {
            self.judged += 1;
            self.right += usize::from(right);
        }
    }

    fn print(&self, runs: usize) {
        let Counts { answers, equal, different, first, right, judged } = self;
        println!(
            "{answers} answers of {runs} runs: {equal} as before, {different} different, {first} new; first cause right in {right} of {judged}"
        );
    }
}

/// How many answers each rule had a part in, and how many of those are right.
fn print_rules<'a>(answers: impl Iterator<Item = &'a Answer>) {
    let mut by_rule: BTreeMap<&str, (usize, usize, usize)> = BTreeMap::new();
    for answer in answers {
        for rule in &answer.rules {
            let (answered, right, wrong) = by_rule.entry(rule).or_default();
            *answered += 1;
            *right += usize::from(answer.right == Some(true));
            *wrong += usize::from(answer.right == Some(false));
        }
    }
    for (rule, (answered, right, wrong)) in by_rule {
        println!("  {rule:<18} in {answered:>4} answers; of the judged ones {right} right, {wrong} wrong");
    }
}

fn print(answer: &Answer, most: usize) {
    let right = match answer.right {
        Some(true) => "right",
        Some(false) => "WRONG",
        None => "-",
    };
    let change = match &answer.differs {
        None => "new".to_owned(),
        Some(values) if values.is_empty() => "equal".to_owned(),
        Some(values) => format!("{} values differ", values.len()),
    };
    println!("{:<28} {:<9} {right:<6} {change:<18} {}", answer.run, answer.leg, answer.says);
    for value in answer.differs.iter().flatten().take(most) {
        println!("    {value}");
    }
}

/// Folders with run.json.
fn find_runs(dir: &Path, depth: usize, runs: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if dir.join("run.json").is_file() {
        runs.push(dir.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        find_runs(&entry.path(), depth - 1, runs)?;
    }
    Ok(())
}

/// What `diagnose` says of a run's leg; a refusal is a text.
///
/// # Errors
/// If it cannot be run, or was killed.
pub fn answer_of(tailsight: &Path, run: &Path, leg: &str, ablation: &Ablation) -> anyhow::Result<Value> {
    let output = Command::new(tailsight)
        .args(["diagnose", "--json", "--why", "--leg", leg])
        .args(ablation.without_rules.iter().flat_map(|rule| ["--without-rule", rule]))
        .args(ablation.thresholds.iter().flat_map(|threshold| ["--threshold", threshold]))
        .arg(run)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", tailsight.display()))?;
    let now: Value = match output.status.code() {
        Some(0) => serde_json::from_slice(&output.stdout).context("what diagnose printed is not JSON")?,
        // A refusal is an answer, too.
        Some(_) => Value::String(first_line(&output.stderr, run)),
        None => bail!("diagnose of {} was killed", run.display()),
    };
    Ok(without_places(now))
}

/// Diagnoses a run again and compares.
fn again(args: &ReplayArgs, tailsight: &Path, run: &Path, leg: &str) -> anyhow::Result<Answer> {
    let ablation = Ablation { without_rules: args.without_rule.clone(), thresholds: args.threshold.clone() };
    let now = answer_of(tailsight, run, leg, &ablation)?;
    let name = run.strip_prefix(&args.dir).unwrap_or(run).to_string_lossy().into_owned();
    let file = args.dir.join("replay").join(format!("{}.{leg}.json", name.replace('/', "--")));
    let before: Option<Value> = match std::fs::read(&file) {
        Ok(text) => Some(serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display()))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    if (before.is_none() || args.accept) && args.without_rule.is_empty() && args.threshold.is_empty() {
        std::fs::create_dir_all(args.dir.join("replay"))?;
        std::fs::write(&file, serde_json::to_vec(&now)?).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let differs = before.map(|before| {
        let mut values = vec![];
        differences("", &before, &now, &mut values);
        values
    });
    let rules = |answer: &Value| {
        answer["rules"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|rule| rule["rule"].as_str())
            .map(str::to_owned)
            .collect()
    };
    let (rules, causes) = (rules(&now), causes(&now));
    let key = Key::of(run)?;
    let right = if leg == key.leg() { key.judge(&causes) } else { None };
    Ok(Answer { run: name, leg: leg.to_owned(), right, says: says(&now, &causes), rules, differs })
}

/// What a refusal says, without the place of the run.
fn first_line(stderr: &[u8], run: &Path) -> String {
    let text = String::from_utf8_lossy(stderr).replace(&run.display().to_string(), "RUN");
    text.lines().next().unwrap_or_default().to_owned()
}

/// Without what depends on where the run lies, who diagnoses, and how: the path stands in commands, too.
fn without_places(answer: Value) -> Value {
    match answer {
        Value::Object(mut fields) => {
            let run = fields.get("run").and_then(Value::as_str).map(str::to_owned);
            fields.remove("version");
            fields.remove("thresholds");
            let answer = Value::Object(fields);
            match run {
                Some(run) => replaced(answer, &run),
                None => answer,
            }
        }
        other => other,
    }
}

fn replaced(value: Value, run: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(run, "RUN")),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| replaced(item, run)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, replaced(value, run))).collect())
        }
        other => other,
    }
}

/// The values that differ, each as `path: before → now`.
fn differences(path: &str, before: &Value, now: &Value, out: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(of), Value::Object(to)) => {
            let names = of.keys().chain(to.keys().filter(|name| !of.contains_key(*name)));
            for name in names {
                let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                differences(&at, of.get(name).unwrap_or(&Value::Null), to.get(name).unwrap_or(&Value::Null), out);
            }
        }
        (Value::Array(of), Value::Array(to)) => {
            for at in 0..of.len().max(to.len()) {
                let element = |list: &'_ [Value]| list.get(at).cloned().unwrap_or(Value::Null);
                differences(&format!("{path}[{at}]"), &element(of), &element(to), out);
            }
        }
        _ if before == now => {}
        _ => out.push(format!("{path}: {} → {}", short(before), short(now))),
    }
}

fn short(value: &Value) -> String {
    const MOST_CHARACTERS: usize = 100;
    let text = value.to_string();
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn says(answer: &Value, causes: &[Named]) -> String {
    if let Value::String(refusal) = answer {
        return refusal.clone();
    }
    let cause_text = |named: &Named| {
        let function = named.functions.first().map_or_else(String::new, |function| format!(" ▸ {}", function.name));
        format!("{:.1} % {} {}{function}", named.share * 100.0, named.category, named.name)
    };
    causes.iter().take(2).map(cause_text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_value_that_differs_is_told_by_its_place() {
        let before = json!({"causes": [{"share": 0.5, "name": "a"}], "p99": 7});
        let now = json!({"causes": [{"share": 0.25, "name": "a"}, {"share": 0.1}], "p99": 7});
        let mut out = vec![];
        differences("", &before, &now, &mut out);
        assert_eq!(out, ["causes[0].share: 0.5 → 0.25", "causes[1]: null → {\"share\":0.1}"]);
        out.clear();
        differences("", &now, &now, &mut out);
        assert_eq!(out, [""; 0]);
    }

    #[test]
    fn where_a_run_lies_is_no_difference() {
        let at = |place: &str| json!({"run": place, "version": "1", "fixes": [format!("tailsight fix {place} 1")]});
        assert_eq!(without_places(at("/a/run")), without_places(at("/b/run")));
    }

    #[test]
    fn a_key_is_judged_by_the_first_cause_and_its_function() {
        let right = |function: &str| Key {
            right: vec![RightCause {
                category: "hol-blocking".into(),
                name: "logsrv".into(),
                function: function.into(),
            }],
            ..Key::default()
        };
        let answer = json!({"causes": [
            {"category": "hol-blocking", "name": "logsrv/woken-by", "share": 0.8, "deviation_ns": 5,
             "root": [{"category": "app-processing", "name": "waits", "share": 1.0, "functions": [{"name": "main", "share": 1.0}]}]},
        ]});
        assert_eq!(right("").judge(&causes(&answer)), Some(true));
        assert_eq!(right("main").judge(&causes(&answer)), Some(true));
        assert_eq!(right("other").judge(&causes(&answer)), Some(false));
        assert_eq!(right("").judge(&[]), Some(false));
        assert_eq!(Key::default().judge(&causes(&answer)), None);
        assert_eq!(Key { scenario: Some("cpu-hog".into()), ..Key::default() }.judge(&causes(&answer)), Some(false));
    }
}
