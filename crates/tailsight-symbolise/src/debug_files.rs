//! Names for the functions of a recorded run, later and elsewhere: from debug files, or from the programs as they were built. They are read
//! by [`crate::reader`], as they are in a recording.
//!
//! In: the run's samples, folders to look in. Out: the samples with what these files tell, and which were found. A file counts when its
//! build id is the one that the run has, whatever it is called. Of a function without a name a run knows where it begins, of
//! one with a name where each of its frames was, so that source lines and functions that the compiler put into it can be added.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tailsight_output::input::{Links, open_regular};
use tailsight_trace::samples::{FrameRow, Samples};

use crate::reader::protocol::{About, FileId, Places};
use crate::reader::{MOST_FILE_BYTES, Reader};

/// Files that are looked into in the folders, and how deep these are.
const MOST_FILES: usize = 50_000;
const DEEPEST: usize = 12;
/// How long all of them may take: nobody waits for a recording to end here.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A program or library of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name without folders.
    pub name: String,
    /// Its build id.
    pub build_id: String,
    /// The file with its symbols; none when none of the folders has it.
    pub file: Option<PathBuf>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    /// The samples with the names.
    pub samples: Samples,
    /// Functions that have a name now and had none.
    pub named: u64,
    /// Functions that still have none, in programs and libraries with a build id.
    pub unnamed: u64,
    /// Frames that have a source line now and had none.
    pub lines: u64,
    /// The programs and libraries that were asked for.
    pub modules: Vec<Module>,
    /// Files that could not be read, and why.
    pub notes: Vec<String>,
}

/// Looks for the files of these samples and takes what they tell.
pub fn resolve(samples: &Samples, folders: &[PathBuf], reader: Reader) -> Resolution {
    let asks = |f: &FrameRow| !f.kernel && !f.inlined && !f.build_id.is_empty() && f.source.is_empty();
    let mut modules: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (i, frame) in samples.frames.iter().enumerate().filter(|(_, f)| asks(f)) {
        modules.entry((&frame.module, &frame.build_id)).or_default().push(i);
    }
    let mut files = Files { reader, paths: vec![] };
    files.reader.limit(LONGEST);
    let mut places = Folders { folders, by_build_id: None, files };
    let mut out = Resolution::default();
    let mut frames_of: Vec<Vec<FrameRow>> = samples.frames.iter().map(|frame| vec![frame.clone()]).collect();
    for ((name, build_id), frames) in modules {
        let file = places.find(build_id);
        if let Some(file) = &file {
            let addresses: Vec<u64> = frames.iter().map(|&i| samples.frames[i].offset).collect();
            for (i, names) in frames.into_iter().zip(places.files.names(file, addresses)) {
                if let Some(frames) = completed(&samples.frames[i], names) {
                    out.lines += u64::from(frames.iter().any(|f| !f.source.is_empty()));
                    frames_of[i] = frames;
                }
            }
        }
        out.modules.push(Module { name: name.into(), build_id: build_id.into(), file });
    }
    for (before, now) in samples.frames.iter().zip(&frames_of).filter(|(before, _)| !before.build_id.is_empty()) {
        let still = now.iter().all(|f| f.function.is_empty());
        out.unnamed += u64::from(still);
        out.named += u64::from(before.function.is_empty() && !still);
    }
    out.samples = numbered(samples, &frames_of);
    out.notes = places.files.notes();
    out
}

/// Files that the reader has, by its numbers.
struct Files {
    reader: Reader,
    paths: Vec<PathBuf>,
}

impl Files {
    /// Gives the reader a file; none when it is no ordinary one, or a very large one.
    fn give(&mut self, path: &Path) -> Option<FileId> {
        let (file, _) = open_regular(path, Links::Follow, MOST_FILE_BYTES).ok()?;
        let number = self.paths.len() as FileId;
        self.reader.give(number, file, None, About::default());
        self.paths.push(path.to_owned());
        Some(number)
    }

    fn names(&mut self, path: &Path, addresses: Vec<u64>) -> Vec<Vec<FrameRow>> {
        let file = self.give(path);
        let names = file.and_then(|file| self.reader.names(file, Places::Addresses(addresses)).ok());
        let mut frames = names.map(|(_, frames)| frames).unwrap_or_default();
        // What the reader says of a place without a name is known already.
        frames
            .iter_mut()
            .filter(|at| at.iter().all(|f| f.function.is_empty() && f.source.is_empty()))
            .for_each(Vec::clear);
        frames
    }

    /// The build id of an ELF file; none of another file.
    fn build_id(&mut self, path: &Path) -> Option<String> {
        let mut magic = [0; 4];
        let (file, _) = open_regular(path, Links::Follow, MOST_FILE_BYTES).ok()?;
        file.read_exact_at(&mut magic, 0).ok()?;
        if magic != *b"\x7fELF" {
            return None;
        }
        let file = self.give(path)?;
        let build_id = self.reader.build_id(file);
        self.reader.take_back(file);
        build_id
    }

    fn notes(&mut self) -> Vec<String> {
        let paths = &self.paths;
        self.reader.notes(|file| paths.get(file as usize).map(|path| path.display().to_string()))
    }
}

/// A frame with what a file tells of it; none when that is nothing.
fn completed(frame: &FrameRow, mut told: Vec<FrameRow>) -> Option<Vec<FrameRow>> {
    let function = told.last()?;
    if frame.function.is_empty() {
        // Where it begins is no place that was called from: nothing was put into it there.
        told = vec![function.clone()];
    } else if told.iter().all(|f| f.source.is_empty()) {
        return None;
    }
    for row in &mut told {
        (row.module, row.build_id, row.offset) = (frame.module.clone(), frame.build_id.clone(), frame.offset);
    }
    // The name that the program's own symbols have stays: diagnoses made before keep their words.
    if let Some(last) = told.last_mut().filter(|_| !frame.function.is_empty()) {
        last.function.clone_from(&frame.function);
    }
    Some(told)
}

/// The samples with frames in the place of others, each of them once.
fn numbered(samples: &Samples, frames_of: &[Vec<FrameRow>]) -> Samples {
    let mut number: FxHashMap<&FrameRow, u32> = FxHashMap::default();
    let mut frames: Vec<FrameRow> = Vec::new();
    let numbers: Vec<Vec<u32>> = frames_of
        .iter()
        .map(|of| {
            let number_of = |frame| {
                *number.entry(frame).or_insert_with(|| {
                    frames.push(frame.clone());
                    frames.len() as u32 - 1
                })
            };
            of.iter().map(number_of).collect()
        })
        .collect();
    let stack = |stack: &Vec<u32>| stack.iter().filter_map(|&f| numbers.get(f as usize)).flatten().copied().collect();
    Samples { rows: samples.rows.clone(), stacks: samples.stacks.iter().map(stack).collect(), frames }
}

/// Folders with debug files.
struct Folders<'a> {
    folders: &'a [PathBuf],
    /// All files of the folders by their build ids, once that was asked for.
    by_build_id: Option<BTreeMap<String, PathBuf>>,
    files: Files,
}

impl Folders<'_> {
    /// The file with this build id: where debug files are by convention, else wherever it is.
    fn find(&mut self, build_id: &str) -> Option<PathBuf> {
        let (first, rest) = build_id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
        let name = Path::new(first).join(format!("{rest}.debug"));
        let usual = self.folders.iter().flat_map(|dir| [dir.join(".build-id").join(&name), dir.join(&name)]);
        let files = &mut self.files;
        let file = usual.into_iter().find(|path| files.build_id(path).as_deref() == Some(build_id));
        file.or_else(|| {
            let by_build_id = self.by_build_id.get_or_insert_with(|| index(self.folders, files));
            by_build_id.get(build_id).cloned()
        })
    }
}

/// Every ELF file below the folders that has a build id; of several with one id the largest, as it has the most to tell.
fn index(folders: &[PathBuf], reading: &mut Files) -> BTreeMap<String, PathBuf> {
    let mut out: BTreeMap<String, (u64, PathBuf)> = BTreeMap::new();
    let mut open: Vec<(PathBuf, usize)> = folders.iter().map(|dir| (dir.clone(), 0)).collect();
    let mut files = 0;
    while let Some((dir, depth)) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            // Links are not followed: they may lead anywhere, and back.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() && depth < DEEPEST {
                open.push((entry.path(), depth + 1));
            } else if about.is_file() && files < MOST_FILES {
                files += 1;
                let Some(build_id) = reading.build_id(&entry.path()) else { continue };
                let longest = out.entry(build_id).or_default();
                if about.len() > longest.0 {
                    *longest = (about.len(), entry.path());
                }
            }
        }
    }
    out.into_iter().map(|(build_id, (_, path))| (build_id, path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_programs::tool;
    use tailsight_testing::{lacks_program, skip};

    const SOURCE: &str = "static inline __attribute__((always_inline)) int twice(int x) { volatile int y = x; return y + y; }\n\
        __attribute__((noinline)) static int rebuild_index(int x) { return twice(x) + 1; }\n\
        int main(int argc, char **argv) { return rebuild_index(argc); }\n";

    /// A program is recorded without symbols; its debug file is elsewhere, under a name that says nothing.
    #[test]
    fn a_stripped_program_gets_its_names_from_a_file_with_its_build_id() {
        for program in ["cc", "objcopy", "nm"] {
            if let Some(why) = lacks_program(program) {
                return skip(why);
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::write(dir.join("server.c"), SOURCE).unwrap();
        tool("cc", &["-O1", "-g", "-Wl,--build-id=sha1", "-o", "server", "server.c"], dir);
        let listed = tool("nm", &["server"], dir);
        let line = listed.lines().find(|line| line.contains("rebuild_index")).expect("the symbol");
        let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        let here = || Reader::in_this_process();
        let build_id = Files { reader: here(), paths: vec![] }.build_id(&dir.join("server")).expect("a build id");
        let files = dir.join("files/below");
        std::fs::create_dir_all(&files).unwrap();
        tool("objcopy", &["--only-keep-debug", "server", "files/below/anything"], dir);

        let frame = |function: &str, offset, build_id: &str| FrameRow {
            function: function.into(),
            module: "server".into(),
            build_id: build_id.into(),
            offset,
            ..FrameRow::default()
        };
        let other = "00".repeat(20);
        let frames = vec![frame("", start, &build_id), frame("", start, &other), frame("own", start + 1, &build_id)];
        let before = Samples { rows: vec![], stacks: vec![vec![0, 1], vec![2]], frames };
        let resolved = resolve(&before, &[dir.join("files")], here());
        let names = |n: u32| resolved.samples.stack(n).map(|f| f.function.as_str()).collect::<Vec<_>>();
        assert_eq!(names(0), ["rebuild_index", ""]);
        assert_eq!(names(1).last(), Some(&"own"), "a name stays");
        assert!(resolved.samples.stack(1).all(|f| f.source.starts_with("server.c:")), "{:?}", resolved.samples.frames);
        assert_eq!((resolved.named, resolved.unnamed, resolved.modules.len()), (1, 1, 2));
        assert_eq!(resolved.modules.iter().filter(|m| m.file.is_some()).count(), 1);
        // By the convention of debug files, too; and without any of them nothing is made up.
        let usual = dir.join("usual/.build-id").join(&build_id[..2]);
        std::fs::create_dir_all(&usual).unwrap();
        std::fs::rename(files.join("anything"), usual.join(format!("{}.debug", &build_id[2..]))).unwrap();
        assert_eq!(resolve(&before, &[dir.join("usual")], here()).named, 1);
        let none = resolve(&before, &[dir.join("files"), dir.join("absent")], here());
        assert_eq!((none.named, none.unnamed, none.samples), (0, 2, before));
    }
}
