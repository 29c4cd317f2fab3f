//! The perf.data file of a whole machine, as `perf record --kcore -a -e intel_pt//` writes it.
//!
//! In: [`Whole`], and what is known of the guest. Out: the bytes of the file.

use super::super::encode::Style;
use super::super::perf_data::{SHIFT, ZERO, file, record, sideband_id, text, trace_id, trace_info, words, words32};
use super::follow::Whole;
use super::image::Guest;

const COMM: u32 = 3;
const MMAP: u32 = 1;
const MMAP2: u32 = 10;
const AUX: u32 = 11;
const ITRACE_START: u32 = 12;
const SWITCH_CPU_WIDE: u32 = 15;
/// `PERF_RECORD_MISC_*`.
const KERNEL: u16 = 1;
const USER: u16 = 2;
const SWITCH_OUT: u16 = 0x2000;
const PREEMPTED: u16 = 0x4000;

/// perf's time of a tick: the guest's counter counts nanoseconds.
fn ns(tick: u64) -> u64 {
    ZERO + tick
}

/// The file.
pub fn write(whole: &Whole, guest: &Guest, style: &Style) -> Vec<u8> {
    let mut head = trace_info(style, 1 << SHIFT);
    let begin = ns(whole.ticks.0);
    let (start, end) = guest.text();
    let mut body = words32(&[u32::MAX, 0]);
    body.extend(words(&[start, end - start, start]));
    body.extend(text("[kernel.kallsyms]_text"));
    head.extend(record(MMAP, KERNEL, &body, (0, 0, begin, 0, sideband_id(0))));
    for (pid, tid, name) in &guest.tasks {
        let mut body = words32(&[*pid, *tid]);
        body.extend(text(name));
        head.extend(record(COMM, 0, &body, (*pid, *tid, begin, 0, sideband_id(0))));
    }
    for (pid, mapping) in guest.mappings.iter().flat_map(|(pid, all)| all.iter().map(move |m| (*pid, m))) {
        let mut body = words32(&[pid, pid]);
        body.extend(words(&[mapping.start, mapping.end - mapping.start, mapping.offset]));
        // Device, inode, generation; readable and executable; private.
        body.extend(words32(&[8, 1, 1, 0, 0, 0, 5, 2]));
        body.extend(text(&mapping.path));
        head.extend(record(MMAP2, USER, &body, (pid, pid, begin + 1, 0, sideband_id(0))));
    }
    // Records with a time, in its order.
    let mut timed: Vec<(u64, Vec<u8>)> = Vec::new();
    let pid = |tid: u32| whole.processes.get(&tid).copied().unwrap_or(tid);
    for (cpu, first) in (0u64..).zip(&whole.first) {
        let start = words32(&[first.pid, first.tid]);
        timed.push((begin + 2, record(ITRACE_START, 0, &start, (first.pid, first.tid, begin + 2, cpu, trace_id(cpu)))));
    }
    for switch in &whole.switches {
        let ((out, came), cpu) = (Whole::told(switch), switch.cpu as u64);
        let (from, to, id) = ((pid(switch.from), switch.from), (pid(switch.to), switch.to), sideband_id(cpu));
        let misc = SWITCH_OUT | (PREEMPTED * u16::from(switch.preempted));
        let leaves = record(SWITCH_CPU_WIDE, misc, &words32(&[to.0, to.1]), (from.0, from.1, ns(out), cpu, id));
        let comes = record(SWITCH_CPU_WIDE, 0, &words32(&[from.0, from.1]), (to.0, to.1, ns(came), cpu, id));
        timed.extend([(ns(out), leaves), (ns(came), comes)]);
    }
    let last = ns(whole.ticks.1) + 100;
    for (cpu, core) in (0u64..).zip(&whole.cpus) {
        let section = words(&[0, core.trace.len() as u64, 0]);
        timed.push((last, record(AUX, 0, &section, (0, 0, last, cpu, trace_id(cpu)))));
    }
    timed.sort_by_key(|(time, _)| *time);
    head.extend(timed.into_iter().flat_map(|(_, bytes)| bytes));
    file(&whole.cpus, style, &head, true)
}
