//! Compressed sections of a program or library, made plain while they are read, up to a bound.
//!
//! In: an ELF file. Out: none where nothing in it is compressed; else a copy in this process's memory, in which the plain bytes of each
//! such section stand behind the rest and its header says so. The library for symbols reads a compressed section to its end, whatever
//! that is, and takes what the section says of its size for true: it gets none to see. A section that does not fit, or is not what it
//! says, has no bytes in the copy.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use flate2::bufread::ZlibDecoder;
use object::elf::{self, FileHeader32, FileHeader64, SectionHeader32, SectionHeader64};
use object::endian::Endianness;
use object::pod::{Pod, bytes_of};
use object::read::elf::{FileHeader, SectionHeader};
use object::{FileKind, ReadCache, ReadRef};

/// Compressed sections of a file at most: compilers make some ten.
const MOST_SECTIONS: usize = 1_000;

/// A copy without compressed sections.
#[derive(Debug)]
pub struct Inflated {
    /// The copy.
    pub file: File,
    /// Why some of its sections have no bytes.
    pub refused: Option<String>,
}

/// A compressed section as its header tells of it.
struct Compressed {
    /// Where its header is in the file, bytes.
    header_at: u64,
    /// Where its compressed bytes are.
    offset: u64,
    bytes: u64,
    /// How many bytes it says that it has when it is plain.
    plain_bytes: u64,
    is_zlib: bool,
}

/// The compressed sections of a file made plain, `most_bytes` of them together at most. `copy` makes a copy of the file that can be written
/// to; it is asked for only if there is such a section.
///
/// # Errors
/// Why there is no copy, in words.
pub fn inflated(
    file: File,
    most_bytes: u64,
    copy: impl FnOnce() -> Result<File, String>,
) -> Result<Option<Inflated>, String> {
    let cache = ReadCache::new(file);
    match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => inflated_of::<FileHeader64<Endianness>, _>(&cache, most_bytes, copy),
        Ok(FileKind::Elf32) => inflated_of::<FileHeader32<Endianness>, _>(&cache, most_bytes, copy),
        _ => Ok(None),
    }
}

fn inflated_of<'a, Header, R>(
    data: R,
    most_bytes: u64,
    copy: impl FnOnce() -> Result<File, String>,
) -> Result<Option<Inflated>, String>
where
    Header: FileHeader<Endian = Endianness>,
    Header::SectionHeader: Placed,
    R: ReadRef<'a>,
{
    let Ok(sections) = compressed_sections::<Header, R>(data) else { return Ok(None) };
    let Some((endian, sections)) = sections.filter(|(_, sections)| !sections.is_empty()) else { return Ok(None) };
    if sections.len() > MOST_SECTIONS {
        return Err(format!("it has more than {MOST_SECTIONS} compressed sections"));
    }
    let said = |e: io::Error| e.to_string();
    let file = copy()?;
    let mut end = file.metadata().map_err(said)?.len();
    let mut left_bytes = most_bytes;
    let mut refused = None;
    for (header, section) in sections {
        let (offset, bytes) = match append(&file, end, &section, left_bytes) {
            Ok(bytes) => (end, bytes),
            Err(why) => {
                refused.get_or_insert(why);
                (0, 0)
            }
        };
        (end, left_bytes) = (end + bytes, left_bytes - bytes);
        let mut plain: Header::SectionHeader = *header;
        plain.place(endian, offset, bytes);
        file.write_all_at(bytes_of(&plain), section.header_at).map_err(said)?;
    }
    Ok(Some(Inflated { file, refused }))
}

type Sections<'a, Header> = (Endianness, Vec<(&'a <Header as FileHeader>::SectionHeader, Compressed)>);

/// The compressed sections; none of a file without sections.
fn compressed_sections<'a, Header, R>(data: R) -> object::Result<Option<Sections<'a, Header>>>
where
    Header: FileHeader<Endian = Endianness>,
    R: ReadRef<'a>,
{
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let first: u64 = header.e_shoff(endian).into();
    let mut sections = vec![];
    for (header_at, section) in
        (first..).step_by(size_of::<Header::SectionHeader>()).zip(header.section_headers(endian, data)?)
    {
        let flags: u64 = section.sh_flags(endian).into();
        if flags & u64::from(elf::SHF_COMPRESSED) == 0 {
            continue;
        }
        if sections.len() > MOST_SECTIONS {
            break;
        }
        // One whose own header is damaged is none that is zlib's.
        let compression = section.compression(endian, data).ok().flatten();
        let plain_bytes = |(header, offset, bytes): (&Header::CompressionHeader, u64, u64)| {
            use object::read::elf::CompressionHeader;
            let is_zlib = header.ch_type(endian) == elf::ELFCOMPRESS_ZLIB;
            Compressed { header_at, offset, bytes, plain_bytes: header.ch_size(endian).into(), is_zlib }
        };
        let none = Compressed { header_at, offset: 0, bytes: 0, plain_bytes: 0, is_zlib: false };
        sections.push((section, compression.map_or(none, plain_bytes)));
    }
    Ok(Some((endian, sections)))
}

/// Puts the plain bytes of a section at the end of its file; how many.
fn append(file: &File, end: u64, section: &Compressed, left_bytes: u64) -> Result<u64, String> {
    if !section.is_zlib {
        return Err("it is compressed in another way than by zlib".into());
    }
    if section.plain_bytes > left_bytes {
        return Err("its compressed sections are too large".into());
    }
    let said = |e: io::Error| format!("a section cannot be decompressed: {e}");
    let compressed = BufReader::new(At { file, offset: section.offset }.take(section.bytes));
    // One byte more than it says shows that there are more.
    let mut plain = ZlibDecoder::new(compressed).take(section.plain_bytes + 1);
    let mut out = file;
    out.seek(SeekFrom::Start(end)).map_err(said)?;
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let bytes = io::copy(&mut plain, &mut out).and_then(|bytes| out.flush().map(|()| bytes)).map_err(said)?;
    if bytes != section.plain_bytes {
        return Err("a compressed section has not the size that it says".into());
    }
    Ok(bytes)
}

/// Reads a file from a place on, and leaves its position alone.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(bytes, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// A section's header that can be given another place.
trait Placed: SectionHeader<Endian = Endianness> + Pod {
    /// The section's plain bytes are there.
    fn place(&mut self, endian: Endianness, offset: u64, bytes: u64);
}

impl Placed for SectionHeader64<Endianness> {
    fn place(&mut self, endian: Endianness, offset: u64, bytes: u64) {
        let flags = self.sh_flags.get(endian) & !u64::from(elf::SHF_COMPRESSED);
        self.sh_flags.set(endian, flags);
        self.sh_offset.set(endian, offset);
        self.sh_size.set(endian, bytes);
        self.sh_addralign.set(endian, 1);
    }
}

impl Placed for SectionHeader32<Endianness> {
    fn place(&mut self, endian: Endianness, offset: u64, bytes: u64) {
        // A file of this class is smaller than 4 GiB, and so is what is made of it: see `MOST_FILE_BYTES`.
        let fits = |number: u64| u32::try_from(number).unwrap_or(0);
        let flags = self.sh_flags.get(endian) & !elf::SHF_COMPRESSED;
        self.sh_flags.set(endian, flags);
        self.sh_offset.set(endian, fits(offset));
        self.sh_size.set(endian, fits(bytes));
        self.sh_addralign.set(endian, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_programs::tool;
    use object::{Object, ObjectSection};
    use std::path::Path;
    use tailsight_testing::{lacks_program, skip};

    fn lacks() -> Option<String> {
        ["cc", "objcopy"].into_iter().find_map(lacks_program)
    }

    /// A program, or with `-c` an object, as it is built, and the same with compressed debug information.
    fn programs(dir: &Path, options: &[&str]) {
        std::fs::write(dir.join("server.c"), "int main(int n, char **of) { return n + (of != 0); }\n").unwrap();
        tool("cc", &[options, &["-g", "-o", "plain", "server.c"]].concat(), dir);
        tool("objcopy", &["--compress-debug-sections=zlib", "plain", "compressed"], dir);
    }

    fn inflated_file(path: &Path, most_bytes: u64) -> Option<Inflated> {
        let copy = || {
            let mut copy = tempfile::tempfile().map_err(|e| e.to_string())?;
            io::copy(&mut File::open(path).unwrap(), &mut copy).map_err(|e| e.to_string())?;
            Ok(copy)
        };
        inflated(File::open(path).unwrap(), most_bytes, copy).unwrap()
    }

    fn sections(file: &File) -> Vec<(String, Vec<u8>)> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let debug = file.sections().filter(|section| section.name().unwrap().starts_with(".debug_"));
        debug.map(|section| (section.name().unwrap().to_owned(), section.data().unwrap().to_vec())).collect()
    }

    /// What objcopy compressed is what the compiler wrote, section by section.
    #[test]
    fn compressed_sections_become_what_they_were() {
        if let Some(why) = lacks() {
            return skip(why);
        }
        become_what_they_were(&[]);
    }

    #[test]
    fn so_do_those_of_a_file_of_32_bits() {
        if let Some(why) = lacks() {
            return skip(why);
        }
        if !cfg!(target_arch = "x86_64") {
            return skip("cc has no -m32 here");
        }
        become_what_they_were(&["-m32", "-c"]);
    }

    fn become_what_they_were(options: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        programs(dir.path(), options);
        assert!(inflated_file(&dir.path().join("plain"), u64::MAX).is_none(), "nothing in it is compressed");
        let Inflated { file, refused } = inflated_file(&dir.path().join("compressed"), 1 << 20).unwrap();
        assert_eq!(refused, None);
        let before = sections(&File::open(dir.path().join("plain")).unwrap());
        assert!(before.len() >= 4 && before.iter().any(|(name, bytes)| name == ".debug_info" && !bytes.is_empty()));
        assert_eq!(sections(&file), before);
    }

    /// None of them is left for the library, whatever it says: too many bytes, more or fewer than there are, another way.
    #[test]
    fn a_section_that_does_not_fit_or_lies_has_no_bytes() {
        if let Some(why) = lacks() {
            return skip(why);
        }
        let dir = tempfile::tempdir().unwrap();
        programs(dir.path(), &[]);
        let path = dir.path().join("compressed");
        let bytes = std::fs::read(&path).unwrap();
        let parsed = object::File::parse(&*bytes).unwrap();
        let debug_info_at = parsed.section_by_name(".debug_info").and_then(|s| s.file_range()).unwrap().0 as usize;
        let plain_bytes = u64::from_le_bytes(bytes[debug_info_at + 8..debug_info_at + 16].try_into().unwrap());
        let debug_info = |most_bytes: u64| {
            let Inflated { file, refused } = inflated_file(&path, most_bytes).unwrap();
            let sections = sections(&file);
            assert!(sections.len() >= 4, "the others are there");
            let (_, bytes) = sections.iter().find(|(name, _)| name == ".debug_info").unwrap();
            (bytes.len(), refused.unwrap_or_default())
        };
        let (length, why) = debug_info(1);
        assert!(length == 0 && why.contains("too large"), "{length} {why}");
        for (says, what) in [
            (1 << 46, "too large"),
            (plain_bytes - 1, "not the size"),
            (plain_bytes + 1, "not the size"),
            (u64::MAX, "too large"),
        ] {
            let mut lying = bytes.clone();
            lying[debug_info_at + 8..debug_info_at + 16].copy_from_slice(&says.to_le_bytes());
            std::fs::write(&path, &lying).unwrap();
            let (length, why) = debug_info(1 << 20);
            assert!(length == 0 && why.contains(what), "{says}: {length} {why}");
        }
        // A file may list one section as often as it likes.
        let mut many = bytes.clone();
        let header = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let of_it = header + 64 * parsed.section_by_name(".debug_info").unwrap().index().0;
        many[40..48].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        many.extend_from_slice(&[0; 64]);
        (0..5_000).for_each(|_| many.extend_from_slice(&bytes[of_it..of_it + 64]));
        many[60..62].copy_from_slice(&5_001u16.to_le_bytes());
        many[62..64].fill(0);
        std::fs::write(&path, &many).unwrap();
        let why = inflated(File::open(&path).unwrap(), 1 << 20, || unreachable!("it is not copied")).unwrap_err();
        assert!(why.contains("more than 1000 compressed sections"), "{why}");
        for (at, value, what) in
            [(debug_info_at, 2u8, "another way"), (debug_info_at + 24, 0xff, "cannot be decompressed")]
        {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            std::fs::write(&path, &damaged).unwrap();
            let (length, why) = debug_info(1 << 20);
            assert!(length == 0 && why.contains(what), "{at}: {length} {why}");
        }
    }
}
