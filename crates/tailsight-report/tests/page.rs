//! The page: self-contained, safe against hostile names, and with all of its data in it.

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use serde_json::Value;
use tailsight_diagnose::cause::Subject;
use tailsight_diagnose::model::{Cluster, CoreContexts, More};
use tailsight_lifetime::{Context, Leg, Message};
use tailsight_report::html;
use tailsight_trace::meta::Device;

use super::synthetic::{self, HOSTILE, Synthetic};

fn page(run: &Synthetic) -> String {
    run.with_input(html::report)
}

/// The elements with data, by name, as a browser cuts them out: up to the first `</script`.
fn elements(page: &str) -> BTreeMap<&str, &str> {
    let begin = r#"<script type="application/gzip" id="data-"#;
    let element = |rest: &'_ str| -> (usize, usize, usize) {
        let name = rest.find('"').expect("a name");
        (name, name + 2, rest.find("</script").expect("its end"))
    };
    page.split(begin)
        .skip(1)
        .map(|rest| {
            let (name, from, to) = element(rest);
            (&rest[..name], &rest[from..to])
        })
        .collect()
}

/// What an element holds.
fn unpacked(page: &str, name: &str) -> Vec<u8> {
    let text = elements(page)[name];
    let packed = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut out).expect("gzip");
    out
}

/// What the page is made of, as JSON.
pub fn text(page: &str) -> String {
    String::from_utf8(unpacked(page, "page")).expect("UTF-8")
}

pub fn data(page: &str) -> Value {
    serde_json::from_str(&text(page)).expect("whole JSON up to the end of its element")
}

fn latencies(page: &str) -> Vec<Option<u64>> {
    let bytes = unpacked(page, "latency");
    match data(page)["messages"]["latency_type"].as_str().expect("text") {
        "u32" => bytes
            .chunks(4)
            .map(|c| u32::from_le_bytes(c.try_into().expect("4 bytes")))
            .map(|ns| (ns != u32::MAX).then_some(u64::from(ns)))
            .collect(),
        "f64" => bytes
            .chunks(8)
            .map(|c| f64::from_le_bytes(c.try_into().expect("8 bytes")))
            .map(|ns| (!ns.is_nan()).then_some(ns as u64))
            .collect(),
        other => panic!("latency type {other}"),
    }
}

/// All timelines: each with the bundle that it is in.
fn timelines(page: &str) -> Vec<(Value, Value)> {
    let elements = elements(page);
    let names = (0..).map(|i| format!("timelines-{i}")).take_while(|name| elements.contains_key(name.as_str()));
    let bundles = names.map(|name| serde_json::from_slice::<Value>(&unpacked(page, &name)).expect("JSON"));
    bundles.flat_map(|b| list(&b["messages"]).iter().map(|m| (b.clone(), m.clone())).collect::<Vec<_>>()).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Whether a browser asks for anything is the browser's test (view_pages.rs); here that nothing in the page is an address to load.
#[test]
fn it_loads_nothing() {
    let text = page(&synthetic::run(2_000));
    for load in [
        "src=\"",
        "@import",
        "url(",
        "import(",
        "XMLHttpRequest",
        "WebSocket",
        "<link rel=\"stylesheet",
        "modulepreload\"",
    ] {
        assert!(!text.contains(load), "the page contains {load}");
    }
    // The page that is served may ask its server; a file may ask nobody.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
    assert!(text.contains(&format!("content=\"{policy}\"")));
    let served = synthetic::run(2_000).with_input(|input| html::served(input, usize::MAX));
    assert!(served.contains(&format!("content=\"{policy}; connect-src 'self'\"")));
    // The only link with an address is the empty icon.
    assert_eq!(text.matches("<link").count(), 1);
    assert!(text.contains(r#"<link rel="icon" href="data:,">"#));
    assert!(!text.contains("<!--tailsight:data-->"), "the place of the data is left");
}

#[test]
fn the_page_without_data_is_small() {
    let page = include_str!("../assets/page.html");
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[test]
fn a_hostile_task_name_is_only_a_name() {
    let run = synthetic::run(20_000);
    let text = page(&run);
    assert!(!text.contains(HOSTILE) && !text.contains("<img src"));
    // The script of the template and the elements with data, and all of them end.
    let elements = elements(&text);
    assert_eq!(text.matches("<script").count(), 1 + elements.len());
    assert_eq!(text.matches("</script").count(), 1 + elements.len());
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"+/=".contains(&c);
    assert!(elements.values().all(|data| data.bytes().all(plain)));
    let names: Vec<_> = data(&text)["diagnosis"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .map(|c| c["name"].as_str().expect("text").to_owned())
        .collect();
    assert!(names.iter().any(|n| n == HOSTILE), "{names:?}");
}

/// Names reach the page in more places than the causes: none of them is more than a name there.
#[test]
fn hostile_names_of_groups_devices_and_contexts_are_only_names() {
    let mut run = synthetic::run(2_000);
    let context = CoreContexts {
        cpu: Some(0),
        share: 1.0,
        contexts: vec![(format!("sibling:{HOSTILE}"), 1.0)],
        kinds: vec![Some(Context::Sibling { comm: HOSTILE.into() })],
    };
    run.diagnosis.more = Some(More { cores: [vec![context], vec![]], ..More::default() });
    let mut chance = run.diagnosis.causes[0].clone();
    chance.name = HOSTILE.into();
    run.diagnosis.clusters.push(Cluster {
        rank: 1,
        category: chance.category,
        name: HOSTILE.into(),
        subject: Some(Subject::Task { name: HOSTILE.into() }),
        frames: vec![],
        role: chance.role,
        messages: 1,
        mean_ns: 1,
        example: 0,
    });
    run.diagnosis.not_significant.push(chance);
    run.diagnosis.against = Some(HOSTILE.into());
    run.meta.devices.push(Device { name: HOSTILE.into(), driver: HOSTILE.into(), ..Device::default() });
    let text = page(&run);
    assert!(!text.contains(HOSTILE) && !text.contains("<img src"));
    let d = data(&text);
    assert_eq!(d["meta"]["devices"][0]["name"], HOSTILE);
    assert_eq!(d["chance_titles"][0], HOSTILE);
    assert_eq!(d["contexts"][format!("sibling:{HOSTILE}")], format!("{HOSTILE} (other thread)"));
}

#[test]
fn every_message_round_trips() {
    let run = synthetic::run(3_000);
    let text = page(&run);
    let d = data(&text);
    let expected: Vec<_> = run.lifetimes.messages.iter().map(|m| m.latency(Leg::Receive)).collect();
    assert!(expected.contains(&None), "the made-up run has incomplete messages");
    assert_eq!(latencies(&text), expected);
    assert_eq!(d["messages"]["count"], 3_000);
    let (flows, steps) = (unpacked(&text, "flow"), unpacked(&text, "arrival"));
    let mut at = 0;
    for (i, message) in run.lifetimes.messages.iter().enumerate() {
        let flow = u16::from_le_bytes([flows[2 * i], flows[2 * i + 1]]);
        assert_eq!(u32::from(flow), message.flow);
        at += u64::from(u32::from_le_bytes(steps[4 * i..4 * i + 4].try_into().expect("4 bytes")));
        assert_eq!(run.meta.start_ns + at, message.driver_ns);
    }
    assert_eq!(d["diagnosis"], serde_json::to_value(&run.diagnosis).expect("serialises"));
}

#[test]
fn arrivals_after_a_long_pause_are_kept() {
    let mut run = synthetic::run(1_000);
    for message in &mut run.lifetimes.messages[600..] {
        message.driver_ns += 60_000_000_000;
        message.recv_ns += if message.recv_ns > 0 { 60_000_000_000 } else { 0 };
    }
    let text = page(&run);
    assert_eq!(data(&text)["messages"]["arrival_type"], "f64");
    let last = unpacked(&text, "arrival").chunks(8).last().map(|c| f64::from_le_bytes(c.try_into().expect("8 bytes")));
    let expected = run.lifetimes.messages[999].driver_ns - run.meta.start_ns;
    assert_eq!(last, Some(expected as f64));
}

#[test]
fn latencies_above_four_seconds_are_kept() {
    let mut run = synthetic::run(1_000);
    let slow: &mut Message = &mut run.lifetimes.messages[3];
    slow.recv_ns = slow.driver_ns + 9_000_000_000;
    let text = page(&run);
    assert_eq!(data(&text)["messages"]["latency_type"], "f64");
    assert_eq!(latencies(&text)[3], Some(9_000_000_000));
    assert_eq!(latencies(&text)[500], None);
}

#[test]
fn exactly_the_focus_has_dominant_causes_and_the_slowest_is_nginx() {
    let run = synthetic::run(20_000);
    let text = page(&run);
    let d = data(&text);
    assert_eq!(d["messages"]["against_reference"], true);
    let causes = unpacked(&text, "cause");
    let in_focus = causes.iter().filter(|&&c| c != 255).count() as u64;
    assert_eq!(in_focus, run.diagnosis.focus.messages);
    let slowest = run.paths[0].0 as usize;
    assert_eq!(run.diagnosis.causes[usize::from(causes[slowest])].name, "nginx");
    // No message in focus is faster than one that is not.
    let latency = latencies(&text);
    let least = (0..causes.len()).filter(|&i| causes[i] != 255).filter_map(|i| latency[i]).min();
    let most = (0..causes.len()).filter(|&i| causes[i] == 255).filter_map(|i| latency[i]).max();
    assert!(least >= most);
    // Each message in focus has its time by cause: all of its latency, for every owner here counts to a cause.
    let (ids, times) = (unpacked(&text, "focus"), unpacked(&text, "times"));
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("4 bytes"))).collect()
    };
    let (ids, times, width) = (words(&ids), words(&times), number(&d["messages"]["causes"]) as usize);
    assert_eq!((ids.len() as u64, times.len()), (in_focus, ids.len() * width));
    for (id, row) in ids.iter().zip(times.chunks(width)) {
        assert_eq!(Some(row.iter().map(|&ns| u64::from(ns)).sum()), latency[*id as usize]);
    }
}

#[test]
fn a_reference_from_elsewhere_is_not_used() {
    let mut run = synthetic::run(2_000);
    run.diagnosis.reference.mean_ns *= 3;
    assert_eq!(data(&page(&run))["messages"]["against_reference"], false);
}

#[test]
fn the_spans_of_a_timeline_sum_to_the_latency_and_refer_to_what_is_there() {
    let run = synthetic::run(20_000);
    let text = page(&run);
    let timelines = timelines(&text);
    assert_eq!(timelines.len(), run.paths.len());
    let d = data(&text);
    let embedded: Vec<u64> = list(&d["timelines"]["ids"]).iter().flat_map(list).map(number).collect();
    assert_eq!(embedded, run.paths.iter().map(|(id, _)| u64::from(*id)).collect::<Vec<_>>());
    assert_eq!(d["timelines"]["focus"], 1, "the slowest is in focus, the median one is not");
    for ((bundle, t), (id, path)) in timelines.iter().zip(&run.paths) {
        let spans: Vec<i64> = list(&t["spans"]).iter().map(|v| v.as_i64().expect("a number")).collect();
        assert_eq!((spans.len(), spans.len() % 4), (path.len() * 4, 0));
        let length: i64 = spans.chunks(4).map(|s| s[0]).sum();
        assert_eq!(Some(length as u64), run.lifetimes.messages[*id as usize].latency(Leg::Receive));
        assert_eq!(length as u64, number(&t["length"]));
        for (span, on_path) in spans.chunks(4).zip(path) {
            let slot = &bundle["slots"][span[2] as usize];
            let owner = &run.lifetimes.owners[on_path.owner as usize];
            let names: Vec<&str> = list(&bundle["owners"][number(&slot["owner"]) as usize]["names"])
                .iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(names.join("/"), owner.path(&run.lifetimes.symbols));
            assert!(bundle["keys"][number(&slot["key"]) as usize]["category"].is_string());
            assert_eq!(span[1], on_path.cpu.map_or(-1, i64::from));
        }
        let marks: Vec<_> = list(&t["marks"]).iter().map(|s| s[0].as_str().expect("text")).collect();
        assert_eq!((marks[0], marks[marks.len() - 1]), ("driver", "recv"));
    }
}

#[test]
fn an_empty_run_still_makes_a_page() {
    let mut run = synthetic::run(1_000);
    run.lifetimes = Default::default();
    run.paths.clear();
    run.diagnosis.causes.clear();
    run.diagnosis.latency_ns.clear();
    let d = data(&page(&run));
    assert_eq!(d["messages"]["count"], 0);
    assert_eq!(list(&d["timelines"]["ids"]).len(), 0);
}

#[test]
fn two_hundred_thousand_messages_stay_under_3_mb() {
    let text = page(&synthetic::run(200_000));
    assert!(text.len() < 3_000_000, "{} bytes", text.len());
}
