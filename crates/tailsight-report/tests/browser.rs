//! Hostile names in a browser (web/test/hostile.mjs): shown as text, never as markup, at any length.

use std::path::Path;

use tailsight_report::html;

use super::synthetic::{self, HOSTILE};

/// Why no test in Chromium can run here.
pub fn lacks_chromium(web: &Path) -> Option<String> {
    let lacking = tailsight_testing::lacks_program("node").or_else(|| tailsight_testing::lacks_program("chromium"));
    lacking.or_else(|| {
        let there = web.join("node_modules/playwright-core").is_dir();
        (!there).then(|| "web/node_modules is not installed: `npm ci` in web/".to_owned())
    })
}

#[test]
fn hostile_names_in_chromium_are_text() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    if let Some(reason) = lacks_chromium(&web) {
        return tailsight_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let quotes = "\"'><svg onload=alert(1)>&lt;{{7*7}}`".to_owned();
    // Invalid UTF-8 is replaced where names are read.
    let invalid = String::from_utf8_lossy(b"\xff\xfe-task").into_owned();
    let long = "x".repeat(10_240);
    for (i, name) in [HOSTILE.to_owned(), quotes, invalid, long].into_iter().enumerate() {
        let mut run = synthetic::run(5_000);
        for cause in &mut run.diagnosis.causes {
            if cause.name == HOSTILE || cause.name == "nginx" {
                (cause.name, cause.subject) = (name.clone(), None);
                cause.explanation = format!("{name} ran");
                cause.paths = vec![(name.clone(), 1)];
            }
        }
        run.lifetimes.flows[0].name.clone_from(&name);
        run.diagnosis.notes.push(name.clone());
        let file = dir.path().join(format!("{i}.html"));
        std::fs::write(&file, run.with_input(html::report)).expect("a file");
        tailsight_testing::run_browser_script(&web.join("test/hostile.mjs"), &[file.as_os_str(), name.as_ref()]);
    }
}
