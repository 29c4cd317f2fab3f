//! Asks a JVM for the map of what it has compiled, as `jcmd PID Compiler.perfmap` does (Java 17 and newer): it then writes
//! `/tmp/perf-PID.map` as its own user, in its own mount namespace.
//!
//! In: a process. Out: nothing, or why there is no map. The way is the one of jdk.attach: a file `.attach_pidN` in the JVM's `/tmp`, SIGQUIT,
//! and the socket `.java_pidN` that it then opens. SIGQUIT ends a process that does not catch it, so one that does not is not asked.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tailsight_host::mounts::Mounts;

use super::status;
use crate::maps::Maps;

/// How long it may take to open its socket, to write the map and to answer, all together.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read.
const MOST_ANSWER: usize = 4096;

/// Whether a process runs a JVM.
pub fn is_jvm(maps: &Maps) -> bool {
    maps.all().iter().any(|m| m.name() == "libjvm.so")
}

/// Asks it, when it is one and has no map of its own. `Ok(false)`: there was nothing to ask.
///
/// # Errors
/// Why it wrote none, in words.
pub fn ask_for_map(pid: u32) -> Result<bool, String> {
    let Ok(maps) = Maps::of(pid) else { return Ok(false) };
    if !is_jvm(&maps) {
        return Ok(false);
    }
    let status = status::read(pid).map_err(|e| e.to_string())?;
    let process = Process::of(pid, &status)?;
    let until = Instant::now() + PATIENCE;
    let answer = process.connect(until).and_then(|socket| command(&socket, "Compiler.perfmap", until))?;
    match answer.split_once('\n') {
        Some(("0", _)) => Ok(true),
        // A stranger's words: one line of letters.
        _ => {
            let said: String = answer.chars().map(|c| if c.is_control() { ' ' } else { c }).take(160).collect();
            Err(format!("it answers: {}", said.trim()))
        }
    }
}

/// What is known of it.
struct Process {
    pid: i32,
    /// Its number in its own namespace.
    inside: u32,
    user: u32,
    tmp: PathBuf,
}

impl Process {
    fn of(pid: u32, status: &str) -> Result<Process, String> {
        let caught = status::field(status, "SigCgt").and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        if caught.is_none_or(|bits| bits >> (libc::SIGQUIT - 1) & 1 == 0) {
            return Err("it does not catch SIGQUIT, which the request needs (-Xrs, or it is still starting)".into());
        }
        let inside = status::inside(status).unwrap_or(pid);
        let user = status::user(status).ok_or("its user is not known")?;
        let tmp = PathBuf::from(format!("/proc/{pid}/root/tmp"));
        if Mounts::of(pid).is_served(Path::new("/tmp")) {
            return Err("another process answers for its /tmp (FUSE), and could keep who looks there".into());
        }
        // A link there would lead out of its own root.
        if !fs::symlink_metadata(&tmp).is_ok_and(|about| about.is_dir()) {
            return Err("its /tmp is no directory".into());
        }
        let pid = i32::try_from(pid).map_err(|e| e.to_string())?;
        Ok(Process { pid, inside, user, tmp })
    }

    /// Its socket, which it opens when it is asked to.
    fn connect(&self, until: Instant) -> Result<UnixStream, String> {
        let socket = self.tmp.join(format!(".java_pid{}", self.inside));
        if !self.is_its_socket(&socket) {
            self.wake(&socket, until)?;
        }
        connect_until(&socket, until).map_err(|e| format!("its socket {}: {e}", socket.display()))
    }

    /// Anybody may put something of that name into `/tmp`.
    fn is_its_socket(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket() && about.uid() == self.user)
    }

    fn wake(&self, socket: &Path, until: Instant) -> Result<(), String> {
        let trigger = self.tmp.join(format!(".attach_pid{}", self.inside));
        let made =
            OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(&trigger);
        made.map_err(|e| format!("{}: {e}", trigger.display()))?;
        // SAFETY: no pointers.
        unsafe { libc::kill(self.pid, libc::SIGQUIT) };
        while !self.is_its_socket(socket) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = fs::remove_file(&trigger);
        match self.is_its_socket(socket) {
            true => Ok(()),
            false => Err("it did not open its socket (-XX:+DisableAttachMechanism?)".into()),
        }
    }
}

/// Connects; while its queue is full, until then. A connection that waits has no time-out.
fn connect_until(socket: &Path, until: Instant) -> nix::Result<UnixStream> {
    use nix::errno::Errno;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket as new_socket};
    let address = UnixAddr::new(socket)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let ours = new_socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    loop {
        match connect(ours.as_raw_fd(), &address) {
            Ok(()) => return Ok(UnixStream::from(ours)),
            Err(Errno::EAGAIN | Errno::EINTR) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(e) => return Err(e),
        }
    }
}

/// Sends a command of jcmd; gives the answer, which begins with `0` and a line feed when it was done. Whoever answers a byte at a time has
/// the same time as others.
fn command(mut socket: &UnixStream, what: &str, until: Instant) -> Result<String, String> {
    let no_answer = |e: std::io::Error| format!("no answer: {e}");
    // Version, the command and three arguments, each ended by a zero.
    let request = format!("1\0jcmd\0{what}\0\0\0");
    let left = || Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero());
    let late = || no_answer(std::io::ErrorKind::TimedOut.into());
    socket.set_nonblocking(false).map_err(no_answer)?;
    socket.set_write_timeout(Some(left().ok_or_else(late)?)).map_err(no_answer)?;
    socket.write_all(request.as_bytes()).map_err(no_answer)?;
    let mut answer = Vec::new();
    let mut part = [0; 512];
    while answer.len() < MOST_ANSWER {
        socket.set_read_timeout(Some(left().ok_or_else(late)?)).map_err(no_answer)?;
        match socket.read(&mut part).map_err(no_answer)? {
            0 => break,
            n => answer.extend_from_slice(&part[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_would_die_of_it_is_not_asked() {
        let status = "NSpid:\t77\t7\nUid:\t5\t6\t5\t5\nSigCgt:\t0000000000000004\n";
        let own = std::process::id();
        let process = Process::of(own, status).unwrap();
        assert_eq!((process.inside, process.user), (7, 6));
        let dies = Process::of(own, &status.replace("004", "003")).err().unwrap();
        assert!(dies.contains("SIGQUIT"), "{dies}");
        assert_eq!(ask_for_map(own), Ok(false), "no JVM");
    }

    #[test]
    fn only_its_own_socket_is_connected_to() {
        let dir = tempfile::tempdir().unwrap();
        let user = fs::metadata(dir.path()).unwrap().uid();
        let process = Process { pid: 0, inside: 7, user, tmp: dir.path().into() };
        let path = dir.path().join(".java_pid7");
        fs::write(&path, "").unwrap();
        assert!(!process.is_its_socket(&path), "a file");
        fs::remove_file(&path).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(process.is_its_socket(&path));
        assert!(!Process { user: user + 1, ..process }.is_its_socket(&path), "somebody else's");
        let jvm = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 26];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(b"0\n").unwrap();
            request
        });
        let process = Process { pid: 0, inside: 7, user, tmp: dir.path().into() };
        let until = Instant::now() + PATIENCE;
        let answer = process.connect(until).and_then(|socket| command(&socket, "Compiler.perfmap", until));
        assert_eq!(answer.as_deref(), Ok("0\n"));
        assert_eq!(&jvm.join().unwrap()[..], b"1\0jcmd\0Compiler.perfmap\0\0\0");
    }

    /// Regression: one that answered a byte each 2.5 s, or whose queue of connections was full, kept the recorder for hours.
    #[test]
    fn one_that_plays_for_time_gets_no_more_than_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".java_pid7");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let begun = Instant::now();
        let soon = || Instant::now() + Duration::from_millis(300);
        let slow = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"0").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            listener
        });
        let socket = connect_until(&path, soon()).unwrap();
        let answer = command(&socket, "Compiler.perfmap", soon());
        assert!(answer.as_ref().is_err_and(|why| why.starts_with("no answer")), "{answer:?}");
        drop(socket);
        let listener = slow.join().unwrap();
        // SAFETY: no pointers. The shortest queue.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let mut waiting = vec![];
        let full = loop {
            match connect_until(&path, soon()) {
                Ok(stream) => waiting.push(stream),
                Err(e) => break e,
            }
        };
        assert_eq!(full, nix::errno::Errno::EAGAIN);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}
