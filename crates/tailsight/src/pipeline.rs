//! From a run directory to its diagnosis: the steps that several commands share.

use std::path::Path;

use anyhow::Context;
use tailsight_diagnose::cohorts::chosen_class::{InClass, choose, choose_in_both};
use tailsight_diagnose::cohorts::focus::{percent, ranks, widened};
use tailsight_diagnose::cohorts::legs::Latencies;
use tailsight_diagnose::functions::runtimes::Runtimes;
use tailsight_diagnose::model::ChosenClass;
use tailsight_diagnose::{CategoryTable, CauseOf, Diagnosis, Error, Inputs, MIN_MESSAGES, Options, PathOf, Selection};
use tailsight_ideal::Named;
use tailsight_lifetime::messages::multiplexed::Multiplexed;
use tailsight_lifetime::{Analysis, Incomplete, Leg, Message, PathPart, RequestClass, Without};
use tailsight_trace::Run;
use tailsight_trace::meta::{RunMeta, Setting};

use crate::Exit;
use crate::cli_common::Question;
use crate::memory;

/// An opened run with its lifetimes.
pub struct Opened {
    /// The run.
    pub run: Run,
    /// Its lifetimes and timelines.
    pub analysis: Analysis,
}

impl Opened {
    /// The latencies of its messages.
    pub fn latencies(&self) -> Latencies {
        self.latencies_of(None)
    }

    /// Of those of some classes, if any were chosen.
    fn latencies_of(&self, class: Option<&ChosenClass>) -> Latencies {
        let lifetimes = &self.analysis.lifetimes;
        match class {
            None => Latencies::beside(&lifetimes.messages, &lifetimes.multiplexed),
            Some(_) => Latencies::in_class(&lifetimes.messages, &InClass::new(class, &lifetimes.classes)),
        }
    }
}

/// Opens a run and builds its lifetimes. Says on standard error when the run is not whole.
pub fn open(path: &Path) -> anyhow::Result<Opened> {
    opened_by(path, Analysis::of)
}

/// As [`open`], for one diagnosis without more than the causes: messages that it does not look into are not divided. With the options that
/// it has ([`chosen`]), and its messages.
pub fn open_for(
    path: &Path,
    question: &Question,
    without: Without,
    options: Options,
) -> anyhow::Result<(Opened, Options, Selection)> {
    let mut asked = None;
    let divide = |messages: &[Message], classes: &[RequestClass], multiplexed: &Multiplexed| {
        let class = question.class.as_deref().map(|text| choose(text, messages, classes)).transpose();
        let class = match class {
            Ok(class) => class,
            Err(error) => {
                asked = Some(Err(error));
                return vec![false; messages.len()];
            }
        };
        let in_class = InClass::new(class.as_ref(), classes);
        let latencies = match in_class.is_any() {
            true => Latencies::beside(messages, multiplexed),
            false => Latencies::in_class(messages, &in_class),
        };
        let options = chosen(Options { class, ..options }, Some(question), &latencies, None);
        let selection = Selection::with(messages, latencies, &options, &in_class);
        let read = selection.read(messages, &options);
        asked = Some(Ok((options, selection)));
        read
    };
    let opened = opened_by(path, |run| Analysis::of_some(run, without, divide))?;
    let (options, selection) = asked.context("the messages of the run were not looked at")??;
    Ok((opened, options, selection))
}

fn opened_by(
    path: &Path,
    analyse: impl FnOnce(&mut Run) -> Result<Analysis, tailsight_trace::Error>,
) -> anyhow::Result<Opened> {
    memory::reuse_memory();
    let mut run = Run::open(path)?;
    let analysis = analyse(&mut run)?;
    for note in &run.notes {
        say!("note: {note}");
    }
    let state = if run.is_damaged() { "damaged" } else { "partial" };
    for why in &run.partial {
        say!("note: {state} run: {why}");
    }
    Ok(Opened { run, analysis })
}

/// The options of a question. Fails on a slice or a table that cannot be used.
pub fn options(question: &Question) -> anyhow::Result<Options> {
    // Once: the tables of the default are read from text.
    let mut options = Options {
        leg: question.leg.unwrap_or(Leg::Total),
        nesting: question.nest,
        granularity_ns: question.granularity,
        ..Options::default()
    };
    if let Some(file) = &question.categories {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the category table {}", file.display()))?;
        options.categories = CategoryTable::parse(&text, &file.to_string_lossy())?;
    }
    if let Some(file) = &question.runtimes {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the functions of runtimes {}", file.display()))?;
        options.runtimes = Runtimes::parse(&text, &file.to_string_lossy())?.before(options.runtimes);
    }
    if let Some(focus) = &question.focus {
        options.focus = tailsight_diagnose::parse_focus(focus)?;
    }
    if let Some(reference) = &question.reference {
        options.reference = tailsight_diagnose::parse_focus(reference)?;
    }
    options.check()?;
    Ok(options)
}

/// The options of a question about opened runs, and the latencies of the messages that it is about.
///
/// # Errors
/// [`Error::NoSuchClass`].
pub fn asked(
    options: Options,
    question: &Question,
    opened: &Opened,
    against: Option<&Opened>,
) -> Result<(Options, Latencies), Error> {
    let lifetimes = &opened.analysis.lifetimes;
    let choose_class = |text: &str| match against {
        None => choose(text, &lifetimes.messages, &lifetimes.classes),
        Some(other) => choose_in_both(text, lifetimes, &other.analysis.lifetimes),
    };
    let class = question.class.as_deref().map(choose_class).transpose()?;
    let latencies = opened.latencies_of(class.as_ref());
    let others = against.map(|other| other.latencies_of(class.as_ref()));
    let options = chosen(Options { class, ..options }, Some(question), &latencies, others.as_ref());
    Ok((options, latencies))
}

/// The options with what only the messages tell: the leg that is explained when none was asked for, and a focus and a
/// reference that are wide enough where those of the default hold too few messages. What was chosen is among the remarks.
pub fn chosen(
    options: Options,
    question: Option<&Question>,
    latencies: &Latencies,
    against: Option<&Latencies>,
) -> Options {
    let (leg, why) = match question.and_then(|q| q.leg) {
        Some(leg) => (leg, None),
        None => tailsight_diagnose::cohorts::legs::usual(latencies),
    };
    let mut options = Options { leg, ..options };
    options.remarks.extend(why);
    let n = latencies.of_leg(leg).len();
    if let Some(limit_ns) = question.and_then(|q| q.slower_than) {
        match slower_than(latencies.of_leg(leg), limit_ns) {
            Some(focus) => options.focus = focus,
            None => options.remarks.push(format!(
                "no complete message took longer than {}: {} is explained instead",
                tailsight_units::format::duration(limit_ns),
                slice(options.focus)
            )),
        }
    }
    let least = against.map_or(n, |other| n.min(other.of_leg(leg).len()));
    if question.is_none_or(|q| q.focus.is_none())
        && let Some(wide) = widened(least, options.focus)
    {
        options.remarks.push(format!(
            "{} holds {} of {n} complete messages, but a diagnosis needs {MIN_MESSAGES}: {} is explained \
             instead; record longer \
             to explain a narrower slice",
            slice(options.focus),
            ranks(n, options.focus).len(),
            slice(wide),
        ));
        options.focus = wide;
    }
    if against.is_none()
        && question.is_none_or(|q| q.reference.is_none())
        && let Some(wide) = widened(n, options.reference)
    {
        options.reference = wide;
    }
    options
}

/// The slice of the latencies that are longer than a limit, ns; none where none is.
fn slower_than(latencies: &[u64], limit_ns: u64) -> Option<(f64, f64)> {
    let slower = latencies.iter().filter(|ns| **ns > limit_ns).count();
    (slower > 0).then(|| ((latencies.len() - slower) as f64 / latencies.len() as f64, 1.0))
}

/// A slice as options have it, e.g. `p99..p100`.
pub fn slice((from, to): (f64, f64)) -> String {
    format!("{}..{}", percent(from), percent(to))
}

/// What the diagnosis must know about the recording.
pub fn facts(run: &Run) -> tailsight_diagnose::RecordingFacts {
    let meta = &run.meta;
    let device = meta.devices.first();
    // Commands enter another network namespace by a process in it; runs of older versions do not say by which.
    let inside = |d: &tailsight_trace::meta::Device| {
        let pid = Some(d.pid).filter(|&pid| pid != 0).or_else(|| meta.target.pids.first().copied());
        pid.filter(|_| !d.here)
    };
    tailsight_diagnose::RecordingFacts {
        run: run.dir.display().to_string(),
        lost_events: meta.lost(),
        ns_per_event: meta.overhead.ns_per_event,
        events: meta.events(),
        pids: meta.target.pids.clone(),
        ports: meta.target.ports.clone(),
        devices: device.iter().map(|d| d.name.clone()).collect(),
        cpus: Some(meta.host.cpus),
        cgroup: cgroup(meta),
        irqs: device.map_or_else(Vec::new, |d| d.irqs.clone()),
        netns: meta.devices.iter().find_map(inside),
        device_netns: device.and_then(inside),
        hooks_off: hooks_off(run),
        recorder_by_name: meta.recorder.is_none(),
        partial: run.partial.clone(),
        damaged: run.is_damaged(),
        unseen_syncs: meta.unseen_syncs.clone(),
        ..tailsight_diagnose::RecordingFacts::default()
    }
}

/// Hooks that were off.
fn hooks_off(run: &Run) -> Vec<String> {
    let off = run.meta.hooks.iter().filter(|hook| !hook.on).map(|hook| hook.name.clone());
    off.chain(blind_to_fsync(&run.meta)).collect()
}

/// The function by which fsync is seen on every file system, where the run did not see it: the hook on it is off, or served by the
/// tracepoint of one file system. Where the run names the file systems that it missed, that says more.
fn blind_to_fsync(meta: &tailsight_trace::RunMeta) -> Option<String> {
    let blind = meta.hook("ext4_sync_file_enter").is_some_and(|h| !h.on || h.program == h.name);
    (blind && meta.unseen_syncs.is_empty()).then(|| "vfs_fsync_range".to_owned())
}

/// The control group of the target's first process, while that still runs here under its name: only for commands that
/// are to be run here and now.
fn cgroup(meta: &tailsight_trace::RunMeta) -> Option<String> {
    let pid = meta.target.pids.first()?;
    let comm = tailsight_host::Stat::of_process(*pid)?.comm().to_owned();
    let groups = std::fs::read(format!("/proc/{pid}/cgroup")).map(tailsight_host::cgroup::Groups::parse).ok()?;
    let path = groups.path("")?.to_str()?;
    (comm == meta.target.app && path != "/").then(|| path.to_owned())
}

/// So many messages were on their way while events were lost that the slice cannot be judged: the slowest are the likeliest
/// to be among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooMuchLost {
    lost: u64,
    messages: u64,
    focus: f64,
}

impl std::error::Error for TooMuchLost {}

impl std::fmt::Display for TooMuchLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (lost, part) = (self.lost, 100.0 * self.lost as f64 / self.messages as f64);
        let focus = 100.0 * self.focus;
        write!(
            f,
            "N/A: {lost} messages ({part:.2} % of all) were in flight while events were lost, and the focus is \
             {focus:.2} % of \
             the messages: the slowest may be among the lost ones\n  record again for a shorter time or with larger \
             buffers \
             (record --buffer 256M), or widen the focus"
        )
    }
}

/// Whether what was lost leaves enough: at most half as many messages as the focus is wide.
fn check_loss(lost: u64, messages: u64, (from, to): (f64, f64)) -> Result<(), TooMuchLost> {
    let focus = to - from;
    match lost as f64 > focus / 2.0 * messages as f64 {
        true => Err(TooMuchLost { lost, messages, focus }),
        false => Ok(()),
    }
}

/// Diagnoses, as far as the messages allow ([`Diagnosis::not_available`]); the second result says to which cause an owner's time counts.
pub fn diagnose(opened: &Opened, options: &Options) -> anyhow::Result<(Diagnosis, CauseOf)> {
    diagnose_against(opened, options, None)
}

/// As [`diagnose`], with the same slice of another run as the reference.
pub fn diagnose_against(
    opened: &Opened,
    options: &Options,
    against: Option<&Opened>,
) -> anyhow::Result<(Diagnosis, CauseOf)> {
    diagnose_selected(opened, options, against, None)
}

/// As [`diagnose_against`], of messages that were selected as the run was opened ([`open_for`]).
pub fn diagnose_selected(
    opened: &Opened,
    options: &Options,
    against: Option<&Opened>,
    selection: Option<&Selection>,
) -> anyhow::Result<(Diagnosis, CauseOf)> {
    for run in std::iter::once(opened).chain(against) {
        let lifetimes = &run.analysis.lifetimes;
        let lost = lifetimes.incomplete.get(&Incomplete::EventsLost).copied().unwrap_or(0);
        let messages = lifetimes.messages.len() as u64 + lifetimes.incomplete.values().sum::<u64>();
        check_loss(lost, messages, options.focus)?;
    }
    let paths = opened.analysis.to_paths();
    let path = |id, leg, part: PathPart<'_>| paths.part(id, leg, part);
    let other_paths = against.map(|other| other.analysis.to_paths());
    let other_path =
        |id, leg, part: PathPart<'_>| other_paths.as_ref().map_or_else(Vec::new, |paths| paths.part(id, leg, part));
    let name = against.map(|other| other.run.dir.display().to_string());
    let inputs = Inputs {
        path: Some(&path),
        against: name.as_deref().zip(against.map(|other| &other.analysis.lifetimes)),
        samples: Some(&opened.run.samples),
        against_samples: against.map(|other| (&other.run.samples, &other_path as PathOf<'_>)),
        at_their_times: None,
        selection,
    };
    let (mut facts, lifetimes) = (facts(&opened.run), &opened.analysis.lifetimes);
    (facts.clock_error_ns, facts.stamps) = (lifetimes.nic.error_ns(), lifetimes.nic.notes());
    let (diagnosed, served) = std::thread::scope(|scope| {
        // Of the same messages, and neither needs the other.
        let served = || {
            let work = opened.analysis.work();
            let ideal = tailsight_ideal::of_run(&opened.analysis, &work);
            (work, ideal)
        };
        // An ideal server has the arrivals of all classes.
        let served = (options.leg == Leg::Total && options.class.is_none()).then(|| scope.spawn(served));
        let diagnosed = tailsight_diagnose::diagnose_with(lifetimes, options, &facts, &inputs);
        (diagnosed, served.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
    });
    let (mut diagnosis, causes) = match diagnosed {
        // Causes cannot be said; all the rest can.
        Err(why @ Error::NotEnough { .. }) => {
            (tailsight_diagnose::overview(lifetimes, options, &facts, &why)?, CauseOf::new())
        }
        diagnosed => {
            let (mut diagnosis, causes) = diagnosed?;
            let (work, of_run) = served.unzip();
            if let Some(work) = work {
                tailsight_diagnose::work_balance::set_ran(&mut diagnosis, &work);
            }
            if let Some(of_run) = of_run.flatten() {
                tailsight_ideal::fill(&mut diagnosis, &opened.analysis, &causes, of_run);
            }
            if let Some(more) = &mut diagnosis.more {
                more.settings = settings(&opened.run.meta);
            }
            (diagnosis, causes)
        }
    };
    tailsight_advice::fill(&mut diagnosis, options, &facts);
    Ok((diagnosis, causes))
}

/// The settings of the host that messages can have met: those of interfaces by which none came say nothing of them.
pub fn settings(meta: &RunMeta) -> Vec<Setting> {
    let used = |name: &str| meta.devices.iter().any(|device| device.name == name);
    // What comes to a container's interface came to one of the host's before.
    let is_told = !meta.devices.is_empty() && meta.devices.iter().all(|device| device.here);
    let is_met = |setting: &&Setting| setting.id.split_once(':').is_none_or(|(_, name)| !is_told || used(name));
    meta.settings.iter().filter(is_met).cloned().collect()
}

/// As [`diagnose`], of the messages as they would have been without some causes of the total leg.
pub fn diagnose_without(opened: &Opened, options: &Options, names: &[Named]) -> anyhow::Result<Diagnosis> {
    // Only the causes of the whole are replayed.
    let whole = Options { leg: Leg::Total, more: false, bootstrap_rounds: 0, ..options.clone() };
    let (diagnosis, causes) = diagnose(opened, &whole)?;
    if diagnosis.not_available.is_some() {
        return Ok(diagnosis);
    }
    let (lifetimes, without) = tailsight_ideal::without(&diagnosis, &opened.analysis, &causes, names)?;
    let mut facts = facts(&opened.run);
    (facts.clock_error_ns, facts.stamps) = (lifetimes.nic.error_ns(), lifetimes.nic.notes());
    let paths = opened.analysis.to_paths();
    let path = |id, leg, part: PathPart<'_>| paths.part(id, leg, part);
    let inputs = Inputs {
        path: Some(&path),
        against: None,
        samples: Some(&opened.run.samples),
        against_samples: None,
        at_their_times: Some(&opened.analysis.lifetimes.messages),
        selection: None,
    };
    let (mut peeled, _) = tailsight_diagnose::diagnose_with(&lifetimes, options, &facts, &inputs)?;
    tailsight_advice::fill(&mut peeled, options, &facts);
    Ok(Diagnosis { without: Some(without), ..peeled })
}

/// Exit code of a diagnosis: N/A when no causes can be said.
pub fn verdict(diagnosis: &Diagnosis) -> Exit {
    match &diagnosis.not_available {
        Some(why) => {
            say!("tailsight: {why}");
            Exit::NotAvailable
        }
        None => Exit::Done,
    }
}

/// Writes an output file that the user named, whole or not at all ([`tailsight_output`]).
pub fn write_whole(path: &Path, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    tailsight_output::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Finds before a measurement that its result could not be written.
pub fn writable(path: &Path) -> anyhow::Result<()> {
    tailsight_output::check(path).map_err(|e| anyhow::anyhow!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use tailsight_trace::meta;

    use super::*;

    /// A server that is asked over loopback had "receive cores, eth0" among what makes its messages slow.
    #[test]
    fn settings_of_an_interface_without_messages_are_left_out() {
        let setting = |id: &str| Setting { id: id.into(), ..Setting::default() };
        let device = |name: &str, here| meta::Device { name: name.into(), here, ..meta::Device::default() };
        let settings_shown = |devices: Vec<meta::Device>| {
            let settings = vec![setting("swap"), setting("receive_cores:eth0")];
            super::settings(&RunMeta { settings, devices, ..RunMeta::default() }).len()
        };
        assert_eq!(
            (settings_shown(vec![device("lo", true)]), settings_shown(vec![device("lo", true), device("eth0", true)])),
            (1, 2)
        );
        // A container's own; and a run that does not know.
        assert_eq!(
            (
                settings_shown(vec![device("eth0", false)]),
                settings_shown(vec![device("veth", false)]),
                settings_shown(vec![])
            ),
            (2, 2, 2)
        );
    }

    /// Some were written for names that no hook has, so that nothing was said when it was off.
    #[test]
    fn what_limits_a_diagnosis_is_a_hook_of_the_recorder() {
        let hooks: Vec<&str> = tailsight_record::probes::hooks().map(|(_, hook)| hook.name).collect();
        for limiting in tailsight_advice::limiting_hooks().filter(|name| *name != "vfs_fsync_range") {
            let is =
                |hook: &&str| limiting.strip_suffix('*').map_or(*hook == limiting, |start| hook.starts_with(start));
            assert!(hooks.iter().any(is), "{limiting}: {hooks:?}");
        }
    }

    /// On a kernel without fentry neither the run nor its diagnosis said that fsync on xfs is not seen.
    #[test]
    fn a_run_that_sees_fsync_of_one_file_system_only_says_so() {
        let blindness_of = |on: bool, program: &str, unseen: &[&str]| {
            let name = "ext4_sync_file_enter".to_owned();
            let hook = tailsight_trace::meta::Hook { name, on, program: program.into(), ..Default::default() };
            let unseen_syncs = unseen.iter().map(|name| (*name).to_owned()).collect();
            blind_to_fsync(&tailsight_trace::RunMeta { hooks: vec![hook], unseen_syncs, ..Default::default() })
        };
        let blind = Some("vfs_fsync_range".to_owned());
        assert_eq!(
            (blindness_of(true, "ext4_sync_file_enter", &[]), blindness_of(false, "", &[])),
            (blind.clone(), blind)
        );
        assert_eq!(blindness_of(true, "fentry_vfs_fsync_range", &[]), None);
        assert_eq!(blindness_of(true, "ext4_sync_file_enter", &["xfs"]), None, "the note names it");
        assert_eq!(blind_to_fsync(&tailsight_trace::RunMeta::default()), None, "a run of before these hooks");
    }

    #[test]
    fn messages_beyond_a_limit_are_a_slice_that_holds_them_and_no_other() {
        let latencies: Vec<u64> = (1..=3_000).rev().collect();
        for limit in [0, 1, 1_234, 2_979, 2_999] {
            let slice = slower_than(&latencies, limit).unwrap();
            assert_eq!(ranks(latencies.len(), slice), limit as usize..3_000);
        }
        assert_eq!((slower_than(&latencies, 3_000), slower_than(&[], 0)), (None, None));
    }

    #[test]
    fn a_tail_that_may_be_among_lost_messages_is_not_diagnosed() {
        assert!(check_loss(0, 0, (0.99, 1.0)).is_ok());
        assert!(check_loss(4, 1000, (0.99, 1.0)).is_ok());
        let error = check_loss(21, 1000, (0.99, 1.0)).unwrap_err().to_string();
        assert!(error.contains("2.10 %") && error.contains("1.00 %") && error.contains("--buffer"), "{error}");
        assert!(check_loss(21, 1000, (0.9, 1.0)).is_ok(), "a wider focus holds more than what was lost");
        assert!(check_loss(766, 1000, (0.0, 1.0)).is_err());
    }
}
