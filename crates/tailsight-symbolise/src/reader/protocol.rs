//! What the recorder and the process that reads for it say to each other.
//!
//! In and out: messages on a stream socket, each its length in four bytes and that many bytes of postcard; descriptors come with the
//! length. The recorder trusts no answer: [`receive`] limits its length, and [`super::Reader`] holds it against the question.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use tailsight_trace::samples::FrameRow;

use crate::cpython::Cpython;
use crate::functions::{Located, Wanted};
use crate::unwind::Registers;

/// Bytes of a question at most: a batch of samples.
pub const MOST_QUESTION: u32 = 64 << 20;
/// Bytes of an answer at most: the names of all functions of a file that samples met.
pub const MOST_ANSWER: u32 = 32 << 20;
/// Descriptors that come with a message at most.
const MOST_DESCRIPTORS: usize = 2;

/// A file by the number that the recorder gave it.
pub type FileId = u32;

/// What the recorder asks.
#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// Here is a file; its descriptor comes along, and that of the folder that it is in where debug files beside it count. No answer.
    File {
        /// Its number from now on.
        file: FileId,
        /// What it is.
        about: About,
    },
    /// A file is not asked for any more. No answer.
    Forget {
        /// Its number.
        file: FileId,
    },
    /// What a process has mapped, instead of what was said before. No answer.
    Maps {
        /// The process.
        process: u32,
        /// Its mappings that hold code.
        mappings: Vec<Mapped>,
    },
    /// The return addresses of these samples. Answer: [`Answer::Stacks`].
    Unwind(Vec<Sample>),
    /// The functions at these places. Answer: [`Answer::Names`].
    Names {
        /// The file.
        file: FileId,
        /// Places in it.
        places: Places,
    },
    /// The functions at these addresses by a map that a runtime wrote. Answer: [`Answer::Names`].
    Compiled {
        /// The map.
        file: FileId,
        /// Addresses in the process.
        addresses: Vec<u64>,
    },
    /// What is to be traced of a file. Answer: [`Answer::Functions`].
    Functions {
        /// The file.
        file: FileId,
        /// Its separate debug file, where there is one.
        debug: Option<FileId>,
        /// What is looked for.
        wanted: Wanted,
    },
    /// The build id. Answer: [`Answer::BuildId`].
    BuildId {
        /// The file.
        file: FileId,
    },
    /// Which Go built it. Answer: [`Answer::GoVersion`].
    GoVersion {
        /// The file.
        file: FileId,
    },
    /// Which CPython it is. Answer: [`Answer::Cpython`].
    Cpython {
        /// The file.
        file: FileId,
    },
}

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// It is the program of its process, and no library.
    pub is_program: bool,
    /// It is the page of code that the kernel gives every process.
    pub is_vdso: bool,
    /// Its debug information is left alone: a reader failed at the file.
    pub without_debug: bool,
}

/// Places in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Places {
    /// Bytes from the file's start.
    Offsets(Vec<u64>),
    /// In the file's own address space.
    Addresses(Vec<u64>),
}

impl Places {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Places::Offsets(at) | Places::Addresses(at) => at.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A mapping with its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file it starts, bytes.
    pub offset: u64,
    /// The file; none of code that a runtime compiled, and of a file that was not opened.
    pub file: Option<FileId>,
}

/// A sample of a user thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// By whose mappings it is looked up.
    pub process: u32,
    /// The user registers.
    pub registers: Registers,
    /// The bytes above the stack pointer.
    pub bytes: ByteBuf,
}

/// What the reader answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// From here on it reads this file: whose fault it is if no answer comes. One before the answer, or none, or several.
    Reads(FileId),
    /// Of each sample the addresses, innermost first; and the files that could not be used, with the reason.
    Stacks {
        /// By sample.
        stacks: Vec<Vec<u64>>,
        /// Since the last such answer.
        unusable: Vec<(FileId, String)>,
    },
    /// Of each place the frames, innermost first. Empty ones are not known.
    Names {
        /// The file's build id; empty without one.
        build_id: String,
        /// By place; of each frame the module is empty.
        frames: Vec<Vec<FrameRow>>,
        /// Why its debug information is not used.
        without_debug: Option<String>,
    },
    /// The functions that can be traced.
    Functions(Located),
    /// The file's build id; empty without one.
    BuildId(String),
    /// Which Go built it: `go1.22.5`, empty where that is not known; none of other programs.
    GoVersion(Option<String>),
    /// Which CPython the file is; none of other programs and libraries.
    Cpython(Option<Cpython>),
    /// Nothing can be said of the file that was asked for.
    Unusable(String),
}

/// Sends a message, and descriptors with it.
///
/// # Errors
/// The kernel's: the other end is gone, or does not take it in the socket's time.
pub fn send<T: Serialize>(stream: &UnixStream, message: &T, with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|n| *n <= MOST_QUESTION);
    let length = length.ok_or(io::ErrorKind::FileTooLarge)?.to_le_bytes();
    let sent = send_part(stream, &length, with)?;
    let mut rest = io::BufWriter::new(stream);
    rest.write_all(&length[sent..])?;
    rest.write_all(&bytes)?;
    rest.flush()
}

/// Sends bytes as far as there is room, and descriptors with the first; how many bytes.
///
/// # Errors
/// The kernel's.
pub fn send_part(stream: &UnixStream, bytes: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let raw: Vec<RawFd> = with.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    Ok(sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?)
}

/// Receives bytes as far as there are some, and descriptors that come with them; how many bytes, none at the stream's end.
///
/// # Errors
/// The kernel's.
pub fn receive_part(stream: &UnixStream, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut control = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]);
    let mut part = [IoSliceMut::new(bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<()>(stream.as_raw_fd(), &mut part, Some(&mut control), flags)?;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            // SAFETY: the kernel just gave us these.
            descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(received.bytes)
}

/// Receives a message of at most so many bytes, and the descriptors that came with it; none at the stream's end.
///
/// # Errors
/// The kernel's; `InvalidData` when it is too long or is none.
pub fn receive<T: DeserializeOwned>(stream: &UnixStream, most: u32) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let mut had = 0;
    let mut descriptors = vec![];
    while had < length.len() {
        match receive_part(stream, &mut length[had..], &mut descriptors)? {
            0 if had == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => had += n,
        }
    }
    let length = u32::from_le_bytes(length);
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    // Not as much at once as is said, but as much as comes.
    let mut bytes = Vec::new();
    if stream.take(u64::from(length)).read_to_end(&mut bytes)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = postcard::from_bytes(&bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    Ok(Some((message, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn messages_and_descriptors_come_through() {
        let (here, there) = UnixStream::pair().unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "content").unwrap();
        let file = File::open(dir.path().join("x")).unwrap();
        send(&here, &Question::File { file: 7, about: About::default() }, &[file.as_fd()]).unwrap();
        let many: Vec<u64> = (0..1_000_000).collect();
        let asks = std::thread::spawn(move || {
            let question = Question::Names { file: 7, places: Places::Offsets(many) };
            send(&here, &question, &[]).unwrap();
        });
        let (question, descriptors) = receive::<Question>(&there, MOST_QUESTION).unwrap().unwrap();
        assert!(matches!(question, Question::File { file: 7, .. }), "{question:?}");
        let mut text = String::new();
        File::from(descriptors.into_iter().next().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        let (question, _) = receive::<Question>(&there, MOST_QUESTION).unwrap().unwrap();
        assert!(matches!(question, Question::Names { places, .. } if places.len() == 1_000_000));
        asks.join().unwrap();
        assert!(receive::<Question>(&there, MOST_QUESTION).unwrap().is_none(), "the end");
    }

    #[test]
    fn a_message_that_is_too_long_or_none_is_refused() {
        let kind = |bytes: &[u8], most| {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(bytes).unwrap();
            drop(here);
            receive::<Answer>(&there, most).unwrap_err().kind()
        };
        assert_eq!(kind(&[255; 8], MOST_ANSWER), io::ErrorKind::InvalidData);
        assert_eq!(kind(&[3, 0, 0, 0, 9, 9, 9], MOST_ANSWER), io::ErrorKind::InvalidData, "no answer has this number");
        assert_eq!(kind(&[3, 0, 0, 0, 1], MOST_ANSWER), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[3, 0], MOST_ANSWER), io::ErrorKind::UnexpectedEof);
        // A list that says to have 2^60 members.
        let mut long = vec![11, 0, 0, 0, 1];
        long.extend([0xff; 8]);
        long.extend([0x0f, 0]);
        assert_eq!(kind(&long, MOST_ANSWER), io::ErrorKind::InvalidData);
    }
}
