//! The JSON schemas of what commands print, and the views of events for SQL. In: files of `schema/` in this crate. Out: their texts.

/// What `schema` calls the views of events.
pub const EVENTS: &str = "events";

/// What `schema` prints.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCHEMAS.into_iter().map(|(name, _)| name).chain([EVENTS])
}

/// The schemas, by the command that prints what they are of.
pub const SCHEMAS: [(&str, &str); 9] = [
    ("doctor", include_str!("../schema/doctor.json")),
    ("record", include_str!("../schema/record.json")),
    ("diagnose", include_str!("../schema/diagnose.json")),
    ("show", include_str!("../schema/show.json")),
    ("fix", include_str!("../schema/fix.json")),
    ("import", include_str!("../schema/import.json")),
    ("ideal", include_str!("../schema/ideal.json")),
    ("load", include_str!("../schema/load.json")),
    ("sweep", include_str!("../schema/sweep.json")),
];
