//! Values of the tables' files, read as what a field needs.

use toml::Value;

/// A field and what is wrong with it.
pub(super) type Wrong = (String, String);

/// True or false.
pub(super) fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("true or false is needed, not {value}"))
}

/// A text.
pub(super) fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("a text is needed, not {value}"))
}

/// A list of texts.
pub(super) fn list(value: &Value) -> Result<Vec<String>, String> {
    strings(value).ok_or_else(|| format!("a list of texts is needed, not {value}"))
}

/// The same, if it is one.
pub(super) fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
}
