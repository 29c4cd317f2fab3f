//! What a runtime compiled, as it tells in `/tmp/perf-PID.map`: Node with `--perf-basic-prof`, CPython 3.12 with `-X perf`, a JVM with
//! `jcmd PID Compiler.perfmap`.
//!
//! In: the file's lines, `start size name` with the numbers in hexadecimal. Out: [`PerfMap`].

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{shortened, status};

/// A map beyond this is read up to here: large applications write tens of MiB.
const MOST_BYTES: u64 = 256 << 20;

/// Compiled functions by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfMap {
    /// Start, end, and the number of the line: of overlapping ones the later one counts, since code is replaced.
    functions: Vec<(u64, u64, String)>,
}

impl PerfMap {
    /// Reads that of a process: under the id that the process itself knows, and in its own `/tmp`. None where it wrote none.
    pub fn of(pid: u32) -> Option<PerfMap> {
        let status = status::read(pid).ok()?;
        let inside = status::inside(&status).map(|id| format!("/proc/{pid}/root/tmp/perf-{id}.map"));
        let names = [inside, Some(format!("/tmp/perf-{pid}.map"))];
        let user = status::user(&status)?;
        let file = names.into_iter().flatten().find_map(|path| file_of(Path::new(&path), user))?;
        let mut text = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        Some(PerfMap::parse(&String::from_utf8_lossy(&text)))
    }

    /// Takes the lines of such a file; those that it does not understand are left out.
    pub fn parse(text: &str) -> PerfMap {
        let line = |line: &str| {
            let (start, rest) = line.split_once(' ')?;
            let (size, name) = rest.split_once(' ')?;
            let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            let start = hex(start)?;
            Some((start, start.checked_add(hex(size)?.max(1))?, shortened(&of_any_tier(name))))
        };
        let mut functions: Vec<(u64, u64, String)> = text.lines().filter_map(line).collect();
        // Stable: of those that start at one address the last written comes last.
        functions.sort_by_key(|f| f.0);
        PerfMap { functions }
    }

    /// The function at an address, and how far in it that is.
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.functions.partition_point(|f| f.0 <= address);
        let (start, end, name) = self.functions[..after].last()?;
        (address < *end).then_some((name, address - start))
    }
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
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let about = file.metadata().ok()?;
    (about.is_file() && (about.uid() == user || about.uid() == 0)).then_some(file)
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
        assert_eq!(map.find(0x7f1f), Some(("py::new:/a b.py", 0x1f)));
        assert_eq!(map.find(0x8004), Some(("LazyCompile:f x.js:3", 4)));
        let tiers = PerfMap::parse("10 8 JS:^g /s.js:1:2\n20 8 JS:* /s.js:9:1\n30 8 py::*:/a.py\n");
        assert_eq!(
            [0x10, 0x20, 0x30].map(|at| tiers.find(at).unwrap().0),
            ["JS:g /s.js:1:2", "JS: /s.js:9:1", "py::*:/a.py"]
        );
        assert_eq!((map.find(0x7f20), map.find(0x8008), map.find(0)), (None, None, None));
    }
}
