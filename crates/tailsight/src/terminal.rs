//! What the terminal can do: colours, width; and the progress line on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tailsight_record::Progress;
use tailsight_report::terminal::Style;

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

/// Writes to standard output; a closed pipe is an error that `main` takes as the end.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The progress of a recording, on standard error: a bar on a terminal, two lines elsewhere.
pub struct Recording {
    bar: ProgressBar,
    duration: Option<Duration>,
    said: bool,
}

impl Recording {
    /// A recording of that length.
    pub fn new(duration: Option<Duration>) -> Recording {
        let bar = match duration {
            Some(d) => ProgressBar::new(d.as_millis() as u64),
            None => ProgressBar::new_spinner(),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let template =
            if duration.is_some() { "recording {bar:30} {msg}" } else { "recording {spinner} {elapsed} {msg}" };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Recording { bar, duration, said: false }
    }

    /// Shows where it stands.
    pub fn show(&mut self, progress: Progress) {
        match progress {
            Progress::Loading { app, pids, ports } => {
                let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
                let who = if pids.is_empty() { app } else { format!("{app} ({})", processes(&pids)) };
                let place = if ports.is_empty() { String::new() } else { format!(", port {ports}") };
                eprintln!("target: {who}{place}");
            }
            Progress::Recording { elapsed, events, lost } => {
                if self.duration.is_some() {
                    self.bar.set_position(elapsed.as_millis() as u64);
                } else {
                    self.bar.tick();
                }
                let lost = if lost > 0 { format!(", {lost} lost") } else { String::new() };
                self.bar.set_message(format!("{events} events{lost}"));
                if !self.said && self.bar.is_hidden() {
                    let length = self.duration.map_or("until stopped".to_owned(), |d| format!("for {d:?}"));
                    eprintln!("recording {length}");
                }
                self.said = true;
            }
            Progress::Measuring => self.bar.finish_and_clear(),
            Progress::Writing { .. } => {}
        }
    }
}

fn processes(pids: &[u32]) -> String {
    let shown: Vec<String> = pids.iter().take(4).map(u32::to_string).collect();
    let more = if pids.len() > 4 { format!(" and {} more", pids.len() - 4) } else { String::new() };
    format!("pid {}{more}", shown.join(", "))
}
