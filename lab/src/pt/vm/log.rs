//! What the emulator's plugin wrote: blocks of instructions, and what ran in which order.
//!
//! In: `blocks.bin` and `log.bin` (their layout is at the head of `plugin.c`). Out: [`Log`].

use std::collections::HashMap;
use std::path::Path;

use iced_x86::{Decoder, DecoderOptions};

use super::super::flow::Kind;
use super::{read, wrong};
use crate::Result;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address.
    pub ip: u64,
    /// Bytes.
    pub len: u8,
    /// Its code.
    pub code: [u8; 15],
    /// What it is.
    pub kind: Kind,
    /// The target of a direct jump or call.
    pub target: Option<u64>,
    /// Whether it is a string instruction with a repeat prefix: the emulator starts it again for each part.
    pub repeats: bool,
}

impl Instruction {
    /// Decodes the instruction in the bytes at an address.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): it is none, or of another length than the emulator's.
    pub fn of(ip: u64, code: [u8; 15], len: u8) -> Result<Instruction> {
        let bytes = code.get(..usize::from(len)).unwrap_or_default();
        let decoded = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
        if decoded.is_invalid() || decoded.len() != usize::from(len) {
            return Err(wrong(format!("at {ip:#x} there is no instruction of {len} bytes: {bytes:x?}")));
        }
        let target = (decoded.near_branch_target() != 0).then(|| decoded.near_branch_target());
        let repeats = decoded.is_string_instruction()
            && (decoded.has_rep_prefix() || decoded.has_repe_prefix() || decoded.has_repne_prefix());
        Ok(Instruction { ip, len, code, kind: Kind::of(&decoded), target, repeats })
    }

    /// The address after it.
    pub fn behind(&self) -> u64 {
        self.ip + u64::from(self.len)
    }

    /// Whether control flow may go on at `next` without an interrupt or exception.
    pub fn leads_to(&self, next: u64) -> bool {
        match self.kind {
            Kind::Plain if self.target.is_some() => self.target == Some(next),
            Kind::Plain => next == self.behind(),
            Kind::Call => self.target == Some(next),
            Kind::Conditional => self.target == Some(next) || next == self.behind(),
            Kind::IndirectJump | Kind::IndirectCall | Kind::Return | Kind::SystemCall | Kind::FarReturn => true,
        }
    }
}

/// A task: thread and process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its number in the kernel, 0: idle.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
}

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// A block ran.
    Block {
        /// The address of its first instruction.
        ip: u64,
        /// Its number.
        block: u32,
        /// The last instruction of it that began.
        last: u16,
    },
    /// The next block begins with an interrupt's frame on its stack.
    Frame {
        /// Where it interrupted.
        ip: u64,
    },
    /// The next block is the switch of a task.
    Leaves {
        /// The task that leaves.
        task: Task,
        /// Whether it was preempted: it was still runnable.
        preempted: bool,
    },
    /// The next block begins with the task that comes.
    Comes {
        /// The task that comes.
        task: Task,
    },
    /// The first mark, by a task.
    Begin {
        /// The task that made the mark.
        task: Task,
    },
    /// The last mark.
    End,
    /// The time-stamp counter, as the processor has just read it.
    Tsc {
        /// Ticks.
        tsc: u64,
    },
}

/// The log of the emulator's plugin.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Blocks by number: addresses, lengths and code.
    pub blocks: HashMap<u32, Vec<(u64, u8, [u8; 15])>>,
    /// Lines with their virtual processor, in the order of execution.
    pub lines: Vec<(usize, Line)>,
}

impl Log {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io): it cannot be read, or does not end with the last mark.
    pub fn read(folder: &Path) -> Result<Log> {
        let mut out = Log::default();
        let bytes = read(&folder.join("blocks.bin"))?;
        let mut rest = bytes.as_slice();
        while let (Some(number), Some(n)) = (half(rest, 0), half(rest, 4)) {
            let end = 8 + 24 * n as usize;
            let Some(body) = rest.get(8..end) else { return Err(wrong("blocks.bin ends in the middle of a block")) };
            let instruction = |of: &[u8]| {
                let mut code = [0; 15];
                code.copy_from_slice(&of[9..24]);
                (long(of, 0).unwrap_or(0), of[8], code)
            };
            out.blocks.insert(number, body.chunks_exact(24).map(instruction).collect());
            rest = &rest[end..];
        }
        for entry in read(&folder.join("log.bin"))?.chunks_exact(16) {
            let (a, b) = (long(entry, 0).unwrap_or(0), half(entry, 8).unwrap_or(0));
            let c = u16::from_le_bytes([entry[12], entry[13]]);
            let task = Task { tid: a as u32, pid: (a >> 32) as u32 };
            let line = match entry[15] {
                0 => Line::Block { ip: a, block: b, last: c },
                1 => Line::Frame { ip: a },
                2 => Line::Leaves { task, preempted: c != 0 },
                3 => Line::Comes { task },
                4 => Line::Begin { task },
                5 => Line::End,
                6 => Line::Tsc { tsc: a },
                other => return Err(wrong(format!("log.bin has a line of the unknown kind {other}"))),
            };
            out.lines.push((usize::from(entry[14]), line));
        }
        match out.lines.last() {
            Some((_, Line::End)) => Ok(out),
            _ => Err(wrong("log.bin does not end with the last mark: the guest did not come so far")),
        }
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
}
