//! Prints docs/schema.md: `cargo run -p tailsight-trace --example schema_page > docs/schema.md`.

fn main() {
    print!("{}", tailsight_trace::schema_page::markdown());
}
