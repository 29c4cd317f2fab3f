//! What a runtime or a well-known server does in a function: collecting garbage, waiting for the interpreter's lock, compiling.
//!
//! In: `data/runtimes.toml`, which documents its fields, and files like it of the user's own. Out: [`Runtimes`], asked by function and module.

use serde::Deserialize;

use tailsight_trace::samples::FrameRow;

use crate::cause::Category;
use crate::{Error, glob};

/// What functions do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtimes {
    /// In order: the first that matches counts.
    #[serde(default)]
    runtime: Vec<Runtime>,
    /// Functions by which interpreters run any program.
    #[serde(default)]
    interpreter: Vec<Interpreter>,
    /// Functions in which programs wait, whatever for.
    #[serde(default)]
    waiter: Vec<Waiter>,
    /// Functions in which runtimes wait for whatever comes for any of their tasks.
    #[serde(default)]
    idle: Vec<Idle>,
}

/// The functions in which a runtime that schedules tasks by itself has none to run: they do not tell what a task waits for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Idle {
    /// Of which runtime: for who reads the file.
    #[serde(rename = "of")]
    _of: String,
    functions: Vec<String>,
    /// Any without.
    #[serde(default)]
    modules: Vec<String>,
}

/// The functions by which a program waits for whatever its functions wait for: they do not tell for what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Waiter {
    functions: Vec<String>,
    modules: Vec<String>,
}

/// The functions by which an interpreter runs whatever program: they do not tell what that does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interpreter {
    /// Of which language.
    pub of: String,
    /// The functions, with wildcards.
    functions: Vec<String>,
    /// Only in programs and libraries of these names, with wildcards.
    modules: Vec<String>,
    /// How it is made to tell the names of the functions that it runs, where it can be.
    #[serde(default)]
    pub tells_when: Option<String>,
}

/// What some functions of one runtime do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// Of which runtime or server.
    pub of: String,
    /// What it does in them.
    pub does: String,
    /// The functions, with wildcards.
    functions: Vec<String>,
    /// Only in programs and libraries of these names, with wildcards; any without.
    #[serde(default)]
    modules: Vec<String>,
    /// What its documentation says to do about it.
    pub fix: String,
    /// Where that is written.
    pub documented: String,
    /// Nobody asked for it: a collection, a wait for the interpreter's lock, compiling; unlike a lock that the program takes.
    #[serde(default)]
    pub on_its_own_account: bool,
    /// The category of a sleep in them, where the system call that it sleeps in does not tell what it waits for.
    #[serde(default)]
    waits_are: Option<Category>,
}

impl Runtime {
    /// The category of a sleep in them, where it has one.
    pub fn waits_are(&self) -> Option<Category> {
        self.waits_are
    }
}

impl Default for Runtimes {
    fn default() -> Runtimes {
        Runtimes::parse(include_str!("../../data/runtimes.toml"), "data/runtimes.toml").expect("checked by a test")
    }
}

impl Runtimes {
    /// Reads such a file.
    ///
    /// # Errors
    /// [`Error::Toml`] with the file's name and what is wrong in it.
    pub fn parse(text: &str, file: &str) -> Result<Runtimes, Error> {
        toml::from_str(text).map_err(|e| Error::Toml { file: file.into(), why: e.to_string().trim_end().into() })
    }

    /// These before those that are known already.
    #[must_use]
    pub fn before(mut self, others: Runtimes) -> Runtimes {
        self.runtime.extend(others.runtime);
        self.interpreter.extend(others.interpreter);
        self.waiter.extend(others.waiter);
        self.idle.extend(others.idle);
        self
    }

    /// The category of a sleep in what a runtime does, where that is known.
    pub fn wait_of(&self, name: &str, does: &str) -> Option<Category> {
        self.runtime.iter().find(|r| r.of == name && r.does == does)?.waits_are
    }

    /// Whether a function runs whatever an interpreted program is.
    pub fn interprets(&self, frame: &FrameRow) -> bool {
        let runs = |i: &Interpreter| glob::any(&i.modules, &frame.module) && glob::any(&i.functions, &frame.function);
        !frame.kernel && !frame.function.is_empty() && self.interpreter.iter().any(runs)
    }

    /// The interpreter that a program or library is, where its name says so: what runs there is another program.
    pub fn interpreter_in(&self, module: &str) -> Option<&Interpreter> {
        let is = |i: &&Interpreter| !i.modules.iter().any(|m| m == "*") && glob::any(&i.modules, module);
        self.interpreter.iter().find(is)
    }

    /// How the interpreter of this name is made to tell the functions that it runs, where it can be.
    pub fn tells_when(&self, name: &str) -> Option<String> {
        self.interpreter.iter().find(|i| i.of == name)?.tells_when.clone()
    }

    /// Whether a function only waits for what its caller waits for.
    pub fn only_waits(&self, frame: &FrameRow) -> bool {
        let waits = |w: &Waiter| glob::any(&w.modules, &frame.module) && glob::any(&w.functions, &frame.function);
        !frame.kernel && !frame.function.is_empty() && self.waiter.iter().any(waits)
    }

    /// Whether a runtime waits there for whatever comes for any of its tasks.
    pub fn is_idle(&self, frame: &FrameRow) -> bool {
        let in_module = |i: &Idle| i.modules.is_empty() || glob::any(&i.modules, &frame.module);
        let is = |i: &Idle| in_module(i) && glob::any(&i.functions, &frame.function);
        !frame.kernel && !frame.function.is_empty() && self.idle.iter().any(is)
    }

    /// What is done in a sampled function. One without a name does what the exported functions on both sides of it do, if that is the
    /// same: they are of one source file.
    pub fn known(&self, frame: &FrameRow) -> Option<&Runtime> {
        if !frame.function.is_empty() {
            return self.find(&frame.function, &frame.module);
        }
        let [before, after] =
            [&frame.exported_before, &frame.exported_after].map(|name| self.find(name, &frame.module));
        before.filter(|_| before == after)
    }

    /// What is done in a function.
    pub fn find(&self, function: &str, module: &str) -> Option<&Runtime> {
        let in_module = |r: &&Runtime| r.modules.is_empty() || glob::any(&r.modules, module);
        self.runtime.iter().filter(in_module).find(|r| glob::any(&r.functions, function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_runtimes_are_known() {
        let runtimes = Runtimes::default();
        let does =
            |function: &str, module: &str| runtimes.find(function, module).map(|r| (r.of.as_str(), r.does.as_str()));
        assert_eq!(does("gc_collect_main", "python3.11"), Some(("CPython", "collecting garbage")));
        assert_eq!(does("take_gil", "libpython3.11.so.1.0"), Some(("CPython", "waiting for the interpreter's lock")));
        assert_eq!(does("runtime.gcBgMarkWorker", "server"), Some(("Go", "collecting garbage")));
        assert_eq!(does("G1YoungCollector::collect", "libjvm.so"), Some(("Java", "collecting garbage")));
        assert_eq!(does("rehashing", "memcached"), None);
        assert_eq!(does("main", "memcached"), None);
        let (runtime, waits) = does("ProcSleep", "postgres").unwrap();
        assert_eq!(runtimes.wait_of(runtime, waits), Some(Category::LockWait));
        assert_eq!(runtimes.wait_of("Go", "collecting garbage"), None);
        for i in &runtimes.interpreter {
            assert!(!i.of.is_empty() && !i.functions.is_empty() && i.functions.iter().all(|f| f != "*"), "{i:?}");
        }
        for r in &runtimes.runtime {
            assert!(r.documented.starts_with("https://") || r.documented.starts_with("man "), "{r:?}");
            assert!(!r.fix.is_empty() && !r.functions.is_empty() && !r.does.is_empty(), "{r:?}");
            assert!(r.functions.iter().all(|f| f != "*"), "{r:?}");
        }
    }

    #[test]
    fn a_function_without_a_name_does_what_its_exported_neighbours_do() {
        let runtimes = Runtimes::default();
        let frame = |before: &str, after: &str| FrameRow {
            module: "libruby-3.1.so.3.1.7".into(),
            exported_before: before.into(),
            exported_after: after.into(),
            ..FrameRow::default()
        };
        let does = |f: &FrameRow| runtimes.known(f).map(|r| r.does.as_str());
        assert_eq!(does(&frame("rb_gc_mark_maybe", "rb_gc_start")), Some("collecting garbage"));
        assert_eq!(does(&frame("rb_gc_start", "rb_ary_new")), None);
        assert_eq!(does(&frame("rb_gc_start", "")), None);
        assert_eq!(does(&frame("", "")), None);
        assert_eq!(does(&FrameRow { module: "other.so".into(), ..frame("rb_gc", "rb_gc_start") }), None);
        let named = FrameRow { function: "rb_vm_exec".into(), ..frame("", "") };
        assert!(runtimes.interprets(&named) && !runtimes.interprets(&frame("rb_vm_exec", "rb_vm_exec")));
    }

    #[test]
    fn what_only_waits_does_not_tell_for_what() {
        let runtimes = Runtimes::default();
        let frame =
            |function: &str| FrameRow { function: function.into(), module: "postgres".into(), ..FrameRow::default() };
        assert!(runtimes.only_waits(&frame("WaitEventSetWait")) && runtimes.only_waits(&frame("WaitLatch")));
        assert!(!runtimes.only_waits(&frame("pg_sleep")) && !runtimes.only_waits(&frame("ProcSleep")));
        let other = FrameRow { module: "other".into(), ..frame("WaitLatch") };
        assert!(!runtimes.only_waits(&other));
        assert_eq!(runtimes.interpreter_in("python3.11").map(|i| i.of.as_str()), Some("CPython"));
        assert!(runtimes.interpreter_in("redis-server").is_none(), "Lua is in it");
    }

    #[test]
    fn where_a_runtime_has_no_task_to_run_is_known() {
        let runtimes = Runtimes::default();
        let is_idle = |function: &str, module: &str| {
            runtimes.is_idle(&FrameRow { function: function.into(), module: module.into(), ..FrameRow::default() })
        };
        assert!(is_idle("mio::sys::unix::selector::epoll::Selector::select", "shop"));
        assert!(is_idle("uv__io_poll", "node") && is_idle("Java_sun_nio_ch_EPoll_wait", "libnio.so"));
        assert!(is_idle("erts_check_io", "beam.smp") && !is_idle("erts_check_io", "shop"));
        assert!(!is_idle("epoll_wait", "libc.so.6") && !is_idle("WaitLatch", "postgres") && !is_idle("", "shop"));
    }

    /// Every idle thread of tokio sleeps in the driver of its timers: "there tokio is sleeping until a time".
    #[test]
    fn an_idle_thread_of_tokio_is_no_task_that_sleeps() {
        let runtimes = Runtimes::default();
        assert!(runtimes.find("tokio::runtime::time::Driver::park_internal", "shop").is_none());
        let sleeps = runtimes.find("tokio::runtime::time::entry::TimerEntry::poll_elapsed", "shop").expect("known");
        assert_eq!(sleeps.does, "sleeping until a time");
    }

    #[test]
    fn a_users_own_file_comes_first_and_errors_name_it() {
        let own = "[[runtime]]\nof = \"mine\"\ndoes = \"compacting\"\nfunctions = [\"gc_*\"]\nfix = \"x\"\ndocumented = \"https://x\"\n";
        let runtimes = Runtimes::parse(own, "own.toml").unwrap().before(Runtimes::default());
        assert_eq!(runtimes.find("gc_collect_main", "python3.11").unwrap().of, "mine");
        assert!(Runtimes::parse("[[runtime]]\nof = 1", "own.toml").unwrap_err().to_string().contains("own.toml"));
    }
}
