//! The recordings of lldb's tests, of real hardware: as many instructions of each thread as those tests state. `TAILSIGHT_LLDB_TRACES` names
//! the folder that `scripts/lldb-recordings.sh` fills; without it these tests skip.
//!
//! lldb keeps a thread's or a core's trace as it was, and says in `trace.json` what was mapped; perf's container is put around it here, with
//! lldb's own records of context switches, which the kernel wrote.

use std::path::{Path, PathBuf};

use object::{Object, ObjectSegment, SegmentFlags};
use serde_json::Value;
use tailsight_pt::{Gap, Places, Recording, Summary};

fn folder(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("TAILSIGHT_LLDB_TRACES").map(|dir| PathBuf::from(dir).join(name));
    let there = path.filter(|path| path.join("trace.json").is_file() || path.join("multi-file-no-ld.json").is_file());
    if there.is_none() {
        tailsight_testing::skip(format!(
            "TAILSIGHT_LLDB_TRACES names no folder with {name} (scripts/lldb-recordings.sh)"
        ));
    }
    there
}

fn words(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn halves(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(misc.to_le_bytes());
    out.extend((8 + u16::try_from(body.len()).unwrap()).to_le_bytes());
    out.extend(body);
    out
}

/// TID, TIME and CPU.
fn sample_id(pid: u32, tid: u32, time: u64) -> Vec<u8> {
    [halves(&[pid, tid]), words(&[time, 0])].concat()
}

fn number(of: &Value) -> u64 {
    of.as_u64().or_else(|| of.as_str()?.parse().ok()).unwrap_or(0)
}

/// The code of a module, mapped where lldb says.
fn mappings(dir: &Path, pid: u32, module: &Value) -> Vec<Vec<u8>> {
    let file = module["file"].as_str().unwrap_or_default();
    let Ok(bytes) = std::fs::read(dir.join(file)) else { return Vec::new() };
    let elf = object::File::parse(&bytes[..]).unwrap();
    let lowest = elf.segments().map(|s| s.address()).min().unwrap();
    let moved = number(&module["loadAddress"]).wrapping_sub(lowest);
    let code = elf.segments().filter(|s| matches!(s.flags(), SegmentFlags::Elf { p_flags } if p_flags & 1 != 0));
    let mapping = |segment: object::Segment<'_, '_>| {
        let (at, len) = segment.file_range();
        let mut body = halves(&[pid, pid]);
        body.extend(words(&[segment.address().wrapping_add(moved), len, at]));
        body.extend(halves(&[8, 1, 1, 0, 0, 0, 5, 2]));
        let mut name = format!("/{file}").into_bytes();
        name.resize((name.len() + 1).next_multiple_of(8), 0);
        body.extend(name);
        body.extend(sample_id(pid, pid, 0));
        record(10, 2, &body)
    };
    code.map(mapping).collect()
}

/// A thread's or a core's trace behind its AUXTRACE record.
fn trace(dir: &Path, file: &str, [cpu, tid]: [u32; 2]) -> Vec<u8> {
    let mut bytes = std::fs::read(dir.join(file)).unwrap();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let mut body = words(&[bytes.len() as u64, 0, 1]);
    body.extend(halves(&[0, tid, cpu, 0]));
    [record(71, 0, &body), bytes].concat()
}

/// A perf.data file around what `description` names.
fn perf_data(dir: &Path, description: &str) -> Vec<u8> {
    const NO: u32 = u32::MAX;
    let about: Value = serde_json::from_slice(&std::fs::read(dir.join(description)).unwrap()).unwrap();
    let clock = about.get("tscPerfZeroConversion");
    let of_clock = |name: &str| clock.map_or(0, |clock| number(&clock[name]));
    // Without a clock: ticks for nanoseconds.
    let (shift, mult) = clock.map_or((0, 1), |_| (of_clock("timeShift"), of_clock("timeMult")));
    let mut info = halves(&[1, 0]);
    info.extend(words(&[
        8,
        shift,
        mult,
        of_clock("timeZero"),
        1,
        0x400,
        0x800,
        3,
        0,
        1,
        0x200,
        0x3c000,
        0,
        0,
        2,
        0,
        0,
    ]));
    let mut records = record(70, 0, &info);
    let mut traces = Vec::new();
    for process in about["processes"].as_array().unwrap() {
        let pid = u32::try_from(number(&process["pid"])).unwrap();
        for module in process["modules"].as_array().unwrap() {
            records.extend(mappings(dir, pid, module).concat());
        }
        for thread in process["threads"].as_array().unwrap() {
            let tid = u32::try_from(number(&thread["tid"])).unwrap();
            let body = [halves(&[pid, tid]), b"traced\0\0".to_vec(), sample_id(pid, tid, 0)].concat();
            records.extend(record(3, 0, &body));
            let file = thread.get("iptTrace").or_else(|| thread.get("traceBuffer")).and_then(Value::as_str);
            traces.extend(file.map(|file| trace(dir, file, [NO, tid])));
        }
    }
    let traces = traces.concat();
    let family = [&about["cpuInfo"]["family"], &about["cpuInfo"]["model"], &about["cpuInfo"]["stepping"]].map(number);
    let mut cpuid = format!("GenuineIntel,{},{},{}", family[0], family[1], family[2]).into_bytes();
    cpuid.resize((cpuid.len() + 1).next_multiple_of(8), 0);
    let feature = [halves(&[u32::try_from(cpuid.len()).unwrap()]), cpuid].concat();
    let (attribute_at, data_at) = (104, 104 + 128);
    let size = (records.len() + traces.len()) as u64;
    let mut out = b"PERFILE2".to_vec();
    out.extend(words(&[104, 128, attribute_at, 128, data_at, size, 0, 0, 1 << 9, 0, 0, 0]));
    // Of the unit 8: TID, TIME and CPU, on all records; the kernel was not traced.
    let mut attribute = halves(&[8, 112]);
    attribute.extend(words(&[0x2401, 1, 0x2 | 0x4 | 0x80, 0, 1 << 18 | 1 << 5]));
    attribute.resize(112, 0);
    attribute.extend(words(&[0, 0]));
    out.extend(attribute);
    out.extend(records);
    out.extend(traces);
    let table = out.len() as u64;
    out.extend(words(&[table + 16, feature.len() as u64]));
    out.extend(feature);
    out
}

fn decoded(dir: &Path, description: &str) -> Summary {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), perf_data(dir, description)).unwrap();
    let places = Places { roots: vec![dir.to_owned()], ..Places::default() };
    Recording::open(file.path(), &places).unwrap().decode(None, |_| {}).unwrap()
}

/// TestTraceDumpInstructions.py: instructions 0 to 20.
#[test]
fn lldb_s_trace_of_a_thread_has_its_21_instructions() {
    let Some(dir) = folder("intelpt-trace") else { return };
    let summary = decoded(&dir, "trace.json");
    assert_eq!(summary.instructions.get(&3_842_849), Some(&21), "{:?} {:?}", summary.instructions, summary.errors);
    assert!(summary.functions.iter().any(|f| f.function == "main"), "{:?}", summary.functions);
}

/// The same test: instructions 0 to 45, of which number 6 is an error: the dynamic linker is not there.
#[test]
fn lldb_s_trace_through_libraries_has_its_45_instructions_and_the_gap_of_the_missing_one() {
    let Some(dir) = folder("intelpt-trace-multi-file") else { return };
    let summary = decoded(&dir, "multi-file-no-ld.json");
    assert_eq!(summary.instructions.get(&815_455), Some(&45), "{:?} {:?}", summary.instructions, summary.errors);
    assert_eq!(summary.counts.gaps.get(&Gap::NoCode).map(|(n, _)| *n), Some(1), "{:?}", summary.counts.gaps);
    for name in ["main", "foo", "bar"] {
        assert!(summary.functions.iter().any(|f| f.function.starts_with(name)), "{name}: {:?}", summary.functions);
    }
}
