//! Names of the functions that addresses are in.
//!
//! In: places in files, addresses of the kernel, addresses in code that a runtime compiled. Out: [`FrameRow`]s, of one address several
//! where functions were put into others. By blazesym: ELF symbols, debug information in the file or beside it, the kernel's own list.

pub mod jvm;
pub mod perf_map;
mod status;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, symbolize};
use tailsight_trace::samples::FrameRow;

/// What the kernel's frames have as their module.
pub const KERNEL: &str = "[kernel]";

/// A name longer than this is cut: generated code has some of many KiB.
const LONGEST_NAME: usize = 400;

/// Looks names up, and keeps what it has read of each file.
pub struct Resolve {
    symbolizer: Symbolizer,
}

impl Default for Resolve {
    fn default() -> Resolve {
        let symbolizer = symbolize::Builder::default()
            .enable_auto_reload(false)
            .enable_code_info(true)
            .enable_inlined_fns(true)
            .enable_demangling(true)
            .build();
        Resolve { symbolizer }
    }
}

impl Resolve {
    /// The frames of places in a file, given as offsets in the file, innermost first. Empty ones are not known. `debug`: by debug
    /// information too, in the file and where the file says that it is.
    pub fn file(&self, path: &Path, offsets: &[u64], debug: bool) -> Vec<Vec<FrameRow>> {
        let source = Source::Elf(Elf { debug_syms: debug, ..Elf::new(path) });
        self.look_up(&source, Input::FileOffset(offsets), offsets.len(), false)
    }

    /// The frames of addresses in a file's own address space, likewise.
    pub fn addresses(&self, path: &Path, addresses: &[u64], debug: bool) -> Vec<Vec<FrameRow>> {
        let source = Source::Elf(Elf { debug_syms: debug, ..Elf::new(path) });
        self.look_up(&source, Input::VirtOffset(addresses), addresses.len(), false)
    }

    /// The functions of kernel addresses.
    pub fn kernel(&self, addresses: &[u64]) -> Vec<Vec<FrameRow>> {
        let kernel = Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() };
        let mut by_address = self.look_up(&Source::Kernel(kernel), Input::AbsAddr(addresses), addresses.len(), true);
        for frame in by_address.iter_mut().filter(|frames| frames.is_empty()) {
            frame.push(FrameRow { module: KERNEL.into(), kernel: true, ..FrameRow::default() });
        }
        by_address
    }

    fn look_up(&self, source: &Source<'_>, input: Input<&[u64]>, n: usize, kernel: bool) -> Vec<Vec<FrameRow>> {
        // The files are the target's own and may hold anything.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.symbolizer.symbolize(source, input)));
        let symbolised = outcome.ok().and_then(Result::ok).unwrap_or_default();
        let mut out: Vec<Vec<FrameRow>> = symbolised.iter().map(|of| frames(of, kernel)).collect();
        out.resize(n, Vec::new());
        out
    }
}

fn frames(of: &Symbolized<'_>, kernel: bool) -> Vec<FrameRow> {
    let Symbolized::Sym(sym) = of else { return vec![] };
    // The innermost function is the last inlined one; each is called from where the next one's `code_info` says.
    let mut out: Vec<FrameRow> = sym.inlined.iter().rev().map(|f| named(&f.name, f.code_info.as_ref(), true)).collect();
    out.push(FrameRow { offset: sym.offset as u64, kernel, ..named(&sym.name, sym.code_info.as_deref(), false) });
    if kernel {
        let module = module_of(sym);
        out.iter_mut().for_each(|frame| (frame.kernel, frame.module) = (true, module.clone()));
    }
    out
}

fn module_of(sym: &Sym<'_>) -> String {
    let module = sym.module.as_ref().map(|m| m.to_string_lossy().into_owned()).filter(|m| m.starts_with('['));
    module.unwrap_or_else(|| KERNEL.into())
}

fn named(name: &str, code: Option<&CodeInfo<'_>>, inlined: bool) -> FrameRow {
    let source = code.map_or_else(String::new, |code| match code.line {
        Some(line) => format!("{}:{line}", code.file.to_string_lossy()),
        None => code.file.to_string_lossy().into_owned(),
    });
    FrameRow { function: shortened(name), source, inlined, own: !code.is_some_and(is_of_crate), ..FrameRow::default() }
}

/// Whether a line of source is of a crate that Cargo fetched, or of Rust's standard library: in a program with debug information that tells
/// better than names, which have no path where only lines were kept.
fn is_of_crate(code: &CodeInfo<'_>) -> bool {
    let path = code.to_path().to_string_lossy().into_owned();
    ["/.cargo/registry/", "/.cargo/git/", "/rustc/", "/rustlib/src/"].iter().any(|library| path.contains(library))
}

/// A name as a table can hold it: without control characters, and not longer than it is of use.
pub(crate) fn shortened(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(LONGEST_NAME).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::Maps;

    #[inline(never)]
    fn a_function_with_a_name_of_its_own() {}

    #[test]
    fn a_function_of_this_program_has_its_name() {
        let maps = Maps::of(std::process::id()).unwrap();
        let here = a_function_with_a_name_of_its_own as *const () as u64;
        let mapping = maps.find(here).unwrap();
        let path = std::env::current_exe().unwrap();
        let frames = Resolve::default().file(&path, &[here - mapping.start + mapping.offset, u64::MAX], true);
        let name = &frames[0].last().unwrap().function;
        assert!(name.ends_with("a_function_with_a_name_of_its_own"), "{name}");
        assert!(frames[1].is_empty());
    }

    #[test]
    fn files_that_are_no_programs_have_no_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        std::fs::write(&path, "#!/bin/sh\n".repeat(100)).unwrap();
        assert_eq!(Resolve::default().file(&path, &[10], true), [vec![]]);
        assert_eq!(Resolve::default().file(&dir.path().join("absent"), &[10, 20], true), [vec![], vec![]]);
    }

    /// The kernel's own list is readable to root only; else its frames say where they are and not what.
    #[test]
    fn no_address_of_the_kernel_gets_out() {
        let address = 0xffff_ffff_8100_0123;
        for frame in Resolve::default().kernel(&[address]).concat() {
            assert!(frame.kernel && frame.offset < 1 << 30, "{frame:?}");
            assert!(!format!("{frame:?}").contains(&format!("{address:x}")));
        }
    }

    #[test]
    fn names_are_of_a_bounded_length_and_print() {
        assert_eq!(shortened("a\tb\u{1b}[31m "), "a b [31m");
        assert_eq!(shortened(&"x".repeat(100_000)).len(), LONGEST_NAME);
    }
}
