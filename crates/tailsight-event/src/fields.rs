//! The fields of events: names, types, places and meanings, a layout for each set of kinds that share one.
//!
//! In: an [`Event`]. Out: its fields as a plain struct (`fields::Packet::of(event).sequence`), and back ([`Packet::event`]). The same
//! table is the source of the C that packs events ([`crate::c_header`]), of the schema page and of the SQL views ([`crate::duckdb`]).

use crate::event::{Event, KINDS, Kind};

/// A word of the event that fields lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // As the fields of `Event`.
pub enum Word {
    Aux,
    A,
    B,
    C,
}

impl Word {
    /// Its name: the column of the run directory, and the member in C.
    pub const fn name(self) -> &'static str {
        match self {
            Word::Aux => "aux",
            Word::A => "a",
            Word::B => "b",
            Word::C => "c",
        }
    }

    /// How many bits it has.
    pub const fn bits(self) -> u32 {
        match self {
            Word::Aux => u16::BITS,
            _ => u64::BITS,
        }
    }
}

/// Where a field lies.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A whole word. A type that is narrower than the word reads its low bits; the word keeps what was written.
    Whole(Word),
    /// The bits `from..to` of a word, from the lowest.
    Bits {
        /// The word.
        word: Word,
        /// The lowest bit.
        from: u32,
        /// One past the highest.
        to: u32,
    },
    /// Bytes of several words, in the order of memory.
    Bytes(&'static [Word]),
    /// A layout of its own, at its own places.
    Layout(&'static LayoutSpec),
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct FieldSpec {
    /// Its name, in Rust, C, SQL and the documentation.
    pub name: &'static str,
    /// Its type in Rust.
    pub type_name: &'static str,
    /// Where it lies.
    pub place: Place,
    /// What it means, with its unit.
    pub meaning: &'static str,
}

/// The fields that a set of kinds shares.
#[derive(Clone, Copy, Debug)]
pub struct LayoutSpec {
    /// Its name in Rust.
    pub name: &'static str,
    /// Its fields.
    pub fields: &'static [FieldSpec],
}

impl LayoutSpec {
    /// Whether it is that layout, or has it inside.
    const fn holds(&self, name: &str) -> bool {
        let mut at = 0;
        while at < self.fields.len() {
            if let Place::Layout(inner) = self.fields[at].place
                && inner.holds(name)
            {
                return true;
            }
            at += 1;
        }
        is_same(self.name, name)
    }

    /// Its fields, and in place of layouts inside of it theirs.
    pub fn flat(&self) -> Vec<&FieldSpec> {
        let fields = self.fields.iter().map(|field| match field.place {
            Place::Layout(inner) => inner.flat(),
            _ => vec![field],
        });
        fields.flatten().collect()
    }
}

/// 16 bytes of two words.
pub type Bytes16 = [u64; 2];
/// 24 bytes of three words.
pub type Bytes24 = [u64; 3];

/// A name of up to 16 bytes, of two words; it ends before its first NUL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text([u64; 2]);

impl Text {
    /// A name as the kernel keeps it: cut to 15 bytes.
    pub fn new(text: &str) -> Text {
        let name = tailsight_units::name::to_bytes(text);
        let mut bytes = [0u8; 16];
        let kept = name.len().min(15);
        bytes[..kept].copy_from_slice(&name[..kept]);
        let word =
            |range: std::ops::Range<usize>| bytes[range].iter().rev().fold(0, |word, &x| word << 8 | u64::from(x));
        Text([word(0..8), word(8..16)])
    }
}

impl From<[u64; 2]> for Text {
    fn from(words: [u64; 2]) -> Text {
        Text(words)
    }
}

impl From<Text> for [u64; 2] {
    fn from(text: Text) -> [u64; 2] {
        text.0
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
        f.write_str(&tailsight_units::name::from_bytes(&bytes))
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// By the number of a kind, whether its events have the fields of this layout; of a kind that is not known nothing is refused.
const fn kinds_with(layout: &str) -> [bool; 256] {
    let mut with = [true; 256];
    let mut at = 0;
    while at < KINDS.len() {
        with[KINDS[at].kind as usize] = KINDS[at].layout.holds(layout);
        at += 1;
    }
    with
}

/// The bits `from..to`, from the lowest.
const fn bits(from: u32, to: u32) -> u64 {
    (u64::MAX >> (u64::BITS - (to - from))) << from
}

/// A field of an event.
macro_rules! read {
    ($event:ident, $type:ident, layout) => {
        $type::read($event)
    };
    ($event:ident, $type:ident, bc) => {
        $type::from([$event.b, $event.c])
    };
    ($event:ident, $type:ident, abc) => {
        $type::from([$event.a, $event.b, $event.c])
    };
    ($event:ident, $type:ident, $word:ident) => {
        $event.$word as $type
    };
    ($event:ident, $type:ident, $word:ident, $from:literal, $to:literal) => {
        (($event.$word as u64 & bits($from, $to)) >> $from) as $type
    };
}

/// A field into an event.
macro_rules! write {
    ($event:ident, $value:expr, layout) => {
        $value.write($event)
    };
    ($event:ident, $value:expr, bc) => {
        [$event.b, $event.c] = $value.into()
    };
    ($event:ident, $value:expr, abc) => {
        [$event.a, $event.b, $event.c] = $value
    };
    ($event:ident, $value:expr, $word:ident) => {
        $event.$word = $value as _
    };
    ($event:ident, $value:expr, $word:ident, $from:literal, $to:literal) => {
        $event.$word = ($event.$word as u64 & !bits($from, $to) | (($value as u64) << $from) & bits($from, $to)) as _
    };
}

macro_rules! place {
    ($type:ident, layout) => {
        Place::Layout(&$type::SPEC)
    };
    ($type:ident, aux) => {
        Place::Whole(Word::Aux)
    };
    ($type:ident, a) => {
        Place::Whole(Word::A)
    };
    ($type:ident, b) => {
        Place::Whole(Word::B)
    };
    ($type:ident, c) => {
        Place::Whole(Word::C)
    };
    ($type:ident, bc) => {
        Place::Bytes(&[Word::B, Word::C])
    };
    ($type:ident, abc) => {
        Place::Bytes(&[Word::A, Word::B, Word::C])
    };
    ($type:ident, $word:ident, $from:literal, $to:literal) => {
        match place!($type, $word) {
            Place::Whole(word) => {
                // The type takes the whole field, and the word has it.
                assert!($to > $from && $to - $from <= $type::BITS && $to <= word.bits());
                Place::Bits { word, from: $from, to: $to }
            }
            _ => unreachable!(),
        }
    };
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $layout:ident {
        $($field:ident: $type:ident = $word:ident $([$from:literal .. $to:literal])?, $meaning:literal;)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $layout { $(#[doc = $meaning] pub $field: $type,)* }

            impl $layout {
                /// Its fields and their places.
                pub const SPEC: LayoutSpec = LayoutSpec {
                    name: stringify!($layout),
                    fields: &[$(FieldSpec {
                        name: stringify!($field),
                        type_name: stringify!($type),
                        place: place!($type, $word $(, $from, $to)?),
                        meaning: $meaning,
                    },)*],
                };

                /// The fields of an event of a kind that has them. What is not used of them costs nothing.
                #[inline]
                pub fn of(event: &Event) -> Self {
                    // A table: this is asked of each event wherever there are debug assertions.
                    const KINDS_WITH: [bool; 256] = kinds_with(stringify!($layout));
                    debug_assert!(
                        KINDS_WITH[usize::from(event.kind)],
                        concat!("{:?} has no fields of ", stringify!($layout)), event.kind(),
                    );
                    Self::read(event)
                }

                #[inline]
                #[allow(unused_variables)]
                fn read(event: &Event) -> Self {
                    Self { $($field: read!(event, $type, $word $(, $from, $to)?),)* }
                }

                /// Writes them into an event; what else is in it stays.
                #[inline]
                #[allow(unused_variables)]
                pub fn write(self, event: &mut Event) {
                    $(write!(event, self.$field, $word $(, $from, $to)?);)*
                }

                /// The event of this kind, at `ts` ns, on a core where `tid` was current.
                pub fn event(self, kind: Kind, ts: u64, tid: u32) -> Event {
                    let mut event = Event { ts, kind: kind as u8, tid, ..Event::default() };
                    self.write(&mut event);
                    debug_assert_eq!(Self::of(&event), self, "a field is wider than its place");
                    event
                }
            }
        )*

        /// Every layout.
        pub const LAYOUTS: &[&LayoutSpec] = &[$(&$layout::SPEC,)*];
    };
}

layouts! {
    /// No fields.
    Nothing {}

    /// A context switch.
    Switch {
        flags: u16 = aux[0..4], "switch flags: 1 preempted, 2 in I/O wait, 4 throttled by its cgroup's CPU quota";
        place: u16 = aux[4..16], "place in the program that the thread sleeps at: number in run.json's sampling.sleep_places + 1, 0: not known";
        previous_tid: u32 = a[0..32], "thread that leaves the core";
        next_tid: u32 = a[32..64], "thread that comes";
        state: u32 = b[0..32], "state in which the previous one leaves, as the kernel's TASK_ flags; 0: it could run on";
        next_priority: u32 = b[32..64], "priority of the next one, as the kernel counts";
        call: u32 = c[0..32], "a sleeping target thread's system call number + 1, 0: not known, 0xffffffff: in none";
        stack: u32 = c[32..64], "index into run.json's stacks, 0: none";
    }
    /// A wake-up, on the waker's core.
    Waking {
        woken_tid: u32 = a[0..32], "thread that is woken";
        last_cpu: u32 = a[32..64], "core that it ran on last";
        woken_tgid: u32 = b, "its process";
    }
    /// A thread that became runnable.
    Wakeup {
        woken_tid: u32 = a[0..32], "thread that is runnable now";
        target_cpu: u32 = a[32..64], "core that it is to run on";
    }
    /// A thread that goes to another core.
    Move {
        moved_tid: u32 = a, "thread that moves";
        from_cpu: u32 = b[0..32], "core that it leaves";
        to_cpu: u32 = b[32..64], "core that it goes to";
    }
    /// A thread and its name.
    Task {
        task_tid: u32 = a[0..32], "thread";
        task_tgid: u32 = a[32..64], "its process";
        comm: Text = bc, "its name, 16 bytes";
    }
    /// A thread that ended.
    Exit {
        task_tid: u32 = a[0..32], "thread";
        task_tgid: u32 = a[32..64], "its process";
    }

    /// The two ends of a packet or a socket.
    Flow {
        flags: u16 = aux, "flow flags";
        address_key: u64 = a, "address key";
        local_port: u16 = b[16..32], "local port";
        remote_port: u16 = b[0..16], "remote port";
    }
    /// A packet at one of the places that it passes.
    Packet {
        flow: Flow = layout, "its ends, as this host sees them";
        sequence: u32 = b[32..64], "TCP sequence number of its first byte";
        bytes: u32 = c[0..32], "payload, bytes";
        ifindex: u32 = c[32..64], "network device";
    }
    /// A NIC's receive stamp.
    Stamp {
        nic_ns: u64 = a, "hardware time stamp, ns of the NIC's clock (nic_clocks.arrow)";
        ifindex: u32 = b, "network device, 0 in older runs";
    }
    /// A socket that was made readable.
    Handoff {
        flow: Flow = layout, "the socket's ends";
        rcv_nxt: u32 = b[32..64], "TCP sequence number after the last byte that came";
        cookie: u32 = c[0..32], "socket cookie (low 32 bits)";
    }
    /// Data that a receive call returned.
    Recv {
        flow: Flow = layout, "the socket's ends";
        copied_seq: u32 = b[32..64], "TCP sequence number after the last byte that was read";
        bytes: u32 = c[0..32], "bytes that the call returned";
        cookie: u32 = c[32..64], "socket cookie (low 32 bits)";
    }
    /// Data that a send call took.
    Send {
        flow: Flow = layout, "the socket's ends";
        write_seq: u32 = b[32..64], "TCP sequence number after the last byte that was taken";
        bytes: u32 = c[0..32], "bytes that the call took";
        cookie: u32 = c[32..64], "socket cookie (low 32 bits)";
    }
    /// A send call that begins to take data.
    SendBegin {
        flow: Flow = layout, "the socket's ends";
        write_seq: u32 = b[32..64], "TCP sequence number after the last byte that was taken before";
    }
    /// A segment that was sent again.
    Retransmit {
        flow: Flow = layout, "the connection's ends";
        sequence: u32 = b[32..64], "TCP sequence number of its first byte, 0 in older runs";
        bytes: u32 = c[0..32], "payload, bytes; 0 in older runs";
        duplicates: u32 = c[32..64], "segments that the other end has reported as received twice; 0 in older runs";
    }
    /// A packet that was dropped.
    Drop {
        flow: Flow = layout, "its ends";
        sequence: u32 = b[32..64], "TCP sequence number of its first byte";
        bytes: u32 = c[0..32], "payload, bytes";
        reason: u32 = c[32..64], "the kernel's drop reason";
    }
    /// A TCP socket's state.
    State {
        flow: Flow = layout, "the socket's ends";
        old_state: u8 = b[32..40], "TCP state that it leaves";
        new_state: u8 = b[40..48], "TCP state that it enters";
        cookie: u32 = c, "socket cookie (low 32 bits)";
    }
    /// An address of an IPv6 flow.
    Address {
        remote: u16 = aux[0..1], "whose address: 0 local, 1 remote";
        address_key: u64 = a, "address key";
        address: Bytes16 = bc, "the 16 bytes of the address";
    }
    /// A NIC's transmit stamp.
    SentStamp {
        flow: Flow = layout, "the connection's ends";
        end: u32 = b[32..64], "TCP sequence number after the reply's last byte";
        nic_ns: u64 = c, "hardware time stamp, ns of the NIC's clock";
    }
    /// Bytes of a packet's payload.
    Piece {
        number: u8 = aux[0..7], "number of the 24-byte piece in its packet, from 0";
        outgoing: u8 = aux[7..8], "direction: 1 out";
        low_sequence: u8 = aux[8..16], "low byte of the packet's sequence number";
        payload: Bytes24 = abc, "24 bytes";
    }
    /// Plain text that went through a TLS library.
    PlainText {
        outgoing: u16 = aux[0..1], "direction: 1 out";
        connection: u64 = a, "number of the library's connection: two that are open at a time have two";
        bytes: u32 = b[0..32], "bytes; 0: it had none to give, or took none yet";
        begin_ns: u32 = b[32..64], "when the call began, CLOCK_MONOTONIC ns (low 32 bits)";
    }
    /// Bytes that were copied.
    Copied {
        bytes: u64 = a, "bytes";
    }

    /// A system call that was entered.
    Call {
        nr: u32 = a, "system call number";
    }
    /// What a call returned.
    Return {
        value: i64 = b, "return value";
    }
    /// A softirq.
    Softirq {
        vector: u8 = a, "softirq vector (3 is NET_RX)";
    }
    /// A device interrupt that begins.
    Handler {
        irq: u32 = a, "interrupt number";
        handler: Text = bc, "the handler's name, 16 bytes";
    }
    /// A device interrupt that ends.
    Irq {
        irq: u32 = a, "interrupt number";
    }
    /// A system vector.
    Vector {
        vector: u16 = aux, "which system vector, by its number below";
    }
    /// A poll of a NIC.
    Poll {
        packets: u32 = a[0..32], "packets that it took";
        budget: u32 = a[32..64], "packets that it was allowed";
        ifindex: u32 = b, "network device";
    }
    /// An idle state.
    Idle {
        state: u32 = a, "state of the idle driver, 0xffffffff on exit";
    }
    /// A page fault.
    Fault {
        error: u64 = b, "the processor's error code";
    }
    /// Another core.
    OtherCpu {
        target_cpu: u32 = a, "the other core, 0xffffffff for a mask of several";
    }
    /// A lock of the kernel.
    Lock {
        lock_flags: u32 = a, "the kernel's LCB_F_ flags";
    }
    /// A work item.
    Work {
        function: u64 = a, "its function: index into run.json's symbols, 0: not known (before the recorder has looked it up: its address)";
    }
    /// Pages that were migrated.
    Migrated {
        pages_moved: u64 = a, "pages moved";
        pages_failed: u64 = b, "pages that could not be moved";
    }
    /// Why pages are migrated.
    Migrating {
        reason: u8 = a, "the kernel's enum migrate_reason (5: NUMA balancing)";
    }
    /// Events that were lost.
    Loss {
        events: u64 = b, "events lost";
    }
    /// Time that the hypervisor took.
    Stolen {
        since_last_ns: u64 = a, "stolen since the last such event of the core, ns";
        since_boot_ns: u64 = b, "stolen since boot, ns";
    }
    /// Memory that is reclaimed.
    Reclaim {
        which: u8 = aux, "0 of the host, 1 of its memory cgroup, 2 compaction";
    }
    /// A traced function.
    Function {
        flags: u16 = aux, "function flags: 1 of the kernel, 2 of a Go program";
        function: u32 = a[0..32], "index into run.json's traced.functions";
        position: u32 = a[32..64], "position of the user stack, bytes, plus a number of the run's own: only differences mean anything";
        goroutine: u64 = b, "goroutine, plus a number of the run's own; 0 of other programs";
    }
    /// A traced function that is recorded no longer.
    FunctionOff {
        function: u32 = a, "index into run.json's traced.functions";
        calls: u64 = b, "calls in the last tenth of a second";
    }
    /// The goroutine that a thread turns to.
    Goroutine {
        goroutine: u64 = b, "goroutine as in FunctionBegin, or task of asyncio or tokio; 0: to none";
    }
    /// A task that is made ready.
    Woken {
        goroutine: u64 = b, "the task, as in RoutineRun";
        place: u16 = c, "where in the program that is done: a place as of SchedSwitch; 0: not known";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::switch_flags::MOST_PLACES;

    /// The mask of the bits that a field takes, for each word.
    fn taken(field: &FieldSpec) -> Vec<(Word, u64)> {
        match field.place {
            Place::Whole(word) => vec![(word, u64::MAX >> (64 - word.bits()))],
            Place::Bits { word, from, to } => vec![(word, bits(from, to))],
            Place::Bytes(words) => words.iter().map(|word| (*word, u64::MAX)).collect(),
            Place::Layout(_) => unreachable!("flat"),
        }
    }

    #[test]
    fn no_two_fields_of_a_layout_overlap_and_none_has_a_column_s_name() {
        for layout in LAYOUTS {
            let mut used = [0u64; 4];
            for field in layout.flat() {
                assert!(!["cpu", "ts", "kind", "aux", "tid", "a", "b", "c"].contains(&field.name), "{}", field.name);
                for (word, mask) in taken(field) {
                    assert_eq!(used[word as usize] & mask, 0, "{}.{}", layout.name, field.name);
                    used[word as usize] |= mask;
                }
            }
        }
    }

    #[test]
    fn each_layout_is_of_a_kind_or_inside_of_one_and_each_name_means_one_thing_there() {
        for layout in LAYOUTS {
            assert!(KINDS.iter().any(|kind| kind.layout.holds(layout.name)), "{} is nobody's", layout.name);
            let names: Vec<&str> = layout.flat().iter().map(|field| field.name).collect();
            let distinct: std::collections::HashSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{}", layout.name);
        }
    }

    /// The places are a contract: runs of older recorders are read with them.
    #[test]
    fn fields_lie_where_runs_have_them() {
        let event = Event {
            kind: Kind::SchedSwitch as u8,
            aux: 0xabc5,
            a: 2 << 32 | 1,
            b: 4 << 32 | 3,
            c: 6 << 32 | 5,
            ..Event::default()
        };
        let switch = Switch::of(&event);
        assert_eq!(Switch { place: MOST_PLACES, ..switch }.event(Kind::SchedSwitch, 0, 0).aux, 0xfff5);
        assert_eq!((switch.flags, switch.place, switch.previous_tid, switch.next_tid), (5, 0xabc, 1, 2));
        assert_eq!((switch.state, switch.next_priority, switch.call, switch.stack), (3, 4, 5, 6));
        let event = Event {
            kind: Kind::RxStack as u8,
            aux: 32,
            a: u64::MAX,
            b: 9 << 32 | 80 << 16 | 4000,
            c: 7 << 32 | 100,
            ..Event::default()
        };
        let flow = Flow { flags: 32, address_key: u64::MAX, local_port: 80, remote_port: 4000 };
        assert_eq!(Packet::of(&event), Packet { flow, sequence: 9, bytes: 100, ifindex: 7 });
        let event = Event { kind: Kind::SockState as u8, b: 0x0201 << 32, c: 8, ..Event::default() };
        let state = State::of(&event);
        assert_eq!((state.old_state, state.new_state, state.cookie), (1, 2, 8));
        let event = Event { kind: Kind::Payload as u8, aux: 0x5583, a: 1, b: 2, c: 3, ..Event::default() };
        assert_eq!(Piece::of(&event), Piece { number: 3, outgoing: 1, low_sequence: 0x55, payload: [1, 2, 3] });
        let event = Event { kind: Kind::SyscallExit as u8, b: -11i64 as u64, ..Event::default() };
        assert_eq!(Return::of(&event).value, -11);
    }

    #[test]
    fn writing_a_field_leaves_the_rest_of_the_event() {
        let mut event = Event { ts: 1, kind: Kind::SchedMigrate as u8, tid: 9, c: 77, ..Event::default() };
        Move { moved_tid: 5, from_cpu: 1, to_cpu: u32::MAX }.write(&mut event);
        let expected = Event { ts: 1, kind: 4, tid: 9, a: 5, b: 0xffff_ffff_0000_0001, c: 77, ..Event::default() };
        assert_eq!(event, expected);
        let piece = Piece { number: 127, outgoing: 1, low_sequence: 255, payload: [1, 2, 3] };
        assert_eq!(Piece::of(&piece.event(Kind::Payload, 0, 0)), piece);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "SchedSwitch")]
    fn the_fields_of_another_kind_are_refused() {
        Packet::of(&Switch::default().event(Kind::SchedSwitch, 0, 0));
    }

    #[test]
    fn text_round_trips_and_is_cut_at_fifteen_bytes() {
        assert_eq!(Text::new("memcached").to_string(), "memcached");
        assert_eq!(Text::new("a-very-long-task-name").to_string(), "a-very-long-tas");
        let after_nul = [u64::from_le_bytes(*b"name\0abc"), u64::from_le_bytes(*b"defghijk")];
        assert_eq!(Text::from(after_nul).to_string(), "name");
    }
}
