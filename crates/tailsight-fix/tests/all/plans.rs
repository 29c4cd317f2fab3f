//! What each change means on a host, what is refused, and what becomes of it when others are at work too.

use tailsight_fix::{
    About, Attribute, Change, Error, Journal, Limit, Place, Plan, Setting, State, UndoResult, apply, plan, undo,
};

use crate::fake::{Disk, Fake, Thread};

fn journal() -> Journal<Disk> {
    Journal { state: State::default(), store: Disk::default() }
}

fn about() -> About {
    About { title: "a fix".into(), run: "run".into(), when: "now".into() }
}

/// Place, value now, value to be, of what is written.
fn shown(plan: &Plan) -> Vec<(String, &str, &str)> {
    plan.writes().map(|s| (s.place.to_string(), s.was.as_str(), s.new.as_str())).collect()
}

fn pin(pids: &[u32], cpus: &str) -> Change {
    Change::Pin { pids: pids.to_vec(), cpus: cpus.into() }
}

fn planned(fake: &Fake, change: Change) -> Vec<(String, String, String)> {
    let plan = plan(fake, &[change], &fake.known()).expect("a plan");
    shown(&plan).into_iter().map(|(p, a, b)| (p, a.to_owned(), b.to_owned())).collect()
}

fn rows(expected: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    expected.iter().map(|(p, a, b)| ((*p).to_owned(), (*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn every_change_is_looked_up() {
    let fake = Fake::host();
    let (rps, xps) = ("/sys/class/net/eth0/queues/rx-", "/sys/class/net/eth0/queues/tx-0/xps_cpus");
    let queues = |direction: &str, file: &str, value: &str| Change::Queues {
        device: "eth0".into(),
        direction: direction.into(),
        file: file.into(),
        value: value.into(),
        netns: None,
    };
    assert_eq!(
        planned(&fake, queues("rx", "rps_cpus", "f")),
        rows(&[(&format!("{rps}0/rps_cpus"), "0", "f")]),
        "the second queue has that mask already, written otherwise"
    );
    assert_eq!(planned(&fake, queues("tx", "xps_cpus", "2")), rows(&[(xps, "1", "2")]));
    let sysctl = |key: &str, value: &str| Change::Sysctl { key: key.into(), value: value.into(), netns: None };
    assert_eq!(planned(&fake, sysctl("vm.swappiness", "1")), rows(&[("/proc/sys/vm/swappiness", "60", "1")]));
    assert_eq!(
        planned(&fake, Change::Interrupts { irqs: vec![38], cpus: "0,2".into() }),
        rows(&[("/proc/irq/38/smp_affinity_list", "0-3", "0,2")])
    );
    let idle = "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable";
    assert_eq!(
        planned(&fake, Change::IdleStates { slower_than_us: 10 }),
        rows(&[(idle, "0", "1")]),
        "state 0 is quick, and core 1's is off already"
    );
    assert_eq!(
        planned(&fake, Change::Coalescing { device: "eth0".into(), netns: None }),
        rows(&[("adaptive-rx of eth0", "on", "off"), ("rx-usecs of eth0", "50", "0")])
    );
    let group = "/sys/fs/cgroup/system.slice/mc.service/";
    let no = |limit| Change::NoLimit { pids: vec![41], limit };
    assert_eq!(
        planned(&fake, no(Limit::CpuQuota)),
        rows(&[(&format!("{group}cpu.max"), "20000 100000", "max 100000")]),
        "the period stays, and the slice has no quota"
    );
    assert_eq!(planned(&fake, no(Limit::MemoryHigh)), rows(&[(&format!("{group}memory.high"), "1048576", "max")]));
    assert_eq!(planned(&fake, Change::Thaw { pids: vec![41] }), rows(&[(&format!("{group}cgroup.freeze"), "1", "0")]));
    let cores = |who: &str| format!("the cores of {who}");
    assert_eq!(
        planned(&fake, pin(&[41], "1")),
        rows(&[(&cores("memcached (41)"), "0-3", "1"), (&cores("mc-worker (thread 42 of process 41)"), "0-3", "1")])
    );
    assert_eq!(
        planned(&fake, Change::PinNamed { comm: "nginx".into(), seen: vec![], cpus: "0-1".into() }),
        rows(&[(&cores("nginx (50)"), "0-3", "0-1"), (&cores("nginx (thread 51 of process 50)"), "2,3", "0-1")])
    );
    let disk = planned(&fake, Change::DiskFirst { pids: vec![41] });
    assert!(disk.len() == 3 && disk.iter().all(|r| (r.1.as_str(), r.2.as_str()) == ("none", "realtime 4")), "{disk:?}");
    let mut stopped = fake.clone();
    stopped.thread(41, 41).values.insert(Attribute::RunState, "stopped".into());
    let state = planned(&stopped, Change::Continue { pids: vec![41] });
    assert_eq!(state, rows(&[("the run state of memcached (41)", "stopped", "running")]));
}

/// Version 1 of control groups: the quota and the freezer have files and values of their own.
#[test]
fn control_groups_of_version_1() {
    let mut fake = Fake::host();
    fake.cgroups.insert(41, "4:cpu,cpuacct:/a/b\n3:freezer:/a\n1:name=systemd:/x\n".into());
    for (path, value) in
        [("cpu/a/b/cpu.cfs_quota_us", "-1"), ("cpu/a/cpu.cfs_quota_us", "5000"), ("freezer/a/freezer.state", "FROZEN")]
    {
        fake.files.insert(format!("/sys/fs/cgroup/{path}"), value.into());
    }
    let quota = planned(&fake, Change::NoLimit { pids: vec![41], limit: Limit::CpuQuota });
    assert_eq!(quota, rows(&[("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "5000", "-1")]));
    let thaw = planned(&fake, Change::Thaw { pids: vec![41] });
    assert_eq!(thaw, rows(&[("/sys/fs/cgroup/freezer/a/freezer.state", "FROZEN", "THAWED")]));
    fake.cgroups.insert(41, "0::/../../other\n".into());
    let change = [Change::Thaw { pids: vec![41] }];
    assert!(matches!(plan(&fake, &change, &fake.known()), Err(Error::Unsupported { .. })), "outside of what is seen");
}

/// A real-time fix would lower the priority of a thread that is more urgent; a bound kernel thread cannot be moved.
#[test]
fn what_is_left_out_is_said() {
    let fake = Fake::host();
    let plan_of = |change| plan(&fake, &[change], &fake.known());
    let first = plan_of(Change::RealTime { pids: vec![50] }).unwrap();
    assert_eq!(shown(&first), [("the scheduling policy of nginx (50)".to_owned(), "other 0", "fifo 1")]);
    assert_eq!(first.notes, ["the scheduling policy of nginx (thread 51 of process 50): stays rr 7"]);
    let bound = plan_of(Change::PinNamed { comm: "kworker/1:0".into(), seen: vec![], cpus: "0".into() });
    assert!(matches!(bound, Err(Error::AlreadySo)));
    // Two of a name: the one that the run saw, and both when that one is gone.
    let mut two = fake.clone();
    two.threads.insert((60, 60), Thread::new("nginx", 950, "other 0", "0-3"));
    let moved = |seen: Vec<u32>| {
        let changes = [Change::PinNamed { comm: "nginx".into(), seen, cpus: "0-1".into() }];
        let plan = plan(&two, &changes, &two.known()).unwrap();
        let ids: Vec<u32> = [50, 60]
            .into_iter()
            .filter(|id| plan.writes().any(|s| s.place.to_string().contains(&format!("{id})"))))
            .collect();
        (ids, plan.notes, plan.others_of_name)
    };
    let other = |text: &str| Some(text.to_owned());
    let left_out = vec!["another process called nginx, which the run did not see".to_owned()];
    assert_eq!(moved(vec![60]), (vec![60], left_out, None));
    assert_eq!(moved(vec![50, 60, 999]), (vec![50, 60], vec![], None));
    // Short-lived ones have another id each time; another program may have the name as well.
    let others = other("processes 50, 60 have the name nginx now; that of the run has ended");
    assert_eq!(moved(vec![999]), (vec![50, 60], vec![], others));
    assert_eq!(moved(vec![]), (vec![50, 60], vec![], None));
    let nobody = plan_of(Change::PinNamed { comm: "apache".into(), seen: vec![], cpus: "0".into() });
    assert!(matches!(nobody, Err(Error::NoSuchThread { .. })));
}

/// An id that another process has since is never touched, nor is anything of another host or boot.
#[test]
fn processes_are_those_of_the_run_or_nobody() {
    let fake = Fake::host();
    let recorded = fake.known();
    let refused = |fake: &Fake, known, change| plan(fake, &[change], known).expect_err("refused").to_string();

    let mut reused = fake.clone();
    reused.thread(41, 41).started = 5_000;
    assert!(refused(&reused, &recorded, pin(&[41], "1")).contains("no longer the memcached"));
    let mut other_program = fake.clone();
    other_program.thread(41, 41).comm = "sh".into();
    assert!(refused(&other_program, &recorded, pin(&[41], "1")).contains("but sh"), "an exec keeps id and start");
    let mut ended = fake.clone();
    ended.threads.retain(|(pid, _), _| *pid != 41);
    assert!(refused(&ended, &recorded, pin(&[41], "1")).contains("process 41 (memcached) no longer runs"));
    assert!(refused(&fake, &recorded, pin(&[77], "1")).contains("process 77 no longer runs"), "not of the run");
    let mut booted = fake.clone();
    booted.boot = "another".into();
    let sysctl = Change::Sysctl { key: "vm.swappiness".into(), value: "1".into(), netns: None };
    assert!(refused(&booted, &recorded, sysctl.clone()).contains("another host or before the last boot"));
    assert!(refused(&fake, &Default::default(), sysctl).contains("older version"));
    // Of several, those that are left.
    let some = plan(&ended, &[pin(&[41, 50], "0")], &recorded).unwrap();
    assert_eq!((some.writes().count(), some.notes.len()), (2, 1), "{some:?}");
}

#[test]
fn a_host_without_the_setting_says_so() {
    let mut fake = Fake::host();
    fake.files.retain(|path, _| !path.contains("cpuidle"));
    fake.device.clear();
    let refused = |change| plan(&fake, &[change], &fake.known()).expect_err("refused").to_string();
    assert!(refused(Change::IdleStates { slower_than_us: 10 }).contains("does not control idle states"));
    assert!(refused(Change::Coalescing { device: "eth0".into(), netns: None }).contains("adaptive-rx of eth0"));
    let file = Change::File { path: "/sys/kernel/mm/ksm/run".into(), value: "0".into() };
    assert!(refused(file).contains("/sys/kernel/mm/ksm/run does not exist"));
    let queues = Change::Queues {
        device: "eth9".into(),
        direction: "rx".into(),
        file: "rps_cpus".into(),
        value: "1".into(),
        netns: None,
    };
    assert!(refused(queues).contains("eth9 has no rx queues"));
}

/// Threads that began while a fix was on inherited its value. They have their process's of before afterwards, and one that had
/// the value all along keeps it.
#[test]
fn threads_that_began_in_between_are_put_back_too() {
    let mut fake = Fake::host();
    let changes = [pin(&[41], "1")];
    let (recorded, mut journal) = (fake.known(), journal());
    let plan = plan(&fake, &changes, &recorded).unwrap();
    let applied = apply(&mut fake, &mut journal, &plan, (&changes, &recorded), about()).unwrap();
    assert_eq!((applied.changed, journal.state.changed()), (2, 2), "thread 43 was there already");
    fake.threads.insert((41, 44), Thread::new("mc-worker", 10_500, "batch 0", "1"));
    fake.threads.insert((41, 45), Thread::new("mc-worker", 10_600, "batch 0", "2"));
    let puts = undo(&mut fake, &mut journal, false).unwrap();
    let cores = |tid| fake.threads[&(41, tid)].values[&Attribute::Cores].clone();
    assert_eq!([41, 42, 43, 44, 45].map(cores), ["0-3", "0-3", "1", "0-3", "2"]);
    let inherited: Vec<_> = puts.iter().filter(|p| matches!(p.outcome, UndoResult::Inherited)).collect();
    assert_eq!((puts.len(), inherited.len()), (3, 1), "{puts:?}");
    assert_eq!(journal.state, State::default());
}

/// By name: a thread of another name in the same process that had the value before the fix is not one that inherited it.
#[test]
fn an_older_thread_of_another_name_is_left_alone() {
    let mut fake = Fake::host();
    fake.thread(41, 41).values.insert(Attribute::Cores, "2".into());
    let changes = [Change::PinNamed { comm: "mc-worker".into(), seen: vec![], cpus: "2".into() }];
    let (recorded, mut journal, before) = (fake.known(), journal(), fake.values());
    let plan = plan(&fake, &changes, &recorded).unwrap();
    apply(&mut fake, &mut journal, &plan, (&changes, &recorded), about()).unwrap();
    undo(&mut fake, &mut journal, false).unwrap();
    assert!(fake.values() == before);
}

fn outcomes(fake: &mut Fake, journal: &mut Journal<Disk>, force: bool) -> Vec<String> {
    let name = |outcome: &UndoResult| match outcome {
        UndoResult::Back => "back",
        UndoResult::Already => "already",
        UndoResult::Inherited => "inherited",
        UndoResult::Gone => "gone",
        UndoResult::Booted => "booted",
        UndoResult::Others(_) => "others",
        UndoResult::Failed(_) => "failed",
        _ => "?",
    };
    undo(fake, journal, force).unwrap().iter().map(|p| format!("{} {}", p.entry.place, name(&p.outcome))).collect()
}

fn applied(fake: &mut Fake, change: Change) -> Journal<Disk> {
    let (recorded, mut journal) = (fake.known(), journal());
    let changes = [change];
    let plan = plan(fake, &changes, &recorded).unwrap();
    apply(fake, &mut journal, &plan, (&changes, &recorded), about()).unwrap();
    journal
}

#[test]
fn what_is_gone_is_dropped_and_what_others_set_is_theirs() {
    let mut fake = Fake::host();
    let mut journal = applied(&mut fake, pin(&[41, 50], "1"));
    fake.threads.remove(&(41, 42));
    // Another thread has its id, and another user moved nginx.
    fake.threads.insert((50, 51), Thread::new("sh", 20_000, "other 0", "1"));
    fake.thread(50, 50).values.insert(Attribute::Cores, "3".into());
    let cores = |who: &str| format!("the cores of {who}");
    assert_eq!(
        outcomes(&mut fake, &mut journal, false),
        [
            cores("nginx (thread 51 of process 50) gone"),
            cores("nginx (50) others"),
            cores("mc-worker (thread 42 of process 41) gone"),
            cores("memcached (41) back"),
            // It started later and has the value: its process's other thread had 0-3.
            cores("sh (thread 51 of process 50) inherited"),
        ]
    );
    assert_eq!(fake.threads[&(50, 50)].values[&Attribute::Cores], "3");
    assert_eq!(journal.state.fixes[0].changes.len(), 1, "kept until somebody says --force");
    assert_eq!(outcomes(&mut fake, &mut journal, true), [cores("nginx (50) back")]);
    assert_eq!(fake.threads[&(50, 50)].values[&Attribute::Cores], "0-3");
    assert_eq!(journal.state, State::default());
}

#[test]
fn after_a_boot_nothing_is_written() {
    let mut fake = Fake::host();
    let mut journal =
        applied(&mut fake, Change::Sysctl { key: "vm.swappiness".into(), value: "1".into(), netns: None });
    fake.boot = "the next".into();
    // By chance the value that the fix had set.
    let before = fake.values();
    assert_eq!(outcomes(&mut fake, &mut journal, true), ["/proc/sys/vm/swappiness booted"]);
    assert!(fake.values() == before && journal.state == State::default());
}

/// Two fixes of one value: the later one is put back first, so that the first one's value of before comes last.
#[test]
fn fixes_over_each_other_come_off_in_reverse() {
    let mut fake = Fake::host();
    let before = fake.values();
    let mut journal = applied(&mut fake, pin(&[41], "1"));
    for change in [pin(&[41], "2"), Change::RealTime { pids: vec![41] }] {
        let (recorded, changes) = (fake.known(), [change]);
        let plan = plan(&fake, &changes, &recorded).unwrap();
        apply(&mut fake, &mut journal, &plan, (&changes, &recorded), about()).unwrap();
    }
    assert_eq!(journal.state.fixes.len(), 3);
    undo(&mut fake, &mut journal, false).unwrap();
    assert!(fake.values() == before && journal.state == State::default());
}

#[test]
fn a_refused_write_takes_back_what_was_done() {
    let mut fake = Fake { fails_at: Some(1), ..Fake::host() };
    let (before, recorded, mut journal) = (fake.values(), fake.known(), journal());
    let changes = [Change::Coalescing { device: "eth0".into(), netns: None }];
    let made = plan(&fake, &changes, &recorded).unwrap();
    let error = apply(&mut fake, &mut journal, &made, (&changes, &recorded), about()).unwrap_err();
    assert!(matches!(&error, Error::RolledBack { left: 0, .. }), "{error}");
    assert!(
        error.to_string().contains("rx-usecs of eth0") && error.to_string().contains("nothing is changed"),
        "{error}"
    );
    assert!(fake.values() == before && journal.state == State::default());
    assert_eq!(fake.device[&Setting::AdaptiveRx], "on");

    // The kernel takes a value and makes another of it: not what was agreed to.
    let mut fake = Fake::host();
    fake.altered.insert("/proc/sys/vm/swappiness".into(), "7".into());
    let changes = [Change::Sysctl { key: "vm.swappiness".into(), value: "1".into(), netns: None }];
    let made = plan(&fake, &changes, &recorded).unwrap();
    let error = apply(&mut fake, &mut journal, &made, (&changes, &recorded), about()).unwrap_err().to_string();
    assert!(error.contains("reads back as 7"), "{error}");

    // What was shown is what is changed.
    let mut fake = Fake::host();
    let made = plan(&fake, &changes, &recorded).unwrap();
    fake.files.insert("/proc/sys/vm/swappiness".into(), "30".into());
    let mut journal = self::journal();
    let error = apply(&mut fake, &mut journal, &made, (&changes, &recorded), about()).unwrap_err().to_string();
    assert!(error.contains("changed from 60 to 30 since the fix was shown"), "{error}");
    assert_eq!((fake.files["/proc/sys/vm/swappiness"].as_str(), journal.state), ("30", State::default()));
}

#[test]
fn without_rights_nothing_is_begun_and_it_says_who_may() {
    let mut fake = Fake { denied: true, ..Fake::host() };
    let (recorded, mut journal, changes) = (fake.known(), journal(), [pin(&[41], "1")]);
    let made = plan(&fake, &changes, &recorded).unwrap();
    let error = apply(&mut fake, &mut journal, &made, (&changes, &recorded), about()).unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("run it as root"), "{error}");
    assert_eq!(
        tailsight_units::chain(&error).matches("permission denied").count(),
        1,
        "{}",
        tailsight_units::chain(&error)
    );
    assert_eq!(journal.state, State::default());
}

/// Values are kept before the first write; where they cannot be, nothing is written.
#[test]
fn what_cannot_be_kept_is_not_done() {
    let mut fake = Fake::host();
    let (before, recorded) = (fake.values(), fake.known());
    let mut journal = Journal { state: State::default(), store: Disk { fails_at: Some(0), ..Disk::default() } };
    let changes = [pin(&[41], "1")];
    let made = plan(&fake, &changes, &recorded).unwrap();
    assert!(apply(&mut fake, &mut journal, &made, (&changes, &recorded), about()).is_err());
    assert!(fake.values() == before);
    assert_eq!(fake.writes, 0);
}

#[test]
fn changes_are_data_and_places_have_words() {
    let change = Change::Queues {
        device: "eth0".into(),
        direction: "rx".into(),
        file: "rps_cpus".into(),
        value: "2".into(),
        netns: Some(41),
    };
    let json = serde_json::to_value(&change).unwrap();
    let expected = serde_json::json!({"kind": "queues", "device": "eth0", "direction": "rx", "file": "rps_cpus", "value": "2",
        "netns": 41});
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<Change>(json).unwrap(), change);
    let place = Place::Device { device: "eth0".into(), setting: Setting::RxUsecs, netns: None };
    assert_eq!(place.to_string(), "rx-usecs of eth0");
}
