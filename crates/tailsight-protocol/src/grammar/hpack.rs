//! HPACK (RFC 7541), read by a third party. In: header blocks of one direction, in order, each with whether all of it was seen.
//! Out: the few fields that say what a request or a reply is.
//!
//! Who listens may have missed blocks, and then knows only the entries that were added since: indices count from the newest entry, so
//! that those are right, and what lies behind them is unknown, not an error. An entry keeps the value of a field that is asked for; of
//! others only the sizes count. The table is bounded by [`TABLE`], whatever was agreed; a block costs time in proportion to its bytes,
//! for a value that is named again is not copied again.

use std::collections::VecDeque;

use super::huffman;
use crate::wire::http2::read_integer;

/// Bytes of entries that are remembered, as RFC 7541 §4.1 counts them. Peers agree on 4 KiB unless they say otherwise; browsers on 64 KiB.
pub(crate) const TABLE: usize = 64 << 10;
/// What is agreed before anything is said (RFC 9113 §6.5.2).
const AGREED: usize = 4096;
/// What an entry costs beyond its name and value (§4.1).
const OVERHEAD: usize = 32;

/// Names of the static table (Appendix A); the first is index 1.
const NAMES: [&str; 61] = [
    ":authority",
    ":method",
    ":method",
    ":path",
    ":path",
    ":scheme",
    ":scheme",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "accept",
    "access-control-allow-origin",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "transfer-encoding",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
];

/// Values of the static table, of the fields that are asked for.
const fn static_value(index: usize) -> &'static [u8] {
    match index {
        2 => b"GET",
        3 => b"POST",
        4 => b"/",
        5 => b"/index.html",
        8 => b"200",
        9 => b"204",
        10 => b"206",
        11 => b"304",
        12 => b"400",
        13 => b"404",
        14 => b"500",
        _ => b"",
    }
}

/// A field's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// `:method`.
    Method,
    /// `:path`.
    Path,
    /// `:status`.
    Status,
    /// Any other one; its value is not kept.
    Other,
    /// It is in an entry whose block was not seen.
    Unknown,
}

impl Name {
    fn of(name: &[u8]) -> Name {
        match name {
            b":method" => Name::Method,
            b":path" => Name::Path,
            b":status" => Name::Status,
            _ => Name::Other,
        }
    }

    fn is_asked_for(self) -> bool {
        matches!(self, Name::Method | Name::Path | Name::Status)
    }
}

/// An entry of the dynamic table.
#[derive(Debug)]
struct Entry {
    name: Name,
    name_bytes: usize,
    value: Box<[u8]>,
    size: usize,
}

/// A name, and how long it is.
type Named = (Name, usize);

/// The state of one direction.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The newest first.
    entries: VecDeque<Entry>,
    size: usize,
    /// What the encoder announced.
    agreed: usize,
    /// No entry is missing.
    is_complete: bool,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        let entries = VecDeque::new();
        Self { entries, size: 0, agreed: AGREED, is_complete: true, name: Vec::new(), value: Vec::new() }
    }
}

impl Decoder {
    /// Blocks were missed: what the table holds is not known.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.size = 0;
        self.is_complete = false;
    }

    /// Reads a block; `is_whole`: it ends with `block`. Gives each field with its value, `None` where that is in an entry that was not
    /// seen. Returns whether it was read to its end; else it was cut or is none, and the table is forgotten.
    pub(crate) fn decode(&mut self, block: &[u8], is_whole: bool, mut each: impl FnMut(Name, Option<&[u8]>)) -> bool {
        let mut rest = block;
        while !rest.is_empty() {
            match self.field(rest, &mut each) {
                Some(used) => rest = &rest[used..],
                None => {
                    self.forget();
                    return false;
                }
            }
        }
        if !is_whole {
            self.forget();
        }
        is_whole
    }

    /// A field or an update of the table's size: how many bytes it has.
    fn field(&mut self, bytes: &[u8], each: &mut impl FnMut(Name, Option<&[u8]>)) -> Option<usize> {
        let first = *bytes.first()?;
        if first & 0x80 != 0 {
            let (index, used) = read_integer(bytes, 7)?;
            self.indexed(index, each)?;
            return Some(used);
        }
        if first & 0xe0 == 0x20 {
            let (size, used) = read_integer(bytes, 5)?;
            self.resize(size);
            return Some(used);
        }
        let is_added = first & 0x40 != 0;
        let (index, mut used) = read_integer(bytes, if is_added { 6 } else { 4 })?;
        let (name, name_bytes) = match index {
            0 => {
                used += string(&bytes[used..], &mut self.name)?;
                (Name::of(&self.name), self.name.len())
            }
            index => self.named(index)?,
        };
        used += string(&bytes[used..], &mut self.value)?;
        each(name, Some(&self.value));
        if is_added {
            self.add((name, name_bytes));
        }
        Some(used)
    }

    /// The place of an index in the dynamic table; `None`: that is no index at all.
    fn dynamic(&self, index: usize) -> Option<Option<&Entry>> {
        let entry = self.entries.get(index.checked_sub(NAMES.len() + 1)?);
        (entry.is_some() || !self.is_complete).then_some(entry)
    }

    fn indexed(&self, index: usize, each: &mut impl FnMut(Name, Option<&[u8]>)) -> Option<()> {
        if let Some(name) = NAMES.get(index.checked_sub(1)?) {
            each(Name::of(name.as_bytes()), Some(static_value(index)));
            return Some(());
        }
        match self.dynamic(index)? {
            Some(Entry { name: Name::Unknown, .. }) | None => each(Name::Unknown, None),
            Some(entry) => each(entry.name, Some(&entry.value)),
        }
        Some(())
    }

    fn named(&self, index: usize) -> Option<Named> {
        if let Some(name) = NAMES.get(index.checked_sub(1)?) {
            return Some((Name::of(name.as_bytes()), name.len()));
        }
        Some(self.dynamic(index)?.map_or((Name::Unknown, 0), |entry| (entry.name, entry.name_bytes)))
    }

    /// What the table may hold here. Where entries are missing their sizes are, too; more than the encoder has harms nothing, for it names
    /// only those that it has.
    fn room(&self) -> usize {
        if self.is_complete { self.agreed.min(TABLE) } else { TABLE }
    }

    /// The value that was read becomes an entry.
    fn add(&mut self, (name, name_bytes): Named) {
        let size = name_bytes + self.value.len() + OVERHEAD;
        let room = self.room();
        self.evict(room.saturating_sub(size));
        if size <= room {
            let value: &[u8] = if name.is_asked_for() { &self.value } else { &[] };
            self.entries.push_front(Entry { name, name_bytes, value: value.into(), size });
            self.size += size;
        } else if size <= self.agreed {
            // The encoder has it, and here it does not fit: what follows it is known again, itself and what is older is not.
            self.forget();
        }
    }

    fn evict(&mut self, upto: usize) {
        while self.size > upto
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size;
            self.is_complete &= self.agreed <= TABLE;
        }
    }

    fn resize(&mut self, size: usize) {
        self.agreed = size;
        if size == 0 {
            // An empty table is known, whatever was before.
            self.entries.clear();
            (self.size, self.is_complete) = (0, true);
        }
        self.evict(self.room());
    }

    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.entries.iter().map(|entry| size_of::<Entry>() + entry.value.len()).sum()
    }
}

/// A string (§5.2) into `text`; how many bytes it has here.
fn string(bytes: &[u8], text: &mut Vec<u8>) -> Option<usize> {
    text.clear();
    let is_huffman = bytes.first()? & 128 != 0;
    let (length, head) = read_integer(bytes, 7)?;
    let coded = bytes.get(head..head.checked_add(length)?)?;
    if is_huffman {
        huffman::decode(coded, text)?;
    } else {
        text.extend_from_slice(coded);
    }
    Some(head + length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::grammar::huffman::encode;

    type Field = (Name, Option<Vec<u8>>);

    /// What is asked for of a block, and whether it was read to its end.
    fn read(decoder: &mut Decoder, block: &[u8]) -> (Vec<Field>, bool) {
        let mut fields = Vec::new();
        let whole = decoder.decode(block, true, |name, value| {
            if name != Name::Other {
                fields.push((name, value.map(<[u8]>::to_vec)));
            }
        });
        (fields, whole)
    }

    /// The same of an independent decoder's fields.
    fn expected(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<Field> {
        let named = fields.into_iter().map(|(name, value)| (Name::of(&name), Some(value)));
        named.filter(|(name, _)| *name != Name::Other).collect()
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|d| d as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn some(name: Name, value: &str) -> Field {
        (name, Some(value.as_bytes().to_vec()))
    }

    /// RFC 7541 C.4: three requests, Huffman-coded, of one connection.
    #[test]
    fn requests_of_the_rfc_are_read() {
        let mut decoder = Decoder::default();
        for (block, path) in [
            ("828684418cf1e3c2e5f23a6ba0ab90f4ff", "/"),
            ("828684be5886a8eb10649cbf", "/"),
            ("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", "/index.html"),
        ] {
            let (fields, whole) = read(&mut decoder, &hex(block));
            assert!(whole && fields == [some(Name::Method, "GET"), some(Name::Path, path)], "{fields:?}");
        }
        assert_eq!((decoder.entries.len(), decoder.size), (3, 164));
    }

    /// RFC 7541 C.6: three replies with a table of 256 bytes, so that entries are evicted.
    #[test]
    fn replies_of_the_rfc_are_read() {
        let mut decoder = Decoder { agreed: 256, ..Decoder::default() };
        for (block, status, size) in [
            (
                "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
                "302",
                222,
            ),
            ("4883640effc1c0bf", "307", 222),
            (
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
                "200",
                215,
            ),
        ] {
            assert_eq!(read(&mut decoder, &hex(block)), (vec![some(Name::Status, status)], true));
            assert_eq!(decoder.size, size);
        }
    }

    /// A string on the wire.
    fn string(text: &[u8], is_huffman: bool) -> Vec<u8> {
        let coded = if is_huffman { encode(text) } else { text.to_vec() };
        [integer(coded.len(), 7, if is_huffman { 128 } else { 0 }), coded].concat()
    }

    fn integer(value: usize, bits: u8, first: u8) -> Vec<u8> {
        let mut bytes = fluke_hpack::encoder::encode_integer(value, bits);
        bytes[0] |= first;
        bytes
    }

    /// A field in any form, as likely wrong as an index into nothing is.
    fn form() -> impl Strategy<Value = Vec<u8>> {
        let text = prop_oneof![
            3 => "[a-z/0-9]{0,20}".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..300),
        ];
        let name =
            prop_oneof![Just(b":method".to_vec()), Just(b":path".to_vec()), Just(b":status".to_vec()), text.clone()];
        let literal = (
            0_usize..70,
            name,
            text,
            any::<[bool; 2]>(),
            proptest::sample::select(vec![(6_u8, 0x40_u8), (4, 0), (4, 0x10)]),
        );
        prop_oneof![
            4 => (1_usize..70).prop_map(|index| integer(index, 7, 0x80)),
            8 => literal.prop_map(|(index, name, value, huffman, (bits, first))| {
                let named = if index % 2 == 0 { string(&name, huffman[0]) } else { Vec::new() };
                let index = if index % 2 == 0 { 0 } else { index };
                [integer(index, bits, first), named, string(&value, huffman[1])].concat()
            }),
            1 => (0_usize..4096).prop_map(|size| integer(size, 5, 0x20)),
        ]
    }

    /// An encoder that adds every field to the table, and names those that are in it by their index.
    #[derive(Default)]
    struct Adding(VecDeque<(Name, Vec<u8>)>);

    impl Adding {
        fn field(&mut self, field: &(Name, Vec<u8>)) -> Vec<u8> {
            if let Some(at) = self.0.iter().position(|entry| entry == field) {
                return integer(NAMES.len() + 1 + at, 7, 0x80);
            }
            let (index, name): (usize, &str) = match field.0 {
                Name::Method => (2, ""),
                Name::Path => (4, ""),
                Name::Status => (8, ""),
                _ => (0, "x-other"),
            };
            self.0.push_front(field.clone());
            let size = |(name, value): &(Name, Vec<u8>)| {
                let name = [":method", ":path", ":status", "x-other"][*name as usize];
                name.len() + value.len() + OVERHEAD
            };
            while self.0.iter().map(size).sum::<usize>() > AGREED {
                self.0.pop_back();
            }
            let named = if index == 0 { string(name.as_bytes(), true) } else { Vec::new() };
            [integer(index, 6, 0x40), named, string(&field.1, true)].concat()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// What an independent decoder reads, this one does, and refuses what that refuses.
        #[test]
        fn blocks_are_read_as_by_another_decoder(blocks in proptest::collection::vec(proptest::collection::vec(form(), 0..12), 1..8)) {
            let (mut ours, mut theirs) = (Decoder::default(), fluke_hpack::Decoder::new());
            // An update of the table's size at the end of a block is refused by that one; here nothing depends on it.
            for block in blocks.iter().map(|forms| [&forms.concat()[..], &[0x82]].concat()) {
                match theirs.decode(&block) {
                    Ok(fields) => prop_assert_eq!(read(&mut ours, &block), (expected(fields), true)),
                    Err(_) => {
                        prop_assert!(!read(&mut ours, &block).1, "{:x?}", block);
                        break;
                    }
                }
            }
        }

        /// Who missed blocks, or a part of one, says less and nothing wrong.
        #[test]
        fn what_was_missed_is_unknown_and_never_another_value(
            blocks in proptest::collection::vec(proptest::collection::vec((0_usize..4, 0_usize..30), 1..6), 2..30),
            missed in proptest::collection::vec(prop_oneof![3 => Just(None), 1 => any::<usize>().prop_map(Some)], 30),
        ) {
            let mut encoder = Adding::default();
            let mut decoder = Decoder::default();
            decoder.forget();
            for (fields, missed) in blocks.iter().zip(missed) {
                let fields: Vec<(Name, Vec<u8>)> = fields.iter().map(|(name, value)| {
                    let name = [Name::Method, Name::Path, Name::Status, Name::Other][*name];
                    (name, format!("/value/{value}").repeat(1 + value % 7).into_bytes())
                }).collect();
                let block = fields.iter().map(|field| encoder.field(field)).collect::<Vec<_>>().concat();
                if let Some(kept) = missed {
                    decoder.decode(&block[..kept % block.len()], false, |_, _| ());
                    continue;
                }
                let mut said = Vec::new();
                prop_assert!(decoder.decode(&block, true, |name, value| said.push((name, value.map(<[u8]>::to_vec)))));
                prop_assert_eq!(said.len(), fields.len());
                for ((name, value), (true_name, true_value)) in said.into_iter().zip(&fields) {
                    prop_assert!(name == Name::Unknown || name == *true_name);
                    if name.is_asked_for() {
                        prop_assert!(value.is_none_or(|value| value == *true_value));
                    }
                }
            }
        }

        #[test]
        fn any_block_is_read_or_refused(block in proptest::collection::vec(any::<u8>(), 0..200), is_whole: bool) {
            let mut decoder = Decoder::default();
            let whole = decoder.decode(&block, is_whole, |_, _| ());
            prop_assert!(!whole || is_whole);
        }
    }

    /// An encoder that announces a table of a gigabyte, and one that names a large value again and again.
    #[test]
    fn the_table_is_bounded() {
        let mut decoder = Decoder::default();
        read(&mut decoder, &integer(1 << 30, 5, 0x20));
        for _ in 0..1_000 {
            let (_, whole) = read(&mut decoder, &[integer(4, 6, 0x40), string(&[b'a'; 1_000], false)].concat());
            assert!(whole && decoder.size <= TABLE);
        }
        assert!(!decoder.is_complete, "its oldest entries are not here");
        let small = [integer(4, 6, 0x40), string(b"", false)].concat();
        (0..10_000).for_each(|_| assert!(read(&mut decoder, &small).1));
        assert!(decoder.kept_bytes() < 4 * TABLE, "{}", decoder.kept_bytes());
        // A bomb: the same bytes, 60,000 times.
        read(&mut decoder, &[integer(4, 6, 0x40), string(&[b'a'; 4_000], false)].concat());
        let mut fields = 0;
        assert!(
            decoder.decode(&[0xbe; 60_000], true, |_, value| fields +=
                usize::from(value.is_some_and(|v| v.len() == 4_000)))
        );
        assert_eq!(fields, 60_000);
        assert!(decoder.value.capacity() < TABLE);
    }

    #[test]
    fn a_table_that_was_emptied_is_known() {
        let mut decoder = Decoder::default();
        decoder.forget();
        assert_eq!(read(&mut decoder, &[0xbe]), (vec![(Name::Unknown, None)], true));
        assert!(read(&mut decoder, &[0x20]).1);
        assert!(!read(&mut decoder, &[0xbe]).1, "it names an entry of an empty table");
    }
}
