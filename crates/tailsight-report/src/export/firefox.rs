//! A profile for profiler.firefox.com: the samples of the target's threads, and the messages as markers of the threads that served them.
//!
//! In: what the page is made of, with samples and paths. Out: JSON of the "processed profile format". Times are ms since the recording began. A
//! message's marker says its latency and its dominant cause, by the time in its path.

use std::collections::BTreeMap;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags, MarkerFieldFormat,
    MarkerTiming, Profile, ReferenceTimestamp, SamplingInterval, StaticSchemaMarker, StaticSchemaMarkerField,
    StringHandle, ThreadHandle, Timestamp,
};
use tailsight_diagnose::Titled;
use tailsight_lifetime::{Leg, PathSpan};
use tailsight_trace::samples::{FrameRow, kind};

use crate::html::Input;
use crate::units;

/// A message on its thread.
#[derive(Clone, Debug)]
struct Message {
    name: StringHandle,
    text: StringHandle,
    ns: u64,
}

impl StaticSchemaMarker for Message {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "tailsight message";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}: {marker.data.text}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        StaticSchemaMarkerField {
            key: "text",
            label: "Message",
            format: MarkerFieldFormat::String,
            flags: MarkerFieldFlags::SEARCHABLE,
        },
        StaticSchemaMarkerField {
            key: "latency",
            label: "Latency",
            format: MarkerFieldFormat::Nanoseconds,
            flags: MarkerFieldFlags::empty(),
        },
    ];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.text
    }

    fn number_field_value(&self, _: u32) -> f64 {
        self.ns as f64
    }
}

/// The profile as JSON.
#[must_use]
pub fn profile(input: &Input) -> Vec<u8> {
    let (meta, app) = (input.meta, if input.lifetimes.app.is_empty() { "target" } else { &input.lifetimes.app });
    let period_ns = meta.sampling.as_ref().map_or(1_000_000, |s| s.period_ns.max(1));
    let started = ReferenceTimestamp::from_millis_since_unix_epoch(meta.started_unix_ns as f64 / 1e6);
    let mut profile = Profile::new(app, started, SamplingInterval::from_nanos(period_ns));
    profile.set_symbolicated(true);
    let mut threads = Threads { profile, by_tid: BTreeMap::new(), app: app.to_owned(), start_ns: meta.start_ns };
    samples(&mut threads, input, period_ns);
    for (id, path) in input.paths {
        marker(&mut threads, input, *id, path);
    }
    serde_json::to_vec(&threads.profile).expect("a profile serialises")
}

struct Threads {
    profile: Profile,
    by_tid: BTreeMap<u32, ThreadHandle>,
    app: String,
    start_ns: u64,
}

impl Threads {
    fn at(&self, ns: u64) -> Timestamp {
        Timestamp::from_nanos_since_reference(ns.saturating_sub(self.start_ns))
    }

    /// The thread `tid` of the process `pid`, which is made when it is first met.
    fn thread(&mut self, pid: u32, tid: u32) -> ThreadHandle {
        if let Some(thread) = self.by_tid.get(&tid) {
            return *thread;
        }
        let start = self.at(self.start_ns);
        let process = self.profile.add_process(&self.app, pid, start);
        let thread = self.profile.add_thread(process, tid, start, pid == tid);
        self.profile.set_thread_name(thread, &format!("{} {tid}", self.app));
        self.by_tid.insert(tid, thread);
        thread
    }
}

fn samples(out: &mut Threads, input: &Input, period_ns: u64) {
    let Some(samples) = input.samples else { return };
    let kernel = out.profile.add_category("kernel", CategoryColor::Orange);
    let user = out.profile.add_category("user", CategoryColor::Blue);
    let mut rows: Vec<_> = samples.rows.iter().filter(|row| row.kind == kind::CLOCK).collect();
    rows.sort_by_key(|row| (row.tid, row.ts_ns));
    for row in rows {
        let thread = out.thread(row.tgid, row.tid);
        let frames: Vec<&FrameRow> = samples.stack(row.stack).rev().collect();
        let infos: Vec<FrameInfo> = frames
            .into_iter()
            .map(|frame| FrameInfo {
                frame: Frame::Label(out.profile.intern_string(&frame.name())),
                category_pair: if frame.kernel { kernel.into() } else { user.into() },
                flags: FrameFlags::empty(),
            })
            .collect();
        let stack = out.profile.intern_stack_frames(thread, infos.into_iter());
        let at = out.at(row.ts_ns);
        out.profile.add_sample(
            thread,
            at,
            stack,
            CpuDelta::from_nanos(period_ns * u64::from(row.weight)),
            i32::from(row.weight),
        );
    }
}

fn marker(out: &mut Threads, input: &Input, id: u32, path: &[PathSpan]) {
    let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
    let message = &input.lifetimes.messages[id as usize];
    let pid = input.meta.target.pids.first().copied().unwrap_or(0);
    let thread = out.thread(pid, message.tid);
    let ns = last.to_ns - first.from_ns;
    let cause = dominant(input, message, path).map_or_else(String::new, |title| format!(", mostly {title}"));
    let marker = Message {
        name: out.profile.intern_string("message"),
        text: out.profile.intern_string(&format!("message {id}, {}{cause}", units::duration(ns))),
        ns,
    };
    let timing = MarkerTiming::Interval(out.at(first.from_ns), out.at(last.to_ns));
    out.profile.add_marker(thread, timing, marker);
}

/// The cause with the most time in a path, in words.
fn dominant(input: &Input, message: &tailsight_lifetime::Message, path: &[PathSpan]) -> Option<String> {
    let mut times: BTreeMap<usize, u64> = BTreeMap::new();
    for span in path {
        let leg = match input.diagnosis.leg {
            Leg::Total if span.from_ns < message.recv_ns => Leg::Receive,
            Leg::Total if span.from_ns < message.send_ns => Leg::Service,
            Leg::Total => Leg::Transmit,
            leg => leg,
        };
        if let Some(cause) = (input.cause_of)(leg, span.role, span.owner) {
            *times.entry(cause).or_default() += span.to_ns - span.from_ns;
        }
    }
    let (cause, _) = times.into_iter().max_by_key(|&(cause, ns)| (ns, std::cmp::Reverse(cause)))?;
    Some(input.diagnosis.causes.get(cause)?.title())
}
