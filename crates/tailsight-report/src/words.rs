//! Words for what the data names shortly: contexts of a core, and the functions that messages queue in.
//!
//! In: the names of `more` in a diagnosis. Out: text for the terminal and the page.

use tailsight_diagnose::Diagnosis;

/// What ran on a core, in words: `own` is the application's thread working for the message, `ahead` for those before it.
pub(crate) fn context(d: &Diagnosis, name: &str) -> String {
    let app = if d.app.is_empty() { "the target" } else { &d.app };
    match name {
        "own" => format!("{app} for the message"),
        "ahead" => format!("{app} for others before it"),
        "blocked" => "asleep".into(),
        "unknown" => "not known".into(),
        "profiler" => "tailsight's hooks".into(),
        other => match other.strip_prefix("sibling:") {
            Some(thread) => format!("{thread} (other thread)"),
            None => other.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_say_whose_time_it_was() {
        let d: Diagnosis = serde_json::from_value(serde_json::json!({
            "schema": 1, "run": "r", "app": "redis", "leg": "receive",
            "messages": {"total": 0, "complete": 0, "incomplete": {}}, "latency_ns": {},
            "focus": {"from": 0.99, "to": 1.0, "messages": 0, "mean_ns": 0},
            "reference": {"from": 0.45, "to": 0.55, "messages": 0, "mean_ns": 0},
            "causes": [], "coverage": {"overall": 1.0, "p50": 1.0, "min": 1.0},
            "loss": {"events": 0, "clock_error_ns": 0}, "overhead": {"ns_per_event": 0.0, "events": 0},
        }))
        .expect("the contract");
        assert_eq!(context(&d, "own"), "redis for the message");
        assert_eq!(context(&d, "sibling:bio_1"), "bio_1 (other thread)");
        assert_eq!(context(&d, "nginx"), "nginx");
    }
}
