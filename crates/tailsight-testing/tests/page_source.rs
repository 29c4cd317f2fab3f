//! The page's source in web/ is as its formatter writes it, and its linter finds nothing.

use std::path::Path;
use std::process::Command;

#[test]
fn the_source_of_the_page_is_formatted_and_has_no_warning() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let biome = web.join("node_modules/.bin/biome");
    let lacking = tailsight_testing::lacks_page_packages().or_else(|| {
        (!biome.exists()).then(|| "web/node_modules is older than web/package-lock.json: `npm ci` in web/".to_owned())
    });
    if let Some(reason) = lacking {
        return tailsight_testing::skip(reason);
    }
    // What `npm run lint` calls: the formatting and the rules.
    let mut check = Command::new(biome);
    check.args(["check", "--error-on-warnings", "--colors=off", "."]).current_dir(&web);
    let output = check.output().expect("biome starts");
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "`npm run format` in web/ puts the formatting right\n{shown}");
}
