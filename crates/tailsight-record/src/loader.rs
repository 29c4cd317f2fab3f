//! Chooses a program for each hook, loads and attaches them.
//!
//! In: what the user asked for and what the running kernel has. Out: a [`Loaded`] set of probes with their buffers and
//! filters mapped, and a [`HookState`] for each hook that says why it is off.

use std::os::fd::AsRawFd;

use libbpf_rs::Link;

use crate::attachable::{self, Attachable};
use crate::buffer::CHUNK_SLOTS;
use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::types::rodata;
use crate::object::{Opened, Probes};
use crate::probes::{self, Attach, Extras, Need};
use crate::watch;

/// Which hooks the user wants.
#[derive(Clone, Debug, Default)]
pub struct HookChoice {
    /// Optional hooks to add (`all`: every one).
    pub add: Vec<String>,
    /// Hooks to leave out.
    pub remove: Vec<String>,
    /// Attach an empty program to each, to measure what hooks cost by themselves; nothing is recorded.
    pub empty: bool,
}

/// What became of a hook.
#[derive(Clone, Debug)]
pub struct HookState {
    /// The folder.
    pub probe: &'static str,
    /// The hook.
    pub name: &'static str,
    /// Whether a recording can do without.
    pub need: Need,
    /// Whether this kernel has a place where one of its programs can attach, on or off.
    pub there: bool,
    /// Whether this kernel has no place for any of its programs; else, where none can attach, it does not let them.
    pub absent: bool,
    /// The program that serves it, when it is on.
    pub program: Option<&'static str>,
    /// Programs to try when that one cannot be attached, best first.
    pub instead: Vec<&'static str>,
    /// Programs that are attached with one of those, where this kernel has their place.
    pub with: Vec<&'static str>,
    /// Why it is off.
    pub reason: Option<String>,
    /// What the results lack without it.
    pub tells: &'static str,
}

/// Decides for every hook, given what programs can attach to (why not, else). Pure.
///
/// # Errors
/// [`Error::NoSuchHook`] for a name that is no hook's; [`Error::HookNeeded`] for one that cannot be left out.
pub fn choose(choice: &HookChoice, can_attach: impl Fn(Attach) -> Result<(), String>) -> Result<Vec<HookState>, Error> {
    for name in &choice.add {
        if name != "all" && !probes::hooks().any(|(_, h)| h.name == name) {
            return Err(Error::NoSuchHook { name: name.clone() });
        }
    }
    for name in &choice.remove {
        match probes::hooks().find(|(_, h)| h.name == name) {
            None => return Err(Error::NoSuchHook { name: name.clone() }),
            Some((_, h)) if h.need == Need::Required => return Err(Error::HookNeeded { name: name.clone() }),
            Some(_) => {}
        }
    }
    let wanted = |list: &[String], name: &str| list.iter().any(|n| n == name || n == "all");
    Ok(probes::hooks()
        .map(|(probe, hook)| {
            let tried: Vec<_> = hook.programs.iter().map(|p| (p.name, can_attach(p.attach))).collect();
            let mut programs = tried.iter().filter(|(_, can)| can.is_ok()).map(|(name, _)| *name);
            let program = programs.next();
            let reason = match (hook.need, program) {
                (_, None) => {
                    let mut why: Vec<&str> =
                        tried.iter().filter_map(|(_, can)| can.as_ref().err()).map(|w| &**w).collect();
                    why.dedup();
                    Some(why.join("; "))
                }
                (need, Some(_)) if need != Need::Required && choice.remove.iter().any(|n| n == hook.name) => {
                    Some("left out by --without-hook".to_owned())
                }
                (Need::Optional, Some(_)) if !wanted(&choice.add, hook.name) => {
                    Some(format!("off by default (--with-hook {} turns it on): {}", hook.name, hook.tells))
                }
                _ => None,
            };
            HookState {
                probe: probe.name,
                name: hook.name,
                need: hook.need,
                there: program.is_some(),
                absent: tried.iter().all(|(_, can)| can.as_ref().is_err_and(|why| attachable::is_absence(why))),
                program: program.filter(|_| reason.is_none()),
                with: hook
                    .programs
                    .iter()
                    .flat_map(|p| p.with)
                    .filter(|p| can_attach(p.attach).is_ok())
                    .map(|p| p.name)
                    .collect(),
                instead: if reason.is_none() { programs.collect() } else { vec![] },
                reason,
                tells: hook.tells,
            }
        })
        .collect())
}

/// The hooks of the running kernel, as `choose` sees them.
///
/// # Errors
/// [`Error::NoTypes`] when the kernel has no BTF; [`Error::NoSuchHook`].
pub fn survey(choice: &HookChoice) -> Result<Vec<HookState>, Error> {
    let kernel = Attachable::survey()?;
    choose(choice, |attach| kernel.check(attach))
}

impl Loaded {
    /// Loads the chosen programs with room for `slots` events (a power of two) on each of `cpus` cores; of
    /// `choice` only `empty` is looked at; the programs of `extras` are attached by themselves. Nothing is attached before
    /// [`Loaded::attach`].
    ///
    /// # Errors
    /// [`Error::Buffers`] when the kernel has no memory for them; [`Error::Bpf`].
    pub fn load(
        choice: &HookChoice,
        hooks: &[HookState],
        cpus: u32,
        slots: u64,
        extras: Extras,
    ) -> Result<Loaded, Error> {
        quiet_libbpf();
        let mut open = Opened::new().map_err(|e| Error::bpf("opening the probes", e))?;
        choose_programs(&mut open, hooks, &extras);
        let bytes = slots * u64::from(cpus) * size_of::<tailsight_trace::Event>() as u64;
        let chunks = u32::try_from(slots / CHUNK_SLOTS * u64::from(cpus))
            .map_err(|_| Error::Buffers { bytes, source: "more than 2^32 chunks".into() })?;
        open.map("chunks").set_max_entries(chunks).map_err(|e| Error::bpf("sizing the buffers", e))?;
        if extras.watches {
            watch::size_maps(&mut open, cpus)?;
        }
        for on_demand in probes::PROBES.iter().filter_map(|probe| probe.on_demand) {
            (on_demand.prepare)(&mut open, &extras)?;
        }
        set_constants(open.constants(), choice, slots, &extras);
        let probes = open.load().map_err(|e| match e.kind() {
            libbpf_rs::ErrorKind::OutOfMemory => Error::Buffers { bytes, source: e.into() },
            libbpf_rs::ErrorKind::PermissionDenied => refused(e),
            _ => Error::bpf("loading the probes into the kernel", e),
        })?;
        Ok(Loaded::new(probes, Vec::new()))
    }

    /// Attaches what was loaded. Nothing is recorded before [`Loaded::set_recording`]. Apart from loading, so that nothing else is left to do
    /// once hooks run on the server's way.
    ///
    /// # Errors
    /// [`Error::Bpf`], for a hook without which nothing can be recorded.
    pub fn attach(&mut self, hooks: &mut [HookState]) -> Result<(), Error> {
        let mut links = Vec::new();
        for hook in hooks.iter_mut() {
            attach_first(&self.probes, hook, &mut links)?;
        }
        self.links = links;
        Ok(())
    }
}

/// Which programs are loaded.
fn choose_programs(open: &mut Opened, hooks: &[HookState], extras: &Extras) {
    let asked_for = |name: &str| probes::PROBES.iter().filter_map(|p| p.on_demand).any(|p| (p.loads)(extras, name));
    for mut program in open.object().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let on = ["baseline", "current_task"].contains(&name.as_str())
            || asked_for(&name)
            || hooks.iter().any(|h| served_by(h).any(|p| p == name));
        program.set_autoload(on);
    }
}

fn set_constants(constants: &mut rodata, choice: &HookChoice, slots: u64, extras: &Extras) {
    constants.slots = slots;
    constants.slots_log2 = slots.trailing_zeros();
    constants.payload_pieces = extras.payload_pieces;
    constants.empty_programs = u32::from(choice.empty);
    constants.watches = u32::from(extras.watches);
}

/// Attaches the first program of a hook that the kernel takes, and what belongs to it.
fn attach_first(probes: &Probes, hook: &mut HookState, links: &mut Vec<Link>) -> Result<(), Error> {
    let candidates: Vec<&'static str> = hook.program.take().into_iter().chain(hook.instead.drain(..)).collect();
    let mut refused = Vec::new();
    for name in candidates {
        match attach(probes, name) {
            Ok(link) => {
                links.push(link);
                let beside = beside(name).filter(|with| hook.with.contains(with));
                links.extend(beside.filter_map(|with| attach(probes, with).ok()));
                hook.program = Some(name);
                return Ok(());
            }
            Err(e) if hook.need == Need::Required => return Err(Error::bpf(&format!("attaching {name}"), e)),
            Err(e) => refused.push(format!("attaching {name} failed: {e:#}")),
        }
    }
    if !refused.is_empty() {
        hook.reason = Some(refused.join("; "));
    }
    Ok(())
}

/// Every program that may be attached for a hook that is on.
fn served_by(hook: &HookState) -> impl Iterator<Item = &'static str> + '_ {
    let chosen = hook.program.iter().chain(&hook.instead).copied();
    chosen.flat_map(|p| std::iter::once(p).chain(beside(p).filter(|with| hook.with.contains(with))))
}

/// The programs that are attached with one.
fn beside(name: &'static str) -> impl Iterator<Item = &'static str> {
    probes::programs().filter(move |p| p.name == name).flat_map(|p| p.with).map(|p| p.name)
}

/// Attaches a loaded program to its place.
fn attach(probes: &Probes, name: &str) -> Result<Link, libbpf_rs::Error> {
    let missing = || libbpf_rs::Error::from(std::io::Error::from(std::io::ErrorKind::NotFound));
    let program = probes.object().progs_mut().find(|p| p.name() == name).ok_or_else(missing)?;
    let place = probes::programs().find(|p| p.name == name).map(|p| p.attach);
    match place {
        Some(Attach::CgroupSend) => {
            let root = attachable::cgroup_root().map_err(|e| libbpf_rs::Error::from(std::io::Error::other(e)))?;
            program.attach_cgroup(root.as_raw_fd())
        }
        _ => program.attach(),
    }
}

/// The kernel refused the programs, although it accepted a tracing program before: the missing right is one that the other
/// program types need.
fn refused(error: libbpf_rs::Error) -> Error {
    let root = tailsight_host::Root::host();
    let rights = tailsight_host::rights::Rights::collect(&root, &tailsight_host::kernel::Kernel::collect(&root));
    let lacks = rights.missing.iter().any(|missing| missing.capability == "CAP_NET_ADMIN");
    let why = match lacks {
        true => {
            "the programs that see sends on this kernel belong to control groups and need CAP_NET_ADMIN: run as root, or see \
             docs/privileges.md for the capabilities to give"
        }
        false => "the kernel refuses them",
    };
    Error::NotAllowed { why: why.to_owned(), source: Some(error) }
}

/// libbpf prints to stderr by itself; what matters comes back as an error.
fn quiet_libbpf() {
    if std::env::var_os("TAILSIGHT_LIBBPF_LOG").is_none() {
        libbpf_rs::set_print(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel without these tracepoints, and with everything else.
    fn without(missing: &[&'static str]) -> impl Fn(Attach) -> Result<(), String> {
        move |attach| match attach {
            Attach::TpBtf(name) if missing.contains(&name) => Err("this kernel does not have the tracepoint".into()),
            _ => Ok(()),
        }
    }

    #[test]
    fn the_send_entry_falls_back_to_the_next_program_and_keeps_the_reasons() {
        let hook_where = |can: &dyn Fn(Attach) -> Result<(), String>, name: &str| {
            choose(&HookChoice::default(), can).unwrap().into_iter().find(|h| h.name == name).unwrap()
        };
        let new = hook_where(&|_| Ok(()), "tcp_sendmsg_locked");
        assert_eq!((new.program, new.instead), (Some("tcp_sendmsg_locked"), vec!["fentry_tcp_sendmsg_locked"]));
        let old = hook_where(&without(&["tcp_sendmsg_locked"]), "tcp_sendmsg_locked");
        assert_eq!((old.program, old.instead), (Some("fentry_tcp_sendmsg_locked"), vec![]));
        let no_functions = |attach| match attach {
            Attach::Fentry(_) | Attach::Fexit(_) => Err("no fentry".to_owned()),
            _ => Ok(()),
        };
        assert_eq!(hook_where(&no_functions, "udp_sendmsg").program, Some("cgroup_sendmsg4"));
        assert_eq!(hook_where(&no_functions, "ext4_sync_file_exit").program, Some("ext4_sync_file_exit"));
        let neither = |attach| match attach {
            Attach::CgroupSend => Err("no cgroup v2".to_owned()),
            other => no_functions(other),
        };
        let off = hook_where(&neither, "udpv6_sendmsg");
        assert_eq!((off.program, off.reason.as_deref()), (None, Some("no fentry; no cgroup v2")));
    }

    /// The verifier of the running kernel takes every program, and each has its place: what is off has a reason.
    #[test]
    fn every_hook_that_this_kernel_has_is_loaded_and_attached() {
        let choice = HookChoice { add: vec!["all".into()], ..HookChoice::default() };
        let allowed = tailsight_host::rights::Rights::collect(
            &tailsight_host::Root::host(),
            &tailsight_host::kernel::Kernel::collect(&tailsight_host::Root::host()),
        );
        if allowed.bpf_kernel_read.known().is_none_or(|a| !a.allowed) {
            return tailsight_testing::skip("needs the right to load programs");
        }
        // What watches is in the same programs, behind a constant.
        for watches in [false, true] {
            let mut hooks = survey(&choice).expect("this kernel's hooks");
            let wanted: Vec<&str> = hooks.iter().filter(|h| h.program.is_some()).map(|h| h.name).collect();
            let everything = Extras { samples: Some(2), functions: true, watches, ..Extras::default() };
            let mut loaded = Loaded::load(&choice, &hooks, 1, CHUNK_SLOTS, everything).expect("every program loads");
            loaded.attach(&mut hooks).expect("what is needed attaches");
            for hook in &hooks {
                println!("{}: {}", hook.name, hook.program.or(hook.reason.as_deref()).unwrap_or("?"));
            }
            let off: Vec<_> = hooks.iter().filter(|h| h.program.is_none() && wanted.contains(&h.name)).collect();
            assert!(off.is_empty(), "not attached: {off:?}");
            assert_eq!(loaded.links.len(), wanted.len());
        }
    }

    #[test]
    fn a_missing_tracepoint_turns_its_hook_off_and_says_so() {
        let states = choose(&HookChoice::default(), without(&["sched_waking"])).unwrap();
        let waking = states.iter().find(|h| h.name == "sched_waking").unwrap();
        assert_eq!(waking.program, None);
        assert!(waking.reason.as_deref().unwrap().contains("does not have"));
        let switch = states.iter().find(|h| h.name == "sched_switch").unwrap();
        assert_eq!(switch.program, Some("sched_switch"));
    }

    #[test]
    fn optional_hooks_are_off_until_asked_for() {
        let off = choose(&HookChoice::default(), |_| Ok(())).unwrap();
        let queue = off.iter().find(|h| h.name == "net_dev_queue").unwrap();
        assert!(queue.there && queue.program.is_none());
        let lacks = choose(&HookChoice::default(), without(&["net_dev_queue"])).unwrap();
        assert!(!lacks.iter().find(|h| h.name == "net_dev_queue").unwrap().there);
        let choice =
            HookChoice { add: vec!["net_dev_queue".into()], remove: vec!["sched_waking".into()], empty: false };
        let on = choose(&choice, |_| Ok(())).unwrap();
        assert!(on.iter().find(|h| h.name == "net_dev_queue").unwrap().program.is_some());
        assert!(on.iter().find(|h| h.name == "sched_waking").unwrap().program.is_none());
    }

    #[test]
    fn a_hook_that_is_needed_cannot_be_left_out() {
        let choice = HookChoice { remove: vec!["sock_recv_length".into()], ..HookChoice::default() };
        assert!(matches!(choose(&choice, |_| Ok(())), Err(Error::HookNeeded { .. })));
        let choice = HookChoice { remove: vec!["all".into()], ..HookChoice::default() };
        assert!(matches!(choose(&choice, |_| Ok(())), Err(Error::NoSuchHook { .. })));
    }

    #[test]
    fn an_unknown_hook_name_is_an_error() {
        let choice = HookChoice { add: vec!["no_such_hook".into()], ..HookChoice::default() };
        assert!(matches!(choose(&choice, |_| Ok(())), Err(Error::NoSuchHook { .. })));
    }
}
