//! Calls that whoever made a file system may hold: a lookup in a file system of a process's own (FUSE) ends when that process likes, and no
//! signal with a handler ends it earlier.
//!
//! In: the call. Out: its result, or that it took too long. It is made in a thread, which is given up then; the end of this process ends it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tailsight_confine::priority;

/// How long such a call may take. From a disk or over a network it takes milliseconds.
const LIMIT: Duration = Duration::from_secs(1);
/// After so many that took longer no more are made: each of a thousand files would take its second.
const MOST_GIVEN_UP: u32 = 2;

/// That of this process.
static PATIENCE: Patience = Patience { given_up: AtomicU32::new(0) };

/// Makes the call in a thread of its own.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`], if it took too long, or calls before it did; what keeps a thread from starting.
pub fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    PATIENCE.in_time(call)
}

struct Patience {
    /// Calls that took too long.
    given_up: AtomicU32,
}

impl Patience {
    fn in_time<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let too_long = || {
            let why = format!("whoever answers for its file system took more than {} s", LIMIT.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, why)
        };
        if self.given_up.load(Ordering::Relaxed) >= MOST_GIVEN_UP {
            return Err(too_long());
        }
        let (answer, answered) = mpsc::channel();
        let make = move || {
            // It has the turn of the thread that starts it, which may give way to all else; its time would be over before it began.
            priority::as_usual(0);
            // Nobody waits for it any more, perhaps.
            let _ = answer.send(call());
        };
        let thread = std::thread::Builder::new().name("tailsight-open".into()).spawn(make)?;
        match answered.recv_timeout(LIMIT) {
            Ok(result) => {
                // It ends now; else threads would be there that a reader of this process's threads may miss.
                let _ = thread.join();
                Ok(result)
            }
            // It panicked: the call is of no use, as if it had not ended.
            Err(mpsc::RecvTimeoutError::Timeout | mpsc::RecvTimeoutError::Disconnected) => {
                self.given_up.fetch_add(1, Ordering::Relaxed);
                Err(too_long())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_nobody_answers_is_given_up_and_the_third_not_made() {
        let patience = Patience { given_up: AtomicU32::new(0) };
        assert_eq!(patience.in_time(|| 7).unwrap(), 7);
        let begun = std::time::Instant::now();
        let hangs = || patience.in_time(|| std::thread::sleep(Duration::from_secs(60))).unwrap_err().kind();
        assert_eq!([hangs(), hangs(), hangs()], [io::ErrorKind::TimedOut; 3]);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}
