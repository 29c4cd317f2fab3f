//! The layout of an object's variables. In: an ELF object of clang's for BPF (64 bits, little endian) with its type information (BTF).
//! Out: Rust structures, one a section of variables (`bss`, `rodata`) and one a structure that is in them, as C lays them out.
//!
//! Where a variable lies is in the symbol table (clang leaves BTF's offsets to the linker); of which type it is, in BTF
//! (docs.kernel.org/bpf/btf.html). Variables are numbers, arrays and structures of them; another kind ends the build.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The sections whose variables both sides use.
const SECTIONS: [&str; 2] = [".rodata", ".bss"];

/// The structures as Rust's source.
pub fn rust(object: &[u8]) -> String {
    let elf = Elf::of(object);
    let btf = Btf::of(elf.section(".BTF").1);
    let (mut out, mut structures) = (String::new(), BTreeMap::new());
    for section in SECTIONS {
        let index = elf.section(section).0;
        let symbols = elf.symbols(index);
        let mut fields: Vec<Field> = btf
            .variables(section)
            .map(|(name, kind)| {
                let place = symbols.iter().find(|(symbol, _)| *symbol == name);
                let offset = place.unwrap_or_else(|| panic!("{name} of {section} has no symbol")).1;
                Field { name: name.to_owned(), offset, kind: btf.resolved(kind) }
            })
            .collect();
        fields.sort_by_key(|field| field.offset);
        out += &structure(&section[1..], &fields, "", &mut structures);
    }
    let mut written = Vec::new();
    // Structures that are found in these are written after them.
    while let Some((name, fields)) = structures.pop_first() {
        if !written.contains(&name) {
            out += &structure(&name, &fields, ", Default", &mut structures);
            written.push(name);
        }
    }
    out
}

type Structures = BTreeMap<String, Vec<Field>>;

#[derive(Clone)]
struct Field {
    name: String,
    /// Bytes.
    offset: u64,
    kind: Kind,
}

/// A type of a variable.
#[derive(Clone)]
enum Kind {
    /// Rust's name, and its bytes.
    Number(&'static str, u64),
    Array(Box<Kind>, u64),
    Structure {
        name: String,
        size: u64,
        fields: Vec<Field>,
    },
}

impl Kind {
    fn size(&self) -> u64 {
        match self {
            Kind::Number(_, size) | Kind::Structure { size, .. } => *size,
            Kind::Array(element, count) => element.size() * count,
        }
    }

    /// As Rust's source; a structure is remembered.
    fn rust(&self, structures: &mut Structures) -> String {
        match self {
            Kind::Number(name, _) => (*name).to_owned(),
            Kind::Array(element, count) => format!("[{}; {count}]", element.rust(structures)),
            Kind::Structure { name, fields, .. } => {
                structures.insert(name.clone(), fields.clone());
                name.clone()
            }
        }
    }
}

/// A structure, with padding where C has padding.
fn structure(name: &str, fields: &[Field], more: &str, structures: &mut Structures) -> String {
    let mut out = format!("#[repr(C)]\n#[derive(Clone, Copy, Debug{more})]\npub struct {name} {{\n");
    let mut at = 0;
    for field in fields {
        if field.offset > at {
            writeln!(out, "    room_{at}: [u8; {}],", field.offset - at).expect("a string takes it");
        }
        writeln!(out, "    pub {}: {},", field.name, field.kind.rust(structures)).expect("a string takes it");
        at = field.offset + field.kind.size();
    }
    out += "}\n";
    for field in fields {
        let (field, offset) = (&field.name, field.offset);
        writeln!(out, "const _: () = assert!(std::mem::offset_of!({name}, {field}) == {offset});").expect("a string");
    }
    out
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The text that begins there and ends with a zero.
fn text(bytes: &[u8], at: u32) -> &str {
    let rest = &bytes[at as usize..];
    let end = rest.iter().position(|byte| *byte == 0).expect("texts end");
    std::str::from_utf8(&rest[..end]).expect("names are text")
}

/// The sections of the object: name, bytes.
struct Elf<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> Elf<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        const WITHOUT_BYTES: u32 = 8;
        assert!(bytes.starts_with(b"\x7fELF\x02\x01"), "clang makes an ELF object of 64 bits, little endian");
        let (table, count, names) = (u64_at(bytes, 0x28) as usize, u16_at(bytes, 0x3c), u16_at(bytes, 0x3e));
        let header = |n: u16| &bytes[table + 64 * usize::from(n)..][..64];
        let body = |header: &[u8]| -> &'a [u8] {
            let (from, size) = (u64_at(header, 24) as usize, u64_at(header, 32) as usize);
            if u32_at(header, 4) == WITHOUT_BYTES { &[] } else { &bytes[from..from + size] }
        };
        let names = body(header(names));
        Elf((0..count).map(|n| (text(names, u32_at(header(n), 0)), body(header(n)))).collect())
    }

    /// Its number and its bytes.
    fn section(&self, name: &str) -> (usize, &'a [u8]) {
        let at = self.0.iter().position(|(n, _)| *n == name).unwrap_or_else(|| panic!("the object has no {name}"));
        (at, self.0[at].1)
    }

    /// The names in a section, each with its place there.
    fn symbols(&self, section: usize) -> Vec<(&'a str, u64)> {
        let (table, names) = (self.section(".symtab").1, self.section(".strtab").1);
        let here = table.chunks_exact(24).filter(|symbol| usize::from(u16_at(symbol, 6)) == section);
        here.map(|symbol| (text(names, u32_at(symbol, 0)), u64_at(symbol, 8))).collect()
    }
}

/// The types by number, each as its 32-bit words: name, information, size or type, then what its kind adds.
struct Btf<'a> {
    types: Vec<&'a [u8]>,
    names: &'a [u8],
}

mod kind {
    pub const INT: u32 = 1;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
}

impl<'a> Btf<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let header = u32_at(bytes, 4) as usize;
        let part = |at: usize| &bytes[header + u32_at(bytes, at) as usize..][..u32_at(bytes, at + 4) as usize];
        let (mut rest, names) = (part(8), part(16));
        // Number 0 is `void`.
        let mut types: Vec<&[u8]> = vec![&[]];
        while !rest.is_empty() {
            let (many, kind_of_type) = (u32_at(rest, 4) & 0xffff, u32_at(rest, 4) >> 24 & 0x1f);
            // Bytes after the first three words, plus those of each member.
            let (fixed, each) = match kind_of_type {
                kind::INT | kind::VAR | 17 => (4, 0),
                kind::ARRAY => (12, 0),
                kind::STRUCT | 5 | kind::DATASEC | 19 => (0, 12),
                6 | 13 => (0, 8),
                _ => (0, 0),
            };
            let (type_bytes, next) = rest.split_at(12 + fixed + each * many as usize);
            types.push(type_bytes);
            rest = next;
        }
        Btf { types, names }
    }

    fn kind(&self, id: u32) -> u32 {
        u32_at(self.types[id as usize], 4) >> 24 & 0x1f
    }

    fn name(&self, id: u32) -> &'a str {
        text(self.names, u32_at(self.types[id as usize], 0))
    }

    /// The members of a section or a structure, three words each.
    fn members(&self, id: u32) -> impl Iterator<Item = [u32; 3]> + use<'a> {
        self.types[id as usize][12..].chunks_exact(12).map(|m| [u32_at(m, 0), u32_at(m, 4), u32_at(m, 8)])
    }

    /// The variables of a section: name, type.
    fn variables(&self, section: &str) -> impl Iterator<Item = (&'a str, u32)> {
        let ids = 1..self.types.len() as u32;
        let id = ids.clone().find(|&id| self.kind(id) == kind::DATASEC && self.name(id) == section);
        let id = id.unwrap_or_else(|| panic!("the object's types have no {section}"));
        self.members(id).map(|[variable, ..]| (self.name(variable), u32_at(self.types[variable as usize], 8)))
    }

    fn resolved(&self, id: u32) -> Kind {
        let words = self.types[id as usize];
        match self.kind(id) {
            kind::TYPEDEF | kind::VOLATILE | kind::CONST => self.resolved(u32_at(words, 8)),
            kind::INT => {
                let signed = u32_at(words, 12) >> 24 & 1 == 1;
                let name = match (u32_at(words, 8), signed) {
                    (1, false) => "u8",
                    (2, false) => "u16",
                    (4, false) => "u32",
                    (8, false) => "u64",
                    (1, true) => "i8",
                    (4, true) => "i32",
                    (8, true) => "i64",
                    other => panic!("a variable is a number of {other:?} (bytes, signed)"),
                };
                Kind::Number(name, u32_at(words, 8).into())
            }
            kind::ARRAY => Kind::Array(Box::new(self.resolved(u32_at(words, 12))), u32_at(words, 20).into()),
            kind::STRUCT => {
                let fields = self.members(id).map(|[name, type_id, bits]| {
                    let name = text(self.names, name).to_owned();
                    Field { name, offset: u64::from(bits) / 8, kind: self.resolved(type_id) }
                });
                let fields = fields.collect();
                Kind::Structure { name: self.name(id).to_owned(), size: u32_at(words, 8).into(), fields }
            }
            other => {
                panic!("a variable has a type of BTF's kind {other}; numbers, arrays and structures can be shared")
            }
        }
    }
}
