//! The live display of a measurement, on standard error and on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tailsight_measure::{Event, Tick};

/// A bar of the time allowed, and what the method does.
pub struct Live {
    bar: ProgressBar,
    prefix: String,
}

impl Live {
    /// A measurement of at most this long.
    pub fn new(max_time: Duration) -> Self {
        let bar = ProgressBar::new(max_time.as_millis() as u64);
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_message("connecting");
        Self { bar, prefix: String::new() }
    }

    /// What stands before each message: the rate of a sweep.
    pub fn prefix(&mut self, text: String) {
        self.prefix = text;
        self.bar.set_position(0);
    }

    /// Shows where it stands.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Tick(tick) => {
                let length = self.bar.length().unwrap_or(0) as f64;
                self.bar.set_position((tick.time_used.min(1.0) * length) as u64);
                self.bar.set_message(format!("{}{}", self.prefix, words(tick)));
            }
            Event::Judged { what, .. } if !self.bar.is_hidden() => self.bar.println(format!("{}{what}", self.prefix)),
            _ => {}
        }
    }

    /// Removes it.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn words(tick: &Tick) -> String {
    let failed = if tick.progress.failed > 0 { format!(", {} failed", tick.progress.failed) } else { String::new() };
    let rate = format!("{:.0} requests/s{failed}", tick.rate);
    match tick.samples {
        (_, 0) => format!("{rate}, waiting for a steady load"),
        (have, wanted) => format!("{rate}, batch {}: {have} of {wanted} samples", tick.batch),
    }
}
