//! `record --source intel-pt`: perf traces the cores while the ebpf source records the messages.
//!
//! In: the options of `record`. Out: the run of the messages in `OUT.messages`, perf's recording in `OUT.intel-pt`, and both as one run in
//! `OUT`. No machine with Intel PT has run this yet; what is tested is the refusal, the command line of perf, and the import.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tailsight_pt::import::{self, Output};
use tailsight_pt::{Places, Recording};
use tailsight_symbolise::reader::Reader;
use tailsight_trace::Run;
use tailsight_trace::clock_log::ClockChangeRow;

use crate::Exit;
use crate::cli::Record;

/// Where the kernel shows the tracing unit.
const UNIT: &str = "sys/bus/event_source/devices/intel_pt";
/// How long perf may take to write what it has.
const WRITES: Duration = Duration::from_secs(120);

/// Records the messages while perf traces the cores, and puts both into one run.
pub fn record(
    args: &Record,
    messages_into: impl FnOnce(&Record, &Path) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    check(Path::new("/"))?;
    let (messages, trace) = (beside(&args.out, "messages"), beside(&args.out, "intel-pt"));
    // Recording messages takes away the right to start programs.
    let reader = Reader::start();
    let poller = tailsight_host::vvar::Poller::start()?;
    let perf = Perf::start(&trace)?;
    let verdict = messages_into(args, &messages)?;
    let trace = perf.stop()?;
    let log = poller.stop().changes;
    let recording = Recording::open_with(&trace, &Places::default(), reader)?;
    let mut run = Run::open(&messages)?;
    run.clock_log = log.iter().map(change_row).collect();
    let output = Output { dir: &args.out, shared: args.into_shared, version: env!("CARGO_PKG_VERSION") };
    let imported = import::with(&recording, &mut run, None, output)?;
    say!("functions: {} events put into {}", imported.events, args.out.display());
    Ok(verdict)
}

fn change_row(parameters: &tailsight_host::vvar::Parameters) -> ClockChangeRow {
    ClockChangeRow::new(
        parameters.seq,
        parameters.cycle_last,
        (parameters.mult, parameters.shift),
        [parameters.monotonic, parameters.realtime, parameters.tai],
    )
}

/// Whether this machine can trace.
///
/// # Errors
/// That it cannot, and what can be done instead.
pub fn check(root: &Path) -> anyhow::Result<()> {
    if root.join(UNIT).is_dir() {
        return Ok(());
    }
    bail!(
        "this machine has no Intel PT: the kernel shows no /{UNIT} (the processor lacks it, or a hypervisor hides \
         it)\n  \
         the ebpf source samples functions on any machine: tailsight record --source ebpf --sample 997 …\n  \
         a recording made elsewhere: tailsight import PERF.DATA"
    )
}

/// A directory beside the run's.
fn beside(out: &Path, what: &str) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}"));
    out.with_file_name(name)
}

/// What perf is called with.
fn arguments(out: &Path) -> Vec<String> {
    let out = out.display().to_string();
    let words = ["record", "--kcore", "--all-cpus", "-e", "intel_pt/cyc,noretcomp=0/", "-m", "8M,64M", "-o", &out];
    words.map(str::to_owned).to_vec()
}

/// A perf that records.
struct Perf {
    child: Child,
    out: PathBuf,
}

impl Perf {
    /// Starts it.
    fn start(out: &Path) -> anyhow::Result<Perf> {
        if out.exists() {
            bail!("{} exists (an earlier recording of perf); remove it, or choose another -o", out.display());
        }
        let mut command = Command::new("perf");
        command.args(arguments(out)).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start perf (Debian: linux-perf)")?;
        Ok(Perf { child, out: out.into() })
    }

    /// Ends it as Ctrl-C would, and waits for its file.
    fn stop(mut self) -> anyhow::Result<PathBuf> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > WRITES {
                bail!(
                    "perf did not end within {} s of SIGINT; its data is in {}",
                    WRITES.as_secs(),
                    self.out.display()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if !self.out.join("data").is_file() {
            bail!("perf recorded nothing: {}", self.out.display());
        }
        Ok(std::mem::take(&mut self.out))
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        // Only what was started here.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_unit_is_told_what_to_do_instead() {
        let root = tempfile::tempdir().unwrap();
        let why = check(root.path()).unwrap_err().to_string();
        assert!(
            why.contains("no Intel PT") && why.contains("--source ebpf --sample") && why.contains("import"),
            "{why}"
        );
        std::fs::create_dir_all(root.path().join(UNIT)).unwrap();
        assert!(check(root.path()).is_ok());
    }

    #[test]
    fn perf_is_asked_for_cycles_and_the_kernel_s_code() {
        let words = arguments(Path::new("/tmp/x.intel-pt")).join(" ");
        assert!(
            words.contains("--kcore") && words.contains("intel_pt/cyc") && words.ends_with("-o /tmp/x.intel-pt"),
            "{words}"
        );
        assert_eq!(beside(Path::new("a/run"), "messages"), Path::new("a/run.messages"));
    }
}
