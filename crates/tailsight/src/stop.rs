//! Ctrl-C: the first one asks for an orderly end, so that nothing is lost; the second one ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Installs the handler and gives the flag that it sets.
pub fn on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Only fails when a handler was installed before, and this is the only place that does.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    stop
}
