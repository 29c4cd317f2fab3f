//! Tests of the reader: what it answers, and what is lost when it does not.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::functions::{EndsBy, Traceable};
use crate::maps::Maps;
use crate::test_programs::tool;

/// A reader that reads in threads, with a short patience.
fn reader() -> Reader {
    let mut reader = Reader::in_this_process();
    reader.patience = Duration::from_millis(400);
    reader
}

fn this_program() -> File {
    File::open(std::env::current_exe().unwrap()).unwrap()
}

#[inline(never)]
fn a_function_with_a_name() {}

/// Where it is in the file of this program.
fn offset_of_it() -> u64 {
    let maps = Maps::of(std::process::id()).unwrap();
    let here = a_function_with_a_name as *const () as u64;
    let mapping = maps.find(here).unwrap();
    here - mapping.start + mapping.offset
}

fn file(dir: &Path, bytes: &[u8]) -> File {
    let path = dir.join("file");
    std::fs::write(&path, bytes).unwrap();
    File::open(path).unwrap()
}

#[test]
fn places_have_names_and_what_is_no_program_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = reader();
    reader.patience = PATIENCE;
    reader.give(0, this_program(), None, About { is_program: true, ..About::default() });
    reader.give(1, file(dir.path(), b"#!/bin/sh\n"), None, About::default());
    let (build_id, frames) = reader.names(0, Places::Offsets(vec![offset_of_it(), u64::MAX])).unwrap();
    let function = frames[0].last().unwrap();
    assert!(function.function.ends_with("a_function_with_a_name") && function.own, "{function:?}");
    assert!(is_build_id(&build_id) && frames[1].iter().all(|f| f.function.is_empty()), "{build_id} {frames:?}");
    let why = reader.names(1, Places::Offsets(vec![0])).unwrap_err();
    assert!(why.contains("not an ELF file"), "{why}");
    assert_eq!(reader.notes(|file| Some(format!("file {file}"))), [format!("file 1 is not resolved: {why}")]);
    assert_eq!(reader.replaced, 0);
}

/// Its lines are told where its debug information is compressed; where that says more than it has, its functions are, and why not their lines.
#[test]
fn compressed_debug_information_is_used_as_far_as_it_is_what_it_says() {
    for program in ["cc", "objcopy", "nm"] {
        if let Some(why) = tailsight_testing::lacks_program(program) {
            return tailsight_testing::skip(why);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("server.c"),
        "int rebuild(int n) { return n; } int main(int n) { return rebuild(n); }\n",
    )
    .unwrap();
    tool("cc", &["-g", "-O0", "-o", "server", "server.c"], dir.path());
    tool("objcopy", &["--compress-debug-sections=zlib", "server"], dir.path());
    let listed = tool("nm", &["server"], dir.path());
    let line = listed.lines().find(|line| line.ends_with(" rebuild")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let bytes = std::fs::read(dir.path().join("server")).unwrap();
    let names_of = |bytes: &[u8]| {
        let mut reader = Reader::in_this_process();
        reader.give(0, file(dir.path(), bytes), None, About::default());
        let (_, frames) = reader.names(0, Places::Addresses(vec![address])).unwrap();
        let frame = frames[0].last().unwrap().clone();
        (frame.function, frame.source, reader.notes(|_| Some("server".into())))
    };
    assert_eq!(names_of(&bytes), ("rebuild".into(), "server.c:1".into(), vec![]));
    let mut lying = bytes.clone();
    let at = {
        use object::{Object, ObjectSection};
        let parsed = object::File::parse(&*bytes).unwrap();
        parsed.section_by_name(".debug_info").unwrap().file_range().unwrap().0 as usize
    };
    lying[at + 8..at + 16].copy_from_slice(&(1u64 << 46).to_le_bytes());
    let note = "the debug information of server is not used: its compressed sections are too large";
    assert_eq!(names_of(&lying), ("rebuild".into(), String::new(), vec![note.into()]));
}

#[test]
fn compiled_code_is_named_by_its_map() {
    let dir = tempfile::tempdir().unwrap();
    let mut reader = reader();
    reader.give(5, file(dir.path(), b"7f00 10 py::handler:/srv/app.py\n"), None, About::default());
    let frames = reader.compiled(5, vec![0x7f08, 0x8000]).unwrap();
    assert_eq!(
        (frames[0][0].function.as_str(), frames[0][0].offset, frames[0][0].own),
        ("py::handler:/srv/app.py", 8, true)
    );
    assert_eq!(frames[1], [FrameRow::default()]);
}

/// A reader that answers as the test says instead of reading.
fn answering(answers: impl Fn(&UnixStream, Question) + Send + 'static) -> Reader {
    let mut reader = reader();
    let (here, there) = UnixStream::pair().unwrap();
    reader.running = Some(here);
    std::thread::spawn(move || {
        while let Ok(Some((question, _))) = receive::<Question>(&there, protocol::MOST_QUESTION) {
            answers(&there, question);
        }
    });
    reader
}

/// A reader fails; the next one reads the file without its debug information, and others as they are.
#[test]
fn a_file_that_a_reader_fails_at_is_read_without_its_debug_information() {
    let hangs = |_: &UnixStream, _| std::thread::sleep(Duration::from_secs(2));
    let silent = |stream: &UnixStream, question| {
        if let Question::Names { .. } = question {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    };
    let lies = |stream: &UnixStream, question| {
        if let Question::Names { .. } = question {
            let answer = Answer::Names { build_id: "0".into(), frames: vec![], without_debug: None };
            let _ = send(stream, &answer, &[]);
        }
    };
    let readers = [answering(hangs), answering(silent), answering(lies)];
    for (mut reader, why) in readers.into_iter().zip(["longer than", "ended", "does not fit"]) {
        reader.patience = Duration::from_millis(1_500);
        for file in [0, 1] {
            reader.give(file, this_program(), None, About::default());
            let (_, frames) = reader.names(file, Places::Offsets(vec![offset_of_it()])).unwrap();
            assert!(frames[0].last().unwrap().function.ends_with("a_function_with_a_name"));
        }
        let notes = reader.notes(|file| Some(format!("file {file}")));
        let begins = "the debug information of file 0 is not used";
        assert!(notes.len() == 1 && notes[0].starts_with(begins) && notes[0].contains(why), "{notes:?}");
    }
}

/// One at which readers fail again is left out.
#[test]
fn a_file_that_readers_fail_at_again_is_not_resolved() {
    let silent = |stream: &UnixStream, _| drop(stream.shutdown(std::net::Shutdown::Both));
    let mut reader = answering(silent);
    let about = About { without_debug: true, ..About::default() };
    reader.give(0, this_program(), None, about);
    assert_eq!(reader.names(0, Places::Offsets(vec![0])), Err("there was no answer".into()));
    let notes = reader.notes(|file| Some(format!("file {file}")));
    assert!(notes.len() == 1 && notes[0].starts_with("file 0 is not resolved"), "{notes:?}");
}

#[test]
fn the_functions_that_can_be_traced_are_told_and_what_cannot_be_one_is_not_taken() {
    let wanted = Wanted::Name("*a_function_with_a_name".into());
    let mut reader = reader();
    reader.patience = PATIENCE;
    reader.give(0, this_program(), None, About::default());
    let located = reader.functions(0, None, &wanted).unwrap();
    assert_eq!(located.functions[0].begins, [(offset_of_it(), 0)]);
    let none = reader.functions(0, None, &Wanted::Name("no_such_function".into())).unwrap_err();
    assert!(none.contains("it has no function"), "{none}");
    // The recorder would take the first begin of each.
    let begins_nowhere = |stream: &UnixStream, question| {
        if let Question::Functions { .. } = question {
            let function = Traceable { name: "f".into(), begins: vec![], ends: EndsBy::Return };
            let located = Located { functions: vec![function], ..Located::default() };
            let _ = send(stream, &Answer::Functions(located), &[]);
        }
    };
    let mut lied_to = answering(begins_nowhere);
    lied_to.give(0, this_program(), None, About { without_debug: true, ..About::default() });
    let why = lied_to.functions(0, None, &wanted).unwrap_err();
    assert!(why.contains("does not fit"), "{why}");
}

/// Whose fault it is the reader has said: samples are asked for again without that file.
#[test]
fn samples_are_asked_for_again_without_the_file() {
    let fails_at_a_file = |stream: &UnixStream, question| {
        if let Question::Unwind(_) = question {
            let _ = send(stream, &Answer::Reads(3), &[]);
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    };
    let mut reader = answering(fails_at_a_file);
    reader.give(3, this_program(), None, About { without_debug: true, ..About::default() });
    reader.tell_maps(1, vec![Mapped { start: 0x1000, end: 0x2000, offset: 0, file: Some(3) }]);
    let registers = crate::unwind::Registers { ip: 0x1800, sp: 64, fp: 0, lr: 0 };
    let sample = Sample { process: 1, registers, bytes: vec![0; 64].into() };
    reader.patience = PATIENCE;
    assert_eq!(reader.unwind(vec![sample]), [vec![0x1800]]);
    assert!(reader.files[&3].unusable.is_some() && reader.replaced == 1);
}

#[test]
fn it_gives_up_when_it_is_told_to_and_when_its_time_is_over() {
    let stop = Arc::new(AtomicBool::new(false));
    let mut waits = answering(|_, _| {});
    waits.patience = Duration::from_secs(60);
    waits.give_up_on(Arc::clone(&stop));
    waits.give(0, this_program(), None, About::default());
    let begun = Instant::now();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
    });
    assert!(waits.names(0, Places::Offsets(vec![0])).is_err());
    later.join().unwrap();
    let notes = waits.notes(|file| Some(format!("file {file}")));
    assert_eq!(notes, ["not all functions are resolved: the recording was ended"], "it is no fault of the file");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    let mut tired = reader();
    tired.limit(Duration::ZERO);
    tired.give(0, this_program(), None, About::default());
    assert_eq!(tired.names(0, Places::Offsets(vec![0])), Err("there was no answer".into()));
    let notes = tired.notes(|file| Some(format!("file {file}")));
    assert_eq!(notes, ["not all functions are resolved: their time was over"]);
}

#[test]
fn an_answer_is_made_safe_before_it_is_used() {
    let frame = FrameRow {
        function: format!("a\u{1b}[31m{}", "x".repeat(100_000)),
        module: "libc.so.6".into(),
        kernel: true,
        ..FrameRow::default()
    };
    let frames = safe(vec![frame; 1_000]);
    assert_eq!(frames.len(), MOST_INLINED);
    assert!(!frames[0].kernel && frames[0].module.is_empty() && frames[0].function.len() < 1_000);
    assert!(!frames[0].function.contains('\u{1b}'));
    assert!(is_build_id("00ff") && !is_build_id("../x") && !is_build_id(&"0".repeat(1_000)));
}

/// The copy is what is read: the file may be cut meanwhile.
#[test]
fn a_file_that_is_cut_while_it_is_read_is_no_fault_of_the_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    let mut reader = reader();
    reader.patience = PATIENCE;
    reader.give(0, File::open(&path).unwrap(), None, About::default());
    assert!(reader.names(0, Places::Offsets(vec![offset_of_it()])).is_ok());
    let cut = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    cut.set_len(4096).unwrap();
    cut.write_all_at(&[0xff; 4096], 0).unwrap();
    assert!(reader.names(0, Places::Offsets(vec![offset_of_it()])).is_ok(), "it is read once");
}

const SOURCE: &str = "__attribute__((noinline)) static int rebuild_index(int x) { volatile int y = x; return y + 1; }\n\
    int main(int argc, char **argv) { return rebuild_index(argc); }\n";

/// Of a stripped program the debug file in its folder, or in `.debug` there, has the names: one with its build id, that is no link and no pipe.
#[test]
fn a_debug_file_beside_a_program_has_its_names() {
    for program in ["cc", "objcopy", "nm"] {
        if let Some(why) = tailsight_testing::lacks_program(program) {
            return tailsight_testing::skip(why);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tool = |program: &str, arguments: &[&str]| tool(program, arguments, dir);
    std::fs::write(dir.join("server.c"), SOURCE).unwrap();
    tool("cc", &["-O1", "-g", "-Wl,--build-id=sha1", "-o", "server", "server.c"]);
    let listed = tool("nm", &["server"]);
    let line = listed.lines().find(|line| line.contains("rebuild_index")).expect("the symbol");
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    tool("objcopy", &["--only-keep-debug", "server", "server.debug"]);
    tool("objcopy", &["--strip-all", "--add-gnu-debuglink=server.debug", "server", "stripped"]);
    let name = || {
        let mut reader = reader();
        reader.patience = PATIENCE;
        let folder = std::fs::OpenOptions::new().read(true).open(dir).unwrap();
        reader.give(0, File::open(dir.join("stripped")).unwrap(), Some(folder.into()), About::default());
        let (_, frames) = reader.names(0, Places::Addresses(vec![address + 1])).unwrap();
        let frame = frames[0].last().unwrap().clone();
        (frame.function, frame.source)
    };
    let (function, source) = name();
    assert_eq!(function, "rebuild_index");
    assert!(source.contains("server.c:1"), "{source}");
    std::fs::create_dir(dir.join(".debug")).unwrap();
    std::fs::rename(dir.join("server.debug"), dir.join(".debug/server.debug")).unwrap();
    assert_eq!(name().0, "rebuild_index");
    std::fs::rename(dir.join(".debug/server.debug"), dir.join("elsewhere")).unwrap();
    assert_eq!(name().0, "");
    std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join("server.debug")).unwrap();
    assert_eq!(name().0, "", "a link is not followed");
    std::fs::remove_file(dir.join("server.debug")).unwrap();
    nix::unistd::mkfifo(&dir.join("server.debug"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(name().0, "", "a pipe is not waited for");
}
