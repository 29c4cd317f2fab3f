//! A small reader of the kernel's BTF: which tracepoints can a `tp_btf` program attach to?
//!
//! In: the bytes of `/sys/kernel/btf/vmlinux` (a few MB). Out: for each tracepoint name whether the typedef
//! `btf_trace_<name>` exists, which is what the kernel looks up at attach time. One pass over the types section;
//! nothing is copied. Damaged input is an error, never a panic. Format: Documentation/bpf/btf.rst of the kernel.

use crate::{HostError, Root};
use std::collections::HashMap;

/// Where the running kernel shows its BTF.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;
const TYPE_LEN: usize = 12;

/// Which of the running kernel's tracepoints exist, in the order of `names`.
///
/// # Errors
/// [`HostError::Missing`] when the kernel has no BTF (`CONFIG_DEBUG_INFO_BTF`), [`HostError::Read`], [`HostError::Btf`].
pub fn tracepoints_present(names: &[&str]) -> Result<Vec<bool>, HostError> {
    tracepoints_under(&Root::host(), names)
}

/// As [`tracepoints_present`], of the host described by `root`.
///
/// # Errors
/// As [`tracepoints_present`].
pub fn tracepoints_under(root: &Root, names: &[&str]) -> Result<Vec<bool>, HostError> {
    tracepoints_in(&root.bytes(VMLINUX)?, names)
}

/// As [`tracepoints_present`], from a BTF image.
///
/// # Errors
/// [`HostError::Btf`] when the image is damaged, of another byte order, or has a kind of type not known here.
pub fn tracepoints_in(btf: &[u8], names: &[&str]) -> Result<Vec<bool>, HostError> {
    named_in(btf, (KIND_TYPEDEF, b"btf_trace_"), names)
}

/// Which functions the running kernel lets BPF programs know of, in the order of `names`.
///
/// # Errors
/// As [`tracepoints_present`].
pub fn functions_present(names: &[&str]) -> Result<Vec<bool>, HostError> {
    named_in(&Root::host().bytes(VMLINUX)?, (KIND_FUNC, b""), names)
}

/// Which types of a kind have a name of `names` behind a prefix.
fn named_in(btf: &[u8], (of_kind, prefix): (u32, &[u8]), names: &[&str]) -> Result<Vec<bool>, HostError> {
    let (types, strings) = sections(btf)?;
    let wanted: HashMap<&[u8], usize> = names.iter().enumerate().map(|(i, n)| (n.as_bytes(), i)).collect();
    let mut present = vec![false; names.len()];
    let mut at = 0;
    while at < types.bytes.len() {
        let fail = |what| HostError::Btf { offset: types.start + at, what };
        let head = types.bytes.get(at..at + TYPE_LEN).ok_or_else(|| fail("a type is cut off"))?;
        let info = u32_at(head, 4);
        let kind = info >> 24 & 0x1f;
        let len = extra_len(kind, (info & 0xffff) as usize).ok_or_else(|| fail("unknown kind of type"))?;
        if kind == of_kind {
            let name = strings.bytes.get(u32_at(head, 0) as usize..).ok_or_else(|| fail("a name is out of range"))?;
            if let Some(rest) = name.strip_prefix(prefix) {
                let end = rest.iter().position(|b| *b == 0).ok_or_else(|| fail("a name does not end"))?;
                if let Some(i) = wanted.get(&rest[..end]) {
                    present[*i] = true;
                }
            }
        }
        at += TYPE_LEN + len;
    }
    // A name asked twice has one slot in the map: copy its answer to the others.
    Ok(names.iter().map(|n| present[wanted[n.as_bytes()]]).collect())
}

/// The values of an enumeration of the running kernel by name, as [`enum_in`] gives them.
///
/// # Errors
/// As [`tracepoints_present`].
pub fn enum_present(name: &str, most: usize) -> Result<Vec<String>, HostError> {
    enum_in(&Root::host().bytes(VMLINUX)?, name, most)
}

/// The names of an enumeration's values, by value; values from `most` on and below 0 are left out, those between without a
/// name are empty. Nothing when the image has no such enumeration.
///
/// # Errors
/// As [`tracepoints_in`].
pub fn enum_in(btf: &[u8], wanted: &str, most: usize) -> Result<Vec<String>, HostError> {
    let (types, strings) = sections(btf)?;
    let text = |at: usize| -> Option<&[u8]> {
        let rest = strings.bytes.get(at..)?;
        rest.get(..rest.iter().position(|b| *b == 0)?)
    };
    let mut at = 0;
    while at < types.bytes.len() {
        let fail = |what| HostError::Btf { offset: types.start + at, what };
        let head = types.bytes.get(at..at + TYPE_LEN).ok_or_else(|| fail("a type is cut off"))?;
        let info = u32_at(head, 4);
        let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let len = extra_len(kind, members).ok_or_else(|| fail("unknown kind of type"))?;
        if kind == KIND_ENUM && text(u32_at(head, 0) as usize) == Some(wanted.as_bytes()) {
            let values =
                types.bytes.get(at + TYPE_LEN..at + TYPE_LEN + len).ok_or_else(|| fail("a type is cut off"))?;
            let mut names: Vec<String> = Vec::new();
            for member in values.chunks_exact(8) {
                let value = u32_at(member, 4) as usize;
                let name = text(u32_at(member, 0) as usize).ok_or_else(|| fail("a name is out of range"))?;
                if value < most {
                    names.resize(names.len().max(value + 1), String::new());
                    names[value] = String::from_utf8_lossy(name).into_owned();
                }
            }
            return Ok(names);
        }
        at += TYPE_LEN + len;
    }
    Ok(vec![])
}

/// A part of the image and where it starts.
struct Section<'a> {
    start: usize,
    bytes: &'a [u8],
}

fn sections(btf: &[u8]) -> Result<(Section<'_>, Section<'_>), HostError> {
    let fail = |offset, what| HostError::Btf { offset, what };
    let header = btf.get(..24).ok_or_else(|| fail(btf.len(), "the header is cut off"))?;
    let magic = u16::from_ne_bytes([header[0], header[1]]);
    if magic == MAGIC.swap_bytes() {
        return Err(fail(0, "it is of the other byte order"));
    }
    if magic != MAGIC {
        return Err(fail(0, "the magic number is missing"));
    }
    if header[2] != 1 {
        return Err(fail(2, "unknown version"));
    }
    let header_len = u32_at(header, 4) as usize;
    let section = |field: usize| {
        let start = header_len.checked_add(u32_at(header, field) as usize);
        let end = start.and_then(|s| s.checked_add(u32_at(header, field + 4) as usize));
        let (start, end) = start.zip(end).ok_or_else(|| fail(field, "a section is out of range"))?;
        let bytes = btf.get(start..end).ok_or_else(|| fail(field, "a section is out of range"))?;
        Ok(Section { start, bytes })
    };
    Ok((section(8)?, section(16)?))
}

/// Bytes after the 12-byte type for `kind` with `vlen` members; `None` for a kind this reader does not know.
fn extra_len(kind: u32, vlen: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,                            // INT, VAR, DECL_TAG
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0, // PTR, FWD, TYPEDEF, modifiers, FUNC, FLOAT, TYPE_TAG
        3 => 12,                                     // ARRAY
        4 | 5 | 15 | 19 => vlen * 12,                // STRUCT, UNION, DATASEC, ENUM64
        6 | 13 => vlen * 8,                          // ENUM, FUNC_PROTO
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An image with an int, a struct of two members and a typedef for each name.
    fn image(names: &[&str]) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut types = Vec::new();
        let word = |types: &mut Vec<u8>, w: u32| types.extend(w.to_ne_bytes());
        for w in [0, 1 << 24, 4, 32] {
            word(&mut types, w);
        }
        for w in [0, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32] {
            word(&mut types, w);
        }
        for name in names {
            let at = strings.len() as u32;
            strings.extend(name.bytes());
            strings.push(0);
            for w in [at, KIND_TYPEDEF << 24, 1] {
                word(&mut types, w);
            }
        }
        let mut out = MAGIC.to_ne_bytes().to_vec();
        out.extend([1, 0]);
        for w in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            out.extend(w.to_ne_bytes());
        }
        out.extend(types);
        out.extend(strings);
        out
    }

    #[test]
    fn finds_exactly_the_typedefs_that_are_there() {
        let image = image(&["btf_trace_sched_switch", "size_t", "btf_trace_sk_data_ready"]);
        let asked = ["sched_switch", "size_t", "sk_data_ready", "sched", "sched_switch", "no_such"];
        assert_eq!(tracepoints_in(&image, &asked).unwrap(), [true, false, true, false, true, false]);
    }

    #[test]
    fn an_enumeration_s_values_have_their_names_and_holes_none() {
        let strings = b"\0reason\0NONE\0FULL\0FAR\0";
        let at = |name: &str| strings.windows(name.len()).position(|w| w == name.as_bytes()).unwrap() as u32;
        let words = [at("reason"), KIND_ENUM << 24 | 3, 4, at("FULL"), 2, at("NONE"), 0, at("FAR"), 0xffff_0000];
        let mut image = MAGIC.to_ne_bytes().to_vec();
        image.extend([1, 0]);
        let bytes = words.len() as u32 * 4;
        for w in [24, 0, bytes, bytes, strings.len() as u32].into_iter().chain(words) {
            image.extend(w.to_ne_bytes());
        }
        image.extend(strings);
        assert_eq!(enum_in(&image, "reason", 100).unwrap(), ["NONE", "", "FULL"]);
        assert!(enum_in(&image, "other", 100).unwrap().is_empty());
        image.truncate(image.len() - strings.len() - 4);
        assert!(enum_in(&image, "reason", 100).is_err());
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let good = image(&["btf_trace_a"]);
        let error = |bytes: &[u8]| tracepoints_in(bytes, &["a"]).unwrap_err().to_string();
        assert!(error(&good[..10]).contains("header is cut off"));
        assert!(error(&good[..good.len() - 1]).contains("section is out of range"));
        assert!(error(b"\0\0\x01\0aaaaaaaaaaaaaaaaaaaaaaaa").contains("magic"));
        let mut swapped = good.clone();
        swapped.swap(0, 1);
        assert!(error(&swapped).contains("other byte order"));
        let mut odd = good.clone();
        odd[24 + 4..24 + 8].copy_from_slice(&(31u32 << 24).to_ne_bytes());
        assert!(error(&odd).contains("at byte 24: unknown kind"), "{}", error(&odd));
    }

    #[test]
    fn live_kernel_has_the_scheduler_and_not_an_invented_name() {
        if !std::path::Path::new(VMLINUX).exists() {
            return tailsight_testing::skip(format!("no {VMLINUX}"));
        }
        let start = std::time::Instant::now();
        let found = tracepoints_present(&["sched_switch", "sched_waking", "tailsight_invented"]).unwrap();
        println!("live BTF read and walked in {:?}", start.elapsed());
        assert_eq!(found, [true, true, false]);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = tracepoints_in(&bytes, &["a"]);
        }

        #[test]
        fn damaged_images_never_panic(
            cut in 0usize..200,
            edits in proptest::collection::vec((0usize..200, any::<u8>()), 0..6),
        ) {
            let mut bytes = image(&["btf_trace_a", "x", "btf_trace_b"]);
            for (at, value) in edits {
                if let Some(b) = bytes.get_mut(at) {
                    *b = value;
                }
            }
            bytes.truncate(cut);
            let _ = tracepoints_in(&bytes, &["a", "b"]);
        }
    }
}
