//! Agents in network namespaces of their own, one with a clock of its own. Needs root; skipped by name without.

use std::process::Command;

use tailsight_agent::AgentError;
use tailsight_agent::coordinator::{self, Options};
use tailsight_measure::Load;

use crate::support::{AgentProcess, connect, credentials, gets, memcached, plan, until};

/// A namespace, removed at the end.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// What fails here fails the test: that namespaces can be made was asked before.
fn ip(line: &str) {
    let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim());
}

/// A server's namespace with a bridge, and one for each agent: 10.231.0.1, .2, .3.
fn network(id: u32) -> [Namespace; 3] {
    let spaces = ["s", "a", "b"].map(|role| {
        let name = format!("tsag{id}{role}");
        ip(&format!("netns add {name}"));
        Namespace(name)
    });
    let [s, a, b] = [&spaces[0].0, &spaces[1].0, &spaces[2].0];
    ip(&format!("-n {s} link add br0 type bridge"));
    ip(&format!("-n {s} addr add 10.231.0.1/24 dev br0"));
    ip(&format!("-n {s} link set br0 up"));
    ip(&format!("-n {s} link set lo up"));
    for (n, space) in [(2, a), (3, b)] {
        ip(&format!("-n {s} link add v{n} type veth peer name eth0 netns {space}"));
        ip(&format!("-n {s} link set v{n} master br0 up"));
        ip(&format!("-n {space} addr add 10.231.0.{n}/24 dev eth0"));
        ip(&format!("-n {space} link set eth0 up"));
        ip(&format!("-n {space} link set lo up"));
    }
    spaces
}

#[test]
fn agents_with_networks_and_clocks_of_their_own_are_one_load() {
    let lacks = tailsight_testing::lacks_networks();
    if let Some(reason) = lacks.or_else(|| tailsight_testing::lacks_program("memcached")) {
        return tailsight_testing::skip(reason);
    }
    let spaces = network(std::process::id());
    let [s, a, b] = spaces.each_ref().map(|space| space.0.clone());
    // The thread, and whatever it starts, lives in the server's namespace.
    let tested = std::thread::spawn(move || {
        let file = std::fs::File::open(format!("/var/run/netns/{s}")).unwrap();
        nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let (_server, target) = memcached("10.231.0.1").expect("memcached is installed");
        let allow = "10.231.0.0/24:1-65535";
        let first = AgentProcess::start_by(&["ip", "netns", "exec", &a], "10.231.0.2:0", allow);
        let before = ["ip", "netns", "exec", &b, "unshare", "--time", "--fork", "--kill-child", "--monotonic", "5000"];
        let second = AgentProcess::start_by(&before, "10.231.0.3:0", allow);
        // Its clock can only be compared over the network, to no nanosecond.
        let strict = Options { max_clock_error_ns: 1, ..Options::default() };
        let agents = std::slice::from_ref(&second.address);
        let refused = coordinator::connect(agents, &credentials(), plan(target), strict).err().unwrap();
        assert!(matches!(refused, AgentError::Clock { .. }), "{refused}");
        assert!(refused.to_string().contains("round trip"), "{refused}");
        let mut load = connect(&[&first.address, &second.address], plan(target)).unwrap();
        load.start().unwrap();
        load.record(1.0, 10_000).unwrap();
        // Two agents share the 1,000 requests a second.
        until("the agents' requests are served", || (gets(target) > 1_200).then_some(()));
        let records = load.take().unwrap();
        let now = load.now_ns();
        let endings = load.stop().unwrap();
        let reports = load.reports();
        assert_eq!(reports[0].clock.bound_ns, 0, "a network of its own, but the same clock");
        let clock = reports[1].clock;
        assert!(clock.offset_ns.abs_diff(5_000_000_000_000) <= clock.bound_ns && clock.bound_ns > 0, "{clock:?}");
        for (records, ending) in records.iter().zip(&endings) {
            assert!(records.samples.len() > 200, "{}", records.samples.len());
            assert!(ending.clock_error_ns >= reports.iter().find(|r| r.agent == ending.agent).unwrap().clock.bound_ns);
            // On the coordinator's clock, of which 5000 s are far away.
            for sample in &records.samples {
                assert!(sample.intended_ns < now && sample.intended_ns + 10_000_000_000 > now, "{sample:?} at {now}");
                assert!(sample.received_ns >= sample.sent_ns && sample.sent_ns >= sample.intended_ns, "{sample:?}");
            }
        }
        assert!(gets(target) > 400);
        assert!(reports.iter().all(|r| r.target == target.to_string()), "{reports:?}");
    });
    tested.join().unwrap();
}
