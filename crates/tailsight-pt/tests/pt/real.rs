//! Real recordings, where they are: `TAILSIGHT_PT_DATA` names a folder that holds `perf.data.intel_pt-4.14` of the project
//! perf_data_converter (BSD-3-Clause; src/quipper/testdata). Without it these tests skip.

use std::path::PathBuf;
use std::process::Command;

use tailsight_pt::container::Container;
use tailsight_pt::index;
use tailsight_pt::sideband::Sideband;

fn recording(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("TAILSIGHT_PT_DATA").map(|dir| PathBuf::from(dir).join(name));
    let there = path.filter(|path| path.is_file());
    if there.is_none() {
        tailsight_testing::skip(format!("TAILSIGHT_PT_DATA names no folder with {name}"));
    }
    there
}

/// How often a line of perf's own dump holds each of these.
fn dump(path: &std::path::Path, wanted: &[&str]) -> Vec<u64> {
    // perf reads what was written to a pipe from a pipe only.
    let script = r#"case $1 in *piped*) cat "$1" | perf script -D -i - ;; *) perf script -D -i "$1" ;; esac"#;
    let out = Command::new("sh").args(["-c", script, "sh"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    wanted.iter().map(|word| text.lines().filter(|line| line.contains(word)).count() as u64).collect()
}

fn psbs(container: &Container, file: &std::fs::File) -> Vec<index::Psb> {
    let mut out = Vec::new();
    container.queues.iter().for_each(|queue| index::find(queue, file, |psb| out.push(psb)).unwrap());
    out
}

#[test]
fn sideband_and_packets_of_a_real_recording_are_those_of_perf_s_dump() {
    let Some(path) = recording("perf.data.intel_pt-4.14") else { return };
    if let Some(why) = tailsight_testing::lacks_program("perf") {
        return tailsight_testing::skip(why);
    }
    let container = Container::open(&path).unwrap();
    let sideband = Sideband::of(&container).unwrap();
    assert_eq!((container.queues.len(), sideband.info.kernel), (2, true));
    let kinds = ["PERF_RECORD_SWITCH_CPU_WIDE", "PERF_RECORD_AUX ", "PERF_RECORD_ITRACE_START", "PERF_RECORD_MMAP2"];
    let counted = [15, 11, 12, 10].map(|kind| sideband.records.get(&kind).copied().unwrap_or(0));
    assert_eq!(counted.to_vec(), dump(&path, &kinds));
    let file = std::fs::File::open(&path).unwrap();
    let psbs = psbs(&container, &file);
    // perf prints each packet of the trace on a line of its own; each PSB has its end.
    assert_eq!(vec![psbs.len() as u64], dump(&path, &["PSBEND"]));
    assert!(psbs.iter().all(|psb| psb.tsc.is_some()));
    let clock = sideband.clock(&container).unwrap();
    let times: Vec<u64> = psbs.iter().filter_map(|p| p.tsc).map(|tsc| clock.ns(tsc)).collect();
    let switches: Vec<u64> = sideband.switches.values().flatten().map(|s| s.time_ns).filter(|t| *t > 0).collect();
    let (first, last) = (switches.iter().min().unwrap(), switches.iter().max().unwrap());
    let near = |t: &u64| *t + 1_000_000_000 > *first && *t < *last + 1_000_000_000;
    assert!(times.iter().all(near), "the trace's clock is the switches' clock");
}

/// Another run of the same program, written to a pipe.
#[test]
fn a_recording_through_a_pipe_is_read() {
    let Some(path) = recording("perf.data.piped.intel_pt-4.14") else { return };
    if let Some(why) = tailsight_testing::lacks_program("perf") {
        return tailsight_testing::skip(why);
    }
    let container = Container::open(&path).unwrap();
    let sideband = Sideband::of(&container).unwrap();
    assert!(sideband.info.clock.is_some() && sideband.cpu_model.contains("m7-6Y75"), "{:?}", sideband.cpu_model);
    let kinds = ["PERF_RECORD_SWITCH_CPU_WIDE", "PERF_RECORD_AUX ", "PERF_RECORD_ITRACE_START", "PERF_RECORD_MMAP2"];
    let counted = [15, 11, 12, 10].map(|kind| sideband.records.get(&kind).copied().unwrap_or(0));
    assert_eq!(counted.to_vec(), dump(&path, &kinds));
    let file = std::fs::File::open(&path).unwrap();
    assert_eq!(vec![psbs(&container, &file).len() as u64], dump(&path, &["PSBEND"]));
}
