//! The reader: what of the target's files is looked into is looked into here, without any right.
//!
//! In: [`Question`]s and descriptors. Out: [`Answer`]s. Libraries that open files by name get the name of a descriptor: of the file itself where
//! anybody may read it and it names no other file, else of a copy in this process's memory. Before a file is read, its number is said: if
//! the process ends, hangs or runs out of memory there, or the file is cut while it is mapped, the recorder knows at which one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{OFlag, openat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use object::{Object, ReadCache};
use tailsight_trace::samples::FrameRow;

use super::MOST_FILE_BYTES;
use super::inflate::{Inflated, inflated};
use super::protocol::{About, Answer, FileId, MOST_QUESTION, Mapped, Places, Question, Sample, receive, send};
use crate::cpython;
use crate::functions::{self, Wanted, go};
use crate::maps::elf::{Elf, exported, exported_begins};
use crate::maps::{Mapping, Maps};
use crate::own;
use crate::resolve::Resolve;
use crate::resolve::perf_map::PerfMap;
use crate::unwind::Unwind;

/// Bytes of all copies at most. What comes then is not read.
const MOST_COPIED_BYTES: u64 = 3 << 29;
/// Bytes of a file's compressed sections when they are plain.
const MOST_INFLATED_BYTES: u64 = 512 << 20;

/// Answers until the stream ends.
pub fn serve(stream: &UnixStream) {
    let mut worker = Worker { stream, files: Files::default(), processes: BTreeMap::new() };
    while let Ok(Some((question, descriptors))) = receive(stream, MOST_QUESTION) {
        if worker.take(question, descriptors).is_err() {
            return;
        }
    }
}

struct Worker<'a> {
    stream: &'a UnixStream,
    files: Files,
    processes: BTreeMap<u32, Process>,
}

#[derive(Default)]
struct Process {
    maps: Maps,
    file_of: BTreeMap<u64, FileId>,
    unwind: Unwind,
}

#[derive(Default)]
struct Files {
    offered: BTreeMap<FileId, Offered>,
    resolve: Resolve,
    copied_bytes: u64,
    unusable: Vec<(FileId, String)>,
}

/// A file as it came.
struct Offered {
    file: Option<File>,
    /// The folder that it is in.
    folder: Option<OwnedFd>,
    about: About,
    module: Option<Result<Module, String>>,
    map: Option<PerfMap>,
}

/// A program or library.
#[derive(Default)]
struct Module {
    elf: Arc<Elf>,
    /// The file; none of the kernel's page.
    file: Option<Readable>,
    /// A debug file that was beside it, and whether what it says of further ones is followed.
    debug: Option<(Readable, bool)>,
    /// Functions of files without symbols: of the kernel's page those that it exports, of a Go program those of its own table.
    listed: Vec<(std::ops::Range<u64>, String)>,
    /// Of a Go program the main module's path.
    go_module: Option<String>,
    /// Whether a part of it was written in Rust.
    is_rust: bool,
    /// Whether debug information may be looked for by what the file says of it.
    follows_links: bool,
    /// Why its debug information is not used.
    without_debug: Option<String>,
}

/// A file by a name that libraries can open as long as it is open here.
struct Readable {
    file: File,
    path: PathBuf,
    /// It is in this process's memory.
    is_copy: bool,
}

impl Readable {
    /// The file itself where anybody may open it; else a copy of what the recorder opened.
    fn of(file: &File, most: u64) -> Result<Readable, String> {
        let path = path_of(file);
        match File::open(&path) {
            Ok(itself) => Ok(Readable { path: path_of(&itself), file: itself, is_copy: false }),
            Err(_) => Readable::copied(file, most),
        }
    }

    fn copied(mut file: &File, most: u64) -> Result<Readable, String> {
        let said = |e: io::Error| e.to_string();
        let memory = memfd_create(c"module", MFdFlags::MFD_CLOEXEC).map_err(|e| e.to_string())?;
        let mut copy = File::from(memory);
        file.seek(SeekFrom::Start(0)).map_err(said)?;
        let bytes = io::copy(&mut file.take(most + 1), &mut copy).map_err(said)?;
        if bytes > most {
            return Err("there is no memory left for it".into());
        }
        Ok(Readable { path: path_of(&copy), file: copy, is_copy: true })
    }

    /// The same without compressed sections, and why some of them are left out. `most`: of a copy. Their debug information is not asked
    /// for if it `is_unwanted`.
    fn plain(self, most: u64, is_unwanted: bool) -> Result<(Readable, Option<String>), String> {
        let most_inflated = if is_unwanted { 0 } else { MOST_INFLATED_BYTES.min(most) };
        let copy = || Ok(Readable::copied(&self.reopened()?, most)?.file);
        let plain = inflated(self.reopened()?, most_inflated, copy)?;
        Ok(match plain {
            Some(Inflated { file, refused }) => {
                (Readable { path: path_of(&file), file, is_copy: true }, refused.filter(|_| !is_unwanted))
            }
            None => (self, None),
        })
    }

    /// What it takes of this process's memory.
    fn copied_bytes(&self) -> u64 {
        if self.is_copy { self.file.metadata().map_or(0, |about| about.len()) } else { 0 }
    }

    fn reopened(&self) -> Result<File, String> {
        File::open(&self.path).map_err(|e| e.to_string())
    }
}

fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Worker<'_> {
    fn take(&mut self, question: Question, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let stream = self.stream;
        let reads = |file| send(stream, &Answer::Reads(file), &[]);
        let answer = match question {
            Question::File { file, about } => {
                let mut given = descriptors.into_iter();
                let (itself, folder) = (given.next().map(File::from), given.next());
                let offered = Offered { file: itself, folder, about, module: None, map: None };
                self.files.offered.insert(file, offered);
                return Ok(());
            }
            Question::Forget { file } => {
                self.files.forget(file);
                return Ok(());
            }
            Question::Maps { process, mappings } => {
                self.processes.insert(process, Process::new(&mappings));
                return Ok(());
            }
            Question::Unwind(samples) => {
                let stacks = samples.iter().map(|sample| self.stack(sample)).collect();
                Answer::Stacks { stacks, unusable: std::mem::take(&mut self.files.unusable) }
            }
            Question::Names { file, places } => {
                reads(file)?;
                self.files.names(file, &places)
            }
            Question::Compiled { file, addresses } => {
                reads(file)?;
                self.files.compiled(file, &addresses)
            }
            Question::Functions { file, debug, wanted } => {
                reads(file)?;
                self.files.functions(file, debug, &wanted)
            }
            Question::BuildId { file } => {
                reads(file)?;
                match self.files.module(file) {
                    Ok(module) => Answer::BuildId(module.elf.build_id.clone()),
                    Err(why) => Answer::Unusable(why),
                }
            }
            Question::GoVersion { file } => {
                reads(file)?;
                Answer::GoVersion(self.files.go_version(file))
            }
            Question::Cpython { file } => {
                reads(file)?;
                Answer::Cpython(self.files.copy_of(file).and_then(cpython::cpython_of))
            }
        };
        send(stream, &answer, &[])
    }

    fn stack(&mut self, sample: &Sample) -> Vec<u64> {
        let Some(process) = self.processes.get_mut(&sample.process) else { return vec![] };
        let Process { maps, file_of, unwind } = process;
        let (files, stream) = (&mut self.files, self.stream);
        let mut elf = |mapping: &Mapping| {
            let file = *file_of.get(&mapping.start)?;
            if files.is_new(file) {
                // The recorder is gone: so is this process, at its next word.
                let _ = send(stream, &Answer::Reads(file), &[]);
            }
            files.module(file).ok().map(|module| module.elf.clone())
        };
        unwind.stack(maps, &sample.registers, &sample.bytes, &mut elf)
    }
}

impl Process {
    fn new(mappings: &[Mapped]) -> Process {
        let mapping = |m: &Mapped| Mapping {
            start: m.start,
            end: m.end,
            offset: m.offset,
            device: (0, 0),
            inode: 0,
            path: String::new(),
        };
        Process {
            maps: Maps::from(mappings.iter().map(mapping).collect::<Vec<_>>()),
            file_of: mappings.iter().filter_map(|m| Some((m.start, m.file?))).collect(),
            unwind: Unwind::default(),
        }
    }
}

impl Files {
    fn is_new(&self, file: FileId) -> bool {
        self.offered.get(&file).is_some_and(|offered| offered.module.is_none())
    }

    fn forget(&mut self, file: FileId) {
        if let Some(Offered { module: Some(Ok(module)), .. }) = self.offered.remove(&file) {
            self.copied_bytes = self.copied_bytes.saturating_sub(module.copied_bytes());
        }
    }

    /// Read without the rest of the file, which may be large.
    fn go_version(&self, file: FileId) -> Option<String> {
        own::go_version_of(self.copy_of(file)?)
    }

    /// The file, opened again.
    fn copy_of(&self, file: FileId) -> Option<File> {
        self.offered.get(&file)?.file.as_ref()?.try_clone().ok()
    }

    /// What is known of a program or library; it is read once.
    fn module(&mut self, file: FileId) -> Result<&Module, String> {
        let left = MOST_COPIED_BYTES.saturating_sub(self.copied_bytes);
        let offered = self.offered.get_mut(&file).ok_or("it was not given")?;
        if offered.module.is_none() {
            let module = module(offered, left.min(MOST_FILE_BYTES));
            match &module {
                Ok(module) => self.copied_bytes += module.copied_bytes(),
                Err(why) => self.unusable.push((file, why.clone())),
            }
            offered.module = Some(module);
        }
        offered.module.as_ref().ok_or("it was not read")?.as_ref().map_err(Clone::clone)
    }

    fn names(&mut self, file: FileId, places: &Places) -> Answer {
        let is_program = self.offered.get(&file).is_some_and(|offered| offered.about.is_program);
        if let Err(why) = self.module(file) {
            return Answer::Unusable(why);
        }
        let module = self.offered.get(&file).and_then(|offered| offered.module.as_ref()?.as_ref().ok());
        let Some(module) = module else { return Answer::Unusable("it was not read".into()) };
        let frames = catch_unwind(AssertUnwindSafe(|| module.frames(&self.resolve, places, is_program)));
        match frames {
            Ok(frames) => {
                let (build_id, without_debug) = (module.elf.build_id.clone(), module.without_debug.clone());
                Answer::Names { build_id, frames, without_debug }
            }
            Err(_) => Answer::Unusable("its symbols cannot be decoded".into()),
        }
    }

    fn functions(&self, file: FileId, debug: Option<FileId>, wanted: &Wanted) -> Answer {
        let open = |file: FileId| self.offered.get(&file)?.file.as_ref()?.try_clone().ok();
        let Some(itself) = open(file) else { return Answer::Unusable("it could not be opened".into()) };
        match functions::find(itself, debug.and_then(open), wanted) {
            Ok(located) => Answer::Functions(located),
            Err(why) => Answer::Unusable(why),
        }
    }

    fn compiled(&mut self, file: FileId, addresses: &[u64]) -> Answer {
        let Some(offered) = self.offered.get_mut(&file) else { return Answer::Unusable("it was not given".into()) };
        let file = &mut offered.file;
        let map = offered.map.get_or_insert_with(|| file.take().map_or_else(PerfMap::default, PerfMap::read));
        let frame = |&address: &u64| {
            let (function, offset) = map.find(address).unwrap_or_default();
            let own = own::is_of_program_file(&function);
            vec![FrameRow { function, offset, own, ..FrameRow::default() }]
        };
        let frames = addresses.iter().map(frame).collect();
        Answer::Names { build_id: String::new(), frames, without_debug: None }
    }
}

fn module(offered: &mut Offered, most_bytes: u64) -> Result<Module, String> {
    let file = offered.file.as_ref().ok_or("it could not be opened")?;
    let itself = Readable::of(file, most_bytes)?;
    let chain = |e: crate::Error| tailsight_units::chain(&e);
    if offered.about.is_vdso {
        let mut page = Vec::new();
        itself.reopened()?.take(1 << 20).read_to_end(&mut page).map_err(|e| e.to_string())?;
        let elf = Arc::new(Elf::parse(&page).map_err(chain)?);
        let listed = exported(&page);
        return Ok(Module { elf, listed, ..Module::default() });
    }
    let elf = Arc::new(Elf::read(itself.reopened()?).map_err(chain)?);
    // A Go program without symbols has the table by which Go itself walks stacks.
    let listed = go::functions_of(itself.reopened()?).into_iter().map(|symbol| (symbol.range, symbol.raw)).collect();
    let go_module = own::go_module_of(itself.reopened()?);
    let is_rust = own::is_rust(itself.reopened()?);
    let links = Links::of(itself.reopened()?);
    let is_unwanted = offered.about.without_debug;
    // The library looks for what a file names in the folder of the file itself, where a pipe may wait. A copy has no folder.
    let file = if links.are_none || itself.is_copy { itself } else { Readable::copied(file, most_bytes)? };
    let (file, mut without_debug) = file.plain(most_bytes, is_unwanted)?;
    let left = most_bytes.saturating_sub(file.copied_bytes());
    let beside = links.beside.as_deref().filter(|_| !is_unwanted);
    let debug = beside
        .and_then(|name| debug_file(offered.folder.as_ref()?, name, &elf.build_id, left))
        .and_then(|debug| {
            let follows = Links::of(debug.reopened().ok()?).are_names;
            let left = left.saturating_sub(debug.copied_bytes());
            let (debug, refused) = debug.plain(left, false).ok()?;
            without_debug = without_debug.take().or(refused);
            Some((debug, follows))
        })
        .filter(|_| without_debug.is_none());
    let follows_links = links.are_names && !is_unwanted && without_debug.is_none();
    Ok(Module { elf, file: Some(file), debug, listed, go_module, is_rust, follows_links, without_debug })
}

/// What a file says of where its debug information is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Links {
    /// A file that may lie beside it.
    beside: Option<String>,
    /// None of them is a path: such a path could be that of a pipe.
    are_names: bool,
    /// It names no other file.
    are_none: bool,
}

impl Links {
    fn of(file: File) -> Links {
        let read = || {
            let cache = ReadCache::new(file);
            let file = object::File::parse(&cache).ok()?;
            let is_name = |name: &[u8]| !name.is_empty() && !name.contains(&b'/') && name != b".." && name != b".";
            let beside = file.gnu_debuglink().ok()?.map(|(name, _)| name);
            let elsewhere = file.gnu_debugaltlink().ok()?.map(|(name, _)| name);
            let are_names =
                [beside, elsewhere].into_iter().flatten().all(is_name) && file.section_by_name(".debug_sup").is_none();
            let beside = beside.filter(|name| is_name(name)).and_then(|name| String::from_utf8(name.to_vec()).ok());
            let are_none = are_names && beside.is_none() && elsewhere.is_none();
            Some(Links { beside, are_names, are_none })
        };
        catch_unwind(AssertUnwindSafe(read)).ok().flatten().unwrap_or_default()
    }
}

/// A debug file of that name in the folder of its program, or in `.debug` there: a regular file with the same build id.
fn debug_file(folder: &OwnedFd, name: &str, build_id: &str, most_bytes: u64) -> Option<Readable> {
    let open = |dir: &OwnedFd, name: &str, flags: OFlag| {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        openat(dir, name, flags, Mode::empty()).ok()
    };
    let file = |dir: &OwnedFd| open(dir, name, OFlag::O_RDONLY).map(File::from);
    let below = || file(&open(folder, ".debug", OFlag::O_PATH | OFlag::O_DIRECTORY)?);
    let file = file(folder).or_else(below)?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > most_bytes {
        return None;
    }
    // As above, it may name others.
    let debug = Readable::copied(&file, most_bytes).ok()?;
    let elf = Elf::read(debug.reopened().ok()?).ok()?;
    (!build_id.is_empty() && elf.build_id == build_id).then_some(debug)
}

impl Module {
    fn copied_bytes(&self) -> u64 {
        self.file.iter().chain(self.debug.iter().map(|(debug, _)| debug)).map(Readable::copied_bytes).sum()
    }

    /// The frames of places, innermost first; of each at least one.
    fn frames(&self, resolve: &Resolve, places: &Places, is_program: bool) -> Vec<Vec<FrameRow>> {
        let addresses: Vec<u64> = match places {
            Places::Addresses(at) => at.clone(),
            Places::Offsets(at) => at.iter().map(|&at| self.elf.address_of(at).unwrap_or(at)).collect(),
        };
        let mut by_address: Vec<Vec<FrameRow>> = vec![vec![]; addresses.len()];
        let by = |path: &Path, links: bool| match places {
            Places::Addresses(at) => resolve.addresses(path, at, links),
            Places::Offsets(at) => resolve.file(path, at, links),
        };
        if let Some((debug, follows)) = &self.debug {
            by_address = resolve.addresses(&debug.path, &addresses, *follows);
        }
        // By the file itself what a debug file does not tell.
        if let Some(file) = self.file.as_ref().filter(|_| by_address.iter().any(Vec::is_empty)) {
            let mut own = by(&file.path, self.follows_links);
            if self.follows_links && own.iter().all(Vec::is_empty) {
                // Of a file with damaged debug information the library knows nothing at all.
                own = by(&file.path, false);
            }
            by_address
                .iter_mut()
                .zip(own)
                .filter(|(frames, _)| frames.is_empty())
                .for_each(|(frames, own)| *frames = own);
        }
        if self.is_rust
            && let Some(file) = &self.file
        {
            let symbols = by(&file.path, false);
            by_address.iter_mut().zip(symbols).for_each(|(frames, symbols)| own::with_paths(frames, &symbols));
        }
        // Read only where something has no name.
        let mut begins: Option<Vec<(u64, String)>> = None;
        for (frames, &address) in by_address.iter_mut().zip(&addresses) {
            if frames.is_empty() {
                let listed = self.listed.iter().find(|(range, _)| range.contains(&address));
                let function = listed.map_or_else(String::new, |(_, name)| crate::resolve::shortened(name));
                frames.push(FrameRow { function, ..FrameRow::default() });
            }
            for frame in frames {
                let of_go = |module: &String| own::is_of_go_module(&frame.function, module);
                frame.own = is_program
                    && self.go_module.as_ref().is_none_or(of_go)
                    && !(self.is_rust && (!frame.own || own::is_of_rust_library(&frame.function)));
                // Without a name all places of a function are one.
                let start = self.elf.function_start(address).filter(|_| frame.function.is_empty());
                frame.offset = start.unwrap_or(address);
                if frame.function.is_empty() {
                    let begins = begins.get_or_insert_with(|| self.exported_begins());
                    let after = begins.partition_point(|(begin, _)| *begin <= address);
                    let name = |at: Option<usize>| {
                        let name = at.and_then(|at| begins.get(at)).map(|(_, name)| name.as_str());
                        crate::resolve::shortened(name.unwrap_or_default())
                    };
                    (frame.exported_before, frame.exported_after) = (name(after.checked_sub(1)), name(Some(after)));
                }
            }
        }
        by_address
    }

    fn exported_begins(&self) -> Vec<(u64, String)> {
        let file = self.file.as_ref().and_then(|file| file.reopened().ok());
        file.map_or_else(Vec::new, exported_begins)
    }
}
