//! The samples of a recording: taken while it runs, named at its end, when the run is on disk.
//!
//! In: the loaded probes, the target's processes. Out: the tables of samples and what run.json says of them. The copies of
//! stacks are in memory only: up to [`MOST_WAITING`] bytes until the end, when they are unwound; beyond that at once.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tailsight_host::cpu_list;
use tailsight_host::proc::field;
use tailsight_symbolise::maps::Maps;
use tailsight_symbolise::resolve::jvm;
use tailsight_symbolise::{Raw, Stacks};
use tailsight_trace::event::switch_flags::MOST_PLACES;
use tailsight_trace::meta;
use tailsight_trace::routines::RoutineRow;
use tailsight_trace::samples::{Samples, kind};

use super::prepare::Prepared;
use super::routines::Routines;
use crate::background::{self, Background};
use crate::cost::ProgramCost;
use crate::loaded::Loaded;
use crate::probes::samples::{Clocks, Code, PROGRAM, Ring};
use crate::stop::Stop;

/// Bytes of copied stacks that may wait to be unwound.
const MOST_WAITING: usize = 64 << 20;
/// How long unwinding may wait for a core while the recording runs.
const UNWIND: Duration = Duration::from_millis(100);
/// Samples that are unwound at once: some MB of stacks.
const BATCH: usize = 512;
/// How long all names may take where the user has ended the recording.
const IN_HASTE: Duration = Duration::from_secs(5);
/// How long where the recorder is to end within a second.
const URGENT: Duration = Duration::from_millis(300);
/// How often it is looked whether the user wants the end.
const LOOK: Duration = Duration::from_millis(50);
/// JVMs that are asked for their maps at the same time.
const MOST_ASKED: usize = 16;
/// Samples of a run at most: those of an hour on two busy cores.
const MOST_SAMPLES: usize = 8_000_000;

/// Samples that are being taken.
pub(super) struct Sampling {
    ring: Option<Ring>,
    clocks: Option<Clocks>,
    stacks: Stacks,
    said: meta::Sampling,
    /// Samples after this time belong to the measurement of the hooks.
    end_ns: u64,
    unwound_ns: u64,
    too_many: u64,
    code: Code,
    routines: Routines,
}

/// What is known of the samples when their functions have names.
pub(super) struct Named {
    /// Of the samples.
    pub said: meta::Sampling,
    /// The tables.
    pub samples: Samples,
    /// Looks at goroutines, and what run.json says of them; none where the target is no Go program.
    pub routines: Option<(meta::Routines, Vec<RoutineRow>)>,
}

impl Sampling {
    /// Starts the clocks, if samples are wanted. Failures are noted; the recording goes on.
    pub(super) fn start(ready: &mut Prepared<'_>) -> Option<Sampling> {
        let Prepared { options, target, loaded, sample_clock, reader, task_programs, .. } = ready;
        let clock = (*sample_clock)?;
        let cpus = usable_cpus(&target.pids);
        let period_ns = clock.period_ns;
        let mut started = Sampling {
            ring: None,
            clocks: None,
            stacks: Stacks::new(std::mem::take(reader)),
            said: meta::Sampling {
                period_ns,
                others_one_in: clock.others_one_in,
                tick_ns: clock.tick_ns,
                ..meta::Sampling::default()
            },
            end_ns: u64::MAX,
            unwound_ns: 0,
            too_many: 0,
            code: Code::default(),
            routines: if options.tasks { Routines::new(std::mem::take(task_programs)) } else { Routines::off() },
        };
        started.code.tell(loaded, &target.pids);
        target.pids.iter().for_each(|&pid| started.stacks.look_at(pid));
        started.routines.meet(loaded, &target.pids, &mut started.stacks);
        match Ring::of(loaded) {
            Ok(ring) => started.ring = Some(ring),
            Err(e) => started.said.notes.push(tailsight_units::chain(&e)),
        }
        if started.ring.is_some() {
            match Clocks::start(loaded, &cpus, period_ns) {
                Ok(clocks) => {
                    started.said.cpus = clocks.cores() as u32;
                    started.clocks = Some(clocks);
                }
                Err(why) => started.said.notes.push(format!("no perf clock to sample with ({why})")),
            }
        }
        Some(started)
    }

    /// The processes that read the files of the target.
    pub(super) fn readers(&mut self) -> Vec<u32> {
        self.stacks.reader().pids()
    }

    /// Moves samples out of the ring. `pids`: the target's processes at this time.
    pub(super) fn take(&mut self, loaded: &mut Loaded, pids: &[u32], background: &Background) {
        self.code.tell(loaded, pids);
        let Some(ring) = &self.ring else { return };
        let waiting = ring.take();
        for &pid in pids {
            if !self.stacks.knows(pid) {
                self.stacks.look_at(pid);
            }
        }
        self.routines.meet(loaded, pids, &mut self.stacks);
        self.routines.unwind(&mut self.stacks);
        if waiting > MOST_WAITING {
            let _work = background.work(UNWIND);
            pids.iter().for_each(|&pid| self.stacks.look_at(pid));
            self.unwind();
        }
    }

    fn unwind(&mut self) {
        let Some(ring) = &self.ring else { return };
        let began = Instant::now();
        let (stacks, end_ns, too_many) = (&mut self.stacks, self.end_ns, &mut self.too_many);
        let places = &mut self.said.sleep_places;
        let mut batch: Vec<(Raw, u32)> = vec![];
        let mut add = |batch: &mut Vec<(Raw, u32)>, stacks: &mut Stacks| {
            let (raws, place_of): (Vec<Raw>, Vec<u32>) = batch.drain(..).unzip();
            for (place, stack) in place_of.into_iter().zip(stacks.add(raws)) {
                if let Some(at) = (place as usize).checked_sub(1).filter(|at| *at < usize::from(MOST_PLACES)) {
                    places.resize(places.len().max(at + 1), 0);
                    places[at] = stack + 1;
                }
            }
        };
        let routines = &mut self.routines;
        ring.each(|mut raw, place, called| {
            if raw.row.ts_ns > end_ns {
                return;
            }
            if raw.row.kind == kind::SKIPPED {
                stacks.add_skipped(raw.row);
            } else if stacks.len() + batch.len() < MOST_SAMPLES {
                raw.interpreted = routines.interpreted(raw.row.tgid, called);
                batch.push((raw, place));
                if batch.len() == BATCH {
                    add(&mut batch, stacks);
                }
            } else {
                *too_many += 1;
            }
        });
        add(&mut batch, stacks);
        self.unwound_ns += began.elapsed().as_nanos() as u64;
    }

    /// How long until goroutines are to be looked at; none where there are none.
    pub(super) fn routines_due(&self) -> Option<Duration> {
        self.routines.due()
    }

    /// Looks at the goroutines that have a message.
    pub(super) fn look_at_routines(&mut self, loaded: &Loaded) {
        self.routines.look(loaded, &mut self.stacks);
    }

    /// Whether a clock ticks anywhere.
    pub(super) fn runs(&self) -> bool {
        self.clocks.as_ref().is_some_and(|clocks| clocks.cores() > 0)
    }

    /// Samples after this are not part of the recording.
    pub(super) fn stop_taking(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

    /// Stops the clocks.
    pub(super) fn stop(&mut self) {
        self.clocks = None;
    }

    /// What is known before anything of the target is read: when samples were taken, on which core and whose, and their counts.
    pub(super) fn sum_up(
        &mut self,
        loaded: &Loaded,
        costs: &[ProgramCost],
        start_ns: u64,
    ) -> (meta::Sampling, Samples) {
        let mut waiting = vec![];
        if let Some(ring) = &self.ring {
            ring.take();
            waiting = ring.waiting();
        }
        let end_ns = self.end_ns;
        let mut samples = self.stacks.unnamed(waiting.into_iter().filter(|row| row.ts_ns <= end_ns));
        samples.rows.retain(|row| row.ts_ns >= start_ns);
        let bss = loaded.probes.variables();
        let said = &mut self.said;
        let of_kind = |kind: u8| samples.rows.iter().filter(|row| row.kind == kind).count() as u64;
        (said.sleeps, said.skipped) = (of_kind(kind::SLEEP), of_kind(kind::SKIPPED));
        said.samples = samples.rows.len() as u64 - said.skipped;
        said.slow = Some(bss.heads.iter().map(|head| head.slow_ticks).sum());
        said.lost = bss.samples_lost + self.too_many;
        if bss.places_full > 0 {
            said.notes.push(format!(
                "threads slept at more than {MOST_PLACES} places of the program; the place of {} sleeps is unknown",
                bss.places_full
            ));
        }
        if bss.places_unread > 0 {
            said.notes.push(format!(
                "the place of {} sleeps is unknown: where the code of their process is was not known yet, or its stack could not be read",
                bss.places_unread
            ));
        }
        said.ns_per_sample = costs.iter().find(|c| c.name == PROGRAM).and_then(|c| c.ns_per_run);
        (said.clone(), samples)
    }

    /// Unwinds the waiting samples and names all functions. `followed`: every process of the target, which still runs. `stop`: where it was
    /// asked for already, names have a short time; where it comes now, none.
    pub(super) fn finish(mut self, followed: &[u32], start_ns: u64, stop: &Stop) -> Named {
        let began = Instant::now();
        let (before, too_many_before) = (self.unwound_ns, self.too_many);
        // And what ends them before.
        let (limit, given_up) = match (stop.is_urgent(), stop.is_asked()) {
            (true, _) => (Some(URGENT), Arc::default()),
            (false, true) => (Some(IN_HASTE), Arc::clone(stop.urgent())),
            (false, false) => (None, Arc::clone(stop.asked())),
        };
        // The other half is for names.
        let is_over = || limit.is_some_and(|limit| began.elapsed() >= limit / 2) || given_up.load(Ordering::Relaxed);
        self.said.notes.extend(maps_asked_for(followed, is_over));
        if let Some(limit) = limit {
            self.stacks.reader().limit(limit.saturating_sub(began.elapsed()));
        }
        self.stacks.reader().give_up_on(given_up);
        // Libraries that were loaded and processes that were born since.
        followed.iter().for_each(|&pid| self.stacks.look_at(pid));
        self.unwind();
        let routines = self.routines.rows(&mut self.stacks, (start_ns, self.end_ns));
        let mut tables = self.stacks.finish();
        tables.samples.rows.retain(|row| row.ts_ns >= start_ns);
        let mut said = self.said;
        said.lost += self.too_many - too_many_before;
        said.symbolise_ns = before + began.elapsed().as_nanos() as u64;
        said.unnamed = tables.unnamed;
        said.notes.append(&mut tables.notes);
        Named { said, samples: tables.samples, routines }
    }
}

/// A JVM writes a map of its compiled methods when asked. All are asked at the same time: each may take its time, until `is_over`. Why
/// there is none.
fn maps_asked_for(pids: &[u32], is_over: impl Fn() -> bool) -> Vec<String> {
    let jvms: Vec<u32> =
        pids.iter().copied().filter(|&pid| Maps::of(pid).is_ok_and(|maps| jvm::is_jvm(&maps))).collect();
    let mut notes = vec![];
    if jvms.len() > MOST_ASKED {
        notes.push(format!("{MOST_ASKED} of {} JVMs were asked for the maps of their compiled methods", jvms.len()));
    }
    let (answer, answers) = mpsc::channel();
    let mut waiting: BTreeSet<u32> = jvms.into_iter().take(MOST_ASKED).collect();
    for &pid in &waiting {
        let answer = answer.clone();
        // Nobody takes the answer of one that is no longer waited for.
        let _ = background::spawn("tailsight-jvm", move || answer.send((pid, jvm::ask_for_map(pid))));
    }
    while !waiting.is_empty() {
        match answers.recv_timeout(LOOK) {
            Ok((pid, answer)) => {
                waiting.remove(&pid);
                if let Err(why) = answer {
                    notes.push(no_map(pid, &why));
                }
            }
            Err(_) if is_over() => break,
            Err(_) => {}
        }
    }
    notes.extend(waiting.into_iter().map(|pid| no_map(pid, "the recording was ended")));
    notes
}

fn no_map(pid: u32, why: &str) -> String {
    format!("the JVM of process {pid} wrote no perf map of its compiled methods: {why}")
}

/// The cores that threads of these processes may run on, as `/proc/PID/status` says; all that are online when it says nothing.
pub(super) fn usable_cpus(pids: &[u32]) -> Vec<u32> {
    let mut cpus = Vec::new();
    for pid in pids {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        // Of a process with thousands of threads, the first ones are enough.
        for task in tasks.take(256) {
            // The first line is a name, of any bytes.
            let status = std::fs::read(task.path().join("status")).unwrap_or_default();
            let allowed = field(&String::from_utf8_lossy(&status), "Cpus_allowed_list").map(cpu_list);
            cpus.extend(allowed.unwrap_or_default());
        }
    }
    let online = cpu_list(&std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default());
    if cpus.is_empty() {
        return online;
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus.retain(|cpu| online.is_empty() || online.contains(cpu));
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(cpu_list("\t0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert!(cpu_list("").is_empty());
        assert!(cpu_list("0-4294967295").is_empty());
        assert!(!usable_cpus(&[std::process::id()]).is_empty());
    }
}
