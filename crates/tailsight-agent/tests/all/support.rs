//! Processes for tests: a memcached, agents and coordinators (this test binary, run again for one ignored test).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tailsight_agent::coordinator::{self, Credentials, Options, RemoteLoad};
use tailsight_agent::{Agent, AgentAddress, AgentError, Config, Identity, Policy, Token};
use tailsight_load::{Plan, Protocol};

pub const TOKEN: &str = "test-token-of-no-value";

/// A child process that ends with the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something that must come; ten seconds are for a busy machine.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A memcached and its address; `None`, said by name, when it is not installed.
pub fn memcached(listen: &str) -> Option<(Process, SocketAddr)> {
    if let Some(reason) = tailsight_testing::lacks_program("memcached") {
        tailsight_testing::skip(reason);
        return None;
    }
    let port = tailsight_testing::free_port();
    let address: SocketAddr = format!("{listen}:{port}").parse().unwrap();
    let (port, threads) = (port.to_string(), "1");
    let arguments = ["-u", "root", "-l", listen, "-p", &port, "-U", "0", "-t", threads];
    let child = Command::new("memcached").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let process = Process(child.expect("memcached starts"));
    until("memcached accepts", || TcpStream::connect(address).ok());
    Some((process, address))
}

/// Gets that a memcached has served.
pub fn gets(address: SocketAddr) -> u64 {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"stats\r\nquit\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let line = text.lines().find(|line| line.starts_with("STAT cmd_get ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// This test binary, to run one ignored test with these variables; `before` are programs that start it (`ip netns exec x`).
pub fn again(before: &[&str], test: &str, variables: &[(&str, String)]) -> Process {
    let exe = std::env::current_exe().unwrap();
    let mut command = match before.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(exe);
            command
        }
        None => Command::new(exe),
    };
    command.args(["--exact", test, "--ignored", "--nocapture"]).stdout(Stdio::null());
    command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
    Process(command.spawn().unwrap())
}

/// An agent in a process of its own, and where it is.
pub struct AgentProcess {
    pub process: Process,
    pub address: AgentAddress,
    directory: tempfile::TempDir,
}

impl AgentProcess {
    pub fn start() -> Self {
        Self::start_by(&[], "127.0.0.1:0", "")
    }

    pub fn start_by(before: &[&str], listen: &str, allow: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let said = directory.path().join("address");
        let variables = [
            ("TAILSIGHT_TEST_SAID", said.to_str().unwrap().to_owned()),
            ("TAILSIGHT_TEST_LISTEN", listen.to_owned()),
            ("TAILSIGHT_TEST_ALLOW", allow.to_owned()),
        ];
        let process = again(before, "support::agent_process", &variables);
        let text = until("the agent listens", || read_line(&said));
        Self { process, address: text.parse().unwrap(), directory }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("address.log")).unwrap_or_default()
    }
}

/// A whole line of a file, once it is there.
pub fn read_line(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()?.strip_suffix('\n').map(str::to_owned)
}

/// What the process of [`AgentProcess`] runs. It ends by itself after two minutes.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn agent_process() {
    let Ok(said) = std::env::var("TAILSIGHT_TEST_SAID") else { return };
    let mut config = config();
    config.listen = std::env::var("TAILSIGHT_TEST_LISTEN").unwrap().parse().unwrap();
    if let Ok(allow) = std::env::var("TAILSIGHT_TEST_ALLOW")
        && !allow.is_empty()
    {
        config.policy.allow = tailsight_agent::Allow(vec![allow.parse().unwrap()]);
    }
    let agent = Agent::bind(config).unwrap();
    let line = format!("{}#{}\n", agent.address(), agent.fingerprint());
    std::fs::write(&said, line).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let later = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(120));
        later.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let log_file = PathBuf::from(format!("{said}.log"));
    let log = move |text: &str| {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log_file);
        let _ = file.and_then(|mut file| writeln!(file, "{text}"));
    };
    agent.serve(&stop, Arc::new(log)).unwrap();
}

pub fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        token: TOKEN.parse().unwrap(),
        identity: None,
        client_ca: None,
        policy: Policy { rate: 20_000.0, ..Policy::default() },
    }
}

/// An agent in this process, with what it logged.
pub struct AgentHere {
    pub address: AgentAddress,
    pub stop: Arc<AtomicBool>,
    pub log: Arc<std::sync::Mutex<String>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl AgentHere {
    pub fn start(config: Config) -> Self {
        let agent = Agent::bind(config).unwrap();
        let address = AgentAddress {
            host: agent.address().ip().to_string(),
            port: agent.address().port(),
            fingerprint: Some(agent.fingerprint()),
        };
        let (stop, log) = (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::Mutex::new(String::new())));
        let (stopping, lines) = (stop.clone(), log.clone());
        let say = move |text: &str| {
            let mut lines = lines.lock().unwrap();
            lines.push_str(text);
            lines.push('\n');
        };
        let thread = Some(std::thread::spawn(move || agent.serve(&stopping, Arc::new(say)).unwrap()));
        Self { address, stop, log, thread }
    }

    pub fn end(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for AgentHere {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn credentials() -> Credentials {
    Credentials { token: TOKEN.parse::<Token>().unwrap(), ca: None, identity: None::<Identity> }
}

/// On a busy machine round trips are long; what is tested is not how long.
pub fn options() -> Options {
    Options { max_clock_error_ns: 1_000_000_000, ..Options::default() }
}

pub fn connect(agents: &[&AgentAddress], plan: Plan) -> Result<RemoteLoad, AgentError> {
    let agents: Vec<AgentAddress> = agents.iter().map(|a| (*a).clone()).collect();
    coordinator::connect(&agents, &credentials(), plan, options())
}

/// 1,000 requests/s over 8 connections until stopped.
pub fn plan(target: SocketAddr) -> Plan {
    let mut plan = Plan::new(target.to_string().parse().unwrap(), Protocol::MemcachedText);
    plan.duration_ns = None;
    plan.connections = 8;
    plan.workload.keys = 200;
    plan.max_samples = 100_000;
    plan.drain_ns = 500_000_000;
    plan.pin = false;
    plan
}
