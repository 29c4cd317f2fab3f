//! What the caller asks of a diagnosis, and the facts about the recording that it needs.

use tailsight_lifetime::{Leg, Owner};
use tailsight_trace::samples::Samples;

use crate::functions::parked::ParkedPlaces;
use crate::functions::runtimes::Runtimes;
use crate::model::ChosenClass;
use crate::{CategoryTable, Error};

/// What to diagnose, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The messages under study: quantiles of the leg's latency, 0 to 1.
    pub focus: (f64, f64),
    /// The cohort they are compared with.
    pub reference: (f64, f64),
    /// The leg.
    pub leg: Leg,
    /// The classes of requests whose messages alone are ranked, compared and counted, if any were chosen.
    pub class: Option<ChosenClass>,
    /// Owners to categories.
    pub categories: CategoryTable,
    /// What functions of runtimes do.
    pub runtimes: Runtimes,
    /// Anomalies inside an anomaly replace it if together they explain at least this fraction of it (NSight §5.2: 0.8).
    pub nesting: f64,
    /// Differences of a message up to this are noise, ns (NSight §5.2 ignores up to 322 ns, Intel PT's batches).
    pub granularity_ns: u64,
    /// Rounds of the bootstrap, 0 for none.
    pub bootstrap_rounds: u32,
    /// Whether to compute [`crate::model::More`].
    pub more: bool,
    /// Whether to say which rules decided what the sleeps of the focus were for.
    pub why: bool,
    /// Whether to say what limits every run, too.
    pub verbose: bool,
    /// Notes about a leg or a focus that was selected automatically.
    pub remarks: Vec<String>,
    /// Most messages of the reference that the focus is compared with, evenly by latency where it has more: the mean of so many ordinary
    /// messages is known more exactly than that of the focus, all of which is looked into.
    pub compared: usize,
    /// About so many complete messages estimates are made of where a run has more, each with the same chance: a tail of one in a hundred
    /// has 100 of 10,000.
    pub estimated: usize,
    /// Seed of the bootstrap and of that choice: the same seed gives the same intervals.
    pub seed: u64,
}

impl Options {
    /// With what goroutines wait for at the places of this run, as its functions tell. `other`: the samples of a run that is compared with.
    #[must_use]
    pub(crate) fn of_run(&self, owners: &[Owner], samples: Option<&Samples>, other: Option<&Samples>) -> Options {
        let parked = samples.map(|own| ParkedPlaces::new(owners, own, other, &self.runtimes)).unwrap_or_default();
        Options { categories: self.categories.with_parked(parked), ..self.clone() }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            focus: (0.99, 1.0),
            reference: (0.45, 0.55),
            leg: Leg::Receive,
            class: None,
            categories: CategoryTable::default(),
            runtimes: Runtimes::default(),
            nesting: 0.8,
            granularity_ns: 300,
            bootstrap_rounds: 500,
            more: false,
            why: false,
            verbose: false,
            remarks: vec![],
            compared: 5_000,
            estimated: 10_000,
            seed: 1,
        }
    }
}

impl Options {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Focus`] for a slice outside 0 to 1 or reversed, [`Error::Option`] for the nesting fraction.
    pub fn check(&self) -> Result<(), Error> {
        crate::cohorts::focus::check_slice(self.focus)?;
        crate::cohorts::focus::check_slice(self.reference)?;
        if !(self.nesting > 0.0 && self.nesting <= 1.0) {
            return Err(Error::Option {
                option: "nesting",
                value: self.nesting.to_string(),
                why: "it must be above 0 and at most 1",
            });
        }
        Ok(())
    }
}

/// What is known about the recording.
#[derive(Clone, Debug, Default)]
pub struct RecordingFacts {
    /// The run's directory as the user gave it.
    pub run: String,
    /// Events lost.
    pub lost_events: u64,
    /// The largest error of a leg's beginning or end that is a NIC's time stamp, ns; 0 if none is.
    pub clock_error_ns: u64,
    /// Notes about the NICs' time stamps.
    pub stamps: Vec<String>,
    /// Mean cost of one event, ns.
    pub ns_per_event: f64,
    /// Events.
    pub events: u64,
    /// Processes of the target.
    pub pids: Vec<u32>,
    /// Ports that the target serves.
    pub ports: Vec<u16>,
    /// Network devices that the messages came in on, when known (for the fixes).
    pub devices: Vec<String>,
    /// Cores of the machine, when known (for the fixes).
    pub cpus: Option<u32>,
    /// The control group of the target's first process, as in /proc/PID/cgroup after `0::`, when known (for the fixes).
    pub cgroup: Option<String>,
    /// Interrupts of the devices, when known (for the fixes).
    pub irqs: Vec<u32>,
    /// A process in the target's network namespace, when that is another one than the recorder's (for the fixes).
    pub netns: Option<u32>,
    /// A process in the network namespace of the first device, likewise.
    pub device_netns: Option<u32>,
    /// Hooks that this recording did not have.
    pub hooks_off: Vec<String>,
    /// The run does not name the process that recorded it: tasks named `tailsight` are assumed to be it.
    pub recorder_by_name: bool,
    /// Why the run is partial, when it is.
    pub partial: Vec<String>,
    /// Whether that is so because files of the run were changed, cut or lost after the recording.
    pub damaged: bool,
    /// File systems whose fsync the recording does not see, where the target wrote files.
    pub unseen_syncs: Vec<String>,
}
