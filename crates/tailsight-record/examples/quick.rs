//! Records a port for some seconds and prints the description of the run: `quick PORT SECONDS DIR`.
use std::sync::atomic::AtomicBool;
use std::time::Duration;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let options = tailsight_record::Options {
        selector: tailsight_record::Selector::Port(a[1].parse().unwrap()),
        duration: Some(Duration::from_secs_f64(a[2].parse().unwrap())),
        out: a[3].clone().into(),
        buffer_bytes: None,
        hooks: Default::default(),
        version: "x".into(),
    };
    match tailsight_record::record(&options, &AtomicBool::new(false), &mut |_| {}) {
        Ok(o) => println!("{}\n{:?}", serde_json::to_string_pretty(&o.meta).unwrap(), o.error),
        Err(e) => println!("ERROR {e}"),
    }
}
