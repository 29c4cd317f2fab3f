//! What a process that is recorded can do to the root that records it: its maps, libraries and debug information, its names, its runtime.
//! Every test: the recorder ends in time, its memory stays small, the run is whole, and what was not read is said.
//!
//! The target is a C program that runs as nobody; what it does is its argument, and what it is made of is patched by the test.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tailsight_trace::Run;

use crate::silent_file_system::{FILE, SilentFileSystem};

use crate::support::{Live, SetWhenDropped, shown, tailsight};

/// The user that owns nothing.
const NOBODY: u32 = 65_534;

/// Spins in a function of its own, or in code that it made itself; renames its threads; plays a JVM.
const HOSTILE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <fcntl.h>
#include <unistd.h>

__attribute__((noinline)) void spin_in_a_function(void)
{
	for (;;)
		for (volatile int i = 0; i < 1000000; i++)
			;
}

static void *rename_for_ever(void *unused)
{
	char name[16];
	for (unsigned long n = 0;; n++) {
		snprintf(name, sizeof name, "t%lu", n);
		prctl(PR_SET_NAME, name);
	}
}

static void ignore(int signal) { }

/* Answers a byte now and then, or not at all, or takes no connection. */
static void *play_jvm(void *how)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "/tmp/.java_pid%d", getpid());
	unlink(address.sun_path);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&address, sizeof address);
	listen(listener, 0);
	if (!strcmp(how, "full")) {
		for (int i = 0; i < 2; i++) {
			int waiting = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
			connect(waiting, (struct sockaddr *)&address, sizeof address);
		}
		pause();
	}
	int connection = accept(listener, 0, 0);
	if (!strcmp(how, "mute"))
		pause();
	for (;;) {
		sleep(1);
		if (write(connection, "0", 1) < 0)
			pause();
	}
}

static void *end(void *unused) { return 0; }

/* Makes and ends processes, threads, mappings or connections as fast as it can. */
static void storm(char *of)
{
	pthread_t thread;
	pid_t child;
	if (!strcmp(of, "processes"))
		for (;;) {
			if (!(child = fork()))
				_exit(0);
			waitpid(child, 0, 0);
		}
	if (!strcmp(of, "threads"))
		for (;;)
			if (!pthread_create(&thread, 0, end, 0))
				pthread_join(thread, 0);
	if (!strcmp(of, "mappings")) {
		static void *mapped[60000];
		int program = open("/proc/self/exe", O_RDONLY);
		for (unsigned long n = 0;; n = (n + 1) % 60000) {
			if (mapped[n])
				munmap(mapped[n], 4096);
			mapped[n] = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, program, 0);
		}
	}
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	struct linger reset = { 1, 0 };
	char byte;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&address, length);
	listen(listener, 128);
	getsockname(listener, (struct sockaddr *)&address, &length);
	for (;;) {
		int client = socket(AF_INET, SOCK_STREAM, 0);
		connect(client, (struct sockaddr *)&address, length);
		int server = accept(listener, 0, 0);
		write(client, "x", 1);
		read(server, &byte, 1);
		write(server, "y", 1);
		read(client, &byte, 1);
		setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
		close(client);
		close(server);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char *what = argv[1];
	signal(SIGPIPE, SIG_IGN);
	/* Where the test is killed it ends by itself. It has no need of the tests' priority. */
	alarm(300);
	nice(15);
	if (!strcmp(what, "storm"))
		storm(argv[2]);
	if (!strcmp(what, "memory")) {
		/* The program runs itself from a file that has no name. */
		static char program[1 << 20], *spin[] = { "program", "spin", 0 };
		int itself = open("/proc/self/exe", O_RDONLY), copy = memfd_create("program", MFD_CLOEXEC);
		write(copy, program, read(itself, program, sizeof program));
		fexecve(copy, spin, environ);
	}
	if (!strcmp(what, "rename")) {
		pthread_create(&thread, 0, rename_for_ever, 0);
		rename_for_ever(0);
	}
	if (!strcmp(what, "jit")) {
		/* jmp to itself */
		unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		code[0] = 0xeb, code[1] = 0xfe;
		printf("%p\n", code);
		fflush(stdout);
		((void (*)(void))code)();
	}
	if (!strcmp(what, "library"))
		((void (*)(void))dlsym(dlopen(argv[2], RTLD_NOW), "spin_in_a_library"))();
	if (!strcmp(what, "jvm")) {
		int library = open(argv[3], O_RDONLY);
		mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, library, 0);
		signal(SIGQUIT, ignore);
		pthread_create(&thread, 0, play_jvm, argv[2]);
	}
	spin_in_a_function();
}
"#;

/// A folder that nobody may look into, with the program.
struct Hostile {
    live: Live,
    program: PathBuf,
}

impl Hostile {
    fn new(test: &str) -> Option<Hostile> {
        for program in ["cc", "objcopy"] {
            if let Some(why) = tailsight_testing::lacks_program(program) {
                tailsight_testing::skip_as(test, why);
                return None;
            }
        }
        let live = Live::new(test)?;
        fs::set_permissions(live.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = live.dir.path().join("hostile");
        let source = live.dir.path().join("hostile.c");
        fs::write(&source, HOSTILE).unwrap();
        let cc = Command::new("cc").args(["-O1", "-g", "-pthread", "-o"]).arg(&program).arg(&source).output().unwrap();
        assert!(cc.status.success(), "{}", shown(&cc));
        Some(Hostile { live, program })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.live.dir.path().join(name)
    }

    /// Puts a section into the program, instead of one of the same name; with flags of ELF beside those of objcopy.
    fn set_section(&self, name: &str, bytes: &[u8], flags: u64) {
        let content = self.path("section");
        fs::write(&content, bytes).unwrap();
        let add = format!("{name}={}", content.display());
        let objcopy = Command::new("objcopy")
            .args(["--remove-section", name, "--add-section", &add])
            .arg(&self.program)
            .output()
            .unwrap();
        assert!(objcopy.status.success(), "{}", shown(&objcopy));
        patch_section(&self.program, name, |header| {
            let old = u64::from_le_bytes(header[8..16].try_into().unwrap());
            header[8..16].copy_from_slice(&(old | flags).to_le_bytes());
        });
    }

    /// By a file of this name among its mappings a JVM is known.
    fn jvm_library(&self) -> String {
        let library = self.path("libjvm.so");
        fs::copy(&self.program, &library).unwrap();
        library.display().to_string()
    }

    fn start(&self, arguments: &[&str]) -> Target {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.uid(NOBODY).gid(NOBODY).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        Target(child)
    }

    /// Records the target for a second: in time, with little memory, to a whole run. Its duration includes what a busy machine takes.
    fn recorded(&self, target: &Target) -> Recorded {
        let out = self.path("run");
        let _ = fs::remove_dir_all(&out);
        let pid = target.0.id().to_string();
        let out = out.display().to_string();
        let arguments = ["record", "-p", &pid, "-d", "1s", "--buffer", "8M", "--sample", "499", "-o", &out];
        let (output, Used { most_kib, took, busy }) = measured(tailsight(&arguments));
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        assert!(most_kib < 512 << 10, "{most_kib} KiB: {}", shown(&output));
        let run = Run::open(Path::new(&out)).unwrap();
        assert!(run.partial.is_empty(), "{:?}", run.partial);
        println!("{took:.1?}, busy {busy:.1?}, {} MiB, {:?}", most_kib >> 10, run.meta.warnings);
        Recorded { run, took, busy }
    }
}

/// Changes the header of a section of a 64-bit ELF file.
fn patch_section(program: &Path, name: &str, patch: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(program).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let half = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    let (headers, size, count, names) =
        (word(&bytes, 0x28), half(&bytes, 0x3a), half(&bytes, 0x3c), half(&bytes, 0x3e));
    let strings = word(&bytes, headers + names * size + 0x18);
    for number in 0..count {
        let at = headers + number * size;
        let text = strings + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        if bytes[text..].starts_with(format!("{name}\0").as_bytes()) {
            patch(&mut bytes[at..at + size]);
            return fs::write(program, &bytes).unwrap();
        }
    }
    panic!("no section {name}");
}

/// A target, ended with the test.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Recorded {
    run: Run,
    took: Duration,
    busy: Duration,
}

impl Recorded {
    /// Names of user functions in its samples.
    fn functions(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.run.samples.frames.iter().filter(|f| !f.kernel).map(|f| f.function.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn says(&self, words: &str) -> bool {
        self.run.meta.warnings.iter().any(|warning| warning.contains(words))
    }
}

/// What a command used.
struct Used {
    /// The most memory that it had, KiB.
    most_kib: u64,
    /// How long it took.
    took: Duration,
    /// The time of cores that it used, with what it started.
    busy: Duration,
}

/// Runs a command to its end: its output, and what it used.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and tells what it used")]
fn measured(mut command: Command) -> (Output, Used) {
    let begun = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = vec![];
            let _ = from.read_to_end(&mut bytes);
            bytes
        })
    };
    let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let mut status = 0;
    // SAFETY: all zeros are a valid `rusage`.
    let mut used: nix::libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: waits for the child that was just made, once.
    let pid = unsafe { nix::libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut used) };
    assert_eq!(pid, child.id() as i32);
    let took = begun.elapsed();
    assert!(took < KEPT, "kept for {took:?}");
    let time_of = |time: nix::libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    let status = std::process::ExitStatus::from_raw(status);
    let output = Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
    let busy = time_of(used.ru_utime) + time_of(used.ru_stime);
    (output, Used { most_kib: used.ru_maxrss as u64, took, busy })
}

/// The time of a core that a recording of a second may use, whatever the target is. How long it takes says nothing on a busy machine.
const SOON: Duration = Duration::from_secs(20);
/// A recording that takes longer is kept by its target.
const KEPT: Duration = Duration::from_secs(120);

/// Looked at, a file of a file system whose server is silent keeps whoever looks for ever, and no signal ends that: a recorder never began,
/// and could not be killed.
#[test]
fn a_file_system_that_a_process_answers_for_is_not_looked_into() {
    const TEST: &str = "a_file_system_that_a_process_answers_for_is_not_looked_into";
    let Some(hostile) = Hostile::new(TEST) else { return };
    let program = fs::read(&hostile.program).unwrap();
    let at = hostile.path("mount");
    // It ends before the folder that it is in is removed: who looks into it waits for it.
    let hostile = Hostile { program: at.join(FILE), ..hostile };
    let Some(mounted) = SilentFileSystem::mount(&at, program) else {
        return tailsight_testing::skip_as(TEST, "this kernel has no FUSE, or not for this process");
    };
    let target = hostile.start(&["spin"]);
    mounted.fall_silent();
    let recorded = hostile.recorded(&target);
    assert!(recorded.busy < SOON, "{:?}", recorded.busy);
    assert!(recorded.says("another process answers for its file system (fuse)"), "{:?}", recorded.run.meta.warnings);
}

/// 256 MiB of `1 1` lines took 4.9 to 6.9 GB and 38 s, half of them before the recording.
#[test]
fn a_map_of_compiled_code_without_end_costs_names_only() {
    let Some(hostile) = Hostile::new("a_map_of_compiled_code_without_end_costs_names_only") else { return };
    let target = hostile.start(&["jit"]);
    let map = PathBuf::from(format!("/tmp/perf-{}.map", target.0.id()));
    let mut file = File::create(&map).unwrap();
    let lines = b"1 1\n".repeat(1 << 18);
    (0..256).for_each(|_| file.write_all(&lines).unwrap());
    std::os::unix::fs::chown(&map, Some(NOBODY), None).unwrap();
    let recorded = hostile.recorded(&target);
    fs::remove_file(&map).unwrap();
    assert!(recorded.busy < SOON, "{:?}", recorded.busy);
    assert!(recorded.says("code compiled at run time has no names"), "{:?}", recorded.run.meta.warnings);
}

/// Debug information that says that it is 2^46 and 2^63 bytes long aborted the recorder, and panicked on the terminal; that expands to
/// gigabytes took 6.7 GB.
#[test]
fn debug_information_that_expands_without_end_costs_names_only() {
    let Some(hostile) = Hostile::new("debug_information_that_expands_without_end_costs_names_only") else { return };
    const COMPRESSED: u64 = 0x800;
    let header = |bytes: u64| {
        let mut header = vec![1, 0, 0, 0, 0, 0, 0, 0];
        header.extend(bytes.to_le_bytes());
        header.extend(1u64.to_le_bytes());
        header
    };
    let zeros = |mib: usize| {
        let mut encoder = flate2::write::ZlibEncoder::new(vec![], flate2::Compression::best());
        let part = vec![0; 1 << 20];
        (0..mib).for_each(|_| encoder.write_all(&part).unwrap());
        encoder.finish().unwrap()
    };
    let (a_gibibyte, a_quarter) = (zeros(1024), zeros(256));
    // What it says, and what it has. A section stays as it is made here. The first is what it says, and fits: it is read, and is of no use.
    for (name, bytes, why) in [
        (".debug_info", [header(256 << 20), a_quarter].concat(), ""),
        (".debug_info", [header(1 << 20), a_gibibyte.clone()].concat(), "not the size that it says"),
        (".debug_info", [header(1 << 30), a_gibibyte.clone()].concat(), "too large"),
        (".debug_info", [header(1 << 46), vec![0; 64]].concat(), "too large"),
        (".debug_line", [header(6 << 30), a_gibibyte].concat(), "too large"),
        (".debug_abbrev", [header(1 << 63), vec![0; 64]].concat(), "too large"),
    ] {
        hostile.set_section(name, &bytes, COMPRESSED);
        let target = hostile.start(&["spin"]);
        let recorded = hostile.recorded(&target);
        assert!(recorded.busy < SOON + Duration::from_secs(10), "{name}: {:?}", recorded.busy);
        let (functions, warnings) = (recorded.functions(), &recorded.run.meta.warnings);
        assert!(functions.contains(&"spin_in_a_function"), "{name}: {functions:?} {warnings:?}");
        let said = warnings.iter().any(|warning| warning.contains("is not used") && warning.contains(why));
        assert!(said || why.is_empty(), "{name}: {warnings:?}");
    }
}

/// "code compiled at run time" was said of a program that is run from a file in memory.
#[test]
fn a_program_that_runs_from_memory_is_a_program() {
    let Some(hostile) = Hostile::new("a_program_that_runs_from_memory_is_a_program") else { return };
    let target = hostile.start(&["memory"]);
    let recorded = hostile.recorded(&target);
    assert!(recorded.functions().contains(&"spin_in_a_function"), "{:?}", recorded.functions());
    assert!(!recorded.says("compiled at run time"), "{:?}", recorded.run.meta.warnings);
}

/// A sparse file of 20 GB was read until no memory was left.
#[test]
fn a_program_of_twenty_gigabytes_is_not_read() {
    let Some(hostile) = Hostile::new("a_program_of_twenty_gigabytes_is_not_read") else { return };
    OpenOptions::new().write(true).open(&hostile.program).unwrap().set_len(20 << 30).unwrap();
    let target = hostile.start(&["spin"]);
    let recorded = hostile.recorded(&target);
    assert!(recorded.busy < SOON, "{:?}", recorded.busy);
    assert!(recorded.says("more than 1073741824"), "{:?}", recorded.run.meta.warnings);
}

/// A debug link to a pipe kept the recorder for ever, and so did a pipe in the place of the program.
#[test]
fn a_pipe_is_not_waited_for() {
    let Some(hostile) = Hostile::new("a_pipe_is_not_waited_for") else { return };
    let pipe = hostile.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    let mut link = pipe.display().to_string().into_bytes();
    link.push(0);
    link.resize(link.len().next_multiple_of(4) + 4, 0);
    for section in [".gnu_debuglink", ".gnu_debugaltlink"] {
        hostile.set_section(section, &link, 0);
        let target = hostile.start(&["spin"]);
        let recorded = hostile.recorded(&target);
        assert!(recorded.busy < SOON, "{section}: {:?}", recorded.busy);
        assert!(recorded.functions().contains(&"spin_in_a_function"), "{:?}", recorded.functions());
    }
    // Beside the program, under a plain name.
    let beside = hostile.path("beside");
    nix::unistd::mkfifo(&beside, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    hostile.set_section(".gnu_debuglink", b"beside\0\0\0\0\0\0", 0);
    let target = hostile.start(&["spin"]);
    let recorded = hostile.recorded(&target);
    assert!(recorded.busy < SOON, "{:?}", recorded.busy);
    fs::rename(&pipe, &hostile.program).unwrap();
    let recorded = hostile.recorded(&target);
    assert!(recorded.busy < SOON, "{:?}", recorded.busy);
    assert!(
        recorded.functions().contains(&"spin_in_a_function"),
        "the file that is mapped: {:?}",
        recorded.functions()
    );
}

/// A library that is cut between two looks at it killed the recorder, in 3 of 3.
#[test]
fn a_library_that_is_cut_and_made_whole_again_and_again_costs_names_only() {
    let test = "a_library_that_is_cut_and_made_whole_again_and_again_costs_names_only";
    let Some(hostile) = Hostile::new(test) else { return };
    let (source, library) = (hostile.path("library.c"), hostile.path("library.so"));
    // It needs nothing of what is cut off: its code is in the file's second page.
    fs::write(&source, "void spin_in_a_library(void) { for (;;) for (volatile int i = 0; i < 1000000; i++) ; }")
        .unwrap();
    let cc =
        Command::new("cc").args(["-O1", "-g", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output().unwrap();
    assert!(cc.status.success(), "{}", shown(&cc));
    let whole = fs::read(&library).unwrap();
    let mut target = hostile.start(&["library", &library.display().to_string()]);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cuts = scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(&library).unwrap();
            let mut cuts = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                file.set_len(0x2000).unwrap();
                std::thread::sleep(Duration::from_micros(200));
                file.write_all_at(&whole, 0).unwrap();
                cuts += 1;
            }
            cuts
        });
        {
            let _ends = SetWhenDropped(&done);
            for _ in 0..3 {
                let recorded = hostile.recorded(&target);
                assert!(recorded.busy < SOON, "{:?}", recorded.busy);
                println!("{:?}", recorded.functions());
            }
        }
        println!("cut {} times", cuts.join().unwrap());
    });
    assert!(target.0.try_wait().unwrap().is_none(), "the target ended");
}

/// A byte each 2.5 s, a full queue of connections, eleven that say nothing: hours, for ever, 33 s.
#[test]
fn programs_that_play_a_jvm_are_not_waited_for() {
    let Some(hostile) = Hostile::new("programs_that_play_a_jvm_are_not_waited_for") else { return };
    let library = hostile.jvm_library();
    for how in ["slow", "full", "mute"] {
        let target = hostile.start(&["jvm", how, &library]);
        let recorded = hostile.recorded(&target);
        let _ = fs::remove_file(format!("/tmp/.java_pid{}", target.0.id()));
        assert!(recorded.busy < SOON, "{how}: {:?}", recorded.busy);
        assert!(recorded.says("wrote no perf map"), "{how}: {:?}", recorded.run.meta.warnings);
        assert!(recorded.functions().contains(&"spin_in_a_function"), "{how}: {:?}", recorded.functions());
    }
}

/// They were asked one after the other, three seconds each. One process with descendants is one target. And the recorder that gives way to
/// eleven that spin was told too late that it need not any longer: it took 70 to 107 s.
#[test]
fn eleven_programs_that_play_a_jvm_are_asked_at_the_same_time() {
    let Some(hostile) = Hostile::new("eleven_programs_that_play_a_jvm_are_asked_at_the_same_time") else { return };
    let library = hostile.jvm_library();
    let words =
        format!("for i in 1 2 3 4 5 6 7 8 9 10 11; do {} jvm mute {library} & done; wait", hostile.program.display());
    let mut shell = Command::new("sh");
    // In a group of its own, to be ended with its children.
    shell.args(["-c", &words]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let target = Target(shell.uid(NOBODY).gid(NOBODY).process_group(0).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    let recorded = hostile.recorded(&target);
    let said = recorded.run.meta.warnings.iter().filter(|warning| warning.contains("wrote no perf map")).count();
    let pids = recorded.run.meta.target.pids.clone();
    kill(Pid::from_raw(-(target.0.id() as i32)), Signal::SIGKILL).unwrap();
    for pid in pids {
        let _ = fs::remove_file(format!("/tmp/.java_pid{pid}"));
    }
    // One after the other they would take longer, however many cores there are.
    let in_turn = Duration::from_secs(11 * 3);
    assert!(recorded.took < in_turn && said == 11, "{:?}, {said}: {:?}", recorded.took, recorded.run.meta.warnings);
}

/// Two threads that renamed themselves half a million times a second: 1.9 GB after 6 s, and an end 6 times later than asked.
#[test]
fn names_without_end_are_counted() {
    let Some(hostile) = Hostile::new("names_without_end_are_counted") else { return };
    let target = hostile.start(&["rename"]);
    let recorded = hostile.recorded(&target);
    assert!(recorded.busy < SOON, "{:?}", recorded.busy);
    assert!(recorded.run.tasks.len() < 20_000, "{} rows", recorded.run.tasks.len());
    assert!(recorded.says("births and names of tasks are not in the run's tables"), "{:?}", recorded.run.meta.warnings);
}

/// Processes, threads, mappings and connections that are made and ended as fast as a program can.
#[test]
fn storms_of_processes_threads_mappings_and_connections_are_recorded() {
    let Some(hostile) = Hostile::new("storms_of_processes_threads_mappings_and_connections_are_recorded") else {
        return;
    };
    for resource in ["processes", "threads", "mappings", "connections"] {
        let target = hostile.start(&["storm", resource]);
        let recorded = hostile.recorded(&target);
        let cpus = &recorded.run.meta.cpus;
        let events: u64 = cpus.iter().map(|cpu| cpu.events).sum();
        let lost: u64 = cpus.iter().map(|cpu| cpu.lost).sum();
        println!("{resource}: {events} events, {lost} lost");
        assert!(recorded.busy < SOON, "{resource}: {:?}", recorded.busy);
        assert!(events > 0, "{resource}");
    }
}

/// Recorders that hung did not hear the first signal. A signal at each of the phases: while the target is looked at, probes are loaded,
/// messages are recorded, hooks are detached, the run is written, and a JVM that says nothing is asked.
#[test]
fn a_signal_ends_each_phase_and_what_was_recorded_is_whole() {
    let Some(hostile) = Hostile::new("a_signal_ends_each_phase_and_what_was_recorded_is_whole") else { return };
    let library = hostile.jvm_library();
    let target = hostile.start(&["jvm", "mute", &library]);
    let out = hostile.path("run");
    let pid = target.0.id().to_string();
    let out_name = out.display().to_string();
    let start = |length: &str| {
        let _ = fs::remove_dir_all(&out);
        tailsight(&["record", "-p", &pid, "-d", length, "--buffer", "8M", "-o", &out_name])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let records = || {
        let begun = Instant::now();
        while !out.join("run.json").exists() {
            assert!(begun.elapsed() < SOON, "no run");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let interrupted = |when: &str| {
        let run = Run::open(&out).unwrap();
        let partial = run.meta.partial.as_deref().unwrap_or("interrupted");
        assert!(run.meta.end_ns > 0 && partial.starts_with("interrupted"), "{when}: {partial}");
    };
    let ended = |mut recorder: Child, when: &str| {
        let asked = Instant::now();
        kill(Pid::from_raw(recorder.id() as i32), Signal::SIGTERM).unwrap();
        let status = recorder.wait().unwrap();
        let took = asked.elapsed();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut recorder.stderr.take().unwrap(), &mut said).unwrap();
        println!("{when}: it ended {took:.1?} after the signal: {status}");
        // A second where the recorder has a core; a busy machine gives it one later.
        assert!(took < Duration::from_secs(5), "{when}: {took:?}");
        if out.exists() {
            assert_eq!(status.code(), Some(0), "{when}: {said}");
            interrupted(when);
        } else {
            assert!(said.contains("nothing was recorded"), "{when}: {said}");
            assert_eq!(status.code(), Some(1), "{when}");
        }
    };
    for after_ms in (150..1900).step_by(250) {
        let recorder = start("800ms");
        std::thread::sleep(Duration::from_millis(after_ms));
        ended(recorder, &format!("after {after_ms} ms"));
    }
    let recorder = start("60s");
    records();
    ended(recorder, "recording");
    assert!(out.exists(), "what was recorded is kept");
    // Ctrl-C lets functions get their names, and waits for the mute one; the second one does not wait.
    let mut recorder = start("60s");
    records();
    let begun = Instant::now();
    let recorder_pid = Pid::from_raw(recorder.id() as i32);
    kill(recorder_pid, Signal::SIGINT).unwrap();
    // The run is whole before anybody is asked for names.
    while !Run::open(&out).is_ok_and(|run| run.meta.end_ns > 0) {
        assert!(begun.elapsed() < SOON, "the run is not whole");
        std::thread::sleep(Duration::from_millis(20));
    }
    if recorder.try_wait().unwrap().is_none() {
        let asked = Instant::now();
        kill(recorder_pid, Signal::SIGINT).unwrap();
        let status = recorder.wait().unwrap();
        println!("a second one: it ended {:.1?} later: {status}", asked.elapsed());
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    }
    interrupted("a second one");
    let _ = fs::remove_file(format!("/tmp/.java_pid{pid}"));
}
