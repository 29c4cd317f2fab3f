//! The servers of `lab/programs/modern`: how each is built and started. In: their sources, which are part of this program. Out: [`Program`]s.

use super::super::programs::LOG_AND_LISTEN;
use super::super::scenario::Program;

/// A source by its name.
macro_rules! source {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../programs/modern/", $name)))
    };
}

/// A program in Go beside what they share.
macro_rules! go {
    ($name:literal, $mode:literal) => {
        Program {
            sources: &[source!($name), source!("truth.go")],
            build: &["go", "build", "-o", "server", $name, "truth.go"],
            run: &["./server"],
            mode: $mode,
            example: None,
            symbol: None,
        }
    };
}

/// A script of an interpreter.
macro_rules! script {
    ($interpreter:literal, $name:literal, $mode:literal) => {
        Program {
            sources: &[source!($name)],
            build: &[],
            run: &[$interpreter, $name],
            mode: $mode,
            example: None,
            symbol: None,
        }
    };
}

/// A server of Debian's with a file.
macro_rules! configured {
    ($name:literal, $run:expr) => {
        Program { sources: &[source!($name)], build: &[], run: $run, mode: "", example: None, symbol: None }
    };
}

/// The class on the JDK's HttpServer, without Nagle's algorithm, which that has on by default.
macro_rules! java {
    ($mode:literal) => {
        Program {
            sources: &[source!("Http.java")],
            build: &["javac", "Http.java"],
            run: &["java", "-Xmx128m", "-Dsun.net.httpserver.nodelay=true", "-cp", ".", "Http"],
            mode: $mode,
            example: None,
            symbol: None,
        }
    };
}

/// An example of this package.
macro_rules! example {
    ($name:literal, $run:expr, $mode:literal) => {
        Program { sources: &[], build: &[], run: $run, mode: $mode, example: Some($name), symbol: None }
    };
}

pub const ASYNCIO_OVERLOAD: Program = script!("python3", "asyncio_http.py", "overload");
pub const ASYNCIO_BLOCK: Program = script!("python3", "asyncio_http.py", "block");
pub const ASYNCIO_CLEAN: Program = script!("python3", "asyncio_http.py", "clean");
pub const GIL: Program = script!("python3", "gil.py", "-");
pub const NODE_SYNC: Program = script!("node", "node_http.js", "sync");
pub const NODE_POOL: Program = script!("node", "node_http.js", "pool");
pub const NODE_PLAIN: Program = script!("node", "node_http.js", "plain");
pub const JAVA_POOL: Program = java!("pool");
pub const JAVA_MONITOR: Program = java!("monitor");
pub const JAVA_CLEAN: Program = java!("clean");
pub const GO_MUTEX: Program = go!("go_mutex.go", "-");
pub const GO_POOL: Program = go!("go_pool.go", "-");
pub const GO_GC: Program = go!("go_gc.go", "-");
pub const GO_SELECT: Program = go!("go_select.go", "-");
pub const GO_PLAIN: Program = go!("go_plain.go", "-");
pub const GO_H2C: Program = go!("go_h2.go", "h2c");
pub const GO_H2_TLS: Program = go!("go_h2.go", "tls");
pub const BACKEND: Program = go!("backend.go", "-");
pub const TOKIO: Program = example!("tokio_server", &["./tokio_server"], "-");
pub const TOKIO_MUTEX: Program = example!("tokio_http", &["./tokio_http"], "mutex");
pub const TOKIO_FAIR: Program = example!("tokio_http", &["./tokio_http"], "fair");
pub const REDIS_KEYS: Program = script!("python3", "redis_client.py", "keys");
pub const REDIS_BGSAVE: Program = script!("python3", "redis_client.py", "bgsave");
pub const REDIS_PIPELINE: Program = script!("python3", "redis_client.py", "pipeline");
pub const HAPROXY_HTTP: Program = configured!("haproxy_http.cfg", &["haproxy", "-db", "-f", "haproxy_http.cfg"]);
pub const HAPROXY_TCP: Program = configured!("haproxy_tcp.cfg", &["haproxy", "-db", "-f", "haproxy_tcp.cfg"]);
pub const NGINX_PROXY: Program =
    configured!("nginx_proxy.conf", &["nginx", "-p", "./", "-e", "error.log", "-c", "nginx_proxy.conf"]);
pub const NGINX: Program =
    configured!("nginx_plain.conf", &["nginx", "-p", "./", "-e", "error.log", "-c", "nginx_plain.conf"]);
pub const CONVOY: Program = Program {
    sources: &[source!("convoy.cc"), source!("http.h"), LOG_AND_LISTEN],
    build: &["c++", "-O2", "-pthread", "-o", "convoy", "convoy.cc"],
    run: &["./convoy"],
    mode: "-",
    example: None,
    symbol: None,
};
pub const PAGE_CACHE: Program = Program {
    sources: &[source!("page_cache.c"), source!("http.h"), LOG_AND_LISTEN],
    build: &["cc", "-O2", "-pthread", "-o", "page_cache", "page_cache.c"],
    run: &["./page_cache"],
    mode: "-",
    example: None,
    symbol: None,
};
/// The lab's other server in Python, in which nothing is wrong in this mode.
pub const PYTHON_ECHO: Program = Program {
    sources: &[("server.py", include_str!("../../../programs/server.py"))],
    build: &[],
    run: &["python3", "server.py"],
    mode: "plain",
    example: None,
    symbol: None,
};
/// Its child that saves runs on the other core, as an administrator would have it.
pub const REDIS: Program = Program {
    sources: &[],
    build: &[],
    run: &[
        "redis-server",
        "--port",
        "7000",
        "--bind",
        "0.0.0.0",
        "--protected-mode",
        "no",
        "--save",
        "",
        "--appendonly",
        "no",
        "--enable-debug-command",
        "yes",
        "--bgsave_cpulist",
        "1",
        "--dir",
        ".",
    ],
    mode: "",
    example: None,
    symbol: None,
};
