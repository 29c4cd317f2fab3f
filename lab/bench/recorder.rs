//! Recorders as processes: tailsight, perf, bpftrace. In: a server, how long to record at least. Out: a recorder that is
//! fully attached when [`start`] returns, and what it recorded when it is finished. Killed and waited for when dropped.
//!
//! perf and bpftrace read tracefs: where it is not mounted they get a mount namespace of their own with it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkfifo};
use tailsight_testbed::process::spawn_tied;
use tailsight_testbed::server::Server;
use tailsight_trace::Run;

use super::{Bench, peers};

/// How long a recorder may take to attach.
const ATTACH: Duration = Duration::from_secs(30);
/// How long it may take to write what it has and end.
const END: Duration = Duration::from_secs(120);
/// How many events bpftrace's map holds.
const BPFTRACE_KEYS: u64 = 6_000_000;

/// What records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Tool {
    /// Nothing, once more: shows the difference between two equal variants on this machine.
    Control,
    /// `tailsight record --empty-hooks`: programs that return at once at the same hooks, the least possible cost.
    Empty,
    /// `tailsight record`.
    Tailsight,
    /// `perf record`.
    Perf,
    /// `bpftrace`.
    Bpftrace,
    /// `tailsight record --sample off`.
    Unsampled,
    /// `tailsight record --sample 8000`.
    Dense,
    /// `perf record -g` on a clock of the same rate as [`Tool::Dense`]: stacks by frame pointers.
    PerfG,
    /// Likewise with `--call-graph dwarf`: 8 KiB of the stack, as tailsight copies them.
    PerfDwarf,
}

impl Tool {
    /// Every variant that is compared with `off` when none is named.
    pub const ALL: [Self; 5] = [Self::Control, Self::Empty, Self::Tailsight, Self::Perf, Self::Bpftrace];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "off again",
            Self::Empty => "empty hooks",
            Self::Tailsight => "tailsight",
            Self::Perf => "perf",
            Self::Bpftrace => "bpftrace",
            Self::Unsampled => "tailsight without samples",
            Self::Dense => "tailsight, 8,000 samples/s",
            Self::PerfG => "perf record -g",
            Self::PerfDwarf => "perf record --call-graph dwarf",
        }
    }

    /// Whether it is tailsight.
    fn is_ours(self) -> bool {
        matches!(self, Self::Tailsight | Self::Empty | Self::Unsampled | Self::Dense)
    }

    /// Whether it is perf.
    fn is_perf(self) -> bool {
        matches!(self, Self::Perf | Self::PerfG | Self::PerfDwarf)
    }

    /// Whether the figures do not need it.
    pub fn is_peer(self) -> bool {
        self.is_perf() || self == Self::Bpftrace
    }
}

/// What to record.
pub struct Job<'a> {
    pub bench: &'a Bench,
    pub server: &'a Server,
    /// tailsight's `--duration`; the peers record until they are finished.
    pub time: Duration,
    /// The hooks of the peers ([`hooks_on`]).
    pub hooks: &'a [String],
    /// Whether bpftrace prints its events at the end, which takes long; else they are thrown away.
    pub dump: bool,
    pub without_hook: &'a [String],
}

/// What was recorded.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Events, where the recorder tells.
    pub events: Option<u64>,
    /// Events lost, where the recorder tells.
    pub lost: Option<u64>,
    /// First and last ns (CLOCK_MONOTONIC) of the recording, where the recorder tells.
    pub span_ns: Option<(u64, u64)>,
}

/// A recorder that records.
pub struct Running<'a> {
    tool: Tool,
    child: Child,
    ended: bool,
    folder: PathBuf,
    dump: bool,
    bench: &'a Bench,
}

/// Starts a recorder in a fresh folder and waits until it records. `None` for [`Tool::Control`].
pub fn start<'a>(tool: Tool, job: &Job<'a>, name: &str) -> anyhow::Result<Option<Running<'a>>> {
    job.bench.check()?;
    let folder = job.bench.scratch.path().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = match tool {
        Tool::Control => return Ok(None),
        Tool::Tailsight | Tool::Empty | Tool::Unsampled | Tool::Dense => {
            let mut command = Command::new(&job.bench.tailsight);
            command.args(["record", "--pid", &job.server.pid().to_string(), "--out", "run", "--duration"]);
            command.arg(format!("{}ms", job.time.as_millis()));
            if tool == Tool::Empty {
                command.arg("--empty-hooks");
            }
            if tool == Tool::Unsampled {
                command.args(["--sample", "off"]);
            }
            if tool == Tool::Dense {
                command.args(["--sample", peers::SAMPLES_PER_S]);
            }
            job.without_hook.iter().for_each(|hook| {
                command.args(["--without-hook", hook]);
            });
            command
        }
        Tool::Perf => {
            let threads = threads_of(job.server.pid())?;
            let mut command = Command::new("perf");
            command.args(peers::perf_arguments(job.hooks, &threads, job.server.port()));
            with_tracefs(&mut command);
            command
        }
        Tool::PerfG | Tool::PerfDwarf => {
            let mut command = Command::new("perf");
            command.args(peers::perf_sampling(if tool == Tool::PerfG { "fp" } else { "dwarf,8192" }));
            command.args(["--pid", &job.server.pid().to_string()]);
            command
        }
        Tool::Bpftrace => {
            let program =
                peers::bpftrace_program(job.hooks, &job.server.pid().to_string(), job.server.port(), job.dump);
            std::fs::write(folder.join("record.bt"), program)?;
            let mut command = Command::new("bpftrace");
            command.args(["-B", "line", "record.bt"]).env("BPFTRACE_MAP_KEYS_MAX", BPFTRACE_KEYS.to_string());
            with_tracefs(&mut command);
            command
        }
    };
    let log = |name: &str| File::create(folder.join(name)).with_context(|| format!("cannot write {name}"));
    command.current_dir(&folder).stdin(Stdio::null()).stdout(log("stdout")?).stderr(log("stderr")?);
    let mut control = None;
    if tool.is_perf() {
        for fifo in ["control", "ack"] {
            mkfifo(&folder.join(fifo), nix::sys::stat::Mode::S_IRWXU)?;
        }
        // Both ends are held open, so that neither side waits for the other to open.
        let open = |fifo: &str| File::options().read(true).write(true).open(folder.join(fifo));
        control = Some((open("control")?, open("ack")?));
    }
    let child = spawn_tied(command, None, Signal::SIGTERM)?;
    let mut running = Running { tool, child, ended: false, folder, dump: job.dump, bench: job.bench };
    match tool {
        _ if tool.is_ours() => running.wait_for(|r| r.log("stderr").contains("recording for"))?,
        // The first ticks show that the program is attached; its probes are attached in the same step.
        Tool::Bpftrace => running.wait_for(|r| r.log("stdout").matches("tick").count() >= 3)?,
        _ if tool.is_perf() => {
            if let Some((mut to, mut from)) = control {
                to.write_all(b"enable\n")?;
                running.wait_for(|_| readable(&from))?;
                let mut ack = [0; 16];
                let read = from.read(&mut ack)?;
                if !ack[..read].starts_with(b"ack") {
                    bail!("perf answered `{}` to enable", ack[..read].escape_ascii());
                }
            }
        }
        _ => {}
    }
    Ok(Some(running))
}

impl Running<'_> {
    /// Waits until the recorder records; an error with its words when it ends before.
    fn wait_for(&mut self, ready: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + ATTACH;
        loop {
            self.bench.check()?;
            if ready(self) {
                return Ok(());
            }
            if !self.is_recording()? {
                return Err(anyhow!("{} ended at once: {}", self.tool.name(), self.words()));
            }
            if Instant::now() > deadline {
                bail!("{} did not record within {} s: {}", self.tool.name(), ATTACH.as_secs(), self.words());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the process is still there.
    pub fn is_recording(&mut self) -> anyhow::Result<bool> {
        self.ended = self.ended || self.child.try_wait()?.is_some();
        Ok(!self.ended)
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder that it records into.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Asks it to end (`interrupt`) or waits for its own end, and reads what it recorded. Its files stay.
    pub fn finish(mut self, interrupt: bool) -> anyhow::Result<Recorded> {
        if interrupt && self.is_recording()? {
            // The child is not waited for yet, so the pid is still its own.
            kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT)?;
        }
        let deadline = Instant::now() + END;
        while self.is_recording()? {
            self.bench.check()?;
            if Instant::now() > deadline {
                bail!("{} did not end within {} s: {}", self.tool.name(), END.as_secs(), self.words());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        match self.tool {
            Tool::Control => Ok(Recorded::default()),
            Tool::Tailsight | Tool::Empty | Tool::Unsampled | Tool::Dense => {
                let meta = Run::open(&self.folder.join("run"))
                    .with_context(|| format!("tailsight said: {}", self.words()))?
                    .meta;
                Ok(Recorded {
                    events: Some(meta.events()),
                    lost: Some(meta.lost()),
                    span_ns: Some((meta.start_ns, meta.end_ns)),
                })
            }
            Tool::Perf | Tool::PerfG | Tool::PerfDwarf => {
                let (events, lost) = perf_counts(&self.folder)?;
                Ok(Recorded { events: Some(events), lost: Some(lost), span_ns: None })
            }
            Tool::Bpftrace => {
                let events =
                    self.dump.then(|| self.log("stdout").lines().filter(|l| l.starts_with("@e[")).count() as u64);
                // A full map drops events without a report.
                let lost = events.filter(|events| *events < BPFTRACE_KEYS).map(|_| 0);
                Ok(Recorded { events, lost, span_ns: None })
            }
        }
    }

    fn log(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join(name)).unwrap_or_default()).into_owned()
    }

    /// The end of what it wrote to stderr, or stdout.
    fn words(&self) -> String {
        let text = [self.log("stderr"), self.log("stdout")]
            .map(|text| text.trim().replace('\n', "; "))
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or_else(|| "it said nothing".to_owned());
        let from = text.char_indices().rev().nth(400).map_or(0, |(at, _)| at);
        text[from..].to_owned()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A recorder that is no longer needed: its programs and buffers go with it.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The hooks that a recording of this server has on.
pub fn hooks_on(bench: &Bench, server: &Server) -> anyhow::Result<Vec<String>> {
    let job = Job {
        bench,
        server,
        time: Duration::from_millis(50),
        hooks: &[],
        dump: false,
        without_hook: &bench.without_hook,
    };
    let running = start(Tool::Tailsight, &job, "hooks")?.context("tailsight is a recorder")?;
    let folder = running.folder().to_owned();
    running.finish(false)?;
    let meta = Run::open(&folder.join("run"))?.meta;
    Ok(meta.hooks.into_iter().filter(|hook| hook.on).map(|hook| hook.name).collect())
}

/// Events and lost events of a perf.data, by perf's own count.
fn perf_counts(folder: &Path) -> anyhow::Result<(u64, u64)> {
    let mut command = Command::new("perf");
    command.args(["report", "--stats", "--input", "perf.data"]).current_dir(folder).stdin(Stdio::null());
    with_tracefs(&mut command);
    let output = command.output().context("cannot run perf report")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |name: &str| {
        let line = text.lines().map(str::trim).find(|line| line.starts_with(name))?;
        line.split_once(':')?.1.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    // What follows the totals repeats them by event; the first line of a name is the total.
    let events = count("SAMPLE events:").with_context(|| {
        format!("perf report --stats counted no samples: {}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    // A LOST record stands for at least one event; newer versions of perf count the events themselves.
    Ok((events, count("LOST_SAMPLES events:").or_else(|| count("LOST events:")).unwrap_or(0)))
}

/// Makes the command see tracefs: in a mount namespace of its own when it is not mounted here.
pub fn with_tracefs(command: &mut Command) {
    if Path::new("/sys/kernel/tracing/events").is_dir() || Path::new("/sys/kernel/debug/tracing/events").is_dir() {
        return;
    }
    // SAFETY: between fork and exec the closure makes three system calls, on strings that live in the program's text.
    unsafe {
        command.pre_exec(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            // Mounts from here on must not be visible outside.
            mount(None::<&str>, c"/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
            mount(Some(c"tracefs"), c"/sys/kernel/tracing", Some(c"tracefs"), MsFlags::empty(), None::<&str>)?;
            Ok(())
        });
    }
}

/// The threads of a process.
fn threads_of(pid: u32) -> anyhow::Result<Vec<String>> {
    let folder = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Whether a read would not wait.
fn readable(file: &File) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
