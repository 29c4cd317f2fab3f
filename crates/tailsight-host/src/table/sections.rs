//! The sections of the table: which facts have a line, and its words.
//!
//! In: the parts of a [`HostReport`]. Out: rows of the [`Table`].

use super::{Mark, Table, wrap};
use crate::nic::Nic;
use crate::rights::Attempt;
use crate::{Fact, HostReport, Rating};
use std::collections::BTreeMap;
use std::fmt::Write as _;

impl Table {
    pub(super) fn headline(&mut self, r: &HostReport) {
        let mut parts = Vec::new();
        if let Some(cpus) = r.machine.cpus_online.known() {
            parts.push(count(cpus.len(), "CPU"));
        }
        if r.machine.numa_nodes > 1 {
            parts.push(count(r.machine.numa_nodes, "NUMA node"));
        }
        parts.extend(r.machine.cpu_model.known().cloned());
        parts.push(if r.machine.virtual_machine { "virtual machine".into() } else { "bare metal".into() });
        let title = self.paint("1", "This host");
        let _ = writeln!(self.out, "{title}  {}", parts.join(" · "));
        for blocker in &r.blockers {
            self.row(Mark::No, "cannot record", blocker);
        }
        if r.blockers.is_empty() {
            let tried = r.rights.bpf_program.known().is_some();
            let text = "kernel and rights allow it (the list of hooks says what it will see)";
            let (mark, text) = if tried { (Mark::Yes, text) } else { (Mark::Unknown, "bpf() was not tried") };
            self.row(mark, "can record", text);
        }
    }

    pub(super) fn kernel(&mut self, r: &HostReport) {
        use crate::kernel::Lockdown;
        self.section("Kernel");
        let k = &r.kernel;
        let (major, minor) = crate::kernel::HAND_OFF_TRACEPOINTS;
        let old = k.version.known().is_some_and(|v| *v < (major, minor));
        self.fact("release", &k.release, |v| match old {
            false => (Mark::Yes, format!("{v} ({})", k.arch)),
            true => (Mark::Fact, format!("{v} ({}): before {major}.{minor} a recording needs fentry", k.arch)),
        });
        self.fact("type info (BTF)", &k.btf_bytes, |b| {
            #[allow(clippy::cast_precision_loss)] // a file size
            let mib = *b as f64 / f64::from(1 << 20);
            (Mark::Yes, format!("present, {mib:.1} MiB"))
        });
        self.fact("lockdown", &k.lockdown, |l| match l {
            Lockdown::None => (Mark::Yes, "none".into()),
            Lockdown::Integrity => (Mark::Yes, "integrity: reading by BPF stays allowed".into()),
            Lockdown::Confidentiality => (Mark::No, "confidentiality: BPF may not read the kernel".into()),
        });
        let missing = |needed: &[&str]| -> Vec<String> {
            needed.iter().filter(|o| k.option(o) == Some(false)).map(|o| format!("CONFIG_{o}")).collect()
        };
        let required = missing(&["BPF_SYSCALL", "BPF_EVENTS", "DEBUG_INFO_BTF", "PERF_EVENTS"]);
        self.fact("build options", &k.options, |_| match required.as_slice() {
            [] => (Mark::Yes, "all that recording needs".into()),
            lacking => (Mark::No, format!("missing {}", lacking.join(", "))),
        });
        let lacking = missing(&["FUNCTION_TRACER", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS"]);
        let (mark, text) = match (&r.fentry, lacking.as_slice()) {
            (_, [_, ..]) => {
                (Mark::No, format!("no fentry: missing {}; the list of hooks says what is off", lacking.join(", ")))
            }
            (Fact::Known(a), _) if a.allowed => (Mark::Yes, "a fentry program was tried and is accepted".to_owned()),
            (Fact::Known(a), _) => (Mark::No, format!("{}; the list of hooks says what is off", a.meaning)),
            (Fact::Unknown { unknown }, _) => {
                let built = if k.options.known().is_some() { "the kernel is built for it; " } else { "" };
                (Mark::Unknown, format!("{built}{unknown}"))
            }
        };
        self.row(mark, "fentry", &text);
    }

    pub(super) fn rights(&mut self, r: &HostReport) {
        self.section("Rights");
        let rights = &r.rights;
        let caps = match &rights.capabilities {
            Fact::Known(c) if c.is_empty() => "no capability for tracing".to_owned(),
            Fact::Known(c) => c.join(" "),
            Fact::Unknown { unknown } => unknown.clone(),
        };
        let enough = rights.has("CAP_SYS_ADMIN") || (rights.has("CAP_BPF") && rights.has("CAP_PERFMON"));
        self.fact("user", &rights.uid, |uid| {
            let who = if *uid == 0 { "root".to_owned() } else { format!("uid {uid}") };
            (if enough { Mark::Yes } else { Mark::No }, format!("{who}: {caps}"))
        });
        for missing in &rights.missing {
            let label = missing.capability.trim_start_matches("CAP_").to_lowercase();
            let mark = if missing.without.starts_with("no recording:") { Mark::No } else { Mark::Fact };
            self.row(mark, &label, &format!("without {}: {}", missing.capability, missing.without));
        }
        if rights.user_namespace == Fact::Known(true) {
            self.row(
                Mark::No,
                "user namespace",
                "this is not the initial user namespace: its root may not trace the \
             host",
            );
        }
        let attempts = [
            ("bpf() maps", &rights.bpf_map),
            ("bpf() programs", &rights.bpf_program),
            ("bpf() reads", &rights.bpf_kernel_read),
        ];
        if attempts.iter().all(|(_, a)| a.known().is_some_and(|a| a.allowed)) {
            self.row(Mark::Yes, "bpf()", "maps, tracing programs and reading the kernel were tried and work");
        } else {
            let first = attempts.iter().find_map(|(_, a)| a.known().filter(|a| !a.allowed));
            let mut said = false;
            for (label, attempt) in attempts {
                self.fact(label, attempt, |a| match (first, said) {
                    (Some(f), true) if f.errno == a.errno => (Mark::No, "refused for the same reason".into()),
                    _ => {
                        said |= !a.allowed;
                        attempted(a)
                    }
                });
            }
        }
    }

    pub(super) fn clocks(&mut self, r: &HostReport) {
        self.section("Clocks");
        let c = &r.clocks;
        let flags = c.tsc_flags.known().map(|f| f.join(" ")).unwrap_or_default();
        self.fact("clocksource", &c.current, |now| {
            let fast = matches!(now.as_str(), "tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page");
            let others = c.available.known().map(Vec::as_slice).unwrap_or_default();
            let others: Vec<&str> = others.iter().map(String::as_str).filter(|a| a != now).collect();
            let mut text = now.clone();
            if now == "tsc" && !flags.is_empty() {
                text += &format!(" ({flags})");
            }
            if !fast {
                text += ": slow to read, so recording costs more";
            }
            if !others.is_empty() {
                text += &format!("; also available: {}", others.join(", "));
            }
            (if fast { Mark::Yes } else { Mark::No }, text)
        });
        self.fact("synchronisation", &c.discipline, |d| {
            let text = match d.synchronised {
                true => format!(
                    "kept by a daemon, {:+.3} ppm, {} ns still to slew, error at most {} µs",
                    d.frequency_ppm, d.offset_ns, d.max_error_us
                ),
                false => "not synchronised; a run does not need it, comparing clocks of several hosts does".into(),
            };
            (Mark::Fact, text)
        });
        if !c.ptp.is_empty() {
            let list: Vec<String> = c.ptp.iter().map(|p| format!("{} ({})", p.name, p.clock_name)).collect();
            self.row(Mark::Fact, "hardware clocks", &list.join(", "));
        }
    }

    pub(super) fn pmus(&mut self, r: &HostReport) {
        self.section("PMUs");
        self.fact("cycle counter", &r.pmus.cycles, |a| match a.allowed {
            true => (Mark::Yes, "counts".into()),
            false => (Mark::Absent, attempted(a).1),
        });
        match &r.pmus.intel_pt {
            Some(pt) => {
                let has = |c: &str| pt.caps.get(c).is_some_and(|v| v != "0");
                let fine = ["psb_cyc", "mtc", "ip_filtering", "power_event_trace"];
                let caps: Vec<&str> = fine.iter().copied().filter(|c| has(c)).collect();
                let caps = if caps.is_empty() { "no extras".into() } else { caps.join(" ") };
                self.row(Mark::Yes, "Intel PT", &format!("present ({caps})"));
            }
            None => self.row(Mark::Absent, "Intel PT", "not visible to this kernel; the eBPF source does not need it"),
        }
        self.row(
            Mark::Absent,
            "core speed",
            "not measured: a slower core (frequency, busy sibling) lengthens all rows and is never named as a cause",
        );
    }

    pub(super) fn nics(&mut self, r: &HostReport) {
        self.section("Network interfaces");
        let physical: Vec<&Nic> = r.nics.iter().filter(|n| n.physical).collect();
        for nic in &physical {
            let (mark, text) = nic_line(nic);
            self.row(mark, &nic.name, &text);
        }
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for nic in r.nics.iter().filter(|n| !n.physical) {
            let kind = if nic.name == "lo" { "lo" } else { nic.driver.known().map_or("other", String::as_str) };
            *kinds.entry(kind).or_default() += 1;
        }
        if !kinds.is_empty() {
            let list: Vec<String> =
                kinds.iter().map(|(k, n)| if *n == 1 { (*k).to_owned() } else { format!("{n} {k}") }).collect();
            let text = format!("{}: the kernel stamps what arrives there", list.join(", "));
            self.row(Mark::Fact, "virtual", &text);
        }
        if r.nics.is_empty() {
            self.row(Mark::Unknown, "none", "this network namespace shows no interface");
        }
    }

    pub(super) fn settings(&mut self, r: &HostReport) {
        let rated = |v: Rating| r.settings.iter().filter(move |s| s.verdict == v);
        let mut counts = vec![format!("{} harmful", rated(Rating::Hurts).count())];
        counts.push(format!("{} fine", rated(Rating::Good).count()));
        if rated(Rating::Unknown).count() > 0 {
            counts.push(format!("{} unknown", rated(Rating::Unknown).count()));
        }
        let counts = self.paint("2", &counts.join(" · "));
        self.section("Settings that hurt tails");
        self.out.pop();
        let _ = writeln!(self.out, "  {counts}");
        for s in rated(Rating::Hurts) {
            self.advice(Mark::No, s);
        }
        for s in rated(Rating::Unknown) {
            self.advice(Mark::Unknown, s);
        }
        if rated(Rating::Good).count() > 0 {
            let list: Vec<String> = rated(Rating::Good).map(|s| format!("{}: {}", s.title, s.value)).collect();
            self.list(Mark::Yes, "fine", &list);
        }
        if rated(Rating::NotPresent).count() > 0 {
            let list: Vec<String> = rated(Rating::NotPresent).map(|s| s.title.clone()).collect();
            self.list(Mark::Absent, "not here", &list);
        }
        let mut hints = Vec::new();
        if r.settings.iter().any(|s| s.verdict == Rating::Hurts && !s.change.is_empty()) {
            hints.push("Commands are for root and last until the next boot; undo restores the value read now.");
        }
        if r.target.is_none() {
            hints.push("With -p PID also: the server's pinning, priority, NUMA spread, CPU quota and memory limit.");
        }
        for hint in hints {
            for line in wrap(hint, self.width - 2) {
                let line = self.paint("2", &line);
                let _ = writeln!(self.out, "  {line}");
            }
        }
    }
}

fn attempted(a: &Attempt) -> (Mark, String) {
    match (&a.errno, a.allowed) {
        (_, true) => (Mark::Yes, a.meaning.clone()),
        (Some(errno), _) => (Mark::No, format!("{errno}: {}", a.meaning)),
        (None, _) => (Mark::No, a.meaning.clone()),
    }
}

fn nic_line(nic: &Nic) -> (Mark, String) {
    let mut parts = vec![
        nic.driver.known().cloned().unwrap_or_else(|| "unknown driver".into()),
        nic.operstate.known().cloned().unwrap_or_else(|| if nic.up { "up".into() } else { "down".into() }),
    ];
    if let Some(mtu) = nic.mtu.known() {
        parts.push(format!("mtu {mtu}"));
    }
    let mark = match &nic.timestamping {
        Fact::Unknown { unknown } => {
            parts.push(format!("time stamping unknown: {unknown}"));
            Mark::Unknown
        }
        Fact::Known(ts) => {
            let phc = ts.phc_index.map(|i| format!(" (clock ptp{i})")).unwrap_or_default();
            parts.push(if ts.stamps_all_rx() {
                format!("hardware stamps every received packet{phc}")
            } else if ts.rx_hardware && ts.raw_hardware {
                let what: Vec<&str> = ts.rx_filters.iter().map(String::as_str).filter(|f| *f != "none").collect();
                format!("hardware stamps only {} packets{phc}", what.join(", "))
            } else {
                "no hardware time stamps, so lifetimes start at the driver".into()
            });
            if ts.tx_hardware {
                parts.push("and sent ones".into());
            }
            Mark::Fact
        }
    };
    (mark, parts.join(", "))
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
