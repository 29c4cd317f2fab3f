//! A small valid run, made with the writer.

use std::path::Path;

use tailsight_trace::event::Kind;
use tailsight_trace::meta::{Cpu, RunMeta, State};
use tailsight_trace::tables::{ClockRow, SocketRow, TaskRow};
use tailsight_trace::{Event, RunWriter};

/// Events of core `cpu`, in order, of several kinds.
pub fn events(cpu: u32, n: u64) -> Vec<Event> {
    let kinds = [Kind::SchedSwitch, Kind::RxStack, Kind::Handoff, Kind::SyscallEnter, Kind::Recv, Kind::SoftirqEntry];
    (0..n)
        .map(|i| Event {
            ts: 1_000 + i * 7 + u64::from(cpu),
            kind: kinds[i as usize % kinds.len()] as u8,
            generation: 0,
            aux: (i % 3) as u16,
            tid: 100 + (i % 2) as u32,
            a: i * 0x9e37_79b9,
            b: i << 32 | 0x2bcb_0fa0,
            c: i,
        })
        .collect()
}

pub fn meta(state: State) -> RunMeta {
    RunMeta {
        format: "tailsight-run".into(),
        // Nothing is checked before it is decoded: the decoder is what most of these tests are about.
        version: 1,
        state,
        cpus: (0..2).map(|cpu| Cpu { cpu, events: 120, lost: 0 }).collect(),
        symbols: vec![String::new()],
        ..RunMeta::default()
    }
}

/// Writes the run; `batches` of 60 events on each of two cores.
pub fn write(dir: &Path) -> RunMeta {
    write_as(dir, meta(State::Recording))
}

/// The same run described by `meta`.
pub fn write_as(dir: &Path, mut meta: RunMeta) -> RunMeta {
    let mut writer = RunWriter::create(dir, &meta).expect("a writer");
    let task = |tid, comm: &str| TaskRow { tid, tgid: tid, comm: comm.into(), target: true, ..TaskRow::default() };
    let socket =
        SocketRow { proto: "tcp".into(), local_addr: "10.77.0.1".into(), local_port: 11211, ..SocketRow::default() };
    writer.tasks(&[task(100, "server"), task(101, "worker")]).expect("tasks");
    writer.sockets(&[socket]).expect("sockets");
    writer.clocks(&[ClockRow { monotonic_ns: 1000, realtime_ns: 2000, ..ClockRow::default() }]).expect("clocks");
    for cpu in 0..2 {
        for half in events(cpu, 120).chunks(60) {
            writer.events(cpu, half).expect("events");
        }
    }
    meta.state = State::Complete;
    writer.finish(&mut meta).expect("the end");
    meta
}
