//! Helpers for the tests of every crate: skipping where a test cannot run on this machine, and a copy of a program that can be
//! started.
//!
//! In: a reason. Out: a line `SKIPPED <test>: <reason>` on the test's standard output, which `scripts/test.sh` lists at its end. A
//! test checks its needs *before* it sets anything up ([`lacks_networks`], [`lacks_root`], [`lacks_program`]) and skips; once it has
//! begun, any failure is a failure of the test. Only an answer about a machine on which other programs had the time is not judged
//! ([`not_judged`]): that they had it is found without the answer.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the test harness captures what tests print")]

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// What a skipped test's line begins with.
pub const MARK: &str = "SKIPPED ";

/// What the line of a test begins with whose answer was not judged.
pub const NOT_JUDGED: &str = "NOT JUDGED ";

/// Says that the running test does not run here. The caller returns.
#[track_caller]
pub fn skip(reason: impl Display) {
    skip_as(&running(Location::caller()), reason);
}

/// Says that a part of the running test does not run here; the rest of it does.
#[track_caller]
pub fn skip_part(part: impl Display, reason: impl Display) {
    skip_as(&format!("{} ({part})", running(Location::caller())), reason);
}

/// As [`skip`], for a test whose name the caller has.
pub fn skip_as(test: &str, reason: impl Display) {
    println!("{}", line(test, reason));
}

/// Says that what the running test got was not judged, for other programs of the machine had the time that it is about. The caller has
/// found this by other means than the answer itself.
pub fn not_judged(test: &str, reason: impl Display) {
    println!("{NOT_JUDGED}{test}: {}", in_one_line(reason));
}

/// One line, whatever the reason holds.
fn line(test: &str, reason: impl Display) -> String {
    format!("{MARK}{test}: {}", in_one_line(reason))
}

fn in_one_line(reason: impl Display) -> String {
    reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The running test: the test harness names a test's thread after it. Where it runs tests on the main thread, or a test has
/// threads of its own, the place in the source stands for the name.
fn running(caller: &Location<'_>) -> String {
    match std::thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", caller.file(), caller.line()),
    }
}

/// Gives the calling thread, and what it starts from now on, a higher priority than ordinary programs where that is permitted: what a
/// person does beside the tests delays server, load and recorder less. The test harness gives each test a thread of its own.
pub fn raise_priority() {
    const NICE: i32 = -15;
    // SAFETY: a system call on numbers. Who is not root may not, and goes on as before.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// A TCP port of 127.0.0.1 on which nobody listens.
///
/// It is below those that Linux gives away by default (32,768 and more): such a port may be given to a test beside this one before the
/// caller's server has it, and a connection to it that comes from itself looks like a server. It is tried without listening on it: a
/// process that another thread forks meanwhile has a copy of the socket until it becomes its program, and if that listened, whoever waits
/// for the caller's server would be connected to it.
///
/// # Panics
/// When all of them are taken.
#[must_use]
pub fn free_port() -> u16 {
    const PORTS: std::ops::Range<u16> = 22_000..32_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as usize * 97;
    (0..PORTS.len())
        .map(|_| PORTS.start + ((first + usize::from(NEXT.fetch_add(1, Ordering::Relaxed))) % PORTS.len()) as u16)
        .find(|&port| may_bind(port))
        .expect("a port that nobody uses")
}

/// Whether a server could bind the TCP port of 127.0.0.1: nobody listens on it.
fn may_bind(port: u16) -> bool {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(std::net::Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    let reuse: libc::c_int = 1;
    // SAFETY: the descriptor is this function's own from socket() to the drop; both pointers are to locals of the sizes that are named.
    unsafe {
        let raw = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(raw >= 0, "a socket: {}", std::io::Error::last_os_error());
        let socket = OwnedFd::from_raw_fd(raw);
        let fd = socket.as_raw_fd();
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            (&raw const reuse).cast(),
            size_of_val(&reuse) as libc::socklen_t,
        );
        libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) == 0
    }
}

/// Why network namespaces cannot be made here; `None` when they can.
#[must_use]
pub fn lacks_networks() -> Option<String> {
    const CAP_NET_ADMIN: u64 = 1 << 12;
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let needed = CAP_NET_ADMIN | CAP_SYS_ADMIN;
    let held = field("CapEff:").and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    if held & needed != needed {
        return Some("needs root for network namespaces".to_owned());
    }
    lacks_program("ip")
}

/// Why what only root may do cannot be done; `None` for root.
#[must_use]
pub fn lacks_root() -> Option<String> {
    // The second of the four: the effective one.
    let user = field("Uid:").and_then(|ids| ids.split_whitespace().nth(1).map(str::to_owned));
    (user.as_deref() != Some("0")).then(|| "needs root".to_owned())
}

/// Why a program cannot be started; `None` when it is installed.
#[must_use]
pub fn lacks_program(program: &str) -> Option<String> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&folders).any(|folder: PathBuf| folder.join(program).is_file());
    (!there).then(|| format!("{program} is not installed, or not in PATH"))
}

/// The least node that runs vite and playwright-core as web/package-lock.json has them, as in scripts/lib.sh.
const NODE_LEAST: (u32, u32) = (20, 19);

/// Why nothing of the page's source in web/ can run here: it needs node, and what `npm ci` installs.
#[must_use]
pub fn lacks_page_packages() -> Option<String> {
    if let Some(lacking) = lacks_program("node") {
        return Some(lacking);
    }
    let output = std::process::Command::new("node").arg("--version").output().ok()?.stdout;
    let version = String::from_utf8_lossy(&output).trim().to_owned();
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < NODE_LEAST {
        return Some(format!("node is {version}, {}.{} or newer runs this", NODE_LEAST.0, NODE_LEAST.1));
    }
    // npm writes this file last.
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/node_modules/.package-lock.json").is_file();
    (!installed).then(|| "web/node_modules is not installed: `npm ci` in web/ (scripts/setup.sh does it)".to_owned())
}

/// How often a script is tried whose browser gave no answer in time.
const TRIES_OF_A_BROWSER: usize = 3;

/// Runs a script of web/test with node, which must succeed, and gives what it prints. A headless browser now and then draws no frame for half
/// a minute (a click waits for two of them), for no reason that is the page's: a script that a time-out of the browser ended is run again.
/// What the page does wrong ends each of the tries.
///
/// # Panics
/// If the script fails, with what it wrote.
pub fn run_browser_script<A: AsRef<OsStr>>(script: &Path, arguments: &[A]) -> String {
    for tries_left in (0..TRIES_OF_A_BROWSER).rev() {
        let output = Command::new("node").arg(script).args(arguments).output().expect("node starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return text(&output.stdout);
        }
        let (name, errors) = (script.display(), text(&output.stderr));
        let timed_out = errors.contains("TimeoutError");
        assert!(timed_out && tries_left > 0, "{name}: {}\n{}\n{errors}", output.status, text(&output.stdout));
        println!("{name}: the browser gave no answer in time: {errors}");
    }
    unreachable!("the last try returns or panics")
}

/// Why no BPF program can be attached to the control group that this process is in; `None` when it is one of version 2 that is
/// mounted here.
#[must_use]
pub fn lacks_control_groups() -> Option<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    control_groups(&read("/proc/self/cgroup"), &read("/proc/self/mounts"))
}

/// As [`lacks_control_groups`], of the texts of a process's `cgroup` and `mounts`.
fn control_groups(cgroup: &str, mounts: &str) -> Option<String> {
    let is_v2 = |line: &str| line.split_whitespace().nth(2) == Some("cgroup2");
    let there = cgroup.lines().any(|line| line.starts_with("0::")) && mounts.lines().any(is_v2);
    (!there).then(|| "needs a mounted control group of version 2".to_owned())
}

/// Why a function of Python's interpreter has no name; `None` when its program or library has that symbol. A test that needs a name which
/// is local to the interpreter needs one that is not stripped.
#[must_use]
pub fn lacks_python_symbol(symbol: &str) -> Option<String> {
    const WHERE: &str = "import sys, sysconfig as s; print(sys.executable); \
                         print(s.get_config_var('LIBDIR') + '/' + (s.get_config_var('INSTSONAME') or ''))";
    let output = std::process::Command::new("python3").args(["-c", WHERE]).output().ok();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let has = |bytes: Vec<u8>| bytes.windows(symbol.len()).any(|window| window == symbol.as_bytes());
    let there = said.lines().filter_map(|path| std::fs::read(path).ok()).any(has);
    (!there).then(|| format!("this python3 is stripped: it has no symbol {symbol}"))
}

/// Copies a program that the test is going to start.
///
/// `cp` does it and not this process. The descriptor that a copy is written through is inherited by whatever another test
/// starts at that moment, and for as long as that child has it the kernel refuses to run the copy (`ETXTBSY`).
///
/// # Panics
///
/// When the program cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let copied = std::process::Command::new("cp").arg("--").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success(), "cp {} {}: {copied}", from.display(), to.display());
}

/// Writes a shell script that the test is going to start.
///
/// A shell writes it and not this process, for the reason that [`copy_program`] gives: the kernel refuses a script that
/// somebody can still write to as it refuses a program.
///
/// # Panics
///
/// When the script cannot be written.
pub fn write_script(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#]).arg(path).arg(text);
    let wrote = shell.status().expect("sh starts");
    assert!(wrote.success(), "{}: {wrote}", path.display());
}

/// A field of the calling process's /proc status.
fn field(name: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_reason_of_several_lines_is_one_line() {
        assert_eq!(line("a::test", "no\n  such device\n"), "SKIPPED a::test: no such device");
    }

    #[test]
    fn the_running_test_is_known_by_name_and_a_thread_of_its_own_by_its_place() {
        let here = running(Location::caller());
        // Run with one test thread, the harness uses the main thread, which has no test's name.
        let named = here.ends_with("the_running_test_is_known_by_name_and_a_thread_of_its_own_by_its_place");
        assert!(named || std::thread::current().name() == Some("main"), "{here}");
        let other = std::thread::spawn(|| running(Location::caller())).join().unwrap();
        let (file, line) = other.rsplit_once(':').unwrap();
        assert!(file.ends_with("lib.rs") && line.parse::<u32>().is_ok(), "{other}");
    }

    /// Makes programs and starts them, in four threads at once; a program that is "text file busy" fails.
    fn started_by_four(kind: &str, make: impl Fn(&Path) + Sync) {
        let folder = std::env::temp_dir().join(format!("tailsight-testing-{kind}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (folder, make) = (&folder, &make);
                scope.spawn(move || {
                    for turn in 0..50 {
                        let program = folder.join(format!("{thread}-{turn}"));
                        make(&program);
                        let status = std::process::Command::new(&program).status();
                        assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{status:?}");
                    }
                });
            }
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_copied_program_starts_while_others_start_theirs() {
        started_by_four("copied", |program| copy_program("/bin/true", program));
    }

    #[test]
    fn a_written_script_starts_while_others_start_theirs() {
        started_by_four("written", |program| write_script(program, "exit 0"));
    }

    #[test]
    fn nobody_accepts_at_a_free_port_while_others_start_programs() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::process::Command::new("/bin/true").status().unwrap();
                    }
                });
            }
            let accepted = (0..1_000).find(|_| std::net::TcpStream::connect(("127.0.0.1", free_port())).is_ok());
            over.store(true, Ordering::Relaxed);
            assert_eq!(accepted, None, "a connection was accepted although no server was started");
        });
    }

    #[test]
    fn a_port_where_a_server_listens_is_not_free() {
        let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        assert!(!may_bind(port));
        drop(server);
        // A program that another test starts meanwhile has a copy of the socket until it is itself.
        let begun = std::time::Instant::now();
        while !may_bind(port) {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "nobody listens there any longer");
        }
    }

    #[test]
    fn control_groups_of_version_1_alone_are_lacking() {
        let (v1, v2) = ("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        assert_eq!(control_groups("2:cpu:/\n0::/a\n", &format!("{v1}{v2}")), None);
        assert!(control_groups("2:cpu:/\n0::/a\n", v1).is_some());
        assert!(control_groups("2:cpu:/\n", v2).is_some());
    }

    #[test]
    fn what_is_there_is_not_lacking() {
        assert_eq!(lacks_program("sh"), None);
        assert!(lacks_program("no-such-program").unwrap().starts_with("no-such-program is not installed"));
    }
}
