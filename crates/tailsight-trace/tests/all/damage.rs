//! Damaged and hostile run directories: cut at every byte, bits turned, garbage behind, lengths that lie. Whatever a
//! file holds, reading it gives a result or an error, whole batches before the damage, and takes memory in proportion.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tailsight_trace::Run;

use crate::sample;

const FILES: [&str; 6] =
    ["run.json", "events/cpu-0.arrow", "events/cpu-1.arrow", "tasks.arrow", "sockets.arrow", "clocks.arrow"];

/// A valid run, once for all tests.
fn valid() -> &'static [Vec<u8>; 6] {
    static FILES_READ: std::sync::OnceLock<[Vec<u8>; 6]> = std::sync::OnceLock::new();
    FILES_READ.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        sample::write(dir.path());
        FILES.map(|name| fs::read(dir.path().join(name)).unwrap())
    })
}

/// A run directory whose file `changed` holds other bytes. The others are written when they are not there yet, so a
/// directory serves for one changed file only.
fn run_with(dir: &Path, changed: usize, bytes: &[u8]) -> PathBuf {
    fs::create_dir_all(dir.join("events")).unwrap();
    for (i, name) in FILES.iter().enumerate() {
        let path = dir.join(name);
        if i == changed {
            fs::write(path, bytes).unwrap();
        } else if !path.exists() {
            fs::write(path, &valid()[i]).unwrap();
        }
    }
    dir.to_path_buf()
}

/// Opens and reads; events read of each core, and whether the run says that it is not whole.
fn read(dir: &Path) -> Result<(Vec<usize>, bool), tailsight_trace::Error> {
    let mut run = Run::open(dir)?;
    let cpus = run.events()?;
    // A panic of the decoder is caught; what makes it panic is to be refused before.
    assert!(!run.partial.iter().any(|why| why.contains("damaged data")), "{:?}", run.partial);
    Ok((cpus.iter().map(|c| c.events.len()).collect(), !run.partial.is_empty()))
}

#[test]
fn cut_at_every_byte_every_whole_batch_is_read_and_the_cut_is_said() {
    for (file, whole) in valid().iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        for length in 0..whole.len() {
            let result = read(&run_with(dir.path(), file, &whole[..length]));
            if file == 0 {
                // Only the last line break of run.json may be missing.
                assert!(result.is_err() || length + 1 == whole.len(), "run.json cut at {length}");
                continue;
            }
            let (events, partial) = result.unwrap_or_else(|e| panic!("{} cut at {length}: {e}", FILES[file]));
            assert!(partial, "{} cut at {length} of {} is called whole", FILES[file], whole.len());
            for (cpu, n) in events.iter().enumerate() {
                let expected: &[usize] = if cpu + 1 == file { &[0, 60, 120] } else { &[120] };
                assert!(expected.contains(n), "{} cut at {length}: {n} events of core {cpu}", FILES[file]);
            }
            let most = if file <= 2 && length + 8 >= whole.len() { 120 } else { 0 };
            assert!(file > 2 || events[file - 1] >= most, "{} cut at {length}: whole batches are lost", FILES[file]);
        }
    }
}

#[test]
fn garbage_behind_the_end_changes_nothing() {
    for file in 1..FILES.len() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = valid()[file].clone();
        bytes.extend([0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0x7f].repeat(100));
        assert_eq!(read(&run_with(dir.path(), file, &bytes)).unwrap(), (vec![120, 120], false));
    }
}

/// Every length that a stream declares, made huge: nothing is allocated for it. (A reader that trusts them dies of the
/// allocation, which no test can catch: this test then ends the whole test run.)
#[test]
fn lengths_that_lie_are_not_believed() {
    let lies: [&[u8]; 4] = [
        &[0xff, 0xff, 0xff, 0x7f],
        &[0xff; 4],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0, 0, 0, 0, 0, 1, 0, 0],
    ];
    for file in 1..FILES.len() {
        let dir = tempfile::tempdir().unwrap();
        let whole = &valid()[file];
        for at in (0..whole.len()).step_by(4) {
            for lie in lies {
                let mut bytes = whole.clone();
                let end = whole.len().min(at + lie.len());
                bytes[at..end].copy_from_slice(&lie[..end - at]);
                let _ = read(&run_with(dir.path(), file, &bytes));
            }
        }
    }
    assert!(peak_memory_kib() < 600_000, "{} KiB were taken", peak_memory_kib());
}

/// The most memory that this process ever had.
fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn turned_bits_and_changed_bytes_never_panic(
        file in 0usize..6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        removed in any::<prop::sample::Index>(),
        inserted in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = valid()[file].clone();
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        let at = removed.index(bytes.len());
        bytes.splice(at..(at + inserted.len() / 2).min(bytes.len()), inserted);
        if let Ok((events, _)) = read(&run_with(dir.path(), file, &bytes)) {
            // A damaged batch may decode to other values, never to more rows than its bytes can hold.
            prop_assert!(events.iter().sum::<usize>() <= 240 * 1024);
        }
    }

    #[test]
    fn any_bytes_at_all_never_panic(file in 0usize..6, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let _ = read(&run_with(dir.path(), file, &bytes));
    }
}
