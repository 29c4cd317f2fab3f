//! The functions that are traced: what the user named becomes places in files; at the end, facts on them for run.json.
//!
//! In: [`Asked`]s as the user wrote them, the target's processes. Out: [`Plan`], before anything is loaded, so that an
//! unknown name is an error at once; then [`Tracing`], which watches them during the recording.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use tailsight_host::mounts::Mounts;
use tailsight_output::input::{Links, open_regular};
use tailsight_symbolise::functions::emulated::is_emulated;
use tailsight_symbolise::functions::{EndsBy, Located, Traceable, Wanted};
use tailsight_symbolise::maps::{Mapping, Maps};
use tailsight_symbolise::reader::protocol::{About, FileId};
use tailsight_symbolise::reader::{MOST_FILE_BYTES, Reader};
use tailsight_trace::meta;

use crate::attachable;
use crate::error::Error;
use crate::loaded::Loaded;
use crate::probes::functions::{
    MOST_FUNCTIONS, MOST_OF_KERNEL, MOST_PLACES, PROGRAM, Place, Tracer, TrapNs, cookie, trap_ns,
};

/// The file whose functions are looked for, as the reader knows it; and its debug file.
const ITSELF: FileId = FileId::MAX;
const DEBUG: FileId = FileId::MAX - 1;

/// What the user wants traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `--uprobe BIN:FUNC`: a function of a program or library, by name or place.
    Uprobe {
        /// The file: a path, or the name of one that the target has mapped.
        binary: String,
        /// The function.
        function: String,
    },
    /// `--usdt BIN:PROVIDER:PROBE`.
    Usdt {
        /// The file.
        binary: String,
        /// Who provides the probe.
        provider: String,
        /// Its name, or `BEGIN,END`.
        probe: String,
    },
    /// `--function GLOB`: functions of the kernel.
    Kernel(String),
}

impl Asked {
    /// From `BIN:FUNC`.
    ///
    /// # Errors
    /// What is allowed.
    pub fn uprobe(text: &str) -> Result<Asked, String> {
        match text.split_once(':') {
            Some((binary, function)) if !binary.is_empty() && !function.is_empty() => {
                Ok(Asked::Uprobe { binary: binary.into(), function: function.into() })
            }
            _ => Err(format!(
                "{text:?} is not BIN:FUNC: write for example memcached:process_command or /usr/bin/x:0x1234"
            )),
        }
    }

    /// From `BIN:PROVIDER:PROBE`.
    ///
    /// # Errors
    /// What is allowed.
    pub fn usdt(text: &str) -> Result<Asked, String> {
        let parts: Vec<&str> = text.splitn(3, ':').collect();
        match parts[..] {
            [binary, provider, probe] if parts.iter().all(|p| !p.is_empty()) => {
                Ok(Asked::Usdt { binary: binary.into(), provider: provider.into(), probe: probe.into() })
            }
            _ => Err(format!("{text:?} is not BIN:PROVIDER:PROBE: write for example postgres:postgresql:query")),
        }
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Asked::Uprobe { binary, function } => write!(f, "--uprobe {binary}:{function}"),
            Asked::Usdt { binary, provider, probe } => write!(f, "--usdt {binary}:{provider}:{probe}"),
            Asked::Kernel(glob) => write!(f, "--function {glob}"),
        }
    }
}

/// What is traced, and how often a function may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// As the user wrote it.
    pub asked: Vec<Asked>,
    /// Calls of one function a second above which it is switched off; `None`: as many as take a tenth of a core.
    pub most_per_second: Option<u32>,
}

/// The part of a core that a function may take, unless the user limits its calls.
pub(super) const SHARE_OF_CORE: f64 = 0.1;
/// Calls a second, where the cost of one could not be measured.
pub(super) const UNMEASURED_PER_SECOND: u32 = 20_000;

/// How often a function may be called in a second. Two hits a call.
fn limit(asked: Option<u32>, trap: Option<TrapNs>) -> u32 {
    let affordable = |trap: TrapNs| (SHARE_OF_CORE * 1e9 / (trap.emulated + trap.stepped).max(100.0)) as u32;
    asked.unwrap_or_else(|| trap.map_or(UNMEASURED_PER_SECOND, affordable))
}

/// Everything that is to be traced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    functions: Vec<meta::TracedFunction>,
    places: Vec<Place>,
    /// Functions of the kernel: by number, and their names as the kernel has them.
    kernel: Vec<(usize, String)>,
    notes: Vec<String>,
}

impl Plan {
    /// Finds what was asked for. `command`: the program that the recording will start.
    pub(crate) fn new(
        traces: &Traces,
        pids: &[u32],
        command: Option<&str>,
        reader: &mut Reader,
    ) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        for asked in &traces.asked {
            let failed = |why: String| Error::Function { asked: asked.to_string(), why };
            match asked {
                Asked::Uprobe { binary, function } => {
                    let hex = function.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok());
                    let wanted = hex.map_or_else(|| Wanted::Name(function.clone()), Wanted::Offset);
                    plan.find(asked, &wanted, binaries(binary, pids, command).map_err(failed)?, reader)
                        .map_err(failed)?;
                }
                Asked::Usdt { binary, provider, probe } => {
                    let wanted = Wanted::Probe { provider: provider.clone(), probe: probe.clone() };
                    plan.find(asked, &wanted, binaries(binary, pids, command).map_err(failed)?, reader)
                        .map_err(failed)?;
                }
                Asked::Kernel(glob) => plan.of_kernel(asked, glob)?,
            }
            if plan.functions.len() > MOST_FUNCTIONS || plan.places.len() > MOST_PLACES {
                return Err(failed(format!(
                    "{} functions with {} breakpoints; at most {MOST_FUNCTIONS} functions and {MOST_PLACES} \
                     breakpoints are allowed",
                    plan.functions.len(),
                    plan.places.len()
                )));
            }
        }
        Ok(plan)
    }

    /// Whether nothing is traced.
    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Whether there are places in files.
    pub(crate) fn of_files(&self) -> bool {
        !self.places.is_empty()
    }

    /// The functions of the kernel, each with its number.
    pub(crate) fn kernel(&self) -> &[(usize, String)] {
        &self.kernel
    }

    fn find(
        &mut self,
        asked: &Asked,
        wanted: &Wanted,
        binaries: Vec<Binary>,
        reader: &mut Reader,
    ) -> Result<(), String> {
        let mut why = vec![];
        let mut any = false;
        for binary in binaries {
            reader.give(
                ITSELF,
                binary.file.try_clone().map_err(|e| e.to_string())?,
                None,
                About { is_program: true, ..About::default() },
            );
            let debug = reader.build_id(ITSELF).and_then(|build_id| {
                let path = debug_file(&build_id)?;
                let (file, _) = open_regular(Path::new(&path), Links::Follow, MOST_FILE_BYTES).ok()?;
                reader.give(DEBUG, file, None, About::default());
                Some(DEBUG)
            });
            match reader.functions(ITSELF, debug, wanted) {
                Ok(located) => {
                    any = true;
                    self.notes.extend(located.refused.iter().map(|why| format!("not traced: {why}")));
                    self.add(asked, &binary, located);
                }
                Err(e) => why.push(format!("{}: {e}", binary.name)),
            }
            reader.take_back(ITSELF);
            reader.take_back(DEBUG);
        }
        why.dedup();
        if any { Ok(()) } else { Err(why.join("; ")) }
    }

    fn add(&mut self, asked: &Asked, binary: &Binary, located: Located) {
        let file = &binary.path;
        let go = if located.go.is_some() { cookie::GO } else { 0 };
        for Traceable { name, begins, ends } in located.functions {
            let kind = if matches!(asked, Asked::Usdt { .. }) { "usdt" } else { "user" };
            let ends_by = match &ends {
                EndsBy::Instructions(_) => "instructions",
                EndsBy::Return => "uretprobe",
                EndsBy::Probe(_) => "probe",
            };
            let number = self.number(meta::TracedFunction {
                name,
                asked: asked.to_string(),
                kind: kind.into(),
                module: binary.name.clone(),
                build_id: located.build_id.clone(),
                ends_by: ends_by.into(),
                ..meta::TracedFunction::default()
            });
            let mut place = |offset, semaphore, at_return, cookie| {
                let emulated = at_return || is_emulated(&code_at(&binary.file, offset));
                let place =
                    Place { function: Some(number), file: file.into(), offset, semaphore, at_return, cookie, emulated };
                // Two names of one function.
                if !self.places.contains(&place) {
                    self.places.push(place);
                }
            };
            // Ends first: a begin whose end is not watched yet would stay open.
            match ends {
                EndsBy::Instructions(ends) => ends.iter().for_each(|end| {
                    let condition = end.condition.map_or(0, |c| u64::from(c) + 1) << cookie::CONDITION_SHIFT;
                    place(end.at, 0, false, cookie::END | go | condition);
                }),
                EndsBy::Return => place(begins[0].0, 0, true, cookie::END | cookie::RETURNED | go),
                EndsBy::Probe(ends) => {
                    ends.iter().for_each(|&(at, semaphore)| place(at, semaphore, false, cookie::END))
                }
            }
            begins.iter().for_each(|&(at, semaphore)| place(at, semaphore, false, go));
        }
        if let Some([execute, schedule]) = located.go {
            for (offset, none) in [(execute, 0), (schedule, cookie::NONE)] {
                let cookie = cookie::SWITCH | none;
                let place = Place {
                    function: None,
                    file: file.into(),
                    offset,
                    semaphore: 0,
                    at_return: false,
                    cookie,
                    emulated: false,
                };
                if !self.places.contains(&place) {
                    self.places.push(place);
                }
            }
        }
    }

    /// The number of a function, which another file or another name of it may have already.
    fn number(&mut self, function: meta::TracedFunction) -> usize {
        let same = |f: &meta::TracedFunction| f.name == function.name && f.module == function.module;
        self.functions.iter().position(same).unwrap_or_else(|| {
            self.functions.push(function);
            self.functions.len() - 1
        })
    }

    fn of_kernel(&mut self, asked: &Asked, glob: &str) -> Result<(), Error> {
        let option = asked.to_string();
        let names = attachable::kernel_functions(&option, glob)?;
        if self.kernel.len() + names.len() > MOST_OF_KERNEL {
            let some: Vec<&str> = names.iter().take(4).map(String::as_str).collect();
            let why = format!(
                "it matches {} functions ({} …); at most {MOST_OF_KERNEL} kernel functions can be traced",
                names.len(),
                some.join(", ")
            );
            return Err(Error::Function { asked: option, why });
        }
        for name in names {
            let number = self.number(meta::TracedFunction {
                name: name.clone(),
                asked: option.clone(),
                kind: "kernel".into(),
                module: "[kernel]".into(),
                ends_by: "fexit".into(),
                ..meta::TracedFunction::default()
            });
            if !self.kernel.iter().any(|(n, _)| *n == number) {
                self.kernel.push((number, name));
            }
        }
        Ok(())
    }
}

/// A file that holds functions.
pub(super) struct Binary {
    /// As the recorder opens it.
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) name: String,
}

/// The path of the program that a process runs.
pub(super) fn program_of(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let path = path.to_str()?;
    // A newer one is at its place by now; what runs is mapped.
    Some(path.strip_suffix(" (deleted)").unwrap_or(path).to_owned())
}

/// The files that a name or path stands for: those that the target has mapped, else what is there on this host.
pub(super) fn binaries(binary: &str, pids: &[u32], command: Option<&str>) -> Result<Vec<Binary>, String> {
    let mut binaries: Vec<Binary> = vec![];
    let (mut looked_at, mut others, mut why) = (BTreeSet::new(), BTreeSet::new(), None);
    for &pid in pids {
        let maps = Maps::of(pid).map_err(|e| tailsight_units::chain(&e))?;
        for mapping in maps.all().iter().filter(|m| m.is_file()) {
            if !means(binary, mapping) {
                others.insert(mapping.name().to_owned());
            } else if looked_at.insert((mapping.inode, mapping.path.clone())) {
                match mapping.open(pid) {
                    Ok((path, file)) => binaries.push(Binary { path, file, name: mapping.name().into() }),
                    Err(e) => why = Some(tailsight_units::chain(&e)),
                }
            }
        }
    }
    if !binaries.is_empty() {
        return Ok(binaries);
    }
    if let Some(why) = why {
        return Err(why);
    }
    let name = binary.rsplit('/').next().unwrap_or(binary).to_owned();
    // Who answers for a file system of that process's might never do so.
    let can_be_looked_up = |pid: &&u32| !Mounts::of(**pid).is_served(Path::new(binary));
    let inside = pids.iter().filter(can_be_looked_up).map(|pid| PathBuf::from(format!("/proc/{pid}/root{binary}")));
    let started = command.filter(|c| c.rsplit('/').next() == Some(binary)).and_then(in_path);
    let candidates: Vec<PathBuf> = match binary.contains('/') {
        true => inside.filter(|_| binary.starts_with('/')).chain([PathBuf::from(binary)]).collect(),
        false => started.into_iter().collect(),
    };
    for path in candidates {
        match open_regular(&path, Links::Follow, MOST_FILE_BYTES) {
            Ok((file, _)) => return Ok(vec![Binary { path, file, name }]),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{}: {e}", path.display())),
        }
    }
    let listed: Vec<String> = others.into_iter().take(8).collect();
    Err(match (binary.contains('/'), listed.is_empty()) {
        (true, _) => format!("there is no file {binary}"),
        (false, true) => format!("the target has not mapped a file {binary:?}; give its path"),
        (false, false) => format!("the target has not mapped a file {binary:?}; it has {}", listed.join(", ")),
    })
}

/// Whether a mapping is of the file that the user wrote: its path, its name, or a library's name without its version.
fn means(binary: &str, mapping: &Mapping) -> bool {
    if binary.contains('/') {
        return mapping.path == binary;
    }
    let rest = mapping.name().strip_prefix(binary);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".so"))
}

fn in_path(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The first bytes of an instruction.
pub(super) fn code_at(file: &File, offset: u64) -> [u8; 2] {
    use std::os::unix::fs::FileExt;
    let mut code = [0; 2];
    file.read_exact_at(&mut code, offset).map_or([0; 2], |()| code)
}

/// Where Debian and Fedora put separate debug information.
fn debug_file(build_id: &str) -> Option<String> {
    let (first, rest) = build_id.split_at_checked(2)?;
    Some(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"))
}

/// Functions that are traced.
pub(crate) struct Tracing {
    tracer: Tracer,
    said: meta::Traced,
    calls: Vec<u64>,
    trap: Option<TrapNs>,
    /// For each function, whether its entry takes one trap, and its returns.
    emulated: Vec<[bool; 2]>,
}

impl Tracing {
    /// Sets the breakpoints. What the kernel refuses is noted; the recording goes on.
    pub(crate) fn start(loaded: &mut Loaded, plan: Plan, most_per_second: Option<u32>) -> Option<Tracing> {
        if plan.is_empty() {
            return None;
        }
        // Functions of the kernel need no trap.
        let none = TrapNs { emulated: 0.0, stepped: 0.0 };
        let of_files = plan.of_files();
        let trap = if of_files { trap_ns(loaded, PROGRAM) } else { Some(none) };
        let most_per_second = limit(most_per_second, trap);
        loaded.set_function_limit(most_per_second);
        let Plan { functions, places, kernel, notes } = plan;
        let mut said =
            meta::Traced { functions, most_per_second: u64::from(most_per_second), notes, ..meta::Traced::default() };
        let mut tracer = Tracer::default();
        if of_files && let Err((function, why)) = tracer.set(loaded, PROGRAM, &places) {
            let name = function.and_then(|f| said.functions.get(f)).map_or("the program", |f| &f.name);
            said.notes.push(format!("not traced: {name}: {why}"));
            tracer.clear();
        }
        for (pair, (number, name)) in kernel.iter().enumerate() {
            if let Err(why) = tracer.set_kernel(loaded, *number, pair) {
                said.notes.push(format!("not traced: {name}: {why}"));
                tracer.remove(*number);
            }
        }
        let calls = vec![0; said.functions.len()];
        let are_emulated = |i: usize, end: bool| {
            let mut of_function =
                places.iter().filter(|p| p.function == Some(i) && (p.cookie & cookie::END != 0) == end);
            of_function.all(|p| p.emulated)
        };
        let emulated = (0..said.functions.len()).map(|i| [are_emulated(i, false), are_emulated(i, true)]).collect();
        Some(Tracing { tracer, said, calls, trap, emulated })
    }

    /// Removes the breakpoints of functions that were switched off: until then each call takes the trap.
    pub(crate) fn look(&mut self, loaded: &Loaded) {
        let bss = loaded.probes.variables();
        for (i, function) in self.said.functions.iter_mut().enumerate() {
            let off_ns = bss.functions[i].off_ns;
            if off_ns != 0 && function.off_ns.is_none() {
                function.off_ns = Some(off_ns);
                self.tracer.remove(i);
            }
        }
    }

    /// The recording is over: later events belong to the measurement of the hooks.
    pub(crate) fn stop_counting(&mut self, loaded: &Loaded) {
        self.look(loaded);
        let bss = loaded.probes.variables();
        self.calls.iter_mut().zip(&bss.functions).for_each(|(calls, f)| *calls = f.calls);
    }

    /// Removes all breakpoints, and measures the trap again: whatever had the core at the beginning made it look longer, and
    /// what is taken off each hit must not hide a short call.
    pub(crate) fn stop(&mut self, loaded: &Loaded) {
        self.tracer.clear();
        if let Some(trap) = self.trap.filter(|trap| trap.stepped > 0.0) {
            self.trap = trap_ns(loaded, PROGRAM).map(|again| trap.least(again)).or(Some(trap));
        }
    }

    /// What run.json says. `program_ns`: the program's cost, as measured.
    pub(crate) fn finish(self, program_ns: Option<f64>) -> meta::Traced {
        let mut said = self.said;
        said.functions.iter_mut().zip(self.calls).for_each(|(f, calls)| f.calls = calls);
        said.program_ns = program_ns;
        let program = program_ns.unwrap_or(0.0);
        if let Some(trap) = self.trap {
            for (function, emulated) in said.functions.iter_mut().zip(self.emulated) {
                let hit = |emulated: bool| program + if emulated { trap.emulated } else { trap.stepped };
                function.hit_ns = Some(if function.kind == "kernel" { [program; 2] } else { emulated.map(hit) });
            }
            said.trap_ns = Some([trap.emulated, trap.stepped]);
        }
        said
    }
}

/// Notes on traced functions for the reader of the run.
pub(crate) fn warnings(said: &meta::Traced, start_ns: u64) -> Vec<String> {
    let off = said.functions.iter().filter_map(|f| {
        let after = f.off_ns?.saturating_sub(start_ns) as f64 / 1e9;
        Some(format!(
            "{} was called more than {} times a second and was switched off after {after:.1} s: it has no rows ({} \
             calls were \
             counted); raise --function-limit to trace it",
            f.name, said.most_per_second, f.calls
        ))
    });
    off.chain(said.notes.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_writes_is_taken_apart() {
        let uprobe = |text: &str| Asked::uprobe(text).map(|a| a.to_string());
        assert_eq!(uprobe("server:Cache::get").unwrap(), "--uprobe server:Cache::get");
        assert!(uprobe("server").is_err() && uprobe(":f").is_err() && uprobe("server:").is_err());
        let usdt = |text: &str| Asked::usdt(text).map(|a| a.to_string());
        assert_eq!(usdt("postgres:postgresql:query").unwrap(), "--usdt postgres:postgresql:query");
        assert!(usdt("postgres:query").is_err() && usdt("a::b").is_err());
    }

    #[test]
    fn functions_of_files_become_places() {
        let own = std::env::current_exe().unwrap();
        let name = own.file_name().unwrap().to_str().unwrap();
        let plan = |binary: &str, function: &str| {
            let asked = vec![Asked::Uprobe { binary: binary.into(), function: function.into() }];
            let traces = Traces { asked, ..Traces::default() };
            Plan::new(&traces, &[std::process::id()], None, &mut Reader::in_this_process())
        };
        let main = plan(name, "main").unwrap();
        let begins: Vec<bool> = main.places.iter().map(|p| p.cookie & cookie::END == 0 && !p.at_return).collect();
        assert!(begins.len() > 1 && begins.iter().rev().skip(1).all(|b| !b) && begins[begins.len() - 1], "{begins:?}");
        assert_eq!((main.functions[0].name.as_str(), main.functions[0].ends_by.as_str()), ("main", "instructions"));
        assert_eq!(plan(own.to_str().unwrap(), "main").unwrap().places, main.places);
        let said = |binary: &str, function: &str| plan(binary, function).unwrap_err().to_string();
        assert!(said(name, "no_such_function_at_all").contains("no function"));
        assert!(
            said("no-such-file", "f").contains(&format!("it has {name}"))
                || said("no-such-file", "f").contains("it has ")
        );
        assert!(said("/no/such/file", "f").contains("there is no file"));
        assert!(said("/dev/null", "f").contains("/dev/null: it is no regular file"));
        let libc = plan("libc", "malloc").or_else(|_| plan("libc.so.6", "malloc"));
        assert!(libc.is_ok_and(|p| p.functions[0].name == "malloc"));
    }

    #[test]
    fn a_function_may_take_a_tenth_of_a_core() {
        let trap = TrapNs { emulated: 1_000.0, stepped: 1_500.0 };
        assert_eq!((limit(None, Some(trap)), limit(Some(7), Some(trap))), (40_000, 7));
        assert_eq!(limit(None, None), UNMEASURED_PER_SECOND);
    }

    #[test]
    fn a_function_that_was_switched_off_is_told() {
        let hot =
            meta::TracedFunction { name: "hot".into(), calls: 7, off_ns: Some(2_500_000_000), ..Default::default() };
        let said =
            meta::Traced { functions: vec![hot], most_per_second: 10, notes: vec!["n".into()], ..Default::default() };
        let texts = warnings(&said, 1_000_000_000);
        assert!(texts[0].starts_with("hot was called more than 10 times a second and was switched off after 1.5 s"));
        assert_eq!(texts[1], "n");
    }
}
