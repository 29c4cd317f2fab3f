//! PostgreSQL in a namespace, with a cluster of its own in the folder of its [`Server`].
//!
//! In: a port, a CPU, settings, statements to begin with. Out: a [`Server`] that anybody in the namespace may use as `postgres`, database
//! `postgres`, over TCP and over [`Server::socket`]. PostgreSQL refuses root: for root it runs as the
//! user `postgres`, which the package makes.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{User, chown};

use super::{START_DEADLINE, Server, find_program, is_executable, temp_dir};
use crate::netns::Namespace;
use crate::{Error, Result};

/// The user that it runs as.
const USER: &str = "postgres";

/// How PostgreSQL is started.
#[derive(Debug, Clone, Copy)]
pub struct PostgresOpts {
    /// TCP port.
    pub port: u16,
    /// The CPU to pin all its processes to.
    pub cpu: Option<usize>,
    /// Settings, each `name=value`.
    pub settings: &'static [&'static str],
    /// Statements to begin with, one a line.
    pub setup: &'static str,
}

impl Default for PostgresOpts {
    fn default() -> Self {
        Self { port: 5432, cpu: None, settings: &[], setup: "" }
    }
}

impl Server {
    /// Makes a cluster and starts PostgreSQL on all addresses of the namespace. Everybody there is trusted.
    ///
    /// # Errors
    /// [`Error::MissingProgram`], [`Error::ServerStart`] with what it wrote, [`Error::Io`].
    pub fn postgres(ns: &Namespace, opts: PostgresOpts) -> Result<Self> {
        let folder = programs()?;
        let dir = temp_dir()?;
        let root = dir.path();
        let data = root.join("data");
        let io = |e| Error::io(format!("make {}", data.display()), e);
        std::fs::create_dir(&data).map_err(io)?;
        if nix::unistd::geteuid().is_root() {
            // The folder stays ours, so that a later run can remove it; its user may pass through.
            std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o711)).map_err(io)?;
            let about = |e: nix::Error| Error::io(format!("find the user {USER}"), std::io::Error::from(e));
            let user = User::from_name(USER).map_err(about)?;
            let user = user.ok_or_else(|| about(nix::Error::ENOENT))?;
            chown(&data, Some(user.uid), Some(user.gid)).map_err(|e| io(e.into()))?;
        }
        let mut init = as_user(|program| Command::new(program), &folder.join("initdb"))?;
        init.args(["--auth=trust", "--no-locale", "--encoding=UTF8", "--username=postgres", "-D"]).arg(&data);
        finish(init, root, opts, "")?;
        // From the other namespace, too.
        let access = data.join("pg_hba.conf");
        let opened = File::options().append(true).open(&access);
        let wrote = opened.and_then(|mut file| file.write_all(b"host all all all trust\n"));
        wrote.map_err(|e| Error::io(format!("write {}", access.display()), e))?;
        let mut single = as_user(|program| Command::new(program), &folder.join("postgres"))?;
        single.args(["--single", "-D"]).arg(&data).arg("postgres");
        finish(single, root, opts, opts.setup)?;
        let mut command = as_user(|program| ns.command(program), &folder.join("postgres"))?;
        command.arg("-D").arg(&data).arg("-k").arg(&data).args(["-h", "*", "-p", &opts.port.to_string()]);
        opts.settings.iter().for_each(|setting| {
            command.args(["-c", setting]);
        });
        let server = Self::start(ns, "postgres", opts.port, opts.cpu, 0, command, dir)?;
        // It accepts before it serves; when it does it says so in this file.
        let deadline = Instant::now() + START_DEADLINE;
        let state = data.join("postmaster.pid");
        let serves =
            || std::fs::read_to_string(&state).is_ok_and(|text| text.lines().any(|line| line.trim() == "ready"));
        while !serves() {
            if Instant::now() > deadline {
                let reason = format!("it does not serve within {} s", START_DEADLINE.as_secs());
                return Err(Error::ServerStart {
                    program: "postgres",
                    port: opts.port,
                    reason,
                    output: server.output(),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    /// PostgreSQL's socket for programs of its host, whatever their network namespace.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("data").join(format!(".s.PGSQL.{}", self.port))
    }
}

/// Where PostgreSQL's programs are: Debian has them outside of PATH, by version.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut installed: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| is_executable(&bin.join("postgres")) && is_executable(&bin.join("initdb")))
        .collect();
    installed.sort();
    if let Some((_, bin)) = installed.pop() {
        return Ok(bin);
    }
    find_program("initdb", "postgresql").map(|file| file.parent().map_or_else(PathBuf::new, Path::to_owned))
}

/// Whether PostgreSQL can be started here.
///
/// # Errors
/// [`Error::MissingProgram`].
pub fn installed() -> Result<()> {
    programs().map(drop)
}

/// A command that runs as the server's user. Changing the user clears what is to happen when we die, so it is set again.
fn as_user(command: impl FnOnce(&Path) -> Command, program: &Path) -> Result<Command> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(command(program));
    }
    let mut command = command(&find_program("setpriv", "util-linux")?);
    command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--pdeathsig", "TERM", "--"]).arg(program);
    Ok(command)
}

/// Runs a command on some input to its end, which must be a good one.
fn finish(mut command: Command, dir: &Path, opts: PostgresOpts, input: &str) -> Result<()> {
    let failed = |reason, output| Error::ServerStart { program: "postgres", port: opts.port, reason, output };
    let io = |e| Error::io(format!("prepare PostgreSQL in {}", dir.display()), e);
    let mut stdin: File = tempfile::tempfile().map_err(io)?;
    stdin.write_all(input.as_bytes()).and_then(|()| stdin.seek(SeekFrom::Start(0))).map_err(io)?;
    let output = command.current_dir(dir).stdin(Stdio::from(stdin)).output().map_err(io)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // The single-user server goes on after an error of a statement.
    if output.status.success() && !said.contains("ERROR:") {
        return Ok(());
    }
    Err(failed(format!("its preparation ended with {}", output.status), said))
}
