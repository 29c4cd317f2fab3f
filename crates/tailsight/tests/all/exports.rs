//! What `export` writes for other tools, read again by code of its own.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{json, run, shown};

fn golden(name: &str) -> String {
    format!("{}/../tailsight-lifetime/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn exported(run_name: &str, format: &str, file: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().display().to_string();
    let output = run(&["export", &golden(run_name), "--format", format, "-o", &out]);
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{out}/{file}\n"));
    std::fs::read(dir.path().join(file)).expect("the file")
}

/// The fields of a protobuf message: number, and a varint, 8 or 4 bytes as a number, or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return value;
            }
            shift += 7;
        }
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => out.push((key >> 3, varint(&mut bytes), &[][..])),
            1 => {
                let (value, rest) = bytes.split_at(8);
                out.push((key >> 3, u64::from_le_bytes(value.try_into().expect("8 bytes")), &[][..]));
                bytes = rest;
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                out.push((key >> 3, 0, value));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    out
}

fn of<'a>(fields: &[(u64, u64, &'a [u8])], number: u64) -> Option<(u64, &'a [u8])> {
    fields.iter().find(|f| f.0 == number).map(|f| (f.1, f.2))
}

/// The numbers are those of Perfetto's published protos: Trace.packet 1, TracePacket.timestamp 8, .track_event 11,
/// .track_descriptor 60, TrackDescriptor.uuid 1, .name 2, TrackEvent.type 9, .track_uuid 11, .name 23, .flow_ids 47.
#[test]
fn a_trace_of_perfetto_nests_on_every_track_and_has_the_slowest_message() {
    let trace = exported("memcached-requests", "perfetto", "trace.pftrace");
    let diagnosis = json(&run(&["diagnose", &golden("memcached-requests"), "--json"]));
    let slowest = &diagnosis["slowest"][0];
    let name = format!("message {}", slowest["id"]);
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    let (mut last, mut slowest_ns, mut flows) = (0, None, BTreeMap::<u64, u32>::new());
    let mut parents = vec![];
    for (number, _, packet) in fields(&trace) {
        assert_eq!(number, 1);
        let packet = fields(packet);
        if let Some((_, track)) = of(&packet, 60) {
            let track = fields(track);
            let uuid = of(&track, 1).expect("a uuid").0;
            let text = of(&track, 2).map_or("", |(_, n)| std::str::from_utf8(n).expect("text"));
            assert!(names.insert(uuid, text.to_owned()).is_none(), "a track twice");
            parents.extend(of(&track, 5).map(|(parent, _)| parent));
            continue;
        }
        let at = of(&packet, 8).expect("a time").0;
        assert!(at >= last, "events are in the order of time");
        last = at;
        let event = fields(of(&packet, 11).expect("an event").1);
        let track = of(&event, 11).expect("a track").0;
        assert!(names.contains_key(&track), "an event of a track that is not described");
        for flow in event.iter().filter(|f| f.0 == 47) {
            *flows.entry(flow.1).or_default() += 1;
        }
        let stack = open.entry(track).or_default();
        match of(&event, 9).expect("a type").0 {
            1 => {
                let text = std::str::from_utf8(of(&event, 23).expect("a name").1).expect("text").to_owned();
                stack.push((text, at));
            }
            2 => {
                let (text, from) = stack.pop().expect("an end without its begin");
                if text == name {
                    slowest_ns = Some(at - from);
                }
            }
            other => panic!("type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "a slice without an end");
    assert!(parents.iter().all(|p| names.contains_key(p)), "a parent that is not there");
    assert_eq!(slowest_ns, slowest["latency_ns"].as_u64());
    assert!(names.values().any(|n| n == "core 0" || n == "core 1"), "{names:?}");
    let flow = slowest["id"].as_u64().expect("an id") + 1;
    assert!(flows[&flow] >= 2, "the slowest message's flow leads from its slice to a core");
}

/// By the OTLP specification: ids of 32 and 16 hexadecimal digits, 64-bit numbers as text, parents in the same trace.
#[test]
fn spans_of_opentelemetry_are_the_messages_in_focus_with_their_legs() {
    let text = String::from_utf8(exported("memcached-requests", "otlp", "traces.jsonl")).expect("UTF-8");
    assert_eq!(text.lines().count(), 1);
    let data: Value = serde_json::from_str(&text).expect("JSON");
    let scope = &data["resourceSpans"][0]["scopeSpans"][0];
    let spans = scope["spans"].as_array().expect("spans");
    let diagnosis = json(&run(&["diagnose", &golden("memcached-requests"), "--json"]));
    let string = |v: &Value| v.as_str().expect("text").to_owned();
    let ns = |v: &Value| -> u64 { v.as_str().expect("text").parse().expect("a number") };
    let by_id: BTreeMap<(String, String), &Value> =
        spans.iter().map(|s| ((string(&s["traceId"]), string(&s["spanId"])), s)).collect();
    assert_eq!(by_id.len(), spans.len(), "an id twice");
    let hex = |text: &str, n: usize| text.len() == n && text.bytes().all(|c| c.is_ascii_hexdigit());
    let (mut roots, mut links) = (vec![], 0);
    for span in spans {
        assert!(hex(&string(&span["traceId"]), 32) && hex(&string(&span["spanId"]), 16));
        let (from, to) = (ns(&span["startTimeUnixNano"]), ns(&span["endTimeUnixNano"]));
        match span["parentSpanId"].as_str().filter(|id| !id.is_empty()) {
            None => roots.push(to - from),
            Some(parent) => {
                let parent = by_id[&(string(&span["traceId"]), parent.to_owned())];
                assert!(ns(&parent["startTimeUnixNano"]) <= from && to <= ns(&parent["endTimeUnixNano"]));
            }
        }
        for link in span["links"].as_array().into_iter().flatten() {
            assert!(by_id.contains_key(&(string(&link["traceId"]), string(&link["spanId"]))), "a link to nowhere");
            links += 1;
        }
    }
    assert_eq!(roots.len() as u64, diagnosis["focus"]["messages"].as_u64().expect("a number"));
    assert_eq!(roots.iter().max(), diagnosis["slowest"][0]["latency_ns"].as_u64().as_ref());
    let legs = spans.iter().filter(|s| s["name"] == "receive").count();
    assert_eq!(legs, roots.len());
    assert!(links > 0, "no message has one ahead of it");
}

/// A collector in this process: what it was sent, each request's body. It answers all with `answer`.
struct Receiver {
    address: String,
    server: std::sync::Arc<tiny_http::Server>,
    thread: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Receiver {
    fn start(status: u16, answer: &'static str) -> Receiver {
        let server = std::sync::Arc::new(tiny_http::Server::http("127.0.0.1:0").expect("a port"));
        let address = format!("http://{}", server.server_addr().to_ip().expect("an address"));
        let listening = std::sync::Arc::clone(&server);
        let thread = std::thread::spawn(move || {
            let mut bodies = vec![];
            for mut request in listening.incoming_requests() {
                assert_eq!((request.method(), request.url()), (&tiny_http::Method::Post, "/v1/traces"));
                let json = |h: &tiny_http::Header| h.field.equiv("Content-Type") && h.value == "application/json";
                assert!(request.headers().iter().any(json));
                let mut body = String::new();
                request.as_reader().read_to_string(&mut body).expect("UTF-8");
                bodies.push(body);
                let _ = request.respond(tiny_http::Response::from_string(answer).with_status_code(status));
            }
            bodies
        });
        Receiver { address, server, thread: Some(thread) }
    }

    /// What came, when the sender is done.
    fn received(mut self) -> Vec<Value> {
        self.server.unblock();
        let bodies = self.thread.take().expect("it runs").join().expect("every request was as it should be");
        bodies.iter().map(|body| serde_json::from_str(body).expect("JSON")).collect()
    }
}

/// The spans that a collector receives over HTTP are those of the file: traces of the messages in focus, linked to those ahead of them.
#[test]
fn a_collector_receives_the_spans_with_their_links() {
    let receiver = Receiver::start(200, "{}");
    let output = run(&["export", &golden("memcached-requests"), "--format", "otlp", "--to", &receiver.address]);
    assert!(output.status.success(), "{}", shown(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let address = format!("{}/v1/traces", receiver.address);
    let requests = receiver.received();
    let spans_of = |data: &Value| data["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
    let spans: Vec<Value> = requests.iter().flat_map(spans_of).collect();
    assert_eq!(printed, format!("{} spans: {address}\n", spans.len()));
    let file = String::from_utf8(exported("memcached-requests", "otlp", "traces.jsonl")).expect("UTF-8");
    assert_eq!(spans, spans_of(&serde_json::from_str(&file).expect("JSON")));
    assert!(requests.iter().all(|data| data["resourceSpans"][0]["resource"]["attributes"][0]["key"] == "service.name"));

    let ids: Vec<(&Value, &Value)> = spans.iter().map(|s| (&s["traceId"], &s["spanId"])).collect();
    let links: Vec<&Value> = spans.iter().flat_map(|s| s["links"].as_array().into_iter().flatten()).collect();
    assert!(!links.is_empty() && links.iter().all(|link| ids.contains(&(&link["traceId"], &link["spanId"]))));
}

#[test]
fn what_a_collector_does_not_take_is_an_error() {
    let run_dir = golden("memcached-requests");
    for (status, answer, words) in [
        (503, "try later", "answered 503: try later"),
        (200, "{\"partialSuccess\":{\"rejectedSpans\":\"2\",\"errorMessage\":\"too old\"}}", "rejected 2 of"),
    ] {
        let receiver = Receiver::start(status, answer);
        let output = run(&["export", &run_dir, "--format", "otlp", "--to", &receiver.address]);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{}", shown(&output));
        receiver.received();
    }
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let output = run(&["export", &run_dir, "--format", "otlp", "--to", &format!("http://127.0.0.1:{port}")]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot reach a collector"), "{}", shown(&output));
    for wrong in [&["--to", "https://x"][..], &["--to", "http://x", "--format", "csv"]] {
        let output = run(&[&["export", &run_dir, "--format", "otlp"][..2], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", shown(&output));
    }
}

/// Perfetto's own definitions read every field of a trace (scripts/perfetto-check.py), and count what the trace is made of.
#[test]
fn perfetto_reads_every_field_of_a_trace() {
    if let Some(reason) = tailsight_testing::lacks_program("python3") {
        return tailsight_testing::skip(reason);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/perfetto-check.py");
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("trace.pftrace");
    let trace = exported("memcached-requests", "perfetto", "trace.pftrace");
    std::fs::write(&file, &trace).expect("a file");
    let output = std::process::Command::new("python3").arg(script).arg(&file).output().expect("python3 starts");
    if output.status.code() == Some(77) {
        return tailsight_testing::skip(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    assert!(output.status.success(), "{}", shown(&output));
    let said = json(&output);
    let packets: Vec<_> = fields(&trace).into_iter().map(|(_, _, packet)| fields(packet)).collect();
    let (mut tracks, mut slices, mut flows) = (0, 0, std::collections::BTreeSet::new());
    for packet in &packets {
        tracks += usize::from(of(packet, 60).is_some());
        let Some((_, event)) = of(packet, 11) else { continue };
        let event = fields(event);
        slices += usize::from(of(&event, 9).is_some_and(|(kind, _)| kind == 1));
        flows.extend(event.iter().filter(|f| f.0 == 47).map(|f| f.1));
    }
    let expected = serde_json::json!({
        "packets": packets.len(), "tracks": tracks, "slices": slices, "flows": flows.len(), "unknown": []
    });
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&said[name], value, "{name}");
    }
    assert!(slices > 1_000 && flows.len() > 50, "{said}");
    // Where Perfetto's trace processor is at hand, it has the same tracks and slices and found nothing wrong.
    if let Some(loaded) = said["loaded"].as_object() {
        assert_eq!(
            (&loaded["slices"], &loaded["errors"]),
            (&serde_json::json!(slices), &serde_json::json!(0)),
            "{said}"
        );
        println!("the trace processor loaded it: {said}");
    }
}

#[test]
fn the_causes_as_csv_are_those_of_the_json() {
    let text = String::from_utf8(exported("memcached-requests", "csv", "causes.csv")).expect("UTF-8");
    let diagnosis = json(&run(&["diagnose", &golden("memcached-requests"), "--json"]));
    let rows = cells(&text);
    let column = |name: &str| rows[0].iter().position(|c| c == name).expect("a column");
    let causes = diagnosis["causes"].as_array().expect("causes");
    assert_eq!(rows.len(), causes.len() + 1);
    for (row, cause) in rows[1..].iter().zip(causes) {
        assert_eq!(row.len(), rows[0].len());
        let is = |name: &str, value: &Value| {
            let expected = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert_eq!(row[column(name)], expected, "{name}");
        };
        is("rank", &cause["rank"]);
        is("category", &cause["category"]);
        is("name", &cause["name"]);
        is("deviation_ns", &cause["deviation_ns"]);
        is("ci95_low_ns", &cause["ci95_ns"][0]);
        is("messages", &cause["messages"]);
        is("explanation", &cause["explanation"]);
    }
}

/// RFC 4180.
fn cells(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (vec![], vec![], String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            c => cell.push(c),
        }
    }
    rows
}

#[test]
fn a_profile_needs_samples_and_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().display().to_string();
    let output = run(&["export", &golden("memcached-tcp"), "--format", "pprof", "-o", &out]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no samples"), "{}", shown(&output));
}
