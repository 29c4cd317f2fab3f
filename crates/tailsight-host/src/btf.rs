//! A small reader of the kernel's BTF: which tracepoints can a `tp_btf` program attach to, and where are they described?
//!
//! In: the bytes of `/sys/kernel/btf/vmlinux` (a few MB) and, for what is not there, of `/sys/kernel/btf/MODULE` of each loaded
//! module. Out: for each tracepoint name where the typedef `btf_trace_<name>` exists, which is what the kernel looks up at
//! attach time. One pass over the types section; nothing is copied. Damaged input is an error, never a panic. Format:
//! Documentation/bpf/btf.rst of the kernel. A module's BTF is split: offsets of strings go on where the kernel's own end.

use crate::{HostError, Root};
use std::collections::HashMap;

/// Where the running kernel shows the BTF of itself and of its loaded modules.
const FOLDER: &str = "/sys/kernel/btf";
/// Where the running kernel shows its BTF.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Where a tracepoint or a function is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the kernel itself.
    Kernel,
    /// In this module, which is loaded.
    Module(String),
}

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;
const TYPE_LEN: usize = 12;

/// Where the running kernel has each of these tracepoints, in the order of `names`; `None`: nowhere.
///
/// # Errors
/// [`HostError::Missing`] when the kernel has no BTF (`CONFIG_DEBUG_INFO_BTF`), [`HostError::Read`], [`HostError::Btf`].
pub fn tracepoints(names: &[&str]) -> Result<Vec<Option<Place>>, HostError> {
    tracepoints_under(&Root::host(), names)
}

/// As [`tracepoints`], of the host described by `root`.
///
/// # Errors
/// As [`tracepoints`].
pub fn tracepoints_under(root: &Root, names: &[&str]) -> Result<Vec<Option<Place>>, HostError> {
    places(root, TRACEPOINTS, names)
}

/// Where the running kernel has each of these functions, of those that it lets BPF programs know of.
///
/// # Errors
/// As [`tracepoints`].
pub fn functions(names: &[&str]) -> Result<Vec<Option<Place>>, HostError> {
    functions_under(&Root::host(), names)
}

/// As [`functions`], of the host described by `root`.
///
/// # Errors
/// As [`tracepoints`].
pub fn functions_under(root: &Root, names: &[&str]) -> Result<Vec<Option<Place>>, HostError> {
    places(root, FUNCTIONS, names)
}

/// The number of a function among the types of the kernel's own BTF, by which `bpf()` names it; `None`: it has none.
///
/// # Errors
/// [`HostError::Btf`] when the image is damaged, of another byte order, or has a kind of type not known here.
pub fn function_number(btf: &[u8], name: &str) -> Result<Option<u32>, HostError> {
    let (types, strings) = sections(btf)?;
    // Number 0 is `void`.
    let (mut number, mut at) = (1, 0);
    while at < types.bytes.len() {
        let fail = |what| HostError::Btf { offset: types.start + at, what };
        let head = types.bytes.get(at..at + TYPE_LEN).ok_or_else(|| fail("a type is cut off"))?;
        let info = u32_at(head, 4);
        let kind = info >> 24 & 0x1f;
        let named = strings.bytes.get(u32_at(head, 0) as usize..).unwrap_or_default();
        if kind == KIND_FUNC && named.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)) {
            return Ok(Some(number));
        }
        at += TYPE_LEN + extra_len(kind, (info & 0xffff) as usize).ok_or_else(|| fail("unknown kind of type"))?;
        number += 1;
    }
    Ok(None)
}

/// The kind of type to look for, and the prefix of its name.
type Wanted = (u32, &'static [u8]);
const TRACEPOINTS: Wanted = (KIND_TYPEDEF, b"btf_trace_");
const FUNCTIONS: Wanted = (KIND_FUNC, b"");

/// Modules are read only for what the kernel itself lacks. A module whose BTF cannot be read (it may have been unloaded just
/// now, or be out-of-tree and damaged) counts as empty: the kernel's own tracepoints do not depend on it.
fn places(root: &Root, wanted: Wanted, names: &[&str]) -> Result<Vec<Option<Place>>, HostError> {
    let kernel = root.bytes(VMLINUX)?;
    let in_kernel = named_in(&kernel, &[], wanted, names)?;
    let mut places: Vec<_> = in_kernel.into_iter().map(|there| there.then_some(Place::Kernel)).collect();
    let strings = sections(&kernel)?.1.bytes;
    for module in root.names(FOLDER).into_iter().filter(|name| name != "vmlinux") {
        if places.iter().all(Option::is_some) {
            break;
        }
        let Ok(split) = root.bytes(&format!("{FOLDER}/{module}")) else { continue };
        let Ok(in_module) = named_in(&split, strings, wanted, names) else { continue };
        for (place, _) in places.iter_mut().zip(in_module).filter(|(place, there)| *there && place.is_none()) {
            *place = Some(Place::Module(module.clone()));
        }
    }
    Ok(places)
}

/// Which names of `names` have a type of this kind with the prefix. `before`: the strings of the image that this one is
/// split from.
fn named_in(btf: &[u8], before: &[u8], (of_kind, prefix): Wanted, names: &[&str]) -> Result<Vec<bool>, HostError> {
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
            let name = u32_at(head, 0) as usize;
            let name = match name.checked_sub(before.len()) {
                Some(own) => strings.bytes.get(own..),
                None => before.get(name..),
            };
            let name = name.ok_or_else(|| fail("a name is out of range"))?;
            if let Some(rest) = name.strip_prefix(prefix) {
                let end = rest.iter().position(|b| *b == 0).ok_or_else(|| fail("a name does not end"))?;
                if let Some(i) = wanted.get(&rest[..end]) {
                    present[*i] = true;
                }
            }
        }
        at += TYPE_LEN + len;
    }
    // A name given twice has one slot in the map: copy its answer to the others.
    Ok(names.iter().map(|n| present[wanted[n.as_bytes()]]).collect())
}

/// The values of an enumeration of the running kernel by name, as [`enum_in`] gives them.
///
/// # Errors
/// As [`tracepoints`].
pub fn enum_present(name: &str, most: usize) -> Result<Vec<String>, HostError> {
    enum_in(&Root::host().bytes(VMLINUX)?, name, most)
}

/// The names of an enumeration's values, by value; values from `most` on and below 0 are left out, those between without a
/// name are empty. Nothing when the image has no such enumeration.
///
/// # Errors
/// [`HostError::Btf`] when the image is damaged, of another byte order, or has a kind of type not known here.
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

/// The members of a structure and where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Name and offset in bytes; those of unnamed structures and unions inside it, too.
    members: Vec<(String, usize)>,
}

impl Layout {
    /// Where a member is, bytes from the beginning.
    pub fn offset(&self, name: &str) -> Option<usize> {
        self.members.iter().find(|(known, _)| known == name).map(|(_, offset)| *offset)
    }
}

/// The layout of a structure; `None` when the image has none of that name.
///
/// # Errors
/// [`HostError::Btf`] when the image is damaged, of another byte order, or has a kind of type not known here.
pub fn layout(btf: &[u8], wanted: &str) -> Result<Option<Layout>, HostError> {
    let (types, strings) = sections(btf)?;
    let text = |at: usize| -> Option<&[u8]> {
        let rest = strings.bytes.get(at..)?;
        rest.get(..rest.iter().position(|b| *b == 0)?)
    };
    // Where each type is; number 0 is `void`.
    let (mut places, mut structure, mut at) = (vec![0], None, 0);
    while at < types.bytes.len() {
        let fail = |what| HostError::Btf { offset: types.start + at, what };
        let head = types.bytes.get(at..at + TYPE_LEN).ok_or_else(|| fail("a type is cut off"))?;
        let info = u32_at(head, 4);
        let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let len = extra_len(kind, members).ok_or_else(|| fail("unknown kind of type"))?;
        if types.bytes.len() - at < TYPE_LEN + len {
            return Err(fail("a type is cut off"));
        }
        places.push(at);
        if kind == KIND_STRUCT && structure.is_none() && text(u32_at(head, 0) as usize) == Some(wanted.as_bytes()) {
            structure = Some(places.len() - 1);
        }
        at += TYPE_LEN + len;
    }
    let Some(structure) = structure else { return Ok(None) };
    let mut out = Layout::default();
    let mut open = vec![(structure, 0usize, 0)];
    while let Some((number, base, depth)) = open.pop() {
        let Some(&at) = places.get(number) else { continue };
        let head = &types.bytes[at..at + TYPE_LEN];
        let info = u32_at(head, 4);
        if !matches!(info >> 24 & 0x1f, KIND_STRUCT | KIND_UNION) || depth > 8 {
            continue;
        }
        for i in 0..(info & 0xffff) as usize {
            let member = &types.bytes[at + TYPE_LEN + 12 * i..at + TYPE_LEN + 12 * (i + 1)];
            let (name, type_id, offset) = (u32_at(member, 0) as usize, u32_at(member, 4) as usize, u32_at(member, 8));
            // With bit fields in the structure, the high byte is a width.
            let bits = if info >> 31 == 1 { offset & 0x00ff_ffff } else { offset };
            let place = base + bits as usize / 8;
            match text(name) {
                Some(b"") => open.push((type_id, place, depth + 1)),
                Some(name) => out.members.push((String::from_utf8_lossy(name).into_owned(), place)),
                None => return Err(HostError::Btf { offset: types.start + at, what: "a name is out of range" }),
            }
        }
    }
    Ok(Some(out))
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
        split_image(0, names, &[])
    }

    /// The same for a module: its strings begin where those of the kernel's image end, and some of its names are in that.
    fn split_image(kernel_strings: u32, names: &[&str], names_in_kernel: &[u32]) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut types = Vec::new();
        let word = |types: &mut Vec<u8>, w: u32| types.extend(w.to_ne_bytes());
        for w in [0, 1 << 24, 4, 32] {
            word(&mut types, w);
        }
        for w in [0, 4 << 24 | 2, 8, 0, 1, 0, 0, 1, 32] {
            word(&mut types, w);
        }
        let mut offsets = names_in_kernel.to_vec();
        for name in names {
            offsets.push(kernel_strings + strings.len() as u32);
            strings.extend(name.bytes());
            strings.push(0);
        }
        for at in offsets {
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

    fn tracepoints_in(btf: &[u8], names: &[&str]) -> Result<Vec<bool>, HostError> {
        named_in(btf, &[], TRACEPOINTS, names)
    }

    #[test]
    fn a_function_has_the_number_of_its_type() {
        let mut image = image(&["vfs_fsync", "vfs_fsync_range"]);
        // An int, a structure of two members, and two typedefs: numbers 1 to 4. The last ones become functions.
        for at in [24 + 16 + 36 + 4, 24 + 16 + 36 + 12 + 4] {
            image[at..at + 4].copy_from_slice(&(KIND_FUNC << 24).to_ne_bytes());
        }
        assert_eq!(function_number(&image, "vfs_fsync").unwrap(), Some(3));
        assert_eq!(function_number(&image, "vfs_fsync_range").unwrap(), Some(4));
        assert_eq!(function_number(&image, "vfs_fsync_ran").unwrap(), None);
        assert!(function_number(&image[..40], "vfs_fsync").is_err());
    }

    #[test]
    fn finds_exactly_the_typedefs_that_are_there() {
        let image = image(&["btf_trace_sched_switch", "size_t", "btf_trace_sk_data_ready"]);
        let asked = ["sched_switch", "size_t", "sk_data_ready", "sched", "sched_switch", "no_such"];
        assert_eq!(tracepoints_in(&image, &asked).unwrap(), [true, false, true, false, true, false]);
    }

    /// Regression: on Debian, ext4 is a module, and its tracepoints were reported as missing because only the kernel's own
    /// BTF was read.
    #[test]
    fn tracepoints_of_loaded_modules_are_found_in_their_split_btf() {
        let host = tempfile::tempdir().unwrap();
        let folder = host.path().join("sys/kernel/btf");
        std::fs::create_dir_all(&folder).unwrap();
        let kernel = image(&["btf_trace_sched_switch", "btf_trace_of_both"]);
        let strings = sections(&kernel).unwrap().1.bytes.len() as u32;
        // A string that the kernel has is not repeated in the module: the typedef's name lies in the kernel's strings.
        let shared = 1 + "btf_trace_sched_switch".len() as u32 + 1;
        let module = split_image(strings, &["btf_trace_ext4_sync_file_enter"], &[shared]);
        std::fs::write(folder.join("vmlinux"), &kernel).unwrap();
        std::fs::write(folder.join("ext4"), &module).unwrap();
        std::fs::write(folder.join("broken"), b"no BTF").unwrap();
        let root = Root::at(host.path());
        let asked = ["ext4_sync_file_enter", "sched_switch", "of_both", "f2fs_sync_file_enter"];
        let ext4 = Some(Place::Module("ext4".into()));
        let expected = [ext4.clone(), Some(Place::Kernel), Some(Place::Kernel), None];
        assert_eq!(tracepoints_under(&root, &asked).unwrap(), expected);
        // Where only the module has the type, and its name is among the kernel's strings.
        std::fs::write(folder.join("vmlinux"), &kernel[..]).unwrap();
        assert_eq!(named_in(&module, sections(&kernel).unwrap().1.bytes, TRACEPOINTS, &["of_both"]).unwrap(), [true]);
        // Without the kernel's strings, no name is found.
        assert!(named_in(&module, &[], TRACEPOINTS, &asked).map_or(true, |found| found != [true, false, true, false]));
        // Functions are another kind of type.
        assert_eq!(functions_under(&root, &["btf_trace_of_both"]).unwrap(), [None]);
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
    fn members_of_unnamed_unions_are_the_structure_s_own() {
        let strings = b"\0clock\0seq\0base\0offset\0";
        let at = |name: &str| strings.windows(name.len()).position(|w| w == name.as_bytes()).unwrap() as u32;
        let words = [
            // 1: a union of two at the same place; 2: seq, then the union.
            [0, KIND_UNION << 24 | 2, 8].to_vec(),
            vec![at("base"), 0, 0, at("offset"), 0, 0],
            vec![at("clock"), KIND_STRUCT << 24 | 2, 16],
            vec![at("seq"), 0, 0, 0, 1, 64],
        ]
        .concat();
        let mut image = MAGIC.to_ne_bytes().to_vec();
        image.extend([1, 0]);
        let bytes = words.len() as u32 * 4;
        for w in [24, 0, bytes, bytes, strings.len() as u32].into_iter().chain(words) {
            image.extend(w.to_ne_bytes());
        }
        image.extend(strings);
        let clock = layout(&image, "clock").unwrap().unwrap();
        let offsets = ["seq", "base", "offset", "other"].map(|name| clock.offset(name));
        assert_eq!(offsets, [Some(0), Some(8), Some(8), None]);
        assert_eq!(layout(&image, "base").unwrap(), None);
        assert!(layout(&image[..image.len() - strings.len() - 3], "clock").is_err());
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

    /// Every module of the running kernel whose BTF it shows can be read.
    #[test]
    fn live_modules_are_read() {
        let root = Root::host();
        let modules: Vec<String> = root.names(FOLDER).into_iter().filter(|n| n != "vmlinux").collect();
        if modules.is_empty() {
            return tailsight_testing::skip(format!("no module with BTF in {FOLDER}"));
        }
        let kernel = root.bytes(VMLINUX).unwrap();
        let strings = sections(&kernel).unwrap().1.bytes;
        for module in modules {
            let split = root.bytes(&format!("{FOLDER}/{module}")).unwrap();
            named_in(&split, strings, FUNCTIONS, &["init_module"]).unwrap_or_else(|e| panic!("{module}: {e}"));
        }
    }

    #[test]
    fn live_kernel_has_the_scheduler_and_not_an_invented_name() {
        if !std::path::Path::new(VMLINUX).exists() {
            return tailsight_testing::skip(format!("no {VMLINUX}"));
        }
        let start = std::time::Instant::now();
        let places = tracepoints(&["sched_switch", "sched_waking", "tailsight_invented"]).unwrap();
        println!("live BTF read and walked in {:?}", start.elapsed());
        assert_eq!(places, [Some(Place::Kernel), Some(Place::Kernel), None]);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = tracepoints_in(&bytes, &["a"]);
            let _ = named_in(&bytes, b"\0a\0", FUNCTIONS, &["a"]);
            let _ = layout(&bytes, "a");
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
            let _ = named_in(&bytes, b"\0a\0", TRACEPOINTS, &["a", "b"]);
        }
    }
}
