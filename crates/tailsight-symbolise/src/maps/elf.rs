//! What is needed of a program or library: where its segments lie, its build id, and its unwind tables.
//!
//! In: an open ELF file, or its bytes. Out: [`Elf`]. Only headers and the tables are read, each up to a bound.

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SegmentFlags};

use crate::error::Error;

/// An unwind table beyond this is not read: Chromium's is 12 MiB.
const MOST_TABLE_BYTES: u64 = 128 << 20;

/// A section's bytes.
pub type Bytes = Arc<[u8]>;

/// A part of the file that is loaded and holds code.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    file: Range<u64>,
    address: u64,
}

/// A section with its place in the file's own address space.
#[derive(Clone, Debug)]
pub struct Section {
    /// Addresses.
    pub range: Range<u64>,
    /// Bytes.
    pub bytes: Bytes,
}

/// What is known of an ELF file.
#[derive(Clone, Debug, Default)]
pub struct Elf {
    segments: Vec<Segment>,
    /// Its build id in hexadecimal; empty without one.
    pub build_id: String,
    /// Its code.
    pub text: Option<Range<u64>>,
    /// Its global offset table.
    pub got: Option<Range<u64>>,
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Section>,
    /// `.debug_frame`, where it is not compressed.
    pub debug_frame: Option<Section>,
}

impl Elf {
    /// Reads an open file.
    ///
    /// # Errors
    /// [`Error::Elf`].
    pub fn read(file: File) -> Result<Elf, Error> {
        guarded(|| Elf::of(&ReadCache::new(file)))
    }

    /// Takes the bytes of a whole file.
    ///
    /// # Errors
    /// [`Error::Elf`].
    pub fn parse(bytes: &[u8]) -> Result<Elf, Error> {
        guarded(|| Elf::of(bytes))
    }

    pub(crate) fn of<'a, R: ReadRef<'a>>(data: R) -> Result<Elf, object::Error> {
        let file = object::File::parse(data)?;
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            let plain = section.compressed_file_range().ok()?.format == object::CompressionFormat::None;
            if !plain || section.size() > MOST_TABLE_BYTES {
                return None;
            }
            let range = section.address()..section.address().checked_add(section.size())?;
            let bytes = section.data().ok().filter(|bytes| !bytes.is_empty())?;
            Some(Section { range, bytes: bytes.into() })
        };
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let build_id = file.build_id().ok().flatten().unwrap_or_default();
        Ok(Elf {
            // Neighbours share a page of the file: what is code is told by the segment.
            segments: file
                .segments()
                .filter(|s| matches!(s.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & object::elf::PF_X != 0))
                .filter_map(|s| segment(s.file_range(), s.address()))
                .collect(),
            build_id: build_id.iter().take(64).map(|byte| format!("{byte:02x}")).collect(),
            text: range(".text"),
            got: range(".got"),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame"),
        })
    }

    /// The address in the file's own address space of a place in the file; `None`: no code is loaded from there.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let address_in = |s: &Segment| s.file.contains(&offset).then(|| s.address.checked_add(offset - s.file.start));
        // A mapping starts at a page, which may begin before the segment does.
        let page = |s: &Segment| {
            let before = s.file.start.checked_sub(offset).filter(|&before| before < 1 << 16)?;
            s.address.checked_sub(before)
        };
        self.segments.iter().find_map(address_in).unwrap_or_else(|| self.segments.iter().find_map(page))
    }

    /// Where the function begins that an address is in, by the index of the unwind tables: also of files without symbols. `None`
    /// without such an index, or where it is of another form than compilers write it.
    pub fn function_start(&self, address: u64) -> Option<u64> {
        self.index(address)?.0
    }

    /// The function that an address is in, likewise, up to where the next one begins or the code ends.
    pub fn function_range(&self, address: u64) -> Option<Range<u64>> {
        let (start, next) = self.index(address)?;
        let end = next.or_else(|| self.text.as_ref().map(|text| text.end))?;
        Some(start?..end).filter(|range| range.contains(&address))
    }

    /// The last begin of a function up to an address, and the first one after it.
    fn index(&self, address: u64) -> Option<(Option<u64>, Option<u64>)> {
        const HEADER: usize = 12;
        // Version 1; the count as 4 bytes; pairs of 4 bytes, signed, relative to the section.
        let Section { range, bytes } = self.eh_frame_hdr.as_ref()?;
        if bytes.len() < HEADER || bytes[0] != 1 || bytes[1] & 0x0f != 0x0b || bytes[2..4] != [0x03, 0x3b] {
            return None;
        }
        let int = |at: usize| Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let start = |i: usize| range.start.checked_add_signed(i64::from(int(HEADER + 8 * i)?));
        let n = (int(8)?.cast_unsigned() as usize).min((bytes.len() - HEADER) / 8);
        let (mut low, mut high) = (0, n);
        while low < high {
            let middle = usize::midpoint(low, high);
            if start(middle)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some((low.checked_sub(1).and_then(start), (low < n).then(|| start(low)).flatten()))
    }
}

fn segment((from, bytes): (u64, u64), address: u64) -> Option<Segment> {
    Some(Segment { file: from..from.checked_add(bytes)?, address })
}

/// Where the functions begin that a file exports, in order, with their names; of a damaged file none.
pub fn exported_begins(file: File) -> Vec<(u64, String)> {
    let read = || {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache)?;
        let is_function = |s: &object::Symbol<'_, '_, _>| s.is_definition() && s.kind() == object::SymbolKind::Text;
        let begin = |s: object::Symbol<'_, '_, _>| {
            Some((s.address(), s.name().ok().filter(|name| !name.is_empty())?.to_owned()))
        };
        let mut functions: Vec<(u64, String)> = file.dynamic_symbols().filter(is_function).filter_map(begin).collect();
        functions.sort_unstable();
        Ok(functions)
    };
    guarded(read).unwrap_or_default()
}

/// The functions that a small image exports, by address: `(range, name)`. For the kernel's own page in every process.
pub fn exported(bytes: &[u8]) -> Vec<(Range<u64>, String)> {
    let read = || {
        let file = object::File::parse(bytes)?;
        let symbol = |s: object::Symbol<'_, '_>| {
            let name = s.name().ok().filter(|name| !name.is_empty())?;
            Some((s.address()..s.address().checked_add(s.size().max(1))?, name.to_owned()))
        };
        Ok(file.dynamic_symbols().filter(|s| s.is_definition()).filter_map(symbol).collect())
    };
    guarded(read).unwrap_or_default()
}

/// Damaged files may make the parser panic: an error like any other.
fn guarded<T>(read: impl FnOnce() -> Result<T, object::Error>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(done) => done.map_err(|e| Error::Elf { source: Some(e) }),
        Err(_) => Err(Error::Elf { source: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_unwind_tables_and_its_places_have_addresses() {
        let path = std::env::current_exe().unwrap();
        let elf = Elf::read(File::open(&path).unwrap()).unwrap();
        assert!(elf.eh_frame.is_some() && elf.eh_frame_hdr.is_some());
        let text = elf.text.clone().unwrap();
        let maps = crate::maps::Maps::of(std::process::id()).unwrap();
        let here = this_program_has_unwind_tables_and_its_places_have_addresses as *const () as u64;
        let mapping = maps.find(here).unwrap();
        let address = elf.address_of(here - mapping.start + mapping.offset).unwrap();
        assert!(text.contains(&address), "{address:x} of {text:x?}");
        assert_eq!(elf.function_start(address), Some(address));
        assert_eq!(elf.function_start(address + 1), Some(address));
        assert_eq!(elf.function_start(0), None);
    }

    #[test]
    fn damaged_files_are_refused_and_do_not_panic() {
        let whole = std::fs::read("/bin/true").or_else(|_| std::fs::read("/usr/bin/true")).unwrap();
        let script = Elf::parse(b"#!/bin/sh\n").unwrap_err();
        let why = std::error::Error::source(&script).expect("the parser's error").to_string();
        assert_eq!(tailsight_units::chain(&script).matches(&why).count(), 1, "{why}");
        for cut in [0, 4, 63, 64, 200, whole.len() / 2] {
            let _ = Elf::parse(&whole[..cut.min(whole.len())]);
        }
        let mut bytes = whole.clone();
        for at in 0..2048.min(bytes.len()) {
            let before = std::mem::replace(&mut bytes[at], 0xff);
            let _ =
                Elf::parse(&bytes).map(|elf| (elf.address_of(0), elf.address_of(u64::MAX), elf.function_start(5000)));
            bytes[at] = before;
        }
    }
}
