//! Slow messages as OpenTelemetry spans, in the OTLP JSON of its file format: a line with one `TracesData`, which the collector's
//! `otlpjsonfile` receiver reads (<https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/>), or in several, each the body of a
//! request to a collector.
//!
//! In: messages with their paths. Out: a trace a message: its span, its legs as children, the parts of its time as the children of
//! these where they take a hundredth of the message or more, and links to the messages that its thread took first. Times are ns since
//! 1970, as far as the recording's start is known. Ids are made of the run's start and the message's id, so that exporting again
//! gives the same ones. Messages and their JSON are those of the crate `opentelemetry-proto`.

use std::collections::HashSet;

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
use tailsight_diagnose::Titled;
use tailsight_diagnose::phases::overlaps::Ahead;
use tailsight_lifetime::{LEGS, Leg, PathSpan};

use crate::html::Input;

/// Parts below this share of their message have no span.
const LEAST_SHARE: f64 = 0.01;

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
    let maker = Maker { input, ahead: Ahead::new(&input.lifetimes.messages), there };
    let mut batches: Vec<Vec<Span>> = vec![vec![]];
    for (id, path) in input.paths {
        if batches.last().is_some_and(|spans| spans.len() >= most) {
            batches.push(vec![]);
        }
        let spans = batches.last_mut().expect("there is one from the beginning on");
        spans.extend(maker.message(*id, path));
    }
    let attributes =
        vec![text("service.name", app), text("host.arch", &meta.host.arch), text("os.version", &meta.host.kernel)];
    let resource = Resource { attributes, ..Resource::default() };
    let scope = InstrumentationScope {
        name: "tailsight".into(),
        version: meta.tailsight.clone(),
        ..InstrumentationScope::default()
    };
    let body = |spans: Vec<Span>| {
        let n = spans.len();
        let scopes = ScopeSpans { scope: Some(scope.clone()), spans, ..ScopeSpans::default() };
        let of_resource =
            ResourceSpans { resource: Some(resource.clone()), scope_spans: vec![scopes], ..ResourceSpans::default() };
        let json = serde_json::to_string(&TracesData { resource_spans: vec![of_resource] });
        (json.expect("a message of OpenTelemetry's is JSON"), n)
    };
    batches.into_iter().map(body).collect()
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.into()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

struct Maker<'a> {
    input: &'a Input<'a>,
    ahead: Ahead,
    /// Messages that have a trace.
    there: HashSet<u32>,
}

impl Maker<'_> {
    fn trace_id(&self, id: u32) -> Vec<u8> {
        [(self.input.meta.started_unix_ns | 1).to_be_bytes(), (u64::from(id) + 1).to_be_bytes()].concat()
    }

    /// The span `n` of a message: 0 is its own.
    fn span_id(id: u32, n: usize) -> Vec<u8> {
        ((u64::from(id) + 1) << 32 | (n as u64 + 1)).to_be_bytes().to_vec()
    }

    fn unix(&self, ns: u64) -> u64 {
        let meta = self.input.meta;
        let at = i128::from(meta.started_unix_ns) + i128::from(ns) - i128::from(meta.start_ns);
        u64::try_from(at).unwrap_or(0)
    }

    fn message(&self, id: u32, path: &[PathSpan]) -> Vec<Span> {
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
        let link = |other: &u32| Link {
            trace_id: self.trace_id(*other),
            span_id: Self::span_id(*other, 0),
            attributes: vec![text("tailsight.link", "ahead")],
            ..Link::default()
        };
        let links = self.ahead.of(message).iter().filter(|other| self.there.contains(other)).map(link).collect();
        let own = self.span(id, None, (0, "message", SpanKind::Server), (from, to), attributes);
        let mut out = vec![Span { links, ..own }];
        for leg in LEGS {
            let Some((a, b)) = message.ends(leg).filter(|&(a, b)| a >= from && b <= to && a < b) else { continue };
            let place = out.len();
            out.push(self.span(id, Some(0), (place, leg.name(), SpanKind::Internal), (a, b), vec![]));
            let least = (LEAST_SHARE * (to - from) as f64) as u64;
            for span in path.iter().filter(|s| s.from_ns >= a && s.to_ns <= b && s.to_ns - s.from_ns >= least.max(1)) {
                let owner = self.input.lifetimes.owners.get(span.owner as usize);
                let name = owner.map_or_else(String::new, |o| o.path(&self.input.lifetimes.symbols));
                let cpu = span.cpu.map(|cpu| number("cpu.logical_number", u64::from(cpu)));
                let n = out.len();
                out.push(self.span(
                    id,
                    Some(place),
                    (n, &name, SpanKind::Internal),
                    (span.from_ns, span.to_ns),
                    cpu.into_iter().collect(),
                ));
            }
        }
        out
    }

    /// What each cause had of the message, the most first.
    fn causes(&self, message: &tailsight_lifetime::Message, path: &[PathSpan]) -> Vec<KeyValue> {
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
        let mut causes: Vec<_> = d.causes.iter().zip(times).filter(|(_, ns)| *ns > 0).collect();
        causes.sort_by_key(|(cause, ns)| (std::cmp::Reverse(*ns), cause.rank));
        let dominant = causes.first().map(|(cause, _)| text("tailsight.cause", &cause.title()));
        let each = causes.iter().map(|(cause, ns)| number(&format!("tailsight.cause.{}.ns", cause.rank), *ns));
        dominant.into_iter().chain(each).collect()
    }

    fn span(
        &self,
        id: u32,
        parent: Option<usize>,
        (n, name, kind): (usize, &str, SpanKind),
        (from, to): (u64, u64),
        attributes: Vec<KeyValue>,
    ) -> Span {
        Span {
            trace_id: self.trace_id(id),
            span_id: Self::span_id(id, n),
            parent_span_id: parent.map_or_else(Vec::new, |parent| Self::span_id(id, parent)),
            name: name.into(),
            kind: kind.into(),
            start_time_unix_nano: self.unix(from),
            end_time_unix_nano: self.unix(to),
            attributes,
            ..Span::default()
        }
    }
}
