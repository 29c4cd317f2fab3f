//! What a program is built for, and what it needs of the machine's libraries. In: the bytes of an ELF file. Out: its architecture by the
//! names of rpm and of OCI; its needs by the names that rpm's own `elfdeps` gives them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::elf::{DT_GNU_HASH, DT_HASH, DT_NEEDED, EM_AARCH64, EM_X86_64, FileHeader64};
use object::read::elf::{Dyn, FileHeader, SectionTable};

/// A processor by the names that package formats have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl Architecture {
    /// The name in an rpm.
    pub fn rpm(self) -> &'static str {
        match self {
            Architecture::Amd64 => "x86_64",
            Architecture::Arm64 => "aarch64",
        }
    }

    /// The name in an OCI image, which is Go's.
    pub fn oci(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }
}

type Header = FileHeader64<Endianness>;

/// A program.
pub struct Program<'data> {
    bytes: &'data [u8],
    header: &'data Header,
    endian: Endianness,
}

impl<'data> Program<'data> {
    /// Reads the head of a 64-bit ELF file.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &'data [u8]) -> Result<Self> {
        let header = Header::parse(bytes).context("not a program (64-bit ELF)")?;
        Ok(Self { bytes, header, endian: header.endian()? })
    }

    /// What it runs on.
    ///
    /// # Errors
    /// A processor that Tailsight is not built for.
    pub fn architecture(&self) -> Result<Architecture> {
        match self.header.e_machine(self.endian) {
            EM_X86_64 => Ok(Architecture::Amd64),
            EM_AARCH64 => Ok(Architecture::Arm64),
            other => bail!("a program for the machine {other} (ELF), for which there are no packages"),
        }
    }

    /// Whether the kernel starts it alone: it names no dynamic loader.
    ///
    /// # Errors
    /// Its program headers cannot be read.
    pub fn is_static(&self) -> Result<bool> {
        let segments = self.header.program_headers(self.endian, self.bytes)?;
        Ok(!segments.iter().any(|segment| segment.p_type.get(self.endian) == object::elf::PT_INTERP))
    }

    /// The libraries and their versions that it needs, as rpm writes them: `libc.so.6(GLIBC_2.34)(64bit)`.
    ///
    /// # Errors
    /// Its tables cannot be read.
    pub fn requirements(&self) -> Result<BTreeSet<String>> {
        let sections = self.header.sections(self.endian, self.bytes)?;
        let mut requirements = self.libraries(&sections)?;
        if let Some((mut needs, strings)) = sections.gnu_verneed(self.endian, self.bytes)? {
            let strings = sections.strings(self.endian, self.bytes, strings)?;
            while let Some((need, mut versions)) = needs.next()? {
                let library = text(need.file(self.endian, strings)?)?;
                while let Some(version) = versions.next()? {
                    let version = text(version.name(self.endian, strings)?)?;
                    requirements.insert(format!("{library}({version})(64bit)"));
                }
            }
        }
        Ok(requirements)
    }

    /// The libraries without versions, and the loader's feature that a program needs which has the newer hash table alone.
    fn libraries(&self, sections: &SectionTable<'data, Header>) -> Result<BTreeSet<String>> {
        let mut requirements = BTreeSet::new();
        let Some((entries, strings)) = sections.dynamic(self.endian, self.bytes)? else { return Ok(requirements) };
        let strings = sections.strings(self.endian, self.bytes, strings)?;
        let tags = |tag: i64| entries.iter().filter(move |entry| entry.tag(self.endian) == tag);
        for entry in tags(DT_NEEDED) {
            let library = text(entry.string(self.endian, strings)?)?;
            requirements.insert(format!("{library}()(64bit)"));
        }
        if !requirements.is_empty() && tags(DT_GNU_HASH).next().is_some() && tags(DT_HASH).next().is_none() {
            requirements.insert("rtld(GNU_HASH)".to_owned());
        }
        Ok(requirements)
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).context("a library's name is no text")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The test's own program, linked as the release is.
    fn own_program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn a_program_needs_what_rpm_s_own_generator_says() {
        const GENERATOR: &str = "/usr/lib/rpm/elfdeps";
        if !std::path::Path::new(GENERATOR).exists() {
            return tailsight_testing::skip(format!("needs {GENERATOR}, of the Debian package rpm"));
        }
        let own = own_program();
        let output =
            Command::new(GENERATOR).args(["--requires"]).arg(std::env::current_exe().unwrap()).output().unwrap();
        let expected: BTreeSet<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        assert!(expected.contains("libc.so.6()(64bit)") && expected.len() > 4, "{expected:?}");
        let program = Program::parse(&own).unwrap();
        assert_eq!(program.requirements().unwrap(), expected);
        assert!(!program.is_static().unwrap());
    }

    #[test]
    fn the_architecture_is_the_one_in_the_head() {
        // Byte 18 is the machine's number.
        for (machine, expected) in [(62, Some(("x86_64", "amd64"))), (183, Some(("aarch64", "arm64"))), (243, None)] {
            let mut program = own_program();
            program[18..20].copy_from_slice(&u16::to_le_bytes(machine));
            let architecture = Program::parse(&program).unwrap().architecture().ok();
            assert_eq!(architecture.map(|a| (a.rpm(), a.oci())), expected, "{machine}");
        }
        assert!(Program::parse(b"#!/bin/sh\n").is_err());
    }
}
