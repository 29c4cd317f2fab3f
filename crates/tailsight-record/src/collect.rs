//! Tables that are collected while buffers are drained: names of tasks, addresses of IPv6 flows, and kernel addresses, which
//! must become names before anything is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv6Addr;

use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::tables::{SocketRow, TaskRow};
use tailsight_trace::{Event, FlowKey, fields};

/// Collects the small tables from the stream of events.
#[derive(Debug, Default)]
pub struct Collector {
    /// Rows for tasks.arrow met in the stream.
    pub tasks: Vec<TaskRow>,
    /// `run.json`'s symbols: entry 0 is empty.
    pub symbols: Vec<String>,
    /// `run.json`'s stacks: function names, innermost first, separated by `;`. Entry 0 is empty.
    pub stacks: Vec<String>,
    by_address: HashMap<u64, u64>,
    by_stack: HashMap<u32, u32>,
    kallsyms: Option<Vec<(u64, String)>>,
    v6: HashMap<u64, [Option<Ipv6Addr>; 2]>,
    connections: HashSet<FlowKey>,
    task_seconds: Seconds,
    connection_seconds: Seconds,
    address_seconds: Seconds,
    /// Names of tasks, connections, and addresses that were met after there were as many as are kept.
    pub left_out: LeftOut,
    /// Receive calls of the target.
    pub received: u64,
    /// Packets with data for the target's ports.
    pub arrived: u64,
    /// Those by the interface index of the device that they came in on.
    pub by_device: HashMap<u32, u64>,
    /// Pieces of payload.
    pub pieces: u64,
    /// Time stamps of NICs: of received packets, and of sent ones.
    pub stamps: (u64, u64),
}

/// Births and names of tasks that are kept; a row takes some 120 bytes, and is copied when the tables are written.
const MOST_TASKS: usize = 400_000;
/// Connections that are kept, and addresses of IPv6 flows.
const MOST_CONNECTIONS: usize = 1_000_000;

/// Of these, so many a second: a storm leaves room for what comes after it.
const TASKS_A_SECOND: usize = 100_000;
const CONNECTIONS_A_SECOND: usize = 200_000;

/// Room for so many of a second. Events come core by core, so that a second comes again.
#[derive(Clone, Debug, Default)]
struct Seconds {
    taken: BTreeMap<u64, usize>,
}

impl Seconds {
    /// Whether there was room at `ts_ns`; it is taken.
    fn take(&mut self, ts_ns: u64, most: usize) -> bool {
        let taken = self.taken.entry(ts_ns / 1_000_000_000).or_default();
        *taken += 1;
        *taken <= most
    }
}

/// What a table has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Births and names of tasks.
    pub tasks: u64,
    /// Connections.
    pub connections: u64,
    /// Ends of IPv6 flows, whose addresses are not told by their keys.
    pub addresses: u64,
}

impl Collector {
    /// A collector with no rows.
    pub fn new() -> Collector {
        Collector { symbols: vec![String::new()], stacks: vec![String::new()], ..Collector::default() }
    }

    /// Reads one event and replaces the addresses in it that must not leave the host. `stack`: the addresses of a stack that
    /// the probes took, innermost first.
    pub fn see(&mut self, event: &mut Event, stack: &dyn Fn(u32) -> Vec<u64>) {
        match event.kind() {
            Some(Kind::SchedSwitch) => {
                let mut switch = fields::Switch::of(event);
                let Some(id) = switch.stack.checked_sub(1) else { return };
                let stack_number = self.by_stack.get(&id).copied();
                switch.stack = stack_number.unwrap_or_else(|| self.stack(id, &stack(id)));
                switch.write(event);
            }
            Some(Kind::TaskFork | Kind::TaskExec | Kind::TaskRename)
                if self.tasks.len() >= MOST_TASKS || !self.task_seconds.take(event.ts, TASKS_A_SECOND) =>
            {
                self.left_out.tasks += 1;
            }
            Some(Kind::TaskFork | Kind::TaskExec | Kind::TaskRename) => {
                let task = fields::Task::of(event);
                self.tasks.push(TaskRow {
                    from_ns: event.ts,
                    tid: task.task_tid,
                    tgid: task.task_tgid,
                    comm: task.comm.to_string(),
                    target: false,
                    kernel: false,
                    cgroup: String::new(),
                });
            }
            Some(Kind::WorkStart) => {
                let function = self.symbol(fields::Work::of(event).function);
                fields::Work { function }.write(event);
            }
            Some(Kind::SockState) => {
                let flow = FlowKey::of(event);
                let has_room = self.connections.contains(&flow)
                    || self.connections.len() < MOST_CONNECTIONS
                        && self.connection_seconds.take(event.ts, CONNECTIONS_A_SECOND);
                if has_room {
                    self.connections.insert(flow);
                } else {
                    self.left_out.connections += 1;
                }
            }
            Some(Kind::FlowAddr6) => {
                let fields::Address { remote, address_key, address } = fields::Address::of(event);
                if !self.has_room_for_address(address_key, event.ts) {
                    self.left_out.addresses += 1;
                    return;
                }
                let mut bytes = [0u8; 16];
                bytes[..8].copy_from_slice(&address[0].to_ne_bytes());
                bytes[8..].copy_from_slice(&address[1].to_ne_bytes());
                self.v6.entry(address_key).or_default()[usize::from(remote)] = Some(Ipv6Addr::from(bytes));
            }
            _ => {}
        }
    }

    /// Counts an event that is part of the run: one between its begin and its end.
    pub fn count(&mut self, event: &Event) {
        match event.kind() {
            Some(Kind::Recv) => self.received += 1,
            Some(Kind::Payload) => self.pieces += 1,
            Some(Kind::RxHardware) => self.stamps.0 += 1,
            Some(Kind::NicTx) => self.stamps.1 += 1,
            Some(Kind::RxStack) => {
                let packet = fields::Packet::of(event);
                if packet.flow.flags & flow_flags::FOREIGN == 0 && packet.bytes > 0 {
                    self.arrived += 1;
                    *self.by_device.entry(packet.ifindex).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    /// Whether the address of one end of an IPv6 flow is kept. The other end of a kept one is.
    fn has_room_for_address(&mut self, address_key: u64, ts_ns: u64) -> bool {
        self.v6.contains_key(&address_key)
            || self.v6.len() < MOST_CONNECTIONS && self.address_seconds.take(ts_ns, CONNECTIONS_A_SECOND)
    }

    /// The index of a stack's functions. What the scheduler and the probe added on top of the sleep is left out.
    fn stack(&mut self, id: u32, addresses: &[u64]) -> u32 {
        let names: Vec<String> = addresses
            .iter()
            .map(|&address| {
                // These are return addresses: the call instruction is before each.
                let symbol = self.symbol(address.saturating_sub(1)) as usize;
                self.symbols[symbol].clone()
            })
            .collect();
        let scheduler = ["__schedule", "schedule", "schedule_preempt_disabled"];
        let from = names.iter().rposition(|n| scheduler.contains(&n.as_str())).map_or(0, |i| i + 1);
        let text = names[from..].iter().map(|n| if n.is_empty() { "?" } else { n }).collect::<Vec<_>>().join(";");
        let index = self.stacks.iter().position(|s| *s == text).unwrap_or_else(|| {
            self.stacks.push(text);
            self.stacks.len() - 1
        }) as u32;
        self.by_stack.insert(id, index);
        index
    }

    /// The index of a kernel function's name; the address itself never leaves the host.
    fn symbol(&mut self, address: u64) -> u64 {
        if let Some(&index) = self.by_address.get(&address) {
            return index;
        }
        let table = self.kallsyms.get_or_insert_with(|| {
            let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
            parse_kallsyms(&text)
        });
        let index = match table.partition_point(|(a, _)| *a <= address) {
            0 => 0,
            n if address - table[n - 1].0 > 1 << 20 => 0,
            n => {
                self.symbols.push(table[n - 1].1.clone());
                self.symbols.len() as u64 - 1
            }
        };
        self.by_address.insert(address, index);
        index
    }

    /// Connections met while recording that the snapshot did not have.
    pub fn new_sockets(&self, listed: &[SocketRow]) -> Vec<SocketRow> {
        let have: HashSet<(u64, u16, u16)> = listed.iter().map(|s| (s.addrs, s.local_port, s.remote_port)).collect();
        let mut rows: Vec<SocketRow> = self
            .connections
            .iter()
            .filter(|k| k.remote_port() != 0 && !have.contains(&(k.addrs, k.local_port(), k.remote_port())))
            .map(|key| {
                let text = |ip: Option<Ipv6Addr>| ip.map(|i| i.to_string()).unwrap_or_default();
                let (local, remote) = match key.addresses() {
                    Some((l, r)) => (l.to_string(), r.to_string()),
                    None => self.v6.get(&key.addrs).map(|v| (text(v[0]), text(v[1]))).unwrap_or_default(),
                };
                SocketRow {
                    proto: if key.is_udp() { "udp" } else { "tcp" }.into(),
                    local_addr: local,
                    local_port: key.local_port(),
                    remote_addr: remote,
                    remote_port: key.remote_port(),
                    addrs: key.addrs,
                    ..SocketRow::default()
                }
            })
            .collect();
        rows.sort_by_key(|r| (r.local_port, r.remote_port, r.addrs));
        rows
    }
}

/// Functions of /proc/kallsyms, by address. Empty when addresses are hidden.
fn parse_kallsyms(text: &str) -> Vec<(u64, String)> {
    let mut table: Vec<(u64, String)> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok().filter(|&a| a != 0)?;
            let kind = fields.next()?;
            matches!(kind, "t" | "T" | "w" | "W").then(|| (address, fields.next().unwrap_or_default().to_owned()))
        })
        .collect();
    table.sort();
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_addresses_become_indices() {
        let mut c = Collector::new();
        c.kallsyms = Some(parse_kallsyms("ffff0010 T one\nffff0020 t two\nffff0030 d data\n0 T hidden\n"));
        let mut see = |address| {
            let mut work = fields::Work { function: address }.event(Kind::WorkStart, 0, 0);
            c.see(&mut work, &|_| vec![]);
            fields::Work::of(&work).function
        };
        assert_eq!([see(0xffff_0024), see(0xffff_0024), see(5)], [1, 1, 0]);
        assert_eq!(c.symbols, ["", "two"]);
    }

    #[test]
    fn stacks_become_names_without_the_scheduler() {
        let mut c = Collector::new();
        c.kallsyms = Some(parse_kallsyms(
            "1000 T probe\n2000 T __schedule\n3000 T schedule\n4000 T fsync_wait\n5000 t do_fsync\n",
        ));
        let sleep =
            |stack| fields::Switch { call: 75, stack, ..fields::Switch::default() }.event(Kind::SchedSwitch, 0, 0);
        let stack = |_| vec![0x1010, 0x2010, 0x3004, 0x4001, 0x5009];
        let (mut first, mut second) = (sleep(8), sleep(9));
        c.see(&mut first, &stack);
        c.see(&mut second, &stack);
        let (first, second) = (fields::Switch::of(&first), fields::Switch::of(&second));
        assert_eq!((first.call, first.stack, second.stack), (75, 1, 1));
        assert_eq!(c.stacks, ["", "fsync_wait;do_fsync"]);
    }

    #[test]
    fn task_names_are_collected() {
        let mut c = Collector::new();
        let task = fields::Task { task_tid: 7, task_tgid: 5, comm: fields::Text::new("worker") };
        c.see(&mut task.event(Kind::TaskFork, 9, 1), &|_| vec![]);
        assert_eq!(
            (c.tasks[0].tid, c.tasks[0].tgid, c.tasks[0].comm.as_str(), c.tasks[0].from_ns),
            (7, 5, "worker", 9)
        );
    }

    /// Regression: two threads that renamed themselves in a loop took 1.9 GB in 6 s.
    #[test]
    fn what_a_target_makes_without_end_is_kept_up_to_a_number_and_counted() {
        let mut c = Collector::new();
        // Ten seconds long.
        let ts = |n: u64| n * 10_000_000_000 / MOST_CONNECTIONS as u64;
        let rename = |n: u64| Event { ts: ts(n), kind: Kind::TaskRename as u8, a: 7 | 7 << 32, ..Event::default() };
        (0..MOST_TASKS as u64 + 5).for_each(|n| c.see(&mut rename(n), &|_| vec![]));
        assert_eq!((c.tasks.len(), c.left_out.tasks), (MOST_TASKS, 5));
        let state =
            |n: u64| Event { ts: ts(n), kind: Kind::SockState as u8, a: n, b: 80 << 16 | 1, ..Event::default() };
        (0..MOST_CONNECTIONS as u64 + 3).for_each(|n| c.see(&mut state(n), &|_| vec![]));
        c.see(&mut state(1), &|_| vec![]);
        assert_eq!((c.connections.len(), c.left_out.connections), (MOST_CONNECTIONS, 3));
    }

    /// A storm of a fraction of a second took the room of all that came after it.
    #[test]
    fn what_comes_after_a_storm_is_kept() {
        let mut c = Collector::new();
        let mut see = |ts: u64, kind: Kind, tid: u64| {
            c.see(&mut Event { ts, kind: kind as u8, a: tid, b: 80 << 16 | 1, ..Event::default() }, &|_| vec![]);
        };
        (0..MOST_TASKS as u64).for_each(|n| see(n, Kind::TaskRename, 7));
        (0..MOST_CONNECTIONS as u64).for_each(|n| see(n, Kind::SockState, n));
        (0..MOST_CONNECTIONS as u64).for_each(|n| see(n, Kind::FlowAddr6, n));
        see(1_000_000_000, Kind::TaskFork, 8);
        see(1_000_000_000, Kind::SockState, u64::MAX);
        // Both ends of it: the second is no further flow.
        (0..2).for_each(|_| see(1_000_000_000, Kind::FlowAddr6, u64::MAX));
        let kept = (c.tasks.len(), c.connections.len(), c.v6.len());
        assert_eq!(kept, (TASKS_A_SECOND + 1, CONNECTIONS_A_SECOND + 1, CONNECTIONS_A_SECOND + 1));
        let connections = (MOST_CONNECTIONS - CONNECTIONS_A_SECOND) as u64;
        let tasks = (MOST_TASKS - TASKS_A_SECOND) as u64;
        assert_eq!(c.left_out, LeftOut { tasks, connections, addresses: connections });
    }
}
