//! The lowest scheduling priority for a while, for work that the server must not wait for.

/// The lowest priority for this thread while it lives: writing while recording is work that the server must not wait for.
pub struct LowPriority {
    before: Option<i32>,
}

impl LowPriority {
    /// Lowers it.
    pub fn begin() -> LowPriority {
        // SAFETY: no pointers; 0 is the calling thread.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: as above. Without the right to go back to what it was there is no way out, so it stays.
        let lowered = may_raise_priority() && unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } == 0;
        LowPriority { before: lowered.then_some(before) }
    }
}

impl Drop for LowPriority {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: no pointers; 0 is the calling thread.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, before) };
        }
    }
}

/// Whether this process may raise its priority: root has that right.
fn may_raise_priority() -> bool {
    nix::unistd::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority() -> i32 {
        // SAFETY: no pointers; 0 is the calling thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn the_priority_comes_back() {
        let before = priority();
        let low_priority = LowPriority::begin();
        assert_eq!(priority(), if may_raise_priority() { 19 } else { before });
        drop(low_priority);
        assert_eq!(priority(), before);
    }
}
