//! An Intel PT recording as text: what `perf script` printed of it, where the recording itself is not at hand.
//!
//! In: the output of `perf script --itrace=be --ns -F comm,pid,tid,cpu,time,event,flags,ip,sym,symoff,addr,dso`; without `comm`, `cpu`,
//! `event` and `dso` it is what magic-trace asks perf for. `--itrace=cre` (calls and returns) is shorter, and does not show jumps: a
//! function that was entered by a tail call is then known only from its first call or its return. Out: the same [`Event`]s as of a
//! perf.data file. The text is read twice and is never in memory as a whole. perf's decoding is not checked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_symbolise::reader::Reader;

use crate::Error;
use crate::decode::{Op, Step};
use crate::memory::{KERNEL_HALF, Memory, TextFunction};
use crate::moves::Moves;
use crate::recording::{Summary, give, names};
use crate::sideband::{Name, Sideband, Switch, Switches, Upcoming};
use crate::stacks::{Core, Event, Stacks};

mod line;

pub use line::{About, Kind, Line, Place, parse};

/// Bytes at the beginning of a file that are searched for a line of perf's.
const LOOKED_AT: u64 = 64 << 10;
/// Bytes of the longest line that perf may print.
const LONGEST_LINE: u64 = 64 << 10;
/// The error as which an unknown line is counted.
const NOT_UNDERSTOOD: &str = "a line that was not understood";

/// An opened text.
#[derive(Debug)]
pub struct Script {
    /// The file.
    pub path: PathBuf,
    /// Who ran where, as the lines show it.
    pub sideband: Sideband,
    /// The functions that the lines name, and where each is.
    pub memory: Memory,
    /// Whether jumps are printed too.
    jumps: bool,
    /// Bytes.
    length: u64,
}

/// A core; or a thread, where perf did not print cores.
type Key = (Option<u32>, u32);

fn key(cpu: Option<u32>, tid: u32) -> Key {
    (cpu, if cpu.is_some() { 0 } else { tid })
}

impl Script {
    /// Whether a file is such a text: perf printed a branch, a switch or an error near its beginning.
    pub fn is_one(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        let mut bytes = Vec::new();
        if file.take(LOOKED_AT).read_to_end(&mut bytes).is_err() || bytes.starts_with(b"PERFILE2") {
            return false;
        }
        let text = String::from_utf8_lossy(&bytes);
        text.lines().any(|line| !matches!(parse(line), Line::Other | Line::Unknown) || line.contains("branches:"))
    }

    /// Reads it once: who ran where, and where functions are.
    ///
    /// # Errors
    /// [`Error::Read`]; [`Error::Text`] when it has no branch with all that is needed.
    pub fn open(path: &Path) -> Result<Script, Error> {
        let mut first_reading = FirstReading::default();
        let length = lines(path, |line| first_reading.take(&parse(line)))?;
        if first_reading.branches == 0 {
            let why = format!("{} lines, and none is a branch with its flags and symbols", first_reading.lines);
            return Err(Error::Text { path: path.into(), why });
        }
        let mut sideband = Sideband { names: first_reading.names, ..Sideband::default() };
        for (cpu, moves) in first_reading.moves {
            sideband.switches.insert(cpu, moves.finish());
        }
        let named = |((pid, start), f): ((u32, u64), PrintedFunction)| {
            let pid = (start < KERNEL_HALF).then_some(pid);
            TextFunction { pid, range: start..f.end, name: f.name, file: f.file }
        };
        let memory = Memory::of_functions(first_reading.functions.into_iter().map(named));
        Ok(Script { path: path.into(), sideband, memory, jumps: first_reading.jumps, length })
    }

    /// Reads it again and gives what happened to `each`.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn decode(&self, mut each: impl FnMut(&Event)) -> Result<Summary, Error> {
        let mut stacks = Stacks::new(&self.memory);
        let mut summary = Summary { trace_bytes: self.length, decoded_bytes: self.length, ..Summary::default() };
        let mut cores: BTreeMap<Key, Core<'_>> = BTreeMap::new();
        let mut unknown = 0;
        lines(&self.path, |line| {
            let line = parse(line);
            self.line(&line, &mut stacks, &mut cores);
            unknown += u64::from(line == Line::Unknown);
            give(&mut stacks, &mut summary, &mut each);
        })?;
        for core in cores.values_mut() {
            stacks.finish(core);
        }
        give(&mut stacks, &mut summary, &mut each);
        if unknown > 0 {
            summary.errors.insert(NOT_UNDERSTOOD, unknown);
        }
        summary.functions = names(&self.memory, &stacks.names.places, &mut Reader::default());
        summary.counts = stacks.counts;
        Ok(summary)
    }

    fn switches(&self, key: Key) -> Upcoming<'_> {
        key.0.and_then(|cpu| self.sideband.switches.get(&cpu)).map(Switches::iter).unwrap_or_default()
    }

    fn line<'a>(&'a self, line: &Line<'_>, stacks: &mut Stacks<'_>, cores: &mut BTreeMap<Key, Core<'a>>) {
        let mut core = |cpu: Option<u32>, pid: u32, tid: u32, ns: u64, ops: &[Op]| {
            let key = key(cpu, tid);
            let only = cpu.is_none().then_some((pid, tid));
            let core = cores.entry(key).or_insert_with(|| Core::new(cpu, only, self.switches(key)));
            for op in ops {
                stacks.step(core, core.not_before(ns), &Step { ns, op: *op });
            }
        };
        match *line {
            Line::Branch { about, kind, begins, ends, from, to } => {
                let ops = self.ops(kind, begins, ends, &from, &to);
                core(about.cpu, about.pid, about.tid, about.ns, &ops);
            }
            Line::Lost { ns, cpu, tid, why } => core(cpu, tid, tid, ns, &[Op::Gap(why)]),
            Line::Switch { about, .. } => core(about.cpu, about.pid, about.tid, about.ns, &[]),
            Line::Other | Line::Unknown => {}
        }
    }

    fn ops(&self, kind: Kind, begins: bool, ends: bool, from: &Place<'_>, to: &Place<'_>) -> Vec<Op> {
        let mut ops = Vec::with_capacity(2);
        let (from_ip, to_ip) = (from.ip, to.ip);
        if begins {
            ops.push(Op::On { ip: to_ip });
        } else if !self.jumps && from_ip != 0 {
            // Without jumps, a function that was entered by a tail call shows only by its next call or return.
            ops.push(Op::Jump { to: from_ip });
        }
        if ends {
            ops.push(Op::Off { from: from_ip });
        }
        if begins || ends {
            return ops;
        }
        match kind {
            Kind::Call => ops.push(Op::Call { from: from_ip, to: to_ip }),
            Kind::Return => ops.push(Op::Return { from: from_ip, to: to_ip }),
            Kind::SystemCall => ops.push(Op::Enter { from: from_ip, to: to_ip }),
            Kind::Leave => ops.push(Op::Leave { to: to_ip }),
            Kind::Interrupt => ops.push(Op::Interrupt { from: from_ip, to: to_ip }),
            Kind::Jump => {
                let same = from.symbol.is_some() && from.symbol == to.symbol && from.file == to.file;
                if !same {
                    ops.push(Op::Jump { to: to_ip });
                }
            }
        }
        ops
    }
}

/// A function, as far as the lines show it.
struct PrintedFunction {
    name: String,
    file: String,
    /// The address after the last one that was seen in it.
    end: u64,
}

/// What the first reading of the text finds.
#[derive(Default)]
struct FirstReading {
    names: Vec<Name>,
    known: FxHashSet<u32>,
    moves: BTreeMap<u32, Moves>,
    /// By process (the kernel's: 0) and first address.
    functions: FxHashMap<(u32, u64), PrintedFunction>,
    jumps: bool,
    branches: u64,
    lines: u64,
}

impl FirstReading {
    fn take(&mut self, line: &Line<'_>) {
        self.lines += 1;
        match *line {
            Line::Branch { about, kind, begins, ends, from, to } => {
                self.branches += 1;
                self.jumps |= kind == Kind::Jump && !begins && !ends;
                self.name(&about);
                self.place(&about, &from);
                self.place(&about, &to);
                // Where switches are not printed, the thread of a branch had the core.
                self.moved(&about, true, about.pid, about.tid, false);
            }
            Line::Switch { about, came, preempted, next } => {
                self.name(&about);
                let (pid, tid) = if came { (about.pid, about.tid) } else { next };
                self.moved(&about, came, pid, tid, preempted);
            }
            _ => {}
        }
    }

    fn moved(&mut self, about: &About<'_>, came: bool, pid: u32, tid: u32, preempted: bool) {
        let Some(cpu) = about.cpu else { return };
        let moves = self.moves.entry(cpu).or_default();
        let has_core = moves.last().is_some_and(|(before, last)| before && came && last.tid == tid);
        if !has_core {
            moves.push(came, Switch { time_ns: about.ns, pid, tid, preempted });
        }
    }

    fn name(&mut self, about: &About<'_>) {
        if !about.comm.is_empty() && self.known.insert(about.tid) {
            let comm = about.comm.to_owned();
            self.names.push(Name { time_ns: about.ns, pid: about.pid, tid: about.tid, comm });
        }
    }

    fn place(&mut self, about: &About<'_>, place: &Place<'_>) {
        let Some((name, start)) = place.symbol else { return };
        let pid = if start >= KERNEL_HALF { 0 } else { about.pid };
        let new = || PrintedFunction { name: name.to_owned(), file: place.file.to_owned(), end: place.ip };
        let function = self.functions.entry((pid, start)).or_insert_with(new);
        function.end = function.end.max(place.ip.saturating_add(1));
    }
}

/// Gives each line to `each`. Returns the number of bytes read.
fn lines(path: &Path, mut each: impl FnMut(&str)) -> Result<u64, Error> {
    let read = |source| Error::Read { path: path.into(), source };
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(read)?);
    let (mut bytes, mut length) = (Vec::new(), 0);
    loop {
        bytes.clear();
        let n = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes).map_err(read)?;
        if n == 0 {
            return Ok(length);
        }
        length += n as u64;
        each(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
    }
}
