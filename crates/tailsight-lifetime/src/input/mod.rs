//! What the lifetimes need to know besides the events: names of threads, the target, its ports, its sockets.

pub mod hook_costs;
mod looks;
pub mod merge;
pub mod read_ahead;
pub mod sample_clock;
pub mod wakes;

use rustc_hash::{FxHashMap, FxHashSet};
use tailsight_protocol::ProtocolChoice;
use tailsight_trace::Run;
use tailsight_trace::meta::{Container, SendEntry, Traced};
use tailsight_trace::routines::RoutineRow;
use tailsight_trace::tables::{SocketRow, TaskRow};

use crate::input::hook_costs::HookCosts;
use crate::input::sample_clock::SampleClock;
use crate::input::wakes::Waker;
use crate::messages::nic::NicClocks;
use crate::model::{Flow, Who};

/// Names of threads, and which belong to the target.
#[derive(Clone, Debug, Default)]
pub struct Names {
    by_tid: FxHashMap<u32, Name>,
    cgroups: FxHashMap<u32, String>,
    recorder: Option<tailsight_trace::meta::Recorder>,
    targets: FxHashSet<u32>,
    services: FxHashMap<u16, u32>,
    /// Where stacks begin in the symbols.
    stacks: u32,
    /// The symbols of traced functions, by number; 0: one that was switched off.
    functions: Vec<u32>,
    /// Call stacks of the samples by number of the place that threads slept at, each plus 1.
    sleep_places: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Name {
    comm: String,
    tgid: u32,
    kernel: bool,
    /// Index into the symbols, 0 when not there.
    symbol: u32,
}

impl Names {
    /// From the rows of tasks.arrow; the last name of a thread counts. The rows are in the order of the cores' buffers: a
    /// thread that went to another core between two names may have the later one first.
    pub fn new(rows: &[TaskRow]) -> Names {
        let mut names = Names::default();
        let mut in_time: Vec<&TaskRow> = rows.iter().collect();
        in_time.sort_by_key(|row| row.from_ns);
        for row in in_time {
            if row.target {
                names.targets.insert(row.tid);
            }
            names
                .by_tid
                .insert(row.tid, Name { comm: row.comm.clone(), tgid: row.tgid, kernel: row.kernel, symbol: 0 });
            if !row.cgroup.is_empty() {
                names.cgroups.insert(row.tgid, row.cgroup.clone());
            }
        }
        names
    }

    /// The thread's command name, or its number.
    pub fn comm(&self, tid: u32) -> String {
        self.by_tid.get(&tid).map_or_else(|| format!("tid {tid}"), |n| n.comm.clone())
    }

    /// Says who recorded; `None` in older runs.
    pub fn recorded_by(&mut self, recorder: Option<tailsight_trace::meta::Recorder>) {
        self.recorder = recorder;
    }

    /// Which task a thread is. A process without a name is called as its thread.
    pub fn who(&self, tid: u32) -> Who {
        let pid = self.by_tid.get(&tid).map_or(0, |n| n.tgid);
        let leader = self.by_tid.get(&pid).or_else(|| self.by_tid.get(&tid));
        let process = leader.map_or_else(String::new, |n| n.comm.clone());
        let recorder = match &self.recorder {
            Some(recorder) => recorder.pid != 0 && recorder.pid == pid || recorder.threads.contains(&tid),
            None => process == "tailsight",
        };
        Who { pid, tid, process, recorder }
    }

    /// The control group of a process, when it is known.
    pub fn cgroup(&self, pid: u32) -> Option<&str> {
        self.cgroups.get(&pid).map(String::as_str)
    }

    /// Whether the thread is a kernel thread.
    pub fn is_kernel(&self, tid: u32) -> bool {
        self.by_tid.get(&tid).is_some_and(|n| n.kernel)
    }

    /// Whether the thread belongs to the target.
    pub fn is_target(&self, tid: u32) -> bool {
        tid != 0 && self.targets.contains(&tid)
    }

    /// The application that listens on a port: index into the symbols, 0 when not known.
    pub fn service(&self, port: u16) -> u32 {
        self.services.get(&port).copied().unwrap_or(0)
    }

    /// Names the applications that listen on ports; adds their names to the symbols. A port that different applications
    /// listen on (in different network namespaces) has no name.
    pub fn add_services(&mut self, sockets: &[SocketRow], symbols: &mut Vec<String>) {
        if symbols.is_empty() {
            symbols.push(String::new());
        }
        let mut apps: FxHashMap<u16, Option<&str>> = FxHashMap::default();
        for socket in sockets.iter().filter(|s| s.listening && !s.comm.is_empty()) {
            let app = apps.entry(socket.local_port).or_insert(Some(&socket.comm));
            if *app != Some(&socket.comm) {
                *app = None;
            }
        }
        let mut ports: Vec<_> = apps.into_iter().collect();
        ports.sort_unstable();
        for (port, app) in ports {
            let Some(app) = app else { continue };
            let index = symbols.iter().position(|s| s == app).unwrap_or_else(|| {
                symbols.push(app.to_owned());
                symbols.len() - 1
            });
            self.services.insert(port, index as u32);
        }
    }

    /// Adds the names of tasks and the stacks of sleeps to the symbols.
    pub fn add_tasks_and_stacks(&mut self, stacks: &[String], symbols: &mut Vec<String>) {
        let mut numbers: FxHashMap<String, u32> = symbols.iter().cloned().zip(0..).collect();
        let mut tids: Vec<u32> = self.by_tid.keys().copied().collect();
        tids.sort_unstable();
        for tid in tids {
            if let Some(name) = self.by_tid.get_mut(&tid) {
                name.symbol = *numbers.entry(name.comm.clone()).or_insert_with(|| {
                    symbols.push(name.comm.clone());
                    symbols.len() as u32 - 1
                });
            }
        }
        self.stacks = symbols.len() as u32;
        symbols.extend_from_slice(stacks);
    }

    /// The symbol of a task's name, 0 when not known.
    pub fn symbol(&self, tid: u32) -> u32 {
        self.by_tid.get(&tid).map_or(0, |n| n.symbol)
    }

    /// The symbol of a stack of run.json, 0 for none.
    pub fn stack(&self, index: u32) -> u32 {
        if index == 0 { 0 } else { self.stacks.saturating_add(index) }
    }

    /// Adds the names of traced functions to the symbols. One that was switched off while it was recorded has none: what its messages
    /// took in it is known of a part of them only.
    pub fn add_functions(&mut self, traced: Option<&Traced>, symbols: &mut Vec<String>) {
        if symbols.is_empty() {
            symbols.push(String::new());
        }
        for function in traced.map_or(&[][..], |t| &t.functions) {
            self.functions.push(if function.off_ns.is_some() { 0 } else { symbols.len() as u32 });
            symbols.push(function.name.clone());
        }
    }

    /// The symbol of a traced function, 0 when it has none.
    pub fn function(&self, number: u32) -> u32 {
        self.functions.get(number as usize).copied().unwrap_or(0)
    }

    /// Says which call stack of the samples, plus 1, each place of the program has, by its number less 1.
    pub fn add_places(&mut self, places: Vec<u32>) {
        self.sleep_places = places;
    }

    /// The call stack of a place that a thread slept at, plus 1; 0 when it is not known.
    pub fn place(&self, number: u16) -> u32 {
        let symbol_at = |at: usize| self.sleep_places.get(at).copied();
        usize::from(number).checked_sub(1).and_then(symbol_at).unwrap_or(0)
    }

    /// Whether the thread is a softirq daemon.
    pub fn is_ksoftirqd(&self, tid: u32) -> bool {
        self.by_tid.get(&tid).is_some_and(|n| n.kernel && n.comm.starts_with("ksoftirqd"))
    }
}

/// Everything besides the events.
#[derive(Clone, Debug, Default)]
pub struct RunContext {
    /// The application's name.
    pub app: String,
    /// Names.
    pub names: Names,
    /// Server ports of the target.
    pub ports: FxHashSet<u16>,
    /// Sockets known by the recorder, for the names of flows.
    pub sockets: Vec<SocketRow>,
    /// The far ends of connections between two processes of the target: what a helper receives there its server asked it, and what it sends answers that.
    pub helper_ends: FxHashSet<ConnectionEnd>,
    /// Names that events refer to.
    pub symbols: Vec<String>,
    /// Cores, highest number plus one.
    pub cpus: u16,
    /// The protocol whose requests are messages, and how many bytes of each segment were kept for that.
    pub protocol: Option<(ProtocolChoice, u32)>,
    /// The run has the plain text of TLS, too.
    pub reads_tls: bool,
    /// The clocks of NICs that stamp.
    pub nic: NicClocks,
    /// What the recorder's hooks cost.
    pub costs: HookCosts,
    /// When its clock took samples.
    pub samples: SampleClock,
    /// Looks at goroutines and tasks of asyncio.
    pub routines: Vec<RoutineRow>,
    /// Places of these where a task awaits a future of its own program's making, by number of the call stack.
    pub futures: FxHashSet<u32>,
    /// Places (numbers of call stacks) where a goroutine waits for a socket.
    pub polls: FxHashSet<u32>,
    /// Who makes tasks ready, by the number of the call stack.
    pub wakes: FxHashMap<u32, Waker>,
    /// When breakpoints at tasks were taken away because they were hit too often.
    pub task_runs_off_ns: Option<u64>,
    /// Where the transmit leg begins.
    pub send_entry: SendEntry,
    /// Where the names of drop reasons begin in the symbols, and how many there are.
    pub drop_reasons: (u32, u32),
    /// The containers that its tasks were in.
    pub containers: Vec<Container>,
}

impl RunContext {
    /// From an opened run.
    pub fn of(run: &Run) -> RunContext {
        let cpus = run.meta.cpus.iter().map(|c| c.cpu.saturating_add(1)).max().unwrap_or(0).max(run.meta.host.cpus);
        let mut symbols = run.meta.symbols.clone();
        let mut names = Names::new(&run.tasks);
        names.recorded_by(run.meta.recorder.clone());
        names.add_services(&run.sockets, &mut symbols);
        names.add_tasks_and_stacks(&run.meta.stacks, &mut symbols);
        let drop_reasons = (symbols.len() as u32, run.meta.drop_reasons.len() as u32);
        symbols.extend_from_slice(&run.meta.drop_reasons);
        let cpus = cpus.min(u32::from(u16::MAX)) as u16;
        names.add_functions(run.meta.traced.as_ref(), &mut symbols);
        let places = run.meta.sampling.as_ref().map_or_else(Vec::new, |s| s.sleep_places.clone());
        names.add_places(places.clone());
        let breakpoints = run.meta.routines.as_ref().and_then(|routines| routines.breakpoints.as_ref());
        let ports: FxHashSet<u16> = run.meta.target.ports.iter().copied().collect();
        RunContext {
            app: run.meta.target.app.clone(),
            helper_ends: helper_ends(&run.sockets, &ports, |tgid| names.is_target(tgid)),
            names,
            ports,
            sockets: run.sockets.clone(),
            symbols,
            cpus,
            nic: NicClocks::new(&run.meta.nic, &run.nic_clocks),
            costs: HookCosts::of(&run.meta.hooks)
                .with_traced(run.meta.traced.as_ref())
                .with_breakpoints(breakpoints)
                .with_tls(run.meta.payload.as_ref().and_then(|payload| payload.tls.as_ref())),
            samples: SampleClock::new(&run.samples.rows, run.meta.sampling.as_ref(), cpus),
            routines: looks::looks(&run.routines, &run.samples),
            futures: looks::futures(&run.routines, &run.samples),
            polls: looks::polls(&run.routines, &run.samples),
            wakes: breakpoints.map_or_else(FxHashMap::default, |_| wakes::wakers(&run.samples, &places)),
            task_runs_off_ns: breakpoints.and_then(|breakpoints| breakpoints.off_ns),
            send_entry: run.meta.sends_from(),
            drop_reasons,
            containers: run.meta.containers.clone(),
            reads_tls: run.meta.payload.as_ref().is_some_and(|payload| payload.tls.is_some()),
            protocol: run.meta.payload.as_ref().and_then(|p| Some((p.protocol.parse().ok()?, p.bytes))),
        }
    }
}

/// One end of a connection: its address key and ports.
pub type ConnectionEnd = (u64, u32);

fn connection_end(s: &SocketRow) -> ConnectionEnd {
    (s.addrs, u32::from(s.local_port) << 16 | u32::from(s.remote_port))
}

/// Connections that a process outside the target holds.
pub fn others_flows(facts: &RunContext) -> FxHashSet<ConnectionEnd> {
    let not_ours = |s: &&SocketRow| s.tgid != 0 && s.remote_port != 0 && !facts.names.is_target(s.tgid);
    facts.sockets.iter().filter(not_ours).map(connection_end).collect()
}

/// The ends that are a helper's, of connections between a process of the target that has clients (sockets of `ports`) and one that has none.
fn helper_ends(
    sockets: &[SocketRow],
    ports: &FxHashSet<u16>,
    is_target: impl Fn(u32) -> bool,
) -> FxHashSet<ConnectionEnd> {
    let serves: FxHashSet<u32> = sockets.iter().filter(|s| ports.contains(&s.local_port)).map(|s| s.tgid).collect();
    let of_target = |s: &&SocketRow| s.tgid != 0 && s.remote_port != 0 && is_target(s.tgid);
    let ends =
        |s: &SocketRow| (s.proto.clone(), s.local_addr.clone(), s.local_port, s.remote_addr.clone(), s.remote_port);
    let servers_ends: FxHashSet<_> =
        sockets.iter().filter(of_target).filter(|s| serves.contains(&s.tgid)).map(ends).collect();
    let asked_by_server = |s: &&SocketRow| {
        let (proto, local_addr, local_port, remote_addr, remote_port) = ends(s);
        servers_ends.contains(&(proto, remote_addr, remote_port, local_addr, local_port))
    };
    let of_helper = sockets.iter().filter(of_target).filter(|s| !serves.contains(&s.tgid));
    of_helper.filter(asked_by_server).map(connection_end).collect()
}

/// IPv6 flows get their addresses from the recorder's socket table.
pub fn name_flows(flows: &mut [Flow], facts: &RunContext) {
    let by_key: FxHashMap<(u64, u16, u16), &SocketRow> = facts
        .sockets
        .iter()
        .filter(|s| !s.local_addr.is_empty())
        .map(|s| ((s.addrs, s.local_port, s.remote_port), s))
        .collect();
    for flow in flows.iter_mut().filter(|f| f.key.is_v6()) {
        if let Some(s) = by_key.get(&(flow.key.addrs, flow.key.local_port(), flow.key.remote_port())) {
            let proto = if flow.key.is_udp() { "udp" } else { "tcp" };
            flow.name = format!("{proto} [{}]:{} <- [{}]:{}", s.local_addr, s.local_port, s.remote_addr, s.remote_port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that took its core before it became gzip was blamed for gzip's work: each core's names come in a row.
    #[test]
    fn the_last_name_in_time_counts_not_the_last_row() {
        let row = |from_ns, comm: &str| TaskRow { from_ns, tid: 9, tgid: 9, comm: comm.into(), ..TaskRow::default() };
        let names = Names::new(&[row(0, "python3"), row(20, "gzip"), row(10, "taskset")]);
        assert_eq!(names.comm(9), "gzip");
        // Two names at once: the later row.
        assert_eq!(Names::new(&[row(10, "sh"), row(10, "gzip")]).comm(9), "gzip");
    }

    #[test]
    fn the_end_of_the_process_that_has_no_clients_is_the_helper_s() {
        let row = |tgid, (local_port, remote_port): (u16, u16)| SocketRow {
            proto: "tcp".into(),
            local_addr: "::1".into(),
            remote_addr: if remote_port == 0 { String::new() } else { "::1".into() },
            tgid,
            local_port,
            remote_port,
            addrs: u64::from(tgid),
            ..SocketRow::default()
        };
        let (server, helper, other) = (10, 20, 30);
        let rows = [
            row(server, (3128, 0)),
            row(server, (4000, 5000)),
            row(helper, (5000, 4000)),
            // To a program that is not recorded, and between two that have no clients.
            row(server, (4001, 5001)),
            row(other, (5001, 4001)),
            row(helper, (6000, 6001)),
            row(21, (6001, 6000)),
        ];
        let ends = |ports: &[u16]| helper_ends(&rows, &ports.iter().copied().collect(), |tgid| tgid != other);
        assert_eq!(ends(&[3128]), FxHashSet::from_iter([(20, 5000 << 16 | 4000)]));
        assert_eq!(ends(&[]), FxHashSet::default());
    }

    /// rustc was four causes, by the names of its threads.
    #[test]
    fn a_thread_is_of_its_process() {
        let row = |tid, tgid, comm: &str, cgroup: &str| TaskRow {
            tid,
            tgid,
            comm: comm.into(),
            cgroup: cgroup.into(),
            ..TaskRow::default()
        };
        let names = Names::new(&[
            row(10, 10, "rustc", "/user.slice"),
            row(11, 10, "lto cgu.01", "/user.slice"),
            row(21, 20, "orphan", ""),
        ]);
        let is = |tid| {
            let who = names.who(tid);
            (who.pid, who.process, who.recorder)
        };
        assert_eq!(is(11), (10, "rustc".into(), false));
        assert_eq!(is(10), (10, "rustc".into(), false));
        // Its leader was never named.
        assert_eq!(is(21), (20, "orphan".into(), false));
        assert_eq!(is(99), (0, String::new(), false));
        assert_eq!((names.cgroup(10), names.cgroup(20)), (Some("/user.slice"), None));
    }

    /// The recorder was whoever was called tailsight: another process of that name was taken for it, and through a symlink
    /// of another name it was not known.
    #[test]
    fn the_recorder_is_known_by_its_process_and_threads() {
        let row = |tid, tgid, comm: &str| TaskRow { tid, tgid, comm: comm.into(), ..TaskRow::default() };
        let rows = [row(5, 5, "ts-link"), row(6, 5, "progress"), row(7, 7, "tailsight")];
        let mut names = Names::new(&rows);
        let recorders = |names: &Names| [5, 6, 7, 8].map(|tid| names.who(tid).recorder);
        assert_eq!(recorders(&names), [false, false, true, false], "an older run: by name");
        names.recorded_by(Some(tailsight_trace::meta::Recorder {
            pid: 5,
            threads: vec![5, 6, 8],
            ..Default::default()
        }));
        assert_eq!(recorders(&names), [true, true, false, true]);
    }
}
