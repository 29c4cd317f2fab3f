//! Slow messages as OpenTelemetry spans, in the OTLP JSON of its file format: a line with one `TracesData`, which the collector's
//! `otlpjsonfile` receiver reads (<https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/>), or in several, each the body of a
//! request to a collector.
//!
//! In: messages with their paths. Out: a trace a message: its span, its legs as children, the parts of its time as the children of
//! these where they take a hundredth of the message or more, and links to the messages that its thread took first. Times are ns since
//! 1970, as far as the recording's start is known. Ids are made of the run's start and the message's id, so that exporting again
//! gives the same ones.

use std::collections::HashSet;

use serde_json::{Value, json};
use tailsight_diagnose::Titled;
use tailsight_diagnose::phases::overlaps::Ahead;
use tailsight_lifetime::{LEGS, Leg, PathSpan};

use crate::html::Input;

/// Parts below this share of their message have no span.
const LEAST: f64 = 0.01;
/// SpanKind SERVER and INTERNAL.
const SERVER: u32 = 2;
const INTERNAL: u32 = 1;

/// One line of OTLP JSON.
#[must_use]
pub fn traces(input: &Input) -> String {
    parts(input, usize::MAX).iter().map(|(data, _)| format!("{data}\n")).collect()
}

/// As many bodies of requests as there are spans for, each with its number of spans: `most`, and those of one message more.
#[must_use]
pub fn parts(input: &Input, most: usize) -> Vec<(String, usize)> {
    let (meta, app) = (input.meta, &input.lifetimes.app);
    let there: HashSet<u32> = input.paths.iter().map(|(id, _)| *id).collect();
    let of = Maker { input, ahead: Ahead::new(&input.lifetimes.messages), there };
    let mut batches: Vec<Vec<Value>> = vec![vec![]];
    for (id, path) in input.paths {
        if batches.last().is_some_and(|spans| spans.len() >= most) {
            batches.push(vec![]);
        }
        let spans = batches.last_mut().expect("there is one from the beginning on");
        spans.extend(of.message(*id, path));
    }
    let resource = json!({"attributes": [
        text("service.name", app),
        text("host.arch", &meta.host.arch),
        text("os.version", &meta.host.kernel),
    ]});
    let scope = json!({"name": "tailsight", "version": meta.tailsight});
    let body = |spans: Vec<Value>| {
        let n = spans.len();
        let scopes = json!([{"scope": scope, "spans": spans}]);
        (json!({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}).to_string(), n)
    };
    batches.into_iter().map(body).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// 64-bit integers are text in JSON.
fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

struct Maker<'a> {
    input: &'a Input<'a>,
    ahead: Ahead,
    /// Messages that have a trace.
    there: HashSet<u32>,
}

impl Maker<'_> {
    fn trace_id(&self, id: u32) -> String {
        format!("{:016x}{:016x}", self.input.meta.started_unix_ns | 1, u64::from(id) + 1)
    }

    /// The span `n` of a message: 0 is its own.
    fn span_id(id: u32, n: usize) -> String {
        format!("{:08x}{:08x}", u64::from(id) + 1, n + 1)
    }

    fn unix(&self, ns: u64) -> String {
        let meta = self.input.meta;
        (i128::from(meta.started_unix_ns) + i128::from(ns) - i128::from(meta.start_ns)).max(0).to_string()
    }

    fn message(&self, id: u32, path: &[PathSpan]) -> Vec<Value> {
        let Some(message) = self.input.lifetimes.messages.get(id as usize) else { return vec![] };
        let (Some(first), Some(last)) = (path.first(), path.last()) else { return vec![] };
        let (from, to) = (first.from_ns, last.to_ns);
        let flow = self.input.lifetimes.flows.get(message.flow as usize).map_or("", |f| f.name.as_str());
        let mut attributes = vec![
            number("tailsight.message", u64::from(id)),
            number("tailsight.latency_ns", to - from),
            number("thread.id", u64::from(message.tid)),
            number("network.io.bytes", u64::from(message.bytes)),
            text("tailsight.flow", flow),
        ];
        attributes.extend(self.causes(message, path));
        let link = |other: &u32| json!({"traceId": self.trace_id(*other), "spanId": Self::span_id(*other, 0), "attributes": [text("tailsight.link", "ahead")]});
        let links: Vec<Value> =
            self.ahead.of(message).iter().filter(|other| self.there.contains(other)).map(link).collect();
        let mut out = vec![self.span(id, None, (0, "message", SERVER), (from, to), attributes)];
        out[0]["links"] = Value::Array(links);
        for leg in LEGS {
            let Some((a, b)) = message.ends(leg).filter(|&(a, b)| a >= from && b <= to && a < b) else { continue };
            let place = out.len();
            out.push(self.span(id, Some(0), (place, leg.name(), INTERNAL), (a, b), vec![]));
            let least = (LEAST * (to - from) as f64) as u64;
            for span in path.iter().filter(|s| s.from_ns >= a && s.to_ns <= b && s.to_ns - s.from_ns >= least.max(1)) {
                let owner = self.input.lifetimes.owners.get(span.owner as usize);
                let name = owner.map_or_else(String::new, |o| o.path(&self.input.lifetimes.symbols));
                let cpu = span.cpu.map(|cpu| number("cpu.logical_number", u64::from(cpu)));
                let n = out.len();
                out.push(self.span(
                    id,
                    Some(place),
                    (n, &name, INTERNAL),
                    (span.from_ns, span.to_ns),
                    cpu.into_iter().collect(),
                ));
            }
        }
        out
    }

    /// What each cause had of the message, the most first.
    fn causes(&self, message: &tailsight_lifetime::Message, path: &[PathSpan]) -> Vec<Value> {
        let d = self.input.diagnosis;
        let mut times = vec![0_u64; d.causes.len()];
        for span in path {
            let leg = match d.leg {
                Leg::Total if span.from_ns < message.recv_ns => Leg::Receive,
                Leg::Total if span.from_ns < message.send_ns => Leg::Service,
                Leg::Total => Leg::Transmit,
                leg => leg,
            };
            let cause = (self.input.cause_of)(leg, span.role, span.owner);
            if let Some(ns) = cause.and_then(|cause| times.get_mut(cause)) {
                *ns += span.to_ns - span.from_ns;
            }
        }
        let mut all: Vec<_> = d.causes.iter().zip(times).filter(|(_, ns)| *ns > 0).collect();
        all.sort_by_key(|(cause, ns)| (std::cmp::Reverse(*ns), cause.rank));
        let dominant = all.first().map(|(cause, _)| text("tailsight.cause", &cause.title()));
        let each = all.iter().map(|(cause, ns)| number(&format!("tailsight.cause.{}.ns", cause.rank), *ns));
        dominant.into_iter().chain(each).collect()
    }

    fn span(
        &self,
        id: u32,
        parent: Option<usize>,
        (n, name, kind): (usize, &str, u32),
        (from, to): (u64, u64),
        attributes: Vec<Value>,
    ) -> Value {
        let mut span = json!({
            "traceId": self.trace_id(id),
            "spanId": Self::span_id(id, n),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": self.unix(from),
            "endTimeUnixNano": self.unix(to),
            "attributes": attributes,
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = Value::String(Self::span_id(id, parent));
        }
        span
    }
}
