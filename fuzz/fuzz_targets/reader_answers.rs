//! Fuzzes what the recorder takes from the process that reads for it, and that process from the recorder: messages on a socket, as they come.
//! No panic, no hang, no memory that was only claimed. Run with `scripts/fuzz.sh 60 reader_answers`.

#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use tailsight_symbolise::reader::protocol::{Answer, MOST_ANSWER, MOST_QUESTION, Question, receive};

fuzz_target!(|data: &[u8]| {
    let pair = || {
        let (mut here, there) = UnixStream::pair().expect("a pair of sockets");
        here.write_all(data).expect("it has room");
        there
    };
    // What was said last is all that is left: then the stream ends.
    let there = pair();
    while let Ok(Some(_)) = receive::<Answer>(&there, MOST_ANSWER) {}
    let there = pair();
    while let Ok(Some(_)) = receive::<Question>(&there, MOST_QUESTION) {}
});
