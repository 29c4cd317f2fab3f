//! A core while its trace is followed: who has it, until when what is known of it.

use super::LATEST_SWITCH;
use crate::gap::Gap;
use crate::sideband::{Switch, Upcoming};

/// A core.
#[derive(Debug, Default)]
pub struct Core<'a> {
    pub(super) number: u32,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) switches: Upcoming<'a>,
    /// The last piece ended, and control flow goes on in the next one.
    pub(super) goes_on: bool,
    /// Since when nothing is known, and why.
    pub(super) gap: Option<(u64, Gap)>,
    pub(super) on: bool,
    pub(super) last_ns: u64,
    /// The time of the last step of control flow, while it goes on.
    pub(super) stepped: Option<u64>,
    /// The trace shows where a context switch takes place.
    pub(super) shows_switches: bool,
    /// The stack of the thread that has it, once it is looked up.
    pub(super) stack: Option<usize>,
    /// What is mapped in the process that has it, by a number of its own, and until when it is that.
    pub(super) space: Option<(u32, u64)>,
    /// Near calls and returns of the thread that has it, not counted yet.
    pub(super) calls: u64,
    pub(super) returns: u64,
}

impl<'a> Core<'a> {
    /// A core of which nothing is known but its switches; of a thread's trace, that thread.
    pub fn new(cpu: Option<u32>, only: Option<(u32, u32)>, switches: Upcoming<'a>) -> Core<'a> {
        let (pid, tid) = only.unwrap_or((0, 0));
        Core { number: cpu.unwrap_or(u32::MAX), pid, tid, switches, ..Core::default() }
    }

    /// The same, of a trace that shows where context switches take place, or does not.
    pub fn shows_switches(self, shows_switches: bool) -> Core<'a> {
        Core { shows_switches, ..self }
    }

    /// When a switch takes place at the latest.
    pub(super) fn latest(&self, switch: &Switch) -> u64 {
        let waits = self.shows_switches && self.on && self.gap.is_none();
        switch.time_ns.saturating_add(if waits { LATEST_SWITCH } else { 0 })
    }

    /// A time as this core takes it: it does not go back.
    pub fn not_before(&self, ns: u64) -> u64 {
        ns.max(self.last_ns)
    }

    /// Other cores have gone on to this time already: what is still to come on this one does not come before it.
    pub fn hold(&mut self, ns: u64) {
        self.last_ns = self.last_ns.max(ns);
    }

    /// When the next context switch is; where the trace shows it, at the latest.
    pub fn next_switch(&self) -> Option<u64> {
        self.switches.peek().map(|s| self.latest(s))
    }
}
