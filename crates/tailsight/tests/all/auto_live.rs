//! A live recording with `record --protocol auto` of a server that speaks HTTP/1 on one port, HTTP/2 on a second and lines of its own on a
//! third, against what the client says of each of its requests: how many there were of each class, and that each has its own reply.

use std::collections::BTreeMap;
use std::time::Duration;

use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Message};

use crate::support::{Live, Program, json, run, shown, stderr, wait_until_it_listens, with_payload};

/// HTTP/1, HTTP/2, lines.
const PORTS: [u16; 3] = [21120, 21121, 21122];
/// Requests of HTTP in a round.
const ROUND: usize = 25;

/// Answers at once, `/wait` after 10 ms.
const SERVER: &str = "
const [one, two, lines] = process.argv.slice(1, 4).map(Number);
const answer = (path, reply) => path == '/wait' ? setTimeout(reply, 10) : reply();
require('http').createServer({ keepAliveTimeout: 60000 }, (request, response) => {
    request.resume();
    request.on('end', () => answer(request.url, () => response.end('done')));
}).listen(one, '10.77.0.1');
const server = require('http2').createServer();
server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    stream.resume();
    stream.on('end', () => answer(headers[':path'], () => { stream.respond({ ':status': 200 }); stream.end('done'); }));
});
server.listen(two, '10.77.0.1');
require('net').createServer(socket => {
    socket.on('error', () => {});
    socket.on('data', () => socket.write('hello you\\n'));
}).listen(lines, '10.77.0.1');
";

/// Rounds, one after another: of HTTP/1 twelve requests on two connections that stay, of HTTP/2 ten streams at a time on a connection that
/// stays and three on one that is new, and five lines. Then 20 ms of pause. Writes a line for each request of HTTP: the round, its
/// class, when it was sent and answered (CLOCK_MONOTONIC, ns).
const CLIENT: &str = "
const http = require('http'), http2 = require('http2'), net = require('net'), fs = require('fs');
const host = '10.77.0.1', [one, two, lines] = process.argv.slice(1, 4).map(Number);
const log = fs.openSync(process.argv[4], 'w');
const agent = new http.Agent({ keepAlive: true, maxSockets: 2 });
const now = () => process.hrtime.bigint();
const fail = () => process.exit(1);
let number = 0, written = [];
const asked = (name, sent) => written.push([number, sent, now(), name].join(' '));
const old = (method, path) => new Promise(done => {
    const sent = now();
    const request = http.request({ host, port: one, agent, method, path }, response => {
        response.resume();
        response.on('end', () => { asked(method + ' ' + path, sent); done(); });
    });
    request.on('error', fail);
    request.end(method == 'POST' ? 'ten bytes.' : undefined);
});
const stream = (session, method, path) => new Promise(done => {
    const sent = now();
    const request = session.request({ ':path': path, ':method': method }, { endStream: method != 'POST' });
    if (method == 'POST') request.end('ten bytes.');
    request.resume();
    request.on('end', () => { asked(method + ' ' + path, sent); done(); });
});
const open = () => { const session = http2.connect('http://' + host + ':' + two); session.on('error', fail); return session; };
const kept = open();
const socket = net.connect(lines, host);
socket.on('error', fail);
const line = () => new Promise(done => { socket.once('data', done); socket.write('hello me\\n'); });
async function round() {
    const all = [];
    for (let i = 0; i < 12; i++) all.push(i % 3 == 0 ? old('POST', '/order') : old('GET', '/item'));
    for (let i = 0; i < 10; i++) all.push(i % 5 == 0 ? stream(kept, 'POST', '/wait') : stream(kept, 'GET', '/news'));
    const fresh = open();
    for (let i = 0; i < 3; i++) all.push(stream(fresh, 'GET', '/fresh'));
    await Promise.all(all);
    for (let i = 0; i < 5; i++) await line();
    await new Promise(done => fresh.close(done));
    fs.writeSync(log, written.join('\\n') + '\\n');
    written = [];
    number++;
    setTimeout(round, 20);
}
round();
";

/// The server, once it listens.
fn serve(live: &Live) -> Program {
    let [one, two, lines] = PORTS.map(|port| port.to_string());
    let server = Program::start(&live.pair.server, "node", &["-e", SERVER, &one, &two, &lines]);
    wait_until_it_listens(live, &PORTS);
    server
}

/// A request as the client saw it.
struct Asked {
    round: u64,
    sent_ns: u64,
    answered_ns: u64,
    class: String,
}

fn asked(line: &str) -> Asked {
    let mut words = line.splitn(4, ' ');
    let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
    let (round, sent_ns, answered_ns) = (number(), number(), number());
    let name = words.next().expect("a class");
    let body = if name.starts_with("POST") { " v8..16" } else { "" };
    Asked { round, sent_ns, answered_ns, class: format!("{name}{body}") }
}

#[test]
fn each_connection_is_read_as_what_it_speaks() {
    let test = "each_connection_is_read_as_what_it_speaks";
    if let Some(reason) = tailsight_testing::lacks_program("node") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let server = serve(&live);
    let ports = PORTS.map(|port| port.to_string());
    let [one, two, lines] = ports.each_ref().map(String::as_str);
    let log = live.path("log");
    let client = Program::start(&live.pair.client, "node", &["-e", CLIENT, one, two, lines, &log]);
    std::thread::sleep(Duration::from_millis(500));
    let (pid, out) = (server.pid(), live.path("run"));
    let output = run(&["record", "-p", &pid, "-d", "3s", "--sample", "off", "--protocol", "auto", "-o", &out]);
    drop(client);
    let Some(mut recording) = with_payload(test, &output, &out) else { return };
    let said = stderr(&output);
    let said = said.lines().find(|line| line.starts_with("requests: ")).expect("what connections speak");
    println!("{said}");
    let (start_ns, end_ns) = (recording.meta.start_ns, recording.meta.end_ns);
    let analysis = Analysis::of(&mut recording).unwrap();
    let lifetimes = &analysis.lifetimes;
    let framing = lifetimes.framing.as_ref().expect("a protocol");
    println!("{framing:?} {:?}", lifetimes.classes);

    let requests: Vec<Asked> = std::fs::read_to_string(&log).unwrap().lines().map(asked).collect();
    let mut rounds_compared = 0;
    for round in requests.chunk_by(|a, b| a.round == b.round).filter(|round| round.len() == ROUND) {
        let from_ns = round.iter().map(|request| request.sent_ns).min().unwrap();
        let to_ns = round.iter().map(|request| request.answered_ns).max().unwrap();
        if from_ns < start_ns + 100_000_000 || to_ns > end_ns {
            continue;
        }
        rounds_compared += 1;
        let mut by_class: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
        for message in lifetimes.messages.iter().filter(|m| (from_ns..to_ns).contains(&m.driver_ns)) {
            by_class.entry(&lifetimes.class(message).expect("a class").name).or_default().push(message);
        }
        let mut asked_by_class: BTreeMap<&str, usize> = BTreeMap::new();
        round.iter().for_each(|request| *asked_by_class.entry(&request.class).or_default() += 1);
        let counts: BTreeMap<&str, usize> = by_class.iter().map(|(class, m)| (*class, m.len())).collect();
        assert_eq!(counts, asked_by_class, "one message for each request of each class: {framing:?}");
        for (class, messages) in by_class {
            let is_of_http2 = ["/wait", "/news", "/fresh"].iter().any(|path| class.contains(path));
            let pairing = if is_of_http2 { "id" } else { "assumed" };
            for message in messages {
                assert_eq!(message.pairing(), Some(pairing), "{class}: {message:?}");
                assert!(message.send_ns >= message.recv_ns && message.xmit_ns >= message.send_ns, "{class}");
            }
        }
    }
    assert!(rounds_compared >= 5, "{rounds_compared} rounds");
    // The lines come between the rounds' requests, five for each, and are segments with the next line's reply.
    let segments: Vec<&Message> = lifetimes.messages.iter().filter(|m| m.flags & flags::UNFRAMED != 0).collect();
    assert!(segments.len() >= 5 * rounds_compared && framing.lost == segments.len() as u64, "{framing:?}");
    let port = |m: &Message| lifetimes.flows[m.flow as usize].key.local_port();
    assert!(segments.iter().all(|m| port(m) == PORTS[2] && m.bytes == 9), "{framing:?}");
    assert!(segments.iter().filter(|m| m.send_ns >= m.recv_ns).count() + 1 >= segments.len(), "each has a reply");
    let told = |protocol: &str| framing.connections.get(protocol).copied().unwrap_or(0);
    assert_eq!((told("http1"), framing.untold_connections, framing.connections.len()), (2, 1, 2), "{framing:?}");
    assert!(told("http2") as usize > rounds_compared, "one that stays, and one a round: {framing:?}");
    assert!(said.contains("http1 on 2") && said.contains("no protocol told on 1"), "{said}");

    let diagnosis = json(&run(&["diagnose", &out, "--json"]));
    crate::schemas::holds("diagnose", &diagnosis);
    assert_eq!(diagnosis["protocols"]["connections"]["http1"], 2, "{}", diagnosis["protocols"]);
    assert!(diagnosis["multiplexed"].is_null(), "{}", diagnosis["multiplexed"]);
    let classes: Vec<&str> =
        diagnosis["classes"].as_array().unwrap().iter().map(|class| class["name"].as_str().unwrap()).collect();
    assert!(classes.contains(&"POST /wait v8..16") && classes.contains(&"GET /item"), "{classes:?}");
    let more = run(&["diagnose", &out, "--more"]);
    assert!(shown(&more).contains("What connections speak, by their first bytes:"), "{}", shown(&more));
    println!("{rounds_compared} rounds of {ROUND} requests were compared");

    // One class of both protocols: its own percentiles, and all of its messages.
    let of = |class: &str| json(&run(&["diagnose", &out, "--json", "--class", class]));
    for (asked, least_ns) in [("POST /wait", 10_000_000), ("GET /item", 0)] {
        let of_class = of(asked);
        crate::schemas::holds("diagnose", &of_class);
        let name = of_class["class"]["name"].as_str().unwrap();
        assert!(name.starts_with(asked), "{name}");
        let listed = diagnosis["classes"].as_array().unwrap().iter().find(|class| class["name"] == name).unwrap();
        assert_eq!(of_class["messages"]["complete"], listed["messages"]);
        assert_eq!(of_class["latency_ns"]["p50"], listed["p50"]);
        assert!(of_class["latency_ns"]["p50"].as_u64().unwrap() >= least_ns, "{}", of_class["latency_ns"]);
        assert_eq!(of_class["classes"].as_array().unwrap().len(), classes.len(), "all are listed");
    }
    let news = &of("GET /*");
    assert_eq!(news["class"]["classes"].as_array().unwrap().len(), 3, "{}", news["class"]);
}

/// Lines only: as with a protocol that the server does not speak.
#[test]
fn auto_is_refused_where_no_connection_tells_its_protocol() {
    let test = "auto_is_refused_where_no_connection_tells_its_protocol";
    if let Some(reason) = tailsight_testing::lacks_program("node") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let server = serve(&live);
    let client = "
const socket = require('net').connect(Number(process.argv[1]), '10.77.0.1');
socket.on('error', () => process.exit(1));
socket.on('data', () => setTimeout(() => socket.write('hello me\\n'), 2));
socket.write('hello me\\n');
";
    let client = Program::start(&live.pair.client, "node", &["-e", client, &PORTS[2].to_string()]);
    let (pid, out) = (server.pid(), live.path("run"));
    let output = run(&["record", "-p", &pid, "-d", "1s", "--sample", "off", "--protocol", "auto", "-o", &out]);
    drop(client);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = stderr(&output);
    assert!(said.contains("is a request of memcached, resp, http1 or http2"), "{}", shown(&output));
    assert!(said.contains("requests: no protocol told on 1 connection; "), "{}", shown(&output));
}
