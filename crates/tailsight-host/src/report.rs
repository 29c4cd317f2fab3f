//! The whole report: everything `tailsight doctor` says about a host, except the hooks, which the recorder checks.
//!
//! In: a [`Root`] and optionally the process under study. Out: [`HostReport`], serialisable with stable snake_case
//! names, and its table for a person. A part that could not be read is `unknown` with the reason.

use crate::clock::Clocks;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::nic::{self, Nic};
use crate::pmu::Pmus;
use crate::rights::Attempt;
use crate::rights::Rights;
use crate::settings::{self, Context, Setting, Target};
use crate::{Fact, Root, fentry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the report's JSON form. Fields are added without a new number, never renamed or removed.
pub const SCHEMA: u32 = 1;

/// Facts about a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What forbids recording on this host, each with what to do; empty if nothing was found.
    pub blockers: Vec<String>,
    /// CPUs, NUMA nodes, virtual or not.
    pub machine: Machine,
    /// The running kernel.
    pub kernel: Kernel,
    /// What this process may do.
    pub rights: Rights,
    /// `bpf(BPF_PROG_LOAD)` of an empty program at the begin of a kernel function.
    #[serde(default = "untried")]
    pub fentry: Fact<Attempt>,
    /// Clocksource and synchronisation.
    pub clocks: Clocks,
    /// Performance monitoring units.
    pub pmus: Pmus,
    /// Network interfaces of this network namespace.
    pub nics: Vec<Nic>,
    /// The process under study, if one was given.
    pub target: Option<Target>,
    /// The settings that can hurt the tail.
    pub settings: Vec<Setting>,
}

/// Reports of older versions do not say.
fn untried() -> Fact<Attempt> {
    Fact::unknown("not tried")
}

impl HostReport {
    /// Reads everything. On the live host it takes about a quarter of a second, in which stolen time is watched.
    pub fn collect(root: &Root, pid: Option<u32>) -> Self {
        let machine = Machine::collect(root);
        let kernel = Kernel::collect(root);
        let rights = Rights::collect(root, &kernel);
        let nics = nic::collect(root);
        let target = pid.map(|pid| Target::read(root, pid));
        let settings = settings::collect(&Context {
            root,
            machine: &machine,
            kernel: &kernel,
            nics: &nics,
            target: target.as_ref(),
        });
        HostReport {
            schema: SCHEMA,
            blockers: blockers(&kernel, &rights),
            fentry: fentry::attempt(root),
            clocks: Clocks::collect(root),
            pmus: Pmus::collect(root),
            machine,
            kernel,
            rights,
            nics,
            target,
            settings,
        }
    }

    /// The report as aligned text at most `width` columns wide (commands are never broken, so that they can be
    /// copied), with ANSI colours if `color`. The hooks are not in it: the
    /// recorder knows them.
    pub fn table(&self, color: bool, width: usize) -> String {
        crate::table::render(self, color, width)
    }
}

/// What forbids recording, for `doctor` and for the message of `record`: each a sentence with what to do.
///
/// Missing hooks are the recorder's business, and with them how old a kernel may be; this is about the kernel as a whole and about
/// rights.
pub fn blockers(kernel: &Kernel, rights: &Rights) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(reason) = kernel.btf_bytes.reason() {
        let built = match kernel.option("DEBUG_INFO_BTF") {
            Some(false) => "the kernel is built without CONFIG_DEBUG_INFO_BTF: use a distribution's own kernel".into(),
            _ => format!("no type information (BTF): {reason}"),
        };
        limits.push(built);
    }
    // The first refusal explains the following ones.
    let attempts = [
        ("bpf() may not create maps", &rights.bpf_map),
        ("bpf() may not load tracing programs", &rights.bpf_program),
        ("BPF programs may not read the kernel", &rights.bpf_kernel_read),
    ];
    let refused = attempts.iter().find_map(|(what, a)| a.known().filter(|a| !a.allowed).map(|a| (what, a)));
    if let Some((what, a)) = refused {
        let errno = a.errno.as_deref().unwrap_or("refused");
        limits.push(format!("{what} ({errno}): {}", a.meaning));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{PID, bad};

    #[test]
    fn the_table_keeps_its_width_and_colour_only_adds_codes() {
        let report = HostReport::collect(&bad().root(), Some(PID));
        for width in [60, 80, 110] {
            let table = report.table(false, width);
            assert!(!table.contains('\x1b'));
            for line in table.lines().filter(|l| !l.starts_with("      change") && !l.starts_with("      undo")) {
                let command = line.starts_with("              ");
                assert!(command || line.chars().count() <= width, "{width}: {line}");
            }
        }
        let mut plain = report.table(true, 110);
        for code in ["0", "1", "2", "31", "32", "33", "36"] {
            plain = plain.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(plain, report.table(false, 110));
        for text in
            ["Kernel\n", "Rights\n", "Clocks\n", "PMUs\n", "Network interfaces\n", "20 harmful", "✘ Swap  1 area"]
        {
            assert!(plain.contains(text), "{text:?} is not in\n{plain}");
        }
    }

    /// Debian 12's own kernel, where fentry programs do what the tracepoints of 6.3 do, was said to be too old.
    #[test]
    fn a_kernel_s_version_alone_forbids_nothing() {
        let mut report = HostReport::collect(&bad().root(), None);
        report.kernel.release = Fact::Known("6.1.0-37-amd64".into());
        report.kernel.version = Fact::Known((6, 1));
        report.kernel.btf_bytes = Fact::Known(5 << 20);
        assert_eq!(blockers(&report.kernel, &report.rights), [""; 0]);
        let table = report.table(false, 200);
        let release = table.lines().find(|line| line.contains("release")).unwrap();
        assert!(release.contains("before 6.3 a recording needs fentry") && !release.contains('✘'), "{release}");
    }

    /// It judged by the kernel's build options, and the recorder by a program that it tried.
    #[test]
    fn fentry_is_what_was_tried() {
        let mut report = HostReport::collect(&bad().root(), None);
        let options = ["FUNCTION_TRACER", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS"].map(|o| (o.to_owned(), "y".to_owned()));
        report.kernel.options = Fact::Known(options.into());
        let mut says = |fentry: Fact<Attempt>| {
            report.fentry = fentry;
            report.table(false, 200).lines().find(|line| line.contains(" fentry ")).unwrap().trim().to_owned()
        };
        let tried = |allowed: bool, meaning: &str| {
            Fact::Known(Attempt { allowed, errno: (!allowed).then(|| "EPERM".into()), meaning: meaning.into() })
        };
        assert!(says(tried(true, "allowed")).starts_with('✔'));
        let refused = says(tried(false, "the kernel refuses fentry programs: Operation not permitted"));
        assert!(
            refused.starts_with('✘') && refused.contains("Operation not permitted; the list of hooks"),
            "{refused}"
        );
        let unknown = says(Fact::unknown("bpf() was not tried"));
        assert!(
            unknown.starts_with('?') && unknown.contains("built for it") && unknown.contains("not tried"),
            "{unknown}"
        );
        report.kernel.options = Fact::Known([("FUNCTION_TRACER".to_owned(), "n".to_owned())].into());
        report.fentry = tried(true, "allowed");
        let table = report.table(false, 200);
        assert!(
            table.contains("no fentry: missing CONFIG_FUNCTION_TRACER") && !table.contains("are enough"),
            "{table}"
        );
    }

    #[test]
    fn json_is_stable_and_comes_back_whole() {
        let report = HostReport::collect(&bad().root(), Some(PID));
        let json = serde_json::to_value(&report).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
            "schema", "blockers", "machine", "kernel", "rights", "fentry", "clocks", "pmus", "nics", "target",
            "settings",
        ];
        expected.sort_unstable();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!(json["schema"], 1);
        let setting = &json["settings"][0];
        assert_eq!(setting["verdict"], "hurts");
        assert_eq!(setting["id"], "target_pinning");
        assert_eq!(serde_json::from_value::<HostReport>(json).unwrap(), report);
    }
}
