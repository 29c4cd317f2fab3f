//! Plain text of TLS: what functions of the target's libraries, or of its program, give and take. The C is beside this file, in `tls.bpf.c`.
//!
//! In: the loaded probes. Out: [`PROGRAM`], for breakpoints at these functions, each with a [`cookie`]; how often they were called.

use super::{Extras, OnDemand, Probe};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::Opened;

/// No hooks: the places are in files of the target.
pub const PROBE: Probe = Probe { name: "tls", on_demand: Some(OnDemand { loads, prepare }), hooks: &[] };

/// The program at the begin and the end of such a function.
pub const PROGRAM: &str = "plain_text";

/// As in the C: what a place is.
pub mod cookie {
    /// The end of a call, else its begin.
    pub const RETURNS: u64 = 1;
    /// The function takes plain text, else it gives it.
    pub const OUT: u64 = 2;
    /// It writes the number of bytes where its fourth argument says.
    pub const COUNTS: u64 = 4;
    /// It is of Go's `crypto/tls`: the goroutine is in the call, and not the thread.
    pub const GO: u64 = 8;
}

fn loads(extras: &Extras, program: &str) -> bool {
    extras.plain_text && program == PROGRAM
}

fn prepare(open: &mut Opened, extras: &Extras) -> Result<(), Error> {
    open.constants().plain_text_on = u32::from(extras.plain_text);
    Ok(())
}

/// How often these functions may be called in a second, all together.
pub fn limit_calls(loaded: &mut Loaded, per_second: u32) {
    loaded.probes.variables_mut().plain_text_limit = (per_second / 10).max(1);
}

/// How often they were called, and since when they are off because that was too often, CLOCK_MONOTONIC ns.
pub fn calls(loaded: &Loaded) -> (u64, Option<u64>) {
    let calls = &loaded.probes.variables().plain_text_calls;
    (calls.calls, Some(calls.off_ns).filter(|&off_ns| off_ns != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a place is, is written down twice: here and in the C.
    #[test]
    fn a_cookie_says_what_the_program_reads() {
        let c = include_str!("tls.bpf.c");
        let bits = [("RETURNS", cookie::RETURNS), ("OUT", cookie::OUT), ("COUNTS", cookie::COUNTS), ("GO", cookie::GO)];
        for (name, bit) in bits {
            let defined = c.lines().any(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some("#define")
                    && words.next() == Some(&format!("PLAIN_{name}"))
                    && words.next() == Some(&bit.to_string())
            });
            assert!(defined, "{name}");
        }
    }
}
