//! A capture: what the buffers hold becomes an ordinary run.
//!
//! In: the buffers of a [`Watch`], the slow message. Out: a run directory. Nothing is recorded while the buffers are copied, some ms; what they held
//! is written while recording goes on. A core's buffer reaches as far back as it has room, so the run begins where all of them do.

use std::path::Path;
use std::time::{Duration, Instant};

use tailsight_trace::event::Kind;
use tailsight_trace::meta::{self, State};
use tailsight_trace::{Event, RunWriter};
use tailsight_units::chain;
use tailsight_watch::Leg;

use super::super::containers;
use super::super::drain::Drain;
use super::recent_samples::Tables;
use super::{Captured, SlowMessage, Watch};
use crate::buffer::{Latest, take_everything};
use crate::error::Error;
use crate::procfs;
use crate::tables::{socket_rows, task_rows};
use crate::{clocks, describe, devices, empty_run};

/// A program that runs when recording is switched off has ended by then.
const LAST_WRITES: Duration = Duration::from_millis(2);
/// How long writing may wait for a core that nothing else wants.
const WRITE: Duration = Duration::from_secs(2);

/// What the buffers held.
struct Held {
    of_cores: Vec<Latest>,
    /// From when on all cores are known, CLOCK_MONOTONIC ns.
    start_ns: u64,
    end_ns: u64,
    blind: Duration,
}

impl Watch<'_> {
    /// Makes a run of what the buffers hold. `slow`: the message for which that is done.
    ///
    /// # Errors
    /// If the run directory cannot be made; later trouble is in [`Captured::error`].
    pub fn capture(&mut self, slow: &SlowMessage, out: &Path) -> Result<Captured, Error> {
        let held = self.held(slow);
        let _work = self.ready.background.work(WRITE);
        let mut meta = self.described(&held, slow);
        let mut writer = RunWriter::create_in(out, &meta, self.ready.options.shared)?;
        let mut drain = Drain::new(held.start_ns);
        for (cpu, latest) in (0..).zip(held.of_cores) {
            let mut events = latest.events;
            // Each event says which thread runs: the first one for the time before it.
            if let Some(first) = events.iter().find(|event| event.ts >= held.start_ns) {
                let current =
                    Event { ts: held.start_ns, kind: Kind::Current as u8, tid: first.tid, ..Event::default() };
                let at = events.partition_point(|event| event.ts < held.start_ns);
                events.insert(at, current);
            }
            drain.write(&self.ready.loaded, cpu, &mut events, &mut writer, held.end_ns);
        }
        let error = self.write(&mut writer, &mut meta, &mut drain);
        let error = error.or(writer.complete(&mut meta).err().map(Error::from));
        Ok(Captured { meta, error, blind: held.blind })
    }

    /// Copies what the buffers hold, from some time before the message came. Recording pauses meanwhile.
    fn held(&mut self, slow: &SlowMessage) -> Held {
        let since_ns = slow.came_ns().saturating_sub(self.keep.as_nanos() as u64).max(self.since_ns);
        let cpus = self.ready.cpus;
        let began = Instant::now();
        self.ready.loaded.set_recording(false);
        std::thread::sleep(LAST_WRITES);
        let end_ns = clocks::monotonic_ns();
        let heads = &mut self.ready.loaded.probes.variables_mut().heads;
        let mut of_cores = Vec::new();
        for (cpu, head) in (0..cpus).zip(heads.iter_mut()) {
            of_cores.push(self.ready.buffers.latest(cpu, head, since_ns));
            take_everything(head);
        }
        self.ready.loaded.set_recording(true);
        self.since_ns = clocks::monotonic_ns();
        self.ready.loaded.tell_current(cpus);
        let blind = began.elapsed();
        let begins = of_cores.iter().filter(|latest| latest.is_cut).filter_map(|latest| latest.events.first());
        let start_ns = begins.map(|event| event.ts).max().unwrap_or(since_ns).max(since_ns);
        Held { of_cores, start_ns, end_ns, blind }
    }

    /// What is known of the run before its events are read.
    fn described(&self, held: &Held, slow: &SlowMessage) -> meta::RunMeta {
        let mut meta = self.ready.meta.clone();
        (meta.start_ns, meta.end_ns) = (held.start_ns, held.end_ns);
        let clock = self.clock_rows.back().copied().unwrap_or_default();
        meta.started_unix_ns = clock.realtime_ns.saturating_add(held.start_ns).saturating_sub(clock.monotonic_ns);
        meta.capture = Some(meta::Capture {
            at_ns: slow.at_ns,
            total_ns: slow.ns(Leg::Total),
            receive_ns: slow.ns(Leg::Receive),
            service_ns: slow.ns(Leg::Service),
            local_port: slow.ports[0],
            remote_port: slow.ports[1],
            tid: slow.tid,
            began_before: slow.came_ns() < held.start_ns,
        });
        meta
    }

    /// Writes the tables. The first error.
    fn write(&mut self, writer: &mut RunWriter, meta: &mut meta::RunMeta, drain: &mut Drain) -> Option<Error> {
        let (start_ns, end_ns) = (meta.start_ns, meta.end_ns);
        self.follow_the_living();
        let target = &self.ready.target;
        let born = std::mem::take(&mut drain.collector.tasks);
        let mut followed = target.followed(&self.ready.loaded, &born);
        // What ended in this time was the target's in it.
        followed.extend(self.ended.iter().map(|(_, pid)| pid));
        followed.sort_unstable();
        followed.dedup();
        let tasks = task_rows(procfs::tasks(|_| false), vec![], born, &followed);
        meta.containers = containers::of_tasks(&tasks);
        let alive = followed.iter().copied().find(|&pid| procfs::alive(pid));
        meta.devices = devices::of_target(alive, &drain.collector.by_device);
        meta.target = meta::Target {
            selector: self.ready.options.selector.to_string(),
            app: target.app.clone(),
            processes: procfs::identities(&followed),
            pids: followed,
            ports: target.ports.clone(),
        };
        meta.cpus = (0..self.ready.cpus).map(|cpu| meta::Cpu { cpu, events: writer.written(cpu), lost: 0 }).collect();
        meta.cpus.retain(|cpu| cpu.events > 0);
        meta.symbols = std::mem::take(&mut drain.collector.symbols);
        meta.stacks = std::mem::take(&mut drain.collector.stacks);
        meta.drop_reasons = describe::drop_reasons();
        describe::cost(meta, &self.ready.hooks, Ok(self.costs.clone()), self.measured_events);
        meta.warnings.extend(self.without_costs.clone());
        let clock_rows: Vec<_> =
            self.clock_rows.iter().copied().filter(|row| (start_ns..=end_ns).contains(&row.monotonic_ns)).collect();
        describe::clocks(meta, &clock_rows);
        if let Some(recorder) = &mut meta.recorder {
            recorder.placement = Some(self.ready.background.said());
        }
        if drain.collector.received == 0 {
            meta.warnings.push(empty_run::no_traffic(meta, drain.collector.arrived));
        }
        let tables = self.samples.as_mut().map(|samples| {
            samples.take(&mut self.ready.loaded, &meta.target.pids);
            samples.tables(&self.ready.loaded, &meta.target.pids, (start_ns, end_ns))
        });
        let (mut sampled, mut looked) = (Ok(()), Ok(()));
        if let Some(Tables { said, samples, routines }) = tables {
            meta.warnings.extend(said.notes.iter().map(|note| format!("samples: {note}")));
            meta.sampling = Some(said);
            sampled = if samples.is_empty() { Ok(()) } else { writer.samples(&samples) };
            if let Some((said, looks)) = routines {
                meta.warnings.extend(said.notes.iter().cloned());
                meta.routines = Some(said);
                looked = if looks.is_empty() { Ok(()) } else { writer.routines(&looks) };
            }
        }
        let sockets = socket_rows(&drain.collector);
        let mut error = drain.failed.take();
        for step in [writer.tasks(&tasks), writer.sockets(&sockets), writer.clocks(&clock_rows), sampled, looked] {
            if let Err(e) = step {
                error.get_or_insert(e.into());
            }
        }
        meta.state = State::Complete;
        if let Some(e) = &error {
            (meta.state, meta.partial) = (State::Partial, Some(chain(e)));
        }
        error
    }
}
