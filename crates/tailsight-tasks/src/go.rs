//! Goroutines in the memory of a process.
//!
//! In: the address of a goroutine (`runtime.g`), the version of Go. Out: what it is at, its saved registers and its stack's bounds; none where
//! the memory does not look like one. Where its fields are depends on the version ([`LAYOUTS`]); of another version nothing is read.

use tailsight_symbolise::unwind::Registers;
use tailsight_trace::routines::State;

use crate::memory::{Memory, word};

/// Bytes of a goroutine that are read.
const ROUTINE_BYTES: usize = 192;

/// Where the fields of `runtime.g` are, bytes from its start. Its stack's bounds, and the saved stack pointer, program counter and the
/// goroutine itself are at the same places in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Versions 1.`first` to 1.`last`.
    first: u32,
    last: u32,
    /// The saved frame pointer (`sched.bp`).
    frame_pointer: usize,
    /// `atomicstatus`.
    status: usize,
}

impl Layout {
    /// Where a goroutine has its saved frame pointer, bytes from its start. The goroutine of a thread (`runtime.m.curg`) is 88 bytes further on in
    /// `runtime.m` in all these versions, which the probes know.
    pub fn saved_frame_pointer(&self) -> usize {
        self.frame_pointer
    }
}

const STACK_LOW: usize = 0;
const STACK_HIGH: usize = 8;
const STACK_POINTER: usize = 56;
const PROGRAM_COUNTER: usize = 64;
const ITSELF: usize = 72;

/// By version, from the debug information of programs that each of them built (amd64 and arm64 have the same). 1.17 is the first that keeps
/// the goroutine in a register, and the program does not say its version where 1.18 and later do.
pub const LAYOUTS: &[Layout] = &[
    Layout { first: 18, last: 22, frame_pointer: 104, status: 144 },
    Layout { first: 23, last: 24, frame_pointer: 104, status: 152 },
    // Without `gobuf.ret`.
    Layout { first: 25, last: 26, frame_pointer: 96, status: 144 },
];

/// The layout of a version as Go writes it: `go1.22.5`, `go1.23rc1`, `go1.26.8 X:nocoverageredesign`.
pub fn layout(version: &str) -> Option<&'static Layout> {
    let digits = version.strip_prefix("go1.")?;
    let minor = digits.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()?;
    LAYOUTS.iter().find(|layout| (layout.first..=layout.last).contains(&minor))
}

/// A goroutine's saved registers and its stack's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// `atomicstatus`.
    pub status: u32,
    /// Its saved registers.
    pub registers: Registers,
    /// Where its stack ends.
    pub stack_high: u64,
}

/// What a goroutine's status says (`runtime2.go`); none of one that is dead or about to be made.
pub fn state_of(status: u32) -> Option<State> {
    // While a collector scans its stack.
    const SCANNED: u32 = 0x1000;
    match status & !SCANNED {
        1 => Some(State::Runnable),
        2 => Some(State::Running),
        3 => Some(State::InSyscall),
        4 => Some(State::Waiting),
        // It was preempted and waits to go on.
        9 => Some(State::Runnable),
        _ => None,
    }
}

/// What a goroutine has saved; none where this is no goroutine any more, or never was.
pub fn saved(memory: &impl Memory, address: u64, layout: &Layout) -> Option<Saved> {
    parse(&memory.read(address, ROUTINE_BYTES)?, address, layout)
}

/// A goroutine's bytes. It names itself, and its saved stack pointer lies in its stack, or is 0 while a thread runs it: other memory does not look so.
fn parse(bytes: &[u8], address: u64, layout: &Layout) -> Option<Saved> {
    let word = |at: usize| word(bytes, at);
    let (low, high, sp) = (word(STACK_LOW)?, word(STACK_HIGH)?, word(STACK_POINTER)?);
    let status = word(layout.status)? as u32;
    let runs = sp == 0 && state_of(status) == Some(State::Running);
    let is_one = word(ITSELF)? == address && low < high && (runs || (low..=high).contains(&sp));
    let registers = Registers { ip: word(PROGRAM_COUNTER)?, sp, fp: word(layout.frame_pointer)?, lr: 0 };
    is_one.then_some(Saved { status, registers, stack_high: high })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the debug information of programs that these versions built.
    #[test]
    fn each_version_has_its_layout() {
        let offsets_of = |version: &str| layout(version).map(|layout| (layout.frame_pointer, layout.status));
        for version in ["go1.18.10", "go1.20.14", "go1.21.13", "go1.22.12"] {
            assert_eq!(offsets_of(version), Some((104, 144)), "{version}");
        }
        for version in ["go1.23.12", "go1.24.13", "go1.24rc1"] {
            assert_eq!(offsets_of(version), Some((104, 152)), "{version}");
        }
        for version in ["go1.25.0", "go1.26.8", "go1.26.8 X:boringcrypto"] {
            assert_eq!(offsets_of(version), Some((96, 144)), "{version}");
        }
        for version in ["go1.17.13", "go1.27.0", "go2.1", "devel go1.27-abc", "", "go1."] {
            assert_eq!(offsets_of(version), None, "{version}");
        }
    }

    #[test]
    fn what_is_no_goroutine_is_not_taken_for_one() {
        let layout = layout("go1.26.8").unwrap();
        let mut bytes = vec![0u8; ROUTINE_BYTES];
        let mut set = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        set(STACK_LOW, 0x1000);
        set(STACK_HIGH, 0x3000);
        set(STACK_POINTER, 0x2f00);
        set(PROGRAM_COUNTER, 0x40_0000);
        set(ITSELF, 0xc000_0040);
        set(96, 0x2f40);
        set(144, 4);
        let goroutine = parse(&bytes, 0xc000_0040, layout).unwrap();
        assert_eq!(goroutine.registers, Registers { ip: 0x40_0000, sp: 0x2f00, fp: 0x2f40, lr: 0 });
        assert_eq!((state_of(goroutine.status), goroutine.stack_high), (Some(State::Waiting), 0x3000));
        assert_eq!(parse(&bytes, 0xc000_0080, layout), None, "it names another");
        assert_eq!(parse(&bytes[..100], 0xc000_0040, layout), None, "it is cut");
        bytes[STACK_POINTER..STACK_POINTER + 8].copy_from_slice(&0x4000u64.to_le_bytes());
        assert_eq!(parse(&bytes, 0xc000_0040, layout), None, "its stack pointer is not in its stack");
        bytes[STACK_POINTER..STACK_POINTER + 8].fill(0);
        assert_eq!(parse(&bytes, 0xc000_0040, layout), None, "it waits, and has no stack pointer");
        bytes[144] = 2;
        assert!(parse(&bytes, 0xc000_0040, layout).is_some(), "a thread runs it, and has its registers");
        assert_eq!([state_of(0x1004), state_of(6), state_of(9)], [Some(State::Waiting), None, Some(State::Runnable)]);
    }
}
