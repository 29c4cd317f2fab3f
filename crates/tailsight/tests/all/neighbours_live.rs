//! Two servers on one port, as on every host of containers: a recording holds the one that was asked for and nothing of the other.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tailsight_trace::event::{Kind, flow_flags};
use tailsight_trace::{FlowKey, Run};

use crate::load_live::alone;
use crate::support::{run, shown, tailsight};

/// Three network namespaces on the bridge of a fourth: 10.79.0.2 to 10.79.0.4; and what was started in them.
struct Hosts {
    tag: String,
    started: Vec<Child>,
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("ip starts");
    assert!(output.status.success(), "ip {words}: {}", shown(&output));
}

impl Hosts {
    fn new() -> Hosts {
        let hosts = Hosts { tag: format!("tsn{}", std::process::id()), started: Vec::new() };
        let name = |which: &str| hosts.name(which);
        let bridge = name("h");
        ip(&format!("netns add {bridge}"));
        ip(&format!("-n {bridge} link add br0 type bridge"));
        ip(&format!("-n {bridge} link set br0 up"));
        for (number, which) in [(2, "a"), (3, "b"), (4, "c")] {
            let own = name(which);
            ip(&format!("netns add {own}"));
            ip(&format!("-n {bridge} link add v{which} type veth peer name eth0 netns {own}"));
            ip(&format!("-n {bridge} link set v{which} master br0 up"));
            ip(&format!("-n {own} addr add 10.79.0.{number}/24 dev eth0"));
            ip(&format!("-n {own} link set eth0 up"));
            ip(&format!("-n {own} link set lo up"));
        }
        ip(&format!("-n {} addr add 10.79.0.22/24 dev eth0", name("a")));
        hosts
    }

    fn name(&self, which: &str) -> String {
        format!("{}{which}", self.tag)
    }

    /// Starts a command in one of them; `ip` becomes it, so that the id is its own.
    fn start(&mut self, which: &str, command: &mut Command) -> u32 {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name(which)]).arg(command.get_program()).args(command.get_args());
        let child = inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ip starts");
        let id = child.id();
        self.started.push(child);
        id
    }

    /// It listens when this returns.
    fn memcached(&mut self, which: &str, address: &str, port: &str) -> u32 {
        let mut command = Command::new("memcached");
        let id = self.start(which, command.args(["-u", "nobody", "-t", "1", "-U", "0", "-l", address, "-p", port]));
        let ip: Ipv4Addr = address.parse().expect("an address");
        let port: u16 = port.parse().expect("a port");
        // As /proc has it: the address in the order of this machine, state 0A is LISTEN.
        let socket = format!(" {:08X}:{port:04X} 00000000:0000 0A ", u32::from_ne_bytes(ip.octets()));
        let begun = std::time::Instant::now();
        while !std::fs::read_to_string(format!("/proc/{id}/net/tcp")).is_ok_and(|table| table.contains(&socket)) {
            assert!(begun.elapsed() < Duration::from_secs(60), "memcached does not listen at {address}:{port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        id
    }

    /// Whether a program that was started, by its id, has ended.
    fn has_ended(&mut self, id: u32) -> bool {
        let mut of_id = self.started.iter_mut().filter(|child| child.id() == id);
        of_id.any(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Its id: a load that cannot connect, on a machine that others fill, ends with an error.
    fn load(&mut self, url: &str) -> u32 {
        let words = ["load", url, "--rate", "800", "--keys", "100", "--connections", "2", "--ci", "p50:0.1%"];
        let mut command = tailsight(&words);
        // As long as the test may take beside other programs; it ends with the test.
        command.args(["--max-time", "180s"]);
        self.start("c", &mut command)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in &mut self.started {
            let _ = child.kill();
            let _ = child.wait();
        }
        for which in ["a", "b", "c", "h"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(which)]).output();
        }
    }
}

/// How many events of each kind a run has whose flow is not foreign; all of them must be at the address.
fn of_address(path: &Path, address: Ipv4Addr) -> std::collections::BTreeMap<String, u64> {
    let mut opened = Run::open(path).expect("a run");
    let mut counts = std::collections::BTreeMap::new();
    for event in opened.events().unwrap().iter().flat_map(|core| &core.events) {
        let Some(kind) = event.kind() else { continue };
        *counts.entry(format!("{kind:?}")).or_default() += 1;
        let flows =
            [Kind::RxBacklog, Kind::RxNapi, Kind::RxStack, Kind::Handoff, Kind::Recv, Kind::Send, Kind::TxDriver];
        if flows.contains(&kind) && event.aux & flow_flags::FOREIGN == 0 {
            let (local, _) = FlowKey::of(event).addresses().expect("an IPv4 flow");
            assert_eq!(local, address, "{kind:?} of another server: {event:?}");
        }
    }
    counts
}

/// 1,321 of 1,321 payloads of the other one were captured, and its requests were the target's incomplete messages.
#[test]
fn of_two_servers_on_one_port_a_recording_holds_one() {
    let test = "of_two_servers_on_one_port_a_recording_holds_one";
    let lacks = tailsight_testing::lacks_networks().or_else(|| tailsight_testing::lacks_program("memcached"));
    if let Some(reason) = lacks {
        return tailsight_testing::skip_as(test, reason);
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mut hosts = Hosts::new();
    let first = hosts.memcached("a", "0.0.0.0", "8080");
    hosts.memcached("b", "0.0.0.0", "8080");
    // In one namespace, by the address alone.
    let bound = hosts.memcached("a", "10.79.0.22", "9090");
    hosts.memcached("a", "10.79.0.2", "9090");
    let urls = ["10.79.0.2:8080", "10.79.0.3:8080", "10.79.0.22:9090", "10.79.0.2:9090"];
    let loads = urls.map(|url| hosts.load(&format!("memcached://{url}")));
    std::thread::sleep(Duration::from_millis(1500));
    for (pid, load, name, address) in
        [(first, loads[0], "port", [10, 79, 0, 2]), (bound, loads[2], "address", [10, 79, 0, 22])]
    {
        let out = dir.path().join(name);
        let words = ["record", "-d", "1s", "--protocol", "memcached", "-p", &pid.to_string(), "-o"].map(str::to_owned);
        let output = tailsight(&words.each_ref().map(String::as_str)).arg(&out).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        if hosts.has_ended(load) {
            return tailsight_testing::not_judged(
                test,
                format!("the load of the part \"{name}\" ended before it was recorded"),
            );
        }
        let counts = of_address(&out, address.into());
        let count_of = |kind: &str| counts.get(kind).copied().unwrap_or(0);
        let received = count_of("Recv");
        assert!(received > 200, "{name}: {counts:?}");
        // The bridge's devices are in another namespace: packets to the target are seen there, too.
        assert!(count_of("RxBacklog") * 2 > received * 3, "{name}: {counts:?}");
        // A request and its reply take a piece or two each.
        assert!(count_of("Payload") <= received * 10 && count_of("Payload") >= received, "{name}: {counts:?}");
        let d = run(&["diagnose", &out.display().to_string(), "--json"]);
        let d = crate::support::json(&d);
        let (complete, incomplete) = (d["messages"]["complete"].as_u64(), &d["messages"]["incomplete"]);
        let lacking: u64 = incomplete.as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
        assert!(complete.is_some_and(|n| n > 200 && lacking * 20 < n), "{name}: {}", d["messages"]);
    }
}
