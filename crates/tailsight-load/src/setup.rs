//! The preparation of a load. In: an engine without connections. Out: one with open connections, stored keys, and a server
//! that answered one request on each connection.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, poll};
use tailsight_protocol::{Kind, wire};

use crate::cancel::bytes_came;
use crate::clock::now_ns;
use crate::codec::{Ask, Replies};
use crate::connection::{Broken, Connection};
use crate::dialer::look;
use crate::engine::Engine;
use crate::sample::Status;
use crate::{Endpoint, LoadError, Receive};

/// The step before the first byte of the protocol.
const SHAKING_HANDS: &str = "shaking hands";
/// Stores in flight while keys are stored, over streams and as datagrams.
const STORING: [u32; 2] = [64, 8];
/// How often all keys are stored again when datagrams were lost.
const PASSES: u32 = 5;

/// Prepares thread `thread` of the plan's.
pub(crate) fn prepare(engine: &mut Engine, thread: u32) -> Result<(), LoadError> {
    let plan = engine.plan.clone();
    let datagram = plan.target.is_datagram();
    let good = plan.protocol.is_http().then(|| Arc::new(plan.workload.good_statuses.clone()));
    for index in (thread..plan.connections).step_by(plan.threads as usize) {
        let socket = engine.dialer.connected(&engine.log.control.cancel())?;
        let mut places = plan.outstanding;
        if index == thread && plan.workload.preload && engine.encoder.has_keys() {
            places = places.max(STORING[usize::from(datagram)]);
        }
        let mut connection = Connection::new(index, socket, Replies::new(&plan), places, datagram, good.clone());
        connection.connected(&mut engine.log).map_err(LoadError::io("prepare a connection"))?;
        let token = engine.connections.len();
        engine.poller.add(connection.fd(), token, false).map_err(LoadError::io("watch a connection"))?;
        engine.connections.push(connection);
        pump(engine, token, SHAKING_HANDS, |c| c.is_ready())?;
        if plan.protocol == Kind::Resp && plan.workload.resp3 {
            let mut hello = Vec::new();
            wire::resp::hello3(&mut hello);
            engine.connections[token].offer_raw(&hello);
            exchange(engine, token, "greeting with HELLO 3", 1)?;
        }
    }
    if plan.workload.preload && engine.encoder.has_keys() {
        store(engine, u64::from(thread), u64::from(plan.threads))?;
    }
    for i in 0..engine.connections.len() {
        probe(engine, i, thread)?;
    }
    check_stamps(engine, thread)
}

/// Sends and reads until `done`, within the plan's time limit, which received bytes do not extend, and as long as the load
/// may be prepared.
fn pump(
    engine: &mut Engine,
    i: usize,
    step: &'static str,
    done: impl Fn(&mut Connection) -> bool,
) -> Result<(), LoadError> {
    let patience_ns = engine.plan.patience_ns;
    pump_within(engine, i, step, patience_ns, done)
}

fn pump_within(
    engine: &mut Engine,
    i: usize,
    step: &'static str,
    patience_ns: u64,
    done: impl Fn(&mut Connection) -> bool,
) -> Result<(), LoadError> {
    let plan = engine.plan.clone();
    let control = engine.log.control.clone();
    let fail = |reason: String| match plan.target {
        Endpoint::Tls(_) if step == SHAKING_HANDS => {
            LoadError::Tls { target: plan.target.to_string(), reason, source: None }
        }
        _ => {
            let (target, protocol) = (plan.target.to_string(), plan.protocol.to_string());
            LoadError::Setup { target, protocol, step, reason }
        }
    };
    let broken = |broken: Broken| match broken {
        // A server that closes the connection on a first request usually expects another protocol.
        Broken::Closed(reason) => fail(format!(
            "{reason}; is the server running, and does it speak {} on this port?",
            plan.target.spoken(plan.protocol)
        )),
        Broken::Garbage(reason) if step == SHAKING_HANDS => {
            fail(format!("{reason}; does the server speak TLS on this port, with a certificate for this name?"))
        }
        Broken::Garbage(reason) => fail(reason),
    };
    let deadline = now_ns().saturating_add(patience_ns);
    let before = engine.connections[i].came;
    loop {
        let connection = &mut engine.connections[i];
        connection.wants_write = false;
        connection.flush(&mut engine.log).map_err(broken)?;
        if done(connection) {
            return Ok(());
        }
        let came = connection.came - before;
        if let Some(over) = control.cancel().over() {
            return Err(over.during(&plan.target, step, came));
        }
        if now_ns() >= deadline {
            let seconds = patience_ns as f64 / 1e9;
            let came = bytes_came(came);
            return Err(fail(format!("no reply in {seconds:.1} s: {came}; does the server speak this protocol?")));
        }
        let wanted = PollFlags::POLLIN | if connection.wants_write { PollFlags::POLLOUT } else { PollFlags::empty() };
        // SAFETY: the connection keeps the descriptor open over the call.
        let fd = unsafe { BorrowedFd::borrow_raw(connection.fd()) };
        match poll(&mut [PollFd::new(fd, wanted)], look(deadline)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(fail(error.to_string())),
        }
        connection.receive(&mut engine.log).map_err(broken)?;
    }
}

/// Waits until everything in flight on a connection is answered, well.
fn exchange(engine: &mut Engine, i: usize, step: &'static str, wanted: u64) -> Result<(), LoadError> {
    let before = engine.log.prepared;
    pump(engine, i, step, |connection| connection.in_flight() == 0)?;
    let (before, after) = (bad(&before), bad(&engine.log.prepared));
    // Of several requests some may fail, and the load says how many do.
    let is_mix = engine.plan.protocol.is_http() && engine.plan.workload.requests.len() > 1;
    if after > before && !is_mix {
        let (target, protocol) = (engine.plan.target.to_string(), engine.plan.protocol.to_string());
        let code = engine.log.prepared_code;
        if code > 0 && engine.plan.protocol.is_http() {
            return Err(LoadError::Status { target, code });
        }
        let reason =
            format!("{} of {wanted} requests were answered with errors or with something else", after - before);
        return Err(LoadError::Setup { target, protocol, step, reason });
    }
    Ok(())
}

fn bad(prepared: &[u64; 8]) -> u64 {
    prepared[Status::Error as usize] + prepared[Status::Wrong as usize]
}

/// Stores every `threads`-th key on the first connection.
fn store(engine: &mut Engine, thread: u64, threads: u64) -> Result<(), LoadError> {
    const STEP: &str = "storing the keys";
    let plan = engine.plan.clone();
    let datagram = plan.target.is_datagram();
    // However few may be outstanding in the load: one store at a time costs as much CPU time as a second of it.
    let at_once = STORING[usize::from(datagram)];
    // The slowest network that is worth a load carries 1 MB/s.
    let mut patience_ns = plan.patience_ns;
    for pass in 1..=PASSES {
        let lost = engine.log.prepared[Status::Lost as usize];
        let mut key = thread;
        let mut before = engine.log.prepared;
        let mut count = 0;
        while key < plan.workload.keys {
            while key < plan.workload.keys && engine.connections[0].has_room(at_once) {
                let ask = Ask { key, set: true, service_ns: 0 };
                engine.connections[0].offer(&mut engine.encoder, ask, now_ns(), 0, false);
                key += threads;
                count += 1;
            }
            // Half of them together: one store for each answer would cost a send, a sleep and a read each. Lost datagrams
            // keep their places, and half of the places last longer than all.
            let queued = engine.connections[0].queued() as u64;
            patience_ns = patience_ns.max(plan.patience_ns.saturating_add(2_000 * queued));
            let left = if datagram { at_once - 1 } else { at_once / 2 };
            let result = pump_within(engine, 0, STEP, patience_ns, |c| c.in_flight() <= left && c.has_room(at_once));
            give_up_datagrams(engine, result, datagram)?;
        }
        let result = pump_within(engine, 0, STEP, patience_ns, |c| c.in_flight() == 0);
        give_up_datagrams(engine, result, datagram)?;
        std::mem::swap(&mut before, &mut engine.log.prepared);
        let refused = bad(&engine.log.prepared) - bad(&before) + engine.log.prepared[Status::Miss as usize]
            - before[Status::Miss as usize];
        if refused > 0 {
            let (target, protocol) = (plan.target.to_string(), plan.protocol.to_string());
            let reason =
                format!("{refused} of {count} keys were not stored (too large for the server, or out of memory?)");
            return Err(LoadError::Setup { target, protocol, step: STEP, reason });
        }
        if engine.log.prepared[Status::Lost as usize] == lost {
            return Ok(());
        }
        if pass == PASSES {
            let (target, protocol) = (plan.target.to_string(), plan.protocol.to_string());
            let reason = format!("datagrams were lost in each of {PASSES} passes");
            return Err(LoadError::Setup { target, protocol, step: STEP, reason });
        }
    }
    Ok(())
}

/// With datagrams, no answer means lost, at first.
fn give_up_datagrams(engine: &mut Engine, result: Result<(), LoadError>, datagram: bool) -> Result<(), LoadError> {
    if datagram && result.is_err() {
        let some = engine.log.prepared[Status::Ok as usize] > 0;
        engine.connections[0].give_up(&mut engine.log, u64::MAX);
        // A server that never answered is taken as absent.
        return if some { Ok(()) } else { result };
    }
    result
}

/// One request on a connection; a lost datagram is tried again.
fn probe(engine: &mut Engine, i: usize, thread: u32) -> Result<(), LoadError> {
    let tries = if engine.plan.target.is_datagram() { 3 } else { 1 };
    for attempt in 1..=tries {
        // A key that this thread has stored itself: other threads may not have stored theirs yet.
        let key = u64::from(thread) % engine.plan.workload.keys;
        let ask = Ask { key, set: false, service_ns: 0 };
        engine.connections[i].offer(&mut engine.encoder, ask, now_ns(), 0, true);
        let result = exchange(engine, i, "answering a first request", 1);
        if result.is_ok() || attempt == tries {
            return result;
        }
        engine.connections[i].give_up(&mut engine.log, u64::MAX);
    }
    Ok(())
}

/// Reading lazily needs stamps on what arrives. The kernel turns them on a moment after the first socket asks for them.
fn check_stamps(engine: &mut Engine, thread: u32) -> Result<(), LoadError> {
    if !engine.is_lazy() {
        return Ok(());
    }
    for _ in 0..20 {
        let before = engine.log.prepared_stamped;
        probe(engine, 0, thread)?;
        if engine.log.prepared_stamped > before {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    if engine.plan.receive == Receive::Lazy {
        let reason = "--receive lazy needs kernel time stamps, and this target has none; use eager";
        return Err(LoadError::Plan(reason.into()));
    }
    engine.read_eagerly();
    Ok(())
}
