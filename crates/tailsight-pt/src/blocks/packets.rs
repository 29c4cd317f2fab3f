//! Our reader of packets: of those that are in every trace.
//!
//! In: trace. Out: [`Event`]s. What binds to what follows libipt's event decoder (`pt_event_decoder.c`, version 2.1). Its rules for what occurs
//! rarely, and for the errata of processors, are not repeated here: such a packet is [`Over::NotHere`], and libipt's decoder reads the piece
//! of trace.

use super::clock::{Clock, Clocks};
use super::events::{Event, Events, Over, What};

/// A PSB packet.
const PSB: [u8; 16] = [0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82];
/// Events that wait for a packet to bind to are fewer.
const MOST_WAITING: usize = 8;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packet {
    Pad,
    /// Bits with a stop bit before them.
    Tnt(u64),
    Tip(Address),
    TipPge(Address),
    TipPgd(Address),
    Fup(Address),
    Cyc(u64),
    Mtc(u8),
    Tsc(u64),
    Tma(u16, u16),
    Cbr(u8),
    /// Execution mode: whether the code is of 64 bits, and the two bits that say so.
    ModeExec(u8),
    ModeTsx {
        aborted: bool,
    },
    Pip,
    Vmcs,
    Psb,
    PsbEnd,
    /// The trace ends here, maybe in the middle of a packet.
    End,
    /// What is not read here.
    Strange,
}

/// The address in a packet, and how much of it is there: the packet's number for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    form: u8,
    bits: u64,
}

impl Address {
    /// The form without an address.
    const SUPPRESSED: u8 = 0;
}

/// The address of the last packet with one: the next has only what is different.
#[derive(Clone, Copy, Debug, Default)]
struct LastIp {
    ip: u64,
    known: bool,
    suppressed: bool,
}

impl LastIp {
    fn update(&mut self, Address { form, bits }: Address) {
        let keep = |n: u32| self.ip & (u64::MAX << n) | bits;
        let ip = match form {
            Address::SUPPRESSED => {
                self.suppressed = true;
                return;
            }
            1 => keep(16),
            2 => keep(32),
            4 => keep(48),
            // Six bytes: the sign goes on.
            3 => ((bits << 16).cast_signed() >> 16).cast_unsigned(),
            _ => bits,
        };
        *self = LastIp { ip, known: true, suppressed: false };
    }

    fn get(&self) -> Option<u64> {
        (self.known && !self.suppressed).then_some(self.ip)
    }
}

/// What an event that waits is told with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    /// The end of a synchronisation point.
    PsbEnd,
    /// A TIP, or one that begins or ends tracing.
    Tip,
    /// A TIP or a FUP.
    TipOrFup,
}

/// An event that waits for its packet; `None`: a packet that said nothing new, and binds all the same.
type Waiting = (Binding, Option<What>);

/// What came of a packet.
enum Used {
    /// An event, and there may be more.
    TimedHappening(What),
    /// An event, and no more.
    Last(What),
    /// No event, or none any more.
    Done,
}

/// See the module.
pub struct Packets<'a> {
    trace: &'a [u8],
    /// Where the packet is that is used next.
    at: usize,
    /// Bytes of the TIP before it that told the last event: libipt goes on from one only when it is asked for what follows.
    told: usize,
    /// The synchronisation point that it began at.
    sync: Option<usize>,
    enabled: bool,
    /// An event was told with this packet.
    bound: bool,
    /// The bits of the execution mode.
    mode: Option<u8>,
    ip: LastIp,
    clock: Clock,
    clocks: Clocks,
    waiting: Vec<Waiting>,
}

impl<'a> Packets<'a> {
    /// Of this trace.
    pub fn new(trace: &'a [u8], clocks: Clocks) -> Packets<'a> {
        Packets {
            trace,
            at: 0,
            told: 0,
            sync: None,
            enabled: false,
            bound: false,
            mode: None,
            ip: LastIp::default(),
            clock: Clock::new(clocks),
            clocks,
            waiting: Vec::with_capacity(MOST_WAITING),
        }
    }

    fn wait(&mut self, binding: Binding, what: Option<What>) -> Result<(), Over> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(Over::NotHere);
        }
        self.waiting.push((binding, what));
        Ok(())
    }

    /// Takes the first event that waits for one of these.
    fn bind(&mut self, to: &[Binding]) -> Option<Option<What>> {
        let place = self.waiting.iter().position(|(binding, _)| to.contains(binding))?;
        Some(self.waiting.remove(place).1)
    }

    /// A packet that tells the time. `header`: in a synchronisation point.
    fn time(&mut self, packet: Packet, header: bool) -> Result<(), Over> {
        match packet {
            Packet::Cyc(cycles) => self.clock.cycles(cycles),
            Packet::Mtc(bits) => self.clock.mtc(bits),
            Packet::Tsc(tsc) => self.clock.tsc(tsc, header),
            Packet::Tma(crystal, ticks) => self.clock.tma(crystal, ticks),
            Packet::Cbr(ratio) => self.clock.frequency(ratio, header),
            _ => Err(Over::NotHere),
        }
    }

    /// The packets behind a PSB up to its end: where control flow is, in which mode, and when. It is told at the end.
    fn header(&mut self) -> Result<(), Over> {
        if !self.waiting.is_empty() {
            return Err(Over::NotHere);
        }
        (self.ip, self.enabled) = (LastIp::default(), false);
        // Told first, and known last: whether tracing is on.
        self.wait(Binding::PsbEnd, None)?;
        loop {
            let (packet, len) = read(&self.trace[self.at..]);
            let status = match packet {
                Packet::Pad => None,
                Packet::Fup(address) => {
                    self.enabled = address.form != Address::SUPPRESSED;
                    if self.enabled {
                        if self.begins_behind(self.at + len) {
                            return Err(Over::NotHere);
                        }
                        self.ip.update(address);
                    }
                    None
                }
                Packet::ModeExec(mode) if self.mode.is_none_or(|known| known == mode) => {
                    self.mode = Some(mode);
                    Some(What::Mode(is_long(mode), None))
                }
                Packet::ModeTsx { aborted } => Some(What::Transaction(aborted, None)),
                Packet::Pip => Some(What::PagingAt(None)),
                Packet::Vmcs => Some(What::MachineAt(None)),
                Packet::PsbEnd => {
                    let what = if self.enabled { What::Enabled(None) } else { What::Disabled(None) };
                    self.waiting[0].1 = Some(what);
                    return Ok(());
                }
                Packet::End => return Err(Over::End),
                _ => {
                    self.time(packet, true)?;
                    matches!(packet, Packet::Cbr(_)).then_some(What::Frequency)
                }
            };
            if status.is_some() {
                self.wait(Binding::PsbEnd, status)?;
            }
            self.at += len;
        }
    }

    /// Whether tracing begins behind this synchronisation point: some processors say where control flow is all the same (BDM70).
    fn begins_behind(&self, mut at: usize) -> bool {
        loop {
            let (packet, len) = read(&self.trace[at..]);
            at += len;
            match packet {
                Packet::TipPge(_) => return true,
                Packet::Pad | Packet::Tsc(_) | Packet::Cbr(_) | Packet::PsbEnd | Packet::Pip | Packet::Vmcs => {}
                Packet::ModeExec(_) | Packet::ModeTsx { .. } | Packet::Tma(..) | Packet::Mtc(_) | Packet::Cyc(_) => {}
                _ => return false,
            }
        }
    }

    /// What waits for the end of a synchronisation point.
    fn psb_end(&mut self) -> Used {
        let ip = self.ip.get();
        match self.bind(&[Binding::PsbEnd]) {
            Some(Some(What::Enabled(_))) => Used::TimedHappening(What::Enabled(ip)),
            Some(Some(what)) => Used::TimedHappening(at(what, ip)),
            _ => Used::Done,
        }
    }

    /// An indirect branch, or where an interrupt went; then what waits for it.
    fn tip(&mut self, address: Address) -> Result<Used, Over> {
        if !self.enabled {
            return Err(Over::NotHere);
        }
        self.ip.update(address);
        let ip = self.ip.get();
        if self.bound {
            return self.bound_to_tip(ip);
        }
        if self.waiting.is_empty() {
            return Ok(Used::Last(What::Target(ip)));
        }
        self.bound = true;
        // The interrupt is told before what waits longer.
        let interrupt = self.waiting.iter().position(|(_, what)| matches!(what, Some(What::Branch { .. })));
        let Some(place) = interrupt else { return Ok(Used::TimedHappening(What::Target(ip))) };
        self.waiting.swap(0, place);
        match self.waiting.remove(0).1 {
            Some(What::Branch { from, .. }) => Ok(Used::TimedHappening(What::Branch { from, to: ip })),
            _ => Err(Over::NotHere),
        }
    }

    /// What waits for a TIP, behind what the TIP itself told.
    fn bound_to_tip(&mut self, ip: Option<u64>) -> Result<Used, Over> {
        loop {
            match self.bind(&[Binding::Tip, Binding::TipOrFup]) {
                None => return Ok(Used::Done),
                Some(None) => {}
                Some(Some(what @ (What::Mode(..) | What::PagingAt(_)))) => {
                    return Ok(Used::TimedHappening(at(what, ip)));
                }
                Some(Some(_)) => return Err(Over::NotHere),
            }
        }
    }

    /// Tracing begins; then what waits for that.
    fn tip_pge(&mut self, address: Address) -> Result<Used, Over> {
        self.ip.update(address);
        let ip = self.ip.get();
        if self.bound {
            return self.bound_to_tip(ip);
        }
        (self.enabled, self.bound) = (true, true);
        Ok(Used::TimedHappening(What::Enabled(ip)))
    }

    /// Tracing ends. What waits for that is told where it is off.
    fn tip_pgd(&mut self, address: Address) -> Result<Used, Over> {
        self.ip.update(address);
        match self.bind(&[Binding::Tip, Binding::TipOrFup]) {
            None if self.bound => Ok(Used::Done),
            None => {
                self.enabled = false;
                Ok(Used::Last(What::Disabled(self.ip.get())))
            }
            Some(Some(What::Branch { from, .. })) => {
                (self.enabled, self.bound) = (false, true);
                Ok(Used::TimedHappening(What::DisabledAt(from)))
            }
            Some(Some(What::PagingAt(_))) if self.bound => Ok(Used::TimedHappening(What::PagingAt(None))),
            Some(Some(What::Mode(long, _))) => Ok(Used::TimedHappening(What::Mode(long, None))),
            Some(_) => Err(Over::NotHere),
        }
    }

    /// Where something happens that is no branch: what waits for that, or an interrupt.
    fn fup(&mut self, address: Address) -> Result<Used, Over> {
        self.ip.update(address);
        self.bound |= self.waiting.iter().any(|(binding, _)| *binding == Binding::TipOrFup);
        loop {
            match self.bind(&[Binding::TipOrFup]) {
                None if self.bound => return Ok(Used::Done),
                None => {
                    let from = self.ip.get().ok_or(Over::NotHere)?;
                    self.wait(Binding::Tip, Some(What::Branch { from, to: None }))?;
                    return Ok(Used::Done);
                }
                Some(None) => {}
                Some(Some(what)) => return Ok(Used::TimedHappening(at(what, self.ip.get()))),
            }
        }
    }

    fn mode_exec(&mut self, mode: u8) -> Result<Used, Over> {
        let other = self.mode.replace(mode) != Some(mode);
        self.wait(Binding::TipOrFup, other.then_some(What::Mode(is_long(mode), None)))?;
        Ok(Used::Done)
    }

    fn pip(&mut self) -> Result<Used, Over> {
        if !self.waiting.iter().any(|(_, what)| matches!(what, Some(What::Branch { .. }))) {
            return Ok(Used::Last(What::Paging));
        }
        self.wait(Binding::Tip, Some(What::PagingAt(None)))?;
        Ok(Used::Done)
    }

    /// What comes of the packet that is next; its length is added to where it is.
    fn used(&mut self, packet: Packet, len: usize) -> Result<Used, Over> {
        match packet {
            Packet::Tnt(bits) if self.enabled => Ok(Used::Last(taken(bits))),
            Packet::Tip(address) => self.tip(address),
            Packet::TipPge(address) => self.tip_pge(address),
            Packet::TipPgd(address) => self.tip_pgd(address),
            Packet::Fup(address) => self.fup(address),
            Packet::Pad => Ok(Used::Done),
            Packet::Cyc(_) | Packet::Mtc(_) | Packet::Tsc(_) | Packet::Tma(..) => {
                self.time(packet, false)?;
                Ok(Used::Done)
            }
            Packet::Cbr(_) => {
                self.time(packet, false)?;
                Ok(Used::Last(What::Frequency))
            }
            Packet::ModeExec(mode) => self.mode_exec(mode),
            Packet::ModeTsx { aborted } if !self.enabled => Ok(Used::Last(What::Transaction(aborted, None))),
            Packet::Pip => self.pip(),
            Packet::Psb => {
                self.at += len;
                self.header()?;
                Ok(self.psb_end())
            }
            Packet::PsbEnd => Ok(self.psb_end()),
            Packet::End => Err(Over::End),
            _ => Err(Over::NotHere),
        }
    }
}

impl Events for Packets<'_> {
    fn synchronise(&mut self) -> Result<(), Over> {
        let from = if self.sync == Some(self.at) { self.at + PSB.len() } else { self.at };
        // A packet may have taken the beginning of one.
        let from = from.saturating_sub(PSB.len() - 1);
        let psb = self.trace.get(from..).and_then(|rest| memchr::memmem::find(rest, &PSB)).ok_or(Over::End)?;
        let at = from + psb;
        let follows = self.trace[at + PSB.len()..].starts_with(&PSB[..2]);
        if follows || self.trace[..at].ends_with(&PSB[..2]) {
            // Longer than one packet: libipt says which part of it is one.
            return Err(Over::NotHere);
        }
        (self.sync, self.at, self.told, self.bound, self.mode) = (Some(at), at + PSB.len(), 0, false, None);
        self.clock = Clock::new(self.clocks);
        self.waiting.clear();
        self.header()
    }

    #[inline]
    fn next(&mut self, event: &mut Event) -> Result<(), Over> {
        self.told = 0;
        let what = loop {
            // Nearly all of the trace is of these two.
            match self.trace.get(self.at) {
                Some(&tnt) if tnt & 1 == 0 && tnt > 2 && self.enabled => {
                    self.at += 1;
                    break taken(u64::from(tnt >> 1));
                }
                Some(&cycles) if cycles & 7 == 3 => {
                    self.clock.cycles(u64::from(cycles >> 3))?;
                    (self.at, self.bound) = (self.at + 1, false);
                    continue;
                }
                _ => {}
            }
            let (packet, len) = read(&self.trace[self.at..]);
            match self.used(packet, len)? {
                Used::TimedHappening(what) => {
                    // Of a synchronisation point, the reader is at the end.
                    event.status = matches!(packet, Packet::Psb | Packet::PsbEnd);
                    (event.what, event.tsc, event.has_tsc) = (what, self.clock.tsc, self.clock.known);
                    return Ok(());
                }
                Used::Last(what) => {
                    self.at += len;
                    self.told = if matches!(what, What::Target(_)) { len } else { 0 };
                    break what;
                }
                Used::Done => (self.at, self.bound) = (self.at + len, false),
            }
        };
        (event.what, event.tsc, event.has_tsc, event.status) = (what, self.clock.tsc, self.clock.known, false);
        Ok(())
    }

    fn offset(&self) -> Option<u64> {
        // Padding is no packet.
        let padding = || self.trace[self.at..].iter().take_while(|&&byte| byte == 0).count();
        let at = if self.told > 0 { self.at - self.told } else { self.at + padding() };
        self.sync.map(|_| at as u64)
    }
}

/// Bits with a stop bit before them.
#[inline]
fn taken(bits: u64) -> What {
    let count = 63 - bits.leading_zeros() as u8;
    What::Taken { bits: bits ^ 1 << count, count }
}

/// The bits CS.L and CS.D of a mode packet; code of 64 bits has the first alone.
fn is_long(mode: u8) -> bool {
    mode & 3 == 1
}

/// The same, at an instruction.
fn at(what: What, ip: Option<u64>) -> What {
    match what {
        What::Mode(long, _) => What::Mode(long, ip),
        What::Transaction(aborted, _) => What::Transaction(aborted, ip),
        What::PagingAt(_) => What::PagingAt(ip),
        What::MachineAt(_) => What::MachineAt(ip),
        other => other,
    }
}

/// The packet at the beginning of these bytes, and its length.
#[inline]
fn read(bytes: &[u8]) -> (Packet, usize) {
    match bytes {
        [0x02, ..] => extended(bytes).unwrap_or((Packet::End, 0)),
        [0x00, ..] => (Packet::Pad, 1),
        // TNT: the stop bit is the highest, and one of it alone is invalid.
        [tnt, ..] if tnt & 1 == 0 => (Packet::Tnt(u64::from(tnt >> 1)), 1),
        [cyc, ..] if cyc & 3 == 3 => cycles(bytes),
        [0x99, mode, ..] => (mode_packet(*mode), 2),
        [0x59, crystal, ..] => (Packet::Mtc(*crystal), 2),
        [0x19, rest @ ..] => number(rest, 7).map_or((Packet::End, 0), |tsc| (Packet::Tsc(tsc), 8)),
        [] | [0x99 | 0x59] => (Packet::End, 0),
        [head, rest @ ..] => address(*head, rest),
    }
}

/// A number of so many bytes.
#[inline]
fn number(bytes: &[u8], len: usize) -> Option<u64> {
    if let Some(whole) = bytes.first_chunk::<8>() {
        let word = u64::from_le_bytes(*whole);
        return Some(if len == 0 { 0 } else { word << (64 - 8 * len) >> (64 - 8 * len) });
    }
    Some(bytes.get(..len)?.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

#[inline]
fn address(head: u8, rest: &[u8]) -> (Packet, usize) {
    let packet = match head & 0x1f {
        0x0d => Packet::Tip,
        0x11 => Packet::TipPge,
        0x01 => Packet::TipPgd,
        0x1d => Packet::Fup,
        _ => return (Packet::Strange, 0),
    };
    let form = head >> 5;
    let len = match form {
        0 => 0,
        1 => 2,
        2 => 4,
        3 | 4 => 6,
        6 => 8,
        _ => return (Packet::Strange, 0),
    };
    number(rest, len).map_or((Packet::End, 0), |bits| (packet(Address { form, bits }), 1 + len))
}

#[inline]
fn cycles(bytes: &[u8]) -> (Packet, usize) {
    let head = bytes[0];
    let (mut value, mut shift, mut len, mut more) = (u64::from(head >> 3), 5, 1, head & 4 != 0);
    while more {
        let Some(&byte) = bytes.get(len) else { return (Packet::End, 0) };
        if shift + 7 > 64 {
            return (Packet::Strange, 0);
        }
        value |= u64::from(byte >> 1) << shift;
        (shift, len, more) = (shift + 7, len + 1, byte & 1 != 0);
    }
    // Some processors write two bytes of cycles where packets were lost (SKD007).
    if len == 2 && value & !0x1f == 0x20 && bytes.get(2) == Some(&0xf3) {
        return (Packet::Strange, 0);
    }
    (Packet::Cyc(value), len)
}

fn mode_packet(mode: u8) -> Packet {
    match mode >> 5 {
        0 => Packet::ModeExec(mode & 3),
        1 => Packet::ModeTsx { aborted: mode & 2 != 0 },
        _ => Packet::Strange,
    }
}

/// A packet of two bytes and more that says which; `None`: it is not whole.
fn extended(bytes: &[u8]) -> Option<(Packet, usize)> {
    let whole = |packet: Packet, len: usize| bytes.get(..len).map(|_| (packet, len));
    Some(match *bytes.get(1)? {
        0x82 => {
            return if bytes.len() < PSB.len() {
                None
            } else {
                Some(if bytes.starts_with(&PSB) { (Packet::Psb, PSB.len()) } else { (Packet::Strange, 0) })
            };
        }
        0x23 => (Packet::PsbEnd, 2),
        0xa3 => {
            let bits = number(bytes.get(2..)?, 6)?;
            // One of the stop bit alone is invalid.
            (if bits < 2 { Packet::Strange } else { Packet::Tnt(bits) }, 8)
        }
        0x03 => (Packet::Cbr(*bytes.get(2..4)?.first()?), 4),
        0x73 => {
            let payload = bytes.get(2..7)?;
            let (crystal, ticks) =
                (u16::from_le_bytes([payload[0], payload[1]]), u16::from_le_bytes([payload[3], payload[4]]));
            let reserved = payload[2] != 0 || ticks >> 9 != 0;
            (if reserved { Packet::Strange } else { Packet::Tma(crystal, ticks) }, 7)
        }
        0x43 => return whole(Packet::Pip, 8),
        0xc8 => return whole(Packet::Vmcs, 7),
        _ => (Packet::Strange, 0),
    })
}
