//! `scripts/setup.sh` on a machine that misses packages of several kinds: it installs each kind, one after the other, and ends. What the
//! machine itself lacks of these does not count.
//!
//! The packages are not installed: `apt-get` is a program of the test that writes down what it is asked for.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// What this machine seems to miss: a compiler, which the build needs, both browsers, which the page's tests use, and a tool. No service is
/// among them, so nothing outside of the test's folder is written but the lock.
const MISSING: [&str; 4] = ["clang", "chromium", "firefox-esr", "shellcheck"];

#[test]
fn a_machine_that_misses_packages_and_browsers_gets_both() {
    if let Some(reason) = tailsight_testing::lacks_root() {
        return tailsight_testing::skip(reason);
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") {
        return tailsight_testing::skip("setup knows the page's packages on Debian only");
    }
    let folder = std::env::temp_dir().join(format!("tailsight-setup-{}", std::process::id()));
    let programs = folder.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    // Servers and tools that this machine may not have, so that none is missing; then everything that it has, but what is to be missing, and
    // node, whose packages would be fetched.
    for program in ["memcached", "nginx", "redis-server", "ip", "rpm", "cpio", "skopeo", "umoci", "crun"] {
        symlink("/bin/true", programs.join(program)).unwrap();
    }
    for file in std::fs::read_dir("/usr/bin").unwrap() {
        let name = file.unwrap().file_name();
        let hidden = MISSING.iter().chain(&["apt-get", "apt-cache", "node", "npm"]).any(|program| name == *program);
        if !hidden {
            // One of the programs above: it stays as it is.
            drop(symlink(Path::new("/usr/bin").join(&name), programs.join(&name)));
        }
    }
    let asked = folder.join("asked");
    let write_down = format!(r#"case $* in *simulate*) ;; *) echo "$@" >>'{}' ;; esac"#, asked.display());
    tailsight_testing::write_script(programs.join("apt-get"), &write_down);
    tailsight_testing::write_script(programs.join("apt-cache"), "exit 1");

    let cargo = Path::new(env!("CARGO")).parent().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup.sh");
    let output = Command::new("timeout")
        .arg("60")
        .arg(script)
        .arg("test")
        .env("PATH", format!("{}:{}", programs.display(), cargo.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let asked = std::fs::read_to_string(asked).unwrap_or_default();
    std::fs::remove_dir_all(&folder).unwrap();
    // The status of `timeout` when it had to end the script is 124.
    assert_eq!(output.status.code(), Some(0), "asked for: {asked}said: {said}");
    let installed: Vec<&str> = asked.lines().filter_map(|line| line.split("--no-install-recommends ").nth(1)).collect();
    assert_eq!(installed, ["clang", "chromium firefox-esr", "shellcheck"], "{said}");
}
