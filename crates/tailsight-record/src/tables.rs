//! The small tables of a run: who the tasks and sockets are.
//!
//! In: the host's tasks and sockets, names met in the stream of events, the target. Out: tasks.arrow and sockets.arrow,
//! once at the start and as the recording goes on, so that a run that ends by SIGKILL or by a full disk has names.

use tailsight_trace::RunWriter;
use tailsight_trace::meta::RunMeta;
use tailsight_trace::tables::{SocketRow, TaskRow};

use crate::collect::Collector;
use crate::procfs;

/// The tables as far as they are known before the end.
pub struct EarlyTables {
    /// Every thread of the host at the start.
    pub snapshot: Vec<TaskRow>,
    /// How many processes of the target and how many tasks born since were written.
    written: (usize, usize),
}

impl EarlyTables {
    /// With the host's tasks at the start.
    pub fn new(snapshot: Vec<TaskRow>) -> EarlyTables {
        EarlyTables { snapshot, written: (0, 0) }
    }

    /// Writes sockets.arrow.
    ///
    /// # Errors
    /// Of the run directory.
    pub fn sockets(&self, writer: &RunWriter) -> Result<(), tailsight_trace::Error> {
        writer.sockets(&socket_rows(&Collector::new()))
    }

    /// Writes tasks.arrow and run.json again when there is something new.
    ///
    /// # Errors
    /// Of the run directory.
    pub fn write(
        &mut self,
        writer: &RunWriter,
        meta: &mut RunMeta,
        pids: &[u32],
        ports: &[u16],
        born: &[TaskRow],
    ) -> Result<(), tailsight_trace::Error> {
        if self.written == (pids.len(), born.len()) && meta.target.ports == ports {
            return Ok(());
        }
        self.written = (pids.len(), born.len());
        meta.target.pids = pids.to_vec();
        meta.target.pids.sort_unstable();
        meta.target.processes = procfs::identities(&meta.target.pids);
        meta.target.ports = ports.to_vec();
        let rows = task_rows(self.snapshot.clone(), Vec::new(), born.to_vec(), &meta.target.pids);
        writer.tasks(&rows)?;
        writer.write_meta(meta)
    }
}

/// The tasks before the recording, those found after it that nothing else names (born between the first look and the
/// start), and names met in the stream; marked by the final target set.
pub fn task_rows(before: Vec<TaskRow>, after: Vec<TaskRow>, born: Vec<TaskRow>, targets: &[u32]) -> Vec<TaskRow> {
    let named: std::collections::HashSet<u32> = before.iter().chain(&born).map(|t| t.tid).collect();
    let mut snapshot = before;
    // For a process that was named before the end, the group is read at the end.
    let grouped: Vec<(u32, String)> =
        after.iter().filter(|t| t.tid == t.tgid && !t.cgroup.is_empty()).map(|t| (t.tgid, t.cgroup.clone())).collect();
    snapshot.extend(after.into_iter().filter(|t| !named.contains(&t.tid)));
    let kernel: std::collections::HashSet<u32> = snapshot.iter().filter(|t| t.kernel).map(|t| t.tid).collect();
    let mut rows = snapshot;
    rows.extend(born);
    // Names come core by core, not in time.
    rows.sort_by_key(|t| t.from_ns);
    let groups: std::collections::HashMap<u32, String> =
        rows.iter().filter(|t| !t.cgroup.is_empty()).map(|t| (t.tgid, t.cgroup.clone())).chain(grouped).collect();
    for row in &mut rows {
        if let Some(group) = groups.get(&row.tgid).filter(|_| row.cgroup.is_empty()) {
            row.cgroup.clone_from(group);
        }
        row.target = targets.binary_search(&row.tgid).is_ok();
        row.kernel |= kernel.contains(&row.tid);
    }
    rows
}

/// The host's sockets now, and the connections met while recording.
pub fn socket_rows(collector: &Collector) -> Vec<SocketRow> {
    let processes = procfs::processes();
    let mut rows: Vec<SocketRow> = procfs::sockets(&processes)
        .iter()
        .map(|(socket, holder)| {
            let comm = processes.iter().find(|p| p.pid == *holder).map_or("", |p| p.comm.as_str());
            procfs::socket_row(socket, *holder, comm)
        })
        .collect();
    let met = collector.new_sockets(&rows);
    rows.extend(met);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tid: u32, tgid: u32) -> TaskRow {
        TaskRow { tid, tgid, comm: format!("t{tid}"), ..TaskRow::default() }
    }

    #[test]
    fn what_is_left_of_a_killed_recording_knows_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut meta = RunMeta { format: "tailsight-run".into(), version: 1, ..RunMeta::default() };
        let writer = RunWriter::create(&path, &meta).unwrap();
        let mut early = EarlyTables::new(vec![row(1, 1), row(70, 70)]);
        early.write(&writer, &mut meta, &[70], &[80], &[]).unwrap();
        early.write(&writer, &mut meta, &[70, 90], &[80], &[row(90, 90)]).unwrap();
        std::mem::forget(writer);
        let run = tailsight_trace::Run::open(&path).unwrap();
        let targets: Vec<u32> = run.tasks.iter().filter(|t| t.target).map(|t| t.tid).collect();
        assert_eq!(targets, vec![70, 90]);
        assert_eq!((run.meta.target.pids, run.meta.target.ports), (vec![70, 90], vec![80]));
    }

    #[test]
    fn a_task_found_after_the_end_does_not_replace_a_name_met_before() {
        let mut renamed = row(5, 5);
        renamed.comm = "later".into();
        let rows = task_rows(vec![row(5, 5)], vec![renamed, row(6, 5)], vec![], &[5]);
        let names: Vec<_> = rows.iter().map(|r| (r.tid, r.comm.as_str(), r.target)).collect();
        assert_eq!(names, vec![(5, "t5", true), (6, "t6", true)]);
    }

    /// gzip was named after the program that started it on the other core.
    #[test]
    fn names_are_in_time_whichever_core_told_first() {
        let named = |from_ns, comm: &str| TaskRow { from_ns, comm: comm.into(), ..row(9, 9) };
        let rows = task_rows(vec![row(9, 9)], vec![], vec![named(20, "gzip"), named(10, "taskset")], &[]);
        let names: Vec<_> = rows.iter().map(|r| r.comm.as_str()).collect();
        assert_eq!(names, vec!["t9", "taskset", "gzip"]);
    }

    /// A process that was born while recording has its group from the look at the end, with all its names.
    #[test]
    fn groups_come_from_either_look() {
        let in_group = |group: &str, row: TaskRow| TaskRow { cgroup: group.into(), ..row };
        let before = vec![in_group("/a.service", row(5, 5))];
        let after = vec![in_group("/a.service", row(5, 5)), in_group("/b.scope", row(7, 7))];
        let rows = task_rows(
            before,
            after,
            vec![TaskRow { from_ns: 3, ..row(7, 7) }, TaskRow { from_ns: 4, ..row(8, 7) }],
            &[],
        );
        let groups: Vec<_> = rows.iter().map(|r| (r.tid, r.cgroup.as_str())).collect();
        assert_eq!(groups, vec![(5, "/a.service"), (7, "/b.scope"), (8, "/b.scope")]);
    }
}
