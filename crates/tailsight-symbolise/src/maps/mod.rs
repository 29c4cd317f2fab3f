//! What a process has mapped where: the lines of `/proc/PID/maps`, and the files behind them.
//!
//! In: the text, or a process id. Out: [`Maps`], by which an address is found in its [`Mapping`]. Only mappings that can hold code
//! are kept.

pub mod elf;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tailsight_host::mounts::{Mounts, is_served};
use tailsight_output::input::{Links, open_regular};

use crate::error::Error;
use crate::patience::in_time;

/// One mapping that can hold code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file it starts, bytes.
    pub offset: u64,
    /// The file system that the file is on: major and minor number of its device.
    pub device: (u32, u32),
    /// The file's number in its file system; 0: no file.
    pub inode: u64,
    /// The file as the process names it, without ` (deleted)`; empty or in brackets: no file.
    pub path: String,
}

impl Mapping {
    /// Whether a file is behind it that can be looked into.
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.starts_with('/') && !self.path.starts_with("/memfd:") && self.path != "/dev/zero"
    }

    /// The file's name without its folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Opens the file of a process that has it mapped or had: a regular file, the one that was mapped. The path by which it was found may be
    /// of no use to the next call.
    ///
    /// # Errors
    /// [`Error::Module`], [`Error::Replaced`].
    pub fn open(&self, pid: u32) -> Result<(PathBuf, File), Error> {
        let seen_by = [pid, std::process::id()].map(Mounts::of);
        if let Some(why) = self.would_wait(&seen_by) {
            let source = std::io::Error::new(std::io::ErrorKind::Unsupported, why);
            return Err(Error::Module { path: self.path.clone().into(), source });
        }
        let mapping = self.clone();
        in_time(move || mapping.open_now(pid, &seen_by))
            .unwrap_or_else(|source| Err(Error::Module { path: self.path.clone().into(), source }))
    }

    /// Why opening the file could take for ever: a process answers for its file system, or perhaps one that is mounted nowhere any more.
    /// `seen_by`: the mounts that it and this process see.
    fn would_wait(&self, seen_by: &[Mounts; 2]) -> Option<String> {
        match seen_by.iter().find_map(|mounts| mounts.kind_of_device(self.device)) {
            Some(kind) if is_served(kind) => Some(format!("another process answers for its file system ({kind})")),
            Some(_) => None,
            // Disks have a major number. What has none is on a list as long as it is mounted where one of them sees it.
            None if self.device.0 != 0 || memory_device() == Some(self.device) => None,
            None => Some("its file system is mounted nowhere".into()),
        }
    }

    fn open_now(&self, pid: u32, [its, own]: &[Mounts; 2]) -> Result<(PathBuf, File), Error> {
        let mut why = std::io::Error::from(std::io::ErrorKind::NotFound);
        let mut replaced = false;
        // The file itself, whatever is at its path now; the path in the process' own mount namespace, where the right to that is missing; where
        // it was, when the process is gone. The path may be another file's by now, or a link's, which the number of the file tells.
        let itself = format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end);
        let inside = format!("/proc/{pid}/root{}", self.path);
        let paths = [(itself, None), (inside, Some(its)), (self.path.clone(), Some(own))];
        for (path, seen_by) in paths {
            if seen_by.is_some_and(|mounts| mounts.is_served(Path::new(&self.path))) {
                continue;
            }
            match open_regular(Path::new(&path), Links::Follow, MOST_FILE_BYTES) {
                Ok((file, about)) if about.ino() == self.inode => return Ok((path.into(), file)),
                Ok(_) => replaced = true,
                // What says more than that it is not there.
                Err(e) if why.kind() == std::io::ErrorKind::NotFound => why = e,
                Err(_) => {}
            }
        }
        let path = PathBuf::from(&self.path);
        Err(if replaced { Error::Replaced { path } } else { Error::Module { path, source: why } })
    }

    /// The folder that the file is in, as the process sees it. A place only: nothing can be read by it alone.
    pub fn folder(&self, pid: u32) -> Option<OwnedFd> {
        let folder = Path::new(&self.path).parent()?.to_str()?.to_owned();
        let seen_by = [pid, std::process::id()].map(Mounts::of);
        if seen_by.iter().any(|mounts| mounts.is_served(Path::new(&folder))) {
            return None;
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let open = move |path: String| OpenOptions::new().read(true).custom_flags(flags).open(path).ok();
        let opened = in_time(move || open(format!("/proc/{pid}/root{folder}")).or_else(|| open(folder)));
        opened.ok().flatten().map(OwnedFd::from)
    }
}

/// The device of files that are memory (memfd_create(2)), which is mounted nowhere.
fn memory_device() -> Option<(u32, u32)> {
    let file = nix::sys::memfd::memfd_create(c"tailsight", nix::sys::memfd::MFdFlags::MFD_CLOEXEC).ok()?;
    let device = File::from(file).metadata().ok()?.dev();
    Some((libc::major(device), libc::minor(device)))
}

/// A file beyond this is not looked into: programs with all their debug information have some hundred MiB.
pub const MOST_FILE_BYTES: u64 = 1 << 30;
/// Bytes of a list of mappings that are read; the kernel's usual limit of mappings makes some 10 MB.
const MOST_LIST_BYTES: u64 = 64 << 20;

/// The mappings of a process, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    mappings: Vec<Mapping>,
}

impl Maps {
    /// Reads those of a process that runs.
    ///
    /// # Errors
    /// [`Error::Proc`].
    pub fn of(pid: u32) -> Result<Maps, Error> {
        let path = PathBuf::from(format!("/proc/{pid}/maps"));
        let mut text = Vec::new();
        match File::open(&path).and_then(|file| file.take(MOST_LIST_BYTES).read_to_end(&mut text)) {
            Ok(_) => Ok(Maps::parse(&String::from_utf8_lossy(&text))),
            Err(source) => Err(Error::Proc { path, source }),
        }
    }

    /// Takes the lines of such a file; those that it does not understand are left out.
    pub fn parse(text: &str) -> Maps {
        Maps::from(text.lines().filter_map(parse_line).collect::<Vec<_>>())
    }

    /// The mapping that an address is in.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|m| m.start <= address);
        self.mappings[..after].last().filter(|m| address < m.end)
    }

    /// All of them, by address.
    pub fn all(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Bytes that they take in memory, about.
    pub fn bytes(&self) -> usize {
        self.mappings.iter().map(|mapping| size_of::<Mapping>() + mapping.path.len()).sum()
    }

    /// Whether there is none: a kernel thread, or a process that has ended.
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Takes in what `later` has of the same process, which counts where both have something.
    #[must_use]
    pub fn updated(mut self, later: Maps) -> Maps {
        // Both are sorted, and a process has tens of thousands of mappings if it likes to.
        let is_over = |m: &Mapping| {
            let behind = later.mappings.partition_point(|l| l.end <= m.start);
            later.mappings.get(behind).is_some_and(|l| l.start < m.end)
        };
        self.mappings.retain(|m| !is_over(m));
        self.mappings.extend(later.mappings);
        self.mappings.sort_by_key(|m| m.start);
        self
    }
}

impl From<Vec<Mapping>> for Maps {
    fn from(mut mappings: Vec<Mapping>) -> Maps {
        mappings.sort_by_key(|m| m.start);
        Maps { mappings }
    }
}

/// `start-end perms offset device inode path`, with the numbers but the inode in hexadecimal.
fn parse_line(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_start_matches(' ');
        let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        rest = after;
        word
    };
    let (start, end) = word().split_once('-')?;
    let permissions = word();
    let (offset, device, inode) = (word(), word(), word());
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
    let (major, minor) = device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = (number(major)?, number(minor)?);
    let path = rest.trim_start_matches(' ');
    let path = path.strip_suffix(" (deleted)").unwrap_or(path).to_owned();
    let mapping = Mapping { start, end, offset, device, inode: inode.parse().ok()?, path };
    (permissions.contains('x') && start < end).then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const TEXT: &str = "\
55d0c0a00000-55d0c0a05000 r--p 00000000 fe:00 1234                       /usr/bin/memcached
55d0c0a05000-55d0c0a20000 r-xp 00005000 fe:00 1234                       /usr/bin/memcached
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7f1000000000-7f1000100000 r-xp 00022000 fe:00 77                         /opt/a b/libold.so.1 (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
not a line
";

    #[test]
    fn an_address_is_found_in_its_mapping() {
        let maps = Maps::parse(TEXT);
        assert_eq!(maps.all().len(), 4, "one holds no code");
        let program = maps.find(0x55d0_c0a0_5000).unwrap();
        assert_eq!((program.offset, program.inode, program.name()), (0x5000, 1234, "memcached"));
        assert!(program.is_file());
        assert!(maps.find(0x55d0_c0a0_4fff).is_none() && maps.find(0x55d0_c0a2_0000).is_none());
        assert!(!maps.find(0x7f00_0000_0000).unwrap().is_file());
        assert_eq!(maps.find(0x7f10_0000_0000).unwrap().path, "/opt/a b/libold.so.1");
        assert_eq!(maps.find(0x7ffd_0000_0000).unwrap().name(), "[vdso]");
    }

    #[test]
    fn what_was_unmapped_since_is_still_known_and_what_was_mapped_over_is_not() {
        let first = Maps::parse("1000-2000 r-xp 0 0:0 1 /a\n3000-4000 r-xp 0 0:0 2 /b\n");
        let merged = first.updated(Maps::parse("3800-5000 r-xp 0 0:0 3 /c\n"));
        assert_eq!(merged.find(0x1800).unwrap().path, "/a");
        assert!(merged.find(0x3400).is_none());
        assert_eq!(merged.find(0x3900).unwrap().path, "/c");
    }

    proptest::proptest! {
        /// It took a second for each 60,000 mappings of a process when each was held against all.
        #[test]
        fn what_is_left_of_the_first_is_what_nothing_later_lies_over(
            first in proptest::collection::vec((0u64..200, 1u64..9), 0..40),
            later in proptest::collection::vec((0u64..200, 1u64..9), 0..40),
        ) {
            // As the kernel lists them: in order, and none over another.
            let mappings = |gaps: Vec<(u64, u64)>| {
                let mut at = 0;
                let lay = |(gap, length)| {
                    let start = at + gap / 10;
                    at = start + length;
                    Mapping { start, end: at, offset: 0, device: (8, 1), inode: 1, path: String::new() }
                };
                Maps::from(gaps.into_iter().map(lay).collect::<Vec<_>>())
            };
            let (first, later) = (mappings(first), mappings(later));
            let lies_over = |m: &Mapping| later.mappings.iter().any(|l| l.start < m.end && m.start < l.end);
            let mut expected: Vec<Mapping> = first.mappings.iter().filter(|m| !lies_over(m)).cloned().collect();
            expected.extend(later.mappings.iter().cloned());
            expected.sort_by_key(|m| m.start);
            proptest::prop_assert_eq!(first.updated(later).mappings, expected);
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_mapped_one_is_not_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        fs::write(&path, "one").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let own = std::process::id();
        let path = path.to_string_lossy().into_owned();
        let mapping = Mapping { start: 0x1000, end: 0x2000, offset: 0, device: (8, 1), inode, path };
        assert!(mapping.open(own).is_ok());
        let other = Mapping { inode: inode + 1, ..mapping.clone() };
        assert!(matches!(other.open(own), Err(Error::Replaced { .. })));
        // Who answers for a file system that is mounted nowhere might never do so.
        let unmounted = Mapping { device: (0, 1 << 19), ..mapping.clone() };
        assert!(matches!(unmounted.open(own), Err(Error::Module { .. })));
        let gone = Mapping { path: "/nowhere/at/all".into(), ..mapping };
        let error = gone.open(own).unwrap_err();
        assert!(matches!(error, Error::Module { .. }));
        let why = std::error::Error::source(&error).expect("why it was not opened").to_string();
        assert_eq!(tailsight_units::chain(&error).matches(&why).count(), 1);
    }
}
