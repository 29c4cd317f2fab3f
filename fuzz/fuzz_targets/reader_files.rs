//! Fuzzes what the reader does with a file of the target: symbols, debug information, unwind tables and functions to trace as a recording asks
//! for them, and maps of compiled code, compressed sections among it.
//! Run with `scripts/fuzz.sh 60 reader_files`.

#![no_main]

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use tailsight_symbolise::functions::Wanted;
use tailsight_symbolise::reader::Reader;
use tailsight_symbolise::reader::protocol::{About, Mapped, Places, Sample};
use tailsight_symbolise::unwind::Registers;

fn file(data: &[u8]) -> File {
    // SAFETY: a name that ends with a NUL.
    let fd = unsafe { libc::memfd_create(c"input".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the kernel just gave us this.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(data).expect("memory");
    file
}

/// The libraries that read files panic on some damaged ones; the reader catches that, where the fuzzer's hook would end the process first.
static QUIET: Once = Once::new();

fuzz_target!(|data: &[u8]| {
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let mut reader = Reader::in_this_process();
    reader.give(0, file(data), None, About { is_program: true, ..About::default() });
    reader.give(1, file(data), None, About::default());
    let places = vec![0, 0x1000, 0x1139, 0x2000, u64::MAX];
    let _ = reader.names(0, Places::Offsets(places.clone()));
    let _ = reader.compiled(1, places);
    let _ = reader.build_id(0);
    let probe = Wanted::Probe { provider: "p".into(), probe: "q".into() };
    for wanted in [Wanted::Name("*".into()), Wanted::Offset(0x1139), probe] {
        let _ = reader.functions(0, Some(1), &wanted);
    }
    reader.tell_maps(7, vec![Mapped { start: 0x1000, end: 0x10_0000, offset: 0, file: Some(0) }]);
    let registers = Registers { ip: 0x1139, sp: 0x7000, fp: 0x7010, lr: 0 };
    let bytes = data[..data.len().min(8192)].to_vec().into();
    let stacks = reader.unwind(vec![Sample { process: 7, registers, bytes }]);
    assert!(stacks.len() == 1 && stacks[0].len() <= 128);
});
