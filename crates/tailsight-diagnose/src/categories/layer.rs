//! Entries of the category table that map names to categories: functions, system calls, softirqs, vectors, kernel threads.
//!
//! In: the TOML of `data/stacks.toml` (which documents the fields), or of a user's table. Out: a
//! [`Layer`]: exact names in a map, wildcards and entries with conditions as lists in their order.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use toml::{Table, Value};

use super::meaning::Meaning;
use super::subsystems::Subsystems;
use super::values;
use crate::cause::Category;
use crate::{Error, glob};

/// The kinds of entries, by their key in the file.
pub(super) const KINDS: [&str; 5] = ["functions", "syscalls", "softirqs", "vectors", "threads"];
/// The key of the list of transparent functions.
pub(super) const TRANSPARENT: &str = "transparent";

/// Entries of one file; an earlier layer goes before a later one.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    meanings: Vec<Meaning>,
    /// Functions by exact name, and where they are found.
    exact: FxHashMap<String, usize>,
    /// Patterns over names, for what is not spelled out; read when a function is first looked up: most runs hold no function
    /// that has to be.
    subsystems: Option<&'static LazyLock<Subsystems>>,
    /// With surroundings, or a state of the thread.
    conditional: Vec<Conditional>,
    weak: Vec<Conditional>,
    wild: Vec<(Vec<String>, usize)>,
    transparent: Vec<String>,
    /// System calls, softirqs, vectors, threads.
    others: [Vec<Conditional>; 4],
}

/// An entry that holds only under conditions.
#[derive(Clone, Debug, Default)]
struct Conditional {
    names: Vec<String>,
    under: Vec<String>,
    asleep: Option<bool>,
    uninterruptible: Option<bool>,
    meaning: usize,
}

impl Layer {
    /// A layer that asks the kernel's subsystems for functions that it does not spell out.
    pub fn of_kernel(subsystems: &'static LazyLock<Subsystems>) -> Layer {
        Layer { subsystems: Some(subsystems), ..Layer::default() }
    }

    /// Categories with their sub-categories, each once a file.
    pub fn meanings(&self) -> impl Iterator<Item = &Meaning> {
        self.meanings.iter().chain(self.subsystems.iter().flat_map(|all| all.meanings()))
    }

    /// What a function means to which these called, nearest first. Conditions go before names, names before wildcards.
    pub fn function(&self, name: &str, callers: &[&str], asleep: bool) -> Option<&Meaning> {
        let fits = |c: &&Conditional| c.asleep.is_none_or(|a| a == asleep) && glob::any(&c.names, name);
        let fitting: Vec<&Conditional> = self.conditional.iter().filter(fits).collect();
        let below = |caller: &&str| fitting.iter().find(|c| glob::any(&c.under, caller));
        callers
            .iter()
            .find_map(below)
            .or_else(|| fitting.iter().find(|c| c.under.is_empty()))
            .map(|c| &self.meanings[c.meaning])
            .or_else(|| (!self.is_transparent(name)).then(|| self.plain(name)).flatten())
    }

    fn plain(&self, name: &str) -> Option<&Meaning> {
        if let Some(&at) = self.exact.get(name) {
            return Some(&self.meanings[at]);
        }
        let wild = || self.wild.iter().find(|(names, _)| glob::any(names, name)).map(|(_, at)| &self.meanings[*at]);
        self.subsystems.and_then(|all| all.of(name)).or_else(wild)
    }

    /// Whether a function only wraps what its caller wants.
    pub fn is_transparent(&self, name: &str) -> bool {
        glob::any(&self.transparent, name)
    }

    /// What a function means when nothing else in the stack means anything.
    pub fn weak(&self, name: &str, asleep: bool) -> Option<&Meaning> {
        let fits = |c: &&Conditional| c.asleep.is_none_or(|a| a == asleep) && glob::any(&c.names, name);
        self.weak.iter().find(fits).map(|c| &self.meanings[c.meaning])
    }

    /// What one of [`KINDS`] but a function means.
    pub fn other(&self, kind: &str, name: &str, uninterruptible: Option<bool>) -> Option<&Meaning> {
        let at = KINDS.iter().position(|k| *k == kind)?.checked_sub(1)?;
        let fits = |c: &&Conditional| {
            (c.uninterruptible.is_none() || c.uninterruptible == uninterruptible) && glob::any(&c.names, name)
        };
        self.others[at].iter().find(fits).map(|c| &self.meanings[c.meaning])
    }

    /// Adds the entries of a file; keys that are not its own are left alone.
    ///
    /// # Errors
    /// [`Error::Rule`] for an unknown or missing field, a wrong type, an unknown category, a name that is there twice.
    pub fn add(&mut self, table: &Table, file: &str) -> Result<(), Error> {
        if let Some(value) = table.get(TRANSPARENT) {
            let names = values::strings(value).ok_or_else(|| Error::Rule {
                file: file.into(),
                rule: 0,
                field: TRANSPARENT.into(),
                why: format!("a list of texts is needed, not {value}"),
            })?;
            self.transparent.extend(names);
        }
        for (k, kind) in KINDS.iter().enumerate() {
            let Some(value) = table.get(*kind) else { continue };
            let wrong = |rule: usize, field: &str, why: String| Error::Rule {
                file: file.into(),
                rule,
                field: format!("{kind}.{field}"),
                why,
            };
            let entries = value
                .as_array()
                .filter(|a| a.iter().all(Value::is_table))
                .ok_or_else(|| wrong(0, "*", format!("each must be a [[{kind}]] table")))?;
            for (i, entry) in entries.iter().filter_map(Value::as_table).enumerate() {
                self.entry(k, entry).map_err(|(field, why)| wrong(i + 1, &field, why))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, kind: usize, entry: &Table) -> Result<(), values::Wrong> {
        let Entry { meaning, mut conditional, weak } = Entry::parse(kind, entry)?;
        conditional.meaning = match self.meanings.iter().position(|m| *m == meaning) {
            Some(at) => at,
            None => {
                self.meanings.push(meaning);
                self.meanings.len() - 1
            }
        };
        match kind {
            0 if weak => self.weak.push(conditional),
            0 if !conditional.under.is_empty() || conditional.asleep.is_some() => self.conditional.push(conditional),
            0 => return self.names(conditional),
            _ => self.others[kind - 1].push(conditional),
        }
        Ok(())
    }

    /// Adds functions that mean something under no condition.
    fn names(&mut self, of: Conditional) -> Result<(), values::Wrong> {
        let (wild, exact): (Vec<String>, Vec<String>) = of.names.into_iter().partition(|n| n.contains(['*', '?']));
        for name in exact {
            if self.exact.contains_key(&name) {
                return Err(("names".into(), format!("{name} is defined twice")));
            }
            self.exact.insert(name, of.meaning);
        }
        if !wild.is_empty() {
            self.wild.push((wild, of.meaning));
        }
        Ok(())
    }
}

/// An entry as it is written.
struct Entry {
    meaning: Meaning,
    conditional: Conditional,
    weak: bool,
}

impl Entry {
    /// Of one of [`KINDS`], by index.
    fn parse(kind: usize, entry: &Table) -> Result<Entry, values::Wrong> {
        let meaning = Meaning { category: Category::Unexplained, sub: String::new() };
        let mut out = Entry { meaning, conditional: Conditional::default(), weak: false };
        for (field, value) in entry {
            out.set(kind, field, value).map_err(|why| (field.clone(), why))?;
        }
        let names = &out.conditional.names;
        for (field, missing) in [
            ("category", !entry.contains_key("category")),
            ("sub", out.meaning.sub.is_empty()),
            ("names", names.is_empty() || names.iter().any(String::is_empty)),
        ] {
            if missing {
                return Err((field.into(), "it is missing or empty".into()));
            }
        }
        Ok(out)
    }

    fn set(&mut self, kind: usize, field: &str, value: &Value) -> Result<(), String> {
        let c = &mut self.conditional;
        let words = || value.as_str().map(|t| t.split_whitespace().map(str::to_owned).collect());
        let list = || words().map_or_else(|| values::list(value), Ok);
        match (field, kind) {
            ("category", _) => self.meaning.category = values::text(value)?.parse()?,
            ("sub", _) => values::text(value)?.clone_into(&mut self.meaning.sub),
            ("names", _) => c.names = list()?,
            ("under", 0) => c.under = list()?,
            ("asleep", 0) => c.asleep = Some(values::flag(value)?),
            ("weak", 0) => self.weak = values::flag(value)?,
            // What only other kernels or builds have: said for the reader of the table.
            ("inlined", 0) => drop(values::flag(value)?),
            ("since" | "until", 0) => {
                let version = values::text(value)?;
                if version.split('.').any(|n| n.parse::<u32>().is_err()) {
                    return Err(format!("{version:?} is no version of a kernel, like 6.18"));
                }
            }
            ("uninterruptible", 1) => c.uninterruptible = Some(values::flag(value)?),
            _ => return Err("there is no such field".into()),
        }
        Ok(())
    }
}
