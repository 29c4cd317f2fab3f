//! What to record, the progress of a recording, and its result.

use std::path::PathBuf;
use std::time::Duration;

use tailsight_trace::meta::RunMeta;

use super::traced::Traces;
use crate::error::Error;
use crate::loader::HookChoice;
use crate::probes::nic_tx::TxStamps;
use crate::target::Selector;

/// What to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The target.
    pub selector: Selector,
    /// How long; `None`: until stopped (or until the command ends).
    pub duration: Option<Duration>,
    /// When to end a recording without a duration.
    pub until: Option<Until>,
    /// The run directory.
    pub out: PathBuf,
    /// Whether the run directory may be one that another user can write to.
    pub shared: bool,
    /// Bytes for all buffers; `None`: 1/16 of the memory, at most 512 MiB.
    pub buffer_bytes: Option<u64>,
    /// Hooks to add or leave out.
    pub hooks: HookChoice,
    /// First bytes of each segment to keep; `None`: none.
    pub payload: Option<Payload>,
    /// Whether to record when the NIC sent replies, which sets a flag on the target's sockets.
    pub tx_stamps: TxStamps,
    /// Samples of what the target's threads run.
    pub samples: SampleRate,
    /// Whether tasks of runtimes are followed (goroutines, asyncio, tokio). Only with samples.
    pub tasks: bool,
    /// Drop, permanently, the rights that the rest of the recording does not need: for a program that ends with it.
    pub confine: bool,
    /// This process leads a session that holds nothing but the recording: the session gives way to others.
    pub own_session: bool,
    /// Functions to trace from their begin to their end.
    pub traces: Traces,
    /// The buffers hold the last events and messages are watched ([`crate::Watch`]); nothing is written until a capture.
    pub watches: bool,
    /// The version to write into run.json.
    pub version: String,
}

/// How often threads of the target are sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleRate {
    /// Never: nothing for it is loaded.
    Off,
    /// At most [`SampleRate::USUAL_HZ`]; less often where a tick is dear, and where there are many cores, so that the cost stays small.
    #[default]
    Usual,
    /// The clock ticks this many times a second on each core.
    Hz(u32),
}

impl SampleRate {
    /// Ticks on each core. Not a round number, so that sampling does not fall into step with work that recurs each millisecond.
    const USUAL_HZ: u32 = 1_997;
    /// The part of a core that the ticks may take unless more are asked for.
    const USUAL_SHARE: f64 = 0.0045;
    /// The rates that this part is spent on, so that two recordings on a machine have the same one. Not round either.
    const RATES: [u32; 8] = [SampleRate::USUAL_HZ, 1_499, 997, 701, 499, 397, 307, 199];
    /// On all cores together, unless asked for more.
    const USUAL_ALL_HZ: u32 = 16_000;
    /// The most on a core.
    pub const MOST_HZ: u32 = 20_000;
    /// Each tick in a message that is slower than usual takes a sample; of the other ticks, one in so many.
    const OTHERS_ONE_IN: u16 = 2;
    /// From this rate on. Below it a sample costs little beside its tick, and the ordinary messages need each of them.
    const SPARED_FROM_HZ: u32 = 1_000;

    /// How the clock ticks on each of so many cores where one tick takes `tick_ns` from what it interrupts (none: not known); none: no samples.
    pub fn clock(self, tick_ns: Option<u64>, cores: u32) -> Option<SampleClock> {
        let hz = match self {
            SampleRate::Off => return None,
            SampleRate::Usual => {
                let fits =
                    |hz: &u32| tick_ns.is_none_or(|ns| f64::from(*hz) * ns as f64 <= SampleRate::USUAL_SHARE * 1e9);
                let [.., least] = SampleRate::RATES;
                let affordable = SampleRate::RATES.into_iter().find(fits).unwrap_or(least);
                affordable.min(SampleRate::USUAL_ALL_HZ / cores.max(1))
            }
            SampleRate::Hz(hz) => hz.min(SampleRate::MOST_HZ),
        };
        let others_one_in = if hz < SampleRate::SPARED_FROM_HZ { 1 } else { SampleRate::OTHERS_ONE_IN };
        Some(SampleClock { period_ns: 1_000_000_000 / u64::from(hz.max(1)), others_one_in, tick_ns })
    }
}

/// How the clock of the samples ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleClock {
    /// Time on a core between two ticks, ns.
    pub period_ns: u64,
    /// Of the ticks outside of slow messages one in so many takes a sample.
    pub others_one_in: u16,
    /// What one tick takes from what it interrupts, ns, where that was measured.
    pub tick_ns: Option<u64>,
}

/// What a recording holds so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Complete messages, estimated from receive and send calls.
    pub messages: u64,
    /// Samples that were taken inside of messages which by then had lasted longer than usual: those that name the functions of slow
    /// messages. `None`: no samples are taken.
    pub slow_samples: Option<u64>,
    /// Where the slow messages' time goes, as far as counts tell it.
    pub slow: SlowTime,
}

/// What counts of the programs say, while a recording runs, of the time of slow messages: whether samples can name its functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowTime {
    /// By how much messages lasted longer than usual, from receive to reply, all together, ns.
    pub excess_ns: u64,
    /// Time between two ticks of a core's clock, ns: each slow sample stands for so much of the excess that ran.
    pub period_ns: u64,
    /// Ticks in threads of the target.
    pub ticks: u64,
    /// Those in threads that receive no messages: collectors, holders of locks, workers of a pool.
    pub apart_ticks: u64,
}

impl SlowTime {
    /// Below this part of the excess that ran, the slow messages wait; what they wait for is known without samples.
    const RAN_LEAST: f64 = 0.03;
    /// From this part of it on, functions are a good part of the answer, and few samples are better than none.
    const RAN_MUCH: f64 = 0.2;
    /// From this part of the target's ticks on, threads that receive no messages may be what slow messages wait for.
    const APART_LEAST: f64 = 0.2;
    /// And from so many of them on.
    const APART_TICKS: u64 = 30;

    /// The most that may be expected in a second such time where `count` came in the first (Poisson, one-sided, 95 %; 3 after none). Pure.
    fn at_most(count: u64) -> f64 {
        let n = count as f64;
        n + 1.65 * n.sqrt() + 3.0
    }

    /// Whether the slow messages may have run for such a part of their excess. Pure.
    fn may_have_run(&self, slow_samples: u64, least: f64) -> bool {
        self.excess_ns == 0 || SlowTime::at_most(slow_samples) * self.period_ns as f64 >= least * self.excess_ns as f64
    }

    /// Whether threads that receive no messages run enough to be what slow messages wait for. Pure.
    fn may_wait_for_others(&self) -> bool {
        self.apart_ticks >= SlowTime::APART_TICKS
            && self.apart_ticks as f64 >= SlowTime::APART_LEAST * self.ticks as f64
    }
}

/// When a recording without a given length ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// This many messages.
    pub messages: u64,
    /// Not before this time.
    pub least: Duration,
    /// At this time at the latest.
    pub most: Duration,
    /// And this many samples in slow messages;
    pub slow_samples: u64,
    /// where so many cannot come, this many, if the slow messages ran for a good part of their excess,
    pub few_slow_samples: u64,
    /// for which it waits no longer than this,
    pub most_for_samples: Duration,
    /// and for no more messages than this.
    pub most_messages: u64,
}

impl Until {
    /// Whether it is over. Pure.
    pub fn over(&self, contents: Contents, elapsed: Duration) -> bool {
        elapsed >= self.most
            || (elapsed >= self.least
                && contents.messages >= self.messages
                && self.awaited_samples(contents, elapsed).is_none())
    }

    /// Of how many samples in slow messages it goes on for, were there enough messages; `None`: there are enough, more time does not
    /// bring enough, or the slow messages have no need of them. Pure.
    pub fn awaited_samples(&self, contents: Contents, elapsed: Duration) -> Option<u64> {
        let samples = contents.slow_samples?;
        if samples >= self.slow_samples || elapsed >= self.most_for_samples || contents.messages >= self.most_messages {
            return None;
        }
        let comes = |enough, ran_least| {
            samples < enough
                && contents.slow.may_have_run(samples, ran_least)
                && self.come_in_time(samples, enough, elapsed)
        };
        if elapsed < self.least || contents.slow.may_wait_for_others() || comes(self.slow_samples, SlowTime::RAN_LEAST)
        {
            return Some(self.slow_samples);
        }
        comes(self.few_slow_samples, SlowTime::RAN_MUCH).then_some(self.few_slow_samples)
    }

    /// Whether there may be enough samples when it no longer waits for them, at the rate so far. Pure.
    fn come_in_time(&self, samples: u64, enough: u64, elapsed: Duration) -> bool {
        let whole = self.most_for_samples.as_secs_f64() / elapsed.as_secs_f64().max(1e-3);
        SlowTime::at_most(samples) * whole >= enough as f64
    }

    /// The messages of a recording that the longest time ended, where they are too few; `None`: there are enough, or something else
    /// ended it. Pure.
    pub fn few(&self, messages: u64, elapsed: Duration) -> Option<u64> {
        (elapsed >= self.most && messages < self.messages).then_some(messages)
    }
}

/// What is kept of the payload of the target's flows, so that requests can be framed after the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The protocol, as `--protocol` names it.
    pub protocol: String,
    /// Bytes of each segment to keep at most.
    pub bytes: u32,
    /// Whether the plain text of TLS is read, too, by breakpoints in its library.
    pub reads_tls: bool,
}

impl Payload {
    /// The most that can be kept of a segment: a piece's number has seven bits.
    pub const MOST_BYTES: u32 = 24 * 128;

    pub(crate) fn pieces(&self) -> u32 {
        self.bytes.min(Payload::MOST_BYTES).div_ceil(24)
    }
}

/// The progress of a recording.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The target is known; probes are being loaded.
    Loading {
        /// The application.
        app: String,
        /// Its processes.
        pids: Vec<u32>,
        /// Its ports.
        ports: Vec<u16>,
    },
    /// Recording.
    Recording {
        /// Time so far.
        elapsed: Duration,
        /// Events so far.
        events: u64,
        /// Events lost so far.
        lost: u64,
        /// Messages and samples so far.
        contents: Contents,
    },
    /// Measuring the cost of the hooks.
    Measuring,
    /// Writing.
    Writing {
        /// Events to write.
        events: u64,
    },
}

/// The result of a recording that left a run.
#[derive(Debug)]
pub struct RecordSummary {
    /// The run's description as written.
    pub meta: RunMeta,
    /// The error that cut it short, if any; the run is kept.
    pub error: Option<Error>,
    /// Complete messages at the end, estimated, where the longest time of [`Options::until`] ended the recording before there were
    /// enough.
    pub few: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_rate_is_lower_where_there_are_many_cores() {
        assert_eq!(SampleRate::Off.clock(None, 2), None);
        let clock_of = |rate: SampleRate, tick_ns: Option<u64>, cores: u32| {
            let clock = rate.clock(tick_ns, cores).unwrap();
            (clock.period_ns, clock.others_one_in)
        };
        assert_eq!(clock_of(SampleRate::Usual, None, 2), (500_751, 2));
        assert_eq!(clock_of(SampleRate::Usual, None, 80), (5_000_000, 1), "each of few ticks takes a sample");
        assert_eq!(clock_of(SampleRate::Hz(2_000), None, 80), (500_000, 2));
        // As often as the cost allows: 13 us for each of 346 ticks are 0.45 % of a core.
        assert_eq!(clock_of(SampleRate::Usual, Some(2_000), 2), (500_751, 2));
        assert_eq!(clock_of(SampleRate::Usual, Some(13_000), 2), (1_000_000_000 / 307, 1));
        assert_eq!(clock_of(SampleRate::Usual, Some(1_000_000), 2), (1_000_000_000 / 199, 1));
        assert_eq!(clock_of(SampleRate::Hz(1_997), Some(1_000_000), 2), (500_751, 2));
    }

    const UNTIL: Until = Until {
        messages: 2_500,
        least: Duration::from_secs(2),
        most: Duration::from_secs(30),
        slow_samples: 200,
        few_slow_samples: 60,
        most_for_samples: Duration::from_secs(20),
        most_messages: 100_000,
    };

    /// At 499 samples/s, 6 s of a server with few slow requests held 60 in them, and one in eight functions was named wrongly.
    #[test]
    fn a_recording_of_no_given_length_goes_on_for_samples_in_slow_messages() {
        let over = |messages, slow_samples, seconds| {
            UNTIL.over(Contents { messages, slow_samples, ..Contents::default() }, Duration::from_secs(seconds))
        };
        assert!(over(2_500, Some(200), 2) && over(2_500, Some(5_000), 2));
        assert!(!over(2_500, Some(199), 2) && !over(2_500, Some(170), 19) && over(2_500, Some(199), 20));
        assert!(over(2_500, None, 2), "no samples are taken");
        assert!(!over(99_999, Some(50), 2) && over(100_000, Some(50), 2), "many messages are much to read");
        assert!(!over(2_499, Some(5_000), 29), "messages are waited for all the same");
    }

    /// Regression: it went on for 20 s wherever few slow messages ran, although none of these seconds could bring 200 samples, or
    /// the slow messages waited and had no need of functions.
    #[test]
    fn a_recording_does_not_wait_for_samples_that_cannot_come_or_are_not_needed() {
        let over = |slow_samples, slow, seconds| {
            let contents = Contents { messages: 5_000, slow_samples: Some(slow_samples), slow };
            UNTIL.over(contents, Duration::from_secs_f64(seconds))
        };
        // 307 ticks a second: each stands for 3.26 ms.
        let ran =
            |excess_ms: u64| SlowTime { excess_ns: excess_ms * 1_000_000, period_ns: 3_257_328, ..SlowTime::default() };
        assert!(over(0, ran(10), 2.0), "3 samples at most in 2 s would be 30 in 20 s");
        // 14 are 200 in 20 s at no time; 60 may come, and are waited for where the slow messages ran.
        assert!(!over(14, ran(100), 2.5) && !over(59, ran(400), 11.0) && over(60, ran(400), 11.0));
        assert!(over(14, ran(400), 2.5), "23.2 samples at most are 75 ms, less than a fifth of 400 ms");
        assert!(over(3, ran(10), 8.0), "in 8 s 8.9 at most, which would be 22 in 20 s");
        assert!(!over(30, ran(100), 2.0), "300 in 20 s");
        assert!(over(30, ran(5_000), 2.0), "30 samples, 42 at most, are 137 ms of 5 s: the slow messages wait");
        assert!(!over(30, ran(4_500), 2.0), "of 4.5 s they may be a thirtieth");
        // A collector, or who holds a lock: threads that receive none run while messages wait.
        let apart = |apart_ticks| SlowTime { ticks: 200, apart_ticks, ..ran(5_000) };
        assert!(!over(0, apart(40), 2.0) && !over(0, apart(40), 19.9) && over(0, apart(40), 20.0));
        assert!(over(0, apart(39), 2.0) && over(0, SlowTime { ticks: 30, ..apart(29) }, 2.0));
    }

    /// At 500 requests/s, 2 s hold 1,000, which gave too few messages in the focus.
    #[test]
    fn a_recording_of_no_given_length_ends_with_enough() {
        let (least, most) = (UNTIL.least, UNTIL.most);
        let over = |messages, elapsed| UNTIL.over(Contents { messages, ..Contents::default() }, elapsed);
        assert!(!over(100_000, Duration::from_millis(1_999)), "the least time first");
        assert!(over(2_500, least) && !over(2_499, Duration::from_secs(29)));
        assert!(over(0, most), "30 s without a message are enough");
        let until = UNTIL;
        assert_eq!(until.few(2_499, most), Some(2_499));
        assert_eq!((until.few(2_500, most), until.few(2_417, least)), (None, None), "Ctrl-C, or the target's end");
    }
}
