//! The system calls behind the facts: each one only reads, and closes what it opened.
//!
//! In: nothing but numbers. Out: what the kernel answered, as a value or an `io::Error` with its errno.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_FENTRY: u32 = 24;

/// Creates an array map of one entry, and closes it.
pub(crate) fn bpf_map_create() -> io::Result<()> {
    // map_type, key_size, value_size, max_entries, map_flags
    let attr: [u32; 5] = [BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0];
    // SAFETY: bpf(BPF_MAP_CREATE) reads `size` bytes of the attribute, which lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, attr.as_ptr(), size_of_val(&attr)) };
    owned(fd).map(drop)
}

/// Loads, and closes, a tracing program of a few instructions; with `reads_kernel` it calls `bpf_probe_read_kernel`,
/// which lockdown in confidentiality mode forbids.
pub(crate) fn bpf_prog_load(reads_kernel: bool) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_buf: u64,
        kern_version: u32,
        prog_flags: u32,
    }
    let mut program = Vec::new();
    if reads_kernel {
        program.extend([
            instruction(0xbf, 1, 10, 0),  // r1 = r10
            instruction(0x07, 1, 0, -8),  // r1 -= 8
            instruction(0xb7, 2, 0, 8),   // r2 = 8
            instruction(0xb7, 3, 0, 0),   // r3 = 0
            instruction(0x85, 0, 0, 113), // call bpf_probe_read_kernel
        ]);
    }
    program.extend([instruction(0xb7, 0, 0, 0), instruction(0x95, 0, 0, 0)]); // r0 = 0; exit
    let attr = Attr {
        prog_type: BPF_PROG_TYPE_RAW_TRACEPOINT,
        insn_cnt: u32::try_from(program.len()).unwrap_or(0),
        insns: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
    };
    // SAFETY: bpf(BPF_PROG_LOAD) reads the attribute, the instructions and the licence; all live through the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attr, size_of::<Attr>()) };
    owned(fd).map(drop)
}

/// Loads, and closes, an empty program for the begin of the function with this number in the kernel's BTF.
pub(crate) fn bpf_fentry_load(function: u32) -> io::Result<()> {
    /// `union bpf_attr` of BPF_PROG_LOAD up to `attach_btf_id`.
    #[repr(C)]
    struct Attr {
        prog_type: u32,
        insn_cnt: u32,
        insns: u64,
        license: u64,
        log: [u32; 4],
        kern_version: u32,
        prog_flags: u32,
        prog_name: [u8; 16],
        prog_ifindex: u32,
        expected_attach_type: u32,
        prog_btf: [u32; 2],
        func_info: [u32; 4],
        line_info: [u32; 3],
        attach_btf_id: u32,
    }
    let program = [instruction(0xb7, 0, 0, 0), instruction(0x95, 0, 0, 0)]; // r0 = 0; exit
    let attr = Attr {
        prog_type: BPF_PROG_TYPE_TRACING,
        insn_cnt: 2,
        insns: program.as_ptr() as u64,
        license: c"Dual BSD/GPL".as_ptr() as u64,
        log: [0; 4],
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"ts_try\0\0\0\0\0\0\0\0\0\0",
        prog_ifindex: 0,
        expected_attach_type: BPF_TRACE_FENTRY,
        prog_btf: [0; 2],
        func_info: [0; 4],
        line_info: [0; 3],
        attach_btf_id: function,
    };
    // SAFETY: bpf(BPF_PROG_LOAD) reads the attribute, the instructions and the licence; all live through the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attr, size_of::<Attr>()) };
    owned(fd).map(drop)
}

/// One BPF instruction in memory order.
fn instruction(code: u8, dst: u8, src: u8, imm: i32) -> [u8; 8] {
    let regs = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
    let i = imm.to_ne_bytes();
    [code, regs, 0, 0, i[0], i[1], i[2], i[3]]
}

/// Counts this thread's user-space core cycles over a short loop: the count, 0 if the counter never ticked.
pub(crate) fn perf_cycles() -> io::Result<u64> {
    // struct perf_event_attr, first published size (64 bytes): type, size, config, sample_period, sample_type,
    // read_format, flags, wakeup_events and bp_type, bp_addr.
    const SIZE: u64 = 64;
    const EXCLUDE_KERNEL_AND_HV: u64 = if cfg!(target_endian = "little") { 3 << 5 } else { 3 << 57 };
    // type 0 is PERF_TYPE_HARDWARE, config 0 is PERF_COUNT_HW_CPU_CYCLES
    let type_and_size = if cfg!(target_endian = "little") { SIZE << 32 } else { SIZE };
    let attr: [u64; 8] = [type_and_size, 0, 0, 0, 0, EXCLUDE_KERNEL_AND_HV, 0, 0];
    const THIS_THREAD: libc::c_long = 0;
    const NONE: libc::c_long = -1;
    const CLOEXEC: libc::c_long = 8; // PERF_FLAG_FD_CLOEXEC
    // SAFETY: perf_event_open reads `size` bytes of the attribute, which lives through the call: this thread, any
    // core, no group.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), THIS_THREAD, NONE, NONE, CLOEXEC) };
    let mut counter = File::from(owned(fd)?);
    std::hint::black_box((0..10_000u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
    let mut count = [0; 8];
    counter.read_exact(&mut count)?;
    Ok(u64::from_ne_bytes(count))
}

/// The answer of `adjtimex` on the system clock.
pub(crate) struct ClockState {
    /// `TIME_OK` (0) … `TIME_ERROR` (5).
    pub(crate) state: i32,
    /// `STA_*` bits.
    pub(crate) status: i32,
    /// Frequency correction in 2^-16 ppm.
    pub(crate) freq: i64,
    /// Remaining offset, in ns or µs by `STA_NANO`.
    pub(crate) offset: i64,
    /// Maximum error in µs.
    pub(crate) max_error_us: i64,
}

/// Reads the state of the clock's discipline; `modes` is 0, so nothing is set.
pub(crate) fn adjtimex() -> io::Result<ClockState> {
    // SAFETY: an all-zero timex is valid, and with modes = 0 the kernel only fills it.
    let (state, t) = unsafe {
        let mut t: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut t), t)
    };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    // The fields are C long: 64 bits here, 32 on 32-bit hosts, where the conversion is needed.
    #[allow(clippy::useless_conversion)]
    Ok(ClockState {
        state,
        status: t.status,
        freq: t.freq.into(),
        offset: t.offset.into(),
        max_error_us: t.maxerror.into(),
    })
}

/// `EPERM` and the like for an error that came from the kernel.
pub(crate) fn errno_name(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(n) => format!("{:?}", nix::errno::Errno::from_raw(n)),
        None => e.to_string(),
    }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel just returned this descriptor to us and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
