//! Agents in network namespaces of their own, one with a clock of its own. Needs root; skipped by name without.

use std::process::Command;
use std::time::Duration;

use tailsight_agent::AgentError;
use tailsight_agent::coordinator::{self, Options};
use tailsight_measure::Load;

use crate::support::{AgentProcess, connect, credentials, gets, memcached, plan};

/// A namespace, removed at the end.
struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split_whitespace()).status().is_ok_and(|status| status.success())
}

/// A server's namespace with a bridge, and one for each agent: 10.231.0.1, .2, .3.
fn network(id: u32) -> Option<[Namespace; 3]> {
    let names = ["s", "a", "b"].map(|role| format!("tsag{id}{role}"));
    for name in &names {
        if !ip(&format!("netns add {name}")) {
            eprintln!("skipped: no network namespace can be made here (root, iproute2)");
            return None;
        }
    }
    let spaces = names.map(Namespace);
    let [s, a, b] = [&spaces[0].0, &spaces[1].0, &spaces[2].0];
    let mut done = ip(&format!("-n {s} link add br0 type bridge"));
    done &= ip(&format!("-n {s} addr add 10.231.0.1/24 dev br0")) && ip(&format!("-n {s} link set br0 up"));
    done &= ip(&format!("-n {s} link set lo up"));
    for (n, space) in [(2, a), (3, b)] {
        done &= ip(&format!("-n {s} link add v{n} type veth peer name eth0 netns {space}"));
        done &= ip(&format!("-n {s} link set v{n} master br0 up"));
        done &= ip(&format!("-n {space} addr add 10.231.0.{n}/24 dev eth0"));
        done &= ip(&format!("-n {space} link set eth0 up")) && ip(&format!("-n {space} link set lo up"));
    }
    if !done {
        eprintln!("skipped: no bridge or veth can be made here");
    }
    done.then_some(spaces)
}

#[test]
fn agents_with_networks_and_clocks_of_their_own_are_one_load() {
    let Some(spaces) = network(std::process::id()) else { return };
    let [s, a, b] = spaces.each_ref().map(|space| space.0.clone());
    // The thread, and whatever it starts, lives in the server's namespace.
    let tested = std::thread::spawn(move || {
        let file = std::fs::File::open(format!("/var/run/netns/{s}")).unwrap();
        nix::sched::setns(&file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let Some((_server, target)) = memcached("10.231.0.1") else { return };
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
        std::thread::sleep(Duration::from_millis(1500));
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
