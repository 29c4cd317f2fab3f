//! What `export` writes for other tools, read again by code of its own.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{json, run, shown};

fn golden(name: &str) -> String {
    format!("{}/../tailsight-lifetime/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn exported(of: &str, format: &str, file: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().display().to_string();
    let output = run(&["export", &golden(of), "--format", format, "-o", &out]);
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
    let (mut last, mut found, mut flows) = (0, None, BTreeMap::<u64, u32>::new());
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
                    found = Some(at - from);
                }
            }
            other => panic!("type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "a slice without an end");
    assert!(parents.iter().all(|p| names.contains_key(p)), "a parent that is not there");
    assert_eq!(found, slowest["latency_ns"].as_u64());
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
        match span["parentSpanId"].as_str() {
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
