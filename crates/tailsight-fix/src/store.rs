//! Where the state is kept: a file that is replaced in one piece, and a lock against a second one at work.
//!
//! In: a folder. Out: [`Journal`], the state and the way to keep it. The file is written to disk before the rename, the folder
//! after it: what was said to be kept is there after a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tailsight_output::input::{Links, open_regular};

use crate::{Error, State};

/// A state beyond this is none.
const MOST_STATE_BYTES: u64 = 16 << 20;

/// Keeps a state.
pub trait Store {
    /// Keeps it; when this returns, it survives a crash.
    ///
    /// # Errors
    /// [`Error::State`].
    fn save(&mut self, state: &State) -> Result<(), Error>;
}

/// The state at work: what is kept, and where.
#[derive(Debug)]
pub struct Journal<S> {
    /// The state as it was last kept, or as it is to be kept next.
    pub state: State,
    /// Where.
    pub store: S,
}

impl<S: Store> Journal<S> {
    /// Keeps the state.
    ///
    /// # Errors
    /// As [`Store::save`].
    pub fn save(&mut self) -> Result<(), Error> {
        self.store.save(&self.state)
    }
}

/// A file in a folder, with a lock beside it that is held until this is dropped.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    _lock: Option<Flock<File>>,
}

/// Where the state is kept: `$TAILSIGHT_STATE`; else `/var/lib/tailsight` for root, and for others `tailsight` in
/// `$XDG_STATE_HOME` or `~/.local/state`.
pub fn default_folder() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(folder) = variable("TAILSIGHT_STATE") {
        return folder;
    }
    if nix::unistd::geteuid().is_root() {
        return "/var/lib/tailsight".into();
    }
    let home = || Some(variable("HOME")?.join(".local/state"));
    variable("XDG_STATE_HOME").or_else(home).unwrap_or_else(|| "/tmp".into()).join("tailsight")
}

impl FileStore {
    /// The state of a folder, to be changed: takes the lock.
    ///
    /// # Errors
    /// [`Error::Locked`] when another one is at work, [`Error::State`] when the folder or the file cannot be used.
    pub fn open(folder: &Path) -> Result<Journal<FileStore>, Error> {
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |e: io::Error| Error::State { path, what: e.to_string() }
        };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(at(folder))?;
        let path = folder.join("fixes.lock");
        // Not through a link, and not waiting for whoever reads a pipe.
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600).custom_flags(flags);
        let file = options.open(&path).map_err(at(&path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            nix::errno::Errno::EWOULDBLOCK => Error::Locked { path: path.display().to_string() },
            other => at(&path)(other.into()),
        })?;
        FileStore::with(folder, Some(lock))
    }

    /// The state of a folder, to be looked at; without one, the empty state.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn look(folder: &Path) -> Result<State, Error> {
        FileStore::with(folder, None).map(|journal| journal.state)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn with(folder: &Path, lock: Option<Flock<File>>) -> Result<Journal<FileStore>, Error> {
        let store = FileStore { path: folder.join("fixes.toml"), _lock: lock };
        let fail = |what: String| Error::State { path: store.path.display().to_string(), what };
        let read = || {
            let (mut file, about) = open_regular(&store.path, Links::Refuse, MOST_STATE_BYTES)?;
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| (text, about.uid()))
        };
        let state = match read() {
            Ok((text, owner)) => {
                // What it says is written with this one's rights.
                let me = nix::unistd::geteuid().as_raw();
                if store._lock.is_some() && owner != me {
                    return Err(fail(format!("belongs to user {owner}, not to this user ({me}): it is not used")));
                }
                State::parse(&text).map_err(fail)?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => State::default(),
            Err(e) => return Err(fail(e.to_string())),
        };
        Ok(Journal { state, store })
    }
}

impl Store for FileStore {
    fn save(&mut self, state: &State) -> Result<(), Error> {
        let fail = |what: String| Error::State { path: self.path.display().to_string(), what };
        let text = state.text().map_err(fail)?;
        let whole = || -> io::Result<()> {
            let new = self.path.with_extension("toml.new");
            // Left by one that was killed; or anything else, which is not written to.
            match fs::remove_file(&new) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o644).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        whole().map_err(|e| fail(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a pipe in the place of the state kept `fix --undo` for ever.
    #[test]
    fn a_pipe_is_no_state() {
        for name in ["fixes.toml", "fixes.lock"] {
            let folder = tempfile::tempdir().unwrap();
            nix::unistd::mkfifo(&folder.path().join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
            let error = FileStore::open(folder.path()).unwrap_err();
            assert!(matches!(error, Error::State { .. }), "{name}: {error}");
            assert_eq!(FileStore::look(folder.path()).is_err(), name == "fixes.toml");
        }
    }

    #[test]
    fn one_at_a_time_and_what_is_kept_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let mut journal = FileStore::open(&folder).unwrap();
        assert!(matches!(FileStore::open(&folder), Err(Error::Locked { .. })));
        journal.state.fixes.push(crate::Record {
            title: "t".into(),
            run: "r".into(),
            when: "w".into(),
            boot_id: "b".into(),
            began: 0,
            changes: vec![],
        });
        journal.save().unwrap();
        assert_eq!(FileStore::look(&folder).unwrap(), journal.state, "looking needs no lock");
        let state = journal.state.clone();
        drop(journal);
        assert_eq!(FileStore::open(&folder).unwrap().state, state);
        fs::write(folder.join("fixes.toml"), "version = 9").unwrap();
        let error = FileStore::open(&folder).unwrap_err().to_string();
        assert!(error.contains("fixes.toml") && error.contains("version 9"), "{error}");
    }
}
