//! Samples and looks at tasks of the last seconds, as they came: their stacks are looked at when a capture is made of them.
//!
//! In: the loaded probes. Out: the tables of a time. A sample of a sleep stays: it is taken once for each place, and later sleeps refer to it. So do
//! the numbers of call stacks, of which a program has so many and no more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tailsight_symbolise::{Raw, Stacks};
use tailsight_trace::event::switch_flags::MOST_PLACES;
use tailsight_trace::meta;
use tailsight_trace::routines::RoutineRow;
use tailsight_trace::samples::{Samples, kind};

use super::super::prepare::Prepared;
use super::super::routines::Routines;
use super::super::sampling::usable_cpus;
use crate::loaded::Loaded;
use crate::probes::samples::{Clocks, Code, Record, Ring};

/// Samples that are unwound at once: some MB of stacks.
const BATCH: usize = 512;

/// Bytes of samples that wait at most: those of some seconds on many busy cores. Beyond it the oldest go.
const MOST_BYTES: usize = 64 << 20;

/// Samples that wait for a capture.
pub(super) struct RecentSamples {
    ring: Ring,
    /// They run as long as this lives.
    _clocks: Clocks,
    code: Code,
    recent: VecDeque<Record>,
    recent_bytes: usize,
    /// Of places where threads of the target slept for the first time, since the last capture.
    of_places: Vec<Record>,
    stacks: Stacks,
    routines: Routines,
    said: meta::Sampling,
}

/// What a capture has of them.
pub(super) struct Tables {
    pub(super) said: meta::Sampling,
    pub(super) samples: Samples,
    pub(super) routines: Option<(meta::Routines, Vec<RoutineRow>)>,
}

impl RecentSamples {
    /// Starts the clocks. None without samples, and where no clock can be had, which the captures say.
    pub(super) fn start(ready: &mut Prepared<'_>) -> Option<RecentSamples> {
        let Prepared { options, target, loaded, sample_clock, meta, reader, .. } = ready;
        let clock = (*sample_clock)?;
        let mut code = Code::default();
        code.tell(loaded, &target.pids);
        let mut stacks = Stacks::new(std::mem::take(reader));
        target.pids.iter().for_each(|&pid| stacks.look_at(pid));
        let mut routines = if options.tasks { Routines::watched() } else { Routines::off() };
        routines.meet(loaded, &target.pids, &mut stacks);
        let ring = Ring::of(loaded).map_err(|e| meta.warnings.push(format!("samples: {}", tailsight_units::chain(&e))));
        let clocks = Clocks::start(loaded, &usable_cpus(&target.pids), clock.period_ns)
            .map_err(|why| meta.warnings.push(format!("samples: no perf clock to sample with ({why})")));
        let (ring, clocks) = (ring.ok()?, clocks.ok()?);
        let said = meta::Sampling {
            period_ns: clock.period_ns,
            others_one_in: clock.others_one_in,
            tick_ns: clock.tick_ns,
            cpus: clocks.cores() as u32,
            ..meta::Sampling::default()
        };
        let (recent, recent_bytes, of_places) = Default::default();
        Some(RecentSamples { ring, _clocks: clocks, code, recent, recent_bytes, of_places, stacks, routines, said })
    }

    /// The processes that read the files of the target.
    pub(super) fn readers(&mut self) -> Vec<u32> {
        self.stacks.reader().pids()
    }

    /// How long until goroutines and tasks are to be looked at; none where there are none.
    pub(super) fn routines_due(&self) -> Option<Duration> {
        self.routines.due()
    }

    /// Looks at the goroutines that have a message.
    pub(super) fn look_at_routines(&mut self, loaded: &Loaded) {
        self.routines.look(loaded, &mut self.stacks);
    }

    /// Moves samples out of the ring.
    pub(super) fn take(&mut self, loaded: &mut Loaded, pids: &[u32]) {
        self.code.tell(loaded, pids);
        for &pid in pids {
            if !self.stacks.knows(pid) {
                self.stacks.look_at(pid);
            }
        }
        self.routines.meet(loaded, pids, &mut self.stacks);
        for record in self.ring.records() {
            if record.row().kind == kind::SLEEP {
                self.of_places.push(record);
            } else {
                self.recent_bytes += record.bytes();
                self.recent.push_back(record);
            }
        }
        while self.recent_bytes > MOST_BYTES {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        self.recent_bytes -= self.recent.pop_front().map_or(self.recent_bytes, |record| record.bytes());
    }

    /// Forgets what was before a time.
    pub(super) fn forget(&mut self, until_ns: u64) {
        while self.recent.front().is_some_and(|record| record.row().ts_ns < until_ns) {
            self.forget_oldest();
        }
        self.routines.forget(until_ns);
        self.routines.unwind(&mut self.stacks);
    }

    /// The samples and looks of a time with the names of their functions, and what run.json says of them.
    pub(super) fn tables(&mut self, loaded: &Loaded, pids: &[u32], (from_ns, to_ns): (u64, u64)) -> Tables {
        let began = Instant::now();
        // Libraries that were loaded since.
        pids.iter().for_each(|&pid| self.stacks.look_at(pid));
        let of_places = std::mem::take(&mut self.of_places);
        let sleep_places = &mut self.said.sleep_places;
        for batch in of_places.chunks(BATCH) {
            let raws = batch.iter().map(|record| raw(&mut self.routines, record)).collect();
            for (place, stack) in batch.iter().map(Record::place).zip(self.stacks.stacks_of(raws)) {
                if let Some(at) = (place as usize).checked_sub(1).filter(|at| *at < usize::from(MOST_PLACES)) {
                    sleep_places.resize(sleep_places.len().max(at + 1), 0);
                    sleep_places[at] = stack + 1;
                }
            }
        }
        let is_of_time = |record: &&Record| (from_ns..=to_ns).contains(&record.row().ts_ns);
        let of_time: Vec<&Record> = self.recent.iter().filter(is_of_time).collect();
        for batch in of_time.chunks(BATCH) {
            let (skipped, taken): (Vec<&Record>, Vec<&Record>) =
                batch.iter().partition(|record| record.row().kind == kind::SKIPPED);
            skipped.iter().for_each(|record| self.stacks.add_skipped(record.row()));
            self.stacks.add(taken.iter().map(|record| raw(&mut self.routines, record)).collect());
        }
        let routines = self.routines.rows(&mut self.stacks, (from_ns, to_ns));
        let tables = self.stacks.tables();
        let mut said = self.said.clone();
        said.skipped = tables.samples.rows.iter().filter(|row| row.kind == kind::SKIPPED).count() as u64;
        said.samples = tables.samples.rows.len() as u64 - said.skipped;
        said.lost = loaded.probes.variables().samples_lost;
        said.unnamed = tables.unnamed;
        said.notes.extend(tables.notes);
        said.symbolise_ns = began.elapsed().as_nanos() as u64;
        Tables { said, samples: tables.samples, routines }
    }
}

/// A sample with the functions that an interpreter ran there.
fn raw(routines: &mut Routines, record: &Record) -> Raw {
    let raw = record.raw();
    Raw { interpreted: routines.interpreted(raw.row.tgid, &record.called()), ..raw }
}
