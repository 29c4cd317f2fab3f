//! Real servers: every protocol over every transport that it has, with every reply checked.

use std::time::Duration;

use tailsight_load::{Plan, Protocol, Sample, Trust};

use crate::support::{Process, alone, plan, run_checked, start};

fn memcached() -> Option<(Process, u16, tempfile::TempDir)> {
    let port = tailsight_testing::free_port();
    let text = port.to_string();
    let dir = tempfile::tempdir().unwrap();
    let process = start("memcached", &["-l", "127.0.0.1", "-p", &text, "-U", &text, "-u", "root", "-t", "1"], port)?;
    Some((process, port, dir))
}

fn all_ok(plan: Plan) {
    let name = format!("{} {} {}", plan.target, plan.protocol, plan.workload);
    let outcome = run_checked(plan);
    assert!(outcome.counts.intended > 500, "{name}: {:?}", outcome.counts);
    assert_eq!(outcome.counts.ok, outcome.counts.intended, "{name}: {:?} {:?}", outcome.counts, outcome.complaints);
}

#[test]
fn memcached_text_meta_binary_and_udp() {
    let _alone = alone();
    let Some((_process, port, _dir)) = memcached() else { return };
    for (target, protocol, workload) in [
        ("tcp", Protocol::MemcachedText, "keys=1000;sets=0.1"),
        ("tcp", Protocol::MemcachedText, "etc;keys=1000"),
        ("tcp", Protocol::MemcachedText, "usr;keys=1000;popularity=zipf:0.99"),
        ("tcp", Protocol::MemcachedText, "keys=100;meta=yes;sets=0.1"),
        ("tcp", Protocol::MemcachedBinary, "keys=100;sets=0.1;value=uniform:0,100000;max-value=100000"),
        ("udp", Protocol::MemcachedText, "keys=100;value=100"),
    ] {
        let mut plan = plan(format!("{target}://127.0.0.1:{port}"), protocol);
        plan.workload = workload.parse().unwrap();
        all_ok(plan);
    }
}

#[test]
fn memcached_over_a_unix_socket() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    if let Some(reason) = tailsight_testing::lacks_program("memcached") {
        return tailsight_testing::skip(reason);
    }
    let child = std::process::Command::new("memcached").args(["-u", "root", "-s"]).arg(&path).spawn();
    let _process = Process(child.expect("memcached starts"));
    let begin = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(&path).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "memcached does not listen at {}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    all_ok(plan(format!("unix:{}", path.display()), Protocol::MemcachedText));
}

#[test]
fn redis_in_both_versions_and_over_ipv6_names() {
    let _alone = alone();
    let port = tailsight_testing::free_port();
    let text = port.to_string();
    let Some(_process) = start("redis-server", &["--port", &text, "--save", "", "--bind", "127.0.0.1"], port) else {
        return;
    };
    for workload in ["keys=1000;sets=0.2;value=exponential:500", "keys=100;resp3=yes"] {
        let mut plan = plan(format!("localhost:{port}"), Protocol::Resp);
        plan.workload = workload.parse().unwrap();
        plan.threads = 2;
        all_ok(plan);
    }
}

#[test]
fn kernel_stamps_lie_within_the_clocks_and_are_nearly_always_there() {
    let _alone = alone();
    let Some((_process, port, _dir)) = memcached() else { return };
    let outcome = run_checked(plan(format!("127.0.0.1:{port}"), Protocol::MemcachedText));
    let with = |flag: u32| outcome.samples.iter().filter(|s| s.flags & flag != 0).count();
    if with(Sample::SENT_STAMPED) == 0 {
        return tailsight_testing::skip("no kernel time stamps here");
    }
    let n = outcome.samples.len();
    assert!(with(Sample::SENT_STAMPED) > n * 95 / 100 && with(Sample::RECEIVED_STAMPED) > n * 95 / 100, "{n}");
    assert_eq!(with(Sample::STAMP_REFUSED), 0);
    assert!(outcome.samples.iter().filter_map(Sample::stamped_lateness_ns).count() > n * 95 / 100);
}

#[test]
fn nginx_http1_http2_and_tls() {
    let _alone = alone();
    let (port, h2, tls) =
        (tailsight_testing::free_port(), tailsight_testing::free_port(), tailsight_testing::free_port());
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display();
    let lacks_openssl = tailsight_testing::lacks_program("openssl");
    let keyed = lacks_openssl.is_none();
    let made = || {
        std::process::Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
            .args(["-keyout", &format!("{root}/key.pem"), "-out"])
            .arg(dir.path().join("cert.pem"))
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let secure = if keyed {
        assert!(made(), "openssl makes no certificate");
        format!(
            "server {{ listen 127.0.0.1:{tls} ssl; ssl_certificate {root}/cert.pem; ssl_certificate_key {root}/key.pem; \
                 location / {{ return 200 \"hello\\n\"; }} }}"
        )
    } else {
        tailsight_testing::skip_part("TLS", lacks_openssl.unwrap_or_default());
        String::new()
    };
    let conf = dir.path().join("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {root}/pid; error_log /dev/null; events {{ }}\n\
         http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {root}; proxy_temp_path {root};\n\
         fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};\n\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"hello\\n\"; }} }}\n\
         server {{ listen 127.0.0.1:{h2} http2; location / {{ return 200 \"hello\\n\"; }} }}\n{secure} }}\n"
    );
    std::fs::write(&conf, text).unwrap();
    let Some(_process) = start("nginx", &["-c", conf.to_str().unwrap()], port) else { return };
    all_ok(Plan { connections: 32, ..plan(format!("127.0.0.1:{port}"), Protocol::Http1) });
    all_ok(plan(format!("127.0.0.1:{h2}"), Protocol::Http2));
    if keyed {
        let trust = Trust::File(dir.path().join("cert.pem"));
        let plan = Plan { connections: 32, ..plan(format!("tls://localhost:{tls}"), Protocol::Http1) };
        all_ok(Plan { trust: Trust::Anyone, ..plan.clone() });
        // As `openssl req -x509` makes one without more words: it is an authority, and the server's own.
        all_ok(Plan { trust: trust.clone(), ..plan.clone() });
        let other_name = Plan { trust, server_name: Some("shop.example".into()), ..plan.clone() };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let error = tailsight_load::run(other_name, &stop, |_| {}).unwrap_err();
        assert!(matches!(error, tailsight_load::LoadError::Tls { .. }), "{error}");
        // The default trusts the host's authorities, and this certificate has none.
        let error = tailsight_load::run(plan, &stop, |_| {}).unwrap_err();
        assert!(matches!(error, tailsight_load::LoadError::Tls { .. }), "{error}");
    }
}
