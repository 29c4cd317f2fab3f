//! Replaces `tls` in a build without the feature `tls`: a plan over TLS is refused before anything is sent. In: a plan. Out:
//! an error.

use std::io;
use std::os::fd::RawFd;

use crate::{LoadError, Plan, stamps};

/// Never made.
#[derive(Debug, Clone)]
pub(crate) enum TlsSetup {}

impl TlsSetup {
    pub(crate) fn new(plan: &Plan) -> Result<Self, LoadError> {
        let reason = "this program was built without TLS; build it with all features (`make build`)".to_owned();
        Err(LoadError::Tls { target: plan.target.to_string(), reason, source: None })
    }
}

/// Never made.
pub(crate) enum Tls {}

impl Tls {
    pub(crate) fn new(setup: &TlsSetup) -> io::Result<Self> {
        match *setup {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(crate) fn wants_write(&self) -> bool {
        match *self {}
    }

    pub(crate) fn write(&mut self, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn send(&mut self, _: RawFd, _: stamps::Ask) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn receive(&mut self, _: &[u8]) -> Result<&mut Vec<u8>, String> {
        match *self {}
    }

    pub(crate) fn ended_within_record(&self) -> bool {
        match *self {}
    }

    pub(crate) fn give_back(&mut self, _: Vec<u8>) {
        match *self {}
    }
}
