//! Prints the host report of this machine as a table, or as JSON with `--json`; `-p PID` adds a process.
//!
//! In: the live host. Out: text on stdout.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]
#![warn(missing_docs)]

use tailsight_host::{HostReport, Root};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let pid = args.iter().position(|a| a == "-p").and_then(|i| args.get(i + 1)?.parse().ok());
    let report = HostReport::collect(&Root::host(), pid);
    if args.iter().any(|a| a == "--json") {
        println!("{}", serde_json::to_string_pretty(&report).expect("the report is plain data"));
    } else {
        print!("{}", report.table(args.iter().any(|a| a == "--color"), 110));
    }
}
