//! Writes first inputs for the fuzz targets of Intel PT: `pt_seeds CORPUS`: the lab's records for `pt_sideband`, packets of
//! each kind somewhere in the trace for `pt_packets`, and a clock log of changes each 4 ms for `clock_log`. `pt_container` begins with the lab's files as they are.

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
    // OVF, TraceStop, PIP, CBR, TMA, PSB, MODE and EXSTOP at different places, as the manual encodes them.
    let packets: [&[u8]; 8] = [&[2, 0xf3], &[2, 0x83], &[2, 0x43, 2, 0, 0, 0, 0, 0], &[2, 3, 20, 0], &[2, 0x73, 1, 0, 0, 1, 0], &[2, 0x82], &[0x99, 1], &[2, 0x62]];
    for (i, packet) in packets.iter().enumerate() {
        let at = (137 * (i as u16 + 1)).to_le_bytes();
        let change = [&at[..], &[packet.len() as u8], packet].concat();
        std::fs::write(corpus.join(format!("pt_packets/{i}")), change)?;
    }
    let mut log = vec![6];
    for i in 0..6u64 {
        let words = [24 << 32 | 2 * i, 37 << 32 | ((1 << 23) + i), 8_000_000 * i, 5, i << 30, 1_700_000_000, i << 31, i << 29];
        words.iter().for_each(|word| log.extend(word.to_le_bytes()));
    }
    (0..20u64).for_each(|i| log.extend((2_345_678 * i).to_le_bytes()));
    std::fs::write(corpus.join("clock_log/good"), log)
}
