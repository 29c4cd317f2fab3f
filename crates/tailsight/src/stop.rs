//! Signals: the first one asks for an orderly end, so that nothing is lost; the second one ends at once. SIGTERM and SIGHUP come from
//! supervisors that do not wait: a recording that they end has a second.
//!
//! A handler and no thread that waits for signals: a recording gives up capabilities, which are a thread's own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use tailsight_record::Stop;

/// What the handler sets. It is there before the handler is.
static STOP: OnceLock<Stop> = OnceLock::new();

/// Installs the handler and gives the flag that it sets.
pub fn on_interrupt() -> Arc<AtomicBool> {
    Arc::clone(of_recording().asked())
}

/// Installs the handler and gives what it sets for a recording.
pub fn of_recording() -> Stop {
    let stop = STOP.get_or_init(Stop::default);
    let action = SigAction::new(SigHandler::Handler(interrupted), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler does nothing but what signal-safety(7) allows. Fails for no signal of these.
        let _ = unsafe { sigaction(signal, &action) };
    }
    stop.clone()
}

/// Loads and stores atomics, or ends the process: nothing else is allowed here.
extern "C" fn interrupted(signal: libc::c_int) {
    let Some(stop) = STOP.get() else { return };
    if signal != libc::SIGINT {
        stop.urgent().store(true, Ordering::Relaxed);
    }
    if stop.asked().swap(true, Ordering::Relaxed) {
        // SAFETY: ends the process without running anything of it.
        unsafe { libc::_exit(130) };
    }
}
