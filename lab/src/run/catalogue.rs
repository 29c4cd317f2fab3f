//! The scenarios. In: nothing. Out: every scenario with its known facts. Several right answers are given only where the same
//! nanoseconds can rightly have two names; docs/lab.md says why.

use std::net::SocketAddr;

use tailsight_lab::faults::Fault;
use tailsight_lab::probe::{Plan, ProbeProtocol, Special};
use tailsight_lab::servers::Service;
use tailsight_lab::truth::kind;
use tailsight_lab::wire::flags;
use tailsight_testbed::netns::SERVER_V4;

use super::scenario::{App, Cause, How, Load, PORT, Scenario, Step, Truth, any, named, plan, scenario, synthetic};

/// A load of requests that take long enough to be hit by a disturbance often while they are served.
fn spin() -> Plan {
    Plan { service: Service::Fixed(250_000.0), rate_per_s: 1_500.0, ..plan() }
}

/// A load in which a part of requests carries flags.
fn special(part: f64, flags: u8) -> Load {
    Load::Probe(Plan { special: Some(Special { part, flags, service: None }), ..plan() })
}

/// A fault program on the application's core.
fn on_server(fault: Fault, schedule: &'static str) -> Step {
    Step::Fault { fault, schedule, strength: 1.0, on_server: true, task: None }
}

/// A fault program on the client's core.
fn beside(fault: Fault, schedule: &'static str, strength: f64) -> Step {
    Step::Fault { fault, schedule, strength, on_server: false, task: None }
}

/// What the machine itself does to an application in which nothing is wrong; all of it is checked in the raw events. The
/// last two are the message's own way through the stack, and the recording.
pub(super) const MACHINE: &[Cause] = &[
    any("interference"),
    any("os-threads"),
    any("steal"),
    any("wakeup-delay"),
    any("interrupts"),
    any("nic-delay"),
    any("receive-processing"),
    any("profiler"),
];

const HOG: &[Cause] = &[named("interference", "lab-hog")];
const SECOND: &[Cause] = &[named("interference", "lab-second")];
const INTRUDER: &[Cause] = &[named("interference", "lab-intruder")];
const STOPPED: &[Cause] = &[any("stopped")];
const LOCK: &[Cause] = &[any("lock-wait")];
const DISK: &[Cause] = &[any("disk-wait")];
/// The call of fsync: the disk, and its wake-ups.
const SYNCED: &[Cause] = &[any("disk-wait"), any("wakeup-delay")];
const PAGING: &[Cause] = &[any("paging")];
const SETUP: &[Cause] = &[any("connection-setup")];
const BEHIND: &[Cause] = &[named("backend-wait", "lab-backend")];
const AHEAD: &[Cause] = &[any("hol-blocking")];
const RECOVERY: &[Cause] = &[any("tcp-recovery")];
const OWN: &[Cause] = &[any("app-processing")];

/// A cause that is known from the truth log of a task.
fn logged(causes: &'static [Cause], log: &'static str, kind: u64) -> Vec<Truth> {
    vec![Truth { causes, functions: None, how: How::Overlap { log, kind } }]
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let mut scenarios = clean();
    scenarios.extend(tasks());
    scenarios.extend(kernel());
    scenarios.extend(queues());
    scenarios.extend(waits());
    scenarios.extend(memory());
    scenarios.extend(network());
    scenarios.extend(super::programs::functions());
    scenarios
}

/// Scenarios of `lab what-if` alone: no what-if of theirs was looked at before the model was as it is, and the model is not worked on
/// with them. Once it was, they belong to [`all`], and others are needed here.
pub fn held_out() -> Vec<Scenario> {
    let memcached = |rate_per_s, name, about, step, expect| Scenario {
        app: App::Memcached,
        load: Load::Gets(rate_per_s),
        ..scenario(name, about, vec![step], expect)
    };
    vec![
        memcached(
            15_000.0,
            "memcached-hog",
            "memcached, 15,000 gets/s; a task uses its core",
            on_server(Fault::Hog, "5ms/70ms"),
            HOG,
        ),
        memcached(
            10_000.0,
            "memcached-stopped",
            "memcached, 10,000 gets/s; SIGSTOP and SIGCONT",
            beside(Fault::Stopper, "8ms/120ms", 1.0),
            STOPPED,
        ),
        Scenario {
            app: synthetic("--threads 2 --hold 3ms/45ms --inside-cpu 1"),
            leg: "service",
            load: Load::Probe(Plan {
                special: Some(Special { part: 1.0, flags: flags::LOCK, service: None }),
                rate_per_s: 3_000.0,
                ..plan()
            }),
            truth: logged(LOCK, "server", kind::HELD),
            ..scenario("lock-two-workers", "another thread holds the mutex of two workers", vec![], LOCK)
        },
    ]
}

/// Nothing is wrong. At a low load the requests are evenly spaced, 500 us for 10 us of work: none waits for another one
/// unless the machine delays both, and the application's own time does not vary. So a queue is no true cause there.
fn clean() -> Vec<Scenario> {
    let low = |protocol| Load::Probe(Plan { even: true, ..Plan::new(SocketAddr::new(SERVER_V4, PORT), protocol) });
    let own = |kind: &str| App::Own([kind, "--slice", "100us"].map(str::to_owned).to_vec());
    let clean = |name, about| Scenario { may: Some(MACHINE.to_vec()), ..scenario(name, about, vec![], &[]) };
    let queued = || Some(MACHINE.iter().chain(AHEAD).copied().collect());
    let busy = Plan { rate_per_s: 20_000.0, service: Service::Exponential(10_000.0), ..plan() };
    vec![
        Scenario {
            app: own("rpc"),
            load: low(ProbeProtocol::Echo),
            ..clean("clean-rpc", "null RPC, a thread a connection, low load; nothing is wrong")
        },
        Scenario {
            app: own("rpc-epoll"),
            load: low(ProbeProtocol::Echo),
            ..clean("clean-rpc-epoll", "null RPC on one thread, low load; nothing is wrong")
        },
        Scenario {
            app: own("rpc-udp"),
            load: low(ProbeProtocol::EchoUdp),
            ..clean("clean-rpc-udp", "null RPC over UDP, low load; nothing is wrong")
        },
        Scenario {
            load: low(ProbeProtocol::Synthetic),
            ..clean("clean-low", "5 us of service, 2,000 requests/s; nothing is wrong")
        },
        Scenario {
            load: Load::Probe(busy),
            expect: AHEAD.to_vec(),
            may: queued(),
            ..clean(
                "clean-high",
                "exponential service of 10 us, 20,000 requests/s: nothing is wrong, and the queue is the tail",
            )
        },
        Scenario {
            app: App::Memcached,
            load: Load::Gets(20_000.0),
            may: queued(),
            ..clean(
                "clean-memcached",
                "memcached, 20,000 gets/s at random times; nothing is wrong, and some wait for others",
            )
        },
    ]
}

/// Other tasks use the application's core.
fn tasks() -> Vec<Scenario> {
    vec![
        Scenario {
            truth: logged(HOG, "lab-hog", kind::RAN),
            // With the slices that every task has: a shorter one would not wait for the hog's.
            app: App::Own(vec!["synthetic".to_owned()]),
            ..scenario("cpu-hog", "a task uses the application's core", vec![on_server(Fault::Hog, "8ms/80ms")], HOG)
        },
        Scenario {
            truth: logged(INTRUDER, "lab-intruder", kind::RAN),
            ..scenario(
                "fifo-intruder",
                "a real-time task uses the application's core",
                vec![on_server(Fault::Intruder, "3ms/60ms")],
                INTRUDER,
            )
        },
        Scenario {
            truth: vec![
                Truth { causes: HOG, functions: None, how: How::Overlap { log: "lab-hog", kind: kind::RAN } },
                Truth { causes: SECOND, functions: None, how: How::Overlap { log: "lab-second", kind: kind::RAN } },
            ],
            ..scenario(
                "two-faults",
                "two real-time tasks use the application's core, one for 6 ms and one for 3 ms right behind it",
                vec![
                    Step::Fault {
                        fault: Fault::Intruder,
                        schedule: "6ms/100ms",
                        strength: 1.0,
                        on_server: true,
                        task: Some("lab-hog"),
                    },
                    // The same grid: it waits for the first to end, which has the same priority.
                    Step::Fault {
                        fault: Fault::Intruder,
                        schedule: "9ms/100ms",
                        strength: 1.0,
                        on_server: true,
                        task: Some("lab-second"),
                    },
                ],
                HOG,
            )
        },
        Scenario {
            app: App::Memcached,
            load: Load::Gets(5_000.0),
            ..scenario(
                "nginx-neighbour",
                "nginx under load on memcached's core",
                vec![Step::Nginx(8_000.0)],
                &[named("interference", "nginx")],
            )
        },
    ]
}

/// The kernel works on the application's core, or keeps the application from it.
fn kernel() -> Vec<Scenario> {
    vec![
        scenario(
            "udp-flood",
            "datagrams to another socket, through a long firewall; both are received on the application's core",
            vec![Step::ReceiveOnServer, Step::Firewall(3000), beside(Fault::Flood, "6ms/80ms", 25.0)],
            // The softirq runs in whatever task it meets, and in ksoftirqd when there is too much of it.
            &[any("receive-processing"), named("os-threads", "ksoftirqd")],
        ),
        scenario(
            "kernel-thread",
            "a kernel thread receives a flood for another socket, through a long firewall, on the application's core",
            vec![Step::ThreadedNapi, Step::Firewall(3000), beside(Fault::Flood, "6ms/80ms", 25.0)],
            &[named("os-threads", "napi")],
        ),
        Scenario {
            truth: logged(STOPPED, "lab-stopper", kind::STOPPED),
            ..scenario("stopped", "SIGSTOP and SIGCONT", vec![beside(Fault::Stopper, "5ms/100ms", 1.0)], STOPPED)
        },
        Scenario {
            load: Load::Probe(Plan {
                burst: 100,
                burst_part: 0.004,
                service: Service::Fixed(20_000.0),
                rate_per_s: 1_200.0,
                ..plan()
            }),
            ..scenario(
                "throttled",
                "a CPU quota of 3 ms in 50 ms, which is enough but for a burst of requests now and then",
                vec![Step::Quota { quota_us: 3_000, period_us: 50_000 }],
                &[any("throttled")],
            )
        },
        scenario(
            "timer-storm",
            "timers expire on the application's core",
            vec![beside(Fault::Timers, "10ms/100ms", 800.0)],
            &[any("interrupts")],
        ),
        Scenario {
            app: synthetic("--read-one"),
            load: Load::Probe(spin()),
            leg: "service",
            ..scenario(
                "migration",
                "the application's threads are moved from core to core while they work",
                vec![beside(Fault::Migrator, "20ms/100ms", 800.0)],
                // The stopper thread does the move; the rest is the wait on the other core, where the mover runs too.
                &[any("wakeup-delay"), named("os-threads", "migration"), named("interference", "lab-migrator")],
            )
        },
    ]
}

/// A fault of the application itself: how it is started, the slow leg, its requests, and what must be found.
fn inside(
    app: &str,
    leg: &'static str,
    load: Load,
    name: &'static str,
    about: &'static str,
    expect: &[Cause],
    truth: Vec<Truth>,
) -> Scenario {
    Scenario { app: synthetic(app), leg, load, truth, ..scenario(name, about, vec![], expect) }
}

/// Some requests take long, and others wait behind them.
fn queues() -> Vec<Scenario> {
    let slow = Special { part: 0.03, flags: 0, service: Some(Service::Fixed(2e6)) };
    // So few that most of the slowest 1 % are those behind them.
    let rare = Special { part: 0.001, flags: 0, service: Some(Service::Fixed(4e6)) };
    let rare = || Load::Probe(Plan { special: Some(rare), rate_per_s: 4_000.0, ..plan() });
    vec![
        inside(
            "",
            "service",
            Load::Probe(Plan { special: Some(slow), rate_per_s: 1_500.0, ..plan() }),
            "slow-class",
            "3 % of requests take 2 ms instead of 5 us",
            OWN,
            vec![Truth { causes: OWN, functions: None, how: How::Service }],
        ),
        inside(
            "--read-one",
            "receive",
            Load::Probe(Plan {
                burst: 24,
                burst_part: 0.05,
                service: Service::Fixed(40_000.0),
                rate_per_s: 1_500.0,
                ..plan()
            }),
            "pipelined-bursts",
            "some requests come 24 at a time on one connection",
            AHEAD,
            vec![Truth { causes: AHEAD, functions: None, how: How::Others }],
        ),
        Scenario {
            root: Some(any("app-processing")),
            ..inside(
                "--queue shared",
                "service",
                rare(),
                "sibling-queue",
                "one thread reads all requests, another one serves them, one in 1,000 for 4 ms: the others wait in its queue",
                AHEAD,
                vec![Truth { causes: AHEAD, functions: None, how: How::Ahead }],
            )
        },
        Scenario {
            root: Some(any("app-processing")),
            // With the slices that every task has: a shorter one would not wait for the sibling's.
            app: App::Own(["synthetic", "--threads", "2"].map(str::to_owned).to_vec()),
            ..inside(
                "",
                "receive",
                rare(),
                "sibling-core",
                "two workers share a core, and one in 1,000 requests takes one of them 4 ms",
                AHEAD,
                vec![Truth { causes: AHEAD, functions: None, how: How::Ahead }],
            )
        },
    ]
}

/// Requests wait for something that the application asked for: an answer, a lock, a disk, another thread.
fn waits() -> Vec<Scenario> {
    vec![
        Scenario {
            steps: vec![Step::Behind("6ms/80ms")],
            ..inside(
                // One worker for each connection: all requests that come meanwhile ask too, and none waits for another one.
                "--threads 8 --read-one --behind 127.0.0.1:7100",
                "service",
                special(1.0, flags::ASK),
                "slow-backend",
                "each request asks a server behind, which keeps its answers back for up to 6 ms now and then",
                BEHIND,
                logged(BEHIND, "lab-backend", kind::STALLED),
            )
        },
        inside(
            "--hold 4ms/60ms --inside-cpu 1",
            "service",
            special(1.0, flags::LOCK),
            "lock-wait",
            "another thread holds the mutex that each request takes",
            LOCK,
            logged(LOCK, "server", kind::HELD),
        ),
        inside(
            "--read-one --dir DIR",
            "service",
            Load::Probe(Plan {
                special: Some(Special { part: 0.02, flags: flags::FSYNC, service: None }),
                rate_per_s: 1_500.0,
                ..plan()
            }),
            "fsync",
            "2 % of requests wait for fsync",
            DISK,
            logged(SYNCED, "server", kind::FSYNC),
        ),
        inside(
            "--handoff 3ms",
            "receive",
            Load::Probe(Plan { fresh: 0.04, rate_per_s: 1_500.0, ..plan() }),
            "connection-setup",
            "the accepting thread keeps new connections for 3 ms before a worker gets them",
            SETUP,
            logged(SETUP, "server", kind::HANDOFF),
        ),
    ]
}

/// Memory, and what the threads of a process do to each other through it.
fn memory() -> Vec<Scenario> {
    vec![
        inside(
            "--read-one --pages 512",
            "service",
            special(0.04, flags::TOUCH),
            "page-faults",
            "4 % of requests give 512 pages back and touch them again",
            PAGING,
            logged(PAGING, "server", kind::PAGES),
        ),
        inside(
            "--read-one --pages 256",
            "service",
            special(0.04, flags::PROTECT),
            "write-barrier",
            "4 % of requests write to 256 pages that are read-only until the SIGSEGV handler allows it",
            PAGING,
            logged(PAGING, "server", kind::PAGES),
        ),
        Scenario {
            steps: vec![Step::MemoryLimit(24 << 20)],
            ..inside(
                "--read-one --dir DIR --pages 512",
                "service",
                special(0.06, flags::RECLAIM),
                "memory-reclaim",
                "6 % of requests touch 512 new pages of a file in a memory group of 24 MiB",
                PAGING,
                logged(PAGING, "server", kind::PAGES),
            )
        },
        inside(
            "--read-one --disturb tlb --disturb-schedule 10ms/100ms --inside-cpu 1",
            "service",
            Load::Probe(spin()),
            "tlb-shootdown",
            "another thread changes the protection of memory",
            &[any("interrupts"), any("steal")],
            vec![],
        ),
        inside(
            "--read-one --disturb membarrier --disturb-schedule 10ms/100ms --inside-cpu 1",
            "service",
            Load::Probe(spin()),
            "ipi-storm",
            "another thread interrupts the application's core with membarrier",
            // On a virtual machine most of the cost of an interrupt is outside its handler.
            &[any("interrupts"), any("steal")],
            vec![],
        ),
    ]
}

/// The network is the cause.
fn network() -> Vec<Scenario> {
    let relayed = |name, about, step, connections| Scenario {
        load: Load::Probe(Plan {
            addr: SocketAddr::from(([10, 78, 0, 1], PORT)),
            connections,
            rate_per_s: 4_000.0,
            ..plan()
        }),
        truth: vec![Truth { causes: RECOVERY, functions: None, how: How::Recovery }],
        ..scenario(name, about, vec![step], RECOVERY)
    };
    vec![
        relayed(
            "packet-loss",
            "3 % of packets to the server are lost: those behind them wait for the retransmission",
            Step::Relay { part: 0.03, delay_us: 0 },
            2,
        ),
        relayed(
            "reordering",
            "3 % of packets to the server come 3 ms late: those behind them wait for them",
            Step::Relay { part: 0.03, delay_us: 3_000 },
            2,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of docs/categories.md: the first column of its first table.
    fn ids() -> Vec<&'static str> {
        let page = include_str!("../../../docs/categories.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        rows.map(|(id, _)| id).collect()
    }

    #[test]
    fn names_are_unique_and_categories_are_the_stable_ids() {
        assert!(ids().contains(&"hol-blocking") && ids().len() >= 18, "{:?}", ids());
        let scenarios: Vec<Scenario> = all().into_iter().chain(held_out()).collect();
        let mut names = std::collections::HashSet::new();
        for scenario in &scenarios {
            assert!(names.insert(scenario.name), "{} twice", scenario.name);
            let truths = scenario.truth.iter().flat_map(|truth| truth.causes);
            for cause in scenario.expect.iter().chain(scenario.may.iter().flatten()).chain(truths) {
                assert!(ids().contains(&cause.category), "{}: {}", scenario.name, cause.category);
            }
            assert!(["receive", "service", "transmit", "total"].contains(&scenario.leg));
        }
        assert!(scenarios.len() >= 20);
    }

    #[test]
    fn schedules_and_servers_of_all_scenarios_are_understood() {
        use clap::{FromArgMatches, Subcommand};
        #[derive(Debug, Subcommand)]
        enum Command {
            Serve(tailsight_lab::servers::ServeArgs),
        }
        for scenario in all().into_iter().chain(held_out()) {
            for step in &scenario.steps {
                if let Step::Fault { schedule, .. } = step {
                    schedule.parse::<tailsight_lab::schedule::Schedule>().unwrap();
                }
            }
            if let App::Own(arguments) = &scenario.app {
                let command = Command::augment_subcommands(clap::Command::new("lab"));
                let line = ["lab", "serve"].into_iter().chain(arguments.iter().map(String::as_str));
                let matches = command.try_get_matches_from(line).unwrap();
                let Command::Serve(args) = Command::from_arg_matches(&matches).unwrap();
                assert!(args.threads >= 1);
            }
        }
    }
}
