//! The code that ran in the guest: of the kernel as it was in memory, of the programs as their files have it.
//!
//! In: what the plugin and the agent sent (`pages.bin`, `files/`), and the guest's files. Out: [`Guest`]. It checks that an instruction of
//! the log is the one that the recording will hold at its address, and writes the code that a recording needs: the kernel's as a core
//! file, a program's file with only its symbols and the pages that ran.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::path::Path;

use super::log::{Instruction, long};
use super::{read, wrong};
use crate::Result;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A mapping of a file's code in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The address after the last one.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file in the guest.
    pub path: String,
}

/// What is known of the guest.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// Process, thread, name.
    pub tasks: Vec<(u32, u32, String)>,
    /// By process.
    pub mappings: BTreeMap<u32, Vec<Mapping>>,
    /// The kernel's functions: address, kind, name; generated code (BPF) has `[bpf]` behind it.
    symbols: Vec<(u64, char, String)>,
    /// Pages of the kernel that ran.
    pages: BTreeMap<u64, Vec<u8>>,
    /// Files by their path in the guest.
    files: BTreeMap<String, Vec<u8>>,
    /// First addresses of handlers of interrupts and exceptions; and the stubs of all other interrupts, 8 bytes each.
    handlers: HashSet<u64>,
    stubs: Range<u64>,
}

impl Guest {
    /// Reads the files that the plugin and the agent sent.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn read(from: &Path, root: &Path) -> Result<Guest> {
        let mut out = Guest::default();
        let sent = |name: &str| {
            Ok::<_, crate::Error>(String::from_utf8_lossy(&read(&from.join("files").join(name))?).into_owned())
        };
        for line in sent("kallsyms")?.lines() {
            let mut words = line.split_whitespace();
            let (Some(at), Some(kind), Some(name), module) = (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Ok(at), Some(kind)) = (u64::from_str_radix(at, 16), kind.chars().next()) else { continue };
            let name = module.map_or_else(|| name.to_owned(), |module| format!("{name}\t{module}"));
            if "tTwW".contains(kind) || ["_stext", "_etext"].contains(&name.as_str()) {
                out.symbols.push((at, kind, name));
            }
        }
        out.symbols.sort();
        let begins = |name: &str| name.starts_with("asm_exc_") || name.starts_with("asm_sysvec_");
        out.handlers = out.symbols.iter().filter(|(.., name)| begins(name)).map(|(at, ..)| *at).collect();
        let stubs = out.symbol("irq_entries_start")?;
        let behind = out.symbols.iter().map(|(at, ..)| *at).find(|at| *at > stubs).unwrap_or(stubs);
        out.stubs = stubs..behind;
        for page in read(&from.join("pages.bin"))?.chunks_exact(8 + PAGE as usize) {
            out.pages.insert(long(page, 0).unwrap_or(0), page[8..].to_vec());
        }
        for line in sent("tasks")?.lines() {
            let mut words = line.splitn(3, ' ');
            let mut number = || words.next().and_then(|w| w.parse::<u32>().ok());
            if let (Some(pid), Some(tid)) = (number(), number()) {
                out.tasks.push((pid, tid, words.next().unwrap_or_default().to_owned()));
            }
        }
        let processes: BTreeSet<u32> = out.tasks.iter().map(|(pid, ..)| *pid).collect();
        for pid in processes {
            // A kernel thread has no mappings.
            let Ok(maps) = sent(&format!("maps.{pid}")) else { continue };
            let mappings: Vec<Mapping> = maps.lines().filter_map(mapping).collect();
            for mapping in &mappings {
                if !out.files.contains_key(&mapping.path) {
                    out.files.insert(mapping.path.clone(), read(&root.join(mapping.path.trim_start_matches('/')))?);
                }
            }
            out.mappings.insert(pid, mappings);
        }
        Ok(out)
    }

    fn symbol(&self, name: &str) -> Result<u64> {
        let address = self.symbols.iter().find(|(.., of)| of == name).map(|(at, ..)| *at);
        address.ok_or_else(|| wrong(format!("the kernel has no symbol {name}")))
    }

    /// Whether an interrupt or an exception begins there; nothing else leads there.
    pub fn is_handler(&self, ip: u64) -> bool {
        self.handlers.contains(&ip) || self.stubs.contains(&ip) && (ip - self.stubs.start).is_multiple_of(8)
    }

    /// The kernel's code: first address and behind the last.
    pub fn text(&self) -> (u64, u64) {
        let address_of = |name| self.symbol(name).unwrap_or(0);
        (address_of("_stext") & !(PAGE - 1), address_of("_etext").next_multiple_of(PAGE))
    }

    /// Whether the recording will have this instruction's code at its address.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): it will not.
    pub fn check(&self, pid: u32, at: &Instruction) -> Result<()> {
        let same =
            (0u64..).zip(&at.code[..usize::from(at.len)]).all(|(i, byte)| self.byte(pid, at.ip + i) == Some(*byte));
        let bytes = &at.code[..usize::from(at.len)];
        let there: Vec<Option<u8>> = (0..u64::from(at.len)).map(|i| self.byte(pid, at.ip + i)).collect();
        match same {
            true => Ok(()),
            false => {
                Err(wrong(format!("{:#x} of process {pid} ran as {bytes:x?}, and its file has {there:x?}", at.ip)))
            }
        }
    }

    fn byte(&self, pid: u32, at: u64) -> Option<u8> {
        if at >> 63 == 1 {
            let page = self.pages.get(&(at & !(PAGE - 1)))?;
            return page.get((at & (PAGE - 1)) as usize).copied();
        }
        let mapping = self.mapping(pid, at)?;
        let place = usize::try_from(at - mapping.start + mapping.offset).ok()?;
        self.files.get(&mapping.path)?.get(place).copied()
    }

    fn mapping(&self, pid: u32, at: u64) -> Option<&Mapping> {
        self.mappings.get(&pid)?.iter().find(|m| (m.start..m.end).contains(&at))
    }

    /// The kernel's text, and outside of it (BPF) what ran: neighbouring pages together.
    fn pieces(&self) -> Vec<Range<u64>> {
        let (start, end) = self.text();
        let mut generated: Vec<Range<u64>> = Vec::new();
        for at in self.pages.keys().copied().filter(|at| !(start..end).contains(at)) {
            match generated.last_mut().filter(|piece| piece.end == at) {
                Some(piece) => piece.end = at + PAGE,
                None => generated.push(at..at + PAGE),
            }
        }
        std::iter::once(start..end).chain(generated).collect()
    }

    /// The kernel's code as a core file, as perf copies it from /proc/kcore; what did not run is zero.
    pub fn kcore(&self) -> Vec<u8> {
        let mut out = b"\x7fELF\x02\x01\x01".to_vec();
        out.resize(16, 0);
        let (core, x86_64) = (4u16, 62u16);
        [core, x86_64].iter().for_each(|half| out.extend(half.to_le_bytes()));
        out.extend(1u32.to_le_bytes());
        let pieces = self.pieces();
        // No entry; program headers behind this one.
        [0u64, 64, 0].iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        [64u16, 56, pieces.len() as u16, 64, 0, 0].iter().for_each(|half| out.extend(half.to_le_bytes()));
        let mut place = (64 + 56 * pieces.len() as u64).next_multiple_of(PAGE);
        for piece in &pieces {
            // PT_LOAD, readable and executable.
            [1u32, 5].iter().for_each(|half| out.extend(half.to_le_bytes()));
            let len = piece.end - piece.start;
            [place, piece.start, 0, len, len, PAGE].iter().for_each(|word| out.extend(word.to_le_bytes()));
            place += len;
        }
        out.resize(out.len().next_multiple_of(PAGE as usize), 0);
        for at in pieces.into_iter().flat_map(|piece| piece.step_by(PAGE as usize)) {
            match self.pages.get(&at) {
                Some(page) => out.extend(page),
                None => out.resize(out.len() + PAGE as usize, 0),
            }
        }
        out
    }

    /// The kernel's list of symbols: those of pages that ran, and where its text begins and ends.
    pub fn symbols_that_ran(&self) -> String {
        let mut out = String::new();
        let ran = |from: u64, to: u64| self.pages.range(from & !(PAGE - 1)..to.max(from + 1)).next().is_some();
        for (i, (at, kind, name)) in self.symbols.iter().enumerate() {
            let to = self.symbols[i + 1..].iter().map(|(to, ..)| *to).find(|to| to != at).unwrap_or(at + PAGE);
            let before = i.checked_sub(1).is_some_and(|i| ran(self.symbols[i].0, *at));
            if ran(*at, to) || before || ["_text", "_stext", "_etext"].contains(&name.as_str()) {
                out.push_str(&format!("{at:016x} {kind} {name}\n"));
            }
        }
        out
    }

    /// The files whose pages ran: path, and the file with nothing but its headers, its symbols and these pages.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): a file is no ELF file.
    pub fn programs(&self, ran: &BTreeSet<(u32, u64)>) -> Result<Vec<(String, Vec<u8>)>> {
        let mut pages: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (pid, at) in ran {
            if let Some(mapping) = self.mapping(*pid, *at) {
                pages.entry(&mapping.path).or_default().insert(at - mapping.start + mapping.offset);
            }
        }
        let reduced = |(path, pages): (&str, BTreeSet<u64>)| {
            let whole = &self.files[path];
            let keep = kept(whole).ok_or_else(|| wrong(format!("{path} is no ELF file")))?;
            let mut out = vec![0; whole.len()];
            let pages = pages.into_iter().map(|at| at as usize..(at + PAGE) as usize);
            for range in keep.into_iter().chain(pages) {
                let range = range.start.min(out.len())..range.end.min(out.len());
                out[range.clone()].copy_from_slice(&whole[range]);
            }
            Ok((path.to_owned(), out))
        };
        pages.into_iter().map(reduced).collect()
    }
}

/// The ranges of an ELF file that hold its headers and symbols.
fn kept(elf: &[u8]) -> Option<Vec<Range<usize>>> {
    let half = |at: usize| Some(u16::from_le_bytes(*elf.get(at..)?.first_chunk::<2>()?));
    let word = |at: usize| Some(u32::from_le_bytes(*elf.get(at..)?.first_chunk::<4>()?));
    let place = |at: usize| usize::try_from(long(elf, at)?).ok();
    if elf.get(..4)? != b"\x7fELF" {
        return None;
    }
    let (table, size, count, names) =
        (place(40)?, usize::from(half(58)?), usize::from(half(60)?), usize::from(half(62)?));
    let mut out = vec![0..PAGE as usize, table..table + size * count];
    for i in 0..count {
        let at = table + i * size;
        let (kind, offset, len, flags) = (word(at + 4)?, place(at + 24)?, place(at + 32)?, long(elf, at + 8)?);
        // Symbols, notes, dynamic symbols; lists of their names, and that of the sections.
        let strings = kind == 3 && (flags & 2 != 0 || i == names || linked(elf, table, size, count, i));
        if matches!(kind, 2 | 7 | 11) || strings {
            out.push(offset..offset.checked_add(len)?);
        }
    }
    Some(out)
}

/// Whether a list of symbols takes its names from this section.
fn linked(elf: &[u8], table: usize, size: usize, count: usize, section: usize) -> bool {
    let word = |at: usize| elf.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|b| u32::from_le_bytes(*b));
    (0..count).map(|i| table + i * size).any(|at| word(at + 4) == Some(2) && word(at + 40) == Some(section as u32))
}

/// A line of `/proc/PID/maps` of a file's code.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (range, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let path = words.nth(2).filter(|path| path.starts_with('/'))?;
    let (start, end) = range.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mapping = Mapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, path: path.to_owned() };
    permissions.contains('x').then_some(mapping)
}
