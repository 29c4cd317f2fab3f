//! Who is not let in, and what is not done for those who are.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use tailsight_agent::coordinator::{self, Credentials};
use tailsight_agent::{AgentAddress, Fingerprint, Identity};
use tailsight_measure::Load;

use crate::support::{AgentHere, config, connect, credentials, free_port, memcached, options, plan};

fn error(address: &AgentAddress, credentials: &Credentials) -> String {
    let target = "127.0.0.1:9".parse().unwrap();
    let result = coordinator::connect(std::slice::from_ref(address), credentials, plan(target), options());
    result.err().expect("refused").to_string()
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
    assert!(words.contains("another certificate"), "{words}");
    let zero = AgentAddress { fingerprint: Some(Fingerprint([0; 32])), ..agent.address.clone() };
    assert!(error(&zero, &credentials()).contains("another certificate"));
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
    let port = free_port();
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
    assert!(words.contains("no session"), "a caller without a certificate: {words}");
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
