//! A small machine that produces event streams and knows the truth about them.
//!
//! In: a [`Script`] (sizes, and a list of steps that proptest makes and shrinks). Out: the events of each core as the
//! probes would write them, and a [`truth::Truth`]: which messages there were, when each stage happened, which task was on
//! each core and what each thread did at every nanosecond. Nothing here uses the code under test.

pub mod kernel;
pub mod machine;
pub mod network;
pub mod runtime;
pub mod server;
pub mod truth;
pub mod workers;

use proptest::prelude::*;
use tailsight_lifetime::RunContext;
use tailsight_lifetime::input::Names;
use tailsight_trace::read::CpuEvents;
use tailsight_trace::tables::TaskRow;

pub use machine::Machine;
pub use truth::Truth;

/// Thread ids of the target: this and up.
pub const TARGET: u32 = 100;
/// Tasks of others: this and up.
pub const FOREIGN: u32 = 200;
/// Softirq daemons: this plus the core.
pub const KSOFTIRQD: u32 = 10;

/// One step of one core: what it does is chosen among what it can do.
#[derive(Clone, Copy)]
pub struct Step {
    /// The core, modulo their number.
    pub core: u8,
    /// Time since the step before, ns.
    pub dt: u16,
    /// Which action, modulo the number of actions that are possible.
    pub choice: u16,
    /// Details of the action.
    pub arg: u16,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({}, {}, {}, {})", self.core, self.dt, self.choice, self.arg)
    }
}

/// A connection, or the UDP socket.
#[derive(Clone, Copy, Debug)]
pub struct FlowPlan {
    /// UDP (all such flows share one socket) or TCP.
    pub udp: bool,
    /// IPv6.
    pub v6: bool,
    /// First sequence number of what is received.
    pub isn: u32,
}

/// What the machine is made of and does.
#[derive(Clone, Debug)]
pub struct Script {
    /// Cores.
    pub cores: u16,
    /// Threads of the target.
    pub threads: u32,
    /// Tasks of others.
    pub others: u32,
    /// Whether the hooks before protocol processing exist.
    pub early_hooks: bool,
    /// Whether some packets pass a second device (then drops are always recorded; without, some are silent).
    pub bridge: bool,
    /// Flows.
    pub flows: Vec<FlowPlan>,
    /// How much longer each step takes: long waits are summed in another way than short ones.
    pub scale: u64,
    /// What happens.
    pub steps: Vec<Step>,
}

/// Scripts of up to `steps` steps.
pub fn script(steps: usize) -> impl Strategy<Value = Script> {
    let step = (any::<u8>(), 1u16..400, any::<u16>(), any::<u16>()).prop_map(|(core, dt, choice, arg)| Step {
        core,
        dt,
        choice,
        arg,
    });
    // Sequence numbers near the wrap, near its half, and anywhere.
    let isn = prop_oneof![Just(u32::MAX - 100), Just(0x7fff_ff80), any::<u32>()];
    let flow = (prop::bool::weighted(0.3), any::<bool>(), isn).prop_map(|(udp, v6, isn)| FlowPlan { udp, v6, isn });
    (
        2u16..=4,
        1u32..=4,
        1u32..=3,
        (prop::bool::weighted(0.8), any::<bool>(), prop_oneof![Just(1u64), Just(7)]),
        prop::collection::vec(flow, 1..4),
        prop::collection::vec(step, 1..steps),
    )
        .prop_map(|(cores, threads, others, (early_hooks, bridge, scale), flows, steps)| Script {
            cores,
            threads,
            others,
            early_hooks,
            bridge,
            scale,
            flows,
            steps,
        })
}

/// Runs a script to its end.
pub fn run(script: &Script) -> (RunContext, Vec<CpuEvents>, Truth) {
    let mut machine = Machine::new(script);
    for step in &script.steps {
        machine.step(*step);
    }
    let events = (0..).zip(machine.events).map(|(cpu, events)| CpuEvents { cpu, events }).collect();
    (facts(script), events, machine.truth)
}

/// The tasks, as the recorder would know them.
pub fn tasks(script: &Script) -> Vec<TaskRow> {
    let row =
        |tid, comm: String, target, kernel| TaskRow { tid, tgid: tid, comm, target, kernel, ..TaskRow::default() };
    let mut rows = vec![row(0, "swapper".into(), false, true)];
    rows.extend((0..script.threads).map(|i| row(TARGET + i, format!("server-{i}"), true, false)));
    rows.extend((0..script.others).map(|i| row(FOREIGN + i, format!("other-{i}"), false, false)));
    rows.extend((0..u32::from(script.cores)).map(|i| row(KSOFTIRQD + i, format!("ksoftirqd/{i}"), false, true)));
    rows
}

/// Names and ports, as the recorder would know them.
pub fn facts(script: &Script) -> RunContext {
    RunContext {
        app: "server".into(),
        names: Names::new(&tasks(script)),
        ports: [network::PORT].into_iter().collect(),
        cpus: script.cores,
        ..RunContext::default()
    }
}
