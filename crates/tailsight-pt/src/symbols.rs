//! Where functions begin and end.
//!
//! In: an ELF file, or the kernel's list of its symbols (`/proc/kallsyms`, as perf copies it). Out: [`Symbols`], by place: the offset
//! in the file, or for the kernel the address.

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

/// Most bytes of a function that has no size and that no other function follows.
const MOST_UNSIZED: u64 = 64 << 10;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub range: Range<u64>,
    /// Its name as the file has it.
    pub name: String,
}

/// Functions by place; they do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    functions: Vec<Function>,
}

impl Symbols {
    /// Puts functions in order. A size of 0 reaches to the next one; of two that begin at the same place the larger counts, then the
    /// first.
    pub fn new(mut functions: Vec<Function>) -> Symbols {
        functions.sort_by(|a, b| (a.range.start, b.range.end).cmp(&(b.range.start, a.range.end)));
        functions.dedup_by_key(|f| f.range.start);
        for i in 0..functions.len() {
            let next = functions.get(i + 1).map_or(u64::MAX, |f| f.range.start);
            let range = &mut functions[i].range;
            if range.end <= range.start {
                range.end = range.start.saturating_add(MOST_UNSIZED);
            }
            range.end = range.end.min(next);
        }
        Symbols { functions }
    }

    /// The function at a place.
    pub fn at(&self, place: u64) -> Option<&Function> {
        let i = self.functions.partition_point(|f| f.range.start <= place).checked_sub(1)?;
        Some(&self.functions[i]).filter(|f| f.range.contains(&place))
    }

    /// The range of the function at a place; where there is none, what lies between the functions around it.
    pub fn around(&self, place: u64) -> Range<u64> {
        let next = self.functions.partition_point(|f| f.range.start <= place);
        let before = next.checked_sub(1).map(|i| &self.functions[i].range);
        match before {
            Some(range) if range.contains(&place) => range.clone(),
            _ => before.map_or(0, |r| r.end)..self.functions.get(next).map_or(u64::MAX, |f| f.range.start),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The place of a function of that name.
    pub fn named(&self, name: &str) -> Option<u64> {
        self.functions.iter().find(|f| f.name == name).map(|f| f.range.start)
    }

    /// The same functions at other places; those without one are left out.
    pub fn moved(&self, to: impl Fn(u64) -> Option<u64>) -> Symbols {
        let moved = |f: &Function| {
            let start = to(f.range.start)?;
            Some(Function { range: start..start.checked_add(f.range.end - f.range.start)?, name: f.name.clone() })
        };
        Symbols::new(self.functions.iter().filter_map(moved).collect())
    }

    /// From the kernel's list. Symbols whose address the kernel hid (0) are skipped.
    pub fn of_kallsyms(text: &str) -> Symbols {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let start = u64::from_str_radix(address, 16).ok().filter(|&a| a != 0)?;
            let code = matches!(kind, "t" | "T" | "w" | "W");
            code.then(|| Function { range: start..start, name: name.to_owned() })
        };
        Symbols::new(text.lines().filter_map(line).collect())
    }
}

/// What is needed of an ELF file.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Its build id in hexadecimal.
    pub build_id: String,
    /// Its functions, by offset in the file.
    pub symbols: Symbols,
    /// Its loaded segments: the addresses of each, and where it begins in the file.
    pub segments: Vec<(Range<u64>, u64)>,
    /// Whether it is a core file, a copy of memory: its addresses are then those of the recorded machine.
    pub is_core: bool,
}

impl Image {
    /// Reads an open ELF file.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read(file: File) -> Result<Image, String> {
        let read = || Image::of(&ReadCache::new(file));
        catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err("it is damaged".into()))
    }

    fn of<'a, R: object::ReadRef<'a>>(data: R) -> Result<Image, String> {
        let file = object::File::parse(data).map_err(|e| e.to_string())?;
        if file.architecture() != object::Architecture::X86_64 {
            return Err(format!("it is of another architecture ({:?})", file.architecture()));
        }
        let segments: Vec<(Range<u64>, u64)> = file
            .segments()
            .filter_map(|s| {
                let (at, len) = s.file_range();
                Some((s.address()..s.address().checked_add(len)?, at))
            })
            .filter(|(range, _)| !range.is_empty())
            .collect();
        let place = |address: u64| {
            let (range, at) = segments.iter().find(|(range, _)| range.contains(&address))?;
            at.checked_add(address - range.start)
        };
        let functions = file.symbols().chain(file.dynamic_symbols()).filter_map(|symbol| {
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
                return None;
            }
            let start = place(symbol.address())?;
            let name = tailsight_units::name::from_bytes(symbol.name_bytes().ok()?);
            Some(Function { range: start..start.checked_add(symbol.size())?, name })
        });
        let symbols = Symbols::new(functions.collect());
        let id = file.build_id().ok().flatten().unwrap_or_default();
        let build_id = id.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
        Ok(Image { build_id, symbols, segments, is_core: file.kind() == object::ObjectKind::Core })
    }

    /// The address of a place in the file.
    pub fn address_of(&self, place: u64) -> Option<u64> {
        let within = |(range, at): &&(Range<u64>, u64)| (*at..at + (range.end - range.start)).contains(&place);
        self.segments.iter().find(within).map(|(range, at)| range.start + (place - at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_without_a_size_reach_to_the_next_and_the_larger_of_two_counts() {
        let f = |range: Range<u64>, name: &str| Function { range, name: name.into() };
        let symbols = Symbols::new(vec![f(40..60, "c"), f(10..10, "a"), f(20..20, "alias"), f(20..30, "b")]);
        let name = |at| symbols.at(at).map(|f| f.name.as_str());
        assert_eq!(
            [name(9), name(10), name(19), name(20), name(29), name(30)],
            [None, Some("a"), Some("a"), Some("b"), Some("b"), None]
        );
        assert_eq!((name(59), name(60)), (Some("c"), None));
    }

    #[test]
    fn the_kernel_s_list_is_read_and_hidden_addresses_are_none() {
        let list = "ffffffff81000000 T _stext\nffffffff81000100 t do_it\nffffffff82000000 D data\n\
                    ffffffffc0000000 t poll\t[nic]\n0000000000000000 T hidden\n";
        let symbols = Symbols::of_kallsyms(list);
        assert_eq!(symbols.len(), 3);
        assert_eq!(symbols.at(0xffff_ffff_8100_0104).unwrap().name, "do_it");
        assert_eq!(symbols.at(0xffff_ffff_c000_0004).unwrap().name, "poll");
        assert_eq!(symbols.named("hidden"), None);
    }
}
