//! What a runtime compiled, as it tells in `/tmp/perf-PID.map`: Node with `--perf-basic-prof`, CPython 3.12 with `-X perf`, a JVM with
//! `jcmd PID Compiler.perfmap`.
//!
//! In: the file's lines, `start size name` with the numbers in hexadecimal. Out: [`PerfMap`].

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tailsight_host::mounts::Mounts;
use tailsight_output::input::{Links, open_regular};

use super::{shortened, status};
use crate::patience::in_time;

/// A map beyond this is read up to here: large applications write tens of MiB.
const MOST_BYTES: u64 = 256 << 20;
/// Lines beyond this are not looked at.
const MOST_LINES: usize = 4 << 20;

/// Compiled functions by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfMap {
    text: Vec<u8>,
    /// In the order of their start; of overlapping ones the later line counts, since code is replaced.
    functions: Vec<Function>,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    /// Where in the text its name is.
    name: (u32, u32),
}

impl PerfMap {
    /// Opens that of a process: under the id that the process itself knows, and in its own `/tmp`. None where it wrote none.
    pub fn open(pid: u32) -> Option<File> {
        let status = status::read(pid).ok()?;
        let inside = status::inside(&status).map(|id| format!("/proc/{pid}/root/tmp/perf-{id}.map"));
        let names = [inside, Some(format!("/tmp/perf-{pid}.map"))];
        let user = status::user(&status)?;
        // Its own /tmp, or this process's.
        let seen_by = [pid, std::process::id()].map(Mounts::of);
        let can_be_looked_up = |mounts: &Mounts| !mounts.is_served(Path::new("/tmp"));
        let names = names.into_iter().zip(seen_by).filter(|(_, mounts)| can_be_looked_up(mounts));
        names.filter_map(|(name, _)| name).find_map(|path| file_of(Path::new(&path), user))
    }

    /// Reads an open one.
    pub fn read(file: File) -> PerfMap {
        let mut text = Vec::new();
        // What could be read counts.
        let _ = file.take(MOST_BYTES).read_to_end(&mut text);
        PerfMap::parse(text)
    }

    /// Takes the lines of such a file; those that it does not understand are left out.
    pub fn parse(text: impl Into<Vec<u8>>) -> PerfMap {
        let text = text.into();
        let mut at = 0;
        let line = |line: &[u8]| {
            let from = at;
            at += line.len() + 1;
            let (start, rest) = split_once(line)?;
            let (size, name) = split_once(rest)?;
            let start = hex(start)?;
            let end = start.checked_add(hex(size)?.max(1))?;
            let name_at = from + line.len() - name.len();
            Some(Function { start, end, name: (u32::try_from(name_at).ok()?, u32::try_from(name.len()).ok()?) })
        };
        let mut functions: Vec<Function> =
            text.split(|&byte| byte == b'\n').take(MOST_LINES).filter_map(line).collect();
        // Stable: of those that start at one address the last written comes last.
        functions.sort_by_key(|f| f.start);
        PerfMap { text, functions }
    }

    /// The function at an address, and how far in it that is.
    pub fn find(&self, address: u64) -> Option<(String, u64)> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let &Function { start, end, name: (from, bytes) } = self.functions[..after].last()?;
        let name = self.text.get(from as usize..from as usize + bytes as usize)?;
        (address < end).then(|| (shortened(&of_any_tier(&String::from_utf8_lossy(name))), address - start))
    }
}

fn split_once(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = line.iter().position(|&byte| byte == b' ')?;
    Some((&line[..blank], &line[blank + 1..]))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// V8 marks which compiler made the code (`JS:~f`, `JS:^f`, `JS:+f`, `JS:*f`): the function is the same one, and would else be new
/// to the focus whenever it was compiled again meanwhile.
fn of_any_tier(name: &str) -> Cow<'_, str> {
    let marked =
        ["JS:", "LazyCompile:", "Function:"].into_iter().find_map(|kind| Some((kind, name.strip_prefix(kind)?)));
    match marked.and_then(|(kind, rest)| Some((kind, rest.strip_prefix(['~', '^', '+', '*'])?))) {
        Some((kind, function)) => Cow::Owned(format!("{kind}{function}")),
        None => Cow::Borrowed(name),
    }
}

/// An ordinary file of that user's or of root's. Anybody can put something of that name into `/tmp`: a link would have us read
/// what the user may not, a pipe would keep us waiting for ever, and another user's file would name functions as it likes.
fn file_of(path: &Path, user: u32) -> Option<File> {
    let path = path.to_owned();
    let (file, about) = in_time(move || open_regular(&path, Links::Refuse, u64::MAX)).ok()?.ok()?;
    (about.uid() == user || about.uid() == 0).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ordinary_file_of_the_users_own_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let [map, link, pipe] = ["map", "link", "pipe"].map(|name| dir.path().join(name));
        std::fs::write(&map, "7f00 10 f\n").unwrap();
        std::os::unix::fs::symlink(&map, &link).unwrap();
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name ends with a NUL and lives over the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let user = std::fs::metadata(&map).unwrap().uid();
        assert!(file_of(&map, user).is_some());
        assert!([&link, &pipe].iter().all(|path| file_of(path, user).is_none()));
        assert!(file_of(dir.path(), user).is_none() && file_of(&dir.path().join("none"), user).is_none());
        // Root's may be anybody's; another user's may not.
        assert_eq!(file_of(&map, user + 1).is_some(), user == 0);
        if user == 0 {
            std::os::unix::fs::chown(&map, Some(12_345), None).unwrap();
            assert!(file_of(&map, 12_345).is_some() && file_of(&map, 12_346).is_none());
        }
    }

    #[test]
    fn the_last_word_on_an_address_counts() {
        let map =
            PerfMap::parse("7f00 10 py::old:/a.py\n7f00 20 py::new:/a b.py\nzz 1 x\n0x8000 8 LazyCompile:~f x.js:3\n");
        assert_eq!(map.find(0x7f1f), Some(("py::new:/a b.py".into(), 0x1f)));
        assert_eq!(map.find(0x8004), Some(("LazyCompile:f x.js:3".into(), 4)));
        let tiers = PerfMap::parse("10 8 JS:^g /s.js:1:2\n20 8 JS:* /s.js:9:1\n30 8 py::*:/a.py\n");
        assert_eq!(
            [0x10, 0x20, 0x30].map(|at| tiers.find(at).unwrap().0),
            ["JS:g /s.js:1:2", "JS: /s.js:9:1", "py::*:/a.py"]
        );
        assert_eq!((map.find(0x7f20), map.find(0x8008), map.find(0)), (None, None, None));
    }
}
