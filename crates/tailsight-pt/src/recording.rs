//! A whole recording: the traces of all cores, decoded in parallel, and their events in order of time.
//!
//! In: a perf.data file, where its programs are, and the windows of time that matter. Out: [`Event`]s through a callback, then the
//! names of the functions and a [`Summary`]. A few pieces of trace are in memory at a time, whatever the size of the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use tailsight_output::input::{Links, open_regular};
use tailsight_symbolise::reader::protocol::{About, Places as PlacesInFile};
use tailsight_symbolise::reader::{MOST_FILE_BYTES, Reader};
use tailsight_trace::samples::FrameRow;

use crate::Error;
use crate::ahead::{Ahead, Job, Stop, Trace, Worker};
use crate::container::{Container, Queue};
use crate::decode::{By, Decoded, Setting, Step};
use crate::gap::Gap;
use crate::index::{self, Cutter, PIECE, Piece};
use crate::memory::{Memory, Places};
use crate::sideband::{Sideband, Switches, TscClock};
use crate::stacks::{Core, Counts, Event, Stacks, Transfer};

/// Events are given out when there are so many.
const MOST_EVENTS: usize = 4096;

/// Trace is no longer than this behind perf's last record: that is written when the trace is stopped and taken.
const BEHIND_RECORDS_NS: u64 = 10_000_000_000;

/// An interval of perf's time, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First.
    pub from_ns: u64,
    /// The first ns after it.
    pub to_ns: u64,
}

/// An opened recording.
#[derive(Debug)]
pub struct Recording {
    /// The file.
    pub container: Container,
    /// What perf recorded beside the trace.
    pub sideband: Sideband,
    /// The code that ran.
    pub memory: Memory,
    /// perf's clock.
    pub clock: TscClock,
    /// Which decoders are tried first: others than ours for comparison.
    pub by: By,
    /// Reads the names of functions.
    reader: Mutex<Reader>,
}

/// A function by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its name, or module and offset where no symbol names it.
    pub function: String,
    /// The file that it is in.
    pub module: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
}

/// The result of decoding.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What was counted.
    pub counts: Counts,
    /// Functions, by their numbers.
    pub functions: Vec<Named>,
    /// Instructions by thread.
    pub instructions: BTreeMap<u32, u64>,
    /// The decoder's errors, and how often each occurred.
    pub errors: BTreeMap<&'static str, u64>,
    /// Bytes of trace in the file.
    pub trace_bytes: u64,
    /// Bytes that were decoded.
    pub decoded_bytes: u64,
    /// Of them, in pieces whose packets only libipt could read.
    pub packets_left_to_libipt: u64,
    /// Of those, in pieces that only libipt's block decoder could decode: slower.
    pub left_to_libipt: u64,
    /// First and last time, ns.
    pub span_ns: Option<(u64, u64)>,
}

/// The next part of a core's trace, before it is decoded.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A gap: nothing is known of this time.
    Gap(Gap),
    /// A piece of trace: its index in [`Ahead::jobs`], and the earliest time at which it can begin.
    Piece(usize, u64),
}

/// The state of a core's trace while it is decoded.
struct Stream<'a> {
    parts: Vec<Part>,
    next: usize,
    decoded: Decoded,
    /// Index of the next step in `decoded`.
    at: usize,
    core: Core<'a>,
    finished: bool,
}

/// The traces of all cores, the pieces of them to decode, in order of time, and how each trace is decoded.
type Streams<'a> = (Vec<Stream<'a>>, Vec<Job>, Vec<Trace<'a>>);

impl Stream<'_> {
    fn step(&self) -> Option<&Step> {
        self.decoded.steps.get(self.at)
    }

    /// When the next event of this core is due: a step, a switch, or the beginning of a piece that is not decoded yet.
    fn due(&self) -> Option<u64> {
        let step = self.step().map(|step| step.ns);
        let next = step.or_else(|| match self.parts.get(self.next) {
            Some(Part::Piece(_, ns)) => Some(*ns),
            _ => None,
        });
        let next = next.into_iter().chain(self.core.next_switch()).min()?;
        Some(self.core.not_before(next))
    }

    /// Follows decoded steps up to a time, but not so many that their events would take much memory. Returns the time of the last one.
    fn steps(&mut self, until: u64, stacks: &mut Stacks<'_>) -> u64 {
        let mut last = 0;
        for step in &self.decoded.steps[self.at..] {
            let ns = self.core.not_before(step.ns);
            if ns > until || stacks.events.len() >= MOST_EVENTS {
                break;
            }
            // A switch that is due before it is made with it.
            stacks.step(&mut self.core, ns, step);
            self.at += 1;
            last = ns;
        }
        last
    }

    /// Once every decoded step has been given out: begins the gaps that follow, and at the end of the trace ends the spans that are still
    /// open, before later events of other cores. `reached`: the time up to which events of the other cores were given out.
    fn settle(&mut self, stacks: &mut Stacks<'_>, reached: u64) {
        if self.step().is_some() || self.finished {
            return;
        }
        while let Some(Part::Gap(why)) = self.parts.get(self.next) {
            self.next += 1;
            self.core.hold(reached);
            stacks.gap(&mut self.core, 0, *why);
        }
        if self.next >= self.parts.len() && self.core.next_switch().is_none() {
            self.core.hold(reached);
            stacks.finish(&mut self.core);
            self.finished = true;
        }
    }
}

impl Recording {
    /// Opens a perf.data file or the directory of `perf record --kcore`, and the programs that it names.
    ///
    /// # Errors
    /// Every [`Error`].
    pub fn open(path: &Path, places: &Places) -> Result<Recording, Error> {
        Recording::open_with(path, places, Reader::start())
    }

    /// Likewise, with a reader that was started before: a process that has given up the right to start programs needs one.
    ///
    /// # Errors
    /// As of [`Recording::open`].
    pub fn open_with(path: &Path, places: &Places, reader: Reader) -> Result<Recording, Error> {
        let mut container = Container::open(path)?;
        let sideband = Sideband::take(&mut container)?;
        let clock = sideband.clock(&container)?;
        let mut places = places.clone();
        if let Some(dir) = &container.kcore_dir {
            let existing = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
            places.kernel = places.kernel.or_else(|| existing("kcore"));
            places.kallsyms = places.kallsyms.or_else(|| existing("kallsyms"));
        }
        let memory = Memory::of(&sideband, &places)?;
        Ok(Recording { container, sideband, memory, clock, by: By::Ours, reader: Mutex::new(reader) })
    }

    /// Decodes it, or the windows of it, and gives what happened on each core to `each`, all cores in order of time.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Decoder`].
    pub fn decode(&self, windows: Option<&[Window]>, mut each: impl FnMut(&Event)) -> Result<Summary, Error> {
        self.run(windows, PIECE, &mut each, None)
    }

    /// As [`Recording::decode`], in pieces of about `piece` bytes, and gives every call and return to `transfer`, each core's in order:
    /// for comparisons with other decoders.
    ///
    /// # Errors
    /// As of [`Recording::decode`].
    pub fn transfers(&self, piece: u64, mut transfer: impl FnMut(&Transfer)) -> Result<Summary, Error> {
        self.run(None, piece, &mut |_| {}, Some(&mut transfer))
    }

    fn run(
        &self,
        windows: Option<&[Window]>,
        piece: u64,
        each: &mut dyn FnMut(&Event),
        mut transfer: Option<&mut dyn FnMut(&Transfer)>,
    ) -> Result<Summary, Error> {
        let read = |source| Error::Read { path: self.container.path.clone(), source };
        let file = File::open(&self.container.path).map_err(read)?;
        let (mut streams, jobs, traces) = self.streams(&file, windows, piece)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let ahead = Ahead::new(jobs, traces, &file, &self.container.path, 2 * cores);
        std::thread::scope(|scope| {
            let _stop = Stop(&ahead);
            // This thread decodes too while it would otherwise wait.
            for _ in 0..(cores - 1).min(ahead.jobs.len()) {
                scope.spawn(|| ahead.work(&mut Worker::new(&self.memory)));
            }
            self.merge(&mut streams, &ahead, each, &mut transfer)
        })
    }

    /// Gives out what happened on all cores in order of time.
    fn merge(
        &self,
        streams: &mut [Stream<'_>],
        ahead: &Ahead<'_>,
        each: &mut dyn FnMut(&Event),
        transfer: &mut Option<&mut dyn FnMut(&Transfer)>,
    ) -> Result<Summary, Error> {
        let mut worker = Worker::new(&self.memory);
        let mut stacks = Stacks::new(&self.memory);
        stacks.transfers = transfer.is_some().then(Vec::new);
        let trace_bytes = self.container.queues.iter().map(Queue::len).sum();
        let mut summary = Summary { trace_bytes, ..Summary::default() };
        let mut reached = 0;
        streams.iter_mut().for_each(|stream| stream.settle(&mut stacks, reached));
        let mut dues: Vec<Option<u64>> = streams.iter().map(Stream::due).collect();
        // The core with the earliest event; its events are given out until another core has an earlier one.
        while let Some((first, i)) = earliest(&dues, usize::MAX) {
            let until = earliest(&dues, i).map_or(u64::MAX, |(ns, _)| ns);
            let stream = &mut streams[i];
            let mut due = Some(first);
            while let Some(ns) = due.filter(|ns| *ns <= until) {
                reached = reached.max(ns);
                match (stream.step(), stream.parts.get(stream.next)) {
                    (Some(step), _) if stream.core.not_before(step.ns) <= ns => {
                        reached = stream.steps(until, &mut stacks).max(reached);
                    }
                    (None, Some(Part::Piece(number, from_ns))) if stream.core.not_before(*from_ns) <= ns => {
                        // Damaged trace may hold times before the beginning of its piece.
                        stream.core.hold(reached);
                        (stream.decoded, stream.at) = (ahead.take(*number, &mut worker)?, 0);
                        stream.next += 1;
                        let piece = ahead.jobs[*number].piece;
                        summary.add(piece.to - piece.from, &stream.decoded);
                    }
                    _ => stacks.switch(&mut stream.core, ns),
                }
                if stream.step().is_none() {
                    ahead.give_back(std::mem::take(&mut stream.decoded.steps));
                    stream.settle(&mut stacks, reached);
                }
                due = stream.due();
                // Also of a core that has no others beside it.
                if stacks.events.len() >= MOST_EVENTS {
                    give(&mut stacks, &mut summary, each);
                }
            }
            dues[i] = due;
            give(&mut stacks, &mut summary, each);
            if let (Some(transfer), Some(transfers)) = (transfer.as_mut(), &mut stacks.transfers) {
                transfers.drain(..).for_each(|one| transfer(&one));
            }
        }
        give(&mut stacks, &mut summary, each);
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        summary.functions = names(&self.memory, &stacks.names.places, &mut reader);
        summary.counts = stacks.counts;
        Ok(summary)
    }

    /// A queue's pieces; with windows, whether each is wanted.
    fn pieces(
        &self,
        queue: &Queue,
        file: &File,
        windows: Option<&[Window]>,
        size: u64,
    ) -> Result<Vec<Piece>, std::io::Error> {
        let losses = self.sideband.losses(queue);
        let mut cutter = Cutter::new(queue.len(), size, &losses);
        let Some(windows) = windows else {
            index::find(queue, file, |psb| cutter.add(psb))?;
            return Ok(cutter.finish());
        };
        // Whether a piece is wanted is known once the next one's time is.
        let (mut out, mut last): (Vec<Piece>, Option<Piece>) = (Vec::new(), None);
        let mut put = |piece: Option<Piece>| {
            let to = piece.map_or(u64::MAX, |next| self.clock.ns(next.tsc));
            let Some(mut before) = std::mem::replace(&mut last, piece) else { return };
            let from = self.clock.ns(before.tsc);
            // Those that end behind its beginning, and of them those that begin before its end.
            let ends = windows.partition_point(|w| w.to_ns <= from);
            let begins = windows.partition_point(|w| w.from_ns <= to);
            before.wanted = ends < begins;
            before.until_ns = windows[..begins].last().map(|w| w.to_ns).filter(|last| before.wanted && *last < to);
            index::join(&mut out, before, PIECE);
        };
        index::find(queue, file, |psb| {
            cutter.add(psb);
            cutter.complete().for_each(|piece| put(Some(piece)));
        })?;
        cutter.finish().into_iter().for_each(|piece| put(Some(piece)));
        put(None);
        Ok(out)
    }

    /// The latest counter that can be in the trace, by what perf recorded beside it.
    fn latest_tsc(&self) -> u64 {
        let latest = Some(self.sideband.latest_ns).filter(|ns| *ns > 0);
        latest.map_or(u64::MAX, |ns| self.clock.tsc(ns.saturating_add(BEHIND_RECORDS_NS)))
    }

    /// Each queue's parts, and the pieces of them that are wanted, in order of time.
    fn streams(&self, file: &File, windows: Option<&[Window]>, piece: u64) -> Result<Streams<'_>, Error> {
        let read = |source| Error::Read { path: self.container.path.clone(), source };
        let windows = windows.map(Window::apart);
        // Windows are cut into small pieces, so that little is decoded outside of them.
        let size = if windows.is_some() { 1 } else { piece };
        let indexed: Result<Vec<Vec<Piece>>, std::io::Error> =
            self.container.queues.par_iter().map(|queue| self.pieces(queue, file, windows.as_deref(), size)).collect();
        let (mut out, mut jobs, mut traces): (Vec<Stream<'_>>, Vec<Job>, Vec<_>) = (Vec::new(), Vec::new(), Vec::new());
        for (queue, pieces) in self.container.queues.iter().zip(indexed.map_err(read)?) {
            let switches = queue.cpu.and_then(|cpu| self.sideband.switches.get(&cpu));
            let switches = switches.map(Switches::iter).unwrap_or_default();
            let process = |tid: u32| self.sideband.names.iter().find(|n| n.tid == tid).map_or(tid, |n| n.pid);
            let only = queue.tid.map(|tid| (process(tid), tid));
            let (info, clock, memory) = (&self.sideband.info, self.clock, &self.memory);
            let latest_tsc = self.latest_tsc();
            let setting = Setting { info, clock, latest_tsc, memory, switches, only, by: self.by };
            let mut parts = Vec::new();
            for piece in pieces {
                parts.extend(piece.lost.map(Part::Gap));
                match (piece.to > piece.from, piece.wanted) {
                    (false, _) => {}
                    (true, false) => parts.push(Part::Gap(Gap::NotDecoded)),
                    (true, true) => {
                        let ns = self.clock.ns(piece.tsc);
                        jobs.push(Job { ns, piece, trace: traces.len() as u32, part: parts.len() as u32 });
                        // Its number is known once all are in order.
                        parts.push(Part::Piece(0, ns));
                        parts.extend(piece.until_ns.map(|_| Part::Gap(Gap::NotDecoded)));
                    }
                }
            }
            let shows = self.sideband.info.kernel && self.memory.switch_ip.is_some() && only.is_none();
            let core = Core::new(queue.cpu, only, switches).shows_switches(shows);
            traces.push(Trace { queue, setting });
            let decoded = Decoded::default();
            out.push(Stream { parts, next: 0, decoded, at: 0, core, finished: false });
        }
        // In place: they are many.
        jobs.sort_unstable_by_key(|job| (job.ns, job.trace, job.part));
        for (number, job) in jobs.iter().enumerate() {
            out[job.trace as usize].parts[job.part as usize] = Part::Piece(number, job.ns);
        }
        Ok((out, jobs, traces))
    }
}

/// The earliest of these times and its index, without the one at `but`.
fn earliest(dues: &[Option<u64>], but: usize) -> Option<(u64, usize)> {
    dues.iter().enumerate().filter(|(i, _)| *i != but).filter_map(|(i, due)| Some(((*due)?, i))).min()
}

impl Window {
    /// The same time in windows that do not overlap, in order.
    fn apart(windows: &[Window]) -> Vec<Window> {
        let mut sorted = windows.to_vec();
        sorted.sort_unstable_by_key(|w| w.from_ns);
        let mut out: Vec<Window> = Vec::new();
        for window in sorted {
            match out.last_mut() {
                Some(last) if window.from_ns <= last.to_ns => last.to_ns = last.to_ns.max(window.to_ns),
                _ => out.push(window),
            }
        }
        out
    }
}

impl Summary {
    fn add(&mut self, bytes: u64, of: &Decoded) {
        self.decoded_bytes += bytes;
        self.packets_left_to_libipt += if of.by == By::Ours { 0 } else { bytes };
        self.left_to_libipt += if of.by == By::Libipt { bytes } else { 0 };
        for (tid, n) in &of.instructions {
            *self.instructions.entry(*tid).or_default() += n;
        }
        for (why, n) in &of.errors {
            *self.errors.entry(why).or_default() += n;
        }
    }
}

/// The names of functions: demangled where a file's symbols have them.
pub(crate) fn names(memory: &Memory, places: &[(u32, u64)], reader: &mut Reader) -> Vec<Named> {
    let mut by_module: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, (module, _)) in places.iter().enumerate() {
        by_module.entry(*module).or_default().push(i);
    }
    let mut out = vec![Named::default(); places.len()];
    for (module, places_of) in by_module {
        let Some(about) = memory.modules.get(module as usize) else {
            for i in places_of {
                // Nothing says what this address is.
                out[i] = Named { function: format!("[unknown {:#x}]", places[i].1), ..Named::default() };
            }
            continue;
        };
        let offsets: Vec<u64> = places_of.iter().map(|&i| places[i].1).collect();
        let read_names = match &about.path {
            Some(path) if !about.kernel => read(reader, module, path, offsets),
            _ => vec![],
        };
        let by_place = read_names.into_iter().chain(std::iter::repeat(vec![]));
        for (&i, frames) in places_of.iter().zip(by_place) {
            let place = places[i].1;
            let full = frames.last().map(|frame| frame.function.clone()).filter(|name| !name.is_empty());
            let own = || about.symbols.at(place).map(|f| f.name.clone());
            let short = about.name.rsplit('/').next().unwrap_or(&about.name);
            // A kernel address is not shown: it would tell every reader of the run where the kernel lies in memory.
            let address = || match about.kernel {
                true => "[kernel, no symbol]".to_owned(),
                false => format!("{short}+{place:#x}"),
            };
            let function = full.or_else(own).unwrap_or_else(address);
            out[i] = Named { function, module: about.name.clone(), kernel: about.kernel };
        }
    }
    out
}

/// The frames of places in a file, read without rights; none when it cannot be read.
fn read(reader: &mut Reader, number: u32, path: &Path, offsets: Vec<u64>) -> Vec<Vec<FrameRow>> {
    let Ok((file, _)) = open_regular(path, Links::Follow, MOST_FILE_BYTES) else { return vec![] };
    reader.give(number, file, None, About::default());
    reader.names(number, PlacesInFile::Offsets(offsets)).map(|(_, frames)| frames).unwrap_or_default()
}

pub(crate) fn give(stacks: &mut Stacks<'_>, summary: &mut Summary, each: &mut dyn FnMut(&Event)) {
    for event in stacks.events.drain(..) {
        if event.ns == 0 {
            // The thread that had the core before the recording began.
            each(&event);
            continue;
        }
        let (first, last) = summary.span_ns.unwrap_or((event.ns, event.ns));
        summary.span_ns = Some((first.min(event.ns), last.max(event.ns)));
        each(&event);
    }
}
