//! Fixes: commands with their undo, steps, and what `tailsight fix` can apply by itself.
//!
//! In: a [`Cause`], facts about the run. Out: [`Fix`]es and [`Action`]s.

use tailsight_diagnose::cause::{Subject, names};
use tailsight_diagnose::glob;
use tailsight_diagnose::model::{Action, Cause, Fix, FunctionPart, InPlaceOf, RuntimePart};
use tailsight_lifetime::{FrameKind, Role};
use tailsight_trace::samples::JIT;

use crate::actions::action;
use crate::change::Change;
use crate::data::{ADVICE, Template};
use crate::{Advisor, change, placeholders};

/// The least part of what held a queue for which its fixes are the queue's.
const MOSTLY: f64 = 0.5;

impl Advisor<'_> {
    /// Commands with their undo, and steps; none for a row that is no larger than usual. Beside them, those that `tailsight fix`
    /// can make; [`number`](crate::actions::number) gives them their numbers.
    pub fn fixes(&self, cause: &Cause) -> (Vec<Fix>, Vec<Action>) {
        let row = cause.in_place_of.as_ref();
        let (mut steps, actions) = match row {
            Some(row) => self.fixes_of_category(&as_row(cause, row)),
            None => self.fixes_of_category(cause),
        };
        // What is advised of the application's own work does not help.
        if let Some(row) = row.filter(|_| actions.is_empty()) {
            return (vec![documented(&row.runtime)], actions);
        }
        let of_first = |functions: &[FunctionPart]| functions.first()?.runtime.as_ref().map(documented);
        if let Some(fix) = of_first(&cause.functions).filter(|_| !steps.is_empty()) {
            // What is known of the function comes before what may be found of any, and behind what `tailsight fix` makes.
            let first = actions.iter().flat_map(|action| &action.shell).max().map_or(0, |last| last + 1);
            steps.insert(first.min(steps.len()), fix);
        }
        let of_root = cause.root.first().and_then(|root| of_first(&root.functions));
        steps.extend(of_root.filter(|fix| !steps.contains(fix)));
        (steps, actions)
    }

    /// What the data has for the category.
    fn fixes_of_category(&self, cause: &Cause) -> (Vec<Fix>, Vec<Action>) {
        let Some(advice) = ADVICE.categories.get(&cause.category).filter(|_| cause.deviation_ns > 0) else {
            return (vec![], vec![]);
        };
        // What held a queue comes before what makes a queue shorter.
        let (mut fixes, mut actions) =
            self.held_by(cause).map(|held_by| self.fixes_of_category(&held_by)).unwrap_or_default();
        let of_what_held = !fixes.is_empty();
        let base = base(cause);
        let is = |only: &[String]| glob::any(only, &cause.name) || glob::any(only, &base);
        let each_ns = cause.deviation_ns as f64 * self.focus_messages as f64 / cause.messages.max(1) as f64;
        let in_range = |&[from, to]: &[u64; 2]| (from as f64..=to as f64).contains(&(each_ns / 1e3));
        let is_compiled = cause.functions.first().is_some_and(|function| function.module == JIT);
        let fits = |f: &&Template| {
            f.role.is_none_or(|r| r == cause.role)
                && (cause.role == Role::A && cause.is_received() || !f.received)
                && f.compiled.is_none_or(|compiled| compiled == is_compiled)
                && (f.only.is_empty() || is(&f.only))
                && !is(&f.except)
                && (f.each_us.is_empty() || f.each_us.iter().any(in_range))
                && !(of_what_held && f.once_named.is_some())
                && (self.is_readable || !f.readable)
        };
        // In the order of the data, but what changes how the whole application is scheduled comes last.
        let mut fitting: Vec<&Template> = advice.fix.iter().filter(fits).collect();
        fitting.sort_by_key(|template| template.change.as_ref().is_some_and(Change::is_real_time));
        for template in fitting {
            let (filled, action) = self.filled(template, cause);
            let shell = fixes.len()..fixes.len() + filled.len();
            fixes.extend(filled);
            actions
                .extend(action.filter(|_| !shell.is_empty()).map(|action| Action { shell: shell.collect(), ..action }));
        }
        (fixes, actions)
    }

    /// Of a queue, what held most of the messages ahead, as a cause of its own. That later ones were served first it does not explain.
    fn held_by(&self, cause: &Cause) -> Option<Cause> {
        if cause.subject == Some(Subject::LaterArrivals) {
            return None;
        }
        let root = cause.root.first().filter(|root| root.share >= MOSTLY)?;
        let subject = root.subject.clone()?;
        Some(Cause {
            deviation_ns: root.mean_ns,
            messages: self.focus_messages,
            functions: root.functions.clone(),
            ..Cause::new(root.category, root.name.clone(), subject, vec![], root.role)
        })
    }

    /// A template with the values of the cause: a command can be one a process.
    fn filled(&self, template: &Template, cause: &Cause) -> (Vec<Fix>, Option<Action>) {
        let device = self.facts.devices.first().map(String::as_str);
        // A run that knows the device knows its interrupts: without any it is one of software, whatever its name (in a
        // container, a veth is called eth0). Of an unknown device nothing is known, and the fix says what to fill in.
        let software = |d: &str| placeholders::is_virtual(d) || self.facts.irqs.is_empty();
        if let (Some(hardware), Some(device)) = (template.hardware, device)
            && hardware == software(device)
        {
            return (vec![], None);
        }
        // The host's (or the container's) first process starts the others, which would have its cores from then on.
        let is_first = cause.who.as_ref().is_some_and(|who| who.pid == 1 && who.comm == base(cause));
        if is_first && matches!(template.change, Some(Change::PinNamed(_))) {
            return (vec![], None);
        }
        let facts = self.facts;
        let fill = placeholders::Fill {
            name: &cause.name,
            base: &base(cause),
            irq: irq(cause),
            app: self.app,
            pids: &facts.pids,
            device,
            cores: match cause.cores.as_slice() {
                [] => &self.cores[usize::from(cause.role == Role::A)],
                cores => cores,
            },
            cpus: facts.cpus,
            cgroup: facts.cgroup.as_deref(),
            irqs: &facts.irqs,
            netns: facts.netns,
            device_netns: facts.device_netns,
            who: cause.who.as_ref(),
            function: cause.functions.first().filter(|function| tells(function)),
            inside: match template.inside {
                Some(change::Inside::Target) => facts.netns,
                Some(change::Inside::Device) => facts.device_netns,
                None => None,
            },
        };
        (fill_fix(template, &fill), action(template, &fill))
    }
}

/// A cause as the row in whose place it is.
fn as_row(cause: &Cause, row: &InPlaceOf) -> Cause {
    let InPlaceOf { category, name, subject, frames, .. } = row.clone();
    Cause { category, name, subject, frames, ..cause.clone() }
}

/// What the documentation of a runtime advises.
fn documented(runtime: &RuntimePart) -> Fix {
    Fix::step(format!("{}: {} ({})", runtime.of, runtime.fix, runtime.documented))
}

/// Whether a function says what a cause is: not one that waits itself, and in none that it calls. That is the stub of the system call, as of
/// a runtime that waits for its tasks, or the place where a runtime is known to do so.
fn tells(function: &FunctionPart) -> bool {
    !function.waits || function.inside.is_some()
}

/// The cause's name without the frames that the nesting rule added.
fn base(cause: &Cause) -> String {
    cause.subject.as_ref().map_or_else(|| cause.name.clone(), names::base)
}

/// The device interrupt that a cause is.
fn irq(cause: &Cause) -> Option<&str> {
    match &cause.subject {
        Some(Subject::Frame { frame }) if frame.kind == FrameKind::Irq => frame.of.as_deref(),
        _ => None,
    }
}

/// A fix with its values: nothing when it cannot work in this run.
fn fill_fix(template: &Template, fill: &placeholders::Fill<'_>) -> Vec<Fix> {
    if let Some(step) = template.once_named.as_ref().filter(|_| fill.function.is_some()).or(template.step.as_ref()) {
        let filled = fill.one(step, fill.pids.first().copied());
        return filled.map(|f| Fix::step(f.text + &found(" (", &f.find, ")"))).into_iter().collect();
    }
    let (Some((run, undo)), Some(why)) = (template.commands(), &template.why) else { return vec![] };
    // One command a process where the command names one, else one.
    let pids: Vec<Option<u32>> = if run.contains("{pid}") && !fill.pids.is_empty() {
        fill.pids.iter().copied().map(Some).collect()
    } else {
        vec![None]
    };
    let all = pids.len();
    let mut out = vec![];
    for pid in pids.into_iter().take(3) {
        let (Some(run), Some(undo), Some(why)) = (fill.one(&run, pid), fill.one(&undo, pid), fill.one(why, pid)) else {
            continue;
        };
        let enter = |text: String| fill.inside.map_or_else(|| text.clone(), |pid| change::inside(&text, pid));
        let mut find = run.find;
        for word in undo.find.into_iter().chain(why.find) {
            if !find.contains(&word) {
                find.push(word);
            }
        }
        let more =
            if out.len() == 2 && all > 3 { format!("; so for {} more processes", all - 3) } else { String::new() };
        out.push(Fix {
            command: Some(enter(run.text)),
            fill_in: !find.is_empty(),
            why: why.text + &more + &found("; ", &find, ""),
            undo: Some(enter(undo.text)),
        });
    }
    out
}

/// The words that stand for unknown values, and how to find those; nothing without any.
fn found(before: &str, find: &[(&str, &str)], after: &str) -> String {
    if find.is_empty() {
        return String::new();
    }
    let each: Vec<String> = find.iter().map(|(word, how)| format!("{word}: {how}")).collect();
    format!("{before}{}{after}", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailsight_diagnose::RecordingFacts;
    use tailsight_diagnose::cause::Category;

    /// Every category has its words; every fix is a command with its undo and reason, or a step; nothing else is in the file.
    #[test]
    fn advice_is_complete() {
        let named: Vec<Category> = ADVICE.categories.keys().copied().collect();
        let mut all = Category::ALL.to_vec();
        all.sort_unstable();
        assert_eq!(named, all);
        for (category, advice) in &ADVICE.categories {
            assert!(!advice.fix.is_empty(), "{category} has no fix");
            for fix in &advice.fix {
                let written = fix.r#do.is_some() && fix.undo.is_some() && fix.change.is_none();
                let changed = fix.r#do.is_none() && fix.undo.is_none() && fix.change.is_some();
                let command = (written || changed) && fix.why.is_some() && fix.step.is_none();
                let step = fix.step.is_some() && fix.commands().is_none() && fix.why.is_none();
                assert!(command != step, "{category}: {fix:?}");
            }
        }
    }

    /// SCHED_FIFO for all threads of a server was the first thing proposed against a compiler beside it: a thread of it that spins then takes the
    /// core from everything else.
    #[test]
    fn a_real_time_priority_is_never_the_first_thing_to_do() {
        let facts = |cpus| RecordingFacts { pids: vec![41], cpus: Some(cpus), ..RecordingFacts::default() };
        let mut tried = 0;
        for (category, advice) in &ADVICE.categories {
            let selectors = advice.fix.iter().flat_map(|fix| &fix.only).map(|only| only.replace('*', ""));
            for name in selectors.chain(["user".to_owned()]).filter(|name| !name.is_empty()) {
                for cpus in [1, 4] {
                    let fixes = fixes_of(&facts(cpus), (category.as_str(), &name), (1_000_000, 50));
                    let real_time = |fix: &String| fix.contains("chrt -a -f");
                    assert!(!fixes.first().is_some_and(real_time), "{category} {name}: {fixes:?}");
                    tried += usize::from(fixes.iter().any(real_time));
                }
            }
        }
        assert!(tried > 3, "{tried}");
    }

    /// The fixes of receive processing on the application core, each in a line.
    fn receive_fixes(devices: &[&str], irqs: &[u32], netns: Option<u32>) -> Vec<String> {
        receive_fixes_as_data(devices, irqs, netns).iter().map(Fix::to_string).collect()
    }

    /// They: the device, its interrupts, a process in its namespace.
    fn receive_fixes_as_data(devices: &[&str], irqs: &[u32], netns: Option<u32>) -> Vec<Fix> {
        let facts = RecordingFacts {
            devices: devices.iter().map(|d| (*d).to_owned()).collect(),
            irqs: irqs.to_vec(),
            cpus: Some(4),
            netns,
            device_netns: netns,
            ..RecordingFacts::default()
        };
        advisor("memcached", &facts, 1000).fixes(&a_cause(("receive-processing", "net_rx"), (1000, 50))).0
    }

    static CORES: std::sync::OnceLock<[Vec<u32>; 2]> = std::sync::OnceLock::new();

    /// Of 50 slow messages that took so much longer, ns.
    fn advisor<'a>(app: &'a str, facts: &'a RecordingFacts, total_ns: i64) -> Advisor<'a> {
        let cores = CORES.get_or_init(|| [vec![0], vec![1]]);
        Advisor { app, facts, cores, focus_messages: 50, tail: true, is_readable: true, total_ns, ran_only_ns: None }
    }

    /// The fixes of a cause on the application core, of which 50 slow messages had so many ns more on average, and which hit so many.
    fn fixes_of(
        facts: &RecordingFacts,
        (category, name): (&str, &str),
        (deviation_ns, messages): (i64, u64),
    ) -> Vec<String> {
        lines(&advisor("memcached", facts, deviation_ns), &a_cause((category, name), (deviation_ns, messages)))
    }

    /// The fixes of a cause, each in a line.
    fn lines(advisor: &Advisor<'_>, cause: &Cause) -> Vec<String> {
        advisor.fixes(cause).0.iter().map(Fix::to_string).collect()
    }

    /// A cause on the application core, with so many ns more on average, which hit so many messages.
    fn a_cause((category, name): (&str, &str), (deviation_ns, messages): (i64, u64)) -> Cause {
        let cause = serde_json::from_value(serde_json::json!({
            "rank": 1, "category": category, "name": name, "role": "A", "share": 1.0, "deviation_ns": deviation_ns,
            "ci95_ns": [1, deviation_ns], "messages": messages, "evidence": [], "paths": [], "fix": [], "explanation": "",
        }));
        cause.expect("a cause")
    }

    /// gzip had core 0 while requests waited there, which were then received on core 1: "keep gzip off core 1", and on core 0.
    #[test]
    fn a_neighbour_is_kept_off_the_core_on_which_it_was() {
        let facts = RecordingFacts { cpus: Some(2), ..RecordingFacts::default() };
        let cause =
            |cores: &[u32]| Cause { cores: cores.to_vec(), ..a_cause(("interference", "gzip"), (1_000_000, 50)) };
        let first = |cores: &[u32]| lines(&advisor("java", &facts, 1_000_000), &cause(cores))[0].clone();
        assert!(first(&[0]).contains("keep gzip off core 0"), "{}", first(&[0]));
        assert!(first(&[]).contains("keep gzip off core 1"), "where that is not known: {}", first(&[]));
        assert!(!first(&[0, 1]).contains("keep gzip off"), "no other core is left: {}", first(&[0, 1]));
    }

    /// It was advised for requests that came in TLS.
    #[test]
    fn a_protocol_is_read_only_where_it_can_be() {
        let facts = RecordingFacts::default();
        let advised = |readable| {
            let advisor = Advisor { is_readable: readable, ..advisor("nginx", &facts, 1_000_000) };
            let cause = a_cause(("app-processing", "class of 257 to 512 bytes"), (1_000_000, 50));
            lines(&advisor, &cause).join(" ").contains("--protocol")
        };
        assert_eq!((advised(true), advised(false)), (true, false));
    }

    /// A reply that a queueing discipline held was blamed on Nagle's algorithm; a file operation that is in another thread already was to
    /// be taken there.
    #[test]
    fn fixes_fit_what_was_seen() {
        let facts = RecordingFacts::default();
        // Of half of the messages: 40 ms each.
        let nagle = fixes_of(&facts, ("transmit-processing", "queued"), (20_000_000, 25));
        assert!(nagle[0].starts_with("a wait of 40 ms"), "{nagle:?}");
        let shaped = fixes_of(&facts, ("transmit-processing", "queued"), (17_000_000, 50));
        assert!(shaped[0].starts_with("see where the bytes wait: in a queueing discipline"), "{shaped:?}");
        // bjoern, a reply held back until the client's next request, 16 ms later: that is Nagle's algorithm, too.
        assert!(shaped[1].contains("Nagle") && !shaped.join(" ").contains("a wait of 40 ms"), "{shaped:?}");
        let elsewhere = "out of the request's path";
        let waited_for = fixes_of(&facts, ("disk-wait", "fsync of journal, which is waited for"), (1_000_000, 50));
        assert!(waited_for[0].contains("hold no lock"), "{waited_for:?}");
        assert!(!waited_for.join(" ").contains(elsewhere), "{waited_for:?}");
        assert!(fixes_of(&facts, ("disk-wait", "fsync of journal"), (1_000_000, 50))[0].contains(elsewhere));
        // To find the holder was advised where the row had its name.
        let find = |name| fixes_of(&facts, ("lock-wait", name), (1_000_000, 50)).join(" ").contains("find the holder");
        assert!(find("futex") && !find("compactor holds it/sleep:futex"));
    }

    /// "perf record" was advised for a task that waited, and to hold a lock for less time where none was.
    #[test]
    fn what_waits_is_not_profiled_and_what_may_be_no_lock_is_not_called_one() {
        let facts = RecordingFacts { pids: vec![41], ..RecordingFacts::default() };
        let of = |category, name| fixes_of(&facts, (category, name), (1_000_000, 50)).join(" ");
        let parked = of("app-processing", "parked");
        assert!(parked.contains("what the task awaits") && !parked.contains("perf record"), "{parked}");
        let held = of("lock-wait", "python3 holds it/sleep:clock_nanosleep");
        assert!(held.starts_with("if it is a lock") && held.contains("no lock is held"), "{held}");
        let thread =
            fixes_of(&facts, ("app-processing", "python3 (other thread)/sleep:clock_nanosleep"), (1_000_000, 50));
        assert!(thread[0].contains("max_workers"), "{thread:?}");
        let tokio = of("app-processing", "waits in epoll_wait");
        assert!(tokio.contains("tokio-console") && tokio.contains("/debug/pprof/block"), "{tokio}");
        let timer = of("app-processing", "waits in epoll_wait until a timer");
        assert!(timer.contains("limit_req") && !timer.contains("strace") && !timer.contains("tokio"), "{timer}");
    }

    /// Requests waited behind one whose write to a full pipe waited for its reader; more threads were the first advice.
    #[test]
    fn what_held_a_queue_is_mended_before_the_queue() {
        let facts = RecordingFacts::default();
        let advisor = advisor("app", &facts, 1000);
        let of = |share: f64| {
            let cause = serde_json::from_value(serde_json::json!({
                "rank": 1, "category": "hol-blocking", "name": "app", "role": "A", "share": 1.0, "deviation_ns": 1000,
                "ci95_ns": [1, 1000], "messages": 50, "evidence": [], "paths": [], "fix": [], "explanation": "",
                "root": [{
                    "category": "app-processing", "name": "waits in write for shipper", "share": share, "mean_ns": 24_000_000,
                    "subject": Subject::named("waits in write for shipper"), "messages": 3,
                }],
            }));
            lines(&advisor, &cause.expect("a cause"))
        };
        let mostly = of(0.9);
        assert!(mostly[0].starts_with("app slept in write until who reads"), "{mostly:?}");
        assert!(mostly.iter().any(|fix| fix.starts_with("have less work in a request")), "{mostly:?}");
        assert!(of(0.3)[0].starts_with("have less work in a request"));
    }

    /// `strace` was the first fix of a sleep whose function the same answer named.
    #[test]
    fn what_is_named_is_not_to_be_found_again() {
        let facts = RecordingFacts { pids: vec![41], ..RecordingFacts::default() };
        let of = |name: &str, functions: serde_json::Value| {
            let advisor = advisor("app", &facts, 1000);
            let cause = serde_json::from_value(serde_json::json!({
                "rank": 1, "category": "app-processing", "name": name, "role": "A", "share": 1.0, "deviation_ns": 1000,
                "ci95_ns": [1, 1000], "messages": 50, "evidence": [], "paths": [], "fix": [], "explanation": "",
                "functions": functions,
            }));
            lines(&advisor, &cause.expect("a cause"))
        };
        let named = |inside: Option<&str>, waits: bool| {
            let function = FunctionPart {
                name: "lookup".into(),
                inside: inside.map(str::to_owned),
                module: "app".into(),
                source: "app.c:7".into(),
                share: 0.993,
                waits,
                ..Default::default()
            };
            serde_json::to_value([function]).expect("JSON")
        };
        for (name, tool, inside) in [
            ("waits in poll", "strace", Some("poll")),
            ("waits in epoll_wait", "strace", Some("x")),
            ("user", "perf record", None),
        ] {
            let before = of(name, serde_json::json!([])).join(" ");
            assert!(before.contains(tool) && !before.contains("lookup"), "{before}");
            let after = of(name, named(inside, inside.is_some())).join(" ");
            assert!(after.contains("lookup (app.c:7)") && after.contains("99 %"), "{after}");
            assert!(!after.contains("strace") && !after.contains("perf record"), "{after}");
        }
        // The stub of the system call is no place: of a server in Go the advice was to read what Syscall6 waits for.
        let stub = of("waits in epoll_pwait", named(None, true));
        assert!(stub[0].contains("profiles tell") && !stub.join(" ").contains("lookup"), "{stub:?}");
    }

    /// A device with interrupts has them moved, by number; one without has only RPS, even when it is called eth0.
    #[test]
    fn fixes_name_the_device_and_its_interrupts() {
        let rps = "for f in /sys/class/net/eth0/queues/rx-*/rps_cpus; do s=/run/tailsight$(echo $f | tr / .); [ -s $s ] || \
                   sed \"s/.*\\[\\(.*\\)\\].*/\\1/\" $f > $s && echo d > $f; done  # process packets on other cores than 1; \
                   undo: for f in /sys/class/net/eth0/queues/rx-*/rps_cpus; do s=/run/tailsight$(echo $f | tr / .); \
                   cat $s > $f && rm $s; done";
        let affinity = "for i in 38 39; do f=/proc/irq/$i/smp_affinity_list; s=/run/tailsight.irq.$i; [ -s $s ] || \
                        cat $f > $s && echo 0,2-3 > $f; done  # take the interrupts of eth0 on other cores than 1; stop \
                        irqbalance first, it moves them back; undo: for i in 38 39; do s=/run/tailsight.irq.$i; \
                        cat $s > /proc/irq/$i/smp_affinity_list && rm $s; done";
        assert_eq!(receive_fixes(&["eth0"], &[38, 39], None), [rps, affinity]);
        assert_eq!(receive_fixes(&["eth0"], &[], None), [rps]);
        assert_eq!(receive_fixes(&["veth3"], &[], None).len(), 1);
        let unknown = receive_fixes(&[], &[], None);
        assert!(unknown.iter().all(|f| f.starts_with("fill in: ") && f.contains("DEV: ")), "{unknown:?}");
        assert!(unknown[1].contains("IRQS: "), "{unknown:?}");
    }

    /// Commands for a device in another network namespace said DEV. They enter the namespace, and see its /sys: the one
    /// that is mounted shows the devices of the host. Interrupts are the machine's, wherever the device is.
    #[test]
    fn a_device_of_another_network_namespace_is_named_and_entered() {
        let fixes = receive_fixes_as_data(&["eth0"], &[38], Some(77));
        let command = |fix: &Fix| fix.command.clone().expect("a command");
        let enter = "nsenter -t 77 -n unshare -m sh -c 'mount -t sysfs sysfs /sys && for f in /sys/class/net/eth0/";
        let (run, undo) = (command(&fixes[0]), fixes[0].undo.as_ref().expect("an undo"));
        assert!(run.starts_with(enter) && undo.starts_with(enter), "{fixes:?}");
        assert!(run.contains("s=/run/tailsight.77$(echo $f | tr / .)"), "apart from the host's eth0: {run}");
        assert!(command(&fixes[1]).starts_with("for i in 38;"), "{fixes:?}");
        assert_eq!(receive_fixes(&["veth3"], &[], Some(77)).len(), 1, "no interrupts, no coalescing");
    }

    /// Every fix of every category can be shown, with everything about a run known and with nothing: no `{…}` is left, what
    /// is not known is a word with how to find it, and a command that changes something says how to take it back.
    #[test]
    fn every_fix_fills() {
        let known = placeholders::Fill {
            name: "irq:24",
            base: "irq:24",
            irq: Some("24"),
            app: "memcached",
            pids: &[41],
            device: Some("eth0"),
            cores: &[1],
            cpus: Some(4),
            cgroup: Some("/a"),
            irqs: &[24],
            netns: Some(41),
            device_netns: Some(41),
            who: None,
            function: None,
            inside: None,
        };
        let nothing = placeholders::Fill { name: "x", base: "x", app: "the target", ..placeholders::Fill::default() };
        let words =
            ["CGROUP", "IRQS", "PID", "PIDS", "CPU", "OTHER_CPUS", "OTHER_MASK", "ALL_CPUS", "ALL_MASK", "IRQ", "DEV"];
        let split = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned).collect()
        };
        for (category, advice) in &ADVICE.categories {
            for fix in &advice.fix {
                // As data, when everything is known; with nothing known, what is about the host alone.
                let by_data = fix.change.is_some();
                assert_eq!(action(fix, &known).is_some(), by_data, "{category}: {fix:?}");
                if let Some(action) = action(fix, &known) {
                    assert!(action.changes.len() == action.says.len() && !action.changes.is_empty(), "{action:?}");
                    let text = format!("{} {}", action.title, action.says.join(" "));
                    assert!(!text.contains(['{', '}']), "{category}: {text}");
                }
                for fill in [&known, &nothing] {
                    let filled = fill_fix(fix, fill);
                    assert_eq!(filled.len(), 1, "{category}: {fix:?}");
                    let shown = [filled[0].to_string()];
                    assert!(!shown[0].contains(['{', '}']), "{category}: {}", shown[0]);
                    let missing = words.iter().any(|w| shown[0].contains(&format!("{w}: ")));
                    let command = fix.commands().is_some();
                    assert_eq!(filled[0].fill_in, command && missing, "{category}: {}", shown[0]);
                    assert_eq!(shown[0].starts_with("fill in: "), filled[0].fill_in, "{category}: {}", shown[0]);
                    assert_eq!(filled[0].command.is_some(), command, "{category}: {}", shown[0]);
                    assert_eq!(filled[0].undo.is_some(), command, "{category}: {}", shown[0]);
                    for word in split(&shown[0]).iter().filter(|w| words.contains(&w.as_str())) {
                        let explained = shown[0].contains(&format!("{word}: "));
                        // A step may name a word of its own, like the N of /proc/irq/N.
                        let own = fix.step.iter().chain(&fix.r#do).any(|t| split(t).contains(word));
                        assert!(explained || own, "{category}: {word} in {}", shown[0]);
                    }
                }
            }
            // Whatever the cause is called, wherever it is met and however the packets came, something can be done.
            for role in [Role::A, Role::R] {
                let any = advice.fix.iter().any(|f| {
                    f.only.is_empty()
                        && f.each_us.is_empty()
                        && f.hardware.is_none()
                        && f.role.is_none_or(|r| r == role)
                });
                assert!(any, "{category} {role:?} has no fix for a name that no fix is limited to");
            }
        }
    }
}
