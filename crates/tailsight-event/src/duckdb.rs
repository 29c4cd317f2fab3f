//! Views of events for DuckDB: one for each kind, with its fields by their names.
//!
//! In: the tables of [`crate::event`] and [`crate::fields`]. Out: SQL. It expects a table `events` with the columns of
//! `events/cpu-N.arrow` and `cpu`, the number of the core; the schema page shows how to make one.

use crate::c_header::snake;
use crate::event::KINDS;
use crate::fields::{FieldSpec, Place, Word};

/// The views of every kind.
pub fn views() -> String {
    KINDS
        .iter()
        .map(|spec| {
            let fields =
                spec.layout.flat().into_iter().map(|field| format!(",\n  {} as {}", expression(field), field.name));
            format!(
                "create or replace view {} as select cpu, ts, tid{}\nfrom events where kind = {};\n",
                snake(spec.name),
                fields.collect::<String>(),
                spec.kind as u8
            )
        })
        .collect()
}

/// A field, out of the columns of events.
fn expression(field: &FieldSpec) -> String {
    match (field.place, field.type_name) {
        (Place::Bytes(words), "Text") => {
            // Up to the first NUL, which the kernel fills names up with.
            format!("array_to_string([chr(byte::integer) for byte in {} if byte > 0], '')", bytes(words))
        }
        (Place::Bytes(words), _) => format!("array_to_string([printf('%02x', byte) for byte in {}], '')", bytes(words)),
        // A negative number, in two's complement.
        (Place::Whole(word), "i64") => {
            let word = word.name();
            format!("(case when {word} >> 63 = 1 then {word}::hugeint - 18446744073709551616 else {word} end)::bigint")
        }
        (Place::Whole(word), of) if width(of) == word.bits() => word.name().into(),
        (Place::Whole(word), of) => part(word, 0, width(of), of),
        (Place::Bits { word, from, to }, of) => part(word, from, to - from, of),
        (Place::Layout(_), _) => unreachable!("a flat layout has none inside"),
    }
}

/// The bytes of words as a list, in the order of memory.
fn bytes(words: &[Word]) -> String {
    let list = |word: &Word| format!("[({} >> (8 * place)) & 255 for place in range(8)]", word.name());
    words.iter().map(list).collect::<Vec<_>>().join(" || ")
}

/// Some bits of a word, as a number of the type of that name.
fn part(word: Word, from: u32, bits: u32, of: &str) -> String {
    let name = word.name();
    let shifted = if from == 0 { name.into() } else { format!("({name} >> {from})") };
    let value =
        if from + bits == word.bits() { shifted } else { format!("({shifted} & {})", u64::MAX >> (u64::BITS - bits)) };
    let sql = match width(of) {
        8 => "utinyint",
        16 => "usmallint",
        32 => "uinteger",
        _ => "ubigint",
    };
    format!("{value}::{sql}")
}

/// The width of a type of whole numbers, in bits.
fn width(type_name: &str) -> u32 {
    type_name[1..].parse().expect("a type of whole numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_view_of_its_fields() {
        let views = views();
        let rx_stack = "create or replace view rx_stack as select cpu, ts, tid,\n  aux as flags,\n  a as address_key,\n  \
            ((b >> 16) & 65535)::usmallint as local_port,\n  (b & 65535)::usmallint as remote_port,\n  \
            (b >> 32)::uinteger as sequence,\n  (c & 4294967295)::uinteger as bytes,\n  \
            (c >> 32)::uinteger as ifindex\nfrom events where kind = 12;\n";
        assert!(views.contains(rx_stack), "{views}");
        assert!(views.contains("view csd_entry as select cpu, ts, tid\nfrom events where kind = 52;\n"));
        assert!(views.contains("(aux & 15)::usmallint as flags,\n  (aux >> 4)::usmallint as place,"));
        assert_eq!(views.matches("create or replace view").count(), KINDS.len());
    }
}
