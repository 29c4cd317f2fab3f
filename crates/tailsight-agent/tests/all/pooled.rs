//! Several agents are one load: samples pooled, seeds apart, nothing lost, nothing twice.

use std::collections::HashSet;
use std::time::Duration;

use tailsight_agent::coordinator::{self, Options, Role};
use tailsight_load::{Sample, Status};
use tailsight_measure::{Load, Records};

use crate::support::{AgentProcess, connect, credentials, gets, memcached, options, plan};

/// Adds what a `take` gave, agent by agent.
pub fn add(all: &mut Vec<Records>, new: Vec<Records>) {
    all.resize(new.len(), Records::default());
    for (sum, part) in all.iter_mut().zip(new) {
        sum.agent = part.agent;
        sum.samples.extend(part.samples);
        sum.sends.extend(part.sends);
        sum.intervals.extend(part.intervals);
    }
}

#[test]
fn two_agents_are_one_load() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let (a, b) = (AgentProcess::start(), AgentProcess::start());
    let mut load = connect(&[&a.address, &b.address], plan(target)).unwrap();
    assert!(load.one_clock(), "processes of one host share its clock");
    let before = gets(target);
    load.start().unwrap();
    load.record(1.0, 10_000).unwrap();
    let mut by_agent = Vec::new();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(300));
        assert!(!load.progress().unwrap().ended);
        add(&mut by_agent, load.take().unwrap());
    }
    let endings = load.stop().unwrap();
    add(&mut by_agent, load.take().unwrap());
    let served = gets(target) - before;
    let sent: u64 = endings.iter().map(|e| e.counts.sent).sum();
    // Each agent tries each connection once before its load.
    assert!(served >= sent && served <= sent + 64, "{served} gets served, {sent} sent: {endings:?}");
    for (records, ending) in by_agent.iter().zip(&endings) {
        assert_eq!(
            (
                &records.agent,
                ending.complaints.iter().any(|c| matches!(c, tailsight_load::Complaint::ClientFailed { .. }))
            ),
            (&ending.agent, false)
        );
        assert!(records.samples.len() > 200, "{}", records.samples.len());
        assert!(records.samples.iter().all(|s| s.status() == Status::Ok), "all keys were stored once");
        let unique: HashSet<(u64, u32)> = records.samples.iter().map(|s| (s.intended_ns, s.connection)).collect();
        assert_eq!(unique.len(), records.samples.len(), "no sample comes twice");
        // Requests on their way when the recording began are in neither; every recorded send is a sample.
        let sends: HashSet<u64> = records.sends.iter().map(|s| s.intended_ns).collect();
        assert_eq!(records.sends.len(), sends.len());
        let sent_and_answered = records.samples.iter().filter(|s| sends.contains(&s.intended_ns)).count();
        assert!(
            sent_and_answered + 8 >= sends.len() && sent_and_answered + 8 >= records.samples.len(),
            "{sent_and_answered} of {} {}",
            sends.len(),
            records.samples.len()
        );
        assert!(records.sends.is_sorted_by_key(|s| s.intended_ns));
        let rows: u64 = records.intervals.iter().map(|row| row.sent).sum();
        assert!(rows <= ending.counts.sent && rows * 10 >= ending.counts.sent * 7, "{rows} {:?}", ending.counts);
        assert!(records.samples.iter().all(|s| (ending.start_ns..ending.end_ns).contains(&s.intended_ns)));
    }
    let reports = load.reports();
    assert_ne!(reports[0].seed, reports[1].seed);
    // One seed would give both the same gaps (Lancet's agents share one stream).
    let gaps = |samples: &[Sample]| {
        let mut due: Vec<u64> = samples.iter().map(|s| s.intended_ns).collect();
        due.sort_unstable();
        due.windows(2).map(|w| w[1] - w[0]).collect::<HashSet<u64>>()
    };
    let (first, second) = (gaps(&by_agent[0].samples), gaps(&by_agent[1].samples));
    let shared = first.intersection(&second).count();
    assert!(shared * 20 < first.len(), "{shared} of {} gaps are the same", first.len());
}

#[test]
fn a_second_load_runs_in_the_same_session_at_another_rate() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let agent = AgentProcess::start();
    let mut load = connect(&[&agent.address], plan(target)).unwrap();
    let mut sent = Vec::new();
    for rate in [500.0, 2000.0] {
        load.set_rate(rate).unwrap();
        load.start().unwrap();
        std::thread::sleep(Duration::from_millis(1000));
        let ending = load.stop().unwrap().remove(0);
        let seconds = (ending.end_ns - ending.start_ns) as f64 / 1e9;
        let expected = rate * seconds;
        assert!((ending.counts.intended as f64 - expected).abs() < 6.0 * expected.sqrt(), "{rate} {ending:?}");
        sent.push(ending.counts.sent);
    }
    assert!(sent[1] > sent[0]);
    drop(load);
    // The session was closed, so the next coordinator is let in at once.
    drop(connect(&[&agent.address], plan(target)).unwrap());
    assert!(agent.log().contains("load started") && agent.log().contains("session closed"), "{}", agent.log());
}

/// Regression: each agent began when it was ready, one after the other, and the load was not the one asked for until the last.
#[test]
fn all_agents_begin_at_one_instant() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let (a, b) = (AgentProcess::start(), AgentProcess::start());
    let mut load = connect(&[&a.address, &b.address], plan(target)).unwrap();
    // On one host the clock is one. A host that is busy for 100 ms may make an agent late once, not ten times.
    let exact = (0..10).any(|_| {
        load.start().unwrap();
        let skews: Vec<u64> = load.reports().iter().map(|agent| agent.start_skew_ns).collect();
        let starts: Vec<u64> = load.stop().unwrap().iter().map(|ending| ending.start_ns).collect();
        skews == [0, 0] && starts[0] == starts[1]
    });
    assert!(exact, "{:?}", load.reports());
}

#[test]
fn throughput_agents_load_and_latency_agents_measure() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let (a, b) = (AgentProcess::start(), AgentProcess::start());
    let roles = vec![Role::Throughput, Role::Latency];
    let options = Options { roles, latency_rate: Some(200.0), ..options() };
    let agents = [a.address.clone(), b.address.clone()];
    let mut load = coordinator::connect(&agents, &credentials(), plan(target), options).unwrap();
    load.start().unwrap();
    load.record(1.0, 100).unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    let mut by_agent = load.take().unwrap();
    let endings = load.stop().unwrap();
    add(&mut by_agent, load.take().unwrap());
    assert!(
        by_agent[0].samples.is_empty() && by_agent[0].sends.len() > 300,
        "a throughput agent shows its arrivals only"
    );
    assert!(by_agent[1].samples.len() > 50);
    assert!(endings[0].counts.sent > endings[1].counts.sent * 2, "{endings:?}");
    assert!(a.log().contains("(throughput)") && b.log().contains("(latency)"));
}

/// The file is on the coordinator's host; the agent gets its times, not its path.
#[test]
fn a_replay_travels_to_one_agent() {
    let Some((_server, target)) = memcached("127.0.0.1") else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let times: String = (0..300).map(|i| format!("17000.{:09}\n", i * 1_000_000 + i % 7)).collect();
    std::fs::write(file.path(), times).unwrap();
    let agent = AgentProcess::start();
    let mut replay = plan(target);
    replay.arrivals = tailsight_load::Arrivals::Replay(file.path().to_owned());
    let mut load = connect(&[&agent.address], replay).unwrap();
    assert!(load.set_rate(5.0).is_err());
    load.start().unwrap();
    crate::support::until("the replay ends", || load.progress().unwrap().ended.then_some(()));
    let ending = load.stop().unwrap().remove(0);
    assert_eq!((ending.counts.intended, ending.counts.sent), (300, 300), "{ending:?}");
}
