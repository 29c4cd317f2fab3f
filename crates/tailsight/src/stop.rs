//! Ctrl-C: the first one asks for an orderly end, so that nothing is lost; the second one ends at once.
//!
//! A handler and no thread that waits for signals: a recording gives up capabilities, which are a thread's own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// What the handler sets. It is there before the handler is.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Installs the handler and gives the flag that it sets.
pub fn on_interrupt() -> Arc<AtomicBool> {
    let stop = STOP.get_or_init(|| Arc::new(AtomicBool::new(false)));
    let action = SigAction::new(SigHandler::Handler(interrupted), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler does nothing but what signal-safety(7) allows. Fails for no signal of these.
        let _ = unsafe { sigaction(signal, &action) };
    }
    Arc::clone(stop)
}

/// Loads and stores an atomic, or ends the process: nothing else is allowed here.
extern "C" fn interrupted(_signal: libc::c_int) {
    let Some(stop) = STOP.get() else { return };
    if stop.swap(true, Ordering::Relaxed) {
        // SAFETY: ends the process without running anything of it.
        unsafe { libc::_exit(130) };
    }
}
