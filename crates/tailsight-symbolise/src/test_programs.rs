//! Programs that tests run: a compiler, and what looks into its output.

use std::path::Path;
use std::process::Command;

/// What a program prints that runs in `dir` and has to succeed.
pub fn tool(program: &str, arguments: &[&str], dir: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(dir).output().expect("it runs");
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
