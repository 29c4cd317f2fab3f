//! A recording as a whole: every core's trace, decoded at once and given out in order of time.
//!
//! In: a perf.data file, where its programs are, and the windows of time that matter. Out: [`Event`]s through a callback, then the
//! names of the functions and a [`Summary`]. Each core has a piece or two in memory at a time, whatever the size of the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use rayon::prelude::*;
use tailsight_symbolise::resolve::Resolve;

use crate::Error;
use crate::container::{Container, Queue};
use crate::decode::{self, Decoded, Gap, Setting, Step};
use crate::index::{self, PIECE, Piece};
use crate::memory::{Memory, Places};
use crate::sideband::{Sideband, Switch, TscClock};
use crate::stacks::{Core, Counts, Event, Stacks, Transfer};

/// An interval of perf's time, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First.
    pub from_ns: u64,
    /// Behind the last.
    pub to_ns: u64,
}

/// An opened recording.
#[derive(Debug)]
pub struct Recording {
    /// The file.
    pub container: Container,
    /// What perf recorded beside the trace.
    pub sideband: Sideband,
    /// What code ran.
    pub memory: Memory,
    /// perf's clock.
    pub clock: TscClock,
}

/// A function by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its name; module and offset where it has none.
    pub function: String,
    /// The file that it is in.
    pub module: String,
    /// Whether it is the kernel's.
    pub kernel: bool,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What was counted.
    pub counts: Counts,
    /// Functions, by their numbers.
    pub functions: Vec<Named>,
    /// Instructions by thread.
    pub instructions: BTreeMap<u32, u64>,
    /// What the decoder said where it lost its way, and how often.
    pub errors: BTreeMap<&'static str, u64>,
    /// Bytes of trace in the file.
    pub trace_bytes: u64,
    /// Bytes that were decoded.
    pub decoded_bytes: u64,
    /// First and last time, ns.
    pub span_ns: Option<(u64, u64)>,
}

/// A core's trace on its way.
struct Stream<'a> {
    queue: &'a Queue,
    switches: &'a [Switch],
    only: Option<(u32, u32)>,
    pieces: Vec<(Piece, bool)>,
    next: usize,
    decoded: Option<Decoded>,
    /// The next step of it.
    at: usize,
    core: Core,
    gap: Option<Gap>,
    finished: bool,
}

impl Stream<'_> {
    /// Nothing more comes on it.
    fn is_over(&self) -> bool {
        self.next >= self.pieces.len() && self.step().is_none() && self.core.next_switch(self.switches).is_none()
    }

    fn step(&self) -> Option<Step> {
        self.decoded.as_ref()?.steps.get(self.at).copied()
    }

    /// When the next thing happens on it: a step or a switch. `None`: more must be decoded first, or it is over.
    fn next_ns(&self, clock: TscClock) -> Option<u64> {
        let step = self.step().map(|step| clock.ns(step.tsc));
        if step.is_none() && self.next < self.pieces.len() {
            return None;
        }
        let switch = self.core.next_switch(self.switches);
        let next = step.into_iter().chain(switch).min()?;
        Some(self.core.not_before(next))
    }
}

impl Recording {
    /// Opens a perf.data file or the directory of `perf record --kcore`, and the programs that it names.
    ///
    /// # Errors
    /// Every [`Error`].
    pub fn open(path: &Path, places: &Places) -> Result<Recording, Error> {
        let container = Container::open(path)?;
        let sideband = Sideband::of(&container)?;
        let clock = sideband.clock(&container)?;
        let mut places = places.clone();
        if let Some(dir) = &container.kcore_dir {
            let existing = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
            places.kernel = places.kernel.or_else(|| existing("kcore"));
            places.kallsyms = places.kallsyms.or_else(|| existing("kallsyms"));
        }
        let memory = Memory::of(&sideband, &places)?;
        Ok(Recording { container, sideband, memory, clock })
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
        let mut streams = self.streams(&file, windows, piece)?;
        let mut stacks = Stacks::new(&self.memory);
        stacks.transfers = transfer.is_some().then(Vec::new);
        let mut summary = Summary::default();
        loop {
            self.fill(&file, &mut streams, &mut summary)?;
            for stream in &mut streams {
                // A gap begins, and what is open ends, at its core's last event: now, before later ones of other cores. Also where
                // the last pieces of a core hold nothing, or are not wanted.
                if let Some(why) = stream.gap.take() {
                    stacks.gap(&mut stream.core, 0, why);
                }
                if stream.is_over() && !stream.finished {
                    stacks.finish(&mut stream.core, stream.switches);
                    stream.finished = true;
                }
            }
            // The core where something happens the earliest; it goes on until another one's turn is, or until it needs more.
            let next = (0..streams.len()).filter_map(|i| Some((streams[i].next_ns(self.clock)?, i))).min();
            let Some((_, i)) = next else { break };
            let others = (0..streams.len()).filter(|&o| o != i).filter_map(|o| streams[o].next_ns(self.clock)).min();
            let until = others.unwrap_or(u64::MAX);
            let stream = &mut streams[i];
            while let Some(ns) = stream.next_ns(self.clock).filter(|ns| *ns <= until) {
                let due = |step: &Step| stream.core.not_before(self.clock.ns(step.tsc)) <= ns;
                let Some(step) = stream.step().filter(due) else {
                    stacks.switch(&mut stream.core, stream.switches, ns);
                    continue;
                };
                stacks.step(&mut stream.core, stream.switches, ns, &step);
                stream.at += 1;
            }
            give(&mut stacks, &mut summary, each);
            if let (Some(transfer), Some(of)) = (&mut transfer, &mut stacks.transfers) {
                of.drain(..).for_each(|one| transfer(&one));
            }
        }
        give(&mut stacks, &mut summary, each);
        summary.functions = names(&self.memory, &stacks.names.places);
        summary.counts = stacks.counts;
        Ok(summary)
    }

    /// Each queue's pieces, and which of them are wanted.
    fn streams(&self, file: &File, windows: Option<&[Window]>, piece: u64) -> Result<Vec<Stream<'_>>, Error> {
        let read = |source| Error::Read { path: self.container.path.clone(), source };
        // Windows are cut finely, so that little is decoded in vain.
        let size = if windows.is_some() { 1 } else { piece };
        let indexed: Result<Vec<_>, _> = self
            .container
            .queues
            .par_iter()
            .map(|queue| index::find(queue, file).map(|psbs| index::pieces(&psbs, queue.len(), size)))
            .collect();
        let none: &[Switch] = &[];
        let mut out = Vec::new();
        for (queue, pieces) in self.container.queues.iter().zip(indexed.map_err(read)?) {
            let wanted = |i: usize| {
                let from = self.clock.ns(pieces[i].tsc);
                let to = pieces.get(i + 1).map_or(u64::MAX, |next| self.clock.ns(next.tsc));
                windows.is_none_or(|all| all.iter().any(|w| w.from_ns <= to && from < w.to_ns))
            };
            let pieces = (0..pieces.len()).map(|i| (pieces[i], wanted(i))).collect();
            let switches = queue.cpu.and_then(|cpu| self.sideband.switches.get(&cpu)).map_or(none, Vec::as_slice);
            let process = |tid: u32| self.sideband.names.iter().find(|n| n.tid == tid).map_or(tid, |n| n.pid);
            let only = queue.tid.map(|tid| (process(tid), tid));
            let shows = self.sideband.info.kernel && self.memory.switch_ip.is_some() && only.is_none();
            let core = Core::new(queue.cpu, only).shows_switches(shows);
            out.push(Stream {
                queue,
                switches,
                only,
                pieces,
                next: 0,
                decoded: None,
                at: 0,
                core,
                gap: None,
                finished: false,
            });
        }
        Ok(out)
    }

    /// Decodes the next piece of each core that has none, all of them at once.
    fn fill(&self, file: &File, streams: &mut [Stream<'_>], summary: &mut Summary) -> Result<(), Error> {
        let fill = |stream: &mut Stream<'_>| -> Result<u64, Error> {
            if stream.decoded.as_ref().is_some_and(|d| stream.at < d.steps.len()) {
                return Ok(0);
            }
            stream.decoded = None;
            let mut bytes_decoded = 0;
            while let Some(&(piece, wanted)) = stream.pieces.get(stream.next) {
                stream.next += 1;
                if !wanted {
                    stream.gap = Some(Gap::NotDecoded);
                    continue;
                }
                let len = piece.to - piece.from;
                let take = usize::try_from(len).unwrap_or(usize::MAX);
                let read = |source| Error::Read { path: self.container.path.clone(), source };
                let bytes = stream.queue.read(file, piece.from, take).map_err(read)?;
                let (info, clock, memory) = (&self.sideband.info, self.clock, &self.memory);
                let setting = Setting { info, clock, memory, switches: stream.switches, only: stream.only };
                let decoded = decode::piece(setting, bytes, piece.border)?;
                bytes_decoded += len;
                let empty = decoded.steps.is_empty();
                (stream.decoded, stream.at) = (Some(decoded), 0);
                if !empty {
                    break;
                }
            }
            Ok(bytes_decoded)
        };
        let filled: Vec<Result<u64, Error>> = streams.par_iter_mut().map(fill).collect();
        for (stream, bytes) in streams.iter().zip(filled) {
            let bytes = bytes?;
            summary.decoded_bytes += bytes;
            if let Some(decoded) = stream.decoded.as_ref().filter(|_| bytes > 0) {
                for (tid, n) in &decoded.instructions {
                    *summary.instructions.entry(*tid).or_default() += n;
                }
                for (why, n) in &decoded.errors {
                    *summary.errors.entry(why).or_default() += n;
                }
            }
        }
        summary.trace_bytes = streams.iter().map(|s| s.queue.len()).sum();
        Ok(())
    }
}

/// The names of functions: demangled where a file's symbols have them.
pub(crate) fn names(memory: &Memory, places: &[(u32, u64)]) -> Vec<Named> {
    let resolve = Resolve::default();
    let mut by_module: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, (module, _)) in places.iter().enumerate() {
        by_module.entry(*module).or_default().push(i);
    }
    let mut out = vec![Named::default(); places.len()];
    for (module, of) in by_module {
        let Some(about) = memory.modules.get(module as usize) else {
            for i in of {
                // Nothing says what this address is.
                out[i] = Named { function: format!("[unknown {:#x}]", places[i].1), ..Named::default() };
            }
            continue;
        };
        let offsets: Vec<u64> = of.iter().map(|&i| places[i].1).collect();
        let found = match &about.path {
            Some(path) if !about.kernel => resolve.file(path, &offsets),
            _ => vec![Vec::new(); offsets.len()],
        };
        for (&i, frames) in of.iter().zip(found) {
            let place = places[i].1;
            let full = frames.last().map(|frame| frame.function.clone()).filter(|name| !name.is_empty());
            let own = || about.symbols.at(place).map(|f| f.name.clone());
            let short = about.name.rsplit('/').next().unwrap_or(&about.name);
            // An address of the kernel is not for everybody's eyes.
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

pub(crate) fn give(stacks: &mut Stacks<'_>, summary: &mut Summary, each: &mut dyn FnMut(&Event)) {
    for event in stacks.events.drain(..) {
        if event.ns == 0 {
            // Who had the core before the recording began.
            each(&event);
            continue;
        }
        let (first, last) = summary.span_ns.unwrap_or((event.ns, event.ns));
        summary.span_ns = Some((first.min(event.ns), last.max(event.ns)));
        each(&event);
    }
}
