//! Functions of a program by name: where each begins and every place where it can end, so that calls can be traced.
//!
//! In: an ELF file and what the user wrote: a name (raw, demangled, with wildcards), an offset in the file, or a USDT probe. Out:
//! [`Traceable`]s: offsets in the file at which a breakpoint tells begin and end. The end is told at the instructions that leave the
//! function ([`ends`]), not at its return address: replacing that breaks what looks at the stack (Go, exceptions of C++ and Rust,
//! the unwinding of samples). Where these instructions cannot be told, the return address it is, if the file throws nothing.

pub mod emulated;
pub mod ends;
pub mod go;
pub mod usdt;

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use object::read::{ReadCache, ReadRef};
use object::{Architecture, Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::maps::elf::Elf;
use crate::own;
use ends::End;

/// Functions that one name may stand for.
pub const MOST_MATCHES: usize = 64;
/// Places at which the begins and ends of the functions of an answer are at most: probes that were put into their callers have many.
const MOST_PLACES: usize = 1 << 14;
/// Bytes of constants in which a text is looked for.
const MOST_CONSTANTS: u64 = 256 << 20;
/// Bytes of a function that are looked at.
const MOST_CODE: u64 = 1 << 20;

/// What is to be traced of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// Functions of that name: raw or demangled, with or without parameters; `*` and `?` are wildcards.
    Name(String),
    /// Functions whose path in a Rust program, as its symbols have it (`5tokio7runtime`), is one of these: all instances of them. Of each the
    /// first place at which a breakpoint costs one trap and the first argument is in its register. Of a program that has `trace` among its
    /// constants and none of them it is said that its symbols were removed; of another one there is nothing.
    Rust {
        /// The paths.
        paths: Vec<String>,
        /// A text that the crate leaves in every program that it is linked into.
        trace: String,
    },
    /// Functions of Go's runtime of these names, each with the first place at which a breakpoint costs one trap; of another program there is nothing.
    Go(Vec<String>),
    /// The places where a function of a Go program calls another one, by their names, at each of which a breakpoint costs one trap; of another
    /// program there is nothing.
    GoCall {
        /// The function that calls.
        caller: String,
        /// The one that is called.
        callee: String,
        /// Behind the call, where its second result is in its register.
        after: bool,
    },
    /// Functions of these names that a library has, or a program that it is linked into; of another file there is nothing. Their end is told by
    /// the return address, so that what they return is known there.
    Library(Vec<String>),
    /// The function that begins at that place of the file, bytes.
    Offset(u64),
    /// USDT probes of a provider: a pair of begin and end.
    Probe {
        /// The provider.
        provider: String,
        /// The name that both have, or `BEGIN,END`.
        probe: String,
    },
}

/// How the end of a function is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndsBy {
    /// At each instruction that leaves it.
    Instructions(Vec<End>),
    /// By its return address.
    Return,
    /// By another probe: place in the file and its semaphore's (0: none).
    Probe(Vec<(u64, u64)>),
}

/// A function that can be traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traceable {
    /// Its name, demangled, without parameters.
    pub name: String,
    /// Where it begins: place in the file, and the semaphore's of a probe (0: none).
    pub begins: Vec<(u64, u64)>,
    /// How its end is told.
    pub ends: EndsBy,
}

/// What was found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The functions, by name.
    pub functions: Vec<Traceable>,
    /// Its build id in hexadecimal; empty without one.
    pub build_id: String,
    /// A Go program: where it turns to a goroutine (`runtime.execute`), and where to none (`runtime.schedule`).
    pub go: Option<[u64; 2]>,
    /// Functions that match and cannot be traced, each with the reason.
    pub refused: Vec<String>,
}

impl Located {
    /// Whether it is what a question can be answered with, whoever answered.
    pub(crate) fn fits(&self) -> bool {
        let places = |function: &Traceable| {
            function.begins.len()
                + match &function.ends {
                    EndsBy::Instructions(ends) => ends.len(),
                    EndsBy::Return => 1,
                    EndsBy::Probe(places) => places.len(),
                }
        };
        let begin = self.functions.iter().all(|function| !function.begins.is_empty());
        let places: usize = self.functions.iter().map(places).sum();
        begin && self.functions.len() <= MOST_MATCHES && places <= MOST_PLACES && self.refused.len() <= MOST_MATCHES
    }
}

/// A function of a symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// As the table has it.
    pub raw: String,
    /// Addresses in the file's own address space.
    pub range: Range<u64>,
}

/// Looks for functions in a file. `debug`: a separate file with its symbols, where there is one.
///
/// # Errors
/// Why there is none, in words.
pub fn find(file: File, debug: Option<File>, wanted: &Wanted) -> Result<Located, String> {
    // Most targets are not: their symbols, of which there may be very many, are not read.
    if matches!(wanted, Wanted::Rust { .. }) && !file.try_clone().is_ok_and(own::is_rust) {
        return Ok(Located::default());
    }
    let read = || {
        let cache = ReadCache::new(file);
        let code = Code::read(&cache)?;
        let mut symbols = code.symbols.clone();
        if symbols.is_empty()
            && let Some(debug) = debug
        {
            symbols = symbols_of(&object::File::parse(&ReadCache::new(debug)).map_err(|e| e.to_string())?);
        }
        code.find(&symbols, wanted)
    };
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err("the file is damaged".into()))
}

/// A parsed file.
struct Code<'a, R: ReadRef<'a>> {
    file: object::File<'a, R>,
    elf: Elf,
    symbols: Vec<Symbol>,
    go: bool,
}

impl<'a, R: ReadRef<'a>> Code<'a, R> {
    fn read(data: R) -> Result<Code<'a, R>, String> {
        let damaged = |e: object::Error| format!("it is not an ELF file, or is damaged ({e})");
        let file = object::File::parse(data).map_err(damaged)?;
        let elf = Elf::of(data).map_err(damaged)?;
        let go =
            [".gopclntab", ".note.go.buildid", ".go.buildinfo"].iter().any(|name| file.section_by_name(name).is_some());
        let mut symbols = symbols_of(&file);
        // What it shares with C (cgo) has symbols also where the others were removed.
        if go && !symbols.iter().any(|symbol| symbol.raw.starts_with("runtime.")) {
            symbols.extend(pclntab(&file).unwrap_or_default());
        }
        Ok(Code { file, elf, symbols, go })
    }

    fn find(&self, symbols: &[Symbol], wanted: &Wanted) -> Result<Located, String> {
        let mut located = Located { build_id: self.elf.build_id.clone(), ..Located::default() };
        let chosen = match wanted {
            Wanted::Name(name) => named(symbols, name)?,
            Wanted::Rust { paths, trace } => {
                let instance = |path: &String| self.instances(symbols, path);
                located.functions.extend(paths.iter().filter_map(instance));
                if located.functions.is_empty() && self.has_constant(trace) {
                    located.refused.push("its symbols were removed".into());
                }
                return Ok(located);
            }
            Wanted::Go(names) => {
                let beginning = |name: &String| self.begins(symbols.iter().filter(|symbol| symbol.raw == *name), name);
                located.functions.extend(names.iter().filter(|_| self.go).filter_map(beginning));
                return Ok(located);
            }
            Wanted::GoCall { caller, callee, after } => {
                located.functions.extend(if self.go { self.calls(symbols, [caller, callee], *after) } else { None });
                return Ok(located);
            }
            Wanted::Library(names) => {
                let function = |name: &String| {
                    let symbol = symbols.iter().find(|symbol| symbol.raw == *name)?;
                    let begins = vec![(self.offset_of(symbol.range.start)?, 0)];
                    Some(Traceable { name: name.clone(), begins, ends: EndsBy::Return })
                };
                located.functions.extend(names.iter().filter_map(function));
                return Ok(located);
            }
            Wanted::Offset(offset) => vec![self.at(symbols, *offset)?],
            Wanted::Probe { provider, probe } => {
                located.functions.push(self.probe(provider, probe)?);
                return Ok(located);
            }
        };
        for (name, symbol) in chosen {
            match self.traceable(&name, symbol, symbols) {
                Ok(function) => located.functions.push(function),
                Err(why) => located.refused.push(format!("{name}: {why}")),
            }
        }
        if located.functions.is_empty() {
            return Err(located.refused.join("; "));
        }
        if self.go {
            let at = |name: &str| {
                let symbol = symbols.iter().find(|s| s.raw == name)?;
                self.offset_of(symbol.range.start)
            };
            let places = at("runtime.execute").zip(at("runtime.schedule"));
            let (execute, schedule) = places
                .ok_or("a Go program without runtime.execute and runtime.schedule: the running goroutine is unknown")?;
            located.go = Some([execute, schedule]);
        }
        Ok(located)
    }

    /// The function that begins at a place of the file.
    fn at(&self, symbols: &[Symbol], offset: u64) -> Result<(String, Symbol), String> {
        let address = self.elf.address_of(offset).ok_or_else(|| format!("no code is loaded from 0x{offset:x}"))?;
        if let Some(symbol) = symbols.iter().find(|s| s.range.start == address) {
            return Ok((demangled(&symbol.raw).1, symbol.clone()));
        }
        let range = self
            .elf
            .function_range(address)
            .ok_or_else(|| format!("0x{offset:x} is in no function that the file's unwind tables or symbols know"))?;
        if range.start != address {
            let start = self.offset_of(range.start).unwrap_or(range.start);
            return Err(format!("0x{offset:x} is inside of the function that begins at 0x{start:x}"));
        }
        Ok((format!("0x{offset:x}"), Symbol { raw: String::new(), range }))
    }

    /// The instances of a function of a Rust program; none where it has none.
    fn instances(&self, symbols: &[Symbol], path: &str) -> Option<Traceable> {
        self.begins(symbols.iter().filter(|symbol| is_instance(&symbol.raw, path)), path)
    }

    /// Where these begin, as one function; none where there are none.
    fn begins<'s>(&self, of: impl Iterator<Item = &'s Symbol>, name: &str) -> Option<Traceable> {
        let place = |symbol: &Symbol| {
            let code = self.bytes(&symbol.range).unwrap_or_default();
            let near = if self.file.architecture() == Architecture::X86_64 { emulated::near_begin(&code) } else { 0 };
            Some((self.offset_of(symbol.range.start)? + near, 0))
        };
        let mut begins: Vec<(u64, u64)> = of.filter_map(place).collect();
        begins.sort_unstable();
        begins.dedup();
        let name = name.to_owned();
        (!begins.is_empty()).then_some(Traceable { name, begins, ends: EndsBy::Instructions(vec![]) })
    }

    /// The calls of the second function in the first, by their names in the symbols, or the places behind them; none where there are none. Of x86-64.
    fn calls(&self, symbols: &[Symbol], [caller, callee]: [&str; 2], after: bool) -> Option<Traceable> {
        let range_of = |name: &str| symbols.iter().find(|symbol| symbol.raw == name).map(|symbol| &symbol.range);
        let (caller, called) = (range_of(caller)?, range_of(callee)?.start);
        if self.file.architecture() != Architecture::X86_64 {
            return None;
        }
        let code = self.bytes(caller).ok()?;
        let addresses: Vec<u64> = match after {
            true => emulated::after_calls_of(&code, caller.start, called).collect(),
            false => emulated::calls_of(&code, caller.start, called).collect(),
        };
        let begins: Vec<(u64, u64)> =
            addresses.into_iter().filter_map(|address| Some((self.offset_of(address)?, 0))).collect();
        let ends = EndsBy::Instructions(vec![]);
        (!begins.is_empty()).then_some(Traceable { name: callee.to_owned(), begins, ends })
    }

    /// Whether a text is among the constants of the file.
    fn has_constant(&self, text: &str) -> bool {
        let constants = self.file.section_by_name(".rodata").filter(|section| section.size() <= MOST_CONSTANTS);
        let data = constants.and_then(|section| section.data().ok());
        data.is_some_and(|data| memchr::memmem::find(data, text.as_bytes()).is_some())
    }

    fn traceable(&self, name: &str, mut symbol: Symbol, symbols: &[Symbol]) -> Result<Traceable, String> {
        if symbol.range.is_empty() {
            let range = self.elf.function_range(symbol.range.start).filter(|r| r.start == symbol.range.start);
            symbol.range = range.ok_or("its length is not known")?;
        }
        let start = self.offset_of(symbol.range.start).ok_or("it is not loaded code")?;
        let begins = vec![(start, 0)];
        match self.ends(&symbol, symbols) {
            Ok(ends) => Ok(Traceable { name: name.into(), begins, ends: EndsBy::Instructions(ends) }),
            Err(why) if self.go => Err(format!(
                "{why}; a return probe is not set in a Go program: Go moves stacks, and finds the probe's address there"
            )),
            Err(why) if self.file.section_by_name(".gcc_except_table").is_some() => Err(format!(
                "{why}; a return probe is not set in a program that may throw exceptions through it: unwinding would \
                 end the program"
            )),
            Err(_) => Ok(Traceable { name: name.into(), begins, ends: EndsBy::Return }),
        }
    }

    /// The instructions that leave a function, as places in the file.
    fn ends(&self, symbol: &Symbol, symbols: &[Symbol]) -> Result<Vec<End>, String> {
        // What compilers move out of the way belongs to it.
        let cold = format!("{}.cold", symbol.raw);
        let moved = |s: &&Symbol| !symbol.raw.is_empty() && s.raw.starts_with(&cold) && !s.range.is_empty();
        let mut pieces = vec![(symbol.range.clone(), self.bytes(&symbol.range)?)];
        for cold in symbols.iter().filter(moved) {
            pieces.push((cold.range.clone(), self.bytes(&cold.range)?));
        }
        let ends = match self.file.architecture() {
            Architecture::X86_64 => ends::x86(&pieces, symbol.range.start)?,
            Architecture::Aarch64 => ends::arm64(&pieces, symbol.range.start)?,
            _ => return Err("the instructions of this architecture are not known".into()),
        };
        let place = |end: End| Some(End { at: self.offset_of(end.at)?, ..end });
        ends.into_iter().map(|end| place(end).ok_or_else(|| "it is not loaded code".to_owned())).collect()
    }

    fn bytes(&self, range: &Range<u64>) -> Result<Vec<u8>, String> {
        let size = range.end - range.start;
        if size > MOST_CODE {
            return Err(format!("it is {size} bytes long; at most {MOST_CODE} are searched for exits"));
        }
        let mut data = self.file.segments().filter_map(|s| s.data_range(range.start, size).ok().flatten());
        data.next().map(<[u8]>::to_vec).ok_or_else(|| "its code is not in the file".into())
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        self.file.segments().find_map(|s| {
            let (start, size) = s.file_range();
            let into = address.checked_sub(s.address()).filter(|&into| into < size)?;
            start.checked_add(into)
        })
    }

    fn probe(&self, provider: &str, probe: &str) -> Result<Traceable, String> {
        let probes = usdt::probes(&self.file);
        let (begin, end) = usdt::pair(&probes, provider, probe)?;
        let places = |name: &str| -> Result<Vec<(u64, u64)>, String> {
            let of_name = probes.iter().filter(|p| p.provider == provider && p.name == name);
            of_name
                .map(|p| {
                    let semaphore = if p.semaphore == 0 { Some(0) } else { self.offset_of(p.semaphore) };
                    let place = self.offset_of(p.address).zip(semaphore);
                    place.ok_or_else(|| format!("{provider}:{name} is at no place of the file that is loaded"))
                })
                .collect()
        };
        let name = format!("{provider}:{}", if begin == end { &begin } else { usdt::stem(&begin, &end) });
        Ok(Traceable { name, begins: places(&begin)?, ends: EndsBy::Probe(places(&end)?) })
    }
}

/// The functions of all symbol tables.
fn symbols_of<'a, R: ReadRef<'a>>(file: &object::File<'a, R>) -> Vec<Symbol> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let function = |s: object::Symbol<'a, '_, R>| {
        let is = s.kind() == SymbolKind::Text && s.is_definition() && s.address() != 0;
        let raw = s.name().ok().filter(|name| is && !name.is_empty())?.to_owned();
        Some(Symbol { raw, range: s.address()..s.address().checked_add(s.size())? })
    };
    symbols.filter_map(function).collect()
}

/// The functions of a Go program without symbols.
fn pclntab<'a, R: ReadRef<'a>>(file: &object::File<'a, R>) -> Option<Vec<Symbol>> {
    let table = file.section_by_name(".gopclntab")?.data().ok()?;
    let text = file.section_by_name(".text")?;
    Some(go::functions(table, text.address()..text.address().checked_add(text.size())?))
}

/// The symbols of a name, each address once, with what they are called.
fn named(symbols: &[Symbol], name: &str) -> Result<Vec<(String, Symbol)>, String> {
    let pattern = name.contains(['*', '?']).then(|| WildMatch::new(name));
    let is = |text: &str| pattern.as_ref().map_or(text == name, |p| p.matches(text));
    let mut matching: Vec<(String, Symbol)> = vec![];
    for symbol in symbols {
        // Clones of a function have its name and a suffix; a part that was moved out of the way is none.
        let plain =
            symbol.raw.split_once('.').filter(|(_, rest)| clone_of(rest)).map_or(&*symbol.raw, |(name, _)| name);
        if symbol.raw.contains(".cold") || symbol.raw.contains(".part.") {
            continue;
        }
        let (whole, short) = demangled(plain);
        if is(&symbol.raw) || is(plain) || is(&whole) || is(&short) {
            match matching.iter_mut().find(|(_, s)| s.range.start == symbol.range.start) {
                Some((_, known)) => known.range.end = known.range.end.max(symbol.range.end),
                None => matching.push((short, symbol.clone())),
            }
        }
        if matching.len() > MOST_MATCHES {
            return Err(format!("{name:?} matches more than {MOST_MATCHES} functions: give a narrower name"));
        }
    }
    if matching.is_empty() {
        return Err(if symbols.is_empty() {
            format!(
                "it has no symbols (stripped), so {name:?} is not known: install its debug package, or give a place \
                 (BIN:0x1234)"
            )
        } else {
            format!("it has no function {name:?}{}", near(symbols, name))
        });
    }
    matching.sort_by(|a, b| (&a.0, a.1.range.start).cmp(&(&b.0, b.1.range.start)));
    Ok(matching)
}

/// Whether a symbol is of an instance of a function itself, and not of what is inside of it (closures). `path`: its parts as symbols have
/// them, each with its length before it, in the old way of writing symbols (`_ZN5tokio…17h…E`) and in the new one (`_RINvNt…5tokio…`).
fn is_instance(raw: &str, path: &str) -> bool {
    let Some((before, behind)) = raw.split_once(path) else { return false };
    match before.strip_prefix("_R") {
        Some(kind) => kind.starts_with("INv") || kind.starts_with("Nv"),
        None => before.starts_with("_ZN") && behind.starts_with("17h"),
    }
}

fn clone_of(suffix: &str) -> bool {
    ["isra.", "constprop.", "llvm.", "lto_priv."].iter().any(|s| suffix.starts_with(s))
}

/// A few functions whose names hold the one that was looked for.
fn near(symbols: &[Symbol], name: &str) -> String {
    let stem = name.trim_matches(['*', '?']).rsplit("::").next().unwrap_or(name).to_lowercase();
    if stem.len() < 3 {
        return String::new();
    }
    let mut near: Vec<String> =
        symbols.iter().filter(|s| s.raw.to_lowercase().contains(&stem)).map(|s| demangled(&s.raw).1).collect();
    near.sort();
    near.dedup();
    near.truncate(4);
    if near.is_empty() { String::new() } else { format!("; it has {}", near.join(", ")) }
}

/// A symbol demangled: whole, and without parameters and what the compiler added.
pub fn demangled(raw: &str) -> (String, String) {
    if let Ok(rust) = rustc_demangle::try_demangle(raw) {
        return (rust.to_string(), format!("{rust:#}"));
    }
    if raw.starts_with("_Z")
        && let Ok(cpp) = cpp_demangle::Symbol::new(raw)
        && let Ok(whole) = cpp.demangle()
    {
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        let short = cpp.demangle_with_options(&options).unwrap_or_else(|_| whole.clone());
        return (whole, short);
    }
    (raw.to_owned(), raw.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_raw_and_demangled_and_clones_with_them() {
        let symbol = |raw: &str, at: u64| Symbol { raw: raw.into(), range: at..at + 16 };
        let symbols = [
            symbol("_ZN5Cache3getERKSs", 0x10),
            symbol("_ZN5Cache3putEv", 0x20),
            symbol("_ZN4core3fmt5Write9write_str17h0123456789abcdefE", 0x30),
            symbol("parse.isra.0", 0x40),
            symbol("parse.isra.0.cold", 0x50),
            symbol("alias", 0x40),
        ];
        let names = |name: &str| named(&symbols, name).map(|f| f.into_iter().map(|(n, _)| n).collect::<Vec<_>>());
        assert_eq!(names("Cache::get").unwrap(), ["Cache::get"]);
        assert_eq!(names("_ZN5Cache3putEv").unwrap(), ["Cache::put"]);
        assert_eq!(names("Cache::*").unwrap(), ["Cache::get", "Cache::put"]);
        assert_eq!(names("core::fmt::Write::write_str").unwrap(), ["core::fmt::Write::write_str"]);
        assert_eq!(names("parse").unwrap(), ["parse"]);
        assert_eq!(names("*").unwrap().len(), 4, "one for each address");
        assert!(names("gets").unwrap_err().contains("no function"));
        assert!(names("Pars").unwrap_err().contains("it has parse"));
        assert!(named(&[], "f").unwrap_err().contains("stripped"));
    }

    #[test]
    fn instances_of_a_function_of_rust_are_known_in_both_ways_of_writing_symbols() {
        let is = |raw| is_instance(raw, "5tokio7runtime4task3raw4poll");
        assert!(is("_ZN5tokio7runtime4task3raw4poll17hf0abdcbf3f9126b7E"));
        assert!(is("_ZN5tokio7runtime4task3raw4poll17hf0abdcbf3f9126b7E.llvm.959"));
        assert!(is("_RINvNtNtNtCs8vgO_5tokio7runtime4task3raw4pollNCNvCs1_4main4mainE"));
        assert!(!is("_ZN5tokio7runtime4task3raw4poll28_$u7b$$u7b$closure$u7d$$u7d$17hf0abdcbf3f9126b7E"));
        assert!(!is("_RNCINvNtNtNtCs8vgO_5tokio7runtime4task3raw4pollNCNvCs1_4main4mainE0"));
        assert!(!is("_ZN5tokio7runtime4task3raw8schedule17hf0abdcbf3f9126b7E") && !is("poll"));
    }

    /// A server whose symbols were removed was recorded as if it had no tasks, and nothing was said.
    #[test]
    fn a_program_of_a_crate_without_symbols_is_told_from_one_without_the_crate() {
        let asked = |path: &std::path::Path, text: &str| {
            let wanted = Wanted::Rust { paths: vec!["9no_module7nowhere".into()], trace: text.into() };
            find(File::open(path).unwrap(), None, &wanted).unwrap()
        };
        let own = std::env::current_exe().unwrap();
        assert_eq!(asked(&own, "a text of this very program, 47").refused, ["its symbols were removed"]);
        let absent: String = ["a text that", "is in no program"].join(" - ");
        assert_eq!(asked(&own, &absent), Located { build_id: asked(&own, &absent).build_id, ..Located::default() });
        // It is written in C.
        assert_eq!(asked(std::path::Path::new("/bin/ls"), "ls"), Located::default());
    }

    #[test]
    fn a_function_of_this_program_has_a_begin_and_ends() {
        let open = || File::open(std::env::current_exe().unwrap()).unwrap();
        let wanted = Wanted::Name("tailsight_symbolise::functions::demangled".into());
        let located = find(open(), None, &wanted).unwrap();
        let function = &located.functions[0];
        let EndsBy::Instructions(ends) = &function.ends else { panic!("{function:?}") };
        assert!(!ends.is_empty() && function.begins[0].0 > 0 && located.go.is_none());
        let again = find(open(), None, &Wanted::Offset(function.begins[0].0)).unwrap();
        assert_eq!(again.functions[0].begins, function.begins);
        let inside = find(open(), None, &Wanted::Offset(function.begins[0].0 + 1)).unwrap_err();
        assert!(inside.contains("inside of the function"), "{inside}");
        assert!(find(open(), None, &Wanted::Offset(0)).is_err());
        let none = Wanted::Probe { provider: "p".into(), probe: "q".into() };
        assert!(find(open(), None, &none).unwrap_err().contains("no USDT probe"));
    }
}
