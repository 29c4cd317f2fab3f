//! The functions of a Go program that has no symbols: its own table, by which Go walks stacks (`.gopclntab`).
//!
//! In: the table of Go 1.18 or newer, and where the code is. Out: [`Symbol`]s.

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use object::read::ReadCache;
use object::{Object, ObjectSection};

use super::Symbol;

/// Of Go 1.20 and newer, and of 1.18.
const MAGIC: [u32; 2] = [0xffff_fff1, 0xffff_fff0];
/// Functions at most: damaged tables may claim any number.
const MOST_FUNCTIONS: usize = 4 << 20;

/// The functions; none of a table of another version, or of a damaged one. `text`: the code.
pub fn functions(table: &[u8], text: Range<u64>) -> Vec<Symbol> {
    read(table, text).unwrap_or_default()
}

/// Of a file: nothing when it is no Go program, or has symbols.
pub fn functions_of(file: File) -> Vec<Symbol> {
    let read = || {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let table = file.section_by_name(".gopclntab")?;
        let text = file.section_by_name(".text")?;
        if file.symbols().next().is_some() {
            return None;
        }
        Some(functions(table.data().ok()?, text.address()..text.address().checked_add(text.size())?))
    };
    catch_unwind(AssertUnwindSafe(read)).ok().flatten().unwrap_or_default()
}

fn read(table: &[u8], text: Range<u64>) -> Option<Vec<Symbol>> {
    let int = |at: usize| Some(u32::from_le_bytes(table.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let word = |i: usize| {
        let at = 8 + 8 * i;
        Some(u64::from_le_bytes(table.get(at..at + 8)?.try_into().ok()?))
    };
    // Magic, two zeros, the least instruction, the size of a pointer; then words: functions, files, where the code is, the names,
    // …, the table of functions.
    if !MAGIC.contains(&int(0)?) || *table.get(7)? != 8 {
        return None;
    }
    let count = usize::try_from(word(0)?).ok().filter(|n| *n <= MOST_FUNCTIONS)?;
    // Since Go 1.26 the word is 0 and the code's section says it.
    let start = Some(word(2)?).filter(|start| text.contains(start)).unwrap_or(text.start);
    let [names, places] = [word(3)?, word(7)?].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
    let places = table.get(places..)?;
    let word_at = |at: usize| Some(u32::from_le_bytes(places.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let mut out = Vec::with_capacity(count.min(places.len() / 8));
    for i in 0..count {
        let (Some(from), Some(about), Some(to)) = (word_at(8 * i), word_at(8 * i + 4), word_at(8 * i + 8)) else {
            break;
        };
        // Of a function: where it is, where its name is.
        let Some(name) = word_at((about as usize).checked_add(4)?) else { continue };
        let text = names.checked_add(name as usize).and_then(|at| table.get(at..));
        let Some(raw) = text.and_then(|t| t.split(|&b| b == 0).next()) else { continue };
        let range = start.checked_add(u64::from(from))?..start.checked_add(u64::from(to))?;
        if !raw.is_empty() && from < to {
            out.push(Symbol { raw: String::from_utf8_lossy(raw).into_owned(), range });
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<u8> {
        let mut t = MAGIC[0].to_le_bytes().to_vec();
        t.extend([0, 0, 1, 8]);
        // Functions, files, code, names, cu, files, pc, functions.
        for word in [2u64, 0, 0x1000, 72, 0, 0, 0, 96] {
            t.extend(word.to_le_bytes());
        }
        t.extend(b"main.main\0main.slow\0");
        t.resize(96, 0);
        // Two places and the end of the code, then what is known of each.
        for int in [0u32, 20, 0x40, 28, 0x90, 0, 0x40, 10] {
            t.extend(int.to_le_bytes());
        }
        // At 20: entry 0, name 0; at 28: entry 0x40, name 10.
        t.truncate(96 + 20);
        for int in [0u32, 0, 0x40, 10] {
            t.extend(int.to_le_bytes());
        }
        t
    }

    #[test]
    fn names_and_places_come_from_the_table() {
        let symbols = functions(&table(), 0x1000..0x2000);
        let names_and_ranges: Vec<_> = symbols.iter().map(|s| (s.raw.as_str(), s.range.clone())).collect();
        assert_eq!(names_and_ranges, [("main.main", 0x1000..0x1040), ("main.slow", 0x1040..0x1090)]);
    }

    #[test]
    fn damaged_tables_do_not_panic() {
        let whole = table();
        for at in 0..whole.len() {
            let _ = functions(&whole[..at], 0..u64::MAX);
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            let _ = functions(&bytes, 0x1000..0x2000);
        }
    }
}
