//! Reads what the target wrote (programs, libraries, debug information, maps of compiled code) in a process without rights.
//!
//! In: open files, mappings, samples, places. Out: return addresses and names, or why there are none. A recorder is root, and the files of
//! a process that it records may hold anything: a table that expands to more than there is memory, a loop. So the recorder only opens them
//! ([`crate::maps::Mapping::open`]), and a process that is nobody, may open no socket and start nothing, and has limited memory and time
//! reads them ([`worker`]). When it does not answer in time, or ends, it is replaced by another one ([`keeper`] starts them), which leaves the
//! debug information of the file that it was at alone; at the second time the file is not resolved. Nothing else is lost.

mod inflate;
pub mod keeper;
pub mod protocol;
mod worker;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tailsight_confine::{capabilities, priority};
use tailsight_trace::samples::FrameRow;

use crate::cpython::Cpython;
use crate::functions::{Located, Wanted};
pub use crate::maps::MOST_FILE_BYTES;
use crate::resolve::shortened;
use crate::unwind::MOST_FRAMES;
use protocol::{About, Answer, FileId, MOST_ANSWER, Mapped, Places, Question, Sample, receive, send, send_part};

/// The only argument of the program that starts readers; see [`keeper::run`].
const ARGUMENT: &str = "read-files-of-strangers";

/// How long the answer to a question may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all answers may take together, from the first question on.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(30);
/// Readers that are replaced before no further one is started.
const MOST_REPLACED: u32 = 6;
/// Functions at one place: that many were put into each other at most.
const MOST_INLINED: usize = 64;
/// How long a reader gives way to all else before it goes on with the usual priority.
const GIVES_WAY: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody asked for the end.
const LOOK: Duration = Duration::from_millis(100);

/// A file that was given to the reader.
#[derive(Debug)]
struct Given {
    file: File,
    folder: Option<OwnedFd>,
    about: About,
    /// Why it is not given to the next reader.
    unusable: Option<String>,
    /// Why its debug information is left alone.
    without_debug: Option<String>,
}

/// Where readers come from.
#[derive(Debug)]
enum Source {
    /// A process that forks them.
    Keeper { child: Child, control: UnixStream },
    /// Threads of this process, for tests.
    Threads,
    /// None could be started.
    Nowhere,
}

/// Asks, and replaces readers that fail.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    /// The socket of the reader that runs.
    running: Option<UnixStream>,
    /// Its process, and whether it gives way to all else until its first question.
    pid: Option<u32>,
    gives_way: bool,
    /// Set when that process has ended.
    ended: Arc<AtomicBool>,
    files: BTreeMap<FileId, Given>,
    maps: BTreeMap<u32, Vec<Mapped>>,
    replaced: u32,
    patience: Duration,
    patience_in_all: Duration,
    used: Duration,
    stop: Option<Arc<AtomicBool>>,
    /// Why not all questions were answered.
    over: Option<&'static str>,
    notes: Vec<String>,
}

/// Why there is no answer.
enum Failure {
    /// The reader ended or did not answer; the file that it was at, and in words what happened.
    Reader(Option<FileId>, String),
    /// There is no reader, or no time; in words.
    Over(&'static str),
}

/// Whether this program starts readers when it is started with [`ARGUMENT`].
static STARTS_READERS: AtomicBool = AtomicBool::new(false);

/// To be called first in a program that reads what strangers wrote: it becomes the process that starts readers where it was started as that,
/// and does not return; else [`Reader::start`] may start it so.
pub fn start_readers_if_asked() {
    if std::env::args_os().skip(1).eq([ARGUMENT]) {
        keeper::run();
    }
    STARTS_READERS.store(true, Ordering::Relaxed);
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::of(Source::Nowhere)
    }
}

impl Reader {
    /// Starts the process that starts readers, and the first one. Where that fails nothing is resolved, and a note says so. In a program that
    /// did not call [`start_readers_if_asked`] (tests of other crates) threads of this process read.
    pub fn start() -> Reader {
        if !STARTS_READERS.load(Ordering::Relaxed) {
            return Reader::in_this_process();
        }
        let mut reader = Reader::default();
        match spawn() {
            Ok((child, control)) => {
                reader.source = Source::Keeper { child, control };
                reader.launch();
            }
            Err(e) => reader.notes.push(format!("no process to read symbols could be started: {e}")),
        }
        reader
    }

    /// One that reads in threads of this process: for tests of what uses it.
    pub fn in_this_process() -> Reader {
        Reader::of(Source::Threads)
    }

    fn of(source: Source) -> Reader {
        Reader {
            source,
            running: None,
            pid: None,
            gives_way: false,
            ended: Arc::default(),
            files: BTreeMap::new(),
            maps: BTreeMap::new(),
            replaced: 0,
            patience: PATIENCE,
            patience_in_all: PATIENCE_IN_ALL,
            used: Duration::ZERO,
            stop: None,
            over: None,
            notes: vec![],
        }
    }

    /// The processes that it has.
    pub fn pids(&self) -> Vec<u32> {
        let keeper = match &self.source {
            Source::Keeper { child, .. } => Some(child.id()),
            _ => None,
        };
        keeper.into_iter().chain(self.pid).collect()
    }

    /// Sets when it gives up: when this is set, at once.
    pub fn give_up_on(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }

    /// Sets how long all answers may take together from now on, where that is not the usual time.
    pub fn limit(&mut self, in_all: Duration) {
        self.patience_in_all = self.used.saturating_add(in_all);
    }

    /// Gives the reader a file, and the folder that it is in if debug files beside it count. Its number is from now on what it was given as.
    pub fn give(&mut self, file: FileId, itself: File, folder: Option<OwnedFd>, about: About) {
        let given = Given { file: itself, folder, about, unusable: None, without_debug: None };
        if let Some(stream) = &self.running {
            // A reader that is gone is replaced at the next question.
            let _ = offer(stream, file, &given);
        }
        self.files.insert(file, given);
    }

    /// Closes a file that is not asked for any more.
    pub fn take_back(&mut self, file: FileId) {
        if self.files.get(&file).is_some_and(|given| given.unusable.is_none()) {
            self.files.remove(&file);
            if let Some(stream) = &self.running {
                let _ = send(stream, &Question::Forget { file }, &[]);
            }
        }
    }

    /// Says what a process has mapped.
    pub fn tell_maps(&mut self, process: u32, mappings: Vec<Mapped>) {
        if let Some(stream) = &self.running {
            let _ = send(stream, &Question::Maps { process, mappings: mappings.clone() }, &[]);
        }
        self.maps.insert(process, mappings);
    }

    /// The addresses of each sample, innermost first; of none when there is no answer.
    pub fn unwind(&mut self, samples: Vec<Sample>) -> Vec<Vec<u64>> {
        let count = samples.len();
        let question = Question::Unwind(samples);
        let answer = self.ask(&question, |answer| match answer {
            Answer::Stacks { stacks, unusable } => {
                (stacks.len() == count && stacks.iter().all(|s| s.len() <= MOST_FRAMES)).then_some((stacks, unusable))
            }
            _ => None,
        });
        let (stacks, unusable) = answer.unwrap_or_default();
        for (file, why) in unusable {
            if let Some(given) = self.files.get_mut(&file) {
                given.unusable.get_or_insert(shortened(&why));
            }
        }
        if stacks.is_empty() { vec![vec![]; count] } else { stacks }
    }

    /// The build id of a file and the frames of places in it, innermost first; the frames say nothing of the module.
    ///
    /// # Errors
    /// Why nothing is known, in words.
    pub fn names(&mut self, file: FileId, places: Places) -> Result<(String, Vec<Vec<FrameRow>>), String> {
        let count = places.len();
        self.names_by(file, &Question::Names { file, places }, count)
    }

    /// The frames of addresses in code that a runtime compiled, by the map that it wrote.
    ///
    /// # Errors
    /// Likewise.
    pub fn compiled(&mut self, file: FileId, addresses: Vec<u64>) -> Result<Vec<Vec<FrameRow>>, String> {
        let count = addresses.len();
        self.names_by(file, &Question::Compiled { file, addresses }, count).map(|(_, frames)| frames)
    }

    /// What is to be traced of a file. `debug`: its separate debug file, where there is one.
    ///
    /// # Errors
    /// Why there is nothing, in words.
    pub fn functions(&mut self, file: FileId, debug: Option<FileId>, wanted: &Wanted) -> Result<Located, String> {
        let question = Question::Functions { file, debug, wanted: wanted.clone() };
        let answer = self.ask(&question, |answer| match answer {
            Answer::Functions(located) => (located.fits() && is_build_id(&located.build_id)).then_some(Ok(located)),
            Answer::Unusable(why) => Some(Err(shortened(&why))),
            _ => None,
        });
        let mut located = answer.unwrap_or_else(|| Err(self.why_none(file)))?;
        located.functions.iter_mut().for_each(|function| function.name = shortened(&function.name));
        located.refused.iter_mut().for_each(|why| *why = shortened(why));
        Ok(located)
    }

    /// Why there was no answer on a file.
    fn why_none(&self, file: FileId) -> String {
        let unusable = self.files.get(&file).and_then(|given| given.unusable.clone());
        unusable.or(self.over.map(str::to_owned)).unwrap_or_else(|| "there was no answer".into())
    }

    /// The build id of a file; none without one.
    pub fn build_id(&mut self, file: FileId) -> Option<String> {
        let answer = self.ask(&Question::BuildId { file }, |answer| match answer {
            Answer::BuildId(id) => Some(is_build_id(&id).then_some(id)),
            Answer::Unusable(_) => Some(None),
            _ => None,
        });
        answer.flatten().filter(|id| !id.is_empty())
    }

    /// Which Go built a file (`go1.22.5`), empty where that cannot be told; none of a file that is not Go's.
    pub fn go_version(&mut self, file: FileId) -> Option<String> {
        let answer = self.ask(&Question::GoVersion { file }, |answer| match answer {
            Answer::GoVersion(version) => Some(version.map(|text| shortened(&text))),
            Answer::Unusable(_) => Some(None),
            _ => None,
        });
        answer.flatten()
    }

    /// Which CPython a file is; none of other programs and libraries.
    pub fn cpython(&mut self, file: FileId) -> Option<Cpython> {
        let answer = self.ask(&Question::Cpython { file }, |answer| match answer {
            Answer::Cpython(cpython) => Some(cpython),
            Answer::Unusable(_) => Some(None),
            _ => None,
        });
        answer.flatten()
    }

    /// What could not be read, and why, each once; the names are those of `name_of`.
    pub fn notes(&mut self, name_of: impl Fn(FileId) -> Option<String>) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.over.take().map(|why| format!("not all functions are resolved: {why}")));
        for (file, given) in &self.files {
            let Some(name) = name_of(*file) else { continue };
            match (&given.unusable, &given.without_debug) {
                (Some(why), _) => notes.push(format!("{name} is not resolved: {why}")),
                (None, Some(why)) => notes.push(format!("the debug information of {name} is not used: {why}")),
                (None, None) => {}
            }
        }
        notes
    }

    fn names_by(
        &mut self,
        file: FileId,
        question: &Question,
        count: usize,
    ) -> Result<(String, Vec<Vec<FrameRow>>), String> {
        if let Some(why) = self.files.get(&file).and_then(|given| given.unusable.clone()) {
            return Err(why);
        }
        let answer = self.ask(question, |answer| match answer {
            Answer::Names { build_id, frames, without_debug } => (frames.len() == count && is_build_id(&build_id))
                .then(|| Ok((build_id, frames.into_iter().map(safe).collect(), without_debug))),
            Answer::Unusable(why) => Some(Err(shortened(&why))),
            _ => None,
        });
        match answer {
            Some(Ok((build_id, frames, without_debug))) => {
                if let Some((given, why)) = self.files.get_mut(&file).zip(without_debug) {
                    given.without_debug.get_or_insert(shortened(&why));
                }
                Ok((build_id, frames))
            }
            Some(Err(why)) => {
                if let Some(given) = self.files.get_mut(&file) {
                    given.unusable.get_or_insert(why.clone());
                }
                Err(why)
            }
            None => Err("there was no answer".into()),
        }
    }

    /// Asks until there is an answer that fits. A file that a reader failed at the next one reads without its debug information, the one after
    /// that not at all.
    fn ask<T>(&mut self, question: &Question, mut take: impl FnMut(Answer) -> Option<T>) -> Option<T> {
        loop {
            let begun = Instant::now();
            let answer = self.ask_once(question, &mut take);
            self.used += begun.elapsed();
            match answer {
                Ok(answer) => return Some(answer),
                Err(Failure::Over(why)) => {
                    self.over.get_or_insert(why);
                    return None;
                }
                Err(Failure::Reader(file, why)) => {
                    self.end_reader();
                    self.replaced += 1;
                    let asked = match question {
                        Question::Names { file, .. }
                        | Question::Compiled { file, .. }
                        | Question::Functions { file, .. }
                        | Question::BuildId { file }
                        | Question::GoVersion { file }
                        | Question::Cpython { file } => Some(*file),
                        _ => None,
                    };
                    let Some(given) = file.or(asked).and_then(|file| self.files.get_mut(&file)) else {
                        self.notes.push(format!("samples are not resolved: {why}"));
                        return None;
                    };
                    if given.about.without_debug {
                        given.unusable = Some(why);
                        if asked.is_some_and(|asked| file.is_none_or(|file| file == asked)) {
                            return None;
                        }
                    } else {
                        given.about.without_debug = true;
                        given.without_debug = Some(why);
                    }
                }
            }
        }
    }

    fn ask_once<T>(&mut self, question: &Question, take: &mut impl FnMut(Answer) -> Option<T>) -> Result<T, Failure> {
        if self.running.is_none() {
            self.launch();
        }
        self.gives_way_no_longer();
        let left = self.patience.min(self.patience_in_all.saturating_sub(self.used));
        let deadline = Instant::now() + left;
        let stream = self.running.as_ref().ok_or(Failure::Over("no process reads symbols any more"))?;
        if left.is_zero() {
            return Err(Failure::Over("their time was over"));
        }
        let lost = |file, e: &io::Error| match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Failure::Reader(file, format!("reading it took longer than {} s", left.as_secs()))
            }
            io::ErrorKind::InvalidData => Failure::Reader(file, "its reader's answer is none".into()),
            _ => Failure::Reader(file, "its reader ended: no memory or no time was left, or it was damaged".into()),
        };
        let _ = stream.set_write_timeout(Some(left));
        send(stream, question, &[]).map_err(|e| lost(None, &e))?;
        let mut reads = None;
        loop {
            self.wait(stream, deadline).map_err(|e| lost(reads, &e))?;
            if self.is_stopped() {
                return Err(Failure::Over("the recording was ended"));
            }
            let _ = stream.set_read_timeout(Some(remaining(deadline)));
            match receive::<Answer>(stream, MOST_ANSWER) {
                Ok(Some((Answer::Reads(file), _))) => reads = Some(file),
                Ok(Some((answer, _))) => {
                    let none = || Failure::Reader(reads, "its reader's answer does not fit".into());
                    return take(answer).ok_or_else(none);
                }
                Ok(None) => return Err(lost(reads, &io::ErrorKind::UnexpectedEof.into())),
                Err(e) => return Err(lost(reads, &e)),
            }
        }
    }

    /// Waits until something comes, or until it is to give up; not beyond the deadline.
    fn wait(&self, stream: &UnixStream, deadline: Instant) -> io::Result<()> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        loop {
            let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
            let span = remaining(deadline).min(LOOK);
            match poll(&mut polled, PollTimeout::try_from(span).unwrap_or(PollTimeout::ZERO)) {
                _ if self.is_stopped() => return Ok(()),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Starts a reader and gives it what is known so far.
    fn launch(&mut self) {
        if self.replaced > MOST_REPLACED {
            return;
        }
        let Ok((here, there)) = UnixStream::pair() else { return };
        match &mut self.source {
            Source::Nowhere => return,
            Source::Threads => {
                std::thread::spawn(move || worker::serve(&there));
            }
            Source::Keeper { control, .. } => match started(control, there) {
                Ok(pid) => {
                    (self.pid, self.ended) = (Some(pid), Arc::default());
                    self.gives_way = priority::may_be_raised() && priority::give_way(pid);
                }
                Err(e) => {
                    self.notes.push(format!("no process to read symbols could be started: {e}"));
                    self.source = Source::Nowhere;
                    return;
                }
            },
        }
        let _ = here.set_write_timeout(Some(self.patience));
        for (&file, given) in self.files.iter().filter(|(_, given)| given.unusable.is_none()) {
            let _ = offer(&here, file, given);
        }
        for (&process, mappings) in &self.maps {
            let _ = send(&here, &Question::Maps { process, mappings: mappings.clone() }, &[]);
        }
        self.running = Some(here);
    }

    /// A while after its first question the reader has its usual turn.
    fn gives_way_no_longer(&mut self) {
        let Some(pid) = self.pid.filter(|_| std::mem::take(&mut self.gives_way)) else { return };
        let ended = Arc::clone(&self.ended);
        let raise = move || {
            // This thread has the turn of the one that started it, and its rights, of which it needs one.
            let _ = capabilities::keep_only(&[capabilities::SYS_NICE]);
            priority::as_usual(0);
            std::thread::sleep(GIVES_WAY);
            if !ended.load(Ordering::Relaxed) {
                priority::as_usual(pid);
            }
        };
        if std::thread::Builder::new().name("tailsight-hurry".into()).spawn(raise).is_err() {
            priority::as_usual(pid);
        }
    }

    fn end_reader(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.pid = None;
        if self.running.take().is_some()
            && let Source::Keeper { control, .. } = &mut self.source
        {
            let _ = control.write_all(&[keeper::STOP]);
        }
    }

    /// Whether somebody asked for the end.
    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.end_reader();
        if let Source::Keeper { mut child, control } = std::mem::replace(&mut self.source, Source::Nowhere) {
            // It ends by itself.
            drop(control);
            let _ = child.wait();
        }
    }
}

/// The program that starts readers: this one.
fn spawn() -> io::Result<(Child, UnixStream)> {
    let (control, its) = UnixStream::pair()?;
    control.set_read_timeout(Some(PATIENCE))?;
    control.set_write_timeout(Some(PATIENCE))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).env_clear().stdin(OwnedFd::from(its)).stdout(Stdio::null()).stderr(Stdio::null());
    Ok((command.spawn()?, control))
}

/// Asks the keeper for a reader. Gives its process.
fn started(control: &mut UnixStream, socket: UnixStream) -> io::Result<u32> {
    send_part(control, &[keeper::START], &[socket.as_fd()])?;
    let mut pid = [0; 4];
    control.read_exact(&mut pid)?;
    Ok(u32::from_le_bytes(pid))
}

fn offer(stream: &UnixStream, file: FileId, given: &Given) -> io::Result<()> {
    let descriptors: Vec<_> = [given.file.as_fd()].into_iter().chain(given.folder.as_ref().map(AsFd::as_fd)).collect();
    send(stream, &Question::File { file, about: given.about }, &descriptors)
}

fn remaining(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn is_build_id(text: &str) -> bool {
    text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Frames as a table can hold them, whatever was answered.
fn safe(frames: Vec<FrameRow>) -> Vec<FrameRow> {
    let short = |frame: FrameRow| FrameRow {
        function: shortened(&frame.function),
        source: shortened(&frame.source),
        exported_before: shortened(&frame.exported_before),
        exported_after: shortened(&frame.exported_after),
        offset: frame.offset,
        inlined: frame.inlined,
        own: frame.own,
        ..FrameRow::default()
    };
    frames.into_iter().take(MOST_INLINED).map(short).collect()
}

#[cfg(test)]
mod tests;
