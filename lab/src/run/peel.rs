//! Is the first cause right once other work is removed? In: a run and its scenario. Out: whether the first cause of the
//! total leg is the expected one, as recorded and without other work (`diagnose --without`).
//!
//! Other work is stolen time and the run time of programs that the lab did not start; it is chosen by category and process
//! alone, before it is known which diagnosis is right. Kernel threads stay: it is not known beforehand which of them the
//! fault made busy. A scenario that expects stolen time keeps that.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;

use super::judge::{self, Named};
use super::scenario::Scenario;
use super::stage::{Lab, Take};

/// Causes of less than this share of the deviation are not removed.
const LEAST_SHARE: f64 = 0.01;

/// Whether the first cause of the total leg is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peeled {
    /// As recorded.
    pub recorded: bool,
    /// Without other work; as recorded where there is none.
    pub without: bool,
    /// As recorded, or the first cause is a queue and what held the messages ahead is the expected cause.
    pub root: bool,
}

/// Diagnoses the total leg of a run, also without other work. `None` where the scenario has no fault, or no verdict on that leg.
pub fn peeled(lab: &Lab, scenario: &Scenario, take: &Take, folder: &Path) -> anyhow::Result<Option<Peeled>> {
    let Some(total) = diagnose(lab, &take.run, &[])? else { return Ok(None) };
    let causes = judge::causes(&total);
    let Some(recorded) = judge::first_is_right(scenario, &causes) else { return Ok(None) };
    let root = judge::first_or_its_root_is_right(scenario, &causes) == Some(true);
    let others = others(scenario, &causes, &take.ours);
    if others.is_empty() {
        return Ok(Some(Peeled { recorded, without: recorded, root }));
    }
    let without = diagnose(lab, &take.run, &others)?;
    if let Some(without) = &without {
        std::fs::write(folder.join("without-others.json"), serde_json::to_vec(without)?)?;
    }
    let right = without.is_some_and(|of| judge::first_is_right(scenario, &judge::causes(&of)) == Some(true));
    Ok(Some(Peeled { recorded, without: right, root }))
}

/// The causes that are other work, as `--without` names them.
fn others(scenario: &Scenario, causes: &[Named], ours: &BTreeSet<u32>) -> Vec<String> {
    let expected = |cause: &Named| scenario.expect.iter().any(|expected| expected.is(&cause.category, &cause.name));
    let is_other = |cause: &&Named| {
        let foreign = !cause.pids.is_empty() && !cause.pids.iter().any(|pid| ours.contains(pid));
        let other = cause.category == "steal" || cause.category == "interference" && foreign;
        other && !expected(cause) && cause.share >= LEAST_SHARE && cause.deviation_ns > 0
    };
    let names: BTreeSet<String> =
        causes.iter().filter(is_other).map(|cause| format!("{}:{}", cause.category, cause.name)).collect();
    names.into_iter().collect()
}

/// `tailsight diagnose --leg total`, without these causes; `None` when there is not enough evidence.
fn diagnose(lab: &Lab, run: &Path, without: &[String]) -> anyhow::Result<Option<Value>> {
    lab.check()?;
    let mut command = Command::new(&lab.tailsight);
    command.args(["diagnose", "--json", "--leg", "total"]).arg(run);
    for name in without {
        command.args(["--without", name]);
    }
    let output = command.output().context("cannot run tailsight")?;
    match output.status.code() {
        Some(0) => Ok(Some(serde_json::from_slice(&output.stdout).context("what diagnose printed is not JSON")?)),
        Some(3) => Ok(None),
        _ => bail!("tailsight diagnose: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::*;

    #[test]
    fn stolen_time_and_programs_that_are_not_the_labs_are_other_work() {
        let named = |category: &str, name: &str, pids: &[u32], share: f64| Named {
            category: category.into(),
            name: name.into(),
            pids: pids.to_vec(),
            share,
            deviation_ns: (share * 1e6) as i64,
            ..Named::default()
        };
        let causes = [
            named("interference", "lab-hog", &[10], 0.5),
            named("interference", "somebody", &[99], 0.2),
            named("interference", "seldom", &[98], 0.001),
            named("interference", "unknown", &[], 0.1),
            named("os-threads", "kworker", &[7], 0.1),
            named("steal", "hypervisor", &[], 0.05),
            named("steal", "hypervisor", &[], -0.05),
        ];
        let ours = BTreeSet::from([10]);
        let scenario = |name: &str| catalogue::all().into_iter().find(|s| s.name == name).expect("a scenario");
        assert_eq!(others(&scenario("cpu-hog"), &causes, &ours), ["interference:somebody", "steal:hypervisor"]);
        let stolen = catalogue::all().into_iter().find(|s| s.expect.iter().any(|c| c.category == "steal"));
        if let Some(stolen) = stolen {
            assert_eq!(others(&stolen, &causes, &ours), ["interference:somebody"]);
        }
    }
}
