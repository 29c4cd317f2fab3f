//! Events from the buffers of the cores into the run.

use libbpf_rs::MapCore;
use tailsight_trace::event::Kind;
use tailsight_trace::{Event, RunWriter, fields};

use crate::buffer::{self, Buffers};
use crate::collect::Collector;
use crate::error::Error;
use crate::loaded::Loaded;

/// What happens to events on their way into the run.
pub(super) struct Drain {
    pub(super) collector: Collector,
    pending: Vec<Event>,
    /// How often the buffers were emptied.
    pub(super) drains: u64,
    /// What went wrong first; nothing is written after it.
    pub(super) failed: Option<Error>,
    start_ns: u64,
}

impl Drain {
    /// For a recording that starts at `start_ns`.
    pub(super) fn new(start_ns: u64) -> Drain {
        Drain { collector: Collector::new(), pending: Vec::new(), drains: 0, failed: None, start_ns }
    }

    /// Moves at most `most` events of each core into the run and drops those after `until`, which belong to the measurement
    /// of the cost. Returns `false` if there were none.
    pub(super) fn drain(
        &mut self,
        loaded: &mut Loaded,
        buffers: &Buffers,
        writer: &mut RunWriter,
        until: u64,
        most: u64,
    ) -> bool {
        let mut moved = false;
        let mut pending = std::mem::take(&mut self.pending);
        for cpu in 0..buffers.cpus {
            pending.clear();
            let bss = loaded.probes.variables_mut();
            buffers.drain(cpu, &mut bss.heads[cpu as usize], &mut pending, most);
            moved |= !pending.is_empty();
            self.write(loaded, cpu, &mut pending, writer, until);
        }
        self.pending = pending;
        moved
    }

    /// Writes events of a core into the run, without those before its start and after `until`.
    pub(super) fn write(
        &mut self,
        loaded: &Loaded,
        cpu: u32,
        events: &mut Vec<Event>,
        writer: &mut RunWriter,
        until: u64,
    ) {
        let start = self.start_ns;
        let stacks = &loaded.probes.maps.stacks;
        let stack = |id: u32| addresses(stacks.lookup(&id.to_ne_bytes(), libbpf_rs::MapFlags::ANY).ok().flatten());
        for event in events.iter_mut() {
            self.collector.see(event, &stack);
        }
        events.retain(|e| e.ts >= start && e.ts <= until);
        events.iter().for_each(|event| self.collector.count(event));
        if self.failed.is_none()
            && !events.is_empty()
            && let Err(e) = writer.events(cpu, events)
        {
            self.failed = Some(e.into());
        }
    }

    /// Losses after which no event found room, so that no event says when they began.
    pub(super) fn tell_gaps(&mut self, loaded: &Loaded, cpus: u32, writer: &mut RunWriter) {
        for (cpu, head) in heads(loaded).iter().enumerate().take(cpus as usize).filter(|(_, h)| h.gap_from != 0) {
            let gap = fields::Loss { events: head.gap_count }.event(Kind::Lost, head.gap_from, 0);
            if self.failed.is_none()
                && let Err(e) = writer.events(cpu as u32, &[gap])
            {
                self.failed = Some(e.into());
            }
        }
    }
}

/// The return addresses of a stack as the map holds them: 64-bit words, ended by a zero.
fn addresses(value: Option<Vec<u8>>) -> Vec<u64> {
    let value = value.unwrap_or_default();
    let words = value.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default()));
    words.take_while(|a| *a != 0).collect()
}

pub(super) fn heads(loaded: &Loaded) -> &[crate::object::types::head] {
    &loaded.probes.variables().heads
}

/// What the target did so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    /// Its receive calls.
    pub received: u64,
    /// Its send calls.
    pub sent: u64,
    /// Samples of its threads inside of messages that already took longer than usual.
    pub slow_samples: u64,
    /// By how much messages lasted longer than usual, all together, ns.
    pub excess_ns: u64,
    /// Ticks of the sampling clock in threads of the target.
    pub ticks: u64,
    /// Those in threads that receive no messages.
    pub apart_ticks: u64,
}

/// What the target did so far.
pub(super) fn counts(loaded: &Loaded, cpus: u32) -> Counts {
    heads(loaded).iter().take(cpus as usize).fold(Counts::default(), |sum, head| Counts {
        received: sum.received + head.received,
        sent: sum.sent + head.sent,
        slow_samples: sum.slow_samples + head.slow_ticks,
        excess_ns: sum.excess_ns + head.excess_ns,
        ticks: sum.ticks + head.target_ticks,
        apart_ticks: sum.apart_ticks + head.apart_ticks,
    })
}

/// Events so far, lost so far, and how full the fullest buffer is.
pub(super) fn fill(loaded: &Loaded, buffers: &Buffers) -> (u64, u64, u64) {
    heads(loaded)
        .iter()
        .take(buffers.cpus as usize)
        .fold((0, 0, 0), |(n, lost, most), h| (n + h.n, lost + h.lost, most.max(buffer::waiting(h))))
}
