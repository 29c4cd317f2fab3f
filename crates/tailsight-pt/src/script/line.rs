//! A line that `perf script` prints of an Intel PT recording.
//!
//! In: a line with the fields `tid` (or `pid,tid`), `time`, `flags`, `ip`, `addr`, `sym`, `symoff`, and if they are there `comm`, `cpu`,
//! `event` and `dso`, in perf's own order. Out: [`Line`]. Times are perf's, ns; where perf printed microseconds, whole ones.

use crate::gap::Gap;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A branch.
    Branch {
        /// Who took it, when.
        about: About<'a>,
        /// What it was.
        kind: Kind,
        /// Tracing began with it.
        begins: bool,
        /// Tracing ended with it.
        ends: bool,
        /// The instruction.
        from: Place<'a>,
        /// Its target.
        to: Place<'a>,
    },
    /// A task left the core or came to it (`--show-switch-events`).
    Switch {
        /// The task that the record is about, when.
        about: About<'a>,
        /// Whether the task came; else it left.
        came: bool,
        /// Whether it was preempted: it was still runnable.
        preempted: bool,
        /// Of a task that left: process and thread of the next.
        next: (u32, u32),
    },
    /// perf's decoder reported an error (`--itrace=e`).
    Lost {
        /// When.
        ns: u64,
        /// The core.
        cpu: Option<u32>,
        /// The thread.
        tid: u32,
        /// Why.
        why: Gap,
    },
    /// Something else: an empty line, another event.
    Other,
    /// A branch that lacks a needed field, or a line that perf did not print.
    Unknown,
}

/// Who and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About<'a> {
    /// Name of the task; empty when it is not there.
    pub comm: &'a str,
    /// Process; the thread where perf was not asked for it.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Core.
    pub cpu: Option<u32>,
    /// perf's time, ns.
    pub ns: u64,
}

/// What a branch was: perf's `flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A near call.
    Call,
    /// A near return.
    Return,
    /// A jump.
    #[default]
    Jump,
    /// A system call or a software interrupt.
    SystemCall,
    /// The return from a system call, an interrupt or an exception.
    Leave,
    /// An interrupt or an exception.
    Interrupt,
}

/// One end of a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<'a> {
    /// The address; 0: not known.
    pub ip: u64,
    /// The function's name and its first address.
    pub symbol: Option<(&'a str, u64)>,
    /// The file; empty when it is not there.
    pub file: &'a str,
}

/// Takes a line apart.
pub fn parse(line: &str) -> Line<'_> {
    if line.trim().is_empty() || line.starts_with('#') {
        return Line::Other;
    }
    if let Some(rest) = line.trim_start().strip_prefix("instruction trace error") {
        return lost(rest).unwrap_or(Line::Unknown);
    }
    let Some((about, rest)) = about(line) else {
        // The count of errors at the end.
        return if line.ends_with("instruction trace errors") { Line::Other } else { Line::Unknown };
    };
    if let Some(record) = rest.strip_prefix("PERF_RECORD_SWITCH") {
        return switch(about, record);
    }
    if rest.starts_with("PERF_RECORD_") {
        return Line::Other;
    }
    branch(about, rest)
}

/// The fields up to the time, and the rest of the line.
fn about(line: &str) -> Option<(About<'_>, &str)> {
    let (at, word) = words(line).skip(1).find(|(_, word)| time(word).is_some())?;
    let rest = line[at + word.len()..].trim_start();
    let mut before = line[..at].trim();
    let last = before.rsplit(char::is_whitespace).next()?;
    let cpu = last.strip_prefix('[').and_then(|n| n.strip_suffix(']')).and_then(|n| n.parse().ok());
    if cpu.is_some() {
        before = before[..before.len() - last.len()].trim_end();
    }
    let ids = before.rsplit(char::is_whitespace).next()?;
    let comm = before[..before.len() - ids.len()].trim_end();
    // perf says -1 where it does not know.
    let id = |text: &str| text.parse::<i64>().ok().map(|n| u32::try_from(n).unwrap_or(0));
    let (pid, tid) = match ids.split_once('/') {
        Some((pid, tid)) => (id(pid)?, id(tid)?),
        None => (id(ids)?, id(ids)?),
    };
    Some((About { comm, pid, tid, cpu, ns: time(word)? }, rest))
}

fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let base = text.as_ptr() as usize;
    text.split_whitespace().map(move |word| (word.as_ptr() as usize - base, word))
}

/// `SECONDS.FRACTION:`
fn time(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let ns = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

fn switch<'a>(about: About<'a>, record: &'a str) -> Line<'a> {
    let mut words = record.split_whitespace().skip_while(|word| *word != "IN" && *word != "OUT");
    let came = match words.next() {
        Some("IN") => true,
        Some("OUT") => false,
        _ => return Line::Unknown,
    };
    let preempted = !came && record.contains("preempt");
    let next = words.find_map(|word| {
        let (pid, tid) = word.split_once('/')?;
        Some((pid.parse().ok()?, tid.parse().ok()?))
    });
    Line::Switch { about, came, preempted, next: next.unwrap_or((0, 0)) }
}

fn branch<'a>(about: About<'a>, rest: &'a str) -> Line<'a> {
    let mut rest = rest;
    // A period and the event's name, where perf was asked for them.
    let mut words = rest.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_event = |word: &str| word.len() > 1 && word.ends_with(':');
    let is_count = first.bytes().all(|b| b.is_ascii_digit()) && is_event(second);
    let event = if is_count { second } else { first };
    if is_event(event) {
        if !event.starts_with("branches") {
            return Line::Other;
        }
        let skipped = event.as_ptr() as usize - rest.as_ptr() as usize + event.len();
        rest = rest[skipped..].trim_start();
    }
    let Some((left, right)) = rest.split_once(" => ") else { return Line::Other };
    let (mut kind, mut begins, mut ends, mut flagged) = (Kind::Jump, false, false, false);
    let mut left = left;
    loop {
        left = left.trim_start();
        let word = left.split_whitespace().next().unwrap_or_default();
        match word {
            "call" => kind = Kind::Call,
            "return" => kind = Kind::Return,
            "syscall" | "int" => kind = Kind::SystemCall,
            "sysret" | "iret" => kind = Kind::Leave,
            "hw" | "async" => kind = Kind::Interrupt,
            // The second words of "tx abrt", "tr strt" and "tr end", and flags that do not change the kind of branch.
            "jmp" | "jcc" | "tx" | "abrt" | "tr" | "vmentry" | "vmexit" => {}
            "strt" => begins = true,
            "end" => ends = true,
            _ if word.starts_with('(') && flagged => {}
            _ => break,
        }
        flagged = true;
        left = &left[word.len()..];
        if word == "hw" {
            left = left.trim_start().strip_prefix("int").unwrap_or(left);
        }
    }
    match (flagged, place(left), place(right)) {
        (true, Some(from), Some(to)) => Line::Branch { about, kind, begins, ends, from, to },
        _ => Line::Unknown,
    }
}

/// `ADDRESS SYMBOL+OFFSET (FILE)`
fn place(text: &str) -> Option<Place<'_>> {
    let text = text.trim();
    let (address, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let ip = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim_start();
    if let Some(file) = rest.strip_prefix("[unknown]") {
        let file = file.trim().trim_start_matches('(').trim_end_matches(')');
        return Some(Place { ip, symbol: None, file: if file == "[unknown]" { "" } else { file } });
    }
    let Some((name, behind)) = rest.rsplit_once("+0x") else {
        // A name without an offset: where the function begins is not known.
        return rest.is_empty().then_some(Place { ip, ..Place::default() });
    };
    let digits = behind.bytes().take_while(u8::is_ascii_hexdigit).count();
    let start = ip.checked_sub(u64::from_str_radix(&behind[..digits], 16).ok()?);
    let file = behind[digits..].trim();
    let file = file.strip_prefix('(').and_then(|file| file.strip_suffix(')')).unwrap_or_default();
    // For some stubs perf prints an offset that is larger than the address: it is ignored.
    Some(Place { ip, symbol: start.map(|start| (name, start)), file })
}

fn lost(rest: &str) -> Option<Line<'_>> {
    let behind = |what: &str| {
        let mut words = rest.split_whitespace().skip_while(|word| *word != what);
        words.nth(1)
    };
    let ns = time(&format!("{}:", behind("time")?))?;
    let cpu = behind("cpu").and_then(|n| n.parse().ok());
    let tid = behind("tid").and_then(|n| n.parse().ok()).unwrap_or(0);
    let (_, why) = rest.split_once(": ")?;
    let why = match why.trim() {
        "Overflow packet" => Gap::Overflow,
        "Lost trace data" => Gap::Truncated,
        "Failed to get instruction" => Gap::NoCode,
        _ => Gap::Damaged,
    };
    Some(Line::Lost { ns, cpu, tid, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(line: &str) -> (About<'_>, Kind, Place<'_>, Place<'_>) {
        match parse(line) {
            Line::Branch { about, kind, from, to, .. } => (about, kind, from, to),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn branches_in_the_forms_that_perf_has() {
        let whole = "  my server  1000/1002  [003]     3.147490074:          1   branches:uhH:   call     \
                     401115 std::sort<int>(int*, int*)+0x45 (/bin/x (deleted)) =>           4010b0 up+0x0 (/two-threads)";
        let (about, kind, from, to) = of(whole);
        let expected = About { comm: "my server", pid: 1000, tid: 1002, cpu: Some(3), ns: 3_147_490_074 };
        assert_eq!((about, kind), (expected, Kind::Call));
        assert_eq!(from.symbol, Some(("std::sort<int>(int*, int*)", 0x4010d0)));
        assert_eq!((from.file, to.symbol, to.ip), ("/bin/x (deleted)", Some(("up", 0x4010b0)), 0x4010b0));
        // As magic-trace asks for it.
        let (about, kind, from, _) =
            of(" 1000/1002      3.147511431:   jcc        40116a slow_path+0x2a => 401160 slow_path+0x20");
        assert_eq!((about.cpu, about.comm, about.tid, kind), (None, "", 1002, Kind::Jump));
        assert_eq!((from.symbol, from.file), (Some(("slow_path", 0x401140)), ""));
        // Microseconds, the kernel, an interrupt.
        let (about, kind, _, to) = of(
            "x 7 [000] 3.147484: branches:   hw int     401036 _start+0x6 (/x) => ffffffff81a00e30 asm_sysvec+0x0 ([kernel.kallsyms])",
        );
        assert_eq!((about.pid, about.ns, kind), (7, 3_147_484_000, Kind::Interrupt));
        assert_eq!((to.ip, to.file), (0xffff_ffff_81a0_0e30, "[kernel.kallsyms]"));
        let strange = of("1/1 1.000000000: call (x) 10 a@plt+0xffffffffff22f000 (/x) => 0 [unknown] ([unknown])");
        assert_eq!((strange.2.symbol, strange.3), (None, Place::default()));
    }

    #[test]
    fn begin_end_switches_and_errors() {
        let begin = parse("1000/1000 3.147484648:   tr strt      0 [unknown] ([unknown]) =>  401030 _start+0x0 (/t)");
        assert!(matches!(begin, Line::Branch { begins: true, ends: false, .. }));
        let end = parse("1000/1000 3.147484648:   tr end  syscall  401019 spawn+0x19 =>  0 [unknown]");
        assert!(matches!(end, Line::Branch { begins: false, ends: true, kind: Kind::SystemCall, .. }));
        let line = "swapper     0/0     [000]     3.147484148: PERF_RECORD_SWITCH_CPU_WIDE OUT          next pid/tid:  1000/1001 ";
        assert!(matches!(parse(line), Line::Switch { came: false, preempted: false, next: (1000, 1001), .. }));
        let line = "x 5/6 [001] 3.1: PERF_RECORD_SWITCH_CPU_WIDE OUT preempt next pid/tid: 0/0";
        assert!(matches!(parse(line), Line::Switch { preempted: true, .. }));
        let line = " instruction trace error type 1 time 3.147499567 cpu 1 pid 1000 tid 1001 ip 0x40133c code 7: Overflow packet";
        let expected = Line::Lost { ns: 3_147_499_567, cpu: Some(1), tid: 1001, why: Gap::Overflow };
        assert_eq!(parse(line), expected);
        assert_eq!(parse("x 5/6 [001] 3.1:  psb:  psb offs: 0    0 [unknown] ([unknown])"), Line::Other);
        assert_eq!(parse("1 instruction trace errors"), Line::Other);
    }

    #[test]
    fn what_is_missing_makes_a_line_unknown_and_not_a_guess() {
        // No flags: nothing says what kind of branch it was.
        assert_eq!(
            parse("x 7 [000] 3.147484: 1 branches:uh: 401036 _start+0x6 (/x) => 4012d0 begin+0x0 (/x)"),
            Line::Unknown
        );
        assert_eq!(parse("make: *** [all] Error 2"), Line::Unknown);
        // No offset: nothing says where the function begins.
        assert_eq!(parse("7/7 3.147484: call 401036 _start => 4012d0 begin"), Line::Unknown);
    }

    proptest! {
        #[test]
        fn any_text_is_some_line(line in "\\PC{0,120}", words in proptest::collection::vec(
            proptest::sample::select(vec!["1/2", "[001]", "3.5:", "call", "tr", "hw", "=>", "40a", "f+0x", "(", "é+0x1", "+0x", "branches:", "time"]), 0..14)) {
            let _ = parse(&line);
            let _ = parse(&words.join(" "));
        }
    }
}
