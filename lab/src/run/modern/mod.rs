//! Modern servers: event loops, thread pools, goroutines, tasks, proxies, databases, caches, and the machine below them. In: nothing. Out: a
//! [`Scenario`] each, with what is expected of the answer, written before its first run; how a user would take it ([`reading`]).
//!
//! `lab run modern` runs all. They are recorded and diagnosed as a user would without options: 3 s, the leg that `diagnose` takes by itself.

mod load;
mod page;
mod programs;
mod reading;

use std::net::SocketAddr;
use std::time::Duration;

use tailsight_lab::faults::Fault;
use tailsight_lab::probe::{Plan, ProbeProtocol, Special};
use tailsight_lab::truth::kind;
use tailsight_protocol::Kind;
use tailsight_testbed::netns::SERVER_V4;

use super::catalogue::MACHINE;
use super::programs::TASK;
use super::scenario::{
    Answer, App, Cause, DEFAULT_LEG, How, Load, PORT, Program, Reading, Scenario, Step, Stream, Truth, Unknown, any,
    named, scenario,
};

pub use load::load;
pub use page::page;
pub use reading::Taken;

use reading::of;

/// How long a run is recorded.
pub const DURATION: Duration = Duration::from_secs(3);
/// How long a server is loaded before: one that runs for a while has compiled what it calls often.
pub const WARM: Duration = Duration::from_secs(3);
/// How often a run is made at most, while the ones before were disturbed.
pub const TRIES: u32 = 3;

/// A wait that a runtime's own scheduler ends: no event shows what it was for.
const IN_RUNTIME: Answer = of("app-processing").called(&["waits in", "Go waiting on a channel"]);
/// The thread's own sleep.
const OWN_SLEEP: Answer = of("app-processing").called(&["nanosleep"]);
/// The application's own work.
const OWN_WORK: Answer = of("app-processing").called(&["user"]);
const QUEUE: Answer = of("hol-blocking");
const LOCK: Answer = of("lock-wait");
const BACKEND: Answer = of("backend-wait");

/// A scenario with its reading.
fn modern(
    name: &'static str,
    about: &'static str,
    app: App,
    load: Load,
    right: &[Answer],
    partly: &[Answer],
) -> Scenario {
    let expect: Vec<Cause> = right.iter().map(Answer::cause).collect();
    Scenario {
        app,
        load,
        leg: DEFAULT_LEG,
        reading: Some(Reading { right: right.to_vec(), partly: partly.to_vec(), unknown: Unknown::No }),
        ..scenario(name, about, vec![], &expect)
    }
}

/// HTTP/1.1 requests to a program.
fn http(
    name: &'static str,
    about: &'static str,
    program: Program,
    rate: f64,
    right: &[Answer],
    partly: &[Answer],
) -> Scenario {
    modern(name, about, App::Program(program), Load::Product(vec![Stream::http(rate)]), right, partly)
}

/// With the overlap of a log as the true share of these causes.
fn with_truth(scenario: Scenario, causes: &'static [Cause]) -> Scenario {
    let how = How::Overlap { log: TASK, kind: kind::RAN };
    Scenario { truth: vec![Truth { causes, functions: None, how }], ..scenario }
}

fn with_steps(scenario: Scenario, steps: &[Step]) -> Scenario {
    Scenario { steps: steps.to_vec(), ..scenario }
}

fn with_unknown(scenario: Scenario, unknown: Unknown) -> Scenario {
    let reading = scenario.reading.map(|reading| Reading { unknown, ..reading });
    Scenario { reading, ..scenario }
}

fn fault(fault: Fault, schedule: &'static str, strength: f64, on_server: bool) -> Step {
    Step::Fault { fault, schedule, strength, on_server, task: None }
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    [event_loops(), threads(), goroutines(), tasks(), multiplexed(), proxies(), databases(), machine(), clean()]
        .concat()
}

fn event_loops() -> Vec<Scenario> {
    const QUEUED: &[Cause] = &[any("hol-blocking")];
    const OWN: &[Cause] = &[any("app-processing"), any("hol-blocking")];
    vec![
        with_truth(
            http(
                "asyncio-overload",
                "asyncio: each request computes, awaits and computes again, and one core is too busy with the others",
                programs::ASYNCIO_OVERLOAD,
                950.0,
                &[QUEUE],
                &[IN_RUNTIME],
            ),
            QUEUED,
        ),
        with_truth(
            http(
                "node-sync",
                "Node: one request in 50 derives a key synchronously for 8 ms",
                programs::NODE_SYNC,
                500.0,
                &[OWN_WORK],
                &[],
            ),
            OWN,
        ),
        http(
            "node-pool",
            "Node: each request has a key derived by libuv's two worker threads, which are busy",
            programs::NODE_POOL,
            450.0,
            &[QUEUE, of("app-processing").called(&["libuv-worker", "(other thread)"])],
            &[IN_RUNTIME],
        ),
        with_truth(
            http(
                "asyncio-block",
                "asyncio (uvicorn where it is installed): one request in 50 calls a library that blocks the loop for 6 ms",
                programs::ASYNCIO_BLOCK,
                500.0,
                &[OWN_SLEEP],
                &[],
            ),
            OWN,
        ),
    ]
}

fn threads() -> Vec<Scenario> {
    const LOCKED: &[Cause] = &[any("lock-wait")];
    const QUEUED: &[Cause] = &[any("lock-wait"), any("hol-blocking"), any("runtime")];
    const POOL: &[Cause] = &[any("hol-blocking"), any("app-processing")];
    vec![
        with_truth(
            http(
                "java-pool",
                "Java: both threads of a fixed pool wait for something else for 20 ms, twice in a thousand requests",
                programs::JAVA_POOL,
                2_000.0,
                &[QUEUE],
                &[IN_RUNTIME, OWN_SLEEP],
            ),
            POOL,
        ),
        with_truth(
            http(
                "java-monitor",
                "Java: a thread that refreshes a table is for 5 ms in the monitor that each request enters",
                programs::JAVA_MONITOR,
                1_000.0,
                &[LOCK],
                &[IN_RUNTIME],
            ),
            LOCKED,
        ),
        http(
            "cpp-convoy",
            "C++: each request writes a journal, which takes 250 us of waiting, with the one std::mutex held",
            programs::CONVOY,
            2_000.0,
            &[LOCK, QUEUE],
            &[IN_RUNTIME],
        ),
        with_truth(
            http(
                "python-gil",
                "CPython: a thread of a ThreadPoolExecutor computes for 60 ms in one request of 400, and others wait for the interpreter's lock",
                programs::GIL,
                800.0,
                &[QUEUE, LOCK, of("runtime").called(&["waiting for the interpreter's lock"])],
                &[IN_RUNTIME, OWN_WORK],
            ),
            QUEUED,
        ),
    ]
}

fn goroutines() -> Vec<Scenario> {
    const HELD: &[Cause] = &[any("lock-wait"), any("hol-blocking")];
    vec![
        with_truth(
            http(
                "go-mutex",
                "Go: one request in 250 waits for 8 ms with the sync.Mutex held that each request locks",
                programs::GO_MUTEX,
                1_000.0,
                &[LOCK, QUEUE],
                &[IN_RUNTIME],
            ),
            HELD,
        ),
        http(
            "go-pool",
            "Go: the work of each request, 2 ms of waiting, is done by two workers behind a channel, which are busy",
            programs::GO_POOL,
            750.0,
            &[QUEUE],
            &[IN_RUNTIME],
        ),
        http(
            "go-gc",
            "Go: a large heap, and 1,024 blocks a request: the collector, and requests that assist it",
            programs::GO_GC,
            1_000.0,
            &[
                of("runtime").called(&["Go collecting garbage"]),
                of("app-processing").in_function(&["Go collecting garbage"]),
            ],
            &[of("hol-blocking").behind(&["app-processing", "runtime"])],
        ),
        with_steps(
            http(
                "go-select",
                "Go: a select on the answer of a backend and a time-out of 8 ms; one answer in 50 takes 12 ms",
                programs::GO_SELECT,
                500.0,
                &[BACKEND],
                &[IN_RUNTIME],
            ),
            &[Step::Backend(programs::BACKEND)],
        ),
    ]
}

fn tasks() -> Vec<Scenario> {
    const OWN: &[Cause] = &[any("app-processing"), any("hol-blocking")];
    const HELD: &[Cause] = &[any("lock-wait"), any("hol-blocking"), any("app-processing")];
    let echo = Plan { rate_per_s: 500.0, ..Plan::new(SocketAddr::new(SERVER_V4, PORT), ProbeProtocol::Echo) };
    vec![
        with_truth(
            modern(
                "tokio-blocking",
                "tokio: in 3 % of requests a task calls a function that sleeps for 4 ms, on the only worker",
                App::Program(programs::TOKIO),
                Load::Probe(echo),
                &[OWN_SLEEP.in_function(&["fetch_profile"])],
                &[],
            ),
            OWN,
        ),
        with_truth(
            http(
                "tokio-mutex",
                "tokio: one request in 250 waits for 8 ms with the std Mutex held that each request locks; two workers",
                programs::TOKIO_MUTEX,
                1_000.0,
                &[LOCK, QUEUE],
                &[IN_RUNTIME, OWN_SLEEP],
            ),
            HELD,
        ),
        with_truth(
            http(
                "tokio-fair",
                "tokio: one request in 300 computes for 6 ms without an await, and the tasks of others wait",
                programs::TOKIO_FAIR,
                1_500.0,
                &[QUEUE],
                &[OWN_WORK],
            ),
            OWN,
        ),
    ]
}

/// Connections that many requests share: no event tells which reply is whose.
fn multiplexed() -> Vec<Scenario> {
    let stream = |tls| {
        let protocol = Kind::Http2;
        Load::Product(vec![Stream { protocol, tls, connections: 4, outstanding: 32, ..Stream::http(600.0) }])
    };
    let with_unknown_service = |name, about, program, tls| {
        with_unknown(modern(name, about, App::Program(program), stream(tls), &[], &[]), Unknown::Service)
    };
    vec![
        with_unknown_service(
            "go-h2c",
            "Go: HTTP/2 in the clear; one request in 50 takes 6 ms, and later ones are answered before it",
            programs::GO_H2C,
            false,
        ),
        with_unknown_service(
            "go-h2-tls",
            "Go: HTTP/2 in TLS by ALPN; one request in 50 takes 6 ms, and later ones are answered before it",
            programs::GO_H2_TLS,
            true,
        ),
    ]
}

fn proxies() -> Vec<Scenario> {
    const BEHIND: &[Cause] = &[any("backend-wait")];
    let with_backend = |name, about, program, stream| {
        let scenario =
            modern(name, about, App::Configured(program), Load::Product(vec![stream]), &[BACKEND], &[IN_RUNTIME]);
        with_steps(with_truth(scenario, BEHIND), &[Step::Backend(programs::BACKEND)])
    };
    let few = Stream { connections: 4, outstanding: 16, ..Stream::http(500.0) };
    vec![
        with_backend(
            "haproxy-http",
            "haproxy in http mode: one answer of its server in 50 takes 12 ms",
            programs::HAPROXY_HTTP,
            Stream::http(500.0),
        ),
        with_unknown(
            with_backend(
                "haproxy-tcp",
                "haproxy in tcp mode, several requests outstanding on each of four connections: one answer of its server in 50 takes 12 ms",
                programs::HAPROXY_TCP,
                few,
            ),
            Unknown::Calls,
        ),
        with_backend(
            "nginx-proxy",
            "nginx with kept connections to its upstream: one answer of it in 50 takes 12 ms",
            programs::NGINX_PROXY,
            Stream::http(500.0),
        ),
    ]
}

fn databases() -> Vec<Scenario> {
    const TABLE: &str = "CREATE TABLE lab (id integer PRIMARY KEY, n bigint) WITH (fillfactor = 50);
INSERT INTO lab VALUES (1, 0), (2, 0), (3, 0);
";
    const ROW: &[Cause] = &[any("lock-wait")];
    const OWN: &[Cause] = &[any("app-processing"), any("hol-blocking")];
    let postgres = || App::Postgres { settings: &[], setup: TABLE };
    let statements = |rate_per_s, usual, special| {
        let protocol = ProbeProtocol::Postgres { usual, special };
        Plan { rate_per_s, even: true, ..Plan::new(SocketAddr::new(SERVER_V4, PORT), protocol) }
    };
    // So seldom that one commit is over before the next request comes: else the row is held by requests that wait for the disk.
    let update = statements(150.0, "UPDATE lab SET n = n + 1 WHERE id = 1", "");
    let commit = Plan {
        special: Some(Special { part: 0.03, flags: 0, service: None }),
        ..statements(1_000.0, "SELECT n FROM lab WHERE id = 2", "UPDATE lab SET n = n + 1 WHERE id = 3")
    };
    let redis = |name, about, client, sets, right: &[Answer], partly: &[Answer]| {
        let load = Load::Product(vec![Stream::redis(2_000.0, sets)]);
        with_steps(modern(name, about, App::Configured(programs::REDIS), load, right, partly), &[Step::Client(client)])
    };
    vec![
        with_steps(
            Scenario {
                truth: vec![Truth {
                    causes: ROW,
                    functions: None,
                    how: How::Overlap { log: "lab-row-lock", kind: kind::HELD },
                }],
                ..modern(
                    "postgres-row",
                    "PostgreSQL as it comes: another session locks the row that every request changes, 20 ms every 150 ms",
                    postgres(),
                    Load::Probe(update),
                    &[LOCK.in_function(&["PostgreSQL waiting for a row or another heavyweight lock"])],
                    &[],
                )
            },
            &[fault(Fault::RowLock, "20ms/150ms", 1.0, false)],
        ),
        modern(
            "postgres-commit",
            "PostgreSQL as it comes: 3 % of requests commit a change, which waits for the disk; the others read",
            postgres(),
            Load::Probe(commit),
            &[of("disk-wait").in_function(&["PostgreSQL writing the log ahead of a commit"])],
            &[],
        ),
        with_truth(
            redis(
                "redis-keys",
                "Redis: a client asks for the keys that match a pattern, 20 times a second, which looks at 80,000 keys",
                programs::REDIS_KEYS,
                0.0,
                &[OWN_WORK, QUEUE.behind(&["app-processing"])],
                &[QUEUE],
            ),
            OWN,
        ),
        redis(
            "redis-bgsave",
            "Redis: a save in the background every 400 ms forks, and what is written then faults",
            programs::REDIS_BGSAVE,
            0.5,
            &[
                of("paging"),
                of("app-processing").called(&["clone", "fork"]),
                QUEUE.behind(&["app-processing", "paging"]),
            ],
            &[QUEUE, OWN_WORK],
        ),
        with_truth(
            redis(
                "redis-pipeline",
                "Redis: another client sends 50 commands that sort at once, 60 times a second",
                programs::REDIS_PIPELINE,
                0.0,
                &[OWN_WORK, QUEUE],
                &[of("transmit-processing")],
            ),
            OWN,
        ),
        with_steps(
            modern(
                "memcached-beside",
                "memcached beside nginx on its core, which gets bursts of requests",
                App::Memcached,
                Load::Gets(5_000.0),
                &[of("interference").called(&["nginx"])],
                &[of("receive-processing").called(&["nginx"])],
            ),
            &[Step::Nginx(8_000.0)],
        ),
    ]
}

/// The machine is the cause.
fn machine() -> Vec<Scenario> {
    const HOG: &[Cause] = &[named("interference", "lab-hog")];
    const INTRUDER: &[Cause] = &[named("interference", "lab-intruder")];
    const STOPPED: &[Cause] = &[any("stopped")];
    const DISK: &[Cause] = &[any("disk-wait")];
    let logged = |scenario: Scenario, causes, log, kind| Scenario {
        truth: vec![Truth { causes, functions: None, how: How::Overlap { log, kind } }],
        ..scenario
    };
    let echo = Plan {
        rate_per_s: 1_500.0,
        connections: 2,
        ..Plan::new(SocketAddr::new([10, 78, 0, 1].into(), PORT), ProbeProtocol::Echo)
    };
    let nginx = |load| {
        let about = "nginx: a real-time task uses its core for 3 ms every 60 ms";
        modern(
            "nginx-fifo",
            about,
            App::Configured(programs::NGINX),
            load,
            &[of("interference").called(&["lab-intruder"])],
            &[],
        )
    };
    vec![
        with_steps(
            logged(
                http(
                    "go-hog",
                    "Go: another program computes on its core",
                    programs::GO_PLAIN,
                    1_500.0,
                    &[of("interference").called(&["lab-hog"])],
                    &[],
                ),
                HOG,
                "lab-hog",
                kind::RAN,
            ),
            &[fault(Fault::Hog, "8ms/80ms", 1.0, true)],
        ),
        with_steps(
            logged(
                http(
                    "node-stop",
                    "Node: SIGSTOP for 8 ms every 150 ms",
                    programs::NODE_PLAIN,
                    800.0,
                    &[of("stopped")],
                    &[],
                ),
                STOPPED,
                "lab-stopper",
                kind::STOPPED,
            ),
            &[fault(Fault::Stopper, "8ms/150ms", 1.0, false)],
        ),
        with_steps(
            modern(
                "python-loss",
                "Python: 3 % of the packets to it are lost, and those behind them wait",
                App::Program(programs::PYTHON_ECHO),
                Load::Probe(echo),
                &[of("tcp-recovery")],
                &[],
            ),
            &[Step::Relay { part: 0.03, delay_us: 0 }],
        ),
        with_steps(
            logged(nginx(Load::Product(vec![Stream::http(3_000.0)])), INTRUDER, "lab-intruder", kind::RAN),
            &[fault(Fault::Intruder, "3ms/60ms", 1.0, true)],
        ),
        with_truth(
            http(
                "c-disk",
                "C: 3 % of requests read 256 KiB of a file that is not in the page cache",
                programs::PAGE_CACHE,
                500.0,
                &[of("disk-wait")],
                &[],
            ),
            DISK,
        ),
    ]
}

/// Nothing is wrong, and the requests are evenly spaced: none waits for another one.
fn clean() -> Vec<Scenario> {
    let clean_server = |name, about, app| {
        let load = Load::Product(vec![Stream::http(400.0).evenly()]);
        Scenario { may: Some(MACHINE.to_vec()), ..modern(name, about, app, load, &[], &[]) }
    };
    vec![
        clean_server("clean-asyncio", "asyncio; nothing is wrong", App::Program(programs::ASYNCIO_CLEAN)),
        clean_server("clean-go", "Go; nothing is wrong", App::Program(programs::GO_PLAIN)),
        clean_server("clean-nginx", "nginx; nothing is wrong", App::Configured(programs::NGINX)),
        clean_server("clean-java", "Java; nothing is wrong", App::Program(programs::JAVA_CLEAN)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::*;

    #[test]
    fn each_situation_has_a_name_and_an_expectation_of_its_own() {
        let mut names: std::collections::HashSet<&str> =
            catalogue::all().iter().map(|scenario| scenario.name).collect();
        let scenarios = all();
        assert!(scenarios.len() >= 28, "{}", scenarios.len());
        let ids = include_str!("../../../../docs/categories.md");
        for scenario in &scenarios {
            assert!(names.insert(scenario.name), "{} twice", scenario.name);
            let reading = scenario.reading.as_ref().expect("a reading");
            let nothing = scenario.may.is_some() || reading.unknown == Unknown::Service;
            assert_eq!(reading.right.is_empty(), nothing, "{}", scenario.name);
            for answer in reading.right.iter().chain(&reading.partly) {
                assert!(ids.contains(&format!("| `{}` |", answer.category)), "{}: {}", scenario.name, answer.category);
            }
            for step in &scenario.steps {
                if let Step::Fault { schedule, .. } = step {
                    schedule.parse::<tailsight_lab::schedule::Schedule>().expect("a schedule");
                }
            }
        }
    }
}
