//! Call stacks to categories: which function of a stack determines what its time, or its sleep, counts to (NSight §5.2).
//!
//! In: a kernel stack, innermost function first, as recorded at a context switch or by Intel PT. Out: a [`StackClass`]. The first
//! function with an entry in the tables decides. Functions that only wrap what their caller wants (`schedule`, the entry code) are
//! skipped. Functions without an entry are skipped, too, but then the result says that a caller decided. The tables are
//! `data/stacks.toml` (entries with conditions; it documents the fields) and `data/subsystems.txt` (patterns over names). A user's
//! table has priority over both.

use std::sync::{Arc, LazyLock};

use super::layer::Layer;
use super::meaning::Meaning;
use super::subsystems::SUBSYSTEMS;
use crate::Error;
use crate::cause::Category;

/// The function table: a user's entries, if any, then the built-in ones.
#[derive(Clone, Debug)]
pub struct FunctionTable {
    layers: Vec<Arc<Layer>>,
}

/// What a call stack counts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackClass<'a> {
    /// The category.
    pub category: Category,
    /// The sub-category, e.g. `mmap_lock`.
    pub sub: &'a str,
    /// The function that decided, without what the compiler appended.
    pub function: &'a str,
    /// No entry names the function in question: one of its callers decided.
    pub via_neighbour: bool,
}

static BUILT_IN: LazyLock<Arc<Layer>> = LazyLock::new(|| {
    let mut layer = Layer::of_kernel(&SUBSYSTEMS);
    let table =
        include_str!("../../data/stacks.toml").parse().expect("the built-in table is checked by this crate's tests");
    layer.add(&table, "stacks.toml").expect("the built-in table is checked by this crate's tests");
    Arc::new(layer)
});

impl Default for FunctionTable {
    fn default() -> FunctionTable {
        FunctionTable { layers: vec![BUILT_IN.clone()] }
    }
}

impl FunctionTable {
    /// The built-in table with a user's entries before it.
    pub(super) fn with(user: &toml::Table, file: &str) -> Result<FunctionTable, Error> {
        let mut layer = Layer::default();
        layer.add(user, file)?;
        Ok(FunctionTable { layers: vec![Arc::new(layer), BUILT_IN.clone()] })
    }

    /// The verdict on a stack, innermost first. Symbols may carry offsets (`+0x1f/0x90`), modules (`[ext4]`) and what the
    /// compiler appended (`.isra.0`). Whether the thread sleeps is told from the innermost frames: the scheduler, entered
    /// from anywhere but preemption. `None` when nothing in the stack is known.
    pub fn category_of<'a>(&'a self, stack: &[&'a str]) -> Option<StackClass<'a>> {
        self.judge(stack, None)
    }

    /// As [`FunctionTable::category_of`] for a thread that is known to sleep, with or without the scheduler's frames.
    pub fn category_of_wait<'a>(&'a self, stack: &[&'a str]) -> Option<StackClass<'a>> {
        self.judge(stack, Some(true))
    }

    /// What a system call means when the stack does not say: `name` without prefix (`futex`), and how a thread sleeps in
    /// it where that is known.
    pub fn syscall(&self, name: &str, uninterruptible: Option<bool>) -> Option<&Meaning> {
        self.layers.iter().find_map(|l| l.other("syscalls", name, uninterruptible))
    }

    /// What a user's table says, before any rule, of the handler that is the innermost frame (as paths name it).
    pub(super) fn user_handler(&self, frame: &str) -> Option<&Meaning> {
        let user = self.user()?;
        let (kind, name) = frame.split_once(':')?;
        match kind {
            "softirq" => user.other("softirqs", name, None),
            "vector" => user.other("vectors", name, None),
            _ => None,
        }
    }

    /// What a user's table says, before any rule, of a kernel thread.
    pub(super) fn user_thread(&self, comm: &str) -> Option<&Meaning> {
        self.user()?.other("threads", comm.split('/').next().unwrap_or(comm), None)
    }

    /// The user's layer, when there is one.
    fn user(&self) -> Option<&Layer> {
        (self.layers.len() > 1).then(|| &*self.layers[0])
    }

    /// Categories with their sub-categories, each once a file.
    pub fn meanings(&self) -> Vec<&Meaning> {
        self.layers.iter().flat_map(|l| l.meanings()).collect()
    }

    fn judge<'a>(&'a self, stack: &[&'a str], asleep: Option<bool>) -> Option<StackClass<'a>> {
        let stack: Vec<&'a str> = stack.iter().map(|s| plain(s)).collect();
        let asleep = asleep.unwrap_or_else(|| self.sleeps(&stack));
        let mut passed = false;
        let verdict = |m: &'a Meaning, function: &'a str, via_neighbour: bool| StackClass {
            category: m.category,
            sub: &m.sub,
            function,
            via_neighbour,
        };
        for (i, name) in stack.iter().enumerate() {
            if let Some(m) = self.function(name, &stack[i + 1..], asleep) {
                return Some(verdict(m, name, passed));
            }
            passed |= !self.is_transparent(name) && syscall_of(name).is_none();
        }
        let weak =
            |name: &&'a str| self.layers.iter().find_map(|l| l.weak(name, asleep)).map(|m| verdict(m, name, passed));
        let call = |name: &&'a str| self.syscall(syscall_of(name)?, None).map(|m| verdict(m, name, passed));
        stack.iter().find_map(weak).or_else(|| stack.iter().find_map(call))
    }

    fn function(&self, name: &str, callers: &[&str], asleep: bool) -> Option<&Meaning> {
        self.layers.iter().find_map(|l| l.function(name, callers, asleep))
    }

    fn is_transparent(&self, name: &str) -> bool {
        self.layers.iter().any(|l| l.is_transparent(name))
    }

    /// Whether the innermost frames are the scheduler's, and it was not preemption that led there.
    fn sleeps(&self, stack: &[&str]) -> bool {
        let wrappers = || stack.iter().take_while(|name| self.is_transparent(name));
        let preempted =
            |n: &&&str| n.starts_with("preempt_schedule") || n.ends_with("cond_resched") || n.starts_with("irqentry_");
        wrappers().any(|n| matches!(*n, "schedule" | "__schedule") || n.starts_with("io_schedule"))
            && !wrappers().take(4).any(|n| preempted(&n))
    }
}

/// A symbol without offset, module, and what the compiler appended.
fn plain(symbol: &str) -> &str {
    let symbol = symbol.trim();
    let end = symbol.find(['+', ' ', '\t']).unwrap_or(symbol.len());
    let name = &symbol[..end];
    match name.find('.') {
        Some(dot) if dot > 0 => &name[..dot],
        _ => name,
    }
}

/// The system call whose entry function this is.
fn syscall_of(function: &str) -> Option<&str> {
    ["__x64_sys_", "__arm64_sys_", "__ia32_sys_", "__ia32_compat_sys_", "__do_sys_", "__se_sys_", "__do_compat_sys_"]
        .iter()
        .find_map(|prefix| function.strip_prefix(prefix))
}
