//! The container: a perf.data file, taken apart without its trace.
//!
//! In: a file as `perf record` writes it, also through a pipe, or the directory of `perf record --kcore`. Out: the records in
//! order of time ([`linux_perf_data`] parses them), and where in the file each core's trace lies. Trace may be many gigabytes: it
//! stays in the file and is read in pieces ([`Queue::read`]). Records of context switches are nearly as many: they are read where they lie
//! ([`moves`](crate::moves)), and the others only are held.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use linux_perf_data::{PerfFile, PerfFileReader, PerfFileRecord};

use crate::Error;
use crate::moves::Records;

/// `PERF_RECORD_AUXTRACE`: a header, then trace.
const AUXTRACE: u32 = 71;
/// `PERF_RECORD_HEADER_ATTR`: the record that holds the attribute of an event in a file written to a pipe.
const HEADER_ATTR: u32 = 64;
/// `PERF_RECORD_HEADER_TRACING_DATA`: in a file written to a pipe, its data follows the record.
const TRACING_DATA: u32 = 66;
/// Bytes of an AUXTRACE record without its trace.
const AUXTRACE_HEADER: u64 = 48;
/// Features of the header that are kept: build ids, the kernel's release, the architecture, the processor's name and model.
const FEATURES: [u64; 5] = [2, 4, 6, 8, 9];
/// `PERF_RECORD_HEADER_FEATURE`: the record that holds a feature in a file written to a pipe.
const HEADER_FEATURE: u32 = 80;
/// Most bytes of a feature; a larger one is invalid.
const MOST_FEATURE: u64 = 64 << 20;
/// Most bytes of records besides the trace; with more the file counts as damaged.
const MOST_SIDEBAND: u64 = 4 << 30;

/// A section of trace in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it begins in the trace of its queue as the kernel counts it, bytes.
    pub aux_offset: u64,
    /// Bytes of the sections before it.
    pub before: u64,
    /// Where it begins in the file.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
}

/// The trace of one core, or of one thread where perf recorded by thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The core; `None` where perf recorded by thread.
    pub cpu: Option<u32>,
    /// The thread, where perf recorded by thread.
    pub tid: Option<u32>,
    /// Its sections, in order.
    pub chunks: Vec<Chunk>,
}

impl Queue {
    /// Bytes of trace.
    pub fn len(&self) -> u64 {
        self.chunks.last().map_or(0, |last| last.before + last.len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Converts a position as the kernel counts it (`aux_offset`) to one counted over all sections.
    pub fn place(&self, aux_offset: u64) -> Option<u64> {
        self.chunks.iter().find_map(|chunk| {
            let within = aux_offset.checked_sub(chunk.aux_offset)?;
            (within <= chunk.len).then_some(chunk.before + within)
        })
    }

    /// Reads `len` bytes from `from` on, counted over all sections, into `out`, in place of what is in it; fewer at the end.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(&self, file: &File, from: u64, len: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
        let left = self.len().saturating_sub(from);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(len);
        // Not cleared before: what is read over need not be zeros.
        out.resize(len, 0);
        let first = self.chunks.partition_point(|chunk| chunk.before + chunk.len <= from);
        let mut rest = &mut out[..];
        for chunk in &self.chunks[first..] {
            let within = (from + (len - rest.len()) as u64) - chunk.before;
            let n = usize::try_from(chunk.len - within).unwrap_or(usize::MAX).min(rest.len());
            let (now, behind) = rest.split_at_mut(n);
            file.read_exact_at(now, chunk.at + within)?;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// A perf.data file without its trace.
pub struct Container {
    /// The file that holds the trace.
    pub path: PathBuf,
    /// `kcore_dir` beside it, where perf was told to copy the kernel's text.
    pub kcore_dir: Option<PathBuf>,
    /// The trace, by core.
    pub queues: Vec<Queue>,
    /// Which task had each core.
    pub(crate) moves: Records,
    /// Everything else, as a perf.data file of its own.
    sideband: Vec<u8>,
    pipe: bool,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container").field("path", &self.path).field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl Container {
    /// Opens a perf.data file or the directory of `perf record --kcore`.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Foreign`], [`Error::Damaged`].
    pub fn open(path: &Path) -> Result<Container, Error> {
        let is_dir = path.is_dir();
        let file_path = if is_dir { path.join("data") } else { path.to_owned() };
        let kcore_dir = Some(path.join("kcore_dir")).filter(|dir| is_dir && dir.is_dir());
        let file = File::open(&file_path).map_err(|source| Error::Read { path: file_path.clone(), source })?;
        let length = file.metadata().map_err(|source| Error::Read { path: file_path.clone(), source })?.len();
        // Small, since what was read ahead is dropped at each section of trace.
        let parts = take_apart(&mut BufReader::with_capacity(1 << 14, file), length, &file_path)?;
        Ok(parts.container(file_path, kcore_dir))
    }

    /// Parses the bytes of a file as [`Container::open`] does a file.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::Damaged`].
    pub fn of_bytes(bytes: &[u8]) -> Result<Container, Error> {
        let path = PathBuf::from("(bytes)");
        let parts = take_apart(&mut Cursor::new(bytes), bytes.len() as u64, &path)?;
        Ok(parts.container(path, None))
    }

    /// As [`Container::of_bytes`], all records by the parser, which sorts them.
    #[cfg(test)]
    pub(crate) fn of_bytes_by_parser(bytes: &[u8]) -> Result<Container, Error> {
        let path = PathBuf::from("(bytes)");
        let parts = take(&mut Cursor::new(bytes), bytes.len() as u64, &path, false)?;
        Ok(parts.container(path, None))
    }

    /// The records were read: they take no memory from here on.
    pub(crate) fn forget_records(&mut self) {
        self.sideband = Vec::new();
    }

    /// Gives the records in order of time to `each`, without those of context switches that were read already, then the file's header.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn records(&self, mut each: impl FnMut(&PerfFileRecord<'_>)) -> Result<PerfFile, Error> {
        let fail = |e: linux_perf_data::Error| Error::Damaged { path: self.path.clone(), at: 0, why: e.to_string() };
        let cursor = Cursor::new(&self.sideband[..]);
        let reader = if self.pipe { PerfFileReader::parse_pipe(cursor) } else { PerfFileReader::parse_file(cursor) };
        let PerfFileReader { mut perf_file, mut record_iter } = reader.map_err(fail)?;
        while let Some(record) = record_iter.next_record(&mut perf_file).map_err(fail)? {
            each(&record);
        }
        Ok(perf_file)
    }
}

/// A reader that tracks its position.
struct Walk<'a, R> {
    reader: &'a mut R,
    at: u64,
    path: &'a Path,
}

impl<R: BufRead + Seek> Walk<'_, R> {
    fn take(&mut self, n: u64, into: &mut Vec<u8>) -> Result<(), Error> {
        if into.len() as u64 + n > MOST_SIDEBAND {
            return Err(self.damaged("more than 4 GiB of records besides the trace"));
        }
        let before = into.len();
        let taken = self.reader.by_ref().take(n).read_to_end(into).unwrap_or(0) as u64;
        self.at += taken;
        if taken < n {
            into.truncate(before);
            return Err(self.damaged("it ends in the middle of a record"));
        }
        Ok(())
    }

    /// What was read ahead.
    fn ahead(&mut self) -> &[u8] {
        self.reader.fill_buf().unwrap_or_default()
    }

    /// Goes over so many bytes of what was read ahead.
    fn pass(&mut self, n: usize) {
        self.reader.consume(n);
        self.at += n as u64;
    }

    fn skip(&mut self, n: u64, length: u64) -> Result<(), Error> {
        let to = self.at.checked_add(n).filter(|&to| to <= length);
        let to = to.ok_or_else(|| self.damaged("a record says that its trace goes on past the end of the file"))?;
        self.reader.seek(SeekFrom::Start(to)).map_err(|_| self.damaged("it cannot be read there"))?;
        self.at = to;
        Ok(())
    }

    fn damaged(&self, why: &str) -> Error {
        Error::Damaged { path: self.path.into(), at: self.at, why: why.into() }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| b.iter().rev().fold(0, |n, &x| n << 8 | u64::from(x)))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| b.iter().rev().fold(0, |n, &x| n << 8 | u32::from(x)))
}

/// What a file is taken apart into.
#[derive(Default)]
struct Parts {
    queues: Vec<Queue>,
    moves: Records,
    /// Whether records of context switches are read apart from the others.
    apart: bool,
    sideband: Vec<u8>,
    pipe: bool,
}

impl Parts {
    fn container(self, path: PathBuf, kcore_dir: Option<PathBuf>) -> Container {
        let Parts { queues, moves, sideband, pipe, .. } = self;
        Container { path, kcore_dir, queues, moves, sideband, pipe }
    }
}

fn take_apart<R: BufRead + Seek>(reader: &mut R, length: u64, path: &Path) -> Result<Parts, Error> {
    let parts = take(reader, length, path, true)?;
    if parts.moves.are_in_order() {
        return Ok(parts);
    }
    // The parser of the others sorts them.
    reader.seek(SeekFrom::Start(0)).map_err(|source| Error::Read { path: path.into(), source })?;
    take(reader, length, path, false)
}

fn take<R: BufRead + Seek>(reader: &mut R, length: u64, path: &Path, apart: bool) -> Result<Parts, Error> {
    let mut walk = Walk { reader, at: 0, path };
    let foreign = |why: &str| Error::Foreign { path: path.into(), why: why.into() };
    let mut out = Vec::new();
    walk.take(16, &mut out).map_err(|_| foreign("it is shorter than a header"))?;
    match &out[..8] {
        b"PERFILE2" => {}
        b"2ELIFREP" => return Err(foreign("it was written on a big-endian machine")),
        _ => return Err(foreign("it does not begin with PERFILE2")),
    }
    let pipe = match u64_at(&out, 8) {
        16 => true,
        104 => false,
        n => {
            return Err(foreign(&format!(
                "its header has {n} bytes; 104 were expected, or 16 for a file written to a pipe"
            )));
        }
    };
    let mut parts = Parts { apart, sideband: out, pipe, ..Parts::default() };
    if pipe {
        records(&mut walk, &mut parts, length, length)?;
        return Ok(parts);
    }
    walk.take(88, &mut parts.sideband)?;
    let (data, size) = (u64_at(&parts.sideband, 40), u64_at(&parts.sideband, 48));
    let end = data.checked_add(size).filter(|&end| data >= 104 && end <= length);
    let end = end.ok_or_else(|| walk.damaged("its header says that the records go on past the end of the file"))?;
    if size == 0 {
        return Err(walk.damaged("perf did not finish it: the size of its records is 0"));
    }
    walk.take(data - 104, &mut parts.sideband)?;
    attributes(&walk, &mut parts, data)?;
    records(&mut walk, &mut parts, end, length)?;
    let out = &mut parts.sideband;
    let compact = out.len() as u64 - data;
    out[48..56].copy_from_slice(&compact.to_le_bytes());
    // The section of event type names, which only old versions of perf wrote, is left out.
    out[56..72].fill(0);
    features(&mut walk, out, length)?;
    Ok(parts)
}

/// The attributes must lie before the records, and their number must be plausible: the parser does not check it.
fn attributes<R: BufRead + Seek>(walk: &Walk<'_, R>, parts: &mut Parts, data: u64) -> Result<(), Error> {
    let header = &parts.sideband;
    let (each, at, size) = (u64_at(header, 16), u64_at(header, 24), u64_at(header, 32));
    let inside = |at: u64, size: u64| at.checked_add(size).is_some_and(|end| end <= data);
    if size > 0 && (!(80..=4096).contains(&each) || !inside(at, size) || at < 104) {
        return Err(walk.damaged("its attributes are not where its header says"));
    }
    for i in 0..size / each.max(1) {
        let ids = (at + (i + 1) * each - 16) as usize;
        if !inside(u64_at(header, ids), u64_at(header, ids + 8)) {
            return Err(walk.damaged("the ids of an attribute are not where it says"));
        }
        parts.moves.attribute(&header[(at + i * each) as usize..(at + (i + 1) * each) as usize]);
    }
    Ok(())
}

/// Copies those of the header's features that are used here, and writes a new table of where they are.
fn features<R: BufRead + Seek>(walk: &mut Walk<'_, R>, out: &mut Vec<u8>, length: u64) -> Result<(), Error> {
    let bits: Vec<u64> = (0..256).filter(|&bit| out[72 + bit as usize / 8] & 1 << (bit % 8) != 0).collect();
    let mut table = Vec::new();
    walk.take(bits.len() as u64 * 16, &mut table)?;
    let kept = |bit: u64| FEATURES.contains(&bit);
    let n = bits.iter().filter(|&&bit| kept(bit)).count();
    out[72..104].fill(0);
    let mut places = out.len();
    out.resize(places + 16 * n, 0);
    for (i, bit) in bits.into_iter().enumerate().filter(|(_, bit)| kept(*bit)) {
        let (at, size) = (u64_at(&table, 16 * i), u64_at(&table, 16 * i + 8));
        let to = out.len() as u64;
        if size > MOST_FEATURE || at > length {
            return Err(walk.damaged("a part of its header is not where it says"));
        }
        walk.at = 0;
        walk.skip(at, length)?;
        walk.take(size, out)?;
        out[72 + bit as usize / 8] |= 1 << (bit % 8);
        out[places..places + 8].copy_from_slice(&to.to_le_bytes());
        out[places + 8..places + 16].copy_from_slice(&size.to_le_bytes());
        places += 16;
    }
    Ok(())
}

/// Copies the records up to `end`, without the trace and those of context switches.
fn records<R: BufRead + Seek>(walk: &mut Walk<'_, R>, parts: &mut Parts, end: u64, length: u64) -> Result<(), Error> {
    let Parts { queues, moves, apart, sideband: out, .. } = parts;
    while walk.at < end {
        // Most are records of context switches.
        if *apart && let Some(size) = moves.take(walk.ahead()) {
            walk.pass(size);
            continue;
        }
        let at = out.len();
        walk.take(8, out)?;
        let (kind, size) = (u32_at(out, at), u64::from(u32_at(out, at + 4) >> 16));
        if size < 8 {
            return Err(walk.damaged("a record is shorter than its header"));
        }
        walk.take(size - 8, out)?;
        match kind {
            AUXTRACE if size >= AUXTRACE_HEADER => {
                let word = |i: usize| u64_at(out, at + 8 + 8 * i);
                let (len, aux_offset) = (word(0), word(1));
                let (tid, cpu) = (u32_at(out, at + 36), u32_at(out, at + 40));
                let begins = walk.at;
                walk.skip(len, length)?;
                let queue = queue(queues, cpu, tid);
                queue.chunks.push(Chunk { aux_offset, before: queue.len(), at: begins, len });
                // Left out: the trace.
                out.truncate(at);
            }
            AUXTRACE => return Err(walk.damaged("an AUXTRACE record is too short")),
            TRACING_DATA => {
                let len = u64::from(u32_at(out, at + 8));
                walk.skip(len.next_multiple_of(8), length)?;
                out.truncate(at);
            }
            HEADER_FEATURE if !FEATURES.contains(&u64_at(out, at + 8)) => out.truncate(at),
            HEADER_ATTR => moves.attribute(&out[at + 8..]),
            // One that was not wholly read ahead.
            _ if *apart && moves.take(&out[at..]).is_some() => out.truncate(at),
            _ => {}
        }
    }
    if walk.at != end {
        return Err(walk.damaged("a record goes on past the end of the records"));
    }
    Ok(())
}

/// The queue of a core, or of a thread where perf recorded by thread.
fn queue(queues: &mut Vec<Queue>, cpu: u32, tid: u32) -> &mut Queue {
    let id = |n: u32| (n != u32::MAX).then_some(n);
    let (cpu, tid) = (id(cpu), if cpu == u32::MAX { id(tid) } else { None });
    let place = queues.iter().position(|q| q.cpu == cpu && q.tid == tid).unwrap_or_else(|| {
        queues.push(Queue { cpu, tid, chunks: Vec::new() });
        queues.len() - 1
    });
    &mut queues[place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with nothing but two sections of trace of core 3, and one of core 1.
    fn image() -> Vec<u8> {
        let mut records = Vec::new();
        for (cpu, offset, trace) in [(3u32, 0u64, [1u8; 16]), (1, 0, [2; 16]), (3, 16, [3; 16])] {
            records.extend(AUXTRACE.to_le_bytes());
            records.extend([0, 0, 48, 0]);
            for word in [16, offset, 0] {
                records.extend(word.to_le_bytes());
            }
            for half in [0, u32::MAX, cpu, 0] {
                records.extend(half.to_le_bytes());
            }
            records.extend(trace);
        }
        let mut out = b"PERFILE2".to_vec();
        for word in [104, 128, 104, 0, 104, records.len() as u64, 0, 0, 0, 0, 0, 0] {
            out.extend(word.to_le_bytes());
        }
        out.extend(records);
        out
    }

    #[test]
    fn trace_stays_in_the_file_and_is_read_across_stretches() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf.data");
        std::fs::write(&path, image()).unwrap();
        let container = Container::open(&path).unwrap();
        assert_eq!(
            container.queues.iter().map(|q| (q.cpu, q.len())).collect::<Vec<_>>(),
            [(Some(3), 32), (Some(1), 16)]
        );
        let file = File::open(&path).unwrap();
        let read = |from, len| {
            let mut out = vec![9; 3];
            container.queues[0].read(&file, from, len, &mut out).unwrap();
            out
        };
        assert_eq!(read(14, 4), [1, 1, 3, 3]);
        assert_eq!(read(16, 2), [3, 3]);
        assert_eq!(read(30, 100), [3, 3]);
        assert!(read(32, 1).is_empty() && read(100, 1).is_empty());
        assert!(container.sideband.len() < 200, "the trace is not kept in memory");
    }

    #[test]
    fn foreign_and_cut_files_say_what_and_where() {
        let error = |bytes: &[u8]| Container::of_bytes(bytes).unwrap_err().to_string();
        assert!(error(b"ELF").contains("shorter than a header"));
        assert!(error(&[7; 200]).contains("PERFILE2"));
        let whole = image();
        assert!(error(&whole[..whole.len() - 8]).contains("records go on past the end of the file"));
        let mut other = whole.clone();
        other[..8].copy_from_slice(b"2ELIFREP");
        assert!(error(&other).contains("big-endian"));
        let mut unfinished = whole.clone();
        unfinished[48..56].fill(0);
        assert!(error(&unfinished).contains("did not finish"));
        let mut long = whole;
        long[104 + 8..104 + 16].copy_from_slice(&(1u64 << 60).to_le_bytes());
        assert!(error(&long).contains("past the end of the file"));
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(
            cut in 0usize..400,
            edits in proptest::collection::vec((0usize..400, any::<u8>()), 0..8),
        ) {
            let mut bytes = image();
            for (at, value) in edits {
                if let Some(b) = bytes.get_mut(at) {
                    *b = value;
                }
            }
            bytes.truncate(cut);
            if let Ok(container) = Container::of_bytes(&bytes) {
                let _ = container.records(|_| {});
            }
        }
    }
}
