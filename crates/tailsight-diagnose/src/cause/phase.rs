//! Which phase of the method (NSight §5.2) finds a cause, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which phase found a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// 1.
    Contexts,
    /// 2.
    Gaps,
    /// 3.
    Functions,
    /// 4.
    Overlaps,
}

/// How the focus differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Few of the ordinary messages have it.
    Unexpected,
    /// It takes longer each time.
    Slower,
    /// It happens more often.
    MoreFrequent,
    /// Nothing ran for the message.
    Gap,
    /// Something ran for another message.
    Overlap,
    /// The focus has less of it.
    Less,
}

/// What a phase says about a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub phase: Phase,
    /// How.
    pub how: How,
}

/// An absent value as an empty text: how the JSON has always had it.
pub(crate) mod or_empty {
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
    use serde::de::IntoDeserializer;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, clippy::missing_errors_doc)] // What serde asks for.
    pub fn serialize<T: Serialize, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(to),
            None => to.serialize_str(""),
        }
    }

    #[allow(clippy::missing_errors_doc)]
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() { Ok(None) } else { T::deserialize(text.into_deserializer()).map(Some) }
    }

    pub fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<T>(), { "const": "" }] })
    }
}
