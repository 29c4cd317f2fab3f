//! Set-ups that `tailsight fix` makes one after the other, on one server that runs. In: a figure whose set-ups have a [`Fix`]. Out:
//! the peak and the rounds of each.
//!
//! The first set-up is recorded, and every change is one that `tailsight fix` lists for this recording: nothing is changed that
//! Tailsight did not propose. At the end `tailsight fix --undo` undoes them, and the settings must be as they were.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use super::figure::{App, Figure, Fix};
use super::rig::{BACKGROUND_TASK, Rig};
use super::{Measured, PEAKS, Peak, Round, Served, Tales, TalesArgs, apps, once, undisturbed};
use crate::rig::LOAD_CPU;

/// The peaks, then the rounds; each round has every set-up of every server once.
pub fn measure(tales: &Tales, figure: &Figure, args: &TalesArgs) -> anyhow::Result<Vec<Measured>> {
    let mut all = Vec::new();
    for app in apps(figure, args) {
        all.push(peaks(tales, figure, app)?);
    }
    for number in 0..args.rounds as usize {
        for one in &mut all {
            round(tales, figure, one, number)?;
        }
    }
    Ok(all.into_iter().flatten().collect())
}

/// The peak of each set-up of a server, while the background process is stopped.
fn peaks(tales: &Tales, figure: &Figure, app: App) -> anyhow::Result<Vec<Measured>> {
    let mut served: Vec<Vec<Served>> = vec![vec![]; figure.setups.len()];
    let busy = tales.scratch.path().join("peak");
    for number in 0..PEAKS {
        let mut server = Mitigated::new(tales, app, figure)?;
        for (setup, served) in figure.setups.iter().zip(&mut served) {
            if let Some(fix) = setup.fix {
                server.make(fix)?;
            }
            let stopped = server.rig.without_background()?;
            let one = undisturbed(Served::counts, || server.rig.saturate(tales.window / 2, &busy))?;
            drop(stopped);
            served.push(one);
            if setup.fix.is_none() {
                let rate_per_s = one.per_s * figure.utilisation;
                server.rig.load(rate_per_s, number as u64, tales.window, &server.first)?;
            }
        }
    }
    let peaks: Vec<Peak> = served.into_iter().map(Peak::of).collect();
    let rate_per_s = peaks[0].per_s * figure.utilisation;
    Ok(figure.setups.iter().zip(peaks).map(|(setup, peak)| Measured::new(app, *setup, peak, rate_per_s)).collect())
}

/// Each set-up of a server once, with the same arrivals.
fn round(tales: &Tales, figure: &Figure, all: &mut [Measured], number: usize) -> anyhow::Result<()> {
    let Some(app) = all.first().map(|one| one.app) else { return Ok(()) };
    let mut server = Mitigated::new(tales, app, figure)?;
    let later = tales.scratch.path().join("run");
    for one in all {
        if let Some(fix) = one.setup.fix {
            one.made.push(server.make(fix)?);
        }
        let run: &Path = if one.setup.fix.is_none() { &server.first } else { &later };
        let seed = 100 + number as u64;
        one.add(number, undisturbed(Round::counts, || once(tales, figure, one, &server.rig, seed, run))?);
    }
    Ok(())
}

/// A server that is changed while it runs.
struct Mitigated<'a> {
    tales: &'a Tales,
    rig: Rig<'a>,
    /// Where the first recording is, or will be.
    first: PathBuf,
    /// The settings before anything was changed.
    before: BTreeSet<String>,
}

impl<'a> Mitigated<'a> {
    /// Starts a server in the first set-up.
    fn new(tales: &'a Tales, app: App, figure: &Figure) -> anyhow::Result<Self> {
        let setup = figure.setups.first().context("an experiment without a set-up")?;
        let rig = Rig::new(tales, app, setup)?;
        // Of an earlier server, which is gone.
        for file in ["fixes.toml", "fixes.lock"] {
            let _ = std::fs::remove_file(tales.scratch.path().join(file));
        }
        let before = rig.settings()?;
        Ok(Self { tales, rig, first: tales.scratch.path().join("first"), before })
    }

    /// Has `tailsight fix` make or undo it; says what that was.
    fn make(&mut self, fix: Fix) -> anyhow::Result<String> {
        let was = self.rig.settings()?;
        let said = match fix {
            Fix::Undo => self.undo()?,
            _ => self.apply(fix)?,
        };
        let is = self.rig.settings()?;
        match fix {
            Fix::Undo if is != self.before => {
                bail!("after the undo the settings are {is:?}, and were {:?}", self.before)
            }
            Fix::Undo => {}
            _ if is == was => bail!("tailsight fix said `{said}`, and the settings are as they were: {is:?}"),
            _ => {}
        }
        Ok(said)
    }

    fn apply(&self, fix: Fix) -> anyhow::Result<String> {
        let list = self.tales.json(self.tales.command("fix").arg(&self.first))?;
        let fixes = list["fixes"].as_array().context("a list of fixes")?;
        let Some(one) = fixes.iter().find(|one| one["changes"].as_array().is_some_and(|all| is(fix, all))) else {
            let titles: Vec<&str> = fixes.iter().filter_map(|one| one["title"].as_str()).collect();
            bail!("tailsight fix does not have {fix:?} for what was recorded; it has {titles:?}");
        };
        let number = one["n"].to_string();
        let made = self.tales.json(self.tales.command("fix").arg("--yes").arg(&self.first).arg(number))?;
        if made["made"] != true || made["changed"].as_u64() == Some(0) {
            bail!("tailsight fix changed nothing: {made}");
        }
        let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        Ok(format!("{}, against {}", word(&made["title"]), word(&made["cause"]["category"])))
    }

    fn undo(&self) -> anyhow::Result<String> {
        let undone = self.tales.json(self.tales.command("fix").arg("--undo"))?;
        if undone["left"] != 0 {
            bail!("tailsight fix did not undo all: {undone}");
        }
        Ok("tailsight fix --undo".to_owned())
    }
}

/// Whether the changes of a fix are this mitigation, alone.
fn is(fix: Fix, changes: &[Value]) -> bool {
    let [change] = changes else { return false };
    let has = |key: &str, value: &str| change[key] == value;
    match fix {
        Fix::RealTime => has("kind", "real-time"),
        Fix::BackgroundElsewhere => {
            has("kind", "pin-named") && has("comm", BACKGROUND_TASK) && has("cpus", &LOAD_CPU.to_string())
        }
        Fix::ReceiveElsewhere => {
            let mask = format!("{:x}", 1_u64 << LOAD_CPU);
            has("kind", "queues") && has("file", "rps_cpus") && has("value", &mask)
        }
        Fix::Undo => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mitigation_is_found_among_the_fixes_by_what_it_changes() {
        let real_time = [json!({ "kind": "real-time", "pids": [7] })];
        let neighbour = |comm: &str| [json!({ "kind": "pin-named", "comm": comm, "cpus": "1" })];
        let queues =
            |value: &str| [json!({ "kind": "queues", "device": "veth-s", "file": "rps_cpus", "value": value })];
        assert!(is(Fix::RealTime, &real_time));
        assert!(is(Fix::BackgroundElsewhere, &neighbour("lab-hog")));
        assert!(is(Fix::ReceiveElsewhere, &queues("2")));
        // Another program, both cores, more than one change, another mitigation.
        assert!(!is(Fix::BackgroundElsewhere, &neighbour("cron")));
        assert!(!is(Fix::ReceiveElsewhere, &queues("3")));
        assert!(!is(Fix::RealTime, &[real_time.clone(), neighbour("lab-hog")].concat()));
        assert!(!is(Fix::ReceiveElsewhere, &real_time) && !is(Fix::Undo, &real_time));
    }
}
