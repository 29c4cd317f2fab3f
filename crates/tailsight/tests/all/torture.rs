//! What strangers leave behind, again and again: recordings killed at random moments, disks that are too small, runs that are
//! damaged. `make torture` gives each part minutes, `make test` seconds; each prints what it did.
//!
//! In: `TAILSIGHT_TORTURE`, seconds for each part (default 8). Out: counts, on standard output.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{run, shown, tailsight};

/// Random numbers from a seed that is printed (xorshift64*).
struct Random(u64);

impl Random {
    fn new(part: &str) -> Random {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let seed = std::env::var("TAILSIGHT_TORTURE_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or(now.as_nanos() as u64 | 1);
        println!("torture, {part}: TAILSIGHT_TORTURE_SEED={seed}");
        Random(seed | 1)
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }
}

/// How long a part goes on.
fn budget() -> Duration {
    let seconds = std::env::var("TAILSIGHT_TORTURE").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(8))
}

/// A recording of this test program's child, in a folder.
fn record(out: &Path, length: &str) -> Command {
    tailsight(&["record", "-d", length, "-o", &out.display().to_string(), "--buffer", "8M", "--", "sleep", "5"])
}

/// What a user asks of a run: no panic (101) and no signal, whatever the run is.
fn asked(path: &Path) -> Vec<std::process::Output> {
    let path = path.display().to_string();
    let asked = [vec!["diagnose", &path, "--json"], vec!["show", &path, "3"], vec!["ideal", &path]];
    asked
        .iter()
        .map(|words| {
            let output = run(words);
            let code = output.status.code();
            assert!(code.is_some_and(|c| (0..=4).contains(&c)), "{words:?}: {}", shown(&output));
            output
        })
        .collect()
}

#[test]
fn a_recording_that_is_killed_at_any_moment_leaves_a_run_that_opens_or_none() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let (began, mut random) = (Instant::now(), Random::new("kills"));
    let (mut kills, mut none, mut cut) = (0, 0, 0);
    while began.elapsed() < budget() {
        let out = dir.path().join(format!("run-{kills}"));
        let mut child = record(&out, "500ms").spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(1_800_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        // The command of a killed recorder has lost its parent: it ends by itself.
        match tailsight_trace::Run::open(&out) {
            Err(error) => {
                assert!(!out.join("run.json").exists(), "a run that says it is one does not open: {error}");
                none += 1;
            }
            Ok(mut opened) => {
                opened.events().expect("its events are read");
                cut += usize::from(!opened.partial.is_empty());
                let odd = opened.partial.iter().find(|why| why.contains("digest") || why.contains("damaged data"));
                assert!(odd.is_none(), "a kill is no damage: {:?}", opened.partial);
                asked(&out);
            }
        }
    }
    println!(
        "torture, kills: {kills} recordings killed: {none} left no run, {cut} a partial one, {} a whole one",
        kills - none - cut
    );
    assert!(kills > 2);
}

/// A tmpfs that goes with the test.
struct Disk(PathBuf);

impl Disk {
    fn new(at: &Path, kib: usize) -> Disk {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={kib}k,mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).status().unwrap();
        assert!(mounted.success());
        Disk(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_disk_that_is_too_small_what_fits_is_kept_and_nothing_is_half_written() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let (began, mut random) = (Instant::now(), Random::new("disks"));
    let (mut disks, mut refused, mut cut, mut exports) = (0, 0, 0, 0);
    while began.elapsed() < budget() {
        let disk = Disk::new(&dir.path().join(format!("disk-{disks}")), 64 + random.below(1200));
        disks += 1;
        let output = record(&disk.0.join("run"), "300ms").output().unwrap();
        assert!(output.status.code().is_some_and(|c| c <= 1), "{}", shown(&output));
        match tailsight_trace::Run::open(&disk.0.join("run")) {
            Err(_) => refused += 1,
            Ok(mut opened) => {
                opened.events().expect("its events are read");
                let whole = opened.partial.is_empty();
                cut += usize::from(!whole);
                assert_eq!(whole, output.status.success(), "{:?}: {}", opened.partial, shown(&output));
            }
        }
        let golden = format!("{}/../tailsight-lifetime/tests/golden/memcached-requests", env!("CARGO_MANIFEST_DIR"));
        let tables = disk.0.join("tables");
        let output = run(&["export", &golden, "-o", &tables.display().to_string()]);
        for name in ["messages.parquet", "lifetimes.parquet"] {
            let file = std::fs::read(tables.join(name)).unwrap_or_default();
            let whole = file.ends_with(b"PAR1");
            assert!(whole || file.is_empty() && !output.status.success(), "{name} is half written: {}", shown(&output));
            assert!(!tables.join(format!("{name}.tmp")).exists());
        }
        exports += usize::from(!output.status.success());
    }
    println!(
        "torture, disks: {disks} small disks: {refused} had no room for a run, {cut} cut one, {exports} refused an export"
    );
    assert!(disks > 2);
}

/// A golden run, written again with checksums.
fn sealed(to: &Path) {
    let golden = format!("{}/../tailsight-lifetime/tests/golden/memcached-requests", env!("CARGO_MANIFEST_DIR"));
    let mut old = tailsight_trace::Run::open(Path::new(&golden)).unwrap();
    let events = old.events().unwrap();
    let mut meta = old.meta.clone();
    meta.version = tailsight_trace::FORMAT_VERSION;
    let mut writer = tailsight_trace::RunWriter::create(to, &meta).unwrap();
    events.iter().for_each(|core| writer.events(core.cpu, &core.events).unwrap());
    writer.tasks(&old.tasks).unwrap();
    writer.sockets(&old.sockets).unwrap();
    writer.clocks(&old.clocks).unwrap();
    writer.finish(&mut meta).unwrap();
}

#[test]
fn a_damaged_run_gives_its_answer_or_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    sealed(&path);
    let whole = asked(&path);
    assert!(whole[0].stderr.is_empty() && whole[0].status.code() == Some(0), "{}", shown(&whole[0]));
    let files: Vec<String> =
        tailsight_trace::Run::open(&path).unwrap().meta.files.into_iter().map(|f| f.name).collect();
    let files: Vec<String> = files.into_iter().chain(["run.json".to_owned()]).collect();
    let (began, mut random) = (Instant::now(), Random::new("damage"));
    let (mut rounds, mut failed, mut warnings) = (0, 0, 0);
    while began.elapsed() < budget() {
        let name = &files[random.below(files.len())];
        let file = path.join(name);
        let before = std::fs::read(&file).unwrap();
        let mut bytes = before.clone();
        match random.below(5) {
            0 => bytes.truncate(random.below(before.len())),
            1 => bytes = std::fs::read(path.join(&files[random.below(files.len())])).unwrap(),
            2 if name == "run.json" => {
                // A number of it becomes another one.
                let digits: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i].is_ascii_digit()).collect();
                bytes[digits[random.below(digits.len())]] = b'0' + random.below(10) as u8;
            }
            _ => (0..=random.below(3)).for_each(|_| bytes[random.below(before.len())] ^= 1 + random.below(255) as u8),
        }
        rounds += 1;
        std::fs::write(&file, &bytes).unwrap();
        for (output, right) in asked(&path).iter().zip(&whole) {
            let silent = output.stderr == right.stderr;
            failed += usize::from(!output.status.success());
            warnings += usize::from(!silent);
            assert!(
                !silent || output.stdout == right.stdout,
                "{name}: another answer without a word: {}",
                shown(output)
            );
            assert!(!silent || bytes == before, "{name} was changed, and nobody said so");
        }
        std::fs::write(&file, &before).unwrap();
    }
    println!(
        "torture, damage: {rounds} damaged runs, each asked three things: {warnings} answers say so, {failed} of them fail"
    );
    assert!(rounds > 2);
}

/// A user who may load programs and may not read other processes' descriptors recorded, exit 0, "the target has no server port".
#[test]
fn without_the_right_to_read_sockets_a_recording_is_refused_and_says_which() {
    let lacks = tailsight_testing::lacks_root().or_else(|| tailsight_testing::lacks_program("setpriv"));
    if let Some(reason) = lacks {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let copy = dir.path().join("tailsight");
    tailsight_testing::copy_program(env!("CARGO_BIN_EXE_tailsight"), &copy);
    let by = |capabilities: &str| {
        let given = format!("+{}", capabilities.replace(',', ",+"));
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args([format!("--inh-caps={given}"), format!("--ambient-caps={given}")]).arg(&copy);
        command.args(["record", "-d", "200ms", "-p", &std::process::id().to_string(), "-o"]);
        command.arg(dir.path().join(format!("run-{}", capabilities.len()))).output().unwrap()
    };
    let output = by("bpf,perfmon,net_admin");
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("CAP_SYS_PTRACE") && said.contains("docs/privileges.md"), "{said}");
    // The set of docs/privileges.md.
    let output = by("bpf,perfmon,sys_ptrace,dac_read_search,net_admin");
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
}
