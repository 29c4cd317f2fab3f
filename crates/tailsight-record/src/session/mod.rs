//! One recording, from the target to the run directory: prepared ([`prepare`]), running ([`recording`]), finished ([`finish`]).
//!
//! Probes are loaded and attached first and switched on by one store, so that the recording starts at once. Short
//! recordings are drained after they end; longer ones while they run, when the buffers fill. Whatever happens (Ctrl-C,
//! the target exits, the disk fills), what was recorded is kept.

mod containers;
mod drain;
mod finish;
pub mod options;
mod prepare;
mod recording;
mod routines;
mod sampling;
mod target;
mod tls;
pub mod traced;
pub mod watched;

use crate::confine::Stage;
use crate::error::Error;
use crate::stop::Stop;
use prepare::Prepared;
use recording::Recording;

pub use options::{Contents, Options, Payload, Progress, RecordSummary, SampleRate, SlowTime, Until};
pub use traced::{Asked, Traces};

/// Records.
///
/// # Errors
/// Everything that happens before the first event; later trouble is in [`RecordSummary::error`].
pub fn record(options: &Options, stop: &Stop, progress: &mut dyn FnMut(Progress)) -> Result<RecordSummary, Error> {
    let mut ready = Prepared::new(options, stop, progress)?;
    let writer = ready.writer()?;
    ready.start_target()?;
    let mut recording = Recording::start(ready, writer);
    recording.confine(Stage::Recording);
    recording.run(stop, progress);
    Ok(recording.finish(stop, progress))
}
