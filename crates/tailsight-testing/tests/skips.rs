//! Skipped tests are seen: their line stands at the beginning of a line in the harness's output, where
//! `scripts/test.sh` looks for it, and nothing in the workspace says it in another way.

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    // Canonical, or every path below it would name the folder of this crate.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Run by the test below.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn says_three_things() {
    tailsight_testing::skip_part("IPv6", "this kernel has none");
    tailsight_testing::skip("no such\nserver");
    tailsight_testing::not_judged("names_a_cause", "others had\n50 %");
}

#[test]
fn the_list_of_skipped_tests_has_each_by_name_with_its_reason() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "says_three_things", "--ignored", "--show-output", "--test-threads", "2"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let log = tempfile(&said);
    // The very function that `make test` lists them with.
    let listed = Command::new("bash")
        .arg("-c")
        .arg(format!(". {}/scripts/skips.sh; skipped_tests {}", repository().display(), log.display()))
        .output()
        .unwrap();
    std::fs::remove_file(&log).unwrap();
    assert_eq!(
        String::from_utf8(listed.stdout).unwrap(),
        "SKIPPED says_three_things (IPv6): this kernel has none\nSKIPPED says_three_things: no such server\n\
         NOT JUDGED names_a_cause: others had 50 %\n",
        "{said}"
    );
}

/// A file of this process's own.
fn tempfile(text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tailsight-skips-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

/// The files that may say it: the helper itself, and this one.
const MAY: [&str; 2] = ["crates/tailsight-testing/src/lib.rs", "crates/tailsight-testing/tests/skips.rs"];

/// The lines of a repository's Rust sources that print a skip by themselves.
fn others(repository: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["crates", "lab"] {
        sources(&repository.join(folder), &mut |path, text| {
            let path = path.strip_prefix(repository).unwrap();
            if MAY.iter().any(|may| path == Path::new(may)) {
                return;
            }
            for (number, line) in text.lines().enumerate() {
                let says = ["SKIPPED", "NOT JUDGED", "skipped:", "passed over:"].iter().any(|word| line.contains(word));
                let prints =
                    ["print!", "println!", "write!", "writeln!", "format!"].iter().any(|print| line.contains(print));
                // The print may stand on the line before.
                if ["\"SKIPPED", "\"NOT JUDGED"].iter().any(|begin| line.contains(begin)) || (says && prints) {
                    found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        });
    }
    found
}

#[test]
fn nothing_else_in_the_workspace_prints_a_skip() {
    let others = others(&repository());
    assert!(others.is_empty(), "use tailsight_testing::skip:\n{}", others.join("\n"));
}

/// The test above passed over every file: the repository's own path named the folder that it leaves out.
#[test]
fn a_skip_that_is_printed_by_hand_is_found_wherever_it_stands() {
    let planted = std::env::temp_dir().join(format!("tailsight-testing-planted-{}", std::process::id()));
    for (file, text) in [
        (MAY[0], "pub const MARK: &str = \"SKIPPED \";\n"),
        ("crates/two/tests/live.rs", "println!(\"NOT JUDGED {test}\");\n"),
        ("crates/tailsight-testing/tests/other.rs", "println!(\"SKIPPED {test}: no server\");\n"),
        ("crates/one/tests/live.rs", "fn live() {\n    println!(\n        \"SKIPPED {test}\"\n    );\n}\n"),
        ("lab/src/main.rs", "writeln!(out, \"passed over: {why}\")?;\nlet kind = kind::SKIPPED;\n"),
        ("lab/bench/main.rs", "fn main() {}\n"),
    ] {
        let path = planted.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut found = others(&planted);
    std::fs::remove_dir_all(&planted).unwrap();
    found.sort();
    let places: Vec<&str> = found.iter().filter_map(|line| line.split(": ").next()).collect();
    let expected = [
        "crates/one/tests/live.rs:3",
        "crates/tailsight-testing/tests/other.rs:1",
        "crates/two/tests/live.rs:1",
        "lab/src/main.rs:1",
    ];
    assert_eq!(places, expected, "{found:?}");
}

/// Every Rust source below a folder.
fn sources(folder: &Path, look: &mut impl FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            sources(&path, look);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            look(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}
