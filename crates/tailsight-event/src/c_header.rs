//! The C header of the event record, for the probes.
//!
//! In: the tables of [`crate::event`] and [`crate::fields`]. Out: the event's struct, numbers and flags, and for each kind a macro that
//! packs its fields by their names: `ts_sched_migrate(.moved_tid = …, .from_cpu = …, .to_cpu = …)`. A field that is not given is 0.

use crate::event::{KINDS, VECTORS, flow_flags, function_flags, switch_flags};
use crate::fields::{FieldSpec, LAYOUTS, LayoutSpec, Place, Word};

/// The whole header.
pub fn text() -> String {
    let mut out = String::from(
        "/* Generated from crates/tailsight-event/src by build.rs. Do not edit. */\n#pragma once\n\
         struct ts_event {\n\t__u64 ts;\n\t__u8 kind;\n\t__u8 generation;\n\t__u16 aux;\n\t__u32 tid;\n\t__u64 a;\n\t__u64 b;\n\t__u64 c;\n};\n\
         _Static_assert(sizeof(struct ts_event) == 40, \"event size\");\n\nenum ts_kind {\n",
    );
    for spec in KINDS {
        out += &format!("\tTS_{} = {},\n", snake(spec.name).to_uppercase(), spec.kind as u8);
    }
    out += "};\n\n";
    for (name, value) in [
        ("V6", flow_flags::V6),
        ("UDP", flow_flags::UDP),
        ("FIN", flow_flags::FIN),
        ("SYN", flow_flags::SYN),
        ("RST", flow_flags::RST),
        ("FOREIGN", flow_flags::FOREIGN),
        ("RECOVERY", flow_flags::RECOVERY),
        ("OUT", flow_flags::OUT),
        ("CLIENT", flow_flags::CLIENT),
        ("FULL", flow_flags::FULL),
        ("TLS", flow_flags::TLS),
        ("HTTP2", flow_flags::HTTP2),
        ("LOOKED", flow_flags::LOOKED),
    ] {
        out += &format!("#define TS_FLOW_{name} {value}\n");
    }
    for (name, value) in [
        ("PREEMPTED", switch_flags::PREEMPTED),
        ("IO_WAIT", switch_flags::IO_WAIT),
        ("THROTTLED", switch_flags::THROTTLED),
        ("MOST_PLACES", switch_flags::MOST_PLACES),
    ] {
        out += &format!("#define TS_SWITCH_{name} {value}\n");
    }
    for (name, value) in [("KERNEL", function_flags::KERNEL), ("GO", function_flags::GO)] {
        out += &format!("#define TS_FUNCTION_{name} {value}\n");
    }
    for (n, name) in VECTORS.iter().enumerate() {
        out += &format!("#define TS_VECTOR_{} {n}\n", name.to_uppercase());
    }
    out +=
        &format!("#define TS_MIX_K1 {:#x}ULL\n#define TS_MIX_K2 {:#x}ULL\n", crate::flow::MIX_K1, crate::flow::MIX_K2);
    out += "\n/* What an event says, apart from who ran and when. */\n\
            struct ts_content {\n\t__u8 kind;\n\t__u16 aux;\n\t__u64 a;\n\t__u64 b;\n\t__u64 c;\n};\n";
    for layout in LAYOUTS {
        out += &structure(layout);
        out += &packer(layout);
    }
    out += "\n";
    for spec in KINDS {
        let (kind, layout) = (snake(spec.name), snake(spec.layout.name));
        out += &format!(
            "#define ts_{kind}(...) ts_pack_{layout}(TS_{}, (struct ts_fields_{layout}){{ __VA_ARGS__ }})\n",
            kind.to_uppercase()
        );
    }
    out
}

/// The fields of a layout as a struct.
fn structure(layout: &LayoutSpec) -> String {
    let members = layout.fields.iter().map(|field| match field.place {
        Place::Layout(inner) => format!("\tstruct ts_fields_{} {};\n", snake(inner.name), field.name),
        Place::Bytes(words) => format!("\t__u64 {}[{}];\n", field.name, words.len()),
        Place::Whole(_) | Place::Bits { .. } => format!("\t{} {};\n", c_type(field), field.name),
    });
    format!("\nstruct ts_fields_{} {{\n{}}};\n", snake(layout.name), members.collect::<String>())
}

/// The function that puts the fields of a layout into their places.
fn packer(layout: &LayoutSpec) -> String {
    let name = snake(layout.name);
    let mut words = [const { Vec::<String>::new() }; 4];
    pack("f", layout, &mut words);
    let word = |at: Word| if words[at as usize].is_empty() { "0".into() } else { words[at as usize].join(" | ") };
    format!(
        "static inline __attribute__((always_inline)) struct ts_content ts_pack_{name}(__u8 kind, struct ts_fields_{name} f)\n{{\n\
         \treturn (struct ts_content){{ .kind = kind, .aux = {}, .a = {}, .b = {}, .c = {} }};\n}}\n",
        word(Word::Aux),
        word(Word::A),
        word(Word::B),
        word(Word::C)
    )
}

/// What each word is made of. `path`: the struct that has the fields, in C.
fn pack(path: &str, layout: &LayoutSpec, words: &mut [Vec<String>; 4]) {
    for field in layout.fields {
        let value = format!("{path}.{}", field.name);
        match field.place {
            Place::Layout(inner) => pack(&value, inner, words),
            Place::Whole(word) => words[word as usize].push(value),
            Place::Bytes(of) => {
                for (at, word) in of.iter().enumerate() {
                    words[*word as usize].push(format!("{value}[{at}]"));
                }
            }
            Place::Bits { word, from, to } => {
                let mask = u64::MAX >> (u64::BITS - (to - from));
                // What the type has no room for, or what is shifted out of the word, needs no mask: where the compiler does not see
                // that it would be one more instruction.
                let masked = if field_bits(field) == to - from || to == word.bits() {
                    value
                } else {
                    format!("({value} & {mask:#x})")
                };
                words[word as usize].push(match (word, from) {
                    (Word::Aux, 0) => masked,
                    (Word::Aux, _) => format!("(__u16)({masked} << {from})"),
                    (_, 0) => format!("(__u64){masked}"),
                    _ => format!("(__u64){masked} << {from}"),
                });
            }
        }
    }
}

/// A field that has a word for itself is as wide as the word: readers may use less of it, the run keeps all that was written.
fn c_type(field: &FieldSpec) -> &'static str {
    match (field.place, field.type_name) {
        (Place::Whole(Word::Aux), _) => "__u16",
        (Place::Whole(_), "i64") => "__s64",
        (Place::Whole(_), _) => "__u64",
        _ => match field_bits(field) {
            8 => "__u8",
            16 => "__u16",
            32 => "__u32",
            _ => "__u64",
        },
    }
}

/// The width of a field's type.
fn field_bits(field: &FieldSpec) -> u32 {
    field.type_name[1..].parse().expect("a type of whole numbers")
}

/// `SchedSwitch` as `sched_switch`.
pub(crate) fn snake(camel: &str) -> String {
    let mut out = String::new();
    for (at, letter) in camel.chars().enumerate() {
        if letter.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_every_kind_with_its_number_and_its_fields() {
        let header = text();
        assert!(header.contains("\tTS_SCHED_SWITCH = 1,\n") && header.contains("\tTS_FLOW_ADDR6 = 23,\n"));
        for spec in KINDS {
            let kind = snake(spec.name);
            assert!(header.contains(&format!("\tTS_{} = {},\n", kind.to_uppercase(), spec.kind as u8)), "{kind}");
            assert!(header.contains(&format!("#define ts_{kind}(...) ts_pack_")), "{kind}");
        }
    }

    #[test]
    fn fields_are_packed_where_rust_reads_them() {
        let header = text();
        let packs = |line: &str| assert!(header.contains(line), "{line}");
        packs(".aux = (f.flags & 0xf) | (__u16)(f.place << 4), .a = (__u64)f.previous_tid | (__u64)f.next_tid << 32");
        packs(
            ".aux = f.flow.flags, .a = f.flow.address_key, .b = (__u64)f.flow.local_port << 16 | (__u64)f.flow.remote_port | (__u64)f.sequence << 32",
        );
        packs(".aux = 0, .a = f.moved_tid, .b = (__u64)f.from_cpu | (__u64)f.to_cpu << 32, .c = 0");
        packs(".a = f.payload[0], .b = f.payload[1], .c = f.payload[2]");
        packs("\t__s64 value;\n");
    }
}
