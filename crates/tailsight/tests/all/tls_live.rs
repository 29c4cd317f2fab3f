//! Live recordings of HTTP/1 inside of TLS (`record --protocol http1`) against what the client says of each of its requests, of servers that
//! use the library in three ways: nginx (its own buffers read ahead of the library), Python (a thread a connection, the library receives and
//! sends itself), Node (linked into the program, on buffers in memory). And of Go, which has its own.

use std::collections::BTreeMap;
use std::time::Duration;

use tailsight_lifetime::model::flags;
use tailsight_lifetime::{Analysis, Message};

use crate::support::{Live, Program, build_go, make_certificate, run, wait_until_it_listens, with_payload};

const PORT: u16 = 21120;
/// Bytes of the large replies: more than one record, and more than one segment.
const LARGE: usize = 100_000;

const PYTHON: &str = "
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = b'x' * (LARGE if self.path == '/large' else 10)
        self.wfile.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(('10.77.0.1', PORT), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('CERTIFICATE', 'KEY')
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

const NODE: &str = "
const read = require('fs').readFileSync;
require('https').createServer({ key: read('KEY'), cert: read('CERTIFICATE') }, (request, response) => {
    const body = 'x'.repeat(request.url == '/large' ? LARGE : 10);
    response.end(body);
}).listen(PORT, '10.77.0.1');
";

const GO: &str = r#"package main

import (
	"bytes"
	"crypto/tls"
	"net/http"
)

func main() {
	small, large := bytes.Repeat([]byte("x"), 10), bytes.Repeat([]byte("x"), LARGE)
	http.HandleFunc("/small", func(w http.ResponseWriter, r *http.Request) { w.Write(small) })
	http.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) { w.Write(large) })
	without := map[string]func(*http.Server, *tls.Conn, http.Handler){}
	server := http.Server{Addr: "10.77.0.1:PORT", TLSNextProto: without}
	panic(server.ListenAndServeTLS("CERTIFICATE", "KEY"))
}
"#;

const NGINX: &str = "
daemon off;
worker_processes 1;
pid DIR/nginx.pid;
error_log DIR/error.log;
events {}
http {
    access_log off;
    client_body_temp_path DIR/body;
    proxy_temp_path DIR/proxy;
    fastcgi_temp_path DIR/fastcgi;
    uwsgi_temp_path DIR/uwsgi;
    scgi_temp_path DIR/scgi;
    server {
        listen 10.77.0.1:PORT ssl;
        ssl_certificate CERTIFICATE;
        ssl_certificate_key KEY;
        location / { return 200 'ten bytes.'; }
        location /large { root DIR; }
    }
}
";

/// Four connections, each with one request at a time, every third for a large reply, and 1 ms of pause. A connection makes 60 requests, then
/// there is a new one. Writes a line for each request: the connection's port, its path, when it was sent and answered (CLOCK_MONOTONIC, ns).
const CLIENT: &str = "
const https = require('https');
const log = require('fs').openSync(process.argv[2], 'w');
function connection() {
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false });
    let made = 0;
    function ask() {
        if (made++ == 60) { agent.destroy(); return connection(); }
        const path = made % 3 == 0 ? '/large' : '/small';
        let sent;
        const request = https.get(process.argv[1] + path, { agent }, response => {
            response.resume();
            response.on('end', () => {
                const line = [request.socket.localPort, path, sent, process.hrtime.bigint()].join(' ');
                require('fs').writeSync(log, line + '\\n');
                setTimeout(ask, 1);
            });
        });
        request.on('error', () => process.exit(1));
        // The handshake is no part of the request.
        request.on('socket', socket => {
            if (socket.connecting) socket.once('secureConnect', () => sent = process.hrtime.bigint());
            else sent = process.hrtime.bigint();
        });
    }
    ask();
}
for (let i = 0; i < 4; i++) connection();
";

/// A request as the client saw it.
struct Asked {
    port: u16,
    path: String,
    sent_ns: u64,
    answered_ns: u64,
}

fn asked(line: &str) -> Asked {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    Asked { port: number(0) as u16, path: words[1].into(), sent_ns: number(2), answered_ns: number(3) }
}

/// Records a server and holds each of its requests against the client's. `program`: started with these arguments.
fn requests_are_messages(test: &str, program: &str, args: impl Fn(&Live, &dyn Fn(&str) -> String) -> Vec<String>) {
    for needed in [program, "node"] {
        if let Some(reason) = tailsight_testing::lacks_program(needed) {
            return tailsight_testing::skip_as(test, reason);
        }
    }
    let Some(live) = Live::new(test) else { return };
    let (key, certificate) = (live.path("key.pem"), live.path("certificate.pem"));
    make_certificate(&key, &certificate);
    let filled = |text: &str| {
        let dir = live.path("");
        let text =
            text.replace("CERTIFICATE", &certificate).replace("KEY", &key).replace("DIR", dir.trim_end_matches('/'));
        text.replace("PORT", &PORT.to_string()).replace("LARGE", &LARGE.to_string())
    };
    let args = args(&live, &filled);
    let server = Program::start(&live.pair.server, program, &args.iter().map(String::as_str).collect::<Vec<_>>());
    wait_until_it_listens(&live, &[PORT]);
    let log = live.path("log");
    let client = Program::start(&live.pair.client, "node", &["-e", CLIENT, &format!("https://10.77.0.1:{PORT}"), &log]);
    std::thread::sleep(Duration::from_millis(500));
    let (pid, out) = (server.pid(), live.path("run"));
    let args = ["record", "-p", &pid, "-d", "3s", "--sample", "off", "--protocol", "http1", "-o", &out];
    let output = run(&args);
    drop(client);
    let Some(mut recording) = with_payload(test, &output, &out) else { return };
    let tls = recording.meta.payload.as_ref().and_then(|payload| payload.tls.clone()).expect("breakpoints");
    println!("{test}: {tls:?}");
    assert!(tls.off_ns.is_none() && tls.calls > 100, "{tls:?}");
    let (start_ns, end_ns) = (recording.meta.start_ns, recording.meta.end_ns);
    let analysis = Analysis::of(&mut recording).unwrap();
    let lifetimes = &analysis.lifetimes;
    let mut by_port: BTreeMap<u16, Vec<&Message>> = BTreeMap::new();
    for message in &lifetimes.messages {
        by_port.entry(lifetimes.flows[message.flow as usize].key.remote_port()).or_default().push(message);
    }

    let requests: Vec<Asked> = std::fs::read_to_string(&log).unwrap().lines().map(asked).collect();
    let recorded = requests.iter().filter(|r| r.sent_ns > start_ns + 100_000_000 && r.answered_ns < end_ns);
    let (mut held, mut first_of_connection, mut large, mut unsent) = (0, 0, 0, 0);
    for request in recorded {
        let of_connection = by_port.get(&request.port).map_or(&[][..], Vec::as_slice);
        let at = |m: &&&Message| (request.sent_ns..request.answered_ns).contains(&m.driver_ns);
        let messages: Vec<&&Message> = of_connection.iter().filter(at).collect();
        let [message] = messages[..] else {
            panic!("{} messages of a request for {}: {:?}", messages.len(), request.path, lifetimes.framing);
        };
        let class = lifetimes.class(message).map(|class| class.name.clone()).unwrap_or_default();
        assert!(class.starts_with(&format!("GET {}", request.path)), "{class} of {}", request.path);
        assert!(message.flags & (flags::PAIRED_BY_ORDER | flags::PAIRING_ASSUMED) != 0, "it has a reply");
        let stamps = [message.driver_ns, message.handoff_ns, message.recv_ns, message.send_ns];
        assert!(stamps.is_sorted(), "{stamps:?}");
        // Now and then a kernel tells of no packet behind a window that was full; what its reply lacks is said.
        unsent += usize::from(message.xmit_ns == 0);
        let is_sent = (message.send_ns..request.answered_ns).contains(&message.xmit_ns) || message.xmit_ns == 0;
        assert!(is_sent, "the client had all of it: {message:?}");
        // On the wire: the head, the body, and at most 64 bytes more a record of at most 16,384; buffers in memory send what belongs to the
        // handshake (tickets) with the first reply.
        let body = if request.path == "/large" { LARGE } else { 10 };
        let (is_first, reply) = (message.flags & flags::FIRST != 0, message.reply_bytes as usize);
        let most = body + 500 + (body / 1_000 + 2) * 64 + if is_first { 1_000 } else { 0 };
        assert!((body..most).contains(&reply), "{reply} bytes of {body}");
        // As this client writes it, in one record of TLS 1.3 or 1.2.
        let head = format!("GET {} HTTP/1.1\r\nHost: 10.77.0.1:{PORT}\r\nConnection: keep-alive\r\n\r\n", request.path);
        let overhead = message.bytes as usize - head.len();
        assert!([22, 29].contains(&overhead), "{} bytes of a request of {}", message.bytes, head.len());
        held += 1;
        large += usize::from(request.path == "/large");
        first_of_connection += usize::from(is_first);
    }
    println!(
        "{test}: {held} of {held} requests, {large} large, {first_of_connection} the first of a connection, {unsent} without a driver's stamp"
    );
    assert!(unsent * 100 <= held, "{unsent} of {held}");
    assert!(held > 150 && large > 40 && first_of_connection >= 3, "{held} {large} {first_of_connection}");
}

#[test]
fn requests_of_nginx_inside_of_tls_are_messages() {
    requests_are_messages("requests_of_nginx_inside_of_tls_are_messages", "nginx", |live, filled| {
        std::fs::write(live.path("large"), "x".repeat(LARGE)).unwrap();
        std::fs::write(live.path("nginx.conf"), filled(NGINX)).unwrap();
        vec!["-c".into(), live.path("nginx.conf"), "-p".into(), live.path("")]
    });
}

#[test]
fn requests_of_python_inside_of_tls_are_messages() {
    requests_are_messages("requests_of_python_inside_of_tls_are_messages", "/usr/bin/python3", |_, filled| {
        vec!["-c".into(), filled(PYTHON)]
    });
}

/// Goroutines go on in other threads between their calls and what they gave or took.
#[test]
fn requests_of_go_inside_of_tls_are_messages() {
    let test = "requests_of_go_inside_of_tls_are_messages";
    if let Some(reason) = tailsight_testing::lacks_program("go") {
        return tailsight_testing::skip_as(test, reason);
    }
    requests_are_messages(test, "sh", |live, filled| {
        std::fs::write(live.path("server.go"), filled(GO)).unwrap();
        build_go(live, "server.go", "go-tls");
        vec!["-c".into(), format!("exec {}", live.path("go-tls"))]
    });
}

#[test]
fn requests_of_node_inside_of_tls_are_messages() {
    requests_are_messages("requests_of_node_inside_of_tls_are_messages", "node", |_, filled| {
        vec!["-e".into(), filled(NODE)]
    });
}
