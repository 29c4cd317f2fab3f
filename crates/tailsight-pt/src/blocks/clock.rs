//! The time of packets: from the time-stamp counter's own packets, those of the crystal clock (MTC, TMA) and counted cycles (CYC).
//!
//! In: these packets. Out: the counter at the latest of them. The rules are those of libipt 2.1 (`pt_time.c`), so that both decoders give the
//! same times: the counter at an MTC is exact; cycles count from there, each as long as the last known period between two MTC makes it.

use super::events::Over;

/// Fractions of a tick, bits.
const FRACTION: u32 = 8;
/// Bits of the crystal clock in an MTC, and in a TMA.
const MTC_BITS: u32 = 8;
const TMA_BITS: u32 = 16;
const TMA_MASK: u32 = (1 << TMA_BITS) - 1;

/// How the recorded machine's clocks relate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clocks {
    /// Each MTC is so many powers of two of the crystal clock behind the one before.
    mtc_shift: u8,
    /// Ticks of the counter, for so many of the crystal clock: CPUID 15h, EBX and EAX.
    ratio: (u32, u32),
    /// The processor's base frequency, in units of its bus clock; 0: not known.
    nominal: u8,
}

/// The time, packet by packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    of: Clocks,
    /// The counter.
    pub tsc: u64,
    /// Whether there was a packet with it.
    pub known: bool,
    /// The counter at the last packet that says it, or an MTC.
    base: u64,
    /// Ticks since then.
    since: u64,
    /// The crystal clock at the last MTC or TMA, and as of which the cycles are that come next.
    crystal: u32,
    cycles_from: u32,
    has_tma: bool,
    has_mtc: bool,
    /// Cycles were left out, as it was not known how long they are.
    left_out: bool,
    length: Length,
}

/// How long a cycle is.
#[derive(Clone, Copy, Debug, Default)]
struct Length {
    /// Ticks a cycle, times `2^FRACTION`; `None`: not known yet.
    ticks: Option<u64>,
    /// The counter at the last packet with it; 0: none.
    tsc: u64,
    /// Cycles since that packet, and since the last MTC.
    since_tsc: u64,
    since_mtc: u64,
    /// The crystal clock at the last MTC.
    crystal: u32,
    has_mtc: bool,
}

/// What is known to be wrong stops this reader; libipt's says what it is.
fn wrong<T>() -> Result<T, Over> {
    Err(Over::NotHere)
}

impl Clocks {
    /// `None`: no processor has such.
    pub fn new(mtc_shift: u8, ratio: (u32, u32), nominal: u8) -> Option<Clocks> {
        (mtc_shift < 16).then_some(Clocks { mtc_shift, ratio, nominal })
    }

    /// From one value of the crystal clock to another, both with as many bits as MTC packets have.
    fn apart(&self, from: u32, to: u32) -> Result<u32, Over> {
        let to = if to < from { to + (1 << (u32::from(self.mtc_shift) + MTC_BITS)) } else { to };
        to.checked_sub(from).ok_or(Over::NotHere)
    }

    /// The same in ticks of the counter; `None` where the ratio is not known.
    fn ticks(&self, crystal: u32) -> Option<u64> {
        let (ticks, crystal_ticks) = self.ratio;
        (ticks != 0 && crystal_ticks != 0)
            .then(|| u64::from(crystal).wrapping_mul(u64::from(ticks)) / u64::from(crystal_ticks))
    }
}

impl Clock {
    /// Of a machine; nothing is known of the time.
    pub fn new(of: Clocks) -> Clock {
        Clock { of, ..Clock::default() }
    }

    /// TSC. `header`: in a synchronisation point; elsewhere time may have been lost before it.
    pub fn tsc(&mut self, tsc: u64, header: bool) -> Result<(), Over> {
        self.length.counter(tsc, header)?;
        (self.known, self.has_tma, self.has_mtc) = (true, false, false);
        (self.tsc, self.base, self.crystal, self.since, self.left_out) = (tsc, tsc, 0, 0, false);
        Ok(())
    }

    /// CBR: the core's frequency. Behind a change of it the length of a cycle is another one.
    pub fn frequency(&mut self, ratio: u8, header: bool) -> Result<(), Over> {
        if !header {
            self.length = Length::default();
        }
        if ratio == 0 {
            return wrong();
        }
        if self.of.nominal != 0 {
            self.length.ticks = Some((u64::from(self.of.nominal) << FRACTION) / u64::from(ratio));
        }
        Ok(())
    }

    /// TMA: the crystal clock at the counter before it, and ticks since the crystal clock's last one.
    pub fn tma(&mut self, crystal: u16, ticks: u16) -> Result<(), Over> {
        if !self.known || self.has_tma || self.has_mtc {
            return wrong();
        }
        let bits = u32::from(self.of.mtc_shift) + MTC_BITS;
        self.has_tma = true;
        self.base = self.base.wrapping_sub(u64::from(ticks));
        self.since = self.since.wrapping_add(u64::from(ticks));
        // With more bits than a TMA has, the others are those of the next MTC.
        self.has_mtc |= bits <= TMA_BITS;
        self.crystal = u32::from(crystal) & ((1 << bits) - 1);
        self.cycles_from = self.crystal;
        Ok(())
    }

    /// MTC: some bits of the crystal clock.
    pub fn mtc(&mut self, bits: u8) -> Result<(), Over> {
        let crystal = u32::from(bits) << self.of.mtc_shift;
        self.length.mtc(&self.of, crystal)?;
        // Between a TSC and its TMA it cannot be told which of the two is earlier.
        if self.known && !self.has_tma {
            return Ok(());
        }
        let (mut last, had_mtc) = (self.crystal, self.has_mtc);
        if self.since != 0 || self.left_out || !had_mtc {
            self.cycles_from = crystal;
        }
        (self.has_mtc, self.since, self.crystal, self.left_out) = (true, 0, crystal, false);
        if !had_mtc {
            if !self.has_tma {
                return Ok(());
            }
            let (low, mut high) = (crystal & TMA_MASK, crystal & !TMA_MASK);
            if low < last {
                high = high.wrapping_sub(1 << TMA_BITS) & (0xff << self.of.mtc_shift);
            }
            last |= high;
        }
        let apart = self.of.apart(last, crystal)?;
        if let Some(ticks) = self.of.ticks(apart) {
            self.base = self.base.wrapping_add(ticks);
            self.tsc = self.base;
        }
        Ok(())
    }

    /// CYC: cycles since the last one.
    #[inline]
    pub fn cycles(&mut self, cycles: u64) -> Result<(), Over> {
        self.length.since_mtc = self.length.since_mtc.wrapping_add(cycles);
        self.length.since_tsc = self.length.since_tsc.wrapping_add(cycles);
        let Some(ticks) = self.length.ticks.filter(|ticks| *ticks != 0) else {
            self.left_out = true;
            return Ok(());
        };
        let mut own = cycles;
        if self.since == 0 && self.crystal != self.cycles_from {
            // Some of them are of before the last MTC.
            let Some(before) = self.of.ticks(self.of.apart(self.cycles_from, self.crystal)?) else { return Ok(()) };
            own = cycles.saturating_sub((before << FRACTION) / ticks);
        }
        self.since = self.since.wrapping_add(own.wrapping_mul(ticks) >> FRACTION);
        self.tsc = self.base.wrapping_add(self.since);
        Ok(())
    }
}

impl Length {
    fn counter(&mut self, tsc: u64, header: bool) -> Result<(), Over> {
        let (last, cycles) = (self.tsc, self.since_tsc);
        (self.tsc, self.since_tsc) = (tsc, 0);
        if !header || last == 0 || cycles == 0 || self.has_mtc {
            return Ok(());
        }
        // A counter of 56 bits.
        let tsc = if tsc < last { tsc + (1 << 56) } else { tsc };
        self.measured(tsc.checked_sub(last).ok_or(Over::NotHere)?, cycles)
    }

    /// So many ticks were as long as so many cycles.
    fn measured(&mut self, ticks: u64, cycles: u64) -> Result<(), Over> {
        if ticks > u64::MAX >> FRACTION {
            return wrong();
        }
        self.ticks = Some((ticks << FRACTION) / cycles);
        Ok(())
    }

    fn mtc(&mut self, of: &Clocks, crystal: u32) -> Result<(), Over> {
        let (last, cycles) = (self.crystal, self.since_mtc);
        if !self.has_mtc {
            (self.since_mtc, self.crystal, self.has_mtc) = (0, crystal, true);
            return Ok(());
        }
        // Without any cycles the next one is waited for.
        if cycles == 0 {
            return Ok(());
        }
        (self.since_mtc, self.crystal) = (0, crystal);
        let apart = of.apart(last, crystal)?;
        match of.ticks(apart) {
            Some(ticks) => self.measured(ticks, cycles),
            None => Ok(()),
        }
    }
}
