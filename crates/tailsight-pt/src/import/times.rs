//! Time on a core by function, from events in order of time.

use rustc_hash::FxHashMap;

use crate::stacks::{Event, What};

/// Time on a core by function.
#[derive(Default)]
pub(super) struct Times {
    threads: FxHashMap<(u32, u32), ThreadTime>,
    /// By core: the thread on it, and since when it runs.
    cores: FxHashMap<u32, (u32, Option<u64>)>,
    /// By number: how often it was entered, its time with what it called, and its own, ns.
    pub(super) functions: Vec<(u64, u64, u64)>,
}

#[derive(Default)]
struct ThreadTime {
    /// Time on a core so far, ns.
    on_core: u64,
    /// Open functions: number, time on a core when it began, and the time of its callees.
    open: Vec<(u32, u64, u64)>,
}

impl Times {
    pub(super) fn take(&mut self, event: &Event) {
        let key = |tid: u32| (tid, if tid == 0 { event.cpu } else { 0 });
        let (tid, since) = *self.cores.entry(event.cpu).or_insert((event.tid, None));
        // The thread that used the core until now.
        if let Some(since) = since {
            self.threads.entry(key(tid)).or_default().on_core += event.ns.saturating_sub(since);
        }
        let runs = match event.what {
            What::Gap(_) | What::Off => None,
            What::Switch { .. } => since.map(|_| event.ns),
            _ => Some(event.ns),
        };
        self.cores.insert(event.cpu, (event.tid, runs));
        let thread = self.threads.entry(key(event.tid)).or_default();
        match event.what {
            What::Enter(f, _) => thread.open.push((f, thread.on_core, 0)),
            What::Leave(f) => {
                if let Some((opened, begin, callees)) = thread.open.pop() {
                    debug_assert_eq!(opened, f, "spans nest");
                    let total = thread.on_core - begin;
                    if let Some(caller) = thread.open.last_mut() {
                        caller.2 += total;
                    }
                    if self.functions.len() <= opened as usize {
                        self.functions.resize(opened as usize + 1, (0, 0, 0));
                    }
                    let again = thread.open.iter().any(|(f, ..)| *f == opened);
                    let function = &mut self.functions[opened as usize];
                    function.0 += 1;
                    // A recursive call counts once.
                    function.1 += if again { 0 } else { total };
                    function.2 += total.saturating_sub(callees);
                }
            }
            _ => {}
        }
    }
}
