//! The folder of `watch`: a run for each capture, and captures.jsonl, which keeps what they showed when they are deleted to make room.
//!
//! In: captures. Out: names for runs, lines, room. Only folders that this module named are deleted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use tailsight_units::format::utc;

use super::lines::Capture;

/// The folders of captures begin so.
const PREFIX: &str = "capture-";
const LINES: &str = "captures.jsonl";
const LOCK: &str = "watch.lock";
/// Bytes of captures.jsonl that `--status` reads at most.
const MOST_LINES_BYTES: u64 = 256 << 20;

/// The folder, held by this process alone.
pub struct Folder {
    path: PathBuf,
    disk: u64,
    lines: File,
    /// Held as long as this lives.
    _lock: Flock<File>,
}

impl Folder {
    /// Makes or opens it. `disk`: bytes that all captures may take.
    ///
    /// # Errors
    /// If it cannot be made or written to, or another watcher has it.
    pub fn open(path: &Path, disk: u64) -> anyhow::Result<Folder> {
        let failed = || format!("cannot use {} for captures", path.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
        let open = |name: &str| {
            OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path.join(name))
        };
        let lock = open(LOCK).with_context(failed)?;
        let Ok(lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else {
            bail!("another tailsight watches into {}: give this one a folder of its own with --out", path.display());
        };
        let lines = open(LINES).with_context(failed)?;
        Ok(Folder { path: path.to_owned(), disk, lines, _lock: lock })
    }

    /// A name for a capture's run, after the time at which it was made.
    pub fn next_run(&self, unix_seconds: u64) -> PathBuf {
        let time: String = utc(unix_seconds).replace([' ', ':'], "-").trim_end_matches("-UTC").to_owned();
        let first = self.path.join(format!("{PREFIX}{time}"));
        let others = (2..).map(|n| self.path.join(format!("{PREFIX}{time}-{n}")));
        std::iter::once(first).chain(others).find(|path| !path.exists()).unwrap_or_default()
    }

    /// Writes down what a capture showed.
    ///
    /// # Errors
    /// Of the file.
    pub fn add(&mut self, capture: &Capture) -> io::Result<()> {
        let line = serde_json::to_string(capture)? + "\n";
        self.lines.write_all(line.as_bytes())
    }

    /// Deletes the oldest captures until the rest has room, but for the newest one. How many were deleted.
    ///
    /// # Errors
    /// Of the file system.
    pub fn make_room(&self) -> io::Result<u64> {
        let mut runs = self.runs()?;
        let mut bytes: u64 = runs.iter().map(|(_, bytes)| bytes).sum();
        // The names are times.
        runs.sort();
        runs.pop();
        let mut deleted = 0;
        for (run, of_run) in runs {
            if bytes <= self.disk {
                break;
            }
            fs::remove_dir_all(&run)?;
            bytes -= of_run;
            deleted += 1;
        }
        Ok(deleted)
    }

    /// The captures' folders, and the bytes that each takes.
    fn runs(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut runs = vec![];
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let is_capture = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if is_capture && entry.file_type()?.is_dir() {
                let bytes = bytes_in(&entry.path());
                runs.push((entry.path(), bytes));
            }
        }
        Ok(runs)
    }
}

/// Bytes on disk of the files below a folder; links are not followed.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_in(&entry.path()),
        Ok(_) => entry.metadata().map_or(0, |m| m.blocks() * 512),
        Err(_) => 0,
    });
    bytes.sum()
}

/// The captures that were ever made into a folder, the first one first. A line that was cut off is left out.
///
/// # Errors
/// If there is no such folder.
pub fn captures(path: &Path) -> anyhow::Result<Vec<Capture>> {
    let lines = path.join(LINES);
    let follow = tailsight_output::input::Links::Refuse;
    let (file, _) = tailsight_output::input::open_regular(&lines, follow, MOST_LINES_BYTES).with_context(|| {
        format!("cannot read {}: `tailsight watch -o {}` makes it", lines.display(), path.display())
    })?;
    let parsed = BufReader::new(file).lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
    Ok(parsed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(run: &str) -> Capture {
        Capture {
            event: super::super::lines::Event::Capture,
            schema: 1,
            unix_ns: 1,
            run: run.into(),
            app: "a".into(),
            leg: "total".into(),
            limit_ns: 1,
            total_ns: 2,
            receive_ns: 1,
            service_ns: 1,
            held_ns: 5,
            began_before: false,
            blind_ns: 0,
            taken_ns: 0,
            messages: None,
            explained: None,
            causes: vec![],
            of_message: None,
            note: None,
        }
    }

    #[test]
    fn the_oldest_captures_go_and_what_they_showed_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("watch");
        let mut folder = Folder::open(&path, 2 << 20).unwrap();
        let mut runs = vec![];
        for second in 0..4 {
            let run = folder.next_run(1_700_000_000 + second);
            fs::create_dir(&run).unwrap();
            fs::write(run.join("events"), vec![7u8; 900 << 10]).unwrap();
            folder.add(&capture(&run.display().to_string())).unwrap();
            runs.push(run);
        }
        fs::create_dir(path.join("mine")).unwrap();
        fs::write(path.join("mine/large"), vec![7u8; 8 << 20]).unwrap();
        assert_eq!(folder.make_room().unwrap(), 2);
        assert_eq!(runs.iter().map(|run| run.exists()).collect::<Vec<_>>(), [false, false, true, true]);
        assert!(path.join("mine/large").exists(), "what is not of a watcher stays");
        let listed: Vec<String> = captures(&path).unwrap().into_iter().map(|capture| capture.run).collect();
        assert_eq!(listed, runs.iter().map(|run| run.display().to_string()).collect::<Vec<_>>());
        // The newest stays, however large.
        let folder = Folder { disk: 1, ..folder };
        assert_eq!((folder.make_room().unwrap(), runs[3].exists()), (1, true));
    }

    #[test]
    fn a_second_watcher_has_to_take_another_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::open(dir.path(), 1).unwrap();
        let refused = Folder::open(dir.path(), 1).err().unwrap().to_string();
        assert!(refused.contains("another tailsight") && refused.contains("--out"), "{refused}");
        drop(first);
        assert!(Folder::open(dir.path(), 1).is_ok());
    }

    #[test]
    fn two_captures_of_a_second_have_different_names_and_a_cut_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(dir.path(), 1).unwrap();
        let first = folder.next_run(0);
        assert!(first.ends_with("capture-1970-01-01-00-00-00"), "{first:?}");
        fs::create_dir(&first).unwrap();
        assert!(folder.next_run(0).ends_with("capture-1970-01-01-00-00-00-2"));
        folder.add(&capture("one")).unwrap();
        folder.lines.write_all(b"{\"schema\":1,\"unix").unwrap();
        assert_eq!(captures(dir.path()).unwrap().len(), 1);
    }
}
