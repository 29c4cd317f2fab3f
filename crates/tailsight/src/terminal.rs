//! What the terminal can do: colours, width; everything that is written to standard output and standard error; and the progress
//! line on standard error.
//!
//! Nothing else in this program prints (clippy's `print_stdout` and `print_stderr` see to it): a standard error that is closed or
//! full is no reason to end a recording, and no text from outside reaches a terminal with characters that it acts on.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tailsight_record::{Contents, Progress, Until};
use tailsight_report::terminal::Style;
use tailsight_units::{Untrusted, untrusted};

/// How results are to look on standard output.
pub fn style() -> Style {
    let tty = std::io::stdout().is_terminal();
    let color = tty && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    Style { color, width: width(tty) }
}

fn width(tty: bool) -> usize {
    let from_env = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let from_tty = || {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the request fills a winsize.
        let rc = unsafe { libc::ioctl(1, libc::TIOCGWINSZ, &raw mut size) };
        (tty && rc == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    from_env.or_else(from_tty).unwrap_or(100)
}

/// Whether texts are to be ASCII.
static ASCII: AtomicBool = AtomicBool::new(false);

/// From now on texts are ASCII, if so asked.
pub fn only_ascii(asked: bool) {
    ASCII.store(asked, Ordering::Relaxed);
}

/// Whether texts are ASCII.
pub fn is_ascii() -> bool {
    ASCII.load(Ordering::Relaxed)
}

/// A text as it is, or in ASCII where that was asked: character by character, so that columns stay where they are.
fn in_charset(text: String) -> String {
    match ASCII.load(Ordering::Relaxed) {
        true => ascii(&text),
        false => text,
    }
}

fn ascii(text: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii() => c,
        '█' | '▉' | '▊' | '▋' | '▌' => '#',
        '▍' | '▎' | '▏' => '-',
        '░' | '▒' | '▓' => ':',
        '▸' | '→' | '▶' | '›' => '>',
        '←' => '<',
        '…' => '.',
        '–' | '—' | '−' | '─' => '-',
        '·' | '•' => '*',
        '│' => '|',
        '≤' => '<',
        '≥' => '>',
        '×' => 'x',
        'µ' | 'μ' => 'u',
        '’' | '‘' => '\'',
        '“' | '”' => '"',
        '\u{a0}' => ' ',
        _ => '?',
    };
    text.chars().map(plain).collect()
}

/// Writes to standard output; a closed pipe is an error that `main` takes as the end.
pub fn print(text: &str) -> anyhow::Result<()> {
    write_out(&in_charset(untrusted::lines(text, style().color)))
}

/// Writes a value as JSON to standard output.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    write_out(&(untrusted::json(&serde_json::to_string_pretty(value)?) + "\n"))
}

/// Writes a value as JSON in one line to standard output.
pub fn print_json_line(value: &impl serde::Serialize) -> anyhow::Result<()> {
    write_out(&(untrusted::json(&serde_json::to_string(value)?) + "\n"))
}

/// Writes a value as JSON with the fields of each object by name: so these outputs have always been.
pub fn print_sorted(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print_json(&serde_json::to_value(value)?)
}

fn write_out(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes a line to standard error, formatted as by `format!`. Nobody may be reading there: that is no error.
macro_rules! say {
    ($($words:tt)*) => { $crate::terminal::say(&format!("{}\n", format_args!($($words)*))) };
}

/// Writes to standard error, for [`say!`] and for what ends without a line feed.
pub fn say(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(in_charset(untrusted::lines(text, false)).as_bytes()).and_then(|()| err.flush());
}

/// What ends a recording before it has all that it waits for.
const KEEPS: &str = "Ctrl-C keeps what there is";

/// The progress of a recording, on standard error: a bar on a terminal, two lines elsewhere.
pub struct Recording {
    bar: ProgressBar,
    duration: Option<Duration>,
    until: Option<Until>,
    said: bool,
}

impl Recording {
    /// A recording of that length, or until there is enough.
    pub fn new(duration: Option<Duration>, until: Option<Until>) -> Recording {
        let bar = match (duration, until) {
            (Some(d), _) => ProgressBar::new(d.as_millis() as u64),
            (None, Some(_)) => ProgressBar::new(1_000),
            (None, None) => ProgressBar::new_spinner(),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let template =
            if bar.length().is_some() { "recording {bar:30} {msg}" } else { "recording {spinner} {elapsed} {msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Recording { bar, duration, until, said: false }
    }

    fn length(&self) -> String {
        match (self.duration, self.until) {
            (Some(d), _) => format!("for {d:?}"),
            (None, Some(u)) => {
                let (least, most) = (u.least.as_secs_f64(), u.most.as_secs_f64());
                let samples = match u.slow_samples {
                    0 => String::new(),
                    n => format!(" and, where slow ones run, {n} samples were taken in them"),
                };
                let messages = u.messages;
                format!("until about {messages} messages were answered{samples}, {least:.0} to {most:.0} s; {KEEPS}")
            }
            (None, None) => "until stopped".to_owned(),
        }
    }

    /// Shows where it stands.
    pub fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Loading { app, pids, ports } => {
                let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
                let app = Untrusted(app);
                let who = if pids.is_empty() { app.to_string() } else { format!("{app} ({})", processes(&pids)) };
                let place = if ports.is_empty() { String::new() } else { format!(", port {ports}") };
                say!("target: {who}{place}");
            }
            Progress::Recording { elapsed, events, lost, contents } => {
                let lost = if lost > 0 { format!(", {lost} lost") } else { String::new() };
                match (self.duration, self.until) {
                    (Some(_), _) => self.bar.set_position(elapsed.as_millis() as u64),
                    (None, Some(until)) => self.bar.set_position((1_000.0 * part(&until, contents, elapsed)) as u64),
                    (None, None) => self.bar.tick(),
                }
                self.bar.set_message(match self.until.filter(|_| self.duration.is_none()) {
                    Some(u) => standing(&u, contents, elapsed) + &lost,
                    None => format!("{events} events{lost}"),
                });
                if !self.said && self.bar.is_hidden() {
                    say!("recording {}", self.length());
                }
                self.said = true;
            }
            Progress::Measuring => self.bar.finish_and_clear(),
            Progress::Writing { .. } => {}
        }
    }
}

/// The part of what the recording waits for that it holds, 0 to 1.
fn part(until: &Until, contents: Contents, elapsed: Duration) -> f64 {
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    let samples = match (contents.slow_samples, until.awaited_samples(contents, elapsed)) {
        (Some(samples), Some(awaited)) => share(samples, awaited)
            .max(elapsed.as_secs_f64() / until.most_for_samples.as_secs_f64())
            .max(share(contents.messages, until.most_messages)),
        _ => 1.0,
    };
    share(contents.messages, until.messages).min(samples).min(1.0)
}

/// What it waits for, in words.
fn standing(until: &Until, contents: Contents, elapsed: Duration) -> String {
    let (messages, seconds) = (contents.messages, elapsed.as_secs_f64());
    let samples = contents.slow_samples.zip(until.awaited_samples(contents, elapsed));
    match samples.filter(|_| messages >= until.messages) {
        Some((samples, awaited)) => format!(
            "about {messages} messages; for their functions: {samples} of {awaited} samples in slow ones, {seconds:.0} of at most {:.0} s; {KEEPS}",
            until.most_for_samples.as_secs_f64()
        ),
        None => {
            let most = until.most.as_secs_f64();
            format!("about {messages} of {} messages, {seconds:.0} of at most {most:.0} s; {KEEPS}", until.messages)
        }
    }
}

fn processes(pids: &[u32]) -> String {
    let shown: Vec<String> = pids.iter().take(4).map(u32::to_string).collect();
    let more = if pids.len() > 4 { format!(" and {} more", pids.len() - 4) } else { String::new() };
    format!("pid {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_recording_says_what_it_waits_for() {
        let until = Until {
            messages: 2_500,
            least: Duration::from_secs(2),
            most: Duration::from_secs(30),
            slow_samples: 200,
            few_slow_samples: 60,
            most_for_samples: Duration::from_secs(20),
            most_messages: 100_000,
        };
        let at = |messages, slow_samples, seconds| {
            let (contents, elapsed) =
                (Contents { messages, slow_samples, ..Contents::default() }, Duration::from_secs(seconds));
            (standing(&until, contents, elapsed), (1_000.0 * part(&until, contents, elapsed)) as u64)
        };
        let messages = "about 500 of 2500 messages, 1 of at most 30 s; Ctrl-C keeps what there is".to_owned();
        assert_eq!(at(500, None, 1), (messages.clone(), 200));
        assert_eq!(at(500, Some(90), 1), (messages, 200), "the messages first");
        let samples = "about 5000 messages; for their functions: 90 of 200 samples in slow ones, 4 of at most 20 s; Ctrl-C keeps what there is".to_owned();
        assert_eq!(at(5_000, Some(90), 4), (samples, 450));
        assert_eq!(at(5_000, Some(130), 15).1, 750, "the time ends it first");
        assert_eq!(at(5_000, Some(10), 15).1, 1_000, "ten in 15 s: it does not wait for more");
        assert_eq!(at(90_000, Some(90), 4).1, 900, "or the messages do");
        let late = "about 2000 of 2500 messages, 25 of at most 30 s; Ctrl-C keeps what there is".to_owned();
        assert_eq!(at(2_000, Some(10), 25), (late, 800));
        assert_eq!(
            Recording::new(None, Some(until)).length(),
            "until about 2500 messages were answered and, where slow ones run, 200 samples were taken in them, 2 to 30 s; Ctrl-C \
             keeps what there is"
        );
        let without = Until { slow_samples: 0, ..until };
        assert_eq!(
            Recording::new(None, Some(without)).length(),
            "until about 2500 messages were answered, 2 to 30 s; Ctrl-C keeps what there is"
        );
    }

    #[test]
    fn ascii_keeps_the_columns() {
        let text = "▸ 61.8 %  ██▌  nginx → größe…";
        assert_eq!(ascii(text), "> 61.8 %  ###  nginx > gr??e.");
        assert_eq!(ascii(text).chars().count(), text.chars().count());
        assert_eq!(ascii("plain\n"), "plain\n");
    }
}
