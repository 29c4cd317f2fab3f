//! The end of a recording: the cost of the hooks is measured, the buffers are emptied, and the run's tables and run.json are
//! written.

use std::time::Duration;

use tailsight_trace::meta::{self, State};
use tailsight_trace::samples::Samples;
use tailsight_trace::tables::TaskRow;
use tailsight_units::chain;

use super::containers;
use super::drain::{fill, heads};
use super::options::{Progress, RecordSummary};
use super::prepare::Prepared;
use super::recording::{DRAIN_EVENTS, Recording};
use super::sampling::Named;
use super::traced::warnings;
use crate::background;
use crate::clocks;
use crate::command;
use crate::confine::Stage;
use crate::cost::{self, ProgramCost};
use crate::describe;
use crate::devices;
use crate::empty_run;
use crate::error::Error;
use crate::file_systems;
use crate::probes::{functions, routines, tls};
use crate::procfs;
use crate::stop::Stop;
use crate::tables::{socket_rows, task_rows};

/// How long the cost of the hooks is measured after the recording.
const COST_WINDOW: Duration = Duration::from_millis(50);

/// How long detaching may wait for a core that nothing else wants.
const DETACH: Duration = Duration::from_millis(250);

/// How long the rest (moving and writing events, unwinding stacks, naming functions) may wait for a core that nothing else wants.
const FINISH: Duration = Duration::from_millis(750);

/// What the probes report at the end.
struct Probes {
    /// By program: runs that the kernel left out.
    missed: Vec<(String, u64)>,
    /// By core: events that found no room.
    lost: Vec<u64>,
    costs: Result<Vec<ProgramCost>, Error>,
    /// Events written while the cost was measured.
    measured_events: u64,
}

impl Recording<'_> {
    /// Ends the recording and writes the rest of the run: whole before anything that the target wrote is read, then once more with the names
    /// of functions. `stop`: set when the user wants the end.
    pub(super) fn finish(mut self, stop: &Stop, progress: &mut dyn FnMut(Progress)) -> RecordSummary {
        let probes = self.switch_off(progress);
        // The programs are off: nothing is lost while this waits for a core.
        let _work = self.ready.background.work(FINISH);
        self.empty(progress);
        let given_back = self.give_buffers_back();
        self.find_devices();
        self.confine(Stage::Reading);
        let samples = self.describe_samples(&probes.costs);
        self.describe_traced(&probes.costs);
        self.describe_tls(&probes.costs);
        self.describe_tasks(&probes.costs);
        let tasks = self.describe_target(&probes.lost);
        self.describe_run(probes);
        self.warn();
        let mut error = self.write(&tasks, samples.as_ref());
        // While the target still runs: a command is stopped next.
        let named = self.name_samples(stop);
        let target = &mut self.ready.target;
        let patience = if stop.is_urgent() { command::IN_HASTE } else { command::PATIENCE };
        if target.child.take().is_some_and(|child| child.stop(patience)) {
            let seconds = patience.as_secs_f64();
            let warning = format!("the command did not end on SIGTERM within {seconds} s and was killed");
            self.ready.meta.warnings.push(warning);
        }
        let (mut writer, mut meta) = (self.writer, self.ready.meta);
        let written = named.map_or(Ok(()), |Named { samples, routines, .. }| {
            let sampled = if samples.is_empty() { Ok(()) } else { writer.samples(&samples) };
            let looks = routines.map_or(vec![], |(_, looks)| looks);
            sampled.and_then(|()| if looks.is_empty() { Ok(()) } else { writer.routines(&looks) })
        });
        if let Err(e) = written.and_then(|()| writer.complete(&mut meta)) {
            error.get_or_insert(e.into());
        }
        if let Some(given_back) = given_back {
            let _ = given_back.join();
        }
        RecordSummary { meta, error, few: self.few }
    }

    /// Gives the buffers back to the kernel, beside the work that is left. None is in use: the programs are detached.
    fn give_buffers_back(&mut self) -> Option<std::thread::JoinHandle<()>> {
        let Prepared { loaded, buffers, .. } = &mut self.ready;
        let fds = buffers.fds();
        // The map of the chunks lets go of all but one of them here, so that the last to do so is this process.
        let first = vec![*fds.first()?; fds.len()];
        loaded.set_chunks(&first).ok()?;
        let chunks = buffers.take();
        background::spawn("tailsight-free", move || chunks.give_back()).ok()
    }

    /// What is known of the samples before their functions have names.
    fn describe_samples(&mut self, costs: &Result<Vec<ProgramCost>, Error>) -> Option<Samples> {
        let sampling = self.sampling.as_mut()?;
        let costs = costs.as_ref().map_or(&[][..], Vec::as_slice);
        let Prepared { loaded, meta, .. } = &mut self.ready;
        let (said, samples) = sampling.sum_up(loaded, costs, meta.start_ns);
        meta.sampling = Some(said);
        Some(samples)
    }

    /// Finds the call stacks of the samples and the names of their functions, of all processes that the run has.
    fn name_samples(&mut self, stop: &Stop) -> Option<Named> {
        let sampling = self.sampling.take()?;
        let meta = &mut self.ready.meta;
        let named = sampling.finish(&meta.target.pids, meta.start_ns, stop);
        meta.warnings.extend(named.said.notes.iter().map(|note| format!("samples: {note}")));
        meta.sampling = Some(named.said.clone());
        if let Some((said, _)) = &named.routines {
            meta.warnings.extend(said.notes.iter().cloned());
            let mut said = said.clone();
            // What breakpoints told is known already.
            if let Some(of_breakpoints) = meta.routines.take() {
                said.versions.splice(..0, of_breakpoints.versions);
                said.breakpoints = of_breakpoints.breakpoints;
            }
            meta.routines = Some(said);
        }
        Some(named)
    }

    /// The facts on the functions that were traced.
    fn describe_traced(&mut self, costs: &Result<Vec<ProgramCost>, Error>) {
        let Prepared { meta, tracing, .. } = &mut self.ready;
        let Some(tracing) = tracing.take() else { return };
        let costs = costs.as_ref().map_or(&[][..], Vec::as_slice);
        let program_ns = costs.iter().find(|c| c.name == functions::PROGRAM).and_then(|c| c.ns_per_run);
        let said = tracing.finish(program_ns);
        meta.warnings.extend(warnings(&said, meta.start_ns));
        meta.traced = Some(said);
    }

    /// The facts on the breakpoints at tasks.
    fn describe_tasks(&mut self, costs: &Result<Vec<ProgramCost>, Error>) {
        let Prepared { meta, tasks, .. } = &mut self.ready;
        let Some(tasks) = tasks.take() else { return };
        let costs = costs.as_ref().map_or(&[][..], Vec::as_slice);
        let mut of_tasks =
            costs.iter().filter(|c| [routines::PROGRAM, routines::PROGRAM_OF_MANY].contains(&c.name.as_str()));
        let program_ns = of_tasks.find_map(|c| c.ns_per_run);
        let versions = tasks.versions();
        let (said, notes) = tasks.finish(program_ns, meta.start_ns);
        meta.warnings.extend(notes);
        meta.routines = Some(meta::Routines { versions, breakpoints: Some(said), ..meta::Routines::default() });
    }

    /// The facts on the breakpoints at TLS.
    fn describe_tls(&mut self, costs: &Result<Vec<ProgramCost>, Error>) {
        let Prepared { meta, tls, .. } = &mut self.ready;
        let (Some(tls), Some(payload)) = (tls.take(), &mut meta.payload) else { return };
        let costs = costs.as_ref().map_or(&[][..], Vec::as_slice);
        let program_ns = costs.iter().find(|c| c.name == tls::PROGRAM).and_then(|c| c.ns_per_run);
        let (said, warning) = tls.finish(program_ns, meta.start_ns);
        payload.tls = Some(said);
        meta.warnings.extend(warning);
    }

    /// Takes the last readings, measures the hooks and detaches them.
    fn switch_off(&mut self, progress: &mut dyn FnMut(Progress)) -> Probes {
        let ends_ns = self.ends_ns();
        let Prepared { meta, loaded, buffers, cpus, tracing, tasks, tls, background, .. } = &mut self.ready;
        meta.end_ns = clocks::monotonic_ns().min(ends_ns);
        self.clock.rows.push(clocks::compare());
        if let Some(sampling) = &mut self.sampling {
            sampling.stop_taking(meta.end_ns);
        }
        if let Some(tracing) = tracing {
            tracing.stop_counting(loaded);
        }
        if let Some(tasks) = tasks {
            tasks.look(loaded);
        }
        if let Some(tls) = tls {
            tls.look(loaded);
        }
        let missed = cost::missed(loaded);
        let lost = heads(loaded).iter().take(*cpus as usize).map(|h| h.lost).collect();
        meta.overhead.recorder_cpu_ns = self.clock.cpu_ns();

        progress(Progress::Measuring);
        let (events_before, lost_before, _) = fill(loaded, buffers);
        let mut costs = cost::measure(loaded, COST_WINDOW);
        let (events, lost_after, _) = fill(loaded, buffers);
        let measured_events = events - events_before;
        if lost_after > lost_before {
            costs = Err(Error::NoCostOfFull { lost: lost_after - lost_before });
        }
        // From here on the hooks return at once; they are taken away one by one, while others may run.
        loaded.set_recording(false);
        let _work = background.work_in_calls(DETACH);
        if let Some(Err(why)) = self.tx.take().map(|tx| tx.stop(loaded)) {
            meta.warnings.push(why);
        }
        if let Some(sampling) = &mut self.sampling {
            sampling.stop();
        }
        if let Some(tracing) = tracing {
            tracing.stop(loaded);
        }
        if let Some(tasks) = tasks {
            tasks.take_away();
        }
        if let Some(tls) = tls {
            tls.take_away();
        }
        loaded.detach();
        Probes { missed, lost, costs, measured_events }
    }

    /// Moves what the buffers still hold into the run.
    fn empty(&mut self, progress: &mut dyn FnMut(Progress)) {
        let Prepared { meta, loaded, buffers, cpus, .. } = &mut self.ready;
        let writer = &mut self.writer;
        progress(Progress::Writing { events: fill(loaded, buffers).0 });
        self.drain.drains += 1;
        // The cores in turn, so that a full disk cuts off all of them at about the same time.
        while self.drain.drain(loaded, buffers, writer, meta.end_ns, DRAIN_EVENTS) {}
        self.drain.tell_gaps(loaded, *cpus, writer);
    }

    /// The devices that the target's packets came in on. Its network namespace is entered for that.
    fn find_devices(&mut self) {
        let Prepared { target, loaded, meta, .. } = &mut self.ready;
        let collector = &self.drain.collector;
        let alive = target.followed(loaded, &collector.tasks).into_iter().find(|&p| procfs::alive(p));
        meta.devices = devices::of_target(alive, &collector.by_device);
    }

    /// All processes that were targets at any time, including forks that the filter followed. Returns the tasks of the host.
    fn describe_target(&mut self, lost: &[u64]) -> Vec<TaskRow> {
        let Prepared { options, target, loaded, meta, cpus, .. } = &mut self.ready;
        let collector = &mut self.drain.collector;
        let followed = target.followed(loaded, &collector.tasks);
        let (before, after) = (std::mem::take(&mut self.early.snapshot), procfs::tasks(|_| false));
        let tasks = task_rows(before, after, std::mem::take(&mut collector.tasks), &followed);
        meta.containers = containers::of_tasks(&tasks);
        let mut app = std::mem::take(&mut target.app);
        if app.is_empty() {
            app = tasks.iter().find(|t| t.target && t.tid == t.tgid).map(|t| t.comm.clone()).unwrap_or_default();
        }
        meta.target = meta::Target {
            selector: options.selector.to_string(),
            app,
            processes: procfs::identities(&followed),
            pids: followed,
            ports: std::mem::take(&mut target.ports),
        };
        let writer = &self.writer;
        let of_core = |cpu| meta::Cpu { cpu, events: writer.written(cpu), lost: lost[cpu as usize] };
        meta.cpus = (0..*cpus).map(of_core).filter(|c| c.events > 0 || c.lost > 0).collect();
        tasks
    }

    /// How it was recorded: symbols, what the hooks cost, clocks.
    fn describe_run(&mut self, probes: Probes) {
        let Prepared { options, meta, hooks, without_tx_stamps, background, .. } = &mut self.ready;
        if let Some(recorder) = &mut meta.recorder {
            recorder.placement = Some(meta::Placement { nearly_full: self.nearly_full, ..background.said() });
        }
        let collector = &mut self.drain.collector;
        meta.buffer.drains = self.drain.drains;
        meta.symbols = std::mem::take(&mut collector.symbols);
        meta.stacks = std::mem::take(&mut collector.stacks);
        describe::cost(meta, hooks, probes.costs, probes.measured_events);
        for hook in &mut meta.hooks {
            let program = hooks.iter().find(|h| h.name == hook.name).and_then(|h| h.program);
            hook.missed = probes.missed.iter().find(|(name, _)| Some(name.as_str()) == program).map_or(0, |(_, n)| *n);
        }
        meta.drop_reasons = describe::drop_reasons();
        describe::clocks(meta, &self.clock.rows);
        let sent = (options.tx_stamps, without_tx_stamps.take());
        self.nic_clocks.conclude(meta, collector.stamps, sent);
    }

    /// What a reader has to know first.
    fn warn(&mut self) {
        let meta = &mut self.ready.meta;
        let collector = &self.drain.collector;
        if collector.received == 0 {
            meta.warnings.push(empty_run::no_traffic(meta, collector.arrived));
        }
        if let Some(asked) = &meta.payload
            && collector.arrived > 0
            && collector.pieces == 0
        {
            let warning = empty_run::no_payload(&asked.protocol, &meta.host.kernel);
            meta.warnings.push(warning);
        }
        let renames = self.ready.loaded.probes.variables().renames_left_out;
        let left_out = [
            (renames + collector.left_out.tasks, "births and names of tasks"),
            (collector.left_out.connections, "connections"),
            (collector.left_out.addresses, "addresses of IPv6 connections"),
        ];
        for (count, rows) in left_out.into_iter().filter(|(count, _)| *count > 0) {
            meta.warnings
                .push(format!("{count} {rows} are not in the run's tables: there were more than a recording keeps"));
        }
        if !meta.unseen_syncs.is_empty() {
            meta.warnings.push(file_systems::warning(&meta.unseen_syncs));
        }
        if let Some(why) = self.ended_early.take() {
            meta.warnings.push(format!("{why}; the run is kept"));
        }
    }

    /// Writes the tables and run.json. Whatever fails, the rest is tried; the first error.
    fn write(&mut self, tasks: &[TaskRow], samples: Option<&Samples>) -> Option<Error> {
        let (writer, meta) = (&mut self.writer, &mut self.ready.meta);
        let mut error = self.drain.failed.take();
        let nic_rows = &self.nic_clocks.rows;
        let nic_clocks = if nic_rows.is_empty() { Ok(()) } else { writer.nic_clocks(nic_rows) };
        let sockets = socket_rows(&self.drain.collector);
        let samples = samples.filter(|s| !s.is_empty());
        let sampled = samples.map_or(Ok(()), |samples| writer.samples(samples));
        let clocks = writer.clocks(&self.clock.rows);
        for step in [writer.tasks(tasks), writer.sockets(&sockets), clocks, nic_clocks, sampled] {
            if let Err(e) = step {
                error.get_or_insert(e.into());
            }
        }
        meta.state = State::Complete;
        if let Some(why) = self.interrupted.take() {
            meta.state = State::Partial;
            meta.partial = Some(why);
        }
        if let Some(e) = &error {
            meta.state = State::Partial;
            meta.partial = Some(chain(e));
        }
        // Read only if this process ends before it writes it again.
        let unnamed = samples.map(|_| "samples: the recorder was ended before their functions had names".to_owned());
        let usual = meta.warnings.len();
        meta.warnings.extend(unnamed);
        if let Err(e) = writer.complete(meta) {
            error.get_or_insert(e.into());
        }
        meta.warnings.truncate(usual);
        error
    }
}
