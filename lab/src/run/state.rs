//! What a run of scenarios has made on this machine, in a file: the next start undoes what a killed run left.
//!
//! In: processes, control groups and folders as they are made. Out: `/run/tailsight-lab/PID-START.json` (without root:
//! `$XDG_RUNTIME_DIR/tailsight-lab`), gone when all of it is gone. A process is known by its pid and its start time, so a
//! pid that was given out again is never touched. Network namespaces carry their owner's pid in their name.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tailsight_testbed::netns;

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// Ticks since boot (field 22 of /proc/PID/stat).
    pub start: u64,
}

impl Process {
    /// The process that has this pid now.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = tailsight_host::Stat::of_process(pid)?;
        let start = stat.started()?;
        (!stat.is_zombie()).then_some(Self { pid, start })
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Kills it, if it is still the same, and waits until it is gone.
    fn kill(self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.is_alive() && Instant::now() < deadline {
            let _ = kill(Pid::from_raw(self.pid.cast_signed()), Signal::SIGKILL);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How the file ends while it is written.
const UNNAMED: &str = "new";

/// What must be undone.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Made {
    owner: Option<Process>,
    processes: Vec<Process>,
    cgroups: Vec<PathBuf>,
    /// Groups that are used by all scenarios.
    lasting: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Made {
    /// Undoes all of it: processes first, because they use the groups and folders. Returns what could not be undone.
    fn undo(&self) -> Vec<String> {
        self.processes.iter().for_each(|process| process.kill());
        let mut left = Vec::new();
        for cgroup in self.cgroups.iter().chain(&self.lasting) {
            if let Err(error) = super::cgroup::remove(cgroup) {
                left.push(format!("control group {}: {error}", cgroup.display()));
            }
        }
        for folder in &self.folders {
            match std::fs::remove_dir_all(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    left.push(format!("folder {}: {error}", folder.display()));
                }
                _ => {}
            }
        }
        left
    }
}

/// The file and what is in it.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    made: Made,
}

/// The folder of the state files.
pub fn folder() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/run/tailsight-lab");
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from).join("tailsight-lab")
}

impl State {
    /// Undoes what dead runs left in `folder`, and begins this run's file. Prints on stderr what was undone.
    pub fn begin(folder: &Path) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        clean(folder);
        let owner = Process::of(std::process::id()).context("cannot read /proc/self/stat")?;
        let state = Self {
            path: folder.join(format!("{}-{}.json", owner.pid, owner.start)),
            made: Made { owner: Some(owner), ..Made::default() },
        };
        state.save()?;
        Ok(state)
    }

    /// Notes a process that was just started.
    pub fn process(&mut self, pid: u32) -> anyhow::Result<()> {
        self.made.processes.extend(Process::of(pid));
        self.save()
    }

    /// The processes that were noted and not undone.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.made.processes.iter().map(|process| process.pid)
    }

    /// Notes a control group, before it is made.
    pub fn cgroup(&mut self, path: &Path) -> anyhow::Result<()> {
        self.made.cgroups.push(path.to_owned());
        self.save()
    }

    /// Notes a control group that lasts for all scenarios, before it is made.
    pub fn lasting_cgroup(&mut self, path: &Path) -> anyhow::Result<()> {
        self.made.lasting.push(path.to_owned());
        self.save()
    }

    /// Notes a folder, before it is made.
    pub fn folder(&mut self, path: &Path) -> anyhow::Result<()> {
        self.made.folders.push(path.to_owned());
        self.save()
    }

    /// Undoes what was noted so far, except folders when they are kept; the file stays for what follows.
    pub fn undo(&mut self, keep_folders: bool) -> anyhow::Result<()> {
        if keep_folders {
            self.made.folders.clear();
        }
        let lasting = std::mem::take(&mut self.made.lasting);
        let left = self.made.undo();
        self.made.lasting = lasting;
        for what in &left {
            eprintln!("lab: could not undo {what}");
        }
        if left.is_empty() {
            (self.made.processes, self.made.cgroups, self.made.folders) = Default::default();
        }
        self.save()
    }

    /// Writes the file again; a reader sees the old one or the new one.
    fn save(&self) -> anyhow::Result<()> {
        let new = self.path.with_extension(UNNAMED);
        std::fs::write(&new, serde_json::to_vec(&self.made)?)
            .and_then(|()| std::fs::rename(&new, &self.path))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if self.made.undo().is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Undoes what dead runs left in `folder`.
fn clean(folder: &Path) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        // A file of another version, or a damaged one, is left for a person to look at.
        let Some(made) = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Made>(&text).ok()) else {
            eprintln!("lab: {} cannot be read; look at it and remove it", path.display());
            continue;
        };
        if made.owner.is_some_and(Process::is_alive) {
            continue;
        }
        let left = made.undo();
        eprintln!(
            "lab: an earlier run was killed: undid {} processes, {} control groups, {} folders",
            made.processes.len(),
            made.cgroups.len() + made.lasting.len(),
            made.folders.len()
        );
        for what in &left {
            eprintln!("lab: could not undo {what}");
        }
        if left.is_empty() {
            let _ = std::fs::remove_file(&path);
            // It was killed between writing this file and renaming it.
            let _ = std::fs::remove_file(path.with_extension(UNNAMED));
        }
    }
    let _ = netns::cleanup_stale();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_its_start_and_not_only_by_its_pid() {
        let us = Process::of(std::process::id()).unwrap();
        assert!(us.is_alive());
        assert!(!Process { start: us.start + 1, ..us }.is_alive());
        // Killing what is not the same process does nothing: this test goes on.
        Process { start: us.start + 1, ..us }.kill();
    }

    #[test]
    fn what_a_dead_run_left_is_undone_and_what_a_living_one_has_is_not() {
        let root = tempfile::tempdir().unwrap();
        let left = root.path().join("left");
        std::fs::create_dir(&left).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let sleeper = Process::of(child.id()).unwrap();
        let us = Process::of(std::process::id()).unwrap();
        let dead = Made {
            owner: Some(Process { start: us.start + 1, ..us }),
            processes: vec![sleeper],
            cgroups: vec![root.path().join("no-such-group")],
            lasting: Vec::new(),
            folders: vec![left.clone()],
        };
        let living = Made { owner: Some(us), folders: vec![root.path().to_owned()], ..Made::default() };
        let states = root.path().join("states");
        std::fs::create_dir(&states).unwrap();
        std::fs::write(states.join("1-1.json"), serde_json::to_vec(&dead).unwrap()).unwrap();
        std::fs::write(states.join("2-2.json"), serde_json::to_vec(&living).unwrap()).unwrap();
        std::fs::write(states.join("3-3.json"), b"{").unwrap();
        std::fs::write(states.join("1-1.new"), b"{").unwrap();
        std::fs::write(states.join("2-2.new"), b"{").unwrap();
        let reaper = std::thread::spawn(move || child.wait().unwrap());
        let state = State::begin(&states).unwrap();
        reaper.join().unwrap();
        assert!(!sleeper.is_alive() && !left.exists());
        assert!(!states.join("1-1.json").exists() && !states.join("1-1.new").exists());
        assert!(states.join("2-2.new").exists(), "its owner is about to name it");
        assert!(states.join("2-2.json").exists() && states.join("3-3.json").exists());
        let own = state.path.clone();
        assert!(own.exists());
        drop(state);
        assert!(!own.exists());
    }
}
