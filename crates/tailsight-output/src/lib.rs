//! Output files that users name: whole or not there, and never written through a link. Input files of others: [`input`].
//!
//! In: a path and bytes. Out: a file beside the path, under a name of this process's own, which takes the path's place when it is
//! whole. A full disk leaves what was there before. What root writes into a folder of another user touches nothing outside of it: a
//! symbolic link of the file's name is replaced and not followed. What is no ordinary file (`/dev/null`, a pipe) and the process's
//! own descriptors (`/dev/stdout`, `/dev/fd/63`) are written to as they are.
//!
//! Links among the folders above the file are followed. Run directories have a stricter way of their own (`tailsight-trace`,
//! `src/folder.rs`).

pub mod input;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names that are tried for the file beside; those of before are leftovers of processes that were killed.
const TRIES: usize = 100;

/// A file that is being written. Dropped without [`Whole::finish`], it leaves what was there before.
#[derive(Debug)]
pub struct Whole {
    file: File,
    /// The name that it has until it is whole, and the one that it is to have; `None`: it is written in its place.
    names: Option<(PathBuf, PathBuf)>,
}

impl Whole {
    /// Begins a file that will stand at `path`.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn create(path: &Path) -> io::Result<Whole> {
        let there = match std::fs::symlink_metadata(path) {
            Ok(about) => Some(about),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        if is_descriptor(path) {
            // A link of the kernel's, to what this process was given open.
            return Ok(Whole { file: OpenOptions::new().append(true).open(path)?, names: None });
        }
        match &there {
            Some(about) if about.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Some(about) if !about.is_file() && !about.is_symlink() => {
                let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
                return Ok(Whole { file, names: None });
            }
            _ => {}
        }
        if path.file_name().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
        }
        let (file, beside) = beside(path)?;
        let whole = Whole { file, names: Some((beside, path.to_owned())) };
        // A file of the user's own keeps who may read it.
        if let Some(about) = there.filter(std::fs::Metadata::is_file)
            && about.uid() == whole.file.metadata()?.uid()
        {
            whole.file.set_permissions(about.permissions())?;
        }
        Ok(whole)
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// When it cannot have its name; then it is removed.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some((beside, path)) = &self.names else { return Ok(()) };
        std::fs::rename(beside, path)?;
        self.names = None;
        Ok(())
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.names {
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// Writes a file, or leaves what was there.
///
/// # Errors
/// When it cannot be written whole, or cannot have its name.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut whole = Whole::create(path)?;
    whole.write_all(bytes.as_ref())?;
    whole.finish()
}

/// Finds out whether a file could be written, before the work whose result it is to hold. Changes nothing.
///
/// # Errors
/// Why it could not.
pub fn check(path: &Path) -> io::Result<()> {
    let special = |about: &std::fs::Metadata| !about.is_file() && !about.is_dir() && !about.is_symlink();
    // A pipe that is opened and closed again has ended for who reads it.
    match is_descriptor(path) || std::fs::symlink_metadata(path).is_ok_and(|about| special(&about)) {
        true => Ok(()),
        false => Whole::create(path).map(drop),
    }
}

/// Whether a path names a descriptor of this process.
fn is_descriptor(path: &Path) -> bool {
    let among = |folder: &str| path.parent() == Some(Path::new(folder));
    path == Path::new("/dev/stdout") || path == Path::new("/dev/stderr") || among("/dev/fd") || among("/proc/self/fd")
}

/// A new file in the folder of a path, and its name.
fn beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut taken = io::ErrorKind::AlreadyExists.into();
    for _ in 0..TRIES {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = path.with_file_name(format!(".tailsight-{}-{number}.tmp", std::process::id()));
        // A new file: a link of that name is an error.
        match File::create_new(&name) {
            Ok(file) => return Ok((file, name)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => taken = e,
            Err(e) => return Err(e),
        }
    }
    Err(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        write(&path, "one").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut second = Whole::create(&path).unwrap();
        second.write_all(b"two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        second.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // Given up: what was there stays, and nothing beside it.
        Whole::create(&path).unwrap().write_all(b"three").unwrap();
        check(&path).unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names(dir.path())), ("two", vec!["out".into()]));
    }

    /// Another user's link made root overwrite the file that it led to.
    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (precious, path) = (dir.path().join("precious"), dir.path().join("out"));
        std::fs::write(&precious, "mine").unwrap();
        for target in [precious.as_path(), Path::new("/dev/null"), Path::new("nowhere")] {
            let _ = std::fs::remove_file(&path);
            symlink(target, &path).unwrap();
            check(&path).unwrap();
            assert!(path.is_symlink(), "a check changes nothing");
            write(&path, "new").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
            assert!(!path.is_symlink());
        }
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
        assert_eq!(names(dir.path()), ["out", "precious"]);
    }

    #[test]
    fn what_is_no_ordinary_file_is_written_to_as_it_is() {
        write(Path::new("/dev/null"), "gone").unwrap();
        check(Path::new("/dev/null")).unwrap();
        assert!(write(Path::new("/dev/full"), "x").is_err() && Path::new("/dev/full").exists());
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(write(dir.path(), "x").unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert!(write(&dir.path().join("no/such"), "x").is_err());
        assert!(check(&dir.path().join("no/such")).is_err());
        assert!(names(dir.path()).is_empty());
    }

    /// The link `/dev/stdout` would have been replaced by a file, on the machine.
    #[test]
    fn descriptors_are_no_names() {
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let open = File::create(&path).unwrap();
        (&open).write_all(b"before ").unwrap();
        for folder in ["/proc/self/fd", "/dev/fd"] {
            let descriptor = PathBuf::from(format!("{folder}/{}", open.as_raw_fd()));
            check(&descriptor).unwrap();
            write(&descriptor, "after ").unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before after after ");
        assert!(is_descriptor(Path::new("/dev/stdout")) && !is_descriptor(Path::new("/dev/shm/stdout")));
    }

    /// Run by the test below, in a file system with room for 64 KiB.
    #[test]
    #[ignore = "run by other tests in a process of its own"]
    fn fills_a_disk() {
        let path = PathBuf::from(std::env::var_os("TAILSIGHT_FULL").unwrap()).join("out");
        std::fs::write(&path, "before").unwrap();
        assert_eq!(write(&path, vec![7; 1 << 20]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(
            (std::fs::read_to_string(&path).unwrap().as_str(), names(path.parent().unwrap()).len()),
            ("before", 1)
        );
        // The room is free again.
        write(&path, vec![7; 30 << 10]).unwrap();
    }

    #[test]
    fn a_full_disk_leaves_what_was_there() {
        let lacking = ["unshare", "mount"].into_iter().find_map(tailsight_testing::lacks_program);
        if let Some(reason) = tailsight_testing::lacks_root().or(lacking) {
            return tailsight_testing::skip(reason);
        }
        let dir = tempfile::tempdir().unwrap();
        // The mount is seen, and lives, only in there.
        let script =
            r#"mount -t tmpfs -o size=64k tmpfs "$TAILSIGHT_FULL" && exec "$0" --exact tests::fills_a_disk --ignored"#;
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
        let output = shell.env("TAILSIGHT_FULL", dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }
}
