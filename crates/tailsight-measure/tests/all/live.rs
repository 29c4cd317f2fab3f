//! A measurement of a server that runs in this test, over loopback.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tailsight_load::{Plan, Protocol, Rate};
use tailsight_measure::{Error, Event, Local, Question, Verdict, measure};

/// An echo server on threads that end with their connections; its port.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n) = stream.read(&mut buffer) {
                    if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn plan(port: u16) -> Plan {
    let mut plan = Plan::new(format!("127.0.0.1:{port}").parse().unwrap(), Protocol::Echo);
    plan.rate = Rate::Constant(2_000.0);
    plan.connections = 8;
    // What is tested is the loop, not this machine.
    plan.limits.lateness_p99_ns = 1_000_000_000;
    plan
}

/// Whatever the machine does to it, a measurement adds up: rows, counts, steps; and a number is inside its interval.
#[test]
fn a_measurement_adds_up() {
    let mut question = Question::new(plan(echo()));
    question.max_time = Duration::from_secs(6);
    question.targets = vec!["p50".parse().unwrap()];
    let mut load = Local::new(question.prepared_plan());
    let mut ticks = 0;
    let m = measure(&mut load, &question, &AtomicBool::new(false), &mut |event| {
        ticks += usize::from(matches!(event, Event::Tick(_)));
    })
    .unwrap();
    let r = &m.report;
    assert!(ticks > 20 && !r.steps.is_empty() && r.steps.windows(2).all(|w| w[0].at_s <= w[1].at_s));
    assert!(m.rows.is_sorted_by_key(|row| row.sample.intended_ns));
    assert_eq!(r.kept.n, m.rows.len());
    let c = &r.counts;
    assert_eq!(c.sent, c.ok + c.miss + c.error + c.wrong + c.closed + c.garbage + c.lost + c.unanswered);
    assert!(c.sent as usize >= m.rows.len() && c.sent > 2_000);
    assert!(r.client.cpu_ns_per_request.is_some_and(|ns| ns > 100.0));
    if let Verdict::Number { percentiles } = &r.verdict {
        let p = &percentiles[0];
        assert!(p.lower_ns <= p.value_ns && p.value_ns <= p.upper_ns && p.lower_ns > 0.0, "{p:?}");
        assert_eq!(r.response_ns.percentiles["p50"].unwrap().value, p.value_ns);
        assert_eq!(r.response_ns.n, m.rows.iter().filter(|row| row.in_result).count());
    }
}

#[test]
fn an_interrupted_measurement_keeps_its_samples_and_is_no_result() {
    let question = Question::new(plan(echo()));
    let stop = AtomicBool::new(false);
    let mut load = Local::new(question.prepared_plan());
    let m = measure(&mut load, &question, &stop, &mut |event| {
        if let Event::Tick(tick) = event
            && tick.samples.0 > 50
        {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    })
    .unwrap();
    let Verdict::NotAvailable { failed, reason, .. } = &m.report.verdict else { panic!("{:?}", m.report.verdict) };
    assert_eq!(failed.id.name(), "interrupted");
    assert!(reason.contains("interrupted"), "{reason}");
    assert!(m.rows.len() > 50 && m.report.kept.max.is_some());
    assert_eq!(m.report.response_ns.n, 0, "nothing is claimed of them");
}

#[test]
fn what_cannot_start_is_an_error() {
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let question = Question::new(plan(refused));
    let error = measure(&mut Local::new(question.prepared_plan()), &question, &AtomicBool::new(false), &mut |_| {})
        .unwrap_err();
    assert!(matches!(error, Error::Load(_)) && tailsight_units::chain(&error).contains("refused"), "{error}");
}
