//! Input files that somebody else may have put in place: opened only when they are regular files.
//!
//! In: a path, the most bytes. Out: the open file. A pipe would keep its reader waiting for ever, a device may act when it is opened, a
//! link would have root read what its maker may not. What is opened is what was looked at: the name is used once.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Whether the last part of a path may be a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// It is followed: a link of the kernel's (`/proc/PID/map_files`, `/proc/PID/root`), or of a folder that only root writes to.
    Follow,
    /// It is refused.
    Refuse,
}

/// Opens a regular file of at most so many bytes, for reading. Neither opening nor looking at it waits for another process.
///
/// # Errors
/// The kernel's; `InvalidInput` when it is no regular file, `FileTooLarge` when it is larger.
pub fn open_regular(path: &Path, links: Links, most_bytes: u64) -> io::Result<(File, Metadata)> {
    let flag = if links == Links::Refuse { libc::O_NOFOLLOW } else { 0 };
    // Opened as a place only: nothing happens to what is there.
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH | flag).open(path)?;
    let about = place.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    if about.len() > most_bytes {
        let why = format!("it has {} bytes, more than {most_bytes}", about.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(itself)?;
    Ok((file, about))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_regular_file_of_the_size_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| dir.path().join(name));
        std::fs::write(&file, "12345").unwrap();
        symlink(&file, &link).unwrap();
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name ends with a NUL and lives over the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let open = |path: &Path, links, most| open_regular(path, links, most).map(|(_, about)| about.len());
        let kind = |path: &Path, links, most| open(path, links, most).unwrap_err().kind();
        assert_eq!(open(&file, Links::Refuse, 5).unwrap(), 5);
        assert_eq!(open(&link, Links::Follow, 5).unwrap(), 5);
        assert_eq!(kind(&file, Links::Refuse, 4), io::ErrorKind::FileTooLarge);
        // A link that is not followed is itself no regular file.
        for (path, links) in [(&link, Links::Refuse), (&pipe, Links::Follow), (&pipe, Links::Refuse)] {
            assert_eq!(kind(path, links, 5), io::ErrorKind::InvalidInput, "{path:?}");
        }
        assert_eq!(kind(dir.path(), Links::Follow, u64::MAX), io::ErrorKind::InvalidInput);
        assert_eq!(kind(&dir.path().join("none"), Links::Follow, 5), io::ErrorKind::NotFound);
    }
}
