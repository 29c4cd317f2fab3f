//! Our reader of packets beside libipt's, on trace made of packets by chance: whatever ours gives, libipt gives the same, to the tick.

use std::collections::BTreeSet;

use libipt::block::BlockDecoder;
use libipt::enc_dec_builder::{EncoderDecoderBuilder, Frequency};

use super::events::{Event, Events, Over};
use super::{Clocks, LibiptEvents, Packets};

/// Numbers by chance (xorshift), the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_of(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Trace as a processor may write it, most of the time.
struct Writer {
    chance: Chance,
    enabled: bool,
    tsc: u64,
    out: Vec<u8>,
}

impl Writer {
    fn put(&mut self, head: &[u8], payload: u64, len: usize) {
        self.out.extend(head);
        self.out.extend(&payload.to_le_bytes()[..len]);
    }

    fn address(&mut self, head: u8) {
        let (form, len) = [(0, 0), (1, 2), (2, 4), (3, 6), (4, 6), (6, 8)][self.chance.below(6) as usize];
        // Seldom without one.
        let (form, len) = if form == 0 && !self.chance.one_of(4) { (1, 2) } else { (form, len) };
        let payload = self.chance.next();
        self.put(&[head | form << 5], payload, len);
    }

    /// A packet of time, or two that belong together.
    fn time(&mut self) {
        let n = self.chance.next();
        match self.chance.below(8) {
            0 => {
                self.tsc += n & 0xffff;
                let tsc = if self.chance.one_of(20) { n } else { self.tsc };
                self.put(&[0x19], tsc, 7);
                if !self.chance.one_of(4) {
                    self.put(&[0x02, 0x73], n & 0x0001_ff00_ffff, 5);
                }
            }
            1 => self.put(&[0x59], n, 1),
            2 => self.put(&[0x02, 0x03], n | 1, 2),
            3 => self.put(&[0x00], 0, 0),
            // Two and three bytes of cycles.
            4 => self.put(&[n as u8 | 7], n >> 8 & 0xfe, 1),
            5 => self.put(&[n as u8 | 7, (n >> 8) as u8 | 1], n >> 16 & 0xfe, 1),
            _ => self.put(&[n as u8 & 0xf8 | 3], 0, 0),
        }
    }

    fn psb(&mut self) {
        self.out.extend([0x02, 0x82].repeat(8));
        for _ in 0..self.chance.below(5) {
            match self.chance.below(8) {
                0 => self.put(&[0x99], 1, 1),
                1 => self.put(&[0x99], 0x20, 1),
                2 => self.put(&[0x02, 0x43], 0x1000, 6),
                3 => self.put(&[0x02, 0xc8], 0x1000, 5),
                _ => self.time(),
            }
        }
        if self.enabled {
            let payload = self.chance.next();
            self.put(&[0x7d], payload, 6);
        }
        self.out.extend([0x02, 0x23]);
    }

    fn branch(&mut self) {
        let n = self.chance.next();
        match self.chance.below(12) {
            0..6 => self.put(&[], (n & 0xfe).max(4), 1),
            6 => self.put(&[0x02, 0xa3], n | 1 << 40, 6),
            7 | 8 => self.address(0x0d),
            9 => {
                // An interrupt, or what ends tracing.
                self.address(0x1d);
                for _ in 0..self.chance.below(3) {
                    let mode = if self.chance.one_of(3) { n & 3 } else { 1 };
                    match self.chance.below(3) {
                        0 => self.time(),
                        1 => self.put(&[0x02, 0x43], n, 6),
                        _ => self.put(&[0x99], mode, 1),
                    }
                }
                self.enabled = !self.chance.one_of(3);
                self.address(if self.enabled { 0x0d } else { 0x01 });
            }
            10 => {
                self.put(&[0x99], n & 3, 1);
                let head = if self.chance.one_of(2) { 0x1d } else { 0x0d };
                self.address(head);
            }
            _ => {
                self.enabled = false;
                self.address(0x01);
            }
        }
    }

    fn write(&mut self) {
        self.psb();
        for _ in 0..self.chance.below(200) {
            match self.chance.below(40) {
                0 => self.psb(),
                1 => self.put(&[0x02, 0x43], 0x2000, 6),
                // What has no place there, or is nothing at all.
                2 if self.chance.one_of(8) => {
                    let (payload, len) = (self.chance.next(), self.chance.below(9) as usize);
                    self.put(&[], payload, len);
                }
                3..20 => self.time(),
                _ if self.enabled => self.branch(),
                _ => {
                    if self.chance.one_of(2) {
                        self.put(&[0x99], 1, 1);
                    }
                    self.enabled = true;
                    self.address(0x11);
                }
            }
        }
    }
}

#[test]
fn events_of_packets_by_chance_are_libipt_s() {
    let (mut events, mut ends, mut left, mut kinds) = (0u64, 0u64, 0u64, BTreeSet::new());
    for seed in 1..=4000u64 {
        let mut writer = Writer {
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            enabled: seed % 2 == 0,
            tsc: 1 << 40,
            out: Vec::new(),
        };
        writer.write();
        let mut trace = writer.out;
        // Some end in the middle of a packet.
        trace.truncate(trace.len() - (seed % 3) as usize);
        let (shift, ratio, nominal) =
            ((seed % 12) as u8, [(84, 2), (0, 0)][usize::from(seed % 7 == 0)], (seed % 5) as u8);
        let clocks = Clocks::new(shift, ratio, nominal).unwrap();
        let mut copy = trace.clone();
        let builder =
            EncoderDecoderBuilder::<BlockDecoder<'_>>::new().freq(Frequency::new(shift, nominal, ratio.0, ratio.1));
        // SAFETY: the copy is not touched until the decoder is dropped, which is declared after it.
        let builder = unsafe { builder.buffer_from_raw(copy.as_mut_ptr(), copy.len()) };
        let mut theirs = LibiptEvents::new(&builder).unwrap();
        let mut ours = Packets::new(&trace, clocks);
        let mut over = ours.synchronise();
        if over == Err(Over::NotHere) {
            left += 1;
            continue;
        }
        assert_eq!(over, theirs.synchronise(), "{seed}");
        while over.is_ok() {
            let at = ours.offset();
            assert_eq!(at, theirs.offset(), "{seed}: {:x?}", &trace[90.min(trace.len())..120.min(trace.len())]);
            let (mut event, mut of_libipt) = (Event::NONE, Event::NONE);
            over = ours.next(&mut event).map(|()| {
                assert_eq!((theirs.next(&mut of_libipt), of_libipt), (Ok(()), event), "{seed}, at {at:?}");
                events += 1;
                kinds.insert(format!("{:?}", event.what).split(['(', ' ']).next().unwrap_or_default().to_owned());
            });
        }
        // Where ours does not go on it does not matter what libipt makes of it.
        if over == Err(Over::NotHere) {
            left += 1;
        } else {
            assert_eq!(
                theirs.next(&mut Event::NONE.clone()),
                Err(Over::End),
                "{seed}: {:x?}",
                &trace[trace.len().saturating_sub(30)..]
            );
            ends += 1;
        }
    }
    assert!(events > 50_000 && ends > 500, "{events} events, {ends} traces to their end, {left} left to libipt");
    let variants = [
        "Branch",
        "Disabled",
        "DisabledAt",
        "Enabled",
        "Frequency",
        "MachineAt",
        "Mode",
        "Paging",
        "PagingAt",
        "Taken",
        "Target",
        "Transaction",
    ];
    let missing: Vec<_> = variants.iter().filter(|kind| !kinds.contains(**kind)).collect();
    assert!(missing.is_empty(), "{missing:?} of {kinds:?}");
}
