//! Code as basic blocks: where each ends, how, and which follow it. Each is disassembled once.
//!
//! In: the files that are mapped in an address space, at an address that runs. Out: [`CodeBlock`] blocks by number. Disassembly is
//! iced-x86's.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iced_x86::{Code as Opcode, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use rustc_hash::FxHashMap;
use tailsight_output::input::{Links, open_regular};

use crate::memory::{Memory, Region};

/// A block without a branch ends here, bytes; what follows is another.
const LONGEST: usize = 256;
/// No instruction is longer.
const LONGEST_INSTRUCTION: usize = 15;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Control flow goes on behind it: it was long enough.
    Falls,
    /// A jump to a place in the instruction.
    Jump,
    /// A conditional jump.
    Conditional,
    /// A call of a place in the instruction.
    Call,
    /// A jump to where a register or memory says.
    IndirectJump,
    /// A call of what a register or memory says.
    IndirectCall,
    /// A near return.
    Return,
    /// A system call or a software interrupt.
    FarCall,
    /// The return from a system call or an interrupt.
    FarReturn,
    /// What is not followed here: entries of virtual machines, far jumps, what is no instruction.
    Strange,
}

/// A block of code.
#[derive(Clone, Copy, Debug)]
pub struct CodeBlock {
    /// Its first instruction.
    pub ip: u64,
    /// Its last instruction.
    pub end: u64,
    /// Behind that.
    pub behind: u64,
    /// Where a direct branch goes.
    pub target: u64,
    /// The block at `target`, once it was looked up; 0: not yet.
    pub taken: u32,
    /// The block at `behind`, once it was looked up; 0: not yet.
    pub fallen: u32,
    /// Which mapping it is in.
    pub mapping: u32,
    /// Its instructions.
    pub instructions: u16,
    /// How it ends.
    pub kind: Kind,
    /// One of its instructions writes CR3.
    pub writes_cr3: bool,
}

/// What is mapped in an address space: first address, behind the last, and the number of the mapping, in order.
#[derive(Debug, Default)]
pub struct Layout(Vec<(u64, u64, u32)>);

impl Layout {
    fn mapping(&self, ip: u64) -> Option<u32> {
        let next = self.0.partition_point(|(start, ..)| *start <= ip);
        self.0[..next].last().filter(|(_, end, _)| ip < *end).map(|(.., mapping)| *mapping)
    }
}

/// A part of a file at an address: the same in every process that has it there.
struct Mapping {
    start: u64,
    end: u64,
    module: u32,
    at: u64,
    blocks: FxHashMap<u64, u32>,
}

/// The blocks of everything that ran.
pub struct Code<'a> {
    memory: &'a Memory,
    files: FxHashMap<u32, Option<File>>,
    mappings: Vec<Mapping>,
    numbers: FxHashMap<(u64, u64, u32, u64), u32>,
    /// By number; 0 is none.
    known: Vec<CodeBlock>,
    /// What [`Code::begins_behind`] found: by mapping, from where, behind what.
    begins: FxHashMap<(u32, u64, u64), Option<u64>>,
}

impl<'a> Code<'a> {
    /// Of this memory; nothing is read yet.
    pub fn new(memory: &'a Memory) -> Code<'a> {
        let none = CodeBlock {
            ip: 0,
            end: 0,
            behind: 0,
            target: 0,
            taken: 0,
            fallen: 0,
            mapping: u32::MAX,
            instructions: 0,
            kind: Kind::Strange,
            writes_cr3: false,
        };
        let (files, numbers) = (FxHashMap::default(), FxHashMap::default());
        Code { memory, files, mappings: Vec::new(), numbers, known: vec![none], begins: FxHashMap::default() }
    }

    /// What is visible of these regions: a later one covers those before it.
    pub fn layout<'r>(&mut self, regions: impl Iterator<Item = (&'r Path, &'r Region)>) -> Layout {
        let mut parts: Vec<Region> = Vec::new();
        for (_, region) in regions.filter(|(_, region)| region.end > region.start) {
            let covered = |part: &Region| part.start < region.end && region.start < part.end;
            let mut rest = Vec::new();
            parts.retain(|part| {
                if covered(part) {
                    rest.push(*part);
                }
                !covered(part)
            });
            for part in rest {
                if part.start < region.start {
                    parts.push(Region { end: region.start, ..part });
                }
                if region.end < part.end {
                    let cut = region.end - part.start;
                    parts.push(Region { start: region.end, at: part.at + cut, place: part.place + cut, ..part });
                }
            }
            parts.push(*region);
        }
        parts.sort_unstable_by_key(|part| part.start);
        let number = |part: &Region| {
            let key = (part.start, part.end, part.module, part.at);
            let mappings = &mut self.mappings;
            let number = *self.numbers.entry(key).or_insert_with(|| {
                let (start, end, module, at) = key;
                mappings.push(Mapping { start, end, module, at, blocks: FxHashMap::default() });
                mappings.len() as u32 - 1
            });
            (part.start, part.end, number)
        };
        Layout(parts.iter().map(number).collect())
    }

    /// A block by its number.
    #[inline]
    pub fn block(&self, number: u32) -> &CodeBlock {
        &self.known[number as usize]
    }

    /// The block that runs behind another: where it jumps to, or where it does not.
    #[inline]
    pub fn follows(&mut self, layout: &Layout, block: u32, taken: bool) -> Option<u32> {
        let CodeBlock { target, behind, taken: to_target, fallen, mapping, .. } = self.known[block as usize];
        let (ip, next) = if taken { (target, to_target) } else { (behind, fallen) };
        if next != 0 {
            return Some(next);
        }
        let number = self.find(layout, ip)?;
        // What is elsewhere may be another file in another process.
        if self.known[number as usize].mapping == mapping {
            let block = &mut self.known[block as usize];
            *(if taken { &mut block.taken } else { &mut block.fallen }) = number;
        }
        Some(number)
    }

    /// The block at an address; `None`: no code is there.
    pub fn find(&mut self, layout: &Layout, ip: u64) -> Option<u32> {
        let number = layout.mapping(ip)?;
        if let Some(&block) = self.mappings[number as usize].blocks.get(&ip) {
            return Some(block);
        }
        let block = self.disassemble(number, ip)?;
        self.known.push(block);
        let block = self.known.len() as u32 - 1;
        self.mappings[number as usize].blocks.insert(ip, block);
        Some(block)
    }

    fn bytes(&mut self, mapping: u32, ip: u64) -> Option<Vec<u8>> {
        let Mapping { start, end, module, at, .. } = self.mappings[mapping as usize];
        let memory = self.memory;
        let file = self.files.entry(module).or_insert_with(|| {
            let path = memory.modules[module as usize].path.as_deref()?;
            // However large: a few bytes of it are read.
            open_regular(path, Links::Follow, u64::MAX).ok().map(|(file, _)| file)
        });
        let mut bytes = vec![0; (LONGEST + LONGEST_INSTRUCTION).min(usize::try_from(end - ip).unwrap_or(usize::MAX))];
        let n = file.as_ref()?.read_at(&mut bytes, at + (ip - start)).ok()?;
        bytes.truncate(n);
        (n > 0).then_some(bytes)
    }

    fn disassemble(&mut self, mapping: u32, ip: u64) -> Option<CodeBlock> {
        let bytes = self.bytes(mapping, ip)?;
        let mut decoder = Decoder::with_ip(64, &bytes, ip, DecoderOptions::NONE);
        let (taken, fallen, writes_cr3) = (0, 0, false);
        let mut block = CodeBlock {
            ip,
            end: ip,
            behind: ip,
            target: 0,
            taken,
            fallen,
            mapping,
            instructions: 0,
            kind: Kind::Falls,
            writes_cr3,
        };
        let mut instruction = Instruction::default();
        while decoder.position() < LONGEST {
            decoder.decode_out(&mut instruction);
            let kind = match decoder.last_error() {
                DecoderError::None => kind(&instruction),
                _ => Some(Kind::Strange),
            };
            if kind == Some(Kind::Strange) && block.instructions > 0 {
                // A block of its own.
                return Some(block);
            }
            (block.end, block.behind) = (instruction.ip(), instruction.next_ip());
            block.instructions += 1;
            block.writes_cr3 |= writes_page_table(&instruction);
            if let Some(kind) = kind {
                (block.kind, block.target) = (kind, instruction.near_branch_target());
                return Some(block);
            }
        }
        Some(block)
    }

    /// Where the first instruction at an address or behind it begins, in the code that runs on from another instruction; `None`: not known.
    pub fn begins_behind(&mut self, layout: &Layout, from: u64, at: u64) -> Option<u64> {
        let mapping = layout.mapping(from)?;
        if let Some(begin) = self.begins.get(&(mapping, from, at)) {
            return *begin;
        }
        let begins = self.bytes(mapping, from).and_then(|bytes| {
            let mut decoder = Decoder::with_ip(64, &bytes, from, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while decoder.ip() < at && decoder.can_decode() {
                decoder.decode_out(&mut instruction);
            }
            (decoder.ip() >= at).then(|| decoder.ip())
        });
        self.begins.insert((mapping, from, at), begins);
        begins
    }

    /// The part of a block before an address in it: its last instruction, and how many they are; `None`: no instruction begins there.
    pub fn before(&mut self, block: u32, ip: u64) -> Option<(u64, u16)> {
        let CodeBlock { ip: first, mapping, .. } = self.known[block as usize];
        let bytes = self.bytes(mapping, first)?;
        let mut decoder = Decoder::with_ip(64, &bytes, first, DecoderOptions::NONE);
        let (mut instruction, mut n) = (Instruction::default(), 0);
        while decoder.ip() < ip && decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            n += 1;
        }
        (decoder.ip() == ip && n > 0).then(|| (instruction.ip(), n))
    }

    /// The part of a block up to the instruction that writes CR3: that, how many they are, and what is behind it.
    pub fn until_paging(&mut self, block: u32) -> Option<(u64, u16, u64)> {
        let CodeBlock { ip: first, mapping, instructions, .. } = self.known[block as usize];
        let bytes = self.bytes(mapping, first)?;
        let mut decoder = Decoder::with_ip(64, &bytes, first, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        (1..=instructions).find_map(|n| {
            decoder.decode_out(&mut instruction);
            writes_page_table(&instruction).then(|| (instruction.ip(), n, instruction.next_ip()))
        })
    }
}

/// How an instruction ends a block; `None`: it does not.
fn kind(instruction: &Instruction) -> Option<Kind> {
    Some(match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend | FlowControl::Exception => return None,
        FlowControl::ConditionalBranch => Kind::Conditional,
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Kind::Jump,
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Kind::IndirectJump,
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Kind::IndirectCall,
        FlowControl::Call if instruction.is_call_near() => Kind::Call,
        FlowControl::Call if matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) => Kind::FarCall,
        FlowControl::Interrupt if matches!(instruction.mnemonic(), Mnemonic::Int | Mnemonic::Int3) => Kind::FarCall,
        FlowControl::Return => match instruction.mnemonic() {
            Mnemonic::Ret => Kind::Return,
            Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => Kind::FarReturn,
            Mnemonic::Sysret | Mnemonic::Sysretq | Mnemonic::Sysexit | Mnemonic::Sysexitq => Kind::FarReturn,
            _ => Kind::Strange,
        },
        _ => Kind::Strange,
    })
}

fn writes_page_table(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Opcode::Mov_cr_r64 | Opcode::Mov_cr_r32) && instruction.op0_register() == Register::CR3
}
