// What a fuzzer's bytes mean, shared by the fuzz target and by the ordinary tests of tailsight-lifetime (which include
// this file, so that it also runs where no fuzzer is).
//
// In: bytes: chunks of (file: 1 byte, length: 2 bytes, little endian, contents); chunks of one file are joined. Out:
// nothing; the run made of those files is opened, read, and built into lifetimes, whose parts must add up.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The files of a run, by the number that a chunk gives (modulo their count).
pub const FILES: [&str; 7] = [
    "run.json",
    "events/cpu-0.arrow",
    "events/cpu-1.arrow",
    "tasks.arrow",
    "sockets.arrow",
    "clocks.arrow",
    "events/cpu-7.arrow",
];

/// One directory a process, in memory where the machine has such a place.
pub static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
    let dir = tempfile::Builder::new().prefix("tailsight-fuzz-").tempdir_in(base);
    dir.expect("a temporary directory").keep()
});

/// More events than this are read and not built: a fuzzer's input of some KiB can hold millions that are all the same.
const MOST_EVENTS: usize = 20_000;

/// The bytes that stand for a run's files.
pub fn pack(files: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (file, contents) in files {
        for chunk in contents.chunks(usize::from(u16::MAX)) {
            out.push(*file as u8);
            out.extend((chunk.len() as u16).to_le_bytes());
            out.extend(chunk);
        }
    }
    out
}

/// The files that bytes stand for; a chunk that is longer than what is left ends with it.
pub fn unpack(mut data: &[u8]) -> [Option<Vec<u8>>; FILES.len()] {
    let mut files: [Option<Vec<u8>>; FILES.len()] = Default::default();
    while let [file, low, high, rest @ ..] = data {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        files[usize::from(*file) % FILES.len()].get_or_insert_default().extend(&rest[..length]);
        data = &rest[length..];
    }
    files
}

/// Reads the run that the bytes stand for, in `dir`, which must be empty or left from an earlier call.
pub fn read_run(dir: &Path, data: &[u8]) {
    std::fs::create_dir_all(dir.join("events")).expect("the folder can be made");
    for (name, contents) in FILES.iter().zip(unpack(data)) {
        let path = dir.join(name);
        match contents {
            Some(contents) => std::fs::write(path, contents).expect("the file can be written"),
            None => drop(std::fs::remove_file(path)),
        }
    }
    let Ok(mut run) = tailsight_trace::Run::open(dir) else { return };
    let Ok(cpus) = run.events() else { return };
    // The decoder panicked, and the panic was caught: what makes it panic is to be refused before.
    assert!(!run.partial.iter().any(|why| why.contains("damaged data")), "{:?}", run.partial);
    if cpus.iter().map(|c| c.events.len()).sum::<usize>() > MOST_EVENTS {
        return;
    }
    let analysis = tailsight_lifetime::Analysis::build(&tailsight_lifetime::RunContext::of(&run), &cpus);
    let lifetimes = &analysis.lifetimes;
    for message in &lifetimes.messages {
        for leg in tailsight_lifetime::LEGS {
            let sum: u64 = lifetimes.part_slice(message.id, leg).iter().map(|p| p.ns).sum();
            assert_eq!(sum, message.latency(leg).unwrap_or(0), "the parts of {message:?} do not add up");
        }
    }
    for owner in &lifetimes.owners {
        assert!(!owner.path(&lifetimes.symbols).is_empty());
    }
}
