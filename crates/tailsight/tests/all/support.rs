//! What the tests share: the built program, a live machine to themselves, and a load.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base64::Engine as _;
use nix::sys::signal::Signal;
use tailsight_confine::priority::SessionGroup;
use tailsight_testbed::disturbed;
use tailsight_testbed::load::{self, LoadSummary, Workload};
use tailsight_testbed::netns::{self, Namespace, Pair};
use tailsight_testbed::process::{children_of, spawn_tied};
use tempfile::TempDir;

/// The program under test.
pub fn tailsight(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailsight"));
    command.args(args).stdin(Stdio::null()).env("NO_COLOR", "1").env("COLUMNS", "100");
    command
}

/// The process that records for a `tailsight record` that was started: a child, where it records in a session of its own; itself until the
/// child is there.
pub fn recording_process(started: u32) -> u32 {
    let apart = SessionGroup::own().is_some();
    children_of(started).into_iter().find(|_| apart).unwrap_or(started)
}

/// Runs it to its end.
pub fn run(args: &[&str]) -> Output {
    tailsight(args).output().expect("the program was built for this test")
}

/// A recorder that records, which on a busy machine takes seconds: it says so. What it says is in `OUT.stderr`.
pub fn begun(args: &[&str], out: &str) -> Child {
    let stderr = format!("{out}.stderr");
    let recorder = tailsight(args).stderr(File::create(&stderr).unwrap()).spawn().unwrap();
    let says = |text: String| text.lines().any(|line| line.starts_with("recording "));
    wait_for(|| std::fs::read_to_string(&stderr).is_ok_and(says).then_some(()));
    recorder
}

/// Asks again for at most a minute: on cores that are never free what gives way, as a recorder does, takes half of one to begin or to end.
pub fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Exit code and both outputs, for messages of failing asserts.
pub fn shown(output: &Output) -> String {
    format!(
        "exit {:?}\n--- stdout\n{}\n--- stderr\n{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output as JSON.
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", shown(output)))
}

/// What a report's page says of its run and diagnosis.
pub fn page_data(page: &str) -> serde_json::Value {
    element(page, "page")
}

/// An element of a page's data: base64 of gzip of JSON.
pub fn element(page: &str, name: &str) -> serde_json::Value {
    let html = std::fs::read_to_string(page).expect("a page");
    let mark = format!("id=\"data-{name}\">");
    let from = html.find(&mark).expect("a page has its data") + mark.len();
    let text = html[from..].split('<').next().expect("split has a first part");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    serde_json::from_reader(flate2::read::GzDecoder::new(&bytes[..])).expect("gzip of JSON")
}

static MACHINE: Mutex<()> = Mutex::new(());

/// The cores, without a live test on them. What takes them whole, a browser say, would be in its recording. A test that failed poisons
/// the lock; the machine is free all the same.
pub fn cores() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A live test's machine: two namespaces, and nobody else of this test program on the cores.
pub struct Live {
    /// Server and client.
    pub pair: Pair,
    /// Where runs go.
    pub dir: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Whether it is later than `TAILSIGHT_LIVE_UNTIL`, seconds since 1970: on a machine that other programs keep busy, live tests take as long
/// as these let them.
fn is_late() -> bool {
    let until = std::env::var("TAILSIGHT_LIVE_UNTIL").ok().and_then(|text| text.parse::<u64>().ok());
    until.is_some_and(|until| std::time::UNIX_EPOCH.elapsed().is_ok_and(|now| now.as_secs() > until))
}

impl Live {
    /// `None`, said by name, where live recording is not permitted.
    pub fn new(test: &str) -> Option<Live> {
        let reason = if !netns::permitted() {
            Some("needs root for network namespaces".to_owned())
        } else {
            let hooks = tailsight_record::loader::survey(&tailsight_record::HookChoice::default());
            let root = tailsight_host::Root::host();
            let kernel = tailsight_host::kernel::Kernel::collect(&root);
            let rights = tailsight_host::rights::Rights::collect(&root, &kernel);
            let refused = rights.bpf_kernel_read.known().filter(|a| !a.allowed).map(|a| a.meaning.clone());
            refused.or_else(|| hooks.err().map(|e| tailsight_units::chain(&e)))
        };
        if let Some(reason) = reason {
            tailsight_testing::skip_as(test, reason);
            return None;
        }
        let alone = cores();
        if is_late() {
            tailsight_testing::not_judged(
                test,
                "the tests have run for too long already: this machine is too busy for the rest of the live ones",
            );
            return None;
        }
        tailsight_testing::raise_priority();
        Some(Live {
            pair: Pair::create("test").expect("namespaces"),
            dir: tempfile::tempdir().expect("a temporary folder"),
            _alone: alone,
        })
    }

    /// A path in the temporary folder as text.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// Runs a load until `during` returns, and gives both results.
    pub fn under_load<T>(&self, workloads: &[Workload], during: impl FnOnce() -> T) -> (T, Vec<LoadSummary>) {
        let stop = AtomicBool::new(false);
        let (prepared, is_prepared) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let stop = &stop;
            let load = scope.spawn(move || {
                let told = || prepared.send(()).expect("who waits for it");
                let load = || load::run_telling(workloads, LONGEST_LOAD, false, stop, told);
                self.pair.client.run(load).expect("the namespace")
            });
            // Connections and first values are made before anything is recorded, which takes seconds on a busy machine. A load that failed
            // says so where it is waited for.
            let _ = is_prepared.recv_timeout(Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(300));
            let ends = EndsLoad(stop);
            let result = during();
            drop(ends);
            (result, load.join().expect("the load").expect("the load"))
        })
    }
}

/// Ends a load, also where what it was for panics: the test would wait for the load's own end.
struct EndsLoad<'a>(&'a AtomicBool);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The server's addresses: IPv4, IPv6.
pub fn address(v6: bool, port: u16) -> SocketAddr {
    let ip = if v6 { netns::SERVER_V6 } else { netns::SERVER_V4 };
    SocketAddr::new(ip, port)
}

/// A load ends when what it is for has ended. On a machine that others fill a recorder, which gives way, took more than two minutes to begin.
const LONGEST_LOAD: Duration = Duration::from_secs(300);

/// How much of the slowest messages' time other programs of the machine may have had where an answer about these messages is judged.
#[derive(Clone, Copy)]
pub struct Quiet<'a> {
    /// The running test.
    pub test: &'a str,
    /// The run that is judged.
    pub out: &'a str,
    /// The leg that is judged.
    pub leg: &'a str,
    /// Which part of the messages are the slow ones, 0 to 1.
    pub slowest: f64,
    /// Programs that the test started besides the target and the load.
    pub ours: &'a [u32],
    /// From this part of the slow messages' excess on, other programs had too much.
    pub limit: f64,
}

impl<'a> Quiet<'a> {
    /// The usual limit: the lab's.
    pub fn of(test: &'a str, out: &'a str, leg: &'a str, slowest: f64) -> Self {
        Self { test, out, leg, slowest, ours: &[], limit: disturbed::LIMIT }
    }

    /// Records, three times at most, until other programs left the slow messages alone: by the raw events, before any answer is looked at.
    /// `None`, said with the reason, where they never did.
    pub fn recorded<T>(&self, mut record: impl FnMut() -> T) -> Option<T> {
        let mut others = 0.0;
        for _ in 0..3 {
            let _ = std::fs::remove_dir_all(self.out);
            let recorded = record();
            others = self.had(self.ours);
            if others < self.limit {
                return Some(recorded);
            }
        }
        let had = format!(
            "other programs had {:.0} % of what the slow messages took longer, in the last of three recordings",
            100.0 * others
        );
        tailsight_testing::not_judged(self.test, had);
        None
    }

    /// The part of the slow messages' excess that other programs than these, the recorder and the load had, by the raw events; 0 with too
    /// few messages to say.
    pub fn had(&self, ours: &[u32]) -> f64 {
        let mut run = tailsight_trace::Run::open(Path::new(self.out)).expect("a run");
        let events = run.events().expect("events");
        let recorder = run.meta.recorder.as_ref().map(|recorder| recorder.pid);
        let ours = ours.iter().copied().chain(recorder).chain([std::process::id()]).collect();
        let disturbance = disturbed::disturbance(&run.tasks, &events, &ours, self.leg, self.slowest, true);
        disturbance.map_or(0.0, |disturbance| disturbance.share)
    }
}

/// Opens a run and checks what must hold for every run: nothing lost, parts sum to the latency to the nanosecond, paths
/// are contiguous. Gives (messages, complete receive legs, complete total legs, incomplete).
pub fn check_run(path: &Path) -> (usize, usize, usize, u64) {
    use tailsight_lifetime::{Analysis, Leg, RunContext};
    let mut run = tailsight_trace::Run::open(path).expect("a run");
    let events = run.events().expect("events");
    let analysis = Analysis::build(&RunContext::of(&run), &events);
    let lifetimes = &analysis.lifetimes;
    let (mut received, mut answered) = (0, 0);
    for message in &lifetimes.messages {
        for leg in Leg::ALL {
            let Some(latency) = message.latency(leg) else { continue };
            let sum: u64 = lifetimes.parts(message.id, leg).iter().map(|p| p.ns).sum();
            let exact = leg != Leg::Total || message.latency(Leg::Service).is_some();
            assert!(!exact || sum == latency, "message {} leg {}: {sum} != {latency}", message.id, leg.name());
        }
        received += usize::from(message.latency(Leg::Receive).is_some());
        answered += usize::from(message.latency(Leg::Total).is_some());
    }
    for message in lifetimes.messages.iter().step_by(97) {
        let path = analysis.path(message.id, Leg::Receive);
        let (from, to) = message.ends(Leg::Receive).expect("received");
        assert_eq!((path.first().map(|s| s.from_ns), path.last().map(|s| s.to_ns)), (Some(from), Some(to)));
        assert!(path.windows(2).all(|w| w[0].to_ns == w[1].from_ns), "a gap in the path of message {}", message.id);
    }
    // The time of day is that of the begin of the recording, also where preparing it took long. A recorder that was killed left no clocks.
    if let Some(first) = run.clocks.first() {
        let offset_ns = |wall_ns: u64, monotonic_ns: u64| i128::from(wall_ns) - i128::from(monotonic_ns);
        let apart_ns =
            offset_ns(run.meta.started_unix_ns, run.meta.start_ns) - offset_ns(first.realtime_ns, first.monotonic_ns);
        assert!(apart_ns.abs() < 1_000_000, "{apart_ns} ns between the time of day of the start and the clocks");
    }
    (lifetimes.messages.len(), received, answered, lifetimes.incomplete.values().sum())
}

/// Tells a thread to end, also where a check fails: a test whose threads go on would keep the whole run waiting.
pub struct SetWhenDropped<'a>(pub &'a std::sync::atomic::AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Makes a key and a certificate that it signed itself, in files of these names.
pub fn make_certificate(key: &str, certificate: &str) {
    let made = rcgen::generate_simple_self_signed(vec!["10.77.0.1".to_owned()]).expect("a certificate");
    std::fs::write(key, made.signing_key.serialize_pem()).expect("the folder of the test");
    std::fs::write(certificate, made.cert.pem()).expect("the folder of the test");
}

/// Runs a compiler, which must not fail. Go is told to need no module.
pub fn built(program: &str, args: &[&str], dir: &Path) {
    let output =
        Command::new(program).args(args).current_dir(dir).env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off").output();
    let output = output.expect("it is installed");
    assert!(output.status.success(), "{}", shown(&output));
}

/// Builds a program of Go from a file of the test's folder, into that folder.
pub fn build_go(live: &Live, source: &str, program: &str) {
    built("go", &["build", "-o", &live.path(program), &live.path(source)], live.dir.path());
}

/// A program that ends with the test.
pub struct Program(Child);

impl Program {
    /// Starts it in a namespace. What it says is not kept.
    pub fn start(space: &Namespace, program: &str, args: &[&str]) -> Program {
        let mut command = space.command(Path::new(program));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Program(spawn_tied(command, None, Signal::SIGKILL).expect("it starts"))
    }

    /// Its process.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a server of the pair listens on each of these ports.
pub fn wait_until_it_listens(live: &Live, ports: &[u16]) {
    let until = Instant::now() + Duration::from_secs(20);
    let connects = || ports.iter().all(|port| std::net::TcpStream::connect(("10.77.0.1", *port)).is_ok());
    while !live.pair.server.run(connects).expect("the namespace") {
        assert!(Instant::now() < until, "the server listens");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Opens a run of a test. `None`: the kernel keeps no payload, and the test is skipped.
pub fn with_payload(test: &str, output: &Output, out: &str) -> Option<tailsight_trace::Run> {
    assert_eq!(output.status.code(), Some(0), "{}", shown(output));
    check_run(Path::new(out));
    let recording = tailsight_trace::Run::open(Path::new(out)).unwrap();
    let warning = recording.meta.warnings.iter().find(|warning| warning.contains("6.12"));
    match warning {
        Some(warning) => {
            tailsight_testing::skip_as(test, warning);
            None
        }
        None => Some(recording),
    }
}
