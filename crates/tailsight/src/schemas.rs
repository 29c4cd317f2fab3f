//! The JSON schemas of what commands print, and the views of events for SQL. In: the types that are printed. Out: JSON Schema, draft 2020-12.
//!
//! Descriptions are the doc comments of the types and their fields. A schema allows fields that it does not name: outputs may grow.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

/// A command whose output has a schema.
pub struct Printed {
    /// The command.
    pub command: &'static str,
    /// What its output is.
    what: &'static str,
    /// The types of its output: one of them is printed.
    types: fn(&mut SchemaGenerator) -> Vec<Schema>,
}

macro_rules! printed {
    ($($command:literal $what:literal $($of:ty),+;)*) => {
        [$(Printed { command: $command, what: $what, types: |generator| vec![$(generator.subschema_for::<$of>()),+] },)*]
    };
}

/// The schemas, by the command that prints what they are of.
pub const SCHEMAS: [Printed; 11] = printed! {
    "doctor" "What this host can record, and which of its settings hurt tail latency." crate::commands::doctor::Report;
    "record" "What was recorded, how, on what, and what was lost." tailsight_trace::RunMeta;
    "watch" "A line each: what is watched (started), a capture, the end. Times are integer ns unless a field says otherwise."
        crate::commands::watch::lines::Started, crate::commands::watch::lines::Capture, crate::commands::watch::lines::Ended;
    "diagnose" "The causes of the latency of a slice of messages. Times are integer ns unless a field says otherwise."
        tailsight_diagnose::Diagnosis;
    "show" "One message: its path and what of it is deviation. Times are ns." tailsight_diagnose::show::Shown;
    "fix" "Fixes of a run (List), what one would change or changed (Made), what was put back (Undone), what is still changed (Status)."
        crate::commands::fix::json::List, crate::commands::fix::json::Made, crate::commands::fix::json::Undone,
        crate::commands::fix::json::Status;
    "tune" "Fixes that were tried one after the other, and which of them are kept. Times are ns, ratios latency with a fix over latency without it."
        crate::commands::tune_json::Tuning;
    "import" "What an Intel PT recording held." crate::commands::import_json::Import;
    "ideal" "Of a run (Ideal), of a queue (--model: Prediction), of a server that was measured (--calibrate or --calibration alone: Calibration)."
        tailsight_ideal::Ideal, tailsight_ideal::queue::predict::Prediction, tailsight_measure::capacity::Calibration;
    "load" "A latency under a load: a number with its interval, or N/A with the reason (Report); two servers in turn (--against TARGET: Comparison)."
        tailsight_measure::report::Report, tailsight_measure::in_turn::Comparison;
    "sweep" "Latency against load, or the highest rate that meets an objective." tailsight_measure::sweep::Sweep;
};

impl Printed {
    /// Its schema.
    pub fn schema(&self) -> Value {
        let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut types = (self.types)(&mut generator);
        let definitions = generator.take_definitions(false);
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": format!("https://tailsight.invalid/schema/{}.json", self.command),
            "title": format!("tailsight {} --json", self.command),
            "description": self.what,
            "$defs": definitions,
        });
        match (types.len(), types.pop()) {
            (1, Some(only)) => schema["$ref"] = only.get("$ref").cloned().unwrap_or_default(),
            (_, last) => schema["anyOf"] = types.into_iter().chain(last).map(Schema::to_value).collect(),
        }
        let mut schema = Schema::try_from(schema).unwrap_or_default();
        schemars::transform::transform_subschemas(&mut RecursiveTransform(plain), &mut schema);
        schema.to_value()
    }
}

/// Without what is only for Rust: widths of numbers, values for what is absent when read, links between items. Objects are
/// open, and what is left out where it has no value is never `null`.
fn plain(schema: &mut Schema) {
    schema.remove("format");
    schema.remove("default");
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        schema.remove("additionalProperties");
    }
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &String| required.as_array().is_some_and(|names| names.iter().any(|n| n == name));
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.iter_mut().filter(|(name, _)| !is_required(name)).for_each(|(_, property)| never_null(property));
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = without_links(text);
    }
}

/// Takes `null` from what a value may be.
fn never_null(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|type_name| type_name != "null");
        if let [only] = &types[..] {
            schema["type"] = only.clone();
        }
    }
    let Some(Value::Array(choices)) = schema.get_mut("anyOf") else { return };
    choices.retain(|choice| choice["type"] != "null");
    if let [only] = &choices[..] {
        let only = only.clone();
        if let (Some(schema), Value::Object(only)) = (schema.as_object_mut(), only) {
            schema.remove("anyOf");
            schema.extend(only);
        }
    }
}

/// The text of a doc comment with each link replaced by its words, on one line.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (words, after))) = rest.split_once('[').and_then(|(b, r)| Some((b, r.split_once(']')?))) {
        out += before;
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        let is_link = target.is_some() || words.starts_with('`');
        out += &if is_link { words.to_owned() } else { format!("[{words}]") };
        rest = target.map_or(after, |(_, after)| after);
    }
    (out + rest).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command line has the list for itself: it must not need the commands' types.
    #[test]
    fn the_command_line_has_every_schema() {
        let printed = SCHEMAS.iter().map(|printed| printed.command);
        assert!(printed.chain([crate::cli::EVENTS]).eq(crate::cli::SCHEMAS));
    }

    #[test]
    fn links_become_their_words() {
        assert_eq!(
            without_links("as [`Diagnosis::latency_ns`], [sends](crate::Send)\nor [0, 1]"),
            "as `Diagnosis::latency_ns`, sends or [0, 1]"
        );
        assert_eq!(without_links("an open [ bracket"), "an open [ bracket");
    }
}
