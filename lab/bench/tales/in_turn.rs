//! Set-ups that `tailsight fix` makes one after the other, on one server that runs. In: a figure whose set-ups have a [`Fix`]. Out:
//! the peak and the rounds of each.
//!
//! The first set-up is recorded, and every change is one that `tailsight fix` lists for this recording or, where a short one does not
//! show a cause, for one of a few more: nothing is changed that Tailsight did not propose. At the end `tailsight fix --undo` undoes them, and the settings must be as they were.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use super::figure::{App, Figure, Fix};
use super::rig::{BACKGROUND_TASK, Rig};
use super::{Measured, PEAKS, Peak, Round, Served, Tales, TalesArgs, apps, once, undisturbed};
use crate::rig::LOAD_CPU;

/// Recordings of the first set-up, at most, until all fixes are found.
const RECORDINGS: u64 = 5;

/// The peaks, then the rounds; each round has every set-up of every server once.
pub fn measure(tales: &Tales, figure: &Figure, args: &TalesArgs) -> anyhow::Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for app in apps(figure, args) {
        measured.push(peaks(tales, figure, app)?);
    }
    for number in 0..args.rounds as usize {
        for setup_results in &mut measured {
            round(tales, figure, setup_results, number)?;
        }
    }
    Ok(measured.into_iter().flatten().collect())
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
            let peak = undisturbed(Served::counts, || server.rig.saturate(tales.window / 2, &busy))?;
            drop(stopped);
            served.push(peak);
            if setup.fix.is_none() {
                let rate_per_s = peak.per_s * figure.utilisation;
                server.rig.load(rate_per_s, number as u64, tales.window, &server.first)?;
                server.find(figure, rate_per_s)?;
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
    for setup_result in all {
        if let Some(fix) = setup_result.setup.fix {
            setup_result.made.push(server.make(fix)?);
        }
        let run: &Path = if setup_result.setup.fix.is_none() { &server.first } else { &later };
        let seed = 100 + number as u64;
        setup_result
            .add(number, undisturbed(Round::counts, || once(tales, figure, setup_result, &server.rig, seed, run))?);
        if setup_result.setup.fix.is_none() {
            server.find(figure, setup_result.rate_per_s)?;
        }
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
    found: Vec<ListedFix>,
}

/// A fix that `tailsight fix` lists.
struct ListedFix {
    fix: Fix,
    run: PathBuf,
    /// Its number there.
    number: u64,
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
        Ok(Self { tales, rig, first: tales.scratch.path().join("first"), before, found: vec![] })
    }

    /// Finds the fixes of a figure in the first recording or, where it does not have them all, in more of the same set-up.
    fn find(&mut self, figure: &Figure, rate_per_s: f64) -> anyhow::Result<()> {
        let mut titles: Vec<String> = vec![];
        for recording in 0..RECORDINGS {
            let run = match recording {
                0 => self.first.clone(),
                more => self.tales.scratch.path().join(format!("more-{more}")),
            };
            if recording > 0 {
                self.rig.load(rate_per_s, 1_000 + recording, self.tales.window, &run)?;
            }
            let list = self.tales.json(self.tales.command("fix").arg(&run))?;
            for listed in list["fixes"].as_array().context("a list of fixes")? {
                let (changes, number) = (listed["changes"].as_array(), listed["n"].as_u64());
                let wanted = figure.setups.iter().filter_map(|setup| setup.fix).find(|fix| is(*fix, changes));
                titles.push(listed["title"].to_string());
                if let Some((fix, number)) = wanted.zip(number)
                    && !self.found.iter().any(|found| found.fix == fix)
                {
                    self.found.push(ListedFix { fix, run: run.clone(), number });
                }
            }
            let made = |fix: &Fix| *fix == Fix::Undo || self.found.iter().any(|found| found.fix == *fix);
            if figure.setups.iter().filter_map(|setup| setup.fix.as_ref()).all(made) {
                return Ok(());
            }
        }
        bail!("of {RECORDINGS} recordings, tailsight fix does not list all that the figure needs; it lists {titles:?}");
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
        let listed = self.found.iter().find(|found| found.fix == fix).context("a fix that was not looked for")?;
        let number = listed.number.to_string();
        let made = self.tales.json(self.tales.command("fix").arg("--yes").arg(&listed.run).arg(number))?;
        if made["made"] != true || made["changed"].as_u64() == Some(0) {
            bail!("tailsight fix changed nothing: {made}");
        }
        let word = |value: &Value| value.as_str().unwrap_or("?").split(';').next().unwrap_or_default().to_owned();
        let later = if listed.run == self.first { "" } else { ", which the first recording did not show" };
        Ok(format!("{}, against {}{later}", word(&made["title"]), word(&made["cause"]["category"])))
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
fn is(fix: Fix, changes: Option<&Vec<Value>>) -> bool {
    let Some([change]) = changes.map(Vec::as_slice) else { return false };
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
        let real_time = vec![json!({ "kind": "real-time", "pids": [7] })];
        let neighbour = |comm: &str| vec![json!({ "kind": "pin-named", "comm": comm, "cpus": "1" })];
        let queues =
            |value: &str| vec![json!({ "kind": "queues", "device": "veth-s", "file": "rps_cpus", "value": value })];
        assert!(is(Fix::RealTime, Some(&real_time)));
        assert!(is(Fix::BackgroundElsewhere, Some(&neighbour("lab-hog"))));
        assert!(is(Fix::ReceiveElsewhere, Some(&queues("2"))));
        // Another program, both cores, more than one change, another mitigation.
        assert!(!is(Fix::BackgroundElsewhere, Some(&neighbour("cron"))));
        assert!(!is(Fix::ReceiveElsewhere, Some(&queues("3"))));
        assert!(!is(Fix::RealTime, Some(&[real_time.clone(), neighbour("lab-hog")].concat())));
        assert!(!is(Fix::ReceiveElsewhere, Some(&real_time)) && !is(Fix::Undo, Some(&real_time)));
        assert!(!is(Fix::RealTime, None));
    }
}
