//! Objects of CPython in the memory of a process: modules, dictionaries, texts, code, and what a suspended coroutine waits for.
//!
//! In: addresses. Out: what is there, or none: whatever the bytes are, what is read of them is bounded. Where the fields are depends on the
//! version ([`Layout`]); of another version nothing is read.

use rustc_hash::FxHashMap;
use tailsight_symbolise::own::is_of_python_library;
use tailsight_trace::samples::FrameRow;

use crate::memory::{Memory, half, word};

/// Where the fields of CPython's objects are, bytes from their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The version that this is of: 3.`minor`.
    pub minor: u8,
    /// `_PyRuntime.interpreters.main`.
    main_interpreter: usize,
    /// Of an interpreter, `sys.modules`, and the first of its threads.
    modules: usize,
    first_thread: usize,
    /// Of a thread: its number, and its innermost frame, or what has that (`_PyCFrame`) and where that has it.
    native_id: u32,
    innermost: u32,
    behind: Option<u32>,
    /// The bytes of a text that has only ASCII begin here, and those of another here.
    ascii: usize,
    other_text: usize,
    /// Of a coroutine: the state of its frame, and the frame itself.
    frame_state: usize,
    frame: usize,
    /// Of a frame: its code.
    code: usize,
    /// Of code: its first line, and its instructions.
    first_line: usize,
    instructions: usize,
    /// Of an `asyncio` task: its state (0: pending), what it waits for, and its coroutine.
    pub(crate) task_state: usize,
    pub(crate) waits_for: usize,
    pub(crate) coroutine: usize,
    /// How an object of a class keeps its attributes.
    attributes: Attributes,
}

/// How an object of a class written in Python keeps its attributes while nobody asked for its dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attributes {
    /// An array, whose address is four words before the object; its dictionary is three before it.
    Apart,
    /// The same three words before it, the address less one; a dictionary's address there is even.
    ApartOrDictionary,
    /// Behind the object, after four counts of a byte each; its dictionary is three words before it.
    Behind,
}

/// By version, from the debug information of Debian's and Ubuntu's builds (3.11.2, 3.12.3, 3.13.5). 3.14 keeps its tasks elsewhere.
pub const LAYOUTS: [Layout; 3] = [
    Layout {
        minor: 11,
        main_interpreter: 48,
        modules: 888,
        first_thread: 16,
        native_id: 160,
        innermost: 56,
        behind: Some(8),
        ascii: 48,
        other_text: 72,
        frame_state: 75,
        frame: 80,
        code: 32,
        first_line: 72,
        instructions: 184,
        task_state: 88,
        waits_for: 128,
        coroutine: 136,
        attributes: Attributes::Apart,
    },
    Layout {
        minor: 12,
        main_interpreter: 48,
        modules: 944,
        first_thread: 72,
        native_id: 144,
        innermost: 56,
        behind: Some(0),
        ascii: 40,
        other_text: 56,
        frame_state: 67,
        frame: 72,
        code: 0,
        first_line: 68,
        instructions: 192,
        task_state: 88,
        waits_for: 128,
        coroutine: 136,
        attributes: Attributes::ApartOrDictionary,
    },
    Layout {
        minor: 13,
        main_interpreter: 640,
        modules: 7656,
        first_thread: 7344,
        native_id: 160,
        innermost: 72,
        behind: None,
        ascii: 40,
        other_text: 56,
        frame_state: 67,
        frame: 72,
        code: 0,
        first_line: 68,
        instructions: 200,
        task_state: 96,
        waits_for: 112,
        coroutine: 120,
        attributes: Attributes::Behind,
    },
];

/// The same in all of these versions.
const TYPE: usize = 8;
const TYPE_NAME: usize = 24;
const TYPE_SIZE: usize = 32;
const LENGTH: usize = 16;
const BYTES: usize = 32;
const TEXT_STATE: usize = 32;
const MODULE_NAMES: usize = 16;
const DICTIONARY_KEYS: usize = 32;
const SET_MASK: usize = 32;
const SET_TABLE: usize = 40;
const CODE_FILE: usize = 112;
const CODE_NAME: usize = 128;
const CODE_LINES: usize = 136;
const FRAME_INSTRUCTION: usize = 56;
const FRAME_TOP: usize = 64;
const FRAME_VALUES: usize = 72;

/// Bytes of a text that are read.
const MOST_TEXT: usize = 512;
/// Entries of a dictionary, and of a set, that are read.
const MOST_ENTRIES: usize = 1 << 16;
/// Values of a frame: a larger number is none.
const MOST_VALUES: u64 = 1 << 14;
/// Of these as many as are read with the coroutine: most have fewer.
const USUAL_VALUES: usize = 24;
/// Functions of a process whose names are kept.
const MOST_FUNCTIONS: usize = 10_000;
/// Bytes of a table of lines.
const MOST_LINES: usize = 1 << 16;

impl Layout {
    /// That of a version as `sys.hexversion` has it.
    pub fn of(version: u32) -> Option<&'static Layout> {
        let [major, minor, ..] = version.to_be_bytes();
        LAYOUTS.iter().find(|layout| major == 3 && layout.minor == minor)
    }

    /// Where a process keeps its threads, by the address of `_PyRuntime`.
    pub fn threads(&self, memory: &impl Memory, runtime: u64) -> Option<Threads> {
        let interpreter = memory.word(runtime.checked_add(self.main_interpreter as u64)?)?;
        let first = interpreter.checked_add(self.first_thread as u64).filter(|_| interpreter != 0)?;
        let Layout { minor, native_id, innermost, behind, .. } = *self;
        Some(Threads { first, native_id, frame: innermost, behind, minor })
    }

    /// The entries of a module: of `sys.modules`, by the address of `_PyRuntime`.
    pub(crate) fn module(&self, memory: &impl Memory, runtime: u64, name: &str) -> Option<u64> {
        let interpreter = memory.word(runtime.checked_add(self.main_interpreter as u64)?)?;
        let modules = memory.word(interpreter.checked_add(self.modules as u64)?)?;
        let module = self.value(memory, modules, name)?;
        memory.word(module.checked_add(MODULE_NAMES as u64)?)
    }

    /// The value of a key in a dictionary whose keys are texts.
    pub(crate) fn value(&self, memory: &impl Memory, dictionary: u64, key: &str) -> Option<u64> {
        let entries = entries(memory, dictionary)?;
        // Keys of another length are others.
        let long = |&(key, _): &(u64, u64)| (key.wrapping_add(LENGTH as u64), 8);
        let lengths = memory.read_each(&entries.iter().map(long).collect::<Vec<_>>());
        let mut same = entries.iter().zip(lengths);
        let is_as_long = |bytes: &Option<Vec<u8>>| bytes.as_ref().and_then(|b| word(b, 0)) == Some(key.len() as u64);
        same.find(|((text, _), length)| is_as_long(length) && self.text(memory, *text).as_deref() == Some(key))
            .map(|((_, value), _)| *value)
    }

    /// A text. Of one that is too long the beginning.
    pub(crate) fn text(&self, memory: &impl Memory, address: u64) -> Option<String> {
        let head = memory.read(address, self.ascii)?;
        let state = half(&head, TEXT_STATE)?;
        // interned: 2, kind: 3, compact: 1, ascii: 1.
        let (kind, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        let begin = if is_ascii { self.ascii } else { self.other_text };
        let wide = match kind {
            1 | 2 | 4 if is_compact => kind as usize,
            _ => return None,
        };
        let characters = usize::try_from(word(&head, LENGTH)?).ok()?.min(MOST_TEXT / wide);
        let bytes = memory.read(address.checked_add(begin as u64)?, characters * wide)?;
        let character = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
            char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        Some(bytes.chunks_exact(wide).map(character).collect())
    }

    /// An attribute of an object that its class sets first of all.
    pub(crate) fn first_attribute(&self, memory: &impl Memory, object: u64, name: &str) -> Option<u64> {
        let before = |words: u64| memory.word(object.checked_sub(8 * words)?);
        let of_dictionary = |dictionary: u64| self.value(memory, dictionary, name);
        match self.attributes {
            Attributes::Apart => match before(4)? {
                0 => of_dictionary(before(3)?),
                values => memory.word(values),
            },
            Attributes::ApartOrDictionary => match before(3)? {
                values if values & 1 == 1 => memory.word(values.wrapping_add(1)),
                dictionary => of_dictionary(dictionary),
            },
            Attributes::Behind => match before(3)? {
                0 => {
                    let size =
                        memory.word(memory.word(object.checked_add(TYPE as u64)?)?.checked_add(TYPE_SIZE as u64)?)?;
                    memory.word(object.checked_add(size)?.checked_add(8)?)
                }
                dictionary => of_dictionary(dictionary),
            },
        }
    }

    /// How many bytes of a task are read.
    pub(crate) fn task_bytes(&self) -> usize {
        self.task_state.max(self.waits_for).max(self.coroutine) + 8
    }

    /// How many bytes of a coroutine are read.
    pub(crate) fn coroutine_bytes(&self) -> usize {
        self.frame + FRAME_VALUES + 8 * USUAL_VALUES
    }

    /// A coroutine, of its bytes: none where it is not suspended.
    pub(crate) fn suspended(&self, bytes: &[u8], address: u64) -> Option<Suspended> {
        let state = (*bytes.get(self.frame_state)?).cast_signed();
        // -1: suspended; from 3.13 on that in a `yield from` or an `await`, -2 in a `yield`; before, -2 is not begun.
        let frame = |at: usize| word(bytes, self.frame + at);
        let top = u64::from(half(bytes, self.frame + FRAME_TOP)?);
        let is_suspended = state == -1 && (1..MOST_VALUES).contains(&top);
        is_suspended.then_some(())?;
        let values = address.checked_add((self.frame + FRAME_VALUES) as u64)?;
        Some(Suspended {
            code: frame(self.code)?,
            instruction: frame(FRAME_INSTRUCTION)?,
            awaits_at: values.checked_add(8 * (top - 1))?,
            awaits: word(bytes, self.frame + FRAME_VALUES + 8 * (top as usize - 1)),
        })
    }

    /// What is known of code: the name, the file and the lines of a function.
    pub(crate) fn function(&self, memory: &impl Memory, code: u64) -> Option<Function> {
        let bytes = memory.read(code, self.instructions)?;
        let name = self.text(memory, word(&bytes, CODE_NAME)?)?;
        let file = self.text(memory, word(&bytes, CODE_FILE)?)?;
        let lines = word(&bytes, CODE_LINES)?;
        let length = usize::try_from(memory.word(lines.checked_add(LENGTH as u64)?)?).ok()?.min(MOST_LINES);
        Some(Function {
            name,
            file,
            begin: code.checked_add(self.instructions as u64)?,
            first_line: half(&bytes, self.first_line)?,
            lines: memory.read(lines.checked_add(BYTES as u64)?, length).unwrap_or_default(),
        })
    }
}

/// Where a CPython keeps its threads, and they their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// The address of the first thread's state is at this address.
    pub first: u64,
    /// In the state of a thread, bytes from its start: its number.
    pub native_id: u32,
    /// And its innermost frame, or what has that.
    pub frame: u32,
    /// Where that has it.
    pub behind: Option<u32>,
    /// The version: 3.`minor`.
    pub minor: u8,
}

/// Functions of a process, by their code.
#[derive(Debug)]
pub struct Functions {
    layout: &'static Layout,
    by_code: FxHashMap<u64, Option<Function>>,
}

impl Functions {
    /// Of a process with such a CPython.
    pub fn new(layout: &'static Layout) -> Functions {
        Functions { layout, by_code: FxHashMap::default() }
    }

    /// A function as a frame of a call stack that is at an instruction; none where there is no code.
    pub fn frame(&mut self, memory: &impl Memory, (code, instruction): (u64, u64)) -> Option<FrameRow> {
        if self.by_code.len() >= MOST_FUNCTIONS {
            self.by_code.clear();
        }
        let layout = self.layout;
        // What the interpreter puts between two functions (the call of a class) has neither a file nor anything to tell.
        let read = || layout.function(memory, code).filter(|function| function.file != function.name);
        let function = self.by_code.entry(code).or_insert_with(read);
        function.as_ref().map(|function| function.frame(instruction))
    }
}

/// A coroutine that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspended {
    pub(crate) code: u64,
    /// Where in its code, an address.
    pub(crate) instruction: u64,
    /// Where the address is of what it awaits.
    pub(crate) awaits_at: u64,
    /// That address, where it is among the bytes that were read.
    pub(crate) awaits: Option<u64>,
}

/// A function of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// As Python has it: `Lock.acquire`.
    name: String,
    file: String,
    /// Where its instructions are, an address.
    begin: u64,
    first_line: u32,
    /// Which lines they are of (`co_linetable`).
    lines: Vec<u8>,
}

impl Function {
    /// As a frame of a call stack that is at an instruction.
    pub(crate) fn frame(&self, instruction: u64) -> FrameRow {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        let line =
            instruction.checked_sub(self.begin).and_then(|bytes| line_of(&self.lines, self.first_line, bytes / 2));
        FrameRow {
            function: format!("{}.{}", module_of(&self.file), self.name),
            module: file.into(),
            source: line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}")),
            own: !is_of_python_library(&self.file),
            ..FrameRow::default()
        }
    }
}

/// The module that a file is: of the library and of installed packages with the packages above it.
fn module_of(file: &str) -> String {
    let file = file.strip_suffix(".py").unwrap_or(file);
    let package = ["/site-packages/", "/dist-packages/"].iter().find_map(|folder| Some(file.split_once(folder)?.1));
    let library = || {
        let below = file.split_once("/lib/python3")?.1;
        Some(below.split_once('/')?.1)
    };
    let path = package.or_else(library).unwrap_or_else(|| file.rsplit('/').next().unwrap_or(file));
    path.strip_suffix("/__init__").unwrap_or(path).replace('/', ".")
}

/// The line of an instruction, by a table of locations (CPython's `Objects/locations.md`): entries of so many instructions each.
fn line_of(table: &[u8], first_line: u32, instruction: u64) -> Option<u32> {
    let mut bytes = table.iter().copied();
    let mut line = i64::from(first_line);
    let mut at = 0;
    while let Some(head) = bytes.next() {
        // Six bits a byte, the lowest first; the seventh says that another follows.
        let mut number = || {
            let mut number = 0i64;
            for shift in (0..36).step_by(6) {
                let byte = bytes.next()?;
                number |= i64::from(byte & 63) << shift;
                if byte & 64 == 0 {
                    return Some(number);
                }
            }
            None
        };
        let signed = |number: i64| if number & 1 == 1 { -(number >> 1) } else { number >> 1 };
        let has_line = match head >> 3 & 15 {
            15 => false,
            14 => {
                line += signed(number()?);
                for _ in 0..3 {
                    number()?;
                }
                true
            }
            13 => {
                line += signed(number()?);
                true
            }
            code @ 10..=12 => {
                line += i64::from(code) - 10;
                bytes.nth(1)?;
                true
            }
            _ => {
                bytes.next()?;
                true
            }
        };
        at += u64::from(head & 7) + 1;
        if instruction < at {
            return u32::try_from(line).ok().filter(|_| has_line);
        }
    }
    None
}

/// The name of an object's type, at most 48 bytes of it.
pub(crate) fn type_name(memory: &impl Memory, kind: u64) -> Option<String> {
    let name = memory.word(kind.checked_add(TYPE_NAME as u64)?)?;
    // A page may end behind a short name.
    let bytes = [48, 24, 12].into_iter().find_map(|bytes| memory.read(name, bytes))?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// The address of an object's type, of its bytes.
pub(crate) fn type_of(bytes: &[u8]) -> Option<u64> {
    word(bytes, TYPE)
}

/// The keys and values of a dictionary that keeps both together.
fn entries(memory: &impl Memory, dictionary: u64) -> Option<Vec<(u64, u64)>> {
    /// Of the head of the keys: their kind, the bytes of their index as a power of two, how many there are.
    const INDEX: usize = 9;
    const KIND: usize = 10;
    const COUNT: usize = 24;
    const HEAD: usize = 32;
    let keys = memory.word(dictionary.checked_add(DICTIONARY_KEYS as u64)?)?;
    let head = memory.read(keys, HEAD)?;
    let index_bytes = 1u64.checked_shl(u32::from(head[INDEX]))?.checked_add(HEAD as u64)?;
    let count = usize::try_from(word(&head, COUNT)?).ok().filter(|count| *count <= MOST_ENTRIES)?;
    // The hash of a text is in the text.
    let (bytes, key) = if head[KIND] == 0 { (24, 8) } else { (16, 0) };
    let table = memory.read(keys.checked_add(index_bytes)?, count * bytes)?;
    let entry = |entry: &[u8]| Some((word(entry, key)?, word(entry, key + 8)?));
    let is_there = |&(key, value): &(u64, u64)| key != 0 && value != 0;
    Some(table.chunks_exact(bytes).filter_map(entry).filter(is_there).collect())
}

/// The members of a set.
pub(crate) fn members(memory: &impl Memory, set: u64) -> Option<Vec<u64>> {
    let head = memory.read(set, SET_TABLE + 8)?;
    let slots = usize::try_from(word(&head, SET_MASK)?).ok()?.checked_add(1)?;
    (slots.is_power_of_two() && slots <= MOST_ENTRIES).then_some(())?;
    let table = memory.read(word(&head, SET_TABLE)?, slots * 16)?;
    /// The hash of one that was removed.
    const REMOVED: u64 = u64::MAX;
    let member = |slot: &[u8]| Some((word(slot, 0)?, word(slot, 8)?));
    let is_there = |&(key, hash): &(u64, u64)| key != 0 && hash != REMOVED;
    Some(table.chunks_exact(16).filter_map(member).filter(is_there).map(|(key, _)| key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_module() {
        assert_eq!(module_of("/usr/lib/python3.11/asyncio/locks.py"), "asyncio.locks");
        assert_eq!(module_of("/srv/venv/lib/python3.12/site-packages/aiohttp/client.py"), "aiohttp.client");
        assert_eq!(module_of("/usr/lib/python3/dist-packages/redis/asyncio/__init__.py"), "redis.asyncio");
        assert_eq!(
            [module_of("/srv/shop/server.py"), module_of("server.py"), module_of("<stdin>")],
            ["server", "server", "<stdin>"]
        );
    }

    /// By hand after CPython's `Objects/locations.md`: two instructions of line 7, three of line 9, two without a line, one of line 8, one of 8 + 40.
    #[test]
    fn each_instruction_has_its_line() {
        let table = [
            0x80 | 1,
            0x11, // The same line, with its columns.
            0x80 | 12 << 3 | 2,
            1,
            2,                  // Two lines on.
            0x80 | 15 << 3 | 1, // None.
            0x80 | 13 << 3,
            1 << 1 | 1, // One line back, without columns.
            0x80 | 14 << 3,
            64 | (40 << 1 & 63),
            40 << 1 >> 6,
            0,
            1,
            1, // Forty lines on, with everything.
        ];
        let lines: Vec<Option<u32>> = (0..10).map(|at| line_of(&table, 7, at)).collect();
        let [a, b, c, d] = [7, 9, 8, 48].map(Some);
        assert_eq!(lines, [a, a, b, b, b, None, None, c, d, None]);
        assert_eq!(line_of(&table[..1], 7, 0), None, "it is cut");
    }

    #[test]
    fn versions_have_their_layouts() {
        let minor_of = |version| Layout::of(version).map(|layout| layout.minor);
        assert_eq!([0x030b_02f0, 0x030c_03f0, 0x030d_05f0].map(minor_of), [Some(11), Some(12), Some(13)]);
        assert_eq!([0x030a_00f0, 0x030e_00f0, 0x040b_00f0].map(minor_of), [None; 3]);
    }
}
