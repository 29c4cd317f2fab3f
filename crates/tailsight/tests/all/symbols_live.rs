//! Live recordings whose functions are known by other ways than samples of a program with symbols: by the place of a sleep in a call in
//! which servers wait for work, and by files that the recording did not have.

use std::path::Path;
use std::process::Command;

use crate::functions_live::{changed, first_function, recorded};
use crate::support::{Live, check_run, json, run, shown};

/// In one of 33 requests it waits in `epoll_wait` for something that comes after 2 ms, as PostgreSQL waits for a row.
const WAITS: [(&str, &str); 3] = [
    ("#include <poll.h>", "#include <poll.h>\n#include <sys/epoll.h>"),
    (
        "__attribute__((noinline)) static void serve(unsigned n) {",
        "static int nothing;\n\
         __attribute__((noinline)) static void wait_for_row(void) { struct epoll_event e; epoll_wait(nothing, &e, 1, 2); sink++; }\n\
         __attribute__((noinline)) static void serve(unsigned n) {\n\
         if (n % 33 == 0) { if (!nothing) nothing = epoll_create1(0); wait_for_row(); }",
    ),
    ("if (n % 33 == 0) rebuild_index();", ""),
];

#[test]
fn a_wait_in_epoll_for_a_message_has_its_place() {
    let test = "a_wait_in_epoll_for_a_message_has_its_place";
    if let Some(reason) = tailsight_testing::lacks_program("cc") {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = changed(&live, &WAITS, &["-O2"]).expect("it compiles");
    let Some((meta, d, text)) = recorded(&live, test, &[&program], 1_000.0, &[]) else { return };
    assert!(meta["sampling"]["sleeps"].as_u64().unwrap() > 0, "{meta:#}");
    let first = first_function(&d);
    assert_eq!((&first["name"], &first["waits"]), (&"wait_for_row".into(), &true.into()), "{d:#}");
    assert!(first["share"].as_f64().unwrap() > 0.8, "{first:#}");
    assert!(text.contains("where the threads slept"), "{text}");
}

#[test]
fn a_stripped_program_is_named_later() {
    let test = "a_stripped_program_is_named_later";
    let lacks = ["cc", "strip"].into_iter().find_map(tailsight_testing::lacks_program);
    if let Some(reason) = lacks {
        return tailsight_testing::skip_as(test, reason);
    }
    let Some(live) = Live::new(test) else { return };
    let program = changed(&live, &[], &["-O2", "-g", "-Wl,--build-id=sha1"]).expect("it compiles");
    let stripped = live.path("stripped");
    let status = Command::new("strip").args(["--strip-all", "-o", &stripped, &program]).status().expect("strip starts");
    assert!(status.success());
    let Some((_, d, _)) = recorded(&live, test, &[&stripped], 1_500.0, &[]) else { return };
    let before = first_function(&d)["name"].as_str().unwrap_or_default().to_owned();
    assert!(before.starts_with("stripped+0x"), "{d:#}");

    let out = live.path("run");
    let symbolise = |dir: &str| run(&["symbolise", &out, "-d", dir]);
    let output = symbolise(&live.path("absent"));
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    std::fs::create_dir(live.path("empty")).unwrap();
    let output = symbolise(&live.path("empty"));
    assert!(output.status.success() && shown(&output).contains("Missing:  stripped ("), "{}", shown(&output));
    // The program as it was built lies beside the run.
    let output = symbolise(Path::new(&program).parent().unwrap().to_str().unwrap());
    assert!(output.status.success() && shown(&output).contains("Found:    stripped ("), "{}", shown(&output));
    check_run(Path::new(&out));
    let output = run(&["diagnose", &out, "--leg", "service", "--json", "--focus", "p97..p100"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    let first = first_function(&json(&output)).clone();
    assert_eq!(first["name"], "rebuild_index", "{first:#}");
    // Where a function without a name begins, its file tells the line, too.
    assert!(first["source"].as_str().unwrap().starts_with("server.c:"), "{first:#}");
}
