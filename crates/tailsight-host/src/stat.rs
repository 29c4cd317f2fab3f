//! The stat file of a process or a thread. In: an id, or the text of the file. Out: its fields, by their numbers in
//! proc_pid_stat(5).

use std::str::FromStr;

/// A line of `/proc/PID/stat`: `pid (comm) state ppid …`. The name may contain spaces, parentheses, and bytes that are not
/// text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pid: String,
    comm: String,
    /// What follows the name.
    rest: String,
}

impl Stat {
    /// Of an existing process.
    #[must_use]
    pub fn of_process(pid: u32) -> Option<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    /// Of an existing thread.
    #[must_use]
    pub fn of_thread(pid: u32, thread: u32) -> Option<Self> {
        Self::read(&format!("/proc/{pid}/task/{thread}/stat"))
    }

    fn read(path: &str) -> Option<Self> {
        Self::parse(std::fs::read(path).ok()?)
    }

    /// Parses the file's bytes; `None` if they are not such a line.
    #[must_use]
    pub fn parse(bytes: impl AsRef<[u8]>) -> Option<Self> {
        let bytes = bytes.as_ref();
        let (open, close) = (bytes.iter().position(|b| *b == b'(')?, bytes.iter().rposition(|b| *b == b')')?);
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let comm = tailsight_units::name::from_bytes(bytes.get(open + 1..close)?);
        Some(Self { pid: text(&bytes[..open]), comm, rest: text(&bytes[close + 1..]) })
    }

    /// The process' or the thread's id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.pid.trim().parse().ok()
    }

    /// Its name, as [`tailsight_units::name`] writes its bytes.
    #[must_use]
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// A field by its number, from 3 (the state) on.
    #[must_use]
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        self.rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
    }

    /// `R`, `S`, `Z` …
    #[must_use]
    pub fn state(&self) -> Option<char> {
        self.field(3)
    }

    /// Whether it has ended and its parent has not waited for it yet.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state(), None | Some('Z' | 'X'))
    }

    /// The parent's process id.
    #[must_use]
    pub fn parent(&self) -> Option<u32> {
        self.field(4)
    }

    /// When it started, clock ticks after the boot: the id and this identify a process.
    #[must_use]
    pub fn started(&self) -> Option<u64> {
        self.field(22)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_moves_no_field() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 69238880 100 0 0 0 1 2 0 0 20 0 1 0 8812 0 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.pid(), stat.comm(), stat.state(), stat.parent()), (Some(42), "a) b (c)", Some('S'), Some(7)));
        assert_eq!((stat.started(), stat.field::<u64>(9), stat.is_zombie()), (Some(8812), Some(69_238_880), false));
        assert_eq!((stat.field::<u64>(99), stat.field::<u64>(2)), (None, None));
    }

    #[test]
    fn what_is_no_such_line_is_none() {
        for text in ["", "garbage", "42 )(", "42 (a"] {
            assert_eq!(Stat::parse(text), None, "{text:?}");
        }
        let cut = Stat::parse("42 (a) S 1").unwrap();
        assert_eq!((cut.parent(), cut.started()), (Some(1), None));
        assert!(Stat::parse("42 (a)").unwrap().is_zombie() && Stat::parse("42 (a) Z 1").unwrap().is_zombie());
    }

    /// The kernel cuts a name at 15 bytes, also inside a character: such a process was invisible to `record`.
    #[test]
    fn a_name_that_is_no_text_is_read_without_loss() {
        let stat = Stat::parse(b"42 (\xe3\x82\xb5\xe3\x83) \xff) S 7 42 42 0 -1").unwrap();
        assert_eq!((stat.comm(), stat.state(), stat.parent()), (r"サ\xe3\x83) \xff", Some('S'), Some(7)));
    }

    #[test]
    fn this_process_and_its_thread_are_there() {
        let pid = std::process::id();
        let stat = Stat::of_process(pid).unwrap();
        assert_eq!((stat.pid(), stat.parent()), (Some(pid), Some(std::os::unix::process::parent_id())));
        assert_eq!(Stat::of_thread(pid, pid).unwrap().started(), stat.started());
        assert_eq!(Stat::of_process(u32::MAX), None);
    }
}
