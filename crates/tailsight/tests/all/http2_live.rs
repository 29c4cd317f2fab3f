//! Live recordings of HTTP/2 in the clear (`record --protocol http2`) against what the client says of each of its requests: how many there
//! were of each kind, and how long each took, on one connection whose hundred streams are answered out of order.

use std::time::Duration;

use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Leg, Message};

use crate::support::{
    Live, Program, build_go, json, make_certificate, run, shown, stderr, wait_until_it_listens, with_payload,
};

const PORT: u16 = 21100;
/// Requests that are under way at a time, and how many of them are slow.
const STREAMS: usize = 100;
const SLOW: usize = 10;
/// How long the server waits before it answers a slow one.
const WAITS_NS: u64 = 30_000_000;

/// `/slow` is answered after 30 ms, all else at once. Its arguments: the port, and with TLS the files of its key and its certificate.
const SERVER: &str = "
const [port, key, cert] = process.argv.slice(1);
const read = require('fs').readFileSync;
const settings = { maxConcurrentStreams: 200 };
const http2 = require('http2');
const server = key ? http2.createSecureServer({ settings, key: read(key), cert: read(cert) }) : http2.createServer({ settings });
server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    stream.resume();
    const answer = () => { stream.respond({ ':status': 200 }); stream.end('done'); };
    stream.on('end', () => headers[':path'] == '/slow' ? setTimeout(answer, 30) : answer());
});
server.listen(Number(port), '10.77.0.1');
";

/// A hundred requests at a time on one connection, every tenth a slow one with a body of ten bytes (more than 3,072 bytes in
/// a segment would not be kept); when all are answered, 20 ms of pause. Writes a line
/// for each: the round, its path, when it was sent and answered (CLOCK_MONOTONIC, ns).
const CLIENT: &str = "
const client = require('http2').connect(process.argv[1], { rejectUnauthorized: false });
client.on('error', () => process.exit(1));
const log = require('fs').openSync(process.argv[2], 'w');
let number = 0;
function round() {
    const lines = [];
    let left = 100;
    for (let i = 0; i < 100; i++) {
        const path = i % 10 == 3 ? '/slow' : '/fast';
        const sent = process.hrtime.bigint();
        const request = client.request({ ':path': path, ':method': path == '/slow' ? 'POST' : 'GET' }, { endStream: path != '/slow' });
        if (path == '/slow') request.end('ten bytes.');
        request.resume();
        request.on('end', () => {
            lines.push([number, path, sent, process.hrtime.bigint()].join(' '));
            if (--left == 0) {
                require('fs').writeSync(log, lines.join('\\n') + '\\n');
                number++;
                setTimeout(round, 20);
            }
        });
    }
}
round();
";

/// A request as the client saw it.
struct Asked {
    round: u64,
    slow: bool,
    sent_ns: u64,
    answered_ns: u64,
}

fn asked(line: &str) -> Asked {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse().expect("a number");
    Asked { round: number(0), slow: words[1] == "/slow", sent_ns: number(2), answered_ns: number(3) }
}

/// The value at a share of a sorted list.
fn quantile(sorted: &[u64], share: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

#[test]
fn every_stream_is_a_message_with_its_own_reply() {
    streams_have_their_own_replies("every_stream_is_a_message_with_its_own_reply", false);
}

/// The same inside of TLS: Node has the library in its own program and works on buffers in memory.
#[test]
fn every_stream_inside_of_tls_is_a_message_with_its_own_reply() {
    streams_have_their_own_replies("every_stream_inside_of_tls_is_a_message_with_its_own_reply", true);
}

/// The same of Go, where each stream has a goroutine, and one reads them all.
#[test]
fn every_stream_of_go_inside_of_tls_is_a_message_with_its_own_reply() {
    let test = "every_stream_of_go_inside_of_tls_is_a_message_with_its_own_reply";
    if let Some(reason) = tailsight_testing::lacks_program("go") {
        return tailsight_testing::skip_as(test, reason);
    }
    let start = |live: &Live, port: &str, key: &str, certificate: &str| {
        std::fs::write(live.path("server.go"), GO).unwrap();
        build_go(live, "server.go", "go-http2");
        Program::start(&live.pair.server, &live.path("go-http2"), &[port, key, certificate])
    };
    streams_of_server_have_their_own_replies(test, true, start);
}

/// As [`SERVER`], with TLS.
const GO: &str = r#"package main

import (
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			time.Sleep(30 * time.Millisecond)
		}
		io.WriteString(w, "done")
	})
	panic(http.ListenAndServeTLS("10.77.0.1:"+os.Args[1], os.Args[3], os.Args[2], nil))
}
"#;

fn streams_have_their_own_replies(test: &str, tls: bool) {
    let start = |live: &Live, port: &str, key: &str, certificate: &str| {
        let files = if tls { &[key, certificate][..] } else { &[] };
        Program::start(&live.pair.server, "node", &[&["-e", SERVER, port], files].concat())
    };
    streams_of_server_have_their_own_replies(test, tls, start);
}

/// `start`: starts the server, with its port, and the files of its key and its certificate.
fn streams_of_server_have_their_own_replies(test: &str, tls: bool, start: impl Fn(&Live, &str, &str, &str) -> Program) {
    if let Some(reason) = tailsight_testing::lacks_program("node") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let (key, certificate) = (live.path("key.pem"), live.path("certificate.pem"));
    if tls {
        make_certificate(&key, &certificate);
    }
    let server = start(&live, &PORT.to_string(), &key, &certificate);
    wait_until_it_listens(&live, &[PORT]);
    // Its connection is there before the recording, so that nothing but the streams' ids can pair.
    let log = live.path("log");
    let address = format!("{}://10.77.0.1:{PORT}", if tls { "https" } else { "http" });
    let client = Program::start(&live.pair.client, "node", &["-e", CLIENT, &address, &log]);
    std::thread::sleep(Duration::from_millis(500));
    let (pid, out) = (server.pid(), live.path("run"));
    let args = ["record", "-p", &pid, "-d", "3s", "--sample", "off", "--protocol", "http2", "-o", &out];
    let output = run(&args);
    drop(client);
    let Some(mut recording) = with_payload(test, &output, &out) else { return };
    let (start_ns, end_ns) = (recording.meta.start_ns, recording.meta.end_ns);
    let analysis = Analysis::of(&mut recording).unwrap();
    let lifetimes = &analysis.lifetimes;
    println!("{:?} {:?}", lifetimes.framing, lifetimes.classes);

    // Whole rounds within the recording: between two of them there is nothing under way.
    let requests: Vec<Asked> = std::fs::read_to_string(&log).unwrap().lines().map(asked).collect();
    let rounds = requests.chunk_by(|a, b| a.round == b.round);
    let (mut rounds_compared, mut overtaken) = (0, 0);
    let (mut ours_ns, mut theirs_ns) = ([vec![], vec![]], [vec![], vec![]]);
    for round in rounds.filter(|round| round.len() == STREAMS) {
        let from_ns = round.iter().map(|request| request.sent_ns).min().unwrap();
        let to_ns = round.iter().map(|request| request.answered_ns).max().unwrap();
        if from_ns < start_ns + 100_000_000 || to_ns > end_ns {
            continue;
        }
        rounds_compared += 1;
        let messages: Vec<_> = lifetimes.messages.iter().filter(|m| (from_ns..to_ns).contains(&m.driver_ns)).collect();
        assert_eq!(messages.len(), STREAMS, "each request is one message: {:?}", lifetimes.framing);
        let paired =
            |m: &Message| m.flags & flags::PAIRED_BY_ID != 0 && m.send_ns >= m.recv_ns && m.xmit_ns >= m.send_ns;
        assert!(messages.iter().all(|m| paired(m)), "each has its own reply: {:?}", lifetimes.framing);
        // This client's library adds no path to the table, so that classes are known from the middle of the connection on.
        let (slow, fast): (Vec<&Message>, Vec<&Message>) =
            messages.into_iter().partition(|m| lifetimes.class(m).is_some_and(|c| c.name.starts_with("POST /slow")));
        assert_eq!((slow.len(), fast.len()), (SLOW, STREAMS - SLOW));
        for message in &slow {
            let (from, to) = message.ends(Leg::Service).expect("a service leg");
            assert!(to - from + 1_000_000 >= WAITS_NS, "{} ns of service of a slow request", to - from);
        }
        // A fast one is not given the reply of a slow one: all of them are answered before the first slow one can be.
        let first_slow_ns = slow.iter().map(|m| m.send_ns).min().unwrap();
        overtaken +=
            fast.iter().filter(|m| slow.iter().any(|s| s.recv_ns <= m.recv_ns && s.send_ns > m.send_ns)).count();
        let late = fast.iter().filter(|m| m.send_ns > first_slow_ns).count();
        let client_late = round.iter().filter(|r| !r.slow && r.answered_ns > first_slow_ns).count();
        assert!(late <= client_late, "{late} fast replies after the first slow one, the client saw {client_late}");
        for (at, messages) in [slow, fast].iter().enumerate() {
            ours_ns[at].extend(messages.iter().map(|m| m.xmit_ns - m.driver_ns));
            theirs_ns[at].extend(round.iter().filter(|r| r.slow == (at == 0)).map(|r| r.answered_ns - r.sent_ns));
        }
    }
    assert!(rounds_compared >= 5, "{rounds_compared} rounds");
    assert!(overtaken > rounds_compared * 10, "{overtaken} replies overtook a slow one");
    for (at, class) in ["slow", "fast"].into_iter().enumerate() {
        let (ours, theirs) = (&mut ours_ns[at], &mut theirs_ns[at]);
        ours.sort_unstable();
        theirs.sort_unstable();
        for share in [0.5, 0.9, 0.99] {
            let (ours, theirs) = (quantile(ours, share), quantile(theirs, share));
            println!("{class} p{}: {} us here, {} us at the client", share * 100.0, ours / 1_000, theirs / 1_000);
            // What the client's own loop adds comes on top; nothing is longer here than there.
            assert!(ours <= theirs, "{class} p{}: {ours} ns here, {theirs} ns at the client", share * 100.0);
        }
    }
    println!("{} of {} requests matched and paired", rounds_compared * STREAMS, rounds_compared * STREAMS);

    let output = run(&["diagnose", &out, "--json"]);
    let d = json(&output);
    assert!(d["multiplexed"].is_null(), "{}", d["multiplexed"]);
    assert_eq!(d["leg"], "total", "{}", shown(&output));
    let notes = d["notes"].to_string();
    assert!(!notes.contains("HTTP/2"), "nothing has to be said of segments: {notes}");
}

/// A server of another protocol is refused, as with the others.
#[test]
fn http2_is_refused_where_the_server_speaks_http1() {
    let test = "http2_is_refused_where_the_server_speaks_http1";
    use tailsight_testbed::load::{Proto, Workload};
    use tailsight_testbed::server::{NginxOpts, Server};
    let Some(live) = Live::new(test) else { return };
    let opts = NginxOpts { port: PORT, workers: 1, ..Default::default() };
    let server = Server::nginx(&live.pair.server, opts).unwrap();
    let (pid, out) = (server.pid().to_string(), live.path("run"));
    let load = Workload::new(Proto::Http1, crate::support::address(false, PORT)).rate(1_000.0);
    let args = ["record", "-p", &pid, "-d", "1s", "--protocol", "http2", "-o", &out];
    let (output, _) = live.under_load(&[load], || run(&args));
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(stderr(&output).contains("http2"), "{}", shown(&output));
}
