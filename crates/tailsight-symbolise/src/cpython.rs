//! Which CPython a program or library is, and where it keeps what it knows of itself.
//!
//! In: the file. Out: [`Cpython`]: its version, and the address of `_PyRuntime`, from which a reader of the process's memory comes to
//! everything else. Both are exported names, which a stripped file has too, from 3.11 on.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, Symbol, elf};
use serde::{Deserialize, Serialize};

/// A CPython.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpython {
    /// As `sys.hexversion` has it: 0x030b02f0 is 3.11.2.
    pub version: u32,
    /// Where `_PyRuntime` is, in the file's own address space.
    pub runtime: u64,
    /// What is added to an offset of code in the file to get its address there.
    pub code_bias: u64,
}

impl Cpython {
    /// The version as text: `3.11.2`.
    pub fn version_text(&self) -> String {
        let [major, minor, micro, _] = self.version.to_be_bytes();
        format!("{major}.{minor}.{micro}")
    }
}

/// Which CPython a file is; none of other programs and libraries, and of those before 3.11.
pub fn cpython_of(file: File) -> Option<Cpython> {
    let read = || {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let exported = |name: &str| file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
        let (runtime, version) = (exported("_PyRuntime")?, exported("Py_Version")?);
        let is_code = |segment: &object::Segment<'_, '_, _>| match segment.flags() {
            SegmentFlags::Elf { p_flags } => p_flags & elf::PF_X != 0,
            _ => false,
        };
        let code = file.segments().find(is_code)?;
        let code_bias = code.address().wrapping_sub(code.file_range().0);
        Some(Cpython { version: word_at(&file, &version)?, runtime: runtime.address(), code_bias })
    };
    catch_unwind(AssertUnwindSafe(read)).ok().flatten()
}

/// The number in a constant.
fn word_at<'data, R: ReadRef<'data>>(file: &object::File<'data, R>, symbol: &Symbol<'data, '_, R>) -> Option<u32> {
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let bytes = section.data_range(symbol.address(), 8).ok()??;
    u32::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_python_has_none() {
        assert_eq!(cpython_of(File::open("/proc/self/exe").unwrap()), None);
        assert_eq!(cpython_of(File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn the_version_reads_as_python_writes_it() {
        let text_of = |version| Cpython { version, runtime: 0, code_bias: 0 }.version_text();
        assert_eq!([text_of(0x030b_02f0), text_of(0x030d_05f0)], ["3.11.2", "3.13.5"]);
    }
}
