//! Time stamps of NICs. In: a connected socket. Out: whether a NIC stamps its packets, and its stamps on the timeline.
//!
//! A NIC stamps as a packet passes its wire side, after what the host does with what it sends and before what it does with what
//! it receives, as Lancet measures (ATC'19, §4). Stamps are by the NIC's clock, which is compared with CLOCK_MONOTONIC before the
//! load and every 100 ms of it, in the housekeeping; nothing is done for a single request but a multiplication.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tailsight_host::phc::stamping::{self, Reason, Stamping};
use tailsight_host::phc::{self, Map, Phc};

/// Readings of a clock in one comparison: when it is found, and in the periodic checks.
const TRIES: [u32; 2] = [25, 3];
/// How long the speed of a clock is measured before anything is sent.
const FIRST: Duration = Duration::from_millis(100);

/// Where time stamps come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampSource {
    /// `software`, `hardware of eth0 (/dev/ptp0)`, or `none`: the client's clock alone.
    pub source: String,
    /// Why the NIC makes no stamps, if so.
    pub why: Option<String>,
    /// How to enable them, if possible.
    pub hint: Option<String>,
}

impl StampSource {
    pub(crate) fn none(why: &str) -> Self {
        Self { source: "none".into(), why: Some(why.into()), hint: None }
    }

    /// Combines several sources into one text that names all of them.
    #[must_use]
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        fn add<'a>(words: &mut Vec<&'a str>, word: &'a str) {
            if !word.is_empty() && !words.contains(&word) {
                words.push(word);
            }
        }
        let [mut sources, mut whys, mut hints] = [const { Vec::new() }; 3];
        for source in all {
            add(&mut sources, &source.source);
            add(&mut whys, source.why.as_deref().unwrap_or(""));
            add(&mut hints, source.hint.as_deref().unwrap_or(""));
        }
        let join = |words: Vec<&str>| (!words.is_empty()).then(|| words.join("; "));
        Some(Self { source: join(sources)?, why: join(whys), hint: join(hints) })
    }
}

/// The clock of a NIC that stamps.
#[derive(Debug)]
struct Clock {
    stamping: Stamping,
    phc: Phc,
    map: Map,
}

/// The NICs of a thread's connections.
#[derive(Debug, Default)]
pub(crate) struct Nics {
    /// What was found for a local address: a clock's place in `clocks`, or why there is none. All connections of a thread have
    /// the same peer.
    seen: Vec<(IpAddr, Result<usize, Reason>)>,
    clocks: Vec<Clock>,
    /// The largest error of a stamp since the load began, ns.
    worst_ns: u64,
}

impl Nics {
    /// The clock by which the packets of a connected socket are stamped. An address that was not seen before is looked up when
    /// `look` is set, which can take 100 ms.
    pub(crate) fn of(&mut self, fd: BorrowedFd<'_>, look: bool) -> Option<usize> {
        let (local, peer) = stamping::ends(fd.as_raw_fd())?;
        if let Some((_, clock)) = self.seen.iter().find(|(address, _)| *address == local) {
            return clock.as_ref().ok().copied();
        }
        if !look {
            return None;
        }
        let clock = stamping::of_connection(local, peer).and_then(|stamping| self.clock(stamping));
        let place = clock.as_ref().ok().copied();
        self.seen.push((local, clock));
        place
    }

    fn clock(&mut self, stamping: Stamping) -> Result<usize, Reason> {
        if let Some(place) = self.clocks.iter().position(|c| c.stamping == stamping) {
            return Ok(place);
        }
        let path = phc::path(stamping.phc);
        let phc = Phc::open(stamping.phc).map_err(|error| Reason {
            why: format!("{} has time stamps on, but its clock {path} cannot be opened: {error}", stamping.interface),
            hint: (error.kind() == std::io::ErrorKind::PermissionDenied)
                .then(|| format!("setfacl -m u:$USER:r {path}")),
        })?;
        self.add(stamping, phc)
    }

    fn add(&mut self, stamping: Stamping, phc: Phc) -> Result<usize, Reason> {
        let silent = || Reason { why: format!("the clock of {} cannot be read", stamping.interface), hint: None };
        let mut map = Map::new(phc.read(TRIES[0]).ok_or_else(silent)?);
        std::thread::sleep(FIRST);
        map.note(phc.read(TRIES[0]).ok_or_else(silent)?);
        self.clocks.push(Clock { stamping, phc, map });
        Ok(self.clocks.len() - 1)
    }

    /// The kernel accepts no stamps of this clock after all.
    pub(crate) fn refuse(&mut self, place: usize) {
        for (_, clock) in &mut self.seen {
            if *clock == Ok(place) {
                *clock = Err(Reason { why: "this kernel does not pass on time stamps of NICs".into(), hint: None });
            }
        }
    }

    /// Compares the clocks with the timeline.
    pub(crate) fn renew(&mut self) {
        for clock in &mut self.clocks {
            if let Some(reading) = clock.phc.read(TRIES[1]) {
                clock.map.note(reading);
            }
        }
    }

    /// Compares the clocks again and clears the errors from before the load.
    pub(crate) fn begin(&mut self) {
        self.renew();
        self.worst_ns = 0;
        self.clocks.iter_mut().for_each(|clock| clock.map.worst_ns = 0);
    }

    /// A stamp on the timeline, ns.
    #[inline]
    pub(crate) fn placed(&mut self, place: usize, nic_ns: u64) -> Option<u64> {
        let (at, error) = self.clocks.get(place)?.map.placed(nic_ns)?;
        self.worst_ns = self.worst_ns.max(error);
        Some(at)
    }

    /// The largest error of a stamp since the load began, ns; 0 when there was none.
    pub(crate) fn error_ns(&self) -> u64 {
        self.clocks.iter().map(|clock| clock.map.worst_ns).max().unwrap_or(0).max(self.worst_ns)
    }

    /// How often somebody set a clock, and the largest such step, ns.
    pub(crate) fn steps(&self) -> (u32, u64) {
        let maps = || self.clocks.iter().map(|clock| &clock.map);
        (maps().map(|map| map.steps).sum(), maps().map(|map| map.largest_step_ns).max().unwrap_or(0))
    }

    /// Where stamps come from.
    pub(crate) fn source(&self) -> StampSource {
        let sources: Vec<StampSource> = self
            .seen
            .iter()
            .map(|(_, found)| match found {
                Ok(place) => {
                    let Stamping { interface, phc } = &self.clocks[*place].stamping;
                    let source = format!("hardware of {interface} ({})", phc::path(*phc));
                    StampSource { source, why: None, hint: None }
                }
                Err(Reason { why, hint }) => {
                    StampSource { source: "software".into(), why: Some(why.clone()), hint: hint.clone() }
                }
            })
            .collect();
        let software = || StampSource { source: "software".into(), why: None, hint: None };
        StampSource::merged(&sources).unwrap_or_else(software)
    }
}

#[cfg(test)]
impl Nics {
    /// CLOCK_REALTIME in the place of a NIC's clock.
    pub(crate) fn simulated() -> Self {
        let mut nics = Self::default();
        let stamping = Stamping { interface: "sim0".into(), phc: 9 };
        let place = nics.add(stamping, Phc::of_the_system(libc::CLOCK_REALTIME)).unwrap();
        nics.seen.push((IpAddr::from([192, 0, 2, 1]), Ok(place)));
        nics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{now_ns, wall_ns};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn stamps_of_a_clock_lie_between_two_readings_of_the_timeline() {
        let mut nics = Nics::simulated();
        for _ in 0..20 {
            nics.renew();
        }
        nics.begin();
        assert_eq!(nics.error_ns(), 0);
        let before = now_ns();
        let stamp = wall_ns();
        let after = now_ns();
        let at = nics.placed(0, stamp).unwrap();
        let error = nics.error_ns();
        assert!(error > 0 && at + error >= before && at <= after + error, "{before} {at} {after} {error}");
        assert_eq!(nics.placed(1, stamp), None);
        assert_eq!(nics.steps(), (0, 0));
        assert_eq!(nics.source().source, "hardware of sim0 (/dev/ptp9)");
        nics.refuse(0);
        assert_eq!(nics.source().source, "software");
    }

    #[test]
    fn an_address_is_looked_up_once_and_not_during_the_load() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut nics = Nics::default();
        assert_eq!((nics.of(client.as_fd(), false), nics.seen.len()), (None, 0));
        assert_eq!((nics.of(client.as_fd(), true), nics.seen.len()), (None, 1));
        assert_eq!((nics.of(client.as_fd(), true), nics.seen.len()), (None, 1));
        let source = nics.source();
        assert_eq!((source.source.as_str(), source.hint), ("software", None));
        assert!(source.why.unwrap().starts_with("loopback"));
    }

    #[test]
    fn several_sources_are_all_said() {
        let stamps_of =
            |source: &str, why: &str| StampSource { source: source.into(), why: Some(why.into()), hint: None };
        assert_eq!(StampSource::merged(&[]), None);
        let sources =
            [stamps_of("software", "a"), stamps_of("software", "b"), stamps_of("software", "a"), stamps_of("none", "")];
        assert_eq!(StampSource::merged(&sources), Some(stamps_of("software; none", "a; b")));
    }
}
