//! UDP datagrams to a socket, which keep its host busy with receive processing. In: an address, datagrams a millisecond (0:
//! as fast as possible), a schedule. Out: truth log entries, one a burst.

use std::net::UdpSocket;

use super::{FaultArgs, needed, ready};
use crate::clock::{now_ns, sleep_until};
use crate::truth::{TruthLog, kind};
use crate::{Error, Result};

pub(super) fn run(args: &FaultArgs, truth: &TruthLog) -> Result<()> {
    let addr = args.addr.ok_or_else(|| needed(args.fault, "--addr, where datagrams go"))?;
    let io = |e| Error::io(format!("send datagrams to {addr}"), e);
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(io)?;
    socket.connect(addr).map_err(io)?;
    let payload = [0x55; 64];
    socket.send(&payload).map_err(io)?;
    ready()?;
    loop {
        let (begin, end) = args.schedule.wait();
        let entry = truth.begin(kind::STORM, begin);
        let mut sent = 0_u64;
        loop {
            let now = now_ns();
            if now >= end {
                break;
            }
            let due = if args.strength > 0.0 { ((now - begin) as f64 / 1e6 * args.strength) as u64 } else { sent + 64 };
            while sent < due {
                // A full queue and a port that is not there (ECONNREFUSED of the datagram before) are no reason to stop.
                let _ = socket.send(&payload);
                sent += 1;
            }
            if args.strength > 0.0 {
                sleep_until((now + 50_000).min(end));
            }
        }
        truth.end(entry, now_ns());
    }
}
