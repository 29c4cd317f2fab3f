//! Writes first inputs for the fuzz targets of Intel PT: `pt_seeds CORPUS`: the lab's records for `pt_sideband`, and a clock log of
//! changes each 4 ms for `clock_log`. `pt_container` begins with the lab's files as they are.

#[path = "../pt.rs"]
#[allow(dead_code, reason = "only the records are needed here")]
mod pt;

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(corpus) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: pt_seeds CORPUS");
        std::process::exit(2);
    };
    let records = pt::good_records();
    std::fs::write(corpus.join("pt_sideband/good"), &records)?;
    std::fs::write(corpus.join("pt_sideband/short"), &records[..records.len() / 16])?;
    let mut log = vec![6];
    for i in 0..6u64 {
        let words = [24 << 32 | 2 * i, 37 << 32 | ((1 << 23) + i), 8_000_000 * i, 5, i << 30, 1_700_000_000, i << 31, i << 29];
        words.iter().for_each(|word| log.extend(word.to_le_bytes()));
    }
    (0..20u64).for_each(|i| log.extend((2_345_678 * i).to_le_bytes()));
    std::fs::write(corpus.join("clock_log/good"), log)
}
