//! A made-up but consistent run: memcached disturbed by nginx on its core, as in the demo.
//!
//! In: a number of messages. Out: everything [`tailsight_report::html::Input`] needs. A single-server queue is
//! simulated (random arrivals, nginx and a kernel worker taking the core now and then), each message's path is laid
//! out nanosecond by nanosecond, parts are the sums of the path, and the diagnosis is computed from the parts: so all
//! of it adds up as a real run does. Deterministic.

use std::collections::BTreeMap;

use serde_json::json;
use tailsight_diagnose::{CategoryTable, Diagnosis};
use tailsight_lifetime::{Context, Flow, Frame, Leg, Lifetimes, Message, Owner, OwnerId, Part, PathSpan, Role};
use tailsight_report::html::Input;
use tailsight_trace::meta::{Cpu, Hook, Host, Overhead, RunMeta, State, Target};

/// The name of a task that tries to break the page.
pub const HOSTILE: &str = "</script><img src=x>";

/// The first fix: a command, why, and how to take it back.
fn fix() -> serde_json::Value {
    json!({"command": "for p in $(pgrep -x 'nginx'); do taskset -acp 0 $p; done", "why": "keep nginx off core 1",
        "undo": "for p in $(pgrep -x 'nginx'); do taskset -acp 0-1 $p; done"})
}

const SOFTIRQ: Frame = Frame::Softirq { vec: 3, inline: false };
const INLINE: Frame = Frame::Softirq { vec: 3, inline: true };
const START: u64 = 5_000_000_000_000;

/// Owners by id, with the cause that each one's time counts to: (category, name).
fn owners() -> Vec<(Owner, &'static str, &'static str)> {
    let nginx = Context::Foreign { comm: "nginx".into(), kernel: false };
    let kworker = Context::Foreign { comm: "kworker/1:1".into(), kernel: true };
    let hostile = Context::Foreign { comm: HOSTILE.into(), kernel: false };
    let own_packet = Frame::Packet { own: true, port: 11211, app: 0 };
    let nginx_packet = Frame::Packet { own: false, port: 8080, app: 0 };
    let row = |context: &Context, frames: &[Frame], category, name| {
        (Owner { context: context.clone(), frames: frames.to_vec() }, category, name)
    };
    vec![
        row(&Context::Idle, &[Frame::Irq { irq: 24 }], "interrupts", "irq:24"),
        row(&Context::Idle, &[SOFTIRQ], "receive-processing", "softirq:net_rx"),
        row(&Context::Idle, &[SOFTIRQ, own_packet], "receive-processing", "memcached"),
        row(&Context::Idle, &[SOFTIRQ, nginx_packet], "receive-processing", "nginx"),
        row(&Context::Idle, &[Frame::WakePending], "wakeup-delay", "idle core"),
        row(&Context::Idle, &[Frame::IdleState { state: 2 }], "wakeup-delay", "idle core"),
        row(&Context::Own, &[Frame::Syscall { nr: 232 }], "app-processing", "own work"),
        row(&Context::Own, &[], "app-processing", "own work"),
        row(&Context::Own, &[Frame::Syscall { nr: 0 }], "app-processing", "own work"),
        row(&Context::Ahead, &[Frame::Syscall { nr: 0 }], "hol-blocking", "memcached"),
        row(&Context::Ahead, &[], "hol-blocking", "memcached"),
        row(&Context::Ahead, &[Frame::Syscall { nr: 46 }], "hol-blocking", "memcached"),
        row(&Context::Ahead, &[Frame::Syscall { nr: 46 }, INLINE], "hol-blocking", "memcached"),
        row(&nginx, &[], "interference", "nginx"),
        row(&nginx, &[INLINE], "interference", "nginx"),
        row(&nginx, &[INLINE, nginx_packet], "interference", "nginx"),
        row(&nginx, &[Frame::Vector { which: 0 }], "interrupts", "vector:local_timer"),
        row(&kworker, &[Frame::Work { symbol: 1 }], "os-threads", "kworker/1:1"),
        row(&hostile, &[], "interference", HOSTILE),
    ]
}

/// The made-up run.
pub struct Synthetic {
    pub meta: RunMeta,
    pub lifetimes: Lifetimes,
    pub diagnosis: Diagnosis,
    pub paths: Vec<(u32, Vec<PathSpan>)>,
    causes: BTreeMap<(Role, OwnerId), usize>,
}

impl Synthetic {
    /// Calls `f` with the input of a report.
    pub fn with_input<T>(&self, f: impl FnOnce(&Input) -> T) -> T {
        let cause_of = |_, role, owner| self.causes.get(&(role, owner)).copied();
        f(&Input {
            meta: &self.meta,
            lifetimes: &self.lifetimes,
            diagnosis: &self.diagnosis,
            paths: &self.paths,
            cause_of: &cause_of,
            categories: &CategoryTable::default(),
            samples: None,
            stacks: &[],
            against: None,
        })
    }
}

/// splitmix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn exponential(&mut self, mean: f64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean) as u64
    }
    fn around(&mut self, ns: f64) -> u64 {
        (ns * (0.75 + 0.5 * self.unit())) as u64
    }
}

/// A path under construction.
#[derive(Default)]
struct Path(Vec<PathSpan>);

impl Path {
    fn now(&self, start: u64) -> u64 {
        self.0.last().map_or(start, |s| s.to_ns)
    }
    fn push(&mut self, start: u64, cpu: u16, role: Role, owner: OwnerId, ns: u64, begins: bool) {
        let from_ns = self.now(start);
        if ns > 0 {
            self.0.push(PathSpan { from_ns, to_ns: from_ns + ns, cpu: Some(cpu), role, owner, begins, rule: None });
        }
    }
}

/// What took the application core from `from` to `to`.
struct Busy {
    from: u64,
    to: u64,
    who: OwnerId,
}

/// A run of so many messages, one every 50 us on average, with the paths of the slowest and of a median one.
pub fn run(n: u32) -> Synthetic {
    run_with(n, 0)
}

/// The same with the paths of the whole focus, and of so many others, evenly.
pub fn run_with(n: u32, others: usize) -> Synthetic {
    let mut random = Random(7);
    let length = u64::from(n) * 50_000;
    let mut busy: Vec<Busy> = Vec::new();
    let mut at = START + 3_000_000;
    while at < START + length {
        let pick = random.unit();
        let (who, ns) = if pick < 0.72 {
            (13, random.around(300_000.0) + random.exponential(380_000.0).min(2_000_000))
        } else if pick < 0.9 {
            (17, random.around(260_000.0))
        } else {
            (18, random.around(420_000.0))
        };
        busy.push(Busy { from: at, to: at + ns, who });
        at += ns + random.exponential(38_000_000.0);
    }

    let mut messages = Vec::new();
    let mut parts = Vec::new();
    let mut all_paths = Vec::new();
    let (mut arrival, mut free, mut next_busy) = (START, START, 0);
    for id in 0..n {
        arrival += random.exponential(50_000.0).max(2_000);
        let (path, mut message) = one(&mut random, arrival, free, &busy, &mut next_busy);
        message.id = id;
        message.flow = (random.unit() * 50.0) as u32;
        if id % 997 == 500 {
            // Not followed to the receive call.
            message.recv_ns = 0;
            parts.push([vec![], vec![], vec![]]);
        } else {
            parts.push([sum(&path.0), vec![], vec![]]);
            free = message.recv_ns + random.around(6_000.0);
        }
        messages.push(message);
        all_paths.push(path.0);
    }
    finish(messages, parts, &all_paths, length, others)
}

/// A cause in the making: its mean in the focus, in the reference, and the focus messages it hit with their ns.
type Row = (f64, f64, Vec<(u64, u32)>);

/// One message that arrives at `arrival`, when the server is free from `free` on.
fn one(random: &mut Random, arrival: u64, free: u64, busy: &[Busy], next: &mut usize) -> (Path, Message) {
    let mut p = Path::default();
    let r = |p: &mut Path, owner, ns| p.push(arrival, 0, Role::R, owner, ns, true);
    r(&mut p, 0, random.around(650.0));
    r(&mut p, 1, random.around(420.0));
    for _ in 0..(random.unit() * 1.3) as u32 {
        r(&mut p, 3, random.around(1_900.0));
    }
    r(&mut p, 2, random.around(2_300.0));
    let handoff = p.now(arrival);
    let mut m =
        Message { driver_ns: arrival, handoff_ns: handoff, bytes: 38, tid: 4243, batch: 1, ..Message::default() };
    m.recv_cpu = 1;
    while *next < busy.len() && busy[*next].to <= handoff {
        *next += 1;
    }
    let a = |p: &mut Path, owner, ns, begins| p.push(arrival, 1, Role::A, owner, ns, begins);
    let taken = busy.get(*next).filter(|b| b.from < handoff);
    if let Some(b) = taken {
        m.wake_ns = handoff + 300;
        occupied(random, &mut p, arrival, b);
    }
    let waited = free.saturating_sub(p.now(arrival));
    if waited > 0 {
        let mut left = waited;
        while left > 0 {
            for (owner, ns, begins) in
                [(9, 1_500.0, true), (10, 1_600.0, true), (11, 900.0, true), (12, 1_300.0, true), (11, 700.0, false)]
            {
                let ns = random.around(ns).min(left);
                a(&mut p, owner, ns, begins);
                left -= ns;
            }
            m.ahead += 1;
        }
    } else if taken.is_none() {
        m.wake_ns = handoff + 300;
        a(&mut p, 5, random.around(1_100.0), true);
        a(&mut p, 4, random.around(900.0) + random.exponential(700.0), true);
    }
    m.on_cpu_ns = p.now(arrival);
    a(&mut p, 6, random.around(1_300.0), true);
    a(&mut p, 7, random.around(700.0) + random.exponential(400.0), true);
    a(&mut p, 8, random.around(1_500.0), true);
    m.recv_ns = p.now(arrival);
    (p, m)
}

/// The core is taken by someone else until `b.to`.
fn occupied(random: &mut Random, p: &mut Path, arrival: u64, b: &Busy) {
    let mut first = true;
    while p.now(arrival) < b.to {
        let left = b.to - p.now(arrival);
        p.push(arrival, 1, Role::A, b.who, random.around(34_000.0).min(left), first);
        first = false;
        if b.who == 13 {
            for owner in if random.unit() < 0.12 { vec![16] } else { vec![14, 15, 15, 14] } {
                let left = b.to - p.now(arrival).min(b.to);
                p.push(arrival, 1, Role::A, owner, random.around(1_700.0).min(left), owner != 14);
            }
        }
    }
}

fn sum(path: &[PathSpan]) -> Vec<Part> {
    let mut out: BTreeMap<(Role, OwnerId), (u32, u64)> = BTreeMap::new();
    for span in path {
        let entry = out.entry((span.role, span.owner)).or_default();
        entry.0 += u32::from(span.begins);
        entry.1 += span.to_ns - span.from_ns;
    }
    out.into_iter()
        .map(|((role, owner), (count, ns))| Part { role, owner, count: u16::try_from(count).unwrap_or(u16::MAX), ns })
        .collect()
}

fn finish(
    messages: Vec<Message>,
    parts: Vec<[Vec<Part>; 3]>,
    paths: &[Vec<PathSpan>],
    length: u64,
    others: usize,
) -> Synthetic {
    let table = owners();
    let flows = (0..50)
        .map(|i| Flow {
            key: tailsight_trace::FlowKey::between(
                ([10, 78, 0, 1].into(), 11211),
                ([10, 78, 0, 2].into(), 40_000 + i),
                false,
            ),
            name: format!("10.78.0.1:11211 ← 10.78.0.2:{} tcp", 40_000 + i),
            messages: 0,
        })
        .collect();
    let list = table.iter().map(|(owner, _, _)| owner.clone()).collect();
    let mut lifetimes = Lifetimes::from_parts("memcached", messages, flows, list, parts);
    lifetimes.symbols = vec![String::new(), "vmstat_update".into()];

    let leg = Leg::Receive;
    let mut order: Vec<u32> = (0..lifetimes.messages.len() as u32)
        .filter(|&i| lifetimes.messages[i as usize].latency(leg).is_some())
        .collect();
    let latency = |i: u32| lifetimes.messages[i as usize].latency(leg).expect("complete");
    order.sort_by_key(|&i| (latency(i), i));
    let n = order.len();
    let focus = &order[n - n.div_ceil(100)..];
    let reference = &order[n * 45 / 100..n * 55 / 100];
    let mean = |ids: &[u32]| ids.iter().map(|&i| latency(i)).sum::<u64>() as f64 / ids.len() as f64;
    let total = mean(focus) - mean(reference);

    let mut keys: BTreeMap<(&str, &str, Role), Row> = BTreeMap::new();
    for (ids, in_focus) in [(focus, true), (reference, false)] {
        for &id in ids {
            for part in lifetimes.parts(id, leg) {
                let (_, category, name) = &table[part.owner as usize];
                let entry = keys.entry((category, name, part.role)).or_default();
                let share = part.ns as f64 / ids.len() as f64;
                if in_focus {
                    entry.0 += share;
                    entry.2.push((part.ns, id));
                } else {
                    entry.1 += share;
                }
            }
        }
    }
    let mut rows: Vec<_> = keys.into_iter().collect();
    rows.sort_by(|a, b| (b.1.0 - b.1.1).total_cmp(&(a.1.0 - a.1.1)));
    let mut causes = BTreeMap::new();
    let mut list = Vec::new();
    for (rank, ((category, name, role), (with, without, mut hit))) in rows.into_iter().enumerate() {
        for (id, row) in table.iter().enumerate() {
            if row.1 == category && row.2 == name {
                causes.insert((role, id as OwnerId), rank);
            }
        }
        let deviation = with - without;
        hit.sort_by_key(|h| std::cmp::Reverse(*h));
        let of_message = hit.iter().filter(|h| h.0 as f64 > without).map(|h| h.1);
        let ids: std::collections::BTreeSet<u32> = of_message.clone().collect();
        list.push(json!({
            "rank": rank + 1, "category": category, "name": name, "role": role, "share": deviation / total,
            "deviation_ns": deviation as i64, "ci95_ns": [(deviation - deviation.abs() * 0.1) as i64, (deviation + deviation.abs() * 0.1) as i64],
            "messages": ids.len(), "evidence": hit.iter().take(5).map(|h| h.1).collect::<Vec<_>>(),
            "paths": table.iter().filter(|r| r.1 == category && r.2 == name)
                .map(|r| (r.0.path(&lifetimes.symbols), (deviation / 2.0) as i64)).collect::<Vec<_>>(),
            "fix": [],
            "steps": if rank == 0 {
                json!([fix(), {"command": "chrt -a -f -p 1 4242", "why": "let memcached run before ordinary tasks",
                    "undo": "chrt -a -o -p 0 4242"}])
            } else { json!([]) },
            "explanation": match rank {
                0 => format!("nginx held the core that memcached was to run on, for {:.2} ms in the mean slow \
                 message.", deviation / 1e6),
                _ => String::new(),
            },
        }));
    }
    list.push(json!({
        "rank": list.len() + 1, "category": "unexplained", "name": "unexplained", "role": "A", "share": 0.0,
        "deviation_ns": 0, "ci95_ns": [0, 0], "messages": 0, "evidence": [], "paths": [], "fix": [], "explanation": "",
    }));
    let at = |q: f64| latency(order[((q * n as f64).ceil() as usize).clamp(1, n) - 1]);
    let diagnosis = serde_json::from_value(json!({
        "schema": 1, "run": "tailsight-demo/run", "app": "memcached", "leg": "receive",
        "messages": {"total": lifetimes.messages.len(), "complete": n,
            "incomplete": {"its receive call was not seen": lifetimes.messages.len() - n}},
        "latency_ns": {"mean": mean(&order) as u64, "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99.9": at(0.999), "max": at(1.0)},
        "focus": {"from": 0.99, "to": 1.0, "messages": focus.len(), "mean_ns": mean(focus) as u64},
        "reference": {"from": 0.45, "to": 0.55, "messages": reference.len(), "mean_ns": mean(reference) as u64},
        "causes": list, "coverage": {"overall": 1.0, "p50": 1.0, "min": 0.98}, "owned": {"overall": 1.0, "p50": 1.0, "min": 1.0},
        "loss": {"events": 0, "clock_error_ns": 0}, "overhead": {"ns_per_event": 61.4, "events": 812_344},
        "notes": [], "next_steps": [
            {"says": "try the first fix of nginx (interference), then record again", "fix": fix()},
            {"says": "include service and sending, not only receiving", "command": "tailsight diagnose tailsight-demo/run --leg total"},
        ],
    }))
    .expect("the diagnosis contract");
    let slowest = *order.last().expect("messages");
    let median = order[n / 2];
    let pick = |id: u32| (id, paths[id as usize].clone());
    let mut chosen = vec![slowest, median];
    if let Some(step) = n.checked_div(others) {
        let ids = focus.iter().rev().chain(order.iter().step_by(step.max(1)));
        chosen.extend(
            ids.copied().filter(|id| ![slowest, median].contains(id)).collect::<std::collections::BTreeSet<_>>(),
        );
    }
    let paths = chosen.into_iter().map(pick).collect();
    Synthetic { meta: meta(length), paths, lifetimes, diagnosis, causes }
}

/// A run's description as a recorder writes it.
pub fn meta(length: u64) -> RunMeta {
    let hook = |name: &str, probe: &str, ns: Option<f64>, reason: Option<&str>| Hook {
        name: name.into(),
        probe: probe.into(),
        program: if reason.is_none() { name.into() } else { String::new() },
        on: reason.is_none(),
        reason: reason.map(Into::into),
        ns_per_run: ns,
        measured_runs: if ns.is_some() { 4_096 } else { 0 },
        optional: false,
        missed: 0,
    };
    RunMeta {
        format: "tailsight-run".into(),
        version: 1,
        tailsight: "0.1.0".into(),
        state: State::Complete,
        source: "ebpf".into(),
        host: Host {
            kernel: "6.12.48+deb13-amd64".into(),
            arch: "x86_64".into(),
            cpus: 2,
            cpu_model: "Example CPU @ 2.20GHz".into(),
            ..Host::default()
        },
        target: Target {
            selector: "--comm memcached".into(),
            app: "memcached".into(),
            pids: vec![4242],
            ports: vec![11211],
            ..Target::default()
        },
        started_unix_ns: 1_767_225_600_000_000_000,
        start_ns: START,
        end_ns: START + length,
        hooks: vec![
            hook("sched_switch", "sched", Some(68.2), None),
            hook("sched_waking", "sched", Some(55.0), None),
            hook("netif_receive_skb", "net", Some(71.9), None),
            hook("sk_data_ready", "net", Some(49.3), None),
            hook("sys_enter", "syscall", Some(38.7), None),
            hook("csd_function_entry", "cores", None, None),
            hook("skb_hwtstamps", "nic", None, Some("the interface veth0 stamps no packets")),
            hook("page_fault_user", "cores", None, Some("not on this kernel")),
            hook("page_fault_kernel", "cores", None, Some("not on this kernel")),
        ],
        cpus: vec![Cpu { cpu: 0, events: 401_000, lost: 0 }, Cpu { cpu: 1, events: 411_344, lost: 0 }],
        overhead: Overhead {
            ns_per_event: 61.4,
            events: 812_344,
            hooks_cpu_ns: 49_877_921,
            recorder_cpu_ns: 6_200_000,
        },
        ..RunMeta::default()
    }
}
