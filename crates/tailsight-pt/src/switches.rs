//! The context switches of a core, in order of time.
//!
//! In: [`Switch`]es, one by one. Out: the same, from the first or from a time on. A recording of minutes has millions of them, and they stay in
//! memory while it is decoded: each takes a few bytes, as the difference to the one before it, in blocks that can be found by their time.

use rustc_hash::FxHashMap;

/// Another task runs on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// When.
    pub time_ns: u64,
    /// Process, 0 when idle.
    pub pid: u32,
    /// Thread, 0 when idle.
    pub tid: u32,
    /// Whether the task before it was preempted: it was still runnable.
    pub preempted: bool,
}

/// Switches in a block.
const BLOCK: usize = 64;

/// The switches of a core.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    /// Of each switch two numbers ([`write`]): how much later than the one before in its block it is, and twice its task's number, plus 1 where
    /// it preempts.
    bytes: Vec<u8>,
    /// The time of the first switch of each block, and where that begins in the bytes.
    blocks: Vec<(u64, usize)>,
    /// Processes and threads by number.
    tasks: Vec<(u32, u32)>,
    numbers: FxHashMap<(u32, u32), u64>,
    len: usize,
    last_ns: u64,
}

impl Switches {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts one behind the others.
    pub fn push(&mut self, switch: Switch) {
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.push((switch.time_ns, self.bytes.len()));
            self.last_ns = switch.time_ns;
        }
        let task = (switch.pid, switch.tid);
        let tasks = &mut self.tasks;
        let number = *self.numbers.entry(task).or_insert_with(|| {
            tasks.push(task);
            tasks.len() as u64 - 1
        });
        write(&mut self.bytes, switch.time_ns.wrapping_sub(self.last_ns));
        write(&mut self.bytes, number << 1 | u64::from(switch.preempted));
        self.last_ns = switch.time_ns;
        self.len += 1;
    }

    /// All of them.
    pub fn iter(&self) -> Upcoming<'_> {
        let mut out = Upcoming { of: Some(self), ..Upcoming::default() };
        out.read();
        out
    }
}

impl FromIterator<Switch> for Switches {
    fn from_iter<I: IntoIterator<Item = Switch>>(switches: I) -> Switches {
        let mut out = Switches::default();
        switches.into_iter().for_each(|switch| out.push(switch));
        out
    }
}

impl<'a> IntoIterator for &'a Switches {
    type Item = Switch;
    type IntoIter = Upcoming<'a>;

    fn into_iter(self) -> Upcoming<'a> {
        self.iter()
    }
}

/// The switches that are still to come; of none, where a core's are not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Upcoming<'a> {
    of: Option<&'a Switches>,
    /// How many were read, with the next one.
    read: usize,
    /// Where the one behind the next is in the bytes.
    at: usize,
    next: Option<Switch>,
}

impl Upcoming<'_> {
    /// The next one.
    #[inline]
    pub fn peek(&self) -> Option<&Switch> {
        self.next.as_ref()
    }

    /// Takes the next one if it is as wanted.
    #[inline]
    pub fn next_if(&mut self, wanted: impl FnOnce(&Switch) -> bool) -> Option<Switch> {
        if wanted(self.peek()?) { self.next() } else { None }
    }

    /// Whether none was taken yet.
    pub fn untouched(&self) -> bool {
        self.read == 0 || self.read == 1 && self.next.is_some()
    }

    /// Leaves out those that are followed by one at or before a time: the next one is the last of these, or later.
    pub fn skip_to(&mut self, ns: u64) {
        let Some(switches) = self.of.filter(|of| !of.is_empty()) else { return };
        let block = switches.blocks.partition_point(|(first_ns, _)| *first_ns <= ns).saturating_sub(1);
        if block * BLOCK >= self.read {
            (self.read, self.at) = (block * BLOCK, switches.blocks[block].1);
            self.read();
        }
        loop {
            let mut behind = *self;
            behind.next();
            if behind.next.is_none_or(|switch| switch.time_ns > ns) {
                return;
            }
            *self = behind;
        }
    }

    /// On to the next one, if there is one.
    fn read(&mut self) {
        let before = self.next.take();
        let Some(switches) = self.of.filter(|of| self.read < of.len) else { return };
        let before_ns = match before {
            Some(before) if !self.read.is_multiple_of(BLOCK) => before.time_ns,
            _ => switches.blocks[self.read / BLOCK].0,
        };
        let time_ns = before_ns.wrapping_add(number(&switches.bytes, &mut self.at));
        let task = number(&switches.bytes, &mut self.at);
        let (pid, tid) = switches.tasks[(task >> 1) as usize];
        self.next = Some(Switch { time_ns, pid, tid, preempted: task & 1 != 0 });
        self.read += 1;
    }
}

impl Iterator for Upcoming<'_> {
    type Item = Switch;

    #[inline]
    fn next(&mut self) -> Option<Switch> {
        let next = self.next?;
        self.read();
        Some(next)
    }
}

/// Writes a number: seven bits a byte, the lowest first; the highest bit says that more follow.
fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The number that was written there; on to what is behind it.
fn number(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut out, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        out |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return out;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn switch() -> impl Strategy<Value = (u64, Switch)> {
        let task = prop_oneof![0u32..4, any::<u32>()];
        let apart = prop_oneof![Just(0u64), 0u64..300, 0u64..(1 << 40)];
        (apart, task, any::<bool>())
            .prop_map(|(apart, tid, preempted)| (apart, Switch { time_ns: 0, pid: tid / 2, tid, preempted }))
    }

    proptest! {
        #[test]
        fn what_was_put_in_comes_out_from_any_time_on(
            switches in proptest::collection::vec(switch(), 0..300),
            taken in 0usize..300,
            from in 0usize..310,
            off in -1i64..2,
        ) {
            let mut time_ns = 7;
            let shifted: Vec<Switch> = switches
                .iter()
                .map(|(apart, switch)| {
                    time_ns += apart;
                    Switch { time_ns, ..*switch }
                })
                .collect();
            let packed: Switches = shifted.iter().copied().collect();
            prop_assert_eq!((packed.len(), packed.is_empty()), (shifted.len(), shifted.is_empty()));
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), shifted.clone());
            let ns = shifted.get(from).map_or(time_ns + 5, |s| s.time_ns).saturating_add_signed(off);
            let mut upcoming = packed.iter();
            prop_assert!(upcoming.untouched());
            let taken = upcoming.by_ref().take(taken).count();
            prop_assert_eq!(upcoming.untouched(), taken == 0);
            upcoming.skip_to(ns);
            let last = shifted.partition_point(|s| s.time_ns <= ns).saturating_sub(1);
            prop_assert_eq!(upcoming.peek(), shifted.get(last.max(taken)));
            prop_assert_eq!(upcoming.collect::<Vec<_>>(), shifted[last.max(taken)..].to_vec());
        }
    }
}
