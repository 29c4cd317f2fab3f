//! Which function is at an address, by number.

use rustc_hash::FxHashMap;

use super::{Core, Stacks};
use crate::memory::KERNEL_HALF;

/// Functions by number.
#[derive(Debug, Default)]
pub struct Names {
    numbers: FxHashMap<(u32, u64), u32>,
    /// Module ([`u32::MAX`]: none) and place of each.
    pub places: Vec<(u32, u64)>,
}

impl Names {
    fn number(&mut self, module: u32, place: u64) -> u32 {
        let places = &mut self.places;
        *self.numbers.entry((module, place)).or_insert_with(|| {
            places.push((module, place));
            places.len() as u32 - 1
        })
    }
}

/// Stands for the kernel where a process is told by its number.
const KERNEL: u32 = u32::MAX;

impl Stacks<'_> {
    /// The number of what is mapped for an address.
    fn space(&mut self, core: &mut Core<'_>, ns: u64, ip: u64) -> u32 {
        let key = if ip >= KERNEL_HALF {
            (KERNEL, self.memory.kernel_version(ns))
        } else {
            if let Some((space, until)) = core.space
                && ns < until
            {
                return space;
            }
            let (version, until) = self.memory.version_until(core.pid, ns);
            core.space = Some((0, until));
            (core.pid, version)
        };
        let next = self.spaces.len() as u32;
        let space = *self.spaces.entry(key).or_insert(next);
        if let (false, Some((core_space, _))) = (ip >= KERNEL_HALF, &mut core.space) {
            *core_space = space;
        }
        space
    }

    /// The number of the function at an address, and whether that is its beginning.
    pub(super) fn function(&mut self, core: &mut Core<'_>, ns: u64, ip: u64) -> (u32, bool) {
        let space = self.space(core, ns, ip);
        if let Some(&function) = self.found.get(&(space, ip)) {
            return function;
        }
        let region = self.memory.find(core.pid, ip, ns);
        let (module, place, at, named) = match region {
            None => (u32::MAX, ip, ip, false),
            Some(region) => {
                let at = region.place(ip);
                let symbol = self.memory.modules[region.module as usize].symbols.at(at);
                (region.module, symbol.map_or(at, |f| f.range.start), at, symbol.is_some())
            }
        };
        let function = self.names.number(module, place);
        if function as usize == self.unnamed.len() {
            self.unnamed.push(!named);
            self.kernel.push(ip >= KERNEL_HALF);
        }
        self.found.insert((space, ip), (function, at == place));
        (function, at == place)
    }
}
