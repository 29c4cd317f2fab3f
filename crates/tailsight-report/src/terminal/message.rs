//! One message on the terminal: its facts, its path in time, and where it took longer than usual.
//!
//! In: a [`Shown`] and the [`Diagnosis`] beside it. Out: text. Neighbouring pieces of the path that belong to one row on one
//! core are one line; pieces that are too short to matter are counted together.

use tailsight_diagnose::show::{Row, Shown, Span};
use tailsight_diagnose::{Diagnosis, Titled};
use tailsight_trace::meta::Setting;

use super::text::{clean, cut, paint, wrap};
use super::{Style, role_name, units};

/// Most lines of the path.
const LINES: usize = 40;
/// Most rows of what took longer, and of what took less time.
const ROWS: usize = 10;
/// Less than this part of the message is not worth a row.
const SMALL: f64 = 0.005;

/// The message: head, path, deviation.
pub fn message_of(m: &Shown, d: &Diagnosis, style: &Style) -> String {
    let heading = |text: &str| vec![String::new(), paint(style, "1", text)];
    let lines = [
        about(m, style),
        heading("Path:"),
        way(m, style),
        heading("Where it took longer than usual:"),
        more_than_usual(m, d, style),
    ];
    lines.concat().iter().fold(String::new(), |out, line| out + line.trim_end() + "\n")
}

/// Which message it is, and its rank.
fn about(m: &Shown, style: &Style) -> Vec<String> {
    let leg = match m.leg {
        tailsight_lifetime::Leg::Total => String::new(),
        leg => format!(", {} only", leg.name()),
    };
    let head = format!("{}, message {}{leg}: {}", clean(&m.app), m.id, units::duration(m.latency_ns));
    let apart = units::signed_duration(m.latency_ns as i64 - m.reference_ns as i64);
    let place = format!(
        "slower than {} of {}; the messages it is compared with take {} (difference {apart})",
        units::percent(m.faster),
        units::counted(m.messages, "message"),
        units::duration(m.reference_ns)
    );
    let ahead = match m.ahead.as_slice() {
        [] => "that thread had no other message before it".to_owned(),
        ids => {
            let list: Vec<String> = ids.iter().rev().map(u32::to_string).collect();
            let most = if ids.len() == 16 { "at least " } else { "" };
            let messages = units::counted(ids.len() as u64, "message");
            let later = match m.came_later {
                0 => String::new(),
                n if n as usize == ids.len() => "; they came later, and were served first".into(),
                n => format!(
                    "; {} of them came later, and {} served first",
                    units::count(n.into()),
                    if n == 1 { "was" } else { "were" }
                ),
            };
            format!("{most}{messages} that this thread received first had no reply yet: {}{later}", list.join(", "))
        }
    };
    let class = m.class.as_ref().map_or(String::new(), |class| format!("{}, ", clean(class)));
    let bytes = units::count(m.bytes.into());
    let who = format!("{class}{}, {bytes} bytes, received by thread {}; {ahead}", clean(&m.flow), m.tid);
    let mut out = vec![paint(style, "1", &head)];
    out.extend(wrap(&place, style.columns(), ""));
    out.extend(wrap(&who, style.columns(), ""));
    if let Some(ideal_ns) = m.ideal_ns {
        // Never more than it took: an ideal server charges each message the mean.
        let inherent = ideal_ns.min(m.latency_ns);
        let excess = units::duration(m.latency_ns - inherent);
        let text =
            format!("an ideal server would also have taken {} of it; {excess} is excess", units::duration(inherent));
        out.extend(wrap(&text, style.columns(), ""));
    }
    if let Some(settings) = hurting(&m.settings) {
        out.extend(wrap(&format!("settings of the host that lengthen tails: {settings}"), style.columns(), ""));
    }
    out
}

/// The settings that are known to lengthen tails, with their values.
fn hurting(settings: &[Setting]) -> Option<String> {
    let named: Vec<String> = settings.iter().filter(|s| s.hurts()).map(|s| clean(&s.in_words())).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Its stages and pieces in order.
fn way(m: &Shown, style: &Style) -> Vec<String> {
    let time_w = units::duration(m.latency_ns).chars().count().max(7);
    let columns = |at: &str, ns: &str, core: &str| format!(" {at:>time_w$}  {ns:>time_w$}  {core:<7}  ");
    let line = |step: Step<'_>| match step {
        Step::Mark(stage, at) => {
            let text = columns(&units::duration(at), "", "");
            paint(style, "36", &format!("{text}─ {}", in_words(stage)))
        }
        Step::Run(run) => {
            let core = run.cpu.map_or("none".to_owned(), |cpu| format!("{cpu} {:?}", run.role));
            let text = columns(&units::duration(run.at_ns), &units::duration(run.ns), &core);
            let pieces = if run.pieces > 1 { format!(", {} pieces", units::count(run.pieces)) } else { String::new() };
            let room = style.columns().saturating_sub(text.chars().count());
            text + &cut(&format!("{}{pieces}", clean(&run.what)), room)
        }
    };
    let mut out = vec![paint(style, "2", &(columns("at", "for", "core") + "what"))];
    out.extend(steps(m).into_iter().map(line));
    out
}

/// The rows of which it has more than the messages it is compared with.
fn more_than_usual(m: &Shown, d: &Diagnosis, style: &Style) -> Vec<String> {
    let (more, less): (Vec<&Row>, Vec<&Row>) = m.rows.iter().partition(|r| r.more_ns > 0);
    let matters = |r: &&&Row| r.more_ns.unsigned_abs() as f64 >= SMALL * m.latency_ns as f64;
    let rows: Vec<&Row> = more.iter().filter(matters).take(ROWS).copied().collect();
    let mut out: Vec<String> = rows.iter().map(|row| row_line(row, d, style)).collect();
    if rows.is_empty() {
        out.push(" nothing".into());
    }
    let rest: i64 = more.iter().map(|r| r.more_ns).sum::<i64>() - rows.iter().map(|r| r.more_ns).sum::<i64>();
    if rest > 0 {
        out.push(paint(style, "2", &format!(" {:>8}  in smaller rows", plus(rest))));
    }
    let less: i64 = less.iter().map(|r| r.more_ns).sum();
    if less < 0 {
        out.push(paint(style, "2", &format!(" {:>8}  in rows where it took less", plus(less))));
    }
    out
}

fn plus(ns: i64) -> String {
    if ns > 0 { format!("+{}", units::duration(ns.unsigned_abs())) } else { units::signed_duration(ns) }
}

fn row_line(row: &Row, d: &Diagnosis, style: &Style) -> String {
    let cause = row.cause.and_then(|rank| d.causes.iter().find(|c| c.rank == rank));
    let of_cause = match cause {
        Some(c) if super::causes::is_named(c) => format!(", cause {}", c.rank),
        _ => String::new(),
    };
    let left = format!(" {:>8}  ", plus(row.more_ns));
    let text = format!(
        "{} ({}, {}; {}, usually {}{of_cause})",
        clean(&row.with_category()),
        role_name(row.role),
        row.leg.name(),
        units::duration(row.ns),
        units::duration(row.reference_ns)
    );
    let indent = " ".repeat(left.chars().count());
    let lines = wrap(&text, style.columns() - indent.len(), &indent);
    left + &lines.join("\n")
}

/// A stage in words.
fn in_words(stage: &str) -> &str {
    match stage {
        "nic" => "at the NIC",
        "driver" => "first seen in the stack (driver)",
        "stack" => "protocol processing",
        "handoff" => "socket made readable (hand-off)",
        "wake" => "its thread woken",
        "on_cpu" => "its thread on a core",
        "recv_enter" => "receive call entered",
        "recv" => "received",
        "send" => "reply sent (send call)",
        "xmit" => "reply handed to the driver",
        other => other,
    }
}

/// Pieces of the path after each other with one row and core.
struct Run {
    at_ns: u64,
    ns: u64,
    cpu: Option<u16>,
    role: tailsight_lifetime::Role,
    what: String,
    pieces: u64,
}

enum Step<'a> {
    Mark(&'a str, u64),
    Run(Run),
}

/// The marks and the pieces of the path in order. Where these are too many, the shortest neighbours become one.
fn steps(m: &Shown) -> Vec<Step<'_>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut marks = m.marks.iter().peekable();
    // A mark ends a group of pieces that can be joined.
    let mut stretch = Vec::new();
    let mut steps: Vec<(usize, Step)> = Vec::new();
    for span in &m.spans {
        while let Some(mark) = marks.next_if(|mark| mark.at_ns <= span.at_ns) {
            steps.push((runs.len(), Step::Mark(&mark.stage, mark.at_ns)));
            stretch.clear();
        }
        match runs.last_mut().filter(|r| !stretch.is_empty() && joins(r, span)) {
            Some(run) => {
                run.ns += span.ns;
                run.pieces += 1;
            }
            None => runs.push(Run {
                at_ns: span.at_ns,
                ns: span.ns,
                cpu: span.cpu,
                role: span.role,
                what: named(span),
                pieces: 1,
            }),
        }
        stretch.push(span.at_ns);
    }
    steps.extend(marks.map(|mark| (runs.len(), Step::Mark(mark.stage.as_str(), mark.at_ns))));
    // Only the longest have a line of their own when there are too many.
    let mut lengths: Vec<u64> = runs.iter().map(|r| r.ns).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let least = lengths.get(LINES / 2).copied().filter(|_| runs.len() > LINES).unwrap_or(0);
    let mut marks = steps.into_iter().peekable();
    let mut out: Vec<Step> = Vec::new();
    for (i, run) in runs.into_iter().enumerate() {
        while let Some((_, mark)) = marks.next_if(|(at, _)| *at <= i) {
            out.push(mark);
        }
        let short = run.ns <= least && least > 0;
        match out.last_mut() {
            Some(Step::Run(last)) if short && last.what == SHORT => {
                last.ns += run.ns;
                last.pieces += run.pieces;
                last.cpu = last.cpu.filter(|&cpu| Some(cpu) == run.cpu);
            }
            _ if short => out.push(Step::Run(Run { what: SHORT.into(), ..run })),
            _ => out.push(Step::Run(run)),
        }
    }
    out.extend(marks.map(|(_, mark)| mark));
    out
}

/// What many short pieces are called.
const SHORT: &str = "shorter intervals (--json lists each)";

fn joins(run: &Run, span: &Span) -> bool {
    run.cpu == span.cpu && run.role == span.role && run.what == named(span)
}

/// What a piece of the path was.
fn named(span: &Span) -> String {
    span.with_category() + if span.guessed { " (guessed)" } else { "" }
}
