//! The rules for sleeps: those that no other test here has an example of, and the page of the manual that lists them all.
//!
//! `WRITE_PAGE=1` writes that page, docs/rules.md, from the heads of the rules' files.

use std::path::{Path, PathBuf};

use tailsight_lifetime::{Leg, Rule, Threshold, ThresholdUnit};
use tailsight_trace::event::Kind;

use crate::by_hand::{decides, event, path, recv, send, switch};
use crate::waits::{A, B, EPOLL, FUTEX, ONE, THREE, TWO, analyse, merged, request, waking};

const POLL: u64 = 7;

#[test]
fn the_interrupt_of_the_message_ends_the_sleep() {
    let serving = vec![switch(5, ONE, 0, EPOLL), switch(40, 0, ONE, 0), recv(50, A, ONE), send(60, A, ONE)];
    let interrupt = |ts, kind| event(ts, kind, 0, 0, [3, 0, 0]);
    let network = [
        vec![interrupt(9, Kind::SoftirqEntry)],
        request(10, A),
        vec![waking(12, 0, ONE), interrupt(20, Kind::SoftirqExit)],
    ];
    let analysis = analyse(vec![serving, network.concat()]);
    decides(&analysis, Rule::HandedOff);
    let path = path(&analysis, 50, Leg::Receive);
    assert!(path.iter().all(|(from, _, owner)| *from < 40 || !owner.contains("sleep")), "{path:?}");
}

/// A second request waits behind a sleep in a lock that another thread ended; that one had polled all the while.
#[test]
fn a_thread_that_polls_for_whatever_comes_holds_no_lock() {
    let serving = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(30, ONE, 0, FUTEX),
        switch(200_020, 0, ONE, 0),
        send(200_030, A, ONE),
        recv(200_100, B, ONE),
        send(200_200, B, ONE),
    ];
    let polls = vec![
        switch(6, TWO, 0, EPOLL),
        switch(200_000, 0, TWO, 0),
        waking(200_010, TWO, ONE),
        switch(200_015, TWO, 0, EPOLL),
    ];
    let requests = merged([request(10, A), request(100, B)].concat());
    let analysis = analyse(vec![serving, polls, requests]);
    decides(&analysis, Rule::HoldsNothing);
    let path = path(&analysis, 200_100, Leg::Receive);
    assert!(path.contains(&(101, 200_000, "blocked/sleep:epoll_pwait".into())), "{path:?}");
}

/// log4j's console: a worker had its lock, and wrote to a full pipe whose reader slept. The lock was "perhaps held by python3", the reader.
#[test]
fn who_has_a_lock_and_writes_to_a_full_pipe_has_it_still() {
    const WRITE: u64 = 1;
    const NANOSLEEP: u64 = 35;
    let serving = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(30, ONE, 0, FUTEX),
        switch(200_050, 0, ONE, 0),
        send(200_060, A, ONE),
    ];
    let logging = vec![
        switch(6, 0, TWO, 0),
        switch(25, TWO, 0, WRITE),
        switch(200_030, 0, TWO, 0),
        waking(200_040, TWO, ONE),
        switch(200_045, TWO, 0, FUTEX),
    ];
    let reading = vec![
        switch(2, 0, THREE, 0),
        switch(4, THREE, 0, NANOSLEEP),
        switch(200_000, 0, THREE, 0),
        waking(200_020, THREE, TWO),
        switch(200_025, THREE, 0, NANOSLEEP),
    ];
    let analysis = analyse(vec![serving, logging, reading, request(10, A).to_vec()]);
    decides(&analysis, Rule::HolderWrites);
    let path = path(&analysis, 20, Leg::Service);
    assert!(path.contains(&(30, 200_020, "sibling:two/sleep:futex/sleep:write/woken-by:three".into())), "{path:?}");
}

/// Varnish, Puma: the thread that received a message waited in poll for the next client, and "the server itself waits in poll" had its time.
#[test]
fn a_thread_that_waits_for_its_next_client_has_put_the_message_aside() {
    let serving = vec![
        switch(5, 0, ONE, 0),
        recv(20, A, ONE),
        switch(30_000, ONE, 0, POLL),
        switch(300_010, 0, ONE, 0),
        recv(300_020, B, ONE),
        send(300_050, B, ONE),
        send(400_000, A, ONE),
    ];
    let requests = merged([request(10, A), request(299_990, B), vec![waking(300_000, 0, ONE)]].concat());
    let analysis = analyse(vec![serving, requests]);
    decides(&analysis, Rule::NextRequest);
    let path = path(&analysis, 20, Leg::Service);
    assert!(path.contains(&(30_000, 300_000, "blocked/sleep:poll/put-aside".into())), "{path:?}");
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The head of a rule's file: its paragraphs, and the file and name of its example.
fn head(rule: Rule) -> (Vec<String>, String, String) {
    let file = crate_folder().join(format!("src/path/rules/{}.rs", rule.id().replace('-', "_")));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let lines = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line[3..].trim());
    let mut paragraphs: Vec<String> =
        lines.collect::<Vec<_>>().join("\n").split("\n\n").map(|p| p.replace('\n', " ")).collect();
    let example = paragraphs.pop().unwrap_or_default();
    let words: Vec<&str> = example.split('`').collect();
    assert!(
        words.len() == 5 && words[0] == "Example: ",
        "{}: the head ends with its example: {example}",
        file.display()
    );
    (paragraphs, words[3].to_owned(), words[1].to_owned())
}

/// Each rule has a test in which it decides: a mark says so, beside what it decided.
#[test]
fn each_rule_has_an_example_in_which_it_decides() {
    for &rule in Rule::ALL {
        let (_, file, name) = head(rule);
        let text = std::fs::read_to_string(crate_folder().join(&file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let test = text.split(&format!("fn {name}(")).nth(1).unwrap_or_else(|| panic!("{file} has no test {name}"));
        let test = test.split("\n}\n").next().unwrap_or_default();
        assert!(test.contains(&format!("Rule::{rule:?})")), "{name} does not say that {rule:?} decides");
    }
}

#[test]
fn the_manual_lists_the_rules_as_they_are() {
    let mut page = String::from(
        "<!-- Made from crates/tailsight-lifetime/src/path/rules/; a test holds both against each other. -->\n\n\
         # Rules: what a sleep was for\n\n\
         A recording shows that a thread slept, in which call, and who or what ended that. What the sleep was *for*, rules say. They are asked in\n\
         this order, and the first that answers decides. `tailsight show RUN ID --why` prints which rules decided for a message, `tailsight diagnose\n\
         RUN --why` for the slow ones, and `--without-rule RULE` what the answer is without one. `lab replay DIR --without-rule RULE` prints what that\n\
         changes in a folder of recordings. To change a rule, change its file, `crates/tailsight-lifetime/src/path/rules/`.\n\n\
         | | rule | it says |\n|---|---|---|\n",
    );
    for (rule, number) in Rule::ALL.iter().zip(1..) {
        page += &format!("| {number} | [`{0}`](#{0}) | {1} |\n", rule.id(), rule.says());
    }
    for &rule in Rule::ALL {
        let (paragraphs, file, name) = head(rule);
        let example = format!("Example: `{name}` in `crates/tailsight-lifetime/{file}`.");
        page += &format!("\n## {}\n\n{}\n\n{example}\n", rule.id(), paragraphs.join("\n\n"));
    }
    let file: PathBuf = crate_folder().join("../../docs/rules.md");
    if std::env::var_os("WRITE_PAGE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/rules.md is not what the rules say: WRITE_PAGE=1 cargo test -p tailsight-lifetime rules"
    );
}

#[test]
fn the_manual_lists_the_thresholds_as_they_are() {
    let mut page = String::from(
        "<!-- Made from crates/tailsight-lifetime/src/model/threshold.rs; a test holds both against each other. -->\n\n\
         # Thresholds: from how much on something counts\n\n\
         The numbers that decide which answer a diagnosis gives. `tailsight diagnose RUN --why --json` prints them, `--threshold NAME=VALUE` says\n\
         what the answer is with another one, and `lab replay DIR --threshold NAME=VALUE` what that changes in a folder of recordings. `lab replay DIR\n\
         --vary 2` does so with each of them, doubled and halved ([what it found](../evidence/2026-11-30-thresholds.md)).\n\n\
         | threshold | value | why |\n|---|---|---|\n",
    );
    for threshold in Threshold::ALL {
        let value = threshold.value();
        let shown = match threshold.unit() {
            ThresholdUnit::Ns => format!("{value} ns"),
            ThresholdUnit::Count => format!("{value}"),
            ThresholdUnit::Share => format!("{} %", (value * 1e6).round() / 1e4),
            ThresholdUnit::Times => format!("{value} times"),
        };
        page += &format!("| `{}` | {shown} | {} |\n", threshold.id(), threshold.why());
    }
    let file: PathBuf = crate_folder().join("../../docs/thresholds.md");
    if std::env::var_os("WRITE_PAGE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "docs/thresholds.md is not what the code says: WRITE_PAGE=1 cargo test -p tailsight-lifetime rules"
    );
}

/// A number that decides is in the list, where it has a reason, is printed and can be varied.
#[test]
fn no_threshold_is_outside_of_the_list() {
    // What is known of clocks, what is forgotten after so long, and what only makes things faster.
    const NOT_THRESHOLDS: [&str; 11] = [
        "UNKNOWN_SPEED",
        "WANDER",
        "STEP_SPEED",
        "STEP_NS",
        "FARTHEST_NS",
        "NEARLY_ALL",
        "AROUND_NS",
        "LONG_NS",
        "EARLY_WITHIN_NS",
        "NEVER_READ_NS",
        "LONGEST_NS",
    ];
    let mut folders = vec![crate_folder().join("src"), crate_folder().join("../tailsight-diagnose/src")];
    let (mut files, mut outside, mut excepted) = (0, vec![], std::collections::BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let constants = code.lines().filter_map(|line| line.trim_start().split_once("const ")?.1.split_once(": "));
            let deciding = constants.filter(|(name, value)| value.starts_with("f64 =") || name.ends_with("_NS"));
            for (name, _) in deciding {
                match NOT_THRESHOLDS.iter().find(|other| **other == name) {
                    Some(other) => drop(excepted.insert(*other)),
                    None => outside.push(format!("{}: {name}", path.display())),
                }
            }
        }
    }
    assert!(files > 100, "{files} files");
    assert_eq!(excepted.len(), NOT_THRESHOLDS.len(), "an exception that is not needed: {excepted:?}");
    assert!(outside.is_empty(), "numbers that decide belong into model/threshold.rs: {outside:#?}");
}
