//! Functions that the user names, from entry to return. The C is beside this file, in `functions.bpf.c`.
//!
//! In: the loaded probes and [`Place`]s: the places in files of breakpoints at the entry or a return of a function. Out:
//! [`Tracer`], which keeps the breakpoints until it is dropped, and removes those of a function that was switched off
//! because it was called too often. Without places nothing of this is loaded.

use std::collections::BTreeMap;
use std::ffi::{CString, c_ulong};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::Instant;

use libbpf_rs::{AsRawLibbpf, Link, OpenProgramMut, UprobeOpts, libbpf_sys};
use tailsight_symbolise::maps::Maps;

use super::{Extras, OnDemand, Probe};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::Opened;

/// Breakpoints and programs of functions. There are no hooks: the user chooses the places.
pub const PROBE: Probe = Probe { name: "functions", on_demand: Some(OnDemand { loads, prepare }), hooks: &[] };

/// The program at places of the target's files.
pub const PROGRAM: &str = "traced_function";

/// The programs at a function of the kernel, by the place of the function in the list.
fn of_kernel(pair: usize) -> [String; 2] {
    ["begin", "end"].map(|which| format!("kernel_{which}_{pair}"))
}

fn loads(extras: &Extras, program: &str) -> bool {
    let mut pairs = (0..extras.kernel_functions.len()).flat_map(of_kernel);
    (extras.functions && program == PROGRAM) || pairs.any(|name| name == program)
}

fn prepare(open: &mut Opened, extras: &Extras) -> Result<(), Error> {
    for (pair, (_, function)) in extras.kernel_functions.iter().enumerate() {
        let names = of_kernel(pair);
        let is_its = |program: &OpenProgramMut<'_>| names.iter().any(|name| program.name() == name.as_str());
        for mut program in open.object().progs_mut().filter(is_its) {
            let set = program.set_attach_target(0, Some(function.clone()));
            set.map_err(|e| Error::bpf(&format!("looking for {function} in the kernel"), e))?;
        }
    }
    let constants = open.constants();
    constants.function_secret = secret();
    let numbers = [
        &mut constants.kernel_function_0,
        &mut constants.kernel_function_1,
        &mut constants.kernel_function_2,
        &mut constants.kernel_function_3,
        &mut constants.kernel_function_4,
        &mut constants.kernel_function_5,
        &mut constants.kernel_function_6,
        &mut constants.kernel_function_7,
    ];
    for (number, (function, _)) in numbers.into_iter().zip(&extras.kernel_functions) {
        *number = *function as u32;
    }
    Ok(())
}

/// A number that nobody can guess: the hasher of the standard library has its keys from the kernel.
fn secret() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as u32
}

/// Functions of a recording at most. As in the C, less the number that stands for none.
pub const MOST_FUNCTIONS: usize = 255;
/// Functions of the kernel among them: a pair of programs each.
pub const MOST_OF_KERNEL: usize = 8;
/// Breakpoints at most.
pub const MOST_PLACES: usize = 1024;

/// As in the C: what a cookie says besides the function's number.
pub mod cookie {
    /// An end, else a begin.
    pub const END: u64 = 1 << 8;
    /// The return address is off the stack already.
    pub const RETURNED: u64 = 1 << 9;
    /// Of a Go program.
    pub const GO: u64 = 1 << 10;
    /// The thread switches to another goroutine.
    pub const SWITCH: u64 = 1 << 11;
    /// The thread switches to no goroutine.
    pub const NONE: u64 = 1 << 12;
    /// Where the condition of a jump stands, plus 1.
    pub const CONDITION_SHIFT: u32 = 16;
}

/// A place of a file at which a breakpoint is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function by number; `None`: of the whole program.
    pub function: Option<usize>,
    /// The file as the recorder opens it.
    pub file: PathBuf,
    /// Bytes from its start.
    pub offset: u64,
    /// Where the probe's semaphore is in the file; 0: none.
    pub semaphore: u64,
    /// Whether it is set at the return address.
    pub at_return: bool,
    /// The bits of the cookie, without the function's number.
    pub cookie: u64,
    /// Whether a hit takes one trap, as [`tailsight_symbolise::functions::emulated`] says.
    pub emulated: bool,
}

/// Breakpoints that are set.
#[derive(Default)]
pub struct Tracer {
    links: Vec<(Option<usize>, Link)>,
}

impl Tracer {
    /// Sets them all. `program`: by name.
    ///
    /// # Errors
    /// What the kernel refused first: a span without its end would be wrong.
    pub fn set(&mut self, loaded: &Loaded, program: &str, places: &[Place]) -> Result<(), (Option<usize>, String)> {
        let Some(program) = loaded.probes.object().progs_mut().find(|p| p.name() == program) else {
            return Err((None, "the program is not loaded".into()));
        };
        for place in places {
            let options = UprobeOpts {
                ref_ctr_offset: place.semaphore as usize,
                cookie: place.cookie | place.function.unwrap_or(0) as u64,
                retprobe: place.at_return,
                ..UprobeOpts::default()
            };
            // For every process that runs the file, because children of the target come and go. The program ignores other
            // processes.
            let link = program.attach_uprobe_with_opts(-1, &place.file, place.offset as usize, options);
            let link = link.map_err(|e| (place.function, format!("setting a breakpoint failed: {e:#}")))?;
            self.links.push((place.function, link));
        }
        Ok(())
    }

    /// Sets all breakpoints of each file at once, where the kernel can.
    ///
    /// # Errors
    /// Where it cannot. None is set then.
    pub fn set_many(&mut self, loaded: &Loaded, program: &str, places: &[Place]) -> Result<(), String> {
        let Some(program) = loaded.probes.object().progs_mut().find(|p| p.name() == program) else {
            return Err("the program is not loaded".into());
        };
        let mut by_file: BTreeMap<&Path, Vec<&Place>> = BTreeMap::new();
        places.iter().for_each(|place| by_file.entry(&place.file).or_default().push(place));
        let mut links = vec![];
        for (file, places) in by_file {
            let offsets: Vec<c_ulong> = places.iter().map(|place| place.offset as c_ulong).collect();
            let cookies: Vec<u64> = places.iter().map(|place| place.cookie).collect();
            let options = libbpf_sys::bpf_uprobe_multi_opts {
                sz: size_of::<libbpf_sys::bpf_uprobe_multi_opts>() as libbpf_sys::size_t,
                offsets: offsets.as_ptr(),
                cookies: cookies.as_ptr(),
                cnt: places.len() as libbpf_sys::size_t,
                ..Default::default()
            };
            let path = CString::new(file.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
            // For every process that runs the file, as one by one.
            // SAFETY: the program is loaded, and the arrays live until the call returns.
            let link = unsafe {
                libbpf_sys::bpf_program__attach_uprobe_multi(
                    program.as_libbpf_object().as_ptr(),
                    -1,
                    path.as_ptr(),
                    std::ptr::null(),
                    &raw const options,
                )
            };
            let failed = || format!("setting breakpoints failed: {}", std::io::Error::last_os_error());
            // SAFETY: libbpf made it, and nobody else has it.
            links.push((None, unsafe { Link::from_ptr(NonNull::new(link).ok_or_else(failed)?) }));
        }
        self.links.extend(links);
        Ok(())
    }

    /// Attaches the pair of programs of a function of the kernel.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn set_kernel(&mut self, loaded: &Loaded, function: usize, pair: usize) -> Result<(), String> {
        // The end first: a begin without an end would stay open.
        for name in [format!("kernel_end_{pair}"), format!("kernel_begin_{pair}")] {
            let program = loaded.probes.object().progs_mut().find(|p| p.name() == name.as_str());
            let program = program.ok_or("the program is not loaded")?;
            let link = program.attach().map_err(|e| format!("the kernel refused a program there: {e:#}"))?;
            self.links.push((Some(function), link));
        }
        Ok(())
    }

    /// Removes the breakpoints of a function.
    pub fn remove(&mut self, function: usize) {
        self.links.retain(|(of_function, _)| *of_function != Some(function));
    }

    /// Whether there are any of a function.
    pub fn has(&self, function: usize) -> bool {
        self.links.iter().any(|(of_function, _)| *of_function == Some(function))
    }

    /// Removes all breakpoints.
    pub fn clear(&mut self) {
        self.links.clear();
    }
}

core::arch::global_asm!(
    ".globl tailsight_calibration",
    ".type tailsight_calibration, @function",
    "tailsight_calibration:",
    "nop",
    "ret",
    ".size tailsight_calibration, . - tailsight_calibration"
);
unsafe extern "C" {
    /// A function of two instructions, which is called with a breakpoint and without.
    fn tailsight_calibration();
}

/// What the trap of one hit costs without the program, ns, measured on a function of our own with a breakpoint and without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrapNs {
    /// At an instruction that the kernel emulates: one trap.
    pub emulated: f64,
    /// At one that the thread executes out of line, with a trap after it: two traps.
    pub stepped: f64,
}

impl TrapNs {
    /// The less of two measurements: other work only adds.
    #[must_use]
    pub fn least(self, other: TrapNs) -> TrapNs {
        TrapNs { emulated: self.emulated.min(other.emulated), stepped: self.stepped.min(other.stepped) }
    }
}

/// Measures it with a program that is loaded. `None` where a breakpoint cannot be set.
pub fn trap_ns(loaded: &Loaded, program: &str) -> Option<TrapNs> {
    const BATCHES: u32 = 20;
    const CALLS: u32 = 50;
    let address = tailsight_calibration as *const () as u64;
    let maps = Maps::of(std::process::id()).ok()?;
    let mapping = maps.find(address)?;
    let offset = (address - mapping.start + mapping.offset) as usize;
    let program = loaded.probes.object().progs_mut().find(|p| p.name() == program)?;
    // The least of several, each shorter than a tick: others run on this machine.
    let batch = || {
        let began = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: it takes nothing, gives nothing and returns at once.
            unsafe { tailsight_calibration() };
        }
        began.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let least = || (0..BATCHES).map(|_| batch()).fold(f64::INFINITY, f64::min);
    let without = least();
    let own = std::process::id().cast_signed();
    let with = |offset: usize| {
        let link = program.attach_uprobe_with_opts(own, "/proc/self/exe", offset, UprobeOpts::default()).ok()?;
        let with = least();
        drop(link);
        Some((with - without).max(0.0))
    };
    // The instruction behind `nop`: a byte further on x86, four on ARM.
    let ret = if cfg!(target_arch = "x86_64") { 1 } else { 4 };
    Some(TrapNs { emulated: with(offset)?, stepped: with(offset + ret)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout of a cookie is written down twice: here and in the C.
    #[test]
    fn a_cookie_says_what_the_program_reads() {
        let c = include_str!("functions.bpf.c");
        let bits = [
            ("END", cookie::END),
            ("RETURNED", cookie::RETURNED),
            ("GO", cookie::GO),
            ("SWITCH", cookie::SWITCH),
            ("NONE", cookie::NONE),
        ];
        for (name, bit) in bits {
            assert!(c.contains(&format!("#define COOKIE_{name} (1 << {})", bit.trailing_zeros())), "{name}");
        }
        assert!(c.contains(&format!("#define COOKIE_CONDITION_SHIFT {} ", cookie::CONDITION_SHIFT)));
        assert!(c.contains(&format!("#define MOST_FUNCTIONS {}\n", MOST_FUNCTIONS + 1)));
        assert_eq!(c.matches("\nKERNEL_FUNCTION(").count(), MOST_OF_KERNEL);
    }
}
