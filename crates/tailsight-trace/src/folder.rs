//! The folder that a run is written to, held open: files are made, replaced and removed in it and nowhere else.
//!
//! In: the path as given, once. Out: a handle. Names below it are resolved by the handle (openat) and never followed when they
//! are symbolic links; a file is always a new one (`O_EXCL`). Whoever renames folders or puts links in their places meanwhile
//! changes nothing that is written. Folders are 0700 and files 0600 whatever the umask is: payload may be in them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

/// A folder that is open.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Who else may write to a folder that was there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nobody.
    None,
    /// Its owner, who is another user.
    Owner(u32),
    /// Its group or everybody.
    Group,
}

impl Folder {
    /// Opens the folder, and makes it and those above it when they are not there. The last name is not followed.
    pub fn open_or_make(path: &Path) -> io::Result<Folder> {
        let (parent, name) = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => (parent, PathBuf::from(name)),
            // `.`, `/` and what ends in `..`: there already.
            _ => (path, PathBuf::from(".")),
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        std::fs::create_dir_all(parent)?;
        let above = open(parent, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        let above = Folder { fd: above, path: parent.into() };
        let mut folder = above.folder(&name)?;
        folder.path = path.into();
        Ok(folder)
    }

    /// A folder in this one, made when it is not there.
    pub fn folder(&self, name: &Path) -> io::Result<Folder> {
        match mkdirat(&self.fd, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let fd = openat(&self.fd, name, FOLDER, Mode::empty()).map_err(|e| match e {
            Errno::ELOOP | Errno::ENOTDIR => io::Error::other("it is a symbolic link, or not a folder"),
            e => e.into(),
        })?;
        Ok(Folder { fd, path: self.path.join(name) })
    }

    /// Who else may write to it.
    pub fn others(&self) -> io::Result<Others> {
        let about = fstat(&self.fd)?;
        Ok(if about.st_uid != geteuid().as_raw() {
            Others::Owner(about.st_uid)
        } else if about.st_mode & 0o022 != 0 {
            Others::Group
        } else {
            Others::None
        })
    }

    /// Why what is written here is not safe from others, if it is not.
    pub fn why_shared(&self) -> io::Result<Option<String>> {
        Ok(match self.others()? {
            Others::None => None,
            Others::Owner(uid) => Some(format!("belongs to another user (id {uid})")),
            Others::Group => Some("can be written by its group or by everybody".to_owned()),
        })
    }

    /// From now on for its owner only. A folder of another user stays as it is.
    pub fn close_to_others(&self) -> io::Result<()> {
        match fchmod(&self.fd, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EPERM) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// A new file, in the place of what had its name.
    pub fn create(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
        Ok(File::from(fd))
    }

    /// Removes a file or a link; `Ok` when there is none.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Gives a file another name, in the place of what had it.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Whether there is an ordinary file of that name; a link is none.
    pub fn has_file(&self, name: &str) -> bool {
        let kind = |mode: u32| mode & nix::libc::S_IFMT;
        fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|s| kind(s.st_mode) == nix::libc::S_IFREG)
    }

    /// What is in it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let list = std::fs::read_dir(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))?;
        list.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Where it was when it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
