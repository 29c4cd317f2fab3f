//! The code of address spaces, and what was found out of it.
//!
//! In: the [`Memory`]. Out: blocks of code for one decoder, images of libipt for the other, and which function is at an address.

use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;

use libipt::insn::Class;
use libipt_sys::pt_image;
use rustc_hash::FxHashMap;

use crate::blocks::code::{Code, CodeBlock, Layout};
use crate::blocks::images::{Images, Mode};
use crate::memory::{KERNEL_HALF, Memory, Region};

/// The code of all address spaces, of one thread at a time: reading a file and finding where the branches in it are is done once, not
/// once a piece.
pub struct Spaces<'a> {
    memory: &'a Memory,
    images: Images,
    code: Code<'a>,
    numbers: FxHashMap<(u32, usize), usize>,
    all: Vec<Space>,
    /// Functions of the kernel, by its version ([`Memory::kernel_version`]) and address.
    kernel: FxHashMap<(usize, u64), Range<u64>>,
}

/// What is mapped in a process from one change of that to the next.
struct Space {
    pid: u32,
    /// A time when it was.
    ns: u64,
    layout: Layout,
    /// For libipt, once it was needed, by mode.
    images: [Option<NonNull<pt_image>>; Mode::COUNT],
    functions: FxHashMap<u64, Range<u64>>,
    /// Classes of indirect jumps by address.
    classes: FxHashMap<u64, Class>,
}

impl<'a> Spaces<'a> {
    /// Of this memory; nothing is read yet.
    pub fn new(memory: &'a Memory) -> Spaces<'a> {
        let (numbers, kernel) = (FxHashMap::default(), FxHashMap::default());
        Spaces { memory, images: Images::default(), code: Code::new(memory), numbers, all: Vec::new(), kernel }
    }

    /// The number of what was mapped in a process at a time.
    pub(crate) fn of(&mut self, pid: u32, ns: u64) -> usize {
        let key = (pid, self.memory.version(pid, ns));
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let layout = self.code.layout(files(self.memory, pid, ns));
        let (functions, classes) = (FxHashMap::default(), FxHashMap::default());
        self.all.push(Space { pid, ns, layout, images: [None; Mode::COUNT], functions, classes });
        self.numbers.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }

    /// The blocks of a space.
    #[inline]
    pub(crate) fn code(&mut self, space: usize) -> (&mut Code<'a>, &Layout) {
        (&mut self.code, &self.all[space].layout)
    }

    /// A block by its number.
    #[inline]
    pub(crate) fn block(&self, number: u32) -> &CodeBlock {
        self.code.block(number)
    }

    /// See [`Code::before`].
    pub(crate) fn before(&mut self, block: u32, ip: u64) -> Option<(u64, u16)> {
        self.code.before(block, ip)
    }

    /// See [`Code::until_paging`].
    pub(crate) fn until_paging(&mut self, block: u32) -> Option<(u64, u16, u64)> {
        self.code.until_paging(block)
    }

    /// What libipt reads the code of a space from in a mode; it lives as long as this.
    pub(crate) fn image(&mut self, space: usize, mode: Mode) -> Option<NonNull<pt_image>> {
        let Space { pid, ns, images, .. } = &mut self.all[space];
        let image = &mut images[mode as usize];
        if image.is_none() {
            let files = files(self.memory, *pid, *ns);
            *image = self.images.image(mode, files.map(|(path, r)| (path, r.at, r.end - r.start, r.start)));
        }
        *image
    }

    /// Where the function at an address of a space begins and ends; where no function is known, what lies between two that are.
    /// `kernel`: the kernel's version, and a time when it was.
    pub(crate) fn function(&mut self, space: Option<usize>, kernel: (usize, u64), ip: u64) -> Range<u64> {
        let cached = match space {
            _ if ip >= KERNEL_HALF => self.kernel.get(&(kernel.0, ip)),
            Some(space) => self.all[space].functions.get(&ip),
            None => None,
        };
        if let Some(function) = cached {
            return function.clone();
        }
        let (pid, ns) = space.map_or((0, kernel.1), |space| (self.all[space].pid, self.all[space].ns));
        let function = self.memory.function(pid, ip, if ip >= KERNEL_HALF { kernel.1 } else { ns });
        match space {
            _ if ip >= KERNEL_HALF => drop(self.kernel.insert((kernel.0, ip), function.clone())),
            Some(space) => drop(self.all[space].functions.insert(ip, function.clone())),
            None => {}
        }
        function
    }

    /// What is known of the indirect jumps of a space, by address.
    pub(crate) fn classes(&mut self, space: usize) -> &mut FxHashMap<u64, Class> {
        &mut self.all[space].classes
    }
}

/// What is mapped in a process at a time, of what there is a file.
fn files(memory: &Memory, pid: u32, ns: u64) -> impl Iterator<Item = (&Path, &Region)> {
    memory.regions(pid, ns).filter_map(|region| Some((memory.modules[region.module as usize].path.as_deref()?, region)))
}
