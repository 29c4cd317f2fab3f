//! Live recordings of servers whose slow function is known: it is the one that is named, and where samples are off nothing is.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tailsight_testbed::load::{Proto, Workload};
use tailsight_testbed::process::spawn_tied;
use tailsight_trace::Run;
use tailsight_trace::samples::{SampleRow, kind};

use crate::support::{Live, Quiet, address, check_run, json, run, shown};

pub(crate) const PORT: u16 = 21321;

/// HTTP on one thread. Of 33 requests one has its index rebuilt, by a function that no other request calls; all look it up.
const C_SERVER: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <poll.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
static volatile unsigned long sink;
/* Each round waits for the one before in a register. Sums kept in memory take one of two times here, by the processor's guess. */
static inline __attribute__((always_inline)) void spin(unsigned long rounds)
{
	unsigned long x = rounds;
	for (unsigned long i = 0; i < rounds; i++) {
		x = x * 6364136223846793005UL + i;
		__asm__ volatile("" : "+r"(x));
	}
	sink = x;
}
__attribute__((noinline)) static void rebuild_index(void) { spin(400000); }
__attribute__((noinline)) static void look_up(void) { spin(15000); }
__attribute__((noinline)) static void serve(unsigned n) { look_up(); if (n % 33 == 0) rebuild_index(); sink++; }
int main(int argc, char **argv)
{
	static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
	struct pollfd fds[64] = { { .fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN } };
	int used = 1, one = 1;
	unsigned n = 0;
	char buffer[4096];
	setsockopt(fds[0].fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fds[0].fd, (void *)&at, sizeof(at)) || listen(fds[0].fd, 64))
		return 1;
	for (;;) {
		poll(fds, used, -1);
		if (fds[0].revents && used < 64) {
			int fd = accept(fds[0].fd, 0, 0);
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			fds[used++] = (struct pollfd){ .fd = fd, .events = POLLIN };
		}
		for (int i = 1; i < used; i++) {
			if (!fds[i].revents)
				continue;
			ssize_t got = read(fds[i].fd, buffer, sizeof(buffer));
			if (got <= 0) {
				close(fds[i].fd);
				fds[i--] = fds[--used];
				continue;
			}
			serve(++n);
			if (write(fds[i].fd, reply, sizeof(reply) - 1) < 0)
				return 1;
		}
	}
}
"#;

/// The same in Python: of 33 requests one collects garbage.
const PYTHON_SERVER: &str = "
import gc, selectors, socket, sys
gc.disable()
kept = [[i, [i]] for i in range(120000)]
s = socket.create_server(('10.77.0.1', int(sys.argv[1])))
selector = selectors.DefaultSelector()
selector.register(s, selectors.EVENT_READ)
n = 0
while True:
    for key, _ in selector.select():
        if key.fileobj is s:
            c = s.accept()[0]
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(c, selectors.EVENT_READ)
            continue
        c = key.fileobj
        if not c.recv(4096):
            selector.unregister(c)
            c.close()
            continue
        n += 1
        sum(range(2000))
        if n % 33 == 0: gc.collect()
        c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
";

/// Records the server under load; gives run and the diagnosis of its service leg. `None` where it cannot be judged.
pub(crate) fn recorded(
    live: &Live,
    test: &str,
    command: &[&str],
    rate: f64,
    more: &[&str],
) -> Option<(serde_json::Value, serde_json::Value, String)> {
    let mut server = live.pair.server.command(Path::new(command[0]));
    server.args(&command[1..]).arg(PORT.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = spawn_tied(server, None, Signal::SIGKILL).expect("the program starts");
    let until = Instant::now() + Duration::from_secs(20);
    let answers = || std::net::TcpStream::connect(("10.77.0.1", PORT)).is_ok();
    while !live.pair.server.run(answers).expect("the namespace") {
        assert!(Instant::now() < until, "the server listens");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (out, pid) = (live.path("run"), server.id().to_string());
    let load = Workload::new(Proto::Http1, address(false, PORT)).rate(rate).connections(4);
    // At the usual rate it takes longer to have as many samples.
    let length = if more.contains(&"--sample") { "3s" } else { "6s" };
    let args = [&["record", "-d", length, "-p", &pid, "-o", &out, "--json"][..], more].concat();
    let output = Quiet::of(test, &out, "service", 0.03).recorded(|| {
        let (output, _) = live.under_load(std::slice::from_ref(&load), || run(&args));
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        check_run(Path::new(&out));
        output
    });
    let _ = server.kill();
    let _ = server.wait();
    let output = output?;
    let meta = json(&output);
    if !more.contains(&"--sample") {
        takes_little_of_a_core(&meta["sampling"]);
    }
    let (d, text) = diagnosed(live, "p97..p100");
    Some((meta, d, text))
}

/// Unless it was told how often, the clock ticks as often as what a tick was measured to take allows: 0.45 % of a core, and not less than
/// 199 times a second (on this machine, which has not so many cores that their number counts).
fn takes_little_of_a_core(sampling: &serde_json::Value) {
    let number = |name: &str| sampling[name].as_u64().unwrap_or_else(|| panic!("no {name} in {sampling:#}"));
    let (period_ns, tick_ns, cores) = (number("period_ns"), number("tick_ns"), number("cpus"));
    let part = tick_ns as f64 / period_ns as f64;
    assert!(tick_ns > 0 && (part <= 0.00451 || period_ns == 1_000_000_000 / 199), "{sampling:#}");
    assert!(period_ns <= 1_000_000_000 / 199 || cores > 80, "{sampling:#}");
    assert_eq!(number("others_one_in"), if period_ns > 1_000_000 { 1 } else { 2 }, "{sampling:#}");
}

/// The diagnosis of the service leg of the run that was recorded: as JSON and as text.
fn diagnosed(live: &Live, focus: &str) -> (serde_json::Value, String) {
    let out = live.path("run");
    let output = run(&["diagnose", &out, "--leg", "service", "--json", "--focus", focus]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let text = run(&["diagnose", &out, "--leg", "service", "--focus", focus]);
    (json(&output), String::from_utf8_lossy(&text.stdout).into_owned())
}

/// Like it, for calls that are traced: `slower` takes ten times as long in one of 33 requests, `oftener` is called ten times as often in
/// another; both in every request.
const TRACED: [(&str, &str); 2] = [
    (
        "__attribute__((noinline)) static void serve(unsigned n) {",
        "__attribute__((noinline)) static void slower(unsigned long n) { spin(n); }\n\
         __attribute__((noinline)) static void oftener(void) { spin(40000); }\n\
         __attribute__((noinline)) static void serve(unsigned n) {\n\
         slower(n % 33 == 0 ? 400000 : 40000);\n\
         for (int i = n % 33 == 16 ? 10 : 1; i > 0; i--) oftener();",
    ),
    ("if (n % 33 == 0) rebuild_index();", ""),
];

/// One that waits for a lock in `take_ticket` in one of 33 requests: another thread holds it in `print_tickets`.
const LOCKED: [(&str, &str); 3] = [
    ("#include <poll.h>", "#include <poll.h>\n#include <pthread.h>"),
    (
        "__attribute__((noinline)) static void serve(unsigned n) {",
        "static pthread_mutex_t tickets = PTHREAD_MUTEX_INITIALIZER;\nstatic volatile int printing;\n\
         static void *print_tickets(void *none) { for (;;) { pthread_mutex_lock(&tickets); if (printing) { usleep(1500); printing = 0; }\n\
         pthread_mutex_unlock(&tickets); usleep(50); } return none; }\n\
         __attribute__((noinline)) static void take_ticket(void) { pthread_mutex_lock(&tickets); sink++; pthread_mutex_unlock(&tickets); sink++; }\n\
         __attribute__((noinline)) static void serve(unsigned n) {\n\
         if (n % 33 == 0) { printing = 1; usleep(200); take_ticket(); }",
    ),
    ("if (n % 33 == 0) rebuild_index();", ""),
];

/// Two USDT probes of its own around a query, that takes longer in one of 33 requests. They are written as `sys/sdt.h` writes
/// them, which few machines have: a note tells the place, the place of the link, and the semaphore. The program meets them only while
/// its semaphore says that somebody listens, as PostgreSQL does.
const PROBED: [(&str, &str); 3] = [
    (
        "static volatile unsigned long sink;",
        r##"static volatile unsigned long sink;
unsigned short shop_semaphore __attribute__((section(".probes"))) = 0;
#define PROBE(name) __asm__ volatile( \
	"990: nop\n" \
	".pushsection .note.stapsdt,\"\",\"note\"\n" \
	".balign 4\n.4byte 992f-991f, 994f-993f, 3\n" \
	"991: .asciz \"stapsdt\"\n992: .balign 4\n" \
	"993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte shop_semaphore\n" \
	".asciz \"shop\"\n.asciz \"" name "\"\n.asciz \"\"\n994: .balign 4\n" \
	".popsection\n" \
	".ifndef _.stapsdt.base\n" \
	".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
	".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n" \
	".popsection\n.endif\n")"##,
    ),
    (
        "{ look_up(); if",
        r#"{
	if (*(volatile unsigned short *)&shop_semaphore) PROBE("query__start");
	spin(n % 33 ? 8000 : 400000);
	if (*(volatile unsigned short *)&shop_semaphore) PROBE("query__done");
	look_up(); if"#,
    ),
    ("if (n % 33 == 0) rebuild_index();", ""),
];

/// The largest cause of the application's own.
fn own(d: &serde_json::Value) -> &serde_json::Value {
    let of_its_own = |c: &&serde_json::Value| c["category"] == "app-processing" || c["category"] == "runtime";
    d["causes"].as_array().unwrap().iter().find(of_its_own).expect("own time is a cause")
}

/// The first function of it.
pub(crate) fn first_function(d: &serde_json::Value) -> &serde_json::Value {
    own(d)["functions"].as_array().and_then(|f| f.first()).unwrap_or(&serde_json::Value::Null)
}

/// The C server as a program, or why it cannot be built.
fn built(live: &Live) -> Option<String> {
    changed(live, &[], &["-O2"])
}

/// With some of its lines changed, built with these arguments.
pub(crate) fn changed(live: &Live, lines: &[(&str, &str)], args: &[&str]) -> Option<String> {
    let (source, program) = (live.path("server.c"), live.path("slow-server"));
    let text = lines.iter().fold(C_SERVER.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(args).args(["-fomit-frame-pointer", "-pthread", "-o", &program, &source]);
    compiler.status().ok()?.success().then_some(program)
}

#[test]
fn the_function_that_only_slow_requests_call_is_named() {
    let test = "the_function_that_only_slow_requests_call_is_named";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = built(&live).expect("it compiles");
    // As often as where a tick is cheap: from that rate on, slow messages get more of the samples.
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 1_500.0, &["--sample", "1997"]) else { return };
    let sampling = &meta["sampling"];
    assert!(sampling["samples"].as_u64().unwrap() > 50 && sampling["lost"] == 0, "{sampling}");
    samples_favour(&live, "rebuild_index");
    let first = first_function(&d);
    assert_eq!(first["name"], "rebuild_index", "{d:#}");
    assert!(first["share"].as_f64().unwrap() > 0.6 && first["module"] == "slow-server", "{first:#}");
    assert!(text.contains("▸ rebuild_index") && text.contains("Hot path of cause"), "{text}");
    assert!(!text.contains("page faults"), "no sample met one: {text}");
    let output = run(&["export", &live.path("run"), "--format", "collapsed"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let ns = |file: &str, function: &str| -> u64 {
        let text = std::fs::read_to_string(Path::new(&live.path("run")).join(file)).unwrap();
        let lines = text.lines().filter(|line| line.contains(function));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let [slow, usual] = ["focus.collapsed", "reference.collapsed"].map(|file| ns(file, "rebuild_index"));
    // How long it takes depends on the machine. Where that has other work, slow messages are slow for that, too, and of the median ones
    // one in 33 may call it, as of all.
    assert!(slow > 10_000 && usual < slow / 3, "{slow} ns of a slow message, {usual} ns of an ordinary one");
}

/// Of the run's samples those in this function, which only slow messages call, stand for one tick each; elsewhere they stand for two,
/// and for each of these there is a tick that took none.
fn samples_favour(live: &Live, function: &str) {
    let run = Run::open(Path::new(&live.path("run"))).unwrap();
    let samples_of = |weight: u16, inside: bool| {
        let within = |row: &&SampleRow| run.samples.stack(row.stack).any(|frame| frame.function == function) == inside;
        run.samples.rows.iter().filter(|row| row.kind == kind::CLOCK && row.weight == weight).filter(within).count()
    };
    let (inside, outside) = ([samples_of(1, true), samples_of(2, true)], [samples_of(1, false), samples_of(2, false)]);
    assert!(inside[0] > 2 * inside[1] && 2 * outside[1] > outside[0], "{inside:?} {outside:?}");
    let skipped = run.samples.rows.iter().filter(|row| row.kind == kind::SKIPPED).count();
    let cores = run.meta.host.cpus as usize;
    assert!(skipped.abs_diff(inside[1] + outside[1]) <= cores, "{skipped} skipped, {inside:?} {outside:?}");
    let said = run.meta.sampling.unwrap();
    assert_eq!((said.others_one_in, said.skipped as usize), (2, skipped));
}

#[test]
fn without_samples_nothing_of_them_is_there() {
    let test = "without_samples_nothing_of_them_is_there";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = built(&live).expect("it compiles");
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 1_500.0, &["--sample", "off"]) else { return };
    assert!(meta.get("sampling").is_none(), "{meta:#}");
    assert!(!Path::new(&live.path("run")).join("samples.arrow").exists());
    assert!(first_function(&d).is_null() && !text.contains("Hot path"), "{text}");
}

#[test]
fn a_collection_of_garbage_is_named_as_what_it_is() {
    let test = "a_collection_of_garbage_is_named_as_what_it_is";
    // The collector's functions are local to the interpreter: a stripped one (Debian's) has no name for them.
    let lacks = tailsight_testing::lacks_program("python3");
    if let Some(reason) = lacks.or_else(|| tailsight_testing::lacks_python_symbol("gc_collect_main")) {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let Some((_, d, text)) = recorded(&live, test, &["python3", "-c", PYTHON_SERVER], 400.0, &[]) else { return };
    let first = first_function(&d);
    assert_eq!(first["runtime"]["of"], "CPython", "{text}\n{d:#}");
    // Its program calls gc.collect(): that is the program's own work.
    assert_eq!(first["runtime"]["does"], "collecting garbage because its program asked for it: gc.collect()");
    let cause = own(&d);
    assert_eq!(cause["category"], "app-processing", "{text}");
    let fixes = cause["fix"].as_array().unwrap();
    assert!(fixes.iter().any(|fix| fix.as_str().unwrap().contains("gc.collect()")), "{cause:#}");
}

/// Of two functions one takes longer in slow requests, the other is called more often in them: each is told for what it is, to the call.
#[test]
fn a_traced_function_is_slower_or_called_more_often() {
    let test = "a_traced_function_is_slower_or_called_more_often";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = changed(&live, &TRACED, &["-O2"]).expect("it compiles");
    let traced = ["--uprobe", "slow-server:slower", "--uprobe", &format!("{program}:often*"), "--sample", "off"];
    let Some((meta, _, _)) = recorded(&live, test, &[&program], 500.0, &traced) else { return };
    // The slowest 6 of 100 are those with either fault.
    let (d, text) = diagnosed(&live, "p94..p100");
    let functions = meta["traced"]["functions"].as_array().unwrap();
    let calls = |name: &str| functions.iter().find(|f| f["name"] == name).unwrap()["calls"].as_u64().unwrap();
    assert!(functions.iter().all(|f| f["ends_by"] == "instructions" && f["off_ns"].is_null()), "{meta:#}");
    // Ten calls in one request of 33, one in the others.
    let ratio = calls("oftener") as f64 / calls("slower") as f64;
    assert!((ratio - 42.0 / 33.0).abs() < 0.03, "{ratio}");
    let causes = d["causes"].as_array().unwrap();
    let cause_of =
        |name: &str| causes.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no {name} in {text}"));
    let (slower, oftener) = (cause_of("function:slower"), cause_of("function:oftener"));
    assert_eq!((&slower["category"], &oftener["category"]), (&"app-processing".into(), &"app-processing".into()));
    assert_eq!(
        (&slower["how"], &oftener["how"]),
        (&"slower".into(), &"more-frequent".into()),
        "{slower:#} {oftener:#}"
    );
    let times = |c: &serde_json::Value| [c["times"][0].as_f64().unwrap(), c["times"][1].as_f64().unwrap()];
    // Each call takes many times what its traps take, so all are counted.
    assert!(
        (0.95..1.05).contains(&times(slower)[0]) && (0.95..1.05).contains(&times(oftener)[1]),
        "{slower:#} {oftener:#}"
    );
    assert!(times(oftener)[0] > 3.0, "{oftener:#}");
    assert!(text.contains("the server itself  slower"), "{text}");
}

/// A function that is called in a loop, which no server can bear to have traced.
#[test]
fn a_function_that_is_called_too_often_is_switched_off() {
    let test = "a_function_that_is_called_too_often_is_switched_off";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = built(&live).expect("it compiles");
    let traced =
        ["--uprobe", "slow-server:look_up", "--uprobe", "slow-server:rebuild_index", "--function-limit", "1000"];
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 1_500.0, &traced) else { return };
    let function = |name: &str| {
        let functions = meta["traced"]["functions"].as_array().unwrap();
        functions.iter().find(|f| f["name"] == name).unwrap().clone()
    };
    assert!(function("look_up")["off_ns"].is_u64() && function("rebuild_index")["off_ns"].is_null(), "{meta:#}");
    // It is taken away: what it counted is a part of the calls.
    assert!(function("look_up")["calls"].as_u64().unwrap() < 3_000, "{meta:#}");
    let warned =
        |texts: &serde_json::Value| texts.to_string().contains("look_up was called more than 1000 times a second");
    assert!(warned(&meta["warnings"]), "{meta:#}");
    let causes = d["causes"].as_array().unwrap();
    assert!(causes.iter().any(|c| c["name"] == "function:rebuild_index"), "{text}");
    assert!(!d.to_string().contains("function:look_up"), "no row of a part: {text}");
}

/// Where in the program it waited, and for whom.
#[test]
fn a_wait_says_where_in_the_program() {
    let test = "a_wait_says_where_in_the_program";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = changed(&live, &LOCKED, &["-O1"]).expect("it compiles");
    let source = std::fs::read_to_string(live.path("server.c")).unwrap();
    let source = source.replace(
        "\tfor (;;) {\n\t\tpoll(",
        "\tpthread_t t;\n\tpthread_create(&t, 0, print_tickets, 0);\n\tfor (;;) {\n\t\tpoll(",
    );
    std::fs::write(live.path("server.c"), source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fomit-frame-pointer", "-pthread", "-o", &program, &live.path("server.c")]);
    assert!(compiler.status().unwrap().success());
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 500.0, &[]) else { return };
    assert!(meta["sampling"]["sleeps"].as_u64().unwrap() > 0, "{meta:#}");
    let causes = d["causes"].as_array().unwrap();
    let wait = causes.iter().find(|c| c["category"] == "lock-wait").unwrap_or_else(|| panic!("{text}"));
    let first = &wait["functions"][0];
    assert!(first["waits"] == true, "{wait:#}\n{text}");
    // The row is of the thread that held it: where that one was.
    let path = first["path"].to_string() + first["name"].as_str().unwrap();
    assert!(path.contains("print_tickets") || path.contains("take_ticket"), "{wait:#}");
}

/// What is between two probes that the program itself has is a span of the message, met while the recording raises their semaphore.
#[test]
fn between_two_usdt_probes_is_a_span() {
    let test = "between_two_usdt_probes_is_a_span";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = changed(&live, &PROBED, &["-O2"]).expect("it compiles");
    let traced = ["--usdt", "slow-server:shop:query", "--uprobe", "slow-server:look_up", "--sample", "off"];
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 500.0, &traced) else { return };
    let functions = meta["traced"]["functions"].as_array().unwrap();
    let function_of = |kind: &str| functions.iter().find(|f| f["kind"] == kind).unwrap_or_else(|| panic!("{meta:#}"));
    let (query, look_up) = (function_of("usdt"), function_of("user"));
    assert_eq!((&query["name"], &query["ends_by"]), (&"shop:query".into(), &"probe".into()), "{query:#}");
    // Each request has one of both; at the ends of the recording one may have only one of them.
    let calls = [query, look_up].map(|f| f["calls"].as_u64().unwrap());
    assert!(calls[0] > 1_000 && calls[0].abs_diff(calls[1]) <= 4, "{calls:?}");
    let causes = d["causes"].as_array().unwrap();
    let cause = causes.iter().find(|c| c["name"] == "function:shop:query").unwrap_or_else(|| panic!("{text}"));
    assert_eq!((&cause["category"], &cause["how"]), (&"app-processing".into(), &"slower".into()), "{cause:#}");
    // More than half of what the application itself took longer: its share of the whole is less where a busy host is in the same messages.
    let ns = |cause: &serde_json::Value| cause["deviation_ns"].as_i64().unwrap();
    let own: i64 = causes.iter().filter(|c| c["category"] == "app-processing").map(ns).filter(|ns| *ns > 0).sum();
    assert!(ns(cause) > 200_000 && 2 * ns(cause) > own, "{cause:#}\n{text}");
    let refused = ["record", "-d", "1s", "-o", &live.path("refused"), "--usdt", &format!("{program}:shop:sale"), "--"];
    let output = run(&[&refused[..], &[&program, "1"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(crate::support::stderr(&output).contains("it has query__done, query__start"), "{}", shown(&output));
}
