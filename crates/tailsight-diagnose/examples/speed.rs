//! Times a diagnosis: `cargo run --release -p tailsight-diagnose --example speed [MESSAGES]`.
//!
//! In: nothing; it makes 200,000 messages (unless told) with 12 parts each over 400 owners. Out: ms of five diagnoses, whole
//! and without the bootstrap, on stdout.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::time::Instant;

use tailsight_diagnose::rows::bootstrap::SplitMix;
use tailsight_diagnose::{Options, RecordingFacts, diagnose};
use tailsight_lifetime::{Context, Frame, Leg, Lifetimes, Message, Owner, Part, Role};

const PARTS: usize = 12;

fn main() {
    let messages = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let lifetimes = synthetic(messages);
    println!("{messages} messages, {} parts, {} owners", messages * PARTS, lifetimes.owners.len());
    for (what, leg, rounds) in
        [("receive", Leg::Receive, 500), ("receive, no bootstrap", Leg::Receive, 0), ("total", Leg::Total, 500)]
    {
        let options = Options { leg, bootstrap_rounds: rounds, ..Options::default() };
        let mut times = vec![];
        let mut rows = 0;
        for _ in 0..5 {
            let start = Instant::now();
            match diagnose(&lifetimes, &options, &RecordingFacts::default()) {
                Ok(d) => rows = d.causes.len(),
                Err(e) => return eprintln!("{e}"),
            }
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        println!("{what}: median {:.1} ms, max {:.1} ms, {rows} rows", times[2], times[4]);
    }
}

fn synthetic(messages: usize) -> Lifetimes {
    let owners: Vec<Owner> = (0..400u32)
        .map(|i| {
            let context = match i % 5 {
                0 => Context::Own,
                1 => Context::Ahead,
                2 => Context::Foreign { comm: format!("task{}", i % 40), kernel: i % 20 == 2 },
                3 => Context::Idle,
                _ => Context::Blocked,
            };
            let frames = match i % 3 {
                0 => vec![Frame::Syscall { nr: i }],
                1 => vec![Frame::Irq { irq: i % 8 }, Frame::Softirq { vec: 3, inline: false }],
                _ => vec![],
            };
            Owner { context, frames }
        })
        .collect();
    let mut rng = SplitMix(1);
    let mut messages_made = Vec::with_capacity(messages);
    let mut parts = Vec::with_capacity(messages);
    for id in 0..messages {
        let slow = rng.below(80) == 0;
        let mut legs = [vec![], vec![], vec![]];
        let mut sums = [0; 3];
        for i in 0..PARTS {
            let leg = i * 3 / PARTS * usize::from(i % 2 == 0);
            let ns = 100 + rng.below(if slow && i == 3 { 1_000_000 } else { 2_000 }) as u64;
            let role = if i < 3 { Role::R } else { Role::A };
            legs[leg].push(Part { role, owner: rng.below(owners.len()) as u32, count: 1, ns });
            sums[leg] += ns;
        }
        let driver_ns = 1 + id as u64 * 10_000;
        let recv_ns = driver_ns + sums[0];
        let send_ns = recv_ns + sums[1];
        messages_made.push(Message {
            id: id as u32,
            driver_ns,
            recv_ns,
            send_ns,
            xmit_ns: send_ns + sums[2],
            ..Message::default()
        });
        parts.push(legs);
    }
    Lifetimes::from_parts("synthetic", messages_made, vec![], owners, parts)
}
