//! What a runtime compiled, as it tells in `/tmp/perf-PID.map`: Node with `--perf-basic-prof`, CPython 3.12 with `-X perf`, a JVM with
//! `jcmd PID Compiler.perfmap`.
//!
//! In: the file's lines, `start size name` with the numbers in hexadecimal. Out: [`PerfMap`].

use std::io::Read;
use std::path::PathBuf;

use super::shortened;

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
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let inside = status.lines().find_map(|l| l.strip_prefix("NSpid:")?.split_whitespace().next_back());
        let names =
            [inside.map(|id| format!("/proc/{pid}/root/tmp/perf-{id}.map")), Some(format!("/tmp/perf-{pid}.map"))];
        let path = names.into_iter().flatten().map(PathBuf::from).find(|path| path.is_file())?;
        let mut text = Vec::new();
        std::fs::File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        Some(PerfMap::parse(&String::from_utf8_lossy(&text)))
    }

    /// Takes the lines of such a file; those that it does not understand are left out.
    pub fn parse(text: &str) -> PerfMap {
        let line = |line: &str| {
            let (start, rest) = line.split_once(' ')?;
            let (size, name) = rest.split_once(' ')?;
            let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            let start = hex(start)?;
            Some((start, start.checked_add(hex(size)?.max(1))?, shortened(name)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_an_address_counts() {
        let map =
            PerfMap::parse("7f00 10 py::old:/a.py\n7f00 20 py::new:/a b.py\nzz 1 x\n0x8000 8 LazyCompile:~f x.js:3\n");
        assert_eq!(map.find(0x7f1f), Some(("py::new:/a b.py", 0x1f)));
        assert_eq!(map.find(0x8004), Some(("LazyCompile:~f x.js:3", 4)));
        assert_eq!((map.find(0x7f20), map.find(0x8008), map.find(0)), (None, None, None));
    }
}
