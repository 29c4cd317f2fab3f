//! What each experiment of Tales of the Tail compares: servers, and how they are set up. In: nothing. Out: plain data.
//!
//! The paper had four cores, a network card and clients on other machines; here are two cores, and the client has one of them.
//! What follows from that is said in [`Figure::here`].

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Figure 5: a background process beside the server, and what priorities and a core of its own do against it.
    Background,
    /// Figure 6: a thread a connection, served in the scheduler's order or in the order of arrival.
    Order,
    /// Figure 7: one core or two; one queue, a queue a worker, a worker a connection.
    Workers,
    /// Figure 8: packets are received on the server's core or on the other one.
    Receive,
    /// The summary (§5): one mitigation after the other, and what each costs at the peak.
    Mitigations,
}

/// A server of the paper (§3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum App {
    /// 128 bytes in, the same 128 bytes out; a thread a connection.
    NullRpc,
    /// Keys of 64 B, values of 1,024 B, 90 % reads; all clients share one UDP socket.
    Memcached,
    /// A file of 849 B.
    Nginx,
}

impl App {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::NullRpc => "null RPC",
            Self::Memcached => "memcached (UDP)",
            Self::Nginx => "nginx",
        }
    }
}

/// How the server's threads are scheduled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// As the kernel does by default.
    #[default]
    Default,
    /// Niceness −20.
    Nice,
    /// `SCHED_FIFO`, priority 1.
    RealTime,
}

/// Where a program is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Nowhere.
    #[default]
    Absent,
    /// On the server's core.
    ServerCore,
    /// On the other core, which is the client's.
    OtherCore,
}

/// What `tailsight fix` does to a server that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fix {
    /// The server's threads go before ordinary ones (`SCHED_FIFO`).
    RealTime,
    /// The background process goes to the other core.
    BackgroundElsewhere,
    /// The kernel receives the server's packets on the other core (RPS).
    ReceiveElsewhere,
    /// All is undone: `tailsight fix --undo`.
    Undo,
}

/// How a server is set up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Setup {
    /// What the tables call it.
    pub name: &'static str,
    pub priority: Priority,
    /// The background process.
    pub background: Place,
    /// Where the kernel receives the server's packets; absent: where it does by itself.
    pub receive: Place,
    /// Cores of the server; 0 counts as 1.
    pub cores: usize,
    /// nginx: as many workers as connections.
    pub worker_each: bool,
    /// What `tailsight fix` did to the server of the set-up before.
    pub fix: Option<Fix>,
}

impl Setup {
    /// Cores of the server, at least 1.
    pub fn cores(&self) -> usize {
        self.cores.max(1)
    }

    /// What has a peak of its own: the background process has no part in it.
    pub fn undisturbed(&self) -> Self {
        Self { name: "", background: Place::Absent, ..*self }
    }
}

/// An experiment as it is run.
pub struct Figure {
    /// Its number in the paper; 0: the summary.
    pub number: u32,
    pub title: &'static str,
    /// What the paper found, with its numbers.
    pub paper: &'static str,
    /// What is another here.
    pub here: &'static str,
    /// Requests a second as a part of the peak, as in the paper.
    pub utilisation: f64,
    /// Of the peak of each set-up, not of the first one's.
    pub own_peak: bool,
    pub apps: &'static [App],
    pub setups: &'static [Setup],
    /// Whether messages that were served out of order are counted.
    pub order: bool,
}

const ALL: &[App] = &[App::NullRpc, App::Memcached, App::Nginx];
const DEFAULT: Setup = Setup {
    name: "default",
    priority: Priority::Default,
    background: Place::Absent,
    receive: Place::Absent,
    cores: 1,
    worker_each: false,
    fix: None,
};
const ALL_AT_ONCE: Setup = Setup { receive: Place::ServerCore, ..BESIDE };
const BESIDE: Setup = Setup { background: Place::ServerCore, ..DEFAULT };

impl Experiment {
    /// What it compares.
    pub fn figure(self) -> Figure {
        match self {
            Self::Background => Figure {
                number: 5,
                title: "A background process on the server's core",
                paper: "On one core at 80 to 85 %, measured medians are close to the ideal (null RPC 29 us, ideal 21 us) and the 99th \
                        percentiles are 10 to 1,000 times the ideal's. Niceness -20 helps a little, real-time priority nearly \
                        removes the effect, and a core without background processes is a little better still.",
                here: "The background process is one of the lab's: 4 ms of computing every 50 ms. `dedicated core` moves it to the \
                       client's core, where the client goes first.",
                utilisation: 0.8,
                own_peak: false,
                apps: ALL,
                setups: &[
                    BESIDE,
                    Setup { name: "niceness -20", priority: Priority::Nice, ..BESIDE },
                    Setup { name: "real time", priority: Priority::RealTime, ..BESIDE },
                    Setup { name: "dedicated core", background: Place::OtherCore, ..DEFAULT },
                ],
                order: false,
            },
            Self::Order => Figure {
                number: 6,
                title: "The order of service of a thread a connection",
                paper: "The paper's scheduler that is not FIFO, at a priority strictly above all else, against the real-time \
                        scheduler: FIFO is better at the tail, as the model has it (Figure 4).",
                here: "Both scheduling classes are the kernel's own: the fair scheduler (EEVDF) and `SCHED_FIFO`, which serves threads in \
                       the order in which they were woken. There is no background process. Messages before which a later arrival \
                       was served are counted.",
                utilisation: 0.8,
                own_peak: false,
                apps: &[App::NullRpc],
                setups: &[DEFAULT, Setup { name: "real time (FIFO)", priority: Priority::RealTime, ..DEFAULT }],
                order: true,
            },
            Self::Workers => Figure {
                number: 7,
                title: "One core or two, and how requests are shared out",
                paper: "On four cores at 75 to 80 %, null RPC and memcached (one queue for all workers) are better than the ideal of one \
                        core; nginx (a queue a worker) stays as it was on one core. A worker a connection makes nginx a server with one \
                        queue, with a shorter tail and 30 % less throughput.",
                here: "Two cores instead of four, and the client runs on the second one, before the server. Each set-up has 75 % of \
                       its own peak. Each worker of nginx gets as many connections as the others.",
                utilisation: 0.75,
                own_peak: true,
                apps: ALL,
                setups: &[
                    Setup { name: "one core", ..DEFAULT },
                    Setup { name: "two cores", cores: 2, ..DEFAULT },
                    Setup { name: "two cores, a worker a connection", cores: 2, worker_each: true, ..DEFAULT },
                ],
                order: false,
            },
            Self::Receive => Figure {
                number: 8,
                title: "Where packets are received",
                paper: "With interrupts on a core of their own, the three servers on the other cores are within a few microseconds of \
                        the ideal; with interrupts spread over all cores they are not.",
                here: "A pair of virtual devices instead of a network card: RPS says which core receives. The other core is the \
                       client's, so the requests' sender pays for receiving them there.",
                utilisation: 0.8,
                own_peak: false,
                apps: ALL,
                setups: &[
                    Setup { name: "on the server's core", receive: Place::ServerCore, ..DEFAULT },
                    Setup { name: "on the other core", receive: Place::OtherCore, ..DEFAULT },
                ],
                order: false,
            },
            Self::Mitigations => Figure {
                number: 0,
                title: "One mitigation after the other",
                paper: "At 75 % the p99.9 of memcached went from 14 ms to 32 us, its median from 33 to 11 us; that of each server came \
                        to within a few per cent of the ideal.",
                here: "The background process of Figure 5. A server is recorded, and `tailsight fix` makes one change after the other \
                       that it lists for this recording (or for one of up to four more, where that does not show a cause); at the end `tailsight fix --undo`. Each step is recorded. The order \
                       is always the same, so `all undone` tells what else changed meanwhile. `peak` is what the server serves at most \
                       after that step, while the background process is stopped: the price of the mitigation.",
                utilisation: 0.75,
                own_peak: false,
                apps: ALL,
                setups: &[
                    ALL_AT_ONCE,
                    Setup { name: "+ real time", fix: Some(Fix::RealTime), ..ALL_AT_ONCE },
                    Setup { name: "+ a core without others", fix: Some(Fix::BackgroundElsewhere), ..ALL_AT_ONCE },
                    Setup {
                        name: "+ packets received on the other core",
                        fix: Some(Fix::ReceiveElsewhere),
                        ..ALL_AT_ONCE
                    },
                    Setup { name: "all undone", fix: Some(Fix::Undo), ..ALL_AT_ONCE },
                ],
                order: false,
            },
        }
    }
}

impl Figure {
    /// As the paper calls it.
    pub fn name(&self) -> String {
        if self.number == 0 { "the summary".into() } else { format!("Figure {}", self.number) }
    }

    /// In names of files.
    pub fn file(&self) -> String {
        if self.number == 0 { "summary".into() } else { format!("figure-{}", self.number) }
    }

    /// Whether the set-ups are made one after the other, on one server.
    pub fn in_turn(&self) -> bool {
        self.setups.iter().any(|setup| setup.fix.is_some())
    }

    /// The set-ups that mean something for a server: only nginx has workers that can be as many as connections.
    pub fn setups(&self, app: App) -> impl Iterator<Item = &'static Setup> + use<> {
        self.setups.iter().filter(move |setup| app == App::Nginx || !setup.worker_each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_compares_something_and_names_it_once() {
        for experiment in Experiment::value_variants() {
            let figure = experiment.figure();
            for app in figure.apps {
                let names: Vec<&str> = figure.setups(*app).map(|setup| setup.name).collect();
                assert!(names.len() > 1, "{experiment:?} {names:?}");
                let mut once = names.clone();
                once.sort_unstable();
                once.dedup();
                assert_eq!(once.len(), names.len(), "{names:?}");
            }
            assert!((0.1..1.0).contains(&figure.utilisation));
        }
    }

    #[test]
    fn mitigations_are_made_one_after_the_other_on_one_server_and_undone() {
        let setups = Experiment::Mitigations.figure().setups;
        let fixes: Vec<Option<Fix>> = setups.iter().map(|setup| setup.fix).collect();
        let order = [Fix::RealTime, Fix::BackgroundElsewhere, Fix::ReceiveElsewhere, Fix::Undo];
        assert_eq!(fixes, [None].into_iter().chain(order.map(Some)).collect::<Vec<_>>());
        let started = |setup: &Setup| Setup { name: "", fix: None, ..*setup };
        assert!(setups.iter().all(|setup| started(setup) == started(&setups[0])));
        assert_eq!(setups[0].background, Place::ServerCore);
    }

    #[test]
    fn a_background_process_has_no_part_in_a_peak() {
        let setups = Experiment::Background.figure().setups;
        assert_eq!(setups[0].undisturbed().background, Place::Absent);
        assert_ne!(setups[0].undisturbed(), setups[2].undisturbed());
    }
}
