//! The instructions at which a function ends: returns, and jumps to other functions (tail calls).
//!
//! In: the bytes of a function, with what the compiler moved elsewhere, and their addresses. Out: [`End`]s, as addresses. A jump
//! inside of the function is none; one to its first instruction is a call of itself in place of its end. A jump by a register is a jump
//! table when its target was just read from one, or when the compiler marked it (`notrack`); else it leaves.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use serde::{Deserialize, Serialize};

/// One such instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct End {
    /// Where it is.
    pub at: u64,
    /// Of a conditional jump: the condition's code (Intel SDM, appendix B); it ends the function only when that holds.
    pub condition: Option<u8>,
}

/// Most ends of a function: each costs a breakpoint.
pub const MOST_ENDS: usize = 64;
/// Instructions before a jump in which its table is looked for.
const NEAR: usize = 8;

type Pieces<'a> = &'a [(Range<u64>, Vec<u8>)];

/// Of x86-64. `start`: the function's first address.
///
/// # Errors
/// Why they cannot be told.
pub fn x86(pieces: Pieces<'_>, start: u64) -> Result<Vec<End>, String> {
    let inside = |address: u64| address != start && pieces.iter().any(|(range, _)| range.contains(&address));
    let mut out = vec![];
    for (range, bytes) in pieces {
        let mut recent: Vec<Instruction> = vec![];
        for instruction in Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE) {
            if instruction.is_invalid() {
                return Err(format!("its instruction at 0x{:x} cannot be decoded", instruction.ip()));
            }
            let end = match instruction.flow_control() {
                FlowControl::Return => Some(None),
                FlowControl::UnconditionalBranch if !inside(instruction.near_branch_target()) => Some(None),
                FlowControl::ConditionalBranch if !inside(instruction.near_branch_target()) => {
                    if instruction.is_jcx_short() || instruction.is_loop() || instruction.is_loopcc() {
                        return Err("it ends at a jump that may be an exit".into());
                    }
                    Some(Some(instruction.condition_code() as u8 - 1))
                }
                FlowControl::IndirectBranch if leaves(&instruction, &recent, bytes, range.start) => Some(None),
                _ => None,
            };
            out.extend(end.map(|condition| End { at: instruction.ip(), condition }));
            if recent.len() == NEAR {
                recent.remove(0);
            }
            recent.push(instruction);
        }
    }
    concluded(out)
}

fn concluded(mut out: Vec<End>) -> Result<Vec<End>, String> {
    out.sort_unstable();
    match out.len() {
        0 => Err("it has no return instruction".into()),
        n if n > MOST_ENDS => Err(format!("it has {n} exits; at most {MOST_ENDS} can be traced")),
        _ => Ok(out),
    }
}

/// Whether a jump by a register or through memory leaves the function.
fn leaves(jump: &Instruction, recent: &[Instruction], bytes: &[u8], start: u64) -> bool {
    let notrack = bytes.get((jump.ip() - start) as usize) == Some(&0x3e);
    let by_index = jump.op0_kind() == OpKind::Memory && jump.memory_index() != Register::None;
    let from_table = |i: &Instruction| {
        let reads = matches!(i.mnemonic(), Mnemonic::Movsxd | Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Add);
        reads && i.op1_kind() == OpKind::Memory && i.memory_index() != Register::None && i.memory_index_scale() >= 2
    };
    let table = jump.op0_kind() == OpKind::Register && recent.iter().any(from_table);
    !(notrack || by_index || table) && jump.code() != Code::INVALID
}

/// Of 64-bit ARM: `ret`, and `b` or `br` to elsewhere. A conditional jump to elsewhere is none that compilers write.
///
/// # Errors
/// Why they cannot be told.
pub fn arm64(pieces: Pieces<'_>, start: u64) -> Result<Vec<End>, String> {
    let inside = |address: u64| address != start && pieces.iter().any(|(range, _)| range.contains(&address));
    let mut out = vec![];
    for (range, bytes) in pieces {
        for (word, at) in bytes.chunks_exact(4).zip((range.start..).step_by(4)) {
            let instruction = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let ret = instruction & 0xffff_fc1f == 0xd65f_0000 || instruction & 0xffff_fbff == 0xd65f_0bff;
            let jump = instruction & 0xfc00_0000 == 0x1400_0000;
            let distance = i64::from((instruction << 6).cast_signed() >> 6) * 4;
            if instruction & 0xffff_fc1f == 0xd61f_0000 {
                return Err("it jumps by a register, to a table or elsewhere".into());
            }
            if ret || (jump && !inside(at.wrapping_add_signed(distance))) {
                out.push(End { at, condition: None });
            }
        }
    }
    concluded(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(bytes: &[u8]) -> Result<Vec<(u64, Option<u8>)>, String> {
        let pieces = [(0x1000..0x1000 + bytes.len() as u64, bytes.to_vec())];
        x86(&pieces, 0x1000).map(|ends| ends.iter().map(|e| (e.at - 0x1000, e.condition)).collect())
    }

    #[test]
    fn returns_and_tail_calls_end_a_function() {
        // test edi,edi; je +1 (to ret); nop; ret
        assert_eq!(ends(&[0x85, 0xff, 0x74, 0x01, 0x90, 0xc3]).unwrap(), [(5, None)]);
        // jmp far away; repz ret
        assert_eq!(ends(&[0xe9, 0, 1, 0, 0, 0xf3, 0xc3]).unwrap(), [(0, None), (5, None)]);
        // jne far away (condition 5); ret
        assert_eq!(ends(&[0x0f, 0x85, 0, 1, 0, 0, 0xc3]).unwrap(), [(0, Some(5)), (6, None)]);
        // nop; jmp to the begin: it calls itself in place of its end; ret
        assert_eq!(ends(&[0x90, 0xeb, 0xfd, 0xc3]).unwrap(), [(1, None), (3, None)]);
        // jmp rax; jmp [rip+0]
        assert_eq!(ends(&[0xff, 0xe0, 0xff, 0x25, 0, 0, 0, 0]).unwrap(), [(0, None), (2, None)]);
    }

    #[test]
    fn jump_tables_stay_inside() {
        // notrack jmp rax; ret
        assert_eq!(ends(&[0x3e, 0xff, 0xe0, 0xc3]).unwrap(), [(3, None)]);
        // movsxd rax,[rdx+rax*4]; add rax,rdx; jmp rax; ret
        assert_eq!(ends(&[0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3]).unwrap(), [(9, None)]);
        // jmp [rax*8+0x1000]; ret
        assert_eq!(ends(&[0xff, 0x24, 0xc5, 0, 0x10, 0, 0, 0xc3]).unwrap(), [(7, None)]);
    }

    #[test]
    fn what_was_moved_elsewhere_belongs_to_it() {
        // jmp to 0x2000, which jumps back to the ret.
        let (main, cold) = (vec![0xe9, 0xfb, 0x0f, 0, 0, 0xc3], vec![0xe9, 0x00, 0xf0, 0xff, 0xff]);
        let pieces = [(0x1000..0x1006, main), (0x2000..0x2005, cold)];
        assert_eq!(x86(&pieces, 0x1000).unwrap(), [End { at: 0x1005, condition: None }]);
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        assert!(ends(&[0x06]).unwrap_err().contains("cannot be decoded"));
        assert!(ends(&[0x90]).unwrap_err().contains("no return instruction"));
        assert!(ends(&[0xc3; 100]).unwrap_err().contains("100 exits"));
        // jrcxz far away
        assert!(ends(&[0xe3, 0x40, 0xc3]).unwrap_err().contains("may be an exit"));
    }

    #[test]
    fn of_arm_too() {
        let pieces = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            [(0x1000..0x1000 + bytes.len() as u64, bytes)]
        };
        let at =
            |words: &[u32]| arm64(&pieces(words), 0x1000).map(|e| e.iter().map(|e| e.at - 0x1000).collect::<Vec<_>>());
        // nop; b +4 (inside); ret; b far; retaa
        assert_eq!(at(&[0xd503_201f, 0x1400_0001, 0xd65f_03c0, 0x1400_0400, 0xd65f_0bff]).unwrap(), [8, 12, 16]);
        // b to the begin
        assert_eq!(at(&[0xd503_201f, 0x17ff_ffff]).unwrap(), [4]);
        assert!(at(&[0xd61f_0000]).is_err());
    }
}
