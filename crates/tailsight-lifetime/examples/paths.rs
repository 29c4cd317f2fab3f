//! Prints the legs of a run, and the path of the median and the slowest message of each, span by span: `paths RUN`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use tailsight_lifetime::*;
fn main() {
    let t0 = std::time::Instant::now();
    let mut run = tailsight_trace::Run::open(std::env::args().nth(1).unwrap().as_ref()).unwrap();
    let events = run.events().unwrap();
    let n: usize = events.iter().map(|c| c.events.len()).sum();
    let t1 = std::time::Instant::now();
    let a = Analysis::build(&RunContext::of(&run), &events);
    let t2 = std::time::Instant::now();
    let l = &a.lifetimes;
    println!(
        "{n} events, read {:?}, lifetimes {:?}, {} messages, incomplete {:?}, {} flows, {} owners, partial {:?}",
        t1 - t0,
        t2 - t1,
        l.messages.len(),
        l.incomplete,
        l.flows.len(),
        l.owners.len(),
        run.partial
    );
    for leg in [Leg::Receive, Leg::Service, Leg::Transmit, Leg::Total] {
        let mut v: Vec<(u64, u32)> = l.messages.iter().filter_map(|m| Some((m.latency(leg)?, m.id))).collect();
        v.sort();
        let mut bad = 0;
        for (ns, id) in &v {
            let s: u64 = l.parts(*id, leg).iter().map(|p| p.ns).sum();
            if s != *ns {
                bad += 1;
            }
        }
        if v.is_empty() {
            println!("{leg:?}: none");
            continue;
        }
        println!(
            "{leg:?}: n {} p50 {} p99 {} max {} bad sums {bad}",
            v.len(),
            v[v.len() / 2].0,
            v[v.len() * 99 / 100].0,
            v.last().unwrap().0
        );
        for q in [v.len() / 2, v.len() - 1] {
            let (_, id) = v[q];
            let m = &l.messages[id as usize];
            println!(
                "  msg {id} ahead {} batch {} flow {} flags {}",
                m.ahead, m.batch, l.flows[m.flow as usize].name, m.flags
            );
            let path = a.path(id, leg);
            let mut at = path.first().map_or(0, |s| s.from_ns);
            for s in path.iter().take(40) {
                assert_eq!(s.from_ns, at);
                at = s.to_ns;
                println!(
                    "    {:>8} ns cpu {:?} {:?} {}{}",
                    s.to_ns - s.from_ns,
                    s.cpu,
                    s.role,
                    l.owners[s.owner as usize].path(&l.symbols),
                    if s.begins { " *" } else { "" }
                );
            }
        }
    }
}
