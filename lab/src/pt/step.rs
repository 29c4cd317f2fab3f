//! Runs a program one instruction at a time.
//!
//! In: a program whose threads never wait. Out: [`Execution`]: slices of time on virtual CPUs, each with the address of every
//! instruction that ran. The threads take turns; a turn ends with a system call or after a number of instructions, as a timer
//! interrupt would end it. Only one thread runs at a time, so the order of all instructions is known.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::{Error, Result};

/// Virtual CPUs.
pub const CPUS: usize = 2;
/// Instructions after which a thread is interrupted, as a rule.
pub const QUANTUM: usize = 700;
/// A program that takes more steps than this is not the lab's.
const MOST_STEPS: usize = 100_000_000;

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a system call: its instruction is the slice's last.
    SystemCall,
    /// An interrupt came before the next instruction.
    Interrupted,
}

/// A thread's turn on a virtual CPU.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The thread: numbers from 1000 on, the same in every execution.
    pub tid: u32,
    /// The virtual CPU.
    pub cpu: usize,
    /// The address of each instruction.
    pub ips: Vec<u64>,
    /// Where the thread goes on; `None`: it ended.
    pub next: Option<u64>,
    /// How.
    pub ended: Ended,
}

/// What ran.
#[derive(Clone, Debug, Default)]
pub struct Execution {
    /// The slices, in the order they ran.
    pub slices: Vec<Slice>,
}

/// What a step ended with.
enum Stepped {
    Here(u64),
    Ended,
}

struct Tracee {
    pid: i32,
    /// Whether it has not been seen to stop yet.
    fresh: bool,
}

/// Steps a program to its end. `quantum`: instructions after which a thread is interrupted.
///
/// # Errors
/// [`Error::Io`].
pub fn run(program: &Path, quantum: usize) -> Result<Execution> {
    let failed = |what: &str| Error::io(format!("{what} {}", program.display()), std::io::Error::last_os_error());
    let mut command = Command::new(program);
    // SAFETY: ptrace(TRACEME) is a system call that touches no memory of this process.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut child = command.spawn().map_err(|e| Error::io(format!("start {}", program.display()), e))?;
    let pid = i32::try_from(child.id()).unwrap_or(0);
    let result = (|| {
        wait(pid).ok_or_else(|| failed("trace"))?;
        let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        // SAFETY: the child is stopped and traced; only its options are set.
        if unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) } == -1 {
            return Err(failed("trace the threads of"));
        }
        take_turns(pid, quantum).ok_or_else(|| failed("step"))
    })();
    // However it ended, nothing of it stays: only this child is killed.
    let _ = child.kill();
    let _ = child.wait();
    result
}

fn take_turns(leader: i32, quantum: usize) -> Option<Execution> {
    let mut threads = vec![Tracee { pid: leader, fresh: false }];
    let mut alive = vec![true];
    let mut out = Execution::default();
    let mut is_call_at: HashMap<u64, bool> = HashMap::new();
    let (mut turn, mut steps) = (0usize, 0usize);
    while alive.iter().any(|a| *a) && steps < MOST_STEPS {
        let who = (0..threads.len()).map(|i| (turn + i) % threads.len()).find(|&i| alive[i])?;
        // Threads move from one CPU to the other now and then.
        let cpu = (who + out.slices.len() / 7) % CPUS;
        let mut slice = Slice { tid: 1000 + who as u32, cpu, ips: Vec::new(), next: None, ended: Ended::Interrupted };
        let mut ip = registers(&mut threads[who])?;
        loop {
            slice.ips.push(ip);
            steps += 1;
            // The program does not change: what its instructions are is asked once.
            let pid = threads[who].pid;
            let calls = *is_call_at.entry(ip).or_insert_with(|| is_system_call(pid, ip));
            match step(&mut threads, who)? {
                Stepped::Ended => {
                    alive[who] = false;
                    slice.ended = Ended::SystemCall;
                    // When the leading thread exits, all have ended.
                    if who == 0 {
                        alive.fill(false);
                    }
                    break;
                }
                Stepped::Here(next) => ip = next,
            }
            alive.resize(threads.len(), true);
            slice.next = Some(ip);
            if calls {
                slice.ended = Ended::SystemCall;
                break;
            }
            if slice.ips.len() >= quantum {
                break;
            }
        }
        if !alive[who] {
            slice.next = None;
        }
        out.slices.push(slice);
        turn = who + 1;
    }
    Some(out)
}

/// Steps a thread by one instruction; a thread that it makes joins the others.
fn step(threads: &mut Vec<Tracee>, who: usize) -> Option<Stepped> {
    let pid = threads[who].pid;
    loop {
        // SAFETY: the thread is stopped and traced by this one; it runs on by one instruction.
        if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) } == -1 {
            return None;
        }
        let status = wait(pid)?;
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return Some(Stepped::Ended);
        }
        if status >> 16 != libc::PTRACE_EVENT_CLONE {
            return Some(Stepped::Here(registers(&mut threads[who])?));
        }
        let mut made: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word into `made`.
        if unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, std::ptr::from_mut(&mut made)) } == -1 {
            return None;
        }
        threads.push(Tracee { pid: i32::try_from(made).ok()?, fresh: true });
    }
}

fn wait(pid: i32) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: waits for one thread of ours; the kernel writes its status.
        let got = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if got == pid {
            return Some(status);
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return None;
        }
    }
}

fn registers(of: &mut Tracee) -> Option<u64> {
    if std::mem::take(&mut of.fresh) {
        wait(of.pid)?;
    }
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::zeroed();
    // SAFETY: the kernel writes a whole user_regs_struct there; the thread is stopped.
    if unsafe { libc::ptrace(libc::PTRACE_GETREGS, of.pid, 0, registers.as_mut_ptr()) } == -1 {
        return None;
    }
    // SAFETY: of plain numbers, zeroed before, and written by the kernel.
    Some(unsafe { registers.assume_init() }.rip)
}

/// Whether the instruction there is `syscall` (0f 05).
fn is_system_call(pid: i32, ip: u64) -> bool {
    // SAFETY: reads a word of the stopped thread's memory; -1 may be a word or an error, neither is `syscall`.
    let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, pid, ip as *mut libc::c_void, 0) };
    word as u64 & 0xffff == 0x050f
}
