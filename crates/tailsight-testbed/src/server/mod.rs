//! Unmodified test servers inside a namespace. In: a [`Namespace`] and options. Out: a running server and its pids.
//!
//! Each server is started by us, waited for until it accepts, and stopped by pid on drop: SIGTERM, then SIGKILL after
//! 2 s, its workers too. When this process is killed, the kernel sends the server SIGTERM.

mod config;
mod postgres;
mod stop;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::netns::Namespace;
use crate::process::{children_of, is_running, spawn_tied};
use crate::{Error, Result};

pub use config::{MemcachedOpts, NginxOpts, RedisOpts};
pub use postgres::{PostgresOpts, installed as postgres_installed};

/// How long a server may take until it accepts.
const START_DEADLINE: Duration = Duration::from_secs(5);

/// A server that we started. Stopped on drop.
#[derive(Debug)]
pub struct Server {
    program: &'static str,
    port: u16,
    child: Child,
    /// Its configuration, its output and its files; removed after it stopped.
    dir: TempDir,
}

impl Server {
    /// Starts memcached on all IPv4 and IPv6 addresses of the namespace, and on UDP when asked.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::ServerStart`] with what memcached wrote, [`Error::Io`].
    pub fn memcached(ns: &Namespace, opts: MemcachedOpts) -> Result<Self> {
        let mut command = ns.command(find_program("memcached", "memcached")?);
        command.args(opts.args(nix::unistd::geteuid().is_root()));
        Self::start(ns, "memcached", opts.port, opts.cpu, 0, command, temp_dir()?)
    }

    /// Starts nginx with a configuration of ours: `/` answers 200 with a short text, `/file` sends
    /// 64 KiB, `/page` 849 bytes (the file of Tales of the Tail). Connections are kept alive for good.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::ServerStart`] with what nginx wrote, [`Error::Io`].
    pub fn nginx(ns: &Namespace, opts: NginxOpts) -> Result<Self> {
        let program = find_program("nginx", "nginx-light")?;
        let dir = temp_dir()?;
        let root = dir.path();
        let write = |name: &str, bytes: &[u8]| {
            let path = root.join(name);
            std::fs::write(&path, bytes).map_err(|e| Error::io(format!("write {}", path.display()), e))
        };
        write("file", &vec![b'x'; 64 << 10])?;
        write("page", &[b'x'; 849])?;
        let is_root = nix::unistd::geteuid().is_root();
        let text = opts.config(root, is_root, crate::netns::has_ipv6());
        write("nginx.conf", text.as_bytes())?;
        let mut command = ns.command(program);
        command.arg("-p").arg(root).arg("-c").arg(root.join("nginx.conf")).arg("-e").arg(root.join("error.log"));
        Self::start(ns, "nginx", opts.port, opts.cpu, opts.worker_count(), command, dir)
    }

    /// Starts redis-server on all IPv4 and IPv6 addresses of the namespace, without persistence.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::ServerStart`] with what redis-server wrote, [`Error::Io`].
    pub fn redis(ns: &Namespace, opts: RedisOpts) -> Result<Self> {
        let mut command = ns.command(find_program("redis-server", "redis-server")?);
        let dir = temp_dir()?;
        command.args(opts.args(crate::netns::has_ipv6()));
        command.arg("--dir").arg(dir.path());
        Self::start(ns, "redis-server", opts.port, opts.cpu, 0, command, dir)
    }

    /// The pid of the process that we started (nginx: the master).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pid and those of its child processes (nginx: the workers), now.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.pid()];
        pids.extend(children_of(self.pid()));
        pids
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts the command with its output in `dir`, and waits until the port accepts and `workers` children run.
    fn start(
        ns: &Namespace,
        program: &'static str,
        port: u16,
        cpu: Option<usize>,
        workers: usize,
        mut command: Command,
        dir: TempDir,
    ) -> Result<Self> {
        let path = dir.path().join("output");
        let output = File::create(&path)
            .and_then(|file| Ok((file.try_clone()?, file)))
            .map_err(|e| Error::io(format!("create {}", path.display()), e))?;
        command.stdin(Stdio::null()).stdout(output.0).stderr(output.1).current_dir(dir.path());
        // A port that is already taken would make us wait on, and later measure, somebody else's server.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if ns.run(|| accepts(address))? {
            return Err(Error::ServerStart {
                program,
                port,
                reason: "another process already listens there; choose another port".into(),
                output: "nothing, it was not started".into(),
            });
        }
        let child = spawn_tied(command, cpu, Signal::SIGTERM)?;
        let mut server = Self { program, port, child, dir };
        server.wait_until_ready(ns, address, workers)?;
        Ok(server)
    }

    /// Waits until the port accepts and `workers` children run; fails at once when the process ends.
    ///
    /// The port alone is not enough: nginx's master listens before it forks, and the kernel accepts for it, so whoever
    /// asked for the pids then would miss the workers that do all the work.
    fn wait_until_ready(&mut self, ns: &Namespace, address: SocketAddr, workers: usize) -> Result<()> {
        let deadline = Instant::now() + START_DEADLINE;
        let child = &mut self.child;
        let outcome = ns.run(|| {
            loop {
                match child.try_wait() {
                    Ok(Some(status)) => return Err(format!("it ended with {status}")),
                    Ok(None) => {}
                    Err(error) => return Err(format!("it cannot be watched: {error}")),
                }
                let forked = workers == 0 || children_of(child.id()).len() >= workers;
                if forked && accepts(address) {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    return Err(format!("not within {} s", START_DEADLINE.as_secs()));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        })?;
        outcome.map_err(|reason| Error::ServerStart {
            program: self.program,
            port: self.port,
            reason,
            output: self.output(),
        })
    }

    /// The last 2 kB of what the server wrote (stdout, stderr, error log).
    fn output(&self) -> String {
        let mut text = String::new();
        for name in ["output", "error.log"] {
            let bytes = std::fs::read(self.dir.path().join(name)).unwrap_or_default();
            let tail = &bytes[bytes.len().saturating_sub(2048)..];
            text.push_str(&String::from_utf8_lossy(tail));
        }
        match text.trim() {
            "" => "nothing".to_owned(),
            some => some.to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop::stop(&mut self.child);
    }
}

/// Whether a TCP connection to the address is accepted (loopback: the answer comes at once).
fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

/// The folders of servers are named `tailsight-lab-<pid>-…`.
const FOLDER_PREFIX: &str = "tailsight-lab-";

/// A folder for one server's files, after removing those that killed runs left.
fn temp_dir() -> Result<TempDir> {
    remove_stale_folders(&std::env::temp_dir());
    tempfile::Builder::new()
        .prefix(&format!("{FOLDER_PREFIX}{}-", std::process::id()))
        .tempdir()
        .map_err(|e| Error::io("make a temporary folder for a server", e))
}

/// Removes the folders named like ours, of our user, whose process has ended.
fn remove_stale_folders(parent: &Path) {
    use std::os::unix::fs::MetadataExt;
    let us = nix::unistd::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let dead = name
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.split_once('-'))
            .and_then(|(pid, _)| pid.parse().ok())
            .is_some_and(|pid| !is_running(pid));
        // The entry's own metadata, not that of what a link points to.
        if dead && entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == us) {
            // Another run may remove it at the same time.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Finds a program in `PATH` and in the system folders that `PATH` of a plain user lacks.
///
/// # Errors
/// [`Error::MissingProgram`] with the Debian package that has it.
pub(crate) fn find_program(program: &'static str, package: &'static str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/bin"];
    std::env::split_paths(&path)
        .chain(system.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| is_executable(file))
        .ok_or(Error::MissingProgram { program, package })
}

/// Whether this is a file that may be executed.
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_names_the_package() {
        let error = find_program("no-such-server", "no-such-package").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no-such-server is not installed"), "{text}");
        assert!(text.contains("apt-get install no-such-package"), "{text}");
    }

    #[test]
    fn programs_are_found_outside_path_too() {
        assert!(find_program("sh", "dash").unwrap().ends_with("sh"));
    }

    #[test]
    fn only_folders_of_dead_runs_are_removed() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let parent = tempfile::tempdir().unwrap();
        let dead = format!("tailsight-lab-{}-x", child.id());
        let kept = [
            format!("tailsight-lab-{}-x", std::process::id()),
            format!("other-lab-{}-x", child.id()),
            "tailsight-lab-x".to_owned(),
        ];
        for name in kept.iter().chain([&dead]) {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        remove_stale_folders(parent.path());
        assert!(!parent.path().join(dead).exists());
        for name in kept {
            assert!(parent.path().join(&name).exists(), "{name}");
        }
    }
}
