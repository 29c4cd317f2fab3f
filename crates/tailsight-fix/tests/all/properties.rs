//! Whatever is planned, whenever it fails or is killed: what was there before comes back exactly.

use proptest::prelude::*;
use tailsight_fix::{About, Change, Journal, Limit, State, apply, plan, undo, undo_since};

use crate::fake::{Disk, Fake, Thread};

fn pids() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![Just(vec![41]), Just(vec![50]), Just(vec![41, 50])]
}

fn cpus() -> impl Strategy<Value = String> {
    prop_oneof![Just("0".to_owned()), Just("1".to_owned()), Just("0,2-3".to_owned()), Just("0-3".to_owned())]
}

fn change() -> impl Strategy<Value = Change> {
    let sysctl = |(key, value): (&str, u32)| Change::Sysctl { key: key.into(), value: value.to_string(), netns: None };
    let keys = prop_oneof![Just("vm.swappiness"), Just("net.ipv4.tcp_fastopen"), Just("net.core.busy_poll")];
    prop_oneof![
        (keys, 0u32..80).prop_map(sysctl),
        (pids(), cpus()).prop_map(|(pids, cpus)| Change::Pin { pids, cpus }),
        (prop_oneof![Just("nginx"), Just("mc-worker"), Just("kworker/1:0")], cpus())
            .prop_map(|(comm, cpus)| Change::PinNamed { comm: comm.into(), seen: vec![50], cpus }),
        pids().prop_map(|pids| Change::RealTime { pids }),
        pids().prop_map(|pids| Change::DiskFirst { pids }),
        pids().prop_map(|pids| Change::Continue { pids }),
        (0u64..200).prop_map(|slower_than_us| Change::IdleStates { slower_than_us }),
        Just(Change::Coalescing { device: "eth0".into(), netns: None }),
        Just(Change::NoLimit { pids: vec![41], limit: Limit::CpuQuota }),
        Just(Change::NoLimit { pids: vec![41], limit: Limit::MemoryHigh }),
        Just(Change::Thaw { pids: vec![41] }),
        cpus().prop_map(|cpus| Change::Interrupts { irqs: vec![38], cpus }),
        "[0-9a-f]".prop_map(|value| Change::Queues {
            device: "eth0".into(),
            direction: "rx".into(),
            file: "rps_cpus".into(),
            value,
            netns: None,
        }),
    ]
}

/// Threads with values of their own beside those of the example.
fn host() -> impl Strategy<Value = Fake> {
    let policy = prop_oneof![Just("other 0"), Just("batch 0"), Just("fifo 1"), Just("rr 3"), Just("deadline")];
    let thread = (prop_oneof![Just(41u32), Just(50)], 60u32..70, policy, cpus(), 0u64..9_000);
    prop::collection::vec(thread, 0..6).prop_map(|threads| {
        let mut fake = Fake::host();
        for (pid, tid, policy, cpus, started) in threads {
            // A thread id is one thread's.
            if !fake.threads.keys().any(|(_, t)| *t == tid) {
                fake.threads.insert((pid, tid), Thread::new("mc-worker", started, policy, &cpus));
            }
        }
        fake
    })
}

/// Applies one after the other, as far as they go; each is a fix of its own.
fn apply_all(fake: &mut Fake, journal: &mut Journal<Disk>, fixes: &[Vec<Change>]) {
    for changes in fixes {
        let recorded = fake.known();
        if let Ok(plan) = plan(fake, changes, &recorded) {
            let about = About { title: "t".into(), run: "r".into(), when: "w".into() };
            let before = fake.values();
            let result = apply(fake, journal, &plan, (changes, &recorded), about);
            // All of it or none of it, while there is somebody to take it back.
            assert!(result.is_ok() || !fake.alive.get() || fake.values() == before, "{result:?}");
        }
    }
}

fn again(disk: &Disk) -> Journal<Disk> {
    Journal { state: State::parse(&disk.text).expect("the file reads"), store: Disk::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Applied, failing at any write or at none, and undone by another process from the file.
    #[test]
    fn undone_is_as_before(
        fake in host(),
        fixes in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..4),
        fails_at in prop::option::of(0usize..20),
    ) {
        let mut fake = Fake { fails_at, ..fake };
        let before = fake.values();
        let mut journal = Journal { state: State::default(), store: Disk::default() };
        apply_all(&mut fake, &mut journal, &fixes);
        fake.fails_at = None;
        let mut journal = again(&journal.store);
        undo(&mut fake, &mut journal, false).expect("kept");
        prop_assert!(fake.values() == before, "{fake:?}");
        prop_assert_eq!(journal.state, State::default());
    }

    /// The later fixes are undone alone: the host is as it was when they began, and the earlier ones can still be undone.
    #[test]
    fn the_last_fixes_are_undone_alone(
        fake in host(),
        kept in prop::collection::vec(prop::collection::vec(change(), 1..4), 0..3),
        tried in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..3),
    ) {
        let mut fake = fake;
        let before = fake.values();
        let mut journal = Journal { state: State::default(), store: Disk::default() };
        apply_all(&mut fake, &mut journal, &kept);
        let (with_kept, first) = (fake.values(), journal.state.fixes.len());
        apply_all(&mut fake, &mut journal, &tried);
        let mut journal = again(&journal.store);
        undo_since(&mut fake, &mut journal, first, false).expect("kept");
        prop_assert!(fake.values() == with_kept, "{fake:?}");
        prop_assert_eq!(journal.state.fixes.len(), first);
        undo(&mut fake, &mut journal, false).expect("kept");
        prop_assert!(fake.values() == before, "{fake:?}");
    }

    /// Killed before any write, of the fixes or of an undo that was begun: the next undo restores it.
    #[test]
    fn killed_anywhere_is_undone_as_before(
        fake in host(),
        fixes in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..4),
        killed_at in 0usize..20,
        killed_again_at in 0usize..20,
    ) {
        let mut fake = Fake { killed_at: Some(killed_at), ..fake };
        let before = fake.values();
        let disk = Disk { alive: Some(fake.alive.clone()), ..Disk::default() };
        let mut journal = Journal { state: State::default(), store: disk };
        apply_all(&mut fake, &mut journal, &fixes);

        // An undo, killed too.
        (fake.writes, fake.killed_at) = (0, Some(killed_again_at));
        fake.alive.set(true);
        let (text, alive) = (journal.store.text.clone(), fake.alive.clone());
        let disk = Disk { text, alive: Some(alive), ..Disk::default() };
        let mut journal = Journal { state: State::parse(&disk.text).expect("the file reads"), store: disk };
        let _ = undo(&mut fake, &mut journal, false);

        fake.killed_at = None;
        fake.alive.set(true);
        let mut journal = again(&journal.store);
        undo(&mut fake, &mut journal, false).expect("kept");
        prop_assert!(fake.values() == before, "{fake:?}");
        prop_assert_eq!(journal.state, State::default());
    }
}
