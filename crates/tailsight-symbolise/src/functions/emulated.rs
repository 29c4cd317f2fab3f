//! Instructions at which a breakpoint costs one trap, because the kernel does in software what they do.
//!
//! In: code. Out: whether an instruction is one, the first one behind a function's begin at which its first argument is still in its register,
//! and the calls of a function.

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
    first_with(code, Register::RDI).unwrap_or(0)
}

/// The first such instruction of code, in bytes from its begin, before it overwrites a register or goes anywhere else.
fn first_with(code: &[u8], kept: Register) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let mut overwrites_it = |one: &Instruction| {
        let written = |used: &&UsedRegister| !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        let mut written = factory.info(one).used_registers().iter().filter(written);
        written.any(|used| used.register().full_register() == kept)
    };
    for instruction in Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().take(NEAR) {
        if instruction.is_invalid() {
            return None;
        }
        if is_emulated(&code[instruction.ip() as usize..]) {
            return Some(instruction.ip());
        }
        if instruction.flow_control() != FlowControl::Next || overwrites_it(&instruction) {
            return None;
        }
    }
    None
}

/// The calls by which code of x86-64 that lies at the address `begin` goes to the function at `called`, which they name.
fn calls(code: &[u8], begin: u64, called: u64) -> impl Iterator<Item = Instruction> {
    let decoder = Decoder::with_ip(64, code, begin, DecoderOptions::NONE);
    let is_call =
        move |one: &Instruction| one.flow_control() == FlowControl::Call && one.near_branch_target() == called;
    decoder.into_iter().filter(is_call)
}

/// Where they are: addresses.
pub fn calls_of(code: &[u8], begin: u64, called: u64) -> impl Iterator<Item = u64> {
    calls(code, begin, called).map(|one| one.ip())
}

/// Where such an instruction follows each of them, before the second result of a function of Go is overwritten: addresses.
pub fn after_calls_of(code: &[u8], begin: u64, called: u64) -> impl Iterator<Item = u64> {
    calls(code, begin, called).filter_map(move |one| {
        let after = one.next_ip();
        Some(after + first_with(code.get((after - begin) as usize..)?, Register::RBX)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go's `runtime.newproc.func1`, from where the new goroutine is in a register on.
    #[test]
    fn a_call_is_told_by_where_it_goes() {
        // mov %rax,%rbx; mov $1,%ecx; mov %rdx,%rax; nopl 0(%rax,%rax,1); call; cmpb …; call.
        let code = [
            0x48, 0x89, 0xc3, 0xb9, 1, 0, 0, 0, 0x48, 0x89, 0xd0, 0x0f, 0x1f, 0x44, 0, 0, 0xe8, 0x9b, 0x50, 0, 0, 0x80,
            0x3d, 0xd2, 0xd5, 0x9d, 0, 0, 0xe8, 0x8d, 0xab, 2, 0,
        ];
        let calls = |called: u64| calls_of(&code, 0x45_ebb0, called).collect::<Vec<_>>();
        assert_eq!(calls(0x46_3c60), [0x45_ebc0]);
        assert_eq!(calls(0x46_3c61), [0; 0]);
        assert!(calls_of(&code[..17], 0x45_ebb0, 0x46_3c60).next().is_none(), "it is cut");
    }

    /// `crypto/tls.(*Conn).Write` of Go 1.26 and of 1.20, behind its calls of `writeRecordLocked`.
    #[test]
    fn the_place_behind_a_call_has_its_second_result() {
        // call; mov %rax,0x38(%rsp); test %rbx,%rbx; je .
        let by_jump = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0x44, 0x24, 0x38, 0x48, 0x85, 0xdb, 0x74, 0x18];
        assert_eq!(after_calls_of(&by_jump, 0x1000, 0x1005).collect::<Vec<_>>(), [0x100d]);
        // call; mov %rbx,0x90(%rsp); lea 0(%rip),%rax; call another one.
        let by_call =
            [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0x9c, 0x24, 0x90, 0, 0, 0, 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xe8, 1, 0, 0, 0];
        assert_eq!(after_calls_of(&by_call, 0x1000, 0x1005).collect::<Vec<_>>(), [0x1014]);
        // call; mov %rax,%rbx; je .
        let gone = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xc3, 0x74, 0x18];
        assert!(after_calls_of(&gone, 0x1000, 0x1005).next().is_none());
    }

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
