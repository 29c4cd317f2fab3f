//! Samples to tables: finds the call stack of each, and names the functions at the end.
//!
//! In: [`Raw`] samples, whose stack bytes are looked at once, and the processes that they are of. Out: [`Samples`], and what could not be
//! found, in words. Files of these processes are opened here and read elsewhere ([`crate::reader`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use rustc_hash::FxHashMap;
use serde_bytes::ByteBuf;
use tailsight_trace::samples::{FrameRow, JIT, SampleRow, Samples};

use crate::cpython::Cpython;
use crate::maps::{Mapping, Maps};
use crate::reader::Reader;
use crate::reader::protocol::{About, FileId, Mapped, Places, Sample};
use crate::resolve::Resolve;
use crate::resolve::perf_map::PerfMap;
use crate::unwind::Registers;

/// The page of code that the kernel gives every process.
const VDSO: &str = "[vdso]";
/// The page in which a thread does the instruction that a breakpoint (uprobe) is at.
const UPROBES: &str = "[uprobes]";
/// Most notes of files: a process may have thousands.
const MOST_NOTES: usize = 6;
/// Programs and libraries that are opened at most; each keeps a descriptor.
const MOST_FILES: usize = 400;
/// Bytes of all lists of mappings at most: a target has as many processes as it likes, and each of them as many mappings.
const MOST_MAPPING_BYTES: usize = 128 << 20;
/// Of these in a second: a storm leaves room for what comes after it.
const MAPPING_BYTES_A_SECOND: usize = 64 << 20;
/// Numbers of files from here on are maps of compiled code, by process.
const FIRST_MAP: FileId = 1 << 30;

/// A sample as it was taken.
#[derive(Clone, Debug)]
pub struct Raw {
    /// When, on which core, whose; its `stack` is not looked at.
    pub row: SampleRow,
    /// A process with the same program at the same addresses, for one that has ended before it was looked at; 0: not known.
    pub like: u32,
    /// Addresses in the kernel, innermost first; the first is where it was, the others are returned to.
    pub kernel: Vec<u64>,
    /// The user registers.
    pub registers: Registers,
    /// The bytes above the stack pointer.
    pub bytes: Vec<u8>,
    /// The functions that an interpreter ran there, innermost first.
    pub interpreted: Vec<Interpreted>,
}

/// A function that an interpreter ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreted {
    /// As a frame of a call stack; none: a mark alone, or its name was not to be had.
    pub frame: Option<FrameRow>,
    /// The interpreter's own code called it: its callers are behind that on the thread's stack.
    pub entered: bool,
}

/// Where an address is, before it has a name. Two samples at the same place of the same file share a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Kernel {
        address: u64,
    },
    File {
        file: FileId,
        offset: u64,
    },
    Compiled {
        process: u32,
        address: u64,
    },
    /// It has a name already, by number.
    Named(u32),
    /// A function that an interpreter ran, likewise. These are behind all others of a stack.
    Interpreted {
        named: Option<u32>,
        entered: bool,
    },
    Breakpoint,
    Unknown,
}

/// A program or library.
struct Module {
    name: String,
    /// Whether the reader has it.
    is_given: bool,
}

#[derive(Default)]
struct Process {
    maps: Maps,
    /// Whether the reader has them.
    is_told: bool,
    /// The map that its runtime wrote, opened.
    compiled: Option<File>,
    /// The file that it runs.
    program: String,
    /// A mapping's file by the mapping's start.
    files: FxHashMap<u64, FileId>,
}

/// Collects samples.
#[derive(Default)]
pub struct Stacks {
    reader: Reader,
    processes: FxHashMap<u32, Process>,
    modules: Vec<Module>,
    /// By the file's number and name.
    module_of: FxHashMap<(u64, String), FileId>,
    stack_of: FxHashMap<Vec<Place>, u32>,
    stacks: Vec<Vec<Place>>,
    /// Frames that have names already, by number.
    named: Vec<FrameRow>,
    number_of_named: FxHashMap<FrameRow, u32>,
    rows: Vec<SampleRow>,
    mapping_room: MappingRoom,
    notes: BTreeMap<String, u64>,
}

/// Room for lists of mappings.
#[derive(Debug, Default)]
struct MappingRoom {
    used_bytes: usize,
    /// Since when bytes are counted, for a second at most, and how many.
    since: Option<Instant>,
    taken_bytes: usize,
}

impl MappingRoom {
    /// Takes room for a list in the place of one of `before_bytes`; whether there was some.
    fn take(&mut self, now: Instant, bytes: usize, before_bytes: usize) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            (self.since, self.taken_bytes) = (Some(now), 0);
        }
        let used_bytes = self.used_bytes.saturating_sub(before_bytes).saturating_add(bytes);
        let taken_bytes = self.taken_bytes.saturating_add(bytes);
        let has_room = used_bytes <= MOST_MAPPING_BYTES && taken_bytes <= MAPPING_BYTES_A_SECOND;
        if has_room {
            (self.used_bytes, self.taken_bytes) = (used_bytes, taken_bytes);
        }
        has_room
    }
}

/// What became of the samples.
#[derive(Debug, Default)]
pub struct StackTables {
    /// The tables.
    pub samples: Samples,
    /// User frames without a name, and all of them, over the stacks.
    pub unnamed: [u64; 2],
    /// What could not be looked into, each once.
    pub notes: Vec<String>,
}

impl Stacks {
    /// With what reads the files.
    pub fn new(reader: Reader) -> Stacks {
        Stacks { reader, ..Stacks::default() }
    }

    /// What reads the files.
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// Takes in what a process has mapped now, and opens it: at the start of a recording, and again when it is over, for libraries come and
    /// go, and so do processes. Nothing is read.
    pub fn look_at(&mut self, pid: u32) {
        match Maps::of(pid) {
            Ok(maps) if !maps.is_empty() => {
                let mut process = self.processes.remove(&pid).unwrap_or_default();
                if let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) {
                    let path = program.to_string_lossy();
                    process.program = path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned();
                }
                if process.maps != maps {
                    let updated = process.maps.clone().updated(maps);
                    if self.mapping_room.take(Instant::now(), updated.bytes(), process.maps.bytes()) {
                        process.maps = updated;
                        process.is_told = false;
                        process.files = self.files_of(pid, &process);
                    } else {
                        self.note(
                            "some lists of mappings were left out: there were more than a recording keeps".into(),
                        );
                    }
                }
                process.compiled = PerfMap::open(pid).or_else(|| process.compiled.take());
                self.processes.insert(pid, process);
            }
            Ok(_) => {}
            Err(e) if self.processes.get(&pid).is_none_or(|p| p.maps.is_empty()) => {
                self.note(tailsight_units::chain(&e))
            }
            Err(_) => {}
        }
    }

    /// Processes that were looked at.
    pub fn knows(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// The program of a process that was looked at: its file's number and name.
    pub fn program_of(&self, pid: u32) -> Option<(u64, String)> {
        let process = self.processes.get(&pid)?;
        let program = process.maps.all().iter().find(|mapping| mapping.path == process.program)?;
        Some((program.inode, program.name().to_owned()))
    }

    /// Which Go built the program of a process that was looked at: `go1.22.5`, empty where that cannot be told. None of other programs.
    pub fn go_version(&mut self, pid: u32) -> Option<String> {
        let process = self.processes.get(&pid)?;
        let of_program = process.maps.all().iter().find(|mapping| mapping.path == process.program)?;
        let file = *process.files.get(&of_program.start)?;
        self.modules.get(file as usize).filter(|module| module.is_given)?;
        self.reader.go_version(file)
    }

    /// Where the CPython of a process that was looked at has its `_PyRuntime`, and which CPython it is: the program, or a library of it. None
    /// of other programs.
    pub fn cpython(&mut self, pid: u32) -> Option<(u64, Cpython)> {
        let process = self.processes.get(&pid)?;
        let is_python =
            |mapping: &&Mapping| mapping.path == process.program || mapping.name().starts_with("libpython3.");
        let candidates: Vec<(u64, FileId)> = process
            .maps
            .all()
            .iter()
            .filter(is_python)
            .filter_map(|mapping| {
                Some((mapping.start.wrapping_sub(mapping.offset), *process.files.get(&mapping.start)?))
            })
            .filter(|&(_, file)| self.modules.get(file as usize).is_some_and(|module| module.is_given))
            .collect();
        candidates.into_iter().find_map(|(begin, file)| {
            let cpython = self.reader.cpython(file)?;
            Some((begin.wrapping_sub(cpython.code_bias).wrapping_add(cpython.runtime), cpython))
        })
    }

    /// Whether a process that was looked at has mapped code of a file whose name begins so.
    pub fn has_mapped(&self, pid: u32, name: &str) -> bool {
        let maps = self.processes.get(&pid).map(|process| process.maps.all());
        maps.is_some_and(|mappings| mappings.iter().any(|mapping| mapping.name().starts_with(name)))
    }

    /// The number of a call stack whose functions have names already, innermost first: those that an interpreter runs.
    pub fn stack_of_names(&mut self, frames: impl IntoIterator<Item = FrameRow>) -> u32 {
        let places = frames.into_iter().map(|frame| Place::Named(self.number_of_name(frame))).collect();
        self.number_of_places(places)
    }

    /// The number of a frame that has a name already.
    fn number_of_name(&mut self, frame: FrameRow) -> u32 {
        let next = self.named.len() as u32;
        *self.number_of_named.entry(frame.clone()).or_insert_with(|| {
            self.named.push(frame);
            next
        })
    }

    /// Finds the call stacks of samples, and keeps when and where they were taken. Gives the number of each one's call stack.
    pub fn add(&mut self, batch: Vec<Raw>) -> Vec<u32> {
        let rows: Vec<SampleRow> = batch.iter().map(|raw| raw.row).collect();
        let stacks = self.stacks_of(batch);
        self.rows.extend(rows.into_iter().zip(&stacks).map(|(row, &stack)| SampleRow { stack, ..row }));
        stacks
    }

    /// Finds the call stacks of samples. Of their bytes only addresses of code are kept. Gives the number of each one's call stack.
    pub fn stacks_of(&mut self, batch: Vec<Raw>) -> Vec<u32> {
        let mut asked = vec![];
        let mut heads = Vec::with_capacity(batch.len());
        for raw in batch {
            let pid = self.looked_at(raw.row.tgid, raw.like);
            let has_user = raw.registers.sp != 0;
            if has_user {
                self.tell(pid);
                asked.push(Sample { process: pid, registers: raw.registers, bytes: ByteBuf::from(raw.bytes) });
            }
            heads.push((pid, has_user, raw.kernel, raw.interpreted));
        }
        let mut unwound = if asked.is_empty() { vec![] } else { self.reader.unwind(asked) }.into_iter();
        heads
            .into_iter()
            .map(|(pid, has_user, kernel, interpreted)| {
                let addresses = if has_user { unwound.next().unwrap_or_default() } else { vec![] };
                self.number_of(pid, &kernel, &addresses, interpreted)
            })
            .collect()
    }

    fn number_of(&mut self, pid: u32, kernel: &[u64], user: &[u64], interpreted: Vec<Interpreted>) -> u32 {
        // The first is where it was; the others are returned to.
        let looked_up = |(i, &address): (usize, &u64)| address.saturating_sub(u64::from(i > 0));
        let mut places: Vec<Place> = Vec::with_capacity(kernel.len() + user.len());
        places.extend(kernel.iter().enumerate().map(|at| Place::Kernel { address: looked_up(at) }));
        places.extend(user.iter().enumerate().map(|at| self.place(pid, looked_up(at))));
        for Interpreted { frame, entered } in interpreted {
            places.push(Place::Interpreted { named: frame.map(|frame| self.number_of_name(frame)), entered });
        }
        self.number_of_places(places)
    }

    fn number_of_places(&mut self, mut places: Vec<Place>) -> u32 {
        if places.is_empty() {
            places.push(Place::Unknown);
        }
        let next = self.stacks.len() as u32;
        *self.stack_of.entry(places).or_insert_with_key(|places| {
            self.stacks.push(places.clone());
            next
        })
    }

    /// The process by which addresses are looked up: its own, or one with the same program at the same addresses.
    fn looked_at(&self, pid: u32, like: u32) -> u32 {
        let has_maps = |pid: &u32| self.processes.get(pid).is_some_and(|p| !p.maps.is_empty());
        if !has_maps(&pid) && has_maps(&like) { like } else { pid }
    }

    /// Takes in that the clock found a thread running and took no stack.
    pub fn add_skipped(&mut self, row: SampleRow) {
        self.rows.push(row);
    }

    /// Samples so far, with skipped ones.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn place(&self, pid: u32, address: u64) -> Place {
        let Some(process) = self.processes.get(&pid) else { return Place::Unknown };
        let Some(mapping) = process.maps.find(address) else { return Place::Unknown };
        if mapping.path == UPROBES {
            return Place::Breakpoint;
        }
        match process.files.get(&mapping.start) {
            Some(&file) => Place::File { file, offset: address - mapping.start + mapping.offset },
            None => Place::Compiled { process: pid, address },
        }
    }

    /// The files behind the mappings of a process, by the mappings' starts.
    fn files_of(&mut self, pid: u32, process: &Process) -> FxHashMap<u64, FileId> {
        let start_and_file = |m: &Mapping| Some((m.start, self.file(pid, &process.program, m)?));
        process.maps.all().iter().filter_map(start_and_file).collect()
    }

    /// The module behind a mapping of a process that runs `program`: opened once.
    fn file(&mut self, pid: u32, program: &str, mapping: &Mapping) -> Option<FileId> {
        let is_vdso = mapping.path == VDSO;
        // What is mapped of memory that has a name is compiled code, or the program itself, run from there.
        let is_program = mapping.path == program && mapping.inode != 0;
        if !is_vdso && !mapping.is_file() && !is_program {
            return None;
        }
        let key = (mapping.inode, mapping.path.clone());
        if let Some(module) = self.module_of.get(&key) {
            return Some(*module);
        }
        let file = self.modules.len() as FileId;
        let about = About { is_program, is_vdso, ..About::default() };
        let opened = match is_vdso {
            true => own_page(pid, mapping).ok_or_else(|| "the page cannot be read".to_owned()),
            false if self.modules.len() >= MOST_FILES => Err(format!("more than {MOST_FILES} programs and libraries")),
            false => mapping.open(pid).map(|(_, file)| file).map_err(|e| tailsight_units::chain(&e)),
        };
        let is_given = opened.is_ok();
        match opened {
            Ok(itself) => self.reader.give(file, itself, if is_vdso { None } else { mapping.folder(pid) }, about),
            // Its places are known all the same: named as module and offset.
            Err(why) => self.note(why),
        }
        self.modules.push(Module { name: if is_vdso { VDSO.into() } else { mapping.name().into() }, is_given });
        self.module_of.insert(key, file);
        Some(file)
    }

    /// Tells the reader what a process has mapped.
    fn tell(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid).filter(|process| !process.is_told) else { return };
        process.is_told = true;
        let modules = &self.modules;
        let given = |start: &u64| {
            let file = process.files.get(start)?;
            modules.get(*file as usize).is_some_and(|module| module.is_given).then_some(*file)
        };
        let mapped = |m: &Mapping| Mapped { start: m.start, end: m.end, offset: m.offset, file: given(&m.start) };
        let mappings = process.maps.all().iter().map(mapped).collect();
        self.reader.tell_maps(pid, mappings);
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < MOST_NOTES || self.notes.contains_key(&text) {
            *self.notes.entry(text).or_default() += 1;
        }
    }

    /// The samples so far as they are before anything is named: of each when, on which core and whose.
    pub fn unnamed(&self, waiting: impl Iterator<Item = SampleRow>) -> Samples {
        let row = |row: SampleRow| SampleRow { stack: 0, ..row };
        let mut rows: Vec<SampleRow> = self.rows.iter().copied().chain(waiting).map(row).collect();
        rows.sort_by_key(|row| row.ts_ns);
        Samples { rows, stacks: vec![vec![0]], frames: vec![FrameRow::default()] }
    }

    /// Names all functions.
    pub fn finish(mut self) -> StackTables {
        self.tables()
    }

    /// Names all functions of what was taken in so far. The samples are given away; the numbers of call stacks stay what they are.
    pub fn tables(&mut self) -> StackTables {
        let names = self.names();
        let mut number: FxHashMap<FrameRow, u32> = FxHashMap::default();
        let mut samples = Samples::default();
        for places in &self.stacks {
            let mut stack = Vec::with_capacity(places.len());
            for frame in in_order(places, &names) {
                stack.push(*number.entry(frame.clone()).or_insert_with(|| {
                    samples.frames.push(frame.clone());
                    samples.frames.len() as u32 - 1
                }));
            }
            samples.stacks.push(stack);
        }
        samples.rows = std::mem::take(&mut self.rows);
        samples.rows.sort_by_key(|row| row.ts_ns);
        let of_user = samples.stacks.iter().flatten().map(|&f| &samples.frames[f as usize]).filter(|f| !f.kernel);
        let unnamed = of_user.fold([0, 0], |[none, all], f| [none + u64::from(f.function.is_empty()), all + 1]);
        if samples
            .stacks
            .iter()
            .flatten()
            .any(|&f| samples.frames[f as usize].kernel && samples.frames[f as usize].function.is_empty())
        {
            self.note("the names of kernel functions cannot be read (kernel.kptr_restrict, or no permission)".into());
        }
        let compiled =
            |p: &Place| matches!(p, Place::Compiled { .. }) && names[p].iter().all(|f| f.function.is_empty());
        if self.stacks.iter().flatten().any(compiled) {
            self.note(
                "code compiled at run time has no names: the runtime writes them to /tmp/perf-PID.map when it is \
                 started with \
                 --perf-basic-prof (Node), -X perf (CPython 3.12), +JPperf true (Erlang/OTP 25), or asked by jcmd PID \
                 Compiler.perfmap (Java 17)"
                    .into(),
            );
        }
        let modules = &self.modules;
        let name_of = |file: FileId| match file.checked_sub(FIRST_MAP) {
            Some(process) => Some(format!("the map of compiled code of process {process}")),
            None => modules.get(file as usize).map(|module| module.name.clone()),
        };
        let unread = self.reader.notes(name_of);
        unread.into_iter().for_each(|note| self.note(note));
        StackTables { samples, unnamed, notes: self.notes.keys().cloned().collect() }
    }

    /// The frames of every place, innermost first.
    fn names(&mut self) -> FxHashMap<Place, Vec<FrameRow>> {
        let mut places: Vec<Place> = self.stacks.iter().flatten().copied().collect();
        places.sort_unstable();
        places.dedup();
        let mut out: FxHashMap<Place, Vec<FrameRow>> = FxHashMap::default();
        let (mut kernel, mut files, mut compiled) =
            (vec![], BTreeMap::<FileId, Vec<u64>>::new(), BTreeMap::<u32, Vec<u64>>::new());
        for place in places {
            match place {
                Place::Kernel { address } => kernel.push(address),
                Place::File { file, offset } => files.entry(file).or_default().push(offset),
                Place::Compiled { process, address } => compiled.entry(process).or_default().push(address),
                Place::Breakpoint => {
                    let frame =
                        FrameRow { function: "breakpoint".into(), module: UPROBES.into(), ..FrameRow::default() };
                    out.insert(place, vec![frame]);
                }
                Place::Named(number) => {
                    out.insert(place, vec![self.named.get(number as usize).cloned().unwrap_or_default()]);
                }
                Place::Interpreted { named, .. } => {
                    let frame = named.and_then(|number| self.named.get(number as usize));
                    out.insert(place, frame.cloned().into_iter().collect());
                }
                Place::Unknown => {
                    out.insert(place, vec![FrameRow::default()]);
                }
            }
        }
        for (address, frames) in kernel.iter().zip(Resolve::default().kernel(&kernel)) {
            out.insert(Place::Kernel { address: *address }, frames);
        }
        for (file, offsets) in files {
            let frames = self.frames(file, &offsets);
            out.extend(offsets.into_iter().map(|offset| Place::File { file, offset }).zip(frames));
        }
        for (process, addresses) in compiled {
            let frames = self.compiled(process, &addresses);
            out.extend(addresses.into_iter().map(|address| Place::Compiled { process, address }).zip(frames));
        }
        out
    }

    /// The frames of places in a file: at each at least one, of its module.
    fn frames(&mut self, file: FileId, offsets: &[u64]) -> Vec<Vec<FrameRow>> {
        let Some(Module { name, is_given }) = self.modules.get(file as usize) else { return vec![] };
        let asked = if *is_given { self.reader.names(file, Places::Offsets(offsets.to_vec())).ok() } else { None };
        let (build_id, mut rows) = asked.unwrap_or_default();
        rows.resize(offsets.len(), vec![]);
        for (frames, &offset) in rows.iter_mut().zip(offsets) {
            if frames.is_empty() {
                frames.push(FrameRow { offset, ..FrameRow::default() });
            }
            for frame in frames {
                (frame.module, frame.build_id) = (name.clone(), build_id.clone());
            }
        }
        rows
    }

    /// The frames of addresses in what the runtime of a process compiled.
    fn compiled(&mut self, pid: u32, addresses: &[u64]) -> Vec<Vec<FrameRow>> {
        let map = self.processes.get_mut(&pid).and_then(|process| process.compiled.take());
        let mut rows = vec![];
        if let Some(map) = map {
            let file = FIRST_MAP.saturating_add(pid);
            self.reader.give(file, map, None, About::default());
            rows = self.reader.compiled(file, addresses.to_vec()).unwrap_or_default();
        }
        rows.resize(addresses.len(), vec![]);
        for frames in &mut rows {
            // Without a name it is one place: the address means nothing outside of the process.
            frames.truncate(1);
            if frames.is_empty() {
                frames.push(FrameRow::default());
            }
            frames[0].module = JIT.into();
        }
        rows
    }
}

/// In this function the interpreter runs functions of the program: all that one of its calls has entered.
const RUNS_FUNCTIONS: &str = "_PyEval_EvalFrameDefault";
/// The name of a function to which the interpreter itself gives a place in its stack (`-X perf`) begins so.
const HAS_PLACE: &str = "py::";

/// The frames of a stack, innermost first: functions that an interpreter ran have the place of its function that ran them.
fn in_order<'a>(places: &[Place], names: &'a FxHashMap<Place, Vec<FrameRow>>) -> Vec<&'a FrameRow> {
    let begin = places.iter().position(|place| matches!(place, Place::Interpreted { .. })).unwrap_or(places.len());
    let (native, interpreted) = places.split_at(begin);
    let has_place = |place: &Place| names[place].iter().any(|frame| frame.function.starts_with(HAS_PLACE));
    if interpreted.is_empty() || native.iter().any(has_place) {
        return native.iter().flat_map(|place| &names[place]).collect();
    }
    let mut rest = interpreted.iter();
    let mut frames: Vec<&FrameRow> = vec![];
    for place in native {
        let runs = names[place].iter().any(|frame| frame.function.starts_with(RUNS_FUNCTIONS));
        if !runs {
            frames.extend(&names[place]);
            continue;
        }
        let before = frames.len();
        for function in rest.by_ref() {
            frames.extend(&names[function]);
            // A mark in front of the first is of a call that has begun nothing yet.
            if matches!(function, Place::Interpreted { entered: true, .. }) && frames.len() > before {
                break;
            }
        }
        if frames.len() == before {
            frames.extend(&names[place]);
        }
    }
    // Callers beyond the part of the stack that was copied.
    frames.extend(rest.flat_map(|function| &names[function]));
    frames
}

/// The page of code that the kernel gives every process, copied from the process' memory: a process may have changed it.
fn own_page(pid: u32, mapping: &Mapping) -> Option<File> {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    let bytes = usize::try_from(mapping.end - mapping.start).ok().filter(|&bytes| bytes <= 1 << 20)?;
    let mut page = vec![0; bytes];
    File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut page, mapping.start).ok()?;
    let mut copy = File::from(memfd_create(c"vdso", MFdFlags::MFD_CLOEXEC).ok()?);
    copy.write_all(&page).ok()?;
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `time.sleep` in a function that another one called from a `sorted`, which was called by a third: two calls from C.
    #[test]
    fn functions_of_python_have_the_place_of_the_interpreter_s_that_ran_them() {
        let frame = |name: &str| FrameRow { function: name.into(), ..FrameRow::default() };
        let native = ["clock_nanosleep", "time_sleep", RUNS_FUNCTIONS, "list_sort", RUNS_FUNCTIONS, "thread_run"];
        let mut names: FxHashMap<Place, Vec<FrameRow>> = FxHashMap::default();
        let mut places = vec![];
        for (offset, name) in (0..).zip(native) {
            places.push(Place::File { file: 0, offset });
            names.insert(Place::File { file: 0, offset }, vec![frame(name)]);
        }
        let ordered = |called: &[(&str, bool)], native: &[Place]| -> Vec<String> {
            let (mut places, mut names) = (native.to_vec(), names.clone());
            for (number, &(name, entered)) in (0..).zip(called) {
                let place = Place::Interpreted { named: (!name.is_empty()).then_some(number), entered };
                names.insert(place, if name.is_empty() { vec![] } else { vec![frame(name)] });
                places.push(place);
            }
            in_order(&places, &names).into_iter().map(|frame| frame.function.clone()).collect()
        };
        let right = ["clock_nanosleep", "time_sleep", "inner", "key", "list_sort", "outer", "run", "thread_run"];
        let called = [("inner", false), ("key", true), ("outer", false), ("run", true)];
        assert_eq!(ordered(&called, &places), right);
        // From 3.12 on a call from C has a mark of its own.
        let marked = [("inner", false), ("key", false), ("", true), ("outer", false), ("run", false), ("", true)];
        assert_eq!(ordered(&marked, &places), right);
        // The copy of the stack ended before the second call: its functions come last.
        assert_eq!(ordered(&called, &places[..3]), ["clock_nanosleep", "time_sleep", "inner", "key", "outer", "run"]);
        assert_eq!(ordered(&[], &places), native);
    }

    /// A thousand processes with 60,000 mappings each would have taken some 9 GB.
    #[test]
    fn lists_of_mappings_have_room_in_all_and_in_a_second() {
        let (mut room, begun) = (MappingRoom::default(), Instant::now());
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        assert!(room.take(at(0), MAPPING_BYTES_A_SECOND, 0));
        assert!(!room.take(at(0), 1, 0), "there is none left in this second");
        assert!(room.take(at(1), MAPPING_BYTES_A_SECOND, 0), "a storm leaves room for what comes after it");
        assert!(!room.take(at(2), 1, 0), "there is none left in all");
        assert!(room.take(at(2), MAPPING_BYTES_A_SECOND, MAPPING_BYTES_A_SECOND), "it takes the place of another list");
        assert_eq!(room.used_bytes, MOST_MAPPING_BYTES);
    }
}
