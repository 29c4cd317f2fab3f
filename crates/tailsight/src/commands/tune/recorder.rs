//! Recordings of the server, each by a `tailsight record` of its own: a recorder gives up rights that the next step needs. In: the words that choose
//! the server, a folder. Out: a run. A signal to this process ends the recorder in order.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cli_common::Target;

/// How often the recorder is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// A recorder that is not done so long after its time is ended: on cores that are never free it ends late.
const PATIENCE: Duration = Duration::from_secs(180);

/// The words that choose the server.
pub fn words(target: &Target) -> Vec<OsString> {
    let text = |option: &str, value: String| vec![option.into(), value.into()];
    match target {
        Target { pid: Some(pid), .. } => text("--pid", pid.to_string()),
        Target { comm: Some(comm), .. } => vec!["--comm".into(), comm.clone()],
        Target { cgroup: Some(path), .. } => vec!["--cgroup".into(), path.clone().into()],
        Target { port: Some(port), .. } => text("--port", port.to_string()),
        Target { container: Some(name), .. } => text("--container", name.clone()),
        Target { .. } => vec![],
    }
}

/// Records into a run: until there is enough, or for so long and without samples where only latencies are wanted.
///
/// # Errors
/// The recorder's own, and that it was interrupted.
pub fn record(server: &[OsString], run: &Path, length: Option<Duration>, stop: &AtomicBool) -> anyhow::Result<()> {
    let itself = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(itself);
    command.arg("record").args(server).arg("--out").arg(run);
    if let Some(length) = length {
        command.args(["--sample", "off", "--no-tasks", "--duration", &format!("{}ms", length.as_millis())]);
    }
    // A group of its own: Ctrl-C on a terminal is this process's to hand on.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("cannot start the recorder")?;
    let mut stderr = child.stderr.take();
    let said = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut said = String::new();
            if let Some(stderr) = &mut stderr {
                let _ = stderr.take(64 << 10).read_to_string(&mut said);
            }
            said
        });
        let most = length.unwrap_or(Duration::from_secs(30)) + PATIENCE;
        let status = wait(&mut child, most, stop);
        let said = reader.join().unwrap_or_default();
        status.map(|status| (status, said))
    });
    let (status, said) = said?;
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    if !status.success() {
        let last = said.lines().rev().find(|line| line.starts_with("tailsight: ")).or(said.lines().last());
        bail!("cannot record: {}", last.unwrap_or("the recorder failed").trim_start_matches("tailsight: "));
    }
    Ok(())
}

/// Waits for the end; a signal to this process is handed on once.
fn wait(child: &mut Child, most: Duration, stop: &AtomicBool) -> anyhow::Result<std::process::ExitStatus> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the recorder")? {
            return Ok(status);
        }
        if !told && (stop.load(Ordering::Relaxed) || begun.elapsed() > most) {
            told = true;
            let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
        }
        std::thread::sleep(LOOK);
    }
}
