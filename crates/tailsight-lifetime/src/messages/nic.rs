//! NIC time stamps converted to CLOCK_MONOTONIC. In: the comparisons of each NIC's clock (nic_clocks.arrow), stamps. Out: the time of a
//! stamp, ns, with its largest possible error, or why it is unknown; and, for a whole run, whether legs begin and end at the NIC.
//!
//! A NIC's clock drifts, is adjusted and may be set. Between two comparisons it is assumed to run evenly. The error of a stamp is
//! therefore that of the comparisons, plus the possible change of speed times the distance to the nearer one. The change of speed is
//! estimated from the speeds before and after. An interval that no clock at a plausible speed fits was a step: its stamps are not used.

use std::collections::BTreeMap;

use tailsight_trace::meta::NicStamps;
use tailsight_trace::tables::NicClockRow;

use crate::model::{Message, flags};

/// A stamp on CLOCK_MONOTONIC; `ns` 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When, ns.
    pub ns: u64,
    /// The most that this can be wrong, ns.
    pub error_ns: u32,
}

/// How fast two clocks can run apart at most where it was not measured: their crystals are within 100 ppm each.
const UNKNOWN_SPEED: f64 = 2e-4;
/// By how much a clock that is being steered changes its speed unnoticed.
const WANDER: f64 = 1e-6;
/// No clock that only runs and is steered is off by more than this part of the time passed.
const STEP_SPEED: f64 = 1e-3;
/// A clock was set when it is off by this and more than the comparisons can be wrong, ns.
const STEP_NS: u64 = 1000;
/// A packet is not on its way from the NIC to the driver, or back, for longer than this, ns.
const FARTHEST_NS: u64 = 1_000_000_000;
/// Legs begin (end) at the NIC when this part of the messages that could have a stamp has one.
const NEARLY_ALL: f64 = 0.99;

/// Not known whose stamp it is.
const NO_CLOCK: &str = "its clock was not compared";
const NOT_NEAR: &str = "not close to the time of its packet";
const STEPPED: &str = "its clock was set at about that time";
const LATER: &str = "later than the driver by more than its error";
const SOONER: &str = "earlier than the hand-over to the driver by more than its error";

/// One clock's comparisons, in order of time.
#[derive(Clone, Debug, Default)]
struct Track {
    rows: Vec<NicClockRow>,
}

impl Track {
    /// Timeline passed over NIC time passed, minus 1, after row `i`; `None`: it was set there, or there is no such interval.
    fn speed(&self, i: usize) -> Option<f64> {
        let (a, b) = (self.rows.get(i)?, self.rows.get(i + 1)?);
        let nic = b.phc_ns.checked_sub(a.phc_ns).filter(|n| *n > 0)?;
        let gained = (b.monotonic_ns.checked_sub(a.monotonic_ns)?).cast_signed().checked_sub(nic.cast_signed())?;
        let most = (nic as f64 * STEP_SPEED) as u64 + a.error_ns + b.error_ns + STEP_NS;
        (gained.unsigned_abs() <= most).then(|| gained as f64 / nic as f64)
    }

    /// By how much the speed may change after row `i`, as the intervals around it say.
    fn wander(&self, i: usize) -> f64 {
        let around = [i.checked_sub(1), Some(i), i.checked_add(1)];
        let speeds: Vec<f64> = around.iter().filter_map(|j| self.speed((*j)?)).collect();
        let most = speeds.iter().copied().fold(f64::MIN, f64::max);
        let least = speeds.iter().copied().fold(f64::MAX, f64::min);
        WANDER + if speeds.is_empty() { UNKNOWN_SPEED } else { most - least }
    }

    /// A stamp that was made at most a second from `near_ns`.
    fn place(&self, stamp: u64, near_ns: u64) -> Result<Stamp, &'static str> {
        let last = self.rows.len().checked_sub(1).ok_or(NO_CLOCK)?;
        // The interval of the packet's event, and those before and after in which its stamp can be.
        let at = self.rows.partition_point(|r| r.monotonic_ns <= near_ns).saturating_sub(1);
        let mut stepped = false;
        let near = |i: usize| self.rows[i].monotonic_ns.abs_diff(near_ns) <= FARTHEST_NS * 2;
        for i in (0..=at).rev().take_while(|&i| i == at || near(i)).chain((at + 1..last).take_while(|&i| near(i))) {
            let (a, b) = (&self.rows[i], self.rows.get(i + 1));
            if b.is_some_and(|b| a.phc_ns <= stamp && stamp <= b.phc_ns) {
                if self.speed(i).is_some() {
                    return near_to(self.between(i, stamp), near_ns);
                }
                stepped = true;
            }
        }
        if stepped {
            return Err(STEPPED);
        }
        // Before the first comparison, or after the last.
        let i = if near_ns < self.rows[0].monotonic_ns { 0 } else { last };
        if !(stamp < self.rows[0].phc_ns && i == 0 || stamp > self.rows[last].phc_ns && i == last || last == 0) {
            // In no interval near it, though there are some: the clock showed other times then.
            return Err(if (0..last).any(|i| near(i) && self.speed(i).is_none()) { STEPPED } else { NOT_NEAR });
        }
        near_to(self.beyond(i, stamp), near_ns)
    }

    fn between(&self, i: usize, stamp: u64) -> Option<Stamp> {
        let (a, b) = (&self.rows[i], &self.rows[i + 1]);
        let (passed, left) = (stamp - a.phc_ns, b.phc_ns - stamp);
        let gained = (passed as f64 * self.speed(i)?).round() as i64;
        let ns = a.monotonic_ns.checked_add(passed)?.checked_add_signed(gained)?;
        let wander = (passed.min(left) as f64 * self.wander(i)).ceil() as u64;
        Some(Stamp { ns, error_ns: bound(a.error_ns.max(b.error_ns) + wander) })
    }

    fn beyond(&self, i: usize, stamp: u64) -> Option<Stamp> {
        let row = &self.rows[i];
        let interval = if i == 0 { 0 } else { i - 1 };
        let speed = self.speed(interval);
        let far = stamp.wrapping_sub(row.phc_ns).cast_signed();
        if far.unsigned_abs() > FARTHEST_NS * 2 {
            return None;
        }
        let gained = (far as f64 * speed.unwrap_or(0.0)).round() as i64;
        let ns = row.monotonic_ns.checked_add_signed(far + gained)?;
        let unsure = match (speed, self.rows.get(interval + 1)) {
            (Some(_), Some(next)) => {
                let first = &self.rows[interval];
                let over = next.phc_ns.saturating_sub(first.phc_ns).max(1) as f64;
                self.wander(interval) + (first.error_ns + next.error_ns) as f64 / over
            }
            _ => UNKNOWN_SPEED,
        };
        Some(Stamp { ns, error_ns: bound(row.error_ns + (far.unsigned_abs() as f64 * unsure).ceil() as u64) })
    }
}

fn bound(error_ns: u64) -> u32 {
    u32::try_from(error_ns.saturating_add(1)).unwrap_or(u32::MAX)
}

fn near_to(stamp: Option<Stamp>, near_ns: u64) -> Result<Stamp, &'static str> {
    stamp.filter(|s| s.ns != 0 && s.ns.abs_diff(near_ns) <= FARTHEST_NS).ok_or(NOT_NEAR)
}

/// The clocks of the NICs of a run.
#[derive(Clone, Debug, Default)]
pub struct NicClocks {
    tracks: BTreeMap<u32, Track>,
    /// By interface index.
    devices: BTreeMap<u32, u32>,
}

impl NicClocks {
    /// From run.json and the rows of nic_clocks.arrow.
    pub fn new(nic: &NicStamps, rows: &[NicClockRow]) -> NicClocks {
        let mut tracks: BTreeMap<u32, Track> = BTreeMap::new();
        for row in rows {
            tracks.entry(row.phc).or_default().rows.push(*row);
        }
        tracks.values_mut().for_each(|t| t.rows.sort_by_key(|r| r.monotonic_ns));
        // An index may be in two namespaces: the target's goes first.
        let mut devices: Vec<_> = nic.devices.iter().collect();
        devices.sort_by_key(|d| !d.here);
        let mut by_index = BTreeMap::new();
        for device in devices {
            by_index.entry(device.ifindex).or_insert(device.phc);
        }
        NicClocks { tracks, devices: by_index }
    }

    /// A stamp of a device, made at about `near_ns`. A packet that came through a device of software has the stamp of the NIC
    /// behind it, which is known when there is one only.
    ///
    /// # Errors
    /// Why it has no place.
    pub fn place(&self, ifindex: u32, stamp: u64, near_ns: u64) -> Result<Stamp, &'static str> {
        let only = || self.tracks.values().next().filter(|_| self.tracks.len() == 1);
        let track = self.devices.get(&ifindex).and_then(|phc| self.tracks.get(phc)).or_else(only);
        track.ok_or(NO_CLOCK)?.place(stamp, near_ns)
    }
}

/// What the stamps of one direction were good for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Messages that could have a stamp: all that were followed so far.
    pub messages: u64,
    /// Messages with a stamp.
    pub stamped: u64,
    /// Whether legs begin (end) there: nearly all messages have one.
    pub used: bool,
    /// Stamps that were on the wrong side of the driver by no more than they can be wrong, and were moved to it.
    pub clamped: u64,
    /// Stamps that were not used, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// The most that a stamp can be wrong, ns.
    pub error_ns: u64,
}

/// What the NICs' stamps of a run were good for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicUse {
    /// Received packets.
    pub received: Direction,
    /// Replies.
    pub sent: Direction,
}

impl NicUse {
    /// The most that an end of a leg can be wrong, ns; 0 when no leg begins or ends at a NIC.
    pub fn error_ns(&self) -> u64 {
        let error_of = |d: &Direction| if d.used { d.error_ns } else { 0 };
        error_of(&self.received).max(error_of(&self.sent))
    }

    /// What a reader of the results must know; nothing without stamps.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (d, leg, what, place) in [
            (&self.received, "receive", "begin", "first sight in the stack"),
            (&self.sent, "transmit", "end", "hand-over to the driver"),
        ] {
            let refused: u64 = d.refused.values().sum();
            if d.stamped == 0 && refused == 0 {
                continue;
            }
            let share = format!("{} of {} messages have the NIC's stamp", d.stamped, d.messages);
            notes.push(if d.used {
                format!("{leg} legs {what} at the NIC: {share}, each within {} ns", d.error_ns)
            } else {
                format!("{leg} legs {what} at the {place} for all messages: {share}, too few to measure from there")
            });
            if d.clamped > 0 {
                notes.push(format!("{} time stamps were moved to the {place}, within their error", d.clamped));
            }
            let why: Vec<String> = d.refused.iter().map(|(why, n)| format!("{why}: {n}")).collect();
            if refused > 0 {
                notes.push(format!("{refused} time stamps of NICs were not used ({})", why.join(", ")));
            }
        }
        notes
    }

    /// A stamp that has no place.
    pub(crate) fn refuse(&mut self, sent: bool, why: &'static str) {
        let d = if sent { &mut self.sent } else { &mut self.received };
        *d.refused.entry(why).or_default() += 1;
    }

    /// Judges the stamps of all messages: moves those that are on the wrong side of the driver within their error, takes away
    /// those beyond it, and decides where legs begin and end. Of the few without a stamp where the others have one, `true`
    /// is returned for each: their legs would mean something else.
    pub(crate) fn judge(&mut self, messages: &mut [Message]) -> Vec<bool> {
        for m in messages.iter_mut() {
            let d = &mut self.received;
            d.messages += 1;
            if m.nic_ns > m.driver_ns + u64::from(m.nic_error_ns) {
                *d.refused.entry(LATER).or_default() += 1;
                (m.nic_ns, m.nic_error_ns) = (0, 0);
            } else if m.nic_ns > m.driver_ns {
                d.clamped += 1;
                m.nic_ns = m.driver_ns;
            }
            d.stamped += u64::from(m.nic_ns != 0);
            d.error_ns = d.error_ns.max(u64::from(m.nic_error_ns));
            let d = &mut self.sent;
            d.messages += u64::from(m.xmit_ns != 0);
            if m.nic_tx_ns == 0 {
                continue;
            }
            if m.nic_tx_ns + u64::from(m.nic_tx_error_ns) < m.xmit_ns {
                *d.refused.entry(SOONER).or_default() += 1;
                (m.nic_tx_ns, m.nic_tx_error_ns) = (0, 0);
            } else if m.nic_tx_ns < m.xmit_ns {
                d.clamped += 1;
                m.nic_tx_ns = m.xmit_ns;
            }
            d.stamped += u64::from(m.nic_tx_ns != 0);
            d.error_ns = d.error_ns.max(u64::from(m.nic_tx_error_ns));
        }
        for d in [&mut self.received, &mut self.sent] {
            d.used = d.stamped > 0 && d.stamped as f64 >= NEARLY_ALL * d.messages as f64;
        }
        let (from_nic, to_nic) = (self.received.used, self.sent.used);
        if !from_nic && !to_nic {
            return vec![false; messages.len()];
        }
        let each = |m: &mut Message| {
            m.flags |= if from_nic { flags::FROM_NIC } else { 0 };
            m.flags |= if to_nic { flags::TO_NIC } else { 0 };
            (from_nic && m.nic_ns == 0) || (to_nic && m.xmit_ns != 0 && m.nic_tx_ns == 0)
        };
        messages.iter_mut().map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailsight_trace::meta::StampingDevice;

    const START_NS: u64 = 7_000_000_000_000;

    /// What a clock shows that was set to `showed` at the start and gains `ppm`.
    fn shows(showed: u64, ppm: f64, mono: u64) -> u64 {
        let passed = mono.cast_signed() - START_NS.cast_signed();
        showed.wrapping_add_signed(passed + (passed as f64 * ppm / 1e6).round() as i64)
    }

    fn clocks(rows: Vec<NicClockRow>) -> NicClocks {
        let device = StampingDevice { ifindex: 2, phc: 1, ..StampingDevice::default() };
        NicClocks::new(&NicStamps { devices: vec![device], ..NicStamps::default() }, &rows)
    }

    fn row(mono: u64, phc_ns: u64, error_ns: u64) -> NicClockRow {
        NicClockRow { phc: 1, monotonic_ns: mono, phc_ns, error_ns }
    }

    proptest! {
        /// Readings somewhere in their brackets, of a clock that drifts by up to 100 ppm for ten seconds.
        #[test]
        fn a_drifting_clock_s_stamps_are_placed_within_their_error(
            ppm in -100.0..100.0_f64,
            showed in 3_000_000_000_000_u64..4_000_000_000_000_000_000,
            brackets in prop::collection::vec((0u64..4000, 0u64..4000), 100),
            stamps in prop::collection::vec((0u64..9_900_000_000, 0u64..300_000), 50),
        ) {
            let compared = |(i, (before, after)): (usize, &(u64, u64))| {
                let at = START_NS + i as u64 * 100_000_000;
                row(u64::midpoint(at - before, at + after), shows(showed, ppm, at), (before + after).div_ceil(2) + 1)
            };
            let clocks = clocks(brackets.iter().enumerate().map(compared).collect());
            for (at, later) in stamps {
                let stamp = clocks.place(2, shows(showed, ppm, START_NS + at), START_NS + at + later);
                let stamp = stamp.map_err(TestCaseError::fail)?;
                let off = stamp.ns.abs_diff(START_NS + at);
                prop_assert!(off <= u64::from(stamp.error_ns), "{off} off, {} said", stamp.error_ns);
                // 4,000 ns of the widest reading, and what the noise of neighbours lets a speed look uneven by.
                prop_assert!(stamp.error_ns < 16_500, "{}", stamp.error_ns);
            }
        }

        #[test]
        fn any_rows_and_stamps_are_borne(
            rows in prop::collection::vec((any::<u64>(), any::<u64>(), 0u64..1 << 40), 0..12),
            stamps in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
        ) {
            let clocks = clocks(rows.into_iter().map(|(m, n, e)| row(m, n, e)).collect());
            for (stamp, near) in stamps {
                if let Ok(placed) = clocks.place(2, stamp, near) {
                    prop_assert!(placed.ns.abs_diff(near) <= FARTHEST_NS);
                }
            }
        }
    }

    /// 100 ppm are 10 us over 100 ms and 1 ms over ten seconds: one line over all of a recording would be off by a thousand
    /// times the error that is said here.
    #[test]
    fn the_speed_is_that_of_the_stretch_and_a_change_of_it_is_in_the_error() {
        // Even at +100 ppm for a second, then at -100 ppm; read exactly.
        let turn = START_NS + 1_000_000_000;
        let at = |mono: u64| {
            let upto = shows(1 << 60, 100.0, mono.min(turn));
            if mono <= turn { upto } else { upto + (mono - turn) - (mono - turn) / 10_000 }
        };
        let rows = (0..21).map(|i| START_NS + i * 100_000_000).map(|mono| row(mono, at(mono), 10)).collect();
        let clocks = clocks(rows);
        for (offset, most) in [(30_000_000, 50), (450_000_000, 70), (1_950_000_000, 70)] {
            let stamp = clocks.place(2, at(START_NS + offset), START_NS + offset).unwrap();
            assert!(stamp.ns.abs_diff(START_NS + offset) <= 2 && stamp.error_ns <= most, "{stamp:?}");
        }
        // Beside the turn 200 ppm of 50 ms may be missed.
        let stamp = clocks.place(2, at(turn - 50_000_000), turn - 50_000_000).unwrap();
        assert!((10_000..10_100).contains(&stamp.error_ns), "{stamp:?}");
    }

    #[test]
    fn a_stamp_without_a_place_says_why() {
        let even = |n: u64| (0..n).map(|i| row(START_NS + i * 100_000_000, 500_000_000_000 + i * 100_000_000, 100));
        let even_clocks = clocks(even(20).collect());
        let near = START_NS + 1_000_000_000;
        assert_eq!(even_clocks.place(2, 501_000_000_000, near), Ok(Stamp { ns: near, error_ns: 101 }));
        // A kernel address, an hour off, nothing.
        for stamp in [0xffff_8881_2345_6780, 501_000_000_000 + 3_600_000_000_000, 1] {
            assert_eq!(even_clocks.place(2, stamp, near), Err(NOT_NEAR));
        }
        assert_eq!(NicClocks::default().place(2, 1, near), Err(NO_CLOCK));
        // The only clock of the run is the one behind a device of software; with two it is not known.
        assert!(even_clocks.place(77, 501_000_000_000, near).is_ok());
        let two = even(20).chain(even(20).map(|r| NicClockRow { phc: 4, ..r })).collect();
        assert_eq!(clocks(two).place(77, 501_000_000_000, near), Err(NO_CLOCK));
        // Set forward by an hour between two comparisons: what it showed in between is not known, before and after it is.
        let set = |r: NicClockRow| NicClockRow { phc_ns: r.phc_ns + 3_600_000_000_000, ..r };
        let stepped = clocks(even(20).enumerate().map(|(i, r)| if i < 10 { r } else { set(r) }).collect());
        let (before, after) = (START_NS + 850_000_000, START_NS + 1_150_000_000);
        assert_eq!(stepped.place(2, 500_850_000_000, before).map(|s| s.ns), Ok(before));
        assert_eq!(stepped.place(2, 501_150_000_000 + 3_600_000_000_000, after).map(|s| s.ns), Ok(after));
        assert_eq!(stepped.place(2, 500_950_000_000, START_NS + 950_000_000), Err(STEPPED));
        // Set back by 250 ms: what it showed twice is taken for the time that is near.
        let back = |r: NicClockRow| NicClockRow { phc_ns: r.phc_ns - 250_000_000, ..r };
        let stepped = clocks(even(20).enumerate().map(|(i, r)| if i < 10 { r } else { back(r) }).collect());
        assert_eq!(stepped.place(2, 500_780_000_000, START_NS + 780_000_000).map(|s| s.ns), Ok(START_NS + 780_000_000));
        assert_eq!(
            stepped.place(2, 500_880_000_000, START_NS + 1_130_000_000).map(|s| s.ns),
            Ok(START_NS + 1_130_000_000)
        );
    }

    #[test]
    fn one_comparison_places_what_is_near_it() {
        let clocks = clocks(vec![row(START_NS, 9_000_000_000, 300)]);
        // 200 ppm of 10 ms are 2 us.
        let stamp = clocks.place(2, 9_010_000_000, START_NS + 10_000_000).unwrap();
        assert_eq!(stamp, Stamp { ns: START_NS + 10_000_000, error_ns: 2301 });
    }

    fn message(driver_ns: u64, nic: (u64, u32)) -> Message {
        Message { driver_ns, recv_ns: driver_ns + 100, nic_ns: nic.0, nic_error_ns: nic.1, ..Message::default() }
    }

    #[test]
    fn stamps_beside_the_driver_are_moved_or_refused_and_the_run_is_not_mixed() {
        let mut messages: Vec<Message> = (0..198).map(|i| message(1000 + i, (900 + i, 20))).collect();
        messages.push(message(5000, (5015, 20)));
        messages.push(message(6000, (6021, 20)));
        let mut used = NicUse::default();
        let without = used.judge(&mut messages);
        assert_eq!((messages[198].nic_ns, messages[199].nic_ns), (5000, 0));
        assert_eq!((used.received.clamped, used.received.refused[LATER], used.received.stamped), (1, 1, 199));
        assert!(used.received.used && used.error_ns() == 20);
        assert_eq!(without.iter().filter(|w| **w).count(), 1);
        assert!(without[199] && messages.iter().all(|m| m.flags & flags::FROM_NIC != 0));
        assert!(used.notes()[0].contains("199 of 200"), "{:?}", used.notes());
        // 98 of 100: for none.
        let mut few: Vec<Message> = (0..100).map(|i| message(1000, if i < 2 { (0, 0) } else { (900, 20) })).collect();
        let mut used = NicUse::default();
        assert!(used.judge(&mut few).iter().all(|w| !w));
        assert!(!used.received.used && used.error_ns() == 0 && few.iter().all(|m| m.flags == 0));
        assert!(used.notes()[0].contains("98 of 100") && used.notes()[0].contains("for all messages"));
        // Without stamps nothing is said.
        let mut none = vec![message(1000, (0, 0))];
        let mut used = NicUse::default();
        used.judge(&mut none);
        assert_eq!((used.notes().len(), used.error_ns(), none[0].flags), (0, 0, 0));
    }

    #[test]
    fn a_transmit_stamp_is_not_before_the_driver() {
        let sent = |xmit_ns, at, error| Message {
            xmit_ns,
            nic_tx_ns: at,
            nic_tx_error_ns: error,
            send_ns: 100,
            ..message(10, (0, 0))
        };
        let mut messages = vec![sent(200, 190, 15), sent(200, 190, 5), sent(200, 290, 5)];
        let mut used = NicUse::default();
        used.judge(&mut messages);
        assert_eq!(messages.iter().map(|m| m.nic_tx_ns).collect::<Vec<_>>(), [200, 0, 290]);
        assert_eq!((used.sent.clamped, used.sent.refused[SOONER], used.sent.messages, used.sent.stamped), (1, 1, 3, 2));
    }
}
