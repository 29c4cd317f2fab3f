//! What a diagnosis says. In: the output of `diagnose --json`. Out: its causes ([`Named`]) and its coverage.

use serde::{Deserialize, Serialize};

/// As in `diagnose --json`: over all focus messages, their median and least.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Coverage {
    pub overall: f64,
    pub p50: f64,
    pub min: f64,
}

/// A cause as the diagnosis names it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Named {
    pub category: String,
    pub name: String,
    pub role: String,
    pub share: f64,
    pub deviation_ns: i64,
    pub evidence: Vec<u32>,
    /// What delayed the messages ahead, of a queue: category and name, the largest first.
    pub root: Vec<(String, String)>,
    /// The same with their shares of the delay, and their functions.
    pub roots: Vec<InQueue>,
    /// Of a cause that is a process, or several of one name: their pids.
    pub pids: Vec<u32>,
    /// The subject, as data.
    pub subject: Subject,
    /// The kinds of the frames that its name goes on with.
    pub frames: Vec<String>,
    /// The functions that samples put it into, the largest first.
    pub functions: Vec<InFunction>,
}

/// A function's part of a cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InFunction {
    /// Its name, behind it what a runtime does there: `gc_collect_main: CPython collecting garbage`.
    pub name: String,
    /// Its part of the cause, 0 to 1.
    pub share: f64,
}

/// What delayed the messages ahead.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct InQueue {
    /// Its category.
    pub category: String,
    /// Its name.
    pub name: String,
    /// Its part of all the delay, 0 to 1.
    pub share: f64,
    /// The functions that samples put it into, the largest first.
    pub functions: Vec<InFunction>,
}

/// The subject of a cause, as in `diagnose --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Subject {
    /// `task`, `frame`, `named` …
    pub kind: String,
    /// Of a task its name; of what the category table has a name for, that.
    pub name: String,
    /// Of a frame, which.
    pub frame: Frame,
}

/// A frame of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// `vector`, `softirq` …
    pub kind: String,
    /// Which.
    pub of: String,
}

/// The causes of `diagnose --json` but `unexplained` and `not-significant`, by rank.
pub fn causes(diagnosis: &serde_json::Value) -> Vec<Named> {
    let text = |cause: &serde_json::Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let numbers = |list: &serde_json::Value| -> Vec<u32> {
        list.as_array().into_iter().flatten().filter_map(|n| u32::try_from(n.as_u64()?).ok()).collect()
    };
    let causes = diagnosis["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes
        .iter()
        .map(|cause| Named {
            category: text(cause, "category"),
            name: text(cause, "name"),
            role: text(cause, "role"),
            share: cause["share"].as_f64().unwrap_or(0.0),
            deviation_ns: cause["deviation_ns"].as_i64().unwrap_or(0),
            evidence: numbers(&cause["evidence"]),
            root: cause["root"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|root| (text(root, "category"), text(root, "name")))
                .collect(),
            roots: cause["root"].as_array().into_iter().flatten().map(in_queue).collect(),
            pids: numbers(&cause["who"]["pids"]),
            subject: Subject::deserialize(&cause["subject"]).unwrap_or_default(),
            frames: cause["frames"].as_array().into_iter().flatten().map(|frame| text(frame, "kind")).collect(),
            functions: in_functions(cause),
        })
        .filter(|cause| cause.category != "unexplained" && cause.category != "not-significant")
        .collect()
}

fn in_queue(root: &serde_json::Value) -> InQueue {
    let text = |key: &str| root[key].as_str().unwrap_or_default().to_owned();
    InQueue {
        category: text("category"),
        name: text("name"),
        share: root["share"].as_f64().unwrap_or(0.0),
        functions: in_functions(root),
    }
}

/// The functions of a cause or of a root.
fn in_functions(of: &serde_json::Value) -> Vec<InFunction> {
    of["functions"].as_array().into_iter().flatten().map(in_function).collect()
}

fn in_function(part: &serde_json::Value) -> InFunction {
    let mut name = part["name"].as_str().unwrap_or_default().to_owned();
    if let (Some(runtime), Some(does)) = (part["runtime"]["of"].as_str(), part["runtime"]["does"].as_str()) {
        name += &format!(": {runtime} {does}");
    }
    InFunction { name, share: part["share"].as_f64().unwrap_or(0.0) }
}

/// The paper's coverage, and the part that has an owner. Before `owned` was told apart, `coverage` was that one.
pub fn coverage(diagnosis: &serde_json::Value) -> (Option<Coverage>, Option<Coverage>) {
    let coverage_of = |key: &str| {
        let number = |part: &str| diagnosis[key][part].as_f64();
        Some(Coverage { overall: number("overall")?, p50: number("p50")?, min: number("min")? })
    };
    if diagnosis["owned"].is_object() {
        (coverage_of("coverage"), coverage_of("owned"))
    } else {
        (None, coverage_of("coverage"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_diagnosis_that_has_one_figure_has_no_coverage_as_in_the_paper() {
        let figure = |p50| json!({"overall": 0.5, "p50": p50, "min": 0.25});
        let (coverage, owned) = coverage(&json!({"coverage": figure(0.9)}));
        assert!(coverage.is_none() && owned.unwrap().p50 == 0.9);
        let (coverage, owned) = super::coverage(&json!({"coverage": figure(0.9), "owned": figure(1.0)}));
        assert_eq!((coverage.unwrap().p50, owned.unwrap().p50, coverage.unwrap().min), (0.9, 1.0, 0.25));
    }
}
