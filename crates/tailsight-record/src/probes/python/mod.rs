//! Functions of Python that threads of the target are in, read where samples are taken. The C is beside this file, in `python.bpf.c`.
//!
//! In: processes whose CPython is known, and where it keeps its threads. Out: of a sample the code objects that its thread was in, and where in
//! them ([`Called`]); their names are in the memory of the process.

use libbpf_rs::{MapCore, MapFlags};
use tailsight_tasks::cpython::Threads;

use super::Probe;
use crate::error::Error;
use crate::loaded::Loaded;

/// No hooks: samples ask.
pub const PROBE: Probe = Probe { name: "python", on_demand: None, hooks: &[] };

/// As in the C.
pub const FRAMES: usize = 24;
/// Bytes of a function in a sample.
pub const FRAME_BYTES: usize = 16;
/// In the address of the code: the interpreter's C called it.
const ENTERED: u64 = 1 << 63;

/// A function of Python that runs, or the mark of a call from C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The address of its code object; 0: a mark alone.
    pub code: u64,
    /// Where in its instructions it is, an address.
    pub instruction: u64,
    /// The interpreter's C called it: its callers are behind that on the thread's stack.
    pub entered: bool,
}

impl Called {
    /// The code object and the instruction; none of a mark alone.
    pub fn place(self) -> Option<(u64, u64)> {
        (self.code != 0).then_some((self.code, self.instruction))
    }

    /// Of the words in a sample.
    pub fn of([code, instruction]: [u64; 2]) -> Called {
        Called { code: code & !ENTERED, instruction, entered: code & ENTERED != 0 }
    }
}

/// Tells the programs of a process whose CPython is known.
///
/// # Errors
/// [`Error::Bpf`].
pub fn tell(loaded: &mut Loaded, pid: u32, threads: Threads) -> Result<(), Error> {
    // `struct python_process`.
    let numbers = [threads.native_id, threads.frame, threads.behind.map_or(0, |at| at + 1), u32::from(threads.minor)];
    let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
    let value: Vec<u8> = threads.first.to_ne_bytes().into_iter().chain(numbers).collect();
    let updated = loaded.probes.maps.python_processes.update(&pid.to_ne_bytes(), &value, MapFlags::ANY);
    updated.map_err(|e| Error::bpf("telling which processes run Python", e))?;
    loaded.probes.variables_mut().python_processes_told += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a frame is, is written down twice: here and in the C.
    #[test]
    fn a_frame_is_read_as_the_program_writes_it() {
        let c = include_str!("python.bpf.c");
        assert!(c.contains(&format!("#define PYTHON_FRAMES {FRAMES}\n")));
        assert!(c.contains(&format!("#define PYTHON_ENTERED (1ULL << {})\n", ENTERED.trailing_zeros())));
        assert_eq!(Called::of([0x70 | ENTERED, 5]), Called { code: 0x70, instruction: 5, entered: true });
        assert_eq!(
            (Called::of([0x70 | ENTERED, 5]).place(), Called::of([ENTERED, 5]).place()),
            (Some((0x70, 5)), None)
        );
    }
}
