//! The category table: every owner gets one category, the default table says what it should, errors name their place.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use syscalls::Sysno;
use tailsight_diagnose::categories::{Task, refining};
use tailsight_diagnose::{Category, CategoryTable, Error};
use tailsight_lifetime::{Context, Doing, Frame, FrameKind, Leg, Owner, Role};

use crate::common::{foreign, kthread, net_rx, owner, sys};

#[path = "table_functions.rs"]
mod functions;
#[path = "table_live.rs"]
mod live;

const LEGS: [Leg; 3] = [Leg::Receive, Leg::Service, Leg::Transmit];

fn context() -> impl Strategy<Value = Context> {
    let comm =
        prop_oneof!["[a-z/0-9{} ]{0,15}", Just("ksoftirqd/0".into()), Just("tailsight".into()), Just("irq/9-x".into())];
    prop_oneof![
        Just(Context::Own),
        Just(Context::Ahead),
        Just(Context::Idle),
        Just(Context::Blocked),
        Just(Context::Unknown),
        comm.clone().prop_map(|comm| Context::Sibling { comm }),
        (comm, any::<bool>()).prop_map(|(comm, kernel)| Context::Foreign { comm, kernel }),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let nr = prop_oneof![0..500u32, Just(u32::MAX)];
    prop_oneof![
        nr.clone().prop_map(|nr| Frame::Syscall { nr }),
        (0..12u8, any::<bool>()).prop_map(|(vec, inline)| Frame::Softirq { vec, inline }),
        (0..200u32).prop_map(|irq| Frame::Irq { irq }),
        (0..14u16).prop_map(|which| Frame::Vector { which }),
        Just(Frame::Csd),
        (0..3u32).prop_map(|symbol| Frame::Work { symbol }),
        (any::<bool>(), any::<u16>()).prop_map(|(own, port)| Frame::Packet { own, port, app: 0 }),
        (0..9u8).prop_map(|state| Frame::IdleState { state }),
        Just(Frame::WakePending),
        Just(Frame::Runnable),
        (nr, any::<bool>(), any::<bool>()).prop_map(|(nr, uninterruptible, io)| Frame::SleepIn {
            nr,
            uninterruptible,
            io
        }),
        Just(Frame::Stopped),
        Just(Frame::TxQueued),
        (0..3u32).prop_map(|symbol| Frame::Stack { symbol }),
        (0..3u32).prop_map(|symbol| Frame::WokenBy { symbol }),
        (0..4u8).prop_map(|which| Frame::Reclaim { which }),
        (0..3u32).prop_map(|symbol| Frame::Peer { symbol, guessed: false }),
        (0..3u32).prop_map(|symbol| Frame::Turn { symbol, guessed: false }),
        Just(Frame::Serving),
        Just(Frame::Throttled),
        Just(Frame::Stolen),
        Just(Frame::KernelLock),
        Just(Frame::TcpHole),
        (0..3u32, any::<bool>()).prop_map(|(symbol, kernel)| Frame::Function { symbol, kernel }),
        (0..3u32).prop_map(|stack| Frame::Place { stack }),
        Just(Frame::ConnectionSetup),
        Just(Frame::TaskReady),
        Just(Frame::JobQueued),
        prop::sample::select(one_of_each_other_kind()),
    ]
}

/// A frame of each kind that is not made with varied numbers above.
fn one_of_each_other_kind() -> Vec<Frame> {
    vec![
        Frame::Timer { guessed: false },
        Frame::Parked,
        Frame::PutAside,
        Frame::BetweenSends,
        Frame::FileSync,
        Frame::RequestArriving,
        Frame::Unseen,
        Frame::NicToDriver,
        Frame::DriverToNic,
        Frame::TxSocket,
        Frame::TxQdisc,
        Frame::TxRecovery,
        Frame::TxDropped { symbol: 0 },
        Frame::Migrate { why: 0 },
        Frame::Meanwhile { doing: Doing::Runs, stack: 0, server: 0 },
        Frame::MadeReady { stack: 0 },
    ]
}

/// A new kind of frame is tried by `every_owner_has_one_category`, too.
#[test]
fn every_kind_of_frame_is_tried() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut tried = || frame().new_tree(&mut runner).unwrap().current().kind();
    let tried: HashSet<FrameKind> = (0..20_000).map(|_| tried()).collect();
    let missing: Vec<&FrameKind> = FrameKind::ALL.iter().filter(|kind| !tried.contains(*kind)).collect();
    assert!(missing.is_empty(), "add these to frame(): {missing:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any owner, possible or not, has one category of the stable ids and a name; only time that the recording cannot tell,
    /// or a sleep that no rule knows, is unexplained.
    #[test]
    fn every_owner_has_one_category(
        context in context(),
        frames in prop::collection::vec(frame(), 0..5),
        leg in prop::sample::select(LEGS.to_vec()),
        role in prop::sample::select(vec![Role::A, Role::R]),
    ) {
        let owner = Owner { context, frames };
        let verdict = CategoryTable::default().classify(&owner, &Task::default(), leg, role, "memcached", &["work_fn".into()]);
        prop_assert!(Category::ALL.contains(&verdict.category), "{verdict:?}");
        prop_assert!(!verdict.name.is_empty());
        prop_assert!(verdict.nested_from <= owner.frames.len());
        if verdict.category.as_str() == "unexplained" {
            prop_assert!(matches!(owner.context, Context::Unknown | Context::Blocked), "{owner:?}");
        }
    }
}

/// What the default table says about owners as recordings have them.
#[test]
fn default_table() {
    use Leg::{Receive, Service, Transmit};
    use Role::{A, R};
    let vector = Frame::Vector { which: 0 };
    let irq = Frame::Irq { irq: 24 };
    let own_packet = Frame::Packet { own: true, port: 11211, app: 0 };
    let packet = Frame::Packet { own: false, port: 8088, app: 0 };
    let sleep = |nr: Sysno| Frame::SleepIn { nr: nr as u32, uninterruptible: false, io: false };
    let disk = |nr: Sysno| Frame::SleepIn { nr: nr as u32, uninterruptible: true, io: false };
    let sibling = || Context::Sibling { comm: "mc-worker".into() };
    let symbols = ["flush_fn".to_owned()];
    let cases = [
        // Other tasks, and what they caused themselves; interrupts on their time are not theirs.
        (Receive, A, owner(foreign("nginx"), &[]), "interference", "nginx"),
        (Receive, A, owner(foreign("nginx"), &[net_rx(true), packet]), "interference", "nginx"),
        (Receive, A, owner(foreign("nginx"), &[net_rx(true), packet, vector]), "interrupts", "vector:local_timer"),
        (Receive, A, owner(foreign("nginx"), &[irq]), "interrupts", "irq:24"),
        (Receive, A, owner(foreign("nginx"), &[irq, net_rx(false), packet]), "receive-processing", "packet:8088"),
        (Receive, A, owner(foreign("nginx"), &[net_rx(false), own_packet]), "receive-processing", "net_rx"),
        (
            Receive,
            A,
            owner(foreign("nginx"), &[Frame::Softirq { vec: 2, inline: false }]),
            "transmit-processing",
            "net_tx",
        ),
        (Receive, A, owner(foreign("nginx"), &[Frame::Softirq { vec: 9, inline: false }]), "interrupts", "softirq:rcu"),
        (Receive, A, owner(foreign("nginx"), &[vector, Frame::Csd]), "interrupts", "csd"),
        // A sender on the receive core runs the receive softirq of loopback and veth.
        (Receive, R, owner(foreign("client"), &[net_rx(true), own_packet]), "receive-processing", "net_rx"),
        (Receive, R, owner(foreign("client"), &[]), "interference", "client"),
        (Receive, A, owner(foreign("client"), &[net_rx(true), own_packet]), "interference", "client"),
        // A runtime's own threads.
        (Service, A, owner(Context::Sibling { comm: "C2 CompilerThre".into() }, &[]), "runtime", "Java compiling"),
        (
            Service,
            A,
            owner(
                Context::Sibling { comm: "G1 Conc#0".into() },
                &[Frame::SleepIn { nr: 202, uninterruptible: false, io: false }],
            ),
            "runtime",
            "Java collecting garbage",
        ),
        // Kernel threads.
        (Receive, A, owner(kthread("ksoftirqd/1"), &[]), "os-threads", "ksoftirqd"),
        (Receive, A, owner(kthread("ksoftirqd/1"), &[net_rx(true), own_packet]), "os-threads", "ksoftirqd"),
        (Receive, R, owner(kthread("ksoftirqd/1"), &[net_rx(false), packet]), "receive-processing", "packet:8088"),
        (Receive, A, owner(kthread("kworker/1:0-events"), &[Frame::Work { symbol: 0 }]), "os-threads", "kworker"),
        (Receive, A, owner(kthread("rcu_preempt"), &[]), "os-threads", "rcu_preempt"),
        (Receive, A, owner(kthread("irq/24-eth0"), &[]), "os-threads", "irq/24-eth0"),
        (Receive, A, owner(foreign("tailsight"), &[]), "profiler", "tailsight"),
        // The application.
        (Receive, A, owner(Context::Ahead, &[]), "hol-blocking", "memcached"),
        (Receive, A, owner(Context::Ahead, &[sys(Sysno::sendmsg), net_rx(true), packet]), "hol-blocking", "memcached"),
        (Receive, A, owner(Context::Ahead, &[sys(Sysno::sendmsg), vector]), "interrupts", "vector:local_timer"),
        (Receive, A, owner(sibling(), &[sys(Sysno::futex)]), "app-processing", "mc-worker (other thread)"),
        (Receive, R, owner(sibling(), &[]), "app-processing", "mc-worker"),
        (Receive, A, owner(Context::Own, &[]), "app-processing", "user"),
        (Receive, A, owner(Context::Own, &[sys(Sysno::epoll_pwait)]), "app-processing", "epoll_pwait"),
        (
            Receive,
            A,
            owner(Context::Own, &[sys(Sysno::recvmsg), net_rx(false), packet]),
            "receive-processing",
            "packet:8088",
        ),
        // Regression: a flood that the thread's own softirqs worked off was its own work.
        (Receive, A, owner(Context::Own, &[net_rx(true), packet]), "receive-processing", "packet:8088"),
        (Service, A, owner(Context::Own, &[net_rx(true), packet]), "receive-processing", "packet:8088"),
        (Service, A, owner(Context::Own, &[]), "app-processing", "user"),
        (Service, A, owner(Context::Own, &[sys(Sysno::futex)]), "app-processing", "futex"),
        (Transmit, A, owner(Context::Own, &[sys(Sysno::sendmsg)]), "transmit-processing", "sendmsg"),
        (
            Transmit,
            A,
            owner(Context::Own, &[sys(Sysno::sendmsg), net_rx(true), packet]),
            "transmit-processing",
            "sendmsg",
        ),
        // Without system-call hooks the call around it is not seen.
        (Transmit, A, owner(Context::Own, &[]), "transmit-processing", "send"),
        (Transmit, A, owner(Context::Own, &[Frame::Softirq { vec: 9, inline: true }]), "transmit-processing", "send"),
        (Transmit, A, owner(Context::Own, &[net_rx(true), packet]), "transmit-processing", "packet:8088"),
        (Transmit, A, owner(Context::Own, &[sys(Sysno::futex)]), "app-processing", "futex"),
        // Waiting.
        (Receive, A, owner(Context::Idle, &[Frame::WakePending]), "wakeup-delay", "wake-pending"),
        (Receive, A, owner(Context::Idle, &[Frame::IdleState { state: 2 }]), "wakeup-delay", "idle"),
        (Receive, R, owner(Context::Idle, &[Frame::IdleState { state: 2 }]), "softirq-delay", "idle"),
        (Receive, R, owner(Context::Idle, &[Frame::IdleState { state: 2 }, irq]), "interrupts", "irq:24"),
        (Receive, A, owner(Context::Blocked, &[Frame::Runnable]), "wakeup-delay", "runnable"),
        // Nobody is known to have held anything: a timer ended it.
        (Receive, A, owner(Context::Blocked, &[sleep(Sysno::futex)]), "app-processing", "waits in futex"),
        (Receive, A, owner(Context::Blocked, &[disk(Sysno::read)]), "disk-wait", "read"),
        (Receive, A, owner(Context::Blocked, &[sleep(Sysno::fsync)]), "disk-wait", "fsync"),
        (Service, A, owner(Context::Blocked, &[disk(Sysno::madvise)]), "paging", "madvise"),
        (Service, A, owner(Context::Blocked, &[sleep(Sysno::connect)]), "connection-setup", "connect"),
        (Receive, A, owner(Context::Blocked, &[Frame::Stopped]), "stopped", "stopped"),
        (Receive, A, owner(Context::Blocked, &[sleep(Sysno::epoll_pwait)]), "wakeup-delay", "not woken yet"),
        (Service, A, owner(Context::Blocked, &[sleep(Sysno::epoll_pwait)]), "app-processing", "waits in epoll_pwait"),
        (Receive, A, owner(Context::Blocked, &[sleep(Sysno::sendmsg)]), "hol-blocking", "memcached"),
        (Service, A, owner(Context::Blocked, &[sleep(Sysno::clock_nanosleep)]), "app-processing", "clock_nanosleep"),
        (Transmit, A, owner(Context::Blocked, &[sleep(Sysno::sendmsg)]), "transmit-processing", "sendmsg"),
        (Transmit, A, owner(Context::Blocked, &[Frame::TxQueued]), "transmit-processing", "queued"),
        (
            Receive,
            A,
            owner(Context::Blocked, &[Frame::SleepIn { nr: u32::MAX, uninterruptible: true, io: false }]),
            "disk-wait",
            "unknown call",
        ),
        (
            Receive,
            A,
            owner(Context::Blocked, &[Frame::SleepIn { nr: u32::MAX, uninterruptible: false, io: false }]),
            "unexplained",
            "unexplained",
        ),
        (Receive, A, owner(Context::Unknown, &[]), "unexplained", "unexplained"),
    ];
    let table = CategoryTable::default();
    for (leg, role, owner, category, name) in cases {
        let verdict = table.classify(&owner, &Task::default(), leg, role, "memcached", &symbols);
        assert_eq!((verdict.category.as_str(), verdict.name.as_str()), (category, name), "{leg:?} {role:?} {owner:?}");
    }
}

/// Why a thread waited: frames of the lifetime beside system calls, and the kernel stack of the sleep.
#[test]
fn waits_explained() {
    use Context::{Blocked, Idle, Own};
    use Leg::{Receive, Service};
    let symbols: Vec<String> = [
        "",
        "jbd2",
        "__schedule;schedule;rwsem_down_read_slowpath;down_read;lock_mm_and_find_vma;exc_page_fault;asm_exc_page_fault",
        "__schedule;schedule;do_epoll_wait;__x64_sys_epoll_wait;do_syscall_64",
        "__schedule;schedule;jbd2_log_wait_commit;ext4_sync_file;__x64_sys_fsync;do_syscall_64",
        "__schedule;io_schedule;folio_wait_bit_common;filemap_fault;__do_fault;exc_page_fault;asm_exc_page_fault",
        "__schedule;my_driver_wait",
        "__schedule;schedule;anon_pipe_write;vfs_write;ksys_write;__x64_sys_write;do_syscall_64",
    ]
    .map(str::to_owned)
    .to_vec();
    let sleep_in = |nr: u32, uninterruptible, io| Frame::SleepIn { nr, uninterruptible, io };
    let (fault, epoll) = (sleep_in(u32::MAX - 1, false, false), sleep_in(Sysno::epoll_wait as u32, false, false));
    let (fsync, unknown) = (sleep_in(Sysno::fsync as u32, true, false), sleep_in(u32::MAX, false, false));
    let (futex, write) = (sleep_in(Sysno::futex as u32, false, false), sleep_in(Sysno::write as u32, false, false));
    let read = sleep_in(Sysno::read as u32, true, true);
    let stack = |symbol| Frame::Stack { symbol };
    let woken = Frame::WokenBy { symbol: 1 };
    let sibling = || Context::Sibling { comm: "mc-worker".into() };
    let vector = Frame::Vector { which: 0 };
    let reclaim = |which| Frame::Reclaim { which };
    let cases: Vec<(Leg, Owner, &str, &str)> = vec![
        (Receive, owner(foreign("nginx"), &[Frame::Stolen]), "steal", "hypervisor"),
        (Receive, owner(Idle, &[Frame::Stolen]), "steal", "hypervisor"),
        (Service, owner(Own, &[sys(Sysno::read), vector, Frame::Stolen]), "steal", "hypervisor"),
        (Receive, owner(Blocked, &[Frame::Throttled]), "throttled", "cpu quota"),
        (Receive, owner(Blocked, &[Frame::TcpHole]), "tcp-recovery", "hole"),
        (Receive, owner(Blocked, &[Frame::RequestArriving]), "client-wait", "request still arriving"),
        (Receive, owner(sibling(), &[Frame::ConnectionSetup, sys(Sysno::accept4)]), "connection-setup", "mc-worker"),
        (Receive, owner(sibling(), &[Frame::ConnectionSetup, vector]), "interrupts", "vector:local_timer"),
        (Service, owner(sibling(), &[Frame::TaskReady]), "scheduler-wait", "other tasks"),
        (Service, owner(sibling(), &[Frame::TaskReady, Frame::Serving]), "scheduler-wait", "other tasks"),
        (Service, owner(sibling(), &[Frame::TaskReady, vector]), "interrupts", "vector:local_timer"),
        (
            Service,
            owner(
                Blocked,
                &[Frame::SleepIn { nr: Sysno::poll as u32, uninterruptible: false, io: false }, Frame::PutAside],
            ),
            "app-processing",
            "put aside, its thread in poll",
        ),
        (Service, owner(sibling(), &[Frame::JobQueued]), "pool-wait", "threads for jobs that block"),
        (Service, owner(sibling(), &[Frame::JobQueued, vector]), "interrupts", "vector:local_timer"),
        (Leg::Transmit, owner(Own, &[]), "transmit-processing", "send"),
        (Leg::Transmit, owner(Own, &[Frame::BetweenSends]), "app-processing", "user"),
        (Leg::Transmit, owner(Own, &[Frame::BetweenSends, vector]), "interrupts", "vector:local_timer"),
        (Service, owner(Own, &[reclaim(1)]), "paging", "memcg"),
        (Service, owner(Context::Ahead, &[sys(Sysno::write), reclaim(0)]), "paging", "host reclaim"),
        (Service, owner(Blocked, &[fault, reclaim(2)]), "paging", "compaction"),
        (Service, owner(sibling(), &[futex, reclaim(1)]), "paging", "memcg"),
        (Receive, owner(foreign("nginx"), &[reclaim(1)]), "interference", "nginx"),
        (Service, owner(Own, &[sys(Sysno::madvise), Frame::KernelLock]), "lock-wait", "kernel lock"),
        (Service, owner(Blocked, &[fsync, Frame::KernelLock]), "lock-wait", "kernel lock"),
        (Service, owner(Blocked, &[fault, Frame::KernelLock, stack(2)]), "lock-wait", "mmap_lock"),
        (Service, owner(sibling(), &[futex]), "lock-wait", "mc-worker holds it"),
        (Service, owner(sibling(), &[futex, sys(Sysno::write)]), "lock-wait", "mc-worker holds it"),
        (Service, owner(sibling(), &[fsync]), "lock-wait", "mc-worker holds it"),
        (Service, owner(sibling(), &[futex, Frame::FileSync]), "disk-wait", "fsync of mc-worker, which is waited for"),
        (Service, owner(sibling(), &[Frame::FileSync]), "disk-wait", "fsync"),
        (Receive, owner(Context::Ahead, &[epoll]), "hol-blocking", "memcached"),
        (Service, owner(Context::Ahead, &[read, stack(3)]), "hol-blocking", "memcached"),
        (Service, owner(sibling(), &[epoll]), "app-processing", "mc-worker (other thread)"),
        (Service, owner(Blocked, &[read]), "disk-wait", "read"),
        (Service, owner(Blocked, &[fault]), "paging", "page fault"),
        (Service, owner(Blocked, &[sleep_in(u32::MAX - 1, true, true)]), "paging", "page fault"),
        (Service, owner(Blocked, &[fault, stack(2)]), "lock-wait", "mmap_lock"),
        (Service, owner(Blocked, &[sleep_in(u32::MAX - 1, true, true), stack(5)]), "paging", "major-fault"),
        (Service, owner(Blocked, &[fsync, stack(4), woken]), "disk-wait", "journal"),
        (Receive, owner(Blocked, &[epoll, stack(3)]), "wakeup-delay", "not woken yet"),
        // After the receive call it was a timer that the message waited for.
        (
            Service,
            owner(Blocked, &[epoll, stack(3), Frame::Timer { guessed: true }]),
            "app-processing",
            "waits in epoll_wait until a timer",
        ),
        // A timer ended it: whatever it waited for, the message was not it.
        (
            Receive,
            owner(Blocked, &[epoll, stack(3), Frame::Timer { guessed: false }]),
            "app-processing",
            "waits in epoll_wait",
        ),
        (Receive, owner(Blocked, &[epoll, Frame::Timer { guessed: false }]), "app-processing", "waits in epoll_wait"),
        (Receive, owner(sibling(), &[write, epoll]), "app-processing", "waits in write for mc-worker"),
        // The log of the reply before goes to a full pipe, whose stack is a wait for a peer as epoll_wait's is.
        (Receive, owner(Blocked, &[write, stack(7)]), "hol-blocking", "memcached"),
        (Receive, owner(Blocked, &[write, stack(7), woken]), "hol-blocking", "memcached"),
        (Service, owner(Blocked, &[write, stack(7)]), "app-processing", "waits in write"),
        (Service, owner(Blocked, &[epoll, stack(3)]), "app-processing", "waits in epoll_wait"),
        (Service, owner(Blocked, &[epoll, stack(3), woken]), "app-processing", "waits in epoll_wait for jbd2"),
        (Service, owner(Blocked, &[unknown, woken]), "app-processing", "waits for jbd2"),
        (Service, owner(Blocked, &[unknown, stack(6), woken]), "app-processing", "waits for jbd2"),
        (Service, owner(Blocked, &[unknown, stack(6)]), "unexplained", "unexplained"),
    ];
    let table = CategoryTable::default();
    for (leg, owner, category, name) in cases {
        let verdict = table.classify(&owner, &Task::default(), leg, Role::A, "memcached", &symbols);
        assert_eq!((verdict.category.as_str(), verdict.name.as_str()), (category, name), "{leg:?} {owner:?}");
    }
    // Who ended the sleep may refine what the stack says; why a thread was waited for is no part of what it did.
    let from =
        |owner: &Owner| table.classify(owner, &Task::default(), Service, Role::A, "memcached", &symbols).nested_from;
    assert_eq!(from(&owner(Blocked, &[fsync, stack(4), woken])), 2);
    assert_eq!(from(&owner(sibling(), &[futex, sys(Sysno::write)])), 1);
}

/// Where in the program it was names the application's own time, refines other rows, and never changes what they are.
#[test]
fn traced_functions_name_own_time_and_refine_the_rest() {
    use Context::{Blocked, Own};
    let table = CategoryTable::default();
    let symbols = ["", "slow", "outer", "worker"].map(str::to_owned);
    let function = |symbol| Frame::Function { symbol, kernel: false };
    let futex = Frame::SleepIn { nr: Sysno::futex as u32, uninterruptible: false, io: false };
    let sibling = || Context::Sibling { comm: "w".into() };
    let cases = [
        (owner(Own, &[function(2), function(1)]), "app-processing", "function:slow", vec![]),
        (owner(Own, &[function(1), Frame::Vector { which: 0 }]), "interrupts", "vector:local_timer", vec![]),
        (owner(Context::Ahead, &[function(1)]), "hol-blocking", "memcached", vec!["function:slow"]),
        (owner(sibling(), &[futex, function(1)]), "lock-wait", "w holds it", vec!["function:slow"]),
        (
            owner(Blocked, &[function(1), futex, Frame::Place { stack: 3 }, Frame::WokenBy { symbol: 3 }]),
            "lock-wait",
            "futex",
            vec!["function:slow", "woken-by:worker"],
        ),
        (
            owner(Blocked, &[Frame::Peer { symbol: 2, guessed: true }, Frame::Place { stack: 3 }]),
            "backend-wait",
            "outer",
            vec![],
        ),
    ];
    for (owner, category, name, refined) in cases {
        let verdict = table.classify(&owner, &Task::default(), Leg::Service, Role::A, "memcached", &symbols);
        assert_eq!((verdict.category.as_str(), verdict.name.as_str()), (category, name), "{owner:?}");
        let frames = refining(&owner, verdict.nested_from).into_iter().map(|f| f.name(&symbols)).collect::<Vec<_>>();
        assert_eq!(frames, refined, "{owner:?}");
    }
    assert_eq!(owner(Blocked, &[futex, Frame::Place { stack: 3 }]).path(&symbols), "blocked/sleep:futex");
}

/// NSight's Table 1, by functions: of time that is known function by function (as from Intel PT), each of its rows is found. The call paths
/// are those of Linux 6.18, written down by hand; the functions in brackets are the innermost of each.
#[test]
fn rows_of_table_1_are_found_by_function() {
    use Context::{Ahead, Idle, Own};
    let table = CategoryTable::default();
    let said = |context: Context, before: &[Frame], path: &str, role: Role| {
        let mut symbols = vec![String::new()];
        let mut frames = before.to_vec();
        for name in path.split_whitespace() {
            symbols.push(name.to_owned());
            frames.push(Frame::Function { symbol: symbols.len() as u32 - 1, kernel: true });
        }
        let owner = owner(context, &frames);
        let verdict = table.classify(&owner, &Task::default(), Leg::Receive, role, "memcached", &symbols);
        let refined = refining(&owner, verdict.nested_from).last().map(|f| f.name(&symbols)).unwrap_or_default();
        (format!("{} {}", verdict.category, verdict.name), refined)
    };
    let net_rx = net_rx(false);
    let timer = Frame::Vector { which: 0 };
    /// Where, inside what, the call path, whose core; the row, and what refines it.
    type Row<'a> = (Context, &'a [Frame], &'a str, Role, &'a str, &'a str);
    #[rustfmt::skip]
    let rows: &[Row<'_>] = &[
        // Application interference (A), OS threads (A): whoever it is, and not what it did there.
        (foreign("nginx"), &[], "do_syscall_64 __x64_sys_recvfrom tcp_recvmsg", Role::A, "interference nginx", ""),
        (kthread("kworker/0:1"), &[], "worker_thread process_one_work", Role::A, "os-threads kworker", ""),
        (kthread("ksoftirqd/0"), &[], "run_ksoftirqd handle_softirqs net_rx_action", Role::A, "os-threads ksoftirqd", ""),
        // Head-of-line blocking (A): the application on behalf of other messages.
        (Ahead, &[], "do_syscall_64 __x64_sys_sendmsg tcp_sendmsg", Role::A, "hol-blocking memcached", "function:tcp_sendmsg"),
        // Receive processing (A) and (R): ip_rcv, net_rx_action, mlx5e_poll_rx_cq.
        (Own, &[net_rx], "net_rx_action __napi_poll process_backlog ip_rcv", Role::A, "receive-processing net_rx", "function:ip_rcv"),
        (Idle, &[net_rx], "net_rx_action mlx5e_napi_poll mlx5e_poll_rx_cq", Role::R, "receive-processing net_rx", "function:mlx5e_poll_rx_cq"),
        (Own, &[], "do_syscall_64 __x64_sys_epoll_wait do_softirq net_rx_action", Role::A, "receive-processing napi", "function:net_rx_action"),
        // CPU idle (A) and (R).
        (Idle, &[], "do_idle cpuidle_idle_call cpuidle_enter", Role::R, "softirq-delay idle", ""),
        // Paging (A): a page's protection changes, the kernel's NUMA balancing marks pages.
        (Own, &[], "do_syscall_64 __x64_sys_mprotect do_mprotect_pkey mprotect_fixup change_protection", Role::A, "paging mmap", "function:change_protection"),
        (Own, &[], "irqentry_exit_to_user_mode task_work_run task_numa_work change_prot_numa change_protection", Role::A, "paging numa-balancing", "function:change_protection"),
        (Own, &[], "asm_exc_page_fault exc_page_fault do_user_addr_fault handle_mm_fault do_numa_page", Role::A, "paging numa-balancing", "function:do_numa_page"),
        // Connection setup, as far as it is the kernel's.
        (Own, &[], "do_syscall_64 __x64_sys_accept4 inet_csk_accept", Role::A, "connection-setup accept", "function:inet_csk_accept"),
        // Interrupts on the way.
        (Own, &[timer], "hrtimer_interrupt tick_nohz_handler update_process_times", Role::A, "interrupts vector:local_timer", "function:update_process_times"),
        // Locks, and the copy that a helper does for the one who called it.
        (Own, &[], "do_syscall_64 __x64_sys_futex futex_wake", Role::A, "lock-wait futex", "function:futex_wake"),
        (Own, &[], "tcp_recvmsg skb_copy_datagram_iter _copy_to_iter", Role::A, "app-processing socket-receive (by skb_copy_datagram_iter)", "function:_copy_to_iter"),
    ];
    let mut different = Vec::new();
    for (context, before, path, role, expected, refined) in rows {
        let (name, by) = said(context.clone(), before, path, *role);
        if (name.as_str(), by.as_str()) != (*expected, *refined) {
            different.push(format!("{context:?} {path}: {name} / {by} and not {expected} / {refined}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A task cannot smuggle placeholders or terminal commands into names.
#[test]
fn names_are_only_names() {
    let table = CategoryTable::default();
    let name = |comm: &str| {
        table.classify(&owner(foreign(comm), &[]), &Task::default(), Leg::Receive, Role::A, "memcached", &[]).name
    };
    assert_eq!(name("{app}"), "{app}");
    assert_eq!(name("x\u{1b}[2Jy"), "x\u{fffd}[2Jy");
    // A server may be called like what is waited for in front of another one.
    let symbols = ["its turn to ask (127.0.0.1:9)".to_owned()];
    let frames = [Frame::Peer { symbol: 0, guessed: false }, Frame::Turn { symbol: 0, guessed: false }];
    let said = frames.map(|frame| {
        let waits = owner(Context::Blocked, &[frame]);
        let verdict = table.classify(&waits, &Task::default(), Leg::Service, Role::A, "memcached", &symbols);
        (verdict.category.as_str(), verdict.name)
    });
    let names = ["its turn to ask (127.0.0.1:9)", "its turn to ask its turn to ask (127.0.0.1:9)"].map(str::to_owned);
    assert_eq!(said, [("backend-wait", names[0].clone()), ("pool-wait", names[1].clone())]);
}

#[test]
fn errors_name_file_rule_and_field() {
    let cases = [
        ("[[rule]\n", "mine.toml", "cannot be read as TOML"),
        ("", "field `rule`", "there is no [[rule]] entry"),
        ("colour = 1\n", "field `colour`", "only [[rule]]"),
        ("[[rule]]\nname = 'x'\n", "rule 1, field `category`", "missing"),
        ("[[rule]]\ncategory = 'steal'\n", "rule 1, field `name`", "missing"),
        (
            "[[rule]]\ncategory='steal'\nname='x'\n[[rule]]\ncategory = 'mine'\nname = 'x'\n",
            "rule 2, field `category`",
            "not one of interference",
        ),
        ("[[rule]]\ncategory = '{wait}'\nname = 'x'\n", "field `category`", "needs the field `wait`"),
        ("[[rule]]\ncategory = 'steal'\nname = '{pid}'\n", "field `name`", "{comm}"),
        ("[[rule]]\ncategory = 'steal'\nname = 3\n", "field `name`", "a text is needed, not 3"),
        ("[[rule]]\ncategory = 'steal'\nname = 'x'\ncomm = 'nginx'\n", "field `comm`", "a list of texts"),
        ("[[rule]]\ncategory = 'steal'\nname = 'x'\nkernel = 'yes'\n", "field `kernel`", "true or false"),
        ("[[rule]]\ncategory = 'steal'\nname = 'x'\nleg = ['total']\n", "field `leg`", "receive, service and transmit"),
        ("[[rule]]\ncategory = 'steal'\nname = 'x'\nrole = 'B'\n", "field `role`", "use A or R"),
        ("[[rule]]\ncategory = 'steal'\nname = 'x'\ncontext = ['mine']\n", "field `context`", "not one of own"),
        ("[[rule]]\ncategory = 'steal'\nname = 'x'\npacket = 'any'\n", "field `packet`", "neither own nor foreign"),
        ("[[rule]]\ncategory = 'steal'\nname = 'x'\ncomn = ['nginx']\n", "field `comn`", "no such field"),
    ];
    for (text, place, why) in cases {
        let error = CategoryTable::parse(text, "mine.toml").expect_err(text);
        assert!(matches!(error, Error::Toml { .. } | Error::Rule { .. }));
        let message = error.to_string();
        for part in ["mine.toml", place, why] {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }
}

/// A user's table replaces the default one whole.
#[test]
fn user_table() {
    let text = "[[rule]]\ncategory = 'steal'\nname = 'thief {comm}'\ncomm = ['ngi*']\ncontext = ['foreign']\n";
    let table = CategoryTable::parse(text, "mine.toml").unwrap();
    let category = |comm: &str| {
        let v = table.classify(&owner(foreign(comm), &[]), &Task::default(), Leg::Receive, Role::A, "memcached", &[]);
        (v.category, v.name)
    };
    assert_eq!(category("nginx"), (Category::Steal, "thief nginx".into()));
    assert_eq!(category("redis"), (Category::Unexplained, "unexplained".into()));
}
