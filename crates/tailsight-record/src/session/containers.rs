//! The containers that tasks of a recording were in, with their names.
//!
//! In: tasks with their control groups, the state files of container engines. Out: rows for run.json. On a host none of whose tasks is in a
//! container nothing is read.

use std::collections::BTreeSet;

use tailsight_host::{Root, container};
use tailsight_kernel::cgroup;
use tailsight_trace::meta;
use tailsight_trace::tables::TaskRow;

/// The containers of these tasks, by id.
pub(super) fn of_tasks(tasks: &[TaskRow]) -> Vec<meta::Container> {
    let ids: BTreeSet<&str> = tasks.iter().filter_map(|task| cgroup::container(&task.cgroup)).collect();
    if ids.is_empty() {
        return vec![];
    }
    let running = container::running(&Root::host());
    let of_tasks = running.into_iter().filter(|container| ids.contains(container.id.as_str()));
    let row = |container: container::Container| meta::Container {
        id: container.id,
        name: container.name,
        image: container.image,
        pod: container.pod,
        namespace: container.namespace,
    };
    of_tasks.map(row).collect()
}
