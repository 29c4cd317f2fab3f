//! What `packaging/kubernetes/` has: manifests that Kubernetes' own types take with every field, and a plugin of kubectl that leaves nothing
//! behind. The plugin runs with a kubectl of the test, which writes down what it is asked for; no cluster is asked.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, SecurityContext, ServiceAccount};
use serde_json::Value;

/// The signals that end the plugin, each with the exit code.
const SIGNALS: [(libc::c_int, i32); 3] = [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)];

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes").canonicalize().unwrap()
}

fn yaml(text: &str) -> Value {
    serde_norway::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Reads a resource as one of Kubernetes' types. A field that the type does not have would be missing when it is written again.
fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(manifest: &Value) -> T {
    let resource: T = serde_json::from_value(manifest.clone()).unwrap_or_else(|error| panic!("{error}: {manifest}"));
    assert_eq!(serde_json::to_value(&resource).unwrap(), *manifest, "a field that Kubernetes does not have");
    resource
}

/// The manifests of the base, by their files' names.
fn base(name: &str) -> Value {
    yaml(&std::fs::read_to_string(packaging().join("base").join(name)).unwrap())
}

#[test]
fn every_manifest_of_the_base_is_listed_and_has_only_fields_that_kubernetes_has() {
    let kustomization = base("kustomization.yaml");
    assert_eq!(kustomization["kind"], "Kustomization");
    let listed: Vec<&str> =
        kustomization["resources"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let mut files: Vec<String> = std::fs::read_dir(packaging().join("base"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    files.sort();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, files);
    for name in listed {
        let manifest = base(name);
        match manifest["kind"].as_str().unwrap() {
            "Namespace" => drop(typed::<Namespace>(&manifest)),
            "ServiceAccount" => drop(typed::<ServiceAccount>(&manifest)),
            "DaemonSet" => drop(typed::<DaemonSet>(&manifest)),
            other => panic!("{name}: no type for {other}"),
        }
    }
}

#[test]
#[should_panic(expected = "a field that Kubernetes does not have")]
fn a_misspelt_field_is_found() {
    typed::<ServiceAccount>(&yaml("apiVersion: v1\nkind: ServiceAccount\nautomountServiceAccountTokens: false\n"));
}

#[test]
fn kustomize_builds_the_base() {
    if let Some(reason) = tailsight_testing::lacks_program("kubectl") {
        return tailsight_testing::skip(reason);
    }
    let output = Command::new("kubectl").arg("kustomize").arg(packaging().join("base")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built = String::from_utf8(output.stdout).unwrap();
    let manifests: Vec<Value> = built.split("\n---\n").map(yaml).collect();
    let daemon_set: DaemonSet = typed(manifests.iter().find(|manifest| manifest["kind"] == "DaemonSet").unwrap());
    assert_eq!(daemon_set.metadata.namespace.as_deref(), Some("tailsight"));
}

/// The capabilities that docs/privileges.md has in its table.
fn capabilities_of_the_page() -> Vec<String> {
    let page = std::fs::read_to_string(packaging().join("../../docs/privileges.md")).unwrap();
    let rows =
        page.lines().filter(|line| line.starts_with("| `CAP_")).map(|line| line.split('|').nth(1).unwrap().to_owned());
    rows.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn the_watcher_has_the_rights_that_the_page_names_and_no_others() {
    let daemon_set: DaemonSet = typed(&base("daemonset.yaml"));
    let pod = daemon_set.spec.unwrap().template.spec.unwrap();
    assert_eq!((pod.host_pid, pod.host_network, pod.host_ipc), (Some(true), None, None));
    assert_eq!(pod.automount_service_account_token, Some(false));
    let [container] = &pod.containers[..] else { panic!("{:?}", pod.containers) };
    let rights = container.security_context.as_ref().unwrap();
    assert_eq!(
        (rights.privileged, rights.allow_privilege_escalation, rights.read_only_root_filesystem),
        (Some(false), Some(false), Some(true))
    );
    let capabilities = rights.capabilities.as_ref().unwrap();
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    let page = capabilities_of_the_page();
    assert!(page.len() > 7, "{page:?}");
    let added = capabilities.add.as_ref().unwrap();
    let unnamed: Vec<&String> = added.iter().filter(|name| !page.contains(&format!("CAP_{name}"))).collect();
    assert!(unnamed.is_empty(), "not in docs/privileges.md: {unnamed:?}");
    // It writes where it is given a volume, and of the node's folders only to that of its captures.
    let mounts = container.volume_mounts.as_ref().unwrap();
    let written: Vec<&str> =
        mounts.iter().filter(|mount| mount.read_only != Some(true)).map(|mount| mount.mount_path.as_str()).collect();
    assert_eq!(written, ["/var/lib/tailsight"]);
    let limits = container.resources.as_ref().unwrap().limits.as_ref().unwrap();
    assert!(limits.contains_key("memory") && !limits.contains_key("cpu"), "{limits:?}");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container.image.as_deref(), Some(format!("tailsight:{version}").as_str()));
}

/// What the kubectl of the test answers; `$MODE` says what goes wrong.
const KUBECTL: &str = r#"
printf '%s\n' "$*" >>"$FAKE/calls"
reached() { printf '%s\n' "$1"; exit 0; }
refused() { printf 'Error from server: %s\n' "$1" >&2; exit 1; }
case $* in
*'get deploy/none'*) refused 'deployments.apps "none" not found' ;;
*'get pod/'*'jsonpath={.kind}'*) reached Pod ;;
*'jsonpath={.kind}'*) reached Deployment ;;
*go-template*) reached app=shop,tier=front, ;;
*'get pods --selector=app=shop,tier=front '*) [ $MODE = nothing-runs ] || printf 'shop-1\nshop-2\n' ;;
*'get pod tailsight-record-'*)
    echo asked >>"$FAKE/polls"
    first=$(wc -l <"$FAKE/polls")
    case $MODE-$first in
    image-*) printf 'Pending \nrecord ImagePullBackOff\n' ;;
    recording-*) printf 'Failed \nrecord 1\ndiagnose PodInitializing\n' ;;
    deadline-*) printf 'Failed DeadlineExceeded\nrecord \n' ;;
    forever-* | *-1) printf 'Pending \nrecord 2026-11-30T12:00:00Z\ndiagnose PodInitializing\nfiles PodInitializing\n' ;;
    evidence-*) printf 'Running \nrecord 0\ndiagnose 3\nreport 3\nfiles 2026-11-30T12:00:09Z\n' ;;
    *-2) printf 'Running \nrecord 0\ndiagnose 0\nreport 2026-11-30T12:00:09Z\nfiles 2026-11-30T12:00:09Z\n' ;;
    *) printf 'Running \nrecord 0\ndiagnose 0\nreport 0\nfiles 2026-11-30T12:00:09Z\n' ;;
    esac
    ;;
*'get pod shop-1'*) printf 'prod\nnode-7\n\nshop containerd://0f\n' ;;
*'get pod two'*) printf 'prod\nnode-7\n\nshop containerd://0f\nproxy containerd://1e\n' ;;
*'create -f -'*)
    cat >"$FAKE/pod.yaml"
    [ $MODE != forbidden ] || refused 'violates PodSecurity "restricted"'
    ;;
*' logs '*) printf 'what %s wrote\n' "${*##* }" ;;
*' exec '*)
    [ $MODE != copy ] || refused 'container not found ("files")'
    mkdir -p "$FAKE/runs/run"
    echo {} >"$FAKE/runs/run/run.json"
    echo page >"$FAKE/runs/report.html"
    tar -C "$FAKE/runs" -cf - .
    ;;
*'delete pod tailsight-record-'*) [ $MODE != stuck ] || refused 'timeout' ;;
*) refused "the test did not expect: $*" ;;
esac
"#;

/// The plugin in a folder of its own.
struct Plugin(PathBuf);

impl Plugin {
    fn new(test: &str) -> Plugin {
        let folder = std::env::temp_dir().join(format!("tailsight-kubectl-{}-{test}", std::process::id()));
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        tailsight_testing::write_script(folder.join("bin/kubectl"), KUBECTL);
        Plugin(folder)
    }

    fn start(&self, mode: &str, arguments: &[&str]) -> Child {
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(packaging().join("kubectl-tailsight"));
        command
            .args(arguments)
            .env("PATH", path)
            .envs([("FAKE", self.0.as_os_str()), ("MODE", mode.as_ref()), ("TAILSIGHT_POLL_SECONDS", "0.1".as_ref())])
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // A shell cannot trap what was ignored when it began, as SIGHUP is below nohup and SIGINT behind a script's `&`.
        let default = || {
            for signal in SIGNALS.map(|(signal, _)| signal) {
                // SAFETY: sets a disposition, between fork and exec.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: the closure allocates nothing and takes no lock.
        unsafe { command.pre_exec(default) };
        command.spawn().unwrap()
    }

    fn run(&self, mode: &str, arguments: &[&str]) -> Output {
        self.start(mode, arguments).wait_with_output().unwrap()
    }

    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.0.join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// The names of the pods that were made, and of those that were removed.
    fn made_and_removed(&self) -> (Vec<String>, Vec<String>) {
        let made = std::fs::read_to_string(self.0.join("pod.yaml")).ok();
        let made = made.map(|pod| yaml(&pod)["metadata"]["name"].as_str().unwrap().to_owned());
        let removed = self.calls().into_iter().filter_map(|call| {
            let words: Vec<&str> = call.split(' ').collect();
            let at = words.iter().position(|word| *word == "delete")?;
            Some(words[at + 2].to_owned())
        });
        (made.into_iter().collect(), removed.collect())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_run_and_its_report_are_brought_back_and_the_pod_is_removed() {
    let plugin = Plugin::new("whole");
    let output = plugin.run(
        "well",
        &[
            "record",
            "deploy/shop",
            "-n",
            "prod",
            "-o",
            "out",
            "--context",
            "kind",
            "--",
            "-d",
            "10s",
            "--usdt",
            "a\"b\\c",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "what diagnose wrote\n");
    assert!(said(&output).contains("what record wrote"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(plugin.0.join("out/report.html")).unwrap(), "page\n");
    assert!(plugin.0.join("out/run/run.json").is_file());
    let (made, removed) = plugin.made_and_removed();
    assert_eq!(made.len(), 1);
    assert_eq!(made, removed);
    assert!(
        plugin.calls().iter().all(|call| call.starts_with("--context=kind --namespace=prod ")),
        "{:?}",
        plugin.calls()
    );

    let pod: Pod = typed(&yaml(&std::fs::read_to_string(plugin.0.join("pod.yaml")).unwrap()));
    let spec = pod.spec.unwrap();
    assert_eq!(
        (spec.node_name.as_deref(), spec.host_pid, spec.active_deadline_seconds),
        (Some("node-7"), Some(true), Some(900))
    );
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    let recorder = &spec.init_containers.as_ref().unwrap()[0];
    let expected = ["record", "--container", "containerd://0f", "--out", "/runs/run", "-d", "10s", "--usdt", "a\"b\\c"];
    assert_eq!(recorder.args.as_ref().unwrap(), &expected);
    let is_privileged = |rights: &Option<SecurityContext>| rights.as_ref().unwrap().privileged == Some(true);
    assert!(is_privileged(&recorder.security_context));
    assert_eq!(spec.containers.len(), 3);
    for container in &spec.containers {
        let rights = container.security_context.as_ref().unwrap();
        assert_eq!(
            rights.capabilities.as_ref().unwrap().drop.as_deref(),
            Some(&["ALL".to_owned()][..]),
            "{}",
            container.name
        );
        assert!(!is_privileged(&container.security_context), "{}", container.name);
    }
}

/// Where it ends before a pod is made, none is removed either.
#[test]
fn nothing_is_made_for_a_target_that_is_not_there_or_not_clear() {
    for (mode, arguments, code, expected) in [
        ("well", &["record", "deploy/none"][..], 1, "there is no deploy/none"),
        ("nothing-runs", &["record", "deploy/shop"], 1, "deploy/shop has no pod that runs"),
        ("well", &["record", "two"], 1, "(shop proxy): choose one with -c"),
        ("well", &["record", "two", "-c", "db"], 1, "container db of pod two does not run"),
        ("well", &["record", "two", "-c", "proxy", "-o", "bin"], 1, "bin is there already"),
        ("well", &["record"], 2, "usage: "),
        ("well", &["record", "a", "b"], 2, "usage: "),
        ("well", &["record", "a", "--deadline", "soon"], 2, "usage: "),
    ] {
        let plugin = Plugin::new("unclear");
        let output = plugin.run(mode, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(expected), "{arguments:?}: {}", said(&output));
        assert_eq!(plugin.made_and_removed(), (vec![], vec![]), "{arguments:?}");
    }
}

#[test]
fn whatever_fails_the_pod_is_removed() {
    for (mode, code, expected) in [
        ("image", 1, "the image of record cannot be started (ImagePullBackOff)"),
        ("recording", 1, "what record wrote\nerror: the recording failed"),
        ("deadline", 1, "the pod ended before the run was copied: Failed DeadlineExceeded"),
        ("forbidden", 1, "violates PodSecurity"),
        ("copy", 1, "the run could not be copied"),
        // Not a failure: the run is there, and says that it has too few messages.
        ("evidence", 3, "its report is"),
    ] {
        let plugin = Plugin::new(mode);
        let output = plugin.run(mode, &["record", "two", "-c", "shop"]);
        assert_eq!(output.status.code(), Some(code), "{mode}: {}", said(&output));
        assert!(said(&output).contains(expected), "{mode}: {}", said(&output));
        let (made, removed) = plugin.made_and_removed();
        assert_eq!((made.len(), &made), (1, &removed), "{mode}");
    }
}

#[test]
fn a_pod_that_cannot_be_removed_is_said_with_the_command() {
    let plugin = Plugin::new("stuck");
    let output = plugin.run("stuck", &["record", "deploy/shop"]);
    let (made, _) = plugin.made_and_removed();
    assert_eq!(output.status.code(), Some(1));
    let command = format!("kubectl delete pod {} --namespace prod", made[0]);
    assert!(said(&output).contains(&command), "{}", said(&output));
}

#[test]
fn a_signal_removes_the_pod() {
    for (signal, code) in SIGNALS {
        let plugin = Plugin::new(&format!("signal-{signal}"));
        let mut child = plugin.start("forever", &["record", "deploy/shop"]);
        let begun = Instant::now();
        while !plugin.0.join("polls").exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the pod is waited for");
            std::thread::sleep(Duration::from_millis(20));
        }
        // SAFETY: a signal to a child that was not waited for yet.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(120) {
                child.kill().unwrap();
                panic!("signal {signal} did not end the plugin");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.status.signal()), (Some(code), None), "{}", said(&output));
        let (made, removed) = plugin.made_and_removed();
        assert_eq!((made.len(), &made), (1, &removed));
    }
}

#[test]
fn a_dry_run_prints_the_pod_and_makes_none() {
    let plugin = Plugin::new("dry");
    let output = plugin.run("well", &["record", "shop-1", "--dry-run", "--image", "registry.example/tailsight:1"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let pod: Pod = typed(&yaml(&String::from_utf8(output.stdout).unwrap()));
    assert_eq!(pod.spec.unwrap().init_containers.unwrap()[0].image.as_deref(), Some("registry.example/tailsight:1"));
    let output = plugin.run("well", &["record", "shop-1", "--dry-run"]);
    let pod: Pod = typed(&yaml(&String::from_utf8(output.stdout).unwrap()));
    let image = format!("tailsight:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(pod.spec.unwrap().init_containers.unwrap()[0].image, Some(image), "that of this version");
    assert_eq!(plugin.made_and_removed(), (vec![], vec![]));
}

#[test]
fn the_plugin_is_a_posix_script_without_a_known_mistake() {
    if let Some(reason) = tailsight_testing::lacks_program("shellcheck") {
        return tailsight_testing::skip(reason);
    }
    let output =
        Command::new("shellcheck").args(["--shell=sh"]).arg(packaging().join("kubectl-tailsight")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
