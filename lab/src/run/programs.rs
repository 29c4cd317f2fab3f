//! Servers in other languages with known functions: how each is built and started, its log, and the scenarios on them.
//!
//! In: the sources of `lab/programs`, which are part of this program. Out: a built server in the run's folder, the intervals that
//! it logged, the scenarios `function-*`. What a scenario needs and the machine does not have (a compiler, a runtime, symbols) is a
//! reason not to run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use tailsight_lab::faults::Fault;
use tailsight_lab::probe::{Plan, ProbeProtocol, Special};
use tailsight_lab::truth::{Interval, kind};
use tailsight_testbed::netns::SERVER_V4;

use super::scenario::{App, Cause, Function, How, Load, PORT, Program, Scenario, Step, Truth, any, named, scenario};
use super::stop::{Stop, installed};

/// The log of a program, in the run's folder.
pub const LOG: &str = "truth-program.txt";
/// Its name among the truth logs.
pub const TASK: &str = "program";

const ECHO: (&str, &str) = ("echo.h", include_str!("../../programs/echo.h"));
/// What every program in C or C++ includes, through another header.
pub const LOG_AND_LISTEN: (&str, &str) = ("log_and_listen.h", include_str!("../../programs/log_and_listen.h"));
const FUNCTIONS: Program = Program {
    sources: &[("functions.c", include_str!("../../programs/functions.c")), ECHO, LOG_AND_LISTEN],
    build: &["cc", "-O2", "-fomit-frame-pointer", "-o", "functions", "functions.c"],
    run: &["./functions"],
    mode: "slow",
    example: None,
    symbol: None,
};
const ALLOCATOR: Program = Program {
    sources: &[("allocator.c", include_str!("../../programs/allocator.c")), ECHO, LOG_AND_LISTEN],
    build: &["cc", "-O2", "-o", "allocator", "allocator.c"],
    run: &["./allocator"],
    mode: "-",
    example: None,
    symbol: None,
};
const MUTEX: Program = Program {
    sources: &[("mutex.cc", include_str!("../../programs/mutex.cc")), ECHO, LOG_AND_LISTEN],
    build: &["c++", "-O2", "-pthread", "-o", "mutex", "mutex.cc"],
    run: &["./mutex"],
    mode: "-",
    example: None,
    symbol: None,
};
const GO: Program = Program {
    sources: &[("heap.go", include_str!("../../programs/heap.go"))],
    build: &["go", "build", "-o", "heap", "heap.go"],
    run: &["./heap"],
    mode: "-",
    example: None,
    symbol: None,
};
const JAVA: Program = Program {
    sources: &[("Heap.java", include_str!("../../programs/Heap.java"))],
    build: &["javac", "Heap.java"],
    run: &["java", "-XX:+UseSerialGC", "-Xmx48m", "-Xmn8m", "-XX:+PreserveFramePointer", "-cp", ".", "Heap"],
    mode: "-",
    example: None,
    symbol: None,
};
const PYTHON: Program = Program {
    sources: &[("server.py", include_str!("../../programs/server.py"))],
    build: &[],
    run: &["python3", "server.py"],
    mode: "collect",
    example: None,
    symbol: Some("gc_collect_main"),
};
const NODE: Program = Program {
    sources: &[("server.js", include_str!("../../programs/server.js"))],
    build: &[],
    // The map for perf does not name functions that are inlined into others.
    run: &["node", "--perf-basic-prof", "--no-turbo-inlining", "server.js"],
    mode: "json",
    example: None,
    symbol: None,
};

const TOKIO: Program = Program {
    sources: &[],
    build: &[],
    run: &["./tokio_server"],
    mode: "-",
    example: Some("tokio_server"),
    symbol: None,
};

const OWN: &[Cause] = &[any("app-processing"), any("runtime")];

/// What a program needs and this machine does not have.
pub fn check(program: &Program) -> Result<(), Stop> {
    for word in program.build.first().into_iter().chain(program.run.first()).filter(|word| !word.starts_with('.')) {
        installed(word)?;
    }
    if let Some(example) = program.example
        && !built(example)?.is_file()
    {
        return Err(Stop::NotRun(format!("{example} is not built: cargo build -p tailsight-lab --example {example}")));
    }
    let Some(symbol) = program.symbol else { return Ok(()) };
    if has_symbol(program.run[0], symbol) {
        return Ok(());
    }
    Err(Stop::NotRun(format!(
        "the {} of this machine has no symbol {symbol}: its functions have no names",
        program.run[0]
    )))
}

/// Where an example program of this workspace is: beside this program.
fn built(example: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("cannot find this program")?;
    Ok(here.with_file_name("examples").join(example))
}

/// Whether Python's interpreter has a symbol, in its program or in the library beside it.
fn has_symbol(python: &str, symbol: &str) -> bool {
    const WHERE: &str = "import sys, sysconfig as s; print(sys.executable); \
                         print(s.get_config_var('LIBDIR') + '/' + (s.get_config_var('INSTSONAME') or ''))";
    let Ok(output) = Command::new(python).args(["-c", WHERE]).output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|path| std::fs::read(path).ok())
        .any(|bytes| bytes.windows(symbol.len()).any(|window| window == symbol.as_bytes()))
}

/// Writes the sources into a folder of the run's and builds them; gives that folder.
pub fn build(program: &Program, run: &Path) -> anyhow::Result<PathBuf> {
    let folder = run.join("program");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in program.sources {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    if let Some(example) = program.example {
        let link = folder.join(example);
        std::os::unix::fs::symlink(built(example)?, &link)
            .with_context(|| format!("cannot make the link {}", link.display()))?;
    }
    let Some((compiler, arguments)) = program.build.split_first() else { return Ok(folder) };
    let output = Command::new(compiler)
        .args(arguments)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {compiler}"))?;
    if !output.status.success() {
        bail!("{}: {}", program.build.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(folder)
}

/// The intervals that a program logged, a line each: begin and end, CLOCK_MONOTONIC ns. `None` when it has no log. The last line may
/// be cut: the program was killed.
pub fn log(run: &Path) -> anyhow::Result<Option<Vec<Interval>>> {
    let file = run.join(LOG);
    if !file.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let entry = |line: &str| {
        let (begin, end) = line.split_once(' ').with_context(|| format!("{}: {line:?}", file.display()))?;
        Ok(Interval { begin_ns: begin.parse()?, end_ns: end.parse()?, kind: kind::RAN })
    };
    whole.lines().map(entry).collect::<anyhow::Result<_>>().map(Some)
}

/// A program under 1,000 requests a second, evenly spaced: a slow request, of less than a millisecond, is over before the
/// next comes. `record` ends when it has enough samples, as without a length.
fn of(
    name: &'static str,
    about: &'static str,
    program: Program,
    expect: &[Cause],
    names: &'static [&'static str],
) -> Scenario {
    let plan =
        Plan { rate_per_s: 1_000.0, even: true, ..Plan::new(SocketAddr::new(SERVER_V4, PORT), ProbeProtocol::Echo) };
    Scenario {
        app: App::Program(program),
        load: Load::Probe(plan),
        leg: "total",
        until_enough: true,
        function: Some(Function { names }),
        ..scenario(name, about, vec![], expect)
    }
}

/// As [`of`], with the share of the functions known from the program's log.
fn logged(name: &'static str, about: &'static str, program: Program, names: &'static [&'static str]) -> Scenario {
    let truth =
        Truth { causes: OWN, functions: Some(Function { names }), how: How::Overlap { log: TASK, kind: kind::RAN } };
    Scenario { truth: vec![truth], ..of(name, about, program, OWN, names) }
}

/// A table with a row that is changed, and one that is only read.
const TABLE: &str = "CREATE TABLE lab (id integer PRIMARY KEY, n bigint) WITH (fillfactor = 50);
INSERT INTO lab VALUES (1, 0), (2, 0), (3, 0);
";

/// PostgreSQL, under statements.
fn postgres() -> Vec<Scenario> {
    let server = |settings| App::Postgres { settings, setup: TABLE };
    let load = |usual, special| {
        let protocol = ProbeProtocol::Postgres { usual, special };
        Plan { rate_per_s: 1_000.0, even: true, ..Plan::new(SocketAddr::new(SERVER_V4, PORT), protocol) }
    };
    let update = load("UPDATE lab SET n = n + 1 WHERE id = 1", "");
    let commit = Plan {
        special: Some(Special { part: 0.03, flags: 0, service: None }),
        ..load("SELECT n FROM lab WHERE id = 2", "UPDATE lab SET n = n + 1 WHERE id = 3")
    };
    const ROW_LOCK: &[Cause] = &[any("lock-wait")];
    const WAITS: &[&str] = &["PostgreSQL waiting for a row or another heavyweight lock"];
    const COMMITS: &[&str] = &["PostgreSQL writing the log ahead of a commit"];
    let lock = Step::Fault { fault: Fault::RowLock, schedule: "4ms/60ms", strength: 1.0, on_server: false, task: None };
    let scenario_of = |name, about, steps, expect: &[Cause], names| Scenario {
        leg: "total",
        until_enough: true,
        function: Some(Function { names }),
        ..scenario(name, about, steps, expect)
    };
    vec![
        Scenario {
            // Commits do not wait for the disk: the lock alone is slow.
            app: server(&["synchronous_commit=off"]),
            load: Load::Probe(update),
            truth: vec![Truth {
                causes: ROW_LOCK,
                functions: None,
                how: How::Overlap { log: "lab-row-lock", kind: kind::HELD },
            }],
            ..scenario_of(
                "function-postgres-row",
                "PostgreSQL: another session locks the row that every request changes, 4 ms every 60 ms",
                vec![lock],
                ROW_LOCK,
                WAITS,
            )
        },
        Scenario {
            app: server(&[]),
            load: Load::Probe(commit),
            ..scenario_of(
                "function-postgres-commit",
                "PostgreSQL: 3 % of requests commit a change, the others read",
                vec![],
                &[any("disk-wait")],
                COMMITS,
            )
        },
    ]
}

/// Scenarios whose slow function is known. The rule for each was written before its first run.
pub fn functions() -> Vec<Scenario> {
    let serial = JAVA;
    let g1 =
        Program { run: &["java", "-XX:+UseG1GC", "-Xmx48m", "-XX:+PreserveFramePointer", "-cp", ".", "Heap"], ..JAVA };
    let mut scenarios = vec![
        logged(
            "function-slow",
            "C: 3 % of requests call a slow function that others do not call",
            FUNCTIONS,
            &["rebuild_index"],
        ),
        logged(
            "function-calls",
            "C: 3 % of requests call the same function sixteen times as often",
            Program { mode: "calls", ..FUNCTIONS },
            &["look_up"],
        ),
        logged(
            "function-allocator",
            "C: 3 % of requests free and allocate 5,500 blocks",
            ALLOCATOR,
            &["refill_cache", "the C library allocating"],
        ),
        of(
            "function-mutex",
            "C++: a thread compacts a journal with a std::mutex held that every request takes",
            MUTEX,
            &[named("lock-wait", "compactor")],
            &["Journal::compact"],
        ),
        of("function-go-heap", "Go: a large heap, and 256 blocks a request", GO, OWN, &["Go collecting garbage"]),
        of(
            "function-java-serial",
            "Java: a small heap, the serial collector",
            serial,
            &[any("app-processing"), any("runtime"), any("lock-wait")],
            &["Java collecting garbage"],
        ),
        of(
            "function-java-g1",
            "Java: a small heap, the G1 collector",
            g1,
            &[any("app-processing"), any("runtime"), any("lock-wait")],
            &["Java collecting garbage"],
        ),
        logged(
            "function-python-collect",
            "CPython: 3 % of requests collect garbage",
            PYTHON,
            &["CPython collecting garbage"],
        ),
        of(
            "function-python-thread",
            "CPython: another thread computes for 4 ms every 60 ms with the interpreter's lock",
            Program { mode: "thread", symbol: Some("take_gil"), ..PYTHON },
            &[any("app-processing"), any("runtime"), any("lock-wait")],
            &["CPython waiting for the interpreter's lock", "compute", "CPython's interpreter"],
        ),
        logged(
            "function-node-json",
            "Node: 3 % of requests parse a large document",
            NODE,
            &["parseDocument", "JsonParse"],
        ),
        logged(
            "function-node-sort",
            "Node: 3 % of requests sort an array",
            Program { mode: "sort", ..NODE },
            &["sortTable", "ArrayTimSort", "ArrayPrototypeSort"],
        ),
        logged(
            "function-tokio-blocking",
            "Rust: in 3 % of requests a task calls a function that sleeps for 4 ms, on the only worker of tokio",
            TOKIO,
            &["fetch_profile"],
        ),
    ];
    scenarios.extend(postgres());
    scenarios
}
