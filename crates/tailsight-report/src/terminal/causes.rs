//! The table of causes on the terminal.
//!
//! In: the causes of a [`Diagnosis`]. Out: one line a cause: rank, share of the deviation, bar, time, core, category in words,
//! name, messages hit. Rows under 1 % and all but the ten largest are folded into one row with their sum, so that the
//! shares on the screen still add up; `unexplained` and `not significant` are never folded, and the largest rows of the latter are named. Negative rows (what the focus had *less* of) are
//! marked with a hollow bar and dimmed.

use tailsight_diagnose::functions::without_arguments;
use tailsight_diagnose::model::Cause;
use tailsight_diagnose::{Category, Diagnosis, Titled};
use tailsight_lifetime::Role;

use super::text::{bar, clean, cut, paint, wrap};
use super::{Style, units};

/// Causes of less than this share are folded into one row, and not worth a word elsewhere.
pub(super) const SMALL: f64 = 0.01;
const MAX_ROWS: usize = 10;
/// Rows that are not significant and are named all the same.
const CHANCE: usize = 3;
/// Less than this share is printed as none.
const NOTHING: f64 = 0.000_5;
/// Columns of a function's name: those of templates are longer than any table.
const LONGEST_FUNCTION: usize = 60;
/// A name has at least this many columns beside its category, or stands below it.
const LEAST_NAME: usize = 16;

/// The role of a cause in words.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::A => "application core",
        Role::R => "receive core",
    }
}

/// Whether the row is a cause: neither unexplained nor not significant.
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
    /// What stands below it.
    below: String,
}

impl Row {
    fn of(cause: &Cause, focus: u64) -> Row {
        let unexplained = !is_named(cause);
        let chance = cause.category == Category::NotSignificant;
        let category = if chance { clean(&cause.name) } else { cause.category.words().to_owned() };
        let title = clean(&cause.title());
        let mut name = if cause.category.says(&title) { String::new() } else { title };
        name += if cause.inferred { " (estimated)" } else { "" };
        name += guessed(cause.guessed);
        name += &counts(cause);
        name += &functions(cause);
        Row {
            rank: if unexplained { String::new() } else { cause.rank.to_string() },
            share: cause.share,
            time: units::signed_duration(cause.deviation_ns),
            role: if unexplained { "" } else { role_name(cause.role) },
            name: name.trim_start().to_owned(),
            category,
            hit: if chance { String::new() } else { Row::hit(cause, focus) },
            dim: unexplained || cause.share < 0.0,
            below: String::new(),
        }
    }

    fn hit(cause: &Cause, focus: u64) -> String {
        format!("{}/{}", units::count(cause.messages), units::count(focus))
    }

    /// The sum of several rows.
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

/// What is said behind the name of a row of which so much is guessed.
pub(super) fn guessed(share: Option<f64>) -> &'static str {
    match share {
        Some(0.5..) => " (guessed)",
        Some(_) => " (partly guessed)",
        None => "",
    }
}

/// How many processes and threads a task was, where that is more than one, and its container: `rustc (4 processes, 12 threads)`,
/// `java (container shop/cart-0/app)`.
fn counts(cause: &Cause) -> String {
    let Some(who) = cause.who.as_ref().filter(|_| cause.category.is_processes()) else {
        return String::new();
    };
    let some = |n: u32, what: &str| (n > 1).then(|| format!("{n} {what}"));
    let threads = some(who.threads, "threads").filter(|_| who.threads != who.processes);
    let container = who.container_title().map(|title| clean(&format!("container {title}")));
    let parts: Vec<String> = [some(who.processes, "processes"), threads, container].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// The first function under a cause, and how much of it: ` ▸ do_slabs_free 62 %`.
fn functions(cause: &Cause) -> String {
    cause.functions.first().map_or(String::new(), |first| {
        let share = units::percent(first.inclusive().clamp(0.0, 1.0));
        format!(" ▸ {} {share}", cut(&clean(without_arguments(&first.name)), LONGEST_FUNCTION))
    })
}

/// The causes that have a row of their own, and those that are folded into one.
pub(super) fn split(d: &Diagnosis) -> (Vec<&Cause>, Vec<&Cause>) {
    let named = || d.causes.iter().filter(|c| is_named(c));
    // The largest, whatever their sign: where rows cancel, the last may be the largest.
    let mut largest: Vec<&Cause> = named().filter(|c| c.share.abs() >= SMALL).collect();
    largest.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
    largest.truncate(MAX_ROWS);
    named().partition(|&c| largest.iter().any(|shown| std::ptr::eq(*shown, c)))
}

/// Rows of which there is less than usual and that are together at least this part of the difference make its shares hard to read.
const CANCELS: f64 = 0.5;

/// What is said of a difference that is the small rest of large rows of both signs: its shares are of that rest.
pub(super) fn cancelling(d: &Diagnosis) -> Option<String> {
    let total: i64 = d.causes.iter().map(|c| c.deviation_ns).sum();
    let more: i64 = d.causes.iter().map(|c| c.deviation_ns.max(0)).sum();
    let less = more - total;
    (less as f64 > CANCELS * total.abs() as f64).then(|| {
        format!(
            "These rows cancel: {} more in some, {} less in others; the shares are of the {} that are left, so read the times",
            units::duration(more.unsigned_abs()),
            units::duration(less.unsigned_abs()),
            units::signed_duration(total)
        )
    })
}

/// The largest of the rows that may be chance, with their shares; empty where they are not known.
pub(super) fn by_chance(d: &Diagnosis) -> String {
    let mut rows: Vec<&Cause> = d.not_significant.iter().filter(|c| c.share.abs() >= NOTHING).collect();
    rows.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
    let cause = |c: &&Cause| format!("{}{} {}", clean(&c.with_category()), guessed(c.guessed), units::percent(c.share));
    rows.iter().take(CHANCE).map(cause).collect::<Vec<_>>().join(", ")
}

/// The lines of the table, the header first.
pub(super) fn table(d: &Diagnosis, style: &Style) -> Vec<String> {
    let (shown, small) = split(d);
    let mut rows: Vec<Row> = shown.iter().map(|c| Row::of(c, d.focus.messages)).collect();
    if let Some(first) = small.first() {
        // Where the first of them would stand: behind it come rows of which there was less than usual.
        rows.insert(shown.partition_point(|c| c.rank < first.rank), Row::folded(&small));
    }
    for cause in d.causes.iter().filter(|c| !is_named(c)) {
        let mut row = Row::of(cause, d.focus.messages);
        if cause.category == Category::NotSignificant && cause.share.abs() >= SMALL {
            row.below = by_chance(d);
        }
        rows.push(row);
    }
    lay_out(&rows, style)
}

/// The widths of the columns.
struct Widths {
    rank: usize,
    share: usize,
    /// 0: no bars.
    bar: usize,
    time: usize,
    role: usize,
    category: usize,
    /// 0: names stand below their category, whole.
    name: usize,
    hit: usize,
    /// Whether rows are of several cores: else the column says nothing.
    cores: bool,
    /// A narrow terminal: the header says "core" and the column only which one, so that names have room.
    narrow: bool,
    columns: usize,
}

impl Widths {
    fn new(rows: &[Row], style: &Style) -> Widths {
        let longest = |cell: &dyn Fn(&Row) -> usize, least: usize| rows.iter().map(cell).max().unwrap_or(0).max(least);
        let chars = |s: &str| s.chars().count();
        let mut widths = Widths {
            rank: longest(&|r| chars(&r.rank), 1),
            share: longest(&|r| chars(&units::percent(r.share)), 5),
            bar: 0,
            time: longest(&|r| chars(&r.time), 4),
            role: 0,
            category: longest(&|r| if r.role.is_empty() { 0 } else { chars(&r.category) }, 5),
            name: 0,
            hit: longest(&|r| chars(&r.hit), 3),
            cores: rows.iter().any(|row| row.role == role_name(Role::R)),
            narrow: style.columns() < 100,
            columns: style.columns(),
        };
        widths.role = if widths.cores { longest(&|r| chars(widths.role_of(r)), 4) + 2 } else { 0 };
        let Widths { rank, share, time, role, category, hit, .. } = widths;
        let fixed = 1 + rank + 1 + share + 2 + 2 + time + 2 + role + 2 + 2 + hit;
        // Names come first: the bar is shortened for them, and where that is not enough they stand below their category.
        let free = widths.columns.saturating_sub(fixed + category);
        let name = longest(&|r| chars(&r.name), 4);
        let least = name.min(LEAST_NAME);
        (widths.name, widths.bar) = match free.saturating_sub(6) {
            room if room >= least => {
                let name = name.min(room).max(4);
                (name, free.saturating_sub(name).clamp(4, 28))
            }
            // Without the bar, its two spaces are free too.
            _ if free + 2 >= least => (name.min(free + 2), 0),
            _ => (0, 0),
        };
        widths
    }

    /// The core, in as many words as there is room for.
    fn role_of<'a>(&self, row: &Row) -> &'a str {
        match row.role {
            "application core" if self.narrow => "app",
            other if self.narrow => other.trim_end_matches(" core"),
            other => other,
        }
    }

    fn header(&self) -> String {
        let Widths { rank, share, bar, time, role, category, name, hit, .. } = *self;
        let gap = if bar > 0 { format!("{:bar$}  ", "") } else { String::new() };
        let name = if name == 0 { String::new() } else { format!("{:name$}  ", "") };
        format!(
            " {:>rank$} {:>share$}  {gap}{:>time$}  {:role$}{:category$}  {name}{:>hit$}",
            "#",
            "share",
            "time",
            if self.cores { "core" } else { "" },
            "cause",
            "hit"
        )
    }

    /// Core, cause and name of a row, and the lines that stand below them.
    fn what(&self, row: &Row) -> (String, Vec<String>) {
        let Widths { role: role_w, category: category_w, name: name_w, .. } = *self;
        let (below, role) = (name_w == 0, if self.cores { self.role_of(row) } else { "" });
        if row.role.is_empty() {
            // No core to name: the text takes the place of the three columns.
            let w = role_w + if below { category_w } else { category_w + 2 + name_w };
            return (format!("{:w$}", cut(&row.category, w)), vec![]);
        }
        let bar = if self.bar > 0 { self.bar + 2 } else { 0 };
        let before = 1 + self.rank + 1 + self.share + 2 + bar + self.time + 2 + role_w;
        if below {
            let indent = before.min(self.columns / 2);
            let lines = if row.name.is_empty() { vec![] } else { wrap(&row.name, self.columns - indent, "") };
            let more = lines.into_iter().map(|line| " ".repeat(indent) + &line).collect();
            return (format!("{role:role_w$}{:category_w$}", cut(&row.category, category_w)), more);
        }
        // A name that is too long continues on the next line.
        let lines = in_lines(&row.name, name_w);
        let indent = " ".repeat(before + category_w + 2);
        let more = lines.iter().skip(1).map(|line| format!("{indent}{line}")).collect();
        let name = lines.first().map_or("", String::as_str);
        (format!("{role:role_w$}{:category_w$}  {name:name_w$}", row.category), more)
    }
}

fn lay_out(rows: &[Row], style: &Style) -> Vec<String> {
    let widths = Widths::new(rows, style);
    let Widths { rank, share, bar: bar_w, time, hit, .. } = widths;
    let top = rows.iter().map(|r| r.share.abs()).fold(0.0, f64::max);
    let mut out = vec![paint(style, "2", &widths.header())];
    for (i, row) in rows.iter().enumerate() {
        let solid = bar(if top > 0.0 { row.share.abs() / top } else { 0.0 }, bar_w);
        let drawn = if row.share < 0.0 { "░".repeat(solid.chars().count()) } else { solid };
        let (bar_code, code) = match (row.dim, i) {
            (true, _) => ("2", "2"),
            (false, 0) => ("31", "1"),
            (false, _) => ("33", "0"),
        };
        let drawn = if bar_w > 0 { paint(style, bar_code, &format!("{drawn:bar_w$}")) + "  " } else { String::new() };
        let left = format!(" {:>rank$} {:>share$}", row.rank, units::percent(row.share));
        let (what, more) = widths.what(row);
        let right = format!("{:>time$}  {what}  {:>hit$}", row.time, row.hit);
        out.push(format!("{}  {drawn}{}", paint(style, code, &left), paint(style, code, right.trim_end())));
        out.extend(more.into_iter().map(|line| paint(style, code, &line)));
        if !row.below.is_empty() {
            let indent = " ".repeat(1 + rank + 1 + share + 2);
            let lines = in_lines(&format!("the largest: {}", row.below), style.columns() - indent.len());
            out.extend(lines.into_iter().map(|line| paint(style, code, &format!("{indent}{line}"))));
        }
    }
    out
}

/// Breaks a text at spaces into lines of this many columns; a word that is longer than a line is cut.
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
