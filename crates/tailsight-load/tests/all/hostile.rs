//! A server that misbehaves: each way has its own outcome, samples are kept, and nothing hangs.

use std::io::{Read, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tailsight_load::{Complaint, LoadError, Plan, Protocol, Rate, Sample, Status, run};

use crate::support::{alone, echo, plain, plan, run_checked, scripted};

#[test]
fn replies_split_byte_by_byte_are_whole_replies() {
    let _alone = alone();
    let address = scripted(|_, socket| {
        echo(socket, |bytes, socket| bytes.chunks(1).try_for_each(|byte| socket.write_all(byte)).ok());
    });
    let mut plan = plan(address, Protocol::Echo);
    plan.rate = "200".parse().unwrap();
    let outcome = run_checked(plan);
    assert_eq!(outcome.counts.ok, outcome.counts.intended, "{:?}", outcome.counts);
}

#[test]
fn many_replies_in_one_read_are_a_sample_each() {
    let _alone = alone();
    // Answers in lumps of 20 ms: dozens of requests of a connection at once.
    let address = scripted(|_, socket| {
        echo(socket, |bytes, socket| {
            plain(bytes, socket)?;
            std::thread::sleep(Duration::from_millis(20));
            Some(())
        });
    });
    let outcome = run_checked(plan(address, Protocol::Echo));
    assert_eq!(outcome.counts.ok, outcome.counts.intended, "{:?}", outcome.counts);
    let shared = outcome.samples.iter().filter(|s| s.flags & tailsight_load::Sample::SHARED_STAMP != 0).count();
    assert!(shared > outcome.samples.len() / 2, "{shared} of {}", outcome.samples.len());
    for s in &outcome.samples {
        let is_shared = s.flags & tailsight_load::Sample::SHARED_STAMP != 0;
        // Not before it was asked for.
        assert!((is_shared || s.shared_ns == 0) && u64::from(s.shared_ns) <= s.received_ns - s.called_ns, "{s:?}");
    }
}

#[test]
fn a_server_that_closes_is_connected_anew_and_the_rest_is_counted() {
    let _alone = alone();
    let address = scripted(|_, socket| {
        let mut left = 50;
        echo(socket, move |bytes, socket| {
            left -= 1;
            if left == 0 { None } else { plain(bytes, socket) }
        });
    });
    let outcome = run_checked(plan(address, Protocol::Echo));
    let counts = outcome.counts;
    assert!(counts.closed > 0 && counts.reconnects > 0, "{counts:?}");
    // On a busy machine several requests wait on the connection that is closed.
    assert!(counts.ok > 3 * counts.closed, "{counts:?}");
    assert!(outcome.complaints.iter().any(|c| matches!(c, Complaint::Failed { .. })), "{:?}", outcome.complaints);
    let kept = outcome.samples.iter().filter(|s| s.status() == Status::Closed).count() as u64;
    assert!(kept >= counts.closed, "{kept} {counts:?}");
}

/// Regression: "the longest waited 0 ns", each time: a request was not marked any more when it was sent at last.
#[test]
fn what_waits_for_a_connection_says_how_long_and_is_not_the_clients_lateness() {
    let _alone = alone();
    let address = scripted(|_, socket| {
        let mut pauses = 0;
        echo(socket, move |bytes, socket| {
            pauses += 1;
            if pauses == 20 {
                std::thread::sleep(Duration::from_millis(150));
            }
            plain(bytes, socket)
        });
    });
    let plan = Plan { outstanding: 1, connections: 1, ..plan(address, Protocol::Echo) };
    let outcome = run_checked(plan);
    let longest_ns = outcome.complaints.iter().find_map(|complaint| match complaint {
        Complaint::Blocked { longest_ns, .. } => Some(*longest_ns),
        _ => None,
    });
    assert!(longest_ns.is_some_and(|ns| ns > 100_000_000), "{:?}", outcome.complaints);
    let held = outcome.samples.iter().filter(|s| s.flags & Sample::BLOCKED != 0);
    // 2,000 requests/s for 150 ms.
    assert!(held.count() > 200, "{:?}", outcome.counts);
}

#[test]
fn a_server_that_stops_answering_ends_in_unanswered_requests() {
    let _alone = alone();
    let address = scripted(|_, socket| {
        let mut left = 20;
        echo(socket, move |bytes, socket| {
            left -= 1;
            if left > 0 {
                return plain(bytes, socket);
            }
            // Stalls for longer than the test lasts; the thread ends with the process.
            std::thread::sleep(Duration::from_secs(60));
            None
        });
    });
    let outcome = run_checked(Plan { outstanding: 8, ..plan(address, Protocol::Echo) });
    let counts = outcome.counts;
    assert_eq!(counts.unanswered, 4 * 8, "{counts:?}");
    assert!(counts.unsent > 0 && counts.blocked > 0, "{counts:?}");
    assert!(!outcome.is_sound(), "{:?}", outcome.complaints);
    assert!(outcome.complaints.iter().any(|c| matches!(c, Complaint::Blocked { .. })), "{:?}", outcome.complaints);
    assert!(outcome.complaints.iter().any(|c| matches!(c, Complaint::RateMissed { .. })), "{:?}", outcome.complaints);
}

/// Regression: 1e9 requests/s for 6 s ended after 98 s, for what was not sent was drawn one by one and counted.
#[test]
fn a_rate_that_nobody_can_send_is_counted_by_the_rate() {
    let _alone = alone();
    let address = scripted(|_, socket| echo(socket, plain));
    let outcome = run_checked(Plan { rate: Rate::Constant(1e12), ..plan(address, Protocol::Echo) });
    // Half a second of it; what is due is drawn, 256 arrivals ahead.
    let due = outcome.counts.intended as f64;
    assert!((due / 5e11 - 1.0).abs() < 0.02, "{:?}", outcome.counts);
}

#[test]
fn garbage_from_the_start_is_refused_before_the_load() {
    let _alone = alone();
    let address = scripted(|_, socket| echo(socket, |_, socket| socket.write_all(b"\0\xff nonsense \r\n\r\n").ok()));
    for protocol in
        [Protocol::MemcachedText, Protocol::MemcachedBinary, Protocol::Resp, Protocol::Http1, Protocol::Http2]
    {
        let plan = Plan { patience_ns: 300_000_000, ..plan(address, protocol) };
        let error = run(plan, &AtomicBool::new(false), |_| {}).unwrap_err();
        assert!(matches!(error, LoadError::Setup { .. }), "{protocol}: {error}");
    }
}

#[test]
fn garbage_in_the_middle_and_half_an_answer_are_counted() {
    let _alone = alone();
    let address = scripted(|_, socket| {
        let mut count = 0;
        echo(socket, move |bytes, socket| {
            count += 1;
            let requests = bytes.iter().filter(|b| **b == b'\n').count();
            if count == 30 {
                let _ = socket.write_all(b"VALUE but not really\r\n");
                return None;
            }
            if count % 7 == 0 {
                return socket.write_all(&b"SERVER_ERROR out of tea\r\n".repeat(requests)).ok();
            }
            socket.write_all(&b"END\r\n".repeat(requests)).ok()
        });
    });
    let mut plan = plan(address, Protocol::MemcachedText);
    plan.workload.preload = false;
    let outcome = run_checked(plan);
    let counts = outcome.counts;
    assert!(counts.garbage > 0 && counts.error > 0 && counts.miss > 0, "{counts:?}");

    let half = scripted(|_, socket| {
        let mut count = 0;
        echo(socket, move |bytes, socket| {
            count += 1;
            if count == 30 {
                let _ = socket.write_all(&bytes[..bytes.len() / 2]);
                return None;
            }
            plain(bytes, socket)
        });
    });
    let outcome = run_checked(crate::support::plan(half, Protocol::Echo));
    assert!(outcome.counts.closed > 0 && outcome.counts.ok > 0, "{:?}", outcome.counts);
    let reasons: String = outcome.complaints.iter().map(ToString::to_string).collect();
    assert!(reasons.contains("ended"), "{reasons}");
}

#[test]
fn wrong_replies_are_found() {
    let _alone = alone();
    let address = scripted(|_, socket| {
        let mut count = 0_u32;
        echo(socket, move |bytes, socket| {
            count += 1;
            let mut bytes = bytes.to_vec();
            if count.is_multiple_of(5) {
                bytes[3] ^= 1;
            }
            plain(&bytes, socket)
        });
    });
    let outcome = run_checked(plan(address, Protocol::Echo));
    assert!(outcome.counts.wrong > 0 && outcome.counts.ok > outcome.counts.wrong, "{:?}", outcome.counts);
}

#[test]
fn a_server_that_goes_away_ends_the_load_with_its_samples() {
    let _alone = alone();
    let address = scripted(|number, mut socket| {
        // The first four connections serve a while; later ones are closed at once.
        if number > 4 {
            return;
        }
        let mut left = 30;
        let mut buffer = [0; 65_536];
        while let Ok(read @ 1..) = socket.read(&mut buffer) {
            left -= 1;
            if left == 0 || socket.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
    });
    let mut plan = plan(address, Protocol::Echo);
    plan.duration_ns = Some(20_000_000_000);
    let outcome = run_checked(plan);
    assert!(outcome.complaints.iter().any(|c| matches!(c, Complaint::ServerGone { .. })), "{:?}", outcome.complaints);
    assert!(outcome.counts.ok > 20 && outcome.duration_ns() < 15_000_000_000, "{:?}", outcome.counts);
}

#[test]
fn datagrams_that_vanish_are_lost_after_a_time() {
    let _alone = alone();
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut buffer, mut count) = ([0; 2048], 0_u32);
        while let Ok((read, from)) = server.recv_from(&mut buffer) {
            count += 1;
            // One in ten is dropped, once the client has set up.
            if count < 20 || !count.is_multiple_of(10) {
                let _ = server.send_to(&buffer[..read], from);
            }
        }
    });
    let mut plan = plan(format!("udp://{address}"), Protocol::Echo);
    plan.lost_after_ns = 50_000_000;
    let outcome = run_checked(plan);
    let counts = outcome.counts;
    assert!(counts.lost > 50 && counts.lost < 150 && counts.ok > 700, "{counts:?}");
}

/// Regression: connecting to a Unix socket fails at once, and was tried again at once by the function that was told of it: the stack
/// ran out.
#[test]
fn a_unix_server_that_goes_away_ends_the_load() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let gone = path.clone();
    std::thread::spawn(move || {
        let sockets: Vec<_> = (0..5).filter_map(|_| listener.accept().ok()).collect();
        let threads: Vec<_> = sockets
            .into_iter()
            .map(|(mut socket, _)| {
                std::thread::spawn(move || {
                    let (mut buffer, mut left) = ([0; 65_536], 30);
                    while let Ok(read @ 1..) = socket.read(&mut buffer) {
                        left -= 1;
                        if left == 0 || socket.write_all(&buffer[..read]).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        std::fs::remove_file(gone).unwrap();
        drop(listener);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let mut plan = plan(format!("unix:{}", path.display()), Protocol::Echo);
    plan.duration_ns = Some(20_000_000_000);
    let outcome = run_checked(plan);
    assert!(outcome.complaints.iter().any(|c| matches!(c, Complaint::ServerGone { .. })), "{:?}", outcome.complaints);
    assert!(outcome.duration_ns() < 15_000_000_000, "{:?}", outcome.counts);
}

/// Regression: an instant far ahead was slept for whatever happened, and a closed loop asked once more after it.
#[test]
fn a_load_that_is_let_go_before_it_begins_sends_nothing() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let _alone = alone();
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let address = scripted(move |_, socket| {
        let count = count.clone();
        echo(socket, move |bytes, socket| {
            count.fetch_add(1, Ordering::Relaxed);
            plain(bytes, socket)
        });
    });
    let mut plan = plan(address, Protocol::Echo);
    plan.arrivals = "closed:1".parse().unwrap();
    let cancel = tailsight_load::Cancel::default();
    let prepared = tailsight_load::Driver::prepare_within(plan, &cancel).unwrap();
    let before = asked.load(Ordering::Relaxed);
    let began = std::time::Instant::now();
    let driver = prepared.go(tailsight_load::now_ns() + 9_000_000_000);
    std::thread::sleep(Duration::from_millis(50));
    cancel.abandon.store(true, Ordering::Relaxed);
    drop(driver);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(asked.load(Ordering::Relaxed), before);
}

/// A preparation ends by its time and by its flag, whatever step it is at; nothing that comes renews either.
#[test]
fn a_preparation_ends_when_it_is_told_to() {
    let _alone = alone();
    // Half an answer, and then a byte now and then.
    let address = scripted(|_, socket| {
        echo(socket, |_, socket| {
            socket.write_all(b"$5000000\r\n").ok()?;
            loop {
                socket.write_all(b"x").ok()?;
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    });
    let began = std::time::Instant::now();
    let short = Plan { patience_ns: 300_000_000, ..plan(address, Protocol::Resp) };
    let error = run(short, &AtomicBool::new(false), |_| {}).unwrap_err();
    assert!(
        error.to_string().contains("no reply in 0.3 s") || error.to_string().contains("no reply in 0.4 s"),
        "{error}"
    );
    let long = Plan { patience_ns: 60_000_000_000, ..plan(address, Protocol::Resp) };
    let until_ns = tailsight_load::now_ns() + 200_000_000;
    let cancel = tailsight_load::Cancel { until_ns, ..tailsight_load::Cancel::default() };
    let error = tailsight_load::Driver::prepare_within(long.clone(), &cancel).unwrap_err();
    assert!(matches!(&error, LoadError::Ended { reason, .. } if reason.contains("time allowed")), "{error}");
    let stop = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        run(long, &stop, |_| {}).unwrap_err()
    });
    assert!(matches!(&error, LoadError::Ended { reason, .. } if reason.contains("interrupted")), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
