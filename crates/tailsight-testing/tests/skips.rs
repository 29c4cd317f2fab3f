//! Skipped tests are seen: their line stands at the beginning of a line in the harness's output, where
//! `scripts/test.sh` looks for it, and nothing in the workspace says it in another way.

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Run by the test below.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn skips_two_things() {
    tailsight_testing::skip_part("IPv6", "this kernel has none");
    tailsight_testing::skip("no such\nserver");
}

#[test]
fn the_list_of_skipped_tests_has_each_by_name_with_its_reason() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "skips_two_things", "--ignored", "--show-output", "--test-threads", "2"])
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
        "SKIPPED skips_two_things (IPv6): this kernel has none\nSKIPPED skips_two_things: no such server\n",
        "{said}"
    );
}

/// A file of this process's own.
fn tempfile(text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tailsight-skips-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn nothing_else_in_the_workspace_prints_a_skip() {
    let mut others = Vec::new();
    for folder in ["crates", "lab"] {
        sources(&repository().join(folder), &mut |path, text| {
            if path.components().any(|part| part.as_os_str() == "tailsight-testing") {
                return;
            }
            for (number, line) in text.lines().enumerate() {
                let says = ["SKIPPED", "skipped:", "passed over:"].iter().any(|word| line.contains(word));
                if says
                    && ["print!", "println!", "write!", "writeln!", "format!"].iter().any(|print| line.contains(print))
                {
                    others.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        });
    }
    assert!(others.is_empty(), "use tailsight_testing::skip:\n{}", others.join("\n"));
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
