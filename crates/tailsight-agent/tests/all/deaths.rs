//! Whoever dies, the load ends and what was measured stays.

use std::time::Duration;

use tailsight_agent::AgentAddress;
use tailsight_load::Complaint;
use tailsight_measure::{Error, Load};

use crate::support::{AgentHere, AgentProcess, again, config, connect, gets, memcached, plan, until};

/// What the process of the next test runs: a coordinator that never stops by itself.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn coordinator_process() {
    let (Ok(agent), Ok(target)) = (std::env::var("TAILSIGHT_TEST_AGENT"), std::env::var("TAILSIGHT_TEST_TARGET"))
    else {
        return;
    };
    let agent: AgentAddress = agent.parse().unwrap();
    let mut load = connect(&[&agent], plan(target.parse().unwrap())).unwrap();
    load.start().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_coordinator_ends_the_load() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let agent = AgentProcess::start();
    let variables =
        [("TAILSIGHT_TEST_AGENT", agent.address.to_string()), ("TAILSIGHT_TEST_TARGET", target.to_string())];
    let mut coordinator = again(&[], "deaths::coordinator_process", &variables);
    until("the load runs", || (gets(target) > 500).then_some(()));
    // SIGKILL: no goodbye.
    coordinator.0.kill().unwrap();
    coordinator.0.wait().unwrap();
    std::thread::sleep(Duration::from_millis(3000));
    let then = gets(target);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(gets(target), then, "requests three seconds after the coordinator died");
    assert!(agent.log().contains("no message from the coordinator"), "{}", agent.log());
    drop(connect(&[&agent.address], plan(target)).unwrap());
}

#[test]
fn a_killed_agent_is_told_and_its_samples_stay() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let (a, mut b) = (AgentProcess::start(), AgentProcess::start());
    let mut load = connect(&[&a.address, &b.address], plan(target)).unwrap();
    load.start().unwrap();
    load.record(1.0, 100_000).unwrap();
    // Nobody takes records meanwhile: they are fetched all the same.
    std::thread::sleep(Duration::from_millis(2000));
    b.process.0.kill().unwrap();
    b.process.0.wait().unwrap();
    let gone = until("the death is noticed", || load.progress().err());
    let name = b.address.authority();
    assert!(matches!(&gone, Error::Agent { agent, .. } if *agent == name), "{gone}");
    assert!(load.record(0.5, 10).is_err());
    let records = load.take().unwrap();
    assert_eq!(records[1].agent, name);
    assert!(records[1].samples.len() > 200, "{} samples of the dead agent", records[1].samples.len());
    assert!(records[0].samples.len() >= records[1].samples.len());
    let endings = load.stop().unwrap();
    assert!(endings[0].counts.sent > 0 && !matches!(endings[0].complaints[..], [Complaint::ClientFailed { .. }]));
    assert!(
        matches!(&endings[1].complaints[..], [complaint @ Complaint::ClientFailed { .. }] if complaint.spoils()),
        "{endings:?}"
    );
    let then = gets(target);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(gets(target), then, "the other agent was stopped");
    assert!(load.start().is_err(), "a dead agent is not forgotten");
}

/// Ctrl-C and SIGTERM of the agent set the same flag.
#[test]
fn an_agent_that_is_stopped_ends_its_load_and_says_so() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let mut agent = AgentHere::start(config());
    let mut load = connect(&[&agent.address], plan(target)).unwrap();
    load.start().unwrap();
    until("the load runs", || (gets(target) > 300).then_some(()));
    agent.end();
    let then = gets(target);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(gets(target), then);
    let log = agent.log.lock().unwrap().clone();
    assert!(log.contains("the agent ends") && log.contains("requests sent in"), "{log}");
    until("the coordinator notices", || load.progress().err());
}
