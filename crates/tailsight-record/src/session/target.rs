//! Whom a recording follows: the processes and ports of the target, as they come and go.

use std::sync::atomic::{AtomicU64, Ordering};

use tailsight_trace::tables::TaskRow;

use super::options::Options;
use crate::command::{self, Command};
use crate::error::Error;
use crate::loader::Loaded;
use crate::target::{self, Selector};

/// The target, as far as it is known.
pub(super) struct Target {
    /// The application's name; empty where nothing says it yet.
    pub(super) app: String,
    pub(super) pids: Vec<u32>,
    pub(super) ports: Vec<u16>,
    /// The command, when the recording started it.
    pub(super) child: Option<Command>,
}

impl Target {
    /// Finds the processes that are there and their ports. A command is not started yet.
    pub(super) fn resolve(selector: &Selector) -> Result<Target, Error> {
        if let Selector::Command(words) = selector {
            command::check(words)?;
        }
        let (mut app, pids) = target::processes(selector)?;
        let ports = match selector {
            Selector::Port(port) => vec![*port],
            _ => target::server_ports(&pids),
        };
        if let Selector::Command(words) = selector {
            app = words.first().map(|w| w.rsplit('/').next().unwrap_or(w).to_owned()).unwrap_or_default();
        }
        Ok(Target { app, pids, ports, child: None })
    }

    /// Starts the command, if the target is one.
    pub(super) fn start(&mut self, selector: &Selector) -> Result<(), Error> {
        if let Selector::Command(words) = selector {
            let child = Command::start(words)?;
            self.pids = vec![child.pid()];
            self.child = Some(child);
        }
        Ok(())
    }

    /// Tells the probes.
    pub(super) fn tell(&self, loaded: &mut Loaded<'_>) {
        let bss = loaded.skel.maps.bss_data.as_deref_mut().expect("the object has variables");
        bss.follow_children = 1;
        for nr in tailsight_kernel::syscalls::told_by_name() {
            bss.plain_sleeps[(nr >> 6) as usize & 15] |= 1 << (nr & 63);
        }
        for &pid in &self.pids {
            // The probes set bits of children at the same time, atomically; so must we.
            let word = &raw mut bss.target_tgids[(pid >> 6) as usize & 0xffff];
            // SAFETY: an aligned word of the shared mapping.
            unsafe { AtomicU64::from_ptr(word) }.fetch_or(1 << (pid & 63), Ordering::Relaxed);
        }
        for &port in &self.ports {
            bss.target_ports[usize::from(port >> 6)] |= 1 << (port & 63);
        }
    }

    /// Adds processes and ports that belong to the target by now. The probes follow children by themselves; this finds
    /// processes that came from elsewhere. `away`: none of those known lives any more.
    pub(super) fn look_again(&mut self, options: &Options, away: bool) {
        let before = self.pids.len();
        self.find_processes(options, away);
        let given = matches!(options.selector, Selector::Port(_));
        if !given && (self.ports.is_empty() || self.child.is_some() || self.pids.len() > before) {
            self.ports.extend(target::server_ports(&self.pids));
            self.ports.sort_unstable();
            self.ports.dedup();
        }
    }

    fn find_processes(&mut self, options: &Options, away: bool) {
        let selector = match (&self.child, &options.selector) {
            (Some(child), _) => Selector::Pid(child.pid()),
            (None, s @ (Selector::Comm(_) | Selector::Cgroup(_))) => s.clone(),
            // Reads every process' descriptors, so only when it must.
            (None, s @ Selector::Port(_)) if away => s.clone(),
            _ => return,
        };
        if let Ok((_, now)) = target::processes(&selector) {
            for pid in now {
                if !self.pids.contains(&pid) {
                    self.pids.push(pid);
                }
            }
        }
    }

    /// Every process that was followed at any time: those we set and the children that the probes followed.
    pub(super) fn followed(&self, loaded: &Loaded<'_>, born: &[TaskRow]) -> Vec<u32> {
        let bss = loaded.skel.maps.bss_data.as_deref().expect("the object has variables");
        let is_set = |tgid: &u32| bss.target_tgids[(tgid >> 6) as usize & 0xffff] >> (tgid & 63) & 1 == 1;
        let mut all: Vec<u32> = self.pids.clone();
        all.extend(born.iter().map(|t| t.tgid).filter(is_set));
        all.sort_unstable();
        all.dedup();
        all
    }
}
