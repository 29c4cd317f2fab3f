//! From a NIC's clock to the timeline. In: readings of the clock, each at a known time within a known error. Out: its stamps on
//! CLOCK_MONOTONIC, each with the most that it can be wrong, ns.
//!
//! The map is a line: through the newest good reading, at the speed measured over the last one to two seconds. The error of
//! a stamp is that reading's, plus the error of the speed times the distance from it. Every further reading tests the line:
//! a small contradiction means that the clock changed its speed, a large one that it was set.

/// What a NIC's clock showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// When, CLOCK_MONOTONIC ns.
    pub mono_ns: u64,
    /// What it showed, ns.
    pub nic_ns: u64,
    /// The most that `mono_ns` can be wrong, ns.
    pub error_ns: u64,
}

impl Reading {
    fn since(&self, earlier: &Self) -> (i64, i64) {
        let passed = |now: u64, then: u64| now.wrapping_sub(then).cast_signed();
        (passed(self.mono_ns, earlier.mono_ns), passed(self.nic_ns, earlier.nic_ns))
    }
}

/// The largest difference in speed of two clocks before it was measured: their crystals are within 100 ppm each.
const UNKNOWN_SPEED: f64 = 2e-4;
/// How much a steered clock may change its speed without being noticed.
const WANDER: f64 = 1e-6;
/// A clock was set when it differs by more than this plus the error of the map, ns.
const STEP_NS: u64 = 1000;
/// Speed is measured over at least this long, where there are readings, and at most twice that, ns.
const WINDOW_NS: u64 = 1_000_000_000;
/// Stamps farther than this from the newest reading are not the clock's, or too old, ns.
const FARTHEST_NS: u64 = 2_000_000_000;

/// The map.
#[derive(Debug, Clone, Copy)]
pub struct Map {
    /// The line goes through this.
    anchor: Reading,
    /// Its speed is measured from this reading on; later from the next one.
    base: Reading,
    next_base: Reading,
    /// Timeline passed over NIC time passed, minus 1; and the most that this can be wrong.
    speed: f64,
    speed_error: f64,
    /// The clock was set some time before this, ns: what it showed earlier is not known.
    from_ns: u64,
    /// How often it was set.
    pub steps: u32,
    /// The largest step, ns.
    pub largest_step_ns: u64,
    /// The largest error of a stamp so far, ns.
    pub worst_ns: u64,
}

impl Map {
    /// From one reading: the speed is not known yet.
    pub fn new(first: Reading) -> Self {
        Self {
            anchor: first,
            base: first,
            next_base: first,
            speed: 0.0,
            speed_error: UNKNOWN_SPEED,
            from_ns: 0,
            steps: 0,
            largest_step_ns: 0,
            worst_ns: 0,
        }
    }

    /// A stamp on the timeline, and the most that it can be wrong, ns. `None` when it is not known.
    #[inline]
    pub fn placed(&self, nic_ns: u64) -> Option<(u64, u64)> {
        let far = nic_ns.wrapping_sub(self.anchor.nic_ns).cast_signed().unsigned_abs();
        if far > FARTHEST_NS {
            return None;
        }
        let at = self.on_the_line(nic_ns)?;
        (at >= self.from_ns).then(|| (at, self.bound_ns(far)))
    }

    #[inline]
    fn on_the_line(&self, nic_ns: u64) -> Option<u64> {
        let passed = nic_ns.wrapping_sub(self.anchor.nic_ns).cast_signed();
        let gained = (passed as f64 * self.speed).round() as i64;
        self.anchor.mono_ns.checked_add_signed(passed.checked_add(gained)?)
    }

    /// The largest error of the line this far from its anchor, ns.
    #[inline]
    fn bound_ns(&self, far_ns: u64) -> u64 {
        self.anchor.error_ns.saturating_add((far_ns as f64 * self.speed_error).ceil() as u64 + 1)
    }

    /// Takes a further reading.
    pub fn note(&mut self, new: Reading) {
        let passed = new.since(&self.anchor).0.unsigned_abs();
        let bound = self.bound_ns(passed);
        let off = self.on_the_line(new.nic_ns).map_or(u64::MAX, |expected| expected.abs_diff(new.mono_ns));
        let proven = off.saturating_sub(bound.saturating_add(new.error_ns));
        if proven > STEP_NS {
            self.begin_anew(new, off);
        } else if proven > 0 {
            // The speed changed: the stamps since the last reading were off by up to this.
            self.worst_ns = self.worst_ns.max(off.saturating_add(new.error_ns));
            (self.base, self.next_base) = (self.anchor, self.anchor);
            self.follow(new);
        } else if new.error_ns <= bound || passed > WINDOW_NS {
            // A disturbed reading is less exact than the line.
            self.follow(new);
        }
    }

    fn follow(&mut self, new: Reading) {
        let (mono, nic) = new.since(&self.base);
        if mono <= 0 || nic <= 0 {
            return;
        }
        self.speed = (mono - nic) as f64 / nic as f64;
        self.speed_error = (self.base.error_ns + new.error_ns) as f64 / nic as f64 + WANDER;
        self.anchor = new;
        if new.since(&self.next_base).0.unsigned_abs() > WINDOW_NS {
            (self.base, self.next_base) = (self.next_base, new);
        }
    }

    /// The clock was set, by `off` ns.
    fn begin_anew(&mut self, new: Reading, off: u64) {
        *self = Self {
            // It was set, and perhaps steered, but its crystal is the same.
            speed: self.speed,
            from_ns: new.mono_ns,
            steps: self.steps + 1,
            largest_step_ns: self.largest_step_ns.max(off),
            worst_ns: self.worst_ns,
            ..Self::new(new)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    /// A NIC's clock: what it shows at a time of the timeline.
    #[derive(Debug, Clone, Copy)]
    struct Nic {
        set_at_ns: u64,
        showed_ns: u64,
        ppm: f64,
    }

    impl Nic {
        fn shows(&self, mono_ns: u64) -> u64 {
            let passed = mono_ns.cast_signed() - self.set_at_ns.cast_signed();
            let gained = (passed as f64 * self.ppm / 1e6).round() as i64;
            self.showed_ns.wrapping_add_signed(passed + gained)
        }

        /// A reading somewhere in a bracket, now and then a wide one.
        fn read(&self, mono_ns: u64, rng: &mut SmallRng) -> Reading {
            let widest = if rng.random_bool(0.1) { 300_000 } else { 4_000 };
            let (before, after) = (rng.random_range(100..widest), rng.random_range(100..widest));
            let middle = u64::midpoint(mono_ns - before, mono_ns + after);
            Reading { mono_ns: middle, nic_ns: self.shows(mono_ns), error_ns: (before + after).div_ceil(2) + 1 }
        }
    }

    const START_NS: u64 = 5_000_000_000_000;

    /// Updates the map over `rounds` of about 100 ms and checks stamps in between; returns when it ended.
    fn run(map: &mut Map, nic: Nic, from_ns: u64, rounds: u32, rng: &mut SmallRng) -> Result<u64, TestCaseError> {
        let mut now = from_ns;
        for _ in 0..rounds {
            let next = now + rng.random_range(90_000_000..150_000_000);
            for _ in 0..20 {
                let at = rng.random_range(now.saturating_sub(50_000_000).max(from_ns)..next);
                if let Some((mapped, error)) = map.placed(nic.shows(at)) {
                    prop_assert!(mapped.abs_diff(at) <= error, "{} off, {error} said", mapped.abs_diff(at));
                }
            }
            map.note(nic.read(next, rng));
            now = next;
        }
        Ok(now)
    }

    proptest! {
        #[test]
        fn stamps_are_mapped_within_the_error_that_is_said(
            seed in any::<u64>(), ppm in -100.0..100.0_f64, showed_ns in 0..4_000_000_000_000_000_000_u64,
            step in prop_oneof![-10_000_000_000..-1_500_000_i64, 1_500_000..10_000_000_000_i64],
        ) {
            let mut rng = SmallRng::seed_from_u64(seed);
            // Room for steps back.
            let mut nic = Nic { set_at_ns: START_NS, showed_ns: showed_ns + 20_000_000_000, ppm };
            let mut map = Map::new(nic.read(START_NS, &mut rng));
            let now = run(&mut map, nic, START_NS, 60, &mut rng)?;
            prop_assert_eq!((map.steps, map.largest_step_ns), (0, 0), "noise is no step");

            nic.showed_ns = nic.showed_ns.wrapping_add_signed(step);
            let set_at = now + 50_000_000;
            let noticed = nic.read(now + 100_000_000, &mut rng);
            map.note(noticed);
            prop_assert_eq!(map.steps, 1);
            // The errors of two readings, and the crystal's over the length of the step: it is measured in the host's time.
            let error = 700_000.0 + step.unsigned_abs() as f64 * 100e-6;
            let off = map.largest_step_ns.abs_diff(step.unsigned_abs());
            prop_assert!((off as f64) < error, "{} is {off} off", map.largest_step_ns);
            // Earlier stamps are not known: the clock may have shown anything.
            prop_assert_eq!(map.placed(nic.shows(set_at)), None);
            run(&mut map, nic, now + 101_000_000, 60, &mut rng)?;
            prop_assert_eq!(map.steps, 1);
        }

        #[test]
        fn any_readings_and_stamps_are_borne(
            readings in proptest::collection::vec((any::<u64>(), any::<u64>(), 0..1_000_000_u64), 2..20), stamp in any::<u64>(),
        ) {
            let reading = |(mono_ns, nic_ns, error_ns)| Reading { mono_ns: mono_ns / 2, nic_ns, error_ns };
            let mut map = Map::new(reading(readings[0]));
            for new in &readings[1..] {
                map.note(reading(*new));
                map.placed(stamp);
            }
        }
    }

    #[test]
    fn the_error_shrinks_to_that_of_a_reading_and_a_little() {
        let nic = Nic { set_at_ns: START_NS, showed_ns: 77, ppm: 40.0 };
        let read = |at| Reading { mono_ns: at, nic_ns: nic.shows(at), error_ns: 500 };
        let mut map = Map::new(read(START_NS));
        for i in 1..30 {
            map.note(read(START_NS + i * 100_000_000));
        }
        let at = START_NS + 3_000_000_000;
        let (mapped, error) = map.placed(nic.shows(at)).unwrap();
        assert!(mapped.abs_diff(at) <= 2, "{mapped} {at}");
        // 500 of the reading; 100 ms at 1 us a second, and at 1 us over the window of one to two seconds.
        assert!((600..=720).contains(&error), "{error}");
    }

    #[test]
    fn a_clock_that_changes_its_speed_was_not_set_and_what_it_was_off_by_is_said() {
        let mut nic = Nic { set_at_ns: START_NS, showed_ns: 1 << 60, ppm: 0.0 };
        let read = |nic: &Nic, at| Reading { mono_ns: at, nic_ns: nic.shows(at), error_ns: 200 };
        let mut map = Map::new(read(&nic, START_NS));
        let mut at = START_NS;
        for _ in 0..20 {
            at += 100_000_000;
            map.note(read(&nic, at));
        }
        nic = Nic { set_at_ns: at, showed_ns: nic.shows(at), ppm: 15.0 };
        at += 100_000_000;
        map.note(read(&nic, at));
        // It was off by 1,500 ns before that was known.
        assert_eq!(map.steps, 0);
        assert!((1_500..1_800).contains(&map.worst_ns), "{}", map.worst_ns);
        for _ in 0..3 {
            let (mapped, error) = map.placed(nic.shows(at + 90_000_000)).unwrap();
            assert!(mapped.abs_diff(at + 90_000_000) <= error.min(600), "{error}");
            at += 100_000_000;
            map.note(read(&nic, at));
        }
    }

    #[test]
    fn stamps_of_another_clock_have_no_place() {
        let map = Map::new(Reading { mono_ns: START_NS, nic_ns: 1 << 60, error_ns: 100 });
        assert_eq!(map.placed(0), None);
        assert_eq!(map.placed((1 << 60) + FARTHEST_NS + 1), None);
        assert!(map.placed((1 << 60) + 5).is_some());
    }
}
