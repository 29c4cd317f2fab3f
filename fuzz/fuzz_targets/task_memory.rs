//! The memory of a target in which tasks are looked for: addresses are places in the fuzzer's bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailsight_tasks::asyncio::Asyncio;
use tailsight_tasks::{Memory, cpython, go};

struct Bytes<'a>(&'a [u8]);

impl Memory for Bytes<'_> {
    fn read_each(&self, places: &[(u64, usize)]) -> Vec<Option<Vec<u8>>> {
        let read = |&(address, bytes): &(u64, usize)| {
            let from = usize::try_from(address).ok()?;
            self.0.get(from..from.checked_add(bytes)?).map(<[u8]>::to_vec)
        };
        places.iter().map(read).collect()
    }
}

fuzz_target!(|data: &[u8]| {
    let memory = Bytes(data);
    for layout in go::LAYOUTS {
        let _ = go::saved(&memory, 0, layout);
    }
    for layout in &cpython::LAYOUTS {
        if let Some(mut asyncio) = Asyncio::find(&memory, 0, layout)
            && let Some(seen) = asyncio.look(&memory)
        {
            for task in seen.tasks {
                let _ = asyncio.frames(&memory, &task.places);
            }
        }
    }
});
