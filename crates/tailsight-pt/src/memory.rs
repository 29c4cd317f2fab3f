//! What was in memory: which file's code lay at an address of a process, and when.
//!
//! In: the changes of address spaces from the [`Sideband`], and the files they name. Out: [`Memory`]. A file that is missing, or
//! that is another one by its build id, has no code here: what ran in it cannot be decoded, and is counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use tailsight_output::input::{Links, open_regular};
use tailsight_symbolise::reader::MOST_FILE_BYTES;

use crate::Error;
use crate::sideband::{Change, Mapping, Sideband};
use crate::symbols::{Function, Image, Symbols};

/// The first address of the kernel's half.
pub const KERNEL_HALF: u64 = 1 << 63;

/// A file with code.
#[derive(Debug, Default)]
pub struct Module {
    /// As it was mapped.
    pub name: String,
    /// Where it was found; `None`: it was not.
    pub path: Option<PathBuf>,
    /// Why it was not found.
    pub missing: Option<String>,
    /// Its build id as recorded, else as found.
    pub build_id: String,
    /// Its functions, by offset in the file; of the kernel by address.
    pub symbols: Symbols,
    /// It is the kernel or a part of it.
    pub kernel: bool,
}

/// Code that the kernel generates is never this long.
const MOST_GENERATED: u64 = 1 << 32;

/// A mapped part of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Behind the last.
    pub end: u64,
    /// Which of [`Memory::modules`].
    pub module: u32,
    /// Where in the file it begins.
    pub at: u64,
    /// What its first address is in the module's symbols.
    pub place: u64,
}

impl Region {
    /// Where in the module's symbols an address is.
    pub fn place(&self, ip: u64) -> u64 {
        self.place.wrapping_add(ip - self.start)
    }
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Region(Region),
    /// Nothing of the time before.
    Clear,
}

/// A function whose place is known from text, and not from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFunction {
    /// Process; `None`: the kernel's.
    pub pid: Option<u32>,
    /// From its first address to behind the last that was seen.
    pub range: Range<u64>,
    /// Its name.
    pub name: String,
    /// The file that it is in; empty when not known.
    pub file: String,
}

/// The memory of everything that was traced.
#[derive(Debug, Default)]
pub struct Memory {
    /// Files with code.
    pub modules: Vec<Module>,
    /// The function of the kernel whose first instruction is the next task's.
    pub switch_ip: Option<u64>,
    kernel: Vec<Region>,
    /// Code that the kernel generated: from when, until when, where.
    generated: Vec<(u64, u64, Region)>,
    /// When any of it came or went, after the beginning, in order.
    generated_changes: Vec<u64>,
    spaces: BTreeMap<u32, Vec<(u64, Entry)>>,
}

/// Where files may be.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders that hold files of the recorded machine under their own paths; looked into before this machine's.
    pub roots: Vec<PathBuf>,
    /// The kernel's code: a vmlinux, or a copy of kcore.
    pub kernel: Option<PathBuf>,
    /// The kernel's list of symbols.
    pub kallsyms: Option<PathBuf>,
    /// perf's cache of files by build id (`~/.debug`).
    pub cache: Option<PathBuf>,
}

impl Memory {
    /// Finds and opens the files that were mapped.
    ///
    /// # Errors
    /// [`Error::Read`] when a file that the caller named cannot be read. A file that only the recording names may be missing.
    pub fn of(sideband: &Sideband, places: &Places) -> Result<Memory, Error> {
        let mut memory = Memory::default();
        let mut modules: FxHashMap<(String, String), u32> = FxHashMap::default();
        let text = sideband.changes.iter().find_map(|(_, change)| match change {
            Change::Map(m) if m.pid.is_none() && m.path.starts_with("[kernel.kallsyms]") => Some(m),
            _ => None,
        });
        memory.add_kernel(text, places)?;
        memory.add_generated(sideband);
        for (time, change) in &sideband.changes {
            match change {
                Change::Map(mapping) if mapping.pid.is_some() => {
                    let key = (mapping.path.clone(), mapping.build_id.clone());
                    let module = *modules.entry(key).or_insert_with(|| {
                        memory.modules.push(found(mapping, places));
                        memory.modules.len() as u32 - 1
                    });
                    let (start, at) = (mapping.start, mapping.offset);
                    let region = Region { start, end: start.saturating_add(mapping.len), module, at, place: at };
                    let pid = mapping.pid.unwrap_or(0);
                    memory.spaces.entry(pid).or_default().push((*time, Entry::Region(region)));
                }
                Change::Map(_) => {}
                Change::Fork { pid, parent } => {
                    // The present mappings only; keeping earlier ones would grow with each fork of a fork.
                    let copied = memory.spaces.get(parent).map_or(&[][..], |space| live(space)).to_vec();
                    let space = memory.spaces.entry(*pid).or_default();
                    space.push((*time, Entry::Clear));
                    space.extend(copied.into_iter().map(|(_, entry)| (*time, entry)));
                }
                Change::Exec { pid } => memory.spaces.entry(*pid).or_default().push((*time, Entry::Clear)),
            }
        }
        Ok(memory)
    }

    /// Memory that holds nothing but these functions, without their code. The same function of a file is one in all processes.
    pub fn of_functions(functions: impl Iterator<Item = TextFunction>) -> Memory {
        /// A function's place in its module is its number there; this is more than any function is long.
        const APART: u64 = 1 << 32;
        let mut memory = Memory::default();
        let mut modules: FxHashMap<(bool, String), u32> = FxHashMap::default();
        // By module: functions and their numbers by name.
        let mut by_module: Vec<FxHashMap<String, u64>> = Vec::new();
        let mut sorted: Vec<TextFunction> = functions.collect();
        sorted.sort_by_key(|f| (f.pid, f.range.start));
        for f in sorted {
            let kernel = f.pid.is_none();
            let module = *modules.entry((kernel, f.file.clone())).or_insert_with(|| {
                memory.modules.push(Module { name: f.file.clone(), kernel, ..Module::default() });
                by_module.push(FxHashMap::default());
                memory.modules.len() as u32 - 1
            });
            let names = &mut by_module[module as usize];
            let next = (names.len() as u64 + 1) * APART;
            let place = *names.entry(f.name).or_insert(next);
            let end = f.range.end.min(f.range.start.saturating_add(APART - 1));
            let region = Region { start: f.range.start, end, module, at: 0, place };
            match f.pid {
                None => memory.kernel.push(region),
                Some(pid) => memory.spaces.entry(pid).or_default().push((0, Entry::Region(region))),
            }
        }
        for (module, names) in memory.modules.iter_mut().zip(by_module) {
            let function = |(name, place): (String, u64)| Function { range: place..place + APART - 1, name };
            module.symbols = Symbols::new(names.into_iter().map(function).collect());
        }
        memory
    }

    fn add_kernel(&mut self, text: Option<&Mapping>, places: &Places) -> Result<(), Error> {
        let Some(path) = &places.kernel else {
            if text.is_some() {
                let missing = Some("no copy of the kernel's code was given".to_owned());
                self.modules.push(Module { name: "[kernel]".into(), missing, kernel: true, ..Module::default() });
            }
            return Ok(());
        };
        let read = |source| Error::Read { path: path.clone(), source };
        let file = File::open(path).map_err(read)?;
        let image = Image::read(file).map_err(|why| read(std::io::Error::other(why)))?;
        let symbol = text.and_then(|m| m.path.strip_prefix("[kernel.kallsyms]"));
        // Where the kernel was put at boot, against where its file says (KASLR).
        let own = symbol.and_then(|name| image.symbols.named(name)).and_then(|place| image.address_of(place));
        let moved = match (text, own) {
            (Some(mapping), Some(own)) if !image.is_core => mapping.start.wrapping_sub(own),
            _ => 0,
        };
        let symbols = match &places.kallsyms {
            Some(list) => {
                let text =
                    std::fs::read_to_string(list).map_err(|source| Error::Read { path: list.clone(), source })?;
                Symbols::of_kallsyms(&text)
            }
            None => image.symbols.moved(|place| image.address_of(place).map(|a| a.wrapping_add(moved))),
        };
        self.switch_ip = symbols.named("__switch_to");
        let (module, name, build_id) = (self.modules.len() as u32, "[kernel]".into(), image.build_id.clone());
        let (path, kernel) = (Some(path.clone()), true);
        self.modules.push(Module { name, path, missing: None, build_id, symbols, kernel });
        for (range, at) in &image.segments {
            let (start, end) = (range.start.wrapping_add(moved), range.end.wrapping_add(moved));
            if start >= KERNEL_HALF && end > start {
                self.kernel.push(Region { start, end, module, at: *at, place: start });
            }
        }
        Ok(())
    }

    /// BPF programs and trampolines: an address in one of them has its name. Their code is known only where the copy of the kernel's has it.
    fn add_generated(&mut self, sideband: &Sideband) {
        let mut live: FxHashMap<u64, usize> = FxHashMap::default();
        let mut modules: FxHashMap<String, u32> = FxHashMap::default();
        for symbol in &sideband.kernel_symbols {
            // It is gone, or something else is put in its place.
            if let Some(before) = live.remove(&symbol.start) {
                self.generated[before].1 = symbol.time_ns;
            }
            if symbol.unregistered || symbol.start < KERNEL_HALF || symbol.len == 0 {
                continue;
            }
            let end = symbol.start.saturating_add(u64::from(symbol.len));
            let module = *modules.entry(symbol.name.clone()).or_insert_with(|| {
                let function = Function { range: 0..MOST_GENERATED, name: symbol.name.clone() };
                let (name, symbols) = (symbol.kind.module().to_owned(), Symbols::new(vec![function]));
                self.modules.push(Module { name, symbols, kernel: true, ..Module::default() });
                self.modules.len() as u32 - 1
            });
            let region = Region { start: symbol.start, end, module, at: 0, place: 0 };
            live.insert(symbol.start, self.generated.len());
            self.generated.push((symbol.time_ns, u64::MAX, region));
        }
        let times = self.generated.iter().flat_map(|(from, to, _)| [*from, *to]);
        self.generated_changes = times.filter(|at| *at != 0 && *at != u64::MAX).collect();
        self.generated_changes.sort_unstable();
    }

    /// How often an address space changed until a time: two equal numbers are the same space.
    pub fn version(&self, pid: u32, time_ns: u64) -> usize {
        self.spaces.get(&pid).map_or(0, |space| space.partition_point(|(at, _)| *at <= time_ns))
    }

    /// What was mapped in a process at a time, in the order it was mapped, with the kernel.
    pub fn regions(&self, pid: u32, time_ns: u64) -> impl Iterator<Item = &Region> {
        let space = self.spaces.get(&pid).map_or(&[][..], |space| &space[..self.version(pid, time_ns)]);
        let own = live(space).iter().filter_map(|(_, entry)| match entry {
            Entry::Region(region) => Some(region),
            Entry::Clear => None,
        });
        let there = move |(from, to, _): &&(u64, u64, Region)| (*from..*to).contains(&time_ns);
        let generated = self.generated.iter().filter(there).map(|(.., region)| region);
        self.kernel.iter().chain(generated).chain(own)
    }

    /// What an address of a process was at a time.
    pub fn find(&self, pid: u32, ip: u64, time_ns: u64) -> Option<Region> {
        // The last mapping counts.
        self.regions(pid, time_ns).filter(|r| (r.start..r.end).contains(&ip)).last().copied()
    }

    /// The addresses of the function at an address of a process at a time; where no function is known, of what lies between two that are.
    pub fn function(&self, pid: u32, ip: u64, time_ns: u64) -> Range<u64> {
        let Some(region) = self.find(pid, ip, time_ns) else { return ip & !0xfff..(ip | 0xfff).saturating_add(1) };
        let around = self.modules[region.module as usize].symbols.around(region.place(ip));
        let ip_of = |place: u64| place.wrapping_sub(region.place).wrapping_add(region.start);
        let from = if around.start < region.place { region.start } else { ip_of(around.start) };
        let length = region.end - region.start;
        let to = if around.end > region.place.saturating_add(length) { region.end } else { ip_of(around.end) };
        from..to
    }

    /// How often the kernel's generated code changed until a time.
    pub fn kernel_version(&self, time_ns: u64) -> usize {
        self.generated_changes.partition_point(|at| *at <= time_ns)
    }

    /// The version of [`Memory::version`], and until when it is that one.
    pub fn version_until(&self, pid: u32, time_ns: u64) -> (usize, u64) {
        let Some(space) = self.spaces.get(&pid) else { return (0, u64::MAX) };
        let version = space.partition_point(|(at, _)| *at <= time_ns);
        (version, space.get(version).map_or(u64::MAX, |(at, _)| *at))
    }

    /// Files that were mapped and not found: name and why.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        self.modules.iter().filter_map(|m| Some((m.name.as_str(), m.missing.as_deref()?)))
    }
}

/// What is mapped at the end of these changes.
fn live(space: &[(u64, Entry)]) -> &[(u64, Entry)] {
    let from = space.iter().rposition(|(_, entry)| matches!(entry, Entry::Clear)).map_or(0, |i| i + 1);
    &space[from..]
}

fn found(mapping: &Mapping, places: &Places) -> Module {
    let mut module =
        Module { name: mapping.path.clone(), build_id: mapping.build_id.clone(), kernel: false, ..Module::default() };
    let relative = mapping.path.trim_start_matches('/');
    let mut candidates: Vec<PathBuf> = Vec::new();
    let is_file = mapping.path.starts_with('/') && !mapping.path.starts_with("//");
    if is_file {
        candidates.extend(places.roots.iter().map(|root| root.join(relative)));
        candidates.extend(places.roots.iter().filter_map(|root| Some(root.join(Path::new(relative).file_name()?))));
        candidates.push(PathBuf::from(&mapping.path));
    }
    if let (Some(cache), Some((first, rest))) = (&places.cache, mapping.build_id.split_at_checked(2)) {
        let folder = cache.join(".build-id").join(first).join(rest);
        candidates.extend(["elf", "vdso"].map(|name| folder.join(name)));
    }
    let mut why = if is_file || !candidates.is_empty() { "not found" } else { "no file: generated code" }.to_owned();
    for path in candidates {
        // A pipe or a device that the recording names is not opened: opening a pipe would block until a writer comes.
        let Ok((file, _)) = open_regular(&path, Links::Follow, MOST_FILE_BYTES) else { continue };
        match Image::read(file) {
            Ok(image) if !mapping.build_id.is_empty() && image.build_id != mapping.build_id => {
                why = format!("{} is another one: its build id is {}", path.display(), image.build_id);
            }
            Ok(image) => {
                (module.path, module.build_id, module.symbols) = (Some(path), image.build_id, image.symbols);
                return module;
            }
            Err(wrong) => why = format!("{} cannot be understood: {wrong}", path.display()),
        }
    }
    module.missing = Some(why);
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pid: u32, start: u64, path: &str) -> Change {
        let (path, build_id) = (path.to_owned(), String::new());
        Change::Map(Mapping { pid: Some(pid), start, len: 0x1000, offset: 0x2000, path, build_id })
    }

    #[test]
    fn an_address_is_what_was_mapped_there_last_in_that_process_by_then() {
        let changes = vec![
            (0, map(1, 0x1000, "/nowhere/a")),
            (5, map(1, 0x1800, "/nowhere/b")),
            (7, Change::Fork { pid: 2, parent: 1 }),
            (9, Change::Exec { pid: 1 }),
            (9, map(1, 0x1000, "/nowhere/c")),
        ];
        let memory = Memory::of(&Sideband { changes, ..Sideband::default() }, &Places::default()).unwrap();
        let name = |pid, ip, time| {
            memory.find(pid, ip, time).map(|r| memory.modules[r.module as usize].name.trim_start_matches("/nowhere/"))
        };
        assert_eq!([name(1, 0x1900, 4), name(1, 0x1900, 5), name(1, 0x2500, 5)], [Some("a"), Some("b"), Some("b")]);
        assert_eq!([name(1, 0x1900, 9), name(1, 0x2500, 9)], [Some("c"), None]);
        assert_eq!([name(2, 0x1900, 6), name(2, 0x1900, 20), name(3, 0x1900, 20)], [None, Some("b"), None]);
        assert_eq!(memory.find(1, 0x1010, 4).unwrap().place(0x1010), 0x2010);
        assert_eq!(memory.missing().count(), 3);
    }

    #[test]
    fn generated_code_has_its_name_while_it_is_there() {
        use crate::sideband::{Generated, KernelSymbol};
        let start = KERNEL_HALF + 0x1000;
        let symbol = |time_ns, start, name: &str, unregistered| KernelSymbol {
            time_ns,
            start,
            len: 0x100,
            kind: Generated::Bpf,
            unregistered,
            name: name.into(),
        };
        let kernel_symbols = vec![
            symbol(0, start, "bpf_prog_1", false),
            symbol(10, start + 0x100, "bpf_prog_2", false),
            symbol(20, start, "bpf_prog_1", true),
            // Another one in the same place.
            symbol(30, start, "bpf_prog_3", false),
        ];
        let memory = Memory::of(&Sideband { kernel_symbols, ..Sideband::default() }, &Places::default()).unwrap();
        let name = |ip, time| {
            let region = memory.find(7, ip, time)?;
            let module = &memory.modules[region.module as usize];
            Some((module.name.as_str(), module.symbols.at(region.place(ip))?.name.as_str(), module.kernel))
        };
        let bpf = |name| Some(("[bpf]", name, true));
        assert_eq!([name(start + 0xff, 0), name(start + 0xff, 20)], [bpf("bpf_prog_1"), None]);
        assert_eq!([name(start, 29), name(start, 30)], [None, bpf("bpf_prog_3")]);
        assert_eq!([name(start + 0x100, 9), name(start + 0x100, 99)], [None, bpf("bpf_prog_2")]);
        assert_eq!([0, 9, 10, 25, 30].map(|ns| memory.kernel_version(ns)), [0, 0, 1, 2, 3]);
        assert_eq!(memory.function(7, start + 0x10, 0), start..start + 0x100);
    }

    /// Regression: processes that fork each other took twice as much memory with each fork.
    #[test]
    fn a_fork_copies_what_is_mapped_and_no_more() {
        let mut changes = vec![(0, map(1, 0x1000, "/nowhere/a"))];
        for time in 1..200 {
            let (pid, parent) = if time % 2 == 0 { (1, 2) } else { (2, 1) };
            changes.push((time, Change::Fork { pid, parent }));
        }
        let memory = Memory::of(&Sideband { changes, ..Sideband::default() }, &Places::default()).unwrap();
        assert_eq!((memory.regions(1, 300).count(), memory.regions(2, 300).count()), (1, 1));
        assert_eq!(memory.spaces.values().map(Vec::len).sum::<usize>(), 399);
    }

    #[test]
    fn a_pipe_that_a_recording_names_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap();
        assert!(made.success());
        let mapping = Mapping {
            pid: Some(1),
            start: 0x1000,
            len: 0x1000,
            offset: 0,
            path: dir.path().join("pipe").display().to_string(),
            build_id: String::new(),
        };
        assert_eq!(found(&mapping, &Places::default()).missing.unwrap(), "not found");
    }

    #[test]
    fn a_file_of_another_build_id_is_not_taken() {
        let own = std::env::current_exe().unwrap();
        let mapping = Mapping {
            pid: Some(1),
            start: 0x1000,
            len: 0x1000,
            offset: 0,
            path: own.display().to_string(),
            build_id: "00ff".into(),
        };
        let module = found(&mapping, &Places::default());
        assert!(module.path.is_none());
        assert!(module.missing.unwrap().contains("another one"));
        let module = found(&Mapping { build_id: String::new(), ..mapping }, &Places::default());
        assert!(module.missing.is_none() && !module.symbols.is_empty());
    }
}
