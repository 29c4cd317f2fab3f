//! A file system (FUSE) with one file that root may look into, and whose server stops answering when it is told to.
//!
//! In: a folder, the file's bytes. Out: the mount, until it is dropped. Only what running a program needs is answered.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// The file's name.
pub const FILE: &str = "program";

/// Numbers of `include/uapi/linux/fuse.h`.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const ROOT: u64 = 1;
const THE_FILE: u64 = 2;
const REQUEST_HEAD: usize = 40;
const MOST_REQUEST: usize = 1 << 18;

/// The mount, and the thread that answers for it.
pub struct SilentFileSystem {
    at: PathBuf,
    silent: Arc<AtomicBool>,
}

impl SilentFileSystem {
    /// Mounts it; `None` where this kernel has no FUSE, or this process no right to it.
    pub fn mount(at: &Path, content: Vec<u8>) -> Option<SilentFileSystem> {
        std::fs::create_dir_all(at).ok()?;
        let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        mount(Some("fuse"), at, Some("fuse"), MsFlags::empty(), Some(options.as_str())).ok()?;
        let silent = Arc::new(AtomicBool::new(false));
        let is_silent = Arc::clone(&silent);
        std::thread::spawn(move || serve(device, &content, &is_silent));
        Some(SilentFileSystem { at: at.to_owned(), silent })
    }

    /// From now on nothing is answered.
    pub fn fall_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }
}

impl Drop for SilentFileSystem {
    fn drop(&mut self) {
        // Aborts what waits.
        let _ = umount2(&self.at, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
    }
}

fn serve(mut device: File, content: &[u8], silent: &AtomicBool) {
    let mut request = vec![0; MOST_REQUEST];
    while let Ok(n) = device.read(&mut request) {
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        let (operation, node, body) = (word(4), long(16), &request[REQUEST_HEAD..n]);
        let ends = matches!(operation, RELEASE | FLUSH);
        if matches!(operation, FORGET | INTERRUPT) || silent.load(Ordering::Relaxed) && !ends {
            continue;
        }
        let answer: Result<Vec<u8>, i32> = match operation {
            INIT => Ok(words(&[7, 31, word(48), 0, 12 | 9 << 16, 1 << 17, 1, 32, 0, 0, 0, 0, 0, 0, 0, 0])),
            LOOKUP if body.strip_suffix(b"\0") == Some(FILE.as_bytes()) => {
                Ok([longs(&[THE_FILE, 0, 0, 0]), words(&[0, 0]), attributes(THE_FILE, content.len())].concat())
            }
            LOOKUP => Err(nix::libc::ENOENT),
            GETATTR => Ok([longs(&[0]), words(&[0, 0]), attributes(node, content.len())].concat()),
            OPEN => Ok([longs(&[1]), words(&[0, 0])].concat()),
            READ => {
                let from = (long(REQUEST_HEAD + 8) as usize).min(content.len());
                let to = (from + word(REQUEST_HEAD + 16) as usize).min(content.len());
                Ok(content[from..to].to_vec())
            }
            RELEASE | FLUSH => Ok(vec![]),
            _ => Err(nix::libc::ENOSYS),
        };
        let (error, payload) = answer.map_or_else(|error| (error, vec![]), |payload| (0, payload));
        let head = words(&[16 + payload.len() as u32, 0i32.wrapping_sub(error).cast_unsigned()]);
        let _ = device.write_all(&[head, request[8..16].to_vec(), payload].concat());
    }
}

/// `struct fuse_attr`: of a folder that anybody may enter, or a program that anybody may run.
fn attributes(node: u64, bytes: usize) -> Vec<u8> {
    let (mode, size) = if node == ROOT { (0o040_755, 0) } else { (0o100_755, bytes as u64) };
    [longs(&[node, size, size / 512 + 1, 0, 0, 0]), words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])].concat()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|long| long.to_le_bytes()).collect()
}
