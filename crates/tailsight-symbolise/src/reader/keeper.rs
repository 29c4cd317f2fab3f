//! The process that keeps readers for a recorder: it starts one when it is asked to, and ends it when that one does not answer.
//!
//! In: on its standard input, a socket, [`START`] with a descriptor (the reader's end of its own socket) or [`STOP`]. Out: after each
//! start the reader's process id in four bytes. It is started by the recorder before that gives up the right to start programs, is
//! nobody from its first moment on, and reads nothing but these two bytes; a reader is a fork of it with less rights still. It ends, and
//! its reader with it, when the recorder does.

use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use tailsight_confine::limits::Limits;
use tailsight_confine::{filter, user};

use super::protocol::receive_part;
use super::worker;

/// Start a reader; its socket comes along.
pub const START: u8 = b'+';
/// End the reader.
pub const STOP: u8 = b'-';

/// What a reader may use. The files that it looks into are copied to its memory.
const LIMITS: Limits = Limits { memory_bytes: 3 << 30, cpu_s: 60, file_bytes: super::MOST_FILE_BYTES };
/// Runs until the recorder is gone. Called in a process of its own with one thread, whose standard input is the socket.
pub fn run() -> ! {
    // The recorder's end is this one's; a terminal's Ctrl-C is not.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: ignores a signal.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let code = match user::become_nobody() {
        Ok(()) => {
            // SAFETY: the descriptor is this process' standard input, which nothing else uses.
            keep(unsafe { UnixStream::from_raw_fd(0) });
            0
        }
        Err(_) => 1,
    };
    std::process::exit(code)
}

fn keep(mut control: UnixStream) {
    let mut reader = None;
    while let Some((what, socket)) = next(&control) {
        stop(&mut reader);
        if what != START {
            continue;
        }
        let Some(socket) = socket else { continue };
        // SAFETY: this process has one thread, so that the child's memory is whole.
        match unsafe { libc::fork() } {
            0 => {
                drop(control);
                read(UnixStream::from(socket))
            }
            pid => {
                reader = (pid > 0).then_some(pid);
                let _ = control.write_all(&pid.to_le_bytes());
            }
        }
    }
    stop(&mut reader);
}

/// The recorder's next wish; none when it is gone.
fn next(control: &UnixStream) -> Option<(u8, Option<OwnedFd>)> {
    let (mut what, mut sockets) = ([0], vec![]);
    let bytes = receive_part(control, &mut what, &mut sockets).ok()?;
    (bytes > 0).then(|| (what[0], sockets.pop()))
}

fn stop(reader: &mut Option<libc::pid_t>) {
    let Some(pid) = reader.take() else { return };
    // SAFETY: a child of this process that was not waited for, so that the number is still its.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// A reader, until its socket ends.
fn read(socket: UnixStream) -> ! {
    // SAFETY: no pointers. It ends with the keeper.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) };
    // Panics are errors like others here, and the terminal is the recorder's.
    std::panic::set_hook(Box::new(|_| {}));
    let confined = LIMITS.set().is_ok() && filter::install_for_reader().is_ok();
    if confined {
        worker::serve(&socket);
    }
    // SAFETY: ends the process without running what the keeper's copy of the program has registered.
    unsafe { libc::_exit(i32::from(!confined)) }
}
