//! Fixes and next steps as data, and the one line of text that each is in older keys of the JSON.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Before a command that misses values.
const TO_FILL_IN: &str = "fill in: ";

/// What removes a cause: a command with what it is for and its undo, or a step for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// The command, for a shell. Absent of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The command and its undo miss values: words in capitals stand for them, and `why` says how to find each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fill_in: bool,
    /// What the command is for, or the step.
    pub why: String,
    /// The command that takes it back. Absent of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
}

impl Fix {
    /// A step for a person.
    pub fn step(what: impl Into<String>) -> Fix {
        Fix { why: what.into(), ..Fix::default() }
    }

    /// The command as it is shown: one that misses values says so first, for it must not be pasted as it is.
    pub fn shown_command(&self) -> Option<String> {
        let mark = if self.fill_in { TO_FILL_IN } else { "" };
        self.command.as_ref().map(|command| format!("{mark}{command}"))
    }
}

/// In a line: `COMMAND  # WHY; undo: COMMAND`, or the step.
impl fmt::Display for Fix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(command) = self.shown_command() {
            write!(out, "{command}  # ")?;
        }
        out.write_str(&self.why)?;
        self.undo.iter().try_for_each(|undo| write!(out, "; undo: {undo}"))
    }
}

/// What to do next: words, and behind them a fix or a command of Tailsight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextStep {
    /// What to do; empty where the fix says it all.
    pub says: String,
    /// The fix that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
    /// The command that does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl NextStep {
    /// Words alone.
    pub fn words(says: impl Into<String>) -> NextStep {
        NextStep { says: says.into(), ..NextStep::default() }
    }

    /// A command of Tailsight.
    pub fn command(says: impl Into<String>, command: impl Into<String>) -> NextStep {
        NextStep { command: Some(command.into()), ..NextStep::words(says) }
    }
}

/// In a line, its parts with a colon between them.
impl fmt::Display for NextStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [self.fix.as_ref().map(Fix::to_string), self.command.clone()];
        let said = (!self.says.is_empty()).then(|| self.says.clone());
        out.write_str(&said.into_iter().chain(parts.into_iter().flatten()).collect::<Vec<_>>().join(": "))
    }
}
