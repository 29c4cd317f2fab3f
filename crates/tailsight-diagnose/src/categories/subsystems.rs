//! Kernel functions to categories by the subsystem that they belong to: patterns over their names (NSight §5.2 categorises 1,350
//! functions by hand).
//!
//! In: `data/subsystems.txt`, which documents its words, and a function's name. Out: its [`Meaning`].

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::meaning::Meaning;
use crate::glob;

/// The kernel's subsystems in their order: the first that names a function has it.
#[derive(Debug, Default)]
pub(super) struct Subsystems {
    all: Vec<Subsystem>,
    /// Names without wildcards, by index: they go before any wildcard.
    exact: FxHashMap<&'static str, usize>,
}

#[derive(Debug)]
struct Subsystem {
    meaning: Meaning,
    wild: Vec<&'static str>,
    /// What its wildcards leave out.
    without: Vec<&'static str>,
}

/// The built-in ones.
pub(super) static SUBSYSTEMS: LazyLock<Subsystems> = LazyLock::new(|| {
    Subsystems::parse(include_str!("../../data/subsystems.txt"))
        .expect("the built-in subsystems are checked by this crate's tests")
});

impl Subsystems {
    /// # Errors
    /// What is wrong, with the number of the line.
    fn parse(text: &'static str) -> Result<Subsystems, String> {
        let mut out = Subsystems::default();
        let mut other_kernels = vec![];
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            let wrong = |why: &str| format!("line {number}: {why}");
            if let Some(head) = line.strip_prefix('[') {
                let (category, sub) =
                    head.trim_end_matches(']').split_once(' ').ok_or_else(|| wrong("[category sub] is needed"))?;
                let category = category.parse().map_err(|why: String| wrong(&why))?;
                let meaning = Meaning { category, sub: sub.trim().to_owned() };
                out.all.push(Subsystem { meaning, wild: vec![], without: vec![] });
                continue;
            }
            for word in line.split_whitespace() {
                let at = out.all.len();
                let last = out.all.last_mut().ok_or_else(|| wrong("words before the first [category sub]"))?;
                if let Some(without) = word.strip_prefix('-') {
                    last.without.push(without);
                } else if let Some(name) = of_other_kernels(word) {
                    other_kernels.push((name, at - 1));
                } else if word.contains(['*', '?']) {
                    last.wild.push(word);
                } else {
                    out.exact.entry(word).or_insert(at - 1);
                }
            }
        }
        for (name, at) in other_kernels {
            out.exact.entry(name).or_insert(at);
        }
        Ok(out)
    }

    /// What a function means.
    pub fn of(&self, name: &str) -> Option<&Meaning> {
        let at = self.exact.get(name).copied().or_else(|| self.all.iter().position(|of| of.matches(name)));
        at.map(|at| &self.all[at].meaning)
    }

    /// Categories with their sub-categories.
    pub fn meanings(&self) -> impl Iterator<Item = &Meaning> {
        self.all.iter().map(|of| &of.meaning)
    }
}

impl Subsystem {
    /// Whether a wildcard names the function. Leading underscores do not count.
    fn matches(&self, name: &str) -> bool {
        let bare = name.trim_start_matches('_');
        let any = |of: &[&str]| of.iter().any(|word| glob::matches(word, name) || glob::matches(word, bare));
        any(&self.wild) && !any(&self.without) && !is_unmet(name)
    }
}

/// A name that only other kernels or builds have: `~name`, `name<6.15`, `name>=6.15`.
fn of_other_kernels(word: &'static str) -> Option<&'static str> {
    let end = word.find(['<', '>']);
    word.strip_prefix('~').or_else(|| end.map(|end| &word[..end]))
}

/// What no message meets: set-up, /proc, netlink and registration code, and what is generated beside a function of another name.
/// No wildcard takes these. Beginnings of names:
const UNMET_BEGINS: &str = "
__pfx_ __traceiter_ trace_event_raw trace_raw_output perf_trace_ __bpf_trace_ __probestub_ __ksym __SCK__ __SCT__
bpf_dispatcher event_class print_fmt __export __UNIQUE __warned __compat_sys compat_ set_feature e820 early_ __early
__x64_sys_ __x64_compat_sys_ __ia32_sys_ __ia32_compat_sys_ __do_sys_ __do_compat_sys_ __se_sys_ __se_compat_sys_";
/// Parts of names, between underscores.
const UNMET_PARTS: &str = "
init show store register unregister seq_start seq_stop seq_next seq_show seq_open sysctl debugfs sysfs procfs nlattr
dumpit netlink genl fill_info get_size ioctl setsockopt getsockopt module driver probe_pci fill_super mount setup
selftest kunit func_proto is_valid_access convert_ctx_access mem_usage show_fdinfo diag ethtool get_drvinfo
get_strings get_sset_count link_ksettings ringparam channels coalesce newlink dellink changelink policy_init stats64
get_stats";
/// Ends of names.
const UNMET_ENDS: &str = "_exit_net _fini_net";

fn is_unmet(name: &str) -> bool {
    let is_part = |part: &str| {
        name.match_indices(part).any(|(at, _)| {
            let (before, after) = (&name[..at], &name[at + part.len()..]);
            (before.is_empty() || before.ends_with('_')) && (after.is_empty() || after.starts_with('_'))
        })
    };
    UNMET_BEGINS.split_whitespace().any(|begin| name.starts_with(begin))
        || UNMET_PARTS.split_whitespace().any(is_part)
        || UNMET_ENDS.split_whitespace().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Category;

    fn said(name: &str) -> String {
        SUBSYSTEMS.of(name).map_or("none".into(), |m| format!("{}/{}", m.category, m.sub))
    }

    #[test]
    fn names_go_before_wildcards_and_the_first_subsystem_has_a_function() {
        let text =
            "# about\n[lock-wait one]\n~inlined gone<6.10 new>=6.2 wake* -waking\n[paging two] # more\n wake_me *\n";
        let of = Subsystems::parse(text).expect("it is well formed");
        for (name, sub) in [
            ("inlined", Some("one")),
            ("gone", Some("one")),
            ("new", Some("one")),
            ("wake_up", Some("one")),
            ("__wake_up", Some("one")),
            ("waking", Some("two")),
            ("wake_me", Some("two")),
            ("anything", Some("two")),
            // What no message meets is in no wildcard.
            ("proto_register", None),
            ("__x64_sys_read", None),
        ] {
            assert_eq!(of.of(name).map(|m| m.sub.as_str()), sub, "{name}");
        }
        for (text, why) in [("x", "line 1: words before"), ("[nobody x]", "not one of"), ("\n[paging]", "line 2")] {
            let said = Subsystems::parse(text).expect_err(text);
            assert!(said.contains(why), "{said}");
        }
    }

    /// Functions of Linux 6.18, and of kernels whose functions have other names.
    #[test]
    fn functions_belong_to_their_subsystems() {
        for (name, expected) in [
            ("ttwu_queue_wakelist", "wakeup-delay/wake-up"),
            ("newidle_balance", "wakeup-delay/load-balance"),
            ("chacha_permute", "app-processing/crypto"),
            ("io_cqring_wait", "app-processing/event-wait"),
            ("memcpy", "none"),
            ("not_a_function", "none"),
        ] {
            assert_eq!(said(name), expected, "{name}");
        }
        assert!(SUBSYSTEMS.meanings().all(|m| m.category != Category::Unexplained && !m.sub.is_empty()));
        assert!(SUBSYSTEMS.all.len() > 100 && SUBSYSTEMS.exact.len() > 1_350, "NSight has 1,350 functions");
    }
}
