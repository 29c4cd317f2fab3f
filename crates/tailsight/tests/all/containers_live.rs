//! Servers in containers, and a recorder in one: by runc or crun, without an engine.
//!
//! A container here has the machine's own programs, read only; its namespaces and its rights are its own. The recorder has the rights of
//! the DaemonSet in `packaging/kubernetes/base`, and a pod's namespaces but that of processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tailsight_testbed::load::{Proto, Workload};

use crate::support::{Live, address, check_run, run, shown, wait_for};

const PORT: u16 = 21233;

/// The runtime that starts containers here, or why none does.
fn runtime() -> Result<&'static str, String> {
    if tailsight_testing::lacks_program("runc").is_none() {
        return Ok("runc");
    }
    if let Some(reason) = tailsight_testing::lacks_program("crun") {
        return Err(reason);
    }
    // Debian 12's crun starts nothing there.
    let both_versions = Path::new("/sys/fs/cgroup/unified").is_dir();
    if both_versions { Err("needs runc, or control groups of one version".to_owned()) } else { Ok("crun") }
}

/// A container, which ends with it.
struct Container {
    runtime: &'static str,
    name: String,
    process: Child,
}

impl Container {
    /// `own`: what of its configuration is not that of every container here.
    fn start(runtime: &'static str, folder: PathBuf, args: &[&str], own: impl FnOnce(&mut Value)) -> Container {
        let root = folder.join("rootfs");
        for directory in ["proc", "sys", "usr", "opt", "var/lib/tailsight"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for link in ["bin", "lib", "lib64"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link)).unwrap();
        }
        let mut configuration = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": 0, "gid": 0 },
                "args": args,
                "env": ["PATH=/usr/bin"],
                "cwd": "/",
                "noNewPrivileges": true,
            },
            "root": { "path": "rootfs", "readonly": true },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"] },
            ],
            "linux": { "namespaces": [{ "type": "mount" }, { "type": "ipc" }, { "type": "uts" }] },
        });
        own(&mut configuration);
        std::fs::write(folder.join("config.json"), configuration.to_string()).unwrap();
        let number = folder.file_name().unwrap().to_string_lossy().into_owned();
        let name = format!("tailsight-test-{}-{number}", std::process::id());
        let mut command = Command::new(runtime);
        command.args(["run", "--bundle"]).arg(&folder).arg(&name);
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Container { runtime, name, process }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It is gone already where its program has ended.
        drop(Command::new(self.runtime).args(["delete", "--force", &self.name]).stderr(Stdio::null()).status());
        drop(self.process.wait());
    }
}

fn add(configuration: &mut Value, list: &str, values: impl IntoIterator<Item = Value>) {
    configuration.pointer_mut(list).unwrap().as_array_mut().unwrap().extend(values);
}

/// memcached in a container of its own, with numbers of its own for processes, in the network namespace of the test.
fn memcached(live: &Live, runtime: &'static str) -> Container {
    let port = PORT.to_string();
    let folder = live.dir.path().join("server");
    let network = format!("/run/netns/{}", live.pair.server.name());
    let container = Container::start(runtime, folder, &["memcached", "-t", "1", "-p", &port], |own| {
        // It has no list of users, and refuses to be root.
        own["process"]["user"] = json!({ "uid": 65534, "gid": 65534 });
        add(own, "/linux/namespaces", [json!({ "type": "pid" }), json!({ "type": "network", "path": network })]);
    });
    wait_for(|| live.pair.client.run(|| std::net::TcpStream::connect(address(false, PORT))).unwrap().ok());
    container
}

fn load() -> Workload {
    Workload::new(Proto::Memcached, address(false, PORT)).rate(2_000.0)
}

fn start(test: &str) -> Option<(Live, &'static str)> {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(reason) => {
            tailsight_testing::skip_as(test, reason);
            return None;
        }
    };
    if let Some(reason) = tailsight_testing::lacks_program("memcached") {
        tailsight_testing::skip_as(test, reason);
        return None;
    }
    Some((Live::new(test)?, runtime))
}

#[test]
fn a_container_is_recorded_by_its_name() {
    let Some((live, runtime)) = start("a_container_is_recorded_by_its_name") else { return };
    let server = memcached(&live, runtime);
    let out = live.path("run");
    let (recorded, _) =
        live.under_load(&[load()], || run(&["record", "--container", &server.name, "-d", "1s", "-o", &out]));
    assert_eq!(recorded.status.code(), Some(0), "{}", shown(&recorded));
    let (messages, received, ..) = check_run(Path::new(&out));
    assert!(messages > 500 && received > 500, "{messages} {received}");

    let other = run(&["record", "--container", "no-such-container", "-d", "1s", "-o", &live.path("other")]);
    assert_eq!(other.status.code(), Some(1));
    assert!(shown(&other).contains(&server.name), "what runs is listed: {}", shown(&other));
}

/// The capabilities of the DaemonSet, as the kernel names them.
fn rights_of_the_watcher() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/base/daemonset.yaml");
    let manifest: Value = serde_norway::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let rights = &manifest["spec"]["template"]["spec"]["containers"][0]["securityContext"]["capabilities"]["add"];
    rights.as_array().unwrap().iter().map(|name| format!("CAP_{}", name.as_str().unwrap())).collect()
}

#[test]
fn the_rights_of_the_daemon_set_are_enough() {
    let Some((live, runtime)) = start("the_rights_of_the_daemon_set_are_enough") else { return };
    let _server = memcached(&live, runtime);
    let programs = live.dir.path().join("programs");
    let captures = live.dir.path().join("captures");
    std::fs::create_dir_all(&programs).unwrap();
    std::fs::create_dir_all(&captures).unwrap();
    tailsight_testing::copy_program(env!("CARGO_BIN_EXE_tailsight"), programs.join("tailsight"));
    let port = PORT.to_string();
    let args = ["/opt/tailsight", "record", "--port", &port, "-d", "1s", "-o", "/var/lib/tailsight/run"];
    let rights = rights_of_the_watcher();
    let folder = live.dir.path().join("recorder");
    let (recorded, _) = live.under_load(&[load()], || {
        let mut recorder = Container::start(runtime, folder, &args, |own| {
            own["process"]["capabilities"] =
                json!({ "bounding": rights, "effective": rights, "permitted": rights });
            // A pod's own network, and its own view of control groups; the node's processes.
            add(own, "/linux/namespaces", [json!({ "type": "network" }), json!({ "type": "cgroup" })]);
            let read_only = |path: &str, source: &Path| {
                json!({ "destination": path, "type": "bind", "source": source, "options": ["rbind", "ro"] })
            };
            add(own, "/mounts", [
                json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"] }),
                read_only("/sys/fs/cgroup", Path::new("/sys/fs/cgroup")),
                read_only("/opt", &programs),
                json!({ "destination": "/var/lib/tailsight", "type": "bind", "source": captures, "options": ["rbind", "rw"] }),
            ]);
        });
        let status = recorder.process.wait().unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut recorder.process.stderr.take().unwrap(), &mut said).unwrap();
        (status, said)
    });
    assert_eq!(recorded.0.code(), Some(0), "{}", recorded.1);
    let path = captures.join("run");
    let (messages, received, ..) = check_run(&path);
    assert!(messages > 500 && received > 500, "{messages} {received}");
    // Nothing is lost for want of a right: the cost of the hooks, the names of kernel functions.
    let meta = tailsight_trace::Run::open(&path).unwrap().meta.clone();
    assert_eq!(meta.warnings, [""; 0]);
    assert!(meta.hooks.iter().any(|hook| hook.ns_per_run.is_some()));
}
