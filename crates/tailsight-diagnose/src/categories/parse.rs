//! A category table from TOML text; every error names the file, the rule's number and the field.

use tailsight_kernel::syscalls::Wait;
use tailsight_lifetime::{Leg, Role};
use toml::{Table, Value};

use super::functions::FunctionTable;
use super::layer::{KINDS, TRANSPARENT};
use super::values::{Wrong, flag, list, text};
use super::{CONTEXTS, CategoryTable, Rule};
use crate::Error;
use crate::functions::parked::ParkedPlaces;

/// Placeholders of a rule's name.
const PLACEHOLDERS: [&str; 8] = ["{comm}", "{thread}", "{app}", "{frame}", "{syscall}", "{wait}", "{waker}", "{peer}"];

impl CategoryTable {
    /// Reads a table; `file` is its name for errors. Its `[[rule]]`s replace the built-in ones; its `[[functions]]`,
    /// `[[syscalls]]`, `[[softirqs]]`, `[[vectors]]` and `[[threads]]` go before them. A file of only the latter keeps the
    /// built-in rules.
    ///
    /// # Errors
    /// [`Error::Toml`] when the text is no TOML, [`Error::Rule`] for an unknown or missing field, a wrong type, an unknown
    /// category, leg, role, context or placeholder.
    pub fn parse(text: &str, file: &str) -> Result<CategoryTable, Error> {
        let table: Table = text
            .parse()
            .map_err(|e: toml::de::Error| Error::Toml { file: file.into(), why: e.to_string().trim_end().into() })?;
        let wrong =
            |rule: usize, field: &str, why: String| Error::Rule { file: file.into(), rule, field: field.into(), why };
        let named = |key: &str| KINDS.contains(&key) || key == TRANSPARENT;
        if let Some(other) = table.keys().find(|k| *k != "rule" && !named(k)) {
            let known = KINDS.map(|k| format!("[[{k}]]")).join(", ");
            return Err(wrong(0, other, format!("only [[rule]], {known} and {TRANSPARENT} are known at the top")));
        }
        let only_names = !table.is_empty() && !table.contains_key("rule");
        let functions =
            if table.keys().any(|k| named(k)) { FunctionTable::with(&table, file)? } else { FunctionTable::default() };
        if only_names {
            return Ok(CategoryTable { functions, ..CategoryTable::default() });
        }
        let Some(Value::Array(entries)) = table.get("rule") else {
            return Err(wrong(0, "rule", "there is no [[rule]] entry".into()));
        };
        let mut rules = Vec::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            let Value::Table(entry) = entry else {
                return Err(wrong(i + 1, "rule", "each rule must be a [[rule]] table".into()));
            };
            rules.push(rule(entry).map_err(|(field, why)| wrong(i + 1, &field, why))?);
        }
        Ok(CategoryTable { rules, functions, parked: ParkedPlaces::default() })
    }
}

fn rule(entry: &Table) -> Result<Rule, Wrong> {
    let mut out = Rule::default();
    for (field, value) in entry {
        out.set(field, value).map_err(|why| (field.clone(), why))?;
    }
    for field in ["category", "name"] {
        if !entry.contains_key(field) {
            return Err((field.into(), "it is missing".into()));
        }
    }
    if out.category.is_none() && out.wait.is_empty() {
        return Err(("category".into(), "{wait} needs the field `wait`: which stacks it holds for".into()));
    }
    Ok(out)
}

impl Rule {
    fn set(&mut self, field: &str, value: &Value) -> Result<(), String> {
        match field {
            // What the kernel stack of the sleep says.
            "category" if text(value)? == "{wait}" => {}
            "category" => self.category = Some(text(value)?.parse()?),
            "name" => self.name = template(text(value)?)?,
            "leg" => {
                for leg in list(value)? {
                    let leg = leg.parse::<Leg>().ok().filter(|l| *l != Leg::Total);
                    self.leg.push(leg.ok_or("the legs are receive, service and transmit")?);
                }
            }
            "role" => {
                self.role = Some(match text(value)? {
                    "A" => Role::A,
                    "R" => Role::R,
                    other => return Err(format!("{other:?} is no role: use A or R")),
                });
            }
            "context" => {
                for context in list(value)? {
                    self.context.push(known(&context, &CONTEXTS)?);
                }
            }
            "comm" => self.comm = list(value)?,
            "recorder" => self.recorder = Some(flag(value)?),
            "kernel" => self.kernel = Some(flag(value)?),
            "interrupt" => self.interrupt = Some(flag(value)?),
            "frame" => self.frame = list(value)?,
            "inside" => self.inside = list(value)?,
            "first" => self.first = list(value)?,
            "wait" => self.wait = list(value)?,
            "packet" => {
                self.packet = Some(match text(value)? {
                    "own" => true,
                    "foreign" => false,
                    other => return Err(format!("{other:?} is neither own nor foreign")),
                });
            }
            "syscall" => self.syscall = list(value)?,
            "waits_for" => {
                for wait in list(value)? {
                    let names = Wait::NAMES.map(|(name, _)| name);
                    let known = Wait::NAMES.iter().find(|(name, _)| *name == wait);
                    let known = known.ok_or_else(|| format!("{wait:?} is not one of {}", names.join(", ")))?;
                    self.waits_for.push(known.1);
                }
            }
            "uninterruptible" => self.uninterruptible = Some(flag(value)?),
            "nest" => self.nest = Some(flag(value)?),
            _ => return Err("there is no such field".into()),
        }
        Ok(())
    }
}

fn known(text: &str, of: &[&'static str]) -> Result<&'static str, String> {
    of.iter().find(|k| **k == text).copied().ok_or_else(|| format!("{text:?} is not one of {}", of.join(", ")))
}

fn template(text: &str) -> Result<String, String> {
    let mut rest = text.to_owned();
    for placeholder in PLACEHOLDERS {
        rest = rest.replace(placeholder, "");
    }
    if text.is_empty() || rest.contains(['{', '}']) {
        return Err(format!("{text:?} must be a name, with no other placeholders than {}", PLACEHOLDERS.join(" ")));
    }
    Ok(text.to_owned())
}
