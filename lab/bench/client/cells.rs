//! Loads on the real servers, each made by several clients in turn: what prices and lateness have in common. In: cells.
//! Out: what each client's runs at each cell gave.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tailsight_lab::servers::TextProtocol;
use tailsight_testbed::netns::SERVER_V4;

use super::run::{Runs, Shot, turned};
use super::servers::Servers;
use super::tools::{Job, Shape, Tool};
use crate::Bench;

/// A load on a server, and who makes it.
pub struct Cell {
    /// Its name in tables.
    pub name: &'static str,
    /// Which server.
    pub protocol: TextProtocol,
    /// The load.
    pub shape: Shape,
    /// The clients.
    pub tools: &'static [Tool],
    /// For the tool that is given a number of requests.
    pub guess_per_s: f64,
}

/// What was measured of the cells, by tool.
pub type Measured<M> = Vec<(Cell, Vec<(Tool, Vec<M>)>)>;

/// Measures all cells, round by round. `watch`: what arrives is captured at the servers' interface. `of` makes of a run what
/// is kept; `None` leaves it out.
pub fn measure<M>(
    bench: &Bench,
    patience: &mut Duration,
    title: &str,
    plan: Vec<Cell>,
    watch: bool,
    of: impl Fn(Tool, &Cell, Shot) -> Option<M>,
) -> anyhow::Result<(Measured<M>, BTreeMap<String, String>)> {
    let servers = Servers::start()?;
    let pids = servers.pids();
    let mut runs = Runs::new(bench, &servers.pair.client, patience);
    let mut measured: Measured<M> = Vec::new();
    for cell in plan {
        let tools = cell.tools.iter().filter(|tool| runs.has(**tool)).map(|tool| (*tool, Vec::new())).collect();
        measured.push((cell, tools));
    }
    for round in 0..bench.rounds {
        eprintln!("bench: {title}, round {} of {}", round + 1, bench.rounds);
        for (cell, tools) in &mut measured {
            for i in turned(tools.len(), round) {
                let (tool, kept) = &mut tools[i];
                let place = format!("{}, {}", tool.name(), cell.name);
                let addr = SocketAddr::new(SERVER_V4, servers.of(cell.protocol).port());
                let job = Job {
                    protocol: cell.protocol,
                    guess_per_s: cell.guess_per_s,
                    watch: watch.then_some(&servers.pair.server),
                    ..runs.job(addr, cell.shape)?
                };
                let Some(shot) = runs.shot(&place, *tool, &job, &pids)? else { continue };
                match of(*tool, cell, shot) {
                    Some(one) => kept.push(one),
                    None => _ = runs.not_run.insert(place, "no requests were seen on the wire".to_owned()),
                }
            }
        }
    }
    Ok((measured, runs.not_run))
}
