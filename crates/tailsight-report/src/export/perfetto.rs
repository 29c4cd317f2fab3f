//! A trace for ui.perfetto.dev: cores and threads as tracks, messages as flows, causes as annotations.
//!
//! In: messages with their paths, and where the target's threads were. Out: a `perfetto.protos.Trace` with the fields of the
//! published protos that are used (track_descriptor.proto, track_event.proto, debug_annotation.proto). Times are CLOCK_MONOTONIC ns
//! (clock 3 of Perfetto's).
//!
//! A core's track is drawn from the paths: several messages wait on a core at a time, and each path names what runs there in
//! its own way, so each moment is drawn from the message that came first. A message's flow leads from its slice to the first
//! slice that it has on each core.

use std::collections::BTreeMap;

use prost::Message;
use tailsight_diagnose::Titled;
use tailsight_lifetime::{LEGS, Leg, PathSpan};

use crate::html::Input;

/// Where a thread of the target was: on a core, waiting for one, or stopped.
#[derive(Clone, Debug)]
pub struct ThreadStep {
    /// The thread.
    pub tid: u32,
    /// Begin, CLOCK_MONOTONIC ns.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// The owner of the time, with its nested frames.
    pub owner: String,
}

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    int_value: Option<i64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// TrackEvent.Type.
const BEGIN: i32 = 1;
const END: i32 = 2;
/// CLOCK_MONOTONIC among Perfetto's builtin clocks.
const MONOTONIC: u32 = 3;
/// All packets are of one writer.
const SEQUENCE: u32 = 1;
/// Tracks: groups, then cores, rows of messages, threads.
const MESSAGES: u64 = 1;
const CORES: u64 = 2;
const PROCESS: u64 = 3;
const FIRST_CORE: u64 = 1 << 16;
const FIRST_ROW: u64 = 2 << 32;
const FIRST_THREAD: u64 = 3 << 32;

/// The trace of the messages of an input's paths and of the target's threads.
#[must_use]
pub fn trace(input: &Input, threads: &[ThreadStep]) -> Vec<u8> {
    let mut out = Writer::default();
    let app = if input.lifetimes.app.is_empty() { "target" } else { &input.lifetimes.app };
    out.track(TrackDescriptor { uuid: Some(MESSAGES), name: Some(format!("{app}: messages")), ..Default::default() });
    out.track(TrackDescriptor { uuid: Some(CORES), name: Some("cores".into()), ..Default::default() });
    let mut paths: Vec<&(u32, Vec<PathSpan>)> = input.paths.iter().filter(|(_, path)| !path.is_empty()).collect();
    paths.sort_by_key(|(id, path)| (path[0].from_ns, *id));
    messages(&mut out, input, &paths);
    cores(&mut out, input, &paths);
    of_threads(&mut out, input, threads);
    // Events of a track must be in the order of time, ends before begins at the same time.
    out.events.sort_by_key(|p| p.timestamp);
    let mut packet = out.tracks;
    packet.append(&mut out.events);
    if let Some(first) = packet.first_mut() {
        // SEQ_INCREMENTAL_STATE_CLEARED: nothing came before.
        first.sequence_flags = Some(1);
    }
    Trace { packet }.encode_to_vec()
}

#[derive(Default)]
struct Writer {
    tracks: Vec<TracePacket>,
    events: Vec<TracePacket>,
}

impl Writer {
    fn track(&mut self, descriptor: TrackDescriptor) {
        self.tracks.push(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        });
    }

    fn event(&mut self, at: u64, event: TrackEvent) {
        self.events.push(TracePacket {
            timestamp: Some(at),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            timestamp_clock_id: Some(MONOTONIC),
            ..TracePacket::default()
        });
    }

    fn begin(&mut self, at: u64, track: u64, category: &str, name: String, more: TrackEvent) {
        let categories = vec![category.to_owned()];
        self.event(at, TrackEvent { kind: Some(BEGIN), track_uuid: Some(track), name: Some(name), categories, ..more });
    }

    fn end(&mut self, at: u64, track: u64) {
        self.event(at, TrackEvent { kind: Some(END), track_uuid: Some(track), ..TrackEvent::default() });
    }
}

/// A row takes the messages that do not overlap; each message has its legs in it.
fn messages(out: &mut Writer, input: &Input, paths: &[&(u32, Vec<PathSpan>)]) {
    let mut rows: Vec<u64> = Vec::new();
    for (id, path) in paths {
        let (from, to) = (path[0].from_ns, path[path.len() - 1].to_ns);
        let row = rows.iter().position(|end| *end <= from).unwrap_or(rows.len());
        if row == rows.len() {
            rows.push(to);
            let (uuid, name) = (Some(FIRST_ROW + row as u64), Some(format!("messages {}", row + 1)));
            out.track(TrackDescriptor { uuid, name, parent_uuid: Some(MESSAGES), ..Default::default() });
        }
        rows[row] = to;
        let track = FIRST_ROW + row as u64;
        let about = TrackEvent {
            debug_annotations: annotations(input, *id, path),
            flow_ids: vec![flow(*id)],
            ..TrackEvent::default()
        };
        out.begin(from, track, "message", format!("message {id}"), about);
        let message = &input.lifetimes.messages[*id as usize];
        for leg in LEGS {
            if let Some((a, b)) = message.ends(leg).filter(|&(a, b)| a >= from && b <= to && a < b) {
                out.begin(a, track, "leg", leg.name().into(), TrackEvent::default());
                out.end(b, track);
            }
        }
        out.end(to, track);
    }
}

/// A message's flow: 0 is none.
fn flow(id: u32) -> u64 {
    u64::from(id) + 1
}

/// What a message is, and how much time each cause took of it.
fn annotations(input: &Input, id: u32, path: &[PathSpan]) -> Vec<DebugAnnotation> {
    let (d, message) = (input.diagnosis, &input.lifetimes.messages[id as usize]);
    let text = |name: &str, value: String| DebugAnnotation {
        name: Some(name.into()),
        string_value: Some(value),
        ..Default::default()
    };
    let number =
        |name: String, value: u64| DebugAnnotation { name: Some(name), uint_value: Some(value), ..Default::default() };
    let mut out = vec![
        number("id".into(), u64::from(id)),
        number("latency_ns".into(), path[path.len() - 1].to_ns - path[0].from_ns),
        number("tid".into(), u64::from(message.tid)),
        number("bytes".into(), u64::from(message.bytes)),
    ];
    if let Some(flow) = input.lifetimes.flows.get(message.flow as usize) {
        out.push(text("flow", flow.name.clone()));
    }
    let mut times: BTreeMap<usize, u64> = BTreeMap::new();
    for span in path {
        let leg = match d.leg {
            Leg::Total if span.from_ns < message.recv_ns => Leg::Receive,
            Leg::Total if span.from_ns < message.send_ns => Leg::Service,
            Leg::Total => Leg::Transmit,
            leg => leg,
        };
        if let Some(cause) = (input.cause_of)(leg, span.role, span.owner) {
            *times.entry(cause).or_default() += span.to_ns - span.from_ns;
        }
    }
    let mut times: Vec<(usize, u64)> = times.into_iter().collect();
    times.sort_by_key(|&(cause, ns)| (std::cmp::Reverse(ns), cause));
    for (cause, ns) in times {
        if let Some(row) = d.causes.get(cause) {
            out.push(number(format!("cause {} {}: {} ns", row.rank, row.category, row.title()), ns));
        }
    }
    out
}

/// Each core's time as nested slices, from the paths.
fn cores(out: &mut Writer, input: &Input, paths: &[&(u32, Vec<PathSpan>)]) {
    let mut by_core: BTreeMap<u16, Vec<(&PathSpan, u32)>> = BTreeMap::new();
    for (id, path) in paths {
        for span in path {
            if let Some(cpu) = span.cpu {
                by_core.entry(cpu).or_default().push((span, *id));
            }
        }
    }
    for (cpu, mut spans) in by_core {
        let track = FIRST_CORE + u64::from(cpu);
        let (uuid, name) = (Some(track), Some(format!("core {cpu}")));
        out.track(TrackDescriptor { uuid, name, parent_uuid: Some(CORES), ..Default::default() });
        spans.sort_by_key(|(span, id)| (span.from_ns, *id));
        let mut slices = Slices { out, track, open: Vec::new(), at: 0, met: Default::default() };
        for (span, id) in spans {
            let from = span.from_ns.max(slices.at);
            if from < span.to_ns {
                slices.add(input, span, from, id);
            }
        }
        slices.close(0);
    }
}

/// The slices of one core that are still open.
struct Slices<'a> {
    out: &'a mut Writer,
    track: u64,
    open: Vec<String>,
    /// The time up to which the track is drawn.
    at: u64,
    met: std::collections::HashSet<u32>,
}

impl Slices<'_> {
    fn add(&mut self, input: &Input, span: &PathSpan, from: u64, id: u32) {
        let Some(owner) = input.lifetimes.owners.get(span.owner as usize) else { return };
        let mut names = vec![owner.context_name()];
        names.extend(owner.frames.iter().map(|f| f.name(&input.lifetimes.symbols)));
        let same = self.open.iter().zip(&names).take_while(|(a, b)| a == b).count();
        // A slice that continues without a gap stays open.
        self.close(if from == self.at { same } else { 0 });
        for name in names.into_iter().skip(self.open.len()) {
            let flow_ids = if self.met.insert(id) { vec![flow(id)] } else { vec![] };
            self.open.push(name.clone());
            self.out.begin(from, self.track, "core", name, TrackEvent { flow_ids, ..TrackEvent::default() });
        }
        self.at = span.to_ns;
    }

    /// Ends the slices below a level.
    fn close(&mut self, keep: usize) {
        while self.open.len() > keep {
            self.open.pop();
            self.out.end(self.at, self.track);
        }
    }
}

fn of_threads(out: &mut Writer, input: &Input, steps: &[ThreadStep]) {
    let pid = input.meta.target.pids.first().copied().unwrap_or(0) as i32;
    let process_name = Some(input.lifetimes.app.clone());
    let process = Some(ProcessDescriptor { pid: Some(pid), process_name });
    out.track(TrackDescriptor { uuid: Some(PROCESS), process, ..Default::default() });
    let mut at: BTreeMap<u32, u64> = BTreeMap::new();
    for step in steps {
        let track = FIRST_THREAD + u64::from(step.tid);
        let until = at.entry(step.tid).or_insert_with(|| {
            let thread = Some(ThreadDescriptor { pid: Some(pid), tid: Some(step.tid as i32), thread_name: None });
            out.track(TrackDescriptor { uuid: Some(track), thread, parent_uuid: Some(PROCESS), ..Default::default() });
            0
        });
        let from = step.from_ns.max(*until);
        if from < step.to_ns {
            out.begin(from, track, "thread", step.owner.clone(), TrackEvent::default());
            out.end(step.to_ns, track);
            *until = step.to_ns;
        }
    }
}
