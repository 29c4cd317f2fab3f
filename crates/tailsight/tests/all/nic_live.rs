//! Time stamps of NICs where no NIC stamps: nothing is said of clocks, and the way that transmit stamps take is tried with the
//! driver's in the place of the NIC's.

use std::path::Path;
use std::time::Duration;

use tailsight_record::{Options, Selector, TxStamps};
use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::server::{MemcachedOpts, Server};
use tailsight_trace::event::Kind;
use tailsight_trace::fields::{Packet, SentStamp};
use tailsight_trace::{FlowKey, Run};

use crate::support::{Live, address, json, run, shown};

const PORT: u16 = 21219;

fn server(live: &Live) -> Server {
    Server::memcached(&live.pair.server, MemcachedOpts { port: PORT, threads: 2, ..Default::default() }).unwrap()
}

/// Every run had an error of clocks that no lifetime used. A veth has no clock of its own.
#[test]
fn a_link_without_time_stamps_has_a_reason_and_no_clock_error() {
    let Some(live) = Live::new("a_link_without_time_stamps_has_a_reason_and_no_clock_error") else { return };
    let server = server(&live);
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(2_000.0);
    let out = live.path("run");
    let pid = server.pid().to_string();
    let args = ["record", "-p", &pid, "-d", "700ms", "-o", &out, "--nic-tx-stamps"];
    let (output, _) = live.under_load(&[load], || run(&args));
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let recorded = Run::open(Path::new(&out)).unwrap();
    let nic = &recorded.meta.nic;
    assert_eq!((recorded.meta.clock_error_ns, nic.received, nic.sent, nic.devices.len()), (0, 0, 0, 0));
    assert!(nic.why.as_ref().unwrap().contains("no network device"), "{nic:?}");
    // Asked for and not to be had: said, and the recording is what it would be without.
    let why = nic.tx_why.as_ref().unwrap();
    assert!(recorded.meta.warnings.iter().any(|w| w.contains("no transmit time stamps") && w.contains(why)), "{nic:?}");
    assert!(!Path::new(&out).join("nic_clocks.arrow").exists() && recorded.partial.is_empty());
    let output = run(&["diagnose", &out, "--json", "--focus", "p90..p100"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let d = json(&output);
    assert_eq!(d["loss"]["clock_error_ns"], 0);
    assert!(d["messages"]["complete"].as_u64().unwrap() > 500, "{}", shown(&output));
    assert!(!d["notes"].to_string().contains("NIC"), "{}", d["notes"]);
}

/// The kernel's callbacks, with the driver's stamps, which are CLOCK_MONOTONIC here: connections that are there and one that
/// comes later have the flag, and each reply's stamp follows its hand-over to the driver.
#[test]
fn transmit_stamps_come_by_the_kernel_s_callbacks() {
    let test = "transmit_stamps_come_by_the_kernel_s_callbacks";
    // What the stamps need is asked before anything begins: after that, no stamps are a failure.
    if let Some(why) = tailsight_record::probes::nic_tx::missing().or_else(tailsight_testing::lacks_control_groups) {
        return tailsight_testing::skip(why);
    }
    let Some(live) = Live::new(test) else { return };
    let server = server(&live);
    let load = Workload::new(Proto::Memcached, address(false, PORT)).rate(2_000.0);
    let out = live.dir.path().join("run");
    let options = Options {
        selector: Selector::Pid(server.pid()),
        duration: Some(Duration::from_millis(900)),
        until: None,
        out: out.clone(),
        shared: false,
        buffer_bytes: Some(64 << 20),
        hooks: Default::default(),
        payload: None,
        tx_stamps: TxStamps::Driver,
        traces: tailsight_record::Traces::default(),
        watches: false,
        samples: tailsight_record::SampleRate::Usual,
        tasks: false,
        confine: false,
        own_session: false,
        version: "test".into(),
    };
    let record =
        || tailsight_record::record(&options, &tailsight_record::Stop::default(), &mut |_| {}).expect("a recording");
    let (outcome, _) = live.under_load(&[load], record);
    assert_eq!(
        (outcome.meta.nic.tx_why.as_ref(), outcome.error.is_none()),
        (None, true),
        "{:?}",
        outcome.meta.warnings
    );
    let events = Run::open(&out).unwrap().events().unwrap();
    let events_of_all_cores = || events.iter().flat_map(|core| &core.events);
    // By flow and end of the bytes: when the driver had them, and when they were stamped.
    let handed: std::collections::HashMap<_, u64> = events_of_all_cores()
        .filter(|e| e.kind() == Some(Kind::TxDriver))
        .map(|e| (Packet::of(e), e))
        .map(|(packet, e)| ((FlowKey::of(e), packet.sequence.wrapping_add(packet.bytes)), e.ts))
        .collect();
    let stamps: Vec<_> = events_of_all_cores().filter(|e| e.kind() == Some(Kind::NicTx)).collect();
    assert!(
        stamps.len() > 400 && stamps.len() as u64 == outcome.meta.nic.sent,
        "{} stamps, {} counted",
        stamps.len(),
        outcome.meta.nic.sent
    );
    let mut matched = 0;
    for stamp in &stamps {
        let SentStamp { end, nic_ns, .. } = SentStamp::of(stamp);
        if let Some(&driver) = handed.get(&(FlowKey::of(stamp), end)) {
            matched += 1;
            // Inside the driver, right after it got the packet, and before the event was written.
            assert!(nic_ns >= driver && nic_ns <= stamp.ts, "{stamp:?} {driver}");
        }
    }
    assert!(matched * 100 >= stamps.len() * 98, "{matched} of {} stamps are of known replies", stamps.len());
    assert!(handed.len() * 9 <= stamps.len() * 10, "{} replies, {} stamps", handed.len(), stamps.len());
}
