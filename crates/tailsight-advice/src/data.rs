//! The knowledge about each category: its sentence, its fixes, what makes it large in every message, and what a recording without
//! some hook cannot show. In: `data/advice.toml`, which documents the fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use tailsight_diagnose::cause::Category;
use tailsight_diagnose::cause::names::{self, Titled};
use tailsight_diagnose::glob;
use tailsight_diagnose::model::Diagnosis;
use tailsight_lifetime::Role;

use crate::change;

/// `data/advice.toml`.
#[derive(Debug, Deserialize)]
pub(super) struct Advice {
    pub limit: Vec<Limit>,
    pub typical: Vec<Pathology>,
    #[serde(flatten)]
    pub categories: BTreeMap<Category, CategoryAdvice>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CategoryAdvice {
    pub says: String,
    pub says_r: Option<String>,
    pub says_before: Option<String>,
    pub says_received: Option<String>,
    #[serde(default)]
    pub fix: Vec<Template>,
}

/// A fix whose values are still to be filled in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Template {
    pub role: Option<Role>,
    #[serde(default)]
    pub only: Vec<String>,
    /// Not for these names.
    #[serde(default)]
    pub except: Vec<String>,
    /// Only where the first function that is named was compiled at run time, or only where it was not.
    #[serde(default)]
    pub compiled: Option<bool>,
    /// Only where most of the cause's time was after the message had been received.
    #[serde(default)]
    pub received: bool,
    /// Only where the messages that the cause hit have on average so much more of it, from and to.
    #[serde(default)]
    pub each_us: Vec<[u64; 2]>,
    /// Only for devices with interrupts (`true`), or only for those without: loopback, veth, bridges.
    pub hardware: Option<bool>,
    /// Only where `record --protocol` can tell the requests: not in TLS, nor in HTTP/2.
    #[serde(default)]
    pub readable: bool,
    /// In which network namespace the command is to be run, when that is another one than the recorder's.
    pub inside: Option<change::Inside>,
    /// A command and its undo by what they change, instead of `do` and `undo`.
    pub change: Option<change::Change>,
    pub r#do: Option<String>,
    pub undo: Option<String>,
    pub why: Option<String>,
    pub step: Option<String>,
    /// The step in its place where a function of the cause is named.
    pub once_named: Option<String>,
}

impl Template {
    /// The command and its undo.
    pub fn commands(&self) -> Option<(String, String)> {
        let written = || Some((self.r#do.clone()?, self.undo.clone()?));
        self.change.as_ref().map_or_else(written, |change| Some(change.commands()))
    }
}

/// What is known to make a row large in every message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pathology {
    pub category: Category,
    #[serde(default)]
    pub only: Vec<String>,
    /// Only for waits of the application's own.
    #[serde(default)]
    pub own_wait: bool,
    /// Only for waits for a server that most messages ask beside others.
    #[serde(default)]
    pub in_parallel: bool,
    /// The row's mean is at least so long.
    #[serde(default)]
    pub least_us: u64,
    /// The median wait of a reply in the socket or the queueing discipline is between two of these.
    #[serde(default)]
    pub queued_us: Vec<[u64; 2]>,
    pub says: String,
    /// What is said where the recording has the place of the wait in the program (`{place}`).
    #[serde(default)]
    pub placed: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    /// Names of hooks, with wildcards.
    pub hooks: Vec<String>,
    pub hides: String,
    /// The hook is off unless it is asked for, so that every run would have the note: said only when all is asked for.
    #[serde(default)]
    pub usual: bool,
    /// Only said when a row so large is so called.
    pub matters: Option<Matters>,
    /// What to do about it.
    pub cure: Option<String>,
}

/// The rows that a hook would tell more of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Matters {
    pub category: Category,
    pub name: Vec<String>,
    pub share: f64,
}

impl Matters {
    /// Whether one of them is in the answer.
    pub fn in_answer(&self, d: &Diagnosis) -> bool {
        let is = |row: &dyn Titled, share: f64| {
            let (category, name, subject, _) = row.parts();
            let base = subject.map_or_else(|| name.to_owned(), names::base);
            category == self.category && share >= self.share && glob::any(&self.name, &base)
        };
        let typical = d.typical.iter().flat_map(|t| &t.rows);
        d.causes.iter().any(|c| is(c, c.share.abs())) || typical.into_iter().any(|r| is(r, r.share))
    }
}

pub(super) static ADVICE: LazyLock<Advice> = LazyLock::new(|| {
    toml::from_str(include_str!("../data/advice.toml")).expect("the built-in advice is checked by this crate's tests")
});
