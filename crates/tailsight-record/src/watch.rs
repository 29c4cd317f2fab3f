//! What the programs of `bpf/watch.h` count of each message, read from their map.
//!
//! In: the loaded probes. Out: [`LatencyCounts`].

use libbpf_rs::{MapCore, MapFlags};
use tailsight_watch::{LATENCY_CLASSES, LatencyCounts, Leg};

use crate::error::Error;
use crate::loaded::Loaded;
use crate::object::Opened;

/// As in the C.
const OPEN_MESSAGES: u32 = 1 << 16;

/// Makes the maps as large as watching needs them.
pub fn size_maps(open: &mut Opened, cpus: u32) -> Result<(), Error> {
    let counts = cpus * (Leg::ALL.len() * LATENCY_CLASSES) as u32;
    for (name, entries) in [("open_messages", OPEN_MESSAGES), ("latency_counts", counts)] {
        open.map(name).set_max_entries(entries).map_err(|e| Error::bpf(&format!("sizing {name}"), e))?;
    }
    Ok(())
}

/// Latencies on all cores since the programs were loaded.
///
/// # Errors
/// [`Error::Bpf`].
pub fn latencies(loaded: &Loaded) -> Result<LatencyCounts, Error> {
    let map = &loaded.probes.maps.latency_counts;
    let entries = map.lookup_batch(map.max_entries(), MapFlags::ANY, MapFlags::ANY);
    let mut counts = LatencyCounts::default();
    for (key, value) in entries.map_err(|e| Error::bpf("reading the latencies", e))? {
        let place = u32::from_ne_bytes(key.try_into().unwrap_or_default()) as usize;
        let messages = u64::from_ne_bytes(value.try_into().unwrap_or_default());
        let leg = Leg::ALL[place / LATENCY_CLASSES % Leg::ALL.len()];
        counts.add_to_class(leg, place % LATENCY_CLASSES, messages);
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is written down twice: here and in the C.
    #[test]
    fn the_programs_count_in_the_same_classes() {
        let c = include_str!("bpf/watch.h");
        assert!(c.contains(&format!("#define LATENCY_CLASSES {LATENCY_CLASSES}\n")));
        assert!(c.contains(&format!("#define OPEN_MESSAGES_LOG2 {}\n", OPEN_MESSAGES.ilog2())));
        assert!(c.contains("enum watched_leg { WATCHED_TOTAL, WATCHED_RECEIVE, WATCHED_SERVICE, WATCHED_LEGS };"));
        assert_eq!(Leg::ALL.map(Leg::name), ["total", "receive", "service"]);
    }
}
