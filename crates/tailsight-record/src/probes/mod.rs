//! The probes: one folder each, its C (`<folder>.bpf.c`) beside its Rust (`mod.rs`, with a `PROBE`). A folder that is here is
//! built, loaded and listed: `build.rs` writes the modules, [`PROBES`] and the C's includes from the folders.
//!
//! A [`Probe`] lists its [`Hook`]s; a hook lists the BPF programs that can serve it, best first. The loader takes the
//! first program whose tracepoint this kernel has, so that an older kernel's twin is one more entry in the list. A probe whose
//! programs the user asks for, and which attaches them itself, has an [`OnDemand`].

use self::nic_tx::TxStamps;
use crate::error::Error;
use crate::object::Opened;

// Every folder beside this file as a module, and `PROBES`: build.rs writes both.
include!(concat!(env!("OUT_DIR"), "/probes.rs"));

/// A folder of hooks that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The folder's name.
    pub name: &'static str,
    /// Its hooks.
    pub hooks: &'static [Hook],
    /// Its programs that are no hook's.
    pub on_demand: Option<OnDemand>,
}

/// Programs that are loaded when they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand {
    /// Whether it is this program's, and it was asked for.
    pub loads: fn(&Extras, &str) -> bool,
    /// Sets what it needs before the object is loaded.
    pub prepare: fn(&mut Opened, &Extras) -> Result<(), Error>,
}

/// What is recorded besides the events of the hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Pieces of 24 bytes of each segment that are kept.
    pub payload_pieces: u32,
    /// Whose transmit stamps.
    pub tx_stamps: TxStamps,
    /// Whether there are samples; outside of messages that are slower than usual, of so many ticks of the clock one takes one.
    pub samples: Option<u16>,
    /// Whether functions of files are traced.
    pub functions: bool,
    /// Whether breakpoints tell which tasks run.
    pub task_breakpoints: bool,
    /// Whether breakpoints read the plain text of TLS.
    pub plain_text: bool,
    /// Functions of the kernel that are traced, each with its number.
    pub kernel_functions: Vec<(usize, String)>,
    /// Whether the buffers hold the last events and messages are watched.
    pub watches: bool,
}

/// One place in the kernel where Tailsight records events.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    /// Its name: the tracepoint's.
    pub name: &'static str,
    /// Whether a recording can do without.
    pub need: Need,
    /// What the results lack without it.
    pub tells: &'static str,
    /// The programs that can serve it, best first.
    pub programs: &'static [Program],
}

/// How much a recording needs a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No messages without it.
    Required,
    /// On when the kernel has it.
    Default,
    /// Off unless asked for: it is on a fast path, and other hooks give the same information.
    Optional,
}

/// A BPF program and what the kernel must have for it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The program's name in the object.
    pub name: &'static str,
    /// How it attaches.
    pub attach: Attach,
    /// Programs that are attached together with it where possible: they see the cases that it does not.
    pub with: &'static [Program],
}

impl Program {
    /// With others beside it.
    pub const fn and(self, with: &'static [Program]) -> Program {
        Program { with, ..self }
    }
}

/// How a program attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attach {
    /// To a tracepoint whose arguments BTF describes (`tp_btf`).
    TpBtf(&'static str),
    /// To the start of a kernel function. Needs a kernel with a function tracer that lets programs use it.
    Fentry(&'static str),
    /// To the return of a kernel function, likewise.
    Fexit(&'static str),
    /// To the root of cgroup v2: asked whether a datagram may be sent, on a socket that is not connected.
    CgroupSend,
}

/// A `tp_btf` program with the tracepoint's own name.
pub const fn tp_btf(name: &'static str) -> Program {
    Program { name, attach: Attach::TpBtf(name), with: &[] }
}

/// A program at the start of a kernel function.
pub const fn fentry(name: &'static str, function: &'static str) -> Program {
    Program { name, attach: Attach::Fentry(function), with: &[] }
}

/// A program at the return of a kernel function.
pub const fn fexit(name: &'static str, function: &'static str) -> Program {
    Program { name, attach: Attach::Fexit(function), with: &[] }
}

/// A program that the kernel asks whether a datagram may be sent.
pub const fn cgroup_send(name: &'static str) -> Program {
    Program { name, attach: Attach::CgroupSend, with: &[] }
}

/// A hook: how much it is needed, its name, what the results lack without it, and the programs that can serve it, best
/// first. Without these it is the `tp_btf` program of the hook's own name.
macro_rules! hook {
    ($need:ident, $name:literal, $tells:expr) => {
        hook!($need, $name, $tells, [$crate::probes::tp_btf($name)])
    };
    ($need:ident, $name:literal, $tells:expr, [$($program:expr),+]) => {
        $crate::probes::Hook { name: $name, need: $crate::probes::Need::$need, tells: $tells, programs: &[$($program),+] }
    };
}
pub(crate) use hook;

/// Every program that can serve a hook, and those that are attached with them.
pub fn programs() -> impl Iterator<Item = Program> {
    hooks().flat_map(|(_, h)| h.programs.iter().flat_map(|p| std::iter::once(p).chain(p.with))).copied()
}

/// Every hook with its probe.
pub fn hooks() -> impl Iterator<Item = (&'static Probe, &'static Hook)> {
    PROBES.iter().flat_map(|p| p.hooks.iter().map(move |h| (p, h)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_names_are_unique_and_documented_beside_their_c() {
        let mut names = std::collections::HashSet::new();
        for (_, hook) in hooks() {
            assert!(names.insert(hook.name), "{} is listed twice", hook.name);
            assert!(!hook.tells.is_empty() && !hook.programs.is_empty());
        }
        // Each is the probe of the folder that it was found in, and of one only.
        let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/probes")).unwrap().flatten();
        let folders =
            folders.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap());
        let listed: Vec<String> = PROBES.iter().map(|probe| probe.name.to_owned()).collect();
        assert_eq!(listed, folders.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>());
    }

    /// `prev->in_iowait` was read as an ordinary field: libbpf moved the byte to where the running kernel has it, the bit
    /// inside stayed where our own declaration has it, and sleeps that a wake-up from another core had ended before were
    /// taken for waits for a disk.
    #[test]
    fn bit_fields_of_the_kernel_are_read_with_their_position_in_it() {
        let bpf = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let kernel = std::fs::read_to_string(format!("{bpf}/bpf/kernel.h")).unwrap();
        let bit_field = |line: &str| {
            let (declared, width) = line.split(';').next()?.split_once(" : ")?;
            width.trim().parse::<u8>().ok()?;
            declared.split_whitespace().last().map(str::to_owned)
        };
        let fields: Vec<String> = kernel.lines().filter_map(bit_field).collect();
        assert!(fields.contains(&"in_iowait".to_owned()), "{fields:?}");
        let mut sources = vec![format!("{bpf}/bpf/common.h")];
        sources.extend(std::fs::read_dir(format!("{bpf}/probes")).unwrap().flatten().flat_map(|probe| {
            let files = std::fs::read_dir(probe.path()).into_iter().flatten().flatten();
            files.map(|f| f.path().display().to_string()).filter(|f| f.ends_with(".c")).collect::<Vec<_>>()
        }));
        let mut read = 0;
        for source in sources {
            let text = std::fs::read_to_string(&source).unwrap();
            for line in text.lines().filter(|l| !l.trim_start().starts_with(['*', '/'])) {
                for field in &fields {
                    let plain = [format!("->{field}"), format!(".{field}")].iter().any(|access| line.contains(access));
                    assert!(!plain, "{source}: {line}");
                    read += usize::from(line.contains("BPF_CORE_READ_BITFIELD(") && line.contains(field.as_str()));
                }
            }
        }
        assert!(read > 0, "nobody reads {fields:?}");
    }
}
