//! What `watch` says in words: a capture as it is made, the end, and `--status`, what was captured into a folder.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use tailsight_report::terminal::wrap;
use tailsight_units::Untrusted;
use tailsight_units::format::{count, duration, utc};

use super::lines::{Capture, Ended};
use super::{folder, shown};
use crate::{Exit, terminal};

/// Captures that the table has, the last ones.
const MOST_ROWS: usize = 30;

/// A capture as it was made.
pub fn capture_in_words(capture: &Capture, columns: usize) -> String {
    let mut out = format!(
        "{}  {} {} (slow is more than {})\n",
        utc(capture.unix_ns / 1_000_000_000),
        capture.leg,
        duration(leg_ns(capture)),
        duration(capture.limit_ns),
    );
    let mut part = |text: &str| {
        for row in wrap(text, columns.saturating_sub(4).max(20), "") {
            let _ = writeln!(out, "    {row}");
        }
    };
    match (capture.causes.as_slice(), &capture.note) {
        ([], note) => part(&first_line(note.as_deref().unwrap_or("no cause could be named"))),
        (causes, note) => {
            causes.iter().for_each(|cause| part(&cause_in_words(cause)));
            note.iter().for_each(|note| part(&first_line(note)));
        }
    }
    if capture.began_before {
        part("it came before what the buffers hold, or before the last capture: --buffer gives them more room");
    }
    part(&match capture.of_message {
        Some(id) => format!("of this message alone, none was like it: tailsight show {} {id}", Untrusted(&capture.run)),
        None => format!("{}: tailsight diagnose {}", held(capture), Untrusted(&capture.run)),
    });
    out
}

fn held(capture: &Capture) -> String {
    let of = match (capture.explained, capture.messages) {
        (Some(explained), Some(messages)) => format!("{} of {} messages in ", count(explained), count(messages)),
        _ => String::new(),
    };
    of + &duration(capture.held_ns)
}

fn leg_ns(capture: &Capture) -> u64 {
    match capture.leg.as_str() {
        "receive" => capture.receive_ns,
        "service" => capture.service_ns,
        _ => capture.total_ns,
    }
}

fn cause_in_words(cause: &super::lines::CapturedCause) -> String {
    let function = cause.function.as_ref().map(|name| format!(", in {}", Untrusted(name)));
    // What held a queue says more than where its thread was.
    let root = cause.root.as_ref().filter(|root| !cause.words.contains(root.as_str()));
    let root = root.map(|root| format!(", held by {}", Untrusted(root)));
    format!("{:.0} % {}{}", 100.0 * cause.share, Untrusted(&cause.words), root.or(function).unwrap_or_default())
}

/// The first line of a text of several.
fn first_line(text: &str) -> String {
    Untrusted(text.lines().next().unwrap_or_default()).to_string()
}

/// The end.
pub fn end_in_words(ended: &Ended, refused: &BTreeMap<&'static str, u64>, out: &Path) -> String {
    let mut text = format!(
        "{}: {} messages in {}, {} slow, {} captured\n",
        first_line(&ended.why),
        count(ended.messages),
        duration(ended.watched_ns),
        count(ended.slow),
        count(ended.captures),
    );
    for leg in &ended.legs {
        let _ = writeln!(
            text,
            "  {:8} p50 {:>8}   p99 {:>8}   p99.9 {:>8}",
            leg.leg,
            duration(leg.p50_ns),
            duration(leg.p99_ns),
            duration(leg.p999_ns)
        );
    }
    let not_captured: u64 = refused.values().sum();
    if not_captured > 0 {
        let _ = writeln!(
            text,
            "  {} times a slow message came sooner after a capture than --every, or beyond --per-hour, and was not captured",
            count(not_captured)
        );
    }
    if ended.messages == 0 {
        text += "  no message was answered: is there a load, and is it TCP? (UDP is not watched)\n";
    }
    let share = 100.0 * ended.cpu_ns as f64 / ended.watched_ns.max(1) as f64;
    let _ = writeln!(text, "  the watcher took {share:.2} % of a core");
    if ended.captures > 0 {
        let _ = writeln!(text, "Next: tailsight watch --status -o {}", shown(out));
    }
    text
}

/// `--status`.
pub fn print(out: &Path, json: bool) -> anyhow::Result<Exit> {
    let captures = folder::captures(out)?;
    if json {
        for capture in captures {
            terminal::print_json_line(&capture)?;
        }
        return Ok(Exit::Done);
    }
    terminal::print(&status_in_words(&captures, out))?;
    Ok(Exit::Done)
}

fn status_in_words(captures: &[Capture], out: &Path) -> String {
    if captures.is_empty() {
        return format!("nothing was captured into {} yet\n", shown(out));
    }
    let mut by_cause: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for capture in captures {
        let cause = capture.causes.first().map_or("not diagnosed".to_owned(), |cause| cause.words.clone());
        let (times, most_ns) = by_cause.entry(cause).or_default();
        (*times, *most_ns) = (*times + 1, (*most_ns).max(leg_ns(capture)));
    }
    let mut by_cause: Vec<(String, (u64, u64))> = by_cause.into_iter().collect();
    by_cause.sort_by_key(|(_, (times, _))| std::cmp::Reverse(*times));
    let plural = if captures.len() == 1 { "" } else { "s" };
    let number = count(captures.len() as u64);
    let mut text = format!("{number} capture{plural} in {}, by first cause:\n", shown(out));
    for (cause, (times, most_ns)) in by_cause {
        let _ = writeln!(text, "  {times:>5}  {}, {} at most", Untrusted(&cause), duration(most_ns));
    }
    let left_out = captures.len().saturating_sub(MOST_ROWS);
    text += &match left_out {
        0 => "\n".to_owned(),
        n => format!("\nThe last {MOST_ROWS} ({n} before them are in captures.jsonl):\n"),
    };
    for capture in &captures[left_out..] {
        let cause = capture.causes.first().map_or("not diagnosed".to_owned(), cause_in_words);
        // The watcher may have had another current folder.
        let run = out.join(Path::new(&capture.run).file_name().unwrap_or_default());
        let there = if run.exists() { shown(&run) } else { "deleted".into() };
        let time = utc(capture.unix_ns / 1_000_000_000);
        let _ = writeln!(text, "  {time}  {:8} {:>8}  {cause}  {there}", capture.leg, duration(leg_ns(capture)));
    }
    text
}
