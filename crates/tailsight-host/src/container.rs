//! The containers that run on this host, by their ids and by the names that people know.
//!
//! In: the control groups in `/proc`, and the state files that runtimes keep: Docker's, those of containers/storage (Podman, CRI-O),
//! containerd's, and those of runc and crun without an engine. No runtime is asked, and nothing is started. Out: [`Container`], and
//! the one that a text means ([`named`]). A state file that is missing or odd leaves its names out: then the id is the name.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tailsight_kernel::cgroup;

use crate::cgroup::Groups;
use crate::{Root, Stat, proc};

/// Where Docker keeps a folder for each container.
const DOCKER: &str = "/var/lib/docker/containers";
/// Where containers/storage keeps a folder for each of its drivers, such as `overlay-containers`, with lists of containers.
const STORAGE: [&str; 2] = ["/var/lib/containers/storage", "/run/containers/storage"];
/// The lists: of containers that stay, and of those that are removed when they end.
const STORAGE_LISTS: [&str; 2] = ["containers.json", "volatile-containers.json"];
/// Where containerd keeps a folder for each of its namespaces, with one for each container; k3s has its own.
const CONTAINERD: [&str; 2] =
    ["/run/containerd/io.containerd.runtime.v2.task", "/run/k3s/containerd/io.containerd.runtime.v2.task"];
/// Where runc and crun keep a folder for each container that no engine started.
const RUNC: &str = "/run/runc";
/// See [`RUNC`].
const CRUN: &str = "/run/crun";

/// A container that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its id: 64 hexadecimal digits where an engine gave it, else what its owner chose.
    pub id: String,
    /// Its first process.
    pub pid: u32,
    /// Its name; in a pod that is unique in the pod only.
    pub name: Option<String>,
    /// Its image.
    pub image: Option<String>,
    /// The pod that it is in.
    pub pod: Option<String>,
    /// The namespace of that pod.
    pub namespace: Option<String>,
}

impl Container {
    /// What it is called: `NAMESPACE/POD/NAME` as far as they are known, or the beginning of its id.
    pub fn title(&self) -> String {
        cgroup::container_title(&self.id, [&self.namespace, &self.pod, &self.name].map(Option::as_deref))
    }

    /// Whether a text means it: its id or the beginning of it, as a pod's status writes it (`containerd://ID`) too; its name; its title or
    /// the end of it, such as `POD/NAME`.
    fn is_meant(&self, text: &str) -> bool {
        /// As many digits as Docker shows at least.
        const BEGINNING: usize = 12;
        let id = text.split_once("://").map_or(text, |(_, id)| id);
        let title = self.title();
        self.id == id
            || (id.len() >= BEGINNING && self.id.starts_with(id))
            || title == text
            || title.strip_suffix(text).is_some_and(|rest| rest.ends_with('/'))
    }
}

/// Why a text means no container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmeant {
    /// None is called so; the titles of those that run.
    None(Vec<String>),
    /// Several are; their titles, each with its id.
    Several(Vec<String>),
}

/// The container that a text means: see [`Container::title`], or its id, or the beginning of it.
///
/// # Errors
/// [`Unmeant`].
pub fn named(containers: &[Container], text: &str) -> Result<Container, Unmeant> {
    let meant: Vec<&Container> = containers.iter().filter(|container| container.is_meant(text)).collect();
    match meant[..] {
        [container] => Ok(container.clone()),
        [] => Err(Unmeant::None(containers.iter().map(Container::title).collect())),
        _ => Err(Unmeant::Several(meant.iter().map(|c| format!("{} ({})", c.title(), c.id)).collect())),
    }
}

/// The containers that run, by their ids.
pub fn running(root: &Root) -> Vec<Container> {
    let mut containers: BTreeMap<String, Container> = BTreeMap::new();
    for (id, pid) in first_processes(root) {
        containers.insert(id.clone(), Container { id, pid, ..Container::default() });
    }
    for (id, pid) in without_engine(root) {
        containers.entry(id.clone()).or_insert_with(|| Container {
            name: Some(id.clone()),
            id,
            pid,
            ..Container::default()
        });
    }
    let storage = storage_lists(root);
    for container in containers.values_mut() {
        docker(root, container);
        storage.iter().for_each(|list| of_storage(list, container));
        containerd(root, container);
    }
    containers.into_values().collect()
}

/// The first process of each container: the one that is number 1 in there; where the container has no numbers of its own the oldest whose
/// parent is outside of it.
fn first_processes(root: &Root) -> BTreeMap<String, u32> {
    let pids = root.names("/proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    let in_containers: BTreeMap<u32, String> = pids
        .filter_map(|pid| {
            let groups = Groups::parse(root.bytes(&format!("/proc/{pid}/cgroup")).ok()?);
            let mut paths = groups.paths().filter_map(Path::to_str).filter(|path| !is_monitor(path));
            let id = paths.find_map(|path| cgroup::container(path).map(str::to_owned))?;
            Some((pid, id))
        })
        .collect();
    let mut first: BTreeMap<String, (bool, usize, bool, u32)> = BTreeMap::new();
    for (&pid, id) in &in_containers {
        let parent = root.bytes(&format!("/proc/{pid}/stat")).ok().and_then(Stat::parse).and_then(|stat| stat.parent());
        let has_parent = parent.is_some_and(|parent| in_containers.get(&parent) == Some(id));
        let status = root.text(&format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers: Vec<&str> = proc::field(&status, "NSpid").unwrap_or_default().split_whitespace().collect();
        // `false` comes first. A container in this one has a number 1 of its own, deeper; the oldest mostly has the smallest number.
        let rank = (numbers.last() != Some(&"1"), numbers.len(), has_parent, pid);
        first.entry(id.clone()).and_modify(|best| *best = rank.min(*best)).or_insert(rank);
    }
    first.into_iter().map(|(id, (.., pid))| (id, pid)).collect()
}

/// Whether a control group is of the process that holds a container of Podman or CRI-O, outside of it, which has the container's id too.
fn is_monitor(path: &str) -> bool {
    path.split('/').any(|part| part.contains("conmon-"))
}

/// The containers of runc and crun that no engine started, with their first processes.
fn without_engine(root: &Root) -> BTreeMap<String, u32> {
    let pid_of = |path: &str, key: &str| u32::try_from(json(root, path)?[key].as_u64()?).ok();
    let runs = |pid: &u32| root.exists(&format!("/proc/{pid}"));
    let mut containers = BTreeMap::new();
    for (folder, file, key) in [(RUNC, "state.json", "init_process_pid"), (CRUN, "status", "pid")] {
        for id in root.names(folder) {
            let pid = pid_of(&format!("{folder}/{id}/{file}"), key).filter(runs);
            containers.extend(pid.map(|pid| (id, pid)));
        }
    }
    containers
}

fn json(root: &Root, path: &str) -> Option<Value> {
    serde_json::from_slice(&root.bytes(path).ok()?).ok()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Docker's names. A container of a pod (cri-dockerd) has the pod's in its labels.
fn docker(root: &Root, container: &mut Container) {
    let Some(state) = json(root, &format!("{DOCKER}/{}/config.v2.json", container.id)) else { return };
    let label = |key: &str| text(&state["Config"]["Labels"][key]);
    let own = text(&state["Name"]).map(|name| name.trim_start_matches('/').to_owned());
    container.name = label("io.kubernetes.container.name").or(own);
    container.image = text(&state["Config"]["Image"]);
    container.pod = label("io.kubernetes.pod.name");
    container.namespace = label("io.kubernetes.pod.namespace");
}

/// The lists of containers/storage, of each driver.
fn storage_lists(root: &Root) -> Vec<Value> {
    let folders = STORAGE.iter().flat_map(|storage| {
        let drivers = root.names(storage).into_iter().filter(|name| name.ends_with("-containers"));
        drivers.map(move |driver| format!("{storage}/{driver}"))
    });
    folders
        .flat_map(|folder| STORAGE_LISTS.map(|list| format!("{folder}/{list}")))
        .filter_map(|path| json(root, &path))
        .collect()
}

/// Podman's and CRI-O's names: a list of containers, whose metadata are JSON in a text. CRI-O calls a container
/// `k8s_NAME_POD_NAMESPACE_UID_ATTEMPT`; none of these has an underscore.
fn of_storage(list: &Value, container: &mut Container) {
    let mut entries = list.as_array().into_iter().flatten();
    let Some(entry) = entries.find(|entry| entry["id"] == container.id.as_str()) else { return };
    let metadata = entry["metadata"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    container.image = metadata.and_then(|metadata| text(&metadata["image-name"]));
    let name = text(&entry["names"][0]).unwrap_or_default();
    match name.split('_').collect::<Vec<_>>()[..] {
        ["k8s", name, pod, namespace, _, _] => {
            container.name = Some(name.to_owned());
            container.pod = Some(pod.to_owned());
            container.namespace = Some(namespace.to_owned());
        }
        _ => container.name = Some(name).filter(|name| !name.is_empty()),
    }
}

/// containerd's names: annotations in the configuration that the runtime got. The container that only holds a pod's namespaces has none
/// of its own.
fn containerd(root: &Root, container: &mut Container) {
    let folders =
        CONTAINERD.iter().flat_map(|tasks| root.names(tasks).into_iter().map(move |n| format!("{tasks}/{n}")));
    let mut states = folders.filter_map(|folder| json(root, &format!("{folder}/{}/config.json", container.id)));
    let Some(state) = states.find(|state| state["annotations"].is_object()) else { return };
    let annotation = |key: &str| text(&state["annotations"][format!("io.kubernetes.cri.{key}")]);
    let Some(pod) = annotation("sandbox-name") else { return };
    container.pod = Some(pod);
    container.namespace = annotation("sandbox-namespace");
    container.name = annotation("container-name").or_else(|| annotation("container-type"));
    container.image = annotation("image-name");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    /// An id of one digit.
    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    /// A process of a tree: its control group, its parent, its number in its own namespace.
    fn process(tree: &Tree, pid: u32, group: &str, parent: u32, inside: u32) {
        tree.put(&format!("/proc/{pid}/cgroup"), format!("0::{group}\n"));
        tree.put(&format!("/proc/{pid}/stat"), format!("{pid} (a b) S {parent} 1 1 0\n"));
        tree.put(&format!("/proc/{pid}/status"), format!("Name:\ta b\nNSpid:\t{pid}\t{inside}\n"));
    }

    #[test]
    fn the_first_process_is_number_1_in_there_or_the_oldest_from_outside() {
        let tree = Tree::new(&[]);
        process(&tree, 1, "/init.scope", 0, 1);
        // A command that was started in the container later comes from outside, too; a container inside has a number 1, too.
        process(&tree, 20, &format!("/docker/{}", id('a')), 1, 31);
        process(&tree, 300, &format!("/docker/{}", id('a')), 1, 1);
        process(&tree, 301, &format!("/docker/{}", id('a')), 300, 7);
        process(&tree, 30, &format!("/docker/{}", id('a')), 300, 8);
        tree.put("/proc/30/status", "NSpid:\t30\t8\t1\n");
        // It has the numbers of the host. Its monitor has the id in its group's name, and the monitor's child is the first process.
        process(&tree, 400, &format!("/machine.slice/libpod-conmon-/{}", id('b')), 1, 400);
        process(&tree, 401, &format!("/machine.slice/{}", id('b')), 400, 401);
        process(&tree, 390, &format!("/machine.slice/{}", id('b')), 401, 390);
        let first = first_processes(&tree.root());
        assert_eq!(first, BTreeMap::from([(id('a'), 300), (id('b'), 401)]));
    }

    /// A host with a container of each engine.
    fn host() -> Tree {
        let tree = Tree::new(&[
            (
                &format!("{DOCKER}/{}/config.v2.json", id('a')),
                r#"{"Name":"/web","Config":{"Image":"nginx:1","Labels":{}}}"#,
            ),
            (
                "/var/lib/containers/storage/overlay-containers/containers.json",
                &format!(
                    r#"[{{"id":"{}","names":["db"],"metadata":"{{\"image-name\":\"docker.io/library/redis:7\"}}"}},
                        {{"id":"{}","names":["k8s_shop_shop-5c_prod_0a-1b_0"],"metadata":"no JSON"}}]"#,
                    id('b'),
                    id('c')
                ),
            ),
            (
                &format!("{}/k8s.io/{}/config.json", CONTAINERD[0], id('d')),
                r#"{"annotations":{"io.kubernetes.cri.container-name":"cart","io.kubernetes.cri.sandbox-name":"cart-0",
                    "io.kubernetes.cri.sandbox-namespace":"prod","io.kubernetes.cri.image-name":"cart:3"}}"#,
            ),
            (&format!("{RUNC}/mine/state.json"), r#"{"id":"mine","init_process_pid":60}"#),
            (&format!("{CRUN}/gone/status"), r#"{"pid":61}"#),
            ("/proc/60/cgroup", "0::/user.slice/mine"),
        ]);
        for (pid, digit) in [(10, 'a'), (11, 'b'), (12, 'c'), (13, 'd'), (14, 'e')] {
            process(&tree, pid, &format!("/x/{}", id(digit)), 1, 1);
        }
        tree
    }

    #[test]
    fn each_engine_s_names_are_read() {
        let containers = running(&host().root());
        let titles: Vec<(String, u32)> = containers.iter().map(|c| (c.title(), c.pid)).collect();
        let expected = [
            ("web", 10),
            ("db", 11),
            ("prod/shop-5c/shop", 12),
            ("prod/cart-0/cart", 13),
            ("eeeeeeeeeeee", 14),
            ("mine", 60),
        ];
        assert_eq!(titles, expected.map(|(title, pid)| (title.to_owned(), pid)));
        let images: Vec<Option<&str>> = containers.iter().map(|c| c.image.as_deref()).collect();
        assert_eq!(images, [Some("nginx:1"), Some("docker.io/library/redis:7"), None, Some("cart:3"), None, None]);
    }

    #[test]
    fn a_text_means_one_container_or_says_why_not() {
        let containers = running(&host().root());
        let meant = |text: &str| named(&containers, text).map(|container| container.pid);
        for (text, pid) in [
            ("web", 10),
            (&id('b')[..12], 11),
            ("shop-5c/shop", 12),
            ("prod/cart-0/cart", 13),
            (&format!("containerd://{}", id('d')), 13),
            ("mine", 60),
        ] {
            assert_eq!(meant(text), Ok(pid), "{text}");
        }
        assert!(matches!(meant("nginx"), Err(Unmeant::None(titles)) if titles.len() == 6));
        // The beginning of an id that is too short, and the end of a name that is not its last part.
        assert!(matches!(meant("aaaa"), Err(Unmeant::None(_))) && matches!(meant("eb"), Err(Unmeant::None(_))));
        let twins = [containers[0].clone(), Container { id: id('f'), ..containers[0].clone() }];
        assert!(matches!(named(&twins, "web"), Err(Unmeant::Several(titles)) if titles.len() == 2));
    }

    #[test]
    fn a_host_without_containers_and_damaged_state_have_none() {
        assert_eq!(running(&Root::at("/nonexistent")), []);
        let tree = host();
        tree.put("/var/lib/containers/storage/overlay-containers/containers.json", "[{\"id\":");
        let titles: Vec<String> = running(&tree.root()).iter().map(Container::title).collect();
        assert_eq!(titles[1..3], ["bbbbbbbbbbbb", "cccccccccccc"]);
    }
}
