//! Instructions at which a breakpoint costs one trap, because the kernel does in software what they do.
//!
//! In: code. Out: whether an instruction is one, and the first one behind a function's begin at which its first argument is still in its register.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register, UsedRegister,
};

/// Instructions of a function that are looked at.
const NEAR: usize = 16;

/// Whether the kernel emulates this instruction (arch/x86/kernel/uprobes.c): `nop`, `push` of a register, jumps and calls to
/// a place that they name. `code`: its first bytes.
pub fn is_emulated(code: &[u8]) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    matches!(
        *code,
        [0x90 | 0x50..=0x57 | 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb, ..] | [0x66, 0x90, ..] | [0x0f, 0x80..=0x8f, ..]
    )
}

/// The first such instruction of a function of x86-64, in bytes from its begin, before it overwrites its first argument or goes anywhere else; its
/// begin where there is none.
pub fn near_begin(code: &[u8]) -> u64 {
    let mut factory = InstructionInfoFactory::new();
    let mut overwrites_first_argument = |one: &Instruction| {
        let written = |used: &&UsedRegister| !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        let mut written = factory.info(one).used_registers().iter().filter(written);
        written.any(|used| used.register().full_register() == Register::RDI)
    };
    for instruction in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().take(NEAR) {
        if instruction.is_invalid() {
            return 0;
        }
        if is_emulated(&code[instruction.ip() as usize..]) {
            return instruction.ip();
        }
        if instruction.flow_control() != FlowControl::Next || overwrites_first_argument(&instruction) {
            return 0;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_the_kernel_does_itself_are_known() {
        if cfg!(target_arch = "x86_64") {
            assert!(is_emulated(&[0x55]) && is_emulated(&[0x90]) && is_emulated(&[0xe9, 0, 0, 0, 0]));
            assert!(!is_emulated(&[0xc3]) && !is_emulated(&[0xf3, 0x0f, 0x1e, 0xfa]) && !is_emulated(&[]));
        }
    }

    /// A breakpoint at the begin of tokio's `clone_waker` takes two traps, one at its jump takes one.
    #[test]
    fn the_place_has_the_first_argument() {
        if cfg!(target_arch = "x86_64") {
            // mov $0x40,%eax; lock xadd %rax,(%rdi); test %rax,%rax; js .
            let clone_waker = [0xb8, 0x40, 0, 0, 0, 0xf0, 0x48, 0x0f, 0xc1, 0x07, 0x48, 0x85, 0xc0, 0x78, 0x0b];
            assert_eq!(near_begin(&clone_waker), 13);
            assert_eq!(near_begin(&[0x53, 0x48, 0x89, 0xfb]), 0, "push at once");
            // mov %rsi,%rdi; push %rbx: the argument is gone.
            assert_eq!(near_begin(&[0x48, 0x89, 0xf7, 0x53]), 0);
            // xor %edi,%edi; push %rbx, and a return before any.
            assert_eq!((near_begin(&[0x31, 0xff, 0x53]), near_begin(&[0xc3, 0x53])), (0, 0));
            assert_eq!(near_begin(&[]), 0);
        }
    }
}
