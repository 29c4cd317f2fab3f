//! Writes a report of a made-up run: `cargo run -p tailsight-report --example page -- FILE.html [MESSAGES [OTHERS]]`. With OTHERS the
//! whole focus and so many other messages have their timelines, as in `tailsight report`. web/bench.mjs measures with it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

#[path = "../tests/synthetic/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod synthetic;

use tailsight_report::{html, terminal};

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or_else(|| "report.html".into());
    let messages = args.next().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let others = args.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let run = synthetic::run_with(messages, others);
    let style = terminal::Style { color: true, width: 100 };
    print!("{}", terminal::diagnosis_of(&run.diagnosis, Some(&run.meta), &style));
    print!("\n{}", terminal::record_summary(&run.meta, &style, false));
    let began = std::time::Instant::now();
    let page = run.with_input(html::report);
    let took = began.elapsed();
    std::fs::write(&file, &page)?;
    println!("\n{file}: {} bytes, {messages} messages, {} timelines, made in {took:?}", page.len(), run.paths.len());
    Ok(())
}
