//! Prints docs/schema.md: `cargo run -p tailsight-trace --example schema_page > docs/schema.md`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

fn main() {
    print!("{}", tailsight_trace::schema_page::markdown());
}
