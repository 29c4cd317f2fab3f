//! Fuzzes what is read of a target's programs: ELF headers, unwind tables, maps, maps of compiled code, mounts; no panic that gets out, no
//! hang.
//! Run with `scripts/fuzz.sh 60 elf_tables`.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tailsight_host::mounts::Mounts;
use tailsight_symbolise::maps::Maps;
use tailsight_symbolise::maps::elf::{Elf, exported};
use tailsight_symbolise::resolve::perf_map::PerfMap;
use tailsight_symbolise::unwind::{Registers, Unwind};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let _ = Maps::parse(&text).find(0x1000);
    let _ = PerfMap::parse(data).find(0x1000);
    let _ = Mounts::parse(data).is_served(Path::new("/tmp"));
    let _ = exported(data);
    let Ok(elf) = Elf::parse(data) else { return };
    let elf = Arc::new(elf);
    let maps = Maps::parse("1000-100000 r-xp 0 0:0 1 /x\n");
    let stack = &data[..data.len().min(8192)];
    for ip in [0x1000, 0x1040, 0x2345] {
        let registers = Registers { ip, sp: 0x7000, fp: 0x7010, lr: 0 };
        let found = Unwind::default().stack(&maps, &registers, stack, &mut |_| Some(elf.clone()));
        assert!(!found.is_empty() && found.len() <= 128);
    }
});
