//! Recordings with no more rights than they need, and what is left of those while they run.
//!
//! The recorder is a copy of the program run as the user nobody with capabilities given by `setpriv` or by `setcap`; its target is
//! a memcached of root's in a network namespace of the test's own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::server::{MemcachedOpts, Server};
use tailsight_trace::Run;

use crate::support::{Live, address, recording_process, run, shown, stderr};

const PORT: u16 = 21231;
/// What a recording of another user's server needs: the `setcap` line and the unit of docs/privileges.md.
const ENOUGH: &str = "bpf,perfmon,sys_ptrace,dac_read_search,net_admin";

/// A copy of the program where nobody may start it, and a folder where nobody may write.
struct Unprivileged {
    program: PathBuf,
    folder: PathBuf,
}

impl Unprivileged {
    fn new(live: &Live) -> Unprivileged {
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(live.dir.path(), mode(0o755)).unwrap();
        let program = live.dir.path().join("tailsight");
        tailsight_testing::copy_program(env!("CARGO_BIN_EXE_tailsight"), &program);
        let folder = live.dir.path().join("runs");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).unwrap();
        std::fs::set_permissions(&folder, mode(0o700)).unwrap();
        Unprivileged { program, folder }
    }

    /// The program as nobody, with these capabilities of `setpriv`'s and those that its file has.
    fn command(&self, capabilities: &str, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        if !capabilities.is_empty() {
            let given = format!("+{}", capabilities.replace(',', ",+"));
            command.args([format!("--inh-caps={given}"), format!("--ambient-caps={given}")]);
        }
        command.arg(&self.program).args(args).stdin(Stdio::null()).env("NO_COLOR", "1").env("COLUMNS", "100");
        command
    }

    fn run(&self, capabilities: &str, args: &[&str]) -> Output {
        self.command(capabilities, args).output().expect("setpriv starts")
    }

    fn out(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

fn start(test: &str) -> Option<(Live, Server, Workload)> {
    for program in ["setpriv", "memcached"] {
        if let Some(reason) = tailsight_testing::lacks_program(program) {
            tailsight_testing::skip_as(test, reason);
            return None;
        }
    }
    let live = Live::new(test)?;
    let server =
        Server::memcached(&live.pair.server, MemcachedOpts { port: PORT, threads: 1, ..Default::default() }).unwrap();
    Some((live, server, Workload::new(Proto::Memcached, address(false, PORT)).rate(2_000.0)))
}

/// A line of `/proc/PID/task/TID/status`.
fn status(pid: u32, name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("status")).ok()?;
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
    };
    tasks.filter_map(of_task).collect()
}

/// A capability was kept until the end whatever it had been for, and no filter was installed.
#[test]
fn a_recorder_gives_up_what_it_no_longer_needs() {
    let Some((live, server, load)) = start("a_recorder_gives_up_what_it_no_longer_needs") else { return };
    let pid = server.pid().to_string();
    let out = live.path("run");
    let ((capabilities, seccomp, bounding, finished), _) = live.under_load(&[load], || {
        let mut recorder = crate::support::tailsight(&["record", "-p", &pid, "-d", "2s", "-o", &out])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Until it records: the filter is the last thing that it installs before.
        let begun = Instant::now();
        let started = recorder.id();
        while status(recording_process(started), "Seccomp").first().is_none_or(|mode| mode != "2")
            && begun.elapsed() < Duration::from_secs(20)
            && recorder.try_wait().unwrap().is_none()
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(200));
        let id = recording_process(started);
        let rights = (status(id, "CapPrm"), status(id, "Seccomp"), status(id, "CapBnd"));
        (rights.0, rights.1, rights.2, recorder.wait_with_output().unwrap())
    });
    assert_eq!(finished.status.code(), Some(0), "{}", shown(&finished));
    assert!(!capabilities.is_empty() && seccomp.iter().all(|mode| mode == "2"), "{seccomp:?}");
    // CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_BOOT, CAP_SYS_TIME, CAP_SETUID, CAP_CHOWN, CAP_MKNOD, CAP_DAC_OVERRIDE.
    for mask in capabilities.iter().chain(&bounding) {
        let bits = u64::from_str_radix(mask, 16).unwrap();
        for number in [16, 17, 22, 25, 7, 0, 27, 1] {
            assert_eq!(bits >> number & 1, 0, "capability {number} in {mask}");
        }
    }
    let recorded = Run::open(Path::new(&out)).unwrap();
    let said = recorded.meta.recorder.clone().unwrap().confinement.expect("said in run.json");
    assert!(said.seccomp && said.notes.is_empty(), "{said:?}");
    assert!(!said.capabilities.iter().any(|name| name == "CAP_SYS_ADMIN" || name == "CAP_BPF"), "{said:?}");
    // Nothing that comes after lacks: the cost of the hooks, the devices, the functions.
    assert_eq!(recorded.meta.warnings, [""; 0]);
    assert!(recorded.meta.hooks.iter().any(|hook| hook.ns_per_run.is_some()) && !recorded.meta.devices.is_empty());
    let sampling = recorded.meta.sampling.clone().unwrap();
    assert!(sampling.samples > 0 && sampling.notes.is_empty(), "{sampling:?}");
    let (messages, received, ..) = crate::support::check_run(Path::new(&out));
    assert!(messages > 1_000 && received > 1_000, "{messages} {received}");
}

/// A command is started before and ended after, also when it became another user.
#[test]
fn a_command_that_became_another_user_is_ended_all_the_same() {
    if let Some(reason) = tailsight_testing::lacks_root().or_else(|| tailsight_testing::lacks_program("setpriv")) {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run").display().to_string();
    let sleep = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sleep", "61.5"];
    let output = run(&[&["record", "-d", "300ms", "-o", &out, "--"][..], &sleep].concat());
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let left = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.ends_with(b"sleep\x0061.5\0")));
    assert!(!left, "the command runs on");
}

/// With too little, the error says what could not be read and which capability gives it.
#[test]
fn what_a_missing_capability_takes_away_is_said_by_record_and_doctor() {
    let Some((live, server, load)) = start("what_a_missing_capability_takes_away_is_said_by_record_and_doctor") else {
        return;
    };
    let nobody = Unprivileged::new(&live);
    let pid = server.pid().to_string();
    let port = PORT.to_string();
    let fails = |capabilities: &str, target: [&str; 2], words: &[&str]| {
        let out = nobody.out("failed");
        let output = nobody.run(capabilities, &[&["record", "-d", "200ms", "-o", &out][..], &target].concat());
        assert_eq!(output.status.code(), Some(1), "{capabilities}: {}", shown(&output));
        for word in words {
            assert!(stderr(&output).contains(word), "{capabilities} must say {word:?}: {}", shown(&output));
        }
    };
    fails("", ["-p", &pid], &["CAP_BPF", "docs/privileges.md"]);
    fails("bpf", ["-p", &pid], &["CAP_PERFMON"]);
    fails("bpf,perfmon,net_admin", ["-p", &pid], &["sockets", "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"]);
    // It said that nobody listens there.
    fails("bpf,perfmon,net_admin", ["--port", &port], &["cannot be read", "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"]);

    let doctor = nobody.run("bpf,perfmon,net_admin", &["doctor", "--json"]);
    let report = crate::support::json(&doctor);
    let missing: Vec<&str> =
        report["rights"]["missing"].as_array().unwrap().iter().map(|m| m["capability"].as_str().unwrap()).collect();
    assert_eq!(
        missing,
        ["CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_SYSLOG", "CAP_CHECKPOINT_RESTORE"]
    );
    let doctor = nobody.run("bpf,perfmon,net_admin", &["doctor"]);
    assert!(shown(&doctor).contains("without CAP_SYS_PTRACE: only servers of your own user"), "{}", shown(&doctor));

    // What the page says is enough is enough; what it says is lacking without CAP_SYS_ADMIN is all that is.
    let out = nobody.out("enough");
    let args = ["record", "--port", &port, "-d", "500ms", "-o", &out];
    let (output, _) = live.under_load(&[load], || nobody.run(ENOUGH, &args));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let recorded = Run::open(Path::new(&out)).unwrap();
    assert!(
        recorded.meta.warnings.iter().any(|w| w.contains("they need CAP_SYS_ADMIN")),
        "{:?}",
        recorded.meta.warnings
    );
    let (messages, received, ..) = crate::support::check_run(Path::new(&out));
    assert!(messages > 300 && received > 300, "{messages} {received}");
}

/// Why no file where the tests have theirs can be given a capability; `None`: it can. Tried on a file of its own.
fn lacks_file_capabilities() -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let set = Command::new("setcap").arg("cap_net_raw=ep").arg(file.path()).output().expect("setcap starts");
    (!set.status.success()).then(|| format!("this file system keeps no capabilities: {}", stderr(&set)))
}

/// The line of docs/privileges.md, on a copy.
#[test]
fn a_program_with_file_capabilities_records_for_a_user_without_rights() {
    let test = "a_program_with_file_capabilities_records_for_a_user_without_rights";
    let lacking = tailsight_testing::lacks_root().or_else(|| tailsight_testing::lacks_program("setcap"));
    if let Some(reason) = lacking.or_else(lacks_file_capabilities) {
        return tailsight_testing::skip(reason);
    }
    let Some((live, server, load)) = start(test) else { return };
    let nobody = Unprivileged::new(&live);
    let page = std::fs::read_to_string(format!("{}/../../docs/privileges.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let line = page.lines().find_map(|line| line.trim().strip_prefix("sudo setcap ")).expect("a setcap line");
    let given = line.split_whitespace().next().unwrap();
    assert_eq!(given, format!("cap_{}=ep", ENOUGH.replace(',', ",cap_")));
    let set = Command::new("setcap").arg(given).arg(&nobody.program).output().unwrap();
    assert!(set.status.success(), "{}", shown(&set));
    let out = nobody.out("run");
    let pid = server.pid().to_string();
    let args = ["record", "-p", &pid, "-d", "500ms", "-o", &out];
    let (output, _) = live.under_load(&[load], || nobody.run("", &args));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let (messages, received, ..) = crate::support::check_run(Path::new(&out));
    assert!(messages > 300 && received > 300, "{messages} {received}");
    // Its own user can read it.
    let output = nobody.run("", &["diagnose", &out, "--focus", "p90..p100"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
}

#[test]
fn the_unit_is_one_that_systemd_takes_with_the_capabilities_of_the_page() {
    let unit = format!("{}/../../packaging/tailsight-record.service", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&unit).unwrap();
    let named = ENOUGH.split(',').map(|name| format!("CAP_{}", name.to_uppercase())).collect::<Vec<_>>().join(" ");
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert!(text.contains(&format!("\n{key}={named}\n")), "{key} in {unit}");
    }
    if let Some(reason) = tailsight_testing::lacks_program("systemd-analyze") {
        return tailsight_testing::skip_part("systemd's reading of it", reason);
    }
    // Its program need not be installed where this test runs.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("tailsight-record.service");
    std::fs::write(&copy, text.replace("/usr/bin/tailsight ", "/bin/true ")).unwrap();
    // It also reads every unit that this one depends on: what it says of those is the machine's affair.
    let verify = ["--man=no", "--recursive-errors=no", "verify"];
    let output = Command::new("systemd-analyze").args(verify).arg(&copy).output().unwrap();
    let of_ours = String::from_utf8_lossy(&output.stderr).contains("tailsight-record");
    assert!(!of_ours, "{}", shown(&output));
    if !output.status.success() {
        tailsight_testing::skip_part(
            "systemd's reading of it",
            format!("systemd-analyze fails here: {}", shown(&output)),
        );
    }
}
