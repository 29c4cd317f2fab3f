//! USDT probes: the notes in which a program tells where its own probes are (`sys/sdt.h`).
//!
//! In: an ELF file. Out: its [`Probe`]s, and which two of them are begin and end of the same thing.

use object::read::ReadRef;
use object::{Object, ObjectSection};

/// A probe at one place of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who provides it.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Where it is, in the file's own address space.
    pub address: u64,
    /// Where its semaphore is, likewise; 0: it has none.
    pub semaphore: u64,
}

/// Endings of names that belong together.
const PAIRS: [(&str, &[&str]); 4] = [
    ("start", &["done", "end", "stop", "finish"]),
    ("begin", &["end", "done"]),
    ("entry", &["return", "exit"]),
    ("enter", &["exit", "return", "leave"]),
];

/// The probes of a file; those that cannot be read are left out.
pub fn probes<'a, R: ReadRef<'a>>(file: &object::File<'a, R>) -> Vec<Probe> {
    let base = file.section_by_name(".stapsdt.base").map_or(0, |s| s.address());
    let notes = file.section_by_name(".note.stapsdt").and_then(|s| s.data().ok());
    notes.map_or_else(Vec::new, |notes| parse(notes, base))
}

/// The notes of a 64-bit little-endian file. `base`: where `.stapsdt.base` is, for files that were prelinked.
pub fn parse(mut notes: &[u8], base: u64) -> Vec<Probe> {
    const TYPE: u32 = 3;
    let mut out = vec![];
    while let Some(header) = notes.get(..12) {
        let int = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let padded = |n: u32| (n as usize).checked_next_multiple_of(4);
        let (Some(name), Some(size)) = (padded(int(0)), padded(int(4))) else { break };
        let Some(rest) = notes.get(12..) else { break };
        let (Some(owner), Some(after)) = (rest.get(..name), rest.get(name..)) else { break };
        let Some(body) = after.get(..size) else { break };
        if owner.starts_with(b"stapsdt\0") && int(8) == TYPE {
            out.extend(probe(body, base));
        }
        notes = &after[size..];
    }
    out
}

fn probe(body: &[u8], base: u64) -> Option<Probe> {
    let long = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let (address, noted, semaphore) = (long(0)?, long(8)?, long(16)?);
    let mut texts = body.get(24..)?.split(|&byte| byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    let (provider, name) = (texts.next()?, texts.next()?);
    let moved = if base == 0 || noted == 0 { 0 } else { base.wrapping_sub(noted) };
    let place = |at: u64| if at == 0 { 0 } else { at.wrapping_add(moved) };
    Some(Probe { provider, name, address: place(address), semaphore: place(semaphore) })
}

/// The names of the two probes that are meant: `BEGIN,END`, a name that is one of a pair, or what both begin with.
///
/// # Errors
/// Why there is no such pair, and which probes there are.
pub fn pair(all: &[Probe], provider: &str, wanted: &str) -> Result<(String, String), String> {
    let names: Vec<&str> = all.iter().filter(|p| p.provider == provider).map(|p| p.name.as_str()).collect();
    if names.is_empty() {
        let mut others: Vec<&str> = all.iter().map(|p| p.provider.as_str()).collect();
        others.sort_unstable();
        others.dedup();
        let has = if others.is_empty() { "none at all".into() } else { format!("those of {}", others.join(", ")) };
        return Err(format!("it has no USDT probe of {provider:?}; it has {has}"));
    }
    let has = |name: &str| names.contains(&name);
    if let Some((begin, end)) = wanted.split_once(',') {
        return match [begin, end].into_iter().find(|name| !has(name)) {
            None => Ok((begin.into(), end.into())),
            Some(missing) => Err(format!("it has no USDT probe {provider}:{missing}; {}", listed(&names))),
        };
    }
    for (first, lasts) in PAIRS {
        for last in lasts {
            let begins =
                names.iter().filter(|name| name.strip_suffix(first).is_some_and(|stem| has(&format!("{stem}{last}"))));
            for begin in begins {
                let stem = &begin[..begin.len() - first.len()];
                let end = format!("{stem}{last}");
                if wanted == *begin || wanted == end || wanted == stem.trim_end_matches(['_', '-']) {
                    return Ok(((*begin).to_owned(), end));
                }
            }
        }
    }
    Err(if has(wanted) {
        format!(
            "{provider}:{wanted} is one probe, and a span needs two: write {provider}:BEGIN,END; {}",
            listed(&names)
        )
    } else {
        format!("it has no USDT probe {provider}:{wanted}; {}", listed(&names))
    })
}

fn listed(of: &[&str]) -> String {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let more = sorted.len().saturating_sub(12);
    sorted.truncate(12);
    format!("it has {}{}", sorted.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

/// What two names have in common, to call the pair by.
pub fn stem<'a>(begin: &'a str, end: &str) -> &'a str {
    let same = begin.bytes().zip(end.bytes()).take_while(|(a, b)| a == b).count();
    let stem = begin.get(..same).unwrap_or_default().trim_end_matches(['_', '-']);
    if stem.is_empty() { begin } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(address: u64, base: u64, semaphore: u64, texts: &[u8]) -> Vec<u8> {
        let mut body = [address, base, semaphore].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        body.extend_from_slice(texts);
        let mut out = [8u32, body.len() as u32, 3].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        out.extend_from_slice(b"stapsdt\0");
        out.extend_from_slice(&body);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn notes_are_read_and_moved_with_their_base() {
        let mut notes = note(0x1000, 0x500, 0x9000, b"db\0query__start\0-4@%eax\0");
        notes.extend(note(0x1010, 0x500, 0, b"db\0query__done\0\0"));
        let probes = parse(&notes, 0x600);
        let parts_of = |p: &Probe| (p.provider.clone(), p.name.clone(), p.address, p.semaphore);
        assert_eq!(parts_of(&probes[0]), ("db".into(), "query__start".into(), 0x1100, 0x9100));
        assert_eq!(parts_of(&probes[1]), ("db".into(), "query__done".into(), 0x1110, 0));
        for cut in 0..notes.len() {
            let _ = parse(&notes[..cut], 0);
        }
        let mut huge = notes.clone();
        huge[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(parse(&huge, 0).is_empty());
    }

    #[test]
    fn two_probes_are_a_begin_and_an_end() {
        let probe_named = |name: &str| Probe { provider: "db".into(), name: name.into(), address: 1, semaphore: 0 };
        let probes =
            ["query__start", "query__done", "function-entry", "function-return", "hit", "a", "b"].map(probe_named);
        let pair = |wanted: &str| pair(&probes, "db", wanted);
        let query = ("query__start".to_owned(), "query__done".to_owned());
        assert_eq!((pair("query"), pair("query__done")), (Ok(query.clone()), Ok(query.clone())));
        assert_eq!(pair("function").unwrap().1, "function-return");
        assert_eq!(pair("a,b").unwrap(), ("a".into(), "b".into()));
        assert!(pair("hit").unwrap_err().contains("a span needs two"));
        assert!(pair("a,c").unwrap_err().contains("db:c"));
        assert!(super::pair(&probes, "web", "x").unwrap_err().contains("those of db"));
        assert_eq!(stem(&query.0, &query.1), "query");
        assert_eq!(stem("a", "b"), "a");
    }
}
