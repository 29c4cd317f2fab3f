//! Who is not let in, and what is not done for those who are.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use tailsight_agent::coordinator::{self, Credentials};
use tailsight_agent::{AgentAddress, Fingerprint, Identity};
use tailsight_measure::Load;

use crate::support::{AgentHere, config, connect, credentials, memcached, options, plan};

fn error(address: &AgentAddress, credentials: &Credentials) -> String {
    let target = "127.0.0.1:9".parse().unwrap();
    let result = coordinator::connect(std::slice::from_ref(address), credentials, plan(target), options());
    tailsight_units::chain(&result.err().expect("refused"))
}

#[test]
fn a_wrong_token_is_refused_and_logged() {
    let agent = AgentHere::start(config());
    let wrong = Credentials { token: "test-token-of-no-valuE".parse().unwrap(), ..credentials() };
    let words = error(&agent.address, &wrong);
    assert!(words.contains("wrong token"), "{words}");
    let log = agent.log.lock().unwrap().clone();
    assert!(log.contains("refused: wrong token") && !log.contains("session opened"), "{log}");
    drop(connect(&[&agent.address], plan("127.0.0.1:9".parse().unwrap())).unwrap());
}

#[test]
fn another_certificate_than_the_pinned_one_is_refused() {
    let (agent, other) = (AgentHere::start(config()), AgentHere::start(config()));
    assert_ne!(agent.address.fingerprint, other.address.fingerprint);
    let mixed = AgentAddress { fingerprint: other.address.fingerprint, ..agent.address.clone() };
    let words = error(&mixed, &credentials());
    assert!(words.contains("is not the expected one"), "{words}");
    let zero = AgentAddress { fingerprint: Some(Fingerprint([0; 32])), ..agent.address.clone() };
    assert!(error(&zero, &credentials()).contains("is not the expected one"));
    // Without a pin and without an authority nobody is trusted; no connection is tried.
    let unpinned = AgentAddress { fingerprint: None, ..agent.address.clone() };
    assert!(error(&unpinned, &credentials()).contains("FINGERPRINT"));
    assert!(!agent.log.lock().unwrap().contains("session opened"));
}

#[test]
fn plain_text_gets_nothing() {
    let agent = AgentHere::start(config());
    let mut socket = TcpStream::connect((agent.address.host.as_str(), agent.address.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    // At most a TLS alert (type 21) comes back.
    assert!(answer.first().is_none_or(|kind| *kind == 21), "{answer:?}");
    crate::support::until("the refusal is logged", || agent.log.lock().unwrap().contains("refused: TLS").then_some(()));
    drop(connect(&[&agent.address], plan("127.0.0.1:9".parse().unwrap())).unwrap());
}

#[test]
fn what_is_no_agent_is_an_error() {
    let port = tailsight_testing::free_port();
    let address = |port| AgentAddress { host: "127.0.0.1".into(), port, fingerprint: Some(Fingerprint([7; 32])) };
    let words = error(&address(port), &credentials());
    assert!(words.contains("refused") && words.contains("is the agent running"), "{words}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    assert!(error(&address(port), &credentials()).contains("no session with agent"));
}

#[test]
fn targets_rates_and_second_coordinators_are_refused() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let mut narrow = config();
    narrow.policy.allow = tailsight_agent::Allow(vec![format!("127.0.0.1:{}", target.port()).parse().unwrap()]);
    let agent = AgentHere::start(narrow);
    // Another memcached: allowed by nobody.
    let (_other, outside) = memcached("127.0.0.1").unwrap();
    let mut load = connect(&[&agent.address], plan(outside)).unwrap();
    let words = load.start().unwrap_err().to_string();
    assert!(words.contains("not among the allowed targets"), "{words}");
    assert_eq!(crate::support::gets(outside), 0);
    drop(load);
    let mut fast = plan(target);
    fast.rate = "21k".parse().unwrap();
    let mut load = connect(&[&agent.address], fast).unwrap();
    let words = load.start().unwrap_err().to_string();
    assert!(words.contains("--max-rate"), "{words}");
    // While this session lives, there is no second one.
    let words = connect(&[&agent.address], plan(target)).err().unwrap().to_string();
    assert!(words.contains("in use"), "{words}");
    drop(load);
    let mut load = connect(&[&agent.address], plan(target)).unwrap();
    load.start().unwrap();
    load.stop().unwrap();
    assert!(agent.log.lock().unwrap().contains("load refused"));
}

/// A closed loop has no rate that could be checked before it runs.
#[test]
fn a_closed_loop_beyond_the_allowed_rate_is_stopped() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let mut slow = config();
    slow.policy.rate = 50.0;
    let agent = AgentHere::start(slow);
    let mut closed = plan(target);
    closed.arrivals = "closed:1".parse().unwrap();
    let mut load = connect(&[&agent.address], closed).unwrap();
    load.start().unwrap();
    crate::support::until("the watchdog stops it", || load.progress().unwrap().ended.then_some(()));
    let endings = load.stop().unwrap();
    assert!(endings[0].complaints.iter().any(|c| c.to_string().contains("--max-rate")), "{endings:?}");
    let then = crate::support::gets(target);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(crate::support::gets(target), then);
}

fn pem(directory: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn with_certificates_both_sides_must_show_one() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let directory = tempfile::tempdir().unwrap();
    let d = directory.path();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let ca = pem(d, "ca.pem", &authority.pem());
    let issuer = Issuer::new(params, authority_key);
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        Identity {
            certificate: pem(d, &format!("{name}.pem"), &certificate.pem()),
            key: pem(d, &format!("{name}.key"), &key.serialize_pem()),
        }
    };
    let mut mutual = config();
    mutual.identity = Some(issue("localhost"));
    mutual.client_ca = Some(ca.clone());
    let agent = AgentHere::start(mutual);
    let words = error(&agent.address, &credentials());
    // Regression: it said "transport error" and no more.
    assert!(words.contains("no session") && words.contains("--agent-certificate"), "without a certificate: {words}");
    let stranger = {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["stranger".to_owned()]).unwrap().self_signed(&key).unwrap();
        Identity {
            certificate: pem(d, "stranger.pem", &certificate.pem()),
            key: pem(d, "stranger.key", &key.serialize_pem()),
        }
    };
    let words = error(&agent.address, &Credentials { identity: Some(stranger), ..credentials() });
    assert!(words.contains("does not accept the certificate"), "a certificate of nobody known: {words}");
    let ours = Credentials { identity: Some(issue("coordinator")), ..credentials() };
    let target = "127.0.0.1:9".parse().unwrap();
    let pinned = coordinator::connect(std::slice::from_ref(&agent.address), &ours, plan(target), options());
    drop(pinned.unwrap());
    // By the authority instead of a pin: the name must be the certificate's.
    let by_name = AgentAddress { host: "localhost".into(), fingerprint: None, ..agent.address.clone() };
    let trusting = Credentials { ca: Some(ca), ..ours };
    drop(coordinator::connect(std::slice::from_ref(&by_name), &trusting, plan(target), options()).unwrap());
    let by_address = AgentAddress { host: "127.0.0.1".into(), ..by_name };
    assert!(error(&by_address, &trusting).contains("certificate"), "another name than the certificate's");
    assert!(agent.log.lock().unwrap().contains("TLS"));
}

/// Regression: 400 idle connections kept every coordinator out, and TLS connections without a call were kept for ever.
#[test]
fn strangers_do_not_keep_a_coordinator_out() {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut with_identity = config();
    with_identity.identity = Some(Identity {
        certificate: pem(directory.path(), "a.pem", &certificate.pem()),
        key: pem(directory.path(), "a.key", &key.serialize_pem()),
    });
    let agent = AgentHere::start(with_identity);
    let address = (agent.address.host.as_str(), agent.address.port);
    let idle: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut tls = tls.with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = std::sync::Arc::new(tls);
    let shaken: Vec<_> = (0..20)
        .map(|_| {
            let connection = ClientConnection::new(tls.clone(), "localhost".try_into().unwrap()).unwrap();
            let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
            stream.sock.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            while stream.conn.is_handshaking() {
                stream.conn.complete_io(&mut stream.sock).unwrap();
            }
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    let load = connect(&[&agent.address], plan("127.0.0.1:9".parse().unwrap())).unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "let in after {:?}", began.elapsed());
    // They shook hands, and have no token: they are not kept. The coordinator is.
    let began = std::time::Instant::now();
    for mut stream in shaken {
        let mut rest = Vec::new();
        let end = stream.sock.read_to_end(&mut rest);
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
    for mut socket in idle {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let end = socket.read_to_end(&mut Vec::new());
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    let words = connect(&[&agent.address], plan("127.0.0.1:9".parse().unwrap())).err().unwrap().to_string();
    assert!(words.contains("in use"), "the first session lives: {words}");
    drop(load);
    let lines = agent.log.lock().unwrap().lines().count();
    assert!(lines < 60, "{lines} lines about strangers");
}
