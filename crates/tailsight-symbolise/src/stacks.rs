//! Samples to tables: unwinds each as it comes, and names the functions at the end.
//!
//! In: [`Raw`] samples, whose stack bytes are looked at once. Out: [`Samples`], and what could not be found, in words.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tailsight_trace::samples::{FrameRow, SampleRow, Samples};

use crate::error::Error;
use crate::functions::go;
use crate::maps::elf::{Elf, exported, exported_begins};
use crate::maps::{Mapping, Maps};
use crate::own;
use crate::resolve::Resolve;
use crate::resolve::perf_map::PerfMap;
use crate::unwind::{Registers, Unwind};

/// What a runtime compiled has this as its module.
pub const JIT: &str = "[jit]";
/// The page of code that the kernel gives every process.
const VDSO: &str = "[vdso]";
/// The page in which a thread does the instruction that a breakpoint (uprobe) is at.
const UPROBES: &str = "[uprobes]";
/// Most notes of files: a process may have thousands.
const MOST_NOTES: usize = 6;

/// A sample as it was taken.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// When, on which core, whose; its `stack` is not looked at.
    pub row: SampleRow,
    /// A process with the same program at the same addresses, for one that has ended before it was looked at; 0: not known.
    pub like: u32,
    /// Addresses in the kernel, innermost first; the first is where it was, the others are returned to.
    pub kernel: &'a [u64],
    /// The user registers.
    pub registers: Registers,
    /// The bytes above the stack pointer.
    pub bytes: &'a [u8],
}

/// Where an address is, before it has a name. Two samples at the same place of the same file share a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Kernel { address: u64 },
    File { file: u32, offset: u64 },
    Compiled { process: u32, address: u64 },
    Breakpoint,
    Unknown,
}

/// A program or library.
struct Module {
    name: String,
    elf: Arc<Elf>,
    path: PathBuf,
    /// Of the kernel's own page: its functions.
    exported: Vec<(std::ops::Range<u64>, String)>,
    /// Whether it is the program of its process, and of a Go program the main module's path.
    program: bool,
    go_module: Option<String>,
}

#[derive(Default)]
struct Process {
    maps: Maps,
    unwind: Unwind,
    compiled: Option<PerfMap>,
    /// The file that it runs.
    program: String,
    /// A mapping's file by the mapping's start.
    files: FxHashMap<u64, Option<u32>>,
}

/// Collects samples.
#[derive(Default)]
pub struct Stacks {
    processes: FxHashMap<u32, Process>,
    modules: Vec<Module>,
    /// By the file's number and name.
    module_of: FxHashMap<(u64, String), Option<u32>>,
    stack_of: FxHashMap<Vec<Place>, u32>,
    stacks: Vec<Vec<Place>>,
    rows: Vec<SampleRow>,
    notes: BTreeMap<String, u64>,
}

/// What became of the samples.
#[derive(Debug, Default)]
pub struct Found {
    /// The tables.
    pub samples: Samples,
    /// User frames without a name, and all of them, over the stacks.
    pub unnamed: [u64; 2],
    /// What could not be looked into, each once.
    pub notes: Vec<String>,
}

impl Stacks {
    /// Takes in what a process has mapped now: at the start of a recording, and again when it is over, for libraries come and
    /// go, and so do processes.
    pub fn look_at(&mut self, pid: u32) {
        match Maps::of(pid) {
            Ok(maps) if !maps.is_empty() => {
                let process = self.processes.entry(pid).or_default();
                if process.maps != maps {
                    process.maps = std::mem::take(&mut process.maps).updated(maps);
                    (process.unwind, process.files) = (Unwind::default(), FxHashMap::default());
                }
                if let Ok(program) = std::fs::read_link(format!("/proc/{pid}/exe")) {
                    let path = program.to_string_lossy();
                    process.program = path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned();
                }
                process.compiled = PerfMap::of(pid).or_else(|| process.compiled.take());
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

    /// Unwinds a sample. Of its bytes only addresses of code are kept. Gives the number of its call stack.
    pub fn add(&mut self, raw: &Raw<'_>) -> u32 {
        let pid = self.looked_at(raw.row.tgid, raw.like);
        let mut places: Vec<Place> = Vec::with_capacity(raw.kernel.len() + 16);
        let looked_up =
            |(i, &address): (usize, &u64)| Place::Kernel { address: address.saturating_sub(u64::from(i > 0)) };
        places.extend(raw.kernel.iter().enumerate().map(looked_up));
        if raw.registers.sp != 0 {
            let mut process = self.processes.remove(&pid).unwrap_or_default();
            let Process { maps, unwind, program, .. } = &mut process;
            let mut of = |mapping: &Mapping| {
                let file = self.file(pid, program, mapping)?;
                Some(self.modules[file as usize].elf.clone())
            };
            let addresses = unwind.stack(maps, &raw.registers, raw.bytes, &mut of);
            let returned = |(i, address): (usize, u64)| address.saturating_sub(u64::from(i > 0));
            for address in addresses.into_iter().enumerate().map(returned) {
                places.push(self.place(pid, &mut process, address));
            }
            self.processes.insert(pid, process);
        }
        if places.is_empty() {
            places.push(Place::Unknown);
        }
        let next = self.stacks.len() as u32;
        let stack = *self.stack_of.entry(places).or_insert_with_key(|places| {
            self.stacks.push(places.clone());
            next
        });
        self.rows.push(SampleRow { stack, ..raw.row });
        stack
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

    fn place(&mut self, pid: u32, process: &mut Process, address: u64) -> Place {
        let Some(mapping) = process.maps.find(address) else { return Place::Unknown };
        if mapping.path == UPROBES {
            return Place::Breakpoint;
        }
        let file = match process.files.get(&mapping.start) {
            Some(file) => *file,
            None => {
                let file = self.file(pid, &process.program, mapping);
                process.files.insert(mapping.start, file);
                file
            }
        };
        match file {
            Some(file) => Place::File { file, offset: address - mapping.start + mapping.offset },
            None => Place::Compiled { process: pid, address },
        }
    }

    /// The module behind a mapping of a process that runs `program`, read once.
    fn file(&mut self, pid: u32, program: &str, mapping: &Mapping) -> Option<u32> {
        let key = (mapping.inode, mapping.path.clone());
        if let Some(known) = self.module_of.get(&key) {
            return *known;
        }
        let module = match mapping.path.as_str() {
            VDSO => own_page(pid, mapping),
            _ if mapping.is_file() => match module(pid, mapping) {
                Ok(module) => Some(Module { program: mapping.path == program, ..module }),
                Err(e) => {
                    self.note(tailsight_units::chain(&e));
                    // Its places are known all the same: named as module and offset.
                    let elf = Arc::new(Elf::default());
                    let (program, path) = (mapping.path == program, PathBuf::new());
                    Some(Module { name: mapping.name().into(), elf, path, exported: vec![], program, go_module: None })
                }
            },
            _ => return None,
        };
        let number = module.map(|module| {
            self.modules.push(module);
            self.modules.len() as u32 - 1
        });
        self.module_of.insert(key, number);
        number
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < MOST_NOTES || self.notes.contains_key(&text) {
            *self.notes.entry(text).or_default() += 1;
        }
    }

    /// Names all functions.
    pub fn finish(mut self) -> Found {
        let names = self.names();
        let mut number: FxHashMap<FrameRow, u32> = FxHashMap::default();
        let mut samples = Samples::default();
        for places in &self.stacks {
            let mut stack = Vec::with_capacity(places.len());
            for frame in places.iter().flat_map(|place| &names[place]) {
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
                 --perf-basic-prof (Node), -X perf (CPython 3.12), or asked by jcmd PID Compiler.perfmap (Java 17)"
                    .into(),
            );
        }
        Found { samples, unnamed, notes: self.notes.into_keys().collect() }
    }

    /// The frames of every place, innermost first.
    fn names(&self) -> FxHashMap<Place, Vec<FrameRow>> {
        let resolve = Resolve::default();
        let mut places: Vec<Place> = self.stacks.iter().flatten().copied().collect();
        places.sort_unstable();
        places.dedup();
        let mut out: FxHashMap<Place, Vec<FrameRow>> = FxHashMap::default();
        let (mut kernel, mut files) = (vec![], BTreeMap::<u32, Vec<u64>>::new());
        for place in places {
            match place {
                Place::Kernel { address } => kernel.push(address),
                Place::File { file, offset } => files.entry(file).or_default().push(offset),
                Place::Compiled { process, address } => {
                    out.insert(place, vec![self.compiled(process, address)]);
                }
                Place::Breakpoint => {
                    let frame =
                        FrameRow { function: "breakpoint".into(), module: UPROBES.into(), ..FrameRow::default() };
                    out.insert(place, vec![frame]);
                }
                Place::Unknown => {
                    out.insert(place, vec![FrameRow::default()]);
                }
            }
        }
        for (address, frames) in kernel.iter().zip(resolve.kernel(&kernel)) {
            out.insert(Place::Kernel { address: *address }, frames);
        }
        for (file, offsets) in files {
            let module = &self.modules[file as usize];
            for (offset, frames) in offsets.iter().zip(module.frames(&resolve, &offsets)) {
                out.insert(Place::File { file, offset: *offset }, frames);
            }
        }
        out
    }

    fn compiled(&self, process: u32, address: u64) -> FrameRow {
        let process = self.processes.get(&process);
        let found = process.and_then(|p| p.compiled.as_ref()?.find(address));
        // Without a name it is one place: the address means nothing outside of the process.
        let (function, offset) = found.map_or((String::new(), 0), |(name, offset)| (name.to_owned(), offset));
        let own = own::is_of_program_file(&function);
        FrameRow { function, offset, module: JIT.into(), own, ..FrameRow::default() }
    }
}

impl Module {
    fn frames(&self, resolve: &Resolve, offsets: &[u64]) -> Vec<Vec<FrameRow>> {
        let found = if (self.exported.is_empty() || self.name != VDSO) && !self.path.as_os_str().is_empty() {
            resolve.file(&self.path, offsets)
        } else {
            vec![vec![]; offsets.len()]
        };
        // Read only where something has no name.
        let mut begins: Option<Vec<(u64, String)>> = None;
        let complete = |(mut frames, &offset): (Vec<FrameRow>, &u64)| {
            let address = self.elf.address_of(offset).unwrap_or(offset);
            if frames.is_empty() {
                let name =
                    self.exported.iter().find(|(range, _)| range.contains(&address)).map(|(_, name)| name.clone());
                frames.push(FrameRow { function: name.unwrap_or_default(), ..FrameRow::default() });
            }
            for frame in &mut frames {
                (frame.module, frame.build_id) = (self.name.clone(), self.elf.build_id.clone());
                let of_go = |module: &String| own::is_of_go_module(&frame.function, module);
                frame.own = self.program && self.go_module.as_ref().is_none_or(of_go);
                // Without a name all places of a function are one.
                let start = self.elf.function_start(address).filter(|_| frame.function.is_empty());
                frame.offset = start.unwrap_or(address);
                if frame.function.is_empty() {
                    let begins = begins.get_or_insert_with(|| {
                        std::fs::File::open(&self.path).map_or_else(|_| vec![], exported_begins)
                    });
                    let after = begins.partition_point(|(begin, _)| *begin <= address);
                    let name = |at: Option<usize>| {
                        at.and_then(|at| begins.get(at)).map(|(_, name)| name.clone()).unwrap_or_default()
                    };
                    (frame.exported_before, frame.exported_after) = (name(after.checked_sub(1)), name(Some(after)));
                }
            }
            frames
        };
        found.into_iter().zip(offsets).map(complete).collect()
    }
}

fn module(pid: u32, mapping: &Mapping) -> Result<Module, Error> {
    let (path, file) = mapping.open(pid)?;
    let damaged = |e| Error::Damaged { path: mapping.path.clone().into(), source: Box::new(e) };
    // A Go program without symbols has the table by which Go itself walks stacks.
    let functions = file.try_clone().map_or_else(|_| vec![], go::functions_of);
    let go_module = file.try_clone().ok().and_then(own::go_module_of);
    let elf = Arc::new(Elf::read(file).map_err(damaged)?);
    let exported = functions.into_iter().map(|symbol| (symbol.range, symbol.raw)).collect();
    Ok(Module { name: mapping.name().into(), elf, path, exported, program: false, go_module })
}

/// The page of code that the kernel gives every process: read from the process' memory.
fn own_page(pid: u32, mapping: &Mapping) -> Option<Module> {
    use std::os::unix::fs::FileExt;
    let bytes = usize::try_from(mapping.end - mapping.start).ok().filter(|&bytes| bytes <= 1 << 20)?;
    let mut page = vec![0; bytes];
    std::fs::File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut page, mapping.start).ok()?;
    let read = || Some((Arc::new(Elf::parse(&page).ok()?), exported(&page)));
    let (elf, exported) = catch_unwind(AssertUnwindSafe(read)).ok()??;
    Some(Module { name: VDSO.into(), elf, path: PathBuf::new(), exported, program: false, go_module: None })
}
