//! The thresholds of what is inferred: from how much on something counts, and why.
//!
//! In: nothing; `lab replay --threshold` puts another value in the place of one, to see what it is worth. Out: a number of its unit. The numbers
//! of this crate and of tailsight-diagnose that decide which answer is given are here, and a test finds others. Where they are used stays what
//! only bounds work or memory, what is known of clocks (messages/nic.rs), and how many messages a verdict needs (`MIN_MESSAGES`).

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! thresholds {
    ($($variant:ident = $id:literal, $value:literal $unit:ident, $why:literal;)*) => {
        /// A number from which on something counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Threshold {
            $(#[doc = $why] $variant,)*
        }

        /// The values in force, as bits of an `f64`.
        static VALUES: [AtomicU64; Threshold::ALL.len()] = [$(AtomicU64::new(($value as f64).to_bits()),)*];

        impl Threshold {
            /// All, by where they are used.
            pub const ALL: &'static [Threshold] = &[$(Threshold::$variant,)*];

            /// Its name in output and options.
            #[must_use]
            pub fn id(self) -> &'static str {
                match self { $(Threshold::$variant => $id,)* }
            }

            /// What it decides, and why it is no other.
            #[must_use]
            pub fn why(self) -> &'static str {
                match self { $(Threshold::$variant => $why,)* }
            }

            /// What its value counts.
            #[must_use]
            pub fn unit(self) -> ThresholdUnit {
                match self { $(Threshold::$variant => ThresholdUnit::$unit,)* }
            }
        }
    };
}

/// What a threshold's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdUnit {
    /// Nanoseconds.
    Ns,
    /// A number of things.
    Count,
    /// A part of one.
    Share,
    /// A ratio.
    Times,
}

thresholds! {
    QuietInterval = "quiet-interval", 1_000 Ns,
        "an interval without events that is shorter has no room for time that the hypervisor took";
    EarlyWake = "early-wake", 20_000 Ns,
        "a wake-up that is seen for so long before its thread leaves its core ends that sleep: the waker waits for the core to be left, and its event comes first";
    ReceiveCall = "receive-call", 50_000 Ns,
        "a receive call that does not block takes less, with the time before it: a thread for which more passes between a reply and the end of its next receive call did other work as well";
    LockRetry = "lock-retry", 100_000 Ns,
        "one more try for a lock takes at most so long on a core";
    BeyondProcessors = "beyond-processors", 0.02 Share,
        "more threads than the runtime has processors are busy in at most such a part of the time: one of them blocks";
    BusyAtOnce = "busy-at-once", 200_000 Ns,
        "threads that pass work to each other, or look for some, are busy at once for at most so long; and who is let go on by the end of another one's work begins to run within it";
    SynRepeated = "syn-repeated", 200_000_000 Ns,
        "a SYN that comes again after so long is the client's repetition (after a second, then two, four …; by a policy of its own sooner)";
    BetweenSends = "between-sends", 20_000 Ns,
        "work between two send calls of a reply is told apart from sending if it takes so long";
    ContinuedReplies = "continued-replies", 20 Count,
        "replies with later parts, each followed by another request, that a verdict on a port needs";
    ContinuedAgree = "continued-agree-of-ten", 7 Count,
        "of ten such replies so many must agree: a queue in the server makes some parts late that are quick as a rule";
    ContinuedDeviations = "continued-deviations", 4 Count,
        "the agreement must be so many standard deviations of chance away from half and half: chance gets there once in 15,000 times";
    SegmentsAlike = "segments-alike-of-ten", 5 Count,
        "a connection is of TLS, or of HTTP/2, if so many of ten of its segments begin like that; others lie inside of a record, or a frame, of several segments";
    Overlaps = "overlaps-of-thousand", 2 Count,
        "on a port with TLS so many of a thousand requests may come while another one of their connection has no reply yet: a client that gave a request up, or closes; fewer than the slowest hundredth, as a pair that is wrong is most often a long one";
    FewOverlaps = "few-overlaps", 2 Count,
        "and so many whatever their part";
    ReceiveCalls = "receive-calls", 20 Count,
        "receive calls directly before another one, and others, that a verdict on a loop needs of each";
    DeferredWork = "deferred-work", 3 Count,
        "a loop works on what it received only after it has received all that was ready if the time after the last of several receive calls is so many times as long, at the median, as that between them";
    CallsRoundedUp = "calls-rounded-up", 20 Count,
        "a message makes as many calls as messages do on average, rounded up from one in so many on";
    SlotsWaited = "slots-waited", 8 Count,
        "requests wait for a slot at a server if so many of them did …";
    SlotsWaitedPart = "slots-waited-part", 0.5 Share,
        "… and such a part of those that were late";
    SlotsTaken = "slots-taken", 0.5 Share,
        "a request waited for a slot if the slots were taken for such a part of its wait; the rest is the time to hand one over";
    SlotsInLine = "slots-in-line", 0.9 Share,
        "… and such a part of what was sent to the server meanwhile, for messages that are known, was late, too";
    AskersTold = "askers-told", 8 Count,
        "so many requests to other servers must agree on the order in which a loop asks, or on how jobs are handed to the threads that ask, where nothing tells whose each is …";
    AskersAgree = "askers-agree", 0.95 Share,
        "… and in such a part of them";
    UnreadPart = "unread-part", 1_000_000 Ns,
        "an answer whose part lies unread for so long is no longer waited for all the while; less is the time of a wake-up";
    TasksInLine = "tasks-in-line", 8 Count,
        "so many tasks that were seen at a place while they waited for their turn to ask a server say that it is the place for that";
    SleepsOfPlace = "sleeps-of-place", 8 Count,
        "so many sleeps of tasks at a place say how long they are to last";
    ShortestSleeps = "shortest-sleeps", 0.1 Share,
        "such a part of the sleeps at a place is shorter than they are to be: not each is seen from its begin on";
    HandedRequests = "handed-requests", 8 Count,
        "receive calls after which goroutines were made, or made ready, at a place of the program before these are taken to have the requests that the calls returned";
    HandedOthers = "handed-others", 0.05 Share,
        "of such calls so many may be followed by another number of goroutines than the requests they returned: a connection has others made now and then";
    LateSleep = "late-sleep", 200_000 Ns,
        "a sleep of a task that ends so much late is not late";
    RestOfService = "rest-of-service", 4 Count,
        "a message's request was still arriving while its parts came if the rest of its service took at most one in so many of that time";
    HandedOver = "handed-over", 10 Count,
        "a wait for a connection may go on after one was free for one in so many of it, until the request is sent";
    SubstantialRequests = "substantial-requests", 10 Count,
        "requests with replies speak for the server if they are one in so many received messages: beside a gRPC service, health checks and scrapes of metrics do not";
    UnknownAnswers = "unknown-answers", 20 Count,
        "waits for answers are not said where more than one in so many requests to other servers have an unknown one";
    UsualTail = "usual-tail", 3 Count,
        "nothing stands out where the p99 is less than so many medians …";
    UsualCause = "usual-cause", 100_000 Ns,
        "… and no cause adds so much to the slow messages: as much as an interrupt, a wake-up or a neighbour takes on any host";
    WorkBalance = "work-balance", 1.5 Times,
        "own work may be so many times what the threads ran: both are means, one of a sample, and one has the recording's ends";
    HeldByAhead = "held-by-ahead", 0.5 Share,
        "the messages ahead held a wait if they explain such a part of it";
    RareNested = "rare-nested", 0.1 Share,
        "a nested frame that fewer of the reference's messages have is unexpected";
    RootShare = "root-share", 0.05 Share,
        "what held the messages ahead is said from such a part on";
    RootMessage = "root-message", 0.1 Share,
        "a message ahead held others by something if it had such a part of the most that one of them had of it";
    RootExplains = "root-explains", 0.2 Share,
        "what the messages ahead of a message had more of must explain such a part of its wait; with less they took as long as ordinary ones, and it waited because they were many, or for something that is not known";
    MainFunction = "main-function", 0.5 Share,
        "a function that has less of a cause does not say what the cause is";
    BeforeReceive = "before-receive", 0.8 Share,
        "a cause lies before the receive call, or after it, if such a part of its time does";
    TypicalRow = "typical-row", 0.1 Share,
        "a row that has less of a median message is not looked into";
    FoldedProcess = "folded-process", 0.01 Share,
        "a process of another name with less of a cause is there because its own row was too small to be one";
    GuessedPart = "guessed-part", 0.05 Share,
        "such a part of a row is said to be guessed";
    FunctionSamples = "function-samples", 10 Count,
        "a row may be divided by functions with so many samples of the focus";
    ExpectedSamples = "expected-samples", 3 Times,
        "the reference never met a function in samples, and that is no chance, where so many were to be expected: at 3, chance has none in 5 %";
    SmallCallee = "small-callee", 0.1 Share,
        "a callee with less of the row's deviation is no row of its own";
    MostOfFunction = "most-of-function", 0.8 Share,
        "of such a part of the time below a function, what is known there is its name";
    AllOfFunction = "all-of-function", 0.99 Share,
        "a function is the same as what it calls if that has such a part of its time";
    MeanwhilePart = "meanwhile-part", 0.05 Share,
        "what another task did meanwhile is said from such a part of a cause on";
    MigrationCost = "migration-cost", 1_000_000 Ns,
        "a migration costs a thread at most so much: all of a core's caches have to be filled again";
    InterruptCost = "interrupt-cost", 200_000 Ns,
        "an interrupt costs at most so much around its handler: a few exits to the hypervisor";
    FaultCost = "fault-cost", 500_000 Ns,
        "a page fault costs at most so much: a huge page of 2 MiB is cleared at 4 GB/s";
    CostInterval = "cost-interval", 2 Times,
        "the upper end of what an event costs is at most so many times the lower one: page faults, interrupts and migrations of the lab that are 1 % of a difference have 1.01 to 1.23, and what a long computation met by chance had 3 to 270";
    DearerEvents = "dearer-events", 0.5 Share,
        "the focus's events cost by such a part more than others at most: with the lab's page faults, interrupts and migrations it is 0.31 at most, and where a fork or a compiler was slow, in messages with some events, it was 0.6 to 980";
    CountedMessages = "counted-messages", 20 Count,
        "what events cost is told where so many messages have another number of them than most";
    MessagesOfClass = "messages-of-class", 40 Count,
        "so many messages of a class say what is usual for it";
    ClassDiffers = "class-differs", 4 Times,
        "a class differs when its mean is so many standard errors off: with hundreds of classes two would not do";
    SegmentsWithoutRequest = "segments-without-request", 10 Count,
        "so many segments without a request of the protocol that was asked for are no accident (a health check, the rest of a connection)";
    BusyEnough = "busy-enough", 0.2 Share,
        "below such a utilisation the cost of a message in a run is not its service time: it holds wake-ups, and work after the reply, which a busy server shares among many messages";
    DatagramHandoff = "datagram-handoff", 10_000_000 Ns,
        "a datagram that has no hand-off after so long has none";
}

impl Threshold {
    /// The threshold of that name.
    #[must_use]
    pub fn of_id(id: &str) -> Option<Threshold> {
        Threshold::ALL.iter().copied().find(|threshold| threshold.id() == id)
    }

    /// Its value in force.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from_bits(VALUES[self as usize].load(Ordering::Relaxed))
    }

    /// Puts another value in its place, for the whole process: before anything is analysed, to see what it is worth.
    pub fn replace(self, value: f64) {
        VALUES[self as usize].store(value.to_bits(), Ordering::Relaxed);
    }

    fn of(self, unit: ThresholdUnit) -> f64 {
        debug_assert_eq!(self.unit(), unit, "{}", self.id());
        self.value()
    }

    /// Of one of [`ThresholdUnit::Ns`]: nanoseconds.
    #[must_use]
    pub fn ns(self) -> u64 {
        self.of(ThresholdUnit::Ns) as u64
    }

    /// Of one of [`ThresholdUnit::Count`]: how many.
    #[must_use]
    pub fn count(self) -> usize {
        self.of(ThresholdUnit::Count) as usize
    }

    /// Of one of [`ThresholdUnit::Share`]: a part of one.
    #[must_use]
    pub fn share(self) -> f64 {
        self.of(ThresholdUnit::Share)
    }

    /// Of one of [`ThresholdUnit::Times`]: a ratio.
    #[must_use]
    pub fn times(self) -> f64 {
        self.of(ThresholdUnit::Times)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_a_value_of_its_unit() {
        let ids: BTreeSet<&str> = Threshold::ALL.iter().map(|threshold| threshold.id()).collect();
        assert_eq!(ids.len(), Threshold::ALL.len());
        for &threshold in Threshold::ALL {
            assert_eq!(Threshold::of_id(threshold.id()), Some(threshold));
            let value = threshold.value();
            match threshold.unit() {
                ThresholdUnit::Ns | ThresholdUnit::Count => {
                    assert!(value >= 1.0 && value.fract() == 0.0, "{threshold:?}")
                }
                ThresholdUnit::Share => assert!(value > 0.0 && value < 1.0, "{threshold:?}"),
                ThresholdUnit::Times => assert!(value > 0.0, "{threshold:?}"),
            }
        }
        assert_eq!(Threshold::of_id("no such"), None);
    }
}
