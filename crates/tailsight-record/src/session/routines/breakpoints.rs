//! Breakpoints that tell which task a thread runs, and who made it ready: of runtimes that are linked into the program (tokio).
//!
//! Of Go the goroutine that a thread is in needs none; one place tells who makes one ready, and one who makes a new one.
//!
//! In: the programs of the target. Out: [`TaskPlan`], before anything is loaded; then [`TaskBreakpoints`], while the recording runs. Such a runtime
//! keeps its tasks where only its own code finds them. But it begins to run each in one function, makes it ready in two, and keeps it for what
//! is to make it ready in a fourth; there the task is the first argument. At most as much of a core may go to the breakpoints as to a function of
//! `--uprobe`: beyond that they are taken away.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use tailsight_symbolise::functions::Wanted;
use tailsight_symbolise::functions::emulated::is_emulated;
use tailsight_symbolise::reader::Reader;
use tailsight_symbolise::reader::protocol::{About, FileId};
use tailsight_tasks::go;
use tailsight_trace::meta;

use super::super::traced::{Binary, SHARE_OF_CORE, UNMEASURED_PER_SECOND, binaries, code_at, program_of};
use crate::loaded::Loaded;
use crate::probes::functions::{MOST_PLACES, Place, Tracer, TrapNs, trap_ns};
use crate::probes::routines::{self, PROGRAM, PROGRAM_OF_MANY, cookie};

/// The program's file, as the reader knows it.
const ITSELF: FileId = FileId::MAX;
/// The functions of tokio, as symbols have them. The one that runs a task has an instance for each type of task.
const FUNCTIONS: [(&str, u64); 4] = [
    ("5tokio7runtime4task5waker11clone_waker", cookie::ASKS),
    ("5tokio7runtime4task5waker11wake_by_val", cookie::WOKEN),
    ("5tokio7runtime4task5waker11wake_by_ref", cookie::WOKEN),
    ("5tokio7runtime4task3raw4poll", cookie::RUNS),
];
/// What the program takes besides the trap where it keeps two places, as at each hit of Go's.
const PLACES_NS: f64 = 3500.0;
/// The function of Go that makes a goroutine ready; the poller of sockets does it elsewhere.
const GO_READY: &str = "runtime.ready";
/// Where Go gives a new goroutine to its scheduler: the function that does so, and the one that it calls.
const GO_MADE: [&str; 2] = ["runtime.newproc.func1", "runtime.runqput"];
const TOKIO: &str = "tokio";
/// What tokio leaves in a program of which the symbols were removed: the paths of its sources, for its messages.
const TRACE: &str = "/tokio-1.";

/// A program's file: its number and name.
pub(crate) type ProgramFile = (u64, String);

/// Places for breakpoints.
#[derive(Debug, Default)]
pub(crate) struct TaskPlan {
    places: Vec<Place>,
    notes: Vec<String>,
    /// Whose tasks they are.
    runtimes: BTreeSet<&'static str>,
    /// The programs that were looked into.
    programs: BTreeSet<ProgramFile>,
}

impl TaskPlan {
    /// Looks for them in the programs that these processes run, or in the one that the recording will start.
    pub(crate) fn new(pids: &[u32], command: Option<&str>, reader: &mut Reader) -> TaskPlan {
        let mut plan = TaskPlan::default();
        for (path, pid) in pids.iter().filter_map(|&pid| Some((program_of(pid)?, pid))) {
            plan.look_into(binaries(&path, &[pid], None), reader);
        }
        if let Some(command) = command {
            plan.look_into(binaries(command, &[], Some(command)), reader);
        }
        if plan.places.len() > MOST_PLACES {
            plan.notes.push(format!(
                "tasks of {} are not followed: that takes {} breakpoints, at most {MOST_PLACES} are set",
                names(&plan.runtimes),
                plan.places.len()
            ));
            plan.places.clear();
        }
        plan
    }

    /// Looks into files, each once. What cannot be opened is said of the samples.
    fn look_into(&mut self, binaries: Result<Vec<Binary>, String>, reader: &mut Reader) {
        for binary in binaries.unwrap_or_default() {
            let Ok((file, about)) = binary.file.try_clone().and_then(|file| Ok((file, binary.file.metadata()?))) else {
                continue;
            };
            if !self.programs.insert((about.ino(), binary.name.clone())) {
                continue;
            }
            reader.give(ITSELF, file, None, About { is_program: true, ..About::default() });
            let paths = FUNCTIONS.iter().map(|&(path, _)| path.to_owned()).collect();
            let wanted = Wanted::Rust { paths, trace: TRACE.to_owned() };
            let located = reader.functions(ITSELF, None, &wanted).unwrap_or_default();
            self.look_for_go(&binary, reader);
            reader.take_back(ITSELF);
            let not_followed = |why: &String| format!("tasks of tokio are not followed in {}: {why}", binary.name);
            self.notes.extend(located.refused.iter().map(not_followed));
            // Without one of them it is no program of tokio, or of a version that is too old.
            if located.functions.len() < FUNCTIONS.len() {
                continue;
            }
            for (path, cookie) in FUNCTIONS {
                let instances = located.functions.iter().filter(|function| function.name == path);
                self.places.extend(
                    instances.flat_map(|function| &function.begins).map(|&(offset, _)| place(&binary, offset, cookie)),
                );
            }
            self.runtimes.insert(TOKIO);
        }
    }

    /// Where a program of Go makes goroutines, and makes them ready, which the reader has; nothing where it is not known where a goroutine has
    /// its registers.
    fn look_for_go(&mut self, binary: &Binary, reader: &mut Reader) {
        let Some(layout) = reader.go_version(ITSELF).and_then(|version| go::layout(&version)) else { return };
        let [caller, callee] = GO_MADE.map(String::from);
        let wanted = [
            (cookie::GO_READY, Wanted::Go(vec![GO_READY.into()])),
            (cookie::GO_MADE, Wanted::GoCall { caller, callee, after: false }),
        ];
        let before = self.places.len();
        for (what, wanted) in wanted {
            let located = reader.functions(ITSELF, None, &wanted).unwrap_or_default();
            let begins = located.functions.iter().flat_map(|function| &function.begins);
            let cookie = cookie::of_go(what, layout.saved_frame_pointer());
            self.places.extend(begins.map(|&(offset, _)| place(binary, offset, cookie)));
        }
        if self.places.len() > before {
            self.runtimes.insert("Go");
        }
    }

    /// The programs that were looked into: breakpoints are in every process that runs one of them.
    pub(crate) fn programs(&self) -> &BTreeSet<ProgramFile> {
        &self.programs
    }

    /// Why tasks of these programs are not followed, where the recording runs already: then no breakpoint is set any more.
    pub(crate) fn too_late(self) -> Vec<String> {
        let runtimes = names(&self.runtimes);
        let late = |(_, name): &ProgramFile| {
            format!(
                "tasks of {runtimes} are not followed in {name}: it was started after the recording began; record it while it runs"
            )
        };
        if self.places.is_empty() { self.notes } else { self.programs.iter().map(late).collect() }
    }

    /// Why tasks that only breakpoints tell are not followed, where none are set.
    pub(crate) fn needs_breakpoints(self) -> Vec<String> {
        if self.places.is_empty() || !self.runtimes.contains(TOKIO) {
            return vec![];
        }
        vec![format!(
            "tasks of {TOKIO} are not followed while a server is watched, for that takes breakpoints; record follows them"
        )]
    }

    /// Whether there is nothing to set.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

fn names(runtimes: &BTreeSet<&'static str>) -> String {
    runtimes.iter().copied().collect::<Vec<_>>().join(" and ")
}

/// A place of a program.
fn place(binary: &Binary, offset: u64, cookie: u64) -> Place {
    Place {
        function: None,
        file: binary.path.clone(),
        offset,
        semaphore: 0,
        at_return: false,
        cookie,
        emulated: is_emulated(&code_at(&binary.file, offset)),
    }
}

/// How often they may be hit in a second, all together.
fn limit(places: &[Place], trap: Option<TrapNs>) -> u32 {
    let Some(trap) = trap else { return UNMEASURED_PER_SECOND };
    let trap_ns = if places.iter().all(|place| place.emulated) { trap.emulated } else { trap.stepped };
    let is_of_go = |place: &Place| [cookie::GO_READY, cookie::GO_MADE].contains(&(place.cookie & 0xff));
    let hit_ns = trap_ns + if places.iter().any(is_of_go) { PLACES_NS } else { 0.0 };
    (SHARE_OF_CORE * 1e9 / hit_ns.max(100.0)) as u32
}

/// Breakpoints that are set.
pub(crate) struct TaskBreakpoints {
    tracer: Tracer,
    said: meta::TaskBreakpoints,
    trap: Option<TrapNs>,
    notes: Vec<String>,
    runtimes: BTreeSet<&'static str>,
}

impl TaskBreakpoints {
    /// Sets them. What the kernel refuses is noted; the recording goes on.
    pub(crate) fn set(loaded: &mut Loaded, plan: TaskPlan) -> Option<TaskBreakpoints> {
        let TaskPlan { places, mut notes, runtimes, .. } = plan;
        if places.is_empty() && notes.is_empty() {
            return None;
        }
        let trap = if places.is_empty() { None } else { trap_ns(loaded, PROGRAM) };
        let most_per_second = limit(&places, trap);
        routines::limit_hits(loaded, most_per_second);
        let mut tracer = Tracer::default();
        // Older kernels set them one by one.
        if tracer.set_many(loaded, PROGRAM_OF_MANY, &places).is_err()
            && let Err((_, why)) = tracer.set(loaded, PROGRAM, &places)
        {
            notes.push(format!("tasks of {} are not followed: {why}", names(&runtimes)));
            tracer.clear();
        }
        let said = meta::TaskBreakpoints {
            places: if notes.is_empty() { places.len() as u64 } else { 0 },
            stepped_places: places.iter().filter(|place| !place.emulated).count() as u64,
            most_per_second: u64::from(most_per_second),
            ..meta::TaskBreakpoints::default()
        };
        Some(TaskBreakpoints { tracer, said, trap, notes, runtimes })
    }

    /// Takes those away that are off because they were hit too often: until then each hit takes the trap.
    pub(crate) fn look(&mut self, loaded: &Loaded) {
        let (hits, off_ns) = routines::hits(loaded);
        self.said.hits = hits;
        if off_ns.is_some() && self.said.off_ns.is_none() {
            self.said.off_ns = off_ns;
            self.tracer.clear();
        }
    }

    /// The runtimes whose versions nothing else tells.
    pub(crate) fn versions(&self) -> Vec<String> {
        self.runtimes.iter().filter(|runtime| **runtime == TOKIO).map(|runtime| (*runtime).to_owned()).collect()
    }

    /// Takes all away: the recording is over.
    pub(crate) fn take_away(&mut self) {
        self.tracer.clear();
    }

    /// What run.json says. `program_ns`: the program's cost, as measured.
    pub(crate) fn finish(mut self, program_ns: Option<f64>, start_ns: u64) -> (meta::TaskBreakpoints, Vec<String>) {
        let hit_ns = |trap: TrapNs| [trap.emulated, trap.stepped].map(|ns| ns + program_ns.unwrap_or_default());
        self.said.hit_ns = self.trap.map(hit_ns);
        if let Some(off_ns) = self.said.off_ns {
            let after = off_ns.saturating_sub(start_ns) as f64 / 1e9;
            self.notes.push(format!(
                "tasks of {} are followed for the first {after:.1} s only: they ran and woke more than {} times a second",
                names(&self.runtimes),
                self.said.most_per_second
            ));
        }
        (self.said, self.notes)
    }
}
