//! Writes a report of a made-up run: `cargo run -p tailsight-report --example page -- FILE.html [MESSAGES]`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use tailsight_report::{html, terminal};

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or_else(|| "report.html".into());
    let messages = args.next().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let run = synthetic::run(messages);
    let style = terminal::Style { color: true, width: 100 };
    print!("{}", terminal::diagnosis_of(&run.diagnosis, Some(&run.meta), &style));
    print!("\n{}", terminal::record_summary(&run.meta, &style));
    let page = run.with_input(html::report);
    std::fs::write(&file, &page)?;
    println!("\n{file}: {} bytes, {messages} messages", page.len());
    Ok(())
}
