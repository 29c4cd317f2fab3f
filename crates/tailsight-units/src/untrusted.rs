//! Text from outside: names of tasks, words of servers and agents, whatever a run directory holds.
//!
//! In: any text. Out: by `Display`, the same without characters that a terminal acts on: each becomes `?`. Whoever started a
//! task chose its name, and a run may come from anywhere; what is printed through this type moves no cursor and turns no text
//! around.

use std::fmt::{self, Display, Write};

/// Text from outside. `Display` cleans it; the text itself is for comparing, not for printing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Untrusted<T>(pub T);

impl<T: AsRef<str>> Display for Untrusted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.as_ref();
        match text.contains(hostile) {
            false => f.pad(text),
            true => f.pad(&text.chars().map(|c| if hostile(c) { '?' } else { c }).collect::<String>()),
        }
    }
}

/// Characters that a terminal acts on or does not show: control characters, those that override the direction of text, and
/// those of no width.
pub fn hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Lines of text that may hold anything: every hostile character but the ends of lines and tabs becomes `?`. With `paint`, the
/// sequences that only change colours and weight (`ESC [ numbers m`) stay.
pub fn lines(text: &str, paint: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let sequence = if paint { colour(rest) } else { 0 };
        if sequence > 0 {
            out.push_str(&rest[..sequence]);
            rest = &rest[sequence..];
            continue;
        }
        out.push(if hostile(c) && c != '\n' && c != '\t' { '?' } else { c });
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Bytes of the colour sequence at the begin; 0: there is none.
fn colour(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\x1b[") else { return 0 };
    let length = numbers.bytes().take_while(|b| b.is_ascii_digit() || *b == b';').count();
    if numbers.as_bytes().get(length) == Some(&b'm') { 2 + length + 1 } else { 0 }
}

/// JSON whose hostile characters are written as escapes: the same to every reader of JSON.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if hostile(c) && c != '\n' && c != '\t' {
            // Outside of its strings JSON has none of these.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_move_the_cursor() {
        assert_eq!(Untrusted("ngi\x1b[2Jnx\r\n\u{202e}\u{9b}").to_string(), "ngi?[2Jnx????");
        assert_eq!(format!("[{:<6}] [{:>3}]", Untrusted("a\x07"), Untrusted(String::from("b"))), "[a?    ] [  b]");
        assert_eq!(Untrusted("サーバ é").to_string(), "サーバ é");
    }

    #[test]
    fn of_lines_only_colours_stay_and_only_when_asked_for() {
        let text = "\x1b[1;31mred\x1b[0m\n\t\x1b[2J\x1b]0;title\x07\x1b[mx\x1b";
        assert_eq!(lines(text, true), "\x1b[1;31mred\x1b[0m\n\t?[2J?]0;title?\x1b[mx?");
        assert_eq!(lines("\x1b[31mred\n", false), "?[31mred\n");
    }

    #[test]
    fn json_stays_the_same_value() {
        assert_eq!(json("{\n\"a\": \"\u{9b}b\u{202e}\u{e0001}é\"}"), "{\n\"a\": \"\\u009bb\\u202e\\udb40\\udc01é\"}");
    }
}
