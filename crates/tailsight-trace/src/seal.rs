//! What was written, so that a reader can tell it from what is there: a checksum of each part of a file as it is written, and the
//! files of the run with their sizes and digests at its end.
//!
//! `checksums` is a text file with a line for each part, written before the part is: `FILE FROM TO CRC32`. A stream has a line for
//! each of its batches, a table one for each time that it was written as a whole. `run.json` lists every file with its bytes and
//! SHA-256 (`checksums` among them), and holds a digest of itself. They find damage and mix-ups, not forgery: who can write the
//! run can write these, too.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ring::digest::{Context, SHA256};

use crate::folder::Folder;
use crate::meta::{self, RunMeta, State};

/// The file with the checksums.
pub(crate) const LOG: &str = "checksums";
/// What is said of bytes that are not those that were written.
pub(crate) const CHANGED: &str = "changed after it was written";
/// The first version of the format with checksums.
pub(crate) const SINCE: u32 = 2;
/// A longer log than of a recording of days is none.
const MAX_LOG: u64 = 64 << 20;
const DIGEST_KEY: &str = "\"digest\": \"";
const HEX: usize = 64;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Checksums while a run is written.
pub(crate) struct Sealer {
    log: File,
    log_bytes: u64,
    log_digest: Context,
    files: BTreeMap<String, meta::RunFile>,
}

impl Sealer {
    /// Begins the log.
    pub fn begin(folder: &Folder) -> io::Result<Sealer> {
        let log = folder.create(LOG)?;
        Ok(Sealer { log, log_bytes: 0, log_digest: Context::new(&SHA256), files: BTreeMap::new() })
    }

    /// Goes on with the log of a run that is whole. `files`: what the run lists.
    pub fn resume(folder: &Folder, files: &[meta::RunFile]) -> io::Result<Sealer> {
        let text = read_log(&folder.path().join(LOG))?;
        // A new file in its place, so that the old one is there until this one is as long.
        let temporary = format!("{LOG}.tmp");
        let mut log = folder.create(&temporary)?;
        log.write_all(text.as_bytes())?;
        folder.rename(&temporary, LOG)?;
        let mut log_digest = Context::new(&SHA256);
        log_digest.update(text.as_bytes());
        let files = files.iter().map(|file| (file.name.clone(), file.clone())).collect();
        Ok(Sealer { log, log_bytes: text.len() as u64, log_digest, files })
    }

    /// Says what is going to be written at `from` of a file.
    pub fn part(&mut self, name: &str, from: u64, bytes: &[u8]) -> io::Result<()> {
        let line = format!("{name} {from} {} {:08x}\n", from + bytes.len() as u64, crc32fast::hash(bytes));
        if let Err(e) = self.log.write_all(line.as_bytes()) {
            // Not half a line before the next one.
            let _ = self.log.set_len(self.log_bytes).and_then(|()| self.log.seek(SeekFrom::Start(self.log_bytes)));
            return Err(e);
        }
        self.log_bytes += line.len() as u64;
        self.log_digest.update(line.as_bytes());
        Ok(())
    }

    /// A file as it is now.
    pub fn file(&mut self, name: &str, bytes: u64, digest: &Context) {
        let sha256 = hex(digest.clone().finish().as_ref());
        self.files.insert(name.into(), meta::RunFile { name: name.into(), bytes, sha256 });
    }

    /// Every file so far, and the log.
    pub fn files(&mut self) -> Vec<meta::RunFile> {
        let (bytes, digest) = (self.log_bytes, self.log_digest.clone());
        self.file(LOG, bytes, &digest);
        self.files.values().cloned().collect()
    }
}

/// A file that is written in parts, each with its checksum before it. What is written waits for the flush, which makes it a part.
pub(crate) struct SealedFile {
    name: String,
    file: File,
    part: Vec<u8>,
    /// Bytes and digest of what was flushed.
    pub bytes: u64,
    pub digest: Context,
    sealer: std::sync::Arc<std::sync::Mutex<Sealer>>,
}

impl SealedFile {
    /// A file that is empty so far. `name`: from the run's folder.
    pub fn new(name: &str, file: File, sealer: &std::sync::Arc<std::sync::Mutex<Sealer>>) -> SealedFile {
        let sealer = std::sync::Arc::clone(sealer);
        SealedFile { name: name.into(), file, part: Vec::new(), bytes: 0, digest: Context::new(&SHA256), sealer }
    }

    /// Cuts off what did not get out whole, and forgets it.
    pub fn cut(&mut self) {
        self.part.clear();
        let _ = self.file.set_len(self.bytes);
    }
}

impl Write for SealedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.part.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let mut sealer = self.sealer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sealer.part(&self.name, self.bytes, &self.part)?;
        self.file.write_all(&self.part)?;
        self.digest.update(&self.part);
        self.bytes += self.part.len() as u64;
        self.part.clear();
        sealer.file(&self.name, self.bytes, &self.digest);
        Ok(())
    }
}

/// run.json as text, with its own digest.
pub(crate) fn sealed_json(meta: &RunMeta) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(&RunMeta { digest: String::new(), ..meta.clone() })? + "\n";
    let at = text.rfind(DIGEST_KEY).map_or(text.len(), |at| at + DIGEST_KEY.len());
    Ok(format!("{}{}{}", &text[..at], sha256(text.as_bytes()), &text[at..]))
}

/// Whether run.json is as it was written.
fn json_is_whole(text: &str) -> bool {
    let Some(at) = text.rfind(DIGEST_KEY).map(|at| at + DIGEST_KEY.len()) else { return false };
    let Some(said) = text.get(at..at + HEX) else { return false };
    sha256([&text.as_bytes()[..at], &text.as_bytes()[at + HEX..]].concat().as_slice()) == said
}

fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

/// What a run says of its files.
#[derive(Debug, Default)]
pub(crate) struct Seals {
    /// The run is older than checksums: nothing is known.
    old: bool,
    /// The files of a recording that ended.
    listed: Option<BTreeMap<String, meta::RunFile>>,
    /// By file: parts that were written, in the order of the log.
    parts: BTreeMap<String, Vec<Part>>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    from: u64,
    to: u64,
    crc: u32,
}

impl Seals {
    /// Of a run; what is wrong already goes to `partial`.
    pub fn of(dir: &Path, json: &str, meta: &RunMeta, partial: &mut Vec<String>) -> Seals {
        if meta.version < SINCE {
            return Seals { old: true, ..Seals::default() };
        }
        if !json_is_whole(json) {
            partial.push(format!("run.json was {CHANGED} (its digest differs)"));
        }
        let listed = (meta.state != State::Recording)
            .then(|| meta.files.iter().map(|f| (f.name.clone(), f.clone())).collect::<BTreeMap<_, _>>());
        let text = match read_log(&dir.join(LOG)) {
            Ok(text) => text,
            Err(e) => {
                partial.push(format!("checksums cannot be read ({e}): nothing of the run can be checked or used"));
                String::new()
            }
        };
        let said = listed.as_ref().and_then(|l| l.get(LOG));
        if said.is_some_and(|f| f.sha256 != sha256(text.as_bytes())) {
            partial.push("checksums is not the file that run.json lists".into());
        }
        let mut parts: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, part)) = parse(line) {
                parts.entry(name.into()).or_default().push(part);
            }
        }
        Seals { old: false, listed, parts }
    }

    /// Whether there are no checksums to check by.
    pub fn is_old(&self) -> bool {
        self.old
    }

    /// Whether the run knows a file of that name.
    pub fn knows(&self, name: &str) -> bool {
        self.old || self.listed.as_ref().map_or(self.parts.contains_key(name), |l| l.contains_key(name))
    }

    /// How many bytes of a file are as they were written, from its begin, and what is wrong after them. The file is read once.
    pub fn check(&self, name: &str, file: &File) -> io::Result<(u64, Option<String>)> {
        let size = file.metadata()?.len();
        if self.old {
            return Ok((size, None));
        }
        let mut file = BufReader::with_capacity(1 << 18, file);
        file.seek(SeekFrom::Start(0))?;
        let parts = self.parts.get(name).map_or(&[][..], Vec::as_slice);
        // Of a table that was written several times, the last of this size.
        let whole = parts.iter().rev().find(|p| p.from == 0 && p.to == size);
        let mut at = 0;
        for part in whole.map_or(parts, std::slice::from_ref) {
            if part.from != at || part.to <= at || part.to > size {
                continue;
            }
            if crc(&mut file, part.to - at)? != part.crc {
                return Ok((at, Some(format!("the rest was {CHANGED} (its checksum differs)"))));
            }
            at = part.to;
        }
        let listed = self.listed.as_ref().and_then(|l| l.get(name));
        let why = match listed {
            Some(f) if f.bytes != size => Some(format!("it has {size} bytes, and {} were written", f.bytes)),
            _ if at < size => Some("the rest has no checksum".into()),
            _ => None,
        };
        Ok((at, why))
    }
}

fn crc(file: &mut impl Read, bytes: u64) -> io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut left = bytes;
    let mut buffer = vec![0; (1 << 16).min(bytes as usize)];
    while left > 0 {
        let take = (buffer.len() as u64).min(left) as usize;
        file.read_exact(&mut buffer[..take])?;
        hasher.update(&buffer[..take]);
        left -= take as u64;
    }
    Ok(hasher.finalize())
}

fn read_log(path: &Path) -> io::Result<String> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() || about.len() > MAX_LOG {
        return Err(io::Error::other("it is not a text file"));
    }
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

fn parse(line: &str) -> Option<(&str, Part)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let part = Part {
        from: words.next()?.parse().ok()?,
        to: words.next()?.parse().ok()?,
        crc: words.next().filter(|w| w.len() == 8).and_then(|w| u32::from_str_radix(w, 16).ok())?,
    };
    words.next().is_none().then_some((name, part))
}
