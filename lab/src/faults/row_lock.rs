//! A row of a table of PostgreSQL, locked. In: the server's socket, a schedule. Out: truth log entries from when the row was locked to
//! the end of the transaction.
//!
//! The transaction ends with its connection if this process is killed in between.

use std::os::unix::net::UnixStream;

use super::{FaultArgs, needed, ready};
use crate::clock::{now_ns, sleep_until};
use crate::postgres::{ask, query, startup};
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};

pub(super) fn run(args: &FaultArgs, truth: &TruthLog) -> Result<()> {
    let socket = args.socket.as_ref().ok_or_else(|| needed(args.fault, "--socket, that of PostgreSQL"))?;
    let mut server =
        UnixStream::connect(socket).map_err(|e| Error::io(format!("connect to {}", socket.display()), e))?;
    ask(&mut server, &startup())?;
    ready()?;
    loop {
        let (_, end) = args.schedule.wait();
        ask(&mut server, &query("BEGIN; SELECT n FROM lab WHERE id = 1 FOR UPDATE"))?;
        let place = truth.begin(kind::HELD, now_ns());
        sleep_until(end);
        ask(&mut server, &query("COMMIT"))?;
        truth.end(place, now_ns());
    }
}
