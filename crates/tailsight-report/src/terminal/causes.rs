//! The table of causes on the terminal.
//!
//! In: the causes of a [`Diagnosis`]. Out: one line a cause: rank, share of the deviation, bar, time, core, category,
//! name, messages hit. Rows under 1 % and those past the tenth are folded into one row with their sum, so that the
//! shares on the screen still add up; `unexplained` and `not significant` are never folded. Negative rows (what the focus had *less* of) are
//! marked with a hollow bar and dimmed.

use tailsight_diagnose::model::Cause;
use tailsight_diagnose::{Category, Diagnosis, Titled};
use tailsight_lifetime::Role;

use super::text::{bar, clean, cut, paint, wrap};
use super::{Style, units};

const SMALL: f64 = 0.01;
const MAX_ROWS: usize = 10;
/// A name has at least so many columns beside its category, or stands below it.
const LEAST_NAME: usize = 16;

/// The role of a cause in words.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::A => "application core",
        Role::R => "receive core",
    }
}

/// Whether the row is a cause: not what has no owner, nor what may be chance.
pub(crate) fn is_named(cause: &Cause) -> bool {
    cause.category.is_named()
}

#[derive(Default)]
struct Row {
    rank: String,
    share: f64,
    time: String,
    role: &'static str,
    category: String,
    name: String,
    hit: String,
    dim: bool,
}

impl Row {
    fn of(cause: &Cause, focus: u64) -> Row {
        let unexplained = !is_named(cause);
        let chance = cause.category == Category::NotSignificant;
        let category = if chance { clean(&cause.name) } else { cause.category.to_string() };
        let mut name = clean(&cause.title()) + if cause.inferred { " (inferred)" } else { "" };
        name += &counts(cause);
        Row {
            rank: if unexplained { String::new() } else { cause.rank.to_string() },
            share: cause.share,
            time: units::signed_duration(cause.deviation_ns),
            role: if unexplained { "" } else { role_name(cause.role) },
            name: if name == category { String::new() } else { name },
            category,
            hit: if chance { String::new() } else { Row::hit(cause, focus) },
            dim: unexplained || cause.share < 0.0,
        }
    }

    fn hit(cause: &Cause, focus: u64) -> String {
        format!("{}/{}", units::count(cause.messages), units::count(focus))
    }

    /// What several rows are together.
    fn folded(causes: &[&Cause]) -> Row {
        Row {
            rank: "…".into(),
            share: causes.iter().map(|c| c.share).sum(),
            time: units::signed_duration(causes.iter().map(|c| c.deviation_ns).sum()),
            category: units::counted(causes.len() as u64, "smaller cause"),
            dim: true,
            ..Row::default()
        }
    }
}

/// How many processes and threads a task was, where that is more than one: `rustc (4 processes, 12 threads)`.
fn counts(cause: &Cause) -> String {
    let Some(who) = cause.who.as_ref().filter(|_| cause.category.is_processes()) else {
        return String::new();
    };
    let some = |n: u32, what: &str| (n > 1).then(|| format!("{n} {what}"));
    let threads = some(who.threads, "threads").filter(|_| who.threads != who.processes);
    let parts: Vec<String> = some(who.processes, "processes").into_iter().chain(threads).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// The lines of the table, the header first.
pub(super) fn table(d: &Diagnosis, style: &Style) -> Vec<String> {
    let (unexplained, named): (Vec<&Cause>, Vec<&Cause>) = d.causes.iter().partition(|c| !is_named(c));
    let shown = |i: usize, c: &Cause| i < MAX_ROWS && c.share.abs() >= SMALL;
    let mut rows: Vec<Row> = Vec::new();
    let mut small: Vec<&Cause> = Vec::new();
    for (i, cause) in named.iter().enumerate() {
        if shown(i, cause) {
            rows.push(Row::of(cause, d.focus.messages));
        } else {
            small.push(cause);
        }
    }
    if !small.is_empty() {
        rows.push(Row::folded(&small));
    }
    rows.extend(unexplained.iter().map(|c| Row::of(c, d.focus.messages)));
    lay_out(&rows, style)
}

fn lay_out(rows: &[Row], style: &Style) -> Vec<String> {
    let longest = |cell: &dyn Fn(&Row) -> usize, least: usize| rows.iter().map(cell).max().unwrap_or(0).max(least);
    let chars = |s: &str| s.chars().count();
    let share = |r: &Row| units::percent(r.share);
    let rank_w = longest(&|r| chars(&r.rank), 1);
    let share_w = longest(&|r| chars(&share(r)), 5);
    let time_w = longest(&|r| chars(&r.time), 4);
    let category_w = longest(&|r| if r.role.is_empty() { 0 } else { chars(&r.category) }, 5);
    let hit_w = longest(&|r| chars(&r.hit), 3);
    let name_full = longest(&|r| chars(&r.name), 4);
    // On a narrow terminal the header says "core" and the column only which one, so that names have room.
    let narrow = style.columns() < 100;
    let role = |r: &Row| match r.role {
        "application core" if narrow => "app",
        other if narrow => other.trim_end_matches(" core"),
        other => other,
    };
    let role_w = longest(&|r| chars(role(r)), 4);

    let fixed = 1 + rank_w + 1 + share_w + 2 + 2 + time_w + 2 + role_w + 2 + 2 + 2 + hit_w;
    // Names come first: the bar gives way to them, and where even that is not enough they stand below their category, whole.
    let free = style.columns().saturating_sub(fixed + category_w);
    let least = name_full.min(LEAST_NAME);
    let (name_w, bar_w) = match free.saturating_sub(6) {
        room if room >= least => {
            (name_full.min(room).max(4), free.saturating_sub(name_full.min(room).max(4)).clamp(4, 28))
        }
        // Without the bar, its two spaces are free too.
        _ if free + 2 >= least => (name_full.min(free + 2), 0),
        _ => (0, 0),
    };
    let below = name_w == 0;
    let top = rows.iter().map(|r| r.share.abs()).fold(0.0, f64::max);

    let gap = if bar_w > 0 { format!("{:bar_w$}  ", "") } else { String::new() };
    let name_column = if below { String::new() } else { format!("{:name_w$}  ", "") };
    let mut out = vec![paint(
        style,
        "2",
        &format!(
            " {:>rank_w$} {:>share_w$}  {gap}{:>time_w$}  {:role_w$}  {:category_w$}  {name_column}{:>hit_w$}",
            "#", "share", "time", "core", "cause", "hit"
        ),
    )];
    for (i, row) in rows.iter().enumerate() {
        let length = if top > 0.0 { row.share.abs() / top } else { 0.0 };
        let solid = bar(length, bar_w);
        let drawn = if row.share < 0.0 { "░".repeat(solid.chars().count()) } else { solid };
        let painted_bar = match (row.dim, i) {
            (true, _) => paint(style, "2", &format!("{drawn:bar_w$}")),
            (false, 0) => paint(style, "31", &format!("{drawn:bar_w$}")),
            (false, _) => paint(style, "33", &format!("{drawn:bar_w$}")),
        };
        let code = if row.dim {
            "2"
        } else if i == 0 {
            "1"
        } else {
            "0"
        };
        let left = format!(" {:>rank_w$} {:>share_w$}", row.rank, share(row));
        let (what_w, role_gap) = (if below { category_w } else { category_w + 2 + name_w }, role_w + 2);
        let before = left.chars().count() + 2 + gap.chars().count() + time_w + 2 + role_gap;
        let mut more: Vec<String> = Vec::new();
        let what = if row.role.is_empty() {
            // No core to name: the text takes the place of the three columns.
            format!("{:w$}", cut(&row.category, role_gap + what_w), w = role_gap + what_w)
        } else if below {
            if !row.name.is_empty() {
                let indent = before.min(style.columns() / 2);
                let lines = wrap(&row.name, style.columns() - indent, "");
                more.extend(lines.into_iter().map(|line| " ".repeat(indent) + &line));
            }
            format!("{:role_w$}  {:category_w$}", role(row), cut(&row.category, category_w))
        } else {
            // A name that is too long goes on below.
            let lines = in_lines(&row.name, name_w);
            let indent = " ".repeat(before + category_w + 2);
            more.extend(lines.iter().skip(1).map(|line| format!("{indent}{line}")));
            let name = lines.first().map_or("", String::as_str);
            format!("{:role_w$}  {:category_w$}  {:name_w$}", role(row), row.category, name)
        };
        let right = format!("{:>time_w$}  {what}  {:>hit_w$}", row.time, row.hit);
        let drawn = if bar_w > 0 { format!("{painted_bar}  ") } else { String::new() };
        out.push(format!("{}  {drawn}{}", paint(style, code, &left), paint(style, code, right.trim_end())));
        out.extend(more.into_iter().map(|line| paint(style, code, &line)));
    }
    out
}

/// A text in lines of so many columns, broken at spaces; a word that is longer than a line is cut.
fn in_lines(text: &str, columns: usize) -> Vec<String> {
    wrap(text, columns, "").into_iter().map(|line| cut(&line, columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::in_lines;

    #[test]
    fn long_names_take_as_many_lines_as_they_need() {
        assert_eq!(in_lines("nginx", 8), ["nginx"]);
        assert_eq!(in_lines("held by lab-holder, which slept", 20), ["held by lab-holder,", "which slept"]);
        assert_eq!(
            in_lines("held by lab-holder, which slept in futex", 19),
            ["held by lab-holder,", "which slept in", "futex"]
        );
        assert_eq!(in_lines("a verylongwordthatfitsnowhere", 10), ["a", "verylongw…"]);
        assert_eq!(in_lines("ääääää öööööö", 8), ["ääääää", "öööööö"]);
    }
}
