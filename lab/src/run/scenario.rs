//! What a scenario is: a server, a load, faults, and the known facts. In: nothing. Out: the types of [`super::catalogue`].

use std::net::SocketAddr;

use tailsight_lab::faults::Fault;
use tailsight_lab::probe::{Plan, ProbeProtocol};
use tailsight_protocol::Kind;
use tailsight_testbed::netns::SERVER_V4;

/// The port of the lab's servers.
pub const PORT: u16 = 7000;

/// The leg that `diagnose` takes by itself.
pub const DEFAULT_LEG: &str = "default";

/// The port of the backend.
pub const BEHIND_PORT: u16 = 7100;

/// A cause, as the diagnosis would name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Cause {
    /// Category id.
    pub category: &'static str,
    /// How its name begins; empty: any name.
    pub name: &'static str,
}

impl Cause {
    /// Whether a named cause is this one. A name may go on with a refinement (`lab-hog/user`) or a core's number.
    pub fn is(&self, category: &str, name: &str) -> bool {
        self.category == category && name.starts_with(self.name)
    }
}

/// A cause of that category, whatever its name.
pub const fn any(category: &'static str) -> Cause {
    Cause { category, name: "" }
}

/// A cause of that category and name.
pub const fn named(category: &'static str, name: &'static str) -> Cause {
    Cause { category, name }
}

/// The application that is recorded.
#[derive(Debug, Clone)]
pub enum App {
    /// `lab serve` with these arguments, on core 0.
    Own(Vec<String>),
    /// memcached, on core 0.
    Memcached,
    /// One of the lab's programs in other languages (`lab/programs`), on core 0: 128 bytes in, the same 128 bytes out.
    Program(Program),
    /// A server of Debian's with a configuration of ours, on core 0: nothing is added to its command line, and it is ready when its port
    /// accepts.
    Configured(Program),
    /// PostgreSQL, all of its processes on core 0.
    Postgres {
        /// Settings, each `name=value`.
        settings: &'static [&'static str],
        /// Statements to begin with, one a line.
        setup: &'static str,
    },
}

/// A server of `lab/programs`.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its sources, the main one first: name and text.
    pub sources: &'static [(&'static str, &'static str)],
    /// How it is built, in the folder of its sources; nothing for scripts. The first word is what must be installed.
    pub build: &'static [&'static str],
    /// How it is started, in the folder of its sources; the port, the log and the mode come behind.
    pub run: &'static [&'static str],
    /// Its mode.
    pub mode: &'static str,
    /// An example program of the lab's own that is run; the sources are not needed then.
    pub example: Option<&'static str>,
    /// A symbol without which the runtime's functions have no names: the program that is run must have it.
    pub symbol: Option<&'static str>,
}

/// The functions that a diagnosis must name first under the first cause.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Function {
    /// The name has one of these in it, or the runtime's work reads so (`CPython collecting garbage`).
    pub names: &'static [&'static str],
}

impl Function {
    /// Whether a name is one of them.
    pub fn is(&self, name: &str) -> bool {
        self.names.iter().any(|part| name.contains(part))
    }
}

/// The client, on core 1.
#[derive(Debug, Clone)]
pub enum Load {
    /// A client that records each of its requests; the address is filled in.
    Probe(Plan),
    /// `get`s a second from memcached.
    Gets(f64),
    /// The product's load generator, every sample kept. The address is filled in.
    Product(Vec<Stream>),
}

/// A fault. Faults begin before the recording and end after it.
#[derive(Debug, Clone)]
pub enum Step {
    /// A fault program with further arguments; `on_server` pins it to core 0, else to core 1.
    Fault {
        /// Which.
        fault: Fault,
        /// When.
        schedule: &'static str,
        /// `--strength`.
        strength: f64,
        /// Whether it runs on the application's core.
        on_server: bool,
        /// Another name for its task.
        task: Option<&'static str>,
    },
    /// A relay between the client and the server, instead of the veth pair: the part of packets, and their delay (us; 0:
    /// lost).
    Relay { part: f64, delay_us: u64 },
    /// nginx on the application's core, with so many requests a second.
    Nginx(f64),
    /// Receive processing of the server's side of the veth pair moves to the application's core.
    ReceiveOnServer,
    /// Receive processing of the server's side is done by a kernel thread on the application's core.
    ThreadedNapi,
    /// Firewall rules that every datagram of the flood is compared with, on the server's side.
    Firewall(usize),
    /// A quota of the CPU controller for the application: us of every period, us.
    Quota { quota_us: u64, period_us: u64 },
    /// A backend of the application, on the client's core, that delays its answers at these times.
    Behind(&'static str),
    /// A limit of the memory controller for the application, bytes.
    MemoryLimit(u64),
    /// A server that the application asks, on the client's core, at [`BEHIND_PORT`] of the loopback device.
    Backend(Program),
    /// A second client, in the client's namespace and on its core.
    Client(Program),
}

/// How the true share of a cause is known, independently of any recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The time that entries of a kind in a truth log cover of a request's leg.
    Overlap {
        /// The log: a fault's task, or `server`.
        log: &'static str,
        /// One of [`tailsight_lab::truth::kind`].
        kind: u64,
    },
    /// The service time that the request asked for: what its server really spent on it.
    Service,
    /// The time in which the server, which has one worker, served requests that it received before this one.
    Others,
    /// The time up to the beginning of its service in which the server, all of whose workers share a core or of which there is
    /// one, was in the service of other requests.
    Ahead,
    /// The time from when the host had the request until it had all those before it on the connection, by the relay's log.
    Recovery,
}

/// A cause whose true share can be computed.
#[derive(Debug, Clone, Copy)]
pub struct Truth {
    /// Named like one of these; their shares are added.
    pub causes: &'static [Cause],
    /// Only what samples put into functions with one of these names.
    pub functions: Option<Function>,
    /// How it is known.
    pub how: How,
}

/// Requests of one kind to the application.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// What is spoken.
    pub protocol: Kind,
    /// Whether in TLS.
    pub tls: bool,
    /// Requests a second.
    pub rate_per_s: f64,
    /// Connections.
    pub connections: u32,
    /// Requests that may be outstanding on a connection.
    pub outstanding: u32,
    /// Whether arrivals are evenly spaced; else the gaps are exponential.
    pub even: bool,
    /// The part of requests that store, 0 to 1.
    pub sets: f64,
}

/// An answer that is accepted.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// Its category.
    pub category: &'static str,
    /// One of these is in its name; empty: any name.
    pub names: &'static [&'static str],
    /// One of these categories is that of its first root; empty: any root or none.
    pub roots: &'static [&'static str],
    /// The function that it must name first.
    pub function: Option<Function>,
}

/// Whether "not known" is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It is not: the cause is to be seen.
    No,
    /// It is right to say that waits for the backend are not known.
    Calls,
    /// It is right to give no service leg, and wrong to give one.
    Service,
}

/// What was expected of an answer before it was seen.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The first cause is one of these.
    pub right: Vec<Answer>,
    /// True neighbours of them.
    pub partly: Vec<Answer>,
    /// Whether it is right not to know.
    pub unknown: Unknown,
}

/// A scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What is wrong, in words.
    pub about: &'static str,
    /// What is recorded.
    pub app: App,
    /// What loads it.
    pub load: Load,
    /// What is wrong.
    pub steps: Vec<Step>,
    /// Whether `record` itself decides how long it records, as it does for a user who gives no length.
    pub until_enough: bool,
    /// The leg that is diagnosed.
    pub leg: &'static str,
    /// The first cause must be one of these; empty: none is expected.
    pub expect: Vec<Cause>,
    /// What delayed the messages ahead, where the first cause is a queue.
    pub root: Option<Cause>,
    /// The function that must be named first under it.
    pub function: Option<Function>,
    /// Where nothing is wrong: all causes that may be named as making messages slower. Any other is wrong.
    pub may: Option<Vec<Cause>>,
    /// Causes of known share.
    pub truth: Vec<Truth>,
    /// How a user would take the answer, where that is judged in more than two outcomes.
    pub reading: Option<Reading>,
}

impl Scenario {
    /// What is expected first, in words.
    pub fn expected(&self) -> String {
        let words = |c: &Cause| format!("{} {}", c.category, c.name).trim().to_owned();
        if let Some(reading) = &self.reading {
            return reading.expected();
        }
        if self.expect.is_empty() {
            return "nothing of the application".to_owned();
        }
        let causes = self.expect.iter().map(words).collect::<Vec<_>>().join(" or ");
        self.function.map_or(causes.clone(), |f| format!("{causes} ▸ {}", f.names.join(" or ")))
    }
}

/// The synthetic server with further arguments. Its short slice keeps other work of a shared machine from delaying it.
pub fn synthetic(arguments: &str) -> App {
    App::Own(
        ["synthetic", "--slice", "100us"].into_iter().chain(arguments.split_whitespace()).map(String::from).collect(),
    )
}

/// A load of the synthetic server.
pub fn plan() -> Plan {
    Plan::new(SocketAddr::new(SERVER_V4, PORT), ProbeProtocol::Synthetic)
}

/// A plain scenario: the synthetic server, 2,000 requests/s, the receive leg.
pub fn scenario(name: &'static str, about: &'static str, steps: Vec<Step>, expect: &[Cause]) -> Scenario {
    Scenario {
        name,
        about,
        app: synthetic(""),
        load: Load::Probe(plan()),
        steps,
        leg: "receive",
        until_enough: false,
        expect: expect.to_vec(),
        root: None,
        function: None,
        may: None,
        truth: Vec::new(),
        reading: None,
    }
}
