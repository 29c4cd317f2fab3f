//! The cost of serving: the time that the application's threads and its packets had on cores over a whole recording.
//!
//! In: the core timelines, and how many messages each thread received. Out: ns by thread and by core, without the time of the
//! recorder's hooks, the hypervisor, other tasks and other interrupts.

use std::collections::BTreeMap;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::model::{Frame, Interrupt};
use crate::scan::activity::Activity;
use crate::timelines::cores::Core;
use crate::timelines::service::Received;
use crate::timelines::tree::NodeId;

/// A thread that received messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadWork {
    /// The thread.
    pub tid: u32,
    /// Messages that it received.
    pub messages: u64,
    /// Its time in user space, ns.
    pub user_ns: u64,
    /// Its time in the kernel, ns, with the softirqs that it caused itself (a send over loopback runs the receiver's part).
    pub kernel_ns: u64,
    /// Where it had that time: core and ns, by core.
    pub cpus: BTreeMap<u16, u64>,
}

/// The work of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// From the first event to the last, CLOCK_MONOTONIC ns.
    pub span_ns: (u64, u64),
    /// Threads that received messages, by id.
    pub threads: Vec<ThreadWork>,
    /// The time in user space and in the kernel of the application's threads that received none, ns.
    pub others_ns: u64,
    /// Receive processing of the application's own packets, ns, by core: with its part of the softirq's own work.
    pub receive: BTreeMap<u16, u64>,
    /// How many of the application's own packets these were.
    pub packets: u64,
}

/// Whose a segment is. Threads by their places in [`Work::threads`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    User(usize),
    Kernel(usize),
    /// Of a thread of the application that received no message.
    Other,
    OwnPacket,
    OtherPacket,
    /// The NET_RX softirq between packets.
    Poll,
    Nothing,
}

/// Sums the timelines, each core's on whichever processor is free.
pub(crate) fn of(activity: &Activity) -> Work {
    let of_thread =
        |(&tid, received): (&u32, &Received)| ThreadWork { tid, messages: received.count(), ..ThreadWork::default() };
    let mut threads: Vec<ThreadWork> = activity.service.received().iter().map(of_thread).collect();
    threads.sort_unstable_by_key(|thread| thread.tid);
    let places: FxHashMap<u32, usize> = threads.iter().map(|thread| thread.tid).zip(0..).collect();
    let kinds: Vec<Kind> =
        (0..activity.tree.len() as NodeId).into_par_iter().map(|node| kind(activity, node, &places)).collect();
    let of_core = |core| CoreWork::of(activity, core, &kinds, threads.len());
    let cores: Vec<CoreWork> = activity.cores.par_iter().map(of_core).collect();
    let mut receive = BTreeMap::new();
    let (mut packets, mut others_ns) = (0, 0);
    for (cpu, work) in (0u16..).zip(cores) {
        for (thread, had) in threads.iter_mut().zip(work.threads) {
            let Some((user_ns, kernel_ns)) = had else { continue };
            thread.user_ns += user_ns;
            thread.kernel_ns += kernel_ns;
            *thread.cpus.entry(cpu).or_default() += user_ns + kernel_ns;
        }
        packets += work.packets;
        others_ns += work.others_ns;
        if work.own > 0 {
            let share = work.own as f64 / (work.own + work.other) as f64;
            receive.insert(cpu, work.own + (work.poll as f64 * share) as u64);
        }
    }
    Work { span_ns: activity.span_ns, threads, others_ns, receive, packets }
}

/// The work of one core, ns.
#[derive(Default)]
struct CoreWork {
    /// In user space and in the kernel, by thread; `None` of one that was never on the core.
    threads: Vec<Option<(u64, u64)>>,
    /// Of the application's other threads.
    others_ns: u64,
    /// Of the application's packets.
    own: u64,
    /// How many of those.
    packets: u64,
    /// Of other packets.
    other: u64,
    /// Of the softirq between packets.
    poll: u64,
}

/// What a node of the tree had on a core.
#[derive(Clone, Copy, Default)]
struct NodeWork {
    ns: u64,
    segments: u32,
    /// Segments in which it begins.
    begin: u32,
}

impl CoreWork {
    /// `kinds` is by node of the activity's tree.
    fn of(activity: &Activity, core: &Core, kinds: &[Kind], threads: usize) -> CoreWork {
        // Many segments have the same node: what it is, is looked up once.
        let mut of_nodes = vec![NodeWork::default(); kinds.len()];
        let ends = core.segments.iter().skip(1).map(|s| s.from).chain([activity.span_ns.1]);
        for (segment, end) in core.segments.iter().zip(ends) {
            let node_work = &mut of_nodes[segment.node as usize];
            node_work.ns += end.saturating_sub(segment.from).saturating_sub(u64::from(segment.hooks));
            node_work.segments += 1;
            node_work.begin += u32::from(segment.begins);
        }
        let mut work = CoreWork { threads: vec![None; threads], ..CoreWork::default() };
        for (node, node_work) in (0..).zip(&of_nodes).filter(|(_, node_work)| node_work.segments > 0) {
            match kinds[node as usize] {
                Kind::User(thread) => work.threads[thread].get_or_insert_default().0 += node_work.ns,
                Kind::Kernel(thread) => work.threads[thread].get_or_insert_default().1 += node_work.ns,
                Kind::Other => work.others_ns += node_work.ns,
                Kind::OwnPacket => {
                    work.own += node_work.ns;
                    if matches!(activity.tree.top(node), Some(Frame::Packet { own: true, .. })) {
                        work.packets += u64::from(node_work.begin);
                    }
                }
                Kind::OtherPacket => work.other += node_work.ns,
                Kind::Poll => work.poll += node_work.ns,
                Kind::Nothing => {}
            }
        }
        work
    }
}

/// `places`: threads that received messages.
fn kind(activity: &Activity, node: u32, places: &FxHashMap<u32, usize>) -> Kind {
    let (frames, within) = (activity.tree.frames(node), activity.tree.within(node));
    if frames.iter().any(|f| matches!(f, Frame::Stolen | Frame::Unseen)) {
        return Kind::Nothing;
    }
    let tid = activity.tree.task_of(node);
    let thread = places.get(&tid).copied();
    let is_other = thread.is_none() && activity.threads.names().is_target(tid);
    // A device interrupt, a timer or another softirq on top of what is looked for is not part of it.
    let innermost = frames.iter().rposition(|f| f.is_interrupt(Interrupt::Packet)).map(|i| &frames[i..]);
    let packet = frames.iter().rev().find_map(|f| match f {
        Frame::Packet { own, .. } => Some(*own),
        _ => None,
    });
    match (innermost, packet, thread) {
        (None, _, Some(thread)) if frames.is_empty() => Kind::User(thread),
        (None, _, Some(thread)) => Kind::Kernel(thread),
        (None, _, None) if is_other => Kind::Other,
        (Some([innermost, ..]), ..) if innermost.is_interrupt(Interrupt::OtherCore) => Kind::Nothing,
        (Some([Frame::Packet { own: true, .. }, ..]), ..) => Kind::OwnPacket,
        (Some(_), Some(true), _) if within.net_rx => Kind::OwnPacket,
        (Some(_), _, Some(thread)) if within.inline_softirq => Kind::Kernel(thread),
        (Some(_), Some(false), _) => Kind::OtherPacket,
        (Some(_), None, _) if within.net_rx => Kind::Poll,
        _ => Kind::Nothing,
    }
}
