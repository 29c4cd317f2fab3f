//! The TypeScript types of the page's data, made from the types that are written into the page.
//!
//! In: the schemas of these. Out: web/src/types.ts and web/src/load/types.ts, which the test here compares; `UPDATE_TYPES=1` writes them.

use std::collections::BTreeMap;
use std::fmt::Write;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

const HEAD: &str = "// Generated from the types of tailsight-report (src/page_types.rs): `UPDATE_TYPES=1 cargo test -p tailsight-report`. Do not edit.\n";

/// The types that `roots` refers to, one after the other by name.
fn types(roots: impl FnOnce(&mut SchemaGenerator)) -> String {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    roots(&mut generator);
    let mut out = HEAD.to_owned();
    for (name, schema) in generator.take_definitions(true) {
        out.push('\n');
        described(&mut out, &schema, "");
        let _ = writeln!(out, "export type {name} = {};", written(&schema, ""));
    }
    out
}

fn described(out: &mut String, schema: &Value, indent: &str) {
    if let Some(text) = schema["description"].as_str() {
        let _ = writeln!(out, "{indent}/** {} */", text.replace('\n', " ").replace("*/", "* /"));
    }
}

/// A type in TypeScript.
fn written(schema: &Value, indent: &str) -> String {
    let Some(schema_object) = schema.as_object() else { return "unknown".into() };
    let any = |subschemas: &Value| {
        joined(subschemas.as_array().into_iter().flatten().map(|subschema| written(subschema, indent)), " | ")
    };
    let mut parts: Vec<String> = Vec::new();
    if let Some(name) = schema_object.get("$ref").and_then(Value::as_str) {
        parts.push(name.rsplit('/').next().unwrap_or(name).to_owned());
    }
    if let Some(value) = schema_object.get("const") {
        parts.push(value.to_string());
    } else if let Some(Value::Array(values)) = schema_object.get("enum") {
        parts.push(joined(values.iter().map(Value::to_string), " | "));
    } else {
        match schema_object.get("type") {
            Some(Value::Array(types)) => {
                parts.push(joined(types.iter().filter_map(|t| plain(schema_object, t.as_str()?, indent)), " | "))
            }
            Some(Value::String(of_type)) => parts.extend(plain(schema_object, of_type, indent)),
            _ => {}
        }
    }
    parts.extend(["anyOf", "oneOf"].into_iter().filter_map(|key| schema_object.get(key)).map(any));
    let parts: Vec<String> = match parts.len() {
        0 | 1 => parts,
        _ => parts.into_iter().map(|part| if part.contains(" | ") { format!("({part})") } else { part }).collect(),
    };
    if parts.is_empty() { "unknown".into() } else { parts.join(" & ") }
}

fn joined(parts: impl Iterator<Item = String>, by: &str) -> String {
    parts.collect::<Vec<_>>().join(by)
}

/// One of JSON Schema's types; nothing for an object without properties beside other keywords.
fn plain(schema: &Map<String, Value>, of_type: &str, indent: &str) -> Option<String> {
    Some(match of_type {
        "integer" => "number".into(),
        "array" => array(schema, indent),
        "object" => return object(schema, indent),
        other => other.into(),
    })
}

fn array(schema: &Map<String, Value>, indent: &str) -> String {
    if let Some(Value::Array(items)) = schema.get("prefixItems") {
        return format!("[{}]", joined(items.iter().map(|item| written(item, indent)), ", "));
    }
    let item = schema.get("items").map_or("unknown".into(), |item| written(item, indent));
    match (schema.get("minItems").and_then(Value::as_u64), schema.get("maxItems").and_then(Value::as_u64)) {
        (Some(least), Some(most)) if least == most => format!("[{}]", joined((0..most).map(|_| item.clone()), ", ")),
        _ if item.contains(" | ") => format!("({item})[]"),
        _ => item + "[]",
    }
}

fn object(schema: &Map<String, Value>, indent: &str) -> Option<String> {
    let mut parts = Vec::new();
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(Value::Object(properties)) =
        schema.get("properties").filter(|_| !required.is_empty() || !is_map(schema))
    {
        let mut fields = String::from("{\n");
        let inner = format!("{indent}  ");
        // By name, whatever order the schema has.
        for (name, schema) in properties.iter().collect::<BTreeMap<_, _>>() {
            described(&mut fields, schema, &inner);
            let mark = if required.contains(&name.as_str()) { "" } else { "?" };
            let name = if name.contains(['.', '-']) { format!("{name:?}") } else { name.clone() };
            let _ = writeln!(fields, "{inner}{name}{mark}: {};", written(schema, &inner));
        }
        parts.push(fields + indent + "}");
    }
    let values = schema.get("additionalProperties").filter(|values| values.is_object());
    let by_pattern = schema.get("patternProperties").and_then(|patterns| patterns.as_object()?.values().next());
    if let Some(values) = values.or(by_pattern) {
        parts.push(format!("Record<string, {}>", written(values, indent)));
    }
    (!parts.is_empty()).then(|| parts.join(" & "))
}

/// Whether it maps names to values, with a property for each name that there can be.
fn is_map(schema: &Map<String, Value>) -> bool {
    schema.contains_key("patternProperties")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
        generator.subschema_for::<T>();
    }

    #[test]
    fn the_types_of_the_page_are_those_of_its_data() {
        let run = types(|generator| {
            add::<crate::html::Page>(generator);
            add::<crate::html::Bundle>(generator);
            add::<crate::html::Beside>(generator);
        });
        let load = types(add::<crate::load::page::Page>);
        for (file, text) in [("types.ts", run), ("load/types.ts", load)] {
            let file = format!("{}/../../web/src/{file}", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("UPDATE_TYPES").is_some() {
                std::fs::write(&file, &text).expect("the folder of the page's sources");
            }
            let there = std::fs::read_to_string(&file).expect("the page's sources");
            assert!(there == text, "{file} is old: UPDATE_TYPES=1 cargo test -p tailsight-report writes it");
        }
    }
}
