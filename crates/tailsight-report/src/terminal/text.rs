//! Text for a terminal: cleaning, measuring, cutting, wrapping and painting.
//!
//! Widths are counted in characters, one column each; ANSI sequences that [`paint`] added count as none.

use tailsight_units::Untrusted;

use super::Style;

/// Text as [`Untrusted`] shows it.
pub(super) fn clean(text: &str) -> String {
    Untrusted(text).to_string()
}

/// The text between an SGR sequence and its reset when the style has colours.
pub(super) fn paint(style: &Style, code: &str, text: &str) -> String {
    if style.color && !text.trim().is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Columns that the text takes.
pub(super) fn width(text: &str) -> usize {
    let mut columns = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            for c in chars.by_ref() {
                if c == 'm' {
                    break;
                }
            }
        } else {
            columns += 1;
        }
    }
    columns
}

/// The text cut to so many columns, with an ellipsis where something is missing.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(columns.saturating_sub(1)).collect();
    out.push('…');
    out
}

/// The text broken at spaces into lines of at most `columns`; lines after the first start with `indent`, which does
/// not count. What stands between back quotes is a command and is never broken.
pub fn wrap(text: &str, columns: usize, indent: &str) -> Vec<String> {
    let text = clean(text);
    let mut words: Vec<String> = Vec::new();
    let mut quoted = false;
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        match words.last_mut() {
            Some(last) if quoted => *last += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
        if word.matches('`').count() % 2 == 1 {
            quoted = !quoted;
        }
    }
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in words {
        if line.is_empty() {
            line = word;
        } else if line.chars().count() + 1 + word.chars().count() <= columns {
            line += &format!(" {word}");
        } else {
            lines.push(std::mem::replace(&mut line, word));
        }
    }
    lines.push(line);
    for line in lines.iter_mut().skip(1) {
        line.insert_str(0, indent);
    }
    lines
}

/// A bar of `share` (0 to 1) of so many columns, in eighths of a column; at least one eighth when it is not nothing.
pub(super) fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [char; 8] = ['█', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { eighths };
    let mut out = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        out.push(EIGHTHS[eighths % 8]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_name_cannot_move_the_cursor() {
        assert_eq!(clean("ngi\x1b[2Jnx\r\n\u{202e}"), "ngi?[2Jnx???");
    }

    #[test]
    fn width_ignores_colours() {
        let style = Style { color: true, width: 80 };
        assert_eq!(width(&paint(&style, "1;31", "nginx")), 5);
    }

    #[test]
    fn wrapping_keeps_commands_whole() {
        let lines = wrap("pin it with `taskset -cp 2 4711` and look again", 16, "  ");
        assert_eq!(lines, ["pin it with", "  `taskset -cp 2 4711`", "  and look again"]);
        assert_eq!(wrap("", 10, " "), [""]);
    }

    #[test]
    fn bars_are_proportional_and_never_vanish() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(0.0001, 4), "▏");
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(7.0, 2), "██");
    }

    #[test]
    fn cutting_says_so() {
        assert_eq!(cut("kworker/u8:3-events", 10), "kworker/u…");
        assert_eq!(cut("nginx", 5), "nginx");
    }
}
