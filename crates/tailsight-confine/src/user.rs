//! To be nobody: a process that reads what strangers wrote has no right to anything else.
//!
//! In: nothing. Out: whether the process has another user now. Only for a process with one thread: capabilities are a thread's own.

use std::io;

use crate::capabilities;

/// The user and the group that own nothing, by the kernel's convention for identities that it cannot show.
const NOBODY: u32 = 65_534;

/// Becomes nobody without groups where the process may, and gives up every capability. Programs that it starts gain none.
///
/// # Errors
/// The kernel's, when capabilities are left or programs could gain rights. Without the right to change the user it stays who it is.
pub fn become_nobody() -> io::Result<()> {
    let done = |rc: libc::c_int| if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: no pointers but of an empty list.
    let changed = unsafe {
        done(libc::setgroups(0, std::ptr::null()))
            .and_then(|()| done(libc::setresgid(NOBODY, NOBODY, NOBODY)))
            .and_then(|()| done(libc::setresuid(NOBODY, NOBODY, NOBODY)))
    };
    match changed {
        Err(e) if e.raw_os_error() != Some(libc::EPERM) => return Err(e),
        _ => {}
    }
    capabilities::keep_only(&[])?;
    // SAFETY: no pointers.
    done(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, 0, 0, 0) })
}
