//! The schema page of the documentation, made from the same tables as everything else.

use crate::FORMAT_VERSION;
use crate::event::{KINDS, SOFTIRQS, VECTORS};
use crate::fields::{FieldSpec, LAYOUTS, LayoutSpec, Place};

/// `docs/schema.md` as Markdown: the run directory, column by column.
pub fn markdown() -> String {
    let mut out = format!(
        "# The run directory (format version {FORMAT_VERSION})\n\n\
Generated from `crates/tailsight-trace`; `cargo test -p tailsight-trace` fails when this page is stale.\n\n\
A run is a directory. Times are CLOCK_MONOTONIC nanoseconds. `*.arrow` are Arrow IPC streams (zstd), readable up to\n\
the last whole batch after a kill or a full disk; pandas, polars and DuckDB open them without us:\n\n\
```python\nimport pyarrow as pa, pathlib\n\
events = pa.concat_tables(pa.ipc.open_stream(f).read_all() for f in sorted(pathlib.Path('run/events').glob('*.arrow')))\n```\n\n\
| file | what |\n|---|---|\n\
| `run.json` | host, kernel, boot (id), target with its processes (id, start, name), its network devices (queues, interrupts), settings of the host that can lengthen the tail, NICs that stamp, hooks (on or why not, ns per run), losses, own cost, version, state |\n\
| `events/cpu-N.arrow` | the events of core N, nearly in time order (an interrupted event may be one place early) |\n\
| `tasks.arrow` | the name of each thread, from when on |\n\
| `sockets.arrow` | sockets of the target's network namespaces, and connections met while recording |\n\
| `clocks.arrow` | comparisons of the clocks of the system |\n\
| `nic_clocks.arrow` | only where a NIC stamps: its clock compared with CLOCK_MONOTONIC each 100 ms |\n\
| `clock_log.arrow` | only where it was asked for: each change of the kernel's conversion of the time-stamp counter |\n\
| `samples.arrow`, `sample_stacks.arrow`, `sample_frames.arrow` | unless recorded with `--sample off`: what the target's threads ran, their call stacks, the functions in those |\n\
| `routines.arrow` | of Go and Python programs, unless recorded with `--sample off`: what tasks were at while a message waited ([goroutines.md](goroutines.md), [asyncio.md](asyncio.md)) |\n\
| `checksums` | a line for each part of a file, written before the part: `FILE FROM TO CRC32` (bytes; 8 hexadecimal digits) |\n\
| `messages.parquet` | derived: one row a message, its stages and legs |\n\
| `lifetimes.parquet` | derived: one row for each message, leg, role and owner: the exact partition of its time |\n\
| `sent.parquet` | derived, when there are any: one row for each send call that answers no received message |\n\
| `turns.parquet` | derived: one row for each time in which a thread worked for messages |\n\
| `waits.parquet` | derived: one row for each sleep of a thread, with who ended it and what it was for |\n\n\
A run whose `run.json` says `\"state\": \"recording\"` was killed; `\"partial\"` was interrupted or could not be\n\
written to its end, and says why.\n\n\
## Compatibility\n\n\
A reader opens every format version up to its own and refuses newer ones by name. Kinds and columns are only added.\n\n\
## Damage\n\n\
Since version 2, `files` in `run.json` lists every file that was recorded with its bytes and SHA-256, and `digest` is the SHA-256 of\n\
run.json as it is without these 64 digits. `sha256sum` checks the files; every command checks the parts and says what differs, reads a\n\
file as far as it is as it was written, and leaves out files that the run does not know. A run that was killed has no list, and the\n\
checksums all the same. Runs of version 1 have neither: they are read with a note. This finds damage and mix-ups, not forgery.\n\n\
A run is written for its owner only (folders 0700, files 0600), for it may hold payload.\n\n\
## events/cpu-N.arrow\n\n\
| column | type | unit and meaning |\n|---|---|---|\n\
| `ts` | uint64 | ns, CLOCK_MONOTONIC |\n\
| `kind` | uint8 | see below |\n\
| `aux` | uint16 | by kind |\n\
| `tid` | uint32 | the thread current on the core, 0 for idle |\n\
| `a`, `b`, `c` | uint64 | by kind |\n\n\
An *address key* is `local << 32 | remote` for IPv4 and a 64-bit mix of both addresses for IPv6 (`FlowAddr6` and sockets.arrow have the\n\
addresses). *Flow flags*: 1 IPv6, 2 UDP, 4 FIN, 8 SYN, 16 RST, 32 not a port of the target, 64 (of a send) repairing a loss, 128 (of a\n\
drop) on its way out, 256 not a port that the target serves: it asks somebody else, 512 (of a send) the send buffer is full.\n\n\
### Kinds\n\n\
The fields of a kind are in the table of that name, further down.\n\n\
| kind | name | hook | fields | |\n|---|---|---|---|---|\n"
    );
    for spec in KINDS {
        let fields = match spec.layout.fields {
            [] => String::new(),
            _ => format!("[{0}](#{1})", spec.layout.name, spec.layout.name.to_lowercase()),
        };
        out += &format!("| {} | {} | `{}` | {fields} | {} |\n", spec.kind as u8, spec.name, spec.hook, spec.note);
    }
    out += "\nSystem vectors (`aux` of VectorEntry): ";
    out += &VECTORS.iter().enumerate().map(|(n, v)| format!("{n} {v}")).collect::<Vec<_>>().join(", ");
    out += ".\n\nSoftirq vectors: ";
    out += &SOFTIRQS.iter().enumerate().map(|(n, v)| format!("{n} {v}")).collect::<Vec<_>>().join(", ");
    out += ".\n\n### Fields\n\n`b 32..64`: the bits 32 to 63 of column `b`, counted from the lowest.\n";
    for layout in LAYOUTS.iter().filter(|layout| !layout.fields.is_empty()) {
        out += &fields(layout);
    }
    out += "\n### Views for DuckDB\n\n\
`tailsight schema events` prints a view for each kind, `sched_switch`, `rx_stack` and so on, with the core, the time, the thread and the\n\
fields of that kind by their names. They read a table `events`:\n\n\
```python\n\
import duckdb, pathlib, subprocess\n\
import pyarrow as pa\n\n\
cores = []\n\
for file in pathlib.Path('run/events').glob('cpu-*.arrow'):\n    \
    core = pa.ipc.open_stream(file).read_all()\n    \
    number = int(file.stem.removeprefix('cpu-'))\n    \
    cores.append(core.append_column('cpu', pa.array([number] * len(core), pa.uint32())))\n\
events = pa.concat_tables(cores)\n\
db = duckdb.connect()\n\
db.register('events', events)\n\
db.execute(subprocess.check_output(['tailsight', 'schema', 'events'], text=True))\n\
print(db.sql('select reason, count(*) from skb_drop group by reason'))\n\
```\n\n\
Names are read as Latin-1, up to their first NUL; other bytes are hexadecimal.\n";
    out += "\n## tasks.arrow\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `from_ns` | uint64 | from when the thread had this name; 0: before the recording |\n\
| `tid`, `tgid` | uint32 | thread and process |\n\
| `comm` | utf8 | command name |\n\
| `target` | bool | belongs to the recorded application |\n\
| `kernel` | bool | a kernel thread |\n\
| `cgroup` | utf8 | control group of the process, as in /proc/PID/cgroup; empty when it had ended before the recording did. Older runs have no such column |\n\n\
## sockets.arrow\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `proto` | utf8 | `tcp` or `udp` |\n\
| `local_addr`, `remote_addr` | utf8 | addresses; empty when not connected |\n\
| `local_port`, `remote_port` | uint16 | ports |\n\
| `listening` | bool | TCP listener, or unconnected UDP |\n\
| `tgid`, `comm` | uint32, utf8 | a process that holds it, 0 when not known |\n\
| `addrs` | uint64 | the flow's address key |\n\n\
## clocks.arrow\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `monotonic_ns`, `realtime_ns`, `boottime_ns` | uint64 | the clocks, ns, read within `bracket_ns` |\n\
| `tsc` | uint64 | time-stamp counter, 0 where there is none |\n\
| `bracket_ns` | uint64 | time between the two CLOCK_MONOTONIC reads around the others: twice the error bound |\n\n\
## nic_clocks.arrow\n\n\
One row for each comparison of each clock of `nic.devices` in run.json. A stamp of that clock is between two rows, and is placed\n\
on the line between them ([lifetimes.md](lifetimes.md)).\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `phc` | uint32 | the clock, `/dev/ptpN` |\n\
| `monotonic_ns` | uint64 | when, CLOCK_MONOTONIC ns |\n\
| `phc_ns` | uint64 | what the NIC's clock showed, ns |\n\
| `error_ns` | uint64 | the most that `monotonic_ns` can be wrong |\n\n\
## clock_log.arrow\n\n\
One row for each change of the kernel's conversion that was seen, in order. From one row on, a clock is\n\
`seconds * 10^9 + ((tsc - cycle_last) * mult + shifted_ns >> shift)`; what a missed change may have moved is seen at the next row\n\
([clocks.md](clocks.md)).\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `seq` | uint32 | the sequence count of the kernel's page: 2 more with each change; wraps |\n\
| `cycle_last` | uint64 | the counter when it was made |\n\
| `mult`, `shift` | uint32 | ns of a tick, times 2^shift, and the bits |\n\
| `monotonic_s`, `monotonic_shifted_ns` | uint64 | CLOCK_MONOTONIC then: whole seconds, and ns times 2^shift |\n\
| `realtime_s`, `realtime_shifted_ns` | uint64 | CLOCK_REALTIME likewise |\n\
| `tai_s`, `tai_shifted_ns` | uint64 | CLOCK_TAI likewise |\n\n\
## samples.arrow\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `ts_ns` | uint64 | when, CLOCK_MONOTONIC ns |\n\
| `cpu` | uint16 | the core |\n\
| `tid`, `tgid` | uint32 | thread and process |\n\
| `kind` | uint8 | 0: the clock, which ticks each `sampling.period_ns` of run.json, found the thread running; 1: the thread went to sleep: of each distinct place in the program once; 2: the clock found it running and took no stack |\n\
| `weight` | uint16 | of kind 0: ticks of the clock that the sample stands for; absent in older runs, where each stands for one |\n\
| `stack` | uint32 | its call stack |\n\n\
## sample_stacks.arrow\n\n\
One row a frame of each stack, innermost first, the stacks in the order of their numbers.\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `stack` | uint32 | the stack's number, from 0 |\n\
| `frame` | uint32 | a row of sample_frames.arrow, from 0 |\n\n\
## sample_frames.arrow\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `function` | utf8 | its name, demangled; empty when not known |\n\
| `module` | utf8 | program or library without folders; `[kernel]` or a kernel module in brackets; `[jit]` for what a runtime compiled |\n\
| `build_id` | utf8 | build id of the program or library, hexadecimal; empty without one |\n\
| `offset` | uint64 | address in the file's own address space, where it begins when it has no name; of the kernel and of compiled code: in the function |\n\
| `source` | utf8 | source file and line, where debug information tells |\n\
| `exported_before`, `exported_after` | utf8 | of a function without a name: the functions that its file exports before and after it; absent in older runs |\n\
| `kernel` | bool | the kernel's |\n\
| `inlined` | bool | the compiler put it into its caller |\n\
| `own` | bool | of the program itself, not of a library: of the executable, of Go the main module's packages, of compiled Python and JavaScript the program's own files; absent in older runs |\n\n\
## routines.arrow\n\n\
One row for each look at a goroutine that had received something and not answered it yet, and of looks at a task of asyncio that say the same the first and the last.\n\n\
| column | type | meaning |\n|---|---|---|\n\
| `ts_ns` | uint64 | when, CLOCK_MONOTONIC ns |\n\
| `pid` | uint32 | its process |\n\
| `routine` | uint64 | the goroutine or task, as in RoutineSeen |\n\
| `since_ns` | uint64 | when the goroutine received, CLOCK_MONOTONIC ns; 0: which message a task has the look does not tell; 2^64 - 1: none, it ended waits of goroutines that have one |\n\
| `state` | uint8 | 1: it could run, and nobody ran it; 2: a thread ran it; 3: it was in a system call; 4: it waited |\n\
| `stack` | uint32 | where it waited: its call stack's number + 1; 0: not known, or it did not wait |\n\n\
The Parquet tables are described in [lifetimes.md](lifetimes.md).\n";
    out
}

/// The fields of a layout, with the kinds that have them.
fn fields(layout: &LayoutSpec) -> String {
    let kinds = KINDS.iter().filter(|kind| kind.layout.name == layout.name).map(|kind| kind.name);
    let kind_names = kinds.collect::<Vec<_>>().join(", ");
    let row = |field: &FieldSpec| {
        let (place, type_name) = match field.place {
            Place::Whole(word) => (format!("`{}`", word.name()), field.type_name),
            Place::Bits { word, from, to } => (format!("`{} {from}..{to}`", word.name()), field.type_name),
            Place::Bytes(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{}`", word.name())).collect();
                (words.join(", "), "bytes")
            }
            Place::Layout(inner) => {
                let link = format!("[{0}](#{1})", inner.name, inner.name.to_lowercase());
                return format!("| {link} | | | {} |\n", field.meaning);
            }
        };
        format!("| `{}` | {place} | {type_name} | {} |\n", field.name, field.meaning)
    };
    format!(
        "\n#### {}\n\n{}| field | place | type | meaning |\n|---|---|---|---|\n{}",
        layout.name,
        if kind_names.is_empty() { String::new() } else { format!("Of {kind_names}.\n\n") },
        layout.fields.iter().map(row).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.md");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == super::markdown(),
            "docs/schema.md is stale: cargo run -p tailsight-trace --example schema_page > docs/schema.md"
        );
    }
}
