//! The page: self-contained, safe against hostile names, and with all of its data in it.

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

/// The text of the data element, as a browser cuts it out: up to the first `</script`.
fn embedded(page: &str) -> &str {
    let start = r#"<script type="application/json" id="data">"#;
    let data = page.split_once(start).expect("a data element").1;
    data.split_once("</script").expect("its end").0
}

fn data(page: &str) -> Value {
    serde_json::from_str(embedded(page)).expect("whole JSON up to the end of its element")
}

fn decode(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other} is not base64"),
    };
    let mut out = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for c in text.bytes().filter(|&c| c != b'=') {
        word = word << 6 | u32::from(digit(c));
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
        }
    }
    out
}

fn latencies(columns: &Value) -> Vec<Option<u64>> {
    let bytes = decode(columns["latency"].as_str().expect("text"));
    match columns["latency_type"].as_str().expect("text") {
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

#[test]
fn it_loads_nothing() {
    let text = page(&synthetic::run(2_000));
    assert!(!text.contains("http://") && !text.contains("https://"));
    for load in
        ["src=\"", "@import", "url(", "import(", "fetch(", "XMLHttpRequest", "WebSocket", "<link rel=\"stylesheet"]
    {
        assert!(!text.contains(load), "the page contains {load}");
    }
    assert!(text.contains("default-src 'none'"));
    // The one href that is not an anchor is the empty icon.
    for link in text.split("href=\"").skip(1) {
        assert!(link.starts_with('#') || link.starts_with("data:,"), "{}", &link[..20]);
    }
    assert!(!text.contains("{{") && !text.contains("}}}}"), "a placeholder is left");
}

#[test]
fn a_hostile_task_name_is_only_a_name() {
    let run = synthetic::run(20_000);
    let text = page(&run);
    assert!(!text.contains(HOSTILE) && !text.contains("<img"));
    // Exactly the two script elements that the template has, and both end.
    assert_eq!(text.matches("<script").count(), 2);
    assert_eq!(text.matches("</script").count(), 2);
    assert!(!embedded(&text).contains('<'));
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
    assert!(!text.contains(HOSTILE) && !text.contains("<img") && !embedded(&text).contains('<'));
    let d = data(&text);
    assert_eq!(d["meta"]["devices"][0]["name"], HOSTILE);
    assert_eq!(d["chance_titles"][0], HOSTILE);
    assert_eq!(d["contexts"][format!("sibling:{HOSTILE}")], format!("{HOSTILE} (other thread)"));
}

#[test]
fn every_message_round_trips() {
    let run = synthetic::run(3_000);
    let d = data(&page(&run));
    let columns = &d["messages"];
    let expected: Vec<_> = run.lifetimes.messages.iter().map(|m| m.latency(Leg::Receive)).collect();
    assert!(expected.contains(&None), "the made-up run has incomplete messages");
    assert_eq!(latencies(columns), expected);
    assert_eq!(columns["count"], 3_000);
    let flows = decode(columns["flow"].as_str().expect("text"));
    for (i, message) in run.lifetimes.messages.iter().enumerate() {
        let flow = u16::from_le_bytes([flows[2 * i], flows[2 * i + 1]]);
        assert_eq!(u32::from(flow), message.flow);
    }
    assert_eq!(d["diagnosis"], serde_json::to_value(&run.diagnosis).expect("serialises"));
}

#[test]
fn latencies_above_four_seconds_are_kept() {
    let mut run = synthetic::run(1_000);
    let slow: &mut Message = &mut run.lifetimes.messages[3];
    slow.recv_ns = slow.driver_ns + 9_000_000_000;
    let columns = &data(&page(&run))["messages"];
    assert_eq!(columns["latency_type"], "f64");
    assert_eq!(latencies(columns)[3], Some(9_000_000_000));
    assert_eq!(latencies(columns)[500], None);
}

#[test]
fn exactly_the_focus_has_dominant_causes_and_the_slowest_is_nginx() {
    let run = synthetic::run(20_000);
    let d = data(&page(&run));
    assert_eq!(d["messages"]["against_reference"], true);
    let causes = decode(d["messages"]["cause"].as_str().expect("text"));
    let in_focus = causes.iter().filter(|&&c| c != 255).count() as u64;
    assert_eq!(in_focus, run.diagnosis.focus.messages);
    let slowest = run.paths[0].0 as usize;
    assert_eq!(run.diagnosis.causes[usize::from(causes[slowest])].name, "nginx");
    // No message in focus is faster than one that is not.
    let latency = latencies(&d["messages"]);
    let least = (0..causes.len()).filter(|&i| causes[i] != 255).filter_map(|i| latency[i]).min();
    let most = (0..causes.len()).filter(|&i| causes[i] == 255).filter_map(|i| latency[i]).max();
    assert!(least >= most);
}

#[test]
fn a_reference_from_elsewhere_is_not_used() {
    let mut run = synthetic::run(2_000);
    run.diagnosis.reference.mean_ns *= 3;
    assert_eq!(data(&page(&run))["messages"]["against_reference"], false);
}

#[test]
fn the_boxes_of_a_timeline_sum_to_the_latency_and_nest() {
    let run = synthetic::run(20_000);
    let d = data(&page(&run));
    let timelines = d["timelines"].as_array().expect("timelines");
    assert_eq!(timelines.len(), 2);
    for (t, (id, path)) in timelines.iter().zip(&run.paths) {
        let number = |v: &Value| v.as_u64().expect("a number");
        let boxes = t["boxes"].as_array().expect("boxes");
        let own: u64 = boxes.iter().map(|b| number(&b["own"])).sum();
        assert_eq!(Some(own), run.lifetimes.messages[*id as usize].latency(Leg::Receive));
        assert_eq!(own, number(&t["length"]));
        assert!(boxes.len() >= path.len() / 2);
        for b in boxes {
            let (from, to, level) = (number(&b["from"]), number(&b["to"]), number(&b["level"]));
            assert!(from < to && to <= number(&t["length"]));
            let encloses = |p: &Value| {
                p["lane"] == b["lane"]
                    && number(&p["level"]) + 1 == level
                    && number(&p["from"]) <= from
                    && to <= number(&p["to"])
            };
            assert!(level == 0 || boxes.iter().any(encloses), "a box without the box around it: {b}");
        }
        let stages: Vec<_> =
            t["stages"].as_array().expect("stages").iter().map(|s| s[0].as_str().expect("text")).collect();
        assert_eq!((stages[0], stages[stages.len() - 1]), ("driver", "recv"));
    }
}

#[test]
fn nginx_goes_on_through_its_softirqs() {
    let run = synthetic::run(20_000);
    let d = data(&page(&run));
    let t = &d["timelines"][0];
    let top: Vec<_> = t["boxes"]
        .as_array()
        .expect("boxes")
        .iter()
        .filter(|b| b["level"] == 0)
        .map(|b| t["names"][b["path"].as_u64().expect("an index") as usize].as_str().expect("text"))
        .collect();
    assert_eq!(top.iter().filter(|n| **n == "nginx").count(), 1, "{top:?}");
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
    assert_eq!(d["timelines"].as_array().map(Vec::len), Some(0));
}

#[test]
fn two_hundred_thousand_messages_stay_under_3_mb() {
    let text = page(&synthetic::run(200_000));
    assert!(text.len() < 3_000_000, "{} bytes", text.len());
}
