//! Loads against real servers on loopback and against a server in this process that misbehaves on purpose.

mod hostile;
mod http_requests;
mod plans;
mod servers;
mod support;
mod transports;
