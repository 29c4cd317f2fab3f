//! A perf.data file around a trace, as `perf record -e intel_pt//u` writes it and as perf 6.1 can read it.
//!
//! In: the result of [`encode`](super::encode). Out: the bytes of the file. The layout is that of the kernel's
//! `tools/perf/Documentation/perf.data-file-format.txt` and `tools/perf/util/intel-pt.c`.

use super::NAME;
use super::encode::{CRYSTAL, Cpu, Encoded, RATIO, Style};
use super::flow::Code;

/// perf's number of the intel_pt unit: any number above the built-in ones.
const PMU: u32 = 8;
/// The process.
const PID: u32 = 1000;
/// The clock's three parameters: two ticks a nanosecond, beginning at one second.
pub const SHIFT: u64 = 10;
/// ns of a tick, times `2^SHIFT`.
pub const MULT: u64 = 512;
/// perf's time at tick 0, ns.
pub const ZERO: u64 = 1_000_000_000;

const TSC_BIT: u64 = 0x400;
const NO_RETURN_COMPRESSION: u64 = 0x800;
const MTC_BIT: u64 = 0x200;
const MTC_BITS: u64 = 0x3c000;
const CYC_BIT: u64 = 0x2;
const BRANCHES: u64 = 0x2001;

/// perf's time of a tick.
pub fn ns(tick: u64) -> u64 {
    ZERO + ((tick * MULT) >> SHIFT)
}

/// The file.
pub fn write(encoded: &Encoded, code: &Code, style: &Style) -> Vec<u8> {
    let cpus = encoded.cpus.len() as u64;
    let mut records = begin(encoded, code, style);
    let last = ns(encoded.ticks.1) + 100;
    records.extend(switches(encoded, 0));
    for (cpu, core) in (0..cpus).zip(&encoded.cpus) {
        records.push(record(11, 0, &words(&[0, core.trace.len() as u64, 0]), (0, 0, last, cpu, trace_id(cpu))));
    }
    file(&encoded.cpus, style, &records.concat(), false)
}

/// Writes a file of `times` times the same execution, one behind the other: the same packets, with other time-stamp counters in them. What
/// else of their time is in them, the low bits of the crystal clock, is the same after so many ticks as lie between two of them.
///
/// # Errors
/// Those of writing.
pub fn write_repeated(
    out: &mut impl std::io::Write,
    encoded: &Encoded,
    code: &Code,
    style: &Style,
    times: u64,
) -> std::io::Result<()> {
    let cpus = encoded.cpus.len() as u64;
    let apart = (encoded.ticks.1 - encoded.ticks.0 + 1).next_multiple_of(CRYSTAL << 16);
    let padded = |of: &Cpu| of.trace.len().next_multiple_of(8);
    let first = begin(encoded, code, style).concat();
    // Of each time, the same number of bytes.
    let sideband = switches(encoded, 0).concat().len() as u64;
    let trace: u64 = encoded.cpus.iter().map(|of| padded(of) as u64 + 48).sum();
    // Nothing behind it is earlier than what is before the one before it: readers need not keep all records to sort them.
    let round = plain(68, &[]);
    let size = first.len() as u64 + times * (sideband + trace + round.len() as u64);
    out.write_all(&header(cpus, style, false, size, &[ARCHITECTURE]))?;
    out.write_all(&first)?;
    let mut traces: Vec<Vec<u8>> = encoded.cpus.iter().map(|of| of.trace.clone()).collect();
    for n in 0..times {
        let later = n * apart;
        out.write_all(&switches(encoded, later).concat())?;
        for (cpu, (trace, core)) in traces.iter_mut().zip(&encoded.cpus).enumerate() {
            for &at in &core.tscs {
                let tick = core.trace[at..at + 7].iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
                trace[at..at + 7].copy_from_slice(&(tick + later).to_le_bytes()[..7]);
            }
            trace.resize(padded(core), 0);
            out.write_all(&auxtrace(cpu, trace.len() as u64, n * trace.len() as u64))?;
            out.write_all(trace)?;
        }
        out.write_all(&round)?;
    }
    out.write_all(&sections(cpus, size, &[architecture()]))
}

fn begin(encoded: &Encoded, code: &Code, style: &Style) -> Vec<Vec<u8>> {
    let cpus = encoded.cpus.len() as u64;
    let mut records = vec![trace_info(style, MULT)];
    let begin = ns(encoded.ticks.0);
    let names: Vec<u32> = encoded.truth.keys().copied().collect();
    for &tid in &names {
        let mut body = words32(&[PID, tid]);
        body.extend(text(NAME));
        records.push(record(3, 0x2000 * u16::from(tid == PID), &body, (PID, tid, begin, 0, sideband_id(0))));
    }
    let (page, end) = (code.start & !0xfff, (code.start + code.len()).next_multiple_of(0x1000));
    let mut body = words32(&[PID, PID]);
    body.extend(words(&[page, end - page, code.offset & !0xfff]));
    // Device, inode, generation; readable and executable; private.
    body.extend(words32(&[8, 1, 1, 0, 0, 0, 5, 2]));
    body.extend(text(&format!("/{NAME}")));
    records.push(record(10, 2, &body, (PID, PID, begin + 1, 0, sideband_id(0))));
    for cpu in 0..cpus {
        records.push(record(12, 0, &words32(&[u32::MAX, u32::MAX]), (0, 0, begin + 2, cpu, trace_id(cpu))));
    }
    records
}

/// The context switches, so many ticks later.
fn switches(encoded: &Encoded, later: u64) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for s in &encoded.switches {
        let (time, cpu) = (ns(s.tick + later), s.cpu as u64);
        let pid = |tid: u32| if tid == 0 { 0 } else { PID };
        let out = 0x2000 | (0x4000 * u16::from(s.preempted));
        let id = sideband_id(cpu);
        records.push(record(15, out, &words32(&[pid(s.to), s.to]), (pid(s.from), s.from, time, cpu, id)));
        records.push(record(15, 0, &words32(&[pid(s.from), s.from]), (pid(s.to), s.to, time + 10, cpu, id)));
    }
    records
}

pub(super) fn trace_info(style: &Style, mult: u64) -> Vec<u8> {
    let compressed = NO_RETURN_COMPRESSION;
    let (timing, eax, ebx) = if style.cycles { (CYC_BIT, 1, CRYSTAL) } else { (0, 0, 0) };
    let mtc = if style.cycles { [MTC_BIT, MTC_BITS] } else { [0, 0] };
    let words_of = [
        u64::from(PMU),
        SHIFT,
        mult,
        ZERO,
        1, // cap_user_time_zero
        TSC_BIT,
        compressed,
        3, // context switches of the whole CPU
        0, // not a snapshot
        1, // a buffer for each CPU
        mtc[0],
        mtc[1],
        ebx,
        eax,
        timing,
        u64::from(RATIO),
        0, // no filter
    ];
    let mut body = words32(&[1, 0]);
    body.extend(words(&words_of));
    plain(70, &body)
}

/// Header, attributes with their ids, records, the trace, the table of features. `kernel`: the kernel was traced, too, and its code
/// lies beside the file (`perf record --kcore`).
pub(super) fn file(traced: &[Cpu], style: &Style, records: &[u8], kernel: bool) -> Vec<u8> {
    let cpus = traced.len() as u64;
    let mut data = records.to_vec();
    let mut traces = Vec::new();
    for (cpu, core) in traced.iter().enumerate() {
        traces.push((data_at(cpus) + data.len() as u64, 48));
        let padded = core.trace.len().next_multiple_of(8);
        data.extend(auxtrace(cpu, padded as u64, 0));
        data.extend(&core.trace);
        data.resize(data.len() + padded - core.trace.len(), 0);
    }
    let mut of_traces = words(&[traces.len() as u64]);
    traces.iter().for_each(|&(at, size)| of_traces.extend(words(&[at, size])));
    let (mut features, mut parts) = (vec![ARCHITECTURE, INDEX], vec![architecture(), of_traces]);
    if kernel {
        // The version of the layout: all data in one file.
        features.push(DIRECTORY);
        parts.push(words(&[0]));
    }
    let mut out = header(cpus, style, kernel, data.len() as u64, &features);
    let size = data.len() as u64;
    out.extend(data);
    out.extend(sections(cpus, size, &parts));
    out
}

const HEADER: u64 = 104;
/// Features of the header, by perf's numbers.
const ARCHITECTURE: u64 = 6;
const INDEX: u64 = 18;
const DIRECTORY: u64 = 24;

fn data_at(cpus: u64) -> u64 {
    HEADER + 8 * 2 * cpus + 2 * 128
}

/// The record before a stretch of trace.
fn auxtrace(cpu: usize, len: u64, offset: u64) -> Vec<u8> {
    let mut body = words(&[len, offset, 0x1234 + cpu as u64]);
    body.extend(words32(&[cpu as u32, u32::MAX, cpu as u32, 0]));
    plain(71, &body)
}

fn architecture() -> Vec<u8> {
    let mut architecture = words32(&[8]);
    architecture.extend(b"x86_64\0\0");
    architecture
}

/// Header and attributes of a file with so many bytes of records.
fn header(cpus: u64, style: &Style, kernel: bool, size: u64, features: &[u64]) -> Vec<u8> {
    let config = BRANCHES | TSC_BIT | if style.compress_returns { 0 } else { NO_RETURN_COMPRESSION };
    let config = config | if style.cycles { MTC_BIT | CYC_BIT | u64::from(style.mtc) << 14 } else { 0 };
    let sample_id_all = 1u64 << 18;
    let exclude_kernel = u64::from(!kernel) << 5;
    // mmap, comm, task, mmap2, comm_exec, context_switch.
    let sideband = 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23 | 1 << 24 | 1 << 26;
    let ids: Vec<u64> = (0..cpus).map(trace_id).chain((0..cpus).map(sideband_id)).collect();
    let attributes_at = HEADER + 8 * ids.len() as u64;
    let features = features.iter().fold(0, |bits, feature| bits | 1 << feature);
    let mut out = b"PERFILE2".to_vec();
    out.extend(words(&[HEADER, 128, attributes_at, 256, data_at(cpus), size, 0, 0, features, 0, 0, 0]));
    out.extend(words(&ids));
    let attribute = |kind: u32, config: u64, flags: u64, at: u64| {
        // IP, TID, TIME, CPU, IDENTIFIER.
        let sample = 0x1 | 0x2 | 0x4 | 0x80 | 0x10000;
        let mut body = words32(&[kind, 112]);
        body.extend(words(&[config, 1, sample, 4, flags]));
        body.resize(112, 0);
        body.extend(words(&[at, 8 * cpus]));
        body
    };
    out.extend(attribute(PMU, config, sample_id_all | exclude_kernel, HEADER));
    out.extend(attribute(1, 9, sample_id_all | exclude_kernel | sideband, HEADER + 8 * cpus));
    out
}

/// What lies behind so many bytes of records: where each feature is, and the features.
fn sections(cpus: u64, size: u64, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = data_at(cpus) + size + 16 * parts.len() as u64;
    for part in parts {
        out.extend(words(&[at, part.len() as u64]));
        at += part.len() as u64;
    }
    out.extend(parts.concat());
    out
}

pub(super) fn trace_id(cpu: u64) -> u64 {
    501 + cpu
}

pub(super) fn sideband_id(cpu: u64) -> u64 {
    601 + cpu
}

pub(super) fn words(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub(super) fn words32(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub(super) fn text(of: &str) -> Vec<u8> {
    let mut out = of.as_bytes().to_vec();
    out.resize((out.len() + 1).next_multiple_of(8), 0);
    out
}

fn plain(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(0u16.to_le_bytes());
    out.extend((8 + body.len() as u16).to_le_bytes());
    out.extend(body);
    out
}

/// A record with its thread, time and core at the end.
pub(super) fn record(
    kind: u32,
    misc: u16,
    body: &[u8],
    (pid, tid, time, cpu, id): (u32, u32, u64, u64, u64),
) -> Vec<u8> {
    let mut whole = body.to_vec();
    whole.extend(words32(&[pid, tid]));
    whole.extend(words(&[time, cpu, id]));
    let mut out = plain(kind, &whole);
    out[4..6].copy_from_slice(&misc.to_le_bytes());
    out
}
