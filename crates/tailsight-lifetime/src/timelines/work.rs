//! What serving costs: the time that the application's threads and its packets had on cores over a whole recording.
//!
//! In: the core timelines and the messages. Out: ns by thread and by core. What the recorder's hooks took and what the
//! hypervisor took is left out, and so is what other tasks and other interrupts did.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::model::{Frame, Message};
use crate::scan::Scan;
use crate::timelines::threads::is_interrupt_level;

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
    /// Receive processing of the application's own packets, ns, by core: with its part of the softirq's own work.
    pub receive: BTreeMap<u16, u64>,
    /// How many of the application's own packets these were.
    pub packets: u64,
}

/// Whose a segment is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    User(u32),
    Kernel(u32),
    OwnPacket,
    OtherPacket,
    /// The NET_RX softirq between packets.
    Poll,
    Nothing,
}

/// Sums the timelines.
pub(crate) fn of(scan: &Scan, messages: &[Message]) -> Work {
    let mut threads: BTreeMap<u32, ThreadWork> = BTreeMap::new();
    for m in messages.iter().filter(|m| m.recv_ns != 0) {
        let thread = threads.entry(m.tid).or_insert_with(|| ThreadWork { tid: m.tid, ..ThreadWork::default() });
        thread.messages += 1;
    }
    let mut kinds: FxHashMap<u32, Kind> = FxHashMap::default();
    let mut receive = BTreeMap::new();
    let mut packets = 0;
    for (cpu, core) in (0u16..).zip(&scan.cores) {
        let (mut own, mut other, mut poll) = (0_u64, 0_u64, 0_u64);
        let ends = core.segments.iter().skip(1).map(|s| s.from).chain([scan.end_ns]);
        for (segment, end) in core.segments.iter().zip(ends) {
            let ns = end.saturating_sub(segment.from).saturating_sub(u64::from(segment.hooks));
            let kind = *kinds.entry(segment.node).or_insert_with(|| kind(scan, segment.node, &threads));
            match kind {
                Kind::User(tid) | Kind::Kernel(tid) => {
                    let Some(thread) = threads.get_mut(&tid) else { continue };
                    let part = if kind == Kind::User(tid) { &mut thread.user_ns } else { &mut thread.kernel_ns };
                    *part += ns;
                    *thread.cpus.entry(cpu).or_default() += ns;
                }
                Kind::OwnPacket => {
                    own += ns;
                    let is = matches!(scan.tree.top(segment.node), Some(Frame::Packet { own: true, .. }));
                    packets += u64::from(segment.begins && is);
                }
                Kind::OtherPacket => other += ns,
                Kind::Poll => poll += ns,
                Kind::Nothing => {}
            }
        }
        if own > 0 {
            let share = own as f64 / (own + other) as f64;
            receive.insert(cpu, own + (poll as f64 * share) as u64);
        }
    }
    Work { span_ns: (scan.start_ns, scan.end_ns), threads: threads.into_values().collect(), receive, packets }
}

fn kind(scan: &Scan, node: u32, threads: &BTreeMap<u32, ThreadWork>) -> Kind {
    let (frames, within) = (scan.tree.frames(node), scan.tree.within(node));
    if frames.iter().any(|f| matches!(f, Frame::Stolen | Frame::Unseen)) {
        return Kind::Nothing;
    }
    let tid = Some(scan.tree.task_of(node)).filter(|tid| threads.contains_key(tid));
    // A device interrupt, a timer or another softirq on top of what is looked for is not part of it.
    let innermost = frames.iter().rposition(|f| is_interrupt_level(*f)).map(|i| &frames[i..]);
    let packet = frames.iter().rev().find_map(|f| match f {
        Frame::Packet { own, .. } => Some(*own),
        _ => None,
    });
    match (innermost, packet, tid) {
        (None, _, Some(tid)) if frames.is_empty() => Kind::User(tid),
        (None, _, Some(tid)) => Kind::Kernel(tid),
        (Some([Frame::Irq { .. } | Frame::Vector { .. } | Frame::Csd, ..]), ..) => Kind::Nothing,
        (Some([Frame::Packet { own: true, .. }, ..]), ..) => Kind::OwnPacket,
        (Some(_), Some(true), _) if within.net_rx => Kind::OwnPacket,
        (Some(_), _, Some(tid)) if within.inline_softirq => Kind::Kernel(tid),
        (Some(_), Some(false), _) => Kind::OtherPacket,
        (Some(_), None, _) if within.net_rx => Kind::Poll,
        _ => Kind::Nothing,
    }
}
