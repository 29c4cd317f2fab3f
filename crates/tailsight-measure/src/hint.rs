//! What would help, on this machine. In: the method's advice, the load, the machine. Out: a sentence.
//!
//! What is advice on one machine does harm on another: a client that polls is on time where it has a core of its own, and takes
//! the server's where the two share two.

use tailsight_load::{Plan, Rate};
use tailsight_stats::method::Advice;

use crate::machine::Machine;

/// From this share of all cores' time on, others are said to be what is in the way.
const BUSY: f64 = 0.25;
/// The same of what a hypervisor took, and of the time that some task waited for a core.
const STOLEN: f64 = 0.02;
const PRESSED: f64 = 0.1;
/// From so many cores' time on that others used, the server may be near the limit of a core.
const SATURATED: f64 = 0.7;

/// A sentence of advice.
pub fn words(advice: Advice, plan: &Plan, machine: &Machine) -> String {
    match advice {
        Advice::BeOnTime { takes_the_width } => {
            let begin = if takes_the_width { "the client's lateness takes most of the width: " } else { "" };
            format!("{begin}{}", be_on_time(plan, machine))
        }
        Advice::MakeTheLoad => {
            let more = if machine.shares_cores(plan.threads as usize) {
                "lower the rate, or load from another machine (`tailsight agent`, docs/agents.md): more threads here \
                 would take cores \
                 from the server"
                    .to_owned()
            } else {
                "lower the rate, or add connections, threads or agents until the client can send it".to_owned()
            };
            more + &neighbours(machine)
        }
        Advice::FindTheChange => {
            "find what changes on the server (a growing queue, caches, garbage collection, CPU frequency, other \
             programs), or lower the rate"
                .to_owned()
                + &neighbours(machine)
        }
        Advice::LongerOrSlower => {
            let longer =
                "measure for longer: samples that are near in time are alike, over a time that is long for this run";
            // Only where it can be so: a server that is idle has no queue.
            let used = machine.others.filter(|_| machine.server_is_here == Some(true));
            let busy = used.is_some_and(|others| others * machine.cores as f64 >= SATURATED);
            let slower = if busy { ". Near saturation queues last for long: a lower rate shortens them" } else { "" };
            format!("{longer}{slower}")
        }
        Advice::LongerOrLess { needed: Some(needed) } => {
            let time = match plan.rate {
                // With the second of load before, the pauses between batches and a reserve.
                Rate::Constant(rate) if !plan.arrivals.is_closed() => {
                    format!(" (`--max-time {:.0}s`)", (needed as f64 / rate * 1.3 + 3.0).ceil())
                }
                _ => String::new(),
            };
            format!("about {needed} requests would be enough{time}; or accept a wider interval or a lower percentile")
        }
        other => tailsight_stats::method::hint(other),
    }
}

/// What to do where requests waited for a connection, for so long at most: how many connections would have had room.
pub fn have_room(plan: &Plan, longest_ns: u64) -> String {
    // Little: what is due in the longest time for which nothing was answered.
    let due = plan.rate.peak() * longest_ns as f64 / 1e9;
    let connections = f64::from(plan.connections) + (due / f64::from(plan.outstanding)).ceil();
    let server = "look at the server: it is what did not answer for so long (`tailsight record`). ";
    if connections > 60_000.0 || connections > 50.0 * f64::from(plan.connections) {
        return format!("{server}No number of connections makes up for that: lower the rate");
    }
    format!(
        "{server}If its clients have more connections, give --connections {connections:.0}: so many have room for what is due then"
    )
}

/// What a late client can do about it here.
pub fn be_on_time(plan: &Plan, machine: &Machine) -> String {
    let threads = plan.threads as usize;
    let cores = machine.cores;
    let own = if machine.shares_cores(threads) {
        format!(
            "client and server share this host's {}: load from another machine (`tailsight agent`, docs/agents.md), \
             lower the rate, or \
             ask for a wider interval. Polling would take a core from the server",
            if cores == 1 { "only core".into() } else { format!("{cores} cores") }
        )
    } else if machine.server_is_here == Some(true) {
        "give the client cores of its own (--cpus, and the server others) and let it poll (--wait spin), lower the \
         rate, or ask for a \
         wider interval"
            .to_owned()
    } else if cores > threads {
        "let the client poll (--wait spin) on cores of its own (--cpus), add threads, connections or agents, lower \
         the rate, or ask for \
         a wider interval"
            .to_owned()
    } else {
        "use a client with more cores, or several clients (`tailsight agent`), lower the rate, or ask for a wider \
         interval"
            .to_owned()
    };
    let is_crowded = machine.others.is_some_and(|others| others >= BUSY);
    let before = match is_crowded && !plan.real_time {
        true => ". Or let the client run before other programs of its host (--realtime)",
        false => "",
    };
    own + before + &neighbours(machine)
}

/// Who else is in the way; nothing where nobody is.
fn neighbours(machine: &Machine) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let mut text = String::new();
    if let Some(stolen) = machine.stolen.filter(|s| *s >= STOLEN) {
        text += &format!(
            ". The hypervisor gave {} of this host's time to other guests: use a quieter machine",
            percent(stolen)
        );
    }
    let Some(others) = machine.others.filter(|o| *o >= BUSY) else { return text };
    let waits = machine.pressure.filter(|p| *p >= PRESSED);
    let waits = waits.map_or(String::new(), |p| format!(", and tasks waited for a core {} of the time", percent(p)));
    let who = if machine.server_is_here == Some(true) { "the server and other programs" } else { "other programs" };
    text + &format!(". On this host {who} used {} of all cores meanwhile{waits}: stop other programs", percent(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let mut plan = Plan::new("127.0.0.1:1".parse().unwrap(), tailsight_load::Protocol::Echo);
        plan.rate = Rate::Constant(5_000.0);
        plan
    }

    fn machine(cores: usize, here: bool) -> Machine {
        Machine { cores, server_is_here: Some(here), ..Machine::default() }
    }

    /// Regression: on two cores that client and server share, the advice was to poll, which made it worse.
    #[test]
    fn polling_is_advised_only_where_there_is_a_core_for_it() {
        let advice = Advice::BeOnTime { takes_the_width: false };
        let crowded = words(advice, &plan(), &machine(2, true));
        assert!(crowded.contains("share this host's 2 cores") && crowded.contains("another machine"), "{crowded}");
        assert!(!crowded.contains("--wait spin") && !crowded.contains("threads"), "{crowded}");
        assert!(words(advice, &plan(), &machine(1, true)).contains("only core"));
        let busy = Machine { others: Some(0.5), ..machine(2, true) };
        assert!(words(advice, &plan(), &busy).contains("(--realtime)") && !crowded.contains("(--realtime)"));
        let real_time = tailsight_load::Plan { real_time: true, ..plan() };
        assert!(!words(advice, &real_time, &busy).contains("(--realtime)"), "it does");
        for roomy in [machine(8, true), machine(2, false)] {
            assert!(words(advice, &plan(), &roomy).contains("--wait spin"), "{roomy:?}");
        }
        assert!(!words(advice, &plan(), &machine(1, false)).contains("--wait spin"));
        let load = words(Advice::MakeTheLoad, &plan(), &machine(2, true));
        assert!(load.contains("lower the rate") && !load.contains("add connections"), "{load}");
    }

    #[test]
    fn neighbours_are_named_where_they_matter() {
        let advice = Advice::BeOnTime { takes_the_width: true };
        let busy = Machine { others: Some(0.61), pressure: Some(0.34), stolen: Some(0.05), ..machine(2, true) };
        let text = words(advice, &plan(), &busy);
        assert!(text.starts_with("the client's lateness takes most of the width: "), "{text}");
        assert!(text.contains("used 61 %") && text.contains("34 % of the time") && text.contains("gave 5 %"), "{text}");
        let quiet = Machine { others: Some(0.1), pressure: Some(0.9), stolen: Some(0.0), ..machine(2, true) };
        assert!(!words(advice, &plan(), &quiet).contains("used"), "{}", words(advice, &plan(), &quiet));
    }

    /// "near saturation" was the hint about a server that was 2 % busy.
    #[test]
    fn saturation_is_spoken_of_only_where_the_cores_were_used() {
        let says = |machine: Machine| words(Advice::LongerOrSlower, &plan(), &machine).contains("saturation");
        assert!(!says(Machine { others: Some(0.02), ..machine(2, true) }));
        assert!(!says(machine(2, true)), "it is not known");
        assert!(!says(Machine { others: Some(0.9), ..machine(2, false) }), "the server is elsewhere");
        assert!(says(Machine { others: Some(0.5), ..machine(2, true) }), "a server of one thread has its core full");
        assert!(!tailsight_stats::method::hint(Advice::LongerOrSlower).contains("saturation"));
    }

    #[test]
    fn a_number_of_requests_comes_with_the_option_that_allows_it() {
        let text = words(Advice::LongerOrLess { needed: Some(100_000) }, &plan(), &machine(2, true));
        // 100,000 at 5,000/s are 20 s; a third more, and 3 s.
        assert!(text.contains("--max-time 29s"), "{text}");
    }
}
