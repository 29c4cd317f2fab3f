//! From registers and the bytes of a stack to return addresses.
//!
//! In: [`Maps`] of a process, and of a sample instruction pointer, stack pointer, frame pointer and bytes above the stack pointer.
//! Out: code addresses, innermost first. By the unwind tables that every program carries for its exceptions (framehop); where code
//! has none, as what a runtime compiled, by its frame pointers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder,
    UnwinderNative,
};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::maps::elf::{Bytes, Elf, Section};
use crate::maps::{Mapping, Maps};

/// Most frames of a stack: deeper ones are cut at their outer end.
pub const MOST_FRAMES: usize = 128;

/// A user thread's registers, as far as stacks need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer (rbp, x29).
    pub fp: u64,
    /// Link register; 0 where the machine has none.
    pub lr: u64,
}

/// Unwinds the stacks of one process.
pub struct Unwind {
    unwinder: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Knows no tables, and goes by frame pointers.
    by_frame_pointers: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
    its_cache: CacheNative<MayAllocateDuringUnwind>,
    /// Mappings that were handed to it, by their first address.
    known: FxHashSet<u64>,
}

impl Default for Unwind {
    fn default() -> Unwind {
        Unwind {
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            by_frame_pointers: UnwinderNative::new(),
            its_cache: CacheNative::new(),
            known: FxHashSet::default(),
        }
    }
}

impl Unwind {
    /// The addresses of a stack, innermost first; each but the first is one that a call returns to. `elf` gives what is known of
    /// a mapping's file: it is asked for the mappings that stacks go through.
    pub fn stack(
        &mut self,
        maps: &Maps,
        registers: &Registers,
        stack: &[u8],
        elf: &mut dyn FnMut(&Mapping) -> Option<Arc<Elf>>,
    ) -> Vec<u64> {
        let mut out = Vec::new();
        // The tables are the process' own and may be anything.
        let _ = catch_unwind(AssertUnwindSafe(|| self.walk(maps, registers, stack, elf, &mut out)));
        out
    }

    fn walk(
        &mut self,
        maps: &Maps,
        registers: &Registers,
        stack: &[u8],
        elf: &mut dyn FnMut(&Mapping) -> Option<Arc<Elf>>,
        out: &mut Vec<u64>,
    ) {
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(registers.sp).ok_or(())?).map_err(|_| ())?;
            let bytes = stack.get(at..at.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut native = native(registers);
        let mut frame = FrameAddress::from_instruction_pointer(registers.ip);
        loop {
            let Some(mapping) = maps.find(frame.address_for_lookup()) else {
                // Data that looked like a return address, but for the first: code that was unmapped since.
                if out.is_empty() {
                    out.push(frame.address());
                }
                return;
            };
            out.push(frame.address());
            if out.len() >= MOST_FRAMES {
                return;
            }
            self.meet(mapping, elf);
            let mut next = self.unwinder.unwind_frame(frame, &mut native, &mut self.cache, &mut read);
            if out.len() == 1 && is_no_return(maps, next) && native.sp() <= registers.sp.saturating_add(8) {
                native = self::native(registers);
                next = self.by_frame_pointers.unwind_frame(frame, &mut native, &mut self.its_cache, &mut read);
            }
            let Some(caller) = next.ok().flatten().and_then(FrameAddress::from_return_address) else { return };
            frame = caller;
        }
    }

    /// Hands the unwinder the tables of a mapping that it has not met.
    fn meet(&mut self, mapping: &Mapping, elf: &mut dyn FnMut(&Mapping) -> Option<Arc<Elf>>) {
        if !self.known.insert(mapping.start) {
            return;
        }
        let Some(elf) = elf(mapping) else { return };
        let Some(address) = elf.address_of(mapping.offset) else { return };
        let taken = |section: &Option<Section>| section.as_ref().map(|s| s.bytes.clone());
        let range = |section: &Option<Section>| section.as_ref().map(|s| s.range.clone());
        let info = ExplicitModuleSectionInfo {
            base_svma: address,
            text_svma: elf.text.clone(),
            got_svma: elf.got.clone(),
            eh_frame_svma: range(&elf.eh_frame),
            eh_frame: taken(&elf.eh_frame),
            eh_frame_hdr_svma: range(&elf.eh_frame_hdr),
            eh_frame_hdr: taken(&elf.eh_frame_hdr),
            debug_frame: taken(&elf.debug_frame),
            ..ExplicitModuleSectionInfo::default()
        };
        let module = Module::new(mapping.path.clone(), mapping.start..mapping.end, mapping.start, info);
        self.unwinder.add_module(module);
    }
}

/// Whether the innermost function's return address cannot be right: it is none, or points to no code. The tables of a program do not tell of
/// all of its code: where they say nothing framehop takes the innermost function for one that has no frame, but the functions that V8
/// brings along compiled (`Builtins_*` of Node) have one, which the frame pointer shows.
fn is_no_return(maps: &Maps, next: Result<Option<u64>, framehop::Error>) -> bool {
    next.is_ok_and(|address| address.is_none_or(|address| maps.find(address.saturating_sub(1)).is_none()))
}

#[cfg(target_arch = "aarch64")]
fn native(registers: &Registers) -> UnwindRegsNative {
    let mask = framehop::aarch64::PtrAuthMask::new_24_40();
    UnwindRegsNative::new_with_ptr_auth_mask(mask, registers.lr, registers.sp, registers.fp)
}

#[cfg(not(target_arch = "aarch64"))]
fn native(registers: &Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::hint::black_box;

    /// Copies what the probe copies: this function's registers and the bytes above its stack pointer.
    #[inline(never)]
    fn here() -> (Registers, Vec<u8>) {
        let (ip, sp, fp): (u64, u64, u64);
        // SAFETY: reads registers only.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) fp);
        }
        // SAFETY: reads registers only.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) ip, out(reg) sp, out(reg) fp);
        }
        let pointer = sp as *const u8;
        // SAFETY: a test's thread has more than this of stack above here.
        let bytes = unsafe { std::slice::from_raw_parts(pointer, 2048) }.to_vec();
        (Registers { ip, sp, fp, lr: 0 }, bytes)
    }

    #[inline(never)]
    fn outer() -> (Registers, Vec<u8>) {
        black_box(here())
    }

    fn elf_of(mapping: &Mapping) -> Option<Arc<Elf>> {
        let (_, file) = mapping.open(std::process::id()).ok()?;
        Some(Arc::new(Elf::read(file).ok()?))
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_stack_without_frame_pointers_is_unwound_from_its_copied_bytes() {
        let (registers, bytes) = outer();
        let maps = Maps::of(std::process::id()).unwrap();
        let stack = Unwind::default().stack(&maps, &registers, &bytes, &mut elf_of);
        assert!(stack.len() >= 3, "{stack:x?}");
        let inside = |address: u64, function: *const ()| (0..400).contains(&(address as i64 - function as i64));
        assert!(inside(stack[0], here as *const ()), "{stack:x?}");
        assert!(inside(stack[1], outer as *const ()), "{stack:x?}");
    }

    /// Samples in the middle of `Builtins_ArrayTimSort` of Node ended there: its tables do not tell of these functions, and what lies on
    /// top of the stack is no return address.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_function_with_a_frame_that_no_table_tells_of_is_left_by_its_frame_pointer() {
        let maps = Maps::of(std::process::id()).unwrap();
        let (inner, other) = (here as *const () as u64 + 8, outer as *const () as u64 + 8);
        // Behind the program's last function, to the end of the page.
        let ip = maps.find(inner).unwrap().end - 8;
        let caller = |top: u64| {
            // Three words of the function, then its caller's frame pointer and its return address.
            let words = [top, 0x2a, 0x2a, 0, inner];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let registers = Registers { ip, sp: 0x1000, fp: 0x1018, lr: 0 };
            let stack = Unwind::default().stack(&maps, &registers, &bytes, &mut elf_of);
            assert_eq!(stack[0], ip);
            stack.get(1).copied()
        };
        assert_eq!(caller(0x2a), Some(inner));
        assert_eq!(caller(0), Some(inner));
        assert_eq!(caller(other), Some(other), "a leaf without a frame");
    }

    proptest::proptest! {
        /// Stack bytes and registers are whatever a process has in them.
        #[test]
        fn any_bytes_give_a_bounded_stack(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600),
            sp in proptest::num::u64::ANY, fp in proptest::num::u64::ANY, at in 0u64..4096,
        ) {
            let maps = Maps::of(std::process::id()).unwrap();
            let code = maps.all().first().unwrap();
            let registers = Registers { ip: code.start.wrapping_add(at), sp, fp, lr: 0 };
            let stack = Unwind::default().stack(&maps, &registers, &bytes, &mut elf_of);
            proptest::prop_assert!(stack.len() <= MOST_FRAMES && stack.first() == Some(&registers.ip));
        }

        /// So are the tables.
        #[test]
        fn damaged_tables_do_not_panic(at in 0usize..100_000, value in proptest::num::u8::ANY) {
            let mapping = Maps::of(std::process::id()).unwrap().all()[0].clone();
            let path = std::env::current_exe().unwrap();
            let mut elf = Elf::read(File::open(path).unwrap()).unwrap();
            for table in [&mut elf.eh_frame, &mut elf.eh_frame_hdr] {
                let section = table.as_mut().unwrap();
                let mut bytes = section.bytes.to_vec();
                let end = bytes.len();
                bytes[at % end] = value;
                section.bytes = bytes.into();
            }
            let elf = Arc::new(elf);
            let maps = Maps::parse(&format!("{:x}-{:x} r-xp {:x} 0:0 1 /x\n", mapping.start, mapping.end, mapping.offset));
            let registers = Registers { ip: mapping.start + at as u64 % 4096, sp: 4096, fp: 4200, lr: 0 };
            let stack = Unwind::default().stack(&maps, &registers, &[0x41; 512], &mut |_| Some(elf.clone()));
            proptest::prop_assert!(!stack.is_empty());
        }
    }
}
