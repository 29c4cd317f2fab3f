//! HTTP requests as users send them, against nginx: what it was sent decides what it answers.

use std::sync::atomic::AtomicBool;

use tailsight_load::http::{Body, HttpRequest};
use tailsight_load::{Complaint, Outcome, Plan, Protocol, run};

use crate::support::{Process, alone, plan, run_checked, start};

/// nginx that answers 200 to one request alone, and 404 and 301 elsewhere; its ports for HTTP/1 and HTTP/2.
fn nginx(dir: &std::path::Path) -> Option<(Process, [u16; 2])> {
    let ports = [tailsight_testing::free_port(), tailsight_testing::free_port()];
    let root = dir.display();
    let locations = "location /strict { if ($request_method != POST) { return 405; } if ($http_x_key != \"a b\") { return 401; } \
         if ($content_length != 5) { return 411; } if ($host != shop.example) { return 421; } return 200 \"ok\"; }\n\
         location /moved { return 301 /there; }\n\
         location /head { if ($request_method != HEAD) { return 405; } return 200 \"twelve bytes\"; }\n\
         location /hello { return 200 \"hello\"; }\n\
         location / { return 404; }";
    let text = format!(
        "daemon off; master_process off; pid {root}/pid; error_log /dev/null; events {{ }}\n\
         http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {root}; proxy_temp_path {root};\n\
         fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};\n\
         server {{ listen 127.0.0.1:{}; {locations} }}\n\
         server {{ listen 127.0.0.1:{} http2; {locations} }} }}\n",
        ports[0], ports[1]
    );
    let conf = dir.join("nginx.conf");
    std::fs::write(&conf, text).unwrap();
    Some((start("nginx", &["-c", conf.to_str().unwrap()], ports[0])?, ports))
}

fn asking(port: u16, protocol: Protocol, requests: Vec<HttpRequest>) -> Plan {
    let mut plan = plan(format!("127.0.0.1:{port}"), protocol);
    plan.connections = 16;
    plan.workload.requests = requests;
    plan
}

fn reasons(outcome: &Outcome) -> String {
    let failed = outcome.complaints.iter().find(|c| matches!(c, Complaint::Failed { .. }));
    failed.map_or_else(String::new, ToString::to_string)
}

#[test]
fn method_fields_body_and_host_arrive_as_they_were_given() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some((_process, ports)) = nginx(dir.path()) else { return };
    let strict = HttpRequest {
        method: "POST".into(),
        fields: vec![("X-Key".into(), "a b".into()), ("Host".into(), "shop.example".into())],
        body: Some(Body(b"12345".to_vec())),
        ..HttpRequest::get("/strict")
    };
    for (port, protocol) in ports.into_iter().zip([Protocol::Http1, Protocol::Http2]) {
        let outcome = run_checked(asking(port, protocol, vec![strict.clone()]));
        assert_eq!(outcome.counts.ok, outcome.counts.sent, "{protocol}: {:?} {}", outcome.counts, reasons(&outcome));
        let without_key = HttpRequest { fields: vec![strict.fields[1].clone()], ..strict.clone() };
        let refused = asking(port, protocol, vec![without_key.clone()]);
        let error = run(refused, &AtomicBool::new(false), |_| {}).unwrap_err().to_string();
        assert!(error.contains("HTTP status 401") && error.contains("--good-statuses 401"), "{error}");
        // Of several requests some may fail.
        let outcome = run_checked(asking(port, protocol, vec![without_key.clone(), without_key]));
        assert_eq!(outcome.counts.error, outcome.counts.sent, "{protocol}: {:?}", outcome.counts);
        let said = reasons(&outcome);
        assert!(said.contains(&format!("HTTP status 401: {}", outcome.counts.error)), "{said}");
    }
}

#[test]
fn a_reply_without_a_body_to_head_is_whole() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some((_process, ports)) = nginx(dir.path()) else { return };
    let head = HttpRequest { method: "HEAD".into(), ..HttpRequest::get("/head") };
    for (port, protocol) in ports.into_iter().zip([Protocol::Http1, Protocol::Http2]) {
        let outcome = run_checked(asking(port, protocol, vec![head.clone()]));
        assert_eq!(outcome.counts.ok, outcome.counts.sent, "{protocol}: {:?} {}", outcome.counts, reasons(&outcome));
    }
}

/// Every reply a 404 was a number, and exit code 0.
#[test]
fn replies_are_good_by_their_status_and_redirects_are_counted() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some((_process, [port, _])) = nginx(dir.path()) else { return };
    let weighted = |weight: f64, path: &str| HttpRequest { weight, ..HttpRequest::get(path) };
    let mix = vec![weighted(6.0, "/hello"), weighted(3.0, "/moved"), weighted(1.0, "/none")];
    let outcome = run_checked(asking(port, Protocol::Http1, mix.clone()));
    let (counts, share) = (outcome.counts, |n: u64| n as f64 / outcome.counts.sent as f64);
    // About a thousand requests: five standard deviations are 0.08.
    assert!((share(counts.redirects) - 0.3).abs() < 0.08, "{counts:?}");
    assert!((share(counts.error) - 0.1).abs() < 0.08, "{counts:?}");
    assert_eq!(counts.ok + counts.error, counts.sent, "{counts:?}");
    let mut accepting = asking(port, Protocol::Http1, mix);
    accepting.workload.good_statuses = "2xx,404".parse().unwrap();
    let counts = run_checked(accepting).counts;
    assert_eq!(counts.error, counts.redirects, "{counts:?}");
    assert!(counts.redirects > 0, "{counts:?}");
}
