//! Builds lifetimes for the tests: owners by number, messages by their parts.

use tailsight_diagnose::Options;
use tailsight_lifetime::{Context, Flow, Frame, Lifetimes, Message, Owner, OwnerId, Part, Role};
use tailsight_trace::FlowKey;

/// An owner.
pub fn owner(context: Context, frames: &[Frame]) -> Owner {
    Owner { context, frames: frames.to_vec() }
}

/// A user task of another application.
pub fn foreign(comm: &str) -> Context {
    Context::Foreign { comm: comm.into(), kernel: false }
}

/// A kernel thread.
pub fn kthread(comm: &str) -> Context {
    Context::Foreign { comm: comm.into(), kernel: true }
}

/// A system call frame.
pub fn sys(nr: syscalls::Sysno) -> Frame {
    Frame::Syscall { nr: nr as u32 }
}

/// A NET_RX softirq.
pub fn net_rx(inline: bool) -> Frame {
    Frame::Softirq { vec: 3, inline }
}

/// Time on the application core.
pub fn a(owner: OwnerId, ns: u64) -> Part {
    Part { role: Role::A, owner, count: 1, ns }
}

/// Time on the receive core.
pub fn r(owner: OwnerId, ns: u64) -> Part {
    Part { role: Role::R, owner, count: 1, ns }
}

/// Messages with these receive, service and transmit parts; the legs are as long as their parts.
pub fn lifetimes(owners: Vec<Owner>, parts: Vec<[Vec<Part>; 3]>) -> Lifetimes {
    let sum = |parts: &[Part]| parts.iter().map(|p| p.ns).sum::<u64>();
    let message = |(i, legs): (usize, &[Vec<Part>; 3])| {
        let driver_ns = 1_000 + i as u64 * 50_000;
        let recv_ns = driver_ns + sum(&legs[0]);
        let send_ns = recv_ns + sum(&legs[1]);
        let xmit_ns = send_ns + sum(&legs[2]);
        Message { id: i as u32, driver_ns, recv_ns, send_ns, xmit_ns, driver_cpu: 0, recv_cpu: 1, ..Message::default() }
    };
    let messages: Vec<Message> = parts.iter().enumerate().map(message).collect();
    let flow = Flow {
        key: FlowKey { addrs: 1, ports: 11211 << 16 | 40000, proto: 0 },
        name: "10.0.0.1:11211 10.0.0.2:40000".into(),
        messages: messages.len() as u32,
    };
    Lifetimes::from_parts("memcached", messages, vec![flow], owners, parts)
}

/// Receive legs only.
pub fn receive(owners: Vec<Owner>, parts: Vec<Vec<Part>>) -> Lifetimes {
    lifetimes(owners, parts.into_iter().map(|p| [p, vec![], vec![]]).collect())
}

/// Options for small sets.
pub fn options() -> Options {
    Options { bootstrap_rounds: 100, ..Options::default() }
}
