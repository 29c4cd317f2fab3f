//! What is changed and not yet put back, as a file that a person can read.
//!
//! In: records of fixes. Out: TOML, and back. Values are as the kernel writes them; ticks are clock ticks after the boot.

use serde::{Deserialize, Serialize};

use crate::Place;

/// The version of the file that this code writes.
const VERSION: u32 = 1;

/// What stands at the top of the file.
const HEAD: &str = "\
# What `tailsight fix` changed on this host and has not put back. `tailsight fix --undo` puts it back and empties \
this file;
# `tailsight fix --status` shows it. By hand: set each place to its `was`, the last of this file first.

";

/// Everything that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Of this file's form.
    pub version: u32,
    /// The fixes, in the order in which they were made.
    #[serde(default, rename = "fix")]
    pub fixes: Vec<Record>,
}

impl Default for State {
    fn default() -> State {
        State { version: VERSION, fixes: vec![] }
    }
}

/// One fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What it is for.
    pub title: String,
    /// The run that asked for it.
    pub run: String,
    /// When it was made, as `2026-01-31 12:00:00 UTC`.
    pub when: String,
    /// The boot in which it was made: after the next one its changes are gone.
    pub boot_id: String,
    /// When it was begun, clock ticks after the boot: threads that started later may have inherited from others.
    pub began: u64,
    /// Its changes, in the order in which they were made.
    #[serde(default, rename = "change")]
    pub changes: Vec<Entry>,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What was there.
    pub was: String,
    /// What the fix set.
    pub now: String,
}

impl State {
    /// Reads a file's text; the empty text is the empty state.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<State, String> {
        if text.trim().is_empty() {
            return Ok(State::default());
        }
        let state: State =
            toml::from_str(text).map_err(|e| format!("is not in the format that tailsight writes: {e}"))?;
        match state.version {
            VERSION => Ok(state),
            other => {
                Err(format!("has version {other}, and this tailsight reads {VERSION}: use the tailsight that wrote it"))
            }
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn text(&self) -> Result<String, String> {
        toml::to_string_pretty(self).map(|body| format!("{HEAD}{body}")).map_err(|e| e.to_string())
    }

    /// Values that are changed.
    pub fn changed(&self) -> usize {
        self.fixes.iter().flat_map(|f| &f.changes).filter(|c| !c.place.same(&c.was, &c.now)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attribute;

    /// The file as it is written down in docs/fixes.md.
    #[test]
    fn a_person_can_read_it_and_it_reads_back() {
        let thread = Place::Thread {
            attribute: Attribute::Policy,
            pid: 41,
            process_started: 8812,
            thread: 43,
            started: 8813,
            comm: "memcached".into(),
        };
        let file = Place::File { path: "/proc/sys/net/ipv4/tcp_fastopen".into(), netns: Some(4_026_532_281) };
        let state = State {
            fixes: vec![Record {
                title: "let memcached run as soon as it is woken".into(),
                run: "tailsight-run".into(),
                when: "2026-01-31 12:00:00 UTC".into(),
                boot_id: "5f1c".into(),
                began: 99_000,
                changes: vec![
                    Entry { place: thread, was: "other 0".into(), now: "fifo 1".into() },
                    Entry { place: file, was: "1".into(), now: "3".into() },
                ],
            }],
            ..State::default()
        };
        let text = state.text().unwrap();
        let expected = r#"version = 1

[[fix]]
title = "let memcached run as soon as it is woken"
run = "tailsight-run"
when = "2026-01-31 12:00:00 UTC"
boot_id = "5f1c"
began = 99000

[[fix.change]]
what = "thread"
attribute = "policy"
pid = 41
process_started = 8812
thread = 43
started = 8813
comm = "memcached"
was = "other 0"
now = "fifo 1"

[[fix.change]]
what = "file"
path = "/proc/sys/net/ipv4/tcp_fastopen"
netns = 4026532281
was = "1"
now = "3"
"#;
        assert_eq!(text.strip_prefix(HEAD), Some(expected));
        assert!(include_str!("../../../docs/fixes.md").contains(expected), "the manual shows another file");
        assert_eq!(State::parse(&text), Ok(state));
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        assert_eq!(State::parse(" \n"), Ok(State::default()));
        assert!(State::parse("version = 2").unwrap_err().contains("version 2"));
        assert!(State::parse("nonsense").unwrap_err().contains("not in the format that tailsight writes"));
    }
}
