//! The kind of control flow of each instruction of a program.
//!
//! In: an ELF file of x86-64. Out: [`Kind`]s by address. By iced-x86, which shares nothing with perf and libipt's block decoder.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::{Error, Result};

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Control flow goes on after it, or jumps to an address in the instruction.
    Plain,
    /// A conditional jump.
    Conditional,
    /// A jump to an address in a register or memory.
    IndirectJump,
    /// A call of an address in the instruction.
    Call,
    /// A call of an address in a register or memory.
    IndirectCall,
    /// A near return.
    Return,
    /// A system call.
    SystemCall,
    /// The return from a system call or an interrupt.
    FarReturn,
}

impl Kind {
    /// Of an instruction.
    pub fn of(instruction: &Instruction) -> Kind {
        match instruction.flow_control() {
            _ if instruction.mnemonic() == Mnemonic::Syscall => Kind::SystemCall,
            FlowControl::ConditionalBranch => Kind::Conditional,
            FlowControl::IndirectBranch => Kind::IndirectJump,
            FlowControl::Call => Kind::Call,
            FlowControl::IndirectCall => Kind::IndirectCall,
            FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => Kind::Return,
            FlowControl::Return => Kind::FarReturn,
            _ => Kind::Plain,
        }
    }

    /// Whether it is a call.
    pub fn calls(self) -> bool {
        matches!(self, Kind::Call | Kind::IndirectCall)
    }
}

/// The code of a program.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its first address.
    pub start: u64,
    /// Where in the file that is.
    pub offset: u64,
    bytes: Vec<u8>,
}

impl Code {
    /// Takes an ELF file whose code is in one segment.
    ///
    /// # Errors
    /// [`Error::Io`] when it is none.
    pub fn of(elf: &[u8]) -> Result<Code> {
        let bad = || Error::io("read the stepped program", std::io::Error::other("it is no ELF file with code"));
        let word = |at: usize, n: usize| -> Option<u64> {
            Some(elf.get(at..at + n)?.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b)))
        };
        let table = word(32, 8).ok_or_else(bad)? as usize;
        let count = word(56, 2).ok_or_else(bad)? as usize;
        for at in (0..count).map(|i| table + 56 * i) {
            let fields = (word(at, 4), word(at + 4, 4), word(at + 8, 8), word(at + 16, 8), word(at + 32, 8));
            let (Some(1), Some(flags), Some(offset), Some(start), Some(len)) = fields else { continue };
            if flags & 1 != 0 {
                let bytes = elf.get(offset as usize..(offset + len) as usize).ok_or_else(bad)?.to_vec();
                return Ok(Code { start, offset, bytes });
            }
        }
        Err(bad())
    }

    /// Bytes of code.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The instruction at an address, and how long it is.
    fn decode(&self, ip: u64) -> Option<(Kind, u64)> {
        let at = usize::try_from(ip.checked_sub(self.start)?).ok()?;
        let instruction = Decoder::with_ip(64, self.bytes.get(at..)?, ip, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then(|| (Kind::of(&instruction), instruction.len() as u64))
    }

    /// A look-up that remembers.
    pub fn look_up(&self) -> impl FnMut(u64) -> Result<(Kind, u64)> + '_ {
        let mut decoded: HashMap<u64, (Kind, u64)> = HashMap::new();
        move |ip| {
            if let Some(instruction) = decoded.get(&ip) {
                return Ok(*instruction);
            }
            let what = || Error::io(format!("decode the instruction at {ip:#x}"), std::io::Error::other("it is none"));
            let instruction = self.decode(ip).ok_or_else(what)?;
            decoded.insert(ip, instruction);
            Ok(instruction)
        }
    }
}
